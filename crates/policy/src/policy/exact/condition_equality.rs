//! Equality of conditions of two policies.

use std::collections::HashMap;

use crate::policy::condition::{AtomTest, Condition};
use crate::policy::list::{ListItems, PolicyList};
use crate::policy::pattern::{TextKind, TextTest};

/// Compares conditions by what they test, not by their descriptions. Lists are equal if their items
/// and comparisons are.
pub(super) struct ConditionEquality<'p> {
    old: &'p [PolicyList],
    new: &'p [PolicyList],
    /// Results for the lists at two indices. Many rules may use a large list.
    lists: HashMap<(usize, usize), bool>,
}

impl<'p> ConditionEquality<'p> {
    pub(super) fn new(old: &'p [PolicyList], new: &'p [PolicyList]) -> Self {
        Self {
            old,
            new,
            lists: HashMap::new(),
        }
    }

    pub(super) fn are_equal(&mut self, old: &Condition, new: &Condition) -> bool {
        match (old, new) {
            (Condition::Always, Condition::Always) => true,
            (Condition::All(old), Condition::All(new))
            | (Condition::Any(old), Condition::Any(new)) => {
                old.len() == new.len()
                    && old
                        .iter()
                        .zip(new)
                        .all(|(old, new)| self.are_equal(old, new))
            }
            (Condition::Not(old), Condition::Not(new)) => self.are_equal(old, new),
            (Condition::Atom(old), Condition::Atom(new)) => {
                old.field == new.field && self.are_equal_tests(&old.test, &new.test)
            }
            (
                Condition::Always
                | Condition::All(_)
                | Condition::Any(_)
                | Condition::Not(_)
                | Condition::Atom(_),
                _,
            ) => false,
        }
    }

    fn are_equal_tests(&mut self, old: &AtomTest, new: &AtomTest) -> bool {
        match (old, new) {
            (AtomTest::Text(old), AtomTest::Text(new)) => are_equal_texts(old, new),
            (AtomTest::Number(old), AtomTest::Number(new)) => old == new,
            (AtomTest::Address(old), AtomTest::Address(new)) => old == new,
            (AtomTest::InList(old), AtomTest::InList(new)) => self.are_equal_lists(*old, *new),
            (
                AtomTest::Text(_)
                | AtomTest::Number(_)
                | AtomTest::Address(_)
                | AtomTest::InList(_),
                _,
            ) => false,
        }
    }

    fn are_equal_lists(&mut self, old: usize, new: usize) -> bool {
        let lists = self.old.get(old).zip(self.new.get(new));
        *self.lists.entry((old, new)).or_insert_with(|| {
            lists.is_some_and(|(old, new)| {
                old.kind == new.kind
                    && match (&old.items, &new.items) {
                        (ListItems::Patterns(old), ListItems::Patterns(new)) => {
                            let (old, new) = (old.tests(), new.tests());
                            old.len() == new.len()
                                && old
                                    .iter()
                                    .zip(new)
                                    .all(|(old, new)| are_equal_texts(old, new))
                        }
                        (old, new) => old == new,
                    }
            })
        })
    }
}

fn are_equal_texts(old: &TextTest, new: &TextTest) -> bool {
    old.case == new.case && old.form == new.form && are_equal_kinds(&old.kind, &new.kind)
}

fn are_equal_kinds(old: &TextKind, new: &TextKind) -> bool {
    match (old, new) {
        (TextKind::Literal(old_kind, old), TextKind::Literal(new_kind, new)) => {
            old_kind == new_kind && old == new
        }
        (TextKind::Regex(old), TextKind::Regex(new)) => {
            old.len() == new.len()
                && old
                    .iter()
                    .zip(new)
                    .all(|(old, new)| old.as_str() == new.as_str())
        }
        (TextKind::Count(old_kind, old), TextKind::Count(new_kind, new)) => {
            old_kind == new_kind && old == new
        }
        (TextKind::Literal(..) | TextKind::Regex(_) | TextKind::Count(..), _) => false,
    }
}
