//! The response of each kind of crawler profile: the mapping from an intent to a status on the
//! wire.
//!
//! Crawlers react to the same status in contradictory ways. All status numbers are in this one
//! table.

use std::time::Duration;

use super::intent::Intent;
use super::words::words;

words! {
    /// A family of crawlers that interpret refusals in the same way.
    pub enum Profile {
        /// A client about which nothing is known.
        Generic = "generic",
        /// The statuses that RFC 9110 and RFC 9209 recommend.
        StrictHttp = "strict-http",
        /// Scrapy, which retries 429 and 5xx at once and treats 304 as an error.
        Scrapy = "scrapy",
        /// Crawlee, where 401, 403 and 429 retire a session and are fetched up to ten times.
        Crawlee = "crawlee",
        /// Browsertrix Crawler, where 403, 429 and 503 count as rate limits.
        Browsertrix = "browsertrix",
        /// brozzler with warcprox, which expects `Warcprox-Meta`.
        Warcprox = "warcprox",
        /// Heritrix, which archives every response.
        Heritrix = "heritrix",
        /// Apache Nutch, where nearly every status counts against the host.
        Nutch = "nutch",
        /// Apache StormCrawler, which deletes a page at the third error.
        StormCrawler = "stormcrawler",
        /// Norconex, where 404 deletes and 304 keeps.
        Norconex = "norconex",
        /// Exalead CloudView, where 503 with `Retry-After` keeps and every other 4xx and 5xx
        /// deletes.
        CloudView = "cloudview",
        /// Python's httpx, which times out after 5 s.
        Httpx = "httpx",
        /// newspaper, which times out after 7 s.
        Newspaper = "newspaper",
        /// lychee, which times out after 20 s.
        Lychee = "lychee",
    }
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
            Self::Generic | Self::StrictHttp | Self::Warcprox | Self::CloudView => 20,
            Self::Crawlee | Self::Norconex | Self::Lychee => 15,
            Self::Heritrix => 10,
            Self::Nutch | Self::StormCrawler | Self::Newspaper => 5,
            Self::Httpx => 3,
        };
        Duration::from_secs(seconds)
    }

    /// The number of requests that such a crawler may well have in progress for one host: one, if
    /// it fetches the pages of a host one after the other by default.
    pub fn usual_requests_per_host(self) -> u32 {
        match self {
            Self::Heritrix | Self::Nutch | Self::StormCrawler | Self::CloudView => 1,
            Self::Generic
            | Self::StrictHttp
            | Self::Scrapy
            | Self::Crawlee
            | Self::Browsertrix
            | Self::Warcprox
            | Self::Norconex
            | Self::Httpx
            | Self::Newspaper
            | Self::Lychee => 10,
        }
    }

    /// The reason why a page that is refused with [`Intent::Later`] is lost to such a crawler; `None`
    /// if it requests the page again after a while, or if nothing is known.
    pub fn loss_after_later(self) -> Option<&'static str> {
        match self {
            Self::Scrapy => Some("requests the page three times at once and then gives it up"),
            Self::Crawlee => Some("requests the page four times at once and then gives it up"),
            Self::Nutch => Some("drops the rest of the host's queue after five of them"),
            Self::StormCrawler => Some("deletes the page after three of them"),
            Self::Norconex => Some("deletes the page if the next crawl gets one, too"),
            Self::Httpx | Self::Newspaper | Self::Lychee => {
                Some("does not request the page again by itself")
            }
            Self::Generic
            | Self::StrictHttp
            | Self::Browsertrix
            | Self::Warcprox
            | Self::Heritrix
            | Self::CloudView => None,
        }
    }

    fn row(self) -> ProfileRow {
        use WireResponse::{Close, Status};
        match self {
            Self::Generic | Self::Httpx | Self::Newspaper | Self::Lychee => {
                row(451, 410, [304, 451], Status(503))
            }
            Self::StrictHttp => row(403, 410, [304, 403], Status(429)),
            Self::Scrapy | Self::Crawlee => row(451, 410, [451, 451], Status(503)),
            Self::Browsertrix => row(451, 404, [451, 451], Status(429)),
            Self::Warcprox => row(403, 404, [403, 403], Status(503)),
            Self::Heritrix => row(451, 404, [304, 304], Close),
            Self::Nutch => row(410, 410, [304, 304], Status(503)),
            Self::StormCrawler => row(451, 410, [304, 304], Status(503)),
            Self::Norconex => row(451, 404, [304, 304], Status(503)),
            Self::CloudView => row(451, 404, [304, 503], Status(503)),
        }
    }
}

/// Case-insensitive substrings of a `User-Agent` and the profile that each implies.
const AGENTS: [(&str, Profile); 12] = [
    ("scrapy", Profile::Scrapy),
    ("crawlee", Profile::Crawlee),
    ("browsertrix", Profile::Browsertrix),
    ("brozzler", Profile::Warcprox),
    ("heritrix", Profile::Heritrix),
    ("nutch", Profile::Nutch),
    ("stormcrawler", Profile::StormCrawler),
    ("storm-crawler", Profile::StormCrawler),
    ("norconex", Profile::Norconex),
    ("python-httpx/", Profile::Httpx),
    ("newspaper/", Profile::Newspaper),
    ("lychee/", Profile::Lychee),
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
            ("python-httpx/0.28.1", Profile::Httpx),
            ("newspaper/0.9.6", Profile::Newspaper),
            ("lychee/0.24.2", Profile::Lychee),
            (
                "Mozilla/5.0 (compatible; newspaper-archive)",
                Profile::Generic,
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

    /// A client that times out first sees no refusal: neither its reason nor Retry-After.
    #[test]
    fn clients_that_time_out_early_are_answered_before() {
        for (agent, timeout) in [
            ("python-httpx/0.28.1", 5),
            ("newspaper/0.9.6", 7),
            ("lychee/0.24.2", 20),
        ] {
            let hold = Profile::from_user_agent(agent.as_bytes()).max_hold();
            assert!(hold < Duration::from_secs(timeout), "{agent}: {hold:?}");
        }
    }

    /// Of all answers to a request without conditions, only a 503 keeps a document in CloudView's index.
    #[test]
    fn cloudview_deletes_only_what_is_denied_or_gone() {
        for (intent, [conditional, plain]) in [
            (Intent::Deny, [451, 451]),
            (Intent::Gone, [404, 404]),
            (Intent::Keep, [304, 503]),
            (Intent::Later, [503, 503]),
        ] {
            for (asked, status) in [(Conditional::Yes, conditional), (Conditional::No, plain)] {
                let wire = Profile::CloudView.wire_response(intent, asked);
                assert_eq!(wire, WireResponse::Status(status), "{intent:?} {asked:?}");
            }
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
