//! The value of `--since` and `--until`: a time, or a duration before now.

use std::time::{Duration, SystemTime};

use crate::clock::Rfc3339;
use crate::clock::date_time::parse_date_time;
use crate::model::units;

/// The time from which, or before which, decisions are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// A duration before now.
    Ago(Duration),
    At(SystemTime),
}

impl Since {
    /// Parses `10m`, `2026-11-21`, `2026-11-21T08:30:00Z` and the like. A time without a zone is in UTC.
    ///
    /// # Errors
    /// The accepted forms, if the text is not one of them.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let ago = units::parse_duration(text).map(Self::Ago);
        let at = || parse_date_time(text).map(Self::At);
        ago.or_else(at).ok_or_else(|| {
            "write a duration (10m, 24h, 7d) or a time (2026-11-21T08:30:00Z, 2026-11-21)"
                .to_owned()
        })
    }

    /// Returns the time in the format of the log, whose text sorts in the order of time.
    pub(crate) fn to_timestamp(self, now: SystemTime) -> String {
        let at = match self {
            Self::Ago(time) => now.checked_sub(time).unwrap_or(SystemTime::UNIX_EPOCH),
            Self::At(at) => at,
        };
        Rfc3339(at).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, shown) in [
            ("1970-01-01", "1970-01-01T00:00:00.000Z"),
            ("2000-02-29T23:59:59Z", "2000-02-29T23:59:59.000Z"),
            ("2026-11-21T08:30:00.125Z", "2026-11-21T08:30:00.125Z"),
            ("2026-11-21 08:30", "2026-11-21T08:30:00.000Z"),
            ("2026-11-21T08:30:00+02:00", "2026-11-21T06:30:00.000Z"),
            ("2026-12-31t23:30:00-01:30", "2027-01-01T01:00:00.000Z"),
            ("10m", "2025-12-31T23:50:00.000Z"),
            ("99999d", "1970-01-01T00:00:00.000Z"),
        ] {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
            assert_eq!(
                Since::parse(text).unwrap().to_timestamp(now),
                shown,
                "{text}"
            );
        }
        for bad in [
            "",
            "10",
            "2026-13-01",
            "2026-02-29",
            "2026-1-1",
            "2026-11-21T",
            "2026-11-21T25:00:00Z",
            "2026-11-21T08:30:00.Z",
            "2026-11-21T08:30:00+2",
            "2026-11-21T08:30:00:00Z",
            "1969-12-31",
            "now",
            "2026-11-21T\u{e4}8:30Z",
            "1970-01-01T00:00:00+23:00",
        ] {
            assert!(Since::parse(bad).is_err(), "{bad:?}");
        }
    }
}
