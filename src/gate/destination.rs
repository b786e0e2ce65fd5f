//! What the gate asks of whoever resolves names: addresses that may be dialled.

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;
use crate::vocab::target::{HostTarget, UrlTarget};

use super::refusal::Refusal;

/// Finds the addresses of a target and vets each of them.
pub trait Destinations {
    /// The addresses that may be dialled; only the vetting makes one.
    type Vetted: Addresses + Send;

    /// Resolves and vets.
    fn vet(&self, target: &UrlTarget) -> impl Future<Output = Result<Self::Vetted, Unreachable>> + Send;

    /// The same for the host and port of a tunnel.
    fn vet_host(&self, host: &HostTarget) -> impl Future<Output = Result<Self::Vetted, Unreachable>> + Send;
}

/// A list of vetted addresses, from which the policy may still take some away.
pub trait Addresses {
    /// Keeps the addresses for which the function says yes. Says whether any is left.
    fn retain(&mut self, keep: &mut dyn FnMut(IpAddr) -> bool) -> Remaining;

    /// The address that is dialled first.
    fn first(&self) -> Option<IpAddr>;

    /// How long it took to find them; `None` if they were known.
    fn found_in(&self) -> Option<Duration>;
}

/// Whether any address is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// At least one.
    Some,
    /// None.
    None,
}

/// Why there is no address to dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// All addresses are in ranges that must not be dialled; the name of the first one's range.
    Prohibited(&'static str),
    /// The port is not one of `egress.ports`.
    PortDenied,
    /// There is no such name.
    NoSuchName,
    /// The name servers failed.
    LookupFailed,
    /// The name servers did not answer in time.
    LookupTimeout,
}

impl From<Unreachable> for Refusal {
    fn from(why: Unreachable) -> Self {
        let dns = Self::new(Reason::UpstreamDns, Stage::Destination);
        match why {
            Unreachable::Prohibited(range) => Self::new(Reason::IpProhibited, Stage::Destination)
                .with_detail(format!("every address of the host is prohibited: {range}")),
            Unreachable::PortDenied => Self::new(Reason::PortDenied, Stage::Destination),
            Unreachable::NoSuchName => dns.with_detail("no such host name"),
            Unreachable::LookupFailed => dns.with_detail("the name servers failed"),
            Unreachable::LookupTimeout => {
                let dns = dns.with_detail("the name servers did not answer in time");
                Self { status: Some(504), error: Some("dns_timeout"), ..dns }
            }
        }
    }
}
