//! What is remembered of one URL for one crawler.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::model::crawl_status::CrawlStatus;

/// A time, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// How much later than another time; nothing if a clock went back.
    pub fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Whether the ledger has the URL, in the sense of `known` (policy.md section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VisitState {
    /// Only a refusal was logged: a GET for it was never admitted and answered.
    #[default]
    RefusedOnly,
    /// A GET for it was admitted and answered.
    Answered,
}

/// Whether the crawler's index may have a document of this URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexState {
    /// It was never accepted.
    #[default]
    Never,
    /// It was, and nothing has asked for its removal since.
    Possible,
    /// A removal was ordered then.
    Removed(UnixMillis),
}

/// By what a later answer is told to be the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentValidators {
    /// `ETag`, as sent.
    pub etag: Option<Arc<str>>,
    /// `Last-Modified`, as sent.
    pub last_modified: Option<Arc<str>>,
}

/// SHA-256 of a body, content codings undone.
pub type ContentHash = [u8; 32];

/// What is remembered of one URL for one crawler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerRecord {
    /// The crawler's name.
    pub crawler: Arc<str>,
    /// The URL in canonical form, as it was last asked for.
    pub url: Arc<str>,
    /// Whether a GET for it was ever answered.
    pub visit_state: VisitState,
    /// Whether an index may have it.
    pub index_state: IndexState,
    /// What became of it last.
    pub status: RecordStatus,
    /// The status of the origin's last answer.
    pub origin_status: Option<u16>,
    /// OmniFind's code of the last refusal or failure.
    pub code: Option<u16>,
    /// The address that was asked last.
    pub address: Option<IpAddr>,
    /// When it was first asked for.
    pub first_seen: UnixMillis,
    /// When it was last asked for.
    pub last_seen: UnixMillis,
    /// When it was last fetched: a GET answered 200 and delivered whole. Neither a HEAD nor a 304 counts.
    pub last_fetched: Option<UnixMillis>,
    /// When an exchange last ended in an error.
    pub last_error: Option<UnixMillis>,
    /// When the fetched document was last another one than before.
    pub last_changed: Option<UnixMillis>,
    /// Those of the document that was fetched last.
    pub validators: DocumentValidators,
    /// The document that was fetched last, where the policy asks for that.
    pub content_hash: Option<ContentHash>,
    /// Its type, without parameters.
    pub content_type: Arc<str>,
    /// Its length in bytes, as delivered.
    pub size: u64,
    /// Links from a start; the fewest that were known.
    pub depth: Option<u32>,
    /// The option `source`.
    pub source: Option<Arc<str>>,
    /// The crawl space that it was judged in.
    pub space: Option<Arc<str>>,
    /// Temporary errors in a row.
    pub temporary_errors: u32,
}

/// [`CrawlStatus`] with a default for a record of which nothing is known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordStatus(pub CrawlStatus);

impl Default for RecordStatus {
    fn default() -> Self {
        Self(CrawlStatus::Accepted)
    }
}

impl LedgerRecord {
    /// That of a URL of which nothing is known but that it is asked for now. Not by way of [`Default`]: all empty texts
    /// share one reference count, which the threads would take from each other for each new URL and text.
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
        }
    }

    /// Whether it counts as `known` for policy.md section 6.
    pub fn is_known(&self) -> bool {
        self.visit_state == VisitState::Answered
    }
}
