//! Which uses a policy asks sites about: one that asks of none spares each request the question.

use std::collections::BTreeSet;

use crate::policy::Policy;
use crate::policy::field::Field;
use crate::policy::options::{Value, schema};
use crate::policy::rule::Rule;

/// The uses that a rule names with `usage.NAME`, in shadow too, and those that anything sets `robots.usage` to.
pub(super) fn asked_for(policy: &Policy) -> Box<[Box<str>]> {
    let mut names = BTreeSet::new();
    for (_, value) in policy.values_of(schema::USAGE) {
        let items = if let Value::List(items) = value {
            &**items
        } else {
            &[]
        };
        names.extend(items.iter().filter_map(|item| {
            if let Value::Text(name) = item {
                Some(name.clone())
            } else {
                None
            }
        }));
    }
    policy
        .rules
        .iter()
        .for_each(|rule| named_by(rule, &mut names));
    names.into_iter().collect()
}

fn named_by(rule: &Rule, names: &mut BTreeSet<Box<str>>) {
    let Some(condition) = rule.condition() else {
        return;
    };
    condition.each_field(&mut |field| {
        if let Field::Usage(name) = field {
            names.insert(name.clone());
        }
    });
}
