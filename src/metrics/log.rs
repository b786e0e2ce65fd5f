//! The decision log: one canonical line a request, through per-worker buffers to one writer thread.
//!
//! A worker appends to a buffer of its own and never waits for the disk. What happens when the writer cannot keep up
//! is [`LogFullAction`]. Files are appended to and rotated by size ([`LogFileRotation`]); others may move, remove or cut them. The latest
//! lines are also kept in memory ([`tap::Tap`]), for the API.

pub(crate) mod entry;
mod file;
pub mod filter;
pub(crate) mod line;
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
use super::labels::VerdictLabel;
use super::trace::TraceDisclosure;
use file::{LogFile, RotationFailure};
use line::LogLine;
pub(crate) use line::REDACTED;
use queue::{LogQueue, PushOutcome};
use tap::{LogTap, TapBounds};
use writer::TapMode;

/// Where the lines go.
#[derive(Clone, PartialEq, Eq)]
pub enum LogDestination {
    /// Nowhere; lines are built only for who watches: those of refusals, and the others while somebody follows.
    None,
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file, appended to; made if it is not there, readable by its owner and group.
    Path(PathBuf),
}

impl fmt::Debug for LogDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Stderr => f.write_str("stderr"),
            Self::Stdout => f.write_str("stdout"),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What happens when lines come faster than they can be written, or cannot be written at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFullAction {
    /// The line is lost, and counted in `crawlgate_decision_log_dropped_total`.
    Drop,
    /// New requests wait in [`DecisionLog::wait_if_full`]; those under way are still written. Nothing is lost while the proxy runs.
    Wait,
}

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLineFormat {
    /// A JSON object.
    Json,
    /// As in Squid's `access.log`.
    Squid,
}

/// When a file is rotated, and what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFileRotation {
    /// Bytes that a file may have; a longer line has a file of its own.
    pub size: u64,
    /// How many older files are kept, as `PATH.1` (the latest) and so on; with 0 the file is cut to nothing instead.
    pub keep: u32,
}

impl LogFileRotation {
    /// The default of the configuration: 256 MiB, and 8 older files.
    pub const DEFAULT: Self = Self {
        size: 256 << 20,
        keep: 8,
    };
}

/// Whether the query of a URL is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryVisibility {
    /// As it is.
    Shown,
    /// `?redacted`.
    Redacted,
}

/// A share of allowed requests, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRate(u64);

impl SampleRate {
    /// All of them.
    pub const ALL: Self = Self(u64::MAX);

    /// `None` unless the number is from 0 to 1.
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

    /// Whether the request with this number is in the share.
    ///
    /// Multiples of the golden ratio fall evenly over the range, so any run of requests is sampled alike and the
    /// same numbers are always taken.
    pub(crate) fn includes(self, number: u64) -> bool {
        self == Self::ALL || number.wrapping_mul(0x9e37_79b9_7f4a_7c15) < self.0
    }
}

/// How a log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Where lines go.
    pub destination: LogDestination,
    /// How they are written.
    pub format: LogLineFormat,
    /// When a file is rotated; `None` is never. Of no effect for what is no plain file.
    pub rotate: Option<LogFileRotation>,
    /// The share of allowed requests that is logged; rejections and shadow rejections always are.
    pub allow_sample: SampleRate,
    /// What happens when the log cannot keep up.
    pub on_full: LogFullAction,
    /// Whether queries are shown.
    pub query: QueryVisibility,
    /// Bytes that may wait for the writer; [`LogSettings::DEFAULT_QUEUE_BYTES`] is usual.
    pub queue_bytes: usize,
}

impl LogSettings {
    /// 8 MiB: some 15,000 lines.
    pub const DEFAULT_QUEUE_BYTES: usize = 8 << 20;
}

impl Default for LogSettings {
    /// The defaults of the configuration: everything to standard error.
    fn default() -> Self {
        Self {
            destination: LogDestination::Stderr,
            format: LogLineFormat::Json,
            rotate: Some(LogFileRotation::DEFAULT),
            allow_sample: SampleRate::ALL,
            on_full: LogFullAction::Drop,
            query: QueryVisibility::Shown,
            queue_bytes: Self::DEFAULT_QUEUE_BYTES,
        }
    }
}

/// How [`DecisionLog::close`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCloseResult {
    /// Every line was written or counted as dropped.
    Done,
    /// The destination still blocks; what waits for it is lost with the process.
    TimedOut,
}

/// The decision log. Cheap to clone; the writer ends with the last clone, at the latest.
#[derive(Clone, Debug)]
pub struct DecisionLog {
    inner: Option<Arc<DecisionLogInner>>,
    format: LogLineFormat,
    query: QueryVisibility,
}

#[derive(Debug)]
struct DecisionLogInner {
    queue: Arc<LogQueue>,
    tap: Arc<LogTap>,
    rotation_failure: RotationFailure,
    /// The share of allowed requests whose lines are written; none if no line is.
    sample_rate: Option<SampleRate>,
}

/// Whom a line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineRecipients {
    Nobody,
    /// The destination; the tap is shown what is written there, if it is in its form.
    Destination,
    Tap,
    Both,
}

impl DecisionLog {
    /// A log that takes nothing.
    pub fn disabled() -> Self {
        Self {
            inner: None,
            format: LogLineFormat::Json,
            query: QueryVisibility::Shown,
        }
    }

    /// Opens the destination and starts the writer thread.
    ///
    /// # Errors
    /// If the file cannot be opened, or the thread not started.
    pub fn open(settings: LogSettings, metrics: &Metrics, clock: &Clock) -> io::Result<Self> {
        let mut sample_rate = Some(settings.allow_sample);
        let mut rotation_failure = RotationFailure::default();
        let writer: Box<dyn Write + Send> = match &settings.destination {
            LogDestination::None => {
                sample_rate = None;
                Box::new(io::sink())
            }
            LogDestination::Stderr => Box::new(io::stderr()),
            LogDestination::Stdout => Box::new(io::stdout()),
            LogDestination::Path(path) => {
                let file = LogFile::open(path.clone(), settings.rotate, clock.clone())?;
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
        let tap_mode = match settings.format {
            LogLineFormat::Json => TapMode::Written,
            LogLineFormat::Squid => TapMode::Own,
        };
        writer::start(&queue, writer, &tap, tap_mode)?;
        Ok(Self {
            inner: Some(Arc::new(DecisionLogInner {
                queue,
                tap,
                rotation_failure,
                sample_rate,
            })),
            format: settings.format,
            query: settings.query,
        })
    }

    /// The latest lines; none of a log that is off.
    pub fn tap(&self) -> Option<Arc<LogTap>> {
        self.inner.as_ref().map(|open| Arc::clone(&open.tap))
    }

    /// Whether any line could be written.
    pub fn is_enabled(&self) -> bool {
        self.inner.is_some()
    }

    /// Waits while the log is full and [`LogFullAction::Wait`] is set; at once otherwise. To be awaited before a request
    /// is begun.
    pub async fn wait_if_full(&self) {
        if let Some(open) = &self.inner {
            open.queue.wait_if_full().await;
        }
    }

    /// What readiness should warn of: lines that cannot be written now, or were lost within the last minute; or a
    /// file that grows because it cannot be rotated.
    pub fn warning(&self) -> Option<String> {
        let open = self.inner.as_ref()?;
        let grows = || {
            open.rotation_failure
                .reason()
                .map(|reason| format!("grows: {reason}"))
        };
        open.queue.warning().or_else(grows)
    }

    /// Waits until everything that was logged before has been written or dropped. Blocks the thread.
    pub fn flush(&self, within: Duration) -> LogCloseResult {
        self.inner
            .as_ref()
            .map_or(LogCloseResult::Done, |open| open.queue.flush(within))
    }

    /// Writes what is left and ends the writer; later lines are counted as dropped. Blocks the thread, for a
    /// process that ends.
    pub fn close(&self, within: Duration) -> LogCloseResult {
        let Some(open) = &self.inner else {
            return LogCloseResult::Done;
        };
        let closed = open.queue.close(within);
        if closed == LogCloseResult::TimedOut {
            let bytes = open.queue.waiting();
            tracing::error!(
                "decision log: it takes nothing any more; {bytes} bytes of lines are lost"
            );
            open.tap.close();
        }
        closed
    }

    /// Whom the line of the request with this number is for.
    ///
    /// Refusals are always written, and so is what a client was told to look for.
    pub(crate) fn recipients(
        &self,
        number: u64,
        verdict: VerdictLabel,
        told: TraceDisclosure,
    ) -> LineRecipients {
        let Some(open) = &self.inner else {
            return LineRecipients::Nobody;
        };
        let always = match (verdict, told) {
            (VerdictLabel::Reject | VerdictLabel::ShadowReject, _) | (_, TraceDisclosure::Yes) => {
                true
            }
            (VerdictLabel::Allow, TraceDisclosure::No) => false,
        };
        let written = open
            .sample_rate
            .is_some_and(|share| always || share.includes(number));
        match (written, self.format) {
            (true, LogLineFormat::Json) => LineRecipients::Destination,
            (true, LogLineFormat::Squid) if always || open.tap.has_followers() => {
                LineRecipients::Both
            }
            (true, LogLineFormat::Squid) => LineRecipients::Destination,
            (false, _) if always || open.tap.has_followers() => LineRecipients::Tap,
            (false, _) => LineRecipients::Nobody,
        }
    }

    /// Hands a line to the writer.
    pub(crate) fn write_line(&self, line: &LogLine<'_>, readers: LineRecipients) {
        let Some(open) = &self.inner else { return };
        let aside = || {
            open.queue
                .push_for_tap(|buffer| line.render(self.query, buffer))
        };
        match readers {
            LineRecipients::Nobody => {}
            LineRecipients::Tap => aside(),
            LineRecipients::Destination => self.write_to_destination(open, line),
            LineRecipients::Both => {
                self.write_to_destination(open, line);
                aside();
            }
        }
    }

    fn write_to_destination(&self, open: &DecisionLogInner, line: &LogLine<'_>) {
        match self.format {
            LogLineFormat::Json => {
                // What the destination has no room for is shown all the same.
                if open.queue.push(|buffer| line.render(self.query, buffer)) == PushOutcome::Lost {
                    open.queue
                        .push_for_tap(|buffer| line.render(self.query, buffer));
                }
            }
            LogLineFormat::Squid => drop(
                open.queue
                    .push(|buffer| squid::render(line, self.query, buffer)),
            ),
        }
    }

    /// A URL with as much of its query as the log shows; whether or not any line is written.
    pub(crate) fn redact_url(&self, url: &str) -> Box<str> {
        match (self.query, url.split_once('?')) {
            (QueryVisibility::Redacted, Some((before, _))) => [before, REDACTED].concat().into(),
            (QueryVisibility::Redacted | QueryVisibility::Shown, _) => url.into(),
        }
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
    fn shares_take_that_share_of_any_run() {
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
