//! What the proxy would write to the crawler: the status line and headers of a refusal, or what an origin's answer gets.
//!
//! It is made by the code that answers requests. What no two answers share is left out: `Crawl-Decision`, and the
//! length of a body that holds it.

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};

use crate::gate::effects::{Effects, ForOne};
use crate::gate::refusal::Refusal;
use crate::gate::trial::Trial;
use crate::policy::cases::{CaseFacts, CaseTarget};
use crate::proxy::answer::{self, CRAWL_DECISION, Format, InForce, Manner};
use crate::proxy::robots_tag;
use crate::vocab::profile::{Conditional, Profile};

use super::decision::crawl_status;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The proxy's own.
    Refused {
        /// `HTTP/1.1 451 Unavailable For Legal Reasons`.
        status_line: String,
        /// In the order in which they are written.
        headers: Vec<(String, String)>,
    },
    /// None: the connection is closed, which this kind of crawler takes for "later".
    Closed,
    /// The origin's, with these headers of ours, `Crawl-Status` first.
    Passed {
        /// In the order in which they are written.
        headers: Vec<(String, String)>,
    },
    /// 200, and what the client and the host send each other from there on.
    Tunnel,
}

/// The answers of one trial, one for each profile: what they share is made once.
#[derive(Debug)]
pub enum Answers<'t> {
    /// The request is refused, each profile in its way.
    Refused(&'t Refusal, InForce<'t>),
    /// It passes, and the answer is the same for all.
    Passed(Wire),
}

impl<'t> Answers<'t> {
    /// Of a request without validators.
    pub fn of(trial: &'t Trial<'_>, facts: &CaseFacts) -> Self {
        let policy = trial.policy;
        match (&trial.refusal, facts.target()) {
            (Some(refusal), _) => Self::Refused(
                refusal,
                InForce {
                    name: policy.name(),
                    revision: policy.revision(),
                },
            ),
            (None, CaseTarget::Tunnel(..)) => Self::Passed(Wire::Tunnel),
            (None, CaseTarget::Url(_)) => Self::Passed(Wire::Passed {
                headers: passed(trial, facts),
            }),
        }
    }

    /// The answer to a crawler of this profile.
    pub fn to(&self, profile: Profile) -> Wire {
        match self {
            Self::Refused(refusal, in_force) => refused(refusal, *in_force, profile),
            Self::Passed(wire) => wire.clone(),
        }
    }
}

fn refused(refusal: &Refusal, in_force: InForce<'_>, profile: Profile) -> Wire {
    let manner = Manner {
        profile,
        conditional: Conditional::No,
        format: Format::Problem,
    };
    let Some(response) = answer::refuse(refusal, manner, in_force, "") else {
        return Wire::Closed;
    };
    let status = response.status();
    let words = status.canonical_reason().unwrap_or("");
    let shared = response
        .headers()
        .iter()
        .filter(|(name, _)| **name != CRAWL_DECISION && **name != CONTENT_LENGTH);
    Wire::Refused {
        status_line: format!("HTTP/1.1 {} {words}", status.as_u16())
            .trim_end()
            .to_owned(),
        headers: shared.map(shown).collect(),
    }
}

/// What an origin's answer gets from us: looks through the whole policy. `X-Robots-Tag` is ours alone here: the origin's own is merged with it.
fn passed(trial: &Trial<'_>, facts: &CaseFacts) -> Vec<(String, String)> {
    let made = Effects::of(trial.policy);
    let effects = ForOne {
        effects: &made,
        policy: trial.policy,
        trail: &trial.trail,
    };
    let mut headers = HeaderMap::new();
    effects.describe_answer(&mut headers);
    if let Some(tag) = effects.robots_tag() {
        robots_tag::merge(&mut headers, tag);
    }
    let status = (
        "crawl-status".to_owned(),
        crawl_status(trial, facts).to_owned(),
    );
    std::iter::once(status)
        .chain(headers.iter().map(shown))
        .collect()
}

fn shown((name, value): (&HeaderName, &HeaderValue)) -> (String, String) {
    (
        name.as_str().to_owned(),
        String::from_utf8_lossy(value.as_bytes()).into_owned(),
    )
}
