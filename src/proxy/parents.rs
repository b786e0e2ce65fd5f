//! Parent proxies: other proxies through which requests go out (`egress.parents`). A parent is one proxy or several
//! that are equivalent.
//!
//! A host keeps its proxy as long as that is up: the proxies are ordered by a hash of host and proxy, and the first
//! that is up is used. A proxy to which no connection can be opened is down until a check succeeds.
//!
//! The parent resolves names and connects to addresses, so that only the names are checked here.

mod error;
mod handshake;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use http::header::PROXY_AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Uri};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::rule_id::Slug;
use crate::tls::maybe_tls_stream::MaybeTlsStream;
use crate::urls::target::{Scheme, UrlTarget};

use super::destination::{AddressVetter, LocalAddresses, ParentIndex};
use super::dial::{DialLimits, dial};
use super::drain::DrainWatch;
use super::origin_tls::OriginTls;

use error::ParentFault;
pub use error::{ParentError, ParentFaultScope};

/// The interval at which a proxy that is down is checked.
const DOWN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The settings of a parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentSettings {
    /// The name, which the policy option `upstream` uses.
    pub name: Slug,
    /// Equivalent proxies, at least one.
    pub proxies: Vec<ParentProxyAddress>,
    /// The credentials for all of its proxies.
    pub credentials: Option<ParentCredentials>,
    /// The interval at which a proxy that is up is checked.
    pub check_interval: Duration,
    /// `true` if the proxies are warcprox: `Warcprox-Meta` of crawlers that may use it is passed on.
    pub is_warcprox: bool,
}

/// The address of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentProxyAddress {
    pub protocol: ParentProtocol,
    /// A canonical host; an IPv6 address is in brackets.
    pub host: Box<str>,
    pub port: u16,
}

impl std::fmt::Display for ParentProxyAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = match self.protocol {
            ParentProtocol::Http => "http",
            ParentProtocol::Https => "https",
            ParentProtocol::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentProtocol {
    Http,
    /// HTTP over TLS.
    Https,
    /// SOCKS 5 (RFC 1928), which gets names rather than addresses.
    Socks5,
}

impl ParentProtocol {
    /// Returns `true` if the proxy takes requests for `http` URLs in absolute form.
    fn is_http(self) -> bool {
        match self {
            Self::Http | Self::Https => true,
            Self::Socks5 => false,
        }
    }
}

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct ParentCredentials {
    user: Box<str>,
    password: Box<str>,
}

impl std::fmt::Debug for ParentCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ParentCredentials")
    }
}

impl ParentCredentials {
    /// Creates credentials.
    ///
    /// # Errors
    /// Returns a message if Basic authentication or SOCKS cannot express them.
    pub fn new(user: &str, password: &str) -> Result<Self, &'static str> {
        let fits =
            |text: &str| (1..=255).contains(&text.len()) && !text.chars().any(char::is_control);
        if !fits(user) || user.contains(':') {
            return Err("a user has 1 to 255 bytes, and no colon or control character");
        }
        if !fits(password) {
            return Err("a password has 1 to 255 bytes, and no control character");
        }
        Ok(Self {
            user: user.into(),
            password: password.into(),
        })
    }

    /// Returns the value of `Proxy-Authorization`.
    fn to_basic(&self) -> Option<HeaderValue> {
        let pair = format!("{}:{}", self.user, self.password);
        let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
        let mut value = HeaderValue::from_str(&format!("Basic {encoded}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// The index of a proxy among those of all parents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParentProxyIndex(u16);

/// The next server on the way to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NextHop {
    /// The origin.
    Origin,
    /// A proxy of a parent.
    Proxy(ParentProxyIndex),
    /// A parent of which every proxy is down.
    None,
}

/// The way of a connection to an origin. A connection is used only for requests with the same way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionRoute {
    pub hop: NextHop,
    /// The addresses of this machine that the connection may come from.
    pub local: Option<Arc<LocalAddresses>>,
}

impl ConnectionRoute {
    /// The way of most connections.
    pub const DIRECT: Self = Self {
        hop: NextHop::Origin,
        local: None,
    };

    /// Returns `true` if it goes through a parent.
    pub fn uses_parent(&self) -> bool {
        match self.hop {
            NextHop::Origin => false,
            NextHop::Proxy(_) | NextHop::None => true,
        }
    }
}

/// The need of a request that goes through a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentUse {
    /// A connection for requests of one `http` origin: to an HTTP proxy itself, which gets URLs in absolute form.
    HttpRequests,
    /// A connection to the origin.
    Tunnel,
}

/// A connection to open through a parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParentCall<'a> {
    pub(super) parent: ParentIndex,
    /// The canonical host of the origin; an IPv6 address is in brackets.
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) usage: ParentUse,
    /// The proxy that has just failed, which is tried last.
    pub(super) failed: Option<NextHop>,
    pub(super) local: Option<&'a Arc<LocalAddresses>>,
    pub(super) limits: DialLimits,
}

/// A connection that was opened through a parent.
#[derive(Debug)]
pub(super) struct ParentConnection {
    pub(super) transport: MaybeTlsStream,
    /// The address of the proxy.
    pub(super) address: SocketAddr,
    pub(super) hop: NextHop,
}

/// Opens connections through parents, and knows which of their proxies are up.
#[derive(Debug)]
pub struct ParentConnector {
    parents: Box<[Parent]>,
    proxies: Box<[ParentProxy]>,
    vetter: Arc<AddressVetter>,
    tls: Arc<OriginTls>,
    /// The limits of checks.
    limits: DialLimits,
    clock: Clock,
    metrics: Metrics,
    /// Notified when a proxy has gone down.
    gone_down: Notify,
}

#[derive(Debug)]
struct Parent {
    name: Slug,
    proxies: std::ops::Range<u16>,
    check_interval: Duration,
    is_warcprox: bool,
}

#[derive(Debug)]
struct ParentProxy {
    address: ParentProxyAddress,
    /// The address as text, for messages and metrics.
    label: Box<str>,
    parent: ParentIndex,
    credentials: Option<ParentCredentials>,
    authorization: Option<HeaderValue>,
    is_down: AtomicBool,
    checked_at: Mutex<Instant>,
}

impl ParentConnector {
    /// Creates a connector. All proxies are taken to be up until one of them fails.
    pub fn new(
        settings: &[ParentSettings],
        vetter: Arc<AddressVetter>,
        tls: Arc<OriginTls>,
        limits: DialLimits,
        clock: Clock,
        metrics: Metrics,
    ) -> Self {
        let mut parents = Vec::with_capacity(settings.len());
        let mut proxies: Vec<ParentProxy> = Vec::new();
        for (parent, index) in settings.iter().zip(0..) {
            let parent_index = ParentIndex(index);
            let begin = u16::try_from(proxies.len()).unwrap_or(u16::MAX);
            proxies.extend(parent.proxies.iter().map(|address| {
                ParentProxy {
                    label: address.to_string().into(),
                    address: address.clone(),
                    parent: parent_index,
                    credentials: parent.credentials.clone(),
                    authorization: parent
                        .credentials
                        .as_ref()
                        .and_then(ParentCredentials::to_basic),
                    is_down: AtomicBool::new(false),
                    checked_at: Mutex::new(clock.now()),
                }
            }));
            parents.push(Parent {
                name: parent.name.clone(),
                proxies: begin..u16::try_from(proxies.len()).unwrap_or(u16::MAX),
                check_interval: parent.check_interval,
                is_warcprox: parent.is_warcprox,
            });
        }
        let connector = Self {
            parents: parents.into(),
            proxies: proxies.into(),
            vetter,
            tls,
            limits,
            clock,
            metrics,
            gone_down: Notify::new(),
        };
        for proxy in &connector.proxies {
            connector.set_metric(proxy, true);
        }
        connector
    }

    /// Returns `true` if no parent is configured.
    pub fn is_empty(&self) -> bool {
        self.parents.is_empty()
    }

    /// Returns the name of a parent.
    pub fn name(&self, parent: ParentIndex) -> Option<&Slug> {
        Some(&self.parent(parent)?.name)
    }

    /// Returns `true` if the parent of this name is warcprox.
    pub fn is_warcprox(&self, name: &str) -> bool {
        self.parents
            .iter()
            .any(|parent| parent.is_warcprox && parent.name.as_str() == name)
    }

    /// Returns the parents of which every proxy is down.
    pub fn down(&self) -> Vec<&Slug> {
        let is_down = |parent: &&Parent| {
            let mut proxies = parent.proxies.clone();
            proxies.all(|index| self.is_down(ParentProxyIndex(index)))
        };
        let down = self.parents.iter().filter(is_down);
        down.map(|parent| &parent.name).collect()
    }

    /// Returns the next server on the way to a host.
    pub(super) fn next_hop(&self, parent: Option<ParentIndex>, host: &str) -> NextHop {
        let Some(parent) = parent else {
            return NextHop::Origin;
        };
        match self.candidates(parent, host).first() {
            Some(proxy) => NextHop::Proxy(*proxy),
            None => NextHop::None,
        }
    }

    /// Turns a request into the form that the next server takes: with its URL in absolute form for an HTTP proxy, else
    /// with path and query.
    pub(super) fn prepare<B>(&self, hop: NextHop, request: &mut Request<B>, target: &UrlTarget) {
        let NextHop::Proxy(proxy) = hop else { return };
        // It may have been prepared for another proxy.
        request.headers_mut().remove(PROXY_AUTHORIZATION);
        if let Some(proxy) = self.forwarding_proxy(proxy, target) {
            if let Some(credentials) = &proxy.authorization {
                let headers = request.headers_mut();
                headers.insert(PROXY_AUTHORIZATION, credentials.clone());
            }
            // `OPTIONS *` becomes OPTIONS of the root: `Uri` has no absolute form without a path.
            if let Ok(uri) = target.as_str().parse() {
                *request.uri_mut() = uri;
            }
        } else if request.uri().scheme().is_some()
            && let Ok(path) = target.path_and_query().parse::<PathAndQuery>()
        {
            *request.uri_mut() = Uri::from(path);
        }
    }

    /// Returns the error if an HTTP proxy has answered a request with 407, which is about the credentials of this proxy.
    pub(super) fn rejected_credentials(
        &self,
        hop: NextHop,
        target: &UrlTarget,
        status: http::StatusCode,
    ) -> Option<ParentError> {
        let NextHop::Proxy(proxy) = hop else {
            return None;
        };
        let is_rejected = status == http::StatusCode::PROXY_AUTHENTICATION_REQUIRED;
        let proxy = self
            .forwarding_proxy(proxy, target)
            .filter(|_| is_rejected)?;
        Some(self.failed(proxy, ParentFault::Credentials))
    }

    /// Opens a connection through the first proxy of the parent that takes it.
    ///
    /// # Errors
    /// If no proxy does, or the parent cannot reach the origin.
    pub(super) async fn open(&self, call: ParentCall<'_>) -> Result<ParentConnection, ParentError> {
        let mut failed = None;
        let mut candidates = self.candidates(call.parent, call.host);
        // Stable, so the order of the others stays.
        candidates.sort_by_key(|index| call.failed == Some(NextHop::Proxy(*index)));
        for index in candidates {
            let Some(proxy) = self.proxy(index) else {
                continue;
            };
            match self.open_through(proxy, &call).await {
                Ok((transport, address)) => {
                    return Ok(ParentConnection {
                        transport,
                        address,
                        hop: NextHop::Proxy(index),
                    });
                }
                Err(fault) => {
                    let error = self.failed(proxy, fault);
                    if fault.is_about_proxy() {
                        failed = Some(error);
                    } else {
                        return Err(error);
                    }
                }
            }
        }
        let name = self.name(call.parent);
        Err(failed.unwrap_or_else(|| ParentError::all_down(name, DOWN_CHECK_INTERVAL)))
    }

    /// Counts a failure, and takes the proxy out of use if no connection to it can be opened.
    fn failed(&self, proxy: &ParentProxy, fault: ParentFault) -> ParentError {
        if fault.is_down() {
            self.set_down(proxy);
        }
        let name = self.name(proxy.parent);
        if let Some(name) = name {
            let error = fault.description().error_type;
            self.metrics.record_parent_failure(name.as_str(), error);
        }
        ParentError::new(name, fault)
    }

    /// Opens a connection through a proxy, within the limit for all attempts.
    async fn open_through(
        &self,
        proxy: &ParentProxy,
        call: &ParentCall<'_>,
    ) -> Result<(MaybeTlsStream, SocketAddr), ParentFault> {
        let (mut transport, address) = self.connect(proxy, call.local, call.limits).await?;
        let protocol = proxy.address.protocol;
        if protocol.is_http() && call.usage == ParentUse::HttpRequests {
            return Ok((transport, address));
        }
        let connecting = async {
            match protocol {
                ParentProtocol::Http | ParentProtocol::Https => {
                    let authorization = proxy.authorization.as_ref();
                    handshake::connect(&mut transport, call.host, call.port, authorization).await
                }
                ParentProtocol::Socks5 => {
                    handshake::negotiate_socks(&mut transport, proxy.credentials.as_ref()).await?;
                    handshake::connect_socks(&mut transport, call.host, call.port).await
                }
            }
        };
        match tokio::time::timeout(call.limits.total, connecting).await {
            Ok(result) => result.map(|()| (transport, address)),
            Err(_) => Err(ParentFault::Timeout),
        }
    }

    /// Connects to a proxy itself, with TLS if it needs it.
    async fn connect(
        &self,
        proxy: &ParentProxy,
        local: Option<&Arc<LocalAddresses>>,
        limits: DialLimits,
    ) -> Result<(MaybeTlsStream, SocketAddr), ParentFault> {
        let ParentProxyAddress { host, port, .. } = &proxy.address;
        let addresses = self.vetter.resolve_proxy(host, *port, local).await;
        let addresses = addresses.map_err(|_| ParentFault::Name)?;
        let dialled = dial(&addresses, limits).await;
        let (tcp, address) = dialled.map_err(ParentFault::Dial)?;
        let transport = match proxy.address.protocol {
            ParentProtocol::Http | ParentProtocol::Socks5 => MaybeTlsStream::Plain(tcp),
            ParentProtocol::Https => {
                let tls = self.tls.connect_proxy(tcp, host).await;
                MaybeTlsStream::Tls(Box::new(tls.map_err(|_| ParentFault::Tls)?))
            }
        };
        Ok((transport, address))
    }

    /// Checks the proxies until the drain begins.
    pub async fn run_checks(self: Arc<Self>, mut drain: DrainWatch) {
        if self.is_empty() {
            return;
        }
        loop {
            tokio::select! {
                () = drain.wait_begun() => return,
                () = tokio::time::sleep(DOWN_CHECK_INTERVAL) => {}
                () = self.gone_down.notified() => {
                    // Not at once: what has just failed would fail again.
                    tokio::time::sleep(DOWN_CHECK_INTERVAL).await;
                }
            }
            self.check_due().await;
        }
    }

    /// Checks the proxies that are due, all at once.
    async fn check_due(self: &Arc<Self>) {
        let mut checks = JoinSet::new();
        let now = self.clock.now();
        for (proxy, index) in self.proxies.iter().zip(0..) {
            let interval = match self.parent(proxy.parent) {
                Some(parent) if !proxy.is_down.load(Ordering::Relaxed) => parent.check_interval,
                Some(_) | None => DOWN_CHECK_INTERVAL,
            };
            let mut checked_at = proxy.checked_at.lock();
            if now.saturating_duration_since(*checked_at) >= interval {
                *checked_at = now;
                checks.spawn(Arc::clone(self).check(ParentProxyIndex(index)));
            }
        }
        while checks.join_next().await.is_some() {}
    }

    /// Connects to a proxy and closes the connection, after the negotiation of SOCKS.
    async fn check(self: Arc<Self>, index: ParentProxyIndex) {
        let Some(proxy) = self.proxy(index) else {
            return;
        };
        let checking = async {
            let (mut transport, _) = self.connect(proxy, None, self.limits).await?;
            if proxy.address.protocol == ParentProtocol::Socks5 {
                handshake::negotiate_socks(&mut transport, proxy.credentials.as_ref()).await?;
            }
            // Fails only if the proxy has closed the connection.
            let _ = transport.shutdown().await;
            Ok(())
        };
        let checked: Result<(), ParentFault> = tokio::time::timeout(self.limits.connect, checking)
            .await
            .unwrap_or(Err(ParentFault::Timeout));
        match checked {
            Ok(()) => self.set_up(proxy),
            // The proxy answers.
            Err(ParentFault::Credentials) => self.set_up(proxy),
            Err(_) => self.set_down(proxy),
        }
    }

    fn set_down(&self, proxy: &ParentProxy) {
        if !proxy.is_down.swap(true, Ordering::Relaxed) {
            let parent = self.name(proxy.parent).map_or("", Slug::as_str);
            tracing::warn!(parent, proxy = &*proxy.label, "a parent proxy is down");
            self.set_metric(proxy, false);
            *proxy.checked_at.lock() = self.clock.now();
            self.gone_down.notify_one();
        }
    }

    fn set_up(&self, proxy: &ParentProxy) {
        if proxy.is_down.swap(false, Ordering::Relaxed) {
            let parent = self.name(proxy.parent).map_or("", Slug::as_str);
            tracing::info!(parent, proxy = &*proxy.label, "a parent proxy is up again");
            self.set_metric(proxy, true);
        }
    }

    fn set_metric(&self, proxy: &ParentProxy, is_up: bool) {
        if let Some(name) = self.name(proxy.parent) {
            let metrics = &self.metrics;
            metrics.set_parent_up(name.as_str(), &proxy.label, is_up);
        }
    }

    /// Returns the proxies of a parent that are up, the one that a host keeps first.
    fn candidates(&self, parent: ParentIndex, host: &str) -> Vec<ParentProxyIndex> {
        let proxies = self
            .parent(parent)
            .map_or(0..0, |parent| parent.proxies.clone());
        let up = proxies
            .map(ParentProxyIndex)
            .filter(|index| !self.is_down(*index));
        let mut candidates: Vec<ParentProxyIndex> = up.collect();
        candidates.sort_by_cached_key(|index| {
            let label = self.proxy(*index).map_or("", |proxy| &*proxy.label);
            std::cmp::Reverse(weight(host, label))
        });
        candidates
    }

    fn is_down(&self, index: ParentProxyIndex) -> bool {
        self.proxy(index)
            .is_none_or(|proxy| proxy.is_down.load(Ordering::Relaxed))
    }

    /// Returns a proxy if it takes requests for this target in absolute form.
    fn forwarding_proxy(
        &self,
        index: ParentProxyIndex,
        target: &UrlTarget,
    ) -> Option<&ParentProxy> {
        let proxy = self.proxy(index)?;
        let is_forwarding = target.scheme() == Scheme::Http && proxy.address.protocol.is_http();
        is_forwarding.then_some(proxy)
    }

    fn parent(&self, index: ParentIndex) -> Option<&Parent> {
        self.parents.get(usize::from(index.0))
    }

    fn proxy(&self, index: ParentProxyIndex) -> Option<&ParentProxy> {
        self.proxies.get(usize::from(index.0))
    }
}

/// Returns the weight of a proxy for a host (rendezvous hashing): the same in every process, so that a restart moves no
/// host.
fn weight(host: &str, proxy: &str) -> u64 {
    // FNV-1a, and the finalizer of MurmurHash3, since hosts often differ in their last letters only.
    let bytes = host.bytes().chain([0]).chain(proxy.bytes());
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_spread_and_move_only_from_a_proxy_that_is_gone() {
        let proxies = ["http://a:3128", "http://b:3128", "http://c:3128"];
        let chosen = |host: &str, proxies: &[&'static str]| {
            *proxies
                .iter()
                .max_by_key(|proxy| weight(host, proxy))
                .unwrap()
        };
        let mut counts = [0; 3];
        for number in 0..3000 {
            let host = format!("www{number}.test");
            let first = chosen(&host, &proxies);
            counts[proxies.iter().position(|proxy| *proxy == first).unwrap()] += 1;
            let left = chosen(&host, &proxies[1..]);
            assert!(first == proxies[0] || left == first, "{host}");
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn credentials_must_be_expressible() {
        let encoded = ParentCredentials::new("crawl", "p:w").unwrap().to_basic();
        assert_eq!(encoded.unwrap(), "Basic Y3Jhd2w6cDp3");
        let long = "x".repeat(256);
        for (user, password) in [
            ("", "p"),
            ("a:b", "p"),
            ("a\n", "p"),
            ("a", ""),
            ("a", "p\r"),
            ("a", &long),
        ] {
            assert!(
                ParentCredentials::new(user, password).is_err(),
                "{user:?} {password:?}"
            );
        }
        let shown = format!("{:?}", ParentCredentials::new("crawl", "secret"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
