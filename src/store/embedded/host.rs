//! What is kept of one host, address or domain: a lane for each kind, and what was learned from its answers.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::politeness::adaptive::Latency;
use crate::politeness::backoff::{Backoff, Era, Phase};
use crate::politeness::ban::{Bans, Suspicion};
use crate::politeness::bytes::Debt;
use crate::politeness::heard::{Answer, Challenge};
use crate::politeness::lane::{Lane, LeaseId, Use};
use crate::politeness::pace::{Again, Kind, Pace, Turn, Wait, Why};
use crate::store::shards::lock;
use crate::store::{Census, Outcome, Seen};

/// For how long latency and signs of a ban are remembered behind the last request, beyond what a lane is.
const LEARNED: Duration = Duration::from_secs(600);

/// One entry of the table.
#[derive(Debug)]
pub(super) struct Host {
    name: Arc<str>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    navigations: Lane,
    embeds: Lane,
    backoff: Backoff,
    /// The one request that went behind a rest, while nobody knows how it ends.
    probe: Option<(Kind, LeaseId)>,
    latency: Latency,
    bans: Bans,
    debt: Debt,
    chance: u64,
    /// The pace of the last page that was asked for, for who looks on.
    pace: Option<Pace>,
}

/// What a request that goes is known by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    id: LeaseId,
    era: Era,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Usual,
    Probe,
}

impl Grant {
    pub(super) fn is_probe(self) -> bool {
        self.role == Role::Probe
    }
}

impl Host {
    /// `seed` is where its jitter begins.
    pub(super) fn new(name: Arc<str>, seed: u64) -> Self {
        Self {
            name,
            state: Mutex::new(State::new(seed)),
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn ask(&self, kind: Kind, pace: &Pace, now: Instant) -> Turn<Grant> {
        let mut state = lock(&self.state);
        if kind == Kind::Navigation || state.pace.is_none() {
            state.pace = Some(*pace);
        }
        let Some(adaptive) = pace.adaptive else {
            return state.ask(kind, pace, now);
        };
        let delay = state.latency.delay(adaptive).max(pace.delay);
        state.ask(kind, &Pace { delay, ..*pace }, now)
    }

    pub(super) fn sent(&self, kind: Kind, grant: Grant, now: Instant) {
        let mut state = lock(&self.state);
        let draw = state.draw();
        state.lane(kind).sent(grant.id, draw, now);
    }

    pub(super) fn again(&self, kind: Kind, grant: Grant, now: Instant) -> Again {
        let mut state = lock(&self.state);
        match state.rests(grant, now) {
            Some(_) => Again::Never,
            None => state.lane(kind).again(grant.id, now),
        }
    }

    pub(super) fn rests(&self, grant: Grant, now: Instant) -> Option<Duration> {
        lock(&self.state).rests(grant, now)
    }

    pub(super) fn hear(
        &self,
        kind: Kind,
        grant: Grant,
        (answer, challenge): (Answer, Challenge),
        now: Instant,
    ) -> Suspicion {
        let mut state = lock(&self.state);
        if state.probe == Some((kind, grant.id)) {
            state.probe = None;
        }
        state.time(kind, grant, answer, now);
        state.judge(grant, answer, now);
        state.suspect(answer, challenge, now)
    }

    pub(super) fn charge(&self, bytes: u64, per_second: NonZeroU64, now: Instant) {
        lock(&self.state).debt.charge(bytes, per_second, now);
    }

    pub(super) fn release(&self, kind: Kind, grant: Grant, outcome: Outcome, now: Instant) {
        let mut state = lock(&self.state);
        let used = match outcome {
            Outcome::Unused => Use::Unused,
            Outcome::Abandoned | Outcome::Failed | Outcome::Answered => Use::Used,
        };
        state.lane(kind).release(grant.id, used, now);
        if state.probe == Some((kind, grant.id)) {
            state.probe = None;
        }
        match outcome {
            Outcome::Unused | Outcome::Abandoned => {}
            Outcome::Failed => state.failed(grant.era, now),
            Outcome::Answered => {
                state.backoff.answered(grant.era, now);
                state.bans.answered();
            }
        }
    }

    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let state = lock(&self.state);
        let learned = state.latency.is_known() || state.bans.is_known();
        let since = if learned {
            now.checked_sub(LEARNED).unwrap_or(now)
        } else {
            now
        };
        state.navigations.is_idle(since)
            && state.embeds.is_idle(since)
            && state.backoff.is_idle(now)
            && state.debt.is_idle(now)
    }

    pub(super) fn seen(&self, now: Instant) -> Seen {
        lock(&self.state).seen(now)
    }

    pub(super) fn count(&self, census: &mut Census, now: Instant) {
        let state = lock(&self.state);
        census.leases += state.navigations.leases(now) + state.embeds.leases(now);
        census.resting += usize::from(state.backoff.left(now).is_some());
    }
}

impl State {
    fn new(seed: u64) -> Self {
        Self {
            navigations: Lane::default(),
            embeds: Lane::default(),
            backoff: Backoff::default(),
            probe: None,
            latency: Latency::default(),
            bans: Bans::default(),
            debt: Debt::default(),
            // Xorshift stays at zero.
            chance: seed | 1,
            pace: None,
        }
    }

    fn seen(&self, now: Instant) -> Seen {
        let (mut latency, pace) = (self.latency, self.pace.unwrap_or(Pace::FREE));
        let learned = pace.adaptive.map(|adaptive| latency.delay(adaptive));
        let pace = Pace {
            delay: pace.delay.max(learned.unwrap_or_default()),
            ..pace
        };
        let phase = self.backoff.phase(now);
        let rest = self
            .backoff
            .left(now)
            .map(|left| (left, self.backoff.cause()));
        let owed = pace.bytes.and_then(|_| self.debt.left(now));
        let concurrency = match phase {
            Phase::Free => pace.concurrency,
            Phase::OneByOne | Phase::Probe | Phase::Rest(_) => 1,
        };
        let turn = || {
            self.navigations
                .peek(
                    &Pace {
                        concurrency,
                        ..pace
                    },
                    now,
                )
                .map(|wait| wait.time)
        };
        Seen {
            pace: self.pace,
            delay: pace.delay,
            concurrency,
            next: rest
                .map(|(left, _)| left)
                .or(owed)
                .or_else(turn)
                .unwrap_or_default(),
            under_way: self.navigations.leases(now) + self.embeds.leases(now),
            last: self.navigations.last().max(self.embeds.last()),
            rest,
            failures: self.backoff.row(),
            rests: self.backoff.strikes(),
            latency: self.latency.average(),
            owed,
        }
    }

    fn ask(&mut self, kind: Kind, pace: &Pace, now: Instant) -> Turn<Grant> {
        let phase = self.backoff.phase(now);
        if let Phase::Rest(time) = phase {
            return Turn::Wait(Wait {
                time,
                why: Why::Backoff,
            });
        }
        if let Some(time) = pace.bytes.and_then(|_| self.debt.left(now)) {
            return Turn::Wait(Wait {
                time,
                why: Why::Time,
            });
        }
        match phase {
            Phase::OneByOne => self.usual(
                kind,
                &Pace {
                    concurrency: 1,
                    ..*pace
                },
                now,
            ),
            Phase::Probe => self.probe(kind, pace, now),
            Phase::Free | Phase::Rest(_) => self.usual(kind, pace, now),
        }
    }

    /// What was granted before a rest is not to be sent in it, nor beside the one that goes to see.
    fn rests(&self, grant: Grant, now: Instant) -> Option<Duration> {
        let began_since = grant.era != self.backoff.era();
        self.backoff
            .left(now)
            .or(began_since.then_some(Duration::ZERO))
    }

    fn usual(&mut self, kind: Kind, pace: &Pace, now: Instant) -> Turn<Grant> {
        let era = self.backoff.era();
        match self.lane(kind).ask(pace, now) {
            Turn::Go(id) => Turn::Go(Grant {
                id,
                era,
                role: Role::Usual,
            }),
            Turn::Wait(wait) => Turn::Wait(wait),
        }
    }

    /// One request of either kind; the next when that one has shown nothing.
    fn probe(&mut self, kind: Kind, pace: &Pace, now: Instant) -> Turn<Grant> {
        if let Some((of, id)) = self.probe
            && let Some(time) = self.lane(of).left(id, now)
        {
            return Turn::Wait(Wait {
                time,
                why: Why::Probe,
            });
        }
        // What was under way when the rest began comes first, too.
        match self.usual(
            kind,
            &Pace {
                concurrency: 1,
                ..*pace
            },
            now,
        ) {
            Turn::Go(grant) => {
                self.probe = Some((kind, grant.id));
                Turn::Go(Grant {
                    role: Role::Probe,
                    ..grant
                })
            }
            Turn::Wait(wait) => Turn::Wait(wait),
        }
    }

    /// Latency, counted from the moment the head was sent.
    fn time(&mut self, kind: Kind, grant: Grant, answer: Answer, now: Instant) {
        let took = |lane: &Lane| Some(now.saturating_duration_since(lane.sent_at(grant.id)?));
        match (answer, took(self.lane(kind))) {
            (Answer::Ok, Some(took)) => self.latency.answered(took),
            (Answer::Other | Answer::Forbidden, Some(took)) => self.latency.rose(took),
            (Answer::Ok | Answer::Other | Answer::Forbidden, None) => {}
            // Those that were under way when a rest began are one mishap.
            (Answer::Error | Answer::Rest(_), _) if grant.era != self.backoff.era() => {}
            (Answer::Error | Answer::Rest(_), _) => self.latency.suffered(),
        }
    }

    fn judge(&mut self, grant: Grant, answer: Answer, now: Instant) {
        let draw = self.draw();
        match answer {
            Answer::Ok | Answer::Other | Answer::Forbidden => self.backoff.answered(grant.era, now),
            Answer::Error => self.backoff.failed(grant.era, draw, now),
            Answer::Rest(told) => self.backoff.complained(told, grant.era, draw, now),
        }
    }

    fn suspect(&mut self, answer: Answer, challenge: Challenge, now: Instant) -> Suspicion {
        if challenge == Challenge::Made {
            return self.bans.challenged(now);
        }
        match answer {
            Answer::Forbidden => return self.bans.forbade(now),
            Answer::Ok | Answer::Other => self.bans.answered(),
            Answer::Error | Answer::Rest(_) => self.bans.passed(),
        }
        Suspicion::None
    }

    fn failed(&mut self, era: Era, now: Instant) {
        if era == self.backoff.era() {
            self.latency.suffered();
        }
        let draw = self.draw();
        self.backoff.failed(era, draw, now);
    }

    fn lane(&mut self, kind: Kind) -> &mut Lane {
        match kind {
            Kind::Navigation => &mut self.navigations,
            Kind::Embed => &mut self.embeds,
        }
    }

    /// From 0 to 1; xorshift, since nothing depends on its being hard to guess.
    fn draw(&mut self) -> f32 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance >> 40) as f32 / (1 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_host_takes_little_room() {
        // Beside its name, its place in the table and, of a host that forbids pages, 200 bytes.
        assert!(size_of::<Host>() <= 688, "{}", size_of::<Host>());
    }
}
