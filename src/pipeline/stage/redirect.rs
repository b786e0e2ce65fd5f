//! Redirect: the target of a redirect, and the policy's decision on it.
//!
//! The decision is made when the target is requested; this informs the crawler beforehand.

use http::header::{HeaderValue, LOCATION};
use http::response::Parts;
use http::{Method, StatusCode};

use crate::model::reason::Reason;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::Refusal;
use crate::policy::fact::{EvaluationTarget, Facts, LedgerPresence};
use crate::urls::target::{TargetError, UrlTarget};

/// The target of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RedirectTarget {
    /// The response is not a redirect, or has no target.
    None,
    /// The target is not a URL.
    Invalid,
    /// The target is a URL that this proxy cannot fetch.
    Unsupported(Reason),
    Url(UrlTarget),
}

/// Returns the target of a response.
pub(crate) fn redirect_target(evaluation: &Evaluation, head: &Parts) -> RedirectTarget {
    if !is_redirect(head.status) {
        return RedirectTarget::None;
    }
    let location = head.headers.get(LOCATION);
    // Clients interpret bytes that are not UTF-8 in different ways.
    let Some(location) =
        location.and_then(|location| std::str::from_utf8(location.as_bytes()).ok())
    else {
        return RedirectTarget::None;
    };
    match evaluation.facts().target.join(location.trim()) {
        Ok(target) => RedirectTarget::Url(target),
        // It is a URL, of a scheme without hosts.
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

/// Returns `true` for the statuses that a client follows (RFC 9110 section 15.4).
fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Returns the value of `Crawl-Redirect`, such as `reject; rule=no-cgi; reason=rule`; `None` if the policy would admit
/// the target at the request stage.
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

/// Returns the words of the refusal. A policy without rules admits the target as it admitted the URL.
fn target_refusal(
    evaluation: &Evaluation,
    status: StatusCode,
    target: &UrlTarget,
) -> Option<String> {
    let policy = evaluation.policy();
    if policy.rules().is_empty() {
        return None;
    }
    let subject = EvaluationTarget::Url(target);
    let in_ledger = LedgerPresence::Absent;
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

/// Returns the method with which clients follow: 307 and 308 keep the method, and so do all redirects of a HEAD (RFC
/// 9110 section 15.4).
fn followed_method(method: &Method, status: StatusCode) -> &Method {
    let is_method_kept = matches!(status.as_u16(), 307 | 308) || *method == Method::HEAD;
    if is_method_kept { method } else { &Method::GET }
}
