//! Compiles conditions of the source tree.

mod alternatives;
mod range;
pub(super) mod text_comparison;
pub(super) mod warnings;

use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::policy::condition::{Atom, AtomTest, Condition};
use crate::policy::expression::table::ExpressionInterner;
use crate::policy::field::{Field, ValueType};
use crate::policy::list::ListKind;
use crate::policy::pattern::{
    CaseSensitivity, CountTestKind, Networks, Ranges, TextForm, TextKind, TextTest,
};
use crate::policy::source::tree::{
    Located, LocatedText, SourceAtom, SourceCondition, SourceRange, SourceTest, TextTestKind,
};

use super::canonical::InvalidValue;
use super::lists::{self, ListTable};
use super::regex::PatternError;
use text_comparison::{TextComparison, TextValues};
use warnings::ValueWarning;

/// Compiles conditions one at a time.
pub(super) struct ConditionCompiler<'a, 's, 'p> {
    /// The lists that conditions may name.
    pub(super) lists: &'a mut ListTable<'s>,
    pub(super) expressions: &'a mut ExpressionInterner<'p>,
    /// Errors that are reported regardless of `on_invalid_rule`.
    pub(super) problems: &'a mut Problems,
    /// Parts that cannot be compiled: `on_invalid_rule` determines their severity.
    pub(super) invalid: Vec<Problem>,
    /// `true` if a value matches no URL.
    pub(super) has_dead_values: bool,
}

impl ConditionCompiler<'_, '_, '_> {
    /// Compiles a condition. An invalid part is reported and replaced by `always`.
    pub(super) fn compile(&mut self, source: &SourceCondition) -> Condition {
        match source {
            SourceCondition::Always => Condition::Always,
            SourceCondition::All(parts) => {
                Condition::All(parts.iter().map(|p| self.compile(p)).collect())
            }
            SourceCondition::Any(parts) => {
                let parts = alternatives::joined(parts);
                let parts: Box<[Condition]> = parts.iter().map(|p| self.compile(p)).collect();
                Condition::Any(parts)
            }
            SourceCondition::Not(part) => Condition::Not(Box::new(self.compile(part))),
            SourceCondition::Atom(atom) => self.compile_atom(atom),
            SourceCondition::TakenOver(condition) => self.take_over(condition),
        }
    }

    /// Returns a condition that the policy before has compiled.
    fn take_over(&mut self, condition: &Condition) -> Condition {
        condition.for_each_atom(&mut |atom| {
            if let AtomTest::Text(test) = &atom.test {
                let expressions = test.kind.expressions();
                expressions
                    .iter()
                    .for_each(|expression| self.expressions.take_over(expression));
            }
        });
        condition.clone()
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

    fn compile_text(
        &mut self,
        atom: &SourceAtom,
        field: &Field,
        kind: TextTestKind,
        values: &[LocatedText],
    ) -> Vec<Atom> {
        let comparison = TextComparison::new(field, kind, atom.case, atom.form);
        let mut compiled_values = TextValues::new(&comparison);
        for value in values {
            let compiled = comparison.compile(&value.value, self.expressions);
            self.warn(
                value,
                comparison.warnings(&value.value, compiled.as_ref().ok()),
            );
            match compiled {
                Ok(compiled) => compiled_values.push(&value.value, compiled),
                Err(error) if kind == TextTestKind::Regex => {
                    self.report_invalid_pattern(value, error);
                }
                Err(error) => self.problems.push(value_problem(value, error.error)),
            }
        }
        let tests = compiled_values.into_tests().into_iter();
        tests
            .map(|(test, sources)| Atom {
                field: field.clone(),
                test: AtomTest::Text(test),
                sources,
            })
            .collect()
    }

    fn warn(&mut self, value: &LocatedText, warnings: Vec<ValueWarning>) {
        for warning in warnings {
            self.has_dead_values |= warning.matches_nothing;
            self.problems.push(warning.into_problem(value));
        }
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
        kind: CountTestKind,
        ranges: &[Located<SourceRange>],
    ) -> Vec<Atom> {
        let ranges = self.compile_ranges(ranges, field);
        let field = match kind {
            CountTestKind::Length => field.clone(),
            CountTestKind::Segments | CountTestKind::Repeats => Field::Path,
            CountTestKind::Params => Field::Query,
        };
        let atom = text_atom(
            &field,
            TextKind::Count(kind, ranges),
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
        if let Ok(written) = value.value.parse::<IpNet>()
            && written != written.trunc()
        {
            let message = "the address has bits after the network's length, which are ignored";
            let problem = Problem::warning(&value.place, message).with_found(&*value.value);
            self.problems
                .push(problem.with_help(format!("the network is {}", written.trunc())));
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
        let tests: Vec<Condition> = names
            .iter()
            .filter_map(|name| self.compile_list_test(atom, name, field))
            .collect();
        match <[Condition; 1]>::try_from(tests) {
            Ok([only]) => only,
            Err(tests) if tests.is_empty() => Condition::Always,
            Err(tests) => Condition::Any(tests.into()),
        }
    }

    fn compile_list_test(
        &mut self,
        atom: &SourceAtom,
        name: &LocatedText,
        field: Option<&Field>,
    ) -> Option<Condition> {
        let Some((index, kind)) = self.lists.find(&name.value) else {
            self.problems.push(self.lists.unknown_list(name));
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
        self.check_list_test(atom, name, kind, &field)?;
        if let Some(test) = lists::doubtful_kind(kind, &field) {
            let comparison = TextComparison::new(&field, test, atom.case, atom.form);
            self.lists.record_comparison(index, comparison);
        }
        let index = if let Some(pattern) = lists::pattern_kind(kind) {
            let comparison = TextComparison::new(&field, pattern, atom.case, atom.form);
            self.lists
                .compared_patterns(index, comparison, self.expressions, self.problems)
        } else if field.ignores_case() {
            self.lists.lowercase_copy(index)
        } else {
            index
        };
        Some(atom_condition(plain_atom(field, AtomTest::InList(index))))
    }

    /// Reports a list whose items cannot be compared with a field, or not in this way.
    fn check_list_test(
        &mut self,
        atom: &SourceAtom,
        name: &LocatedText,
        kind: ListKind,
        field: &Field,
    ) -> Option<()> {
        let is_pattern = lists::pattern_kind(kind).is_some();
        let is_modified =
            atom.case == CaseSensitivity::Insensitive || atom.form == TextForm::Normalized;
        if is_modified && !is_pattern {
            let message = "`case` and `norm` cannot be used with `in`: the kind of the list determines how items are compared";
            self.problems.push(Problem::error(&atom.place, message));
        }
        let message = if (kind == ListKind::Addresses) != (field.value_type() == ValueType::Address)
        {
            "lists of addresses can be used with `address` only, and `address` with no other lists"
        } else if is_pattern && field.value_type() != ValueType::Text {
            "lists of substrings, globs and regexes can be compared with text only"
        } else {
            return Some(());
        };
        let problem = Problem::error(&name.place, message);
        self.problems.push(problem.with_found(&*name.value));
        None
    }
}

/// Creates a test without sources, since it contains its values as written.
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
    Condition::Atom(Arc::new(atom))
}

pub(super) fn value_problem(value: &LocatedText, error: InvalidValue) -> Problem {
    let problem = Problem::error(&value.place, error.message).with_found(&*value.value);
    Problem {
        help: error.help,
        ..problem
    }
}

/// Returns the field that a list is compared with if the condition names none.
fn default_field(kind: ListKind) -> Option<Field> {
    match kind {
        ListKind::Domains | ListKind::Hosts => Some(Field::Host),
        ListKind::Urls
        | ListKind::UrlPrefixes
        | ListKind::Surts
        | ListKind::Substrings
        | ListKind::Globs
        | ListKind::Regexes => Some(Field::Url),
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
