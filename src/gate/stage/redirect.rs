//! Redirect: where an answer leads to, and whether the policy would let the crawler go there.
//!
//! The target is judged for good only when it is asked for: this tells a crawler beforehand (policy.md section 4).

use http::header::{HeaderValue, LOCATION};
use http::response::Parts;
use http::{Method, StatusCode};

use crate::gate::judged::Judged;
use crate::gate::refusal::Refusal;
use crate::policy::fact::{Facts, InLedger, Subject};
use crate::vocab::reason::Reason;
use crate::vocab::target::{TargetError, UrlTarget};

/// Where an answer leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gate) enum Leads {
    /// Nowhere: it is no redirection, or does not say where to.
    Nowhere,
    /// To what is no URL.
    Astray,
    /// To a URL that nobody can ask this proxy for.
    Outside(Reason),
    /// There.
    To(UrlTarget),
}

/// Where this answer to a request leads to.
pub(in crate::gate) fn of<C>(judged: &Judged<C>, head: &Parts) -> Leads {
    if !redirects(head.status) {
        return Leads::Nowhere;
    }
    let location = head.headers.get(LOCATION);
    // Of bytes that are no UTF-8, clients make different URLs.
    let Some(location) =
        location.and_then(|location| std::str::from_utf8(location.as_bytes()).ok())
    else {
        return Leads::Nowhere;
    };
    match judged.asked.target.join(location.trim()) {
        Ok(target) => Leads::To(target),
        // It is a URL: of a scheme that has no hosts.
        Err(TargetError::Scheme(_) | TargetError::NotAbsolute) => {
            Leads::Outside(Reason::SchemeDenied)
        }
        Err(TargetError::Userinfo) => Leads::Outside(Reason::BadRequest),
        Err(
            TargetError::Fragment
            | TargetError::Space
            | TargetError::Control
            | TargetError::Backslash
            | TargetError::Port
            | TargetError::EmptyHost
            | TargetError::Host(_),
        ) => Leads::Astray,
    }
}

/// The statuses that a client goes on from (RFC 9110 section 15.4).
fn redirects(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The value of `Crawl-Redirect`: `reject; rule=no-cgi; reason=rule`. None if the policy would admit the target at the
/// request stage.
pub(in crate::gate) fn refused<C>(
    judged: &Judged<C>,
    status: StatusCode,
    leads: &Leads,
) -> Option<HeaderValue> {
    let words = match leads {
        Leads::Nowhere | Leads::Astray => return None,
        Leads::Outside(reason) => format!("reject; reason={}", reason.as_str()),
        Leads::To(target) => of_target(judged, status, target)?,
    };
    HeaderValue::from_str(&words).ok()
}

/// Without a rule, what has admitted the one URL admits the other, too.
fn of_target<C>(judged: &Judged<C>, status: StatusCode, target: &UrlTarget) -> Option<String> {
    let policy = judged.policy();
    if policy.rules().is_empty() {
        return None;
    }
    let (subject, in_ledger) = (Subject::Url(target), InLedger::No);
    let method = followed_with(&judged.asked.method, status).as_str();
    let (trail, decision) = policy.request(&Facts {
        subject,
        method,
        in_ledger,
        ..judged.asked.facts()
    });
    let Refusal { rule, reason, .. } = Refusal::by_policy(policy, &trail, &decision)?;
    let rule = rule.map_or(String::new(), |rule| format!("; rule={rule}"));
    Some(format!("reject{rule}; reason={}", reason.as_str()))
}

/// The method with which clients follow: 307 and 308 keep it, and so do all for HEAD (RFC 9110 section 15.4).
fn followed_with(method: &Method, status: StatusCode) -> &Method {
    let kept = matches!(status.as_u16(), 307 | 308) || *method == Method::HEAD;
    if kept { method } else { &Method::GET }
}
