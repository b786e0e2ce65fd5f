//! Ledger: the record of the URL: whether it is known, its depth, and whether it is requested again too soon.
//!
//! Every crawler has its own records. [`outcome`](super::outcome) writes them, [`recrawl`](super::recrawl) compares
//! responses with them.

use std::net::IpAddr;
use std::sync::Arc;

use crate::ledger::key::LedgerKey;
use crate::ledger::record::{LedgerRecord, UnixMillis};
use crate::ledger::recrawl;
use crate::model::crawler::Crawler;
use crate::model::reason::Reason;
use crate::model::rule_id::RuleId;
use crate::model::stage::Stage;
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::schedules::unix_time;
use crate::policy::Policy;
use crate::policy::decide::{Cause, Decision};
use crate::policy::fact::LedgerPresence;
use crate::policy::options::depth::DepthStart;
use crate::policy::options::recrawl::{AFTER_ERROR, MIN_INTERVAL};
use crate::policy::options::{self, OptionIndex, OptionSetter};
use crate::policy::trail::Trail;
use crate::store::ledger::Ledger;
use crate::urls::target::UrlTarget;

use super::recrawl::{is_delivered, is_fetch};

/// The memory of a request's URL, and the place where the outcome of the request is recorded.
#[derive(Clone, Debug)]
pub(crate) struct LedgerEntry {
    pub(crate) ledger: Ledger,
    pub(crate) key: LedgerKey,
    pub(crate) record: Option<Arc<LedgerRecord>>,
    /// The number of links between a start and the URL, if it is known. Links in the document are counted from it.
    pub(crate) depth: Option<u32>,
    /// `true` if the URL is one of the space's seeds.
    pub(crate) is_seed: bool,
    /// The address that the request is sent to; before that is known, the address of the last fetch.
    pub(crate) address: Option<IpAddr>,
    /// The proxy's change to the conditions of the request.
    pub(crate) conditions: RequestConditions,
}

/// The conditions of the request that the origin gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestConditions {
    /// Those of the client, if it has any.
    #[default]
    Client,
    /// The proxy has added the validators of the document that the crawler has.
    Added,
    /// The proxy has removed those of the client: the page was removed from the index, to which
    /// only a document brings it back.
    Removed,
}

/// The ledger's additions to a request.
#[derive(Debug)]
pub(crate) struct LedgerLookup {
    pub(crate) entry: LedgerEntry,
    pub(crate) presence: LedgerPresence,
}

/// Returns `true` if the outcome of a request is recorded under a policy that does not need the ledger. Under one that does,
/// every request has waited for room before its evaluation.
pub(crate) fn records_without_ledger_policy(evaluation: &Evaluation) -> bool {
    !evaluation.snapshot().uses_ledger && evaluation.ledger_entry().is_some()
}

/// Looks up a request's URL, if there is a ledger. Under a policy that does not need it, only a URL that the index lacks is
/// of interest: until a document is delivered, its requests must be unconditional.
pub(crate) fn look_up(
    evaluation: &Evaluation,
    ledger: Option<&Ledger>,
    admission: &AdmissionQueue,
) -> Option<LedgerLookup> {
    let ledger = ledger?;
    let facts = evaluation.facts();
    if facts.reads_robots_txt() {
        return None;
    }
    let key = request_key(evaluation, &facts.target);
    let found = ledger.try_look_up(key);
    // A record that cannot be read now is not a missing one.
    let is_new = matches!(found, Ok(None));
    let record = found.ok().flatten();
    if !evaluation.snapshot().uses_ledger && !lacks_document(&record) {
        return None;
    }
    let is_known = record.as_ref().is_some_and(|record| record.is_known());
    let is_seed = is_seed(evaluation);
    let shown = if is_seed {
        Some(0)
    } else {
        shown_depth(evaluation, ledger, admission)
    };
    let recorded = record.as_ref().and_then(|record| record.depth);
    let known = shown.into_iter().chain(recorded).min();
    let is_start = known.is_none() && is_new && starts_without_referer(evaluation);
    Some(LedgerLookup {
        presence: if is_known {
            LedgerPresence::Present
        } else {
            LedgerPresence::Absent
        },
        entry: LedgerEntry {
            ledger: ledger.clone(),
            key,
            depth: if is_start { Some(0) } else { known },
            is_seed,
            address: record.as_ref().and_then(|record| record.address),
            record,
            conditions: RequestConditions::default(),
        },
    })
}

fn request_key(evaluation: &Evaluation, target: &UrlTarget) -> LedgerKey {
    url_key(
        evaluation.policy(),
        evaluation.trail(),
        &evaluation.facts().crawler,
        target,
    )
}

/// Returns the key of a URL, in the form that the matching rules choose.
pub(super) fn url_key(
    policy: &Policy,
    trail: &Trail,
    crawler: &Crawler,
    target: &UrlTarget,
) -> LedgerKey {
    LedgerKey::for_url(crawler.as_str(), &policy.key_url(trail, target))
}

/// Returns `true` if the URL is one of the seeds of the crawler's space, and those count.
fn is_seed(evaluation: &Evaluation) -> bool {
    let policy = evaluation.policy();
    let space = evaluation.trail().space();
    let Some(space) = space.and_then(|space| policy.spaces().get(space)) else {
        return false;
    };
    let listed = |url: &UrlTarget| space.has_seed(url.as_str());
    evaluation.facts().urls().any(listed)
        && DepthStart::from_trail(policy, evaluation.trail()) != DepthStart::Header
}

/// Returns `true` if a URL of which nothing is known counts as a start because the request has no `Referer`. If something is
/// known of the URL, the request is a retry, a link of a page with `Referrer-Policy: no-referrer`, or the like, which must
/// not lower a depth.
fn starts_without_referer(evaluation: &Evaluation) -> bool {
    evaluation.facts().referer().is_empty()
        && DepthStart::from_trail(evaluation.policy(), evaluation.trail()) == DepthStart::NoReferer
}

/// Returns the depth that this request shows: what the crawler states, else the least that follows from its `Referer`
/// and from redirects.
fn shown_depth(
    evaluation: &Evaluation,
    ledger: &Ledger,
    admission: &AdmissionQueue,
) -> Option<u32> {
    let facts = evaluation.facts();
    if facts.depth().is_some() {
        return facts.depth();
    }
    let redirected = facts
        .urls()
        .filter_map(|url| admission.redirect_depth(&facts.crawler, url));
    depth_after_referer(evaluation, ledger)
        .into_iter()
        .chain(redirected)
        .min()
}

fn depth_after_referer(evaluation: &Evaluation, ledger: &Ledger) -> Option<u32> {
    let referer = Some(evaluation.facts().referer()).filter(|referer| !referer.is_empty())?;
    let page = UrlTarget::parse(referer).ok()?;
    let record = ledger.look_up(request_key(evaluation, &page))?;
    record.depth.map(|depth| depth.saturating_add(1))
}

/// Returns `true` if the record of the URL has changed since the lookup.
pub(crate) fn is_outdated(evaluation: &Evaluation) -> bool {
    evaluation.ledger_entry().is_some_and(|entry| {
        let now = entry.ledger.look_up(entry.key);
        now.is_some() != entry.record.is_some()
            || last_fetched(&now) != last_fetched(&entry.record)
            || lacks_document(&now) != lacks_document(&entry.record)
    })
}

fn lacks_document(record: &Option<Arc<LedgerRecord>>) -> bool {
    record
        .as_ref()
        .is_some_and(|record| record.lacks_document())
}

fn last_fetched(record: &Option<Arc<LedgerRecord>>) -> Option<UnixMillis> {
    record.as_ref().and_then(|record| record.last_fetched)
}

/// Refuses a URL that is requested again too soon: the option `recrawl`.
pub(crate) fn check_recrawl_interval(
    evaluation: &Evaluation,
    admission: &AdmissionQueue,
) -> Result<(), Box<Refusal>> {
    let Some(record) = evaluation
        .ledger_entry()
        .and_then(|entry| entry.record.as_ref())
        .filter(|_| is_fetch(&evaluation.facts().method))
    else {
        return Ok(());
    };
    let option = options::recrawl::read(evaluation.policy(), evaluation.trail());
    if option.is_none() {
        return Ok(());
    }
    let intervals = recrawl::RecrawlIntervals {
        // A document that had to leave the index may be fetched again at once.
        min_interval: option
            .min_interval
            .filter(|_| is_delivered(record) && !evaluation.facts().forces_recrawl()),
        after_error: option.after_error,
    };
    let Some(remaining) = recrawl::time_until_recrawl(record, intervals, now(admission)) else {
        return Ok(());
    };
    let after_error = recrawl::RecrawlIntervals {
        min_interval: None,
        ..intervals
    };
    let by_error =
        recrawl::time_until_recrawl(record, after_error, now(admission)) == Some(remaining);
    let index = if by_error { AFTER_ERROR } else { MIN_INTERVAL };
    let refusal = Refusal::new(Reason::Premature, Stage::Ledger);
    Err(Box::new(
        attribute_to_option(evaluation, index, refusal).with_retry_after(Some(remaining)),
    ))
}

/// Returns the time of day as records have it.
pub(crate) fn now(admission: &AdmissionQueue) -> UnixMillis {
    UnixMillis(u64::try_from(unix_time(admission.wall()).as_millis()).unwrap_or(u64::MAX))
}

/// Names the rule that has set an option as the cause of a refusal.
pub(super) fn attribute_to_option(
    evaluation: &Evaluation,
    index: OptionIndex,
    refusal: Refusal,
) -> Refusal {
    let refusal = Refusal {
        url_retention: evaluation.url_retention(&refusal),
        ..refusal
    };
    let policy = evaluation.policy();
    let OptionSetter::Rule(index) = evaluation.trail().set_by(policy, index) else {
        return refusal;
    };
    let decision = Decision {
        cause: Cause::Rule(index),
        ..*evaluation.decision()
    };
    let by_rule = policy.refusal(evaluation.trail(), &decision);
    Refusal {
        rule: by_rule.rule.and_then(RuleId::new),
        cause: Some(index),
        detail: by_rule.about.map(|about| about.to_owned().into()),
        ..refusal
    }
}
