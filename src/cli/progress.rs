//! How far long work is, on standard error, and only if that is a terminal.

use std::io::{self, IsTerminal, Write as _};
use std::time::{Duration, Instant};

use crate::clock::Clock;

/// How often it is said.
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// Cells of the bar.
const CELLS: u64 = 30;

/// A bar in one line, which is wiped out at the end.
#[derive(Debug)]
pub(super) struct ProgressBar {
    clock: Clock,
    unit: &'static str,
    drawn_at: Option<Instant>,
    terminal: bool,
}

impl ProgressBar {
    /// Nothing is shown yet. `what` is what is counted: `URLs`.
    pub(super) fn new(what: &'static str) -> Self {
        Self {
            clock: Clock::system(),
            unit: what,
            drawn_at: None,
            terminal: io::stderr().is_terminal(),
        }
    }

    /// So many are done of so many; a total of zero is none that is known.
    pub(super) fn update(&mut self, done: u64, total: u64) {
        let now = self.clock.now();
        let lately = |shown: Instant| now.saturating_duration_since(shown) < REDRAW_INTERVAL;
        if !self.terminal || self.drawn_at.is_some_and(lately) {
            return;
        }
        self.drawn_at = Some(now);
        let _ = write!(
            io::stderr().lock(),
            "\r\x1b[K{}",
            render(done, total, self.unit)
        );
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        if self.drawn_at.is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn render(done: u64, total: u64, what: &str) -> String {
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
        assert_eq!(render(7, 0, "URLs"), "7 URLs");
        assert_eq!(
            render(0, 2, "URLs"),
            "[..............................]   0 %  0 of 2 URLs"
        );
        assert_eq!(
            render(1, 2, "URLs"),
            "[###############...............]  50 %  1 of 2 URLs"
        );
        assert_eq!(
            render(9, 2, "URLs"),
            "[##############################] 100 %  9 of 2 URLs"
        );
    }
}
