//! How a host is named in a path.

use std::net::IpAddr;

use crate::admin::query::ParameterError;
use crate::pipeline::robots_fetch::inspection::RobotsFileStatus;
use crate::urls::target::{UrlTarget, canonical_host};

/// What names a host: in canonical form, perhaps with a port, which chooses among its robots.txt. `@` and an address name
/// one that is paced beside its hosts.
#[derive(Debug)]
pub(super) struct HostSelector {
    pub(super) host: String,
    port: Option<u16>,
}

impl HostSelector {
    pub(super) fn parse(text: &str) -> Result<Self, ParameterError> {
        if let Some(address) = text.strip_prefix('@') {
            let known: IpAddr = address.parse().map_err(|_| invalid_host())?;
            return Ok(Self {
                host: format!("@{known}"),
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

    /// The names by which it may be paced: an IPv6 address with brackets as a host, without as an address.
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

    /// Whether a robots.txt is one that is asked about.
    pub(super) fn selects(&self, file: &RobotsFileStatus) -> bool {
        let Some(port) = self.port else { return true };
        UrlTarget::parse(&file.base_url()).is_ok_and(|url| url.port() == port)
    }
}

fn invalid_host() -> ParameterError {
    ParameterError(
        "write a host, such as www.example.com, 192.0.2.7 or [2001:db8::7], perhaps with a port"
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
            let read = HostSelector::parse(text)
                .ok()
                .map(|name| (name.host, name.port));
            assert_eq!(read, host.map(|host| (host.to_owned(), port)), "{text:?}");
        }
    }
}
