//! The facts of a request.
//!
//! A fact is known, absent or unknown. Absent text is empty, an absent number or address is
//! [`None`]; an unknown fact ([`Fact::Unknown`]) makes the result of a test unknown. Facts never
//! change once they are known: a later stage only adds facts, so an early decision stays valid.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::model::words::words;
pub use crate::robots::usage::UsagePreference;
use crate::urls::target::{HostTarget, UrlTarget};

/// A value that may not be known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// Known, possibly to be absent.
    Known(T),
    /// Unknown at this stage, or hidden in a tunnel.
    Unknown,
}

impl<T> Fact<T> {
    /// Applies a function to a known value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Self::Known(value) => Fact::Known(f(value)),
            Self::Unknown => Fact::Unknown,
        }
    }
}

/// The target of a request.
#[derive(Clone, Copy, Debug)]
pub enum EvaluationTarget<'a> {
    /// A URL.
    Url(&'a UrlTarget),
    /// A tunnel, of which only the host and port are known.
    Tunnel(&'a HostTarget),
}

impl<'a> EvaluationTarget<'a> {
    /// The canonical host.
    pub fn host(self) -> &'a str {
        match self {
            Self::Url(target) => target.host(),
            Self::Tunnel(target) => target.host(),
        }
    }
}

words! {
    /// The destination of the response, from `Sec-Fetch-Dest`: the value of the field `dest`.
    pub enum FetchDest {
        /// A page.
        Navigation = "navigation",
        /// A resource of a page.
        Embed = "embed",
    }
}

impl FetchDest {
    /// Parses `Sec-Fetch-Dest` (Fetch Metadata, section 2.1): only `document` is a navigation.
    pub fn from_sec_fetch(value: &str) -> Self {
        if value.trim().eq_ignore_ascii_case("document") {
            Self::Navigation
        } else {
            Self::Embed
        }
    }
}

/// Access to header fields, independent of their storage.
pub trait HeaderView {
    /// Returns all values of a header joined by `", "`; `None` if it is missing. `name` is lower
    /// case.
    fn header(&self, name: &str) -> Option<Cow<'_, str>>;

    /// Calls a function for each field line of a header.
    fn for_each_line(&self, name: &str, visit: &mut dyn FnMut(&str));
}

/// The response head.
#[derive(Clone, Copy)]
pub struct ResponseFacts<'a> {
    /// The status, 100 to 999.
    pub status: u16,
    /// Type and subtype in lower case, without parameters; empty if missing.
    pub content_type: &'a str,
    /// The value of `Content-Length`.
    pub size: Option<u64>,
    /// The header fields.
    pub headers: &'a dyn HeaderView,
    /// The availability of content, by the request's method.
    pub content: ContentAvailability,
}

/// The availability of content, by the request's method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentAvailability {
    /// The method allows content.
    Possible,
    /// HEAD: the head describes content that is not sent.
    HeadOnly,
}

impl ResponseFacts<'_> {
    /// Returns `true` for a 2xx with content (neither 204 nor 205), the only responses that rules
    /// on type and size match.
    ///
    /// A response to HEAD counts, so that HEAD is refused exactly as GET is. Without `Content-Type`
    /// it does not, since the type of the GET response is unknown then.
    pub fn is_success_with_content(&self) -> bool {
        let success = (200..300).contains(&self.status) && !matches!(self.status, 204 | 205);
        let untyped_head =
            self.content == ContentAvailability::HeadOnly && self.content_type.is_empty();
        success && !untyped_head
    }

    /// Returns `true` if the type is HTML or XHTML.
    pub fn is_html(&self) -> bool {
        matches!(self.content_type, "text/html" | "application/xhtml+xml")
    }

    /// Returns `true` if the document stage reads this type: HTML, text, or a missing type, which
    /// may be either.
    pub fn is_text(&self) -> bool {
        self.content_type.is_empty() || self.content_type.starts_with("text/") || self.is_html()
    }
}

/// The beginning of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentFacts<'a> {
    /// The text of `<title>`; empty if missing.
    pub title: &'a str,
    /// The first bytes as text.
    pub body_prefix: &'a str,
    /// The directives of `<meta name="robots">`, if there are any, and of those with the crawler's
    /// own name.
    pub meta_robots: Option<&'a str>,
    /// The target of `<link rel="canonical">`, if there is one: as written, or resolved.
    pub canonical: Option<&'a str>,
}

impl DocumentFacts<'_> {
    /// A document without any of these facts, or one that cannot be parsed.
    pub const EMPTY: Self = Self {
        title: "",
        body_prefix: "",
        meta_robots: None,
        canonical: None,
    };
}

/// The year if none is given, so that test cases do not depend on the date.
pub const DEFAULT_YEAR: u16 = 2026;

/// The presence of the URL in the ledger. Only a refused URL in the ledger gets a code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LedgerPresence {
    /// The URL was never fetched for this crawler, or there is no ledger.
    #[default]
    Absent,
    /// The URL was fetched for this crawler.
    Present,
}

impl std::fmt::Debug for ResponseFacts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseFacts")
            .field("status", &self.status)
            .field("content_type", &self.content_type)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// All facts of a request at some stage.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The target of the request.
    pub target: EvaluationTarget<'a>,
    /// The canonical URL, if `target` is a reading of it by lax servers. It then decides tests that
    /// count, such as `length`.
    pub read_from: Option<&'a UrlTarget>,
    /// The crawler's name, or `anonymous`.
    pub crawler: &'a str,
    /// The method, as sent. In a tunnel, this and the next three are hidden.
    pub method: &'a str,
    /// The value of `Referer`; empty if missing.
    pub referer: &'a str,
    /// The destination of the response, if known.
    pub dest: Option<FetchDest>,
    /// The number of links from a seed, if known.
    pub depth: Option<u64>,
    /// The address of the origin; unknown before the destination stage.
    pub address: Fact<Option<IpAddr>>,
    /// The product token of the crawler in robots.txt and `X-Robots-Tag`. If it is empty, the
    /// crawler's name is used.
    pub agent: &'a str,
    /// The preferences of the host's robots.txt by usage purpose, with names as in
    /// `robots::usage::normalize_purpose`. The response's headers are combined with them. Used from
    /// the response stage on.
    pub usage_preferences: &'a [(Box<str>, UsagePreference)],
    /// The URL of the license that the host's robots.txt names; empty if it names none. Used from
    /// the response stage on.
    pub site_license: &'a str,
    /// The response head; unknown before the response stage.
    pub response: Fact<ResponseFacts<'a>>,
    /// The beginning of the document; unknown before the document stage.
    pub document: Fact<DocumentFacts<'a>>,
    /// The fact `known`. It does not change the verdict, only the code of a refusal.
    pub in_ledger: LedgerPresence,
    /// The current year in UTC, for the trap `calendar`; [`DEFAULT_YEAR`] if the policy does not
    /// depend on it.
    pub year: u16,
}

impl<'a> Facts<'a> {
    /// Returns the facts of a GET for a URL by an anonymous crawler. Other facts can be set on the
    /// result.
    pub fn for_url(target: &'a UrlTarget) -> Self {
        Self::new(EvaluationTarget::Url(target))
    }

    /// Returns the facts of a tunnel.
    pub fn for_tunnel(target: &'a HostTarget) -> Self {
        Self::new(EvaluationTarget::Tunnel(target))
    }

    /// Returns the facts of a request whose origin has no address here, since a parent proxy resolves its name.
    #[must_use]
    pub fn without_address(self) -> Self {
        Self {
            address: Fact::Known(None),
            ..self
        }
    }

    /// Returns the facts with this address of the origin.
    #[must_use]
    pub fn with_address(self, address: IpAddr) -> Self {
        Self {
            address: Fact::Known(Some(address)),
            ..self
        }
    }

    /// Returns the target whose characters, segments and parameters are counted.
    pub(crate) fn counted_target(&self) -> EvaluationTarget<'a> {
        self.read_from.map_or(self.target, EvaluationTarget::Url)
    }

    /// Returns the product token for lines that address one crawler.
    pub(crate) fn robots_agent(&self) -> &'a str {
        if self.agent.is_empty() {
            self.crawler
        } else {
            self.agent
        }
    }

    fn new(target: EvaluationTarget<'a>) -> Self {
        Self {
            target,
            read_from: None,
            crawler: crate::model::crawler::Crawler::ANONYMOUS,
            method: "GET",
            referer: "",
            dest: None,
            depth: None,
            address: Fact::Unknown,
            agent: "",
            usage_preferences: &[],
            site_license: "",
            response: Fact::Unknown,
            document: Fact::Unknown,
            in_ledger: LedgerPresence::Absent,
            year: DEFAULT_YEAR,
        }
    }
}
