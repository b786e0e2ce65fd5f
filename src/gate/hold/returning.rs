//! Who was sent away keeps its place: a crawler that asks again for a URL within ten minutes stands where it stood.

use std::time::Instant;

use crate::politeness::order::Ticket;
use crate::vocab::crawler::Crawler;

use super::recent::{Recent, Thing};

/// The tickets of those who were sent away, by crawler and URL. Two that share a number by chance change places.
#[derive(Debug, Default)]
pub(super) struct Returning(Recent<Ticket>);

/// Who asks for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who(Thing);

impl Returning {
    pub(super) fn who(&self, crawler: &Crawler, url: &str) -> Who {
        Who(self.0.thing((crawler.as_str(), url)))
    }

    /// It is sent away.
    pub(super) fn keep(&self, who: Who, ticket: Ticket, now: Instant) {
        self.0.note(who.0, ticket, now);
    }

    /// It is here again: the ticket that it had.
    pub(super) fn take(&self, who: Who, now: Instant) -> Option<Ticket> {
        self.0.take(who.0, now)
    }
}
