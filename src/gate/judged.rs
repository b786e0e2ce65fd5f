//! A request under judgement: its facts, the policy it is judged under, and what the rules have done so far.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::{Method, request};

use crate::policy::Policy;
use crate::policy::decide::{Cause, Decision, Verdict};
use crate::policy::fact::{Dest, Facts, HeaderView};
use crate::policy::options::schema;
use crate::policy::options::timeouts::{OfBodies, ToOrigin};
use crate::policy::rule::RuleIndex;
use crate::policy::trail::Trail;
use crate::robots::agent::product_token;
use crate::vocab::crawler::{Crawler, May};
use crate::vocab::target::UrlTarget;
use crate::vocab::verify::Verify;

use super::refusal::{Refusal, recorded};
use super::shadow::Beside;
use super::snapshot::Snapshot;
use crate::metrics::record::Keep;
use crate::vocab::stage::Stage;

const CRAWL_MAX_WAIT: HeaderName = HeaderName::from_static("crawl-max-wait");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
/// How many links from a seed the crawler found the URL.
const CRAWL_DEPTH: HeaderName = HeaderName::from_static("crawl-depth");

/// The facts of a request that later stages ask for again.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The canonical target.
    pub target: UrlTarget,
    /// Who is asking.
    pub crawler: Crawler,
    /// The method.
    pub method: Method,
    /// `Crawl-Max-Wait`: the longest that the client wants to wait for its turn.
    pub max_wait: Option<Duration>,
    referer: Option<HeaderValue>,
    agent: Option<HeaderValue>,
    dest: Option<Dest>,
    depth: Option<u64>,
}

impl Asked {
    /// Reads the facts from a request's head. A depth counts only from crawlers that may give one; one that is no
    /// number is none.
    pub fn new(target: UrlTarget, crawler: Crawler, parts: &request::Parts) -> Self {
        let depth = parts.headers.get(CRAWL_DEPTH).filter(|_| crawler.may(May::Depth));
        let dest = parts.headers.get(SEC_FETCH_DEST).and_then(|v| v.to_str().ok());
        Self {
            target,
            crawler,
            method: parts.method.clone(),
            max_wait: parts.headers.get(CRAWL_MAX_WAIT).and_then(seconds),
            referer: parts.headers.get(REFERER).cloned(),
            agent: parts.headers.get(USER_AGENT).cloned(),
            dest: dest.map(Dest::from_sec_fetch),
            depth: depth.and_then(|v| v.to_str().ok()?.trim().parse().ok()),
        }
    }

    /// The product token that the `User-Agent` begins with; empty if there is none.
    pub fn product_token(&self) -> &str {
        self.agent.as_ref().and_then(|agent| agent.to_str().ok()).map_or("", product_token)
    }

    /// Whether it reads the host's robots.txt, which is never refused like a page. Any other method is judged like
    /// any request.
    pub fn reads_robots_txt(&self) -> bool {
        self.target.path_and_query() == "/robots.txt" && matches!(self.method, Method::GET | Method::HEAD)
    }

    /// The facts of the request stage.
    pub fn facts(&self) -> Facts<'_> {
        Facts {
            crawler: self.crawler.as_str(),
            method: self.method.as_str(),
            referer: self.referer.as_ref().and_then(|r| r.to_str().ok()).unwrap_or(""),
            dest: self.dest,
            depth: self.depth,
            ..Facts::of_url(&self.target)
        }
    }
}

/// A time in seconds, perhaps with a fraction; what is no time is not there.
fn seconds(value: &HeaderValue) -> Option<Duration> {
    let seconds: f64 = value.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// A request and the decision that stands so far.
#[derive(Debug)]
pub struct Judged<C> {
    /// The facts.
    pub asked: Asked,
    /// The policy that judges it, from end to end.
    pub snapshot: Arc<Snapshot<C>>,
    /// What the rules have done.
    pub trail: Trail,
    /// The decision of the last stage that was run.
    pub decision: Decision,
    /// The same request in shadow, if anything stands there.
    pub(in crate::gate) beside: Option<Box<Beside<C>>>,
    /// How long it took to find the host's addresses; `None` if they were known.
    pub found_in: Option<Duration>,
}

impl<C> Judged<C> {
    /// The policy that judges the request.
    pub fn policy(&self) -> &Policy {
        &self.snapshot.policy
    }

    /// The rules that matched so far.
    pub fn matched(&self) -> &[RuleIndex] {
        self.trail.matched()
    }

    /// The rule that decided so far, if one did.
    pub fn cause(&self) -> Option<RuleIndex> {
        match self.decision.cause {
            Cause::Rule(rule) => Some(rule),
            Cause::Default => None,
        }
    }

    /// What the log keeps of a URL that the policy admitted and something else refuses: all of it if that is the
    /// origin's doing, as it would have of the answer; the host if it is ours.
    pub fn keep(&self, stage: Stage) -> Keep {
        let by_log = if stage < Stage::Upstream { Keep::Host } else { Keep::Full };
        recorded(self.policy(), &self.trail, by_log)
    }

    /// The option `max_body`, for answers that do not tell their length.
    pub fn max_body(&self) -> Option<u64> {
        self.trail.number(self.policy(), schema::MAX_BODY)
    }

    /// The option `timeouts`, up to the head of an answer.
    pub fn timeouts(&self) -> ToOrigin {
        ToOrigin::of(self.policy(), &self.trail)
    }

    /// The option `timeouts`, for bodies.
    pub fn body_timeouts(&self) -> OfBodies {
        OfBodies::of(self.policy(), &self.trail)
    }

    /// The option `verify`. Only the word `skip` of the policy skips.
    pub fn verify(&self) -> Verify {
        match self.trail.word(self.policy(), schema::VERIFY) {
            Some("skip") => Verify::Skip,
            Some(_) | None => Verify::On,
        }
    }

    /// The refusal that the decision asks for, if it rejects.
    pub(in crate::gate) fn verdict(&self) -> Result<(), Box<Refusal>> {
        match Refusal::by_policy(self.policy(), &self.trail, &self.decision) {
            Some(refusal) => Err(Box::new(refusal)),
            None => Ok(()),
        }
    }

    /// Takes back a rejection at the request stage: for `/robots.txt` alone (decisions.md section 5). Rules on its
    /// address may still reject it.
    pub(in crate::gate) fn exempt(&mut self) {
        self.trail.pardon(&self.snapshot.policy);
        self.decision.verdict = Verdict::Admit;
        self.decision.logged = false;
    }
}

/// A header map as the policy sees it: values joined, bytes that are no UTF-8 replaced.
pub struct Headers<'a>(pub &'a HeaderMap);

impl HeaderView for Headers<'_> {
    fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut values = self.0.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes()));
        let first = values.next()?;
        Some(values.fold(first, |all, next| Cow::Owned(format!("{all}, {next}"))))
    }
}
