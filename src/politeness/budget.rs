//! What was spent of a day's budget, and whether more may be (the option `budget`).
//!
//! A day is one of UTC, counted from 1970. What is counted as one, a host, a domain, a crawler or a space, is not asked
//! here.

use std::collections::BTreeSet;

/// The most hosts that a budget can count.
pub const MOST_HOSTS: u64 = 10_000;

/// What a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purse {
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
pub struct Limits {
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
pub struct HostNumber(pub u64);

/// Whether the ledger knows the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Novelty {
    /// It does not.
    New,
    /// It does.
    Known,
}

/// A request, as far as budgets ask.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Whether the URL is new.
    pub novelty: Novelty,
    /// Its host.
    pub host: HostNumber,
}

/// What was spent on one day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The day.
    pub day: u64,
    /// Requests.
    pub urls: u64,
    /// Those for new URLs.
    pub new_urls: u64,
    /// Bytes.
    pub bytes: u64,
    /// The hosts that were asked: no more than the budget allows, and counted only if it has a limit for them.
    pub hosts: BTreeSet<HostNumber>,
}

impl Spent {
    /// Nothing, on this day.
    pub fn on(day: u64) -> Self {
        Self {
            day,
            ..Self::default()
        }
    }

    /// Begins a new day, if it is one. A clock that was put back keeps the day that has begun.
    pub fn turn(&mut self, day: u64) {
        if self.day < day {
            *self = Self::on(day);
        }
    }

    /// What is used up for this request.
    pub fn over(&self, limits: Limits, request: Request) -> Option<Purse> {
        let used = |spent: u64, limit: Option<u64>| limit.is_some_and(|limit| limit <= spent);
        let is_new = request.novelty == Novelty::New;
        let other_host = !self.hosts.contains(&request.host);
        if used(self.urls, limits.urls) {
            Some(Purse::Urls)
        } else if is_new && used(self.new_urls, limits.new_urls) {
            Some(Purse::NewUrls)
        } else if used(self.bytes, limits.bytes) {
            Some(Purse::Bytes)
        } else {
            (other_host && used(self.hosts.len() as u64, limits.hosts)).then_some(Purse::Hosts)
        }
    }

    /// Counts a request that goes.
    pub fn count(&mut self, limits: Limits, request: Request) {
        self.urls = self.urls.saturating_add(1);
        self.new_urls = self
            .new_urls
            .saturating_add(u64::from(request.novelty == Novelty::New));
        if limits.hosts.is_some() && (self.hosts.len() as u64) < MOST_HOSTS {
            self.hosts.insert(request.host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Request = Request {
        novelty: Novelty::New,
        host: HostNumber(1),
    };
    const KNOWN: Request = Request {
        novelty: Novelty::Known,
        host: HostNumber(2),
    };

    #[test]
    fn each_purse_is_empty_at_its_limit() {
        let mut spent = Spent::on(1);
        let all = Limits {
            urls: Some(3),
            new_urls: Some(1),
            bytes: Some(10),
            hosts: Some(1),
        };
        assert_eq!((spent.over(all, NEW), spent.over(all, KNOWN)), (None, None));
        spent.count(all, NEW);
        assert_eq!(spent.over(all, NEW), Some(Purse::NewUrls));
        assert_eq!(spent.over(all, KNOWN), Some(Purse::Hosts));
        let of_the_host = Request {
            host: HostNumber(1),
            ..KNOWN
        };
        assert_eq!(spent.over(all, of_the_host), None);
        spent.bytes = 10;
        assert_eq!(spent.over(all, of_the_host), Some(Purse::Bytes));
        spent.count(all, of_the_host);
        spent.count(all, of_the_host);
        assert_eq!(spent.over(all, of_the_host), Some(Purse::Urls));
        assert_eq!((spent.urls, spent.new_urls, spent.hosts.len()), (3, 1, 1));
        assert_eq!(spent.over(Limits::default(), NEW), None);
        assert_eq!(
            Spent::on(1).over(
                Limits {
                    urls: Some(0),
                    ..all
                },
                NEW
            ),
            Some(Purse::Urls)
        );
    }

    #[test]
    fn a_day_begins_once() {
        let mut spent = Spent {
            urls: 5,
            ..Spent::on(7)
        };
        spent.turn(7);
        spent.turn(6);
        assert_eq!((spent.day, spent.urls), (7, 5));
        spent.turn(8);
        assert_eq!(spent, Spent::on(8));
    }
}
