//! The option `budget`.

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::schema::{BUDGET_BYTES, BUDGET_HOSTS, BUDGET_NEW_URLS, BUDGET_PER, BUDGET_URLS};
use super::{OptionIndex, OptionSources};

/// The limits, in the order in which they are checked.
pub const LIMITS: [OptionIndex; 4] = [BUDGET_URLS, BUDGET_NEW_URLS, BUDGET_BYTES, BUDGET_HOSTS];

/// The unit that a budget applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetScope {
    Host,
    /// All hosts under one registrable domain.
    RegistrableDomain,
    Crawler,
    /// A crawl space: all crawlers in it together.
    Space,
}

/// The limits for one day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetOption {
    pub urls: Option<u64>,
    pub new_urls: Option<u64>,
    pub bytes: Option<u64>,
    pub hosts: Option<u64>,
    /// `per`. Defaults to the registrable domain if hosts are limited, otherwise to the host.
    pub per: BudgetScope,
}

/// Reads the option for a request; `None` if nothing is limited.
pub fn read(policy: &Policy, trail: &Trail) -> Option<BudgetOption> {
    if !policy.has_budgets() {
        return None;
    }
    let [urls, new_urls, bytes, hosts] = LIMITS.map(|index| trail.number(policy, index));
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

/// Returns `true` if the policy can set a limit.
pub(crate) fn has_limits(sources: OptionSources<'_>) -> bool {
    LIMITS.into_iter().any(|index| sources.ever_sets(index))
}
