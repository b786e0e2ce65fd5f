//! Settings of a node of a fleet.

use std::net::SocketAddr;
use std::time::Duration;

use crawlgate_fleet::node::NodeName;

use crate::tls::fleet::NodeTlsFiles;

/// Settings of `fleet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// The name of the fleet, which all nodes share.
    pub name: Box<str>,
    /// The name of this node.
    pub node: NodeName,
    /// The address at which the other nodes connect.
    pub listen: SocketAddr,
    /// The address that the other nodes are told, if it is not [`Self::listen`].
    pub advertise: Option<SocketAddr>,
    /// The certificates of links; required off loopback.
    pub tls: Option<NodeTlsFiles>,
    /// The time for which this node may act as an owner after it has last reached the store.
    pub lease: Duration,
}

impl FleetConfig {
    /// The default of `lease`.
    pub const LEASE: Duration = Duration::from_secs(15);

    /// Returns the reasons why `run` refuses these settings although each of them is well-formed.
    pub fn safety_errors(&self) -> Vec<String> {
        let is_loopback = |address: SocketAddr| address.ip().to_canonical().is_loopback();
        let Self { listen, .. } = self;
        let mut errors = Vec::new();
        if !is_loopback(*listen) && self.tls.is_none() {
            errors.push(format!(
                "listening on {listen} for other nodes without fleet.tls: anyone who reaches it could act as a node, and \
                 send requests as any crawler. Set fleet.tls (`crawlgate fleet cert {}` issues the certificate), or \
                 listen on loopback",
                self.node
            ));
        }
        match self.advertise {
            Some(advertise) if is_loopback(advertise) && !is_loopback(*listen) => {
                errors.push(format!(
                    "fleet.advertise {advertise} is on loopback: other nodes would connect to themselves"
                ));
            }
            None if listen.ip().is_unspecified() => errors.push(format!(
                "fleet.listen {listen} is no address at which other nodes can reach this one: set fleet.advertise to \
                 that address"
            )),
            Some(_) | None => {}
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_off_loopback_need_certificates_and_an_address_for_others() {
        let errors = |listen: &str, advertise: Option<&str>, tls: bool| {
            let files = NodeTlsFiles {
                cert: "node.pem".into(),
                key: "node.key".into(),
                ca: "fleet.pem".into(),
            };
            let config = FleetConfig {
                name: "main".into(),
                node: NodeName::new("a").unwrap(),
                listen: listen.parse().unwrap(),
                advertise: advertise.map(|address| address.parse().unwrap()),
                tls: tls.then_some(files),
                lease: FleetConfig::LEASE,
            };
            config.safety_errors().len()
        };
        assert_eq!(errors("127.0.0.1:1", None, false), 0);
        assert_eq!(errors("[::ffff:127.0.0.1]:1", None, false), 0);
        assert_eq!(errors("10.0.0.1:1", None, true), 0);
        assert_eq!(errors("10.0.0.1:1", None, false), 1);
        assert_eq!(errors("10.0.0.1:1", Some("127.0.0.1:1"), true), 1);
        assert_eq!(errors("0.0.0.0:1", None, true), 1);
        assert_eq!(errors("0.0.0.0:1", Some("10.0.0.1:1"), true), 0);
        assert_eq!(errors("0.0.0.0:1", Some("127.0.0.1:1"), false), 2);
    }
}
