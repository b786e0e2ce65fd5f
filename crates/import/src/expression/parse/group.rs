//! Groups, look-around and directives of flags.

use crate::expression::Dialect;
use crate::expression::node::{ExpressionNode, LookDirection};

use super::{Flags, MAX_DEPTH, Parser};

/// A construct after `(`.
enum GroupStart {
    Capture(Option<String>),
    Plain(Flags),
    Look(LookDirection, bool),
    Atomic,
    /// Nothing, such as a comment or `(?i)`.
    Nothing,
}

impl Parser {
    /// Reads a group after its `(`. A comment or a directive of flags is no node.
    pub(super) fn group(&mut self, flags: &mut Flags) -> Result<Option<ExpressionNode>, String> {
        if self.depth >= MAX_DEPTH {
            return Err(format!("groups are nested more than {MAX_DEPTH} deep"));
        }
        let start = self.group_start(flags)?;
        let mut inner_flags = *flags;
        let mut capture = None;
        match &start {
            GroupStart::Nothing => return Ok(None),
            GroupStart::Capture(name) => {
                self.captures += 1;
                capture = Some(self.captures);
                if let Some(name) = name {
                    self.names.push((name.clone(), self.captures));
                }
            }
            GroupStart::Plain(flags) => inner_flags = *flags,
            GroupStart::Look(..) | GroupStart::Atomic => {}
        }
        self.depth += 1;
        let inner = Box::new(self.alternatives(&mut inner_flags)?);
        self.depth -= 1;
        if self.next() != Some(')') {
            return Err(self.error("a group that is not closed"));
        }
        Ok(Some(match start {
            GroupStart::Look(direction, negative) => ExpressionNode::Look {
                direction,
                negative,
                inner,
            },
            GroupStart::Atomic => ExpressionNode::Atomic(inner),
            GroupStart::Capture(_) | GroupStart::Plain(_) | GroupStart::Nothing => {
                ExpressionNode::Group { inner, capture }
            }
        }))
    }

    fn group_start(&mut self, flags: &mut Flags) -> Result<GroupStart, String> {
        if self.dialect == Dialect::Posix {
            return Ok(GroupStart::Capture(None));
        }
        if self.dialect == Dialect::Pcre && self.peek() == Some('*') {
            return Err(self.unsupported("a verb such as `(*SKIP)`"));
        }
        if !self.eat("?") {
            return Ok(match flags.explicit_capture {
                true => GroupStart::Plain(*flags),
                false => GroupStart::Capture(None),
            });
        }
        for (text, direction, negative) in [
            ("=", LookDirection::Ahead, false),
            ("!", LookDirection::Ahead, true),
            ("<=", LookDirection::Behind, false),
            ("<!", LookDirection::Behind, true),
        ] {
            if self.eat(text) {
                return Ok(GroupStart::Look(direction, negative));
            }
        }
        if self.dialect != Dialect::JavaScript && self.eat(">") {
            return Ok(GroupStart::Atomic);
        }
        self.named_group(flags)
    }

    fn named_group(&mut self, flags: &mut Flags) -> Result<GroupStart, String> {
        let dialect = self.dialect;
        let has_p = matches!(dialect, Dialect::Python | Dialect::Pcre);
        let has_quotes = matches!(dialect, Dialect::DotNet | Dialect::Pcre);
        let end = if has_p && self.eat("P<") || dialect != Dialect::Python && self.eat("<") {
            ">"
        } else if has_quotes && self.eat("'") {
            "'"
        } else if dialect != Dialect::Java && dialect != Dialect::JavaScript && self.eat("#") {
            self.until(")").ok_or("a comment that is not closed")?;
            return Ok(GroupStart::Nothing);
        } else if has_p && self.peek() == Some('P') {
            return Err(self.unsupported("a back-reference by name in a group, or recursion"));
        } else {
            return self.flag_group(flags);
        };
        let name = self.until(end).unwrap_or_default();
        let valid = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        if name.is_empty() || !name.chars().all(valid) {
            return Err(self.error("a group without a valid name"));
        }
        Ok(GroupStart::Capture(Some(name)))
    }

    /// Reads `(?i)`, `(?i-s:` or `(?:`.
    fn flag_group(&mut self, flags: &mut Flags) -> Result<GroupStart, String> {
        let at_start = self.at == self.flags_end + 2;
        let mut changed = *flags;
        let mut value = true;
        loop {
            let Some(c) = self.next() else {
                return Err(self.error("a group that is not closed"));
            };
            match c {
                ':' => return Ok(GroupStart::Plain(changed)),
                ')' if self.dialect == Dialect::JavaScript => break,
                ')' => {
                    if self.dialect == Dialect::Python && !at_start {
                        return Err(self.error("flags that are not at the beginning"));
                    }
                    *flags = changed;
                    self.flags_end = self.at;
                    return Ok(GroupStart::Nothing);
                }
                '-' => value = false,
                // PCRE's `(?^` resets the flags.
                c if self.set_flag(&mut changed, c, value) => {}
                _ => break,
            }
        }
        self.at -= 1;
        Err(match self.peek() {
            Some('(') => self.unsupported("a conditional group"),
            Some('|') => self.unsupported("a branch reset group"),
            Some('R' | '&' | '0'..='9' | '+') => self.unsupported("recursion"),
            _ => self.error("an unknown kind of group"),
        })
    }

    fn set_flag(&self, flags: &mut Flags, c: char, value: bool) -> bool {
        let java = self.dialect == Dialect::Java;
        let python = self.dialect == Dialect::Python;
        let dot_net = self.dialect == Dialect::DotNet;
        let flag = match c {
            'i' => &mut flags.fold,
            's' => &mut flags.dot_all,
            'm' => &mut flags.multi_line,
            'x' if self.dialect != Dialect::JavaScript => &mut flags.extended,
            'd' if java => &mut flags.unix_lines,
            'U' if java => &mut flags.unicode,
            'n' if dot_net => &mut flags.explicit_capture,
            'a' if python => &mut flags.ascii,
            // Unicode case folding, which a policy's expressions have anyway.
            'u' if java || python => return true,
            _ => return false,
        };
        *flag = value;
        true
    }
}
