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

use super::ca::{Authority, offset, random_serial};
use super::rate::Rates;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// For clients whose clock is behind.
const BACKDATED: Duration = DAY;
/// With [`BACKDATED`] seven days in all.
const VALID: Duration = Duration::from_secs(6 * 24 * 60 * 60);
/// A certificate and the key in it are shown for so long at most.
const KEPT: Duration = DAY;
/// X.520, `ub-common-name`: a name that is not shorter stands in the alternative names only.
const COMMON_NAME: usize = 64;
/// What is spoken inside TLS. HTTP/2 goes in front of it once it can be judged there.
const PROTOCOLS: [&[u8]; 1] = [b"http/1.1"];

/// Makes certificates for hosts, and keeps them.
pub struct Minter {
    leaves: Cache<String, Arc<Leaf>>,
    rates: Rates,
    authority: Authority,
    key: Mutex<LeafKey>,
    ends: Arc<Ends>,
    clock: Clock,
    metrics: Metrics,
}

/// The certificate of one host with the server's side of TLS that shows it, whatever name the client asks for.
pub struct Leaf {
    key: Arc<CertifiedKey>,
    stateless: Arc<ServerConfig>,
    none: OnceLock<Arc<ServerConfig>>,
    ends: Arc<Ends>,
    until: Instant,
}

/// Whether a client can resume its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tickets {
    /// By a ticket that holds all of the session; nothing is kept here. rustls resumes only for the same server name.
    Stateless,
    /// Not at all: for clients without a server name, whose session would not be tied to a host.
    None,
}

/// Why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MintError {
    /// The client has had so many made that its turn did not come within its patience.
    Late,
    /// It cannot be made: the host is no name that can be certified, or the authority is over.
    Failed(String),
}

impl fmt::Display for MintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("too many certificates made for this client"),
            Self::Failed(why) => write!(f, "no certificate can be made: {why}"),
        }
    }
}

impl std::error::Error for MintError {}

impl Minter {
    /// Keeps at most `hosts_kept` certificates; a client may have `per_second` made, and at rest ten times as many at
    /// once. Tells the metrics when the authority expires.
    ///
    /// # Errors
    /// The cryptography library refuses, for want of random numbers.
    pub fn new(
        authority: Authority,
        hosts_kept: u64,
        per_second: u32,
        clock: Clock,
        metrics: Metrics,
    ) -> Result<Self, MintError> {
        metrics.ca_expires(authority.not_after());
        Ok(Self {
            // The hosts of a crawl come one after another: the one that was asked for last is worth most.
            leaves: Cache::builder()
                .max_capacity(hosts_kept)
                .eviction_policy(EvictionPolicy::lru())
                .time_to_live(KEPT)
                .build(),
            rates: Rates::new(per_second, clock.clone()),
            authority,
            key: Mutex::new(LeafKey::new(clock.now())?),
            ends: Arc::new(Ends::new()?),
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
    /// [`MintError::Late`] when that time is over.
    pub async fn leaf(
        &self,
        host: &str,
        client: IpAddr,
        patience: Duration,
    ) -> Result<Arc<Leaf>, MintError> {
        if let Some(leaf) = self.kept(host) {
            return Ok(leaf);
        }
        let made = Box::pin(self.in_turn(host, client));
        tokio::time::timeout(patience, made)
            .await
            .unwrap_or(Err(MintError::Late))
    }

    /// The authority that signs.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// How many certificates are kept; for tests, after what is overdue was dropped.
    #[doc(hidden)]
    pub fn hosts_kept(&self) -> u64 {
        self.leaves.run_pending_tasks();
        self.leaves.entry_count()
    }

    fn kept(&self, host: &str) -> Option<Arc<Leaf>> {
        let leaf = self.leaves.get(host)?;
        if self.clock.now() < leaf.until {
            return Some(leaf);
        }
        self.leaves.invalidate(host);
        None
    }

    /// Handshakes of one client that need a certificate go one after another, so that several for one host pay once.
    async fn in_turn(&self, host: &str, client: IpAddr) -> Result<Arc<Leaf>, MintError> {
        let client = self.rates.of(client);
        let mut counted = client.is_short();
        if counted {
            self.metrics.mint_waits();
        }
        let _turn = client.turn().await;
        loop {
            if let Some(leaf) = self.kept(host) {
                return Ok(leaf);
            }
            let Err(wait) = client.take() else { break };
            if !counted {
                self.metrics.mint_waits();
                counted = true;
            }
            tokio::time::sleep(wait).await;
        }
        self.once(host)
    }

    /// Another client's handshake for the same host waits here, on its thread, for as long as a signature takes.
    fn once(&self, host: &str) -> Result<Arc<Leaf>, MintError> {
        let made = self
            .leaves
            .try_get_with_by_ref(host, || self.mint(host).map(Arc::new));
        made.map_err(|error| MintError::clone(&error))
    }

    /// A signature takes some ten microseconds: no work to hand to another thread.
    fn mint(&self, host: &str) -> Result<Leaf, MintError> {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let not_after = (wall + VALID).min(self.authority.not_after());
        let Ok(left) = not_after.duration_since(wall) else {
            return Err(MintError::Failed(
                "the certificate authority has expired".into(),
            ));
        };
        let key = self.key(now)?;
        let mut params = params(host)?;
        params.not_before = offset(wall.checked_sub(BACKDATED).unwrap_or(wall));
        params.not_after = offset(not_after);
        let signed = params
            .signed_by(&*key.pair, self.authority.issuer())
            .map_err(failed)?;
        self.metrics.leaf_made();
        let certified = Arc::new(CertifiedKey::new(vec![signed.der().clone()], key.signing));
        Ok(Leaf {
            stateless: self.ends.config(Tickets::Stateless, &certified),
            none: OnceLock::new(),
            ends: Arc::clone(&self.ends),
            key: certified,
            until: now + left.min(KEPT),
        })
    }

    /// The key of today.
    fn key(&self, now: Instant) -> Result<LeafKey, MintError> {
        let mut key = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(key.made) >= DAY {
            *key = LeafKey::new(now)?;
        }
        Ok(key.clone())
    }
}

impl fmt::Debug for Minter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Minter({:?})", self.authority)
    }
}

impl Leaf {
    /// The server's side of TLS; cheap.
    pub fn config(&self, tickets: Tickets) -> Arc<ServerConfig> {
        match tickets {
            Tickets::Stateless => Arc::clone(&self.stateless),
            Tickets::None => Arc::clone(
                self.none
                    .get_or_init(|| self.ends.config(tickets, &self.key)),
            ),
        }
    }

    /// The certificate with its key.
    pub fn certified(&self) -> &Arc<CertifiedKey> {
        &self.key
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leaf")
    }
}

/// The key in the certificates, never the authority's: shared by those made within a day.
#[derive(Clone)]
struct LeafKey {
    pair: Arc<KeyPair>,
    signing: Arc<dyn SigningKey>,
    made: Instant,
}

impl LeafKey {
    fn new(made: Instant) -> Result<Self, MintError> {
        let pair = KeyPair::generate().map_err(failed)?;
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pair.serialize_der()));
        let signing = aws_lc_rs::sign::any_ecdsa_type(&der).map_err(failed)?;
        Ok(Self {
            pair: Arc::new(pair),
            signing,
            made,
        })
    }
}

/// The server's side of TLS without a certificate, with tickets and without. One ticketer for all hosts of an
/// authority: a session is tied to its host by the server name in it.
struct Ends {
    stateless: ServerConfig,
    none: ServerConfig,
}

impl Ends {
    fn new() -> Result<Self, MintError> {
        let mut none = bare()?;
        none.send_tls13_tickets = 0;
        let mut stateless = none.clone();
        stateless.ticketer = aws_lc_rs::Ticketer::new().map_err(failed)?;
        // It is spent by the next connection, whose handshake brings another one.
        stateless.send_tls13_tickets = 1;
        Ok(Self { stateless, none })
    }

    fn config(&self, tickets: Tickets, key: &Arc<CertifiedKey>) -> Arc<ServerConfig> {
        let end = match tickets {
            Tickets::Stateless => &self.stateless,
            Tickets::None => &self.none,
        };
        let mut end = end.clone();
        end.cert_resolver = Arc::new(SingleCertAndKey::from(Arc::clone(key)));
        Arc::new(end)
    }
}

fn bare() -> Result<ServerConfig, MintError> {
    let provider: Arc<CryptoProvider> = Arc::new(super::provider::provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    config.max_early_data_size = 0;
    // The client's order would have most of them go by SHA-384.
    config.ignore_client_order = true;
    Ok(config)
}

/// What a host's certificate says, but for its time.
fn params(host: &str) -> Result<CertificateParams, MintError> {
    let (name, text) = subject(host)?;
    let mut params = CertificateParams::default();
    params.serial_number = Some(random_serial().map_err(failed)?);
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::OrganizationName, "crawlgate");
    if text.len() < COMMON_NAME {
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
    subject(host).is_ok()
}

/// The host as an alternative name, and as text without brackets.
fn subject(host: &str) -> Result<(SanType, &str), MintError> {
    let refused = || MintError::Failed("the host is neither a DNS name nor an address".into());
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

fn failed(error: impl fmt::Display) -> MintError {
    MintError::Failed(error.to_string())
}
