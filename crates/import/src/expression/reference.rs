//! Back-references and atomic groups.

use super::look::{parts_have_one_end, words};
use super::node::{ExpressionNode, RepeatMode};
use super::set::CharSet;

/// The maximum size of an expression whose back-references were written out.
const MAX_SIZE: usize = 20_000;

/// Writes out back-references to groups that fit few texts: `(a|b)-\1` fits `a-a` and `b-b`.
///
/// Returns `None` if one of the groups fits too many.
pub(super) fn write_out(sequence: &[ExpressionNode]) -> Option<ExpressionNode> {
    let mut forms = vec![sequence.to_vec()];
    loop {
        let mut written = Vec::new();
        let mut is_done = true;
        for form in forms {
            match write_out_first(&form)? {
                None => written.push(form),
                Some(more) => {
                    is_done = false;
                    written.extend(more);
                }
            }
        }
        if written
            .iter()
            .flatten()
            .map(ExpressionNode::size)
            .sum::<usize>()
            > MAX_SIZE
        {
            return None;
        }
        forms = written;
        if is_done {
            break;
        }
    }
    Some(ExpressionNode::alternate(
        forms.into_iter().map(ExpressionNode::concat).collect(),
    ))
}

/// Replaces the group that the first back-reference names by each of its texts. `Some(None)`: there is none.
fn write_out_first(sequence: &[ExpressionNode]) -> Option<Option<Vec<Vec<ExpressionNode>>>> {
    let is_reference = |node: &ExpressionNode| matches!(node, ExpressionNode::BackReference(_));
    let Some(number) = sequence.iter().find_map(first_reference) else {
        return Some(None);
    };
    let is_group = |node: &ExpressionNode| matches!(node, ExpressionNode::Group { capture: Some(it), .. } if *it == number);
    let group = sequence.iter().position(is_group)?;
    let nested = |node: &ExpressionNode| node.contains(&is_reference) && !is_reference(node);
    // Which text a reference repeats is only fixed if neither is repeated or optional.
    if sequence.iter().any(nested) {
        return None;
    }
    let before = sequence.get(..group)?;
    if before.contains(&ExpressionNode::BackReference(number)) {
        return None;
    }
    let texts = words(sequence.get(group..=group)?)?;
    let single =
        |node: &ExpressionNode| matches!(node, ExpressionNode::Literal { folds: false, .. });
    if !texts.iter().flatten().all(single) {
        return None;
    }
    let forms = texts.into_iter().map(|text| {
        let parts = sequence.iter().enumerate().flat_map(|(at, node)| {
            if at == group || *node == ExpressionNode::BackReference(number) {
                text.clone()
            } else {
                vec![node.clone()]
            }
        });
        parts.collect()
    });
    Some(Some(forms.collect()))
}

fn first_reference(node: &ExpressionNode) -> Option<u32> {
    if let ExpressionNode::BackReference(number) = node {
        return Some(*number);
    }
    node.children().iter().find_map(first_reference)
}

/// Returns how often a path segment is repeated, for an expression that finds repeated segments such as
/// `(/[^/]+)/[^/]+\1/[^/]+\1/`; the second value is `true` if it says nothing else.
pub(super) fn repeated_segments(sequence: &[ExpressionNode]) -> Option<(u32, bool)> {
    let number = sequence.iter().find_map(first_reference)?;
    let group = sequence.iter().find_map(|node| group_of(node, number))?;
    let segment = SegmentGroup {
        number,
        parts: group.clone().into_flat_sequence(),
    };
    if !segment.is_segment() {
        return None;
    }
    let mut count = 0;
    for more in [0, 1] {
        let mut nodes = Vec::new();
        segment.unfold(sequence, more, &mut nodes)?;
        // The number that occur at least.
        let found = segment.count_delimited(&nodes)?;
        if more == 0 {
            count = found;
        }
    }
    let says_more = |node: &&ExpressionNode| !segment.is_in(node) && !is_generic(node);
    let is_plain = sequence.iter().find(says_more).is_none();
    (count > 1).then_some((count, is_plain))
}

/// Returns the inside of a group, if it has a number.
fn group_of(node: &ExpressionNode, number: u32) -> Option<&ExpressionNode> {
    let ExpressionNode::Group { inner, capture } = node else {
        return None;
    };
    (*capture == Some(number)).then_some(inner)
}

/// The maximum number of copies of a repetition with a back-reference.
const MAX_COPIES: u32 = 50;

/// The maximum number of nodes after copying.
const MAX_UNFOLDED: usize = 10_000;

/// A group that fits a segment of a path.
struct SegmentGroup {
    number: u32,
    parts: Vec<ExpressionNode>,
}

impl SegmentGroup {
    /// Returns `true` for `/[^/]+`, `[^/]+/`, `.*?/` and the like.
    fn is_segment(&self) -> bool {
        let mut others = self.parts.iter().filter(|node| !is_slash(node));
        let (
            Some(ExpressionNode::Repeat {
                inner, max: None, ..
            }),
            None,
        ) = (others.next(), others.next())
        else {
            return false;
        };
        CharSet::of(inner).is_some()
    }

    /// Returns `true` for the group and for what repeats it.
    fn is_in(&self, node: &ExpressionNode) -> bool {
        node.contains(&|node| {
            matches!(node, ExpressionNode::BackReference(_))
                || group_of(node, self.number).is_some()
        })
    }

    /// Writes repetitions with a back-reference as that many copies as they have at least, and some more.
    fn unfold<'n>(
        &self,
        sequence: &'n [ExpressionNode],
        more: u32,
        nodes: &mut Vec<&'n ExpressionNode>,
    ) -> Option<()> {
        for node in sequence {
            let is_group = group_of(node, self.number).is_some();
            if is_group || *node == ExpressionNode::BackReference(self.number) || !self.is_in(node)
            {
                nodes.push(node);
                continue;
            }
            let copies = if let ExpressionNode::Repeat { min, max, .. } = node {
                max.unwrap_or(u32::MAX).min(min.saturating_add(more))
            } else if matches!(
                node,
                ExpressionNode::Group { .. } | ExpressionNode::Concat(_)
            ) {
                1
            } else {
                return None;
            };
            if copies > MAX_COPIES || nodes.len() > MAX_UNFOLDED {
                return None;
            }
            for _ in 0..copies {
                self.unfold(node.children(), more, nodes)?;
            }
        }
        Some(())
    }

    /// Returns how often the segment occurs, if it always is a whole one.
    fn count_delimited(&self, nodes: &[&ExpressionNode]) -> Option<u32> {
        let mut count = 0;
        for (at, node) in nodes.iter().enumerate() {
            if !self.is_in(node) {
                continue;
            }
            let before = at.checked_sub(1).and_then(|at| nodes.get(at));
            let after = nodes.get(at + 1);
            let begins = self.parts.first().is_some_and(is_slash)
                || before.is_some_and(|node| self.has_slash_at(node, <[ExpressionNode]>::last));
            let ends = self.parts.last().is_some_and(is_slash)
                || after.is_some_and(|node| {
                    node.is_end() || self.has_slash_at(node, <[ExpressionNode]>::first)
                });
            if !(begins && ends) {
                return None;
            }
            count += 1;
        }
        Some(count)
    }

    fn has_slash_at(
        &self,
        node: &ExpressionNode,
        edge: fn(&[ExpressionNode]) -> Option<&ExpressionNode>,
    ) -> bool {
        is_slash(node) || self.is_in(node) && edge(&self.parts).is_some_and(is_slash)
    }
}

fn is_slash(node: &ExpressionNode) -> bool {
    matches!(node, ExpressionNode::Literal { character: '/', .. })
}

/// Returns `true` for parts that fit any segments: `/`, `[^/]+`, `.*`.
fn is_generic(node: &ExpressionNode) -> bool {
    if matches!(node, ExpressionNode::Anchor(_)) || is_slash(node) {
        return true;
    }
    let ExpressionNode::Repeat {
        inner, max: None, ..
    } = node
    else {
        return false;
    };
    if let ExpressionNode::Class { class, .. } = &**inner {
        return class.negated && class.items.len() == 1 && class.and.is_empty();
    }
    matches!(**inner, ExpressionNode::Any(_)) || is_slash(inner)
}

/// Replaces back-references by what their group fits.
pub(super) fn without_references(
    node: ExpressionNode,
    sequence: &[ExpressionNode],
) -> ExpressionNode {
    if let ExpressionNode::BackReference(number) = node {
        let group = sequence.iter().find_map(|node| group_of(node, number));
        return ExpressionNode::Group {
            inner: Box::new(group.cloned().unwrap_or(ExpressionNode::Empty)),
            capture: None,
        };
    }
    node.map_children(&mut |child| without_references(child, sequence))
}

/// Replaces atomic groups and possessive repetitions by ordinary ones. The second value is `true` if that
/// changes nothing; otherwise the expression may fit more. `is_tail`: nothing follows the sequence.
pub(super) fn without_atomic(
    sequence: Vec<ExpressionNode>,
    is_tail: bool,
) -> (Vec<ExpressionNode>, bool) {
    let mut same = true;
    let mut changed = Vec::new();
    for (at, node) in sequence.iter().enumerate() {
        let next = sequence.get(at + 1);
        let is_last = is_tail && next.is_none();
        same &= is_last || gives_nothing_back(node, next);
        let mut inner_same = true;
        let mut change = |child: ExpressionNode| {
            let (parts, is_same) = without_atomic(child.into_sequence(), is_last);
            inner_same &= is_same;
            ExpressionNode::concat(parts)
        };
        let node = node.clone();
        changed.push(if let ExpressionNode::Atomic(inner) = node {
            ExpressionNode::Group {
                inner: Box::new(change(*inner)),
                capture: None,
            }
        } else if let ExpressionNode::Repeat {
            inner,
            min,
            max,
            mode,
        } = node
        {
            let (parts, is_same) = without_atomic(inner.into_sequence(), false);
            inner_same &= is_same;
            let mode = match mode {
                RepeatMode::Possessive => RepeatMode::Greedy,
                other @ (RepeatMode::Greedy | RepeatMode::Lazy) => other,
            };
            ExpressionNode::Repeat {
                inner: Box::new(ExpressionNode::concat(parts)),
                min,
                max,
                mode,
            }
        } else {
            node.map_children(&mut change)
        });
        same &= inner_same;
    }
    (changed, same)
}

/// Returns `true` if a node is not atomic, or fits before the next one in one way only.
fn gives_nothing_back(node: &ExpressionNode, next: Option<&ExpressionNode>) -> bool {
    if let ExpressionNode::Atomic(inner) = node {
        let parts = inner.as_ref().clone().into_flat_sequence();
        return parts_have_one_end(&parts) || ends_before(&parts, next);
    }
    let ExpressionNode::Repeat {
        inner,
        min,
        max,
        mode: RepeatMode::Possessive,
    } = node
    else {
        return true;
    };
    let plain = ExpressionNode::Repeat {
        inner: inner.clone(),
        min: *min,
        max: *max,
        mode: RepeatMode::Greedy,
    };
    ends_before(&[plain], next)
}

pub(super) fn has_atomic(node: &ExpressionNode) -> bool {
    node.contains(&|node| {
        matches!(
            node,
            ExpressionNode::Atomic(_)
                | ExpressionNode::Repeat {
                    mode: RepeatMode::Possessive,
                    ..
                }
        )
    })
}

/// Returns `true` if parts end where the next one can begin, in one way only.
fn ends_before(parts: &[ExpressionNode], next: Option<&ExpressionNode>) -> bool {
    let with_next: Vec<ExpressionNode> = parts.iter().chain(next).cloned().collect();
    let next_has_one_length = next.is_some_and(|next| next.is_end() || CharSet::of(next).is_some());
    next_has_one_length && parts_have_one_end(&with_next)
}
