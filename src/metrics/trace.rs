//! What a record keeps for tracing, and how it goes on from there: a finished request, with the parts that it had, in a
//! bounded queue that never makes a request wait.
//!
//! Records without a trace pay for one empty field. Nothing is encoded or sent here: whoever exports takes from the
//! [`TraceReceiver`].

mod finished;

use std::fmt;
use std::time::Instant;

use smallvec::SmallVec;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};

use crate::clock::TimeSpan;
use crate::trace_context::{SamplingFlag, SpanId, TraceId, Traceparent};

use super::Metrics;
use super::labels::SpanLossReason;
use super::log::SampleRate;
use super::record::RequestRecord;

pub use finished::{FinishedPart, FinishedTrace};

/// A part of a request that has a span of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePart {
    /// From the request's head to the verdict, or to the first thing that it had to wait for.
    Decide,
    /// A name look-up.
    Resolve,
    /// The wait for a robots.txt that had to be fetched.
    Robots,
    /// The wait for the host's turn, or for the end of a stop.
    Hold,
    /// A new connection to the origin.
    Connect,
    /// The TLS handshake on it.
    Tls,
    /// From the request's way to the origin to the head of the answer.
    FirstByte,
}

impl TracePart {
    /// The name of its span.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Decide => "decide",
            Self::Resolve => "resolve",
            Self::Robots => "robots",
            Self::Hold => "hold",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::FirstByte => "first_byte",
        }
    }
}

/// Where a request stands among traces. Only requests that have a trace have one.
pub(crate) struct RequestTrace {
    pub(crate) id: TraceId,
    pub(crate) span: SpanId,
    pub(crate) parent: Option<SpanId>,
    export: SpanExport,
    disclosure: TraceDisclosure,
    parts: SmallVec<[(TracePart, TimeSpan); 6]>,
}

/// Whether spans are made of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanExport {
    Yes,
    No,
}

/// Whether the crawler has asked for the trace's name: then the log has a line of the request, whatever its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceDisclosure {
    Yes,
    No,
}

impl RequestTrace {
    /// A trace that begins here. `None` if the system has no random bytes to name it by.
    fn new(export: SpanExport) -> Option<Box<Self>> {
        let (mut id, mut span) = ([0; 16], [0; 8]);
        getrandom::fill(&mut id).ok()?;
        getrandom::fill(&mut span).ok()?;
        Some(Box::new(Self {
            id: TraceId::new(id)?,
            span: SpanId::new(span)?,
            parent: None,
            export,
            disclosure: TraceDisclosure::No,
            parts: SmallVec::new(),
        }))
    }

    pub(crate) fn is_exported(&self) -> bool {
        self.export == SpanExport::Yes
    }

    /// Whether the client knows its name, and may look for it.
    pub(crate) fn disclosure(&self) -> TraceDisclosure {
        self.disclosure
    }
}

/// Which requests become spans, and where they go then.
#[derive(Clone)]
pub struct TraceSampler {
    sample_rate: SampleRate,
    queue: Sender<Box<FinishedTrace>>,
    metrics: Metrics,
}

/// What comes out at the other end.
pub type TraceReceiver = Receiver<Box<FinishedTrace>>;

impl TraceSampler {
    /// Makes spans of this share of the requests, and of those whose crawlers may ask for it. As many requests as `room`
    /// says wait to be exported; what comes then is dropped and counted.
    pub fn new(share: SampleRate, room: usize, metrics: Metrics) -> (Self, TraceReceiver) {
        let (queue, traces) = channel(room.max(1));
        (
            Self {
                sample_rate: share,
                queue,
                metrics,
            },
            traces,
        )
    }

    /// The trace that a request begins with: none unless it is in the share.
    pub(crate) fn begin_trace(&self, number: u64) -> Option<Box<RequestTrace>> {
        if self.sample_rate.includes(number) {
            RequestTrace::new(SpanExport::Yes)
        } else {
            None
        }
    }

    pub(crate) fn send(&self, trace: Box<FinishedTrace>) {
        let (trace, why) = match self.queue.try_send(trace) {
            Ok(()) => return,
            Err(TrySendError::Full(trace)) => (trace, SpanLossReason::QueueFull),
            Err(TrySendError::Closed(trace)) => (trace, SpanLossReason::Shutdown),
        };
        self.metrics.add_lost_spans(why, trace.span_count());
    }
}

impl fmt::Debug for TraceSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing")
            .field("share", &self.sample_rate)
            .finish_non_exhaustive()
    }
}

impl RequestRecord {
    /// The request belongs to a span of the client, whoever that is: its trace goes on here.
    pub fn set_trace_parent(&mut self, caller: &Traceparent) {
        if let Some(trace) = self.trace_or_new() {
            (trace.id, trace.parent) = (caller.trace, Some(caller.parent));
        }
    }

    /// The client decides whether spans are made of its request; only for crawlers that may.
    pub fn set_sampled(&mut self, sampled: SamplingFlag) {
        match (&mut self.trace, sampled) {
            (Some(trace), SamplingFlag::Set) => trace.export = SpanExport::Yes,
            (Some(trace), SamplingFlag::Unset) => trace.export = SpanExport::No,
            (None, _) => {}
        }
    }

    /// The client asks for the name of its request's trace, and may have it: there will be one, with spans if they are
    /// exported at all, and with a line in the log.
    pub fn disclose_trace(&mut self) {
        if let Some(trace) = self.trace_or_new() {
            (trace.export, trace.disclosure) = (SpanExport::Yes, TraceDisclosure::Yes);
        }
    }

    /// The trace that the request belongs to, if any.
    pub fn trace_id(&self) -> Option<TraceId> {
        self.trace.as_ref().map(|trace| trace.id)
    }

    /// The verdict is there, or what has to be waited for before it is known: ends the first part.
    pub fn set_verdict_at(&mut self, now: Instant) {
        self.add_trace_part(TracePart::Decide, TimeSpan::between(self.began, now));
    }

    /// The request had this part. Forgotten at once unless spans are made of the request.
    pub fn add_trace_part(&mut self, part: TracePart, lapse: TimeSpan) {
        if let Some(trace) = &mut self.trace
            && trace.is_exported()
        {
            trace.parts.push((part, lapse));
        }
    }

    fn trace_or_new(&mut self) -> Option<&mut RequestTrace> {
        if self.trace.is_none() {
            self.trace = RequestTrace::new(SpanExport::No);
        }
        self.trace.as_deref_mut()
    }
}
