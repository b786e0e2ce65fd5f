//! Splits a script of a shell into simple commands and their words, and finds those that start wget.

use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;

use crate::input::Place;

/// The maximum number of words of a script.
const MAX_WORDS: usize = 20_000;

/// The text in place of a value that only the shell knows.
pub(super) const COMPUTED: &str = "…";

/// A word of a shell, with its place.
#[derive(Clone, Debug)]
pub(super) struct ShellWord {
    pub text: String,
    pub place: Place,
    /// It has a variable or a command in it, which stand in the text as `…`.
    pub computed: bool,
    /// A value that the shell computes for it mentions wget.
    runs_wget: bool,
}

/// A simple command: its words up to an operator of the shell.
pub(super) type ShellCommand = Vec<ShellWord>;

/// Words after which a command follows.
const PREFIXES: &[&str] = &[
    "!",
    "{",
    "do",
    "then",
    "else",
    "elif",
    "if",
    "while",
    "until",
    "time",
    "sudo",
    "doas",
    "env",
    "nohup",
    "exec",
    "command",
    "nice",
    "ionice",
    "timeout",
    "setsid",
    "stdbuf",
    "chronic",
    "torsocks",
    "proxychains",
    "proxychains4",
];

/// Options of those words that have a value in the next word.
const PREFIX_OPTIONS: &[&str] = &["-u", "-g", "-n", "-c", "-s", "-k", "-C"];

/// Commands that run nothing of what they mention.
const HARMLESS: &[&str] = &[
    "echo", "printf", "which", "type", "hash", "apt", "apt-get", "yum", "dnf", "apk", "brew",
    "pacman", "export", "pkill", "killall", "pgrep", "for",
];

/// The role of wget in a simple command.
pub(super) enum CommandUse {
    /// It starts wget; the index of the first word after the command word.
    Wget(usize),
    /// It mentions wget, which another program may start.
    MentionsWget,
    Other,
}

/// Shells that run the command after `-c`.
const SHELLS: &[&str] = &["sh", "bash", "dash", "ash", "zsh", "ksh"];

/// The greatest depth of shells that start each other.
const MAX_SHELLS: usize = 5;

/// Replaces `sh -c "…"` by the commands in its text, where that has nothing that another shell computes.
fn with_inner_commands(commands: Vec<ShellCommand>, depth: usize) -> Vec<ShellCommand> {
    let mut found = Vec::new();
    for command in commands {
        let inner = inner_text(&command).filter(|word| depth < MAX_SHELLS && has_wget(&word.text));
        let inner = inner.and_then(|word| {
            let mut splitter = ShellSplitter::new(&word.place.file, &word.text);
            splitter.line = word.place.line;
            splitter.column = word.place.column;
            splitter.split().ok()?;
            Some(splitter.commands)
        });
        match inner {
            Some(inner) => {
                found.extend(with_inner_commands(inner, depth + 1));
            }
            None => found.push(command),
        }
    }
    found
}

/// Returns the text that a shell runs: the word after `-c`, if nothing in it is computed.
fn inner_text(command: &[ShellWord]) -> Option<&ShellWord> {
    let at = command_word(command);
    let shell = command.get(at)?;
    if !SHELLS.contains(&base_name(&shell.text)) || shell.computed {
        return None;
    }
    let mut rest = command.get(at + 1..)?.iter();
    // `-c` or several letters with it: `-lc`.
    let runs_text = |word: &ShellWord| {
        word.text.starts_with('-') && !word.text.starts_with("--") && word.text.ends_with('c')
    };
    let option = rest.find(|word| !word.text.starts_with(['-', '+']) || runs_text(word))?;
    let text = rest.next().filter(|_| runs_text(option))?;
    (!text.computed).then_some(text)
}

/// Returns what a command is for wget.
pub(super) fn command_use(command: &[ShellWord]) -> CommandUse {
    let index = command_word(command);
    let first = command.get(index);
    if first.is_some_and(|word| is_wget(&word.text) && !word.computed) {
        return CommandUse::Wget(index + 1);
    }
    let name = command.get(index).map_or("", |word| base_name(&word.text));
    let mentions =
        |word: &ShellWord| word.runs_wget || (!HARMLESS.contains(&name) && has_wget(&word.text));
    // `command -v wget` asks for it only.
    let asks = command.first().is_some_and(|word| word.text == "command");
    if !asks && command.iter().any(mentions) {
        CommandUse::MentionsWget
    } else {
        CommandUse::Other
    }
}

/// Returns the index of the word that is the command, after those such as `sudo` with their options.
fn command_word(command: &[ShellWord]) -> usize {
    let mut index = 0;
    while let Some(word) = command.get(index) {
        let text = word.text.as_str();
        if index > 0 && PREFIX_OPTIONS.contains(&text) {
            index += 1;
        } else if !PREFIXES.contains(&base_name(text))
            && !is_assignment(text)
            && !is_prefix_value(index, text)
        {
            break;
        }
        index += 1;
    }
    index
}

fn base_name(text: &str) -> &str {
    text.rsplit('/').next().unwrap_or(text)
}

fn is_wget(text: &str) -> bool {
    matches!(base_name(text), "wget" | "wget.exe")
}

/// Returns `true` if a word of a text, such as that of `sh -c`, is wget.
fn has_wget(text: &str) -> bool {
    text.split(|c: char| c.is_whitespace() || matches!(c, ';' | '|' | '&' | '(' | '`' | '"' | '\''))
        .any(is_wget)
}

/// Returns `true` for an option of a prefix, and for a number: `timeout 60`.
fn is_prefix_value(index: usize, text: &str) -> bool {
    index > 0
        && (text.starts_with('-') && text != "-v" || text.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns `true` for `NAME=value`.
pub(super) fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// A script that cannot be split.
#[derive(Debug)]
pub(super) struct ShellError {
    pub place: Place,
    pub message: String,
}

/// Splits a script into its simple commands. Redirections and here-documents are left out.
pub(super) fn shell_commands(file: &str, text: &str) -> Result<Vec<ShellCommand>, ShellError> {
    let mut splitter = ShellSplitter::new(&file.into(), text);
    splitter.split()?;
    Ok(with_inner_commands(splitter.commands, 0))
}

struct ShellSplitter<'t> {
    chars: Peekable<Chars<'t>>,
    file: Arc<str>,
    line: u32,
    column: u32,
    commands: Vec<ShellCommand>,
    command: ShellCommand,
    current: Option<ShellWord>,
    /// The next word is the file of a redirection.
    skips_word: bool,
    /// The word that ends a here-document; empty until it is read.
    here_document: Option<String>,
    words: usize,
}

impl<'t> ShellSplitter<'t> {
    fn new(file: &Arc<str>, text: &'t str) -> Self {
        Self {
            chars: text.chars().peekable(),
            file: Arc::clone(file),
            line: 1,
            column: 0,
            commands: Vec::new(),
            command: Vec::new(),
            current: None,
            skips_word: false,
            here_document: None,
            words: 0,
        }
    }
}

impl ShellSplitter<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.chars.next()?;
        if c == '\n' {
            (self.line, self.column) = (self.line.saturating_add(1), 0);
        } else {
            self.column = self.column.saturating_add(1);
        }
        Some(c)
    }

    fn next_if(&mut self, fits: impl FnOnce(char) -> bool) -> Option<char> {
        let c = *self.chars.peek()?;
        if fits(c) { self.next() } else { None }
    }

    fn place(&self) -> Place {
        Place {
            file: Arc::clone(&self.file),
            line: self.line,
            column: self.column.max(1),
        }
    }

    fn word(&mut self) -> &mut ShellWord {
        let place = self.place();
        self.current.get_or_insert_with(|| ShellWord {
            text: String::new(),
            place,
            computed: false,
            runs_wget: false,
        })
    }

    fn split(&mut self) -> Result<(), ShellError> {
        while let Some(c) = self.next() {
            if self.words > MAX_WORDS {
                return Err(self.error(format!("more than {MAX_WORDS} words")));
            }
            match c {
                '#' if self.current.is_none() => while self.next_if(|c| c != '\n').is_some() {},
                '\n' => {
                    self.end_command();
                    self.skip_here_document();
                }
                c if c.is_whitespace() => self.end_word(),
                ';' | '|' | '&' | '(' | ')' => self.end_command(),
                '<' | '>' => self.redirect(c),
                '\\' => {
                    if self.next_if(|c| c == '\n').is_none()
                        && let Some(c) = self.next()
                    {
                        self.word().text.push(c);
                    }
                }
                '\'' => self.single_quoted()?,
                '"' => self.double_quoted()?,
                '$' => self.dollar(false),
                '`' => self.skip_to('`'),
                '}' => {
                    let word = self.word();
                    word.text.push('}');
                    // The shell makes several words of it.
                    let braces = word.text.rsplit_once('{').map(|(_, inner)| inner);
                    word.computed |=
                        braces.is_some_and(|inner| inner.contains(',') || inner.contains(".."));
                }
                c => self.word().text.push(c),
            }
        }
        self.end_command();
        Ok(())
    }

    fn error(&self, message: impl Into<String>) -> ShellError {
        ShellError {
            place: self.place(),
            message: message.into(),
        }
    }

    fn end_word(&mut self) {
        let Some(word) = self.current.take() else {
            return;
        };
        if self.skips_word {
            self.skips_word = false;
            if let Some(end) = self.here_document.as_mut().filter(|end| end.is_empty()) {
                *end = word.text;
            }
            return;
        }
        self.words += 1;
        self.command.push(word);
    }

    fn end_command(&mut self) {
        self.end_word();
        self.skips_word = false;
        if !self.command.is_empty() {
            self.commands.push(std::mem::take(&mut self.command));
        }
    }

    /// Reads an operator such as `2>&1`, `>>`, `&>` or `<<EOF`; the word after it is no word of the command.
    fn redirect(&mut self, first: char) {
        let is_number = |word: &ShellWord| word.text.chars().all(|c| c.is_ascii_digit());
        if self.current.as_ref().is_some_and(is_number) {
            self.current = None;
        }
        self.end_word();
        self.skips_word = true;
        let mut operator = String::from(first);
        while let Some(c) = self.next_if(|c| matches!(c, '<' | '>' | '&' | '|' | '-')) {
            operator.push(c);
        }
        if matches!(operator.as_str(), "<<" | "<<-") {
            self.here_document = Some(String::new());
        }
    }

    fn skip_here_document(&mut self) {
        let Some(end) = self.here_document.take().filter(|end| !end.is_empty()) else {
            return;
        };
        while self.chars.peek().is_some() {
            let mut line = String::new();
            while let Some(c) = self.next().filter(|c| *c != '\n') {
                line.push(c);
            }
            if line.trim() == end {
                return;
            }
        }
    }

    fn single_quoted(&mut self) -> Result<(), ShellError> {
        self.word();
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                Some(c) => self.word().text.push(c),
                None => return Err(self.error("a quote is not closed")),
            }
        }
    }

    /// Reads to the closing quote. A backslash is removed only before `$`, a backquote, `"`, `\` and a new line.
    fn double_quoted(&mut self) -> Result<(), ShellError> {
        self.word();
        loop {
            match self.next() {
                Some('"') => return Ok(()),
                Some('\\') => {
                    if self.next_if(|c| c == '\n').is_some() {
                        continue;
                    }
                    let escaped = self.next_if(|c| matches!(c, '$' | '`' | '"' | '\\'));
                    self.word().text.push(escaped.unwrap_or('\\'));
                }
                Some('$') => self.dollar(true),
                Some('`') => self.skip_to('`'),
                Some(c) => self.word().text.push(c),
                None => return Err(self.error("a quote is not closed")),
            }
        }
    }

    /// Reads what follows a `$`: a variable, a command, or nothing, which leaves the `$` as it is.
    fn dollar(&mut self, quoted: bool) {
        match self.chars.peek().copied() {
            Some('{') => self.skip_to('}'),
            Some('(') => self.skip_to(')'),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                while self
                    .next_if(|c| c.is_ascii_alphanumeric() || c == '_')
                    .is_some()
                {}
                self.computed();
            }
            Some('0'..='9' | '@' | '*' | '#' | '?' | '-' | '$' | '!') => {
                self.next();
                self.computed();
            }
            Some('\'') if !quoted => self.computed(),
            Some('"') if !quoted => {}
            _ => self.word().text.push('$'),
        }
    }

    fn computed(&mut self) {
        let word = self.word();
        word.text.push_str(COMPUTED);
        word.computed = true;
    }

    /// Skips what the shell computes, to its end. Brackets of the same kind within are counted.
    fn skip_to(&mut self, close: char) {
        let open = match close {
            '}' => '{',
            ')' => '(',
            other => other,
        };
        self.computed();
        let mut inner = String::new();
        let mut depth = u32::from(open == close);
        while let Some(c) = self.next() {
            inner.push(c);
            if c == '\\' {
                self.next();
            } else if c == close {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            } else if c == open {
                depth = depth.saturating_add(1);
            }
        }
        self.word().runs_wget |= has_wget(&inner);
    }
}
