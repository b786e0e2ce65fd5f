//! Escapes.

use crate::expression::Dialect;
use crate::expression::node::{Anchor, Class, ClassItem, ExpressionNode, Shorthand};

use super::{Flags, Parser};

/// An escape that means the same in a class as outside of one.
pub(super) enum SharedEscape {
    Char(char),
    Item(ClassItem),
}

impl Parser {
    /// Reads an escape after its backslash, outside of a class.
    pub(super) fn escape(
        &mut self,
        flags: &Flags,
        parts: &mut Vec<ExpressionNode>,
    ) -> Result<(), String> {
        let Some(c) = self.peek() else {
            return Err(self.error("a backslash at the end"));
        };
        if c == 'Q' && self.has_quotes() {
            self.at += 1;
            let literal = self.quoted();
            parts.extend(literal.chars().map(|c| self.literal(c, flags)));
            return Ok(());
        }
        if c == 'E' && self.has_quotes() {
            self.at += 1;
            return Ok(());
        }
        if let Some(anchor) = self.anchor_escape(c) {
            self.at += 1;
            if c == 'Z' && self.dialect != Dialect::Python {
                self.note_final_line_break();
            }
            parts.push(ExpressionNode::Anchor(anchor));
            return Ok(());
        }
        if let Some(number) = self.back_reference(c)? {
            parts.push(ExpressionNode::BackReference(number));
            return Ok(());
        }
        if let Some(node) = self.node_escape(c)? {
            parts.push(node);
            return Ok(());
        }
        let node = match self.shared_escape(flags)? {
            SharedEscape::Char(c) => self.literal(c, flags),
            SharedEscape::Item(item) => ExpressionNode::Class {
                class: Class::of(vec![item]),
                folds: flags.fold,
            },
        };
        parts.push(node);
        Ok(())
    }

    pub(super) fn has_quotes(&self) -> bool {
        matches!(self.dialect, Dialect::Java | Dialect::Pcre)
    }

    /// Reads the text after `\Q`.
    pub(super) fn quoted(&mut self) -> String {
        let start = self.at;
        if let Some(text) = self.until("\\E") {
            return text;
        }
        self.at = self.chars.len();
        self.chars.get(start..).unwrap_or_default().iter().collect()
    }

    fn anchor_escape(&self, c: char) -> Option<Anchor> {
        use Dialect::{DotNet, Java, JavaScript, Pcre, Posix, Python};
        let dialect = self.dialect;
        let perl_like = matches!(dialect, Java | DotNet | Pcre);
        match c {
            'b' if dialect == Java && self.peek_at(1) == Some('{') => None,
            'b' => Some(Anchor::WordBoundary),
            'B' => Some(Anchor::NotWordBoundary),
            'A' | 'Z' if perl_like || dialect == Python => {
                Some(if c == 'A' { Anchor::Start } else { Anchor::End })
            }
            'z' if perl_like || dialect == Python => Some(Anchor::End),
            // The end of the previous match: the beginning, for the first one.
            'G' if perl_like => Some(Anchor::Start),
            '<' if dialect == Posix => Some(Anchor::WordStart),
            '>' if dialect == Posix => Some(Anchor::WordEnd),
            '`' if dialect == Posix => Some(Anchor::Start),
            '\'' if dialect == Posix => Some(Anchor::End),
            _ if dialect == JavaScript => None,
            _ => None,
        }
    }

    fn back_reference(&mut self, c: char) -> Result<Option<u32>, String> {
        let named = match (self.dialect, c) {
            (Dialect::Java | Dialect::DotNet | Dialect::Pcre, 'k') => true,
            (Dialect::JavaScript, 'k') => self.peek_at(1) == Some('<'),
            _ => false,
        };
        if named {
            self.at += 1;
            return self.named_reference().map(Some);
        }
        if c == 'g' && self.dialect == Dialect::Pcre {
            self.at += 1;
            return self.pcre_reference().map(Some);
        }
        let Some(mut number) = c.to_digit(10).filter(|digit| *digit > 0) else {
            return Ok(None);
        };
        self.at += 1;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            let longer = number * 10 + digit;
            if longer > self.captures || self.dialect == Dialect::Posix {
                break;
            }
            number = longer;
            self.at += 1;
        }
        if number > self.captures {
            return Err(self.unsupported("a back-reference to a group that is not before it"));
        }
        Ok(Some(number))
    }

    fn named_reference(&mut self) -> Result<u32, String> {
        let name = match self.next() {
            Some('<') => self.until(">"),
            Some('{') => self.until("}"),
            Some('\'') => self.until("'"),
            _ => None,
        };
        self.group_number(&name.unwrap_or_default())
    }

    fn pcre_reference(&mut self) -> Result<u32, String> {
        let text = match self.peek() {
            Some('{') => {
                self.at += 1;
                self.until("}").unwrap_or_default()
            }
            _ => self.next().map(String::from).unwrap_or_default(),
        };
        if let Some(back) = text.strip_prefix('-').and_then(|it| it.parse::<u32>().ok()) {
            return (self.captures + 1)
                .checked_sub(back)
                .filter(|number| *number > 0)
                .ok_or_else(|| self.error("a reference to a group that does not exist"));
        }
        match text.parse() {
            Ok(number) if number <= self.captures && number > 0 => Ok(number),
            Ok(_) => Err(self.unsupported("a back-reference to a group that is not before it")),
            Err(_) => self.group_number(&text),
        }
    }

    pub(super) fn group_number(&self, name: &str) -> Result<u32, String> {
        let found = self.names.iter().find(|(known, _)| known == name);
        found
            .map(|(_, number)| *number)
            .ok_or_else(|| self.error("a back-reference to a group that does not exist"))
    }

    /// Reads escapes that are only allowed outside of a class.
    fn node_escape(&mut self, c: char) -> Result<Option<ExpressionNode>, String> {
        use Dialect::{DotNet, Java, Pcre, Python};
        let java_or_pcre = matches!(self.dialect, Java | Pcre);
        let node = match c {
            'R' if java_or_pcre => line_break(),
            'N' if self.dialect == Pcre && self.peek_at(1) != Some('{') => ExpressionNode::Class {
                class: Class::without(vec![ClassItem::Char('\n')]),
                folds: false,
            },
            'X' if java_or_pcre => return Err(self.unsupported("`\\X`, a grapheme")),
            'K' if self.dialect == Pcre => ExpressionNode::Empty,
            'C' if self.dialect == Pcre => return Err(self.unsupported("`\\C`, a byte")),
            'b' if self.dialect == Java => {
                return Err(self.unsupported("`\\b{g}`, a boundary of graphemes"));
            }
            'N' if matches!(self.dialect, Java | Python | Pcre) => {
                return Err(self.unsupported("a character by its Unicode name"));
            }
            'p' | 'P' if matches!(self.dialect, Python) => {
                return Err(self.error("an unknown escape"));
            }
            '_' if self.dialect == DotNet => ExpressionNode::literal('_'),
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(node))
    }

    /// Reads an escape that means the same in a class, at the character after the backslash.
    pub(super) fn shared_escape(&mut self, flags: &Flags) -> Result<SharedEscape, String> {
        let Some(c) = self.next() else {
            return Err(self.error("a backslash at the end"));
        };
        if let Some(item) = self.class_escape(c, flags)? {
            return Ok(SharedEscape::Item(item));
        }
        self.char_escape(c).map(SharedEscape::Char)
    }

    fn class_escape(&mut self, c: char, flags: &Flags) -> Result<Option<ClassItem>, String> {
        use Dialect::{Automaton, DotNet, Java, JavaScript, Pcre, Posix};
        let dialect = self.dialect;
        let lower = c.to_ascii_lowercase();
        let negated = c.is_ascii_uppercase();
        if dialect == Automaton || dialect == Posix && lower == 'd' {
            if lower == 'd' {
                self.assume("`\\d` is the letter d, as in GNU's library, not a digit");
            }
            return Ok(None);
        }
        Ok(match lower {
            'd' | 'w' | 's' => Some(ClassItem::Shorthand {
                kind: self.shorthand(c, flags),
                negated,
            }),
            'h' if matches!(dialect, Java | Pcre) => Some(ClassItem::Shorthand {
                kind: Shorthand::Horizontal,
                negated,
            }),
            // In other dialects it is U+000B.
            'v' if matches!(dialect, Java | Pcre) => Some(ClassItem::Shorthand {
                kind: Shorthand::Vertical,
                negated,
            }),
            'p' if matches!(dialect, Java | DotNet | Pcre) => Some(self.property(negated)?),
            'p' if dialect == JavaScript && self.peek() == Some('{') => {
                return Err(self.unsupported("`\\p`, which depends on the flag `u`,"));
            }
            _ => None,
        })
    }

    /// Reads the name of a Unicode class after `\p`.
    fn property(&mut self, mut negated: bool) -> Result<ClassItem, String> {
        let name = match self.next() {
            Some('{') => self.until("}"),
            Some(c) if c.is_ascii_uppercase() => Some(c.to_string()),
            _ => None,
        };
        let Some(mut name) = name else {
            return Err(self.error("`\\p` without a name"));
        };
        if self.dialect == Dialect::Pcre
            && let Some(rest) = name.strip_prefix('^')
        {
            negated = !negated;
            name = rest.to_owned();
        }
        if self.dialect == Dialect::Java {
            if let Some(posix) = java_posix_class(&name) {
                return Ok(ClassItem::Posix {
                    name: posix,
                    negated,
                });
            }
            name = name.strip_prefix("Is").map(str::to_owned).unwrap_or(name);
        }
        let is_block = self.dialect == Dialect::DotNet && name.starts_with("Is")
            || name.starts_with("In")
            || name.starts_with("java");
        if is_block || regex_syntax::parse(&format!("\\p{{{name}}}")).is_err() {
            return Err(self.unsupported(&format!("the class \\p{{{name}}}")));
        }
        Ok(ClassItem::Property { name, negated })
    }

    fn char_escape(&mut self, c: char) -> Result<char, String> {
        use Dialect::{Automaton, DotNet, Java, JavaScript, Pcre, Posix, Python};
        let dialect = self.dialect;
        if matches!(dialect, Posix | Automaton) {
            return Ok(c);
        }
        let found = match c {
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            'f' => Some('\u{c}'),
            'v' => Some('\u{b}'),
            'a' if dialect != JavaScript => Some('\u{7}'),
            'e' if !matches!(dialect, JavaScript | Python) => Some('\u{1b}'),
            '0' => Some(self.octal(0)?),
            'x' => return self.hex_escape(),
            'u' if matches!(dialect, Java | DotNet | Python | JavaScript) => {
                return self.unicode_escape();
            }
            'U' if dialect == Python => Some(self.hex(8, 8)?),
            'o' if dialect == Pcre && self.eat("{") => {
                let digits = self.until("}").unwrap_or_default();
                let code = u32::from_str_radix(&digits, 8).ok();
                code.and_then(char::from_u32)
            }
            'c' if dialect != Python => {
                let letter = self.next().filter(char::is_ascii);
                letter.and_then(|c| char::from_u32(u32::from(c.to_ascii_uppercase()) ^ 64))
            }
            c if dialect == JavaScript || !c.is_ascii_alphanumeric() => Some(c),
            _ => None,
        };
        found.ok_or_else(|| {
            self.at -= 1;
            self.error(&format!("an unknown escape \\{c}"))
        })
    }

    fn octal(&mut self, first: u32) -> Result<char, String> {
        let is_java = self.dialect == Dialect::Java;
        let max = if self.dialect == Dialect::JavaScript {
            0
        } else if is_java && matches!(self.peek(), Some('0'..='3')) {
            3
        } else {
            2
        };
        let mut code = first;
        for _ in 0..max {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                break;
            };
            code = code * 8 + digit;
            self.at += 1;
        }
        char::from_u32(code).ok_or_else(|| self.error("not a character"))
    }

    fn hex_escape(&mut self) -> Result<char, String> {
        let braces = matches!(self.dialect, Dialect::Java | Dialect::Pcre);
        if braces && self.peek() == Some('{') {
            return self.braced_hex();
        }
        let min = if self.dialect == Dialect::Pcre { 0 } else { 2 };
        if self.dialect == Dialect::JavaScript && !self.has_hex(2) {
            return Ok('x');
        }
        self.hex(min, 2)
    }

    fn unicode_escape(&mut self) -> Result<char, String> {
        if self.dialect == Dialect::JavaScript && !self.has_hex(4) {
            if self.peek() == Some('{') {
                return Err(self.unsupported("`\\u{}`, which depends on the flag `u`,"));
            }
            return Ok('u');
        }
        self.hex(4, 4)
    }

    fn has_hex(&self, count: usize) -> bool {
        (0..count).all(|at| self.peek_at(at).is_some_and(|c| c.is_ascii_hexdigit()))
    }

    fn braced_hex(&mut self) -> Result<char, String> {
        self.at += 1;
        let digits = self.until("}").unwrap_or_default();
        let code = u32::from_str_radix(&digits, 16).ok();
        let found = code.and_then(char::from_u32);
        found.ok_or_else(|| self.error("not a character"))
    }

    fn hex(&mut self, min: usize, max: usize) -> Result<char, String> {
        let mut code = 0;
        for count in 0..max {
            match self.peek().and_then(|c| c.to_digit(16)) {
                Some(digit) => code = code * 16 + digit,
                None if count >= min => break,
                None => return Err(self.error("a hexadecimal escape without digits")),
            }
            self.at += 1;
        }
        char::from_u32(code).ok_or_else(|| self.unsupported("half of a surrogate pair"))
    }
}

/// Returns `\R`.
fn line_break() -> ExpressionNode {
    let pair = ExpressionNode::Concat(vec![
        ExpressionNode::literal('\r'),
        ExpressionNode::literal('\n'),
    ]);
    let class = ExpressionNode::Class {
        class: Class::of(vec![ClassItem::Shorthand {
            kind: Shorthand::Vertical,
            negated: false,
        }]),
        folds: false,
    };
    ExpressionNode::Group {
        inner: Box::new(ExpressionNode::Alternate(vec![pair, class])),
        capture: None,
    }
}

/// Returns the name of a class of POSIX by Java's name.
fn java_posix_class(name: &str) -> Option<&'static str> {
    const CLASSES: [(&str, &str); 13] = [
        ("Lower", "lower"),
        ("Upper", "upper"),
        ("ASCII", "ascii"),
        ("Alpha", "alpha"),
        ("Digit", "digit"),
        ("Alnum", "alnum"),
        ("Punct", "punct"),
        ("Graph", "graph"),
        ("Print", "print"),
        ("Blank", "blank"),
        ("Cntrl", "cntrl"),
        ("XDigit", "xdigit"),
        ("Space", "space"),
    ];
    let found = CLASSES.iter().find(|(java, _)| *java == name);
    found.map(|(_, posix)| *posix)
}
