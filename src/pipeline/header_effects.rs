//! What options do to the fields of messages: `request_headers`, `source`, `meta`, `index` and `follow`.
//!
//! The fields are made when a policy is loaded; a request looks up which of them the rules have chosen for it. A policy
//! that sets none of these options pays one look at an empty table. Which fields of a client's or an origin's own travel
//! is `proxy`'s business.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::policy::Policy;
use crate::policy::options::prepared::PreparedOption;
use crate::policy::options::schema::{self, META, SET_HEADERS};
use crate::policy::options::{OptionSlot, OptionValue};
use crate::policy::trail::Trail;

use super::evaluation::Evaluation;

const CRAWL_SOURCE: HeaderName = HeaderName::from_static("crawl-source");

/// What an origin's answer tells crawlers not to do: the options `index` and `follow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RobotsTag {
    /// Not to index it.
    NoIndex,
    /// Not to follow its links.
    NoFollow,
    /// Neither.
    Neither,
}

/// The fields that a policy's options can make.
#[derive(Debug, Default)]
pub struct HeaderEffects {
    set: Box<[(HeaderName, PreparedOption<HeaderValue>)]>,
    remove: Option<PreparedOption<Box<[HeaderName]>>>,
    source: Option<PreparedOption<HeaderValue>>,
    meta: Box<[(HeaderName, PreparedOption<HeaderValue>)]>,
    robots_tags: RobotsTagUse,
}

/// Whether any rule, or the document, turns `index` or `follow` off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RobotsTagUse {
    #[default]
    Never,
    Possible,
}

impl HeaderEffects {
    /// Makes the fields that a policy's options can ask for.
    pub fn from_policy(policy: &Policy) -> Self {
        let off = |slot| {
            policy
                .possible_values(slot)
                .any(|(_, value)| *value == OptionValue::Bool(false))
        };
        let tags = if off(schema::INDEX) || off(schema::FOLLOW) {
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
    let key = |(slot, key): (OptionSlot, &str)| {
        let name = HeaderName::from_bytes(format!("{before}{key}").as_bytes()).ok()?;
        Some((name, PreparedOption::prepare(policy, slot, header_value)?))
    };
    policy.open_map_keys(map).filter_map(key).collect()
}

/// `compile` lets no text through that is no value of a field.
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

/// What the options have come to for one request.
#[derive(Clone, Copy, Debug)]
pub struct RequestEffects<'a> {
    /// What the policy can ask for.
    pub effects: &'a HeaderEffects,
    /// The policy.
    pub policy: &'a Policy,
    /// What its rules did.
    pub trail: &'a Trail,
}

impl<'a> RequestEffects<'a> {
    /// Changes the fields of a request to the origin: the option `request_headers`, what is removed before what is set.
    pub fn apply_to_request(self, headers: &mut HeaderMap) {
        if let Some(names) = self
            .effects
            .remove
            .as_ref()
            .and_then(|names| self.chosen_value(names))
        {
            for name in names {
                headers.remove(name);
            }
        }
        self.insert(&self.effects.set, headers);
    }

    /// Adds the fields that an origin's answer gets from the options `source` and `meta`.
    pub fn apply_to_response(self, headers: &mut HeaderMap) {
        if let Some(source) = self.source() {
            headers.insert(CRAWL_SOURCE, source.clone());
        }
        self.insert(&self.effects.meta, headers);
    }

    /// The option `source`.
    pub fn source(self) -> Option<&'a HeaderValue> {
        self.effects
            .source
            .as_ref()
            .and_then(|source| self.chosen_value(source))
    }

    /// The options `index` and `follow`, if one of them is off.
    pub fn robots_tag(self) -> Option<RobotsTag> {
        if self.effects.robots_tags == RobotsTagUse::Never {
            return None;
        }
        let is_on = |slot| self.trail.is_on(self.policy, slot);
        match (is_on(schema::INDEX), is_on(schema::FOLLOW)) {
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

impl Evaluation {
    /// What the options have come to for this request.
    pub fn effects(&self) -> RequestEffects<'_> {
        RequestEffects {
            effects: &self.snapshot().effects,
            policy: self.policy(),
            trail: self.trail(),
        }
    }
}
