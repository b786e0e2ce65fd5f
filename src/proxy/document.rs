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

use encoding_rs::Encoding;
use http::Method;
use http::response::Parts;

use crate::metrics::Metrics;
use crate::metrics::labels::DocumentOutcome;
use crate::metrics::record::UrlRetention;
use crate::model::failure_kind::FailureKind;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::document_rewrite::DocumentRewrite;
use crate::pipeline::evaluation::Evaluation;
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
    download: Box<ResponseDownload>,
    outcome_recorder: Option<&mut OutcomeRecorder>,
    metrics: &Metrics,
) -> Result<OutgoingBody, Box<Refusal>> {
    let coding = ContentCoding::from_headers(&head.headers)
        .and_then(|coding| check_not_partial(head).map(|()| coding));
    let mut document = ArrivingDocument {
        url_retention: evaluation.url_retention_after_sending(),
        evaluation,
        head,
        download,
        coding,
        read: None,
        metrics,
    };
    document.evaluate_rules().await?;
    let content_use = response::content_use(document.evaluation, document.head);
    if let (ContentUse::Check, Some(recorder)) = (content_use, outcome_recorder) {
        document.check_content(recorder).await?;
    }
    let hasher = coding
        .ok()
        .filter(|_| content_use != ContentUse::Ignore)
        .map(|coding| Box::new(ContentHasher::new(coding)));
    match (
        response::plan_rewrite(document.evaluation, document.head),
        coding,
    ) {
        (None, _) => Ok(document.into_untouched_body(hasher)),
        (Some(changes), _) if document.evaluation.facts().method == Method::HEAD => {
            header_fields::adjust_response(&mut document.head.headers, changes, None);
            Ok(OutgoingBody::Streamed(document.download))
        }
        (Some(changes), Ok(coding)) => document.into_rewritten_body(changes, coding, hasher).await,
        (Some(changes), Err(UnsupportedCoding)) => {
            metrics.record_document(DocumentOutcome::Unreadable);
            if changes.is_stripping() {
                return Err(unstrippable_refusal(document.url_retention));
            }
            Ok(document.into_untouched_body(None))
        }
    }
}

/// A document that is arriving from its origin, of which nothing has been sent on.
struct ArrivingDocument<'a> {
    evaluation: &'a mut Evaluation,
    head: &'a mut Parts,
    download: Box<ResponseDownload>,
    coding: Result<ContentCoding, UnsupportedCoding>,
    /// The part that has been read.
    read: Option<DocumentPrefix>,
    /// The part of the URL that the log keeps if the document is broken.
    url_retention: UrlRetention,
    metrics: &'a Metrics,
}

impl ArrivingDocument<'_> {
    /// Reads as much of the document as its rules need, and evaluates them.
    async fn evaluate_rules(&mut self) -> Result<(), Box<Refusal>> {
        let Some(requirements) = response::document_requirements(self.evaluation, self.head) else {
            return Ok(());
        };
        let source = DocumentSource {
            target: &self.evaluation.facts().target,
            agent: requirements.agent,
        };
        let max_buffer = self.evaluation.max_buffer();
        let plan = ReadPlan::for_document(self.head, requirements.body_prefix, max_buffer);
        let prefix = match self.coding {
            Ok(coding) => prefix::read_prefix(&mut self.download, coding, &plan, &source)
                .await
                .map_err(|error| self.broken_refusal(error))?,
            Err(UnsupportedCoding) => DocumentPrefix::unreadable(),
        };
        self.metrics.record_document(prefix.outcome());
        let facts = prefix.facts.clone();
        response::evaluate_document(self.evaluation, self.head, facts.as_facts())?;
        self.read = Some(prefix);
        Ok(())
    }

    /// Reads the rest of the document, and compares it with earlier ones.
    async fn check_content(&mut self, recorder: &mut OutcomeRecorder) -> Result<(), Box<Refusal>> {
        let hash = match self.coding {
            Ok(coding) => self
                .hash_content(coding)
                .await
                .map_err(|error| self.broken_refusal(error))?,
            Err(UnsupportedCoding) => None,
        };
        response::check_content(self.evaluation, self.head, recorder, hash.as_ref())
    }

    /// Buffers the rest of the body and returns its hash; `None` if it is larger than `max_buffer` or cannot be decoded.
    async fn hash_content(
        &mut self,
        coding: ContentCoding,
    ) -> Result<Option<ContentHash>, BodyError> {
        let buffer = &mut self.read.get_or_insert_default().buffer;
        let max_buffer = self.evaluation.max_buffer();
        Ok(
            match prefix::buffer_body(buffer, &mut self.download, max_buffer).await? {
                BufferExtent::Whole => content_hash::hash_buffer(buffer, coding).await,
                BufferExtent::Beginning => {
                    self.metrics.record_document(DocumentOutcome::TooLarge);
                    None
                }
            },
        )
    }

    fn into_untouched_body(self, hasher: Option<Box<ContentHasher>>) -> OutgoingBody {
        let body = DocumentBody::untouched(buffer_of(self.read), self.download, hasher);
        OutgoingBody::Document(Box::new(body))
    }

    async fn into_rewritten_body(
        mut self,
        changes: DocumentRewrite,
        coding: ContentCoding,
        hasher: Option<Box<ContentHasher>>,
    ) -> Result<OutgoingBody, Box<Refusal>> {
        let encoding = self.find_encoding(coding).await?;
        self.metrics.record_document(DocumentOutcome::Changed);
        header_fields::adjust_response(&mut self.head.headers, changes, Some(encoding));
        let rewriter = DocumentRewriter::new(changes, coding, encoding);
        let body = DocumentBody::rewritten(buffer_of(self.read), self.download, hasher, rewriter);
        Ok(OutgoingBody::Document(Box::new(body)))
    }

    /// Returns the character encoding, for which the beginning of the document is read unless that has been done.
    async fn find_encoding(
        &mut self,
        coding: ContentCoding,
    ) -> Result<&'static Encoding, Box<Refusal>> {
        if let Some(encoding) = self.read.as_ref().and_then(|read| read.encoding) {
            return Ok(encoding);
        }
        let plan = ReadPlan::for_charset(self.head, self.evaluation.max_buffer());
        let source = DocumentSource {
            target: &self.evaluation.facts().target,
            agent: "",
        };
        let buffer = self.read.take().map(|read| read.buffer);
        let prefix = prefix::resume_prefix(buffer, &mut self.download, coding, &plan, &source)
            .await
            .map_err(|error| self.broken_refusal(error))?;
        let encoding = prefix.encoding.unwrap_or(encoding_rs::UTF_8);
        self.read = Some(prefix);
        Ok(encoding)
    }

    fn broken_refusal(&self, error: BodyError) -> Box<Refusal> {
        broken_body_refusal(error, Stage::Document, self.url_retention)
    }
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
