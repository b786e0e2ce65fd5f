//! The authority's files: their modes, what is refused, and that the key is shown nowhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::tls::{CaCertificate, CertificateAuthority, CertificateIssuer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::{PATIENT, client, files};
use crate::support::temp_dir::TempDir;

fn now() -> SystemTime {
    Clock::system().wall_time()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_authority_is_read_again_and_never_overwritten() {
    let folder = TempDir::new();
    let (cert, key) = files(&folder);
    let made = CertificateAuthority::create(&cert, &key, now()).unwrap();
    assert_eq!((mode(&key), mode(&cert) & 0o600), (0o600, 0o600));
    let loaded = CertificateAuthority::load(&cert, &key, now()).unwrap();
    assert_eq!(made.certificate(), loaded.certificate());
    assert_eq!(fs::read_to_string(&cert).unwrap(), made.pem());
    assert_eq!(made.certificate().days_left(now()), Some(5 * 365 - 1));

    let (_, ca) = X509Certificate::from_der(made.certificate().der()).unwrap();
    let constraints = ca.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca);
    assert_eq!(constraints.value.path_len_constraint, Some(0));
    let uses = ca.key_usage().unwrap().unwrap();
    assert!(uses.critical && uses.value.key_cert_sign() && uses.value.crl_sign());
    assert!(!uses.value.digital_signature());

    let before = (fs::read(&cert).unwrap(), fs::read(&key).unwrap());
    let refused = CertificateAuthority::create(&cert, &key, now())
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("ca.key already exists and is never overwritten"),
        "{refused}"
    );
    let elsewhere = folder.path().join("other.key");
    let refused = CertificateAuthority::create(&cert, &elsewhere, now())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("ca.pem already exists"), "{refused}");
    assert!(!elsewhere.exists(), "{refused}");
    assert_eq!((fs::read(&cert).unwrap(), fs::read(&key).unwrap()), before);

    let other = CertificateAuthority::create(
        &folder.path().join("b.pem"),
        &folder.path().join("b.key"),
        now(),
    )
    .unwrap();
    assert_ne!(other.certificate().subject(), made.certificate().subject());
}

/// Changes to the files, and the messages about them.
#[test]
fn doubtful_files_are_refused_with_the_cure() {
    type Spoil = fn(&Path, &Path);
    let table: [(&str, Spoil); 11] = [
        (
            "ca.key do not exist; `crawlgate ca init` creates them",
            |cert, key| {
                fs::remove_file(cert).unwrap();
                fs::remove_file(key).unwrap();
            },
        ),
        ("ca.pem exists without ", |_, key| {
            fs::remove_file(key).unwrap()
        }),
        ("ca.key exists without ", |cert, _| {
            fs::remove_file(cert).unwrap()
        }),
        ("(mode 0640); run: chmod 600 '", |_, key| {
            set_mode(key, 0o640)
        }),
        ("(mode 0604); run: chmod 600 '", |_, key| {
            set_mode(key, 0o604)
        }),
        ("ca.pem: no certificate (PEM)", |cert, _| {
            fs::write(cert, "hello").unwrap()
        }),
        ("ca.pem: no certificate (PEM)", |cert, _| {
            fs::write(cert, crawlgate::tls::ca::to_pem("CERTIFICATE", b"hello")).unwrap();
        }),
        ("ca.key: no private key that can sign", |_, key| {
            fs::write(key, crawlgate::tls::ca::to_pem("PRIVATE KEY", b"hello")).unwrap();
        }),
        ("ca.key: no private key that can sign", |cert, key| {
            fs::copy(cert, key).unwrap();
            set_mode(key, 0o600);
        }),
        ("ca.key is not the key of ", |cert, key| {
            fs::remove_file(key).unwrap();
            CertificateAuthority::create(&cert.with_extension("other"), key, now()).unwrap();
        }),
        (
            "ca.pem: this certificate must not sign others",
            |cert, key| {
                let pair = rcgen::KeyPair::from_pem(&fs::read_to_string(key).unwrap()).unwrap();
                let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
                fs::write(cert, params.self_signed(&pair).unwrap().pem()).unwrap();
            },
        ),
    ];
    for (expected, spoil) in table {
        let folder = TempDir::new();
        let (cert, key) = files(&folder);
        let secret = secret(&{
            CertificateAuthority::create(&cert, &key, now()).unwrap();
            fs::read_to_string(&key).unwrap()
        });
        spoil(&cert, &key);
        let error = CertificateAuthority::load(&cert, &key, now()).unwrap_err();
        let reported = error.to_string();
        assert!(reported.contains(expected), "{expected}: {reported}");
        assert!(!reported.contains(&secret), "{expected}");
        assert!(!format!("{error:?}").contains(&secret), "{expected}");
    }
    let folder = TempDir::new();
    let (cert, key) = files(&folder);
    CertificateAuthority::create(
        &cert,
        &key,
        now() - Duration::from_secs(6 * 365 * 24 * 60 * 60),
    )
    .unwrap();
    let reported = CertificateAuthority::load(&cert, &key, now())
        .unwrap_err()
        .to_string();
    assert!(reported.contains("ca.pem: expired at 20"), "{reported}");
}

/// A file that holds the key too gives its certificate only.
#[test]
fn only_certificates_are_exported() {
    let folder = TempDir::new();
    let (cert, key) = files(&folder);
    CertificateAuthority::create(&cert, &key, now()).unwrap();
    let both = format!(
        "{}{}",
        fs::read_to_string(&key).unwrap(),
        fs::read_to_string(&cert).unwrap()
    );
    let joint = folder.write("joint.pem", both);
    let loaded = CaCertificate::load(&joint).unwrap();
    assert_eq!(loaded.pem(), fs::read_to_string(&cert).unwrap());
    assert!(!loaded.pem().contains("PRIVATE"));
}

/// A line of the key's base64 in the middle of it, where the secret is.
fn secret(pem: &str) -> String {
    let body: String = pem
        .lines()
        .filter(|line| !line.starts_with('-'))
        .map(str::trim)
        .collect();
    assert!(body.len() > 150, "{}", body.len());
    body[60..100].to_owned()
}

#[tokio::test]
async fn the_key_is_in_no_text_that_the_module_makes() {
    let folder = TempDir::new();
    let (cert, key) = files(&folder);
    CertificateAuthority::create(&cert, &key, now()).unwrap();
    let authority = CertificateAuthority::load(&cert, &key, now()).unwrap();
    let pem = fs::read_to_string(&key).unwrap();
    let canary = secret(&pem);
    assert!(
        pem.replace(['\r', '\n'], "").contains(&canary),
        "the search finds what is there"
    );
    let metrics = Metrics::new(&[], &[]).unwrap();
    let mut texts = vec![
        format!("{authority:?} {authority:#?}"),
        authority.pem().to_owned(),
    ];
    let minter =
        CertificateIssuer::new(authority, 10, 10, Clock::system(), metrics.clone()).unwrap();
    let leaf = minter
        .get_or_issue("a.example", client(), PATIENT)
        .await
        .unwrap();
    texts.push(format!(
        "{minter:?} {minter:#?} {leaf:?} {:?}",
        leaf.certified_key()
    ));
    texts.push(format!(
        "{:?}",
        leaf.server_config(crawlgate::tls::SessionTickets::Stateless)
    ));
    texts.push(format!(
        "{:?}",
        minter.get_or_issue("no host", client(), PATIENT).await
    ));
    texts.push(metrics.render());
    // The bytes of the secret as Debug would list them.
    let pair = rcgen::KeyPair::from_pem(&pem).unwrap();
    let listed = format!("{:?}", &pair.serialized_der()[36..52]);
    let listed = listed.trim_matches(['[', ']']);
    for text in texts {
        let flat = text.replace(['\r', '\n'], "");
        assert!(!flat.contains(&canary), "{text}");
        assert!(!flat.contains(listed), "{text}");
        assert!(!flat.contains("PRIVATE"), "{text}");
    }
}
