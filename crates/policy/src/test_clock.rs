//! A manual clock for tests: it moves only when [`TestClockControl::advance`] is called.

#![allow(
    clippy::disallowed_methods,
    reason = "the start of the clock is an arbitrary instant"
)]

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A clock whose time is constant until its [`TestClockControl`] advances it.
pub(crate) struct TestClock(Rc<Cell<Instant>>);

/// Advances the [`TestClock`] it was created with.
pub(crate) struct TestClockControl(Rc<Cell<Instant>>);

impl TestClock {
    pub(crate) fn manual() -> (Self, TestClockControl) {
        let now = Rc::new(Cell::new(Instant::now()));
        (Self(Rc::clone(&now)), TestClockControl(now))
    }

    pub(crate) fn now(&self) -> Instant {
        self.0.get()
    }
}

impl TestClockControl {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.set(self.0.get() + by);
    }
}
