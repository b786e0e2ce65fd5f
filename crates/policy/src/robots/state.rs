//! The state of a host's robots.txt between fetches (RFC 9309 sections 2.3.1 and 2.4).
//!
//! Pure: the caller fetches, and passes the result and the time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::upstream_fault::UpstreamFault;

use super::fetch_outcome::{FailurePersistence, FetchEffect, RobotsFetchOutcome};
use super::file::RobotsFile;
use super::freshness::{
    CacheFields, FRESH_RANGE, MAX_STALE_AGE, NOT_ADMITTED_DELAY, quick_retry_delay, retry_delay,
};

/// The effect of a host's robots.txt on crawlers.
#[derive(Clone, Debug)]
pub enum RobotsRules {
    /// The rules of the file apply.
    File(Arc<RobotsFile>),
    /// There is no file; everything may be fetched.
    AllowAll,
    /// The file is unavailable, so its rules are unknown.
    Unknown,
}

#[derive(Debug)]
pub struct RobotsFetchResult<'a> {
    pub outcome: RobotsFetchOutcome,
    /// The status of the last response, if there was one.
    pub status: Option<u16>,
    /// The text, for [`RobotsFetchOutcome::File`].
    pub body: &'a [u8],
    pub body_type: RobotsBodyType,
    /// The header fields for caching.
    pub cache: CacheFields<'a>,
    /// The validators for the next conditional request.
    pub validators: RobotsValidators<'a>,
    /// The detail of a TLS failure with the host itself.
    pub fault: Option<&'static UpstreamFault>,
    /// The persistence of the failure, if the fetch failed.
    pub persistence: FailurePersistence,
}

/// The validators of a response (RFC 9110 section 8.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RobotsValidators<'a> {
    pub etag: Option<&'a str>,
    pub last_modified: Option<&'a str>,
}

/// The type of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RobotsBodyType {
    Html,
    /// Any other type: many servers send none, or a wrong one.
    Other,
}

impl RobotsFetchResult<'_> {
    /// Returns the result of a fetch without a response.
    pub fn failed(outcome: RobotsFetchOutcome) -> Self {
        Self {
            outcome,
            status: None,
            body: &[],
            body_type: RobotsBodyType::Other,
            cache: CacheFields::default(),
            validators: RobotsValidators::default(),
            fault: None,
            persistence: outcome.persistence(),
        }
    }
}

/// The last answer of a host for another process. Times are relative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RobotsRecord {
    /// The outcome of the fetch.
    pub outcome: RobotsFetchOutcome,
    /// The status of the response.
    pub status: Option<u16>,
    /// The text of the file, if there is one.
    pub text: Option<Box<str>>,
    /// The validators for the next conditional request.
    pub etag: Option<Box<str>>,
    /// The second of them.
    pub last_modified: Option<Box<str>>,
    /// The time since the fetch.
    pub age: Duration,
    /// The time for which it is fresh, from the fetch on.
    pub fresh_for: Duration,
    /// The time after that for which it is used while a newer file is fetched.
    pub stale_for: Duration,
}

/// The stored `ETag` and `Last-Modified`.
type StoredValidators = (Option<Box<str>>, Option<Box<str>>);

/// The state of a host's robots.txt.
#[derive(Clone, Debug)]
pub struct RobotsState {
    /// The effect on crawlers.
    pub rules: RobotsRules,
    /// The outcome of the last fetch.
    pub outcome: RobotsFetchOutcome,
    /// The status of its last response.
    pub status: Option<u16>,
    /// The detail of a TLS failure with the host itself.
    pub fault: Option<&'static UpstreamFault>,
    /// The time for which the state is fresh.
    pub fresh_for: Duration,
    /// The time after that for which it is used while a newer file is fetched.
    stale_for: Duration,
    /// The validators for a conditional request, if there are any.
    validators: Option<Box<StoredValidators>>,
    /// The last response before fetches that failed; never a failure itself.
    stale: Option<Arc<Self>>,
    fetched_at: Instant,
    failures: u32,
    /// The persistence of the failure, if the last fetch failed.
    persistence: FailurePersistence,
    /// The time of the first consecutive failure.
    failing_since: Instant,
    /// The end of a pause after a renewal that was not admitted by the host's pace, or failed before it was due.
    renewal_paused_until: Option<Instant>,
}

impl RobotsState {
    /// Returns the state after a fetch. `now` is the end of the fetch.
    pub fn from_fetch(
        before: Option<&Arc<Self>>,
        fetched: &RobotsFetchResult<'_>,
        now: Instant,
    ) -> Self {
        match fetched.outcome.effect() {
            FetchEffect::Read => Self::from_file(fetched, now),
            FetchEffect::Unchanged => Self::from_unchanged(before, fetched, now),
            FetchEffect::AllowAll => {
                Self::from_answer(RobotsRules::AllowAll, fetched.outcome, fetched, now)
            }
            FetchEffect::Unreachable if fetched.outcome == RobotsFetchOutcome::NotAdmitted => {
                Self::from_no_turn(before, now)
            }
            FetchEffect::Unreachable => Self::from_unreachable(before, fetched, now),
        }
    }

    /// Returns the last answer of the host for another process; `None` if it is too old to be used, or not text.
    pub fn record(&self, now: Instant) -> Option<RobotsRecord> {
        let last = self
            .last_answer()
            .filter(|last| last.is_usable_stale(now))?;
        let text = match &last.rules {
            RobotsRules::File(file) => Some(std::str::from_utf8(file.text()).ok()?.into()),
            RobotsRules::AllowAll => None,
            RobotsRules::Unknown => return None,
        };
        let (etag, last_modified) = last.validators.as_deref().cloned().unwrap_or_default();
        Some(RobotsRecord {
            outcome: last.outcome,
            status: last.status,
            text,
            etag,
            last_modified,
            age: now.saturating_duration_since(last.fetched_at),
            fresh_for: last.fresh_for,
            stale_for: last.stale_for,
        })
    }

    /// Returns the state for an answer that another process has received; `None` if the record makes no sense.
    pub fn from_record(record: &RobotsRecord, now: Instant) -> Option<Self> {
        let fetched_at = now.checked_sub(record.age)?;
        let rules = match (record.outcome.effect(), &record.text) {
            (FetchEffect::Read | FetchEffect::Unchanged, Some(text)) => {
                RobotsRules::File(Arc::new(RobotsFile::parse(text.as_bytes())))
            }
            (FetchEffect::AllowAll, None) => RobotsRules::AllowAll,
            (FetchEffect::Read | FetchEffect::Unchanged, None)
            | (FetchEffect::AllowAll, Some(_))
            | (FetchEffect::Unreachable, _) => return None,
        };
        Some(Self {
            rules,
            outcome: record.outcome,
            status: record.status,
            fault: None,
            fresh_for: record.fresh_for.min(*FRESH_RANGE.end()),
            stale_for: record.stale_for.min(MAX_STALE_AGE),
            validators: store_validators(RobotsValidators {
                etag: record.etag.as_deref(),
                last_modified: record.last_modified.as_deref(),
            }),
            stale: None,
            fetched_at,
            failures: 0,
            persistence: record.outcome.persistence(),
            failing_since: fetched_at,
            renewal_paused_until: None,
        })
    }

    /// Returns `true` if no fetch is needed yet.
    pub fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.fetched_at) < self.fresh_for
    }

    /// Returns `true` if it is to be fetched again: it is not fresh, or was not fetched after `newer_than`. Even then no
    /// answer is renewed before the minimum of the freshness.
    pub fn needs_renewal(&self, newer_than: Option<Instant>, now: Instant) -> bool {
        if self.is_renewal_paused(now) {
            return false;
        }
        let age = now.saturating_duration_since(self.fetched_at);
        let is_too_old = newer_than.is_some_and(|time| self.fetched_at <= time);
        !self.is_fresh(now) || is_too_old && age >= *FRESH_RANGE.start()
    }

    /// Returns the time from which it is fetched again.
    pub fn fresh_until(&self) -> Instant {
        self.fetched_at
            .checked_add(self.fresh_for)
            .unwrap_or(self.fetched_at)
    }

    /// Returns `true` if the rules are unknown for a cause that may pass within seconds.
    pub fn fails_momentarily(&self) -> bool {
        match self.rules {
            RobotsRules::File(_) | RobotsRules::AllowAll => false,
            RobotsRules::Unknown => self.persistence == FailurePersistence::Momentary,
        }
    }

    /// The end of the fetch.
    pub fn fetched_at(&self) -> Instant {
        self.fetched_at
    }

    /// Returns `true` if this state is from a later fetch than `other`.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.fetched_at > other.fetched_at
    }

    /// The time after freshness for which the state is used while a newer file is fetched.
    pub fn stale_for(&self) -> Duration {
        self.stale_for
    }

    /// Returns `true` if the last response from the host may still be used while a newer file is
    /// fetched. A host that only failed has none.
    pub fn is_usable_stale(&self, now: Instant) -> bool {
        self.last_answer().is_some_and(|last| {
            now.saturating_duration_since(last.fetched_at)
                < last.fresh_for.saturating_add(last.stale_for)
        })
    }

    /// Returns `true` if a renewal must wait because the last one was not admitted by the host's
    /// pace, or failed before it was due.
    pub fn is_renewal_paused(&self, now: Instant) -> bool {
        self.renewal_paused_until.is_some_and(|until| now < until)
    }

    /// The validators for a conditional request.
    pub fn validators(&self) -> Option<RobotsValidators<'_>> {
        let (etag, last_modified) = &**self.last_answer()?.validators.as_ref()?;
        Some(RobotsValidators {
            etag: etag.as_deref(),
            last_modified: last_modified.as_deref(),
        })
    }

    /// The last response before the host became unreachable, unless it is too old.
    pub fn stale(&self) -> Option<&Self> {
        self.stale.as_deref()
    }

    /// Returns `true` if the rules are known, if only from an earlier response.
    pub fn is_known(&self) -> bool {
        match self.rules {
            RobotsRules::File(_) | RobotsRules::AllowAll => true,
            RobotsRules::Unknown => self.stale.is_some(),
        }
    }

    /// The rules, if there is a file.
    pub fn file(&self) -> Option<&RobotsFile> {
        match &self.rules {
            RobotsRules::File(parsed) => Some(parsed),
            RobotsRules::AllowAll | RobotsRules::Unknown => None,
        }
    }

    /// The memory size in bytes, including the stale state.
    pub fn memory_size(&self) -> usize {
        let stale = self.stale.as_ref().map_or(0, |stale| stale.memory_size());
        let validators = self.validators.as_deref().map_or(0, |validators| {
            let (etag, last_modified) = validators;
            let texts = [etag, last_modified].into_iter().flatten();
            size_of_val(validators) + texts.map(|text| text.len()).sum::<usize>()
        });
        size_of::<Self>() + self.file().map_or(0, RobotsFile::memory_size) + validators + stale
    }

    /// The last response from the host.
    fn last_answer(&self) -> Option<&Self> {
        if self.is_answer() {
            Some(self)
        } else {
            self.stale()
        }
    }

    fn is_answer(&self) -> bool {
        self.outcome.effect() != FetchEffect::Unreachable
    }

    fn from_file(fetched: &RobotsFetchResult<'_>, now: Instant) -> Self {
        let parsed = RobotsFile::parse(fetched.body);
        if fetched.body_type == RobotsBodyType::Html && parsed.directives() == 0 {
            return Self::from_answer(
                RobotsRules::AllowAll,
                RobotsFetchOutcome::Page,
                fetched,
                now,
            );
        }
        let state = Self::from_answer(
            RobotsRules::File(Arc::new(parsed)),
            RobotsFetchOutcome::File,
            fetched,
            now,
        );
        Self {
            validators: store_validators(fetched.validators),
            ..state
        }
    }

    /// Returns the known file with a new lifetime: that of the response, else the previous one.
    fn from_unchanged(
        before: Option<&Arc<Self>>,
        fetched: &RobotsFetchResult<'_>,
        now: Instant,
    ) -> Self {
        let last = before.and_then(|before| before.last_answer());
        let Some((last, RobotsRules::File(rules))) = last.map(|last| (last, &last.rules)) else {
            // The validators were of a file that is no longer known.
            let fetched = RobotsFetchResult {
                outcome: RobotsFetchOutcome::ServerError,
                persistence: RobotsFetchOutcome::ServerError.persistence(),
                ..*fetched
            };
            return Self::from_unreachable(before, &fetched, now);
        };
        let state = Self::from_answer(
            RobotsRules::File(Arc::clone(rules)),
            RobotsFetchOutcome::Unchanged,
            fetched,
            now,
        );
        let validators = store_validators(fetched.validators).or_else(|| last.validators.clone());
        if fetched.cache.has_lifetime() {
            return Self {
                validators,
                ..state
            };
        }
        Self {
            fresh_for: last.fresh_for,
            stale_for: last.stale_for,
            validators,
            ..state
        }
    }

    fn from_answer(
        rules: RobotsRules,
        outcome: RobotsFetchOutcome,
        fetched: &RobotsFetchResult<'_>,
        now: Instant,
    ) -> Self {
        Self {
            rules,
            outcome,
            status: fetched.status,
            fault: None,
            fresh_for: fetched.cache.fresh_for(),
            stale_for: fetched.cache.stale_for(),
            validators: None,
            stale: None,
            fetched_at: now,
            failures: 0,
            persistence: fetched.persistence,
            failing_since: now,
            renewal_paused_until: None,
        }
    }

    /// Returns the state after a fetch that was not admitted, which says nothing about the host: a
    /// usable response stays valid, and the next renewal is delayed. Without one, the next request
    /// may fetch at once.
    fn from_no_turn(before: Option<&Arc<Self>>, now: Instant) -> Self {
        if let Some(before) = before.filter(|before| before.is_usable_stale(now)) {
            return Self {
                renewal_paused_until: now.checked_add(NOT_ADMITTED_DELAY),
                ..Self::clone(before)
            };
        }
        let unreachable = Self::from_unreachable(
            before,
            &RobotsFetchResult::failed(RobotsFetchOutcome::NotAdmitted),
            now,
        );
        let (failures, failing_since) = before.map_or((0, now), |b| (b.failures, b.failing_since));
        Self {
            fresh_for: Duration::ZERO,
            failures,
            failing_since,
            ..unreachable
        }
    }

    /// Returns the state after a failure. A host that has only failed for 30 days is assumed to
    /// have no file. A file that was fetched again before it was due stays valid.
    fn from_unreachable(
        before: Option<&Arc<Self>>,
        fetched: &RobotsFetchResult<'_>,
        now: Instant,
    ) -> Self {
        if let Some(before) = before.filter(|before| before.is_answer() && before.is_fresh(now)) {
            return Self {
                renewal_paused_until: now.checked_add(*FRESH_RANGE.start()),
                ..Self::clone(before)
            };
        }
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
            .filter(|last| now.saturating_duration_since(last.fetched_at) < MAX_STALE_AGE)
            .cloned();
        let is_given_up =
            stale.is_none() && now.saturating_duration_since(failing_since) >= MAX_STALE_AGE;
        Self {
            rules: if is_given_up {
                RobotsRules::AllowAll
            } else {
                RobotsRules::Unknown
            },
            outcome: fetched.outcome,
            status: fetched.status,
            fault: fetched.fault,
            fresh_for: match (fetched.persistence, &stale) {
                (FailurePersistence::Momentary, None) => quick_retry_delay(failures),
                (FailurePersistence::Momentary | FailurePersistence::Lasting, _) => {
                    retry_delay(failures)
                }
            },
            stale_for: Duration::ZERO,
            validators: None,
            stale,
            fetched_at: now,
            failures,
            persistence: fetched.persistence,
            failing_since,
            renewal_paused_until: None,
        }
    }
}

fn store_validators(
    RobotsValidators {
        etag,
        last_modified,
    }: RobotsValidators<'_>,
) -> Option<Box<StoredValidators>> {
    (etag.is_some() || last_modified.is_some())
        .then(|| Box::new((etag.map(Into::into), last_modified.map(Into::into))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &[u8], form: RobotsBodyType) -> RobotsFetchResult<'_> {
        let ending = RobotsFetchOutcome::from_status(status);
        RobotsFetchResult {
            outcome: ending,
            status: Some(status),
            body,
            body_type: form,
            ..RobotsFetchResult::failed(ending)
        }
    }

    fn describe(state: &RobotsState) -> (&'static str, &'static str, u64) {
        let source = match state.rules {
            RobotsRules::File(_) => "rules",
            RobotsRules::AllowAll => "allow all",
            RobotsRules::Unknown => "unknown",
        };
        (
            source,
            state.outcome.as_str(),
            state.fresh_for.as_secs() / 60,
        )
    }

    #[test]
    fn another_process_continues_with_the_last_answer() {
        let (clock, control) = crate::clock::TestClock::manual();
        let hour = Duration::from_secs(3_600);
        let text = b"User-agent: *\nDisallow: /private\nCrawl-delay: 7\n";
        let file = RobotsFetchResult {
            validators: RobotsValidators {
                etag: Some("\"7\""),
                last_modified: None,
            },
            ..answer(200, text, RobotsBodyType::Other)
        };
        let absent = answer(404, b"", RobotsBodyType::Other);
        for fetched in [&file, &absent] {
            let state = RobotsState::from_fetch(None, fetched, clock.now());
            control.advance(hour);
            // A failure after it does not hide it.
            let failed = RobotsFetchResult::failed(RobotsFetchOutcome::Timeout);
            let later =
                RobotsState::from_fetch(Some(&Arc::new(state.clone())), &failed, clock.now());
            for state in [&state, &later] {
                let record = state.record(clock.now()).unwrap();
                let answer = state.last_answer().unwrap();
                assert_eq!(record.age, clock.now() - answer.fetched_at);
                control.advance(hour);
                let aged = RobotsRecord {
                    age: record.age + hour,
                    ..record.clone()
                };
                let restored = RobotsState::from_record(&aged, clock.now()).unwrap();
                assert_eq!(restored.record(clock.now()).unwrap(), aged);
                assert_eq!(restored.fetched_at, answer.fetched_at);
                assert_eq!(restored.validators(), state.validators());
                assert_eq!(
                    restored.file().map(RobotsFile::text),
                    answer.file().map(RobotsFile::text)
                );
            }
        }
        let state = RobotsState::from_fetch(None, &file, clock.now());
        let record = state.record(clock.now()).unwrap();
        control.advance(25 * hour);
        assert_eq!(state.record(clock.now()), None);
        let now = clock.now();
        for (outcome, text) in [
            (RobotsFetchOutcome::File, None),
            (RobotsFetchOutcome::Absent, Some("x".into())),
            (RobotsFetchOutcome::Timeout, None),
        ] {
            let odd = RobotsRecord {
                outcome,
                text,
                ..record.clone()
            };
            assert!(RobotsState::from_record(&odd, now).is_none(), "{odd:?}");
        }
        let endless = RobotsRecord {
            fresh_for: Duration::MAX,
            stale_for: Duration::MAX,
            ..record
        };
        let endless = RobotsState::from_record(&endless, now).unwrap();
        assert!(!endless.is_usable_stale(now + 32 * 24 * hour));
    }

    #[test]
    fn statuses() {
        let clock = crate::clock::TestClock::manual().0;
        let now = clock.now();
        let check = |status, body: &[u8], form, expected| {
            let known = RobotsState::from_fetch(None, &answer(status, body, form), now);
            assert_eq!(describe(&known), expected, "{status}");
        };
        let text = b"User-agent: *\nDisallow: /\n";
        check(200, text, RobotsBodyType::Other, ("rules", "file", 1080));
        check(200, text, RobotsBodyType::Html, ("rules", "file", 1080));
        check(
            200,
            b"<html>",
            RobotsBodyType::Html,
            ("allow all", "page", 1080),
        );
        check(200, b"", RobotsBodyType::Other, ("rules", "file", 1080));
        check(206, text, RobotsBodyType::Other, ("rules", "file", 1080));
        for status in [400, 401, 403, 404, 408, 410, 418, 451] {
            check(
                status,
                text,
                RobotsBodyType::Other,
                ("allow all", "absent", 1080),
            );
        }
        for status in [300, 199] {
            check(
                status,
                text,
                RobotsBodyType::Other,
                ("allow all", "odd_status", 1080),
            );
        }
        for status in [301, 308] {
            check(
                status,
                text,
                RobotsBodyType::Other,
                ("unknown", "elsewhere", 1),
            );
        }
        check(429, text, RobotsBodyType::Other, ("unknown", "limited", 0));
        for status in [304, 500, 502, 503, 599, 600, 999] {
            check(
                status,
                text,
                RobotsBodyType::Other,
                ("unknown", "server_error", 0),
            );
        }
    }

    #[test]
    fn a_momentary_failure_is_tried_again_within_seconds_while_nothing_is_known() {
        let (clock, control) = crate::clock::TestClock::manual();
        for (outcome, momentary, expected) in [
            (RobotsFetchOutcome::ServerError, true, [2, 3, 10, 60, 120]),
            (RobotsFetchOutcome::Timeout, true, [2, 3, 10, 60, 120]),
            (RobotsFetchOutcome::Tls, false, [60, 120, 300, 900, 3_600]),
            (
                RobotsFetchOutcome::Refused,
                false,
                [60, 120, 300, 900, 3_600],
            ),
        ] {
            let mut known = None;
            for seconds in expected {
                let fetched = RobotsFetchResult::failed(outcome);
                let state = RobotsState::from_fetch(known.as_ref(), &fetched, clock.now());
                assert_eq!(state.fails_momentarily(), momentary, "{outcome:?}");
                let delay = Duration::from_secs(seconds);
                assert_eq!(state.fresh_until() - clock.now(), delay, "{outcome:?}");
                control.advance(delay);
                known = Some(Arc::new(state));
            }
        }
    }

    #[test]
    fn failures_keep_what_was_known_for_thirty_days_and_then_allow() {
        let (clock, control) = crate::clock::TestClock::manual();
        let text = b"User-agent: *\nDisallow: /\n";
        let mut known = Arc::new(RobotsState::from_fetch(
            None,
            &answer(200, text, RobotsBodyType::Other),
            clock.now(),
        ));
        // Before it is due, a failure only delays the next fetch.
        let failed = RobotsFetchResult::failed(RobotsFetchOutcome::Timeout);
        let early = RobotsState::from_fetch(Some(&known), &failed, clock.now());
        assert_eq!(describe(&early), ("rules", "file", 1080));
        assert!(early.is_renewal_paused(clock.now()) && early.is_fresh(clock.now()));
        control.advance(known.fresh_for);
        let mut waits = vec![];
        for _ in 0..6 {
            control.advance(Duration::from_secs(3600));
            known = Arc::new(RobotsState::from_fetch(
                Some(&known),
                &RobotsFetchResult::failed(RobotsFetchOutcome::Timeout),
                clock.now(),
            ));
            assert!(known.stale().is_some_and(|stale| stale.file().is_some()));
            waits.push(known.fresh_for.as_secs() / 60);
        }
        assert_eq!(waits, [1, 2, 5, 15, 60, 60]);
        control.advance(MAX_STALE_AGE);
        let later = RobotsState::from_fetch(
            Some(&known),
            &RobotsFetchResult::failed(RobotsFetchOutcome::Refused),
            clock.now(),
        );
        assert!(later.stale().is_none());
        assert_eq!(describe(&later), ("allow all", "refused", 60));
        let good = RobotsState::from_fetch(
            Some(&known),
            &answer(404, b"", RobotsBodyType::Other),
            clock.now(),
        );
        assert_eq!(describe(&good), ("allow all", "absent", 1080));
    }

    #[test]
    fn a_fetch_that_was_not_admitted_is_not_a_failure() {
        let (clock, control) = crate::clock::TestClock::manual();
        let failed = RobotsFetchResult::failed(RobotsFetchOutcome::Timeout);
        let held = RobotsFetchResult::failed(RobotsFetchOutcome::NotAdmitted);
        let after = |before: &Arc<RobotsState>, fetched| {
            Arc::new(RobotsState::from_fetch(Some(before), fetched, clock.now()))
        };
        let text = b"User-agent: *\nDisallow: /\n";
        let file = Arc::new(RobotsState::from_fetch(
            None,
            &answer(200, text, RobotsBodyType::Other),
            clock.now(),
        ));
        control.advance(Duration::from_secs(20 * 3600));
        let expired = after(&file, &held);
        assert_eq!(
            (describe(&expired), expired.is_fresh(clock.now())),
            (("rules", "file", 1080), false)
        );
        assert!(
            expired.is_usable_stale(clock.now())
                && expired.is_renewal_paused(clock.now())
                && expired.stale().is_none()
        );
        control.advance(NOT_ADMITTED_DELAY);
        assert!(!expired.is_renewal_paused(clock.now()));
        let once = after(&expired, &failed);
        let again = after(&once, &held);
        assert_eq!(
            (describe(&once), describe(&again)),
            (("unknown", "timeout", 1), ("unknown", "timeout", 1))
        );
        control.advance(Duration::from_secs(5 * 3600));
        let too_old = after(&again, &held);
        assert_eq!(describe(&too_old), ("unknown", "held", 0));
        assert!(too_old.stale().is_some_and(|stale| stale.file().is_some()));
        assert_eq!(
            describe(&after(&too_old, &failed)),
            ("unknown", "timeout", 2),
            "the second failure"
        );
    }

    #[test]
    fn an_unknown_file_stays_unknown_if_the_fetch_is_not_admitted() {
        let (clock, control) = crate::clock::TestClock::manual();
        let nothing = Arc::new(RobotsState::from_fetch(
            None,
            &RobotsFetchResult::failed(RobotsFetchOutcome::NotAdmitted),
            clock.now(),
        ));
        assert_eq!(describe(&nothing), ("unknown", "held", 0));
        control.advance(MAX_STALE_AGE);
        let failed = RobotsState::from_fetch(
            Some(&nothing),
            &RobotsFetchResult::failed(RobotsFetchOutcome::Timeout),
            clock.now(),
        );
        assert_eq!(
            describe(&failed),
            ("unknown", "timeout", 0),
            "it has not failed for 30 days"
        );
        assert!(failed.stale().is_none() && failed.validators().is_none());
    }

    #[test]
    fn freshness_ends() {
        let (clock, control) = crate::clock::TestClock::manual();
        let known = RobotsState::from_fetch(
            None,
            &RobotsFetchResult::failed(RobotsFetchOutcome::Dns),
            clock.now(),
        );
        control.advance(Duration::from_secs(59));
        assert!(known.is_fresh(clock.now()));
        control.advance(Duration::from_secs(1));
        assert!(!known.is_fresh(clock.now()));
        assert!(
            !RobotsState::from_fetch(
                None,
                &RobotsFetchResult::failed(RobotsFetchOutcome::NotAdmitted),
                clock.now()
            )
            .is_fresh(clock.now())
        );
    }
}
