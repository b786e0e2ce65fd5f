//! Drafts: the rules as a flat list, parents before children, with compiled conditions.

use crate::diagnostics::problem::{Problem, Severity};
use crate::diagnostics::problems::Problems;
use crate::model::number::saturating_u32;
use crate::policy::condition::Condition;
use crate::policy::expression::table::ExpressionInterner;
use crate::policy::rule::{EnforcementMode, PolicyStage};
use crate::policy::source::tree::{
    OnInvalidRule, SourceCondition, SourceGlobalSpace, SourceGuard, SourcePolicy, SourceRule,
    SourceRuleBody,
};
use crate::policy::space::RuleRange;

use super::condition::ConditionCompiler;
use super::lists::ListTable;

pub(super) struct RuleDrafts<'s> {
    /// The rules in document order.
    pub(super) all: Vec<IntermediateRule<'s>>,
    /// The number of rules that `on_invalid_rule: disable` disabled, without the rules in them.
    pub(super) disabled_rules: u32,
}

/// The list of rules that a rule belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleScope {
    /// The document, which applies to all crawlers.
    Document,
    /// The space with this index.
    Space(usize),
    /// The global space.
    Global,
}

/// A rule between its source and its compiled form.
pub(super) struct IntermediateRule<'s> {
    pub(super) source: &'s SourceRule,
    pub(super) scope: RuleScope,
    /// The index of the group that contains it.
    pub(super) parent: Option<usize>,
    /// The index after the last rule that it contains.
    pub(super) end: usize,
    /// The condition; `Always` if the rule has none.
    pub(super) condition: Condition,
    /// `true` if no URL matches a value of the condition.
    pub(super) has_dead_values: bool,
    pub(super) mode: EnforcementMode,
}

impl<'s> RuleDrafts<'s> {
    /// Builds the drafts of a policy.
    pub(super) fn from_source(
        source: &'s SourcePolicy,
        lists: &mut ListTable<'_>,
        expressions: &mut ExpressionInterner<'_>,
        problems: &mut Problems,
    ) -> Self {
        let mut builder = DraftBuilder {
            drafts: Self {
                all: Vec::new(),
                disabled_rules: 0,
            },
            lists,
            expressions,
            problems,
            on_invalid: source.on_invalid_rule,
            scope: RuleScope::Document,
        };
        builder.add_rules(&source.rules, None, EnforcementMode::Enforce);
        for (index, space) in source.spaces.iter().enumerate() {
            builder.scope = RuleScope::Space(index);
            builder.add_rules(&space.rules, None, EnforcementMode::Enforce);
        }
        builder.scope = RuleScope::Global;
        if let Some(SourceGlobalSpace::Rules(rules)) =
            source.global.as_ref().map(|global| &global.value)
        {
            builder.add_rules(rules, None, EnforcementMode::Enforce);
        }
        builder.drafts
    }

    /// Returns the range of the rules of a scope.
    pub(super) fn range(&self, scope: RuleScope) -> RuleRange {
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
            from: saturating_u32(from),
            to: saturating_u32(to),
        }
    }

    /// Returns the siblings of a rule in a `match: first` list, including itself; `None` if it is
    /// not in one.
    pub(super) fn first_match_siblings(
        &self,
        draft: &IntermediateRule<'s>,
    ) -> Option<Vec<&IntermediateRule<'s>>> {
        match draft.parent {
            Some(parent) => {
                let first = self
                    .all
                    .get(parent)
                    .is_some_and(IntermediateRule::is_first_match);
                first.then(|| self.children(parent).map(|(_, child)| child).collect())
            }
            None if draft.scope == RuleScope::Global => {
                Some(self.outermost(RuleScope::Global).collect())
            }
            None => None,
        }
    }

    /// Returns the rules of a scope that are in no group.
    pub(super) fn outermost(
        &self,
        scope: RuleScope,
    ) -> impl Iterator<Item = &IntermediateRule<'s>> {
        self.all
            .iter()
            .filter(move |draft| draft.scope == scope && draft.parent.is_none())
    }

    /// Returns the direct children of a rule, with their indexes.
    pub(super) fn children(
        &self,
        parent: usize,
    ) -> impl Iterator<Item = (usize, &IntermediateRule<'s>)> {
        let end = self.all.get(parent).map_or(0, |draft| draft.end);
        let mut at = parent + 1;
        std::iter::from_fn(move || {
            let draft = self.all.get(at).filter(|_| at < end)?;
            let here = at;
            at = draft.end;
            Some((here, draft))
        })
    }
}

impl IntermediateRule<'_> {
    /// Moves the condition to the rule.
    pub(super) fn take_condition(&mut self) -> Condition {
        std::mem::replace(&mut self.condition, Condition::Always)
    }

    /// Returns `true` if the rule is a `match: first` group.
    pub(super) fn is_first_match(&self) -> bool {
        matches!(&self.source.body, SourceRuleBody::Group(group) if group.match_first.is_some())
    }

    /// Returns the stage that the rule sets itself: with `stage`, or implied by `as`.
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

/// Returns the condition of a rule, if it has one.
pub(super) fn rule_condition(rule: &SourceRule) -> Option<&SourceCondition> {
    match &rule.body {
        SourceRuleBody::Filter(filter) => Some(&filter.condition),
        SourceRuleBody::Group(group) => match &group.guard {
            SourceGuard::When(condition) | SourceGuard::Unless(condition) => Some(condition),
            SourceGuard::Always => None,
        },
    }
}

/// The outcome of compiling a condition.
struct CompiledCondition {
    condition: Condition,
    /// Parts that cannot be compiled.
    invalid: Vec<Problem>,
    has_dead_values: bool,
}

struct DraftBuilder<'s, 'a, 'l, 'p> {
    drafts: RuleDrafts<'s>,
    lists: &'a mut ListTable<'l>,
    expressions: &'a mut ExpressionInterner<'p>,
    problems: &'a mut Problems,
    on_invalid: OnInvalidRule,
    scope: RuleScope,
}

impl<'s> DraftBuilder<'s, '_, '_, '_> {
    fn add_rules(&mut self, rules: &'s [SourceRule], parent: Option<usize>, mode: EnforcementMode) {
        for rule in rules {
            self.add_rule(rule, parent, mode);
        }
    }

    fn add_rule(
        &mut self,
        rule: &'s SourceRule,
        parent: Option<usize>,
        parent_mode: EnforcementMode,
    ) {
        let before = self.problems.enter_rule(Some(rule.name().clone()));
        let compiled = self.compile_condition(rule);
        let mode = rule_mode(rule, parent_mode, &compiled.invalid);
        self.report_invalid(rule, compiled.invalid);
        let index = self.drafts.all.len();
        self.drafts.all.push(IntermediateRule {
            source: rule,
            scope: self.scope,
            parent,
            end: index + 1,
            condition: compiled.condition,
            has_dead_values: compiled.has_dead_values,
            mode,
        });
        if let SourceRuleBody::Group(group) = &rule.body {
            self.add_rules(&group.rules, Some(index), mode);
        }
        let end = self.drafts.all.len();
        if let Some(draft) = self.drafts.all.get_mut(index) {
            draft.end = end;
        }
        self.problems.enter_rule(before);
    }

    fn compile_condition(&mut self, rule: &SourceRule) -> CompiledCondition {
        let Some(source) = rule_condition(rule) else {
            return CompiledCondition {
                condition: Condition::Always,
                invalid: Vec::new(),
                has_dead_values: false,
            };
        };
        let mut conditions = ConditionCompiler {
            lists: &mut *self.lists,
            expressions: &mut *self.expressions,
            problems: &mut *self.problems,
            invalid: Vec::new(),
            has_dead_values: false,
        };
        let condition = conditions.compile(source);
        CompiledCondition {
            condition,
            invalid: conditions.invalid,
            has_dead_values: conditions.has_dead_values,
        }
    }

    /// Reports what cannot be compiled, and that the rule is disabled.
    fn report_invalid(&mut self, rule: &SourceRule, mut invalid: Vec<Problem>) {
        if invalid.is_empty() {
            return;
        }
        if self.on_invalid == OnInvalidRule::Disable {
            self.drafts.disabled_rules += 1;
            invalid
                .iter_mut()
                .for_each(|problem| problem.severity = Severity::Warning);
            let message = "the rule and all rules in it are disabled, because its condition cannot be compiled";
            invalid.push(Problem::warning(&rule.place, message));
        }
        invalid
            .into_iter()
            .for_each(|problem| self.problems.push(problem));
    }
}

/// Returns the mode of a rule from its own keys and the mode of the group around it.
fn rule_mode(
    rule: &SourceRule,
    parent_mode: EnforcementMode,
    invalid: &[Problem],
) -> EnforcementMode {
    match parent_mode {
        EnforcementMode::Disabled => EnforcementMode::Disabled,
        EnforcementMode::Enforce | EnforcementMode::Shadow
            if !rule.enabled || !invalid.is_empty() =>
        {
            EnforcementMode::Disabled
        }
        EnforcementMode::Enforce if rule.shadow.is_some() => EnforcementMode::Shadow,
        EnforcementMode::Enforce | EnforcementMode::Shadow => parent_mode,
    }
}
