//! What lies between the workers and the log's writer: a buffer for each worker, one bound over all of them.
//!
//! A worker locks only its own buffer, which nobody else holds but the writer for the moment of a swap.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use prometheus::IntCounter;
use tokio::sync::Notify;

use crate::clock::Clock;

use super::{Closed, OnFull};

/// Buffers; workers beyond this number share them.
const BUFFERS: usize = 16;
/// For how long a loss is warned of.
const WARN: Duration = Duration::from_secs(60);

thread_local! {
    /// The buffer of this thread, plus one; 0 is none yet.
    static BUFFER: Cell<usize> = const { Cell::new(0) };
}
static NEXT_BUFFER: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
pub(super) struct Queue {
    buffers: [Mutex<Vec<u8>>; BUFFERS],
    /// Bytes that wait, over all buffers and in the writer's hands.
    waiting: AtomicUsize,
    bound: usize,
    on_full: OnFull,
    /// Set by the first line after the writer last looked.
    pending: AtomicBool,
    /// Set before the buffers are emptied for the last time.
    ended: AtomicBool,
    writer: OnceLock<Thread>,
    room: Notify,
    state: Mutex<State>,
    progress: Condvar,
    dropped: IntCounter,
    clock: Clock,
    opened: Instant,
    /// Milliseconds from `opened` to the last loss, plus one; 0 is never.
    last_loss: AtomicU64,
}

/// What the writer and those who wait for it tell each other.
#[derive(Debug, Default)]
struct State {
    /// Flushes that were asked for, and how many of them are done.
    asked: u64,
    done: u64,
    life: Life,
    /// Why the last write failed.
    failing: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Life {
    #[default]
    Open,
    Closing,
    Ended,
}

/// What the writer is asked to do now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orders {
    pub(super) life: Life,
    asked: u64,
    pub(super) urgent: Urgency,
}

/// Whether the writer may wait a little for more lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    None,
    Gather,
    Now,
}

impl Queue {
    pub(super) fn new(bound: usize, on_full: OnFull, dropped: IntCounter, clock: Clock) -> Self {
        Self {
            buffers: Default::default(),
            waiting: AtomicUsize::new(0),
            bound,
            on_full,
            pending: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            writer: OnceLock::new(),
            room: Notify::new(),
            state: Mutex::default(),
            progress: Condvar::new(),
            dropped,
            opened: clock.now(),
            clock,
            last_loss: AtomicU64::new(0),
        }
    }

    /// Tells whom to wake.
    pub(super) fn written_by(&self, thread: &Thread) {
        let _ = self.writer.set(thread.clone());
    }

    /// Appends a line to this worker's buffer, or counts it as lost.
    pub(super) fn push(&self, render: impl FnOnce(&mut Vec<u8>)) {
        if self.on_full == OnFull::Drop && self.is_full() {
            return self.lost(1);
        }
        let Some(buffer) = self.buffers.get(this_buffer()) else { return self.lost(1) };
        {
            let mut buffer = lock(buffer);
            if self.ended.load(Ordering::Acquire) {
                return self.lost(1);
            }
            let before = buffer.len();
            render(&mut buffer);
            // Counted before the writer can take it, so that the sum never falls below zero.
            self.waiting.fetch_add(buffer.len() - before, Ordering::AcqRel);
        }
        if !self.pending.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Acquire) >= self.bound
    }

    fn wake(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    pub(super) async fn room(&self) {
        while self.on_full == OnFull::Wait && self.is_full() {
            // Made before the second look: a wake-up between look and wait is not missed.
            let notified = self.room.notified();
            if !self.is_full() {
                return;
            }
            notified.await;
        }
    }

    /// Counts lines that are lost, and notes when.
    pub(super) fn lost(&self, lines: usize) {
        if lines == 0 {
            return;
        }
        self.dropped.inc_by(lines as u64);
        let since = self.clock.now().saturating_duration_since(self.opened).as_millis();
        self.last_loss.store(u64::try_from(since).unwrap_or(u64::MAX - 1) + 1, Ordering::Relaxed);
    }

    pub(super) fn warning(&self) -> Option<String> {
        if let Some(failure) = &self.state().failing {
            return Some(format!("cannot be written: {failure}"));
        }
        if self.on_full == OnFull::Wait && self.is_full() {
            return Some("full: requests wait until it can be written".into());
        }
        let last = self.last_loss.load(Ordering::Relaxed).checked_sub(1)?;
        let age = self.clock.now().saturating_duration_since(self.opened + Duration::from_millis(last));
        (age < WARN).then(|| format!("lost lines {} s ago, {} in all", age.as_secs(), self.dropped.get()))
    }

    pub(super) fn flush(&self, within: Duration) -> Closed {
        let mut state = self.state();
        state.asked += 1;
        let mine = state.asked;
        self.wait_while(state, within, |state| state.done < mine && state.life != Life::Ended)
    }

    /// Asks the writer to write what is left and to end.
    pub(super) fn ask_to_end(&self) {
        let mut state = self.state();
        if state.life == Life::Open {
            state.life = Life::Closing;
        }
        drop(state);
        self.wake();
    }

    pub(super) fn close(&self, within: Duration) -> Closed {
        self.ask_to_end();
        let state = self.state();
        self.wait_while(state, within, |state| state.life != Life::Ended)
    }

    fn wait_while(
        &self,
        state: MutexGuard<'_, State>,
        within: Duration,
        mut waits: impl FnMut(&mut State) -> bool,
    ) -> Closed {
        self.wake();
        let waited = self.progress.wait_timeout_while(state, within, |state| waits(state));
        let (_state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() { Closed::TimedOut } else { Closed::Done }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The writer's side.
impl Queue {
    pub(super) fn orders(&self) -> Orders {
        let state = self.state();
        let urgent = if state.life != Life::Open || state.asked > state.done {
            Urgency::Now
        } else if self.pending.load(Ordering::Acquire) {
            Urgency::Gather
        } else {
            Urgency::None
        };
        Orders { life: state.life, asked: state.asked, urgent }
    }

    /// From now on lines are lost; to be called before the last [`Self::collect`].
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Moves what waits in the buffers to the end of `batch`. `spare` is an empty buffer to swap with.
    pub(super) fn collect(&self, batch: &mut Vec<u8>, spare: &mut Vec<u8>) {
        // First, so that a line which comes behind the collector's back sets it again.
        self.pending.store(false, Ordering::Release);
        for buffer in &self.buffers {
            std::mem::swap(&mut *lock(buffer), spare);
            batch.append(spare);
        }
    }

    /// Gives back the room of bytes that were written or given up.
    pub(super) fn release(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Ordering::AcqRel);
        if self.on_full == OnFull::Wait && !self.is_full() {
            self.room.notify_waiters();
        }
    }

    /// Whether lines that cannot be written are kept for another try.
    pub(super) fn keeps(&self, life: Life) -> bool {
        self.on_full == OnFull::Wait && life == Life::Open
    }

    pub(super) fn failing(&self, failure: Option<String>) {
        let mut state = self.state();
        if state.failing.is_some() || failure.is_some() {
            state.failing = failure;
        }
    }

    /// Tells who waits that the orders were carried out.
    pub(super) fn done(&self, orders: Orders) {
        let mut state = self.state();
        state.done = orders.asked;
        if orders.life == Life::Closing {
            state.life = Life::Ended;
        }
        drop(state);
        self.progress.notify_all();
    }
}

fn this_buffer() -> usize {
    BUFFER.with(|buffer| {
        if buffer.get() == 0 {
            buffer.set(NEXT_BUFFER.fetch_add(1, Ordering::Relaxed) % BUFFERS + 1);
        }
        buffer.get() - 1
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
