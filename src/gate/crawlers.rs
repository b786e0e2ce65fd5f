//! The crawlers that the configuration knows, and how a client is recognised as one of them.
//!
//! A client is, in this order: the crawler whose credentials it sends; the crawler of the listener that it came in by
//! (if that crawler has source networks: only from there); the crawler whose source network it is in, the smallest
//! first; anonymous, if that is allowed and it comes from this machine. Credentials that are wrong are never passed
//! over for a weaker sign: who sends them is refused. Where no crawler has any, they mean nothing and are not read.
//!
//! What a request's head says is read here; that a request is refused is `stage/identify`'s doing.

mod basic;
mod check;
pub mod password;
mod throttle;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

use http::HeaderMap;
use http::header::PROXY_AUTHORIZATION;
use ipnet::IpNet;

use crate::clock::Clock;
use crate::metrics::{CrawlerIndex, Metrics};
use crate::vocab::crawler::Crawler;
use crate::vocab::rule_id::Slug;

use check::{Against, Checks, Outcome};
use password::PasswordHash;

/// A crawler, and what shows that a client is it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The crawler.
    pub crawler: Crawler,
    /// Its credentials.
    pub auth: Option<Auth>,
    /// The networks it comes from.
    pub sources: Vec<IpNet>,
}

/// Basic credentials (RFC 7617).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// The user's name; never with a colon.
    pub user: Box<str>,
    /// The hash of the password.
    pub password: PasswordHash,
}

/// Whether clients without a name may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anonymous {
    /// Those of this machine may; others need a name, since a proxy for anybody is an open relay.
    Allow,
    /// None may.
    Deny,
}

/// Who is asking, and where that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The crawler.
    pub crawler: Crawler,
    /// Its place in the metrics.
    pub index: CrawlerIndex,
}

/// Why a client is nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// It sent no credentials, and nothing else names it.
    Nameless,
    /// Its credentials cannot be read: what is wrong with them.
    Unreadable(&'static str),
    /// No crawler has these credentials.
    Wrong,
    /// Too many wrong credentials came from its address: these were not looked at.
    Throttled,
    /// Too many credentials are being checked: these were not looked at.
    Busy,
}

/// All crawlers of one proxy.
#[derive(Debug)]
pub struct Crawlers {
    known: Box<[Identity]>,
    users: HashMap<Box<str>, (usize, PasswordHash)>,
    /// What the passwords of unknown users are compared with; none if there are no users.
    decoy: Option<PasswordHash>,
    /// With the smallest networks first.
    networks: Box<[(IpNet, usize)]>,
    anonymous: Option<Identity>,
    checks: Checks,
}

impl Crawlers {
    /// The crawlers of a configuration; `metrics` were made for the same ones.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn new(
        registrations: &[Registration],
        anonymous: Anonymous,
        metrics: &Metrics,
        clock: Clock,
    ) -> Result<Self, String> {
        let identity = |crawler: &Crawler| Identity {
            crawler: crawler.clone(),
            index: metrics.crawler(crawler.as_str()),
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
            known: registrations.iter().map(|r| identity(&r.crawler)).collect(),
            users: users.collect(),
            networks: networks.into(),
            anonymous: (anonymous == Anonymous::Allow).then(|| identity(&Crawler::anonymous())),
            checks: Checks::new(clock)?,
        })
    }

    /// A client that has connected, to a listener that may have a crawler of its own.
    pub fn caller(&self, address: IpAddr, listener: Option<&Slug>) -> Caller {
        let address = address.to_canonical();
        let by_place = self
            .by_listener(address, listener)
            .or_else(|| self.by_source(address));
        let by_place =
            by_place.or_else(|| self.anonymous.as_ref().filter(|_| address.is_loopback()));
        Caller {
            address,
            by_place: by_place.cloned(),
            credentials: Reading::Headers,
            last: Mutex::default(),
        }
    }

    fn by_listener(&self, address: IpAddr, listener: Option<&Slug>) -> Option<&Identity> {
        let name = listener?.as_str();
        let place = self
            .known
            .iter()
            .position(|known| known.crawler.as_str() == name)?;
        let mut sources = self
            .networks
            .iter()
            .filter(|(_, owner)| *owner == place)
            .peekable();
        let welcome =
            sources.peek().is_none() || sources.any(|(network, _)| network.contains(&address));
        self.known.get(place).filter(|_| welcome)
    }

    fn by_source(&self, address: IpAddr) -> Option<&Identity> {
        let (_, place) = self
            .networks
            .iter()
            .find(|(network, _)| network.contains(&address))?;
        self.known.get(*place)
    }

    /// Who sends a request with these fields.
    ///
    /// # Errors
    /// Why it is nobody.
    pub async fn recognise(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Result<Identity, Stranger> {
        let value = match caller.credentials {
            Reading::Headers if !self.users.is_empty() => headers.get(PROXY_AUTHORIZATION),
            Reading::Headers | Reading::Settled => None,
        };
        let Some(value) = value else {
            return caller.by_place.clone().ok_or(Stranger::Nameless);
        };
        if headers.get_all(PROXY_AUTHORIZATION).iter().nth(1).is_some() {
            return Err(Stranger::Unreadable(
                "more than one Proxy-Authorization field",
            ));
        }
        if let Some(identity) = caller.remembered(value.as_bytes()) {
            return Ok(identity);
        }
        let place = Box::pin(self.check(caller.address, value.as_bytes())).await?;
        let identity = self.known.get(place).ok_or(Stranger::Wrong)?;
        caller.remember(value.as_bytes(), identity);
        Ok(identity.clone())
    }

    async fn check(&self, address: IpAddr, field: &[u8]) -> Result<usize, Stranger> {
        let given = basic::Credentials::read(field).map_err(Stranger::Unreadable)?;
        let known = self.users.get(given.user.as_str());
        let against = match (known, &self.decoy) {
            (Some((_, hash)), _) => Against::User(hash),
            (None, Some(decoy)) => Against::Decoy(decoy),
            (None, None) => return Err(Stranger::Wrong),
        };
        match self.checks.run(address, &given, against).await {
            Outcome::Right => known.map(|(place, _)| *place).ok_or(Stranger::Wrong),
            Outcome::Wrong => Err(Stranger::Wrong),
            Outcome::Throttled => Err(Stranger::Throttled),
            Outcome::Busy => Err(Stranger::Busy),
        }
    }
}

/// A client for as long as its connection lives: what its address and its listener say of it, and the credentials
/// that it sent last, so that a kept connection pays for them once.
#[derive(Debug)]
pub struct Caller {
    address: IpAddr,
    by_place: Option<Identity>,
    credentials: Reading,
    last: Mutex<Option<Remembered>>,
}

/// Whether credentials are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// In each request's head.
    Headers,
    /// No more: those of the CONNECT cover what is inside its tunnel.
    Settled,
}

/// Credentials that were right, in the form in which they came.
struct Remembered {
    field: Box<[u8]>,
    identity: Identity,
}

impl std::fmt::Debug for Remembered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Remembered({})", self.identity.crawler)
    }
}

impl Caller {
    /// The sender of the requests inside a tunnel: whoever opened it (undici sends credentials with CONNECT only).
    pub fn inside_tunnel(address: IpAddr, opener: Identity) -> Self {
        let address = address.to_canonical();
        Self {
            address,
            by_place: Some(opener),
            credentials: Reading::Settled,
            last: Mutex::default(),
        }
    }

    /// The client's address; an IPv4 one never in IPv6 form.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    fn remembered(&self, field: &[u8]) -> Option<Identity> {
        let last = self.last.lock().ok()?;
        last.as_ref()
            .filter(|last| *last.field == *field)
            .map(|last| last.identity.clone())
    }

    fn remember(&self, field: &[u8], identity: &Identity) {
        if let Ok(mut last) = self.last.lock() {
            *last = Some(Remembered {
                field: field.into(),
                identity: identity.clone(),
            });
        }
    }
}
