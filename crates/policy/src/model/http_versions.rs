//! The setting that controls which versions of HTTP are used with an origin.

/// The versions of HTTP that may be used with an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginHttpVersions {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 if the origin selects it in the TLS handshake, else HTTP/1.1.
    Http1And2,
}
