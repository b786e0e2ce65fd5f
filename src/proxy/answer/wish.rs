//! What a client asks of tracing: `traceparent`, the span that its request belongs to, and `Crawl-Trace: 1`, to be told
//! more of a decision than its answer needs.

use http::{HeaderMap, HeaderValue};

use crate::metrics::record::Record;
use crate::vocab::crawler::{Crawler, May};
use crate::vocab::trace_context::Traceparent;

use super::{tell_shadows, tell_trace};

const CRAWL_TRACE: &str = "crawl-trace";
const TRACEPARENT: &str = "traceparent";

#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    telling: Telling,
    caller: Option<Traceparent>,
}

/// Whether the client is told more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    Unasked,
    Asked,
    /// It asks and it may.
    Granted,
}

impl Wish {
    /// What a client wishes that says nothing of it.
    pub(super) const NONE: Self = Self {
        telling: Telling::Unasked,
        caller: None,
    };

    /// Reads the first value of a field.
    pub(super) fn read(&mut self, name: &str, value: &HeaderValue, headers: &HeaderMap) {
        match name {
            CRAWL_TRACE if value == "1" => self.telling = Telling::Asked,
            TRACEPARENT => self.caller = traceparent(headers),
            _ => {}
        }
    }

    /// Any client may say which span its request belongs to: names cost nothing and open nothing.
    pub(super) fn follow(&self, record: &mut Record) {
        if let Some(caller) = &self.caller {
            record.follows(caller);
        }
    }

    /// What costs something counts only for crawlers that may `trace`: to have spans made, and to be told.
    pub(super) fn of_crawler(&mut self, crawler: &Crawler, record: &mut Record) {
        if !crawler.may(May::Trace) {
            return;
        }
        if let Some(caller) = &self.caller {
            record.sampled(caller.sampled);
        }
        if self.telling == Telling::Asked {
            self.telling = Telling::Granted;
            record.traced();
        }
    }

    /// `Crawl-Trace-Id` and `Crawl-Shadow`.
    pub(super) fn tell(&self, headers: &mut HeaderMap, record: &Record) {
        if self.telling != Telling::Granted {
            return;
        }
        if let Some(trace) = record.trace_id() {
            tell_trace(headers, trace);
        }
        if let Some(words) = record.shadow_words() {
            tell_shadows(headers, &words);
        }
    }
}

/// More than one `traceparent` is none (W3C Trace Context section 3.2).
fn traceparent(headers: &HeaderMap) -> Option<Traceparent> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    Traceparent::parse(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_traceparents_are_none() {
        let value = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let mut headers = HeaderMap::new();
        assert!(traceparent(&headers).is_none());
        headers.append(TRACEPARENT, value.parse().unwrap());
        assert!(traceparent(&headers).is_some());
        headers.append(TRACEPARENT, value.parse().unwrap());
        assert!(traceparent(&headers).is_none());
    }
}
