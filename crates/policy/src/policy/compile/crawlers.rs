//! The crawlers that a policy names. The caller compares them with the configuration, which defines
//! the crawlers.

use crate::policy::field::Field;
use crate::policy::source::tree::{
    LocatedText, SourceAtom, SourceCondition, SourceGuard, SourcePolicy, SourceRule,
    SourceRuleBody, SourceTest, TextTestKind,
};

/// Returns the crawlers of spaces and assertions, and the complete names in conditions on the
/// crawler, except in disabled rules.
pub(super) fn collect_names(source: &SourcePolicy) -> Vec<LocatedText> {
    let mut names = Vec::new();
    source
        .rules
        .iter()
        .for_each(|rule| collect_from_rule(rule, &mut names));
    for space in &source.spaces {
        names.extend(space.crawlers.iter().cloned());
        space
            .rules
            .iter()
            .for_each(|rule| collect_from_rule(rule, &mut names));
    }
    for assertion in &source.assertions {
        names.extend(assertion.crawler.as_ref().map(|crawler| LocatedText {
            place: assertion.place.clone(),
            value: (&**crawler).into(),
        }));
    }
    names
}

fn collect_from_rule(rule: &SourceRule, names: &mut Vec<LocatedText>) {
    if !rule.enabled {
        return;
    }
    match &rule.body {
        SourceRuleBody::Filter(filter) => collect_from_condition(&filter.condition, names),
        SourceRuleBody::Group(group) => {
            match &group.guard {
                SourceGuard::When(condition) | SourceGuard::Unless(condition) => {
                    collect_from_condition(condition, names);
                }
                SourceGuard::Always => {}
            }
            group
                .rules
                .iter()
                .for_each(|rule| collect_from_rule(rule, names));
        }
    }
}

fn collect_from_condition(condition: &SourceCondition, names: &mut Vec<LocatedText>) {
    condition.for_each_atom(&mut |atom: &SourceAtom| {
        if let (Some(Field::Crawler), SourceTest::Text(TextTestKind::Exact, values)) =
            (&atom.field, &atom.test)
        {
            names.extend(values.iter().cloned());
        }
    });
}
