//! Settings, ready to run: every value typed, checked and with its default; every path resolved.
//!
//! These are plain values for whoever starts the parts of crawlgate. Where they come from is `load`'s business,
//! what they look like in a file is `file`'s. [`Default`] is the contract: what holds without a file.

mod egress;
mod ledger;
mod limits;
mod telemetry;
mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::model::profile::Profile;
use crate::model::rule_id::Slug;
use crate::pipeline::crawlers::{AnonymousAccess, CrawlerRegistration};

pub use egress::{EgressConfig, PortRange, PortSet, PrivateNetworkException, ResolverSetting};
pub use ledger::{EventsConfig, LedgerConfig, LedgerMode};
pub use limits::{LimitsConfig, TimeoutsConfig};
pub use telemetry::{MetricsLevel, OtlpConfig, TelemetryConfig};
pub use tls::{AuthorityFiles, TlsConfig, TrustRoots};

/// All settings of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where crawlers connect.
    pub listen: Vec<ListenerConfig>,
    /// The crawlers that are known, and what shows who they are.
    pub crawlers: Vec<CrawlerRegistration>,
    /// Whether clients without a name may ask.
    pub anonymous: AnonymousAccess,
    /// The admin listener.
    pub admin: AdminConfig,
    /// Where the policy is.
    pub policy: PolicyConfig,
    /// Which profile answers.
    pub profile: ProfileSetting,
    /// TLS towards crawlers and origins.
    pub tls: TlsConfig,
    /// Where requests may go.
    pub egress: EgressConfig,
    /// What is kept over a restart.
    pub store: StoreConfig,
    /// What is remembered of URLs.
    pub ledger: LedgerConfig,
    /// Sizes and counts.
    pub limits: LimitsConfig,
    /// Durations.
    pub timeouts: TimeoutsConfig,
    /// How many threads work.
    pub workers: WorkerCount,
    /// The decision log.
    pub logs: LogsConfig,
    /// What is counted, and what is told to other programs.
    pub telemetry: TelemetryConfig,
}

/// Where crawlers connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The address.
    pub address: SocketAddr,
    /// The crawler that everybody is who connects here; one of [`Settings::crawlers`].
    pub crawler: Option<Slug>,
}

impl ListenerConfig {
    /// A listener for whoever comes.
    pub fn for_all(address: SocketAddr) -> Self {
        Self {
            address,
            crawler: None,
        }
    }
}

/// The admin listener: metrics, health and the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Its address.
    pub listen: SocketAddr,
    /// The file with its token; off loopback there must be one.
    pub token_file: Option<PathBuf>,
    /// Names by which it may be asked, beside its address: `NAME` with any port, or `NAME:PORT`.
    pub names: Vec<String>,
}

/// Where the policy is, and whether it is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// The policy to run under.
    pub origin: PolicyOrigin,
    /// Whether a change of its files reloads it.
    pub watch: bool,
    /// The policy that is judged beside it, counted and logged, without any effect.
    pub shadow: Option<PathBuf>,
}

/// The policy to run under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyOrigin {
    /// A file, or a directory that makes one document.
    Path(PathBuf),
    /// The policy inside the binary: allow, robots, politeness.
    BuiltIn,
}

/// What is kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The directory; made when something is first kept. `None` keeps nothing: for a tour.
    pub path: Option<PathBuf>,
}

/// How a crawler's profile is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileSetting {
    /// From each request's `User-Agent`.
    ByUserAgent,
    /// One for all.
    Fixed(Profile),
}

impl ProfileSetting {
    /// The profile for a request with this `User-Agent` (empty if it has none).
    pub fn for_user_agent(self, agent: &[u8]) -> Profile {
        match self {
            Self::ByUserAgent => Profile::from_user_agent(agent),
            Self::Fixed(profile) => profile,
        }
    }
}

/// How many threads work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerCount {
    /// One for each core.
    Auto,
    /// So many, at least 1; with 1 everything runs on one thread.
    Count(usize),
}

/// The decision log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogsConfig {
    /// Where its lines go.
    pub decisions: LogTarget,
    /// How a line is written.
    pub format: LogFormat,
    /// When a file is rotated; `None` is never.
    pub rotate: Option<RotateConfig>,
    /// The share of allowed requests that is logged, 0 to 1; refusals always are.
    pub allows: f64,
    /// What happens when the log cannot keep up.
    pub on_full: OnFullSetting,
    /// Whether queries are left out of logged URLs.
    pub redact_query: bool,
}

/// Where the decision log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// Nowhere.
    Discard,
    /// This file, appended to.
    File(PathBuf),
}

/// How a line of the decision log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A JSON object.
    Json,
    /// As in Squid's `access.log`.
    Squid,
}

impl LogFormat {
    /// Every format, in the order of the documentation.
    pub const ALL: [Self; 2] = [Self::Json, Self::Squid];

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Squid => "squid",
        }
    }
}

/// When the decision log's file is rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotateConfig {
    /// Bytes that a file may have.
    pub size: u64,
    /// How many older files are kept.
    pub keep: u32,
}

impl Default for RotateConfig {
    fn default() -> Self {
        Self {
            size: 256 << 20,
            keep: 8,
        }
    }
}

/// What happens when the decision log cannot keep up or its disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFullSetting {
    /// The line is dropped and counted.
    Drop,
    /// The request waits.
    Wait,
}

impl OnFullSetting {
    /// Every choice, in the order of the documentation.
    pub const ALL: [Self; 2] = [Self::Drop, Self::Wait];

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Wait => "wait",
        }
    }
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

impl Default for Settings {
    /// What holds without a file.
    ///
    /// Loopback only, since a proxy that anybody can reach is an open relay; the policy is the built-in one, since
    /// only `load` knows whether there is a file.
    fn default() -> Self {
        Self {
            listen: vec![ListenerConfig::for_all(SocketAddr::new(LOOPBACK, 3128))],
            crawlers: Vec::new(),
            anonymous: AnonymousAccess::Allow,
            admin: AdminConfig::default(),
            policy: PolicyConfig {
                origin: PolicyOrigin::BuiltIn,
                watch: true,
                shadow: None,
            },
            profile: ProfileSetting::ByUserAgent,
            tls: TlsConfig::default(),
            egress: EgressConfig::default(),
            store: StoreConfig::default(),
            ledger: LedgerConfig::default(),
            limits: LimitsConfig::default(),
            timeouts: TimeoutsConfig::default(),
            workers: WorkerCount::Auto,
            logs: LogsConfig::default(),
            telemetry: TelemetryConfig::default(),
        }
    }
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(LOOPBACK, 3129),
            token_file: None,
            names: Vec::new(),
        }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            path: Some("var/crawlgate".into()),
        }
    }
}

impl Default for LogsConfig {
    fn default() -> Self {
        Self {
            decisions: LogTarget::Stderr,
            format: LogFormat::Json,
            rotate: Some(RotateConfig::default()),
            allows: 1.0,
            on_full: OnFullSetting::Drop,
            redact_query: false,
        }
    }
}

impl Settings {
    /// Why `run` would refuse these settings although each of them is well-formed; empty if it would not.
    ///
    /// A proxy listener off loopback needs something that says who may use it: source networks, or passwords for
    /// everybody.
    pub fn safety_errors(&self) -> Vec<String> {
        let reachable = self
            .listen
            .iter()
            .filter(|l| !l.address.ip().to_canonical().is_loopback());
        let mut dangers: Vec<String> = reachable
            .filter_map(|listener| self.open_relay_error(listener))
            .collect();
        if !self.admin.listen.ip().to_canonical().is_loopback() && self.admin.token_file.is_none() {
            dangers.push(open_admin_message(&self.admin.listen));
        }
        dangers
    }

    /// Why anybody who reaches a listener could fetch through it.
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

fn open_relay_message(listen: SocketAddr) -> String {
    format!(
        "listening on {listen} would make an open relay: anybody who reaches it could fetch through it. \
         Say who may: `anonymous: deny` and crawlers with `auth`, or crawlers with `sources`, the networks they come \
         from; or listen on loopback (127.0.0.1:{port} or [::1]:{port})",
        port = listen.port()
    )
}

fn open_crawler_listener_message(listen: SocketAddr, crawler: &Slug) -> String {
    format!(
        "listening on {listen} for crawler {crawler} would make an open relay: anybody who reaches it would be \
         {crawler}. Give {crawler} `sources`, the networks it comes from, or listen on loopback \
         (127.0.0.1:{port} or [::1]:{port})",
        port = listen.port()
    )
}

fn open_admin_message(listen: &SocketAddr) -> String {
    format!(
        "the admin listener {listen} is off loopback and has no token: write a secret to a file and name it in \
         admin.token_file, or listen on 127.0.0.1:{}",
        listen.port()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_the_only_safe_place_without_names_and_tokens() {
        let dangers = |listen: &str, admin: &str, token: Option<&str>| {
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
        };
        assert_eq!(Settings::default().safety_errors(), Vec::<String>::new());
        assert_eq!(dangers("[::1]:1", "127.9.9.9:2", None), 0);
        assert_eq!(dangers("[::ffff:127.0.0.1]:1", "[::1]:2", None), 0);
        assert_eq!(dangers("0.0.0.0:1", "127.0.0.1:2", None), 1);
        assert_eq!(dangers("[::]:1", "10.0.0.1:2", None), 2);
        assert_eq!(dangers("127.0.0.1:1", "10.0.0.1:2", Some("token")), 0);
    }
}
