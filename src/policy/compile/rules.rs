//! From drafts to rules: assignments, effects, and the stages at which each could do something.

use crate::policy::options::Assignment;
use crate::policy::rule::{
    ChildOrder, Filter, Group, Guard, Mode, PolicyStage, Rule, RuleBody, RuleClass, RuleIndex,
    StageSet,
};
use crate::policy::source::tree::{SourceBody, SourceFilter, SourceGroup, SourceGuard};
use crate::vocab::problem::Problem;
use crate::vocab::problems::Problems;

use super::checks;
use super::drafts::{Draft, Drafts};
use super::options::Options;
use super::stages::Placing;

/// The rules of the policy.
pub(super) fn rules(
    drafts: &Drafts<'_>,
    placings: &[Placing],
    classes: &[RuleClass],
    options: &mut Options,
    problems: &mut Problems,
) -> Box<[Rule]> {
    let mut rules: Vec<Rule> = Vec::with_capacity(drafts.all.len());
    for ((draft, placing), class) in drafts.all.iter().zip(placings).zip(classes) {
        let before = problems.enter(Some(draft.source.name().clone()));
        let body = body(draft, placing, options, problems);
        rules.push(rule(draft, placing, *class, body));
        problems.enter(before);
    }
    unite_with_parents(&mut rules);
    rules.into()
}

fn index(place: usize) -> RuleIndex {
    RuleIndex(u32::try_from(place).unwrap_or(u32::MAX))
}

fn body(
    draft: &Draft<'_>,
    placing: &Placing,
    options: &mut Options,
    problems: &mut Problems,
) -> RuleBody {
    match &draft.source.body {
        SourceBody::Group(group) => {
            RuleBody::Group(group_of(draft, group, placing, options, problems))
        }
        SourceBody::Filter(filter) => {
            checks::filter(filter, problems);
            RuleBody::Filter(filter_of(draft, filter))
        }
    }
}

fn rule(draft: &Draft<'_>, placing: &Placing, class: RuleClass, body: RuleBody) -> Rule {
    let source = draft.source;
    Rule {
        id: source.name().clone(),
        about: source.about.clone(),
        mode: draft.mode,
        parent: draft.parent.map(index),
        end: index(draft.end),
        floor: placing.floor,
        stage: placing.stage,
        by_headers: placing.by_headers(),
        content_only: placing.content_only,
        active: active(draft, placing),
        class,
        body,
    }
}

fn group_of(
    draft: &Draft<'_>,
    group: &SourceGroup,
    placing: &Placing,
    options: &mut Options,
    problems: &mut Problems,
) -> Group {
    let assign: Box<[Assignment]> = options.assignments(group, placing, problems);
    // Among those of a `match: first` list such a group does something: it keeps the later ones out.
    let idle = assign.is_empty() && !group.stop && group.rules.is_empty() && !placing.chosen;
    // What it was to do may be what was reported.
    if idle && !problems.has_errors_in(draft.source.name()) {
        let problem = Problem::warning(&draft.source.place, "a group that does nothing");
        problems.push(
            problem
                .help("it needs `then`, `set`, `rules` or `stop`; to refuse URLs write `forbid`"),
        );
    }
    let condition = || draft.condition.clone();
    Group {
        guard: match &group.guard {
            SourceGuard::Always => Guard::Always,
            SourceGuard::When(_) => Guard::When(condition()),
            SourceGuard::Unless(_) => Guard::Unless(condition()),
        },
        assign,
        stop: group.stop,
        order: placing
            .first
            .map_or(ChildOrder::All, |list| ChildOrder::First(list.stage)),
    }
}

fn filter_of(draft: &Draft<'_>, filter: &SourceFilter) -> Filter {
    Filter {
        sense: filter.sense,
        condition: draft.condition.clone(),
        log: filter.log,
        reject: filter.reject,
        reject_status: filter.reject_status,
        soft_error: filter.soft_error.as_ref().map(|soft| soft.value),
    }
}

/// A group does something at its stages; a filter from the first stage at which it could be decided.
fn active(draft: &Draft<'_>, placing: &Placing) -> StageSet {
    let first = match &draft.source.body {
        SourceBody::Group(_) => placing.early.stage,
        SourceBody::Filter(_) => placing.earliest,
    };
    let mut active = StageSet::default();
    if draft.mode != Mode::Disabled {
        let stages = PolicyStage::ALL
            .into_iter()
            .filter(|stage| (first..=placing.stage).contains(stage));
        stages.for_each(|stage| active.insert(stage));
    }
    active
}

/// A group is active wherever a rule in it is, unless only that one is in shadow. Children stand behind their parents,
/// so one way back is enough.
fn unite_with_parents(rules: &mut [Rule]) {
    for at in (0..rules.len()).rev() {
        let Some((active, mode, Some(parent))) = rules
            .get(at)
            .map(|rule| (rule.active, rule.mode, rule.parent))
        else {
            continue;
        };
        if let Some(parent) = rules
            .get_mut(parent.0 as usize)
            .filter(|parent| parent.mode == mode)
        {
            parent.active.unite(active);
        }
    }
}
