//! How far long work is, on standard error, and only if that is a terminal.

use std::io::{self, IsTerminal, Write as _};
use std::time::{Duration, Instant};

use crate::clock::Clock;

/// How often it is said.
const EVERY: Duration = Duration::from_millis(200);
/// Cells of the bar.
const CELLS: u64 = 30;

/// A bar in one line, which is wiped out at the end.
#[derive(Debug)]
pub(super) struct Bar {
    clock: Clock,
    what: &'static str,
    shown: Option<Instant>,
    terminal: bool,
}

impl Bar {
    /// Nothing is shown yet. `what` is what is counted: `URLs`.
    pub(super) fn new(what: &'static str) -> Self {
        Self {
            clock: Clock::system(),
            what,
            shown: None,
            terminal: io::stderr().is_terminal(),
        }
    }

    /// So many are done of so many; a total of zero is none that is known.
    pub(super) fn at(&mut self, done: u64, total: u64) {
        let now = self.clock.now();
        let lately = |shown: Instant| now.saturating_duration_since(shown) < EVERY;
        if !self.terminal || self.shown.is_some_and(lately) {
            return;
        }
        self.shown = Some(now);
        let _ = write!(
            io::stderr().lock(),
            "\r\x1b[K{}",
            line(done, total, self.what)
        );
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn line(done: u64, total: u64, what: &str) -> String {
    let Some(share) = (done.min(total) * 100).checked_div(total) else {
        return format!("{done} {what}");
    };
    let cells = usize::try_from(share * CELLS / 100).unwrap_or(0);
    let rest = usize::try_from(CELLS).unwrap_or(0) - cells;
    format!(
        "[{}{}] {share:>3} %  {done} of {total} {what}",
        "#".repeat(cells),
        ".".repeat(rest)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_how_far_it_is() {
        assert_eq!(line(7, 0, "URLs"), "7 URLs");
        assert_eq!(
            line(0, 2, "URLs"),
            "[..............................]   0 %  0 of 2 URLs"
        );
        assert_eq!(
            line(1, 2, "URLs"),
            "[###############...............]  50 %  1 of 2 URLs"
        );
        assert_eq!(
            line(9, 2, "URLs"),
            "[##############################] 100 %  9 of 2 URLs"
        );
    }
}
