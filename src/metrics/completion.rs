//! The end of a record: it is counted once in every family that it belongs to, and logged once.
//!
//! This runs in a drop, possibly while a panic unwinds: nothing in it may panic.

mod spans;

use std::num::NonZeroU16;
use std::time::Instant;

use http::HeaderValue;
use smallvec::SmallVec;

use crate::clock::Rfc3339;
use crate::model::crawl_status::CrawlStatus;
use crate::model::intent::Intent;
use crate::model::media_type::essence;
use crate::model::reason::{Reason, RetryHint, StatusSource};
use crate::model::stage::Stage;

use super::CrawlerIndex;
use super::families::MetricFamilies;
use super::labels::{
    ByteDirection, CLIENT_LEFT, CodeClass, ConnectionSide, ResponseSource, RuleMode,
    UpstreamErrorLabel, VerdictLabel, method_slot, reason_label,
};
use super::log::line::{self, LogLine, LogOutcome, ShadowDifference};
use super::log::{LineImportance, LineRecipients};
use super::policy::PolicyMetrics;
use super::record::{
    CountMode, DecisionId, LossCause, RecordOutcome, RecordSubject, RefusalDetail, RequestRecord,
    ResponseProgress, UrlRetention,
};
use super::repeat::RepeatState;
use super::series::increment;
use super::shadow::{ShadowChange, ShadowExample, ShadowNote, ShadowSource};
use super::trace::TraceDisclosure;

impl Drop for RequestRecord {
    fn drop(&mut self) {
        match self.count_mode {
            CountMode::Discarded => return,
            CountMode::Forwarded => {
                let metrics = &self.recorder.metrics;
                metrics.update(|families| families.inflight.dec());
                return self.export_forwarded();
            }
            CountMode::Counted | CountMode::Tunnel => {}
        }
        if std::thread::panicking() {
            self.end_in_panic();
        }
        let ended = self.ended.unwrap_or_else(|| self.recorder.clock.now());
        let result = FinalResult::from_record(self, ended);
        self.count(&result, ended);
        let importance = self.line_importance(&result);
        let recipients = self.recorder.log.recipients(self.number, importance);
        if recipients != LineRecipients::Nobody {
            self.log(&result, ended, recipients);
        }
        self.export(&result, ended);
    }
}

struct FinalResult {
    verdict: VerdictLabel,
    stage: Stage,
    /// `None` if the client left before a decision.
    reason: Option<Reason>,
    /// The rule that decided, or that of a shadow rejection.
    rule: Option<(ShadowSource, u32)>,
    status: Option<u16>,
    source: ResponseSource,
    loss: Option<LossCause>,
    target: LoggedTarget,
}

/// The part of the target that the log shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoggedTarget {
    /// The URL and its host.
    Url,
    /// The host.
    Host,
    /// The host, since the line of this decision has the URL.
    RepeatedUrl(DecisionId),
    Nothing,
}

impl FinalResult {
    fn from_record(record: &RequestRecord, ended: Instant) -> Self {
        let (verdict, reason, rule) = match record.outcome {
            RecordOutcome::Pending => (VerdictLabel::Allow, None, None),
            RecordOutcome::Rejected { reason, rule, .. } => {
                (VerdictLabel::Reject, Some(reason), rule)
            }
            RecordOutcome::Allowed { rule: Some(rule) } => {
                (VerdictLabel::Allow, Some(Reason::Rule), Some(rule))
            }
            RecordOutcome::Allowed { rule: None } => {
                (VerdictLabel::Allow, Some(Reason::Default), None)
            }
        };
        let (status, source) = record
            .sent
            .map_or((None, ResponseSource::Proxy), |(status, source)| {
                (Some(status), source)
            });
        let rule = rule.map(|rule| (ShadowSource::Rule(rule), rule));
        let live = Self {
            verdict,
            stage: record.stage,
            reason,
            rule,
            status,
            source,
            loss: record.loss(),
            target: record.find_logged_target(ended),
        };
        match record.shadow_differences().next() {
            Some(note) if note.change == ShadowChange::WouldReject => Self {
                verdict: VerdictLabel::ShadowReject,
                stage: note.stage,
                reason: Some(note.reason),
                rule: note.rule.map(|rule| (note.source, rule)),
                ..live
            },
            Some(_) | None => live,
        }
    }

    fn mode(&self) -> RuleMode {
        if self.verdict == VerdictLabel::ShadowReject {
            RuleMode::Shadow
        } else {
            RuleMode::Enforce
        }
    }
}

impl RequestRecord {
    /// Ends a request in a panic with the status of `internal_error`, unless a response was already being sent.
    fn end_in_panic(&mut self) {
        if self.sent.is_some() {
            return;
        }
        self.set_rejected(Reason::InternalError, None, self.url_retention);
        if let StatusSource::Fixed(status) = Reason::InternalError.row().status {
            self.set_sent_status(status, ResponseSource::Proxy);
        }
    }

    fn count(&mut self, result: &FinalResult, ended: Instant) {
        self.count_shadows(result, ended);
        if self.recorder.metrics.enabled_families().is_none() {
            return;
        }
        self.count_rules(ended);
        let families = self.recorder.metrics.families();
        if self.count_mode == CountMode::Counted {
            families.inflight.dec();
        }
        self.count_request(result, ended);
        self.count_durations(families, result, ended);
        self.count_exchange(families, result);
        if let Some(parent) = &self.parent {
            families
                .parent_requests
                .with_label_values(&[&**parent])
                .inc();
        }
    }

    fn count_request(&self, result: &FinalResult, now: Instant) {
        let Some(series) = self.recorder.metrics.crawler_series(self.crawler) else {
            return;
        };
        increment(series.decision_counter(result.stage, result.verdict, result.reason));
        increment(series.request_counter(method_slot(&self.method), result.status, result.source));
        if self.check_repeat(result, now) == RepeatState::Repeated {
            series.repeats.inc();
        }
        let wall_time = self.recorder.clock.wall_time();
        series.activity.record_request(wall_time);
    }

    /// A refusal that asks the crawler to come back later is not a repeat when it does.
    fn check_repeat(&self, result: &FinalResult, now: Instant) -> RepeatState {
        match (result.verdict, result.reason, &self.subject) {
            (VerdictLabel::Reject, Some(reason), RecordSubject::Url(url))
                if reason.row().retry != RetryHint::After =>
            {
                self.recorder
                    .repeats
                    .record(self.crawler, url.as_str(), now)
            }
            _ => RepeatState::First,
        }
    }

    /// Counts each rule once per request, however many stages it matched at.
    fn count_rules(&mut self, ended: Instant) {
        let Some(policy) = &self.policy else { return };
        self.matched_rules.sort_unstable();
        self.matched_rules.dedup();
        for rule in &self.matched_rules {
            policy.record_match(*rule, ended);
        }
        match self.outcome {
            RecordOutcome::Allowed { rule: Some(rule) } => {
                policy.record_decision(rule, VerdictLabel::Allow)
            }
            RecordOutcome::Rejected {
                rule: Some(rule), ..
            } => policy.record_decision(rule, VerdictLabel::Reject),
            RecordOutcome::Pending
            | RecordOutcome::Allowed { rule: None }
            | RecordOutcome::Rejected { rule: None, .. } => {}
        }
    }

    /// Returns the notes of shadows that would have decided otherwise.
    fn shadow_differences(&self) -> impl Iterator<Item = &ShadowNote> {
        let changed = self.shadow_change();
        let notes = self.shadows.iter().flat_map(|shadows| shadows.notes.iter());
        notes.filter(move |note| Some(note.change) == changed)
    }

    fn count_shadows(&self, result: &FinalResult, ended: Instant) {
        let Some(shadows) = &self.shadows else { return };
        if let Some(live) = &self.policy {
            live.shadow_stats().record_evaluation(shadows.space);
        }
        if let Some(shadow) = &shadows.policy_metrics {
            // It is counted as a whole, and its spaces are others.
            shadow.shadow_stats().record_evaluation(None);
        }
        for difference in &shadows.notes {
            let Some(policy) = shadows.metrics_for(difference.source, self.policy.as_ref()) else {
                continue;
            };
            for rule in &difference.matched {
                policy.record_match(*rule, ended);
            }
            if let Some(rule) = difference.deciding_rule {
                policy.record_decision(rule, difference.verdict);
            }
        }
        for difference in self.shadow_differences() {
            if let Some(policy) = shadows.metrics_for(difference.source, self.policy.as_ref()) {
                let example = self.shadow_example(difference, result);
                policy.shadow_stats().record_difference(difference, example);
            }
        }
    }

    /// Returns the request as an example, with no more of its URL than its line in the log shows.
    fn shadow_example(&self, difference: &ShadowNote, result: &FinalResult) -> ShadowExample {
        let (url, host) = self.logged_target(result.target);
        ShadowExample {
            at: self.recorder.clock.wall_time(),
            decision: (*self.id().to_text()).into(),
            crawler: self.crawler_name().unwrap_or_default().into(),
            url: url.map(|url| self.recorder.log.redact_url(url)),
            host: host.map(Into::into),
            stage: difference.stage,
            reason: reason_label(result.reason),
            rule: difference.rule,
        }
    }

    fn count_durations(&self, families: &MetricFamilies, result: &FinalResult, ended: Instant) {
        let whole = ended.saturating_duration_since(self.began);
        if self.count_mode == CountMode::Counted
            && let Some(histogram) = families.request_duration.get(result.source)
        {
            histogram.observe(whole.as_secs_f64());
        }
        let times = &self.times;
        for (histogram, time) in [
            (&families.decision_duration, times.decision),
            (&families.dns_duration, times.dns),
            (&families.connect_duration, times.connect),
            (&families.upstream_ttfb, times.ttfb),
            (&families.hold_time, times.held),
        ] {
            if let Some(seconds) = time.as_seconds() {
                histogram.observe(seconds);
            }
        }
    }

    fn count_exchange(&self, families: &MetricFamilies, result: &FinalResult) {
        if let Some((status, family)) = self.origin {
            let class = CodeClass::from_status(status);
            families.upstream_responses.increment((class, family));
        }
        if let Some(error) = self.error {
            let label = UpstreamErrorLabel::from_name(error);
            families.upstream_errors.increment(label);
        }
        let received = self.received_bytes();
        let sent = self.sent_bytes;
        let bytes = &families.bytes;
        bytes.add((ByteDirection::Received, ConnectionSide::Client), received);
        bytes.add((ByteDirection::Sent, ConnectionSide::Client), sent);
        if self.stage >= Stage::Upstream || self.count_mode == CountMode::Tunnel {
            bytes.add((ByteDirection::Sent, ConnectionSide::Origin), received);
        }
        if result.source == ResponseSource::Origin || self.count_mode == CountMode::Tunnel {
            bytes.add((ByteDirection::Received, ConnectionSide::Origin), sent);
        }
    }
}

impl RequestRecord {
    fn crawler_name(&self) -> Option<&str> {
        let series = self.recorder.metrics.crawler_series(self.crawler)?;
        Some(series.crawler.as_str())
    }

    /// Refusals are always logged, and so are losses, and requests whose client knows the trace and may look for it.
    fn line_importance(&self, result: &FinalResult) -> LineImportance {
        let disclosed = self
            .trace
            .as_ref()
            .is_some_and(|trace| trace.disclosure() == TraceDisclosure::Yes);
        match result.verdict {
            VerdictLabel::Reject | VerdictLabel::ShadowReject => LineImportance::Always,
            VerdictLabel::Allow if disclosed || result.loss.is_some() => LineImportance::Always,
            VerdictLabel::Allow => LineImportance::Sampled,
        }
    }

    fn log(&self, result: &FinalResult, ended: Instant, recipients: LineRecipients) {
        let (url, host) = self.logged_target(result.target);
        let missing = self.recorder.log.missing_lines();
        let detail = self.refusal_detail.as_deref();
        let id = self.id().to_text();
        let repeat_of = match result.target {
            LoggedTarget::RepeatedUrl(decision) => Some(decision.to_text()),
            LoggedTarget::Url | LoggedTarget::Host | LoggedTarget::Nothing => None,
        };
        let policy = self.policy.as_deref();
        let content_type = self
            .content_type
            .as_ref()
            .map(HeaderValue::as_bytes)
            .map(String::from_utf8_lossy);
        let content_type = content_type.as_deref().map(essence);
        let shadows: SmallVec<[ShadowDifference<'_>; 2]> = self
            .shadow_differences()
            .map(|note| self.shadow_difference(note))
            .collect();
        let line = LogLine {
            ts: Rfc3339(self.recorder.clock.wall_time()),
            decision: &id,
            crawler: self.crawler_name(),
            stage: result.stage.as_str(),
            method: self.method.as_str(),
            url,
            host,
            verdict: result.verdict.as_str(),
            reason: reason_label(result.reason),
            rule: result
                .rule
                .and_then(|(source, rule)| self.rule_name(source, rule)),
            policy: policy.map(PolicyMetrics::name),
            revision: policy.map(PolicyMetrics::revision),
            mode: result.mode().as_str(),
            held: self.times.held.as_micros(),
            origin_status: self.origin.map(|(status, _)| status),
            sent_status: result.status,
            content_type: content_type.as_deref(),
            bytes: self.sent_bytes,
            dns: self.times.dns.as_micros(),
            connect: self.times.connect.as_micros(),
            tls: self.times.tls.as_micros(),
            ttfb: self.times.ttfb.as_micros(),
            address: self.address,
            error: self.logged_error(),
            origin_http: self.used_http2.then_some("2"),
            parent: self.parent.as_deref(),
            entry: self.entry.as_deref(),
            shadows: &shadows,
            trace: self.trace.as_ref().map(|trace| trace.id),
            source: self.source.as_ref().and_then(|source| source.to_str().ok()),
            code: self.refusal_code(),
            robots_agent: detail.and_then(RefusalDetail::robots_agent),
            cause: detail.and_then(RefusalDetail::failure_cause),
            loss: result.loss.map(LossCause::as_str),
            repeat: repeat_of.is_some(),
            repeat_of: repeat_of.as_deref(),
            left_out: missing.left_out,
            dropped: missing.dropped,
            hidden_url: self.hidden_url(result.target),
            outcome: self.log_outcome(),
            subject: self.log_subject(),
            is_configured: self.crawler != CrawlerIndex::ANONYMOUS,
            client: self.client,
            duration: ended.saturating_duration_since(self.began),
        };
        self.recorder.log.write_line(&line, recipients);
    }

    fn refusal_code(&self) -> Option<u16> {
        match self.outcome {
            RecordOutcome::Rejected { reason, code, .. } => {
                code.map(NonZeroU16::get).or(reason.row().code)
            }
            RecordOutcome::Pending | RecordOutcome::Allowed { .. } => None,
        }
    }

    fn log_outcome(&self) -> LogOutcome {
        let RecordOutcome::Rejected { reason, .. } = self.outcome else {
            return LogOutcome::Allowed;
        };
        let unparsed = matches!(self.subject, RecordSubject::Unknown)
            && (reason.row().rejects_head || reason == Reason::Overloaded);
        let row = reason.row();
        let is_failure = row.crawl_status == CrawlStatus::Error;
        match row.status {
            _ if unparsed => LogOutcome::Unparsed,
            StatusSource::Fixed(504) if is_failure => LogOutcome::TimedOut,
            _ if is_failure => LogOutcome::Failed,
            StatusSource::Profile(_) | StatusSource::Fixed(_) | StatusSource::Gateway => {
                LogOutcome::Refused
            }
        }
    }

    fn log_subject(&self) -> line::LogSubject {
        match &self.subject {
            RecordSubject::Unknown => line::LogSubject::Unknown,
            RecordSubject::Url(url) => line::LogSubject::Url {
                scheme: url.scheme().as_str(),
            },
            RecordSubject::Host(host) => line::LogSubject::Tunnel { port: host.port() },
        }
    }

    fn shadow_difference(&self, difference: &ShadowNote) -> ShadowDifference<'_> {
        let whole = self
            .shadows
            .as_ref()
            .and_then(|shadows| shadows.policy_metrics.as_deref());
        ShadowDifference {
            rule: difference
                .rule
                .and_then(|rule| self.rule_name(difference.source, rule)),
            policy: whole
                .filter(|_| difference.source == ShadowSource::Policy)
                .map(PolicyMetrics::name),
            verdict: difference.change.as_str(),
            stage: difference.stage.as_str(),
            reason: difference.reason.as_str(),
        }
    }

    fn rule_name(&self, source: ShadowSource, rule: u32) -> Option<&str> {
        let policy = match &self.shadows {
            Some(shadows) => shadows.metrics_for(source, self.policy.as_ref()),
            None => self.policy.as_deref(),
        };
        policy?.rule_name(rule)
    }

    /// Returns the part of the target that the log shows; the policy may limit it for a refused URL. Called once, since
    /// it remembers the URL.
    fn find_logged_target(&self, now: Instant) -> LoggedTarget {
        let RecordOutcome::Rejected { reason, .. } = self.outcome else {
            return LoggedTarget::Url;
        };
        match (self.url_retention, &self.subject) {
            (UrlRetention::Unrepeated, RecordSubject::Url(url)) => {
                let losses = &self.recorder.logged_losses;
                let reason = reason.as_str();
                let request = (self.crawler, &self.method, reason, url.as_str());
                losses
                    .record(request, self.id(), now)
                    .map_or(LoggedTarget::Url, LoggedTarget::RepeatedUrl)
            }
            (UrlRetention::Full | UrlRetention::Unrepeated, _) => LoggedTarget::Url,
            (UrlRetention::Host, _) => LoggedTarget::Host,
            (UrlRetention::None, _) => LoggedTarget::Nothing,
        }
    }

    /// Returns the URL and the host, as far as the log shows them.
    fn logged_target(&self, shown: LoggedTarget) -> (Option<&str>, Option<&str>) {
        let (url, host) = match &self.subject {
            RecordSubject::Unknown => (None, None),
            RecordSubject::Url(url) => (Some(url.as_str()), Some(url.host())),
            RecordSubject::Host(host) => (None, Some(host.host())),
        };
        match shown {
            LoggedTarget::Url => (url, host),
            LoggedTarget::Host | LoggedTarget::RepeatedUrl(_) => (None, host),
            LoggedTarget::Nothing => (None, None),
        }
    }

    /// Returns the URL that the log leaves out and the latest lines in memory show.
    fn hidden_url(&self, shown: LoggedTarget) -> Option<&str> {
        match (shown, &self.subject) {
            (LoggedTarget::Host | LoggedTarget::RepeatedUrl(_), RecordSubject::Url(url)) => {
                Some(url.as_str())
            }
            (LoggedTarget::Host | LoggedTarget::RepeatedUrl(_), _)
            | (LoggedTarget::Url | LoggedTarget::Nothing, _) => None,
        }
    }

    /// Returns why the crawler did not get what it requested, if the policy does not exclude it. An open tunnel is no
    /// loss: what was requested inside is unknown.
    fn loss(&self) -> Option<LossCause> {
        if let RecordOutcome::Rejected { reason, intent, .. } = self.outcome {
            return match intent {
                Some(Intent::Later) => Some(LossCause::Later),
                Some(Intent::Deny | Intent::Gone | Intent::Keep) | None => {
                    (reason.row().crawl_status == CrawlStatus::Error).then_some(LossCause::Failed)
                }
            };
        }
        if !matches!(self.subject, RecordSubject::Url(_)) {
            return None;
        }
        let failed = matches!(self.origin, Some((429 | 500..=599, _)));
        if self.error.is_some() || failed {
            return Some(LossCause::Failed);
        }
        (self.response_progress == ResponseProgress::Partial).then_some(LossCause::ClientLeft)
    }

    fn logged_error(&self) -> Option<&'static str> {
        let left = (self.response_progress == ResponseProgress::Partial).then_some(CLIENT_LEFT);
        self.error.or(self.other_error).or(left)
    }
}
