//! Who was sent away keeps its place: a crawler that asks again for a URL within ten minutes stands where it stood.

use std::time::Instant;

use crate::model::crawler::Crawler;
use crate::pacing::queue::QueueTicket;

use super::recent_map::{RecentKey, RecentMap};

/// The tickets of those who were sent away, by crawler and URL. Two that share a number by chance change places.
#[derive(Debug, Default)]
pub(super) struct ReturningTickets(RecentMap<QueueTicket>);

/// Who asks for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReturningTicketKey(RecentKey);

impl ReturningTickets {
    pub(super) fn key(&self, crawler: &Crawler, url: &str) -> ReturningTicketKey {
        ReturningTicketKey(self.0.key((crawler.as_str(), url)))
    }

    /// It is sent away.
    pub(super) fn insert(&self, key: ReturningTicketKey, ticket: QueueTicket, now: Instant) {
        self.0.insert(key.0, ticket, now);
    }

    /// It is here again: the ticket that it had.
    pub(super) fn take(&self, key: ReturningTicketKey, now: Instant) -> Option<QueueTicket> {
        self.0.take(key.0, now)
    }
}
