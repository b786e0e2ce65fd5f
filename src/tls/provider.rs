//! The cryptography that TLS is spoken with, towards clients and origins.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{CipherSuite, SupportedCipherSuite};

/// The library's own, with AES-128 before AES-256: the key schedule of the one goes by SHA-256, for which processors have
/// instructions, that of the other by SHA-384, for which they have none, and a tenth of a handshake's time went there.
/// Both are offered.
pub fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(place);
    provider
}

/// The sorting is stable: within one place the library's order stays.
fn place(suite: &SupportedCipherSuite) -> u8 {
    match suite.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => 0,
        CipherSuite::TLS13_AES_256_GCM_SHA384 => 1,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => 2,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aes_128_stands_first_and_nothing_is_lost() {
        let ours = provider().cipher_suites;
        assert_eq!(ours[0].suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(ours.len(), aws_lc_rs::default_provider().cipher_suites.len());
        let tls12 = ours.iter().find(|suite| suite.tls13().is_none()).unwrap();
        assert_eq!(tls12.suite(), CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
    }
}
