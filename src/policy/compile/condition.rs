//! From conditions as written to conditions that can be evaluated.

mod doubts;
mod range;

use std::net::Ipv4Addr;

use ::regex::Regex;
use ipnet::{IpNet, Ipv4Net};

use crate::policy::condition::{Atom, Condition, Test, Written};
use crate::policy::field::{Field, ValueType};
use crate::policy::list::ListKind;
use crate::policy::pattern::{Case, Form, Networks, Ranges, TextKind, TextTest};
use crate::policy::source::tree::{
    At, CountWord, SourceAtom, SourceCondition, SourceRange, SourceTest, Text, TextWord,
};
use crate::vocab::problem::Problem;
use crate::vocab::problems::Problems;

use super::canonical::{self, Mistake};
use super::escape::Escaped;
use super::lists::Lists;
use super::regex::{self, PatternMistake};

/// Compiles conditions one after the other.
pub(super) struct Conditions<'a> {
    /// The lists that they may name.
    pub(super) lists: &'a mut Lists,
    /// What is wrong however `on_invalid_rule` stands.
    pub(super) problems: &'a mut Problems,
    /// What cannot be compiled: `on_invalid_rule` decides what becomes of it.
    pub(super) invalid: Vec<Problem>,
}

impl Conditions<'_> {
    /// The condition. A part that is wrong was reported, and `always` stands in its place.
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
            SourceCondition::Atom(atom) => self.atom(atom),
        }
    }

    fn atom(&mut self, atom: &SourceAtom) -> Condition {
        let mut tests: Vec<Atom> = match (&atom.test, &atom.field) {
            (SourceTest::In(names), field) => return self.member(atom, names, field.as_ref()),
            (_, None) => Vec::new(),
            (SourceTest::Text(word, values), Some(field)) => self.text(atom, field, *word, values),
            (SourceTest::Count(word, ranges), Some(field)) => self.count(field, *word, ranges),
            (SourceTest::Number(ranges), Some(field)) => {
                let ranges = self.ranges(ranges, field);
                vec![plain(field.clone(), Test::Number(ranges))]
            }
            (SourceTest::Networks(values), Some(field)) => {
                let networks = values
                    .iter()
                    .filter_map(|value| self.network(value))
                    .collect();
                vec![plain(field.clone(), Test::Address(Networks(networks)))]
            }
        };
        let last = tests.pop().map(condition_of);
        match last {
            None => Condition::Always,
            Some(only) if tests.is_empty() => only,
            Some(last) => {
                Condition::Any(tests.into_iter().map(condition_of).chain([last]).collect())
            }
        }
    }

    /// One test for the values that are plain text, and one for those that became expressions.
    fn text(
        &mut self,
        atom: &SourceAtom,
        field: &Field,
        word: TextWord,
        values: &[Text],
    ) -> Vec<Atom> {
        let case = if field.ignores_case() {
            Case::Ignore
        } else {
            atom.case
        };
        let mut texts: Vec<Box<str>> = Vec::new();
        let mut regexes: Vec<Regex> = Vec::new();
        let mut written: Vec<Written> = Vec::new();
        for value in values {
            self.problems_of(doubts::of_value(field, word, value));
            match self.one_text(field, word, case, atom.form, value) {
                Some(Compiled::Plain(forms)) => texts.extend(forms),
                Some(Compiled::Regex(regex)) => {
                    regexes.push(regex);
                    written.push(Written {
                        kind: word.as_str(),
                        text: value.value.clone(),
                    });
                }
                None => {}
            }
        }
        let test = |kind| {
            Test::Text(TextTest {
                kind,
                case,
                form: atom.form,
            })
        };
        let mut tests = Vec::new();
        if !texts.is_empty() {
            tests.push(plain(field.clone(), test(kind_of(word)(texts.into()))));
        }
        if !regexes.is_empty() {
            let test = test(TextKind::Regex(regexes.into()));
            tests.push(Atom {
                written: written.into(),
                ..plain(field.clone(), test)
            });
        }
        tests
    }

    fn one_text(
        &mut self,
        field: &Field,
        word: TextWord,
        case: Case,
        form: Form,
        value: &Text,
    ) -> Option<Compiled> {
        let text = &*value.value;
        let compiled = match word {
            TextWord::Regex => match regex::compile(text, canonical::region(field), case) {
                Ok(regex) => return Some(Compiled::Regex(regex)),
                Err(mistake) => {
                    self.invalid_pattern(value, mistake);
                    return None;
                }
            },
            TextWord::Glob => self::glob(field, case, form, text),
            TextWord::Site => canonical::site(text).map(|sites| {
                Compiled::Plain(sites.into_iter().map(|site| site.text.into()).collect())
            }),
            TextWord::Surt => {
                canonical::surt_prefix(text).map(|surt| Compiled::Plain(vec![surt.into()]))
            }
            TextWord::Exact
            | TextWord::Prefix
            | TextWord::Suffix
            | TextWord::Contains
            | TextWord::Domain
            | TextWord::Ext
            | TextWord::Under => canonical::value(field, word, case, form, text)
                .and_then(|value| plain_or_regex(word, value, case)),
        };
        compiled
            .map_err(|mistake| self.problems.push(problem(value, mistake)))
            .ok()
    }

    fn invalid_pattern(&mut self, value: &Text, PatternMistake { mistake, at }: PatternMistake) {
        let problem = problem(value, mistake);
        self.invalid.push(Problem {
            within: at,
            ..problem
        });
    }

    /// What is counted is a thing of the path or the query, whichever part of the URL the kind stands under.
    fn count(&mut self, field: &Field, word: CountWord, ranges: &[At<SourceRange>]) -> Vec<Atom> {
        let ranges = self.ranges(ranges, field);
        let (field, kind) = match word {
            CountWord::Length => (field.clone(), TextKind::Length(ranges)),
            CountWord::Segments => (Field::Path, TextKind::Segments(ranges)),
            CountWord::Repeats => (Field::Path, TextKind::Repeats(ranges)),
            CountWord::Params => (Field::Query, TextKind::Params(ranges)),
        };
        let test = TextTest {
            kind,
            case: Case::Distinguish,
            form: Form::Canonical,
        };
        vec![plain(field, Test::Text(test))]
    }

    fn ranges(&mut self, ranges: &[At<SourceRange>], field: &Field) -> Ranges {
        let mut all = Vec::new();
        for range in ranges {
            match range::read(range, field) {
                Ok(range) => all.push(range),
                Err(problem) => self.invalid.push(*problem),
            }
        }
        Ranges(all.into())
    }

    /// `10.0.0.0/8`, one address, or an address and its netmask.
    fn network(&mut self, value: &Text) -> Option<IpNet> {
        let found = network(&value.value);
        if found.is_none() {
            let problem = Problem::error(&value.place, "not a network").found(&*value.value);
            self.invalid
                .push(problem.help("written like 10.0.0.0/8, 2001:db8::/32, or 9.0.0.0 255.0.0.0"));
        }
        found
    }

    /// Membership in any of some lists.
    fn member(&mut self, atom: &SourceAtom, names: &[Text], field: Option<&Field>) -> Condition {
        if atom.case == Case::Ignore || atom.form == Form::Normalised {
            let message =
                "`case` and `norm` do not work with `in`: items are compared as their kind says";
            self.problems.push(Problem::error(&atom.place, message));
        }
        let tests: Vec<Condition> = names
            .iter()
            .filter_map(|name| self.in_list(name, field))
            .collect();
        match <[Condition; 1]>::try_from(tests) {
            Ok([only]) => only,
            Err(tests) if tests.is_empty() => Condition::Always,
            Err(tests) => Condition::Any(tests.into()),
        }
    }

    fn in_list(&mut self, name: &Text, field: Option<&Field>) -> Option<Condition> {
        let Some((place, kind)) = self.lists.find(&name.value) else {
            let problem = Problem::error(&name.place, "no list of this name").found(&*name.value);
            let names: Vec<&str> = self.lists.names().collect();
            self.problems.push(if names.is_empty() {
                problem
            } else {
                problem.allowed(names)
            });
            return None;
        };
        let kind = kind?;
        let Some(field) = field.cloned().or_else(|| field_of(kind)) else {
            let problem = Problem::error(
                &name.place,
                "a list of values does not say which field it is compared with",
            );
            self.problems.push(
                problem
                    .found(&*name.value)
                    .help(format!("write `host: {{ in: {} }}`", name.value)),
            );
            return None;
        };
        if (kind == ListKind::Addresses) != (field.value_type() == ValueType::Address) {
            let problem = Problem::error(
                &name.place,
                "only `address` and lists of addresses go together",
            );
            self.problems.push(problem.found(&*name.value));
            return None;
        }
        let place = if field.ignores_case() {
            self.lists.in_lower_case(place)
        } else {
            place
        };
        Some(condition_of(plain(field, Test::In(place))))
    }

    fn problems_of(&mut self, problems: Vec<Problem>) {
        problems
            .into_iter()
            .for_each(|problem| self.problems.push(problem));
    }
}

/// A value after compilation.
enum Compiled {
    Plain(Vec<Box<str>>),
    Regex(Regex),
}

/// An atom whose test says itself what was written.
fn plain(field: Field, test: Test) -> Atom {
    Atom {
        field,
        test,
        written: [].into(),
    }
}

fn condition_of(atom: Atom) -> Condition {
    Condition::Atom(Box::new(atom))
}

pub(super) fn problem(value: &Text, mistake: Mistake) -> Problem {
    let problem = Problem::error(&value.place, mistake.message).found(&*value.value);
    Problem {
        help: mistake.help,
        ..problem
    }
}

/// The kind of test on plain values.
fn kind_of(word: TextWord) -> fn(Box<[Box<str>]>) -> TextKind {
    match word {
        TextWord::Exact | TextWord::Regex | TextWord::Glob => TextKind::Exact,
        TextWord::Prefix | TextWord::Site => TextKind::Prefix,
        TextWord::Suffix => TextKind::Suffix,
        TextWord::Contains => TextKind::Contains,
        TextWord::Domain => TextKind::Domain,
        TextWord::Ext => TextKind::Ext,
        TextWord::Under => TextKind::Under,
        TextWord::Surt => TextKind::Surt,
    }
}

/// A value with one form stays text; one with several becomes an expression for all of them.
fn plain_or_regex(word: TextWord, value: Escaped, case: Case) -> Result<Compiled, Mistake> {
    let Some(pattern) = value.pattern else {
        return Ok(Compiled::Plain(vec![value.text.into()]));
    };
    let anchored = match word {
        TextWord::Exact => format!(r"\A(?:{pattern})\z"),
        TextWord::Prefix => format!(r"\A(?:{pattern})"),
        TextWord::Suffix => format!(r"(?:{pattern})\z"),
        TextWord::Under => format!(r"\A(?:{pattern})(?:/|\z)"),
        TextWord::Contains
        | TextWord::Regex
        | TextWord::Glob
        | TextWord::Domain
        | TextWord::Ext
        | TextWord::Site
        | TextWord::Surt => pattern,
    };
    regex::compile_own(&anchored, case).map(Compiled::Regex)
}

fn glob(field: &Field, case: Case, form: Form, text: &str) -> Result<Compiled, Mistake> {
    let mut wrong = None;
    let pattern = regex::of_glob(text, |literal| {
        match canonical::value(field, TextWord::Contains, case, form, literal) {
            Ok(escaped) => escaped
                .pattern
                .unwrap_or_else(|| regex_syntax::escape(&escaped.text)),
            Err(mistake) => {
                wrong = Some(mistake);
                String::new()
            }
        }
    });
    match wrong {
        Some(mistake) => Err(mistake),
        None => regex::compile_own(&pattern, case).map(Compiled::Regex),
    }
}

/// The field that a list is compared with when the condition names none.
fn field_of(kind: ListKind) -> Option<Field> {
    match kind {
        ListKind::Domains | ListKind::Hosts => Some(Field::Host),
        ListKind::Urls | ListKind::UrlPrefixes | ListKind::Surts => Some(Field::Url),
        ListKind::Addresses => Some(Field::Address),
        ListKind::Values => None,
    }
}

/// A network as written; of an IPv4-mapped one the IPv4 network, as addresses are compared.
pub(super) fn network(text: &str) -> Option<IpNet> {
    if let Ok(network) = text.parse::<IpNet>() {
        return Some(unmapped(network.trunc()));
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

fn unmapped(network: IpNet) -> IpNet {
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
                network(text).map(|n| n.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }
}
