//! The crawlers that the configuration knows, and how a client is recognised as one of them.
//!
//! A client is, in this order: the crawler whose credentials it sends; the crawler of the listener that it came in by
//! (if that crawler has source networks: only from there); the crawler whose source network it is in, the smallest
//! first; anonymous, if that is allowed and it comes from this machine. Credentials that are wrong are never passed
//! over for a weaker sign: who sends them is refused. Where no crawler has any, they mean nothing and are not read.
//!
//! What a request's head says is read here; that a request is refused is `stage/identify`'s doing.

mod basic_auth;
pub mod password;
mod throttle;
mod verifier;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

use http::HeaderMap;
use http::header::PROXY_AUTHORIZATION;
use ipnet::IpNet;

use crate::clock::Clock;
use crate::metrics::{CrawlerIndex, Metrics};
use crate::model::crawler::Crawler;
use crate::model::rule_id::Slug;

use password::PasswordHash;
use verifier::{CredentialVerifier, ReferenceHash, VerificationOutcome};

/// A crawler, and what shows that a client is it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrawlerRegistration {
    /// The crawler.
    pub crawler: Crawler,
    /// Its credentials.
    pub auth: Option<StoredCredentials>,
    /// The networks it comes from.
    pub sources: Vec<IpNet>,
}

/// Basic credentials (RFC 7617).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCredentials {
    /// The user's name; never with a colon.
    pub user: Box<str>,
    /// The hash of the password.
    pub password: PasswordHash,
}

/// Whether clients without a name may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnonymousAccess {
    /// Those of this machine may; others need a name, since a proxy for anybody is an open relay.
    Allow,
    /// None may.
    Deny,
}

/// Who is asking, and where that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrawlerIdentity {
    /// The crawler.
    pub crawler: Crawler,
    /// Its place in the metrics.
    pub index: CrawlerIndex,
}

/// Why a client is nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationError {
    /// It sent no credentials, and nothing else names it.
    MissingCredentials,
    /// Its credentials cannot be read: what is wrong with them.
    MalformedCredentials(&'static str),
    /// No crawler has these credentials.
    InvalidCredentials,
    /// Too many wrong credentials came from its address: these were not looked at.
    Throttled,
    /// Too many credentials are being checked: these were not looked at.
    Busy,
}

/// All crawlers of one proxy.
#[derive(Debug)]
pub struct CrawlerRegistry {
    identities: Box<[CrawlerIdentity]>,
    users: HashMap<Box<str>, (usize, PasswordHash)>,
    /// What the passwords of unknown users are compared with; none if there are no users.
    decoy: Option<PasswordHash>,
    /// With the smallest networks first.
    networks: Box<[(IpNet, usize)]>,
    anonymous: Option<CrawlerIdentity>,
    verifier: CredentialVerifier,
}

impl CrawlerRegistry {
    /// The crawlers of a configuration; `metrics` were made for the same ones.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn new(
        registrations: &[CrawlerRegistration],
        anonymous: AnonymousAccess,
        metrics: &Metrics,
        clock: Clock,
    ) -> Result<Self, String> {
        let identity = |crawler: &Crawler| CrawlerIdentity {
            crawler: crawler.clone(),
            index: metrics.crawler_index(crawler.as_str()),
        };
        let numbered = || registrations.iter().enumerate();
        let users = numbered().filter_map(|(place, registration)| {
            let auth = registration.auth.as_ref()?;
            Some((auth.user.clone(), (place, auth.password.clone())))
        });
        let mut networks: Vec<(IpNet, usize)> = numbered()
            .flat_map(|(place, r)| r.sources.iter().map(move |net| (*net, place)))
            .collect();
        networks.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix_len()));
        Ok(Self {
            decoy: registrations
                .iter()
                .find_map(|r| Some(r.auth.as_ref()?.password.clone())),
            identities: registrations.iter().map(|r| identity(&r.crawler)).collect(),
            users: users.collect(),
            networks: networks.into(),
            anonymous: (anonymous == AnonymousAccess::Allow)
                .then(|| identity(&Crawler::anonymous())),
            verifier: CredentialVerifier::new(clock)?,
        })
    }

    /// A client that has connected, to a listener that may have a crawler of its own.
    pub fn new_client(&self, address: IpAddr, listener: Option<&Slug>) -> ConnectedClient {
        let address = address.to_canonical();
        let by_place = self
            .by_listener(address, listener)
            .or_else(|| self.by_source(address));
        let by_place =
            by_place.or_else(|| self.anonymous.as_ref().filter(|_| address.is_loopback()));
        ConnectedClient {
            address,
            default_identity: by_place.cloned(),
            credential_source: CredentialSource::Headers,
            last_verified: Mutex::default(),
        }
    }

    fn by_listener(&self, address: IpAddr, listener: Option<&Slug>) -> Option<&CrawlerIdentity> {
        let name = listener?.as_str();
        let place = self
            .identities
            .iter()
            .position(|known| known.crawler.as_str() == name)?;
        let mut sources = self
            .networks
            .iter()
            .filter(|(_, owner)| *owner == place)
            .peekable();
        let welcome =
            sources.peek().is_none() || sources.any(|(network, _)| network.contains(&address));
        self.identities.get(place).filter(|_| welcome)
    }

    fn by_source(&self, address: IpAddr) -> Option<&CrawlerIdentity> {
        let (_, place) = self
            .networks
            .iter()
            .find(|(network, _)| network.contains(&address))?;
        self.identities.get(*place)
    }

    /// Who sends a request with these fields.
    ///
    /// # Errors
    /// Why it is nobody.
    pub async fn identify(
        &self,
        caller: &ConnectedClient,
        headers: &HeaderMap,
    ) -> Result<CrawlerIdentity, AuthenticationError> {
        let value = match caller.credential_source {
            CredentialSource::Headers if !self.users.is_empty() => headers.get(PROXY_AUTHORIZATION),
            CredentialSource::Headers | CredentialSource::Tunnel => None,
        };
        let Some(value) = value else {
            return caller
                .default_identity
                .clone()
                .ok_or(AuthenticationError::MissingCredentials);
        };
        if headers.get_all(PROXY_AUTHORIZATION).iter().nth(1).is_some() {
            return Err(AuthenticationError::MalformedCredentials(
                "more than one Proxy-Authorization field",
            ));
        }
        if let Some(identity) = caller.cached_identity(value.as_bytes()) {
            return Ok(identity);
        }
        let place = Box::pin(self.verify_credentials(caller.address, value.as_bytes())).await?;
        let identity = self
            .identities
            .get(place)
            .ok_or(AuthenticationError::InvalidCredentials)?;
        caller.cache_identity(value.as_bytes(), identity);
        Ok(identity.clone())
    }

    async fn verify_credentials(
        &self,
        address: IpAddr,
        field: &[u8],
    ) -> Result<usize, AuthenticationError> {
        let given = basic_auth::BasicCredentials::parse(field)
            .map_err(AuthenticationError::MalformedCredentials)?;
        let known = self.users.get(given.user.as_str());
        let against = match (known, &self.decoy) {
            (Some((_, hash)), _) => ReferenceHash::User(hash),
            (None, Some(decoy)) => ReferenceHash::Decoy(decoy),
            (None, None) => return Err(AuthenticationError::InvalidCredentials),
        };
        match self.verifier.verify(address, &given, against).await {
            VerificationOutcome::Valid => known
                .map(|(place, _)| *place)
                .ok_or(AuthenticationError::InvalidCredentials),
            VerificationOutcome::Invalid => Err(AuthenticationError::InvalidCredentials),
            VerificationOutcome::Throttled => Err(AuthenticationError::Throttled),
            VerificationOutcome::Busy => Err(AuthenticationError::Busy),
        }
    }
}

/// A client for as long as its connection lives: what its address and its listener say of it, and the credentials
/// that it sent last, so that a kept connection pays for them once.
#[derive(Debug)]
pub struct ConnectedClient {
    address: IpAddr,
    default_identity: Option<CrawlerIdentity>,
    credential_source: CredentialSource,
    last_verified: Mutex<Option<VerifiedCredentials>>,
}

/// Whether credentials are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CredentialSource {
    /// In each request's head.
    Headers,
    /// No more: those of the CONNECT cover what is inside its tunnel.
    Tunnel,
}

/// Credentials that were right, in the form in which they came.
struct VerifiedCredentials {
    field: Box<[u8]>,
    identity: CrawlerIdentity,
}

impl std::fmt::Debug for VerifiedCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Remembered({})", self.identity.crawler)
    }
}

impl ConnectedClient {
    /// The sender of the requests inside a tunnel: whoever opened it (undici sends credentials with CONNECT only).
    pub fn for_tunnel(address: IpAddr, opener: CrawlerIdentity) -> Self {
        let address = address.to_canonical();
        Self {
            address,
            default_identity: Some(opener),
            credential_source: CredentialSource::Tunnel,
            last_verified: Mutex::default(),
        }
    }

    /// The client's address; an IPv4 one never in IPv6 form.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    fn cached_identity(&self, field: &[u8]) -> Option<CrawlerIdentity> {
        let last = self.last_verified.lock().ok()?;
        last.as_ref()
            .filter(|last| *last.field == *field)
            .map(|last| last.identity.clone())
    }

    fn cache_identity(&self, field: &[u8], identity: &CrawlerIdentity) {
        if let Ok(mut last) = self.last_verified.lock() {
            *last = Some(VerifiedCredentials {
                field: field.into(),
                identity: identity.clone(),
            });
        }
    }
}
