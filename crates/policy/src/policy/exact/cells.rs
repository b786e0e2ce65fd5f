//! The facts of a request besides its URL, in the combinations that tests distinguish.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;

use serde_json::{Map, Value as Json, json};

use crate::policy::field::{Field, ValueType};
use crate::policy::rule::PolicyStage;

use super::automaton::{Progress, TextAutomaton};
use super::formula::{Formula, TestIndex};
use super::tests::{ExactTest, TestTable};
use super::work::Work;

/// The maximum number of formulas about URLs that are left with different facts.
const MAX_CELLS: usize = 4_096;
/// The maximum number of states in the search for the texts of one field.
const MAX_STATES: usize = 50_000;
/// The work for a test of a formula that is simplified, in steps of automata.
const WORK_PER_TEST: usize = 10;

/// A combination of facts, with which a formula depends on the URL only.
#[derive(Clone, Debug)]
pub(super) struct FactCell {
    /// The formula with these facts.
    pub(super) remaining: Formula,
    /// The facts as in a case, without those that are absent.
    pub(super) facts: Map<String, Json>,
}

/// A value of one field, and the results of the tests of it.
#[derive(Clone, Debug)]
struct FieldCell {
    results: BTreeMap<TestIndex, bool>,
    /// The fact as in a case; `None` if it is absent.
    fact: Option<(String, Json)>,
}

/// The values of fields that tests distinguish.
#[derive(Debug, Default)]
pub(super) struct FieldCells {
    known: HashMap<(Field, Vec<TestIndex>), Rc<[FieldCell]>>,
}

/// The cells of a formula, while they are enumerated field by field.
struct CellList {
    cells: Vec<FactCell>,
}

impl CellList {
    /// Combines each cell with each value of a field. Of the combinations with which the same formula
    /// is left, the first is kept; those with which the formula cannot hold are dropped.
    fn combine(self, field: &[FieldCell], work: &mut Work) -> Result<Self, &'static str> {
        let mut known = HashSet::new();
        let mut cells: Vec<FactCell> = Vec::new();
        for cell in &self.cells {
            let simplifying = WORK_PER_TEST * (cell.remaining.size() + 1);
            if !work.spend(simplifying * field.len()) {
                return Err(work.limit_reason());
            }
            for value in field {
                let remaining = cell
                    .remaining
                    .assume(&|test| value.results.get(&test).copied());
                if remaining == Formula::Constant(false) || !known.insert(remaining.clone()) {
                    continue;
                }
                if cells.len() == MAX_CELLS {
                    return Err("too many combinations of facts");
                }
                let mut facts = cell.facts.clone();
                if let Some((key, fact)) = &value.fact {
                    add_fact(&mut facts, key, fact);
                }
                cells.push(FactCell { remaining, facts });
            }
        }
        Ok(Self { cells })
    }
}

/// Adds a fact; those of several headers are in one mapping.
fn add_fact(facts: &mut Map<String, Json>, key: &str, fact: &Json) {
    match (facts.get_mut(key), fact) {
        (Some(Json::Object(object)), Json::Object(more)) => object.extend(more.clone()),
        (_, fact) => {
            facts.insert(key.to_owned(), fact.clone());
        }
    }
}

impl FieldCells {
    /// Returns the combinations of facts with which a formula may hold, one for each formula about
    /// the URL that is left. The first has the facts of a GET by an anonymous crawler, if possible.
    /// The error is the reason why they are not enumerated.
    ///
    /// With [`CountTests::Free`], tests that count parts of the URL are not tests of the URL.
    pub(super) fn of_formula(
        &mut self,
        table: &TestTable,
        formula: &Formula,
        counts: CountTests,
        work: &mut Work,
    ) -> Result<Vec<FactCell>, &'static str> {
        let mut by_field: Vec<(Field, Vec<TestIndex>)> = Vec::new();
        let mut list = CellList {
            cells: vec![FactCell {
                remaining: formula.clone(),
                facts: Map::new(),
            }],
        };
        for test in formula.tests() {
            let free = match table.get(test) {
                Some(ExactTest::Url(url)) => url.counts && counts == CountTests::Free,
                Some(ExactTest::Text(field, _) | ExactTest::Number(field, _)) => {
                    add_to_group(&mut by_field, field, test);
                    false
                }
                Some(ExactTest::Address(_)) => {
                    add_to_group(&mut by_field, &Field::Address, test);
                    false
                }
                Some(ExactTest::Free(_)) | None => true,
            };
            if free {
                list = list.combine(&[false, true].map(|value| free_cell(test, value)), work)?;
            }
        }
        for (field, tests) in by_field {
            let cells = self.of_field(table, field, tests, work)?;
            list = list.combine(&cells, work)?;
        }
        Ok(list.cells)
    }

    fn of_field(
        &mut self,
        table: &TestTable,
        field: Field,
        tests: Vec<TestIndex>,
        work: &mut Work,
    ) -> Result<Rc<[FieldCell]>, &'static str> {
        let key = (field, tests);
        if let Some(cells) = self.known.get(&key) {
            return Ok(Rc::clone(cells));
        }
        let (field, tests) = &key;
        let cells: Rc<[FieldCell]> = field_cells(table, field, tests, work)?.into();
        self.known.insert(key, Rc::clone(&cells));
        Ok(cells)
    }
}

/// The treatment of tests that count parts of the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountTests {
    /// They count the URL that is searched.
    Exact,
    /// They count another URL, of which the one that is searched is a reading.
    Free,
}

fn add_to_group(groups: &mut Vec<(Field, Vec<TestIndex>)>, field: &Field, test: TestIndex) {
    match groups.iter_mut().find(|(other, _)| other == field) {
        Some((_, tests)) => tests.push(test),
        None => groups.push((field.clone(), vec![test])),
    }
}

fn free_cell(test: TestIndex, value: bool) -> FieldCell {
    FieldCell {
        results: BTreeMap::from([(test, value)]),
        fact: None,
    }
}

fn field_cells(
    table: &TestTable,
    field: &Field,
    tests: &[TestIndex],
    work: &mut Work,
) -> Result<Vec<FieldCell>, &'static str> {
    let mut cells = DistinctCells {
        table,
        tests,
        field,
        cells: Vec::new(),
        known: HashSet::new(),
    };
    match field.value_type() {
        ValueType::Address => cells.add_addresses(),
        ValueType::Number => cells.add_numbers(),
        ValueType::Text if field.words().is_empty() => cells.add_texts(work)?,
        ValueType::Text => cells.add_words(),
    }
    Ok(cells.cells)
}

/// Collects one cell for each combination of values.
struct DistinctCells<'t> {
    table: &'t TestTable,
    tests: &'t [TestIndex],
    field: &'t Field,
    cells: Vec<FieldCell>,
    /// The results of the tests in the cells.
    known: HashSet<Vec<bool>>,
}

impl DistinctCells<'_> {
    fn add(&mut self, value: impl Fn(&ExactTest) -> bool, fact: Option<Json>) {
        let results: BTreeMap<TestIndex, bool> = self
            .tests
            .iter()
            .filter_map(|test| Some((*test, value(self.table.get(*test)?))))
            .collect();
        if !self.known.insert(results.values().copied().collect()) {
            return;
        }
        let fact = fact.map(|fact| fact_entry(self.field, fact));
        self.cells.push(FieldCell { results, fact });
    }

    fn add_text(&mut self, text: &str) {
        let passes = |test: &ExactTest| match test {
            ExactTest::Text(_, automaton) => automaton.accepts(text),
            ExactTest::Url(_)
            | ExactTest::Number(..)
            | ExactTest::Address(_)
            | ExactTest::Free(_) => false,
        };
        self.add(passes, (!text.is_empty()).then(|| text.into()));
    }

    /// Adds a cell for each text of a field that has no others. The first is that of most examples.
    fn add_words(&mut self) {
        self.add_text(self.field.usual_text().unwrap_or_default());
        for word in self.field.words() {
            self.add_text(word);
        }
    }

    /// Adds a cell for each combination of values of tests of any text.
    fn add_texts(&mut self, work: &mut Work) -> Result<(), &'static str> {
        self.add_text(self.field.usual_text().unwrap_or_default());
        let automata: Vec<&TextAutomaton> = self
            .tests
            .iter()
            .filter_map(|test| match self.table.get(*test)? {
                ExactTest::Text(_, automaton) => Some(automaton),
                ExactTest::Url(_)
                | ExactTest::Number(..)
                | ExactTest::Address(_)
                | ExactTest::Free(_) => None,
            })
            .collect();
        let is_required = self.field.usual_text().is_some();
        let controls = control_characters(self.field);
        for text in distinct_texts(&automata, is_required, &controls, work)? {
            match String::from_utf8(text) {
                Ok(text) => self.add_text(&text),
                Err(_) => return Err("texts of characters beyond ASCII"),
            }
        }
        Ok(())
    }

    fn add_numbers(&mut self) {
        let limits = if *self.field == Field::Status {
            100..=999
        } else {
            0..=u64::MAX
        };
        self.add(|_| false, None);
        let mut numbers = vec![*limits.start()];
        for test in self.tests {
            if let Some(ExactTest::Number(_, ranges)) = self.table.get(*test) {
                let ends = ranges.0.iter();
                numbers.extend(ends.flat_map(|(from, to)| [*from, to.saturating_add(1)]));
            }
        }
        numbers.sort_unstable();
        for number in numbers.into_iter().filter(|number| limits.contains(number)) {
            let contains = |test: &ExactTest| match test {
                ExactTest::Number(_, ranges) => ranges.contains(number),
                ExactTest::Url(_)
                | ExactTest::Text(..)
                | ExactTest::Address(_)
                | ExactTest::Free(_) => false,
            };
            self.add(contains, Some(number.into()));
        }
    }

    fn add_addresses(&mut self) {
        self.add(|_| false, None);
        let mut addresses: Vec<IpAddr> = Vec::new();
        for test in self.tests {
            if let Some(ExactTest::Address(networks)) = self.table.get(*test) {
                for network in networks {
                    addresses.push(network.network());
                    addresses.extend(next_address(network.broadcast()));
                }
            }
        }
        addresses.sort_unstable();
        for address in addresses {
            let contains = |test: &ExactTest| match test {
                ExactTest::Address(networks) => networks.iter().any(|n| n.contains(&address)),
                ExactTest::Url(_)
                | ExactTest::Text(..)
                | ExactTest::Number(..)
                | ExactTest::Free(_) => false,
            };
            self.add(contains, Some(address.to_string().into()));
        }
    }
}

fn next_address(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => Some(address.to_bits().checked_add(1)?)
            .map(|bits| IpAddr::V4(std::net::Ipv4Addr::from_bits(bits))),
        IpAddr::V6(address) => Some(address.to_bits().checked_add(1)?)
            .map(|bits| IpAddr::V6(std::net::Ipv6Addr::from_bits(bits))),
    }
}

/// Returns the entry of a fact in a case.
fn fact_entry(field: &Field, value: Json) -> (String, Json) {
    if let Field::Header(name) = field {
        ("headers".into(), json!({ &**name: value }))
    } else if let Field::Usage(name) = field {
        ("usage".into(), json!({ &**name: value }))
    } else {
        (field.keyword().to_owned(), value)
    }
}

/// Returns the control characters that may occur in a field: all in a document, and tabs in a header.
fn control_characters(field: &Field) -> Vec<u8> {
    match field.stage() {
        PolicyStage::Document => (0..0x20).chain([0x7f]).collect(),
        PolicyStage::Request | PolicyStage::Destination | PolicyStage::Response => vec![b'\t'],
    }
}

/// Returns a text for each combination of results of automata; none is empty if the text is
/// required.
fn distinct_texts(
    automata: &[&TextAutomaton],
    is_required: bool,
    controls: &[u8],
    work: &mut Work,
) -> Result<Vec<Vec<u8>>, &'static str> {
    let bytes = distinct_bytes(automata, controls);
    let start: Vec<Progress> = automata.iter().map(|automaton| automaton.start()).collect();
    // A required text may lead back to the start, where it is not the empty one any more.
    let mut states: HashSet<Vec<Progress>> = match is_required {
        true => HashSet::new(),
        false => HashSet::from([start.clone()]),
    };
    let mut results: HashSet<Vec<bool>> = HashSet::new();
    let mut texts = Vec::new();
    let mut queue = VecDeque::from([(start, Vec::new())]);
    while let Some((state, text)) = queue.pop_front() {
        let is_text = !text.is_empty() || !is_required;
        if is_text && results.insert(results_at_end(automata, &state)) {
            texts.push(text.clone());
        }
        // No other combination follows.
        let is_decided = |progress: &Progress| matches!(progress, Progress::Decided(_));
        if is_text && state.iter().all(is_decided) {
            continue;
        }
        if states.len() > MAX_STATES || !work.spend(bytes.len() * automata.len()) {
            return Err("too many texts of one field");
        }
        for byte in &bytes {
            let next: Vec<Progress> = automata
                .iter()
                .zip(&state)
                .map(|(automaton, progress)| match progress {
                    Progress::Decided(_) => *progress,
                    Progress::State(state) => automaton.step(*state, *byte),
                })
                .collect();
            if states.insert(next.clone()) {
                let mut longer = text.clone();
                longer.push(*byte);
                queue.push_back((next, longer));
            }
        }
    }
    Ok(texts)
}

/// Returns the results of automata for a text that ends in a state.
fn results_at_end(automata: &[&TextAutomaton], state: &[Progress]) -> Vec<bool> {
    let results = automata.iter().zip(state);
    let results = results.map(|(automaton, progress)| match progress {
        Progress::Decided(result) => *result,
        Progress::State(state) => automaton.finish(*state),
    });
    results.collect()
}

/// Returns one byte of each class of bytes that the automata do not distinguish: letters if
/// possible, else visible characters.
fn distinct_bytes(automata: &[&TextAutomaton], controls: &[u8]) -> Vec<u8> {
    let letters = (b'a'..=b'z').chain(b'0'..=b'9').chain(b'A'..=b'Z');
    let others = (b' '..=b'~').chain(controls.iter().copied());
    let mut classes: Vec<Vec<u16>> = Vec::new();
    let mut bytes = Vec::new();
    // UTF-8 uses no bytes from 0xf8 on.
    for byte in letters.chain(others).chain(0x80..=0xf7) {
        let class: Vec<u16> = automata.iter().map(|a| a.byte_class(byte)).collect();
        if !classes.contains(&class) {
            classes.push(class);
            bytes.push(byte);
        }
    }
    bytes
}
