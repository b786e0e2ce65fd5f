//! Statements and literals of Python. Nothing is run: what is not a literal is [`PythonValue::Computed`].

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a parser names the tokens that it expects; any other is not what it looks for"
)]

use std::collections::BTreeMap;

use crate::systems::scrapy::token::{Token, TokenKind};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum PythonValue {
    Text(String),
    Number(f64),
    Bool(bool),
    None,
    /// A list, tuple or set.
    List(Vec<PythonValue>),
    Dict(Vec<(PythonValue, Argument)>),
    Call(Call),
    /// It depends on what runs.
    Computed,
}

impl PythonValue {
    /// Returns the text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }
}

/// A call of a function by its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The last part of its name: `LinkExtractor`.
    pub name: String,
    pub arguments: Vec<(Option<String>, Argument)>,
    pub line: u32,
    pub column: u32,
}

/// A value with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    pub value: PythonValue,
    pub line: u32,
    pub column: u32,
}

/// A statement.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub line: u32,
    pub column: u32,
    pub kind: StatementKind,
}

#[derive(Clone, Debug)]
pub(super) enum StatementKind {
    Assign(String, Argument),
    Class {
        name: String,
        bases: Vec<String>,
        body: Vec<Statement>,
    },
    /// A function, with the lines on which it requests pages.
    Function {
        name: String,
        requests: Vec<u32>,
    },
    Import,
    /// A text alone: documentation.
    Text,
    /// Anything else, by its first word; with the names that it assigns.
    Other {
        word: String,
        names: Vec<String>,
    },
}

/// Values that names have.
pub(super) type PythonNames = BTreeMap<String, PythonValue>;

/// Parses a file.
pub(super) fn parse(tokens: &[Token], names: &mut PythonNames) -> Vec<Statement> {
    let mut parser = PythonParser { tokens, at: 0 };
    parser.block(names, 0)
}

const MAX_DEPTH: usize = 100;

struct PythonParser<'t> {
    tokens: &'t [Token],
    at: usize,
}

impl<'t> PythonParser<'t> {
    fn peek(&self) -> Option<&'t TokenKind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    fn peek_after(&self, ahead: usize) -> Option<&'t TokenKind> {
        self.tokens.get(self.at + ahead).map(|token| &token.kind)
    }

    fn place(&self) -> (u32, u32) {
        let token = self.tokens.get(self.at).or(self.tokens.last());
        token.map_or((1, 1), |token| (token.line, token.column))
    }

    fn eat(&mut self, operator: char) -> bool {
        let found = self.peek() == Some(&TokenKind::Operator(operator));
        self.at += usize::from(found);
        found
    }

    fn name(&mut self) -> Option<String> {
        match self.peek() {
            Some(TokenKind::Name(name)) => {
                self.at += 1;
                Some(name.clone())
            }
            _ => None,
        }
    }

    /// Parses statements until the block ends.
    fn block(&mut self, names: &mut PythonNames, depth: usize) -> Vec<Statement> {
        let mut statements = Vec::new();
        while let Some(kind) = self.peek() {
            match kind {
                TokenKind::Dedent if depth > 0 => {
                    self.at += 1;
                    break;
                }
                TokenKind::Newline | TokenKind::Indent | TokenKind::Dedent => self.at += 1,
                TokenKind::Operator(';') => self.at += 1,
                _ => {
                    let (line, column) = self.place();
                    let kind = self.statement(names, depth);
                    statements.push(Statement { line, column, kind });
                }
            }
        }
        statements
    }

    fn statement(&mut self, names: &mut PythonNames, depth: usize) -> StatementKind {
        let start = self.at;
        let word = match self.peek() {
            Some(TokenKind::Name(name)) => name.as_str(),
            Some(TokenKind::Text(_)) => {
                self.skip_statement();
                return StatementKind::Text;
            }
            Some(TokenKind::Operator('@')) => {
                self.skip_line();
                return StatementKind::Other {
                    word: "@".to_owned(),
                    names: Vec::new(),
                };
            }
            _ => "",
        };
        match word {
            "import" | "from" => {
                self.skip_line();
                StatementKind::Import
            }
            "class" if depth < MAX_DEPTH => self.class(names, depth),
            "def" | "async" => self.function(),
            _ => match self.assignment(names) {
                Some((name, value)) => {
                    // A name that is assigned twice may have either value.
                    if names.insert(name.clone(), value.value.clone()).is_some() && depth == 0 {
                        names.insert(name.clone(), PythonValue::Computed);
                    }
                    StatementKind::Assign(name, value)
                }
                None => {
                    self.at = start;
                    self.skip_statement();
                    let assigned = self.assigned(start);
                    for name in &assigned {
                        names.insert(name.clone(), PythonValue::Computed);
                    }
                    StatementKind::Other {
                        word: word.to_owned(),
                        names: assigned,
                    }
                }
            },
        }
    }

    /// Returns the names that are assigned or changed between a token and this one.
    fn assigned(&self, start: usize) -> Vec<String> {
        let tokens = self.tokens.get(start..self.at).unwrap_or_default();
        let mut found = Vec::new();
        for (index, token) in tokens.iter().enumerate() {
            let TokenKind::Name(name) = &token.kind else {
                continue;
            };
            let next = tokens.get(index + 1).map(|token| &token.kind);
            let changes = [Some('='), Some('+'), Some('['), Some('.')].iter().any(
                |c| matches!((next, c), (Some(TokenKind::Operator(found)), Some(c)) if found == c),
            );
            if changes {
                found.push(name.clone());
            }
        }
        found
    }

    fn class(&mut self, names: &PythonNames, depth: usize) -> StatementKind {
        self.at += 1;
        let name = self.name().unwrap_or_default();
        let mut bases = Vec::new();
        while let Some(kind) = self.peek() {
            match kind {
                TokenKind::Name(base) => bases.push(base.clone()),
                TokenKind::Newline => break,
                _ => {}
            }
            self.at += 1;
        }
        self.at += 1;
        let mut body = Vec::new();
        if self.peek() == Some(&TokenKind::Indent) {
            self.at += 1;
            body = self.block(&mut names.clone(), depth + 1);
        }
        StatementKind::Class { name, bases, body }
    }

    fn function(&mut self) -> StatementKind {
        if self.peek() == Some(&TokenKind::Name("async".to_owned())) {
            self.at += 1;
        }
        self.at += 1;
        let name = self.name().unwrap_or_default();
        let start = self.at;
        self.skip_statement();
        let tokens = self.tokens.get(start..self.at).unwrap_or_default();
        let requests = tokens.windows(2).filter_map(|pair| match pair {
            [
                Token {
                    kind: TokenKind::Name(name),
                    line,
                    ..
                },
                Token {
                    kind: TokenKind::Operator('('),
                    ..
                },
            ] if matches!(
                name.as_str(),
                "Request"
                    | "FormRequest"
                    | "SplashRequest"
                    | "JsonRequest"
                    | "follow"
                    | "follow_all"
            ) =>
            {
                Some(*line)
            }
            _ => None,
        });
        let requests = requests.collect();
        StatementKind::Function { name, requests }
    }

    /// Skips a logical line.
    fn skip_line(&mut self) {
        while let Some(kind) = self.peek() {
            self.at += 1;
            if *kind == TokenKind::Newline {
                break;
            }
        }
    }

    /// Skips a logical line and the block below it.
    fn skip_statement(&mut self) {
        self.skip_line();
        if self.peek() != Some(&TokenKind::Indent) {
            return;
        }
        let mut depth = 0_usize;
        while let Some(kind) = self.peek() {
            self.at += 1;
            match kind {
                TokenKind::Indent => depth += 1,
                TokenKind::Dedent => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }

    /// Parses `NAME = VALUE` or `NAME: TYPE = VALUE`.
    fn assignment(&mut self, names: &PythonNames) -> Option<(String, Argument)> {
        let name = self.name()?;
        if self.eat(':') {
            while !matches!(self.peek()?, TokenKind::Operator('=') | TokenKind::Newline) {
                self.at += 1;
            }
        }
        if !self.eat('=') || self.peek() == Some(&TokenKind::Operator('=')) {
            return None;
        }
        let (line, column) = self.place();
        let mut value = self.tuple(names, 0);
        if !matches!(
            self.peek(),
            None | Some(TokenKind::Newline | TokenKind::Operator(';'))
        ) {
            value = PythonValue::Computed;
            self.skip_line();
        }
        Some((
            name,
            Argument {
                value,
                line,
                column,
            },
        ))
    }

    /// Parses a value, or several with commas between them.
    fn tuple(&mut self, names: &PythonNames, depth: usize) -> PythonValue {
        let first = self.sum(names, depth);
        if self.peek() != Some(&TokenKind::Operator(',')) {
            return first;
        }
        let mut values = vec![first];
        while self.eat(',') {
            let ends = matches!(
                self.peek(),
                None | Some(TokenKind::Newline | TokenKind::Operator(')'))
            );
            if ends {
                break;
            }
            values.push(self.sum(names, depth));
        }
        PythonValue::List(values)
    }

    /// Parses values with `+` between them.
    fn sum(&mut self, names: &PythonNames, depth: usize) -> PythonValue {
        let mut value = self.product(names, depth);
        while self.eat('+') {
            let right = self.product(names, depth);
            value = match (value, right) {
                (PythonValue::Text(left), PythonValue::Text(right)) => {
                    PythonValue::Text(left + &right)
                }
                (PythonValue::Number(left), PythonValue::Number(right)) => {
                    PythonValue::Number(left + right)
                }
                (PythonValue::List(mut left), PythonValue::List(right)) => {
                    left.extend(right);
                    PythonValue::List(left)
                }
                _ => PythonValue::Computed,
            };
        }
        value
    }

    fn product(&mut self, names: &PythonNames, depth: usize) -> PythonValue {
        let mut value = self.primary(names, depth);
        while self.peek() == Some(&TokenKind::Operator('*'))
            && self.peek_after(1) != Some(&TokenKind::Operator('*'))
        {
            self.at += 1;
            let right = self.primary(names, depth);
            value = match (value, right) {
                (PythonValue::Number(left), PythonValue::Number(right)) => {
                    PythonValue::Number(left * right)
                }
                _ => PythonValue::Computed,
            };
        }
        value
    }

    fn primary(&mut self, names: &PythonNames, depth: usize) -> PythonValue {
        let start = self.at;
        let value = self.atom(names, depth);
        if self.is_complete() {
            return value;
        }
        // Something follows that is no literal: attributes, indices, operators, `if`, `for` …
        if self.at == start {
            self.at += 1;
        }
        self.skip_expression();
        PythonValue::Computed
    }

    /// Returns `true` if the value ends here.
    fn is_complete(&self) -> bool {
        match self.peek() {
            None | Some(TokenKind::Newline) => true,
            Some(TokenKind::Operator(c)) => {
                matches!(c, ',' | ')' | ']' | '}' | ':' | '+' | ';' | '*')
            }
            Some(_) => false,
        }
    }

    /// Skips the rest of an expression: up to a comma or a closing bracket of the enclosing one.
    fn skip_expression(&mut self) {
        let mut depth = 0_usize;
        while let Some(kind) = self.peek() {
            match kind {
                TokenKind::Operator('(' | '[' | '{') => depth += 1,
                TokenKind::Operator(')' | ']' | '}') if depth == 0 => return,
                TokenKind::Operator(')' | ']' | '}') => depth -= 1,
                TokenKind::Operator(',') if depth == 0 => return,
                TokenKind::Newline => return,
                _ => {}
            }
            self.at += 1;
        }
    }

    fn atom(&mut self, names: &PythonNames, depth: usize) -> PythonValue {
        if depth > MAX_DEPTH {
            return PythonValue::Computed;
        }
        let (line, column) = self.place();
        match self.peek() {
            Some(TokenKind::Text(_) | TokenKind::Computed) => self.texts(),
            Some(TokenKind::Number(number)) => {
                self.at += 1;
                number
                    .parse()
                    .map_or(PythonValue::Computed, PythonValue::Number)
            }
            Some(TokenKind::Operator('-')) => {
                self.at += 1;
                match self.atom(names, depth + 1) {
                    PythonValue::Number(number) => PythonValue::Number(-number),
                    _ => PythonValue::Computed,
                }
            }
            Some(TokenKind::Operator('(')) => {
                self.at += 1;
                if self.eat(')') {
                    return PythonValue::List(Vec::new());
                }
                let value = self.tuple(names, depth + 1);
                self.close(')', value)
            }
            Some(TokenKind::Operator('[')) => {
                self.at += 1;
                let values = self.values(names, depth, ']');
                self.close(']', values)
            }
            Some(TokenKind::Operator('{')) => {
                self.at += 1;
                let value = self.dict_or_set(names, depth);
                self.close('}', value)
            }
            Some(TokenKind::Name(_)) => self.name_or_call(names, depth, line, column),
            _ => PythonValue::Computed,
        }
    }

    /// Joins texts beside each other.
    fn texts(&mut self) -> PythonValue {
        let mut joined = Some(String::new());
        loop {
            match self.peek() {
                Some(TokenKind::Text(text)) => {
                    if let Some(joined) = &mut joined {
                        joined.push_str(text);
                    }
                }
                Some(TokenKind::Computed) => joined = None,
                _ => break,
            }
            self.at += 1;
        }
        joined.map_or(PythonValue::Computed, PythonValue::Text)
    }

    /// Expects a closing bracket; skips what is before it.
    fn close(&mut self, bracket: char, value: PythonValue) -> PythonValue {
        if self.eat(bracket) {
            return value;
        }
        let mut depth = 0_usize;
        while let Some(kind) = self.peek() {
            self.at += 1;
            match kind {
                TokenKind::Operator('(' | '[' | '{') => depth += 1,
                TokenKind::Operator(')' | ']' | '}') if depth == 0 => break,
                TokenKind::Operator(')' | ']' | '}') => depth -= 1,
                TokenKind::Newline => break,
                _ => {}
            }
        }
        PythonValue::Computed
    }

    fn values(&mut self, names: &PythonNames, depth: usize, bracket: char) -> PythonValue {
        let mut values = Vec::new();
        while self.peek().is_some() && self.peek() != Some(&TokenKind::Operator(bracket)) {
            values.push(self.sum(names, depth + 1));
            if !self.eat(',') {
                break;
            }
        }
        PythonValue::List(values)
    }

    fn dict_or_set(&mut self, names: &PythonNames, depth: usize) -> PythonValue {
        let mut entries = Vec::new();
        let mut values = Vec::new();
        while self.peek().is_some() && self.peek() != Some(&TokenKind::Operator('}')) {
            let key = self.sum(names, depth + 1);
            if self.eat(':') {
                let (line, column) = self.place();
                let value = self.sum(names, depth + 1);
                entries.push((
                    key,
                    Argument {
                        value,
                        line,
                        column,
                    },
                ));
            } else {
                values.push(key);
            }
            if !self.eat(',') {
                break;
            }
        }
        if values.is_empty() {
            PythonValue::Dict(entries)
        } else {
            PythonValue::List(values)
        }
    }

    fn name_or_call(
        &mut self,
        names: &PythonNames,
        depth: usize,
        line: u32,
        column: u32,
    ) -> PythonValue {
        let Some(mut name) = self.name() else {
            return PythonValue::Computed;
        };
        let mut dotted = false;
        while self.peek() == Some(&TokenKind::Operator('.')) {
            self.at += 1;
            dotted = true;
            match self.name() {
                Some(part) => name = part,
                None => return PythonValue::Computed,
            }
        }
        if self.eat('(') {
            let arguments = self.arguments(names, depth);
            let call = PythonValue::Call(Call {
                name,
                arguments,
                line,
                column,
            });
            return self.close(')', call);
        }
        match name.as_str() {
            _ if dotted && matches!(name.as_str(), "I" | "IGNORECASE") => {
                PythonValue::Text("re.I".to_owned())
            }
            _ if dotted => PythonValue::Computed,
            "True" => PythonValue::Bool(true),
            "False" => PythonValue::Bool(false),
            "None" => PythonValue::None,
            _ => names.get(&name).cloned().unwrap_or(PythonValue::Computed),
        }
    }

    fn arguments(&mut self, names: &PythonNames, depth: usize) -> Vec<(Option<String>, Argument)> {
        let mut arguments = Vec::new();
        while self.peek().is_some() && self.peek() != Some(&TokenKind::Operator(')')) {
            let mut key = None;
            if let (Some(TokenKind::Name(name)), Some(TokenKind::Operator('='))) =
                (self.peek(), self.peek_after(1))
                && self.peek_after(2) != Some(&TokenKind::Operator('='))
            {
                key = Some(name.clone());
                self.at += 2;
            }
            let (line, column) = self.place();
            let value = self.sum(names, depth + 1);
            arguments.push((
                key,
                Argument {
                    value,
                    line,
                    column,
                },
            ));
            if !self.eat(',') {
                break;
            }
        }
        arguments
    }
}
