//! The search for the shortest URL for which a formula holds: breadth first, in the product of the
//! automata, of which only the reachable part is built.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::automaton::{Progress, TextAutomaton};
use super::formula::{Formula, TestIndex};
use super::tests::{ExactTest, TestTable, UrlTest};
use super::url_position::{UrlPosition, UrlRegions, UrlSet};

/// The work for one search: steps of single automata.
const WORK_PER_SEARCH: usize = 10_000_000;
/// The maximum number of states.
const MAX_STATES: usize = 100_000;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    /// The part of the URL has not begun.
    Waiting,
    Running(u32),
    Decided(bool),
}

impl From<Progress> for Slot {
    fn from(progress: Progress) -> Self {
        match progress {
            Progress::Decided(result) => Self::Decided(result),
            Progress::State(state) => Self::Running(state),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SearchState {
    position: UrlPosition,
    slots: Vec<Slot>,
    /// `true` if the formula holds however the URL continues.
    is_satisfied: bool,
}

/// An automaton that takes part in a search.
#[derive(Clone, Copy)]
enum SearchPart<'t> {
    /// A condition that the URL must meet.
    Condition(UrlRegions, &'t TextAutomaton),
    Test(TestIndex, &'t UrlTest),
}

impl<'t> SearchPart<'t> {
    fn regions(self) -> UrlRegions {
        match self {
            Self::Condition(regions, _) => regions,
            Self::Test(_, test) => test.regions,
        }
    }

    fn automaton(self) -> &'t TextAutomaton {
        match self {
            Self::Condition(_, automaton) => automaton,
            Self::Test(_, test) => &test.automaton,
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
                Self::Test(_, test)
                    if test.without_port.is_some() && region == UrlRegions::PATH_START =>
                {
                    Slot::Decided(test.absent(before.port_default()))
                }
                Self::Test(..) | Self::Condition(..) => slot,
            },
            (Slot::Decided(_), _) => slot,
        }
    }

    /// Returns the result at the end of the URL.
    fn finish(self, slot: Slot) -> bool {
        match (slot, self) {
            (Slot::Decided(result), _) => result,
            (Slot::Running(state), _) => self.automaton().finish(state),
            (Slot::Waiting, Self::Test(_, test)) => test.absent(None),
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

/// Searches a set for a URL for which a formula holds. Only tests of URLs may be in the formula.
pub(super) fn search(
    table: &TestTable,
    conditions: &UrlConditions,
    formula: &Formula,
    urls: UrlSet,
) -> SearchOutcome {
    if *formula == Formula::Constant(false) {
        return SearchOutcome::Nothing;
    }
    let mut parts: Vec<SearchPart<'_>> = conditions
        .of(urls)
        .iter()
        .map(|(regions, automaton)| SearchPart::Condition(*regions, automaton))
        .collect();
    let tests = formula.tests();
    for test in tests.iter().copied() {
        match table.get(test) {
            Some(ExactTest::Url(url)) => parts.push(SearchPart::Test(test, url)),
            Some(
                ExactTest::Text(..)
                | ExactTest::Number(..)
                | ExactTest::Address(_)
                | ExactTest::Free(_),
            )
            | None => return SearchOutcome::TooLarge,
        }
    }
    Search {
        bytes: distinct_bytes(&parts),
        formula,
        parts,
        tests,
        states: Vec::new(),
        origins: Vec::new(),
        numbers: HashMap::new(),
    }
    .run()
}

struct Search<'t> {
    formula: &'t Formula,
    /// The conditions, then the tests in order.
    parts: Vec<SearchPart<'t>>,
    tests: Vec<TestIndex>,
    /// A byte of each class that the automata distinguish.
    bytes: Vec<u8>,
    states: Vec<SearchState>,
    /// The state before each, and the byte between them.
    origins: Vec<(usize, u8)>,
    numbers: HashMap<SearchState, usize>,
}

impl Search<'_> {
    fn run(mut self) -> SearchOutcome {
        let start = SearchState {
            position: UrlPosition::START,
            slots: vec![Slot::Waiting; self.parts.len()],
            is_satisfied: *self.formula == Formula::Constant(true),
        };
        self.add(start, (0, 0));
        let mut at = 0;
        let mut work = 0;
        while let Some(state) = self.states.get(at).cloned() {
            work += self.bytes.len() * self.parts.len();
            if work > WORK_PER_SEARCH || self.states.len() > MAX_STATES {
                return SearchOutcome::TooLarge;
            }
            if state.position.is_end() && self.accepts(&state) {
                return SearchOutcome::Found(self.text_of(at));
            }
            for index in 0..self.bytes.len() {
                let Some(byte) = self.bytes.get(index).copied() else {
                    continue;
                };
                if let Some(next) = self.step(&state, byte) {
                    self.add(next, (at, byte));
                }
            }
            at += 1;
        }
        SearchOutcome::Nothing
    }

    fn add(&mut self, state: SearchState, origin: (usize, u8)) {
        let number = self.states.len();
        if let std::collections::hash_map::Entry::Vacant(entry) = self.numbers.entry(state) {
            self.states.push(entry.key().clone());
            self.origins.push(origin);
            entry.insert(number);
        }
    }

    fn step(&self, state: &SearchState, byte: u8) -> Option<SearchState> {
        let (position, region) = state.position.step(byte)?;
        let mut slots = Vec::with_capacity(self.parts.len());
        for (part, slot) in self.parts.iter().zip(&state.slots) {
            let next = match (part, state.is_satisfied) {
                (SearchPart::Test(..), true) => Slot::Decided(false),
                (SearchPart::Test(..), false) | (SearchPart::Condition(..), _) => {
                    part.step(*slot, state.position, region, byte)
                }
            };
            if let (SearchPart::Condition(..), Slot::Decided(false)) = (part, next) {
                return None;
            }
            slots.push(next);
        }
        let next = SearchState {
            position,
            slots,
            is_satisfied: state.is_satisfied,
        };
        if next.is_satisfied {
            return Some(next);
        }
        self.simplify(next)
    }

    /// Drops what no longer matters; `None` if the formula cannot hold.
    fn simplify(&self, mut state: SearchState) -> Option<SearchState> {
        let remaining = self.formula.assume(&|test| self.decided(&state, test));
        let needed = match remaining {
            Formula::Constant(false) => return None,
            Formula::Constant(true) => {
                state.is_satisfied = true;
                Vec::new()
            }
            Formula::Test(_) | Formula::Not(_) | Formula::All(_) | Formula::Any(_) => {
                remaining.tests()
            }
        };
        for (part, slot) in self.parts.iter().zip(&mut state.slots) {
            let SearchPart::Test(test, _) = part else {
                continue;
            };
            // What is decided may be the reason why another test is not needed.
            let is_open = matches!(slot, Slot::Waiting | Slot::Running(_));
            if state.is_satisfied || is_open && needed.binary_search(test).is_err() {
                *slot = Slot::Decided(false);
            }
        }
        Some(state)
    }

    fn decided(&self, state: &SearchState, test: TestIndex) -> Option<bool> {
        let at = self.tests.binary_search(&test).ok()?;
        let first_test = self.parts.len() - self.tests.len();
        match state.slots.get(first_test + at)? {
            Slot::Decided(result) => Some(*result),
            Slot::Waiting | Slot::Running(_) => None,
        }
    }

    /// Returns `true` if the URL may end in a state.
    fn accepts(&self, state: &SearchState) -> bool {
        let mut results = Vec::new();
        for (part, slot) in self.parts.iter().zip(&state.slots) {
            match part {
                SearchPart::Condition(..) if !part.finish(*slot) => return false,
                SearchPart::Condition(..) => {}
                SearchPart::Test(test, _) => results.push((*test, part.finish(*slot))),
            }
        }
        let value = |test: TestIndex| {
            let at = results
                .binary_search_by_key(&test, |(test, _)| *test)
                .ok()?;
            results.get(at).map(|(_, result)| *result)
        };
        state.is_satisfied || self.formula.assume(&value) == Formula::Constant(true)
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

/// Returns one byte of each class of bytes that the automata and the structure of URLs do not
/// distinguish: letters if possible.
fn distinct_bytes(parts: &[SearchPart<'_>]) -> Vec<u8> {
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
            .chain(parts.iter().map(|part| part.automaton().byte_class(byte)))
            .collect();
        classes.entry(signature).or_insert_with(|| {
            bytes.push(byte);
            byte
        });
    }
    bytes
}
