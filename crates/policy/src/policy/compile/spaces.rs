//! Compiles crawl spaces: their rules and options, and the restrictions of the global space
//! (docs/policy/reference.md, "Crawl spaces").

use std::collections::BTreeMap;

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::rule_id::Slug;
use crate::policy::condition::Condition;
use crate::policy::field::Field;
use crate::policy::list::{ListKind, PolicyList};
use crate::policy::rule::{EnforcementMode, RuleClass};
use crate::policy::source::tree::{
    LocatedText, SourceGlobalSpace, SourceList, SourcePolicy, SourceRule, SourceRuleBody,
    SourceSpace,
};
use crate::policy::space::{GlobalSpace, Space, SpaceIndex, Spaces};

use super::drafts::{IntermediateRule, RuleDrafts, RuleScope, rule_condition};
use super::lists::compile_items;
use super::options::OptionCompiler;

pub(super) fn compile_spaces(
    source: &SourcePolicy,
    drafts: &RuleDrafts<'_>,
    options: &mut OptionCompiler,
    problems: &mut Problems,
) -> Spaces {
    check_unique(&source.spaces, problems);
    let all = source.spaces.iter().enumerate().map(|(at, space)| Space {
        name: space.name.value.clone(),
        crawlers: space
            .crawlers
            .iter()
            .map(|name| name.value.clone())
            .collect(),
        seeds: space
            .seeds
            .as_ref()
            .map(|seeds| compile_seeds(&space.name.value, seeds, problems)),
        rules: drafts.range(RuleScope::Space(at)),
        options: options.space_assignments(&space.options, problems),
        options_path: format!("spaces.{}.options", space.name.value).into(),
    });
    let all: Box<[Space]> = all.collect();
    let names = numbered(&source.spaces).flat_map(|(at, space)| {
        space
            .crawlers
            .iter()
            .map(move |name| (name.value.clone(), at))
    });
    let mut crawlers: Vec<(Box<str>, SpaceIndex)> = names.collect();
    crawlers.sort_unstable();
    Spaces {
        document_rules: drafts.range(RuleScope::Document),
        all,
        space_by_crawler: crawlers.into(),
        fallback: numbered(&source.spaces)
            .find(|(_, space)| space.crawlers.is_empty())
            .map(|(at, _)| at),
        global: match source.global.as_ref().map(|global| &global.value) {
            None => GlobalSpace::Undefined,
            Some(SourceGlobalSpace::Union) => GlobalSpace::Union,
            Some(SourceGlobalSpace::Rules(_)) => {
                GlobalSpace::Rules(drafts.range(RuleScope::Global))
            }
        },
    }
}

/// Compiles the seeds of a space to a list.
fn compile_seeds(space: &Slug, source: &SourceList, problems: &mut Problems) -> PolicyList {
    PolicyList {
        name: format!("spaces.{space}.seeds").into(),
        kind: ListKind::Urls,
        items: compile_items(ListKind::Urls, source, problems),
    }
}

fn numbered(spaces: &[SourceSpace]) -> impl Iterator<Item = (SpaceIndex, &SourceSpace)> {
    (0..u16::MAX).map(SpaceIndex).zip(spaces)
}

/// Checks that names are unique, that each crawler is in only one space, and that at most one space
/// has no crawlers.
fn check_unique(spaces: &[SourceSpace], problems: &mut Problems) {
    let mut names: BTreeMap<&str, &SourceLocation> = BTreeMap::new();
    let mut crawlers: BTreeMap<&str, &LocatedText> = BTreeMap::new();
    let mut fallback: Option<&SourceLocation> = None;
    for space in spaces {
        let name = space.name.value.as_str();
        let place = &space.name.place;
        if let Some(first) = names.insert(name, place) {
            let message = format!("a space with this name already exists at {first}");
            problems.push(Problem::error(place, message).with_found(name));
        }
        for crawler in &space.crawlers {
            if let Some(first) = crawlers.insert(&crawler.value, crawler) {
                let message = format!(
                    "a crawler can be in only one space, and this one is already in another at {}",
                    first.place
                );
                problems.push(Problem::error(&crawler.place, message).with_found(&*crawler.value));
            }
        }
        if space.crawlers.is_empty()
            && let Some(first) = fallback.replace(place)
        {
            let message = format!("a second space without `crawlers`; the first is at {first}");
            problems.push(
                Problem::error(place, message)
                    .with_found(name)
                    .with_help("list its `crawlers`"),
            );
        }
    }
}

/// Checks that the global space contains only domain rules, which do nothing but allow or refuse a
/// URL.
pub(super) fn check_global_rules(drafts: &RuleDrafts<'_>, problems: &mut Problems) {
    for draft in drafts
        .all
        .iter()
        .filter(|draft| draft.scope == RuleScope::Global)
    {
        let rule = draft.source;
        let misplaced = if is_domain_condition(&draft.condition) {
            None
        } else {
            find_offending_atom(rule)
        };
        let set = match &rule.body {
            SourceRuleBody::Group(group) => group.set.first().map(|option| &option.place),
            SourceRuleBody::Filter(_) => None,
        };
        let stage = rule.stage.as_ref().map(|stage| &stage.place);
        for place in [misplaced, set, stage].into_iter().flatten() {
            let message = "the global space can contain only domain rules: `host`, `domain`, `authority`, `port`";
            let problem = Problem::error(place, message).with_rule(Some(rule.name()));
            problems.push(problem.with_help("move other rules to `rules` or to a space"));
        }
    }
}

/// Returns the location of the first test that is not allowed in a domain rule. The field of a list
/// test depends on the list's kind, so that it is the fallback.
fn find_offending_atom(rule: &SourceRule) -> Option<&SourceLocation> {
    let mut named = None;
    let mut first = None;
    rule_condition(rule)?.for_each_atom(&mut |atom| {
        first.get_or_insert(&atom.place);
        if atom
            .field
            .as_ref()
            .is_some_and(|field| !is_domain_field(field))
        {
            named.get_or_insert(&atom.place);
        }
    });
    named.or(first)
}

/// Returns `true` if a condition uses only the fields of domain rules.
fn is_domain_condition(condition: &Condition) -> bool {
    let mut domain = true;
    condition.for_each_field(&mut |field| {
        domain &= is_domain_field(field);
    });
    domain
}

fn is_domain_field(field: &Field) -> bool {
    matches!(field, Field::Host | Field::Authority | Field::Port)
}

/// Classifies each rule. A rule without facts in a `match: first` list takes the class of its
/// siblings.
pub(super) fn classify_rules(drafts: &RuleDrafts<'_>) -> Vec<RuleClass> {
    let mut classes: Vec<RuleClass> = Vec::with_capacity(drafts.all.len());
    for draft in &drafts.all {
        let above = draft.parent.and_then(|parent| classes.get(parent)).copied();
        let parent_is_domain = above.unwrap_or(RuleClass::Domain) == RuleClass::Domain;
        let domain = parent_is_domain
            && is_domain_condition(&draft.condition)
            && has_domain_siblings_only(drafts, draft);
        classes.push(if domain {
            RuleClass::Domain
        } else {
            RuleClass::Other
        });
    }
    classes
}

fn has_domain_siblings_only(drafts: &RuleDrafts<'_>, draft: &IntermediateRule<'_>) -> bool {
    if draft.condition.stage().is_some() {
        return true;
    }
    let siblings = drafts.first_match_siblings(draft).unwrap_or_default();
    siblings
        .iter()
        .filter(|sibling| sibling.mode != EnforcementMode::Disabled)
        .all(|sibling| is_domain_condition(&sibling.condition))
}
