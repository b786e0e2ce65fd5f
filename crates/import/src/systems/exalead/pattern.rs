//! Values of atoms: ordinary expressions, or texts in which a backslash switches an operator on.

/// The syntax of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSyntax {
    /// `litteral="true"`: bare characters are literal, and a backslash makes one an operator.
    Literal,
    /// An ordinary expression.
    Expression,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudViewPattern {
    /// As an ordinary expression, not anchored.
    pub expression: String,
    /// The text, if it has no operator but bare dots.
    pub plain: Option<String>,
    /// It is an ordinary expression whose only operators are bare dots, as in `www.example.com`.
    pub has_bare_dots: bool,
}

const OPERATORS: &str = "^$.*+?[](){}|";

impl CloudViewPattern {
    /// Reads a value.
    pub fn read(value: &str, syntax: ValueSyntax) -> Self {
        match syntax {
            ValueSyntax::Literal => read_literal(value),
            ValueSyntax::Expression => read_expression(value),
        }
    }
}

fn read_literal(value: &str) -> CloudViewPattern {
    let mut expression = String::new();
    let mut plain = Some(String::new());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            push_literal(&mut expression, c);
            push_plain(&mut plain, c);
            continue;
        }
        match chars.next() {
            Some('\\') | None => {
                push_literal(&mut expression, '\\');
                push_plain(&mut plain, '\\');
            }
            Some(operator) if OPERATORS.contains(operator) => {
                expression.push(operator);
                plain = None;
            }
            // A class such as `\d`, or an escaped character without a meaning.
            Some(other) if other.is_ascii_alphanumeric() => {
                expression.push('\\');
                expression.push(other);
                plain = None;
            }
            Some(other) => {
                push_literal(&mut expression, other);
                push_plain(&mut plain, other);
            }
        }
    }
    CloudViewPattern {
        expression,
        plain,
        has_bare_dots: false,
    }
}

fn read_expression(value: &str) -> CloudViewPattern {
    let mut plain = Some(String::new());
    let mut has_bare_dots = false;
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next) if !next.is_ascii_alphanumeric() => push_plain(&mut plain, next),
                Some(_) | None => plain = None,
            },
            '.' => {
                has_bare_dots = true;
                push_plain(&mut plain, '.');
            }
            c if OPERATORS.contains(c) => plain = None,
            c => push_plain(&mut plain, c),
        }
    }
    CloudViewPattern {
        expression: value.to_owned(),
        has_bare_dots: has_bare_dots && plain.is_some(),
        plain,
    }
}

fn push_literal(expression: &mut String, c: char) {
    if OPERATORS.contains(c) || c == '\\' {
        expression.push('\\');
    }
    expression.push(c);
}

fn push_plain(plain: &mut Option<String>, c: char) {
    if let Some(plain) = plain {
        plain.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(value: &str) -> (String, Option<String>) {
        let pattern = CloudViewPattern::read(value, ValueSyntax::Literal);
        (pattern.expression, pattern.plain)
    }

    #[test]
    fn a_backslash_switches_an_operator_on_in_literal_values() {
        let (expression, plain) = literal(r"http://www.h.test/a/\.\+/\[0-9\]\{7\}");
        assert_eq!(expression, r"http://www\.h\.test/a/.+/[0-9]{7}");
        assert_eq!(plain, None);
        assert_eq!(
            literal("a.b?c=1"),
            (r"a\.b\?c=1".to_owned(), Some("a.b?c=1".to_owned()))
        );
        assert_eq!(literal(r"a\\.b").1.as_deref(), Some(r"a\.b"));
        assert_eq!(literal(r"\.\*\(foo\|bar\)").0, ".*(foo|bar)");
    }

    #[test]
    fn other_values_are_ordinary_expressions() {
        let read = |value| CloudViewPattern::read(value, ValueSyntax::Expression);
        assert_eq!(read(r"/a\.b").plain.as_deref(), Some("/a.b"));
        assert!(!read(r"/a\.b").has_bare_dots);
        assert!(read("www.h.test").has_bare_dots);
        assert_eq!(read("/a.*").plain, None);
        assert_eq!(read(r"/\d+").plain, None);
    }
}
