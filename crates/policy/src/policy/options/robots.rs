//! The option `robots`, read for one request.

use std::time::Duration;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::schema::slot;
use super::{OptionSlot, OptionValue};

const OBEY: OptionSlot = slot("robots.obey");
const AGENT: OptionSlot = slot("robots.agent");
const USAGE: OptionSlot = super::schema::ROBOTS_USAGE;
const ON_UNREACHABLE: OptionSlot = slot("robots.on_unreachable");
const CRAWL_DELAY_CAP: OptionSlot = slot("robots.crawl_delay_cap");

/// What holds for a host whose robots.txt cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnreachable {
    /// What was known before, for 30 days; without that, nothing may be fetched.
    StaleThenDeny,
    /// Nothing may be fetched.
    Deny,
    /// Everything may.
    Allow,
}

/// The option `robots.agent`, if the policy names one.
pub fn robots_agent<'p>(policy: &'p Policy, trail: &Trail) -> Option<&'p str> {
    if let OptionValue::Text(agent) = trail.value(policy, AGENT) {
        Some(agent)
    } else {
        None
    }
}

/// Reads the option for a request from what the rules have assigned.
#[derive(Clone, Copy, Debug)]
pub struct RobotsOption<'a> {
    policy: &'a Policy,
    trail: &'a Trail,
}

impl<'a> RobotsOption<'a> {
    /// The option as it stands.
    pub fn new(policy: &'a Policy, trail: &'a Trail) -> Self {
        Self { policy, trail }
    }

    /// `obey`.
    pub fn obeys(&self) -> bool {
        self.trail.is_on(self.policy, OBEY)
    }

    /// `agent`, if the policy names one.
    pub fn agent(&self) -> Option<&'a str> {
        robots_agent(self.policy, self.trail)
    }

    /// `usage`: the uses that the crawler declares, named as `robots::usage::purpose` does.
    pub fn uses(&self) -> impl Iterator<Item = &'a str> {
        let items = if let OptionValue::List(items) = self.trail.value(self.policy, USAGE) {
            &**items
        } else {
            &[]
        };
        items.iter().filter_map(|item| {
            if let OptionValue::Text(name) = item {
                Some(&**name)
            } else {
                None
            }
        })
    }

    /// `on_unreachable`.
    pub fn on_unreachable(&self) -> OnUnreachable {
        match self.trail.word(self.policy, ON_UNREACHABLE) {
            Some("allow") => OnUnreachable::Allow,
            Some("deny") => OnUnreachable::Deny,
            Some(_) | None => OnUnreachable::StaleThenDeny,
        }
    }

    /// `crawl_delay_cap`: the longest Crawl-delay that counts.
    pub fn crawl_delay_cap(&self) -> Duration {
        let value = self.trail.value(self.policy, CRAWL_DELAY_CAP);
        if let OptionValue::Duration(cap) = value {
            *cap
        } else {
            Duration::ZERO
        }
    }
}
