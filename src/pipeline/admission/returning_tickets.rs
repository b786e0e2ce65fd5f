//! The places of refused requests: a crawler that sends a request for the same URL again within ten minutes keeps its
//! place.

use std::time::Instant;

use crate::model::crawler::Crawler;
use crate::pacing::queue::QueueTicket;

use super::recent_map::{RecentKey, RecentMap};

/// The tickets of refused requests, by crawler and URL. Two with the same hash swap places.
#[derive(Debug, Default)]
pub(super) struct ReturningTickets(RecentMap<QueueTicket>);

impl ReturningTickets {
    /// Stores the ticket of a refused request.
    pub(super) fn insert(&self, crawler: &Crawler, url: &str, ticket: QueueTicket, now: Instant) {
        self.0.insert(self.key(crawler, url), ticket, now);
    }

    /// Returns the ticket of a request that is sent again.
    pub(super) fn take(&self, crawler: &Crawler, url: &str, now: Instant) -> Option<QueueTicket> {
        self.0.take(self.key(crawler, url), now)
    }

    fn key(&self, crawler: &Crawler, url: &str) -> RecentKey {
        self.0.key((crawler.as_str(), url))
    }
}
