//! Parsers for values of the configuration that are more than a word or a number.
//!
//! Each error names the expected form; the caller adds the place of the text.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

use crate::urls::target::{UrlTarget, canonical_host};

/// Ports from the start to the end, inclusive.
pub(super) type PortRange = RangeInclusive<u16>;

/// Parses a listen address: an IP address and a port.
pub(crate) fn parse_socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| match text.rsplit_once(':') {
        Some(("localhost", port)) => format!("write the address, not the name: 127.0.0.1:{port}"),
        Some(("" | "*", port)) => format!("write the address too: 127.0.0.1:{port}"),
        Some(_) | None => {
            "write an address and a port, such as 127.0.0.1:3128 or [::1]:3128".to_owned()
        }
    })
}

/// Parses a port, or a range of ports such as `1024-65535`.
pub(super) fn parse_port_range(text: &str) -> Result<PortRange, String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (parse_port(from), parse_port(to)) {
        (Some(from), Some(to)) if from <= to => Ok(from..=to),
        (Some(_), Some(_)) => Err("the range ends before it begins".into()),
        _ => Err("write a port from 1 to 65535, or a range such as 1024-65535".into()),
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

/// Sorts port ranges and joins those that overlap or touch, so that equal sets of ports are equal values.
pub(super) fn merge_port_ranges(mut ranges: Vec<PortRange>) -> Vec<PortRange> {
    ranges.sort_unstable_by_key(|range| *range.start());
    let mut merged: Vec<PortRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            Some(_) | None => merged.push(range),
        }
    }
    merged
}

/// Parses a host, and returns it in canonical form.
pub(super) fn parse_host(text: &str) -> Result<String, String> {
    canonical_host(text).map_err(|_| "write a host name, such as intra.example.com".to_owned())
}

/// Parses a host, or `*.` and a domain, and returns it in canonical form.
pub(super) fn parse_host_pattern(text: &str) -> Result<String, String> {
    match text.strip_prefix("*.") {
        Some(domain) => Ok(format!("*.{}", parse_host(domain)?)),
        None if text.contains('*') => {
            Err("write a host, or *. before a domain: *.corp.example".into())
        }
        None => parse_host(text),
    }
}

/// Parses the value of a `Host` header: a name, with or without a port.
pub(super) fn parse_host_field(text: &str) -> Result<String, String> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, digits)) if !digits.contains(']') => (name, Some(digits)),
        Some(_) | None => (text, None),
    };
    let parsed = match (parse_host(name).ok(), port.map(parse_port)) {
        (Some(name), None) => Some(name),
        (Some(name), Some(Some(port))) => Some(format!("{name}:{port}")),
        (Some(_), Some(None)) | (None, _) => None,
    };
    parsed
        .filter(|name| !name.contains('*'))
        .ok_or_else(|| "write a name, such as crawlgate or gate.corp.example:3129".to_owned())
}

/// Parses the URL of a listener, and returns it without a slash at its end.
pub(super) fn parse_public_url(text: &str) -> Result<Box<str>, String> {
    let target = UrlTarget::parse(text)
        .ok()
        .filter(|_| !text.contains(['?', '#', '@']));
    let Some(target) = target else {
        let form = "write the URL of the admin listener, such as https://gate.corp.example:3129";
        return Err(form.to_owned());
    };
    Ok(target.as_str().trim_end_matches('/').into())
}

/// The longest contact, which every refusal carries.
const MAX_CONTACT_BYTES: usize = 200;

/// Parses a contact: text that a header may have.
pub(super) fn parse_contact(text: &str) -> Result<Box<str>, String> {
    let is_valid = (1..=MAX_CONTACT_BYTES).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_valid {
        Ok(text.into())
    } else {
        Err("write a mail address or a URL, in ASCII and of at most 200 characters".to_owned())
    }
}

/// Parses the address of a name server: an IP address and a port.
pub(super) fn parse_name_server(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| match text.parse::<IpAddr>() {
        Ok(address) => format!("write the port too: {}", SocketAddr::new(address, 53)),
        Err(_) => "write an address and a port, such as 192.0.2.53:53".to_owned(),
    })
}

/// Parses an IP address.
pub(super) fn parse_address(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| "write an IP address, such as 10.2.0.7".into())
}

/// Parses a network that clients connect from, or a single address.
pub(super) fn parse_source_network(text: &str) -> Result<IpNet, String> {
    let network: IpNet = text
        .parse()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| "write a network, such as 10.1.0.0/16, or an address".to_owned())?;
    if overlaps(network, "::ffff:0:0/96") && network.prefix_len() >= 96 {
        return Err("an IPv4 network in IPv6 form: write the IPv4 network".into());
    }
    Ok(network.trunc())
}

/// Parses a network for `egress.allow_private`. Networks that reach this machine or its link are refused.
pub(super) fn parse_private_network(text: &str) -> Result<IpNet, String> {
    let network: IpNet = text
        .parse()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| "write a network, such as 10.2.0.0/16".to_owned())?;
    match NEVER_ALLOWED
        .iter()
        .find(|(never, _)| overlaps(network, never))
    {
        Some((never, what)) => Err(format!("reaches {what} ({never}), which cannot be allowed")),
        None => Ok(network.trunc()),
    }
}

/// Networks that can never be allowed. The IPv6 ranges that embed IPv4 addresses are among them, because IPv4 networks
/// are allowed as such.
const NEVER_ALLOWED: [(&str, &str); 11] = [
    ("127.0.0.0/8", "loopback"),
    ("::1/128", "loopback"),
    (
        "169.254.0.0/16",
        "link-local addresses, cloud metadata among them",
    ),
    ("fe80::/10", "link-local addresses"),
    ("0.0.0.0/8", "this machine"),
    ("::/128", "this machine"),
    ("224.0.0.0/4", "multicast addresses"),
    ("ff00::/8", "multicast addresses"),
    (
        "::ffff:0:0/96",
        "IPv4 addresses in IPv6 form: write the IPv4 network",
    ),
    (
        "::/96",
        "IPv4 addresses in IPv6 form: write the IPv4 network",
    ),
    (
        "64:ff9b::/96",
        "IPv4 addresses through NAT64: write the IPv4 network",
    ),
];

fn overlaps(network: IpNet, never: &str) -> bool {
    // A test checks that every network of the table parses.
    never
        .parse()
        .is_ok_and(|never: IpNet| network.contains(&never) || never.contains(&network))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_never_include_this_host() {
        for (never, _) in NEVER_ALLOWED {
            assert!(never.parse::<IpNet>().is_ok(), "{never}");
        }
        for text in [
            "127.0.0.1",
            "127.0.0.0/30",
            "0.0.0.0/0",
            "::/0",
            "169.254.169.254/32",
            "fe80::1/64",
        ] {
            assert!(
                parse_private_network(text)
                    .unwrap_err()
                    .contains("cannot be allowed"),
                "{text}"
            );
        }
        for text in [
            "::ffff:10.0.0.0/104",
            "64:ff9b::a00:0/104",
            "::1",
            "0.0.0.0",
        ] {
            assert!(parse_private_network(text).is_err(), "{text}");
        }
        assert_eq!(
            parse_private_network("10.2.3.4/16"),
            Ok("10.2.0.0/16".parse().unwrap())
        );
        assert_eq!(
            parse_private_network("10.2.3.4"),
            Ok("10.2.3.4/32".parse().unwrap())
        );
        assert_eq!(
            parse_private_network("fd00:1::/32"),
            Ok("fd00:1::/32".parse().unwrap())
        );
        assert!(
            parse_private_network("10.2")
                .unwrap_err()
                .contains("10.2.0.0/16")
        );
    }

    #[test]
    fn ports_and_ranges() {
        assert_eq!(parse_port_range("80"), Ok(80..=80));
        assert_eq!(parse_port_range("1-65535"), Ok(1..=65535));
        for bad in ["0", "", "-", "80-", "70000", "+80", "90-80", "80,90", "a"] {
            assert!(parse_port_range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn equal_sets_of_ports_are_equal() {
        let ranges = vec![443..=443, 80..=90, 85..=100, 101..=101];
        assert_eq!(merge_port_ranges(ranges), [80..=101, 443..=443]);
        let ranges = vec![1..=65535, 65535..=65535];
        assert_eq!(merge_port_ranges(ranges), [1..=65535]);
    }

    #[test]
    fn listen_address_errors_name_the_missing_part() {
        assert_eq!(
            parse_socket_address("[::1]:0"),
            Ok("[::1]:0".parse().unwrap())
        );
        for (text, hint) in [
            ("localhost:3128", "127.0.0.1:3128"),
            (":3128", "127.0.0.1:3128"),
            ("127.0.0.1", "and a port"),
            ("127.0.0.1:99999", "and a port"),
        ] {
            assert!(
                parse_socket_address(text).unwrap_err().contains(hint),
                "{text}"
            );
        }
    }

    #[test]
    fn host_patterns() {
        assert_eq!(
            parse_host_pattern("*.Corp.Example"),
            Ok("*.corp.example".into())
        );
        assert_eq!(parse_host_pattern("A.example"), Ok("a.example".into()));
        for bad in [
            "*",
            "a.*.example",
            "*x.example",
            "",
            "a b",
            "a/b",
            "a:80",
            "u@a",
            "a?",
            "http://a",
        ] {
            assert!(parse_host_pattern(bad).is_err(), "{bad}");
        }
    }
}
