//! The first steps with a proxy, and the commands about one that runs: how they find it, and what they report.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::client::RawClient;
use crate::support::command::{CommandOutput, crawlgate};
use crate::support::origin::ScriptedOrigin;
use crate::support::proxy::{CONFIG, TestProxy};
use crate::support::temp_dir::TempDir;

const POLICY: &str = "policy: 1\nname: acme\noptions: { disposition: allow, politeness: { delay: 0s } }\n\
                      rules: [{ id: no-cgi, forbid: { under: /cgi } }]\n";

/// Copies the program to a folder that other users may enter. Another process writes the copy: a process that is started
/// meanwhile would inherit the open file from this one, and nobody can run a file that is open for writing.
fn copy_program(folder: &TempDir) -> PathBuf {
    let program = folder.path().join("crawlgate");
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_crawlgate"))
        .arg(&program)
        .status()
        .unwrap();
    assert!(copied.success());
    program
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs a command in the folder without the rights of root, to whom nothing is forbidden.
fn run_as_nobody(program: &Path, folder: &TempDir, arguments: &[&str]) -> CommandOutput {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder.path());
    command.env_remove("CRAWLGATE_CONFIG");
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    CommandOutput {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a command about a proxy from a directory that has no configuration.
fn ask(proxy: &TestProxy, command: &str) -> CommandOutput {
    let elsewhere = TempDir::new();
    let command = format!("{command} --admin {}", proxy.admin);
    crawlgate(elsewhere.path(), command.as_str(), "")
}

fn get(proxy: &TestProxy, url: &str) -> u16 {
    let request = format!("GET {url} HTTP/1.1\r\nHost: a.test\r\n\r\n");
    RawClient::connect(proxy.proxy).request(request).status
}

#[test]
fn a_proxy_that_does_not_answer_is_named_with_the_way_to_name_another() {
    let folder = TempDir::new();
    folder.write("c.yaml", "admin: { listen: 127.0.0.1:1 }\n");
    for command in [
        "env",
        "status",
        "reload",
        "shadow",
        "stop --list",
        "explain --decision 9f3c01ab-1f",
        "ledger sweep",
    ] {
        let output = crawlgate(
            folder.path(),
            format!("{command} --admin 127.0.0.1:1").as_str(),
            "",
        );
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (3, ""),
            "{command}: {output:?}"
        );
        for part in ["127.0.0.1:1 (--admin)", "--config FILE", "crawlgate run"] {
            assert!(output.stderr.contains(part), "{command}: {output:?}");
        }
    }
    let output = crawlgate(folder.path(), "status --config c.yaml", "");
    assert!(
        output.code == 3
            && output
                .stderr
                .contains("127.0.0.1:1 (admin.listen of c.yaml)"),
        "{output:?}"
    );
}

#[test]
fn env_prints_the_variables_of_the_running_proxy_in_any_directory_or_nothing() {
    let config =
        CONFIG.to_owned() + "tls: { ca: { cert: ca.pem, key: ca.key }, bundle: all.pem }\n";
    let proxy = TestProxy::start(&config, POLICY);
    let output = ask(&proxy, "env --shell sh");
    assert_eq!(output.code, 0, "{output:?}");
    for part in [
        format!("export https_proxy='http://{}';", proxy.proxy),
        format!(
            "export SSL_CERT_FILE='{}';",
            proxy.file("all.pem").display()
        ),
        format!(
            "export NODE_EXTRA_CA_CERTS='{}';",
            proxy.file("ca.pem").display()
        ),
    ] {
        assert!(output.stdout.contains(&part), "{part}: {output:?}");
    }
    assert!(output.stderr.contains("policy acme@"), "{output:?}");

    std::fs::remove_file(proxy.file("all.pem")).unwrap();
    let output = ask(&proxy, "env --shell sh");
    assert_eq!((output.code, output.stdout.as_str()), (3, ""), "{output:?}");
    assert!(
        output.stderr.contains("all.pem, which clients must trust"),
        "{output:?}"
    );
}

#[test]
fn the_admin_port_and_the_start_lead_to_the_page() {
    let proxy = TestProxy::start(CONFIG, POLICY);
    let root = proxy.admin("GET /");
    assert_eq!((root.status, root.field("location")), (302, Some("/ui")));
    let status = ask(&proxy, "status");
    for part in [
        format!("page          http://{}/ui\n", proxy.admin),
        "HTTPS         evaluated by host only (tls.intercept is false)\n".to_owned(),
        format!("listeners     {}\n", proxy.proxy),
        format!("({})\n", proxy.file("policy.yaml").display()),
        format!("decision log  {}\n", proxy.file("log.json").display()),
        ", ready\n".to_owned(),
        "stops         none\n".to_owned(),
    ] {
        assert!(status.stdout.contains(&part), "{part}: {}", status.stdout);
    }
    assert_eq!(ask(&proxy, "stop a.test --reason x").code, 0);
    let status = ask(&proxy, "status --format json");
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["stops"], 1);
    let stderr = proxy.stderr();
    for part in [
        format!("page: http://{}/ui\n", proxy.admin),
        "HTTPS: evaluated by host only".to_owned(),
    ] {
        assert!(stderr.contains(&part), "{part}: {stderr}");
    }
}

#[test]
fn health_is_an_exit_code() {
    let proxy = TestProxy::start(CONFIG, POLICY);
    let ready = ask(&proxy, "health");
    assert!(
        ready.code == 0 && ready.stdout.contains("ok policy: acme@"),
        "{ready:?}"
    );
    let live = ask(&proxy, "health --live");
    assert_eq!((live.code, live.stdout.as_str()), (0, "ok\n"));

    // While it shuts down, it is alive but not ready.
    let config = CONFIG.to_owned() + "timeouts: { drain_delay: 60s }\n";
    let proxy = TestProxy::start(&config, POLICY);
    proxy.signal("TERM");
    crate::support::wait::wait_until("it is not ready", || ask(&proxy, "health").code == 1);
    let drained = ask(&proxy, "health");
    assert!(drained.stdout.contains("fail drain: "), "{drained:?}");
    assert_eq!(ask(&proxy, "health --live").code, 0);

    let folder = TempDir::new();
    let gone = crawlgate(folder.path(), "health --admin 127.0.0.1:1", "");
    assert!(
        gone.code == 1 && gone.stderr.contains("does not answer"),
        "{gone:?}"
    );
}

#[test]
fn reload_shows_what_changed_or_the_errors() {
    let proxy = TestProxy::start(CONFIG, POLICY);
    let same = ask(&proxy, "reload");
    assert!(
        same.code == 0 && same.stdout.contains(" has not changed; "),
        "{same:?}"
    );

    proxy.write("policy.yaml", &POLICY.replace("/cgi }", "/bin }"));
    let changed = ask(&proxy, "reload");
    assert_eq!(changed.code, 0, "{changed:?}");
    assert!(
        changed.stdout.contains("is active, in place of revision "),
        "{changed:?}"
    );
    assert!(changed.stdout.contains("~ rule no-cgi: "), "{changed:?}");

    proxy.write("policy.yaml", &POLICY.replace("forbid:", "forbit:"));
    let broken = ask(&proxy, "reload");
    assert_eq!(broken.code, 2, "{broken:?}");
    assert!(broken.stdout.contains("remains active"), "{broken:?}");
    for part in ["policy.yaml:4:", "error: ", "forbit", "forbid"] {
        assert!(broken.stderr.contains(part), "{part}: {broken:?}");
    }
}

#[test]
fn decisions_are_those_of_the_proxy_if_there_is_no_file() {
    let config = CONFIG.replace("logs: { decisions: log.json }\n", "");
    let proxy = TestProxy::start(&config, POLICY);
    let origin = ScriptedOrigin::ok();
    assert_eq!(get(&proxy, &origin.url("a.test", "/page")), 200);
    assert_eq!(get(&proxy, &origin.url("a.test", "/cgi/x")), 451);
    crate::support::wait::wait_until("both are logged", || {
        ask(&proxy, "decisions").stdout.lines().count() == 2
    });
    let shown = ask(&proxy, "decisions");
    assert_eq!(shown.code, 0, "{shown:?}");
    for part in ["/page", "/cgi/x", "no-cgi"] {
        assert!(shown.stdout.contains(part), "{part}: {shown:?}");
    }
    assert!(
        shown
            .stderr
            .contains("the latest decisions of the proxy at"),
        "{shown:?}"
    );
    let memory = "in memory only, since its start at 2";
    assert!(shown.stderr.contains(memory), "{shown:?}");
    assert!(shown.stderr.contains("`logs.decisions`"), "{shown:?}");
    // The id of a refusal leads to its explanation.
    let refusal = shown.stdout.lines().find(|line| line.contains("/cgi/x"));
    let id = refusal.unwrap().split_whitespace().last().unwrap();
    let explained = ask(&proxy, &format!("explain --decision {id}"));
    assert!(explained.stdout.contains("rule: no-cgi"), "{explained:?}");
    let missing = ask(&proxy, "explain --decision 00000000-1");
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.stderr.contains(memory), "{missing:?}");
    let counted = ask(&proxy, "decisions --summary reason --format json");
    assert!(counted.stdout.contains("\"rule\""), "{counted:?}");
    // Not on a terminal, standard error has the lines as JSON.
    assert!(
        proxy
            .stderr()
            .lines()
            .any(|line| line.starts_with("{\"ts\":")),
        "{}",
        proxy.stderr()
    );

    let mut follower = Command::new(env!("CARGO_BIN_EXE_crawlgate"))
        .args([
            "decisions",
            "--follow",
            "--filter",
            "rule=no-cgi",
            "--admin",
        ])
        .arg(proxy.admin.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("/cgi/x  "));
    assert_eq!(get(&proxy, &origin.url("a.test", "/cgi/y")), 451);
    assert!(lines.next().unwrap().unwrap().contains("/cgi/y  "));
    // The end of the proxy ends the command.
    drop(proxy);
    assert!(lines.next().is_none());
    let _ = follower.wait();
}

#[test]
fn the_directory_of_the_decision_log_is_made_and_check_tries_it() {
    let config = CONFIG.replace("log.json", "a/b/log.json");
    let proxy = TestProxy::start(&config, POLICY);
    assert!(proxy.file("a/b/log.json").exists());

    let folder = TempDir::new();
    folder.write("policy.yaml", POLICY);
    folder.write("a", "in the way");
    folder.write(
        "c.yaml",
        "logs: { decisions: a/b/log.json }\nadmin: { token_file: no-token }\n",
    );
    let output = crawlgate(folder.path(), "check c.yaml", "");
    assert_eq!(output.code, 2, "{output:?}");
    for part in [
        "logs.decisions: a/b/log.json cannot be used: ",
        "admin.token_file: no-token cannot be used: ",
    ] {
        assert!(output.stderr.contains(part), "{part}: {output:?}");
    }
    folder.write("short", "0123456789\n");
    folder.write("c.yaml", "admin: { token_file: short }\n");
    let output = crawlgate(folder.path(), "check --config c.yaml", "");
    assert_eq!(output.code, 2, "{output:?}");
    let part = "admin.token_file: short cannot be used: a token is one line of 16 or more";
    assert!(output.stderr.contains(part), "{output:?}");
    folder.write("c.yaml", "logs: { decisions: new/log.json }\n");
    let output = crawlgate(folder.path(), "check c.yaml", "");
    assert_eq!(output.code, 0, "{output:?}");
    assert!(!folder.path().join("new").exists(), "check makes nothing");
}

#[test]
fn a_start_without_a_usable_store_names_its_path() {
    // Linux makes no directory there, for root neither.
    let config = format!("{CONFIG}store: {{ path: /proc/none/store }}\n");
    let proxy = TestProxy::start(&config, POLICY);
    let text = proxy.stderr();
    let part = "cannot be recorded in /proc/none/store/policies (store.path)";
    assert!(text.contains(part), "{text}");
}

/// The path in the way is named, and neither a replacement of the policy nor the stops are blamed for it.
#[test]
fn a_store_that_cannot_be_used_is_reported_with_its_cause_and_cure() {
    const NAMED: &str = "policy: { path: p.yaml, watch: false }\n";
    const LEDGER: &str = "ledger: { keep: always }\n";
    const MOVE: &str = "file is not a directory. Move it away, or set a different store.path";
    const CHANGE: &str = "Change its owner or its mode, or set a different store.path";
    let folder = TempDir::new();
    let program = copy_program(&folder);
    folder.write("p.yaml", POLICY);
    folder.write("file", "in the way");
    folder.write("no-policies/policies", "in the way");
    for directory in [
        "no-stops/stops.json",
        "no-ledger/ledger.redb",
        "closed",
        "locked",
    ] {
        std::fs::create_dir_all(folder.path().join(directory)).unwrap();
    }
    for (name, mode) in [("", 0o755), ("closed", 0), ("locked", 0o555)] {
        set_mode(&folder.path().join(name), mode);
    }
    for (store, more, place, cure) in [
        ("file/x", NAMED, "directory file/x (store.path)", MOVE),
        // The policy is the built-in one.
        ("file/x/y", LEDGER, "directory file/x/y (store.path)", MOVE),
        ("closed", NAMED, "directory closed (store.path)", CHANGE),
        (
            "no-policies",
            NAMED,
            "no-policies cannot be used (store.path)",
            "no-policies/policies is not a directory. Move it away",
        ),
        (
            "no-stops",
            "",
            "the emergency stops",
            "no-stops/stops.json is a directory. Move it away. Without the file, ",
        ),
        (
            "no-ledger",
            LEDGER,
            "the ledger no-ledger/ledger.redb",
            "/ledger.redb is a directory. Move it away, or set a different store.path",
        ),
        ("locked", LEDGER, "the ledger locked/ledger.redb", CHANGE),
    ] {
        let config = format!(
            "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\nlogs: {{ decisions: none }}\n\
             tls: {{ intercept: false }}\nstore: {{ path: {store} }}\n{more}"
        );
        folder.write("c.yaml", &config);
        let output = run_as_nobody(&program, &folder, &["run", "--config", "c.yaml"]);
        assert_eq!(output.code, 3, "{store}: {output:?}");
        let mut lines = output.stderr.lines();
        let error = lines.find(|line| line.starts_with("error: ")).unwrap();
        assert!(error.contains(place), "{store}: {error}");
        assert!(error.contains(cure), "{store}: {error}");
    }
    folder.write("c.yaml", "store: { path: file/x }\n");
    let output = crawlgate(folder.path(), "check c.yaml", "");
    let part = "store.path: file/x cannot be used: file is not a directory";
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.stderr.contains(part), "{output:?}");
    for name in ["closed", "locked"] {
        set_mode(&folder.path().join(name), 0o755);
    }
}

/// The user is told what to do, not only what the system says.
#[test]
fn files_and_addresses_that_cannot_be_used_are_reported_with_a_cure() {
    let folder = TempDir::new();
    folder.write("policy.yaml", POLICY);
    folder.write("file", "in the way");
    folder.write(
        "log.yaml",
        "listen: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0 }\nstore: { path: store }\ntls: { intercept: false }\n\
         logs: { decisions: file/x/log.json }\n",
    );
    let log = "file is not a directory. Move it away, or set a different file";
    for (command, code, parts) in [
        (
            "run --config log.yaml",
            3,
            [
                "cannot open the decision log file/x/log.json (logs.decisions)",
                log,
            ],
        ),
        (
            "check log.yaml",
            2,
            [
                "logs.decisions: file/x/log.json cannot be used",
                "file is not a directory",
            ],
        ),
        (
            "run --config none.yaml",
            2,
            [
                "none.yaml: error: there is no such file",
                "`crawlgate init`",
            ],
        ),
        (
            "run --listen 3128",
            2,
            [
                "--listen",
                "write an address and a port, such as 127.0.0.1:3128",
            ],
        ),
        (
            "status --admin localhost:3129",
            2,
            ["--admin", "write the address, not the name: 127.0.0.1:3129"],
        ),
    ] {
        let output = crawlgate(folder.path(), command, "");
        assert_eq!(output.code, code, "{command}: {output:?}");
        for part in parts {
            assert!(output.stderr.contains(part), "{command}: {output:?}");
        }
    }
}

/// `run` would end with these authorities, or leave clients without the bundle.
#[test]
fn check_tries_the_certificate_authorities_and_the_bundle() {
    let folder = TempDir::new();
    folder.write("policy.yaml", POLICY);
    folder.write("file", "in the way");
    folder.write("other.pem", "no certificate");
    folder.write("other.key", "no key");
    std::fs::create_dir(folder.path().join("bundles")).unwrap();
    let key = folder.path().join("other.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    for (settings, code, part) in [
        (
            "ca: { cert: file/ca.pem, key: ca.key }",
            2,
            "error: tls.ca: file/ca.pem cannot be used: ",
        ),
        (
            "ca: { cert: ca.pem, key: file/ca.key }",
            2,
            "error: tls.ca: file/ca.key cannot be used: ",
        ),
        (
            "ca: { cert: other.pem, key: other.key }",
            2,
            "error: tls.ca: other.pem cannot be used: ",
        ),
        (
            "ca: { cert: other.pem, key: none.key }",
            2,
            "error: tls.ca: none.key cannot be used: ",
        ),
        (
            "ca: { cert: ca.pem, key: ca.key }, bundle: file/bundle.pem",
            0,
            "warning: tls.bundle: file/bundle.pem cannot be written: ",
        ),
        (
            "ca: { cert: ca.pem, key: ca.key }, bundle: bundles",
            0,
            "warning: tls.bundle: bundles cannot be written: it is a directory",
        ),
        (
            "ca: { cert: new/ca.pem, key: new/ca.key }, bundle: new/bundle.pem",
            0,
            "",
        ),
    ] {
        folder.write(
            "c.yaml",
            format!("policy: {{ path: policy.yaml }}\ntls: {{ intercept: true, {settings} }}\n"),
        );
        let output = crawlgate(folder.path(), "check c.yaml", "");
        assert_eq!(output.code, code, "{settings}: {output:?}");
        assert!(output.stderr.contains(part), "{settings}: {output:?}");
        assert_eq!(
            output.stderr.contains("tls."),
            !part.is_empty(),
            "{output:?}"
        );
    }
    assert!(!folder.path().join("new").exists(), "check makes nothing");
}

/// Starts `run` in a directory on free ports, and returns the lines of its start.
fn start_lines(directory: &Path) -> Vec<String> {
    let mut process = Command::new(env!("CARGO_BIN_EXE_crawlgate"))
        .args(["run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .current_dir(directory)
        .env_remove("CRAWLGATE_CONFIG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut found = Vec::new();
    for line in lines.map_while(Result::ok) {
        let is_last = line.starts_with("HTTPS: ");
        found.push(line);
        if is_last {
            break;
        }
    }
    let _ = process.kill();
    let _ = process.wait();
    found
}

#[test]
fn https_is_treated_the_same_with_and_without_a_configuration() {
    let folder = TempDir::new();
    let without = start_lines(folder.path());
    let https = without.last().unwrap();
    assert!(
        https.starts_with("HTTPS: evaluated by URL; clients must trust /")
            && https.contains("/certs/ca.pem"),
        "{without:?}"
    );
    assert!(folder.path().join("certs/ca.pem").exists());

    let folder = TempDir::new();
    assert_eq!(crawlgate(folder.path(), "init --yes", "").code, 0);
    let with = start_lines(folder.path());
    assert!(
        with.last()
            .unwrap()
            .starts_with("HTTPS: evaluated by URL; clients must trust "),
        "{with:?}"
    );
    assert!(folder.path().join("certs/ca.pem").exists());
    assert!(folder.path().join("var/decisions.jsonl").exists());
}

#[test]
fn what_init_writes_passes_check_and_test_and_is_not_overwritten() {
    let folder = TempDir::new();
    let home = folder.path().join("my crawl");
    for (arguments, listens) in [
        (&["init", "my crawl"][..], "listen: 127.0.0.1:3128"),
        (
            &[
                "init",
                "my crawl",
                "--crawler",
                "news-bot",
                "--from",
                "10.1.0.0/16,fd00::/8",
                "--https",
                "host",
                "--force",
            ],
            "listen: 0.0.0.0:3128",
        ),
    ] {
        let output = crawlgate(folder.path(), arguments, "");
        assert_eq!(output.code, 0, "{output:?}");
        assert!(
            output.stdout.contains("cd 'my crawl' && crawlgate run\n"),
            "{output:?}"
        );
        let config = std::fs::read_to_string(home.join("config/crawlgate.yaml")).unwrap();
        assert!(config.lines().any(|line| line == listens), "{config}");
        let checked = crawlgate(&home, "check --strict", "");
        assert_eq!(
            (checked.code, checked.stderr.as_str()),
            (0, ""),
            "{checked:?}"
        );
        assert_eq!(crawlgate(&home, "test", "").code, 0);
    }
    let config = std::fs::read_to_string(home.join("config/crawlgate.yaml")).unwrap();
    std::fs::remove_file(home.join("config/policy.yaml")).unwrap();
    let output = crawlgate(folder.path(), &["init", "my crawl"], "");
    assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{output:?}");
    assert!(
        output.stderr.contains("my crawl/config/crawlgate.yaml"),
        "{output:?}"
    );
    assert!(!home.join("config/policy.yaml").exists(), "all or nothing");
    assert_eq!(
        std::fs::read_to_string(home.join("config/crawlgate.yaml")).unwrap(),
        config
    );
}

/// A file that never ends, one that has no end, and a directory.
#[test]
fn only_regular_files_are_read_as_a_decision_log() {
    let folder = TempDir::new();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        folder.path().join("pipe"),
        rustix::fs::Mode::RUSR,
    )
    .unwrap();
    for (path, kind) in [
        ("/dev/full", "a device"),
        ("/dev/zero", "a device"),
        ("pipe", "a pipe"),
        (".", "a directory"),
    ] {
        for options in ["", " --all", " --lost", " --follow"] {
            let command = format!("decisions --log {path}{options}");
            let output = crawlgate(folder.path(), command.as_str(), "");
            assert_eq!(output.code, 3, "{command}: {output:?}");
            assert!(output.stderr.contains(kind), "{command}: {output:?}");
        }
    }
    // The same by the configuration.
    folder.write("c.yaml", "logs: { decisions: /dev/full }\n");
    let output = crawlgate(folder.path(), "decisions --config c.yaml", "");
    assert_eq!(output.code, 3, "{output:?}");
    assert!(output.stderr.contains("a device"), "{output:?}");
}

/// Root may write everywhere, so the check runs as nobody.
#[test]
fn check_names_the_user_and_the_directory_that_it_may_not_write_to() {
    let folder = TempDir::new();
    let program = copy_program(&folder);
    let locked = folder.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    folder.write(
        "c.yaml",
        "logs: { decisions: locked/d.jsonl }\nstore: { path: locked/store }\n",
    );
    set_mode(folder.path(), 0o755);
    set_mode(&locked, 0o555);
    let output = run_as_nobody(&program, &folder, &["check", "c.yaml"]);
    set_mode(&locked, 0o755);
    let text = output.stderr;
    assert_eq!(output.code, 0, "{text}");
    for key in ["logs.decisions: locked/d.jsonl", "store.path: locked/store"] {
        let part = format!("warning: {key} cannot be used: user ");
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert_eq!(
        text.matches(" may not write to locked").count(),
        2,
        "{text}"
    );
}

/// Only the configuration says that there are crawlers outside the policy's only space.
#[test]
fn check_compares_the_paces_of_the_configured_crawlers() {
    let folder = TempDir::new();
    folder.write(
        "p.yaml",
        "policy: 1\nname: p\noptions: { disposition: allow }\n\
         spaces: [{ name: news, crawlers: [news], options: { politeness: { delay: 900ms } } }]\n",
    );
    let config = "crawlers: [{ name: news, sources: [192.0.2.0/24] }]\npolicy: { path: p.yaml }\n";
    let conflict = "two crawlers get different paces for one host: `politeness.delay` is 900ms for `news` by \
                    `spaces.news.options` and 1s for `anonymous` by the built-in value, for example for \
                    http://www.example.com/";
    for (command, more, expected) in [
        ("check p.yaml", "", false),
        ("check c.yaml", "", true),
        ("check c.yaml", "anonymous: deny\n", false),
    ] {
        folder.write("c.yaml", format!("{config}{more}"));
        let output = crawlgate(folder.path(), command, "");
        assert_eq!(output.code, 0, "{output:?}");
        assert_eq!(
            output.stderr.contains(conflict),
            expected,
            "{command} {more}: {output:?}"
        );
    }
}
