//! Expressions of the Brics automaton library, with all of its operators.

use crate::draft::ConditionDraft;
use crate::report::AssumptionEffect;

use super::{ExpressionAssumptions, TranslatedExpression, host};

use super::node::{Class, ClassItem, ExpressionNode, LineBreaks, RepeatMode};
use super::parse::TextNature;
use super::plain;

const MAX_DEPTH: usize = 48;
/// The maximum number of numbers of an interval, which are written out.
const MAX_INTERVAL: u32 = 1_000;
const MAX_COUNT: u32 = 100_000;

/// Translates an expression, which always fits the whole text.
pub(super) fn translate(
    text: &str,
    field: &str,
    nature: TextNature,
) -> Result<TranslatedExpression, String> {
    let mut parser = AutomatonParser {
        chars: text.chars().collect(),
        at: 0,
        depth: 0,
    };
    let tree = parser.union()?;
    if parser.at < parser.chars.len() {
        return Err(parser.error("an unmatched `)`"));
    }
    let mut assumptions = ExpressionAssumptions::default();
    let condition = tree.into_condition(field, nature, &mut assumptions)?;
    Ok(assumptions.into_translated(condition))
}

/// An expression with operators that a policy has for conditions only.
enum AutomatonTree {
    Node(ExpressionNode),
    Or(Vec<AutomatonTree>),
    And(Vec<AutomatonTree>),
    Not(Box<AutomatonTree>),
}

impl AutomatonTree {
    fn into_node(self) -> Result<ExpressionNode, String> {
        match self {
            Self::Node(node) => Ok(node),
            Self::Or(parts) => {
                let nodes: Result<Vec<ExpressionNode>, String> =
                    parts.into_iter().map(Self::into_node).collect();
                Ok(ExpressionNode::alternate(nodes?))
            }
            Self::And(_) => {
                Err("`&` in a part of an expression has no equal in a policy".to_owned())
            }
            Self::Not(_) => {
                Err("`~` in a part of an expression has no equal in a policy".to_owned())
            }
        }
    }

    fn is_plain(&self) -> bool {
        match self {
            Self::Node(_) => true,
            Self::Or(parts) => parts.iter().all(Self::is_plain),
            Self::And(_) | Self::Not(_) => false,
        }
    }

    fn into_condition(
        self,
        field: &str,
        nature: TextNature,
        assumptions: &mut ExpressionAssumptions,
    ) -> Result<ConditionDraft, String> {
        if self.is_plain() {
            let inner = ExpressionNode::Group {
                inner: Box::new(self.into_node()?),
                capture: None,
            };
            let whole = vec![
                ExpressionNode::Anchor(super::node::Anchor::Start),
                inner,
                ExpressionNode::Anchor(super::node::Anchor::End),
            ];
            let mut sequence = ExpressionNode::Concat(whole).into_flat_sequence();
            if field == "url" && host::lower_host(&mut sequence) {
                assumptions.add(host::ASSUMPTION.to_owned(), AssumptionEffect::Either);
            }
            return plain::condition(sequence, field, nature);
        }
        let mut conditions = |parts: Vec<Self>| -> Result<Vec<ConditionDraft>, String> {
            parts
                .into_iter()
                .map(|part| part.into_condition(field, nature, assumptions))
                .collect()
        };
        match self {
            Self::Node(_) => Ok(ConditionDraft::Always),
            Self::Or(parts) => Ok(ConditionDraft::any(conditions(parts)?)),
            Self::And(parts) => Ok(ConditionDraft::all(conditions(parts)?)),
            Self::Not(inner) => Ok(ConditionDraft::any(conditions(vec![*inner])?).negated()),
        }
    }
}

struct AutomatonParser {
    chars: Vec<char>,
    at: usize,
    depth: usize,
}

impl AutomatonParser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += 1;
        }
        found
    }

    fn error(&self, message: &str) -> String {
        format!(
            "not a valid expression of an automaton: {message} at character {}",
            self.at + 1
        )
    }

    fn union(&mut self) -> Result<AutomatonTree, String> {
        let mut parts = vec![self.intersection()?];
        while self.eat('|') {
            parts.push(self.intersection()?);
        }
        Ok(match parts.len() {
            1 => parts.remove(0),
            _ => AutomatonTree::Or(parts),
        })
    }

    fn intersection(&mut self) -> Result<AutomatonTree, String> {
        let mut parts = vec![self.sequence()?];
        while self.eat('&') {
            parts.push(self.sequence()?);
        }
        Ok(match parts.len() {
            1 => parts.remove(0),
            _ => AutomatonTree::And(parts),
        })
    }

    fn sequence(&mut self) -> Result<AutomatonTree, String> {
        let mut parts = vec![self.repetition()?];
        while self.peek().is_some_and(|c| !matches!(c, ')' | '|' | '&')) {
            parts.push(self.repetition()?);
        }
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        let nodes: Result<Vec<ExpressionNode>, String> = parts
            .into_iter()
            .map(|part| part.into_node().map(in_group))
            .collect();
        Ok(AutomatonTree::Node(ExpressionNode::concat(nodes?)))
    }

    fn repetition(&mut self) -> Result<AutomatonTree, String> {
        let mut tree = self.complement()?;
        loop {
            let (min, max) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => self.counts()?,
                _ => return Ok(tree),
            };
            self.at += 1;
            let inner = Box::new(in_group(tree.into_node()?));
            tree = AutomatonTree::Node(ExpressionNode::Repeat {
                inner,
                min,
                max,
                mode: RepeatMode::Greedy,
            });
        }
    }

    /// Reads the numbers of `{2,3}`, and stops at the closing brace.
    fn counts(&mut self) -> Result<(u32, Option<u32>), String> {
        self.at += 1;
        let min = self.number()?;
        let max = match self.eat(',') {
            false => Some(min),
            true if self.peek() == Some('}') => None,
            true => Some(self.number()?),
        };
        if self.peek() != Some('}') {
            return Err(self.error("a repetition that is not closed"));
        }
        Ok((min, max))
    }

    fn number(&mut self) -> Result<u32, String> {
        let mut digits = String::new();
        while let Some(c) = self.peek().filter(char::is_ascii_digit) {
            digits.push(c);
            self.at += 1;
        }
        match digits.parse() {
            Ok(number) if number <= MAX_COUNT => Ok(number),
            Ok(_) => Err("a count of more than 100,000".to_owned()),
            Err(_) => Err(self.error("a repetition without a number")),
        }
    }

    fn complement(&mut self) -> Result<AutomatonTree, String> {
        let mut negated = false;
        while self.eat('~') {
            negated = !negated;
        }
        let tree = self.class_or_simple()?;
        Ok(match negated {
            true => AutomatonTree::Not(Box::new(tree)),
            false => tree,
        })
    }

    fn class_or_simple(&mut self) -> Result<AutomatonTree, String> {
        if self.eat('[') {
            return self.class().map(AutomatonTree::Node);
        }
        let Some(c) = self.next() else {
            return Err(self.error("something is missing at the end"));
        };
        let node = match c {
            '.' => ExpressionNode::Any(LineBreaks::None),
            '#' => ExpressionNode::Class {
                class: Class::without(vec![ClassItem::Range('\0', char::MAX)]),
                folds: false,
            },
            '@' => ExpressionNode::Repeat {
                inner: Box::new(ExpressionNode::Any(LineBreaks::None)),
                min: 0,
                max: None,
                mode: RepeatMode::Greedy,
            },
            '"' => self.quoted()?,
            '(' => return self.group(),
            '<' => self.interval()?,
            '\\' => match self.next() {
                Some(c) => ExpressionNode::literal(c),
                None => return Err(self.error("a backslash at the end")),
            },
            c => ExpressionNode::literal(c),
        };
        Ok(AutomatonTree::Node(node))
    }

    fn class(&mut self) -> Result<ExpressionNode, String> {
        let mut class = Class {
            negated: self.eat('^'),
            ..Class::default()
        };
        loop {
            let from = self.class_char()?;
            let item = match self.eat('-') {
                false => ClassItem::Char(from),
                // A dash at the end is a character.
                true if self.peek() == Some(']') => {
                    class.items.push(ClassItem::Char(from));
                    ClassItem::Char('-')
                }
                true => ClassItem::Range(from, self.class_char()?),
            };
            if matches!(item, ClassItem::Range(from, to) if from > to) {
                return Err(self.error("a range whose end is before its beginning"));
            }
            class.items.push(item);
            match self.peek() {
                Some(']') => break,
                Some(_) => {}
                None => return Err(self.error("a class that is not closed")),
            }
        }
        self.at += 1;
        Ok(ExpressionNode::Class {
            class,
            folds: false,
        })
    }

    fn class_char(&mut self) -> Result<char, String> {
        self.eat('\\');
        self.next()
            .ok_or_else(|| self.error("a class that is not closed"))
    }

    fn quoted(&mut self) -> Result<ExpressionNode, String> {
        let mut text = Vec::new();
        loop {
            match self.next() {
                Some('"') => return Ok(ExpressionNode::concat(text)),
                Some(c) => text.push(ExpressionNode::literal(c)),
                None => return Err(self.error("a text that is not closed")),
            }
        }
    }

    fn group(&mut self) -> Result<AutomatonTree, String> {
        if self.eat(')') {
            return Ok(AutomatonTree::Node(ExpressionNode::Empty));
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("groups are nested more than {MAX_DEPTH} deep"));
        }
        let tree = self.union()?;
        self.depth -= 1;
        if !self.eat(')') {
            return Err(self.error("a group that is not closed"));
        }
        Ok(match tree {
            AutomatonTree::Node(inner) => AutomatonTree::Node(ExpressionNode::Group {
                inner: Box::new(inner),
                // As it is written in the source.
                capture: Some(0),
            }),
            other @ (AutomatonTree::Or(_) | AutomatonTree::And(_) | AutomatonTree::Not(_)) => other,
        })
    }

    /// Reads `1-20>` after `<`.
    fn interval(&mut self) -> Result<ExpressionNode, String> {
        let mut text = String::new();
        loop {
            match self.next() {
                Some('>') => break,
                Some(c) => text.push(c),
                None => return Err(self.error("an interval that is not closed")),
            }
        }
        let unsupported = || format!("<{text}> has no equal in a policy's expressions");
        let (from, to) = text.split_once('-').ok_or_else(unsupported)?;
        let (Ok(first), Ok(last)) = (from.parse::<u32>(), to.parse::<u32>()) else {
            return Err(unsupported());
        };
        if from.len() != to.len() || last < first || last - first > MAX_INTERVAL {
            return Err(unsupported());
        }
        let width = from.len();
        let numbers = (first..=last).map(|number| {
            let text = format!("{number:0width$}");
            ExpressionNode::concat(text.chars().map(ExpressionNode::literal).collect())
        });
        Ok(in_group(ExpressionNode::alternate(numbers.collect())))
    }
}

/// Puts alternatives into a group.
fn in_group(node: ExpressionNode) -> ExpressionNode {
    if !matches!(node, ExpressionNode::Alternate(_)) {
        return node;
    }
    ExpressionNode::Group {
        inner: Box::new(node),
        capture: Some(0),
    }
}
