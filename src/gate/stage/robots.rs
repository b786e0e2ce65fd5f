//! Robots: what the host's robots.txt says to the crawler, whether the crawler has read it or not.
//!
//! One look-up a request; only the first ones for a host wait for a fetch. Behind the end of its freshness a file holds on
//! for a while, as long as a newer one is fetched. What a robots.txt and a failed fetch mean is in `crate::robots`; here it meets the option `robots`.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Lapse;
use crate::gate::hold::Hold;
use crate::gate::judged::{Asked, Judged};
use crate::gate::refusal::Refusal;
use crate::gate::robots::{Errand, Found, RobotsFiles};
use crate::gate::schedules::since_1970;
use crate::policy::options::politeness::Politeness;
use crate::policy::options::robots::{OnUnreachable, RobotsOption};
use crate::politeness::pace::Kind;
use crate::robots::agent::product_token;
use crate::robots::ending::Ending;
use crate::robots::standing::{Known, Standing};
use crate::robots::{Access, Ruling};
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

use super::pace::Pacing;
use super::usage::Said;
use super::{pace, usage};

/// The crawler's name towards origins if neither the policy nor its `User-Agent` has one.
const NAMELESS: &str = "crawlgate";
/// A failure that was none of the origin's: the next request may try again.
const SOON: Duration = Duration::from_secs(1);

/// What becomes of a request that robots.txt does not refuse.
#[derive(Debug)]
pub(in crate::gate) enum Ruled {
    /// It goes on.
    Go(Going),
    /// It asks for the robots.txt, and gets what the proxy knows.
    Serve(Arc<Known>),
}

/// How a request goes on.
#[derive(Debug, Default)]
pub(in crate::gate) struct Going {
    /// The time between requests that its group asks for, by Crawl-delay or Request-rate, no longer than the policy's cap.
    pub(in crate::gate) spacing: Option<Duration>,
    /// What is known that it goes by; nothing if the policy does not ask.
    by: Option<Arc<Known>>,
}

impl Going {
    /// Whether something newer is known by now: a request that had to wait is judged by that.
    pub(in crate::gate) fn is_outdated<C, R: RobotsFiles>(
        &self,
        judged: &Judged<C>,
        robots: &R,
    ) -> bool {
        let Some(by) = &self.by else { return false };
        match robots.known(&judged.asked.target, judged.verify()) {
            Some(Found::Fresh(known) | Found::Past(known)) => known.is_newer_than(by),
            None => false,
        }
    }
}

/// Asks the host's robots.txt.
pub(in crate::gate) async fn judge<C, R: RobotsFiles>(
    judged: &mut Judged<C>,
    robots: &R,
    hold: &Arc<Hold>,
) -> Result<Ruled, Box<Refusal>> {
    let mut heard = Heard::default();
    let ruled = ask(judged, robots, hold, &mut heard).await;
    judged.usage = heard.usage.into();
    judged.fetched_in = heard.fetched_in.or(judged.fetched_in);
    ruled
}

/// What comes of asking, beside the ruling.
#[derive(Default)]
struct Heard {
    usage: Vec<Said>,
    fetched_in: Option<Lapse>,
}

async fn ask<C, R: RobotsFiles>(
    judged: &Judged<C>,
    robots: &R,
    hold: &Arc<Hold>,
    heard: &mut Heard,
) -> Result<Ruled, Box<Refusal>> {
    let option = RobotsOption::of(judged.policy(), &judged.trail);
    if !option.obeys() {
        return Ok(Ruled::Go(Going::default()));
    }
    let target = &judged.asked.target;
    let agent = agent(option.agent(), &judged.asked);
    let (verify, minds) = (judged.verify(), option.on_unreachable());
    let known = match robots.known(target, verify) {
        Some(Found::Fresh(known)) => known,
        Some(Found::Past(known)) if matches!(in_force(&known, minds), InForce::Known(_)) => {
            robots.renew(target, verify, || {
                renewal(judged, agent, hold, in_force(&known, minds))
            });
            known
        }
        Some(Found::Past(_)) | None => {
            let began = hold.now();
            let known = Box::pin(robots.fetch(target, errand(judged, agent, hold, None))).await;
            heard.fetched_in = Some(Lapse::between(began, hold.now()));
            known
        }
    };
    let standing = in_force(&known, minds);
    let refusal = |refusal: Refusal| {
        Box::new(Refusal {
            keep: judged.keep(Stage::Robots),
            ..refusal
        })
    };
    if judged.asked.reads_robots_txt() {
        return match standing {
            InForce::Unknown | InForce::Unasked => Err(refusal(failure(&known))),
            InForce::Known(_) => Ok(Ruled::Serve(known)),
        };
    }
    match standing {
        InForce::Unasked => Ok(Ruled::Go(Going {
            spacing: None,
            by: Some(known),
        })),
        InForce::Unknown => Err(refusal(unreachable(&known))),
        InForce::Known(holding) => {
            ruled(holding, agent, target.path_and_query()).map_err(refusal)?;
            let stated = usage::stated(judged, holding, agent);
            usage::obey(&option, &stated).map_err(refusal)?;
            heard.usage = stated.into_iter().map(Said::from).collect();
            let spacing = spacing(holding, agent, judged, hold);
            Ok(Ruled::Go(Going {
                spacing,
                by: Some(known),
            }))
        }
    }
}

/// Whether a request would have to wait for a fetch.
pub(in crate::gate) fn must_fetch<C, R: RobotsFiles>(judged: &Judged<C>, robots: &R) -> bool {
    let option = RobotsOption::of(judged.policy(), &judged.trail);
    option.obeys()
        && match robots.known(&judged.asked.target, judged.verify()) {
            Some(Found::Fresh(_)) => false,
            Some(Found::Past(known)) => {
                !matches!(in_force(&known, option.on_unreachable()), InForce::Known(_))
            }
            None => true,
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

fn ruled(known: &Known, agent: &str, url: &str) -> Result<(), Refusal> {
    let Some(rules) = known.rules() else {
        return Ok(());
    };
    let ruling = rules.ruling(agent, url);
    match ruling.access {
        Access::Disallow => Err(disallowed(&ruling)),
        Access::Allow => Ok(()),
    }
}

/// The least time between requests that the file asks for, no longer than the policy's cap. It is for pages, so only pages
/// are counted where the cap shortens it.
fn spacing<C>(known: &Known, agent: &str, judged: &Judged<C>, hold: &Hold) -> Option<Duration> {
    let asked = asked_for(known, agent, judged, hold)?;
    let spacing = capped(asked, judged);
    if spacing < asked && pace::kind(&judged.asked) == Kind::Navigation {
        hold.delay_is_capped();
    }
    Some(spacing)
}

/// By Crawl-delay or by Request-rate, whichever is longer.
fn asked_for<C>(known: &Known, agent: &str, judged: &Judged<C>, hold: &Hold) -> Option<Duration> {
    let rules = known.rules()?;
    let obeys = |_: &Duration| Politeness::of(judged.policy(), &judged.trail).obeys_request_rate();
    let by_rate = rules
        .request_rate(agent, || since_1970(hold.wall()))
        .filter(obeys);
    rules.crawl_delay(agent).max(by_rate)
}

fn capped<C>(asked: Duration, judged: &Judged<C>) -> Duration {
    asked.min(RobotsOption::of(judged.policy(), &judged.trail).crawl_delay_cap())
}

/// The crawler's product token: the policy's, else the first of its `User-Agent`.
pub(super) fn agent<'a>(option: Option<&'a str>, asked: &'a Asked) -> &'a str {
    let given = option.map(product_token).filter(|token| !token.is_empty());
    let own = || Some(asked.product_token()).filter(|token| !token.is_empty());
    given.or_else(own).unwrap_or(NAMELESS)
}

/// What the file in force asks for is for the proxy's own requests too.
fn renewal<C>(judged: &Judged<C>, agent: &str, hold: &Arc<Hold>, standing: InForce<'_>) -> Errand {
    let spacing = match standing {
        InForce::Known(known) => {
            asked_for(known, agent, judged, hold).map(|asked| capped(asked, judged))
        }
        InForce::Unknown | InForce::Unasked => None,
    };
    errand(judged, agent, hold, spacing)
}

fn errand<C>(
    judged: &Judged<C>,
    agent: &str,
    hold: &Arc<Hold>,
    spacing: Option<Duration>,
) -> Errand {
    let ((pacing, order), crawler) = (
        pace::of_pages(judged, hold, spacing),
        judged.asked.crawler.clone(),
    );
    let Pacing {
        key,
        pace,
        per_address,
    } = pacing;
    Errand {
        agent: agent.into(),
        crawler,
        key,
        pace,
        per_address,
        order,
        hold: Arc::clone(hold),
        verify: judged.verify(),
    }
}

fn disallowed(ruling: &Ruling<'_>) -> Refusal {
    let refusal = Refusal::new(Reason::RobotsTxt, Stage::Robots);
    let Some(cause) = &ruling.cause else {
        return refusal;
    };
    let group = ruling.group.as_deref().unwrap_or_default();
    let detail = format!(
        "line {} of the host's robots.txt, for {group:?}, is {:?}",
        cause.line, cause.rule
    );
    Refusal {
        robots_line: Some(cause.line),
        ..refusal.with_detail(detail)
    }
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
    let why = format!(
        "the host's robots.txt cannot be had: {}",
        known.ending.as_str()
    );
    Refusal {
        retry_after,
        ..Refusal::new(Reason::RobotsUnreachable, Stage::Robots).with_detail(why)
    }
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
        | Ending::Unchanged
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
