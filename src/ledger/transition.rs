//! What a look at a URL makes of its record, and what is owed then: nothing, an event, a removal.
//!
//! Errors go as CloudView sorts them (seed 002, "Error Handling"): the error status is remembered; a permanent one on a
//! document that an index may have orders its removal at once, too many temporary ones do, too; and a URL that fails for
//! good when it is fetched again is forgotten, so that a new link brings it back. Refusals go as OmniFind numbers them
//! (seed 003): 760 removes, 761 keeps.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::vocab::crawl_status::CrawlStatus;
use crate::vocab::intent::Intent;

use super::event::{Event, EventKind, Why};
use super::record::{At, Indexed, Record, Standing, Status};
use super::seen::{Answered, Document, Failing, Noting, Refused, Seen, What};

/// OmniFind's "excluded, but in another crawler's space".
const MOVED: u16 = 761;
/// A refusal that says nothing new is not written down again within this time.
const REPEATED: Duration = Duration::from_secs(3600);

/// What the configuration says of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// So many temporary errors in a row are too many: `ledger.temporary_errors`.
    pub temporary_errors: u32,
}

/// What becomes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each request, and nobody keeps it"
)]
pub enum Kept {
    /// It stays as it is, or there is still none.
    Same,
    /// It is this from now on.
    Changed(Record),
    /// It is forgotten.
    Forgotten,
}

/// What a look comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The record.
    pub kept: Kept,
    /// What is owed to those who keep an index.
    pub owed: Option<Event>,
}

/// Takes a look into account.
pub fn note(before: Option<&Record>, seen: Seen, tolerance: Tolerance) -> Noted {
    let Seen {
        at,
        url,
        crawler,
        space,
        depth,
        address,
        source,
        revision,
        rule,
        what,
    } = seen;
    let look = Look {
        url,
        crawler,
        space,
        depth,
        address,
        source,
    };
    let told = |status| Told {
        at,
        status,
        rule,
        revision,
    };
    match what {
        What::Answered(answered) => answer(
            before,
            look,
            told(Some(answered.status)),
            answered,
            tolerance,
        ),
        What::Failed { failing, code } => {
            let told = told(None);
            let mut record = looked_at(before, look, at);
            record.status = Status(CrawlStatus::Error);
            record.code = code;
            fail(before, record, &told, failing, tolerance)
        }
        What::Refused(refused) => refuse(before, look, &told(None), refused),
        What::Allowed => allow(before),
    }
}

/// What every look tells of a URL.
struct Look {
    url: Arc<str>,
    crawler: Arc<str>,
    space: Option<Arc<str>>,
    depth: Option<u32>,
    address: Option<IpAddr>,
    source: Option<Arc<str>>,
}

/// What is told of a look with an event.
struct Told {
    at: At,
    /// The origin's status, if what was seen is its answer: that of an earlier one says nothing of this.
    status: Option<u16>,
    rule: Option<Arc<str>>,
    revision: Arc<str>,
}

/// The record, with what every look tells.
fn looked_at(before: Option<&Record>, look: Look, at: At) -> Record {
    let Look {
        url,
        crawler,
        space,
        depth,
        address,
        source,
    } = look;
    let Some(before) = before else {
        return Record {
            space,
            depth,
            address,
            source,
            ..Record::new(crawler, url, at)
        };
    };
    Record {
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

fn answer(
    before: Option<&Record>,
    look: Look,
    told: Told,
    answered: Answered,
    tolerance: Tolerance,
) -> Noted {
    let mut record = looked_at(before, look, told.at);
    record.standing = Standing::Entered;
    record.origin_status = Some(answered.status);
    record.status = Status(answered.outcome);
    record.code = answered.code;
    if let Some(failing) = answered.failing {
        return fail(before, record, &told, failing, tolerance);
    }
    record.temporary_errors = 0;
    if answered.outcome == CrawlStatus::Accepted {
        deliver(&mut record, told.at, answered.document);
        return changed(record, None);
    }
    let owed = exclude(&mut record, &told, answered.intent, answered.code);
    changed(record, owed)
}

/// An answer was passed on. Only a document that was delivered whole is the last one from now on.
fn deliver(record: &mut Record, at: At, document: Option<Document>) {
    // What had to leave the index comes back with a document, and not with a 304 or a redirection.
    if document.is_some() || record.indexed == Indexed::Never {
        record.indexed = Indexed::Perhaps;
    }
    let Some(Document {
        validators,
        content,
        content_type,
        size,
    }) = document
    else {
        return;
    };
    let same_content = record.content.is_some() && record.content == content;
    let same = same_content || content.is_none() && record.validators == validators;
    if !same || record.last_fetched.is_none() {
        record.last_changed = Some(at);
    }
    record.last_fetched = Some(at);
    record.validators = validators;
    record.content = content;
    record.content_type = content_type;
    record.size = size;
}

fn fail(
    before: Option<&Record>,
    mut record: Record,
    told: &Told,
    failing: Failing,
    tolerance: Tolerance,
) -> Noted {
    record.last_error = Some(told.at);
    let why = match failing {
        Failing::Permanent => Why::PermanentError,
        Failing::Temporary => {
            record.temporary_errors = record.temporary_errors.saturating_add(1);
            if record.temporary_errors < tolerance.temporary_errors {
                return changed(record, None);
            }
            Why::TemporaryErrors
        }
    };
    let indexed = record.indexed == Indexed::Perhaps;
    let refreshed = before.is_some_and(Record::is_known);
    let kind = if indexed {
        EventKind::Removal
    } else {
        EventKind::PermanentError
    };
    let first = failing == Failing::Permanent && !refreshed;
    let owed = (indexed || first).then(|| event(&record, told, kind, why));
    if indexed || refreshed || failing == Failing::Temporary {
        return Noted {
            kept: Kept::Forgotten,
            owed,
        };
    }
    changed(record, owed)
}

fn refuse(before: Option<&Record>, look: Look, told: &Told, refused: Refused) -> Noted {
    let nothing = Noted {
        kept: Kept::Same,
        owed: None,
    };
    if !is_about_the_url(refused.outcome) || before.is_none() && refused.record == Noting::Skip {
        return nothing;
    }
    let mut record = looked_at(before, look, told.at);
    record.status = Status(refused.outcome);
    record.code = refused.code;
    let moved = refused.code == Some(MOVED)
        && record.indexed == Indexed::Perhaps
        && before.is_none_or(|before| before.code != Some(MOVED));
    let owed = if moved {
        Some(event(&record, told, EventKind::Moved, Why::OtherSpace))
    } else {
        exclude(&mut record, told, Some(refused.intent), refused.code)
    };
    if owed.is_none() && before.is_some_and(|before| says_nothing_new(before, &record)) {
        return nothing;
    }
    changed(record, owed)
}

/// Refusals for want of a turn, or for what the client did, say nothing of the URL.
fn is_about_the_url(outcome: CrawlStatus) -> bool {
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

fn says_nothing_new(before: &Record, record: &Record) -> bool {
    let unmoved = Record {
        last_seen: before.last_seen,
        ..record.clone()
    };
    unmoved == *before && record.last_seen.since(before.last_seen) < REPEATED
}

/// A URL that must leave the index does so once.
fn exclude(
    record: &mut Record,
    told: &Told,
    intent: Option<Intent>,
    code: Option<u16>,
) -> Option<Event> {
    let leaves = intent == Some(Intent::Gone) && code != Some(MOVED);
    if !leaves || record.indexed != Indexed::Perhaps {
        return None;
    }
    record.indexed = Indexed::Removed(told.at);
    Some(event(record, told, EventKind::Removal, Why::Excluded))
}

/// The sweep finds a URL in its space: a code of an earlier one holds no more.
fn allow(before: Option<&Record>) -> Noted {
    let same = Noted {
        kept: Kept::Same,
        owed: None,
    };
    let Some(before) = before.filter(|record| record.status.0 == CrawlStatus::Filter) else {
        return same;
    };
    if before.code.is_none() {
        return same;
    }
    let indexed = before.indexed == Indexed::Perhaps;
    let status = if indexed {
        Status(CrawlStatus::Accepted)
    } else {
        before.status
    };
    changed(
        Record {
            code: None,
            status,
            ..before.clone()
        },
        None,
    )
}

fn changed(record: Record, owed: Option<Event>) -> Noted {
    Noted {
        kept: Kept::Changed(record),
        owed,
    }
}

fn event(record: &Record, told: &Told, kind: EventKind, why: Why) -> Event {
    Event {
        at: told.at,
        kind,
        why,
        crawler: record.crawler.clone(),
        url: record.url.clone(),
        code: record.code,
        status: told.status,
        rule: told.rule.clone(),
        revision: told.revision.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::record::Validators;

    const THREE: Tolerance = Tolerance {
        temporary_errors: 3,
    };

    fn seen(at: u64, what: What) -> Seen {
        Seen {
            at: At(at),
            url: "http://h.test/".into(),
            crawler: "news".into(),
            space: None,
            depth: None,
            address: None,
            source: None,
            revision: "00000000".into(),
            rule: None,
            what,
        }
    }

    fn page(etag: &str) -> What {
        let validators = Validators {
            etag: Some(etag.into()),
            last_modified: None,
        };
        let document = Some(Document {
            validators,
            size: 10,
            ..Document::default()
        });
        What::Answered(Answered {
            document,
            ..status(200, CrawlStatus::Accepted, None)
        })
    }

    fn status(status: u16, outcome: CrawlStatus, failing: Option<Failing>) -> Answered {
        Answered {
            status,
            outcome,
            intent: None,
            code: None,
            failing,
            document: None,
        }
    }

    fn failed(code: u16, failing: Failing) -> What {
        What::Answered(status(code, CrawlStatus::of_origin(code), Some(failing)))
    }

    fn refused(intent: Intent, code: Option<u16>) -> What {
        let outcome = CrawlStatus::Filter;
        What::Refused(Refused {
            outcome,
            intent,
            code,
            record: Noting::Skip,
        })
    }

    /// What is left after these looks, and which events were owed on the way.
    fn after(looks: &[What]) -> (Option<Record>, Vec<(EventKind, Why)>) {
        let (mut record, mut owed) = (None::<Record>, vec![]);
        for (turn, what) in looks.iter().enumerate() {
            let noted = note(record.as_ref(), seen(turn as u64, what.clone()), THREE);
            owed.extend(noted.owed.map(|event| (event.kind, event.why)));
            match noted.kept {
                Kept::Same => {}
                Kept::Changed(changed) => record = Some(changed),
                Kept::Forgotten => record = None,
            }
        }
        (record, owed)
    }

    #[test]
    fn errors_go_as_cloudview_sorts_them() {
        use Failing::{Permanent, Temporary};
        let removal = |why| vec![(EventKind::Removal, why)];
        let error = vec![(EventKind::PermanentError, Why::PermanentError)];
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
                removal(Why::PermanentError),
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
                removal(Why::TemporaryErrors),
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
                vec![What::Failed {
                    failing: Temporary,
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
        let gone = || refused(Intent::Gone, Some(760));
        let (record, owed) = after(&[page("a"), gone(), gone()]);
        assert_eq!(owed, [(EventKind::Removal, Why::Excluded)]);
        assert_eq!(record.unwrap().indexed, Indexed::Removed(At(1)));
        let (_, owed) = after(&[page("a"), gone(), page("b"), gone()]);
        assert_eq!(owed.len(), 2);
        // What was never accepted is in no index.
        assert!(
            after(&[failed(404, Failing::Permanent), gone()])
                .1
                .iter()
                .all(|(kind, _)| *kind != EventKind::Removal)
        );
    }

    #[test]
    fn what_was_removed_comes_back_with_a_document_only() {
        let gone = || refused(Intent::Gone, Some(760));
        let unchanged = || What::Answered(status(304, CrawlStatus::Accepted, None));
        let (record, _) = after(&[page("a"), gone(), unchanged()]);
        assert_eq!(record.unwrap().indexed, Indexed::Removed(At(1)));
        let (record, _) = after(&[page("a"), gone(), page("a")]);
        assert_eq!(record.unwrap().indexed, Indexed::Perhaps);
    }

    #[test]
    fn a_url_of_another_space_is_told_of_once_and_stays() {
        let moved = || refused(Intent::Keep, Some(761));
        let (record, owed) = after(&[page("a"), moved(), moved()]);
        assert_eq!(owed, [(EventKind::Moved, Why::OtherSpace)]);
        let record = record.unwrap();
        assert_eq!((record.indexed, record.code), (Indexed::Perhaps, Some(761)));
        let (record, owed) = after(&[page("a"), moved(), What::Allowed, moved()]);
        assert_eq!((owed.len(), record.unwrap().code), (2, Some(761)));
    }

    #[test]
    fn a_refused_url_is_noted_only_if_it_is_known_or_logged() {
        assert_eq!(after(&[refused(Intent::Deny, None)]).0, None);
        let logged = What::Refused(Refused {
            outcome: CrawlStatus::Filter,
            intent: Intent::Deny,
            code: None,
            record: Noting::Keep,
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
    fn waiting_for_a_turn_says_nothing_of_the_url() {
        let outcome = CrawlStatus::Politeness;
        let later = Refused {
            outcome,
            intent: Intent::Later,
            code: None,
            record: Noting::Keep,
        };
        let (record, _) = after(&[page("a"), What::Refused(later)]);
        assert_eq!(record.unwrap().status.0, CrawlStatus::Accepted);
    }

    #[test]
    fn a_document_has_changed_if_it_is_told_from_the_last_one() {
        let (same, _) = after(&[page("a"), page("a")]);
        let same = same.unwrap();
        assert_eq!(
            (same.last_changed, same.last_fetched),
            (Some(At(0)), Some(At(1)))
        );
        let (other, _) = after(&[page("a"), page("b")]);
        assert_eq!(other.unwrap().last_changed, Some(At(1)));
    }

    #[test]
    fn a_look_tells_where_the_url_stands_now_and_keeps_what_it_does_not_tell() {
        let (address, source) = ("192.0.2.7".parse().ok(), Some(Arc::from("sitemap")));
        let look = |at, space: &str| Seen {
            space: Some(space.into()),
            ..seen(at, page("a"))
        };
        let changed = |before: Option<&Record>, seen| match note(before, seen, THREE).kept {
            Kept::Changed(record) => record,
            Kept::Same | Kept::Forgotten => panic!("nothing is kept"),
        };
        let first = changed(
            None,
            Seen {
                address,
                source: source.clone(),
                ..look(1, "north")
            },
        );
        let second = changed(
            Some(&first),
            Seen {
                address: None,
                source: None,
                ..look(2, "south")
            },
        );
        assert_eq!((second.address, &second.source), (address, &source));
        assert_eq!((second.first_seen, second.last_seen), (At(1), At(2)));
        assert_eq!(second.space.as_deref(), Some("south"));
    }

    #[test]
    fn the_fewest_links_count() {
        let deep = |depth| Seen {
            depth,
            ..seen(0, page("a"))
        };
        let record = |before: Option<&Record>, depth| match note(before, deep(depth), THREE).kept {
            Kept::Changed(record) => record,
            Kept::Same | Kept::Forgotten => panic!("nothing is kept"),
        };
        let first = record(None, Some(3));
        assert_eq!(record(Some(&first), None).depth, Some(3));
        assert_eq!(record(Some(&first), Some(1)).depth, Some(1));
        assert_eq!(record(Some(&first), Some(5)).depth, Some(3));
    }
}
