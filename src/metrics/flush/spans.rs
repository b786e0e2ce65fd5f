//! How a record that has a trace ends as spans.

use std::time::Instant;

use crate::clock::Lapse;
use crate::metrics::labels::reason_label;
use crate::metrics::policy::PolicyMetrics;
use crate::metrics::record::{Record, Subject};
use crate::metrics::trace::{FinishedTrace, Trace};

use super::Ending;

impl Record {
    /// Hands the request over to whoever exports, if it is sampled. Waits for nobody.
    pub(super) fn export(&self, ending: &Ending, ended: Instant) {
        if let (Some(trace), Some(tracing)) = (&self.trace, &self.books.tracing)
            && trace.is_exported()
        {
            tracing.export(Box::new(self.finished(trace, ending, ended)));
        }
    }

    fn finished(&self, trace: &Trace, ending: &Ending, ended: Instant) -> FinishedTrace {
        let whole = Lapse::between(self.began, ended);
        let now = self.books.clock.wall();
        let crawler = self.books.metrics.families().crawler(self.crawler);
        let rule = ending.rule.and_then(|(of, rule)| self.rule_shown(of, rule));
        let (url, host) = self.shown(ending);
        let port = match &self.subject {
            Subject::Unknown => 0,
            Subject::Url(url) => url.port(),
            Subject::Host(host) => host.port(),
        };
        FinishedTrace {
            trace: trace.id,
            span: trace.span,
            parent: trace.parent,
            began: now.checked_sub(whole.took).unwrap_or(now),
            lasted: whole.took,
            parts: trace.finished_parts(whole),
            method: self.method.clone(),
            url: url.map(|url| self.books.log.redacted(url)),
            server: host.map(|host| (host.into(), port)),
            crawler: crawler.map_or("", |series| series.crawler.as_str()).into(),
            verdict: ending.verdict.as_str(),
            reason: reason_label(ending.reason),
            rule: rule.map(Into::into),
            stage: ending.stage.as_str(),
            policy: self.policy.as_deref().map(named),
            decision: (*self.id().text()).into(),
            status: ending.status,
            origin_status: self.origin.map(|(status, _)| status),
            bytes: self.down,
            address: self.address,
            error: self.error_shown(),
        }
    }
}

fn named(policy: &PolicyMetrics) -> (Box<str>, Box<str>) {
    (policy.name().into(), policy.revision().into())
}
