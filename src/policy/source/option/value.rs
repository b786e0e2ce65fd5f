//! One value of an option, read by its row in the schema.

use crate::policy::options::Value;
use crate::policy::options::schema::{Shape, Spec};
use crate::robots::usage::purpose;
use crate::vocab::disposition::Disposition;
use crate::vocab::intent::Intent;
use crate::vocab::problem::Problem;
use crate::vocab::problems::Problems;
use crate::vocab::units;
use crate::vocab::week::{DAYS, Hours, Offset};
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader, wrong_type};

/// The value, or `None` where it was reported.
pub(super) fn read(node: &Node, spec: &Spec, problems: &mut Problems) -> Option<Value> {
    if node.is_null() {
        return default(node, spec, problems);
    }
    if node.spelling() == Some("none") && takes_none(spec.shape) {
        return Some(Value::None);
    }
    match spec.shape {
        Shape::Disposition => {
            let words = Disposition::ALL.map(Disposition::as_str);
            read::word(node, &words, Disposition::from_word, problems).map(Value::Disposition)
        }
        Shape::Intent => intent(node, problems).map(Value::Intent),
        Shape::RejectStatus => reject_status(node, problems),
        Shape::Word(words) | Shape::WordOrNone(words) => word(node, words, problems),
        Shape::Priority => priority(node, problems),
        Shape::Bool => read::boolean(node, problems).map(Value::Bool),
        Shape::AtLeast(least) => {
            read::integer(node, least..=i64::MAX, problems).map(Value::Integer)
        }
        Shape::CountOrNone => read::integer(node, 0..=i64::MAX, problems).map(Value::Integer),
        Shape::DecimalOrNone(from, to) => {
            read::decimal(node, from..=to, problems).map(Value::Decimal)
        }
        Shape::Duration | Shape::DurationOrNone => {
            read::duration(node, problems).map(Value::Duration)
        }
        Shape::Size | Shape::SizeOrNone => read::size(node, problems).map(Value::Size),
        Shape::RateOrNone => rate(node, problems),
        Shape::FactorsOrNone => factors(node, problems),
        Shape::TextOrNone => read::spelling(node, problems).map(text),
        Shape::Names => names(node, problems),
        Shape::WordsOrNone(words) => some_words(node, words, problems),
        Shape::Uses => uses(node, problems),
        Shape::StripParams => strip_params(node, problems),
        Shape::Replace => list(node, "`replace`", problems, replacement),
        Shape::Schedule => list(node, "`schedule`", problems, time_window),
    }
}

fn default(node: &Node, spec: &Spec, problems: &mut Problems) -> Option<Value> {
    if let Shape::Disposition = spec.shape {
        let words = Disposition::ALL.map(Disposition::as_str);
        problems.push(wrong_type(node, "`disposition` has no default").allowed(words));
        return None;
    }
    Some(spec.default.value())
}

fn takes_none(shape: Shape) -> bool {
    match shape {
        Shape::RejectStatus
        | Shape::WordOrNone(_)
        | Shape::CountOrNone
        | Shape::DecimalOrNone(..)
        | Shape::DurationOrNone
        | Shape::SizeOrNone
        | Shape::RateOrNone
        | Shape::FactorsOrNone
        | Shape::TextOrNone
        | Shape::WordsOrNone(_) => true,
        Shape::Disposition
        | Shape::Intent
        | Shape::Word(_)
        | Shape::Priority
        | Shape::Bool
        | Shape::AtLeast(_)
        | Shape::Duration
        | Shape::Size
        | Shape::Names
        | Shape::Uses
        | Shape::StripParams
        | Shape::Replace
        | Shape::Schedule => false,
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

fn intent(node: &Node, problems: &mut Problems) -> Option<Intent> {
    read::word(
        node,
        &Intent::ALL.map(Intent::as_str),
        Intent::from_word,
        problems,
    )
}

/// A wire status: never 407, which would make crawlers look for credentials, no 1xx, and of 3xx only 304.
fn reject_status(node: &Node, problems: &mut Problems) -> Option<Value> {
    let status = read::integer(node, 200..=599, problems)?;
    if status == 407 || (300..400).contains(&status) && status != 304 {
        let problem =
            Problem::error(&node.place, "not a status for a rejection").found(status.to_string());
        problems.push(problem.help("allowed: 200 to 599, of 3xx only 304, and not 407"));
        return None;
    }
    Some(Value::Integer(status))
}

/// A word, `true` and `false` as written: `verify: on` is a word here whatever it is elsewhere.
fn word(node: &Node, words: &[&'static str], problems: &mut Problems) -> Option<Value> {
    let find = |given: &str| words.iter().find(|word| **word == given).copied();
    read::word(node, words, find, problems).map(Value::Word)
}

const PRIORITIES: [(&str, &str); 5] = [
    ("highest", "-2"),
    ("higher", "-1"),
    ("normal", "0"),
    ("lower", "1"),
    ("lowest", "2"),
];

fn priority(node: &Node, problems: &mut Problems) -> Option<Value> {
    let find = |given: &str| {
        PRIORITIES
            .iter()
            .find(|(word, number)| given == *word || given == *number)
    };
    read::word(node, &PRIORITIES.map(|(word, _)| word), find, problems)
        .map(|(word, _)| Value::Word(word))
}

/// `5/s`, `30/m`.
fn rate(node: &Node, problems: &mut Problems) -> Option<Value> {
    let parsed = node.spelling().and_then(|text| {
        let (count, unit) = text.split_once('/')?;
        let per = ["s", "m", "h", "d"]
            .contains(&unit)
            .then(|| units::duration(&format!("1{unit}")))??;
        let count: u32 = count.parse().ok().filter(|count| *count > 0)?;
        Some(Value::Rate { count, per })
    });
    if parsed.is_none() {
        problems.push(
            wrong_type(node, "a rate is needed here").help("written like 5/s, 30/m, 100/h, none"),
        );
    }
    parsed
}

/// `1.0..1.5`: two factors, neither below 1, since a delay is a floor.
fn factors(node: &Node, problems: &mut Problems) -> Option<Value> {
    let parsed = node.spelling().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        let (from, to): (f64, f64) = (from.parse().ok()?, to.parse().ok()?);
        (1.0 <= from && from <= to && to <= 100.0).then_some(Value::Range(from, to))
    });
    if parsed.is_none() {
        let problem = wrong_type(node, "two factors from 1.0 to 100.0 are needed here");
        problems.push(problem.help("written like 1.0..1.5, or none"));
    }
    parsed
}

fn names(node: &Node, problems: &mut Problems) -> Option<Value> {
    let items = read::one_or_many(node);
    let all: Vec<Value> = items
        .iter()
        .filter_map(|item| read::spelling(item, problems).map(text))
        .collect();
    (all.len() == items.len()).then_some(Value::List(all.into()))
}

/// `builtin`, or `[long_url, calendar]`.
fn some_words(node: &Node, words: &[&'static str], problems: &mut Problems) -> Option<Value> {
    let items = read::one_or_many(node);
    let all: Vec<Value> = items
        .iter()
        .filter_map(|item| word(item, words, problems))
        .collect();
    (all.len() == items.len()).then_some(Value::List(all.into()))
}

/// `[train-ai, search]`, each as facts name it.
fn uses(node: &Node, problems: &mut Problems) -> Option<Value> {
    let items = read::one_or_many(node);
    let mut one = |item: &Node| {
        let name = read::spelling(item, problems)?;
        let purpose = purpose(name);
        if purpose.is_none() {
            problems.push(
                wrong_type(item, "the name of a use is needed here")
                    .help("written like train-ai, search"),
            );
        }
        purpose.map(Value::Text)
    };
    let all: Vec<Value> = items.iter().filter_map(&mut one).collect();
    (all.len() == items.len()).then_some(Value::List(all.into()))
}

fn list(
    node: &Node,
    what: &str,
    problems: &mut Problems,
    item: impl Fn(&Node, &mut Problems) -> Option<Value>,
) -> Option<Value> {
    let before = problems.len();
    let all: Vec<Value> = read::items(node, what, problems)
        .iter()
        .filter_map(|node| item(node, problems))
        .collect();
    (problems.len() == before).then_some(Value::List(all.into()))
}

/// `[sid, utm_source]`, or `{names: [sid], rewrite: true}`.
fn strip_params(node: &Node, problems: &mut Problems) -> Option<Value> {
    if node.get("names").is_none() && node.get("rewrite").is_none() {
        return names(node, problems);
    }
    let mut map = MapReader::open(node, "`strip_params`", problems)?;
    let names = map
        .require("names", problems)
        .and_then(|node| names(node, problems));
    let rewrite = map
        .take("rewrite")
        .map(|node| read::boolean(node, problems).map(Value::Bool));
    map.finish(problems);
    Some(entries([("names", Some(names)), ("rewrite", rewrite)]))
}

/// `{regex, with, rewrite}`.
fn replacement(node: &Node, problems: &mut Problems) -> Option<Value> {
    let mut map = MapReader::open(node, "an item of `replace`", problems)?;
    let regex = map
        .require("regex", problems)
        .map(|node| read::spelling(node, problems).map(text));
    let with = map
        .require("with", problems)
        .map(|node| read::spelling(node, problems).map(text));
    let rewrite = map
        .take("rewrite")
        .map(|node| read::boolean(node, problems).map(Value::Bool));
    map.finish(problems);
    Some(entries([
        ("regex", regex),
        ("with", with),
        ("rewrite", rewrite),
    ]))
}

/// `{days: [sat, sun], hours: "22:00-06:00", tz: UTC, delay: 500ms}`.
fn time_window(node: &Node, problems: &mut Problems) -> Option<Value> {
    let mut map = MapReader::open(node, "an item of `schedule`", problems)?;
    let days = map.take("days").map(|node| days(node, problems));
    let hours = map.take("hours").map(|node| hours(node, problems));
    let tz = map.take("tz").map(|node| offset(node, problems));
    let delay = map
        .take("delay")
        .map(|node| read::duration(node, problems).map(Value::Duration));
    let rate = map.take("rate").map(|node| match node.spelling() {
        Some("none") => Some(Value::None),
        Some(_) | None => rate(node, problems),
    });
    let count = |node, problems: &mut Problems| {
        read::integer(node, 1..=i64::MAX, problems).map(Value::Integer)
    };
    let concurrency = map.take("concurrency").map(|node| count(node, problems));
    map.finish(problems);
    let all = [
        ("days", days),
        ("hours", hours),
        ("tz", tz),
        ("delay", delay),
        ("rate", rate),
    ];
    Some(entries(
        all.into_iter().chain([("concurrency", concurrency)]),
    ))
}

/// `[sat, sun]`.
fn days(node: &Node, problems: &mut Problems) -> Option<Value> {
    let items = read::one_or_many(node);
    if items.is_empty() {
        problems.push(wrong_type(node, "at least one day is needed here").allowed(DAYS));
        return None;
    }
    Some(Value::List(
        items
            .iter()
            .filter_map(|day| word(day, &DAYS, problems))
            .collect(),
    ))
}

/// `22:00-06:00`.
fn hours(node: &Node, problems: &mut Problems) -> Option<Value> {
    let given = node.spelling().filter(|text| Hours::parse(text).is_some());
    if given.is_none() {
        let help = "written like \"22:00-06:00\", or \"00:00-24:00\" for a whole day";
        problems.push(wrong_type(node, "hours are needed here").help(help));
    }
    given.map(text)
}

/// `UTC`, `+02:00`.
fn offset(node: &Node, problems: &mut Problems) -> Option<Value> {
    let given = node.spelling().filter(|text| Offset::parse(text).is_some());
    if given.is_none() {
        let help = "written like UTC, +02:00, -05:30; this version knows no names of time zones";
        problems.push(wrong_type(node, "a time zone is needed here").help(help));
    }
    given.map(text)
}

/// The entries that are there and were read.
fn entries<'k>(all: impl IntoIterator<Item = (&'k str, Option<Option<Value>>)>) -> Value {
    let read = all
        .into_iter()
        .filter_map(|(key, value)| Some((key.into(), value??)));
    Value::Map(read.collect())
}
