//! `/readyz`: the checks that decide if the proxy should receive requests, one line each.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;

use super::response::{TEXT_PLAIN, text_response};

/// One line of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The part that is checked: `policy`, `drain`, `decision_log`.
    pub name: &'static str,
    /// The result.
    pub state: CheckState,
}

/// The result of a check, with a text that is shown on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// No problem; the text may add details: `acme@3f9c2a1b`.
    Ok(String),
    /// A problem that does not stop the proxy from serving requests: lines of the log are lost.
    Warn(String),
    /// The proxy should not receive requests: 503.
    Fail(String),
}

impl HealthCheck {
    /// Creates a check.
    pub fn new(name: &'static str, state: CheckState) -> Self {
        Self { name, state }
    }

    fn is_failing(&self) -> bool {
        matches!(self.state, CheckState::Fail(_))
    }
}

impl fmt::Display for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, text) = match &self.state {
            CheckState::Ok(text) => ("ok", text),
            CheckState::Warn(text) => ("warn", text),
            CheckState::Fail(text) => ("fail", text),
        };
        let colon = if text.is_empty() { "" } else { ": " };
        write!(
            f,
            "{word} {}{colon}{}",
            self.name,
            text.replace(char::is_control, " ")
        )
    }
}

/// The function that runs the checks, again for each request of `/readyz`.
#[derive(Clone)]
pub struct Readiness(Arc<dyn Fn() -> Vec<HealthCheck> + Send + Sync>);

impl Readiness {
    /// Creates the checks from the function that runs them.
    pub fn new(checks: impl Fn() -> Vec<HealthCheck> + Send + Sync + 'static) -> Self {
        Self(Arc::new(checks))
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Readiness")
    }
}

/// The result of all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Health {
    /// `true` if no check fails.
    pub(super) ready: bool,
    /// Warnings and failures: `decision_log: 7 lines were lost`.
    pub(super) warnings: Vec<String>,
}

impl Readiness {
    pub(super) fn run_checks(&self) -> Health {
        let checks = (self.0)();
        let warnings = checks.iter().filter_map(|check| match &check.state {
            CheckState::Ok(_) => None,
            CheckState::Warn(text) | CheckState::Fail(text) => {
                Some(format!("{}: {text}", check.name))
            }
        });
        Health {
            ready: !checks.iter().any(HealthCheck::is_failing),
            warnings: warnings.collect(),
        }
    }
}

/// Returns a 200 response, or 503 if a check fails.
pub(super) fn response(readiness: &Readiness) -> Response<Full<Bytes>> {
    let checks = (readiness.0)();
    let fails = checks.iter().any(HealthCheck::is_failing);
    let status = if fails {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    text_response(
        status,
        TEXT_PLAIN,
        checks.iter().map(|check| format!("{check}\n")).collect(),
    )
}
