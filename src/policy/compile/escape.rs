//! Characters of a pattern that the canonical form of a URL escapes: each stands for its escape, hex digits in
//! either case (policy.md section 7).

/// Which part of a URL a piece of text is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// The path.
    Path,
    /// The query.
    Query,
    /// Either of them: a character that only one of them escapes stands for both forms.
    Either,
}

/// A text whose characters may stand for several forms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Escaped {
    /// The text with every escape in upper case.
    pub(super) text: String,
    /// The same as a regular expression that takes every form; `None` if the text is the only one.
    pub(super) pattern: Option<String>,
}

impl Escaped {
    /// Adds text that has one form.
    pub(super) fn push(&mut self, text: &str) {
        if let Some(pattern) = &mut self.pattern {
            pattern.push_str(&regex_syntax::escape(text));
        }
        self.text.push_str(text);
    }

    /// Adds text of one region of a URL.
    pub(super) fn push_in(&mut self, region: Region, text: &str) {
        for c in text.chars() {
            match forms(region, c) {
                Forms::Itself => self.push(c.encode_utf8(&mut [0; 4])),
                Forms::Escape => self.push_forms(&escape(c), pattern_of_escape(c)),
                Forms::Both => {
                    let pattern = format!(
                        "(?:{}|{})",
                        regex_syntax::escape(&c.to_string()),
                        pattern_of_escape(c)
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
        let before = || regex_syntax::escape(&self.text);
        let mut whole = self.pattern.take().unwrap_or_else(before);
        whole.push_str(&pattern);
        self.pattern = Some(whole);
        self.text.push_str(text);
    }
}

/// The forms that a character may have in a canonical URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forms {
    Itself,
    Escape,
    Both,
}

fn forms(region: Region, c: char) -> Forms {
    let (path, query) = (escaped_in_path(c), escaped_in_query(c));
    match region {
        Region::Path if path => Forms::Escape,
        Region::Query if query => Forms::Escape,
        Region::Either if path && query => Forms::Escape,
        Region::Either if path || query => Forms::Both,
        Region::Path | Region::Query | Region::Either => Forms::Itself,
    }
}

/// The path percent-encode set of the WHATWG URL standard, `?` aside, which ends the path.
fn escaped_in_path(c: char) -> bool {
    escaped_everywhere(c) || matches!(c, '`' | '{' | '}')
}

/// The special-query percent-encode set.
fn escaped_in_query(c: char) -> bool {
    escaped_everywhere(c) || c == '\''
}

fn escaped_everywhere(c: char) -> bool {
    !c.is_ascii() || c.is_ascii_control() || matches!(c, ' ' | '"' | '#' | '<' | '>')
}

fn escape(c: char) -> String {
    c.encode_utf8(&mut [0; 4])
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect()
}

/// `%3[Cc]` for `<`.
fn pattern_of_escape(c: char) -> String {
    let either = |digit: char| match digit {
        '0'..='9' | '%' => digit.to_string(),
        letter => format!("[{letter}{}]", letter.to_ascii_lowercase()),
    };
    escape(c).chars().map(either).collect()
}

/// What a character of a regular expression is to be replaced by, if it stands for more than itself.
pub(super) fn pattern_for(region: Region, c: char) -> Option<String> {
    match forms(region, c) {
        Forms::Itself => None,
        Forms::Escape => Some(format!("(?:{})", pattern_of_escape(c))),
        Forms::Both => Some(format!(
            "(?:{}|{})",
            regex_syntax::escape(&c.to_string()),
            pattern_of_escape(c)
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
            assert_eq!(escaped_in_path(c), in_path, "{c:?} in a path");
            let url = url::Url::parse(&format!("http://h/?x{c}")).unwrap();
            let in_query = c == '#' || url.query() != Some(&format!("x{c}"));
            assert_eq!(escaped_in_query(c), in_query, "{c:?} in a query");
        }
    }

    #[test]
    fn forms_are_kept_apart_only_where_there_are_several() {
        let of = |region, text: &str| {
            let mut escaped = Escaped::default();
            escaped.push_in(region, text);
            (escaped.text, escaped.pattern)
        };
        assert_eq!(of(Region::Path, "/a b"), ("/a%20b".into(), None));
        assert_eq!(
            of(Region::Path, "/a.<"),
            ("/a.%3C".into(), Some("/a\\.%3[Cc]".into()))
        );
        assert_eq!(of(Region::Query, "{x}"), ("{x}".into(), None));
        assert_eq!(
            of(Region::Either, "{"),
            ("{".into(), Some("(?:\\{|%7[Bb])".into()))
        );
        assert_eq!(
            of(Region::Path, "é"),
            ("%C3%A9".into(), Some("%[Cc]3%[Aa]9".into()))
        );
    }
}
