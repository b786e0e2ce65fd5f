//! Rules of OmniFind as they were read.

use std::net::IpAddr;

use crate::input::{Place, SourceText};
use crate::report::{PartId, Report};

/// The rules of a crawler, or of the global space.
#[derive(Clone, Debug, Default)]
pub struct OmniFindRules {
    /// The name of the crawler.
    pub name: String,
    pub rules: Vec<OmniFindRule>,
}

/// A line.
#[derive(Clone, Debug)]
pub struct OmniFindRule {
    pub part: PartId,
    pub line: u32,
    /// `allow`; otherwise `forbid`.
    pub allows: bool,
    pub target: OmniFindTarget,
    /// The comment above it.
    pub about: Option<String>,
}

/// The subject of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OmniFindTarget {
    Domain {
        /// `*` is any run of characters.
        host: String,
        port: Option<u16>,
    },
    /// `*` is any run of characters.
    Prefix(String),
    Address {
        network: IpAddr,
        mask: IpAddr,
    },
}

/// A line that is no rule.
pub(super) struct InvalidLine {
    pub part: PartId,
    pub place: Place,
    pub allows: bool,
    pub why: String,
}

/// The rules of a file and its other lines.
pub(super) struct OmniFindFile {
    pub rules: Vec<OmniFindRule>,
    pub invalid: Vec<InvalidLine>,
}

/// Reads a file of rules. Each line but comments and empty ones is a part of the report.
pub(super) fn read(source: &SourceText, report: &mut Report) -> OmniFindFile {
    let mut file = OmniFindFile {
        rules: Vec::new(),
        invalid: Vec::new(),
    };
    let mut about: Vec<String> = Vec::new();
    for (place, line) in source.lines() {
        let line = line.trim();
        if line.is_empty() {
            about.clear();
            continue;
        }
        if let Some(comment) = line.strip_prefix('#') {
            about.push(comment.trim().to_owned());
            continue;
        }
        let part = report.add(place.clone(), line);
        let (allows, target) = read_line(line);
        match target {
            Ok(target) => {
                let text: String = about.join(" ").chars().take(300).collect();
                file.rules.push(OmniFindRule {
                    part,
                    line: place.line,
                    allows,
                    target,
                    about: (!text.is_empty()).then_some(text),
                });
            }
            Err(why) => file.invalid.push(InvalidLine {
                part,
                place,
                allows,
                why,
            }),
        }
        about.clear();
    }
    file
}

fn read_line(line: &str) -> (bool, Result<OmniFindTarget, String>) {
    let mut words = line.split_whitespace();
    let action = words.next().unwrap_or_default();
    let words: Vec<&str> = words.collect();
    let allows = action == "allow";
    if !matches!(action, "allow" | "forbid") {
        let why = "a rule begins with `allow` or `forbid`".to_owned();
        return (allows, Err(why));
    }
    let target = match words.as_slice() {
        ["domain", target] => read_domain(target),
        ["prefix", target] => read_prefix(target),
        // The word `prefix` may be left out.
        [target] if target.contains("://") => read_prefix(target),
        ["address", network, mask] => read_address(network, mask),
        ["address", network] => read_network(network),
        _ => Err("not `domain HOST`, `prefix URL` or `address IP NETMASK`".to_owned()),
    };
    (allows, target)
}

fn read_domain(target: &str) -> Result<OmniFindTarget, String> {
    if target.contains(['/', '@', '?']) {
        return Err("a domain is a host, or a host and a port".to_owned());
    }
    let (host, port) = match target.rsplit_once(':') {
        Some((_, "*")) => return Err("a port cannot be a pattern".to_owned()),
        Some((host, port)) => {
            let port = port.parse().map_err(|_| "not a port".to_owned())?;
            (host, Some(port))
        }
        None => (target, None),
    };
    if host.is_empty() {
        return Err("a domain without a host".to_owned());
    }
    Ok(OmniFindTarget::Domain {
        host: host.to_owned(),
        port,
    })
}

fn read_prefix(target: &str) -> Result<OmniFindTarget, String> {
    let scheme = target.split_once("://").map(|(scheme, _)| scheme);
    let scheme = scheme.unwrap_or_default().to_ascii_lowercase();
    if !matches!(scheme.as_str(), "http" | "https") {
        return Err("a prefix is the beginning of a URL of HTTP or HTTPS".to_owned());
    }
    Ok(OmniFindTarget::Prefix(target.to_owned()))
}

fn read_address(network: &str, mask: &str) -> Result<OmniFindTarget, String> {
    let network: IpAddr = network.parse().map_err(|_| "not an IP address")?;
    let mask: IpAddr = mask.parse().map_err(|_| "not a netmask")?;
    if network.is_ipv4() != mask.is_ipv4() {
        return Err("address and netmask are of different versions".to_owned());
    }
    Ok(OmniFindTarget::Address { network, mask })
}

fn read_network(text: &str) -> Result<OmniFindTarget, String> {
    let wrong = || "not an IP address and a netmask".to_owned();
    let (network, length) = text.split_once('/').ok_or_else(wrong)?;
    let network: IpAddr = network.parse().map_err(|_| wrong())?;
    let length: u32 = length.parse().map_err(|_| wrong())?;
    let mask = match network {
        IpAddr::V4(_) if length <= 32 => {
            let bits = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            IpAddr::V4(bits.into())
        }
        IpAddr::V6(_) if length <= 128 => {
            let bits = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            IpAddr::V6(bits.into())
        }
        IpAddr::V4(_) | IpAddr::V6(_) => return Err(wrong()),
    };
    Ok(OmniFindTarget::Address { network, mask })
}
