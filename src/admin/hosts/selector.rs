//! The host in a path of the API.

use std::net::IpAddr;

use crate::admin::api_request::ApiError;
use crate::pipeline::robots_fetch::inspection::RobotsFileStatus;
use crate::urls::target::{UrlTarget, canonical_host};

/// A host in canonical form, optionally with a port, which selects one of its robots.txt files. `@` and an address select
/// an address that is paced in addition to its hosts.
#[derive(Debug)]
pub(super) struct HostSelector {
    pub(super) host: String,
    port: Option<u16>,
}

impl HostSelector {
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        if let Some(address) = text.strip_prefix('@') {
            let address: IpAddr = address.parse().map_err(|_| invalid_host())?;
            return Ok(Self {
                host: format!("@{address}"),
                port: None,
            });
        }
        if let Ok(host) = canonical_host(text) {
            return Ok(Self { host, port: None });
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid_host)?;
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port
            .parse()
            .ok()
            .filter(|port| digits && *port != 0)
            .ok_or_else(invalid_host)?;
        Ok(Self {
            host: canonical_host(host).map_err(|_| invalid_host())?,
            port: Some(port),
        })
    }

    /// Returns `true` for an address that is paced in addition to its hosts.
    pub(super) fn is_address(&self) -> bool {
        self.host.starts_with('@')
    }

    /// Returns the names under which the host may be paced. An IPv6 address has brackets as a host, and none as an address.
    pub(super) fn pacing_keys(&self) -> Vec<&str> {
        let bare = self
            .host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        [Some(self.host.as_str()), bare]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Returns `true` if a robots.txt file is selected.
    pub(super) fn selects(&self, file: &RobotsFileStatus) -> bool {
        let Some(port) = self.port else { return true };
        UrlTarget::parse(&file.base_url()).is_ok_and(|url| url.port() == port)
    }
}

fn invalid_host() -> ApiError {
    ApiError::Invalid(
        "write a host, such as www.example.com, 192.0.2.7 or [2001:db8::7], optionally with a port"
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_named_as_in_urls() {
        for (text, host, port) in [
            ("www.A.test", Some("www.a.test"), None),
            ("a.test.", Some("a.test"), None),
            ("a.test:8080", Some("a.test"), Some(8080)),
            ("bücher.example", Some("xn--bcher-kva.example"), None),
            ("bücher.example:81", Some("xn--bcher-kva.example"), Some(81)),
            ("192.0.2.7", Some("192.0.2.7"), None),
            ("[2001:DB8::7]", Some("[2001:db8::7]"), None),
            ("[2001:db8::7]:81", Some("[2001:db8::7]"), Some(81)),
            ("2001:db8::7", Some("[2001:db8::7]"), None),
            ("@2001:db8::7", Some("@2001:db8::7"), None),
            ("@192.0.2.7", Some("@192.0.2.7"), None),
            ("", None, None),
            ("@", None, None),
            ("@a.test", None, None),
            ("a.test:0", None, None),
            ("a.test:+1", None, None),
            ("a.test:99999", None, None),
            ("a b", None, None),
            ("a/b", None, None),
            ("user@a.test", None, None),
            ("a..test", None, None),
            ("http://a.test/", None, None),
        ] {
            let parsed = HostSelector::parse(text)
                .ok()
                .map(|selector| (selector.host, selector.port));
            assert_eq!(parsed, host.map(|host| (host.to_owned(), port)), "{text:?}");
        }
    }
}
