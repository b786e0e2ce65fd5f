//! One walk over the rules at one stage (policy.md section 2, steps 2 to 4, and section 4).

use crate::policy::Policy;
use crate::policy::condition::{Condition, Truth};
use crate::policy::fact::{EvaluationTarget, Fact, Facts};
use crate::policy::field::Field;
use crate::policy::options::{OptionValue, schema};
use crate::policy::rule::{
    ChildOrder, EnforcementMode, FilterKind, FilterRule, GroupGuard, GroupRule, HeaderFields,
    HeaderStages, PolicyStage, Rule, RuleBody, RuleClass, RuleIndex,
};
use crate::policy::space::RuleRange;
use crate::policy::trail::{RuleState, Trail, disposition_bit};

/// How the rules met from here on count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Liveness {
    /// They do.
    Live,
    /// Perhaps: a rule before or around them is undecided.
    Uncertain,
    /// They do not: a `stop` or the first of a `match: first` list ended their list.
    Skipped,
}

/// Whether a `stop` ended the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Continue,
    Stopped,
}

/// Which rules take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleSelection {
    /// All of them.
    All,
    /// Domain rules alone.
    Domain,
}

/// The walk's state beside the request's [`Trail`].
pub(super) struct Walk<'a> {
    policy: &'a Policy,
    facts: &'a Facts<'a>,
    stage: PolicyStage,
    trail: &'a mut Trail,
    /// A `stop` that may or may not apply was met.
    possibly_stopped: bool,
    selection: RuleSelection,
    /// A rule in shadow that is live in this walk.
    shadow: Option<ShadowRule<'a>>,
}

/// A rule in shadow, with all that it contains.
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
            policy,
            facts,
            stage,
            trail,
            possibly_stopped: false,
            selection: RuleSelection::All,
            shadow: None,
        }
    }

    /// The same walk with one rule in shadow, and all that it contains, live besides.
    pub(super) fn with_shadow_rule(self, root: RuleIndex) -> Self {
        let rule = self.policy.rules.get(root.0 as usize);
        Self {
            shadow: rule.map(|rule| ShadowRule { root, rule }),
            ..self
        }
    }

    /// The same with these rules alone; the others count as absent.
    pub(super) fn with_selection(self, part: RuleSelection) -> Self {
        Self {
            selection: part,
            ..self
        }
    }

    /// The document's rules, then those of the crawler's space. A stop among the former never skips the latter.
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

    /// Of some rules the first that applies.
    pub(super) fn run_first_match(mut self, RuleRange { from, to }: RuleRange) {
        self.walk_first_match(RuleIndex(from), RuleIndex(to), Liveness::Live);
    }

    /// The rules from one place to another, those that they contain left to themselves.
    fn walk_list(&mut self, from: RuleIndex, to: RuleIndex, mut pass: Liveness) -> Flow {
        let mut flow = Flow::Continue;
        for (at, rule) in siblings(self.policy, from, to) {
            if !self.takes_part(at, rule) || !self.may_act(at, rule) {
                continue;
            }
            if self.walk_rule(at, rule, pass) == Flow::Stopped {
                (pass, flow) = (Liveness::Skipped, Flow::Stopped);
            } else if self.possibly_stopped {
                pass = pass.max(Liveness::Uncertain);
            }
        }
        flow
    }

    fn walk_rule(&mut self, at: RuleIndex, rule: &'a Rule, pass: Liveness) -> Flow {
        match &rule.body {
            RuleBody::Group(group) => self.walk_group(at, rule, group, pass),
            RuleBody::Filter(filter) => {
                self.apply_filter(at, rule, filter, pass);
                Flow::Continue
            }
        }
    }

    fn walk_group(
        &mut self,
        at: RuleIndex,
        rule: &'a Rule,
        group: &'a GroupRule,
        pass: Liveness,
    ) -> Flow {
        let (_, stage) = self.effective_stages(rule);
        match (self.trail.state(at), stage.cmp(&self.stage)) {
            (RuleState::Pending, std::cmp::Ordering::Equal) => {
                self.apply_group(at, rule, group, pass)
            }
            (RuleState::Pending, std::cmp::Ordering::Greater) => {
                self.look_ahead(at, rule, group, pass)
            }
            (RuleState::Matched, _) => self.walk_children(at, rule, group, pass),
            (RuleState::Undecided, _) if !self.has_url() => {
                self.revisit_undecided(at, rule, group, pass)
            }
            (RuleState::Pending, std::cmp::Ordering::Less) => Flow::Continue,
            (RuleState::NoMatch | RuleState::Skipped | RuleState::Undecided, _) => Flow::Continue,
        }
    }

    /// A group at its own stage.
    fn apply_group(
        &mut self,
        at: RuleIndex,
        rule: &'a Rule,
        group: &'a GroupRule,
        pass: Liveness,
    ) -> Flow {
        let pass = pass.max(self.liveness_at_stage(rule));
        if pass == Liveness::Skipped {
            self.trail.set_state(at, RuleState::Skipped);
            return Flow::Continue;
        }
        let inner = match (
            self.apply_content_clause(rule, self.evaluate_guard(&group.guard)),
            pass,
        ) {
            (Truth::No, _) => {
                self.trail.set_state(at, RuleState::NoMatch);
                return Flow::Continue;
            }
            (Truth::Yes, Liveness::Live) => {
                self.trail.set_state(at, RuleState::Matched);
                self.assign_options(at, group);
                Liveness::Live
            }
            // A stage whose facts are missing was not run: its groups do not apply.
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

    /// Inside a tunnel: what is in an undecided group. If it may run at either of two stages, so may what it does itself.
    fn revisit_undecided(
        &mut self,
        at: RuleIndex,
        rule: &'a Rule,
        group: &'a GroupRule,
        pass: Liveness,
    ) -> Flow {
        let again = rule.header_stages.is_some() && self.stage == PolicyStage::Document;
        if again {
            self.assign_uncertain(at, group);
        }
        let flow = self.walk_children(at, rule, group, pass.max(Liveness::Uncertain));
        self.possibly_stopped |= again && group.stop;
        flow
    }

    /// A group of a later stage: what its guard says already lets filters inside it be decided early.
    fn look_ahead(
        &mut self,
        at: RuleIndex,
        rule: &'a Rule,
        group: &'a GroupRule,
        pass: Liveness,
    ) -> Flow {
        match self.apply_content_clause(rule, self.evaluate_guard(&group.guard)) {
            Truth::Yes => self.walk_children(at, rule, group, pass),
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
        pass: Liveness,
    ) -> Flow {
        let first = RuleIndex(at.0 + 1);
        match group.order {
            ChildOrder::First(stage) if stage == self.stage => {
                self.walk_first_match(first, rule.end, pass)
            }
            // Headers may have given what the document would have said. If not, no rule in it runs now.
            ChildOrder::First(PolicyStage::Document) if self.stage == PolicyStage::Response => {
                self.walk_first_match(first, rule.end, pass)
            }
            ChildOrder::First(_) | ChildOrder::All => self.walk_list(first, rule.end, pass),
        }
    }

    /// `match: first`: once a child applies, the others are cut off.
    fn walk_first_match(&mut self, from: RuleIndex, to: RuleIndex, mut pass: Liveness) -> Flow {
        let mut flow = Flow::Continue;
        for (at, rule) in siblings(self.policy, from, to) {
            if !self.takes_part(at, rule) {
                continue;
            }
            if self.walk_rule(at, rule, pass) == Flow::Stopped {
                flow = Flow::Stopped;
            }
            pass = match self.trail.state(at) {
                RuleState::Matched => Liveness::Skipped,
                RuleState::Undecided => pass.max(Liveness::Uncertain),
                RuleState::Pending | RuleState::NoMatch | RuleState::Skipped => pass,
            };
        }
        flow
    }

    fn apply_filter(&mut self, at: RuleIndex, rule: &Rule, filter: &FilterRule, pass: Liveness) {
        let (floor, stage) = self.effective_stages(rule);
        if self.trail.state(at) != RuleState::Pending || self.stage < floor {
            return;
        }
        let holds = self.evaluate_condition(&filter.condition);
        let hit = match filter.kind {
            FilterKind::Forbid => holds,
            FilterKind::Require => holds.negate(),
        };
        let pass = if self.stage < PolicyStage::Response {
            pass
        } else {
            pass.max(self.liveness_at_stage(rule))
        };
        match (self.apply_content_clause(rule, hit), pass) {
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
                .record_assignment(self.policy, assignment.slot, at);
            if let OptionValue::Disposition(value) = assignment.value {
                self.trail.possible_dispositions = disposition_bit(value);
                self.trail.uncertain_rule = None;
            }
        }
    }

    /// A group that may apply changes nothing; a disposition that it would change is in doubt.
    fn assign_uncertain(&mut self, at: RuleIndex, group: &GroupRule) {
        let disposition = group
            .assignments
            .iter()
            .rev()
            .find(|a| a.slot == schema::DISPOSITION);
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
            EnforcementMode::Shadow => self.shadow.is_some_and(|beside| beside.contains(at)),
            EnforcementMode::Disabled => false,
        }
    }

    /// Whether it, or a rule in it, could do something at this stage.
    fn may_act(&self, at: RuleIndex, rule: &Rule) -> bool {
        let by_shadow = |beside: ShadowRule<'_>| {
            beside.is_within(at, rule) && beside.rule.active_stages.contains(self.stage)
        };
        rule.active_stages.contains(self.stage) || self.shadow.is_some_and(by_shadow)
    }

    /// The floor and the stage of a rule, for this response.
    fn effective_stages(&self, rule: &Rule) -> (PolicyStage, PolicyStage) {
        let Some(HeaderStages {
            earliest_stage: floor,
            stage,
        }) = rule.header_stages
        else {
            return (rule.earliest_stage, rule.stage);
        };
        let early = |fields| self.may_be_provided() || self.headers_provide(fields);
        let floor = if early(floor.0) {
            floor.1
        } else {
            rule.earliest_stage
        };
        (floor, if early(stage.0) { stage.1 } else { rule.stage })
    }

    /// Whether the response's headers give these fields.
    fn headers_provide(
        &self,
        HeaderFields {
            meta_robots,
            canonical,
        }: HeaderFields,
    ) -> bool {
        let asked = [
            (meta_robots, Field::MetaRobots),
            (canonical, Field::Canonical),
        ];
        // Once the document is known both are; whether headers gave them is asked of the headers alone.
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
            && asked.iter().all(|(asked, field)| {
                !asked || field.any_text_matches(&headers, |_| false) != Fact::Unknown
            })
    }

    /// Inside a tunnel nobody knows which headers a response has.
    fn may_be_provided(&self) -> bool {
        !self.has_url() && self.stage == PolicyStage::Response
    }

    /// Inside a tunnel a rule that headers may bring forward runs perhaps at the response, perhaps at the document.
    fn liveness_at_stage(&self, rule: &Rule) -> Liveness {
        if rule.header_stages.is_some() && !self.has_url() {
            Liveness::Uncertain
        } else {
            Liveness::Live
        }
    }

    /// Whether some URLs of a tunnel might decide a filter here already, where it is cut off, and others not.
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

    /// Rules on type or size judge 2xx with content only, from the response stage on.
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

/// The rules from one place to another, without those that they contain.
fn siblings(
    policy: &Policy,
    from: RuleIndex,
    to: RuleIndex,
) -> impl Iterator<Item = (RuleIndex, &Rule)> {
    let mut at = from;
    std::iter::from_fn(move || {
        let rule = policy.rules.get(at.0 as usize).filter(|_| at < to)?;
        let here = at;
        at = rule.end;
        Some((here, rule))
    })
}
