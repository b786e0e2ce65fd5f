//! The transition of a URL's record by an observation, and the event that results, if any.
//!
//! Errors follow CloudView's rules. The error status is recorded; a permanent error on a document
//! that an index may have orders its removal at once, as do too many consecutive temporary errors;
//! and a known URL that fails permanently is forgotten, so that a new link brings it back. Refusals
//! follow OmniFind's codes: 760 removes, 761 keeps.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::model::crawl_status::CrawlStatus;
use crate::model::intent::Intent;

use super::event::{LedgerEvent, LedgerEventKind, LedgerEventReason};
use super::observation::{
    DeliveredDocument, FailureKind, ObservationOutcome, ObservedRefusal, ObservedResponse,
    RefusalRecording, UrlObservation,
};
use super::record::{IndexState, LedgerRecord, RecordStatus, UnixMillis, VisitState};
use super::removal::RemovalCause;

/// OmniFind's code for "excluded, but in another crawler's space".
const MOVED_CODE: u16 = 761;
/// A refusal that changes nothing is not written again within this interval.
const REPEAT_INTERVAL: Duration = Duration::from_secs(3600);

/// The configured tolerance of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorTolerance {
    /// The number of consecutive temporary errors that is too many: `ledger.temporary_errors`.
    pub temporary_errors: u32,
}

/// The change to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one per request, consumed at once"
)]
pub enum RecordUpdate {
    /// The record stays as it is, or there is still none.
    Unchanged,
    /// The record is replaced.
    Changed(LedgerRecord),
    /// The record is deleted.
    Forgotten,
}

/// The effect of an observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerTransition {
    pub update: RecordUpdate,
    /// The event for the feed, if there is one.
    pub event: Option<LedgerEvent>,
}

/// Applies an observation to a URL's record.
pub fn apply_observation(
    before: Option<&LedgerRecord>,
    observation: UrlObservation,
    tolerance: ErrorTolerance,
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
        outcome,
    } = observation;
    let context = EventContext {
        at,
        status: match &outcome {
            ObservationOutcome::Answered(response) => Some(response.status),
            ObservationOutcome::Failed { .. }
            | ObservationOutcome::Refused(_)
            | ObservationOutcome::Allowed => None,
        },
        rule,
        revision,
    };
    let observed = ObservedUrl {
        url,
        crawler,
        space,
        depth,
        address,
        source,
    };
    match outcome {
        ObservationOutcome::Answered(response) => {
            apply_response(before, observed, &context, response, tolerance)
        }
        ObservationOutcome::Failed { failure, code } => {
            let mut record = updated_record(before, observed, at);
            record.status = RecordStatus(CrawlStatus::Error);
            record.code = code;
            apply_failure(before, record, &context, failure, tolerance)
        }
        ObservationOutcome::Refused(refusal) => apply_refusal(before, observed, &context, refusal),
        ObservationOutcome::Allowed => apply_allowed(before),
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
    rule: Option<Arc<str>>,
    revision: Arc<str>,
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
    let mut record = updated_record(before, observed, context.at);
    record.visit_state = VisitState::Answered;
    record.origin_status = Some(response.status);
    record.status = RecordStatus(response.crawl_status);
    record.code = response.code;
    if let Some(failure) = response.failure {
        return apply_failure(before, record, context, failure, tolerance);
    }
    record.temporary_errors = 0;
    if response.crawl_status == CrawlStatus::Accepted {
        record_delivery(&mut record, context.at, response.document);
        return changed_record(record, None);
    }
    let event = remove_refused(&mut record, context, response.intent);
    changed_record(record, event)
}

/// Records a delivered answer. Only a completely delivered document replaces the last one.
fn record_delivery(record: &mut LedgerRecord, at: UnixMillis, document: Option<DeliveredDocument>) {
    // A URL that was removed from the index returns with a document, not with a 304 or a redirect.
    if document.is_some() || record.index_state == IndexState::Never {
        record.index_state = IndexState::Possible;
    }
    let Some(DeliveredDocument {
        validators,
        content_hash,
        content_type,
        size,
    }) = document
    else {
        return;
    };
    let same_content = record.content_hash.is_some() && record.content_hash == content_hash;
    let same = same_content || content_hash.is_none() && record.validators == validators;
    if !same || record.last_fetched.is_none() {
        record.last_changed = Some(at);
    }
    record.last_fetched = Some(at);
    record.validators = validators;
    record.content_hash = content_hash;
    record.content_type = content_type;
    record.size = size;
}

fn apply_failure(
    before: Option<&LedgerRecord>,
    mut record: LedgerRecord,
    context: &EventContext,
    failure: FailureKind,
    tolerance: ErrorTolerance,
) -> LedgerTransition {
    record.last_error = Some(context.at);
    let reason = match failure {
        FailureKind::Permanent => LedgerEventReason::PermanentError,
        FailureKind::Temporary => {
            record.temporary_errors = record.temporary_errors.saturating_add(1);
            if record.temporary_errors < tolerance.temporary_errors {
                return changed_record(record, None);
            }
            LedgerEventReason::TemporaryErrors
        }
    };
    let refreshed = before.is_some_and(LedgerRecord::is_known);
    let removal = remove_from_index(&mut record, context, RemovalCause::Page, reason);
    let removed = removal.is_some();
    let is_first = failure == FailureKind::Permanent && !refreshed;
    let event = removal.or_else(|| {
        is_first.then(|| new_event(&record, context, LedgerEventKind::PermanentError, reason))
    });
    if removed || refreshed || failure == FailureKind::Temporary {
        return LedgerTransition {
            update: RecordUpdate::Forgotten,
            event,
        };
    }
    changed_record(record, event)
}

fn apply_refusal(
    before: Option<&LedgerRecord>,
    observed: ObservedUrl,
    context: &EventContext,
    refusal: ObservedRefusal,
) -> LedgerTransition {
    if !concerns_url(refusal.crawl_status)
        || before.is_none() && refusal.recording == RefusalRecording::Skip
    {
        return unchanged_record();
    }
    let mut record = updated_record(before, observed, context.at);
    record.status = RecordStatus(refusal.crawl_status);
    record.code = refusal.code;
    let has_moved = refusal.code == Some(MOVED_CODE)
        && record.index_state == IndexState::Possible
        && before.is_none_or(|before| before.code != Some(MOVED_CODE));
    let event = if has_moved {
        Some(new_event(
            &record,
            context,
            LedgerEventKind::Moved,
            LedgerEventReason::OtherSpace,
        ))
    } else {
        remove_refused(&mut record, context, Some(refusal.intent))
    };
    if event.is_none() && before.is_some_and(|before| is_unchanged(before, &record)) {
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

/// Removes an indexed URL that a refusal makes leave its index.
fn remove_refused(
    record: &mut LedgerRecord,
    context: &EventContext,
    intent: Option<Intent>,
) -> Option<LedgerEvent> {
    if intent != Some(Intent::Gone) || record.code == Some(MOVED_CODE) {
        return None;
    }
    let cause = RemovalCause::of_refusal(record.status.0, &record.url, &context.revision);
    remove_from_index(record, context, cause, LedgerEventReason::Excluded)
}

/// Orders the removal of an indexed URL, once. Every removal is ordered here.
fn remove_from_index(
    record: &mut LedgerRecord,
    context: &EventContext,
    _cause: RemovalCause,
    reason: LedgerEventReason,
) -> Option<LedgerEvent> {
    if record.index_state != IndexState::Possible {
        return None;
    }
    record.index_state = IndexState::Removed(context.at);
    Some(new_event(
        record,
        context,
        LedgerEventKind::Removal,
        reason,
    ))
}

/// Clears the code of an earlier refusal: the sweep found that the policy allows the URL.
fn apply_allowed(before: Option<&LedgerRecord>) -> LedgerTransition {
    let Some(before) =
        before.filter(|record| record.status.0 == CrawlStatus::Filter && record.code.is_some())
    else {
        return unchanged_record();
    };
    let indexed = before.index_state == IndexState::Possible;
    let status = if indexed {
        RecordStatus(CrawlStatus::Accepted)
    } else {
        before.status
    };
    changed_record(
        LedgerRecord {
            code: None,
            status,
            ..before.clone()
        },
        None,
    )
}

fn changed_record(record: LedgerRecord, event: Option<LedgerEvent>) -> LedgerTransition {
    LedgerTransition {
        update: RecordUpdate::Changed(record),
        event,
    }
}

fn unchanged_record() -> LedgerTransition {
    LedgerTransition {
        update: RecordUpdate::Unchanged,
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
mod tests {
    use super::*;
    use crate::ledger::record::DocumentValidators;

    const THREE: ErrorTolerance = ErrorTolerance {
        temporary_errors: 3,
    };

    fn seen(at: u64, outcome: ObservationOutcome) -> UrlObservation {
        UrlObservation {
            at: UnixMillis(at),
            url: "http://h.test/".into(),
            crawler: "news".into(),
            space: None,
            depth: None,
            address: None,
            source: None,
            revision: "00000000".into(),
            rule: None,
            outcome,
        }
    }

    fn page(etag: &str) -> ObservationOutcome {
        let validators = DocumentValidators {
            etag: Some(etag.into()),
            last_modified: None,
        };
        let document = Some(DeliveredDocument {
            validators,
            size: 10,
            ..DeliveredDocument::default()
        });
        ObservationOutcome::Answered(ObservedResponse {
            document,
            ..status(200, CrawlStatus::Accepted, None)
        })
    }

    fn status(status: u16, outcome: CrawlStatus, failure: Option<FailureKind>) -> ObservedResponse {
        ObservedResponse {
            status,
            crawl_status: outcome,
            intent: None,
            code: None,
            failure,
            document: None,
        }
    }

    fn failed(code: u16, failure: FailureKind) -> ObservationOutcome {
        ObservationOutcome::Answered(status(
            code,
            CrawlStatus::from_origin_status(code),
            Some(failure),
        ))
    }

    fn refused(intent: Intent, code: Option<u16>) -> ObservationOutcome {
        let outcome = CrawlStatus::Filter;
        ObservationOutcome::Refused(ObservedRefusal {
            crawl_status: outcome,
            intent,
            code,
            recording: RefusalRecording::Skip,
        })
    }

    fn gone() -> ObservationOutcome {
        refused(Intent::Gone, Some(760))
    }

    fn moved() -> ObservationOutcome {
        refused(Intent::Keep, Some(761))
    }

    fn changed(before: Option<&LedgerRecord>, observation: UrlObservation) -> LedgerRecord {
        match apply_observation(before, observation, THREE).update {
            RecordUpdate::Changed(record) => record,
            RecordUpdate::Unchanged | RecordUpdate::Forgotten => {
                panic!("the record is not changed")
            }
        }
    }

    /// Returns the record and the kinds and reasons of all events after a sequence of observations.
    fn after(
        outcomes: &[ObservationOutcome],
    ) -> (
        Option<LedgerRecord>,
        Vec<(LedgerEventKind, LedgerEventReason)>,
    ) {
        let mut record = None::<LedgerRecord>;
        let mut events = vec![];
        for (turn, outcome) in outcomes.iter().enumerate() {
            let observation = seen(turn as u64, outcome.clone());
            let transition = apply_observation(record.as_ref(), observation, THREE);
            events.extend(transition.event.map(|event| (event.kind, event.reason)));
            match transition.update {
                RecordUpdate::Unchanged => {}
                RecordUpdate::Changed(changed) => record = Some(changed),
                RecordUpdate::Forgotten => record = None,
            }
        }
        (record, events)
    }

    #[test]
    fn errors_are_classified_as_in_cloudview() {
        use FailureKind::{Permanent, Temporary};
        let removal = |why| vec![(LedgerEventKind::Removal, why)];
        let error = vec![(
            LedgerEventKind::PermanentError,
            LedgerEventReason::PermanentError,
        )];
        for (looks, known, owed) in [
            (vec![page("a")], Some(CrawlStatus::Accepted), vec![]),
            (
                vec![failed(404, Permanent)],
                Some(CrawlStatus::NotFound),
                error.clone(),
            ),
            (
                vec![failed(404, Permanent), failed(404, Permanent)],
                None,
                error.clone(),
            ),
            (
                vec![page("a"), failed(404, Permanent)],
                None,
                removal(LedgerEventReason::PermanentError),
            ),
            (
                vec![page("a"), failed(503, Temporary)],
                Some(CrawlStatus::BadStatus),
                vec![],
            ),
            (
                vec![
                    page("a"),
                    failed(503, Temporary),
                    failed(503, Temporary),
                    failed(503, Temporary),
                ],
                None,
                removal(LedgerEventReason::TemporaryErrors),
            ),
            (
                vec![
                    page("a"),
                    failed(503, Temporary),
                    failed(503, Temporary),
                    page("a"),
                    failed(503, Temporary),
                ],
                Some(CrawlStatus::BadStatus),
                vec![],
            ),
            (vec![failed(503, Temporary); 3], None, vec![]),
            (
                vec![ObservationOutcome::Failed {
                    failure: Temporary,
                    code: Some(613),
                }],
                Some(CrawlStatus::Error),
                vec![],
            ),
        ] {
            let (record, events) = after(&looks);
            assert_eq!(
                (record.map(|record| record.status.0), events),
                (known, owed),
                "{looks:?}"
            );
        }
    }

    #[test]
    fn a_removal_is_ordered_once_until_the_url_is_accepted_again() {
        let (record, events) = after(&[page("a"), gone(), gone()]);
        assert_eq!(
            events,
            [(LedgerEventKind::Removal, LedgerEventReason::Excluded)]
        );
        assert_eq!(
            record.unwrap().index_state,
            IndexState::Removed(UnixMillis(1))
        );
        let (_, events) = after(&[page("a"), gone(), page("b"), gone()]);
        assert_eq!(events.len(), 2);
        // A URL that was never accepted is in no index.
        assert!(
            after(&[failed(404, FailureKind::Permanent), gone()])
                .1
                .iter()
                .all(|(kind, _)| *kind != LedgerEventKind::Removal)
        );
    }

    #[test]
    fn a_removed_url_returns_only_with_a_document() {
        let unchanged = ObservationOutcome::Answered(status(304, CrawlStatus::Accepted, None));
        let (record, _) = after(&[page("a"), gone(), unchanged]);
        assert_eq!(
            record.unwrap().index_state,
            IndexState::Removed(UnixMillis(1))
        );
        let (record, _) = after(&[page("a"), gone(), page("a")]);
        assert_eq!(record.unwrap().index_state, IndexState::Possible);
    }

    #[test]
    fn a_url_of_another_space_is_reported_once_and_stays() {
        let (record, events) = after(&[page("a"), moved(), moved()]);
        assert_eq!(
            events,
            [(LedgerEventKind::Moved, LedgerEventReason::OtherSpace)]
        );
        let record = record.unwrap();
        assert_eq!(
            (record.index_state, record.code),
            (IndexState::Possible, Some(761))
        );
        let (record, events) = after(&[page("a"), moved(), ObservationOutcome::Allowed, moved()]);
        assert_eq!((events.len(), record.unwrap().code), (2, Some(761)));
    }

    #[test]
    fn a_refused_url_is_recorded_only_if_it_is_known_or_logged() {
        assert_eq!(after(&[refused(Intent::Deny, None)]).0, None);
        let logged = ObservationOutcome::Refused(ObservedRefusal {
            crawl_status: CrawlStatus::Filter,
            intent: Intent::Deny,
            code: None,
            recording: RefusalRecording::Keep,
        });
        let (record, _) = after(std::slice::from_ref(&logged));
        assert!(!record.unwrap().is_known());
        let (record, _) = after(&[page("a"), refused(Intent::Deny, None)]);
        assert!(
            record
                .is_some_and(|record| record.is_known() && record.status.0 == CrawlStatus::Filter)
        );
    }

    #[test]
    fn waiting_for_a_turn_does_not_change_the_record() {
        let outcome = CrawlStatus::Politeness;
        let later = ObservedRefusal {
            crawl_status: outcome,
            intent: Intent::Later,
            code: None,
            recording: RefusalRecording::Keep,
        };
        let (record, _) = after(&[page("a"), ObservationOutcome::Refused(later)]);
        assert_eq!(record.unwrap().status.0, CrawlStatus::Accepted);
    }

    #[test]
    fn a_document_has_changed_if_it_differs_from_the_last_one() {
        let (same, _) = after(&[page("a"), page("a")]);
        let same = same.unwrap();
        assert_eq!(
            (same.last_changed, same.last_fetched),
            (Some(UnixMillis(0)), Some(UnixMillis(1)))
        );
        let (other, _) = after(&[page("a"), page("b")]);
        assert_eq!(other.unwrap().last_changed, Some(UnixMillis(1)));
    }

    #[test]
    fn an_observation_keeps_the_facts_that_it_lacks() {
        let address = "192.0.2.7".parse().ok();
        let source = Some(Arc::from("sitemap"));
        let first = changed(
            None,
            UrlObservation {
                address,
                source: source.clone(),
                space: Some("north".into()),
                ..seen(1, page("a"))
            },
        );
        let second = changed(
            Some(&first),
            UrlObservation {
                address: None,
                source: None,
                space: Some("south".into()),
                ..seen(2, page("a"))
            },
        );
        assert_eq!((second.address, &second.source), (address, &source));
        assert_eq!(
            (second.first_seen, second.last_seen),
            (UnixMillis(1), UnixMillis(2))
        );
        assert_eq!(second.space.as_deref(), Some("south"));
    }

    #[test]
    fn the_fewest_links_count() {
        fn record(before: Option<&LedgerRecord>, depth: Option<u32>) -> LedgerRecord {
            let observation = UrlObservation {
                depth,
                ..seen(0, page("a"))
            };
            changed(before, observation)
        }
        let first = record(None, Some(3));
        assert_eq!(record(Some(&first), None).depth, Some(3));
        assert_eq!(record(Some(&first), Some(1)).depth, Some(1));
        assert_eq!(record(Some(&first), Some(5)).depth, Some(3));
    }
}
