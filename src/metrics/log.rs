//! The decision log: one line for each request, through per-worker buffers to one writer thread.
//!
//! A worker appends to its own buffer and never waits for the disk. [`LogFullAction`] is what happens when the writer
//! cannot keep up. Files are appended to and rotated by size and age ([`LogFileRotation`]); other programs may move, remove or
//! truncate them. The latest lines are also kept in memory ([`tap::LogTap`]), for the API.

pub(crate) mod entry;
mod file;
pub mod filter;
pub(crate) mod line;
pub(crate) mod query;
mod queue;
mod squid;
pub mod tap;
mod writer;

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::model::words::words;

use super::Metrics;
use file::{LogFile, RotationFailure};
use line::{LogLine, MissingLines};
pub use query::QueryVisibility;
use queue::{LineAudience, LogQueue, PushOutcome};
use tap::{LogTap, TapBounds};

/// The destination of the lines.
#[derive(Clone, PartialEq, Eq)]
pub enum LogDestination {
    /// Standard error. On a terminal, `run` shows the lines as text for people.
    Auto,
    /// No destination. Lines are built only for the tap: those of refusals, and the others while the tap is followed.
    None,
    /// Standard error, in the format of the log.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file, which is appended to. It is created if it does not exist, readable by its owner and group, and so is its
    /// directory.
    Path(PathBuf),
}

impl LogDestination {
    /// Returns the path of a file.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Auto | Self::None | Self::Stderr | Self::Stdout => None,
        }
    }
}

impl fmt::Debug for LogDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Stderr => f.write_str("stderr"),
            Self::Stdout => f.write_str("stdout"),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

words! {
    /// The action taken when lines arrive faster than they can be written, or cannot be written at all.
    pub enum LogFullAction {
        /// The line is lost, and counted in `crawlgate_decision_log_dropped_total`.
        Drop = "drop",
        /// New requests wait in [`DecisionLog::wait_if_full`]; lines of requests in progress are still queued. Nothing
        /// is lost while the proxy runs.
        Wait = "wait",
    }
}

words! {
    pub enum LogLineFormat {
        /// A JSON object.
        Json = "json",
        /// The format of Squid's `access.log`.
        Squid = "squid",
    }
}

/// When a file is rotated, and how many older files are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFileRotation {
    /// The maximum size of a file in bytes, or [`Self::NO_SIZE`]; a longer line gets its own file.
    pub size: u64,
    /// The number of older files, `PATH.1` (the latest) and so on; with 0 the file is truncated instead.
    pub keep: u32,
    /// If it is set, a file has the lines of one day (UTC), and files whose last line is older are removed.
    pub max_age: Option<Duration>,
}

impl LogFileRotation {
    /// The default of the configuration: 256 MiB, and 8 older files.
    pub const DEFAULT: Self = Self {
        size: 256 << 20,
        keep: 8,
        max_age: None,
    };

    /// A size that no file reaches: files are rotated by age alone.
    pub const NO_SIZE: u64 = u64::MAX;
}

/// A share of allowed requests, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRate(u64);

impl SampleRate {
    /// All requests.
    pub const ALL: Self = Self(u64::MAX);

    /// Returns `None` unless the number is from 0 to 1.
    pub fn new(share: f64) -> Option<Self> {
        // The cast saturates: 1.0 becomes u64::MAX.
        (0.0..=1.0)
            .contains(&share)
            .then(|| Self((share * 2f64.powi(64)) as u64))
    }

    /// Returns the share as a number from 0 to 1.
    pub(crate) fn as_f64(self) -> f64 {
        self.0 as f64 / 2f64.powi(64)
    }

    /// Returns `true` if the request with this number is in the sample.
    ///
    /// Multiples of the golden ratio are spread evenly over the range, so every run of requests is sampled evenly, and
    /// the same numbers are always selected.
    pub(crate) fn includes(self, number: u64) -> bool {
        self == Self::ALL || number.wrapping_mul(0x9e37_79b9_7f4a_7c15) < self.0
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The destination of the lines.
    pub destination: LogDestination,
    /// The format of the lines.
    pub format: LogLineFormat,
    /// When a file is rotated; `None` is never. Ignored for anything but a regular file.
    pub rotate: Option<LogFileRotation>,
    /// The share of allowed requests that is logged; rejections and shadow rejections always are.
    pub allow_sample: SampleRate,
    /// The action taken when the log cannot keep up.
    pub on_full: LogFullAction,
    /// The treatment of the query of a URL in the log.
    pub query: QueryVisibility,
    /// The maximum number of bytes that wait for the writer, usually [`LogSettings::DEFAULT_QUEUE_BYTES`].
    pub queue_bytes: usize,
}

impl LogSettings {
    /// 8 MiB, about 15,000 lines.
    pub const DEFAULT_QUEUE_BYTES: usize = 8 << 20;

    /// Returns the path of a log that commands can read: a file whose lines have all fields. It may not exist yet.
    pub fn readable_file(&self) -> Option<&Path> {
        match self.format {
            LogLineFormat::Json => self.destination.file(),
            LogLineFormat::Squid => None,
        }
    }
}

impl Default for LogSettings {
    /// Returns the defaults of the configuration: everything is logged to standard error.
    fn default() -> Self {
        Self {
            destination: LogDestination::Auto,
            format: LogLineFormat::Json,
            rotate: Some(LogFileRotation::DEFAULT),
            allow_sample: SampleRate::ALL,
            on_full: LogFullAction::Drop,
            query: QueryVisibility::Shown,
            queue_bytes: Self::DEFAULT_QUEUE_BYTES,
        }
    }
}

/// The result of [`DecisionLog::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCloseResult {
    /// Every line was written or counted as dropped.
    Done,
    /// The destination still blocks; the lines that wait for it are lost.
    TimedOut,
}

/// The decision log. Cheap to clone; the writer ends with the last clone at the latest.
#[derive(Clone, Debug)]
pub struct DecisionLog {
    inner: Arc<DecisionLogInner>,
    format: LogLineFormat,
    query: QueryVisibility,
}

#[derive(Debug)]
struct DecisionLogInner {
    queue: Arc<LogQueue>,
    tap: Arc<LogTap>,
    rotation_failure: RotationFailure,
    /// The share of allowed requests whose lines are written; `None` if no lines are.
    sample_rate: Option<SampleRate>,
    /// The number of lines that are not in the sample.
    left_out: AtomicU64,
}

/// The choice of the lines that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineImportance {
    /// The line is written.
    Always,
    /// The line is written if it is in the sample.
    Sampled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineRecipients {
    Nobody,
    /// The destination; the tap receives the line as well, if its format is JSON.
    Destination,
    Tap,
    Both,
}

impl DecisionLog {
    /// Opens the destination and starts the writer thread.
    ///
    /// # Errors
    /// If the file cannot be opened, or the thread cannot be started.
    pub fn open(settings: LogSettings, metrics: &Metrics, clock: &Clock) -> io::Result<Self> {
        let mut sample_rate = Some(settings.allow_sample);
        let mut rotation_failure = RotationFailure::default();
        let writer: Box<dyn Write + Send> = match &settings.destination {
            LogDestination::None => {
                sample_rate = None;
                Box::new(io::sink())
            }
            LogDestination::Auto | LogDestination::Stderr => Box::new(io::stderr()),
            LogDestination::Stdout => Box::new(io::stdout()),
            LogDestination::Path(path) => {
                let file =
                    LogFile::open_with_directory(path.clone(), settings.rotate, clock.clone())
                        .map_err(|error| {
                            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                        })?;
                rotation_failure = file.rotation_failure();
                Box::new(file)
            }
        };
        Self::start(
            &settings,
            writer,
            sample_rate,
            rotation_failure,
            metrics,
            clock,
        )
    }

    /// Starts a log that writes to `writer` in place of the destination of the settings.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn open_with_writer(
        settings: &LogSettings,
        writer: Box<dyn Write + Send>,
        metrics: &Metrics,
        clock: &Clock,
    ) -> io::Result<Self> {
        let sample_rate = Some(settings.allow_sample);
        let rotation_failure = RotationFailure::default();
        Self::start(
            settings,
            writer,
            sample_rate,
            rotation_failure,
            metrics,
            clock,
        )
    }

    fn start(
        settings: &LogSettings,
        writer: Box<dyn Write + Send>,
        sample_rate: Option<SampleRate>,
        rotation_failure: RotationFailure,
        metrics: &Metrics,
        clock: &Clock,
    ) -> io::Result<Self> {
        let queue = Arc::new(LogQueue::new(
            settings.queue_bytes,
            settings.on_full,
            metrics.log_dropped_counter(),
            clock.clone(),
        ));
        let tap = LogTap::new(TapBounds::DEFAULT);
        writer::start(&queue, writer, &tap)?;
        Ok(Self {
            inner: Arc::new(DecisionLogInner {
                queue,
                tap,
                rotation_failure,
                sample_rate,
                left_out: AtomicU64::new(0),
            }),
            format: settings.format,
            query: settings.query,
        })
    }

    /// Returns the latest lines.
    pub fn tap(&self) -> Arc<LogTap> {
        Arc::clone(&self.inner.tap)
    }

    /// Waits while the log is full, if [`LogFullAction::Wait`] is set. To be awaited before a request begins.
    pub async fn wait_if_full(&self) {
        self.inner.queue.wait_if_full().await;
    }

    /// Returns a warning for the readiness endpoint: lines cannot be written now, lines were lost within the last
    /// minute, or the file grows because it cannot be rotated.
    pub fn warning(&self) -> Option<String> {
        self.inner.queue.warning().or_else(|| {
            let reason = self.inner.rotation_failure.reason()?;
            Some(format!("grows: {reason}"))
        })
    }

    /// Waits until everything logged so far is written or dropped. Blocks the thread.
    pub fn flush(&self, timeout: Duration) -> LogCloseResult {
        self.inner.queue.flush(timeout)
    }

    /// Writes the remaining lines and ends the writer; later lines are counted as dropped. Blocks the thread; to be
    /// called when the process ends.
    pub fn close(&self, timeout: Duration) -> LogCloseResult {
        let DecisionLogInner { queue, tap, .. } = &*self.inner;
        let closed = queue.close(timeout);
        if closed == LogCloseResult::TimedOut {
            let bytes = queue.waiting();
            tracing::error!(
                "decision log: the destination is blocked; {bytes} bytes of lines are lost"
            );
            tap.close();
        }
        closed
    }

    /// Returns the recipients of the line of the request with this number.
    pub(crate) fn recipients(&self, number: u64, importance: LineImportance) -> LineRecipients {
        let DecisionLogInner {
            tap,
            sample_rate,
            left_out,
            ..
        } = &*self.inner;
        let always = importance == LineImportance::Always;
        let written = sample_rate.is_some_and(|share| always || share.includes(number));
        if !written && sample_rate.is_some() {
            left_out.fetch_add(1, Ordering::Relaxed);
        }
        match (written, self.format) {
            (true, LogLineFormat::Json) => LineRecipients::Destination,
            (true, LogLineFormat::Squid) if always || tap.has_followers() => LineRecipients::Both,
            (true, LogLineFormat::Squid) => LineRecipients::Destination,
            (false, _) if always || tap.has_followers() => LineRecipients::Tap,
            (false, _) => LineRecipients::Nobody,
        }
    }

    /// Queues a line for the writer.
    pub(crate) fn write_line(&self, line: &LogLine<'_>, recipients: LineRecipients) {
        match recipients {
            LineRecipients::Nobody => {}
            LineRecipients::Tap => self.write_to_tap(line),
            LineRecipients::Destination => self.write_to_destination(line),
            LineRecipients::Both => {
                self.write_to_destination(line);
                self.write_to_tap(line);
            }
        }
    }

    /// Returns the number of lines that are missing in the log so far.
    pub(crate) fn missing_lines(&self) -> MissingLines {
        MissingLines {
            left_out: self.inner.left_out.load(Ordering::Relaxed),
            dropped: self.inner.queue.lost_lines(),
        }
    }

    fn write_to_tap(&self, line: &LogLine<'_>) {
        let line = line.with_hidden_url();
        self.inner
            .queue
            .push_for_tap(|buffer| line.render(self.query, buffer));
    }

    fn write_to_destination(&self, line: &LogLine<'_>) {
        let queue = &self.inner.queue;
        match self.format {
            LogLineFormat::Json => {
                let audience = match line.hidden_url {
                    Some(_) => LineAudience::Destination,
                    None => LineAudience::DestinationAndTap,
                };
                let queued = queue.push(audience, |buffer| line.render(self.query, buffer));
                // A line that does not fit into the queue is still shown by the tap.
                if queued == PushOutcome::Lost || audience == LineAudience::Destination {
                    self.write_to_tap(line);
                }
            }
            LogLineFormat::Squid => {
                let _ = queue.push(LineAudience::Destination, |buffer| {
                    squid::render(line, self.query, buffer)
                });
            }
        }
    }

    /// Returns a URL with as much of its query as the log shows, whether or not a line is written.
    pub(crate) fn redact_url(&self, url: &str) -> Box<str> {
        let mut shown = String::new();
        self.query.for_each_part(url, |part| shown.push_str(part));
        shown.into()
    }
}

impl Drop for DecisionLogInner {
    fn drop(&mut self) {
        self.queue.request_close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_contain_their_share_of_any_run() {
        for share in [0.0, 0.01, 0.25, 0.5, 0.9, 1.0] {
            for start in [0, 12_345, u64::MAX - 20_000] {
                let taken = (start..start + 10_000)
                    .filter(|n| SampleRate::new(share).unwrap().includes(*n))
                    .count();
                assert!(
                    (taken as f64 - share * 10_000.0).abs() <= 20.0,
                    "{share} from {start}: {taken}"
                );
            }
        }
        assert_eq!(SampleRate::new(1.0), Some(SampleRate::ALL));
        for bad in [-0.1, 1.01, f64::NAN, f64::INFINITY] {
            assert_eq!(SampleRate::new(bad), None);
        }
    }
}
