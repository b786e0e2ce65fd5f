//! When each rule runs, and which responses it judges (policy.md section 4).

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::policy::condition::Condition;
use crate::policy::field::Field;
use crate::policy::rule::{EnforcementMode, HeaderFields, HeaderStages, PolicyStage};
use crate::policy::source::tree::{SourceFilter, SourceRuleBody};

use super::drafts::{RuleDraft, RuleDrafts, RuleScope};

/// The place of a rule in the order of the stages.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageBounds {
    /// The first stage at which it may run.
    pub(super) floor: PolicyStage,
    /// The stage at which every fact that it and the groups around it name is known.
    pub(super) stage: PolicyStage,
    /// The same two if headers give what they can.
    pub(super) with_headers: HeaderStageBounds,
    /// What headers would have to give for that: for the stage, and for the floor.
    required_headers: HeaderFields,
    required_floor_headers: HeaderFields,
    /// The first stage at which its condition and the guards around it could be decided.
    pub(super) earliest: PolicyStage,
    /// It judges 2xx with content only.
    pub(super) content_only: bool,
    /// It, or a group around it, names `status` or a header.
    any_status: bool,
    /// It, the groups around it, what chooses between it and others and what stops before it name scheme, host, port
    /// and crawler only.
    pub(super) host_only: bool,
    /// It stands in a `match: first` list.
    pub(super) in_first_match: bool,
    /// What its direct children share, if it is `match: first`.
    pub(super) first_match: Option<FirstMatchBounds>,
}

/// When a rule runs if headers give what they can.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderStageBounds {
    floor: PolicyStage,
    pub(super) stage: PolicyStage,
}

impl StageBounds {
    /// When it runs if headers give what else the document says; none if that changes nothing.
    pub(super) fn header_stages(&self) -> Option<HeaderStages> {
        let HeaderStageBounds { floor, stage } = self.with_headers;
        let earlier = stage < self.stage || floor < self.floor;
        earlier.then_some(HeaderStages {
            earliest_stage: (self.required_floor_headers, floor),
            stage: (self.required_headers, stage),
        })
    }
}

/// What the direct children of a `match: first` group name together.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstMatchBounds {
    /// The stage at which all of them run.
    pub(super) stage: PolicyStage,
    /// The same if headers give what they can.
    header_stage: PolicyStage,
    required_headers: HeaderFields,
    names_content: bool,
    any_status: bool,
}

/// Places every rule.
pub(super) fn compute_stage_bounds(
    drafts: &RuleDrafts<'_>,
    problems: &mut Problems,
) -> Vec<StageBounds> {
    let mut placings: Vec<StageBounds> = Vec::with_capacity(drafts.all.len());
    let mut veiled = false;
    let mut home = RuleScope::Document;
    for (at, draft) in drafts.all.iter().enumerate() {
        let before = problems.enter_rule(Some(draft.source.name().clone()));
        // A stop never reaches over the end of its list.
        veiled &= home == draft.scope;
        home = draft.scope;
        let outermost = if home == RuleScope::Global {
            GLOBAL_BOUNDS
        } else {
            OUTERMOST_BOUNDS
        };
        let above = draft
            .parent
            .and_then(|parent| placings.get(parent))
            .copied()
            .unwrap_or(outermost);
        let placing = rule_bounds(draft, &above, problems);
        let first = first_match_place(draft)
            .map(|place| first_match_bounds(drafts, at, &placing, place, problems));
        let connects = placing.host_only && !veiled && !follows_non_host_sibling(drafts, draft, at);
        veiled |= !connects && ends_stage(draft) && placing.stage == PolicyStage::Request;
        placings.push(StageBounds {
            first_match: first,
            host_only: connects,
            ..placing
        });
        problems.enter_rule(before);
    }
    placings
}

/// What stands around the outermost rules.
const OUTERMOST_BOUNDS: StageBounds = StageBounds {
    floor: PolicyStage::Request,
    stage: PolicyStage::Request,
    with_headers: HeaderStageBounds {
        floor: PolicyStage::Request,
        stage: PolicyStage::Request,
    },
    required_headers: HeaderFields {
        meta_robots: false,
        canonical: false,
    },
    required_floor_headers: HeaderFields {
        meta_robots: false,
        canonical: false,
    },
    earliest: PolicyStage::Request,
    content_only: false,
    any_status: false,
    host_only: true,
    in_first_match: false,
    first_match: None,
};

/// What stands around the outermost rules of the global space: they are `match: first`, and ask nothing but the host.
const GLOBAL_BOUNDS: StageBounds = StageBounds {
    first_match: Some(FirstMatchBounds {
        stage: PolicyStage::Request,
        header_stage: PolicyStage::Request,
        required_headers: HeaderFields {
            meta_robots: false,
            canonical: false,
        },
        names_content: false,
        any_status: false,
    }),
    ..OUTERMOST_BOUNDS
};

fn rule_bounds(draft: &RuleDraft<'_>, above: &StageBounds, problems: &mut Problems) -> StageBounds {
    let names = FieldUsage::from_condition(&draft.condition);
    let own = draft.condition.stage();
    let explicit = draft.source.stage.as_ref();
    let facts = above.stage.max(own.unwrap_or(PolicyStage::Request));
    let early = above
        .with_headers
        .stage
        .max(names.header_stage.unwrap_or(PolicyStage::Request));
    if let Some(stage) = explicit.filter(|stage| stage.value < early) {
        let word = stage.value.as_str();
        let message = format!(
            "`stage: {word}` is too early: facts that the rule, or a group around it, tests are known only later"
        );
        let problem = Problem::error(&stage.place, message).with_found(word);
        problems
            .push(problem.with_help(format!("write `stage: {}`, or remove it", early.as_str())));
    }
    check_soft_error_stage(draft, facts, problems);
    let explicit = draft.explicit_stage().unwrap_or(PolicyStage::Request);
    let list = above.first_match;
    let in_list = list.map_or(PolicyStage::Request, |list| list.stage);
    let floor = above.floor.max(explicit).max(in_list);
    let early_in_list = list.map_or(PolicyStage::Request, |list| list.header_stage);
    let early_floor = above.with_headers.floor.max(explicit).max(early_in_list);
    let in_headed_list = list.map_or(HeaderFields::default(), |list| list.required_headers);
    // A condition that names no fact counts as naming those of its siblings.
    let siblings = list.filter(|_| own.is_none());
    let content = names.names_content || siblings.is_some_and(|list| list.names_content);
    let lifts =
        above.any_status || names.any_status || siblings.is_some_and(|list| list.any_status);
    StageBounds {
        floor,
        stage: facts.max(floor),
        with_headers: HeaderStageBounds {
            floor: early_floor,
            stage: early.max(early_floor),
        },
        required_headers: in_headed_list
            .union(above.required_headers)
            .union(names.header_fields),
        required_floor_headers: in_headed_list.union(above.required_floor_headers),
        earliest: above
            .earliest
            .max(earliest_stage(&draft.condition))
            .max(early_floor),
        content_only: content && !lifts,
        any_status: lifts,
        host_only: above.host_only && names.host_only,
        in_first_match: list.is_some(),
        first_match: None,
    }
}

/// `as` is for the document stage, and only a rule that says so, or names what a document says, is one of that stage.
fn check_soft_error_stage(draft: &RuleDraft<'_>, facts: PolicyStage, problems: &mut Problems) {
    let SourceRuleBody::Filter(SourceFilter {
        soft_error: Some(soft),
        ..
    }) = &draft.source.body
    else {
        return;
    };
    let said = draft
        .source
        .stage
        .as_ref()
        .map(|stage| stage.value)
        .max(Some(facts));
    if said != Some(PolicyStage::Document) {
        let message =
            "`as` applies only at the document stage, and this rule tests nothing in the document";
        problems.push(Problem::error(&soft.place, message).with_help("add `stage: document`"));
    }
}

/// Whether a rule ends its stage for those behind it: at a CONNECT nobody could say whether they run.
fn ends_stage(draft: &RuleDraft<'_>) -> bool {
    match &draft.source.body {
        SourceRuleBody::Group(group) => group.stop && draft.mode == EnforcementMode::Enforce,
        SourceRuleBody::Filter(_) => false,
    }
}

fn first_match_place<'s>(draft: &RuleDraft<'s>) -> Option<&'s SourceLocation> {
    match &draft.source.body {
        SourceRuleBody::Group(group) => group.match_first.as_ref(),
        SourceRuleBody::Filter(_) => None,
    }
}

/// All direct children must run at one stage.
fn first_match_bounds(
    drafts: &RuleDrafts<'_>,
    at: usize,
    group: &StageBounds,
    place: &SourceLocation,
    problems: &mut Problems,
) -> FirstMatchBounds {
    let mut list = FirstMatchBounds {
        stage: group.stage,
        header_stage: group.with_headers.stage,
        required_headers: group.required_headers,
        names_content: false,
        any_status: false,
    };
    let mut stages: Vec<(&str, PolicyStage)> = Vec::new();
    let mode = drafts
        .all
        .get(at)
        .map_or(EnforcementMode::Enforce, |group| group.mode);
    // One that does not take part counts as absent; so does one in shadow, unless all of the list is.
    for (_, child) in drafts.children(at).filter(|(_, child)| child.mode == mode) {
        let names = FieldUsage::from_condition(&child.condition);
        list.names_content |= names.names_content;
        list.any_status |= names.any_status;
        list.required_headers = list.required_headers.union(names.header_fields);
        let explicit = child.explicit_stage();
        if let Some(stage) = child.condition.stage().max(explicit) {
            stages.push((
                child.source.name().as_str(),
                stage.max(group.stage).max(group.floor),
            ));
            list.header_stage = list.header_stage.max(
                names
                    .header_stage
                    .max(explicit)
                    .unwrap_or(group.with_headers.stage),
            );
        }
    }
    let latest = stages
        .iter()
        .map(|(_, stage)| *stage)
        .max()
        .unwrap_or(group.stage);
    if let Some((early, stage)) = stages.iter().find(|(_, stage)| *stage != latest) {
        let late = stages
            .iter()
            .find(|(_, stage)| *stage == latest)
            .map_or("", |(id, _)| id);
        let message = format!(
            "the rules of `match: first` must all run at the same stage; `{early}` runs at {}, `{late}` at {}",
            stage.as_str(),
            latest.as_str()
        );
        let instead = format!("add `stage: {}` to the group", latest.as_str());
        problems.push(Problem::error(place, message).with_help(instead));
    }
    let list = FirstMatchBounds {
        stage: latest.max(group.stage),
        ..list
    };
    if mode == EnforcementMode::Enforce {
        check_shadow_rules(drafts, at, &list, problems);
    }
    list
}

/// A rule in shadow that would move the rules beside it, if it were live: to another stage, or to other responses.
fn check_shadow_rules(
    drafts: &RuleDrafts<'_>,
    at: usize,
    list: &FirstMatchBounds,
    problems: &mut Problems,
) {
    let live = || {
        drafts
            .children(at)
            .map(|(_, child)| child)
            .filter(|child| child.mode == EnforcementMode::Enforce)
    };
    let moved = live().any(|child| child.condition.stage().is_none());
    for (_, child) in drafts
        .children(at)
        .filter(|(_, child)| child.mode == EnforcementMode::Shadow)
    {
        let names = FieldUsage::from_condition(&child.condition);
        let explicit = child.source.stage.as_ref().map(|stage| stage.value);
        let stage = child.condition.stage().max(explicit);
        let elsewhere = stage.is_some_and(|stage| {
            stage > list.stage || stage < list.stage && live().next().is_some()
        });
        let others = moved
            && (names.names_content && !list.names_content || names.any_status && !list.any_status);
        if elsewhere || others {
            let message = "if it were enforced, this rule would move the other rules of its `match: first` list to \
                           another stage or to other responses, so it cannot be in shadow mode alone";
            let problem =
                Problem::error(&child.source.place, message).with_rule(Some(child.source.name()));
            problems
                .push(problem.with_help("copy the list, and put the whole copy in shadow mode"));
        }
    }
}

/// Whether a rule before it in its `match: first` list names more than scheme, host, port and crawler.
fn follows_non_host_sibling(drafts: &RuleDrafts<'_>, draft: &RuleDraft<'_>, at: usize) -> bool {
    let Some(parent) = draft.parent else {
        return false;
    };
    drafts
        .all
        .get(parent)
        .is_some_and(RuleDraft::is_first_match)
        && drafts
            .children(parent)
            .take_while(|(place, _)| *place < at)
            .filter(|(_, sibling)| sibling.mode == draft.mode)
            .any(|(_, sibling)| !FieldUsage::from_condition(&sibling.condition).host_only)
}

/// Which groups of fields a condition names.
struct FieldUsage {
    names_content: bool,
    any_status: bool,
    host_only: bool,
    header_fields: HeaderFields,
    /// The stage at which all of them are known if headers give what they can; none if it names none.
    header_stage: Option<PolicyStage>,
}

impl FieldUsage {
    fn from_condition(condition: &Condition) -> Self {
        let mut names = Self {
            names_content: false,
            any_status: false,
            host_only: true,
            header_fields: HeaderFields::default(),
            header_stage: None,
        };
        condition.for_each_field(&mut |field| {
            names.header_stage = names.header_stage.max(Some(field.earliest_stage()));
            names.header_fields.meta_robots |= *field == Field::MetaRobots;
            names.header_fields.canonical |= *field == Field::Canonical;
            names.names_content |= field.needs_content();
            names.any_status |= field.allows_any_status();
            names.host_only &= matches!(
                field,
                Field::Scheme | Field::Host | Field::Port | Field::Authority | Field::Crawler
            );
        });
        names
    }
}

/// The first stage at which a condition could be decided: as soon as one part can decide the whole.
fn earliest_stage(condition: &Condition) -> PolicyStage {
    match condition {
        Condition::Always => PolicyStage::Request,
        Condition::All(parts) | Condition::Any(parts) => parts
            .iter()
            .map(earliest_stage)
            .min()
            .unwrap_or(PolicyStage::Request),
        Condition::Not(part) => earliest_stage(part),
        Condition::Atom(atom) => atom.field.earliest_stage(),
    }
}
