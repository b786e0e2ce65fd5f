//! Where origins have redirected to within the last ten minutes: the class `redir` of the queue.
//!
//! For the class it does not matter who was redirected. A URL that shares a number with such a one by chance only waits
//! in a higher class than its own, or counts as less deep.

use std::time::Instant;

use crate::model::crawler::Crawler;
use crate::urls::target::UrlTarget;

use super::recent_map::RecentMap;

/// The targets of redirections, and for each crawler how deep what redirected it was.
#[derive(Debug, Default)]
pub(super) struct RecentRedirects {
    targets: RecentMap<()>,
    depths: RecentMap<u32>,
}

impl RecentRedirects {
    /// An answer has this URL as its Location.
    pub(super) fn record(&self, target: &UrlTarget, now: Instant) {
        self.targets
            .insert(self.targets.key(target.as_str()), (), now);
    }

    /// Whether one had.
    pub(super) fn contains(&self, target: &UrlTarget, now: Instant) -> bool {
        self.targets
            .get(self.targets.key(target.as_str()), now)
            .is_some()
    }

    /// The crawler got there from a URL of this depth.
    pub(super) fn record_depth(
        &self,
        crawler: &Crawler,
        target: &UrlTarget,
        depth: u32,
        now: Instant,
    ) {
        let thing = self.depths.key((crawler.as_str(), target.as_str()));
        let least = self
            .depths
            .get(thing, now)
            .map_or(depth, |before| before.min(depth));
        self.depths.insert(thing, least, now);
    }

    /// Whether no crawler was redirected to any URL, as far as is remembered: most often there is nothing to look for.
    pub(super) fn has_no_depths(&self) -> bool {
        self.depths.is_empty()
    }

    /// The least depth of those from which the crawler got there.
    pub(super) fn depth(&self, crawler: &Crawler, target: &UrlTarget, now: Instant) -> Option<u32> {
        self.depths
            .get(self.depths.key((crawler.as_str(), target.as_str())), now)
    }
}
