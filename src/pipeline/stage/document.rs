//! Document: the policy at the last stage, with what the first bytes of a body say, before any of them is sent on.
//!
//! Which bytes those are, and how they are read, is `proxy`'s business. The origin's head comes as it was: options that
//! check answers look at both.

use http::response::Parts;

use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::Refusal;
use crate::policy::fact::{DocumentFacts, Fact, Facts, ResponseFacts};
use crate::policy::options::robots::robots_agent;
use crate::policy::rule::PolicyStage;

use super::content::{media_type, with_response_facts};
use super::robots;

/// What has to be read of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentRequirements<'j> {
    /// The first bytes as text, and not only what its head says.
    pub body_prefix: bool,
    /// By which name words for one crawler speak of this one.
    pub agent: &'j str,
}

/// What has to be read of the body of an answer that passed the response stage; `None` if nothing.
pub(crate) fn document_requirements<'j>(
    evaluation: &'j Evaluation,
    head: &Parts,
) -> Option<DocumentRequirements<'j>> {
    if !evaluation.snapshot.reads_documents() || evaluation.facts.reads_robots_txt() {
        return None;
    }
    let awaited = with_response_facts(
        &evaluation.facts.method,
        head,
        &media_type(head),
        |response| {
            with_facts(evaluation, response, Fact::Unknown, |facts| {
                let beside = || {
                    evaluation
                        .shadow
                        .as_ref()
                        .is_some_and(|beside| beside.awaits_document(facts))
                };
                evaluation
                    .snapshot
                    .policy
                    .needs_document(&evaluation.trail, facts)
                    || beside()
            })
        },
    );
    awaited.then(|| DocumentRequirements {
        body_prefix: evaluation.snapshot.reads_text(),
        agent: agent(evaluation),
    })
}

/// Judges the document.
pub(crate) fn evaluate(
    evaluation: &mut Evaluation,
    head: &Parts,
    document: DocumentFacts<'_>,
) -> Result<(), Box<Refusal>> {
    let mut trail = evaluation.trail.clone();
    let mut beside = evaluation.shadow.take();
    let (decision, tags) = with_response_facts(
        &evaluation.facts.method,
        head,
        &media_type(head),
        |response| {
            with_facts(evaluation, response, Fact::Known(document), |facts| {
                let policy = &evaluation.snapshot.policy;
                if let Some(beside) = &mut beside {
                    beside.evaluate_stage(policy, PolicyStage::Document, facts, &evaluation.trail);
                }
                let decision = policy.decide_stage(&mut trail, PolicyStage::Document, facts);
                (decision, policy.content_tags(&trail, facts).map(Box::new))
            })
        },
    );
    (
        evaluation.trail,
        evaluation.shadow,
        evaluation.decision,
        evaluation.tags,
    ) = (trail, beside, decision, tags);
    evaluation.ensure_admitted().map_err(|refusal| {
        Box::new(Refusal {
            received_status: Some(head.status.as_u16()),
            ..*refusal
        })
    })
}

fn with_facts<T>(
    evaluation: &Evaluation,
    response: ResponseFacts<'_>,
    document: Fact<DocumentFacts<'_>>,
    then: impl FnOnce(&Facts<'_>) -> T,
) -> T {
    let usage: Vec<_> = evaluation
        .usage
        .iter()
        .map(|said| said.fact.clone())
        .collect();
    then(&Facts {
        response: Fact::Known(response),
        document,
        agent: agent(evaluation),
        usage_preferences: &usage,
        ..evaluation.facts.policy_facts()
    })
}

fn agent(evaluation: &Evaluation) -> &str {
    robots::robots_agent(
        robots_agent(&evaluation.snapshot.policy, &evaluation.trail),
        &evaluation.facts,
    )
}
