//! Compiles the expressions that a request would otherwise have to compile many of at once.

use crate::policy::condition::{AtomTest, Condition};
use crate::policy::expression::Expression;
use crate::policy::field::Field;
use crate::policy::index::PolicyIndex;
use crate::policy::pattern::TextKind;
use crate::policy::rule::Rule;

/// The number of expressions of one rule up to which they are compiled when they are first needed.
const MAX_DEFERRED_IN_RULE: usize = 8;

/// Compiles the expressions that every request needs: of the rules that the index never rules out. Of
/// the others, those of a rule with many, and those on hosts, since a CONNECT visits every rule.
pub(crate) fn prepare_expressions(rules: &[Rule], index: &PolicyIndex) {
    let selective = index.selective_rules(rules);
    for (rule, is_selective) in rules.iter().zip(selective) {
        let mut found = Vec::new();
        if let Some(condition) = rule.condition() {
            collect_expressions(condition, &mut found);
        }
        let is_deferred = is_selective && found.len() <= MAX_DEFERRED_IN_RULE;
        for (field, expression) in found {
            if !is_deferred || matches!(field, Field::Host | Field::Authority) {
                expression.prepare();
            }
        }
    }
}

fn collect_expressions<'p>(condition: &'p Condition, found: &mut Vec<(&'p Field, &'p Expression)>) {
    match condition {
        Condition::Always => {}
        Condition::All(parts) | Condition::Any(parts) => parts
            .iter()
            .for_each(|part| collect_expressions(part, found)),
        Condition::Not(part) => collect_expressions(part, found),
        Condition::Atom(atom) => {
            if let AtomTest::Text(test) = &atom.test
                && let TextKind::Regex(all) = &test.kind
            {
                found.extend(all.iter().map(|expression| (&atom.field, expression)));
            }
        }
    }
}
