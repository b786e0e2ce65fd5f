//! Robots: what the host's robots.txt says to the crawler, whether the crawler has read it or not.
//!
//! One look-up a request; only the first one for a host, or the first behind the end of its freshness, waits for a
//! fetch. What a robots.txt and a failed fetch mean is in `crate::robots`; here it meets the option `robots`.

use std::sync::Arc;
use std::time::Duration;

use crate::gate::hold::Hold;
use crate::gate::judged::Judged;
use crate::gate::refusal::Refusal;
use crate::gate::robots::{Errand, RobotsFiles};
use crate::policy::options::robots::{OnUnreachable, RobotsOption};
use crate::robots::agent::product_token;
use crate::robots::standing::{Ending, Known, Standing};
use crate::robots::{Access, Ruling};
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

use super::pace;

/// The crawler's name towards origins if neither the policy nor its `User-Agent` has one.
const NAMELESS: &str = "crawlgate";
/// A failure that was none of the origin's: the next request may try again.
const SOON: Duration = Duration::from_secs(1);

/// What becomes of a request that robots.txt does not refuse.
#[derive(Debug)]
pub(in crate::gate) enum Ruled {
    /// It goes on; with the Crawl-delay of its group, no longer than the policy's cap.
    Go(Option<Duration>),
    /// It asks for the robots.txt, and gets what the proxy knows.
    Serve(Arc<Known>),
}

/// Asks the host's robots.txt.
pub(in crate::gate) async fn judge<C, R: RobotsFiles>(
    judged: &Judged<C>,
    robots: &R,
    hold: &Arc<Hold>,
) -> Result<Ruled, Box<Refusal>> {
    let option = RobotsOption::of(judged.policy(), &judged.trail);
    if !option.obeys() {
        return Ok(Ruled::Go(None));
    }
    let target = &judged.asked.target;
    let agent = agent(&option, judged);
    let known = match robots.known(target, judged.verify()) {
        Some(known) => known,
        None => Box::pin(robots.fetch(target, errand(judged, agent, hold))).await,
    };
    let standing = in_force(&known, option.on_unreachable());
    let refusal = |refusal: Refusal| Box::new(Refusal { keep: judged.keep(Stage::Robots), ..refusal });
    if judged.asked.reads_robots_txt() {
        return match standing {
            InForce::Unknown | InForce::Unasked => Err(refusal(failure(&known))),
            InForce::Known(_) => Ok(Ruled::Serve(known)),
        };
    }
    match standing {
        InForce::Unasked => Ok(Ruled::Go(None)),
        InForce::Unknown => Err(refusal(unreachable(&known))),
        InForce::Known(known) => ruled(known, agent, target.path_and_query(), &option).map_err(refusal),
    }
}

/// What holds for a request.
enum InForce<'a> {
    /// This, the newest or an older one.
    Known(&'a Known),
    /// Nothing is known.
    Unknown,
    /// Nothing is known, and the policy does not mind.
    Unasked,
}

fn in_force(known: &Known, on_unreachable: OnUnreachable) -> InForce<'_> {
    match (&known.standing, on_unreachable) {
        (Standing::Rules(_) | Standing::AllowAll, _) => InForce::Known(known),
        (Standing::Unknown, OnUnreachable::Allow) => InForce::Unasked,
        (Standing::Unknown, OnUnreachable::Deny) => InForce::Unknown,
        (Standing::Unknown, OnUnreachable::StaleThenDeny) => {
            known.stale().map_or(InForce::Unknown, InForce::Known)
        }
    }
}

fn ruled(known: &Known, agent: &str, url: &str, option: &RobotsOption<'_>) -> Result<Ruled, Refusal> {
    let Some(rules) = known.rules() else { return Ok(Ruled::Go(None)) };
    let ruling = rules.ruling(agent, url);
    match ruling.access {
        Access::Disallow => Err(disallowed(&ruling)),
        Access::Allow => {
            let delay = rules.crawl_delay(agent).map(|delay| delay.min(option.crawl_delay_cap()));
            Ok(Ruled::Go(delay))
        }
    }
}

/// The crawler's product token: the policy's, else the first of its `User-Agent`.
fn agent<'a, C>(option: &RobotsOption<'a>, judged: &'a Judged<C>) -> &'a str {
    let given = option.agent().map(product_token).filter(|token| !token.is_empty());
    let own = || Some(judged.asked.product_token()).filter(|token| !token.is_empty());
    given.or_else(own).unwrap_or(NAMELESS)
}

fn errand<C>(judged: &Judged<C>, agent: &str, hold: &Arc<Hold>) -> Errand {
    let (key, pace) = pace::of_pages(judged);
    let crawler = judged.asked.crawler.clone();
    Errand { agent: agent.into(), crawler, key, pace, hold: Arc::clone(hold), verify: judged.verify() }
}

fn disallowed(ruling: &Ruling<'_>) -> Refusal {
    let refusal = Refusal::new(Reason::RobotsTxt, Stage::Robots);
    let Some(cause) = &ruling.cause else { return refusal };
    let group = ruling.group.as_deref().unwrap_or_default();
    let detail = format!("line {} of the host's robots.txt, for {group:?}, is {:?}", cause.line, cause.rule);
    Refusal { robots_line: Some(cause.line), ..refusal.with_detail(detail) }
}

/// The file cannot be had, so nothing may be fetched; a host that refuses connections, or that TLS fails with, says so
/// itself.
fn unreachable(known: &Known) -> Refusal {
    if known.ending == Ending::Refused {
        return Refusal::new(Reason::UpstreamConnect, Stage::Robots);
    }
    if let Some(fault) = known.fault {
        return Refusal::new(Reason::UpstreamTls, Stage::Robots).with_fault(fault);
    }
    let retry_after = Some(known.holds_for.max(SOON));
    let why = format!("the host's robots.txt cannot be had: {}", known.ending.as_str());
    Refusal { retry_after, ..Refusal::new(Reason::RobotsUnreachable, Stage::Robots).with_detail(why) }
}

/// The answer to a crawler that asks for a file which cannot be had: the origin's failure (decisions.md section 5).
fn failure(known: &Known) -> Refusal {
    match known.ending {
        Ending::Timeout => Refusal::new(Reason::UpstreamTimeout, Stage::Robots),
        Ending::Broken | Ending::Coding => Refusal::new(Reason::UpstreamProtocol, Stage::Robots),
        Ending::Dns => Refusal::new(Reason::UpstreamDns, Stage::Robots),
        Ending::Refused
        | Ending::File
        | Ending::Page
        | Ending::Absent
        | Ending::Limited
        | Ending::ServerError
        | Ending::OddStatus
        | Ending::Redirects
        | Ending::Elsewhere
        | Ending::Prohibited
        | Ending::Tls
        | Ending::Held => unreachable(known),
    }
}
