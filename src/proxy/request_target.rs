//! The front gate: from a request as hyper gives it to one canonical target, or a refusal.
//!
//! Framing was checked before, by the head reader. What is decided here is where the request goes; the bytes that
//! are judged are the bytes that will be sent.

use std::sync::{Arc, Mutex, PoisonError};

use http::header::{CONTENT_LENGTH, HOST, HeaderMap, MAX_FORWARDS, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{Method, Uri, Version};

use crate::metrics::record::RequestRecord;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::urls::target::{HostTarget, Scheme, UrlTarget};

use super::header_filter::ViaName;

/// What the front gate makes of a request.
#[derive(Debug)]
pub struct RequestTarget {
    /// The URL.
    pub target: UrlTarget,
    /// Whether the request goes on to it.
    pub forward_mode: ForwardMode,
}

/// How far a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardMode {
    /// To the origin.
    ToOrigin,
    /// OPTIONS whose `Max-Forwards` ends here (RFC 9110 section 7.6.2): judged, and answered by the proxy.
    AnswerLocally,
}

/// The tunnel that requests come through, once it has been looked into.
#[derive(Debug)]
pub struct EnclosingTunnel {
    /// `scheme://host[:port]` of each URL.
    origin: Box<str>,
    scheme: Scheme,
    host: Box<str>,
    port: u16,
    refused: Option<RefusedTunnel>,
}

/// Why nothing is served inside a tunnel.
#[derive(Debug)]
pub struct RefusedTunnel {
    /// The answer to whatever is asked for.
    pub refusal: Box<Refusal>,
    /// The policy that judged the tunnel.
    pub policy: Arc<PolicySnapshot>,
    connect_record: Mutex<Option<RequestRecord>>,
}

impl RefusedTunnel {
    /// The record is that of the CONNECT: it tells of the refusal if nothing is asked for inside.
    pub fn new(
        refusal: Box<Refusal>,
        policy: Arc<PolicySnapshot>,
        connect_record: RequestRecord,
    ) -> Self {
        Self {
            refusal,
            policy,
            connect_record: Mutex::new(Some(connect_record)),
        }
    }

    /// A request inside has a record of its own, which tells of the refusal.
    pub fn forget_connect_record(&self) {
        let connect = self
            .connect_record
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(connect) = connect {
            connect.discard();
        }
    }
}

impl EnclosingTunnel {
    /// HTTP in the clear, in a tunnel to this host.
    pub fn plain(host: &HostTarget) -> Self {
        Self::new(host, Scheme::Http, None)
    }

    /// HTTP inside TLS that ends here.
    pub fn tls(host: &HostTarget, refused: Option<RefusedTunnel>) -> Self {
        Self::new(host, Scheme::Https, refused)
    }

    fn new(host: &HostTarget, scheme: Scheme, refused: Option<RefusedTunnel>) -> Self {
        let (name, port) = (host.host(), host.port());
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

    /// Why nothing is served in here, if that is so; the connection closes behind it.
    pub fn refused(&self) -> Option<&RefusedTunnel> {
        self.refused.as_ref()
    }

    /// Whether an authority is that of the tunnel.
    fn has_authority(&self, authority: &str) -> bool {
        let plain = self.origin.get(self.scheme.as_str().len() + 3..);
        if plain == Some(authority) {
            return true;
        }
        let asked = UrlTarget::parse(&format!("{}://{authority}/", self.scheme.as_str()));
        asked.is_ok_and(|asked| asked.host() == &*self.host && asked.port() == self.port)
    }
}

/// Reads where a request goes. CONNECT has [`parse_connect`].
///
/// # Errors
/// The refusal: `bad_request`, `method_denied`, `scheme_denied`, `upgrade_denied`, `host_mismatch`, `loop`.
pub fn parse_request(
    parts: &Parts,
    via: &ViaName,
    tunnel: Option<&EnclosingTunnel>,
) -> Result<RequestTarget, Refusal> {
    check_host(parts)?;
    if via.is_named_in(&parts.headers) {
        return Err(refusal(Reason::Loop));
    }
    if parts.method == Method::TRACE || parts.method == Method::CONNECT {
        return Err(refusal(Reason::MethodDenied));
    }
    check_upgrade(parts)?;
    let target = match tunnel {
        Some(inside) => tunnel_target(parts, inside)?,
        None => absolute_target(&parts.uri)?,
    };
    let ends_here = parts.method == Method::OPTIONS && max_forwards(&parts.headers) == Some(0);
    Ok(RequestTarget {
        target,
        forward_mode: if ends_here {
            ForwardMode::AnswerLocally
        } else {
            ForwardMode::ToOrigin
        },
    })
}

/// Reads where a CONNECT goes. Its `Host` says nothing: many clients leave the port out of it, and some leave it out.
///
/// # Errors
/// The refusal: `bad_request`, `loop`, `method_denied` inside a tunnel.
pub fn parse_connect(
    parts: &Parts,
    via: &ViaName,
    tunnel: Option<&EnclosingTunnel>,
) -> Result<HostTarget, Refusal> {
    check_host(parts)?;
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
            "CONNECT has no body: what follows it belongs to the tunnel",
        ));
    }
    let authority = parts
        .uri
        .authority()
        .filter(|_| parts.uri.scheme().is_none());
    let authority = authority
        .ok_or_else(|| bad_request("CONNECT needs a host and a port: CONNECT host:443"))?;
    HostTarget::parse_authority(authority.as_str())
        .map_err(|mistake| bad_request(mistake.to_string()))
}

/// Counts `Max-Forwards` of OPTIONS down; other methods do not use it.
pub fn decrement_max_forwards(method: &Method, headers: &mut HeaderMap) {
    if *method == Method::OPTIONS
        && let Some(left) = max_forwards(headers)
    {
        headers.insert(MAX_FORWARDS, left.saturating_sub(1).into());
    }
}

fn refusal(reason: Reason) -> Refusal {
    Refusal::new(reason, Stage::Target)
}

fn bad_request(detail: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
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
        (Some(_), None) => Err(bad_request("a Host field that is no host and port")),
        (None, _) if may_lack => Ok(()),
        (None, _) => Err(bad_request("an HTTP/1.1 request needs a Host field")),
        (Some(_), Some(_)) => Err(bad_request("more than one Host field")),
    }
}

/// Whether every byte may stand in `uri-host [":" port]` (RFC 3986 section 3.2.2); nothing at all may, too.
fn is_authority(host: &[u8]) -> bool {
    let fits = |b: &u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%:[]".contains(b);
    host.iter().all(fits)
}

/// An upgrade to HTTP/2 may be ignored (RFC 9113 section 3.1) and is; any other leaves HTTP and is refused. HTTP/1.0
/// has no upgrades: there the field is ignored (RFC 9110 section 7.8).
fn check_upgrade(parts: &Parts) -> Result<(), Refusal> {
    if parts.version == Version::HTTP_10 {
        return Ok(());
    }
    let values = parts.headers.get_all(UPGRADE).iter();
    let protocols = values.flat_map(|v| v.as_bytes().split(|b| *b == b','));
    let leaves_http = protocols
        .map(<[u8]>::trim_ascii)
        .any(|p| !p.is_empty() && !p.eq_ignore_ascii_case(b"h2c"));
    if leaves_http {
        Err(refusal(Reason::UpgradeDenied))
    } else {
        Ok(())
    }
}

fn absolute_target(uri: &Uri) -> Result<UrlTarget, Refusal> {
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(bad_request(
            "a proxy needs the whole URL in the request line: GET http://host/path",
        ));
    };
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(bad_request("a URL that begins with no scheme"));
    }
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(refusal(Reason::SchemeDenied));
    }
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let mut text = String::with_capacity(scheme.len() + authority.as_str().len() + path.len() + 3);
    for part in [scheme, "://", authority.as_str(), path] {
        text.push_str(part);
    }
    UrlTarget::parse(&text).map_err(|mistake| bad_request(mistake.to_string()))
}

/// The target of a request inside a tunnel: its path, at the host that the tunnel was opened to. A `Host` or a whole URL
/// that names another is refused: the policy would judge one site, and a server could answer for the other.
fn tunnel_target(parts: &Parts, tunnel: &EnclosingTunnel) -> Result<UrlTarget, Refusal> {
    let path = parts
        .uri
        .path_and_query()
        .map(|path| path.as_str())
        .filter(|path| path.starts_with('/'));
    let path = path.ok_or_else(|| bad_request("a path is needed inside a tunnel: GET /path"))?;
    let target = UrlTarget::parse(&[&tunnel.origin, path].concat())
        .map_err(|mistake| bad_request(mistake.to_string()))?;
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

/// The value of `Max-Forwards`; one that is no number is no value.
fn max_forwards(headers: &HeaderMap) -> Option<u32> {
    headers
        .get(MAX_FORWARDS)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()
}
