//! `crawlgate ca`, `crawlgate env` and a first start, as people and scripts meet them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::support::command::{CommandOutput, crawlgate};
use crate::support::proxy::TestProxy;
use crate::support::temp_dir::TempDir;

/// In a folder whose name a shell could stumble over.
const AWKWARD: &str = r#"it's $HOME "a"\b `c`"#;

const ONE: &str = "tls: { bundle: bundle.pem, ca: { cert: old.pem, key: old.key } }\n";
const OLD_AND_NEW: &str = "tls: { bundle: bundle.pem, ca: [{ cert: old.pem, key: old.key }, { cert: new.pem, key: new.key }] }\n";
const TWO: &str = "tls: { intercept: true, ca: [{ cert: new.pem, key: new.key }, { cert: old.pem, key: old.key }] }\n";

fn run(directory: &Path, arguments: &[&str]) -> CommandOutput {
    crawlgate(directory, arguments, "")
}

fn certificates(pem: impl AsRef<[u8]>) -> Vec<Vec<u8>> {
    CertificateDer::pem_slice_iter(pem.as_ref())
        .map(|der| der.unwrap().to_vec())
        .collect()
}

#[test]
fn an_authority_is_made_once_shown_and_exported() {
    let folder = TempDir::new();
    let directory = folder.path();
    folder.write("config/policy.yaml", POLICY);
    for command in [&["ca", "show"][..], &["ca", "export"]] {
        let output = run(directory, command);
        assert!(output.code == 3, "{output:?}");
        assert!(
            output.stderr.contains("`crawlgate ca init` creates them"),
            "{output:?}"
        );
    }
    let output = run(directory, &["ca", "init"]);
    assert!(output.code == 0, "{output:?}");
    assert!(
        output.stderr.contains("eval \"$(crawlgate env)\""),
        "{output:?}"
    );
    let key = fs::read_to_string(directory.join("certs/ca.key")).unwrap();
    let mode = fs::metadata(directory.join("certs/ca.key"))
        .unwrap()
        .permissions()
        .mode()
        & 0o777;
    assert_eq!(mode, 0o600);
    let pem = fs::read_to_string(directory.join("certs/ca.pem")).unwrap();
    let bundle = certificates(fs::read(directory.join("certs/bundle.pem")).unwrap());
    assert_eq!(bundle.last(), certificates(&pem).last());

    let again = run(directory, &["ca", "init"]);
    assert!(again.code == 2, "{again:?}");
    assert!(again.stderr.contains("is never overwritten"), "{again:?}");
    assert_eq!(
        fs::read_to_string(directory.join("certs/ca.key")).unwrap(),
        key
    );

    let shown = run(directory, &["ca", "show"]);
    assert_eq!((shown.code, shown.stderr.as_str()), (0, ""));
    for part in [
        "subject     O=crawlgate, CN=crawlgate CA ",
        "(1824 days left)",
        "sha256      ",
        "certs/ca.key",
    ] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let exported = run(directory, &["ca", "export"]);
    assert_eq!((exported.code, exported.stdout.as_str()), (0, pem.as_str()));
    let der = run(
        directory,
        &["ca", "export", "--format", "der", "-o", "ca.der"],
    );
    assert_eq!((der.code, der.stdout.as_str()), (0, ""));
    assert_eq!(
        certificates(&pem),
        [fs::read(directory.join("ca.der")).unwrap()]
    );
    let again = run(directory, &["ca", "export", "-o", "ca.der"]);
    assert_eq!(again.code, 2, "{}", again.stderr);
    let over = run(directory, &["ca", "export", "-o", "certs/ca.key"]);
    assert_eq!(over.code, 2, "{over:?}");
    assert_eq!(
        fs::read_to_string(directory.join("certs/ca.key")).unwrap(),
        key
    );

    fs::set_permissions(
        directory.join("certs/ca.key"),
        fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    let loose = run(directory, &["ca", "show"]);
    assert!(loose.code == 3, "{loose:?}");
    assert!(
        loose.stderr.contains("run: chmod 600 'certs/ca.key'"),
        "{loose:?}"
    );
    assert!(
        loose.stdout.contains("subject"),
        "what can be read is shown"
    );
}

#[test]
fn of_two_authorities_the_first_signs_and_both_are_exported() {
    let folder = TempDir::new();
    let directory = folder.path();
    folder.write("old.yaml", "tls: { ca: { cert: old.pem, key: old.key } }\n");
    folder.write("two.yaml", TWO);
    assert_eq!(
        run(directory, &["ca", "init", "--config", "old.yaml"]).code,
        0
    );
    assert_eq!(
        run(directory, &["ca", "--config", "two.yaml", "init"]).code,
        0
    );
    let both = ["new.pem", "old.pem"]
        .map(|name| fs::read_to_string(directory.join(name)).unwrap())
        .concat();
    assert_eq!(
        run(directory, &["ca", "export", "--config", "two.yaml"]).stdout,
        both
    );
    let shown = run(directory, &["ca", "show", "--config", "two.yaml"]);
    let roles: Vec<&str> = shown
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("role        "))
        .collect();
    assert_eq!(roles, ["signs", "exported, does not sign"]);
    assert_eq!(shown.stdout.split("\n\n").count(), 2, "{shown:?}");
    let env = run(directory, &["env", "--config", "two.yaml"]).stdout;
    assert!(
        env.contains("NODE_EXTRA_CA_CERTS="),
        "one file for both: {env}"
    );
    assert!(!env.contains("new.pem"), "one file for both: {env}");
}

#[test]
fn a_second_authority_is_made_beside_the_first_which_stays_in_the_bundle() {
    let folder = TempDir::new();
    let directory = folder.path();
    folder.write("one.yaml", ONE);
    let first = run(directory, &["ca", "init", "--config", "one.yaml"]);
    assert_eq!(first.code, 0, "{first:?}");
    let old = fs::read(directory.join("old.pem")).unwrap();
    folder.write("one.yaml", OLD_AND_NEW);
    let second = run(directory, &["ca", "init", "--config", "one.yaml"]);
    assert_eq!(second.code, 0, "{second:?}");
    assert!(
        second.stdout.contains("exported, does not sign"),
        "{second:?}"
    );
    assert!(
        !second.stdout.contains("old.pem"),
        "only the new one: {second:?}"
    );
    assert_eq!(fs::read(directory.join("old.pem")).unwrap(), old);
    let both: Vec<Vec<u8>> = ["old.pem", "new.pem"]
        .into_iter()
        .flat_map(|name| certificates(fs::read(directory.join(name)).unwrap()))
        .collect();
    let bundle = certificates(fs::read(directory.join("bundle.pem")).unwrap());
    assert!(bundle.ends_with(&both));
    let third = run(directory, &["ca", "init", "--config", "one.yaml"]);
    assert_eq!(third.code, 2, "nothing is missing: {third:?}");
}

#[test]
fn check_reports_an_authority_that_run_may_not_make() {
    let folder = TempDir::new();
    let directory = folder.path();
    folder.write("policy.yaml", POLICY);
    let ca = |create: bool| {
        let policy = directory.join("policy.yaml");
        let ca = format!("{{ cert: ca.pem, key: ca.key, create: {create} }}");
        let config = format!(
            "policy: {{ path: {} }}\ntls: {{ ca: {ca} }}\n",
            policy.display()
        );
        folder.write("crawlgate.yaml", &config);
        run(directory, &["check", "crawlgate.yaml"])
    };
    let checked = ca(false);
    assert_eq!(checked.code, 2, "{checked:?}");
    assert!(
        checked.stderr.contains("`crawlgate ca init` creates it"),
        "{checked:?}"
    );
    assert_eq!(ca(true).code, 0);
}

/// Each variable, as the shell that ran the output knows it.
fn in_sh(directory: &Path, printed: &str) -> Vec<(String, String)> {
    // Once as it should be, once by those who forget the quotes.
    let script = "eval \"$PRINTED\"; env -0";
    let output = Command::new("sh")
        .arg("-c")
        .arg(script)
        .env("PRINTED", printed)
        .current_dir(directory)
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap().as_str(), "");
    let text = String::from_utf8(output.stdout).unwrap();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn a_shell_that_runs_env_has_the_variables() {
    let folder = TempDir::new();
    folder.write(&format!("{AWKWARD}/policy.yaml"), POLICY);
    let config = folder.write(
        &format!("{AWKWARD}/c.yaml"),
        "listen: 0.0.0.0:4128\nadmin: { listen: 127.0.0.1:1 }\ntls: { intercept: true, ca: { cert: ca.pem, key: ca.key }, bundle: all.pem }\n",
    );
    let config = config.to_str().unwrap();
    let before = run(folder.path(), &["env", "--shell", "sh", "--config", config]);
    assert_eq!((before.code, before.stdout.as_str()), (3, ""));
    assert!(
        before
            .stderr
            .contains("all.pem, which clients must trust, does not exist here: `crawlgate run`"),
        "{before:?}"
    );
    assert_eq!(
        run(folder.path(), &["ca", "init", "--config", config]).code,
        0
    );
    let output = run(folder.path(), &["env", "--shell", "sh", "--config", config]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        output
            .stderr
            .contains("c.yaml (the proxy does not answer at 127.0.0.1:1"),
        "{output:?}"
    );

    let home = fs::canonicalize(folder.path().join(AWKWARD)).unwrap();
    fn file(home: &std::path::Path, name: &str) -> String {
        home.join(name).to_str().unwrap().to_owned()
    }
    let proxy = "http://127.0.0.1:4128".to_owned();
    let local = "localhost,127.0.0.1,::1".to_owned();
    let known = in_sh(folder.path(), &output.stdout);
    for (name, expected) in [
        ("http_proxy", &proxy),
        ("https_proxy", &proxy),
        ("HTTP_PROXY", &proxy),
        ("HTTPS_PROXY", &proxy),
        ("no_proxy", &local),
        ("NO_PROXY", &local),
        ("SSL_CERT_FILE", &file(&home, "all.pem")),
        ("REQUESTS_CA_BUNDLE", &file(&home, "all.pem")),
        ("CURL_CA_BUNDLE", &file(&home, "all.pem")),
        ("NODE_EXTRA_CA_CERTS", &file(&home, "ca.pem")),
    ] {
        let value = known
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value);
        assert_eq!(value, Some(expected), "{name}");
    }
    // Where the quotes around $(…) are forgotten, the lines become one.
    let joined = in_sh(folder.path(), &output.stdout.replace('\n', " "));
    assert!(joined.contains(&("NODE_EXTRA_CA_CERTS".to_owned(), file(&home, "ca.pem"))));
}

#[test]
fn env_names_a_crawler_s_own_listener_and_no_authority_without_interception() {
    let folder = TempDir::new();
    folder.write("policy.yaml", POLICY);
    folder.write(
        "c.yaml",
        "admin: { listen: 127.0.0.1:1 }\ntls: { intercept: false }\n\
         listen: [{ addr: 127.0.0.1:4001, crawler: own }, { addr: \"[::1]:4002\" }]\n\
         crawlers: [{ name: own }, { name: lab, sources: [10.0.0.0/8] }]\n",
    );
    fn env(folder: &TempDir, more: &[&str]) -> CommandOutput {
        run(
            folder.path(),
            &[&["env", "--config", "c.yaml", "--shell", "sh"], more].concat(),
        )
    }
    let output = env(&folder, &[]);
    assert!(
        output
            .stdout
            .starts_with("export http_proxy='http://[::1]:4002';\n"),
        "{output:?}"
    );
    assert!(!output.stdout.contains("CERT"), "{output:?}");
    assert!(!output.stdout.contains("BUNDLE"), "{output:?}");
    assert!(
        env(&folder, &["--crawler", "own"])
            .stdout
            .contains("http://127.0.0.1:4001")
    );
    for (name, expected) in [
        ("lab", "crawler `lab` has no listener"),
        ("nobody", "(these have one: own)"),
    ] {
        let output = env(&folder, &["--crawler", name]);
        assert!(output.code == 2, "{output:?}");
        assert!(output.stderr.contains(expected), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
    let fish = run(
        folder.path(),
        &["env", "--config", "c.yaml", "--shell", "fish"],
    )
    .stdout;
    assert!(
        fish.starts_with("set -gx http_proxy 'http://[::1]:4002';\n"),
        "{fish}"
    );
    // A password cannot be printed, since only its hash is known: the command says that it is missing.
    folder.write(
        "c.yaml",
        "admin: { listen: 127.0.0.1:1 }\ntls: { intercept: false }\nanonymous: deny\n\
         crawlers: [{ name: own, auth: { user: own, password_hash: \"$2y$04$iofWQRpaN9T3zoFsvjEFYuOGiDpeCKe/4aVcx2pycp1KHIM/cNHHO\" } }]\n",
    );
    let password = env(&folder, &[]);
    assert_eq!(password.code, 0, "{password:?}");
    let note = "clients of this proxy need a user and a password";
    assert!(password.stderr.contains(note), "{password:?}");
    assert!(!output.stderr.contains(note), "{output:?}");
}

const POLICY: &str = "policy: 1\nname: p\noptions: { disposition: allow }\n";

fn config(tls: &str) -> String {
    format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\nlogs: {{ decisions: none }}\ntls: {tls}\n"
    )
}

#[tokio::test]
async fn run_makes_the_authority_and_the_admin_listener_shows_it() {
    let folder = TempDir::new();
    fn path(folder: &TempDir, name: &str) -> std::path::PathBuf {
        folder.path().join(name)
    }
    let tls = format!(
        "{{ intercept: true, ca: {{ cert: {}, key: {} }}, bundle: {} }}",
        path(&folder, "ca.pem").display(),
        path(&folder, "ca.key").display(),
        path(&folder, "all.pem").display()
    );
    fn start(tls: &str, folder: &TempDir, roots: Option<&str>) -> TestProxy {
        TestProxy::start_with(&config(tls), POLICY, |command| {
            command
                .env_remove("SSL_CERT_FILE")
                .env_remove("SSL_CERT_DIR");
            command.envs(roots.map(|roots| ("SSL_CERT_FILE", folder.path().join(roots))));
        })
    }
    let gate = start(&tls, &folder, None);
    assert!(
        gate.stderr().contains("created a certificate authority: "),
        "{}",
        gate.stderr()
    );
    assert!(gate.stderr().contains("eval \"$(crawlgate env)\""));
    let pem = fs::read_to_string(path(&folder, "ca.pem")).unwrap();
    assert!(
        gate.admin("GET /ca.pem")
            .to_string()
            .ends_with(&format!("\r\n\r\n{pem}"))
    );
    assert!(
        !gate
            .admin("GET /metrics")
            .to_string()
            .contains("crawlgate_ca_not_after_timestamp_seconds 0\n")
    );
    let bundle = fs::read(path(&folder, "all.pem")).unwrap();
    assert_eq!(certificates(&bundle).last(), certificates(&pem).last());
    let written = fs::metadata(path(&folder, "all.pem"))
        .unwrap()
        .modified()
        .unwrap();
    drop(gate);

    let gate = start(&tls, &folder, None);
    assert!(
        !gate.stderr().contains("created a certificate authority"),
        "{}",
        gate.stderr()
    );
    assert_eq!(fs::read_to_string(path(&folder, "ca.pem")).unwrap(), pem);
    assert_eq!(
        fs::metadata(path(&folder, "all.pem"))
            .unwrap()
            .modified()
            .unwrap(),
        written,
        "nothing has changed"
    );
    drop(gate);

    // Other roots, and a shell that trusts us, in which the bundle must not be made of itself.
    fs::write(path(&folder, "own.pem"), &pem).unwrap();
    drop(start(&tls, &folder, Some("own.pem")));
    assert_eq!(
        certificates(fs::read(path(&folder, "all.pem")).unwrap()),
        certificates(&pem),
        "each stands there once"
    );
    drop(start(&tls, &folder, Some("all.pem")));
    let again = certificates(fs::read(path(&folder, "all.pem")).unwrap());
    assert_eq!(again.last(), certificates(&pem).last());
    assert_eq!(
        again.len() > 1,
        certificates(&bundle).len() > 1,
        "{} and {}",
        again.len(),
        bundle.len()
    );
}

#[tokio::test]
async fn without_interception_there_is_no_authority() {
    let gate = TestProxy::start(
        &config("{ intercept: false, ca: { cert: a.pem, key: a.key } }"),
        POLICY,
    );
    assert!(
        gate.admin("GET /ca.pem")
            .to_string()
            .starts_with("HTTP/1.1 404 ")
    );
    assert!(!gate.stderr().contains("certificate authority"));
}

#[test]
fn run_without_an_authority_that_it_may_not_make_ends_with_the_cure() {
    let folder = TempDir::new();
    folder.write("policy.yaml", POLICY);
    folder.write(
        "c.yaml",
        config("{ intercept: true, ca: { cert: a.pem, key: a.key, create: false } }"),
    );
    let output = run(folder.path(), &["run", "--config", "c.yaml"]);
    assert!(output.code == 3, "{output:?}");
    assert!(
        output
            .stderr
            .contains("a.key do not exist; `crawlgate ca init` creates them"),
        "{output:?}"
    );
    assert!(!folder.path().join("a.key").exists());
}
