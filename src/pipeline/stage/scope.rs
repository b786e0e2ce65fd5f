//! Scope: the policy at the request stage, and `/robots.txt`, which is never refused like a page.

use std::sync::Arc;

use crate::clock::utc_year;
use crate::pipeline::evaluation::{Evaluation, RequestFacts};
use crate::pipeline::shadow::ShadowEvaluation;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::policy::fact::Facts;
use crate::urls::target::UrlTarget;

use super::ledger::{self, LedgerContext};

/// Judges a request by its URL, method and crawler, and by what is remembered of it if the policy asks for that. Where the
/// policy fetches another URL in the place of one that it admits, that is judged in its turn, and not rewritten again
/// (policy.md section 5).
pub(crate) fn evaluate(
    request_facts: RequestFacts,
    snapshot: Arc<PolicySnapshot>,
    ledger_context: LedgerContext<'_>,
) -> Evaluation {
    let year = snapshot
        .asks_year()
        .then(|| utc_year(ledger_context.admission.wall()));
    let judged = evaluate_once(request_facts.into_original(year), snapshot, ledger_context);
    match rewritten_target(&judged) {
        Some(target) => {
            let asked = ledger::original_facts(judged.facts, judged.ledger_entry);
            evaluate_once(
                asked.with_rewritten_target(target),
                judged.snapshot,
                ledger_context,
            )
        }
        None => judged,
    }
}

fn rewritten_target(evaluation: &Evaluation) -> Option<UrlTarget> {
    let policy = evaluation.policy();
    if !policy.rewrites_urls()
        || evaluation.decision.rejects()
        || evaluation.facts.reads_robots_txt()
    {
        return None;
    }
    policy.rewritten_url(&evaluation.trail, &evaluation.facts.target)
}

fn evaluate_once(
    request_facts: RequestFacts,
    snapshot: Arc<PolicySnapshot>,
    ledger_context: LedgerContext<'_>,
) -> Evaluation {
    let (trail, decision) = snapshot
        .policy
        .decide_request(&request_facts.policy_facts());
    let beside = ShadowEvaluation::for_request(&request_facts, &snapshot);
    let (usage, recalled, tags) = (Box::default(), None, None);
    let (found_in, fetched_in) = (None, None);
    let mut judged = Evaluation {
        facts: request_facts,
        snapshot,
        trail,
        decision,
        shadow: beside,
        usage,
        ledger_entry: recalled,
        tags,
        lookup_time: found_in,
        robots_fetch_time: fetched_in,
    };
    if let Some(kept) = ledger_context.ledger
        && judged.snapshot.uses_ledger
        && !judged.facts.reads_robots_txt()
    {
        ledger::recall(&mut judged, kept, ledger_context.admission);
    }
    judged
}

/// Judges a request again, of which more is known now.
pub(super) fn re_evaluate(evaluation: &mut Evaluation) {
    (evaluation.trail, evaluation.decision) = evaluation
        .snapshot
        .policy
        .decide_request(&evaluation.facts.policy_facts());
    evaluation.shadow = ShadowEvaluation::for_request(&evaluation.facts, &evaluation.snapshot);
}

/// How a rejected request for `/robots.txt` is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RobotsTxtHandling {
    /// It was a request for something else.
    NotRequested,
    /// Every URL of the host is refused: it gets a file that says so, since crawlers take any 4xx for "all allowed".
    HostRefused,
    /// Other URLs of the host are admitted: the origin's file is passed on, since some crawlers drop a host whose
    /// file they cannot have.
    Exempt,
}

/// decisions.md section 5.
pub(crate) fn robots_txt_handling(evaluation: &Evaluation) -> RobotsTxtHandling {
    if !evaluation.facts.reads_robots_txt() {
        return RobotsTxtHandling::NotRequested;
    }
    let host = evaluation.facts.target.host_target();
    let facts = Facts {
        crawler: evaluation.facts.crawler.as_str(),
        ..Facts::for_tunnel(&host)
    };
    let (_, decision) = evaluation.policy().decide(&facts);
    if decision.rejects() {
        RobotsTxtHandling::HostRefused
    } else {
        RobotsTxtHandling::Exempt
    }
}
