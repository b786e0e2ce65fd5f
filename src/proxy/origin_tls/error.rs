//! What a TLS failure is called (RFC 9209 section 2.3), and what it means in words.
//!
//! The words are this file's own: a certificate's texts are its maker's, who may be anybody, and go nowhere.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError, InvalidMessage};

use crate::model::upstream_fault::UpstreamFault;

use super::verifier::SelfSigned;

/// Why there is no TLS with an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsError {
    fault: &'static UpstreamFault,
    hello_too_large: HelloTooLarge,
}

/// Whether an old origin could fail so because a hello was too large for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HelloTooLarge {
    Possible,
    No,
}

const TIMEOUT: &UpstreamFault = &UpstreamFault {
    error_type: "connection_timeout",
    description: "no TLS handshake in time",
};
const CLOSED: &UpstreamFault = &protocol("the origin closed the connection in the TLS handshake");
const NOT_TLS: &UpstreamFault = &protocol("what the origin sends is not TLS");
const INCOMPATIBLE: &UpstreamFault = &protocol("the origin speaks no TLS that this proxy does");
const MISBEHAVED: &UpstreamFault = &protocol("the origin breaks the rules of TLS");
const NO_NAME: &UpstreamFault = &certificate("the host is no name that a certificate can be for");
const NONE_SHOWN: &UpstreamFault = &certificate("the origin shows no certificate");

const fn certificate(words: &'static str) -> UpstreamFault {
    UpstreamFault {
        error_type: "tls_certificate_error",
        description: words,
    }
}

const fn protocol(words: &'static str) -> UpstreamFault {
    UpstreamFault {
        error_type: "tls_protocol_error",
        description: words,
    }
}

const fn alert(words: &'static str) -> UpstreamFault {
    UpstreamFault {
        error_type: "tls_alert_received",
        description: words,
    }
}

impl TlsError {
    /// The handshake took too long.
    pub(super) fn timeout() -> Self {
        Self {
            fault: TIMEOUT,
            hello_too_large: HelloTooLarge::Possible,
        }
    }

    /// A host that is no name for TLS.
    pub(super) fn invalid_name() -> Self {
        Self::from_fault(NO_NAME)
    }

    /// What a failed handshake came to.
    pub(super) fn from_handshake_error(error: &io::Error) -> Self {
        Self::find_in(error).unwrap_or(Self {
            fault: CLOSED,
            hello_too_large: HelloTooLarge::Possible,
        })
    }

    /// The TLS failure that lies inside an error of a connection, if there is one.
    pub fn find_in(error: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(Self::from_rustls(error));
        }
        // An I/O error made of another hides it from `source`.
        Self::find_in(error.downcast_ref::<io::Error>()?.get_ref()?)
    }

    /// What failed.
    pub fn fault(&self) -> &'static UpstreamFault {
        self.fault
    }

    /// Whether an old origin could fail so because the hello was too large for it. A certificate is never of the hello.
    pub fn may_be_caused_by_hello(&self) -> bool {
        self.hello_too_large == HelloTooLarge::Possible
    }

    fn from_fault(fault: &'static UpstreamFault) -> Self {
        Self {
            fault,
            hello_too_large: HelloTooLarge::No,
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the library's enums grow")]
    fn from_rustls(error: &rustls::Error) -> Self {
        use rustls::Error as E;
        match error {
            E::InvalidCertificate(why) => Self::from_fault(certificate_fault(why)),
            E::NoCertificatesPresented => Self::from_fault(NONE_SHOWN),
            E::UnsupportedNameType => Self::invalid_name(),
            E::AlertReceived(alert) => Self::from_alert(*alert),
            E::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => Self::from_fault(NOT_TLS),
            E::PeerIncompatible(_) => Self::from_fault(INCOMPATIBLE),
            _ => Self::from_fault(MISBEHAVED),
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the library's enums grow")]
    fn from_alert(received: AlertDescription) -> Self {
        use AlertDescription as A;
        let perhaps = |fault| Self {
            fault,
            hello_too_large: HelloTooLarge::Possible,
        };
        match received {
            A::HandshakeFailure => {
                perhaps(const { &alert("the origin refuses TLS: handshake_failure") })
            }
            A::ProtocolVersion => {
                perhaps(const { &alert("the origin refuses TLS: protocol_version") })
            }
            A::InsufficientSecurity => {
                perhaps(const { &alert("the origin refuses TLS: insufficient_security") })
            }
            A::IllegalParameter => {
                perhaps(const { &alert("the origin refuses TLS: illegal_parameter") })
            }
            A::DecodeError => perhaps(const { &alert("the origin refuses TLS: decode_error") }),
            A::RecordOverflow => {
                perhaps(const { &alert("the origin refuses TLS: record_overflow") })
            }
            A::UnexpectedMessage => {
                perhaps(const { &alert("the origin refuses TLS: unexpected_message") })
            }
            A::InternalError => perhaps(const { &alert("the origin refuses TLS: internal_error") }),
            other => Self::from_fault(other_alert_fault(other)),
        }
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the library's enums grow")]
fn other_alert_fault(received: AlertDescription) -> &'static UpstreamFault {
    use AlertDescription as A;
    match received {
        A::UnrecognisedName => {
            const { &alert("the origin does not know the host: unrecognized_name") }
        }
        A::AccessDenied => const { &alert("the origin refuses TLS: access_denied") },
        A::NoApplicationProtocol => const { &alert("the origin speaks no HTTP/1.1 inside TLS") },
        A::CertificateRequired => {
            const { &alert("the origin asks for a certificate of the client") }
        }
        _ => const { &alert("the origin ends TLS with an alert") },
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the library's enums grow")]
fn certificate_fault(error: &CertificateError) -> &'static UpstreamFault {
    use CertificateError as C;
    match error {
        C::Expired | C::ExpiredContext { .. } => {
            const { &certificate("the certificate has expired") }
        }
        C::NotValidYet | C::NotValidYetContext { .. } => {
            const { &certificate("the certificate is not valid yet") }
        }
        C::NotValidForName | C::NotValidForNameContext { .. } => {
            const { &certificate("the certificate is not valid for the name of the host") }
        }
        C::UnknownIssuer => const { &certificate("the certificate comes from an unknown issuer") },
        C::Revoked => const { &certificate("the certificate has been revoked") },
        C::BadEncoding => const { &certificate("the certificate cannot be read") },
        C::BadSignature => const { &certificate("the certificate is not signed by its issuer") },
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => {
            const { &certificate("the certificate is not for servers") }
        }
        C::UnhandledCriticalExtension => {
            const { &certificate("the certificate has a critical extension that nobody knows") }
        }
        C::UnsupportedSignatureAlgorithmContext { .. }
        | C::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            const { &certificate("the certificate is signed in a way that is not accepted") }
        }
        C::Other(other) if other.0.is::<SelfSigned>() => {
            const { &certificate("the certificate is self-signed") }
        }
        // The library wraps an error of its own here, of which the text is the name.
        C::Other(other) if other.0.to_string() == "CaUsedAsEndEntity" => {
            const { &certificate("the certificate is an authority's own, or self-signed as one") }
        }
        _ => const { &certificate("the certificate is not valid") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_found_however_deep_they_lie() {
        let expired = rustls::Error::InvalidCertificate(CertificateError::Expired);
        let deep = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, expired));
        let found = TlsError::from_handshake_error(&deep);
        assert_eq!(found.fault().error_type, "tls_certificate_error");
        assert!(!found.may_be_caused_by_hello());
        let closed = io::Error::other(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "tls handshake eof",
        ));
        assert_eq!(
            TlsError::from_handshake_error(&closed).fault().error_type,
            "tls_protocol_error"
        );
        assert!(TlsError::from_handshake_error(&closed).may_be_caused_by_hello());
        assert_eq!(TlsError::find_in(&closed), None);
    }

    #[test]
    fn words_need_no_escape_in_a_quoted_string() {
        for alert in 0..=u8::MAX {
            let words = TlsError::from_alert(alert.into()).fault().description;
            assert!(
                words
                    .bytes()
                    .all(|b| (b' '..=b'~').contains(&b) && !b"\"\\".contains(&b)),
                "{words}"
            );
        }
    }
}
