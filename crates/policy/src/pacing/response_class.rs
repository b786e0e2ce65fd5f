//! The effect of an origin's response on the pace, independent of the page.

use std::time::Duration;

/// The class of a response, as far as pace and backoff depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseClass {
    /// 200: its latency is representative of the origin.
    Ok,
    /// Any other response that does not indicate a fault of the host. It includes 501 and 505,
    /// which concern the request.
    Other,
    /// 403: common for single pages, a sign of a ban if frequent.
    Forbidden,
    /// 5xx, or an invalid status.
    Error,
    /// 429 or 503: a request for backoff, with the time in `Retry-After`, if any.
    Overloaded(Option<Duration>),
}

impl ResponseClass {
    /// Returns the class of a status. The value of `Retry-After` has to be added by the caller.
    pub fn from_status(status: u16) -> Self {
        match status {
            200 => Self::Ok,
            403 => Self::Forbidden,
            429 | 503 => Self::Overloaded(None),
            201..=499 | 501 | 505 => Self::Other,
            _ => Self::Error,
        }
    }

    /// Returns `true` if the host works normally.
    pub fn is_good(self) -> bool {
        match self {
            Self::Ok | Self::Other | Self::Forbidden => true,
            Self::Error | Self::Overloaded(_) => false,
        }
    }
}

/// The presence of a challenge by a system in front of the origin (`cf-mitigated`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    None,
    Present,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_classified() {
        for (status, class) in [
            (200, ResponseClass::Ok),
            (206, ResponseClass::Other),
            (304, ResponseClass::Other),
            (403, ResponseClass::Forbidden),
            (404, ResponseClass::Other),
            (429, ResponseClass::Overloaded(None)),
            (500, ResponseClass::Error),
            (501, ResponseClass::Other),
            (502, ResponseClass::Error),
            (503, ResponseClass::Overloaded(None)),
            (505, ResponseClass::Other),
            (520, ResponseClass::Error),
            (101, ResponseClass::Error),
            (999, ResponseClass::Error),
        ] {
            assert_eq!(ResponseClass::from_status(status), class, "{status}");
        }
    }
}
