//! Drafts: the rules laid out flat, parents before children, with their conditions compiled.

use crate::policy::condition::Condition;
use crate::policy::rule::Mode;
use crate::policy::source::tree::{
    OnInvalidRule, Source, SourceBody, SourceCondition, SourceGuard, SourceRule,
};
use crate::vocab::problem::{Problem, Severity};
use crate::vocab::problems::Problems;

use super::condition::Conditions;
use super::lists::Lists;

/// All rules of a policy.
pub(super) struct Drafts<'s> {
    /// In document order.
    pub(super) all: Vec<Draft<'s>>,
    /// How many rules `on_invalid_rule: disable` disabled, those in them aside.
    pub(super) disabled: u32,
}

/// A rule between its source and its compiled form.
pub(super) struct Draft<'s> {
    /// As written.
    pub(super) source: &'s SourceRule,
    /// The group it stands in.
    pub(super) parent: Option<usize>,
    /// The place after the last rule that it contains.
    pub(super) end: usize,
    /// Its condition; `always` where it has none.
    pub(super) condition: Condition,
    /// Whether it takes part.
    pub(super) mode: Mode,
}

impl<'s> Drafts<'s> {
    /// Lays out the rules of a policy.
    pub(super) fn of(source: &'s Source, lists: &mut Lists, problems: &mut Problems) -> Self {
        let drafts = Self { all: Vec::new(), disabled: 0 };
        let mut layout = Layout { drafts, lists, problems, on_invalid: source.on_invalid_rule };
        layout.list(&source.rules, None, Mode::Enforce);
        layout.drafts
    }

    /// The direct children of a rule.
    pub(super) fn children(&self, place: usize) -> impl Iterator<Item = (usize, &Draft<'s>)> {
        let end = self.all.get(place).map_or(0, |draft| draft.end);
        let mut at = place + 1;
        std::iter::from_fn(move || {
            let draft = self.all.get(at).filter(|_| at < end)?;
            let here = at;
            at = draft.end;
            Some((here, draft))
        })
    }
}

/// The condition of a rule, if it has one.
pub(super) fn condition_of(rule: &SourceRule) -> Option<&SourceCondition> {
    match &rule.body {
        SourceBody::Filter(filter) => Some(&filter.condition),
        SourceBody::Group(group) => match &group.guard {
            SourceGuard::When(condition) | SourceGuard::Unless(condition) => Some(condition),
            SourceGuard::Always => None,
        },
    }
}

struct Layout<'s, 'a> {
    drafts: Drafts<'s>,
    lists: &'a mut Lists,
    problems: &'a mut Problems,
    on_invalid: OnInvalidRule,
}

impl<'s> Layout<'s, '_> {
    fn list(&mut self, rules: &'s [SourceRule], parent: Option<usize>, mode: Mode) {
        for rule in rules {
            self.rule(rule, parent, mode);
        }
    }

    fn rule(&mut self, rule: &'s SourceRule, parent: Option<usize>, around: Mode) {
        let before = self.problems.enter(Some(rule.name().clone()));
        let (condition, invalid) = self.condition(rule);
        let mode = mode(rule, around, &invalid);
        self.report(rule, invalid);
        let place = self.drafts.all.len();
        self.drafts.all.push(Draft { source: rule, parent, end: place + 1, condition, mode });
        if let SourceBody::Group(group) = &rule.body {
            self.list(&group.rules, Some(place), mode);
        }
        let end = self.drafts.all.len();
        if let Some(draft) = self.drafts.all.get_mut(place) {
            draft.end = end;
        }
        self.problems.enter(before);
    }

    fn condition(&mut self, rule: &SourceRule) -> (Condition, Vec<Problem>) {
        let Some(source) = condition_of(rule) else { return (Condition::Always, Vec::new()) };
        let mut conditions =
            Conditions { lists: &mut *self.lists, problems: &mut *self.problems, invalid: Vec::new() };
        let condition = conditions.compile(source);
        (condition, conditions.invalid)
    }

    /// Says what cannot be compiled, and what becomes of the rule.
    fn report(&mut self, rule: &SourceRule, mut invalid: Vec<Problem>) {
        if invalid.is_empty() {
            return;
        }
        if self.on_invalid == OnInvalidRule::Disable {
            self.drafts.disabled += 1;
            invalid.iter_mut().for_each(|problem| problem.severity = Severity::Warning);
            let message = "the rule and all in it is disabled, since its condition cannot be compiled";
            invalid.push(Problem::warning(&rule.place, message));
        }
        invalid.into_iter().for_each(|problem| self.problems.push(problem));
    }
}

/// A rule takes part if nothing around it and nothing of its own says otherwise.
fn mode(rule: &SourceRule, around: Mode, invalid: &[Problem]) -> Mode {
    match around {
        Mode::Disabled => Mode::Disabled,
        Mode::Enforce | Mode::Shadow if !rule.enabled || !invalid.is_empty() => Mode::Disabled,
        Mode::Enforce if rule.shadow.is_some() => Mode::Shadow,
        Mode::Enforce | Mode::Shadow => around,
    }
}
