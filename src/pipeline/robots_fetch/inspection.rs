//! The proxy's memory of an origin, for operators: its robots.txt, and which of its addresses refuse connections.

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use crate::model::certificate_verification::CertificateVerification;
use crate::robots::agent::RobotsAgent;
use crate::robots::fetch_outcome::RobotsFetchOutcome;
use crate::robots::state::{RobotsRules, RobotsState};
use crate::robots::{RobotsAccess, RobotsFile};

/// Returns the known robots.txt of a host, given in canonical form, without any network traffic.
pub trait OriginInspector: Debug + Send + Sync {
    /// Returns its robots.txt for each scheme and port that was requested. May take a while if many hosts are known.
    fn robots(&self, host: &str) -> Vec<RobotsFileStatus>;

    /// Returns its addresses, as far as they are cached.
    fn addresses(&self, host: &str) -> Vec<IpAddr>;

    /// Returns those of its addresses that refuse connections, and for how long they are not tried.
    fn refusing_addresses(&self, host: &str) -> Vec<(SocketAddr, Duration)>;
}

/// The state of a robots.txt.
#[derive(Clone, Debug)]
pub struct RobotsFileStatus {
    /// `http` or `https`.
    pub scheme: Box<str>,
    /// The host, and the port if it is not the default of the scheme.
    pub authority: Box<str>,
    /// The verification of the host's certificate.
    pub verify: CertificateVerification,
    /// The state in a word: `known`, `none` (there is no such file), `allow-all` (the file counts as none), `stale` (an
    /// old file, since the host is unavailable) or `unreachable`.
    pub status: &'static str,
    /// The outcome of the last fetch, in the words of `crawlgate robots fetch`.
    pub outcome: &'static str,
    /// The status of the response.
    pub http_status: Option<u16>,
    /// The time of the last fetch.
    pub fetched: SystemTime,
    /// The time until which it is not fetched again.
    pub fresh_until: SystemTime,
    /// The file whose rules apply.
    pub file: Option<RobotsFileText>,
}

/// A robots.txt that was read.
#[derive(Clone, Debug)]
pub struct RobotsFileText(Arc<RobotsState>);

/// The decision about a URL for a crawler.
#[derive(Clone, Debug)]
pub struct UrlRuling {
    /// `true` if it may be fetched.
    pub allow: bool,
    /// The line that decided, counted from 1, and its text; `None` if none did.
    pub cause: Option<(u32, String)>,
    /// The user agent of the group that applies; `None` if no group is for the crawler.
    pub group: Option<String>,
}

impl RobotsFileStatus {
    /// Returns the state for `scheme://authority/`; `None` if that is not a URL of a host.
    pub fn new(
        base: &str,
        verify: CertificateVerification,
        state: &Arc<RobotsState>,
        (now, wall): (Instant, SystemTime),
    ) -> Option<Self> {
        let (scheme, rest) = base.split_once("://")?;
        let age = now.saturating_duration_since(state.fetched_at());
        let fetched = wall.checked_sub(age)?;
        let file = RobotsFileText::from_known(state);
        Some(Self {
            scheme: scheme.into(),
            authority: rest.trim_end_matches('/').into(),
            verify,
            status: match state.rules {
                RobotsRules::File(_) => "known",
                RobotsRules::AllowAll if state.outcome == RobotsFetchOutcome::Absent => "none",
                RobotsRules::AllowAll => "allow-all",
                RobotsRules::Unknown if file.is_some() => "stale",
                RobotsRules::Unknown => "unreachable",
            },
            outcome: state.outcome.as_str(),
            http_status: state.status,
            fetched,
            fresh_until: fetched.checked_add(state.fresh_for)?,
            file,
        })
    }
}

impl RobotsFileStatus {
    /// Returns the prefix of the URLs that it applies to: `http://host[:port]/`.
    pub fn base_url(&self) -> String {
        format!("{}://{}/", self.scheme, self.authority)
    }
}

impl RobotsFileText {
    /// Returns the file that applies: the current one, or the last one while the host is unavailable.
    fn from_known(state: &Arc<RobotsState>) -> Option<Self> {
        let file = Self(Arc::clone(state));
        file.rules().is_some().then_some(file)
    }

    fn rules(&self) -> Option<&RobotsFile> {
        match self.0.rules {
            RobotsRules::File(_) | RobotsRules::AllowAll => self.0.file(),
            RobotsRules::Unknown => self.0.stale().and_then(RobotsState::file),
        }
    }

    /// Returns the text, as far as it is read.
    pub fn text(&self) -> Bytes {
        self.rules()
            .map(|rules| rules.text().clone())
            .unwrap_or_default()
    }

    /// Returns the URLs of its sitemaps.
    pub fn sitemaps(&self) -> Vec<String> {
        self.rules()
            .into_iter()
            .flat_map(RobotsFile::sitemaps)
            .collect()
    }

    /// Returns the Crawl-delay for a crawler.
    pub fn crawl_delay(&self, agent: &str) -> Option<Duration> {
        self.rules()?.crawl_delay(parse_agent(agent))
    }

    /// Returns the decision about a path and query for a crawler.
    pub fn ruling(&self, agent: &str, path_and_query: &str) -> Option<UrlRuling> {
        let decision = self.rules()?.decide(parse_agent(agent), path_and_query);
        Some(UrlRuling {
            allow: decision.access == RobotsAccess::Allow,
            cause: decision
                .deciding_line
                .map(|cause| (cause.line, cause.text.into_owned())),
            group: decision.group.map(Into::into),
        })
    }
}

/// Parses a product token, a `User-Agent`, or `*`.
fn parse_agent(text: &str) -> RobotsAgent<'_> {
    RobotsAgent::from_user_agent(text).unwrap_or("*".into())
}
