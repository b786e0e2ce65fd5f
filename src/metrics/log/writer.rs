//! The log's writer thread: gathers lines for a moment, writes them in one call, and counts what it cannot write.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::queue::{Life, Queue, Urgency};

/// How long lines are gathered before they are written.
const GATHER: Duration = Duration::from_millis(10);
/// How long to wait before a failed write is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// How long to wait for a pipe that is full and does not block.
const PIPE_FULL: Duration = Duration::from_millis(5);
/// Buffer space that is kept after a burst.
const KEPT: usize = 1 << 20;

/// Starts the thread; it ends when the log is closed.
pub(super) fn start(queue: &Arc<Queue>, sink: Box<dyn Write + Send>) -> io::Result<()> {
    let writer =
        Writer { queue: Arc::clone(queue), sink, batch: Vec::new(), spare: Vec::new(), end: LineEnd::Whole };
    let thread = thread::Builder::new().name("decision-log".into()).spawn(move || writer.run())?;
    queue.written_by(thread.thread());
    Ok(())
}

struct Writer {
    queue: Arc<Queue>,
    sink: Box<dyn Write + Send>,
    batch: Vec<u8>,
    spare: Vec<u8>,
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
                Urgency::None if self.batch.is_empty() => {
                    thread::park();
                    continue;
                }
                Urgency::None | Urgency::Gather => thread::park_timeout(GATHER),
                Urgency::Now => {}
            }
            if orders.life == Life::Closing {
                self.queue.end();
            }
            self.queue.collect(&mut self.batch, &mut self.spare);
            if self.settle(orders.life) == Settled::No {
                thread::park_timeout(RETRY);
                continue;
            }
            self.queue.done(orders);
            if orders.life == Life::Closing {
                return;
            }
        }
    }

    /// Writes the batch, or gives it up, or keeps it for another try.
    fn settle(&mut self, life: Life) -> Settled {
        // Nothing tried, nothing learnt: an earlier failure stands.
        if self.batch.is_empty() {
            return Settled::Yes;
        }
        let failure = self.write().err();
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
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::park_timeout(PIPE_FULL),
                Err(error) => break Err(error),
            }
        };
        if let Some(last) = written.checked_sub(1).and_then(|last| self.batch.get(last)) {
            self.end = if *last == b'\n' { LineEnd::Whole } else { LineEnd::Middle };
        }
        self.batch.drain(..written.min(self.batch.len()));
        self.queue.release(written);
        outcome
    }

    /// Each line that is still there ends in the batch, a torn one too.
    fn give_up(&mut self) {
        self.queue.lost(self.batch.iter().filter(|byte| **byte == b'\n').count());
        self.queue.release(self.batch.len());
        self.batch.clear();
        if self.end == LineEnd::Middle {
            self.end = LineEnd::Torn;
        }
    }
}

/// Whether the batch is dealt with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settled {
    Yes,
    No,
}
