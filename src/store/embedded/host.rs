//! What is kept of one host, address or domain: a lane for each class, and what the origin has asked for.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::politeness::backoff::Backoff;
use crate::politeness::lane::{Lane, LeaseId, Use};
use crate::politeness::pace::{Class, Pace, Turn, Wait, Why};
use crate::store::shards::lock;
use crate::store::{Census, Outcome};

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
    chance: u64,
}

impl Host {
    pub(super) fn new(name: Arc<str>) -> Self {
        let chance = RandomState::new().hash_one(0) | 1;
        let (navigations, embeds, backoff) = (Lane::default(), Lane::default(), Backoff::default());
        Self { name, state: Mutex::new(State { navigations, embeds, backoff, chance }) }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn ask(&self, class: Class, pace: &Pace, now: Instant) -> Turn<LeaseId> {
        let mut state = lock(&self.state);
        if let Some(time) = state.backoff.left(now) {
            return Turn::Wait(Wait { time, why: Why::Backoff });
        }
        if state.backoff.is_on_trial(now) {
            return state.lane(class).ask(&Pace { concurrency: 1, ..*pace }, now);
        }
        state.lane(class).ask(pace, now)
    }

    pub(super) fn sent(&self, class: Class, id: LeaseId, now: Instant) {
        let mut state = lock(&self.state);
        let draw = state.draw();
        state.lane(class).sent(id, draw, now);
    }

    pub(super) fn release(&self, class: Class, id: LeaseId, outcome: Outcome, now: Instant) {
        let mut state = lock(&self.state);
        let used = match outcome {
            Outcome::Unused => Use::Unused,
            Outcome::Failed | Outcome::Answered => Use::Used,
        };
        state.lane(class).release(id, used, now);
        if outcome == Outcome::Answered {
            state.backoff.answered(now);
        }
    }

    pub(super) fn complained(&self, told: Option<Duration>, now: Instant) {
        let mut state = lock(&self.state);
        let draw = state.draw();
        state.backoff.complained(told, draw, now);
    }

    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let state = lock(&self.state);
        state.navigations.is_idle(now) && state.embeds.is_idle(now) && state.backoff.is_idle(now)
    }

    pub(super) fn count(&self, census: &mut Census, now: Instant) {
        let state = lock(&self.state);
        census.leases += state.navigations.leases(now) + state.embeds.leases(now);
        census.resting += usize::from(state.backoff.left(now).is_some());
    }
}

impl State {
    fn lane(&mut self, class: Class) -> &mut Lane {
        match class {
            Class::Navigation => &mut self.navigations,
            Class::Embed => &mut self.embeds,
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
