//! One observation of a URL: a request, or an evaluation by the sweep.

use std::net::IpAddr;
use std::sync::Arc;

use crate::model::crawl_status::CrawlStatus;
use crate::model::failure_kind::FailureKind;
use crate::model::intent::Intent;
use crate::model::removal::{RemovalAction, RemovalOutcome};

use super::record::{ContentHash, DocumentValidators, UnixMillis};
use super::removal::{PendingRemoval, RemovalDecision};

/// One observation of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlObservation {
    pub at: UnixMillis,
    /// The URL in canonical form.
    pub url: Arc<str>,
    pub crawler: Arc<str>,
    pub space: Option<Arc<str>>,
    /// The number of links from a seed, if known.
    pub depth: Option<u32>,
    /// The address of the origin.
    pub address: Option<IpAddr>,
    /// The value of the option `source`.
    pub source: Option<Arc<str>>,
    /// The revision of the policy.
    pub revision: Arc<str>,
    /// The rule that decided a refusal.
    pub rule: Option<Arc<str>>,
    /// The intent of the refusal of the request or of its response.
    pub intent: Option<Intent>,
    /// The `User-Agent` of a request that robots.txt refuses, which may choose the group of the file.
    pub user_agent: Option<Arc<str>>,
    pub outcome: ObservationOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservationOutcome {
    /// A GET was admitted and answered, and the response was delivered completely or refused by the
    /// policy; or a HEAD was answered that the URL does not exist.
    Answered(ObservedResponse),
    /// A GET was admitted, but there was no complete answer.
    Failed {
        failure: FailureKind,
        /// OmniFind's code.
        code: Option<u16>,
        /// The value of `removal.error`.
        removal: RemovalAction,
    },
    /// The request was refused before the origin was contacted.
    Refused(ObservedRefusal),
    /// The sweep found that the policy refuses the URL.
    SweptRefusal(ObservedRefusal),
    /// The sweep found the URL allowed.
    Allowed,
    /// A decision about this pending removal.
    PendingRemoval(Box<PendingRemoval>, RemovalDecision),
}

/// An outcome for which a page may have to leave the index, and the policy's choice for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadOutcome {
    pub outcome: RemovalOutcome,
    pub action: RemovalAction,
}

/// An origin's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedResponse {
    pub status: u16,
    /// The status of the URL: accepted, or the reason for the refusal.
    pub crawl_status: CrawlStatus,
    /// OmniFind's code of the refusal.
    pub code: Option<u16>,
    /// The kind of error, if the response is one.
    pub failure: Option<FailureKind>,
    /// The outcome, if it may remove the page from the index.
    pub removal: Option<BadOutcome>,
    /// The document of a 200 that was delivered completely, or of which only the links were.
    pub document: Option<DeliveredDocument>,
    /// Controls whether a URL without a record gets one. A response that is delivered or is an error
    /// always creates one.
    pub recording: RefusalRecording,
}

/// A document that was delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveredDocument {
    pub validators: DocumentValidators,
    /// The hash of its body, if one was computed.
    pub content_hash: Option<ContentHash>,
    /// The media type, without parameters.
    pub content_type: Arc<str>,
    /// The number of bytes delivered.
    pub size: u64,
}

/// A refusal before the origin was contacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedRefusal {
    pub crawl_status: CrawlStatus,
    /// OmniFind's code.
    pub code: Option<u16>,
    /// The outcome, if it may remove the page from the index.
    pub removal: Option<BadOutcome>,
    /// Controls whether a URL without a record gets one: the rule logs, or the option `record` says
    /// so.
    pub recording: RefusalRecording,
}

/// Controls whether a refused URL without a record gets one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalRecording {
    /// No record is created.
    Skip,
    /// A record is created.
    Keep,
}
