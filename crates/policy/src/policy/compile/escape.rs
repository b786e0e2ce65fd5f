//! Characters of a value that canonical URLs contain in escaped form: each represents its escape,
//! with hex digits in either case (docs/policy/reference.md, "Canonical form").

/// The part of a URL that a text is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UrlRegion {
    Path,
    Query,
    /// Path or query: a character that only one of them escapes represents both forms.
    Either,
}

/// A text whose characters may have several forms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EscapedText {
    /// The text with every escape in upper case.
    pub(super) text: String,
    /// A regular expression that matches every form; `None` if the text is the only form.
    pub(super) pattern: Option<String>,
}

impl EscapedText {
    /// Appends text with a single form.
    pub(super) fn push(&mut self, text: &str) {
        if let Some(pattern) = &mut self.pattern {
            pattern.push_str(&regex_syntax::escape(text));
        }
        self.text.push_str(text);
    }

    /// Appends text of a URL region.
    pub(super) fn push_escaped(&mut self, region: UrlRegion, text: &str) {
        for c in text.chars() {
            match char_forms(region, c) {
                CharForms::Itself => self.push(c.encode_utf8(&mut [0; 4])),
                CharForms::Escape => self.push_forms(&percent_encode(c), escape_pattern(c)),
                CharForms::Both => {
                    let pattern = format!(
                        "(?:{}|{})",
                        regex_syntax::escape(&c.to_string()),
                        escape_pattern(c)
                    );
                    self.push_forms(c.encode_utf8(&mut [0; 4]), pattern);
                }
            }
        }
    }

    fn push_forms(&mut self, text: &str, pattern: String) {
        if pattern == text {
            return self.push(text);
        }
        self.pattern
            .get_or_insert_with(|| regex_syntax::escape(&self.text))
            .push_str(&pattern);
        self.text.push_str(text);
    }
}

/// The forms that a character may have in a canonical URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CharForms {
    Itself,
    Escape,
    Both,
}

fn char_forms(region: UrlRegion, c: char) -> CharForms {
    let path = is_escaped_in_path(c);
    let query = is_escaped_in_query(c);
    match region {
        UrlRegion::Path if path => CharForms::Escape,
        UrlRegion::Query if query => CharForms::Escape,
        UrlRegion::Either if path && query => CharForms::Escape,
        UrlRegion::Either if path || query => CharForms::Both,
        UrlRegion::Path | UrlRegion::Query | UrlRegion::Either => CharForms::Itself,
    }
}

/// The path percent-encode set of the WHATWG URL standard, without `?`, which ends the path.
fn is_escaped_in_path(c: char) -> bool {
    is_escaped_everywhere(c) || matches!(c, '`' | '{' | '}')
}

/// The special-query percent-encode set, and the backslash, which `UrlTarget` escapes as well.
fn is_escaped_in_query(c: char) -> bool {
    is_escaped_everywhere(c) || matches!(c, '\'' | '\\')
}

fn is_escaped_everywhere(c: char) -> bool {
    !c.is_ascii() || c.is_ascii_control() || matches!(c, ' ' | '"' | '#' | '<' | '>')
}

fn percent_encode(c: char) -> String {
    c.encode_utf8(&mut [0; 4])
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect()
}

/// Returns a pattern for the escape of a character in either case: `%3[Cc]` for `<`.
fn escape_pattern(c: char) -> String {
    percent_encode(c)
        .chars()
        .map(|digit| match digit {
            '0'..='9' | '%' => digit.to_string(),
            letter => format!("[{letter}{}]", letter.to_ascii_lowercase()),
        })
        .collect()
}

/// Returns the pattern that replaces a character of a regular expression; `None` if the character
/// represents only itself.
pub(super) fn char_pattern(region: UrlRegion, c: char) -> Option<String> {
    match char_forms(region, c) {
        CharForms::Itself => None,
        CharForms::Escape => Some(format!("(?:{})", escape_pattern(c))),
        CharForms::Both => Some(format!(
            "(?:{}|{})",
            regex_syntax::escape(&c.to_string()),
            escape_pattern(c)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sets_are_those_of_the_url_library() {
        for c in (0x20..0x7f)
            .map(|b: u8| b as char)
            .chain(['é', '日'])
            .filter(|c| !matches!(c, '?' | '\\'))
        {
            let url = url::Url::parse(&format!("http://h/x{c}")).unwrap();
            let in_path = c == '#' || url.path() != format!("/x{c}");
            assert_eq!(is_escaped_in_path(c), in_path, "{c:?} in a path");
            let url = url::Url::parse(&format!("http://h/?x{c}")).unwrap();
            let in_query = c == '#' || url.query() != Some(&format!("x{c}"));
            assert_eq!(is_escaped_in_query(c), in_query, "{c:?} in a query");
        }
    }

    #[test]
    fn forms_are_kept_apart_only_where_there_are_several() {
        for (region, text, expected, pattern) in [
            (UrlRegion::Path, "/a b", "/a%20b", None),
            (UrlRegion::Path, "/a.<", "/a.%3C", Some("/a\\.%3[Cc]")),
            (UrlRegion::Query, "{x}", "{x}", None),
            (UrlRegion::Either, "{", "{", Some("(?:\\{|%7[Bb])")),
            (UrlRegion::Path, "é", "%C3%A9", Some("%[Cc]3%[Aa]9")),
        ] {
            let mut escaped = EscapedText::default();
            escaped.push_escaped(region, text);
            assert_eq!(
                (&*escaped.text, escaped.pattern.as_deref()),
                (expected, pattern)
            );
        }
    }
}
