//! The outcomes of fetching a robots.txt and the effect of each, in one table.
//!
//! By RFC 9309 section 2.3.1, with choices where it leaves one. [`super::state`] applies the
//! effects.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RobotsFetchOutcome {
    /// 2xx with text.
    File,
    /// 2xx with an HTML page that contains no line of a robots.txt, served instead of "not found".
    Page,
    /// 304 to a conditional request.
    Unchanged,
    /// 4xx except 429.
    Absent,
    /// 429.
    RateLimited,
    /// 5xx, an invalid status from 600 (RFC 9110 section 15), and a 304 that was not requested.
    ServerError,
    /// Any other status.
    UnexpectedStatus,
    /// More redirects than a crawler has to follow. The file may be assumed to be absent (RFC 9309
    /// section 2.3.1.2).
    TooManyRedirects,
    /// A redirect without a location, to an invalid URL, or to a scheme other than `http` and
    /// `https`. The site has rules, and they cannot be read.
    UnsupportedRedirect,
    /// A redirect to a prohibited address or port.
    ProhibitedRedirect,
    /// The connection was refused.
    Refused,
    /// The TLS handshake failed, or the certificate is not trusted.
    Tls,
    /// Name resolution failed.
    Dns,
    /// The time limit was exceeded.
    Timeout,
    /// The connection, the message or the body was incomplete or invalid.
    Broken,
    /// The content coding of the body is not supported.
    UnsupportedCoding,
    /// The request was not admitted by the host's pace in time.
    NotAdmitted,
    /// A redirect led to a server that gave no complete answer: its name does not exist, or the
    /// connection, the TLS handshake or the response failed. The host itself is not to blame.
    RedirectUnreachable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchEffect {
    /// The text is parsed.
    Read,
    /// The known file is still valid.
    Unchanged,
    /// Nothing is forbidden.
    AllowAll,
    /// The rules are unknown; previously known rules stay valid for some time.
    Unreachable,
}

/// The prospect of a host whose robots.txt could not be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePersistence {
    /// The failure may pass within seconds, as when an origin restarts.
    Momentary,
    /// It may not, or is remembered for longer by a cache.
    Lasting,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct FetchOutcomeRow {
    pub outcome: RobotsFetchOutcome,
    /// The word in logs and metrics.
    pub name: &'static str,
    pub effect: FetchEffect,
}

const fn row(
    outcome: RobotsFetchOutcome,
    name: &'static str,
    effect: FetchEffect,
) -> FetchOutcomeRow {
    FetchOutcomeRow {
        outcome,
        name,
        effect,
    }
}

/// All outcomes, in the order of [`RobotsFetchOutcome`].
pub const OUTCOMES: [FetchOutcomeRow; 18] = [
    row(RobotsFetchOutcome::File, "file", FetchEffect::Read),
    row(RobotsFetchOutcome::Page, "page", FetchEffect::AllowAll),
    row(
        RobotsFetchOutcome::Unchanged,
        "unchanged",
        FetchEffect::Unchanged,
    ),
    row(RobotsFetchOutcome::Absent, "absent", FetchEffect::AllowAll),
    row(
        RobotsFetchOutcome::RateLimited,
        "limited",
        FetchEffect::Unreachable,
    ),
    row(
        RobotsFetchOutcome::ServerError,
        "server_error",
        FetchEffect::Unreachable,
    ),
    row(
        RobotsFetchOutcome::UnexpectedStatus,
        "odd_status",
        FetchEffect::AllowAll,
    ),
    row(
        RobotsFetchOutcome::TooManyRedirects,
        "redirects",
        FetchEffect::AllowAll,
    ),
    row(
        RobotsFetchOutcome::UnsupportedRedirect,
        "elsewhere",
        FetchEffect::Unreachable,
    ),
    row(
        RobotsFetchOutcome::ProhibitedRedirect,
        "prohibited",
        FetchEffect::Unreachable,
    ),
    row(
        RobotsFetchOutcome::Refused,
        "refused",
        FetchEffect::Unreachable,
    ),
    row(RobotsFetchOutcome::Tls, "tls", FetchEffect::Unreachable),
    row(RobotsFetchOutcome::Dns, "dns", FetchEffect::Unreachable),
    row(
        RobotsFetchOutcome::Timeout,
        "timeout",
        FetchEffect::Unreachable,
    ),
    row(
        RobotsFetchOutcome::Broken,
        "broken",
        FetchEffect::Unreachable,
    ),
    row(
        RobotsFetchOutcome::UnsupportedCoding,
        "coding",
        FetchEffect::Unreachable,
    ),
    row(
        RobotsFetchOutcome::NotAdmitted,
        "held",
        FetchEffect::Unreachable,
    ),
    row(
        RobotsFetchOutcome::RedirectUnreachable,
        "redirect_unreachable",
        FetchEffect::Unreachable,
    ),
];

impl RobotsFetchOutcome {
    /// Returns the outcome for a status alone. Redirects with a location are followed, and a 304
    /// that was requested is [`Self::Unchanged`]; neither is passed to this function.
    pub fn from_status(status: u16) -> Self {
        match status {
            200..=299 => Self::File,
            429 => Self::RateLimited,
            400..=499 => Self::Absent,
            304 | 500.. => Self::ServerError,
            301 | 302 | 303 | 307 | 308 => Self::UnsupportedRedirect,
            _ => Self::UnexpectedStatus,
        }
    }

    /// Returns the prospect after a failure with this outcome.
    pub fn persistence(self) -> FailurePersistence {
        match self {
            Self::RateLimited
            | Self::ServerError
            | Self::Timeout
            | Self::Broken
            | Self::NotAdmitted => FailurePersistence::Momentary,
            Self::File
            | Self::Page
            | Self::Unchanged
            | Self::Absent
            | Self::UnexpectedStatus
            | Self::TooManyRedirects
            | Self::UnsupportedRedirect
            | Self::ProhibitedRedirect
            | Self::Refused
            | Self::Tls
            | Self::Dns
            | Self::UnsupportedCoding
            | Self::RedirectUnreachable => FailurePersistence::Lasting,
        }
    }

    /// Returns the outcome of a fetch that failed after a redirect.
    #[must_use]
    pub fn after_redirect(self) -> Self {
        match self {
            Self::Refused | Self::Tls | Self::Dns | Self::Timeout | Self::Broken => {
                Self::RedirectUnreachable
            }
            Self::File
            | Self::Page
            | Self::Unchanged
            | Self::Absent
            | Self::RateLimited
            | Self::ServerError
            | Self::UnexpectedStatus
            | Self::TooManyRedirects
            | Self::UnsupportedRedirect
            | Self::ProhibitedRedirect
            | Self::UnsupportedCoding
            | Self::NotAdmitted
            | Self::RedirectUnreachable => self,
        }
    }

    /// The row of the table.
    pub fn row(self) -> &'static FetchOutcomeRow {
        const NONE: &FetchOutcomeRow = &row(
            RobotsFetchOutcome::NotAdmitted,
            "none",
            FetchEffect::Unreachable,
        );
        // A test ensures that the table has the order of the variants.
        OUTCOMES.get(self as usize).unwrap_or(NONE)
    }

    /// The word in logs and metrics.
    pub fn as_str(self) -> &'static str {
        self.row().name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_order_of_the_outcomes() {
        for (index, row) in OUTCOMES.iter().enumerate() {
            assert_eq!(row.outcome as usize, index);
        }
    }
}
