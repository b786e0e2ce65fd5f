//! The option `budget`, read for one request.

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::schema::{BYTES, HOSTS, NEW_URLS, PER, URLS};
use super::{Slot, Value};

/// The limits, in the order in which they are looked at.
pub const LIMITS: [Slot; 4] = [URLS, NEW_URLS, BYTES, HOSTS];

/// What a budget is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
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
pub struct Budget {
    /// `urls`.
    pub urls: Option<u64>,
    /// `new_urls`.
    pub new_urls: Option<u64>,
    /// `bytes`.
    pub bytes: Option<u64>,
    /// `hosts`.
    pub hosts: Option<u64>,
    /// `per`: a host, or a registrable domain where hosts are counted, unless it says.
    pub per: Per,
}

/// The option as it stands; `None` if nothing is limited.
pub fn of(policy: &Policy, trail: &Trail) -> Option<Budget> {
    if !policy.has_budgets() {
        return None;
    }
    let [urls, new_urls, bytes, hosts] = LIMITS.map(|slot| trail.number(policy, slot));
    let per = match trail.word(policy, PER) {
        Some("crawler") => Per::Crawler,
        Some("space") => Per::Space,
        Some("registrable_domain") => Per::RegistrableDomain,
        Some("host") => Per::Host,
        Some(_) | None if hosts.is_some() => Per::RegistrableDomain,
        Some(_) | None => Per::Host,
    };
    let budget = Budget {
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
pub(in crate::policy) fn any(policy: &Policy) -> bool {
    LIMITS.into_iter().any(|slot| {
        policy
            .values_of(slot)
            .any(|(_, value)| *value != Value::None)
    })
}
