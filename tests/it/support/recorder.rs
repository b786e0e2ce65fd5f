//! A recorder without a destination of its lines.

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::metrics::log::{DecisionLog, LogDestination, LogSettings};
use crawlgate::metrics::record::Recorder;

/// Creates a recorder of these metrics, whose lines only the tap receives.
pub(crate) fn unwritten_recorder(metrics: &Metrics, clock: &Clock) -> Recorder {
    let settings = LogSettings {
        destination: LogDestination::None,
        ..LogSettings::default()
    };
    let log = DecisionLog::open(settings, metrics, clock).unwrap();
    Recorder::new(metrics.clone(), log, clock.clone())
}
