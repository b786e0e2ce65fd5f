//! The record of one URL for one crawler.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::model::crawl_status::CrawlStatus;
use crate::model::failure_kind::FailureKind;

use super::removal::{PendingRemoval, RemovalCause};

/// A time in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// Returns the time elapsed since `earlier`, or zero if a clock went backwards.
    pub fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// The state that the condition `known` tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VisitState {
    /// Only refusals were logged: no GET was admitted and answered.
    #[default]
    RefusedOnly,
    /// A GET was admitted and answered.
    Answered,
    /// The URL failed permanently, and this was reported. A new link counts as that of a new URL.
    Failed,
}

/// The state of the URL in the crawler's index, as far as the ledger can infer it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexState {
    /// Never accepted.
    #[default]
    Never,
    /// Accepted, and no removal was ordered since.
    Possible,
    /// A removal was ordered at this time.
    Removed { at: UnixMillis, by: RemovalSource },
    /// The removal was taken back, and no document was delivered since.
    Restored,
}

/// The part of the system that a removal comes from, on which it depends how the removal ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemovalSource {
    /// The policy refuses the URL. The removal ends when it allows the URL, or when a document is
    /// delivered.
    #[default]
    Policy,
    /// The site, or the policy by a response. The removal ends when a document is delivered.
    Site,
}

impl RemovalSource {
    /// Returns the source of a removal; `status` is that of the response, if there was one.
    pub fn new(cause: &RemovalCause, status: Option<u16>) -> Self {
        match (cause, status) {
            (RemovalCause::Policy { .. }, None) => Self::Policy,
            (RemovalCause::Policy { .. }, Some(_))
            | (
                RemovalCause::RobotsTxt { .. } | RemovalCause::Noindex { .. } | RemovalCause::Page,
                _,
            ) => Self::Site,
        }
    }
}

/// The validators of a document, as the origin sent them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentValidators {
    pub etag: Option<Arc<str>>,
    pub last_modified: Option<Arc<str>>,
}

/// SHA-256 of a body after its content codings are removed.
pub type ContentHash = [u8; 32];

/// The record of one URL for one crawler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerRecord {
    pub crawler: Arc<str>,
    /// The URL in canonical form, as it was last requested.
    pub url: Arc<str>,
    pub visit_state: VisitState,
    pub index_state: IndexState,
    pub status: RecordStatus,
    /// The status of the origin's last answer.
    pub origin_status: Option<u16>,
    /// OmniFind's code of the last refusal or failure.
    pub code: Option<u16>,
    /// The origin's address at the last exchange.
    pub address: Option<IpAddr>,
    /// The time of the first request.
    pub first_seen: UnixMillis,
    /// The time of the last request.
    pub last_seen: UnixMillis,
    /// The time of the last complete 200 to a GET. Neither a HEAD nor a 304 counts.
    pub last_fetched: Option<UnixMillis>,
    /// The time of the last exchange that ended in an error.
    pub last_error: Option<UnixMillis>,
    /// The time at which the fetched document last differed from the one before.
    pub last_changed: Option<UnixMillis>,
    /// The validators of the last fetched document.
    pub validators: DocumentValidators,
    /// The hash of the last fetched document, if the policy needs it.
    pub content_hash: Option<ContentHash>,
    /// The media type of the last fetched document, without parameters.
    pub content_type: Arc<str>,
    /// The size of the last fetched document in bytes, as delivered.
    pub size: u64,
    /// The smallest known number of links from a seed.
    pub depth: Option<u32>,
    /// The value of the option `source`.
    pub source: Option<Arc<str>>,
    /// The crawl space in which the URL was last evaluated.
    pub space: Option<Arc<str>>,
    /// The number of consecutive temporary errors.
    pub temporary_errors: u32,
    /// `true` if the last refusal came before the origin was asked, so that a sweep can take it back.
    pub refused_unasked: bool,
    /// The removal from the index that is not ordered yet. The index still has the URL.
    pub pending_removal: Option<Box<PendingRemoval>>,
    /// The kind of the last error, until the URL is answered without one.
    pub error: Option<FailureKind>,
    /// The time of the first of consecutive bad outcomes, if the page was kept once more
    /// (`removal: once_more`).
    pub kept_since: Option<UnixMillis>,
    /// The time of the last request that was refused for now or failed, unless a later one was answered.
    pub lost: Option<UnixMillis>,
}

/// A [`CrawlStatus`] whose default is that of a new record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordStatus(pub CrawlStatus);

impl Default for RecordStatus {
    fn default() -> Self {
        Self(CrawlStatus::Accepted)
    }
}

impl LedgerRecord {
    /// Creates the record of a URL that is requested for the first time. It does not use
    /// [`Default`]: all empty `Arc<str>` would share one reference count, over which the threads
    /// would contend.
    pub fn new(crawler: Arc<str>, url: Arc<str>, now: UnixMillis) -> Self {
        Self {
            crawler,
            url,
            visit_state: VisitState::default(),
            index_state: IndexState::default(),
            status: RecordStatus::default(),
            origin_status: None,
            code: None,
            address: None,
            first_seen: now,
            last_seen: now,
            last_fetched: None,
            last_error: None,
            last_changed: None,
            validators: DocumentValidators::default(),
            content_hash: None,
            content_type: Arc::default(),
            size: 0,
            depth: None,
            source: None,
            space: None,
            temporary_errors: 0,
            refused_unasked: false,
            pending_removal: None,
            error: None,
            kept_since: None,
            lost: None,
        }
    }

    /// Returns `true` if the condition `known` holds for the URL.
    pub fn is_known(&self) -> bool {
        self.visit_state == VisitState::Answered
    }

    /// Returns `true` if a GET for the URL was ever admitted and answered.
    pub fn was_answered(&self) -> bool {
        self.visit_state != VisitState::RefusedOnly
    }

    /// Returns `true` if an index may have the URL, so that its removal can be ordered.
    pub fn may_leave_index(&self) -> bool {
        match self.index_state {
            IndexState::Possible | IndexState::Restored => true,
            IndexState::Never | IndexState::Removed { .. } => false,
        }
    }

    /// Returns `true` if the policy has ordered the removal of the URL, which it may take back.
    pub fn is_removed_by_policy(&self) -> bool {
        let by = RemovalSource::Policy;
        matches!(self.index_state, IndexState::Removed { by: source, .. } if source == by)
    }

    /// Returns `true` if it changes the record that the policy allows the URL.
    pub fn awaits_permission(&self) -> bool {
        self.is_refused_by_policy() || self.is_removed_by_policy()
    }

    /// Returns `true` if the policy has refused the URL, rather than its response.
    pub fn is_refused_by_policy(&self) -> bool {
        match self.status.0 {
            CrawlStatus::Filter | CrawlStatus::TooDeep | CrawlStatus::Trap => self.refused_unasked,
            CrawlStatus::Accepted
            | CrawlStatus::RobotsTxt
            | CrawlStatus::Usage
            | CrawlStatus::Budget
            | CrawlStatus::Premature
            | CrawlStatus::Unmodified
            | CrawlStatus::Duplicate
            | CrawlStatus::Noncanonical
            | CrawlStatus::Noindex
            | CrawlStatus::NotFound
            | CrawlStatus::BadStatus
            | CrawlStatus::Error
            | CrawlStatus::Import
            | CrawlStatus::Politeness
            | CrawlStatus::Address
            | CrawlStatus::Request
            | CrawlStatus::Unauthorized
            | CrawlStatus::Unavailable => false,
        }
    }

    /// Returns `true` if the URL was removed from the index, and no document was delivered since: a
    /// response without a document would leave the index without the page.
    pub fn lacks_document(&self) -> bool {
        match self.index_state {
            IndexState::Removed { .. } | IndexState::Restored => true,
            IndexState::Never | IndexState::Possible => false,
        }
    }
}
