//! What was spent of a day's budget, and whether more may be (the option `budget`).
//!
//! A day is one of UTC, counted from 1970. What is counted as one, a host, a domain, a crawler or a space, is not asked
//! here.

use std::collections::BTreeSet;

/// The most hosts that a budget can count.
pub const MAX_HOSTS: u64 = 10_000;

/// What a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetKind {
    /// Requests.
    Urls,
    /// Requests for URLs that the ledger does not know.
    NewUrls,
    /// Bytes of bodies, in both directions.
    Bytes,
    /// Different hosts.
    Hosts,
}

/// The most of each in a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Requests.
    pub urls: Option<u64>,
    /// Requests for URLs that the ledger does not know.
    pub new_urls: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
    /// Hosts.
    pub hosts: Option<u64>,
}

/// A host as a number: 64 bits of a hash that sites cannot aim at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostHash(pub u64);

/// Whether the ledger knows the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlNovelty {
    /// It does not.
    New,
    /// It does.
    Known,
}

/// A request, as far as budgets ask.
#[derive(Clone, Copy, Debug)]
pub struct BudgetRequest {
    /// Whether the URL is new.
    pub novelty: UrlNovelty,
    /// Its host.
    pub host: HostHash,
}

/// What was spent on one day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetUsage {
    /// The day.
    pub day: u64,
    /// Requests.
    pub urls: u64,
    /// Those for new URLs.
    pub new_urls: u64,
    /// Bytes.
    pub bytes: u64,
    /// The hosts that were asked: no more than the budget allows, and counted only if it has a limit for them.
    pub hosts: BTreeSet<HostHash>,
}

impl BudgetUsage {
    /// Nothing, on this day.
    pub fn for_day(day: u64) -> Self {
        Self {
            day,
            ..Self::default()
        }
    }

    /// Begins a new day, if it is one. A clock that was put back keeps the day that has begun.
    pub fn roll_over_to(&mut self, day: u64) {
        if self.day < day {
            *self = Self::for_day(day);
        }
    }

    /// What is used up for this request.
    pub fn exhausted_limit(
        &self,
        limits: BudgetLimits,
        request: BudgetRequest,
    ) -> Option<BudgetKind> {
        let used = |spent: u64, limit: Option<u64>| limit.is_some_and(|limit| limit <= spent);
        let is_new = request.novelty == UrlNovelty::New;
        let other_host = !self.hosts.contains(&request.host);
        if used(self.urls, limits.urls) {
            Some(BudgetKind::Urls)
        } else if is_new && used(self.new_urls, limits.new_urls) {
            Some(BudgetKind::NewUrls)
        } else if used(self.bytes, limits.bytes) {
            Some(BudgetKind::Bytes)
        } else {
            (other_host && used(self.hosts.len() as u64, limits.hosts)).then_some(BudgetKind::Hosts)
        }
    }

    /// Counts a request that goes.
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
    fn each_purse_is_empty_at_its_limit() {
        let mut spent = BudgetUsage::for_day(1);
        let all = BudgetLimits {
            urls: Some(3),
            new_urls: Some(1),
            bytes: Some(10),
            hosts: Some(1),
        };
        assert_eq!(
            (
                spent.exhausted_limit(all, NEW),
                spent.exhausted_limit(all, KNOWN)
            ),
            (None, None)
        );
        spent.record_request(all, NEW);
        assert_eq!(spent.exhausted_limit(all, NEW), Some(BudgetKind::NewUrls));
        assert_eq!(spent.exhausted_limit(all, KNOWN), Some(BudgetKind::Hosts));
        let of_the_host = BudgetRequest {
            host: HostHash(1),
            ..KNOWN
        };
        assert_eq!(spent.exhausted_limit(all, of_the_host), None);
        spent.bytes = 10;
        assert_eq!(
            spent.exhausted_limit(all, of_the_host),
            Some(BudgetKind::Bytes)
        );
        spent.record_request(all, of_the_host);
        spent.record_request(all, of_the_host);
        assert_eq!(
            spent.exhausted_limit(all, of_the_host),
            Some(BudgetKind::Urls)
        );
        assert_eq!((spent.urls, spent.new_urls, spent.hosts.len()), (3, 1, 1));
        assert_eq!(spent.exhausted_limit(BudgetLimits::default(), NEW), None);
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
        let mut spent = BudgetUsage {
            urls: 5,
            ..BudgetUsage::for_day(7)
        };
        spent.roll_over_to(7);
        spent.roll_over_to(6);
        assert_eq!((spent.day, spent.urls), (7, 5));
        spent.roll_over_to(8);
        assert_eq!(spent, BudgetUsage::for_day(8));
    }
}
