//! The interface to the proxy's resolver, which returns addresses that may be dialled.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::clock::TimeSpan;
use crate::model::crawler::Crawler;
use crate::model::failure_kind::FailureKind;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::urls::target::{HostTarget, UrlTarget};

use super::refusal::Refusal;

/// Resolves a target and checks each of its addresses.
pub trait DestinationResolver {
    /// The addresses that may be dialled, which only the check returns.
    type Addresses: AddressList + Send;

    /// Resolves a target and checks its addresses.
    fn vet(
        &self,
        target: &UrlTarget,
        egress: EgressChoice<'_>,
    ) -> impl Future<Output = Result<Self::Addresses, DestinationError>> + Send;

    /// Returns the time for which nothing is sent to a host of which every address has just refused a connection. It is
    /// called for every request, so it neither waits nor allocates if there is no such address.
    fn connect_backoff(&self, _vetted: &Self::Addresses) -> Option<Duration> {
        None
    }

    /// Checks the addresses of a target that are known without a lookup; `None` if they are not. Nothing is counted.
    fn vet_known(
        &self,
        _target: &UrlTarget,
        _egress: EgressChoice<'_>,
    ) -> Option<Result<Self::Addresses, DestinationError>> {
        None
    }

    /// Resolves the host of a tunnel and checks its addresses.
    fn vet_host(
        &self,
        host: &HostTarget,
        egress: EgressChoice<'_>,
    ) -> impl Future<Output = Result<Self::Addresses, DestinationError>> + Send;
}

/// The choice of the way to a destination.
#[derive(Clone, Copy, Debug)]
pub struct EgressChoice<'a> {
    /// The crawler that the request is made for.
    pub crawler: &'a Crawler,
    /// The parent proxy that the policy names.
    pub parent: Option<&'a str>,
}

/// A list of checked addresses, from which the policy may remove some.
pub trait AddressList {
    /// Keeps the addresses for which `keep` returns `true`, and returns whether any remains.
    fn retain(&mut self, keep: &mut dyn FnMut(IpAddr) -> bool) -> RemainingAddresses;

    /// Returns the address that is dialled first; `None` if a parent proxy resolves the name.
    fn first(&self) -> Option<IpAddr>;

    /// Returns the time that the lookup took; `None` if they were cached.
    fn lookup_time(&self) -> Option<TimeSpan>;
}

/// Removes the addresses whose evaluation does not admit them. Returns the evaluation of the first address that is
/// kept; if none is, of the first one.
pub(crate) fn retain_admitted<J>(
    vetted: &mut impl AddressList,
    mut evaluate: impl FnMut(IpAddr) -> J,
    admits: impl Fn(&J) -> bool,
) -> Option<J> {
    let (mut kept, mut dropped): (Option<J>, Option<J>) = (None, None);
    let remaining = vetted.retain(&mut |address| {
        let evaluation = evaluate(address);
        let admitted = admits(&evaluation);
        if admitted { &mut kept } else { &mut dropped }.get_or_insert(evaluation);
        admitted
    });
    if remaining == RemainingAddresses::Some {
        kept
    } else {
        dropped
    }
}

/// The result of [`AddressList::retain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingAddresses {
    /// At least one address is left.
    Some,
    /// No address is left.
    None,
}

/// The reason why there is no address to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DestinationError {
    /// All addresses are in ranges that must not be dialled.
    Prohibited(ProhibitedAddress),
    /// The URL leads back to this process.
    OwnListener(OwnListener),
    /// The name means this machine, which must not be dialled.
    LoopbackName,
    /// The name is not looked up, since it has no address in the public DNS.
    LocalName,
    /// The port is not one of `egress.ports`.
    PortDenied(DeniedPort),
    /// There is no such name; it is looked up again after this time, if at all.
    NoSuchName(Option<Duration>),
    /// The name servers failed; the name is looked up again after this time.
    LookupFailed(Option<Duration>),
    /// The name servers did not answer in time; the name is looked up again after this time.
    LookupTimeout(Option<Duration>),
    /// Every address has just refused a connection, and is not tried again for this time.
    ConnectionRefused(Duration),
    /// The policy names a parent proxy that the configuration does not define.
    UnknownParent,
    /// `egress.bind` has no local address of the family of any address of the host.
    NoLocalAddress,
}

/// The range of an address that must not be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProhibitedAddress {
    /// The name of the range.
    pub range: &'static str,
    /// The setting that would allow it, if any does.
    pub allowed_by: Option<&'static str>,
}

/// A listener of this process, which is never dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnListener {
    pub address: SocketAddr,
    /// The setting that names the address.
    pub setting: &'static str,
}

impl OwnListener {
    fn to_detail(self) -> String {
        let Self { address, setting } = self;
        format!(
            "the URL leads back to this proxy: {address} is its own listener ({setting} in the configuration). Request it \
             without the proxy (no_proxy), or correct the URL"
        )
    }
}

/// A port that must not be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedPort {
    pub port: u16,
    /// The ports that are allowed.
    pub allowed: Vec<RangeInclusive<u16>>,
    /// The setting that lists them.
    pub setting: &'static str,
}

impl DeniedPort {
    pub(crate) fn to_detail(&self) -> String {
        format!(
            "port {} is not allowed: {} in the configuration allows {}",
            self.port,
            self.setting,
            format_ports(&self.allowed)
        )
    }
}

/// The maximum number of port ranges in a message.
const MAX_PORTS_SHOWN: usize = 20;

/// Formats ports: `80, 443, 1024-65535`.
pub(crate) fn format_ports(ports: &[RangeInclusive<u16>]) -> String {
    let ranges = ports.iter().take(MAX_PORTS_SHOWN).map(|range| {
        if range.start() == range.end() {
            range.start().to_string()
        } else {
            format!("{}-{}", range.start(), range.end())
        }
    });
    let mut texts: Vec<String> = ranges.collect();
    match ports.len() {
        0 => texts.push("none".to_owned()),
        1..=MAX_PORTS_SHOWN => {}
        count => texts.push(format!("and {} more", count - MAX_PORTS_SHOWN)),
    }
    texts.join(", ")
}

impl ProhibitedAddress {
    fn to_detail(self) -> String {
        let Self { range, allowed_by } = self;
        let hint = allowed_by.map_or(String::new(), |setting| {
            format!(" ({setting} in the configuration can allow it)")
        });
        format!("every address of the host is prohibited: {range}{hint}")
    }
}

impl From<DestinationError> for Refusal {
    fn from(error: DestinationError) -> Self {
        let dns = Self::new(Reason::UpstreamDns, Stage::Destination);
        match error {
            DestinationError::Prohibited(address) => {
                Self::new(Reason::IpProhibited, Stage::Destination)
                    .with_detail(address.to_detail())
            }
            DestinationError::OwnListener(listener) => {
                Self::new(Reason::IpProhibited, Stage::Destination)
                    .with_detail(listener.to_detail())
            }
            DestinationError::LoopbackName => Self::new(Reason::IpProhibited, Stage::Destination)
                .with_detail(
                    "the name means this machine, and loopback addresses are prohibited (egress.allow_loopback in the \
                     configuration can allow them)",
                ),
            DestinationError::LocalName => Self {
                failure: Some(FailureKind::Permanent),
                ..dns
            }
            .with_detail(
                "a name without a dot, or of a local domain, is not looked up (egress.allow_private or egress.hosts in the \
                 configuration can allow it)",
            ),
            DestinationError::PortDenied(port) => {
                Self::new(Reason::PortDenied, Stage::Destination).with_detail(port.to_detail())
            }
            DestinationError::NoSuchName(retry_after) => {
                let dns = Self {
                    failure: Some(FailureKind::Permanent),
                    ..dns
                };
                dns.with_detail("no such host name")
                    .with_retry_after(retry_after)
            }
            DestinationError::LookupFailed(retry_after) => dns
                .with_detail("the name servers failed")
                .with_retry_after(retry_after),
            DestinationError::LookupTimeout(retry_after) => {
                let dns = dns
                    .with_detail("the name servers did not answer in time")
                    .with_retry_after(retry_after);
                Self {
                    status: Some(504),
                    error: Some("dns_timeout"),
                    ..dns
                }
            }
            DestinationError::ConnectionRefused(remaining) => {
                Self::new(Reason::UpstreamConnect, Stage::Destination)
                    .with_detail("the host refused a connection a moment ago")
                    .with_retry_after(Some(remaining))
            }
            DestinationError::UnknownParent => {
                Self::new(Reason::UpstreamConnect, Stage::Destination).with_detail(
                    "the policy names a parent proxy that is not in egress.parents of the configuration",
                )
            }
            DestinationError::NoLocalAddress => {
                Self::new(Reason::UpstreamConnect, Stage::Destination).with_detail(
                    "egress.bind has no local address of the family (IPv4, IPv6) of the host's addresses",
                )
            }
        }
    }
}
