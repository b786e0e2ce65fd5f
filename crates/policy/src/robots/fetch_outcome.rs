//! The outcomes of fetching a robots.txt, and the effect of each.
//!
//! By RFC 9309 section 2.3.1, with choices where it leaves one. [`super::state`] applies the
//! effects.

use crate::model::words::words;

words! {
    /// The outcome of a fetch; its word is in logs and metrics.
    pub enum RobotsFetchOutcome {
        /// 2xx with text.
        File = "file",
        /// 2xx with an HTML page that contains no line of a robots.txt, served instead of "not
        /// found".
        Page = "page",
        /// 304 to a conditional request.
        Unchanged = "unchanged",
        /// 4xx except 429.
        Absent = "absent",
        /// 429.
        RateLimited = "limited",
        /// 5xx, an invalid status from 600 (RFC 9110 section 15), and a 304 that was not requested.
        ServerError = "server_error",
        /// Any other status.
        UnexpectedStatus = "odd_status",
        /// More redirects than a crawler has to follow. The file may be assumed to be absent (RFC
        /// 9309 section 2.3.1.2).
        TooManyRedirects = "redirects",
        /// A redirect without a location, to an invalid URL, or to a scheme other than `http` and
        /// `https`. The site has rules, and they cannot be read.
        UnsupportedRedirect = "elsewhere",
        /// A redirect to a prohibited address or port.
        ProhibitedRedirect = "prohibited",
        /// The connection was refused.
        Refused = "refused",
        /// The TLS handshake failed, or the certificate is not trusted.
        Tls = "tls",
        /// Name resolution failed.
        Dns = "dns",
        /// The time limit was exceeded.
        Timeout = "timeout",
        /// The connection, the message or the body was incomplete or invalid.
        Broken = "broken",
        /// The content coding of the body is not supported.
        UnsupportedCoding = "coding",
        /// The request was not admitted by the host's pace in time.
        NotAdmitted = "held",
        /// A redirect led to a server that gave no complete answer: its name does not exist, or the
        /// connection, the TLS handshake or the response failed. The host itself is not to blame.
        RedirectUnreachable = "redirect_unreachable",
    }
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

/// The persistence of the failure to fetch a host's robots.txt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePersistence {
    /// The failure may pass within seconds, as when an origin restarts.
    Momentary,
    /// It may not, or is remembered for longer by a cache.
    Lasting,
}

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

    /// Returns the persistence of a failure with this outcome.
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

    /// Returns the effect of a fetch with this outcome.
    pub fn effect(self) -> FetchEffect {
        match self {
            Self::File => FetchEffect::Read,
            Self::Unchanged => FetchEffect::Unchanged,
            Self::Page | Self::Absent | Self::UnexpectedStatus | Self::TooManyRedirects => {
                FetchEffect::AllowAll
            }
            Self::RateLimited
            | Self::ServerError
            | Self::UnsupportedRedirect
            | Self::ProhibitedRedirect
            | Self::Refused
            | Self::Tls
            | Self::Dns
            | Self::Timeout
            | Self::Broken
            | Self::UnsupportedCoding
            | Self::NotAdmitted
            | Self::RedirectUnreachable => FetchEffect::Unreachable,
        }
    }
}
