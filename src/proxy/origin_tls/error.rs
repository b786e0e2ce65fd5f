//! TLS failures: the error type of RFC 9209 section 2.3 and a description.
//!
//! The descriptions are fixed texts. Texts from a certificate are never used, because anybody may
//! have written them.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError, InvalidMessage};

use crate::model::upstream_fault::UpstreamFault;
use crate::robots::fetch_outcome::FailurePersistence;

use super::verifier::SelfSigned;

/// The cause of a failed TLS handshake with an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsError {
    fault: &'static UpstreamFault,
    hello_too_large: HelloTooLarge,
}

/// `Possible` if an old origin may have failed because the ClientHello was too large for it.
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
const NOT_TLS: &UpstreamFault = &protocol("the origin did not answer with TLS");
const INCOMPATIBLE: &UpstreamFault =
    &protocol("the origin and this proxy have no TLS version or algorithm in common");
const MISBEHAVED: &UpstreamFault = &protocol("the origin violates the TLS protocol");
const NO_NAME: &UpstreamFault = &certificate("the host is not a valid name for a certificate");
const NONE_SHOWN: &UpstreamFault = &certificate("the origin presents no certificate");

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
    /// Returns the error of a handshake that took too long.
    pub(super) fn timeout() -> Self {
        Self {
            fault: TIMEOUT,
            hello_too_large: HelloTooLarge::Possible,
        }
    }

    /// Returns the error for a host that is not a valid TLS server name.
    pub(super) fn invalid_name() -> Self {
        Self::from_fault(NO_NAME)
    }

    /// Returns the error for a failed handshake.
    pub(super) fn from_handshake_error(error: &io::Error) -> Self {
        Self::find_in(error).unwrap_or(Self {
            fault: CLOSED,
            hello_too_large: HelloTooLarge::Possible,
        })
    }

    /// Returns the TLS failure inside a connection's error, if there is one.
    pub fn find_in(error: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(Self::from_rustls(error));
        }
        // An I/O error that wraps another one does not return it from `source`.
        Self::find_in(error.downcast_ref::<io::Error>()?.get_ref()?)
    }

    /// Returns the error type and the description.
    pub fn fault(&self) -> &'static UpstreamFault {
        self.fault
    }

    /// Returns `true` if an old origin may have failed because the ClientHello was too large. A
    /// certificate error never depends on it.
    pub fn may_be_caused_by_hello(&self) -> bool {
        self.hello_too_large == HelloTooLarge::Possible
    }

    /// Returns the prospect of another attempt: a handshake that broke off may succeed within seconds.
    pub fn persistence(&self) -> FailurePersistence {
        if [TIMEOUT, CLOSED].contains(&self.fault) {
            FailurePersistence::Momentary
        } else {
            FailurePersistence::Lasting
        }
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
        let fault = match received {
            A::HandshakeFailure => const { &alert("the origin refuses TLS: handshake_failure") },
            A::ProtocolVersion => const { &alert("the origin refuses TLS: protocol_version") },
            A::InsufficientSecurity => {
                const { &alert("the origin refuses TLS: insufficient_security") }
            }
            A::IllegalParameter => const { &alert("the origin refuses TLS: illegal_parameter") },
            A::DecodeError => const { &alert("the origin refuses TLS: decode_error") },
            A::RecordOverflow => const { &alert("the origin refuses TLS: record_overflow") },
            A::UnexpectedMessage => const { &alert("the origin refuses TLS: unexpected_message") },
            A::InternalError => const { &alert("the origin refuses TLS: internal_error") },
            other => return Self::from_fault(other_alert_fault(other)),
        };
        Self {
            fault,
            hello_too_large: HelloTooLarge::Possible,
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
        A::NoApplicationProtocol => {
            const { &alert("the origin supports no offered version of HTTP inside TLS") }
        }
        A::CertificateRequired => const { &alert("the origin requires a client certificate") },
        _ => const { &alert("the origin aborted TLS with an alert") },
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
        C::BadEncoding => const { &certificate("the certificate cannot be parsed") },
        C::BadSignature => const { &certificate("the certificate is not signed by its issuer") },
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => {
            const { &certificate("the certificate is not for servers") }
        }
        C::UnhandledCriticalExtension => {
            const { &certificate("the certificate has an unknown critical extension") }
        }
        C::UnsupportedSignatureAlgorithmContext { .. }
        | C::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            const { &certificate("the certificate's signature algorithm is not accepted") }
        }
        C::Other(other) if other.0.is::<SelfSigned>() => {
            const { &certificate("the certificate is self-signed") }
        }
        // webpki's own error is wrapped here; its text is the name of the variant.
        C::Other(other) if other.0.to_string() == "CaUsedAsEndEntity" => {
            const { &certificate("the certificate is that of an authority, or self-signed as one") }
        }
        _ => const { &certificate("the certificate is not valid") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_failures_are_found() {
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
    fn descriptions_need_no_escape_in_a_quoted_string() {
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
