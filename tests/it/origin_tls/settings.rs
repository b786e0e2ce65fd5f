//! The configuration of origin certificates: its effects, its warnings, and handshakes in the log.

use rcgen::IsCa;

use super::certs::{Authority, self_signed};
use super::{POLICY, gate, gate_with};
use crate::origin_tls::origin::text_response;
use crate::support::client::get;
use crate::support::command::crawlgate;
use crate::support::origin::ScriptedOrigin;
use crate::support::temp_dir::TempDir;
use crate::support::wait::TIMEOUT;

#[test]
fn verification_can_be_off_for_all_and_is_warned_of() {
    let gate = gate_with(&Authority::new(), ", verify_upstream: false", POLICY);
    let origin = ScriptedOrigin::tls(self_signed(&["b.test"], IsCa::NoCa).server(), |_| {
        text_response("anybody's")
    });
    assert_eq!(
        get(gate.proxy, &origin.https_url("a.test", "/strict")).body,
        "anybody's"
    );
    assert_eq!(gate.metric("crawlgate_upstream_unverified_total"), 1.0);
    let output = gate.stderr();
    assert!(
        output.contains("warning: certificates of origins are not verified"),
        "{output}"
    );
    assert!(
        output.contains("warning: rule lax: `verify: skip`"),
        "{output}"
    );
}

#[test]
fn check_warns_too() {
    let folder = TempDir::new();
    folder.write(
        "c.yaml",
        "tls: { verify_upstream: false }\npolicy: { path: p.yaml }\n",
    );
    folder.write("p.yaml", POLICY);
    let output = crawlgate(folder.path(), "check c.yaml", "");
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        output
            .stderr
            .contains("c.yaml:1:25: warning: certificates of origins are not verified"),
        "{output:?}"
    );
    assert!(
        output.stderr.contains("warning: rule lax: `verify: skip`"),
        "{output:?}"
    );
    assert!(output.stdout.contains("0 errors, 2 warnings"), "{output:?}");
}

#[test]
fn roots_that_cannot_be_used_are_named() {
    let pem = Authority::new().pem();
    for (case, text, reported) in [
        ("missing", None, "No such file"),
        ("empty", Some(String::new()), "it contains no certificate"),
        (
            "no PEM",
            Some(pem.replace("-----END", "END")),
            "certificate 1 is not PEM",
        ),
        (
            "no certificate",
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into()),
            "certificate 1 cannot be a root",
        ),
    ] {
        let folder = TempDir::new();
        let listen =
            "listen: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0 }\npolicy: { path: p.yaml }\n";
        folder.write(
            "c.yaml",
            format!("{listen}tls: {{ extra_roots: [more.pem] }}\n"),
        );
        folder.write("p.yaml", POLICY);
        if let Some(text) = text {
            folder.write("more.pem", text);
        }
        let output = crawlgate(folder.path(), "run --config c.yaml", "");
        assert_eq!(output.code, 3, "{case}: {output:?}");
        assert!(output.stderr.contains("more.pem"), "{case}: {output:?}");
        assert!(output.stderr.contains(reported), "{case}: {output:?}");
    }
}

#[test]
fn the_log_contains_the_time_of_the_handshake() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = ScriptedOrigin::tls(ours.server(&["a.test"]), |_| text_response("page"));
    for _ in 0..2 {
        get(gate.proxy, &origin.https_url("a.test", "/"));
    }
    let log = gate.write("unused", "").with_file_name("decisions.log");
    let end = std::time::Instant::now() + TIMEOUT;
    let lines = loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if text.lines().count() == 2 {
            break text;
        }
        assert!(std::time::Instant::now() < end, "{text}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let times: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["tls_ms"].clone())
        .collect();
    assert!(times[0].as_f64().is_some_and(|ms| ms > 0.0), "{lines}");
    assert!(times[1].is_null(), "a pooled connection had none: {lines}");
}
