//! The tracing fields of a request: `traceparent`, the span that the request belongs to, and
//! `Crawl-Trace: 1`, a request for details of the decision.

use http::{HeaderMap, HeaderValue};

use crate::metrics::record::RequestRecord;
use crate::model::crawler::{Crawler, CrawlerHint};
use crate::trace_context::Traceparent;

use super::{set_shadows, set_trace_id};

const CRAWL_TRACE: &str = "crawl-trace";
const TRACEPARENT: &str = "traceparent";

#[derive(Clone, Copy, Debug)]
pub(super) struct TraceRequest {
    detail: TraceDetail,
    parent: Option<Traceparent>,
}

/// The state of a request for details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TraceDetail {
    NotRequested,
    Requested,
    /// Requested, and the crawler is allowed to.
    Granted,
}

impl TraceRequest {
    /// A request without tracing fields.
    pub(super) const NONE: Self = Self {
        detail: TraceDetail::NotRequested,
        parent: None,
    };

    /// Reads the first value of a field.
    pub(super) fn read_field(&mut self, name: &str, value: &HeaderValue, headers: &HeaderMap) {
        match name {
            CRAWL_TRACE if value == "1" => self.detail = TraceDetail::Requested,
            TRACEPARENT => self.parent = parse_traceparent(headers),
            _ => {}
        }
    }

    /// Records the span that the request belongs to. Any client may name one: it costs nothing and
    /// grants nothing.
    pub(super) fn record_parent_span(&self, record: &mut RequestRecord) {
        if let Some(caller) = &self.parent {
            record.set_trace_parent(caller);
        }
    }

    /// Applies the effects that have a cost, sampling and details, which only crawlers with the
    /// hint `trace` may request.
    pub(super) fn apply_crawler(&mut self, crawler: &Crawler, record: &mut RequestRecord) {
        if !crawler.allows_hint(CrawlerHint::Trace) {
            return;
        }
        if let Some(caller) = &self.parent {
            record.set_sampled(caller.sampled);
        }
        if self.detail == TraceDetail::Requested {
            self.detail = TraceDetail::Granted;
            record.disclose_trace();
        }
    }

    /// Adds `Crawl-Trace-Id` and `Crawl-Shadow`.
    pub(super) fn add_headers(&self, headers: &mut HeaderMap, record: &RequestRecord) {
        if self.detail != TraceDetail::Granted {
            return;
        }
        if let Some(trace) = record.trace_id() {
            set_trace_id(headers, trace);
        }
        if let Some(words) = record.shadow_header() {
            set_shadows(headers, &words);
        }
    }
}

/// Parses `traceparent`. More than one is invalid (W3C Trace Context section 3.2).
fn parse_traceparent(headers: &HeaderMap) -> Option<Traceparent> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    Traceparent::parse(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_traceparents_are_ignored() {
        let value = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let mut headers = HeaderMap::new();
        assert!(parse_traceparent(&headers).is_none());
        headers.append(TRACEPARENT, value.parse().unwrap());
        assert!(parse_traceparent(&headers).is_some());
        headers.append(TRACEPARENT, value.parse().unwrap());
        assert!(parse_traceparent(&headers).is_none());
    }
}
