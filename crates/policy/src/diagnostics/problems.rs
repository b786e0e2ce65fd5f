//! A collector of problems, so that one run reports all of them.

use std::collections::HashSet;
use std::sync::Arc;

use super::problem::{Excerpt, Problem};
use super::secret::SecretLines;
use crate::model::rule_id::RuleId;

/// The number of characters of a long line that are shown.
const MAX_EXCERPT_CHARS: usize = 120;

/// The problems found so far, and the texts in which they were found.
#[derive(Debug, Default)]
pub struct Problems {
    problems: Vec<Problem>,
    texts: SourceTexts,
    rule: Option<RuleId>,
}

/// The texts of files by name, used to show the source lines of problems.
#[derive(Clone, Debug, Default)]
pub struct SourceTexts(Vec<(Arc<str>, Arc<str>)>);

impl SourceTexts {
    /// Adds its source line to each problem. Fastest if the problems are sorted by location.
    pub fn add_excerpts(&self, problems: &mut [Problem]) {
        let mut lines = LineCursor::default();
        for problem in problems {
            let text = self
                .0
                .iter()
                .find(|(name, _)| **name == *problem.location.file);
            if let Some((_, text)) = text {
                let line = lines.line_at(text, problem.location.line);
                add_excerpt(problem, line, &lines.secrets);
            }
        }
    }

    /// Returns every file with its text, in the order in which they were read.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(name, text)| (name, text))
    }

    fn rank(&self, file: &str) -> usize {
        self.0
            .iter()
            .position(|(name, _)| **name == *file)
            .unwrap_or(usize::MAX)
    }
}

impl Problems {
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the text of a file, so that problems in it can show their source lines.
    pub fn add_text(&mut self, file: &Arc<str>, text: impl Into<Arc<str>>) {
        self.texts.0.push((Arc::clone(file), text.into()));
    }

    /// Attributes the problems that follow to this rule, and returns the previous rule, to be
    /// restored afterwards.
    pub fn enter_rule(&mut self, rule: Option<RuleId>) -> Option<RuleId> {
        std::mem::replace(&mut self.rule, rule)
    }

    pub fn push(&mut self, mut problem: Problem) {
        if problem.rule.is_none() {
            problem.rule.clone_from(&self.rule);
        }
        self.problems.push(problem);
    }

    /// Adds the problems of another collector, which has no texts of its own.
    pub fn append(&mut self, mut other: Self) {
        self.problems.append(&mut other.problems);
    }

    pub fn len(&self) -> usize {
        self.problems.len()
    }

    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(Problem::is_error)
    }

    /// Returns `true` if this rule has an error.
    pub fn has_errors_in(&self, rule: &RuleId) -> bool {
        self.problems
            .iter()
            .any(|problem| problem.is_error() && problem.rule.as_ref() == Some(rule))
    }

    /// Returns the rules that have an error.
    pub fn rules_with_errors(&self) -> HashSet<&RuleId> {
        let errors = self.problems.iter().filter(|problem| problem.is_error());
        errors.filter_map(|problem| problem.rule.as_ref()).collect()
    }

    /// Returns the registered texts, for problems that are found later.
    pub fn texts(&self) -> SourceTexts {
        self.texts.clone()
    }

    /// Returns all problems without duplicates, sorted by location, each with its source line.
    pub fn into_vec(self) -> Vec<Problem> {
        let Self {
            problems: mut found,
            texts,
            ..
        } = self;
        found
            .sort_by_cached_key(|p| (texts.rank(&p.location.file), p.location.clone(), p.severity));
        found.dedup();
        texts.add_excerpts(&mut found);
        found
    }
}

/// Finds lines of a text. Lines that are requested in rising order are found in one pass.
#[derive(Default)]
struct LineCursor {
    text: Option<Arc<str>>,
    line: u32,
    offset: usize,
    secrets: SecretLines,
}

impl LineCursor {
    fn line_at<'t>(&mut self, text: &'t Arc<str>, line: u32) -> Option<&'t str> {
        let same = self.text.as_ref().is_some_and(|t| Arc::ptr_eq(t, text));
        if !same || line < self.line {
            let secrets = if same {
                std::mem::take(&mut self.secrets)
            } else {
                SecretLines::scan(text)
            };
            *self = Self {
                text: Some(Arc::clone(text)),
                line: 1,
                offset: 0,
                secrets,
            };
        }
        while self.line < line {
            self.offset += text.get(self.offset..)?.find('\n')? + 1;
            self.line += 1;
        }
        text.get(self.offset..)?.lines().next().filter(|_| line > 0)
    }
}

/// Adds the source line, and moves the location to the offending character within a scalar.
fn add_excerpt(problem: &mut Problem, line: Option<&str>, secrets: &SecretLines) {
    let Some(line) = line else { return };
    let mut characters: Vec<char> = line.chars().collect();
    let mut at = (problem.location.column as usize).saturating_sub(1);
    let scalar = characters.get(at..).unwrap_or(&[]);
    let text = problem
        .found
        .as_deref()
        .or(problem.rule.as_ref().map(RuleId::as_str));
    let mut width = covered_width(scalar, text);
    if let Some(inner) = problem
        .scalar_offset
        .and_then(|within| source_offset(scalar, within))
    {
        at += inner;
        width = 1;
        problem.location.column = u32::try_from(at + 1).unwrap_or(u32::MAX);
    }
    if let Some(visible) = secrets.visible_chars(line, problem.location.line) {
        characters
            .iter_mut()
            .skip(visible)
            .filter(|c| !c.is_whitespace())
            .for_each(|c| *c = '*');
    }
    problem.excerpt = Some(build_excerpt(&characters, at, width));
}

/// Returns the number of characters that the offending text covers in the source.
fn covered_width(scalar: &[char], found: Option<&str>) -> usize {
    let Some(found) = found else { return 1 };
    let quotes = usize::from(matches!(scalar.first(), Some('"' | '\'')));
    let plain = scalar
        .iter()
        .skip(quotes)
        .copied()
        .take(found.chars().count());
    if plain.eq(found.chars()) {
        found.chars().count().max(1) + 2 * quotes
    } else {
        1
    }
}

/// Returns the number of source characters before the character at offset `within` of the scalar's
/// value.
fn source_offset(scalar: &[char], within: usize) -> Option<usize> {
    let quote = *scalar.first()?;
    if matches!(quote, '|' | '>') {
        return None;
    }
    if !matches!(quote, '"' | '\'') {
        return (within <= scalar.len()).then_some(within);
    }
    let mut at = 1;
    for _ in 0..within {
        at += match (quote, scalar.get(at)?, scalar.get(at + 1)) {
            ('"', '\\', Some('x')) => 4,
            ('"', '\\', Some('u')) => 6,
            ('"', '\\', Some('U')) => 10,
            ('"', '\\', _) | ('\'', '\'', Some('\'')) => 2,
            _ => 1,
        };
    }
    (at < scalar.len()).then_some(at)
}

fn build_excerpt(characters: &[char], at: usize, width: usize) -> Excerpt {
    let from = if characters.len() <= MAX_EXCERPT_CHARS {
        0
    } else {
        at.saturating_sub(MAX_EXCERPT_CHARS / 2)
    };
    let part: String = characters
        .iter()
        .skip(from)
        .take(MAX_EXCERPT_CHARS)
        .map(|c| if c.is_control() { ' ' } else { *c })
        .collect();
    let before = at - from;
    Excerpt {
        text: part,
        offset: before,
        width: width.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::problem::SourceLocation;

    fn rendered(text: &str, problem: Problem) -> String {
        let mut problems = Problems::new();
        problems.add_text(&"p".into(), text);
        problems.push(problem);
        problems.into_vec().remove(0).render()
    }

    fn at(line: u32, column: u32) -> SourceLocation {
        SourceLocation {
            file: "p".into(),
            line,
            column,
        }
    }

    #[test]
    fn the_caret_is_under_the_offending_text() {
        let text = rendered(
            "a: 1\nb: {alow: x}\n",
            Problem::error(&at(2, 5), "odd").with_found("alow"),
        );
        assert_eq!(
            text,
            "p:2:5: error: odd; found `alow`\n  |\n2 | b: {alow: x}\n  |     ^^^^"
        );
    }

    #[test]
    fn the_caret_finds_its_place_inside_quotes() {
        for (line, within, expected) in [
            (r"x: a(b", 1, 5),
            (r#"x: "a(b""#, 1, 6),
            (r#"x: "\\d(b""#, 2, 8),
            (r#"x: "\x41(b""#, 1, 9),
            (r"x: 'it''s('", 4, 10),
        ] {
            let mut problem = Problem::error(&at(1, 4), "odd");
            problem.scalar_offset = Some(within);
            let mut problems = Problems::new();
            problems.add_text(&"p".into(), line);
            problems.push(problem);
            let problem = problems.into_vec().remove(0);
            assert_eq!(problem.location.column, expected, "{line}");
        }
    }

    #[test]
    fn secrets_are_replaced_by_asterisks() {
        for (source, line) in [
            ("otlp:\n  headers: { key: s3cret }\n", 2),
            ("otlp:\n  headers:\n    key: s3cret\n", 3),
            (
                "# otlp: a collector\notlp: { headers:\n  { key: s3cret } }\n",
                3,
            ),
        ] {
            let text = rendered(source, Problem::error(&at(line, 12), "odd"));
            assert!(
                text.contains("***") && text.contains('^') && !text.contains("s3cret"),
                "{text}"
            );
        }
    }

    #[test]
    fn problems_are_sorted_by_place_and_unique() {
        let mut problems = Problems::new();
        problems.add_text(&"p".into(), "x\ny\n");
        for place in [at(2, 1), at(1, 1), at(2, 1)] {
            problems.push(Problem::error(&place, "odd"));
        }
        let lines: Vec<u32> = problems
            .into_vec()
            .iter()
            .map(|p| p.location.line)
            .collect();
        assert_eq!(lines, [1, 2]);
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let line = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let text = rendered(&line, Problem::error(&at(1, 501), "odd").with_found("X"));
        let source = text.lines().nth(2).unwrap();
        let caret = text.lines().nth(3).unwrap().find('^').unwrap();
        assert_eq!(source.chars().nth(caret), Some('X'));
        assert!(source.len() < 140);
    }
}
