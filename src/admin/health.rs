//! Whether the proxy should be sent requests: `/readyz`, one line a check. `/healthz` only says that it runs.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;

use super::response::{TEXT_PLAIN, text_response};

/// One line of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What was looked at: `policy`, `drain`, `log`.
    pub name: &'static str,
    /// What was found.
    pub state: CheckState,
}

/// What a check found. Texts are shown on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// As it should be; the text may say what: `acme@3f9c2a1b`.
    Ok(String),
    /// Something is wrong, but requests are served: lines of the log are lost.
    Warn(String),
    /// Requests should go elsewhere: 503.
    Fail(String),
}

impl HealthCheck {
    /// A check of this name.
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

/// Makes the checks, anew for each request of `/readyz`.
#[derive(Clone)]
pub struct Readiness(Arc<dyn Fn() -> Vec<HealthCheck> + Send + Sync>);

impl Readiness {
    /// Asks this function.
    pub fn new(checks: impl Fn() -> Vec<HealthCheck> + Send + Sync + 'static) -> Self {
        Self(Arc::new(checks))
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Readiness")
    }
}

/// What all checks come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Health {
    /// Whether requests should be sent here.
    pub(super) ready: bool,
    /// What fails or is to be warned of: `log: 7 lines were lost`.
    pub(super) warnings: Vec<String>,
}

impl Readiness {
    /// Makes the checks.
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

/// 200 unless a check fails.
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
