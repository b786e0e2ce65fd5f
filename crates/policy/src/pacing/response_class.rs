//! What an origin's answer says of the origin, whatever it says of the page.

use std::time::Duration;

/// An answer, as far as pace and rest depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseClass {
    /// 200: as fast as the origin usually is.
    Ok,
    /// Any other that is no fault of the host's. 501 and 505 are among them: they speak of the request.
    Other,
    /// 403: usual for a page, a sign of a ban for many.
    Forbidden,
    /// 5xx, or a status that answers nothing.
    Error,
    /// 429 and 503 ask for rest; for so long, if they say.
    Rest(Option<Duration>),
}

impl ResponseClass {
    /// By status; what Retry-After says is to be added.
    pub fn from_status(status: u16) -> Self {
        match status {
            200 => Self::Ok,
            403 => Self::Forbidden,
            429 | 503 => Self::Rest(None),
            201..=499 | 501 | 505 => Self::Other,
            _ => Self::Error,
        }
    }

    /// Whether the host is fine.
    pub fn is_good(self) -> bool {
        match self {
            Self::Ok | Self::Other | Self::Forbidden => true,
            Self::Error | Self::Rest(_) => false,
        }
    }
}

/// Whether an answer says that something before the origin has stopped the crawler (`cf-mitigated`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// It does not.
    None,
    /// It does.
    Present,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_hosts_fault() {
        for (status, answer) in [
            (200, ResponseClass::Ok),
            (206, ResponseClass::Other),
            (304, ResponseClass::Other),
            (403, ResponseClass::Forbidden),
            (404, ResponseClass::Other),
            (429, ResponseClass::Rest(None)),
            (500, ResponseClass::Error),
            (501, ResponseClass::Other),
            (502, ResponseClass::Error),
            (503, ResponseClass::Rest(None)),
            (505, ResponseClass::Other),
            (520, ResponseClass::Error),
            (101, ResponseClass::Error),
            (999, ResponseClass::Error),
        ] {
            assert_eq!(ResponseClass::from_status(status), answer, "{status}");
        }
    }
}
