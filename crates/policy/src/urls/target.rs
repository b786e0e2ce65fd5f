//! The canonical target of a request: parsed once, in one form.
//!
//! The same bytes serve the decision, name resolution, the `Host` field, the connection pool and
//! the request line. Texts that the crates url and http would interpret differently are rejected.
//! If a scan finds nothing to change, the canonical form is the received text; otherwise it is that
//! of [`url::Url`], which is also the oracle in tests of the scan.

mod decode;
mod error;
mod reading;
mod scan;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

pub use decode::normalize_text;
pub use error::TargetError;
pub use reading::LaxReading;
use scan::{UrlLayout, scan};

/// The supported schemes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

impl Scheme {
    /// The scheme as in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The default port.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A URL in canonical form. Cheap to clone; its parts are slices of one text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct UrlTarget {
    text: Arc<str>,
    layout: UrlLayout,
}

impl UrlTarget {
    /// Parses an absolute `http` or `https` URL without user info and fragment.
    ///
    /// # Errors
    /// Returns an error that can be shown to the client.
    pub fn parse(input: &str) -> Result<Self, TargetError> {
        match Self::from_scan(input) {
            Some(target) => Ok(target),
            None => Self::parse_with_url(input),
        }
    }

    /// Parses a URL by the scan alone; `None` if it needs the full parser. For tests of
    /// [`Self::parse`].
    #[doc(hidden)]
    pub fn from_scan(input: &str) -> Option<Self> {
        scan(input).map(|layout| Self {
            text: input.into(),
            layout,
        })
    }

    /// Resolves a reference in a document at this URL and removes the fragment.
    ///
    /// # Errors
    /// Returns an error if the result is not a supported URL.
    pub fn join(&self, reference: &str) -> Result<Self, TargetError> {
        let base = url::Url::parse(&self.text)
            .map_err(|error| TargetError::from_url_error(error, &self.text))?;
        let mut joined = base
            .join(reference)
            .map_err(|error| TargetError::from_url_error(error, reference))?;
        joined.set_fragment(None);
        Self::parse(joined.as_str())
    }

    /// Parses a URL by [`url::Url`] alone: the oracle in tests of the scan.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::parse`].
    #[doc(hidden)]
    pub fn parse_with_url(input: &str) -> Result<Self, TargetError> {
        check_input(input)?;
        let mut url =
            url::Url::parse(input).map_err(|error| TargetError::from_url_error(error, input))?;
        let host = url.host_str().unwrap_or("");
        let undotted = host.strip_suffix('.').unwrap_or(host);
        // Checked before the dot is removed: without it `1.2.3.4..` would become an address.
        check_host(undotted)?;
        if undotted != host {
            let undotted = undotted.to_owned();
            url.set_host(Some(&undotted))
                .map_err(|error| TargetError::from_url_error(error, input))?;
        }
        if url.port() == Some(0) {
            return Err(TargetError::Port);
        }
        // The URL standard leaves a backslash in a query as it is, and servers differ.
        let text = url.as_str().replace('\\', "%5C");
        Self::from_canonical(&text).ok_or(TargetError::EmptyHost)
    }

    /// Splits a canonical text into its parts.
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

    /// The whole URL, shared.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.layout.scheme
    }

    /// The host; an IPv6 address is in brackets.
    pub fn host(&self) -> &str {
        self.part(self.layout.host_start(), self.layout.host_end)
    }

    /// The address, if the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        parse_ip_literal(self.host())
    }

    /// The port, possibly the scheme's default.
    pub fn port(&self) -> u16 {
        self.layout.port
    }

    /// The host, with `:port` unless it is the scheme's default.
    pub fn authority(&self) -> &str {
        self.part(self.layout.host_start(), self.layout.path_start)
    }

    /// The URL without its scheme: `host[:port]/path[?query]`.
    pub fn authority_path_query(&self) -> &str {
        self.part(self.layout.host_start(), self.end())
    }

    /// The path with its leading slash.
    pub fn path(&self) -> &str {
        self.part(self.layout.path_start, self.layout.path_end)
    }

    /// The path and query, as in a request line.
    pub fn path_and_query(&self) -> &str {
        self.part(self.layout.path_start, self.end())
    }

    /// The query without `?`; empty if the URL has no query.
    pub fn query(&self) -> &str {
        self.part(self.layout.path_end.saturating_add(1), self.end())
    }

    /// The common prefix of all URLs with this scheme, host and port: `http://host[:port]/`.
    pub fn base(&self) -> &str {
        self.part(0, self.layout.path_start.saturating_add(1))
    }

    /// Returns `true` if lax servers may read the URL differently. Found when it was parsed.
    pub fn has_readings(&self) -> bool {
        self.layout.has_readings
    }

    /// Returns the URL as some lax servers read it; `None` if that is the URL itself.
    pub fn reading(&self, reading: LaxReading) -> Option<Self> {
        if !self.has_readings() {
            return None;
        }
        let path = reading.path(self.path());
        let query = reading.query(self.query());
        if path == self.path() && query == self.query() {
            return None;
        }
        let front = self.part(0, self.layout.path_start);
        let mark = if self.layout.path_end < self.end() {
            "?"
        } else {
            ""
        };
        Self::from_canonical(&[front, &path, mark, &query].concat())
    }

    /// Returns the different readings of the URL by lax servers.
    pub fn readings(&self) -> Vec<(LaxReading, Self)> {
        let mut readings: Vec<(LaxReading, Self)> = Vec::new();
        for reading in LaxReading::ALL {
            if let Some(url) = self.reading(reading)
                && readings.iter().all(|(_, other)| *other != url)
            {
                readings.push((reading, url));
            }
        }
        readings
    }

    /// Returns the normalized form: escapes are in upper case, those of unreserved characters are
    /// decoded.
    pub fn normalized(&self) -> Cow<'_, str> {
        normalize_text(self.as_str())
    }

    /// Returns the names and values of the query, percent-decoded once, with `+` as a space.
    pub fn params(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        url::form_urlencoded::parse(self.query().as_bytes())
    }

    /// The host and port.
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

/// The host and port of a tunnel, or of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostTarget {
    scheme: Scheme,
    authority: Box<str>,
    host_length: usize,
    port: u16,
}

impl HostTarget {
    /// Parses the authority of a CONNECT: `host:port`, with a mandatory port. The scheme is assumed
    /// to be https.
    ///
    /// # Errors
    /// Returns an error if the text is not a valid authority.
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
            return Err(TargetError::Host(FORBIDDEN_CHARACTER.into()));
        }
        // Written so that the scan accepts it and the full parser is not needed.
        let url = if port == Scheme::Https.default_port() {
            format!("https://{host}/")
        } else {
            format!("https://{host}:{port}/")
        };
        UrlTarget::parse(&url).map(|target| target.host_target())
    }

    /// The scheme; `https` for a CONNECT.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host; an IPv6 address is in brackets.
    pub fn host(&self) -> &str {
        self.authority.get(..self.host_length).unwrap_or("")
    }

    /// The address, if the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        parse_ip_literal(self.host())
    }

    /// The port, possibly the default of the scheme.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host, with `:port` unless it is the scheme's default.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

/// Returns the canonical form of a host, for values in policies: `FOO.com.` becomes `foo.com`.
///
/// # Errors
/// Returns an error if the text is not a valid host.
pub fn canonical_host(text: &str) -> Result<String, TargetError> {
    if text.contains(['/', '?', '@']) {
        return Err(TargetError::Host(FORBIDDEN_CHARACTER.into()));
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

/// Parses an IP address. Names are skipped early: only addresses begin with a digit or a bracket.
fn parse_ip_literal(host: &str) -> Option<IpAddr> {
    match host.as_bytes().first()? {
        b'[' => host.strip_prefix('[')?.strip_suffix(']')?.parse().ok(),
        b'0'..=b'9' => host.parse().ok(),
        _ => None,
    }
}

/// Rejects hosts that url accepts and other parsers, or DNS, do not.
fn check_host(host: &str) -> Result<(), TargetError> {
    if host.split('.').any(str::is_empty) {
        return Err(TargetError::Host("a host with an empty label".into()));
    }
    if host.starts_with('[') || host.bytes().all(is_name_byte) {
        Ok(())
    } else {
        Err(TargetError::Host(FORBIDDEN_CHARACTER.into()))
    }
}

const FORBIDDEN_CHARACTER: &str = "a character that is not allowed";

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

/// Rejects texts that url would correct silently, or that other parsers interpret differently.
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
    let before_query = input.split('?').next().unwrap_or(input);
    if before_query.contains('\\') {
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

/// Returns `true` for a scheme by RFC 3986 section 3.1.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
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
    Ok(())
}
