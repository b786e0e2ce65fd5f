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

use super::{LogCloseResult, LogFullAction};

/// Buffers; workers beyond this number share them.
const BUFFERS: usize = 16;
/// Bytes of lines for the tap alone that may wait.
const TAP_BYTES: usize = 2 << 20;
/// For how long a write may take nothing before that is warned of.
const STALL_WARNING: Duration = Duration::from_secs(5);
/// For how long a loss is warned of.
const LOSS_WARNING: Duration = Duration::from_secs(60);
/// Losses are told once none came for so long, or when the first of them is so old.
const QUIET_PERIOD: Duration = Duration::from_secs(1);
const MAX_REPORT_DELAY: Duration = Duration::from_secs(10);

thread_local! {
    /// The buffer of this thread, plus one; 0 is none yet.
    static BUFFER: Cell<usize> = const { Cell::new(0) };
}
static NEXT_BUFFER: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
pub(super) struct LogQueue {
    /// What waits to be written, in the writer's hands too.
    lines: LineBuffers,
    /// What waits for the tap alone.
    tap_only: LineBuffers,
    /// Lines that the tap should have had, and that were lost before they came to the writer.
    tap_missed: AtomicU64,
    on_full: LogFullAction,
    /// Set by the first line after the writer last looked.
    pending: AtomicBool,
    /// Set before the buffers are emptied for the last time.
    ended: AtomicBool,
    writer: OnceLock<Thread>,
    room: Notify,
    state: Mutex<LogQueueState>,
    progress: Condvar,
    dropped: IntCounter,
    clock: Clock,
    opened_at: Instant,
    /// Milliseconds from `opened` to the last loss, plus one; 0 is never.
    last_loss: AtomicU64,
    /// The same for the first loss that nobody was told of.
    first_unreported_loss: AtomicU64,
    lost_lines: AtomicU64,
    reported_losses: AtomicU64,
    /// The same for the last time that a write under way began, or took something; 0 is none under way.
    write_progress_at: AtomicU64,
}

/// A buffer for each worker, and one bound over all of them.
#[derive(Debug)]
struct LineBuffers {
    buffers: [Mutex<Vec<u8>>; BUFFERS],
    /// Bytes that wait.
    waiting: AtomicUsize,
    capacity: usize,
}

/// Whether a line was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushOutcome {
    Queued,
    Lost,
}

impl LineBuffers {
    fn new(bound: usize) -> Self {
        Self {
            buffers: Default::default(),
            waiting: AtomicUsize::new(0),
            capacity: bound,
        }
    }

    fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Acquire) >= self.capacity
    }

    /// Appends a line to this worker's buffer, unless `ended` is set.
    fn push(&self, ended: &AtomicBool, render: impl FnOnce(&mut Vec<u8>)) -> PushOutcome {
        let Some(buffer) = self.buffers.get(thread_buffer_index()) else {
            return PushOutcome::Lost;
        };
        let mut buffer = lock(buffer);
        if ended.load(Ordering::Acquire) {
            return PushOutcome::Lost;
        }
        let before = buffer.len();
        render(&mut buffer);
        // Counted before the writer can take it, so that the sum never falls below zero.
        self.waiting
            .fetch_add(buffer.len() - before, Ordering::AcqRel);
        PushOutcome::Queued
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
pub(super) enum LossReportTiming {
    /// Once they are over, or go on for long.
    Settled,
    /// Now: nothing will be told later.
    Final,
}

/// Whether there are losses that the operator has not been told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnreportedLosses {
    None,
    Some,
}

/// What the writer and those who wait for it tell each other.
#[derive(Debug, Default)]
struct LogQueueState {
    /// Flushes that were asked for, and how many of them are done.
    flushes_requested: u64,
    flushes_done: u64,
    phase: LogPhase,
    /// Why the last write failed.
    failing: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LogPhase {
    #[default]
    Open,
    Closing,
    Ended,
}

/// What the writer is asked to do now.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriterOrders {
    pub(super) phase: LogPhase,
    flushes_requested: u64,
    pub(super) urgency: WriterUrgency,
}

/// Whether the writer may wait a little for more lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterUrgency {
    None,
    Gather,
    Now,
}

impl LogQueue {
    pub(super) fn new(
        bound: usize,
        on_full: LogFullAction,
        dropped: IntCounter,
        clock: Clock,
    ) -> Self {
        Self {
            lines: LineBuffers::new(bound),
            tap_only: LineBuffers::new(TAP_BYTES),
            tap_missed: AtomicU64::new(0),
            on_full,
            pending: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            writer: OnceLock::new(),
            room: Notify::new(),
            state: Mutex::default(),
            progress: Condvar::new(),
            dropped,
            opened_at: clock.now(),
            clock,
            last_loss: AtomicU64::new(0),
            first_unreported_loss: AtomicU64::new(0),
            lost_lines: AtomicU64::new(0),
            reported_losses: AtomicU64::new(0),
            write_progress_at: AtomicU64::new(0),
        }
    }

    /// Tells whom to wake.
    pub(super) fn set_writer(&self, thread: &Thread) {
        let _ = self.writer.set(thread.clone());
    }

    /// Appends a line to this worker's buffer, or counts it as lost.
    pub(super) fn push(&self, render: impl FnOnce(&mut Vec<u8>)) -> PushOutcome {
        let dropped = self.on_full == LogFullAction::Drop && self.is_full();
        if dropped || self.lines.push(&self.ended, render) == PushOutcome::Lost {
            self.record_lost(1);
            return PushOutcome::Lost;
        }
        self.announce();
        PushOutcome::Queued
    }

    /// Appends a line for the tap alone. It never waits, and a loss is nobody's but the tap's.
    pub(super) fn push_for_tap(&self, render: impl FnOnce(&mut Vec<u8>)) {
        if self.tap_only.is_full() || self.tap_only.push(&self.ended, render) == PushOutcome::Lost {
            return self.record_tap_miss();
        }
        self.announce();
    }

    /// Notes a line that the tap will not get.
    fn record_tap_miss(&self) {
        self.tap_missed.fetch_add(1, Ordering::Relaxed);
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

    pub(super) async fn wait_if_full(&self) {
        while self.on_full == LogFullAction::Wait && self.is_full() {
            // Made before the second look: a wake-up between look and wait is not missed.
            let notified = self.room.notified();
            if !self.is_full() {
                return;
            }
            notified.await;
        }
    }

    /// Counts lines that are lost, and notes when.
    pub(super) fn record_lost(&self, lines: usize) {
        if lines == 0 {
            return;
        }
        self.dropped.inc_by(lines as u64);
        let since = self.now_stamp();
        self.last_loss.store(since, Ordering::Relaxed);
        let _ = self.first_unreported_loss.compare_exchange(
            0,
            since,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        self.lost_lines.fetch_add(lines as u64, Ordering::Release);
    }

    /// This moment, in milliseconds plus one.
    fn now_stamp(&self) -> u64 {
        let since = self
            .clock
            .now()
            .saturating_duration_since(self.opened_at)
            .as_millis();
        u64::try_from(since).unwrap_or(u64::MAX - 1) + 1
    }

    /// How long ago a moment was that is kept in milliseconds plus one; `None` for never.
    fn stamp_age(&self, moment: &AtomicU64) -> Option<Duration> {
        let ms = moment.load(Ordering::SeqCst).checked_sub(1)?;
        Some(
            self.clock
                .now()
                .saturating_duration_since(self.opened_at + Duration::from_millis(ms)),
        )
    }

    pub(super) fn warning(&self) -> Option<String> {
        if let Some(failure) = &self.state().failing {
            return Some(format!("cannot be written: {failure}"));
        }
        if let Some(stuck) = self
            .write_stalled_for()
            .filter(|stuck| *stuck >= STALL_WARNING)
        {
            let seconds = stuck.as_secs();
            return Some(format!(
                "blocked: the destination has taken nothing for {seconds} s"
            ));
        }
        if self.on_full == LogFullAction::Wait && self.is_full() {
            return Some("full: requests wait until it can be written".into());
        }
        let age = self.stamp_age(&self.last_loss)?;
        (age < LOSS_WARNING).then(|| {
            format!(
                "lost lines {} s ago, {} in all",
                age.as_secs(),
                self.dropped.get()
            )
        })
    }

    /// For how long the write that is under way has taken nothing; none if none is.
    pub(super) fn write_stalled_for(&self) -> Option<Duration> {
        self.stamp_age(&self.write_progress_at)
    }

    pub(super) fn flush(&self, within: Duration) -> LogCloseResult {
        let mut state = self.state();
        state.flushes_requested += 1;
        let mine = state.flushes_requested;
        self.wait_while(state, within, |state| {
            state.flushes_done < mine && state.phase != LogPhase::Ended
        })
    }

    /// Asks the writer to write what is left and to end.
    pub(super) fn request_close(&self) {
        let mut state = self.state();
        if state.phase == LogPhase::Open {
            state.phase = LogPhase::Closing;
        }
        drop(state);
        self.wake();
    }

    pub(super) fn close(&self, within: Duration) -> LogCloseResult {
        self.request_close();
        let state = self.state();
        self.wait_while(state, within, |state| state.phase != LogPhase::Ended)
    }

    fn wait_while(
        &self,
        state: MutexGuard<'_, LogQueueState>,
        within: Duration,
        mut waits: impl FnMut(&mut LogQueueState) -> bool,
    ) -> LogCloseResult {
        self.wake();
        let waited = self
            .progress
            .wait_timeout_while(state, within, |state| waits(state));
        let (_state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            LogCloseResult::TimedOut
        } else {
            LogCloseResult::Done
        }
    }

    /// Bytes that wait for the writer or are in its hands.
    pub(super) fn waiting(&self) -> usize {
        self.lines.waiting.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, LogQueueState> {
        lock(&self.state)
    }
}

/// The writer's side.
impl LogQueue {
    pub(super) fn orders(&self) -> WriterOrders {
        let state = self.state();
        let urgent =
            if state.phase != LogPhase::Open || state.flushes_requested > state.flushes_done {
                WriterUrgency::Now
            } else if self.pending.load(Ordering::Acquire) {
                WriterUrgency::Gather
            } else {
                WriterUrgency::None
            };
        WriterOrders {
            phase: state.phase,
            flushes_requested: state.flushes_requested,
            urgency: urgent,
        }
    }

    /// From now on lines are lost; to be called before the last [`Self::collect`].
    pub(super) fn stop_accepting(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Moves what waits in the buffers to the end of `batch`, and what waits for the tap alone to that of `aside`. `spare`
    /// is an empty buffer to swap with.
    pub(super) fn collect(&self, batch: &mut Vec<u8>, aside: &mut Vec<u8>, spare: &mut Vec<u8>) {
        // First, so that a line which comes behind the collector's back sets it again.
        self.pending.store(false, Ordering::Release);
        self.lines.collect(batch, spare);
        let before = aside.len();
        self.tap_only.collect(aside, spare);
        self.tap_only.release(aside.len() - before);
    }

    /// How many lines the tap has missed since this was asked last.
    pub(super) fn take_tap_missed(&self) -> u64 {
        self.tap_missed.swap(0, Ordering::Relaxed)
    }

    /// Gives back the room of bytes that were written or given up.
    pub(super) fn release(&self, bytes: usize) {
        self.lines.release(bytes);
        if self.on_full == LogFullAction::Wait && !self.is_full() {
            self.room.notify_waiters();
        }
    }

    /// A write begins, or has taken something.
    pub(super) fn mark_writing(&self) {
        self.write_progress_at
            .store(self.now_stamp(), Ordering::SeqCst);
    }

    /// No write is under way any more.
    pub(super) fn mark_idle(&self) {
        self.write_progress_at.store(0, Ordering::SeqCst);
    }

    /// Whether lines that cannot be written are kept for another try.
    pub(super) fn keeps_failed_lines(&self, life: LogPhase) -> bool {
        self.on_full == LogFullAction::Wait && life == LogPhase::Open
    }

    /// Notes how the last write ended, and tells the operator when that changes.
    pub(super) fn set_failure(&self, failure: Option<String>) {
        let mut state = self.state();
        if state.failing.is_none() && failure.is_none() {
            return;
        }
        let before = std::mem::replace(&mut state.failing, failure.clone());
        drop(state);
        match (before, failure, self.on_full) {
            (None, Some(error), LogFullAction::Drop) => {
                tracing::error!("decision log: it cannot be written, its lines are lost: {error}");
            }
            (None, Some(error), LogFullAction::Wait) => {
                tracing::error!("decision log: it cannot be written, requests wait: {error}");
            }
            (Some(_), None, _) => tracing::info!("decision log: it is written again"),
            (Some(_), Some(_), _) | (None, None, _) => {}
        }
    }

    /// Whether [`Self::take_losses_to_report`] will have something to say.
    pub(super) fn unreported_losses(&self) -> UnreportedLosses {
        let told = self.reported_losses.load(Ordering::Relaxed);
        if self.lost_lines.load(Ordering::Acquire) == told {
            UnreportedLosses::None
        } else {
            UnreportedLosses::Some
        }
    }

    /// The lines that were lost since this was asked last, if it is time to tell.
    pub(super) fn take_losses_to_report(&self, when: LossReportTiming) -> Option<u64> {
        if self.unreported_losses() == UnreportedLosses::None
            || (when == LossReportTiming::Settled && !self.is_time_to_report())
        {
            return None;
        }
        self.first_unreported_loss.store(0, Ordering::Relaxed);
        let lost = self.lost_lines.load(Ordering::Acquire);
        Some(lost - self.reported_losses.swap(lost, Ordering::Relaxed))
    }

    fn is_time_to_report(&self) -> bool {
        let over = self
            .stamp_age(&self.last_loss)
            .is_none_or(|age| age >= QUIET_PERIOD);
        let old = self
            .stamp_age(&self.first_unreported_loss)
            .is_none_or(|age| age >= MAX_REPORT_DELAY);
        old || (over && self.state().failing.is_none())
    }

    /// Tells who waits that the orders were carried out.
    pub(super) fn complete(&self, orders: WriterOrders) {
        let mut state = self.state();
        state.flushes_done = orders.flushes_requested;
        if orders.phase == LogPhase::Closing {
            state.phase = LogPhase::Ended;
        }
        drop(state);
        self.progress.notify_all();
    }
}

fn thread_buffer_index() -> usize {
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
        let queue = LogQueue::new(0, LogFullAction::Drop, counter.clone(), clock);
        let told = || queue.take_losses_to_report(LossReportTiming::Settled);
        assert_eq!(
            (queue.unreported_losses(), told()),
            (UnreportedLosses::None, None)
        );
        queue.push(|_| unreachable!("there is no room"));
        queue.record_lost(2);
        assert_eq!(
            (queue.unreported_losses(), told()),
            (UnreportedLosses::Some, None)
        );
        hand.advance(QUIET_PERIOD);
        assert_eq!(
            (told(), told(), queue.unreported_losses()),
            (Some(3), None, UnreportedLosses::None)
        );
        // They go on: told every now and then.
        let mut heard = vec![];
        for _ in 0..250 {
            hand.advance(Duration::from_millis(100));
            queue.record_lost(1);
            heard.extend(told());
        }
        assert_eq!(heard, [101, 101]);
        assert_eq!(
            queue.take_losses_to_report(LossReportTiming::Final),
            Some(48)
        );
        // It cannot be written: that was told, and the losses are when it can be again.
        queue.set_failure(Some("disk full".into()));
        queue.record_lost(5);
        hand.advance(QUIET_PERIOD);
        assert_eq!(told(), None);
        queue.set_failure(None);
        assert_eq!((told(), counter.get()), (Some(5), 3 + 250 + 5));
    }
}
