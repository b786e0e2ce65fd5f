//! Stops: hosts, crawlers and rules that an operator has stopped, and which requests they cover.
//!
//! What one stop says is in [`stop`]. Pure: the time is an argument. Who keeps the stops, and how a request waits for
//! their end, is not here.

pub mod stop;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use stop::{EmergencyStop, StopId, StopReason, StopReasonError, StopTarget, StopTargetError};

/// How many there may be at once.
pub const MAX_STOPS: usize = 1_000;

/// All stops at one moment: immutable, and swapped whole.
#[derive(Clone, Debug, Default)]
pub struct StopSet {
    /// In the order of their ids.
    entries: Vec<StopEntry>,
    hosts: StopIndex,
    domains: StopIndex,
    crawlers: StopIndex,
    rules: StopIndex,
}

/// A stop, and when it ends by the clock that never jumps; `None` if it is for somebody to lift.
#[derive(Clone, Debug)]
pub struct StopEntry {
    /// The stop.
    pub stop: Arc<EmergencyStop>,
    /// Its end.
    pub ends_at: Option<Instant>,
}

/// The places of the entries that stop something of this name.
type StopIndex = BTreeMap<Box<str>, Vec<usize>>;

/// What a stop may cover.
#[derive(Clone, Copy, Debug)]
pub struct StopQuery<'a> {
    /// The host in canonical form.
    pub host: &'a str,
    /// Who asks; nobody in particular, for a request that serves all crawlers.
    pub crawler: Option<&'a str>,
    /// The rules that applied, the one that decided among them. Not only that one: who stops a group of rules, or a rule
    /// that slows a host down, means the requests that it is about, whatever let them pass in the end.
    pub rules: &'a [&'a str],
}

impl StopEntry {
    /// Whether it is in force.
    pub fn is_active(&self, now: Instant) -> bool {
        self.ends_at.is_none_or(|ends| now < ends)
    }

    /// How long it still is in force, if it ends by itself.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        self.ends_at.map(|ends| ends.saturating_duration_since(now))
    }
}

impl StopSet {
    /// These stops.
    pub fn new(mut entries: Vec<StopEntry>) -> Self {
        entries.sort_by_key(|entry| entry.stop.id);
        let mut set = Self::default();
        for (place, entry) in entries.iter().enumerate() {
            let (places, name) = set.index_for(&entry.stop.target);
            places.entry(name.into()).or_default().push(place);
        }
        Self { entries, ..set }
    }

    /// The stops, in the order of their ids; some may have ended meanwhile.
    pub fn entries(&self) -> &[StopEntry] {
        &self.entries
    }

    /// The stop of this id.
    pub fn entry(&self, id: StopId) -> Option<&StopEntry> {
        let place = self
            .entries
            .binary_search_by_key(&id, |entry| entry.stop.id)
            .ok()?;
        self.entries.get(place)
    }

    /// The same with one more.
    #[must_use]
    pub fn with_entry(&self, entry: StopEntry) -> Self {
        Self::new(self.entries.iter().cloned().chain([entry]).collect())
    }

    /// The same without those that this does not keep.
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

    /// The stop that covers a request: of several, the one that lasts longest.
    pub fn find_covering(&self, covers: &StopQuery<'_>, now: Instant) -> Option<&StopEntry> {
        let host = self.hosts.get(covers.host);
        let domains = domain_suffixes(covers.host).filter_map(|domain| self.domains.get(domain));
        let crawler = covers
            .crawler
            .and_then(|crawler| self.crawlers.get(crawler));
        let rules = covers.rules.iter().filter_map(|rule| self.rules.get(*rule));
        let places = host
            .into_iter()
            .chain(domains)
            .chain(crawler)
            .chain(rules)
            .flatten();
        let entries = places.filter_map(|place| self.entries.get(*place));
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

/// A host and every domain above it: `a.b.c`, `b.c`, `c`.
fn domain_suffixes(host: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(host), |host| {
        host.split_once('.').map(|(_, above)| above)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64, target: &str, ends: Option<Instant>) -> StopEntry {
        let (target, reason) = (
            StopTarget::parse(target).unwrap(),
            StopReason::new("too much").unwrap(),
        );
        let (id, since, until) = (StopId(id), Duration::ZERO, None);
        StopEntry {
            stop: Arc::new(EmergencyStop {
                id,
                target,
                reason,
                since,
                until,
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
    fn what_is_covered() {
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
        let nobody = StopQuery {
            host: "z.test",
            crawler: None,
            rules: &[],
        };
        assert!(set.find_covering(&nobody, now).is_none());
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "any moment will do")]
    fn of_several_the_one_that_lasts_longest_counts_and_none_that_has_ended() {
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
