//! The state of a connection that its driver and its requests share: the heads that are not yet
//! written, and the end of the connection.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use parking_lot::Mutex;

use crate::metrics::labels::OriginHttp2Failure;
use crate::pipeline::admission::HostSlot;
use crate::proxy::http2::frame::{END_HEADERS, FrameEvent, FrameHead, FrameKind};
use crate::proxy::http2::observed_stream::{FrameObserver, ObserverVerdict};

use super::frame_budget::OriginFrameBudget;

/// The shared state of a connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionWatch {
    unwritten: Mutex<UnwrittenHeads>,
    /// The last stream whose head the socket has accepted. It is written once the socket is flushed.
    accepted: AtomicU32,
    /// `true` if no more requests may be sent: the connection has ended, or the origin ends it.
    closing: AtomicBool,
    /// The reason for which the proxy closes the connection.
    failure: OnceLock<OriginHttp2Failure>,
    /// `true` while the origin does not take what is to be written.
    blocked: AtomicBool,
    /// `true` if something was written since the last check.
    advanced: AtomicBool,
    driver: Mutex<Option<Waker>>,
    /// The last stream whose response head is so large that `h2` refuses it.
    large_head: AtomicU32,
}

/// The requests whose heads are not yet written. Heads are written in the order of their streams.
#[derive(Debug, Default)]
struct UnwrittenHeads {
    heads: Vec<UnwrittenHead>,
    /// The last stream whose head is written.
    written: u32,
}

#[derive(Debug)]
struct UnwrittenHead {
    stream: u32,
    slot: Arc<SharedSlot>,
}

/// The host's slot of a request on a stream. The connection shares it until the head is written: if
/// the client leaves before, the slot must not be free while the head may still be written.
#[derive(Debug)]
pub(super) struct SharedSlot(Mutex<SlotState>);

#[derive(Debug)]
struct SlotState {
    slot: Option<HostSlot>,
    is_recorded: bool,
}

impl SharedSlot {
    fn new(slot: HostSlot) -> Self {
        Self(Mutex::new(SlotState {
            slot: Some(slot),
            is_recorded: false,
        }))
    }

    /// Records that the head is written, at which the host's delay begins.
    fn record_sent(&self) {
        self.0.lock().record_sent();
    }
}

impl SlotState {
    fn record_sent(&mut self) {
        if !std::mem::replace(&mut self.is_recorded, true)
            && let Some(slot) = &self.slot
        {
            slot.record_sent();
        }
    }
}

/// The slot of a request on its stream. Dropping it returns the slot when the head can no longer be
/// written.
#[derive(Debug)]
pub(super) struct SlotTicket {
    slot: Option<Arc<SharedSlot>>,
    watch: Arc<ConnectionWatch>,
}

impl SlotTicket {
    pub(super) fn new(slot: HostSlot, watch: &Arc<ConnectionWatch>) -> Self {
        Self {
            slot: Some(Arc::new(SharedSlot::new(slot))),
            watch: Arc::clone(watch),
        }
    }

    /// Called after the request was passed to its stream.
    pub(super) fn register(&self, stream: u32) {
        if let Some(slot) = &self.slot {
            self.watch.register(stream, slot);
        }
    }

    /// Calls a function with the slot.
    pub(super) fn with_slot<T>(&self, call: impl FnOnce(&HostSlot) -> T) -> Option<T> {
        let state = self.slot.as_ref()?.0.lock();
        state.slot.as_ref().map(call)
    }

    /// Takes the slot. The head counts as written.
    pub(super) fn into_slot(mut self) -> Option<HostSlot> {
        let slot = self.slot.take()?;
        let mut state = slot.0.lock();
        state.record_sent();
        state.slot.take()
    }
}

impl Drop for SlotTicket {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            let is_unwritten = Arc::strong_count(&slot) > 1;
            // Before the driver checks whether anybody waits for this head.
            drop(slot);
            if is_unwritten {
                self.watch.wake_driver();
            }
        }
    }
}

impl ConnectionWatch {
    fn register(&self, stream: u32, slot: &Arc<SharedSlot>) {
        let mut unwritten = self.unwritten.lock();
        if stream <= unwritten.written {
            drop(unwritten);
            slot.record_sent();
        } else {
            unwritten.heads.push(UnwrittenHead {
                stream,
                slot: Arc::clone(slot),
            });
        }
    }

    /// Called when everything that `h2` had to write is written. A request without a client whose
    /// head is not among it will never be written.
    pub(super) fn record_flushed(&self) {
        self.blocked.store(false, Release);
        let written = self.accepted.load(Acquire);
        let mut unwritten = self.unwritten.lock();
        if unwritten.heads.is_empty() {
            unwritten.written = written;
            return;
        }
        unwritten.written = written;
        let (done, rest) = std::mem::take(&mut unwritten.heads)
            .into_iter()
            .partition(|head| head.stream <= written || Arc::strong_count(&head.slot) == 1);
        unwritten.heads = rest;
        drop(unwritten);
        record_written(done, written);
    }

    /// Called when the socket has accepted bytes.
    pub(super) fn record_progress(&self) {
        self.advanced.store(true, Release);
    }

    /// Called when the socket accepts nothing.
    pub(super) fn record_blocked(&self) {
        self.blocked.store(true, Release);
    }

    /// Returns `true` while the origin does not take what is to be written.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Acquire)
    }

    /// Returns `true` if something was written since the last call.
    pub(super) fn take_progress(&self) -> bool {
        self.advanced.swap(false, AcqRel)
    }

    /// Returns `true` if no more requests may be sent.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Acquire)
    }

    pub(super) fn set_closing(&self) {
        self.closing.store(true, Release);
    }

    /// Returns the reason for which the proxy closes the connection.
    pub(super) fn failure(&self) -> Option<OriginHttp2Failure> {
        self.failure.get().copied()
    }

    /// Returns `true` if the head of this stream's response was very large. `h2` reports that like
    /// any malformed head.
    pub(super) fn has_large_head(&self, stream: u32) -> bool {
        self.large_head.load(Acquire) == stream
    }

    pub(super) fn set_failure(&self, failure: OriginHttp2Failure) {
        let _ = self.failure.set(failure);
        self.set_closing();
    }

    /// Called after the end of the connection: no head will be written.
    pub(super) fn abandon_unwritten(&self) {
        self.set_closing();
        let heads = std::mem::take(&mut self.unwritten.lock().heads);
        drop(heads);
    }

    /// Sets the task that drives the connection.
    pub(super) fn set_driver(&self, waker: &Waker) {
        let mut driver = self.driver.lock();
        if !driver.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *driver = Some(waker.clone());
        }
    }

    fn wake_driver(&self) {
        if let Some(driver) = self.driver.lock().as_ref() {
            driver.wake_by_ref();
        }
    }
}

/// Records that heads are written. The slots of the others, whose clients have left, are returned.
fn record_written(heads: Vec<UnwrittenHead>, written: u32) {
    for head in heads {
        if head.stream <= written {
            head.slot.record_sent();
        }
    }
}

/// Observes the frames of one connection.
#[derive(Debug)]
pub(super) struct OriginFrames {
    watch: Arc<ConnectionWatch>,
    budget: OriginFrameBudget,
    /// The encoded size of a head that is always too large: the Huffman code saves less than half.
    large_block: usize,
    /// The encoded size of the current head.
    block: usize,
}

impl OriginFrames {
    /// Creates an observer of responses whose heads may have `head` bytes.
    pub(super) fn new(watch: Arc<ConnectionWatch>, head: usize) -> Self {
        Self {
            watch,
            budget: OriginFrameBudget::default(),
            large_block: head / 2,
            block: 0,
        }
    }

    fn measure_head(&mut self, frame: FrameHead) {
        match frame.kind {
            FrameKind::Headers => self.block = frame.length as usize,
            FrameKind::Continuation => {
                self.block = self.block.saturating_add(frame.length as usize)
            }
            FrameKind::Data
            | FrameKind::Priority
            | FrameKind::RstStream
            | FrameKind::Settings
            | FrameKind::PushPromise
            | FrameKind::Ping
            | FrameKind::GoAway
            | FrameKind::WindowUpdate
            | FrameKind::Extension(_) => return,
        }
        if self.block > self.large_block {
            self.watch.large_head.store(frame.stream, Release);
        }
    }
}

impl FrameObserver for OriginFrames {
    fn on_received(&mut self, event: FrameEvent) -> ObserverVerdict {
        let FrameEvent::Begun(head) = event else {
            return ObserverVerdict::Continue;
        };
        if head.kind == FrameKind::GoAway {
            self.watch.set_closing();
        }
        self.measure_head(head);
        match self.budget.charge(head) {
            Ok(()) => ObserverVerdict::Continue,
            Err(flood) => {
                self.watch.set_failure(flood);
                ObserverVerdict::StopReading
            }
        }
    }

    fn on_sent(&mut self, event: FrameEvent) -> ObserverVerdict {
        match event {
            FrameEvent::Begun(head) => self.budget.record_sent(head),
            FrameEvent::Ended(head)
                if matches!(head.kind, FrameKind::Headers | FrameKind::Continuation)
                    && head.has(END_HEADERS) =>
            {
                self.watch.accepted.fetch_max(head.stream, AcqRel);
            }
            FrameEvent::Ended(_) | FrameEvent::Number(..) => {}
        }
        ObserverVerdict::Continue
    }
}
