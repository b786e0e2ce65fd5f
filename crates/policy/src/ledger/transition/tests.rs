//! Sequences of observations, and the records and events that they lead to.

use super::super::record::{DocumentValidators, RemovalSource};
use super::super::removal::{PendingRemoval, RemovalDecision};
use super::*;
use crate::model::removal::RemovalAction;

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
        intent: None,
        user_agent: None,
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
        code: None,
        failure,
        removal: failure.map(|failure| match failure {
            FailureKind::Permanent => bad(
                RemovalOutcome::from_origin_status(status),
                RemovalAction::Remove,
            ),
            FailureKind::Temporary => bad(RemovalOutcome::Error, RemovalAction::ByCount),
        }),
        document: None,
        recording: RefusalRecording::Keep,
    }
}

fn bad(outcome: RemovalOutcome, action: RemovalAction) -> BadOutcome {
    BadOutcome { outcome, action }
}

fn failed(code: u16, failure: FailureKind) -> ObservationOutcome {
    ObservationOutcome::Answered(status(
        code,
        CrawlStatus::from_origin_status(code),
        Some(failure),
    ))
}

fn refused(action: RemovalAction, code: Option<u16>) -> ObservationOutcome {
    ObservationOutcome::Refused(ObservedRefusal {
        crawl_status: CrawlStatus::Filter,
        code,
        removal: Some(bad(RemovalOutcome::Rule, action)),
        recording: RefusalRecording::Skip,
    })
}

/// A refusal for now, which creates a record.
fn refused_for_now(at: u64, status: CrawlStatus) -> UrlObservation {
    UrlObservation {
        intent: Some(Intent::Later),
        ..seen(
            at,
            ObservationOutcome::Refused(ObservedRefusal {
                crawl_status: status,
                code: None,
                removal: None,
                recording: RefusalRecording::Keep,
            }),
        )
    }
}

#[test]
fn a_url_is_lost_until_it_is_answered() {
    let broken = ObservationOutcome::Failed {
        failure: FailureKind::Temporary,
        code: None,
        removal: RemovalAction::ByCount,
    };
    for loss in [
        refused_for_now(7, CrawlStatus::Politeness),
        refused_for_now(7, CrawlStatus::RobotsTxt),
        refused_for_now(7, CrawlStatus::Unavailable),
        seen(7, failed(503, FailureKind::Temporary)),
        seen(7, broken),
    ] {
        let lost = changed(None, loss.clone());
        assert_eq!(lost.lost, Some(UnixMillis(7)), "{loss:?}");
        // Another refusal is no answer.
        let denied = changed(Some(&lost), seen(8, refused(RemovalAction::Keep, None)));
        assert_eq!(denied.lost, Some(UnixMillis(7)), "{loss:?}");
        let answered = changed(Some(&lost), seen(9, page("a")));
        assert_eq!(answered.lost, None, "{loss:?}");
        let again = UrlObservation {
            at: UnixMillis(10),
            ..loss.clone()
        };
        let lost_again = changed(Some(&answered), again);
        assert_eq!(lost_again.lost, Some(UnixMillis(10)), "{loss:?}");
    }
    // Because of the host, the record stays as it is otherwise.
    let known = changed(None, seen(1, page("a")));
    let lost = changed(Some(&known), refused_for_now(2, CrawlStatus::Politeness));
    assert_eq!(
        lost,
        LedgerRecord {
            lost: Some(UnixMillis(2)),
            ..known
        }
    );
    // It is not written again for each repetition.
    let again = apply_observation(
        Some(&lost),
        refused_for_now(3, CrawlStatus::Politeness),
        THREE,
        RemovalSchedule::Immediate,
    );
    assert_eq!(again.record, None);
}

fn gone() -> ObservationOutcome {
    refused(RemovalAction::Remove, Some(760))
}

fn moved() -> ObservationOutcome {
    refused(RemovalAction::Keep, Some(761))
}

fn changed(before: Option<&LedgerRecord>, observation: UrlObservation) -> LedgerRecord {
    let schedule = RemovalSchedule::Immediate;
    let transition = apply_observation(before, observation, THREE, schedule);
    transition.record.expect("the record changes")
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
        let transition = apply_observation(
            record.as_ref(),
            observation,
            THREE,
            RemovalSchedule::Immediate,
        );
        events.extend(transition.event.map(|event| (event.kind, event.reason)));
        record = transition.record.or(record);
    }
    (record, events)
}

const REMOVAL: LedgerEventKind = LedgerEventKind::Removal;

#[test]
fn errors_are_classified_as_in_cloudview() {
    use FailureKind::{Permanent, Temporary};
    let removal = |why| vec![(REMOVAL, why)];
    let error = vec![(
        LedgerEventKind::PermanentError,
        LedgerEventReason::PermanentError,
    )];
    for (looks, status, known, owed) in [
        (vec![page("a")], CrawlStatus::Accepted, true, vec![]),
        (
            vec![failed(404, Permanent)],
            CrawlStatus::NotFound,
            false,
            error.clone(),
        ),
        (
            vec![failed(404, Permanent); 3],
            CrawlStatus::NotFound,
            false,
            error.clone(),
        ),
        (
            vec![page("a"), failed(404, Permanent)],
            CrawlStatus::NotFound,
            false,
            removal(LedgerEventReason::PermanentError),
        ),
        (
            vec![page("a"), failed(503, Temporary)],
            CrawlStatus::BadStatus,
            true,
            vec![],
        ),
        (
            vec![
                page("a"),
                failed(503, Temporary),
                failed(503, Temporary),
                failed(503, Temporary),
            ],
            CrawlStatus::BadStatus,
            false,
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
            CrawlStatus::BadStatus,
            true,
            vec![],
        ),
        (
            vec![failed(503, Temporary); 3],
            CrawlStatus::BadStatus,
            false,
            vec![],
        ),
        (
            vec![ObservationOutcome::Failed {
                failure: Temporary,
                code: Some(613),
                removal: RemovalAction::ByCount,
            }],
            CrawlStatus::Error,
            false,
            vec![],
        ),
    ] {
        let (record, events) = after(&looks);
        let record = record.unwrap();
        assert_eq!(
            (record.status.0, record.is_known(), events),
            (status, known, owed),
            "{looks:?}"
        );
    }
}

#[test]
fn an_event_is_sent_once_until_the_state_changes() {
    let lost = || failed(404, FailureKind::Permanent);
    let shaky = || failed(503, FailureKind::Temporary);
    // Never accepted: one report, also if other outcomes come between the errors.
    let (_, events) = after(&[lost(), shaky(), gone(), lost(), shaky(), shaky(), lost()]);
    assert_eq!(
        events,
        [(
            LedgerEventKind::PermanentError,
            LedgerEventReason::PermanentError
        )]
    );
    // Accepted: removed once, restored once.
    let (record, events) = after(&[
        page("a"),
        lost(),
        lost(),
        gone(),
        shaky(),
        lost(),
        page("a"),
        page("a"),
        lost(),
    ]);
    assert_eq!(
        events,
        [
            (REMOVAL, LedgerEventReason::PermanentError),
            (LedgerEventKind::Restored, LedgerEventReason::Fetched),
            (REMOVAL, LedgerEventReason::PermanentError),
        ]
    );
    // The record stays, and a new link counts as that of a new URL.
    assert!(record.is_some_and(|record| !record.is_known() && record.was_answered()));
}

#[test]
fn a_page_that_turns_bad_follows_the_option() {
    use RemovalOutcome as Of;
    for (outcome, crawl_status, why) in [
        (
            Of::Noindex,
            CrawlStatus::Noindex,
            LedgerEventReason::Noindex,
        ),
        (
            Of::Noncanonical,
            CrawlStatus::Noncanonical,
            LedgerEventReason::Noncanonical,
        ),
        (
            Of::Duplicate,
            CrawlStatus::Duplicate,
            LedgerEventReason::Duplicate,
        ),
        (
            Of::TooLarge,
            CrawlStatus::Import,
            LedgerEventReason::TooLarge,
        ),
        (Of::Rule, CrawlStatus::Filter, LedgerEventReason::Excluded),
    ] {
        for (action, owed) in [
            (RemovalAction::Keep, vec![]),
            (RemovalAction::Remove, vec![(REMOVAL, why)]),
            (RemovalAction::OnceMore, vec![]),
        ] {
            let answer = ObservationOutcome::Answered(ObservedResponse {
                removal: Some(bad(outcome, action)),
                ..status(200, crawl_status, None)
            });
            let (record, events) = after(&[page("a"), answer.clone(), answer]);
            assert_eq!(events, owed, "{outcome:?} {action:?}");
            assert!(record.is_some_and(|record| record.is_known()));
        }
    }
    let refusal = ObservationOutcome::Refused(ObservedRefusal {
        crawl_status: CrawlStatus::RobotsTxt,
        code: Some(740),
        removal: Some(bad(Of::RobotsTxt, RemovalAction::Remove)),
        recording: RefusalRecording::Skip,
    });
    // The policy cannot take back what the site has caused.
    let (record, events) = after(&[page("a"), refusal, ObservationOutcome::Allowed]);
    assert_eq!(events, [(REMOVAL, LedgerEventReason::RobotsTxt)]);
    assert!(record.is_some_and(|record| record.lacks_document()));
}

/// Returns the events of observations at these minutes.
fn events_at(observations: &[(u64, ObservationOutcome)]) -> Vec<LedgerEventReason> {
    let mut record = None::<LedgerRecord>;
    let mut events = vec![];
    for (minute, outcome) in observations {
        let observation = seen(minute * 60_000, outcome.clone());
        let transition = apply_observation(
            record.as_ref(),
            observation,
            THREE,
            RemovalSchedule::Immediate,
        );
        events.extend(transition.event.map(|event| event.reason));
        if let Some(changed) = transition.record {
            record = Some(changed);
        }
    }
    events
}

#[test]
fn a_page_that_is_kept_once_more_leaves_after_the_second_bad_outcome() {
    let shaken = || {
        ObservationOutcome::Answered(ObservedResponse {
            removal: Some(bad(RemovalOutcome::BadStatus, RemovalAction::OnceMore)),
            ..status(500, CrawlStatus::BadStatus, Some(FailureKind::Permanent))
        })
    };
    let excluded = || refused(RemovalAction::OnceMore, None);
    let not_modified = || {
        let outcome = CrawlStatus::Accepted;
        ObservationOutcome::Answered(status(304, outcome, None))
    };
    let removed = [LedgerEventReason::PermanentError];
    assert_eq!(events_at(&[(0, page("a")), (60, shaken())]), []);
    assert_eq!(
        events_at(&[(0, page("a")), (60, shaken()), (120, shaken())]),
        removed
    );
    // Repetitions of one attempt are one outcome.
    assert_eq!(
        events_at(&[
            (0, page("a")),
            (60, shaken()),
            (61, shaken()),
            (62, shaken())
        ]),
        []
    );
    // A good outcome between them, also without a document.
    for good in [page("a"), not_modified()] {
        assert_eq!(
            events_at(&[(0, page("a")), (60, shaken()), (70, good), (120, shaken())]),
            []
        );
    }
    // Bad outcomes of different kinds count together; those that keep the page do not count.
    assert_eq!(
        events_at(&[(0, page("a")), (60, shaken()), (120, excluded())]),
        [LedgerEventReason::Excluded]
    );
    let kept = refused(RemovalAction::Keep, None);
    assert_eq!(
        events_at(&[
            (0, page("a")),
            (60, kept.clone()),
            (120, shaken()),
            (180, kept)
        ]),
        []
    );
}

#[test]
fn a_removal_is_ordered_once_until_the_url_is_accepted_again() {
    let (record, events) = after(&[page("a"), gone(), gone()]);
    assert_eq!(events, [(REMOVAL, LedgerEventReason::Excluded)]);
    assert_eq!(
        record.unwrap().index_state,
        IndexState::Removed {
            at: UnixMillis(1),
            by: RemovalSource::Policy
        }
    );
    let (_, events) = after(&[page("a"), gone(), page("b"), gone()]);
    assert_eq!(events.len(), 3);
    // A URL that was never accepted is in no index.
    assert!(
        after(&[failed(404, FailureKind::Permanent), gone()])
            .1
            .iter()
            .all(|(kind, _)| *kind != REMOVAL)
    );
}

#[test]
fn a_removed_url_returns_only_with_a_document() {
    let unchanged = ObservationOutcome::Answered(status(304, CrawlStatus::Accepted, None));
    let (record, events) = after(&[page("a"), gone(), unchanged]);
    assert!(record.unwrap().is_removed_by_policy());
    assert_eq!(events.len(), 1);
    let (record, events) = after(&[page("a"), gone(), page("a")]);
    assert_eq!(record.unwrap().index_state, IndexState::Possible);
    assert_eq!(
        events[1..],
        [(LedgerEventKind::Restored, LedgerEventReason::Fetched)]
    );
}

#[test]
fn a_url_that_the_policy_allows_again_is_restored_once_and_lacks_its_document() {
    let allowed = ObservationOutcome::Allowed;
    let restored = (LedgerEventKind::Restored, LedgerEventReason::Allowed);
    let (record, events) = after(&[page("a"), gone(), allowed.clone(), allowed.clone()]);
    assert_eq!(events[1..], [restored]);
    let record = record.unwrap();
    assert_eq!(
        (record.code, record.status.0, record.lacks_document()),
        (None, CrawlStatus::Accepted, true)
    );
    let (record, events) = after(&[page("a"), gone(), allowed.clone(), page("a")]);
    assert_eq!(events[1..], [restored]);
    assert!(!record.unwrap().lacks_document());
    let (_, events) = after(&[page("a"), gone(), allowed.clone(), gone(), allowed]);
    let removed = (REMOVAL, LedgerEventReason::Excluded);
    assert_eq!(events, [removed, restored, removed, restored]);
}

/// The state of a URL that the events so far imply, by the rules of docs/ledger.md alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlainState {
    /// In no index, and nothing was reported.
    New,
    /// Reported as failed, in no index.
    Failed,
    Indexed,
    /// Removed; `true` if the policy has excluded the URL.
    Removed(bool),
}

/// Returns the next state and the event, without counting errors: they remove at once.
fn plain_step(
    state: PlainState,
    outcome: &ObservationOutcome,
) -> (PlainState, Option<LedgerEventKind>) {
    use LedgerEventKind::{PermanentError, Removal, Restored};
    use PlainState::{Failed, Indexed, New, Removed};
    match (outcome, state) {
        (ObservationOutcome::Answered(answer), state) if answer.document.is_some() => {
            let event = matches!(state, Removed(_)).then_some(Restored);
            (Indexed, event)
        }
        (ObservationOutcome::Answered(answer), state) => match (answer.removal, state) {
            (Some(bad), Indexed) if bad.action == RemovalAction::Remove => {
                (Removed(false), Some(Removal))
            }
            (_, New) if answer.failure.is_some() => (Failed, Some(PermanentError)),
            (_, New | Failed) if answer.crawl_status == CrawlStatus::Accepted => (Indexed, None),
            (_, Failed) if answer.failure.is_none() => (New, None),
            (_, state) => (state, None),
        },
        (ObservationOutcome::Refused(refusal), Indexed)
            if refusal
                .removal
                .is_some_and(|bad| bad.action == RemovalAction::Remove) =>
        {
            (Removed(true), Some(Removal))
        }
        (ObservationOutcome::Allowed, Removed(true)) => (Indexed, Some(Restored)),
        (
            ObservationOutcome::Refused(_)
            | ObservationOutcome::SweptRefusal(_)
            | ObservationOutcome::Allowed
            | ObservationOutcome::PendingRemoval(..)
            | ObservationOutcome::Failed { .. },
            state,
        ) => (state, None),
    }
}

#[test]
fn removals_and_restorations_alternate_as_in_a_plain_model() {
    let noindex = |action| {
        ObservationOutcome::Answered(ObservedResponse {
            removal: Some(bad(RemovalOutcome::Noindex, action)),
            ..status(200, CrawlStatus::Noindex, None)
        })
    };
    let outcomes = [
        page("a"),
        page("b"),
        ObservationOutcome::Answered(status(304, CrawlStatus::Accepted, None)),
        failed(404, FailureKind::Permanent),
        failed(500, FailureKind::Permanent),
        noindex(RemovalAction::Remove),
        noindex(RemovalAction::Keep),
        gone(),
        refused(RemovalAction::Keep, None),
        ObservationOutcome::Allowed,
    ];
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..2_000 {
        let (mut record, mut state, mut is_removed) = (None, PlainState::New, false);
        let mut history = vec![];
        for at in 0..30 {
            let outcome = random.choice(&outcomes).unwrap().clone();
            let (next, expected) = plain_step(state, &outcome);
            history.push(outcome.clone());
            let transition = apply_observation(
                record.as_ref(),
                seen(at, outcome),
                THREE,
                RemovalSchedule::Immediate,
            );
            if let Some(changed) = transition.record {
                record = Some(changed);
            }
            let kind = transition.event.map(|event| event.kind);
            assert_eq!(kind, expected, "{history:?}");
            match kind {
                Some(LedgerEventKind::Removal) => assert!(!is_removed, "{history:?}"),
                Some(LedgerEventKind::Restored) => assert!(is_removed, "{history:?}"),
                Some(LedgerEventKind::PermanentError | LedgerEventKind::Moved) | None => {}
            }
            is_removed = matches!(next, PlainState::Removed(_));
            state = next;
        }
    }
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
    assert_eq!(after(&[refused(RemovalAction::Keep, None)]).0, None);
    let logged = ObservationOutcome::Refused(ObservedRefusal {
        crawl_status: CrawlStatus::Filter,
        removal: None,
        code: None,
        recording: RefusalRecording::Keep,
    });
    let (record, _) = after(std::slice::from_ref(&logged));
    assert!(!record.unwrap().is_known());
    let (record, _) = after(&[page("a"), refused(RemovalAction::Keep, None)]);
    assert!(
        record.is_some_and(|record| record.is_known() && record.status.0 == CrawlStatus::Filter)
    );
}

#[test]
fn waiting_for_a_turn_does_not_change_the_record() {
    let outcome = CrawlStatus::Politeness;
    let later = ObservedRefusal {
        crawl_status: outcome,
        removal: None,
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

/// Returns the record after a sequence of observations, if removals have a grace time.
fn pending_after(outcomes: &[ObservationOutcome]) -> LedgerRecord {
    let mut record = None::<LedgerRecord>;
    for (turn, outcome) in outcomes.iter().enumerate() {
        let observation = UrlObservation {
            revision: format!("{turn}").into(),
            ..seen(turn as u64, outcome.clone())
        };
        let schedule = RemovalSchedule::Deferred;
        let transition = apply_observation(record.as_ref(), observation, THREE, schedule);
        let kind = transition.event.map(|event| event.kind);
        assert_ne!(kind, Some(LedgerEventKind::Removal), "{outcomes:?}");
        if let Some(changed) = transition.record {
            record = Some(changed);
        }
    }
    record.unwrap()
}

fn by_robots_txt(removal: Option<RemovalAction>) -> ObservationOutcome {
    ObservationOutcome::Refused(ObservedRefusal {
        crawl_status: CrawlStatus::RobotsTxt,
        code: None,
        removal: removal.map(|action| bad(RemovalOutcome::RobotsTxt, action)),
        recording: RefusalRecording::Skip,
    })
}

fn noindex(action: RemovalAction) -> ObservationOutcome {
    ObservationOutcome::Answered(ObservedResponse {
        removal: Some(bad(RemovalOutcome::Noindex, action)),
        ..status(200, CrawlStatus::Noindex, None)
    })
}

fn not_modified() -> ObservationOutcome {
    ObservationOutcome::Answered(status(304, CrawlStatus::Accepted, None))
}

#[test]
fn a_restored_url_of_another_crawler_has_moved() {
    let removed = changed(Some(&changed(None, seen(1, page("a")))), seen(2, gone()));
    let restored = changed(Some(&removed), seen(3, ObservationOutcome::Allowed));
    assert_eq!(restored.index_state, IndexState::Restored);
    let transition = apply_observation(
        Some(&restored),
        seen(4, moved()),
        THREE,
        RemovalSchedule::Immediate,
    );
    assert_eq!(transition.event.unwrap().kind, LedgerEventKind::Moved);
}

#[test]
fn a_deferred_removal_is_pending_until_its_cause_no_longer_applies() {
    use RemovalAction::{Keep, Remove};
    let robots = |action| by_robots_txt(Some(action));
    // It cannot be fetched.
    let later = by_robots_txt(None);
    let keep = refused(Keep, None);
    let robots_cause = "robots_txt:h.test";
    for (last, pending) in [
        // By the policy: another revision keeps the time, and what it allows or keeps cancels it.
        (vec![gone()], Some(("policy:1", 1))),
        (vec![gone(), gone()], Some(("policy:2", 1))),
        (vec![gone(), moved()], None),
        (vec![gone(), keep.clone()], None),
        (vec![gone(), ObservationOutcome::Allowed], None),
        (vec![gone(), page("b")], None),
        (vec![gone(), robots(Keep)], None),
        (
            vec![gone(), failed(503, FailureKind::Temporary)],
            Some(("policy:1", 1)),
        ),
        // By the site: the policy says nothing about it.
        (vec![robots(Remove)], Some((robots_cause, 1))),
        (
            vec![robots(Remove), ObservationOutcome::Allowed, keep],
            Some((robots_cause, 1)),
        ),
        (
            vec![robots(Remove), later, robots(Remove)],
            Some((robots_cause, 1)),
        ),
        (vec![robots(Remove), robots(Keep)], None),
        (
            vec![robots(Remove), noindex(Remove)],
            Some(("noindex:h.test", 2)),
        ),
        // It was requested, so robots.txt allowed it.
        (
            vec![robots(Remove), failed(503, FailureKind::Temporary)],
            None,
        ),
        (vec![noindex(Remove), noindex(Keep)], None),
        (vec![noindex(Remove), gone()], Some(("policy:2", 2))),
        // A 304 has no document that could be free of noindex.
        (
            vec![noindex(Remove), not_modified()],
            Some(("noindex:h.test", 1)),
        ),
        (vec![noindex(Remove), page("b")], None),
    ] {
        let record = pending_after(&[vec![page("a")], last.clone()].concat());
        assert_eq!(record.index_state, IndexState::Possible, "{last:?}");
        let found = record
            .pending_removal
            .map(|pending| (pending.cause.to_string(), pending.since.0));
        let expected = pending.map(|(cause, since)| (cause.to_owned(), since));
        assert_eq!(found, expected, "{last:?}");
    }
    // An error that only a rule takes for one may be a mistake of the policy.
    let indexed = pending_after(&[page("a")]);
    let by_rule = UrlObservation {
        rule: Some("soft-errors".into()),
        ..seen(9, failed(404, FailureKind::Permanent))
    };
    let deferred = apply_observation(Some(&indexed), by_rule, THREE, RemovalSchedule::Deferred);
    assert_eq!(deferred.event, None);
    // A page alone has no grace time.
    let before = pending_after(&[page("a"), gone()]);
    let removal = apply_observation(
        Some(&before),
        seen(9, failed(404, FailureKind::Permanent)),
        THREE,
        RemovalSchedule::Deferred,
    );
    assert_eq!(removal.event.unwrap().kind, LedgerEventKind::Removal);
}

#[test]
fn a_pending_removal_is_decided_once_and_only_while_it_is_the_same() {
    let before = pending_after(&[page("a"), noindex(RemovalAction::Remove)]);
    let pending = before.pending_removal.clone().unwrap();
    let decide = |record: &LedgerRecord, pending: &PendingRemoval, decision| {
        let outcome = ObservationOutcome::PendingRemoval(Box::new(pending.clone()), decision);
        let schedule = RemovalSchedule::Deferred;
        apply_observation(Some(record), seen(9, outcome), THREE, schedule)
    };
    for decision in [RemovalDecision::Order, RemovalDecision::OrderConfirmed] {
        let ordered = decide(&before, &pending, decision);
        let event = ordered.event.unwrap();
        assert_eq!(
            (event.at, event.kind, event.status, &*event.revision),
            (UnixMillis(9), LedgerEventKind::Removal, Some(200), "1")
        );
        let Some(removed) = ordered.record else {
            panic!("the record stays")
        };
        let by_site = IndexState::Removed {
            at: UnixMillis(9),
            by: RemovalSource::Site,
        };
        assert_eq!(removed.index_state, by_site);
        assert_eq!(decide(&removed, &pending, decision), unchanged_record());
    }
    let canceled = decide(&before, &pending, RemovalDecision::Cancel);
    assert_eq!(canceled.event, None);
    let earlier = PendingRemoval {
        since: UnixMillis(0),
        ..*pending
    };
    let mistaken = decide(&before, &earlier, RemovalDecision::Order);
    assert_eq!(mistaken, unchanged_record());
}

#[test]
fn a_sweep_is_no_request_and_takes_back_only_what_it_can_know() {
    let refusal = |crawl_status| {
        ObservationOutcome::SweptRefusal(ObservedRefusal {
            crawl_status,
            code: None,
            removal: Some(bad(RemovalOutcome::Rule, RemovalAction::Keep)),
            recording: RefusalRecording::Skip,
        })
    };
    let (record, _) = after(&[page("a"), refusal(CrawlStatus::Filter)]);
    let record = record.unwrap();
    assert_eq!(
        (record.status.0, record.last_seen),
        (CrawlStatus::Filter, UnixMillis(0))
    );
    assert_eq!(after(&[refusal(CrawlStatus::Filter)]).0, None);
    let by_type = ObservationOutcome::Answered(ObservedResponse {
        removal: Some(bad(RemovalOutcome::Rule, RemovalAction::Keep)),
        ..status(200, CrawlStatus::Filter, None)
    });
    for (refusal, status) in [
        (refusal(CrawlStatus::Filter), CrawlStatus::Accepted),
        (refusal(CrawlStatus::TooDeep), CrawlStatus::Accepted),
        (refused(RemovalAction::Keep, None), CrawlStatus::Accepted),
        (by_type, CrawlStatus::Filter),
        (
            by_robots_txt(Some(RemovalAction::Keep)),
            CrawlStatus::RobotsTxt,
        ),
    ] {
        let (record, _) = after(&[page("a"), refusal.clone(), ObservationOutcome::Allowed]);
        assert_eq!(record.unwrap().status.0, status, "{refusal:?}");
    }
}
