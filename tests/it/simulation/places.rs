//! Where the hosts of the simulation are: each at an address of its own, but for those that share one.

use std::net::IpAddr;

use crawlgate::pipeline::destination::{
    AddressList, DestinationError, DestinationResolver, RemainingAddresses,
};
use crawlgate::urls::target::{HostTarget, UrlTarget};

use super::sites::address_of;

/// All of them.
pub(super) struct Places;

/// One address.
pub(super) struct At(IpAddr);

impl AddressList for At {
    fn retain(&mut self, keep: &mut dyn FnMut(IpAddr) -> bool) -> RemainingAddresses {
        if keep(self.0) {
            RemainingAddresses::Some
        } else {
            RemainingAddresses::None
        }
    }

    fn first(&self) -> Option<IpAddr> {
        Some(self.0)
    }

    fn lookup_time(&self) -> Option<crawlgate::clock::TimeSpan> {
        None
    }
}

impl DestinationResolver for Places {
    type Addresses = At;

    async fn vet(&self, target: &UrlTarget) -> Result<At, DestinationError> {
        Ok(At(address_of(target.host())))
    }

    async fn vet_host(&self, host: &HostTarget) -> Result<At, DestinationError> {
        Ok(At(address_of(host.host())))
    }
}
