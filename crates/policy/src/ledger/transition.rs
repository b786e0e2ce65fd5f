//! The transition of a URL's record by an observation, and the event that results, if any.
//!
//! The option `removal` decides which outcomes order the removal of a page that an index may have. By
//! default errors follow CloudView's rules: not found and gone remove at once, as do too many
//! consecutive temporary errors; and refusals follow OmniFind's codes: 760 removes, 761 keeps.
//!
//! A URL that is removed for an error, or that fails permanently without ever being accepted, is no
//! longer known, so that a new link brings it back. Its record stays, so that each event is sent
//! once until the state changes: removals and restorations of a URL alternate.

mod index_removal;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::model::crawl_status::CrawlStatus;
use crate::model::failure_kind::FailureKind;
use crate::model::intent::Intent;
use crate::model::removal::RemovalOutcome;

use super::event::{LedgerEvent, LedgerEventKind, LedgerEventReason};
use super::observation::{
    BadOutcome, DeliveredDocument, ObservationOutcome, ObservedRefusal, ObservedResponse,
    RefusalRecording, UrlObservation,
};
use super::record::{IndexState, LedgerRecord, RecordStatus, UnixMillis, VisitState};
use super::removal::{RemovalCause, RemovalSchedule};
use index_removal::{apply_bad_outcome, is_due, remove_from_index, settle_pending_removal};

/// OmniFind's code for "excluded, but in another crawler's space".
const MOVED_CODE: u16 = 761;
/// A refusal that changes nothing is not written again within this interval.
const REPEAT_INTERVAL: Duration = Duration::from_secs(3600);
/// Bad outcomes within this time of the first one count as one: crawlers repeat a failed request at
/// once.
const RETRY_WINDOW: Duration = Duration::from_secs(600);

/// The configured tolerance of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorTolerance {
    /// The number of consecutive temporary errors that is too many: `ledger.temporary_errors`.
    pub temporary_errors: u32,
}

/// The effect of an observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerTransition {
    /// The new record; `None` if the record does not change, or if none is created.
    pub record: Option<LedgerRecord>,
    /// The event for the feed, if there is one.
    pub event: Option<LedgerEvent>,
}

/// Applies an observation to a URL's record.
pub fn apply_observation(
    before: Option<&LedgerRecord>,
    observation: UrlObservation,
    tolerance: ErrorTolerance,
    schedule: RemovalSchedule,
) -> LedgerTransition {
    let UrlObservation {
        at,
        url,
        crawler,
        space,
        depth,
        address,
        source,
        revision,
        rule,
        intent,
        user_agent,
        outcome,
    } = observation;
    let context = EventContext {
        at,
        status: match &outcome {
            ObservationOutcome::Answered(response) => Some(response.status),
            ObservationOutcome::Failed { .. }
            | ObservationOutcome::Refused(_)
            | ObservationOutcome::SweptRefusal(_)
            | ObservationOutcome::Allowed
            | ObservationOutcome::PendingRemoval(..) => None,
        },
        user_agent,
        rule,
        revision,
        schedule,
    };
    let observed = ObservedUrl {
        url,
        crawler,
        space,
        depth,
        address,
        source,
    };
    let loss = LossChange::new(&outcome, intent);
    let mut transition = match outcome {
        ObservationOutcome::Answered(response) => {
            apply_response(before, observed, &context, response, tolerance)
        }
        ObservationOutcome::Failed {
            failure,
            code,
            removal,
        } => {
            let mut record = updated_record(before, observed, at);
            record.status = RecordStatus(CrawlStatus::Error);
            record.code = code;
            let removal = BadOutcome {
                outcome: RemovalOutcome::Error,
                action: removal,
            };
            apply_failure(record, &context, failure, Some(removal), tolerance)
        }
        ObservationOutcome::Refused(refusal) => {
            apply_refusal(before, observed, &context, refusal, loss)
        }
        ObservationOutcome::SweptRefusal(refusal) => {
            apply_swept_refusal(before, observed, &context, refusal)
        }
        ObservationOutcome::Allowed => apply_allowed(before, &context),
        ObservationOutcome::PendingRemoval(pending, decision) => {
            settle_pending_removal(before, &context, &pending, decision)
        }
    };
    if let Some(record) = &mut transition.record {
        match loss {
            LossChange::Lost => record.lost = Some(at),
            LossChange::Obtained => record.lost = None,
            LossChange::Unchanged => {}
        }
    }
    transition
}

/// The effect of an observation on [`LedgerRecord::lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LossChange {
    Lost,
    Obtained,
    Unchanged,
}

impl LossChange {
    fn new(outcome: &ObservationOutcome, intent: Option<Intent>) -> Self {
        match outcome {
            ObservationOutcome::Failed { .. } => Self::Lost,
            _ if intent == Some(Intent::Later) => Self::Lost,
            ObservationOutcome::Refused(_)
            | ObservationOutcome::SweptRefusal(_)
            | ObservationOutcome::Allowed
            | ObservationOutcome::PendingRemoval(..) => Self::Unchanged,
            ObservationOutcome::Answered(response) => match response.status {
                429 | 500..=599 => Self::Lost,
                _ => Self::Obtained,
            },
        }
    }
}

/// The part of every observation that describes the URL.
struct ObservedUrl {
    url: Arc<str>,
    crawler: Arc<str>,
    space: Option<Arc<str>>,
    depth: Option<u32>,
    address: Option<IpAddr>,
    source: Option<Arc<str>>,
}

/// The part of an observation that goes into an event.
struct EventContext {
    at: UnixMillis,
    /// The origin's status, if the observation is its answer. The status of an earlier answer does
    /// not explain this event.
    status: Option<u16>,
    /// The `User-Agent` of a request that robots.txt refuses.
    user_agent: Option<Arc<str>>,
    rule: Option<Arc<str>>,
    revision: Arc<str>,
    schedule: RemovalSchedule,
}

/// Returns the record with the observed URL merged in.
fn updated_record(
    before: Option<&LedgerRecord>,
    observed: ObservedUrl,
    at: UnixMillis,
) -> LedgerRecord {
    let ObservedUrl {
        url,
        crawler,
        space,
        depth,
        address,
        source,
    } = observed;
    let Some(before) = before else {
        return LedgerRecord {
            space,
            depth,
            address,
            source,
            ..LedgerRecord::new(crawler, url, at)
        };
    };
    LedgerRecord {
        crawler,
        url,
        last_seen: at,
        space,
        address: address.or(before.address),
        depth: before.depth.into_iter().chain(depth).min(),
        source: source.or_else(|| before.source.clone()),
        ..before.clone()
    }
}

fn apply_response(
    before: Option<&LedgerRecord>,
    observed: ObservedUrl,
    context: &EventContext,
    response: ObservedResponse,
    tolerance: ErrorTolerance,
) -> LedgerTransition {
    if before.is_none()
        && response.failure.is_none()
        && response.recording == RefusalRecording::Skip
    {
        return unchanged_record();
    }
    let mut record = updated_record(before, observed, context.at);
    record.origin_status = Some(response.status);
    record.status = RecordStatus(response.crawl_status);
    record.code = response.code;
    record.refused_unasked = false;
    if let Some(failure) = response.failure {
        if record.visit_state == VisitState::RefusedOnly {
            record.visit_state = VisitState::Answered;
        }
        return apply_failure(record, context, failure, response.removal, tolerance);
    }
    record.visit_state = VisitState::Answered;
    record.temporary_errors = 0;
    record.error = None;
    if let Some(bad) = response.removal {
        if response.document.is_some() {
            // Only its links were delivered: the index gets nothing, and the URL is fetched again in time.
            record.last_fetched = Some(context.at);
        }
        let event = apply_bad_outcome(&mut record, context, bad);
        return changed_record(record, event);
    }
    let is_accepted = response.crawl_status == CrawlStatus::Accepted;
    // Other outcomes are neither good nor bad: for example 412.
    if is_accepted || response.crawl_status == CrawlStatus::Unmodified {
        record.kept_since = None;
        // A 304 or a redirect does not say that a page may be indexed again.
        let has_document = response.document.is_some();
        record.pending_removal.take_if(|pending| {
            has_document || !matches!(pending.cause, RemovalCause::Noindex { .. })
        });
    }
    let event = is_accepted
        .then(|| record_delivery(&mut record, context, response.document))
        .flatten();
    changed_record(record, event)
}

/// Records a delivered answer. Only a completely delivered document replaces the last one.
fn record_delivery(
    record: &mut LedgerRecord,
    context: &EventContext,
    document: Option<DeliveredDocument>,
) -> Option<LedgerEvent> {
    let Some(DeliveredDocument {
        validators,
        content_hash,
        content_type,
        size,
    }) = document
    else {
        // A URL that was removed from the index returns with a document, not with a 304 or a redirect.
        if record.index_state == IndexState::Never {
            record.index_state = IndexState::Possible;
        }
        return None;
    };
    let was_removed = matches!(record.index_state, IndexState::Removed { .. });
    record.index_state = IndexState::Possible;
    let same_content = record.content_hash.is_some() && record.content_hash == content_hash;
    let same = same_content || content_hash.is_none() && record.validators == validators;
    if !same || record.last_fetched.is_none() {
        record.last_changed = Some(context.at);
    }
    record.last_fetched = Some(context.at);
    record.validators = validators;
    record.content_hash = content_hash;
    record.content_type = content_type;
    record.size = size;
    was_removed.then(|| {
        let reason = LedgerEventReason::Fetched;
        new_event(record, context, LedgerEventKind::Restored, reason)
    })
}

fn apply_failure(
    mut record: LedgerRecord,
    context: &EventContext,
    failure: FailureKind,
    removal: Option<BadOutcome>,
    tolerance: ErrorTolerance,
) -> LedgerTransition {
    record.last_error = Some(context.at);
    record.error = Some(failure);
    // The request was sent, so robots.txt allows the URL again.
    record
        .pending_removal
        .take_if(|pending| matches!(pending.cause, RemovalCause::RobotsTxt { .. }));
    let is_final = match failure {
        FailureKind::Permanent => true,
        FailureKind::Temporary => {
            record.temporary_errors = record.temporary_errors.saturating_add(1);
            record.temporary_errors >= tolerance.temporary_errors
        }
    };
    if record.may_leave_index() {
        let event = removal
            .filter(|bad| is_due(&mut record, bad.action, is_final, context.at))
            .and_then(|_| {
                let reason = match failure {
                    FailureKind::Permanent => LedgerEventReason::PermanentError,
                    FailureKind::Temporary => LedgerEventReason::TemporaryErrors,
                };
                // A rule that takes pages for errors may be as mistaken as one that excludes them.
                let cause = match context.rule {
                    Some(_) => RemovalCause::Policy {
                        revision: context.revision.clone(),
                    },
                    None => RemovalCause::Page,
                };
                remove_from_index(&mut record, context, cause, reason)
            });
        if event.is_some() {
            record.visit_state = VisitState::Failed;
        }
        return changed_record(record, event);
    }
    let event = match (failure, is_final) {
        (FailureKind::Permanent, _) => report_permanent_error(&mut record, context),
        (FailureKind::Temporary, true) if record.visit_state == VisitState::Answered => {
            record.visit_state = VisitState::RefusedOnly;
            None
        }
        (FailureKind::Temporary, true | false) => None,
    };
    changed_record(record, event)
}

/// Reports the permanent error of a URL that is in no index: once, and not after its removal.
fn report_permanent_error(
    record: &mut LedgerRecord,
    context: &EventContext,
) -> Option<LedgerEvent> {
    let is_new =
        record.visit_state != VisitState::Failed && record.index_state == IndexState::Never;
    record.visit_state = VisitState::Failed;
    is_new.then(|| {
        let reason = LedgerEventReason::PermanentError;
        new_event(record, context, LedgerEventKind::PermanentError, reason)
    })
}

fn apply_refusal(
    before: Option<&LedgerRecord>,
    observed: ObservedUrl,
    context: &EventContext,
    refusal: ObservedRefusal,
    loss: LossChange,
) -> LedgerTransition {
    let is_lost = loss == LossChange::Lost;
    if before.is_none() && refusal.recording == RefusalRecording::Skip {
        return unchanged_record();
    }
    let newly_lost = is_lost && before.is_none_or(|before| before.lost.is_none());
    match before {
        Some(before) if !concerns_url(refusal.crawl_status) => {
            return if newly_lost {
                changed_record(before.clone(), None)
            } else {
                unchanged_record()
            };
        }
        None if !is_lost && !concerns_url(refusal.crawl_status) => return unchanged_record(),
        Some(_) | None => {}
    }
    let mut record = updated_record(before, observed, context.at);
    record.status = RecordStatus(refusal.crawl_status);
    record.code = refusal.code;
    record.refused_unasked = true;
    let has_moved = refusal.code == Some(MOVED_CODE)
        && record.may_leave_index()
        && before.is_none_or(|before| before.code != Some(MOVED_CODE));
    let event = if has_moved {
        record.pending_removal = None;
        Some(new_event(
            &record,
            context,
            LedgerEventKind::Moved,
            LedgerEventReason::OtherSpace,
        ))
    } else {
        refusal
            .removal
            .and_then(|bad| apply_bad_outcome(&mut record, context, bad))
    };
    if event.is_none() && !newly_lost && before.is_some_and(|before| is_unchanged(before, &record))
    {
        return unchanged_record();
    }
    changed_record(record, event)
}

/// Returns `true` if a refusal with this status concerns the URL, rather than the host's queue or
/// the client.
fn concerns_url(outcome: CrawlStatus) -> bool {
    use CrawlStatus as Of;
    match outcome {
        Of::Politeness
        | Of::Request
        | Of::Unauthorized
        | Of::Unavailable
        | Of::Error
        | Of::Accepted => false,
        Of::Filter
        | Of::RobotsTxt
        | Of::Usage
        | Of::TooDeep
        | Of::Trap
        | Of::Budget
        | Of::Premature => true,
        Of::Unmodified | Of::Duplicate | Of::Noncanonical | Of::Noindex => true,
        Of::NotFound | Of::BadStatus | Of::Import | Of::Address => true,
    }
}

fn is_unchanged(before: &LedgerRecord, record: &LedgerRecord) -> bool {
    let same_time = LedgerRecord {
        last_seen: before.last_seen,
        ..record.clone()
    };
    same_time == *before && record.last_seen.duration_since(before.last_seen) < REPEAT_INTERVAL
}

/// Applies a refusal that the sweep has found. It is no request, so the time of the last one stays.
fn apply_swept_refusal(
    before: Option<&LedgerRecord>,
    observed: ObservedUrl,
    context: &EventContext,
    refusal: ObservedRefusal,
) -> LedgerTransition {
    let Some(before) = before else {
        return unchanged_record();
    };
    let transition = apply_refusal(
        Some(before),
        observed,
        context,
        refusal,
        LossChange::Unchanged,
    );
    let Some(record) = transition.record else {
        return transition;
    };
    let record = LedgerRecord {
        last_seen: before.last_seen,
        ..record
    };
    changed_from(before, record, transition.event)
}

/// Records that the sweep found the policy to allow the URL: takes back an earlier refusal and its
/// code, and a removal that the policy has ordered or that is pending. Refusals by the site, and of
/// responses, stay, since the sweep cannot know them.
fn apply_allowed(before: Option<&LedgerRecord>, context: &EventContext) -> LedgerTransition {
    let Some(before) = before else {
        return unchanged_record();
    };
    let mut record = before.clone();
    record
        .pending_removal
        .take_if(|pending| pending.cause.is_policy());
    let is_restored = before.is_removed_by_policy();
    if is_restored {
        record.index_state = IndexState::Restored;
        record.temporary_errors = 0;
    }
    if before.awaits_permission() {
        record.code = None;
        if record.may_leave_index() && record.is_refused_by_policy() {
            record.status = RecordStatus(CrawlStatus::Accepted);
            record.refused_unasked = false;
        }
    }
    let event = is_restored.then(|| {
        let reason = LedgerEventReason::Allowed;
        new_event(&record, context, LedgerEventKind::Restored, reason)
    });
    changed_from(before, record, event)
}

/// Returns the change to this record, if it is one.
fn changed_from(
    before: &LedgerRecord,
    record: LedgerRecord,
    event: Option<LedgerEvent>,
) -> LedgerTransition {
    if event.is_none() && record == *before {
        return unchanged_record();
    }
    changed_record(record, event)
}

fn changed_record(record: LedgerRecord, event: Option<LedgerEvent>) -> LedgerTransition {
    LedgerTransition {
        record: Some(record),
        event,
    }
}

fn unchanged_record() -> LedgerTransition {
    LedgerTransition {
        record: None,
        event: None,
    }
}

fn new_event(
    record: &LedgerRecord,
    context: &EventContext,
    kind: LedgerEventKind,
    reason: LedgerEventReason,
) -> LedgerEvent {
    LedgerEvent {
        at: context.at,
        kind,
        reason,
        crawler: record.crawler.clone(),
        url: record.url.clone(),
        code: record.code,
        status: context.status,
        rule: context.rule.clone(),
        revision: context.revision.clone(),
    }
}

#[cfg(test)]
mod tests;
