//! What is told on standard error while the proxy runs, and how much of it. What is judged stands in the decision log.

use std::{env, io};

use log::Record;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};

/// The environment variable that says how much is told.
const VARIABLE: &str = "CRAWLGATE_LOG";

/// How much is told: `$CRAWLGATE_LOG`, or what an operator needs.
///
/// # Errors
/// If it is none of the words that stand for a level.
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

/// Lines that wait for standard error; what comes beyond them is lost.
const MAX_QUEUED_LINES: usize = 10_000;

/// Writes what is left when it is dropped, for about a second at most.
#[must_use]
pub(super) struct StderrLogGuard(
    #[allow(dead_code, reason = "it works by being dropped")] WorkerGuard,
);

/// Messages go to standard error, one line each, by a thread of their own: a pipe that is full and that nobody reads holds
/// up neither a request nor the end of the process. Those of the TLS library, which are for its developers, are told only to
/// somebody who asks for more than usual.
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

/// Takes what libraries tell by way of `log`, and tells it like our own.
struct LibraryLogger;

impl log::Log for LibraryLogger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        let (library, message) = (record.target(), record.args());
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
    fn the_variable_says_how_much_is_told() {
        let said = |word: &str| parse_level(Some(word.to_owned()));
        assert_eq!(parse_level(None), Ok(LevelFilter::INFO));
        assert_eq!(said(""), Ok(LevelFilter::INFO));
        assert_eq!(said("trace"), Ok(LevelFilter::TRACE));
        assert_eq!(said("OFF"), Ok(LevelFilter::OFF));
        assert!(
            said("much")
                .unwrap_err()
                .contains("$CRAWLGATE_LOG is \"much\"")
        );
    }
}
