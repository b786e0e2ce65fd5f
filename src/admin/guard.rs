//! Who may ask the admin listener: guards against web pages in a browser on this machine, and against strangers.
//!
//! - The target is in origin-form: a client that takes this port for the proxy is told so.
//! - `Host` names this listener. A page whose name an attacker points here (DNS rebinding) says its own name.
//! - `Origin` and `Sec-Fetch-Site` do not speak of another site. Behind a TLS terminator a page's own origin is `https://`
//!   and one of the configured names.
//! - Everything but probes asks for a token, if there is one; off loopback there must be ([`check_exposure`]). It comes
//!   as a Bearer token, or as the password of Basic credentials, which a browser asks its user for: once, when a page is
//!   opened, and not for each of its polls.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use sha2::{Digest, Sha256};

use super::response::problem;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// How the token may be sent, one field each, since old browsers read one challenge a field: the preferred way.
const BEARER: HeaderValue = HeaderValue::from_static("Bearer realm=\"crawlgate admin\"");
/// For browsers, which ask their user.
const BASIC: HeaderValue =
    HeaderValue::from_static("Basic realm=\"crawlgate admin\", charset=\"UTF-8\"");

/// Whether a path is open to those without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathAccess {
    Open,
    Token,
}

/// Decides who may ask.
#[derive(Debug)]
pub struct AdminGuard {
    names: Box<[Box<str>]>,
    token: Option<AdminToken>,
}

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminRefusal {
    /// CONNECT, or a target that is no path: the client takes this for the proxy.
    NotAProxy,
    /// No `Host`, or more than one.
    InvalidHost,
    /// `Host` is no name of this listener.
    ForeignHost,
    /// A browser says that another site's page is asking.
    ForeignSite,
    /// The path asks for a token, and there is none or a wrong one.
    Unauthorized(RequestInitiator),
}

/// Who would be asked for the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestInitiator {
    /// A program, or the user of a browser who opens a page.
    User,
    /// A page that is open (`Sec-Fetch-Mode`, W3C Fetch Metadata): a browser would put its login over it, with each poll
    /// again.
    Page,
}

impl RequestInitiator {
    fn from_headers(headers: &HeaderMap) -> Self {
        let navigates = |mode: &HeaderValue| mode.as_bytes() == b"navigate";
        if headers.get_all(SEC_FETCH_MODE).iter().all(navigates) {
            Self::User
        } else {
            Self::Page
        }
    }
}

impl AdminGuard {
    /// Admits `Host` values that are the address that the connection came to, `localhost` or a loopback address if
    /// that is one, or one of `names`: `NAME` with any port, `NAME:PORT` as it stands.
    pub fn new(names: impl IntoIterator<Item = String>, token: Option<AdminToken>) -> Self {
        Self {
            names: names
                .into_iter()
                .map(|name| name.to_ascii_lowercase().into())
                .collect(),
            token,
        }
    }

    /// Judges a request that came in on a connection to `local`.
    ///
    /// # Errors
    /// Says why the request is refused.
    pub fn check<B>(&self, request: &Request<B>, local: SocketAddr) -> Result<(), AdminRefusal> {
        if request.method() == Method::CONNECT || request.uri().authority().is_some() {
            return Err(AdminRefusal::NotAProxy);
        }
        let headers = request.headers();
        let host = single_header(headers, &HOST)
            .ok_or(AdminRefusal::InvalidHost)?
            .to_ascii_lowercase();
        if !self.is_ours(&host, local) {
            return Err(AdminRefusal::ForeignHost);
        }
        if !self.is_same_site(headers, &host) {
            return Err(AdminRefusal::ForeignSite);
        }
        match (super::route::path_access(request.uri().path()), &self.token) {
            (PathAccess::Open, _) | (PathAccess::Token, None) => Ok(()),
            (PathAccess::Token, Some(token)) if token.is_sent_in(headers) => Ok(()),
            (PathAccess::Token, Some(_)) => Err(AdminRefusal::Unauthorized(
                RequestInitiator::from_headers(headers),
            )),
        }
    }

    /// Whether a browser, if it is one, says that the request comes from this listener's own pages or from its user.
    fn is_same_site(&self, headers: &HeaderMap, host: &str) -> bool {
        let own_site = |value: &HeaderValue| matches!(value.as_bytes(), b"same-origin" | b"none");
        let own_origin = |value: &HeaderValue| {
            value
                .to_str()
                .ok()
                .and_then(|origin| origin.split_once("://"))
                .is_some_and(|(scheme, of)| {
                    let ours = scheme == "http" || scheme == "https" && self.is_named(host);
                    ours && of.eq_ignore_ascii_case(host)
                })
        };
        headers.get_all(SEC_FETCH_SITE).iter().all(own_site)
            && headers.get_all(ORIGIN).iter().all(own_origin)
    }

    /// Whether a `Host` is one of the configured names.
    fn is_named(&self, host: &str) -> bool {
        let (name, _) = split_port(host);
        self.names
            .iter()
            .any(|ours| **ours == *host || **ours == *name)
    }

    fn is_ours(&self, host: &str, local: SocketAddr) -> bool {
        if self.is_named(host) {
            return true;
        }
        let (name, port) = split_port(host);
        let local_ip = local.ip().to_canonical();
        let ip = name
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>()
            .ok();
        let address = match ip.map(|ip| ip.to_canonical()) {
            Some(ip) => ip == local_ip || is_localhost(ip) && local_ip.is_loopback(),
            None => name == "localhost" && local_ip.is_loopback(),
        };
        address && port == Some(local.port())
    }
}

/// 127.0.0.1 and ::1.
fn is_localhost(ip: IpAddr) -> bool {
    ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST
}

/// Name and port of a `Host` value; without one the port is 80, and one that is no number is none.
fn split_port(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port.parse().ok()),
        _ => (host, Some(80)),
    }
}

/// The value of a field that must be there exactly once.
fn single_header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

impl AdminRefusal {
    /// What the client is told.
    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        match self {
            Self::NotAProxy => problem(
                StatusCode::BAD_REQUEST,
                "this is the admin listener; the proxy listens on another port",
            ),
            Self::InvalidHost => problem(StatusCode::BAD_REQUEST, "exactly one Host is required"),
            Self::ForeignHost => {
                problem(StatusCode::FORBIDDEN, "Host is not a name of this listener")
            }
            Self::ForeignSite => problem(
                StatusCode::FORBIDDEN,
                "requests of other sites are not answered",
            ),
            Self::Unauthorized(asker) => unauthorized(asker),
        }
    }
}

/// 401 with the challenges that this asker can make something of.
fn unauthorized(initiator: RequestInitiator) -> Response<Full<Bytes>> {
    let mut answer = problem(
        StatusCode::UNAUTHORIZED,
        "the admin token is required: Authorization: Bearer …, or Basic with the token as password",
    );
    let challenges = answer.headers_mut();
    challenges.append(WWW_AUTHENTICATE, BEARER);
    match initiator {
        RequestInitiator::User => {
            challenges.append(WWW_AUTHENTICATE, BASIC);
        }
        RequestInitiator::Page => {}
    }
    answer
}

/// The admin token. Only its hash is kept, and it is never shown.
pub struct AdminToken([u8; 32]);

/// Why a token is not one.
#[derive(Debug)]
pub enum AdminTokenError {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// Shorter than [`Token::MIN_LENGTH`], or with characters that no header carries.
    Invalid,
}

impl fmt::Display for AdminTokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "cannot read the token: {error}"),
            Self::Invalid => {
                write!(
                    f,
                    "a token is one line of {} or more visible ASCII characters",
                    AdminToken::MIN_LENGTH
                )
            }
        }
    }
}

impl std::error::Error for AdminTokenError {}

impl AdminToken {
    /// The fewest characters of a token.
    pub const MIN_LENGTH: usize = 16;

    /// Takes a token as it stands.
    ///
    /// # Errors
    /// [`AdminTokenError::Invalid`].
    pub fn new(text: &str) -> Result<Self, AdminTokenError> {
        let fits =
            text.len() >= Self::MIN_LENGTH && text.bytes().all(|byte| byte.is_ascii_graphic());
        if fits {
            Ok(Self(Sha256::digest(text).into()))
        } else {
            Err(AdminTokenError::Invalid)
        }
    }

    /// Reads the file of the setting `admin.token_file`; white space around the token is cut.
    ///
    /// # Errors
    /// If the file cannot be read or holds no fit token.
    pub fn from_file(path: &Path) -> Result<Self, AdminTokenError> {
        let text = std::fs::read_to_string(path).map_err(AdminTokenError::Unreadable)?;
        Self::new(text.trim())
    }

    fn is_sent_in(&self, headers: &HeaderMap) -> bool {
        let given = single_header(headers, &AUTHORIZATION).and_then(|value| value.split_once(' '));
        let Some((scheme, given)) = given else {
            return false;
        };
        let given = given.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.equals(given.as_bytes());
        }
        scheme.eq_ignore_ascii_case("basic")
            && password_of_basic(given).is_some_and(|given| self.equals(&given))
    }

    /// Compares hashes, every byte of them: how long it takes says nothing of the token.
    fn equals(&self, given: &[u8]) -> bool {
        let given: [u8; 32] = Sha256::digest(given).into();
        self.0
            .iter()
            .zip(given)
            .fold(0, |differ, (ours, theirs)| differ | (ours ^ theirs))
            == 0
    }
}

/// The password of Basic credentials, whoever the user (RFC 7617: what stands behind the first colon).
fn password_of_basic(credentials: &str) -> Option<Vec<u8>> {
    let mut plain = STANDARD.decode(credentials).ok()?;
    let colon = plain.iter().position(|byte| *byte == b':')?;
    Some(plain.split_off(colon + 1))
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The listener is open to others, and asks for no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExposedListenerError(pub SocketAddr);

impl fmt::Display for ExposedListenerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "admin.listen {} is not loopback: set admin.token_file, or listen on 127.0.0.1:{}",
            self.0,
            self.0.port()
        )
    }
}

impl std::error::Error for ExposedListenerError {}

/// A configuration rule: a listener that is not on loopback must have a token.
///
/// # Errors
/// [`ExposedListenerError`] if it has none.
pub fn check_exposure(
    listen: SocketAddr,
    token: Option<&AdminToken>,
) -> Result<(), ExposedListenerError> {
    let home = listen.ip().to_canonical().is_loopback();
    if home || token.is_some() {
        Ok(())
    } else {
        Err(ExposedListenerError(listen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_ours_by_address_or_by_name() {
        let guard = AdminGuard::new(
            ["Gate.corp.example".to_owned(), "other:81".to_owned()],
            None,
        );
        let home = "127.0.0.1:3129".parse().unwrap();
        let lan = "10.1.2.3:3129".parse().unwrap();
        let mapped = "[::ffff:127.0.0.1]:3129".parse().unwrap();
        for (host, local, ours) in [
            ("127.0.0.1:3129", home, true),
            ("localhost:3129", home, true),
            ("[::1]:3129", home, true),
            ("127.0.0.1:3129", mapped, true),
            ("127.0.0.1", home, false),
            ("127.0.0.1:3128", home, false),
            ("127.0.0.2:3129", home, false),
            ("localhost:3129", lan, false),
            ("10.1.2.3:3129", lan, true),
            ("127.0.0.1:3129", lan, false),
            ("10.1.2.4:3129", lan, false),
            ("evil.example:3129", home, false),
            ("localhost.evil.example:3129", home, false),
            ("127.0.0.1.evil.example:3129", home, false),
            ("gate.corp.example:9000", lan, true),
            ("gate.corp.example", lan, true),
            ("other:81", lan, true),
            ("other:82", lan, false),
            ("", home, false),
            (":3129", home, false),
            ("127.0.0.1:3129x", home, false),
            ("2130706433:3129", home, false),
        ] {
            assert_eq!(guard.is_ours(host, local), ours, "{host} on {local}");
        }
    }

    #[test]
    fn origins_are_ours_by_host_and_over_tls_by_name_only() {
        let guard = AdminGuard::new(
            ["gate.corp.example".to_owned(), "other:81".to_owned()],
            None,
        );
        for (origin, host, ours) in [
            ("http://127.0.0.1:3129", "127.0.0.1:3129", true),
            ("https://127.0.0.1:3129", "127.0.0.1:3129", false),
            ("http://gate.corp.example", "gate.corp.example", true),
            ("https://gate.corp.example", "gate.corp.example", true),
            (
                "https://Gate.corp.example:8443",
                "gate.corp.example:8443",
                true,
            ),
            ("https://gate.corp.example:8443", "gate.corp.example", false),
            ("https://other:81", "other:81", true),
            ("https://other", "other", false),
            ("https://evil.example", "gate.corp.example", false),
            (
                "https://gate.corp.example.evil.example",
                "gate.corp.example",
                false,
            ),
            ("https://evil.example", "evil.example", false),
            ("ftp://gate.corp.example", "gate.corp.example", false),
            ("gate.corp.example", "gate.corp.example", false),
            ("null", "gate.corp.example", false),
        ] {
            let headers = HeaderMap::from_iter([(ORIGIN, origin.parse().unwrap())]);
            assert_eq!(
                guard.is_same_site(&headers, host),
                ours,
                "{origin} of {host}"
            );
        }
    }

    /// A poll of a page that is open must not bring up the browser's login.
    #[test]
    fn a_page_that_is_open_is_not_offered_basic() {
        for (modes, offered) in [
            (&[][..], 2),
            (&["navigate"][..], 2),
            (&["cors"][..], 1),
            (&["no-cors"][..], 1),
            (&["same-origin"][..], 1),
            (&["navigate", "cors"][..], 1),
            (&[""][..], 1),
        ] {
            let fields = modes
                .iter()
                .map(|mode| (SEC_FETCH_MODE, mode.parse().unwrap()));
            let headers = HeaderMap::from_iter(fields);
            let answer = AdminRefusal::Unauthorized(RequestInitiator::from_headers(&headers))
                .into_response();
            let challenges: Vec<_> = answer.headers().get_all(WWW_AUTHENTICATE).iter().collect();
            assert_eq!(
                (challenges.len(), challenges.first()),
                (offered, Some(&&BEARER)),
                "{modes:?}"
            );
        }
    }

    #[test]
    fn tokens_are_checked_and_hidden() {
        for bad in [
            "",
            "short",
            "0123456789abcde",
            "with a space in it.",
            "0123456789abcdé…",
            "0123456789abcdef\n",
        ] {
            assert!(
                matches!(AdminToken::new(bad), Err(AdminTokenError::Invalid)),
                "{bad:?}"
            );
        }
        let token = AdminToken::new("0123456789abcdef").unwrap();
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert!(token.equals(b"0123456789abcdef"));
        for wrong in ["", "0123456789abcdeF", "0123456789abcdef0"] {
            assert!(!token.equals(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn the_token_is_taken_as_bearer_or_as_the_password_of_anybody() {
        let basic = |plain: &[u8]| format!("Basic {}", STANDARD.encode(plain));
        let token = AdminToken::new("0123456789:abcdef").unwrap();
        for (value, fits) in [
            ("Bearer 0123456789:abcdef".to_owned(), true),
            (basic(b":0123456789:abcdef"), true),
            (basic(b"admin:0123456789:abcdef"), true),
            (basic("\u{fc}:0123456789:abcdef".as_bytes()), true),
            (basic(b"\xff:0123456789:abcdef"), true),
            (
                basic(b"admin:0123456789:abcdef").replacen("Basic", "bAsIc", 1),
                true,
            ),
            (basic(b"0123456789:abcdef"), false),
            (basic(b"0123456789:abcdef:"), false),
            (basic(b"admin:0123456789:abcdeg"), false),
            (basic(b"admin:0123456789:abcdef\n"), false),
            (basic(b"admin:"), false),
            (basic(b"admin"), false),
            (basic(b""), false),
            ("Basic".into(), false),
            ("Basic !!!".into(), false),
            ("Basic 0123456789:abcdef".into(), false),
            (
                basic(b"admin:0123456789:abcdef").replacen("Basic", "Bearer", 1),
                false,
            ),
            (
                basic(b"admin:0123456789:abcdef").replacen("Basic", "Digest", 1),
                false,
            ),
        ] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(token.is_sent_in(&headers), fits, "{value}");
        }
    }

    #[test]
    fn off_loopback_a_token_is_required() {
        let token = AdminToken::new("0123456789abcdef").unwrap();
        for (listen, without) in [
            ("127.0.0.1:1", true),
            ("127.1.2.3:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("10.0.0.1:1", false),
        ] {
            let listen: SocketAddr = listen.parse().unwrap();
            assert_eq!(check_exposure(listen, None).is_ok(), without, "{listen}");
            assert!(check_exposure(listen, Some(&token)).is_ok());
        }
    }
}
