//! Computes when each rule runs, and which responses it applies to (docs/policy/reference.md,
//! "Stages").

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::policy::condition::Condition;
use crate::policy::field::Field;
use crate::policy::rule::{EnforcementMode, HeaderFields, HeaderStages, PolicyStage};
use crate::policy::source::tree::{SourceFilter, SourceRuleBody};

use super::drafts::{IntermediateRule, RuleDrafts, RuleScope};

/// The stages between which a rule runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageBounds {
    /// The stage before which the rule does not run: `request`, unless the rule, a group around it
    /// or its `match: first` list must wait.
    ///
    /// `{ stage: response, forbid: { host: a.example } }`: the response stage.
    pub(super) earliest: PolicyStage,
    /// The stage at which every fact that the rule and the groups around it test is known.
    ///
    /// `{ forbid: { host: a.example, status: 404 } }`: the response stage, although a request for
    /// another host is decided at the request stage.
    pub(super) latest: PolicyStage,
}

impl StageBounds {
    const REQUEST: Self = Self {
        earliest: PolicyStage::Request,
        latest: PolicyStage::Request,
    };

    /// Returns the bounds of a rule inside a group with these bounds, if the rule waits for
    /// `minimum` and its facts are known at `facts_stage`.
    fn nested(self, minimum: PolicyStage, facts_stage: PolicyStage) -> Self {
        let earliest = self.earliest.max(minimum);
        Self {
            earliest,
            latest: self.latest.max(facts_stage).max(earliest),
        }
    }
}

/// The response headers that [`RulePlacement::with_headers`] depends on.
#[derive(Clone, Copy, Debug)]
struct RequiredHeaders {
    for_earliest: HeaderFields,
    for_latest: HeaderFields,
}

/// The place of a rule in the order of the stages.
#[derive(Clone, Copy, Debug)]
pub(super) struct RulePlacement {
    /// The bounds if no response header contains what the document can contain as well.
    ///
    /// `{ forbid: { meta_robots: noindex } }`: the document stage.
    pub(super) bounds: StageBounds,
    /// The bounds if response headers contain all of it.
    ///
    /// `{ forbid: { meta_robots: noindex } }`: the response stage, given `X-Robots-Tag`.
    pub(super) with_headers: StageBounds,
    /// The headers that `with_headers` depends on.
    ///
    /// `{ forbid: { meta_robots: noindex } }`: `meta_robots` for the latest stage.
    required_headers: RequiredHeaders,
    /// The first stage at which the condition and those of the groups around it may be decided.
    ///
    /// `{ forbid: { any: [{ host: a.example }, { status: 404 }] } }`: the request stage.
    pub(super) first_decidable: PolicyStage,
    /// If set, the rule applies only to successful responses with content.
    ///
    /// `{ forbid: { size: "[1MiB:]" } }`, but not `{ forbid: { size: "[1MiB:]", status: 404 } }`.
    pub(super) content_only: bool,
    /// If set, the rule or a group around it tests `status` or a header, so that it applies to
    /// responses of any status.
    ///
    /// `{ forbid: { status: 404 } }`
    any_status: bool,
    /// If set, the rule, the groups around it, earlier rules of its `match: first` list and earlier
    /// rules with `stop` test only scheme, host, port and crawler, so that it runs for a CONNECT.
    ///
    /// `{ when: { domain: a.example }, set: { tls: tunnel } }`
    pub(super) host_only: bool,
    /// If set, the rule is in a `match: first` list.
    ///
    /// Both rules in `{ match: first, rules: [{ when: … }, { forbid: … }] }`
    pub(super) in_first_match: bool,
    /// The common bounds of the rule's direct children, if it is a `match: first` group.
    ///
    /// `{ match: first, rules: [{ forbid: { status: 404 } }, { forbid: { always: true } }] }`: both
    /// run at the response stage.
    pub(super) first_match: Option<FirstMatchBounds>,
}

impl RulePlacement {
    /// The placement around the outermost rules.
    const OUTERMOST: Self = Self {
        bounds: StageBounds::REQUEST,
        with_headers: StageBounds::REQUEST,
        required_headers: RequiredHeaders {
            for_earliest: HeaderFields::NONE,
            for_latest: HeaderFields::NONE,
        },
        first_decidable: PolicyStage::Request,
        content_only: false,
        any_status: false,
        host_only: true,
        in_first_match: false,
        first_match: None,
    };

    /// The placement around the outermost rules of the global space, which test only the host and
    /// are in a `match: first` list.
    const GLOBAL: Self = Self {
        first_match: Some(FirstMatchBounds::UNRESTRICTED),
        ..Self::OUTERMOST
    };

    /// Returns the stages that apply if response headers contain what the document can contain as
    /// well; `None` if they make no difference.
    pub(super) fn header_stages(&self) -> Option<HeaderStages> {
        let StageBounds { earliest, latest } = self.with_headers;
        let is_earlier = latest < self.bounds.latest || earliest < self.bounds.earliest;
        is_earlier.then_some(HeaderStages {
            earliest_stage: (self.required_headers.for_earliest, earliest),
            stage: (self.required_headers.for_latest, latest),
        })
    }
}

/// The common bounds of the direct children of a `match: first` group.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstMatchBounds {
    /// The stage at which all of them run.
    pub(super) stage: PolicyStage,
    /// The stage at which all of them run if `required_headers` are present.
    stage_with_headers: PolicyStage,
    required_headers: HeaderFields,
    names_content: bool,
    any_status: bool,
}

impl FirstMatchBounds {
    const UNRESTRICTED: Self = Self {
        stage: PolicyStage::Request,
        stage_with_headers: PolicyStage::Request,
        required_headers: HeaderFields::NONE,
        names_content: false,
        any_status: false,
    };
}

/// Computes the placement of every rule.
pub(super) fn place_rules(drafts: &RuleDrafts<'_>, problems: &mut Problems) -> Vec<RulePlacement> {
    let mut placements: Vec<RulePlacement> = Vec::with_capacity(drafts.all.len());
    let mut after_undecidable_stop = false;
    let mut scope = RuleScope::Document;
    for (at, draft) in drafts.all.iter().enumerate() {
        let rule_before = problems.enter_rule(Some(draft.source.name().clone()));
        // A `stop` does not affect other lists of rules.
        after_undecidable_stop &= scope == draft.scope;
        scope = draft.scope;
        let outermost = if scope == RuleScope::Global {
            RulePlacement::GLOBAL
        } else {
            RulePlacement::OUTERMOST
        };
        let parent = draft
            .parent
            .and_then(|parent| placements.get(parent))
            .copied()
            .unwrap_or(outermost);
        let mut placement = place_rule(draft, &parent, problems);
        placement.first_match = first_match_place(draft)
            .map(|place| first_match_bounds(drafts, at, &placement, place, problems));
        placement.host_only &=
            !after_undecidable_stop && !follows_non_host_sibling(drafts, draft, at);
        after_undecidable_stop |= !placement.host_only
            && ends_stage(draft)
            && placement.bounds.latest == PolicyStage::Request;
        placements.push(placement);
        problems.enter_rule(rule_before);
    }
    placements
}

fn place_rule(
    draft: &IntermediateRule<'_>,
    parent: &RulePlacement,
    problems: &mut Problems,
) -> RulePlacement {
    let usage = FieldUsage::from_condition(&draft.condition);
    let condition_stage = draft.condition.stage();
    let facts_stage = condition_stage.unwrap_or(PolicyStage::Request);
    let facts_stage_with_headers = usage.header_stage.unwrap_or(PolicyStage::Request);
    check_explicit_stage(
        draft,
        parent.with_headers.latest.max(facts_stage_with_headers),
        problems,
    );
    check_soft_error_stage(draft, parent.bounds.latest.max(facts_stage), problems);
    let explicit_stage = draft.explicit_stage().unwrap_or(PolicyStage::Request);
    let siblings = parent.first_match.unwrap_or(FirstMatchBounds::UNRESTRICTED);
    let with_headers = parent.with_headers.nested(
        explicit_stage.max(siblings.stage_with_headers),
        facts_stage_with_headers,
    );
    // A condition without facts is treated as if it tested the facts of its siblings.
    let has_no_facts = condition_stage.is_none();
    let names_content = usage.names_content || has_no_facts && siblings.names_content;
    let any_status = parent.any_status || usage.any_status || has_no_facts && siblings.any_status;
    RulePlacement {
        bounds: parent
            .bounds
            .nested(explicit_stage.max(siblings.stage), facts_stage),
        with_headers,
        required_headers: RequiredHeaders {
            for_earliest: siblings
                .required_headers
                .union(parent.required_headers.for_earliest),
            for_latest: siblings
                .required_headers
                .union(parent.required_headers.for_latest)
                .union(usage.header_fields),
        },
        first_decidable: parent
            .first_decidable
            .max(first_decidable_stage(&draft.condition))
            .max(with_headers.earliest),
        content_only: names_content && !any_status,
        any_status,
        host_only: parent.host_only && usage.host_only,
        in_first_match: parent.first_match.is_some(),
        first_match: None,
    }
}

/// Reports `stage` if it is earlier than the stage at which all facts are known.
fn check_explicit_stage(
    draft: &IntermediateRule<'_>,
    facts_stage: PolicyStage,
    problems: &mut Problems,
) {
    let Some(stage) = draft.source.stage.as_ref() else {
        return;
    };
    if stage.value < facts_stage {
        let word = stage.value.as_str();
        let message = format!(
            "`stage: {word}` is too early: facts that the rule, or a group around it, tests are known only later"
        );
        let problem = Problem::error(&stage.place, message).with_found(word);
        problems.push(problem.with_help(format!(
            "write `stage: {}`, or remove it",
            facts_stage.as_str()
        )));
    }
}

/// Reports `as` on a rule that is not of the document stage, by `stage` or by its facts.
fn check_soft_error_stage(
    draft: &IntermediateRule<'_>,
    facts_stage: PolicyStage,
    problems: &mut Problems,
) {
    let SourceRuleBody::Filter(SourceFilter {
        soft_error: Some(soft),
        ..
    }) = &draft.source.body
    else {
        return;
    };
    let explicit_stage = draft.source.stage.as_ref().map(|stage| stage.value);
    if explicit_stage.max(Some(facts_stage)) != Some(PolicyStage::Document) {
        let message =
            "`as` applies only at the document stage, and this rule tests nothing in the document";
        problems.push(Problem::error(&soft.place, message).with_help("add `stage: document`"));
    }
}

/// Returns `true` if the rule can end its stage for later rules. If it cannot be decided for a
/// CONNECT, neither can the later rules.
fn ends_stage(draft: &IntermediateRule<'_>) -> bool {
    match &draft.source.body {
        SourceRuleBody::Group(group) => group.stop && draft.mode == EnforcementMode::Enforce,
        SourceRuleBody::Filter(_) => false,
    }
}

fn first_match_place<'s>(draft: &IntermediateRule<'s>) -> Option<&'s SourceLocation> {
    match &draft.source.body {
        SourceRuleBody::Group(group) => group.match_first.as_ref(),
        SourceRuleBody::Filter(_) => None,
    }
}

/// Computes the common bounds of the direct children, and reports children that run at different
/// stages.
fn first_match_bounds(
    drafts: &RuleDrafts<'_>,
    at: usize,
    group: &RulePlacement,
    place: &SourceLocation,
    problems: &mut Problems,
) -> FirstMatchBounds {
    let mut bounds = FirstMatchBounds {
        stage: group.bounds.latest,
        stage_with_headers: group.with_headers.latest,
        required_headers: group.required_headers.for_latest,
        names_content: false,
        any_status: false,
    };
    let mut stages: Vec<(&str, PolicyStage)> = Vec::new();
    let mode = drafts
        .all
        .get(at)
        .map_or(EnforcementMode::Enforce, |group| group.mode);
    // Disabled children are ignored; so are those in shadow mode, unless the whole list is.
    for (_, child) in drafts.children(at).filter(|(_, child)| child.mode == mode) {
        let usage = FieldUsage::from_condition(&child.condition);
        bounds.names_content |= usage.names_content;
        bounds.any_status |= usage.any_status;
        bounds.required_headers = bounds.required_headers.union(usage.header_fields);
        let explicit_stage = child.explicit_stage();
        if let Some(stage) = child.condition.stage().max(explicit_stage) {
            stages.push((child.source.name().as_str(), stage.max(group.bounds.latest)));
            bounds.stage_with_headers = bounds.stage_with_headers.max(
                usage
                    .header_stage
                    .max(explicit_stage)
                    .unwrap_or(group.with_headers.latest),
            );
        }
    }
    let latest = stages
        .iter()
        .map(|(_, stage)| *stage)
        .max()
        .unwrap_or(group.bounds.latest);
    if let Some((early_rule, stage)) = stages.iter().find(|(_, stage)| *stage != latest) {
        let late_rule = stages
            .iter()
            .find(|(_, stage)| *stage == latest)
            .map_or("", |(id, _)| id);
        let message = format!(
            "the rules of `match: first` must all run at the same stage; `{early_rule}` runs at {}, `{late_rule}` at {}",
            stage.as_str(),
            latest.as_str()
        );
        let help = format!("add `stage: {}` to the group", latest.as_str());
        problems.push(Problem::error(place, message).with_help(help));
    }
    bounds.stage = latest.max(group.bounds.latest);
    if mode == EnforcementMode::Enforce {
        check_shadow_rules(drafts, at, &bounds, problems);
    }
    bounds
}

/// Reports a rule in shadow mode that, if it were enforced, would move its siblings to another stage
/// or to other responses.
fn check_shadow_rules(
    drafts: &RuleDrafts<'_>,
    at: usize,
    bounds: &FirstMatchBounds,
    problems: &mut Problems,
) {
    let enforced: Vec<&IntermediateRule<'_>> = drafts
        .children(at)
        .map(|(_, child)| child)
        .filter(|child| child.mode == EnforcementMode::Enforce)
        .collect();
    let has_movable_sibling = enforced
        .iter()
        .any(|child| child.condition.stage().is_none());
    for (_, child) in drafts
        .children(at)
        .filter(|(_, child)| child.mode == EnforcementMode::Shadow)
    {
        let usage = FieldUsage::from_condition(&child.condition);
        let explicit_stage = child.source.stage.as_ref().map(|stage| stage.value);
        let stage = child.condition.stage().max(explicit_stage);
        let moves_stage = stage.is_some_and(|stage| {
            stage > bounds.stage || stage < bounds.stage && !enforced.is_empty()
        });
        let moves_responses = has_movable_sibling
            && (usage.names_content && !bounds.names_content
                || usage.any_status && !bounds.any_status);
        if moves_stage || moves_responses {
            let message = "if it were enforced, this rule would move the other rules of its `match: first` list to \
                           another stage or to other responses, so it cannot be in shadow mode alone";
            let problem =
                Problem::error(&child.source.place, message).with_rule(Some(child.source.name()));
            problems
                .push(problem.with_help("copy the list, and put the whole copy in shadow mode"));
        }
    }
}

/// Returns `true` if an earlier rule of its `match: first` list tests more than scheme, host, port and
/// crawler.
fn follows_non_host_sibling(
    drafts: &RuleDrafts<'_>,
    draft: &IntermediateRule<'_>,
    at: usize,
) -> bool {
    let Some(parent) = draft.parent else {
        return false;
    };
    drafts
        .all
        .get(parent)
        .is_some_and(IntermediateRule::is_first_match)
        && drafts
            .children(parent)
            .take_while(|(index, _)| *index < at)
            .filter(|(_, sibling)| sibling.mode == draft.mode)
            .any(|(_, sibling)| !FieldUsage::from_condition(&sibling.condition).host_only)
}

/// The groups of fields that a condition tests.
struct FieldUsage {
    names_content: bool,
    any_status: bool,
    host_only: bool,
    header_fields: HeaderFields,
    /// The stage at which all fields are known if response headers contain what they can; `None` if
    /// there are no fields.
    header_stage: Option<PolicyStage>,
}

impl FieldUsage {
    fn from_condition(condition: &Condition) -> Self {
        let mut usage = Self {
            names_content: false,
            any_status: false,
            host_only: true,
            header_fields: HeaderFields::default(),
            header_stage: None,
        };
        condition.for_each_field(&mut |field| {
            usage.header_stage = usage.header_stage.max(Some(field.earliest_stage()));
            usage.header_fields.meta_robots |= *field == Field::MetaRobots;
            usage.header_fields.canonical |= *field == Field::Canonical;
            usage.names_content |= field.needs_content();
            usage.any_status |= field.allows_any_status();
            usage.host_only &= matches!(
                field,
                Field::Scheme | Field::Host | Field::Port | Field::Authority | Field::Crawler
            );
        });
        usage
    }
}

/// Returns the first stage at which a condition may be decided: one part may decide the whole.
fn first_decidable_stage(condition: &Condition) -> PolicyStage {
    match condition {
        Condition::Always => PolicyStage::Request,
        Condition::All(parts) | Condition::Any(parts) => parts
            .iter()
            .map(first_decidable_stage)
            .min()
            .unwrap_or(PolicyStage::Request),
        Condition::Not(part) => first_decidable_stage(part),
        Condition::Atom(atom) => atom.field.earliest_stage(),
    }
}
