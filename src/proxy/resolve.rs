//! From a host name to its addresses: one look-up a name at a time, remembered for as long as the answer holds.
//!
//! What comes out is not yet vetted: only [`super::destination`] says which addresses may be dialled.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{Resolver as Hickory, TokioResolver};
use moka::sync::Cache;
use tokio::sync::OnceCell;

use crate::clock::{Clock, TimeSpan};

/// Names remembered at most.
const MAX_CACHED_NAMES: u64 = 50_000;
/// How long an answer of the system's resolver holds: it tells no time to live.
const SYSTEM_TTL: Duration = Duration::from_secs(30);
/// The shortest and the longest time that an answer holds.
const TTL_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(5)..=Duration::from_secs(3600);
/// How long a name that does not exist is not asked for again.
const NO_SUCH_NAME_TTL: Duration = Duration::from_secs(30);
/// How long after a failure the name servers are asked again.
const FAILURE_TTL: Duration = Duration::from_secs(5);

/// Why a name has no addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// There is no such name, or it has no address.
    NoSuchName,
    /// The name servers failed.
    Failed,
    /// They did not answer in time.
    Timeout,
}

/// Where names are looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NameServers {
    /// As the system does: hosts file, NSS, `resolv.conf`.
    #[default]
    System,
    /// These servers, by UDP and TCP.
    Servers(Vec<SocketAddr>),
}

/// Addresses of names, with a memory.
#[derive(Debug)]
pub struct DnsResolver {
    backend: DnsBackend,
    hosts: BTreeMap<String, Vec<IpAddr>>,
    timeout: Duration,
    clock: Clock,
    cache: Cache<Box<str>, CachedLookup, RandomState>,
    /// Names that are being asked for.
    in_flight: Mutex<InFlightLookups>,
}

type InFlightLookups = HashMap<Box<str>, Arc<OnceCell<CachedLookup>>>;

#[derive(Clone, Debug)]
struct CachedLookup {
    addresses: Result<Arc<[IpAddr]>, ResolveError>,
    ttl: Duration,
    expires_at: Instant,
}

/// What is known of a name.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// Its addresses.
    pub addresses: Result<Arc<[IpAddr]>, ResolveError>,
    /// How long it took to find out; `None` if it was known.
    pub resolved_in: Option<TimeSpan>,
    /// If it has none: when it is asked for again.
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

/// Each answer tells for how long it holds.
struct LookupExpiry;

impl moka::Expiry<Box<str>, CachedLookup> for LookupExpiry {
    fn expire_after_create(
        &self,
        _: &Box<str>,
        answer: &CachedLookup,
        _: std::time::Instant,
    ) -> Option<Duration> {
        Some(answer.ttl)
    }
}

impl DnsResolver {
    /// A resolver. `hosts` are answered without a look-up; `timeout` bounds each look-up.
    ///
    /// # Errors
    /// If the configured name servers cannot be used.
    pub fn new(
        servers: &NameServers,
        hosts: BTreeMap<String, Vec<IpAddr>>,
        timeout: Duration,
        clock: Clock,
    ) -> Result<Self, String> {
        let lookup = match servers {
            NameServers::System => DnsBackend::System,
            NameServers::Servers(servers) => {
                DnsBackend::Servers(Box::new(build_hickory(servers, timeout)?))
            }
        };
        let memory = Cache::builder()
            .max_capacity(MAX_CACHED_NAMES)
            .expire_after(LookupExpiry);
        let memory = memory.build_with_hasher(RandomState::default());
        Ok(Self {
            backend: lookup,
            hosts,
            timeout,
            clock,
            cache: memory,
            in_flight: Mutex::default(),
        })
    }

    /// The addresses of a canonical host name, in the order in which the name servers gave them.
    ///
    /// # Errors
    /// If it has none.
    pub async fn resolve(&self, host: &str) -> Resolution {
        if let Some(answer) = self.cache.get(host) {
            return self.to_resolution(answer, None);
        }
        if let Some(fixed) = self.hosts.get(host) {
            return Resolution {
                addresses: Ok(fixed.as_slice().into()),
                resolved_in: None,
                retry_in: None,
            };
        }
        let began = self.clock.now();
        // Boxed, so that those that know are not as big as those that ask.
        let answer = Box::pin(self.lookup_shared(host)).await;
        let found_in = Some(TimeSpan::between(began, self.clock.now()));
        self.to_resolution(answer, found_in)
    }

    /// The addresses of a canonical host name that are known without asking; none if there are none.
    pub fn cached_addresses(&self, host: &str) -> Vec<IpAddr> {
        if let Some(fixed) = self.hosts.get(host) {
            return fixed.clone();
        }
        let known = self
            .cache
            .get(host)
            .and_then(|answer| answer.addresses.ok());
        known
            .map(|addresses| addresses.to_vec())
            .unwrap_or_default()
    }

    /// Whether the configuration names the host.
    pub fn is_fixed(&self, host: &str) -> bool {
        self.hosts.contains_key(host)
    }

    /// The clock that it goes by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    fn in_flight(&self) -> MutexGuard<'_, InFlightLookups> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn to_resolution(
        &self,
        CachedLookup {
            addresses,
            expires_at: until,
            ..
        }: CachedLookup,
        found_in: Option<TimeSpan>,
    ) -> Resolution {
        let left = || until.saturating_duration_since(self.clock.now());
        let again_in = addresses.is_err().then(left);
        Resolution {
            addresses,
            resolved_in: found_in,
            retry_in: again_in,
        }
    }

    /// Those that ask for the same name meanwhile wait for one answer. If whoever asks gives up the next one asks.
    async fn lookup_shared(&self, host: &str) -> CachedLookup {
        let question = SharedLookup::join(self, host);
        let asked = question.cell().get_or_init(|| async {
            // It may have been answered between the look into the memory and the joining.
            if let Some(answer) = self.cache.get(host) {
                return answer;
            }
            let answer = self.lookup(host).await;
            self.cache.insert(host.into(), answer.clone());
            answer
        });
        asked.await.clone()
    }

    async fn lookup(&self, host: &str) -> CachedLookup {
        let asked = async {
            match &self.backend {
                DnsBackend::System => lookup_system(host).await,
                DnsBackend::Servers(servers) => lookup_servers(servers, host, &self.clock).await,
            }
        };
        let (addresses, ttl) = match tokio::time::timeout(self.timeout, asked).await {
            Ok(Ok((addresses, ttl))) => (Ok(addresses), ttl),
            Ok(Err(ResolveError::NoSuchName)) => (Err(ResolveError::NoSuchName), NO_SUCH_NAME_TTL),
            Ok(Err(error)) => (Err(error), FAILURE_TTL),
            Err(_) => (Err(ResolveError::Timeout), FAILURE_TTL),
        };
        let holds_for = ttl.clamp(*TTL_RANGE.start(), *TTL_RANGE.end());
        CachedLookup {
            addresses,
            ttl: holds_for,
            expires_at: self.clock.now() + holds_for,
        }
    }
}

/// A part in a question. The last one to leave forgets it.
struct SharedLookup<'r> {
    resolver: &'r DnsResolver,
    host: &'r str,
    cell: Arc<OnceCell<CachedLookup>>,
}

impl<'r> SharedLookup<'r> {
    fn join(resolver: &'r DnsResolver, host: &'r str) -> Self {
        let cell = Arc::clone(resolver.in_flight().entry(host.into()).or_default());
        Self {
            resolver,
            host,
            cell,
        }
    }

    fn cell(&self) -> &OnceCell<CachedLookup> {
        &self.cell
    }
}

impl Drop for SharedLookup<'_> {
    fn drop(&mut self) {
        let mut open = self.resolver.in_flight();
        // Under the lock, so that of two that leave one is the last.
        self.cell = Arc::default();
        if open
            .get(self.host)
            .is_some_and(|cell| Arc::strong_count(cell) == 1)
        {
            open.remove(self.host);
        }
    }
}

type LookupResult = Result<(Arc<[IpAddr]>, Duration), ResolveError>;

async fn lookup_system(host: &str) -> LookupResult {
    // The port is not part of the question, but of the interface.
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

/// getaddrinfo tells its errors only in words: "Name or service not known" and "No address associated with hostname"
/// are answers, "Temporary failure in name resolution" is none.
fn classify_system_error(error: &std::io::Error) -> ResolveError {
    let words = error.to_string();
    let answered = ["not known", "No address", "nodename nor servname"]
        .iter()
        .any(|w| words.contains(w));
    if answered {
        ResolveError::NoSuchName
    } else {
        ResolveError::Failed
    }
}

async fn lookup_servers(servers: &TokioResolver, host: &str, clock: &Clock) -> LookupResult {
    // With the root's dot, search domains of the machine are never tried.
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
    // Our own memory stands in front; hickory's need hold no more than what is being asked.
    builder.options_mut().cache_size = 32;
    builder
        .build()
        .map_err(|error| format!("name servers cannot be used: {error}"))
}
