//! How a record that has a trace ends as spans.

use std::time::Instant;

use crate::clock::TimeSpan;
use crate::metrics::labels::reason_label;
use crate::metrics::policy::PolicyMetrics;
use crate::metrics::record::{RecordSubject, RequestRecord};
use crate::metrics::trace::{FinishedTrace, RequestTrace};

use super::FinalResult;

impl RequestRecord {
    /// Hands the request over to whoever exports, if it is sampled. Waits for nobody.
    pub(super) fn export(&self, ending: &FinalResult, ended: Instant) {
        if let (Some(trace), Some(tracing)) = (&self.trace, &self.recorder.tracing)
            && trace.is_exported()
        {
            tracing.send(Box::new(self.to_finished_trace(trace, ending, ended)));
        }
    }

    fn to_finished_trace(
        &self,
        trace: &RequestTrace,
        ending: &FinalResult,
        ended: Instant,
    ) -> FinishedTrace {
        let whole = TimeSpan::between(self.began, ended);
        let now = self.recorder.clock.wall_time();
        let crawler = self
            .recorder
            .metrics
            .families()
            .crawler_series(self.crawler);
        let rule = ending.rule.and_then(|(of, rule)| self.rule_name(of, rule));
        let (url, host) = self.logged_target(ending);
        let port = match &self.subject {
            RecordSubject::Unknown => 0,
            RecordSubject::Url(url) => url.port(),
            RecordSubject::Host(host) => host.port(),
        };
        FinishedTrace {
            trace: trace.id,
            span: trace.span,
            parent: trace.parent,
            began: now.checked_sub(whole.duration).unwrap_or(now),
            duration: whole.duration,
            parts: trace.finished_parts(whole),
            method: self.method.clone(),
            url: url.map(|url| self.recorder.log.redact_url(url)),
            server: host.map(|host| (host.into(), port)),
            crawler: crawler.map_or("", |series| series.crawler.as_str()).into(),
            verdict: ending.verdict.as_str(),
            reason: reason_label(ending.reason),
            rule: rule.map(Into::into),
            stage: ending.stage.as_str(),
            policy: self.policy.as_deref().map(policy_name),
            decision: (*self.id().to_text()).into(),
            status: ending.status,
            origin_status: self.origin.map(|(status, _)| status),
            bytes: self.sent_bytes,
            address: self.address,
            error: self.logged_error(),
        }
    }
}

fn policy_name(policy: &PolicyMetrics) -> (Box<str>, Box<str>) {
    (policy.name().into(), policy.revision().into())
}
