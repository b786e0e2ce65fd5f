//! One walk over the rules at one stage.

use std::cmp::Ordering;

use crate::policy::Policy;
use crate::policy::condition::{Condition, Truth};
use crate::policy::fact::{EvaluationTarget, Fact, Facts};
use crate::policy::field::Field;
use crate::policy::index::Candidates;
use crate::policy::options::{OptionValue, schema};
use crate::policy::rule::{
    ChildOrder, EnforcementMode, FilterKind, FilterRule, GroupGuard, GroupRule, HeaderFields,
    HeaderStages, PolicyStage, Rule, RuleBody, RuleClass, RuleIndex,
};
use crate::policy::space::RuleRange;
use crate::policy::trail::{RuleState, Trail, disposition_bit};

/// The effect of the rules that follow in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Liveness {
    /// They apply.
    Live,
    /// They may apply: a rule before or around them is undecided.
    Uncertain,
    /// They do not apply: a `stop`, or the first match of a `match: first` list, ended their list.
    Skipped,
}

/// The flow after a rule: a `stop` ends the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Continue,
    Stopped,
}

/// The rules that take part in a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleSelection {
    All,
    /// Domain rules only.
    Domain,
}

/// The state of a walk, besides the request's [`Trail`].
pub(super) struct Walk<'a> {
    policy: &'a Policy,
    facts: &'a Facts<'a>,
    stage: PolicyStage,
    trail: &'a mut Trail,
    /// `true` after a group with `stop` that may or may not apply. The rules that follow it in its
    /// list, and in the lists around it, are then [`Liveness::Uncertain`].
    possibly_stopped: bool,
    selection: RuleSelection,
    /// A shadow rule that this walk enforces.
    shadow: Option<ShadowRule<'a>>,
    /// The rules to visit.
    candidates: Candidates<'a>,
}

/// A shadow rule with its children.
#[derive(Clone, Copy)]
struct ShadowRule<'a> {
    root: RuleIndex,
    rule: &'a Rule,
}

impl ShadowRule<'_> {
    fn contains(self, at: RuleIndex) -> bool {
        self.root <= at && at < self.rule.end
    }

    fn is_within(self, at: RuleIndex, rule: &Rule) -> bool {
        at <= self.root && self.root < rule.end
    }
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        policy: &'a Policy,
        facts: &'a Facts<'a>,
        stage: PolicyStage,
        trail: &'a mut Trail,
    ) -> Self {
        Self {
            candidates: Candidates::new(policy, stage, facts, trail.every_rule),
            policy,
            facts,
            stage,
            trail,
            possibly_stopped: false,
            selection: RuleSelection::All,
            shadow: None,
        }
    }

    /// Enforces one shadow rule and its children in this walk.
    pub(super) fn with_shadow_rule(self, root: RuleIndex) -> Self {
        let rule = self.policy.rules.get(root.0 as usize);
        Self {
            shadow: rule.map(|rule| ShadowRule { root, rule }),
            ..self
        }
    }

    /// Restricts the walk to some rules; the others count as absent.
    pub(super) fn with_selection(self, selection: RuleSelection) -> Self {
        Self { selection, ..self }
    }

    /// Walks the document's rules, then those of the crawler's space. A stop among the former never
    /// skips the latter.
    pub(super) fn run(mut self) {
        let spaces = &self.policy.spaces;
        self.walk_range(spaces.document_rules);
        if let Some(space) = self.trail.space().and_then(|space| spaces.get(space)) {
            self.possibly_stopped = false;
            self.walk_range(space.rules);
        }
    }

    fn walk_range(&mut self, RuleRange { from, to }: RuleRange) {
        self.walk_list(RuleIndex(from), RuleIndex(to), Liveness::Live);
    }

    /// Walks a range of rules in which only the first match applies.
    pub(super) fn run_first_match(mut self, RuleRange { from, to }: RuleRange) {
        self.walk_first_match(RuleIndex(from), RuleIndex(to), Liveness::Live);
    }

    /// Walks the rules in a range; the children of a rule are walked with it.
    fn walk_list(&mut self, from: RuleIndex, to: RuleIndex, mut liveness: Liveness) -> Flow {
        let mut flow = Flow::Continue;
        let list = self.candidates.list(from, to);
        let mut next = from;
        while let Some((at, rule)) = self.candidates.next(list, next) {
            next = rule.end;
            if !self.takes_part(at, rule) || !self.may_act(at, rule) {
                continue;
            }
            if self.walk_rule(at, rule, liveness) == Flow::Stopped {
                liveness = Liveness::Skipped;
                flow = Flow::Stopped;
            } else if self.possibly_stopped {
                liveness = liveness.max(Liveness::Uncertain);
            }
        }
        flow
    }

    fn walk_rule(&mut self, at: RuleIndex, rule: &'a Rule, liveness: Liveness) -> Flow {
        match &rule.body {
            RuleBody::Group(group) => self.walk_group(at, rule, group, liveness),
            RuleBody::Filter(filter) => {
                self.apply_filter(at, rule, filter, liveness);
                Flow::Continue
            }
        }
    }

    fn walk_group(
        &mut self,
        at: RuleIndex,
        rule: &'a Rule,
        group: &'a GroupRule,
        liveness: Liveness,
    ) -> Flow {
        let (_, stage) = self.effective_stages(rule);
        match self.trail.state(at) {
            RuleState::Pending => match stage.cmp(&self.stage) {
                Ordering::Less => Flow::Continue,
                Ordering::Equal => self.apply_group(at, rule, group, liveness),
                Ordering::Greater => self.look_ahead(at, rule, group, liveness),
            },
            RuleState::Matched => self.walk_children(at, rule, group, liveness),
            RuleState::Undecided if !self.has_url() => {
                self.revisit_undecided(at, rule, group, liveness)
            }
            RuleState::NoMatch | RuleState::Skipped | RuleState::Undecided => Flow::Continue,
        }
    }

    /// Evaluates a group at its own stage.
    fn apply_group(
        &mut self,
        at: RuleIndex,
        rule: &'a Rule,
        group: &'a GroupRule,
        liveness: Liveness,
    ) -> Flow {
        let liveness = liveness.max(self.liveness_at_stage(rule));
        if liveness == Liveness::Skipped {
            self.trail.set_state(at, RuleState::Skipped);
            return Flow::Continue;
        }
        let truth = self.apply_content_clause(rule, self.evaluate_guard(&group.guard));
        let inner = match (truth, liveness) {
            (Truth::No, _) => {
                self.trail.set_state(at, RuleState::NoMatch);
                return Flow::Continue;
            }
            (Truth::Yes, Liveness::Live) => {
                self.trail.set_state(at, RuleState::Matched);
                self.assign_options(at, group);
                Liveness::Live
            }
            // The facts of the stage are missing, so the stage was not run and the group does not
            // apply.
            (Truth::Unknown, _) if self.has_url() => {
                self.trail.set_state(at, RuleState::Undecided);
                return Flow::Continue;
            }
            (Truth::Yes | Truth::Unknown, _) => {
                self.trail.set_state(at, RuleState::Undecided);
                self.assign_uncertain(at, group);
                Liveness::Uncertain
            }
        };
        let flow = self.walk_children(at, rule, group, inner);
        match (group.stop, inner) {
            (false, _) => flow,
            (true, Liveness::Live) => Flow::Stopped,
            (true, Liveness::Uncertain | Liveness::Skipped) => {
                self.possibly_stopped = true;
                flow
            }
        }
    }

    /// Walks the children of an undecided group in a tunnel. If the group runs at one of two
    /// stages, its own effects are uncertain again.
    fn revisit_undecided(
        &mut self,
        at: RuleIndex,
        rule: &'a Rule,
        group: &'a GroupRule,
        liveness: Liveness,
    ) -> Flow {
        let is_second_stage = rule.header_stages.is_some() && self.stage == PolicyStage::Document;
        if is_second_stage {
            self.assign_uncertain(at, group);
        }
        let flow = self.walk_children(at, rule, group, liveness.max(Liveness::Uncertain));
        self.possibly_stopped |= is_second_stage && group.stop;
        flow
    }

    /// Walks a group of a later stage: if its guard is decided already, the filters in it can be
    /// decided early.
    fn look_ahead(
        &mut self,
        at: RuleIndex,
        rule: &'a Rule,
        group: &'a GroupRule,
        liveness: Liveness,
    ) -> Flow {
        match self.apply_content_clause(rule, self.evaluate_guard(&group.guard)) {
            Truth::Yes => self.walk_children(at, rule, group, liveness),
            Truth::No => {
                self.trail.set_state(at, RuleState::NoMatch);
                Flow::Continue
            }
            Truth::Unknown => Flow::Continue,
        }
    }

    fn walk_children(
        &mut self,
        at: RuleIndex,
        rule: &'a Rule,
        group: &'a GroupRule,
        liveness: Liveness,
    ) -> Flow {
        let first = RuleIndex(at.0 + 1);
        match group.order {
            ChildOrder::First(stage) if stage == self.stage => {
                self.walk_first_match(first, rule.end, liveness)
            }
            // Headers may have provided what the document would. If not, none of the rules runs
            // now.
            ChildOrder::First(PolicyStage::Document) if self.stage == PolicyStage::Response => {
                self.walk_first_match(first, rule.end, liveness)
            }
            ChildOrder::First(_) | ChildOrder::All => self.walk_list(first, rule.end, liveness),
        }
    }

    /// Walks a `match: first` list: after a match the others are skipped.
    fn walk_first_match(&mut self, from: RuleIndex, to: RuleIndex, mut liveness: Liveness) -> Flow {
        let mut flow = Flow::Continue;
        let list = self.candidates.list(from, to);
        let mut next = from;
        while let Some((at, rule)) = self.candidates.next(list, next) {
            next = rule.end;
            if !self.takes_part(at, rule) {
                continue;
            }
            if self.walk_rule(at, rule, liveness) == Flow::Stopped {
                flow = Flow::Stopped;
            }
            liveness = match self.trail.state(at) {
                RuleState::Matched => Liveness::Skipped,
                RuleState::Undecided => liveness.max(Liveness::Uncertain),
                RuleState::Pending | RuleState::NoMatch | RuleState::Skipped => liveness,
            };
        }
        flow
    }

    fn apply_filter(
        &mut self,
        at: RuleIndex,
        rule: &Rule,
        filter: &FilterRule,
        liveness: Liveness,
    ) {
        let (floor, stage) = self.effective_stages(rule);
        if self.trail.state(at) != RuleState::Pending || self.stage < floor {
            return;
        }
        let holds = self.evaluate_condition(&filter.condition);
        let hit = match filter.kind {
            FilterKind::Forbid => holds,
            FilterKind::Require => holds.negate(),
        };
        let liveness = if self.stage < PolicyStage::Response {
            liveness
        } else {
            liveness.max(self.liveness_at_stage(rule))
        };
        match (self.apply_content_clause(rule, hit), liveness) {
            (Truth::Unknown, Liveness::Skipped | Liveness::Uncertain)
                if self.stage < stage && self.depends_on_hidden_fields(filter) =>
            {
                self.trail.set_state(at, RuleState::Undecided);
                self.trail.record_doubt(at);
            }
            (Truth::Unknown, _) if self.stage < stage => {}
            (_, Liveness::Skipped) => self.trail.set_state(at, RuleState::Skipped),
            (Truth::No, _) => self.trail.set_state(at, RuleState::NoMatch),
            (Truth::Yes, Liveness::Live) => self.record_hit(at, filter),
            (Truth::Yes | Truth::Unknown, _) => {
                self.trail.set_state(at, RuleState::Undecided);
                self.trail.record_doubt(at);
            }
        }
    }

    fn record_hit(&mut self, at: RuleIndex, filter: &FilterRule) {
        self.trail.set_state(at, RuleState::Matched);
        self.trail.first_filter.get_or_insert(at);
        if filter.soft_error.is_some() {
            self.trail.soft_error.get_or_insert(at);
        }
        self.trail.log |= filter.log;
    }

    fn assign_options(&mut self, at: RuleIndex, group: &GroupRule) {
        for assignment in &group.assignments {
            self.trail
                .record_assignment(self.policy, assignment.index, at);
            if let OptionValue::Disposition(value) = assignment.value {
                self.trail.possible_dispositions = disposition_bit(value);
                self.trail.uncertain_rule = None;
            }
        }
    }

    /// Records that a group may apply. This changes no option, but may make the disposition
    /// uncertain.
    fn assign_uncertain(&mut self, at: RuleIndex, group: &GroupRule) {
        let disposition = group
            .assignments
            .iter()
            .rev()
            .find(|a| a.index == schema::DISPOSITION);
        let Some(OptionValue::Disposition(value)) = disposition.map(|a| &a.value) else {
            return;
        };
        if self.trail.possible_dispositions != disposition_bit(*value) {
            self.trail.possible_dispositions |= disposition_bit(*value);
            self.trail.uncertain_rule.get_or_insert(at);
        }
    }

    fn takes_part(&self, at: RuleIndex, rule: &Rule) -> bool {
        match rule.mode {
            EnforcementMode::Enforce => {
                self.selection == RuleSelection::All || rule.class == RuleClass::Domain
            }
            EnforcementMode::Shadow => self.shadow.is_some_and(|shadow| shadow.contains(at)),
            EnforcementMode::Disabled => false,
        }
    }

    /// Returns `true` if the rule or one of its children may take effect at this stage.
    fn may_act(&self, at: RuleIndex, rule: &Rule) -> bool {
        rule.active_stages.contains(self.stage)
            || self.shadow.is_some_and(|shadow| {
                shadow.is_within(at, rule) && shadow.rule.active_stages.contains(self.stage)
            })
    }

    /// Returns the earliest stage and the stage of a rule for this response.
    fn effective_stages(&self, rule: &Rule) -> (PolicyStage, PolicyStage) {
        let Some(HeaderStages {
            earliest_stage: (earliest_fields, earliest_stage),
            stage: (fields, stage),
        }) = rule.header_stages
        else {
            return (rule.earliest_stage, rule.stage);
        };
        let earliest_stage = if self.may_provide(earliest_fields) {
            earliest_stage
        } else {
            rule.earliest_stage
        };
        let stage = if self.may_provide(fields) {
            stage
        } else {
            rule.stage
        };
        (earliest_stage, stage)
    }

    /// Returns `true` if the response's headers provide these fields or, in a tunnel, may do so.
    fn may_provide(&self, fields: HeaderFields) -> bool {
        let is_hidden = !self.has_url() && self.stage == PolicyStage::Response;
        is_hidden || self.headers_provide(fields)
    }

    /// Returns `true` if the response's headers provide these fields.
    fn headers_provide(
        &self,
        HeaderFields {
            meta_robots,
            canonical,
        }: HeaderFields,
    ) -> bool {
        let fields = [
            (meta_robots, Field::MetaRobots),
            (canonical, Field::Canonical),
        ];
        // At the document stage both are known from the document, which must not count here.
        let document = if self.stage == PolicyStage::Document {
            Fact::Unknown
        } else {
            self.facts.document
        };
        let headers = Facts {
            document,
            ..*self.facts
        };
        self.stage >= PolicyStage::Response
            && fields.iter().all(|(required, field)| {
                !required || field.any_text_matches(&headers, |_| false) != Fact::Unknown
            })
    }

    /// In a tunnel, a rule whose stage depends on headers runs either at the response or at the
    /// document.
    fn liveness_at_stage(&self, rule: &Rule) -> Liveness {
        if rule.header_stages.is_some() && !self.has_url() {
            Liveness::Uncertain
        } else {
            Liveness::Live
        }
    }

    /// Returns `true` if a skipped filter could be decided here for some URLs of a tunnel and not
    /// for others.
    fn depends_on_hidden_fields(&self, filter: &FilterRule) -> bool {
        let mut hides = false;
        filter.condition.for_each_field(&mut |field| {
            hides |= self.stage >= field.stage() && !field.is_visible_in_tunnels()
        });
        hides && !self.has_url()
    }

    fn has_url(&self) -> bool {
        matches!(self.facts.target, EvaluationTarget::Url(_))
    }

    fn evaluate_guard(&self, guard: &GroupGuard) -> Truth {
        match guard {
            GroupGuard::Always => Truth::Yes,
            GroupGuard::When(condition) => self.evaluate_condition(condition),
            GroupGuard::Unless(condition) => self.evaluate_condition(condition).negate(),
        }
    }

    fn evaluate_condition(&self, condition: &Condition) -> Truth {
        condition.evaluate(self.facts, &self.policy.lists)
    }

    /// Applies the clause that rules on type or size match only 2xx with content, from the response
    /// stage on.
    fn apply_content_clause(&self, rule: &Rule, truth: Truth) -> Truth {
        if !rule.content_only || self.stage < PolicyStage::Response || truth == Truth::No {
            return truth;
        }
        match (self.facts.response, self.facts.target) {
            (Fact::Known(response), EvaluationTarget::Url(_))
                if response.is_success_with_content() =>
            {
                truth
            }
            (Fact::Known(_), _) => Truth::No,
            (Fact::Unknown, _) => Truth::Unknown,
        }
    }
}
