//! Filters of decisions: `crawlgate decisions --filter`, and the parameters of the live stream.

use bytes::Bytes;
use regex::Regex;

use crate::diagnostics::nearest::nearest;
use crate::metrics::labels::VerdictLabel;
use crate::model::glob::TextGlob;

use super::entry::{LogEntry, LogField, LogFieldSet, LogValue};
use super::tap::split_lines;

/// A condition on one field.
#[derive(Clone, Debug)]
pub struct LogFilter {
    field: LogField,
    test: LogFilterTest,
}

#[derive(Clone, Debug)]
enum LogFilterTest {
    Is(ValuePattern),
    IsNot(ValuePattern),
    Like(Regex),
    NotLike(Regex),
    Contains(Box<str>),
    Number(LogComparison, f64),
}

#[derive(Clone, Copy, Debug)]
enum LogComparison {
    Less,
    AtMost,
    More,
    AtLeast,
}

/// The value that a field is compared with.
#[derive(Clone, Debug)]
enum ValuePattern {
    /// Null.
    Empty,
    Text(Box<str>, Option<f64>),
    Glob(TextGlob),
}

/// The operators; one that is a prefix of another comes after it.
const OPERATORS: [&str; 8] = ["!=", "!~", ">=", "<=", "=", "~", ">", "<"];
/// The number of lines that are filtered before the task yields.
const LINES_PER_YIELD: usize = 32;
/// Short names of common fields.
const ALIASES: [(&str, LogField); 2] =
    [("status", LogField::SentStatus), ("held", LogField::HeldMs)];

/// The verdict `shadow_reject` as `crawlgate decisions` and the page show it.
const SHORT_SHADOW_VERDICT: &str = "shadow";

/// The error of an invalid filter.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LogFilterError(String);

impl LogFilter {
    /// Parses `K=V`, `K!=V` (`*` matches anything, an empty V null), `K~REGEX`, `K!~REGEX`, `K>N`, `K>=N`, `K<N`, `K<=N`.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn parse(text: &str) -> Result<Self, LogFilterError> {
        let end = text
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(text.len());
        let (key, rest) = text.split_at_checked(end).unwrap_or((text, ""));
        let operator = OPERATORS
            .into_iter()
            .find(|operator| rest.starts_with(operator));
        let Some(operator) = operator.filter(|_| !key.is_empty()) else {
            let forms =
                "K=V, K!=V, K~REGEX, K!~REGEX, K>N, K>=N, K<N or K<=N, such as verdict=reject";
            return Err(LogFilterError(format!("write {forms}")));
        };
        let field = parse_field(key)?;
        let value = match (field, rest.strip_prefix(operator).unwrap_or_default()) {
            (LogField::Verdict, SHORT_SHADOW_VERDICT) => VerdictLabel::ShadowReject.as_str(),
            (_, value) => value,
        };
        let test = match operator {
            "=" => LogFilterTest::Is(ValuePattern::parse(value)),
            "!=" => LogFilterTest::IsNot(ValuePattern::parse(value)),
            "~" => LogFilterTest::Like(parse_regex(value)?),
            "!~" => LogFilterTest::NotLike(parse_regex(value)?),
            ">" => LogFilterTest::Number(LogComparison::More, parse_number(value)?),
            ">=" => LogFilterTest::Number(LogComparison::AtLeast, parse_number(value)?),
            "<" => LogFilterTest::Number(LogComparison::Less, parse_number(value)?),
            _ => LogFilterTest::Number(LogComparison::AtMost, parse_number(value)?),
        };
        Ok(Self { field, test })
    }

    /// The field equals this text (`*` matches anything), or is null if the text is empty.
    pub(crate) fn equals(field: LogField, text: &str) -> Self {
        Self {
            field,
            test: LogFilterTest::Is(ValuePattern::parse(text)),
        }
    }

    /// The field contains this text.
    pub(crate) fn contains(field: LogField, text: &str) -> Self {
        Self {
            field,
            test: LogFilterTest::Contains(text.into()),
        }
    }

    /// The field is a number of at least this value.
    pub(crate) fn at_least(field: LogField, number: f64) -> Self {
        Self {
            field,
            test: LogFilterTest::Number(LogComparison::AtLeast, number),
        }
    }

    /// Returns the field of the condition.
    pub(crate) fn field(&self) -> LogField {
        self.field
    }

    /// Returns `true` if the decision meets the condition.
    pub(crate) fn matches(&self, entry: &LogEntry<'_>) -> bool {
        let cell = entry.value(self.field);
        match &self.test {
            LogFilterTest::Is(pattern) => pattern.matches(cell),
            LogFilterTest::IsNot(pattern) => !pattern.matches(cell),
            LogFilterTest::Like(regex) => any_value(cell, |text| regex.is_match(text)),
            LogFilterTest::NotLike(regex) => !any_value(cell, |text| regex.is_match(text)),
            LogFilterTest::Contains(part) => any_value(cell, |text| text.contains(&**part)),
            LogFilterTest::Number(comparison, limit) => {
                cell.number().is_some_and(|number| match comparison {
                    LogComparison::Less => number < *limit,
                    LogComparison::AtMost => number <= *limit,
                    LogComparison::More => number > *limit,
                    LogComparison::AtLeast => number >= *limit,
                })
            }
        }
    }
}

/// Several groups of conditions; one condition of each group must be met.
#[derive(Clone, Debug)]
pub struct LogFilterSet {
    groups: Vec<Vec<LogFilter>>,
    wanted: LogFieldSet,
}

impl LogFilterSet {
    /// Matches everything.
    pub fn match_all() -> Self {
        Self::new(Vec::new())
    }

    /// Matches decisions that meet one condition of each group.
    pub fn new(groups: Vec<Vec<LogFilter>>) -> Self {
        let wanted = LogFieldSet::from_fields(groups.iter().flatten().map(LogFilter::field));
        Self { groups, wanted }
    }

    /// Returns `true` if a line matches; it is parsed once. A line that is not a decision matches only if everything does.
    pub(super) fn matches_line(&self, line: &[u8]) -> bool {
        if self.groups.is_empty() {
            return true;
        }
        let Ok(entry) = LogEntry::parse(line, self.wanted) else {
            return false;
        };
        self.groups
            .iter()
            .all(|group| group.iter().any(|filter| filter.matches(&entry)))
    }

    /// Returns the matching lines. Yields now and then, so that a task with many lines does not block others.
    pub async fn filter_lines(&self, bytes: Bytes) -> Bytes {
        if self.groups.is_empty() {
            return bytes;
        }
        let mut passing = Vec::new();
        for (number, line) in (1..).zip(split_lines(&bytes)) {
            if self.matches_line(line) {
                passing.extend_from_slice(line);
            }
            if number % LINES_PER_YIELD == 0 {
                tokio::task::yield_now().await;
            }
        }
        passing.into()
    }
}

impl ValuePattern {
    fn parse(value: &str) -> Self {
        match TextGlob::parse(value) {
            Some(glob) => Self::Glob(glob),
            None if value.is_empty() => Self::Empty,
            None => Self::Text(value.into(), value.parse().ok()),
        }
    }

    fn matches(&self, cell: &LogValue<'_>) -> bool {
        match (self, cell) {
            (Self::Empty, cell) => *cell == LogValue::Null,
            (Self::Text(_, Some(wanted)), LogValue::Number(number)) => wanted == number,
            (Self::Text(text, _), cell) => any_value(cell, |found| *found == **text),
            (Self::Glob(glob), cell) => any_value(cell, |found| glob.matches(found)),
        }
    }
}

/// Returns `true` if the value, or one of several, meets the condition.
fn any_value(cell: &LogValue<'_>, condition: impl Fn(&str) -> bool) -> bool {
    match cell {
        LogValue::Null => false,
        LogValue::Text(text) => condition(text),
        LogValue::Number(number) => condition(&number.to_string()),
        LogValue::List(names) => names.iter().any(|name| condition(name)),
    }
}

fn parse_field(key: &str) -> Result<LogField, LogFilterError> {
    let short = ALIASES
        .into_iter()
        .find(|(name, _)| *name == key)
        .map(|(_, field)| field);
    short.or_else(|| LogField::from_name(key)).ok_or_else(|| {
        let names = LogField::ALL.map(|(_, name)| name);
        let hint =
            nearest(key, names).map_or(String::new(), |name| format!("; did you mean `{name}`?"));
        LogFilterError(format!(
            "unknown field `{key}`; allowed: status, held, {}{hint}",
            names.join(", ")
        ))
    })
}

fn parse_number(text: &str) -> Result<f64, LogFilterError> {
    text.parse()
        .map_err(|_| LogFilterError(format!("`{text}` is not a number")))
}

fn parse_regex(text: &str) -> Result<Regex, LogFilterError> {
    Regex::new(text).map_err(|error| LogFilterError(format!("invalid regular expression: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"ts":"t","verdict":"reject","host":"www.a.test","url":"http://www.a.test/x?q=1","rule":null,
        "sent_status":451,"held_ms":1250.000,"shadow":[{"rule":"r1"},{"rule":"r2"}]}"#;

    #[test]
    fn filters_match_lines() {
        let entry = LogEntry::parse(
            LINE.as_bytes(),
            LogFieldSet::from_fields(LogField::ALL.map(|(field, _)| field)),
        )
        .unwrap();
        for (text, holds) in [
            ("verdict=reject", true),
            ("verdict=rej", false),
            ("verdict!=allow", true),
            ("host=*.a.test", true),
            ("host=*.a.tes", false),
            ("host=www.*.te*t", true),
            ("host=*", true),
            ("host=***", true),
            ("host=www.a.test*", true),
            ("host=www.a.*.test", false),
            ("host=www.a.test*t", false),
            ("host=*a.*a.*", false),
            ("host=*.**a*.t**t", true),
            ("rule=*", false),
            ("url=http*://*", true),
            ("host=.*", false),
            ("url=*?q=*", true),
            ("url~/x\\?", true),
            ("url!~/x\\?", false),
            ("url!~^ftp", true),
            ("rule=", true),
            ("rule!=", false),
            ("rule=x", false),
            ("rule!=x", true),
            ("rule~.*", false),
            ("host!=", true),
            ("status=451", true),
            ("sent_status=451.0", true),
            ("status=4*", true),
            ("status>=400", true),
            ("status>451", false),
            ("status<500", true),
            ("status<=450", false),
            ("held=1250", true),
            ("held_ms>1000", true),
            ("origin_status>0", false),
            ("origin_status=", true),
            ("shadow=r2", true),
            ("shadow=r3", false),
            ("shadow!=r1", false),
            ("verdict>1", false),
        ] {
            assert_eq!(
                LogFilter::parse(text).unwrap().matches(&entry),
                holds,
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn one_filter_of_each_group_must_match() {
        let read = |text: &&str| LogFilter::parse(text).unwrap();
        for (groups, passes) in [
            (&[][..], true),
            (&[&["verdict=allow", "verdict=reject"][..]], true),
            (&[&["verdict=allow"][..]], false),
            (
                &[&["verdict=reject"], &["status=451", "status=200"][..]],
                true,
            ),
            (&[&["verdict=reject"], &["status=200"]], false),
        ] {
            let filters = LogFilterSet::new(
                groups
                    .iter()
                    .map(|any| any.iter().map(read).collect())
                    .collect(),
            );
            assert_eq!(filters.matches_line(LINE.as_bytes()), passes, "{groups:?}");
        }
        for (filter, holds) in [
            (LogFilter::contains(LogField::Url, "/x?"), true),
            (LogFilter::contains(LogField::Url, "/X?"), false),
            (LogFilter::contains(LogField::Rule, ""), false),
            (LogFilter::at_least(LogField::HeldMs, 1250.0), true),
            (LogFilter::at_least(LogField::HeldMs, 1250.1), false),
            (LogFilter::equals(LogField::Host, "*.a.test"), true),
            (LogFilter::equals(LogField::Rule, ""), true),
        ] {
            let words = format!("{filter:?}");
            let two = format!("{}\n{{\"no\":\"decision\"}}\n", LINE.replace('\n', " "));
            let filtered = LogFilterSet::new(vec![vec![filter]])
                .filter_lines(two.clone().into())
                .await;
            assert_eq!(
                filtered.len(),
                if holds {
                    two.find('\n').unwrap() + 1
                } else {
                    0
                },
                "{words}"
            );
        }
    }

    #[test]
    fn mistakes_are_reported() {
        for (text, part) in [
            ("", "write K=V"),
            ("verdict", "write K=V"),
            ("=x", "write K=V"),
            ("verdikt=x", "did you mean `verdict`?"),
            ("zzz=x", "allowed: status, held, ts, decision"),
            ("status>many", "`many` is not a number"),
            ("url~(", "invalid regular expression"),
        ] {
            let error = LogFilter::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
