//! The option `recrawl`, read for one request. What the ledger makes of it is said in `ledger/verdict.rs`.

use std::time::Duration;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::schema::slot;
use super::{Slot, Value};

/// `recrawl.min_interval`.
pub const MIN_INTERVAL: Slot = slot("recrawl.min_interval");
/// `recrawl.after_error`.
pub const AFTER_ERROR: Slot = slot("recrawl.after_error");

/// When a URL may be fetched again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recrawl {
    /// `min_interval`: the least time after a document was delivered.
    pub min_interval: Option<Duration>,
    /// `after_error`: the least time after an error.
    pub after_error: Option<Duration>,
}

impl Recrawl {
    /// Whether nothing is asked for.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// The option as it stands.
pub fn of(policy: &Policy, trail: &Trail) -> Recrawl {
    let time = |slot| {
        if let Value::Duration(time) = trail.value(policy, slot) {
            Some(*time)
        } else {
            None
        }
    };
    Recrawl {
        min_interval: time(MIN_INTERVAL),
        after_error: time(AFTER_ERROR),
    }
}
