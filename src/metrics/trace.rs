//! The trace of a record, and the bounded queue of finished requests for the exporter, which never makes a request wait.
//!
//! A record without a trace pays for one empty field. Encoding and sending is done by the owner of the
//! [`TraceReceiver`].

mod finished;

use std::fmt;
use std::time::Instant;

use smallvec::SmallVec;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};

use crate::clock::TimeSpan;
use crate::model::words::words;
use crate::trace_context::{SamplingFlag, SpanId, TraceId, Traceparent};

use super::Metrics;
use super::labels::SpanLossReason;
use super::log::SampleRate;
use super::record::RequestRecord;

pub use finished::{FinishedPart, FinishedTrace};

words! {
    /// A part of a request that has its own span.
    pub enum TracePart {
        /// From the request's head to the verdict, or to the first wait.
        Decide = "decide",
        /// A name lookup.
        Resolve = "resolve",
        /// Waiting for a robots.txt that is being fetched.
        Robots = "robots",
        /// Waiting for a slot of the host, or for the end of a stop.
        Hold = "hold",
        /// A new connection to the origin.
        Connect = "connect",
        /// The TLS handshake of a new connection.
        Tls = "tls",
        /// From sending the request to the origin to the head of the response.
        FirstByte = "first_byte",
        /// From forwarding the request to the owner of its host to the head of the owner's answer.
        Forward = "forward",
    }
}

/// The trace that a request belongs to.
pub(crate) struct RequestTrace {
    pub(crate) id: TraceId,
    pub(crate) span: SpanId,
    pub(crate) parent: Option<SpanId>,
    export: SpanExport,
    disclosure: TraceDisclosure,
    parts: SmallVec<[(TracePart, TimeSpan); 6]>,
}

/// `Yes` if spans of the request are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanExport {
    Yes,
    No,
}

/// `Yes` if the crawler has requested the trace's id: the request is then logged, whatever the sample rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceDisclosure {
    Yes,
    No,
}

impl RequestTrace {
    /// Starts a new trace. `None` if the system has no random bytes for its id.
    fn new(export: SpanExport) -> Option<Box<Self>> {
        let mut id = [0; 16];
        let mut span = [0; 8];
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

    /// Returns `true` if the client knows the ID and may look for it.
    pub(crate) fn disclosure(&self) -> TraceDisclosure {
        self.disclosure
    }
}

/// Selects the requests that are traced, and queues them for export.
#[derive(Clone)]
pub struct TraceSampler {
    sample_rate: SampleRate,
    queue: Sender<Box<FinishedTrace>>,
    metrics: Metrics,
}

/// The receiving end of the queue.
pub type TraceReceiver = Receiver<Box<FinishedTrace>>;

impl TraceSampler {
    /// Creates a sampler that exports this share of the requests, and those whose crawlers may ask for it. The queue has
    /// room for `room` requests; further ones are dropped and counted.
    pub fn new(sample_rate: SampleRate, room: usize, metrics: Metrics) -> (Self, TraceReceiver) {
        let (queue, traces) = channel(room.max(1));
        (
            Self {
                sample_rate,
                queue,
                metrics,
            },
            traces,
        )
    }

    /// Starts the trace of a request, if it is in the sample.
    pub(crate) fn begin_trace(&self, number: u64) -> Option<Box<RequestTrace>> {
        if self.sample_rate.includes(number) {
            RequestTrace::new(SpanExport::Yes)
        } else {
            None
        }
    }

    pub(crate) fn send(&self, trace: Box<FinishedTrace>) {
        let (trace, reason) = match self.queue.try_send(trace) {
            Ok(()) => return,
            Err(TrySendError::Full(trace)) => (trace, SpanLossReason::QueueFull),
            Err(TrySendError::Closed(trace)) => (trace, SpanLossReason::Shutdown),
        };
        self.metrics.add_lost_spans(reason, trace.span_count());
    }
}

impl fmt::Debug for TraceSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceSampler")
            .field("sample_rate", &self.sample_rate)
            .finish_non_exhaustive()
    }
}

impl RequestRecord {
    /// Continues the client's trace.
    pub fn set_trace_parent(&mut self, caller: &Traceparent) {
        if let Some(trace) = self.trace_or_new() {
            trace.id = caller.trace;
            trace.parent = Some(caller.parent);
        }
    }

    /// Applies the client's sampling decision; only for crawlers that may make it.
    pub fn set_sampled(&mut self, sampled: SamplingFlag) {
        match (&mut self.trace, sampled) {
            (Some(trace), SamplingFlag::Set) => trace.export = SpanExport::Yes,
            (Some(trace), SamplingFlag::Unset) => trace.export = SpanExport::No,
            (None, _) => {}
        }
    }

    /// Records that the client asks for its trace's id and may have it. The request then has a trace, with spans if any
    /// are exported, and a line in the log.
    pub fn disclose_trace(&mut self) {
        if let Some(trace) = self.trace_or_new() {
            trace.export = SpanExport::Yes;
            trace.disclosure = TraceDisclosure::Yes;
        }
    }

    /// Returns the trace that the request belongs to, if any.
    pub fn trace_id(&self) -> Option<TraceId> {
        self.trace.as_ref().map(|trace| trace.id)
    }

    /// Returns the span of the request if it is exported, for a node that the request is forwarded to.
    pub fn exported_span(&self) -> Option<Traceparent> {
        let trace = self.trace.as_ref().filter(|trace| trace.is_exported())?;
        Some(Traceparent {
            trace: trace.id,
            parent: trace.span,
            sampled: SamplingFlag::Set,
        })
    }

    /// Records the time of the verdict, or of the first wait before it, which ends the first part.
    pub fn set_verdict_at(&mut self, now: Instant) {
        self.add_trace_part(TracePart::Decide, TimeSpan::between(self.began, now));
    }

    /// Adds a part of the request. Ignored unless spans of the request are exported.
    pub fn add_trace_part(&mut self, part: TracePart, span: TimeSpan) {
        if let Some(trace) = &mut self.trace
            && trace.is_exported()
        {
            trace.parts.push((part, span));
        }
    }

    fn trace_or_new(&mut self) -> Option<&mut RequestTrace> {
        if self.trace.is_none() {
            self.trace = RequestTrace::new(SpanExport::No);
        }
        self.trace.as_deref_mut()
    }
}
