//! Cases that assert something about all URLs of a set.

use std::fmt::{self, Display, Formatter};

use crate::diagnostics::problem::SourceLocation;
use crate::policy::Policy;
use crate::policy::exact::{VerdictQuery, WantedVerdict};

/// An assertion about all requests of a set. Exact analysis proves or refutes it.
#[derive(Clone, Debug)]
pub struct CaseAssertion {
    /// The location of the assertion in its file.
    pub place: SourceLocation,
    pub claim: AssertedClaim,
    /// The beginning of the canonical URLs; `None` for all URLs.
    pub under: Option<Box<str>>,
    /// The canonical host of the URLs, with any scheme and port; `None` for all.
    pub host: Option<Box<str>>,
    /// The crawler; `None` for all.
    pub crawler: Option<Box<str>>,
}

/// The claim of an assertion.
#[derive(Clone, Debug)]
pub enum AssertedClaim {
    /// No request gets the verdict.
    Never {
        verdict: WantedVerdict,
        /// The rule that decides; `None` for any.
        rule: Option<Box<str>>,
    },
    /// Every request gets the verdict.
    Always(WantedVerdict),
}

impl AssertedClaim {
    /// The word in cases.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Never { .. } => "never",
            Self::Always(_) => "always",
        }
    }

    /// The verdict in the claim.
    pub fn verdict(&self) -> WantedVerdict {
        match self {
            Self::Never { verdict, .. } | Self::Always(verdict) => *verdict,
        }
    }

    /// The rule in the claim.
    pub fn rule(&self) -> Option<&str> {
        match self {
            Self::Never { rule, .. } => rule.as_deref(),
            Self::Always(_) => None,
        }
    }
}

impl CaseAssertion {
    /// Returns the question whether a request refutes the assertion. A rule that does not exist is
    /// left out; loading a policy reports it.
    pub fn query(&self, policy: &Policy) -> VerdictQuery<'_> {
        let verdict = match &self.claim {
            AssertedClaim::Never { verdict, .. } => *verdict,
            AssertedClaim::Always(verdict) => verdict.opposite(),
        };
        VerdictQuery {
            verdict,
            rule: self.claim.rule().and_then(|id| policy.rule_index(id)),
            under: self.under.as_deref(),
            host: self.host.as_deref(),
            crawler: self.crawler.as_deref(),
        }
    }
}

/// `never allow under http://intra.example/ by crawler news-bot`.
impl Display for CaseAssertion {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.claim.word(), self.claim.verdict().as_str())?;
        if let Some(rule) = self.claim.rule() {
            write!(f, " by rule {rule}")?;
        }
        if let Some(under) = &self.under {
            write!(f, " under {under}")?;
        }
        if let Some(host) = &self.host {
            write!(f, " on host {host}")?;
        }
        if let Some(crawler) = &self.crawler {
            write!(f, " for crawler {crawler}")?;
        }
        Ok(())
    }
}
