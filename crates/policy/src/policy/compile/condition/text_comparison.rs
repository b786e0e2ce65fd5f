//! The values of text tests, in conditions and in lists: brought to the form of the field, and
//! checked.

use std::borrow::Cow;

use crate::policy::compile::canonical::{self, InvalidValue};
use crate::policy::compile::escape::EscapedText;
use crate::policy::compile::regex::{self, PatternError};
use crate::policy::compile::surt;
use crate::policy::condition::PatternSource;
use crate::policy::exact::unmatchable;
use crate::policy::expression::Expression;
use crate::policy::expression::table::ExpressionInterner;
use crate::policy::field::Field;
use crate::policy::pattern::{CaseSensitivity, LiteralTestKind, TextForm, TextKind, TextTest};
use crate::policy::source::tree::TextTestKind;

use super::warnings::{self, ValueWarning};

/// The comparison of values with a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TextComparison {
    field: Field,
    kind: TextTestKind,
    case: CaseSensitivity,
    form: TextForm,
}

/// A compiled value.
#[derive(Clone)]
pub(crate) enum CompiledText {
    /// Its forms, of which a text equals or contains one.
    Plain(Vec<Box<str>>),
    Regex(Expression),
}

impl From<Cow<'_, str>> for CompiledText {
    fn from(text: Cow<'_, str>) -> Self {
        Self::Plain(vec![text.into()])
    }
}

impl TextComparison {
    pub(crate) fn new(
        field: &Field,
        kind: TextTestKind,
        case: CaseSensitivity,
        form: TextForm,
    ) -> Self {
        Self {
            field: field.clone(),
            kind,
            case: if field.ignores_case() {
                CaseSensitivity::Insensitive
            } else {
                case
            },
            form,
        }
    }

    /// Returns the name of the field in a policy.
    pub(crate) fn field_name(&self) -> String {
        self.field.full_keyword()
    }

    /// Brings a value to the form of the field.
    pub(crate) fn compile(
        &self,
        text: &str,
        expressions: &mut ExpressionInterner<'_>,
    ) -> Result<CompiledText, PatternError> {
        let compiled = match self.kind {
            TextTestKind::Regex => {
                let region = canonical::url_region(&self.field);
                return regex::compile(text, region, self.case, expressions)
                    .map(CompiledText::Regex);
            }
            TextTestKind::Glob => self.compile_glob(text, expressions),
            TextTestKind::Site => canonical::site_prefixes(text).map(|sites| {
                CompiledText::Plain(sites.into_iter().map(|site| site.text.into()).collect())
            }),
            TextTestKind::Surt => {
                surt::surt_prefix(text).map(|surt| CompiledText::Plain(vec![surt.into()]))
            }
            TextTestKind::Exact
            | TextTestKind::Prefix
            | TextTestKind::Suffix
            | TextTestKind::Contains
            | TextTestKind::Domain
            | TextTestKind::Ext
            | TextTestKind::Under => {
                canonical::value(&self.field, self.kind, self.case, self.form, text)
                    .and_then(|value| self.plain_or_regex(value, expressions))
            }
        };
        compiled.map_err(PatternError::from)
    }

    /// Returns warnings about a value: `compiled` is its form, if it has one.
    pub(crate) fn warnings(
        &self,
        text: &str,
        compiled: Option<&CompiledText>,
    ) -> Vec<ValueWarning> {
        let mut warnings = warnings::value_warnings(&self.field, self.kind, text);
        if let Some(compiled) = compiled
            && !warnings.iter().any(|warning| warning.matches_nothing)
            && unmatchable::matches_no_url(&self.field, &self.test(compiled))
        {
            let (reason, help) = unmatchable::suggestion(&self.field, self.kind.as_str(), text);
            warnings.push(ValueWarning::matches_nothing(reason, help));
        }
        warnings
    }

    /// Returns the test with one value.
    fn test(&self, compiled: &CompiledText) -> TextTest {
        let kind = match compiled {
            CompiledText::Plain(forms) => {
                TextKind::Literal(literal_kind(self.kind), forms.clone().into())
            }
            CompiledText::Regex(expression) => TextKind::Regex([expression.clone()].into()),
        };
        TextTest::new(kind, self.case, self.form)
    }

    /// Keeps a value with a single form as text; builds a regular expression for one with several
    /// forms.
    fn plain_or_regex(
        &self,
        value: EscapedText,
        expressions: &mut ExpressionInterner<'_>,
    ) -> Result<CompiledText, InvalidValue> {
        let Some(pattern) = value.pattern else {
            return Ok(CompiledText::Plain(vec![value.text.into()]));
        };
        let anchored = match self.kind {
            TextTestKind::Exact => format!(r"\A(?:{pattern})\z"),
            TextTestKind::Prefix => format!(r"\A(?:{pattern})"),
            TextTestKind::Suffix => format!(r"(?:{pattern})\z"),
            TextTestKind::Under => format!(r"\A(?:{pattern})(?:/|\z)"),
            TextTestKind::Contains
            | TextTestKind::Regex
            | TextTestKind::Glob
            | TextTestKind::Domain
            | TextTestKind::Ext
            | TextTestKind::Site
            | TextTestKind::Surt => pattern,
        };
        regex::compile_generated(&anchored, self.case, expressions).map(CompiledText::Regex)
    }

    fn compile_glob(
        &self,
        text: &str,
        expressions: &mut ExpressionInterner<'_>,
    ) -> Result<CompiledText, InvalidValue> {
        let mut first_error = None;
        let pattern = regex::glob_to_pattern(text, |literal| {
            let kind = TextTestKind::Contains;
            match canonical::value(&self.field, kind, self.case, self.form, literal) {
                Ok(escaped) => escaped
                    .pattern
                    .unwrap_or_else(|| regex_syntax::escape(&escaped.text)),
                Err(error) => {
                    first_error = Some(error);
                    String::new()
                }
            }
        });
        match first_error {
            Some(error) => Err(error),
            None => {
                regex::compile_generated(&pattern, self.case, expressions).map(CompiledText::Regex)
            }
        }
    }
}

/// Values that are compared in the same way.
pub(crate) struct TextValues<'c> {
    comparison: &'c TextComparison,
    texts: Vec<Box<str>>,
    expressions: Vec<Expression>,
    /// The values that became regular expressions.
    sources: Vec<PatternSource>,
}

impl<'c> TextValues<'c> {
    pub(crate) fn new(comparison: &'c TextComparison) -> Self {
        Self {
            comparison,
            texts: Vec::new(),
            expressions: Vec::new(),
            sources: Vec::new(),
        }
    }

    /// Adds a value and its compiled form.
    pub(crate) fn push(&mut self, text: &str, compiled: CompiledText) {
        match compiled {
            CompiledText::Plain(forms) => self.texts.extend(forms),
            CompiledText::Regex(expression) => {
                self.expressions.push(expression);
                self.sources.push(PatternSource {
                    kind: self.comparison.kind.as_str(),
                    text: text.into(),
                });
            }
        }
    }

    /// Returns up to two tests: one for the values that are plain text, one for those that became
    /// regular expressions, which have sources.
    pub(crate) fn into_tests(self) -> Vec<(TextTest, Box<[PatternSource]>)> {
        let TextComparison {
            kind, case, form, ..
        } = *self.comparison;
        let mut tests = Vec::new();
        if !self.texts.is_empty() {
            let kind = TextKind::Literal(literal_kind(kind), self.texts.into());
            tests.push((TextTest::new(kind, case, form), [].into()));
        }
        if !self.expressions.is_empty() {
            let kind = TextKind::Regex(self.expressions.into());
            tests.push((TextTest::new(kind, case, form), self.sources.into()));
        }
        tests
    }
}

/// Returns the comparison with values that are plain texts.
fn literal_kind(kind: TextTestKind) -> LiteralTestKind {
    match kind {
        TextTestKind::Exact | TextTestKind::Regex | TextTestKind::Glob => LiteralTestKind::Exact,
        TextTestKind::Prefix | TextTestKind::Site => LiteralTestKind::Prefix,
        TextTestKind::Suffix => LiteralTestKind::Suffix,
        TextTestKind::Contains => LiteralTestKind::Contains,
        TextTestKind::Domain => LiteralTestKind::Domain,
        TextTestKind::Ext => LiteralTestKind::Ext,
        TextTestKind::Under => LiteralTestKind::Under,
        TextTestKind::Surt => LiteralTestKind::Surt,
    }
}
