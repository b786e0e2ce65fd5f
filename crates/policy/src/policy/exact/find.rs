//! `crawlgate find`: requests that get a verdict.

use crate::policy::Policy;
use crate::policy::field::Field;
use crate::policy::rule::RuleIndex;
use crate::urls::target::UrlTarget;

use super::formula::Formula;
use super::question::{Example, Solution, Solver};
use super::regions::AnalysedPolicy;
use super::verdicts::WantedVerdict;
use super::work::Work;

/// The requests that are searched.
#[derive(Clone, Debug)]
pub struct VerdictQuery<'q> {
    /// The verdict.
    pub verdict: WantedVerdict,
    /// The rule that decides; `None` for any.
    pub rule: Option<RuleIndex>,
    /// The beginning of the canonical URL.
    pub under: Option<&'q str>,
    /// The canonical host of the URLs; `None` for any.
    pub host: Option<&'q str>,
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
    VerdictFinder::new(policy).find(query)
}

/// The work for all questions to one finder, as that of this number of questions. A reload may ask
/// many.
const QUESTIONS: usize = 20;

/// Answers questions about the verdicts of a policy. Their automata are built once, and their work
/// is limited together.
pub struct VerdictFinder<'p> {
    analysed: AnalysedPolicy<'p>,
    solver: Result<Solver, &'static str>,
}

impl<'p> VerdictFinder<'p> {
    /// Creates a finder for a policy.
    pub fn new(policy: &'p Policy) -> Self {
        Self {
            analysed: AnalysedPolicy::new(policy),
            solver: Solver::new().map(|mut solver| {
                solver.begin_questions(QUESTIONS);
                solver
            }),
        }
    }

    /// Searches a request that gets a verdict.
    pub fn find(&mut self, query: &VerdictQuery<'_>) -> VerdictAnswer {
        let solver = match &mut self.solver {
            Ok(solver) => solver,
            Err(reason) => return VerdictAnswer::Undecided(reason),
        };
        let under = query.under.map(canonical_beginning);
        let under = under.as_deref();
        let crawler = query
            .crawler
            .map(|crawler| solver.table.crawlers(&[crawler]));
        let host = query
            .host
            .map(|host| solver.table.exact(&Field::Host, host));
        let rule = query.rule.map(|rule| rule.0 as usize);
        solver.begin_question();
        let mut find = |under: Option<&str>| {
            let under = under.map(|under| solver.table.url_prefix(under));
            let within = Formula::all(under.into_iter().chain(host.clone()).chain(crawler.clone()));
            self.analysed
                .find_verdict(solver, query.verdict, rule, &within)
        };
        // A reading of a URL has the same host, but need not begin with the same path.
        let origin = under
            .filter(|_| query.verdict == WantedVerdict::Reject)
            .map(|under| (under, origin_of(under)))
            .filter(|(under, origin)| under != origin);
        match (find(under), origin) {
            (Solution::Example(example), _) => VerdictAnswer::Found(example),
            (Solution::Undecided(reason), _) => VerdictAnswer::Undecided(reason),
            (Solution::Never, None) => VerdictAnswer::Never,
            (Solution::Never, Some((_, origin))) => match find(Some(origin)) {
                Solution::Never => VerdictAnswer::Never,
                Solution::Undecided(reason) if Work::is_limit(reason) => {
                    VerdictAnswer::Undecided(reason)
                }
                Solution::Example(_) | Solution::Undecided(_) => VerdictAnswer::Undecided(
                    "a lax server may read a URL as another one of its host, which is refused",
                ),
            },
        }
    }
}

/// Returns `true` if URLs begin with a text, so that a question about them is not empty.
pub fn is_url_beginning(text: &str) -> bool {
    let Ok(mut solver) = Solver::new() else {
        return true;
    };
    let begins = solver.table.url_prefix(&canonical_beginning(text));
    !matches!(solver.solve(&begins, &|_| true), Solution::Never)
}

/// Returns the beginning of canonical URLs that a text means: a whole URL is canonicalized.
fn canonical_beginning(text: &str) -> String {
    UrlTarget::parse(text).map_or_else(|_| text.to_owned(), |target| target.as_str().to_owned())
}

/// Returns the beginning of a URL without its path.
fn origin_of(url: &str) -> &str {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let path = url.get(authority..).and_then(|rest| rest.find(['/', '?']));
    path.and_then(|at| url.get(..=authority + at))
        .unwrap_or(url)
}
