//! A progress bar on standard error, if that is a terminal.

use std::io::{self, IsTerminal, Write as _};
use std::time::{Duration, Instant};

use crate::clock::Clock;

const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// The number of characters of the bar.
const CELLS: u64 = 30;

/// A progress bar in one line, which is erased on drop.
#[derive(Debug)]
pub(super) struct ProgressBar {
    clock: Clock,
    unit: &'static str,
    drawn_at: Option<Instant>,
    terminal: bool,
}

impl ProgressBar {
    /// Creates a bar that is not drawn yet. `unit` is the counted thing, such as `URLs`.
    pub(super) fn new(unit: &'static str) -> Self {
        Self {
            clock: Clock::system(),
            unit,
            drawn_at: None,
            terminal: io::stderr().is_terminal(),
        }
    }

    /// Updates the progress. A total of zero means that the total is unknown.
    pub(super) fn update(&mut self, done: u64, total: u64) {
        let now = self.clock.now();
        let drawn_recently = self
            .drawn_at
            .is_some_and(|drawn_at| now.saturating_duration_since(drawn_at) < REDRAW_INTERVAL);
        if !self.terminal || drawn_recently {
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

fn render(done: u64, total: u64, unit: &str) -> String {
    let Some(percent) = (done.min(total) * 100).checked_div(total) else {
        return format!("{done} {unit}");
    };
    let cells = usize::try_from(percent * CELLS / 100).unwrap_or(0);
    let rest = usize::try_from(CELLS).unwrap_or(0) - cells;
    format!(
        "[{}{}] {percent:>3} %  {done} of {total} {unit}",
        "#".repeat(cells),
        ".".repeat(rest)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_the_progress() {
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
