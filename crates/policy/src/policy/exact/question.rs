//! Questions to the automata, and their answers.

use serde_json::{Map, Value as Json};

use crate::policy::cases::CaseFacts;
use crate::urls::target::UrlTarget;

use super::cells::{CountTests, fact_cells};
use super::formula::Formula;
use super::search::{SearchOutcome, UrlConditions, search};
use super::tests::{ExactTest, TestTable};
use super::url_position::UrlSet;

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

/// Automata and the sets of URLs that they search.
pub(super) struct Solver {
    pub(super) table: TestTable,
    conditions: &'static UrlConditions,
}

impl Solver {
    pub(super) fn new() -> Result<Self, &'static str> {
        Ok(Self {
            table: TestTable::default(),
            conditions: UrlConditions::shared()?,
        })
    }

    /// Searches a request for which a formula holds. `confirms` evaluates the formula by the
    /// evaluator's own means: only then is the request an example.
    pub(super) fn solve(
        &self,
        formula: &Formula,
        confirms: &dyn Fn(&CaseFacts) -> bool,
    ) -> Solution {
        for (urls, counts) in [
            (UrlSet::Plain, CountTests::Exact),
            (UrlSet::All, CountTests::Exact),
            (UrlSet::All, CountTests::Free),
        ] {
            if counts == CountTests::Free && !self.has_counts(formula) {
                continue;
            }
            match self.solve_in(formula, urls, counts, confirms) {
                Solution::Example(example) => return Solution::Example(example),
                Solution::Undecided(reason) if urls == UrlSet::All => {
                    return Solution::Undecided(reason);
                }
                // The larger set decides.
                Solution::Never | Solution::Undecided(_) => {}
            }
        }
        Solution::Never
    }

    fn solve_in(
        &self,
        formula: &Formula,
        urls: UrlSet,
        counts: CountTests,
        confirms: &dyn Fn(&CaseFacts) -> bool,
    ) -> Solution {
        let cells = match fact_cells(&self.table, &formula.tests(), counts) {
            Ok(cells) => cells,
            Err(reason) => return Solution::Undecided(reason),
        };
        let mut undecided = None;
        for cell in cells {
            let remaining = formula.assume(&|test| cell.value(test));
            match search(&self.table, self.conditions, &remaining, urls) {
                SearchOutcome::Nothing => {}
                SearchOutcome::TooLarge => {
                    undecided = Some("there are too many combinations of expressions");
                }
                SearchOutcome::Found(url) => {
                    let example =
                        Example::new(&url, &cell.facts).filter(|example| confirms(&example.facts));
                    if let Some(example) = example {
                        return Solution::Example(Box::new(example));
                    }
                    undecided = Some(self.free_reason(formula));
                }
            }
        }
        undecided.map_or(Solution::Never, Solution::Undecided)
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
