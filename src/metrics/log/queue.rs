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
/// Bytes of lines for the tap alone that may wait.
const ASIDE: usize = 2 << 20;
/// For how long a write may take nothing before that is warned of.
const SLOW: Duration = Duration::from_secs(5);
/// For how long a loss is warned of.
const WARN: Duration = Duration::from_secs(60);
/// Losses are told once none came for so long, or when the first of them is so old.
const QUIET: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

thread_local! {
    /// The buffer of this thread, plus one; 0 is none yet.
    static BUFFER: Cell<usize> = const { Cell::new(0) };
}
static NEXT_BUFFER: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
pub(super) struct Queue {
    /// What waits to be written, in the writer's hands too.
    lines: Buffers,
    /// What waits for the tap alone.
    aside: Buffers,
    /// Lines that the tap should have had, and that were lost before they came to the writer.
    missed: AtomicU64,
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
    /// The same for the first loss that nobody was told of.
    first_untold: AtomicU64,
    lost: AtomicU64,
    told: AtomicU64,
    /// The same for the last time that a write under way began, or took something; 0 is none under way.
    writing: AtomicU64,
}

/// A buffer for each worker, and one bound over all of them.
#[derive(Debug)]
struct Buffers {
    buffers: [Mutex<Vec<u8>>; BUFFERS],
    /// Bytes that wait.
    waiting: AtomicUsize,
    bound: usize,
}

/// Whether a line was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    Yes,
    Lost,
}

impl Buffers {
    fn new(bound: usize) -> Self {
        Self {
            buffers: Default::default(),
            waiting: AtomicUsize::new(0),
            bound,
        }
    }

    fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Acquire) >= self.bound
    }

    /// Appends a line to this worker's buffer, unless `ended` is set.
    fn push(&self, ended: &AtomicBool, render: impl FnOnce(&mut Vec<u8>)) -> Pushed {
        let Some(buffer) = self.buffers.get(this_buffer()) else {
            return Pushed::Lost;
        };
        let mut buffer = lock(buffer);
        if ended.load(Ordering::Acquire) {
            return Pushed::Lost;
        }
        let before = buffer.len();
        render(&mut buffer);
        // Counted before the writer can take it, so that the sum never falls below zero.
        self.waiting
            .fetch_add(buffer.len() - before, Ordering::AcqRel);
        Pushed::Yes
    }

    /// Moves what waits to the end of `batch`. `spare` is an empty buffer to swap with.
    fn collect(&self, batch: &mut Vec<u8>, spare: &mut Vec<u8>) {
        for buffer in &self.buffers {
            std::mem::swap(&mut *lock(buffer), spare);
            batch.append(spare);
        }
    }

    fn release(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// When losses are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    /// Once they are over, or go on for long.
    Settled,
    /// Now: nothing will be told later.
    Last,
}

/// Whether there are losses that the operator has not been told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untold {
    None,
    Some,
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
            lines: Buffers::new(bound),
            aside: Buffers::new(ASIDE),
            missed: AtomicU64::new(0),
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
            first_untold: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            told: AtomicU64::new(0),
            writing: AtomicU64::new(0),
        }
    }

    /// Tells whom to wake.
    pub(super) fn written_by(&self, thread: &Thread) {
        let _ = self.writer.set(thread.clone());
    }

    /// Appends a line to this worker's buffer, or counts it as lost.
    pub(super) fn push(&self, render: impl FnOnce(&mut Vec<u8>)) -> Pushed {
        let dropped = self.on_full == OnFull::Drop && self.is_full();
        if dropped || self.lines.push(&self.ended, render) == Pushed::Lost {
            self.lost(1);
            return Pushed::Lost;
        }
        self.announce();
        Pushed::Yes
    }

    /// Appends a line for the tap alone. It never waits, and a loss is nobody's but the tap's.
    pub(super) fn push_aside(&self, render: impl FnOnce(&mut Vec<u8>)) {
        if self.aside.is_full() || self.aside.push(&self.ended, render) == Pushed::Lost {
            return self.missed_by_tap();
        }
        self.announce();
    }

    /// Notes a line that the tap will not get.
    fn missed_by_tap(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    fn announce(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn is_full(&self) -> bool {
        self.lines.is_full()
    }

    pub(super) fn wake(&self) {
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
        let since = self.moment();
        self.last_loss.store(since, Ordering::Relaxed);
        let _ = self
            .first_untold
            .compare_exchange(0, since, Ordering::Relaxed, Ordering::Relaxed);
        self.lost.fetch_add(lines as u64, Ordering::Release);
    }

    /// This moment, in milliseconds plus one.
    fn moment(&self) -> u64 {
        let since = self
            .clock
            .now()
            .saturating_duration_since(self.opened)
            .as_millis();
        u64::try_from(since).unwrap_or(u64::MAX - 1) + 1
    }

    /// How long ago a moment was that is kept in milliseconds plus one; `None` for never.
    fn age(&self, moment: &AtomicU64) -> Option<Duration> {
        let ms = moment.load(Ordering::SeqCst).checked_sub(1)?;
        Some(
            self.clock
                .now()
                .saturating_duration_since(self.opened + Duration::from_millis(ms)),
        )
    }

    pub(super) fn warning(&self) -> Option<String> {
        if let Some(failure) = &self.state().failing {
            return Some(format!("cannot be written: {failure}"));
        }
        if let Some(stuck) = self.stuck().filter(|stuck| *stuck >= SLOW) {
            let seconds = stuck.as_secs();
            return Some(format!(
                "blocked: the destination has taken nothing for {seconds} s"
            ));
        }
        if self.on_full == OnFull::Wait && self.is_full() {
            return Some("full: requests wait until it can be written".into());
        }
        let age = self.age(&self.last_loss)?;
        (age < WARN).then(|| {
            format!(
                "lost lines {} s ago, {} in all",
                age.as_secs(),
                self.dropped.get()
            )
        })
    }

    /// For how long the write that is under way has taken nothing; none if none is.
    pub(super) fn stuck(&self) -> Option<Duration> {
        self.age(&self.writing)
    }

    pub(super) fn flush(&self, within: Duration) -> Closed {
        let mut state = self.state();
        state.asked += 1;
        let mine = state.asked;
        self.wait_while(state, within, |state| {
            state.done < mine && state.life != Life::Ended
        })
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
        let waited = self
            .progress
            .wait_timeout_while(state, within, |state| waits(state));
        let (_state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            Closed::TimedOut
        } else {
            Closed::Done
        }
    }

    /// Bytes that wait for the writer or are in its hands.
    pub(super) fn waiting(&self) -> usize {
        self.lines.waiting.load(Ordering::Acquire)
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
        Orders {
            life: state.life,
            asked: state.asked,
            urgent,
        }
    }

    /// From now on lines are lost; to be called before the last [`Self::collect`].
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Moves what waits in the buffers to the end of `batch`, and what waits for the tap alone to that of `aside`. `spare`
    /// is an empty buffer to swap with.
    pub(super) fn collect(&self, batch: &mut Vec<u8>, aside: &mut Vec<u8>, spare: &mut Vec<u8>) {
        // First, so that a line which comes behind the collector's back sets it again.
        self.pending.store(false, Ordering::Release);
        self.lines.collect(batch, spare);
        let before = aside.len();
        self.aside.collect(aside, spare);
        self.aside.release(aside.len() - before);
    }

    /// How many lines the tap has missed since this was asked last.
    pub(super) fn missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }

    /// Gives back the room of bytes that were written or given up.
    pub(super) fn release(&self, bytes: usize) {
        self.lines.release(bytes);
        if self.on_full == OnFull::Wait && !self.is_full() {
            self.room.notify_waiters();
        }
    }

    /// A write begins, or has taken something.
    pub(super) fn writes(&self) {
        self.writing.store(self.moment(), Ordering::SeqCst);
    }

    /// No write is under way any more.
    pub(super) fn rests(&self) {
        self.writing.store(0, Ordering::SeqCst);
    }

    /// Whether lines that cannot be written are kept for another try.
    pub(super) fn keeps(&self, life: Life) -> bool {
        self.on_full == OnFull::Wait && life == Life::Open
    }

    /// Notes how the last write ended, and tells the operator when that changes.
    pub(super) fn failing(&self, failure: Option<String>) {
        let mut state = self.state();
        if state.failing.is_none() && failure.is_none() {
            return;
        }
        let before = std::mem::replace(&mut state.failing, failure.clone());
        drop(state);
        match (before, failure, self.on_full) {
            (None, Some(error), OnFull::Drop) => {
                tracing::error!("decision log: it cannot be written, its lines are lost: {error}");
            }
            (None, Some(error), OnFull::Wait) => {
                tracing::error!("decision log: it cannot be written, requests wait: {error}");
            }
            (Some(_), None, _) => tracing::info!("decision log: it is written again"),
            (Some(_), Some(_), _) | (None, None, _) => {}
        }
    }

    /// Whether [`Self::losses_to_tell`] will have something to say.
    pub(super) fn untold(&self) -> Untold {
        let told = self.told.load(Ordering::Relaxed);
        if self.lost.load(Ordering::Acquire) == told {
            Untold::None
        } else {
            Untold::Some
        }
    }

    /// The lines that were lost since this was asked last, if it is time to tell.
    pub(super) fn losses_to_tell(&self, when: Telling) -> Option<u64> {
        if self.untold() == Untold::None || (when == Telling::Settled && !self.is_time_to_tell()) {
            return None;
        }
        self.first_untold.store(0, Ordering::Relaxed);
        let lost = self.lost.load(Ordering::Acquire);
        Some(lost - self.told.swap(lost, Ordering::Relaxed))
    }

    fn is_time_to_tell(&self) -> bool {
        let over = self.age(&self.last_loss).is_none_or(|age| age >= QUIET);
        let old = self
            .age(&self.first_untold)
            .is_none_or(|age| age >= PATIENCE);
        old || (over && self.state().failing.is_none())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_once_they_are_over_or_go_on_for_long() {
        let (clock, hand) = Clock::manual();
        let counter = IntCounter::new("dropped", "Lost lines.").unwrap();
        let queue = Queue::new(0, OnFull::Drop, counter.clone(), clock);
        let told = || queue.losses_to_tell(Telling::Settled);
        assert_eq!((queue.untold(), told()), (Untold::None, None));
        queue.push(|_| unreachable!("there is no room"));
        queue.lost(2);
        assert_eq!((queue.untold(), told()), (Untold::Some, None));
        hand.advance(QUIET);
        assert_eq!(
            (told(), told(), queue.untold()),
            (Some(3), None, Untold::None)
        );
        // They go on: told every now and then.
        let mut heard = vec![];
        for _ in 0..250 {
            hand.advance(Duration::from_millis(100));
            queue.lost(1);
            heard.extend(told());
        }
        assert_eq!(heard, [101, 101]);
        assert_eq!(queue.losses_to_tell(Telling::Last), Some(48));
        // It cannot be written: that was told, and the losses are when it can be again.
        queue.failing(Some("disk full".into()));
        queue.lost(5);
        hand.advance(QUIET);
        assert_eq!(told(), None);
        queue.failing(None);
        assert_eq!((told(), counter.get()), (Some(5), 3 + 250 + 5));
    }
}
