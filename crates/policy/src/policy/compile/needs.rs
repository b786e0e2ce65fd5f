//! The features that a policy needs. Requests and responses skip the work for those it does not.

use std::collections::BTreeSet;

use crate::policy::decide::DocumentNeeds;
use crate::policy::field::Field;
use crate::policy::options::recrawl::{AFTER_ERROR, MIN_INTERVAL};
use crate::policy::options::removal;
use crate::policy::options::schema::{
    BUDGET_NEW_URLS, DUPLICATE, MAX_DEPTH, NOINDEX, NONCANONICAL, ROBOTS_USAGE, UNMODIFIED,
};
use crate::policy::options::{OptionSources, OptionValue};
use crate::policy::rule::{EnforcementMode, PolicyStage, Rule};

/// Returns `true` if a rule, including those in shadow mode, or an option uses the ledger.
pub(super) fn needs_ledger(sources: OptionSources<'_>) -> bool {
    !sources.spaces.all().is_empty()
        || [MIN_INTERVAL, AFTER_ERROR, BUDGET_NEW_URLS]
            .into_iter()
            .any(|index| sources.ever_sets(index))
        || compares_content(sources)
        || uses_depth(sources)
        || removal::OPTIONS
            .into_iter()
            .any(|index| sources.is_assigned(index))
}

/// Returns `true` if `max_depth` can be set, or a rule tests the depth.
pub(super) fn uses_depth(sources: OptionSources<'_>) -> bool {
    sources.ever_sets(MAX_DEPTH)
        || sources
            .rules
            .iter()
            .any(|rule| tests_field(rule, &Field::Depth))
}

/// Returns `true` if documents are compared with earlier ones.
pub(super) fn compares_content(sources: OptionSources<'_>) -> bool {
    sources.ever_checks(UNMODIFIED) || sources.ever_checks(DUPLICATE)
}

/// Returns what rules, including those in shadow mode, and options need of documents.
pub(super) fn document_needs(sources: OptionSources<'_>) -> DocumentNeeds {
    let mut needs = DocumentNeeds {
        checks: sources.ever_checks(NOINDEX)
            || sources.ever_checks(NONCANONICAL)
            || sources.ever_gives_links(),
        links: sources.ever_gives_links(),
        ..DocumentNeeds::default()
    };
    for rule in sources.rules {
        if rule.mode != EnforcementMode::Disabled {
            needs.rules |= rule.active_stages.contains(PolicyStage::Document);
            needs.body_prefix |= tests_field(rule, &Field::BodyPrefix);
        }
    }
    needs
}

/// Returns the uses that rules name with `usage.NAME`, including those in shadow mode, and those in
/// `robots.usage`.
pub(super) fn usage_purposes(sources: OptionSources<'_>) -> Box<[Box<str>]> {
    let mut names = BTreeSet::new();
    for (_, value) in sources.possible_values(ROBOTS_USAGE) {
        if let OptionValue::List(items) = value {
            names.extend(items.iter().filter_map(OptionValue::as_text).map(Box::from));
        }
    }
    for condition in sources.rules.iter().filter_map(Rule::condition) {
        condition.for_each_field(&mut |field| {
            if let Field::Usage(name) = field {
                names.insert(name.clone());
            }
        });
    }
    names.into_iter().collect()
}

fn tests_field(rule: &Rule, wanted: &Field) -> bool {
    let mut found = false;
    if let Some(condition) = rule.condition() {
        condition.for_each_field(&mut |field| found |= field == wanted);
    }
    found
}
