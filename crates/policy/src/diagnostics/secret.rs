//! Hides secrets in the source lines of problems: the values of keys whose names contain a password
//! word, the passwords of URLs, and the headers in `telemetry.otlp.headers`.
//!
//! Works on the text, since the text may have any syntax error, and hides too much rather than too
//! little. Messages themselves must not quote secrets.

/// Words in key names that mark the value as a secret.
const SECRET_WORDS: [&str; 3] = ["password", "passwd", "secret"];

/// The lines of a text that may contain header values for a collector.
#[derive(Debug, Default)]
pub(super) struct SecretLines {
    /// Line numbers from 1, in ascending order.
    header_lines: Vec<(u32, HiddenPart)>,
}

/// The part of a line that is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HiddenPart {
    /// Everything after the key `headers`.
    AfterKey,
    All,
}

/// A value that continues on the next lines.
enum MultilineValue {
    /// Continues while lines are indented like the key or deeper.
    Block { indentation: usize },
    /// Continues until all open brackets are closed.
    Flow { open: usize },
}

impl SecretLines {
    pub(super) fn scan(text: &str) -> Self {
        let mut secrets = Self::default();
        let mut after_otlp = false;
        let mut value: Option<MultilineValue> = None;
        for (line, number) in text.lines().zip(1..) {
            if value.as_mut().is_some_and(|value| value.continues_on(line)) {
                secrets.header_lines.push((number, HiddenPart::All));
                continue;
            }
            value = None;
            if line.trim_start().starts_with('#') {
                continue;
            }
            after_otlp |= value_start(line, "otlp").is_some();
            let key = value_start(line, "headers").filter(|_| after_otlp);
            if let Some(colon) = key {
                secrets.header_lines.push((number, HiddenPart::AfterKey));
                value = Some(MultilineValue::starting_at(line, colon));
            }
        }
        secrets
    }

    /// Returns the number of leading characters that may be shown; `None` if all may be.
    pub(super) fn visible_chars(&self, line: &str, number: u32) -> Option<usize> {
        let by_word = SECRET_WORDS
            .into_iter()
            .filter_map(|word| value_start(line, word))
            .min();
        let found = self
            .header_lines
            .binary_search_by_key(&number, |(number, _)| *number)
            .ok();
        let of_headers = found
            .and_then(|at| self.header_lines.get(at))
            .map(|(_, hidden)| match hidden {
                HiddenPart::All => 0,
                HiddenPart::AfterKey => value_start(line, "headers").unwrap_or(0),
            });
        let of_url = credentials_start(line);
        by_word.into_iter().chain(of_headers).chain(of_url).min()
    }
}

impl MultilineValue {
    /// Creates the state for a value that begins after the colon at this offset.
    fn starting_at(line: &str, colon: usize) -> Self {
        let rest: String = line.chars().skip(colon).collect();
        match rest.trim_start().chars().next() {
            None | Some('#' | '|' | '>' | '&' | '!') => Self::Block {
                indentation: indentation(line),
            },
            Some(_) => Self::Flow {
                open: open_brackets(0, &rest),
            },
        }
    }

    /// Returns `true` if the value continues on the next line.
    fn continues_on(&mut self, line: &str) -> bool {
        match self {
            Self::Block { indentation: key } => line.trim().is_empty() || indentation(line) >= *key,
            Self::Flow { open: 0 } => false,
            Self::Flow { open } => {
                *open = open_brackets(*open, line);
                true
            }
        }
    }
}

/// Returns the number of open brackets after a text. Brackets in quoted text are counted, too.
fn open_brackets(before: usize, text: &str) -> usize {
    text.chars()
        .fold(before, |open, character| match character {
            '{' | '[' => open + 1,
            '}' | ']' => open.saturating_sub(1),
            _ => open,
        })
}

fn indentation(line: &str) -> usize {
    line.chars().take_while(|c| *c == ' ').count()
}

/// Returns the offset, in characters, of the user and password of the first URL that has both.
fn credentials_start(line: &str) -> Option<usize> {
    let mut urls = line.match_indices("://").filter_map(|(at, mark)| {
        let (before, after) = line.split_at_checked(at + mark.len())?;
        let url = after.split_whitespace().next()?;
        let (credentials, _) = url.rsplit_once('@')?;
        credentials.contains(':').then(|| before.chars().count())
    });
    urls.next()
}

/// Returns the offset, in characters, of the value of the first key that contains the word.
fn value_start(line: &str, word: &str) -> Option<usize> {
    let lower = line.to_ascii_lowercase();
    lower.match_indices(word).find_map(|(found, _)| {
        let (before, rest) = line.split_at_checked(found)?;
        let key = rest
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
            .count();
        let end = rest
            .chars()
            .skip(key)
            .take_while(|c| matches!(c, '"' | '\'' | ' '))
            .count()
            + key;
        (rest.chars().nth(end) == Some(':')).then(|| before.chars().count() + end + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let secrets = SecretLines::scan(text);
        text.lines()
            .zip(1..)
            .map(|(line, number)| {
                let length = secrets.visible_chars(line, number).unwrap_or(usize::MAX);
                line.chars().take(length).collect()
            })
            .collect()
    }

    #[test]
    fn values_of_secret_keys_are_hidden() {
        for (line, expected) in [
            (
                "auth: { user: news, password_hash: \"$x\" }",
                "auth: { user: news, password_hash:",
            ),
            ("\"Password\" : é", "\"Password\" :"),
            ("é: a, secret: b", "é: a, secret:"),
            (
                "{ user: password, password: b }",
                "{ user: password, password:",
            ),
            ("# no password here", "# no password here"),
            ("headers: { a: b }", "headers: { a: b }"),
            ("url: \"p://u:a@b/c@h/d\", x: 1", "url: \"p://"),
            (
                "- { url: 'http://u@h/', x: 'a:b@c' }",
                "- { url: 'http://u@h/', x: 'a:b@c' }",
            ),
            ("[http://h:80, http://u:a@h]", "[http://h:80, http://"),
            ("url: \"p://u:it's@h/d\"", "url: \"p://"),
            ("- http://h:80/ # me@h", "- http://h:80/ # me@h"),
        ] {
            assert_eq!(shown(line), [expected]);
        }
    }

    #[test]
    fn headers_for_a_collector_are_hidden_in_any_form() {
        for (text, expected) in [
            (
                "telemetry: { otlp: { endpoint: e, headers: { a: b }, queue: 1 } }",
                &["telemetry: { otlp: { endpoint: e, headers:"][..],
            ),
            (
                "otlp:\n  endpoint: e\n  headers:\n    # é\n    a: b\n\n    \"c\": 'd'\n  queue: 1\nnext: n",
                &[
                    "otlp:",
                    "  endpoint: e",
                    "  headers:",
                    "",
                    "",
                    "",
                    "",
                    "",
                    "next: n",
                ],
            ),
            (
                "otlp: {\n  endpoint: e, headers: { a: b,\n  c: d,\n  }\n}\nnext: n",
                &["otlp: {", "  endpoint: e, headers:", "", "", "}", "next: n"],
            ),
            (
                "# with otlp:\notlp: {\nheaders: {\na: b\n}, queue: 1 }\nnext: n",
                &["# with otlp:", "otlp: {", "headers:", "", "", "next: n"],
            ),
            (
                "otlp:\n  headers:\n  a: Bearer\n    b:c\nnext: n",
                &["otlp:", "  headers:", "", "", "next: n"],
            ),
            ("otlp: none\nheaders: a", &["otlp: none", "headers:"]),
            ("headers: a\notlp: none", &["headers: a", "otlp: none"]),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
