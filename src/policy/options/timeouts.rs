//! The option `timeouts`, read for one request: what it says in place of the configuration.

use std::time::Duration;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::schema::slot;
use super::{Slot, Value};

const CONNECT: Slot = slot("timeouts.connect");
const CONNECT_TOTAL: Slot = slot("timeouts.connect_total");
const RESPONSE_HEAD: Slot = slot("timeouts.response_head");
const BODY_IDLE: Slot = slot("timeouts.body_idle");
const REQUEST: Slot = slot("timeouts.request");

/// Time-outs up to an answer's head; where there is none the configuration's holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToOrigin {
    /// `connect`: one attempt.
    pub connect: Option<Duration>,
    /// `connect_total`: all attempts together.
    pub connect_total: Option<Duration>,
    /// `response_head`.
    pub response_head: Option<Duration>,
}

/// Time-outs of bodies; where there is none the configuration's holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfBodies {
    /// `body_idle`: between two parts.
    pub idle: Option<Duration>,
    /// `request`: all of a body.
    pub whole: Option<Duration>,
}

impl ToOrigin {
    /// The option as it stands.
    pub fn of(policy: &Policy, trail: &Trail) -> Self {
        let time = |slot| duration(policy, trail, slot);
        Self {
            connect: time(CONNECT),
            connect_total: time(CONNECT_TOTAL),
            response_head: time(RESPONSE_HEAD),
        }
    }
}

impl OfBodies {
    /// The option as it stands.
    pub fn of(policy: &Policy, trail: &Trail) -> Self {
        Self {
            idle: duration(policy, trail, BODY_IDLE),
            whole: duration(policy, trail, REQUEST),
        }
    }
}

fn duration(policy: &Policy, trail: &Trail, slot: Slot) -> Option<Duration> {
    if let Value::Duration(time) = trail.value(policy, slot) {
        Some(*time)
    } else {
        None
    }
}
