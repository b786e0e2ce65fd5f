//! Exact analysis: questions about all requests, answered by automata.
//!
//! Each test of the URL is a regular language, and so is the form of canonical URLs. The other
//! facts have finitely many combinations that tests distinguish (`cells`). So a question such as
//! "does this rule decide about any URL?" is a formula over tests, and `search` either finds the
//! shortest URL for which it holds, or proves that it does not exist.
//!
//! A URL is an example only if the evaluator confirms it. A test that is not analysed may be true
//! or false anywhere, which proves less but nothing wrong.

mod automaton;
mod cells;
mod changed_rules;
mod check;
mod condition_equality;
mod difference;
mod find;
mod formula;
pub(crate) mod inert;
mod question;
mod regions;
mod search;
#[cfg(test)]
mod soundness;
mod tests;
pub(crate) mod unmatchable;
mod unreached;
mod url_position;
mod verdict_changes;
mod verdicts;
mod work;

pub use check::ExactCheck;
pub use difference::{DecisionComparison, ExactDifference, UndecidedChange};
pub use find::{VerdictAnswer, VerdictFinder, VerdictQuery, find_verdict, is_url_beginning};
pub use question::Example;
pub use verdict_changes::VerdictChanges;
pub use verdicts::WantedVerdict;
