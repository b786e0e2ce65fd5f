//! The limits of a client's frames.
//!
//! `h2` limits what would use up memory: the size of a field section, streams that are reset before
//! they are accepted, small DATA frames. The limits here are those of a client that costs processor
//! time with frames that mean nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};

use h2::Reason;

use crate::clock::Clock;
use crate::metrics::labels::{Http2ErrorCode, Http2ErrorScope, Http2Limit};
use crate::proxy::accept::ConnectionHandler;

use super::Http2Settings;
use super::frame::{ACK, END_HEADERS, FrameEvent, FrameHead, FrameKind};
use super::frame_budget::FrameBudget;
use super::observed_stream::{FrameObserver, ObserverVerdict};

/// PING: some clients measure their round trip while data flows.
const PINGS: (u32, u32) = (200, 50);
/// SETTINGS, apart from acknowledgements.
const SETTINGS: (u32, u32) = (20, 1);
/// PRIORITY, and frames that RFC 9113 does not define, such as PRIORITY_UPDATE.
const PRIORITIES: (u32, u32) = (1_000, 100);
/// WINDOW_UPDATE by less than [`SMALL_INCREMENT`].
const SMALL_WINDOWS: (u32, u32) = (1_000, 100);
const SMALL_INCREMENT: u32 = 1_024;
/// The maximum number of CONTINUATION frames of one field section. A section of the largest size
/// needs three.
const MAX_CONTINUATIONS: u32 = 32;

/// The state that the observer of a connection shares with the task that drives it.
#[derive(Debug, Default)]
pub(super) struct FrameAlarm {
    /// The limit that was exceeded: its position in [`Http2Limit::ALL`] plus one.
    exceeded: AtomicU8,
    /// The stream whose field section has begun and is incomplete, or 0.
    open_section: AtomicU32,
    is_closing: AtomicBool,
    /// No more frames are received in this turn.
    has_turn_ended: AtomicBool,
}

impl FrameAlarm {
    /// Returns the limit that was exceeded.
    pub(super) fn exceeded(&self) -> Option<Http2Limit> {
        let position = usize::from(self.exceeded.load(Relaxed)).checked_sub(1)?;
        Http2Limit::ALL.get(position).copied()
    }

    /// Records that a limit was exceeded; the first one counts.
    pub(super) fn raise(&self, limit: Http2Limit) {
        let position = Http2Limit::ALL.iter().position(|other| *other == limit);
        let position = position
            .and_then(|at| u8::try_from(at + 1).ok())
            .unwrap_or(1);
        let _ = self
            .exceeded
            .compare_exchange(0, position, Relaxed, Relaxed);
    }

    /// Returns `true` if no more frames are received in the turn that [`Self::begin_turn`] has begun.
    pub(super) fn has_turn_ended(&self) -> bool {
        self.has_turn_ended.load(Relaxed)
    }

    /// Begins a turn of the task that drives the connection.
    pub(super) fn begin_turn(&self) {
        self.has_turn_ended.store(false, Relaxed);
    }

    /// Returns the stream whose field section is incomplete.
    pub(super) fn open_section(&self) -> Option<u32> {
        Some(self.open_section.load(Relaxed)).filter(|stream| *stream != 0)
    }

    /// Records that the proxy closes the connection: its own GOAWAY is no error of `h2`.
    pub(super) fn set_closing(&self) {
        self.is_closing.store(true, Relaxed);
    }
}

/// Observes the frames of a client's connection.
#[derive(Debug)]
pub(super) struct ClientFrames<O> {
    handler: Arc<O>,
    clock: Clock,
    alarm: Arc<FrameAlarm>,
    resets: FrameBudget,
    pings: FrameBudget,
    settings: FrameBudget,
    priorities: FrameBudget,
    small_windows: FrameBudget,
    continuations: u32,
}

impl<O: ConnectionHandler> ClientFrames<O> {
    pub(super) fn new(handler: Arc<O>, settings: Http2Settings, alarm: Arc<FrameAlarm>) -> Self {
        let clock = handler.clock().clone();
        let now = clock.now();
        let budget = |(burst, per_second)| FrameBudget::new(burst, per_second, now);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            resets: budget((
                count(settings.streams.saturating_mul(2)),
                count(settings.resets),
            )),
            pings: budget(PINGS),
            settings: budget(SETTINGS),
            priorities: budget(PRIORITIES),
            small_windows: budget(SMALL_WINDOWS),
            continuations: 0,
            handler,
            clock,
            alarm,
        }
    }

    /// Returns the limit that a frame exceeds.
    fn limit_exceeded_by(&mut self, head: FrameHead) -> Option<Http2Limit> {
        let (budget, limit) = match head.kind {
            FrameKind::RstStream => (&mut self.resets, Http2Limit::Resets),
            FrameKind::Ping if !head.has(ACK) => (&mut self.pings, Http2Limit::Pings),
            FrameKind::Settings if !head.has(ACK) => (&mut self.settings, Http2Limit::Settings),
            FrameKind::Priority | FrameKind::Extension(_) => {
                (&mut self.priorities, Http2Limit::Priorities)
            }
            FrameKind::Continuation => {
                self.continuations += 1;
                let is_within = self.continuations <= MAX_CONTINUATIONS;
                return (!is_within).then_some(Http2Limit::Continuations);
            }
            FrameKind::Headers => {
                self.continuations = 0;
                return None;
            }
            FrameKind::Data
            | FrameKind::Settings
            | FrameKind::PushPromise
            | FrameKind::Ping
            | FrameKind::GoAway
            | FrameKind::WindowUpdate => return None,
        };
        (!budget.spend(&self.clock)).then_some(limit)
    }

    /// Tracks whether a field section is incomplete.
    fn track_section(&self, head: FrameHead, has_ended: bool) {
        if matches!(head.kind, FrameKind::Headers | FrameKind::Continuation) {
            let is_open = !(has_ended && head.has(END_HEADERS));
            let stream = if is_open { head.stream.max(1) } else { 0 };
            self.alarm.open_section.store(stream, Relaxed);
        }
    }

    fn verdict(&self, exceeded: Option<Http2Limit>) -> ObserverVerdict {
        match exceeded {
            None => ObserverVerdict::Continue,
            Some(limit) => {
                self.alarm.raise(limit);
                ObserverVerdict::StopReading
            }
        }
    }
}

impl<O: ConnectionHandler> FrameObserver for ClientFrames<O> {
    fn on_received(&mut self, event: FrameEvent) -> ObserverVerdict {
        let exceeded = match event {
            FrameEvent::Begun(head) => {
                self.track_section(head, false);
                self.limit_exceeded_by(head)
            }
            FrameEvent::Number(head, increment) => {
                let is_small = head.kind == FrameKind::WindowUpdate && increment < SMALL_INCREMENT;
                (is_small && !self.small_windows.spend(&self.clock))
                    .then_some(Http2Limit::SmallWindows)
            }
            FrameEvent::Ended(head) => {
                self.track_section(head, true);
                None
            }
        };
        self.verdict(exceeded)
    }

    fn on_turn_end(&mut self) {
        self.alarm.has_turn_ended.store(true, Relaxed);
    }

    /// Counts the errors that `h2` reports to the client. An error of a stream is a reset that the
    /// client has caused, so it counts as one of its resets.
    fn on_sent(&mut self, event: FrameEvent) -> ObserverVerdict {
        let FrameEvent::Number(head, code) = event else {
            return ObserverVerdict::Continue;
        };
        let reason = Reason::from(code);
        let scope = match head.kind {
            FrameKind::RstStream => Http2ErrorScope::Stream,
            FrameKind::GoAway => Http2ErrorScope::Connection,
            FrameKind::Data
            | FrameKind::Headers
            | FrameKind::Priority
            | FrameKind::Settings
            | FrameKind::PushPromise
            | FrameKind::Ping
            | FrameKind::WindowUpdate
            | FrameKind::Continuation
            | FrameKind::Extension(_) => return ObserverVerdict::Continue,
        };
        if is_own(reason) || self.alarm.is_closing.load(Relaxed) {
            return ObserverVerdict::Continue;
        }
        self.handler
            .record_http2_error(scope, Http2ErrorCode::from_code(code));
        let is_flood = scope == Http2ErrorScope::Stream && !self.resets.spend(&self.clock);
        self.verdict(is_flood.then_some(Http2Limit::Resets))
    }
}

/// Returns `true` for the codes with which the proxy itself ends streams: the client has caused
/// none of these.
fn is_own(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NO_ERROR | Reason::CANCEL | Reason::INTERNAL_ERROR | Reason::CONNECT_ERROR
    )
}
