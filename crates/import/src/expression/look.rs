//! Look-around as conditions: `^(?!X)Y` fits what `^Y` fits and `^X` does not.

use crate::draft::ConditionDraft;

use super::node::{Anchor, Class, ClassItem, ExpressionNode, LookDirection};
use super::parse::TextNature;
use super::plain;
use super::set::CharSet;

/// The maximum number of conditions that an expression becomes.
const MAX_CONDITIONS: usize = 32;
/// The maximum number of texts that a look-around is written out for.
const MAX_WORDS: usize = 16;

/// Translates sequences with look-around.
pub(super) struct LookTranslator<'a> {
    pub field: &'a str,
    pub nature: TextNature,
    /// The number of conditions so far.
    pub count: usize,
}

impl LookTranslator<'_> {
    /// Returns the condition that a field fits a sequence somewhere.
    pub(super) fn condition(
        &mut self,
        sequence: Vec<ExpressionNode>,
    ) -> Result<ConditionDraft, String> {
        self.count += 1;
        if self.count > MAX_CONDITIONS {
            return Err("it has too much look-around".to_owned());
        }
        if let Some(inner) = self.tempered(&sequence) {
            return self.condition(inner).map(ConditionDraft::negated);
        }
        let Some(at) = sequence.iter().position(ExpressionNode::has_look) else {
            return plain::condition(sequence, self.field, self.nature);
        };
        let mut before = sequence;
        let mut after = before.split_off(at);
        let node = after.remove(0);
        let ExpressionNode::Look {
            direction,
            negative,
            inner,
        } = node
        else {
            return self.split(before, node, after);
        };
        let inner = inner.into_flat_sequence();
        match direction {
            LookDirection::Ahead => self.ahead(before, inner, after, negative),
            LookDirection::Behind => self.behind(before, inner, after, negative),
        }
    }

    /// Translates a sequence in which a node has several forms, as an alternative for each.
    fn split(
        &mut self,
        before: Vec<ExpressionNode>,
        node: ExpressionNode,
        after: Vec<ExpressionNode>,
    ) -> Result<ConditionDraft, String> {
        let forms = forms(&node).ok_or_else(not_at_an_end)?;
        let mut conditions = Vec::new();
        for form in forms {
            let sequence = [before.clone(), form.into_flat_sequence(), after.clone()].concat();
            conditions.push(self.condition(sequence)?);
        }
        Ok(any(conditions))
    }

    fn ahead(
        &mut self,
        before: Vec<ExpressionNode>,
        inner: Vec<ExpressionNode>,
        after: Vec<ExpressionNode>,
        negative: bool,
    ) -> Result<ConditionDraft, String> {
        if has_one_end(&before) {
            let looked = [before.clone(), inner].concat();
            let rest = self.condition([before, after].concat())?;
            return self.both(rest, looked, negative);
        }
        if let Some((at, forms)) = ambiguous_part(&before) {
            return self.split_at(
                before,
                at,
                forms,
                look(LookDirection::Ahead, negative, inner),
                after,
            );
        }
        if !self.is_anything(&after) {
            return Err(not_at_an_end());
        }
        let tail = match negative {
            false => inner,
            true => vec![other_texts(&inner, LookDirection::Ahead).ok_or_else(not_at_an_end)?],
        };
        self.condition([before, tail].concat())
    }

    fn behind(
        &mut self,
        before: Vec<ExpressionNode>,
        inner: Vec<ExpressionNode>,
        after: Vec<ExpressionNode>,
        negative: bool,
    ) -> Result<ConditionDraft, String> {
        let mirrored: Vec<ExpressionNode> = after.iter().rev().cloned().collect();
        if matches!(after.last(), Some(last) if last.is_end()) && parts_have_one_end(&mirrored) {
            let looked = [inner, after.clone()].concat();
            let rest = self.condition([before, after].concat())?;
            return self.both(rest, looked, negative);
        }
        if !before.iter().all(ExpressionNode::is_anything) && !self.is_start_anything(&before) {
            return Err(not_at_an_end());
        }
        let head = match negative {
            false => inner,
            true => vec![other_texts(&inner, LookDirection::Behind).ok_or_else(not_at_an_end)?],
        };
        self.condition([head, after].concat())
    }

    /// Combines what remains of an expression with its look-around.
    fn both(
        &mut self,
        rest: ConditionDraft,
        looked: Vec<ExpressionNode>,
        negative: bool,
    ) -> Result<ConditionDraft, String> {
        let looked = self.condition(looked)?;
        let looked = if negative { looked.negated() } else { looked };
        let mut parts = Vec::new();
        for part in [rest, looked] {
            match part {
                ConditionDraft::Always => {}
                ConditionDraft::All(inner) => parts.extend(inner),
                other @ (ConditionDraft::Any(_)
                | ConditionDraft::Not(_)
                | ConditionDraft::Test(_)) => {
                    parts.push(other);
                }
            }
        }
        // What it must fit comes first.
        parts.sort_by_key(|part| matches!(part, ConditionDraft::Not(_)));
        Ok(match parts.is_empty() {
            true => ConditionDraft::Always,
            false => ConditionDraft::all(parts),
        })
    }

    fn split_at(
        &mut self,
        before: Vec<ExpressionNode>,
        at: usize,
        forms: Vec<ExpressionNode>,
        look: ExpressionNode,
        after: Vec<ExpressionNode>,
    ) -> Result<ConditionDraft, String> {
        let mut conditions = Vec::new();
        for form in forms {
            let mut sequence: Vec<ExpressionNode> = before.iter().take(at).cloned().collect();
            sequence.extend(form.into_flat_sequence());
            sequence.extend(before.iter().skip(at + 1).cloned());
            sequence.push(look.clone());
            sequence.extend(after.iter().cloned());
            conditions.push(self.condition(sequence)?);
        }
        Ok(any(conditions))
    }

    /// Returns X of `^((?!X).)*$`, which fits what X does not fit anywhere.
    fn tempered(&self, sequence: &[ExpressionNode]) -> Option<Vec<ExpressionNode>> {
        let [start, repeat, end] = sequence else {
            return None;
        };
        let ExpressionNode::Repeat {
            inner,
            min: 0,
            max: None,
            ..
        } = repeat
        else {
            return None;
        };
        let parts = inner.as_ref().clone().into_flat_sequence();
        let [look, ExpressionNode::Any(_)] = parts.as_slice() else {
            return None;
        };
        let ExpressionNode::Look {
            direction: LookDirection::Ahead,
            negative: true,
            inner,
        } = look
        else {
            return None;
        };
        let at_ends = start.is_start() && end.is_end() && !self.nature.lines;
        let fits_nothing = min_length(inner) == 0 || inner.has_look();
        (at_ends && !fits_nothing).then(|| inner.as_ref().clone().into_flat_sequence())
    }

    /// Returns `true` if any text fits.
    fn is_anything(&self, after: &[ExpressionNode]) -> bool {
        match after {
            [] => true,
            [.., end] if self.nature.lines || end.is_end() && after.len() == 1 => false,
            [parts @ .., end] if end.is_end() => parts.iter().all(ExpressionNode::is_anything),
            parts => parts.iter().all(ExpressionNode::is_anything),
        }
    }

    fn is_start_anything(&self, before: &[ExpressionNode]) -> bool {
        match before {
            [start, parts @ ..] if start.is_start() => {
                !parts.is_empty()
                    && !self.nature.lines
                    && parts.iter().all(ExpressionNode::is_anything)
            }
            _ => false,
        }
    }
}

fn look(direction: LookDirection, negative: bool, inner: Vec<ExpressionNode>) -> ExpressionNode {
    ExpressionNode::Look {
        direction,
        negative,
        inner: Box::new(ExpressionNode::concat(inner)),
    }
}

fn not_at_an_end() -> String {
    "look-around in the middle of an expression has no equal in a policy".to_owned()
}

fn any(mut conditions: Vec<ConditionDraft>) -> ConditionDraft {
    conditions.dedup();
    if conditions.contains(&ConditionDraft::Always) {
        return ConditionDraft::Always;
    }
    ConditionDraft::any(conditions)
}

/// Returns the forms of a group of alternatives or of an optional part.
fn forms(node: &ExpressionNode) -> Option<Vec<ExpressionNode>> {
    match node {
        ExpressionNode::Alternate(parts) => Some(parts.clone()),
        ExpressionNode::Group { inner, .. } => forms(inner),
        ExpressionNode::Repeat {
            inner,
            min: 0,
            max: Some(1),
            ..
        } => Some(vec![inner.as_ref().clone(), ExpressionNode::Empty]),
        ExpressionNode::Repeat {
            inner,
            min: 1,
            max: Some(1),
            ..
        } => Some(vec![inner.as_ref().clone()]),
        ExpressionNode::Empty
        | ExpressionNode::Literal { .. }
        | ExpressionNode::Any(_)
        | ExpressionNode::Class { .. }
        | ExpressionNode::Anchor(_)
        | ExpressionNode::Repeat { .. }
        | ExpressionNode::Concat(_)
        | ExpressionNode::Look { .. }
        | ExpressionNode::Atomic(_)
        | ExpressionNode::BackReference(_) => None,
    }
}

/// Returns `true` if a sequence begins at the start of the text and there is one place where it can end.
pub(super) fn has_one_end(sequence: &[ExpressionNode]) -> bool {
    match sequence {
        [start, rest @ ..] if start.is_start() => parts_have_one_end(rest),
        _ => false,
    }
}

/// Returns `true` if, from a fixed place, there is one place where a sequence can end.
pub(super) fn parts_have_one_end(parts: &[ExpressionNode]) -> bool {
    let mut rest = parts;
    while let Some((part, after)) = rest.split_first() {
        if !has_one_length(part, after.first()) {
            return false;
        }
        rest = after;
    }
    true
}

/// Returns `true` if a part fits texts of one length only, or ends where the next one can begin.
fn has_one_length(part: &ExpressionNode, next: Option<&ExpressionNode>) -> bool {
    if fixed_length(part).is_some() {
        return true;
    }
    let ExpressionNode::Repeat { inner, .. } = part else {
        return false;
    };
    match (CharSet::of(inner), next) {
        (Some(set), Some(next)) => {
            next.is_end() || CharSet::of(next).is_some_and(|next| set.is_disjoint(next))
        }
        (Some(_) | None, _) => false,
    }
}

/// Returns the last part of a sequence that can end at several places, and its forms.
fn ambiguous_part(sequence: &[ExpressionNode]) -> Option<(usize, Vec<ExpressionNode>)> {
    if !sequence.first().is_some_and(ExpressionNode::is_start) {
        return None;
    }
    let parts = sequence.iter().enumerate().skip(1);
    let mut ambiguous = parts.filter(|(at, part)| !has_one_length(part, sequence.get(at + 1)));
    let (at, part) = ambiguous.next()?;
    Some((at, forms(part)?))
}

/// Returns the length of the texts that a node fits, if they all have the same.
pub(super) fn fixed_length(node: &ExpressionNode) -> Option<u32> {
    match node {
        ExpressionNode::Empty | ExpressionNode::Anchor(_) | ExpressionNode::Look { .. } => Some(0),
        ExpressionNode::Literal { .. } | ExpressionNode::Any(_) | ExpressionNode::Class { .. } => {
            Some(1)
        }
        ExpressionNode::Group { inner, .. } | ExpressionNode::Atomic(inner) => fixed_length(inner),
        ExpressionNode::Repeat {
            inner,
            min,
            max: Some(max),
            ..
        } if min == max => fixed_length(inner)?.checked_mul(*min),
        ExpressionNode::Repeat { .. } | ExpressionNode::BackReference(_) => None,
        ExpressionNode::Concat(parts) => parts
            .iter()
            .try_fold(0_u32, |sum, part| sum.checked_add(fixed_length(part)?)),
        ExpressionNode::Alternate(parts) => {
            let mut lengths = parts.iter().map(fixed_length);
            let first = lengths.next()??;
            lengths.all(|length| length == Some(first)).then_some(first)
        }
    }
}

/// Returns the length of the shortest text that a node fits.
pub(super) fn min_length(node: &ExpressionNode) -> u32 {
    match node {
        ExpressionNode::Empty
        | ExpressionNode::Anchor(_)
        | ExpressionNode::Look { .. }
        | ExpressionNode::BackReference(_) => 0,
        ExpressionNode::Literal { .. } | ExpressionNode::Any(_) | ExpressionNode::Class { .. } => 1,
        ExpressionNode::Group { inner, .. } | ExpressionNode::Atomic(inner) => min_length(inner),
        ExpressionNode::Repeat { inner, min, .. } => min_length(inner).saturating_mul(*min),
        ExpressionNode::Concat(parts) => parts.iter().map(min_length).fold(0, u32::saturating_add),
        ExpressionNode::Alternate(parts) => parts.iter().map(min_length).min().unwrap_or(0),
    }
}

/// A text that a look-around fits: a node for each character, `^` or `$` included.
type NodeSequence = Vec<ExpressionNode>;

/// Returns the texts that a sequence fits, if they are few.
pub(super) fn words(sequence: &[ExpressionNode]) -> Option<Vec<NodeSequence>> {
    let mut words = vec![NodeSequence::new()];
    for node in sequence {
        let endings = node_words(node)?;
        let mut longer = Vec::new();
        for word in &words {
            for ending in &endings {
                longer.push([word.as_slice(), ending].concat());
            }
        }
        if longer.len() > MAX_WORDS {
            return None;
        }
        words = longer;
    }
    Some(words)
}

fn node_words(node: &ExpressionNode) -> Option<Vec<NodeSequence>> {
    match node {
        ExpressionNode::Empty => Some(vec![NodeSequence::new()]),
        ExpressionNode::Literal { .. } | ExpressionNode::Any(_) | ExpressionNode::Class { .. } => {
            Some(vec![vec![node.clone()]])
        }
        ExpressionNode::Anchor(Anchor::Start | Anchor::End) => Some(vec![vec![node.clone()]]),
        ExpressionNode::Group { inner, .. } => node_words(inner),
        ExpressionNode::Concat(parts) => words(parts),
        ExpressionNode::Alternate(parts) => {
            let mut all = Vec::new();
            for part in parts {
                all.extend(node_words(part)?);
            }
            Some(all)
        }
        ExpressionNode::Repeat {
            inner,
            min,
            max: Some(max),
            ..
        } if *max <= 8 => {
            let mut all = Vec::new();
            for count in *min..=*max {
                let copies = vec![inner.as_ref().clone(); usize::try_from(count).ok()?];
                all.extend(words(&copies)?);
            }
            Some(all)
        }
        ExpressionNode::Anchor(_)
        | ExpressionNode::Repeat { .. }
        | ExpressionNode::Look { .. }
        | ExpressionNode::Atomic(_)
        | ExpressionNode::BackReference(_) => None,
    }
}

/// Returns an expression that fits wherever a look-around does not, for one that fits few texts.
fn other_texts(inner: &[ExpressionNode], direction: LookDirection) -> Option<ExpressionNode> {
    let mut words = words(inner)?;
    let border = match direction {
        LookDirection::Ahead => Anchor::End,
        LookDirection::Behind => {
            words.iter_mut().for_each(|word| word.reverse());
            Anchor::Start
        }
    };
    let is_letter = |node: &ExpressionNode| !matches!(node, ExpressionNode::Anchor(_));
    let valid = |word: &NodeSequence| match word.split_last() {
        Some((last, rest)) => {
            rest.iter().all(is_letter)
                && (is_letter(last) || *last == ExpressionNode::Anchor(border))
        }
        None => false,
    };
    if !words.iter().all(valid) {
        return None;
    }
    let other = OtherTexts { border, direction };
    other.than(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

struct OtherTexts {
    border: Anchor,
    direction: LookDirection,
}

impl OtherTexts {
    /// Returns an expression for the texts that begin with none of the words; `None` if there is none.
    fn than(&self, words: &[&[ExpressionNode]]) -> Option<ExpressionNode> {
        let border = ExpressionNode::Anchor(self.border);
        let mut alternatives = Vec::new();
        let excludes_border = words.iter().any(|word| **word == [border.clone()]);
        if !excludes_border {
            alternatives.push(border.clone());
        }
        let mut firsts: Vec<&ExpressionNode> = Vec::new();
        for word in words {
            let first = word.first()?;
            if *first != border && !firsts.contains(&first) {
                firsts.push(first);
            }
        }
        let disjoint = firsts.iter().enumerate().all(|(at, first)| {
            let others = firsts.iter().skip(at + 1);
            let set = CharSet::of(first);
            others
                .map(|other| CharSet::of(other))
                .all(|other| matches!((set, other), (Some(a), Some(b)) if a.is_disjoint(b)))
        });
        if !disjoint {
            return None;
        }
        alternatives.extend(other_char(&firsts)?);
        for first in firsts {
            let rests: Vec<&[ExpressionNode]> = words
                .iter()
                .filter(|word| word.first() == Some(first))
                .filter_map(|word| word.get(1..))
                .collect();
            if rests.iter().any(|rest| rest.is_empty()) {
                continue;
            }
            let mut parts = vec![first.clone(), self.than(&rests)?];
            if self.direction == LookDirection::Behind {
                parts.reverse();
            }
            alternatives.push(ExpressionNode::Concat(parts));
        }
        if alternatives.is_empty() {
            return None;
        }
        Some(ExpressionNode::Group {
            inner: Box::new(ExpressionNode::alternate(alternatives)),
            capture: None,
        })
    }
}

/// Returns the class of all characters that none of the nodes fits: no class if one fits them all, nothing if
/// it cannot be written.
fn other_char(nodes: &[&ExpressionNode]) -> Option<Option<ExpressionNode>> {
    let mut items = Vec::new();
    let mut folding = None;
    for node in nodes {
        let folds = match node {
            ExpressionNode::Literal { character, folds } => {
                items.push(ClassItem::Char(*character));
                *folds
            }
            ExpressionNode::Class { class, folds } => {
                let is_plain = !class.negated && class.and.is_empty() && class.minus.is_none();
                match is_plain {
                    true => items.extend(class.items.iter().cloned()),
                    false => items.push(ClassItem::Nested(class.clone())),
                }
                *folds
            }
            ExpressionNode::Any(_) => return Some(None),
            ExpressionNode::Empty
            | ExpressionNode::Anchor(_)
            | ExpressionNode::Group { .. }
            | ExpressionNode::Repeat { .. }
            | ExpressionNode::Concat(_)
            | ExpressionNode::Alternate(_)
            | ExpressionNode::Look { .. }
            | ExpressionNode::Atomic(_)
            | ExpressionNode::BackReference(_) => return None,
        };
        if folding.is_some_and(|folding| folding != folds) {
            return None;
        }
        folding = Some(folds);
    }
    if items.is_empty() {
        return Some(Some(ExpressionNode::Any(super::node::LineBreaks::None)));
    }
    Some(Some(ExpressionNode::Class {
        class: Class::without(items),
        folds: folding.unwrap_or(false),
    }))
}
