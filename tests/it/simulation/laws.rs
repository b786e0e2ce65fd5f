//! The requests that the origins received, compared with the limits of each.

mod watch;

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use super::sites::{CYCLE, Extra, Temper};
pub(super) use watch::{GrantKind, ObservedGrant};
use watch::{Watch, Way};

/// All hosts.
pub(super) struct Laws {
    watches: Vec<Watch>,
    /// The addresses that many hosts share.
    addresses: Vec<Way>,
    /// `true` while the operator has stopped the hosts with `Extra::Halts`.
    halted: bool,
    violations: Vec<String>,
    digest: DefaultHasher,
    began: Instant,
}

impl Laws {
    pub(super) fn new(sites: usize, crawlers: usize, began: Instant) -> Self {
        let watches = (0..sites)
            .map(|host| Watch::new(host, crawlers, began))
            .collect();
        let addresses = vec![Way::default(); sites.div_ceil(CYCLE)];
        let digest = DefaultHasher::new();
        Self {
            watches,
            addresses,
            halted: false,
            violations: vec![],
            digest,
            began,
        }
    }

    /// Announces that a crawler will send requests to a host.
    pub(super) fn expects(&mut self, host: usize, crawler: usize, patient: bool) {
        let share = &mut self.watches[host].shares[crawler];
        (share.comes, share.patient) = (true, patient);
    }

    /// Records that a crawler has sent a request of this class, which may wait.
    pub(super) fn asks(&mut self, host: usize, crawler: usize, class: usize, now: Instant) {
        self.watches[host].asks(crawler, class, now);
    }

    /// Records that it no longer waits, without having been admitted.
    pub(super) fn waits_no_more(&mut self, host: usize, crawler: usize) {
        self.watches[host].waits_no_more(crawler);
    }

    /// Records that the operator stops the hosts with `Extra::Halts`, or lifts the stop.
    pub(super) fn halts(&mut self, halted: bool) {
        self.halted = halted;
    }

    /// Records that the proxy admits a request.
    pub(super) fn granted(&mut self, grant: ObservedGrant) {
        let ObservedGrant {
            host,
            crawler,
            granted,
            ..
        } = grant;
        (host, crawler, granted.duration_since(self.began)).hash(&mut self.digest);
        let watch = &mut self.watches[host];
        let mut broken = watch.granted(grant);
        if let Extra::Address(few) = watch.sort.extra {
            let of_address = self.addresses[host / CYCLE].goes(few.concurrency);
            broken.extend(of_address.map(|law| format!("its address: {law}")));
        }
        if self.halted && watch.sort.extra == Extra::Halts {
            broken.push("it is stopped".to_owned());
        }
        self.broken(host, broken);
    }

    /// Records that its head has reached the origin.
    pub(super) fn sent(&mut self, grant: ObservedGrant, now: Instant) {
        let watch = &mut self.watches[grant.host];
        let mut broken = watch.sent(grant, now);
        if let Extra::Address(few) = watch.sort.extra {
            let of_address = self.addresses[grant.host / CYCLE].sent(few.delay, now);
            broken.extend(of_address.map(|law| format!("its address: {law}")));
        }
        self.broken(grant.host, broken);
    }

    /// Records a 429 or 503 of the origin, with its `Retry-After`, if any.
    pub(super) fn complained(
        &mut self,
        grant: ObservedGrant,
        reported: Option<Duration>,
        now: Instant,
    ) {
        self.watches[grant.host].complained(grant, reported, now);
    }

    /// The origin fails, or answers 5xx.
    pub(super) fn failed(&mut self, grant: ObservedGrant, now: Instant) {
        self.watches[grant.host].failed(grant, now);
    }

    pub(super) fn answered_well(&mut self, grant: ObservedGrant) {
        self.watches[grant.host].answered_well(grant);
    }

    pub(super) fn ended(&mut self, grant: ObservedGrant) {
        let watch = &mut self.watches[grant.host];
        watch.ended(grant.kind);
        if let Extra::Address(_) = watch.sort.extra {
            self.addresses[grant.host / CYCLE].ended();
        }
    }

    fn broken(&mut self, host: usize, laws: Vec<String>) {
        let name = self.watches[host].sort.name;
        self.violations.extend(
            laws.into_iter()
                .map(|law| format!("host {host} ({name}): {law}")),
        );
    }

    pub(super) fn violation(&mut self, law: String) {
        self.violations.push(law);
    }

    pub(super) fn verdict(mut self, time: Duration) -> LawVerdict {
        for host in 0..self.watches.len() {
            let starved = self.watches[host].starved();
            self.broken(host, starved);
        }
        let steady = self
            .watches
            .iter()
            .filter(|watch| watch.sort.temper == Temper::Steady);
        let mut received = 0;
        let mut allowed = 0.0;
        for watch in steady {
            received += watch.received;
            let limits = watch.sort.limits;
            allowed += time.as_secs_f64() / limits.period.as_secs_f64() + f64::from(limits.at_once);
        }
        LawVerdict {
            received: self.watches.iter().map(|watch| watch.received).sum(),
            of_allowed: received as f64 / allowed,
            violations: self.violations,
            digest: self.digest.finish(),
        }
    }
}

/// The outcome.
pub(super) struct LawVerdict {
    pub(super) received: u64,
    /// The received share of the requests that the limits of the steady hosts allow.
    pub(super) of_allowed: f64,
    pub(super) violations: Vec<String>,
    /// A hash over every grant, to compare runs.
    pub(super) digest: u64,
}

impl LawVerdict {
    pub(super) fn assert(&self) {
        assert!(self.violations.is_empty(), "{self}");
        assert!((0.98..=1.0).contains(&self.of_allowed), "{self}");
    }
}

impl fmt::Display for LawVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            received,
            of_allowed,
            violations,
            ..
        } = self;
        writeln!(
            f,
            "{received} requests at the origins, {:.2} % of what steady hosts allow",
            of_allowed * 100.0
        )?;
        write!(f, "{} violations", violations.len())?;
        violations
            .iter()
            .take(20)
            .try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}
