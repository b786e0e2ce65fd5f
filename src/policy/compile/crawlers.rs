//! The crawlers that a policy names. Which there are is the configuration's to say, so nobody here can tell whether a
//! name is misspelt; who reads both can.

use crate::policy::field::Field;
use crate::policy::source::tree::{
    Source, SourceAtom, SourceBody, SourceCondition, SourceGuard, SourceRule, SourceTest, Text,
    TextWord,
};

/// The crawlers of spaces and the whole names in conditions on the crawler, those of disabled rules aside.
pub(super) fn named(source: &Source) -> Vec<Text> {
    let mut names = Vec::new();
    source
        .rules
        .iter()
        .for_each(|rule| of_rule(rule, &mut names));
    for space in &source.spaces {
        names.extend(space.crawlers.iter().cloned());
        space
            .rules
            .iter()
            .for_each(|rule| of_rule(rule, &mut names));
    }
    names
}

fn of_rule(rule: &SourceRule, names: &mut Vec<Text>) {
    if !rule.enabled {
        return;
    }
    match &rule.body {
        SourceBody::Filter(filter) => of_condition(&filter.condition, names),
        SourceBody::Group(group) => {
            match &group.guard {
                SourceGuard::When(condition) | SourceGuard::Unless(condition) => {
                    of_condition(condition, names);
                }
                SourceGuard::Always => {}
            }
            group.rules.iter().for_each(|rule| of_rule(rule, names));
        }
    }
}

fn of_condition(condition: &SourceCondition, names: &mut Vec<Text>) {
    condition.each_atom(&mut |atom: &SourceAtom| {
        if let (Some(Field::Crawler), SourceTest::Text(TextWord::Exact, values)) =
            (&atom.field, &atom.test)
        {
            names.extend(values.iter().cloned());
        }
    });
}
