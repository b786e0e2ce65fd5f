//! The reader of option values, by the shape in the schema.

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::model::disposition::Disposition;
use crate::model::units;
use crate::model::week::{DAY_NAMES, HourRange, UtcOffset};
use crate::policy::options::OptionValue;
use crate::policy::options::schema::{OptionShape, OptionSpec};
use crate::robots::usage::normalize_purpose;
use crate::yaml::read::{self, MapReader, wrong_type};
use crate::yaml::{Node, YamlValue};

/// Reads a value; `None` if it has errors, which were reported.
pub(super) fn read_value(
    node: &Node,
    spec: &OptionSpec,
    problems: &mut Problems,
) -> Option<OptionValue> {
    if node.is_null() {
        return default_value(node, spec, problems);
    }
    if node.spelling() == Some("none") && spec.shape.allows_none() {
        return Some(OptionValue::None);
    }
    match spec.shape {
        OptionShape::Disposition => read::enum_word(node, problems).map(OptionValue::Disposition),
        OptionShape::Intent => read::enum_word(node, problems).map(OptionValue::Intent),
        OptionShape::RejectStatus => read_reject_status(node, problems),
        OptionShape::Word(words, _) | OptionShape::WordOrNone(words) => {
            read_word(node, words, problems)
        }
        OptionShape::Priority => read_priority(node, problems),
        OptionShape::Bool(_) => read::boolean(node, problems).map(OptionValue::Bool),
        OptionShape::AtLeast { min, .. } => {
            read::integer(node, min..=i64::MAX, problems).map(OptionValue::Integer)
        }
        OptionShape::CountOrNone => {
            read::integer(node, 0..=i64::MAX, problems).map(OptionValue::Integer)
        }
        OptionShape::DecimalOrNone(from, to) => {
            read::decimal(node, from..=to, problems).map(OptionValue::Decimal)
        }
        OptionShape::Duration(_) | OptionShape::DurationOrNone => {
            read::duration(node, problems).map(OptionValue::Duration)
        }
        OptionShape::Size(_) | OptionShape::SizeOrNone => {
            read::size(node, problems).map(OptionValue::Size)
        }
        OptionShape::RateOrNone => read_rate(node, problems),
        OptionShape::FactorsOrNone(..) => read_factors(node, problems),
        OptionShape::TextOrNone => read::spelling(node, problems).map(text_value),
        OptionShape::Names => read_each(node, problems, read_name),
        OptionShape::WordsOrNone(words) => read_each(node, problems, |item, problems| {
            read_word(item, words, problems)
        }),
        OptionShape::Uses => read_each(node, problems, read_use),
        OptionShape::StripParams => read_strip_params(node, problems),
        OptionShape::Replace => read_list(node, "`replace`", problems, read_replacement),
        OptionShape::Schedule => read_list(node, "`schedule`", problems, read_time_window),
    }
}

fn default_value(node: &Node, spec: &OptionSpec, problems: &mut Problems) -> Option<OptionValue> {
    if let OptionShape::Disposition = spec.shape {
        let words = Disposition::ALL.map(Disposition::as_str);
        problems.push(wrong_type(node, "`disposition` has no default").with_allowed_words(words));
        return None;
    }
    Some(spec.shape.default_value())
}

fn text_value(text: &str) -> OptionValue {
    OptionValue::Text(text.into())
}

/// Reads a wire status. Not 407, which would make crawlers look for credentials, no 1xx, and of 3xx
/// only 304.
fn read_reject_status(node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    let status = read::integer(node, 200..=599, problems)?;
    if status == 407 || (300..400).contains(&status) && status != 304 {
        let problem = Problem::error(&node.place, "not a valid status for a rejection")
            .with_found(status.to_string());
        problems.push(problem.with_help("allowed: 200 to 599, except 407 and all of 3xx but 304"));
        return None;
    }
    Some(OptionValue::Integer(status))
}

/// Reads a word. Booleans are taken as spelled, so that `verify: on` is a word.
fn read_word(node: &Node, words: &[&'static str], problems: &mut Problems) -> Option<OptionValue> {
    read::fixed_word(node, words, problems).map(OptionValue::Word)
}

const PRIORITIES: [(&str, &str); 5] = [
    ("highest", "-2"),
    ("higher", "-1"),
    ("normal", "0"),
    ("lower", "1"),
    ("lowest", "2"),
];

/// WebCopy's words for priorities, and the words that they mean here.
const WEBCOPY_PRIORITIES: [(&str, &str); 2] = [("high", "highest"), ("low", "lowest")];

fn read_priority(node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    let webcopy = node.spelling().and_then(|given| {
        WEBCOPY_PRIORITIES
            .iter()
            .find(|(theirs, _)| given.eq_ignore_ascii_case(theirs))
    });
    if let Some((theirs, ours)) = webcopy {
        let words = PRIORITIES.map(|(word, _)| word).join(", ");
        let help = format!("write {ours}, if this is WebCopy's `{theirs}`; allowed: {words}");
        problems.push(wrong_type(node, "not an allowed value").with_help(help));
        return None;
    }
    if matches!(node.value, YamlValue::Int(..))
        && !PRIORITIES
            .iter()
            .any(|(_, number)| node.spelling() == Some(number))
    {
        let words = PRIORITIES.map(|(word, number)| format!("{word} ({number})"));
        let help = format!("allowed: {}", words.join(", "));
        problems.push(wrong_type(node, "not a priority").with_help(help));
        return None;
    }
    let (word, _) = read::word(
        node,
        &PRIORITIES.map(|(word, _)| word),
        |given| {
            PRIORITIES
                .iter()
                .find(|(word, number)| given == *word || given == *number)
        },
        problems,
    )?;
    Some(OptionValue::Word(word))
}

/// `5/s`, `30/m`.
fn read_rate(node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    let parsed = node.spelling().and_then(|text| {
        let (count, unit) = text.split_once('/')?;
        let per = ["s", "m", "h", "d"]
            .contains(&unit)
            .then(|| units::parse_duration(&format!("1{unit}")))??;
        let count: u32 = count.parse().ok().filter(|count| *count > 0)?;
        Some(OptionValue::Rate { count, per })
    });
    if parsed.is_none() {
        let suggestion = node
            .spelling()
            .filter(|count| count.parse::<u32>().is_ok())
            .map(|count| format!("{count}/s"));
        problems.push(Problem {
            suggestion,
            ..wrong_type(node, "expected a rate").with_help("written like 5/s, 30/m, 100/h, none")
        });
    }
    parsed
}

/// Reads two factors (`1.0..1.5`), neither below 1, since a delay is a minimum.
fn read_factors(node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    let parsed = node.spelling().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        let (from, to): (f64, f64) = (from.parse().ok()?, to.parse().ok()?);
        (1.0 <= from && from <= to && to <= 100.0).then_some(OptionValue::Range(from, to))
    });
    if parsed.is_none() {
        let problem = wrong_type(node, "expected two factors from 1.0 to 100.0");
        problems.push(problem.with_help("written like 1.0..1.5, or none"));
    }
    parsed
}

/// Reads each item of a list, or a single item.
fn read_each(
    node: &Node,
    problems: &mut Problems,
    mut read_item: impl FnMut(&Node, &mut Problems) -> Option<OptionValue>,
) -> Option<OptionValue> {
    let items = read::one_or_many(node);
    let all: Vec<OptionValue> = items
        .iter()
        .filter_map(|item| read_item(item, problems))
        .collect();
    (all.len() == items.len()).then_some(OptionValue::List(all.into()))
}

fn read_name(node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    read::spelling(node, problems).map(text_value)
}

/// Reads the name of a use, normalized as in facts.
fn read_use(node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    let purpose = normalize_purpose(read::spelling(node, problems)?);
    if purpose.is_none() {
        problems.push(
            wrong_type(node, "expected the name of a use")
                .with_help("written like train-ai, search"),
        );
    }
    purpose.map(OptionValue::Text)
}

fn read_list(
    node: &Node,
    subject: &str,
    problems: &mut Problems,
    item: impl Fn(&Node, &mut Problems) -> Option<OptionValue>,
) -> Option<OptionValue> {
    let before = problems.len();
    let all: Vec<OptionValue> = read::items(node, subject, problems)
        .iter()
        .filter_map(|node| item(node, problems))
        .collect();
    (problems.len() == before).then_some(OptionValue::List(all.into()))
}

/// Reads `[sid, utm_source]`, or `{names: [sid], rewrite: true}`.
fn read_strip_params(node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    if node.get("names").is_none() && node.get("rewrite").is_none() {
        return read_each(node, problems, read_name);
    }
    let mut map = MapReader::open(node, "`strip_params`", problems)?;
    let names = map
        .require("names", problems)
        .and_then(|node| read_each(node, problems, read_name));
    let rewrite = map
        .take("rewrite")
        .map(|node| read::boolean(node, problems).map(OptionValue::Bool));
    map.finish(problems);
    Some(to_map([("names", Some(names)), ("rewrite", rewrite)]))
}

fn read_replacement(node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    let mut map = MapReader::open(node, "an item of `replace`", problems)?;
    let regex = map
        .require("regex", problems)
        .map(|node| read_name(node, problems));
    let with = map
        .require("with", problems)
        .map(|node| read_name(node, problems));
    let rewrite = map
        .take("rewrite")
        .map(|node| read::boolean(node, problems).map(OptionValue::Bool));
    map.finish(problems);
    Some(to_map([
        ("regex", regex),
        ("with", with),
        ("rewrite", rewrite),
    ]))
}

/// Reads `{days: [sat, sun], hours: "22:00-06:00", tz: UTC, delay: 500ms}`.
fn read_time_window(node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    let mut map = MapReader::open(node, "an item of `schedule`", problems)?;
    let days = map.take("days").map(|node| read_days(node, problems));
    let hours = map.take("hours").map(|node| read_hours(node, problems));
    let tz = map.take("tz").map(|node| read_offset(node, problems));
    let delay = map
        .take("delay")
        .map(|node| read::duration(node, problems).map(OptionValue::Duration));
    let rate = map.take("rate").map(|node| match node.spelling() {
        Some("none") => Some(OptionValue::None),
        Some(_) | None => read_rate(node, problems),
    });
    let concurrency = map
        .take("concurrency")
        .map(|node| read::integer(node, 1..=i64::MAX, problems).map(OptionValue::Integer));
    map.finish(problems);
    Some(to_map([
        ("days", days),
        ("hours", hours),
        ("tz", tz),
        ("delay", delay),
        ("rate", rate),
        ("concurrency", concurrency),
    ]))
}

fn read_days(node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    let items = read::one_or_many(node);
    if items.is_empty() {
        problems.push(wrong_type(node, "expected at least one day").with_allowed_words(DAY_NAMES));
        return None;
    }
    Some(OptionValue::List(
        items
            .iter()
            .filter_map(|day| read_word(day, &DAY_NAMES, problems))
            .collect(),
    ))
}

fn read_hours(node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    let given = node
        .spelling()
        .filter(|text| HourRange::parse(text).is_some());
    if given.is_none() {
        let help = "written like \"22:00-06:00\", or \"00:00-24:00\" for a whole day";
        problems.push(wrong_type(node, "expected hours").with_help(help));
    }
    given.map(text_value)
}

/// Reads `UTC` or `+02:00`.
fn read_offset(node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    let given = node
        .spelling()
        .filter(|text| UtcOffset::parse(text).is_some());
    if given.is_none() {
        let help = "written like UTC, +02:00, -05:30; names of time zones are not supported";
        problems.push(wrong_type(node, "expected a time zone").with_help(help));
    }
    given.map(text_value)
}

/// Builds a map of the entries that are present and were read without errors.
fn to_map<const N: usize>(all: [(&str, Option<Option<OptionValue>>); N]) -> OptionValue {
    OptionValue::Map(
        all.into_iter()
            .filter_map(|(key, value)| Some((key.into(), value??)))
            .collect(),
    )
}
