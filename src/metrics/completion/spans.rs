//! Conversion of a record with a trace to spans.

use std::time::Instant;

use crate::clock::TimeSpan;
use crate::metrics::labels::reason_label;
use crate::metrics::policy::PolicyMetrics;
use crate::metrics::record::{CountMode, RecordSubject, RequestRecord};
use crate::metrics::trace::{FinishedTrace, RequestTrace};

use super::{FinalResult, LoggedTarget};

impl RequestRecord {
    /// Queues the request for export, if it is sampled. Never waits.
    pub(super) fn export(&self, result: &FinalResult, ended: Instant) {
        if let (Some(trace), Some(tracing)) = (&self.trace, &self.recorder.tracing)
            && trace.is_exported()
        {
            tracing.send(Box::new(self.to_finished_trace(trace, result, ended)));
        }
    }

    /// Exports the spans of a request that another node has served. Its outcome is in the spans of that node.
    pub(in crate::metrics) fn export_forwarded(&self) {
        if self.exported_span().is_some() {
            let ended = self.ended.unwrap_or_else(|| self.recorder.clock.now());
            let result = FinalResult {
                // The policy, which says how much of the URL may be shown, is that of the other node.
                target: LoggedTarget::Nothing,
                ..FinalResult::from_record(self, ended)
            };
            self.export(&result, ended);
        }
    }

    fn to_finished_trace(
        &self,
        trace: &RequestTrace,
        result: &FinalResult,
        ended: Instant,
    ) -> FinishedTrace {
        let whole = TimeSpan::between(self.began, ended);
        let now = self.recorder.clock.wall_time();
        let rule = result
            .rule
            .and_then(|(source, rule)| self.rule_name(source, rule));
        let (url, host) = self.logged_target(result.target);
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
            crawler: self.crawler_name().unwrap_or_default().into(),
            verdict: match self.count_mode {
                CountMode::Forwarded => "forwarded",
                CountMode::Counted | CountMode::Tunnel | CountMode::Discarded => {
                    result.verdict.as_str()
                }
            },
            reason: reason_label(result.reason),
            rule: rule.map(Into::into),
            stage: result.stage.as_str(),
            policy: self.policy.as_deref().map(policy_name),
            decision: (*self.id().to_text()).into(),
            status: result.status,
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
