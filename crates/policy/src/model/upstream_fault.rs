//! What exactly failed between the proxy and an origin, where a reason covers several failures.

/// A failure by its name in RFC 9209, and in words. Both are texts of this program: nothing in them comes from an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamFault {
    /// The error type (RFC 9209 section 2.3).
    pub error_type: &'static str,
    /// What failed: a clause without a full stop, of characters that a quoted string can hold as they are.
    pub description: &'static str,
}
