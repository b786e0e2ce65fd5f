//! Writing of expressions as a policy has them.

use super::node::{Anchor, Class, ClassItem, ExpressionNode, LineBreaks, RepeatMode, Shorthand};
use super::parse::TextNature;
use super::set::CharSet;

/// An expression of a policy.
#[derive(Debug)]
pub(super) struct WrittenExpression {
    pub text: String,
    pub ignore_case: bool,
}

/// Writes a tree without look-around, back-references and atomic groups.
pub(super) fn write(node: &ExpressionNode, nature: TextNature) -> WrittenExpression {
    let ignore_case = letter_case(node) == LetterCase::Ignored;
    let mut writer = Writer {
        out: String::new(),
        nature,
    };
    writer.node(node, ignore_case);
    WrittenExpression {
        text: without_capitals_in_host(&writer.out),
        ignore_case,
    }
}

/// The comparison of letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LetterCase {
    /// There are no letters.
    Neutral,
    Compared,
    Ignored,
    Mixed,
}

impl LetterCase {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Neutral, case) | (case, Self::Neutral) => case,
            (a, b) if a == b => a,
            _ => Self::Mixed,
        }
    }
}

pub(super) fn letter_case(node: &ExpressionNode) -> LetterCase {
    let (folds, has_case) = match node {
        ExpressionNode::Literal { character, folds } => (*folds, character.is_alphabetic()),
        ExpressionNode::Class { class, folds } => (*folds, has_case(class)),
        ExpressionNode::Empty
        | ExpressionNode::Any(_)
        | ExpressionNode::Anchor(_)
        | ExpressionNode::BackReference(_)
        | ExpressionNode::Group { .. }
        | ExpressionNode::Repeat { .. }
        | ExpressionNode::Concat(_)
        | ExpressionNode::Alternate(_)
        | ExpressionNode::Look { .. }
        | ExpressionNode::Atomic(_) => {
            let children = node.children().iter().map(letter_case);
            return children.fold(LetterCase::Neutral, LetterCase::and);
        }
    };
    match (has_case, folds) {
        (false, _) => LetterCase::Neutral,
        (true, true) => LetterCase::Ignored,
        (true, false) => LetterCase::Compared,
    }
}

/// Returns `true` if a class differs if case is ignored.
fn has_case(class: &Class) -> bool {
    let property = |item: &ClassItem| {
        matches!(
            item,
            ClassItem::Property { .. } | ClassItem::Posix { .. } | ClassItem::Nested(_)
        )
    };
    let set = |folds| {
        CharSet::of(&ExpressionNode::Class {
            class: class.clone(),
            folds,
        })
    };
    class.items.iter().any(property)
        || !class.and.is_empty()
        || class.minus.is_some()
        || set(true) != set(false)
}

struct Writer {
    out: String,
    nature: TextNature,
}

impl Writer {
    /// Writes a node. `ignores_case` is how letters are compared where it is written.
    fn node(&mut self, node: &ExpressionNode, ignores_case: bool) {
        if !ignores_case && letter_case(node) == LetterCase::Ignored {
            self.out.push_str("(?i:");
            self.node(node, true);
            self.out.push(')');
            return;
        }
        match node {
            ExpressionNode::Empty
            | ExpressionNode::BackReference(_)
            | ExpressionNode::Look { .. } => {}
            ExpressionNode::Literal { character, .. } => self.literal(*character),
            ExpressionNode::Any(breaks) => self.any(*breaks),
            ExpressionNode::Class { class, .. } => self.class(class),
            ExpressionNode::Anchor(anchor) => self.anchor(*anchor),
            ExpressionNode::Group { inner, capture } => {
                let open = if capture.is_some() { "(" } else { "(?:" };
                self.out.push_str(open);
                self.node(inner, ignores_case);
                self.out.push(')');
            }
            ExpressionNode::Atomic(inner) => self.in_group(inner, ignores_case),
            ExpressionNode::Repeat {
                inner,
                min,
                max,
                mode,
            } => {
                self.atom(inner, ignores_case);
                self.quantifier(*min, *max, *mode);
            }
            ExpressionNode::Concat(parts) => self.sequence(parts, ignores_case),
            ExpressionNode::Alternate(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    if at > 0 {
                        self.out.push('|');
                    }
                    self.node(part, ignores_case);
                }
            }
        }
    }

    fn in_group(&mut self, node: &ExpressionNode, ignores_case: bool) {
        self.out.push_str("(?:");
        self.node(node, ignores_case);
        self.out.push(')');
    }

    /// Writes what a quantifier applies to.
    fn atom(&mut self, node: &ExpressionNode, ignores_case: bool) {
        let is_one = matches!(
            node,
            ExpressionNode::Literal { .. }
                | ExpressionNode::Any(_)
                | ExpressionNode::Class { .. }
                | ExpressionNode::Group { .. }
                | ExpressionNode::Atomic(_)
        );
        if is_one {
            self.node(node, ignores_case);
        } else {
            self.in_group(node, ignores_case);
        }
    }

    fn sequence(&mut self, parts: &[ExpressionNode], ignores_case: bool) {
        let mut rest = parts;
        while let Some((part, after)) = rest.split_first() {
            let run = if ignores_case { 0 } else { ignoring_run(rest) };
            if run > 1 {
                let (run, after) = rest.split_at(run);
                self.out.push_str("(?i:");
                self.sequence(run, true);
                self.out.push(')');
                rest = after;
                continue;
            }
            if matches!(part, ExpressionNode::Alternate(_)) {
                self.in_group(part, ignores_case);
            } else {
                self.node(part, ignores_case);
            }
            self.make_deliberate(part, after);
            rest = after;
        }
    }

    /// Writes `.`, `+` and `?` in another form where a policy's check takes them for letters that were not
    /// escaped: they are in the source as they are.
    fn make_deliberate(&mut self, part: &ExpressionNode, after: &[ExpressionNode]) {
        let letters = after.iter().take_while(|node| is_letter(node)).count();
        let Some(mark) = self.out.chars().last() else {
            return;
        };
        let before = self.out.chars().rev().nth(1);
        if !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-') {
            return;
        }
        let quantifier = match (mark, part) {
            ('.', ExpressionNode::Any(_)) if letters >= 2 => {
                self.out.push_str("{1}");
                return;
            }
            ('+', ExpressionNode::Repeat { .. }) if letters >= 2 && self.out.contains('/') => {
                "{1,}"
            }
            ('?', ExpressionNode::Repeat { .. }) if letters >= 1 => "{0,1}",
            _ => return,
        };
        self.out.pop();
        self.out.push_str(quantifier);
    }

    fn literal(&mut self, c: char) {
        if "\\.+*?()|[]{}^$".contains(c) {
            self.out.push('\\');
        }
        self.char(c);
    }

    fn char(&mut self, c: char) {
        match c {
            '\n' => self.out.push_str("\\n"),
            '\r' => self.out.push_str("\\r"),
            '\t' => self.out.push_str("\\t"),
            c if c.is_control() || is_invisible(c) => {
                self.out.push_str(&format!("\\x{{{:X}}}", u32::from(c)));
            }
            c => self.out.push(c),
        }
    }

    fn any(&mut self, breaks: LineBreaks) {
        self.out.push_str(match breaks {
            LineBreaks::None if self.nature.lines => "(?s:.)",
            LineBreaks::None | LineBreaks::LineFeed => ".",
            LineBreaks::JavaScript => "[^\\n\\r\\x{2028}\\x{2029}]",
            LineBreaks::Java => "[^\\n\\r\\x{85}\\x{2028}\\x{2029}]",
        });
    }

    fn anchor(&mut self, anchor: Anchor) {
        let ascii = self.nature.ascii;
        self.out.push_str(match anchor {
            Anchor::Start => "^",
            Anchor::End => "$",
            Anchor::LineStart => "(?m:^)",
            Anchor::LineEnd => "(?m:$)",
            Anchor::WordBoundary if ascii => "\\b",
            Anchor::WordBoundary => "(?-u:\\b)",
            Anchor::NotWordBoundary if ascii => "\\B",
            Anchor::NotWordBoundary => "(?-u:\\B)",
            Anchor::WordStart if ascii => "\\b{start}",
            Anchor::WordStart => "(?-u:\\b{start})",
            Anchor::WordEnd if ascii => "\\b{end}",
            Anchor::WordEnd => "(?-u:\\b{end})",
        });
    }

    fn quantifier(&mut self, min: u32, max: Option<u32>, mode: RepeatMode) {
        match (min, max) {
            (0, None) => self.out.push('*'),
            (1, None) => self.out.push('+'),
            (0, Some(1)) => self.out.push('?'),
            (min, None) => self.out.push_str(&format!("{{{min},}}")),
            (min, Some(max)) if min == max => self.out.push_str(&format!("{{{min}}}")),
            (min, Some(max)) => self.out.push_str(&format!("{{{min},{max}}}")),
        }
        if mode == RepeatMode::Lazy {
            self.out.push('?');
        }
    }

    fn class(&mut self, class: &Class) {
        if let Class {
            negated: false,
            items,
            and,
            minus: None,
        } = class
            && and.is_empty()
            && let [ClassItem::Shorthand { kind, negated }] = items.as_slice()
        {
            return self.shorthand(*kind, *negated);
        }
        if let Class {
            negated: false,
            items,
            and,
            minus: None,
        } = class
            && and.is_empty()
            && let [ClassItem::Property { name, negated }] = items.as_slice()
        {
            return self.property(name, *negated);
        }
        self.out.push_str(if class.negated { "[^" } else { "[" });
        self.class_parts(class);
        self.out.push(']');
    }

    fn class_parts(&mut self, class: &Class) {
        if class.and.is_empty() && class.minus.is_none() {
            return self.items(&class.items);
        }
        let mut parts = vec![class.items.as_slice()];
        parts.extend(class.and.iter().map(|part| part.items.as_slice()));
        for (at, items) in parts.into_iter().enumerate() {
            if at > 0 {
                self.out.push_str("&&");
            }
            match items {
                [ClassItem::Nested(_)] => self.items(items),
                items => {
                    self.out.push('[');
                    self.items(items);
                    self.out.push(']');
                }
            }
        }
        if let Some(minus) = &class.minus {
            self.out.push_str("--");
            self.class(minus);
        }
    }

    fn items(&mut self, items: &[ClassItem]) {
        for (at, item) in items.iter().enumerate() {
            let is_edge = at == 0 || at + 1 == items.len();
            match item {
                ClassItem::Char(c) => self.class_char(*c, is_edge),
                ClassItem::Range(from, to) => {
                    self.class_char(*from, false);
                    self.out.push('-');
                    self.class_char(*to, false);
                }
                ClassItem::Shorthand { kind, negated } => self.class_shorthand(*kind, *negated),
                ClassItem::Posix { name, negated } => {
                    let mark = if *negated { "^" } else { "" };
                    self.out.push_str(&format!("[:{mark}{name}:]"));
                }
                ClassItem::Property { name, negated } => self.property(name, *negated),
                ClassItem::Nested(class) => {
                    self.out.push_str(if class.negated { "[^" } else { "[" });
                    self.class_parts(class);
                    self.out.push(']');
                }
            }
        }
    }

    fn class_char(&mut self, c: char, is_edge: bool) {
        let after_same = self.out.ends_with(c);
        let escaped = match c {
            '\\' | '[' | ']' | '^' => true,
            '-' => !is_edge,
            '&' | '~' => after_same,
            _ => false,
        };
        if escaped {
            self.out.push('\\');
        }
        self.char(c);
    }

    fn property(&mut self, name: &str, negated: bool) {
        let letter = if negated { 'P' } else { 'p' };
        self.out.push_str(&format!("\\{letter}{{{name}}}"));
    }

    fn shorthand(&mut self, kind: Shorthand, negated: bool) {
        match short_form(kind, negated) {
            Some(short) => self.out.push_str(short),
            None => {
                self.out.push_str(if negated { "[^" } else { "[" });
                self.out.push_str(long_form(kind));
                self.out.push(']');
            }
        }
    }

    fn class_shorthand(&mut self, kind: Shorthand, negated: bool) {
        match short_form(kind, negated) {
            Some(short) => self.out.push_str(short),
            None if negated => self.shorthand(kind, negated),
            None => self.out.push_str(long_form(kind)),
        }
    }
}

fn short_form(kind: Shorthand, negated: bool) -> Option<&'static str> {
    match (kind, negated) {
        (Shorthand::UnicodeDigit, false) => Some("\\d"),
        (Shorthand::UnicodeDigit, true) => Some("\\D"),
        (Shorthand::UnicodeWord, false) => Some("\\w"),
        (Shorthand::UnicodeWord, true) => Some("\\W"),
        (Shorthand::UnicodeSpace, false) => Some("\\s"),
        (Shorthand::UnicodeSpace, true) => Some("\\S"),
        (
            Shorthand::Digit
            | Shorthand::Word
            | Shorthand::Space
            | Shorthand::Horizontal
            | Shorthand::Vertical,
            _,
        ) => None,
    }
}

/// Returns the inside of the class of a shorthand.
fn long_form(kind: Shorthand) -> &'static str {
    match kind {
        Shorthand::Digit => "0-9",
        Shorthand::Word => "0-9A-Za-z_",
        Shorthand::Space => "[:space:]",
        Shorthand::UnicodeDigit => "\\d",
        Shorthand::UnicodeWord => "\\w",
        Shorthand::UnicodeSpace => "\\s",
        Shorthand::Horizontal => {
            "\\t \\x{A0}\\x{1680}\\x{180E}\\x{2000}-\\x{200A}\\x{202F}\\x{205F}\\x{3000}"
        }
        Shorthand::Vertical => "\\n\\x{B}\\x{C}\\r\\x{85}\\x{2028}\\x{2029}",
    }
}

/// Returns the number of nodes at the beginning of a sequence that can be written in one `(?i:`.
fn ignoring_run(parts: &[ExpressionNode]) -> usize {
    if parts.first().map(letter_case) != Some(LetterCase::Ignored) {
        return 0;
    }
    let fits = |node: &&ExpressionNode| {
        matches!(letter_case(node), LetterCase::Ignored | LetterCase::Neutral)
    };
    let count = parts.iter().take_while(fits).count();
    let run = parts.get(..count).unwrap_or_default();
    let last = run
        .iter()
        .rposition(|node| letter_case(node) == LetterCase::Ignored);
    last.map_or(0, |last| last + 1)
}

fn is_letter(node: &ExpressionNode) -> bool {
    matches!(node, ExpressionNode::Literal { character, .. } if character.is_ascii_alphabetic())
}

/// Returns `true` for characters that a reader may not see, or that reverse the text around them.
fn is_invisible(c: char) -> bool {
    !c.is_ascii() && !c.is_alphanumeric()
}

/// Writes capital letters between `://` and the next slash as escapes, since a policy's check warns of them.
/// No host has any.
fn without_capitals_in_host(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let host = host.replace("A-Z", "\\x41-\\x5a");
    let mut escaped = String::new();
    let mut before = ' ';
    for c in host.chars() {
        if c.is_ascii_uppercase() && before != '\\' {
            escaped.push_str(&format!("\\x{:02x}", u32::from(c)));
        } else {
            escaped.push(c);
        }
        before = c;
    }
    format!("{scheme}://{escaped}{path}")
}
