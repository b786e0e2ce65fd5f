//! The oracle: evaluation as a simple recursion over the tree, one stage after the other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use super::model::{
    GeneratedCondition, GeneratedFacts, GeneratedKind, GeneratedPolicy, GeneratedRule, ThreeValued,
};

/// The oracle's decision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OracleDecision {
    pub(super) rejects: bool,
    pub(super) stage: usize,
    pub(super) cause: Option<String>,
    pub(super) logged: bool,
    pub(super) options: BTreeMap<String, Json>,
}

/// The fields whose rules match only 2xx responses with content.
const CONTENT_FIELDS: [&str; 6] = [
    "content_type",
    "size",
    "title",
    "body_prefix",
    "meta_robots",
    "canonical",
];

/// A rule with the values that `compile` derives from its position in the tree, computed
/// independently.
struct PlacedRule<'a> {
    node: &'a GeneratedRule,
    /// The stage from which on all facts of the rule and of the groups around it are known.
    stage: usize,
    /// The earliest stage at which the rule may run.
    floor: usize,
    content_only: bool,
    first_stage: Option<usize>,
    children: Vec<PlacedRule<'a>>,
}

/// The state of an evaluation between rules and stages.
#[derive(Default)]
struct EvaluationState<'a> {
    applied: BTreeSet<&'a str>,
    /// The rules that are not evaluated again.
    finished: BTreeSet<&'a str>,
    filter: Option<&'a str>,
    log: bool,
    options: BTreeMap<String, (Json, Option<&'a str>)>,
}

/// Decides a request. The destination stage runs if the address is known.
pub(super) fn decide(policy: &GeneratedPolicy, world: &GeneratedFacts) -> OracleDecision {
    let space = policy.space_of(&world.crawler);
    let lists: [&[GeneratedRule]; 2] = [&policy.rules, space.map_or(&[], |space| &space.rules)];
    let placed = lists.map(|rules| -> Vec<PlacedRule<'_>> {
        rules
            .iter()
            .map(|rule| place(world, rule, 0, 0, &[], None))
            .collect()
    });
    let mut state = EvaluationState::default();
    for (option, value) in policy
        .base
        .iter()
        .chain(space.iter().flat_map(|space| &space.options))
    {
        state.options.insert(option.clone(), (value.clone(), None));
    }
    let known = [
        true,
        world.address.is_some(),
        world.response.is_some(),
        reads_document(world),
    ];
    let mut last = None;
    for stage in (0..4).filter(|s| known[*s]) {
        let known_facts = facts_at_stage(world, stage);
        for list in &placed {
            let mut stopped = false;
            for rule in list {
                stopped |= run(rule, stage, &known_facts, stopped, &mut state);
            }
        }
        let decision = conclude(&state, stage, &known_facts);
        let rejects = decision.rejects;
        last = Some(decision);
        if rejects {
            break;
        }
    }
    last.unwrap()
}

/// Returns `true` for a GET with a 2xx response in HTML or without a type.
fn reads_document(world: &GeneratedFacts) -> bool {
    let content_type = world
        .response
        .as_ref()
        .map_or("", |response| &response.content_type);
    world.document.is_some()
        && world.method == "GET"
        && success(world)
        && ["text/html", ""].contains(&content_type)
}

fn facts_at_stage(world: &GeneratedFacts, stage: usize) -> GeneratedFacts {
    let mut facts = world.clone();
    if stage < 1 {
        facts.address = None;
    }
    if stage < 2 {
        facts.response = None;
    }
    if stage < 3 {
        facts.document = None;
    }
    facts
}

fn conclude(state: &EvaluationState<'_>, stage: usize, world: &GeneratedFacts) -> OracleDecision {
    let (disposition, by) = state.options["disposition"].clone();
    let mut rejection = None;
    if state.filter.is_some() {
        rejection = Some((state.filter, state.log));
    } else if disposition != json!("allow") {
        rejection = Some((by, disposition == json!("disallow-log")));
    } else if let (2 | 3, Some(response), Some((Json::Bool(true), by))) =
        (stage, &world.response, state.options.get("html_only"))
        && success(world)
        && response.content_type != "text/html"
    {
        rejection = Some((*by, false));
    }
    if stage == 0
        && let Some((limit, by)) = state.options.get("max_depth")
        && world
            .depth
            .zip(limit.as_u64())
            .is_some_and(|(depth, limit)| depth > limit)
    {
        rejection = Some((*by, state.log));
    }
    let (cause, logged) = rejection.unwrap_or((by, false));
    OracleDecision {
        rejects: rejection.is_some(),
        stage,
        cause: cause.map(str::to_owned),
        logged,
        options: state
            .options
            .iter()
            .map(|(k, (v, _))| (k.clone(), v.clone()))
            .collect(),
    }
}

fn names_any(fields: &[&str], wanted: &[&str]) -> bool {
    fields.iter().any(|field| wanted.contains(field))
}

fn place<'a>(
    world: &GeneratedFacts,
    node: &'a GeneratedRule,
    above: usize,
    floor: usize,
    named: &[&'a str],
    sibling: Option<(usize, &[&'a str])>,
) -> PlacedRule<'a> {
    let mut fields: Vec<&str> = named.to_vec();
    let mut own = None;
    if let Some(cond) = node.cond() {
        own = cond.stage_in(world);
        cond.for_each_test(&mut |test| fields.push(test.field));
    }
    if own.is_none()
        && let Some((stage, names)) = sibling
    {
        own = Some(stage);
        fields.extend(names);
    }
    let floor = floor.max(node.stage.unwrap_or(0));
    let stage = above.max(own.unwrap_or(0)).max(floor);
    let content_only = names_any(&fields, &CONTENT_FIELDS)
        && !names_any(&fields, &["status", "header.x-a", "license"]);
    let mut placed = PlacedRule {
        node,
        stage,
        floor,
        content_only,
        first_stage: None,
        children: vec![],
    };
    if let GeneratedKind::Group { first, rules, .. } = &node.kind {
        let siblings = sibling_facts(world, rules);
        let list_stage = rules
            .iter()
            .filter(|r| r.enabled)
            .map(|r| place(world, r, stage, floor, &fields, None).stage)
            .max()
            .map(|latest| latest.max(siblings.0));
        if *first && let Some(list_stage) = list_stage {
            placed.first_stage = Some(list_stage);
            let facts = Some((siblings.0, &siblings.1[..]));
            placed.children = rules
                .iter()
                .map(|r| place(world, r, stage, list_stage, &fields, facts))
                .collect();
        } else {
            placed.children = rules
                .iter()
                .map(|r| place(world, r, stage, floor, &fields, None))
                .collect();
        }
    }
    placed
}

/// Returns the latest stage and all fields of the direct children of a `match: first` list.
fn sibling_facts<'a>(world: &GeneratedFacts, rules: &'a [GeneratedRule]) -> (usize, Vec<&'a str>) {
    let mut fields = vec![];
    let mut stage = 0;
    for cond in rules
        .iter()
        .filter(|rule| rule.enabled)
        .filter_map(GeneratedRule::cond)
    {
        cond.for_each_test(&mut |test| {
            fields.push(test.field);
            stage = stage.max(test.stage_in(world));
        });
    }
    (stage, fields)
}

fn success(world: &GeneratedFacts) -> bool {
    let Some(response) = &world.response else {
        return false;
    };
    let untyped_head = world.method == "HEAD" && response.content_type.is_empty();
    (200..300).contains(&response.status)
        && response.status != 204
        && response.status != 205
        && !untyped_head
}

/// Returns `true` if a rule may match this response. From the response stage on, a rule on content
/// matches only 2xx with content.
fn may_match(rule: &PlacedRule<'_>, stage: usize, world: &GeneratedFacts) -> bool {
    !(rule.content_only && stage >= 2 && !success(world))
}

fn guard(cond: Option<&GeneratedCondition>, unless: bool, world: &GeneratedFacts) -> ThreeValued {
    match cond {
        None => ThreeValued::Yes,
        Some(cond) if unless => cond.eval(world).not(),
        Some(cond) => cond.eval(world),
    }
}

/// Runs a rule at a stage. Returns `true` if a stop ended the list. A `skipped` rule follows a stop
/// or the first match of its list.
fn run<'a>(
    rule: &PlacedRule<'a>,
    stage: usize,
    world: &GeneratedFacts,
    skipped: bool,
    state: &mut EvaluationState<'a>,
) -> bool {
    let id = rule.node.id.as_str();
    if !rule.node.enabled || state.finished.contains(id) {
        return false;
    }
    match &rule.node.kind {
        GeneratedKind::Filter { require, cond, log } => {
            run_filter(rule, stage, world, skipped, state, (*require, cond, *log));
            false
        }
        GeneratedKind::Group {
            when,
            unless,
            then,
            stop,
            ..
        } => {
            if state.applied.contains(id) {
                return run_children(rule, stage, world, skipped, state);
            }
            let holds = guard(when.as_ref(), *unless, world);
            if rule.stage > stage {
                let holds = if may_match(rule, stage, world) {
                    holds
                } else {
                    ThreeValued::No
                };
                if holds == ThreeValued::No {
                    state.finished.insert(id);
                }
                return holds == ThreeValued::Yes
                    && run_children(rule, stage, world, skipped, state);
            }
            if rule.stage < stage {
                return false;
            }
            if skipped || holds != ThreeValued::Yes || !may_match(rule, stage, world) {
                state.finished.insert(id);
                return false;
            }
            state.applied.insert(id);
            // A depth that is set too late is ignored.
            let in_time = |option: &str| option != "max_depth" || stage == 0;
            for (option, value) in then.iter().filter(|(option, _)| in_time(option)) {
                state
                    .options
                    .insert((*option).into(), (value.clone(), Some(id)));
            }
            run_children(rule, stage, world, false, state) || *stop
        }
    }
}

fn run_children<'a>(
    rule: &PlacedRule<'a>,
    stage: usize,
    world: &GeneratedFacts,
    skipped: bool,
    state: &mut EvaluationState<'a>,
) -> bool {
    let mut stopped = false;
    let first_only = rule.first_stage == Some(stage);
    let mut any_matched = false;
    for child in &rule.children {
        stopped |= run(
            child,
            stage,
            world,
            skipped || stopped || (first_only && any_matched),
            state,
        );
        any_matched |= state.applied.contains(child.node.id.as_str());
    }
    stopped
}

fn run_filter<'a>(
    rule: &PlacedRule<'a>,
    stage: usize,
    world: &GeneratedFacts,
    skipped: bool,
    state: &mut EvaluationState<'a>,
    (require, cond, log): (bool, &GeneratedCondition, bool),
) {
    let id = rule.node.id.as_str();
    if stage < rule.floor {
        return;
    }
    let holds = if require {
        cond.eval(world).not()
    } else {
        cond.eval(world)
    };
    let hits = if may_match(rule, stage, world) {
        holds
    } else {
        ThreeValued::No
    };
    if hits == ThreeValued::Unknown {
        return;
    }
    state.finished.insert(id);
    if hits == ThreeValued::Yes && !skipped {
        // A filter that hits counts as applied, which ends a `match: first` list.
        state.applied.insert(id);
        state.filter.get_or_insert(id);
        state.log |= log;
    }
}

/// Returns whether a filter hits when all facts are known: its condition and the guards around it,
/// in two-valued logic. Returns `None` if there is no such filter.
pub(super) fn hits_in_full(
    rules: &[GeneratedRule],
    id: &str,
    world: &GeneratedFacts,
) -> Option<bool> {
    rules.iter().find_map(|rule| match &rule.kind {
        GeneratedKind::Filter { require, cond, .. } if rule.id == id => {
            Some((cond.eval(world) == ThreeValued::Yes) != *require)
        }
        GeneratedKind::Filter { .. } => None,
        GeneratedKind::Group {
            when,
            unless,
            rules,
            ..
        } => {
            let inside = hits_in_full(rules, id, world)?;
            Some(inside && guard(when.as_ref(), *unless, world) == ThreeValued::Yes)
        }
    })
}
