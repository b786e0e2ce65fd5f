//! Egress: to which addresses and ports requests may go, and how names become addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

/// Where requests may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressConfig {
    /// Private networks that some hosts may be in. Loopback and link-local never are.
    pub allow_private: Vec<PrivateNetworkException>,
    /// Whether loopback addresses may be dialled: for tests and benchmarks.
    pub allow_loopback: bool,
    /// Ports that requests may go to.
    pub ports: PortSet,
    /// Ports that CONNECT may ask for, as far as [`Self::ports`] has them too.
    pub connect_ports: PortSet,
    /// Ports where a tunnel carries TLS and nothing else; one to any other port carries HTTP, judged by URL.
    pub tls_ports: PortSet,
    /// How names become addresses.
    pub resolver: ResolverSetting,
    /// Names with fixed addresses, in canonical form; the addresses are vetted like any other.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
}

impl Default for EgressConfig {
    fn default() -> Self {
        Self {
            allow_private: Vec::new(),
            allow_loopback: false,
            ports: PortSet::from_iter([80..=80, 443..=443, 1024..=65535]),
            connect_ports: PortSet::from_iter([443..=443, 80..=80]),
            tls_ports: PortSet::from_iter([443..=443]),
            resolver: ResolverSetting::System,
            hosts: BTreeMap::new(),
        }
    }
}

/// An exception: hosts that fit the pattern may have addresses in the network. Both must fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateNetworkException {
    /// A host in canonical form, or `*.` and a domain for everything below it.
    pub host: String,
    /// Which network; never one that reaches this machine or its link.
    pub cidr: IpNet,
}

/// How names become addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolverSetting {
    /// As the system is configured.
    System,
    /// By asking these servers.
    Servers(Vec<SocketAddr>),
}

/// Ports of one range, both ends included.
pub type PortRange = RangeInclusive<u16>;

/// A set of ports, sorted and without overlaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSet(Vec<PortRange>);

impl PortSet {
    /// Whether a port is in the set.
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }

    /// The ranges, sorted and apart from each other.
    pub fn ranges(&self) -> &[PortRange] {
        &self.0
    }
}

impl FromIterator<PortRange> for PortSet {
    /// Joins ranges that overlap or touch, so that equal sets are equal values.
    fn from_iter<I: IntoIterator<Item = PortRange>>(ranges: I) -> Self {
        let mut sorted: Vec<PortRange> = ranges.into_iter().filter(|r| !r.is_empty()).collect();
        sorted.sort_unstable_by_key(|r| *r.start());
        let mut joined: Vec<PortRange> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match joined.last_mut() {
                Some(last) if *range.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                Some(_) | None => joined.push(range),
            }
        }
        Self(joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_set_however_they_are_written() {
        let ports = PortSet::from_iter([443..=443, 80..=90, 85..=100, 101..=101]);
        assert_eq!(ports.ranges(), [80..=101, 443..=443]);
        for (port, inside) in [
            (79, false),
            (80, true),
            (101, true),
            (102, false),
            (443, true),
            (65535, false),
        ] {
            assert_eq!(ports.contains(port), inside, "{port}");
        }
        assert_eq!(
            PortSet::from_iter([1..=65535, 65535..=65535]).ranges(),
            [1..=65535]
        );
    }
}
