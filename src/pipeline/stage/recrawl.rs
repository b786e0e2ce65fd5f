//! Recrawl: the detection of documents that the crawler already has, by the options `unmodified` and `duplicate`.
//!
//! A document is unmodified if it has the validators of the last one, or else its content. It is a duplicate if another
//! URL of the host has the same content; only where the content cannot be compared (a HEAD, a large body, an unsupported
//! coding) by a strong entity tag, since different documents of different URLs may have the same tag. Contents are
//! compared where documents are read, with the help of [`OutcomeRecorder`].

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
use crate::policy::options::OptionIndex;
use crate::policy::options::checks::{self, CheckAction, LinksOnly};
use crate::policy::options::schema::{DUPLICATE, UNMODIFIED};
use crate::urls::target::UrlTarget;

use super::ledger::{LedgerEntry, RequestConditions, attribute_to_option, url_key};
use super::outcome::OutcomeRecorder;

/// The header fields that can keep a 200 with the whole document from being the answer. The proxy adds no conditions to a
/// request that has one of them.
const CONDITION_HEADERS: [HeaderName; 6] = [
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_MATCH,
    IF_UNMODIFIED_SINCE,
    IF_RANGE,
    RANGE,
];

/// Returns `true` for methods that fetch a document or its head.
pub(super) fn is_fetch(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Changes the conditions of a request if the record of its URL requires it.
///
/// Removes those of the client while the index lacks the document: a 304 would leave it without. Else adds the validators
/// of the document that the crawler has, so that the origin does not send it again only for it to be refused: under
/// `unmodified: reject`, to a GET without conditions or ranges of its own.
pub fn set_conditions(evaluation: &Evaluation, headers: &mut HeaderMap) -> RequestConditions {
    let record = evaluation
        .ledger_entry()
        .and_then(|entry| entry.record.as_ref())
        .filter(|_| is_fetch(&evaluation.facts().method));
    match record {
        Some(record) if record.lacks_document() => remove_conditions(headers),
        Some(record) if has_document(record) && add_conditions(evaluation, record, headers) => {
            RequestConditions::Added
        }
        Some(_) | None => RequestConditions::Client,
    }
}

fn remove_conditions(headers: &mut HeaderMap) -> RequestConditions {
    let mut conditions = RequestConditions::Client;
    for name in CONDITION_HEADERS {
        if headers.remove(name).is_some() {
            conditions = RequestConditions::Removed;
        }
    }
    conditions
}

/// Returns `true` if it has added any.
fn add_conditions(evaluation: &Evaluation, record: &LedgerRecord, headers: &mut HeaderMap) -> bool {
    let is_conditional = evaluation.facts().method == Method::GET
        && check_action(evaluation, UNMODIFIED) == CheckAction::Reject
        && !CONDITION_HEADERS
            .iter()
            .any(|name| headers.contains_key(name));
    if !is_conditional {
        return false;
    }
    let mut added = false;
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
            added = true;
        }
    }
    added
}

/// Returns whether the client or the proxy requested a 304.
pub(crate) fn effective_conditional(evaluation: &Evaluation, client: Conditional) -> Conditional {
    match request_conditions(evaluation) {
        RequestConditions::Client => client,
        RequestConditions::Added => Conditional::Yes,
        RequestConditions::Removed => Conditional::No,
    }
}

fn request_conditions(evaluation: &Evaluation) -> RequestConditions {
    let entry = evaluation.ledger_entry();
    entry.map_or(RequestConditions::Client, |entry| entry.conditions)
}

/// Returns the values of `Crawl-Tag` for a response that the policy admits.
///
/// # Errors
/// The refusal of a document that the crawler has.
pub(crate) fn evaluate(
    evaluation: &mut Evaluation,
    head: &Parts,
) -> Result<Vec<HeaderValue>, Box<Refusal>> {
    let mut tags = vec![];
    let Some(entry) = evaluation.ledger_entry() else {
        return Ok(tags);
    };
    if head.status == StatusCode::NOT_MODIFIED && entry.conditions == RequestConditions::Added {
        return Err(unmodified_refusal(evaluation, Stage::Response, head));
    }
    if !evaluation.policy().compares_content()
        || head.status != StatusCode::OK
        || !is_fetch(&evaluation.facts().method)
    {
        return Ok(tags);
    }
    let unmodified = check_action(evaluation, UNMODIFIED);
    if unmodified != CheckAction::Pass && entry.matches_version(&read_validators(&head.headers)) {
        if unmodified == CheckAction::Reject {
            return Err(unmodified_refusal(evaluation, Stage::Response, head));
        }
        tags.push(HeaderValue::from_static("unmodified"));
    }
    if evaluation.facts().method == Method::HEAD {
        let other = find_duplicate_by_etag(evaluation, head);
        apply_duplicate(evaluation, head, Stage::Response, other)?;
    }
    Ok(tags)
}

/// The use of a body's content, after its validators have been compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentUse {
    /// For nothing.
    Ignore,
    /// To be remembered after it has been sent on.
    Remember,
    /// To decide whether it may be sent on.
    Check,
}

/// Returns the use of a response's content: only that of a 200 to a GET, if `unmodified` or `duplicate` look
/// at responses.
pub(crate) fn content_use(evaluation: &Evaluation, head: &Parts) -> ContentUse {
    let compares = evaluation.ledger_entry().is_some() && evaluation.policy().compares_content();
    if !compares || head.status != StatusCode::OK || evaluation.facts().method != Method::GET {
        return ContentUse::Ignore;
    }
    match (
        check_action(evaluation, UNMODIFIED),
        check_action(evaluation, DUPLICATE),
    ) {
        (CheckAction::Reject | CheckAction::Links, _)
        | (_, CheckAction::Tag | CheckAction::Links | CheckAction::Reject) => ContentUse::Check,
        (CheckAction::Tag, CheckAction::Pass) => ContentUse::Remember,
        (CheckAction::Pass, CheckAction::Pass) => ContentUse::Ignore,
    }
}

/// Compares the content of a body, before any of it is sent on; `hash` is `None` if it cannot be compared.
///
/// # Errors
/// The refusal of a document that the crawler has.
pub(crate) fn check_content(
    evaluation: &mut Evaluation,
    head: &Parts,
    recorder: &OutcomeRecorder,
    hash: Option<&ContentHash>,
) -> Result<(), Box<Refusal>> {
    if check_action(evaluation, UNMODIFIED) == CheckAction::Reject
        && hash.is_some_and(|hash| recorder.is_unmodified(hash))
    {
        return Err(unmodified_refusal(evaluation, Stage::Document, head));
    }
    let other = match hash {
        Some(hash) => recorder.find_duplicate(hash),
        None => find_duplicate_by_etag(evaluation, head),
    };
    apply_duplicate(evaluation, head, Stage::Document, other)
}

/// Applies `duplicate` to a document that `other` has as well.
fn apply_duplicate(
    evaluation: &mut Evaluation,
    head: &Parts,
    stage: Stage,
    other: Option<Arc<str>>,
) -> Result<(), Box<Refusal>> {
    let Some(other) = other else { return Ok(()) };
    let passes = match check_action(evaluation, DUPLICATE) {
        CheckAction::Pass => return Ok(()),
        CheckAction::Tag => true,
        CheckAction::Links => evaluation.pass_links_only(LinksOnly::Duplicate),
        CheckAction::Reject => false,
    };
    if !passes {
        return Err(duplicate_refusal(evaluation, stage, head));
    }
    evaluation.add_duplicate_tag(duplicate_tag(&other));
    Ok(())
}

fn check_action(evaluation: &Evaluation, option: OptionIndex) -> CheckAction {
    checks::read_action(evaluation.policy(), evaluation.trail(), option)
}

impl LedgerEntry {
    /// Returns `true` if these are the validators of the document that was delivered last.
    fn matches_version(&self, validators: &DocumentValidators) -> bool {
        self.record
            .as_ref()
            .is_some_and(|record| has_document(record) && is_same_version(record, validators))
    }
}

/// Returns the refusal of a document that has not changed, which stays in the index.
fn unmodified_refusal(evaluation: &Evaluation, stage: Stage, head: &Parts) -> Box<Refusal> {
    let refusal = Refusal::new(Reason::Unmodified, stage);
    Box::new(attribute_to_option(evaluation, UNMODIFIED, refusal).with_received_status(head))
}

/// Returns the refusal of a document that another URL has, too.
fn duplicate_refusal(evaluation: &Evaluation, stage: Stage, head: &Parts) -> Box<Refusal> {
    let refusal = Refusal::new(Reason::Duplicate, stage);
    Box::new(Refusal {
        intent: evaluation.trail().reject_intent(evaluation.policy()),
        ..attribute_to_option(evaluation, DUPLICATE, refusal).with_received_status(head)
    })
}

/// Formats `duplicate; of=http://example.com/`.
pub(crate) fn duplicate_tag(original: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("duplicate; of={original}")).ok()
}

/// Reads the validators by which a later response is recognized as the same.
pub(super) fn read_validators(headers: &HeaderMap) -> DocumentValidators {
    DocumentValidators {
        etag: header_text(headers, ETAG),
        last_modified: header_text(headers, LAST_MODIFIED),
    }
}

fn header_text(headers: &HeaderMap, name: HeaderName) -> Option<Arc<str>> {
    headers.get(name)?.to_str().ok().map(Arc::from)
}

/// Returns an entity tag that two documents share only if they are the same, byte for byte (RFC 9110 section 8.8.3).
pub(super) fn strong_etag(headers: &HeaderMap) -> Option<&str> {
    let tag = headers.get(ETAG)?.to_str().ok()?;
    (tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"')).then_some(tag)
}

/// Returns another URL of the host whose document has the same strong entity tag.
fn find_duplicate_by_etag(evaluation: &Evaluation, head: &Parts) -> Option<Arc<str>> {
    if check_action(evaluation, DUPLICATE) == CheckAction::Pass {
        return None;
    }
    let entry = evaluation.ledger_entry()?;
    let tag = strong_etag(&head.headers)?;
    let facts = evaluation.facts();
    let key = LedgerKey::for_content(facts.crawler.as_str(), facts.target.host(), tag);
    let other = entry.ledger.url_with_content(key)?;
    let target = UrlTarget::parse(&other).ok()?;
    let other_key = url_key(
        evaluation.policy(),
        evaluation.trail(),
        &facts.crawler,
        &target,
    );
    let record = entry
        .ledger
        .look_up(other_key)
        .filter(|_| other_key != entry.key)?;
    let has_tag = record.validators.etag.as_deref() == Some(tag);
    (has_tag && may_be_indexed(&record)).then_some(other)
}

/// Returns `true` if the crawler has a document of this URL. A document that had to leave its index may be fetched again.
pub(super) fn has_document(record: &LedgerRecord) -> bool {
    record.last_fetched.is_some() && may_be_indexed(record)
}

/// Returns `true` if the crawler has got all of a document that it may have: also if only its links were to be delivered,
/// so that no index ever had it.
pub(super) fn is_delivered(record: &LedgerRecord) -> bool {
    record.last_fetched.is_some() && record.is_known() && !record.lacks_document()
}

/// Returns `true` if an index may still have the document of a record. What has left the index has no duplicates.
pub(super) fn may_be_indexed(record: &LedgerRecord) -> bool {
    record.is_known() && record.index_state == IndexState::Possible
}
