//! Certificates for hosts: made when a client first asks for the host, kept for a day, shown to every client.
//!
//! A host is made once however many ask at a time, and each client pays for what it makes: over its rate a handshake
//! waits. Nothing is asked of the origin: crawlers look at names only. Whether a host is looked into at all is not
//! decided here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
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
/// For clients whose clock is behind.
const BACKDATED: Duration = DAY;
/// With [`BACKDATED`] seven days in all.
const VALIDITY: Duration = Duration::from_secs(6 * 24 * 60 * 60);
/// A certificate and the key in it are shown for so long at most.
const CACHE_TTL: Duration = DAY;
/// X.520, `ub-common-name`: a name that is not shorter stands in the alternative names only.
const MAX_COMMON_NAME: usize = 64;
/// What is spoken inside TLS. HTTP/2 goes in front of it once it can be judged there.
const ALPN_PROTOCOLS: [&[u8]; 1] = [b"http/1.1"];

/// Makes certificates for hosts, and keeps them.
pub struct CertificateIssuer {
    cache: Cache<String, Arc<LeafCertificate>>,
    rate_limits: IssueRateLimits,
    authority: CertificateAuthority,
    key: Mutex<LeafKey>,
    base_configs: Arc<BaseServerConfigs>,
    clock: Clock,
    metrics: Metrics,
}

/// The certificate of one host with the server's side of TLS that shows it, whatever name the client asks for.
pub struct LeafCertificate {
    certified_key: Arc<CertifiedKey>,
    with_tickets: Arc<ServerConfig>,
    without_tickets: OnceLock<Arc<ServerConfig>>,
    base_configs: Arc<BaseServerConfigs>,
    expires_at: Instant,
}

/// Whether a client can resume its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionTickets {
    /// By a ticket that holds all of the session; nothing is kept here. rustls resumes only for the same server name.
    Stateless,
    /// Not at all: for clients without a server name, whose session would not be tied to a host.
    None,
}

/// Why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssueError {
    /// The client has had so many made that its turn did not come within its patience.
    RateLimited,
    /// It cannot be made: the host is no name that can be certified, or the authority is over.
    Failed(String),
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RateLimited => f.write_str("too many certificates made for this client"),
            Self::Failed(why) => write!(f, "no certificate can be made: {why}"),
        }
    }
}

impl std::error::Error for IssueError {}

impl CertificateIssuer {
    /// Keeps at most `hosts_kept` certificates; a client may have `per_second` made, and at rest ten times as many at
    /// once. Tells the metrics when the authority expires.
    ///
    /// # Errors
    /// The cryptography library refuses, for want of random numbers.
    pub fn new(
        authority: CertificateAuthority,
        cache_capacity: u64,
        per_second: u32,
        clock: Clock,
        metrics: Metrics,
    ) -> Result<Self, IssueError> {
        metrics.set_ca_expiry(authority.not_after());
        Ok(Self {
            // The hosts of a crawl come one after another: the one that was asked for last is worth most.
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

    /// The certificate for a host: a name in canonical form, an IPv4 address, or an IPv6 address in brackets.
    ///
    /// One that is kept costs a look-up. Else it is made, once for all who ask meanwhile; `client` pays for it, and
    /// waits for at most `patience` if it has had too many made.
    ///
    /// # Errors
    /// [`IssueError::RateLimited`] when that time is over.
    pub async fn get_or_issue(
        &self,
        host: &str,
        client: IpAddr,
        patience: Duration,
    ) -> Result<Arc<LeafCertificate>, IssueError> {
        if let Some(leaf) = self.cached(host) {
            return Ok(leaf);
        }
        let made = Box::pin(self.issue_in_turn(host, client));
        tokio::time::timeout(patience, made)
            .await
            .unwrap_or(Err(IssueError::RateLimited))
    }

    /// The authority that signs.
    pub fn authority(&self) -> &CertificateAuthority {
        &self.authority
    }

    /// How many certificates are kept; for tests, after what is overdue was dropped.
    #[doc(hidden)]
    pub fn cached_certificates(&self) -> u64 {
        self.cache.run_pending_tasks();
        self.cache.entry_count()
    }

    fn cached(&self, host: &str) -> Option<Arc<LeafCertificate>> {
        let leaf = self.cache.get(host)?;
        if self.clock.now() < leaf.expires_at {
            return Some(leaf);
        }
        self.cache.invalidate(host);
        None
    }

    /// Handshakes of one client that need a certificate go one after another, so that several for one host pay once.
    async fn issue_in_turn(
        &self,
        host: &str,
        client: IpAddr,
    ) -> Result<Arc<LeafCertificate>, IssueError> {
        let client = self.rate_limits.for_client(client);
        let mut counted = client.is_rate_limited();
        if counted {
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
            if !counted {
                self.metrics.record_certificate_wait();
                counted = true;
            }
            tokio::time::sleep(wait).await;
        }
        self.issue_once(host)
    }

    /// Another client's handshake for the same host waits here, on its thread, for as long as a signature takes.
    fn issue_once(&self, host: &str) -> Result<Arc<LeafCertificate>, IssueError> {
        let made = self
            .cache
            .try_get_with_by_ref(host, || self.issue(host).map(Arc::new));
        made.map_err(|error| IssueError::clone(&error))
    }

    /// A signature takes some ten microseconds: no work to hand to another thread.
    fn issue(&self, host: &str) -> Result<LeafCertificate, IssueError> {
        let (now, wall) = (self.clock.now(), self.clock.wall_time());
        let not_after = (wall + VALIDITY).min(self.authority.not_after());
        let Ok(left) = not_after.duration_since(wall) else {
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
        let certified = Arc::new(CertifiedKey::new(vec![signed.der().clone()], key.signing));
        Ok(LeafCertificate {
            with_tickets: self
                .base_configs
                .config(SessionTickets::Stateless, &certified),
            without_tickets: OnceLock::new(),
            base_configs: Arc::clone(&self.base_configs),
            certified_key: certified,
            expires_at: now + left.min(CACHE_TTL),
        })
    }

    /// The key of today.
    fn current_key(&self, now: Instant) -> Result<LeafKey, IssueError> {
        let mut key = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(key.created_at) >= DAY {
            *key = LeafKey::new(now)?;
        }
        Ok(key.clone())
    }
}

impl fmt::Debug for CertificateIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Minter({:?})", self.authority)
    }
}

impl LeafCertificate {
    /// The server's side of TLS; cheap.
    pub fn server_config(&self, tickets: SessionTickets) -> Arc<ServerConfig> {
        match tickets {
            SessionTickets::Stateless => Arc::clone(&self.with_tickets),
            SessionTickets::None => Arc::clone(
                self.without_tickets
                    .get_or_init(|| self.base_configs.config(tickets, &self.certified_key)),
            ),
        }
    }

    /// The certificate with its key.
    pub fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.certified_key
    }
}

impl fmt::Debug for LeafCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leaf")
    }
}

/// The key in the certificates, never the authority's: shared by those made within a day.
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

/// The server's side of TLS without a certificate, with tickets and without. One ticketer for all hosts of an
/// authority: a session is tied to its host by the server name in it.
struct BaseServerConfigs {
    with_tickets: ServerConfig,
    without_tickets: ServerConfig,
}

impl BaseServerConfigs {
    fn new() -> Result<Self, IssueError> {
        let mut none = base_config()?;
        none.send_tls13_tickets = 0;
        let mut stateless = none.clone();
        stateless.ticketer = aws_lc_rs::Ticketer::new().map_err(to_issue_error)?;
        // It is spent by the next connection, whose handshake brings another one.
        stateless.send_tls13_tickets = 1;
        Ok(Self {
            with_tickets: stateless,
            without_tickets: none,
        })
    }

    fn config(&self, tickets: SessionTickets, key: &Arc<CertifiedKey>) -> Arc<ServerConfig> {
        let end = match tickets {
            SessionTickets::Stateless => &self.with_tickets,
            SessionTickets::None => &self.without_tickets,
        };
        let mut end = end.clone();
        end.cert_resolver = Arc::new(SingleCertAndKey::from(Arc::clone(key)));
        Arc::new(end)
    }
}

fn base_config() -> Result<ServerConfig, IssueError> {
    let provider: Arc<CryptoProvider> = Arc::new(super::provider::crypto_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(to_issue_error)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = ALPN_PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    config.max_early_data_size = 0;
    // The client's order would have most of them go by SHA-384.
    config.ignore_client_order = true;
    Ok(config)
}

/// What a host's certificate says, but for its time.
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

/// Whether there can be a certificate for this host: a canonical name that is a DNS name, or an address.
pub fn is_certifiable(host: &str) -> bool {
    subject_name(host).is_ok()
}

/// The host as an alternative name, and as text without brackets.
fn subject_name(host: &str) -> Result<(SanType, &str), IssueError> {
    let refused = || IssueError::Failed("the host is neither a DNS name nor an address".into());
    if let Some(address) = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let ip: Ipv6Addr = address.parse().map_err(|_| refused())?;
        return Ok((SanType::IpAddress(ip.into()), address));
    }
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return Ok((SanType::IpAddress(ip.into()), host));
    }
    if host.ends_with('.') || DnsName::try_from(host).is_err() {
        return Err(refused());
    }
    Ok((
        SanType::DnsName(Ia5String::try_from(host).map_err(|_| refused())?),
        host,
    ))
}

fn to_issue_error(error: impl fmt::Display) -> IssueError {
    IssueError::Failed(error.to_string())
}
