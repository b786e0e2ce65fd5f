//! The class of a request that must wait (policy.md section 5, "Class in the hold queue"), and its priority.
//!
//! Asked for only by those that wait. That a class goes before another is said in `politeness/order`.

use crate::gate::hold::Hold;
use crate::gate::judged::Judged;
use crate::policy::fact::InLedger;
use crate::policy::options::politeness::{Politeness, QueueOrder};
use crate::policy::options::{SetBy, schema};
use crate::politeness::order::{Class, Order, Priority, Rank};

use super::redirect::Leads;

/// How a request stands to others that wait.
pub(in crate::gate) fn rank<C>(
    judged: &Judged<C>,
    politeness: &Politeness<'_>,
    hold: &Hold,
) -> Rank {
    Rank {
        class: class(judged, hold).shifted(priority(judged)),
        order: order(politeness),
    }
}

/// How a tunnel does: as a page, since nothing is known of what it is for.
pub(in crate::gate) fn rank_of_tunnel(politeness: &Politeness<'_>) -> Rank {
    Rank {
        class: Class::IndexFollow,
        order: order(politeness),
    }
}

/// How a fetch of robots.txt does: everybody who asks for the host waits for it.
pub(in crate::gate) fn rank_of_robots(order: Order) -> Rank {
    Rank {
        class: Class::User,
        order,
    }
}

/// The option `politeness.order`.
pub(in crate::gate) fn order(politeness: &Politeness<'_>) -> Order {
    match politeness.order() {
        QueueOrder::Weighted => Order::Weighted,
        QueueOrder::Strict => Order::Strict,
    }
}

/// Remembers where an answer redirects to, and how deep that is.
pub(in crate::gate) fn note_redirect<C>(judged: &Judged<C>, leads: &Leads, hold: &Hold) {
    let Leads::To(target) = leads else { return };
    hold.redirected(target);
    if let Some(depth) = judged.recalled.as_ref().and_then(|recalled| recalled.base) {
        hold.redirected_at(&judged.asked.crawler, target, depth);
    }
}

/// In the order of policy.md section 5. Without a ledger nothing is of the class `refresh` by itself.
fn class<C>(judged: &Judged<C>, hold: &Hold) -> Class {
    if judged.asked.urls().any(|url| hold.is_redirected(url)) {
        return Class::Redir;
    }
    if judged.asked.known() == InLedger::Yes {
        return Class::Refresh;
    }
    if judged.asked.depth() == Some(0) {
        return Class::User;
    }
    let is_on = |slot| judged.trail.is_on(judged.policy(), slot);
    match (is_on(schema::INDEX), is_on(schema::FOLLOW)) {
        (true, true) => Class::IndexFollow,
        (true, false) => Class::Index,
        (false, true | false) => Class::Follow,
    }
}

/// The policy's priority where it sets one, else the crawler's.
fn priority<C>(judged: &Judged<C>) -> Priority {
    let (policy, trail) = (judged.policy(), &judged.trail);
    if trail.set_by(policy, schema::PRIORITY) == SetBy::BuiltIn {
        return judged.asked.priority.unwrap_or_default();
    }
    trail
        .word(policy, schema::PRIORITY)
        .map_or(Priority::NORMAL, Priority::from_word)
}
