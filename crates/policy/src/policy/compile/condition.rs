//! Compiles conditions of the source tree.

mod range;
mod warnings;

use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::policy::condition::{Atom, AtomTest, Condition, PatternSource};
use crate::policy::exact::inert::MATCHES_NOTHING;
use crate::policy::exact::unmatchable;
use crate::policy::expression::Expression;
use crate::policy::expression::table::ExpressionInterner;
use crate::policy::field::{Field, ValueType};
use crate::policy::list::ListKind;
use crate::policy::pattern::{CaseSensitivity, Networks, Ranges, TextForm, TextKind, TextTest};
use crate::policy::source::tree::{
    CountTestKind, Located, LocatedText, SourceAtom, SourceCondition, SourceRange, SourceTest,
    TextTestKind,
};

use super::canonical::{self, InvalidValue};
use super::escape::EscapedText;
use super::lists::ListTable;
use super::regex::{self, PatternError};
use super::surt;

/// Compiles conditions one at a time.
pub(super) struct ConditionCompiler<'a, 'p> {
    /// The lists that conditions may name.
    pub(super) lists: &'a mut ListTable,
    pub(super) expressions: &'a mut ExpressionInterner<'p>,
    /// Errors that are reported regardless of `on_invalid_rule`.
    pub(super) problems: &'a mut Problems,
    /// Parts that cannot be compiled: `on_invalid_rule` determines their severity.
    pub(super) invalid: Vec<Problem>,
}

impl ConditionCompiler<'_, '_> {
    /// Compiles a condition. An invalid part is reported and replaced by `always`.
    pub(super) fn compile(&mut self, source: &SourceCondition) -> Condition {
        match source {
            SourceCondition::Always => Condition::Always,
            SourceCondition::All(parts) => {
                Condition::All(parts.iter().map(|p| self.compile(p)).collect())
            }
            SourceCondition::Any(parts) => {
                Condition::Any(parts.iter().map(|p| self.compile(p)).collect())
            }
            SourceCondition::Not(part) => Condition::Not(Box::new(self.compile(part))),
            SourceCondition::Atom(atom) => self.compile_atom(atom),
        }
    }

    fn compile_atom(&mut self, atom: &SourceAtom) -> Condition {
        let mut tests: Vec<Atom> = match (&atom.test, &atom.field) {
            (SourceTest::In(names), field) => {
                return self.compile_membership(atom, names, field.as_ref());
            }
            (_, None) => Vec::new(),
            (SourceTest::Text(word, values), Some(field)) => {
                self.compile_text(atom, field, *word, values)
            }
            (SourceTest::Count(word, ranges), Some(field)) => {
                self.compile_count(field, *word, ranges)
            }
            (SourceTest::Number(ranges), Some(field)) => {
                let ranges = self.compile_ranges(ranges, field);
                vec![plain_atom(field.clone(), AtomTest::Number(ranges))]
            }
            (SourceTest::Networks(values), Some(field)) => {
                let networks = values
                    .iter()
                    .filter_map(|value| self.compile_network(value))
                    .collect();
                vec![plain_atom(
                    field.clone(),
                    AtomTest::Address(Networks(networks)),
                )]
            }
        };
        let last = tests.pop().map(atom_condition);
        match last {
            None => Condition::Always,
            Some(only) if tests.is_empty() => only,
            Some(last) => Condition::Any(
                tests
                    .into_iter()
                    .map(atom_condition)
                    .chain([last])
                    .collect(),
            ),
        }
    }

    /// Returns up to two tests: one for the values that are plain text, one for those that became
    /// regular expressions.
    fn compile_text(
        &mut self,
        atom: &SourceAtom,
        field: &Field,
        kind: TextTestKind,
        values: &[LocatedText],
    ) -> Vec<Atom> {
        let case = if field.ignores_case() {
            CaseSensitivity::Insensitive
        } else {
            atom.case
        };
        let mut texts: Vec<Box<str>> = Vec::new();
        let mut regexes: Vec<Expression> = Vec::new();
        let mut written: Vec<PatternSource> = Vec::new();
        for value in values {
            let warnings = warnings::value_warnings(field, kind, value);
            let is_reported = warnings
                .iter()
                .any(|warning| warning.message.starts_with(MATCHES_NOTHING));
            self.report_all(warnings);
            match self.compile_value(field, kind, case, atom.form, value) {
                Some(CompiledText::Plain(forms)) => {
                    let test = text_kind(kind)(forms.clone().into());
                    if !is_reported {
                        self.report_unmatchable(field, kind, case, atom.form, value, test);
                    }
                    texts.extend(forms);
                }
                Some(CompiledText::Regex(regex)) => {
                    let test = TextKind::Regex([regex.clone()].into());
                    if !is_reported {
                        self.report_unmatchable(field, kind, case, atom.form, value, test);
                    }
                    regexes.push(regex);
                    written.push(PatternSource {
                        kind: kind.as_str(),
                        text: value.value.clone(),
                    });
                }
                None => {}
            }
        }
        let mut tests = Vec::new();
        if !texts.is_empty() {
            let kind = text_kind(kind)(texts.into());
            tests.push(text_atom(field, kind, case, atom.form));
        }
        if !regexes.is_empty() {
            let kind = TextKind::Regex(regexes.into());
            tests.push(Atom {
                sources: written.into(),
                ..text_atom(field, kind, case, atom.form)
            });
        }
        tests
    }

    /// Warns of a value that no URL matches.
    fn report_unmatchable(
        &mut self,
        field: &Field,
        word: TextTestKind,
        case: CaseSensitivity,
        form: TextForm,
        value: &LocatedText,
        kind: TextKind,
    ) {
        if !unmatchable::matches_no_url(field, &TextTest::new(kind, case, form)) {
            return;
        }
        let (reason, help) = unmatchable::suggestion(field, word.as_str(), &value.value);
        let message = format!("{MATCHES_NOTHING}: {reason}");
        let problem = Problem::warning(&value.place, message).with_found(&*value.value);
        self.problems.push(Problem {
            help: Some(help).filter(|help| !help.is_empty()),
            ..problem
        });
    }

    fn compile_value(
        &mut self,
        field: &Field,
        kind: TextTestKind,
        case: CaseSensitivity,
        form: TextForm,
        value: &LocatedText,
    ) -> Option<CompiledText> {
        let text = &*value.value;
        let compiled = match kind {
            TextTestKind::Regex => {
                match regex::compile(text, canonical::url_region(field), case, self.expressions) {
                    Ok(regex) => return Some(CompiledText::Regex(regex)),
                    Err(error) => {
                        self.report_invalid_pattern(value, error);
                        return None;
                    }
                }
            }
            TextTestKind::Glob => self::compile_glob(field, case, form, text, self.expressions),
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
            | TextTestKind::Under => canonical::value(field, kind, case, form, text)
                .and_then(|value| plain_or_regex(kind, value, case, self.expressions)),
        };
        compiled
            .map_err(|error| self.problems.push(value_problem(value, error)))
            .ok()
    }

    fn report_invalid_pattern(
        &mut self,
        value: &LocatedText,
        PatternError { error, offset: at }: PatternError,
    ) {
        let problem = value_problem(value, error);
        self.invalid.push(Problem {
            scalar_offset: at,
            ..problem
        });
    }

    /// Compiles a count. Segments and repeats are counted in the path and parameters in the query,
    /// whichever part of the URL is named.
    fn compile_count(
        &mut self,
        field: &Field,
        word: CountTestKind,
        ranges: &[Located<SourceRange>],
    ) -> Vec<Atom> {
        let ranges = self.compile_ranges(ranges, field);
        let (field, kind) = match word {
            CountTestKind::Length => (field.clone(), TextKind::Length(ranges)),
            CountTestKind::Segments => (Field::Path, TextKind::Segments(ranges)),
            CountTestKind::Repeats => (Field::Path, TextKind::Repeats(ranges)),
            CountTestKind::Params => (Field::Query, TextKind::Params(ranges)),
        };
        let atom = text_atom(
            &field,
            kind,
            CaseSensitivity::Sensitive,
            TextForm::Canonical,
        );
        vec![atom]
    }

    fn compile_ranges(&mut self, ranges: &[Located<SourceRange>], field: &Field) -> Ranges {
        let mut all = Vec::new();
        for range in ranges {
            match range::compile_range(range, field) {
                Ok(range) => all.push(range),
                Err(problem) => self.invalid.push(*problem),
            }
        }
        Ranges(all.into())
    }

    /// Parses `10.0.0.0/8`, a single address, or an address with its netmask.
    fn compile_network(&mut self, value: &LocatedText) -> Option<IpNet> {
        let found = parse_network(&value.value);
        if found.is_none() {
            let problem = Problem::error(&value.place, "not a network").with_found(&*value.value);
            self.invalid.push(
                problem.with_help("written like 10.0.0.0/8, 2001:db8::/32, or 9.0.0.0 255.0.0.0"),
            );
        }
        found
    }

    /// Compiles membership in any of these lists.
    fn compile_membership(
        &mut self,
        atom: &SourceAtom,
        names: &[LocatedText],
        field: Option<&Field>,
    ) -> Condition {
        if atom.case == CaseSensitivity::Insensitive || atom.form == TextForm::Normalised {
            let message = "`case` and `norm` cannot be used with `in`: the kind of the list determines how items are compared";
            self.problems.push(Problem::error(&atom.place, message));
        }
        let tests: Vec<Condition> = names
            .iter()
            .filter_map(|name| self.compile_list_test(name, field))
            .collect();
        match <[Condition; 1]>::try_from(tests) {
            Ok([only]) => only,
            Err(tests) if tests.is_empty() => Condition::Always,
            Err(tests) => Condition::Any(tests.into()),
        }
    }

    fn compile_list_test(
        &mut self,
        name: &LocatedText,
        field: Option<&Field>,
    ) -> Option<Condition> {
        let Some((index, kind)) = self.lists.find(&name.value) else {
            let problem =
                Problem::error(&name.place, "no list with this name").with_found(&*name.value);
            let names: Vec<&str> = self.lists.names().collect();
            self.problems.push(if names.is_empty() {
                problem
            } else {
                problem.with_allowed_words(names)
            });
            return None;
        };
        let kind = kind?;
        let Some(field) = field.cloned().or_else(|| default_field(kind)) else {
            let problem = Problem::error(
                &name.place,
                "a list of values needs a field to be compared with",
            );
            self.problems.push(
                problem
                    .with_found(&*name.value)
                    .with_help(format!("write `host: {{ in: {} }}`", name.value)),
            );
            return None;
        };
        if (kind == ListKind::Addresses) != (field.value_type() == ValueType::Address) {
            let problem = Problem::error(
                &name.place,
                "lists of addresses can be used with `address` only, and `address` with no other lists",
            );
            self.problems.push(problem.with_found(&*name.value));
            return None;
        }
        let index = if field.ignores_case() {
            self.lists.lowercase_copy(index)
        } else {
            index
        };
        Some(atom_condition(plain_atom(field, AtomTest::InList(index))))
    }

    fn report_all(&mut self, problems: Vec<Problem>) {
        problems
            .into_iter()
            .for_each(|problem| self.problems.push(problem));
    }
}

/// A compiled value.
enum CompiledText {
    Plain(Vec<Box<str>>),
    Regex(Expression),
}

/// Creates a test that needs no [`PatternSource`], since it contains its values as written.
fn plain_atom(field: Field, test: AtomTest) -> Atom {
    Atom {
        field,
        test,
        sources: [].into(),
    }
}

fn text_atom(field: &Field, kind: TextKind, case: CaseSensitivity, form: TextForm) -> Atom {
    plain_atom(
        field.clone(),
        AtomTest::Text(TextTest::new(kind, case, form)),
    )
}

fn atom_condition(atom: Atom) -> Condition {
    Condition::Atom(Box::new(atom))
}

pub(super) fn value_problem(value: &LocatedText, error: InvalidValue) -> Problem {
    let problem = Problem::error(&value.place, error.message).with_found(&*value.value);
    Problem {
        help: error.help,
        ..problem
    }
}

/// Returns the constructor of a test on plain values.
fn text_kind(kind: TextTestKind) -> fn(Box<[Box<str>]>) -> TextKind {
    match kind {
        TextTestKind::Exact | TextTestKind::Regex | TextTestKind::Glob => TextKind::Exact,
        TextTestKind::Prefix | TextTestKind::Site => TextKind::Prefix,
        TextTestKind::Suffix => TextKind::Suffix,
        TextTestKind::Contains => TextKind::Contains,
        TextTestKind::Domain => TextKind::Domain,
        TextTestKind::Ext => TextKind::Ext,
        TextTestKind::Under => TextKind::Under,
        TextTestKind::Surt => TextKind::Surt,
    }
}

/// Keeps a value with a single form as text; builds a regular expression for one with several
/// forms.
fn plain_or_regex(
    kind: TextTestKind,
    value: EscapedText,
    case: CaseSensitivity,
    expressions: &mut ExpressionInterner<'_>,
) -> Result<CompiledText, InvalidValue> {
    let Some(pattern) = value.pattern else {
        return Ok(CompiledText::Plain(vec![value.text.into()]));
    };
    let anchored = match kind {
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
    regex::compile_generated(&anchored, case, expressions).map(CompiledText::Regex)
}

fn compile_glob(
    field: &Field,
    case: CaseSensitivity,
    form: TextForm,
    text: &str,
    expressions: &mut ExpressionInterner<'_>,
) -> Result<CompiledText, InvalidValue> {
    let mut first_error = None;
    let pattern = regex::glob_to_pattern(text, |literal| {
        match canonical::value(field, TextTestKind::Contains, case, form, literal) {
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
        None => regex::compile_generated(&pattern, case, expressions).map(CompiledText::Regex),
    }
}

/// Returns the field that a list is compared with if the condition names none.
fn default_field(kind: ListKind) -> Option<Field> {
    match kind {
        ListKind::Domains | ListKind::Hosts => Some(Field::Host),
        ListKind::Urls | ListKind::UrlPrefixes | ListKind::Surts => Some(Field::Url),
        ListKind::Addresses => Some(Field::Address),
        ListKind::Values => None,
    }
}

/// Parses a network; an IPv4-mapped one becomes the IPv4 network, as with addresses.
pub(super) fn parse_network(text: &str) -> Option<IpNet> {
    if let Ok(network) = text.parse::<IpNet>() {
        return Some(unmap_ipv4(network.trunc()));
    }
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Some(IpNet::from(address.to_canonical()));
    }
    let (address, mask) = text.split_once(char::is_whitespace)?;
    let (address, mask): (Ipv4Addr, Ipv4Addr) = (address.parse().ok()?, mask.trim().parse().ok()?);
    Ipv4Net::with_netmask(address, mask)
        .ok()
        .map(|network| IpNet::V4(network.trunc()))
}

fn unmap_ipv4(network: IpNet) -> IpNet {
    if let IpNet::V6(v6) = network
        && let (Some(v4), Some(length)) =
            (v6.addr().to_ipv4_mapped(), v6.prefix_len().checked_sub(96))
        && let Ok(v4) = Ipv4Net::new(v4, length)
    {
        return IpNet::V4(v4);
    }
    network
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_in_every_spelling() {
        for (text, expected) in [
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("10.1.2.3", Some("10.1.2.3/32")),
            ("9.0.0.0 255.0.0.0", Some("9.0.0.0/8")),
            ("0.0.0.0 0.0.0.0", Some("0.0.0.0/0")),
            ("::ffff:10.0.0.0/104", Some("10.0.0.0/8")),
            ("2001:db8::/32", Some("2001:db8::/32")),
            ("10.0.0.0/33", None),
            ("9.0.0.0 255.0.255.0", None),
            ("example.com", None),
        ] {
            assert_eq!(
                parse_network(text).map(|n| n.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }
}
