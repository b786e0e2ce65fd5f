//! The document stage: reads the beginning of an origin's body before any of it is sent, and
//! rewrites documents.
//!
//! Only bodies that the policy inspects or changes get here. A body that is only inspected is kept
//! as it arrived, in the origin's coding, and sent unchanged after the evaluation. A body that is
//! changed is decoded, rewritten while it streams, and sent without a content coding. Each request
//! buffers at most `max_buffer` bytes as received, 64 KiB of decoded text, and 256 KiB in the
//! tokenizer.

mod buffer;
mod charset;
pub(in crate::proxy) mod coding;
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
use crate::pipeline::response::{self, ContentHash, ContentUse, DocumentFacts};
use crate::pipeline::stage::outcome::OutcomeRecorder;

use super::body::{BodyError, ResponseDownload};
use super::upstream::lease_ended_refusal;
use buffer::BodyBuffer;
use coding::{ContentCoding, UnsupportedCoding};
use content_hash::ContentHasher;
use prefix::{BufferExtent, DocumentPrefix, DocumentSource, ReadPlan};
use rewrite::DocumentRewriter;

pub use document_body::DocumentBody;

pub(super) use header_fields::prepare as prepare_request;

/// The body of a response to be sent.
#[derive(Debug)]
pub enum OutgoingBody {
    /// The origin's body, unchanged.
    Streamed(Box<ResponseDownload>),
    /// A body that was read in part, or is changed.
    Document(Box<DocumentBody>),
}

/// Returns `true` if a response's body must be read before its head can be sent, or if the body or
/// its head is changed.
pub(super) fn is_needed(evaluation: &Evaluation, head: &Parts) -> bool {
    response::document_requirements(evaluation, head).is_some()
        || response::plan_rewrite(evaluation, head).is_some()
        || response::content_use(evaluation, head) != ContentUse::Ignore
}

/// Runs the document stage: reads the needed part of the body, evaluates it, and prepares the
/// changes. `head` is the origin's; only fields that depend on a changed body are modified.
///
/// # Errors
/// Returns the refusal that replaces the origin's response, of which nothing has been sent.
pub(super) async fn run_stage(
    evaluation: &mut Evaluation,
    head: &mut Parts,
    mut download: Box<ResponseDownload>,
    outcome_recorder: Option<&mut OutcomeRecorder>,
    metrics: &Metrics,
) -> Result<OutgoingBody, Box<Refusal>> {
    let coding = ContentCoding::from_headers(&head.headers)
        .and_then(|coding| check_not_partial(head).map(|()| coding));
    let url_retention = evaluation.url_retention_after_sending();
    let mut read = read_facts(evaluation, head, &mut download, coding, metrics).await?;
    let content = response::content_use(evaluation, head);
    let hashing = coding
        .ok()
        .filter(|_| content != ContentUse::Ignore)
        .map(|coding| Box::new(ContentHasher::new(coding)));
    if let (ContentUse::Check, Some(recorder)) = (content, outcome_recorder) {
        let buffer = &mut read.get_or_insert_default().buffer;
        let hash = match coding {
            Ok(coding) => hash_content(buffer, &mut download, coding, evaluation, metrics)
                .await
                .map_err(|error| broken_body_refusal(error, Stage::Document, url_retention))?,
            Err(UnsupportedCoding) => None,
        };
        response::check_content(evaluation, head, recorder, hash.as_ref())?;
    }
    let Some(changes) = response::plan_rewrite(evaluation, head) else {
        let body = DocumentBody::untouched(buffer_of(read), download, hashing);
        return Ok(OutgoingBody::Document(Box::new(body)));
    };
    if evaluation.facts().method == Method::HEAD {
        header_fields::adjust_response(&mut head.headers, changes, None);
        return Ok(OutgoingBody::Streamed(download));
    }
    let Ok(coding) = coding else {
        let untouched = DocumentBody::untouched(buffer_of(read), download, None);
        metrics.record_document(DocumentOutcome::Unreadable);
        return if changes.is_stripping() {
            Err(unstrippable_refusal(url_retention))
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
            let buffer = read.take().map(|read| read.buffer);
            let prefix = prefix::resume_prefix(buffer, &mut download, coding, &plan, &source)
                .await
                .map_err(|error| broken_body_refusal(error, Stage::Document, url_retention))?;
            let encoding = prefix.encoding.unwrap_or(encoding_rs::UTF_8);
            read = Some(prefix);
            encoding
        }
    };
    metrics.record_document(DocumentOutcome::Changed);
    header_fields::adjust_response(&mut head.headers, changes, Some(encoding));
    let rewriter = DocumentRewriter::new(changes, coding, encoding);
    let body = DocumentBody::rewritten(buffer_of(read), download, hashing, rewriter);
    Ok(OutgoingBody::Document(Box::new(body)))
}

/// Buffers the rest of a body and returns its hash; `None` if it is larger than `max_buffer` or cannot be decoded.
async fn hash_content(
    buffer: &mut BodyBuffer,
    download: &mut ResponseDownload,
    coding: ContentCoding,
    evaluation: &Evaluation,
    metrics: &Metrics,
) -> Result<Option<ContentHash>, BodyError> {
    Ok(
        match prefix::buffer_body(buffer, download, evaluation.max_buffer()).await? {
            BufferExtent::Whole => content_hash::hash_buffer(buffer, coding).await,
            BufferExtent::Beginning => {
                metrics.record_document(DocumentOutcome::TooLarge);
                None
            }
        },
    )
}

/// Reads as much of the document as its rules need, and evaluates them.
async fn read_facts(
    evaluation: &mut Evaluation,
    head: &Parts,
    download: &mut ResponseDownload,
    coding: Result<ContentCoding, UnsupportedCoding>,
    metrics: &Metrics,
) -> Result<Option<DocumentPrefix>, Box<Refusal>> {
    let Some(requirements) = response::document_requirements(evaluation, head) else {
        return Ok(None);
    };
    let source = DocumentSource {
        target: &evaluation.facts().target,
        agent: requirements.agent,
    };
    let plan = ReadPlan::for_document(head, requirements.body_prefix, evaluation.max_buffer());
    let prefix = match coding {
        Ok(coding) => prefix::read_prefix(download, coding, &plan, &source)
            .await
            .map_err(|error| {
                broken_body_refusal(
                    error,
                    Stage::Document,
                    evaluation.url_retention_after_sending(),
                )
            })?,
        Err(UnsupportedCoding) => DocumentPrefix::unreadable(),
    };
    metrics.record_document(prefix.outcome());
    let facts = prefix.facts.clone();
    response::evaluate_document(evaluation, head, facts.as_facts())?;
    Ok(Some(prefix))
}

fn buffer_of(read: Option<DocumentPrefix>) -> BodyBuffer {
    read.map_or_else(BodyBuffer::default, |read| read.buffer)
}

/// Returns the refusal of a body that must be changed and cannot be decoded.
fn unstrippable_refusal(url_retention: UrlRetention) -> Box<Refusal> {
    let refusal = Refusal::new(Reason::UpstreamProtocol, Stage::Document).with_detail(UNREADABLE);
    // The cause is the policy: the ledger records no failure of the document.
    Box::new(Refusal {
        error: Some("http_response_content_coding"),
        failure: None,
        url_retention,
        ..refusal
    })
}

const UNREADABLE: &str = "the policy strips this document, but the origin sent only a part of it, or \
                          used a content coding that was not requested and that the proxy cannot decode";

/// Rejects a partial response: the middle of a document does not allow conclusions about the whole.
fn check_not_partial(head: &Parts) -> Result<(), UnsupportedCoding> {
    if head.status != http::StatusCode::PARTIAL_CONTENT {
        return Ok(());
    }
    Err(UnsupportedCoding)
}

/// Returns the refusal for an origin's body that broke off before any of it was sent to the client.
pub(super) fn broken_body_refusal(
    error: BodyError,
    stage: Stage,
    url_retention: UrlRetention,
) -> Box<Refusal> {
    let (reason, failure) = match error {
        BodyError::LeaseEnded => {
            return Box::new(Refusal {
                url_retention,
                ..lease_ended_refusal()
            });
        }
        BodyError::Incomplete | BodyError::ClientLeft => {
            (Reason::UpstreamProtocol, Some(FailureKind::Temporary))
        }
        BodyError::Idle => (Reason::UpstreamTimeout, Some(FailureKind::Temporary)),
        BodyError::TooLarge => (Reason::BodyTooLarge, None),
    };
    let refusal = Refusal::new(reason, stage);
    Box::new(Refusal {
        error: Some(error.as_str()),
        failure: failure.or(refusal.failure),
        url_retention,
        ..refusal
    })
}

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
