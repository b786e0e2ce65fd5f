//! A configuration of CloudView as it was read.

use crate::report::PartId;

use super::pattern::CloudViewPattern;

/// A `Crawler`.
#[derive(Clone, Debug)]
pub struct CloudViewCrawler {
    pub name: String,
    /// `defaultAccept`.
    pub default_accept: bool,
    pub roots: Vec<CloudViewRoot>,
    pub rules: Vec<CloudViewRule>,
}

/// A `Root` in site mode.
#[derive(Clone, Debug)]
pub struct CloudViewRoot {
    pub part: PartId,
    pub url: String,
}

/// A `Rule` of any group.
#[derive(Clone, Debug)]
pub struct CloudViewRule {
    pub part: PartId,
    pub matcher: CloudViewMatcher,
    pub actions: Vec<CloudViewAction>,
}

/// A condition of a rule.
#[derive(Clone, Debug)]
pub enum CloudViewMatcher {
    And(Vec<CloudViewMatcher>),
    Or(Vec<CloudViewMatcher>),
    Not(Box<CloudViewMatcher>),
    Atom(CloudViewAtom),
    Length {
        field: CloudViewField,
        min: Option<u64>,
        max: Option<u64>,
    },
}

/// A comparison of a part of the URL.
#[derive(Clone, Debug)]
pub struct CloudViewAtom {
    pub part: PartId,
    pub field: CloudViewField,
    pub kind: CloudViewKind,
    pub norm: CloudViewNorm,
    pub pattern: CloudViewPattern,
}

/// A part of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudViewField {
    Url,
    Scheme,
    Host,
    Path,
    Query,
}

/// The way of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudViewKind {
    Exact,
    Prefix,
    Suffix,
    Inside,
    /// The host is the value, or ends in a dot and the value.
    Domain,
}

/// The level of normalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudViewNorm {
    None,
    Lower,
    Norm,
}

/// An action of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudViewAction {
    /// `Accept`, `Ignore`.
    Accept(bool),
    /// `Index`, `NoIndex`.
    Index(bool),
    /// `Follow`, `NoFollow`.
    Follow(bool),
    Source(String),
    Meta {
        name: String,
        value: String,
    },
    Priority(i8),
}

impl CloudViewField {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "url" => Some(Self::Url),
            "scheme" => Some(Self::Scheme),
            "host" => Some(Self::Host),
            "path" => Some(Self::Path),
            "query" => Some(Self::Query),
            _ => None,
        }
    }

    /// Returns the field of a policy.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Url => "url",
            Self::Scheme => "scheme",
            Self::Host => "host",
            Self::Path => "path",
            Self::Query => "query",
        }
    }
}

impl CloudViewKind {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "exact" => Some(Self::Exact),
            "prefix" => Some(Self::Prefix),
            "suffix" => Some(Self::Suffix),
            "inside" => Some(Self::Inside),
            _ => None,
        }
    }
}
