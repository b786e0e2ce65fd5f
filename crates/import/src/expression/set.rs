//! Sets of characters, to find out if two parts of an expression can fit the same one.

use super::node::{Class, ClassItem, ExpressionNode, Shorthand};

/// Characters that may be in a set: it may have too many, never too few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CharSet {
    ascii: u128,
    /// `true` if it may have characters beyond ASCII.
    beyond: bool,
    /// `true` if the part in ASCII has no other characters than those of the set.
    exact: bool,
}

impl CharSet {
    const NONE: Self = Self {
        ascii: 0,
        beyond: false,
        exact: true,
    };
    const ALL: Self = Self {
        ascii: u128::MAX,
        beyond: true,
        exact: true,
    };

    /// Returns the characters that a node fits; `None` if it does not always fit exactly one.
    pub(super) fn of(node: &ExpressionNode) -> Option<Self> {
        match node {
            ExpressionNode::Literal { character, folds } => {
                Some(Self::char(*character).folded(*folds))
            }
            ExpressionNode::Any(_) => Some(Self::ALL),
            ExpressionNode::Class { class, folds } => Some(Self::class(class, *folds)),
            ExpressionNode::Group { inner, .. } => Self::of(inner),
            ExpressionNode::Empty
            | ExpressionNode::Anchor(_)
            | ExpressionNode::Repeat { .. }
            | ExpressionNode::Concat(_)
            | ExpressionNode::Alternate(_)
            | ExpressionNode::Look { .. }
            | ExpressionNode::Atomic(_)
            | ExpressionNode::BackReference(_) => None,
        }
    }

    pub(super) fn is_disjoint(self, other: Self) -> bool {
        self.ascii & other.ascii == 0 && !(self.beyond && other.beyond)
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self {
            ascii: self.ascii | other.ascii,
            beyond: self.beyond || other.beyond,
            exact: self.exact && other.exact,
        }
    }

    fn char(c: char) -> Self {
        match u32::from(c) {
            code @ 0..=127 => Self {
                ascii: 1 << code,
                ..Self::NONE
            },
            _ => Self {
                beyond: true,
                ..Self::NONE
            },
        }
    }

    fn range(from: char, to: char) -> Self {
        let ascii = (u32::from(from)..=u32::from(to).min(127)).fold(0, |set, code| set | 1 << code);
        Self {
            ascii,
            beyond: !to.is_ascii(),
            exact: true,
        }
    }

    fn folded(self, folds: bool) -> Self {
        if !folds {
            return self;
        }
        let letters = ((1 << 26) - 1) << u32::from('A');
        let upper = self.ascii & letters;
        let lower = (self.ascii >> 32) & letters;
        Self {
            ascii: self.ascii | upper << 32 | lower,
            // Beyond ASCII some characters fold to `k` and `s`.
            beyond: self.beyond || upper | lower != 0,
            exact: self.exact,
        }
    }

    fn class(class: &Class, folds: bool) -> Self {
        let items = class.items.iter().map(Self::item);
        let mut set = items.fold(Self::NONE, Self::union).folded(folds);
        if !class.and.is_empty() || class.minus.is_some() {
            // What is taken away is not counted.
            set.exact = false;
        }
        if class.negated {
            return set.negated();
        }
        set
    }

    fn negated(self) -> Self {
        if !self.exact {
            return Self {
                exact: false,
                ..Self::ALL
            };
        }
        Self {
            ascii: !self.ascii,
            beyond: true,
            exact: true,
        }
    }

    fn item(item: &ClassItem) -> Self {
        match item {
            ClassItem::Char(c) => Self::char(*c),
            ClassItem::Range(from, to) => Self::range(*from, *to),
            ClassItem::Shorthand { kind, negated } => {
                let set = Self::shorthand(*kind);
                if *negated { set.negated() } else { set }
            }
            ClassItem::Posix { .. } | ClassItem::Property { .. } => Self {
                exact: false,
                ..Self::ALL
            },
            ClassItem::Nested(class) => Self::class(class, false),
        }
    }

    fn shorthand(kind: Shorthand) -> Self {
        let digits = Self::range('0', '9');
        let word = [
            Self::range('a', 'z'),
            Self::range('A', 'Z'),
            Self::char('_'),
        ]
        .into_iter()
        .fold(digits, Self::union);
        let space = Self::range('\t', '\r').union(Self::char(' '));
        let unicode = |set: Self| Self {
            beyond: true,
            ..set
        };
        match kind {
            Shorthand::Digit => digits,
            Shorthand::Word => word,
            Shorthand::Space => space,
            Shorthand::UnicodeDigit => unicode(digits),
            Shorthand::UnicodeWord => unicode(word),
            // Some dialects count the separators U+001C to U+001F.
            Shorthand::UnicodeSpace => Self {
                exact: false,
                ..unicode(space.union(Self::range('\u{1c}', '\u{1f}')))
            },
            Shorthand::Horizontal => unicode(Self::char('\t').union(Self::char(' '))),
            Shorthand::Vertical => unicode(Self::range('\n', '\r')),
        }
    }
}
