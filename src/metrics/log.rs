//! The decision log: one canonical JSON line a request, through per-worker buffers to one writer thread.
//!
//! A worker appends to a buffer of its own and never waits for the disk. What happens when the writer cannot keep up
//! is [`OnFull`]. The `squid` format and rotation are not in this version; files are opened for appending, so
//! logrotate's `copytruncate` works.

pub(in crate::metrics) mod line;
mod queue;
mod writer;

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;

use super::Metrics;
use super::labels::Verdict;
use line::Line;
use queue::Queue;

/// Where the lines go.
pub enum Destination {
    /// Nowhere; no line is built.
    None,
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file, appended to; made if it is not there, readable by its owner and group.
    Path(PathBuf),
    /// Anything else that takes bytes.
    Writer(Box<dyn Write + Send>),
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Stderr => f.write_str("stderr"),
            Self::Stdout => f.write_str("stdout"),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Writer(_) => f.write_str("writer"),
        }
    }
}

/// What happens when lines come faster than they can be written, or cannot be written at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// The line is lost, and counted in `crawlgate_decision_log_dropped_total`.
    Drop,
    /// New requests wait in [`Log::room`]; those under way are still written. Nothing is lost while the proxy runs.
    Wait,
}

/// Whether the query of a URL is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryText {
    /// As it is.
    Shown,
    /// `?redacted`.
    Redacted,
}

/// A share of allowed requests, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u64);

impl Share {
    /// All of them.
    pub const ALL: Self = Self(u64::MAX);

    /// `None` unless the number is from 0 to 1.
    pub fn new(share: f64) -> Option<Self> {
        // The cast saturates: 1.0 becomes u64::MAX.
        (0.0..=1.0).contains(&share).then(|| Self((share * 2f64.powi(64)) as u64))
    }

    /// Whether the request with this number is in the share.
    ///
    /// Multiples of the golden ratio fall evenly over the range, so any run of requests is sampled alike and the
    /// same numbers are always taken.
    fn takes(self, number: u64) -> bool {
        self == Self::ALL || number.wrapping_mul(0x9e37_79b9_7f4a_7c15) < self.0
    }
}

/// How a log is kept.
#[derive(Debug)]
pub struct LogSettings {
    /// Where lines go.
    pub to: Destination,
    /// The share of allowed requests that is logged; rejections and shadow rejections always are.
    pub allows: Share,
    /// What happens when the log cannot keep up.
    pub on_full: OnFull,
    /// Whether queries are shown.
    pub query: QueryText,
    /// Bytes that may wait for the writer; [`LogSettings::QUEUE`] is usual.
    pub queue: usize,
}

impl LogSettings {
    /// 8 MiB: some 15,000 lines.
    pub const QUEUE: usize = 8 << 20;
}

impl Default for LogSettings {
    /// The defaults of the configuration: everything to standard error.
    fn default() -> Self {
        Self {
            to: Destination::Stderr,
            allows: Share::ALL,
            on_full: OnFull::Drop,
            query: QueryText::Shown,
            queue: Self::QUEUE,
        }
    }
}

/// How [`Log::close`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Every line was written or counted as dropped.
    Done,
    /// The destination still blocks; what waits for it is lost with the process.
    TimedOut,
}

/// The decision log. Cheap to clone; the writer ends with the last clone, at the latest.
#[derive(Clone, Debug)]
pub struct Log {
    open: Option<Arc<Open>>,
    query: QueryText,
}

#[derive(Debug)]
struct Open {
    queue: Arc<Queue>,
    allows: Share,
}

impl Log {
    /// A log that takes nothing.
    pub fn off() -> Self {
        Self { open: None, query: QueryText::Shown }
    }

    /// Opens the destination and starts the writer thread; neither for [`Destination::None`].
    ///
    /// # Errors
    /// If the file cannot be opened, or the thread not started.
    pub fn open(settings: LogSettings, metrics: &Metrics, clock: &Clock) -> io::Result<Self> {
        let LogSettings { to, allows, on_full, query, queue } = settings;
        let sink: Box<dyn Write + Send> = match to {
            Destination::None => return Ok(Self { open: None, query }),
            Destination::Stderr => Box::new(io::stderr()),
            Destination::Stdout => Box::new(io::stdout()),
            Destination::Path(path) => Box::new(append_to(&path)?),
            Destination::Writer(writer) => writer,
        };
        let queue = Arc::new(Queue::new(queue, on_full, metrics.log_dropped(), clock.clone()));
        writer::start(&queue, sink)?;
        Ok(Self { open: Some(Arc::new(Open { queue, allows })), query })
    }

    /// Whether any line could be written.
    pub fn is_on(&self) -> bool {
        self.open.is_some()
    }

    /// Waits while the log is full and [`OnFull::Wait`] is set; at once otherwise. To be awaited before a request
    /// is begun.
    pub async fn room(&self) {
        if let Some(open) = &self.open {
            open.queue.room().await;
        }
    }

    /// What readiness should warn of: lines that cannot be written now, or were lost within the last minute.
    pub fn warning(&self) -> Option<String> {
        self.open.as_ref().and_then(|open| open.queue.warning())
    }

    /// Waits until everything that was logged before has been written or dropped. Blocks the thread.
    pub fn flush(&self, within: Duration) -> Closed {
        self.open.as_ref().map_or(Closed::Done, |open| open.queue.flush(within))
    }

    /// Writes what is left and ends the writer; later lines are counted as dropped. Blocks the thread, for a
    /// process that ends.
    pub fn close(&self, within: Duration) -> Closed {
        self.open.as_ref().map_or(Closed::Done, |open| open.queue.close(within))
    }

    /// Whether the line of the request with this number is to be written.
    pub(in crate::metrics) fn takes(&self, number: u64, verdict: Verdict) -> bool {
        match (&self.open, verdict) {
            (None, _) => false,
            (Some(_), Verdict::Reject | Verdict::ShadowReject) => true,
            (Some(open), Verdict::Allow) => open.allows.takes(number),
        }
    }

    /// Hands a line to the writer.
    pub(in crate::metrics) fn write(&self, line: &Line<'_>) {
        if let Some(open) = &self.open {
            open.queue.push(|buffer| line.render(self.query, buffer));
        }
    }

    /// A URL with as much of its query as the log shows; whether or not any line is written.
    pub(in crate::metrics) fn redacted(&self, url: &str) -> Box<str> {
        match (self.query, url.split_once('?')) {
            (QueryText::Redacted, Some((before, _))) => [before, line::REDACTED].concat().into(),
            (QueryText::Redacted | QueryText::Shown, _) => url.into(),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.queue.ask_to_end();
    }
}

fn append_to(path: &PathBuf) -> io::Result<std::fs::File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_take_that_share_of_any_run() {
        for share in [0.0, 0.01, 0.25, 0.5, 0.9, 1.0] {
            for start in [0, 12_345, u64::MAX - 20_000] {
                let taken = (start..start + 10_000).filter(|n| Share::new(share).unwrap().takes(*n)).count();
                assert!((taken as f64 - share * 10_000.0).abs() <= 20.0, "{share} from {start}: {taken}");
            }
        }
        assert_eq!(Share::new(1.0), Some(Share::ALL));
        for bad in [-0.1, 1.01, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::new(bad), None);
        }
    }
}
