//! The option `recrawl`. `ledger/recrawl.rs` enforces it.

use std::time::Duration;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::OptionIndex;
use super::schema::option_index;

pub const MIN_INTERVAL: OptionIndex = option_index("recrawl.min_interval");
pub const AFTER_ERROR: OptionIndex = option_index("recrawl.after_error");

/// The minimum times between two fetches of a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecrawlOption {
    /// `min_interval`: the minimum time after a document was delivered.
    pub min_interval: Option<Duration>,
    /// `after_error`: the minimum time after an error.
    pub after_error: Option<Duration>,
}

impl RecrawlOption {
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Reads the option for a request.
pub fn read(policy: &Policy, trail: &Trail) -> RecrawlOption {
    RecrawlOption {
        min_interval: trail.value(policy, MIN_INTERVAL).as_duration(),
        after_error: trail.value(policy, AFTER_ERROR).as_duration(),
    }
}
