//! Rules as they are written.

use crate::policy::options::Value;
use crate::policy::rule::{PolicyStage, Sense};
use crate::vocab::intent::Intent;
use crate::vocab::problem::{Place, Problem};
use crate::vocab::problems::Problems;
use crate::vocab::rule_id::RuleId;
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader, wrong_type};

use super::condition::read_condition;
use super::option::{one_value, read_options};
use super::tree::{
    At, SourceBody, SourceCondition, SourceFilter, SourceGroup, SourceGuard, SourceRule, Then,
};

/// The deepest nesting of rules.
const MAX_DEPTH: usize = 24;

/// The keys that make a rule what it is; at most one of them stands in a rule.
const KINDS: [&str; 4] = ["when", "unless", "forbid", "require"];
const OF_GROUPS: [&str; 5] = ["then", "set", "stop", "match", "rules"];
const OF_FILTERS: [&str; 4] = ["log", "reject", "reject_status", "as"];

/// Reads a list of rules. `prefix` is the position of what contains them, `first` the number of the first.
pub(super) fn read_rules(
    node: &Node,
    prefix: &str,
    first: usize,
    problems: &mut Problems,
) -> Vec<SourceRule> {
    let items = read::items(node, "`rules`", problems);
    if prefix.split('.').count() > MAX_DEPTH {
        problems.push(Problem::error(
            &node.place,
            format!("rules nested more than {MAX_DEPTH} deep"),
        ));
        return Vec::new();
    }
    let numbered = items.iter().zip(first..);
    numbered
        .filter_map(|(item, number)| rule(item, &format!("{prefix}.{number}"), problems))
        .collect()
}

fn rule(node: &Node, position: &str, problems: &mut Problems) -> Option<SourceRule> {
    let position = RuleId::new(position)?;
    let before = problems.enter(Some(position.clone()));
    let rule = open_rule(node, position, problems);
    problems.enter(before);
    rule
}

fn open_rule(node: &Node, position: RuleId, problems: &mut Problems) -> Option<SourceRule> {
    let mut map = MapReader::open(node, "a rule", problems)?;
    let id = map.take("id").and_then(|node| rule_id(node, problems));
    if let Some(id) = &id {
        problems.enter(Some(id.value.clone()));
    }
    let about = map
        .take("about")
        .and_then(|node| read::spelling(node, problems))
        .map(Into::into);
    let enabled = map
        .take("enabled")
        .and_then(|node| read::boolean(node, problems))
        .unwrap_or(true);
    let shadow = map.take("mode").and_then(|node| shadow(node, problems));
    let stage = map.take("stage").and_then(|node| stage(node, problems));
    let rule = SourceRule {
        place: node.place.clone(),
        id,
        about,
        enabled,
        shadow,
        stage,
        body: body(&mut map, &position, problems),
        position,
    };
    // What was reported must not be reported again as unknown.
    for key in KINDS.into_iter().chain(OF_GROUPS).chain(OF_FILTERS) {
        map.take(key);
    }
    map.finish(problems);
    Some(rule)
}

fn rule_id(node: &Node, problems: &mut Problems) -> Option<At<RuleId>> {
    let text = read::spelling(node, problems)?;
    let id = RuleId::new(text);
    if id.is_none() {
        let problem = Problem::error(&node.place, "not an id").found(text);
        problems.push(problem.help("letters, digits, `_`, `.` and `-`, at most 128 of them"));
    }
    id.map(|value| At {
        place: node.place.clone(),
        value,
    })
}

fn shadow(node: &Node, problems: &mut Problems) -> Option<Place> {
    let of_word = |word: &str| match word {
        "enforce" => Some(false),
        "shadow" => Some(true),
        _ => None,
    };
    let shadow = read::word(node, &["enforce", "shadow"], of_word, problems)?;
    shadow.then(|| node.place.clone())
}

fn stage(node: &Node, problems: &mut Problems) -> Option<At<PolicyStage>> {
    let words = PolicyStage::ALL.map(PolicyStage::as_str);
    let value = read::word(node, &words, PolicyStage::from_word, problems)?;
    Some(At {
        place: node.place.clone(),
        value,
    })
}

fn body(map: &mut MapReader<'_>, position: &RuleId, problems: &mut Problems) -> SourceBody {
    let kinds: Vec<_> = KINDS
        .into_iter()
        .filter_map(|kind| Some((kind, map.take_entry(kind)?)))
        .collect();
    if let [(first, _), (second, entry), ..] = kinds.as_slice() {
        let message = format!(
            "a rule has one of `when`, `unless`, `forbid`, `require`; `{first}` is there too"
        );
        let both = Problem::error(&entry.key.place, message).found(*second);
        problems.push(both.help("nest one rule in the other, or join the conditions with `all`"));
    }
    let guard = kinds.into_iter().next().map(|(kind, entry)| {
        let condition = read_condition(&entry.value, problems);
        // What could not be read was reported; `always` stands in its place so that the rest is checked as well.
        (kind, condition.unwrap_or(SourceCondition::Always))
    });
    match guard {
        Some(("forbid", condition)) => filter(map, Sense::Forbid, condition, problems),
        Some(("require", condition)) => filter(map, Sense::Require, condition, problems),
        Some(("unless", condition)) => {
            group(map, SourceGuard::Unless(condition), position, problems)
        }
        Some((_, condition)) => group(map, SourceGuard::When(condition), position, problems),
        None => group(map, SourceGuard::Always, position, problems),
    }
}

fn filter(
    map: &mut MapReader<'_>,
    sense: Sense,
    condition: SourceCondition,
    problems: &mut Problems,
) -> SourceBody {
    misplaced(
        map,
        &OF_GROUPS,
        "a filter (`forbid`, `require`)",
        "a group (`when`, `unless`)",
        problems,
    );
    let soft_error = map.take("as").and_then(|node| soft_error(node, problems));
    let log = map
        .take("log")
        .and_then(|node| read::boolean(node, problems))
        .unwrap_or(false);
    let value = |map: &mut MapReader<'_>, key, problems: &mut Problems| -> Option<Value> {
        map.take(key)
            .and_then(|node| one_value(node, key, problems))
    };
    let reject = value(map, "reject", problems).and_then(intent);
    let reject_status = value(map, "reject_status", problems).and_then(status);
    if let Some(soft) = soft_error
        .as_ref()
        .filter(|_| reject.is_some() || reject_status.is_some())
    {
        let message = "`as` says how the page is answered, so `reject` and `reject_status` do not";
        problems.push(Problem::error(&soft.place, message).help("leave one of them out"));
    }
    SourceBody::Filter(SourceFilter {
        sense,
        condition,
        log,
        reject,
        reject_status,
        soft_error,
    })
}

/// The status of an error: a page is no challenge for credentials.
fn soft_error(node: &Node, problems: &mut Problems) -> Option<At<u16>> {
    let status = read::integer(node, 400..=599, problems)?;
    if status == 407 {
        let problem = Problem::error(&node.place, "not a status for a page").found("407");
        problems.push(problem.help("allowed: 400 to 599, and not 407"));
        return None;
    }
    u16::try_from(status).ok().map(|value| At {
        place: node.place.clone(),
        value,
    })
}

fn intent(value: Value) -> Option<Intent> {
    if let Value::Intent(intent) = value {
        Some(intent)
    } else {
        None
    }
}

fn status(value: Value) -> Option<u16> {
    if let Value::Integer(status) = value {
        u16::try_from(status).ok()
    } else {
        None
    }
}

fn group(
    map: &mut MapReader<'_>,
    guard: SourceGuard,
    position: &RuleId,
    problems: &mut Problems,
) -> SourceBody {
    misplaced(
        map,
        &OF_FILTERS,
        "a group (`when`, `unless`)",
        "a filter (`forbid`, `require`)",
        problems,
    );
    let then = map.take("then").and_then(|node| then(node, problems));
    let set = map
        .take("set")
        .map(|node| read_options(node, problems))
        .unwrap_or_default();
    let stop = map
        .take("stop")
        .and_then(|node| read::boolean(node, problems))
        .unwrap_or(false);
    let first = map.take("match").and_then(|node| first(node, problems));
    let nested = map.take("rules");
    let rules = nested
        .map(|node| read_rules(node, position.as_str(), 1, problems))
        .unwrap_or_default();
    SourceBody::Group(SourceGroup {
        guard,
        then,
        set,
        stop,
        first,
        rules,
    })
}

/// Keys that belong to the other kind of rule.
fn misplaced(
    map: &mut MapReader<'_>,
    keys: &[&'static str],
    here: &str,
    there: &str,
    problems: &mut Problems,
) {
    for key in keys {
        let Some(entry) = map.take_entry(key) else {
            continue;
        };
        let problem = Problem::error(&entry.key.place, format!("not a key of {here}")).found(*key);
        problems.push(match *key {
            "reject" | "reject_status" => problem.help(format!("write `set: {{ {key}: … }}`")),
            _ => problem.help(format!("it belongs to {there}")),
        });
    }
}

fn then(node: &Node, problems: &mut Problems) -> Option<At<Then>> {
    let of_word = |word: &str| {
        Then::WORDS
            .iter()
            .find(|(w, _)| *w == word)
            .map(|(_, then)| *then)
    };
    let value = read::word(node, &Then::WORDS.map(|(word, _)| word), of_word, problems)?;
    Some(At {
        place: node.place.clone(),
        value,
    })
}

fn first(node: &Node, problems: &mut Problems) -> Option<Place> {
    if matches!(node.spelling(), Some("first")) {
        return Some(node.place.clone());
    }
    if node.spelling() != Some("all") {
        problems.push(
            wrong_type(node, "not one of the words that are allowed here")
                .allowed(["first", "all"]),
        );
    }
    None
}
