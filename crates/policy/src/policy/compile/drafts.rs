//! Drafts: the rules laid out flat, parents before children, with their conditions compiled.

use crate::diagnostics::problem::{Problem, Severity};
use crate::diagnostics::problems::Problems;
use crate::policy::condition::Condition;
use crate::policy::rule::{EnforcementMode, PolicyStage};
use crate::policy::source::tree::{
    OnInvalidRule, SourceCondition, SourceGlobalSpace, SourceGuard, SourcePolicy, SourceRule,
    SourceRuleBody,
};
use crate::policy::space::RuleRange;

use super::condition::ConditionCompiler;
use super::lists::ListTable;

/// All rules of a policy.
pub(super) struct RuleDrafts<'s> {
    /// In document order.
    pub(super) all: Vec<RuleDraft<'s>>,
    /// How many rules `on_invalid_rule: disable` disabled, those in them aside.
    pub(super) disabled_rules: u32,
}

/// Where a rule belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleScope {
    /// To the document: it is for all crawlers.
    Document,
    /// To the space of this number.
    Space(usize),
    /// To the global space.
    Global,
}

/// A rule between its source and its compiled form.
pub(super) struct RuleDraft<'s> {
    /// As written.
    pub(super) source: &'s SourceRule,
    /// Where it belongs.
    pub(super) scope: RuleScope,
    /// The group it stands in.
    pub(super) parent: Option<usize>,
    /// The place after the last rule that it contains.
    pub(super) end: usize,
    /// Its condition; `always` where it has none.
    pub(super) condition: Condition,
    /// Whether it takes part.
    pub(super) mode: EnforcementMode,
}

impl<'s> RuleDrafts<'s> {
    /// Lays out the rules of a policy.
    pub(super) fn from_source(
        source: &'s SourcePolicy,
        lists: &mut ListTable,
        problems: &mut Problems,
    ) -> Self {
        let drafts = Self {
            all: Vec::new(),
            disabled_rules: 0,
        };
        let home = RuleScope::Document;
        let mut layout = DraftBuilder {
            drafts,
            lists,
            problems,
            on_invalid: source.on_invalid_rule,
            scope: home,
        };
        layout.add_rules(&source.rules, None, EnforcementMode::Enforce);
        for (place, space) in source.spaces.iter().enumerate() {
            layout.scope = RuleScope::Space(place);
            layout.add_rules(&space.rules, None, EnforcementMode::Enforce);
        }
        layout.scope = RuleScope::Global;
        if let Some(SourceGlobalSpace::Rules(rules)) =
            source.global.as_ref().map(|global| &global.value)
        {
            layout.add_rules(rules, None, EnforcementMode::Enforce);
        }
        layout.drafts
    }

    /// The stretch of the rules that belong together.
    pub(super) fn range(&self, scope: RuleScope) -> RuleRange {
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let from = self
            .all
            .iter()
            .position(|draft| draft.scope == scope)
            .unwrap_or(0);
        let to = self
            .all
            .iter()
            .rposition(|draft| draft.scope == scope)
            .map_or(from, |last| last + 1);
        RuleRange {
            from: number(from),
            to: number(to),
        }
    }

    /// Those among which a rule is chosen, if it stands in a `match: first` list.
    pub(super) fn first_match_siblings(
        &self,
        draft: &RuleDraft<'s>,
    ) -> Option<Vec<&RuleDraft<'s>>> {
        match draft.parent {
            Some(parent) => {
                let first = self.all.get(parent).is_some_and(RuleDraft::is_first_match);
                first.then(|| self.children(parent).map(|(_, child)| child).collect())
            }
            None if draft.scope == RuleScope::Global => {
                Some(self.outermost(RuleScope::Global).collect())
            }
            None => None,
        }
    }

    /// The rules of a home that stand in no group.
    pub(super) fn outermost(&self, scope: RuleScope) -> impl Iterator<Item = &RuleDraft<'s>> {
        self.all
            .iter()
            .filter(move |draft| draft.scope == scope && draft.parent.is_none())
    }

    /// The direct children of a rule.
    pub(super) fn children(&self, place: usize) -> impl Iterator<Item = (usize, &RuleDraft<'s>)> {
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

impl RuleDraft<'_> {
    /// Whether it is `match: first`.
    pub(super) fn is_first_match(&self) -> bool {
        matches!(&self.source.body, SourceRuleBody::Group(group) if group.match_first.is_some())
    }

    /// The stage for which it waits by its own word: `stage`, or that of `as`.
    pub(super) fn explicit_stage(&self) -> Option<PolicyStage> {
        let soft = matches!(&self.source.body, SourceRuleBody::Filter(filter) if filter.soft_error.is_some());
        let of_soft = soft.then_some(PolicyStage::Document);
        self.source
            .stage
            .as_ref()
            .map(|stage| stage.value)
            .max(of_soft)
    }
}

/// The condition of a rule, if it has one.
pub(super) fn rule_condition(rule: &SourceRule) -> Option<&SourceCondition> {
    match &rule.body {
        SourceRuleBody::Filter(filter) => Some(&filter.condition),
        SourceRuleBody::Group(group) => match &group.guard {
            SourceGuard::When(condition) | SourceGuard::Unless(condition) => Some(condition),
            SourceGuard::Always => None,
        },
    }
}

struct DraftBuilder<'s, 'a> {
    drafts: RuleDrafts<'s>,
    lists: &'a mut ListTable,
    problems: &'a mut Problems,
    on_invalid: OnInvalidRule,
    scope: RuleScope,
}

impl<'s> DraftBuilder<'s, '_> {
    fn add_rules(&mut self, rules: &'s [SourceRule], parent: Option<usize>, mode: EnforcementMode) {
        for rule in rules {
            self.add_rule(rule, parent, mode);
        }
    }

    fn add_rule(&mut self, rule: &'s SourceRule, parent: Option<usize>, around: EnforcementMode) {
        let before = self.problems.enter_rule(Some(rule.name().clone()));
        let (condition, invalid) = self.compile_condition(rule);
        let mode = rule_mode(rule, around, &invalid);
        self.report_invalid(rule, invalid);
        let place = self.drafts.all.len();
        let (home, end) = (self.scope, place + 1);
        self.drafts.all.push(RuleDraft {
            source: rule,
            scope: home,
            parent,
            end,
            condition,
            mode,
        });
        if let SourceRuleBody::Group(group) = &rule.body {
            self.add_rules(&group.rules, Some(place), mode);
        }
        let end = self.drafts.all.len();
        if let Some(draft) = self.drafts.all.get_mut(place) {
            draft.end = end;
        }
        self.problems.enter_rule(before);
    }

    fn compile_condition(&mut self, rule: &SourceRule) -> (Condition, Vec<Problem>) {
        let Some(source) = rule_condition(rule) else {
            return (Condition::Always, Vec::new());
        };
        let mut conditions = ConditionCompiler {
            lists: &mut *self.lists,
            problems: &mut *self.problems,
            invalid: Vec::new(),
        };
        let condition = conditions.compile(source);
        (condition, conditions.invalid)
    }

    /// Says what cannot be compiled, and what becomes of the rule.
    fn report_invalid(&mut self, rule: &SourceRule, mut invalid: Vec<Problem>) {
        if invalid.is_empty() {
            return;
        }
        if self.on_invalid == OnInvalidRule::Disable {
            self.drafts.disabled_rules += 1;
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
fn rule_mode(rule: &SourceRule, around: EnforcementMode, invalid: &[Problem]) -> EnforcementMode {
    match around {
        EnforcementMode::Disabled => EnforcementMode::Disabled,
        EnforcementMode::Enforce | EnforcementMode::Shadow
            if !rule.enabled || !invalid.is_empty() =>
        {
            EnforcementMode::Disabled
        }
        EnforcementMode::Enforce if rule.shadow.is_some() => EnforcementMode::Shadow,
        EnforcementMode::Enforce | EnforcementMode::Shadow => around,
    }
}
