//! A manual clock for tests: it moves only when [`ManualClock::advance`] is called.

#![allow(
    clippy::disallowed_methods,
    reason = "the start of the clock is an arbitrary instant"
)]

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A clock whose time is constant until its [`ManualClock`] advances it.
pub(crate) struct Clock(Rc<Cell<Instant>>);

/// Advances the [`Clock`] it was created with.
pub(crate) struct ManualClock(Rc<Cell<Instant>>);

impl Clock {
    pub(crate) fn manual() -> (Self, ManualClock) {
        let now = Rc::new(Cell::new(Instant::now()));
        (Self(Rc::clone(&now)), ManualClock(now))
    }

    pub(crate) fn now(&self) -> Instant {
        self.0.get()
    }
}

impl ManualClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.set(self.0.get() + by);
    }
}
