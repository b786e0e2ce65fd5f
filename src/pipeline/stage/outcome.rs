//! Outcome: the record of a finished request in the ledger.
//!
//! Only for a GET; other methods change nothing. `ledger/transition` defines how an observation changes a record.

use std::mem::replace;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::HeaderValue;
use http::response::Parts;
use http::{Method, StatusCode};

use crate::ledger::key::LedgerKey;
use crate::ledger::observation::{
    DeliveredDocument, ObservationOutcome, ObservedRefusal, ObservedResponse, RefusalRecording,
    UrlObservation,
};
use crate::ledger::record::{ContentHash, UnixMillis};
use crate::ledger::recrawl::is_same_content;
use crate::metrics::record::UrlRetention;
use crate::model::crawl_status::CrawlStatus;
use crate::model::crawler::Crawler;
use crate::model::intent::Intent;
use crate::model::reason::Reason;
use crate::model::rule_id::RuleId;
use crate::model::stage::Stage;
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::failure_class::FailureKind;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::snapshot::PolicyVersion;
use crate::pipeline::sweep::sweep_late_record;
use crate::policy::Policy;
use crate::policy::options::checks::{self, CheckAction};
use crate::policy::options::schema::DUPLICATE;
use crate::policy::space::SpaceIndex;
use crate::policy::trail::Trail;
use crate::store::ledger::LedgerUpdate;
use crate::urls::target::UrlTarget;

use super::ledger::{self, LedgerEntry, url_key};
use super::recrawl::{has_document, may_be_indexed, read_validators, strong_etag};

/// OmniFind's code "parse error, body", for a response that broke off.
const BROKEN_BODY: u16 = 730;

/// Records the outcome of a GET when it is dropped. It accompanies the response's body to its last byte: for a document
/// whose delivery was not marked ([`Self::mark_delivered`]), nothing is recorded.
#[derive(Debug)]
pub struct OutcomeRecorder {
    subject: OutcomeSubject,
    ledger_entry: LedgerEntry,
    /// The lookup of other URLs with the same document, once the head has arrived; `None` unless the option
    /// `duplicate` needs it.
    duplicates: Option<Box<DuplicateLookup>>,
    rule: Option<RuleId>,
    progress: OutcomeProgress,
}

/// The request that is observed.
#[derive(Debug)]
struct OutcomeSubject {
    target: UrlTarget,
    crawler: Crawler,
    /// The policy that it was evaluated under.
    version: Arc<PolicyVersion>,
    space: Option<SpaceIndex>,
    source: Option<HeaderValue>,
}

/// The lookup of documents with several URLs.
#[derive(Debug)]
struct DuplicateLookup {
    /// The trail of the rules, on which the keys of other URLs depend.
    trail: Trail,
    /// The size up to which bodies are compared before they are sent on.
    max_checked_body: u64,
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
    document: DeliveredDocument,
    /// The strong entity tag by which other URLs of the host find the document.
    etag: Option<Arc<str>>,
    delivery: BodyDelivery,
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
    // A refusal only because the address has refused another request is not an observation.
    let unasked = refusal.reason == Reason::UpstreamConnect && refusal.stage == Stage::Destination;
    let new = entry.record.is_none() && refusal.failure.is_none();
    if unasked || new && record_choice(refusal) == RefusalRecording::Skip {
        return;
    }
    if let Some(mut recorder) = OutcomeRecorder::for_request(evaluation) {
        recorder.record_refusal(refusal, admission);
    }
}

impl OutcomeRecorder {
    /// Creates a recorder for a request that is sent on; `None` if its outcome is not recorded.
    pub fn for_request(evaluation: &Evaluation) -> Option<Box<Self>> {
        let entry = evaluation
            .ledger_entry()
            .filter(|_| evaluation.facts().method == Method::GET)?;
        let about = OutcomeSubject {
            target: evaluation.facts().target.clone(),
            crawler: evaluation.facts().crawler.clone(),
            version: Arc::clone(&evaluation.snapshot().version),
            space: evaluation.trail().space(),
            source: evaluation.effects().source().cloned(),
        };
        Some(Box::new(Self {
            subject: about,
            ledger_entry: entry.clone(),
            duplicates: None,
            rule: None,
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
        self.duplicates = DuplicateLookup::from_options(evaluation.policy(), evaluation.trail());
        let etag = self
            .duplicates
            .as_ref()
            .and_then(|_| strong_etag(&head.headers))
            .map(Arc::from);
        let delivery = BodyDelivery::InProgress;
        self.progress = OutcomeProgress::Answered(RecordedResponse {
            at,
            status: head.status,
            failure,
            document,
            etag,
            delivery,
        });
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
            at, failure: None, ..
        }) = self.progress
        {
            let failure = FailureKind::Temporary;
            self.progress = OutcomeProgress::Finished(
                ObservationOutcome::Failed {
                    failure,
                    code: Some(BROKEN_BODY),
                },
                at,
            );
        }
    }

    /// Records that the request or its response is refused.
    pub fn record_refusal(&mut self, refusal: &Refusal, admission: &AdmissionQueue) {
        match self.progress {
            OutcomeProgress::Pending => self.finish_refused(refusal, ledger::now(admission)),
            OutcomeProgress::Answered(_) | OutcomeProgress::Finished(..) => {
                self.record_late_refusal(refusal)
            }
        }
    }

    /// Records that the response is refused while it is on its way.
    pub fn record_late_refusal(&mut self, refusal: &Refusal) {
        if let OutcomeProgress::Answered(RecordedResponse { at, .. }) = self.progress {
            self.finish_refused(refusal, at);
        }
    }

    fn finish_refused(&mut self, refusal: &Refusal, at: UnixMillis) {
        self.rule.clone_from(&refusal.rule);
        let row = refusal.reason.row();
        let crawl_status = row.crawl_status;
        let code = refusal.code.or(row.code);
        let outcome = match (&self.progress, refusal.failure) {
            (_, Some(failure)) => ObservationOutcome::Failed { failure, code },
            (OutcomeProgress::Pending | OutcomeProgress::Finished(..), None) => {
                let intent = refusal.intent().unwrap_or(Intent::Deny);
                ObservationOutcome::Refused(ObservedRefusal {
                    crawl_status,
                    intent,
                    code,
                    recording: record_choice(refusal),
                })
            }
            (OutcomeProgress::Answered(response), None) => {
                // A page that a rule recognizes as an error counts as one.
                let soft = refusal.reason == Reason::SoftError;
                let failure = if soft {
                    Some(FailureKind::Permanent)
                } else {
                    response.failure
                };
                let status = response.status.as_u16();
                let intent = refusal.intent();
                ObservationOutcome::Answered(ObservedResponse {
                    status,
                    crawl_status,
                    intent,
                    code,
                    failure,
                    document: None,
                })
            }
        };
        self.progress = OutcomeProgress::Finished(outcome, at);
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
        let other = self
            .ledger_entry
            .ledger
            .url_with_content(self.version_key(&hex(hash)))?;
        let target = UrlTarget::parse(&other).ok()?;
        let key = url_key(
            &self.subject.version.policy,
            &self.duplicates.as_ref()?.trail,
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

    /// Returns the key by which other URLs find the document: the hash of a body that is compared before it is sent on,
    /// and the strong entity tag of any other, of which only the head is known in time.
    fn content_key(&self, response: &RecordedResponse) -> Option<LedgerKey> {
        let is_checked = response.document.size <= self.duplicates.as_ref()?.max_checked_body;
        let hash = response
            .document
            .content_hash
            .as_ref()
            .map(|hash| Arc::from(hex(hash)));
        let etag = response.etag.clone();
        let version = if is_checked {
            hash.or(etag)
        } else {
            etag.or(hash)
        };
        version.map(|version| self.version_key(&version))
    }

    /// Takes the outcome, if there is one to record. Later calls return `None`.
    fn take_outcome(&mut self) -> Option<(UnixMillis, ObservationOutcome, Option<LedgerKey>)> {
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
        let content = if is_document {
            self.content_key(&response)
        } else {
            None
        };
        let document = is_document.then_some(response.document);
        let crawl_status = CrawlStatus::from_origin_status(status.as_u16());
        let failure = response.failure;
        let status = status.as_u16();
        let intent = None;
        let code = None;
        let outcome = ObservationOutcome::Answered(ObservedResponse {
            status,
            crawl_status,
            intent,
            code,
            failure,
            document,
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
        } = &self.subject;
        let policy = &version.policy;
        let space = space.and_then(|space| policy.spaces().get(space));
        let source = source.as_ref().and_then(|source| source.to_str().ok());
        UrlObservation {
            at,
            url: target.shared(),
            crawler: crawler.shared_name(),
            space: space.map(|space| space.name.shared()),
            depth: self.ledger_entry.base_depth,
            address: self.ledger_entry.address,
            source: source.map(Arc::from),
            revision: policy.shared_revision(),
            rule: self.rule.as_ref().map(|rule| rule.as_str().into()),
            outcome,
        }
    }
}

impl DuplicateLookup {
    fn from_options(policy: &Policy, trail: &Trail) -> Option<Box<Self>> {
        if !policy.compares_content() {
            return None;
        }
        let max_checked_body = match checks::read_action(policy, trail, DUPLICATE) {
            CheckAction::Pass => return None,
            CheckAction::Tag => 0,
            CheckAction::Reject => checks::max_buffer(policy, trail),
        };
        Some(Box::new(Self {
            trail: trail.clone(),
            max_checked_body,
        }))
    }
}

/// Applies the option `record` to the ledger: requests that the log keeps in full get a record.
fn record_choice(refusal: &Refusal) -> RefusalRecording {
    match refusal.url_detail {
        UrlRetention::Full => RefusalRecording::Keep,
        UrlRetention::Host | UrlRetention::None => RefusalRecording::Skip,
    }
}

fn hex(hash: &ContentHash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Drop for OutcomeRecorder {
    fn drop(&mut self) {
        if let Some((at, outcome, content)) = self.take_outcome() {
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
