//! Classes in brackets.

use crate::expression::Dialect;
use crate::expression::node::{Class, ClassItem, ExpressionNode};

use super::escape::SharedEscape;
use super::{Flags, MAX_DEPTH, Parser};

/// The names of POSIX, as regular expressions of a policy know them.
const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

impl Parser {
    /// Reads a class after its `[`.
    pub(super) fn class(&mut self, flags: &Flags) -> Result<ExpressionNode, String> {
        let class = self.class_body(flags)?;
        Ok(ExpressionNode::Class {
            class,
            folds: flags.fold,
        })
    }

    fn class_body(&mut self, flags: &Flags) -> Result<Class, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("groups are nested more than {MAX_DEPTH} deep"));
        }
        let negated = self.eat("^");
        let mut class = Class {
            negated,
            ..Class::default()
        };
        let mut first = self.dialect != Dialect::JavaScript;
        loop {
            let Some(c) = self.peek() else {
                return Err(self.error("a class that is not closed"));
            };
            if flags.extended && self.dialect == Dialect::Java && self.skip_white_space() {
                continue;
            }
            if c == ']' && !first {
                self.at += 1;
                break;
            }
            first = false;
            self.class_part(&mut class, flags)?;
        }
        self.depth -= 1;
        if self.dialect == Dialect::JavaScript && class.items.is_empty() {
            // `[]` fits nothing, `[^]` anything.
            class.items.push(ClassItem::Range('\0', char::MAX));
            class.negated = !negated;
        }
        let nested = |item: &ClassItem| matches!(item, ClassItem::Nested(_));
        if class.negated && class.items.iter().any(nested) {
            self.assume("a negated class negates the classes in it too, as since Java 9");
        }
        Ok(class)
    }

    fn class_part(&mut self, class: &mut Class, flags: &Flags) -> Result<(), String> {
        let dialect = self.dialect;
        if dialect == Dialect::Java && self.eat("&&") {
            return self.intersection(class, flags);
        }
        if dialect == Dialect::Java && self.eat("[") {
            class.items.push(ClassItem::Nested(self.class_body(flags)?));
            return Ok(());
        }
        if dialect == Dialect::DotNet && !class.items.is_empty() && self.eat("-[") {
            class.minus = Some(Box::new(self.class_body(flags)?));
            return match self.peek() {
                Some(']') => Ok(()),
                _ => Err(self.error("a subtracted class that is not the last part")),
            };
        }
        if matches!(dialect, Dialect::Posix | Dialect::Pcre) && self.eat("[:") {
            let item = self.posix_class()?;
            class.items.push(item);
            return Ok(());
        }
        let is_collating = self.peek() == Some('[') && matches!(self.peek_at(1), Some('.' | '='));
        if dialect == Dialect::Posix && is_collating {
            return Err(self.unsupported("a collating element"));
        }
        if self.has_quotes() && self.eat("\\Q") {
            let text = self.quoted();
            class.items.extend(text.chars().map(ClassItem::Char));
            return Ok(());
        }
        if self.has_quotes() && self.eat("\\E") {
            return Ok(());
        }
        let item = self.class_item(flags)?;
        let ClassItem::Char(from) = item else {
            class.items.push(item);
            return Ok(());
        };
        class.items.push(self.range_from(from, flags)?);
        Ok(())
    }

    /// Reads the end of a range, if there is one.
    fn range_from(&mut self, from: char, flags: &Flags) -> Result<ClassItem, String> {
        let next = self.peek_at(1);
        let is_range = self.peek() == Some('-')
            && next.is_some_and(|c| c != ']')
            && !(matches!(self.dialect, Dialect::Java | Dialect::DotNet) && next == Some('['));
        if !is_range {
            return Ok(ClassItem::Char(from));
        }
        let dash = self.at;
        self.at += 1;
        match self.class_item(flags)? {
            ClassItem::Char(to) if from <= to => Ok(ClassItem::Range(from, to)),
            ClassItem::Char(_) => Err(self.error("a range whose end is before its beginning")),
            ClassItem::Shorthand { .. }
                if matches!(self.dialect, Dialect::JavaScript | Dialect::Pcre) =>
            {
                // `[a-\d]`: the dash is a character.
                self.at = dash;
                Ok(ClassItem::Char(from))
            }
            ClassItem::Range(..)
            | ClassItem::Shorthand { .. }
            | ClassItem::Posix { .. }
            | ClassItem::Property { .. }
            | ClassItem::Nested(_) => Err(self.error("a range that ends in a class")),
        }
    }

    /// Reads a character or an escape.
    fn class_item(&mut self, flags: &Flags) -> Result<ClassItem, String> {
        let Some(c) = self.next() else {
            return Err(self.error("a class that is not closed"));
        };
        if c != '\\' || self.dialect == Dialect::Posix {
            return Ok(ClassItem::Char(c));
        }
        if self.peek() == Some('b') && self.dialect != Dialect::Automaton {
            if self.dialect == Dialect::Java {
                return Err(self.error("`\\b` in a class"));
            }
            self.at += 1;
            return Ok(ClassItem::Char('\u{8}'));
        }
        if let Some(digit) = self.peek().and_then(|c| c.to_digit(8)).filter(|it| *it > 0) {
            if self.dialect == Dialect::Automaton {
                self.at += 1;
                return Ok(ClassItem::Char(char::from(b'0' + digit as u8)));
            }
            return Err(self.unsupported("an octal escape in a class"));
        }
        Ok(match self.shared_escape(flags)? {
            SharedEscape::Char(c) => ClassItem::Char(c),
            SharedEscape::Item(item) => item,
        })
    }

    /// Reads `alpha:]` after `[:`.
    fn posix_class(&mut self) -> Result<ClassItem, String> {
        let negated = self.eat("^");
        let name = self.until(":]").unwrap_or_default();
        let found = POSIX_CLASSES.into_iter().find(|known| *known == name);
        let name = found.ok_or_else(|| self.error("an unknown class of characters"))?;
        Ok(ClassItem::Posix { name, negated })
    }

    /// Reads what follows `&&`.
    fn intersection(&mut self, class: &mut Class, flags: &Flags) -> Result<(), String> {
        let mut right = Class::default();
        while !matches!(self.peek(), None | Some(']')) {
            if self.eat("&&") {
                class.and.push(std::mem::take(&mut right));
                continue;
            }
            if self.eat("[") {
                right.items.push(ClassItem::Nested(self.class_body(flags)?));
                continue;
            }
            let item = self.class_item(flags)?;
            let item = match item {
                ClassItem::Char(from) => self.range_from(from, flags)?,
                other @ (ClassItem::Range(..)
                | ClassItem::Shorthand { .. }
                | ClassItem::Posix { .. }
                | ClassItem::Property { .. }
                | ClassItem::Nested(_)) => other,
            };
            right.items.push(item);
        }
        class.and.push(right);
        if class.negated
            || class
                .and
                .iter()
                .any(|part| part.items.len() > 1 && has_nested(part))
        {
            self.assume("an intersection of classes is as Java's documentation describes it");
        }
        Ok(())
    }
}

fn has_nested(class: &Class) -> bool {
    class
        .items
        .iter()
        .any(|item| matches!(item, ClassItem::Nested(_)))
}
