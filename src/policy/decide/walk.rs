//! One walk over the rules at one stage (policy.md section 2, steps 2 to 4, and section 4).

use crate::policy::Policy;
use crate::policy::condition::{Condition, Truth};
use crate::policy::fact::{Fact, Facts, Subject};
use crate::policy::field::Field;
use crate::policy::options::{Value, schema};
use crate::policy::rule::{
    ByHeaders, ChildOrder, Filter, Group, Guard, HeaderFields, Mode, PolicyStage, Rule, RuleBody,
    RuleClass, RuleIndex, Sense,
};
use crate::policy::space::RuleRange;
use crate::policy::trail::{State, Trail, bit};

/// How the rules met from here on count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pass {
    /// They do.
    Live,
    /// Perhaps: a rule before or around them is undecided.
    Perhaps,
    /// They do not: a `stop` or the first of a `match: first` list ended their list.
    Cut,
}

/// Whether a `stop` ended the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    On,
    Stopped,
}

/// Which rules take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
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
    perhaps_stopped: bool,
    part: Part,
    /// A rule in shadow that is live in this walk.
    beside: Option<Beside<'a>>,
}

/// A rule in shadow, with all that it contains.
#[derive(Clone, Copy)]
struct Beside<'a> {
    root: RuleIndex,
    rule: &'a Rule,
}

impl Beside<'_> {
    fn contains(self, at: RuleIndex) -> bool {
        self.root <= at && at < self.rule.end
    }

    fn is_in(self, at: RuleIndex, rule: &Rule) -> bool {
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
            perhaps_stopped: false,
            part: Part::All,
            beside: None,
        }
    }

    /// The same walk with one rule in shadow, and all that it contains, live besides.
    pub(super) fn beside(self, root: RuleIndex) -> Self {
        let rule = self.policy.rules.get(root.0 as usize);
        Self {
            beside: rule.map(|rule| Beside { root, rule }),
            ..self
        }
    }

    /// The same with these rules alone; the others count as absent.
    pub(super) fn with(self, part: Part) -> Self {
        Self { part, ..self }
    }

    /// The document's rules, then those of the crawler's space. A stop among the former never skips the latter.
    pub(super) fn run(mut self) {
        let spaces = &self.policy.spaces;
        self.stretch(spaces.document);
        if let Some(space) = self.trail.space().and_then(|space| spaces.get(space)) {
            self.perhaps_stopped = false;
            self.stretch(space.rules);
        }
    }

    fn stretch(&mut self, RuleRange { from, to }: RuleRange) {
        self.list(RuleIndex(from), RuleIndex(to), Pass::Live);
    }

    /// Of some rules the first that applies.
    pub(super) fn choose(mut self, RuleRange { from, to }: RuleRange) {
        self.first(RuleIndex(from), RuleIndex(to), Pass::Live);
    }

    /// The rules from one place to another, those that they contain left to themselves.
    fn list(&mut self, from: RuleIndex, to: RuleIndex, mut pass: Pass) -> Flow {
        let mut flow = Flow::On;
        for (at, rule) in siblings(self.policy, from, to) {
            if !self.takes_part(at, rule) || !self.acts(at, rule) {
                continue;
            }
            if self.rule(at, rule, pass) == Flow::Stopped {
                (pass, flow) = (Pass::Cut, Flow::Stopped);
            } else if self.perhaps_stopped {
                pass = pass.max(Pass::Perhaps);
            }
        }
        flow
    }

    fn rule(&mut self, at: RuleIndex, rule: &'a Rule, pass: Pass) -> Flow {
        match &rule.body {
            RuleBody::Group(group) => self.group(at, rule, group, pass),
            RuleBody::Filter(filter) => {
                self.filter(at, rule, filter, pass);
                Flow::On
            }
        }
    }

    fn group(&mut self, at: RuleIndex, rule: &'a Rule, group: &'a Group, pass: Pass) -> Flow {
        let (_, stage) = self.runs_at(rule);
        match (self.trail.state(at), stage.cmp(&self.stage)) {
            (State::Pending, std::cmp::Ordering::Equal) => self.apply(at, rule, group, pass),
            (State::Pending, std::cmp::Ordering::Greater) => self.look_ahead(at, rule, group, pass),
            (State::Matched, _) => self.children(at, rule, group, pass),
            (State::Undecided, _) if !self.is_url() => self.perhaps_again(at, rule, group, pass),
            (State::Pending, std::cmp::Ordering::Less) => Flow::On,
            (State::NoMatch | State::Cut | State::Undecided, _) => Flow::On,
        }
    }

    /// A group at its own stage.
    fn apply(&mut self, at: RuleIndex, rule: &'a Rule, group: &'a Group, pass: Pass) -> Flow {
        let pass = pass.max(self.here_or_later(rule));
        if pass == Pass::Cut {
            self.trail.set_state(at, State::Cut);
            return Flow::On;
        }
        let inner = match (self.judges(rule, self.guard(&group.guard)), pass) {
            (Truth::No, _) => {
                self.trail.set_state(at, State::NoMatch);
                return Flow::On;
            }
            (Truth::Yes, Pass::Live) => {
                self.trail.set_state(at, State::Matched);
                self.assign(at, group);
                Pass::Live
            }
            // A stage whose facts are missing was not run: its groups do not apply.
            (Truth::Unknown, _) if self.is_url() => {
                self.trail.set_state(at, State::Undecided);
                return Flow::On;
            }
            (Truth::Yes | Truth::Unknown, _) => {
                self.trail.set_state(at, State::Undecided);
                self.perhaps_assign(at, group);
                Pass::Perhaps
            }
        };
        let flow = self.children(at, rule, group, inner);
        match (group.stop, inner) {
            (false, _) => flow,
            (true, Pass::Live) => Flow::Stopped,
            (true, Pass::Perhaps | Pass::Cut) => {
                self.perhaps_stopped = true;
                flow
            }
        }
    }

    /// Inside a tunnel: what is in an undecided group. If it may run at either of two stages, so may what it does itself.
    fn perhaps_again(
        &mut self,
        at: RuleIndex,
        rule: &'a Rule,
        group: &'a Group,
        pass: Pass,
    ) -> Flow {
        let again = rule.by_headers.is_some() && self.stage == PolicyStage::Document;
        if again {
            self.perhaps_assign(at, group);
        }
        let flow = self.children(at, rule, group, pass.max(Pass::Perhaps));
        self.perhaps_stopped |= again && group.stop;
        flow
    }

    /// A group of a later stage: what its guard says already lets filters inside it be decided early.
    fn look_ahead(&mut self, at: RuleIndex, rule: &'a Rule, group: &'a Group, pass: Pass) -> Flow {
        match self.judges(rule, self.guard(&group.guard)) {
            Truth::Yes => self.children(at, rule, group, pass),
            Truth::No => {
                self.trail.set_state(at, State::NoMatch);
                Flow::On
            }
            Truth::Unknown => Flow::On,
        }
    }

    fn children(&mut self, at: RuleIndex, rule: &'a Rule, group: &'a Group, pass: Pass) -> Flow {
        let first = RuleIndex(at.0 + 1);
        match group.order {
            ChildOrder::First(stage) if stage == self.stage => self.first(first, rule.end, pass),
            // Headers may have given what the document would have said. If not, no rule in it runs now.
            ChildOrder::First(PolicyStage::Document) if self.stage == PolicyStage::Response => {
                self.first(first, rule.end, pass)
            }
            ChildOrder::First(_) | ChildOrder::All => self.list(first, rule.end, pass),
        }
    }

    /// `match: first`: once a child applies, the others are cut off.
    fn first(&mut self, from: RuleIndex, to: RuleIndex, mut pass: Pass) -> Flow {
        let mut flow = Flow::On;
        for (at, rule) in siblings(self.policy, from, to) {
            if !self.takes_part(at, rule) {
                continue;
            }
            if self.rule(at, rule, pass) == Flow::Stopped {
                flow = Flow::Stopped;
            }
            pass = match self.trail.state(at) {
                State::Matched => Pass::Cut,
                State::Undecided => pass.max(Pass::Perhaps),
                State::Pending | State::NoMatch | State::Cut => pass,
            };
        }
        flow
    }

    fn filter(&mut self, at: RuleIndex, rule: &Rule, filter: &Filter, pass: Pass) {
        let (floor, stage) = self.runs_at(rule);
        if self.trail.state(at) != State::Pending || self.stage < floor {
            return;
        }
        let holds = self.condition(&filter.condition);
        let hit = match filter.sense {
            Sense::Forbid => holds,
            Sense::Require => holds.negated(),
        };
        let pass = if self.stage < PolicyStage::Response {
            pass
        } else {
            pass.max(self.here_or_later(rule))
        };
        match (self.judges(rule, hit), pass) {
            (Truth::Unknown, Pass::Cut | Pass::Perhaps)
                if self.stage < stage && self.hides(filter) =>
            {
                self.trail.set_state(at, State::Undecided);
                self.trail.doubt(at);
            }
            (Truth::Unknown, _) if self.stage < stage => {}
            (_, Pass::Cut) => self.trail.set_state(at, State::Cut),
            (Truth::No, _) => self.trail.set_state(at, State::NoMatch),
            (Truth::Yes, Pass::Live) => self.hit(at, filter),
            (Truth::Yes | Truth::Unknown, _) => {
                self.trail.set_state(at, State::Undecided);
                self.trail.doubt(at);
            }
        }
    }

    fn hit(&mut self, at: RuleIndex, filter: &Filter) {
        self.trail.set_state(at, State::Matched);
        self.trail.filtered.get_or_insert(at);
        if filter.soft_error.is_some() {
            self.trail.soft_error.get_or_insert(at);
        }
        self.trail.log |= filter.log;
    }

    fn assign(&mut self, at: RuleIndex, group: &Group) {
        for assignment in &group.assign {
            self.trail.assign(self.policy, assignment.slot, at);
            if let Value::Disposition(value) = assignment.value {
                self.trail.dispositions = bit(value);
                self.trail.open = None;
            }
        }
    }

    /// A group that may apply changes nothing; a disposition that it would change is in doubt.
    fn perhaps_assign(&mut self, at: RuleIndex, group: &Group) {
        let disposition = group
            .assign
            .iter()
            .rev()
            .find(|a| a.slot == schema::DISPOSITION);
        let Some(Value::Disposition(value)) = disposition.map(|a| &a.value) else {
            return;
        };
        if self.trail.dispositions != bit(*value) {
            self.trail.dispositions |= bit(*value);
            self.trail.open.get_or_insert(at);
        }
    }

    fn takes_part(&self, at: RuleIndex, rule: &Rule) -> bool {
        match rule.mode {
            Mode::Enforce => self.part == Part::All || rule.class == RuleClass::Domain,
            Mode::Shadow => self.beside.is_some_and(|beside| beside.contains(at)),
            Mode::Disabled => false,
        }
    }

    /// Whether it, or a rule in it, could do something at this stage.
    fn acts(&self, at: RuleIndex, rule: &Rule) -> bool {
        let by_shadow =
            |beside: Beside<'_>| beside.is_in(at, rule) && beside.rule.active.contains(self.stage);
        rule.active.contains(self.stage) || self.beside.is_some_and(by_shadow)
    }

    /// The floor and the stage of a rule, for this response.
    fn runs_at(&self, rule: &Rule) -> (PolicyStage, PolicyStage) {
        let Some(ByHeaders { floor, stage }) = rule.by_headers else {
            return (rule.floor, rule.stage);
        };
        let early = |fields| self.may_be_given() || self.are_given(fields);
        let floor = if early(floor.0) { floor.1 } else { rule.floor };
        (floor, if early(stage.0) { stage.1 } else { rule.stage })
    }

    /// Whether the response's headers give these fields.
    fn are_given(
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
                !asked || field.any_text(&headers, |_| false) != Fact::Unknown
            })
    }

    /// Inside a tunnel nobody knows which headers a response has.
    fn may_be_given(&self) -> bool {
        !self.is_url() && self.stage == PolicyStage::Response
    }

    /// Inside a tunnel a rule that headers may bring forward runs perhaps at the response, perhaps at the document.
    fn here_or_later(&self, rule: &Rule) -> Pass {
        if rule.by_headers.is_some() && !self.is_url() {
            Pass::Perhaps
        } else {
            Pass::Live
        }
    }

    /// Whether some URLs of a tunnel might decide a filter here already, where it is cut off, and others not.
    fn hides(&self, filter: &Filter) -> bool {
        let mut hides = false;
        filter.condition.each_field(&mut |field| {
            hides |= self.stage >= field.stage() && !field.shows_in_tunnels()
        });
        hides && !self.is_url()
    }

    fn is_url(&self) -> bool {
        matches!(self.facts.subject, Subject::Url(_))
    }

    fn guard(&self, guard: &Guard) -> Truth {
        match guard {
            Guard::Always => Truth::Yes,
            Guard::When(condition) => self.condition(condition),
            Guard::Unless(condition) => self.condition(condition).negated(),
        }
    }

    fn condition(&self, condition: &Condition) -> Truth {
        condition.evaluate(self.facts, &self.policy.lists)
    }

    /// Rules on type or size judge 2xx with content only, from the response stage on.
    fn judges(&self, rule: &Rule, truth: Truth) -> Truth {
        if !rule.content_only || self.stage < PolicyStage::Response || truth == Truth::No {
            return truth;
        }
        match (self.facts.response, self.facts.subject) {
            (Fact::Known(response), Subject::Url(_)) if response.is_success_with_content() => truth,
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
