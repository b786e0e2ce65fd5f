//! Removals from an index: their causes, and those that wait for the end of their grace time.

use std::sync::Arc;

use crate::model::crawl_status::CrawlStatus;

use super::event::LedgerEventReason;
use super::filter::url_host;
use super::record::UnixMillis;

/// The cause of a removal. All causes but [`Self::Page`] may concern many URLs at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemovalCause {
    /// A policy of this revision excludes the URL.
    Policy { revision: Arc<str> },
    /// The robots.txt of this host forbids it, or denies the use.
    RobotsTxt { host: Arc<str> },
    /// A page of this host asks not to be indexed.
    Noindex { host: Arc<str> },
    /// The page alone: an error, or the properties of its document.
    Page,
}

impl RemovalCause {
    /// Returns the cause of a removal by a refusal with this status.
    pub fn of_refusal(status: CrawlStatus, url: &str, revision: &Arc<str>) -> Self {
        use CrawlStatus as Of;
        match status {
            Of::RobotsTxt | Of::Usage => Self::RobotsTxt {
                host: url_host(url).into(),
            },
            Of::Noindex => Self::Noindex {
                host: url_host(url).into(),
            },
            Of::Filter
            | Of::TooDeep
            | Of::Trap
            | Of::Budget
            | Of::Premature
            | Of::Address
            | Of::Politeness
            | Of::Request
            | Of::Unauthorized
            | Of::Unavailable
            | Of::Accepted => Self::Policy {
                revision: Arc::clone(revision),
            },
            Of::Unmodified
            | Of::Duplicate
            | Of::Noncanonical
            | Of::NotFound
            | Of::BadStatus
            | Of::Error
            | Of::Import => Self::Page,
        }
    }
}

/// A removal that is not ordered yet: an observation that keeps the URL cancels it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRemoval {
    /// The time of the first observation that removes the URL.
    pub since: UnixMillis,
    pub cause: RemovalCause,
    /// The reason, origin's status, rule and revision of the event.
    pub reason: LedgerEventReason,
    pub status: Option<u16>,
    pub rule: Option<Arc<str>>,
    pub revision: Arc<str>,
}
