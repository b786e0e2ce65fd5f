//! The template language of Norconex's configurations: `#set`, `#parse`, `#include`, variables.
//!
//! Files are read within the directory of the source only. Conditions, loops and macros are not executed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::input::{ImportError, ImportInput, MAX_DOCUMENT, Place, SourceText};
use crate::report::{MissingPart, Report};

use super::syntax::{Directive, blank_declarations, read_directive, read_reference, unquote};
use super::variables::{read_variables, shown_value};

/// The maximum depth of `#parse`.
const MAX_NESTING: usize = 20;
/// The maximum number of files that a configuration includes.
const MAX_FILES: usize = 1_000;

/// The maximum length of a variable that is made of others, in bytes.
const MAX_VARIABLE: usize = 1 << 20;

/// A configuration after its template is executed, with the places that its lines come from.
#[derive(Debug)]
pub(super) struct RenderedText {
    pub source: SourceText,
    lines: Vec<LineOrigin>,
}

/// The place of a rendered line.
#[derive(Debug)]
struct LineOrigin {
    file: Arc<str>,
    line: u32,
    /// Columns of the rendered line with those of the source, where they begin to differ.
    shifts: Vec<(u32, u32)>,
}

impl RenderedText {
    /// Returns the place in the source of a line and column of the rendered text, both from 1.
    pub(super) fn place(&self, line: u32, column: u32) -> Place {
        let index = usize::try_from(line)
            .unwrap_or(usize::MAX)
            .saturating_sub(1);
        let Some(origin) = self.lines.get(index) else {
            return Place::start(&self.source.file);
        };
        let shift = origin.shifts.iter().rev().find(|(from, _)| *from <= column);
        let column = shift.map_or(column, |(from, to)| to.saturating_add(column - from));
        Place {
            file: Arc::clone(&origin.file),
            line: origin.line,
            column,
        }
    }
}

/// Executes the template of a configuration.
pub(super) fn render(
    input: &ImportInput<'_>,
    path: &str,
    report: &mut Report,
) -> Result<RenderedText, ImportError> {
    let given = input.variables.iter().cloned().collect();
    let mut renderer = Renderer {
        input,
        report,
        given,
        variables: BTreeMap::new(),
        listed: BTreeMap::new(),
        beside: BTreeMap::new(),
        files: 0,
        in_comment: false,
        text: String::new(),
        line: String::new(),
        shifts: Vec::new(),
        lines: Vec::new(),
    };
    renderer.render_file(path, 0)?;
    let mut source = SourceText {
        file: path.into(),
        text: renderer.text,
    };
    let lines = renderer.lines;
    blank_declarations(&mut source.text);
    Ok(RenderedText { source, lines })
}

struct Renderer<'r, 'i> {
    input: &'r ImportInput<'i>,
    report: &'r mut Report,
    /// The variables given by the user, which override those of files.
    given: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
    /// The directives in the report: a file that is included twice is listed once.
    listed: BTreeMap<Place, ()>,
    /// The variables beside each file.
    beside: BTreeMap<String, Vec<(String, String)>>,
    files: usize,
    in_comment: bool,
    text: String,
    /// The line that is being rendered.
    line: String,
    shifts: Vec<(u32, u32)>,
    lines: Vec<LineOrigin>,
}

impl Renderer<'_, '_> {
    fn render_file(&mut self, path: &str, depth: usize) -> Result<(), ImportError> {
        let start = Place::start(path);
        if depth > MAX_NESTING {
            let message = format!("`#parse` is nested more than {MAX_NESTING} deep");
            return Err(ImportError::invalid(&start, message));
        }
        self.files += 1;
        if self.files > MAX_FILES {
            let message = format!("more than {MAX_FILES} files are included");
            return Err(ImportError::invalid(&start, message));
        }
        let source = self.input.read_text(path, MAX_DOCUMENT)?;
        if !self.beside.contains_key(path) {
            let variables = read_variables(self.input, path, self.report)?;
            self.beside.insert(path.to_owned(), variables);
        }
        if let Some(variables) = self.beside.get(path) {
            self.variables.extend(variables.iter().cloned());
        }
        for (place, line) in source.lines() {
            self.render_line(line, &place, depth)?;
            self.end_line(&place)?;
        }
        Ok(())
    }

    fn render_line(&mut self, line: &str, place: &Place, depth: usize) -> Result<(), ImportError> {
        let mut rest = line;
        let mut here = place.clone();
        while !rest.is_empty() {
            self.check_size(place)?;
            let length = if self.in_comment {
                self.skip_comment(rest)
            } else if rest.starts_with("##") {
                return Ok(());
            } else if rest.starts_with("#*") {
                self.in_comment = true;
                2
            } else if rest.starts_with('#') {
                self.render_directive(rest, &here, depth)?
            } else if rest.starts_with(['$', '\\']) {
                self.render_reference(rest, &here)
            } else {
                let length = rest.find(['#', '$', '\\']).unwrap_or(rest.len());
                self.push(rest.get(..length).unwrap_or_default());
                length
            };
            let (read, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
            let columns = u32::try_from(read.chars().count()).unwrap_or(u32::MAX);
            here.column = here.column.saturating_add(columns);
            rest = after;
        }
        Ok(())
    }

    fn skip_comment(&mut self, rest: &str) -> usize {
        let end = rest.find("*#");
        self.in_comment = end.is_none();
        end.map_or(rest.len(), |end| end + 2)
    }

    /// Executes the directive that the text begins with. Returns its length.
    fn render_directive(
        &mut self,
        rest: &str,
        place: &Place,
        depth: usize,
    ) -> Result<usize, ImportError> {
        let Some(directive) = read_directive(rest) else {
            self.push("#");
            return Ok(1);
        };
        match directive.name {
            "set" => self.set_variable(&directive, place),
            "parse" | "include" => self.include(&directive, place, depth)?,
            name => {
                let message = format!(
                    "`#{name}` is not executed; import the configuration that `configrender` of Norconex writes"
                );
                return Err(ImportError::invalid(place, message));
            }
        }
        self.shift(place, directive.length);
        Ok(directive.length)
    }

    fn set_variable(&mut self, directive: &Directive<'_>, place: &Place) {
        let assignment = directive.argument.split_once('=');
        let name = assignment.map_or(directive.argument, |(name, _)| name);
        let name = name.trim().trim_start_matches('$');
        let name = name
            .trim_start_matches('{')
            .trim_end_matches('}')
            .to_owned();
        let value = assignment.and_then(|(_, value)| self.evaluate(value.trim()));
        let shown = match assignment {
            Some((_, value)) => shown_value(&name, value.trim()).to_owned(),
            None => String::new(),
        };
        let text = format!("#set(${name} = {shown})");
        let part = self.list(place, text);
        match value {
            Some(value) => {
                if let Some(part) = part {
                    let why = "a variable; its value is in the elements that use it";
                    self.report.unrelated(part, why);
                }
                self.variables.insert(name, value);
            }
            None => {
                if let Some(part) = part {
                    let instead = format!("--var {name}=VALUE");
                    let why = "the value is computed";
                    let failure = MissingPart::OtherSetting;
                    self.report
                        .not_converted(part, why, failure, Some(&instead));
                }
                self.variables.remove(&name);
            }
        }
    }

    /// Returns the value of a literal.
    fn evaluate(&self, value: &str) -> Option<String> {
        if let Some(text) = unquote(value, '\'') {
            return Some(text.to_owned());
        }
        if let Some(text) = unquote(value, '"') {
            return self.interpolate(text);
        }
        if let Some(reference) = read_reference(value).filter(|found| found.length == value.len()) {
            return self.value(reference.name).map(str::to_owned);
        }
        let is_literal = matches!(value, "true" | "false") || value.parse::<i64>().is_ok();
        is_literal.then(|| value.to_owned())
    }

    /// Returns `None` if the result is too long.
    fn interpolate(&self, text: &str) -> Option<String> {
        let mut result = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (before, tail) = rest.split_at(at);
            result.push_str(before);
            let found = read_reference(tail);
            let value = found.as_ref().and_then(|found| self.value(found.name));
            let length = match (&found, value) {
                (Some(found), Some(value)) => {
                    result.push_str(value);
                    found.length
                }
                _ => {
                    result.push('$');
                    1
                }
            };
            if result.len() > MAX_VARIABLE {
                return None;
            }
            rest = tail.get(length..).unwrap_or_default();
        }
        result.push_str(rest);
        Some(result)
    }

    fn include(
        &mut self,
        directive: &Directive<'_>,
        place: &Place,
        depth: usize,
    ) -> Result<(), ImportError> {
        let Some(name) = self.evaluate(directive.argument.trim()) else {
            let message = format!("`#{}` needs the name of a file", directive.name);
            return Err(ImportError::invalid(place, message));
        };
        let path = resolve(&place.file, &name);
        let text = format!("#{}(\"{name}\")", directive.name);
        if let Some(part) = self.list(place, text) {
            let why = format!("includes {path}, whose parts are listed");
            self.report.unrelated(part, why);
        }
        self.end_line(place)?;
        if directive.name == "parse" {
            return self.render_file(&path, depth + 1);
        }
        self.files += 1;
        let source = self.input.read_text(&path, MAX_DOCUMENT)?;
        for (place, line) in source.lines() {
            self.push(line);
            self.end_line(&place)?;
        }
        Ok(())
    }

    /// Replaces the reference that the text begins with. Returns the length of what was read.
    fn render_reference(&mut self, rest: &str, place: &Place) -> usize {
        let escaped = rest.strip_prefix('\\');
        let found = read_reference(escaped.unwrap_or(rest));
        let value = found.as_ref().and_then(|found| self.value(found.name));
        let (Some(found), Some(value)) = (&found, value) else {
            let first = rest.chars().next().map_or(1, char::len_utf8);
            let quiet = found.filter(|found| found.is_quiet && escaped.is_none());
            if let Some(found) = quiet {
                self.shift(place, found.length);
                return found.length;
            }
            self.push(rest.get(..first).unwrap_or_default());
            return first;
        };
        let (text, length) = match escaped {
            Some(escaped) => {
                let text = escaped.get(..found.length).unwrap_or_default();
                (text.to_owned(), found.length + 1)
            }
            None => (value.to_owned(), found.length),
        };
        self.push(&text);
        self.shift(place, length);
        length
    }

    fn value(&self, name: &str) -> Option<&str> {
        let value = self.given.get(name).or_else(|| self.variables.get(name));
        value.map(String::as_str)
    }

    fn list(&mut self, place: &Place, text: String) -> Option<crate::report::PartId> {
        let known = self.listed.insert(place.clone(), ());
        known
            .is_none()
            .then(|| self.report.add(place.clone(), text))
    }

    fn push(&mut self, text: &str) {
        self.line.push_str(text);
    }

    /// Notes that the next character comes from behind `length` bytes at a place.
    fn shift(&mut self, place: &Place, length: usize) {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let rendered = u32::try_from(self.line.chars().count()).unwrap_or(u32::MAX);
        let source = place.column.saturating_add(length);
        self.shifts.push((rendered.saturating_add(1), source));
    }

    fn check_size(&self, place: &Place) -> Result<(), ImportError> {
        if self.text.len() + self.line.len() > MAX_DOCUMENT {
            let message = format!("larger than {} MiB with its variables", MAX_DOCUMENT >> 20);
            return Err(ImportError::invalid(place, message));
        }
        Ok(())
    }

    fn end_line(&mut self, place: &Place) -> Result<(), ImportError> {
        self.check_size(place)?;
        self.text.push_str(&self.line);
        self.text.push('\n');
        self.line.clear();
        self.lines.push(LineOrigin {
            file: Arc::clone(&place.file),
            line: place.line,
            shifts: std::mem::take(&mut self.shifts),
        });
        Ok(())
    }
}

/// Returns a path relative to the directory of the file that names it.
fn resolve(file: &str, name: &str) -> String {
    let name = name.trim_start_matches("./");
    match file.rsplit_once('/') {
        Some((directory, _)) if !name.starts_with('/') => format!("{directory}/{name}"),
        Some(_) | None => name.to_owned(),
    }
}
