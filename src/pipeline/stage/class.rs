//! The class of a request that must wait (policy.md section 5, "Class in the hold queue"), and its priority.
//!
//! Asked for only by those that wait. That a class goes before another is said in `politeness/order`.

use crate::pacing::queue::{Priority, PriorityClass, QueueRank, WaitOrder};
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::evaluation::Evaluation;
use crate::policy::fact::LedgerPresence;
use crate::policy::options::politeness::{PolitenessOption, QueueOrder};
use crate::policy::options::{OptionSetter, schema};

use super::redirect::RedirectTarget;

/// How a request stands to others that wait.
pub(crate) fn rank(
    evaluation: &Evaluation,
    politeness: &PolitenessOption<'_>,
    admission: &AdmissionQueue,
) -> QueueRank {
    QueueRank {
        class: class(evaluation, admission).shifted(priority(evaluation)),
        order: order(politeness),
    }
}

/// How a tunnel does: as a page, since nothing is known of what it is for.
pub(crate) fn tunnel_rank(politeness: &PolitenessOption<'_>) -> QueueRank {
    QueueRank {
        class: PriorityClass::IndexFollow,
        order: order(politeness),
    }
}

/// How a fetch of robots.txt does: everybody who asks for the host waits for it.
pub(crate) fn robots_rank(order: WaitOrder) -> QueueRank {
    QueueRank {
        class: PriorityClass::User,
        order,
    }
}

/// The option `politeness.order`.
pub(crate) fn order(politeness: &PolitenessOption<'_>) -> WaitOrder {
    match politeness.order() {
        QueueOrder::Weighted => WaitOrder::Weighted,
        QueueOrder::Strict => WaitOrder::Strict,
    }
}

/// Remembers where an answer redirects to, and how deep that is.
pub(crate) fn record_redirect(
    evaluation: &Evaluation,
    redirect: &RedirectTarget,
    admission: &AdmissionQueue,
) {
    let RedirectTarget::Url(target) = redirect else {
        return;
    };
    admission.record_redirect(target);
    if let Some(depth) = evaluation
        .ledger_entry
        .as_ref()
        .and_then(|recalled| recalled.base_depth)
    {
        admission.record_redirect_depth(&evaluation.facts.crawler, target, depth);
    }
}

/// In the order of policy.md section 5. Without a ledger nothing is of the class `refresh` by itself.
fn class(evaluation: &Evaluation, admission: &AdmissionQueue) -> PriorityClass {
    if evaluation
        .facts
        .urls()
        .any(|url| admission.is_redirect_target(url))
    {
        return PriorityClass::Redir;
    }
    if evaluation.facts.in_ledger() == LedgerPresence::Present {
        return PriorityClass::Refresh;
    }
    if evaluation.facts.depth() == Some(0) {
        return PriorityClass::User;
    }
    let is_on = |slot| evaluation.trail.is_on(evaluation.policy(), slot);
    match (is_on(schema::INDEX), is_on(schema::FOLLOW)) {
        (true, true) => PriorityClass::IndexFollow,
        (true, false) => PriorityClass::Index,
        (false, true | false) => PriorityClass::Follow,
    }
}

/// The policy's priority where it sets one, else the crawler's.
fn priority(evaluation: &Evaluation) -> Priority {
    let (policy, trail) = (evaluation.policy(), &evaluation.trail);
    if trail.set_by(policy, schema::PRIORITY) == OptionSetter::BuiltIn {
        return evaluation.facts.priority.unwrap_or_default();
    }
    trail
        .word(policy, schema::PRIORITY)
        .map_or(Priority::NORMAL, Priority::from_word)
}
