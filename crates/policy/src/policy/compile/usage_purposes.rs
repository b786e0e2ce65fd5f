//! The uses whose permission a policy needs to know. Requests skip the evaluation of usage
//! preferences if there are none.

use std::collections::BTreeSet;

use crate::policy::Policy;
use crate::policy::field::Field;
use crate::policy::options::{OptionValue, schema};
use crate::policy::rule::Rule;

/// Collects the uses that rules name with `usage.NAME`, including those in shadow mode, and the
/// values of `robots.usage`.
pub(super) fn collect(policy: &Policy) -> Box<[Box<str>]> {
    let mut names = BTreeSet::new();
    for (_, value) in policy.possible_values(schema::ROBOTS_USAGE) {
        let items = if let OptionValue::List(items) = value {
            &**items
        } else {
            &[]
        };
        names.extend(items.iter().filter_map(|item| {
            if let OptionValue::Text(name) = item {
                Some(name.clone())
            } else {
                None
            }
        }));
    }
    policy
        .rules
        .iter()
        .for_each(|rule| collect_from_rule(rule, &mut names));
    names.into_iter().collect()
}

fn collect_from_rule(rule: &Rule, names: &mut BTreeSet<Box<str>>) {
    let Some(condition) = rule.condition() else {
        return;
    };
    condition.for_each_field(&mut |field| {
        if let Field::Usage(name) = field {
            names.insert(name.clone());
        }
    });
}
