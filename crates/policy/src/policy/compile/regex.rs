//! Regular expressions and globs: RE2-like, matched in linear time, and limited in size.
//!
//! The policy language differs from the `regex` crate in two respects, for which the pattern is rewritten
//! after parsing: a backslash before punctuation yields that character, and a character that
//! canonical URLs escape represents its escape.

use regex::{Regex, RegexBuilder};
use regex_syntax::ast::{self, Ast, ClassSet, ClassSetItem};

use crate::policy::expression::table::ExpressionInterner;
use crate::policy::expression::{Expression, ExpressionError, NEST_LIMIT, SIZE_LIMIT};
use crate::policy::pattern::CaseSensitivity;

use super::canonical::InvalidValue;
use super::escape::{UrlRegion, char_pattern};

/// The reason why an expression is invalid, and the offset of the error in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PatternError {
    pub(super) error: InvalidValue,
    pub(super) offset: Option<usize>,
}

impl PatternError {
    /// Adds the offset to an error of the library.
    fn new(error: InvalidValue, pattern: &str, rewritten: &str) -> Self {
        // The library's offset is useful only if the expression was not rewritten.
        let offset = (rewritten == pattern)
            .then(|| translation_error_offset(pattern))
            .flatten();
        Self { error, offset }
    }
}

impl From<InvalidValue> for PatternError {
    fn from(error: InvalidValue) -> Self {
        Self {
            error,
            offset: None,
        }
    }
}

/// Compiles a regular expression of a policy, not anchored.
pub(super) fn compile(
    pattern: &str,
    region: Option<UrlRegion>,
    case: CaseSensitivity,
    expressions: &mut ExpressionInterner<'_>,
) -> Result<Expression, PatternError> {
    let rewritten = rewrite(pattern, region)?;
    let expression = expressions.intern(&rewritten, case);
    expression.map_err(|error| PatternError::new(into_invalid(error), pattern, &rewritten))
}

/// Compiles a regular expression of a policy whose groups are used.
pub(super) fn compile_with_groups(
    pattern: &str,
    region: Option<UrlRegion>,
) -> Result<Regex, PatternError> {
    let rewritten = rewrite(pattern, region)?;
    let regex = RegexBuilder::new(&rewritten)
        .size_limit(SIZE_LIMIT)
        .nest_limit(NEST_LIMIT)
        .build();
    regex.map_err(|error| {
        let error = if let regex::Error::CompiledTooBig(_) = error {
            ExpressionError::TooLarge
        } else {
            ExpressionError::Syntax(error.to_string())
        };
        PatternError::new(into_invalid(error), pattern, &rewritten)
    })
}

/// Compiles an expression that this program generated.
pub(super) fn compile_generated(
    pattern: &str,
    case: CaseSensitivity,
    expressions: &mut ExpressionInterner<'_>,
) -> Result<Expression, InvalidValue> {
    expressions.intern(pattern, case).map_err(into_invalid)
}

/// Converts a glob to a regular expression for the whole field: `*` matches any run of characters,
/// `\*` a star, everything else itself.
pub(super) fn glob_to_pattern(glob: &str, mut escaped: impl FnMut(&str) -> String) -> String {
    let mut pattern = String::from(r"\A(?s:");
    let mut literal = String::new();
    let mut rest = glob.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('\\', Some('*')) => {
                rest.next();
                literal.push('*');
            }
            ('*', _) => {
                pattern.push_str(&escaped(&std::mem::take(&mut literal)));
                pattern.push_str(".*");
            }
            _ => literal.push(c),
        }
    }
    pattern.push_str(&escaped(&literal));
    pattern + r")\z"
}

/// Rewrites an expression of the policy language to one of the library.
fn rewrite(pattern: &str, region: Option<UrlRegion>) -> Result<String, PatternError> {
    let tree = parse(pattern)?;
    let mut rewriter = PatternRewriter {
        region,
        edits: Vec::new(),
    };
    rewriter.visit(&tree);
    Ok(rewriter.apply(pattern))
}

fn parse(pattern: &str) -> Result<Ast, PatternError> {
    let parser = ast::parse::ParserBuilder::new()
        .nest_limit(NEST_LIMIT)
        .build()
        .parse(pattern);
    parser.map_err(|error| PatternError {
        error: syntax_error(error.kind()),
        offset: char_offset(pattern, error.span().start.offset),
    })
}

fn syntax_error(kind: &ast::ErrorKind) -> InvalidValue {
    let message = format!("not a regular expression: {kind}");
    let unsupported = "is not supported, since matching must take linear time";
    if *kind == ast::ErrorKind::UnsupportedLookAround {
        let instead = "use a second condition: `all: [{ path: { regex: … } }, { not: { path: { regex: … } } }]`";
        return InvalidValue::with_help(format!("look-around {unsupported}"), instead);
    }
    if *kind == ast::ErrorKind::UnsupportedBackreference {
        let instead = "to match repeated path segments write `path: { repeats: \"[3:]\" }`";
        return InvalidValue::with_help(format!("a back-reference {unsupported}"), instead);
    }
    InvalidValue::new(message)
}

fn char_offset(pattern: &str, offset: usize) -> Option<usize> {
    pattern.get(..offset).map(|head| head.chars().count())
}

/// Returns the offset of an error that is not a syntax error, such as an unknown Unicode class.
fn translation_error_offset(pattern: &str) -> Option<usize> {
    match regex_syntax::Parser::new().parse(pattern) {
        Err(regex_syntax::Error::Translate(error)) => {
            char_offset(pattern, error.span().start.offset)
        }
        _ => None,
    }
}

fn into_invalid(error: ExpressionError) -> InvalidValue {
    match error {
        ExpressionError::TooLarge => {
            let message = format!(
                "the regular expression takes more than {} MiB when compiled",
                SIZE_LIMIT >> 20
            );
            InvalidValue::with_help(message, "use smaller repetition counts, or a list")
        }
        ExpressionError::Syntax(text) => {
            let last = text
                .lines()
                .last()
                .unwrap_or("")
                .trim_start_matches("error: ");
            InvalidValue::new(format!("not a regular expression: {last}"))
        }
    }
}

/// Collects replacements in a pattern: byte ranges and their new texts.
struct PatternRewriter {
    region: Option<UrlRegion>,
    edits: Vec<(usize, usize, String)>,
}

impl PatternRewriter {
    fn visit(&mut self, tree: &Ast) {
        match tree {
            Ast::Literal(literal) => {
                if let Some(pattern) = self.char_pattern(literal.c) {
                    self.replace(&literal.span, pattern);
                }
            }
            Ast::Assertion(assertion) => self.visit_assertion(assertion),
            Ast::ClassBracketed(class) => self.visit_class(class),
            Ast::Repetition(repetition) => self.visit(&repetition.ast),
            Ast::Group(group) => self.visit(&group.ast),
            Ast::Alternation(alternation) => {
                alternation.asts.iter().for_each(|part| self.visit(part))
            }
            Ast::Concat(concat) => concat.asts.iter().for_each(|part| self.visit(part)),
            Ast::Empty(_)
            | Ast::Flags(_)
            | Ast::Dot(_)
            | Ast::ClassUnicode(_)
            | Ast::ClassPerl(_) => {}
        }
    }

    fn char_pattern(&self, c: char) -> Option<String> {
        self.region.and_then(|region| char_pattern(region, c))
    }

    fn replace(&mut self, span: &ast::Span, text: String) {
        self.edits.push((span.start.offset, span.end.offset, text));
    }

    /// Replaces `\<` and `\>`, which are word boundaries in the library, with the literal characters.
    fn visit_assertion(&mut self, assertion: &ast::Assertion) {
        let c = match assertion.kind {
            ast::AssertionKind::WordBoundaryStartAngle => '<',
            ast::AssertionKind::WordBoundaryEndAngle => '>',
            ast::AssertionKind::StartLine
            | ast::AssertionKind::EndLine
            | ast::AssertionKind::StartText
            | ast::AssertionKind::EndText
            | ast::AssertionKind::WordBoundary
            | ast::AssertionKind::NotWordBoundary
            | ast::AssertionKind::WordBoundaryStart
            | ast::AssertionKind::WordBoundaryEnd
            | ast::AssertionKind::WordBoundaryStartHalf
            | ast::AssertionKind::WordBoundaryEndHalf => return,
        };
        self.replace(
            &assertion.span,
            self.char_pattern(c).unwrap_or_else(|| c.to_string()),
        );
    }

    /// Replaces `[a<]` by `(?:[a<]|%3[Cc])`. A negated class needs no change: canonical URLs do not
    /// contain the characters.
    fn visit_class(&mut self, class: &ast::ClassBracketed) {
        let ClassSet::Item(item) = &class.kind else {
            return;
        };
        if class.negated {
            return;
        }
        let mut forms = Vec::new();
        for_each_literal(item, &mut |c| forms.extend(self.char_pattern(c)));
        if !forms.is_empty() {
            let start = class.span.start.offset;
            let end = class.span.end.offset;
            self.edits.push((start, start, "(?:".into()));
            self.edits
                .push((end, end, format!("|{})", forms.join("|"))));
        }
    }

    /// Returns the rewritten pattern. The edits are in ascending order.
    fn apply(self, pattern: &str) -> String {
        let mut out = String::with_capacity(pattern.len());
        let mut from = 0;
        for (start, end, text) in self.edits {
            out.push_str(pattern.get(from..start).unwrap_or(""));
            out.push_str(&text);
            from = end;
        }
        out.push_str(pattern.get(from..).unwrap_or(""));
        out
    }
}

fn for_each_literal(item: &ClassSetItem, visit: &mut dyn FnMut(char)) {
    match item {
        ClassSetItem::Literal(literal) => visit(literal.c),
        ClassSetItem::Union(union) => union
            .items
            .iter()
            .for_each(|item| for_each_literal(item, visit)),
        ClassSetItem::Empty(_)
        | ClassSetItem::Range(_)
        | ClassSetItem::Ascii(_)
        | ClassSetItem::Unicode(_)
        | ClassSetItem::Perl(_)
        | ClassSetItem::Bracketed(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, region: Option<UrlRegion>, text: &str) -> bool {
        compile_alone(pattern, region).unwrap().is_match(text)
    }

    fn compile_alone(pattern: &str, region: Option<UrlRegion>) -> Result<Expression, PatternError> {
        let mut expressions = ExpressionInterner::new(None);
        compile(
            pattern,
            region,
            CaseSensitivity::Sensitive,
            &mut expressions,
        )
    }

    #[test]
    fn backslashed_punctuation_is_itself() {
        for (pattern, text) in [
            (r"^\<b\>$", "<b>"),
            (r"a\/b", "a/b"),
            (r"a\@b\-\!", "a@b-!"),
            (r"\.\+\?", ".+?"),
        ] {
            assert!(fits(pattern, None, text), "{pattern}");
        }
    }

    #[test]
    fn escaped_characters_match_their_escapes() {
        let path = Some(UrlRegion::Path);
        for (pattern, text, expected) in [
            (r"^/a<b$", "/a%3cb", true),
            (r"^/a\<+b$", "/a%3C%3cb", true),
            (r"^/[x<y ]+$", "/x%3C%20y", true),
            (r"^/é$", "/%C3%A9", true),
            (r"^/é*$", "/%c3%a9%C3%A9", true),
            (r"^/[^<]+$", "/abc", true),
            (r"^/a b$", "/a%20b", true),
            (r"^/a b$", "/a b", false),
        ] {
            assert_eq!(fits(pattern, path, text), expected, "{pattern} on {text}");
        }
        assert!(fits(r"^\{x\}$", Some(UrlRegion::Either), "%7Bx}"));
    }

    #[test]
    fn globs_match_other_characters_literally() {
        for (glob, text, expected) in [
            ("*.gif", "/a/b.gif", true),
            ("*.gif", "/a/b_gif", false),
            ("/a?b", "/a?b", true),
            (r"/\*x", "/*x", true),
            (r"/\*x", "/yx", false),
            (r"/\d", r"/\d", true),
            ("/a*", "x/a", false),
        ] {
            let pattern = glob_to_pattern(glob, regex_syntax::escape);
            assert_eq!(
                Expression::new(&pattern, CaseSensitivity::Sensitive)
                    .unwrap()
                    .is_match(text),
                expected,
                "{glob}"
            );
        }
    }

    #[test]
    fn mistakes_have_a_place_and_a_hint() {
        for (pattern, at, message) in [
            ("a(b", Some(1), "unclosed group"),
            ("é[b", Some(1), "unclosed character class"),
            ("x(?=y)", Some(1), "look-around"),
            (r"(a)\1", Some(3), "back-reference"),
            ("*a", Some(0), "repetition operator missing expression"),
            (r"a\pX", Some(1), "Unicode"),
            (r"\w{1000}\w{1000}", None, "more than 2 MiB"),
        ] {
            let found = compile_alone(pattern, None).unwrap_err();
            assert_eq!(found.offset, at, "{pattern}");
            assert!(
                found.error.message.contains(message),
                "{pattern} → {}",
                found.error.message
            );
        }
    }
}
