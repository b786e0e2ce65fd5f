//! The class and the priority of a request that has to wait (docs/policy/reference.md "Who goes first").
//!
//! Computed only for requests that wait. `crate::pacing::queue` orders the classes.

use crate::pacing::queue::{Priority, PriorityClass, QueueRank, WaitOrder};
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::evaluation::Evaluation;
use crate::policy::fact::LedgerPresence;
use crate::policy::options::politeness::{PolitenessOption, QueueOrder};
use crate::policy::options::{OptionSetter, schema};

use super::redirect::RedirectTarget;

/// Returns the rank of a request among others that wait.
pub(crate) fn rank(evaluation: &Evaluation, admission: &AdmissionQueue) -> QueueRank {
    let politeness = PolitenessOption::new(evaluation.policy(), evaluation.trail());
    QueueRank {
        class: class(evaluation, admission).shifted(priority(evaluation)),
        order: order(&politeness),
    }
}

/// Returns the rank of a tunnel, which is that of a page, since its purpose is unknown.
pub(crate) fn tunnel_rank(politeness: &PolitenessOption<'_>) -> QueueRank {
    QueueRank {
        class: PriorityClass::IndexFollow,
        order: order(politeness),
    }
}

/// Returns the rank of a fetch of robots.txt, which all requests for the host wait for.
pub(crate) fn robots_rank(order: WaitOrder) -> QueueRank {
    QueueRank {
        class: PriorityClass::User,
        order,
    }
}

/// Returns the option `politeness.order`.
pub(crate) fn order(politeness: &PolitenessOption<'_>) -> WaitOrder {
    match politeness.order() {
        QueueOrder::Weighted => WaitOrder::Weighted,
        QueueOrder::Strict => WaitOrder::Strict,
    }
}

/// Remembers the target of a redirect, and its depth.
pub(crate) fn record_redirect(
    evaluation: &Evaluation,
    redirect: &RedirectTarget,
    admission: &AdmissionQueue,
) {
    let RedirectTarget::Url(target) = redirect else {
        return;
    };
    admission.record_redirect(target);
    if let Some(depth) = evaluation.ledger_entry().and_then(|entry| entry.depth) {
        admission.record_redirect_depth(&evaluation.facts().crawler, target, depth);
    }
}

/// Returns the first class that applies. Without a ledger no request is of the class `refresh` unless its priority
/// shifts it there.
fn class(evaluation: &Evaluation, admission: &AdmissionQueue) -> PriorityClass {
    if evaluation
        .facts()
        .urls()
        .any(|url| admission.is_redirect_target(url))
    {
        return PriorityClass::Redir;
    }
    if evaluation.facts().in_ledger() == LedgerPresence::Present {
        return PriorityClass::Refresh;
    }
    let is_seed = evaluation.ledger_entry().is_some_and(|entry| entry.is_seed);
    if is_seed || evaluation.facts().is_stated_start() {
        return PriorityClass::User;
    }
    let policy = evaluation.policy();
    let trail = evaluation.trail();
    match (
        trail.is_on(policy, schema::INDEX),
        trail.is_on(policy, schema::FOLLOW),
    ) {
        (true, true) => PriorityClass::IndexFollow,
        (true, false) => PriorityClass::Index,
        (false, true | false) => PriorityClass::Follow,
    }
}

/// Returns the policy's priority if it sets one, else the crawler's.
fn priority(evaluation: &Evaluation) -> Priority {
    let policy = evaluation.policy();
    let trail = evaluation.trail();
    if trail.set_by(policy, schema::PRIORITY) == OptionSetter::BuiltIn {
        return evaluation.facts().priority.unwrap_or_default();
    }
    trail
        .word(policy, schema::PRIORITY)
        .map_or(Priority::NORMAL, Priority::from_word)
}
