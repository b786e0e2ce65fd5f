//! The response of each kind of crawler profile: the mapping from an intent to a status on the
//! wire.
//!
//! Crawlers react to the same status in contradictory ways. All status numbers are in this one
//! table.

use std::time::Duration;

use super::intent::Intent;

/// A family of crawlers that interpret refusals in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// A client about which nothing is known.
    Generic,
    /// The statuses that RFC 9110 and RFC 9209 recommend.
    StrictHttp,
    /// Scrapy, which retries 429 and 5xx at once and treats 304 as an error.
    Scrapy,
    /// Crawlee, where 401, 403 and 429 retire a session and are fetched up to ten times.
    Crawlee,
    /// Browsertrix Crawler, where 403, 429 and 503 count as rate limits.
    Browsertrix,
    /// brozzler with warcprox, which expects `Warcprox-Meta`.
    Warcprox,
    /// Heritrix, which archives every response.
    Heritrix,
    /// Apache Nutch, where nearly every status counts against the host.
    Nutch,
    /// Apache StormCrawler, which deletes a page at the third error.
    StormCrawler,
    /// Norconex, where 404 deletes and 304 keeps.
    Norconex,
}

/// The presence of `If-None-Match` or `If-Modified-Since` in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditional {
    /// Present: the client accepts a 304.
    Yes,
    /// Absent.
    No,
}

/// The response on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireResponse {
    /// A response with this status.
    Status(u16),
    /// No response: the connection is closed, which the crawler takes for "try again later".
    Close,
}

impl Profile {
    /// All profiles, in the order of the documentation.
    pub const ALL: [Self; 10] = [
        Self::Generic,
        Self::StrictHttp,
        Self::Scrapy,
        Self::Crawlee,
        Self::Browsertrix,
        Self::Warcprox,
        Self::Heritrix,
        Self::Nutch,
        Self::StormCrawler,
        Self::Norconex,
    ];

    /// The name in the configuration and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::StrictHttp => "strict-http",
            Self::Scrapy => "scrapy",
            Self::Crawlee => "crawlee",
            Self::Browsertrix => "browsertrix",
            Self::Warcprox => "warcprox",
            Self::Heritrix => "heritrix",
            Self::Nutch => "nutch",
            Self::StormCrawler => "stormcrawler",
            Self::Norconex => "norconex",
        }
    }

    /// Parses the name in the configuration.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.as_str() == word)
    }

    /// Returns the profile that matches a `User-Agent`, else [`Generic`](Self::Generic).
    ///
    /// Crawlee and browser crawlers send browser strings, so the configuration must name their
    /// profile.
    pub fn from_user_agent(agent: &[u8]) -> Self {
        AGENTS
            .iter()
            .find(|(word, _)| {
                agent
                    .windows(word.len())
                    .any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
            })
            .map_or(Self::Generic, |(_, profile)| *profile)
    }

    /// Maps an intent to the response on the wire.
    pub fn wire_response(self, intent: Intent, conditional: Conditional) -> WireResponse {
        let row = self.row();
        match (intent, conditional) {
            (Intent::Deny, _) => WireResponse::Status(row.deny),
            (Intent::Gone, _) => WireResponse::Status(row.gone),
            (Intent::Keep, Conditional::Yes) => WireResponse::Status(row.keep_conditional),
            (Intent::Keep, Conditional::No) => WireResponse::Status(row.keep),
            (Intent::Later, _) => row.later,
        }
    }

    /// Returns `true` if refusals have no body: Heritrix would archive the text as the page.
    pub fn omits_body(self) -> bool {
        self == Self::Heritrix
    }

    /// The longest time for which a request of such a crawler is held unless a rule says otherwise:
    /// less than the crawler's own timeout.
    pub fn max_hold(self) -> Duration {
        let seconds = match self {
            Self::Scrapy => 60,
            Self::Browsertrix => 25,
            Self::Generic | Self::StrictHttp | Self::Warcprox => 20,
            Self::Crawlee | Self::Norconex => 15,
            Self::Heritrix => 10,
            Self::Nutch | Self::StormCrawler => 5,
        };
        Duration::from_secs(seconds)
    }

    fn row(self) -> ProfileRow {
        use WireResponse::{Close, Status};
        match self {
            Self::Generic => row(451, 410, [304, 451], Status(503)),
            Self::StrictHttp => row(403, 410, [304, 403], Status(429)),
            Self::Scrapy | Self::Crawlee => row(451, 410, [451, 451], Status(503)),
            Self::Browsertrix => row(451, 404, [451, 451], Status(429)),
            Self::Warcprox => row(403, 404, [403, 403], Status(503)),
            Self::Heritrix => row(451, 404, [304, 304], Close),
            Self::Nutch => row(410, 410, [304, 304], Status(503)),
            Self::StormCrawler => row(451, 410, [304, 304], Status(503)),
            Self::Norconex => row(451, 404, [304, 304], Status(503)),
        }
    }
}

/// Case-insensitive substrings of a `User-Agent` and the profile that each implies.
const AGENTS: [(&str, Profile); 9] = [
    ("scrapy", Profile::Scrapy),
    ("crawlee", Profile::Crawlee),
    ("browsertrix", Profile::Browsertrix),
    ("brozzler", Profile::Warcprox),
    ("heritrix", Profile::Heritrix),
    ("nutch", Profile::Nutch),
    ("stormcrawler", Profile::StormCrawler),
    ("storm-crawler", Profile::StormCrawler),
    ("norconex", Profile::Norconex),
];

struct ProfileRow {
    deny: u16,
    gone: u16,
    keep: u16,
    keep_conditional: u16,
    later: WireResponse,
}

fn row(
    deny: u16,
    gone: u16,
    [keep_conditional, keep]: [u16; 2],
    later: WireResponse,
) -> ProfileRow {
    ProfileRow {
        deny,
        gone,
        keep,
        keep_conditional,
        later,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_name_their_profiles() {
        for (agent, profile) in [
            ("Scrapy/2.19.0 (+https://scrapy.org)", Profile::Scrapy),
            (
                "Mozilla/5.0 (compatible; heritrix/3.4 +http://x)",
                Profile::Heritrix,
            ),
            ("Wget/1.21.3", Profile::Generic),
            ("", Profile::Generic),
        ] {
            assert_eq!(
                Profile::from_user_agent(agent.as_bytes()),
                profile,
                "{agent}"
            );
        }
    }

    #[test]
    fn no_profile_answers_crawlee_with_a_status_that_it_retries_ten_times() {
        for intent in Intent::ALL {
            let wire = Profile::Crawlee.wire_response(intent, Conditional::Yes);
            assert!(
                !matches!(wire, WireResponse::Status(401 | 403 | 429)),
                "{intent:?}"
            );
        }
    }

    #[test]
    fn an_unasked_304_goes_only_to_crawlers_that_keep_on_it() {
        for profile in Profile::ALL {
            let unasked =
                profile.wire_response(Intent::Keep, Conditional::No) == WireResponse::Status(304);
            let keeps = [
                Profile::Heritrix,
                Profile::Nutch,
                Profile::StormCrawler,
                Profile::Norconex,
            ];
            assert_eq!(unasked, keeps.contains(&profile), "{profile:?}");
        }
    }
}
