//! What a reader of decisions asks for, read from the query.

use crate::metrics::log::entry::Field;
use crate::metrics::log::filter::{Filter, Sieve};
use crate::vocab::nearest::nearest;

use crate::admin::query::{Mistake, parameters, single};

/// The most lines of the past; the ring has no more.
const RECENT_MOST: usize = 10_000;
/// The longest value of a filter, in bytes; of a URL no more than that can be looked for.
const VALUE: usize = 256;
/// The lines of the past that are shown if nothing is said.
const RECENT: usize = 100;

/// Which decisions, and for how long.
#[derive(Debug)]
pub(super) struct Sought {
    pub(super) recent: usize,
    pub(super) until: Until,
    pub(super) sieve: Sieve,
}

/// When the answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// With what there is.
    Now,
    /// With its reader.
    Forever,
}

/// How the values of a key are compared.
#[derive(Clone, Copy, Debug)]
enum Comparison {
    /// The whole value, `*` for anything.
    Whole,
    Part,
    AtLeast,
}

const KEYS: [(&str, Field, Comparison); 10] = [
    ("crawler", Field::Crawler, Comparison::Whole),
    ("host", Field::Host, Comparison::Whole),
    ("verdict", Field::Verdict, Comparison::Whole),
    ("stage", Field::Stage, Comparison::Whole),
    ("reason", Field::Reason, Comparison::Whole),
    ("rule", Field::Rule, Comparison::Whole),
    ("method", Field::Method, Comparison::Whole),
    ("status", Field::SentStatus, Comparison::Whole),
    ("url", Field::Url, Comparison::Part),
    ("held", Field::HeldMs, Comparison::AtLeast),
];

impl Sought {
    /// Reads `recent`, `follow` and the filters. What a key says more than once is "one of these"; an empty value is
    /// no condition, so that a form can be sent as it is.
    pub(super) fn read(query: Option<&str>) -> Result<Self, Mistake> {
        let (mut recent, mut until) = (RECENT, Until::Forever);
        let mut groups: [Vec<Filter>; KEYS.len()] = Default::default();
        for (key, value) in single(parameters(query)?, &["recent", "follow"])? {
            match (key.as_str(), value.as_str()) {
                ("recent", count) => recent = count_of(count)?,
                ("follow", "true") => until = Until::Forever,
                ("follow", "false") => until = Until::Now,
                ("follow", _) => return Err(Mistake("`follow` is true or false".into())),
                (key, value) => {
                    let known = KEYS
                        .iter()
                        .zip(&mut groups)
                        .find(|((name, ..), _)| *name == key);
                    let ((_, field, comparison), group) = known.ok_or_else(|| unknown(key))?;
                    group.extend(filter(*field, *comparison, value)?);
                }
            }
        }
        let groups = groups
            .into_iter()
            .filter(|group| !group.is_empty())
            .collect();
        Ok(Self {
            recent,
            until,
            sieve: Sieve::of(groups),
        })
    }
}

fn count_of(text: &str) -> Result<usize, Mistake> {
    let count = text
        .parse()
        .ok()
        .filter(|count| *count <= RECENT_MOST && !text.starts_with('+'));
    count.ok_or_else(|| Mistake(format!("`recent` is a number from 0 to {RECENT_MOST}")))
}

fn filter(field: Field, comparison: Comparison, value: &str) -> Result<Option<Filter>, Mistake> {
    if value.is_empty() {
        return Ok(None);
    }
    if value.len() > VALUE {
        return Err(Mistake(format!("a value has at most {VALUE} bytes")));
    }
    let filter = match comparison {
        Comparison::Part => Filter::contains(field, value),
        Comparison::AtLeast => {
            let number = value
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite() && *number >= 0.0);
            Filter::at_least(
                field,
                number.ok_or_else(|| Mistake("`held` is a number of milliseconds".into()))?,
            )
        }
        Comparison::Whole => Filter::is(field, value),
    };
    Ok(Some(filter))
}

fn unknown(key: &str) -> Mistake {
    let names: Vec<&str> = ["recent", "follow"]
        .into_iter()
        .chain(KEYS.iter().map(|(name, ..)| *name))
        .collect();
    let near = nearest(key, names.iter().copied());
    let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    Mistake(format!(
        "there is no such parameter; allowed: {}{near}",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_say_what_is_sought() {
        for (query, recent, until) in [
            ("", 100, Until::Forever),
            ("recent=0&follow=false", 0, Until::Now),
            (
                "recent=10000&follow=true&host=&held=",
                10_000,
                Until::Forever,
            ),
            (
                "host=*.a.test&host=b.test&held=1.5&url=%2Fx%3F",
                100,
                Until::Forever,
            ),
        ] {
            let sought = Sought::read(Some(query)).unwrap();
            assert_eq!((sought.recent, sought.until), (recent, until), "{query}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        let long = format!("host={}", "*".repeat(VALUE + 1));
        for (query, part) in [
            (long.as_str(), "at most 256 bytes"),
            ("recent=10001", "0 to 10000"),
            ("recent=-1", "0 to 10000"),
            ("recent=+1", "0 to 10000"),
            ("recent=", "0 to 10000"),
            ("follow=yes", "true or false"),
            ("recent=1&host=a&recent=1", "stands more than once"),
            ("follow=true&follow=false", "stands more than once"),
            ("held=long", "milliseconds"),
            ("held=nan", "milliseconds"),
            ("held=-1", "milliseconds"),
            ("verdikt=reject", "did you mean `verdict`?"),
            ("zzz", "allowed: recent, follow, crawler"),
            ("HOST=a", "no such parameter"),
            ("url=%", "hex digits"),
        ] {
            let mistake = Sought::read(Some(query)).unwrap_err().to_string();
            assert!(mistake.contains(part), "{query}: {mistake}");
        }
    }
}
