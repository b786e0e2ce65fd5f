//! The front gate: from a request as hyper gives it to one canonical target, or a refusal.
//!
//! Framing was checked before, by the head reader. What is decided here is where the request goes; the bytes that
//! are judged are the bytes that will be sent.

use http::header::{HOST, HeaderMap, MAX_FORWARDS, UPGRADE};
use http::request::Parts;
use http::{Method, Uri, Version};

use crate::gate::refusal::Refusal;
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;
use crate::vocab::target::{HostTarget, Scheme, UrlTarget};

use super::clean::ViaName;

/// What the front gate makes of a request.
#[derive(Debug)]
pub enum Entry {
    /// A request for this URL.
    Target(UrlTarget),
    /// OPTIONS whose `Max-Forwards` ends here (RFC 9110 section 7.6.2): answered by the proxy.
    Options,
}

/// Reads where a request goes.
///
/// # Errors
/// The refusal: `bad_request`, `method_denied`, `scheme_denied`, `upgrade_denied`, `connect_unsupported`, `loop`.
pub fn enter(parts: &Parts, me: &ViaName) -> Result<Entry, Refusal> {
    check_host(parts)?;
    if me.is_in(&parts.headers) {
        return Err(refusal(Reason::Loop));
    }
    if parts.method == Method::CONNECT {
        return Err(connect(&parts.uri));
    }
    if parts.method == Method::TRACE {
        return Err(refusal(Reason::MethodDenied));
    }
    check_upgrade(parts)?;
    let target = target(&parts.uri)?;
    if parts.method == Method::OPTIONS && forwards_left(&parts.headers) == Some(0) {
        return Ok(Entry::Options);
    }
    Ok(Entry::Target(target))
}

/// Counts `Max-Forwards` of OPTIONS down; other methods do not use it.
pub fn count_forward(method: &Method, headers: &mut HeaderMap) {
    if *method == Method::OPTIONS
        && let Some(left) = forwards_left(headers)
    {
        headers.insert(MAX_FORWARDS, left.saturating_sub(1).into());
    }
}

fn refusal(reason: Reason) -> Refusal {
    Refusal::new(reason, Stage::Target)
}

fn bad(detail: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    refusal(Reason::BadRequest).with_detail(detail)
}

/// RFC 9112 section 3.2: exactly one `Host` in HTTP/1.1, at most one in HTTP/1.0. CONNECT of old clients has none.
///
/// What it says is not used, since the URL wins, but a value that is no authority is refused.
fn check_host(parts: &Parts) -> Result<(), Refusal> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let may_lack = parts.version == Version::HTTP_10 || parts.method == Method::CONNECT;
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_authority(host.as_bytes()) => Ok(()),
        (Some(_), None) => Err(bad("a Host field that is no host and port")),
        (None, _) if may_lack => Ok(()),
        (None, _) => Err(bad("an HTTP/1.1 request needs a Host field")),
        (Some(_), Some(_)) => Err(bad("more than one Host field")),
    }
}

/// Whether every byte may stand in `uri-host [":" port]` (RFC 3986 section 3.2.2); nothing at all may, too.
fn is_authority(host: &[u8]) -> bool {
    let fits = |b: &u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%:[]".contains(b);
    host.iter().all(fits)
}

/// Why a CONNECT is refused: it has no port, or there are no tunnels.
fn connect(uri: &Uri) -> Refusal {
    let authority = uri.authority().filter(|_| uri.scheme().is_none());
    match authority.map(|a| HostTarget::parse_authority(a.as_str())) {
        Some(Ok(_)) => Refusal::new(Reason::ConnectUnsupported, Stage::Connect),
        Some(Err(mistake)) => bad(mistake.to_string()),
        None => bad("CONNECT needs a host and a port: CONNECT host:443"),
    }
}

/// An upgrade to HTTP/2 may be ignored (RFC 9113 section 3.1) and is; any other leaves HTTP and is refused. HTTP/1.0
/// has no upgrades: there the field is ignored (RFC 9110 section 7.8).
fn check_upgrade(parts: &Parts) -> Result<(), Refusal> {
    if parts.version == Version::HTTP_10 {
        return Ok(());
    }
    let values = parts.headers.get_all(UPGRADE).iter();
    let protocols = values.flat_map(|v| v.as_bytes().split(|b| *b == b','));
    let leaves_http =
        protocols.map(<[u8]>::trim_ascii).any(|p| !p.is_empty() && !p.eq_ignore_ascii_case(b"h2c"));
    if leaves_http { Err(refusal(Reason::UpgradeDenied)) } else { Ok(()) }
}

fn target(uri: &Uri) -> Result<UrlTarget, Refusal> {
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(bad("a proxy needs the whole URL in the request line: GET http://host/path"));
    };
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(bad("a URL that begins with no scheme"));
    }
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(refusal(Reason::SchemeDenied));
    }
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let mut text = String::with_capacity(scheme.len() + authority.as_str().len() + path.len() + 3);
    for part in [scheme, "://", authority.as_str(), path] {
        text.push_str(part);
    }
    let target = UrlTarget::parse(&text).map_err(|mistake| bad(mistake.to_string()))?;
    match target.scheme() {
        Scheme::Http => Ok(target),
        // Fetching over TLS is not built yet: saying so beats fetching in the clear.
        Scheme::Https => Err(Refusal { status: Some(501), ..refusal(Reason::SchemeDenied) }),
    }
}

/// The value of `Max-Forwards`; one that is no number is no value.
fn forwards_left(headers: &HeaderMap) -> Option<u32> {
    headers.get(MAX_FORWARDS)?.to_str().ok()?.trim().parse().ok()
}
