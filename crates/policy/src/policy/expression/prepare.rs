//! Compiles the expressions that a request would otherwise have to compile many of at once.

use crate::policy::condition::{AtomTest, Condition};
use crate::policy::expression::Expression;
use crate::policy::field::Field;
use crate::policy::index::PolicyIndex;
use crate::policy::list::{ListItems, PolicyList};
use crate::policy::pattern::TextTest;
use crate::policy::rule::Rule;

/// The number of expressions up to which those that a request may need together are compiled when
/// they are first needed. That takes about 60 µs for each, on the thread of the request.
const MAX_DEFERRED: usize = 64;

/// Compiles the expressions that every request needs: of the rules that the index never rules out. Of
/// the others, those of which a request may need many at once, and those on what is known of a
/// tunnel, since a CONNECT visits every rule.
///
/// A test or list with many expressions tries only those of which the URL contains a literal. They
/// are compiled when they are first needed, as those of a rule that the index rules out.
pub(crate) fn prepare_expressions(rules: &[Rule], lists: &[PolicyList], index: &PolicyIndex) {
    let together = index.visited_together(rules);
    for (rule, together) in rules.iter().zip(together) {
        let mut found = Vec::new();
        if let Some(condition) = rule.condition() {
            for_each_test(condition, lists, &mut |field, test| {
                let needed = needed_expressions(field, test);
                found.extend(needed.into_iter().map(|expression| (field, expression)));
            });
        }
        let is_deferred =
            together.is_some_and(|rules| rules.saturating_mul(found.len()) <= MAX_DEFERRED);
        for (field, expression) in found {
            if !is_deferred || field.is_visible_in_tunnels() {
                expression.prepare();
            }
        }
    }
}

/// Returns the expressions that a text of the field may have to be compared with, whatever it
/// contains.
fn needed_expressions<'p>(field: &Field, test: &'p TextTest) -> Vec<&'p Expression> {
    let is_ascii = field.is_url_part() && !matches!(field, Field::Param(_));
    if is_ascii {
        test.unselective_expressions()
    } else {
        test.kind.expressions().iter().collect()
    }
}

fn for_each_test<'p>(
    condition: &'p Condition,
    lists: &'p [PolicyList],
    visit: &mut dyn FnMut(&'p Field, &'p TextTest),
) {
    match condition {
        Condition::Always => {}
        Condition::All(parts) | Condition::Any(parts) => parts
            .iter()
            .for_each(|part| for_each_test(part, lists, visit)),
        Condition::Not(part) => for_each_test(part, lists, visit),
        Condition::Atom(atom) => match &atom.test {
            AtomTest::Text(test) => visit(&atom.field, test),
            AtomTest::InList(list) => {
                if let Some(ListItems::Patterns(patterns)) =
                    lists.get(*list).map(|list| &list.items)
                {
                    patterns
                        .tests()
                        .iter()
                        .for_each(|test| visit(&atom.field, test));
                }
            }
            AtomTest::Number(_) | AtomTest::Address(_) => {}
        },
    }
}
