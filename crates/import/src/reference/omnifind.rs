//! OmniFind's rules: of each type the first that fits decides; a URL that one of the types forbids is not crawled.

use std::net::IpAddr;

use crate::reference::requested::RequestedUrl;
use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::report::Report;
use crate::systems::omnifind::source::{OmniFindRule, OmniFindRules, OmniFindTarget};

/// Decides by the rules of several crawlers.
pub struct OmniFindEvaluator {
    spaces: Vec<OmniFindRules>,
}

impl OmniFindEvaluator {
    /// Keeps the rules that were converted. Those that can never decide change nothing.
    pub fn new(mut spaces: Vec<OmniFindRules>, report: &Report) -> Self {
        for space in &mut spaces {
            space.rules.retain(|rule| report.is_converted(rule.part));
        }
        Self { spaces }
    }
}

impl SourceEvaluator for OmniFindEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        let name = request.text("crawler").unwrap_or("anonymous");
        let space = match self.spaces.as_slice() {
            [one] => Some(one),
            several => several.iter().find(|space| space.name == name),
        };
        let Some(space) = space else {
            return SourceVerdict::Unknown;
        };
        let url = RequestedUrl::new(request.url);
        let port = port_of(&url);
        let by_domain = first_domain_rule(&space.rules, url.host, Some(port));
        let by_prefix = space
            .rules
            .iter()
            .find(|rule| fits_prefix(rule, &url, port));
        if [by_domain, by_prefix]
            .iter()
            .flatten()
            .any(|rule| !rule.allows)
        {
            return SourceVerdict::Refuse;
        }
        let has_addresses = space
            .rules
            .iter()
            .any(|rule| matches!(rule.target, OmniFindTarget::Address { .. }));
        let address = request.text("address").and_then(|text| text.parse().ok());
        match (has_addresses, address) {
            (false, _) => SourceVerdict::Allow,
            (true, None) => SourceVerdict::Unknown,
            (true, Some(address)) => {
                let rule = space.rules.iter().find(|rule| fits_address(rule, address));
                match rule.is_some_and(|rule| !rule.allows) {
                    true => SourceVerdict::Refuse,
                    false => SourceVerdict::Allow,
                }
            }
        }
    }
}

fn port_of(url: &RequestedUrl<'_>) -> u16 {
    let written = url.port.and_then(|port| port.parse().ok());
    written.unwrap_or(if url.scheme == "https" { 443 } else { 80 })
}

/// Returns the first domain rule that fits a host. A rule with a port needs that port.
pub(crate) fn first_domain_rule<'r>(
    rules: &'r [OmniFindRule],
    host: &str,
    port: Option<u16>,
) -> Option<&'r OmniFindRule> {
    rules.iter().find(|rule| match &rule.target {
        OmniFindTarget::Domain {
            host: pattern,
            port: wanted,
        } => fits(pattern, host) && wanted.is_none_or(|wanted| port == Some(wanted)),
        OmniFindTarget::Prefix(_) | OmniFindTarget::Address { .. } => false,
    })
}

/// Returns a host that a pattern fits.
pub(crate) fn host_of(pattern: &str) -> String {
    match pattern {
        "*" => "www.example.invalid".to_owned(),
        pattern => pattern.replace('*', "www"),
    }
}

fn fits_prefix(rule: &OmniFindRule, url: &RequestedUrl<'_>, port: u16) -> bool {
    let OmniFindTarget::Prefix(pattern) = &rule.target else {
        return false;
    };
    let pattern = format!("{}*", pattern.trim_end_matches('*'));
    let host = url.host;
    let rest = url.url.get(url.scheme.len() + 3 + url.authority.len()..);
    let with_port = format!("{}://{host}:{port}{}", url.scheme, rest.unwrap_or_default());
    fits(&pattern, url.url) || fits(&pattern, &with_port)
}

fn fits_address(rule: &OmniFindRule, address: IpAddr) -> bool {
    let OmniFindTarget::Address { network, mask } = &rule.target else {
        return false;
    };
    match (address, network, mask) {
        (IpAddr::V4(address), IpAddr::V4(network), IpAddr::V4(mask)) => {
            let mask = u32::from(*mask);
            u32::from(address) & mask == u32::from(*network) & mask
        }
        (IpAddr::V6(address), IpAddr::V6(network), IpAddr::V6(mask)) => {
            let mask = u128::from(*mask);
            u128::from(address) & mask == u128::from(*network) & mask
        }
        // A rule for every address is one for those of both versions.
        (_, _, mask) => mask.is_unspecified(),
    }
}

/// Compares a text with a pattern in which `*` is any run of characters.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}
