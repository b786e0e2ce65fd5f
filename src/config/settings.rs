//! Settings, ready to run: every value typed, checked and with its default; every path resolved.
//!
//! The settings of a part of the proxy have the part's own type. [`Settings::default`] has the defaults of the
//! documentation.

mod fleet;
mod ledger;
mod telemetry;
mod tls;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;

use crate::admin::config::ConfigListing;
use crate::fleet::store::{PostgresConfig, StoreUrl};
use crate::identity::CrawlerKeys;
use crate::metrics::log::LogSettings;
use crate::model::rule_id::Slug;
use crate::model::words::words;
use crate::pipeline::admission::AdmissionLimits;
use crate::pipeline::crawlers::{AnonymousAccess, CrawlerRegistration};
use crate::proxy::accept::AcceptLimits;
use crate::proxy::destination::EgressRules;
use crate::proxy::dial::DialLimits;
use crate::proxy::head::{HeadLimits, HeadReaderSettings};
use crate::proxy::http2::Http2Settings;
use crate::proxy::local_reply::ProfileSelection;
use crate::proxy::parents::ParentProxyAddress;
use crate::proxy::pool::PoolLimits;
use crate::proxy::resolve::NameServers;
use crate::proxy::tunnel::TunnelSettings;
use crate::proxy::upstream::UpstreamLimits;

pub use fleet::FleetConfig;
pub use ledger::{EventsConfig, LedgerConfig, LedgerMode};
pub use telemetry::{OtlpConfig, SpanExportConfig, TelemetryConfig};
pub use tls::{AuthorityFiles, TlsConfig, TrustRoots};

/// All settings of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The listeners for crawlers.
    pub listen: Vec<ListenerConfig>,
    /// The crawlers, and how each is identified.
    pub crawlers: Vec<CrawlerRegistration>,
    /// The keys of those crawlers that origins recognize by signatures.
    pub identities: Vec<CrawlerKeys>,
    /// The address at which the key directories are served, if they are.
    pub identity_listen: Option<SocketAddr>,
    /// The treatment of clients that match no crawler.
    pub anonymous: AnonymousAccess,
    /// The admin listener.
    pub admin: AdminConfig,
    pub policy: PolicyConfig,
    /// The profile of responses that the proxy itself gives.
    pub profile: ProfileSelection,
    /// TLS with crawlers and origins.
    pub tls: TlsConfig,
    /// The destinations that requests may have.
    pub egress: EgressRules,
    /// The parent proxies through which the policy can send requests.
    pub parents: Vec<ParentConfig>,
    /// Name resolution.
    pub dns: DnsConfig,
    /// State that is kept over a restart.
    pub store: StoreConfig,
    pub ledger: LedgerConfig,
    /// This node's part in a fleet, if it is in one.
    pub fleet: Option<FleetConfig>,
    /// Limits of client connections.
    pub accept: AcceptLimits,
    /// The maximum size of a request body, in bytes.
    pub max_request_body: u64,
    /// Limits of waiting requests.
    pub admission: AdmissionLimits,
    /// Limits of requests to origins.
    pub upstream: UpstreamLimits,
    pub tunnels: TunnelSettings,
    /// The shutdown.
    pub drain: DrainConfig,
    /// The number of threads.
    pub workers: WorkerCount,
    /// The decision log.
    pub logs: LogSettings,
    /// Metrics and spans.
    pub telemetry: TelemetryConfig,
    /// The settings as they were written, for the admin page.
    pub listing: ConfigListing,
}

/// A listener for crawlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    pub address: SocketAddr,
    /// The crawler that every client of this listener is; one of [`Settings::crawlers`].
    pub crawler: Option<Slug>,
    /// The certificate, if clients connect with TLS.
    pub tls: Option<ListenerTlsFiles>,
    /// The networks of load balancers that name their clients by the PROXY protocol.
    pub proxy_protocol: Vec<IpNet>,
}

/// A parent proxy, or several that are equivalent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentConfig {
    pub name: Slug,
    pub proxies: Vec<ParentProxyAddress>,
    /// The user, and the file with the password.
    pub credentials: Option<(String, PathBuf)>,
    /// The interval at which a proxy that is up is checked.
    pub check_interval: Duration,
    /// `true` if the proxies are warcprox.
    pub is_warcprox: bool,
}

/// The certificate of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTlsFiles {
    /// The certificate and its chain (PEM).
    pub cert: PathBuf,
    /// The key (PEM), which only its owner may read.
    pub key: PathBuf,
}

impl ListenerConfig {
    /// Returns `true` if clients of other machines may reach the listener, directly or through a load
    /// balancer.
    fn may_serve_other_machines(&self) -> bool {
        !self.address.ip().to_canonical().is_loopback() || !self.proxy_protocol.is_empty()
    }

    /// Creates a listener for every client.
    pub fn for_all(address: SocketAddr) -> Self {
        Self {
            address,
            crawler: None,
            tls: None,
            proxy_protocol: Vec::new(),
        }
    }
}

/// The admin listener: metrics, health and the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// The address.
    pub listen: SocketAddr,
    /// The file with the token; required if the listener is not on loopback.
    pub token_file: Option<PathBuf>,
    /// Values of `Host` to accept besides the address: `NAME` with any port, or `NAME:PORT`.
    pub names: Vec<String>,
    /// The URL at which people reach the listener, without a slash at its end: refusals link to it.
    pub public_url: Option<Box<str>>,
}

/// The policy, and whether it is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// The source of the active policy.
    pub origin: PolicyOrigin,
    /// If set, the policy is reloaded when its files change.
    pub watch: bool,
    /// The shadow policy, which is evaluated, counted and logged, but has no effect.
    pub shadow: Option<PathBuf>,
    /// The contact for questions about the policy: refusals name it.
    pub contact: Option<Box<str>>,
}

/// The source of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyOrigin {
    /// A file, or a directory whose files form one document.
    Path(PathBuf),
    /// The built-in policy: allow, robots.txt, politeness.
    BuiltIn,
}

/// Name resolution.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsConfig {
    /// The servers that are queried.
    pub servers: NameServers,
    /// Names with fixed addresses, in canonical form. The addresses are checked like any other.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
    /// The time that a lookup may take.
    pub timeout: Duration,
}

/// State that is kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The directory, which is created when it is first needed. `None` keeps no state, as in a demo.
    pub path: Option<PathBuf>,
    /// Where the state that nodes share is.
    pub kind: StoreKind,
    /// The database of the fleet.
    pub url: Option<StoreUrl>,
    /// The time that a statement may take.
    pub timeout: Duration,
}

words! {
    /// Where the state that nodes share is.
    pub enum StoreKind {
        /// Nowhere: this proxy is the only one.
        Embedded = "embedded",
        /// In a database with the protocol of PostgreSQL.
        Postgres = "postgres",
    }
}

impl StoreConfig {
    /// Returns the database of the fleet, if there is one.
    pub fn postgres(&self) -> Option<PostgresConfig> {
        match (self.kind, &self.url) {
            (StoreKind::Postgres, Some(url)) => Some(PostgresConfig {
                url: url.clone(),
                timeout: self.timeout,
            }),
            (StoreKind::Postgres, None) | (StoreKind::Embedded, _) => None,
        }
    }
}

/// The shutdown after SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainConfig {
    /// The time for which connections are still accepted, so that load balancers can notice.
    pub delay: Duration,
    /// The time that running requests have to complete.
    pub timeout: Duration,
}

/// The number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerCount {
    /// One per core.
    Auto,
    /// A fixed number, at least 1. With 1 everything runs on one thread.
    Count(usize),
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

impl Default for Settings {
    /// Returns the settings that apply without a file, relative to the working directory.
    fn default() -> Self {
        Self::in_directory(Path::new(""))
    }
}

impl Settings {
    /// Returns the settings that apply without a file, with `certs/` and `var/` in this directory.
    ///
    /// Both listeners are on loopback, since a proxy that anyone can reach is an open relay. The policy is the built-in
    /// one; only `load` looks for a file.
    pub fn in_directory(directory: &Path) -> Self {
        Self {
            listen: vec![ListenerConfig::for_all(SocketAddr::new(LOOPBACK, 3128))],
            crawlers: Vec::new(),
            identities: Vec::new(),
            identity_listen: None,
            anonymous: AnonymousAccess::Allow,
            admin: AdminConfig::default(),
            policy: PolicyConfig {
                origin: PolicyOrigin::BuiltIn,
                watch: true,
                shadow: None,
                contact: None,
            },
            profile: ProfileSelection::ByUserAgent,
            tls: TlsConfig::in_directory(directory),
            egress: EgressRules {
                allow_private: Vec::new(),
                allow_loopback: false,
                ports: vec![80..=80, 443..=443, 1024..=65535],
                own_listeners: Vec::new(),
                bind: Vec::new(),
                parents: Vec::new(),
            },
            parents: Vec::new(),
            dns: DnsConfig {
                servers: NameServers::System,
                hosts: BTreeMap::new(),
                timeout: Duration::from_secs(5),
            },
            store: StoreConfig {
                path: Some(directory.join("var/crawlgate")),
                kind: StoreKind::Embedded,
                url: None,
                timeout: PostgresConfig::TIMEOUT,
            },
            ledger: LedgerConfig::default(),
            fleet: None,
            accept: default_accept_limits(),
            max_request_body: 10 << 20,
            admission: AdmissionLimits {
                per_host: 1_000,
                total: 10_000,
                max_wait: Duration::from_secs(60),
            },
            upstream: default_upstream_limits(),
            tunnels: default_tunnel_settings(),
            drain: DrainConfig {
                delay: Duration::ZERO,
                timeout: Duration::from_secs(30),
            },
            workers: WorkerCount::Auto,
            logs: LogSettings::default(),
            telemetry: TelemetryConfig::default(),
            listing: ConfigListing::default(),
        }
    }

    /// Returns the reasons why `run` refuses these settings although each of them is well-formed.
    ///
    /// A proxy listener off loopback requires that clients are restricted, by source networks or by passwords, and an
    /// admin listener off loopback requires a token.
    pub fn safety_errors(&self) -> Vec<String> {
        let mut errors: Vec<String> = self
            .listen
            .iter()
            .filter(|listener| listener.may_serve_other_machines())
            .filter_map(|listener| self.open_relay_error(listener))
            .collect();
        if !self.admin.listen.ip().to_canonical().is_loopback() && self.admin.token_file.is_none() {
            errors.push(open_admin_message(&self.admin.listen));
        }
        errors.extend(self.fleet.iter().flat_map(FleetConfig::safety_errors));
        errors.extend(self.store_error());
        if self.identity_listen.is_some() && self.identities.is_empty() {
            errors.push(
                "identity.listen: no crawler has keys to publish: give one `identity: { key: FILE, directory: URL }`"
                    .to_owned(),
            );
        }
        errors
    }

    /// Returns the message if `store` and `fleet` do not fit.
    fn store_error(&self) -> Option<String> {
        let store = &self.store;
        let message = match (store.kind, &store.url, &self.fleet) {
            (StoreKind::Embedded, _, Some(_)) => {
                "fleet: the nodes of a fleet need a database that says who owns a host: set store.kind to postgres, and \
                 store.url"
            }
            (StoreKind::Embedded, Some(_), None) => {
                "store.url has no effect with store.kind: embedded: set store.kind to postgres, or remove the URL"
            }
            (StoreKind::Postgres, None, _) => {
                "store.kind is postgres, but store.url is missing, such as \
                 postgresql://crawlgate:${PGPASSWORD}@db.internal/crawlgate"
            }
            (StoreKind::Postgres, Some(_), None) => {
                "store.kind is postgres, but this proxy is in no fleet: only the nodes of a fleet use the database. Add \
                 fleet.node and fleet.listen, or set store.kind to embedded"
            }
            (StoreKind::Postgres, Some(_), Some(fleet)) if store.timeout > fleet.lease * 2 / 5 => {
                "store.timeout is longer than two fifths of fleet.lease: one slow answer would end the lease"
            }
            (StoreKind::Embedded, None, None) | (StoreKind::Postgres, Some(_), Some(_)) => {
                return None;
            }
        };
        Some(message.to_owned())
    }

    /// Returns the message if any client that reaches a listener could use it.
    fn open_relay_error(&self, listener: &ListenerConfig) -> Option<String> {
        let mut sources = self
            .crawlers
            .iter()
            .filter(|crawler| !crawler.sources.is_empty());
        match &listener.crawler {
            Some(name) if !sources.any(|c| c.crawler.as_str() == name.as_str()) => {
                Some(open_crawler_listener_message(listener.address, name))
            }
            None if self.anonymous == AnonymousAccess::Allow && sources.next().is_none() => {
                Some(open_relay_message(listener.address))
            }
            Some(_) | None => None,
        }
    }
}

/// The default limits of connecting, for requests and for tunnels.
const DIAL_LIMITS: DialLimits = DialLimits {
    connect: Duration::from_secs(5),
    total: Duration::from_secs(10),
};

fn default_accept_limits() -> AcceptLimits {
    AcceptLimits {
        connections: 10_000,
        per_client: 1_000,
        overload_replies: 256,
        reader: HeadReaderSettings {
            limits: HeadLimits {
                bytes: 32 << 10,
                fields: 100,
                target: 8 << 10,
            },
            head: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            write_stall: Duration::from_secs(60),
        },
        http2: Http2Settings {
            clients: true,
            prior_knowledge: false,
            streams: 100,
            resets: 100,
        },
    }
}

fn default_upstream_limits() -> UpstreamLimits {
    UpstreamLimits {
        dial: DIAL_LIMITS,
        pool: PoolLimits {
            per_host: 2,
            total: 1_024,
            idle: Duration::from_secs(60),
        },
        response_head_timeout: Duration::from_secs(60),
        body_idle_timeout: Duration::from_secs(60),
        body_timeout: Duration::from_secs(600),
        max_head_size: 128 << 10,
        max_fields: 256,
    }
}

fn default_tunnel_settings() -> TunnelSettings {
    TunnelSettings {
        connect_ports: vec![80..=80, 443..=443],
        tls_ports: vec![443..=443],
        per_host: 32,
        dial: DIAL_LIMITS,
        hello: Duration::from_secs(10),
        idle: Duration::from_secs(300),
        total: Duration::from_secs(3_600),
    }
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(LOOPBACK, 3129),
            token_file: None,
            names: Vec::new(),
            public_url: None,
        }
    }
}

fn open_relay_message(listen: SocketAddr) -> String {
    format!(
        "listening on {listen} would make an open relay: any client that reaches it could use it. \
         Restrict the clients: `anonymous: deny` and crawlers with `auth`, or crawlers with `sources`, the networks they \
         connect from; or listen on loopback (127.0.0.1:{port} or [::1]:{port})",
        port = listen.port()
    )
}

fn open_crawler_listener_message(listen: SocketAddr, crawler: &Slug) -> String {
    format!(
        "listening on {listen} for crawler {crawler} would make an open relay: any client that reaches it would be \
         {crawler}. Give {crawler} `sources`, the networks it connects from, or listen on loopback \
         (127.0.0.1:{port} or [::1]:{port})",
        port = listen.port()
    )
}

fn open_admin_message(listen: &SocketAddr) -> String {
    format!(
        "the admin listener {listen} is not on loopback and has no token: write a secret to a file and name it in \
         admin.token_file, or listen on 127.0.0.1:{}",
        listen.port()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_the_only_safe_place_without_names_and_tokens() {
        fn count_errors(listen: &str, admin: &str, token: Option<&str>) -> usize {
            let settings = Settings {
                listen: vec![ListenerConfig::for_all(listen.parse().unwrap())],
                admin: AdminConfig {
                    listen: admin.parse().unwrap(),
                    token_file: token.map(Into::into),
                    ..AdminConfig::default()
                },
                ..Settings::default()
            };
            settings.safety_errors().len()
        }
        assert_eq!(Settings::default().safety_errors(), Vec::<String>::new());
        assert_eq!(count_errors("[::1]:1", "127.9.9.9:2", None), 0);
        assert_eq!(count_errors("[::ffff:127.0.0.1]:1", "[::1]:2", None), 0);
        assert_eq!(count_errors("0.0.0.0:1", "127.0.0.1:2", None), 1);
        assert_eq!(count_errors("[::]:1", "10.0.0.1:2", None), 2);
        assert_eq!(count_errors("127.0.0.1:1", "[::ffff:127.0.0.1]:2", None), 0);
        let balanced = Settings {
            listen: vec![ListenerConfig {
                proxy_protocol: vec!["127.0.0.1/32".parse().unwrap()],
                ..ListenerConfig::for_all("127.0.0.1:1".parse().unwrap())
            }],
            ..Settings::default()
        };
        assert_eq!(balanced.safety_errors().len(), 1);
        for admin in ["10.0.0.1:2", "0.0.0.0:2", "[::]:2"] {
            assert_eq!(count_errors("127.0.0.1:1", admin, None), 1, "{admin}");
            assert_eq!(count_errors("127.0.0.1:1", admin, Some("token")), 0);
        }
    }
}
