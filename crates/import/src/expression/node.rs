//! Expressions as trees, without the differences between the dialects.

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExpressionNode {
    Empty,
    Literal {
        character: char,
        folds: bool,
    },
    /// Any character.
    Any(LineBreaks),
    Class {
        class: Class,
        folds: bool,
    },
    Anchor(Anchor),
    /// A group; `capture` is its number.
    Group {
        inner: Box<ExpressionNode>,
        capture: Option<u32>,
    },
    Repeat {
        inner: Box<ExpressionNode>,
        min: u32,
        max: Option<u32>,
        mode: RepeatMode,
    },
    Concat(Vec<ExpressionNode>),
    Alternate(Vec<ExpressionNode>),
    Look {
        direction: LookDirection,
        negative: bool,
        inner: Box<ExpressionNode>,
    },
    Atomic(Box<ExpressionNode>),
    BackReference(u32),
}

/// The characters that `.` does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineBreaks {
    /// It fits them all.
    None,
    LineFeed,
    /// `\n`, `\r`, U+2028, U+2029.
    JavaScript,
    /// These and U+0085.
    Java,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    End,
    LineStart,
    LineEnd,
    WordBoundary,
    NotWordBoundary,
    WordStart,
    WordEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RepeatMode {
    Greedy,
    Lazy,
    Possessive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookDirection {
    Ahead,
    Behind,
}

/// A set of characters: the items, those of them that are in all of `and`, without those of `minus`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Class {
    pub negated: bool,
    pub items: Vec<ClassItem>,
    pub and: Vec<Class>,
    pub minus: Option<Box<Class>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClassItem {
    Char(char),
    Range(char, char),
    Shorthand {
        kind: Shorthand,
        negated: bool,
    },
    /// A class of POSIX, which is ASCII.
    Posix {
        name: &'static str,
        negated: bool,
    },
    /// The name of a Unicode class.
    Property {
        name: String,
        negated: bool,
    },
    Nested(Class),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shorthand {
    Digit,
    Word,
    Space,
    /// `\d`, `\w` and `\s` of a dialect that is Unicode.
    UnicodeDigit,
    UnicodeWord,
    UnicodeSpace,
    Horizontal,
    Vertical,
}

impl Class {
    pub(super) fn of(items: Vec<ClassItem>) -> Self {
        Self {
            items,
            ..Self::default()
        }
    }

    /// Creates the class of all characters that the items are not.
    pub(super) fn without(items: Vec<ClassItem>) -> Self {
        Self {
            negated: true,
            ..Self::of(items)
        }
    }

    fn use_ascii_shorthands(&mut self) {
        for item in &mut self.items {
            match item {
                ClassItem::Shorthand { kind, .. } => *kind = kind.in_ascii(),
                ClassItem::Nested(class) => class.use_ascii_shorthands(),
                ClassItem::Char(_)
                | ClassItem::Range(..)
                | ClassItem::Posix { .. }
                | ClassItem::Property { .. } => {}
            }
        }
        self.and.iter_mut().for_each(Self::use_ascii_shorthands);
        if let Some(minus) = &mut self.minus {
            minus.use_ascii_shorthands();
        }
    }
}

impl Shorthand {
    fn in_ascii(self) -> Self {
        match self {
            Self::UnicodeDigit => Self::Digit,
            Self::UnicodeWord => Self::Word,
            Self::UnicodeSpace => Self::Space,
            Self::Digit | Self::Word | Self::Space | Self::Horizontal | Self::Vertical => self,
        }
    }
}

impl ExpressionNode {
    pub(super) fn literal(character: char) -> Self {
        Self::Literal {
            character,
            folds: false,
        }
    }

    /// Joins a sequence.
    pub(super) fn concat(mut parts: Vec<ExpressionNode>) -> Self {
        match parts.len() {
            0 => Self::Empty,
            1 => parts.remove(0),
            _ => Self::Concat(parts),
        }
    }

    /// Joins alternatives.
    pub(super) fn alternate(mut parts: Vec<ExpressionNode>) -> Self {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        Self::Alternate(parts)
    }

    /// Returns the nodes directly in this one.
    pub(super) fn children(&self) -> &[ExpressionNode] {
        match self {
            Self::Empty
            | Self::Literal { .. }
            | Self::Any(_)
            | Self::Class { .. }
            | Self::Anchor(_)
            | Self::BackReference(_) => &[],
            Self::Group { inner, .. }
            | Self::Repeat { inner, .. }
            | Self::Look { inner, .. }
            | Self::Atomic(inner) => std::slice::from_ref(inner),
            Self::Concat(parts) | Self::Alternate(parts) => parts,
        }
    }

    /// Replaces the nodes directly in this one.
    #[must_use]
    pub(super) fn map_children(
        self,
        change: &mut dyn FnMut(ExpressionNode) -> ExpressionNode,
    ) -> Self {
        match self {
            Self::Empty
            | Self::Literal { .. }
            | Self::Any(_)
            | Self::Class { .. }
            | Self::Anchor(_)
            | Self::BackReference(_) => self,
            Self::Group { inner, capture } => Self::Group {
                inner: Box::new(change(*inner)),
                capture,
            },
            Self::Repeat {
                inner,
                min,
                max,
                mode,
            } => Self::Repeat {
                inner: Box::new(change(*inner)),
                min,
                max,
                mode,
            },
            Self::Look {
                direction,
                negative,
                inner,
            } => Self::Look {
                direction,
                negative,
                inner: Box::new(change(*inner)),
            },
            Self::Atomic(inner) => Self::Atomic(Box::new(change(*inner))),
            Self::Concat(parts) => Self::concat(parts.into_iter().map(change).collect()),
            Self::Alternate(parts) => Self::alternate(parts.into_iter().map(change).collect()),
        }
    }

    /// Replaces `\d`, `\w` and `\s` of a Unicode dialect by those of ASCII, in a part whose texts are ASCII.
    #[must_use]
    pub(super) fn with_ascii_shorthands(mut self) -> Self {
        if let Self::Class { class, .. } = &mut self {
            class.use_ascii_shorthands();
        }
        self.map_children(&mut |child| child.with_ascii_shorthands())
    }

    /// Returns `true` if the node or one in it has a property.
    pub(super) fn contains(&self, is: &dyn Fn(&ExpressionNode) -> bool) -> bool {
        is(self) || self.children().iter().any(|child| child.contains(is))
    }

    pub(super) fn has_look(&self) -> bool {
        self.contains(&|node| matches!(node, ExpressionNode::Look { .. }))
    }

    /// Returns the number of nodes, up to a limit.
    pub(super) fn size(&self) -> usize {
        let children = self.children().iter().map(ExpressionNode::size);
        children.fold(1, usize::saturating_add)
    }

    /// Returns the nodes of a sequence: those of a concatenation and of groups that do not capture, one after the
    /// other.
    pub(super) fn into_sequence(self) -> Vec<ExpressionNode> {
        let mut sequence = Vec::new();
        self.add_to_sequence(&mut sequence, false);
        sequence
    }

    /// Returns the nodes of a sequence, including those of groups that capture.
    pub(super) fn into_flat_sequence(self) -> Vec<ExpressionNode> {
        let mut sequence = Vec::new();
        self.add_to_sequence(&mut sequence, true);
        sequence
    }

    fn add_to_sequence(self, sequence: &mut Vec<ExpressionNode>, flat: bool) {
        match self {
            Self::Empty => {}
            Self::Concat(parts) => {
                for part in parts {
                    part.add_to_sequence(sequence, flat);
                }
            }
            Self::Group { inner, capture }
                if !matches!(*inner, Self::Alternate(_)) && (flat || capture.is_none()) =>
            {
                inner.add_to_sequence(sequence, flat);
            }
            other @ (Self::Literal { .. }
            | Self::Any(_)
            | Self::Class { .. }
            | Self::Anchor(_)
            | Self::Group { .. }
            | Self::Repeat { .. }
            | Self::Alternate(_)
            | Self::Look { .. }
            | Self::Atomic(_)
            | Self::BackReference(_)) => sequence.push(other),
        }
    }

    /// Returns `true` for `.*`.
    pub(super) fn is_anything(&self) -> bool {
        let Self::Repeat {
            inner,
            min: 0,
            max: None,
            ..
        } = self
        else {
            return false;
        };
        matches!(**inner, Self::Any(_))
    }

    pub(super) fn is_start(&self) -> bool {
        *self == Self::Anchor(Anchor::Start)
    }

    pub(super) fn is_end(&self) -> bool {
        *self == Self::Anchor(Anchor::End)
    }
}
