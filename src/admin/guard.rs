//! Access control of the admin listener, against web pages in a browser on this machine and against other hosts.
//!
//! - The target must be in origin-form. The error tells a client that mistook this port for the proxy's.
//! - `Host` must name this listener. A page whose name an attacker points here (DNS rebinding) sends its own name.
//! - `Origin` and `Sec-Fetch-Site` must not name another site, unless a user follows a link to the page. Behind a TLS terminator, a page's own origin is `https://`
//!   and one of the configured names.
//! - All paths but those for probes require the token, if one is configured; those that change the policy require that one
//!   is. A listener that is not on loopback must have
//!   one (`Settings::safety_errors`). It is sent as a Bearer token, or as the password of Basic credentials. A browser asks its
//!   user for these once, when a page is opened, and not for each of its polls.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Response, StatusCode, request};
use http_body_util::Full;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::response::problem;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The longest user name that is recorded.
const MAX_USER_CHARS: usize = 64;

/// The preferred challenge. Each challenge has a field of its own, since old browsers read only one per field.
const BEARER: HeaderValue = HeaderValue::from_static("Bearer realm=\"crawlgate admin\"");
/// The challenge for browsers, which prompt their user.
const BASIC: HeaderValue =
    HeaderValue::from_static("Basic realm=\"crawlgate admin\", charset=\"UTF-8\"");

/// The credentials that a path requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathAccess {
    /// None.
    Open,
    /// The admin token, if one is configured.
    Token,
    /// The admin token, which must be configured: the path changes what the proxy enforces for good.
    RequiredToken,
}

/// Decides which requests are answered.
#[derive(Debug)]
pub struct AdminGuard {
    names: Box<[Box<str>]>,
    token: Option<AdminToken>,
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdminRefusal {
    /// CONNECT, or a target that is not a path: the client mistook this listener for the proxy.
    NotAProxy,
    /// No `Host`, or more than one.
    InvalidHost,
    /// `Host` is not a name of this listener.
    ForeignHost,
    /// According to the browser, a page of another site sent the request.
    ForeignSite,
    /// The path requires the token, and it is missing or wrong.
    Unauthorized(RequestInitiator),
    /// The path requires the token, and none is configured.
    NoToken,
}

/// The initiator of a request without the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestInitiator {
    /// A program, or the user of a browser who opens a page.
    User,
    /// A script of an open page (`Sec-Fetch-Mode`, W3C Fetch Metadata), unless it loads a file of the page. Basic would
    /// make the browser show its login dialog at each poll.
    Page,
}

impl RequestInitiator {
    /// Returns `User` also for a file that the page consists of: its user has opened the page with credentials in the
    /// address, which a browser sends again only if it is asked for them. No poll requests such a file.
    fn from_request(request: &request::Parts) -> Self {
        let mut modes = request.headers.get_all(SEC_FETCH_MODE).iter();
        let is_file_of_page = request.uri.path().starts_with("/ui/")
            && single_header(&request.headers, &SEC_FETCH_SITE) == Some("same-origin");
        if is_file_of_page || modes.all(|mode| mode.as_bytes() == b"navigate") {
            Self::User
        } else {
            Self::Page
        }
    }
}

impl AdminGuard {
    /// Creates a guard that admits these `Host` values: the local address of the connection; `localhost` and loopback
    /// addresses, if that is one; and `names`, where `NAME` matches with any port and `NAME:PORT` only with that one.
    pub fn new(names: impl IntoIterator<Item = String>, token: Option<AdminToken>) -> Self {
        Self {
            names: names
                .into_iter()
                .map(|name| name.to_ascii_lowercase().into())
                .collect(),
            token,
        }
    }

    /// Checks a request for a path with this access that arrived on a connection to `local`.
    ///
    /// # Errors
    /// The reason, if the request is refused.
    pub(super) fn check(
        &self,
        request: &request::Parts,
        local: SocketAddr,
        access: PathAccess,
    ) -> Result<(), AdminRefusal> {
        if request.method == Method::CONNECT || request.uri.authority().is_some() {
            return Err(AdminRefusal::NotAProxy);
        }
        let headers = &request.headers;
        let host = single_header(headers, &HOST)
            .ok_or(AdminRefusal::InvalidHost)?
            .to_ascii_lowercase();
        if !self.is_ours(&host, local) {
            return Err(AdminRefusal::ForeignHost);
        }
        if !self.is_same_site(headers, &host) && !is_link_to_page(request) {
            return Err(AdminRefusal::ForeignSite);
        }
        match (access, &self.token) {
            (PathAccess::Open, _) | (PathAccess::Token, None) => Ok(()),
            (PathAccess::RequiredToken, None) => Err(AdminRefusal::NoToken),
            (PathAccess::Token | PathAccess::RequiredToken, Some(token))
                if token.is_sent_in(headers) =>
            {
                Ok(())
            }
            (PathAccess::Token | PathAccess::RequiredToken, Some(_)) => Err(
                AdminRefusal::Unauthorized(RequestInitiator::from_request(request)),
            ),
        }
    }

    /// Returns `true` unless the client is a browser and reports a request that neither its user nor a page of this
    /// listener initiated.
    fn is_same_site(&self, headers: &HeaderMap, host: &str) -> bool {
        let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
        let mut origins = headers.get_all(ORIGIN).iter();
        sites.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"))
            && origins.all(|origin| self.is_same_origin(origin, host))
    }

    fn is_same_origin(&self, origin: &HeaderValue, host: &str) -> bool {
        let Some((scheme, authority)) =
            origin.to_str().ok().and_then(|text| text.split_once("://"))
        else {
            return false;
        };
        (scheme == "http" || scheme == "https" && self.is_named(host))
            && authority.eq_ignore_ascii_case(host)
    }

    /// Returns `true` if a `Host` is one of the configured names.
    fn is_named(&self, host: &str) -> bool {
        let (name, _) = split_port(host);
        self.names
            .iter()
            .any(|configured| **configured == *host || **configured == *name)
    }

    fn is_ours(&self, host: &str, local: SocketAddr) -> bool {
        if self.is_named(host) {
            return true;
        }
        let (name, port) = split_port(host);
        let local_ip = local.ip().to_canonical();
        let address = match parse_ip(name).map(|ip| ip.to_canonical()) {
            Some(ip) => ip == local_ip || is_localhost(ip) && local_ip.is_loopback(),
            None => name == "localhost" && local_ip.is_loopback(),
        };
        address && port == Some(local.port())
    }
}

/// Returns `true` for 127.0.0.1 and ::1, and not for the rest of 127.0.0.0/8.
fn is_localhost(ip: IpAddr) -> bool {
    ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST
}

/// Parses an address as URLs have it: IPv6 in brackets, IPv4 without (RFC 3986 section 3.2.2).
fn parse_ip(name: &str) -> Option<IpAddr> {
    match name.strip_prefix('[') {
        Some(rest) => {
            let address: Ipv6Addr = rest.strip_suffix(']')?.parse().ok()?;
            Some(IpAddr::V6(address))
        }
        None => name.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    }
}

/// Returns the name and the port of a `Host` value. The port defaults to 80, and is `None` if it is not a number.
fn split_port(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        // `parse` would accept a sign.
        Some((name, port)) if port.starts_with('+') => (name, None),
        Some((name, port)) if !port.contains(']') => (name, port.parse().ok()),
        _ => (host, Some(80)),
    }
}

/// Returns the value of a field that occurs exactly once.
/// Returns `true` if a user follows a link to the page, which may be in a mail or on any site: refusals link to it. The page
/// itself shows nothing before it asks the API.
fn is_link_to_page(request: &request::Parts) -> bool {
    let headers = &request.headers;
    (request.method == Method::GET || request.method == Method::HEAD)
        && matches!(request.uri.path(), "/" | "/ui")
        && single_header(headers, &SEC_FETCH_MODE) == Some("navigate")
        && single_header(headers, &SEC_FETCH_DEST) == Some("document")
        && !headers.contains_key(ORIGIN)
}

fn single_header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

impl AdminRefusal {
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
                "requests from pages of other sites are refused",
            ),
            Self::Unauthorized(initiator) => unauthorized(initiator),
            Self::NoToken => problem(
                StatusCode::FORBIDDEN,
                "this changes the policy, which needs the admin token, also on loopback, and none is configured: write one line \
                 of 16 or more characters to a file (openssl rand -hex 16), name it in admin.token_file, and restart the proxy",
            ),
        }
    }
}

/// Returns a 401 response with the challenges that this initiator can answer.
fn unauthorized(initiator: RequestInitiator) -> Response<Full<Bytes>> {
    let mut response = problem(
        StatusCode::UNAUTHORIZED,
        "the admin token is required: Authorization: Bearer …, or Basic with the token as password",
    );
    let challenges = response.headers_mut();
    challenges.append(WWW_AUTHENTICATE, BEARER);
    match initiator {
        RequestInitiator::User => {
            challenges.append(WWW_AUTHENTICATE, BASIC);
        }
        RequestInitiator::Page => {}
    }
    response
}

/// The admin token. Only its hash is stored, and it is never shown.
pub struct AdminToken([u8; 32]);

#[derive(Debug, Error)]
pub enum AdminTokenError {
    /// The file cannot be read.
    #[error("cannot read the token: {0}")]
    Unreadable(io::Error),
    /// The token is shorter than [`AdminToken::MIN_LENGTH`], or has characters that a header cannot carry.
    #[error(
        "a token is one line of {} or more visible ASCII characters",
        AdminToken::MIN_LENGTH
    )]
    Invalid,
}

impl AdminToken {
    /// The fewest characters of a token.
    pub const MIN_LENGTH: usize = 16;

    /// Creates a token from its text.
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

    /// Reads the file of the setting `admin.token_file`; white space around the token is ignored.
    ///
    /// # Errors
    /// If the file cannot be read or does not contain a valid token.
    pub fn from_file(path: &Path) -> Result<Self, AdminTokenError> {
        let text = std::fs::read_to_string(path).map_err(AdminTokenError::Unreadable)?;
        Self::new(text.trim())
    }

    fn is_sent_in(&self, headers: &HeaderMap) -> bool {
        let authorization =
            single_header(headers, &AUTHORIZATION).and_then(|value| value.split_once(' '));
        let Some((scheme, authorization)) = authorization else {
            return false;
        };
        let credentials = authorization.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.equals(credentials.as_bytes());
        }
        scheme.eq_ignore_ascii_case("basic")
            && password_of_basic(credentials).is_some_and(|password| self.equals(&password))
    }

    /// Compares the hashes in constant time, so that the time reveals nothing about the token.
    fn equals(&self, token: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.0
            .iter()
            .zip(digest)
            .fold(0, |differ, (a, b)| differ | (a ^ b))
            == 0
    }
}

/// Returns the password of Basic credentials: the text after the first colon (RFC 7617). The user does not matter.
fn password_of_basic(credentials: &str) -> Option<Vec<u8>> {
    let mut plain = STANDARD.decode(credentials).ok()?;
    let colon = plain.iter().position(|byte| *byte == b':')?;
    Some(plain.split_off(colon + 1))
}

/// Returns the user of Basic credentials, for records of changes: nothing proves the name.
pub(super) fn claimed_user(headers: &HeaderMap) -> Option<String> {
    let (scheme, credentials) = single_header(headers, &AUTHORIZATION)?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let plain = String::from_utf8(STANDARD.decode(credentials.trim()).ok()?).ok()?;
    let (user, _) = plain.split_once(':')?;
    let user: String = user
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_USER_CHARS)
        .collect();
    (!user.is_empty()).then_some(user)
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(…)")
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
            ("[::ffff:127.0.0.1]:3129", home, true),
            ("[[127.0.0.1]]:3129", home, false),
            ("[127.0.0.1]:3129", home, false),
            ("[[::1]]:3129", home, false),
            ("[::1:3129", home, false),
            ("::1]:3129", home, false),
            ("::1:3129", home, false),
            ("[]:3129", home, false),
            ("[localhost]:3129", home, false),
            ("127.0.0.1:+3129", home, false),
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

    #[test]
    fn a_link_from_another_site_leads_to_the_page_and_nowhere_else() {
        let link = [
            (HOST, "localhost:3129"),
            (SEC_FETCH_SITE, "cross-site"),
            (SEC_FETCH_MODE, "navigate"),
            (SEC_FETCH_DEST, "document"),
        ];
        let guard = AdminGuard::new([], None);
        let check = |method: Method, path: &str, changed: Option<(HeaderName, &'static str)>| {
            let mut request = http::Request::builder().method(method).uri(path);
            for (name, value) in link.clone() {
                let value = match &changed {
                    Some((other, new)) if *other == name => *new,
                    Some(_) | None => value,
                };
                request = request.header(name, value);
            }
            if let Some((name, value)) = changed.filter(|(name, _)| *name == ORIGIN) {
                request = request.header(name, value);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let local = "127.0.0.1:3129".parse().unwrap();
            guard.check(&parts, local, PathAccess::Open).is_ok()
        };
        for path in ["/", "/ui", "/ui?x=1"] {
            assert!(check(Method::GET, path, None), "{path}");
        }
        for path in ["/api/v1/status", "/ui/app.js", "/metrics"] {
            assert!(!check(Method::GET, path, None), "{path}");
        }
        assert!(!check(Method::POST, "/ui", None));
        for changed in [
            (SEC_FETCH_MODE, "no-cors"),
            (SEC_FETCH_DEST, "iframe"),
            (HOST, "evil.example"),
            (ORIGIN, "http://evil.example"),
        ] {
            assert!(
                !check(Method::GET, "/ui", Some(changed.clone())),
                "{changed:?}"
            );
        }
    }

    /// A poll of an open page must not bring up the browser's login dialog.
    #[test]
    fn a_page_that_is_open_is_not_offered_basic() {
        let api = "/api/v1/status";
        for (path, site, modes, offered) in [
            (api, "same-origin", &[][..], 2),
            (api, "same-origin", &["navigate"][..], 2),
            (api, "same-origin", &["cors"][..], 1),
            (api, "same-origin", &["no-cors"][..], 1),
            (api, "same-origin", &["same-origin"][..], 1),
            (api, "same-origin", &["navigate", "cors"][..], 1),
            (api, "same-origin", &[""][..], 1),
            ("/ui", "same-origin", &["cors"][..], 1),
            ("/ui/base.css", "same-origin", &["no-cors"][..], 2),
            ("/ui/app.js", "same-origin", &["cors"][..], 2),
            ("/ui/base.css", "cross-site", &["no-cors"][..], 1),
            ("/ui/base.css", "none", &["no-cors"][..], 1),
        ] {
            let mut request = http::Request::builder()
                .uri(path)
                .header(SEC_FETCH_SITE, site);
            for mode in modes {
                request = request.header(SEC_FETCH_MODE, *mode);
            }
            let (request, ()) = request.body(()).unwrap().into_parts();
            let answer = AdminRefusal::Unauthorized(RequestInitiator::from_request(&request))
                .into_response();
            let challenges: Vec<_> = answer.headers().get_all(WWW_AUTHENTICATE).iter().collect();
            assert_eq!(
                (challenges.len(), challenges.first()),
                (offered, Some(&&BEARER)),
                "{path} {site} {modes:?}"
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
        assert_eq!(format!("{token:?}"), "AdminToken(…)");
        assert!(token.equals(b"0123456789abcdef"));
        for wrong in ["", "0123456789abcdeF", "0123456789abcdef0"] {
            assert!(!token.equals(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn the_token_is_accepted_as_bearer_or_as_the_password_of_any_user() {
        fn basic(plain: &[u8]) -> String {
            format!("Basic {}", STANDARD.encode(plain))
        }
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
}
