//! Emergency stops: in the pipeline with paused time, on disk, through the API, and in the real binary.

mod api;
mod bench;
mod disk;
mod gate;
mod sharing;
mod whole;

use crawlgate::pacing::stops::StopReason;
use crawlgate::pipeline::stop_registry::{StopChange, StopRegistry, StopTarget};
use std::time::Duration;

/// Stops a target for this number of seconds, or permanently.
fn press(stops: &StopRegistry, what: &str, seconds: Option<u64>) -> StopChange {
    let reason = StopReason::new("ticket 7").unwrap();
    stops
        .add(
            StopTarget::parse(what).unwrap(),
            reason,
            seconds.map(Duration::from_secs),
        )
        .unwrap()
}
