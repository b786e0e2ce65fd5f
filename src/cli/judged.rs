//! One judged request in the forms that `decide`, `explain` and their scripts read (operations.md, "Commands").

use serde_json::{Value as Json, json};

use crate::gate::refusal::Refusal;
use crate::policy::Policy;
use crate::policy::decide::{Cause, Decision, Verdict};
use crate::policy::fact::{Fact, Facts};
use crate::policy::options::schema;
use crate::policy::trail::Trail;
use crate::vocab::profile::{Conditional, Profile, Wire};

/// A request, what the policy says of it, and how a crawler would be answered.
pub(super) struct Judged<'p> {
    /// The policy that judged.
    pub(super) policy: &'p Policy,
    /// What its rules did.
    pub(super) trail: Trail,
    /// What it decided.
    pub(super) decision: Decision,
    /// The refusal, if the request is answered with one.
    pub(super) refusal: Option<Refusal>,
    /// How the crawler is answered.
    pub(super) profile: Profile,
    /// The origin's status, where the facts reach the response.
    origin_status: Option<u16>,
}

impl<'p> Judged<'p> {
    /// Judges as far as the facts reach.
    pub(super) fn new(policy: &'p Policy, facts: &Facts<'_>, profile: Profile) -> Self {
        let (trail, decision) = policy.decide(facts);
        let origin_status = match facts.response {
            Fact::Known(response) => Some(response.status),
            Fact::Unknown => None,
        };
        let lets_pass = decision.verdict == Verdict::Undecided
            && trail.word(policy, schema::TUNNEL_UNDECIDED) == Some("allow");
        let refusal = if lets_pass { None } else { Refusal::by_policy(policy, &trail, &decision) };
        Self { policy, trail, decision, refusal, profile, origin_status }
    }

    /// `allow`, `reject` or `undecided`.
    pub(super) fn verdict(&self) -> &'static str {
        match self.decision.verdict {
            Verdict::Admit => "allow",
            Verdict::Reject(_) => "reject",
            Verdict::Undecided => "undecided",
        }
    }

    /// The id of the rule that decided.
    pub(super) fn rule(&self) -> Option<&'p str> {
        match self.decision.cause {
            Cause::Rule(rule) => self.policy.rule_id(rule),
            Cause::Default => None,
        }
    }

    /// The wire status of the refusal; none if there is none or the crawler is answered by closing.
    pub(super) fn status(&self) -> Option<u16> {
        match self.refusal.as_ref()?.wire(self.profile, Conditional::No) {
            Wire::Status(status) => Some(status),
            Wire::Close => None,
        }
    }

    /// `name@revision` of the policy.
    pub(super) fn policy_name(&self) -> String {
        format!("{}@{}", self.policy.name(), self.policy.revision())
    }

    /// The object that `decide` writes for a URL.
    pub(super) fn to_json(&self, url: &str) -> Json {
        let refusal = self.refusal.as_ref();
        json!({
            "url": url,
            "verdict": self.verdict(),
            "stage": self.decision.stage.as_str(),
            "reason": self.decision.reason().as_str(),
            "rule": self.rule(),
            "intent": refusal.and_then(Refusal::intent).map(|intent| intent.as_str()),
            "status": self.status(),
            "crawl_status": self.crawl_status(),
            "code": refusal.and_then(|r| r.code.or(r.reason.row().code)),
            "logged": self.decision.logged,
            "index": self.option("index"),
            "follow": self.option("follow"),
            "options": self.policy.options_json(&self.trail),
            "policy": self.policy_name(),
        })
    }

    /// URL, verdict, stage, reason, rule and status; what there is not is an empty column.
    pub(super) fn to_tsv(&self, url: &str) -> String {
        let status = self.status().map_or(String::new(), |s| s.to_string());
        let decision = &self.decision;
        let columns = [
            url,
            self.verdict(),
            decision.stage.as_str(),
            decision.reason().as_str(),
            self.rule().unwrap_or(""),
            &status,
        ];
        columns.join("\t")
    }

    /// The label of `Crawl-Status`: of the refusal, else of the origin's status (decisions.md section 2).
    pub(super) fn crawl_status(&self) -> &'static str {
        match (&self.refusal, self.origin_status) {
            (Some(refusal), _) => refusal.reason.row().crawl_status,
            (None, Some(404 | 410)) => "REJECTED_NOTFOUND",
            (None, Some(400..=599)) => "REJECTED_BAD_STATUS",
            (None, Some(_) | None) => "ACCEPTED",
        }
    }

    fn option(&self, path: &str) -> Json {
        let mut lines = self.policy.option_lines(&self.trail);
        lines.find(|line| line.path == path).map_or(Json::Null, |line| line.value.to_json())
    }
}
