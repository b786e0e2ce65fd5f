//! The reader of rules.

use serde_json::{Map, Value as Json, json};

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::intent::Intent;
use crate::model::rule_id::RuleId;
use crate::policy::options::OptionValue;
use crate::policy::rule::{FilterKind, PolicyStage};
use crate::yaml::read::{self, MapReader};
use crate::yaml::{MappingEntry, Node, YamlValue};

use super::condition::read_condition;
use super::key::{Key, properties};
use super::option::{read_option_value, read_options};
use super::tree::{
    Located, SourceCondition, SourceFilter, SourceGroup, SourceGuard, SourceRule, SourceRuleBody,
    ThenAction,
};

/// The maximum nesting depth of rules.
const MAX_DEPTH: usize = 24;

const ID: Key = Key::schema(
    "id",
    id_schema,
    "The rule's name in headers, logs and metrics; by default its position.",
);
const ABOUT: Key = Key::definition(
    "about",
    "text",
    "Free text, shown by explain and in refusals.",
);
const ENABLED: Key = Key::flag("enabled", true, "If false, the rule is ignored.");
const MODE: Key = Key::words(
    "mode",
    &["enforce", "shadow"],
    None,
    "shadow: the rule is evaluated and counted, but changes nothing.",
);
const STAGE: Key = Key::schema("stage", stage_schema, "The stage that the rule waits for.");
const WHEN: Key = Key::definition(
    "when",
    "condition",
    "A group that applies if the condition holds.",
);
const UNLESS: Key = Key::definition(
    "unless",
    "condition",
    "A group that applies if the condition does not hold.",
);
const FORBID: Key = Key::definition(
    "forbid",
    "condition",
    "A filter: URLs for which the condition holds are refused.",
);
const REQUIRE: Key = Key::definition(
    "require",
    "condition",
    "A filter: URLs for which the condition does not hold are refused.",
);
const THEN: Key = Key::schema("then", then_schema, "The treatment of the URLs of a group.");
const SET: Key = Key::definition("set", "options", "Options that a group assigns.");
const STOP: Key = Key::flag(
    "stop",
    false,
    "Ends the outermost list of rules that contains the group, for this stage.",
);
const MATCH: Key = Key::words(
    "match",
    &["all", "first"],
    None,
    "first: of the direct children only the first that applies is processed.",
);
const RULES: Key = Key::definition("rules", "rules", "Rules inside the group.");
const LOG: Key = Key::flag(
    "log",
    false,
    "If true, a URL that the filter refuses is recorded.",
);
const REJECT: Key = Key::option("reject");
const REJECT_STATUS: Key = Key::option("reject_status");
const AS: Key = Key::schema(
    "as",
    soft_error_schema,
    "At the document stage: the page is an error although its status is not, and the response gets this status.",
);

/// The keys of every rule.
const COMMON_KEYS: [&Key; 5] = [&ID, &ABOUT, &ENABLED, &MODE, &STAGE];
/// The keys that determine the kind of a rule; a rule has at most one of them.
const KIND_KEYS: [&Key; 4] = [&WHEN, &UNLESS, &FORBID, &REQUIRE];
const GROUP_KEYS: [&Key; 5] = [&THEN, &SET, &STOP, &MATCH, &RULES];
const FILTER_KEYS: [&Key; 4] = [&LOG, &REJECT, &REJECT_STATUS, &AS];

/// Returns the JSON Schema of a rule.
pub(super) fn json_schema() -> Json {
    let mut restrictions: Vec<Json> = Vec::new();
    for (at, one) in KIND_KEYS.iter().enumerate() {
        for other in KIND_KEYS.iter().skip(at + 1) {
            restrictions.push(json!({ "not": { "required": [one.name, other.name] } }));
        }
    }
    restrictions.push(json!({
        "if": { "anyOf": [{ "required": [FORBID.name] }, { "required": [REQUIRE.name] }] },
        "then": without(&GROUP_KEYS),
        "else": without(&FILTER_KEYS),
    }));
    let keys = [&COMMON_KEYS[..], &KIND_KEYS, &GROUP_KEYS, &FILTER_KEYS].concat();
    json!({
        "description": "A group (when, unless, or neither) sets options and contains rules; a filter (forbid, require) refuses URLs.",
        "type": "object",
        "additionalProperties": false,
        "properties": properties(keys),
        "allOf": restrictions,
    })
}

/// Returns the JSON Schema of a mapping that has none of these keys.
fn without(keys: &[&Key]) -> Json {
    let keys: Map<String, Json> = keys
        .iter()
        .map(|key| (key.name.to_owned(), Json::Bool(false)))
        .collect();
    json!({ "properties": keys })
}

fn id_schema() -> Json {
    json!({ "type": ["string", "number", "boolean"], "pattern": "^[A-Za-z0-9_.-]{1,128}$" })
}

fn stage_schema() -> Json {
    json!({ "enum": PolicyStage::ALL.map(PolicyStage::as_str) })
}

fn then_schema() -> Json {
    let words = ThenAction::WORDS
        .map(|(word, _, description)| json!({ "const": word, "description": description }));
    json!({ "anyOf": words })
}

fn soft_error_schema() -> Json {
    json!({ "type": "integer", "minimum": 400, "maximum": 599, "not": { "const": 407 } })
}

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
    let mut rules = Vec::with_capacity(items.len());
    for (item, number) in items.iter().zip(first..) {
        rules.extend(read_rule(item, &format!("{prefix}.{number}"), problems));
    }
    rules
}

/// Reads a rule at a position.
pub(super) fn read_rule(
    node: &Node,
    position: &str,
    problems: &mut Problems,
) -> Option<SourceRule> {
    let position = RuleId::new(position)?;
    let before = problems.enter_rule(Some(position.clone()));
    let rule = read_rule_mapping(node, position, problems);
    problems.enter_rule(before);
    rule
}

fn read_rule_mapping(node: &Node, position: RuleId, problems: &mut Problems) -> Option<SourceRule> {
    let mut map = MapReader::open(node, "a rule", problems)?;
    let id = map
        .take(ID.name)
        .and_then(|node| read_rule_id(node, problems));
    if let Some(id) = &id {
        problems.enter_rule(Some(id.value.clone()));
    }
    let about = map
        .take(ABOUT.name)
        .and_then(|node| read::spelling(node, problems))
        .map(Into::into);
    let enabled = ENABLED.read_flag(&mut map, problems);
    let shadow = read_located_word(&MODE, "shadow", &mut map, problems);
    let stage = map
        .take(STAGE.name)
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
        map.take(key.name);
    }
    report_action_as_key(node, &mut map, problems);
    map.finish(problems);
    Some(rule)
}

/// Reports a condition under the key `allow`, as other systems write it: here it is an action.
fn report_action_as_key(node: &Node, map: &mut MapReader<'_>, problems: &mut Problems) {
    const ALLOW: &str = "allow";
    // A key that was requested counts as allowed in the message about an unknown one.
    if node.get(ALLOW).is_some()
        && let Some(entry) = map.take_entry(ALLOW)
    {
        let problem = Problem::error(&entry.key.place, "unknown key").with_found(ALLOW);
        problems.push(problem.with_help("write `when: { … }` and `then: allow`"));
    }
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

/// Returns the location of a key's value if it is this word.
fn read_located_word(
    key: &Key,
    word: &str,
    map: &mut MapReader<'_>,
    problems: &mut Problems,
) -> Option<SourceLocation> {
    let given = key.read_word(map, problems)?;
    let place = map.take(key.name).map(|node| node.place.clone());
    place.filter(|_| given == word)
}

fn read_stage(node: &Node, problems: &mut Problems) -> Option<Located<PolicyStage>> {
    let value = read::enum_word(node, problems)?;
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
    let kinds: Vec<(&str, &MappingEntry)> = KIND_KEYS
        .iter()
        .filter_map(|kind| Some((kind.name, map.take_entry(kind.name)?)))
        .collect();
    if let [(first, _), (second, entry), ..] = kinds.as_slice() {
        let message = format!(
            "a rule can have only one of `when`, `unless`, `forbid`, `require`; `{first}` is present as well"
        );
        let problem = Problem::error(&entry.key.place, message).with_found(*second);
        problems.push(
            problem
                .with_help("nest one rule inside the other, or combine the conditions with `all`"),
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
        .take(AS.name)
        .and_then(|node| read_soft_error(node, problems));
    let log = LOG.read_flag(map, problems);
    let reject = read_option_key(&REJECT, map, problems).and_then(into_intent);
    let reject_status = read_option_key(&REJECT_STATUS, map, problems).and_then(into_status);
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

fn read_option_key(
    key: &Key,
    map: &mut MapReader<'_>,
    problems: &mut Problems,
) -> Option<OptionValue> {
    read_option_value(map.take(key.name)?, key.name, problems)
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
    let then = map
        .take(THEN.name)
        .and_then(|node| read_then(node, problems));
    let set = map
        .take(SET.name)
        .map(|node| read_options(node, problems))
        .unwrap_or_default();
    let stop = STOP.read_flag(map, problems);
    let match_first = read_match(map, problems);
    let rules = map
        .take(RULES.name)
        .map(|node| read_rules(node, position.as_str(), 1, problems))
        .unwrap_or_default();
    SourceRuleBody::Group(SourceGroup {
        guard,
        then,
        set,
        stop,
        match_first,
        rules,
    })
}

/// Reads `match`. In other systems it is the condition of a rule.
fn read_match(map: &mut MapReader<'_>, problems: &mut Problems) -> Option<SourceLocation> {
    let entry = map.take_entry(MATCH.name)?;
    if let YamlValue::Mapping(_) | YamlValue::Sequence(_) = &entry.value.value {
        let message = "`match` is `all` or `first`: how the rules inside a group apply";
        let problem = Problem::error(&entry.key.place, message).with_found(MATCH.name);
        problems.push(problem.with_suggestion_from([WHEN.name]));
        return None;
    }
    read_located_word(&MATCH, "first", map, problems)
}

/// Reports keys that belong to the other kind of rule.
fn report_misplaced(
    map: &mut MapReader<'_>,
    keys: &[&Key],
    here: &str,
    there: &str,
    problems: &mut Problems,
) {
    for key in keys {
        let Some(entry) = map.take_entry(key.name) else {
            continue;
        };
        let problem =
            Problem::error(&entry.key.place, format!("not a key of {here}")).with_found(key.name);
        problems.push(match key.name {
            name @ ("reject" | "reject_status") => {
                problem.with_help(format!("write `set: {{ {name}: … }}`"))
            }
            _ => problem.with_help(format!("it belongs to {there}")),
        });
    }
}

fn read_then(node: &Node, problems: &mut Problems) -> Option<Located<ThenAction>> {
    let value = read::word(
        node,
        &ThenAction::WORDS.map(|(word, ..)| word),
        |given| {
            ThenAction::WORDS
                .iter()
                .find(|(word, ..)| *word == given)
                .map(|(_, then, _)| *then)
        },
        problems,
    )?;
    Some(Located {
        place: node.place.clone(),
        value,
    })
}
