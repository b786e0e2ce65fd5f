//! Filters the header fields of forwarded messages (RFC 9110 section 7.6).
//!
//! Fields are changed in place, in one pass.

use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION,
    SET_COOKIE, TRANSFER_ENCODING, VIA,
};
use http::{StatusCode, Version};
use smallvec::SmallVec;

use crate::model::crawl_status::CrawlStatus;
use crate::model::media_type::essence;
use crate::urls::target::UrlTarget;

use super::local_reply::{CRAWL_STATUS, PROXY_STATUS};

/// The field in which crawlers and warcprox exchange what should be archived and what is refused.
pub(super) const WARCPROX_META: HeaderName = HeaderName::from_static("warcprox-meta");

/// Returns `true` for fields that belong to one connection, or to the operator of this proxy.
pub(super) fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "proxy-connection"
            | "keep-alive"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "proxy-authorization"
            | "proxy-authenticate"
            | "http2-settings"
    )
}

/// Returns `true` for request fields that reveal the crawler's network to origins, or that the
/// proxy itself handles.
fn is_for_proxy(name: &str) -> bool {
    matches!(
        name,
        "expect" | "forwarded" | "priority" | "warcprox-meta" | "x-real-ip" | "true-client-ip"
    ) || name.starts_with("x-forwarded-")
        || name.starts_with("proxy-")
        || replaces_url(name)
        || is_trace_context(name)
}

/// Returns `true` for request fields that some servers (IIS, Symfony) read instead of the URL. The
/// crawler would get another page than the policy has evaluated.
fn replaces_url(name: &str) -> bool {
    matches!(name, "x-original-url" | "x-rewrite-url")
}

/// Returns `true` for request fields with `-` that the proxy evaluates, sets or frames by, and
/// forwards.
fn is_relied_on(name: &str) -> bool {
    matches!(
        name,
        "accept-encoding"
            | "content-length"
            | "if-match"
            | "if-modified-since"
            | "if-none-match"
            | "if-range"
            | "if-unmodified-since"
            | "max-forwards"
            | "sec-fetch-dest"
            | "signature-agent"
            | "signature-input"
            | "user-agent"
    )
}

/// Returns `true` for request fields that are not forwarded.
///
/// CGI and WSGI do not distinguish `_` from `-`. A field with `_` would pass as another field that
/// is removed, or compete with one that the proxy relies on.
fn is_removed_from_request(name: &str) -> bool {
    let is_removed = |name: &str| is_hop_by_hop(name) || is_for_proxy(name) || is_crawl_field(name);
    if !name.contains('_') {
        return is_removed(name);
    }
    let name = name.replace('_', "-");
    is_removed(&name) || is_relied_on(&name)
}

/// Returns `true` for trace context. The proxy does not forward it: the crawled site has no
/// business with the crawl's traces.
fn is_trace_context(name: &str) -> bool {
    matches!(name, "traceparent" | "tracestate" | "baggage")
}

/// Returns `true` for `Crawl-*` fields. A site cannot forge one, and a crawler's hints are not
/// forwarded.
fn is_crawl_field(name: &str) -> bool {
    name.starts_with("crawl-")
}

/// Returns `true` for response fields that would lead the client around the proxy: to the same host
/// over QUIC or to another port (RFC 7838).
fn bypasses_proxy(name: &str) -> bool {
    name == "alt-svc"
}

/// Returns `true` for fields that a `Connection` field cannot remove: they route and frame a
/// message, or are intended for all recipients (RFC 9110 section 7.6.1), and the proxy evaluates
/// them. The other side would otherwise not see what was evaluated.
fn is_never_nominated(name: &str) -> bool {
    matches!(
        name,
        "host"
            | "via"
            | "transfer-encoding"
            | "user-agent"
            | "referer"
            | "sec-fetch-dest"
            | "location"
            | "link"
            | "x-robots-tag"
            | "etag"
            | "last-modified"
            | "retry-after"
    ) || name.starts_with("content-")
}

/// The name of this proxy in `Via` fields.
#[derive(Clone, Debug)]
pub struct ViaName {
    /// The pseudonym, such as `crawlgate-1f3a…`. It is unique to the running process, so that a
    /// chain of two proxies is not taken for a loop.
    pseudonym: Box<str>,
    request: HeaderValue,
    request_1_0: HeaderValue,
    http_2: HeaderValue,
}

impl ViaName {
    /// Creates the name from the process's instance prefix.
    pub fn new(instance: &str) -> Self {
        let pseudonym = format!("crawlgate-{instance}");
        Self {
            request: via_value("1.1", &pseudonym),
            request_1_0: via_value("1.0", &pseudonym),
            http_2: via_value("2.0", &pseudonym),
            pseudonym: pseudonym.into(),
        }
    }

    /// Returns `true` if a message has passed through this process before.
    pub fn is_named_in(&self, headers: &HeaderMap) -> bool {
        headers
            .get_all(VIA)
            .iter()
            .flat_map(|value| value.as_bytes().split(|b| matches!(b, b',' | b' ' | b'\t')))
            .any(|word| word == self.pseudonym.as_bytes())
    }

    /// Adds this proxy after those that the message has already passed through.
    fn append(&self, headers: &mut HeaderMap, version: Version) {
        let value = match version {
            Version::HTTP_10 => &self.request_1_0,
            Version::HTTP_2 => &self.http_2,
            _ => &self.request,
        };
        headers.append(VIA, value.clone());
    }
}

fn via_value(version: &str, pseudonym: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("{version} {pseudonym}"))
        .unwrap_or(HeaderValue::from_static("1.1 crawlgate"))
}

/// Turns a client's header fields into those of the request to the origin.
pub fn filter_request(headers: &mut HeaderMap, authority: &str, version: Version, via: &ViaName) {
    let removed = find_names(headers, is_removed_from_request);
    // `Connection` is always removed, so `removed` shows whether the request has it.
    if removed.contains(&CONNECTION) {
        remove_nominated_fields(headers);
    }
    remove_all(headers, &removed);
    via.append(headers, version);
    let agrees = headers
        .get(HOST)
        .is_some_and(|h| h.as_bytes() == authority.as_bytes());
    if !agrees && let Ok(value) = HeaderValue::from_str(authority) {
        headers.insert(HOST, value);
    }
}

/// The unambiguity of a response's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// The length is given in one way.
    Unambiguous,
    /// The length is given in two ways, as in response splitting: the connection is not reused.
    Ambiguous,
}

/// A transfer coding other than chunked: the proxy does not decode it, and does not forward the
/// field that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownTransferCoding;

/// Reduces the framing fields of an origin's response to the one length by which hyper reads the
/// body, or none (RFC 9112 section 6.3): a length in addition to chunks is ignored, and a list of
/// equal lengths is one length.
///
/// # Errors
/// Returns an error if the body has another transfer coding.
pub fn normalize_framing(
    headers: &mut HeaderMap,
) -> Result<ResponseFraming, UnknownTransferCoding> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let chunked = coding
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked");
        if !chunked || codings.next().is_some() {
            return Err(UnknownTransferCoding);
        }
        let had_length = headers.remove(CONTENT_LENGTH).is_some();
        return Ok(if had_length {
            ResponseFraming::Ambiguous
        } else {
            ResponseFraming::Unambiguous
        });
    }
    let Some(length) = headers.get(CONTENT_LENGTH) else {
        return Ok(ResponseFraming::Unambiguous);
    };
    let first = length
        .as_bytes()
        .split(|b| *b == b',')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    if first.len() < length.len()
        && let Ok(one) = HeaderValue::from_bytes(first)
    {
        headers.insert(CONTENT_LENGTH, one);
    }
    Ok(ResponseFraming::Unambiguous)
}

/// Turns an origin's header fields into those of the response to the client. Those that `Connection`
/// names have been removed before the response was evaluated.
pub fn filter_response(
    headers: &mut HeaderMap,
    status: StatusCode,
    version: Version,
    via: &ViaName,
) {
    let mut has_proxy_status = false;
    remove_fields(headers, |name| {
        has_proxy_status |= name == PROXY_STATUS.as_str();
        is_hop_by_hop(name)
            || is_crawl_field(name)
            || bypasses_proxy(name)
            || name == WARCPROX_META.as_str()
    });
    if has_proxy_status {
        remove_our_proxy_status(headers);
    }
    normalize_content_type(headers);
    via.append(headers, version);
    headers.insert(
        CRAWL_STATUS,
        HeaderValue::from_static(CrawlStatus::from_origin_status(status.as_u16()).as_str()),
    );
}

/// Adjusts the fields of one URL's response that the client takes for the response of another URL:
/// a relative `Location` becomes absolute if it would lead elsewhere, and another host's cookies
/// are removed.
pub fn rewrite_for_requested_url(
    headers: &mut HeaderMap,
    requested: &UrlTarget,
    fetched: &UrlTarget,
) {
    if let Some(location) = headers
        .get(LOCATION)
        .and_then(|value| rewritten_location(value, requested, fetched))
    {
        headers.insert(LOCATION, location);
    }
    if requested.host() != fetched.host() {
        headers.remove(SET_COOKIE);
    }
}

/// Returns the `Location` to send to a client that requested another URL, or `None` if it can stay
/// as it is.
fn rewritten_location(
    location: &HeaderValue,
    requested: &UrlTarget,
    fetched: &UrlTarget,
) -> Option<HeaderValue> {
    let location = std::str::from_utf8(location.as_bytes()).ok()?.trim();
    let target = fetched.join(location).ok()?;
    if requested.join(location).is_ok_and(|other| other == target) {
        return None;
    }
    let fragment = location
        .find('#')
        .and_then(|at| location.get(at..))
        .unwrap_or("");
    HeaderValue::from_str(&format!("{}{fragment}", target.as_str())).ok()
}

/// Removes the fields that `is_removed` selects.
pub(super) fn remove_fields(headers: &mut HeaderMap, is_removed: impl FnMut(&str) -> bool) {
    let removed = find_names(headers, is_removed);
    remove_all(headers, &removed);
}

/// Returns the names of the fields that `is_found` selects.
fn find_names(
    headers: &HeaderMap,
    mut is_found: impl FnMut(&str) -> bool,
) -> SmallVec<[HeaderName; 8]> {
    headers
        .keys()
        .filter(|name| is_found(name.as_str()))
        .cloned()
        .collect()
}

fn remove_all(headers: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        headers.remove(name);
    }
}

/// Removes the fields that `Connection` names (RFC 9110 section 7.6.1), except those that the proxy
/// evaluates, frames or routes by.
pub fn remove_nominated_fields(headers: &mut HeaderMap) {
    if !headers.contains_key(CONNECTION) {
        return;
    }
    let options = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|v| v.as_bytes().split(|b| *b == b','));
    let names: Vec<HeaderName> = options
        .filter_map(|option| HeaderName::from_bytes(option.trim_ascii()).ok())
        .filter(|name| !is_never_nominated(name.as_str()))
        .collect();
    for name in names {
        headers.remove(name);
    }
}

/// Keeps only one of several `Content-Type` fields, the one that the policy evaluates: the last
/// valid one, as in browsers. A client that uses the first one would otherwise see another type
/// than the policy did.
fn normalize_content_type(headers: &mut HeaderMap) {
    if headers.get_all(CONTENT_TYPE).iter().nth(1).is_none() {
        return;
    }
    let values = headers.get_all(CONTENT_TYPE);
    let evaluated = values
        .iter()
        .rfind(|value| !essence(&String::from_utf8_lossy(value.as_bytes())).is_empty())
        .or_else(|| values.iter().next_back())
        .cloned();
    if let Some(evaluated) = evaluated {
        headers.insert(CONTENT_TYPE, evaluated);
    }
}

/// Removes the `Proxy-Status` members with this proxy's name and keeps those of other proxies (RFC
/// 9209 section 2).
fn remove_our_proxy_status(headers: &mut HeaderMap) {
    let values: Vec<HeaderValue> = headers.get_all(PROXY_STATUS).iter().cloned().collect();
    headers.remove(PROXY_STATUS);
    for value in values.iter().filter_map(|v| v.to_str().ok()) {
        let others: Vec<&str> = members(value)
            .filter(|member| !is_our_member(member))
            .collect();
        if let Ok(value) = HeaderValue::from_str(&others.join(", "))
            && !others.is_empty()
        {
            headers.append(PROXY_STATUS, value);
        }
    }
}

fn is_our_member(member: &str) -> bool {
    let name = member
        .split(';')
        .next()
        .unwrap_or(member)
        .trim()
        .trim_matches('"');
    name.eq_ignore_ascii_case("crawlgate")
}

/// Returns the members of a structured field list. A comma inside a string does not separate
/// members.
fn members(value: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    let split = value.split(move |c: char| {
        let ends = c == ',' && !quoted;
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    split.map(str::trim).filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect()
    }

    fn sent(fields: &[(&'static str, &str)]) -> Vec<String> {
        let mut headers = map(fields);
        filter_request(
            &mut headers,
            "ok.test",
            Version::HTTP_11,
            &ViaName::new("a1"),
        );
        headers
            .iter()
            .map(|(n, v)| format!("{n}: {}", v.to_str().unwrap()))
            .collect()
    }

    #[test]
    fn hop_by_hop_fields_are_not_forwarded() {
        let fields = sent(&[
            ("host", "other.test"),
            ("connection", "close, x-secret, Host, content-length"),
            ("x-secret", "1"),
            ("content-length", "3"),
            ("proxy-authorization", "Basic eA=="),
            ("crawl-depth", "3"),
            ("crawl-priority", "-2"),
            ("priority", "u=0"),
            ("x-forwarded-for", "10.0.0.1"),
            (
                "traceparent",
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            ),
            ("tracestate", "vendor=1"),
            ("baggage", "user=7"),
            ("cookie", "a=b"),
        ]);
        assert_eq!(fields.len(), 4, "{fields:?}");
        for kept in [
            "host: ok.test",
            "content-length: 3",
            "cookie: a=b",
            "via: 1.1 crawlgate-a1",
        ] {
            assert!(fields.contains(&kept.to_owned()), "{kept}: {fields:?}");
        }
    }

    #[test]
    fn a_site_cannot_forge_our_fields() {
        let mut headers = map(&[
            ("crawl-rule", "forged"),
            ("crawl-anything", "x"),
            (
                "proxy-status",
                "\"crawlgate\"; details=\"a, b\", cdn; error=dns_error, crawlgate",
            ),
        ]);
        filter_response(
            &mut headers,
            StatusCode::OK,
            Version::HTTP_11,
            &ViaName::new("a1"),
        );
        assert_eq!(headers["proxy-status"], "cdn; error=dns_error");
        assert_eq!(headers["crawl-status"], "ACCEPTED");
        assert!(!headers.contains_key("crawl-rule") && !headers.contains_key("crawl-anything"));
    }

    #[test]
    fn fields_that_bypass_the_proxy_are_removed() {
        let mut headers = map(&[
            ("alt-svc", "h3=\":443\"; ma=86400"),
            ("alt-svc", "clear"),
            ("alt-used", "h"),
        ]);
        filter_response(
            &mut headers,
            StatusCode::OK,
            Version::HTTP_11,
            &ViaName::new("a1"),
        );
        assert!(
            !headers.contains_key("alt-svc") && headers.contains_key("alt-used"),
            "{headers:?}"
        );
    }

    #[test]
    fn a_body_has_one_length_or_none() {
        for (fields, expected) in [
            (
                &[("content-length", "3"), ("transfer-encoding", "Chunked")][..],
                Ok((ResponseFraming::Ambiguous, None)),
            ),
            (
                &[("transfer-encoding", "Chunked")][..],
                Ok((ResponseFraming::Unambiguous, None)),
            ),
            (
                &[("content-length", "5, 5")][..],
                Ok((ResponseFraming::Unambiguous, Some("5"))),
            ),
            (
                &[("content-length", "5")][..],
                Ok((ResponseFraming::Unambiguous, Some("5"))),
            ),
            (&[][..], Ok((ResponseFraming::Unambiguous, None))),
            (
                &[("transfer-encoding", "gzip")][..],
                Err(UnknownTransferCoding),
            ),
            (
                &[("transfer-encoding", "gzip, chunked")][..],
                Err(UnknownTransferCoding),
            ),
        ] {
            let mut headers = map(fields);
            let settled = normalize_framing(&mut headers);
            let length = headers.get(CONTENT_LENGTH).map(|v| v.to_str().unwrap());
            assert_eq!(
                settled.map(|framing| (framing, length)),
                expected,
                "{fields:?}"
            );
        }
    }

    #[test]
    fn loops_are_detected_by_the_via_name() {
        let me = ViaName::new("a1");
        assert!(me.is_named_in(&map(&[("via", "1.1 proxy, 1.0 crawlgate-a1")])));
        assert!(!me.is_named_in(&map(&[("via", "1.1 crawlgate-a12")])));
    }
}
