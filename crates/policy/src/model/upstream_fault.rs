//! The detail of an upstream failure, where one reason covers several.

/// An upstream failure. Both texts are constants of this program; nothing in them comes from an
/// origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamFault {
    /// The error type (RFC 9209 section 2.3).
    pub error_type: &'static str,
    /// A clause without a full stop that can be put into a quoted string without escaping.
    pub description: &'static str,
}
