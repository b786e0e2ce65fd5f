//! Emergency stops: hosts, crawlers and rules that an operator has stopped, and the requests that
//! they cover.
//!
//! Pure: the time is an argument. Storage and waiting are the caller's.

pub mod stop;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use stop::{EmergencyStop, StopId, StopReason, StopReasonError, StopTarget, StopTargetError};

/// The maximum number of simultaneous stops.
pub const MAX_STOPS: usize = 1_000;

/// An immutable set of stops.
#[derive(Clone, Debug, Default)]
pub struct StopSet {
    /// Ordered by id.
    entries: Vec<StopEntry>,
    hosts: StopIndex,
    domains: StopIndex,
    crawlers: StopIndex,
    rules: StopIndex,
}

/// A stop and its end on the monotonic clock; `None` if an operator has to lift it.
#[derive(Clone, Debug)]
pub struct StopEntry {
    pub stop: Arc<EmergencyStop>,
    pub ends_at: Option<Instant>,
}

/// The positions of the entries for each name.
type StopIndex = BTreeMap<Box<str>, Vec<usize>>;

/// A request that a stop may cover.
#[derive(Clone, Copy, Debug)]
pub struct StopQuery<'a> {
    /// The host in canonical form.
    pub host: &'a str,
    /// The crawler; `None` for a request that serves all crawlers.
    pub crawler: Option<&'a str>,
    /// All rules that matched, not only the one that decided: an operator who stops a group of
    /// rules, or a rule that slows a host down, means all its requests, whichever rule allowed
    /// them.
    pub rules: &'a [&'a str],
}

impl StopEntry {
    /// Returns `true` until the stop ends.
    pub fn is_active(&self, now: Instant) -> bool {
        self.ends_at.is_none_or(|ends| now < ends)
    }

    /// The remaining time, if the stop ends by itself.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        self.ends_at.map(|ends| ends.saturating_duration_since(now))
    }
}

impl StopSet {
    /// Creates a set of stops.
    pub fn new(mut entries: Vec<StopEntry>) -> Self {
        entries.sort_by_key(|entry| entry.stop.id);
        let mut set = Self::default();
        for (index, entry) in entries.iter().enumerate() {
            let (places, name) = set.index_for(&entry.stop.target);
            places.entry(name.into()).or_default().push(index);
        }
        Self { entries, ..set }
    }

    /// The stops ordered by id, including those that have ended.
    pub fn entries(&self) -> &[StopEntry] {
        &self.entries
    }

    /// Returns the stop with this id.
    pub fn entry(&self, id: StopId) -> Option<&StopEntry> {
        let index = self
            .entries
            .binary_search_by_key(&id, |entry| entry.stop.id)
            .ok()?;
        self.entries.get(index)
    }

    /// Returns the set with one more stop.
    #[must_use]
    pub fn with_entry(&self, entry: StopEntry) -> Self {
        Self::new(self.entries.iter().cloned().chain([entry]).collect())
    }

    /// Returns the set of the stops that `keep` accepts.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(&StopEntry) -> bool) -> Self {
        Self::new(
            self.entries
                .iter()
                .filter(|entry| keep(entry))
                .cloned()
                .collect(),
        )
    }

    /// Returns the active stop that covers a request. If there are several, returns the one that
    /// lasts longest.
    pub fn find_covering(&self, query: &StopQuery<'_>, now: Instant) -> Option<&StopEntry> {
        let host = self.hosts.get(query.host);
        let domains = domain_suffixes(query.host).filter_map(|domain| self.domains.get(domain));
        let crawler = query.crawler.and_then(|crawler| self.crawlers.get(crawler));
        let rules = query.rules.iter().filter_map(|rule| self.rules.get(*rule));
        let places = host
            .into_iter()
            .chain(domains)
            .chain(crawler)
            .chain(rules)
            .flatten();
        let entries = places.filter_map(|index| self.entries.get(*index));
        entries
            .filter(|entry| entry.is_active(now))
            .max_by_key(|entry| (entry.ends_at.is_none(), entry.ends_at))
    }

    fn index_for<'t>(&mut self, target: &'t StopTarget) -> (&mut StopIndex, &'t str) {
        match target {
            StopTarget::Host(host) => (&mut self.hosts, host),
            StopTarget::Domain(domain) => (&mut self.domains, domain),
            StopTarget::Crawler(name) => (&mut self.crawlers, name.as_str()),
            StopTarget::Rule(id) => (&mut self.rules, id.as_str()),
        }
    }
}

/// Returns a host and the domains above it: `a.b.c`, `b.c`, `c`.
fn domain_suffixes(host: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(host), |host| {
        host.split_once('.').map(|(_, above)| above)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64, target: &str, ends: Option<Instant>) -> StopEntry {
        StopEntry {
            stop: Arc::new(EmergencyStop {
                id: StopId(id),
                target: StopTarget::parse(target).unwrap(),
                reason: StopReason::new("too much").unwrap(),
                since: Duration::ZERO,
                until: None,
            }),
            ends_at: ends,
        }
    }

    fn covering(
        set: &StopSet,
        host: &str,
        crawler: &str,
        rules: &[&str],
        now: Instant,
    ) -> Option<u64> {
        let covers = StopQuery {
            host,
            crawler: Some(crawler),
            rules,
        };
        set.find_covering(&covers, now).map(|entry| entry.stop.id.0)
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "any moment will do")]
    fn stops_cover_their_targets() {
        let now = Instant::now();
        let targets = [
            "a.test",
            "*.b.test",
            "crawler:news",
            "rule:slow",
            "192.0.2.7",
            "domain:c",
        ];
        let set = StopSet::new(
            (1..)
                .zip(targets)
                .map(|(id, target)| entry(id, target, None))
                .collect(),
        );
        for (host, crawler, rules, expected) in [
            ("a.test", "x", &[][..], Some(1)),
            ("www.a.test", "x", &[], None),
            ("b.test", "x", &[], Some(2)),
            ("x.y.b.test", "x", &[], Some(2)),
            ("xb.test", "x", &[], None),
            ("z.test", "news", &[], Some(3)),
            ("z.test", "new", &[], None),
            ("z.test", "x", &["fast", "slow"], Some(4)),
            ("z.test", "slow", &["fast", "news"], None),
            ("192.0.2.7", "x", &[], Some(5)),
            ("c", "x", &[], Some(6)),
            ("test", "x", &[], None),
        ] {
            assert_eq!(
                covering(&set, host, crawler, rules, now),
                expected,
                "{host} {crawler} {rules:?}"
            );
        }
        let anonymous = StopQuery {
            host: "z.test",
            crawler: None,
            rules: &[],
        };
        assert!(set.find_covering(&anonymous, now).is_none());
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "any moment will do")]
    fn the_active_stop_that_lasts_longest_counts() {
        let now = Instant::now();
        let at = |seconds| Some(now + Duration::from_secs(seconds));
        let set = StopSet::new(vec![
            entry(3, "a.test", at(9)),
            entry(1, "a.test", at(5)),
            entry(2, "*.test", at(20)),
        ]);
        assert_eq!(covering(&set, "a.test", "x", &[], now), Some(2));
        let set = set.filtered(|entry| entry.stop.id != StopId(2));
        assert!(set.entry(StopId(2)).is_none());
        for (after, expected) in [(4, Some(3)), (8, Some(3)), (9, None)] {
            let then = now + Duration::from_secs(after);
            assert_eq!(
                covering(&set, "a.test", "x", &[], then),
                expected,
                "{after}"
            );
        }
        let for_good = set.with_entry(entry(4, "a.test", None));
        assert_eq!(covering(&for_good, "a.test", "x", &[], now), Some(4));
        assert_eq!(for_good.entry(StopId(4)).unwrap().remaining(now), None);
        assert_eq!(
            for_good.entry(StopId(1)).unwrap().remaining(now),
            Some(Duration::from_secs(5))
        );
        let ids: Vec<u64> = for_good
            .entries()
            .iter()
            .map(|entry| entry.stop.id.0)
            .collect();
        assert_eq!(ids, [1, 3, 4]);
    }
}
