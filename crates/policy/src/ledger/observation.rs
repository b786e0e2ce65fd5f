//! What was seen of a URL: one request, or a look of the sweep.

use std::net::IpAddr;
use std::sync::Arc;

use crate::model::crawl_status::CrawlStatus;
use crate::model::intent::Intent;

use super::record::{ContentHash, DocumentValidators, UnixMillis};

/// CloudView's two kinds of errors (seed 002, "Error Handling").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Time-outs, resets, refused connections, no answer from DNS, 503 with `Retry-After`, 429.
    Temporary,
    /// Other 4xx and 5xx, a name that does not exist, TLS failures, malformed redirects, a 304 that nobody asked for.
    Permanent,
}

impl FailureKind {
    /// The value of `Crawl-Error`, and of JSON forms.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Temporary => "temporary",
            Self::Permanent => "permanent",
        }
    }
}

/// One look at a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlObservation {
    /// When.
    pub at: UnixMillis,
    /// The URL in canonical form.
    pub url: Arc<str>,
    /// The crawler's name.
    pub crawler: Arc<str>,
    /// Its crawl space.
    pub space: Option<Arc<str>>,
    /// Links from a start, where that is known.
    pub depth: Option<u32>,
    /// The address that was asked.
    pub address: Option<IpAddr>,
    /// The option `source`.
    pub source: Option<Arc<str>>,
    /// The revision of the policy.
    pub revision: Arc<str>,
    /// The rule that decided a refusal.
    pub rule: Option<Arc<str>>,
    /// What became of it.
    pub outcome: ObservationOutcome,
}

/// What became of a URL that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservationOutcome {
    /// A GET was admitted and answered, and the answer passed on to its last byte, or refused by what it is.
    Answered(ObservedAnswer),
    /// A GET was admitted and no answer came, or none to its end.
    Failed {
        /// How it is counted.
        failure: FailureKind,
        /// OmniFind's code.
        code: Option<u16>,
    },
    /// It was refused before the origin was asked.
    Refused(ObservedRefusal),
    /// The sweep finds it allowed.
    Allowed,
}

/// An origin's answer to a GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedAnswer {
    /// The origin's status.
    pub status: u16,
    /// What became of the URL: accepted, or why the answer was refused.
    pub crawl_status: CrawlStatus,
    /// The refusal's intent; nothing for what was passed on.
    pub intent: Option<Intent>,
    /// OmniFind's code of a refusal.
    pub code: Option<u16>,
    /// How it counts as an error, if it does.
    pub failure: Option<FailureKind>,
    /// The document, of a 200 that was delivered whole.
    pub document: Option<DeliveredDocument>,
}

/// A document that was delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveredDocument {
    /// By what it is told from another.
    pub validators: DocumentValidators,
    /// Its hash, where one was taken.
    pub content_hash: Option<ContentHash>,
    /// Its type, without parameters.
    pub content_type: Arc<str>,
    /// Bytes delivered.
    pub size: u64,
}

/// A refusal before the origin was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedRefusal {
    /// What became of the URL.
    pub crawl_status: CrawlStatus,
    /// What the refusal means.
    pub intent: Intent,
    /// OmniFind's code.
    pub code: Option<u16>,
    /// Whether a URL that the ledger does not have is noted all the same: the rule logs, or the option `record` says so.
    pub recording: RefusalRecording,
}

/// Whether a refused URL without a record gets one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalRecording {
    /// It does not (policy.md section 6).
    Skip,
    /// It does.
    Keep,
}
