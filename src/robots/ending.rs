//! How a fetch of a robots.txt can end, and what each ending means: one table.
//!
//! RFC 9309 section 2.3.1, with the choices of the field where it leaves one. What is made of it is [`super::standing`]'s.

/// How a fetch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// 2xx with a text.
    File,
    /// 2xx with a page that has no line of a robots.txt: a shop window in place of "not found".
    Page,
    /// 304 to who asked whether the file is still the one that is known.
    Unchanged,
    /// 4xx but for 429.
    Absent,
    /// 429.
    Limited,
    /// 5xx.
    ServerError,
    /// Any other status, a redirect without a place to go among them.
    OddStatus,
    /// More redirects than are followed.
    Redirects,
    /// A redirect to what this proxy cannot ask: no URL, a scheme other than `http` and `https`, a name that does not exist.
    Elsewhere,
    /// A redirect to an address or a port that must not be dialled.
    Prohibited,
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
    Coding,
    /// It did not get its turn at the host.
    Held,
}

/// What an ending means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
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
pub struct Row {
    /// How the fetch ended.
    pub ending: Ending,
    /// The word for logs and metrics.
    pub name: &'static str,
    /// What it means.
    pub meaning: Meaning,
}

const fn row(ending: Ending, name: &'static str, meaning: Meaning) -> Row {
    Row {
        ending,
        name,
        meaning,
    }
}

/// Every ending, in the order of [`Ending`].
pub const TABLE: [Row; 17] = [
    row(Ending::File, "file", Meaning::Read),
    row(Ending::Page, "page", Meaning::AllowAll),
    row(Ending::Unchanged, "unchanged", Meaning::Unchanged),
    row(Ending::Absent, "absent", Meaning::AllowAll),
    row(Ending::Limited, "limited", Meaning::Unreachable),
    row(Ending::ServerError, "server_error", Meaning::Unreachable),
    row(Ending::OddStatus, "odd_status", Meaning::AllowAll),
    row(Ending::Redirects, "redirects", Meaning::AllowAll),
    row(Ending::Elsewhere, "elsewhere", Meaning::AllowAll),
    row(Ending::Prohibited, "prohibited", Meaning::Unreachable),
    row(Ending::Refused, "refused", Meaning::Unreachable),
    row(Ending::Tls, "tls", Meaning::Unreachable),
    row(Ending::Dns, "dns", Meaning::Unreachable),
    row(Ending::Timeout, "timeout", Meaning::Unreachable),
    row(Ending::Broken, "broken", Meaning::Unreachable),
    row(Ending::Coding, "coding", Meaning::Unreachable),
    row(Ending::Held, "held", Meaning::Unreachable),
];

impl Ending {
    /// What a status means before anything is known of the body; redirects are followed, not asked here.
    pub fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::File,
            429 => Self::Limited,
            400..=499 => Self::Absent,
            500..=599 => Self::ServerError,
            _ => Self::OddStatus,
        }
    }

    /// The row.
    pub fn row(self) -> &'static Row {
        const NONE: &Row = &row(Ending::Held, "none", Meaning::Unreachable);
        // The table has the order of the variants, which a test holds it to.
        TABLE.get(self as usize).unwrap_or(NONE)
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
        for (place, row) in TABLE.iter().enumerate() {
            assert_eq!(row.ending as usize, place);
        }
    }
}
