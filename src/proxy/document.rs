//! Documents: what is read of an origin's body before any of it is sent on, and how one is changed.
//!
//! A body that nothing asks about does not come here. One that is read is kept as it came, in the origin's coding, and
//! sent on untouched behind the judgement; one that is changed is decoded, rewritten while it streams, and sent in no
//! coding. What is held back per request: `max_buffer` as it came, 64 KiB of it decoded, and the tokenizer's 256 KiB.

mod change;
mod charset;
mod coding;
mod entities;
mod fields;
mod hashing;
mod kept;
mod reading;
mod scan;
mod sent;

use std::sync::Arc;

use http::Method;
use http::response::Parts;

use crate::gate::failing::Failing;
use crate::gate::judged::Judged;
use crate::gate::refusal::Refusal;
use crate::gate::response::{self, Content, DocumentFacts};
use crate::gate::stage::learn::Learning;
use crate::metrics::Metrics;
use crate::metrics::labels::DocumentRead;
use crate::metrics::policy::PolicyMetrics;
use crate::metrics::record::Keep;
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

use super::body::{BodyError, Download};
use change::Change;
use coding::{Coding, Unreadable};
use hashing::Hashing;
use kept::Kept;
use reading::{Held, Plan, Read, Source};

pub use sent::Document;

pub(super) use fields::prepare as prepare_request;

/// The body of an answer that passed.
#[derive(Debug)]
pub enum Outgoing {
    /// As it comes.
    Plain(Box<Download>),
    /// Read in part, or changed.
    Document(Box<Document>),
}

/// Whether an answer's body must be looked at before its head may be sent, or its head be changed with it.
pub(super) fn concerns<C>(judged: &Judged<C>, head: &Parts) -> bool {
    response::wanted(judged, head).is_some()
        || response::changes(judged, head).is_some()
        || response::content(judged, head) != Content::Unasked
}

/// The document stage: reads what has to be read, judges it, and prepares what is changed. `head` is the origin's; only what
/// a change of the body takes with it is changed in it.
///
/// # Errors
/// The refusal that takes the place of the origin's answer, of which nothing has been sent.
pub(super) async fn stage(
    judged: &mut Judged<Arc<PolicyMetrics>>,
    head: &mut Parts,
    mut download: Box<Download>,
    learning: Option<&mut Learning>,
    metrics: &Metrics,
) -> Result<Outgoing, Box<Refusal>> {
    let coding =
        Coding::of(&head.headers).and_then(|coding| whole_or_beginning(head).map(|()| coding));
    let keep = judged.keep(Stage::Document);
    let broken = |error| broken(error, keep);
    let mut read = None;
    if let Some(wanted) = response::wanted(judged, head) {
        let source = Source {
            target: &judged.asked.target,
            agent: wanted.agent,
        };
        let plan = Plan::of_document(head, wanted.body_prefix, judged.max_buffer());
        let found = match coding {
            Ok(coding) => reading::read(&mut download, coding, &plan, &source)
                .await
                .map_err(broken)?,
            Err(Unreadable) => Read::unreadable(),
        };
        metrics.document(found.outcome());
        let facts = found.facts.clone();
        response::document(judged, head, facts.as_facts())?;
        read = Some(found);
    }
    let content = response::content(judged, head);
    let hashing = coding
        .ok()
        .filter(|_| content != Content::Unasked)
        .map(|coding| Box::new(Hashing::new(coding)));
    if let (Content::Judged, Ok(coding), Some(learning)) = (content, coding, learning) {
        let held = &mut read.get_or_insert_default().kept;
        match reading::hold(held, &mut download, judged.max_buffer())
            .await
            .map_err(broken)?
        {
            Held::Whole => {
                let hash = hashing::of(held, coding);
                hash.map_or(Ok(()), |hash| {
                    response::same_content(judged, head, learning, &hash)
                })?;
            }
            Held::Beginning => metrics.document(DocumentRead::TooLarge),
        }
    }
    let kept = |read: Option<Read>| read.map_or_else(Kept::default, |read| read.kept);
    let Some(changes) = response::changes(judged, head) else {
        return Ok(Outgoing::Document(Box::new(Document::untouched(
            kept(read),
            download,
            hashing,
        ))));
    };
    if judged.asked.method == Method::HEAD {
        fields::changed(&mut head.headers, changes, None);
        return Ok(Outgoing::Plain(download));
    }
    let Ok(coding) = coding else {
        let untouched = Document::untouched(kept(read), download, None);
        metrics.document(DocumentRead::Unreadable);
        return if changes.strips() {
            Err(unstrippable(keep))
        } else {
            Ok(Outgoing::Document(Box::new(untouched)))
        };
    };
    let encoding = match read.as_ref().and_then(|read| read.encoding) {
        Some(encoding) => encoding,
        None => {
            let plan = Plan::of_charset(head, judged.max_buffer());
            let source = Source {
                target: &judged.asked.target,
                agent: "",
            };
            let kept = read.take().map(|read| read.kept);
            let found = reading::read_on(kept, &mut download, coding, &plan, &source)
                .await
                .map_err(broken)?;
            let encoding = found.encoding.unwrap_or(encoding_rs::UTF_8);
            read = Some(found);
            encoding
        }
    };
    metrics.document(DocumentRead::Changed);
    fields::changed(&mut head.headers, changes, Some(encoding));
    let change = Change::new(changes, coding, encoding);
    Ok(Outgoing::Document(Box::new(Document::changed(
        kept(read),
        download,
        hashing,
        change,
    ))))
}

/// The refusal of a body from which something has to be gone, and that cannot be changed.
fn unstrippable(keep: Keep) -> Box<Refusal> {
    let refusal = Refusal::new(Reason::UpstreamProtocol, Stage::Document).with_detail(UNREADABLE);
    // That is the policy's doing: of the document nothing is learned.
    Box::new(Refusal {
        error: Some("http_response_content_coding"),
        failing: None,
        keep,
        ..refusal
    })
}

const UNREADABLE: &str = "the policy strips this document, and the origin sent it in a content coding that was not \
                          asked for and cannot be undone, or a part of it only";

/// The middle of a document says nothing of the whole.
fn whole_or_beginning(head: &Parts) -> Result<(), Unreadable> {
    if head.status != http::StatusCode::PARTIAL_CONTENT {
        return Ok(());
    }
    Err(Unreadable)
}

/// The origin's body broke off while nothing of it was sent: the client hears of it in a status.
fn broken(error: BodyError, keep: Keep) -> Box<Refusal> {
    let (reason, fails) = match error {
        BodyError::Incomplete | BodyError::Left => {
            (Reason::UpstreamProtocol, Some(Failing::Temporary))
        }
        BodyError::Idle => (Reason::UpstreamTimeout, Some(Failing::Temporary)),
        BodyError::TooLarge => (Reason::BodyTooLarge, None),
    };
    let refusal = Refusal::new(reason, Stage::Document);
    let (error, failing) = (Some(error.as_str()), fails.or(refusal.failing));
    Box::new(Refusal {
        error,
        failing,
        keep,
        ..refusal
    })
}

/// What a document says, owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    title: String,
    body_prefix: String,
    meta_robots: Option<String>,
    canonical: Option<String>,
}

impl Said {
    fn as_facts(&self) -> DocumentFacts<'_> {
        DocumentFacts {
            title: &self.title,
            body_prefix: &self.body_prefix,
            meta_robots: self.meta_robots.as_deref(),
            canonical: self.canonical.as_deref(),
        }
    }
}
