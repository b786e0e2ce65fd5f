//! Outcome: the record of a finished request in the ledger.
//!
//! Only for a GET, and for a HEAD to a URL that does not exist; anything else changes nothing. `ledger/transition`
//! defines how an observation changes a record.

use std::mem::replace;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::HeaderValue;
use http::response::Parts;
use http::{Method, StatusCode};

use crate::ledger::key::{ContentKey, LedgerKey};
use crate::ledger::observation::{
    BadOutcome, DeliveredDocument, ObservationOutcome, ObservedRefusal, ObservedResponse,
    RefusalRecording, UrlObservation,
};
use crate::ledger::record::{ContentHash, UnixMillis};
use crate::ledger::recrawl::is_same_content;
use crate::metrics::record::UrlRetention;
use crate::model::crawl_status::CrawlStatus;
use crate::model::crawler::Crawler;
use crate::model::failure_kind::FailureKind;
use crate::model::intent::Intent;
use crate::model::reason::Reason;
use crate::model::removal::{RemovalAction, RemovalOutcome};
use crate::model::rule_id::RuleId;
use crate::model::stage::Stage;
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::snapshot::PolicyVersion;
use crate::pipeline::sweep::sweep_late_record;
use crate::policy::options::checks::{self, CheckAction, LinksOnly};
use crate::policy::options::removal;
use crate::policy::options::schema::{self, DUPLICATE};
use crate::policy::space::SpaceIndex;
use crate::policy::trail::Trail;
use crate::store::ledger::LedgerUpdate;
use crate::urls::target::UrlTarget;

use super::ledger::{self, LedgerEntry, url_key};
use super::recrawl::{has_document, is_fetch, may_be_indexed, read_validators, strong_etag};

/// OmniFind's code "parse error, body", for a response that broke off.
const BROKEN_BODY: u16 = 730;
/// The status of a soft error that names no other.
const NOT_FOUND: u16 = 404;
/// The most bytes of a `User-Agent` that are stored.
const MAX_USER_AGENT: usize = 512;

/// Records the outcome of a request when it is dropped. It accompanies the response's body to its last byte: for a document
/// whose delivery was not marked ([`Self::mark_delivered`]), nothing is recorded.
#[derive(Debug)]
pub struct OutcomeRecorder {
    subject: OutcomeSubject,
    ledger_entry: LedgerEntry,
    /// The trail of the rules once the head has arrived, on which the keys of other URLs with the same document depend;
    /// `None` unless the option `duplicate` needs it.
    duplicate_trail: Option<Box<Trail>>,
    /// The rule and the intent of a refusal.
    rule: Option<RuleId>,
    intent: Option<Intent>,
    /// The `User-Agent` of a request that robots.txt refuses.
    user_agent: Option<Arc<str>>,
    progress: OutcomeProgress,
}

/// The request that is observed.
#[derive(Debug)]
struct OutcomeSubject {
    target: UrlTarget,
    method: FetchMethod,
    crawler: Crawler,
    /// The policy that it was evaluated under.
    version: Arc<PolicyVersion>,
    space: Option<SpaceIndex>,
    source: Option<HeaderValue>,
}

/// The methods whose outcomes are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchMethod {
    Get,
    /// Only that the URL does not exist is recorded.
    Head,
}

#[derive(Debug)]
enum OutcomeProgress {
    /// No response yet.
    Pending,
    /// The response is on its way to the client.
    Answered(RecordedResponse),
    /// It has ended, with this outcome at this time.
    Finished(ObservationOutcome, UnixMillis),
}

/// The head of a response.
#[derive(Debug)]
struct RecordedResponse {
    at: UnixMillis,
    status: StatusCode,
    failure: Option<FailureKind>,
    removal: RemovalChoices,
    document: DeliveredDocument,
    /// The strong entity tag by which other URLs of the host find the document.
    etag: Option<Arc<str>>,
    delivery: BodyDelivery,
    /// The check because of which only the links of the document are sent on, and the policy's action for the page.
    links_only: Option<(LinksOnly, BadOutcome)>,
}

/// The policy's actions for a page whose outcome is known only with its body, or from its status.
#[derive(Clone, Copy, Debug)]
struct RemovalChoices {
    /// For the status, if the response is an error.
    status: Option<BadOutcome>,
    /// For a body that is too large.
    too_large: BadOutcome,
    /// For a body that breaks off.
    broken: RemovalAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyDelivery {
    InProgress,
    Complete,
}

/// Records that a request was refused before it was sent to its origin.
pub fn record_early_refusal(
    evaluation: &Evaluation,
    refusal: &Refusal,
    admission: &AdmissionQueue,
) {
    let Some(entry) = evaluation
        .ledger_entry()
        .filter(|_| evaluation.facts().method == Method::GET)
    else {
        return;
    };
    let keeps_nothing = refusal.url_retention == UrlRetention::None;
    let skips_new = record_choice(evaluation, refusal) == RefusalRecording::Skip
        && (refusal.failure.is_none() || keeps_nothing);
    if entry.record.is_none() && skips_new {
        return;
    }
    let Some(mut recorder) = OutcomeRecorder::for_request(evaluation) else {
        return;
    };
    // A connection that is not even tried, such as to an address that has just refused another request: the URL is lost for
    // now, and has not failed.
    let untried = refusal.reason == Reason::UpstreamConnect && refusal.stage == Stage::Destination;
    if untried {
        let deferral = Refusal {
            failure: None,
            intent: Some(Intent::Later),
            ..refusal.clone()
        };
        recorder.record_refusal(evaluation, &deferral, admission);
    } else {
        recorder.record_refusal(evaluation, refusal, admission);
    }
}

impl OutcomeRecorder {
    /// Creates a recorder for a request that is sent on; `None` if its outcome is not recorded.
    pub fn for_request(evaluation: &Evaluation) -> Option<Box<Self>> {
        let entry = evaluation
            .ledger_entry()
            .filter(|_| is_fetch(&evaluation.facts().method))?;
        let about = OutcomeSubject {
            target: evaluation.facts().target.clone(),
            method: if evaluation.facts().method == Method::HEAD {
                FetchMethod::Head
            } else {
                FetchMethod::Get
            },
            crawler: evaluation.facts().crawler.clone(),
            version: Arc::clone(&evaluation.snapshot().version),
            space: evaluation.trail().space(),
            source: evaluation.effects().source().cloned(),
        };
        Some(Box::new(Self {
            subject: about,
            ledger_entry: entry.clone(),
            duplicate_trail: None,
            rule: None,
            intent: None,
            user_agent: None,
            progress: OutcomeProgress::Pending,
        }))
    }

    /// Sets the address that has answered.
    pub fn set_address(&mut self, address: IpAddr) {
        self.ledger_entry.address = Some(address);
    }

    /// Records the head of the origin's response, with its media type.
    pub(crate) fn record_head(
        &mut self,
        evaluation: &Evaluation,
        head: &Parts,
        content_type: &str,
        failure: Option<FailureKind>,
        at: UnixMillis,
    ) {
        let validators = read_validators(&head.headers);
        let document = DeliveredDocument {
            validators,
            content_hash: None,
            content_type: content_type.into(),
            size: 0,
        };
        // Rules on responses may set these options.
        self.subject.source = evaluation.effects().source().cloned();
        let (policy, trail) = (evaluation.policy(), evaluation.trail());
        let finds_duplicates = policy.compares_content()
            && checks::read_action(policy, trail, DUPLICATE) != CheckAction::Pass;
        self.duplicate_trail = finds_duplicates.then(|| Box::new(trail.clone()));
        let etag = self
            .duplicate_trail
            .as_ref()
            .and_then(|_| strong_etag(&head.headers))
            .map(Arc::from);
        let delivery = BodyDelivery::InProgress;
        self.progress = OutcomeProgress::Answered(RecordedResponse {
            at,
            status: head.status,
            failure,
            removal: RemovalChoices::new(evaluation, head.status, failure),
            document,
            etag,
            delivery,
            links_only: None,
        });
    }

    /// Records that only the links of the document are sent on. The option `removal` applies as to a refusal for the same
    /// reason.
    pub fn set_links_only(&mut self, evaluation: &Evaluation, check: LinksOnly) {
        let OutcomeProgress::Answered(response) = &mut self.progress else {
            return;
        };
        let outcome = match check {
            LinksOnly::Noindex => RemovalOutcome::Noindex,
            LinksOnly::Duplicate => RemovalOutcome::Duplicate,
        };
        let intent = evaluation.trail().reject_intent(evaluation.policy());
        let action = removal_action(evaluation, outcome, intent);
        response.links_only = Some((check, BadOutcome { outcome, action }));
    }

    /// Adds bytes of the response's body that were sent to the client.
    pub fn add_sent_bytes(&mut self, bytes: u64) {
        if let OutcomeProgress::Answered(response) = &mut self.progress {
            response.document.size += bytes;
        }
    }

    /// Sets the SHA-256 of the response's whole decoded body.
    pub fn set_content_hash(&mut self, hash: ContentHash) {
        if let OutcomeProgress::Answered(response) = &mut self.progress {
            response.document.content_hash = Some(hash);
        }
    }

    /// Records that the last byte was sent to the client.
    pub fn mark_delivered(&mut self) {
        if let OutcomeProgress::Answered(response) = &mut self.progress {
            response.delivery = BodyDelivery::Complete;
        }
    }

    /// Records that the origin's body broke off.
    pub fn record_broken_body(&mut self) {
        if let OutcomeProgress::Answered(RecordedResponse {
            at,
            failure: None,
            removal,
            ..
        }) = self.progress
        {
            let failure = FailureKind::Temporary;
            self.progress = OutcomeProgress::Finished(
                ObservationOutcome::Failed {
                    failure,
                    code: Some(BROKEN_BODY),
                    removal: removal.broken,
                },
                at,
            );
        }
    }

    /// Records that the body was cut off because it is larger than the policy allows.
    pub fn record_oversized_body(&mut self) {
        let OutcomeProgress::Answered(response) = &self.progress else {
            return;
        };
        let row = Reason::BodyTooLarge.row();
        let removal = Some(response.removal.too_large);
        let keep = RefusalRecording::Keep;
        let outcome =
            response.to_outcome(row.crawl_status, row.code, response.failure, removal, keep);
        self.progress = OutcomeProgress::Finished(outcome, response.at);
    }

    /// Records that the request or its response is refused.
    pub fn record_refusal(
        &mut self,
        evaluation: &Evaluation,
        refusal: &Refusal,
        admission: &AdmissionQueue,
    ) {
        let keeps_nothing = refusal.url_retention == UrlRetention::None;
        let at = match &self.progress {
            // `record: none` keeps a URL without an answer out.
            OutcomeProgress::Pending if keeps_nothing && self.ledger_entry.record.is_none() => {
                return;
            }
            OutcomeProgress::Pending => ledger::now(admission),
            OutcomeProgress::Answered(response) => response.at,
            OutcomeProgress::Finished(..) => return,
        };
        self.rule.clone_from(&refusal.rule);
        self.intent = refusal.intent();
        self.user_agent = refused_user_agent(evaluation, refusal);
        let outcome = self.refused_outcome(evaluation, refusal);
        self.progress = OutcomeProgress::Finished(outcome, at);
    }

    fn refused_outcome(&self, evaluation: &Evaluation, refusal: &Refusal) -> ObservationOutcome {
        let row = refusal.reason.row();
        let crawl_status = row.crawl_status;
        let code = refusal.crawl_code();
        let intent = refusal.intent();
        let choose = |outcome| BadOutcome {
            outcome,
            action: removal_action(evaluation, outcome, intent),
        };
        if let Some(failure) = refusal.failure {
            let removal = choose(RemovalOutcome::Error).action;
            return ObservationOutcome::Failed {
                failure,
                code,
                removal,
            };
        }
        let by_reason = row.removal;
        let OutcomeProgress::Answered(response) = &self.progress else {
            return ObservationOutcome::Refused(ObservedRefusal {
                crawl_status,
                code,
                removal: by_reason.map(choose),
                recording: record_choice(evaluation, refusal),
            });
        };
        // A page that a rule recognizes as an error counts as one.
        if refusal.reason == Reason::SoftError {
            let status = refusal.status.unwrap_or(NOT_FOUND);
            let removal = choose(RemovalOutcome::from_origin_status(status));
            let failure = Some(FailureKind::Permanent);
            let keep = RefusalRecording::Keep;
            return response.to_outcome(crawl_status, code, failure, Some(removal), keep);
        }
        // A response that is an error stays one, unless the policy orders the removal itself.
        let by_status = response.removal.status.map(|bad| bad.outcome);
        let outcome = by_status
            .filter(|_| intent != Some(Intent::Gone))
            .or(by_reason);
        let removal = outcome.map(choose);
        let recording = late_record_choice(refusal);
        response.to_outcome(crawl_status, code, response.failure, removal, recording)
    }

    /// Returns `true` if the body is that of the document that was delivered last.
    pub fn is_unmodified(&self, hash: &ContentHash) -> bool {
        let record = self
            .ledger_entry
            .record
            .as_ref()
            .filter(|record| has_document(record));
        record.is_some_and(|record| is_same_content(record, hash))
    }

    /// Returns another URL of the host whose document has the same body; `None` unless the option `duplicate` needs it.
    pub fn find_duplicate(&self, hash: &ContentHash) -> Option<Arc<str>> {
        let trail = self.duplicate_trail.as_ref()?;
        let other = self
            .ledger_entry
            .ledger
            .url_with_content(self.version_key(&hex(hash)))?;
        let target = UrlTarget::parse(&other).ok()?;
        let key = url_key(
            &self.subject.version.policy,
            trail,
            &self.subject.crawler,
            &target,
        );
        let record = self
            .ledger_entry
            .ledger
            .look_up(key)
            .filter(|_| key != self.ledger_entry.key)?;
        (may_be_indexed(&record) && is_same_content(&record, hash)).then_some(other)
    }

    fn version_key(&self, version: &str) -> LedgerKey {
        LedgerKey::for_content(
            self.subject.crawler.as_str(),
            self.subject.target.host(),
            version,
        )
    }

    /// Returns the key by which other URLs find the document: by its content and, where that cannot be compared, by its
    /// strong entity tag.
    fn content_key(&self, response: &RecordedResponse) -> Option<ContentKey> {
        self.duplicate_trail.as_ref()?;
        let hash = response.document.content_hash.as_ref().map(hex);
        let parts = [hash.as_deref(), response.etag.as_deref()];
        ContentKey::from_parts(parts.map(|part| part.map(|version| self.version_key(version))))
    }

    /// Takes the outcome, if there is one to record. Later calls return `None`.
    fn take_outcome(&mut self) -> Option<(UnixMillis, ObservationOutcome, Option<ContentKey>)> {
        let response = match replace(&mut self.progress, OutcomeProgress::Pending) {
            OutcomeProgress::Pending => return None,
            OutcomeProgress::Finished(outcome, at) => return Some((at, outcome, None)),
            OutcomeProgress::Answered(response) => response,
        };
        let status = response.status;
        if status.is_success() && response.delivery != BodyDelivery::Complete {
            return None;
        }
        let is_document = status == StatusCode::OK;
        let content = if is_document && response.links_only.is_none() {
            self.content_key(&response)
        } else {
            None
        };
        let (crawl_status, removal) = match response.links_only {
            Some((check, bad)) => (check.crawl_status(), Some(bad)),
            None => (
                CrawlStatus::from_origin_status(status.as_u16()),
                response.removal.status,
            ),
        };
        let outcome = ObservationOutcome::Answered(ObservedResponse {
            status: status.as_u16(),
            crawl_status,
            code: None,
            failure: response.failure,
            removal,
            document: is_document.then_some(response.document),
            recording: RefusalRecording::Keep,
        });
        Some((response.at, outcome, content))
    }

    fn to_observation(&self, at: UnixMillis, outcome: ObservationOutcome) -> UrlObservation {
        let OutcomeSubject {
            target,
            crawler,
            version,
            space,
            source,
            method: _,
        } = &self.subject;
        let policy = &version.policy;
        let space = space.and_then(|space| policy.spaces().get(space));
        let source = source.as_ref().and_then(|source| source.to_str().ok());
        UrlObservation {
            at,
            url: target.shared(),
            crawler: crawler.shared_name(),
            space: space.map(|space| space.name.shared()),
            depth: self.ledger_entry.depth,
            address: self.ledger_entry.address,
            source: source.map(Arc::from),
            revision: policy.shared_revision(),
            rule: self.rule.as_ref().map(|rule| rule.as_str().into()),
            intent: self.intent,
            user_agent: self.user_agent.clone(),
            outcome,
        }
    }
}

impl RecordedResponse {
    /// Returns the outcome of a response that is not delivered.
    fn to_outcome(
        &self,
        crawl_status: CrawlStatus,
        code: Option<u16>,
        failure: Option<FailureKind>,
        removal: Option<BadOutcome>,
        recording: RefusalRecording,
    ) -> ObservationOutcome {
        ObservationOutcome::Answered(ObservedResponse {
            status: self.status.as_u16(),
            crawl_status,
            code,
            failure,
            removal,
            document: None,
            recording,
        })
    }
}

impl RemovalChoices {
    fn new(evaluation: &Evaluation, status: StatusCode, failure: Option<FailureKind>) -> Self {
        let choose = |outcome| BadOutcome {
            outcome,
            action: removal_action(evaluation, outcome, None),
        };
        Self {
            status: failure.map(|failure| {
                choose(match failure {
                    FailureKind::Temporary => RemovalOutcome::Error,
                    FailureKind::Permanent => RemovalOutcome::from_origin_status(status.as_u16()),
                })
            }),
            too_large: choose(RemovalOutcome::TooLarge),
            broken: choose(RemovalOutcome::Error).action,
        }
    }
}

/// Returns the `User-Agent` of a request that robots.txt refuses.
fn refused_user_agent(evaluation: &Evaluation, refusal: &Refusal) -> Option<Arc<str>> {
    let user_agent = evaluation.facts().user_agent();
    let is_needed = refusal.stage == Stage::Robots && !user_agent.is_empty();
    is_needed.then(|| {
        let end = user_agent.floor_char_boundary(MAX_USER_AGENT);
        user_agent.get(..end).unwrap_or_default().into()
    })
}

/// Applies the option `removal`.
fn removal_action(
    evaluation: &Evaluation,
    outcome: RemovalOutcome,
    intent: Option<Intent>,
) -> RemovalAction {
    removal::read(evaluation.policy(), evaluation.trail(), outcome, intent)
}

/// Returns `true` if a HEAD shows that the URL does not exist.
fn is_missing(outcome: &ObservationOutcome) -> bool {
    match outcome {
        ObservationOutcome::Answered(response) => response.removal.is_some_and(|bad| {
            matches!(bad.outcome, RemovalOutcome::NotFound | RemovalOutcome::Gone)
        }),
        ObservationOutcome::Failed { .. }
        | ObservationOutcome::Refused(_)
        | ObservationOutcome::SweptRefusal(_)
        | ObservationOutcome::Allowed
        | ObservationOutcome::PendingRemoval(..) => false,
    }
}

/// Applies the option `record` to the ledger: requests that the log keeps in full get a record. A URL that is too deep also
/// gets one by default: it has the depth, which the next request for the URL may not show.
fn record_choice(evaluation: &Evaluation, refusal: &Refusal) -> RefusalRecording {
    let records_by_log = || {
        evaluation.trail().word(evaluation.policy(), schema::RECORD) == Some(schema::BY_LOG_WORD)
    };
    match refusal.url_retention {
        UrlRetention::Full | UrlRetention::Unrepeated => RefusalRecording::Keep,
        UrlRetention::Host | UrlRetention::None
            if refusal.reason == Reason::TooDeep && records_by_log() =>
        {
            RefusalRecording::Keep
        }
        UrlRetention::Host | UrlRetention::None => RefusalRecording::Skip,
    }
}

/// Applies the option `record` to a response that is refused. As before the request is sent, a rule leaves a record only
/// if it logs; of a check of the page (`noindex` and the like) there always is one, unless `record` is `none`.
fn late_record_choice(refusal: &Refusal) -> RefusalRecording {
    let by_rule = refusal.reason.row().crawl_status == CrawlStatus::Filter;
    match refusal.url_retention {
        UrlRetention::Full | UrlRetention::Unrepeated => RefusalRecording::Keep,
        UrlRetention::Host if by_rule => RefusalRecording::Skip,
        UrlRetention::Host => RefusalRecording::Keep,
        UrlRetention::None => RefusalRecording::Skip,
    }
}

fn hex(hash: &ContentHash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Drop for OutcomeRecorder {
    fn drop(&mut self) {
        let outcome = self.take_outcome().filter(|(_, outcome, _)| {
            self.subject.method == FetchMethod::Get || is_missing(outcome)
        });
        if let Some((at, outcome, content)) = outcome {
            let key = self.ledger_entry.key;
            let observation = self.to_observation(at, outcome);
            self.ledger_entry.ledger.record(LedgerUpdate {
                key,
                observation,
                content_key: content,
            });
            // After the record is written: a policy that becomes active from now on sweeps it.
            if let Some(successor) = self.subject.version.successor() {
                sweep_late_record(&self.ledger_entry.ledger, &successor, key, at);
            }
        }
    }
}
