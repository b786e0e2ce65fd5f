//! Why a decision is what it is: what became of every rule, and which rule set every option.
//!
//! What became of rules and options is read from the request's [`Trail`]; only [`ground`]s ask conditions again.

pub mod ground;
pub mod test_words;

use serde_json::{Value as Json, json};

use super::Policy;
use super::condition::{Condition, Truth};
use super::fact::{Fact, Facts};
use super::list::List;
use super::options::{SetBy, Slot, Value};
use super::rule::{Mode, PolicyStage, Rule, RuleIndex};
use super::trail::{State, Trail};
use ground::{Ground, Seen};
use test_words::{CONTENT, TestWords};

/// What became of a rule; the words that `crawlgate explain` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleStatus {
    /// A group that applied, or a filter that hit.
    Matched,
    /// It ran, and its condition says no.
    NoMatch,
    /// A `stop`, or an earlier child of its `match: first` list, cut it off.
    Stopped,
    /// `enabled: false` or `mode: shadow`, its own or of a group around it.
    Disabled,
    /// A group around it did not apply, or it belongs to a space of other crawlers.
    Parent,
    /// It waits for facts that are not given.
    Undecided,
}

impl RuleStatus {
    /// The words of operations.md.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Matched => "matched",
            Self::NoMatch => "no match",
            Self::Stopped => "skipped: stopped",
            Self::Disabled => "skipped: disabled",
            Self::Parent => "skipped: parent",
            Self::Undecided => "undecided",
        }
    }
}

/// One rule in an explanation.
#[derive(Clone, Copy, Debug)]
pub struct RuleLine<'p> {
    /// The rule.
    pub rule: &'p Rule,
    /// How many groups it stands in.
    pub depth: usize,
    /// What became of it.
    pub status: RuleStatus,
}

/// One option in an explanation.
#[derive(Clone, Debug)]
pub struct OptionLine<'p> {
    /// Its path: `politeness.delay`.
    pub path: &'p str,
    /// Its value.
    pub value: &'p Value,
    /// Who set it.
    pub set_by: SetBy,
}

impl Policy {
    /// Every rule with what became of it, in document order.
    pub fn rule_lines<'p>(&'p self, trail: &'p Trail) -> impl Iterator<Item = RuleLine<'p>> {
        self.rules
            .iter()
            .enumerate()
            .map(move |(at, rule)| RuleLine {
                rule,
                depth: self.parents(rule).count(),
                status: self.status(
                    trail,
                    RuleIndex(u32::try_from(at).unwrap_or(u32::MAX)),
                    rule,
                ),
            })
    }

    /// Every option with its value and who set it.
    pub fn option_lines<'p>(&'p self, trail: &'p Trail) -> impl Iterator<Item = OptionLine<'p>> {
        self.options
            .entries
            .iter()
            .enumerate()
            .map(move |(at, entry)| {
                let slot = Slot(u16::try_from(at).unwrap_or(u16::MAX));
                OptionLine {
                    path: &entry.path,
                    value: trail.value(self, slot),
                    set_by: trail.set_by(self, slot),
                }
            })
    }

    /// Every option with its value as one JSON object, maps nested: the `options` of `crawlgate decide`.
    pub fn options_json(&self, trail: &Trail) -> Json {
        let mut all = json!({});
        for line in self.option_lines(trail) {
            insert(&mut all, line.path, line.value.to_json());
        }
        all
    }

    /// Why a rule matched, did not match, or is undecided; nothing of rules that were skipped, and of those without a
    /// condition.
    pub fn grounds(&self, line: &RuleLine<'_>, facts: &Facts<'_>) -> Vec<Ground> {
        let asked = match line.status {
            RuleStatus::Matched | RuleStatus::NoMatch | RuleStatus::Undecided => true,
            RuleStatus::Stopped | RuleStatus::Disabled | RuleStatus::Parent => false,
        };
        let Some(condition) = line.rule.condition().filter(|_| asked) else {
            return Vec::new();
        };
        match passed_by(line, condition, facts, &self.lists) {
            Some(ground) => vec![ground],
            None => condition.grounds(facts, &self.lists),
        }
    }

    /// The paths of all options, in the order of their slots.
    pub fn option_paths(&self) -> impl Iterator<Item = &str> {
        self.options.entries.iter().map(|entry| &*entry.path)
    }

    /// The place of an option; `None` of a key of an open map that the policy does not name.
    pub fn slot_of(&self, path: &str) -> Option<Slot> {
        let at = self.option_paths().position(|known| known == path)?;
        u16::try_from(at).ok().map(Slot)
    }

    /// The path of an option.
    pub fn option_path(&self, slot: Slot) -> &str {
        self.options
            .entries
            .get(usize::from(slot.0))
            .map_or("", |entry| &entry.path)
    }

    /// The condition of a rule in one line; `None` of a group without one.
    pub fn condition_in_words(&self, rule: &Rule) -> Option<String> {
        rule.condition()
            .map(|condition| condition.in_words(&self.lists))
    }

    /// What a rule does when it matches, in one line; `None` of one that only filters, or only groups others.
    pub fn effect_in_words(&self, rule: &Rule) -> Option<String> {
        Some(super::compare::does(self, rule)).filter(|does| !does.is_empty())
    }

    /// The value of an option before the first rule.
    pub fn base(&self, path: &str) -> Option<&Value> {
        self.options
            .entries
            .iter()
            .find(|entry| *entry.path == *path)
            .map(|entry| &entry.base)
    }

    /// The id of a rule.
    pub fn rule_id(&self, rule: RuleIndex) -> Option<&str> {
        self.rules.get(rule.0 as usize).map(|r| r.id.as_str())
    }

    fn status(&self, trail: &Trail, at: RuleIndex, rule: &Rule) -> RuleStatus {
        if rule.mode != Mode::Enforce {
            return RuleStatus::Disabled;
        }
        match trail.state(at) {
            State::Matched => RuleStatus::Matched,
            State::NoMatch => RuleStatus::NoMatch,
            State::Cut => RuleStatus::Stopped,
            State::Undecided => RuleStatus::Undecided,
            State::Pending if !self.spaces.runs(at, trail.space()) => RuleStatus::Parent,
            State::Pending => self.status_by_parents(trail, rule),
        }
    }

    /// A rule that never ran shares the fate of the nearest group that did.
    fn status_by_parents(&self, trail: &Trail, rule: &Rule) -> RuleStatus {
        let fate = self
            .parents(rule)
            .find_map(|parent| match trail.state(parent) {
                State::NoMatch => Some(RuleStatus::Parent),
                State::Cut => Some(RuleStatus::Stopped),
                State::Pending | State::Matched | State::Undecided => None,
            });
        fate.unwrap_or(RuleStatus::Undecided)
    }

    fn parents<'p>(&'p self, rule: &'p Rule) -> impl Iterator<Item = RuleIndex> + 'p {
        let parent_of = |index: &RuleIndex| self.rules.get(index.0 as usize).and_then(|r| r.parent);
        std::iter::successors(rule.parent, parent_of)
    }
}

impl RuleLine<'_> {
    /// The stage that the rule waits for, if it is undecided only because that stage was not run.
    pub fn waits_for(&self) -> Option<PolicyStage> {
        (self.status == RuleStatus::Undecided).then_some(self.rule.stage)
    }
}

/// A rule on type or size passes by what is no success with content, whatever its condition says.
fn passed_by(
    line: &RuleLine<'_>,
    condition: &Condition,
    facts: &Facts<'_>,
    lists: &[List],
) -> Option<Ground> {
    let Fact::Known(response) = facts.response else {
        return None;
    };
    let passed_by = line.status == RuleStatus::NoMatch
        && line.rule.content_only
        && !response.is_success_with_content()
        && condition.evaluate(facts, lists) != line.rule.indifferent();
    passed_by.then(|| Ground {
        field: "status".into(),
        seen: Seen::Value(response.status.to_string()),
        test: TestWords {
            kind: CONTENT,
            values: Vec::new(),
        },
        truth: Truth::No,
    })
}

/// Puts a value at a dotted path, making the objects on its way.
fn insert(object: &mut Json, path: &str, value: Json) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    match path.split_once('.') {
        None => {
            map.insert(path.into(), value);
        }
        Some((head, rest)) => insert(map.entry(head).or_insert_with(|| json!({})), rest, value),
    }
}
