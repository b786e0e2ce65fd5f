//! What options do to the fields of messages: `request_headers`, `source`, `meta`, `index` and `follow`.
//!
//! The fields are made when a policy is loaded; a request looks up which of them the rules have chosen for it. A policy
//! that sets none of these options pays one look at an empty table. Which fields of a client's or an origin's own travel
//! is `proxy`'s business.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::policy::Policy;
use crate::policy::options::chosen::Chosen;
use crate::policy::options::schema::{self, META, SET_HEADERS};
use crate::policy::options::{Slot, Value};
use crate::policy::trail::Trail;

use super::judged::Judged;

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
pub struct Effects {
    set: Box<[(HeaderName, Chosen<HeaderValue>)]>,
    remove: Option<Chosen<Box<[HeaderName]>>>,
    source: Option<Chosen<HeaderValue>>,
    meta: Box<[(HeaderName, Chosen<HeaderValue>)]>,
    tags: Tags,
}

/// Whether any rule, or the document, turns `index` or `follow` off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tags {
    #[default]
    Never,
    Perhaps,
}

impl Effects {
    /// Makes the fields that a policy's options can ask for.
    pub fn of(policy: &Policy) -> Self {
        let off = |slot| {
            policy
                .values_of(slot)
                .any(|(_, value)| *value == Value::Bool(false))
        };
        let tags = if off(schema::INDEX) || off(schema::FOLLOW) {
            Tags::Perhaps
        } else {
            Tags::Never
        };
        Self {
            set: keys(policy, SET_HEADERS, ""),
            remove: Chosen::of(policy, schema::REMOVE_HEADERS, names),
            source: Chosen::of(policy, schema::SOURCE, text),
            meta: keys(policy, META, "crawl-meta-"),
            tags,
        }
    }
}

fn keys(
    policy: &Policy,
    map: &'static str,
    before: &str,
) -> Box<[(HeaderName, Chosen<HeaderValue>)]> {
    let key = |(slot, key): (Slot, &str)| {
        let name = HeaderName::from_bytes(format!("{before}{key}").as_bytes()).ok()?;
        Some((name, Chosen::of(policy, slot, text)?))
    };
    policy.keys_of(map).filter_map(key).collect()
}

/// `compile` lets no text through that is no value of a field.
fn text(value: &Value) -> Option<HeaderValue> {
    if let Value::Text(text) = value {
        HeaderValue::from_str(text).ok()
    } else {
        None
    }
}

fn names(value: &Value) -> Option<Box<[HeaderName]>> {
    let Value::List(names) = value else {
        return None;
    };
    let name = |name: &Value| {
        if let Value::Text(name) = name {
            name.parse().ok()
        } else {
            None
        }
    };
    Some(names.iter().filter_map(name).collect())
}

/// What the options have come to for one request.
#[derive(Clone, Copy, Debug)]
pub struct ForOne<'a> {
    /// What the policy can ask for.
    pub effects: &'a Effects,
    /// The policy.
    pub policy: &'a Policy,
    /// What its rules did.
    pub trail: &'a Trail,
}

impl<'a> ForOne<'a> {
    /// Changes the fields of a request to the origin: the option `request_headers`, what is removed before what is set.
    pub fn change_request(self, headers: &mut HeaderMap) {
        if let Some(names) = self
            .effects
            .remove
            .as_ref()
            .and_then(|names| self.chosen(names))
        {
            for name in names {
                headers.remove(name);
            }
        }
        self.insert(&self.effects.set, headers);
    }

    /// Adds the fields that an origin's answer gets from the options `source` and `meta`.
    pub fn describe_answer(self, headers: &mut HeaderMap) {
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
            .and_then(|source| self.chosen(source))
    }

    /// The options `index` and `follow`, if one of them is off.
    pub fn robots_tag(self) -> Option<RobotsTag> {
        if self.effects.tags == Tags::Never {
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

    fn insert(self, fields: &'a [(HeaderName, Chosen<HeaderValue>)], headers: &mut HeaderMap) {
        for (name, values) in fields {
            if let Some(value) = self.chosen(values) {
                headers.insert(name, value.clone());
            }
        }
    }

    fn chosen<T>(self, chosen: &'a Chosen<T>) -> Option<&'a T> {
        chosen.now(self.policy, self.trail)
    }
}

impl<C> Judged<C> {
    /// What the options have come to for this request.
    pub fn effects(&self) -> ForOne<'_> {
        ForOne {
            effects: &self.snapshot.effects,
            policy: self.policy(),
            trail: &self.trail,
        }
    }
}
