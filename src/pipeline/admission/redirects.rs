//! The redirects of the last ten minutes: the class `redir` of the queue.
//!
//! The class is the same for all crawlers. A URL whose hash collides with another one only waits in a higher class than
//! its own, or counts as less deep.

use std::time::Instant;

use crate::model::crawler::Crawler;
use crate::urls::target::UrlTarget;

use super::recent_map::RecentMap;

/// The targets of redirects, and for each crawler the depth of the URL that redirected it.
#[derive(Debug, Default)]
pub(super) struct RecentRedirects {
    targets: RecentMap<()>,
    depths: RecentMap<u32>,
}

impl RecentRedirects {
    /// Records that a response has this URL as its `Location`.
    pub(super) fn record(&self, target: &UrlTarget, now: Instant) {
        self.targets
            .insert(self.targets.key(target.as_str()), (), now);
    }

    /// Returns `true` if a response had this URL as its `Location`.
    pub(super) fn contains(&self, target: &UrlTarget, now: Instant) -> bool {
        self.targets
            .get(self.targets.key(target.as_str()), now)
            .is_some()
    }

    /// Records that a crawler was redirected to a URL from one of this depth.
    pub(super) fn record_depth(
        &self,
        crawler: &Crawler,
        target: &UrlTarget,
        depth: u32,
        now: Instant,
    ) {
        let key = self.depths.key((crawler.as_str(), target.as_str()));
        let depth = self
            .depths
            .get(key, now)
            .map_or(depth, |previous| previous.min(depth));
        self.depths.insert(key, depth, now);
    }

    /// Returns `true` if no depth is remembered, as is usual.
    pub(super) fn has_no_depths(&self) -> bool {
        self.depths.is_empty()
    }

    /// Returns the least depth from which the crawler was redirected to a URL.
    pub(super) fn depth(&self, crawler: &Crawler, target: &UrlTarget, now: Instant) -> Option<u32> {
        self.depths
            .get(self.depths.key((crawler.as_str(), target.as_str())), now)
    }
}
