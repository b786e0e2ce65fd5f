//! The option `removal`: the outcomes after which a page leaves the index. `ledger/transition.rs`
//! applies it.

use crate::model::intent::Intent;
use crate::model::removal::{RemovalAction, RemovalOutcome};
use crate::policy::Policy;
use crate::policy::rule::PolicyStage;
use crate::policy::trail::Trail;

use super::OptionIndex;
use super::schema::{REJECT, option_index};

/// The page leaves the index.
pub const REMOVE: &str = "remove";
/// The page stays in the index.
pub const KEEP: &str = "keep";
/// The page stays in the index after the first such outcome.
pub const ONCE_MORE: &str = "once_more";
/// The page leaves the index if the refusal has the intent `gone`.
pub const BY_INTENT: &str = "by_intent";
/// The page leaves the index after a permanent error or several temporary ones.
pub const BY_COUNT: &str = "by_count";

/// The options, in the order of [`RemovalOutcome::ALL`].
pub const OPTIONS: [OptionIndex; 10] = [
    option_index("removal.robots_txt"),
    option_index("removal.rule"),
    option_index("removal.noindex"),
    option_index("removal.noncanonical"),
    option_index("removal.duplicate"),
    option_index("removal.too_large"),
    option_index("removal.not_found"),
    option_index("removal.gone"),
    option_index("removal.bad_status"),
    option_index("removal.error"),
];

/// Reads the action for an outcome. A refusal that keeps the page in the index, or is only for now,
/// never removes it.
pub fn read(
    policy: &Policy,
    trail: &Trail,
    outcome: RemovalOutcome,
    intent: Option<Intent>,
) -> RemovalAction {
    match intent {
        Some(Intent::Keep | Intent::Later) => return RemovalAction::Keep,
        Some(Intent::Deny | Intent::Gone) | None => {}
    }
    let word = OPTIONS
        .get(outcome as usize)
        .and_then(|index| trail.word(policy, *index));
    match word {
        Some(REMOVE) => RemovalAction::Remove,
        Some(ONCE_MORE) => RemovalAction::OnceMore,
        Some(BY_COUNT) => RemovalAction::ByCount,
        Some(BY_INTENT) if intent == Some(Intent::Gone) => RemovalAction::Remove,
        Some(_) | None => RemovalAction::Keep,
    }
}

/// Returns `true` if a rule that depends on the response may change the action for an outcome.
pub fn may_depend_on_response(policy: &Policy, outcome: RemovalOutcome) -> bool {
    let options = [OPTIONS.get(outcome as usize).copied(), Some(REJECT)];
    policy.rules.iter().any(|rule| {
        let mut options = options.into_iter().flatten();
        rule.stage >= PolicyStage::Response
            && options.any(|option| rule.assigned_value(option).is_some())
    })
}
