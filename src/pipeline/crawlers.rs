//! The crawlers of the configuration, and how a client is recognized as one of them.
//!
//! A client is the first of these: the crawler whose credentials it sends; the crawler of the listener that it
//! connected to (if that crawler has source networks: only from there); the crawler whose source network contains its
//! address, the smallest network first; anonymous, if that is allowed and the client is on this machine. Wrong
//! credentials are never ignored in favour of a weaker sign: the request is refused. If no crawler has credentials,
//! they mean nothing and are not read.
//!
//! This module reads the request's head; `stage/identify.rs` refuses the request.

mod basic_auth;
mod hash_queue;
pub mod password;
mod source_table;
mod throttle;
mod verifier;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use http::HeaderMap;
use http::header::PROXY_AUTHORIZATION;
use ipnet::IpNet;

use crate::clock::Clock;
use crate::metrics::{CrawlerIndex, Metrics};
use crate::model::crawler::Crawler;
use crate::model::rule_id::Slug;
use crate::model::words::words;

use password::PasswordHash;
use verifier::{CredentialVerifier, ReferenceHash};

/// A crawler, and the signs by which a client is recognized as it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrawlerRegistration {
    /// The crawler that is recognized.
    pub crawler: Crawler,
    /// The credentials that it sends.
    pub auth: Option<StoredCredentials>,
    /// The networks that it connects from.
    pub sources: Vec<IpNet>,
}

/// Basic credentials (RFC 7617).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCredentials {
    /// The name of the user, which contains no colon.
    pub user: Box<str>,
    /// The hash of the password.
    pub password: PasswordHash,
}

words! {
    /// The treatment of clients that are not recognized.
    pub enum AnonymousAccess {
        /// Clients on this machine may. Others must be recognized, since a proxy for everyone is an open relay.
        Allow = "allow",
        /// No client may.
        Deny = "deny",
    }
}

/// The crawler that sends a request, and its index in the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrawlerIdentity {
    /// The crawler, with its hints and profile.
    pub crawler: Crawler,
    /// Its index in the metrics.
    pub index: CrawlerIndex,
}

/// The cause of a failed identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationError {
    /// The client sent no credentials, and nothing else identifies it.
    MissingCredentials,
    /// The credentials do not parse, for this reason.
    MalformedCredentials(&'static str),
    /// The credentials are not those of any crawler.
    InvalidCredentials,
    /// Too many wrong credentials came from the address, so these were not checked. They may be after this time.
    Throttled(Duration),
    /// Too many credentials are being checked, so these were not.
    Busy,
    /// Another node of the fleet has identified a crawler that this node does not know.
    UnknownHere,
}

/// The crawlers of a proxy.
#[derive(Debug)]
pub struct CrawlerRegistry {
    identities: Box<[CrawlerIdentity]>,
    users: HashMap<Box<str>, (usize, PasswordHash)>,
    /// The hash that the passwords of unknown users are compared with; `None` if there are no users.
    decoy: Option<PasswordHash>,
    /// The smallest networks first.
    networks: Box<[(IpNet, usize)]>,
    anonymous: Option<CrawlerIdentity>,
    verifier: CredentialVerifier,
}

impl CrawlerRegistry {
    /// Registers the crawlers of a configuration. `metrics` must have been created for the same ones.
    ///
    /// # Errors
    /// If the system provides no random bytes.
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
        let users = numbered().filter_map(|(index, registration)| {
            let auth = registration.auth.as_ref()?;
            Some((auth.user.clone(), (index, auth.password.clone())))
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

    /// Creates the state of a client that has connected to a listener, which may have a crawler of its own.
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

    /// Creates the state of a client that another node of the fleet has identified as the crawler of this name.
    pub fn forwarded_client(&self, address: IpAddr, crawler: &str) -> ConnectedClient {
        let mut known = self.identities.iter().chain(&self.anonymous);
        let identity = known.find(|identity| identity.crawler.as_str() == crawler);
        ConnectedClient {
            address: address.to_canonical(),
            default_identity: identity.cloned(),
            credential_source: CredentialSource::Entry,
            last_verified: Mutex::default(),
        }
    }

    fn by_listener(&self, address: IpAddr, listener: Option<&Slug>) -> Option<&CrawlerIdentity> {
        let name = listener?.as_str();
        let index = self
            .identities
            .iter()
            .position(|crawler| crawler.crawler.as_str() == name)?;
        let mut sources = self
            .networks
            .iter()
            .filter(|(_, owner)| *owner == index)
            .peekable();
        let welcome =
            sources.peek().is_none() || sources.any(|(network, _)| network.contains(&address));
        self.identities.get(index).filter(|_| welcome)
    }

    fn by_source(&self, address: IpAddr) -> Option<&CrawlerIdentity> {
        let (_, index) = self
            .networks
            .iter()
            .find(|(network, _)| network.contains(&address))?;
        self.identities.get(*index)
    }

    /// Identifies the sender of a request with these header fields.
    ///
    /// # Errors
    /// If the sender is not recognized.
    pub async fn identify(
        &self,
        caller: &ConnectedClient,
        headers: &HeaderMap,
    ) -> Result<CrawlerIdentity, AuthenticationError> {
        let value = match caller.credential_source {
            CredentialSource::Headers if !self.users.is_empty() => headers.get(PROXY_AUTHORIZATION),
            CredentialSource::Headers | CredentialSource::Tunnel => None,
            CredentialSource::Entry => {
                return caller
                    .default_identity
                    .clone()
                    .ok_or(AuthenticationError::UnknownHere);
            }
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
        let index = Box::pin(self.verify_credentials(caller.address, value.as_bytes())).await?;
        let identity = self
            .identities
            .get(index)
            .ok_or(AuthenticationError::InvalidCredentials)?;
        caller.cache_identity(value.as_bytes(), identity);
        Ok(identity.clone())
    }

    async fn verify_credentials(
        &self,
        address: IpAddr,
        field: &[u8],
    ) -> Result<usize, AuthenticationError> {
        let credentials = basic_auth::BasicCredentials::parse(field)
            .map_err(AuthenticationError::MalformedCredentials)?;
        let user = self.users.get(credentials.user.as_str());
        let reference = match (user, &self.decoy) {
            (Some((_, hash)), _) => ReferenceHash::User(hash),
            (None, Some(decoy)) => ReferenceHash::Decoy(decoy),
            (None, None) => return Err(AuthenticationError::InvalidCredentials),
        };
        self.verifier
            .verify(address, &credentials, reference)
            .await?;
        user.map(|(index, _)| *index)
            .ok_or(AuthenticationError::InvalidCredentials)
    }
}

/// A client for the duration of its connection: what its address and its listener imply, and the credentials that it
/// sent last, so that a persistent connection pays for their check once.
#[derive(Debug)]
pub struct ConnectedClient {
    address: IpAddr,
    default_identity: Option<CrawlerIdentity>,
    credential_source: CredentialSource,
    last_verified: Mutex<Option<VerifiedCredentials>>,
}

/// Where credentials are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CredentialSource {
    /// From the head of each request.
    Headers,
    /// From nowhere: those of the CONNECT cover what is inside its tunnel.
    Tunnel,
    /// From nowhere: another node of the fleet has identified the crawler.
    Entry,
}

/// Credentials that were valid, in the form in which they were sent.
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
    /// Creates the state of the same client for a stream of its connection that outlives the
    /// others.
    pub fn for_stream(&self) -> Self {
        Self {
            address: self.address,
            default_identity: self.default_identity.clone(),
            credential_source: self.credential_source,
            last_verified: Mutex::default(),
        }
    }

    /// Creates the state of a client inside a tunnel, which is the client that opened it (undici sends credentials with
    /// CONNECT only).
    pub fn for_tunnel(address: IpAddr, opener: CrawlerIdentity) -> Self {
        let address = address.to_canonical();
        Self {
            address,
            default_identity: Some(opener),
            credential_source: CredentialSource::Tunnel,
            last_verified: Mutex::default(),
        }
    }

    /// Returns the client's address. An IPv4 address is never in IPv6 form.
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
