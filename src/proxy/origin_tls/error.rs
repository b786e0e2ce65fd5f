//! What a TLS failure is called (RFC 9209 section 2.3), and what it means in words.
//!
//! The words are this file's own: a certificate's texts are its maker's, who may be anybody, and go nowhere.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError, InvalidMessage};

use crate::vocab::fault::Fault;

use super::verifier::SelfSigned;

/// Why there is no TLS with an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsError {
    kind: Kind,
    words: &'static str,
    hello: MayBeHello,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Certificate,
    Protocol,
    Alert,
    Timeout,
}

/// Whether an old origin could fail so with a large hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MayBeHello {
    Yes,
    No,
}

impl TlsError {
    /// The handshake took too long.
    pub(super) fn timeout() -> Self {
        Self { kind: Kind::Timeout, words: "no TLS handshake in time", hello: MayBeHello::Yes }
    }

    /// A host that is no name for TLS.
    pub(super) fn name() -> Self {
        Self::certificate("the host is no name that a certificate can be for")
    }

    /// What a failed handshake came to.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Self {
        match Self::found_in(error) {
            Some(found) => found,
            None if io_kind(error).is_some() => Self {
                kind: Kind::Protocol,
                words: "the origin closed the connection in the TLS handshake",
                hello: MayBeHello::Yes,
            },
            None => Self::name(),
        }
    }

    /// The TLS failure that lies inside an error of a connection, if there is one.
    pub fn found_in(error: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(Self::of_library(error));
        }
        // An I/O error made of another hides it from `source`.
        Self::found_in(error.downcast_ref::<io::Error>()?.get_ref()?)
    }

    /// What failed.
    pub fn fault(&self) -> Fault {
        let error = match self.kind {
            Kind::Certificate => "tls_certificate_error",
            Kind::Protocol => "tls_protocol_error",
            Kind::Alert => "tls_alert_received",
            Kind::Timeout => "connection_timeout",
        };
        Fault { error, words: self.words }
    }

    /// Whether an old origin could fail so because the hello was too large for it. A certificate is never of the hello.
    pub fn may_be_of_the_hello(&self) -> bool {
        self.hello == MayBeHello::Yes
    }

    fn of_library(error: &rustls::Error) -> Self {
        use rustls::Error as E;
        match error {
            E::InvalidCertificate(why) => Self::certificate(of_certificate(why)),
            E::NoCertificatesPresented => Self::certificate("the origin shows no certificate"),
            E::UnsupportedNameType => Self::name(),
            E::AlertReceived(alert) => Self::alert(*alert),
            E::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => Self::protocol("what the origin sends is not TLS"),
            E::PeerIncompatible(_) => Self::protocol("the origin speaks no TLS that this proxy does"),
            E::NoApplicationProtocol => Self::protocol("the origin speaks no HTTP/1.1 inside TLS"),
            _ => Self::protocol("the origin breaks the rules of TLS"),
        }
    }

    fn certificate(words: &'static str) -> Self {
        Self { kind: Kind::Certificate, words, hello: MayBeHello::No }
    }

    fn protocol(words: &'static str) -> Self {
        Self { kind: Kind::Protocol, words, hello: MayBeHello::No }
    }

    fn alert(alert: AlertDescription) -> Self {
        use AlertDescription as A;
        let (words, hello) = match alert {
            A::HandshakeFailure => ("the origin refuses TLS: handshake_failure", MayBeHello::Yes),
            A::ProtocolVersion => ("the origin refuses TLS: protocol_version", MayBeHello::Yes),
            A::InsufficientSecurity => ("the origin refuses TLS: insufficient_security", MayBeHello::Yes),
            A::IllegalParameter => ("the origin refuses TLS: illegal_parameter", MayBeHello::Yes),
            A::DecodeError => ("the origin refuses TLS: decode_error", MayBeHello::Yes),
            A::RecordOverflow => ("the origin refuses TLS: record_overflow", MayBeHello::Yes),
            A::UnexpectedMessage => ("the origin refuses TLS: unexpected_message", MayBeHello::Yes),
            A::InternalError => ("the origin refuses TLS: internal_error", MayBeHello::Yes),
            A::UnrecognisedName => ("the origin does not know the host: unrecognized_name", MayBeHello::No),
            A::AccessDenied => ("the origin refuses TLS: access_denied", MayBeHello::No),
            A::NoApplicationProtocol => ("the origin speaks no HTTP/1.1 inside TLS", MayBeHello::No),
            A::CertificateRequired => ("the origin asks for a certificate of the client", MayBeHello::No),
            _ => ("the origin ends TLS with an alert", MayBeHello::No),
        };
        Self { kind: Kind::Alert, words, hello }
    }
}

/// The kind of an I/O error, however deep it lies.
fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    error.downcast_ref::<io::Error>().map(io::Error::kind)
}

fn of_certificate(error: &CertificateError) -> &'static str {
    use CertificateError as C;
    match error {
        C::Expired | C::ExpiredContext { .. } => "the certificate has expired",
        C::NotValidYet | C::NotValidYetContext { .. } => "the certificate is not valid yet",
        C::NotValidForName | C::NotValidForNameContext { .. } => {
            "the certificate is not valid for the name of the host"
        }
        C::UnknownIssuer => "the certificate comes from an unknown issuer",
        C::Revoked => "the certificate has been revoked",
        C::BadEncoding => "the certificate cannot be read",
        C::BadSignature => "the certificate is not signed by its issuer",
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => "the certificate is not for servers",
        C::UnhandledCriticalExtension => "the certificate has a critical extension that nobody knows",
        C::UnsupportedSignatureAlgorithmContext { .. }
        | C::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "the certificate is signed in a way that is not accepted"
        }
        C::Other(other) if other.0.is::<SelfSigned>() => "the certificate is self-signed",
        // The library wraps an error of its own here, of which the text is the name.
        C::Other(other) if other.0.to_string() == "CaUsedAsEndEntity" => {
            "the certificate is an authority's own, or self-signed as one"
        }
        _ => "the certificate is not valid",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_found_however_deep_they_lie() {
        let expired = rustls::Error::InvalidCertificate(CertificateError::Expired);
        let deep = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, expired));
        let found = TlsError::of(&deep);
        assert_eq!(found.fault().error, "tls_certificate_error");
        assert!(!found.may_be_of_the_hello());
        let closed = io::Error::other(io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof"));
        assert_eq!(TlsError::of(&closed).fault().error, "tls_protocol_error");
        assert!(TlsError::of(&closed).may_be_of_the_hello());
        assert_eq!(TlsError::found_in(&closed), None);
    }

    #[test]
    fn words_need_no_escape_in_a_quoted_string() {
        for alert in 0..=u8::MAX {
            let words = TlsError::alert(alert.into()).fault().words;
            assert!(words.bytes().all(|b| (b' '..=b'~').contains(&b) && !b"\"\\".contains(&b)), "{words}");
        }
    }
}
