//! `crawlgate find`: requests that get a verdict.

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
    let target = query.under.and_then(|under| UrlTarget::parse(under).ok());
    let under = target.as_ref().map(UrlTarget::as_str).or(query.under);
    let crawler = query
        .crawler
        .map(|crawler| solver.table.crawlers(&[crawler]));
    let rule = query.rule.map(|rule| rule.0 as usize);
    let analysed = AnalysedPolicy::new(policy);
    let mut find = |under: Option<&str>| {
        let under = under.map(|under| solver.table.url_prefix(under));
        let within = Formula::all(under.into_iter().chain(crawler.clone()));
        analysed.find_verdict(&mut solver, query.verdict, rule, &within)
    };
    match find(under) {
        Solution::Example(example) => VerdictAnswer::Found(example),
        Solution::Undecided(reason) => VerdictAnswer::Undecided(reason),
        // A reading of a URL has the same host, but need not begin with the same path.
        Solution::Never if query.verdict == WantedVerdict::Reject => {
            match find(under.map(origin_of)) {
                Solution::Never => VerdictAnswer::Never,
                Solution::Example(_) | Solution::Undecided(_) => VerdictAnswer::Undecided(
                    "a lax server may read a URL as another one of its host, which is refused",
                ),
            }
        }
        Solution::Never => VerdictAnswer::Never,
    }
}

/// Returns the beginning of a URL without its path.
fn origin_of(url: &str) -> &str {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let path = url.get(authority..).and_then(|rest| rest.find(['/', '?']));
    path.and_then(|at| url.get(..=authority + at))
        .unwrap_or(url)
}
