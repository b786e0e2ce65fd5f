//! The usage of a daily budget (the option `budget`).
//!
//! A day is counted from 1970 in UTC. The caller chooses what a budget is counted for: a host, a
//! domain, a crawler or a space.

pub mod share;

use std::collections::BTreeSet;

/// The maximum number of hosts that a budget can count.
pub const MAX_HOSTS: u64 = 10_000;

/// A quantity that a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetKind {
    Urls,
    /// Requests for URLs that the ledger does not know.
    NewUrls,
    /// Bytes of request and response bodies.
    Bytes,
    /// Distinct hosts.
    Hosts,
}

impl BudgetKind {
    /// Returns the key of the limit in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Urls => "urls",
            Self::NewUrls => "new_urls",
            Self::Bytes => "bytes",
            Self::Hosts => "hosts",
        }
    }
}

/// The limits of a budget for one day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetLimits {
    pub urls: Option<u64>,
    /// The number of requests for URLs that the ledger does not know.
    pub new_urls: Option<u64>,
    pub bytes: Option<u64>,
    pub hosts: Option<u64>,
}

/// 64 bits of a keyed hash of a host, which sites cannot predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostHash(pub u64);

/// The ledger's knowledge of the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlNovelty {
    /// The URL is not known.
    New,
    Known,
}

/// The properties of a request that count towards a budget.
#[derive(Clone, Copy, Debug)]
pub struct BudgetRequest {
    pub novelty: UrlNovelty,
    pub host: HostHash,
}

/// The usage on one day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetUsage {
    /// The day, counted from 1970.
    pub day: u64,
    pub urls: u64,
    /// The number of requests for new URLs.
    pub new_urls: u64,
    pub bytes: u64,
    /// The hosts, counted only if the budget limits them, and never more than it allows.
    pub hosts: BTreeSet<HostHash>,
}

impl BudgetUsage {
    /// Creates the usage of a day without any requests.
    pub fn for_day(day: u64) -> Self {
        Self {
            day,
            ..Self::default()
        }
    }

    /// Starts a new day if `day` is later. A clock that was set back does not change the day.
    pub fn roll_over_to(&mut self, day: u64) {
        if self.day < day {
            *self = Self::for_day(day);
        }
    }

    /// Returns the limit that leaves no room for this request, if there is one.
    pub fn exhausted_limit(
        &self,
        limits: BudgetLimits,
        request: BudgetRequest,
    ) -> Option<BudgetKind> {
        let is_new = request.novelty == UrlNovelty::New;
        let is_new_host = !self.hosts.contains(&request.host);
        if is_reached(self.urls, limits.urls) {
            Some(BudgetKind::Urls)
        } else if is_new && is_reached(self.new_urls, limits.new_urls) {
            Some(BudgetKind::NewUrls)
        } else if is_reached(self.bytes, limits.bytes) {
            Some(BudgetKind::Bytes)
        } else if is_new_host && is_reached(self.hosts.len() as u64, limits.hosts) {
            Some(BudgetKind::Hosts)
        } else {
            None
        }
    }

    /// Returns the limits that apply to a request, with the amount that it uses of each.
    pub fn applicable_limits(
        &self,
        limits: BudgetLimits,
        request: BudgetRequest,
    ) -> impl Iterator<Item = (BudgetKind, u64, u64)> + use<> {
        let is_new = request.novelty == UrlNovelty::New;
        let is_new_host = !self.hosts.contains(&request.host);
        let all = [
            (BudgetKind::Urls, limits.urls, 1),
            (BudgetKind::NewUrls, limits.new_urls.filter(|_| is_new), 1),
            // Counted when they have passed.
            (BudgetKind::Bytes, limits.bytes, 0),
            (BudgetKind::Hosts, limits.hosts.filter(|_| is_new_host), 1),
        ];
        all.into_iter()
            .filter_map(|(kind, limit, amount)| Some((kind, limit?, amount)))
    }

    /// Counts a request.
    pub fn record_request(&mut self, limits: BudgetLimits, request: BudgetRequest) {
        self.urls = self.urls.saturating_add(1);
        self.new_urls = self
            .new_urls
            .saturating_add(u64::from(request.novelty == UrlNovelty::New));
        if limits.hosts.is_some() && (self.hosts.len() as u64) < MAX_HOSTS {
            self.hosts.insert(request.host);
        }
    }
}

fn is_reached(used: u64, limit: Option<u64>) -> bool {
    limit.is_some_and(|limit| limit <= used)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: BudgetRequest = BudgetRequest {
        novelty: UrlNovelty::New,
        host: HostHash(1),
    };
    const KNOWN: BudgetRequest = BudgetRequest {
        novelty: UrlNovelty::Known,
        host: HostHash(2),
    };

    #[test]
    fn each_budget_is_exhausted_at_its_limit() {
        let mut usage = BudgetUsage::for_day(1);
        let all = BudgetLimits {
            urls: Some(3),
            new_urls: Some(1),
            bytes: Some(10),
            hosts: Some(1),
        };
        assert_eq!(
            (
                usage.exhausted_limit(all, NEW),
                usage.exhausted_limit(all, KNOWN)
            ),
            (None, None)
        );
        usage.record_request(all, NEW);
        assert_eq!(usage.exhausted_limit(all, NEW), Some(BudgetKind::NewUrls));
        assert_eq!(usage.exhausted_limit(all, KNOWN), Some(BudgetKind::Hosts));
        let of_the_host = BudgetRequest {
            host: HostHash(1),
            ..KNOWN
        };
        assert_eq!(usage.exhausted_limit(all, of_the_host), None);
        usage.bytes = 10;
        assert_eq!(
            usage.exhausted_limit(all, of_the_host),
            Some(BudgetKind::Bytes)
        );
        usage.record_request(all, of_the_host);
        usage.record_request(all, of_the_host);
        assert_eq!(
            usage.exhausted_limit(all, of_the_host),
            Some(BudgetKind::Urls)
        );
        assert_eq!((usage.urls, usage.new_urls, usage.hosts.len()), (3, 1, 1));
        assert_eq!(usage.exhausted_limit(BudgetLimits::default(), NEW), None);
        assert_eq!(
            BudgetUsage::for_day(1).exhausted_limit(
                BudgetLimits {
                    urls: Some(0),
                    ..all
                },
                NEW
            ),
            Some(BudgetKind::Urls)
        );
    }

    #[test]
    fn a_day_begins_once() {
        let mut usage = BudgetUsage {
            urls: 5,
            ..BudgetUsage::for_day(7)
        };
        usage.roll_over_to(7);
        usage.roll_over_to(6);
        assert_eq!((usage.day, usage.urls), (7, 5));
        usage.roll_over_to(8);
        assert_eq!(usage, BudgetUsage::for_day(8));
    }
}
