//! Redirect: where an answer leads to, and whether the policy would let the crawler go there.
//!
//! The target is judged for good only when it is asked for: this tells a crawler beforehand (policy.md section 4).

use http::header::{HeaderValue, LOCATION};
use http::response::Parts;
use http::{Method, StatusCode};

use crate::model::reason::Reason;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::Refusal;
use crate::policy::fact::{EvaluationTarget, Facts, LedgerPresence};
use crate::urls::target::{TargetError, UrlTarget};

/// Where an answer leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RedirectTarget {
    /// Nowhere: it is no redirection, or does not say where to.
    None,
    /// To what is no URL.
    Invalid,
    /// To a URL that nobody can ask this proxy for.
    Unsupported(Reason),
    /// There.
    Url(UrlTarget),
}

/// Where this answer to a request leads to.
pub(crate) fn redirect_target(evaluation: &Evaluation, head: &Parts) -> RedirectTarget {
    if !is_redirect(head.status) {
        return RedirectTarget::None;
    }
    let location = head.headers.get(LOCATION);
    // Of bytes that are no UTF-8, clients make different URLs.
    let Some(location) =
        location.and_then(|location| std::str::from_utf8(location.as_bytes()).ok())
    else {
        return RedirectTarget::None;
    };
    match evaluation.facts().target.join(location.trim()) {
        Ok(target) => RedirectTarget::Url(target),
        // It is a URL: of a scheme that has no hosts.
        Err(TargetError::Scheme(_) | TargetError::NotAbsolute) => {
            RedirectTarget::Unsupported(Reason::SchemeDenied)
        }
        Err(TargetError::Userinfo) => RedirectTarget::Unsupported(Reason::BadRequest),
        Err(
            TargetError::Fragment
            | TargetError::Space
            | TargetError::Control
            | TargetError::Backslash
            | TargetError::Port
            | TargetError::EmptyHost
            | TargetError::Host(_),
        ) => RedirectTarget::Invalid,
    }
}

/// The statuses that a client goes on from (RFC 9110 section 15.4).
fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The value of `Crawl-Redirect`: `reject; rule=no-cgi; reason=rule`. None if the policy would admit the target at the
/// request stage.
pub(crate) fn redirect_refusal(
    evaluation: &Evaluation,
    status: StatusCode,
    redirect: &RedirectTarget,
) -> Option<HeaderValue> {
    let words = match redirect {
        RedirectTarget::None | RedirectTarget::Invalid => return None,
        RedirectTarget::Unsupported(reason) => format!("reject; reason={}", reason.as_str()),
        RedirectTarget::Url(target) => target_refusal(evaluation, status, target)?,
    };
    HeaderValue::from_str(&words).ok()
}

/// Without a rule, what has admitted the one URL admits the other, too.
fn target_refusal(
    evaluation: &Evaluation,
    status: StatusCode,
    target: &UrlTarget,
) -> Option<String> {
    let policy = evaluation.policy();
    if policy.rules().is_empty() {
        return None;
    }
    let (subject, in_ledger) = (EvaluationTarget::Url(target), LedgerPresence::Absent);
    let method = followed_method(&evaluation.facts().method, status).as_str();
    let (trail, decision) = policy.decide_request(&Facts {
        target: subject,
        method,
        in_ledger,
        ..evaluation.facts().policy_facts()
    });
    let Refusal { rule, reason, .. } = Refusal::from_decision(policy, &trail, &decision)?;
    let rule = rule.map_or(String::new(), |rule| format!("; rule={rule}"));
    Some(format!("reject{rule}; reason={}", reason.as_str()))
}

/// The method with which clients follow: 307 and 308 keep it, and so do all for HEAD (RFC 9110 section 15.4).
fn followed_method(method: &Method, status: StatusCode) -> &Method {
    let kept = matches!(status.as_u16(), 307 | 308) || *method == Method::HEAD;
    if kept { method } else { &Method::GET }
}
