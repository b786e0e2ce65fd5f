//! Which header fields travel through the proxy (RFC 9110 section 7.6, decisions.md section 3).
//!
//! Fields are changed in place, in one pass over those that there are.

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

/// Whether a field belongs to one connection, or to whoever runs this proxy.
fn is_hop_by_hop(name: &str) -> bool {
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

/// Whether a field of a request tells origins about the crawler's network, or is answered by the proxy itself.
fn is_for_proxy(name: &str) -> bool {
    matches!(name, "expect" | "forwarded" | "priority" | "warcprox-meta")
        || name.starts_with("x-forwarded-")
        || is_trace_context(name)
}

/// Whose crawl a request belongs to is no business of the site that is crawled: traces end here.
fn is_trace_context(name: &str) -> bool {
    matches!(name, "traceparent" | "tracestate" | "baggage")
}

/// `Crawl-*` from outside: a site cannot forge one, a crawler's hints end here.
fn is_crawl_field(name: &str) -> bool {
    name.starts_with("crawl-")
}

/// Whether a field of an answer would lead the client around the proxy: to the same host by QUIC, or at another port
/// (RFC 7838).
fn bypasses_proxy(name: &str) -> bool {
    name == "alt-svc"
}

/// Fields that a `Connection` field cannot nominate away: they say where a message goes and where it ends.
const NEVER_NOMINATED: [HeaderName; 4] = [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, VIA];

/// This proxy in a `Via` field.
#[derive(Clone, Debug)]
pub struct ViaName {
    /// `crawlgate-1f3a…`: unique to the running process, so that a chain of two proxies is no loop.
    pseudonym: Box<str>,
    request: HeaderValue,
    request_1_0: HeaderValue,
}

impl ViaName {
    /// The name of this process, made of its instance prefix.
    pub fn new(instance: &str) -> Self {
        let pseudonym = format!("crawlgate-{instance}");
        let value = |version: &str| {
            HeaderValue::from_str(&format!("{version} {pseudonym}"))
                .unwrap_or(HeaderValue::from_static("1.1 crawlgate"))
        };
        Self {
            request: value("1.1"),
            request_1_0: value("1.0"),
            pseudonym: pseudonym.into(),
        }
    }

    /// Whether a message has come through this process before.
    pub fn is_named_in(&self, headers: &HeaderMap) -> bool {
        let names_us = |value: &HeaderValue| {
            value
                .as_bytes()
                .split(|b| matches!(b, b',' | b' ' | b'\t'))
                .any(|w| w == self.pseudonym.as_bytes())
        };
        headers.get_all(VIA).iter().any(names_us)
    }

    /// Adds this proxy behind those that the message came through already.
    fn append(&self, headers: &mut HeaderMap, version: Version) {
        let value = if version == Version::HTTP_10 {
            &self.request_1_0
        } else {
            &self.request
        };
        headers.append(VIA, value.clone());
    }
}

/// Makes a client's fields those of a request to the origin.
pub fn filter_request(headers: &mut HeaderMap, authority: &str, version: Version, via: &ViaName) {
    remove_fields(headers, |name| {
        is_hop_by_hop(name) || is_for_proxy(name) || is_crawl_field(name)
    });
    via.append(headers, version);
    let agrees = headers
        .get(HOST)
        .is_some_and(|h| h.as_bytes() == authority.as_bytes());
    if !agrees && let Ok(value) = HeaderValue::from_str(authority) {
        headers.insert(HOST, value);
    }
}

/// How an origin's answer tells its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// In one way.
    Unambiguous,
    /// In two ways, as in response splitting: its connection is not to be believed again.
    Ambiguous,
}

/// A body in a transfer coding other than chunked: nobody takes it off, and the field that names it does not travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownTransferCoding;

/// Leaves an origin's answer with the one length that hyper has read its body by, or none (RFC 9112 section 6.3): a
/// length beside chunks says nothing, and a list of equal lengths is one length.
///
/// # Errors
/// If the body is in another coding.
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
        let both = headers.remove(CONTENT_LENGTH).is_some();
        return Ok(if both {
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

/// Makes an origin's fields those of an answer to the client.
pub fn filter_response(
    headers: &mut HeaderMap,
    status: StatusCode,
    version: Version,
    via: &ViaName,
) {
    remove_fields(headers, |name| {
        is_hop_by_hop(name) || is_crawl_field(name) || bypasses_proxy(name)
    });
    remove_our_proxy_status(headers);
    normalize_content_type(headers);
    via.append(headers, version);
    headers.insert(
        CRAWL_STATUS,
        HeaderValue::from_static(CrawlStatus::from_origin_status(status.as_u16()).as_str()),
    );
}

/// Makes the fields of one URL's answer those of an answer to another, for which the client takes it: where it leads to
/// is said whole if that would be elsewhere, and another host's cookies are not for the client to keep.
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

/// A `Location` as it has to be said to who asked for another URL; none if it may stay as it is.
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

/// Removes the fields that the function picks, and those that `Connection` names.
fn remove_fields(headers: &mut HeaderMap, is_removed: impl Fn(&str) -> bool) {
    let mut removed: SmallVec<[HeaderName; 8]> = SmallVec::new();
    removed.extend(
        headers
            .keys()
            .filter(|name| is_removed(name.as_str()))
            .cloned(),
    );
    if removed.contains(&CONNECTION) {
        removed.extend(nominated_fields(headers));
    }
    for name in removed {
        headers.remove(name);
    }
}

/// The fields that `Connection` names (RFC 9110 section 7.6.1), but never those that frame or route a message.
fn nominated_fields(headers: &HeaderMap) -> Vec<HeaderName> {
    let options = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|v| v.as_bytes().split(|b| *b == b','));
    let names = options.filter_map(|option| HeaderName::from_bytes(option.trim_ascii()).ok());
    names
        .filter(|name| !NEVER_NOMINATED.contains(name))
        .collect()
}

/// Of several `Content-Type` fields the one that was judged is left: the last that is valid, as browsers have it. A
/// client that goes by the first would otherwise see another type than the policy did.
fn normalize_content_type(headers: &mut HeaderMap) {
    if headers.get_all(CONTENT_TYPE).iter().nth(1).is_none() {
        return;
    }
    let is_valid =
        |value: &&HeaderValue| !essence(&String::from_utf8_lossy(value.as_bytes())).is_empty();
    let values = || headers.get_all(CONTENT_TYPE).iter();
    if let Some(judged) = values()
        .rfind(is_valid)
        .or_else(|| values().next_back())
        .cloned()
    {
        headers.insert(CONTENT_TYPE, judged);
    }
}

/// Members of `Proxy-Status` in our name go, those of other proxies stay (RFC 9209 section 2).
fn remove_our_proxy_status(headers: &mut HeaderMap) {
    if !headers.contains_key(PROXY_STATUS) {
        return;
    }
    let values: Vec<HeaderValue> = headers.get_all(PROXY_STATUS).iter().cloned().collect();
    headers.remove(PROXY_STATUS);
    for value in values.iter().filter_map(|v| v.to_str().ok()) {
        let others: Vec<&str> = members(value)
            .filter(|member| !is_our_member(member))
            .collect();
        if let Ok(kept) = HeaderValue::from_str(&others.join(", "))
            && !others.is_empty()
        {
            headers.append(PROXY_STATUS, kept);
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

/// The members of a structured field list: commas inside strings do not part them.
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
        let value = |v: &str| HeaderValue::from_str(v).unwrap();
        fields
            .iter()
            .map(|(name, v)| (HeaderName::from_static(name), value(v)))
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
    fn nothing_of_one_connection_is_forwarded() {
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
    fn nothing_leads_around_the_proxy() {
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
        for (fields, left) in [
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
            assert_eq!(settled.map(|framing| (framing, length)), left, "{fields:?}");
        }
    }

    #[test]
    fn loops_are_seen_by_the_name_of_this_process() {
        let me = ViaName::new("a1");
        assert!(me.is_named_in(&map(&[("via", "1.1 proxy, 1.0 crawlgate-a1")])));
        assert!(!me.is_named_in(&map(&[("via", "1.1 crawlgate-a12")])));
    }
}
