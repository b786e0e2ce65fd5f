//! The identity of the client: a configured crawler, or `anonymous`.

use std::fmt;
use std::sync::Arc;

use super::profile::Profile;
use super::rule_id::Slug;
use super::words::words;

/// A crawler as configured: its name, its profile and the request headers that it may set. Clients
/// without a name are `anonymous`.
///
/// Cheap to clone: every request carries it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Crawler(Arc<CrawlerInner>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CrawlerInner {
    name: Arc<str>,
    profile: Option<Profile>,
    hints: Box<[CrawlerHint]>,
    robots_agent: Option<Box<str>>,
}

impl Crawler {
    /// The name of unidentified clients.
    pub const ANONYMOUS: &'static str = "anonymous";

    /// Creates the crawler for unidentified clients. None of its hints count.
    pub fn anonymous() -> Self {
        Self(Arc::new(CrawlerInner {
            name: Self::ANONYMOUS.into(),
            profile: None,
            hints: Box::default(),
            robots_agent: None,
        }))
    }

    /// Creates a crawler with a name, no profile and no hints.
    pub fn new(name: &Slug) -> Self {
        Self(Arc::new(CrawlerInner {
            name: name.shared(),
            profile: None,
            hints: Box::default(),
            robots_agent: None,
        }))
    }

    /// Sets the profile, which then applies whatever the `User-Agent`.
    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        Self(Arc::new(CrawlerInner {
            profile: Some(profile),
            ..Arc::unwrap_or_clone(self.0)
        }))
    }

    /// Sets the request headers that this crawler may use.
    #[must_use]
    pub fn with_hints(self, hints: impl IntoIterator<Item = CrawlerHint>) -> Self {
        Self(Arc::new(CrawlerInner {
            hints: hints.into_iter().collect(),
            ..Arc::unwrap_or_clone(self.0)
        }))
    }

    /// Sets the product token in robots.txt, which then applies whatever the `User-Agent`.
    #[must_use]
    pub fn with_robots_agent(self, token: &str) -> Self {
        Self(Arc::new(CrawlerInner {
            robots_agent: Some(token.into()),
            ..Arc::unwrap_or_clone(self.0)
        }))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0.name
    }

    pub fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.0.name)
    }

    /// The configured profile. `None` leaves the choice to the `User-Agent` or the general setting.
    pub fn profile(&self) -> Option<Profile> {
        self.0.profile
    }

    /// The configured product token in robots.txt. `None` leaves the choice to the `User-Agent`.
    pub fn robots_agent(&self) -> Option<&str> {
        self.0.robots_agent.as_deref()
    }

    /// Returns `true` if this crawler may use a request header. Headers that do not count are
    /// stripped as well.
    pub fn allows_hint(&self, hint: CrawlerHint) -> bool {
        self.0.hints.contains(&hint)
    }
}

impl fmt::Display for Crawler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

words! {
    /// A request header that counts only for crawlers that may use it.
    pub enum CrawlerHint {
        /// `Crawl-Priority`, or the urgency of `Priority` (RFC 9218).
        Priority = "priority",
        /// `Crawl-Max-Wait`, beyond the profile's maximum.
        Wait = "wait",
        /// `Crawl-Depth`.
        Depth = "depth",
        /// `Crawl-Trace`.
        Trace = "trace",
        /// `Cache-Control: no-cache`, which then overrides `recrawl.min_interval`.
        Recrawl = "recrawl",
        /// `Warcprox-Meta`.
        Warcprox = "warcprox",
    }
}
