//! Budget: what may be fetched in a day (the option `budget`). It is checked at the request stage, before the request
//! costs anything, and charged when the request is sent. Of a budget that the nodes of a fleet share, the request may have
//! to wait for a part, before it waits for its host's turn.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pacing::retry_after::DEFAULT_RETRY_AFTER;
use crate::pipeline::admission::{AdmissionQueue, Arrival, HostSlot};
use crate::pipeline::budget::sharing::BudgetCharge;
use crate::pipeline::budget::{
    BudgetAction, BudgetExhausted, BudgetKind, BudgetLimits, BudgetRequest, UrlNovelty, host_number,
};
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::Refusal;
use crate::policy::decide::{Cause, Decision, Verdict};
use crate::policy::options::budget::{self, BudgetOption, BudgetScope};
use crate::policy::options::{OptionIndex, OptionSetter, schema};
use crate::urls::domain::registrable_domain;

use super::pace::{self, WaitContext};

/// The explanation of a refusal, if the store of the fleet does not say what is left.
const SHARE_UNKNOWN: &str =
    "the fleet's database is unavailable, which has the rest of today's budget";

/// Refuses a request if its daily budget is used up.
pub(crate) fn check_remaining(
    evaluation: &Evaluation,
    admission: &AdmissionQueue,
) -> Result<(), Box<Refusal>> {
    if let Some(budget) = applicable_budget(evaluation) {
        let name = budget_name(evaluation, budget.per);
        apply(evaluation, &budget, &name, admission, BudgetAction::Check)?;
    }
    Ok(())
}

/// Waits until this node of a fleet has a part of the request's budget, if nodes share it.
pub(crate) async fn wait_for_share(
    evaluation: &Evaluation,
    wait: &WaitContext<'_>,
    arrival: Option<Arrival>,
) -> Result<(), Box<Refusal>> {
    if !wait.admission.budgets().is_shared() {
        return Ok(());
    }
    let Some(budget) = applicable_budget(evaluation) else {
        return Ok(());
    };
    // Boxed, so that the future of a request without such a budget stays small.
    Box::pin(wait_for_share_of(evaluation, &budget, wait, arrival)).await
}

async fn wait_for_share_of(
    evaluation: &Evaluation,
    budget: &BudgetOption,
    wait: &WaitContext<'_>,
    arrival: Option<Arrival>,
) -> Result<(), Box<Refusal>> {
    let admission = wait.admission;
    let name = budget_name(evaluation, budget.per);
    let mut grants = admission.budgets().subscribe_grants();
    let waited = arrival.map_or(Duration::ZERO, |arrival| admission.time_waited(arrival));
    let deadline = admission.now() + pace::max_wait(evaluation, wait).saturating_sub(waited);
    loop {
        let charge = apply(evaluation, budget, &name, admission, BudgetAction::Check)?;
        if charge == BudgetCharge::Done {
            return Ok(());
        }
        let remaining = deadline.saturating_duration_since(admission.now());
        if tokio::time::timeout(remaining, grants.changed())
            .await
            .is_err()
        {
            let refusal = Refusal::new(Reason::OwnerUnavailable, Stage::Pace)
                .with_detail(SHARE_UNKNOWN)
                .with_retry_after(Some(DEFAULT_RETRY_AFTER));
            return Err(evaluation.refuse(refusal));
        }
    }
}

/// Charges a request that is sent; its slot counts the bytes. Another request may have taken the last of the budget
/// meanwhile.
pub(crate) fn spend(
    evaluation: &Evaluation,
    admission: &AdmissionQueue,
    slot: &mut HostSlot,
) -> Result<BudgetCharge, Box<Refusal>> {
    let Some(budget) = applicable_budget(evaluation) else {
        return Ok(BudgetCharge::Done);
    };
    let name = budget_name(evaluation, budget.per);
    let charge = apply(evaluation, &budget, &name, admission, BudgetAction::Charge)?;
    if charge == BudgetCharge::Done {
        slot.set_budget(Arc::from(name));
    }
    Ok(charge)
}

/// Returns the budget of a request. Requests for robots.txt have none.
fn applicable_budget(evaluation: &Evaluation) -> Option<BudgetOption> {
    budget::read(evaluation.policy(), evaluation.trail())
        .filter(|_| !evaluation.facts().reads_robots_txt())
}

fn apply(
    evaluation: &Evaluation,
    budget: &BudgetOption,
    name: &str,
    admission: &AdmissionQueue,
    action: BudgetAction,
) -> Result<BudgetCharge, Box<Refusal>> {
    let BudgetOption {
        urls,
        new_urls,
        bytes,
        hosts,
        ..
    } = *budget;
    // A URL that failed is not known, but it was requested before.
    let was_answered = evaluation
        .ledger_entry()
        .and_then(|entry| entry.record.as_ref())
        .is_some_and(|record| record.was_answered());
    let novelty = if was_answered {
        UrlNovelty::Known
    } else {
        UrlNovelty::New
    };
    let request = BudgetRequest {
        novelty,
        host: host_number(evaluation.facts().target.host()),
    };
    let limits = BudgetLimits {
        urls,
        new_urls,
        bytes,
        hosts,
    };
    let budgets = admission.budgets();
    let is_shared = match budget.per {
        // All its requests are those of one node.
        BudgetScope::Host => false,
        BudgetScope::RegistrableDomain | BudgetScope::Crawler | BudgetScope::Space => {
            budgets.is_shared()
        }
    };
    let result = if is_shared {
        budgets.apply_shared(name, limits, request, action)
    } else {
        let applied = budgets.apply(name, limits, request, action);
        applied.map(|()| BudgetCharge::Done)
    };
    result.map_err(|exhausted| Box::new(refusal(evaluation, budget.per, exhausted)))
}

/// Returns the name that the usage is counted under.
fn budget_name(evaluation: &Evaluation, per: BudgetScope) -> String {
    let policy = evaluation.policy();
    let host = evaluation.facts().target.host();
    match per {
        BudgetScope::Host => format!("host {host}"),
        BudgetScope::RegistrableDomain => format!("domain {}", registrable_domain(host)),
        BudgetScope::Crawler => format!("crawler {}", evaluation.facts().crawler.as_str()),
        BudgetScope::Space => {
            let space = evaluation
                .trail()
                .space()
                .and_then(|space| policy.spaces().all().get(usize::from(space.0)));
            // Crawlers that are not in a space are counted together.
            format!("space {}", space.map_or("", |space| space.name.as_str()))
        }
    }
}

fn refusal(evaluation: &Evaluation, per: BudgetScope, exhausted: BudgetExhausted) -> Refusal {
    let policy = evaluation.policy();
    let trail = evaluation.trail();
    let cause = match trail.set_by(policy, limit_option(exhausted.kind)) {
        OptionSetter::Rule(rule) => Cause::Rule(rule),
        OptionSetter::BuiltIn
        | OptionSetter::Document
        | OptionSetter::Space(_)
        | OptionSetter::Host(_) => Cause::Default,
    };
    let verdict = Verdict::Reject(Reason::Budget);
    let decision = Decision {
        verdict,
        stage: Stage::Request,
        cause,
        exclusion: None,
        reading: None,
        ..*evaluation.decision()
    };
    let refusal = Refusal::from_decision(policy, trail, &decision);
    let refusal = refusal.unwrap_or_else(|| Refusal::new(Reason::Budget, Stage::Request));
    let text = exhausted_text(per, exhausted.kind);
    let detail = match refusal.detail {
        Some(about) => Cow::Owned(format!("{text}; {about}")),
        None => Cow::Borrowed(text),
    };
    Refusal {
        detail: Some(detail),
        ..refusal
    }
    .with_retry_after(Some(exhausted.resets_in))
}

fn limit_option(kind: BudgetKind) -> OptionIndex {
    match kind {
        BudgetKind::Urls => schema::BUDGET_URLS,
        BudgetKind::NewUrls => schema::BUDGET_NEW_URLS,
        BudgetKind::Bytes => schema::BUDGET_BYTES,
        BudgetKind::Hosts => schema::BUDGET_HOSTS,
    }
}

fn exhausted_text(per: BudgetScope, kind: BudgetKind) -> &'static str {
    match (kind, per) {
        (BudgetKind::Urls, BudgetScope::Host) => "today's requests for this host are used up",
        (BudgetKind::Urls, BudgetScope::RegistrableDomain) => {
            "today's requests for this domain are used up"
        }
        (BudgetKind::Urls, BudgetScope::Crawler) => "today's requests of this crawler are used up",
        (BudgetKind::Urls, BudgetScope::Space) => {
            "today's requests of this crawl space are used up"
        }
        (BudgetKind::NewUrls, BudgetScope::Host) => "today's new URLs of this host are used up",
        (BudgetKind::NewUrls, BudgetScope::RegistrableDomain) => {
            "today's new URLs of this domain are used up"
        }
        (BudgetKind::NewUrls, BudgetScope::Crawler) => {
            "today's new URLs of this crawler are used up"
        }
        (BudgetKind::NewUrls, BudgetScope::Space) => {
            "today's new URLs of this crawl space are used up"
        }
        (BudgetKind::Bytes, BudgetScope::Host) => "today's bytes of this host are used up",
        (BudgetKind::Bytes, BudgetScope::RegistrableDomain) => {
            "today's bytes of this domain are used up"
        }
        (BudgetKind::Bytes, BudgetScope::Crawler) => "today's bytes of this crawler are used up",
        (BudgetKind::Bytes, BudgetScope::Space) => "today's bytes of this crawl space are used up",
        (BudgetKind::Hosts, BudgetScope::Host) => "today's hosts are used up",
        (BudgetKind::Hosts, BudgetScope::RegistrableDomain) => {
            "today's hosts of this domain are used up"
        }
        (BudgetKind::Hosts, BudgetScope::Crawler) => "today's hosts of this crawler are used up",
        (BudgetKind::Hosts, BudgetScope::Space) => "today's hosts of this crawl space are used up",
    }
}
