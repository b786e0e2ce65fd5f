//! The responses that the proxy generates: status, reason headers and body.

mod trace_request;

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, LINK, PROXY_AUTHENTICATE,
    RETRY_AFTER,
};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use crate::metrics::record::RequestRecord;
use crate::model::crawl_status::CrawlStatus;
use crate::model::crawler::Crawler;
use crate::model::intent::Intent;
use crate::model::profile::{Conditional, Profile, WireResponse};
use crate::model::rule_id::RuleId;
use crate::pacing::retry_after::DEFAULT_RETRY_AFTER;
use crate::pipeline::headers::first_values;
use crate::pipeline::refusal::{Refusal, SubstituteRobots};
use crate::pipeline::response::ResponseAnnotations;
use crate::robots::state::{RobotsRules, RobotsState};
use crate::trace_context::TraceId;

use trace_request::TraceRequest;

/// `Crawl-Status`: a Norconex-style status, in every response.
pub const CRAWL_STATUS: HeaderName = HeaderName::from_static("crawl-status");
/// `Crawl-Reason`: the reason of a refusal.
pub const CRAWL_REASON: HeaderName = HeaderName::from_static("crawl-reason");
/// `Crawl-Rule`: the rule that caused the refusal.
pub const CRAWL_RULE: HeaderName = HeaderName::from_static("crawl-rule");
/// `Crawl-Policy`: `name@revision`.
pub const CRAWL_POLICY: HeaderName = HeaderName::from_static("crawl-policy");
/// `Crawl-Decision`: the ID that the log, the trace and the problem document share.
pub const CRAWL_DECISION: HeaderName = HeaderName::from_static("crawl-decision");
/// `Crawl-Contact`: who answers questions about the policy.
pub const CRAWL_CONTACT: HeaderName = HeaderName::from_static("crawl-contact");
/// `Crawl-Retry`: the advice on repeating the request.
pub const CRAWL_RETRY: HeaderName = HeaderName::from_static("crawl-retry");
/// `Crawl-Code`: an OmniFind-style code, if there is one.
pub const CRAWL_CODE: HeaderName = HeaderName::from_static("crawl-code");
/// `Crawl-Error`: the permanence of an origin's error (CloudView's table).
pub const CRAWL_ERROR: HeaderName = HeaderName::from_static("crawl-error");
/// `Crawl-Tag`: a finding about a response that is passed on.
pub const CRAWL_TAG: HeaderName = HeaderName::from_static("crawl-tag");
/// `Crawl-Redirect`: the reason why the policy would refuse the target of a redirect.
pub const CRAWL_REDIRECT: HeaderName = HeaderName::from_static("crawl-redirect");
/// `Crawl-Held`: the number of seconds for which a request was held: for its host's turn, for the end of a stop or for
/// robots.txt.
pub const CRAWL_HELD: HeaderName = HeaderName::from_static("crawl-held");
/// `Crawl-Shadow`: the verdict of shadow rules and policies.
pub const CRAWL_SHADOW: HeaderName = HeaderName::from_static("crawl-shadow");
/// `Crawl-Trace-Id`: the ID of the request's trace, for crawlers that request it and are allowed
/// to.
pub const CRAWL_TRACE_ID: HeaderName = HeaderName::from_static("crawl-trace-id");
/// `Proxy-Status` (RFC 9209).
pub const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// The properties of a request that determine the form of its refusal.
#[derive(Clone, Copy, Debug)]
pub struct RefusalStyle {
    /// The crawler's profile.
    pub profile: Profile,
    /// `Yes` if the request is conditional, so that a 304 is allowed.
    pub conditional: Conditional,
    /// The form of the body.
    pub format: RefusalFormat,
}

/// The form of a refusal's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalFormat {
    /// `application/problem+json` (RFC 9457).
    Problem,
    /// One line of `text/plain`.
    Text,
}

/// The policy's identity in a response.
#[derive(Clone, Copy, Debug)]
pub struct PolicyLabel<'a> {
    pub name: &'a str,
    pub revision: &'a str,
    pub contacts: &'a RefusalContacts,
}

/// The people and pages that a refusal names (`policy.contact`, `admin.public_url`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusalContacts {
    /// The contact for questions about the policy: an address or a URL.
    pub contact: Option<Box<str>>,
    /// The URL of the admin listener, without a slash at its end.
    pub public_url: Option<Box<str>>,
}

/// No contact and no page.
pub static NO_CONTACTS: RefusalContacts = RefusalContacts {
    contact: None,
    public_url: None,
};

impl RefusalContacts {
    /// Returns the URL at which the admin page explains a decision.
    fn decision_page(&self, decision: &str) -> Option<String> {
        let base = self.public_url.as_deref()?;
        Some(format!("{base}/ui#/try?decision={decision}"))
    }
}

/// The configured choice of the profile (`profile`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileSelection {
    /// The profile that matches the client's `User-Agent`.
    ByUserAgent,
    /// One profile for all clients.
    Always(Profile),
}

/// The header fields of a request that shape a refusal, kept until the outcome is known.
#[derive(Clone, Debug)]
pub struct ReplyPreferences {
    user_agent: Option<HeaderValue>,
    accept: Option<HeaderValue>,
    conditional: Conditional,
    profile: Option<Profile>,
    trace_request: TraceRequest,
}

impl ReplyPreferences {
    /// Copies the fields without parsing them: most requests are not refused.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let mut preferences = Self {
            user_agent: None,
            accept: None,
            conditional: Conditional::No,
            profile: None,
            trace_request: TraceRequest::NONE,
        };
        for (name, value) in first_values(headers) {
            match name.as_str() {
                "user-agent" => preferences.user_agent = Some(value.clone()),
                "accept" => preferences.accept = Some(value.clone()),
                "if-none-match" | "if-modified-since" => preferences.conditional = Conditional::Yes,
                other => preferences.trace_request.read_field(other, value, headers),
            }
        }
        preferences
    }

    /// Records the span that the client's request belongs to, if the client sent one.
    pub fn record_parent_span(&self, record: &mut RequestRecord) {
        self.trace_request.record_parent_span(record);
    }

    /// Applies the identified crawler's settings: its profile takes precedence, and its hints on
    /// tracing are recorded.
    pub fn set_crawler(&mut self, crawler: &Crawler, record: &mut RequestRecord) {
        self.profile = crawler.profile();
        self.trace_request.apply_crawler(crawler, record);
    }

    /// Adds details of the decision for a client that requested them and is allowed to.
    pub fn add_trace_headers(&self, headers: &mut HeaderMap, record: &RequestRecord) {
        self.trace_request.add_headers(headers, record);
    }

    /// Returns `Yes` if the client accepts a 304.
    pub fn conditional(&self) -> Conditional {
        self.conditional
    }

    /// Returns the profile of this client.
    pub fn profile(&self, choice: ProfileSelection) -> Profile {
        match (self.profile, choice) {
            (Some(profile), _) | (None, ProfileSelection::Always(profile)) => profile,
            (None, ProfileSelection::ByUserAgent) => Profile::from_user_agent(
                self.user_agent.as_ref().map_or(&[], HeaderValue::as_bytes),
            ),
        }
    }

    /// Returns the form of a refusal for this client.
    pub fn refusal_style(&self, choice: ProfileSelection) -> RefusalStyle {
        let accept = self
            .accept
            .as_ref()
            .and_then(|v| v.to_str().ok())
            .unwrap_or("");
        RefusalStyle {
            profile: self.profile(choice),
            conditional: self.conditional,
            format: RefusalFormat::from_accept(accept),
        }
    }
}

impl RefusalFormat {
    /// Returns `Text` only if `Accept` prefers it (RFC 9110 section 12.5.1).
    fn from_accept(accept: &str) -> Self {
        let text = best_weight(accept, &["text/plain", "text/*"]);
        let problem = best_weight(
            accept,
            &[
                "application/problem+json",
                "application/json",
                "application/*",
            ],
        );
        if text > problem {
            Self::Text
        } else {
            Self::Problem
        }
    }
}

/// Returns the highest weight of one of these ranges in an `Accept` value.
fn best_weight(accept: &str, ranges: &[&str]) -> f32 {
    accept
        .split(',')
        .filter_map(|member| weight(member, ranges))
        .fold(0.0, f32::max)
}

/// Returns the weight of a member of `Accept`, if it is one of these ranges.
fn weight(member: &str, ranges: &[&str]) -> Option<f32> {
    let mut parts = member.split(';');
    let range = parts.next()?.trim();
    if !ranges.iter().any(|r| r.eq_ignore_ascii_case(range)) {
        return None;
    }
    let q = parts
        .find_map(|p| p.trim().strip_prefix("q="))
        .map_or(Ok(1.0), str::parse);
    Some(q.unwrap_or(0.0))
}

/// Returns the response to a refused request, or `None` if this crawler is answered by closing the
/// connection.
pub fn refusal_response(
    refusal: &Refusal,
    style: RefusalStyle,
    policy: PolicyLabel<'_>,
    decision: &str,
) -> Option<Response<Bytes>> {
    let WireResponse::Status(code) = refusal.to_wire(style.profile, style.conditional) else {
        return None;
    };
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::FORBIDDEN);
    let body = refusal_body(refusal, style, policy, decision, status);
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(14);
    insert_reason_headers(headers, refusal, policy, decision);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let later = matches!(status.as_u16(), 429 | 503) || refusal.intent() == Some(Intent::Later);
    if later || refusal.retry_after.is_some() {
        let time = refusal.retry_after.unwrap_or(DEFAULT_RETRY_AFTER);
        headers.insert(RETRY_AFTER, HeaderValue::from(time.as_secs()));
    }
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        headers.insert(PROXY_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(
            http::header::ALLOW,
            HeaderValue::from_static(ALLOWED_METHODS),
        );
    }
    if status != StatusCode::NOT_MODIFIED && status != StatusCode::NO_CONTENT {
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static(style.format.media_type()),
        );
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        *response.body_mut() = body;
    }
    Some(response)
}

/// Sets `Crawl-Held: 1.250`, so that a crawler that adapts to latency can subtract the wait.
pub fn set_held_time(headers: &mut HeaderMap, held: Duration) {
    insert(headers, CRAWL_HELD, &format!("{:.3}", held.as_secs_f64()));
}

/// Sets `Crawl-Error: permanent`, `Crawl-Tag: unmodified` and `Crawl-Redirect: reject; rule=no-cgi;
/// reason=rule`.
pub fn set_annotations(headers: &mut HeaderMap, annotations: ResponseAnnotations) {
    if let Some(failure) = annotations.failure {
        headers.insert(CRAWL_ERROR, HeaderValue::from_static(failure.as_str()));
    }
    annotations
        .tags
        .into_iter()
        .for_each(|tag| append_tag(headers, tag));
    if let Some(redirect) = annotations.redirect_refusal {
        headers.insert(CRAWL_REDIRECT, redirect);
    }
}

/// Replaces `Crawl-Status`, which otherwise is that of the origin's status.
pub fn set_crawl_status(headers: &mut HeaderMap, status: CrawlStatus) {
    headers.insert(CRAWL_STATUS, HeaderValue::from_static(status.as_str()));
}

/// Adds `Crawl-Tag: noindex`, one of the findings of the checks on the response.
pub fn append_tag(headers: &mut HeaderMap, tag: HeaderValue) {
    headers.append(CRAWL_TAG, tag);
}

/// Sets `Crawl-Shadow: reject; rule=no-cgi`.
pub fn set_shadows(headers: &mut HeaderMap, words: &str) {
    insert(headers, CRAWL_SHADOW, words);
}

/// Sets `Crawl-Trace-Id: 0af7651916cd43dd8448eb211c80319c`.
pub fn set_trace_id(headers: &mut HeaderMap, trace: TraceId) {
    insert(headers, CRAWL_TRACE_ID, &trace.to_string());
}

/// The robots.txt that allows nothing.
const DISALLOW_ALL: Bytes = Bytes::from_static(b"User-agent: *\nDisallow: /\n");
/// The robots.txt that allows everything.
const ALLOW_ALL: Bytes = Bytes::from_static(b"User-agent: *\nDisallow:\n");

/// The challenge of RFC 7617: one realm, with passwords in UTF-8.
const CHALLENGE: &str = "Basic realm=\"crawlgate\", charset=\"UTF-8\"";

/// The methods that are not refused as such.
pub const ALLOWED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

impl RefusalFormat {
    fn media_type(self) -> &'static str {
        match self {
            Self::Problem => "application/problem+json",
            Self::Text => "text/plain; charset=utf-8",
        }
    }
}

/// Returns the robots.txt that is served for a host that the policy refuses entirely.
pub fn substitute_robots_txt(
    refusal: &Refusal,
    file: &SubstituteRobots,
    policy: PolicyLabel<'_>,
    decision: &str,
) -> Response<Bytes> {
    let refusal = Refusal {
        error: Some("proxy_internal_response"),
        ..refusal.clone()
    };
    let mut response = match file {
        SubstituteRobots::DisallowAll => robots_txt(DISALLOW_ALL, StatusCode::OK),
        SubstituteRobots::AllowAll => robots_txt(ALLOW_ALL, StatusCode::OK),
        SubstituteRobots::Cached(state) => cached_robots_txt(state),
    };
    let headers = response.headers_mut();
    insert_reason_headers(headers, &refusal, policy, decision);
    // The policy may change at any time.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns the robots.txt of a host from the cache: the text, or the status that means that it
/// does not exist.
pub fn cached_robots_txt(state: &RobotsState) -> Response<Bytes> {
    let effective = match state.rules {
        RobotsRules::Unknown => state.stale().unwrap_or(state),
        RobotsRules::File(_) | RobotsRules::AllowAll => state,
    };
    let text = effective.file().map(|rules| rules.text().clone());
    let is_absent = effective
        .status
        .filter(|status| (400..500).contains(status))
        .unwrap_or(404);
    let status = if text.is_some() { 200 } else { is_absent };
    let status_code = StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND);
    let mut response = robots_txt(text.unwrap_or_default(), status_code);
    response.headers_mut().insert(
        CRAWL_STATUS,
        HeaderValue::from_static(CrawlStatus::from_origin_status(status).as_str()),
    );
    response
}

fn robots_txt(text: Bytes, status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    *response.body_mut() = text;
    response
}

fn insert_reason_headers(
    headers: &mut HeaderMap,
    refusal: &Refusal,
    policy: PolicyLabel<'_>,
    decision: &str,
) {
    let row = refusal.reason.row();
    headers.insert(
        CRAWL_STATUS,
        HeaderValue::from_static(row.crawl_status.as_str()),
    );
    headers.insert(CRAWL_REASON, HeaderValue::from_static(row.name));
    if let Some(rule) = &refusal.rule {
        insert(headers, CRAWL_RULE, rule.as_str());
    }
    insert(
        headers,
        CRAWL_POLICY,
        &format!("{}@{}", policy.name, policy.revision),
    );
    insert(headers, CRAWL_DECISION, decision);
    if let Some(contact) = &policy.contacts.contact {
        insert(headers, CRAWL_CONTACT, contact);
    }
    if let Some(page) = policy.contacts.decision_page(decision) {
        insert(headers, LINK, &format!("<{page}>; rel=\"help\""));
    }
    headers.insert(CRAWL_RETRY, HeaderValue::from_static(row.retry.as_str()));
    if let Some(code) = refusal.crawl_code() {
        headers.insert(CRAWL_CODE, HeaderValue::from(code));
    }
    if let Some(failure) = refusal.failure {
        headers.insert(CRAWL_ERROR, HeaderValue::from_static(failure.as_str()));
    }
    insert(headers, PROXY_STATUS, &proxy_status(refusal));
}

/// Formats one member of the structured field list (RFC 9209). All words are fixed or validated, so
/// nothing needs escaping.
fn proxy_status(refusal: &Refusal) -> String {
    let row = refusal.reason.row();
    let error = refusal.error.unwrap_or(row.error);
    let mut member = format!("\"crawlgate\"; error={error}");
    if let Some(status) = refusal.received_status.map(|status| status.as_u16()) {
        member.push_str(&format!("; received-status={status}"));
    }
    let rule = refusal
        .rule
        .as_ref()
        .map_or(String::new(), |rule| format!("; rule={rule}"));
    let line = refusal
        .robots_cause()
        .map_or(String::new(), |cause| format!("; line={}", cause.line));
    let parent = refusal
        .parent
        .as_ref()
        .map_or(String::new(), |name| format!("; parent={}", name.as_str()));
    let fault = refusal
        .fault
        .map_or(String::new(), |fault| format!("; {}", fault.description));
    member.push_str(&format!(
        "; details=\"{}{rule}{line}{parent}{fault}\"",
        row.name
    ));
    member
}

/// Inserts a field. All values consist of validated words; a value that is not valid in a header is
/// omitted, never altered.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn refusal_body(
    refusal: &Refusal,
    style: RefusalStyle,
    policy: PolicyLabel<'_>,
    decision: &str,
    status: StatusCode,
) -> Bytes {
    if style.profile.omits_body() {
        return Bytes::new();
    }
    let row = refusal.reason.row();
    let detail = refusal
        .detail
        .as_deref()
        .map_or_else(|| row.title.to_owned(), to_single_line);
    let page = policy.contacts.decision_page(decision);
    let contact = policy.contacts.contact.as_deref();
    if style.format == RefusalFormat::Text {
        let rule = refusal
            .rule
            .as_ref()
            .map_or(String::new(), |rule| format!(" rule={rule}"));
        let page = page.map_or(String::new(), |page| format!("; see {page}"));
        let contact = contact.map_or(String::new(), |contact| format!("; contact: {contact}"));
        return format!(
            "{} ({}{rule}; {decision}): {detail}{page}{contact}\n",
            row.title, row.name
        )
        .into();
    }
    let mut problem = json!({
        "type": format!("urn:crawlgate:reason:{}", row.name),
        "title": row.title,
        "status": status.as_u16(),
        "detail": detail,
        "instance": format!("urn:crawlgate:decision:{decision}"),
        "reason": row.name,
        "rule": refusal.rule.as_ref().map(RuleId::as_str),
        "policy": policy.name,
        "revision": policy.revision,
        "stage": refusal.stage.as_str(),
    });
    for (member, value) in [("page", page.as_deref()), ("contact", contact)] {
        if let (Some(value), Some(members)) = (value, problem.as_object_mut()) {
            members.insert(member.to_owned(), value.into());
        }
    }
    let mut text = problem.to_string();
    text.push('\n');
    text.into()
}

/// Reduces a text to one line without links: some crawlers parse the body of a refusal.
fn to_single_line(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace("://", " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::reason::Reason;
    use crate::model::stage::Stage;

    fn answered(refusal: &Refusal, profile: Profile, accept: &str) -> Response<Bytes> {
        answered_with(&NO_CONTACTS, refusal, profile, accept)
    }

    fn answered_with(
        contacts: &RefusalContacts,
        refusal: &Refusal,
        profile: Profile,
        accept: &str,
    ) -> Response<Bytes> {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, HeaderValue::from_str(accept).unwrap());
        let policy = PolicyLabel {
            name: "acme",
            revision: "3f9c2a1b",
            contacts,
        };
        refusal_response(
            refusal,
            ReplyPreferences::from_headers(&headers)
                .refusal_style(ProfileSelection::Always(profile)),
            policy,
            "a1-1",
        )
        .unwrap()
    }

    fn by_rule() -> Refusal {
        Refusal {
            rule: RuleId::new("no-cgi"),
            ..Refusal::new(Reason::Rule, Stage::Request)
        }
    }

    #[test]
    fn a_refusal_has_its_reason_in_headers_and_body() {
        let response = answered(
            &by_rule().with_detail("no\r\nscripts, see http://wiki/x"),
            Profile::Generic,
            "*/*",
        );
        assert_eq!(response.status(), 451);
        let header = |name| response.headers()[name].to_str().unwrap();
        assert_eq!(header("crawl-status"), "REJECTED_FILTER");
        assert_eq!(header("crawl-rule"), "no-cgi");
        assert_eq!(header("crawl-policy"), "acme@3f9c2a1b");
        assert_eq!(
            header("proxy-status"),
            "\"crawlgate\"; error=http_request_denied; details=\"rule; rule=no-cgi\""
        );
        let problem: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(problem["detail"], "no scripts, see http wiki/x");
        assert_eq!(problem["stage"], "request");
        assert_eq!(header("content-length"), response.body().len().to_string());
    }

    #[test]
    fn a_refusal_names_the_contact_and_the_page_of_its_decision() {
        let contacts = RefusalContacts {
            contact: Some("crawl-team@corp.example".into()),
            public_url: Some("https://gate.corp.example".into()),
        };
        let page = "https://gate.corp.example/ui#/try?decision=a1-1";
        let response = answered_with(&contacts, &by_rule(), Profile::Generic, "*/*");
        let header = |name: HeaderName| response.headers()[name].to_str().unwrap();
        assert_eq!(header(CRAWL_CONTACT), "crawl-team@corp.example");
        assert_eq!(header(LINK), format!("<{page}>; rel=\"help\""));
        let problem: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(
            (&problem["page"], &problem["contact"]),
            (&page.into(), &"crawl-team@corp.example".into())
        );
        let text = answered_with(&contacts, &by_rule(), Profile::Generic, "text/plain");
        let text = String::from_utf8(text.body().to_vec()).unwrap();
        let end = format!("; see {page}; contact: crawl-team@corp.example\n");
        assert!(text.ends_with(&end), "{text}");

        let plain = answered(&by_rule(), Profile::Generic, "*/*");
        assert!(
            !plain.headers().contains_key(LINK) && !plain.headers().contains_key(CRAWL_CONTACT)
        );
        let problem: serde_json::Value = serde_json::from_slice(plain.body()).unwrap();
        assert!(problem.get("page").is_none() && problem.get("contact").is_none());
    }

    #[test]
    fn text_is_used_only_if_preferred() {
        for (accept, text) in [
            ("text/plain", true),
            ("text/plain;q=0.5, application/json;q=0.4", true),
            ("text/html,application/xhtml+xml,*/*;q=0.8", false),
            ("*/*", false),
            ("application/json, text/plain", false),
            ("text/plain;q=banana", false),
        ] {
            let response = answered(&by_rule(), Profile::Generic, accept);
            let is_text = response.headers()[CONTENT_TYPE]
                .to_str()
                .unwrap()
                .starts_with("text/plain");
            assert_eq!(is_text, text, "{accept}");
        }
    }

    #[test]
    fn heritrix_gets_no_body_and_no_response_when_overloaded() {
        assert!(
            answered(&by_rule(), Profile::Heritrix, "*/*")
                .body()
                .is_empty()
        );
        let later = Refusal::new(Reason::Overloaded, Stage::Identify);
        let style = ReplyPreferences::from_headers(&HeaderMap::new())
            .refusal_style(ProfileSelection::Always(Profile::Heritrix));
        assert!(
            refusal_response(
                &later,
                style,
                PolicyLabel {
                    name: "p",
                    revision: "0",
                    contacts: &NO_CONTACTS,
                },
                "d"
            )
            .is_none()
        );
    }
}
