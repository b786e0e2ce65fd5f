//! How a fetch of a robots.txt can end, and what each ending means: one table.
//!
//! RFC 9309 section 2.3.1, with the choices of the field where it leaves one. What is made of it is [`super::standing`]'s.

/// How a fetch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RobotsFetchOutcome {
    /// 2xx with a text.
    File,
    /// 2xx with a page that has no line of a robots.txt: a shop window in place of "not found".
    Page,
    /// 304 to who asked whether the file is still the one that is known.
    Unchanged,
    /// 4xx but for 429.
    Absent,
    /// 429.
    RateLimited,
    /// 5xx.
    ServerError,
    /// Any other status, a redirect without a place to go among them.
    UnexpectedStatus,
    /// More redirects than are followed.
    TooManyRedirects,
    /// A redirect to what this proxy cannot ask: no URL, a scheme other than `http` and `https`, a name that does not exist.
    UnsupportedRedirect,
    /// A redirect to an address or a port that must not be dialled.
    ProhibitedRedirect,
    /// The connection was refused.
    Refused,
    /// TLS failed: a certificate that is not to be trusted, or no handshake.
    Tls,
    /// The name servers failed.
    Dns,
    /// Not in time.
    Timeout,
    /// The connection, the message or the body broke off.
    Broken,
    /// The body is in a content coding that cannot be taken off.
    UnsupportedCoding,
    /// It did not get its turn at the host.
    NotAdmitted,
}

/// What an ending means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchEffect {
    /// The text is read.
    Read,
    /// What was known holds anew.
    Unchanged,
    /// Nothing is forbidden.
    AllowAll,
    /// Nothing is known: what was known before holds, for some time.
    Unreachable,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct FetchOutcomeRow {
    /// How the fetch ended.
    pub outcome: RobotsFetchOutcome,
    /// The word for logs and metrics.
    pub name: &'static str,
    /// What it means.
    pub effect: FetchEffect,
}

const fn row(
    ending: RobotsFetchOutcome,
    name: &'static str,
    meaning: FetchEffect,
) -> FetchOutcomeRow {
    FetchOutcomeRow {
        outcome: ending,
        name,
        effect: meaning,
    }
}

/// Every ending, in the order of [`RobotsFetchOutcome`].
pub const OUTCOMES: [FetchOutcomeRow; 17] = [
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
        FetchEffect::AllowAll,
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
];

impl RobotsFetchOutcome {
    /// What a status means before anything is known of the body; redirects are followed, not asked here.
    pub fn from_status(status: u16) -> Self {
        match status {
            200..=299 => Self::File,
            429 => Self::RateLimited,
            400..=499 => Self::Absent,
            500..=599 => Self::ServerError,
            _ => Self::UnexpectedStatus,
        }
    }

    /// The row.
    pub fn row(self) -> &'static FetchOutcomeRow {
        const NONE: &FetchOutcomeRow = &row(
            RobotsFetchOutcome::NotAdmitted,
            "none",
            FetchEffect::Unreachable,
        );
        // The table has the order of the variants, which a test holds it to.
        OUTCOMES.get(self as usize).unwrap_or(NONE)
    }

    /// The word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        self.row().name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_order_of_the_endings() {
        for (place, row) in OUTCOMES.iter().enumerate() {
            assert_eq!(row.outcome as usize, place);
        }
    }
}
