//! The options that check responses (`unmodified`, `duplicate`, `noncanonical` and `noindex`), and
//! the number of bytes that may be buffered for these checks.

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::OptionIndex;
use super::schema::{MAX_BUFFER, REJECT_WORD, TAG_WORD};

/// The action for a response that fails a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckAction {
    /// Pass it on; the check is not run.
    #[default]
    Pass,
    /// Pass it on, marked in `Crawl-Tag`.
    Tag,
    /// Refuse it.
    Reject,
}

/// Reads an option for a request.
pub fn read_action(policy: &Policy, trail: &Trail, index: OptionIndex) -> CheckAction {
    match trail.word(policy, index) {
        Some(REJECT_WORD) => CheckAction::Reject,
        Some(TAG_WORD) => CheckAction::Tag,
        Some(_) | None => CheckAction::Pass,
    }
}

/// Returns `max_buffer`: the maximum number of bytes of a body that are buffered for its
/// evaluation.
pub fn max_buffer(policy: &Policy, trail: &Trail) -> u64 {
    // `compile` accepts only sizes for this option; the safe default is to buffer nothing.
    trail.number(policy, MAX_BUFFER).unwrap_or(0)
}
