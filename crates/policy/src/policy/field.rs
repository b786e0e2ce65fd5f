//! The fields that a condition can name, and the facts that they read.
//!
//! A new field is a variant of [`Field`] with a row in `Field::row`, an entry in `FIXED_FIELDS`, and an
//! arm in each function that reads facts: CONTRIBUTING.md has the recipe. The rows of a group share the cautious value
//! of a property, such as `is_in_ledger: false`: a field for which another one is right says so in its row.

use std::borrow::Cow;
use std::net::IpAddr;

use super::fact::{
    DocumentFacts, EvaluationTarget, Fact, Facts, FetchDest, ResponseFacts, UsagePreference,
};
use super::rule::PolicyStage;
use super::signals;
use super::source::tree::TextTestKind;
use crate::model::crawler::Crawler;
use crate::urls::target::{HostTarget, UrlTarget};

/// A field of a condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The whole URL in canonical form.
    Url,
    /// `http` or `https`.
    Scheme,
    Host,
    /// The port, possibly the scheme's default.
    Port,
    /// The host, with the port unless it is the scheme's default.
    Authority,
    /// The path with its leading slash.
    Path,
    PathAndQuery,
    /// The path without its leading slash (WebCopy's path).
    RelPath,
    /// The path and query without the leading slash.
    RelPathAndQuery,
    /// The query without `?`.
    Query,
    /// The URL without its scheme.
    AuthorityPathQuery,
    /// Any occurrence of a query parameter, percent-decoded once.
    Param(Box<str>),
    Method,
    /// The crawler's name.
    Crawler,
    /// The value of `Referer`.
    Referer,
    /// `navigation` or `embed`.
    Dest,
    /// The number of links from a seed.
    Depth,
    /// The address of the origin.
    Address,
    /// The type and subtype of the response.
    ContentType,
    /// The status of the response.
    Status,
    /// The size of the response.
    Size,
    /// A header of the response, with its name in lower case.
    Header(Box<str>),
    /// A usage preference, such as `train-ai`, of robots.txt and the response.
    Usage(Box<str>),
    /// The URL of the license: that of `Link: <…>; rel=license`, else that of robots.txt.
    License,
    /// The title of the document.
    Title,
    /// The beginning of the document.
    BodyPrefix,
    /// The `robots` directives: those of `X-Robots-Tag`, else those of the document.
    MetaRobots,
    /// The canonical URL: that of `Link: <…>; rel=canonical`, else that of the document.
    Canonical,
}

/// The type of a field's value, which determines the tests that apply to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    Text,
    /// A whole number.
    Number,
    /// An IP address.
    Address,
}

/// The properties of a field.
struct FieldRow {
    /// The key in conditions; that of a field with a name of its own ends in `.NAME`.
    keyword: &'static str,
    /// A sentence for editors and the reference.
    description: &'static str,
    /// The stage from which on the field is known.
    stage: PolicyStage,
    value_type: ValueType,
    /// The kind of test of a value without a kind.
    default_kind: TextTestKind,
    /// `true` if the URL alone determines the field.
    is_url_part: bool,
    /// `true` if the field has a path or a query, in which segments or parameters can be counted.
    has_path_or_query: bool,
    /// `true` if the field is known for a tunnel that is not intercepted.
    is_visible_in_tunnels: bool,
    /// `true` if tests of the field never distinguish case.
    ignores_case: bool,
    /// `true` if a response header may provide the field at the response stage.
    may_come_from_header: bool,
    /// `true` if a rule that names the field only matches 2xx with content.
    needs_content: bool,
    /// `true` if naming the field lets a rule match responses of every status.
    allows_any_status: bool,
    /// The texts that the field can have if it is not empty; no text if it can have any.
    words: &'static [&'static str],
    /// The text in a GET by an anonymous crawler for a site that states no preference, if the field is never empty. Parts of the
    /// URL have none.
    usual_text: Option<&'static str>,
    /// `true` if many requests come without the field, all of which `require` refuses.
    is_often_absent: bool,
    /// `true` if the ledger records the field of a URL, so that a sweep evaluates rules on it as a request would.
    is_in_ledger: bool,
}

/// The properties that the fields of a stage share; each row sets what differs.
const REQUEST_FIELD: FieldRow = FieldRow {
    keyword: "",
    description: "",
    stage: PolicyStage::Request,
    value_type: ValueType::Text,
    default_kind: TextTestKind::Exact,
    is_url_part: false,
    has_path_or_query: false,
    is_visible_in_tunnels: false,
    ignores_case: false,
    may_come_from_header: false,
    needs_content: false,
    allows_any_status: false,
    words: &[],
    usual_text: None,
    is_often_absent: true,
    is_in_ledger: false,
};
const URL_PART_FIELD: FieldRow = FieldRow {
    is_url_part: true,
    has_path_or_query: true,
    is_often_absent: false,
    is_in_ledger: true,
    ..REQUEST_FIELD
};
const ORIGIN_FIELD: FieldRow = FieldRow {
    is_url_part: true,
    is_visible_in_tunnels: true,
    ignores_case: true,
    is_often_absent: false,
    is_in_ledger: true,
    ..REQUEST_FIELD
};
const RESPONSE_FIELD: FieldRow = FieldRow {
    stage: PolicyStage::Response,
    is_often_absent: false,
    ..REQUEST_FIELD
};
const DOCUMENT_FIELD: FieldRow = FieldRow {
    stage: PolicyStage::Document,
    needs_content: true,
    is_often_absent: false,
    ..REQUEST_FIELD
};

const DEST_WORDS: [&str; 2] = [FetchDest::Navigation.as_str(), FetchDest::Embed.as_str()];
const UNSET_WORD: &str = UsagePreference::Unset.as_str();
const USAGE_WORDS: [&str; 3] = [
    UsagePreference::Allow.as_str(),
    UsagePreference::Deny.as_str(),
    UNSET_WORD,
];

/// The fields with a fixed keyword, in the order of the reference.
pub static FIXED_FIELDS: [Field; 25] = [
    Field::Url,
    Field::Scheme,
    Field::Host,
    Field::Port,
    Field::Authority,
    Field::Path,
    Field::PathAndQuery,
    Field::RelPath,
    Field::RelPathAndQuery,
    Field::Query,
    Field::AuthorityPathQuery,
    Field::Method,
    Field::Crawler,
    Field::Referer,
    Field::Dest,
    Field::Depth,
    Field::Address,
    Field::ContentType,
    Field::Status,
    Field::Size,
    Field::License,
    Field::Title,
    Field::BodyPrefix,
    Field::MetaRobots,
    Field::Canonical,
];

impl Field {
    /// One field of each family, whose keyword ends in `.NAME`.
    pub(crate) fn families() -> [Self; 3] {
        [
            Self::Param("".into()),
            Self::Header("".into()),
            Self::Usage("".into()),
        ]
    }

    #[allow(clippy::too_many_lines, reason = "one table, read as one")]
    fn row(&self) -> &'static FieldRow {
        match self {
            Self::Url => &FieldRow {
                keyword: "url",
                description: "The whole URL in canonical form; bare values are exact.",
                ..URL_PART_FIELD
            },
            Self::Scheme => &FieldRow {
                keyword: "scheme",
                description: "http or https.",
                words: &["http", "https"],
                ..ORIGIN_FIELD
            },
            Self::Host => &FieldRow {
                keyword: "host",
                description: "The host; use domain to include subdomains.",
                ..ORIGIN_FIELD
            },
            Self::Port => &FieldRow {
                keyword: "port",
                description: "The port, including the scheme's default.",
                value_type: ValueType::Number,
                ignores_case: false,
                ..ORIGIN_FIELD
            },
            Self::Authority => &FieldRow {
                keyword: "authority",
                description: "The host, with the port unless that is the scheme's default.",
                ..ORIGIN_FIELD
            },
            Self::Path => &FieldRow {
                keyword: "path",
                description: "The path; bare values are prefixes.",
                default_kind: TextTestKind::Prefix,
                ..URL_PART_FIELD
            },
            Self::PathAndQuery => &FieldRow {
                keyword: "path_and_query",
                description: "Path and query; bare values are prefixes.",
                default_kind: TextTestKind::Prefix,
                ..URL_PART_FIELD
            },
            Self::RelPath => &FieldRow {
                keyword: "rel_path",
                description: "The path without its leading slash; bare values are exact.",
                ..URL_PART_FIELD
            },
            Self::RelPathAndQuery => &FieldRow {
                keyword: "rel_path_and_query",
                description: "Path and query without the leading slash; bare values are exact.",
                ..URL_PART_FIELD
            },
            Self::Query => &FieldRow {
                keyword: "query",
                description: "The query without its question mark; bare values are exact.",
                ..URL_PART_FIELD
            },
            Self::AuthorityPathQuery => &FieldRow {
                keyword: "authority_path_query",
                description: "The URL without its scheme; bare values are exact.",
                ..URL_PART_FIELD
            },
            Self::Param(_) => &FieldRow {
                keyword: "param.NAME",
                description: "Any occurrence of a query parameter, decoded; empty if it is missing.",
                has_path_or_query: false,
                ..URL_PART_FIELD
            },
            Self::Method => &FieldRow {
                keyword: "method",
                description: "The method.",
                usual_text: Some("GET"),
                is_often_absent: false,
                // Only a GET is recorded.
                is_in_ledger: true,
                ..REQUEST_FIELD
            },
            Self::Crawler => &FieldRow {
                keyword: "crawler",
                description: "The crawler's name; anonymous for a client without one.",
                is_visible_in_tunnels: true,
                usual_text: Some(Crawler::ANONYMOUS),
                is_often_absent: false,
                is_in_ledger: true,
                ..REQUEST_FIELD
            },
            Self::Referer => &FieldRow {
                keyword: "referer",
                description: "The Referer; empty if it is missing.",
                ..REQUEST_FIELD
            },
            Self::Dest => &FieldRow {
                keyword: "dest",
                description: "The purpose of the response: navigation or embed.",
                words: &DEST_WORDS,
                ..REQUEST_FIELD
            },
            Self::Depth => &FieldRow {
                keyword: "depth",
                description: "The number of links from a start page, if known.",
                value_type: ValueType::Number,
                is_in_ledger: true,
                ..REQUEST_FIELD
            },
            Self::Address => &FieldRow {
                keyword: "address",
                description: "The address that the proxy would connect to: networks.",
                stage: PolicyStage::Destination,
                value_type: ValueType::Address,
                is_visible_in_tunnels: true,
                is_often_absent: false,
                is_in_ledger: true,
                ..REQUEST_FIELD
            },
            Self::ContentType => &FieldRow {
                keyword: "content_type",
                description: "Type and subtype of the response; image/* is a family. Applies to successful responses with content only.",
                ignores_case: true,
                needs_content: true,
                ..RESPONSE_FIELD
            },
            Self::Status => &FieldRow {
                keyword: "status",
                description: "The status of the response: 404, 5xx.",
                value_type: ValueType::Number,
                allows_any_status: true,
                ..RESPONSE_FIELD
            },
            Self::Size => &FieldRow {
                keyword: "size",
                description: "The size of the response in bytes: \"[1MiB:]\". Applies to successful responses with content only.",
                value_type: ValueType::Number,
                needs_content: true,
                ..RESPONSE_FIELD
            },
            Self::Header(_) => &FieldRow {
                keyword: "header.NAME",
                description: "A header field of the response; empty if it is missing.",
                allows_any_status: true,
                ..RESPONSE_FIELD
            },
            Self::Usage(_) => &FieldRow {
                keyword: "usage.NAME",
                description: "The site's preference for a use such as train-ai: allow, deny, unset.",
                words: &USAGE_WORDS,
                usual_text: Some(UNSET_WORD),
                ..RESPONSE_FIELD
            },
            Self::License => &FieldRow {
                keyword: "license",
                description: "The URL of the RSL license that the response or robots.txt names; empty if there is none.",
                allows_any_status: true,
                ..RESPONSE_FIELD
            },
            Self::Title => &FieldRow {
                keyword: "title",
                description: "The title of the document; bare values are substrings.",
                default_kind: TextTestKind::Contains,
                ..DOCUMENT_FIELD
            },
            Self::BodyPrefix => &FieldRow {
                keyword: "body_prefix",
                description: "The first bytes of the document; bare values are substrings.",
                default_kind: TextTestKind::Contains,
                ..DOCUMENT_FIELD
            },
            Self::MetaRobots => &FieldRow {
                keyword: "meta_robots",
                description: "The robots directives of the response or the document.",
                may_come_from_header: true,
                ..DOCUMENT_FIELD
            },
            Self::Canonical => &FieldRow {
                keyword: "canonical",
                description: "The canonical URL that the response or the document names.",
                may_come_from_header: true,
                ..DOCUMENT_FIELD
            },
        }
    }

    /// The key in conditions: `path`, or `param.NAME` for a family.
    pub(crate) fn keyword(&self) -> &'static str {
        self.row().keyword
    }

    /// The key in conditions, with the field's own name: `path`, `param.q`.
    pub(crate) fn full_keyword(&self) -> String {
        let (Self::Param(name) | Self::Header(name) | Self::Usage(name)) = self else {
            return self.keyword().to_owned();
        };
        self.keyword().replace("NAME", name)
    }

    pub(crate) fn description(&self) -> &'static str {
        self.row().description
    }

    /// The kind of test of a value without a kind.
    pub(crate) fn default_kind(&self) -> TextTestKind {
        self.row().default_kind
    }

    /// Returns `true` if segments or parameters of the field can be counted.
    pub(crate) fn has_path_or_query(&self) -> bool {
        self.row().has_path_or_query
    }

    /// The stage from which on the field is known.
    pub fn stage(&self) -> PolicyStage {
        self.row().stage
    }

    /// The first stage at which the field may be known.
    pub fn earliest_stage(&self) -> PolicyStage {
        if self.may_come_from_header() {
            PolicyStage::Response
        } else {
            self.stage()
        }
    }

    pub fn value_type(&self) -> ValueType {
        self.row().value_type
    }

    /// Returns `true` if the URL alone determines the field.
    pub fn is_url_part(&self) -> bool {
        self.row().is_url_part
    }

    /// Returns `true` if the field is known for a tunnel that is not intercepted.
    pub fn is_visible_in_tunnels(&self) -> bool {
        self.row().is_visible_in_tunnels
    }

    /// Returns `true` if a response header may provide the field instead of the document.
    pub fn may_come_from_header(&self) -> bool {
        self.row().may_come_from_header
    }

    /// Returns `true` if a rule that names the field only matches 2xx responses with content.
    pub fn needs_content(&self) -> bool {
        self.row().needs_content
    }

    /// Returns `true` if naming the field lets a rule match responses of every status.
    pub fn allows_any_status(&self) -> bool {
        self.row().allows_any_status
    }

    /// Returns `true` if text tests of the field never distinguish case.
    pub fn ignores_case(&self) -> bool {
        self.row().ignores_case
    }

    /// Returns the texts that the field can have if it is not empty; none if it can have any.
    pub(crate) fn words(&self) -> &'static [&'static str] {
        self.row().words
    }

    /// Returns the text in a GET by an anonymous crawler for a site that states no preference, if the field is never empty.
    pub(crate) fn usual_text(&self) -> Option<&'static str> {
        self.row().usual_text
    }

    /// Returns `true` if many requests come without the field.
    pub fn is_often_absent(&self) -> bool {
        self.row().is_often_absent
    }

    /// Returns `true` if the ledger records the field of a URL.
    pub fn is_in_ledger(&self) -> bool {
        self.row().is_in_ledger
    }
}

impl Field {
    /// Returns the reason why the field is never this text, and the fix: it has a closed set of words, or a fixed form.
    pub(crate) fn impossible_text(&self, text: &str) -> Option<(&'static str, String)> {
        let words = self.words();
        let allowed = || format!("allowed: {}", words.join(", "));
        match self {
            Self::Scheme => (!words.contains(&&*text.to_ascii_lowercase()))
                .then(|| ("only http and https are supported", allowed())),
            Self::Dest => (!text.is_empty() && !words.contains(&text))
                .then(|| ("not a value of `dest`", allowed())),
            Self::Usage(_) => {
                (!words.contains(&text)).then(|| ("not a usage preference", allowed()))
            }
            Self::Method => text.bytes().any(|b| b.is_ascii_lowercase()).then(|| {
                let help = format!("write {}", text.to_ascii_uppercase());
                ("methods are in upper case", help)
            }),
            Self::ContentType => {
                let is_type = text.split('/').count() == 2 && !text.contains(';');
                (!text.is_empty() && !is_type).then(|| {
                    (
                        "types are compared without parameters, as `type/subtype`",
                        "written like text/html, image/*".into(),
                    )
                })
            }
            Self::Url
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
            | Self::Crawler
            | Self::Referer
            | Self::Depth
            | Self::Address
            | Self::Status
            | Self::Size
            | Self::Header(_)
            | Self::License
            | Self::Title
            | Self::BodyPrefix
            | Self::MetaRobots
            | Self::Canonical => None,
        }
    }

    /// Returns `true` if any text of the field passes a test. Absent text is empty.
    pub fn any_text_matches(
        &self,
        facts: &Facts<'_>,
        test: impl FnMut(&str) -> bool,
    ) -> Fact<bool> {
        self.any_text_of(facts.target, facts, test)
    }

    /// Like [`Self::any_text_matches`], with another target.
    pub(crate) fn any_text_of(
        &self,
        target: EvaluationTarget<'_>,
        facts: &Facts<'_>,
        mut test: impl FnMut(&str) -> bool,
    ) -> Fact<bool> {
        match target {
            EvaluationTarget::Url(target) => self.url_text_matches(target, facts, &mut test),
            EvaluationTarget::Tunnel(target) => match self.tunnel_text(target, facts) {
                Some(text) => Fact::Known(test(text)),
                None => Fact::Unknown,
            },
        }
    }

    /// The number in a numeric field; `None` if it is absent.
    pub fn number(&self, facts: &Facts<'_>) -> Fact<Option<u64>> {
        let port = match facts.target {
            EvaluationTarget::Url(target) => target.port(),
            EvaluationTarget::Tunnel(target) if *self == Self::Port => target.port(),
            EvaluationTarget::Tunnel(_) => return Fact::Unknown,
        };
        match self {
            Self::Port => Fact::Known(Some(port.into())),
            Self::Depth => Fact::Known(facts.depth),
            Self::Status => facts.response.map(|r| Some(r.status.into())),
            Self::Size => facts.response.map(|r| r.size),
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
            | Self::Address
            | Self::ContentType
            | Self::Header(_)
            | Self::Usage(_)
            | Self::License
            | Self::Title
            | Self::BodyPrefix
            | Self::MetaRobots
            | Self::Canonical => Fact::Known(None),
        }
    }

    /// The address in an address field; `None` if it is absent.
    pub fn address(&self, facts: &Facts<'_>) -> Fact<Option<IpAddr>> {
        match self {
            Self::Address => facts.address,
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
            | Self::Status
            | Self::Size
            | Self::ContentType
            | Self::Header(_)
            | Self::Usage(_)
            | Self::License
            | Self::Title
            | Self::BodyPrefix
            | Self::MetaRobots
            | Self::Canonical => Fact::Known(None),
        }
    }

    /// The text of a field that is known for a tunnel.
    fn tunnel_text<'a>(&self, target: &'a HostTarget, facts: &Facts<'a>) -> Option<&'a str> {
        match self {
            Self::Scheme => Some(target.scheme().as_str()),
            Self::Host => Some(target.host()),
            Self::Authority => Some(target.authority()),
            Self::Crawler => Some(facts.crawler),
            Self::Url
            | Self::Path
            | Self::PathAndQuery
            | Self::RelPath
            | Self::RelPathAndQuery
            | Self::Query
            | Self::AuthorityPathQuery
            | Self::Param(_)
            | Self::Method
            | Self::Referer
            | Self::Dest
            | Self::Depth
            | Self::Port
            | Self::Address
            | Self::ContentType
            | Self::Status
            | Self::Size
            | Self::Header(_)
            | Self::Usage(_)
            | Self::License
            | Self::Title
            | Self::BodyPrefix
            | Self::MetaRobots
            | Self::Canonical => None,
        }
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
            Self::Dest => test(facts.dest.map_or("", FetchDest::as_str)),
            Self::ContentType => return facts.response.map(|r| test(r.content_type)),
            Self::Header(name) => {
                return facts
                    .response
                    .map(|r| test(&r.headers.header(name).unwrap_or_default()));
            }
            Self::Usage(name) => {
                return facts
                    .response
                    .map(|r| test(usage_preference(&r, facts, name).as_str()));
            }
            Self::License => return facts.response.map(|r| test(&license_url(&r, facts))),
            Self::Title => return facts.known_document().map(|document| test(document.title)),
            Self::BodyPrefix => {
                return facts
                    .known_document()
                    .map(|document| test(document.body_prefix));
            }
            Self::MetaRobots => return meta_robots_match(facts, test),
            Self::Canonical => return canonical_matches(facts, test),
            Self::Port | Self::Depth | Self::Address | Self::Status | Self::Size => false,
        })
    }
}

impl<'a> Facts<'a> {
    /// The facts of the document, which are not used before the response is known.
    fn known_document(&self) -> Fact<DocumentFacts<'a>> {
        match self.response {
            Fact::Known(_) => self.document,
            Fact::Unknown => Fact::Unknown,
        }
    }
}

fn meta_robots_match(facts: &Facts<'_>, test: &mut dyn FnMut(&str) -> bool) -> Fact<bool> {
    let Fact::Known(response) = facts.response else {
        return Fact::Unknown;
    };
    let directives = signals::robots_tag_directives(response.headers, facts.robots_agent());
    if !directives.is_empty() {
        return Fact::Known(test(&directives));
    }
    facts
        .document
        .map(|document| test(document.meta_robots.unwrap_or("")))
}

fn canonical_matches(facts: &Facts<'_>, test: &mut dyn FnMut(&str) -> bool) -> Fact<bool> {
    let Fact::Known(response) = facts.response else {
        return Fact::Unknown;
    };
    let header = response.headers.header("link");
    if let Some(link) = header.as_deref().and_then(signals::canonical_link) {
        return Fact::Known(test(link));
    }
    facts
        .document
        .map(|document| test(document.canonical.unwrap_or("")))
}

/// Returns the strictest preference of robots.txt and the response's headers.
pub(crate) fn usage_preference(
    response: &ResponseFacts<'_>,
    facts: &Facts<'_>,
    name: &str,
) -> UsagePreference {
    facts
        .usage_preferences
        .iter()
        .filter(|(purpose, _)| **purpose == *name)
        .map(|(_, preference)| *preference)
        .max()
        .unwrap_or(UsagePreference::Unset)
        .max(signals::header_usage_preference(
            response,
            facts.robots_agent(),
            name,
        ))
}

/// Returns the URL of the license in the `Link` header, else in robots.txt, as written; empty if
/// there is none.
pub(crate) fn license_url<'a>(response: &ResponseFacts<'a>, facts: &Facts<'a>) -> Cow<'a, str> {
    let linked = match response.headers.header("link") {
        Some(Cow::Borrowed(header)) => signals::license_link(header).map(Cow::Borrowed),
        Some(Cow::Owned(header)) => {
            signals::license_link(&header).map(|url| Cow::Owned(url.to_owned()))
        }
        None => None,
    };
    linked.unwrap_or(Cow::Borrowed(facts.site_license))
}

fn strip_leading_slash(text: &str) -> &str {
    text.strip_prefix('/').unwrap_or(text)
}

/// Returns `true` if any occurrence of a parameter passes. An absent parameter is empty text.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_field_of_the_address_is_an_address() {
        let target = UrlTarget::parse("http://a.test/").unwrap();
        let address = Some(IpAddr::from([192, 0, 2, 1]));
        let facts = Facts {
            address: Fact::Known(address),
            ..Facts::for_url(&target)
        };
        assert_eq!(Field::Address.address(&facts), Fact::Known(address));
        for field in [Field::Host, Field::Port, Field::Param("q".into())] {
            assert_eq!(field.address(&facts), Fact::Known(None), "{field:?}");
        }
    }
}
