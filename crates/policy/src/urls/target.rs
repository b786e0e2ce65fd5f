//! The canonical target of a request: one parse, one form (policy.md section 7).
//!
//! The same bytes serve the decision, the look-up, the `Host` field, the pool and the wire. What url and http would
//! read differently is refused. If a scan finds nothing to change, the canonical form is the received text; else it is
//! what [`url::Url`] makes of it, which is also the oracle of the scan.

mod decode;
mod error;
mod scan;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

pub use decode::normalise_text;
pub use error::TargetError;
use scan::{UrlLayout, scan};

/// The schemes that a crawler may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

impl Scheme {
    /// The scheme as it stands in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that a URL need not name.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A URL in canonical form. Cheap to clone; its parts are views of one text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct UrlTarget {
    text: Arc<str>,
    layout: UrlLayout,
}

impl UrlTarget {
    /// Reads a URL as a client asks for it: absolute, `http` or `https`, without userinfo and fragment.
    ///
    /// # Errors
    /// The mistake, in words that can be shown to the client.
    pub fn parse(input: &str) -> Result<Self, TargetError> {
        match Self::from_scan(input) {
            Some(target) => Ok(target),
            None => Self::parse_with_url(input),
        }
    }

    /// What the scan alone makes of it: `None` if it leaves the text to the full parser. For tests of [`Self::parse`].
    #[doc(hidden)]
    pub fn from_scan(input: &str) -> Option<Self> {
        scan(input).map(|layout| Self {
            text: input.into(),
            layout,
        })
    }

    /// What a reference in a document at this URL leads to, its fragment left out.
    ///
    /// # Errors
    /// If that is no URL that could be asked for.
    pub fn join(&self, reference: &str) -> Result<Self, TargetError> {
        let base = url::Url::parse(&self.text)
            .map_err(|error| TargetError::from_url_error(error, &self.text))?;
        let mut joined = base
            .join(reference)
            .map_err(|error| TargetError::from_url_error(error, reference))?;
        joined.set_fragment(None);
        Self::parse(joined.as_str())
    }

    /// The same by way of [`url::Url`], whatever the scan says: the oracle of its tests.
    ///
    /// # Errors
    /// As [`Self::parse`].
    #[doc(hidden)]
    pub fn parse_with_url(input: &str) -> Result<Self, TargetError> {
        check_input(input)?;
        let mut url =
            url::Url::parse(input).map_err(|error| TargetError::from_url_error(error, input))?;
        let host = url.host_str().unwrap_or("");
        let undotted = host.strip_suffix('.').unwrap_or(host);
        // Before the dot goes: without it `1.2.3.4..` would be an address.
        check_host(undotted)?;
        if undotted != host {
            let undotted = undotted.to_owned();
            url.set_host(Some(&undotted))
                .map_err(|error| TargetError::from_url_error(error, input))?;
        }
        if url.port() == Some(0) {
            return Err(TargetError::Port);
        }
        Self::from_canonical(url.as_str()).ok_or(TargetError::EmptyHost)
    }

    /// Cuts a canonical text into its parts.
    fn from_canonical(text: &str) -> Option<Self> {
        let layout = UrlLayout::from_canonical(text)?;
        Some(Self {
            text: text.into(),
            layout,
        })
    }

    /// The whole URL: `http://host[:port]/path[?query]`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The same, to be kept without a copy.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.layout.scheme
    }

    /// The host; an IPv6 address in brackets.
    pub fn host(&self) -> &str {
        self.part(self.layout.host_start(), self.layout.host_end)
    }

    /// The address, if the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        parse_ip_literal(self.host())
    }

    /// The port, the scheme's default included.
    pub fn port(&self) -> u16 {
        self.layout.port
    }

    /// The host, and `:port` where it is not the scheme's default.
    pub fn authority(&self) -> &str {
        self.part(self.layout.host_start(), self.layout.path_start)
    }

    /// All but the scheme: `host[:port]/path[?query]`.
    pub fn authority_path_query(&self) -> &str {
        self.part(self.layout.host_start(), self.end())
    }

    /// The path with its leading slash.
    pub fn path(&self) -> &str {
        self.part(self.layout.path_start, self.layout.path_end)
    }

    /// Path and query: what stands in a request line.
    pub fn path_and_query(&self) -> &str {
        self.part(self.layout.path_start, self.end())
    }

    /// The query without `?`; empty if there is none.
    pub fn query(&self) -> &str {
        self.part(self.layout.path_end.saturating_add(1), self.end())
    }

    /// What every URL of this scheme, host and port begins with: `http://host[:port]/`.
    pub fn base(&self) -> &str {
        self.part(0, self.layout.path_start.saturating_add(1))
    }

    /// The form in which a server that decodes first would read the path, if that may be another (policy.md
    /// section 7): escapes of `/ \ . ; %`, NUL and unreserved characters decoded once, `\` as `/`, dot segments
    /// resolved.
    pub fn decoded(&self) -> Option<Self> {
        let path = decode::decode_leniently(self.path())?;
        let end = self.part(self.layout.path_end, self.end());
        let front = self.part(0, self.layout.path_start);
        Self::from_canonical(&[front, &path, end].concat())
    }

    /// The normalised form: escapes in upper case, those of unreserved characters decoded.
    pub fn normalised(&self) -> Cow<'_, str> {
        normalise_text(self.as_str())
    }

    /// Names and values of the query, percent-decoded once, `+` as a space.
    pub fn params(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        url::form_urlencoded::parse(self.query().as_bytes())
    }

    /// The host and port alone.
    pub fn host_target(&self) -> HostTarget {
        HostTarget {
            scheme: self.scheme(),
            authority: self.authority().into(),
            host_length: self.host().len(),
            port: self.port(),
        }
    }

    fn end(&self) -> u32 {
        u32::try_from(self.text.len()).unwrap_or(u32::MAX)
    }

    fn part(&self, from: u32, to: u32) -> &str {
        self.text.get(from as usize..to as usize).unwrap_or("")
    }
}

impl fmt::Debug for UrlTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The host and port of a tunnel, or of a URL without the rest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostTarget {
    scheme: Scheme,
    authority: Box<str>,
    host_length: usize,
    port: u16,
}

impl HostTarget {
    /// Reads the authority of a CONNECT: `host:port`, the port required. The scheme is taken to be https.
    ///
    /// # Errors
    /// The mistake.
    pub fn parse_authority(text: &str) -> Result<Self, TargetError> {
        let (host, port) = text.rsplit_once(':').ok_or(TargetError::Port)?;
        let digits = port.bytes().all(|b| b.is_ascii_digit());
        let port: u16 = port
            .parse()
            .ok()
            .filter(|port| digits && *port != 0)
            .ok_or(TargetError::Port)?;
        let bracketed = host.starts_with('[') && host.ends_with(']');
        if host.contains(['/', '?']) || (host.contains(':') && !bracketed) {
            return Err(TargetError::Host("a character that no host has".into()));
        }
        // Written as the scan takes it, which needs no full parser then.
        let url = if port == Scheme::Https.default_port() {
            format!("https://{host}/")
        } else {
            format!("https://{host}:{port}/")
        };
        UrlTarget::parse(&url).map(|target| target.host_target())
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host; an IPv6 address in brackets.
    pub fn host(&self) -> &str {
        self.authority.get(..self.host_length).unwrap_or("")
    }

    /// The address, if the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        parse_ip_literal(self.host())
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host, and `:port` where it is not the scheme's default.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

/// The canonical form of a host alone, for values in policies: `FOO.com.` is `foo.com`.
///
/// # Errors
/// If it is none.
pub fn canonical_host(text: &str) -> Result<String, TargetError> {
    if text.contains(['/', '?', '@']) {
        return Err(TargetError::Host("a character that no host has".into()));
    }
    let bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    let url = if bare_v6 {
        format!("http://[{text}]/")
    } else {
        format!("http://{text}/")
    };
    let target = UrlTarget::parse(&url)?;
    let has_port = !bare_v6
        && text
            .rsplit_once(':')
            .is_some_and(|(_, after)| !after.ends_with(']'));
    if has_port {
        Err(TargetError::Port)
    } else {
        Ok(target.host().to_owned())
    }
}

/// Only texts that look like one are parsed: names hold a letter, addresses begin with a digit or a bracket.
fn parse_ip_literal(host: &str) -> Option<IpAddr> {
    match host.as_bytes().first()? {
        b'[' => host.strip_prefix('[')?.strip_suffix(']')?.parse().ok(),
        b'0'..=b'9' => host.parse().ok(),
        _ => None,
    }
}

/// What url takes for a host and other parsers, or DNS, do not.
fn check_host(host: &str) -> Result<(), TargetError> {
    if host.split('.').any(str::is_empty) {
        return Err(TargetError::Host("a host with an empty label".into()));
    }
    let of_a_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let fits = host.starts_with('[') || host.bytes().all(of_a_name);
    if fits {
        Ok(())
    } else {
        Err(TargetError::Host("a character that no host has".into()))
    }
}

/// What url would mend in silence, and what other parsers read otherwise.
fn check_input(input: &str) -> Result<(), TargetError> {
    if let Some(byte) = input.bytes().find(|b| *b <= b' ' || *b == 0x7f) {
        return Err(if byte == b' ' {
            TargetError::Space
        } else {
            TargetError::Control
        });
    }
    if input.contains('#') {
        return Err(TargetError::Fragment);
    }
    if input.contains('\\') {
        return Err(TargetError::Backslash);
    }
    let Some((scheme, rest)) = input
        .split_once("://")
        .filter(|(scheme, _)| is_scheme(scheme))
    else {
        return Err(TargetError::NotAbsolute);
    };
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(TargetError::Scheme(scheme.into()));
    }
    check_authority(rest.split(['/', '?']).next().unwrap_or(rest))
}

/// RFC 3986 section 3.1.
fn is_scheme(text: &str) -> bool {
    let of_a_scheme = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(of_a_scheme)
}

fn check_authority(authority: &str) -> Result<(), TargetError> {
    if authority.is_empty() {
        return Err(TargetError::EmptyHost);
    }
    if authority.contains('@') {
        return Err(TargetError::Userinfo);
    }
    if authority.contains('%') {
        return Err(TargetError::Host("an escape in the host".into()));
    }
    let is_name = !authority.starts_with('[');
    let without_port = authority.ends_with("]:") || (is_name && authority.ends_with(':'));
    if without_port {
        Err(TargetError::Port)
    } else {
        Ok(())
    }
}
