//! Request: the policy at the request stage, and `/robots.txt`, which is never refused like a page.

use crate::clock::utc_year;
use crate::model::intent::Intent;
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::urls::target::UrlTarget;

/// Returns the year, if a decision may depend on it.
pub(crate) fn year(snapshot: &PolicySnapshot, admission: &AdmissionQueue) -> Option<u16> {
    snapshot
        .depends_on_year()
        .then(|| utc_year(admission.wall()))
}

/// Returns the URL that the policy fetches instead of the one that it has admitted (docs/policy/reference.md
/// "One page, several URLs").
pub(crate) fn rewritten_target(evaluation: &Evaluation) -> Option<UrlTarget> {
    let policy = evaluation.policy();
    if !policy.rewrites_urls()
        || evaluation.decision().rejects()
        || evaluation.facts().reads_robots_txt()
    {
        return None;
    }
    policy.rewritten_url(evaluation.trail(), &evaluation.facts().target)
}

/// The result of the request stage for a request that is not refused like a page.
#[derive(Debug)]
pub(crate) enum PolicyVerdict {
    /// The policy admits it.
    Admitted,
    /// The policy rejects it, but it reads the robots.txt of a host of which other URLs are admitted. It goes on, since
    /// some crawlers drop a host whose robots.txt they cannot read.
    RobotsTxtExempt,
    /// It reads the robots.txt of a host that the policy refuses as a whole, with this intent.
    HostRefused(Box<Refusal>, Intent),
}

/// Refuses a request that the policy rejects at the request stage.
pub(crate) fn check(evaluation: &Evaluation) -> Result<PolicyVerdict, Box<Refusal>> {
    let Err(refusal) = evaluation.ensure_admitted() else {
        return Ok(PolicyVerdict::Admitted);
    };
    if !evaluation.facts().reads_robots_txt() {
        return Err(refusal);
    }
    let facts = evaluation.facts();
    let intent = evaluation
        .policy()
        .whole_host_intent(&facts.target, &facts.policy_facts());
    Ok(match intent {
        None => PolicyVerdict::RobotsTxtExempt,
        Some(intent) => PolicyVerdict::HostRefused(refusal, intent),
    })
}
