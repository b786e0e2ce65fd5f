//! The log's writer thread: gathers lines for a moment, shows them to the tap, writes them in one call, and counts what it
//! cannot write. While it is stuck in a write another thread gathers and shows in its place: a destination that takes
//! nothing blinds nobody.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use super::queue::{Life, Queue, Telling, Untold, Urgency};
use super::tap::Tap;

/// How long lines are gathered before they are written.
const GATHER: Duration = Duration::from_millis(10);
/// How long to wait before a failed write is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// How long to wait for a pipe that is full and does not block.
const PIPE_FULL: Duration = Duration::from_millis(5);
/// A write that has taken nothing for so long is not waited for by those who watch.
const STUCK: Duration = Duration::from_millis(100);
/// How often losses that were not told of yet are looked at.
const TELL: Duration = Duration::from_millis(500);
/// Buffer space that is kept after a burst.
const KEPT: usize = 1 << 20;

/// Whether the tap shows the lines that are written. If not, it has lines of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    Written,
    Own,
}

/// Starts the threads; they end when the log is closed.
pub(super) fn start(
    queue: &Arc<Queue>,
    sink: Box<dyn Write + Send>,
    tap: &Arc<Tap>,
    shows: Shows,
) -> io::Result<()> {
    let gathering = Arc::new(Gathering {
        queue: Arc::clone(queue),
        tap: Arc::clone(tap),
        shows,
        hands: Mutex::default(),
    });
    let watch = Arc::new(Watch::default());
    let standby = Standby {
        gathering: Arc::clone(&gathering),
        watch: Arc::clone(&watch),
    };
    let standby = thread::Builder::new()
        .name("decision-tap".into())
        .spawn(move || standby.run())?;
    let standby = standby.thread().clone();
    let (writes, batch, end) = (Arc::clone(queue), Vec::new(), LineEnd::Whole);
    let writer = Writer {
        queue: writes,
        sink,
        gathering,
        watch,
        standby,
        batch,
        end,
    };
    let thread = thread::Builder::new()
        .name("decision-log".into())
        .spawn(move || writer.run())?;
    queue.written_by(thread.thread());
    Ok(())
}

/// Takes lines from the workers, and shows them before they are written.
struct Gathering {
    queue: Arc<Queue>,
    tap: Arc<Tap>,
    shows: Shows,
    hands: Mutex<Hands>,
}

/// What was gathered. Whoever gathers holds it, so that all see lines in one order.
#[derive(Default)]
struct Hands {
    /// For the destination.
    batch: Vec<u8>,
    aside: Vec<u8>,
    spare: Vec<u8>,
}

impl Gathering {
    /// Collects what waits and shows it.
    fn gather(&self) -> MutexGuard<'_, Hands> {
        let mut guard = self.hands();
        let hands = &mut *guard;
        let before = hands.batch.len();
        self.queue
            .collect(&mut hands.batch, &mut hands.aside, &mut hands.spare);
        if self.shows == Shows::Written {
            self.tap.feed(hands.batch.get(before..).unwrap_or_default());
        }
        self.tap.feed(&hands.aside);
        self.tap.miss(self.queue.missed());
        hands.aside.clear();
        hands.aside.shrink_to(KEPT);
        guard
    }

    /// The same, and moves all that is for the destination to the end of `batch`.
    fn take(&self, batch: &mut Vec<u8>) {
        let mut hands = self.gather();
        match batch.is_empty() {
            true => std::mem::swap(batch, &mut hands.batch),
            false => batch.append(&mut hands.batch),
        }
        hands.batch.shrink_to(KEPT);
    }

    /// Whether something was gathered that nobody has taken.
    fn holds_some(&self) -> bool {
        !self.hands().batch.is_empty()
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gathers while the writer is stuck.
struct Standby {
    gathering: Arc<Gathering>,
    watch: Arc<Watch>,
}

/// What the writer tells who stands by.
#[derive(Debug, Default)]
struct Watch {
    asleep: AtomicBool,
    over: AtomicBool,
}

impl Standby {
    fn run(self) {
        let queue = &self.gathering.queue;
        while !self.watch.over.load(Ordering::SeqCst) {
            match queue.stuck() {
                None => self.sleep(),
                Some(stuck) => {
                    if stuck >= STUCK {
                        drop(self.gathering.gather());
                        // It may have gone to rest meanwhile, and what was gathered is for it to write.
                        queue.wake();
                    }
                    thread::park_timeout(STUCK);
                }
            }
        }
    }

    /// Until a write begins. Looked at again behind the flag, so that none is missed.
    fn sleep(&self) {
        self.watch.asleep.store(true, Ordering::SeqCst);
        if self.gathering.queue.stuck().is_none() && !self.watch.over.load(Ordering::SeqCst) {
            thread::park();
        }
        self.watch.asleep.store(false, Ordering::SeqCst);
    }
}

struct Writer {
    queue: Arc<Queue>,
    sink: Box<dyn Write + Send>,
    gathering: Arc<Gathering>,
    watch: Arc<Watch>,
    standby: Thread,
    batch: Vec<u8>,
    end: LineEnd,
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

impl Writer {
    fn run(mut self) {
        loop {
            let orders = self.queue.orders();
            match orders.urgent {
                Urgency::None if self.batch.is_empty() && !self.gathering.holds_some() => {
                    self.rest();
                    continue;
                }
                Urgency::None | Urgency::Gather => thread::park_timeout(GATHER),
                Urgency::Now => {}
            }
            if orders.life == Life::Closing {
                self.queue.end();
            }
            self.gathering.take(&mut self.batch);
            if self.settle(orders.life) == Settled::No {
                thread::park_timeout(RETRY);
                continue;
            }
            let end = orders.life == Life::Closing;
            self.tell_losses(if end { Telling::Last } else { Telling::Settled });
            self.queue.done(orders);
            if end {
                return;
            }
        }
    }

    /// Waits for lines.
    fn rest(&self) {
        match self.queue.untold() {
            Untold::None => thread::park(),
            Untold::Some => {
                self.tell_losses(Telling::Settled);
                thread::park_timeout(TELL);
            }
        }
    }

    fn tell_losses(&self, when: Telling) {
        if let Some(lines) = self.queue.losses_to_tell(when) {
            tracing::warn!(
                lines,
                "decision log: lines were lost; crawlgate_decision_log_dropped_total counts them"
            );
        }
    }

    /// Writes the batch, or gives it up, or keeps it for another try.
    fn settle(&mut self, life: Life) -> Settled {
        // Nothing tried, nothing learnt: an earlier failure stands.
        if self.batch.is_empty() {
            return Settled::Yes;
        }
        self.begin();
        let failure = self.write().err();
        self.queue.rests();
        let failed = failure.is_some();
        self.queue.failing(failure.map(|error| error.to_string()));
        if failed && self.queue.keeps(life) {
            return Settled::No;
        }
        if failed {
            self.give_up();
        }
        self.batch.shrink_to(KEPT);
        Settled::Yes
    }

    /// From here on it may be stuck.
    fn begin(&self) {
        self.queue.writes();
        if self.watch.asleep.swap(false, Ordering::SeqCst) {
            self.standby.unpark();
        }
    }

    /// Writes as much as can be written; what could not stays in the batch.
    fn write(&mut self) -> io::Result<()> {
        if self.end == LineEnd::Torn {
            self.sink.write_all(b"\n")?;
            self.end = LineEnd::Whole;
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
                    self.queue.writes();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    thread::park_timeout(PIPE_FULL)
                }
                Err(error) => break Err(error),
            }
        };
        if let Some(last) = written.checked_sub(1).and_then(|last| self.batch.get(last)) {
            self.end = if *last == b'\n' {
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
            .lost(self.batch.iter().filter(|byte| **byte == b'\n').count());
        self.queue.release(self.batch.len());
        self.batch.clear();
        if self.end == LineEnd::Middle {
            self.end = LineEnd::Torn;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.gathering.tap.end();
        self.queue.rests();
        self.watch.over.store(true, Ordering::SeqCst);
        self.standby.unpark();
    }
}

/// Whether the batch is dealt with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settled {
    Yes,
    No,
}
