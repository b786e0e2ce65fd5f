//! Where the hosts of the simulation are: each at an address of its own, but for those that share one.

use std::net::IpAddr;

use crawlgate::gate::destination::{Addresses, Destinations, Remaining, Unreachable};
use crawlgate::vocab::target::{HostTarget, UrlTarget};

use super::sites::address_of;

/// All of them.
pub(super) struct Places;

/// One address.
pub(super) struct At(IpAddr);

impl Addresses for At {
    fn retain(&mut self, keep: &mut dyn FnMut(IpAddr) -> bool) -> Remaining {
        if keep(self.0) {
            Remaining::Some
        } else {
            Remaining::None
        }
    }

    fn first(&self) -> Option<IpAddr> {
        Some(self.0)
    }

    fn found_in(&self) -> Option<crawlgate::clock::Lapse> {
        None
    }
}

impl Destinations for Places {
    type Vetted = At;

    async fn vet(&self, target: &UrlTarget) -> Result<At, Unreachable> {
        Ok(At(address_of(target.host())))
    }

    async fn vet_host(&self, host: &HostTarget) -> Result<At, Unreachable> {
        Ok(At(address_of(host.host())))
    }
}
