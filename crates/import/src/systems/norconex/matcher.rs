//! Comparisons of text as conditions.

use crate::draft::{ConditionDraft, TestDraft};
use crate::expression::{Anchoring, Dialect, SourceExpression, TranslatedExpression};

use super::model::{MatchMethod, TextMatcher};

/// Translates a comparison with a field into a condition. The error says why it is not translated.
pub(super) fn translate(
    matcher: &TextMatcher,
    field: &str,
) -> Result<TranslatedExpression, String> {
    if let Some(variable) = unresolved_variable(&matcher.pattern) {
        let why = format!("the variable `{variable}` is not known");
        return Err(why);
    }
    if let Some(detail) = matcher.unsupported {
        return Err(format!("`{detail}` has no counterpart"));
    }
    let mut translated = match matcher.method {
        MatchMethod::Basic => literal(matcher, field, vec![matcher.pattern.clone()]),
        MatchMethod::Csv => {
            let values = matcher.pattern.split(',').map(str::trim);
            let values = values.filter(|value| !value.is_empty());
            literal(matcher, field, values.map(str::to_owned).collect())
        }
        MatchMethod::Wildcard => wildcard(matcher, field),
        MatchMethod::Regex => regex(matcher, field)?,
    };
    translated.condition = with_guarded_dots(translated.condition);
    if matcher.negate {
        translated.condition = translated.condition.negated();
    }
    Ok(translated)
}

fn literal(matcher: &TextMatcher, field: &str, values: Vec<String>) -> TranslatedExpression {
    let kind = match (matcher.partial, matcher.ignore_case) {
        (true, _) => Some("contains"),
        (false, true) => Some("exact"),
        (false, false) => None,
    };
    exactly(ConditionDraft::test(field, kind, values).ignoring_case(matcher.ignore_case))
}

fn exactly(condition: ConditionDraft) -> TranslatedExpression {
    TranslatedExpression {
        condition,
        assumption: None,
    }
}

/// `*` is any run of characters, `?` any character. A glob has no `?` and writes a star as `\*`.
fn wildcard(matcher: &TextMatcher, field: &str) -> TranslatedExpression {
    let pattern = &matcher.pattern;
    let condition = if pattern.contains(['?', '\\']) {
        let escaped = regex_syntax::escape(pattern);
        let text = escaped.replace("\\*", ".*").replace("\\?", "(?s:.)");
        let text = if matcher.partial {
            text
        } else {
            format!("^{text}$")
        };
        ConditionDraft::test(field, "regex", [text])
    } else if matcher.partial {
        ConditionDraft::test(field, "glob", [format!("*{pattern}*")])
    } else {
        ConditionDraft::test(field, "glob", [pattern.as_str()])
    };
    exactly(condition.ignoring_case(matcher.ignore_case))
}

fn regex(matcher: &TextMatcher, field: &str) -> Result<TranslatedExpression, String> {
    let expression = SourceExpression {
        text: &matcher.pattern,
        dialect: Dialect::Java,
        anchoring: if matcher.partial {
            Anchoring::Search
        } else {
            Anchoring::Whole
        },
        ignore_case: matcher.ignore_case,
    };
    expression.translate(field)
}

/// Returns the name of a variable that is left in a text.
pub(super) fn unresolved_variable(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        rest = rest.get(at + 1..)?;
        let name = rest.strip_prefix('!').unwrap_or(rest);
        let name = name.strip_prefix('{').unwrap_or(name);
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-' | '.'));
        let name = name.get(..end.unwrap_or(name.len()))?;
        if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Some(name);
        }
    }
    None
}

/// Writes a `.` that stands between letters as `(?s:.)`: it means any character there, and looks as if it
/// were meant literally.
fn with_guarded_dots(condition: ConditionDraft) -> ConditionDraft {
    match condition {
        ConditionDraft::All(parts) => {
            ConditionDraft::All(parts.into_iter().map(with_guarded_dots).collect())
        }
        ConditionDraft::Any(parts) => {
            ConditionDraft::Any(parts.into_iter().map(with_guarded_dots).collect())
        }
        ConditionDraft::Not(part) => ConditionDraft::Not(Box::new(with_guarded_dots(*part))),
        ConditionDraft::Test(test) if test.kind == Some("regex") => {
            ConditionDraft::Test(TestDraft {
                values: test.values.iter().map(|text| guard_dots(text)).collect(),
                ..test
            })
        }
        other @ (ConditionDraft::Always | ConditionDraft::Test(_)) => other,
    }
}

fn guard_dots(text: &str) -> String {
    let mut result = String::new();
    let mut chars = text.chars().peekable();
    let mut before = None;
    let mut in_class = false;
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-');
        match c {
            '\\' => {
                result.push(c);
                result.extend(chars.next());
            }
            '.' if !in_class && is_letter(before) && is_letter(next) => result.push_str("(?s:.)"),
            c => {
                in_class = match c {
                    '[' => true,
                    ']' => false,
                    _ => in_class,
                };
                result.push(c);
            }
        }
        before = Some(c);
    }
    result
}
