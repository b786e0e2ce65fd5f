//! What a decision must be to be shown: `crawlgate decisions --filter`, and the parameters of the live stream.

use std::fmt;

use bytes::Bytes;
use regex::Regex;

use crate::vocab::nearest::nearest;

use super::entry::{Cell, Entry, Field, Wanted};
use super::tap::lines;

/// One condition on one field.
#[derive(Clone, Debug)]
pub struct Filter {
    field: Field,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Is(Pattern),
    IsNot(Pattern),
    Like(Regex),
    Unlike(Regex),
    Contains(Box<str>),
    Number(Comparison, f64),
}

#[derive(Clone, Copy, Debug)]
enum Comparison {
    Less,
    AtMost,
    More,
    AtLeast,
}

/// What a value is compared with.
#[derive(Clone, Debug)]
enum Pattern {
    /// There is none.
    Nothing,
    Text(Box<str>, Option<f64>),
    Glob(Glob),
}

/// Text with `*` in it, each for any text.
#[derive(Clone, Debug)]
struct Glob {
    /// What stands before the first of them.
    first: Box<str>,
    /// What stands between two; none of it is empty.
    between: Box<[Box<str>]>,
    /// What stands behind the last.
    last: Box<str>,
}

/// The operators; of two that begin alike the longer one stands first.
const OPERATORS: [&str; 8] = ["!=", "!~", ">=", "<=", "=", "~", ">", "<"];
/// Lines that are looked at before others have their turn.
const AT_ONCE: usize = 32;
/// Short names for what is asked for most.
const SHORT: [(&str, Field); 2] = [("status", Field::SentStatus), ("held", Field::HeldMs)];

/// Why a text is no filter, in words for whoever wrote it.
#[derive(Debug)]
pub struct NoFilter(String);

impl fmt::Display for NoFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoFilter {}

impl Filter {
    /// Reads `K=V`, `K!=V` (`*` for anything, no V for nothing), `K~REGEX`, `K!~REGEX`, `K>N`, `K>=N`, `K<N`, `K<=N`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, NoFilter> {
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
            return Err(NoFilter(format!("write {forms}")));
        };
        let value = rest.strip_prefix(operator).unwrap_or_default();
        let number = |comparison| {
            let number = value
                .parse()
                .map_err(|_| NoFilter(format!("`{value}` is no number")))?;
            Ok(Test::Number(comparison, number))
        };
        let test = match operator {
            "=" => Test::Is(Pattern::read(value)),
            "!=" => Test::IsNot(Pattern::read(value)),
            "~" => Test::Like(regex(value)?),
            "!~" => Test::Unlike(regex(value)?),
            ">" => number(Comparison::More)?,
            ">=" => number(Comparison::AtLeast)?,
            "<" => number(Comparison::Less)?,
            _ => number(Comparison::AtMost)?,
        };
        Ok(Self {
            field: field(key)?,
            test,
        })
    }

    /// The field is this text (`*` for anything), or nothing if the text is empty.
    pub(crate) fn is(field: Field, text: &str) -> Self {
        Self {
            field,
            test: Test::Is(Pattern::read(text)),
        }
    }

    /// The field has this text somewhere.
    pub(crate) fn contains(field: Field, text: &str) -> Self {
        Self {
            field,
            test: Test::Contains(text.into()),
        }
    }

    /// The field is a number, and not below this.
    pub(crate) fn at_least(field: Field, number: f64) -> Self {
        Self {
            field,
            test: Test::Number(Comparison::AtLeast, number),
        }
    }

    /// The field that is asked.
    pub(crate) fn field(&self) -> Field {
        self.field
    }

    /// Whether the decision is so.
    pub(crate) fn holds(&self, entry: &Entry<'_>) -> bool {
        let cell = entry.cell(self.field);
        match &self.test {
            Test::Is(pattern) => pattern.matches(cell),
            Test::IsNot(pattern) => !pattern.matches(cell),
            Test::Like(regex) => any(cell, |text| regex.is_match(text)),
            Test::Unlike(regex) => !any(cell, |text| regex.is_match(text)),
            Test::Contains(part) => any(cell, |text| text.contains(&**part)),
            Test::Number(comparison, limit) => {
                cell.number().is_some_and(|number| match comparison {
                    Comparison::Less => number < *limit,
                    Comparison::AtMost => number <= *limit,
                    Comparison::More => number > *limit,
                    Comparison::AtLeast => number >= *limit,
                })
            }
        }
    }
}

/// Several conditions at once: of each group one must hold.
#[derive(Clone, Debug)]
pub struct Sieve {
    groups: Vec<Vec<Filter>>,
    wanted: Wanted,
}

impl Sieve {
    /// Lets everything through.
    pub fn open() -> Self {
        Self::of(Vec::new())
    }

    /// Lets through what passes one filter of each group.
    pub fn of(groups: Vec<Vec<Filter>>) -> Self {
        let wanted = Wanted::of(groups.iter().flatten().map(Filter::field));
        Self { groups, wanted }
    }

    /// Whether a line passes; it is read once. What is no decision does not, unless everything does.
    pub(super) fn passes(&self, line: &[u8]) -> bool {
        let holds = |entry: &Entry<'_>| {
            self.groups
                .iter()
                .all(|any| any.iter().any(|filter| filter.holds(entry)))
        };
        self.groups.is_empty() || Entry::read(line, self.wanted).is_ok_and(|entry| holds(&entry))
    }

    /// Those of these lines that pass. Others have their turn now and then: a task that looks at much holds up none.
    pub async fn sift(&self, bytes: Bytes) -> Bytes {
        if self.groups.is_empty() {
            return bytes;
        }
        let mut passing = Vec::new();
        for (number, line) in (1..).zip(lines(&bytes)) {
            if self.passes(line) {
                passing.extend_from_slice(line);
            }
            if number % AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        }
        passing.into()
    }
}

impl Pattern {
    fn read(value: &str) -> Self {
        match value.split_once('*') {
            None if value.is_empty() => Self::Nothing,
            None => Self::Text(value.into(), value.parse().ok()),
            Some((first, rest)) => Self::Glob(Glob::of(first, rest)),
        }
    }

    fn matches(&self, cell: &Cell<'_>) -> bool {
        match (self, cell) {
            (Self::Nothing, cell) => *cell == Cell::Null,
            (Self::Text(_, Some(wanted)), Cell::Number(number)) => wanted == number,
            (Self::Text(text, _), cell) => any(cell, |found| *found == **text),
            (Self::Glob(glob), cell) => any(cell, |found| glob.matches(found)),
        }
    }
}

impl Glob {
    /// What stands before the first `*`, and behind it.
    fn of(first: &str, rest: &str) -> Self {
        let (between, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let between = between
            .split('*')
            .filter(|part| !part.is_empty())
            .map(Into::into)
            .collect();
        Self {
            first: first.into(),
            between,
            last: last.into(),
        }
    }

    /// Each part is taken where it first occurs behind the one before: nothing is tried twice, whatever the text is.
    fn matches(&self, text: &str) -> bool {
        let inner = text
            .strip_prefix(&*self.first)
            .and_then(|rest| rest.strip_suffix(&*self.last));
        let behind = self.between.iter().try_fold(inner, |rest, part| {
            let (_, behind) = rest?.split_once(&**part)?;
            Some(Some(behind))
        });
        behind.flatten().is_some()
    }
}

/// Whether the value, or one of several, is so.
fn any(cell: &Cell<'_>, is_so: impl Fn(&str) -> bool) -> bool {
    match cell {
        Cell::Null => false,
        Cell::Text(text) => is_so(text),
        Cell::Number(number) => is_so(&number.to_string()),
        Cell::Many(names) => names.iter().any(|name| is_so(name)),
    }
}

fn field(key: &str) -> Result<Field, NoFilter> {
    let short = SHORT
        .into_iter()
        .find(|(name, _)| *name == key)
        .map(|(_, field)| field);
    short.or_else(|| Field::named(key)).ok_or_else(|| {
        let names = Field::ALL.map(|(_, name)| name);
        let near =
            nearest(key, names).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        NoFilter(format!(
            "there is no field `{key}`; allowed: status, held, {}{near}",
            names.join(", ")
        ))
    })
}

fn regex(text: &str) -> Result<Regex, NoFilter> {
    Regex::new(text).map_err(|error| NoFilter(format!("no regular expression: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"ts":"t","verdict":"reject","host":"www.a.test","url":"http://www.a.test/x?q=1","rule":null,
        "sent_status":451,"held_ms":1250.000,"shadow":[{"rule":"r1"},{"rule":"r2"}]}"#;

    #[test]
    fn filters_hold_or_do_not() {
        let entry = Entry::read(
            LINE.as_bytes(),
            Wanted::of(Field::ALL.map(|(field, _)| field)),
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
            assert_eq!(Filter::read(text).unwrap().holds(&entry), holds, "{text}");
        }
    }

    #[test]
    fn many_stars_cost_no_more_than_few() {
        let (stars, text) = ("*a".repeat(4_000), "a".repeat(3_999));
        for (pattern, text, matches) in [
            (format!("{stars}*"), text.clone(), false),
            (format!("{stars}*"), format!("{text}b"), false),
            (format!("{stars}*"), format!("{text}ba"), true),
            (format!("{stars}b"), format!("{text}ab"), true),
            ("*".repeat(8_000), text, true),
        ] {
            let Pattern::Glob(glob) = Pattern::read(&pattern) else {
                panic!("{pattern}")
            };
            let found = (0..200).filter(|_| glob.matches(&text)).count();
            assert_eq!(found, if matches { 200 } else { 0 }, "{pattern}");
        }
        assert!(matches!(Pattern::read("**"), Pattern::Glob(glob) if glob.between.is_empty()));
    }

    #[tokio::test]
    async fn of_each_group_one_filter_must_hold() {
        let read = |text: &&str| Filter::read(text).unwrap();
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
            let sieve = Sieve::of(
                groups
                    .iter()
                    .map(|any| any.iter().map(read).collect())
                    .collect(),
            );
            assert_eq!(sieve.passes(LINE.as_bytes()), passes, "{groups:?}");
        }
        for (filter, holds) in [
            (Filter::contains(Field::Url, "/x?"), true),
            (Filter::contains(Field::Url, "/X?"), false),
            (Filter::contains(Field::Rule, ""), false),
            (Filter::at_least(Field::HeldMs, 1250.0), true),
            (Filter::at_least(Field::HeldMs, 1250.1), false),
            (Filter::is(Field::Host, "*.a.test"), true),
            (Filter::is(Field::Rule, ""), true),
        ] {
            let words = format!("{filter:?}");
            let two = format!("{}\n{{\"no\":\"decision\"}}\n", LINE.replace('\n', " "));
            let sifted = Sieve::of(vec![vec![filter]]).sift(two.clone().into()).await;
            assert_eq!(
                sifted.len(),
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
    fn mistakes_are_told() {
        for (text, part) in [
            ("", "write K=V"),
            ("verdict", "write K=V"),
            ("=x", "write K=V"),
            ("verdikt=x", "did you mean `verdict`?"),
            ("zzz=x", "allowed: status, held, ts, decision"),
            ("status>many", "`many` is no number"),
            ("url~(", "no regular expression"),
        ] {
            let error = Filter::read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
