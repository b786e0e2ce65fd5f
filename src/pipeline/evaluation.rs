//! The state of a request or a tunnel in the pipeline: its facts, the policy that it is evaluated under, the decision so
//! far, and what the stages have found out.
//!
//! Only this module writes the fields; the name of each method that changes something names its addition.

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use http::header::HeaderValue;

use crate::clock::TimeSpan;
use crate::metrics::record::UrlRetention;
use crate::metrics::shadow::ShadowNotes;
use crate::model::certificate_verification::CertificateVerification;
use crate::model::http_versions::OriginHttpVersions;
use crate::model::stage::Stage;
use crate::policy::Policy;
use crate::policy::decide::{Cause, ContentTags, Decision, Verdict};
use crate::policy::fact::{DocumentFacts, Fact, Facts, LedgerPresence, ResponseFacts};
use crate::policy::options::checks::LinksOnly;
use crate::policy::options::robots::robots_agent;
use crate::policy::options::timeouts::{BodyTimeouts, OriginTimeouts};
use crate::policy::options::{checks, schema};
use crate::policy::rule::{PolicyStage, RuleIndex};
use crate::policy::trail::Trail;
use crate::robots::agent::RobotsAgent;

use super::document_rewrite::RewriteNeed;
use super::facts::{EvaluationFacts, RequestFacts, TunnelFacts};
use super::permit::SendOptions;
use super::refusal::{Refusal, recorded_url_retention};
use super::shadow::ShadowEvaluation;
use super::snapshot::PolicySnapshot;
use super::stage::ledger::{LedgerEntry, LedgerLookup, RequestConditions};
use super::stage::robots;
use super::stage::usage::RobotsTerms;

/// A request or a tunnel, and the decision of the last stage that has run.
#[derive(Debug)]
pub struct Evaluation<F: EvaluationFacts = RequestFacts> {
    facts: F,
    snapshot: Arc<PolicySnapshot>,
    trail: Trail,
    decision: Decision,
    shadow: Option<Box<ShadowEvaluation>>,
    times: LookupTimes,
    findings: F::Findings,
}

/// A tunnel's evaluation, kept for as long as the tunnel is open.
pub type TunnelEvaluation = Evaluation<TunnelFacts>;

/// The times that a request has spent waiting for lookups.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookupTimes {
    /// The lookup of the host's addresses; `None` if they were known.
    pub addresses: Option<TimeSpan>,
    /// The fetch of the host's robots.txt; `None` if it was known.
    pub robots: Option<TimeSpan>,
}

/// The findings of the stages about a request.
#[derive(Debug, Default)]
pub struct RequestFindings {
    /// The terms of the host's robots.txt.
    robots_terms: RobotsTerms,
    /// The ledger's entry of the URL, if the policy depends on it.
    ledger_entry: Option<LedgerEntry>,
    /// The findings in the response, each of which becomes a `Crawl-Tag`.
    tags: Option<Box<ResponseTags>>,
}

/// The findings in a response.
#[derive(Debug, Default)]
struct ResponseTags {
    content: ContentTags,
    /// For a document that another URL has as well.
    duplicate: Option<HeaderValue>,
}

/// The trail and the decision after a stage.
#[derive(Debug)]
pub(crate) struct StageDecision {
    pub(crate) trail: Trail,
    pub(crate) decision: Decision,
}

impl<F: EvaluationFacts> Evaluation<F> {
    /// Evaluates the policy and its shadows on the facts.
    pub(crate) fn new(facts: F, snapshot: Arc<PolicySnapshot>) -> Self {
        let (trail, decision) = facts.decide(&snapshot);
        let shadow = facts.decide_shadow(&snapshot);
        Self {
            facts,
            snapshot,
            trail,
            decision,
            shadow,
            times: LookupTimes::default(),
            findings: F::Findings::default(),
        }
    }

    pub fn facts(&self) -> &F {
        &self.facts
    }

    /// Returns the facts without the changes of the pipeline.
    pub(crate) fn into_original_facts(self) -> F {
        self.facts.into_original()
    }

    /// Returns the snapshot of the policy that the request is evaluated under.
    pub fn snapshot(&self) -> &Arc<PolicySnapshot> {
        &self.snapshot
    }

    /// Returns the policy that the request is evaluated under.
    pub fn policy(&self) -> &Policy {
        &self.snapshot.policy
    }

    /// Returns the trail of the rules so far.
    pub(crate) fn trail(&self) -> &Trail {
        &self.trail
    }

    /// Returns the decision of the last stage that has run.
    pub(crate) fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns the rules that have matched so far.
    pub fn matched_rules(&self) -> &[RuleIndex] {
        self.trail.matched_rules()
    }

    /// Returns the rule that made the decision, if a rule did.
    pub fn cause(&self) -> Option<RuleIndex> {
        match self.decision.cause {
            Cause::Rule(rule) => Some(rule),
            Cause::Default => None,
        }
    }

    /// Returns the times that lookups have taken.
    pub fn times(&self) -> LookupTimes {
        self.times
    }

    /// Takes over the times of an earlier evaluation of the same request.
    pub(crate) fn set_times(&mut self, times: LookupTimes) {
        self.times = times;
    }

    /// Adds the time that the lookup of the addresses took; one that did not wait keeps the earlier time.
    pub(crate) fn add_lookup_time(&mut self, time: Option<TimeSpan>) {
        self.times.addresses = time.or(self.times.addresses);
    }

    /// Replaces the trail and the decision by those with more facts.
    pub(crate) fn set_decision(&mut self, stage: StageDecision) {
        self.trail = stage.trail;
        self.decision = stage.decision;
    }

    /// Returns `true` if there are shadows, and any of them depends on addresses.
    pub(crate) fn has_address_shadows(&self) -> bool {
        self.shadow.is_some() && self.snapshot.shadows_use_addresses()
    }

    /// Returns the results of the shadow rules and the shadow policy; `None` if there are none.
    pub fn shadow_notes(&self) -> Option<Box<ShadowNotes>> {
        self.shadow
            .as_ref()
            .map(|shadow| shadow.to_notes(self.policy(), &self.trail, &self.decision))
    }

    /// Returns what the log keeps of the URL for a refusal that the policy has not decided.
    pub(crate) fn url_retention(&self, refusal: &Refusal) -> UrlRetention {
        if refusal.stage >= Stage::Upstream {
            self.url_retention_after_sending()
        } else {
            recorded_url_retention(self.policy(), &self.trail, refusal.unlogged_url_retention())
        }
    }

    /// Returns what the log keeps of the URL if something other than the policy refuses a request that was sent, or if
    /// the proxy fails.
    pub(crate) fn url_retention_after_sending(&self) -> UrlRetention {
        recorded_url_retention(self.policy(), &self.trail, UrlRetention::Full)
    }

    /// Boxes a refusal that the policy has not decided, with what the log keeps of the URL.
    pub fn refuse(&self, refusal: Refusal) -> Box<Refusal> {
        Box::new(Refusal {
            url_retention: self.url_retention(&refusal),
            ..refusal
        })
    }

    /// Returns the refusal of a request inside a tunnel that was refused, with what the log keeps of its URL.
    pub(crate) fn refuse_inside_tunnel(&self, refusal: &Refusal) -> Box<Refusal> {
        let url_retention =
            recorded_url_retention(self.policy(), &self.trail, refusal.url_retention);
        Box::new(Refusal {
            url_retention,
            ..refusal.clone()
        })
    }

    /// Returns the option `timeouts`, up to the head of a response.
    pub fn timeouts(&self) -> OriginTimeouts {
        OriginTimeouts::from_trail(self.policy(), &self.trail)
    }

    /// Returns the option `verify`. Only the value `skip` skips the verification.
    pub fn verify(&self) -> CertificateVerification {
        certificate_verification(self.policy(), &self.trail)
    }

    /// Returns the part of the option `http2` that concerns origins.
    pub fn origin_http_versions(&self) -> OriginHttpVersions {
        match self.trail.word(self.policy(), schema::HTTP2) {
            Some("client" | "none") => OriginHttpVersions::Http1,
            Some(_) | None => OriginHttpVersions::Http1And2,
        }
    }

    /// Returns the parent proxy that the option `upstream` names.
    pub fn parent(&self) -> Option<&str> {
        self.trail.text(self.policy(), schema::UPSTREAM)
    }

    /// Returns the options that a permit carries.
    pub(crate) fn send_options(&self) -> SendOptions {
        SendOptions {
            verify: self.verify(),
            versions: self.origin_http_versions(),
            timeouts: self.timeouts(),
        }
    }

    /// Returns the refusal for the policy's decision, if it rejects.
    fn policy_refusal(&self) -> Option<Refusal> {
        Refusal::from_decision(self.policy(), &self.trail, &self.decision)
    }
}

impl Evaluation {
    /// Returns the entry that the ledger has of the URL, if the policy depends on it.
    pub(crate) fn ledger_entry(&self) -> Option<&LedgerEntry> {
        self.findings.ledger_entry.as_ref()
    }

    /// Returns the terms of the host's robots.txt for the URL.
    pub(crate) fn robots_terms(&self) -> &RobotsTerms {
        &self.findings.robots_terms
    }

    /// Adds the ledger's record of the URL. Returns `true` if rules may depend on the new facts.
    pub(crate) fn add_ledger_lookup(&mut self, lookup: LedgerLookup) -> bool {
        let LedgerLookup { entry, presence } = lookup;
        let depth_changed = entry.depth != self.facts.depth();
        self.facts.set_ledger_facts(entry.depth, presence);
        self.findings.ledger_entry = Some(entry);
        depth_changed && self.policy().uses_depth()
    }

    /// Replaces the presence of the URL in the ledger, which changes only the code of a refusal.
    pub(crate) fn set_ledger_presence(&mut self, presence: LedgerPresence) {
        self.facts.set_ledger_presence(presence);
    }

    /// Returns `true` if the policy depends on the depth of URLs, and that of this one is unknown.
    pub(crate) fn lacks_depth(&self) -> bool {
        self.policy().uses_depth()
            && self
                .ledger_entry()
                .is_some_and(|entry| entry.depth.is_none())
    }

    /// Evaluates the rules of the request stage again, with the facts known by now.
    pub(crate) fn evaluate_again(&mut self) {
        let (trail, decision) = self.facts.decide(&self.snapshot);
        self.set_decision(StageDecision { trail, decision });
        self.shadow = self.facts.decide_shadow(&self.snapshot);
    }

    /// Adds the address that the request will be sent to.
    pub(crate) fn add_address(&mut self, address: Option<IpAddr>) {
        if let Some(entry) = &mut self.findings.ledger_entry {
            entry.address = address.or(entry.address);
        }
    }

    /// Sets the proxy's change to the conditions of the request to the origin.
    pub fn set_conditions(&mut self, conditions: RequestConditions) {
        if let Some(entry) = &mut self.findings.ledger_entry {
            entry.conditions = conditions;
        }
    }

    /// Adds the terms of the host's robots.txt, and the duration of its fetch.
    pub(crate) fn add_robots(&mut self, terms: RobotsTerms, fetch_time: Option<TimeSpan>) {
        self.findings.robots_terms = terms;
        self.times.robots = fetch_time.or(self.times.robots);
    }

    /// Evaluates the shadows at the destination stage, before the policy drops any of the addresses.
    pub(crate) fn evaluate_address_shadows(&mut self, addresses: &[IpAddr]) {
        if let Some(shadow) = &mut self.shadow {
            shadow.evaluate_addresses(
                &self.snapshot.policy,
                &self.facts.policy_facts(),
                addresses,
                &self.trail,
            );
        }
    }

    /// Adds that another URL has the document, which is passed on with this tag.
    pub(crate) fn add_duplicate_tag(&mut self, tag: Option<HeaderValue>) {
        self.findings.tags.get_or_insert_default().duplicate = tag;
    }

    /// Passes on only the links of the document. Returns `false`, and changes nothing, if it has none that may be followed.
    pub(crate) fn pass_links_only(&mut self, check: LinksOnly) -> bool {
        self.trail.pass_links_only(check)
    }

    /// Returns the check because of which only the links of the document are passed on.
    pub fn links_only_check(&self) -> Option<LinksOnly> {
        self.trail.links_only_check()
    }

    /// Evaluates a stage after the origin, and what options with the value `tag` or `links` find.
    pub(crate) fn evaluate_response(
        &mut self,
        stage: PolicyStage,
        response: ResponseFacts<'_>,
        document: Fact<DocumentFacts<'_>>,
    ) {
        let policy = &self.snapshot.policy;
        let agent = robots::robots_agent(
            robots_agent(policy, &self.trail),
            &self.facts.crawler,
            self.facts.user_agent(),
        );
        let terms = &self.findings.robots_terms;
        let usage = terms.usage_facts();
        let facts = Facts {
            response: Fact::Known(response),
            document,
            agent: agent.token(),
            usage_preferences: &usage,
            site_license: terms.license(),
            ..self.facts.policy_facts()
        };
        if let Some(shadow) = &mut self.shadow {
            shadow.evaluate_stage(policy, stage, &facts, &self.trail);
        }
        self.decision = policy.decide_stage(&mut self.trail, stage, &facts);
        let tags = policy.content_tags(&self.trail, &facts);
        self.findings.tags = tags.map(|content| {
            Box::new(ResponseTags {
                content,
                duplicate: None,
            })
        });
    }

    /// Returns `true` if a rule, live or in shadow, depends on the document of this response.
    pub(crate) fn awaits_document(&self, response: ResponseFacts<'_>) -> bool {
        let terms = &self.findings.robots_terms;
        let usage = terms.usage_facts();
        let facts = Facts {
            response: Fact::Known(response),
            document: Fact::Unknown,
            agent: self.robots_agent().token(),
            usage_preferences: &usage,
            site_license: terms.license(),
            ..self.facts.policy_facts()
        };
        self.policy().needs_document(&self.trail, &facts)
            || self
                .shadow
                .as_ref()
                .is_some_and(|shadow| shadow.awaits_document(&facts))
    }

    /// Returns the crawler's product token.
    pub(crate) fn robots_agent(&self) -> RobotsAgent<'_> {
        robots::robots_agent(
            robots_agent(self.policy(), &self.trail),
            &self.facts.crawler,
            self.facts.user_agent(),
        )
    }

    /// Returns the option `max_body`, for responses without a length.
    pub fn max_body(&self) -> Option<u64> {
        self.trail.number(self.policy(), schema::MAX_BODY)
    }

    /// Returns the option `max_buffer`: the most bytes of a body that are held back until it has been evaluated.
    pub fn max_buffer(&self) -> u64 {
        checks::max_buffer(self.policy(), &self.trail)
    }

    /// Returns a `Crawl-Tag` for each finding in the response.
    pub fn crawl_tags(&self) -> impl Iterator<Item = HeaderValue> {
        self.findings.tags.iter().flat_map(|tags| {
            let one_each = [
                noindex_tag(&tags.content),
                noncanonical_tag(&tags.content),
                tags.duplicate.clone(),
                license_tag(&tags.content),
                price_tag(&tags.content),
            ];
            let denied = tags
                .content
                .denied_uses
                .iter()
                .filter_map(|name| HeaderValue::from_str(&format!("denied; use={name}")).ok());
            one_each.into_iter().flatten().chain(denied)
        })
    }

    /// Returns `true` if the response may have to be read or changed as a document. The request then asks for content
    /// codings that can be decoded.
    pub fn may_read_document(&self) -> bool {
        let reads =
            self.snapshot.reads_documents() || self.snapshot.rewrite_need != RewriteNeed::Never;
        reads && self.facts.method == Method::GET && !self.facts.reads_robots_txt()
    }

    /// Returns the option `timeouts`, for bodies.
    pub fn body_timeouts(&self) -> BodyTimeouts {
        BodyTimeouts::from_trail(self.policy(), &self.trail)
    }

    /// # Errors
    /// The refusal, if the policy rejects the request.
    pub(crate) fn ensure_admitted(&self) -> Result<(), Box<Refusal>> {
        if self.facts.in_ledger() == LedgerPresence::Present && self.decision.rejects() {
            return Err(self.exclusion_refusal());
        }
        self.policy_refusal().map_or(Ok(()), |r| Err(Box::new(r)))
    }

    /// Returns the refusal of a URL that the ledger has. If the policy has crawl spaces, the refusal carries OmniFind's
    /// code, for which address rules are evaluated on the address of the last fetch.
    fn exclusion_refusal(&self) -> Box<Refusal> {
        let address = self.ledger_entry().and_then(|entry| entry.address);
        let facts = Facts {
            address: address.map_or(Fact::Unknown, |address| Fact::Known(Some(address))),
            ..self.facts.policy_facts()
        };
        let decision = Decision {
            exclusion: self.policy().exclusion(&self.trail, &self.decision, &facts),
            ..self.decision
        };
        let refusal = Refusal::from_decision(self.policy(), &self.trail, &decision);
        Box::new(refusal.unwrap_or_else(|| Refusal::new(decision.reason(), decision.stage)))
    }

    /// Withdraws a rejection at the request stage, which only `/robots.txt` is exempt from. Rules on addresses may
    /// still reject it.
    pub(crate) fn exempt_robots_txt(&mut self) {
        self.trail.clear_rejection(&self.snapshot.policy);
        self.decision.verdict = Verdict::Admit;
        self.decision.logged = false;
    }
}

impl TunnelEvaluation {
    /// Replaces the policy that an open tunnel is evaluated under.
    ///
    /// # Errors
    /// The refusal, if that policy rejects the tunnel, which must then be closed.
    pub fn re_evaluate(
        &mut self,
        snapshot: Arc<PolicySnapshot>,
        address: Option<IpAddr>,
    ) -> Result<(), Box<Refusal>> {
        self.snapshot = snapshot;
        let stage = self.decide_address(address);
        self.set_address_decision(stage, address);
        self.ensure_admitted()
    }

    /// Evaluates the policy with one of the host's addresses; without one, what depends on it stays undecided.
    pub(crate) fn decide_address(&self, address: Option<IpAddr>) -> StageDecision {
        let (trail, decision) = self.snapshot.decide_tunnel(&self.facts, address);
        StageDecision { trail, decision }
    }

    /// Sets the policy's decision for the tunnel's address, and evaluates the shadows with it.
    pub(crate) fn set_address_decision(&mut self, stage: StageDecision, address: Option<IpAddr>) {
        self.set_decision(stage);
        self.shadow = ShadowEvaluation::for_tunnel(&self.facts, address, &self.snapshot);
    }

    /// # Errors
    /// The refusal, if the policy rejects the tunnel, or leaves it undecided without allowing that.
    pub(crate) fn ensure_admitted(&self) -> Result<(), Box<Refusal>> {
        self.policy_refusal().map_or(Ok(()), |r| Err(Box::new(r)))
    }
}

fn noindex_tag(tags: &ContentTags) -> Option<HeaderValue> {
    tags.noindex.then(|| HeaderValue::from_static("noindex"))
}

fn noncanonical_tag(tags: &ContentTags) -> Option<HeaderValue> {
    let canonical = tags.canonical.as_ref()?.as_str();
    HeaderValue::from_str(&format!("noncanonical; of={canonical}")).ok()
}

fn license_tag(tags: &ContentTags) -> Option<HeaderValue> {
    let url = tags.license.as_deref()?;
    HeaderValue::from_str(&format!("licensed; by={url}")).ok()
}

fn price_tag(tags: &ContentTags) -> Option<HeaderValue> {
    let price = tags.price.as_deref()?;
    HeaderValue::from_str(&format!("priced; at={price}")).ok()
}

/// Returns the option `verify`. Only the value `skip` skips the verification.
pub(crate) fn certificate_verification(policy: &Policy, trail: &Trail) -> CertificateVerification {
    match trail.word(policy, schema::VERIFY) {
        Some("skip") => CertificateVerification::Skip,
        Some(_) | None => CertificateVerification::On,
    }
}
