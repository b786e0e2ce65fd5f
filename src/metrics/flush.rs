//! How a record ends: counted once in every family that it belongs to, and written to the log once.
//!
//! This runs in a drop, perhaps while a panic unwinds: nothing in it can panic.

mod spans;

use std::time::Instant;

use http::HeaderValue;
use prometheus::IntCounter;
use smallvec::SmallVec;

use crate::clock::Rfc3339;
use crate::vocab::media_type::essence;
use crate::vocab::reason::{Reason, Retry, StatusSource};
use crate::vocab::stage::Stage;

use super::content::ContentFamily;
use super::labels::{
    CLIENT_LEFT, RuleMode, Source, Verdict, class_slot, error_slot, method_slot, reason_label,
};
use super::log::Readers;
use super::log::line::{self, Fate, Line, ShadowLine};
use super::policy::PolicyMetrics;
use super::record::{Answer, Flight, Keep, Outcome, Record, Subject};
use super::repeat::Seen;
use super::series::bump;
use super::shadow::{Change, Example, Note, ShadowOf};
use super::trace::Told;
use super::{CrawlerIndex, Families};

impl Drop for Record {
    fn drop(&mut self) {
        if self.flight == Flight::Forgotten {
            return;
        }
        if std::thread::panicking() {
            self.end_in_panic();
        }
        let ended = self.ended.unwrap_or_else(|| self.books.clock.now());
        let ending = Ending::of(self);
        self.count(&ending, ended);
        let readers = self
            .books
            .log
            .readers(self.number, ending.verdict, self.told());
        if readers != Readers::Nobody {
            self.log(&ending, ended, readers);
        }
        self.export(&ending, ended);
    }
}

/// What a record comes to.
struct Ending {
    verdict: Verdict,
    stage: Stage,
    /// None for a client that left before anything was decided.
    reason: Option<Reason>,
    /// The live cause, or the rule of a shadow rejection.
    rule: Option<(ShadowOf, u32)>,
    status: Option<u16>,
    source: Source,
}

impl Ending {
    fn of(record: &Record) -> Self {
        let (verdict, reason, rule) = match record.outcome {
            Outcome::Pending => (Verdict::Allow, None, None),
            Outcome::Rejected { reason, rule } => (Verdict::Reject, Some(reason), rule),
            Outcome::Allowed { rule: Some(rule) } => {
                (Verdict::Allow, Some(Reason::Rule), Some(rule))
            }
            Outcome::Allowed { rule: None } => (Verdict::Allow, Some(Reason::Default), None),
        };
        let (status, source) = record
            .sent
            .map_or((None, Source::Proxy), |(status, source)| {
                (Some(status), source)
            });
        let rule = rule.map(|rule| (ShadowOf::Rule(rule), rule));
        let live = Self {
            verdict,
            stage: record.stage,
            reason,
            rule,
            status,
            source,
        };
        match record.differences().next() {
            Some(note) if note.change == Change::Refuses => Self {
                verdict: Verdict::ShadowReject,
                stage: note.stage,
                reason: Some(note.reason),
                rule: note.rule.map(|rule| (note.of, rule)),
                ..live
            },
            Some(_) | None => live,
        }
    }

    fn mode(&self) -> RuleMode {
        if self.verdict == Verdict::ShadowReject {
            RuleMode::Shadow
        } else {
            RuleMode::Enforce
        }
    }
}

impl Record {
    /// A panic ends the request with the status of `internal_error`, unless an answer was on its way already.
    fn end_in_panic(&mut self) {
        if self.sent.is_some() {
            return;
        }
        self.rejected(Reason::InternalError, None, self.keep);
        if let StatusSource::Fixed(status) = Reason::InternalError.row().status {
            self.answered(status, Source::Proxy);
        }
    }

    fn count(&mut self, ending: &Ending, ended: Instant) {
        self.count_shadows(ending, ended);
        if self.books.metrics.counted().is_none() {
            return;
        }
        self.count_rules(ended);
        let families = self.books.metrics.families();
        if self.flight == Flight::Counted {
            families.inflight.dec();
        }
        self.count_request(families, ending, ended);
        self.count_durations(families, ending, ended);
        self.count_exchange(families, ending);
    }

    fn count_request(&self, families: &Families, ending: &Ending, now: Instant) {
        let Some(series) = families.crawler(self.crawler) else {
            return;
        };
        bump(series.decision(ending.stage, ending.verdict, ending.reason));
        bump(series.request(method_slot(&self.method), ending.status, ending.source));
        if self.repeats(ending, now) == Seen::Again {
            series.repeats.inc();
        }
    }

    /// Refusals that ask the crawler to come back later are no repeats when it does.
    fn repeats(&self, ending: &Ending, now: Instant) -> Seen {
        match (ending.verdict, ending.reason, &self.subject) {
            (Verdict::Reject, Some(reason), Subject::Url(url))
                if reason.row().retry != Retry::After =>
            {
                self.books.repeats.note(self.crawler, url.as_str(), now)
            }
            _ => Seen::First,
        }
    }

    /// A rule counts once a request, whatever the number of stages it was noted at.
    fn count_rules(&mut self, ended: Instant) {
        let Some(policy) = &self.policy else { return };
        self.matched.sort_unstable();
        self.matched.dedup();
        self.matched
            .iter()
            .for_each(|rule| policy.matched(*rule, ended));
        match self.outcome {
            Outcome::Allowed { rule: Some(rule) } => policy.decided(rule, Verdict::Allow),
            Outcome::Rejected {
                rule: Some(rule), ..
            } => policy.decided(rule, Verdict::Reject),
            Outcome::Pending
            | Outcome::Allowed { rule: None }
            | Outcome::Rejected { rule: None, .. } => {}
        }
    }

    /// The shadows that would have decided otherwise.
    fn differences(&self) -> impl Iterator<Item = &Note> {
        let changed = self.changed();
        let notes = self.shadows.iter().flat_map(|shadows| shadows.notes.iter());
        notes.filter(move |note| Some(note.change) == changed)
    }

    fn count_shadows(&self, ending: &Ending, ended: Instant) {
        let Some(shadows) = &self.shadows else { return };
        for policy in [self.policy.as_ref(), shadows.whole.as_ref()]
            .into_iter()
            .flatten()
        {
            policy.book().count();
        }
        for note in &shadows.notes {
            let Some(policy) = shadows.metrics(note.of, self.policy.as_ref()) else {
                continue;
            };
            note.matched
                .iter()
                .for_each(|rule| policy.matched(*rule, ended));
            note.decided
                .iter()
                .for_each(|rule| policy.decided(*rule, note.verdict));
        }
        for note in self.differences() {
            let policy = shadows.metrics(note.of, self.policy.as_ref());
            policy
                .iter()
                .for_each(|policy| policy.book().note(note, self.example(note, ending)));
        }
    }

    /// The request as an example: with no more of its URL than its line in the log shows.
    fn example(&self, note: &Note, ending: &Ending) -> Example {
        let (url, host) = self.shown(ending);
        let crawler = self.books.metrics.families().crawler(self.crawler);
        Example {
            at: self.books.clock.wall(),
            decision: (*self.id().text()).into(),
            crawler: crawler.map_or("", |series| series.crawler.as_str()).into(),
            url: url.map(|url| self.books.log.redacted(url)),
            host: host.map(Into::into),
            stage: note.stage,
            reason: reason_label(ending.reason),
            rule: note.rule,
        }
    }

    fn count_durations(&self, families: &Families, ending: &Ending, ended: Instant) {
        let whole = ended.saturating_duration_since(self.began);
        let answers = families.request_duration.get(ending.source as usize);
        if let Some(histogram) = answers.filter(|_| self.flight == Flight::Counted) {
            histogram.observe(whole.as_secs_f64());
        }
        let times = &self.times;
        for (histogram, time) in [
            (&families.decision_duration, times.decision),
            (&families.dns_duration, times.dns),
            (&families.connect_duration, times.connect),
            (&families.upstream_ttfb, times.ttfb),
            (&families.hold.seconds, times.held),
        ] {
            if let Some(seconds) = time.seconds() {
                histogram.observe(seconds);
            }
        }
    }

    fn count_exchange(&self, families: &Families, ending: &Ending) {
        if let Some((status, family)) = self.origin {
            let slot = class_slot(status) * ContentFamily::ALL.len() + family as usize;
            bump(families.upstream_responses.get(slot));
        }
        if let Some(error) = self.error {
            bump(families.upstream_errors.get(error_slot(error)));
        }
        let bytes = &families.bytes;
        add(&bytes.from_client, self.up());
        add(&bytes.to_client, self.down);
        if self.stage >= Stage::Upstream || self.flight == Flight::Tunnel {
            add(&bytes.to_origin, self.up());
        }
        if ending.source == Source::Origin || self.flight == Flight::Tunnel {
            add(&bytes.from_origin, self.down);
        }
    }
}

fn add(counter: &IntCounter, bytes: u64) {
    if bytes > 0 {
        counter.inc_by(bytes);
    }
}

impl Record {
    /// Whether its client knows its trace, by which the line will be looked for.
    fn told(&self) -> Told {
        self.trace.as_ref().map_or(Told::No, |trace| trace.told())
    }

    fn log(&self, ending: &Ending, ended: Instant, readers: Readers) {
        let (url, host) = self.shown(ending);
        let id = self.id().text();
        let policy = self.policy.as_deref();
        let content_type = self
            .content_type
            .as_ref()
            .map(HeaderValue::as_bytes)
            .map(String::from_utf8_lossy);
        let content_type = content_type.as_deref().map(essence);
        let shadows: SmallVec<[ShadowLine<'_>; 2]> = self
            .differences()
            .map(|note| self.shadow_line(note))
            .collect();
        let line = Line {
            ts: Rfc3339(self.books.clock.wall()),
            decision: &id,
            crawler: self
                .books
                .metrics
                .families()
                .crawler(self.crawler)
                .map(|c| c.crawler.as_str()),
            stage: ending.stage.as_str(),
            method: self.method.as_str(),
            url,
            host,
            verdict: ending.verdict.as_str(),
            reason: reason_label(ending.reason),
            rule: ending.rule.and_then(|(of, rule)| self.rule_shown(of, rule)),
            policy: policy.map(PolicyMetrics::name),
            revision: policy.map(PolicyMetrics::revision),
            mode: ending.mode().as_str(),
            held: self.times.held.whole(),
            origin_status: self.origin.map(|(status, _)| status),
            sent_status: ending.status,
            content_type: content_type.as_deref(),
            bytes: self.down,
            dns: self.times.dns.whole(),
            connect: self.times.connect.whole(),
            tls: self.times.tls.whole(),
            ttfb: self.times.ttfb.whole(),
            address: self.address,
            error: self.error_shown(),
            shadows: &shadows,
            trace: self.trace.as_ref().map(|trace| trace.id),
            source: self.source.as_ref().and_then(|source| source.to_str().ok()),
            fate: self.fate(),
            subject: self.subject_shown(),
            named: self.crawler != CrawlerIndex::ANONYMOUS,
            client: self.client,
            lasted: ended.saturating_duration_since(self.began),
        };
        self.books.log.write(&line, readers);
    }

    fn fate(&self) -> Fate {
        let Outcome::Rejected { reason, .. } = self.outcome else {
            return Fate::Passed;
        };
        let unread = matches!(self.subject, Subject::Unknown)
            && matches!(
                reason,
                Reason::BadRequest
                    | Reason::HeadersTooLarge
                    | Reason::RequestTooLarge
                    | Reason::RequestTimeout
                    | Reason::Overloaded
            );
        match reason.row().status {
            _ if unread => Fate::Unread,
            _ if reason == Reason::UpstreamTimeout => Fate::TimedOut,
            StatusSource::Gateway => Fate::Failed,
            _ if reason == Reason::InternalError => Fate::Failed,
            StatusSource::Profile(_) | StatusSource::Fixed(_) => Fate::Refused,
        }
    }

    fn subject_shown(&self) -> line::Subject {
        match &self.subject {
            Subject::Unknown => line::Subject::Unknown,
            Subject::Url(url) => line::Subject::Url {
                scheme: url.scheme().as_str(),
            },
            Subject::Host(host) => line::Subject::Tunnel { port: host.port() },
        }
    }

    fn shadow_line(&self, note: &Note) -> ShadowLine<'_> {
        let whole = self
            .shadows
            .as_ref()
            .and_then(|shadows| shadows.whole.as_deref());
        ShadowLine {
            rule: note.rule.and_then(|rule| self.rule_shown(note.of, rule)),
            policy: whole
                .filter(|_| note.of == ShadowOf::Policy)
                .map(PolicyMetrics::name),
            verdict: note.change.as_str(),
            stage: note.stage.as_str(),
            reason: note.reason.as_str(),
        }
    }

    fn rule_shown(&self, of: ShadowOf, rule: u32) -> Option<&str> {
        let policy = match &self.shadows {
            Some(shadows) => shadows.metrics(of, self.policy.as_ref()),
            None => self.policy.as_deref(),
        };
        policy?.shown(rule)
    }

    /// What the log may show of the target: of a rejected URL no more than the policy lets it keep.
    fn shown(&self, ending: &Ending) -> (Option<&str>, Option<&str>) {
        let (url, host) = match &self.subject {
            Subject::Unknown => (None, None),
            Subject::Url(url) => (Some(url.as_str()), Some(url.host())),
            Subject::Host(host) => (None, Some(host.host())),
        };
        let keep = if ending.verdict == Verdict::Reject {
            self.keep
        } else {
            Keep::Full
        };
        match keep {
            Keep::Full => (url, host),
            Keep::Host => (None, host),
            Keep::None => (None, None),
        }
    }

    fn error_shown(&self) -> Option<&'static str> {
        let left = (self.answer == Answer::Partial).then_some(CLIENT_LEFT);
        self.error.or(self.closed).or(left)
    }
}
