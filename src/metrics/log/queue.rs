//! The queue between the workers and the log's writer: a buffer for each worker, with a common limit.
//!
//! A worker locks only its own buffer, which otherwise only the writer locks, for the duration of a swap.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use prometheus::IntCounter;
use tokio::sync::Notify;

use crate::clock::Clock;

use super::{LogCloseResult, LogFullAction};

/// The number of buffers; further workers share them.
const BUFFERS: usize = 16;
/// The maximum number of bytes of lines that only the tap receives.
const TAP_BYTES: usize = 2 << 20;
/// The time without progress of a write after which a warning is shown.
const STALL_WARNING: Duration = Duration::from_secs(5);
/// The time for which a loss of lines is shown as a warning.
const LOSS_WARNING: Duration = Duration::from_secs(60);
/// Losses are logged once none has occurred for this time, or when the first of them is [`MAX_REPORT_DELAY`] old.
const QUIET_PERIOD: Duration = Duration::from_secs(1);
const MAX_REPORT_DELAY: Duration = Duration::from_secs(10);

thread_local! {
    /// The buffer of this thread, plus one; 0 if it has none yet.
    static BUFFER: Cell<usize> = const { Cell::new(0) };
}
static NEXT_BUFFER: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
pub(super) struct LogQueue {
    /// Lines for the destination and the tap, and all lines for the destination that the writer has taken.
    lines: LineBuffers,
    /// Lines for the destination only.
    destination_only: LineBuffers,
    /// Lines for the tap only.
    tap_only: LineBuffers,
    /// The number of lines for the tap that were lost before they reached the writer.
    tap_missed: AtomicU64,
    on_full: LogFullAction,
    /// Set by the first line after the writer last checked.
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
    /// Milliseconds from `opened_at` to the last loss, plus one; 0 is never.
    last_loss: AtomicU64,
    /// The time of the first loss that was not logged yet, in the form of `last_loss`.
    first_unreported_loss: AtomicU64,
    lost_lines: AtomicU64,
    reported_losses: AtomicU64,
    /// The time of the start or the last progress of the current write, in the form of `last_loss`; 0 without a write.
    write_progress_at: AtomicU64,
}

/// A buffer for each worker, with a common limit.
#[derive(Debug)]
struct LineBuffers {
    buffers: [Mutex<Vec<u8>>; BUFFERS],
    /// The number of waiting bytes.
    waiting: AtomicUsize,
    capacity: usize,
}

/// The recipients of a line for the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineAudience {
    Destination,
    DestinationAndTap,
}

/// The result of adding a line.
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
        let mut buffer = buffer.lock();
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

    /// Moves all waiting lines to the end of `batch`. `spare` is an empty buffer to swap with.
    fn collect(&self, batch: &mut Vec<u8>, spare: &mut Vec<u8>) {
        for buffer in &self.buffers {
            std::mem::swap(&mut *buffer.lock(), spare);
            batch.append(spare);
        }
    }

    fn release(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// When losses are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossReportTiming {
    /// Once they are over, or have lasted long.
    Settled,
    /// Now: the log is closed.
    Final,
}

/// `Some` if there are losses that were not logged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnreportedLosses {
    None,
    Some,
}

/// The state shared by the writer and the threads that wait for it.
#[derive(Debug, Default)]
struct LogQueueState {
    /// The number of requested flushes, and how many of them are done.
    flushes_requested: u64,
    flushes_done: u64,
    phase: LogPhase,
    /// The error of the last write.
    failing: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LogPhase {
    #[default]
    Open,
    Closing,
    Ended,
}

/// The current task of the writer.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriterOrders {
    pub(super) phase: LogPhase,
    flushes_requested: u64,
    pub(super) urgency: WriterUrgency,
}

/// The urgency of writing.
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
            destination_only: LineBuffers::new(bound),
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

    /// Sets the thread to wake.
    pub(super) fn set_writer(&self, thread: &Thread) {
        let _ = self.writer.set(thread.clone());
    }

    /// Appends a line to this worker's buffer, or counts it as lost.
    pub(super) fn push(
        &self,
        audience: LineAudience,
        render: impl FnOnce(&mut Vec<u8>),
    ) -> PushOutcome {
        let lines = match audience {
            LineAudience::Destination => &self.destination_only,
            LineAudience::DestinationAndTap => &self.lines,
        };
        let dropped = self.on_full == LogFullAction::Drop && self.is_full();
        if dropped || lines.push(&self.ended, render) == PushOutcome::Lost {
            self.record_lost(1);
            return PushOutcome::Lost;
        }
        self.announce();
        PushOutcome::Queued
    }

    /// Appends a line for the tap only. Never waits; a lost line is missing only in the tap.
    pub(super) fn push_for_tap(&self, render: impl FnOnce(&mut Vec<u8>)) {
        if self.tap_only.is_full() || self.tap_only.push(&self.ended, render) == PushOutcome::Lost {
            return self.record_tap_miss();
        }
        self.announce();
    }

    /// Counts a line that the tap will not receive.
    fn record_tap_miss(&self) {
        self.tap_missed.fetch_add(1, Ordering::Relaxed);
    }

    fn announce(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn is_full(&self) -> bool {
        self.waiting() >= self.lines.capacity
    }

    /// Returns the number of lines that were lost so far.
    pub(super) fn lost_lines(&self) -> u64 {
        self.lost_lines.load(Ordering::Relaxed)
    }

    pub(super) fn wake(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    pub(super) async fn wait_if_full(&self) {
        while self.on_full == LogFullAction::Wait && self.is_full() {
            // Created before the second check, so that a notification between check and wait is not missed.
            let notified = self.room.notified();
            if !self.is_full() {
                return;
            }
            notified.await;
        }
    }

    /// Counts lost lines, and records when.
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

    /// Returns the current time in milliseconds since `opened_at`, plus one.
    fn now_stamp(&self) -> u64 {
        let since = self
            .clock
            .now()
            .saturating_duration_since(self.opened_at)
            .as_millis();
        u64::try_from(since).unwrap_or(u64::MAX - 1) + 1
    }

    /// Returns the age of such a time; `None` for never.
    fn stamp_age(&self, moment: &AtomicU64) -> Option<Duration> {
        let ms = moment.load(Ordering::SeqCst).checked_sub(1)?;
        Some(
            self.clock
                .now()
                .saturating_duration_since(self.opened_at + Duration::from_millis(ms)),
        )
    }

    pub(super) fn warning(&self) -> Option<String> {
        if let Some(failure) = &self.state.lock().failing {
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

    /// Returns how long the current write has made no progress; `None` without a current write.
    pub(super) fn write_stalled_for(&self) -> Option<Duration> {
        self.stamp_age(&self.write_progress_at)
    }

    pub(super) fn flush(&self, timeout: Duration) -> LogCloseResult {
        let mut state = self.state.lock();
        state.flushes_requested += 1;
        let request_number = state.flushes_requested;
        self.wait_while(&mut state, timeout, |state| {
            state.flushes_done < request_number && state.phase != LogPhase::Ended
        })
    }

    /// Requests that the writer writes the remaining lines and ends.
    pub(super) fn request_close(&self) {
        let mut state = self.state.lock();
        if state.phase == LogPhase::Open {
            state.phase = LogPhase::Closing;
        }
        drop(state);
        self.wake();
    }

    pub(super) fn close(&self, timeout: Duration) -> LogCloseResult {
        self.request_close();
        let mut state = self.state.lock();
        self.wait_while(&mut state, timeout, |state| state.phase != LogPhase::Ended)
    }

    fn wait_while(
        &self,
        state: &mut MutexGuard<'_, LogQueueState>,
        timeout: Duration,
        mut condition: impl FnMut(&mut LogQueueState) -> bool,
    ) -> LogCloseResult {
        self.wake();
        let _ = self.progress.wait_while_for(state, &mut condition, timeout);
        // Not by the result of the wait: the writer may have finished in the instant of the timeout.
        if condition(&mut *state) {
            LogCloseResult::TimedOut
        } else {
            LogCloseResult::Done
        }
    }

    /// The number of bytes that wait for the writer or that it has taken.
    pub(super) fn waiting(&self) -> usize {
        self.lines.waiting.load(Ordering::Acquire)
            + self.destination_only.waiting.load(Ordering::Acquire)
    }
}

/// The methods for the writer.
impl LogQueue {
    pub(super) fn orders(&self) -> WriterOrders {
        let state = self.state.lock();
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

    /// Rejects further lines; to be called before the last [`Self::collect`].
    pub(super) fn stop_accepting(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Moves waiting lines to the end of `batch`, and those for the tap only to the end of `tap_batch`. Returns the
    /// position in `batch` after which the lines are for the destination only. `spare` is an empty buffer to swap with.
    pub(super) fn collect(
        &self,
        batch: &mut Vec<u8>,
        tap_batch: &mut Vec<u8>,
        spare: &mut Vec<u8>,
    ) -> usize {
        // First, so that a line that arrives during the collection sets it again.
        self.pending.store(false, Ordering::Release);
        self.lines.collect(batch, spare);
        let end_of_shared = batch.len();
        self.destination_only.collect(batch, spare);
        let moved = batch.len() - end_of_shared;
        self.lines.waiting.fetch_add(moved, Ordering::AcqRel);
        self.destination_only.release(moved);
        let before = tap_batch.len();
        self.tap_only.collect(tap_batch, spare);
        self.tap_only.release(tap_batch.len() - before);
        end_of_shared
    }

    /// Returns the number of lines that the tap has missed since the last call.
    pub(super) fn take_tap_missed(&self) -> u64 {
        self.tap_missed.swap(0, Ordering::Relaxed)
    }

    /// Frees the space of bytes that were written or given up.
    pub(super) fn release(&self, bytes: usize) {
        self.lines.release(bytes);
        if self.on_full == LogFullAction::Wait && !self.is_full() {
            self.room.notify_waiters();
        }
    }

    /// Records that a write begins, or has made progress.
    pub(super) fn mark_writing(&self) {
        self.write_progress_at
            .store(self.now_stamp(), Ordering::SeqCst);
    }

    /// Records that no write is in progress.
    pub(super) fn mark_idle(&self) {
        self.write_progress_at.store(0, Ordering::SeqCst);
    }

    /// Returns `true` if lines that cannot be written are kept for another attempt.
    pub(super) fn keeps_failed_lines(&self, phase: LogPhase) -> bool {
        self.on_full == LogFullAction::Wait && phase == LogPhase::Open
    }

    /// Records the result of the last write, and logs when it changes.
    pub(super) fn set_failure(&self, failure: Option<String>) {
        let mut state = self.state.lock();
        if state.failing.is_none() && failure.is_none() {
            return;
        }
        let before = std::mem::replace(&mut state.failing, failure.clone());
        drop(state);
        match (before, failure, self.on_full) {
            (None, Some(error), LogFullAction::Drop) => {
                tracing::error!("decision log: cannot be written, lines are lost: {error}");
            }
            (None, Some(error), LogFullAction::Wait) => {
                tracing::error!("decision log: cannot be written, requests wait: {error}");
            }
            (Some(_), None, _) => tracing::info!("decision log: can be written again"),
            (Some(_), Some(_), _) | (None, None, _) => {}
        }
    }

    /// Returns `true` if [`Self::take_losses_to_report`] will return a number.
    pub(super) fn unreported_losses(&self) -> UnreportedLosses {
        let reported = self.reported_losses.load(Ordering::Relaxed);
        if self.lost_lines.load(Ordering::Acquire) == reported {
            UnreportedLosses::None
        } else {
            UnreportedLosses::Some
        }
    }

    /// Returns the number of lines lost since the last call, if it is time to log it.
    pub(super) fn take_losses_to_report(&self, timing: LossReportTiming) -> Option<u64> {
        if self.unreported_losses() == UnreportedLosses::None
            || (timing == LossReportTiming::Settled && !self.is_time_to_report())
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
        old || (over && self.state.lock().failing.is_none())
    }

    /// Notifies waiters that the orders were carried out.
    pub(super) fn complete(&self, orders: WriterOrders) {
        let mut state = self.state.lock();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_reported_at_their_end_or_after_a_time() {
        let (clock, control) = Clock::manual();
        let counter = IntCounter::new("dropped", "Lost lines.").unwrap();
        let queue = LogQueue::new(0, LogFullAction::Drop, counter.clone(), clock);
        let reported = || queue.take_losses_to_report(LossReportTiming::Settled);
        assert_eq!(
            (queue.unreported_losses(), reported()),
            (UnreportedLosses::None, None)
        );
        queue.push(LineAudience::Destination, |_| {
            unreachable!("there is no room")
        });
        queue.record_lost(2);
        assert_eq!(
            (queue.unreported_losses(), reported()),
            (UnreportedLosses::Some, None)
        );
        control.advance(QUIET_PERIOD);
        assert_eq!(
            (reported(), reported(), queue.unreported_losses()),
            (Some(3), None, UnreportedLosses::None)
        );
        // Losses continue and are logged from time to time.
        let mut counts = vec![];
        for _ in 0..250 {
            control.advance(Duration::from_millis(100));
            queue.record_lost(1);
            counts.extend(reported());
        }
        assert_eq!(counts, [101, 101]);
        assert_eq!(
            queue.take_losses_to_report(LossReportTiming::Final),
            Some(48)
        );
        // A failing log was reported already; the losses are logged once it works again.
        queue.set_failure(Some("disk full".into()));
        queue.record_lost(5);
        control.advance(QUIET_PERIOD);
        assert_eq!(reported(), None);
        queue.set_failure(None);
        assert_eq!((reported(), counter.get()), (Some(5), 3 + 250 + 5));
    }
}
