//! The options that check responses (`unmodified`, `duplicate`, `noncanonical` and `noindex`), and
//! the number of bytes that may be buffered for these checks.

use crate::model::crawl_status::CrawlStatus;
use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::OptionIndex;
use super::schema::{DUPLICATE, LINKS_WORD, MAX_BUFFER, NOINDEX, REJECT_WORD, TAG_WORD};

/// The action for a response that fails a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckAction {
    /// Pass it on; the check is not run.
    #[default]
    Pass,
    /// Pass it on, marked in `Crawl-Tag`.
    Tag,
    /// Pass on only its links, marked in `Crawl-Tag`; refuse it if it has none to give.
    Links,
    /// Refuse it.
    Reject,
}

impl CheckAction {
    /// Parses the word in a policy.
    pub(crate) fn from_word(word: &str) -> Self {
        match word {
            REJECT_WORD => Self::Reject,
            LINKS_WORD => Self::Links,
            TAG_WORD => Self::Tag,
            _ => Self::Pass,
        }
    }
}

/// The check because of which only the links of a document are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinksOnly {
    /// `noindex: links`.
    Noindex,
    /// `duplicate: links`.
    Duplicate,
}

impl LinksOnly {
    /// The option that is set to `links`.
    pub fn option(self) -> OptionIndex {
        match self {
            Self::Noindex => NOINDEX,
            Self::Duplicate => DUPLICATE,
        }
    }

    /// The status of the URL, that of a refusal for the same reason.
    pub fn crawl_status(self) -> CrawlStatus {
        match self {
            Self::Noindex => CrawlStatus::Noindex,
            Self::Duplicate => CrawlStatus::Duplicate,
        }
    }
}

/// Reads an option for a request.
pub fn read_action(policy: &Policy, trail: &Trail, index: OptionIndex) -> CheckAction {
    trail
        .word(policy, index)
        .map_or(CheckAction::Pass, CheckAction::from_word)
}

/// Returns `max_buffer`: the maximum number of bytes of a body that are buffered for its
/// evaluation.
pub fn max_buffer(policy: &Policy, trail: &Trail) -> u64 {
    // `compile` accepts only sizes for this option; the safe default is to buffer nothing.
    trail.number(policy, MAX_BUFFER).unwrap_or(0)
}
