//! The log's writer thread: gathers lines for a moment, shows them to the tap, writes them in one call, and counts what it
//! cannot write. While it is stuck in a write another thread gathers and shows in its place: a destination that takes
//! nothing blinds nobody.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use super::queue::{LogPhase, LogQueue, LossReportTiming, UnreportedLosses, WriterUrgency};
use super::tap::LogTap;

/// How long lines are gathered before they are written.
const GATHER_TIME: Duration = Duration::from_millis(10);
/// How long to wait before a failed write is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// How long to wait for a pipe that is full and does not block.
const PIPE_FULL_DELAY: Duration = Duration::from_millis(5);
/// A write that has taken nothing for so long is not waited for by those who watch.
const STALL_TIME: Duration = Duration::from_millis(100);
/// How often losses that were not told of yet are looked at.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// Buffer space that is kept after a burst.
const KEPT_CAPACITY: usize = 1 << 20;

/// Whether the tap shows the lines that are written. If not, it has lines of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TapMode {
    Written,
    Own,
}

/// Starts the threads; they end when the log is closed.
pub(super) fn start(
    queue: &Arc<LogQueue>,
    sink: Box<dyn Write + Send>,
    tap: &Arc<LogTap>,
    shows: TapMode,
) -> io::Result<()> {
    let gathering = Arc::new(LineCollector {
        queue: Arc::clone(queue),
        tap: Arc::clone(tap),
        tap_mode: shows,
        collected: Mutex::default(),
    });
    let watch = Arc::new(StandbySignal::default());
    let standby = StandbyCollector {
        collector: Arc::clone(&gathering),
        signal: Arc::clone(&watch),
    };
    let standby = thread::Builder::new()
        .name("decision-tap".into())
        .spawn(move || standby.run())?;
    let standby = standby.thread().clone();
    let (writes, batch, end) = (Arc::clone(queue), Vec::new(), LineEnd::Whole);
    let writer = LogWriter {
        queue: writes,
        sink,
        collector: gathering,
        signal: watch,
        standby,
        batch,
        line_end: end,
    };
    let thread = thread::Builder::new()
        .name("decision-log".into())
        .spawn(move || writer.run())?;
    queue.set_writer(thread.thread());
    Ok(())
}

/// Takes lines from the workers, and shows them before they are written.
struct LineCollector {
    queue: Arc<LogQueue>,
    tap: Arc<LogTap>,
    tap_mode: TapMode,
    collected: Mutex<CollectedLines>,
}

/// What was gathered. Whoever gathers holds it, so that all see lines in one order.
#[derive(Default)]
struct CollectedLines {
    /// For the destination.
    batch: Vec<u8>,
    tap_only: Vec<u8>,
    spare: Vec<u8>,
}

impl LineCollector {
    /// Collects what waits and shows it.
    fn collect(&self) -> MutexGuard<'_, CollectedLines> {
        let mut guard = self.collected();
        let hands = &mut *guard;
        let before = hands.batch.len();
        self.queue
            .collect(&mut hands.batch, &mut hands.tap_only, &mut hands.spare);
        if self.tap_mode == TapMode::Written {
            self.tap
                .append(hands.batch.get(before..).unwrap_or_default());
        }
        self.tap.append(&hands.tap_only);
        self.tap.record_missed(self.queue.take_tap_missed());
        hands.tap_only.clear();
        hands.tap_only.shrink_to(KEPT_CAPACITY);
        guard
    }

    /// The same, and moves all that is for the destination to the end of `batch`.
    fn take_batch(&self, batch: &mut Vec<u8>) {
        let mut hands = self.collect();
        match batch.is_empty() {
            true => std::mem::swap(batch, &mut hands.batch),
            false => batch.append(&mut hands.batch),
        }
        hands.batch.shrink_to(KEPT_CAPACITY);
    }

    /// Whether something was gathered that nobody has taken.
    fn has_pending(&self) -> bool {
        !self.collected().batch.is_empty()
    }

    fn collected(&self) -> MutexGuard<'_, CollectedLines> {
        self.collected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gathers while the writer is stuck.
struct StandbyCollector {
    collector: Arc<LineCollector>,
    signal: Arc<StandbySignal>,
}

/// What the writer tells who stands by.
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
                Some(stuck) => {
                    if stuck >= STALL_TIME {
                        drop(self.collector.collect());
                        // It may have gone to rest meanwhile, and what was gathered is for it to write.
                        queue.wake();
                    }
                    thread::park_timeout(STALL_TIME);
                }
            }
        }
    }

    /// Until a write begins. Looked at again behind the flag, so that none is missed.
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
    standby: Thread,
    batch: Vec<u8>,
    line_end: LineEnd,
}
/// How the destination ends so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    /// Behind a line feed.
    Whole,
    /// In the middle of a line whose rest is in the batch.
    Middle,
    /// In the middle of a line whose rest was given up.
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

    /// Waits for lines.
    fn wait_for_lines(&self) {
        match self.queue.unreported_losses() {
            UnreportedLosses::None => thread::park(),
            UnreportedLosses::Some => {
                self.report_losses(LossReportTiming::Settled);
                thread::park_timeout(REPORT_INTERVAL);
            }
        }
    }

    fn report_losses(&self, when: LossReportTiming) {
        if let Some(lines) = self.queue.take_losses_to_report(when) {
            tracing::warn!(
                lines,
                "decision log: lines were lost; crawlgate_decision_log_dropped_total counts them"
            );
        }
    }

    /// Writes the batch, or gives it up, or keeps it for another try.
    fn write_or_give_up(&mut self, life: LogPhase) -> BatchOutcome {
        // Nothing tried, nothing learnt: an earlier failure stands.
        if self.batch.is_empty() {
            return BatchOutcome::Finished;
        }
        self.mark_write_begun();
        let failure = self.write_batch().err();
        self.queue.mark_idle();
        let failed = failure.is_some();
        self.queue
            .set_failure(failure.map(|error| error.to_string()));
        if failed && self.queue.keeps_failed_lines(life) {
            return BatchOutcome::Pending;
        }
        if failed {
            self.give_up();
        }
        self.batch.shrink_to(KEPT_CAPACITY);
        BatchOutcome::Finished
    }

    /// From here on it may be stuck.
    fn mark_write_begun(&self) {
        self.queue.mark_writing();
        if self.signal.asleep.swap(false, Ordering::SeqCst) {
            self.standby.unpark();
        }
    }

    /// Writes as much as can be written; what could not stays in the batch.
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

    /// Each line that is still there ends in the batch, a torn one too.
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
        self.standby.unpark();
    }
}

/// Whether the batch is dealt with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchOutcome {
    Finished,
    Pending,
}
