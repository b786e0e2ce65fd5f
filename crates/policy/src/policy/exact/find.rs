//! `crawlgate find`, and cases about all requests of a kind.

use crate::policy::Policy;
use crate::policy::rule::RuleIndex;
use crate::urls::target::UrlTarget;

use super::formula::Formula;
use super::question::{Example, Solution, Solver};
use super::regions::AnalysedPolicy;
use super::verdicts::WantedVerdict;

/// The requests that are searched.
#[derive(Clone, Debug)]
pub struct VerdictQuery<'q> {
    /// The verdict.
    pub verdict: WantedVerdict,
    /// The rule that decides; `None` for any.
    pub rule: Option<RuleIndex>,
    /// The beginning of the canonical URL.
    pub under: Option<&'q str>,
    /// The crawler; `None` for any.
    pub crawler: Option<&'q str>,
}

/// The answer to a [`VerdictQuery`].
#[derive(Clone, Debug)]
pub enum VerdictAnswer {
    /// This request gets the verdict.
    Found(Box<Example>),
    /// It is proved that no request does.
    Never,
    /// It is not decided, for this reason.
    Undecided(&'static str),
}

/// Searches a request that gets a verdict.
pub fn find_verdict(policy: &Policy, query: &VerdictQuery<'_>) -> VerdictAnswer {
    let mut solver = match Solver::new() {
        Ok(solver) => solver,
        Err(reason) => return VerdictAnswer::Undecided(reason),
    };
    // A whole URL is canonicalized; any other text is the beginning of one.
    let under = query.under.map(|under| match UrlTarget::parse(under) {
        Ok(target) => solver.table.url_prefix(target.as_str()),
        Err(_) => solver.table.url_prefix(under),
    });
    let crawler = query
        .crawler
        .map(|crawler| solver.table.crawlers(&[crawler]));
    let within = Formula::all(under.into_iter().chain(crawler));
    let rule = query.rule.map(|rule| rule.0 as usize);
    let analysed = AnalysedPolicy::new(policy);
    match analysed.find_verdict(&mut solver, query.verdict, rule, &within) {
        Solution::Example(example) => VerdictAnswer::Found(example),
        Solution::Never => VerdictAnswer::Never,
        Solution::Undecided(reason) => VerdictAnswer::Undecided(reason),
    }
}
