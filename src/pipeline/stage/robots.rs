//! Robots: the rules of the host's robots.txt for the crawler, whether or not the crawler has read it.
//!
//! Each request looks up the file once; only the first requests for a host wait for a fetch. After its freshness has
//! ended a file still applies for a while, during which a newer one is fetched. `crate::robots` defines what a
//! robots.txt and a failed fetch mean; here that is combined with the option `robots`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::TimeSpan;
use crate::long_work::{LongWork, run_long};
use crate::model::crawler::Crawler;
use crate::model::intent::Intent;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pacing::pace::RequestKind;
use crate::pipeline::admission::{AdmissionQueue, Arrival};
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::{Refusal, RobotsCause, RobotsDetail, SubstituteRobots};
use crate::pipeline::robots_fetch::{CachedRobots, RobotsFetchRequest, RobotsProvider};
use crate::pipeline::schedules::unix_time;
use crate::policy::options::politeness::PolitenessOption;
use crate::policy::options::robots::{OnUnreachable, RobotsOption};
use crate::robots::agent::{RobotsAgent, RobotsTokenSource};
use crate::robots::fetch_outcome::RobotsFetchOutcome;
use crate::robots::product_token::product_token;
use crate::robots::state::{RobotsRules, RobotsState};
use crate::robots::{RobotsAccess, RobotsDecision, RobotsFile};
use crate::urls::target::{LaxReading, UrlTarget};

use super::pace::{Pacing, WaitContext};
use super::usage::RobotsTerms;
use super::{pace, robots_wait, usage};

/// The product token of a crawler if neither the policy nor its `User-Agent` has one.
const DEFAULT_AGENT: &str = "crawlgate";

/// The work of a search for rules, in nanoseconds, from which it runs on the blocking pool. A site may have tens of
/// thousands of rules with wildcards.
const LONG_SEARCH: usize = 500_000;

/// The verdict on a request that robots.txt does not refuse.
#[derive(Debug)]
pub(crate) enum RobotsVerdict {
    /// It goes on.
    Allow(RobotsAllowance),
    /// It requests the robots.txt itself, and gets the file that the proxy knows.
    Serve(Arc<RobotsState>),
    /// The request was held, and the file is still unknown: the next attempt is due now, or another policy is active, or a
    /// stop covers the request. The stages run again.
    Repeat,
}

/// The conditions under which a request goes on.
#[derive(Debug, Default)]
pub(crate) struct RobotsAllowance {
    /// The time between requests that the crawler's group requests, by Crawl-delay or Request-rate, capped by the
    /// policy.
    pub(crate) spacing: Option<Duration>,
    /// `true` if the policy's cap shortens the spacing of this page.
    is_capped: bool,
    /// The state that the verdict relies on; `None` if the policy ignores robots.txt.
    basis: Option<Arc<RobotsState>>,
}

impl RobotsAllowance {
    /// Returns `true` if a newer state is known by now. A request that had to wait is then evaluated again.
    pub(crate) fn is_outdated<R: RobotsProvider>(
        &self,
        evaluation: &Evaluation,
        robots: &R,
    ) -> bool {
        let Some(basis) = &self.basis else {
            return false;
        };
        match robots.cached(&evaluation.facts().target, evaluation.verify()) {
            Some(CachedRobots::Fresh(known) | CachedRobots::Expired(known)) => {
                known.is_newer_than(basis)
            }
            None => false,
        }
    }
}

/// Returns the refusal of a request for the robots.txt of a host that the policy refuses as a whole; the host is not
/// contacted. Crawlers take any 4xx for "everything is allowed" and `Disallow: /` for "never", so each intent has an
/// answer of its own.
pub(crate) fn refuse_whole_host<R: RobotsProvider>(
    evaluation: &Evaluation,
    robots: &R,
    refusal: Refusal,
    intent: Intent,
) -> Refusal {
    let cached = || {
        let known = robots.last_known(&evaluation.facts().target, evaluation.verify());
        known.map(SubstituteRobots::Cached)
    };
    let substitute = match intent {
        Intent::Deny | Intent::Gone => Some(SubstituteRobots::DisallowAll),
        Intent::Keep => cached().or(Some(SubstituteRobots::AllowAll)),
        Intent::Later => cached(),
    };
    match substitute {
        Some(file) => Refusal {
            robots: Some(Box::new(RobotsDetail::Substitute(file))),
            ..refusal
        },
        None => Refusal {
            status: Some(503),
            ..refusal
        },
    }
}

/// Returns the refusal of a request inside a tunnel that is refused, in which no request is sent to the host. If the policy
/// refuses all of the host, its robots.txt has an answer of its own there, too.
pub(crate) fn refuse_inside_tunnel<R: RobotsProvider>(
    evaluation: &Evaluation,
    robots: &R,
    tunnel: &Refusal,
) -> Box<Refusal> {
    let refusal = evaluation.refuse_inside_tunnel(tunnel);
    let by_policy = [Reason::Rule, Reason::Default].contains(&tunnel.reason);
    let facts = evaluation.facts();
    if !by_policy || !facts.reads_robots_txt() {
        return refusal;
    }
    let policy = evaluation.policy();
    match policy.whole_host_intent(&facts.target, &facts.policy_facts()) {
        Some(intent) => Box::new(refuse_whole_host(evaluation, robots, *refusal, intent)),
        None => refusal,
    }
}

/// The verdict of the stage, and its additions to the evaluation.
pub(crate) struct RobotsStageResult {
    pub(crate) verdict: Result<RobotsVerdict, Box<Refusal>>,
    pub(crate) terms: RobotsTerms,
    pub(crate) fetch_time: Option<TimeSpan>,
}

/// Looks up the host's robots.txt and applies it. If nothing is known of it, for a cause that may pass within seconds, the
/// request is held until it can be fetched again.
pub(crate) async fn evaluate<R: RobotsProvider>(
    evaluation: &Evaluation,
    robots: &R,
    wait: &WaitContext<'_>,
    arrival: &mut Option<Arrival>,
) -> RobotsStageResult {
    let mut terms = RobotsTerms::default();
    let mut fetch_time = None;
    let option = RobotsOption::new(evaluation.policy(), evaluation.trail());
    if !option.obeys() {
        return RobotsStageResult {
            verdict: Ok(RobotsVerdict::Allow(RobotsAllowance::default())),
            terms,
            fetch_time,
        };
    }
    let obtained = obtain_state(evaluation, robots, wait, arrival, &option, &mut fetch_time).await;
    let state = match obtained {
        Ok(Some(state)) => state,
        ended => {
            return RobotsStageResult {
                verdict: ended.map(|_| RobotsVerdict::Repeat),
                terms,
                fetch_time,
            };
        }
    };
    let agent = evaluation.robots_agent();
    wait.admission.record_robots_token(agent.source());
    let is_searched = !evaluation.facts().reads_robots_txt();
    let decisions = if is_searched && takes_long(evaluation, &option, &state) {
        Box::pin(decide_elsewhere(evaluation, &option, &state)).await
    } else {
        None
    };
    let verdict = decide(
        evaluation,
        agent,
        &option,
        state,
        decisions,
        &mut terms,
        wait.admission,
    );
    if let Ok(RobotsVerdict::Allow(allowance)) = &verdict
        && allowance.is_capped
    {
        wait.admission.record_capped_delay();
    }
    RobotsStageResult {
        verdict,
        terms,
        fetch_time,
    }
}

/// Returns the state that applies, from the cache or by a fetch; `None` if the request was held, and the stages must run
/// again.
async fn obtain_state<R: RobotsProvider>(
    evaluation: &Evaluation,
    robots: &R,
    wait: &WaitContext<'_>,
    arrival: &mut Option<Arrival>,
    option: &RobotsOption<'_>,
    fetch_time: &mut Option<TimeSpan>,
) -> Result<Option<Arc<RobotsState>>, Box<Refusal>> {
    let state = match current_state(evaluation, robots, wait.admission) {
        Some(state) => state,
        None => {
            let began = wait.admission.now();
            // Written in one expression: variables would make each request's future larger.
            let fetched = Box::pin(robots_wait::wait_for_fetch(
                evaluation,
                wait,
                arrival,
                robots.fetch(
                    &evaluation.facts().target,
                    fetch_request(evaluation, evaluation.robots_agent(), wait.admission, None),
                ),
            ))
            .await;
            *fetch_time = Some(TimeSpan::between(began, wait.admission.now()));
            match fetched? {
                Some(state) => state,
                None => return Ok(None),
            }
        }
    };
    if !awaits_attempt(&state, option.on_unreachable()) {
        return Ok(Some(state));
    }
    Box::pin(robots_wait::wait_for_next_attempt(
        evaluation,
        wait,
        arrival,
        &state,
        unavailable_refusal(evaluation, &state, wait.admission),
    ))
    .await?;
    // The next attempt is recorded, not this one.
    *fetch_time = None;
    Ok(None)
}

/// The verdict of this stage by the cache alone, for an explanation. Nothing is fetched, renewed or counted.
#[derive(Debug)]
pub(crate) enum CachedRobotsVerdict {
    /// The policy ignores robots.txt.
    NotObeyed,
    /// A request would fetch the file, or wait for a fetch.
    NotCached,
    /// The file has just failed to arrive, and a request would wait for the next attempt; it is refused if that comes too
    /// late.
    AwaitsAttempt(Arc<RobotsState>, Box<Refusal>),
    /// The state that applies, and its verdict.
    Decided(Arc<RobotsState>, Result<RobotsVerdict, Box<Refusal>>),
}

/// Applies the robots.txt in the cache.
pub(crate) fn evaluate_cached<R: RobotsProvider>(
    evaluation: &Evaluation,
    robots: &R,
    admission: &AdmissionQueue,
) -> CachedRobotsVerdict {
    let option = RobotsOption::new(evaluation.policy(), evaluation.trail());
    if !option.obeys() {
        return CachedRobotsVerdict::NotObeyed;
    }
    let state = match robots.cached(&evaluation.facts().target, evaluation.verify()) {
        Some(CachedRobots::Fresh(state)) => state,
        Some(CachedRobots::Expired(state)) if is_effective(&state, &option) => state,
        Some(CachedRobots::Expired(_)) | None => return CachedRobotsVerdict::NotCached,
    };
    if awaits_attempt(&state, option.on_unreachable()) {
        let refusal = evaluation.refuse(unavailable_refusal(evaluation, &state, admission));
        return CachedRobotsVerdict::AwaitsAttempt(state, refusal);
    }
    let verdict = decide(
        evaluation,
        evaluation.robots_agent(),
        &option,
        Arc::clone(&state),
        None,
        &mut RobotsTerms::default(),
        admission,
    );
    CachedRobotsVerdict::Decided(state, verdict)
}

/// Fetches a robots.txt that is not in the cache, for an explanation, as a request does: at the host's pace, and once for
/// all that wait.
pub(crate) async fn fetch_for_explanation<R: RobotsProvider>(
    evaluation: &Evaluation,
    robots: &R,
    admission: &Arc<AdmissionQueue>,
) {
    let request = fetch_request(evaluation, evaluation.robots_agent(), admission, None);
    robots.fetch(&evaluation.facts().target, request).await;
}

/// The decisions of a file on a URL, and on its reading by servers that decode escapes and merge slashes, which may also
/// refuse it.
struct FileDecisions<'a> {
    url: RobotsDecision<'a>,
    reading: Option<RobotsDecision<'a>>,
}

impl<'a> FileDecisions<'a> {
    fn new(file: &'a RobotsFile, agent: RobotsAgent<'_>, target: &UrlTarget) -> Self {
        let url = file.decide(agent, target.path_and_query());
        let reading = match url.access {
            RobotsAccess::Allow => target
                .reading(LaxReading::Decoded)
                .and_then(|reading| file.refusal_of_reading(agent, reading.path_and_query())),
            RobotsAccess::Disallow => None,
        };
        Self { url, reading }
    }

    fn into_owned(self) -> FileDecisions<'static> {
        FileDecisions {
            url: self.url.into_owned(),
            reading: self.reading.map(RobotsDecision::into_owned),
        }
    }
}

/// Returns `true` if the search for the rules that decide a URL takes too long for a thread that serves requests.
fn takes_long(evaluation: &Evaluation, option: &RobotsOption<'_>, state: &RobotsState) -> bool {
    let url_length = evaluation.facts().target.path_and_query().len();
    effective_file(state, option.on_unreachable())
        .is_some_and(|file| file.decision_work(url_length) >= LONG_SEARCH)
}

/// Searches the file for the rules that decide a URL, on the blocking pool. `None` if the process is shutting down.
async fn decide_elsewhere(
    evaluation: &Evaluation,
    option: &RobotsOption<'_>,
    state: &Arc<RobotsState>,
) -> Option<Box<FileDecisions<'static>>> {
    let state = Arc::clone(state);
    let on_unreachable = option.on_unreachable();
    let target = evaluation.facts().target.clone();
    let agent = evaluation.robots_agent();
    let token: Box<str> = agent.token().into();
    let first_product: Option<Box<str>> = agent.first_product().map(Box::from);
    let source = agent.source();
    run_long(LongWork::Robots, move || {
        let agent = RobotsAgent::new(&token, source).with_first_product(first_product.as_deref());
        let file = effective_file(&state, on_unreachable)?;
        let decisions = FileDecisions::new(file, agent, &target);
        Some(Box::new(decisions.into_owned()))
    })
    .await
    .flatten()
}

/// Returns the file that applies, if there is one.
fn effective_file(state: &RobotsState, on_unreachable: OnUnreachable) -> Option<&RobotsFile> {
    match effective_robots(state, on_unreachable) {
        EffectiveRobots::Known(state) => state.file(),
        EffectiveRobots::Unknown | EffectiveRobots::Ignored => None,
    }
}

/// Returns the verdict of a state on a request, and sets the terms of the file. `decisions` are those of the file, if they
/// are known.
fn decide(
    evaluation: &Evaluation,
    agent: RobotsAgent<'_>,
    option: &RobotsOption<'_>,
    state: Arc<RobotsState>,
    decisions: Option<Box<FileDecisions<'static>>>,
    terms: &mut RobotsTerms,
    admission: &AdmissionQueue,
) -> Result<RobotsVerdict, Box<Refusal>> {
    let verdict = if evaluation.facts().reads_robots_txt() {
        serve(evaluation, option, state, admission)
    } else {
        apply(
            evaluation, agent, option, state, decisions, terms, admission,
        )
    };
    verdict.map_err(|refusal| evaluation.refuse(refusal))
}

fn is_effective(state: &RobotsState, option: &RobotsOption<'_>) -> bool {
    matches!(
        effective_robots(state, option.on_unreachable()),
        EffectiveRobots::Known(_)
    )
}

/// Returns the state in the cache, if it applies; one that is no longer fresh is renewed.
fn current_state<R: RobotsProvider>(
    evaluation: &Evaluation,
    robots: &R,
    admission: &Arc<AdmissionQueue>,
) -> Option<Arc<RobotsState>> {
    let target = &evaluation.facts().target;
    let verify = evaluation.verify();
    let option = RobotsOption::new(evaluation.policy(), evaluation.trail());
    match robots.cached(target, verify)? {
        CachedRobots::Fresh(state) => Some(state),
        CachedRobots::Expired(state) => {
            let EffectiveRobots::Known(known) = effective_robots(&state, option.on_unreachable())
            else {
                return None;
            };
            robots.refresh(target, verify, None, || {
                refresh_request(evaluation, evaluation.robots_agent(), admission, known)
            });
            Some(state)
        }
    }
}

/// Returns the file for a crawler that requests it.
fn serve(
    evaluation: &Evaluation,
    option: &RobotsOption<'_>,
    state: Arc<RobotsState>,
    admission: &AdmissionQueue,
) -> Result<RobotsVerdict, Refusal> {
    match effective_robots(&state, option.on_unreachable()) {
        EffectiveRobots::Unknown | EffectiveRobots::Ignored => {
            Err(unavailable_refusal(evaluation, &state, admission))
        }
        EffectiveRobots::Known(_) => Ok(RobotsVerdict::Serve(state)),
    }
}

/// Applies the file to a request for another URL.
fn apply(
    evaluation: &Evaluation,
    agent: RobotsAgent<'_>,
    option: &RobotsOption<'_>,
    state: Arc<RobotsState>,
    decisions: Option<Box<FileDecisions<'static>>>,
    terms: &mut RobotsTerms,
    admission: &AdmissionQueue,
) -> Result<RobotsVerdict, Refusal> {
    let (spacing, is_capped) = match effective_robots(&state, option.on_unreachable()) {
        EffectiveRobots::Ignored => (None, false),
        EffectiveRobots::Unknown => {
            return Err(unavailable_refusal(evaluation, &state, admission));
        }
        EffectiveRobots::Known(state) => {
            match decisions {
                Some(decisions) => check_decisions(&decisions, agent)?,
                None => check_rules(state, agent, &evaluation.facts().target)?,
            }
            let statements = usage::read_statements(evaluation, state, agent);
            usage::check_denied_uses(option, &statements, agent)?;
            *terms = RobotsTerms::new(statements, state);
            capped_spacing(state, agent, evaluation, admission)
        }
    };
    Ok(RobotsVerdict::Allow(RobotsAllowance {
        spacing,
        is_capped,
        basis: Some(state),
    }))
}

/// Returns `true` if the request has to wait for a fetch.
pub(crate) fn must_fetch<R: RobotsProvider>(evaluation: &Evaluation, robots: &R) -> bool {
    let option = RobotsOption::new(evaluation.policy(), evaluation.trail());
    option.obeys()
        && match robots.cached(&evaluation.facts().target, evaluation.verify()) {
            Some(CachedRobots::Fresh(state)) => awaits_attempt(&state, option.on_unreachable()),
            Some(CachedRobots::Expired(known)) => !is_effective(&known, &option),
            None => true,
        }
}

/// The verdict of a host's robots.txt on a URL that it has refused before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RobotsConfirmation {
    /// It allows the URL, or the policy ignores it.
    Allowed,
    /// It still refuses the URL.
    Refused,
    /// The file is not known, or is out of date. It is being fetched, unless that has just failed, or the policy refuses
    /// requests for the URL.
    Unknown,
}

/// Checks whether a host's robots.txt still refuses a URL, without a request for it. A state counts only if it is fresh and
/// was fetched after `newer_than`; otherwise it is fetched, if the policy admits requests for the URL.
pub(crate) fn confirm_refusal<R: RobotsProvider>(
    evaluation: &Evaluation,
    newer_than: Option<Instant>,
    robots: &R,
    admission: &Arc<AdmissionQueue>,
) -> RobotsConfirmation {
    let option = RobotsOption::new(evaluation.policy(), evaluation.trail());
    if !option.obeys() {
        return RobotsConfirmation::Allowed;
    }
    let target = &evaluation.facts().target;
    let agent = evaluation.robots_agent();
    let is_newer = |state: &RobotsState| newer_than.is_none_or(|time| state.fetched_at() > time);
    let known = match robots.cached(target, evaluation.verify()) {
        Some(CachedRobots::Fresh(state))
            if is_newer(&state) && !matches!(state.rules, RobotsRules::Unknown) =>
        {
            return confirm_by_file(evaluation, &option, &state, agent);
        }
        Some(CachedRobots::Fresh(state) | CachedRobots::Expired(state)) => Some(state),
        None => None,
    };
    // A host that the policy refuses must not be contacted.
    if evaluation.ensure_admitted().is_err() {
        return RobotsConfirmation::Unknown;
    }
    robots.refresh(target, evaluation.verify(), newer_than, || match &known {
        Some(known) => refresh_request(evaluation, agent, admission, known),
        None => fetch_request(evaluation, agent, admission, None),
    });
    RobotsConfirmation::Unknown
}

/// Applies a file.
fn confirm_by_file(
    evaluation: &Evaluation,
    option: &RobotsOption<'_>,
    state: &RobotsState,
    agent: RobotsAgent<'_>,
) -> RobotsConfirmation {
    let statements = usage::read_statements(evaluation, state, agent);
    let is_refused = check_rules(state, agent, &evaluation.facts().target)
        .and_then(|()| usage::check_denied_uses(option, &statements, agent))
        .is_err();
    if is_refused {
        RobotsConfirmation::Refused
    } else {
        RobotsConfirmation::Allowed
    }
}

/// The state of robots.txt that applies to a request.
enum EffectiveRobots<'a> {
    /// This state, the newest or an older one.
    Known(&'a RobotsState),
    /// No file is known.
    Unknown,
    /// No file is known, and the policy allows requests nevertheless.
    Ignored,
}

fn effective_robots(state: &RobotsState, on_unreachable: OnUnreachable) -> EffectiveRobots<'_> {
    match (&state.rules, on_unreachable) {
        (RobotsRules::File(_) | RobotsRules::AllowAll, _) => EffectiveRobots::Known(state),
        (RobotsRules::Unknown, OnUnreachable::Allow) => EffectiveRobots::Ignored,
        (RobotsRules::Unknown, OnUnreachable::Deny) => EffectiveRobots::Unknown,
        (RobotsRules::Unknown, OnUnreachable::StaleThenDeny) => state
            .stale()
            .map_or(EffectiveRobots::Unknown, EffectiveRobots::Known),
    }
}

/// Returns `true` if requests wait for the next attempt. While an old file is known, the fetch is tried again as late as
/// after a lasting failure, even if the policy does not use the file: nobody waits for that.
fn awaits_attempt(state: &RobotsState, on_unreachable: OnUnreachable) -> bool {
    match effective_robots(state, on_unreachable) {
        EffectiveRobots::Unknown => !state.is_known() && state.fails_momentarily(),
        EffectiveRobots::Known(_) | EffectiveRobots::Ignored => false,
    }
}

/// Applies the rules to the URL and to its reading by servers that decode escapes and merge slashes.
fn check_rules(
    state: &RobotsState,
    agent: RobotsAgent<'_>,
    target: &UrlTarget,
) -> Result<(), Refusal> {
    match state.file() {
        Some(file) => check_decisions(&FileDecisions::new(file, agent, target), agent),
        None => Ok(()),
    }
}

fn check_decisions(decisions: &FileDecisions<'_>, agent: RobotsAgent<'_>) -> Result<(), Refusal> {
    if decisions.url.access == RobotsAccess::Disallow {
        return Err(disallowed_refusal(&decisions.url, agent));
    }
    if let Some(decision) = &decisions.reading {
        let refusal = disallowed_refusal(decision, agent);
        let detail = format!(
            "{}; {} read the URL as one that it forbids",
            refusal.detail.as_deref().unwrap_or_default(),
            LaxReading::Decoded.servers()
        );
        return Err(refusal.with_detail(detail));
    }
    Ok(())
}

/// Returns the time between requests that the file requests, at most the policy's cap, and `true` if the cap shortens it
/// for this request: it applies to pages.
fn capped_spacing(
    state: &RobotsState,
    agent: RobotsAgent<'_>,
    evaluation: &Evaluation,
    admission: &AdmissionQueue,
) -> (Option<Duration>, bool) {
    let Some(requested) = requested_spacing(state, agent, evaluation, admission) else {
        return (None, false);
    };
    let spacing = cap_spacing(requested, evaluation);
    let is_page = pace::request_kind(evaluation.facts()) == RequestKind::Navigation;
    (Some(spacing), spacing < requested && is_page)
}

/// Returns the time between requests by Crawl-delay or by Request-rate, whichever is longer.
fn requested_spacing(
    state: &RobotsState,
    agent: RobotsAgent<'_>,
    evaluation: &Evaluation,
    admission: &AdmissionQueue,
) -> Option<Duration> {
    let rules = state.file()?;
    let politeness = PolitenessOption::new(evaluation.policy(), evaluation.trail());
    let by_rate = rules
        .request_interval(agent, || unix_time(admission.wall()))
        .filter(|_| politeness.obeys_request_rate());
    rules.crawl_delay(agent).max(by_rate)
}

fn cap_spacing(requested: Duration, evaluation: &Evaluation) -> Duration {
    requested.min(RobotsOption::new(evaluation.policy(), evaluation.trail()).crawl_delay_cap())
}

/// Returns the crawler's product token: the policy's, else that of its configuration, else that of its `User-Agent`.
pub(crate) fn robots_agent<'a>(
    option: Option<&'a str>,
    crawler: &'a Crawler,
    user_agent: &'a str,
) -> RobotsAgent<'a> {
    option
        .map(product_token)
        .filter(|token| !token.is_empty())
        .map(|token| RobotsAgent::new(token, RobotsTokenSource::Policy))
        .or_else(|| {
            let token = crawler.robots_agent()?;
            Some(RobotsAgent::new(token, RobotsTokenSource::Crawler))
        })
        .or_else(|| RobotsAgent::from_user_agent(user_agent))
        .unwrap_or(RobotsAgent::new(DEFAULT_AGENT, RobotsTokenSource::Default))
}

/// Makes a request for a newer file. The proxy's own request respects the spacing that the known file requests.
fn refresh_request(
    evaluation: &Evaluation,
    agent: RobotsAgent<'_>,
    admission: &Arc<AdmissionQueue>,
    known: &RobotsState,
) -> RobotsFetchRequest {
    let spacing = requested_spacing(known, agent, evaluation, admission)
        .map(|requested| cap_spacing(requested, evaluation));
    fetch_request(evaluation, agent, admission, spacing)
}

fn fetch_request(
    evaluation: &Evaluation,
    agent: RobotsAgent<'_>,
    admission: &Arc<AdmissionQueue>,
    spacing: Option<Duration>,
) -> RobotsFetchRequest {
    let (pacing, order) = pace::page_pacing(evaluation, admission, spacing);
    let Pacing {
        key,
        pace,
        per_address,
    } = pacing;
    RobotsFetchRequest {
        agent: agent.token().into(),
        crawler: evaluation.facts().crawler.clone(),
        key,
        pace,
        per_address,
        order,
        admission: Arc::clone(admission),
        verify: evaluation.verify(),
        versions: evaluation.origin_http_versions(),
        parent: evaluation.parent().map(Box::from),
    }
}

fn disallowed_refusal(decision: &RobotsDecision<'_>, agent: RobotsAgent<'_>) -> Refusal {
    let refusal = Refusal::new(Reason::RobotsTxt, Stage::Robots);
    let Some(cause) = &decision.deciding_line else {
        return refusal;
    };
    let group = decision.group.as_deref().unwrap_or_default();
    let detail = format!(
        "line {} of the host's robots.txt, for {group:?}, is {:?}",
        cause.line, cause.text
    );
    Refusal {
        robots: Some(Box::new(RobotsDetail::Line(RobotsCause::new(
            cause.line, agent,
        )))),
        ..refusal.with_detail(detail)
    }
}

/// Returns the refusal if the file is unavailable; `Retry-After` is the time until it is fetched again.
fn unavailable_refusal(
    evaluation: &Evaluation,
    state: &RobotsState,
    admission: &AdmissionQueue,
) -> Refusal {
    let refusal = if evaluation.facts().reads_robots_txt() {
        fetch_failure_refusal(state)
    } else {
        unreachable_refusal(state)
    };
    let next = robots_wait::time_to_next_attempt(evaluation, state, admission);
    refusal.with_retry_after(Some(next))
}

/// Returns the refusal of a request for a page, since nothing may be fetched. A refused connection and a TLS failure
/// have reasons of their own.
fn unreachable_refusal(state: &RobotsState) -> Refusal {
    if state.outcome == RobotsFetchOutcome::Refused {
        return Refusal::new(Reason::UpstreamConnect, Stage::Robots);
    }
    if let Some(fault) = state.fault {
        return Refusal::new(Reason::UpstreamTls, Stage::Robots).with_fault(fault);
    }
    Refusal::new(Reason::RobotsUnreachable, Stage::Robots).with_detail(format!(
        "the host's robots.txt is unavailable: {}",
        state.outcome.as_str()
    ))
}

/// Returns the refusal for a crawler that requests a file that is unavailable, which names the origin's failure.
fn fetch_failure_refusal(state: &RobotsState) -> Refusal {
    match state.outcome {
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
        | RobotsFetchOutcome::NotAdmitted
        | RobotsFetchOutcome::RedirectUnreachable => unreachable_refusal(state),
    }
}
