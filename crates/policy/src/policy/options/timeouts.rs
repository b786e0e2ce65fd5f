//! The option `timeouts`, which overrides the configuration.

use std::time::Duration;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::schema::slot;
use super::{OptionSlot, OptionValue};

const CONNECT: OptionSlot = slot("timeouts.connect");
const CONNECT_TOTAL: OptionSlot = slot("timeouts.connect_total");
const RESPONSE_HEAD: OptionSlot = slot("timeouts.response_head");
const BODY_IDLE: OptionSlot = slot("timeouts.body_idle");
const REQUEST: OptionSlot = slot("timeouts.request");

/// The time-outs up to the response head. `None` means the value of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginTimeouts {
    /// `connect`: one attempt.
    pub connect: Option<Duration>,
    /// `connect_total`: all attempts together.
    pub connect_total: Option<Duration>,
    pub response_head: Option<Duration>,
}

/// The time-outs of bodies. `None` means the value of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyTimeouts {
    /// `body_idle`: between two chunks.
    pub idle: Option<Duration>,
    /// `request`: the whole body.
    pub whole: Option<Duration>,
}

impl OriginTimeouts {
    pub fn from_trail(policy: &Policy, trail: &Trail) -> Self {
        let time = |slot| read_duration(policy, trail, slot);
        Self {
            connect: time(CONNECT),
            connect_total: time(CONNECT_TOTAL),
            response_head: time(RESPONSE_HEAD),
        }
    }
}

impl BodyTimeouts {
    pub fn from_trail(policy: &Policy, trail: &Trail) -> Self {
        Self {
            idle: read_duration(policy, trail, BODY_IDLE),
            whole: read_duration(policy, trail, REQUEST),
        }
    }
}

fn read_duration(policy: &Policy, trail: &Trail, slot: OptionSlot) -> Option<Duration> {
    if let OptionValue::Duration(time) = trail.value(policy, slot) {
        Some(*time)
    } else {
        None
    }
}
