//! The option `timeouts`, which overrides the configuration.

use std::time::Duration;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::OptionIndex;
use super::schema::option_index;

const CONNECT: OptionIndex = option_index("timeouts.connect");
const CONNECT_TOTAL: OptionIndex = option_index("timeouts.connect_total");
const RESPONSE_HEAD: OptionIndex = option_index("timeouts.response_head");
const BODY_IDLE: OptionIndex = option_index("timeouts.body_idle");
const REQUEST: OptionIndex = option_index("timeouts.request");

/// The timeouts up to the response head. `None` means the value of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginTimeouts {
    /// `connect`: one attempt.
    pub connect: Option<Duration>,
    /// `connect_total`: all attempts together.
    pub connect_total: Option<Duration>,
    pub response_head: Option<Duration>,
}

/// The timeouts of bodies. `None` means the value of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyTimeouts {
    /// `body_idle`: between two chunks.
    pub idle: Option<Duration>,
    /// `request`: the whole body.
    pub whole: Option<Duration>,
}

impl OriginTimeouts {
    pub fn from_trail(policy: &Policy, trail: &Trail) -> Self {
        Self {
            connect: trail.value(policy, CONNECT).as_duration(),
            connect_total: trail.value(policy, CONNECT_TOTAL).as_duration(),
            response_head: trail.value(policy, RESPONSE_HEAD).as_duration(),
        }
    }
}

impl BodyTimeouts {
    pub fn from_trail(policy: &Policy, trail: &Trail) -> Self {
        Self {
            idle: trail.value(policy, BODY_IDLE).as_duration(),
            whole: trail.value(policy, REQUEST).as_duration(),
        }
    }
}
