//! What the outcome of a fetch means: a table, and what is known of a host from one fetch to the next.
//!
//! RFC 9309 section 2.3.1, with the choices of the field where it leaves one. Who fetches, and when, is not here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::vocab::fault::Fault;

use super::freshness::{CacheFields, STALE, again_after};
use super::parse::Parsed;

/// What a host's robots.txt means to crawlers.
#[derive(Debug)]
pub enum Standing {
    /// Its rules hold.
    Rules(Parsed),
    /// Everything may be fetched: there is no such file.
    AllowAll,
    /// It cannot be told: the file may exist and could not be had.
    Unknown,
}

/// How a fetch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// 2xx with a text.
    File,
    /// 2xx with a page that has no line of a robots.txt: a shop window in place of "not found".
    Page,
    /// 4xx but for 429.
    Absent,
    /// 429.
    Limited,
    /// 5xx.
    ServerError,
    /// Any other status, a redirect without a place to go among them.
    OddStatus,
    /// More redirects than are followed.
    Redirects,
    /// A redirect to what this proxy cannot ask: no URL, a scheme other than `http` and `https`, a name that does not exist.
    Elsewhere,
    /// A redirect to an address or a port that must not be dialled.
    Prohibited,
    /// The connection was refused.
    Refused,
    /// TLS failed: a certificate that is not to be trusted, or no handshake.
    Tls,
    /// The name servers failed.
    Dns,
    /// Not in time.
    Timeout,
    /// The connection, the message or the body broke off.
    Broken,
    /// The body is in a content coding that cannot be taken off.
    Coding,
    /// It did not get its turn at the host.
    Held,
}

/// What an ending means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The text is read.
    Read,
    /// Nothing is forbidden.
    AllowAll,
    /// Nothing is known: what was known before holds, for some time.
    Unreachable,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// How the fetch ended.
    pub ending: Ending,
    /// The word for logs and metrics.
    pub name: &'static str,
    /// What it means.
    pub meaning: Meaning,
}

const fn row(ending: Ending, name: &'static str, meaning: Meaning) -> Row {
    Row { ending, name, meaning }
}

/// Every ending, in the order of [`Ending`].
pub const TABLE: [Row; 16] = [
    row(Ending::File, "file", Meaning::Read),
    row(Ending::Page, "page", Meaning::AllowAll),
    row(Ending::Absent, "absent", Meaning::AllowAll),
    row(Ending::Limited, "limited", Meaning::Unreachable),
    row(Ending::ServerError, "server_error", Meaning::Unreachable),
    row(Ending::OddStatus, "odd_status", Meaning::AllowAll),
    row(Ending::Redirects, "redirects", Meaning::AllowAll),
    row(Ending::Elsewhere, "elsewhere", Meaning::AllowAll),
    row(Ending::Prohibited, "prohibited", Meaning::Unreachable),
    row(Ending::Refused, "refused", Meaning::Unreachable),
    row(Ending::Tls, "tls", Meaning::Unreachable),
    row(Ending::Dns, "dns", Meaning::Unreachable),
    row(Ending::Timeout, "timeout", Meaning::Unreachable),
    row(Ending::Broken, "broken", Meaning::Unreachable),
    row(Ending::Coding, "coding", Meaning::Unreachable),
    row(Ending::Held, "held", Meaning::Unreachable),
];

impl Ending {
    /// What a status means before anything is known of the body; redirects are followed, not asked here.
    pub fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::File,
            429 => Self::Limited,
            400..=499 => Self::Absent,
            500..=599 => Self::ServerError,
            _ => Self::OddStatus,
        }
    }

    /// The row.
    pub fn row(self) -> &'static Row {
        const NONE: &Row = &row(Ending::Held, "none", Meaning::Unreachable);
        // The table has the order of the variants, which a test holds it to.
        TABLE.get(self as usize).unwrap_or(NONE)
    }

    /// The word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        self.row().name
    }
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
    /// What exactly failed, where TLS with the host itself did.
    pub fault: Option<&'static Fault>,
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
            fault: None,
        }
    }
}

/// What is known of a host's robots.txt.
#[derive(Debug)]
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
    /// What was known before a fetch that brought nothing; never one that brought nothing itself.
    stale: Option<Arc<Self>>,
    fetched: Instant,
    failures: u32,
    /// When the first of the failures was.
    failing_since: Instant,
}

impl Known {
    /// What a fetch makes of what was known before it. `now` is when the fetch ended.
    pub fn after(before: Option<&Arc<Self>>, fetched: &Fetched<'_>, now: Instant) -> Self {
        match fetched.ending.row().meaning {
            Meaning::Read => Self::read(fetched, now),
            Meaning::AllowAll => Self::answered(Standing::AllowAll, fetched.ending, fetched, now),
            Meaning::Unreachable => Self::unreachable(before, fetched, now),
        }
    }

    /// Whether it needs no other fetch yet.
    pub fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.fetched) < self.holds_for
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
        size_of::<Self>() + self.rules().map_or(0, Parsed::bytes) + stale
    }

    fn read(fetched: &Fetched<'_>, now: Instant) -> Self {
        let parsed = Parsed::new(fetched.body);
        if fetched.form == Form::Html && parsed.directives() == 0 {
            return Self::answered(Standing::AllowAll, Ending::Page, fetched, now);
        }
        Self::answered(Standing::Rules(parsed), Ending::File, fetched, now)
    }

    fn answered(standing: Standing, ending: Ending, fetched: &Fetched<'_>, now: Instant) -> Self {
        Self {
            standing,
            ending,
            status: fetched.status,
            fault: None,
            holds_for: fetched.cache.holds_for(),
            stale: None,
            fetched: now,
            failures: 0,
            failing_since: now,
        }
    }

    /// A host that has only failed for 30 days is taken to have no file.
    fn unreachable(before: Option<&Arc<Self>>, fetched: &Fetched<'_>, now: Instant) -> Self {
        let failed = before.filter(|before| before.failures > 0);
        let failures = failed.map_or(0, |before| before.failures).saturating_add(1);
        let failing_since = failed.map_or(now, |before| before.failing_since);
        let last = before.and_then(|before| match before.failures {
            0 => Some(before),
            _ => before.stale.as_ref(),
        });
        let stale = last.filter(|last| now.saturating_duration_since(last.fetched) < STALE).cloned();
        let given_up = stale.is_none() && now.saturating_duration_since(failing_since) >= STALE;
        Self {
            standing: if given_up { Standing::AllowAll } else { Standing::Unknown },
            ending: fetched.ending,
            status: fetched.status,
            fault: fetched.fault,
            // It was not asked for at all: the next one may try at once.
            holds_for: if fetched.ending == Ending::Held { Duration::ZERO } else { again_after(failures) },
            stale,
            fetched: now,
            failures,
            failing_since,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &[u8], form: Form) -> Fetched<'_> {
        let ending = Ending::of_status(status);
        Fetched { ending, status: Some(status), body, form, cache: CacheFields::default(), fault: None }
    }

    fn describe(known: &Known) -> (&'static str, &'static str, u64) {
        let standing = match known.standing {
            Standing::Rules(_) => "rules",
            Standing::AllowAll => "allow all",
            Standing::Unknown => "unknown",
        };
        (standing, known.ending.as_str(), known.holds_for.as_secs() / 60)
    }

    #[test]
    fn the_table_has_the_order_of_the_endings() {
        for (place, row) in TABLE.iter().enumerate() {
            assert_eq!(row.ending as usize, place);
        }
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
        check(200, text, Form::Other, ("rules", "file", 1440));
        check(200, text, Form::Html, ("rules", "file", 1440));
        check(200, b"<html>", Form::Html, ("allow all", "page", 1440));
        check(200, b"", Form::Other, ("rules", "file", 1440));
        check(206, text, Form::Other, ("rules", "file", 1440));
        for status in [400, 401, 403, 404, 408, 410, 418, 451] {
            check(status, text, Form::Other, ("allow all", "absent", 1440));
        }
        for status in [304, 300, 199, 600] {
            check(status, text, Form::Other, ("allow all", "odd_status", 1440));
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
        let mut known = Arc::new(Known::after(None, &answer(200, text, Form::Other), clock.now()));
        let mut waits = vec![];
        for _ in 0..6 {
            hand.advance(Duration::from_secs(3600));
            known = Arc::new(Known::after(Some(&known), &Fetched::failed(Ending::Timeout), clock.now()));
            assert!(known.stale().is_some_and(|stale| stale.rules().is_some()));
            waits.push(known.holds_for.as_secs() / 60);
        }
        assert_eq!(waits, [1, 2, 5, 15, 60, 60]);
        hand.advance(STALE);
        let later = Known::after(Some(&known), &Fetched::failed(Ending::Refused), clock.now());
        assert!(later.stale().is_none());
        assert_eq!(describe(&later), ("allow all", "refused", 60));
        let good = Known::after(Some(&known), &answer(404, b"", Form::Other), clock.now());
        assert_eq!(describe(&good), ("allow all", "absent", 1440));
    }

    #[test]
    fn freshness_ends() {
        let (clock, hand) = crate::clock::Clock::manual();
        let known = Known::after(None, &Fetched::failed(Ending::Dns), clock.now());
        hand.advance(Duration::from_secs(59));
        assert!(known.is_fresh(clock.now()));
        hand.advance(Duration::from_secs(1));
        assert!(!known.is_fresh(clock.now()));
        assert!(!Known::after(None, &Fetched::failed(Ending::Held), clock.now()).is_fresh(clock.now()));
    }
}
