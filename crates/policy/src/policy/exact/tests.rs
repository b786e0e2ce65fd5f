//! The tests of a policy's conditions, each once, as automata where that is possible.

use std::collections::HashMap;
use std::fmt::Write as _;

use ipnet::IpNet;

use crate::policy::condition::{Atom, AtomTest, Condition};
use crate::policy::field::{Field, ValueType};
use crate::policy::host_pace::HostScope;
use crate::policy::list::{ListItems, ListKind, PolicyList};
use crate::policy::pattern::{
    CaseSensitivity, CountTestKind, LiteralTestKind, Ranges, TextForm, TextKind, TextTest,
};

use super::automaton::{Alphabet, LiteralPlace, TextAutomaton};
use super::formula::{Formula, TestIndex};
use super::url_position::{PortDefault, UrlRegions};

/// The maximum number of SURT prefixes in one test.
const MAX_SURTS: usize = 200;

/// A test of one field.
#[derive(Debug)]
pub(super) enum ExactTest {
    /// A test of a part of the URL.
    Url(UrlTest),
    /// A test of another text.
    Text(Field, TextAutomaton),
    Number(Field, Ranges),
    Address(Vec<IpNet>),
    /// A test that is not analysed: it may be true or false anywhere.
    Free(&'static str),
}

impl ExactTest {
    /// The size of its automaton, in transitions.
    fn size(&self) -> usize {
        match self {
            Self::Url(url) => url.automaton.size(),
            Self::Text(_, automaton) => automaton.size(),
            Self::Number(..) | Self::Address(_) | Self::Free(_) => 0,
        }
    }
}

/// A test of a part of the URL.
#[derive(Debug)]
pub(super) struct UrlTest {
    pub(super) regions: UrlRegions,
    pub(super) automaton: TextAutomaton,
    /// The result for a URL without a port, by its scheme; `None` for tests of other parts, which
    /// are empty texts if they are missing.
    pub(super) without_port: Option<[bool; 2]>,
    /// `true` if the test counts characters or parts.
    pub(super) counts: bool,
}

impl UrlTest {
    /// The result for a URL without this part.
    pub(super) fn absent(&self, port: Option<PortDefault>) -> bool {
        match (self.without_port, port) {
            (Some([http, _]), Some(PortDefault::Http)) => http,
            (Some([_, https]), Some(PortDefault::Https)) => https,
            (Some(_), None) | (None, _) => self.automaton.accepts(""),
        }
    }
}

/// The text in which characters are counted, if a reading of a URL is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Canonical,
    Reading,
}

/// The tests of a policy, or of two.
#[derive(Debug, Default)]
pub(super) struct TestTable {
    tests: Vec<ExactTest>,
    by_key: HashMap<String, TestIndex>,
    /// The size of the automata that were built since it was taken.
    size: usize,
}

impl TestTable {
    pub(super) fn get(&self, test: TestIndex) -> Option<&ExactTest> {
        self.tests.get(test.0)
    }

    /// Returns the size of the automata that were built since the last call, in transitions.
    pub(super) fn take_size(&mut self) -> usize {
        std::mem::take(&mut self.size)
    }

    /// Converts a condition.
    pub(super) fn condition(&mut self, condition: &Condition, lists: &[PolicyList]) -> Formula {
        match condition {
            Condition::Always => Formula::Constant(true),
            Condition::All(parts) => {
                let parts: Vec<Formula> = parts
                    .iter()
                    .map(|part| self.condition(part, lists))
                    .collect();
                Formula::all(parts)
            }
            Condition::Any(parts) => {
                let parts: Vec<Formula> = parts
                    .iter()
                    .map(|part| self.condition(part, lists))
                    .collect();
                Formula::any(parts)
            }
            Condition::Not(part) => self.condition(part, lists).negate(),
            Condition::Atom(atom) => self.atom(atom, lists),
        }
    }

    /// Returns the test that a crawler has one of these names.
    pub(super) fn crawlers(&mut self, names: &[&str]) -> Formula {
        let key = format!("crawlers {names:?}");
        self.intern(key, || {
            let names = names.iter().map(|name| (*name, LiteralPlace::Whole));
            let automaton = TextAutomaton::from_literals(names, CaseSensitivity::Sensitive)?;
            Ok(ExactTest::Text(Field::Crawler, automaton))
        })
    }

    /// Returns the test that a URL begins with a text.
    pub(super) fn url_prefix(&mut self, prefix: &str) -> Formula {
        self.literals(
            &Field::Url,
            &[(prefix, LiteralPlace::Start)],
            CaseSensitivity::Sensitive,
        )
    }

    /// Returns the test that a part of the URL is one of these texts.
    pub(super) fn exact(&mut self, field: &Field, text: &str) -> Formula {
        self.literals(
            field,
            &[(text, LiteralPlace::Whole)],
            CaseSensitivity::Sensitive,
        )
    }

    fn intern(
        &mut self,
        key: String,
        build: impl FnOnce() -> Result<ExactTest, &'static str>,
    ) -> Formula {
        if let Some(test) = self.by_key.get(&key) {
            return Formula::Test(*test);
        }
        let index = TestIndex(self.tests.len());
        let test = build().unwrap_or_else(ExactTest::Free);
        self.size += test.size();
        self.tests.push(test);
        self.by_key.insert(key, index);
        Formula::Test(index)
    }

    fn atom(&mut self, atom: &Atom, lists: &[PolicyList]) -> Formula {
        match &atom.test {
            AtomTest::Text(test) => self.text(&atom.field, test),
            AtomTest::Number(ranges) => self.number(&atom.field, ranges),
            AtomTest::Address(networks) => {
                let key = format!("address {:?}", networks.0);
                self.intern(key, || Ok(ExactTest::Address(networks.0.to_vec())))
            }
            AtomTest::InList(list) => match lists.get(*list) {
                Some(list) => self.list(&atom.field, list),
                None => Formula::Constant(false),
            },
        }
    }

    fn number(&mut self, field: &Field, ranges: &Ranges) -> Formula {
        let key = format!("number {field:?} {ranges:?}");
        self.intern(key, || {
            if *field != Field::Port {
                return Ok(ExactTest::Number(field.clone(), ranges.clone()));
            }
            let pattern = decimal_pattern(ranges);
            let case = CaseSensitivity::Sensitive;
            Ok(ExactTest::Url(UrlTest {
                regions: UrlRegions::PORT,
                automaton: TextAutomaton::from_expression(&pattern, case, Alphabet::Ascii)?,
                without_port: Some([80, 443].map(|port| ranges.contains(port))),
                counts: false,
            }))
        })
    }

    fn list(&mut self, field: &Field, list: &PolicyList) -> Formula {
        // Two policies may have different lists of one name.
        let key = format!("list {field:?} {:?} {:p}", list.kind, list);
        if let Some(test) = self.by_key.get(&key) {
            return Formula::Test(*test);
        }
        let texts: Vec<&str> = match &list.items {
            ListItems::Set(set) => set.texts().iter().collect(),
            ListItems::Prefixes(items) => items.texts().iter().collect(),
            ListItems::Networks(networks) => {
                let networks = networks.to_vec();
                return self.intern(key, || Ok(ExactTest::Address(networks)));
            }
            ListItems::Patterns(patterns) => {
                let parts: Vec<Formula> = patterns
                    .tests()
                    .iter()
                    .map(|test| self.text(field, test))
                    .collect();
                return Formula::any(parts);
            }
        };
        if field.value_type() == ValueType::Number {
            return self.intern(key, || Err("a list of numbers"));
        }
        let place = match (list.kind, field) {
            (ListKind::Domains, Field::Host) => LiteralPlace::Domain,
            (ListKind::UrlPrefixes, Field::Url) => LiteralPlace::Start,
            (ListKind::Surts, Field::Url) => {
                return self.surts(&texts, CaseSensitivity::Sensitive);
            }
            _ => LiteralPlace::Whole,
        };
        let literals: Vec<(&str, LiteralPlace)> =
            texts.into_iter().map(|text| (text, place)).collect();
        self.intern(key, || {
            literal_test(field, &literals, CaseSensitivity::Sensitive)
        })
    }

    /// Converts a test of a text.
    pub(super) fn text(&mut self, field: &Field, test: &TextTest) -> Formula {
        if test.form == TextForm::Normalized {
            let key = format!("norm {field:?} {test:?}");
            return self.intern(key, || Err("`norm: true`"));
        }
        let (kind, values) = match &test.kind {
            TextKind::Literal(kind, values) => (kind, values),
            TextKind::Regex(regexes) => {
                let parts: Vec<Formula> = regexes
                    .iter()
                    .map(|regex| self.expression(field, regex.as_str(), test.case))
                    .collect();
                return Formula::any(parts);
            }
            TextKind::Count(CountTestKind::Length, ranges) => {
                return self.count(field, ranges, None);
            }
            TextKind::Count(CountTestKind::Segments, ranges) => {
                return self.count(field, ranges, Some(b'/'));
            }
            TextKind::Count(CountTestKind::Params, ranges) => {
                return self.count(field, ranges, Some(b'&'));
            }
            TextKind::Count(CountTestKind::Repeats, _) => {
                let key = format!("repeats {field:?} {test:?}");
                return self.intern(key, || Err("`repeats`"));
            }
        };
        let place = match kind {
            LiteralTestKind::Exact => LiteralPlace::Whole,
            LiteralTestKind::Prefix => LiteralPlace::Start,
            LiteralTestKind::Suffix => LiteralPlace::End,
            LiteralTestKind::Contains => LiteralPlace::Anywhere,
            LiteralTestKind::Domain => LiteralPlace::Domain,
            LiteralTestKind::Ext => LiteralPlace::Extension,
            LiteralTestKind::Under => LiteralPlace::Directory,
            LiteralTestKind::Surt => {
                let values: Vec<&str> = values.iter().map(|value| &**value).collect();
                return self.surts(&values, test.case);
            }
        };
        let case = match place {
            LiteralPlace::Extension => CaseSensitivity::Insensitive,
            LiteralPlace::Domain => CaseSensitivity::Sensitive,
            LiteralPlace::Whole
            | LiteralPlace::Start
            | LiteralPlace::End
            | LiteralPlace::Anywhere
            | LiteralPlace::Directory => test.case,
        };
        if let Field::Param(name) = field {
            let key = format!("param {name} {place:?} {case:?} {values:?}");
            return self.intern(key, || param_test(name, values, place, case));
        }
        let literals: Vec<(&str, LiteralPlace)> =
            values.iter().map(|value| (&**value, place)).collect();
        self.literals(field, &literals, case)
    }

    /// Returns the requests for hosts, of which some are domains.
    pub(super) fn hosts(&mut self, hosts: &[(&str, HostScope)]) -> Formula {
        let literals: Vec<(&str, LiteralPlace)> = hosts
            .iter()
            .map(|(name, scope)| match scope {
                HostScope::Exact => (*name, LiteralPlace::Whole),
                HostScope::Domain => (*name, LiteralPlace::Domain),
            })
            .collect();
        self.literals(&Field::Host, &literals, CaseSensitivity::Sensitive)
    }

    fn literals(
        &mut self,
        field: &Field,
        literals: &[(&str, LiteralPlace)],
        case: CaseSensitivity,
    ) -> Formula {
        let key = format!("text {field:?} {case:?} {literals:?}");
        self.intern(key, || literal_test(field, literals, case))
    }

    pub(super) fn expression(
        &mut self,
        field: &Field,
        pattern: &str,
        case: CaseSensitivity,
    ) -> Formula {
        let key = format!("regex {field:?} {case:?} {pattern}");
        self.intern(key, || {
            let regions = UrlRegions::of_field(field);
            if let Field::Param(_) = field {
                return Err("an expression on a parameter");
            }
            let alphabet = regions.map_or(Alphabet::Unicode, |_| Alphabet::Ascii);
            let automaton = TextAutomaton::from_expression(pattern, case, alphabet)?;
            Ok(text_test(field, automaton))
        })
    }

    fn count(&mut self, field: &Field, ranges: &Ranges, separator: Option<u8>) -> Formula {
        let counted = self.counted(field, ranges, separator, Counted::Canonical);
        let last = ranges.0.iter().map(|(_, to)| *to).max();
        let Some(last) = last.filter(|last| separator.is_none() && *last < u64::MAX) else {
            return counted;
        };
        // No reading of a URL is longer than the URL.
        let bound = Ranges([(0, last)].into());
        Formula::all([
            counted,
            self.counted(field, &bound, separator, Counted::Reading),
        ])
    }

    fn counted(
        &mut self,
        field: &Field,
        ranges: &Ranges,
        separator: Option<u8>,
        counted: Counted,
    ) -> Formula {
        let key = format!("count {field:?} {separator:?} {counted:?} {ranges:?}");
        self.intern(key, || {
            // Other texts may have characters of several bytes.
            let regions = UrlRegions::of_field(field).ok_or("the length of another text")?;
            let automaton = TextAutomaton::from_count(ranges, separator)?;
            Ok(ExactTest::Url(UrlTest {
                regions,
                automaton,
                without_port: None,
                // Readings have as many parameters as the URL.
                counts: counted == Counted::Canonical && separator != Some(b'&'),
            }))
        })
    }

    fn surts(&mut self, values: &[&str], case: CaseSensitivity) -> Formula {
        let key = format!("surt {case:?} {values:?}");
        self.intern(key, || {
            if values.len() > MAX_SURTS {
                return Err("a long list of SURTs");
            }
            let patterns: Vec<String> = values.iter().map(|value| surt_pattern(value)).collect();
            let pattern = patterns.join("|");
            let automaton = TextAutomaton::from_expression(
                &pattern,
                CaseSensitivity::Sensitive,
                Alphabet::Ascii,
            )?;
            Ok(text_test(&Field::AuthorityPathQuery, automaton))
        })
    }
}

fn literal_test(
    field: &Field,
    literals: &[(&str, LiteralPlace)],
    case: CaseSensitivity,
) -> Result<ExactTest, &'static str> {
    if let Field::Param(_) = field {
        return Err("a list of values of a parameter");
    }
    let automaton = TextAutomaton::from_literals(literals.iter().copied(), case)?;
    Ok(text_test(field, automaton))
}

fn text_test(field: &Field, automaton: TextAutomaton) -> ExactTest {
    match UrlRegions::of_field(field) {
        Some(regions) => ExactTest::Url(UrlTest {
            regions,
            automaton,
            without_port: None,
            counts: false,
        }),
        None => ExactTest::Text(field.clone(), automaton),
    }
}

/// Returns the test that a parameter of the query has a value, or begins with it.
fn param_test(
    name: &str,
    values: &[Box<str>],
    place: LiteralPlace,
    case: CaseSensitivity,
) -> Result<ExactTest, &'static str> {
    let is_plain = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b == b' ' || b.is_ascii_graphic() && b != b'%')
    };
    let end = match place {
        LiteralPlace::Whole => "(?:&|\\z)",
        LiteralPlace::Start => "",
        LiteralPlace::End
        | LiteralPlace::Anywhere
        | LiteralPlace::Domain
        | LiteralPlace::Extension
        | LiteralPlace::Directory => return Err("a part of a parameter"),
    };
    if !is_plain(name) || !values.iter().all(|value| is_plain(value)) {
        return Err("a parameter with special characters");
    }
    let values: Vec<String> = values
        .iter()
        .map(|value| decoded_pattern(value, case, b"+&"))
        .collect();
    // The first `=` ends the name.
    let name = decoded_pattern(name, CaseSensitivity::Sensitive, b"+&=");
    let pattern = format!("(?:\\A|&){name}=(?:{}){end}", values.join("|"));
    let automaton =
        TextAutomaton::from_expression(&pattern, CaseSensitivity::Sensitive, Alphabet::Ascii)?;
    Ok(text_test(&Field::Query, automaton))
}

/// Returns a pattern for all texts of a query that are decoded to a text of ASCII characters. Some
/// bytes occur only as escapes.
fn decoded_pattern(text: &str, case: CaseSensitivity, only_escaped: &[u8]) -> String {
    let mut pattern = String::new();
    for byte in text.bytes() {
        let mut forms = vec![escape_pattern(byte)];
        if byte == b' ' {
            forms.push("\\+".to_owned());
        } else if !only_escaped.contains(&byte) {
            forms.push(regex_syntax::escape(&char::from(byte).to_string()));
        }
        if case == CaseSensitivity::Insensitive && byte.is_ascii_alphabetic() {
            // The other case: 0x20 is the bit that differs.
            let other = byte ^ 0x20;
            forms.extend([escape_pattern(other), char::from(other).to_string()]);
        }
        // Writing to a string does not fail.
        let _ = write!(pattern, "(?:{})", forms.join("|"));
    }
    pattern
}

/// Returns a pattern for the escape of a byte, with digits in either case.
fn escape_pattern(byte: u8) -> String {
    format!("%(?i:{byte:02X})")
}

/// Returns a pattern for the authority, path and query of URLs whose SURT form begins with a
/// text.
fn surt_pattern(surt: &str) -> String {
    let Some((host, rest)) = surt.split_once(')') else {
        return open_surt_pattern(surt);
    };
    let (labels, port) = host.split_at(surt_port(host));
    let host = if labels.ends_with(',') {
        reversed_labels(labels.trim_end_matches(','))
    } else {
        labels.to_owned()
    };
    format!(
        "\\A{}",
        regex_syntax::escape(&format!("{host}{port}{rest}"))
    )
}

/// Returns the offset of the port in the host of a SURT.
fn surt_port(host: &str) -> usize {
    match host.rfind(':') {
        Some(colon) if !host.ends_with(']') => colon,
        Some(_) | None => host.len(),
    }
}

/// Returns the pattern for a SURT that ends within the host or the port.
fn open_surt_pattern(surt: &str) -> String {
    let is_address = surt.starts_with('[');
    let at = if is_address {
        surt.len()
    } else {
        surt_port(surt)
    };
    let (labels, port) = surt.split_at(at);
    if !port.is_empty() && labels.ends_with(',') {
        let host = reversed_labels(labels.trim_end_matches(','));
        return format!("\\A{}", regex_syntax::escape(&format!("{host}{port}")));
    }
    let host_end = r"(?::[0-9]+)?/";
    let Some((whole, part)) = labels.rsplit_once(',') else {
        // An address keeps its order.
        if is_address || labels.starts_with(|c: char| c.is_ascii_digit()) {
            return format!("\\A{}", regex_syntax::escape(surt));
        }
        let part = regex_syntax::escape(labels);
        return format!(r"\A(?:[^/:]*\.)?{part}[^./:]*{host_end}");
    };
    let whole = regex_syntax::escape(&reversed_labels(whole));
    if part.is_empty() {
        return format!(r"\A(?:[^/:]*\.)?{whole}{host_end}");
    }
    let part = regex_syntax::escape(part);
    format!(r"\A(?:[^/:]*\.)?{part}[^./:]*\.{whole}{host_end}")
}

fn reversed_labels(labels: &str) -> String {
    let labels: Vec<&str> = labels.rsplit(',').collect();
    labels.join(".")
}

/// Returns a pattern for the decimal numbers of up to five digits in the ranges.
fn decimal_pattern(ranges: &Ranges) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (from, to) in &ranges.0 {
        let to = (*to).min(99_999);
        let mut from = *from;
        while from <= to {
            // The largest block `from..from + 10^n` that is aligned and within the range.
            let mut size = 1;
            while from % (size * 10) == 0 && from + size * 10 - 1 <= to && from != 0 {
                size *= 10;
            }
            let digits = size.ilog10();
            let head = from / size;
            parts.push(format!("{head}[0-9]{{{digits}}}"));
            from += size;
        }
    }
    if parts.is_empty() {
        return r"[^\x00-\x7f]".to_owned();
    }
    format!("\\A(?:{})\\z", parts.join("|"))
}
