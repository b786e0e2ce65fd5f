//! What is known of a host's robots.txt from one fetch to the next (RFC 9309 section 2.3.1 and 2.4).
//!
//! How a fetch can end is [`super::ending`]'s. Who fetches, and when, is not here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::vocab::fault::Fault;

use super::ending::{Ending, Meaning};
use super::freshness::{AFTER_NO_TURN, CacheFields, STALE, again_after};
use super::parse::Parsed;

/// What a host's robots.txt means to crawlers.
#[derive(Clone, Debug)]
pub enum Standing {
    /// Its rules hold.
    Rules(Arc<Parsed>),
    /// Everything may be fetched: there is no such file.
    AllowAll,
    /// It cannot be told: the file may exist and could not be had.
    Unknown,
}

/// What a fetch brought.
#[derive(Debug)]
pub struct Fetched<'a> {
    /// How it ended.
    pub ending: Ending,
    /// The status of the last answer, if there was one.
    pub status: Option<u16>,
    /// The text, of [`Ending::File`].
    pub body: &'a [u8],
    /// Whether the answer says that it is HTML.
    pub form: Form,
    /// For how long the answer holds.
    pub cache: CacheFields<'a>,
    /// By what the next fetch may ask whether the file has changed.
    pub validators: Validators<'a>,
    /// What exactly failed, where TLS with the host itself did.
    pub fault: Option<&'static Fault>,
}

/// The fields of an answer by which its file is known again (RFC 9110 section 8.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// `ETag`.
    pub etag: Option<&'a str>,
    /// `Last-Modified`.
    pub last_modified: Option<&'a str>,
}

/// What an answer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// HTML.
    Html,
    /// Anything else: many servers name no type, or a wrong one.
    Other,
}

impl Fetched<'_> {
    /// A fetch that brought no answer.
    pub fn failed(ending: Ending) -> Self {
        Self {
            ending,
            status: None,
            body: &[],
            form: Form::Other,
            cache: CacheFields::default(),
            validators: Validators::default(),
            fault: None,
        }
    }
}

/// `ETag` and `Last-Modified`, kept.
type Marks = (Option<Box<str>>, Option<Box<str>>);

/// What is known of a host's robots.txt.
#[derive(Clone, Debug)]
pub struct Known {
    /// What the last fetch means.
    pub standing: Standing,
    /// How it ended.
    pub ending: Ending,
    /// The status of its last answer.
    pub status: Option<u16>,
    /// What exactly failed, where TLS with the host itself did.
    pub fault: Option<&'static Fault>,
    /// For how long it holds.
    pub holds_for: Duration,
    /// For how long past that it is used while a newer one is fetched.
    holds_on_for: Duration,
    /// `ETag` and `Last-Modified`, where the file can be asked for by them.
    validators: Option<Box<Marks>>,
    /// What was known before a fetch that brought nothing; never one that brought nothing itself.
    stale: Option<Arc<Self>>,
    fetched: Instant,
    failures: u32,
    /// When the first of the failures was.
    failing_since: Instant,
    /// Until when no other renewal begins: one has had no turn at the host.
    rests_until: Option<Instant>,
}

impl Known {
    /// What a fetch makes of what was known before it. `now` is when the fetch ended.
    pub fn after(before: Option<&Arc<Self>>, fetched: &Fetched<'_>, now: Instant) -> Self {
        match fetched.ending.row().meaning {
            Meaning::Read => Self::read(fetched, now),
            Meaning::Unchanged => Self::unchanged(before, fetched, now),
            Meaning::AllowAll => Self::answered(Standing::AllowAll, fetched.ending, fetched, now),
            Meaning::Unreachable if fetched.ending == Ending::Held => Self::no_turn(before, now),
            Meaning::Unreachable => Self::unreachable(before, fetched, now),
        }
    }

    /// Whether it needs no other fetch yet.
    pub fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.fetched) < self.holds_for
    }

    /// When the fetch ended.
    pub fn fetched(&self) -> Instant {
        self.fetched
    }

    /// Whether it comes from a later fetch.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.fetched > other.fetched
    }

    /// For how long past its freshness it is used while a newer one is fetched.
    pub fn holds_on_for(&self) -> Duration {
        self.holds_on_for
    }

    /// Whether what was last had from the host may be used for a while longer, as long as a newer file is being fetched.
    /// What nobody ever had may not, nor what is known from failures alone.
    pub fn holds_on(&self, now: Instant) -> bool {
        self.last().is_some_and(|last| {
            now.saturating_duration_since(last.fetched)
                < last.holds_for.saturating_add(last.holds_on_for)
        })
    }

    /// Whether a renewal has had no turn so shortly ago that the next one does not begin yet.
    pub fn rests(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    /// By what a fetch may ask whether the file that is known is still the host's.
    pub fn validators(&self) -> Option<Validators<'_>> {
        let (etag, last_modified) = &**self.last()?.validators.as_ref()?;
        Some(Validators {
            etag: etag.as_deref(),
            last_modified: last_modified.as_deref(),
        })
    }

    /// What was known before the host could not be reached, if it is not too old.
    pub fn stale(&self) -> Option<&Self> {
        self.stale.as_deref()
    }

    /// The rules, if there are any.
    pub fn rules(&self) -> Option<&Parsed> {
        match &self.standing {
            Standing::Rules(parsed) => Some(parsed),
            Standing::AllowAll | Standing::Unknown => None,
        }
    }

    /// Bytes of memory, what it keeps of old included.
    pub fn bytes(&self) -> usize {
        let stale = self.stale.as_ref().map_or(0, |stale| stale.bytes());
        let length = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let validators = self
            .validators
            .as_deref()
            .map_or(0, |v| size_of_val(v) + length(&v.0) + length(&v.1));
        size_of::<Self>() + self.rules().map_or(0, Parsed::bytes) + validators + stale
    }

    /// What was last had from the host.
    fn last(&self) -> Option<&Self> {
        if self.is_answer() {
            Some(self)
        } else {
            self.stale()
        }
    }

    fn is_answer(&self) -> bool {
        self.ending.row().meaning != Meaning::Unreachable
    }

    fn read(fetched: &Fetched<'_>, now: Instant) -> Self {
        let parsed = Parsed::new(fetched.body);
        if fetched.form == Form::Html && parsed.directives() == 0 {
            return Self::answered(Standing::AllowAll, Ending::Page, fetched, now);
        }
        let known = Self::answered(
            Standing::Rules(Arc::new(parsed)),
            Ending::File,
            fetched,
            now,
        );
        Self {
            validators: kept(fetched.validators),
            ..known
        }
    }

    /// The file that was known, fresh again: for as long as before if the answer does not say for how long.
    fn unchanged(before: Option<&Arc<Self>>, fetched: &Fetched<'_>, now: Instant) -> Self {
        let last = before.and_then(|before| before.last());
        let Some((last, Standing::Rules(rules))) = last.map(|last| (last, &last.standing)) else {
            // Nobody has asked so.
            return Self::answered(Standing::AllowAll, Ending::OddStatus, fetched, now);
        };
        let known = Self::answered(
            Standing::Rules(Arc::clone(rules)),
            Ending::Unchanged,
            fetched,
            now,
        );
        let told = fetched.cache.says_how_long();
        Self {
            holds_for: if told {
                known.holds_for
            } else {
                last.holds_for
            },
            holds_on_for: if told {
                known.holds_on_for
            } else {
                last.holds_on_for
            },
            validators: kept(fetched.validators).or_else(|| last.validators.clone()),
            ..known
        }
    }

    fn answered(standing: Standing, ending: Ending, fetched: &Fetched<'_>, now: Instant) -> Self {
        Self {
            standing,
            ending,
            status: fetched.status,
            fault: None,
            holds_for: fetched.cache.holds_for(),
            holds_on_for: fetched.cache.holds_on_for(),
            validators: None,
            stale: None,
            fetched: now,
            failures: 0,
            failing_since: now,
            rests_until: None,
        }
    }

    /// The host was not asked, so this says nothing of it: what may still be used stays, and the next renewal takes a
    /// moment. Where there is nothing to use the next request may try at once.
    fn no_turn(before: Option<&Arc<Self>>, now: Instant) -> Self {
        if let Some(before) = before.filter(|before| before.holds_on(now)) {
            return Self {
                rests_until: now.checked_add(AFTER_NO_TURN),
                ..Self::clone(before)
            };
        }
        let nothing = Self::unreachable(before, &Fetched::failed(Ending::Held), now);
        let (failures, failing_since) = before.map_or((0, now), |b| (b.failures, b.failing_since));
        Self {
            holds_for: Duration::ZERO,
            failures,
            failing_since,
            ..nothing
        }
    }

    /// A host that has only failed for 30 days is taken to have no file.
    fn unreachable(before: Option<&Arc<Self>>, fetched: &Fetched<'_>, now: Instant) -> Self {
        let failed = before.filter(|before| before.failures > 0);
        let failures = failed.map_or(0, |before| before.failures).saturating_add(1);
        let failing_since = failed.map_or(now, |before| before.failing_since);
        let last = before.and_then(|before| {
            if before.is_answer() {
                Some(before)
            } else {
                before.stale.as_ref()
            }
        });
        let stale = last
            .filter(|last| now.saturating_duration_since(last.fetched) < STALE)
            .cloned();
        let given_up = stale.is_none() && now.saturating_duration_since(failing_since) >= STALE;
        Self {
            standing: if given_up {
                Standing::AllowAll
            } else {
                Standing::Unknown
            },
            ending: fetched.ending,
            status: fetched.status,
            fault: fetched.fault,
            holds_for: again_after(failures),
            holds_on_for: Duration::ZERO,
            validators: None,
            stale,
            fetched: now,
            failures,
            failing_since,
            rests_until: None,
        }
    }
}

fn kept(
    Validators {
        etag,
        last_modified,
    }: Validators<'_>,
) -> Option<Box<Marks>> {
    (etag.is_some() || last_modified.is_some())
        .then(|| Box::new((etag.map(Into::into), last_modified.map(Into::into))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &[u8], form: Form) -> Fetched<'_> {
        let ending = Ending::of_status(status);
        Fetched {
            ending,
            status: Some(status),
            body,
            form,
            ..Fetched::failed(ending)
        }
    }

    fn describe(known: &Known) -> (&'static str, &'static str, u64) {
        let standing = match known.standing {
            Standing::Rules(_) => "rules",
            Standing::AllowAll => "allow all",
            Standing::Unknown => "unknown",
        };
        (
            standing,
            known.ending.as_str(),
            known.holds_for.as_secs() / 60,
        )
    }

    #[test]
    fn statuses() {
        let clock = crate::clock::Clock::manual().0;
        let now = clock.now();
        let check = |status, body: &[u8], form, expected| {
            let known = Known::after(None, &answer(status, body, form), now);
            assert_eq!(describe(&known), expected, "{status}");
        };
        let text = b"User-agent: *\nDisallow: /\n";
        check(200, text, Form::Other, ("rules", "file", 1080));
        check(200, text, Form::Html, ("rules", "file", 1080));
        check(200, b"<html>", Form::Html, ("allow all", "page", 1080));
        check(200, b"", Form::Other, ("rules", "file", 1080));
        check(206, text, Form::Other, ("rules", "file", 1080));
        for status in [400, 401, 403, 404, 408, 410, 418, 451] {
            check(status, text, Form::Other, ("allow all", "absent", 1080));
        }
        for status in [304, 300, 199, 600] {
            check(status, text, Form::Other, ("allow all", "odd_status", 1080));
        }
        check(429, text, Form::Other, ("unknown", "limited", 1));
        for status in [500, 502, 503, 599] {
            check(status, text, Form::Other, ("unknown", "server_error", 1));
        }
    }

    #[test]
    fn failures_keep_what_was_known_for_thirty_days_and_then_allow() {
        let (clock, hand) = crate::clock::Clock::manual();
        let text = b"User-agent: *\nDisallow: /\n";
        let mut known = Arc::new(Known::after(
            None,
            &answer(200, text, Form::Other),
            clock.now(),
        ));
        let mut waits = vec![];
        for _ in 0..6 {
            hand.advance(Duration::from_secs(3600));
            known = Arc::new(Known::after(
                Some(&known),
                &Fetched::failed(Ending::Timeout),
                clock.now(),
            ));
            assert!(known.stale().is_some_and(|stale| stale.rules().is_some()));
            waits.push(known.holds_for.as_secs() / 60);
        }
        assert_eq!(waits, [1, 2, 5, 15, 60, 60]);
        hand.advance(STALE);
        let later = Known::after(Some(&known), &Fetched::failed(Ending::Refused), clock.now());
        assert!(later.stale().is_none());
        assert_eq!(describe(&later), ("allow all", "refused", 60));
        let good = Known::after(Some(&known), &answer(404, b"", Form::Other), clock.now());
        assert_eq!(describe(&good), ("allow all", "absent", 1080));
    }

    #[test]
    fn no_turn_is_no_failure() {
        let (clock, hand) = crate::clock::Clock::manual();
        let (failed, held) = (
            Fetched::failed(Ending::Timeout),
            Fetched::failed(Ending::Held),
        );
        let after = |before: &Arc<Known>, fetched| {
            Arc::new(Known::after(Some(before), fetched, clock.now()))
        };
        let text = b"User-agent: *\nDisallow: /\n";
        let file = Arc::new(Known::after(
            None,
            &answer(200, text, Form::Other),
            clock.now(),
        ));
        hand.advance(Duration::from_secs(20 * 3600));
        let past = after(&file, &held);
        assert_eq!(
            (describe(&past), past.is_fresh(clock.now())),
            (("rules", "file", 1080), false)
        );
        assert!(past.holds_on(clock.now()) && past.rests(clock.now()) && past.stale().is_none());
        hand.advance(AFTER_NO_TURN);
        assert!(!past.rests(clock.now()));
        let (once, again) = (after(&past, &failed), after(&after(&past, &failed), &held));
        assert_eq!(
            (describe(&once), describe(&again)),
            (("unknown", "timeout", 1), ("unknown", "timeout", 1))
        );
        hand.advance(Duration::from_secs(5 * 3600));
        let too_old = after(&again, &held);
        assert_eq!(describe(&too_old), ("unknown", "held", 0));
        assert!(too_old.stale().is_some_and(|stale| stale.rules().is_some()));
        assert_eq!(
            describe(&after(&too_old, &failed)),
            ("unknown", "timeout", 2),
            "the second failure"
        );
    }

    #[test]
    fn what_was_never_had_is_not_known_after_no_turn() {
        let (clock, hand) = crate::clock::Clock::manual();
        let nothing = Arc::new(Known::after(
            None,
            &Fetched::failed(Ending::Held),
            clock.now(),
        ));
        assert_eq!(describe(&nothing), ("unknown", "held", 0));
        hand.advance(STALE);
        let failed = Known::after(
            Some(&nothing),
            &Fetched::failed(Ending::Timeout),
            clock.now(),
        );
        assert_eq!(
            describe(&failed),
            ("unknown", "timeout", 1),
            "it has not failed for 30 days"
        );
        assert!(failed.stale().is_none() && failed.validators().is_none());
    }

    #[test]
    fn freshness_ends() {
        let (clock, hand) = crate::clock::Clock::manual();
        let known = Known::after(None, &Fetched::failed(Ending::Dns), clock.now());
        hand.advance(Duration::from_secs(59));
        assert!(known.is_fresh(clock.now()));
        hand.advance(Duration::from_secs(1));
        assert!(!known.is_fresh(clock.now()));
        assert!(
            !Known::after(None, &Fetched::failed(Ending::Held), clock.now()).is_fresh(clock.now())
        );
    }
}
