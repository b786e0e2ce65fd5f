//! The query parameters of `GET /api/v1/decisions`.

use crate::diagnostics::nearest::nearest;
use crate::metrics::log::entry::LogField;
use crate::metrics::log::filter::{LogFilter, LogFilterSet};

use crate::admin::api_request::ApiError;
use crate::admin::query::{parse_query, reject_duplicates, unknown_parameter_message};

/// The most recent lines, which is the size of the ring.
const MAX_RECENT: usize = 10_000;
/// The longest value of a filter, in bytes.
const MAX_VALUE_BYTES: usize = 256;
/// The recent lines if `recent` is not given.
const DEFAULT_RECENT: usize = 100;

/// The parsed query.
#[derive(Debug)]
pub(super) struct DecisionStreamQuery {
    pub(super) recent: usize,
    pub(super) mode: DecisionStreamMode,
    pub(super) filters: LogFilterSet,
}

/// The end of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecisionStreamMode {
    /// After the recent lines.
    RecentOnly,
    /// When the reader disconnects.
    Follow,
}

/// The comparison of a filter.
#[derive(Clone, Copy, Debug)]
enum QueryComparison {
    /// The whole value, in which `*` matches any text.
    Whole,
    Contains,
    AtLeast,
}

const FILTER_KEYS: [(&str, LogField, QueryComparison); 11] = [
    ("crawler", LogField::Crawler, QueryComparison::Whole),
    ("host", LogField::Host, QueryComparison::Whole),
    ("verdict", LogField::Verdict, QueryComparison::Whole),
    ("stage", LogField::Stage, QueryComparison::Whole),
    ("reason", LogField::Reason, QueryComparison::Whole),
    ("rule", LogField::Rule, QueryComparison::Whole),
    ("method", LogField::Method, QueryComparison::Whole),
    ("loss", LogField::Loss, QueryComparison::Whole),
    ("status", LogField::SentStatus, QueryComparison::Whole),
    ("url", LogField::Url, QueryComparison::Contains),
    ("held", LogField::HeldMs, QueryComparison::AtLeast),
];

impl DecisionStreamQuery {
    /// Parses `recent`, `follow` and the filters. A repeated filter matches any of its values. An empty value is ignored,
    /// so that a form can be sent as it is.
    pub(super) fn parse(query: Option<&str>) -> Result<Self, ApiError> {
        let mut recent = DEFAULT_RECENT;
        let mut mode = DecisionStreamMode::Follow;
        let mut groups: [Vec<LogFilter>; FILTER_KEYS.len()] = Default::default();
        for (key, value) in reject_duplicates(parse_query(query)?, &["recent", "follow"])? {
            match (key.as_str(), value.as_str()) {
                ("recent", count) => recent = parse_recent(count)?,
                ("follow", "true") => mode = DecisionStreamMode::Follow,
                ("follow", "false") => mode = DecisionStreamMode::RecentOnly,
                ("follow", _) => return Err(ApiError::Invalid("`follow` is true or false".into())),
                (key, value) => {
                    let known = FILTER_KEYS
                        .iter()
                        .zip(&mut groups)
                        .find(|((name, ..), _)| *name == key);
                    let ((_, field, comparison), group) =
                        known.ok_or_else(|| unknown_parameter(key))?;
                    group.extend(parse_filter(*field, *comparison, value)?);
                }
            }
        }
        let groups = groups
            .into_iter()
            .filter(|group| !group.is_empty())
            .collect();
        Ok(Self {
            recent,
            mode,
            filters: LogFilterSet::new(groups),
        })
    }
}

fn parse_recent(text: &str) -> Result<usize, ApiError> {
    let count = text
        .parse()
        .ok()
        .filter(|count| *count <= MAX_RECENT && !text.starts_with('+'));
    count.ok_or_else(|| ApiError::Invalid(format!("`recent` is a number from 0 to {MAX_RECENT}")))
}

fn parse_filter(
    field: LogField,
    comparison: QueryComparison,
    value: &str,
) -> Result<Option<LogFilter>, ApiError> {
    if value.is_empty() {
        return Ok(None);
    }
    if value.len() > MAX_VALUE_BYTES {
        return Err(ApiError::Invalid(format!(
            "a value has at most {MAX_VALUE_BYTES} bytes"
        )));
    }
    let filter = match comparison {
        QueryComparison::Contains => LogFilter::contains(field, value),
        QueryComparison::AtLeast => {
            let number = value
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite() && *number >= 0.0);
            LogFilter::at_least(
                field,
                number.ok_or_else(|| {
                    ApiError::Invalid("`held` is a number of milliseconds".into())
                })?,
            )
        }
        QueryComparison::Whole => LogFilter::equals(field, value),
    };
    Ok(Some(filter))
}

fn unknown_parameter(key: &str) -> ApiError {
    let names: Vec<&str> = ["recent", "follow"]
        .into_iter()
        .chain(FILTER_KEYS.iter().map(|(name, ..)| *name))
        .collect();
    let mut message = unknown_parameter_message(&names);
    if let Some(near) = nearest(key, names.iter().copied()) {
        message.push_str(&format!("; did you mean `{near}`?"));
    }
    ApiError::Invalid(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_parsed() {
        for (query, recent, mode) in [
            ("", 100, DecisionStreamMode::Follow),
            ("recent=0&follow=false", 0, DecisionStreamMode::RecentOnly),
            (
                "recent=10000&follow=true&host=&held=",
                10_000,
                DecisionStreamMode::Follow,
            ),
            (
                "host=*.a.test&host=b.test&held=1.5&url=%2Fx%3F",
                100,
                DecisionStreamMode::Follow,
            ),
        ] {
            let parsed = DecisionStreamQuery::parse(Some(query)).unwrap();
            assert_eq!((parsed.recent, parsed.mode), (recent, mode), "{query}");
        }
    }

    #[test]
    fn errors_name_the_cause() {
        let long = format!("host={}", "*".repeat(MAX_VALUE_BYTES + 1));
        for (query, part) in [
            (long.as_str(), "at most 256 bytes"),
            ("recent=10001", "0 to 10000"),
            ("recent=-1", "0 to 10000"),
            ("recent=+1", "0 to 10000"),
            ("recent=", "0 to 10000"),
            ("follow=yes", "true or false"),
            ("recent=1&host=a&recent=1", "given more than once"),
            ("follow=true&follow=false", "given more than once"),
            ("held=long", "milliseconds"),
            ("held=nan", "milliseconds"),
            ("held=-1", "milliseconds"),
            ("verdikt=reject", "did you mean `verdict`?"),
            ("zzz", "allowed: recent, follow, crawler"),
            ("HOST=a", "no such parameter"),
            ("url=%", "hex digits"),
        ] {
            match DecisionStreamQuery::parse(Some(query)) {
                Err(ApiError::Invalid(error)) if error.contains(part) => {}
                other => panic!("{query}: {other:?}"),
            }
        }
    }
}
