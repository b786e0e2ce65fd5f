//! What the gate asks of others, answered without a network: every name is at one address, no host has a robots.txt.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::profile::Profile;
use crawlgate::pipeline::destination::{
    AddressList, DestinationError, DestinationResolver, RemainingAddresses,
};
use crawlgate::pipeline::facts::RequestFacts;
use crawlgate::pipeline::refusal::Refusal;
use crawlgate::pipeline::request::IncomingRequest;
use crawlgate::pipeline::robots_fetch::{CachedRobots, RobotsFetchRequest, RobotsProvider};
use crawlgate::pipeline::snapshot::PolicySnapshot;
use crawlgate::policy::Policy;
use crawlgate::robots::state::RobotsState;
use crawlgate::urls::target::{HostTarget, UrlTarget};

/// The snapshot of a policy, with counters of its own.
pub(crate) fn snapshot_of(policy: impl Into<Arc<Policy>>) -> PolicySnapshot {
    let policy = policy.into();
    let metrics = Metrics::new(&[], &[]).unwrap();
    let counters = metrics.register_policy(policy.name(), policy.revision(), [], &Clock::system());
    PolicySnapshot::new(policy, counters)
}

/// A request of which crawler and target are known.
pub(crate) struct KnownRequest(pub(crate) RequestFacts);

impl IncomingRequest for KnownRequest {
    async fn identify(&mut self) -> Result<Crawler, Box<Refusal>> {
        Ok(self.0.crawler.clone())
    }

    fn target(&mut self) -> Result<UrlTarget, Box<Refusal>> {
        Ok(self.0.target.clone())
    }

    fn facts(&self, _target: UrlTarget, _crawler: Crawler) -> RequestFacts {
        self.0.clone()
    }

    fn profile(&self) -> Profile {
        Profile::Generic
    }
}

/// No host has a robots.txt that anybody asks for.
pub(crate) struct NoRobots;

impl RobotsProvider for NoRobots {
    fn cached(
        &self,
        _target: &UrlTarget,
        _verify: CertificateVerification,
    ) -> Option<CachedRobots> {
        None
    }

    fn refresh(
        &self,
        _target: &UrlTarget,
        _verify: CertificateVerification,
        _errand: impl FnOnce() -> RobotsFetchRequest,
    ) {
    }

    async fn fetch(&self, _target: &UrlTarget, _errand: RobotsFetchRequest) -> Arc<RobotsState> {
        unreachable!("the policies of these tests do not obey")
    }
}

/// Every host is at the same address.
pub(crate) struct Anywhere;

pub(crate) struct Here;

impl AddressList for Here {
    fn retain(&mut self, keep: &mut dyn FnMut(IpAddr) -> bool) -> RemainingAddresses {
        if self.first().is_some_and(keep) {
            RemainingAddresses::Some
        } else {
            RemainingAddresses::None
        }
    }

    fn first(&self) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    fn lookup_time(&self) -> Option<crawlgate::clock::TimeSpan> {
        None
    }
}

impl DestinationResolver for Anywhere {
    type Addresses = Here;

    async fn vet(&self, _target: &UrlTarget) -> Result<Here, DestinationError> {
        Ok(Here)
    }

    async fn vet_host(&self, _host: &HostTarget) -> Result<Here, DestinationError> {
        Ok(Here)
    }
}
