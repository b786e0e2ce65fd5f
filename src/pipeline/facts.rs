//! The facts that a policy is evaluated on: those of a request, and the few that a CONNECT shows.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, PRAGMA};
use http::{Method, request};

use crate::model::crawler::{Crawler, CrawlerHint};
use crate::pacing::queue::Priority;
use crate::policy::decide::Decision;
use crate::policy::fact::{DEFAULT_YEAR, Fact, Facts, FetchDest, LedgerPresence};
use crate::policy::trail::Trail;
use crate::urls::target::{HostTarget, UrlTarget};

use super::evaluation::RequestFindings;
use super::headers::{JoinedHeaders, first_values};
use super::shadow::ShadowEvaluation;
use super::snapshot::PolicySnapshot;

const REFERER: &str = "referer";
const USER_AGENT: &str = "user-agent";
const CRAWL_MAX_WAIT: &str = "crawl-max-wait";
const SEC_FETCH_DEST: &str = "sec-fetch-dest";
/// The crawler's priority for the URL, from -2 to 2.
const CRAWL_PRIORITY: HeaderName = HeaderName::from_static("crawl-priority");
/// The priority of RFC 9218, read if `Crawl-Priority` is absent.
const PRIORITY: HeaderName = HeaderName::from_static("priority");
/// The number of links between a seed and the URL.
const CRAWL_DEPTH: &str = "crawl-depth";

/// Facts of which an [`Evaluation`](super::evaluation::Evaluation) can be made.
pub trait EvaluationFacts: Debug {
    /// The destination that a permit is for.
    type Target: Clone;
    /// The findings that the stages add to an evaluation besides the decision.
    type Findings: Debug + Default;

    /// Returns the destination.
    fn target(&self) -> &Self::Target;
    /// Returns the crawler that sent the request.
    fn crawler(&self) -> &Crawler;
    /// Returns the host in canonical form.
    fn host(&self) -> &str;
    /// Returns the URL of a request or the host of a tunnel, by which a client that comes back is recognized.
    fn resource(&self) -> &str;
    /// Evaluates the policy as far as these facts reach.
    fn decide(&self, snapshot: &PolicySnapshot) -> (Trail, Decision);
    /// Evaluates the shadow rules and the shadow policy; `None` if there are none.
    fn decide_shadow(&self, snapshot: &PolicySnapshot) -> Option<Box<ShadowEvaluation>>;
    /// Undoes the pipeline's changes to the facts, for a second evaluation.
    #[must_use]
    fn into_original(self) -> Self;
}

/// The facts of a request that later stages need again.
#[derive(Clone, Debug)]
pub struct RequestFacts {
    /// The canonical target.
    pub target: UrlTarget,
    /// The crawler that sent the request.
    pub crawler: Crawler,
    pub method: Method,
    /// `Crawl-Max-Wait`: the longest time that the client is willing to be held.
    pub max_wait: Option<Duration>,
    /// `Crawl-Priority`, else the urgency of `Priority`.
    pub priority: Option<Priority>,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    dest: Option<FetchDest>,
    /// The depth that the crawler has stated.
    stated_depth: Option<u32>,
    depth: Option<u32>,
    in_ledger: LedgerPresence,
    forces_recrawl: bool,
    year: u16,
    /// The requested URL, if the policy fetches another one instead.
    rewritten_from: Option<Box<UrlTarget>>,
}

impl RequestFacts {
    /// Reads the facts from a request's head. A depth, a priority and a forced recrawl count only for crawlers that may
    /// state them; values that do not parse are ignored.
    pub fn new(target: UrlTarget, crawler: Crawler, parts: &request::Parts) -> Self {
        let priority = if crawler.allows_hint(CrawlerHint::Priority) {
            parse_priority(&parts.headers)
        } else {
            None
        };
        let forces_recrawl =
            crawler.allows_hint(CrawlerHint::Recrawl) && requires_validation(&parts.headers);
        let mut facts = Self {
            method: parts.method.clone(),
            priority,
            forces_recrawl,
            ..Self::without_fields(target, crawler)
        };
        for (name, value) in first_values(&parts.headers) {
            match name.as_str() {
                REFERER => facts.referer = Some(value.clone()),
                USER_AGENT => facts.user_agent = Some(value.clone()),
                SEC_FETCH_DEST => facts.dest = value.to_str().ok().map(FetchDest::from_sec_fetch),
                CRAWL_MAX_WAIT => facts.max_wait = parse_seconds(value),
                CRAWL_DEPTH if facts.crawler.allows_hint(CrawlerHint::Depth) => {
                    facts.stated_depth = parse_depth(value);
                }
                _ => {}
            }
        }
        facts.depth = facts.stated_depth;
        facts
    }

    /// Returns the facts of a GET without header fields, for a URL that no client has requested just now.
    pub(crate) fn without_fields(target: UrlTarget, crawler: Crawler) -> Self {
        Self {
            target,
            crawler,
            method: Method::GET,
            max_wait: None,
            priority: None,
            referer: None,
            user_agent: None,
            dest: None,
            stated_depth: None,
            depth: None,
            in_ledger: LedgerPresence::Absent,
            forces_recrawl: false,
            year: DEFAULT_YEAR,
            rewritten_from: None,
        }
    }

    /// Returns the facts of a request that was written down; `None` if its method is not valid.
    pub(crate) fn from_given(
        target: UrlTarget,
        crawler: Crawler,
        given: &Facts<'_>,
    ) -> Option<Self> {
        let depth = given
            .depth
            .map(|depth| u32::try_from(depth).unwrap_or(u32::MAX));
        let referer = Some(given.referer).filter(|referer| !referer.is_empty());
        Some(Self {
            method: Method::from_bytes(given.method.as_bytes()).ok()?,
            referer: referer.and_then(|referer| HeaderValue::from_str(referer).ok()),
            dest: given.dest,
            stated_depth: depth,
            depth,
            in_ledger: given.in_ledger,
            ..Self::without_fields(target, crawler)
        })
    }

    /// Sets the `User-Agent`.
    #[must_use]
    pub(crate) fn with_user_agent(self, user_agent: Option<&str>) -> Self {
        Self {
            user_agent: user_agent.and_then(|agent| HeaderValue::from_str(agent).ok()),
            ..self
        }
    }

    /// Sets the year that rules see.
    #[must_use]
    pub(crate) fn with_year(self, year: Option<u16>) -> Self {
        Self {
            year: year.unwrap_or(DEFAULT_YEAR),
            ..self
        }
    }

    /// Replaces the URL by the one that the policy fetches instead.
    #[must_use]
    pub(crate) fn with_rewritten_target(self, target: UrlTarget) -> Self {
        let original = self.into_original();
        Self {
            rewritten_from: Some(Box::new(original.target)),
            target,
            ..original
        }
    }

    /// Returns the requested URL, if another one is fetched instead.
    pub fn rewritten_from(&self) -> Option<&UrlTarget> {
        self.rewritten_from.as_deref()
    }

    /// Returns the requested URL, if it was rewritten, and the URL that is fetched. A redirect may
    /// have led to either.
    pub(crate) fn urls(&self) -> impl Iterator<Item = &UrlTarget> {
        self.rewritten_from().into_iter().chain([&self.target])
    }

    /// Returns `true` if the request goes to another origin than the one that the crawler meant its credentials for.
    pub fn changes_origin(&self) -> bool {
        self.rewritten_from()
            .is_some_and(|original| original.base() != self.target.base())
    }

    /// Returns the number of links between a seed and the URL, if it is known.
    pub fn depth(&self) -> Option<u32> {
        self.depth
    }

    /// Returns `true` if the crawler has stated that the URL is a start: `Crawl-Depth: 0`.
    pub(crate) fn is_stated_start(&self) -> bool {
        self.stated_depth == Some(0)
    }

    /// Returns `true` if the crawler requires a fetch now (`Cache-Control: no-cache`), and may.
    pub(crate) fn forces_recrawl(&self) -> bool {
        self.forces_recrawl
    }

    /// Returns the `Referer`; empty if it is missing.
    pub(crate) fn referer(&self) -> &str {
        self.referer
            .as_ref()
            .and_then(|referer| referer.to_str().ok())
            .unwrap_or("")
    }

    /// Returns the presence of the URL in the ledger.
    pub(crate) fn in_ledger(&self) -> LedgerPresence {
        self.in_ledger
    }

    /// Sets the presence of the URL in the ledger.
    pub(crate) fn set_ledger_presence(&mut self, in_ledger: LedgerPresence) {
        self.in_ledger = in_ledger;
    }

    /// Adds the ledger's record of the URL.
    pub(crate) fn set_ledger_facts(&mut self, depth: Option<u32>, in_ledger: LedgerPresence) {
        self.depth = depth;
        self.in_ledger = in_ledger;
    }

    /// Returns the `User-Agent`; empty if it is missing.
    pub(crate) fn user_agent(&self) -> &str {
        self.user_agent
            .as_ref()
            .and_then(|agent| agent.to_str().ok())
            .unwrap_or("")
    }

    /// Returns `true` for a GET or HEAD of `/robots.txt`, which is not refused like a page. Other methods are evaluated
    /// like any request.
    pub fn reads_robots_txt(&self) -> bool {
        self.target.path_and_query() == "/robots.txt"
            && matches!(self.method, Method::GET | Method::HEAD)
    }

    /// Returns the facts of the request stage as the policy takes them.
    pub fn policy_facts(&self) -> Facts<'_> {
        Facts {
            crawler: self.crawler.as_str(),
            method: self.method.as_str(),
            referer: self.referer(),
            dest: self.dest,
            depth: self.depth.map(u64::from),
            in_ledger: self.in_ledger,
            year: self.year,
            ..Facts::for_url(&self.target)
        }
    }
}

impl EvaluationFacts for RequestFacts {
    type Target = UrlTarget;
    type Findings = RequestFindings;

    fn target(&self) -> &UrlTarget {
        &self.target
    }

    fn crawler(&self) -> &Crawler {
        &self.crawler
    }

    fn host(&self) -> &str {
        self.target.host()
    }

    fn resource(&self) -> &str {
        self.target.as_str()
    }

    fn decide(&self, snapshot: &PolicySnapshot) -> (Trail, Decision) {
        snapshot.policy.decide_request(&self.policy_facts())
    }

    fn decide_shadow(&self, snapshot: &PolicySnapshot) -> Option<Box<ShadowEvaluation>> {
        ShadowEvaluation::for_request(self, snapshot)
    }

    fn into_original(mut self) -> Self {
        if let Some(target) = self.rewritten_from.take() {
            self.target = *target;
        }
        self.set_ledger_facts(self.stated_depth, LedgerPresence::Absent);
        self
    }
}

/// The facts that a CONNECT shows.
#[derive(Clone, Debug)]
pub struct TunnelFacts {
    /// Host and port in canonical form.
    pub host: HostTarget,
    /// The crawler that sent the CONNECT.
    pub crawler: Crawler,
}

impl TunnelFacts {
    /// Returns the facts as the policy takes them. The address is not known until the name has been resolved.
    pub(crate) fn policy_facts(&self, address: Option<IpAddr>) -> Facts<'_> {
        Facts {
            crawler: self.crawler.as_str(),
            address: address.map_or(Fact::Unknown, |address| Fact::Known(Some(address))),
            ..Facts::for_tunnel(&self.host)
        }
    }
}

impl EvaluationFacts for TunnelFacts {
    type Target = HostTarget;
    type Findings = ();

    fn target(&self) -> &HostTarget {
        &self.host
    }

    fn crawler(&self) -> &Crawler {
        &self.crawler
    }

    fn host(&self) -> &str {
        self.host.host()
    }

    fn resource(&self) -> &str {
        self.host.host()
    }

    fn decide(&self, snapshot: &PolicySnapshot) -> (Trail, Decision) {
        snapshot.decide_tunnel(self, None)
    }

    fn decide_shadow(&self, snapshot: &PolicySnapshot) -> Option<Box<ShadowEvaluation>> {
        ShadowEvaluation::for_tunnel(self, None, snapshot)
    }

    fn into_original(self) -> Self {
        self
    }
}

fn parse_priority(headers: &HeaderMap) -> Option<Priority> {
    let number = headers
        .get(CRAWL_PRIORITY)
        .and_then(|value| Priority::from_number(value.to_str().ok()?));
    number.or_else(|| Priority::from_urgency(&JoinedHeaders(headers).joined(&PRIORITY)?))
}

/// Returns `true` if no stored response may answer the request: `Cache-Control: no-cache`, or `Pragma: no-cache` from
/// older clients (RFC 9111 sections 5.2.1.4 and 5.4).
fn requires_validation(headers: &HeaderMap) -> bool {
    [CACHE_CONTROL, PRAGMA].iter().any(|name| {
        let values = headers.get_all(name).iter();
        values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|directive| directive.trim().eq_ignore_ascii_case("no-cache"))
    })
}

/// Parses a whole number; a larger one than any depth counts as the largest.
fn parse_depth(value: &HeaderValue) -> Option<u32> {
    let number: u64 = value.to_str().ok()?.trim().parse().ok()?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Parses a number of seconds, which may have a fraction.
fn parse_seconds(value: &HeaderValue) -> Option<Duration> {
    let seconds: f64 = value.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}
