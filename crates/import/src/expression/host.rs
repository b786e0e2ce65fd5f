//! Capital letters in the host of a URL, which a policy compares in lower case.

use super::node::{Class, ClassItem, ExpressionNode};
use super::set::CharSet;

/// The assumption for a host with capital letters.
pub(super) const ASSUMPTION: &str =
    "a host in capital letters means the same in small ones, as a policy compares it";

/// Writes the letters between `://` and the next slash in lower case. Returns `true` if that changes what fits.
pub(super) fn lower_host(sequence: &mut [ExpressionNode]) -> bool {
    const SCHEME_END: [char; 3] = [':', '/', '/'];
    let is_char = |node: &ExpressionNode, c: &char| matches!(node, ExpressionNode::Literal { character, .. } if character == c);
    let ends = |nodes: &[ExpressionNode]| {
        nodes
            .iter()
            .zip(&SCHEME_END)
            .all(|(node, c)| is_char(node, c))
    };
    let Some(at) = sequence.windows(SCHEME_END.len()).position(ends) else {
        return false;
    };
    let mut changed = false;
    for node in sequence.iter_mut().skip(at + SCHEME_END.len()) {
        // A single `.` is a dot that nobody escaped.
        if !matches!(node, ExpressionNode::Any(_)) && can_leave_host(node) {
            break;
        }
        let lower = std::mem::replace(node, ExpressionNode::Empty);
        *node = lowered(lower, &mut changed);
    }
    changed
}

/// Returns `true` if a part can fit the slash or the question mark after a host.
fn can_leave_host(node: &ExpressionNode) -> bool {
    let ends = |node: &ExpressionNode| {
        let leaf = node.children().is_empty();
        let set = CharSet::of(node).filter(|_| leaf);
        let border = CharSet::of(&ExpressionNode::literal('/'));
        let query = CharSet::of(&ExpressionNode::literal('?'));
        match (set, border, query) {
            (Some(set), Some(slash), Some(query)) => {
                !set.is_disjoint(slash)
                    && !matches!(node, ExpressionNode::Class { class, .. } if class.negated && has_slash(class))
                    || !set.is_disjoint(query) && matches!(node, ExpressionNode::Literal { .. })
            }
            (set, _, _) => set.is_some(),
        }
    };
    node.contains(&ends)
}

fn has_slash(class: &Class) -> bool {
    class.items.contains(&ClassItem::Char('/'))
}

fn lowered(node: ExpressionNode, changed: &mut bool) -> ExpressionNode {
    if let ExpressionNode::Literal { character, folds } = node {
        let lower = character.to_ascii_lowercase();
        *changed |= lower != character && !folds;
        return ExpressionNode::Literal {
            character: lower,
            folds,
        };
    }
    if let ExpressionNode::Class { mut class, folds } = node {
        if !class.negated {
            lower_items(&mut class.items, folds, changed);
        }
        return ExpressionNode::Class { class, folds };
    }
    node.map_children(&mut |child| lowered(child, changed))
}

fn lower_items(items: &mut Vec<ClassItem>, folds: bool, changed: &mut bool) {
    let capitals = ClassItem::Range('A', 'Z');
    if items.contains(&ClassItem::Range('a', 'z')) {
        items.retain(|item| *item != capitals);
    }
    for item in items {
        let lower = match item {
            ClassItem::Char(c) => ClassItem::Char(c.to_ascii_lowercase()),
            ClassItem::Range('A', 'Z') => ClassItem::Range('a', 'z'),
            ClassItem::Range(..)
            | ClassItem::Shorthand { .. }
            | ClassItem::Posix { .. }
            | ClassItem::Property { .. }
            | ClassItem::Nested(_) => continue,
        };
        *changed |= *item != lower && !folds;
        *item = lower;
    }
}
