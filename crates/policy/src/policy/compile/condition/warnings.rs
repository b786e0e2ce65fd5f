//! Warnings about single values: those that match nothing, and those that match more than the
//! author intended.

use crate::diagnostics::problem::Problem;
use crate::policy::compile::surt;
use crate::policy::field::Field;
use crate::policy::source::tree::{LocatedText, TextTestKind};

/// A warning about a value of a text test.
#[derive(Debug)]
pub(in super::super) struct ValueWarning {
    pub(in super::super) message: String,
    pub(in super::super) help: Option<String>,
    /// The offset of the problem within the value, in characters.
    offset: Option<usize>,
    /// `true` if no URL matches the value.
    pub(in super::super) matches_nothing: bool,
}

impl ValueWarning {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
            offset: None,
            matches_nothing: false,
        }
    }

    /// Creates a warning about a value that no URL matches. The help may be empty.
    pub(super) fn matches_nothing(reason: &str, help: String) -> Self {
        Self {
            help: Some(help).filter(|help| !help.is_empty()),
            matches_nothing: true,
            ..Self::new(format!("matches nothing: {reason}"))
        }
    }

    fn with_help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    pub(in super::super) fn into_problem(self, value: &LocatedText) -> Problem {
        let problem = Problem::warning(&value.place, self.message).with_found(&*value.value);
        Problem {
            help: self.help,
            scalar_offset: self.offset,
            ..problem
        }
    }
}

/// Returns warnings about a value of a text test.
pub(super) fn value_warnings(field: &Field, kind: TextTestKind, text: &str) -> Vec<ValueWarning> {
    let matches_nothing = never_matches(field, kind, text)
        .map(|(reason, help)| ValueWarning::matches_nothing(reason, help));
    let misread = if matches_nothing.is_none() {
        wildcard_warning(field, kind, text).or_else(|| query_mark_warning(field, kind, text))
    } else {
        None
    };
    let others = [
        matches_nothing,
        misread,
        uppercase_host_warning(field, kind, text),
        open_host_prefix_warning(field, kind, text),
        dropped_segment_warning(kind, text),
        if kind == TextTestKind::Regex {
            unescaped_warning(text)
        } else {
            None
        },
    ];
    others.into_iter().flatten().collect()
}

/// Returns the reason why no text of the field can match, and the fix.
fn never_matches(field: &Field, kind: TextTestKind, text: &str) -> Option<(&'static str, String)> {
    let exact = kind == TextTestKind::Exact;
    let from_start = exact || kind == TextTestKind::Prefix;
    let plain = !matches!(kind, TextTestKind::Regex | TextTestKind::Glob);
    let path = matches!(field, Field::Path | Field::PathAndQuery);
    if path && from_start && !text.starts_with('/') && !text.is_empty() {
        let help = wildcard_help(field, kind, text).unwrap_or_else(|| format!("write /{text}"));
        return Some(("a path begins with `/`", help));
    }
    if matches!(field, Field::Path | Field::RelPath) && plain && text.contains('?') {
        return Some((
            "a path does not include the query",
            "use `path_and_query` or `query`".into(),
        ));
    }
    if matches!(field, Field::RelPath | Field::RelPathAndQuery)
        && from_start
        && text.starts_with('/')
    {
        return Some((
            "this field has no leading slash",
            "use `path`, or remove the slash".into(),
        ));
    }
    if *field == Field::Query && from_start && text.starts_with('?') {
        return Some((
            "the query does not include the `?`",
            format!("write {}", text.trim_start_matches('?')),
        ));
    }
    if let Some(warning) = not_canonical(field, kind, text) {
        return Some(warning);
    }
    if *field == Field::Url && kind == TextTestKind::Prefix && !is_url_prefix(text) {
        let help = match text.split(['/', ':']).next() {
            Some(host) if host.contains('.') => {
                format!(
                    "write `domain: {host}` for the whole site, or http://{text} for a part of it"
                )
            }
            Some(_) | None => String::new(),
        };
        return Some(("a URL begins with `http://` or `https://`", help));
    }
    if exact {
        field.impossible_text(text)
    } else {
        None
    }
}

/// Detects parts that canonical URLs never contain: a fragment, and the path segments `.` and `..`.
fn not_canonical(field: &Field, kind: TextTestKind, text: &str) -> Option<(&'static str, String)> {
    let of_url = matches!(
        field,
        Field::Url | Field::Path | Field::PathAndQuery | Field::AuthorityPathQuery
    );
    if !of_url
        || !matches!(
            kind,
            TextTestKind::Prefix | TextTestKind::Under | TextTestKind::Contains
        )
    {
        return None;
    }
    if *field == Field::Url && kind == TextTestKind::Prefix && text.contains('#') {
        return Some((
            "URLs are matched without their fragment",
            "remove the `#` and everything after it".into(),
        ));
    }
    let path = text.split_once('?').map_or(text, |(path, _)| path);
    let resolved = ["/./", "/../"].iter().any(|dots| path.contains(dots))
        || kind == TextTestKind::Under && ["/.", "/.."].iter().any(|dots| path.ends_with(dots));
    resolved.then(|| {
        (
            "segments `.` and `..` are resolved before a URL is matched",
            "write the path without them".into(),
        )
    })
}

fn is_url_prefix(prefix: &str) -> bool {
    let prefix = prefix.to_ascii_lowercase();
    ["http://", "https://"]
        .into_iter()
        .any(|url| prefix.starts_with(url) || url.starts_with(&prefix))
}

/// Warns of upper-case letters: hosts are compared in lower case.
fn uppercase_host_warning(field: &Field, kind: TextTestKind, text: &str) -> Option<ValueWarning> {
    let host = match (field, kind) {
        (Field::Host | Field::Authority, TextTestKind::Regex) => return None,
        (Field::Host | Field::Authority, _) => text,
        (Field::AuthorityPathQuery, TextTestKind::Exact | TextTestKind::Prefix) => {
            text.split(['/', '?']).next()?
        }
        (Field::Url, TextTestKind::Surt) => surt::written_host(text),
        (Field::Url, _) => text.split_once("://")?.1.split(['/', '?']).next()?,
        _ => return None,
    };
    // In a regular expression an upper-case letter may belong to an escape such as `\W`.
    let mut before = ' ';
    let capital = host.chars().any(|c| {
        let found = c.is_ascii_uppercase() && before != '\\';
        before = c;
        found
    });
    capital
        .then(|| ValueWarning::new("upper-case letters in a host, which is compared in lower case"))
}

/// Warns of prefixes such as `http://foo.com`, which also match `http://foo.com.evil/`.
fn open_host_prefix_warning(field: &Field, kind: TextTestKind, text: &str) -> Option<ValueWarning> {
    if *field != Field::Url || kind != TextTestKind::Prefix {
        return None;
    }
    let host = text.split_once("://")?.1;
    let open = !host.is_empty() && !host.contains(['/', '?']);
    open.then(|| {
        ValueWarning::new("a prefix that ends in a host also matches longer hosts")
            .with_help(format!("write {text}/ for one host, or `domain: …`"))
    })
}

/// Warns of URLs in `surt` that end in the middle of a path.
fn dropped_segment_warning(kind: TextTestKind, text: &str) -> Option<ValueWarning> {
    if kind != TextTestKind::Surt || !surt::drops_last_segment(text) {
        return None;
    }
    let message = "of a URL, `surt` compares only what is before the last slash, as Heritrix does";
    let help = "end it with `/`, or use `url_prefix`";
    Some(ValueWarning::new(message).with_help(help))
}

/// Warns of `*` in a value that is not a pattern.
fn wildcard_warning(field: &Field, kind: TextTestKind, text: &str) -> Option<ValueWarning> {
    let help = wildcard_help(field, kind, text)?;
    let message = "`*` is not a wildcard here: only URLs that contain the character match";
    Some(ValueWarning::new(message).with_help(help))
}

/// Returns the test that was probably meant by a value with `*`; `None` for a value without it,
/// and for a pattern.
fn wildcard_help(field: &Field, kind: TextTestKind, text: &str) -> Option<String> {
    let is_plain = matches!(
        kind,
        TextTestKind::Exact
            | TextTestKind::Prefix
            | TextTestKind::Suffix
            | TextTestKind::Contains
            | TextTestKind::Under
    );
    let is_url = field.is_url_part() && !matches!(field, Field::Host | Field::Authority);
    let host = text.split_once("://").map_or("", |(_, rest)| {
        rest.split(['/', '?']).next().unwrap_or(rest)
    });
    // No host contains the character, which is reported as such.
    if !is_plain || !is_url || !text.contains('*') || host.contains('*') {
        return None;
    }
    let start = text.trim_end_matches('*');
    if kind == TextTestKind::Under && !start.contains('*') {
        return Some(match start.strip_suffix('/') {
            Some("") => "write `path: { prefix: / }`".into(),
            Some(directory) => format!("write {directory}"),
            // `/a*` probably includes `/ab`, which is not in the directory `/a`.
            None => format!(
                "write `{}: {{ prefix: {start} }}`, or {start} if only the directory is meant",
                field.full_keyword()
            ),
        });
    }
    if kind == TextTestKind::Prefix && !start.is_empty() && !start.contains('*') {
        return Some(format!("write {start}"));
    }
    let extension = text.trim_start_matches('/').strip_prefix("*.");
    let extension = extension.filter(|end| !end.contains(['*', '/', '?']));
    if let (Field::Path, Some(extension)) = (field, extension) {
        return Some(format!("write `ext: {extension}`"));
    }
    let keyword = field.full_keyword();
    let before = matches!(kind, TextTestKind::Suffix | TextTestKind::Contains);
    let after = matches!(
        kind,
        TextTestKind::Prefix | TextTestKind::Under | TextTestKind::Contains
    );
    let star = |wanted: bool| if wanted { "*" } else { "" };
    let glob = format!("{}{text}{}", star(before), star(after));
    let glob = glob.replace("**", "*");
    Some(format!("write `{keyword}: {{ glob: \"{glob}\" }}`"))
}

/// Warns of a question mark at the start of a part of the query.
fn query_mark_warning(field: &Field, kind: TextTestKind, text: &str) -> Option<ValueWarning> {
    let rest = text.strip_prefix('?')?;
    if *field != Field::Query || kind != TextTestKind::Contains {
        return None;
    }
    let message = "the query does not include its `?`: only a second one matches";
    let help = format!("write {rest}, or `path_and_query: {{ contains: \"{text}\" }}`");
    Some(ValueWarning::new(message).with_help(help))
}

/// Warns of an unescaped `.`, `+` or `?` in what is probably a host, a file name or a media type.
fn unescaped_warning(text: &str) -> Option<ValueWarning> {
    let characters: Vec<char> = text.chars().collect();
    let (at, c) = find_suspicious_char(&characters)?;
    let message = match c {
        '.' => "`.` matches any character; escape it with a backslash in a host or a file name",
        '+' => "`+` repeats the letter before it; escape it with a backslash in a media type",
        _ => "`?` makes the letter before it optional; escape it with a backslash before a query",
    };
    let mut fixed = characters;
    fixed.insert(at, '\\');
    let fixed: String = fixed.into_iter().collect();
    Some(ValueWarning {
        offset: Some(at),
        ..ValueWarning::new(message).with_help(format!("write {fixed}"))
    })
}

fn find_suspicious_char(pattern: &[char]) -> Option<(usize, char)> {
    let mut in_class = false;
    let mut skip = false;
    for (at, c) in pattern.iter().enumerate() {
        if std::mem::take(&mut skip) {
            continue;
        }
        match c {
            '\\' => skip = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '.' | '+' | '?' if !in_class && looks_literal(pattern, at, *c) => {
                return Some((at, *c));
            }
            _ => {}
        }
    }
    None
}

fn looks_literal(pattern: &[char], at: usize, c: char) -> bool {
    let (before, after) = pattern.split_at_checked(at).unwrap_or((pattern, &[]));
    let after = after.get(1..).unwrap_or(&[]);
    let letters_after = after.iter().take_while(|c| c.is_ascii_alphabetic()).count();
    let word_before = before
        .iter()
        .rev()
        .take_while(|c| c.is_ascii_alphanumeric() || **c == '-')
        .count();
    // `\d.` ends in a class, not in a letter.
    let class_before = before.len().checked_sub(2).and_then(|at| before.get(at)) == Some(&'\\');
    if word_before == 0 || class_before {
        return false;
    }
    let follows = after.get(letters_after);
    match c {
        '.' => letters_after >= 2 && !matches!(follows, Some('*' | '+' | '?' | '{')),
        '+' => letters_after >= 2 && before.contains(&'/'),
        _ => letters_after >= 1 && follows == Some(&'='),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning_count(field: &Field, kind: TextTestKind, text: &str) -> usize {
        value_warnings(field, kind, text).len()
    }

    #[test]
    fn expressions_that_look_like_names() {
        for (text, expected) in [
            ("example.com", 1),
            (r"example\.com", 0),
            ("application/epub+zip", 1),
            ("index.php?id=", 1),
            (r"index\.php?id=", 1),
            (r"index\.php\?id=", 0),
            ("^/a.*", 0),
            ("^/v[0-9.]+/", 0),
            ("colou?r", 0),
            (r"\d.pdf", 0),
            ("a+b", 0),
            ("/(foo|bar)+baz", 0),
        ] {
            assert_eq!(
                warning_count(&Field::Path, TextTestKind::Regex, text),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn values_that_match_nothing() {
        use TextTestKind::{Contains, Exact, Prefix};
        for (field, word, text, expected) in [
            (Field::Path, Prefix, "cgi-bin", 1),
            (Field::Path, Prefix, "/cgi-bin", 0),
            (Field::Path, Contains, "?sid", 1),
            (Field::Query, Exact, "?a=b", 1),
            (Field::Url, Prefix, "foo.com", 1),
            (Field::Url, Prefix, "https:", 0),
            (Field::Url, Prefix, "http://foo.com", 1),
            (Field::Url, Prefix, "http://Foo.com/", 1),
            (Field::Url, Prefix, "http://foo.com/A", 0),
            (Field::Host, Exact, "Foo.com", 1),
            (Field::AuthorityPathQuery, Prefix, "Foo.com/a", 1),
            (Field::AuthorityPathQuery, Prefix, "foo.com/A", 0),
            (Field::Method, Exact, "get", 1),
            (Field::Scheme, Exact, "ftp", 1),
            (Field::ContentType, Exact, "text/html; charset=utf-8", 1),
            (Field::ContentType, Exact, "", 0),
            (Field::Dest, Exact, "document", 1),
        ] {
            assert_eq!(warning_count(&field, word, text), expected, "{text}");
        }
    }
}
