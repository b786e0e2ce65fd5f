//! Certificates for hosts: issued when a client first connects to the host, and cached for a day
//! for all clients.
//!
//! A certificate is issued once for all concurrent handshakes. Each client has a rate limit for the
//! certificates issued on its behalf; above it, handshakes wait. The origin's certificate is not
//! consulted, because crawlers check only the name. The decision to intercept a host is made
//! elsewhere.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;
use rcgen::string::Ia5String;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{DnsName, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};

use crate::clock::Clock;
use crate::metrics::Metrics;

use super::ca::{CertificateAuthority, random_serial, to_offset_date_time};
use super::rate_limit::IssueRateLimits;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Tolerance for clients whose clock is slow.
const BACKDATED: Duration = DAY;
/// The remaining validity, so that a certificate is valid for seven days including [`BACKDATED`].
const VALIDITY: Duration = Duration::from_secs(6 * 24 * 60 * 60);
/// The longest time for which a certificate and its key are used.
const CACHE_TTL: Duration = DAY;
/// The time by which the wall clock may be set back before a certificate is issued again: half of
/// [`BACKDATED`], so that clients whose clock is slow still accept it.
const MAX_SETBACK: Duration = Duration::from_secs(12 * 60 * 60);
/// The limit of the common name (X.520, `ub-common-name`); a host name that is not shorter is only
/// in the alternative names.
const MAX_COMMON_NAME: usize = 64;
/// The ALPN protocols, the preferred one first.
const ALPN_PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Issues certificates for hosts and caches them.
pub struct CertificateIssuer {
    cache: Cache<String, Arc<LeafCertificate>>,
    rate_limits: IssueRateLimits,
    authority: CertificateAuthority,
    key: Mutex<LeafKey>,
    base_configs: Arc<BaseServerConfigs>,
    clock: Clock,
    metrics: Metrics,
}

/// A host's certificate, with the server configurations that present it for any server name.
pub struct LeafCertificate {
    certified_key: Arc<CertifiedKey>,
    with_tickets: Arc<ServerConfig>,
    without_tickets: OnceLock<Arc<ServerConfig>>,
    base_configs: Arc<BaseServerConfigs>,
    expires_at: Instant,
    /// The wall times at which it is used. The wall clock may jump, and a suspended machine stops
    /// only the other clock.
    wall_times: Range<SystemTime>,
}

/// The support for resuming a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionTickets {
    /// Resumption by a ticket that contains the whole session, so that no state is kept. rustls
    /// resumes only for the same server name.
    Stateless,
    /// No resumption: for clients without a server name, whose session would not be tied to a host.
    None,
}

/// The reason why no certificate was issued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// The client has exceeded its rate, and its turn did not come in time.
    #[error("too many certificates issued for this client")]
    RateLimited,
    /// The host cannot be certified, or the authority has expired.
    #[error("cannot issue a certificate: {0}")]
    Failed(String),
}

impl CertificateIssuer {
    /// Creates an issuer that caches at most `cache_capacity` certificates. A client may have
    /// `per_second` certificates issued, and after a rest ten times as many at once. Publishes the
    /// authority's expiry as a metric.
    ///
    /// # Errors
    /// Returns an error if the cryptography library cannot generate random numbers.
    pub fn new(
        authority: CertificateAuthority,
        cache_capacity: u64,
        per_second: u32,
        clock: Clock,
        metrics: Metrics,
    ) -> Result<Self, IssueError> {
        metrics.set_ca_expiry(authority.not_after());
        Ok(Self {
            // The hosts of a crawl come one after another: the one used last is the most valuable.
            cache: Cache::builder()
                .max_capacity(cache_capacity)
                .eviction_policy(EvictionPolicy::lru())
                .time_to_live(CACHE_TTL)
                .build(),
            rate_limits: IssueRateLimits::new(per_second, clock.clone()),
            authority,
            key: Mutex::new(LeafKey::new(clock.now())?),
            base_configs: Arc::new(BaseServerConfigs::new()?),
            clock,
            metrics,
        })
    }

    /// Sets whether clients are offered HTTP/2, which is the default. Must be called before the
    /// first certificate is issued.
    #[must_use]
    pub fn with_http2(mut self, with_http2: bool) -> Self {
        if let Some(configs) = Arc::get_mut(&mut self.base_configs) {
            configs.set_http2(with_http2);
        }
        self
    }

    /// Returns the certificate for a host: a name in canonical form, an IPv4 address, or an IPv6
    /// address in brackets.
    ///
    /// A cached certificate costs one lookup. Otherwise it is issued once for all concurrent
    /// callers and counts towards the rate of `client`, which waits at most `timeout` if the rate
    /// is exceeded.
    ///
    /// # Errors
    /// Returns [`IssueError::RateLimited`] after `timeout`.
    pub async fn get_or_issue(
        &self,
        host: &str,
        client: IpAddr,
        timeout: Duration,
    ) -> Result<Arc<LeafCertificate>, IssueError> {
        if let Some(leaf) = self.cached(host) {
            return Ok(leaf);
        }
        let issued = Box::pin(self.issue_in_turn(host, client));
        tokio::time::timeout(timeout, issued)
            .await
            .unwrap_or(Err(IssueError::RateLimited))
    }

    /// Returns the authority that signs the certificates.
    pub fn authority(&self) -> &CertificateAuthority {
        &self.authority
    }

    /// Returns the number of cached certificates; for tests, after expired ones were removed.
    #[doc(hidden)]
    pub fn cached_certificates(&self) -> u64 {
        self.cache.run_pending_tasks();
        self.cache.entry_count()
    }

    fn cached(&self, host: &str) -> Option<Arc<LeafCertificate>> {
        let leaf = self.cache.get(host)?;
        let in_time = self.clock.now() < leaf.expires_at;
        if in_time && leaf.wall_times.contains(&self.clock.wall_time()) {
            return Some(leaf);
        }
        self.cache.invalidate(host);
        None
    }

    /// Serializes the handshakes of one client that need a certificate, so that several for one
    /// host count once.
    async fn issue_in_turn(
        &self,
        host: &str,
        client: IpAddr,
    ) -> Result<Arc<LeafCertificate>, IssueError> {
        let client = self.rate_limits.for_client(client);
        let mut is_recorded = client.is_rate_limited();
        if is_recorded {
            self.metrics.record_certificate_wait();
        }
        let _turn = client.wait_turn().await;
        loop {
            if let Some(leaf) = self.cached(host) {
                return Ok(leaf);
            }
            let Err(wait) = client.try_acquire() else {
                break;
            };
            if !is_recorded {
                self.metrics.record_certificate_wait();
                is_recorded = true;
            }
            tokio::time::sleep(wait).await;
        }
        self.issue_once(host)
    }

    /// Issues a certificate once. A concurrent handshake for the same host blocks its thread for
    /// the time of one signature.
    fn issue_once(&self, host: &str) -> Result<Arc<LeafCertificate>, IssueError> {
        self.cache
            .try_get_with_by_ref(host, || self.issue(host).map(Arc::new))
            .map_err(|error| IssueError::clone(&error))
    }

    /// Issues a certificate. A signature takes some ten microseconds, too little to move it to
    /// another thread.
    fn issue(&self, host: &str) -> Result<LeafCertificate, IssueError> {
        let now = self.clock.now();
        let wall = self.clock.wall_time();
        let not_after = (wall + VALIDITY).min(self.authority.not_after());
        let Ok(remaining) = not_after.duration_since(wall) else {
            return Err(IssueError::Failed(
                "the certificate authority has expired".into(),
            ));
        };
        let key = self.current_key(now)?;
        let mut params = certificate_params(host)?;
        params.not_before = to_offset_date_time(wall.checked_sub(BACKDATED).unwrap_or(wall));
        params.not_after = to_offset_date_time(not_after);
        let signed = params
            .signed_by(&*key.pair, self.authority.issuer())
            .map_err(to_issue_error)?;
        self.metrics.record_leaf_certificate();
        let use_for = remaining.min(CACHE_TTL);
        let earliest = wall.checked_sub(MAX_SETBACK).unwrap_or(wall);
        let certified = Arc::new(CertifiedKey::new(vec![signed.der().clone()], key.signing));
        Ok(LeafCertificate {
            with_tickets: self
                .base_configs
                .config(SessionTickets::Stateless, &certified),
            without_tickets: OnceLock::new(),
            base_configs: Arc::clone(&self.base_configs),
            certified_key: certified,
            expires_at: now + use_for,
            wall_times: earliest..wall + use_for,
        })
    }

    /// Returns the current key, which is replaced daily.
    fn current_key(&self, now: Instant) -> Result<LeafKey, IssueError> {
        let mut key = self.key.lock();
        if now.saturating_duration_since(key.created_at) >= DAY {
            *key = LeafKey::new(now)?;
        }
        Ok(key.clone())
    }
}

impl fmt::Debug for CertificateIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertificateIssuer({:?})", self.authority)
    }
}

impl LeafCertificate {
    /// Returns the server configuration. Cheap.
    pub fn server_config(&self, tickets: SessionTickets) -> Arc<ServerConfig> {
        match tickets {
            SessionTickets::Stateless => Arc::clone(&self.with_tickets),
            SessionTickets::None => Arc::clone(
                self.without_tickets
                    .get_or_init(|| self.base_configs.config(tickets, &self.certified_key)),
            ),
        }
    }

    /// Returns the certificate with its key.
    pub fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.certified_key
    }
}

impl fmt::Debug for LeafCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeafCertificate")
    }
}

/// The key of the certificates, never the authority's: shared by all that are issued within a day.
#[derive(Clone)]
struct LeafKey {
    pair: Arc<KeyPair>,
    signing: Arc<dyn SigningKey>,
    created_at: Instant,
}

impl LeafKey {
    fn new(created_at: Instant) -> Result<Self, IssueError> {
        let pair = KeyPair::generate().map_err(to_issue_error)?;
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pair.serialize_der()));
        let signing = aws_lc_rs::sign::any_ecdsa_type(&der).map_err(to_issue_error)?;
        Ok(Self {
            pair: Arc::new(pair),
            signing,
            created_at,
        })
    }
}

/// The server configurations without a certificate, with and without tickets. All hosts of an
/// authority share one ticketer: a session is tied to its host by its server name.
struct BaseServerConfigs {
    with_tickets: ServerConfig,
    without_tickets: ServerConfig,
}

impl BaseServerConfigs {
    fn set_http2(&mut self, with_http2: bool) {
        for config in [&mut self.with_tickets, &mut self.without_tickets] {
            config.alpn_protocols = alpn_protocols(with_http2);
        }
    }

    fn new() -> Result<Self, IssueError> {
        let mut none = base_config()?;
        none.send_tls13_tickets = 0;
        let mut stateless = none.clone();
        stateless.ticketer = aws_lc_rs::Ticketer::new().map_err(to_issue_error)?;
        // A ticket is used up by the next connection, whose handshake brings another one.
        stateless.send_tls13_tickets = 1;
        Ok(Self {
            with_tickets: stateless,
            without_tickets: none,
        })
    }

    fn config(&self, tickets: SessionTickets, key: &Arc<CertifiedKey>) -> Arc<ServerConfig> {
        let config = match tickets {
            SessionTickets::Stateless => &self.with_tickets,
            SessionTickets::None => &self.without_tickets,
        };
        let mut config = config.clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(Arc::clone(key)));
        Arc::new(config)
    }
}

/// Returns the protocols that are offered to clients.
pub(super) fn alpn_protocols(with_http2: bool) -> Vec<Vec<u8>> {
    let skipped = usize::from(!with_http2);
    let offered = ALPN_PROTOCOLS.into_iter().skip(skipped);
    offered.map(<[u8]>::to_vec).collect()
}

fn base_config() -> Result<ServerConfig, IssueError> {
    let provider: Arc<CryptoProvider> = Arc::new(super::provider::crypto_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(to_issue_error)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = alpn_protocols(true);
    config.max_early_data_size = 0;
    // With the client's order, most handshakes would use SHA-384.
    config.ignore_client_order = true;
    Ok(config)
}

/// Returns the parameters of a host's certificate, except for its validity.
fn certificate_params(host: &str) -> Result<CertificateParams, IssueError> {
    let (name, text) = subject_name(host)?;
    let mut params = CertificateParams::default();
    params.serial_number = Some(random_serial().map_err(to_issue_error)?);
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::OrganizationName, "crawlgate");
    if text.len() < MAX_COMMON_NAME {
        distinguished.push(DnType::CommonName, text);
    }
    params.distinguished_name = distinguished;
    params.subject_alt_names = vec![name];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // The authority's own key identifier, byte for byte: recomputed ones are refused by strict clients.
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// Returns `true` if a certificate can be issued for this host: a canonical DNS name or an address.
pub fn is_certifiable(host: &str) -> bool {
    subject_name(host).is_ok()
}

/// Returns the host as an alternative name, and as text without brackets.
fn subject_name(host: &str) -> Result<(SanType, &str), IssueError> {
    if let Some(address) = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let ip: Ipv6Addr = address.parse().map_err(|_| uncertifiable())?;
        return Ok((SanType::IpAddress(ip.into()), address));
    }
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return Ok((SanType::IpAddress(ip.into()), host));
    }
    if host.ends_with('.') || DnsName::try_from(host).is_err() {
        return Err(uncertifiable());
    }
    Ok((
        SanType::DnsName(Ia5String::try_from(host).map_err(|_| uncertifiable())?),
        host,
    ))
}

fn uncertifiable() -> IssueError {
    IssueError::Failed("the host is neither a DNS name nor an address".into())
}

fn to_issue_error(error: impl fmt::Display) -> IssueError {
    IssueError::Failed(error.to_string())
}
