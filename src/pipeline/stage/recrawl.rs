//! Recrawl: whether a document is one that the crawler has: the options `unmodified` and `duplicate`.
//!
//! By validators, before a byte of the body is sent on. By the body itself it is told where documents are read, which asks
//! [`OutcomeRecorder`].

use std::sync::Arc;

use http::header::{
    ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE,
};
use http::response::Parts;
use http::{Method, StatusCode};

use crate::ledger::key::LedgerKey;
use crate::ledger::record::{ContentHash, DocumentValidators, IndexState, LedgerRecord};
use crate::ledger::recrawl::is_same_version;
use crate::model::profile::Conditional;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::Refusal;
use crate::policy::options::OptionSlot;
use crate::policy::options::checks::{self, CheckAction};
use crate::policy::options::schema::{DUPLICATE, UNMODIFIED};
use crate::urls::target::UrlTarget;

use super::ledger::{ConditionOwner, LedgerEntry, attribute_to_option, url_key};
use super::outcome::OutcomeRecorder;

/// What a request must have none of to be asked with the proxy's own conditions.
const CONDITION_HEADERS: [HeaderName; 6] = [
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_MATCH,
    IF_UNMODIFIED_SINCE,
    IF_RANGE,
    RANGE,
];

/// Whether a method fetches a document, or asks about one: others are no recrawl.
pub(super) fn is_fetch(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Adds the validators of the document that the crawler has, so that an origin need not send it again only for it to be
/// refused: under `unmodified: reject`, to a GET that asks for no part and has no conditions of its own.
pub fn add_conditions(evaluation: &mut Evaluation, headers: &mut HeaderMap) {
    let (policy, trail) = (&evaluation.snapshot.policy, &evaluation.trail);
    let Some(recalled) = &mut evaluation.ledger_entry else {
        return;
    };
    let Some(record) = recalled
        .record
        .as_ref()
        .filter(|record| has_document(record))
    else {
        return;
    };
    let asks = evaluation.facts.method == Method::GET
        && checks::read_action(policy, trail, UNMODIFIED) == CheckAction::Reject;
    if !asks
        || CONDITION_HEADERS
            .iter()
            .any(|name| headers.contains_key(name))
    {
        return;
    }
    let DocumentValidators {
        etag,
        last_modified,
    } = &record.validators;
    for (name, value) in [(IF_NONE_MATCH, etag), (IF_MODIFIED_SINCE, last_modified)] {
        if let Some(value) = value
            .as_deref()
            .and_then(|value| HeaderValue::from_str(value).ok())
        {
            headers.insert(name, value);
            recalled.condition_owner = ConditionOwner::Proxy;
        }
    }
}

/// Whether a 304 was asked for, be it by the proxy.
pub(crate) fn effective_conditional(evaluation: &Evaluation, client: Conditional) -> Conditional {
    match &evaluation.ledger_entry {
        Some(recalled) if recalled.condition_owner == ConditionOwner::Proxy => Conditional::Yes,
        Some(_) | None => client,
    }
}

/// The values of `Crawl-Tag` for an answer that the policy admits.
///
/// # Errors
/// The refusal of a document that the crawler has.
pub(crate) fn evaluate(
    evaluation: &Evaluation,
    head: &Parts,
) -> Result<Vec<HeaderValue>, Box<Refusal>> {
    let mut tags = vec![];
    let Some(recalled) = &evaluation.ledger_entry else {
        return Ok(tags);
    };
    let received = |refusal: Refusal| {
        Box::new(Refusal {
            received_status: Some(head.status.as_u16()),
            ..refusal
        })
    };
    if head.status == StatusCode::NOT_MODIFIED && recalled.condition_owner == ConditionOwner::Proxy
    {
        return Err(received(unmodified_refusal(evaluation, Stage::Response)));
    }
    if !evaluation.policy().compares_content()
        || head.status != StatusCode::OK
        || !is_fetch(&evaluation.facts.method)
    {
        return Ok(tags);
    }
    let check = |slot| checks::read_action(evaluation.policy(), &evaluation.trail, slot);
    let found = |slot: OptionSlot| check(slot) != CheckAction::Pass;
    if found(UNMODIFIED) && recalled.matches_version(&read_validators(&head.headers)) {
        if check(UNMODIFIED) == CheckAction::Reject {
            return Err(received(unmodified_refusal(evaluation, Stage::Response)));
        }
        tags.push(HeaderValue::from_static("unmodified"));
    }
    let tag = if found(DUPLICATE) {
        strong_etag(&head.headers)
    } else {
        None
    };
    if let Some(other) = tag.and_then(|tag| find_duplicate_by_etag(evaluation, recalled, tag)) {
        if check(DUPLICATE) == CheckAction::Reject {
            return Err(received(duplicate_refusal(evaluation, Stage::Response)));
        }
        tags.extend(duplicate_tag(&other));
    }
    Ok(tags)
}

/// What a body's content is asked for, beside what its validators say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentUse {
    /// Nothing.
    Ignore,
    /// To be remembered, once it has been sent on.
    Remember,
    /// Whether it may be sent on at all.
    Check,
}

/// What the content of an answer that passed its head's judgement is asked for: of a GET's 200, where `unmodified` or
/// `duplicate` look at answers.
pub(crate) fn content_use(evaluation: &Evaluation, head: &Parts) -> ContentUse {
    let compares = evaluation.ledger_entry.is_some() && evaluation.policy().compares_content();
    if !compares || head.status != StatusCode::OK || evaluation.facts.method != Method::GET {
        return ContentUse::Ignore;
    }
    let check = |slot| checks::read_action(evaluation.policy(), &evaluation.trail, slot);
    match (check(UNMODIFIED), check(DUPLICATE)) {
        (CheckAction::Reject, _) | (_, CheckAction::Reject) => ContentUse::Check,
        (CheckAction::Tag, _) | (_, CheckAction::Tag) => ContentUse::Remember,
        (CheckAction::Pass, CheckAction::Pass) => ContentUse::Ignore,
    }
}

/// Judges the content of a body of which nothing is sent on yet.
///
/// # Errors
/// The refusal of a document that the crawler has.
pub(crate) fn check_content(
    evaluation: &Evaluation,
    head: &Parts,
    recorder: &OutcomeRecorder,
    hash: &ContentHash,
) -> Result<(), Box<Refusal>> {
    let rejects = |slot| {
        checks::read_action(evaluation.policy(), &evaluation.trail, slot) == CheckAction::Reject
    };
    let received = |refusal: Refusal| {
        Box::new(Refusal {
            received_status: Some(head.status.as_u16()),
            ..refusal
        })
    };
    if rejects(UNMODIFIED) && recorder.is_unmodified(hash) {
        return Err(received(unmodified_refusal(evaluation, Stage::Document)));
    }
    if rejects(DUPLICATE) && recorder.find_duplicate(hash).is_some() {
        return Err(received(duplicate_refusal(evaluation, Stage::Document)));
    }
    Ok(())
}

impl LedgerEntry {
    /// Whether these are the validators of the document that was delivered last.
    fn matches_version(&self, validators: &DocumentValidators) -> bool {
        self.record
            .as_ref()
            .is_some_and(|record| has_document(record) && is_same_version(record, validators))
    }
}

/// The refusal of a document that has not changed: it stays in the index.
pub(crate) fn unmodified_refusal(evaluation: &Evaluation, stage: Stage) -> Refusal {
    attribute_to_option(
        evaluation,
        UNMODIFIED,
        Refusal::new(Reason::Unmodified, stage),
    )
}

/// The refusal of a document that another URL has as well.
pub(crate) fn duplicate_refusal(evaluation: &Evaluation, stage: Stage) -> Refusal {
    let refusal = attribute_to_option(
        evaluation,
        DUPLICATE,
        Refusal::new(Reason::Duplicate, stage),
    );
    let intent = evaluation.trail.reject_intent(evaluation.policy());
    Refusal { intent, ..refusal }
}

/// `duplicate; of=http://example.com/`.
pub(crate) fn duplicate_tag(of: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("duplicate; of={of}")).ok()
}

/// By what a later answer is told to be the same.
pub(super) fn read_validators(headers: &HeaderMap) -> DocumentValidators {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
            .map(Arc::from)
    };
    DocumentValidators {
        etag: text(ETAG),
        last_modified: text(LAST_MODIFIED),
    }
}

/// An entity tag that two documents share only if they are the same, byte for byte (RFC 9110 section 8.8.3).
pub(super) fn strong_etag(headers: &HeaderMap) -> Option<&str> {
    let tag = headers.get(ETAG)?.to_str().ok()?;
    (tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"')).then_some(tag)
}

/// Another URL of the host whose document has this entity tag.
fn find_duplicate_by_etag(
    evaluation: &Evaluation,
    recalled: &LedgerEntry,
    tag: &str,
) -> Option<Box<str>> {
    let asked = &evaluation.facts;
    let key = LedgerKey::for_content(asked.crawler.as_str(), asked.target.host(), tag);
    let other = recalled.ledger.url_with_content(key)?;
    let target = UrlTarget::parse(&other).ok()?;
    let other_key = url_key(
        evaluation.policy(),
        &evaluation.trail,
        &asked.crawler,
        &target,
    );
    let stands = |record: &LedgerRecord| {
        record.validators.etag.as_deref() == Some(tag) && may_be_indexed(record)
    };
    let record = recalled
        .ledger
        .look_up(other_key)
        .filter(|_| other_key != recalled.key)?;
    stands(&record).then(|| Box::from(&*other))
}

/// Whether the crawler has a document of this URL: one that had to leave its index is fetched anew when it may be.
pub(super) fn has_document(record: &LedgerRecord) -> bool {
    record.last_fetched.is_some() && may_be_indexed(record)
}

/// Whether an index may still have the document of a record: what has left it has no duplicates.
pub(super) fn may_be_indexed(record: &LedgerRecord) -> bool {
    record.is_known() && record.index_state == IndexState::Possible
}
