//! Log messages on standard error while the proxy runs. Decisions go to the decision log instead.

use std::{env, io};

use log::Record;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::clock::Clock;
use crate::messages::MessageLayer;

/// The environment variable that sets the log level.
const VARIABLE: &str = "CRAWLGATE_LOG";

/// Returns the log level of `$CRAWLGATE_LOG`, or [`LevelFilter::INFO`] if it is not set.
///
/// # Errors
/// If the value is not a log level.
pub(super) fn level_from_env() -> Result<LevelFilter, String> {
    parse_level(env::var(VARIABLE).ok())
}

fn parse_level(word: Option<String>) -> Result<LevelFilter, String> {
    let Some(word) = word.filter(|word| !word.is_empty()) else {
        return Ok(LevelFilter::INFO);
    };
    word.parse().map_err(|_| {
        format!("${VARIABLE} is {word:?}; it can be off, error, warn, info, debug or trace")
    })
}

/// The maximum number of lines that wait for standard error; further lines are dropped.
const MAX_QUEUED_LINES: usize = 10_000;

/// A guard that writes the remaining lines on drop, for about a second at most.
#[must_use]
pub(super) struct StderrLogGuard(
    #[allow(dead_code, reason = "it works by being dropped")] WorkerGuard,
);

/// Starts logging to standard error, one line per message. The admin page shows the latest messages too.
///
/// A separate thread writes the lines, so that a full pipe without a reader delays neither a request nor the end of the
/// process. Messages of the TLS library, which are for its developers, are logged only at the levels debug and trace.
pub(super) fn start(level: LevelFilter) -> StderrLogGuard {
    let (lines, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_QUEUED_LINES)
        .finish(io::stderr());
    let _ = tracing_subscriber::fmt()
        .with_writer(lines)
        .with_max_level(level)
        .with_target(false)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .finish()
        .with(MessageLayer::new(Clock::system()))
        .try_init();
    let libraries = match level {
        LevelFilter::DEBUG => log::LevelFilter::Debug,
        LevelFilter::TRACE => log::LevelFilter::Trace,
        _ => return StderrLogGuard(guard),
    };
    if log::set_logger(&LibraryLogger).is_ok() {
        log::set_max_level(libraries);
    }
    StderrLogGuard(guard)
}

/// Forwards messages that libraries write through the `log` crate to `tracing`.
struct LibraryLogger;

impl log::Log for LibraryLogger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        let library = record.target();
        let message = record.args();
        match record.level() {
            log::Level::Error => tracing::error!("{library}: {message}"),
            log::Level::Warn => tracing::warn!("{library}: {message}"),
            log::Level::Info => tracing::info!("{library}: {message}"),
            log::Level::Debug => tracing::debug!("{library}: {message}"),
            log::Level::Trace => tracing::trace!("{library}: {message}"),
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_sets_the_level() {
        for (value, level) in [
            (None, LevelFilter::INFO),
            (Some(""), LevelFilter::INFO),
            (Some("trace"), LevelFilter::TRACE),
            (Some("OFF"), LevelFilter::OFF),
        ] {
            assert_eq!(parse_level(value.map(str::to_owned)), Ok(level));
        }
        let error = parse_level(Some("much".to_owned())).unwrap_err();
        assert!(error.contains("$CRAWLGATE_LOG is \"much\""), "{error}");
    }
}
