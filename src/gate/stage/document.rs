//! Document: the policy at the last stage, with what the first bytes of a body say, before any of them is sent on.
//!
//! Which bytes those are, and how they are read, is `proxy`'s business. The origin's head comes as it was: options that
//! check answers look at both.

use http::response::Parts;

use crate::gate::judged::Judged;
use crate::gate::refusal::Refusal;
use crate::policy::fact::{DocumentFacts, Fact, Facts, ResponseFacts};
use crate::policy::options::robots::named_agent;
use crate::policy::rule::PolicyStage;

use super::content::{answered, kind_of};
use super::robots;

/// What has to be read of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'j> {
    /// The first bytes as text, and not only what its head says.
    pub body_prefix: bool,
    /// By which name words for one crawler speak of this one.
    pub agent: &'j str,
}

/// What has to be read of the body of an answer that passed the response stage; `None` if nothing.
pub(in crate::gate) fn wanted<'j, C>(judged: &'j Judged<C>, head: &Parts) -> Option<Wanted<'j>> {
    if !judged.snapshot.ever_reads_documents() || judged.asked.reads_robots_txt() {
        return None;
    }
    let awaited = answered(&judged.asked.method, head, &kind_of(head), |response| {
        with_facts(judged, response, Fact::Unknown, |facts| {
            let beside = || {
                judged
                    .beside
                    .as_ref()
                    .is_some_and(|beside| beside.awaits_document(facts))
            };
            judged.snapshot.policy.awaits_document(&judged.trail, facts) || beside()
        })
    });
    awaited.then(|| Wanted {
        body_prefix: judged.snapshot.ever_reads_text(),
        agent: agent(judged),
    })
}

/// Judges the document.
pub(in crate::gate) fn judge<C>(
    judged: &mut Judged<C>,
    head: &Parts,
    document: DocumentFacts<'_>,
) -> Result<(), Box<Refusal>> {
    let mut trail = judged.trail.clone();
    let mut beside = judged.beside.take();
    let (decision, tags) = answered(&judged.asked.method, head, &kind_of(head), |response| {
        with_facts(judged, response, Fact::Known(document), |facts| {
            let policy = &judged.snapshot.policy;
            if let Some(beside) = &mut beside {
                beside.stage(policy, PolicyStage::Document, facts, &judged.trail);
            }
            let decision = policy.stage(&mut trail, PolicyStage::Document, facts);
            (decision, policy.tags(&trail, facts).map(Box::new))
        })
    });
    (judged.trail, judged.beside, judged.decision, judged.tags) = (trail, beside, decision, tags);
    judged.verdict().map_err(|refusal| {
        Box::new(Refusal {
            received_status: Some(head.status.as_u16()),
            ..*refusal
        })
    })
}

fn with_facts<C, T>(
    judged: &Judged<C>,
    response: ResponseFacts<'_>,
    document: Fact<DocumentFacts<'_>>,
    then: impl FnOnce(&Facts<'_>) -> T,
) -> T {
    let usage: Vec<_> = judged.usage.iter().map(|said| said.fact.clone()).collect();
    then(&Facts {
        response: Fact::Known(response),
        document,
        agent: agent(judged),
        usage: &usage,
        ..judged.asked.facts()
    })
}

fn agent<C>(judged: &Judged<C>) -> &str {
    robots::agent(
        named_agent(&judged.snapshot.policy, &judged.trail),
        &judged.asked,
    )
}
