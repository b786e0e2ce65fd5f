//! Laying out text for a terminal.

pub(super) use crate::console::{ConsoleColors, Tone};

/// How many columns a text may have: `COLUMNS`, else the terminal's, else 100.
pub(super) fn output_width() -> usize {
    let given = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.trim().parse().ok());
    given
        .filter(|columns| *columns > 0)
        .or_else(terminal_width)
        .unwrap_or(DEFAULT_WIDTH)
}

/// The width where nothing says another.
const DEFAULT_WIDTH: usize = 100;

fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}

/// A text cut to a width, with `…` where something is missing.
pub(super) fn truncate(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// A text in lines of at most so many columns, broken at spaces; a word that is longer stands alone.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A text without control characters: neither a policy nor a URL writes to the operator's terminal.
pub(super) fn replace_controls(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_by_characters() {
        assert_eq!(truncate("äöü", 3), "äöü");
        assert_eq!(truncate("äöüß", 3), "äö…");
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(replace_controls("a\x1b[31m\nb"), "a [31m b");
    }
}
