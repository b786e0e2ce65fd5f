//! The reader of rules.

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::intent::Intent;
use crate::model::rule_id::RuleId;
use crate::policy::options::OptionValue;
use crate::policy::rule::{FilterKind, PolicyStage};
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader, wrong_type};

use super::condition::read_condition;
use super::option::{read_option_value, read_options};
use super::tree::{
    Located, SourceCondition, SourceFilter, SourceGroup, SourceGuard, SourceRule, SourceRuleBody,
    ThenAction,
};

/// The maximum nesting depth of rules.
const MAX_DEPTH: usize = 24;

/// The keys that determine the kind of a rule; a rule has at most one of them.
const KIND_KEYS: [&str; 4] = ["when", "unless", "forbid", "require"];
const GROUP_KEYS: [&str; 5] = ["then", "set", "stop", "match", "rules"];
const FILTER_KEYS: [&str; 4] = ["log", "reject", "reject_status", "as"];

/// Reads a list of rules. `prefix` is the position of the list, `first` the number of the first
/// rule.
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
            format!("rules are nested more than {MAX_DEPTH} levels deep"),
        ));
        return Vec::new();
    }
    let numbered = items.iter().zip(first..);
    numbered
        .filter_map(|(item, number)| read_rule(item, &format!("{prefix}.{number}"), problems))
        .collect()
}

fn read_rule(node: &Node, position: &str, problems: &mut Problems) -> Option<SourceRule> {
    let position = RuleId::new(position)?;
    let before = problems.enter_rule(Some(position.clone()));
    let rule = read_rule_mapping(node, position, problems);
    problems.enter_rule(before);
    rule
}

fn read_rule_mapping(node: &Node, position: RuleId, problems: &mut Problems) -> Option<SourceRule> {
    let mut map = MapReader::open(node, "a rule", problems)?;
    let id = map.take("id").and_then(|node| read_rule_id(node, problems));
    if let Some(id) = &id {
        problems.enter_rule(Some(id.value.clone()));
    }
    let about = map
        .take("about")
        .and_then(|node| read::spelling(node, problems))
        .map(Into::into);
    let enabled = map
        .take("enabled")
        .and_then(|node| read::boolean(node, problems))
        .unwrap_or(true);
    let shadow = map
        .take("mode")
        .and_then(|node| read_shadow(node, problems));
    let stage = map
        .take("stage")
        .and_then(|node| read_stage(node, problems));
    let rule = SourceRule {
        place: node.place.clone(),
        id,
        about,
        enabled,
        shadow,
        stage,
        body: read_body(&mut map, &position, problems),
        position,
    };
    // Mark all keys as known, so that misplaced ones, which were reported, are not reported as
    // unknown as well.
    for key in KIND_KEYS.into_iter().chain(GROUP_KEYS).chain(FILTER_KEYS) {
        map.take(key);
    }
    map.finish(problems);
    Some(rule)
}

fn read_rule_id(node: &Node, problems: &mut Problems) -> Option<Located<RuleId>> {
    let text = read::spelling(node, problems)?;
    let id = RuleId::new(text);
    if id.is_none() {
        let problem = Problem::error(&node.place, "not a valid id").with_found(text);
        problems.push(problem.with_help("use letters, digits, `_`, `.` and `-`, at most 128"));
    }
    id.map(|value| Located {
        place: node.place.clone(),
        value,
    })
}

fn read_shadow(node: &Node, problems: &mut Problems) -> Option<SourceLocation> {
    let of_word = |word: &str| match word {
        "enforce" => Some(false),
        "shadow" => Some(true),
        _ => None,
    };
    let shadow = read::word(node, &["enforce", "shadow"], of_word, problems)?;
    shadow.then(|| node.place.clone())
}

fn read_stage(node: &Node, problems: &mut Problems) -> Option<Located<PolicyStage>> {
    let words = PolicyStage::ALL.map(PolicyStage::as_str);
    let value = read::word(node, &words, PolicyStage::from_word, problems)?;
    Some(Located {
        place: node.place.clone(),
        value,
    })
}

fn read_body(
    map: &mut MapReader<'_>,
    position: &RuleId,
    problems: &mut Problems,
) -> SourceRuleBody {
    let kinds: Vec<_> = KIND_KEYS
        .into_iter()
        .filter_map(|kind| Some((kind, map.take_entry(kind)?)))
        .collect();
    if let [(first, _), (second, entry), ..] = kinds.as_slice() {
        let message = format!(
            "a rule can have only one of `when`, `unless`, `forbid`, `require`; `{first}` is present as well"
        );
        let both = Problem::error(&entry.key.place, message).with_found(*second);
        problems.push(
            both.with_help("nest one rule inside the other, or combine the conditions with `all`"),
        );
    }
    let guard = kinds.into_iter().next().map(|(kind, entry)| {
        let condition = read_condition(&entry.value, problems);
        // A condition that cannot be read was reported; checks of the rest continue with `always`.
        (kind, condition.unwrap_or(SourceCondition::Always))
    });
    match guard {
        Some(("forbid", condition)) => read_filter(map, FilterKind::Forbid, condition, problems),
        Some(("require", condition)) => read_filter(map, FilterKind::Require, condition, problems),
        Some(("unless", condition)) => {
            read_group(map, SourceGuard::Unless(condition), position, problems)
        }
        Some((_, condition)) => read_group(map, SourceGuard::When(condition), position, problems),
        None => read_group(map, SourceGuard::Always, position, problems),
    }
}

fn read_filter(
    map: &mut MapReader<'_>,
    sense: FilterKind,
    condition: SourceCondition,
    problems: &mut Problems,
) -> SourceRuleBody {
    report_misplaced(
        map,
        &GROUP_KEYS,
        "a filter (`forbid`, `require`)",
        "a group (`when`, `unless`)",
        problems,
    );
    let soft_error = map
        .take("as")
        .and_then(|node| read_soft_error(node, problems));
    let log = map
        .take("log")
        .and_then(|node| read::boolean(node, problems))
        .unwrap_or(false);
    let value = |map: &mut MapReader<'_>, key, problems: &mut Problems| -> Option<OptionValue> {
        map.take(key)
            .and_then(|node| read_option_value(node, key, problems))
    };
    let reject = value(map, "reject", problems).and_then(into_intent);
    let reject_status = value(map, "reject_status", problems).and_then(into_status);
    if let Some(soft) = soft_error
        .as_ref()
        .filter(|_| reject.is_some() || reject_status.is_some())
    {
        let message =
            "`as` sets the status of the response, so `reject` and `reject_status` cannot";
        problems.push(Problem::error(&soft.place, message).with_help("remove one of them"));
    }
    SourceRuleBody::Filter(SourceFilter {
        sense,
        condition,
        log,
        reject,
        reject_status,
        soft_error,
    })
}

/// Reads the status of a soft error. 407 is not allowed: a page is no challenge for credentials.
fn read_soft_error(node: &Node, problems: &mut Problems) -> Option<Located<u16>> {
    let status = read::integer(node, 400..=599, problems)?;
    if status == 407 {
        let problem =
            Problem::error(&node.place, "not a valid status for a page").with_found("407");
        problems.push(problem.with_help("allowed: 400 to 599, except 407"));
        return None;
    }
    u16::try_from(status).ok().map(|value| Located {
        place: node.place.clone(),
        value,
    })
}

fn into_intent(value: OptionValue) -> Option<Intent> {
    if let OptionValue::Intent(intent) = value {
        Some(intent)
    } else {
        None
    }
}

fn into_status(value: OptionValue) -> Option<u16> {
    if let OptionValue::Integer(status) = value {
        u16::try_from(status).ok()
    } else {
        None
    }
}

fn read_group(
    map: &mut MapReader<'_>,
    guard: SourceGuard,
    position: &RuleId,
    problems: &mut Problems,
) -> SourceRuleBody {
    report_misplaced(
        map,
        &FILTER_KEYS,
        "a group (`when`, `unless`)",
        "a filter (`forbid`, `require`)",
        problems,
    );
    let then = map.take("then").and_then(|node| read_then(node, problems));
    let set = map
        .take("set")
        .map(|node| read_options(node, problems))
        .unwrap_or_default();
    let stop = map
        .take("stop")
        .and_then(|node| read::boolean(node, problems))
        .unwrap_or(false);
    let first = map
        .take("match")
        .and_then(|node| read_match(node, problems));
    let nested = map.take("rules");
    let rules = nested
        .map(|node| read_rules(node, position.as_str(), 1, problems))
        .unwrap_or_default();
    SourceRuleBody::Group(SourceGroup {
        guard,
        then,
        set,
        stop,
        match_first: first,
        rules,
    })
}

/// Reports keys that belong to the other kind of rule.
fn report_misplaced(
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
        let problem =
            Problem::error(&entry.key.place, format!("not a key of {here}")).with_found(*key);
        problems.push(match *key {
            "reject" | "reject_status" => problem.with_help(format!("write `set: {{ {key}: … }}`")),
            _ => problem.with_help(format!("it belongs to {there}")),
        });
    }
}

fn read_then(node: &Node, problems: &mut Problems) -> Option<Located<ThenAction>> {
    let of_word = |word: &str| {
        ThenAction::WORDS
            .iter()
            .find(|(w, _)| *w == word)
            .map(|(_, then)| *then)
    };
    let value = read::word(
        node,
        &ThenAction::WORDS.map(|(word, _)| word),
        of_word,
        problems,
    )?;
    Some(Located {
        place: node.place.clone(),
        value,
    })
}

fn read_match(node: &Node, problems: &mut Problems) -> Option<SourceLocation> {
    if matches!(node.spelling(), Some("first")) {
        return Some(node.place.clone());
    }
    if node.spelling() != Some("all") {
        problems
            .push(wrong_type(node, "not an allowed value").with_allowed_words(["first", "all"]));
    }
    None
}
