//! Reading of the dialects.

mod class;
mod escape;
mod group;

use super::Dialect;
use super::node::{Anchor, ExpressionNode, LineBreaks, RepeatMode, Shorthand};

/// The maximum depth of groups. The policy's limit is 64.
const MAX_DEPTH: usize = 48;
/// The maximum length of an expression, in characters.
const MAX_LENGTH: usize = 64 << 10;
/// The maximum count of a repetition.
const MAX_COUNT: u32 = 100_000;
/// The maximum count of a repetition whose `\w` stays short. The automaton of one has some 200 states in Unicode.
const MAX_UNICODE_COPIES: u32 = 8;

/// The characters that the texts of a field may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextNature {
    /// `true` if there are no characters beyond ASCII.
    pub ascii: bool,
    /// `true` if there may be line breaks.
    pub lines: bool,
}

/// An expression that was read.
pub(super) struct ParsedExpression {
    pub node: ExpressionNode,
    /// The assumptions about the texts.
    pub assumption: Option<String>,
}

/// Reads an expression. The error says what is wrong with it.
pub(super) fn parse(
    text: &str,
    dialect: Dialect,
    ignore_case: bool,
    nature: TextNature,
) -> Result<ParsedExpression, String> {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() > MAX_LENGTH {
        return Err(format!("longer than {MAX_LENGTH} characters"));
    }
    let mut parser = Parser {
        chars,
        at: 0,
        dialect,
        nature,
        captures: 0,
        names: Vec::new(),
        depth: 0,
        flags_end: 0,
        assumption: None,
    };
    let mut flags = Flags {
        fold: ignore_case,
        ..Flags::default()
    };
    let node = parser.alternatives(&mut flags)?;
    if parser.at < parser.chars.len() {
        return Err(parser.error("an unmatched `)`"));
    }
    Ok(ParsedExpression {
        node,
        assumption: parser.assumption,
    })
}

/// The flags in effect.
#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    fold: bool,
    dot_all: bool,
    multi_line: bool,
    /// White space and comments do not count.
    extended: bool,
    /// Java's `d`: only a line feed ends a line.
    unix_lines: bool,
    /// Java's `U`: `\w`, `\d`, `\s` are Unicode.
    unicode: bool,
    /// Python's `a`: they are ASCII.
    ascii: bool,
    /// .NET's `n`: groups without a name do not capture.
    explicit_capture: bool,
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    dialect: Dialect,
    nature: TextNature,
    captures: u32,
    names: Vec<(String, u32)>,
    depth: usize,
    /// The end of the directives of flags at the beginning.
    flags_end: usize,
    assumption: Option<String>,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn peek_at(&self, offset: usize) -> Option<char> {
        self.chars.get(self.at + offset).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    /// Reads a text if it is next.
    fn eat(&mut self, text: &str) -> bool {
        let count = text.chars().count();
        let rest = self.chars.get(self.at..self.at + count);
        let found = rest.is_some_and(|rest| rest.iter().copied().eq(text.chars()));
        if found {
            self.at += count;
        }
        found
    }

    /// Reads up to a text, which is read too.
    fn until(&mut self, end: &str) -> Option<String> {
        let mut found = String::new();
        while self.at < self.chars.len() {
            if self.eat(end) {
                return Some(found);
            }
            found.extend(self.next());
        }
        None
    }

    fn error(&self, message: &str) -> String {
        let dialect = self.dialect.name();
        format!(
            "not a valid {dialect} expression: {message} at character {}",
            self.at + 1
        )
    }

    fn unsupported(&self, what: &str) -> String {
        format!("{what} has no equal in a policy's expressions")
    }

    fn assume(&mut self, assumption: &str) {
        self.assumption.get_or_insert_with(|| assumption.to_owned());
    }

    fn alternatives(&mut self, flags: &mut Flags) -> Result<ExpressionNode, String> {
        let mut parts = vec![self.sequence(flags)?];
        while self.peek() == Some('|') {
            self.at += 1;
            parts.push(self.sequence(flags)?);
        }
        Ok(ExpressionNode::alternate(parts))
    }

    fn sequence(&mut self, flags: &mut Flags) -> Result<ExpressionNode, String> {
        let mut parts = Vec::new();
        loop {
            if flags.extended && self.skip_white_space() {
                continue;
            }
            match self.peek() {
                None | Some('|') => break,
                Some(')') if self.depth > 0 => break,
                Some(')') if self.dialect == Dialect::Posix => {
                    self.at += 1;
                    parts.push(self.literal(')', flags));
                }
                Some(')') => return Err(self.error("an unmatched `)`")),
                Some(_) => {
                    let start = self.at;
                    let before = parts.len();
                    self.atom(flags, &mut parts)?;
                    let repeatable = parts.len() > before && self.at > start;
                    self.quantifiers(flags, &mut parts, repeatable)?;
                }
            }
        }
        Ok(ExpressionNode::concat(parts))
    }

    /// Skips a white space or a comment of the flag `x`.
    fn skip_white_space(&mut self) -> bool {
        match self.peek() {
            Some(c) if c.is_ascii_whitespace() || c == '\u{b}' => {
                self.at += 1;
                true
            }
            Some('#') => {
                while self.next().is_some_and(|c| c != '\n') {}
                true
            }
            _ => false,
        }
    }

    fn literal(&self, character: char, flags: &Flags) -> ExpressionNode {
        ExpressionNode::Literal {
            character,
            folds: flags.fold,
        }
    }

    /// Reads what a quantifier applies to. A directive of flags and a comment add nothing.
    fn atom(&mut self, flags: &mut Flags, parts: &mut Vec<ExpressionNode>) -> Result<(), String> {
        let Some(c) = self.next() else {
            return Ok(());
        };
        let node = match c {
            '\\' => return self.escape(flags, parts),
            '[' => self.class(flags)?,
            '(' => match self.group(flags)? {
                Some(node) => node,
                None => return Ok(()),
            },
            '.' => ExpressionNode::Any(self.line_breaks(flags)),
            '^' => {
                ExpressionNode::Anchor(self.line_anchor(flags, Anchor::Start, Anchor::LineStart))
            }
            '$' => ExpressionNode::Anchor(self.dollar(flags)),
            '*' | '+' | '?' => {
                self.at -= 1;
                return Err(self.error("nothing to repeat"));
            }
            '{' if self.counts_at(self.at).is_some() && self.dialect != Dialect::Pcre => {
                return Err(self.error("nothing to repeat"));
            }
            '{' if matches!(self.dialect, Dialect::Java | Dialect::Posix) => {
                return Err(self.error("`{` without a number, which must be escaped"));
            }
            c => self.literal(c, flags),
        };
        parts.push(node);
        Ok(())
    }

    fn line_breaks(&self, flags: &Flags) -> LineBreaks {
        // No text of the field has any.
        if flags.dot_all || !self.nature.lines {
            return LineBreaks::None;
        }
        match self.dialect {
            Dialect::Java if !flags.unix_lines => LineBreaks::Java,
            Dialect::JavaScript => LineBreaks::JavaScript,
            Dialect::Java | Dialect::DotNet | Dialect::Python | Dialect::Pcre => {
                LineBreaks::LineFeed
            }
            Dialect::Posix | Dialect::Automaton => LineBreaks::None,
        }
    }

    fn line_anchor(&mut self, flags: &Flags, whole: Anchor, line: Anchor) -> Anchor {
        if !flags.multi_line || !self.nature.lines {
            return whole;
        }
        if matches!(self.dialect, Dialect::Java | Dialect::JavaScript) && !flags.unix_lines {
            self.assume("only a line feed ends a line");
        }
        line
    }

    fn dollar(&mut self, flags: &Flags) -> Anchor {
        let anchor = self.line_anchor(flags, Anchor::End, Anchor::LineEnd);
        if anchor == Anchor::End {
            self.note_final_line_break();
        }
        anchor
    }

    /// Notes that `$` and `\Z` also fit before a line break at the end.
    fn note_final_line_break(&mut self) {
        let fits_before = match self.dialect {
            Dialect::Java | Dialect::DotNet | Dialect::Python | Dialect::Pcre => true,
            Dialect::JavaScript | Dialect::Posix | Dialect::Automaton => false,
        };
        if fits_before && self.nature.lines {
            self.assume("the text does not end in a line break");
        }
    }

    fn shorthand(&self, c: char, flags: &Flags) -> Shorthand {
        let unicode = match self.dialect {
            Dialect::DotNet => true,
            Dialect::Python => !flags.ascii,
            Dialect::Java => flags.unicode,
            Dialect::JavaScript => c.eq_ignore_ascii_case(&'s'),
            Dialect::Posix | Dialect::Pcre | Dialect::Automaton => false,
        };
        // In ASCII they are the same, and the short form is easier to read.
        let unicode = unicode || self.nature.ascii;
        match (c.to_ascii_lowercase(), unicode) {
            ('d', false) => Shorthand::Digit,
            ('d', true) => Shorthand::UnicodeDigit,
            ('w', false) => Shorthand::Word,
            ('w', true) => Shorthand::UnicodeWord,
            (_, false) => Shorthand::Space,
            (_, true) => Shorthand::UnicodeSpace,
        }
    }

    /// Reads the quantifiers after an atom.
    fn quantifiers(
        &mut self,
        flags: &Flags,
        parts: &mut Vec<ExpressionNode>,
        repeatable: bool,
    ) -> Result<(), String> {
        let mut count = 0;
        loop {
            while flags.extended && self.dialect != Dialect::Java && self.skip_white_space() {}
            let Some((min, max)) = self.quantifier()? else {
                return Ok(());
            };
            if !repeatable || count > 0 && self.dialect != Dialect::Posix {
                return Err(self.error("a quantifier that has nothing to repeat"));
            }
            count += 1;
            let mode = self.repeat_mode();
            if let Some(inner) = parts.pop() {
                let many = min.max(max.unwrap_or(0)) > MAX_UNICODE_COPIES;
                // In ASCII they are the same, and the copies are far smaller.
                let inner = if many && self.nature.ascii {
                    inner.with_ascii_shorthands()
                } else {
                    inner
                };
                parts.push(ExpressionNode::Repeat {
                    inner: Box::new(inner),
                    min,
                    max,
                    mode,
                });
            }
        }
    }

    fn quantifier(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        let found = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => match self.counts_at(self.at + 1) {
                Some((min, max, end)) => {
                    self.at = end - 1;
                    (min, max)
                }
                None if matches!(self.dialect, Dialect::Java | Dialect::Posix) => {
                    return Err(self.error("`{` without a number, which must be escaped"));
                }
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let (min, max) = found;
        if min > MAX_COUNT || max.is_some_and(|max| max > MAX_COUNT) {
            return Err(self.unsupported("a count of more than 100,000"));
        }
        if max.is_some_and(|max| max < min) {
            return Err(self.error("a repetition whose maximum is less than its minimum"));
        }
        self.at += 1;
        Ok(Some(found))
    }

    /// Reads the numbers of `{2,3}` after the brace, and returns the position after the closing one.
    fn counts_at(&self, start: usize) -> Option<(u32, Option<u32>, usize)> {
        let end = start + self.chars.get(start..)?.iter().position(|c| *c == '}')?;
        let text: String = self.chars.get(start..end)?.iter().collect();
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().unwrap_or(u32::MAX))
        };
        let (min, max) = match text.split_once(',') {
            None => {
                let count = number(&text)?;
                (count, Some(count))
            }
            Some(("", max)) if matches!(self.dialect, Dialect::Python | Dialect::Posix) => {
                let max = if max.is_empty() {
                    None
                } else {
                    Some(number(max)?)
                };
                (0, max)
            }
            Some((min, "")) => (number(min)?, None),
            Some((min, max)) => (number(min)?, Some(number(max)?)),
        };
        Some((min, max, end + 1))
    }

    fn repeat_mode(&mut self) -> RepeatMode {
        let has_lazy = !matches!(self.dialect, Dialect::Posix | Dialect::Automaton);
        let has_possessive = matches!(
            self.dialect,
            Dialect::Java | Dialect::Python | Dialect::Pcre
        );
        match self.peek() {
            Some('?') if has_lazy => {
                self.at += 1;
                RepeatMode::Lazy
            }
            Some('+') if has_possessive => {
                self.at += 1;
                RepeatMode::Possessive
            }
            _ => RepeatMode::Greedy,
        }
    }
}
