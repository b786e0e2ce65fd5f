//! A request under judgement: its facts, the policy it is judged under, and what the rules have done so far.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AsHeaderName, HeaderMap, HeaderName, HeaderValue};
use http::{Method, request};

use crate::clock::TimeSpan;
use crate::model::certificate_verification::CertificateVerification;
use crate::model::crawler::{Crawler, CrawlerHint};
use crate::pacing::queue::Priority;
use crate::policy::Policy;
use crate::policy::decide::{Cause, ContentTags, Decision, Verdict};
use crate::policy::fact::{DEFAULT_YEAR, Fact, Facts, FetchDest, HeaderView, LedgerPresence};
use crate::policy::options::timeouts::{BodyTimeouts, OriginTimeouts};
use crate::policy::options::{checks, schema};
use crate::policy::rule::RuleIndex;
use crate::policy::trail::Trail;
use crate::robots::product_token::product_token;
use crate::urls::target::UrlTarget;

use super::document_rewrite::RewriteNeed;
use super::refusal::{Refusal, recorded_url_detail};
use super::shadow::ShadowEvaluation;
use super::snapshot::PolicySnapshot;
use super::stage::ledger::LedgerEntry;
use super::stage::usage::RobotsUsageStatement;
use crate::metrics::record::UrlRetention;
use crate::model::stage::Stage;

const REFERER: &str = "referer";
const USER_AGENT: &str = "user-agent";
const CRAWL_MAX_WAIT: &str = "crawl-max-wait";
const SEC_FETCH_DEST: &str = "sec-fetch-dest";
/// How much sooner or later than others the crawler would have the URL, from -2 to 2.
const CRAWL_PRIORITY: HeaderName = HeaderName::from_static("crawl-priority");
/// The same in the words of RFC 9218.
const PRIORITY: HeaderName = HeaderName::from_static("priority");
/// How many links from a seed the crawler found the URL.
const CRAWL_DEPTH: &str = "crawl-depth";

/// The facts of a request that later stages ask for again.
#[derive(Clone, Debug)]
pub struct RequestFacts {
    /// The canonical target.
    pub target: UrlTarget,
    /// Who is asking.
    pub crawler: Crawler,
    /// The method.
    pub method: Method,
    /// `Crawl-Max-Wait`: the longest that the client wants to wait for its turn.
    pub max_wait: Option<Duration>,
    /// `Crawl-Priority`, else the urgency of `Priority`.
    pub priority: Option<Priority>,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    dest: Option<FetchDest>,
    depth: Option<u32>,
    in_ledger: LedgerPresence,
    year: u16,
    /// What the crawler asked for, where the policy fetches another URL in its place.
    rewritten_from: Option<Box<UrlTarget>>,
}

impl RequestFacts {
    /// Reads the facts from a request's head. A depth and a priority count only from crawlers that may give one; one
    /// that is no such number is none.
    pub fn new(target: UrlTarget, crawler: Crawler, parts: &request::Parts) -> Self {
        let priority = if crawler.allows_hint(CrawlerHint::Priority) {
            parse_priority(&parts.headers)
        } else {
            None
        };
        let method = parts.method.clone();
        let (max_wait, referer, agent, dest, depth) = (None, None, None, None, None);
        let (year, known, instead_of) = (DEFAULT_YEAR, LedgerPresence::Absent, None);
        let mut asked = Self {
            target,
            crawler,
            method,
            max_wait,
            priority,
            referer,
            user_agent: agent,
            dest,
            depth,
            in_ledger: known,
            year,
            rewritten_from: instead_of,
        };
        for (name, value) in first_values(&parts.headers) {
            match name.as_str() {
                REFERER => asked.referer = Some(value.clone()),
                USER_AGENT => asked.user_agent = Some(value.clone()),
                SEC_FETCH_DEST => asked.dest = value.to_str().ok().map(FetchDest::from_sec_fetch),
                CRAWL_MAX_WAIT => asked.max_wait = parse_seconds(value),
                CRAWL_DEPTH if asked.crawler.allows_hint(CrawlerHint::Depth) => {
                    asked.depth = parse_depth(value)
                }
                _ => {}
            }
        }
        asked
    }

    /// The same as the crawler asked, in this year: to be judged anew.
    pub(crate) fn into_original(mut self, year: Option<u16>) -> Self {
        if let Some(target) = self.rewritten_from.take() {
            self.target = *target;
        }
        Self {
            year: year.unwrap_or(DEFAULT_YEAR),
            ..self
        }
    }

    /// The same for another URL in place of the one that the crawler asked for.
    pub(crate) fn with_rewritten_target(self, target: UrlTarget) -> Self {
        Self {
            rewritten_from: Some(Box::new(self.target)),
            target,
            ..self
        }
    }

    /// The URL that the crawler asked for, where another is fetched in its place.
    pub fn rewritten_from(&self) -> Option<&UrlTarget> {
        self.rewritten_from.as_deref()
    }

    /// The URL that is fetched, and before it the one that the crawler asked for, if that is another: by either of them
    /// a redirection may have led here.
    pub(crate) fn urls(&self) -> impl Iterator<Item = &UrlTarget> {
        self.rewritten_from().into_iter().chain([&self.target])
    }

    /// Whether what the crawler sends of its own was meant for another origin than the one that gets the request.
    pub fn changes_origin(&self) -> bool {
        self.rewritten_from()
            .is_some_and(|asked| asked.base() != self.target.base())
    }

    /// How many links from a start it was found, where that is known.
    pub fn depth(&self) -> Option<u32> {
        self.depth
    }

    /// The page that it was found on, as the client has it; empty if it does not say.
    pub(crate) fn referer(&self) -> &str {
        self.referer
            .as_ref()
            .and_then(|referer| referer.to_str().ok())
            .unwrap_or("")
    }

    /// Whether the ledger has the URL.
    pub(crate) fn in_ledger(&self) -> LedgerPresence {
        self.in_ledger
    }

    /// Adds what is remembered of the URL.
    pub(crate) fn set_ledger_facts(&mut self, depth: Option<u32>, in_ledger: LedgerPresence) {
        (self.depth, self.in_ledger) = (depth, in_ledger);
    }

    /// The product token that the `User-Agent` begins with; empty if there is none.
    pub fn product_token(&self) -> &str {
        self.user_agent
            .as_ref()
            .and_then(|agent| agent.to_str().ok())
            .map_or("", product_token)
    }

    /// Whether it reads the host's robots.txt, which is never refused like a page. Any other method is judged like
    /// any request.
    pub fn reads_robots_txt(&self) -> bool {
        self.target.path_and_query() == "/robots.txt"
            && matches!(self.method, Method::GET | Method::HEAD)
    }

    /// The facts of the request stage.
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

fn parse_priority(headers: &HeaderMap) -> Option<Priority> {
    let number = headers
        .get(CRAWL_PRIORITY)
        .and_then(|value| Priority::from_number(value.to_str().ok()?));
    number.or_else(|| Priority::from_urgency(&JoinedHeaders(headers).joined(&PRIORITY)?))
}

/// A whole number; what is larger than any depth is as deep as that.
fn parse_depth(value: &HeaderValue) -> Option<u32> {
    let number: u64 = value.to_str().ok()?.trim().parse().ok()?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}

/// A time in seconds, perhaps with a fraction; what is no time is not there.
fn parse_seconds(value: &HeaderValue) -> Option<Duration> {
    let seconds: f64 = value.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// A request and the decision that stands so far.
#[derive(Debug)]
pub struct Evaluation {
    /// The facts.
    pub facts: RequestFacts,
    /// The policy that judges it, from end to end.
    pub snapshot: Arc<PolicySnapshot>,
    /// What the rules have done.
    pub trail: Trail,
    /// The decision of the last stage that was run.
    pub decision: Decision,
    /// The same request in shadow, if anything stands there.
    pub(crate) shadow: Option<Box<ShadowEvaluation>>,
    /// What the host's robots.txt says of uses, if the policy asks that.
    pub(crate) usage: Box<[RobotsUsageStatement]>,
    /// What is remembered of the URL, if the policy asks for that.
    pub(crate) ledger_entry: Option<LedgerEntry>,
    /// What options with the word `tag` have found in the answer.
    pub(crate) tags: Option<Box<ContentTags>>,
    /// How long it took to find the host's addresses; `None` if they were known.
    pub lookup_time: Option<TimeSpan>,
    /// How long it took to fetch the host's robots.txt; `None` if it was known.
    pub robots_fetch_time: Option<TimeSpan>,
}

impl Evaluation {
    /// The policy that judges the request.
    pub fn policy(&self) -> &Policy {
        &self.snapshot.policy
    }

    /// The rules that matched so far.
    pub fn matched_rules(&self) -> &[RuleIndex] {
        self.trail.matched_rules()
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
    pub fn url_detail(&self, stage: Stage) -> UrlRetention {
        let by_log = if stage < Stage::Upstream {
            UrlRetention::Host
        } else {
            UrlRetention::Full
        };
        recorded_url_detail(self.policy(), &self.trail, by_log)
    }

    /// The option `max_body`, for answers that do not tell their length.
    pub fn max_body(&self) -> Option<u64> {
        self.trail.number(self.policy(), schema::MAX_BODY)
    }

    /// The option `max_buffer`: the most of a body that is held back until it is judged.
    pub fn max_buffer(&self) -> u64 {
        checks::max_buffer(self.policy(), &self.trail)
    }

    /// What options with the word `tag` have found in what the answer says: a `Crawl-Tag` each.
    pub fn crawl_tags(&self) -> impl Iterator<Item = HeaderValue> {
        let noindex =
            |tags: &ContentTags| tags.noindex.then(|| HeaderValue::from_static("noindex"));
        let noncanonical = |tags: &ContentTags| {
            let of = tags.canonical.as_ref()?.as_str();
            HeaderValue::from_str(&format!("noncanonical; of={of}")).ok()
        };
        self.tags
            .iter()
            .flat_map(move |tags| [noindex(tags), noncanonical(tags)])
            .flatten()
    }

    /// Whether what the origin sends may have to be read or changed as a document: the request asks for codings that can
    /// be undone.
    pub fn may_read_document(&self) -> bool {
        let asks =
            self.snapshot.reads_documents() || self.snapshot.rewrite_need != RewriteNeed::Never;
        asks && self.facts.method == Method::GET && !self.facts.reads_robots_txt()
    }

    /// The option `timeouts`, up to the head of an answer.
    pub fn timeouts(&self) -> OriginTimeouts {
        OriginTimeouts::from_trail(self.policy(), &self.trail)
    }

    /// The option `timeouts`, for bodies.
    pub fn body_timeouts(&self) -> BodyTimeouts {
        BodyTimeouts::from_trail(self.policy(), &self.trail)
    }

    /// The option `verify`. Only the word `skip` of the policy skips.
    pub fn verify(&self) -> CertificateVerification {
        match self.trail.word(self.policy(), schema::VERIFY) {
            Some("skip") => CertificateVerification::Skip,
            Some(_) | None => CertificateVerification::On,
        }
    }

    /// The refusal that the decision asks for, if it rejects.
    pub(crate) fn ensure_admitted(&self) -> Result<(), Box<Refusal>> {
        if self.facts.in_ledger == LedgerPresence::Present && self.decision.rejects() {
            return Err(self.exclusion_refusal());
        }
        match Refusal::from_decision(self.policy(), &self.trail, &self.decision) {
            Some(refusal) => Err(Box::new(refusal)),
            None => Ok(()),
        }
    }

    /// The refusal of a URL that the ledger has: with OmniFind's code, where the policy has crawl spaces. Their address
    /// rules are asked about the address that is known.
    fn exclusion_refusal(&self) -> Box<Refusal> {
        let address = self
            .ledger_entry
            .as_ref()
            .and_then(|recalled| recalled.address);
        let address = address.map_or(Fact::Unknown, |address| Fact::Known(Some(address)));
        let facts = Facts {
            address,
            ..self.facts.policy_facts()
        };
        let exclusion = self.policy().exclusion(&self.trail, &self.decision, &facts);
        let decision = Decision {
            exclusion,
            ..self.decision
        };
        let refusal = Refusal::from_decision(self.policy(), &self.trail, &decision);
        Box::new(refusal.unwrap_or_else(|| Refusal::new(decision.reason(), decision.stage)))
    }

    /// Takes back a rejection at the request stage: for `/robots.txt` alone (decisions.md section 5). Rules on its
    /// address may still reject it.
    pub(crate) fn exempt_robots_txt(&mut self) {
        self.trail.clear_rejection(&self.snapshot.policy);
        self.decision.verdict = Verdict::Admit;
        self.decision.logged = false;
    }
}

/// The first value of each field. One walk over the few fields that a request has costs less than to look for several.
pub fn first_values(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    let mut last: Option<&HeaderName> = None;
    // Values of one name come one after the other.
    headers
        .iter()
        .filter(move |(name, _)| last.replace(*name) != Some(*name))
}

/// A header map as the policy sees it: values joined, bytes that are no UTF-8 replaced.
pub struct JoinedHeaders<'a>(pub &'a HeaderMap);

impl<'a> JoinedHeaders<'a> {
    /// All values of a field, joined by `", "`; `None` if there is none.
    pub fn joined(&self, name: impl AsHeaderName) -> Option<Cow<'a, str>> {
        let mut values = self
            .0
            .get_all(name)
            .iter()
            .map(|v| String::from_utf8_lossy(v.as_bytes()));
        let first = values.next()?;
        Some(values.fold(first, |all, next| Cow::Owned(format!("{all}, {next}"))))
    }
}

impl HeaderView for JoinedHeaders<'_> {
    fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        self.joined(name)
    }

    fn for_each_line(&self, name: &str, see: &mut dyn FnMut(&str)) {
        self.0
            .get_all(name)
            .iter()
            .for_each(|value| see(&String::from_utf8_lossy(value.as_bytes())));
    }
}
