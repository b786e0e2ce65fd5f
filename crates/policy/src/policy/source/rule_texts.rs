//! The rules of a file, read one after the other from their own texts.
//!
//! The tree of a large file takes more memory than its policy, so it is built and read in parts. A
//! rule whose text is that of a rule of the policy before is not parsed at all: what was compiled
//! from this text is taken over, and its locations are moved to the lines where the text is now.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};

use crate::diagnostics::problem::SourceLocation;
use crate::diagnostics::problems::Problems;
use crate::model::number::saturating_u32;
use crate::model::rule_id::RuleId;
use crate::policy::Policy;
use crate::policy::list::texts::PackedTexts;
use crate::policy::rule::{GroupGuard, Rule, RuleBody, RuleIndex};
use crate::yaml::{self, CountedNode, ItemText, ItemTexts, Node};

use super::document::RULES_KEY;
use super::rule::read_rule;
use super::tree::{
    Located, SourceCondition, SourceFilter, SourceGroup, SourceGuard, SourceRule, SourceRuleBody,
    ThenAction,
};

/// The texts that are parsed at a time, in bytes.
const PART_BYTES: usize = 256 << 10;
/// The rules that are read at a time, parsed or taken over.
const PART_RULES: usize = 4_096;

/// The texts of the outermost rules of a file.
#[derive(Clone, Debug)]
pub(crate) struct SourceRuleTexts {
    pub(crate) file: Arc<str>,
    text: Arc<str>,
    /// The number of rules in the files before.
    first: usize,
    rules: Vec<SourceRuleText>,
}

/// The text of a rule.
#[derive(Clone, Copy, Debug)]
struct SourceRuleText {
    from: u32,
    to: u32,
    /// The first line, from 1.
    line: u32,
    /// The number of keys and values.
    nodes: u32,
}

/// The rules of a policy that the next one takes over if their texts are unchanged.
#[derive(Debug, Default)]
pub(crate) struct ReusableRules {
    texts: PackedTexts,
    /// The rules in the order of their texts.
    rules: Box<[ReusableRule]>,
}

/// A rule that may be taken over.
#[derive(Debug)]
struct ReusableRule {
    rule: RuleIndex,
    /// The number of keys and values in its text.
    nodes: u32,
    place: RelativePlace,
    id_place: Option<RelativePlace>,
    then: Option<(ThenAction, RelativePlace)>,
}

/// A location in the text of a rule.
#[derive(Clone, Copy, Debug)]
struct RelativePlace {
    /// The number of lines before.
    line: u16,
    column: u16,
}

/// The rules of the policy before, by their texts.
pub(super) struct PreviousRules<'p> {
    policy: &'p Policy,
    by_text: HashMap<&'p str, &'p ReusableRule>,
}

/// A rule of the policy before, with its text.
type TakenOver<'p> = (&'p ReusableRule, &'p Rule);

/// A file whose rules have been read.
pub(super) struct RulesOfFile {
    /// The document with other rules.
    pub(super) rest: Node,
    pub(super) rules: Vec<SourceRule>,
    pub(super) texts: SourceRuleTexts,
    pub(super) problems: Problems,
}

impl SourceRuleTexts {
    /// Returns the first and the last line of each rule, with its number among the outermost rules.
    fn lines(&self) -> impl Iterator<Item = (usize, &SourceRuleText, u32)> {
        let ends = self.rules.iter().skip(1).map(|next| next.line - 1);
        let rules = (self.first..).zip(&self.rules);
        let rules = rules.zip(ends.chain([u32::MAX]));
        rules.map(|((number, text), last)| (number, text, last))
    }
}

impl ReusableRules {
    /// Selects the rules that may be taken over. `find` returns the rule with this number among the
    /// outermost rules, unless it is needed as it was written. `problems` are the locations of all
    /// problems, so that a rule with a problem is read again.
    pub(crate) fn new<'s>(
        files: &[SourceRuleTexts],
        find: impl Fn(usize) -> Option<(RuleIndex, &'s SourceRule)>,
        problems: &[&SourceLocation],
    ) -> Self {
        let mut selected: Vec<(&str, ReusableRule)> = Vec::new();
        for file in files {
            let mut faulty: Vec<u32> = problems
                .iter()
                .filter(|place| place.file == file.file)
                .map(|place| place.line)
                .collect();
            faulty.sort_unstable();
            selected.extend(file.lines().filter_map(|(number, text, last)| {
                let next = faulty.partition_point(|line| *line < text.line);
                let is_faulty = faulty.get(next).is_some_and(|line| *line <= last);
                let (index, source) = find(number).filter(|_| !is_faulty)?;
                let rule = ReusableRule::new(*text, index, source)?;
                Some((file.text.get(text.from as usize..text.to as usize)?, rule))
            }));
        }
        let bytes = selected.iter().map(|(text, _)| text.len()).sum();
        let mut texts = PackedTexts::with_capacity(selected.len(), bytes);
        let rules = selected
            .into_iter()
            .map_while(|(text, rule)| texts.push(text).then_some(rule));
        let rules = rules.collect();
        Self { texts, rules }
    }

    /// The rules with their texts.
    fn iter(&self) -> impl Iterator<Item = (&str, &ReusableRule)> {
        self.texts.iter().zip(&self.rules)
    }
}

impl ReusableRule {
    fn new(text: SourceRuleText, rule: RuleIndex, source: &SourceRule) -> Option<Self> {
        let relative = |place: &SourceLocation| RelativePlace::new(place, text.line);
        let then = match &source.body {
            SourceRuleBody::Filter(_) => None,
            SourceRuleBody::Group(group) => group.then.as_ref(),
        };
        let then = match then {
            Some(then) => Some((then.value, relative(&then.place)?)),
            None => None,
        };
        let id_place = match &source.id {
            Some(id) => Some(relative(&id.place)?),
            None => None,
        };
        Some(Self {
            rule,
            nodes: text.nodes,
            place: relative(&source.place)?,
            id_place,
            then,
        })
    }

    /// Returns the rule as it was written, but for its condition.
    fn to_source(&self, rule: &Rule, position: RuleId, file: &Arc<str>, line: u32) -> SourceRule {
        let place = |place: RelativePlace| place.to_location(file, line);
        let taken_over = |condition: &_| SourceCondition::TakenOver(Clone::clone(condition));
        let body = match &rule.body {
            RuleBody::Filter(filter) => SourceRuleBody::Filter(SourceFilter {
                sense: filter.kind,
                condition: taken_over(&filter.condition),
                log: filter.log,
                reject: filter.reject_intent,
                reject_status: filter.reject_status,
                soft_error: None,
            }),
            RuleBody::Group(group) => SourceRuleBody::Group(SourceGroup {
                guard: match &group.guard {
                    GroupGuard::Always => SourceGuard::Always,
                    GroupGuard::When(condition) => SourceGuard::When(taken_over(condition)),
                    GroupGuard::Unless(condition) => SourceGuard::Unless(taken_over(condition)),
                },
                then: self.then.map(|(value, then)| Located {
                    place: place(then),
                    value,
                }),
                set: Vec::new(),
                stop: false,
                match_first: None,
                rules: Vec::new(),
            }),
        };
        SourceRule {
            place: place(self.place),
            id: self.id_place.map(|id| Located {
                place: place(id),
                value: rule.id.clone(),
            }),
            position,
            about: rule.about.clone(),
            enabled: true,
            shadow: None,
            stage: None,
            body,
        }
    }
}

/// Returns `true` for a rule of which [`ReusableRule::to_source`] restores all except the condition.
pub(crate) fn is_restorable(source: &SourceRule) -> bool {
    let is_plain = source.enabled && source.shadow.is_none() && source.stage.is_none();
    is_plain
        && match &source.body {
            SourceRuleBody::Filter(filter) => filter.soft_error.is_none(),
            SourceRuleBody::Group(group) => {
                group.set.is_empty()
                    && !group.stop
                    && group.match_first.is_none()
                    && group.rules.is_empty()
            }
        }
}

impl RelativePlace {
    fn new(place: &SourceLocation, first_line: u32) -> Option<Self> {
        Some(Self {
            line: u16::try_from(place.line.checked_sub(first_line)?).ok()?,
            column: u16::try_from(place.column).ok()?,
        })
    }

    fn to_location(self, file: &Arc<str>, first_line: u32) -> SourceLocation {
        SourceLocation {
            file: Arc::clone(file),
            line: first_line.saturating_add(self.line.into()),
            column: self.column.into(),
        }
    }
}

impl<'p> PreviousRules<'p> {
    pub(super) fn new(policy: &'p Policy) -> Self {
        let by_text = policy.reusable_rules.iter().collect();
        Self { policy, by_text }
    }

    fn find(&self, text: &str) -> Option<TakenOver<'p>> {
        let found = *self.by_text.get(text)?;
        Some((found, self.policy.rule(found.rule)?))
    }
}

/// Reads a file whose rules can be read one after the other; `None` if it must be parsed as a whole.
/// `first` is the number of rules in the files before.
pub(super) fn read_in_parts(
    file: &Arc<str>,
    text: &Arc<str>,
    first: usize,
    previous: Option<&PreviousRules<'_>>,
) -> Option<RulesOfFile> {
    let items = ItemTexts::find(text, RULES_KEY)?;
    let rest = items.parse_rest(file)?;
    let mut reader = RulePartReader {
        nodes: rest.count,
        read: RulesOfFile {
            rest: rest.node,
            rules: Vec::with_capacity(items.count()),
            texts: SourceRuleTexts {
                file: Arc::clone(file),
                text: Arc::clone(text),
                first,
                rules: Vec::with_capacity(items.count()),
            },
            problems: Problems::new(),
        },
    };
    // While the rules of one part are read, the next part is parsed.
    let (sender, parsed) = mpsc::sync_channel(1);
    let parse_parts = move || {
        for part in parts(&items, previous) {
            let nodes = items.parse_items(file, &part.changed_items())?;
            sender.send((part, nodes)).ok()?;
        }
        Some(())
    };
    let read_parts = || {
        parsed
            .into_iter()
            .try_for_each(|(part, nodes)| reader.read_part(&part, nodes))
    };
    yaml::parse_beside(parse_parts, read_parts)?;
    Some(reader.read)
}

/// Some rules of a file, in the order of the text.
struct RulePart<'t, 'p> {
    /// The rules, with those that they take over.
    rules: Vec<(ItemText<'t>, Option<TakenOver<'p>>)>,
}

impl<'t> RulePart<'t, '_> {
    /// The items that are to be parsed.
    fn changed_items(&self) -> Vec<ItemText<'t>> {
        let changed = self
            .rules
            .iter()
            .filter(|(_, taken_over)| taken_over.is_none());
        changed.map(|(item, _)| *item).collect()
    }
}

/// Returns the rules of a file in parts.
fn parts<'t, 'p>(
    items: &ItemTexts<'t>,
    previous: Option<&PreviousRules<'p>>,
) -> impl Iterator<Item = RulePart<'t, 'p>> {
    let mut items = items.iter();
    std::iter::from_fn(move || {
        let mut rules = Vec::new();
        let mut changed_bytes = 0;
        while changed_bytes < PART_BYTES && rules.len() < PART_RULES {
            let Some(item) = items.next() else {
                break;
            };
            let taken_over = previous.and_then(|previous| previous.find(item.text));
            if taken_over.is_none() {
                changed_bytes += item.text.len();
            }
            rules.push((item, taken_over));
        }
        (!rules.is_empty()).then_some(RulePart { rules })
    })
}

/// Reads the rules of a file, one part after the other.
struct RulePartReader {
    /// The number of keys and values so far.
    nodes: usize,
    read: RulesOfFile,
}

impl RulePartReader {
    /// Reads the rules of a part, with the nodes of those that have changed; `None` if they cannot be read
    /// apart from the others.
    fn read_part(&mut self, part: &RulePart<'_, '_>, nodes: Vec<CountedNode>) -> Option<()> {
        let file = Arc::clone(&self.read.texts.file);
        let mut parsed = nodes.into_iter();
        for (item, taken_over) in &part.rules {
            let texts = &mut self.read.texts;
            let number = texts.first + texts.rules.len() + 1;
            let position = format!("{RULES_KEY}.{number}");
            let (rule, nodes) = match taken_over {
                Some((reusable, rule)) => {
                    let position = RuleId::new(&position)?;
                    let source = reusable.to_source(rule, position, &file, item.line);
                    (source, reusable.nodes)
                }
                None => {
                    let parsed = parsed.next()?;
                    let rule = read_rule(&parsed.node, &position, &mut self.read.problems)?;
                    (rule, saturating_u32(parsed.count))
                }
            };
            self.nodes += nodes as usize;
            self.read.rules.push(rule);
            texts.rules.push(SourceRuleText {
                from: u32::try_from(item.offset).ok()?,
                to: u32::try_from(item.offset + item.text.len()).ok()?,
                line: item.line,
                nodes,
            });
        }
        // The parser reports the place of the first one that is too many.
        (self.nodes <= yaml::MAX_NODES).then_some(())
    }
}
