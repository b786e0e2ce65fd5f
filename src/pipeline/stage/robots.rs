//! Robots: what the host's robots.txt says to the crawler, whether the crawler has read it or not.
//!
//! One look-up a request; only the first ones for a host wait for a fetch. Behind the end of its freshness a file holds on
//! for a while, as long as a newer one is fetched. What a robots.txt and a failed fetch mean is in `crate::robots`; here it meets the option `robots`.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::TimeSpan;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pacing::pace::RequestKind;
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::evaluation::{Evaluation, RequestFacts};
use crate::pipeline::refusal::Refusal;
use crate::pipeline::robots_fetch::{CachedRobots, RobotsFetchRequest, RobotsProvider};
use crate::pipeline::schedules::unix_time;
use crate::policy::options::politeness::PolitenessOption;
use crate::policy::options::robots::{OnUnreachable, RobotsOption};
use crate::robots::fetch_outcome::RobotsFetchOutcome;
use crate::robots::product_token::product_token;
use crate::robots::state::{RobotsRules, RobotsState};
use crate::robots::{RobotsAccess, RobotsDecision};

use super::pace::Pacing;
use super::usage::RobotsUsageStatement;
use super::{pace, usage};

/// The crawler's name towards origins if neither the policy nor its `User-Agent` has one.
const DEFAULT_AGENT: &str = "crawlgate";
/// A failure that was none of the origin's: the next request may try again.
const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What becomes of a request that robots.txt does not refuse.
#[derive(Debug)]
pub(crate) enum RobotsVerdict {
    /// It goes on.
    Allow(RobotsAllowance),
    /// It asks for the robots.txt, and gets what the proxy knows.
    Serve(Arc<RobotsState>),
}

/// How a request goes on.
#[derive(Debug, Default)]
pub(crate) struct RobotsAllowance {
    /// The time between requests that its group asks for, by Crawl-delay or Request-rate, no longer than the policy's cap.
    pub(crate) spacing: Option<Duration>,
    /// What is known that it goes by; nothing if the policy does not ask.
    basis: Option<Arc<RobotsState>>,
}

impl RobotsAllowance {
    /// Whether something newer is known by now: a request that had to wait is judged by that.
    pub(crate) fn is_outdated<R: RobotsProvider>(
        &self,
        evaluation: &Evaluation,
        robots: &R,
    ) -> bool {
        let Some(by) = &self.basis else { return false };
        match robots.cached(&evaluation.facts.target, evaluation.verify()) {
            Some(CachedRobots::Fresh(known) | CachedRobots::Expired(known)) => {
                known.is_newer_than(by)
            }
            None => false,
        }
    }
}

/// Asks the host's robots.txt.
pub(crate) async fn evaluate<R: RobotsProvider>(
    evaluation: &mut Evaluation,
    robots: &R,
    admission: &Arc<AdmissionQueue>,
) -> Result<RobotsVerdict, Box<Refusal>> {
    let mut heard = RobotsFindings::default();
    let ruled = apply_robots(evaluation, robots, admission, &mut heard).await;
    evaluation.usage = heard.usage.into();
    evaluation.robots_fetch_time = heard.fetch_time.or(evaluation.robots_fetch_time);
    ruled
}

/// What comes of asking, beside the ruling.
#[derive(Default)]
struct RobotsFindings {
    usage: Vec<RobotsUsageStatement>,
    fetch_time: Option<TimeSpan>,
}

async fn apply_robots<R: RobotsProvider>(
    evaluation: &Evaluation,
    robots: &R,
    admission: &Arc<AdmissionQueue>,
    findings: &mut RobotsFindings,
) -> Result<RobotsVerdict, Box<Refusal>> {
    let option = RobotsOption::new(evaluation.policy(), &evaluation.trail);
    if !option.obeys() {
        return Ok(RobotsVerdict::Allow(RobotsAllowance::default()));
    }
    let target = &evaluation.facts.target;
    let agent = robots_agent(option.agent(), &evaluation.facts);
    let (verify, minds) = (evaluation.verify(), option.on_unreachable());
    let known = match robots.cached(target, verify) {
        Some(CachedRobots::Fresh(known)) => known,
        Some(CachedRobots::Expired(known))
            if matches!(effective_robots(&known, minds), EffectiveRobots::Known(_)) =>
        {
            robots.refresh(target, verify, || {
                refresh_request(
                    evaluation,
                    agent,
                    admission,
                    effective_robots(&known, minds),
                )
            });
            known
        }
        Some(CachedRobots::Expired(_)) | None => {
            let began = admission.now();
            let known =
                Box::pin(robots.fetch(target, fetch_request(evaluation, agent, admission, None)))
                    .await;
            findings.fetch_time = Some(TimeSpan::between(began, admission.now()));
            known
        }
    };
    let standing = effective_robots(&known, minds);
    let refusal = |refusal: Refusal| {
        Box::new(Refusal {
            url_detail: evaluation.url_detail(Stage::Robots),
            ..refusal
        })
    };
    if evaluation.facts.reads_robots_txt() {
        return match standing {
            EffectiveRobots::Unknown | EffectiveRobots::Ignored => {
                Err(refusal(fetch_failure_refusal(&known)))
            }
            EffectiveRobots::Known(_) => Ok(RobotsVerdict::Serve(known)),
        };
    }
    match standing {
        EffectiveRobots::Ignored => Ok(RobotsVerdict::Allow(RobotsAllowance {
            spacing: None,
            basis: Some(known),
        })),
        EffectiveRobots::Unknown => Err(refusal(unreachable_refusal(&known))),
        EffectiveRobots::Known(holding) => {
            check_rules(holding, agent, target.path_and_query()).map_err(refusal)?;
            let stated = usage::read_statements(evaluation, holding, agent);
            usage::check_denied_uses(&option, &stated).map_err(refusal)?;
            findings.usage = stated.into_iter().map(RobotsUsageStatement::from).collect();
            let spacing = capped_spacing(holding, agent, evaluation, admission);
            Ok(RobotsVerdict::Allow(RobotsAllowance {
                spacing,
                basis: Some(known),
            }))
        }
    }
}

/// Whether a request would have to wait for a fetch.
pub(crate) fn must_fetch<R: RobotsProvider>(evaluation: &Evaluation, robots: &R) -> bool {
    let option = RobotsOption::new(evaluation.policy(), &evaluation.trail);
    option.obeys()
        && match robots.cached(&evaluation.facts.target, evaluation.verify()) {
            Some(CachedRobots::Fresh(_)) => false,
            Some(CachedRobots::Expired(known)) => !matches!(
                effective_robots(&known, option.on_unreachable()),
                EffectiveRobots::Known(_)
            ),
            None => true,
        }
}

/// What holds for a request.
enum EffectiveRobots<'a> {
    /// This, the newest or an older one.
    Known(&'a RobotsState),
    /// Nothing is known.
    Unknown,
    /// Nothing is known, and the policy does not mind.
    Ignored,
}

fn effective_robots(known: &RobotsState, on_unreachable: OnUnreachable) -> EffectiveRobots<'_> {
    match (&known.rules, on_unreachable) {
        (RobotsRules::File(_) | RobotsRules::AllowAll, _) => EffectiveRobots::Known(known),
        (RobotsRules::Unknown, OnUnreachable::Allow) => EffectiveRobots::Ignored,
        (RobotsRules::Unknown, OnUnreachable::Deny) => EffectiveRobots::Unknown,
        (RobotsRules::Unknown, OnUnreachable::StaleThenDeny) => known
            .stale()
            .map_or(EffectiveRobots::Unknown, EffectiveRobots::Known),
    }
}

fn check_rules(known: &RobotsState, agent: &str, url: &str) -> Result<(), Refusal> {
    let Some(rules) = known.file() else {
        return Ok(());
    };
    let ruling = rules.decide(agent, url);
    match ruling.access {
        RobotsAccess::Disallow => Err(disallowed_refusal(&ruling)),
        RobotsAccess::Allow => Ok(()),
    }
}

/// The least time between requests that the file asks for, no longer than the policy's cap. It is for pages, so only pages
/// are counted where the cap shortens it.
fn capped_spacing(
    known: &RobotsState,
    agent: &str,
    evaluation: &Evaluation,
    admission: &AdmissionQueue,
) -> Option<Duration> {
    let asked = requested_spacing(known, agent, evaluation, admission)?;
    let spacing = cap_spacing(asked, evaluation);
    if spacing < asked && pace::request_kind(&evaluation.facts) == RequestKind::Navigation {
        admission.record_capped_delay();
    }
    Some(spacing)
}

/// By Crawl-delay or by Request-rate, whichever is longer.
fn requested_spacing(
    known: &RobotsState,
    agent: &str,
    evaluation: &Evaluation,
    admission: &AdmissionQueue,
) -> Option<Duration> {
    let rules = known.file()?;
    let obeys = |_: &Duration| {
        PolitenessOption::new(evaluation.policy(), &evaluation.trail).obeys_request_rate()
    };
    let by_rate = rules
        .request_interval(agent, || unix_time(admission.wall()))
        .filter(obeys);
    rules.crawl_delay(agent).max(by_rate)
}

fn cap_spacing(requested: Duration, evaluation: &Evaluation) -> Duration {
    requested.min(RobotsOption::new(evaluation.policy(), &evaluation.trail).crawl_delay_cap())
}

/// The crawler's product token: the policy's, else the first of its `User-Agent`.
pub(super) fn robots_agent<'a>(
    option: Option<&'a str>,
    request_facts: &'a RequestFacts,
) -> &'a str {
    let given = option.map(product_token).filter(|token| !token.is_empty());
    let own = || Some(request_facts.product_token()).filter(|token| !token.is_empty());
    given.or_else(own).unwrap_or(DEFAULT_AGENT)
}

/// What the file in force asks for is for the proxy's own requests too.
fn refresh_request(
    evaluation: &Evaluation,
    agent: &str,
    admission: &Arc<AdmissionQueue>,
    effective: EffectiveRobots<'_>,
) -> RobotsFetchRequest {
    let spacing = match effective {
        EffectiveRobots::Known(known) => requested_spacing(known, agent, evaluation, admission)
            .map(|asked| cap_spacing(asked, evaluation)),
        EffectiveRobots::Unknown | EffectiveRobots::Ignored => None,
    };
    fetch_request(evaluation, agent, admission, spacing)
}

fn fetch_request(
    evaluation: &Evaluation,
    agent: &str,
    admission: &Arc<AdmissionQueue>,
    spacing: Option<Duration>,
) -> RobotsFetchRequest {
    let ((pacing, order), crawler) = (
        pace::page_pacing(evaluation, admission, spacing),
        evaluation.facts.crawler.clone(),
    );
    let Pacing {
        key,
        pace,
        per_address,
    } = pacing;
    RobotsFetchRequest {
        agent: agent.into(),
        crawler,
        key,
        pace,
        per_address,
        order,
        admission: Arc::clone(admission),
        verify: evaluation.verify(),
    }
}

fn disallowed_refusal(ruling: &RobotsDecision<'_>) -> Refusal {
    let refusal = Refusal::new(Reason::RobotsTxt, Stage::Robots);
    let Some(cause) = &ruling.deciding_line else {
        return refusal;
    };
    let group = ruling.group.as_deref().unwrap_or_default();
    let detail = format!(
        "line {} of the host's robots.txt, for {group:?}, is {:?}",
        cause.line, cause.text
    );
    Refusal {
        robots_line: Some(cause.line),
        ..refusal.with_detail(detail)
    }
}

/// The file cannot be had, so nothing may be fetched; a host that refuses connections, or that TLS fails with, says so
/// itself.
fn unreachable_refusal(known: &RobotsState) -> Refusal {
    if known.outcome == RobotsFetchOutcome::Refused {
        return Refusal::new(Reason::UpstreamConnect, Stage::Robots);
    }
    if let Some(fault) = known.fault {
        return Refusal::new(Reason::UpstreamTls, Stage::Robots).with_fault(fault);
    }
    let retry_after = Some(known.fresh_for.max(MIN_RETRY_AFTER));
    let why = format!(
        "the host's robots.txt cannot be had: {}",
        known.outcome.as_str()
    );
    Refusal {
        retry_after,
        ..Refusal::new(Reason::RobotsUnreachable, Stage::Robots).with_detail(why)
    }
}

/// The answer to a crawler that asks for a file which cannot be had: the origin's failure (decisions.md section 5).
fn fetch_failure_refusal(known: &RobotsState) -> Refusal {
    match known.outcome {
        RobotsFetchOutcome::Timeout => Refusal::new(Reason::UpstreamTimeout, Stage::Robots),
        RobotsFetchOutcome::Broken | RobotsFetchOutcome::UnsupportedCoding => {
            Refusal::new(Reason::UpstreamProtocol, Stage::Robots)
        }
        RobotsFetchOutcome::Dns => Refusal::new(Reason::UpstreamDns, Stage::Robots),
        RobotsFetchOutcome::Refused
        | RobotsFetchOutcome::File
        | RobotsFetchOutcome::Page
        | RobotsFetchOutcome::Unchanged
        | RobotsFetchOutcome::Absent
        | RobotsFetchOutcome::RateLimited
        | RobotsFetchOutcome::ServerError
        | RobotsFetchOutcome::UnexpectedStatus
        | RobotsFetchOutcome::TooManyRedirects
        | RobotsFetchOutcome::UnsupportedRedirect
        | RobotsFetchOutcome::ProhibitedRedirect
        | RobotsFetchOutcome::Tls
        | RobotsFetchOutcome::NotAdmitted => unreachable_refusal(known),
    }
}
