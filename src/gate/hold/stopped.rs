//! The wait for the end of a stop: before the wait for the host's turn, and with the same patience.

use std::sync::Arc;
use std::time::Duration;

use crate::gate::stops::{Stops, Turned};
use crate::policy::options::politeness::Overflow;
use crate::politeness::stops::Covers;
use crate::vocab::crawler::Crawler;

use super::{Arrival, Hold};

/// A request that a stop may cover.
#[derive(Clone, Copy, Debug)]
pub(in crate::gate) struct Stoppable<'a> {
    /// What a stop may cover of it.
    pub(in crate::gate) covers: Covers<'a>,
    /// Who asks.
    pub(in crate::gate) crawler: &'a Crawler,
    /// What for: a URL, or the host of a tunnel.
    pub(in crate::gate) what: &'a str,
    /// Whether it waits at all.
    pub(in crate::gate) overflow: Overflow,
}

impl Hold {
    /// What an operator has stopped.
    pub fn stops(&self) -> &Arc<Stops> {
        &self.stops
    }

    /// Waits until no stop covers the request, as long as `patience` says, counted from its first arrival. One that is
    /// sent away and comes again stands where it stood.
    pub(in crate::gate) async fn outlast(
        &self,
        one: &Stoppable<'_>,
        arrival: &mut Option<Arrival>,
        patience: Duration,
    ) -> Result<(), Turned> {
        let Some(turned) = self.stops.covering(&one.covers) else {
            return Ok(());
        };
        if one.overflow == Overflow::Refuse {
            return Err(turned);
        }
        let now = self.clock.now();
        let who = self.returning.who(one.crawler, one.what);
        let arrival = *arrival.get_or_insert_with(|| self.arrival(who, now));
        let until = now.max(arrival.at + patience);
        let outlasted = self.stops.outlast(&one.covers, one.crawler, until).await;
        if outlasted.is_err() {
            self.returning.keep(who, arrival.ticket, self.clock.now());
        }
        outlasted
    }
}
