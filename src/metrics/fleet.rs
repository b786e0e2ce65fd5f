//! Metrics of a node in a fleet: requests that it forwards, and its links.

use std::time::Duration;

use super::labels::{ForwardResult, LinkStateLabel};
use super::series::gauge_value;
use super::{GaugeGuard, Metrics};

impl Metrics {
    /// Counts an attempt to forward a request.
    pub fn record_forward(&self, result: ForwardResult) {
        self.update(|families| families.fleet_forwarded.increment(result));
    }

    /// Records the time until the head of an owner's answer.
    pub fn record_forward_time(&self, time: Duration) {
        self.update(|families| families.fleet_forward.observe(time.as_secs_f64()));
    }

    /// Counts a link to another node as open until the value is dropped.
    pub fn track_link(&self) -> GaugeGuard {
        GaugeGuard::new(
            self.enabled_families()
                .and_then(|families| families.fleet_links.get(LinkStateLabel::Open)),
        )
    }

    /// Sets the number of nodes that could not be reached at the last attempt.
    pub fn set_failing_links(&self, nodes: usize) {
        self.update(|families| {
            if let Some(gauge) = families.fleet_links.get(LinkStateLabel::Failing) {
                gauge.set(gauge_value(nodes));
            }
        });
    }
}
