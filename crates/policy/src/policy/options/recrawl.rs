//! The option `recrawl`, read for one request. What the ledger makes of it is said in `ledger/verdict.rs`.

use std::time::Duration;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::schema::slot;
use super::{OptionSlot, OptionValue};

/// `recrawl.min_interval`.
pub const MIN_INTERVAL: OptionSlot = slot("recrawl.min_interval");
/// `recrawl.after_error`.
pub const AFTER_ERROR: OptionSlot = slot("recrawl.after_error");

/// When a URL may be fetched again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecrawlOption {
    /// `min_interval`: the least time after a document was delivered.
    pub min_interval: Option<Duration>,
    /// `after_error`: the least time after an error.
    pub after_error: Option<Duration>,
}

impl RecrawlOption {
    /// Whether nothing is asked for.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// The option as it stands.
pub fn read(policy: &Policy, trail: &Trail) -> RecrawlOption {
    let time = |slot| {
        if let OptionValue::Duration(time) = trail.value(policy, slot) {
            Some(*time)
        } else {
            None
        }
    };
    RecrawlOption {
        min_interval: time(MIN_INTERVAL),
        after_error: time(AFTER_ERROR),
    }
}
