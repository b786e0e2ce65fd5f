//! Recrawl: whether a document is one that the crawler has: the options `unmodified` and `duplicate`.
//!
//! By validators, before a byte of the body is sent on. By the body itself it is told where documents are read, which asks
//! [`Learning`].

use std::sync::Arc;

use http::header::{
    ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE,
};
use http::response::Parts;
use http::{Method, StatusCode};

use crate::gate::judged::Judged;
use crate::gate::refusal::Refusal;
use crate::ledger::key::Key;
use crate::ledger::record::{ContentHash, Indexed, Record, Validators};
use crate::ledger::verdict::same_version;
use crate::policy::options::Slot;
use crate::policy::options::checks::{self, Check};
use crate::policy::options::schema::{DUPLICATE, UNMODIFIED};
use crate::vocab::profile::Conditional;
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;
use crate::vocab::target::UrlTarget;

use super::learn::Learning;
use super::ledger::{Conditions, Recalled, blaming, key_of};

/// What a request must have none of to be asked with the proxy's own conditions.
const CONDITIONS: [HeaderName; 6] = [
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_MATCH,
    IF_UNMODIFIED_SINCE,
    IF_RANGE,
    RANGE,
];

/// Whether a method fetches a document, or asks about one: others are no recrawl.
pub(super) fn refetches(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Adds the validators of the document that the crawler has, so that an origin need not send it again only for it to be
/// refused: under `unmodified: reject`, to a GET that asks for no part and has no conditions of its own.
pub fn add_conditions<C>(judged: &mut Judged<C>, headers: &mut HeaderMap) {
    let (policy, trail) = (&judged.snapshot.policy, &judged.trail);
    let Some(recalled) = &mut judged.recalled else {
        return;
    };
    let Some(record) = recalled.record.as_ref().filter(|record| is_had(record)) else {
        return;
    };
    let asks = judged.asked.method == Method::GET
        && checks::of(policy, trail, UNMODIFIED) == Check::Reject;
    if !asks || CONDITIONS.iter().any(|name| headers.contains_key(name)) {
        return;
    }
    let Validators {
        etag,
        last_modified,
    } = &record.validators;
    for (name, value) in [(IF_NONE_MATCH, etag), (IF_MODIFIED_SINCE, last_modified)] {
        if let Some(value) = value
            .as_deref()
            .and_then(|value| HeaderValue::from_str(value).ok())
        {
            headers.insert(name, value);
            recalled.conditions = Conditions::Ours;
        }
    }
}

/// Whether a 304 was asked for, be it by the proxy.
pub(in crate::gate) fn asked_for<C>(judged: &Judged<C>, client: Conditional) -> Conditional {
    match &judged.recalled {
        Some(recalled) if recalled.conditions == Conditions::Ours => Conditional::Yes,
        Some(_) | None => client,
    }
}

/// The values of `Crawl-Tag` for an answer that the policy admits.
///
/// # Errors
/// The refusal of a document that the crawler has.
pub(in crate::gate) fn judge<C>(
    judged: &Judged<C>,
    head: &Parts,
) -> Result<Vec<HeaderValue>, Box<Refusal>> {
    let mut tags = vec![];
    let Some(recalled) = &judged.recalled else {
        return Ok(tags);
    };
    let received = |refusal: Refusal| {
        Box::new(Refusal {
            received_status: Some(head.status.as_u16()),
            ..refusal
        })
    };
    if head.status == StatusCode::NOT_MODIFIED && recalled.conditions == Conditions::Ours {
        return Err(received(unmodified(judged, Stage::Response)));
    }
    if !judged.policy().compares()
        || head.status != StatusCode::OK
        || !refetches(&judged.asked.method)
    {
        return Ok(tags);
    }
    let check = |slot| checks::of(judged.policy(), &judged.trail, slot);
    let found = |slot: Slot| check(slot) != Check::Pass;
    if found(UNMODIFIED) && recalled.has(&validators(&head.headers)) {
        if check(UNMODIFIED) == Check::Reject {
            return Err(received(unmodified(judged, Stage::Response)));
        }
        tags.push(HeaderValue::from_static("unmodified"));
    }
    let tag = if found(DUPLICATE) {
        strong_etag(&head.headers)
    } else {
        None
    };
    if let Some(other) = tag.and_then(|tag| twin(judged, recalled, tag)) {
        if check(DUPLICATE) == Check::Reject {
            return Err(received(duplicate(judged, Stage::Response)));
        }
        tags.extend(duplicate_tag(&other));
    }
    Ok(tags)
}

/// What a body's content is asked for, beside what its validators say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing.
    Unasked,
    /// To be remembered, once it has been sent on.
    Remembered,
    /// Whether it may be sent on at all.
    Judged,
}

/// What the content of an answer that passed its head's judgement is asked for: of a GET's 200, where `unmodified` or
/// `duplicate` look at answers.
pub(in crate::gate) fn content<C>(judged: &Judged<C>, head: &Parts) -> Content {
    let compares = judged.recalled.is_some() && judged.policy().compares();
    if !compares || head.status != StatusCode::OK || judged.asked.method != Method::GET {
        return Content::Unasked;
    }
    let check = |slot| checks::of(judged.policy(), &judged.trail, slot);
    match (check(UNMODIFIED), check(DUPLICATE)) {
        (Check::Reject, _) | (_, Check::Reject) => Content::Judged,
        (Check::Tag, _) | (_, Check::Tag) => Content::Remembered,
        (Check::Pass, Check::Pass) => Content::Unasked,
    }
}

/// Judges the content of a body of which nothing is sent on yet.
///
/// # Errors
/// The refusal of a document that the crawler has.
pub(in crate::gate) fn judge_content<C>(
    judged: &Judged<C>,
    head: &Parts,
    learning: &Learning,
    hash: &ContentHash,
) -> Result<(), Box<Refusal>> {
    let rejects = |slot| checks::of(judged.policy(), &judged.trail, slot) == Check::Reject;
    let received = |refusal: Refusal| {
        Box::new(Refusal {
            received_status: Some(head.status.as_u16()),
            ..refusal
        })
    };
    if rejects(UNMODIFIED) && learning.unmodified_by_content(hash) {
        return Err(received(unmodified(judged, Stage::Document)));
    }
    if rejects(DUPLICATE) && learning.duplicate_by_content(hash).is_some() {
        return Err(received(duplicate(judged, Stage::Document)));
    }
    Ok(())
}

impl Recalled {
    /// Whether these are the validators of the document that was delivered last.
    fn has(&self, validators: &Validators) -> bool {
        self.record
            .as_ref()
            .is_some_and(|record| is_had(record) && same_version(record, validators))
    }
}

/// The refusal of a document that has not changed: it stays in the index.
pub(in crate::gate) fn unmodified<C>(judged: &Judged<C>, stage: Stage) -> Refusal {
    blaming(judged, UNMODIFIED, Refusal::new(Reason::Unmodified, stage))
}

/// The refusal of a document that another URL has as well.
pub(in crate::gate) fn duplicate<C>(judged: &Judged<C>, stage: Stage) -> Refusal {
    let refusal = blaming(judged, DUPLICATE, Refusal::new(Reason::Duplicate, stage));
    let intent = judged.trail.reject(judged.policy());
    Refusal { intent, ..refusal }
}

/// `duplicate; of=http://example.com/`.
pub(in crate::gate) fn duplicate_tag(of: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("duplicate; of={of}")).ok()
}

/// By what a later answer is told to be the same.
pub(super) fn validators(headers: &HeaderMap) -> Validators {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
            .map(Arc::from)
    };
    Validators {
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
fn twin<C>(judged: &Judged<C>, recalled: &Recalled, tag: &str) -> Option<Box<str>> {
    let asked = &judged.asked;
    let key = Key::of_content(asked.crawler.as_str(), asked.target.host(), tag);
    let other = recalled.ledger.with_content(key)?;
    let target = UrlTarget::parse(&other).ok()?;
    let other_key = key_of(judged.policy(), &judged.trail, &asked.crawler, &target);
    let stands = |record: &Record| record.validators.etag.as_deref() == Some(tag) && stands(record);
    let record = recalled
        .ledger
        .look_up(other_key)
        .filter(|_| other_key != recalled.key)?;
    stands(&record).then(|| Box::from(&*other))
}

/// Whether the crawler has a document of this URL: one that had to leave its index is fetched anew when it may be.
pub(super) fn is_had(record: &Record) -> bool {
    record.last_fetched.is_some() && stands(record)
}

/// Whether an index may still have the document of a record: what has left it has no duplicates.
pub(super) fn stands(record: &Record) -> bool {
    record.is_known() && record.indexed == Indexed::Perhaps
}
