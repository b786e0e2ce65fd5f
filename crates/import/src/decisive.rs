//! The tests of conditions one by one: the same policy with another test in the place of one, to find a case that
//! notices the difference.

use crate::draft::{
    ConditionDraft, GlobalSpaceDraft, GuardDraft, OptionDrafts, PolicyDraft, RuleDraft,
    RuleDraftBody, RuleItem, TestDraft,
};

/// A policy that differs by one test of one rule.
pub(crate) struct OtherTest {
    /// The id of the rule.
    pub rule: String,
    /// The options that the rule sets.
    pub options: OptionDrafts,
    pub replaced: ReplacedTest,
    /// The policy with the other test.
    pub draft: PolicyDraft,
}

/// A test that was replaced in a condition.
pub(crate) struct ReplacedTest {
    /// The test as it was.
    pub test: ConditionDraft,
    /// The test that is in its place.
    pub other: ConditionDraft,
    /// The conditions under which it depends on the test whether the rule applies.
    pub context: Vec<ConditionDraft>,
}

/// A replacement of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// Words that no URL of the source has. A test that is not of words becomes one that never holds.
    OtherWords,
    /// A condition that never holds.
    Never,
}

/// Returns the policy with another test in the place of the test of this number. Returns `None` if there are fewer tests.
pub(crate) fn other_test(
    draft: &PolicyDraft,
    number: usize,
    replacement: Replacement,
) -> Option<OtherTest> {
    let mut changed = draft.clone();
    let mut search = TestSearch {
        remaining: number,
        replacement,
    };
    let (rule, options, replaced) = rule_lists(&mut changed)
        .into_iter()
        .find_map(|rules| search.replace_in_rules(rules))?;
    Some(OtherTest {
        rule,
        options,
        replaced,
        draft: changed,
    })
}

/// Returns the number of tests in the conditions of all rules.
pub(crate) fn count_tests(draft: &PolicyDraft) -> usize {
    let mut search = TestSearch {
        remaining: usize::MAX,
        replacement: Replacement::Never,
    };
    for rules in rule_lists(&mut draft.clone()) {
        let found = search.replace_in_rules(rules);
        debug_assert!(found.is_none(), "there are fewer tests than numbers");
    }
    usize::MAX - search.remaining
}

fn rule_lists(draft: &mut PolicyDraft) -> Vec<&mut Vec<RuleItem>> {
    let mut lists = vec![&mut draft.rules];
    lists.extend(draft.spaces.iter_mut().map(|space| &mut space.rules));
    if let Some(GlobalSpaceDraft::Rules(rules)) = &mut draft.global_space {
        lists.push(rules);
    }
    lists
}

/// The id of a rule, the options that it sets, and the test that was replaced in it.
type RuleReplacement = (String, OptionDrafts, ReplacedTest);

/// Counts the tests down to the one that is replaced.
struct TestSearch {
    remaining: usize,
    replacement: Replacement,
}

impl TestSearch {
    fn replace_in_rules(&mut self, rules: &mut [RuleItem]) -> Option<RuleReplacement> {
        rules.iter_mut().find_map(|item| match item {
            RuleItem::Rule(rule) => self.replace_in_rule(rule),
            RuleItem::Comment(_) => None,
        })
    }

    fn replace_in_rule(&mut self, rule: &mut RuleDraft) -> Option<RuleReplacement> {
        let (condition, options) = match &mut rule.body {
            RuleDraftBody::Filter(filter) => (Some(&mut filter.condition), None),
            RuleDraftBody::Group(group) => match &mut group.guard {
                GuardDraft::Always => (None, None),
                GuardDraft::When(condition) | GuardDraft::Unless(condition) => {
                    (Some(condition), Some(&group.set))
                }
            },
        };
        let replaced = condition.and_then(|condition| self.replace_in_condition(condition));
        if let Some(replaced) = replaced {
            let options = options.cloned().unwrap_or_default();
            return Some((rule.id.clone(), options, replaced));
        }
        match &mut rule.body {
            RuleDraftBody::Group(group) => self.replace_in_rules(&mut group.rules),
            RuleDraftBody::Filter(_) => None,
        }
    }

    fn replace_in_condition(&mut self, condition: &mut ConditionDraft) -> Option<ReplacedTest> {
        match condition {
            ConditionDraft::Always => None,
            ConditionDraft::All(parts) => self.replace_in_parts(parts, |part| part),
            ConditionDraft::Any(parts) => self.replace_in_parts(parts, ConditionDraft::negated),
            ConditionDraft::Not(part) => self.replace_in_condition(part),
            ConditionDraft::Test(_) if self.remaining > 0 => {
                self.remaining -= 1;
                None
            }
            ConditionDraft::Test(test) => {
                let other = self.other(test);
                Some(ReplacedTest {
                    test: std::mem::replace(condition, other.clone()),
                    other,
                    context: Vec::new(),
                })
            }
        }
    }

    /// Replaces a test in one of several parts. It matters if the others are as `matters` makes them.
    fn replace_in_parts(
        &mut self,
        parts: &mut [ConditionDraft],
        matters: fn(ConditionDraft) -> ConditionDraft,
    ) -> Option<ReplacedTest> {
        let mut found = parts
            .iter_mut()
            .enumerate()
            .find_map(|(at, part)| Some((at, self.replace_in_condition(part)?)));
        if let Some((changed, replaced)) = &mut found {
            let others = parts.iter().enumerate().filter(|(at, _)| at != changed);
            let others = others.map(|(_, part)| matters(part.clone()));
            replaced.context.extend(others);
        }
        found.map(|(_, replaced)| replaced)
    }

    fn other(&self, test: &TestDraft) -> ConditionDraft {
        match self.replacement {
            Replacement::OtherWords => with_other_words(test),
            Replacement::Never => ConditionDraft::Always.negated(),
        }
    }
}

/// Returns the test with words that no URL of the source has. One that is not of words becomes one that never holds.
fn with_other_words(test: &TestDraft) -> ConditionDraft {
    let is_list = test.field == "in" || test.kind == Some("in");
    let values: Vec<String> = test.values.iter().map(|value| other_words(value)).collect();
    if is_list || values == test.values {
        return ConditionDraft::Always.negated();
    }
    ConditionDraft::Test(TestDraft {
        values,
        ..test.clone()
    })
}

fn other_words(value: &str) -> String {
    let is_other = |c: char| !c.is_ascii_alphabetic();
    let pieces = value.split_inclusive(is_other);
    let words = pieces.map(|piece| {
        let word = piece.trim_end_matches(is_other);
        if word.len() > 1 && !matches!(word, "http" | "https") {
            format!("qz{piece}")
        } else {
            piece.to_owned()
        }
    });
    words.collect()
}
