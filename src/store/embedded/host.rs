//! What is kept of one host, address or domain: a lane for each kind, and what was learned from its answers.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::pacing::adaptive::OriginLatency;
use crate::pacing::backoff::{Backoff, BackoffEpoch, BackoffPhase};
use crate::pacing::ban::{BanDetector, BanSuspicion};
use crate::pacing::byte_debt::ByteDebt;
use crate::pacing::host_limiter::{HostLimiter, LeaseId, LeaseUse};
use crate::pacing::pace::{
    HostPace, PaceDecision, PaceWait, RequestKind, ResendDecision, WaitCause,
};
use crate::pacing::response_class::{Challenge, ResponseClass};
use crate::store::sharded_map::lock;
use crate::store::{HostSnapshot, LeaseOutcome, StoreStats};

/// For how long latency and signs of a ban are remembered behind the last request, beyond what a lane is.
const LEARNED_RETENTION: Duration = Duration::from_secs(600);

/// One entry of the table.
#[derive(Debug)]
pub(super) struct HostEntry {
    name: Arc<str>,
    state: Mutex<HostEntryState>,
}

#[derive(Debug)]
struct HostEntryState {
    navigations: HostLimiter,
    embeds: HostLimiter,
    backoff: Backoff,
    /// The one request that went behind a rest, while nobody knows how it ends.
    probe: Option<(RequestKind, LeaseId)>,
    latency: OriginLatency,
    bans: BanDetector,
    debt: ByteDebt,
    rng_state: u64,
    /// The pace of the last page that was asked for, for who looks on.
    pace: Option<HostPace>,
}

/// What a request that goes is known by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    id: LeaseId,
    era: BackoffEpoch,
    role: GrantRole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrantRole {
    Normal,
    Probe,
}

impl Grant {
    pub(super) fn is_probe(self) -> bool {
        self.role == GrantRole::Probe
    }
}

impl HostEntry {
    /// `seed` is where its jitter begins.
    pub(super) fn new(name: Arc<str>, seed: u64) -> Self {
        Self {
            name,
            state: Mutex::new(HostEntryState::new(seed)),
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn admit(
        &self,
        kind: RequestKind,
        pace: &HostPace,
        now: Instant,
    ) -> PaceDecision<Grant> {
        let mut state = lock(&self.state);
        if kind == RequestKind::Navigation || state.pace.is_none() {
            state.pace = Some(*pace);
        }
        let Some(adaptive) = pace.adaptive else {
            return state.admit(kind, pace, now);
        };
        let delay = state.latency.delay(adaptive).max(pace.delay);
        state.admit(kind, &HostPace { delay, ..*pace }, now)
    }

    pub(super) fn record_sent(&self, kind: RequestKind, grant: Grant, now: Instant) {
        let mut state = lock(&self.state);
        let draw = state.next_random();
        state.lane(kind).record_sent(grant.id, draw, now);
    }

    pub(super) fn retry_permit(
        &self,
        kind: RequestKind,
        grant: Grant,
        now: Instant,
    ) -> ResendDecision {
        let mut state = lock(&self.state);
        match state.backoff_remaining(grant, now) {
            Some(_) => ResendDecision::Never,
            None => state.lane(kind).try_resend(grant.id, now),
        }
    }

    pub(super) fn backoff_remaining(&self, grant: Grant, now: Instant) -> Option<Duration> {
        lock(&self.state).backoff_remaining(grant, now)
    }

    pub(super) fn record_response(
        &self,
        kind: RequestKind,
        grant: Grant,
        (answer, challenge): (ResponseClass, Challenge),
        now: Instant,
    ) -> BanSuspicion {
        let mut state = lock(&self.state);
        if state.probe == Some((kind, grant.id)) {
            state.probe = None;
        }
        state.record_latency(kind, grant, answer, now);
        state.update_backoff(grant, answer, now);
        state.check_for_ban(answer, challenge, now)
    }

    pub(super) fn charge(&self, bytes: u64, per_second: NonZeroU64, now: Instant) {
        lock(&self.state).debt.charge(bytes, per_second, now);
    }

    pub(super) fn release(
        &self,
        kind: RequestKind,
        grant: Grant,
        outcome: LeaseOutcome,
        now: Instant,
    ) {
        let mut state = lock(&self.state);
        let used = match outcome {
            LeaseOutcome::Unused => LeaseUse::Unused,
            LeaseOutcome::Abandoned | LeaseOutcome::Failed | LeaseOutcome::Answered => {
                LeaseUse::Used
            }
        };
        state.lane(kind).release(grant.id, used, now);
        if state.probe == Some((kind, grant.id)) {
            state.probe = None;
        }
        match outcome {
            LeaseOutcome::Unused | LeaseOutcome::Abandoned => {}
            LeaseOutcome::Failed => state.record_failure(grant.era, now),
            LeaseOutcome::Answered => {
                state.backoff.record_success(grant.era, now);
                state.bans.record_success();
            }
        }
    }

    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let state = lock(&self.state);
        let learned = state.latency.is_known() || state.bans.has_history();
        let since = if learned {
            now.checked_sub(LEARNED_RETENTION).unwrap_or(now)
        } else {
            now
        };
        state.navigations.is_idle(since)
            && state.embeds.is_idle(since)
            && state.backoff.is_idle(now)
            && state.debt.is_idle(now)
    }

    pub(super) fn snapshot(&self, now: Instant) -> HostSnapshot {
        lock(&self.state).snapshot(now)
    }

    pub(super) fn add_to_stats(&self, stats: &mut StoreStats, now: Instant) {
        let state = lock(&self.state);
        stats.leases += state.navigations.active_leases(now) + state.embeds.active_leases(now);
        stats.backing_off += usize::from(state.backoff.remaining(now).is_some());
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
            pace: None,
        }
    }

    fn snapshot(&self, now: Instant) -> HostSnapshot {
        let (mut latency, pace) = (self.latency, self.pace.unwrap_or(HostPace::UNLIMITED));
        let learned = pace.adaptive.map(|adaptive| latency.delay(adaptive));
        let pace = HostPace {
            delay: pace.delay.max(learned.unwrap_or_default()),
            ..pace
        };
        let phase = self.backoff.phase(now);
        let rest = self
            .backoff
            .remaining(now)
            .map(|left| (left, self.backoff.cause()));
        let owed = pace.bytes_per_second.and_then(|_| self.debt.remaining(now));
        let concurrency = match phase {
            BackoffPhase::Free => pace.concurrency,
            BackoffPhase::OneByOne | BackoffPhase::Probe | BackoffPhase::Rest(_) => 1,
        };
        let turn = || {
            self.navigations
                .peek(
                    &HostPace {
                        concurrency,
                        ..pace
                    },
                    now,
                )
                .map(|wait| wait.duration)
        };
        HostSnapshot {
            pace: self.pace,
            delay: pace.delay,
            concurrency,
            until_next: rest
                .map(|(left, _)| left)
                .or(owed)
                .or_else(turn)
                .unwrap_or_default(),
            in_flight: self.navigations.active_leases(now) + self.embeds.active_leases(now),
            last_sent: self.navigations.last_sent().max(self.embeds.last_sent()),
            backoff: rest,
            failures: self.backoff.consecutive_failures(),
            backoff_count: self.backoff.strikes(),
            latency: self.latency.average(),
            byte_debt: owed,
        }
    }

    fn admit(&mut self, kind: RequestKind, pace: &HostPace, now: Instant) -> PaceDecision<Grant> {
        let phase = self.backoff.phase(now);
        if let BackoffPhase::Rest(time) = phase {
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
        match phase {
            BackoffPhase::OneByOne => self.admit_normal(
                kind,
                &HostPace {
                    concurrency: 1,
                    ..*pace
                },
                now,
            ),
            BackoffPhase::Probe => self.admit_probe(kind, pace, now),
            BackoffPhase::Free | BackoffPhase::Rest(_) => self.admit_normal(kind, pace, now),
        }
    }

    /// What was granted before a rest is not to be sent in it, nor beside the one that goes to see.
    fn backoff_remaining(&self, grant: Grant, now: Instant) -> Option<Duration> {
        let began_since = grant.era != self.backoff.epoch();
        self.backoff
            .remaining(now)
            .or(began_since.then_some(Duration::ZERO))
    }

    fn admit_normal(
        &mut self,
        kind: RequestKind,
        pace: &HostPace,
        now: Instant,
    ) -> PaceDecision<Grant> {
        let era = self.backoff.epoch();
        match self.lane(kind).try_acquire(pace, now) {
            PaceDecision::Go(id) => PaceDecision::Go(Grant {
                id,
                era,
                role: GrantRole::Normal,
            }),
            PaceDecision::Wait(wait) => PaceDecision::Wait(wait),
        }
    }

    /// One request of either kind; the next when that one has shown nothing.
    fn admit_probe(
        &mut self,
        kind: RequestKind,
        pace: &HostPace,
        now: Instant,
    ) -> PaceDecision<Grant> {
        if let Some((of, id)) = self.probe
            && let Some(time) = self.lane(of).remaining(id, now)
        {
            return PaceDecision::Wait(PaceWait {
                duration: time,
                cause: WaitCause::Probe,
            });
        }
        // What was under way when the rest began comes first, too.
        match self.admit_normal(
            kind,
            &HostPace {
                concurrency: 1,
                ..*pace
            },
            now,
        ) {
            PaceDecision::Go(grant) => {
                self.probe = Some((kind, grant.id));
                PaceDecision::Go(Grant {
                    role: GrantRole::Probe,
                    ..grant
                })
            }
            PaceDecision::Wait(wait) => PaceDecision::Wait(wait),
        }
    }

    /// Latency, counted from the moment the head was sent.
    fn record_latency(
        &mut self,
        kind: RequestKind,
        grant: Grant,
        answer: ResponseClass,
        now: Instant,
    ) {
        let took =
            |lane: &HostLimiter| Some(now.saturating_duration_since(lane.sent_at(grant.id)?));
        match (answer, took(self.lane(kind))) {
            (ResponseClass::Ok, Some(took)) => self.latency.record_success(took),
            (ResponseClass::Other | ResponseClass::Forbidden, Some(took)) => {
                self.latency.record_other_answer(took)
            }
            (ResponseClass::Ok | ResponseClass::Other | ResponseClass::Forbidden, None) => {}
            // Those that were under way when a rest began are one mishap.
            (ResponseClass::Error | ResponseClass::Rest(_), _)
                if grant.era != self.backoff.epoch() => {}
            (ResponseClass::Error | ResponseClass::Rest(_), _) => self.latency.record_failure(),
        }
    }

    fn update_backoff(&mut self, grant: Grant, answer: ResponseClass, now: Instant) {
        let draw = self.next_random();
        match answer {
            ResponseClass::Ok | ResponseClass::Other | ResponseClass::Forbidden => {
                self.backoff.record_success(grant.era, now)
            }
            ResponseClass::Error => self.backoff.record_failure(grant.era, draw, now),
            ResponseClass::Rest(told) => self.backoff.record_complaint(told, grant.era, draw, now),
        }
    }

    fn check_for_ban(
        &mut self,
        answer: ResponseClass,
        challenge: Challenge,
        now: Instant,
    ) -> BanSuspicion {
        if challenge == Challenge::Present {
            return self.bans.record_challenge(now);
        }
        match answer {
            ResponseClass::Forbidden => return self.bans.record_forbidden(now),
            ResponseClass::Ok | ResponseClass::Other => self.bans.record_success(),
            ResponseClass::Error | ResponseClass::Rest(_) => self.bans.record_answer(),
        }
        BanSuspicion::None
    }

    fn record_failure(&mut self, era: BackoffEpoch, now: Instant) {
        if era == self.backoff.epoch() {
            self.latency.record_failure();
        }
        let draw = self.next_random();
        self.backoff.record_failure(era, draw, now);
    }

    fn lane(&mut self, kind: RequestKind) -> &mut HostLimiter {
        match kind {
            RequestKind::Navigation => &mut self.navigations,
            RequestKind::Embed => &mut self.embeds,
        }
    }

    /// From 0 to 1; xorshift, since nothing depends on its being hard to guess.
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
    fn an_idle_host_takes_little_room() {
        // Beside its name, its place in the table and, of a host that forbids pages, 200 bytes.
        assert!(size_of::<HostEntry>() <= 688, "{}", size_of::<HostEntry>());
    }
}
