//! Decisions on tunnels, remembered. One depends on the crawler, the host, its port and its address alone, but the rules
//! have to be evaluated one after another, since the URLs in the tunnel are hidden.

use std::net::IpAddr;

use moka::sync::Cache;

use crate::policy::Policy;
use crate::policy::decide::Decision;
use crate::policy::trail::Trail;
use crate::urls::target::Scheme;

use super::facts::TunnelFacts;

/// With its key and its place in the cache a decision takes about 700 bytes, measured with 10,000 hosts.
const MAX_DECISIONS: u64 = 2_000;

/// The decisions of one policy on tunnels.
#[derive(Debug)]
pub(crate) struct TunnelDecisions(Cache<TunnelKey, (Trail, Decision)>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct TunnelKey {
    crawler: Box<str>,
    scheme: Scheme,
    authority: Box<str>,
    /// `None` before the name is resolved.
    address: Option<IpAddr>,
}

impl Default for TunnelDecisions {
    fn default() -> Self {
        Self(Cache::new(MAX_DECISIONS))
    }
}

impl TunnelDecisions {
    /// Returns the decision of the policy that these decisions are of.
    pub(crate) fn decide(
        &self,
        policy: &Policy,
        tunnel: &TunnelFacts,
        address: Option<IpAddr>,
    ) -> (Trail, Decision) {
        let key = TunnelKey {
            crawler: tunnel.crawler.as_str().into(),
            scheme: tunnel.host.scheme(),
            authority: tunnel.host.authority().into(),
            address,
        };
        self.0.get_with(key, || {
            let (trail, decision) = policy.decide(&tunnel.policy_facts(address));
            (trail.without_states(), decision)
        })
    }
}
