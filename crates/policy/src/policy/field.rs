//! The fields that a condition can name, and where each gets its value (policy.md section 3).

use std::borrow::Cow;
use std::net::IpAddr;

use super::fact::{DocumentFacts, EvaluationTarget, Fact, Facts, ResponseFacts, UsagePreference};
use super::rule::PolicyStage;
use super::signals;
use crate::urls::target::{HostTarget, UrlTarget};

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
    /// A usage preference, such as `train-ai`: of robots.txt and of the response.
    Usage(Box<str>),
    /// The document's title.
    Title,
    /// The document's first bytes.
    BodyPrefix,
    /// `robots` directives: `X-Robots-Tag` if it is there, else those of the document.
    MetaRobots,
    /// The canonical URL: `Link: <…>; rel=canonical` if it is there, else the document's.
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
    /// The stage from which on the field is known for certain.
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
            Self::ContentType | Self::Status | Self::Size | Self::Header(_) | Self::Usage(_) => {
                PolicyStage::Response
            }
            Self::Title | Self::BodyPrefix | Self::MetaRobots | Self::Canonical => {
                PolicyStage::Document
            }
        }
    }

    /// Whether the URL alone tells it.
    pub fn is_url_part(&self) -> bool {
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
            | Self::Param(_) => true,
            Self::Method
            | Self::Crawler
            | Self::Referer
            | Self::Dest
            | Self::Depth
            | Self::Address
            | Self::ContentType
            | Self::Status
            | Self::Size
            | Self::Header(_)
            | Self::Usage(_)
            | Self::Title
            | Self::BodyPrefix
            | Self::MetaRobots
            | Self::Canonical => false,
        }
    }

    /// Whether a tunnel shows it that is not looked into.
    pub fn is_visible_in_tunnels(&self) -> bool {
        use Field::{Address, Authority, Crawler, Host, Port, Scheme};
        matches!(self, Scheme | Host | Port | Authority | Crawler | Address)
    }

    /// Whether a response header may give what else the document says.
    pub fn may_come_from_header(&self) -> bool {
        matches!(self, Self::MetaRobots | Self::Canonical)
    }

    /// The first stage at which the field may be known.
    pub fn earliest_stage(&self) -> PolicyStage {
        if self.may_come_from_header() {
            PolicyStage::Response
        } else {
            self.stage()
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
            | Self::Title
            | Self::BodyPrefix
            | Self::MetaRobots
            | Self::Canonical => ValueType::Text,
        }
    }

    /// Whether a rule that names the field judges only 2xx responses with content (policy.md section 4).
    pub fn needs_content(&self) -> bool {
        matches!(self, Self::ContentType | Self::Size) || self.stage() == PolicyStage::Document
    }

    /// Whether naming the field lets a rule judge responses of every status.
    pub fn allows_any_status(&self) -> bool {
        matches!(self, Self::Status | Self::Header(_))
    }

    /// Whether text tests never distinguish case here.
    pub fn ignores_case(&self) -> bool {
        matches!(
            self,
            Self::Scheme | Self::Host | Self::Authority | Self::ContentType
        )
    }
}

impl Field {
    /// Asks whether any text of the field passes a test. Absent text is empty.
    pub fn any_text_matches(
        &self,
        facts: &Facts<'_>,
        mut test: impl FnMut(&str) -> bool,
    ) -> Fact<bool> {
        match facts.target {
            EvaluationTarget::Url(target) => self.url_text_matches(target, facts, &mut test),
            EvaluationTarget::Tunnel(target) => match self.tunnel_text(target, facts) {
                Some(text) => Fact::Known(test(text)),
                None => Fact::Unknown,
            },
        }
    }

    /// The number in a field that holds one; `None` when absent.
    pub fn number(&self, facts: &Facts<'_>) -> Fact<Option<u64>> {
        match (self, facts.target) {
            (Self::Port, EvaluationTarget::Url(target)) => Fact::Known(Some(target.port().into())),
            (Self::Port, EvaluationTarget::Tunnel(target)) => {
                Fact::Known(Some(target.port().into()))
            }
            (_, EvaluationTarget::Tunnel(_)) => Fact::Unknown,
            (Self::Depth, EvaluationTarget::Url(_)) => Fact::Known(facts.depth),
            (Self::Status, EvaluationTarget::Url(_)) => {
                facts.response.map(|r| Some(r.status.into()))
            }
            (Self::Size, EvaluationTarget::Url(_)) => facts.response.map(|r| r.size),
            (_, EvaluationTarget::Url(_)) => Fact::Known(None),
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
        shown
            .into_iter()
            .find_map(|(field, text)| (field == *self).then_some(text))
    }

    fn url_text_matches(
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
            Self::RelPath => test(strip_leading_slash(target.path())),
            Self::RelPathAndQuery => test(strip_leading_slash(target.path_and_query())),
            Self::Query => test(target.query()),
            Self::AuthorityPathQuery => test(target.authority_path_query()),
            Self::Param(name) => any_param_matches(target, name, test),
            Self::Method => test(facts.method),
            Self::Crawler => test(facts.crawler),
            Self::Referer => test(facts.referer),
            Self::Dest => test(facts.dest.map_or("", super::fact::FetchDest::as_str)),
            Self::ContentType
            | Self::Header(_)
            | Self::Usage(_)
            | Self::Title
            | Self::BodyPrefix
            | Self::MetaRobots
            | Self::Canonical => return self.response_text_matches(facts, test),
            Self::Port | Self::Depth | Self::Address | Self::Status | Self::Size => false,
        })
    }

    /// Text that comes with the response or in it.
    fn response_text_matches(
        &self,
        facts: &Facts<'_>,
        test: &mut dyn FnMut(&str) -> bool,
    ) -> Fact<bool> {
        let Fact::Known(response) = facts.response else {
            return Fact::Unknown;
        };
        match self {
            Self::Title => facts.document.map(|document| test(document.title)),
            Self::BodyPrefix => facts.document.map(|document| test(document.body_prefix)),
            Self::MetaRobots => {
                let words = signals::robots_tag_directives(response.headers, facts.robots_agent());
                let header = Some(words).filter(|words| !words.is_empty());
                header_or_document_matches(
                    header.as_deref(),
                    facts,
                    |document| document.meta_robots,
                    test,
                )
            }
            Self::Canonical => {
                let header = header(&response, "link");
                let link = header.as_deref().and_then(signals::canonical_link);
                header_or_document_matches(link, facts, |document| document.canonical, test)
            }
            Self::ContentType => Fact::Known(test(response.content_type)),
            Self::Header(name) => Fact::Known(test(&header(&response, name).unwrap_or_default())),
            Self::Usage(name) => {
                Fact::Known(test(usage_preference(&response, facts, name).as_str()))
            }
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
            | Self::Size => Fact::Known(false),
        }
    }
}

fn header<'a>(response: &ResponseFacts<'a>, name: &str) -> Option<Cow<'a, str>> {
    response.headers.header(name)
}

/// What a header gives is known at the response; else only the document tells.
fn header_or_document_matches<'d>(
    header: Option<&str>,
    facts: &Facts<'d>,
    from_document: impl Fn(&DocumentFacts<'d>) -> Option<&'d str>,
    test: &mut dyn FnMut(&str) -> bool,
) -> Fact<bool> {
    match header {
        Some(text) => Fact::Known(test(text)),
        None => facts
            .document
            .map(|document| test(from_document(&document).unwrap_or(""))),
    }
}

/// Of robots.txt and the response's headers the strictest.
pub(crate) fn usage_preference(
    response: &ResponseFacts<'_>,
    facts: &Facts<'_>,
    name: &str,
) -> UsagePreference {
    let given = facts
        .usage_preferences
        .iter()
        .filter(|(use_, _)| **use_ == *name)
        .map(|(_, preference)| *preference);
    given
        .max()
        .unwrap_or(UsagePreference::Unset)
        .max(signals::header_usage_preference(response.headers, name))
}

fn strip_leading_slash(text: &str) -> &str {
    text.strip_prefix('/').unwrap_or(text)
}

/// Whether any occurrence of a parameter passes; an absent parameter is empty text.
fn any_param_matches(target: &UrlTarget, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
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
