//! The fields that a condition can name, and where each gets its value (policy.md section 3).

use std::borrow::Cow;
use std::net::IpAddr;

use super::fact::{Fact, Facts, Subject};
use super::rule::PolicyStage;
use super::signals;
use crate::vocab::target::{HostTarget, UrlTarget};

/// A field of a condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The whole URL in canonical form.
    Url,
    /// `http` or `https`.
    Scheme,
    /// The host.
    Host,
    /// The port, the scheme's default included.
    Port,
    /// Host, and port where it is not the default.
    Authority,
    /// The path with its leading slash.
    Path,
    /// Path and query.
    PathAndQuery,
    /// The path without its leading slash (WebCopy's path).
    RelPath,
    /// Path and query without the leading slash.
    RelPathAndQuery,
    /// The query without `?`.
    Query,
    /// The URL without its scheme.
    AuthorityPathQuery,
    /// Any occurrence of a query parameter, percent-decoded once.
    Param(Box<str>),
    /// The method.
    Method,
    /// The crawler's name.
    Crawler,
    /// The `Referer`.
    Referer,
    /// `navigation` or `embed`.
    Dest,
    /// The depth.
    Depth,
    /// The address that would be dialled.
    Address,
    /// Type and subtype of the response.
    ContentType,
    /// The status of the response.
    Status,
    /// The size of the response.
    Size,
    /// A header of the response, its name in lower case.
    Header(Box<str>),
    /// A usage preference of the response, such as `train-ai`.
    Usage(Box<str>),
    /// `robots` directives of the response: `X-Robots-Tag`.
    MetaRobots,
    /// The canonical URL of the response: `Link: <…>; rel=canonical`.
    Canonical,
}

/// What kind of value a field has, and so which kinds of test fit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Text.
    Text,
    /// A whole number.
    Number,
    /// An IP address.
    Address,
}

impl Field {
    /// The stage from which on the field is known.
    pub fn stage(&self) -> PolicyStage {
        match self {
            Self::Url
            | Self::Scheme
            | Self::Host
            | Self::Port
            | Self::Authority
            | Self::Path
            | Self::PathAndQuery
            | Self::RelPath
            | Self::RelPathAndQuery
            | Self::Query
            | Self::AuthorityPathQuery
            | Self::Param(_)
            | Self::Method
            | Self::Crawler
            | Self::Referer
            | Self::Dest
            | Self::Depth => PolicyStage::Request,
            Self::Address => PolicyStage::Destination,
            Self::ContentType
            | Self::Status
            | Self::Size
            | Self::Header(_)
            | Self::Usage(_)
            | Self::MetaRobots
            | Self::Canonical => PolicyStage::Response,
        }
    }

    /// What kind of value the field has.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::Port | Self::Depth | Self::Status | Self::Size => ValueType::Number,
            Self::Address => ValueType::Address,
            Self::Url
            | Self::Scheme
            | Self::Host
            | Self::Authority
            | Self::Path
            | Self::PathAndQuery
            | Self::RelPath
            | Self::RelPathAndQuery
            | Self::Query
            | Self::AuthorityPathQuery
            | Self::Param(_)
            | Self::Method
            | Self::Crawler
            | Self::Referer
            | Self::Dest
            | Self::ContentType
            | Self::Header(_)
            | Self::Usage(_)
            | Self::MetaRobots
            | Self::Canonical => ValueType::Text,
        }
    }

    /// Whether a rule that names the field judges only 2xx responses with content (policy.md section 4).
    pub fn needs_content(&self) -> bool {
        matches!(self, Self::ContentType | Self::Size)
    }

    /// Whether naming the field lets a rule judge responses of every status.
    pub fn lifts_content_clause(&self) -> bool {
        matches!(self, Self::Status | Self::Header(_))
    }

    /// Whether text tests never distinguish case here.
    pub fn ignores_case(&self) -> bool {
        matches!(self, Self::Scheme | Self::Host | Self::Authority | Self::ContentType)
    }
}

impl Field {
    /// Asks whether any text of the field passes a test. Absent text is empty.
    pub fn any_text(&self, facts: &Facts<'_>, mut test: impl FnMut(&str) -> bool) -> Fact<bool> {
        match facts.subject {
            Subject::Url(target) => self.url_text(target, facts, &mut test),
            Subject::Tunnel(target) => match self.tunnel_text(target, facts) {
                Some(text) => Fact::Known(test(text)),
                None => Fact::Unknown,
            },
        }
    }

    /// The number in a field that holds one; `None` when absent.
    pub fn number(&self, facts: &Facts<'_>) -> Fact<Option<u64>> {
        match (self, facts.subject) {
            (Self::Port, Subject::Url(target)) => Fact::Known(Some(target.port().into())),
            (Self::Port, Subject::Tunnel(target)) => Fact::Known(Some(target.port().into())),
            (_, Subject::Tunnel(_)) => Fact::Unknown,
            (Self::Depth, Subject::Url(_)) => Fact::Known(facts.depth),
            (Self::Status, Subject::Url(_)) => facts.response.map(|r| Some(r.status.into())),
            (Self::Size, Subject::Url(_)) => facts.response.map(|r| r.size),
            (_, Subject::Url(_)) => Fact::Known(None),
        }
    }

    /// The address in a field that holds one; `None` when absent.
    pub fn address(&self, facts: &Facts<'_>) -> Fact<Option<IpAddr>> {
        facts.address
    }

    /// The little that a tunnel shows.
    fn tunnel_text<'a>(&self, target: &'a HostTarget, facts: &Facts<'a>) -> Option<&'a str> {
        let shown = [
            (Self::Scheme, target.scheme().as_str()),
            (Self::Host, target.host()),
            (Self::Authority, target.authority()),
            (Self::Crawler, facts.crawler),
        ];
        shown.into_iter().find_map(|(field, text)| (field == *self).then_some(text))
    }

    fn url_text(
        &self,
        target: &UrlTarget,
        facts: &Facts<'_>,
        test: &mut dyn FnMut(&str) -> bool,
    ) -> Fact<bool> {
        Fact::Known(match self {
            Self::Url => test(target.as_str()),
            Self::Scheme => test(target.scheme().as_str()),
            Self::Host => test(target.host()),
            Self::Authority => test(target.authority()),
            Self::Path => test(target.path()),
            Self::PathAndQuery => test(target.path_and_query()),
            Self::RelPath => test(without_slash(target.path())),
            Self::RelPathAndQuery => test(without_slash(target.path_and_query())),
            Self::Query => test(target.query()),
            Self::AuthorityPathQuery => test(target.authority_path_query()),
            Self::Param(name) => any_param(target, name, test),
            Self::Method => test(facts.method),
            Self::Crawler => test(facts.crawler),
            Self::Referer => test(facts.referer),
            Self::Dest => test(facts.dest.map_or("", super::fact::Dest::as_str)),
            Self::ContentType | Self::Header(_) | Self::Usage(_) | Self::MetaRobots | Self::Canonical => {
                return self.response_text(facts, test);
            }
            Self::Port | Self::Depth | Self::Address | Self::Status | Self::Size => false,
        })
    }

    fn response_text(&self, facts: &Facts<'_>, test: &mut dyn FnMut(&str) -> bool) -> Fact<bool> {
        let Fact::Known(response) = facts.response else { return Fact::Unknown };
        let header = |name: &str| response.headers.header(name).unwrap_or(Cow::Borrowed(""));
        Fact::Known(match self {
            Self::ContentType => test(response.content_type),
            Self::Header(name) => test(&header(name)),
            Self::Usage(name) => test(signals::usage(&header("content-usage"), name)),
            Self::MetaRobots => test(&header("x-robots-tag")),
            Self::Canonical => test(signals::canonical_link(&header("link")).unwrap_or("")),
            Self::Url
            | Self::Scheme
            | Self::Host
            | Self::Port
            | Self::Authority
            | Self::Path
            | Self::PathAndQuery
            | Self::RelPath
            | Self::RelPathAndQuery
            | Self::Query
            | Self::AuthorityPathQuery
            | Self::Param(_)
            | Self::Method
            | Self::Crawler
            | Self::Referer
            | Self::Dest
            | Self::Depth
            | Self::Address
            | Self::Status
            | Self::Size => false,
        })
    }
}

fn without_slash(text: &str) -> &str {
    text.strip_prefix('/').unwrap_or(text)
}

/// Whether any occurrence of a parameter passes; an absent parameter is empty text.
fn any_param(target: &UrlTarget, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
    let mut present = false;
    for (key, value) in target.params() {
        if key == name {
            present = true;
            if test(&value) {
                return true;
            }
        }
    }
    !present && test("")
}
