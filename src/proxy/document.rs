//! Documents: what is read of an origin's body before any of it is sent on, and how one is changed.
//!
//! A body that nothing asks about does not come here. One that is read is kept as it came, in the origin's coding, and
//! sent on untouched behind the judgement; one that is changed is decoded, rewritten while it streams, and sent in no
//! coding. What is held back per request: `max_buffer` as it came, 64 KiB of it decoded, and the tokenizer's 256 KiB.

mod buffer;
mod charset;
mod coding;
mod content_hash;
mod document_body;
mod entities;
mod header_fields;
mod html_head;
mod prefix;
mod rewrite;

use http::Method;
use http::response::Parts;

use crate::metrics::Metrics;
use crate::metrics::labels::DocumentOutcome;
use crate::metrics::record::UrlRetention;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::failure_class::FailureKind;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::response::{self, ContentUse, DocumentFacts};
use crate::pipeline::stage::outcome::OutcomeRecorder;

use super::body::{BodyError, ResponseDownload};
use buffer::BodyBuffer;
use coding::{ContentCoding, UnsupportedCoding};
use content_hash::ContentHasher;
use prefix::{BufferExtent, DocumentPrefix, DocumentSource, ReadPlan};
use rewrite::DocumentRewriter;

pub use document_body::DocumentBody;

pub(super) use header_fields::prepare as prepare_request;

/// The body of an answer that passed.
#[derive(Debug)]
pub enum OutgoingBody {
    /// As it comes.
    Streamed(Box<ResponseDownload>),
    /// Read in part, or changed.
    Document(Box<DocumentBody>),
}

/// Whether an answer's body must be looked at before its head may be sent, or its head be changed with it.
pub(super) fn is_needed(evaluation: &Evaluation, head: &Parts) -> bool {
    response::document_requirements(evaluation, head).is_some()
        || response::plan_rewrite(evaluation, head).is_some()
        || response::content_use(evaluation, head) != ContentUse::Ignore
}

/// The document stage: reads what has to be read, judges it, and prepares what is changed. `head` is the origin's; only what
/// a change of the body takes with it is changed in it.
///
/// # Errors
/// The refusal that takes the place of the origin's answer, of which nothing has been sent.
pub(super) async fn run_stage(
    evaluation: &mut Evaluation,
    head: &mut Parts,
    mut download: Box<ResponseDownload>,
    outcome_recorder: Option<&mut OutcomeRecorder>,
    metrics: &Metrics,
) -> Result<OutgoingBody, Box<Refusal>> {
    let coding = ContentCoding::from_headers(&head.headers)
        .and_then(|coding| check_not_partial(head).map(|()| coding));
    let keep = evaluation.url_detail(Stage::Document);
    let broken = |error| broken_body_refusal(error, keep);
    let mut read = None;
    if let Some(wanted) = response::document_requirements(evaluation, head) {
        let source = DocumentSource {
            target: &evaluation.facts().target,
            agent: wanted.agent,
        };
        let plan = ReadPlan::for_document(head, wanted.body_prefix, evaluation.max_buffer());
        let found = match coding {
            Ok(coding) => prefix::read_prefix(&mut download, coding, &plan, &source)
                .await
                .map_err(broken)?,
            Err(UnsupportedCoding) => DocumentPrefix::unreadable(),
        };
        metrics.record_document(found.outcome());
        let facts = found.facts.clone();
        response::evaluate_document(evaluation, head, facts.as_facts())?;
        read = Some(found);
    }
    let content = response::content_use(evaluation, head);
    let hashing = coding
        .ok()
        .filter(|_| content != ContentUse::Ignore)
        .map(|coding| Box::new(ContentHasher::new(coding)));
    if let (ContentUse::Check, Ok(coding), Some(learning)) = (content, coding, outcome_recorder) {
        let held = &mut read.get_or_insert_default().buffer;
        match prefix::buffer_body(held, &mut download, evaluation.max_buffer())
            .await
            .map_err(broken)?
        {
            BufferExtent::Whole => {
                let hash = content_hash::hash_buffer(held, coding);
                hash.map_or(Ok(()), |hash| {
                    response::check_content(evaluation, head, learning, &hash)
                })?;
            }
            BufferExtent::Beginning => metrics.record_document(DocumentOutcome::TooLarge),
        }
    }
    let kept =
        |read: Option<DocumentPrefix>| read.map_or_else(BodyBuffer::default, |read| read.buffer);
    let Some(changes) = response::plan_rewrite(evaluation, head) else {
        return Ok(OutgoingBody::Document(Box::new(DocumentBody::untouched(
            kept(read),
            download,
            hashing,
        ))));
    };
    if evaluation.facts().method == Method::HEAD {
        header_fields::adjust_response(&mut head.headers, changes, None);
        return Ok(OutgoingBody::Streamed(download));
    }
    let Ok(coding) = coding else {
        let untouched = DocumentBody::untouched(kept(read), download, None);
        metrics.record_document(DocumentOutcome::Unreadable);
        return if changes.is_stripping() {
            Err(unstrippable_refusal(keep))
        } else {
            Ok(OutgoingBody::Document(Box::new(untouched)))
        };
    };
    let encoding = match read.as_ref().and_then(|read| read.encoding) {
        Some(encoding) => encoding,
        None => {
            let plan = ReadPlan::for_charset(head, evaluation.max_buffer());
            let source = DocumentSource {
                target: &evaluation.facts().target,
                agent: "",
            };
            let kept = read.take().map(|read| read.buffer);
            let found = prefix::resume_prefix(kept, &mut download, coding, &plan, &source)
                .await
                .map_err(broken)?;
            let encoding = found.encoding.unwrap_or(encoding_rs::UTF_8);
            read = Some(found);
            encoding
        }
    };
    metrics.record_document(DocumentOutcome::Changed);
    header_fields::adjust_response(&mut head.headers, changes, Some(encoding));
    let change = DocumentRewriter::new(changes, coding, encoding);
    Ok(OutgoingBody::Document(Box::new(DocumentBody::rewritten(
        kept(read),
        download,
        hashing,
        change,
    ))))
}

/// The refusal of a body from which something has to be gone, and that cannot be changed.
fn unstrippable_refusal(keep: UrlRetention) -> Box<Refusal> {
    let refusal = Refusal::new(Reason::UpstreamProtocol, Stage::Document).with_detail(UNREADABLE);
    // That is the policy's doing: of the document nothing is learned.
    Box::new(Refusal {
        error: Some("http_response_content_coding"),
        failure: None,
        url_detail: keep,
        ..refusal
    })
}

const UNREADABLE: &str = "the policy strips this document, and the origin sent it in a content coding that was not \
                          asked for and cannot be undone, or a part of it only";

/// The middle of a document says nothing of the whole.
fn check_not_partial(head: &Parts) -> Result<(), UnsupportedCoding> {
    if head.status != http::StatusCode::PARTIAL_CONTENT {
        return Ok(());
    }
    Err(UnsupportedCoding)
}

/// The origin's body broke off while nothing of it was sent: the client hears of it in a status.
fn broken_body_refusal(error: BodyError, keep: UrlRetention) -> Box<Refusal> {
    let (reason, fails) = match error {
        BodyError::Incomplete | BodyError::ClientLeft => {
            (Reason::UpstreamProtocol, Some(FailureKind::Temporary))
        }
        BodyError::Idle => (Reason::UpstreamTimeout, Some(FailureKind::Temporary)),
        BodyError::TooLarge => (Reason::BodyTooLarge, None),
    };
    let refusal = Refusal::new(reason, Stage::Document);
    let (error, failing) = (Some(error.as_str()), fails.or(refusal.failure));
    Box::new(Refusal {
        error,
        failure: failing,
        url_detail: keep,
        ..refusal
    })
}

/// What a document says, owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnedDocumentFacts {
    title: String,
    body_prefix: String,
    meta_robots: Option<String>,
    canonical: Option<String>,
}

impl OwnedDocumentFacts {
    fn as_facts(&self) -> DocumentFacts<'_> {
        DocumentFacts {
            title: &self.title,
            body_prefix: &self.body_prefix,
            meta_robots: self.meta_robots.as_deref(),
            canonical: self.canonical.as_deref(),
        }
    }
}
