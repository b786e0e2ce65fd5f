//! The options that check answers, `unmodified`, `duplicate`, `noncanonical` and `noindex`, read for one request, and how
//! much of a body may be held back for them.

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::OptionSlot;
use super::schema::{self, MAX_BUFFER, REJECT_WORD, TAG_WORD};

/// What becomes of an answer that a check finds something in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckAction {
    /// Nothing: it is not looked for.
    #[default]
    Pass,
    /// It is passed on, and says so in `Crawl-Tag`.
    Tag,
    /// It is refused.
    Reject,
}

/// The option at this slot as it stands.
pub fn read_action(policy: &Policy, trail: &Trail, slot: OptionSlot) -> CheckAction {
    match trail.word(policy, slot) {
        Some(REJECT_WORD) => CheckAction::Reject,
        Some(TAG_WORD) => CheckAction::Tag,
        Some(_) | None => CheckAction::Pass,
    }
}

/// `max_buffer`: the most bytes of a body that are held back until it is judged.
pub fn max_buffer(policy: &Policy, trail: &Trail) -> u64 {
    // `compile` lets no other value than a size into this slot; the safe reading of one would be to hold nothing.
    trail.number(policy, MAX_BUFFER).unwrap_or(0)
}

impl Policy {
    /// Whether anything in the policy sets this check to more than `pass`: a policy that does not spares every answer the
    /// work for it.
    pub fn ever_checks(&self, slot: OptionSlot) -> bool {
        self.possible_values(slot).any(|(_, value)| {
            let word = schema::as_word(value);
            word == Some(REJECT_WORD) || word == Some(TAG_WORD)
        })
    }
}
