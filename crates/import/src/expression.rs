//! Regular expressions of other systems as conditions of a policy.
//!
//! An expression is read in its dialect into a tree without the differences between the dialects. Back-references,
//! atomic groups and look-around are then taken out of the tree where that is possible, and what remains is
//! written as a policy has it.

mod automaton;
mod host;
mod look;
mod node;
mod parse;
mod plain;
mod reference;
mod set;
mod write;

use crate::draft::ConditionDraft;
use crate::report::AssumptionEffect;

use look::LookTranslator;
use node::{Anchor, ClassItem, ExpressionNode};
use parse::TextNature;

/// The syntax in which an expression is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `java.util.regex`.
    Java,
    DotNet,
    /// Python's `re`.
    Python,
    JavaScript,
    /// POSIX extended expressions, with the escapes of GNU.
    Posix,
    Pcre,
    /// Brics automata, which Nutch uses: always whole, no `\d`, and `@ & ~ # < >` are operators.
    Automaton,
}

impl Dialect {
    fn name(self) -> &'static str {
        match self {
            Self::Java => "Java",
            Self::DotNet => ".NET",
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
            Self::Posix => "POSIX",
            Self::Pcre => "PCRE",
            Self::Automaton => "automaton",
        }
    }
}

/// The way in which an expression is compared with the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchoring {
    /// It fits the whole text.
    Whole,
    /// It fits from the beginning, as Python's `match`.
    Start,
    /// It fits somewhere.
    Search,
}

/// An expression as the source has it.
#[derive(Clone, Copy, Debug)]
pub struct SourceExpression<'a> {
    pub text: &'a str,
    pub dialect: Dialect,
    pub anchoring: Anchoring,
    pub ignore_case: bool,
}

/// An expression as a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct TranslatedExpression {
    pub condition: ConditionDraft,
    /// The assumption, and the effect if that is wrong, for an expression that excludes. For one that includes
    /// use [`TranslatedExpression::assumption_of_inclusion`].
    pub assumption: Option<(String, AssumptionEffect)>,
}

impl TranslatedExpression {
    /// Returns the assumption of an expression of which what it fits is allowed.
    pub fn assumption_of_inclusion(&self) -> Option<(String, AssumptionEffect)> {
        let (text, effect) = self.assumption.clone()?;
        let effect = match effect {
            AssumptionEffect::RefusesMore => AssumptionEffect::RefusesLess,
            AssumptionEffect::RefusesLess => AssumptionEffect::RefusesMore,
            AssumptionEffect::Either => AssumptionEffect::Either,
        };
        Some((text, effect))
    }
}

impl SourceExpression<'_> {
    /// Translates the expression into one whose groups a replacement uses (the option `replace`).
    pub fn translate_for_replacement(&self) -> Result<String, String> {
        let nature = text_nature("url");
        let parsed = parse::parse(self.text, self.dialect, self.ignore_case, nature)?;
        if parsed.node.has_look() {
            return Err("look-around has no equal in a replacement".to_owned());
        }
        let is_reference = |node: &ExpressionNode| matches!(node, ExpressionNode::BackReference(_));
        if parsed.node.contains(&is_reference) || reference::has_atomic(&parsed.node) {
            let what = "a back-reference or a possessive part";
            return Err(format!("{what} has no equal in a replacement"));
        }
        let written = write::write(&parsed.node, nature);
        plain::check(&written.text, written.ignore_case)?;
        Ok(match written.ignore_case {
            true => format!("(?i){}", written.text),
            false => written.text,
        })
    }

    /// Translates the expression into a condition on a field (`url`, `path`, `host` …).
    ///
    /// The error says why it cannot be translated, for the report.
    pub fn translate(&self, field: &str) -> Result<TranslatedExpression, String> {
        let nature = text_nature(field);
        if self.dialect == Dialect::Automaton {
            return automaton::translate(self.text, field, nature);
        }
        let parsed = parse::parse(self.text, self.dialect, self.ignore_case, nature)?;
        let mut assumptions = ExpressionAssumptions::default();
        if let Some(text) = parsed.assumption {
            assumptions.add(text, AssumptionEffect::Either);
        }
        if is_compared_without_case(field) && parsed.node.contains(&needs_capitals) {
            let text =
                "capital letters, which the field never has here, are compared as small ones";
            assumptions.add(text.to_owned(), AssumptionEffect::Either);
        }
        if nature.ascii && parsed.node.contains(&is_beyond_ascii) {
            let text =
                "letters beyond ASCII mean their percent-encoded form, in which URLs have them";
            assumptions.add(text.to_owned(), AssumptionEffect::Either);
        }
        let mut sequence = anchored(parsed.node, self.anchoring).into_sequence();
        if field == "url" && host::lower_host(&mut sequence) {
            assumptions.add(host::ASSUMPTION.to_owned(), AssumptionEffect::Either);
        }
        let condition = translate_sequence(sequence, field, nature, &mut assumptions)?;
        Ok(assumptions.into_translated(condition))
    }
}

#[derive(Default)]
struct ExpressionAssumptions(Vec<(String, AssumptionEffect)>);

impl ExpressionAssumptions {
    fn add(&mut self, text: String, effect: AssumptionEffect) {
        self.0.push((text, effect));
    }

    fn into_translated(self, condition: ConditionDraft) -> TranslatedExpression {
        TranslatedExpression {
            condition,
            assumption: self.joined(),
        }
    }

    fn joined(self) -> Option<(String, AssumptionEffect)> {
        let first = self.0.first()?.1;
        let same = self.0.iter().all(|(_, effect)| *effect == first);
        let effect = if same {
            first
        } else {
            AssumptionEffect::Either
        };
        let texts: Vec<String> = self.0.into_iter().map(|(text, _)| text).collect();
        Some((texts.join("; and that "), effect))
    }
}

fn text_nature(field: &str) -> TextNature {
    let ascii = matches!(
        field,
        "url"
            | "scheme"
            | "host"
            | "port"
            | "authority"
            | "path"
            | "path_and_query"
            | "rel_path"
            | "rel_path_and_query"
            | "query"
            | "authority_path_query"
            | "method"
            | "content_type"
            | "ext"
    );
    let lines = !ascii && !field.starts_with("header.") && !matches!(field, "referer" | "crawler");
    TextNature { ascii, lines }
}

/// Returns `true` for fields that a policy compares without regard to case.
fn is_compared_without_case(field: &str) -> bool {
    matches!(
        field,
        "host" | "scheme" | "authority" | "content_type" | "ext"
    )
}

/// Returns `true` for a letter that no canonical URL has.
fn is_beyond_ascii(node: &ExpressionNode) -> bool {
    matches!(node, ExpressionNode::Literal { character, .. } if !character.is_ascii())
}

/// Returns `true` for letters in upper case that are compared exactly.
fn needs_capitals(node: &ExpressionNode) -> bool {
    let is_capital = |c: &char| c.is_ascii_uppercase();
    match node {
        ExpressionNode::Literal { character, folds } => !folds && is_capital(character),
        ExpressionNode::Class { class, folds } => {
            let has_small = class
                .items
                .iter()
                .any(|item| matches!(item, ClassItem::Range('a', 'z')));
            let capital = |item: &ClassItem| match item {
                ClassItem::Char(c) | ClassItem::Range(c, _) => is_capital(c),
                ClassItem::Shorthand { .. }
                | ClassItem::Posix { .. }
                | ClassItem::Property { .. }
                | ClassItem::Nested(_) => false,
            };
            !folds && !has_small && class.items.iter().any(capital)
        }
        ExpressionNode::Empty
        | ExpressionNode::Any(_)
        | ExpressionNode::Anchor(_)
        | ExpressionNode::Group { .. }
        | ExpressionNode::Repeat { .. }
        | ExpressionNode::Concat(_)
        | ExpressionNode::Alternate(_)
        | ExpressionNode::Look { .. }
        | ExpressionNode::Atomic(_)
        | ExpressionNode::BackReference(_) => false,
    }
}

fn anchored(node: ExpressionNode, anchoring: Anchoring) -> ExpressionNode {
    let group = |node| ExpressionNode::Group {
        inner: Box::new(node),
        capture: None,
    };
    match anchoring {
        Anchoring::Search => node,
        Anchoring::Start => {
            ExpressionNode::Concat(vec![ExpressionNode::Anchor(Anchor::Start), group(node)])
        }
        Anchoring::Whole => ExpressionNode::Concat(vec![
            ExpressionNode::Anchor(Anchor::Start),
            group(node),
            ExpressionNode::Anchor(Anchor::End),
        ]),
    }
}

fn translate_sequence(
    mut sequence: Vec<ExpressionNode>,
    field: &str,
    nature: TextNature,
    assumptions: &mut ExpressionAssumptions,
) -> Result<ConditionDraft, String> {
    let is_reference = |node: &ExpressionNode| matches!(node, ExpressionNode::BackReference(_));
    if sequence.iter().any(|node| node.contains(&is_reference)) {
        match reference::write_out(&sequence) {
            Some(node) => sequence = node.into_sequence(),
            None => return translate_repeats(sequence, field, nature, assumptions),
        }
    }
    if sequence.iter().any(reference::has_atomic) {
        let (plain, is_same) = reference::without_atomic(sequence, true);
        sequence = plain;
        if !is_same {
            let text = "a possessive or atomic part may give back what it fits";
            assumptions.add(text.to_owned(), AssumptionEffect::RefusesMore);
        }
    }
    if !sequence.iter().any(ExpressionNode::has_look) {
        return plain::condition(sequence, field, nature);
    }
    let mut translator = LookTranslator {
        field,
        nature,
        count: 0,
    };
    translator.condition(ExpressionNode::Concat(sequence).into_flat_sequence())
}

/// Translates an expression that finds repeated segments of a path.
fn translate_repeats(
    sequence: Vec<ExpressionNode>,
    field: &str,
    nature: TextNature,
    assumptions: &mut ExpressionAssumptions,
) -> Result<ConditionDraft, String> {
    let has_path = matches!(
        field,
        "url"
            | "path"
            | "path_and_query"
            | "rel_path"
            | "rel_path_and_query"
            | "authority_path_query"
    );
    let found = reference::repeated_segments(&sequence).filter(|_| has_path);
    let Some((count, is_plain)) = found else {
        return Err(
            "a back-reference has no equal in a policy's expressions, which match in linear time"
                .to_owned(),
        );
    };
    assumptions.add(
        format!(
            "a segment that occurs {count} times or more anywhere in the path is meant; one that is repeated in the host or the query is not"
        ),
        AssumptionEffect::RefusesMore,
    );
    let repeats = ConditionDraft::test("path", "repeats", [format!("[{count}:]")]);
    if is_plain {
        return Ok(repeats);
    }
    let relaxed = sequence.iter().cloned();
    let relaxed = relaxed.map(|node| reference::without_references(node, &sequence));
    let relaxed = relaxed.collect();
    let rest = translate_sequence(relaxed, field, nature, assumptions)?;
    if rest == ConditionDraft::Always {
        return Ok(repeats);
    }
    Ok(ConditionDraft::all(vec![rest, repeats]))
}
