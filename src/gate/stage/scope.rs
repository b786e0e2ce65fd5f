//! Scope: the policy at the request stage, and `/robots.txt`, which is never refused like a page.

use std::sync::Arc;

use crate::gate::judged::{Asked, Judged};
use crate::gate::shadow::Beside;
use crate::gate::snapshot::Snapshot;
use crate::policy::fact::Facts;

/// Judges a request by its URL, method and crawler.
pub(in crate::gate) fn judge<C>(asked: Asked, snapshot: Arc<Snapshot<C>>) -> Judged<C> {
    let (trail, decision) = snapshot.policy.request(&asked.facts());
    let beside = Beside::of_request(&asked, &snapshot);
    Judged { asked, snapshot, trail, decision, beside, found_in: None }
}

/// How a rejected request for `/robots.txt` is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gate) enum RobotsTxt {
    /// It was a request for something else.
    NotAsked,
    /// Every URL of the host is refused: it gets a file that says so, since crawlers take any 4xx for "all allowed".
    HostRefused,
    /// Other URLs of the host are admitted: the origin's file is passed on, since some crawlers drop a host whose
    /// file they cannot have.
    Exempt,
}

/// decisions.md section 5.
pub(in crate::gate) fn robots_txt<C>(judged: &Judged<C>) -> RobotsTxt {
    if !judged.asked.reads_robots_txt() {
        return RobotsTxt::NotAsked;
    }
    let host = judged.asked.target.host_target();
    let facts = Facts { crawler: judged.asked.crawler.as_str(), ..Facts::of_tunnel(&host) };
    let (_, decision) = judged.policy().decide(&facts);
    if decision.rejects() { RobotsTxt::HostRefused } else { RobotsTxt::Exempt }
}
