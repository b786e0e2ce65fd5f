//! Who is asking: a configured crawler, or `anonymous`.

use std::fmt;
use std::sync::Arc;

use super::profile::Profile;
use super::rule_id::Slug;

/// A crawler as configured: its name, how it is answered and which of its hints count; clients without a name are
/// `anonymous`.
///
/// Cheap to clone: every request carries it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Crawler(Arc<CrawlerInner>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CrawlerInner {
    name: Arc<str>,
    profile: Option<Profile>,
    hints: Box<[CrawlerHint]>,
}

impl Crawler {
    /// The name of a client that gave none.
    pub const ANONYMOUS: &'static str = "anonymous";

    /// A client without a name; none of its hints count.
    pub fn anonymous() -> Self {
        Self(Arc::new(CrawlerInner {
            name: Self::ANONYMOUS.into(),
            profile: None,
            hints: Box::default(),
        }))
    }

    /// A configured crawler that is known by its name only.
    pub fn new(name: &Slug) -> Self {
        Self(Arc::new(CrawlerInner {
            name: name.shared(),
            profile: None,
            hints: Box::default(),
        }))
    }

    /// The same crawler, answered in this way whatever its `User-Agent`.
    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        Self(Arc::new(CrawlerInner {
            profile: Some(profile),
            ..Arc::unwrap_or_clone(self.0)
        }))
    }

    /// The same crawler, with these request headers counting.
    #[must_use]
    pub fn with_hints(self, may: impl IntoIterator<Item = CrawlerHint>) -> Self {
        Self(Arc::new(CrawlerInner {
            hints: may.into_iter().collect(),
            ..Arc::unwrap_or_clone(self.0)
        }))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0.name
    }

    /// The same, to be kept without a copy.
    pub fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.0.name)
    }

    /// The profile that the configuration gives it; `None` leaves it to the `User-Agent` or the general setting.
    pub fn profile(&self) -> Option<Profile> {
        self.0.profile
    }

    /// Whether a request header of this crawler counts. Headers that do not count are stripped like those that do.
    pub fn allows_hint(&self, may: CrawlerHint) -> bool {
        self.0.hints.contains(&may)
    }
}

impl fmt::Display for Crawler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request header that counts only for crawlers that may send it (decisions.md section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrawlerHint {
    /// `Crawl-Priority`, or the urgency of `Priority` (RFC 9218).
    Priority,
    /// `Crawl-Max-Wait`, beyond the profile's longest hold.
    Wait,
    /// `Crawl-Depth`.
    Depth,
    /// `Crawl-Trace`.
    Trace,
    /// `Warcprox-Meta`.
    Warcprox,
}

impl CrawlerHint {
    /// Every hint, in the order of the documentation.
    pub const ALL: [Self; 5] = [
        Self::Priority,
        Self::Wait,
        Self::Depth,
        Self::Trace,
        Self::Warcprox,
    ];

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Priority => "priority",
            Self::Wait => "wait",
            Self::Depth => "depth",
            Self::Trace => "trace",
            Self::Warcprox => "warcprox",
        }
    }
}
