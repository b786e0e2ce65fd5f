//! Resolves host names to addresses. Concurrent lookups of a name are shared, and results are
//! cached as long as they are valid.
//!
//! The addresses are not vetted yet: only [`super::destination`] decides which of them may be
//! dialled.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{Resolver as Hickory, TokioResolver};
use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::clock::{Clock, TimeSpan};

/// The maximum number of cached names.
const MAX_CACHED_NAMES: u64 = 50_000;
/// The lifetime of results from the system's resolver, which reports none.
const SYSTEM_TTL: Duration = Duration::from_secs(30);
/// The shortest and the longest lifetime of a result.
const TTL_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(5)..=Duration::from_secs(3600);
/// The time for which a name that does not exist is not looked up again.
const NO_SUCH_NAME_TTL: Duration = Duration::from_secs(30);
/// The time for which a failed lookup is not repeated.
const FAILURE_TTL: Duration = Duration::from_secs(5);

/// The reason why a name has no addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// The name does not exist or has no address.
    NoSuchName,
    /// The name servers failed.
    Failed,
    /// The name servers did not answer in time.
    Timeout,
}

/// The source of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NameServers {
    /// The system's resolver: hosts file, NSS, `resolv.conf`.
    #[default]
    System,
    /// These name servers, over UDP and TCP.
    Servers(Vec<SocketAddr>),
}

/// A caching resolver of host names.
#[derive(Debug)]
pub struct DnsResolver {
    backend: DnsBackend,
    hosts: BTreeMap<String, Vec<IpAddr>>,
    timeout: Duration,
    clock: Clock,
    cache: Cache<Box<str>, CachedLookup, RandomState>,
    /// The lookups in progress.
    in_flight: Mutex<InFlightLookups>,
}

type InFlightLookups = HashMap<Box<str>, Arc<OnceCell<CachedLookup>>>;

#[derive(Clone, Debug)]
struct CachedLookup {
    addresses: Result<Arc<[IpAddr]>, ResolveError>,
    ttl: Duration,
    expires_at: Instant,
}

/// The result of resolving a name.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// The addresses, in the order of the name servers' response.
    pub addresses: Result<Arc<[IpAddr]>, ResolveError>,
    /// The time that the lookup took; `None` if the result was cached.
    pub resolved_in: Option<TimeSpan>,
    /// The time until the next lookup, if there are no addresses.
    pub retry_in: Option<Duration>,
}

enum DnsBackend {
    System,
    Servers(Box<TokioResolver>),
}

impl std::fmt::Debug for DnsBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Servers(_) => "Servers",
        })
    }
}

/// Each result has its own lifetime.
struct LookupExpiry;

impl moka::Expiry<Box<str>, CachedLookup> for LookupExpiry {
    fn expire_after_create(
        &self,
        _: &Box<str>,
        lookup: &CachedLookup,
        _: std::time::Instant,
    ) -> Option<Duration> {
        Some(lookup.ttl)
    }
}

impl DnsResolver {
    /// Creates a resolver. `hosts` are answered without a lookup; `timeout` limits each lookup.
    ///
    /// # Errors
    /// Returns a message if the configured name servers cannot be used.
    pub fn new(
        servers: &NameServers,
        hosts: BTreeMap<String, Vec<IpAddr>>,
        timeout: Duration,
        clock: Clock,
    ) -> Result<Self, String> {
        let backend = match servers {
            NameServers::System => DnsBackend::System,
            NameServers::Servers(servers) => {
                DnsBackend::Servers(Box::new(build_hickory(servers, timeout)?))
            }
        };
        Ok(Self {
            backend,
            hosts,
            timeout,
            clock,
            cache: Cache::builder()
                .max_capacity(MAX_CACHED_NAMES)
                .expire_after(LookupExpiry)
                .build_with_hasher(RandomState::default()),
            in_flight: Mutex::default(),
        })
    }

    /// Resolves a canonical host name. The addresses are in the order of the name servers'
    /// response.
    pub async fn resolve(&self, host: &str) -> Resolution {
        if let Some(known) = self.known(host) {
            return known;
        }
        let began = self.clock.now();
        // Boxed so that the future of a cached result stays small.
        let result = Box::pin(self.lookup_shared(host)).await;
        let resolved_in = Some(TimeSpan::between(began, self.clock.now()));
        self.to_resolution(result, resolved_in)
    }

    /// Returns the result for a canonical host name that is known without a lookup.
    pub fn known(&self, host: &str) -> Option<Resolution> {
        if let Some(result) = self.cache.get(host) {
            return Some(self.to_resolution(result, None));
        }
        let fixed = self.hosts.get(host)?;
        Some(Resolution {
            addresses: Ok(fixed.as_slice().into()),
            resolved_in: None,
            retry_in: None,
        })
    }

    /// Returns the addresses of a canonical host name that are known without a lookup.
    pub fn cached_addresses(&self, host: &str) -> Vec<IpAddr> {
        if let Some(fixed) = self.hosts.get(host) {
            return fixed.clone();
        }
        self.cache
            .get(host)
            .and_then(|result| result.addresses.ok())
            .map(|addresses| addresses.to_vec())
            .unwrap_or_default()
    }

    /// Returns `true` if the configuration contains the host's addresses.
    pub fn is_fixed(&self, host: &str) -> bool {
        self.hosts.contains_key(host)
    }

    /// Returns the clock that measures the lifetimes of results.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    fn to_resolution(&self, lookup: CachedLookup, resolved_in: Option<TimeSpan>) -> Resolution {
        let retry_in = match lookup.addresses {
            Ok(_) => None,
            Err(_) => Some(
                lookup
                    .expires_at
                    .saturating_duration_since(self.clock.now()),
            ),
        };
        Resolution {
            addresses: lookup.addresses,
            resolved_in,
            retry_in,
        }
    }

    /// Looks a name up, once for all concurrent callers. If the active caller is cancelled, the
    /// next one takes over.
    async fn lookup_shared(&self, host: &str) -> CachedLookup {
        let lookup = SharedLookup::join(self, host);
        let result = lookup.cell.get_or_init(|| async {
            // It may have been resolved between the cache access and the joining.
            if let Some(result) = self.cache.get(host) {
                return result;
            }
            let result = self.lookup(host).await;
            self.cache.insert(host.into(), result.clone());
            result
        });
        result.await.clone()
    }

    async fn lookup(&self, host: &str) -> CachedLookup {
        let lookup = async {
            match &self.backend {
                DnsBackend::System => lookup_system(host).await,
                DnsBackend::Servers(servers) => lookup_servers(servers, host, &self.clock).await,
            }
        };
        let (addresses, ttl) = match tokio::time::timeout(self.timeout, lookup).await {
            Ok(Ok((addresses, ttl))) => (Ok(addresses), ttl),
            Ok(Err(ResolveError::NoSuchName)) => (Err(ResolveError::NoSuchName), NO_SUCH_NAME_TTL),
            Ok(Err(error)) => (Err(error), FAILURE_TTL),
            Err(_) => (Err(ResolveError::Timeout), FAILURE_TTL),
        };
        let ttl = ttl.clamp(*TTL_RANGE.start(), *TTL_RANGE.end());
        CachedLookup {
            addresses,
            ttl,
            expires_at: self.clock.now() + ttl,
        }
    }
}

/// A participation in a shared lookup. The last participant to leave removes it.
struct SharedLookup<'r> {
    resolver: &'r DnsResolver,
    host: &'r str,
    cell: Arc<OnceCell<CachedLookup>>,
}

impl<'r> SharedLookup<'r> {
    fn join(resolver: &'r DnsResolver, host: &'r str) -> Self {
        let cell = Arc::clone(resolver.in_flight.lock().entry(host.into()).or_default());
        Self {
            resolver,
            host,
            cell,
        }
    }
}

impl Drop for SharedLookup<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.resolver.in_flight.lock();
        // Released under the lock, so that exactly one participant is the last.
        self.cell = Arc::default();
        if in_flight
            .get(self.host)
            .is_some_and(|cell| Arc::strong_count(cell) == 1)
        {
            in_flight.remove(self.host);
        }
    }
}

type LookupResult = Result<(Arc<[IpAddr]>, Duration), ResolveError>;

async fn lookup_system(host: &str) -> LookupResult {
    // `lookup_host` requires a port, which does not affect the result.
    let found = tokio::net::lookup_host((host, 0)).await;
    let addresses: Arc<[IpAddr]> = match found {
        Ok(found) => found.map(|a| a.ip()).collect(),
        Err(error) => return Err(classify_system_error(&error)),
    };
    if addresses.is_empty() {
        Err(ResolveError::NoSuchName)
    } else {
        Ok((addresses, SYSTEM_TTL))
    }
}

/// Classifies an error of getaddrinfo, which is available only as text: "Name or service not known"
/// and "No address associated with hostname" are definite answers, "Temporary failure in name
/// resolution" is not.
fn classify_system_error(error: &std::io::Error) -> ResolveError {
    let text = error.to_string();
    let answered = ["not known", "No address", "nodename nor servname"]
        .iter()
        .any(|w| text.contains(w));
    if answered {
        ResolveError::NoSuchName
    } else {
        ResolveError::Failed
    }
}

async fn lookup_servers(servers: &TokioResolver, host: &str, clock: &Clock) -> LookupResult {
    // With the trailing dot, the machine's search domains are not tried.
    match servers.lookup_ip(format!("{host}.")).await {
        Ok(found) => {
            let ttl = found.valid_until().saturating_duration_since(clock.now());
            Ok((found.iter().collect(), ttl))
        }
        Err(error) if error.is_nx_domain() || error.is_no_records_found() => {
            Err(ResolveError::NoSuchName)
        }
        Err(_) => Err(ResolveError::Failed),
    }
}

fn build_hickory(servers: &[SocketAddr], timeout: Duration) -> Result<TokioResolver, String> {
    let servers = servers.iter().map(|server| {
        let mut config = NameServerConfig::udp_and_tcp(server.ip());
        for connection in &mut config.connections {
            connection.port = server.port();
        }
        config
    });
    let config = ResolverConfig::from_parts(None, vec![], servers.collect());
    let mut builder = Hickory::builder_with_config(config, TokioRuntimeProvider::default());
    builder.options_mut().timeout = timeout;
    // The resolver has its own cache, so hickory's is kept small.
    builder.options_mut().cache_size = 32;
    builder
        .build()
        .map_err(|error| format!("the name servers cannot be used: {error}"))
}
