//! The option `budget`, read for one request.

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::schema::{BUDGET_BYTES, BUDGET_HOSTS, BUDGET_NEW_URLS, BUDGET_PER, BUDGET_URLS};
use super::{OptionSlot, OptionValue};

/// The limits, in the order in which they are looked at.
pub const LIMITS: [OptionSlot; 4] = [BUDGET_URLS, BUDGET_NEW_URLS, BUDGET_BYTES, BUDGET_HOSTS];

/// What a budget is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetScope {
    /// A host.
    Host,
    /// What one owner has registered.
    RegistrableDomain,
    /// A crawler.
    Crawler,
    /// A crawl space: all crawlers in it together.
    Space,
}

/// What may be fetched in a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetOption {
    /// `urls`.
    pub urls: Option<u64>,
    /// `new_urls`.
    pub new_urls: Option<u64>,
    /// `bytes`.
    pub bytes: Option<u64>,
    /// `hosts`.
    pub hosts: Option<u64>,
    /// `per`: a host, or a registrable domain where hosts are counted, unless it says.
    pub per: BudgetScope,
}

/// The option as it stands; `None` if nothing is limited.
pub fn read(policy: &Policy, trail: &Trail) -> Option<BudgetOption> {
    if !policy.has_budgets() {
        return None;
    }
    let [urls, new_urls, bytes, hosts] = LIMITS.map(|slot| trail.number(policy, slot));
    let per = match trail.word(policy, BUDGET_PER) {
        Some("crawler") => BudgetScope::Crawler,
        Some("space") => BudgetScope::Space,
        Some("registrable_domain") => BudgetScope::RegistrableDomain,
        Some("host") => BudgetScope::Host,
        Some(_) | None if hosts.is_some() => BudgetScope::RegistrableDomain,
        Some(_) | None => BudgetScope::Host,
    };
    let budget = BudgetOption {
        urls,
        new_urls,
        bytes,
        hosts,
        per,
    };
    [urls, new_urls, bytes, hosts]
        .iter()
        .any(Option::is_some)
        .then_some(budget)
}

/// Whether anything in a policy sets a limit.
pub(crate) fn has_limits(policy: &Policy) -> bool {
    LIMITS.into_iter().any(|slot| {
        policy
            .possible_values(slot)
            .any(|(_, value)| *value != OptionValue::None)
    })
}
