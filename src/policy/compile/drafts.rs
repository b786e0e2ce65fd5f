//! Drafts: the rules laid out flat, parents before children, with their conditions compiled.

use crate::policy::condition::Condition;
use crate::policy::rule::{Mode, PolicyStage};
use crate::policy::source::tree::{
    OnInvalidRule, Source, SourceBody, SourceCondition, SourceGlobal, SourceGuard, SourceRule,
};
use crate::policy::space::RuleRange;
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

/// Where a rule belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// To the document: it is for all crawlers.
    Document,
    /// To the space of this number.
    Space(usize),
    /// To the global space.
    Global,
}

/// A rule between its source and its compiled form.
pub(super) struct Draft<'s> {
    /// As written.
    pub(super) source: &'s SourceRule,
    /// Where it belongs.
    pub(super) home: Home,
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
        let drafts = Self {
            all: Vec::new(),
            disabled: 0,
        };
        let home = Home::Document;
        let mut layout = Layout {
            drafts,
            lists,
            problems,
            on_invalid: source.on_invalid_rule,
            home,
        };
        layout.list(&source.rules, None, Mode::Enforce);
        for (place, space) in source.spaces.iter().enumerate() {
            layout.home = Home::Space(place);
            layout.list(&space.rules, None, Mode::Enforce);
        }
        layout.home = Home::Global;
        if let Some(SourceGlobal::Rules(rules)) = source.global.as_ref().map(|global| &global.value)
        {
            layout.list(rules, None, Mode::Enforce);
        }
        layout.drafts
    }

    /// The stretch of the rules that belong together.
    pub(super) fn range(&self, home: Home) -> RuleRange {
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let from = self
            .all
            .iter()
            .position(|draft| draft.home == home)
            .unwrap_or(0);
        let to = self
            .all
            .iter()
            .rposition(|draft| draft.home == home)
            .map_or(from, |last| last + 1);
        RuleRange {
            from: number(from),
            to: number(to),
        }
    }

    /// Those among which a rule is chosen, if it stands in a `match: first` list.
    pub(super) fn rivals(&self, draft: &Draft<'s>) -> Option<Vec<&Draft<'s>>> {
        match draft.parent {
            Some(parent) => {
                let first = self.all.get(parent).is_some_and(Draft::is_first_list);
                first.then(|| self.children(parent).map(|(_, child)| child).collect())
            }
            None if draft.home == Home::Global => Some(self.outermost(Home::Global).collect()),
            None => None,
        }
    }

    /// The rules of a home that stand in no group.
    pub(super) fn outermost(&self, home: Home) -> impl Iterator<Item = &Draft<'s>> {
        self.all
            .iter()
            .filter(move |draft| draft.home == home && draft.parent.is_none())
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

impl Draft<'_> {
    /// Whether it is `match: first`.
    pub(super) fn is_first_list(&self) -> bool {
        matches!(&self.source.body, SourceBody::Group(group) if group.first.is_some())
    }

    /// The stage for which it waits by its own word: `stage`, or that of `as`.
    pub(super) fn waits_for(&self) -> Option<PolicyStage> {
        let soft =
            matches!(&self.source.body, SourceBody::Filter(filter) if filter.soft_error.is_some());
        let of_soft = soft.then_some(PolicyStage::Document);
        self.source
            .stage
            .as_ref()
            .map(|stage| stage.value)
            .max(of_soft)
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
    home: Home,
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
        let (home, end) = (self.home, place + 1);
        self.drafts.all.push(Draft {
            source: rule,
            home,
            parent,
            end,
            condition,
            mode,
        });
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
        let Some(source) = condition_of(rule) else {
            return (Condition::Always, Vec::new());
        };
        let mut conditions = Conditions {
            lists: &mut *self.lists,
            problems: &mut *self.problems,
            invalid: Vec::new(),
        };
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
            invalid
                .iter_mut()
                .for_each(|problem| problem.severity = Severity::Warning);
            let message =
                "the rule and all in it is disabled, since its condition cannot be compiled";
            invalid.push(Problem::warning(&rule.place, message));
        }
        invalid
            .into_iter()
            .for_each(|problem| self.problems.push(problem));
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
