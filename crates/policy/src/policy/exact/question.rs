//! Questions to the automata, and their answers.

use serde_json::{Map, Value as Json};

use crate::policy::cases::CaseFacts;
use crate::urls::target::UrlTarget;

use super::cells::{CountTests, FactCell, FieldCells};
use super::formula::Formula;
use super::search::{MAX_STATES, SearchLimits, SearchOutcome, UrlConditions, search};
use super::tests::{ExactTest, TestTable};
use super::url_position::UrlSet;
use super::work::Work;

/// The work that each search takes at least.
const WORK_PER_SEARCH: usize = 1_000;
/// The maximum number of states of a search for an example that is found easily.
const EASY_STATES: usize = 1_000;

/// The answer to the question whether a formula holds for any request.
#[derive(Clone, Debug)]
pub(super) enum Solution {
    /// It holds for this request.
    Example(Box<Example>),
    /// It holds for no request.
    Never,
    /// It is not decided, for this reason.
    Undecided(&'static str),
}

/// A request for which a formula holds.
#[derive(Clone, Debug)]
pub struct Example {
    /// The canonical URL.
    pub url: String,
    /// The facts besides the URL that matter, as in a case.
    pub details: Map<String, Json>,
    /// All facts.
    pub facts: CaseFacts,
}

impl Example {
    fn new(url: &str, details: &Map<String, Json>) -> Option<Self> {
        let target = UrlTarget::parse(url).ok()?;
        if target.as_str() != url {
            return None;
        }
        let mut facts = CaseFacts::for_url(url).ok()?;
        for (key, value) in details {
            facts.set(key, value).ok()?;
        }
        Some(Self {
            url: url.to_owned(),
            details: details.clone(),
            facts,
        })
    }

    /// Creates an example, unless the evaluator does not confirm it.
    fn confirmed(
        url: &str,
        details: &Map<String, Json>,
        confirms: &dyn Fn(&CaseFacts) -> bool,
    ) -> Option<Self> {
        Self::new(url, details).filter(|example| confirms(&example.facts))
    }

    /// The facts besides the URL: ` with method POST`; empty if there are none.
    pub fn describe_details(&self) -> String {
        let details: Vec<String> = self
            .details
            .iter()
            .map(|(key, value)| match value.as_str() {
                Some(text) if !text.contains(char::is_control) => format!("{key} {text}"),
                Some(_) | None => format!("{key} {value}"),
            })
            .collect();
        if details.is_empty() {
            String::new()
        } else {
            format!(" with {}", details.join(", "))
        }
    }
}

/// Automata, the sets of URLs that they search, and the work that is left for a question.
pub(super) struct Solver {
    pub(super) table: TestTable,
    conditions: &'static UrlConditions,
    fields: FieldCells,
    work: Work,
}

impl Solver {
    pub(super) fn new() -> Result<Self, &'static str> {
        Ok(Self {
            table: TestTable::default(),
            conditions: UrlConditions::shared()?,
            fields: FieldCells::default(),
            work: Work::for_question(),
        })
    }

    /// Begins questions that together take at most as much work as this number of them.
    pub(super) fn begin_questions(&mut self, number: usize) {
        self.work = Work::for_questions(number);
    }

    /// Begins another question, for which all its work is allowed again.
    pub(super) fn begin_question(&mut self) {
        self.work.begin_question();
    }

    /// Searches a request for which a formula holds. `confirms` evaluates the formula by the
    /// evaluator's own means: only then is the request an example.
    pub(super) fn solve(
        &mut self,
        formula: &Formula,
        confirms: &dyn Fn(&CaseFacts) -> bool,
    ) -> Solution {
        let solution = self.solve_with(formula, CountTests::Exact, confirms);
        if let (Solution::Never, true) = (&solution, self.has_counts(formula)) {
            return self.solve_with(formula, CountTests::Free, confirms);
        }
        solution
    }

    /// Searches a URL for each combination of other facts. A URL of the larger set shows that there
    /// may be one that is certainly canonical; if there is none, it is tried itself.
    fn solve_with(
        &mut self,
        formula: &Formula,
        counts: CountTests,
        confirms: &dyn Fn(&CaseFacts) -> bool,
    ) -> Solution {
        if !self.work.spend(self.table.take_size() + WORK_PER_SEARCH) {
            return Solution::Undecided(self.work.limit_reason());
        }
        let cells = self
            .fields
            .of_formula(&self.table, formula, counts, &mut self.work);
        let cells = match cells {
            Ok(cells) => cells,
            Err(reason) => return Solution::Undecided(reason),
        };
        // Most examples are found easily, though not for the first combination of facts.
        for cell in &cells {
            if let Some(example) = self.plain_example(cell, EASY_STATES, confirms) {
                return Solution::Example(Box::new(example));
            }
        }
        let mut undecided = None;
        let mut unusual = Vec::new();
        for cell in cells {
            match self.search(&cell, UrlSet::All, MAX_STATES) {
                SearchOutcome::Nothing => continue,
                SearchOutcome::TooLarge => undecided = Some(self.work.limit_reason()),
                SearchOutcome::Found(url) => unusual.push((url, cell.facts.clone())),
            }
            if let Some(example) = self.plain_example(&cell, MAX_STATES, confirms) {
                return Solution::Example(Box::new(example));
            }
        }
        if !unusual.is_empty() {
            undecided = undecided.or(Some(self.free_reason(formula)));
        }
        let mut unusual = unusual.iter();
        let example = unusual.find_map(|(url, facts)| Example::confirmed(url, facts, confirms));
        match (example, undecided) {
            (Some(example), _) => Solution::Example(Box::new(example)),
            (None, Some(reason)) => Solution::Undecided(reason),
            (None, None) => Solution::Never,
        }
    }

    /// Searches an example whose URL is certainly canonical.
    fn plain_example(
        &mut self,
        cell: &FactCell,
        states: usize,
        confirms: &dyn Fn(&CaseFacts) -> bool,
    ) -> Option<Example> {
        match self.search(cell, UrlSet::Plain, states) {
            SearchOutcome::Found(url) => Example::confirmed(&url, &cell.facts, confirms),
            SearchOutcome::Nothing | SearchOutcome::TooLarge => None,
        }
    }

    fn search(&mut self, cell: &FactCell, urls: UrlSet, states: usize) -> SearchOutcome {
        let Self {
            table,
            conditions,
            work,
            ..
        } = self;
        let limits = SearchLimits { states, work };
        search(table, conditions, &cell.remaining, urls, limits)
    }

    fn has_counts(&self, formula: &Formula) -> bool {
        formula
            .tests()
            .into_iter()
            .any(|test| matches!(self.table.get(test), Some(ExactTest::Url(url)) if url.counts))
    }

    /// Returns the reason why no example could be confirmed.
    fn free_reason(&self, formula: &Formula) -> &'static str {
        formula
            .tests()
            .into_iter()
            .find_map(|test| match self.table.get(test)? {
                ExactTest::Free(reason) => Some(*reason),
                ExactTest::Url(_)
                | ExactTest::Text(..)
                | ExactTest::Number(..)
                | ExactTest::Address(_) => None,
            })
            .unwrap_or("only unusual URLs are left")
    }
}
