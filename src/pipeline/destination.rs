//! What the gate asks of whoever resolves names: addresses that may be dialled.

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use crate::clock::TimeSpan;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::urls::target::{HostTarget, UrlTarget};

use super::failure_class::FailureKind;
use super::refusal::Refusal;

/// Finds the addresses of a target and vets each of them.
pub trait DestinationResolver {
    /// The addresses that may be dialled; only the vetting makes one.
    type Addresses: AddressList + Send;

    /// Resolves and vets.
    fn vet(
        &self,
        target: &UrlTarget,
    ) -> impl Future<Output = Result<Self::Addresses, DestinationError>> + Send;

    /// The time for which nothing is sent there, if every address has refused a connection a moment ago. Asked of every
    /// request, so it neither waits nor allocates while there is no such address.
    fn connect_cooldown(&self, _vetted: &Self::Addresses) -> Option<Duration> {
        None
    }

    /// The same for the host and port of a tunnel.
    fn vet_host(
        &self,
        host: &HostTarget,
    ) -> impl Future<Output = Result<Self::Addresses, DestinationError>> + Send;
}

/// A list of vetted addresses, from which the policy may still take some away.
pub trait AddressList {
    /// Keeps the addresses for which the function says yes. Says whether any is left.
    fn retain(&mut self, keep: &mut dyn FnMut(IpAddr) -> bool) -> RemainingAddresses;

    /// The address that is dialled first.
    fn first(&self) -> Option<IpAddr>;

    /// How long it took to find them; `None` if they were known.
    fn lookup_time(&self) -> Option<TimeSpan>;
}

/// Drops the addresses whose judgement does not admit them. What counts is the judgement of the first that is kept, and
/// if none is, of the first.
pub(crate) fn retain_admitted<J>(
    vetted: &mut impl AddressList,
    mut judge: impl FnMut(IpAddr) -> J,
    admits: impl Fn(&J) -> bool,
) -> Option<J> {
    let (mut kept, mut dropped): (Option<J>, Option<J>) = (None, None);
    let remaining = vetted.retain(&mut |address| {
        let judgement = judge(address);
        let admitted = admits(&judgement);
        if admitted { &mut kept } else { &mut dropped }.get_or_insert(judgement);
        admitted
    });
    if remaining == RemainingAddresses::Some {
        kept
    } else {
        dropped
    }
}

/// Whether any address is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingAddresses {
    /// At least one.
    Some,
    /// None.
    None,
}

/// Why there is no address to dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestinationError {
    /// All addresses are in ranges that must not be dialled; the name of the first one's range.
    Prohibited(&'static str),
    /// The port is not one of `egress.ports`.
    PortDenied,
    /// There is no such name; it is asked for again after this time, if at all.
    NoSuchName(Option<Duration>),
    /// The name servers failed; they are asked again after this time.
    LookupFailed(Option<Duration>),
    /// The name servers did not answer in time; the same.
    LookupTimeout(Option<Duration>),
    /// Every address has refused a connection a moment ago, and is not tried again for so long.
    ConnectionRefused(Duration),
}

impl From<DestinationError> for Refusal {
    fn from(why: DestinationError) -> Self {
        let dns = Self::new(Reason::UpstreamDns, Stage::Destination);
        match why {
            DestinationError::Prohibited(range) => {
                Self::new(Reason::IpProhibited, Stage::Destination)
                    .with_detail(format!("every address of the host is prohibited: {range}"))
            }
            DestinationError::PortDenied => Self::new(Reason::PortDenied, Stage::Destination),
            DestinationError::NoSuchName(again) => {
                let dns = Self {
                    failure: Some(FailureKind::Permanent),
                    ..dns
                };
                dns.with_detail("no such host name").with_retry_after(again)
            }
            DestinationError::LookupFailed(again) => dns
                .with_detail("the name servers failed")
                .with_retry_after(again),
            DestinationError::LookupTimeout(again) => {
                let dns = dns
                    .with_detail("the name servers did not answer in time")
                    .with_retry_after(again);
                Self {
                    status: Some(504),
                    error: Some("dns_timeout"),
                    ..dns
                }
            }
            DestinationError::ConnectionRefused(left) => {
                Self::new(Reason::UpstreamConnect, Stage::Destination)
                    .with_detail("the host refused a connection a moment ago")
                    .with_retry_after(Some(left))
            }
        }
    }
}
