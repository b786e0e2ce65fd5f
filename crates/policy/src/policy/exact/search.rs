//! The search for the shortest URL for which a formula holds: breadth first, in the product of the
//! automata, of which only the reachable part is built.
//!
//! A state has the automata of the tests that still matter: as soon as a test is decided, the formula
//! is simplified. States that differ only in tests that no longer matter are the same.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::rc::Rc;
use std::sync::OnceLock;

use super::automaton::{Progress, TextAutomaton};
use super::formula::{Formula, TestIndex};
use super::tests::{ExactTest, TestTable, UrlTest};
use super::url_position::{UrlPart, UrlPosition, UrlRegions, UrlSet};
use super::work::Work;

/// The work for simplifying a formula, in steps of automata.
const WORK_PER_FORMULA: usize = 500;
/// The maximum number of states of a search.
pub(super) const MAX_STATES: usize = 100_000;

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SearchOutcome {
    Found(String),
    /// There is no such URL.
    Nothing,
    /// The search was given up.
    TooLarge,
}

/// The state of one automaton in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// The part of the URL has not begun.
    Waiting,
    Running(u32),
    Decided(bool),
}

impl Slot {
    /// Returns a number that other slots of the same automaton do not have.
    fn code(self) -> u64 {
        match self {
            Self::Decided(result) => u64::from(result),
            Self::Waiting => 2,
            Self::Running(state) => u64::from(state) + 3,
        }
    }
}

impl From<Progress> for Slot {
    fn from(progress: Progress) -> Self {
        match progress {
            Progress::Decided(result) => Self::Decided(result),
            Progress::State(state) => Self::Running(state),
        }
    }
}

/// A state of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SearchState {
    position: UrlPosition,
    /// The number of the formula that the rest of the URL must meet.
    formula: usize,
    /// Those of the conditions, then those of the tests of the formula.
    slots: Box<[Slot]>,
}

impl Hash for SearchState {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.position.hash(hasher);
        hasher.write_usize(self.formula);
        for slot in &self.slots {
            hasher.write_u64(slot.code());
        }
    }
}

/// A hasher of numbers that is faster than that of the standard library: a search compares millions
/// of states.
#[derive(Default)]
struct StateHasher(u64);

impl Hasher for StateHasher {
    fn finish(&self) -> u64 {
        // The upper bits of a product depend on all bits of its factors.
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(u64::try_from(number).unwrap_or(u64::MAX));
    }

    fn write_u64(&mut self, number: u64) {
        const FACTOR: u64 = 0x517c_c1b7_2722_0a95;
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(FACTOR);
    }
}

/// An automaton that takes part in a search.
#[derive(Clone, Copy)]
enum SearchPart<'t> {
    /// A condition that the URL must meet.
    Condition(UrlRegions, &'t TextAutomaton),
    Test(&'t UrlTest),
}

impl<'t> SearchPart<'t> {
    fn regions(self) -> UrlRegions {
        match self {
            Self::Condition(regions, _) => regions,
            Self::Test(test) => test.regions,
        }
    }

    fn automaton(self) -> &'t TextAutomaton {
        match self {
            Self::Condition(_, automaton) => automaton,
            Self::Test(test) => &test.automaton,
        }
    }

    /// Returns the slot after a byte in a region.
    fn step(self, slot: Slot, before: UrlPosition, region: UrlRegions, byte: u8) -> Slot {
        let automaton = self.automaton();
        let is_inside = self.regions().contains(region);
        match (slot, is_inside) {
            (Slot::Waiting, true) => match automaton.start() {
                Progress::State(state) => automaton.step(state, byte).into(),
                decided @ Progress::Decided(_) => decided.into(),
            },
            (Slot::Running(state), true) => automaton.step(state, byte).into(),
            (Slot::Running(state), false) => Slot::Decided(automaton.finish(state)),
            (Slot::Waiting, false) => match self {
                Self::Test(test)
                    if test.without_port.is_some() && region == UrlRegions::PATH_START =>
                {
                    Slot::Decided(test.absent(before.port_default()))
                }
                Self::Test(_) | Self::Condition(..) => slot,
            },
            (Slot::Decided(_), _) => slot,
        }
    }

    /// Returns the result at the end of the URL.
    fn finish(self, slot: Slot) -> bool {
        match (slot, self) {
            (Slot::Decided(result), _) => result,
            (Slot::Running(state), _) => self.automaton().finish(state),
            (Slot::Waiting, Self::Test(test)) => test.absent(None),
            // The port and the query may be missing.
            (Slot::Waiting, Self::Condition(..)) => true,
        }
    }
}

/// The conditions of both sets of URLs.
#[derive(Debug)]
pub(super) struct UrlConditions {
    plain: Vec<(UrlRegions, TextAutomaton)>,
    all: Vec<(UrlRegions, TextAutomaton)>,
}

impl UrlConditions {
    /// Returns the conditions, which are built once.
    pub(super) fn shared() -> Result<&'static Self, &'static str> {
        static SHARED: OnceLock<Result<UrlConditions, &'static str>> = OnceLock::new();
        SHARED
            .get_or_init(Self::new)
            .as_ref()
            .map_err(|reason| *reason)
    }

    fn new() -> Result<Self, &'static str> {
        Ok(Self {
            plain: UrlSet::Plain.conditions()?,
            all: UrlSet::All.conditions()?,
        })
    }

    fn of(&self, urls: UrlSet) -> &[(UrlRegions, TextAutomaton)] {
        match urls {
            UrlSet::Plain => &self.plain,
            UrlSet::All => &self.all,
        }
    }
}

/// The limits of a search.
pub(super) struct SearchLimits<'w> {
    pub(super) states: usize,
    pub(super) work: &'w mut Work,
}

/// Searches a set for a URL for which a formula holds. Only tests of URLs may be in the formula.
pub(super) fn search(
    table: &TestTable,
    conditions: &UrlConditions,
    formula: &Formula,
    urls: UrlSet,
    limits: SearchLimits<'_>,
) -> SearchOutcome {
    let is_of_url = |test: &TestIndex| matches!(table.get(*test), Some(ExactTest::Url(_)));
    if !formula.tests().iter().all(is_of_url) {
        return SearchOutcome::TooLarge;
    }
    let conditions: Vec<SearchPart<'_>> = conditions
        .of(urls)
        .iter()
        .map(|(regions, automaton)| SearchPart::Condition(*regions, automaton))
        .collect();
    let mut search = Search {
        table,
        conditions,
        formulas: Vec::new(),
        formula_numbers: HashMap::new(),
        states: Vec::new(),
        origins: Vec::new(),
        known: HashSet::default(),
    };
    match search.add_formula(formula.clone()) {
        Some(start) => search.run(start, limits),
        None => SearchOutcome::Nothing,
    }
}

/// A formula that the rest of a URL must meet.
struct RemainingFormula<'t> {
    formula: Formula,
    tests: Vec<TestIndex>,
    /// The conditions, then the tests.
    parts: Rc<[SearchPart<'t>]>,
    /// A byte of each class that the automata distinguish in a part of the URL, by the number of
    /// the part.
    bytes: [Rc<[u8]>; UrlPart::ALL.len()],
    /// The formulas after some of the tests were decided, by [`result_codes`].
    next: HashMap<Box<[u8]>, Option<usize>>,
}

struct Search<'t> {
    table: &'t TestTable,
    conditions: Vec<SearchPart<'t>>,
    formulas: Vec<RemainingFormula<'t>>,
    formula_numbers: HashMap<Formula, usize>,
    states: Vec<Rc<SearchState>>,
    /// The state before each, and the byte between them.
    origins: Vec<(usize, u8)>,
    known: HashSet<Rc<SearchState>, BuildHasherDefault<StateHasher>>,
}

impl<'t> Search<'t> {
    fn run(mut self, formula: usize, limits: SearchLimits<'_>) -> SearchOutcome {
        let Some(first) = self.formulas.get(formula) else {
            return SearchOutcome::TooLarge;
        };
        let start = SearchState {
            position: UrlPosition::START,
            formula,
            slots: vec![Slot::Waiting; first.parts.len()].into(),
        };
        self.add(start, (0, 0));
        let mut at = 0;
        let mut formulas = 0;
        while let Some(state) = self.states.get(at).cloned() {
            let Some(remaining) = self.formulas.get(state.formula) else {
                return SearchOutcome::TooLarge;
            };
            let Some(bytes) = remaining.bytes.get(state.position.next_part() as usize) else {
                return SearchOutcome::TooLarge;
            };
            let bytes = Rc::clone(bytes);
            let new_formulas = self.formulas.len() - formulas;
            formulas = self.formulas.len();
            let steps = bytes.len() * (state.slots.len() + 1);
            let work = steps + new_formulas * WORK_PER_FORMULA;
            if !limits.work.spend(work) || self.states.len() > limits.states {
                return SearchOutcome::TooLarge;
            }
            if state.position.is_end() && remaining.accepts(&state.slots, self.conditions.len()) {
                return SearchOutcome::Found(self.text_of(at));
            }
            for byte in bytes.iter().copied() {
                if let Some(next) = self.step(&state, byte) {
                    self.add(next, (at, byte));
                }
            }
            at += 1;
        }
        SearchOutcome::Nothing
    }

    fn add(&mut self, state: SearchState, origin: (usize, u8)) {
        if self.known.contains(&state) {
            return;
        }
        let state = Rc::new(state);
        self.known.insert(Rc::clone(&state));
        self.states.push(state);
        self.origins.push(origin);
    }

    /// Returns the state after a byte; `None` if no URL of the set for which the formula holds
    /// continues with it.
    fn step(&mut self, state: &SearchState, byte: u8) -> Option<SearchState> {
        let (position, region) = state.position.step(byte)?;
        let remaining = self.formulas.get(state.formula)?;
        let parts = Rc::clone(&remaining.parts);
        let mut slots = Vec::with_capacity(parts.len());
        let mut is_decided = false;
        for (part, slot) in parts.iter().zip(&state.slots) {
            let next = part.step(*slot, state.position, region, byte);
            match (part, next) {
                (SearchPart::Condition(..), Slot::Decided(false)) => return None,
                (SearchPart::Test(_), Slot::Decided(_)) => is_decided = true,
                (SearchPart::Condition(..) | SearchPart::Test(_), _) => {}
            }
            slots.push(next);
        }
        if !is_decided {
            return Some(SearchState {
                position,
                formula: state.formula,
                slots: slots.into(),
            });
        }
        let formula = self.formula_after(state.formula, &slots)?;
        Some(SearchState {
            position,
            formula,
            slots: self.needed_slots(state.formula, formula, &slots).into(),
        })
    }

    /// Returns the formula after some of the tests of another one were decided; `None` if it cannot
    /// hold.
    fn formula_after(&mut self, before: usize, slots: &[Slot]) -> Option<usize> {
        let remaining = self.formulas.get(before)?;
        let tests = slots.get(self.conditions.len()..).unwrap_or_default();
        let results = result_codes(tests);
        if let Some(known) = remaining.next.get(&results) {
            return *known;
        }
        let simplified = remaining.formula.assume(&|test| {
            let at = remaining.tests.binary_search(&test).ok()?;
            match tests.get(at)? {
                Slot::Decided(result) => Some(*result),
                Slot::Waiting | Slot::Running(_) => None,
            }
        });
        let after = self.add_formula(simplified);
        self.formulas.get_mut(before)?.next.insert(results, after);
        after
    }

    /// Returns the number of a formula; `None` if it cannot hold.
    fn add_formula(&mut self, formula: Formula) -> Option<usize> {
        if formula == Formula::Constant(false) {
            return None;
        }
        if let Some(number) = self.formula_numbers.get(&formula) {
            return Some(*number);
        }
        let tests = formula.tests();
        let table = self.table;
        let mut parts = self.conditions.clone();
        parts.extend(tests.iter().filter_map(|test| match table.get(*test)? {
            ExactTest::Url(url) => Some(SearchPart::Test(url)),
            ExactTest::Text(..)
            | ExactTest::Number(..)
            | ExactTest::Address(_)
            | ExactTest::Free(_) => None,
        }));
        let number = self.formulas.len();
        self.formula_numbers.insert(formula.clone(), number);
        self.formulas.push(RemainingFormula {
            formula,
            tests,
            bytes: UrlPart::ALL.map(|part| distinct_bytes(&parts, part.regions()).into()),
            parts: parts.into(),
            next: HashMap::new(),
        });
        Some(number)
    }

    /// Returns the slots that matter to the second of two formulas, of which the first comes before it.
    fn needed_slots(&self, before: usize, after: usize, slots: &[Slot]) -> Vec<Slot> {
        let (conditions, tests) = slots.split_at(self.conditions.len().min(slots.len()));
        let mut needed = conditions.to_vec();
        if let (Some(before), Some(after)) = (self.formulas.get(before), self.formulas.get(after)) {
            let slots = before.tests.iter().zip(tests);
            let kept = slots.filter(|(test, _)| after.tests.binary_search(test).is_ok());
            needed.extend(kept.map(|(_, slot)| *slot));
        }
        needed
    }

    fn text_of(&self, mut at: usize) -> String {
        let mut bytes = Vec::new();
        while let Some((before, byte)) = self.origins.get(at).filter(|_| at > 0) {
            bytes.push(*byte);
            at = *before;
        }
        bytes.reverse();
        String::from_utf8(bytes).unwrap_or_default()
    }
}

impl RemainingFormula<'_> {
    /// Returns `true` if the URL may end with these slots.
    fn accepts(&self, slots: &[Slot], conditions: usize) -> bool {
        let results: Vec<bool> = self
            .parts
            .iter()
            .zip(slots)
            .map(|(part, slot)| part.finish(*slot))
            .collect();
        let (conditions, tests) = results.split_at(conditions.min(results.len()));
        let value = |test: TestIndex| {
            let at = self.tests.binary_search(&test).ok()?;
            tests.get(at).copied()
        };
        conditions.iter().all(|result| *result)
            && self.formula.assume(&value) == Formula::Constant(true)
    }
}

/// Returns the results of tests as bytes: 0 or 1 for those that are decided, 2 for others.
fn result_codes(tests: &[Slot]) -> Box<[u8]> {
    let codes = tests.iter().map(|slot| match slot {
        Slot::Decided(result) => u8::from(*result),
        Slot::Waiting | Slot::Running(_) => 2,
    });
    codes.collect()
}

/// Returns one byte of each class of bytes that the automata that read these regions and the
/// structure of URLs do not distinguish: letters if possible.
fn distinct_bytes(parts: &[SearchPart<'_>], regions: UrlRegions) -> Vec<u8> {
    let readers = parts.iter().map(|part| (part.regions(), part.automaton()));
    let readers: Vec<&TextAutomaton> = readers
        .filter(|(own, _)| own.contains(regions))
        .map(|(_, automaton)| automaton)
        .collect();
    let letters = (b'a'..=b'z').chain(b'0'..=b'9').chain(b'A'..=b'Z');
    let mut classes: HashMap<Vec<u16>, u8> = HashMap::new();
    let mut bytes = Vec::new();
    for byte in letters.chain(0x21..0x7f) {
        let structural = match byte {
            b'h' | b't' | b'p' | b's' | b':' | b'/' | b'?' | b'[' | b']' => u16::from(byte),
            b'0'..=b'9' => 1,
            _ => 0,
        };
        let signature: Vec<u16> = [structural]
            .into_iter()
            .chain(readers.iter().map(|reader| reader.byte_class(byte)))
            .collect();
        classes.entry(signature).or_insert_with(|| {
            bytes.push(byte);
            byte
        });
    }
    bytes
}
