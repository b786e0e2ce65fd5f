//! What a record keeps for tracing, and how it goes on from there: a finished request, with the parts that it had, in a
//! bounded queue that never makes a request wait.
//!
//! Records without a trace pay for one empty field. Nothing is encoded or sent here: whoever exports takes from the
//! [`Traces`].

mod finished;

use std::fmt;
use std::time::Instant;

use smallvec::SmallVec;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};

use crate::clock::Lapse;
use crate::vocab::trace_context::{Sampled, SpanId, TraceId, Traceparent};

use super::Metrics;
use super::labels::SpansLost;
use super::log::Share;
use super::record::Record;

pub use finished::{FinishedPart, FinishedTrace};

/// A part of a request that has a span of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
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

impl Part {
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
pub(in crate::metrics) struct Trace {
    pub(in crate::metrics) id: TraceId,
    pub(in crate::metrics) span: SpanId,
    pub(in crate::metrics) parent: Option<SpanId>,
    export: Export,
    told: Told,
    parts: SmallVec<[(Part, Lapse); 6]>,
}

/// Whether spans are made of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Export {
    Yes,
    No,
}

/// Whether the crawler has asked for the trace's name: then the log has a line of the request, whatever its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::metrics) enum Told {
    Yes,
    No,
}

impl Trace {
    /// A trace that begins here. `None` if the system has no random bytes to name it by.
    fn new(export: Export) -> Option<Box<Self>> {
        let (mut id, mut span) = ([0; 16], [0; 8]);
        getrandom::fill(&mut id).ok()?;
        getrandom::fill(&mut span).ok()?;
        Some(Box::new(Self {
            id: TraceId::new(id)?,
            span: SpanId::new(span)?,
            parent: None,
            export,
            told: Told::No,
            parts: SmallVec::new(),
        }))
    }

    pub(in crate::metrics) fn is_exported(&self) -> bool {
        self.export == Export::Yes
    }

    /// Whether the client knows its name, and may look for it.
    pub(in crate::metrics) fn told(&self) -> Told {
        self.told
    }
}

/// Which requests become spans, and where they go then.
#[derive(Clone)]
pub struct Tracing {
    share: Share,
    queue: Sender<Box<FinishedTrace>>,
    metrics: Metrics,
}

/// What comes out at the other end.
pub type Traces = Receiver<Box<FinishedTrace>>;

impl Tracing {
    /// Makes spans of this share of the requests, and of those whose crawlers may ask for it. As many requests as `room`
    /// says wait to be exported; what comes then is dropped and counted.
    pub fn new(share: Share, room: usize, metrics: Metrics) -> (Self, Traces) {
        let (queue, traces) = channel(room.max(1));
        (
            Self {
                share,
                queue,
                metrics,
            },
            traces,
        )
    }

    /// The trace that a request begins with: none unless it is in the share.
    pub(in crate::metrics) fn begin(&self, number: u64) -> Option<Box<Trace>> {
        if self.share.takes(number) {
            Trace::new(Export::Yes)
        } else {
            None
        }
    }

    pub(in crate::metrics) fn export(&self, trace: Box<FinishedTrace>) {
        let (trace, why) = match self.queue.try_send(trace) {
            Ok(()) => return,
            Err(TrySendError::Full(trace)) => (trace, SpansLost::QueueFull),
            Err(TrySendError::Closed(trace)) => (trace, SpansLost::Shutdown),
        };
        self.metrics.spans_lost(why, trace.spans());
    }
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing")
            .field("share", &self.share)
            .finish_non_exhaustive()
    }
}

impl Record {
    /// The request belongs to a span of the client, whoever that is: its trace goes on here.
    pub fn follows(&mut self, caller: &Traceparent) {
        if let Some(trace) = self.trace_or_new() {
            (trace.id, trace.parent) = (caller.trace, Some(caller.parent));
        }
    }

    /// The client decides whether spans are made of its request; only for crawlers that may.
    pub fn sampled(&mut self, sampled: Sampled) {
        match (&mut self.trace, sampled) {
            (Some(trace), Sampled::Yes) => trace.export = Export::Yes,
            (Some(trace), Sampled::No) => trace.export = Export::No,
            (None, _) => {}
        }
    }

    /// The client asks for the name of its request's trace, and may have it: there will be one, with spans if they are
    /// exported at all, and with a line in the log.
    pub fn traced(&mut self) {
        if let Some(trace) = self.trace_or_new() {
            (trace.export, trace.told) = (Export::Yes, Told::Yes);
        }
    }

    /// The trace that the request belongs to, if any.
    pub fn trace_id(&self) -> Option<TraceId> {
        self.trace.as_ref().map(|trace| trace.id)
    }

    /// The verdict is there, or what has to be waited for before it is known: ends the first part.
    pub fn verdict_at(&mut self, now: Instant) {
        self.part(Part::Decide, Lapse::between(self.began, now));
    }

    /// The request had this part. Forgotten at once unless spans are made of the request.
    pub fn part(&mut self, part: Part, lapse: Lapse) {
        if let Some(trace) = &mut self.trace
            && trace.is_exported()
        {
            trace.parts.push((part, lapse));
        }
    }

    fn trace_or_new(&mut self) -> Option<&mut Trace> {
        if self.trace.is_none() {
            self.trace = Trace::new(Export::No);
        }
        self.trace.as_deref_mut()
    }
}
