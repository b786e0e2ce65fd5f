//! What is known of a request while it is judged (policy.md section 3).
//!
//! A fact is known, absent or unknown. Absent text is empty, an absent number or address is [`None`]; an unknown
//! fact ([`Fact::Unknown`]) leaves an atom undecided. Facts only ever become known: a later stage adds to them and
//! never takes one back, so that an early answer holds.

use std::borrow::Cow;
use std::net::IpAddr;

pub use crate::robots::usage::UsagePreference;
use crate::urls::target::{HostTarget, UrlTarget};

/// Something that may not be known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// Known, perhaps to be absent.
    Known(T),
    /// Not known at this stage, or never (inside a tunnel).
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

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub enum EvaluationTarget<'a> {
    /// One URL.
    Url(&'a UrlTarget),
    /// A tunnel, which shows no more than its host and port.
    Tunnel(&'a HostTarget),
}

/// What the client wants the answer for, from `Sec-Fetch-Dest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FetchDest {
    /// A page of its own.
    Navigation,
    /// Part of a page.
    Embed,
}

impl FetchDest {
    /// The value of the field `dest`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Navigation => "navigation",
            Self::Embed => "embed",
        }
    }

    /// Reads the value of the field `dest`.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Navigation, Self::Embed]
            .into_iter()
            .find(|d| d.as_str() == word)
    }

    /// Reads `Sec-Fetch-Dest` (Fetch Metadata, section 2.1): only `document` is a navigation of its own.
    pub fn from_sec_fetch(value: &str) -> Self {
        if value.trim().eq_ignore_ascii_case("document") {
            Self::Navigation
        } else {
            Self::Embed
        }
    }
}

/// Response headers by name, whatever holds them.
pub trait HeaderView {
    /// All values of a header, joined by `", "`; `None` if there is none. `name` is lower case.
    fn header(&self, name: &str) -> Option<Cow<'_, str>>;

    /// Shows each value of a header by itself, where it matters which stand in one line.
    fn for_each_line(&self, name: &str, see: &mut dyn FnMut(&str));
}

/// What the response head says.
#[derive(Clone, Copy)]
pub struct ResponseFacts<'a> {
    /// The status, 100 to 999.
    pub status: u16,
    /// Type and subtype in lower case, without parameters; empty when missing.
    pub content_type: &'a str,
    /// `Content-Length`, in bytes.
    pub size: Option<u64>,
    /// The headers.
    pub headers: &'a dyn HeaderView,
    /// Whether the request's method lets the response have content: not for HEAD.
    pub content: ContentAvailability,
}

/// Whether a response may have content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentAvailability {
    /// GET and the like.
    Possible,
    /// HEAD: the head speaks of content that is not sent.
    HeadOnly,
}

impl ResponseFacts<'_> {
    /// Whether this is a 2xx with content (not 204, 205): what type and size rules judge (policy.md section 4).
    ///
    /// A HEAD answer counts, so that HEAD is refused exactly as GET is; one without `Content-Type` does not,
    /// since nothing can be said of the type that GET would have.
    pub fn is_success_with_content(&self) -> bool {
        let success = (200..300).contains(&self.status) && !matches!(self.status, 204 | 205);
        let untyped_head =
            self.content == ContentAvailability::HeadOnly && self.content_type.is_empty();
        success && !untyped_head
    }

    /// Whether its type is one of HTML's.
    pub fn is_html(&self) -> bool {
        matches!(self.content_type, "text/html" | "application/xhtml+xml")
    }

    /// Whether the document stage reads such a type: HTML or text, or none, which may be either.
    pub fn is_text(&self) -> bool {
        self.content_type.is_empty() || self.content_type.starts_with("text/") || self.is_html()
    }
}

/// What the first bytes of a document say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentFacts<'a> {
    /// The text of `<title>`, empty when missing.
    pub title: &'a str,
    /// The first bytes as text.
    pub body_prefix: &'a str,
    /// The directives of `<meta name="robots">`, if there is one, and of those under the crawler's own name.
    pub meta_robots: Option<&'a str>,
    /// The target of `<link rel="canonical">`, if there is one: as written there, or resolved.
    pub canonical: Option<&'a str>,
}

impl DocumentFacts<'_> {
    /// A document that says nothing: one without words for crawlers, or that cannot be read.
    pub const EMPTY: Self = Self {
        title: "",
        body_prefix: "",
        meta_robots: None,
        canonical: None,
    };
}

/// The year that counts where none is given, so that cases mean the same in every year.
pub const DEFAULT_YEAR: u16 = 2026;

/// Whether the ledger has the URL: only then does a refusal get a code of section 6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LedgerPresence {
    /// The URL was never fetched for this crawler, or there is no ledger.
    #[default]
    Absent,
    /// It was.
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

/// All that is known of a request at some stage.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What is asked for.
    pub target: EvaluationTarget<'a>,
    /// The crawler's name, or `anonymous`.
    pub crawler: &'a str,
    /// The method, as sent. Unknown inside a tunnel, like the next three.
    pub method: &'a str,
    /// The `Referer`, empty when missing.
    pub referer: &'a str,
    /// What the answer is wanted for.
    pub dest: Option<FetchDest>,
    /// Links from a start page, where it is known.
    pub depth: Option<u64>,
    /// The address that would be dialled; unknown before the destination stage.
    pub address: Fact<Option<IpAddr>>,
    /// The product token by which the crawler goes towards robots.txt and `X-Robots-Tag`; empty if nobody knows, and then
    /// its name stands for it.
    pub agent: &'a str,
    /// What the host's robots.txt says of uses, named as `robots::usage::purpose` does; the response's headers count
    /// beside it. Asked from the response stage on.
    pub usage_preferences: &'a [(Box<str>, UsagePreference)],
    /// The response head; unknown before the response stage.
    pub response: Fact<ResponseFacts<'a>>,
    /// The first bytes of the document; unknown before the document stage.
    pub document: Fact<DocumentFacts<'a>>,
    /// `known`: whether the ledger has the URL. It changes no verdict, only the code of a refusal.
    pub in_ledger: LedgerPresence,
    /// The year by the wall clock, in UTC: for calendars, which are a trap far from it. [`DEFAULT_YEAR`] where nobody asks for it.
    pub year: u16,
}

impl<'a> Facts<'a> {
    /// The facts of a GET for one URL by an anonymous crawler; the caller adds what else it knows.
    pub fn for_url(target: &'a UrlTarget) -> Self {
        Self::new(EvaluationTarget::Url(target))
    }

    /// The facts of a tunnel.
    pub fn for_tunnel(target: &'a HostTarget) -> Self {
        Self::new(EvaluationTarget::Tunnel(target))
    }

    /// By which name lines for one crawler speak of this one.
    pub(crate) fn robots_agent(&self) -> &'a str {
        if self.agent.is_empty() {
            self.crawler
        } else {
            self.agent
        }
    }

    fn new(subject: EvaluationTarget<'a>) -> Self {
        Self {
            target: subject,
            crawler: crate::model::crawler::Crawler::ANONYMOUS,
            method: "GET",
            referer: "",
            dest: None,
            depth: None,
            address: Fact::Unknown,
            agent: "",
            usage_preferences: &[],
            response: Fact::Unknown,
            document: Fact::Unknown,
            in_ledger: LedgerPresence::Absent,
            year: DEFAULT_YEAR,
        }
    }
}
