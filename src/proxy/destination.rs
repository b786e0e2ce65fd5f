//! Decides which addresses may be dialled. Every address is checked, literals too, and only checked
//! addresses are dialled.
//!
//! This module alone creates [`VettedAddresses`], and the dialler accepts nothing else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use smallvec::SmallVec;

use crate::clock::TimeSpan;
use crate::metrics::Metrics;
use crate::model::crawler::Crawler;
use crate::model::rule_id::Slug;
use crate::pipeline::destination::{
    AddressList, DestinationError, DestinationResolver, EgressChoice, ProhibitedAddress,
    RemainingAddresses,
};
use crate::urls::address::{AddressClass, classify, effective_address, to_unmapped};
use crate::urls::target::{HostTarget, UrlTarget};

use super::negative_cache::NegativeConnectCache;
use super::resolve::{DnsResolver, Resolution, ResolveError};

/// The rules of the configuration's `egress` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressRules {
    /// Exceptions for private networks; both the host pattern and the network must match.
    pub allow_private: Vec<PrivateHost>,
    /// If set, loopback addresses may be dialled. For tests.
    pub allow_loopback: bool,
    /// The ports that may be dialled.
    pub ports: Vec<RangeInclusive<u16>>,
    /// The proxy's own listeners, which are never dialled.
    pub own_listeners: Vec<SocketAddr>,
    /// The local addresses of connections; the first rule that fits applies.
    pub bind: Vec<BindRule>,
    /// The names of the parent proxies.
    pub parents: Vec<Slug>,
}

/// One entry of `egress.bind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindRule {
    /// The crawler that it is for; `None` for every crawler.
    pub crawler: Option<Slug>,
    /// A host name, or `*.domain` for every host below a domain; `None` for every host.
    pub host: Option<String>,
    pub local: Arc<LocalAddresses>,
}

impl BindRule {
    fn fits(&self, crawler: &Crawler, host: &str) -> bool {
        let name = self.crawler.as_ref().map(Slug::as_str);
        name.is_none_or(|name| name == crawler.as_str())
            && self
                .host
                .as_ref()
                .is_none_or(|pattern| pattern_covers(pattern, host))
    }
}

/// The addresses of this machine that a connection may come from, at most one of each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalAddresses {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl LocalAddresses {
    /// Creates the addresses from a list, of which the last one of each family counts.
    pub fn new(addresses: &[IpAddr]) -> Self {
        let mut local = Self { v4: None, v6: None };
        for address in addresses {
            match address {
                IpAddr::V4(v4) => local.v4 = Some(*v4),
                IpAddr::V6(v6) => local.v6 = Some(*v6),
            }
        }
        local
    }

    /// Returns the address from which a connection to this one comes, if there is one of its family.
    pub fn for_peer(&self, peer: IpAddr) -> Option<IpAddr> {
        match peer {
            IpAddr::V4(_) => self.v4.map(IpAddr::V4),
            IpAddr::V6(_) => self.v6.map(IpAddr::V6),
        }
    }
}

/// The index of a parent proxy in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParentIndex(pub u16);

/// One entry of `egress.allow_private`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateHost {
    /// A host name, or `*.domain` for every host below a domain.
    pub host: String,
    /// The network that it may be in.
    pub cidr: IpNet,
}

/// Addresses that passed the checks, in the order in which they should be tried; or a parent proxy that
/// resolves the name, which has passed the checks.
#[derive(Clone, Debug)]
pub struct VettedAddresses {
    /// Empty with a parent, and never without one.
    addresses: SmallVec<[SocketAddr; 2]>,
    resolved_in: Option<TimeSpan>,
    parent: Option<ParentIndex>,
    local: Option<Arc<LocalAddresses>>,
}

impl VettedAddresses {
    /// Returns the addresses, the preferred one first.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the parent proxy through which the request goes.
    pub fn parent(&self) -> Option<ParentIndex> {
        self.parent
    }

    /// Returns the addresses of this machine that connections come from, if they are restricted.
    pub fn local(&self) -> Option<&Arc<LocalAddresses>> {
        self.local.as_ref()
    }

    /// Returns `true` if a connection to this address may be used. Which one a parent has is its own
    /// affair.
    pub fn covers(&self, address: &SocketAddr) -> bool {
        self.parent.is_some() || self.addresses.contains(address)
    }
}

impl AddressList for VettedAddresses {
    fn retain(&mut self, keep: &mut dyn FnMut(IpAddr) -> bool) -> RemainingAddresses {
        self.addresses.retain(|address| keep(address.ip()));
        if self.addresses.is_empty() && self.parent.is_none() {
            RemainingAddresses::None
        } else {
            RemainingAddresses::Some
        }
    }

    fn first(&self) -> Option<IpAddr> {
        self.addresses.first().map(SocketAddr::ip)
    }

    fn lookup_time(&self) -> Option<TimeSpan> {
        self.resolved_in
    }
}

/// Resolves host names and checks their addresses.
#[derive(Debug)]
pub struct AddressVetter {
    resolver: DnsResolver,
    egress: EgressRules,
    metrics: Metrics,
    negative_cache: Arc<NegativeConnectCache>,
}

/// Names that never belong to a public host: they resolve only if the configuration names them.
const LOCAL_NAMES: [&str; 5] = ["localhost", "local", "internal", "home.arpa", "onion"];

/// The warning of a setting that is for trials only.
pub const LOOPBACK_WARNING: &str = "egress.allow_loopback is true: crawlers can reach every service of this machine \
                                    through the proxy";
/// The settings that allow addresses in special ranges.
const ALLOW_LOOPBACK: &str = "egress.allow_loopback";
const ALLOW_PRIVATE: &str = "egress.allow_private";

impl AddressVetter {
    /// Returns `true` if addresses of this machine are allowed.
    pub fn allows_loopback(&self) -> bool {
        self.egress.allow_loopback
    }

    /// Creates a vetter that applies `egress` to the resolver's results.
    pub fn new(resolver: DnsResolver, egress: EgressRules, metrics: Metrics) -> Self {
        let negative_cache = Arc::new(NegativeConnectCache::new(resolver.clock().clone()));
        Self {
            resolver,
            egress,
            metrics,
            negative_cache,
        }
    }

    /// Returns the addresses of a canonical host that are known to refuse connections, and for how
    /// long.
    pub fn refused_addresses(&self, host: &str) -> Vec<(SocketAddr, Duration)> {
        self.negative_cache.refused_on(&self.cached_addresses(host))
    }

    /// Returns the addresses of a canonical host that are known without a query.
    pub fn cached_addresses(&self, host: &str) -> Vec<IpAddr> {
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse();
        literal.map_or_else(
            |_| self.resolver.cached_addresses(host),
            |address| vec![address],
        )
    }

    /// Returns the cache of addresses that refuse connections. The dialler records its results in
    /// it.
    pub fn negative_cache(&self) -> &Arc<NegativeConnectCache> {
        &self.negative_cache
    }

    async fn resolve(
        &self,
        host: &str,
        literal: Option<IpAddr>,
        port: u16,
        egress: EgressChoice<'_>,
    ) -> Result<VettedAddresses, DestinationError> {
        self.check_port(port)?;
        let count = |class: AddressClass| self.metrics.record_refused_address(class.as_str());
        if let Some(parent) = egress.parent {
            let vetted = self.vet_for_parent(host, literal, port, parent, count)?;
            return self.bind(vetted, host, egress);
        }
        let vetted = self.resolve_directly(host, literal, port, count).await?;
        self.bind(vetted, host, egress)
    }

    async fn resolve_directly(
        &self,
        host: &str,
        literal: Option<IpAddr>,
        port: u16,
        count: impl Fn(AddressClass),
    ) -> Result<VettedAddresses, DestinationError> {
        if let Some(literal) = literal {
            return self.vet_all(host, &[literal], port, count);
        }
        self.check_name(host)?;
        let resolution = self.resolver.resolve(host).await;
        self.vet_resolution(host, port, resolution, count)
    }

    /// Returns the result for a host whose addresses are known without a lookup. Nothing is counted.
    fn resolve_known(
        &self,
        host: &str,
        literal: Option<IpAddr>,
        port: u16,
        egress: EgressChoice<'_>,
    ) -> Option<Result<VettedAddresses, DestinationError>> {
        let checked = self
            .check_port(port)
            .and_then(|()| literal.map_or_else(|| self.check_name(host), |_| Ok(())));
        if let Err(error) = checked {
            return Some(Err(error));
        }
        let vetted = match (egress.parent, literal) {
            (Some(parent), _) => self.vet_for_parent(host, literal, port, parent, |_| {}),
            (None, Some(literal)) => self.vet_all(host, &[literal], port, |_| {}),
            (None, None) => self.vet_resolution(host, port, self.resolver.known(host)?, |_| {}),
        };
        Some(vetted.and_then(|vetted| self.bind(vetted, host, egress)))
    }

    /// Checks a target whose name a parent resolves. Literals and special names are refused as without a
    /// parent.
    fn vet_for_parent(
        &self,
        host: &str,
        literal: Option<IpAddr>,
        port: u16,
        parent: &str,
        count: impl Fn(AddressClass),
    ) -> Result<VettedAddresses, DestinationError> {
        let mut names = self.egress.parents.iter();
        let index = names.position(|name| name.as_str() == parent);
        let index = index.and_then(|index| u16::try_from(index).ok());
        let index = index.ok_or(DestinationError::UnknownParent)?;
        match literal {
            Some(literal) => drop(self.vet_all(host, &[literal], port, count)?),
            None => self.check_name(host)?,
        }
        Ok(VettedAddresses {
            addresses: SmallVec::new(),
            resolved_in: None,
            parent: Some(ParentIndex(index)),
            local: None,
        })
    }

    /// Adds the local addresses for a request, and drops the addresses of other families.
    fn bind(
        &self,
        mut vetted: VettedAddresses,
        host: &str,
        egress: EgressChoice<'_>,
    ) -> Result<VettedAddresses, DestinationError> {
        let mut rules = self.egress.bind.iter();
        let Some(rule) = rules.find(|rule| rule.fits(egress.crawler, host)) else {
            return Ok(vetted);
        };
        vetted
            .addresses
            .retain(|address| rule.local.for_peer(address.ip()).is_some());
        if vetted.addresses.is_empty() && vetted.parent.is_none() {
            return Err(DestinationError::NoLocalAddress);
        }
        vetted.local = Some(Arc::clone(&rule.local));
        Ok(vetted)
    }

    /// Returns the addresses of a proxy of the configuration. They may be private, but are not those of
    /// this process.
    pub(super) async fn resolve_proxy(
        &self,
        host: &str,
        port: u16,
        local: Option<&Arc<LocalAddresses>>,
    ) -> Result<VettedAddresses, ResolveError> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let addresses: Arc<[IpAddr]> = match bare.parse() {
            Ok(literal) => [literal].into(),
            Err(_) => self.resolver.resolve(host).await.addresses?,
        };
        let fits = |address: &&IpAddr| {
            !self
                .egress
                .is_own_listener(effective_address(**address), port)
                && local.is_none_or(|local| local.for_peer(**address).is_some())
        };
        let usable = addresses.iter().filter(fits);
        let addresses: SmallVec<[SocketAddr; 2]> = usable
            .map(|address| SocketAddr::new(*address, port))
            .collect();
        if addresses.is_empty() {
            return Err(ResolveError::NoSuchName);
        }
        Ok(VettedAddresses {
            addresses,
            resolved_in: None,
            parent: None,
            local: local.cloned(),
        })
    }

    fn check_port(&self, port: u16) -> Result<(), DestinationError> {
        match self.egress.ports.iter().any(|range| range.contains(&port)) {
            true => Ok(()),
            false => Err(DestinationError::PortDenied),
        }
    }

    /// Refuses names that have no address in the public DNS.
    fn check_name(&self, host: &str) -> Result<(), DestinationError> {
        if !self.is_local_name(host) {
            Ok(())
        } else if is_loopback_name(host) {
            Err(DestinationError::LoopbackName)
        } else {
            Err(DestinationError::LocalName)
        }
    }

    fn vet_resolution(
        &self,
        host: &str,
        port: u16,
        resolution: Resolution,
        count: impl Fn(AddressClass),
    ) -> Result<VettedAddresses, DestinationError> {
        let Resolution {
            addresses,
            resolved_in,
            retry_in,
        } = resolution;
        let addresses = addresses.map_err(|error| match error {
            ResolveError::NoSuchName => DestinationError::NoSuchName(retry_in),
            ResolveError::Failed => DestinationError::LookupFailed(retry_in),
            ResolveError::Timeout => DestinationError::LookupTimeout(retry_in),
        })?;
        self.vet_all(host, &addresses, port, count)
            .map(|vetted| VettedAddresses {
                resolved_in,
                ..vetted
            })
    }

    /// Drops the addresses that must not be dialled, and calls `count` with the class of each.
    fn vet_all(
        &self,
        host: &str,
        addresses: &[IpAddr],
        port: u16,
        count: impl Fn(AddressClass),
    ) -> Result<VettedAddresses, DestinationError> {
        let mut refused = None;
        let mut vetted = SmallVec::new();
        for address in addresses {
            match self.address_refusal(host, *address, port) {
                None => vetted.push(SocketAddr::new(*address, port)),
                Some(refusal) => {
                    count(refusal.class);
                    refused.get_or_insert(refusal);
                }
            }
        }
        match refused {
            Some(refusal) if vetted.is_empty() => {
                Err(DestinationError::Prohibited(ProhibitedAddress {
                    range: refusal.class.as_str(),
                    allowed_by: refusal.allowed_by,
                }))
            }
            _ if vetted.is_empty() => Err(DestinationError::NoSuchName(None)),
            _ => Ok(VettedAddresses {
                addresses: vetted,
                resolved_in: None,
                parent: None,
                local: None,
            }),
        }
    }

    /// Returns the cause if an address is refused: its class, or because this process listens there.
    fn address_refusal(&self, host: &str, address: IpAddr, port: u16) -> Option<AddressRefusal> {
        let class = classify(address);
        let plain = to_unmapped(address);
        if self
            .egress
            .is_own_listener(effective_address(address), port)
        {
            return Some(AddressRefusal {
                class,
                allowed_by: None,
            });
        }
        let (allowed, allowed_by) = match class {
            AddressClass::Public => (true, None),
            AddressClass::Loopback => (self.egress.allow_loopback, Some(ALLOW_LOOPBACK)),
            AddressClass::LinkLocal | AddressClass::Unspecified => (false, None),
            AddressClass::Private
            | AddressClass::SharedSpace
            | AddressClass::ThisNetwork
            | AddressClass::UniqueLocal
            | AddressClass::SiteLocal
            | AddressClass::Multicast
            | AddressClass::Broadcast
            | AddressClass::Documentation
            | AddressClass::Benchmarking
            | AddressClass::Reserved
            | AddressClass::Translated
            | AddressClass::Nat64
            | AddressClass::CloudService => {
                let allowed = self.egress.allows_private(host, plain);
                (allowed, Some(ALLOW_PRIVATE))
            }
        };
        (!allowed).then_some(AddressRefusal { class, allowed_by })
    }

    fn is_local_name(&self, host: &str) -> bool {
        let local = !host.contains('.')
            || LOCAL_NAMES.iter().any(|name| {
                host.strip_suffix(name)
                    .is_some_and(|h| h.is_empty() || h.ends_with('.'))
            });
        let is_configured = self.resolver.is_fixed(host)
            || self.egress.names_host(host)
            || self.egress.allow_loopback && is_loopback_name(host);
        local && !is_configured
    }
}

/// The cause if an address is not dialled.
#[derive(Clone, Copy)]
struct AddressRefusal {
    class: AddressClass,
    /// The setting that would allow it, if any does.
    allowed_by: Option<&'static str>,
}

/// Returns `true` for the names that mean this machine (RFC 6761 section 6.3).
fn is_loopback_name(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

impl DestinationResolver for AddressVetter {
    type Addresses = VettedAddresses;

    async fn vet(
        &self,
        target: &UrlTarget,
        egress: EgressChoice<'_>,
    ) -> Result<VettedAddresses, DestinationError> {
        self.resolve(target.host(), target.ip(), target.port(), egress)
            .await
    }

    fn vet_known(
        &self,
        target: &UrlTarget,
        egress: EgressChoice<'_>,
    ) -> Option<Result<VettedAddresses, DestinationError>> {
        self.resolve_known(target.host(), target.ip(), target.port(), egress)
    }

    fn connect_backoff(&self, vetted: &VettedAddresses) -> Option<Duration> {
        match vetted.parent() {
            Some(_) => None,
            None => self.negative_cache.retry_in(vetted.addresses()),
        }
    }

    async fn vet_host(
        &self,
        host: &HostTarget,
        egress: EgressChoice<'_>,
    ) -> Result<VettedAddresses, DestinationError> {
        self.resolve(host.host(), host.ip(), host.port(), egress)
            .await
    }
}

impl EgressRules {
    fn allows_private(&self, host: &str, address: IpAddr) -> bool {
        self.allow_private
            .iter()
            .any(|entry| entry.covers(host) && entry.cidr.contains(&address))
    }

    fn names_host(&self, host: &str) -> bool {
        self.allow_private.iter().any(|entry| entry.covers(host))
    }

    /// Returns `true` if a listener of this process may answer at the address. Every loopback
    /// address is assumed to reach a loopback listener, and every address of this machine a
    /// listener on the unspecified address.
    fn is_own_listener(&self, address: IpAddr, port: u16) -> bool {
        self.own_listeners.iter().any(|proxy_address| {
            proxy_address.port() == port && may_reach(proxy_address.ip(), address)
        })
    }
}

impl PrivateHost {
    fn covers(&self, host: &str) -> bool {
        pattern_covers(&self.host, host)
    }
}

/// Returns `true` if a pattern, a host name or `*.domain`, covers a host.
fn pattern_covers(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(domain) => host
            .strip_suffix(domain)
            .is_some_and(|rest| rest.ends_with('.')),
        None => host == pattern,
    }
}

/// Returns `true` if a connection to `address` may reach a listener that is bound to `own`.
fn may_reach(proxy_address: IpAddr, address: IpAddr) -> bool {
    proxy_address == address
        || address.is_unspecified()
        || (proxy_address.is_loopback() && address.is_loopback())
        || (proxy_address.is_unspecified() && is_local_address(address))
}

/// Returns `true` if the address can be bound, which means that it belongs to this machine.
fn is_local_address(address: IpAddr) -> bool {
    std::net::UdpSocket::bind((address, 0)).is_ok()
}
