//! The canonical target of a request (interim: replaced whole by its own commit).
#![allow(missing_docs, reason = "interim")]
use std::borrow::Cow;
use std::net::IpAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
}
impl Scheme {
    pub fn as_str(self) -> &'static str {
        if self == Self::Http { "http" } else { "https" }
    }
    pub fn default_port(self) -> u16 {
        if self == Self::Http { 80 } else { 443 }
    }
}
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UrlTarget(url::Url);
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetError(String);
impl std::fmt::Display for TargetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl UrlTarget {
    pub fn parse(input: &str) -> Result<Self, TargetError> {
        url::Url::parse(input).map(Self).map_err(|e| TargetError(e.to_string()))
    }
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
    pub fn scheme(&self) -> Scheme {
        if self.0.scheme() == "http" { Scheme::Http } else { Scheme::Https }
    }
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or("")
    }
    pub fn ip(&self) -> Option<IpAddr> {
        self.host().trim_matches(['[', ']']).parse().ok()
    }
    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(0)
    }
    pub fn authority(&self) -> &str {
        self.0.authority()
    }
    pub fn authority_path_query(&self) -> &str {
        self.as_str().split_once("://").map_or("", |(_, r)| r)
    }
    pub fn path(&self) -> &str {
        self.0.path()
    }
    pub fn path_and_query(&self) -> &str {
        self.authority_path_query().strip_prefix(self.authority()).unwrap_or("/")
    }
    pub fn query(&self) -> &str {
        self.0.query().unwrap_or("")
    }
    pub fn base(&self) -> &str {
        self.as_str().strip_suffix(self.path_and_query().strip_prefix('/').unwrap_or("")).unwrap_or("")
    }
    pub fn decoded(&self) -> Option<Self> {
        None
    }
    pub fn normalised(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.as_str())
    }
    pub fn params(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        self.0.query_pairs()
    }
    pub fn host_target(&self) -> HostTarget {
        HostTarget { host: self.host().into(), port: self.port(), authority: self.authority().into() }
    }
}
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostTarget {
    host: Box<str>,
    port: u16,
    authority: Box<str>,
}
impl HostTarget {
    pub fn parse_authority(text: &str) -> Result<Self, TargetError> {
        UrlTarget::parse(&format!("https://{text}/")).map(|t| t.host_target())
    }
    pub fn scheme(&self) -> Scheme {
        Scheme::Https
    }
    pub fn host(&self) -> &str {
        &self.host
    }
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.trim_matches(['[', ']']).parse().ok()
    }
    pub fn port(&self) -> u16 {
        self.port
    }
    pub fn authority(&self) -> &str {
        &self.authority
    }
}
pub fn canonical_host(text: &str) -> Result<String, TargetError> {
    UrlTarget::parse(&format!("http://{text}/")).map(|t| t.host().to_owned())
}
pub fn normalise_text(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}
