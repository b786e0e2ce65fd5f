//! The stop button: in the gate alone with time that stands still, on disk, through the API, and in the whole binary.

mod api;
mod bench;
mod disk;
mod gate;
mod whole;

use crawlgate::gate::stops::{Change, Stops, Target};
use crawlgate::politeness::stops::StopReason;
use std::time::Duration;

/// Stops something for so many seconds, or for good.
fn press(stops: &Stops, what: &str, seconds: Option<u64>) -> Change {
    let reason = StopReason::new("ticket 7").unwrap();
    stops
        .press(
            Target::parse(what).unwrap(),
            reason,
            seconds.map(Duration::from_secs),
        )
        .unwrap()
}
