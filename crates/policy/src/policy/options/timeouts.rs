//! The option `timeouts`, read for one request: what it says in place of the configuration.

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

/// Time-outs up to an answer's head; where there is none the configuration's holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginTimeouts {
    /// `connect`: one attempt.
    pub connect: Option<Duration>,
    /// `connect_total`: all attempts together.
    pub connect_total: Option<Duration>,
    /// `response_head`.
    pub response_head: Option<Duration>,
}

/// Time-outs of bodies; where there is none the configuration's holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyTimeouts {
    /// `body_idle`: between two parts.
    pub idle: Option<Duration>,
    /// `request`: all of a body.
    pub whole: Option<Duration>,
}

impl OriginTimeouts {
    /// The option as it stands.
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
    /// The option as it stands.
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
