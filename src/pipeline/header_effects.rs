//! The effects of options on header fields: `request_headers`, `source`, `meta`, `index` and `follow`.
//!
//! The fields are prepared when a policy is loaded; a request looks up those that its rules have chosen. A policy that
//! sets none of these options costs a request one access to an empty table. The proxy decides which fields of clients
//! and origins are passed on.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::policy::Policy;
use crate::policy::options::prepared::PreparedOption;
use crate::policy::options::schema::{self, META, SET_HEADERS};
use crate::policy::options::{OptionIndex, OptionValue};
use crate::policy::trail::Trail;

use super::document_rewrite::may_be_off;
use super::evaluation::Evaluation;

const CRAWL_SOURCE: HeaderName = HeaderName::from_static("crawl-source");

/// The options `index` and `follow` of a response, if one of them is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RobotsTag {
    /// Do not index the document.
    NoIndex,
    /// Do not follow its links.
    NoFollow,
    /// Do neither.
    Neither,
}

/// The header fields that a policy's options can set.
#[derive(Debug, Default)]
pub struct HeaderEffects {
    set: Box<[(HeaderName, PreparedOption<HeaderValue>)]>,
    remove: Option<PreparedOption<Box<[HeaderName]>>>,
    source: Option<PreparedOption<HeaderValue>>,
    meta: Box<[(HeaderName, PreparedOption<HeaderValue>)]>,
    robots_tags: RobotsTagUse,
}

/// The use of `index: false` or `follow: false` by any rule or by the document's options, or by a check that passes on
/// only links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RobotsTagUse {
    #[default]
    Never,
    Possible,
}

impl HeaderEffects {
    /// Prepares the fields of a policy's options.
    pub fn from_policy(policy: &Policy) -> Self {
        let tags = if may_be_off(policy, schema::INDEX)
            || may_be_off(policy, schema::FOLLOW)
            || policy.ever_gives_links()
        {
            RobotsTagUse::Possible
        } else {
            RobotsTagUse::Never
        };
        Self {
            set: header_fields(policy, SET_HEADERS, ""),
            remove: PreparedOption::prepare(policy, schema::REMOVE_HEADERS, header_names),
            source: PreparedOption::prepare(policy, schema::SOURCE, header_value),
            meta: header_fields(policy, META, "crawl-meta-"),
            robots_tags: tags,
        }
    }
}

fn header_fields(
    policy: &Policy,
    map: &'static str,
    before: &str,
) -> Box<[(HeaderName, PreparedOption<HeaderValue>)]> {
    let key = |(index, key): (OptionIndex, &str)| {
        let name = HeaderName::from_bytes(format!("{before}{key}").as_bytes()).ok()?;
        Some((name, PreparedOption::prepare(policy, index, header_value)?))
    };
    policy.open_map_keys(map).filter_map(key).collect()
}

/// Converts a text. Texts that are not valid in a header field do not compile.
fn header_value(value: &OptionValue) -> Option<HeaderValue> {
    if let OptionValue::Text(text) = value {
        HeaderValue::from_str(text).ok()
    } else {
        None
    }
}

fn header_names(value: &OptionValue) -> Option<Box<[HeaderName]>> {
    let OptionValue::List(names) = value else {
        return None;
    };
    let name = |name: &OptionValue| {
        if let OptionValue::Text(name) = name {
            name.parse().ok()
        } else {
            None
        }
    };
    Some(names.iter().filter_map(name).collect())
}

/// The options of one request.
#[derive(Clone, Copy, Debug)]
pub struct RequestEffects<'a> {
    /// The prepared fields.
    pub effects: &'a HeaderEffects,
    /// The policy that has set them.
    pub policy: &'a Policy,
    /// The trail of its rules.
    pub trail: &'a Trail,
}

impl<'a> RequestEffects<'a> {
    /// Changes the header of a request to the origin: the option `request_headers`, removals first.
    pub fn apply_to_request(self, headers: &mut HeaderMap) {
        if let Some(names) = self
            .effects
            .remove
            .as_ref()
            .and_then(|names| self.chosen_value(names))
        {
            for name in names {
                remove_with_underscores(headers, name);
                headers.remove(name);
            }
        }
        for (name, values) in &self.effects.set {
            if self.chosen_value(values).is_some() {
                remove_with_underscores(headers, name);
            }
        }
        self.insert(&self.effects.set, headers);
    }

    /// Adds the fields of the options `source` and `meta` to an origin's response.
    pub fn apply_to_response(self, headers: &mut HeaderMap) {
        if let Some(source) = self.source() {
            headers.insert(CRAWL_SOURCE, source.clone());
        }
        self.insert(&self.effects.meta, headers);
    }

    /// Returns the option `source`.
    pub fn source(self) -> Option<&'a HeaderValue> {
        self.effects
            .source
            .as_ref()
            .and_then(|source| self.chosen_value(source))
    }

    /// Returns the options `index` and `follow`, if one of them is off.
    pub fn robots_tag(self) -> Option<RobotsTag> {
        if self.effects.robots_tags == RobotsTagUse::Never {
            return None;
        }
        match (
            self.trail.is_on(self.policy, schema::INDEX),
            self.trail.is_on(self.policy, schema::FOLLOW),
        ) {
            (true, true) => None,
            (false, true) => Some(RobotsTag::NoIndex),
            (true, false) => Some(RobotsTag::NoFollow),
            (false, false) => Some(RobotsTag::Neither),
        }
    }

    fn insert(
        self,
        fields: &'a [(HeaderName, PreparedOption<HeaderValue>)],
        headers: &mut HeaderMap,
    ) {
        for (name, values) in fields {
            if let Some(value) = self.chosen_value(values) {
                headers.insert(name, value.clone());
            }
        }
    }

    fn chosen_value<T>(self, chosen: &'a PreparedOption<T>) -> Option<&'a T> {
        chosen.current(self.policy, self.trail)
    }
}

/// Removes the fields that origins by way of CGI or WSGI do not distinguish from `name`: those with
/// `_` for its `-`.
fn remove_with_underscores(headers: &mut HeaderMap, name: &HeaderName) {
    let is_same = |other: &&HeaderName| {
        other.as_str().contains('_')
            && other.as_str().replace('_', "-") == name.as_str().replace('_', "-")
    };
    let same: Vec<HeaderName> = headers.keys().filter(is_same).cloned().collect();
    for name in same {
        headers.remove(name);
    }
}

impl Evaluation {
    /// Returns the effects of options on this request.
    pub fn effects(&self) -> RequestEffects<'_> {
        RequestEffects {
            effects: &self.snapshot().effects,
            policy: self.policy(),
            trail: self.trail(),
        }
    }
}
