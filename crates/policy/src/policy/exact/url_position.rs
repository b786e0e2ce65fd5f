//! The structure of a URL, read byte by byte: each byte belongs to one region.

use super::automaton::{Alphabet, TextAutomaton};
use crate::policy::field::Field;
use crate::policy::pattern::CaseSensitivity;

/// A set of regions of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct UrlRegions(u16);

impl UrlRegions {
    const SCHEME: Self = Self(1);
    /// `://`
    const SCHEME_END: Self = Self(2);
    pub(super) const HOST: Self = Self(4);
    /// The colon before the port.
    const PORT_MARK: Self = Self(8);
    pub(super) const PORT: Self = Self(16);
    /// The first slash of the path.
    pub(super) const PATH_START: Self = Self(32);
    const PATH_REST: Self = Self(64);
    /// The first question mark.
    const QUERY_MARK: Self = Self(128);
    pub(super) const QUERY: Self = Self(256);

    const AUTHORITY: Self = Self::HOST.with(Self::PORT_MARK).with(Self::PORT);
    pub(super) const PATH: Self = Self::PATH_START.with(Self::PATH_REST);
    const QUERY_PART: Self = Self::QUERY_MARK.with(Self::QUERY);
    pub(super) const AUTHORITY_PATH_QUERY: Self =
        Self::AUTHORITY.with(Self::PATH).with(Self::QUERY_PART);

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns `true` if one of the other regions is in the set.
    pub(super) fn contains(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the regions that a field consists of; `None` if it is not a contiguous part of the
    /// URL.
    pub(super) fn of_field(field: &Field) -> Option<Self> {
        Some(match field {
            Field::Url => Self::SCHEME
                .with(Self::SCHEME_END)
                .with(Self::AUTHORITY_PATH_QUERY),
            Field::Scheme => Self::SCHEME,
            Field::Host => Self::HOST,
            Field::Port => Self::PORT,
            Field::Authority => Self::AUTHORITY,
            Field::Path => Self::PATH,
            Field::PathAndQuery => Self::PATH.with(Self::QUERY_PART),
            Field::RelPath => Self::PATH_REST,
            Field::RelPathAndQuery => Self::PATH_REST.with(Self::QUERY_PART),
            Field::Query => Self::QUERY,
            Field::AuthorityPathQuery => Self::AUTHORITY_PATH_QUERY,
            Field::Param(_)
            | Field::Method
            | Field::Crawler
            | Field::Referer
            | Field::Dest
            | Field::Depth
            | Field::Address
            | Field::ContentType
            | Field::Status
            | Field::Size
            | Field::Header(_)
            | Field::Usage(_)
            | Field::License
            | Field::Title
            | Field::BodyPrefix
            | Field::MetaRobots
            | Field::Canonical => return None,
        })
    }
}

/// A part of a URL, in which the same automata read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UrlPart {
    Scheme,
    Authority,
    Path,
    Query,
}

impl UrlPart {
    pub(super) const ALL: [Self; 4] = [Self::Scheme, Self::Authority, Self::Path, Self::Query];

    /// The regions of its bytes. The first slash of the path comes after the authority.
    pub(super) fn regions(self) -> UrlRegions {
        match self {
            Self::Scheme => UrlRegions::SCHEME.with(UrlRegions::SCHEME_END),
            Self::Authority => UrlRegions::AUTHORITY.with(UrlRegions::PATH_START),
            Self::Path => UrlRegions::PATH_REST.with(UrlRegions::QUERY_MARK),
            Self::Query => UrlRegions::QUERY,
        }
    }
}

/// A place in a URL, up to what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum UrlPosition {
    /// After this number of bytes of `http`.
    Scheme(u8),
    /// After `https`.
    SchemeSecure,
    /// After the colon and this number of slashes.
    SchemeEnd(PortDefault, u8),
    /// Before the host.
    HostStart(PortDefault),
    Host(PortDefault),
    /// In the brackets of an IPv6 address.
    Bracket(PortDefault),
    /// After the colon before the port.
    PortStart(PortDefault),
    Port(PortDefault),
    Path,
    Query,
}

/// The port of a URL without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PortDefault {
    Http,
    Https,
}

impl UrlPosition {
    pub(super) const START: Self = Self::Scheme(0);

    /// Returns the next place and the region of a byte; `None` if no URL continues with it.
    pub(super) fn step(self, byte: u8) -> Option<(Self, UrlRegions)> {
        Some(match (self, byte) {
            (Self::Scheme(at @ 0..=3), _) => {
                if b"http".get(usize::from(at)) != Some(&byte) {
                    return None;
                }
                (Self::Scheme(at + 1), UrlRegions::SCHEME)
            }
            (Self::Scheme(_), b's') => (Self::SchemeSecure, UrlRegions::SCHEME),
            (Self::Scheme(_), b':') => scheme_end(PortDefault::Http, 0),
            (Self::SchemeSecure, b':') => scheme_end(PortDefault::Https, 0),
            (Self::SchemeEnd(port, 0), b'/') => scheme_end(port, 1),
            (Self::SchemeEnd(port, _), b'/') => (Self::HostStart(port), UrlRegions::SCHEME_END),
            (Self::HostStart(port), b'[') => (Self::Bracket(port), UrlRegions::HOST),
            (Self::HostStart(_), b'/' | b'?' | b':') => return None,
            (Self::HostStart(port), _) => (Self::Host(port), UrlRegions::HOST),
            (Self::Host(port), b':') => (Self::PortStart(port), UrlRegions::PORT_MARK),
            (Self::Bracket(port), b']') => (Self::Host(port), UrlRegions::HOST),
            (Self::Host(_) | Self::Port(_), b'/') => (Self::Path, UrlRegions::PATH_START),
            (Self::Host(_) | Self::Bracket(_), b'?') => return None,
            (Self::Host(_) | Self::Bracket(_), _) => (self, UrlRegions::HOST),
            (Self::PortStart(port) | Self::Port(port), b'0'..=b'9') => {
                (Self::Port(port), UrlRegions::PORT)
            }
            (Self::Path, b'?') => (Self::Query, UrlRegions::QUERY_MARK),
            (Self::Path, _) => (self, UrlRegions::PATH_REST),
            (Self::Query, _) => (self, UrlRegions::QUERY),
            (
                Self::Scheme(_)
                | Self::SchemeSecure
                | Self::SchemeEnd(..)
                | Self::PortStart(_)
                | Self::Port(_),
                _,
            ) => return None,
        })
    }

    /// The part of the URL to which the next byte belongs.
    pub(super) fn next_part(self) -> UrlPart {
        match self {
            Self::Scheme(_) | Self::SchemeSecure | Self::SchemeEnd(..) => UrlPart::Scheme,
            Self::HostStart(_)
            | Self::Host(_)
            | Self::Bracket(_)
            | Self::PortStart(_)
            | Self::Port(_) => UrlPart::Authority,
            Self::Path => UrlPart::Path,
            Self::Query => UrlPart::Query,
        }
    }

    /// Returns `true` if a URL may end here.
    pub(super) fn is_end(self) -> bool {
        match self {
            Self::Path | Self::Query => true,
            Self::Scheme(_)
            | Self::SchemeSecure
            | Self::SchemeEnd(..)
            | Self::HostStart(_)
            | Self::Host(_)
            | Self::Bracket(_)
            | Self::PortStart(_)
            | Self::Port(_) => false,
        }
    }

    /// The default port, before the path.
    pub(super) fn port_default(self) -> Option<PortDefault> {
        match self {
            Self::SchemeEnd(port, _)
            | Self::HostStart(port)
            | Self::Host(port)
            | Self::Bracket(port)
            | Self::PortStart(port)
            | Self::Port(port) => Some(port),
            Self::Scheme(_) | Self::SchemeSecure | Self::Path | Self::Query => None,
        }
    }
}

fn scheme_end(port: PortDefault, slashes: u8) -> (UrlPosition, UrlRegions) {
    (
        UrlPosition::SchemeEnd(port, slashes),
        UrlRegions::SCHEME_END,
    )
}

/// A set of URLs that is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UrlSet {
    /// URLs that are certainly canonical, and that all servers read alike: for examples.
    Plain,
    /// All canonical URLs, all readings of them, and some other texts: for proofs.
    All,
}

const PLAIN_HOST: &str = r"\A(?:(?:[a-z0-9_]+(?:-[a-z0-9_]+)*\.)*[a-z][a-z0-9_]*(?:-[a-z0-9_]+)*|(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9]))\z";
const ANY_HOST: &str = r"\A(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])\z";
const ANY_PORT: &str = r"\A[1-9][0-9]{0,4}\z";
const PLAIN_PORT: &str = r"\A(?:8[1-9]|[1-9][0-9]{3}|[1-5][0-9]{4})\z";
/// Segments of unreserved and reserved characters, and of escapes that no server decodes.
const PLAIN_PATH: &str = r"\A/(?:(?:\.{0,2}(?:[A-Za-z0-9_~!$&'()*+,=:@-]|%(?:2[0235]|3[CEF]|[89A-F][0-9A-F]))(?:[A-Za-z0-9_~!$&'()*+,=:@.-]|%(?:2[0235]|3[CEF]|[89A-F][0-9A-F]))*|\.{3,})(?:/(?:\.{0,2}(?:[A-Za-z0-9_~!$&'()*+,=:@-]|%(?:2[0235]|3[CEF]|[89A-F][0-9A-F]))(?:[A-Za-z0-9_~!$&'()*+,=:@.-]|%(?:2[0235]|3[CEF]|[89A-F][0-9A-F]))*|\.{3,}))*/?)?\z";
/// No segment `.` or `..`. Readings may contain characters that canonical paths escape.
const ANY_PATH: &str = r"\A(?:/(?:\.?[^\x00-\x20\x22\x23<>?`{}\\/.\x7f][^\x00-\x20\x22\x23<>?`{}\\/\x7f]*|\.\.[^\x00-\x20\x22\x23<>?`{}\\/\x7f]+)?)+\z";
const PLAIN_QUERY: &str =
    r"\A(?:[A-Za-z0-9_~!$&()*+,=:@./?;-]|%(?:2[0235]|3[CEF]|[89A-F][0-9A-F]))*\z";
const ANY_QUERY: &str = r"\A[^\x00-\x20\x22\x23<>'\\\x7f]*\z";

impl UrlSet {
    /// Returns the conditions that the parts of a URL in the set meet.
    pub(super) fn conditions(self) -> Result<Vec<(UrlRegions, TextAutomaton)>, &'static str> {
        let (host, port, path, query) = match self {
            Self::Plain => (PLAIN_HOST, PLAIN_PORT, PLAIN_PATH, PLAIN_QUERY),
            Self::All => (ANY_HOST, ANY_PORT, ANY_PATH, ANY_QUERY),
        };
        [
            (UrlRegions::HOST, host),
            (UrlRegions::PORT, port),
            (UrlRegions::PATH, path),
            (UrlRegions::QUERY, query),
        ]
        .into_iter()
        .map(|(regions, pattern)| {
            let case = CaseSensitivity::Sensitive;
            let automaton = TextAutomaton::from_expression(pattern, case, Alphabet::Ascii)?;
            Ok((regions, automaton))
        })
        .collect()
    }
}
