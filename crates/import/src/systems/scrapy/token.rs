//! Tokens of Python, as far as literals need them.

/// A token with its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub kind: TokenKind,
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    Name(String),
    Number(String),
    Text(String),
    /// An f-string, or bytes with escapes: its value is not known here.
    Computed,
    Operator(char),
    /// The end of a logical line.
    Newline,
    Indent,
    Dedent,
}

/// The maximum depth of brackets and of indentation.
const MAX_DEPTH: usize = 200;

/// Splits a text into tokens. The error says why it is not Python, with the line.
pub(super) fn tokenize(text: &str) -> Result<Vec<Token>, (u32, &'static str)> {
    let mut lexer = Lexer {
        chars: text.chars().collect(),
        at: 0,
        line: 1,
        column: 1,
        depth: 0,
        indents: vec![0],
        tokens: Vec::new(),
    };
    lexer.run()?;
    Ok(lexer.tokens)
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: u32,
    column: u32,
    depth: usize,
    indents: Vec<usize>,
    tokens: Vec<Token>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        if c == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(c)
    }

    fn push(&mut self, kind: TokenKind, line: u32, column: u32) {
        self.tokens.push(Token { kind, line, column });
    }

    fn ends_line(&self) -> bool {
        let last = self.tokens.last().map(|token| &token.kind);
        !matches!(
            last,
            None | Some(TokenKind::Newline | TokenKind::Indent | TokenKind::Dedent)
        )
    }

    fn run(&mut self) -> Result<(), (u32, &'static str)> {
        let mut at_start = true;
        loop {
            if at_start && self.depth == 0 {
                self.indentation()?;
            }
            at_start = false;
            let (line, column) = (self.line, self.column);
            let Some(c) = self.peek(0) else { break };
            match c {
                '\n' => {
                    self.bump();
                    if self.depth == 0 {
                        if self.ends_line() {
                            self.push(TokenKind::Newline, line, column);
                        }
                        at_start = true;
                    }
                }
                '#' => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.bump();
                    }
                }
                '\\' if matches!(self.peek(1), Some('\n' | '\r')) => {
                    self.bump();
                    self.bump();
                }
                c if c.is_whitespace() => {
                    self.bump();
                }
                '"' | '\'' => self.text("")?,
                c if c.is_alphabetic() || c == '_' => self.word()?,
                c if c.is_ascii_digit() => self.number(),
                '.' if self.peek(1).is_some_and(|c| c.is_ascii_digit()) => self.number(),
                c => {
                    self.bump();
                    match c {
                        '(' | '[' | '{' => self.depth += 1,
                        ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
                        _ => {}
                    }
                    if self.depth > MAX_DEPTH {
                        return Err((line, "brackets are nested too deeply"));
                    }
                    self.push(TokenKind::Operator(c), line, column);
                }
            }
        }
        if self.ends_line() {
            self.push(TokenKind::Newline, self.line, self.column);
        }
        for _ in 1..self.indents.len() {
            self.push(TokenKind::Dedent, self.line, self.column);
        }
        Ok(())
    }

    /// Compares the indentation of a line with those before it. Empty lines and comments have none.
    fn indentation(&mut self) -> Result<(), (u32, &'static str)> {
        let mut width = 0;
        let mut ahead = 0;
        loop {
            match self.peek(ahead) {
                Some(' ') => width += 1,
                Some('\t') => width = (width / 8 + 1) * 8,
                Some('\r') => {}
                Some('\n' | '#') | None => return Ok(()),
                Some(_) => break,
            }
            ahead += 1;
        }
        for _ in 0..ahead {
            self.bump();
        }
        let (line, column) = (self.line, self.column);
        if self.indents.last().is_some_and(|last| width > *last) {
            if self.indents.len() > MAX_DEPTH {
                return Err((line, "blocks are nested too deeply"));
            }
            self.indents.push(width);
            self.push(TokenKind::Indent, line, column);
        }
        while self.indents.last().is_some_and(|last| width < *last) {
            self.indents.pop();
            self.push(TokenKind::Dedent, line, column);
        }
        Ok(())
    }

    fn word(&mut self) -> Result<(), (u32, &'static str)> {
        let (line, column) = (self.line, self.column);
        let mut word = String::new();
        while let Some(c) = self.peek(0).filter(|c| c.is_alphanumeric() || *c == '_') {
            word.push(c);
            self.bump();
        }
        let is_prefix = word.len() <= 2
            && word
                .chars()
                .all(|c| matches!(c.to_ascii_lowercase(), 'r' | 'b' | 'u' | 'f' | 't'));
        if is_prefix && matches!(self.peek(0), Some('"' | '\'')) {
            return self.text(&word.to_ascii_lowercase());
        }
        self.push(TokenKind::Name(word), line, column);
        Ok(())
    }

    fn number(&mut self) {
        let (line, column) = (self.line, self.column);
        let mut number = String::new();
        while let Some(c) = self
            .peek(0)
            .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_'))
        {
            number.push(c);
            self.bump();
        }
        self.push(TokenKind::Number(number.replace('_', "")), line, column);
    }

    fn text(&mut self, prefix: &str) -> Result<(), (u32, &'static str)> {
        let (line, column) = (self.line, self.column);
        let Some(quote) = self.bump() else {
            return Ok(());
        };
        let is_long = self.peek(0) == Some(quote) && self.peek(1) == Some(quote);
        if is_long {
            self.bump();
            self.bump();
        }
        let is_raw = prefix.contains('r');
        let mut text = String::new();
        loop {
            let unclosed = (line, "a text is not closed");
            let c = self.bump().ok_or(unclosed)?;
            match c {
                c if c == quote && !is_long => break,
                c if c == quote && self.peek(0) == Some(quote) && self.peek(1) == Some(quote) => {
                    self.bump();
                    self.bump();
                    break;
                }
                '\n' if !is_long => return Err(unclosed),
                '\\' if is_raw => {
                    text.push('\\');
                    text.extend(self.bump());
                }
                '\\' => self.escape(&mut text),
                '\r' => {}
                c => text.push(c),
            }
        }
        let kind = if prefix.contains(['f', 't', 'b']) {
            TokenKind::Computed
        } else {
            TokenKind::Text(text)
        };
        self.push(kind, line, column);
        Ok(())
    }

    fn escape(&mut self, text: &mut String) {
        let Some(c) = self.bump() else { return };
        match c {
            '\n' => {}
            '\\' | '\'' | '"' => text.push(c),
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            'a' => text.push('\u{7}'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'v' => text.push('\u{b}'),
            'x' => self.code(text, c, 2),
            'u' => self.code(text, c, 4),
            'U' => self.code(text, c, 8),
            '0'..='7' => {
                let mut value = c.to_digit(8).unwrap_or(0);
                for _ in 0..2 {
                    if let Some(digit) = self.peek(0).and_then(|c| c.to_digit(8)) {
                        value = value * 8 + digit;
                        self.bump();
                    }
                }
                text.extend(char::from_u32(value));
            }
            c => text.extend(['\\', c]),
        }
    }

    fn code(&mut self, text: &mut String, letter: char, digits: usize) {
        let code: String = (0..digits).filter_map(|ahead| self.peek(ahead)).collect();
        match u32::from_str_radix(&code, 16).ok().and_then(char::from_u32) {
            Some(c) if code.len() == digits => {
                for _ in 0..digits {
                    self.bump();
                }
                text.push(c);
            }
            _ => text.extend(['\\', letter]),
        }
    }
}
