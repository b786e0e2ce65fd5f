//! The removal of a page from the index: when an outcome is due to remove it, and whether the removal
//! is ordered at once or waits.

use crate::model::removal::{RemovalAction, RemovalOutcome};

use super::super::event::{LedgerEvent, LedgerEventKind, LedgerEventReason};
use super::super::observation::BadOutcome;
use super::super::record::{IndexState, LedgerRecord, RemovalSource, UnixMillis};
use super::super::removal::{PendingRemoval, RemovalCause, RemovalDecision, RemovalSchedule};
use super::{
    EventContext, LedgerTransition, RETRY_WINDOW, changed_record, new_event, unchanged_record,
};

/// Applies a refusal that speaks against the page.
pub(super) fn apply_bad_outcome(
    record: &mut LedgerRecord,
    context: &EventContext,
    bad: BadOutcome,
) -> Option<LedgerEvent> {
    if !record.may_leave_index() {
        return None;
    }
    let cause = RemovalCause::of_refusal(record.status.0, &record.url, &context.revision);
    if bad.action == RemovalAction::Keep {
        cancel_pending_removal(record, &cause);
    }
    if !is_due(record, bad.action, true, context.at) {
        return None;
    }
    remove_from_index(record, context, cause, removal_reason(bad.outcome))
}

/// Cancels a pending removal after an outcome that keeps the URL, if that shows that the cause of the
/// removal no longer applies. `cause` is the one that the outcome would have as a removal.
fn cancel_pending_removal(record: &mut LedgerRecord, cause: &RemovalCause) {
    let is_answered = !record.refused_unasked;
    // The policy is evaluated first, and the origin asked last.
    record
        .pending_removal
        .take_if(|pending| pending.cause.is_policy() || is_answered || pending.cause == *cause);
}

/// Returns `true` if a bad outcome removes the page. `is_final` is whether it is more than one of a
/// few temporary errors.
pub(super) fn is_due(
    record: &mut LedgerRecord,
    action: RemovalAction,
    is_final: bool,
    at: UnixMillis,
) -> bool {
    match action {
        RemovalAction::Remove => true,
        RemovalAction::Keep => false,
        RemovalAction::ByCount => is_final,
        RemovalAction::OnceMore => {
            // A time later than now was recorded by a wrong clock.
            let first = record.kept_since.filter(|first| *first <= at);
            record.kept_since = first.or(Some(at));
            first.is_some_and(|first| at.duration_since(first) >= RETRY_WINDOW)
        }
    }
}

fn removal_reason(outcome: RemovalOutcome) -> LedgerEventReason {
    match outcome {
        RemovalOutcome::Rule => LedgerEventReason::Excluded,
        RemovalOutcome::RobotsTxt => LedgerEventReason::RobotsTxt,
        RemovalOutcome::Noindex => LedgerEventReason::Noindex,
        RemovalOutcome::Noncanonical => LedgerEventReason::Noncanonical,
        RemovalOutcome::Duplicate => LedgerEventReason::Duplicate,
        RemovalOutcome::TooLarge => LedgerEventReason::TooLarge,
        RemovalOutcome::NotFound
        | RemovalOutcome::Gone
        | RemovalOutcome::BadStatus
        | RemovalOutcome::Error => LedgerEventReason::PermanentError,
    }
}

/// Orders the removal of an indexed URL, once, or makes it pending. Every removal is ordered here.
pub(super) fn remove_from_index(
    record: &mut LedgerRecord,
    context: &EventContext,
    cause: RemovalCause,
    reason: LedgerEventReason,
) -> Option<LedgerEvent> {
    if !record.may_leave_index() {
        return None;
    }
    let account = cause.account();
    if context.schedule == RemovalSchedule::Deferred && account.is_some() {
        // Another revision of the policy does not begin the grace time again.
        let earlier = record.pending_removal.as_ref();
        let since = earlier
            .filter(|pending| pending.cause.account() == account)
            .map_or(context.at, |pending| pending.since);
        record.pending_removal = Some(Box::new(PendingRemoval {
            since,
            cause,
            reason,
            status: context.status,
            rule: context.rule.clone(),
            revision: context.revision.clone(),
            user_agent: context.user_agent.clone(),
        }));
        return None;
    }
    record.pending_removal = None;
    record.kept_since = None;
    record.index_state = IndexState::Removed {
        at: context.at,
        by: RemovalSource::new(&cause, context.status),
    };
    Some(new_event(record, context, LedgerEventKind::Removal, reason))
}

/// Orders or cancels a pending removal, unless another observation has changed it meanwhile.
pub(super) fn settle_pending_removal(
    before: Option<&LedgerRecord>,
    context: &EventContext,
    pending: &PendingRemoval,
    decision: RemovalDecision,
) -> LedgerTransition {
    let Some(before) = before.filter(|record| record.pending_removal.as_deref() == Some(pending))
    else {
        return unchanged_record();
    };
    let mut record = LedgerRecord {
        pending_removal: None,
        ..before.clone()
    };
    let event = match decision {
        RemovalDecision::Cancel => None,
        RemovalDecision::Order | RemovalDecision::OrderConfirmed => {
            let context = EventContext {
                at: context.at,
                status: pending.status,
                user_agent: None,
                rule: pending.rule.clone(),
                revision: pending.revision.clone(),
                schedule: RemovalSchedule::Immediate,
            };
            remove_from_index(&mut record, &context, pending.cause.clone(), pending.reason)
        }
    };
    changed_record(record, event)
}
