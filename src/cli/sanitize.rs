//! Text that others wrote, as it is shown on a terminal. What is written for programs keeps it as it is.

use std::borrow::Cow;

/// A text without what changes a terminal or how its line reads.
pub(super) fn sanitize_text(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmful(character) {
            clean.extend(character.escape_unicode());
        } else {
            clean.push(character);
        }
    }
    Cow::Owned(clean)
}

/// Controls, and marks that turn or hide text.
pub(super) fn is_harmful(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_that_changes_it() {
        for (text, clean) in [
            ("http://a/b?c=d", "http://a/b?c=d"),
            ("\u{1b}[2J\r\n", "\\u{1b}[2J\\u{d}\\u{a}"),
            ("a\u{9b}31m\u{7f}", "a\\u{9b}31m\\u{7f}"),
            ("caf\u{e9} \u{202e}gpj.exe", "caf\u{e9} \\u{202e}gpj.exe"),
        ] {
            assert_eq!(sanitize_text(text), clean);
        }
    }
}
