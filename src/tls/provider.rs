//! The cryptography provider of TLS towards clients and origins.

use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// The preferred cipher suites. The key schedule of AES-128 uses SHA-256, for which processors have
/// instructions; that of AES-256 uses SHA-384, for which they have none and which took a tenth of a
/// handshake's time. Both are offered.
const CIPHER_SUITE_ORDER: [CipherSuite; 5] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
];

/// Returns the library's default provider with its cipher suites in this order.
pub fn crypto_provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    // The sort is stable: other suites stay at the end in the library's order.
    provider.cipher_suites.sort_by_key(|suite| {
        CIPHER_SUITE_ORDER
            .iter()
            .position(|preferred| *preferred == suite.suite())
            .unwrap_or(CIPHER_SUITE_ORDER.len())
    });
    provider
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aes_128_comes_first_and_nothing_is_lost() {
        let supported = crypto_provider().cipher_suites;
        assert_eq!(supported[0].suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(
            supported.len(),
            aws_lc_rs::default_provider().cipher_suites.len()
        );
        let tls12 = supported
            .iter()
            .find(|suite| suite.tls13().is_none())
            .unwrap();
        assert_eq!(
            tls12.suite(),
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        );
    }
}
