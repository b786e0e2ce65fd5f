//! The option `robots`.

use std::time::Duration;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::schema::option_index;
use super::{OptionIndex, OptionValue};

const OBEY: OptionIndex = option_index("robots.obey");
const AGENT: OptionIndex = option_index("robots.agent");
const USAGE: OptionIndex = super::schema::ROBOTS_USAGE;
const ON_UNREACHABLE: OptionIndex = option_index("robots.on_unreachable");
const CRAWL_DELAY_CAP: OptionIndex = option_index("robots.crawl_delay_cap");

/// The rules for a host whose robots.txt is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnreachable {
    /// Use the last known robots.txt for 30 days, then deny everything.
    StaleThenDeny,
    /// Deny everything.
    Deny,
    /// Allow everything.
    Allow,
}

/// Returns `robots.agent`, if the policy sets it.
pub fn robots_agent<'p>(policy: &'p Policy, trail: &Trail) -> Option<&'p str> {
    trail.value(policy, AGENT).as_text()
}

/// Reads the option for a request.
#[derive(Clone, Copy, Debug)]
pub struct RobotsOption<'a> {
    policy: &'a Policy,
    trail: &'a Trail,
}

impl<'a> RobotsOption<'a> {
    pub fn new(policy: &'a Policy, trail: &'a Trail) -> Self {
        Self { policy, trail }
    }

    pub fn obeys(&self) -> bool {
        self.trail.is_on(self.policy, OBEY)
    }

    /// Returns `agent`, if the policy sets it.
    pub fn agent(&self) -> Option<&'a str> {
        robots_agent(self.policy, self.trail)
    }

    /// Returns `usage`: the uses that the crawler declares, normalized by
    /// `robots::usage::normalize_purpose`.
    pub fn uses(&self) -> impl Iterator<Item = &'a str> {
        let value = self.trail.value(self.policy, USAGE);
        value.items().iter().filter_map(OptionValue::as_text)
    }

    pub fn on_unreachable(&self) -> OnUnreachable {
        match self.trail.word(self.policy, ON_UNREACHABLE) {
            Some("allow") => OnUnreachable::Allow,
            Some("deny") => OnUnreachable::Deny,
            Some(_) | None => OnUnreachable::StaleThenDeny,
        }
    }

    /// Returns `crawl_delay_cap`: the longest Crawl-delay that is obeyed.
    pub fn crawl_delay_cap(&self) -> Duration {
        self.trail
            .value(self.policy, CRAWL_DELAY_CAP)
            .as_duration()
            .unwrap_or_default()
    }
}
