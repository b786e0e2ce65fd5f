//! The front gate: from a request as hyper gives it to one canonical target, or a refusal.
//!
//! Framing was checked before, by the head reader. What is decided here is where the request goes; the bytes that
//! are judged are the bytes that will be sent.

use std::sync::{Arc, Mutex, PoisonError};

use http::header::{CONTENT_LENGTH, HOST, HeaderMap, MAX_FORWARDS, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{Method, Uri, Version};

use crate::gate::refusal::Refusal;
use crate::metrics::record::Record;
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;
use crate::vocab::target::{HostTarget, Scheme, UrlTarget};

use super::clean::ViaName;
use super::http::PolicyInForce;

/// What the front gate makes of a request.
#[derive(Debug)]
pub struct Entry {
    /// The URL.
    pub target: UrlTarget,
    /// Whether the request goes on to it.
    pub journey: Journey,
}

/// How far a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journey {
    /// To the origin.
    ToOrigin,
    /// OPTIONS whose `Max-Forwards` ends here (RFC 9110 section 7.6.2): judged, and answered by the proxy.
    EndsHere,
}

/// The tunnel that requests come through, once it has been looked into.
#[derive(Debug)]
pub struct Inside {
    /// `scheme://host[:port]` of each URL.
    origin: Box<str>,
    scheme: Scheme,
    host: Box<str>,
    port: u16,
    closed: Option<Closed>,
}

/// Why nothing is served inside a tunnel.
#[derive(Debug)]
pub struct Closed {
    /// The answer to whatever is asked for.
    pub refusal: Box<Refusal>,
    /// The policy that judged the tunnel.
    pub under: Arc<PolicyInForce>,
    connect: Mutex<Option<Record>>,
}

impl Closed {
    /// The record is that of the CONNECT: it tells of the refusal if nothing is asked for inside.
    pub fn new(refusal: Box<Refusal>, under: Arc<PolicyInForce>, connect: Record) -> Self {
        Self {
            refusal,
            under,
            connect: Mutex::new(Some(connect)),
        }
    }

    /// A request inside has a record of its own, which tells of the refusal.
    pub fn told(&self) {
        let connect = self
            .connect
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(connect) = connect {
            connect.forget();
        }
    }
}

impl Inside {
    /// HTTP in the clear, in a tunnel to this host.
    pub fn plain(host: &HostTarget) -> Self {
        Self::new(host, Scheme::Http, None)
    }

    /// HTTP inside TLS that ends here.
    pub fn tls(host: &HostTarget, closed: Option<Closed>) -> Self {
        Self::new(host, Scheme::Https, closed)
    }

    fn new(host: &HostTarget, scheme: Scheme, closed: Option<Closed>) -> Self {
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
            closed,
        }
    }

    /// Why nothing is served in here, if that is so; the connection closes behind it.
    pub fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }

    /// Whether an authority is that of the tunnel.
    fn is(&self, authority: &str) -> bool {
        let plain = self.origin.get(self.scheme.as_str().len() + 3..);
        if plain == Some(authority) {
            return true;
        }
        let asked = UrlTarget::parse(&format!("{}://{authority}/", self.scheme.as_str()));
        asked.is_ok_and(|asked| asked.host() == &*self.host && asked.port() == self.port)
    }
}

/// Reads where a request goes. CONNECT has [`enter_tunnel`].
///
/// # Errors
/// The refusal: `bad_request`, `method_denied`, `scheme_denied`, `upgrade_denied`, `host_mismatch`, `loop`.
pub fn enter(parts: &Parts, me: &ViaName, inside: Option<&Inside>) -> Result<Entry, Refusal> {
    check_host(parts)?;
    if me.is_in(&parts.headers) {
        return Err(refusal(Reason::Loop));
    }
    if parts.method == Method::TRACE || parts.method == Method::CONNECT {
        return Err(refusal(Reason::MethodDenied));
    }
    check_upgrade(parts)?;
    let target = match inside {
        Some(inside) => target_inside(parts, inside)?,
        None => target(&parts.uri)?,
    };
    let ends_here = parts.method == Method::OPTIONS && forwards_left(&parts.headers) == Some(0);
    Ok(Entry {
        target,
        journey: if ends_here {
            Journey::EndsHere
        } else {
            Journey::ToOrigin
        },
    })
}

/// Reads where a CONNECT goes. Its `Host` says nothing: many clients leave the port out of it, and some leave it out.
///
/// # Errors
/// The refusal: `bad_request`, `loop`, `method_denied` inside a tunnel.
pub fn enter_tunnel(
    parts: &Parts,
    me: &ViaName,
    inside: Option<&Inside>,
) -> Result<HostTarget, Refusal> {
    check_host(parts)?;
    if me.is_in(&parts.headers) {
        return Err(refusal(Reason::Loop));
    }
    if inside.is_some() {
        return Err(refusal(Reason::MethodDenied).with_detail("CONNECT inside a tunnel"));
    }
    let has_body = parts.headers.contains_key(TRANSFER_ENCODING)
        || parts
            .headers
            .get(CONTENT_LENGTH)
            .is_some_and(|length| length != "0");
    if has_body {
        return Err(bad(
            "CONNECT has no body: what follows it belongs to the tunnel",
        ));
    }
    let authority = parts
        .uri
        .authority()
        .filter(|_| parts.uri.scheme().is_none());
    let authority =
        authority.ok_or_else(|| bad("CONNECT needs a host and a port: CONNECT host:443"))?;
    HostTarget::parse_authority(authority.as_str()).map_err(|mistake| bad(mistake.to_string()))
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

fn target(uri: &Uri) -> Result<UrlTarget, Refusal> {
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(bad(
            "a proxy needs the whole URL in the request line: GET http://host/path",
        ));
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
    UrlTarget::parse(&text).map_err(|mistake| bad(mistake.to_string()))
}

/// The target of a request inside a tunnel: its path, at the host that the tunnel was opened to. A `Host` or a whole URL
/// that names another is refused: the policy would judge one site, and a server could answer for the other.
fn target_inside(parts: &Parts, inside: &Inside) -> Result<UrlTarget, Refusal> {
    let path = parts
        .uri
        .path_and_query()
        .map(|path| path.as_str())
        .filter(|path| path.starts_with('/'));
    let path = path.ok_or_else(|| bad("a path is needed inside a tunnel: GET /path"))?;
    let target = UrlTarget::parse(&[&inside.origin, path].concat())
        .map_err(|mistake| bad(mistake.to_string()))?;
    let scheme = parts.uri.scheme_str();
    if scheme.is_some_and(|scheme| !scheme.eq_ignore_ascii_case(inside.scheme.as_str())) {
        return Err(refusal(Reason::SchemeDenied));
    }
    let host = match parts.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => parts.headers.get(HOST).and_then(|host| host.to_str().ok()),
    };
    if host.is_none_or(|host| inside.is(host)) {
        Ok(target)
    } else {
        Err(refusal(Reason::HostMismatch))
    }
}

/// The value of `Max-Forwards`; one that is no number is no value.
fn forwards_left(headers: &HeaderMap) -> Option<u32> {
    headers
        .get(MAX_FORWARDS)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()
}
