//! The decision log: one canonical line a request, through per-worker buffers to one writer thread.
//!
//! A worker appends to a buffer of its own and never waits for the disk. What happens when the writer cannot keep up
//! is [`OnFull`]. Files are appended to and rotated by size ([`Rotate`]); others may move, remove or cut them. The latest
//! lines are also kept in memory ([`tap::Tap`]), for the API.

pub(crate) mod entry;
mod file;
pub mod filter;
pub(in crate::metrics) mod line;
mod queue;
mod squid;
pub mod tap;
mod writer;

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;

use super::Metrics;
use super::labels::Verdict;
use super::trace::Told;
use file::{LogFile, Overdue};
use line::Line;
pub(crate) use line::REDACTED;
use queue::{Pushed, Queue};
use tap::{Bounds, Tap};
use writer::Shows;

/// Where the lines go.
pub enum Destination {
    /// Nowhere; lines are built only for who watches: those of refusals, and the others while somebody follows.
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

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// A JSON object.
    Json,
    /// As in Squid's `access.log`.
    Squid,
}

/// When a file is rotated, and what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotate {
    /// Bytes that a file may have; a longer line has a file of its own.
    pub size: u64,
    /// How many older files are kept, as `PATH.1` (the latest) and so on; with 0 the file is cut to nothing instead.
    pub keep: u32,
}

impl Rotate {
    /// The default of the configuration: 256 MiB, and 8 older files.
    pub const USUAL: Self = Self {
        size: 256 << 20,
        keep: 8,
    };
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
        (0.0..=1.0)
            .contains(&share)
            .then(|| Self((share * 2f64.powi(64)) as u64))
    }

    /// Whether the request with this number is in the share.
    ///
    /// Multiples of the golden ratio fall evenly over the range, so any run of requests is sampled alike and the
    /// same numbers are always taken.
    pub(in crate::metrics) fn takes(self, number: u64) -> bool {
        self == Self::ALL || number.wrapping_mul(0x9e37_79b9_7f4a_7c15) < self.0
    }
}

/// How a log is kept.
#[derive(Debug)]
pub struct LogSettings {
    /// Where lines go.
    pub to: Destination,
    /// How they are written.
    pub format: LineFormat,
    /// When a file is rotated; `None` is never. Of no effect for what is no plain file.
    pub rotate: Option<Rotate>,
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
            format: LineFormat::Json,
            rotate: Some(Rotate::USUAL),
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
    format: LineFormat,
    query: QueryText,
}

#[derive(Debug)]
struct Open {
    queue: Arc<Queue>,
    tap: Arc<Tap>,
    overdue: Overdue,
    /// The share of allowed requests whose lines are written; none if no line is.
    written: Option<Share>,
}

/// Whom a line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::metrics) enum Readers {
    Nobody,
    /// The destination; the tap is shown what is written there, if it is in its form.
    Destination,
    Tap,
    Both,
}

impl Log {
    /// A log that takes nothing.
    pub fn off() -> Self {
        Self {
            open: None,
            format: LineFormat::Json,
            query: QueryText::Shown,
        }
    }

    /// Opens the destination and starts the writer thread.
    ///
    /// # Errors
    /// If the file cannot be opened, or the thread not started.
    pub fn open(settings: LogSettings, metrics: &Metrics, clock: &Clock) -> io::Result<Self> {
        let LogSettings {
            to,
            format,
            rotate,
            allows,
            on_full,
            query,
            queue,
        } = settings;
        let (mut overdue, mut written) = (Overdue::default(), Some(allows));
        let sink: Box<dyn Write + Send> = match to {
            Destination::None => {
                written = None;
                Box::new(io::sink())
            }
            Destination::Stderr => Box::new(io::stderr()),
            Destination::Stdout => Box::new(io::stdout()),
            Destination::Path(path) => {
                let file = LogFile::open(path, rotate, clock.clone())?;
                overdue = file.overdue();
                Box::new(file)
            }
            Destination::Writer(writer) => writer,
        };
        let queue = Arc::new(Queue::new(
            queue,
            on_full,
            metrics.log_dropped(),
            clock.clone(),
        ));
        let tap = Tap::new(Bounds::USUAL);
        let shows = match format {
            LineFormat::Json => Shows::Written,
            LineFormat::Squid => Shows::Own,
        };
        writer::start(&queue, sink, &tap, shows)?;
        Ok(Self {
            open: Some(Arc::new(Open {
                queue,
                tap,
                overdue,
                written,
            })),
            format,
            query,
        })
    }

    /// The latest lines; none of a log that is off.
    pub fn tap(&self) -> Option<Arc<Tap>> {
        self.open.as_ref().map(|open| Arc::clone(&open.tap))
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

    /// What readiness should warn of: lines that cannot be written now, or were lost within the last minute; or a
    /// file that grows because it cannot be rotated.
    pub fn warning(&self) -> Option<String> {
        let open = self.open.as_ref()?;
        let grows = || {
            open.overdue
                .reason()
                .map(|reason| format!("grows: {reason}"))
        };
        open.queue.warning().or_else(grows)
    }

    /// Waits until everything that was logged before has been written or dropped. Blocks the thread.
    pub fn flush(&self, within: Duration) -> Closed {
        self.open
            .as_ref()
            .map_or(Closed::Done, |open| open.queue.flush(within))
    }

    /// Writes what is left and ends the writer; later lines are counted as dropped. Blocks the thread, for a
    /// process that ends.
    pub fn close(&self, within: Duration) -> Closed {
        let Some(open) = &self.open else {
            return Closed::Done;
        };
        let closed = open.queue.close(within);
        if closed == Closed::TimedOut {
            let bytes = open.queue.waiting();
            tracing::error!(
                "decision log: it takes nothing any more; {bytes} bytes of lines are lost"
            );
            open.tap.end();
        }
        closed
    }

    /// Whom the line of the request with this number is for.
    ///
    /// Refusals are always written, and so is what a client was told to look for.
    pub(in crate::metrics) fn readers(&self, number: u64, verdict: Verdict, told: Told) -> Readers {
        let Some(open) = &self.open else {
            return Readers::Nobody;
        };
        let always = match (verdict, told) {
            (Verdict::Reject | Verdict::ShadowReject, _) | (_, Told::Yes) => true,
            (Verdict::Allow, Told::No) => false,
        };
        let written = open
            .written
            .is_some_and(|share| always || share.takes(number));
        match (written, self.format) {
            (true, LineFormat::Json) => Readers::Destination,
            (true, LineFormat::Squid) if always || open.tap.is_followed() => Readers::Both,
            (true, LineFormat::Squid) => Readers::Destination,
            (false, _) if always || open.tap.is_followed() => Readers::Tap,
            (false, _) => Readers::Nobody,
        }
    }

    /// Hands a line to the writer.
    pub(in crate::metrics) fn write(&self, line: &Line<'_>, readers: Readers) {
        let Some(open) = &self.open else { return };
        let aside = || {
            open.queue
                .push_aside(|buffer| line.render(self.query, buffer))
        };
        match readers {
            Readers::Nobody => {}
            Readers::Tap => aside(),
            Readers::Destination => self.write_out(open, line),
            Readers::Both => {
                self.write_out(open, line);
                aside();
            }
        }
    }

    fn write_out(&self, open: &Open, line: &Line<'_>) {
        match self.format {
            LineFormat::Json => {
                // What the destination has no room for is shown all the same.
                if open.queue.push(|buffer| line.render(self.query, buffer)) == Pushed::Lost {
                    open.queue
                        .push_aside(|buffer| line.render(self.query, buffer));
                }
            }
            LineFormat::Squid => drop(
                open.queue
                    .push(|buffer| squid::render(line, self.query, buffer)),
            ),
        }
    }

    /// A URL with as much of its query as the log shows; whether or not any line is written.
    pub(in crate::metrics) fn redacted(&self, url: &str) -> Box<str> {
        match (self.query, url.split_once('?')) {
            (QueryText::Redacted, Some((before, _))) => [before, REDACTED].concat().into(),
            (QueryText::Redacted | QueryText::Shown, _) => url.into(),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.queue.ask_to_end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_take_that_share_of_any_run() {
        for share in [0.0, 0.01, 0.25, 0.5, 0.9, 1.0] {
            for start in [0, 12_345, u64::MAX - 20_000] {
                let taken = (start..start + 10_000)
                    .filter(|n| Share::new(share).unwrap().takes(*n))
                    .count();
                assert!(
                    (taken as f64 - share * 10_000.0).abs() <= 20.0,
                    "{share} from {start}: {taken}"
                );
            }
        }
        assert_eq!(Share::new(1.0), Some(Share::ALL));
        for bad in [-0.1, 1.01, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::new(bad), None);
        }
    }
}
