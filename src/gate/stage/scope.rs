//! Scope: the policy at the request stage, and `/robots.txt`, which is never refused like a page.

use std::sync::Arc;

use crate::clock::year;
use crate::gate::judged::{Asked, Judged};
use crate::gate::shadow::Beside;
use crate::gate::snapshot::Snapshot;
use crate::policy::fact::Facts;
use crate::vocab::target::UrlTarget;

use super::ledger::{self, Past};

/// Judges a request by its URL, method and crawler, and by what is remembered of it if the policy asks for that. Where the
/// policy fetches another URL in the place of one that it admits, that is judged in its turn, and not rewritten again
/// (policy.md section 5).
pub(in crate::gate) fn judge<C>(
    asked: Asked,
    snapshot: Arc<Snapshot<C>>,
    past: Past<'_>,
) -> Judged<C> {
    let year = snapshot.asks_year().then(|| year(past.hold.wall()));
    let judged = judge_one(asked.anew(year), snapshot, past);
    match rewritten(&judged) {
        Some(target) => {
            let asked = ledger::forgotten(judged.asked, judged.recalled);
            judge_one(asked.in_place(target), judged.snapshot, past)
        }
        None => judged,
    }
}

fn rewritten<C>(judged: &Judged<C>) -> Option<UrlTarget> {
    let policy = judged.policy();
    if !policy.rewrites() || judged.decision.rejects() || judged.asked.reads_robots_txt() {
        return None;
    }
    policy.rewritten(&judged.trail, &judged.asked.target)
}

fn judge_one<C>(asked: Asked, snapshot: Arc<Snapshot<C>>, past: Past<'_>) -> Judged<C> {
    let (trail, decision) = snapshot.policy.request(&asked.facts());
    let beside = Beside::of_request(&asked, &snapshot);
    let (usage, recalled, tags) = (Box::default(), None, None);
    let (found_in, fetched_in) = (None, None);
    let mut judged = Judged {
        asked,
        snapshot,
        trail,
        decision,
        beside,
        usage,
        recalled,
        tags,
        found_in,
        fetched_in,
    };
    if let Some(kept) = past.ledger
        && judged.snapshot.remembers
        && !judged.asked.reads_robots_txt()
    {
        ledger::recall(&mut judged, kept, past.hold);
    }
    judged
}

/// Judges a request again, of which more is known now.
pub(super) fn again<C>(judged: &mut Judged<C>) {
    (judged.trail, judged.decision) = judged.snapshot.policy.request(&judged.asked.facts());
    judged.beside = Beside::of_request(&judged.asked, &judged.snapshot);
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
    let facts = Facts {
        crawler: judged.asked.crawler.as_str(),
        ..Facts::of_tunnel(&host)
    };
    let (_, decision) = judged.policy().decide(&facts);
    if decision.rejects() {
        RobotsTxt::HostRefused
    } else {
        RobotsTxt::Exempt
    }
}
