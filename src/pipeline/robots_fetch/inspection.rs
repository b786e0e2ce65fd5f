//! What is remembered of an origin beyond the gate, for operators who look on: its robots.txt, and which of its addresses
//! refuse connections.

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use crate::model::certificate_verification::CertificateVerification;
use crate::robots::fetch_outcome::RobotsFetchOutcome;
use crate::robots::product_token::product_token;
use crate::robots::state::{RobotsRules, RobotsState};
use crate::robots::{RobotsAccess, RobotsFile};

/// Shows what is remembered of a host, given in canonical form, and asks nobody.
pub trait OriginInspector: Debug + Send + Sync {
    /// Its robots.txt, under every scheme and port that was asked for. It may take a while where many hosts are known.
    fn robots(&self, host: &str) -> Vec<RobotsFileStatus>;

    /// Its addresses, as far as they are known without asking.
    fn addresses(&self, host: &str) -> Vec<IpAddr>;

    /// Those of its addresses that refuse connections, and for how long they are taken to.
    fn refusing_addresses(&self, host: &str) -> Vec<(SocketAddr, Duration)>;
}

/// What is known of a robots.txt.
#[derive(Clone, Debug)]
pub struct RobotsFileStatus {
    /// `http` or `https`.
    pub scheme: Box<str>,
    /// The host, and the port where it is not the scheme's.
    pub authority: Box<str>,
    /// Whether the host has proved who it is, or need not.
    pub verify: CertificateVerification,
    /// One word for what holds: `known`, `none` (there is no such file), `allow-all` (what there is counts as none),
    /// `stale` (an old file, since the host cannot be reached) or `unreachable`.
    pub status: &'static str,
    /// How the last fetch ended; the words of `crawlgate robots fetch`.
    pub outcome: &'static str,
    /// The status of its answer.
    pub http_status: Option<u16>,
    /// When that was.
    pub fetched: SystemTime,
    /// Until when nobody asks again.
    pub fresh_until: SystemTime,
    /// The file whose rules hold.
    pub file: Option<RobotsFileText>,
}

/// A robots.txt that was read.
#[derive(Clone, Debug)]
pub struct RobotsFileText(Arc<RobotsState>);

/// What it says of a URL to a crawler.
#[derive(Clone, Debug)]
pub struct UrlRuling {
    /// Whether it may be fetched.
    pub allow: bool,
    /// The line that decided, by number from 1, and its text; none if none did.
    pub cause: Option<(u32, String)>,
    /// The user agent whose group was asked; none if no group is for the crawler.
    pub group: Option<String>,
}

impl RobotsFileStatus {
    /// What is known under `scheme://authority/`; `None` if that is nothing of the kind.
    pub fn new(
        base: &str,
        verify: CertificateVerification,
        known: &Arc<RobotsState>,
        (now, wall): (Instant, SystemTime),
    ) -> Option<Self> {
        let (scheme, rest) = base.split_once("://")?;
        let ago = now.saturating_duration_since(known.fetched_at());
        let fetched = wall.checked_sub(ago)?;
        let file = RobotsFileText::from_known(known);
        Some(Self {
            scheme: scheme.into(),
            authority: rest.trim_end_matches('/').into(),
            verify,
            status: match known.rules {
                RobotsRules::File(_) => "known",
                RobotsRules::AllowAll if known.outcome == RobotsFetchOutcome::Absent => "none",
                RobotsRules::AllowAll => "allow-all",
                RobotsRules::Unknown if file.is_some() => "stale",
                RobotsRules::Unknown => "unreachable",
            },
            outcome: known.outcome.as_str(),
            http_status: known.status,
            fetched,
            fresh_until: fetched.checked_add(known.fresh_for)?,
            file,
        })
    }
}

impl RobotsFileStatus {
    /// What the URLs of which it speaks begin with: `http://host[:port]/`.
    pub fn base_url(&self) -> String {
        format!("{}://{}/", self.scheme, self.authority)
    }
}

impl RobotsFileText {
    /// The file that holds: the one that is known, or the last that was while the host cannot be reached.
    fn from_known(known: &Arc<RobotsState>) -> Option<Self> {
        let file = Self(Arc::clone(known));
        file.rules().is_some().then_some(file)
    }

    fn rules(&self) -> Option<&RobotsFile> {
        match self.0.rules {
            RobotsRules::File(_) | RobotsRules::AllowAll => self.0.file(),
            RobotsRules::Unknown => self.0.stale().and_then(RobotsState::file),
        }
    }

    /// The text, as far as it is read.
    pub fn text(&self) -> Bytes {
        self.rules()
            .map(|rules| rules.text().clone())
            .unwrap_or_default()
    }

    /// Where it says that sitemaps are.
    pub fn sitemaps(&self) -> Vec<String> {
        self.rules()
            .into_iter()
            .flat_map(RobotsFile::sitemaps)
            .collect()
    }

    /// The Crawl-delay for a crawler.
    pub fn crawl_delay(&self, agent: &str) -> Option<Duration> {
        self.rules()?.crawl_delay(product_token(agent))
    }

    /// What it says of a path and query to a crawler.
    pub fn ruling(&self, agent: &str, path_and_query: &str) -> Option<UrlRuling> {
        let ruling = self.rules()?.decide(product_token(agent), path_and_query);
        Some(UrlRuling {
            allow: ruling.access == RobotsAccess::Allow,
            cause: ruling
                .deciding_line
                .map(|cause| (cause.line, cause.text.into_owned())),
            group: ruling.group.map(Into::into),
        })
    }
}
