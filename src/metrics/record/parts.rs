//! The small parts of a record: what it is about, what became of it, and its durations.

use std::time::Duration;

use crate::model::reason::Reason;
use crate::urls::target::{HostTarget, UrlTarget};

/// What is kept of a rejected URL in the log: the option `record`, once `by-log` is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlRetention {
    /// The URL and its host.
    Full,
    /// The host only; what `by-log` means for a rejection that is not logged.
    Host,
    /// Neither; the line is written all the same.
    None,
}

/// What a request is about.
#[derive(Debug)]
pub(crate) enum RecordSubject {
    Unknown,
    Url(UrlTarget),
    Host(HostTarget),
}

/// What was decided so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordOutcome {
    Pending,
    Allowed { rule: Option<u32> },
    Rejected { reason: Reason, rule: Option<u32> },
}

/// How much of the answer was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseProgress {
    Partial,
    Complete,
}

/// Whether a request counts as under way. A tunnel does not, once it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountMode {
    Counted,
    Tunnel,
    /// It is no request of its own.
    Discarded,
}

/// Durations of a request.
#[derive(Debug, Default)]
pub(crate) struct RequestTimes {
    pub(crate) decision: Micros,
    pub(crate) held: Micros,
    pub(crate) dns: Micros,
    pub(crate) connect: Micros,
    pub(crate) tls: Micros,
    pub(crate) ttfb: Micros,
}

/// A duration in whole microseconds, or none; over an hour is cut to 71 minutes. A quarter of `Option<Duration>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Micros(u32);

impl Micros {
    const NONE: u32 = u32::MAX;

    pub(crate) fn as_seconds(self) -> Option<f64> {
        (self.0 != Self::NONE).then(|| f64::from(self.0) / 1e6)
    }

    pub(crate) fn as_micros(self) -> Option<u32> {
        (self.0 != Self::NONE).then_some(self.0)
    }
}

impl Default for Micros {
    fn default() -> Self {
        Self(Self::NONE)
    }
}

impl From<Duration> for Micros {
    fn from(time: Duration) -> Self {
        Self(
            u32::try_from(time.as_micros())
                .unwrap_or(Self::NONE)
                .min(Self::NONE - 1),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_cut_and_never_become_none() {
        assert_eq!(Micros::default().as_seconds(), None);
        assert_eq!(
            Micros::from(Duration::from_millis(1_250)).as_seconds(),
            Some(1.25)
        );
        assert_eq!(Micros::from(Duration::MAX).as_micros(), Some(u32::MAX - 1));
    }
}
