//! Determines the canonical target of a request, or refuses it.
//!
//! The head reader has checked the framing before. The target that the policy evaluates is the one
//! that is sent to the origin, byte for byte.

use std::sync::Arc;

use http::header::{
    CONTENT_LENGTH, HOST, HeaderMap, HeaderName, MAX_FORWARDS, REFERER, TRANSFER_ENCODING, UPGRADE,
    USER_AGENT,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Version};
use parking_lot::Mutex;

use crate::metrics::record::RequestRecord;
use crate::model::crawler::Crawler;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::urls::target::{HostTarget, Scheme, UrlTarget};

use super::header_filter::ViaName;

#[derive(Debug)]
pub struct RequestTarget {
    /// The URL in canonical form.
    pub target: UrlTarget,
    /// The handling of the request: sent to the origin or answered by the proxy.
    pub handling: RequestHandling,
}

/// The way in which a request is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestHandling {
    /// The request is sent to the origin.
    Send,
    /// The request is sent as `OPTIONS *`: it is about the server, not about a resource (RFC
    /// 9110 section 9.3.7). The policy evaluates the root path of its host.
    SendForServer,
    /// The request is evaluated and then answered by the proxy: OPTIONS whose `Max-Forwards` ends
    /// here (RFC 9110 section 7.6.2).
    AnswerLocally,
}

/// The tunnel that contains the requests, if the proxy serves them.
#[derive(Debug)]
pub struct EnclosingTunnel {
    /// The common prefix of all URLs: `scheme://host[:port]`.
    origin: Box<str>,
    scheme: Scheme,
    host: Box<str>,
    port: u16,
    refused: Option<RefusedTunnel>,
}

/// The refusal of every request inside a tunnel.
#[derive(Debug)]
pub struct RefusedTunnel {
    /// The response to every request.
    pub refusal: Box<Refusal>,
    /// The policy that evaluated the tunnel.
    pub policy: Arc<PolicySnapshot>,
    /// The crawler that sent the CONNECT.
    pub crawler: Crawler,
    connect_record: Mutex<Option<RequestRecord>>,
}

impl RefusedTunnel {
    /// Creates the refusal. `connect_record` is the record of the CONNECT, which reports the
    /// refusal if no request follows inside.
    pub fn new(
        refusal: Box<Refusal>,
        policy: Arc<PolicySnapshot>,
        crawler: Crawler,
        connect_record: RequestRecord,
    ) -> Self {
        Self {
            refusal,
            policy,
            crawler,
            connect_record: Mutex::new(Some(connect_record)),
        }
    }

    /// Returns `true` if a request inside has been answered with the refusal.
    pub fn is_reported(&self) -> bool {
        self.connect_record.lock().is_none()
    }

    /// Discards the record of the CONNECT, because a request inside reports the refusal in its own
    /// record.
    pub fn discard_connect_record(&self) {
        let connect = self.connect_record.lock().take();
        if let Some(connect) = connect {
            connect.discard();
        }
    }
}

impl EnclosingTunnel {
    /// Creates a tunnel with cleartext HTTP to this host.
    pub fn plain(host: &HostTarget) -> Self {
        Self::new(host, Scheme::Http, None)
    }

    /// Creates a tunnel in which the proxy terminates TLS.
    pub fn tls(host: &HostTarget, refused: Option<RefusedTunnel>) -> Self {
        Self::new(host, Scheme::Https, refused)
    }

    fn new(host: &HostTarget, scheme: Scheme, refused: Option<RefusedTunnel>) -> Self {
        let name = host.host();
        let port = host.port();
        let origin = match port == scheme.default_port() {
            true => format!("{}://{name}", scheme.as_str()),
            false => format!("{}://{name}:{port}", scheme.as_str()),
        };
        Self {
            origin: origin.into(),
            scheme,
            host: name.into(),
            port,
            refused,
        }
    }

    /// Returns the same tunnel for a CONNECT inside, which is refused whatever it asks for.
    pub fn without_refusal(&self) -> Self {
        Self {
            origin: self.origin.clone(),
            scheme: self.scheme,
            host: self.host.clone(),
            port: self.port,
            refused: None,
        }
    }

    /// Returns the refusal of all requests inside, if there is one. The connection closes after it.
    pub fn refused(&self) -> Option<&RefusedTunnel> {
        self.refused.as_ref()
    }

    /// Returns `true` if an authority is that of the tunnel.
    fn has_authority(&self, authority: &str) -> bool {
        let plain = self.origin.get(self.scheme.as_str().len() + 3..);
        if plain == Some(authority) {
            return true;
        }
        UrlTarget::parse(&format!("{}://{authority}/", self.scheme.as_str()))
            .is_ok_and(|target| target.host() == &*self.host && target.port() == self.port)
    }
}

/// Parses the target of a request. CONNECT requests use [`parse_connect`].
///
/// # Errors
/// Returns the refusal: `bad_request`, `method_denied`, `scheme_denied`, `upgrade_denied`,
/// `host_mismatch` or `loop`.
pub fn parse_request(
    parts: &Parts,
    via: &ViaName,
    tunnel: Option<&EnclosingTunnel>,
) -> Result<RequestTarget, Refusal> {
    check_host(parts)?;
    check_authority(parts)?;
    check_single_fields(&parts.headers)?;
    if via.is_named_in(&parts.headers) {
        return Err(refusal(Reason::Loop));
    }
    if parts.method == Method::TRACE || parts.method == Method::CONNECT {
        return Err(refusal(Reason::MethodDenied));
    }
    check_upgrade(parts)?;
    let target = match tunnel {
        Some(tunnel) => tunnel_target(parts, tunnel)?,
        None => absolute_target(parts)?,
    };
    let ends_here = parts.method == Method::OPTIONS && max_forwards(&parts.headers) == Some(0);
    Ok(RequestTarget {
        target,
        handling: if ends_here {
            RequestHandling::AnswerLocally
        } else if concerns_server(parts) {
            RequestHandling::SendForServer
        } else {
            RequestHandling::Send
        },
    })
}

/// Returns `true` for OPTIONS of `*`, or of a URL with neither path nor query (RFC 9112 section
/// 3.2.4), to which the head reader has added an empty query.
fn concerns_server(parts: &Parts) -> bool {
    let is_server = |path: &PathAndQuery| matches!(path.as_str(), "*" | "?");
    parts.method == Method::OPTIONS && parts.uri.path_and_query().is_some_and(is_server)
}

/// Parses the target of a CONNECT. Its `Host` field is ignored on HTTP/1: many clients omit the port
/// or the whole field.
///
/// # Errors
/// Returns the refusal: `bad_request`, `host_mismatch`, `loop`, or `method_denied` inside a tunnel.
pub fn parse_connect(
    parts: &Parts,
    via: &ViaName,
    tunnel: Option<&EnclosingTunnel>,
) -> Result<HostTarget, Refusal> {
    check_host(parts)?;
    check_authority(parts)?;
    check_single_fields(&parts.headers)?;
    if via.is_named_in(&parts.headers) {
        return Err(refusal(Reason::Loop));
    }
    if tunnel.is_some() {
        return Err(refusal(Reason::MethodDenied).with_detail("CONNECT inside a tunnel"));
    }
    let has_body = parts.headers.contains_key(TRANSFER_ENCODING)
        || parts
            .headers
            .get(CONTENT_LENGTH)
            .is_some_and(|length| length != "0");
    if has_body {
        return Err(bad_request(
            "CONNECT has no body: data after it belongs to the tunnel",
        ));
    }
    let authority = parts
        .uri
        .authority()
        .filter(|_| parts.uri.scheme().is_none());
    let authority = authority
        .ok_or_else(|| bad_request("CONNECT needs a host and a port: CONNECT host:443"))?;
    HostTarget::parse_authority(authority.as_str()).map_err(|error| bad_request(error.to_string()))
}

/// Decrements `Max-Forwards` of OPTIONS; other methods do not use it.
pub fn decrement_max_forwards(method: &Method, headers: &mut HeaderMap) {
    if *method == Method::OPTIONS
        && let Some(remaining) = max_forwards(headers)
    {
        headers.insert(MAX_FORWARDS, remaining.saturating_sub(1).into());
    }
}

fn refusal(reason: Reason) -> Refusal {
    Refusal::new(reason, Stage::Target)
}

fn bad_request(detail: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    refusal(Reason::BadRequest).with_detail(detail)
}

/// The fields that robots.txt and rules are evaluated on, of which a message has one at most (RFC
/// 9110 section 5.3).
const SINGLE_FIELDS: [HeaderName; 3] = [
    USER_AGENT,
    REFERER,
    HeaderName::from_static("sec-fetch-dest"),
];

/// Refuses a field that occurs twice: one value would be evaluated, and the origin may use the
/// other.
fn check_single_fields(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    let is_repeated = |name: &&HeaderName| headers.get_all(*name).iter().nth(1).is_some();
    match SINGLE_FIELDS.iter().find(is_repeated) {
        Some(name) => Err(bad_request(format!("more than one {name} field"))),
        None => Ok(()),
    }
}

/// Checks the `Host` fields (RFC 9112 section 3.2): exactly one in HTTP/1.1, at most one in
/// HTTP/1.0. Some old clients send none with CONNECT.
///
/// The value is not used, since the URL takes precedence, but an invalid authority is refused.
fn check_host(parts: &Parts) -> Result<(), Refusal> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let is_optional = parts.version == Version::HTTP_10 || parts.method == Method::CONNECT;
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_authority(host.as_bytes()) => Ok(()),
        (Some(_), None) => Err(bad_request("the Host field is not a host and port")),
        (None, _) if is_optional => Ok(()),
        (None, _) => Err(bad_request("a request requires a Host field")),
        (Some(_), Some(_)) => Err(bad_request("more than one Host field")),
    }
}

/// Checks that `:authority` and `Host` of an HTTP/2 request name the same host and port (RFC 9113
/// section 8.3.1). In HTTP/1 the URL in the request line takes precedence.
fn check_authority(parts: &Parts) -> Result<(), Refusal> {
    if parts.version != Version::HTTP_2 {
        return Ok(());
    }
    let (Some(authority), Some(host)) = (parts.uri.authority(), parts.headers.get(HOST)) else {
        return Ok(());
    };
    if authority.as_str().as_bytes() == host.as_bytes() {
        return Ok(());
    }
    let scheme = parts.uri.scheme_str().unwrap_or("https");
    let parse = |authority: &str| UrlTarget::parse(&format!("{scheme}://{authority}/")).ok();
    let named = host.to_str().ok().and_then(parse);
    match (parse(authority.as_str()), named) {
        (Some(target), Some(named)) if target == named => Ok(()),
        (Some(_), _) => {
            Err(refusal(Reason::HostMismatch)
                .with_detail("the Host field is not that of :authority"))
        }
        // The target is refused, with its own reason.
        (None, _) => Ok(()),
    }
}

/// Returns `true` if every byte is allowed in `uri-host [":" port]` (RFC 3986 section 3.2.2). An
/// empty value is allowed.
fn is_authority(host: &[u8]) -> bool {
    host.iter()
        .all(|b| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%:[]".contains(b))
}

/// Refuses upgrades. An upgrade to HTTP/2 may be ignored (RFC 9113 section 3.1), and is; any other
/// one would leave HTTP. HTTP/1.0 has no upgrades, so the field is ignored there (RFC 9110 section
/// 7.8).
fn check_upgrade(parts: &Parts) -> Result<(), Refusal> {
    if parts.version == Version::HTTP_10 {
        return Ok(());
    }
    let leaves_http = parts
        .headers
        .get_all(UPGRADE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .any(|protocol| !protocol.is_empty() && !protocol.eq_ignore_ascii_case(b"h2c"));
    if leaves_http {
        Err(refusal(Reason::UpgradeDenied))
    } else {
        Ok(())
    }
}

fn absolute_target(parts: &Parts) -> Result<UrlTarget, Refusal> {
    let uri = &parts.uri;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(bad_request(
            "this is the proxy's port: set http_proxy to it, or send the whole URL in the request line; the page is on the \
             admin listener, at /ui",
        ));
    };
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(bad_request("the URL does not begin with a scheme"));
    }
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(refusal(Reason::SchemeDenied));
    }
    let path = match uri.path_and_query() {
        Some(path) if !concerns_server(parts) => path.as_str(),
        Some(_) | None => "/",
    };
    let mut text = String::with_capacity(scheme.len() + authority.as_str().len() + path.len() + 3);
    for part in [scheme, "://", authority.as_str(), path] {
        text.push_str(part);
    }
    UrlTarget::parse(&text).map_err(|error| bad_request(error.to_string()))
}

/// Returns the target of a request inside a tunnel: its path, on the host of the CONNECT. A `Host`
/// field or a whole URL with another host is refused: the policy would evaluate one site, while a
/// server could answer for the other.
fn tunnel_target(parts: &Parts, tunnel: &EnclosingTunnel) -> Result<UrlTarget, Refusal> {
    let path = parts
        .uri
        .path_and_query()
        .map(|path| path.as_str())
        .filter(|path| path.starts_with('/'))
        .or(concerns_server(parts).then_some("/"));
    let path =
        path.ok_or_else(|| bad_request("a request inside a tunnel requires a path: GET /path"))?;
    let target = UrlTarget::parse(&[&tunnel.origin, path].concat())
        .map_err(|error| bad_request(error.to_string()))?;
    let scheme = parts.uri.scheme_str();
    if scheme.is_some_and(|scheme| !scheme.eq_ignore_ascii_case(tunnel.scheme.as_str())) {
        return Err(refusal(Reason::SchemeDenied));
    }
    let host = match parts.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => parts.headers.get(HOST).and_then(|host| host.to_str().ok()),
    };
    if host.is_none_or(|host| tunnel.has_authority(host)) {
        Ok(target)
    } else {
        Err(refusal(Reason::HostMismatch))
    }
}

/// Returns the value of `Max-Forwards`; an invalid number counts as absent.
fn max_forwards(headers: &HeaderMap) -> Option<u32> {
    headers
        .get(MAX_FORWARDS)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()
}
