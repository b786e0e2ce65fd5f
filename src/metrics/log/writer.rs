//! The log's writer thread: it collects lines for a moment, passes them to the tap, writes them in one call, and counts
//! those that it cannot write. While a write blocks, a second thread collects lines and passes them to the tap, so that a
//! blocked destination does not stop the tap.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::queue::{LogPhase, LogQueue, LossReportTiming, UnreportedLosses, WriterUrgency};
use super::tap::LogTap;

/// The time for which lines are collected before they are written.
const GATHER_TIME: Duration = Duration::from_millis(10);
/// The delay before a failed write is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// The delay for a full, non-blocking pipe.
const PIPE_FULL_DELAY: Duration = Duration::from_millis(5);
/// The time without progress of a write after which the second thread collects lines for the tap.
const STALL_TIME: Duration = Duration::from_millis(100);
/// The interval at which unreported losses are checked.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// The buffer capacity that is kept after a burst.
const KEPT_CAPACITY: usize = 1 << 20;

/// Starts the threads, which end when the log is closed.
pub(super) fn start(
    queue: &Arc<LogQueue>,
    sink: Box<dyn Write + Send>,
    tap: &Arc<LogTap>,
) -> io::Result<()> {
    let collector = Arc::new(LineCollector {
        queue: Arc::clone(queue),
        tap: Arc::clone(tap),
        collected: Mutex::default(),
    });
    let signal = Arc::new(StandbySignal::default());
    let tap_collector = StandbyCollector {
        collector: Arc::clone(&collector),
        signal: Arc::clone(&signal),
    };
    let tap_collector = thread::Builder::new()
        .name("decision-tap".into())
        .spawn(move || tap_collector.run())?;
    let tap_collector = tap_collector.thread().clone();
    let writer = LogWriter {
        queue: Arc::clone(queue),
        sink,
        collector,
        signal,
        tap_collector,
        batch: Vec::new(),
        line_end: LineEnd::Whole,
    };
    let thread = thread::Builder::new()
        .name("decision-log".into())
        .spawn(move || writer.run())?;
    queue.set_writer(thread.thread());
    Ok(())
}

/// Collects lines from the workers, and passes them to the tap before they are written.
struct LineCollector {
    queue: Arc<LogQueue>,
    tap: Arc<LogTap>,
    collected: Mutex<CollectedLines>,
}

/// The collected lines. The lock is held while collecting, so that all recipients see lines in the same order.
#[derive(Default)]
struct CollectedLines {
    /// Lines for the destination.
    batch: Vec<u8>,
    tap_only: Vec<u8>,
    spare: Vec<u8>,
}

impl LineCollector {
    /// Collects waiting lines and passes them to the tap.
    fn collect(&self) -> MutexGuard<'_, CollectedLines> {
        let mut collected = self.collected.lock();
        let lines = &mut *collected;
        let before = lines.batch.len();
        let end_of_shared =
            self.queue
                .collect(&mut lines.batch, &mut lines.tap_only, &mut lines.spare);
        self.tap
            .append(lines.batch.get(before..end_of_shared).unwrap_or_default());
        self.tap.append(&lines.tap_only);
        self.tap.record_missed(self.queue.take_tap_missed());
        lines.tap_only.clear();
        lines.tap_only.shrink_to(KEPT_CAPACITY);
        collected
    }

    /// Collects lines, and moves those for the destination to the end of `batch`.
    fn take_batch(&self, batch: &mut Vec<u8>) {
        let mut lines = self.collect();
        if batch.is_empty() {
            std::mem::swap(batch, &mut lines.batch);
        } else {
            batch.append(&mut lines.batch);
        }
        lines.batch.shrink_to(KEPT_CAPACITY);
    }

    /// Returns `true` if there are collected lines that were not taken.
    fn has_pending(&self) -> bool {
        !self.collected.lock().batch.is_empty()
    }
}

/// Collects lines while the writer is blocked.
struct StandbyCollector {
    collector: Arc<LineCollector>,
    signal: Arc<StandbySignal>,
}

/// The signals between the writer and the second thread.
#[derive(Debug, Default)]
struct StandbySignal {
    asleep: AtomicBool,
    ended: AtomicBool,
}

impl StandbyCollector {
    fn run(self) {
        let queue = &self.collector.queue;
        while !self.signal.ended.load(Ordering::SeqCst) {
            match queue.write_stalled_for() {
                None => self.sleep(),
                Some(stalled) => {
                    if stalled >= STALL_TIME {
                        drop(self.collector.collect());
                        // The writer may be idle by now, and has to write what was collected.
                        queue.wake();
                    }
                    thread::park_timeout(STALL_TIME);
                }
            }
        }
    }

    /// Sleeps until a write begins. The state is checked again after the flag is set, so that none is missed.
    fn sleep(&self) {
        self.signal.asleep.store(true, Ordering::SeqCst);
        if self.collector.queue.write_stalled_for().is_none()
            && !self.signal.ended.load(Ordering::SeqCst)
        {
            thread::park();
        }
        self.signal.asleep.store(false, Ordering::SeqCst);
    }
}

struct LogWriter {
    queue: Arc<LogQueue>,
    sink: Box<dyn Write + Send>,
    collector: Arc<LineCollector>,
    signal: Arc<StandbySignal>,
    tap_collector: Thread,
    batch: Vec<u8>,
    line_end: LineEnd,
}
/// The state of the last line in the destination.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    /// Complete.
    Whole,
    /// Incomplete; the rest is in the batch.
    Middle,
    /// Incomplete; the rest was given up.
    Torn,
}

impl LogWriter {
    fn run(mut self) {
        loop {
            let orders = self.queue.orders();
            match orders.urgency {
                WriterUrgency::None if self.batch.is_empty() && !self.collector.has_pending() => {
                    self.wait_for_lines();
                    continue;
                }
                WriterUrgency::None | WriterUrgency::Gather => thread::park_timeout(GATHER_TIME),
                WriterUrgency::Now => {}
            }
            if orders.phase == LogPhase::Closing {
                self.queue.stop_accepting();
            }
            self.collector.take_batch(&mut self.batch);
            if self.write_or_give_up(orders.phase) == BatchOutcome::Pending {
                thread::park_timeout(RETRY_DELAY);
                continue;
            }
            let end = orders.phase == LogPhase::Closing;
            self.report_losses(if end {
                LossReportTiming::Final
            } else {
                LossReportTiming::Settled
            });
            self.queue.complete(orders);
            if end {
                return;
            }
        }
    }

    fn wait_for_lines(&self) {
        match self.queue.unreported_losses() {
            UnreportedLosses::None => thread::park(),
            UnreportedLosses::Some => {
                self.report_losses(LossReportTiming::Settled);
                thread::park_timeout(REPORT_INTERVAL);
            }
        }
    }

    fn report_losses(&self, timing: LossReportTiming) {
        if let Some(lines) = self.queue.take_losses_to_report(timing) {
            tracing::warn!(
                lines,
                "decision log: lines were lost; crawlgate_decision_log_dropped_total counts them"
            );
        }
    }

    /// Writes the batch, gives it up, or keeps it for another attempt.
    fn write_or_give_up(&mut self, phase: LogPhase) -> BatchOutcome {
        // Nothing was tried, so an earlier failure remains.
        if self.batch.is_empty() {
            return BatchOutcome::Finished;
        }
        self.mark_write_begun();
        let failure = self.write_batch().err();
        self.queue.mark_idle();
        let failed = failure.is_some();
        self.queue
            .set_failure(failure.map(|error| error.to_string()));
        if failed && self.queue.keeps_failed_lines(phase) {
            return BatchOutcome::Pending;
        }
        if failed {
            self.give_up();
        }
        self.batch.shrink_to(KEPT_CAPACITY);
        BatchOutcome::Finished
    }

    /// Records the start of a write, which may block.
    fn mark_write_begun(&self) {
        self.queue.mark_writing();
        if self.signal.asleep.swap(false, Ordering::SeqCst) {
            self.tap_collector.unpark();
        }
    }

    /// Writes as much as possible; the rest stays in the batch.
    fn write_batch(&mut self) -> io::Result<()> {
        if self.line_end == LineEnd::Torn {
            self.sink.write_all(b"\n")?;
            self.line_end = LineEnd::Whole;
        }
        let mut written = 0;
        let outcome = loop {
            let rest = self.batch.get(written..).unwrap_or_default();
            if rest.is_empty() {
                break self.sink.flush();
            }
            match self.sink.write(rest) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    written += bytes;
                    self.queue.mark_writing();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    thread::park_timeout(PIPE_FULL_DELAY)
                }
                Err(error) => break Err(error),
            }
        };
        if let Some(last) = written.checked_sub(1).and_then(|last| self.batch.get(last)) {
            self.line_end = if *last == b'\n' {
                LineEnd::Whole
            } else {
                LineEnd::Middle
            };
        }
        self.batch.drain(..written.min(self.batch.len()));
        self.queue.release(written);
        outcome
    }

    /// Counts the lines that end in the batch, including an incomplete one.
    fn give_up(&mut self) {
        self.queue
            .record_lost(self.batch.iter().filter(|byte| **byte == b'\n').count());
        self.queue.release(self.batch.len());
        self.batch.clear();
        if self.line_end == LineEnd::Middle {
            self.line_end = LineEnd::Torn;
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.collector.tap.close();
        self.queue.mark_idle();
        self.signal.ended.store(true, Ordering::SeqCst);
        self.tap_collector.unpark();
    }
}

/// The result of trying to write a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchOutcome {
    Finished,
    Pending,
}
