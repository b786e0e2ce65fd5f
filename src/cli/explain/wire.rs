//! What the proxy would write to the crawler: the status line and headers of a refusal.
//!
//! It is made by the code that answers requests. What no two answers share is left out: `Crawl-Decision`, and the
//! length of a body that holds it.

use http::header::CONTENT_LENGTH;

use crate::gate::trial::Trial;
use crate::policy::cases::{CaseFacts, CaseTarget};
use crate::proxy::answer::{self, CRAWL_DECISION, Format, InForce, Manner};
use crate::vocab::profile::Conditional;

use super::super::judged;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// The proxy's own.
    Refused {
        /// `HTTP/1.1 451 Unavailable For Legal Reasons`.
        status_line: String,
        /// In the order in which they are written.
        headers: Vec<(String, String)>,
    },
    /// None: the connection is closed, which this kind of crawler takes for "later".
    Closed,
    /// The origin's, with this `Crawl-Status`.
    Passed {
        /// The value of the header.
        crawl_status: &'static str,
    },
    /// 200, and what the client and the host send each other from there on.
    Tunnel,
}

/// The answer to a request without validators.
pub(super) fn of(trial: &Trial<'_>, facts: &CaseFacts) -> Wire {
    let Some(refusal) = &trial.refusal else {
        return match facts.target() {
            CaseTarget::Tunnel(..) => Wire::Tunnel,
            CaseTarget::Url(_) => Wire::Passed { crawl_status: judged::crawl_status(trial, facts) },
        };
    };
    let manner = Manner { profile: trial.profile, conditional: Conditional::No, format: Format::Problem };
    let in_force = InForce { name: trial.policy.name(), revision: trial.policy.revision() };
    let Some(response) = answer::refuse(refusal, manner, in_force, "") else { return Wire::Closed };
    let status = response.status();
    let words = status.canonical_reason().unwrap_or("");
    let shared =
        response.headers().iter().filter(|(name, _)| **name != CRAWL_DECISION && **name != CONTENT_LENGTH);
    let shown = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    Wire::Refused {
        status_line: format!("HTTP/1.1 {} {words}", status.as_u16()).trim_end().to_owned(),
        headers: shared.map(|(name, value)| (name.as_str().to_owned(), shown(value))).collect(),
    }
}
