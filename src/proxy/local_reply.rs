//! The answers that the proxy makes itself: status, reason headers and body (decisions.md section 3).

mod trace_request;

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, PROXY_AUTHENTICATE,
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
use crate::pipeline::headers::first_values;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::response::ResponseAnnotations;
use crate::robots::state::{RobotsRules, RobotsState};
use crate::trace_context::TraceId;

use trace_request::TraceRequest;

/// `Crawl-Status`: a Norconex-style status, on every answer.
pub const CRAWL_STATUS: HeaderName = HeaderName::from_static("crawl-status");
/// `Crawl-Reason`: the reason of a refusal.
pub const CRAWL_REASON: HeaderName = HeaderName::from_static("crawl-reason");
/// `Crawl-Rule`: the rule that decided.
pub const CRAWL_RULE: HeaderName = HeaderName::from_static("crawl-rule");
/// `Crawl-Policy`: `name@revision`.
pub const CRAWL_POLICY: HeaderName = HeaderName::from_static("crawl-policy");
/// `Crawl-Decision`: the id that log, trace and problem document share.
pub const CRAWL_DECISION: HeaderName = HeaderName::from_static("crawl-decision");
/// `Crawl-Retry`: whether asking again can help.
pub const CRAWL_RETRY: HeaderName = HeaderName::from_static("crawl-retry");
/// `Crawl-Code`: an OmniFind-style code, where one exists.
pub const CRAWL_CODE: HeaderName = HeaderName::from_static("crawl-code");
/// `Crawl-Error`: whether an origin's error is permanent (CloudView's table).
pub const CRAWL_ERROR: HeaderName = HeaderName::from_static("crawl-error");
/// `Crawl-Tag`: what was found in an answer that is passed on all the same.
pub const CRAWL_TAG: HeaderName = HeaderName::from_static("crawl-tag");
/// `Crawl-Redirect`: why the policy would refuse what a redirection leads to.
pub const CRAWL_REDIRECT: HeaderName = HeaderName::from_static("crawl-redirect");
/// `Crawl-Held`: for how many seconds a request was held for politeness.
pub const CRAWL_HELD: HeaderName = HeaderName::from_static("crawl-held");
/// `Crawl-Shadow`: what rules and policies in shadow would have said.
pub const CRAWL_SHADOW: HeaderName = HeaderName::from_static("crawl-shadow");
/// `Crawl-Trace-Id`: the name of the request's trace, for crawlers that asked for it and may.
pub const CRAWL_TRACE_ID: HeaderName = HeaderName::from_static("crawl-trace-id");
/// `Proxy-Status` (RFC 9209).
pub const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Seconds after which a client that was refused for want of room may ask again.
const RETRY_SECONDS: u64 = 5;

/// The parts of a request that shape how it is refused.
#[derive(Clone, Copy, Debug)]
pub struct RefusalStyle {
    /// The crawler's profile.
    pub profile: Profile,
    /// Whether a 304 was asked for.
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

/// What an answer says of the policy in force.
#[derive(Clone, Copy, Debug)]
pub struct PolicyLabel<'a> {
    /// The policy's name.
    pub name: &'a str,
    /// Its revision.
    pub revision: &'a str,
}

/// Which profile answers: the configuration's `profile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileSelection {
    /// The one that fits the client's `User-Agent`.
    ByUserAgent,
    /// One for all.
    Always(Profile),
}

/// The fields of a request that shape a refusal, kept until it is known whether there is one.
#[derive(Clone, Debug)]
pub struct ReplyPreferences {
    user_agent: Option<HeaderValue>,
    accept: Option<HeaderValue>,
    conditional: Conditional,
    profile: Option<Profile>,
    trace_request: TraceRequest,
}

impl ReplyPreferences {
    /// Keeps the fields, without reading them: most requests are not refused.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let mut asker = Self {
            user_agent: None,
            accept: None,
            conditional: Conditional::No,
            profile: None,
            trace_request: TraceRequest::NONE,
        };
        for (name, value) in first_values(headers) {
            match name.as_str() {
                "user-agent" => asker.user_agent = Some(value.clone()),
                "accept" => asker.accept = Some(value.clone()),
                "if-none-match" | "if-modified-since" => asker.conditional = Conditional::Yes,
                other => asker.trace_request.read_field(other, value, headers),
            }
        }
        asker
    }

    /// Tells the record of the span that the client's request belongs to, if it says so.
    pub fn record_parent_span(&self, record: &mut RequestRecord) {
        self.trace_request.record_parent_span(record);
    }

    /// The crawler turned out to be this one: its own profile comes before any other, and the record hears what it may ask
    /// of tracing.
    pub fn set_crawler(&mut self, crawler: &Crawler, record: &mut RequestRecord) {
        self.profile = crawler.profile();
        self.trace_request.apply_crawler(crawler, record);
    }

    /// Tells a client that asked for a trace, and may have one, more of the decision than its answer needs.
    pub fn add_trace_headers(&self, headers: &mut HeaderMap, record: &RequestRecord) {
        self.trace_request.add_headers(headers, record);
    }

    /// Whether the client asked for a 304.
    pub fn conditional(&self) -> Conditional {
        self.conditional
    }

    /// How this client is refused.
    pub fn refusal_style(&self, choice: ProfileSelection) -> RefusalStyle {
        let profile = match (self.profile, choice) {
            (Some(profile), _) | (None, ProfileSelection::Always(profile)) => profile,
            (None, ProfileSelection::ByUserAgent) => Profile::from_user_agent(
                self.user_agent.as_ref().map_or(&[], HeaderValue::as_bytes),
            ),
        };
        let accept = self
            .accept
            .as_ref()
            .and_then(|v| v.to_str().ok())
            .unwrap_or("");
        RefusalStyle {
            profile,
            conditional: self.conditional,
            format: RefusalFormat::from_accept(accept),
        }
    }
}

impl RefusalFormat {
    /// Text only if `Accept` prefers it (RFC 9110 section 12.5.1).
    fn from_accept(accept: &str) -> Self {
        let members = || accept.split(',');
        let best = |ranges: &[&str]| {
            let weights = members().filter_map(|m| weight(m, ranges));
            weights.fold(0.0, f32::max)
        };
        let text = best(&["text/plain", "text/*"]);
        let problem = best(&[
            "application/problem+json",
            "application/json",
            "application/*",
        ]);
        if text > problem {
            Self::Text
        } else {
            Self::Problem
        }
    }
}

/// The weight of a member of `Accept`, if it is one of these ranges.
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

/// The answer to a refused request; `None` if this crawler is answered by closing the connection.
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
        let seconds = refusal
            .retry_after
            .map_or(RETRY_SECONDS, |time| time.as_secs());
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
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

/// `Crawl-Held: 1.250`, so that a crawler that adapts to latency can take the wait away from it.
pub fn set_held(headers: &mut HeaderMap, held: Duration) {
    insert(headers, CRAWL_HELD, &format!("{:.3}", held.as_secs_f64()));
}

/// `Crawl-Error: permanent`, `Crawl-Tag: unmodified`, `Crawl-Redirect: reject; rule=no-cgi; reason=rule`.
pub fn set_marks(headers: &mut HeaderMap, marks: ResponseAnnotations) {
    if let Some(failing) = marks.failure {
        headers.insert(CRAWL_ERROR, HeaderValue::from_static(failing.as_str()));
    }
    marks
        .tags
        .into_iter()
        .for_each(|tag| append_tag(headers, tag));
    if let Some(redirect) = marks.redirect_refusal {
        headers.insert(CRAWL_REDIRECT, redirect);
    }
}

/// `Crawl-Tag: noindex`: one of what checks have found in the answer.
pub fn append_tag(headers: &mut HeaderMap, tag: HeaderValue) {
    headers.append(CRAWL_TAG, tag);
}

/// `Crawl-Shadow: reject; rule=no-cgi`.
pub fn set_shadows(headers: &mut HeaderMap, words: &str) {
    insert(headers, CRAWL_SHADOW, words);
}

/// `Crawl-Trace-Id: 0af7651916cd43dd8448eb211c80319c`.
pub fn set_trace_id(headers: &mut HeaderMap, trace: TraceId) {
    insert(headers, CRAWL_TRACE_ID, &trace.to_string());
}

/// RFC 7617: one realm, and passwords in UTF-8.
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

/// The robots.txt of a host that the policy refuses whole: crawlers take any 4xx for "all allowed".
pub fn disallow_all_robots_txt(
    refusal: &Refusal,
    policy: PolicyLabel<'_>,
    decision: &str,
) -> Response<Bytes> {
    let text = Bytes::from_static(b"User-agent: *\nDisallow: /\n");
    let refusal = Refusal {
        error: Some("proxy_internal_response"),
        ..refusal.clone()
    };
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    insert_reason_headers(headers, &refusal, policy, decision);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    *response.body_mut() = text;
    response
}

/// The robots.txt of a host as the proxy knows it: the text, or the status that says that there is none.
pub fn known_robots_txt(known: &RobotsState) -> Response<Bytes> {
    let in_force = match known.rules {
        RobotsRules::Unknown => known.stale().unwrap_or(known),
        RobotsRules::File(_) | RobotsRules::AllowAll => known,
    };
    let text = in_force.file().map(|rules| rules.text().clone());
    let absent = in_force
        .status
        .filter(|status| (400..500).contains(status))
        .unwrap_or(404);
    let status = if text.is_some() { 200 } else { absent };
    let text = text.unwrap_or_default();
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND);
    let headers = response.headers_mut();
    headers.insert(
        CRAWL_STATUS,
        HeaderValue::from_static(CrawlStatus::from_origin_status(status).as_str()),
    );
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
    headers.insert(CRAWL_RETRY, HeaderValue::from_static(row.retry.as_str()));
    if let Some(code) = refusal.code.or(row.code) {
        headers.insert(CRAWL_CODE, HeaderValue::from(code));
    }
    if let Some(failing) = refusal.failure {
        headers.insert(CRAWL_ERROR, HeaderValue::from_static(failing.as_str()));
    }
    insert(headers, PROXY_STATUS, &proxy_status(refusal));
}

/// One member of the structured field list (RFC 9209): the names are checked words, so nothing needs escaping.
fn proxy_status(refusal: &Refusal) -> String {
    let row = refusal.reason.row();
    let error = refusal.error.unwrap_or(row.error);
    let mut member = format!("\"crawlgate\"; error={error}");
    if let Some(status) = refusal.received_status {
        member.push_str(&format!("; received-status={status}"));
    }
    let rule = refusal
        .rule
        .as_ref()
        .map_or(String::new(), |rule| format!("; rule={rule}"));
    let line = refusal
        .robots_line
        .map_or(String::new(), |line| format!("; line={line}"));
    let fault = refusal
        .fault
        .map_or(String::new(), |fault| format!("; {}", fault.description));
    member.push_str(&format!("; details=\"{}{rule}{line}{fault}\"", row.name));
    member
}

/// All values are made of checked words; one that would not fit a header is left out, never mended.
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
    if style.format == RefusalFormat::Text {
        let rule = refusal
            .rule
            .as_ref()
            .map_or(String::new(), |rule| format!(" rule={rule}"));
        return format!("{} ({}{rule}; {decision}): {detail}\n", row.title, row.name).into();
    }
    let problem = json!({
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
    let mut text = problem.to_string();
    text.push('\n');
    text.into()
}

/// Some crawlers read the body of a refusal: it has one line, and nothing in it is a link.
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
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, HeaderValue::from_str(accept).unwrap());
        let in_force = PolicyLabel {
            name: "acme",
            revision: "3f9c2a1b",
        };
        refusal_response(
            refusal,
            ReplyPreferences::from_headers(&headers)
                .refusal_style(ProfileSelection::Always(profile)),
            in_force,
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
    fn a_refusal_says_why_in_headers_and_body() {
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
    fn text_only_where_it_is_preferred() {
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
    fn heritrix_gets_no_body_and_is_hung_up_on_when_there_is_no_room() {
        assert!(
            answered(&by_rule(), Profile::Heritrix, "*/*")
                .body()
                .is_empty()
        );
        let later = Refusal::new(Reason::Overloaded, Stage::Identify);
        let manner = ReplyPreferences::from_headers(&HeaderMap::new())
            .refusal_style(ProfileSelection::Always(Profile::Heritrix));
        assert!(
            refusal_response(
                &later,
                manner,
                PolicyLabel {
                    name: "p",
                    revision: "0"
                },
                "d"
            )
            .is_none()
        );
    }
}
