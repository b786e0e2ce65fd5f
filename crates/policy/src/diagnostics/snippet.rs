//! Formats a problem for people: one line with location and message, and below it the source line
//! with a caret.
//!
//! `annotate-snippets` draws the part below. The first line is formatted here, since editors and
//! scripts parse `file:line:column: error: …`.

use annotate_snippets::{AnnotationKind, Element, Group, Level, Renderer, Snippet};

use super::problem::{Excerpt, Problem, Severity, to_printable};

/// Wider than the longest excerpt, so that the renderer does not cut a line a second time.
const WIDTH: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourMode {
    Coloured,
    Plain,
}

/// Formats a problem with its source line, if it is known, without a trailing line break.
pub fn render(problem: &Problem, colours: ColourMode) -> String {
    let Some(excerpt) = &problem.excerpt else {
        return problem.to_string();
    };
    let suggestion = problem
        .suggestion
        .as_ref()
        .map(|near| format!("did you mean `{}`?", to_printable(near, 80)));
    let caret = AnnotationKind::Primary
        .span(span(excerpt))
        .label(suggestion);
    let snippet = Snippet::source(excerpt.text.as_str())
        .line_start(problem.location.line as usize)
        .annotation(caret);
    let help = problem
        .help
        .as_ref()
        .map(|help| Level::HELP.message(to_printable(help, usize::MAX)));
    let group = Group::with_level(level(problem.severity))
        .element(snippet)
        .elements(help.map(Element::from));
    format!(
        "{}\n{}",
        problem.headline(),
        renderer(colours).render(&[group])
    )
}

fn renderer(colours: ColourMode) -> Renderer {
    match colours {
        ColourMode::Coloured => Renderer::styled().term_width(WIDTH),
        ColourMode::Plain => Renderer::plain().term_width(WIDTH),
    }
}

fn level(severity: Severity) -> Level<'static> {
    match severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Advice => Level::NOTE,
    }
}

/// Returns the byte range within the line that the location covers.
fn span(excerpt: &Excerpt) -> std::ops::Range<usize> {
    let start = byte_offset(&excerpt.text, excerpt.offset);
    let end = byte_offset(&excerpt.text, excerpt.offset.saturating_add(excerpt.width));
    start..end
}

fn byte_offset(text: &str, characters: usize) -> usize {
    text.char_indices()
        .nth(characters)
        .map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::problem::SourceLocation;

    fn problem(text: &str, before: usize, width: usize) -> Problem {
        let place = SourceLocation {
            file: "p.yaml".into(),
            line: 12,
            column: 3,
        };
        let excerpt = Some(Excerpt {
            text: text.into(),
            offset: before,
            width,
        });
        let problem = Problem::error(&place, "unknown key")
            .with_found("hots")
            .with_allowed_words(["host", "path"]);
        Problem { excerpt, ..problem }
    }

    #[test]
    fn the_first_line_is_machine_readable() {
        let shown = render(&problem("{ hots: a }", 2, 4), ColourMode::Plain);
        let expected = "p.yaml:12:3: error: unknown key; found `hots`\n   |\n12 | { hots: a }\n   |   ^^^^ did you mean `host`?\n   |\n   = help: allowed: host, path";
        assert_eq!(shown, expected);
        assert!(render(&problem("{ hots: a }", 2, 4), ColourMode::Coloured).contains('\u{1b}'));
    }

    #[test]
    fn a_location_after_the_line_is_shown_at_its_end() {
        for (text, before, width) in [
            ("", 0, 1),
            ("é", 1, 1),
            ("é", 9, 9),
            ("a\u{1b}[31mb", 0, 99),
        ] {
            let shown = render(&problem(text, before, width), ColourMode::Plain);
            assert!(shown.contains('^') && !shown.contains('\u{1b}'), "{shown}");
        }
    }
}
