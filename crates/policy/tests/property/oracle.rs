//! The oracle: evaluation as a plain recursion over the tree, one stage after the other.

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

/// Fields whose rules match only 2xx with content.
const OF_CONTENT: [&str; 6] = [
    "content_type",
    "size",
    "title",
    "body_prefix",
    "meta_robots",
    "canonical",
];

/// A rule with what `compile` derives from its position in the tree, computed independently.
struct Placed<'a> {
    node: &'a GeneratedRule,
    /// The stage from which on all facts named by it and the groups around it are known.
    stage: usize,
    /// The earliest stage at which it may run.
    floor: usize,
    content_only: bool,
    first_stage: Option<usize>,
    kids: Vec<Placed<'a>>,
}

#[derive(Default)]
struct Memory<'a> {
    applied: BTreeSet<&'a str>,
    over: BTreeSet<&'a str>,
    filtered: Option<&'a str>,
    log: bool,
    options: BTreeMap<String, (Json, Option<&'a str>)>,
}

/// Decides a request. The destination stage runs if the address is known.
pub(super) fn decide(made: &GeneratedPolicy, world: &GeneratedFacts) -> OracleDecision {
    let space = made.space_of(&world.crawler);
    let lists: [&[GeneratedRule]; 2] = [&made.rules, space.map_or(&[], |space| &space.rules)];
    let placed = lists.map(|rules| -> Vec<Placed<'_>> {
        rules
            .iter()
            .map(|rule| place(world, rule, 0, 0, &[], None))
            .collect()
    });
    let mut memory = Memory::default();
    for (option, value) in made
        .base
        .iter()
        .chain(space.iter().flat_map(|space| &space.options))
    {
        memory.options.insert(option.clone(), (value.clone(), None));
    }
    let known = [
        true,
        world.address.is_some(),
        world.response.is_some(),
        reads_document(world),
    ];
    let mut last = None;
    for stage in (0..4).filter(|s| known[*s]) {
        let seen = at_stage(world, stage);
        for list in &placed {
            let mut stopped = false;
            for rule in list {
                stopped |= run(rule, stage, &seen, stopped, &mut memory);
            }
        }
        let said = conclude(&memory, stage, &seen);
        let rejects = said.rejects;
        last = Some(said);
        if rejects {
            break;
        }
    }
    last.unwrap()
}

/// Returns `true` for a GET with 2xx in HTML or text.
fn reads_document(world: &GeneratedFacts) -> bool {
    let kind = world
        .response
        .as_ref()
        .map_or("", |response| &response.content_type);
    world.document.is_some()
        && world.method == "GET"
        && success(world)
        && ["text/html", ""].contains(&kind)
}

fn at_stage(world: &GeneratedFacts, stage: usize) -> GeneratedFacts {
    let mut seen = world.clone();
    if stage < 1 {
        seen.address = None;
    }
    if stage < 2 {
        seen.response = None;
    }
    if stage < 3 {
        seen.document = None;
    }
    seen
}

fn conclude(memory: &Memory<'_>, stage: usize, world: &GeneratedFacts) -> OracleDecision {
    let (disposition, by) = memory.options["disposition"].clone();
    let mut rejection = None;
    if memory.filtered.is_some() {
        rejection = Some((memory.filtered, memory.log));
    } else if disposition != json!("allow") {
        rejection = Some((by, disposition == json!("disallow-log")));
    } else if let (2, Some(response), Some((Json::Bool(true), by))) =
        (stage, &world.response, memory.options.get("html_only"))
        && success(world)
        && response.content_type != "text/html"
    {
        rejection = Some((*by, false));
    }
    if stage == 0
        && let Some((limit, by)) = memory.options.get("max_depth")
        && world
            .depth
            .zip(limit.as_u64())
            .is_some_and(|(depth, limit)| depth > limit)
    {
        rejection = Some((*by, memory.log));
    }
    let (cause, logged) = rejection.unwrap_or((by, false));
    OracleDecision {
        rejects: rejection.is_some(),
        stage,
        cause: cause.map(str::to_owned),
        logged,
        options: memory
            .options
            .iter()
            .map(|(k, (v, _))| (k.clone(), v.clone()))
            .collect(),
    }
}

fn place<'a>(
    world: &GeneratedFacts,
    node: &'a GeneratedRule,
    above: usize,
    floor: usize,
    named: &[&'a str],
    sibling: Option<(usize, &[&'a str])>,
) -> Placed<'a> {
    let mut fields: Vec<&str> = named.to_vec();
    let mut own = None;
    if let Some(cond) = node.cond() {
        own = cond.stage_in(world);
        cond.each_atom(&mut |atom| fields.push(atom.field));
    }
    if own.is_none()
        && let Some((stage, names)) = sibling
    {
        own = Some(stage);
        fields.extend(names);
    }
    let floor = floor.max(node.stage.unwrap_or(0));
    let stage = above.max(own.unwrap_or(0)).max(floor);
    let names = |wanted: &[&str]| fields.iter().any(|f| wanted.contains(f));
    let content_only = names(&OF_CONTENT) && !names(&["status", "header.x-a"]);
    let mut placed = Placed {
        node,
        stage,
        floor,
        content_only,
        first_stage: None,
        kids: vec![],
    };
    if let GeneratedKind::Group { first, rules, .. } = &node.kind {
        let siblings = sibling_facts(world, rules);
        let list = rules.iter().filter(|r| r.enabled);
        let list = list
            .map(|r| place(world, r, stage, floor, &fields, None).stage)
            .max();
        let list = list.map(|l| l.max(siblings.0));
        if *first && let Some(list) = list {
            placed.first_stage = Some(list);
            let facts = Some((siblings.0, &siblings.1[..]));
            placed.kids = rules
                .iter()
                .map(|r| place(world, r, stage, list, &fields, facts))
                .collect();
        } else {
            placed.kids = rules
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
        cond.each_atom(&mut |atom| {
            fields.push(atom.field);
            stage = stage.max(atom.stage_in(world));
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

/// Returns `true` if a rule on type or size matches this response: 2xx with content, from the
/// response stage on.
fn judges(rule: &Placed<'_>, stage: usize, world: &GeneratedFacts) -> bool {
    !(rule.content_only && stage >= 2 && !success(world))
}

fn guard(cond: Option<&GeneratedCondition>, unless: bool, world: &GeneratedFacts) -> ThreeValued {
    match cond {
        None => ThreeValued::Yes,
        Some(cond) if unless => cond.eval(world).not(),
        Some(cond) => cond.eval(world),
    }
}

/// Runs a rule at a stage. Returns `true` if a stop ended the list. `cut`: a stop comes before it.
fn run<'a>(
    rule: &Placed<'a>,
    stage: usize,
    world: &GeneratedFacts,
    cut: bool,
    memory: &mut Memory<'a>,
) -> bool {
    let id = rule.node.id.as_str();
    if !rule.node.enabled || memory.over.contains(id) {
        return false;
    }
    match &rule.node.kind {
        GeneratedKind::Filter { require, cond, log } => {
            filter(rule, stage, world, cut, memory, (*require, cond, *log));
            false
        }
        GeneratedKind::Group {
            when,
            unless,
            then,
            stop,
            ..
        } => {
            if memory.applied.contains(id) {
                return kids(rule, stage, world, cut, memory);
            }
            let holds = guard(when.as_ref(), *unless, world);
            if rule.stage > stage {
                let holds = if judges(rule, stage, world) {
                    holds
                } else {
                    ThreeValued::No
                };
                if holds == ThreeValued::No {
                    memory.over.insert(id);
                }
                return holds == ThreeValued::Yes && kids(rule, stage, world, cut, memory);
            }
            if rule.stage < stage {
                return false;
            }
            if cut || holds != ThreeValued::Yes || !judges(rule, stage, world) {
                memory.over.insert(id);
                return false;
            }
            memory.applied.insert(id);
            for (option, value) in then {
                memory
                    .options
                    .insert((*option).into(), (value.clone(), Some(id)));
            }
            kids(rule, stage, world, false, memory) || *stop
        }
    }
}

fn kids<'a>(
    rule: &Placed<'a>,
    stage: usize,
    world: &GeneratedFacts,
    cut: bool,
    memory: &mut Memory<'a>,
) -> bool {
    let mut stopped = false;
    let choosing = rule.first_stage == Some(stage);
    let mut chosen = false;
    for kid in &rule.kids {
        stopped |= run(
            kid,
            stage,
            world,
            cut || stopped || (choosing && chosen),
            memory,
        );
        chosen |= memory.applied.contains(kid.node.id.as_str());
    }
    stopped
}

fn filter<'a>(
    rule: &Placed<'a>,
    stage: usize,
    world: &GeneratedFacts,
    cut: bool,
    memory: &mut Memory<'a>,
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
    let hits = if judges(rule, stage, world) {
        holds
    } else {
        ThreeValued::No
    };
    if hits == ThreeValued::Open {
        return;
    }
    memory.over.insert(id);
    if hits == ThreeValued::Yes && !cut {
        // A filter that hits counts as applied, which ends a `match: first` list.
        memory.applied.insert(id);
        memory.filtered.get_or_insert(id);
        memory.log |= log;
    }
}

/// Returns whether a filter hits when everything is known: its condition and the guards around it,
/// in two-valued logic.
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
