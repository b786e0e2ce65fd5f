//! The pacing state of one host, address or domain: a limiter for each request kind, and what its
//! responses have shown about it. Each grant is a [`Lease`].

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::pacing::adaptive::OriginLatency;
use crate::pacing::backoff::{Backoff, BackoffEpoch, BackoffPhase, BackoffRecord};
use crate::pacing::ban::{BanDetector, BanSuspicion};
use crate::pacing::byte_debt::ByteDebt;
use crate::pacing::host_limiter::{HostLimiter, LeaseId, LeaseUse};
use crate::pacing::pace::{
    HostPace, PaceDecision, PaceWait, RequestKind, ResendDecision, WaitCause,
};
use crate::pacing::response_class::{Challenge, ResponseClass};

use super::handover::{ChangedRests, HostRecord, TakeoverTimes};
use super::{HostSnapshot, LeaseOutcome, LimiterKey, StoreStats};

/// The time for which latency and ban signals are kept after the last request, in addition to the time that a
/// limiter is kept.
const LEARNED_RETENTION: Duration = Duration::from_secs(600);

/// An entry of the host table.
#[derive(Debug)]
pub(super) struct HostEntry {
    name: Arc<str>,
    state: Mutex<HostEntryState>,
    changed_rests: Arc<ChangedRests>,
}

#[derive(Debug)]
struct HostEntryState {
    navigations: HostLimiter,
    embeds: HostLimiter,
    backoff: Backoff,
    /// The probe that follows a backoff, while its outcome is unknown.
    probe: Option<(RequestKind, LeaseId)>,
    latency: OriginLatency,
    bans: BanDetector,
    debt: ByteDebt,
    rng_state: u64,
    /// The version of the takeovers for which the next field is right.
    takeover_version: u32,
    /// The time until which other nodes may have sent requests to this host.
    taken_over_at: Option<Instant>,
    /// The pace of the last page request, for display.
    pace: Option<HostPace>,
}

/// A grant to send a request, to be released to the store that issued it. A lease that is dropped instead lasts
/// until it expires.
#[derive(Debug)]
#[must_use]
pub struct Lease {
    host: Arc<HostEntry>,
    kind: RequestKind,
    grant: Grant,
}

/// Identifies a granted request.
#[derive(Clone, Copy, Debug)]
struct Grant {
    id: LeaseId,
    epoch: BackoffEpoch,
    role: GrantRole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrantRole {
    Normal,
    Probe,
}

impl HostEntry {
    /// Creates an entry whose jitter is generated from `seed`.
    pub(super) fn new(name: Arc<str>, seed: u64, changed_rests: Arc<ChangedRests>) -> Self {
        Self {
            name,
            state: Mutex::new(HostEntryState::new(seed)),
            changed_rests,
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn try_acquire(
        self: Arc<Self>,
        kind: RequestKind,
        pace: &HostPace,
        takeovers: &TakeoverTimes,
        now: Instant,
    ) -> PaceDecision<Lease> {
        let mut state = self.state.lock();
        let version = takeovers.version();
        if state.takeover_version != version {
            state.takeover_version = version;
            state.taken_over_at = takeovers.of_host(&self.name);
        }
        let decision = state.try_acquire_adapted(kind, pace, now);
        drop(state);
        match decision {
            PaceDecision::Granted(grant) => PaceDecision::Granted(Lease {
                host: self,
                kind,
                grant,
            }),
            PaceDecision::Wait(wait) => PaceDecision::Wait(wait),
        }
    }

    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let state = self.state.lock();
        let has_learned = state.latency.is_known() || state.bans.has_history();
        let idle_since = if has_learned {
            now.checked_sub(LEARNED_RETENTION).unwrap_or(now)
        } else {
            now
        };
        state.navigations.is_idle(idle_since)
            && state.embeds.is_idle(idle_since)
            && state.backoff.is_idle(now)
            && state.debt.is_idle(now)
    }

    pub(super) fn snapshot(&self, now: Instant) -> HostSnapshot {
        self.state.lock().snapshot(now)
    }

    /// Returns the state for another process; `None` if it has no effect.
    pub(super) fn record(&self, now: Instant) -> Option<HostRecord> {
        if self.is_idle(now) {
            return None;
        }
        let state = self.state.lock();
        Some(HostRecord {
            navigations: state.navigations.record(now),
            embeds: state.embeds.record(now),
            backoff: state.backoff.record(now),
            latency: state.latency.average(),
            byte_debt: state.debt.remaining(now).unwrap_or_default(),
        })
    }

    pub(super) fn backoff_record(&self, now: Instant) -> Option<BackoffRecord> {
        self.state.lock().backoff.record(now)
    }

    /// Adds the state of another process. Signs of a ban are not handed over: they are only reported. A backoff counts as
    /// changed, since the process before may not have written it to the store.
    pub(super) fn restore(&self, record: &HostRecord, now: Instant) {
        self.update(now, |state| {
            if let Some(limiter) = &record.navigations {
                state.navigations.restore(limiter, now);
            }
            if let Some(limiter) = &record.embeds {
                state.embeds.restore(limiter, now);
            }
            if let Some(backoff) = &record.backoff {
                state.backoff.restore(backoff, now);
            }
            if let Some(latency) = record.latency {
                state.latency.restore(latency);
            }
            state.debt.restore(record.byte_debt, now);
        });
    }

    /// Changes the state, and notes if that has changed the backoff.
    fn update<T>(&self, now: Instant, change: impl FnOnce(&mut HostEntryState) -> T) -> T {
        let mut state = self.state.lock();
        let before = state.backoff;
        let result = change(&mut state);
        let has_changed = state.backoff.has_changed_since(&before, now);
        drop(state);
        if has_changed {
            self.changed_rests.add(&self.name);
        }
        result
    }

    pub(super) fn add_to_stats(&self, stats: &mut StoreStats, now: Instant) {
        let state = self.state.lock();
        stats.leases += state.navigations.active_leases(now) + state.embeds.active_leases(now);
        stats.backing_off += usize::from(state.backoff.remaining(now).is_some());
    }
}

impl Lease {
    /// Returns the key that the lease was granted for.
    pub fn key(&self) -> LimiterKey<'_> {
        LimiterKey {
            name: &self.host.name,
            kind: self.kind,
        }
    }

    /// Returns the name that the lease was granted for, to be kept after its release.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.host.name)
    }

    /// Returns `true` if this request is the probe that follows a backoff.
    pub fn is_probe(&self) -> bool {
        self.grant.role == GrantRole::Probe
    }

    /// Records that the request head was sent: the delay of the next request and the expiry of the lease are
    /// measured from here.
    pub fn renew(&self, now: Instant) {
        let mut state = self.host.state.lock();
        let draw = state.next_random();
        state
            .limiter(self.kind)
            .record_sent(self.grant.id, draw, now);
    }

    /// Returns the decision on sending the request again.
    pub fn retry_permit(&self, now: Instant) -> ResendDecision {
        let mut state = self.host.state.lock();
        match state.backoff_remaining(self.grant, now) {
            Some(_) => ResendDecision::Never,
            None => state.limiter(self.kind).try_resend(self.grant.id, now),
        }
    }

    /// Returns the rest of a backoff that began after the lease was granted. A request that has not been sent
    /// yet must then not be sent.
    pub fn backoff_remaining(&self, now: Instant) -> Option<Duration> {
        self.host.state.lock().backoff_remaining(self.grant, now)
    }

    /// Charges the bytes of the request's bodies to a budget of bytes per second, which delays later grants. To be
    /// called before the release, so that no request is granted in between.
    pub fn charge(&self, bytes: u64, per_second: NonZeroU64, now: Instant) {
        let mut state = self.host.state.lock();
        state.debt.charge(bytes, per_second, now);
    }

    /// Releases the lease: after the origin's last byte, or unused.
    pub fn release(self, outcome: LeaseOutcome, now: Instant) {
        self.host.update(now, |state| {
            state.release(self.kind, self.grant, outcome, now)
        });
    }

    /// Records the head of a response that is not simply successful: its class, and the latency. The lease is then
    /// released as [`LeaseOutcome::Abandoned`].
    pub fn record_response(
        &self,
        class: ResponseClass,
        challenge: Challenge,
        now: Instant,
    ) -> BanSuspicion {
        self.host.update(now, |state| {
            state.end_probe(self.kind, self.grant);
            state.record_latency(self.kind, self.grant, class, now);
            state.update_backoff(self.grant, class, now);
            state.check_for_ban(class, challenge, now)
        })
    }
}

impl HostEntryState {
    fn new(seed: u64) -> Self {
        Self {
            navigations: HostLimiter::default(),
            embeds: HostLimiter::default(),
            backoff: Backoff::default(),
            probe: None,
            latency: OriginLatency::default(),
            bans: BanDetector::default(),
            debt: ByteDebt::default(),
            // Xorshift stays at zero.
            rng_state: seed | 1,
            takeover_version: 0,
            taken_over_at: None,
            pace: None,
        }
    }

    fn release(&mut self, kind: RequestKind, grant: Grant, outcome: LeaseOutcome, now: Instant) {
        let used = match outcome {
            LeaseOutcome::Unused => LeaseUse::Unused,
            LeaseOutcome::Abandoned | LeaseOutcome::Failed | LeaseOutcome::Answered => {
                LeaseUse::Used
            }
        };
        self.limiter(kind).release(grant.id, used, now);
        self.end_probe(kind, grant);
        match outcome {
            LeaseOutcome::Unused | LeaseOutcome::Abandoned => {}
            LeaseOutcome::Failed => self.record_failure(grant.epoch, now),
            LeaseOutcome::Answered => {
                self.backoff.record_success(grant.epoch, now);
                self.bans.record_success();
            }
        }
    }

    fn snapshot(&self, now: Instant) -> HostSnapshot {
        let mut latency = self.latency;
        let pace = self.pace.unwrap_or(HostPace::UNLIMITED);
        let adaptive_delay = pace.adaptive.map(|adaptive| latency.delay(adaptive));
        let pace = HostPace {
            delay: pace.delay.max(adaptive_delay.unwrap_or_default()),
            ..pace
        };
        let phase = self.backoff.phase(now);
        let backoff = self
            .backoff
            .remaining(now)
            .map(|remaining| (remaining, self.backoff.cause()));
        let byte_debt = pace.bytes_per_second.and_then(|_| self.debt.remaining(now));
        let concurrency = match phase {
            BackoffPhase::Free => pace.concurrency,
            BackoffPhase::OneByOne | BackoffPhase::Probe | BackoffPhase::BackingOff(_) => 1,
        };
        HostSnapshot {
            pace: self.pace,
            delay: pace.delay,
            concurrency,
            until_next: backoff
                .map(|(remaining, _)| remaining)
                .or(byte_debt)
                .or_else(|| {
                    let navigation_pace = HostPace {
                        concurrency,
                        ..pace
                    };
                    Some(self.navigations.peek(&navigation_pace, now)?.duration)
                })
                .max(self.taken_over_at.and_then(|until| {
                    (until + pace.jittered_delay(1.0)).checked_duration_since(now)
                }))
                .unwrap_or_default(),
            in_flight: self.navigations.active_leases(now) + self.embeds.active_leases(now),
            last_sent: self.navigations.last_sent().max(self.embeds.last_sent()),
            backoff,
            failures: self.backoff.consecutive_failures(),
            backoff_count: self.backoff.strikes(),
            latency: self.latency.average(),
            byte_debt,
        }
    }

    /// Stores the pace of pages, or that of the first request, and applies the adaptive delay.
    fn try_acquire_adapted(
        &mut self,
        kind: RequestKind,
        pace: &HostPace,
        now: Instant,
    ) -> PaceDecision<Grant> {
        if kind == RequestKind::Navigation || self.pace.is_none() {
            self.pace = Some(*pace);
        }
        let Some(adaptive) = pace.adaptive else {
            return self.try_acquire(kind, pace, now);
        };
        let delay = self.latency.delay(adaptive).max(pace.delay);
        self.try_acquire(kind, &HostPace { delay, ..*pace }, now)
    }

    fn try_acquire(
        &mut self,
        kind: RequestKind,
        pace: &HostPace,
        now: Instant,
    ) -> PaceDecision<Grant> {
        let phase = self.backoff.phase(now);
        if let BackoffPhase::BackingOff(time) = phase {
            return PaceDecision::Wait(PaceWait {
                duration: time,
                cause: WaitCause::Backoff,
            });
        }
        if let Some(time) = pace.bytes_per_second.and_then(|_| self.debt.remaining(now)) {
            return PaceDecision::Wait(PaceWait {
                duration: time,
                cause: WaitCause::Time,
            });
        }
        if let Some(until) = self.taken_over_at
            && let Some(wait) = self.limiter(kind).wait_after_others(until, pace, now)
        {
            return PaceDecision::Wait(wait);
        }
        match phase {
            BackoffPhase::OneByOne => self.acquire_normal(
                kind,
                &HostPace {
                    concurrency: 1,
                    ..*pace
                },
                now,
            ),
            BackoffPhase::Probe => self.acquire_probe(kind, pace, now),
            BackoffPhase::Free | BackoffPhase::BackingOff(_) => {
                self.acquire_normal(kind, pace, now)
            }
        }
    }

    /// Returns the time for which a request that was granted before the current backoff must not be
    /// sent: neither during the backoff nor next to its probe.
    fn backoff_remaining(&self, grant: Grant, now: Instant) -> Option<Duration> {
        let has_begun_since = grant.epoch != self.backoff.epoch();
        self.backoff
            .remaining(now)
            .or(has_begun_since.then_some(Duration::ZERO))
    }

    fn acquire_normal(
        &mut self,
        kind: RequestKind,
        pace: &HostPace,
        now: Instant,
    ) -> PaceDecision<Grant> {
        let epoch = self.backoff.epoch();
        match self.limiter(kind).try_acquire(pace, now) {
            PaceDecision::Granted(id) => PaceDecision::Granted(Grant {
                id,
                epoch,
                role: GrantRole::Normal,
            }),
            PaceDecision::Wait(wait) => PaceDecision::Wait(wait),
        }
    }

    /// Admits a single request of either kind as the probe; another one follows only if this one ends
    /// without a result.
    fn acquire_probe(
        &mut self,
        kind: RequestKind,
        pace: &HostPace,
        now: Instant,
    ) -> PaceDecision<Grant> {
        if let Some((kind, id)) = self.probe
            && let Some(time) = self.limiter(kind).remaining(id, now)
        {
            return PaceDecision::Wait(PaceWait {
                duration: time,
                cause: WaitCause::Probe,
            });
        }
        // Requests that were in flight when the backoff began finish first.
        match self.acquire_normal(
            kind,
            &HostPace {
                concurrency: 1,
                ..*pace
            },
            now,
        ) {
            PaceDecision::Granted(grant) => {
                self.probe = Some((kind, grant.id));
                PaceDecision::Granted(Grant {
                    role: GrantRole::Probe,
                    ..grant
                })
            }
            PaceDecision::Wait(wait) => PaceDecision::Wait(wait),
        }
    }

    /// Ends the probe if this grant is the probe.
    fn end_probe(&mut self, kind: RequestKind, grant: Grant) {
        if self.probe == Some((kind, grant.id)) {
            self.probe = None;
        }
    }

    /// Records the latency, measured from the moment the request head was sent.
    fn record_latency(
        &mut self,
        kind: RequestKind,
        grant: Grant,
        class: ResponseClass,
        now: Instant,
    ) {
        let sent_at = self.limiter(kind).sent_at(grant.id);
        let latency = sent_at.map(|sent_at| now.saturating_duration_since(sent_at));
        match (class, latency) {
            (ResponseClass::Ok, Some(latency)) => self.latency.record_success(latency),
            (ResponseClass::Other | ResponseClass::Forbidden, Some(latency)) => {
                self.latency.record_other_response(latency)
            }
            (ResponseClass::Ok | ResponseClass::Other | ResponseClass::Forbidden, None) => {}
            // Failures of requests that were in flight when a backoff began count once.
            (ResponseClass::Error | ResponseClass::Overloaded(_), _)
                if grant.epoch != self.backoff.epoch() => {}
            (ResponseClass::Error | ResponseClass::Overloaded(_), _) => {
                self.latency.record_failure()
            }
        }
    }

    fn update_backoff(&mut self, grant: Grant, class: ResponseClass, now: Instant) {
        let draw = self.next_random();
        match class {
            ResponseClass::Ok | ResponseClass::Other | ResponseClass::Forbidden => {
                self.backoff.record_success(grant.epoch, now)
            }
            ResponseClass::Error => self.backoff.record_failure(grant.epoch, draw, now),
            ResponseClass::Overloaded(requested) => {
                self.backoff
                    .record_complaint(requested, grant.epoch, draw, now)
            }
        }
    }

    fn check_for_ban(
        &mut self,
        class: ResponseClass,
        challenge: Challenge,
        now: Instant,
    ) -> BanSuspicion {
        if challenge == Challenge::Present {
            return self.bans.record_challenge(now);
        }
        match class {
            ResponseClass::Forbidden => return self.bans.record_forbidden(now),
            ResponseClass::Ok | ResponseClass::Other => self.bans.record_success(),
            ResponseClass::Error | ResponseClass::Overloaded(_) => self.bans.record_response(),
        }
        BanSuspicion::None
    }

    fn record_failure(&mut self, epoch: BackoffEpoch, now: Instant) {
        if epoch == self.backoff.epoch() {
            self.latency.record_failure();
        }
        let draw = self.next_random();
        self.backoff.record_failure(epoch, draw, now);
    }

    fn limiter(&mut self, kind: RequestKind) -> &mut HostLimiter {
        match kind {
            RequestKind::Navigation => &mut self.navigations,
            RequestKind::Embed => &mut self.embeds,
        }
    }

    /// Returns a number from 0 to 1. Xorshift will do: nothing depends on its being unpredictable.
    fn next_random(&mut self) -> f32 {
        self.rng_state ^= self.rng_state << 13;
        self.rng_state ^= self.rng_state >> 7;
        self.rng_state ^= self.rng_state << 17;
        (self.rng_state >> 40) as f32 / (1 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_host_takes_little_memory() {
        // Excluding its name, its slot in the table and, for a host that forbids pages, 200 bytes.
        assert!(size_of::<HostEntry>() <= 728, "{}", size_of::<HostEntry>());
    }
}
