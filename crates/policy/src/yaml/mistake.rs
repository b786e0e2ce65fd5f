//! Explanations of syntax errors. The YAML crate says where it stopped; the mistake is often
//! before that.

use crate::diagnostics::problem::{Problem, SourceLocation};

/// Returns the problem of a text at which the parser stopped, with this message of the parser.
pub(super) fn syntax_problem(place: SourceLocation, text: &str, message: &str) -> Problem {
    if message.contains("tab")
        && let Some(tab) = next_indenting_tab(text, &place)
    {
        return Problem::error(&tab, "a tab cannot indent a line").with_help("use spaces");
    }
    let line = line_of(text, &place);
    let problem = Problem::error(&place, format!("not YAML: {message}"));
    let here: &str = line
        .char_indices()
        .nth((place.column as usize).saturating_sub(1))
        .map_or("", |(at, _)| line.get(at..).unwrap_or(""));
    if here.starts_with('*') {
        return problem.with_help("`*` begins an alias, whose anchor (`&name`) is missing: write text that begins with it in quotes");
    }
    if let Some(help) = help_after_bracket(message, line, here) {
        return problem.with_help(help);
    }
    if let Some(help) = help_for(message, here) {
        return problem.with_help(help);
    }
    // Other errors have other causes, and a bracket may be part of a text.
    let ends_early = message.contains("only valid inside a block") || message.contains("flow");
    if ends_early && let Some(bracket) = unclosed_bracket(text, place.line) {
        return problem.with_help(format!(
            "the `{}` in line {} is not closed",
            bracket.character, bracket.line
        ));
    }
    problem
}

/// Returns the cure if text follows a closing bracket, which may be part of a text without quotes.
fn help_after_bracket(message: &str, line: &str, here: &str) -> Option<String> {
    if here.is_empty() || !message.contains("did not find expected") {
        return None;
    }
    let before = line.strip_suffix(here)?;
    let closed = before.trim_end();
    let (open, close, collection) = match closed.chars().last()? {
        ']' => ('[', ']', "list"),
        '}' => ('{', '}', "mapping"),
        _ => return None,
    };
    let is_adjacent = closed.len() == before.len();
    let is_in_block = message.contains("parsing a block");
    if is_adjacent && (close == ']' || !is_in_block) {
        return Some(format!(
            "`{open}` begins a {collection}: write text that begins with it in quotes"
        ));
    }
    // Inside brackets, a comma may be missing as well.
    is_in_block.then(|| {
        format!(
            "the `{close}` in column {} closes the {collection}: write text that contains `{close}` in quotes",
            closed.chars().count()
        )
    })
}

/// Returns the cure for a message whose cause is known; `here` is the line from the place on.
fn help_for(message: &str, here: &str) -> Option<&'static str> {
    if message.starts_with("mapping values are not allowed") {
        return Some("write text that contains `: ` in quotes");
    }
    if message.contains("unknown escape") {
        return Some("in double quotes `\\` begins an escape: use single quotes");
    }
    if message.contains("multiline quoted scalar") {
        return Some("a quote that begins before is not closed");
    }
    if message.contains("did not find expected '-' indicator") {
        return Some("the keys of one item begin in the same column");
    }
    let is_reserved = here.starts_with(['@', '%', '`']);
    is_reserved.then_some("write text that begins with this character in quotes")
}

/// Returns the first tab at or after a line that is part of its line's indentation.
fn next_indenting_tab(text: &str, place: &SourceLocation) -> Option<SourceLocation> {
    (1..)
        .zip(text.lines())
        .filter(|(number, _)| *number >= place.line)
        .find_map(|(number, line)| {
            let indent = line.split(|c: char| !c.is_whitespace()).next()?;
            Some((number, indent.find('\t')?))
        })
        .map(|(line, at)| SourceLocation {
            line,
            column: u32::try_from(at + 1).unwrap_or(u32::MAX),
            ..place.clone()
        })
}

fn line_of<'t>(text: &'t str, place: &SourceLocation) -> &'t str {
    text.lines()
        .nth((place.line as usize).saturating_sub(1))
        .unwrap_or("")
}

/// A `{` or `[`, and its line from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bracket {
    character: char,
    line: u32,
}

/// Returns the innermost bracket before a line that is not closed before it. Quoted text and
/// comments are skipped.
fn unclosed_bracket(text: &str, before_line: u32) -> Option<Bracket> {
    let mut open: Vec<Bracket> = Vec::new();
    let mut quote = None;
    for (content, line) in text.lines().zip(1..before_line) {
        let mut previous = ' ';
        let mut is_escaped = false;
        for character in content.chars() {
            match (quote, character) {
                (Some(begun), _) => {
                    // Only double quotes know escapes.
                    if character == begun && (begun == '\'' || !is_escaped) {
                        quote = None;
                    }
                }
                (None, '#') if previous.is_whitespace() => break,
                // Elsewhere it is part of a word: `it's`.
                (None, '"' | '\'') if " [{,:".contains(previous) => quote = Some(character),
                // Elsewhere it is part of a text: `see {this`.
                (None, '{' | '[') if " [{,:".contains(previous) => {
                    open.push(Bracket { character, line });
                }
                (None, '}' | ']') => drop(open.pop()),
                (None, _) => {}
            }
            is_escaped = character == '\\' && !is_escaped;
            previous = character;
        }
    }
    open.pop()
}

#[cfg(test)]
mod tests {
    use crate::diagnostics::problems::Problems;
    use crate::yaml::parse;

    #[test]
    fn the_mistake_is_named() {
        for (text, expected) in [
            (
                "a:\n\tb: 1\n",
                "p:2:1: error: a tab cannot indent a line; use spaces",
            ),
            (
                "a:\n  - b: 1\n  \tc: 1\n",
                "p:3:3: error: a tab cannot indent a line; use spaces",
            ),
            (
                "a: *.example.com\n",
                "p:1:4: error: not YAML: reference to unknown value; `*` begins an alias, whose anchor (`&name`) is \
                 missing: write text that begins with it in quotes",
            ),
            (
                "a: note: this\n",
                "p:1:8: error: not YAML: mapping values are not allowed in this context; write text that contains \
                 `: ` in quotes",
            ),
            (
                "a: \"\\d+\"\n",
                "p:1:4: error: not YAML: while parsing a quoted scalar, found unknown escape character; in double \
                 quotes `\\` begins an escape: use single quotes",
            ),
            (
                "a: @b\n",
                "p:1:4: error: not YAML: unexpected character: `@'; write text that begins with this character in \
                 quotes",
            ),
            (
                "a: 'b\nc: d\n",
                "p:2:1: error: not YAML: invalid indentation in multiline quoted scalar; a quote that begins before \
                 is not closed",
            ),
            (
                "a:\n  - b: 1\n   c: 2\n",
                "p:3:4: error: not YAML: while parsing a block collection, did not find expected '-' indicator; the \
                 keys of one item begin in the same column",
            ),
            (
                "a:\n  - { b: c } d }\n",
                "p:2:14: error: not YAML: while parsing a block collection, did not find expected '-' indicator; the \
                 `}` in column 12 closes the mapping: write text that contains `}` in quotes",
            ),
            (
                "a: { b: [a-z]+/x }\n",
                "p:1:14: error: not YAML: while parsing a flow mapping, did not find expected ',' or '}'; `[` begins a \
                 list: write text that begins with it in quotes",
            ),
            (
                "a: { b: [a] c: d }\n",
                "p:1:13: error: not YAML: while parsing a flow mapping, did not find expected ',' or '}'",
            ),
            (
                "# a {\na:\n  - { b: 'it is }', c: it's }\n  - { b: { c: 1 }\n  - { b: { c: 2 } }\n",
                "p:5:3: error: not YAML: \"-\" is only valid inside a block; the `{` in line 4 is not closed",
            ),
        ] {
            let mut problems = Problems::new();
            parse(&"p".into(), text, &mut problems);
            let found: Vec<String> = problems
                .into_vec()
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(found, [expected], "{text}");
        }
    }
}
