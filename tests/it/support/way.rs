//! What the gate asks of others, answered without a network: every name is at one address, no host has a robots.txt.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crawlgate::gate::destination::{Addresses, Destinations, Remaining, Unreachable};
use crawlgate::gate::robots::{Errand, Found, RobotsFiles};
use crawlgate::robots::standing::Known;
use crawlgate::vocab::target::{HostTarget, UrlTarget};
use crawlgate::vocab::verify::Verify;

/// No host has a robots.txt that anybody asks for.
pub(crate) struct NoRobots;

impl RobotsFiles for NoRobots {
    fn known(&self, _target: &UrlTarget, _verify: Verify) -> Option<Found> {
        None
    }

    fn renew(&self, _target: &UrlTarget, _verify: Verify, _errand: impl FnOnce() -> Errand) {}

    async fn fetch(&self, _target: &UrlTarget, _errand: Errand) -> Arc<Known> {
        unreachable!("the policies of these tests do not obey")
    }
}

/// Every host is at the same address.
pub(crate) struct Anywhere;

pub(crate) struct Here;

impl Addresses for Here {
    fn retain(&mut self, keep: &mut dyn FnMut(IpAddr) -> bool) -> Remaining {
        if self.first().is_some_and(keep) {
            Remaining::Some
        } else {
            Remaining::None
        }
    }

    fn first(&self) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    fn found_in(&self) -> Option<crawlgate::clock::Lapse> {
        None
    }
}

impl Destinations for Anywhere {
    type Vetted = Here;

    async fn vet(&self, _target: &UrlTarget) -> Result<Here, Unreachable> {
        Ok(Here)
    }

    async fn vet_host(&self, _host: &HostTarget) -> Result<Here, Unreachable> {
        Ok(Here)
    }
}
