//! Rewriting of a dialect to the syntax of `fancy_regex`.

use crate::expression::Dialect;

/// Rewrites an expression.
pub(super) fn to_fancy(text: &str, dialect: Dialect) -> Result<String, String> {
    let mut rewriter = Rewriter {
        rest: text.chars().collect::<Vec<_>>().into_iter().peekable(),
        dialect,
        out: String::new(),
        open: 0,
        lines: has_line_flag(text),
    };
    while let Some(c) = rewriter.rest.next() {
        rewriter.char(c)?;
    }
    Ok(rewriter.out)
}

/// Returns `true` if the expression sets the flag `m` anywhere.
fn has_line_flag(text: &str) -> bool {
    let mut parts = text.split("(?");
    parts.next();
    parts.any(|part| {
        let flags: String = part.chars().take_while(char::is_ascii_alphabetic).collect();
        flags.contains('m')
            && part
                .get(flags.len()..)
                .is_some_and(|rest| rest.starts_with([')', ':', '-']))
    })
}

struct Rewriter {
    rest: std::iter::Peekable<std::vec::IntoIter<char>>,
    dialect: Dialect,
    out: String,
    open: usize,
    lines: bool,
}

const LINE_END: &str = "(?=\\n?\\z)";
const VERTICAL: &str = "\\n\\x0b\\x0c\\r\\x{85}\\x{2028}\\x{2029}";

impl Rewriter {
    fn is(&self, dialects: &[Dialect]) -> bool {
        dialects.contains(&self.dialect)
    }

    fn push_literal(&mut self, c: char) {
        // `\<` and `\>` are ends of words for the matcher.
        if c.is_ascii()
            && !c.is_ascii_alphanumeric()
            && !c.is_ascii_control()
            && !matches!(c, ' ' | '_' | '<' | '>')
        {
            self.out.push('\\');
        }
        self.out.push(c);
    }

    fn char(&mut self, c: char) -> Result<(), String> {
        match c {
            '\\' => return self.escape(),
            '[' => return self.class(),
            '(' => self.group()?,
            ')' if self.open == 0 && self.dialect == Dialect::Posix => self.out.push_str("\\)"),
            ')' => {
                self.open = self.open.saturating_sub(1);
                self.out.push(c);
            }
            '$' if !self.lines => {
                let last_line = self.is(&[
                    Dialect::Java,
                    Dialect::DotNet,
                    Dialect::Python,
                    Dialect::Pcre,
                ]);
                self.out.push_str(if last_line { LINE_END } else { "\\z" });
            }
            '{' => self.brace(),
            '}' => self.out.push_str("\\}"),
            ']' => self.out.push_str("\\]"),
            '*' | '+' | '?' if self.dialect == Dialect::Posix => {
                if self.out.ends_with(['*', '+', '?', '}']) && !self.out.ends_with("\\}") {
                    let escaped = self.out.chars().rev().nth(1) == Some('\\');
                    if !escaped {
                        return Err("a quantifier after a quantifier".to_owned());
                    }
                }
                self.out.push(c);
            }
            c => self.out.push(c),
        }
        Ok(())
    }

    fn brace(&mut self) {
        let mut ahead = self.rest.clone();
        let count: String = ahead.by_ref().take_while(|c| *c != '}').collect();
        let closed = self.rest.clone().any(|c| c == '}');
        let numbers: Vec<&str> = count.split(',').collect();
        let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_count = closed
            && numbers.len() <= 2
            && numbers.iter().all(digits)
            && !count.is_empty()
            && (!numbers.first().is_some_and(|it| it.is_empty())
                || self.is(&[Dialect::Python, Dialect::Posix]));
        if !is_count {
            self.out.push_str("\\{");
            return;
        }
        self.rest = ahead;
        let count = match count.strip_prefix(',') {
            Some(max) => format!("0,{max}"),
            None => count,
        };
        self.out.push_str(&format!("{{{count}}}"));
    }

    fn take_until(&mut self, end: char) -> String {
        self.rest.by_ref().take_while(|c| *c != end).collect()
    }

    /// Rewrites what begins with a parenthesis.
    fn group(&mut self) -> Result<(), String> {
        let ahead: String = self.rest.clone().take(3).collect();
        if !ahead.starts_with('?') || self.dialect == Dialect::Posix {
            self.open += 1;
            self.out.push('(');
            return Ok(());
        }
        if ahead.starts_with("?#") {
            self.take_until(')');
            return Ok(());
        }
        if ahead.starts_with("?P=") {
            let reference: String = self.take_until(')');
            let name = reference.trim_start_matches("?P=");
            self.out.push_str(&format!("\\k<{name}>"));
            return Ok(());
        }
        if ahead.starts_with("?'") {
            self.rest.next();
            self.rest.next();
            let name = self.take_until('\'');
            self.out.push_str(&format!("(?<{name}>"));
            self.open += 1;
            return Ok(());
        }
        let letters = |c: &char| c.is_ascii_alphabetic() || *c == '-' || *c == '?';
        let flags: String = self.rest.clone().take_while(letters).collect();
        let after = self.rest.clone().nth(flags.len());
        if flags.len() > 1 && matches!(after, Some(')' | ':')) {
            for _ in 0..=flags.len() {
                self.rest.next();
            }
            let known: String = flags.chars().filter(|c| "?-ismx".contains(*c)).collect();
            let known = known.trim_end_matches('-');
            match after {
                Some(')') if known == "?" => {}
                Some(')') => self.out.push_str(&format!("({known})")),
                _ => {
                    self.out.push_str(&format!("({known}:"));
                    self.open += 1;
                }
            }
            return Ok(());
        }
        self.open += 1;
        self.out.push('(');
        // `?` and what follows it, so that it is no quantifier.
        self.out.extend(self.rest.next());
        if self.rest.peek() == Some(&'<') {
            self.out.extend(self.rest.next());
        }
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        let Some(c) = self.rest.next() else {
            return Err("a backslash at the end".to_owned());
        };
        if c == 'Q' && self.is(&[Dialect::Java, Dialect::Pcre]) {
            for c in self.quoted().chars() {
                self.push_literal(c);
            }
            return Ok(());
        }
        if self.dialect == Dialect::Posix {
            match c {
                '<' => self.out.push_str("\\b(?=\\w)"),
                '>' => self.out.push_str("\\b(?<=\\w)"),
                '`' => self.out.push_str("\\A"),
                '\'' => self.out.push_str("\\z"),
                'b' | 'B' | 'w' | 'W' | 's' | 'S' | '1'..='9' => {
                    self.out.push('\\');
                    self.out.push(c);
                }
                c => self.push_literal(c),
            }
            return Ok(());
        }
        if let Some(inside) = self.shorthand(c) {
            self.out.push_str(&inside);
            return Ok(());
        }
        match c {
            'A' | 'G' if self.dialect != Dialect::JavaScript => self.out.push_str("\\A"),
            'z' if self.dialect != Dialect::JavaScript => self.out.push_str("\\z"),
            'Z' if self.dialect == Dialect::Python => self.out.push_str("\\z"),
            'Z' if self.dialect != Dialect::JavaScript => self.out.push_str(LINE_END),
            'R' if self.is(&[Dialect::Java, Dialect::Pcre]) => {
                self.out.push_str(&format!("(?>\\r\\n|[{VERTICAL}])"));
            }
            'N' if self.dialect == Dialect::Pcre => self.out.push_str("[^\\n]"),
            'E' if self.is(&[Dialect::Java, Dialect::Pcre]) => {}
            'b' | 'B' => {
                self.out.push('\\');
                self.out.push(c);
            }
            'k' | '1'..='9' => {
                self.out.push('\\');
                self.out.push(c);
                if c == 'k' {
                    let close = if self.rest.peek() == Some(&'{') {
                        '}'
                    } else {
                        '>'
                    };
                    self.rest.next();
                    let name = self.take_until(close);
                    self.out.push_str(&format!("<{name}>"));
                }
            }
            c => {
                let literal = self.character(c)?;
                self.push_literal(literal);
            }
        }
        Ok(())
    }

    /// Reads the text after `\Q`.
    fn quoted(&mut self) -> String {
        let rest: String = self.rest.clone().collect();
        let text = rest.split("\\E").next().unwrap_or_default().to_owned();
        let read = text.chars().count() + if text.len() < rest.len() { 2 } else { 0 };
        for _ in 0..read {
            self.rest.next();
        }
        text
    }

    /// Returns a class for an escape such as `\d`, which may be nested in another one.
    fn shorthand(&mut self, c: char) -> Option<String> {
        let unicode = self.is(&[Dialect::DotNet, Dialect::Python]);
        let java_or_pcre = self.is(&[Dialect::Java, Dialect::Pcre]);
        let inside = match c.to_ascii_lowercase() {
            'd' if unicode => "\\d".to_owned(),
            'd' => "0-9".to_owned(),
            'w' if unicode => "\\w".to_owned(),
            'w' => "0-9A-Za-z_".to_owned(),
            's' if unicode || self.dialect == Dialect::JavaScript => "\\s".to_owned(),
            's' => " \\t\\n\\x0b\\x0c\\r".to_owned(),
            'h' if java_or_pcre => {
                " \\t\\x{a0}\\x{1680}\\x{180e}\\x{2000}-\\x{200a}\\x{202f}\\x{205f}\\x{3000}"
                    .to_owned()
            }
            'v' if java_or_pcre => VERTICAL.to_owned(),
            'p' if self.is(&[Dialect::Java, Dialect::Pcre, Dialect::DotNet]) => self.property(),
            _ => return None,
        };
        let negation = if c.is_ascii_uppercase() { "^" } else { "" };
        Some(format!("[{negation}{inside}]"))
    }

    fn property(&mut self) -> String {
        let name = match self.rest.next() {
            Some('{') => self.take_until('}'),
            Some(c) => c.to_string(),
            None => String::new(),
        };
        let posix = [
            "Lower", "Upper", "Alpha", "Digit", "Alnum", "Punct", "Graph", "Print", "Blank",
            "Cntrl", "XDigit", "Space",
        ];
        if self.dialect == Dialect::Java && posix.contains(&name.as_str()) {
            return format!("[:{}:]", name.to_ascii_lowercase());
        }
        let name = name.strip_prefix("Is").unwrap_or(&name);
        format!("\\p{{{name}}}")
    }

    /// Returns the character of an escape.
    fn character(&mut self, c: char) -> Result<char, String> {
        let digits = match c {
            'n' => return Ok('\n'),
            't' => return Ok('\t'),
            'r' => return Ok('\r'),
            'f' => return Ok('\u{c}'),
            'v' => return Ok('\u{b}'),
            'x' if self.rest.peek() == Some(&'{') => {
                self.rest.next();
                self.take_until('}')
            }
            'x' => self.rest.by_ref().take(2).collect(),
            'u' => self.rest.by_ref().take(4).collect(),
            '0' => {
                let mut code = 0;
                while let Some(digit) = self
                    .rest
                    .peek()
                    .and_then(|c| c.to_digit(8))
                    .filter(|_| code < 32)
                {
                    code = code * 8 + digit;
                    self.rest.next();
                }
                return char::from_u32(code).ok_or_else(|| "not a character".to_owned());
            }
            c if c.is_ascii_alphanumeric() && self.dialect != Dialect::JavaScript => {
                return Err(format!("the escape \\{c} is not known to the evaluator"));
            }
            c => return Ok(c),
        };
        let code = u32::from_str_radix(&digits, 16).ok();
        code.and_then(char::from_u32)
            .ok_or_else(|| "not a character".to_owned())
    }

    /// Rewrites a class after its bracket.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        let negated = self.rest.next_if_eq(&'^').is_some();
        if negated {
            self.out.push('^');
        }
        if self.dialect == Dialect::JavaScript && self.rest.next_if_eq(&']').is_some() {
            // Without `^` nothing fits, with it anything.
            self.out.pop();
            if negated {
                self.out.pop();
            }
            self.out.push_str(if negated { "(?s:.)" } else { "(?!)" });
            return Ok(());
        }
        let mut is_first = true;
        loop {
            let Some(c) = self.rest.next() else {
                return Err("a class that is not closed".to_owned());
            };
            match c {
                ']' if !is_first => break,
                '[' if self.dialect == Dialect::Java => self.class()?,
                '[' if self.rest.peek() == Some(&':')
                    && self.is(&[Dialect::Posix, Dialect::Pcre]) =>
                {
                    let name = self.take_until(']');
                    self.out.push_str(&format!("[{name}]"));
                }
                '&' if self.dialect == Dialect::Java && self.rest.peek() == Some(&'&') => {
                    self.rest.next();
                    self.out.push_str("&&");
                }
                '-' if self.dialect == Dialect::DotNet
                    && self.rest.peek() == Some(&'[')
                    && !is_first =>
                {
                    self.rest.next();
                    self.out.push_str("--");
                    self.class()?;
                }
                '-' if is_first || self.rest.peek() == Some(&']') => self.out.push_str("\\-"),
                '-' => self.out.push('-'),
                '\\' if self.dialect != Dialect::Posix => self.class_escape()?,
                c => self.push_literal(c),
            }
            is_first = false;
        }
        self.out.push(']');
        Ok(())
    }

    fn class_escape(&mut self) -> Result<(), String> {
        let Some(c) = self.rest.next() else {
            return Err("a backslash at the end".to_owned());
        };
        if c == 'Q' && self.is(&[Dialect::Java, Dialect::Pcre]) {
            for c in self.quoted().chars() {
                self.push_literal(c);
            }
            return Ok(());
        }
        if c == 'b' {
            self.out.push_str("\\x08");
            return Ok(());
        }
        match self.shorthand(c) {
            Some(inside) => {
                self.out.push_str(&inside);
                // A dash after a class is a character.
                if self.rest.next_if_eq(&'-').is_some() {
                    self.out.push_str("\\-");
                }
            }
            None => {
                let literal = self.character(c)?;
                self.push_literal(literal);
            }
        }
        Ok(())
    }
}
