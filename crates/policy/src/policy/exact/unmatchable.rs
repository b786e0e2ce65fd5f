//! Values that no canonical URL can match.
//!
//! Nearly every value matches a URL that is made of the value itself, which is tried first. An
//! automaton is built only if that fails.

use std::fmt::Write as _;

use regex_syntax::hir::{Class, Hir, HirKind, Look};

use crate::policy::fact::{Fact, Facts};
use crate::policy::field::Field;
use crate::policy::pattern::{CaseSensitivity, LiteralTestKind, TextForm, TextKind, TextTest};
use crate::urls::target::UrlTarget;

use super::automaton::{parse, to_ascii};
use super::formula::Formula;
use super::search::{MAX_STATES, SearchLimits, SearchOutcome, UrlConditions, search};
use super::tests::TestTable;
use super::url_position::{UrlRegions, UrlSet};
use super::work::Work;

/// The maximum length of a text that is made from an expression.
const MAX_SAMPLE: usize = 4_000;

/// Returns `true` if it is proved that no canonical URL, and no reading of one by lax servers,
/// passes a test.
pub(crate) fn matches_no_url(field: &Field, test: &TextTest) -> bool {
    let is_analysed = UrlRegions::of_field(field).is_some() && test.form == TextForm::Canonical;
    let has_samples = match test.kind {
        TextKind::Literal(kind, _) => kind != LiteralTestKind::Surt,
        TextKind::Regex(_) => true,
        TextKind::Count(..) => false,
    };
    if !is_analysed || !has_samples {
        return false;
    }
    if has_possible_sample(field, test) {
        return false;
    }
    let mut table = TestTable::default();
    let formula = table.text(field, test);
    let Ok(conditions) = UrlConditions::shared() else {
        return false;
    };
    // An expression that is too large to analyse may match.
    if let Formula::Constant(true) = formula {
        return false;
    }
    let limits = SearchLimits {
        states: MAX_STATES,
        work: &mut Work::for_question(),
    };
    search(&table, conditions, &formula, UrlSet::All, limits) == SearchOutcome::Nothing
}

/// A text that passes a test if it is at this place.
#[derive(Clone)]
struct SampleText {
    text: String,
    starts: bool,
    ends: bool,
    /// `true` if it may also depend on the text around it.
    is_uncertain: bool,
}

/// Returns `true` if a URL that is made of the test's own values passes it.
fn has_possible_sample(field: &Field, test: &TextTest) -> bool {
    let (kind, values) = match &test.kind {
        TextKind::Literal(kind, values) => (kind, values),
        TextKind::Regex(regexes) => {
            return regexes
                .iter()
                .flat_map(|regex| samples_of_expression(regex.as_str(), test.case))
                .any(|sample| is_possible(field, &sample, test));
        }
        TextKind::Count(..) => return false,
    };
    let (before, starts, ends) = match kind {
        LiteralTestKind::Exact | LiteralTestKind::Domain | LiteralTestKind::Under => {
            ("", true, true)
        }
        LiteralTestKind::Prefix => ("", true, false),
        LiteralTestKind::Suffix => ("", false, true),
        LiteralTestKind::Contains => ("", false, false),
        LiteralTestKind::Ext => ("a.", false, true),
        LiteralTestKind::Surt => return false,
    };
    let mut samples = values.iter().map(|value| SampleText {
        text: format!("{before}{value}"),
        starts,
        ends,
        is_uncertain: false,
    });
    samples.any(|sample| is_possible(field, &sample, test))
}

/// Returns `true` if a URL that is made of a sample is canonical, and the sample is in the field.
fn is_possible(field: &Field, sample: &SampleText, test: &TextTest) -> bool {
    let SampleText {
        text, starts, ends, ..
    } = sample;
    let before_path = if *starts { "" } else { "/a" };
    let is_sample = |candidate: String| is_sample_of(&candidate, field, sample, test);
    match field {
        Field::Url if *starts => ["", "/", "a/", "://a/", "//a/", "a"]
            .iter()
            .filter(|rest| !*ends || rest.is_empty())
            .any(|rest| is_sample(format!("{text}{rest}"))),
        Field::Url | Field::AuthorityPathQuery | Field::PathAndQuery if !*starts => {
            is_sample(format!("http://a/{text}"))
                || is_sample(format!("http://a/a{text}"))
                || is_sample(format!("http://a{text}"))
                || is_sample(format!("http://a.{text}/"))
        }
        Field::AuthorityPathQuery => {
            is_sample(format!("http://{text}")) || is_sample(format!("http://{text}/"))
        }
        Field::Host | Field::Authority if *starts => {
            is_sample(format!("http://{text}/")) || is_sample(format!("http://{text}a/"))
        }
        Field::Host | Field::Authority => {
            is_sample(format!("http://a{text}/")) || is_sample(format!("http://a{text}a/"))
        }
        Field::Path | Field::PathAndQuery => {
            is_sample(format!("http://a{before_path}{text}"))
                || is_sample(
                    format!("http://a/{text}")
                        .replace("//", "/")
                        .replacen(":/", "://", 1),
                )
        }
        Field::RelPath | Field::RelPathAndQuery => is_sample(format!("http://a/{text}")),
        Field::Query => is_sample(format!("http://a/?{text}")),
        Field::Url
        | Field::Scheme
        | Field::Port
        | Field::Param(_)
        | Field::Method
        | Field::Crawler
        | Field::Referer
        | Field::Dest
        | Field::Depth
        | Field::Address
        | Field::ContentType
        | Field::Status
        | Field::Size
        | Field::Header(_)
        | Field::Usage(_)
        | Field::License
        | Field::Title
        | Field::BodyPrefix
        | Field::MetaRobots
        | Field::Canonical => false,
    }
}

fn is_sample_of(candidate: &str, field: &Field, sample: &SampleText, test: &TextTest) -> bool {
    let Some(target) = UrlTarget::from_scan(candidate) else {
        return false;
    };
    let is_in_place = |text: &str| match (sample.starts, sample.ends) {
        (true, true) => text == sample.text,
        (true, false) => text.starts_with(&sample.text),
        (false, true) => text.ends_with(&sample.text),
        (false, false) => text.contains(&sample.text),
    };
    let found = field.any_text_matches(&Facts::for_url(&target), |text| {
        is_in_place(text) && (!sample.is_uncertain || test.matches(text))
    });
    found == Fact::Known(true)
}

/// Returns texts that an expression matches: one without its optional parts, and one with each of
/// them.
fn samples_of_expression(pattern: &str, case: CaseSensitivity) -> impl Iterator<Item = SampleText> {
    let tree = parse(pattern, case).ok().map(|tree| to_ascii(&tree));
    [0, 1].into_iter().filter_map(move |optional| {
        let mut writer = SampleWriter {
            sample: SampleText {
                text: String::new(),
                starts: false,
                ends: false,
                is_uncertain: false,
            },
            optional,
        };
        writer.write(tree.as_ref()?)?;
        Some(writer.sample)
    })
}

struct SampleWriter {
    sample: SampleText,
    /// The number of times that an optional part is written.
    optional: u32,
}

impl SampleWriter {
    /// Appends a text that an expression matches; `None` if none is found.
    fn write(&mut self, hir: &Hir) -> Option<()> {
        match hir.kind() {
            HirKind::Empty => Some(()),
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0).ok()?;
                self.push(text)
            }
            HirKind::Class(Class::Bytes(class)) => {
                let byte = preferred_bytes().find(|byte| {
                    class
                        .iter()
                        .any(|range| (range.start()..=range.end()).contains(byte))
                })?;
                self.push(char::from(byte).encode_utf8(&mut [0; 4]))
            }
            HirKind::Class(Class::Unicode(_)) => None,
            HirKind::Look(Look::Start) if self.sample.text.is_empty() => {
                self.sample.starts = true;
                Some(())
            }
            HirKind::Look(Look::End) => {
                self.sample.ends = true;
                Some(())
            }
            HirKind::Look(_) => {
                self.sample.is_uncertain = true;
                Some(())
            }
            HirKind::Repetition(repetition) => {
                let most = repetition.max.unwrap_or(u32::MAX);
                let count = repetition.min.max(self.optional.min(most));
                (0..count).try_for_each(|_| self.write(&repetition.sub))
            }
            HirKind::Capture(capture) => self.write(&capture.sub),
            HirKind::Concat(parts) => parts.iter().try_for_each(|part| self.write(part)),
            HirKind::Alternation(parts) => parts.iter().find_map(|part| {
                let mut attempt = Self {
                    sample: self.sample.clone(),
                    optional: self.optional,
                };
                attempt.write(part)?;
                self.sample = attempt.sample;
                Some(())
            }),
        }
    }

    fn push(&mut self, text: &str) -> Option<()> {
        let fits = !self.sample.ends && self.sample.text.len() < MAX_SAMPLE;
        (fits || text.is_empty()).then(|| {
            // Writing to a string does not fail.
            let _ = self.sample.text.write_str(text);
        })
    }
}

/// Bytes in the order in which they are preferred: those that any part of a URL may contain first.
fn preferred_bytes() -> impl Iterator<Item = u8> {
    (b'a'..=b'z')
        .chain(b'0'..=b'9')
        .chain(*b"-_./=&?:%+,;@!$()*~'")
        .chain(b'A'..=b'Z')
}

/// Returns the reason why no URL matches a value, and the value that was probably meant.
pub(crate) fn suggestion(field: &Field, kind: &str, text: &str) -> (&'static str, String) {
    let is_regex = kind == "regex";
    let is_path = matches!(field, Field::Path | Field::PathAndQuery);
    let is_host = matches!(field, Field::Host | Field::Authority);
    if is_regex
        && is_path
        && let Some(rest) = text.strip_prefix('^').filter(|rest| !rest.starts_with('/'))
    {
        return ("a path begins with `/`", format!("write ^/{rest}"));
    }
    if *field == Field::Url && starts_after_scheme(kind, text) {
        let start = if is_regex { "^https?://" } else { "*" };
        return (
            "a URL begins with `http://` or `https://`",
            format!("compare `path` instead of `url`, or begin with `{start}`"),
        );
    }
    if is_host && text.chars().any(|c| c.is_ascii_uppercase()) && !text.contains('\\') {
        let lower = text.to_ascii_lowercase();
        return ("hosts are in lower case", format!("write {lower}"));
    }
    if is_regex && let Some(at) = inner_end(text) {
        let (before, after) = text.split_at_checked(at).unwrap_or((text, ""));
        return (
            "`$` is the end of the text, and nothing can follow it",
            format!("for the character write {before}\\{after}"),
        );
    }
    let host = text.split_once("://").map_or("", |(_, rest)| {
        rest.split(['/', '?']).next().unwrap_or(rest)
    });
    if !is_regex && kind != "glob" && host.contains('*') {
        let domain = host.trim_start_matches("*.");
        let instead = format!("write `domain: {domain}`, or `url: {{ glob: \"{text}*\" }}`");
        return ("`*` is not a wildcard here", instead);
    }
    if text.contains(":80/") || text.contains(":443/") {
        return (
            "the default port is removed before a URL is matched",
            "write it without the port".into(),
        );
    }
    if text.contains("/../") || text.contains("/./") {
        return (
            "segments `.` and `..` are resolved before a URL is matched",
            "write the path without them".into(),
        );
    }
    if text.contains('#') {
        return (
            "URLs are matched without their fragment",
            "remove the `#` and everything after it".into(),
        );
    }
    ("no URL in canonical form passes it", String::new())
}

/// Returns `true` if a pattern requires a beginning that is not that of a URL.
fn starts_after_scheme(kind: &str, pattern: &str) -> bool {
    let start = match kind {
        "regex" => pattern
            .strip_prefix('^')
            .map(|rest| rest.trim_start_matches(['(', '?', ':'])),
        "glob" => Some(pattern),
        _ => None,
    };
    let first = start.and_then(|start| start.chars().next());
    first.is_some_and(|c| c != 'h' && (c.is_alphanumeric() || c == '/'))
}

/// Returns the offset of an unescaped `$` that is followed by other characters.
fn inner_end(pattern: &str) -> Option<usize> {
    let mut is_escaped = false;
    let mut is_in_class = false;
    for (at, c) in pattern.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => is_in_class = true,
            ']' => is_in_class = false,
            '$' if !is_in_class => {
                let rest = pattern.get(at + 1..).unwrap_or("");
                if !rest.is_empty() && !rest.starts_with(['|', ')']) {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}
