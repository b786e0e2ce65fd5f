//! Types of a record's fields.

use std::num::NonZeroU16;
use std::time::Duration;

use crate::model::intent::Intent;
use crate::model::reason::Reason;
use crate::urls::target::{HostTarget, UrlTarget};

/// The part of a refused URL that the log keeps: the option `record`, with `by-log` resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlRetention {
    /// The URL and its host.
    Full,
    /// The URL and its host; only the host if a line of the last minute has the URL, with the same reason. For
    /// requests that were lost, which crawlers repeat.
    Unrepeated,
    /// Only the host; the meaning of `by-log` for a rejection that is not logged.
    Host,
    /// Neither; the line is still written.
    None,
}

/// The target of a request.
#[derive(Debug)]
pub(crate) enum RecordSubject {
    Unknown,
    Url(UrlTarget),
    Host(HostTarget),
}

/// The decision so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordOutcome {
    Pending,
    Allowed {
        rule: Option<u32>,
    },
    Rejected {
        reason: Reason,
        rule: Option<u32>,
        intent: Option<Intent>,
        /// The code of the refusal, if it has another one than that of the reason.
        code: Option<NonZeroU16>,
    },
}

/// Why a crawler did not get what it requested, although the policy does not exclude it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossCause {
    /// It was refused for now: the intent is `later`.
    Later,
    /// The exchange with the origin failed, the origin answered 429 or 5xx, or the proxy has failed.
    Failed,
    /// The client left first.
    ClientLeft,
}

impl LossCause {
    /// Returns the value of `loss` in the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Later => "later",
            Self::Failed => "failed",
            Self::ClientLeft => "client_left",
        }
    }
}

/// A detail of a refusal; no refusal has both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RefusalDetail {
    /// The product token by which robots.txt refuses the URL.
    RobotsAgent(Box<str>),
    /// A description of what failed between the proxy and the origin.
    FailureCause(Box<str>),
}

impl RefusalDetail {
    pub(crate) fn robots_agent(&self) -> Option<&str> {
        match self {
            Self::RobotsAgent(token) => Some(token),
            Self::FailureCause(_) => None,
        }
    }

    pub(crate) fn failure_cause(&self) -> Option<&str> {
        match self {
            Self::FailureCause(cause) => Some(cause),
            Self::RobotsAgent(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseProgress {
    Partial,
    Complete,
}

/// The way in which a request is counted. A tunnel is no longer in flight once it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountMode {
    Counted,
    Tunnel,
    /// Not at all: the requests inside a tunnel are counted instead.
    Discarded,
    /// Not at all: another node of the fleet counts it. It is in flight here until its end.
    Forwarded,
}

/// The durations of a request.
#[derive(Debug, Default)]
pub(crate) struct RequestTimes {
    pub(crate) decision: Micros,
    pub(crate) held: Micros,
    pub(crate) dns: Micros,
    pub(crate) connect: Micros,
    pub(crate) tls: Micros,
    pub(crate) ttfb: Micros,
}

/// An optional duration in whole microseconds, limited to 71 minutes. A quarter of the size of `Option<Duration>`.
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
    fn long_durations_are_clamped() {
        assert_eq!(Micros::default().as_seconds(), None);
        assert_eq!(
            Micros::from(Duration::from_millis(1_250)).as_seconds(),
            Some(1.25)
        );
        assert_eq!(Micros::from(Duration::MAX).as_micros(), Some(u32::MAX - 1));
    }
}
