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
        /// The names of its bases, such as `base.ShopSpider`; `…` for those that are computed.
        bases: Vec<String>,
        body: Vec<Statement>,
    },
    Function(FunctionCode),
    Import(PythonImport),
    /// A text alone: documentation.
    Text,
    /// Anything else, by its first word; with the names that it assigns.
    Other {
        word: String,
        names: Vec<String>,
    },
}

/// A function, as far as it matters without being run.
#[derive(Clone, Debug)]
pub(super) struct FunctionCode {
    pub name: String,
    /// The lines on which it requests pages.
    pub requests: Vec<u32>,
    /// It requests pages that no filter applies to.
    pub bypasses_filters: bool,
    /// The attributes of objects that it sets or changes.
    pub sets: Vec<AttributeChange>,
}

/// Code that sets or changes an attribute: `self.rules = …`, `cls.start_urls.append(…)`.
#[derive(Clone, Debug)]
pub(super) struct AttributeChange {
    pub line: u32,
    pub column: u32,
    pub owner: String,
    pub attribute: String,
    /// It adds to the value, instead of replacing it.
    pub adds: bool,
}

/// A statement with `import`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PythonImport {
    /// `import MODULE as NAME`: the names with their modules.
    Modules(Vec<(String, String)>),
    /// `from MODULE import NAME as OTHER`: the local names with the names in the module.
    Names {
        module: String,
        names: Vec<(String, String)>,
    },
    /// `from MODULE import *`.
    All { module: String },
}

/// Values that names have.
pub(super) type PythonNames = BTreeMap<String, PythonValue>;

/// Parses a file. `values_of` returns the values of the names of a module, if it is known.
pub(super) fn parse<'t>(
    tokens: &'t [Token],
    names: &mut PythonNames,
    values_of: &'t dyn Fn(&str) -> Option<&'t PythonNames>,
) -> Vec<Statement> {
    let mut parser = PythonParser {
        tokens,
        at: 0,
        values_of,
    };
    parser.block(names, 0)
}

/// Returns the modules that a file imports.
pub(super) fn imported_modules(tokens: &[Token]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if matches!(&token.kind, TokenKind::Name(name) if name == "from" || name == "import") {
            let mut parser = PythonParser {
                tokens,
                at,
                values_of: &|_| None,
            };
            match parser.import() {
                Some(PythonImport::Modules(modules)) => {
                    found.extend(modules.into_iter().map(|(_, module)| module));
                }
                Some(PythonImport::Names { module, .. } | PythonImport::All { module }) => {
                    found.push(module);
                }
                None => {}
            }
        }
    }
    found
}

/// Returns the attributes of objects that code sets or changes.
fn attribute_changes(tokens: &[Token]) -> Vec<AttributeChange> {
    let kind_of = |at: usize| tokens.get(at).map(|token| &token.kind);
    let is = |at: usize, operator: char| kind_of(at) == Some(&TokenKind::Operator(operator));
    let name_of = |at: usize| match kind_of(at) {
        Some(TokenKind::Name(name)) => Some(name.as_str()),
        _ => None,
    };
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let (owner, attribute, adds) = if name_of(at) == Some("setattr") && is(at + 1, '(') {
            let Some(TokenKind::Text(attribute)) = kind_of(at + 4) else {
                continue;
            };
            (name_of(at + 2), attribute.as_str(), Some(false))
        } else {
            let (Some(owner), Some(attribute)) = (name_of(at), name_of(at + 2)) else {
                continue;
            };
            if !is(at + 1, '.') {
                continue;
            }
            let is_set = is(at + 3, '=') && !is(at + 4, '=')
                || is(at + 3, ':') && tokens.get(at + 4..).is_some_and(is_annotated)
                || is(at + 4, '=') && ['-', '*', '|', '&'].iter().any(|c| is(at + 3, *c))
                || is(at + 3, '[')
                    && subscript_is_set(tokens.get(at + 3..).unwrap_or_default())
                // `self.rules, self.start_urls = …`
                || is(at + 3, ',') && starts_line(tokens, at);
            let adds = if is_set {
                Some(false)
            } else if is(at + 3, '+') && is(at + 4, '=') {
                Some(true)
            } else {
                match name_of(at + 4).filter(|_| is(at + 3, '.')) {
                    Some("append" | "extend" | "insert" | "add") => Some(true),
                    Some("update" | "remove" | "clear" | "pop" | "setdefault") => Some(false),
                    _ => None,
                }
            };
            (Some(owner), attribute, adds)
        };
        if let (Some(owner), Some(adds)) = (owner, adds) {
            found.push(AttributeChange {
                line: token.line,
                column: token.column,
                owner: owner.to_owned(),
                attribute: attribute.to_owned(),
                adds,
            });
        }
    }
    found
}

/// Returns `true` if a type is followed by `=` on the line: `self.rules: list = …`.
fn is_annotated(rest: &[Token]) -> bool {
    let line = rest.iter().take_while(|t| t.kind != TokenKind::Newline);
    line.into_iter()
        .any(|token| token.kind == TokenKind::Operator('='))
}

fn starts_line(tokens: &[Token], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|at| tokens.get(at));
    before.is_none_or(|token| {
        matches!(
            token.kind,
            TokenKind::Newline | TokenKind::Indent | TokenKind::Dedent
        )
    })
}

/// Returns `true` if brackets are followed by `=`.
fn subscript_is_set(rest: &[Token]) -> bool {
    let mut depth = 0_usize;
    for (at, token) in rest.iter().enumerate() {
        match token.kind {
            TokenKind::Operator('[' | '(' | '{') => depth += 1,
            TokenKind::Operator(']' | ')' | '}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    let next = |ahead| rest.get(at + ahead).map(|token: &Token| &token.kind);
                    return next(1) == Some(&TokenKind::Operator('='))
                        && next(2) != Some(&TokenKind::Operator('='));
                }
            }
            _ => {}
        }
    }
    false
}

/// Returns the name before a token.
fn name_before(tokens: &[Token], at: usize) -> Option<&str> {
    match &tokens.get(at.checked_sub(1)?)?.kind {
        TokenKind::Name(name) => Some(name),
        _ => None,
    }
}

const MAX_DEPTH: usize = 100;

struct PythonParser<'t> {
    tokens: &'t [Token],
    at: usize,
    values_of: &'t dyn Fn(&str) -> Option<&'t PythonNames>,
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
            "import" | "from" => match self.import() {
                Some(import) => {
                    self.skip_line();
                    self.bind(&import, names);
                    StatementKind::Import(import)
                }
                None => self.other(word, start, names),
            },
            "try" => match self.optional_import() {
                Some(import) => {
                    self.bind(&import, names);
                    StatementKind::Import(import)
                }
                None => self.other(word, start, names),
            },
            "class" if depth < MAX_DEPTH => self.class(names, depth),
            "def" => self.function(),
            "async" if self.peek_after(1) == Some(&TokenKind::Name("def".to_owned())) => {
                self.function()
            }
            _ => match self.assignment(names) {
                Some((name, value)) => {
                    // A name that is assigned twice may have either value.
                    if names.insert(name.clone(), value.value.clone()).is_some() && depth == 0 {
                        names.insert(name.clone(), PythonValue::Computed);
                    }
                    StatementKind::Assign(name, value)
                }
                None => self.other(word, start, names),
            },
        }
    }

    /// Skips a statement that is not understood, whose names are computed from here on.
    fn other(&mut self, word: &str, start: usize, names: &mut PythonNames) -> StatementKind {
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

    /// Returns the names that are assigned or changed between a token and this one; `*` if any can be.
    fn assigned(&self, start: usize) -> Vec<String> {
        let tokens = self.tokens.get(start..self.at).unwrap_or_default();
        let is = |at: usize, operator: char| {
            tokens.get(at).map(|token| &token.kind) == Some(&TokenKind::Operator(operator))
        };
        let mut found = Vec::new();
        let mut is_target = true;
        for (index, token) in tokens.iter().enumerate() {
            let name = match &token.kind {
                TokenKind::Name(name) => name,
                // The targets of the first line: `a, b = …`.
                TokenKind::Operator(',') => continue,
                TokenKind::Text(text) => {
                    // setattr(Spider, 'rules', …)
                    found.push(text.clone());
                    continue;
                }
                _ => {
                    is_target = false;
                    continue;
                }
            };
            let after = index + 1;
            let is_changed = ['=', '+', '[', '.'].iter().any(|c| is(after, *c))
                || ['-', '*', '|', '&', '/', ':'].iter().any(|c| is(after, *c))
                    && is(after + 1, '=')
                || is_target && is(after, ',');
            let reaches_all = matches!(name.as_str(), "globals" | "locals" | "vars" | "exec")
                && is(after, '(')
                || name == "import" && is(after, '*');
            let is_annotated = starts_line(tokens, index)
                && is(after, ':')
                && matches!(
                    tokens.get(after + 1).map(|token| &token.kind),
                    Some(TokenKind::Name(_))
                );
            if reaches_all {
                found.push("*".to_owned());
            } else if is_changed || is_annotated || name_before(tokens, index) == Some("as") {
                found.push(name.clone());
            }
        }
        found
    }

    /// Parses `import …` or `from … import …`, up to the end of its line.
    fn import(&mut self) -> Option<PythonImport> {
        let is_from = self.name()? == "from";
        if !is_from {
            let mut modules = Vec::new();
            loop {
                let module = self.dotted_name()?;
                let local = self.alias().unwrap_or_else(|| module.clone());
                modules.push((local, module));
                if !self.eat(',') {
                    return Some(PythonImport::Modules(modules));
                }
            }
        }
        let mut module = String::new();
        while self.eat('.') {
            module.push('.');
        }
        if self.peek() != Some(&TokenKind::Name("import".to_owned())) {
            module.push_str(&self.dotted_name()?);
        }
        if self.name()? != "import" {
            return None;
        }
        if self.eat('*') {
            return Some(PythonImport::All { module });
        }
        let in_brackets = self.eat('(');
        let mut names = Vec::new();
        loop {
            if in_brackets && self.eat(')') {
                break;
            }
            let name = self.name()?;
            let local = self.alias().unwrap_or_else(|| name.clone());
            names.push((local, name));
            if !self.eat(',') {
                break;
            }
        }
        Some(PythonImport::Names { module, names })
    }

    fn dotted_name(&mut self) -> Option<String> {
        let mut name = self.name()?;
        while self.eat('.') {
            name.push('.');
            name.push_str(&self.name()?);
        }
        Some(name)
    }

    /// Parses `as NAME`.
    fn alias(&mut self) -> Option<String> {
        if self.peek() != Some(&TokenKind::Name("as".to_owned())) {
            return None;
        }
        self.at += 1;
        self.name()
    }

    /// Parses `try:` with one import, whose failure does nothing.
    fn optional_import(&mut self) -> Option<PythonImport> {
        self.at += 1;
        if !self.eat(':') || self.peek() != Some(&TokenKind::Newline) {
            return None;
        }
        self.at += 1;
        if self.peek() != Some(&TokenKind::Indent) {
            return None;
        }
        self.at += 1;
        let import = self.import()?;
        for expected in [TokenKind::Newline, TokenKind::Dedent] {
            if self.peek() != Some(&expected) {
                return None;
            }
            self.at += 1;
        }
        if self.name()? != "except" {
            return None;
        }
        let start = self.at;
        self.skip_statement();
        let handler = self.tokens.get(start..self.at).unwrap_or_default();
        let passes = |token: &Token| token.kind == TokenKind::Name("pass".to_owned());
        if !handler.iter().any(passes) || !self.assigned(start).is_empty() {
            return None;
        }
        let goes_on = matches!(self.peek(), Some(TokenKind::Name(name)) if matches!(name.as_str(), "except" | "else" | "finally"));
        (!goes_on).then_some(import)
    }

    /// Gives names the values that they have in another module.
    fn bind(&self, import: &PythonImport, names: &mut PythonNames) {
        match import {
            PythonImport::Modules(_) => {}
            PythonImport::Names {
                module,
                names: imported,
            } => {
                let values = (self.values_of)(module);
                for (local, name) in imported {
                    let value = values.and_then(|values| values.get(name));
                    let value = value.cloned().unwrap_or(PythonValue::Computed);
                    names.insert(local.clone(), value);
                }
            }
            PythonImport::All { module } => {
                let values = (self.values_of)(module).into_iter().flatten();
                let public = values.filter(|(name, _)| !name.starts_with('_'));
                names.extend(public.map(|(name, value)| (name.clone(), value.clone())));
            }
        }
    }

    fn class(&mut self, names: &PythonNames, depth: usize) -> StatementKind {
        self.at += 1;
        let name = self.name().unwrap_or_default();
        let bases = if self.eat('(') {
            self.bases()
        } else {
            Vec::new()
        };
        let mut body = Vec::new();
        let mut own_names = names.clone();
        self.eat(':');
        if self.peek() == Some(&TokenKind::Newline) {
            self.at += 1;
            if self.peek() == Some(&TokenKind::Indent) {
                self.at += 1;
                body = self.block(&mut own_names, depth + 1);
            }
        } else {
            // `class A(B): pass`
            while let Some(kind) = self.peek().filter(|kind| **kind != TokenKind::Newline) {
                if *kind == TokenKind::Operator(';') {
                    self.at += 1;
                    continue;
                }
                let (line, column) = self.place();
                let start = self.at;
                let kind = self.statement(&mut own_names, depth + 1);
                body.push(Statement { line, column, kind });
                self.at = self.at.max(start + 1);
                let ended = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
                if ended.is_some_and(|token| token.kind == TokenKind::Newline) {
                    break;
                }
            }
        }
        StatementKind::Class { name, bases, body }
    }

    /// Parses the bases of a class, without arguments that have a key.
    fn bases(&mut self) -> Vec<String> {
        let mut bases = Vec::new();
        while self.peek().is_some() && !self.eat(')') {
            let start = self.at;
            let name = self.dotted_name();
            let has_key = self.peek() == Some(&TokenKind::Operator('='));
            let ends = matches!(self.peek(), Some(TokenKind::Operator(',' | ')')));
            match name.filter(|_| ends) {
                Some(name) => bases.push(name),
                None => {
                    // `Generic[T]` is no base of the user's own.
                    let word = self.tokens.get(start).map(|token| &token.kind);
                    let is_generic = matches!(word, Some(TokenKind::Name(name)) if name == "Generic" || name == "Protocol");
                    self.at = self.at.max(start + 1);
                    self.skip_expression();
                    if !has_key && !is_generic {
                        bases.push("…".to_owned());
                    }
                }
            }
            if !self.eat(',') && self.peek() != Some(&TokenKind::Operator(')')) {
                break;
            }
        }
        bases
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
        let bypasses = |tokens: &[Token]| match tokens {
            [
                Token {
                    kind: TokenKind::Name(key),
                    ..
                },
                Token {
                    kind: TokenKind::Operator('='),
                    ..
                },
                Token {
                    kind: TokenKind::Name(value),
                    ..
                },
            ] => key == "dont_filter" && value != "False",
            _ => false,
        };
        let is_offsite = |token: &Token| token.kind == TokenKind::Text("allow_offsite".to_owned());
        StatementKind::Function(FunctionCode {
            name,
            requests,
            bypasses_filters: tokens.windows(3).any(bypasses) || tokens.iter().any(is_offsite),
            sets: attribute_changes(tokens),
        })
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
        if self.is_chained() {
            // `a = b = 1` assigns both.
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

    /// Returns `true` if another `=` follows on the line, outside of brackets.
    fn is_chained(&self) -> bool {
        let mut depth = 0_usize;
        let mut last = None;
        let tokens = self.tokens.get(self.at..).unwrap_or_default();
        for (at, token) in tokens.iter().enumerate() {
            let next = tokens.get(at + 1).map(|token| &token.kind);
            match token.kind {
                TokenKind::Newline => return false,
                TokenKind::Operator(';') if depth == 0 => return false,
                TokenKind::Operator('(' | '[' | '{') => depth += 1,
                TokenKind::Operator(')' | ']' | '}') => depth = depth.saturating_sub(1),
                _ => {}
            }
            let operator = match token.kind {
                TokenKind::Operator(operator) => Some(operator),
                _ => None,
            };
            if depth == 0
                && operator == Some('=')
                && next != Some(&TokenKind::Operator('='))
                && !matches!(last, Some('=' | '!' | '<' | '>' | ':'))
            {
                return true;
            }
            last = operator;
        }
        false
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
