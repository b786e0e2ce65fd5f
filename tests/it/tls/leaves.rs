//! The content of certificates, and their verification by clients.

use std::io::Cursor;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::tls::{
    CertificateAuthority, CertificateIssuer, IssueError, LeafCertificate, SessionTickets,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, ServerConnection};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

use super::{Mint, PATIENT, client, files};
use crate::support::temp_dir::TempDir;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn der(leaf: &LeafCertificate) -> &CertificateDer<'static> {
    let [only] = &leaf.certified_key().cert[..] else {
        panic!("the authority itself is not sent")
    };
    only
}

fn roots(authority: &CertificateAuthority) -> Arc<rustls::RootCertStore> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate().der().clone()).unwrap();
    Arc::new(roots)
}

/// Returns `true` if a client that trusts the authority accepts this certificate for that host.
fn believed(mint: &Mint, leaf: &LeafCertificate, host: &str, at: SystemTime) -> bool {
    let verifier =
        WebPkiServerVerifier::builder_with_provider(roots(mint.minter.authority()), provider())
            .build()
            .unwrap();
    let at = UnixTime::since_unix_epoch(at.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    let name = ServerName::try_from(host.to_owned()).unwrap();
    verifier
        .verify_server_cert(der(leaf), &[], &name, &[], at)
        .is_ok()
}

#[tokio::test]
async fn clients_believe_it_for_its_host_only_and_for_six_days() {
    let (clock, _hand) = Clock::manual();
    let mint = Mint::new(100, 200, clock.clone());
    let now = clock.wall_time();
    let long = format!("{}.{}.example", "a".repeat(60), "b".repeat(60));
    for (host, name) in [
        ("a.example", "a.example"),
        ("under_score.a.example", "under_score.a.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        (&long, &long),
        ("192.0.2.7", "192.0.2.7"),
        ("[2001:db8::7]", "2001:db8::7"),
    ] {
        let leaf = mint.leaf(host).await;
        assert!(believed(&mint, &leaf, name, now), "{host}");
        for other in [
            "b.example",
            "www.a.example",
            "example",
            "192.0.2.8",
            "2001:db8::8",
        ] {
            assert!(!believed(&mint, &leaf, other, now), "{host} for {other}");
        }
        assert!(
            believed(&mint, &leaf, name, now - DAY + Duration::from_secs(60)),
            "{host}: clocks go behind"
        );
        assert!(
            believed(&mint, &leaf, name, now + 6 * DAY - Duration::from_secs(60)),
            "{host}"
        );
        assert!(
            !believed(&mint, &leaf, name, now + 6 * DAY + Duration::from_secs(60)),
            "{host}"
        );
    }
    let other = Mint::new(100, 200, clock);
    assert!(
        !believed(&other, &*mint.leaf("a.example").await, "a.example", now),
        "another authority"
    );
}

#[tokio::test]
async fn a_certificate_has_the_extensions_that_clients_require() {
    let (clock, _hand) = Clock::manual();
    let mint = Mint::new(100, 200, clock.clone());
    let authority = mint.minter.authority();
    let (_, ca) = X509Certificate::from_der(authority.certificate().der()).unwrap();
    let ski = ca.iter_extensions().find_map(|e| {
        let ParsedExtension::SubjectKeyIdentifier(id) = e.parsed_extension() else {
            return None;
        };
        Some(id.0)
    });
    let long = format!("{}.example", "a".repeat(56));
    assert_eq!(long.len(), 64);
    let mut serials = vec![];
    for (host, name, common) in [
        (
            "a.example",
            GeneralName::DNSName("a.example"),
            Some("a.example"),
        ),
        (&long, GeneralName::DNSName(&long), None),
        (
            "192.0.2.7",
            GeneralName::IPAddress(&[192, 0, 2, 7]),
            Some("192.0.2.7"),
        ),
        (
            "[2001:db8::7]",
            GeneralName::IPAddress(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]),
            Some("2001:db8::7"),
        ),
    ] {
        let leaf = mint.leaf(host).await;
        let (rest, cert) = X509Certificate::from_der(der(&leaf)).unwrap();
        assert!(rest.is_empty());
        assert_eq!(
            cert.subject_alternative_name()
                .unwrap()
                .unwrap()
                .value
                .general_names,
            [name],
            "{host}"
        );
        let names: Vec<&str> = cert
            .subject()
            .iter_common_name()
            .map(|cn| cn.as_str().unwrap())
            .collect();
        assert_eq!(names, common.into_iter().collect::<Vec<_>>());
        assert!(!cert.is_ca());
        let uses = cert.key_usage().unwrap().unwrap();
        assert!(uses.critical, "digitalSignature alone: {:?}", uses.value);
        assert!(
            uses.value.flags == 1,
            "digitalSignature alone: {:?}",
            uses.value
        );
        let purposes = cert.extended_key_usage().unwrap().unwrap().value;
        assert!(purposes.server_auth && !purposes.client_auth && !purposes.any);
        let aki = cert.iter_extensions().find_map(|e| {
            let ParsedExtension::AuthorityKeyIdentifier(id) = e.parsed_extension() else {
                return None;
            };
            id.key_identifier.as_ref().map(|id| id.0)
        });
        assert!(aki.is_some() && aki == ski, "{aki:?} {ski:?}");
        assert_ne!(
            cert.public_key().raw,
            ca.public_key().raw,
            "the authority's key is nobody else's"
        );
        assert_eq!(cert.issuer().to_string(), authority.certificate().subject());
        let validity = cert.validity();
        let seconds = validity.not_after.timestamp() - validity.not_before.timestamp();
        assert_eq!(seconds, 7 * 24 * 60 * 60);
        serials.push(cert.raw_serial().to_vec());
    }
    serials.sort();
    serials.dedup();
    assert_eq!(serials.len(), 4);
    assert!(
        serials
            .iter()
            .all(|serial| (12..=17).contains(&serial.len())),
        "128 random bits: {serials:?}"
    );
}

#[tokio::test]
async fn an_invalid_host_gets_no_certificate() {
    let mint = Mint::new(100, 200, Clock::manual().0);
    for host in [
        "",
        ".",
        "a..example",
        "a.example.",
        "*.example",
        "a b",
        "a/b",
        "ä.example",
        "2001:db8::7",
        "[::1",
        "[1.2.3.4]",
        "a.example:443",
    ] {
        let refused = mint
            .minter
            .get_or_issue(host, client(), PATIENT)
            .await
            .unwrap_err();
        assert!(
            matches!(refused, IssueError::Failed(_)),
            "{host}: {refused:?}"
        );
    }
    assert_eq!((mint.made(), mint.minter.cached_certificates()), (0, 0));
}

/// The client's session store is kept between calls: what it may resume by.
fn handshake(
    client: &Arc<ClientConfig>,
    leaf: &LeafCertificate,
    tickets: SessionTickets,
    name: &str,
) -> (ClientConnection, ServerConnection) {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = ServerConnection::new(leaf.server_config(tickets)).unwrap();
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        server.read_tls(&mut Cursor::new(wire)).unwrap();
        server.process_new_packets().unwrap();
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        client.read_tls(&mut Cursor::new(wire)).unwrap();
        client.process_new_packets().unwrap();
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    (client, server)
}

#[tokio::test]
async fn sessions_resume_for_their_host_by_ticket_or_not_at_all() {
    use rustls::HandshakeKind::{Full, Resumed};
    let mint = Mint::new(100, 200, Clock::system());
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(mint.minter.authority()))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let a = mint.leaf("a.example").await;
    let b = mint.leaf("b.example").await;
    fn fresh(config: &ClientConfig) -> Arc<ClientConfig> {
        Arc::new(config.clone())
    }
    for (tickets, first, second) in [
        (SessionTickets::Stateless, Full, Resumed),
        (SessionTickets::None, Full, Full),
    ] {
        let mut own = config.clone();
        own.resumption = rustls::client::Resumption::in_memory_sessions(8);
        let own = Arc::new(own);
        for kind in [first, second] {
            let (client, server) = handshake(&own, &a, tickets, "a.example");
            assert_eq!(client.handshake_kind(), Some(kind), "{tickets:?}");
            assert_eq!(server.handshake_kind(), Some(kind), "{tickets:?}");
            assert_eq!(server.alpn_protocol(), Some(&b"h2"[..]));
        }
        let (client, _) = handshake(&own, &b, tickets, "b.example");
        assert_eq!(client.handshake_kind(), Some(Full));
    }
    // Whatever name the client asks for, the host's certificate is shown; an address asks for none.
    let ip = mint.leaf("192.0.2.7").await;
    handshake(&fresh(&config), &ip, SessionTickets::None, "192.0.2.7");
    assert!(Arc::ptr_eq(
        &a.server_config(SessionTickets::Stateless),
        &a.server_config(SessionTickets::Stateless)
    ));
    assert!(Arc::ptr_eq(
        &a.server_config(SessionTickets::None),
        &a.server_config(SessionTickets::None)
    ));
    for tickets in [SessionTickets::Stateless, SessionTickets::None] {
        assert_eq!(a.server_config(tickets).max_early_data_size, 0);
        assert!(!a.server_config(tickets).session_storage.can_cache());
    }
}

#[tokio::test]
async fn a_certificate_and_its_key_live_for_a_day() {
    let (clock, manual_clock) = Clock::manual();
    let mint = Mint::new(100, 200, clock);
    fn key(leaf: &LeafCertificate) -> Vec<u8> {
        X509Certificate::from_der(der(leaf))
            .unwrap()
            .1
            .public_key()
            .raw
            .to_vec()
    }
    let first = mint.leaf("a.example").await;
    let other = mint.leaf("b.example").await;
    assert_eq!(key(&first), key(&other), "one key for a day");
    manual_clock.advance(DAY - Duration::from_secs(1));
    assert!(Arc::ptr_eq(&first, &mint.leaf("a.example").await));
    manual_clock.advance(Duration::from_secs(1));
    let second = mint.leaf("a.example").await;
    assert!(!Arc::ptr_eq(&first, &second) && key(&first) != key(&second));
    assert_eq!(mint.made(), 3);
}

/// A machine that was suspended, a clock that NTP has set: monotonic time has not passed.
#[tokio::test]
async fn a_certificate_follows_the_wall_clock() {
    const HOUR: i64 = 60 * 60;
    for (hours, is_same) in [
        (0, true),
        (1, true),
        (-1, true),
        (-11, true),
        (-13, false),
        (23, true),
        (25, false),
        (8 * 24, false),
        (-3 * 24, false),
        (-400 * 24, false),
    ] {
        let (clock, manual_clock) = Clock::manual();
        let mint = Mint::new(100, 200, clock.clone());
        let first = mint.leaf("a.example").await;
        manual_clock.adjust_wall_time(hours * HOUR);
        let second = mint.leaf("a.example").await;
        assert_eq!(Arc::ptr_eq(&first, &second), is_same, "{hours} h");
        assert!(is_valid_at(&second, clock.wall_time()), "{hours} h");
        // Issued once.
        assert!(
            Arc::ptr_eq(&second, &mint.leaf("a.example").await),
            "{hours} h"
        );
        manual_clock.adjust_wall_time(-hours * HOUR);
        let third = mint.leaf("a.example").await;
        assert!(is_valid_at(&third, clock.wall_time()), "{hours} h and back");
    }
}

/// Returns `true` if the certificate's own dates contain this time. The authority is not examined: its dates follow
/// the clock at its creation.
fn is_valid_at(leaf: &LeafCertificate, at: SystemTime) -> bool {
    let (_, parsed) = X509Certificate::from_der(der(leaf)).unwrap();
    let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let at = i64::try_from(at).unwrap();
    let validity = parsed.validity();
    (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&at)
}

#[tokio::test]
async fn no_certificate_outlives_the_authority() {
    let folder = TempDir::new();
    let (cert, key) = files(&folder);
    let (clock, manual_clock) = Clock::manual();
    let authority = CertificateAuthority::create(&cert, &key, clock.wall_time()).unwrap();
    let end = authority.not_after();
    let five_years = Duration::from_secs(5 * 365 * 24 * 60 * 60);
    assert_eq!(end.duration_since(clock.wall_time()).unwrap(), five_years);
    let metrics = Metrics::new(&[], &[]).unwrap();
    let minter =
        CertificateIssuer::new(authority, 10, 200, clock.clone(), metrics.clone()).unwrap();
    let gauge = format!(
        "crawlgate_ca_not_after_timestamp_seconds {}\n",
        1_767_225_600 + five_years.as_secs()
    );
    assert!(metrics.render().contains(&gauge), "{gauge}");

    let client: IpAddr = client();
    manual_clock.advance(five_years - Duration::from_secs(3600));
    let leaf = minter
        .get_or_issue("a.example", client, PATIENT)
        .await
        .unwrap();
    let (_, parsed) = X509Certificate::from_der(der(&leaf)).unwrap();
    let ends = u64::try_from(parsed.validity().not_after.timestamp()).unwrap();
    assert_eq!(SystemTime::UNIX_EPOCH + Duration::from_secs(ends), end);
    manual_clock.advance(Duration::from_secs(3601));
    let refused = minter
        .get_or_issue("a.example", client, PATIENT)
        .await
        .unwrap_err();
    assert_eq!(
        refused,
        IssueError::Failed("the certificate authority has expired".into())
    );
}
