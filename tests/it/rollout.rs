//! A policy rolled out while the proxy runs: set in shadow, promoted, rolled back; and what is refused.

mod interrupted;
mod refused;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::client::{RawClient, Response, get_with};
use crate::support::command::{CommandOutput, crawlgate};
use crate::support::origin::ScriptedOrigin;
use crate::support::policy::allow_all;
use crate::support::proxy::{CONFIG, TestProxy};
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;

const TOKEN: &str = "correct-horse-battery";

/// A policy of this name that refuses the path of its name.
fn policy(name: &str) -> String {
    let rules = format!("  - {{ id: {name}, forbid: {{ under: /{name} }} }}");
    allow_all("", &rules).replace("name: allow-all", &format!("name: {name}"))
}

/// A proxy whose policy and store are in a directory that outlives it.
struct RolloutBench {
    folder: TempDir,
    gate: TestProxy,
}

impl RolloutBench {
    /// Starts a proxy with the policy `one`, whose configuration names the shadow policy `configured`.
    fn with_configured_shadow() -> Self {
        let folder = TempDir::new();
        folder.write("policies/policy.yaml", policy("one"));
        folder.write("shadow.yaml", policy("configured"));
        let shadow = format!(" shadow: {},", folder.path().join("shadow.yaml").display());
        Self::start(folder, "policies/policy.yaml", &shadow)
    }

    /// Starts a proxy with the file `policies/policy.yaml`.
    fn new() -> Self {
        let folder = TempDir::new();
        folder.write("policies/policy.yaml", policy("one"));
        Self::start(folder, "policies/policy.yaml", "")
    }

    /// Starts a proxy with the policy at this path, and more of the section `policy`.
    fn start(folder: TempDir, policy: &str, more: &str) -> Self {
        folder.write("token", TOKEN);
        let path = |name: &str| folder.path().join(name).display().to_string();
        let config = CONFIG
            .replace(
                "policy: { path: policy.yaml,",
                &format!("policy: {{ path: {},{more}", path(policy)),
            )
            .replace(
                "listen: 127.0.0.1:0 }",
                &format!("listen: 127.0.0.1:0, token_file: {} }}", path("token")),
            )
            + &format!("store: {{ path: {} }}\n", path("store"))
            + "crawlers: [{ name: lab, sources: [127.0.0.0/8], may: [trace] }]\n";
        folder.write("crawlgate.yaml", &config);
        let gate = TestProxy::start(&config, "policy: 1\n");
        Self { folder, gate }
    }

    /// Ends the proxy and starts another one with the same directory.
    fn restart(self, policy: &str) -> Self {
        let Self { folder, gate } = self;
        drop(gate);
        Self::start(folder, policy, "")
    }

    fn file(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.file(path)).unwrap()
    }

    /// Sends a request to the admin listener, as the user `ann`.
    fn ask(&self, line: &str, body: &Value) -> Response {
        self.begin(line, body).read_response()
    }

    /// Sends a request, and leaves its answer unread.
    fn begin(&self, line: &str, body: &Value) -> RawClient {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        // ann, with the token as password.
        let credentials = "YW5uOmNvcnJlY3QtaG9yc2UtYmF0dGVyeQ==";
        let mut client = RawClient::connect(self.gate.admin);
        client.send(format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Basic {credentials}\r\nContent-Length: {}\r\n\r\n{body}",
            self.gate.admin,
            body.len()
        ));
        client
    }

    /// Sets a shadow policy of one file.
    fn set(&self, text: &str) -> Response {
        let body =
            json!({ "policy": "next.yaml", "files": { "next.yaml": text }, "reason": "ticket 7" });
        self.ask("PUT /api/v1/shadow/policy", &body)
    }

    fn promote(&self) -> Response {
        self.ask(
            "POST /api/v1/shadow/promote",
            &json!({ "reason": "a day in shadow" }),
        )
    }

    fn roll_back(&self) -> Response {
        self.ask(
            "POST /api/v1/policy/rollback",
            &json!({ "reason": "the shop" }),
        )
    }

    fn reload(&self) -> Value {
        self.ask("POST /api/v1/reload", &Value::Null).json()
    }

    fn get(&self, path: &str) -> Value {
        self.ask(&format!("GET /api/v1/{path}"), &Value::Null)
            .json()
    }

    /// The entries of the history: name, how, reason.
    fn history(&self) -> Vec<(String, String, String)> {
        let history = self.get("policy/history");
        let entries = history["policies"].as_array().unwrap().iter();
        let text = |entry: &Value, key| entry[key].as_str().unwrap_or_default().to_owned();
        entries
            .map(|entry| {
                (
                    text(entry, "policy"),
                    text(entry, "how"),
                    text(entry, "reason"),
                )
            })
            .collect()
    }

    /// The status of a request for a path, and the shadow decisions on it.
    fn crawl(&self, origin: &ScriptedOrigin, path: &str) -> (u16, String) {
        let url = format!("http://a.test:{}{path}", origin.port);
        let answer = get_with(self.gate.proxy, &url, "Crawl-Trace: 1\r\n");
        (answer.status, answer.value("crawl-shadow").to_owned())
    }

    fn command(&self, arguments: &[&str]) -> CommandOutput {
        let admin = self.gate.admin.to_string();
        let mut all = arguments.to_vec();
        all.extend(["--config", "crawlgate.yaml", "--admin", &admin]);
        crawlgate(self.folder.path(), &all, "")
    }
}

#[track_caller]
fn ok(answer: &Response) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[test]
fn a_policy_goes_from_shadow_into_force_and_back_by_commands() {
    let origin = ScriptedOrigin::ok();
    let bench = RolloutBench::new();
    bench.folder.write("next.yaml", policy("two"));

    let set = bench.command(&["shadow", "set", "next.yaml", "--reason", "ticket 7"]);
    assert_eq!(set.code, 0, "{}", set.stderr);
    assert!(set.stdout.contains("policy two@"), "{set:?}");
    assert_eq!(
        bench.crawl(&origin, "/two"),
        (200, "reject; rule=two/two".to_owned())
    );
    let shown = bench.command(&["shadow"]);
    assert!(
        shown.stdout.contains("the shadow policy was set "),
        "{shown:?}"
    );
    assert!(shown.stdout.contains(": ticket 7"), "{shown:?}");
    let status = bench.get("status");
    assert_eq!(status["shadow_policy"]["name"], "two");
    assert_eq!(status["shadow_policy"]["source"], "api");
    let revision = status["shadow_policy"]["revision"]
        .as_str()
        .unwrap()
        .to_owned();
    let old_text = bench.text("policies/policy.yaml");

    let wrong = bench.command(&[
        "shadow",
        "promote",
        "--revision",
        "00000000",
        "--reason",
        "x",
    ]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(wrong.stderr.contains(&revision), "{wrong:?}");
    assert_eq!(bench.text("policies/policy.yaml"), old_text);

    let promoted = bench.command(&[
        "shadow",
        "promote",
        "--revision",
        &revision,
        "--reason",
        "a day in shadow",
    ]);
    assert_eq!(promoted.code, 0, "{}", promoted.stderr);
    assert!(
        promoted
            .stdout
            .contains(&format!("policy two@{revision} is active")),
        "{promoted:?}"
    );
    assert!(
        promoted.stdout.contains("written: policy.yaml"),
        "{promoted:?}"
    );
    assert_eq!(bench.text("policies/policy.yaml"), policy("two"));
    let refused = get_with(bench.gate.proxy, &origin.url("a.test", "/two"), "");
    assert_eq!((refused.status, refused.value("crawl-shadow")), (451, ""));
    assert_eq!(bench.get("status")["shadow_policy"], Value::Null);
    assert_eq!(bench.get("policy")["revision"], json!(revision));
    // The file and what is in force are the same.
    assert_eq!(bench.reload()["result"], "unchanged");

    let back = bench.command(&["policy", "rollback", "--reason", "the shop is refused"]);
    assert_eq!(back.code, 0, "{}", back.stderr);
    assert_eq!(bench.text("policies/policy.yaml"), old_text);
    assert_eq!(bench.crawl(&origin, "/two").0, 200);
    assert_eq!(bench.crawl(&origin, "/one").0, 451);

    let history = bench.command(&["policy", "history"]);
    let lines: Vec<&str> = history.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{history:?}");
    assert!(
        lines[0].starts_with("* ") && lines[0].contains("  one@"),
        "{history:?}"
    );
    assert!(
        lines[0].contains("rollback") && lines[0].ends_with(": the shop is refused"),
        "{history:?}"
    );
    assert!(
        lines[1].contains("  promote") && lines[1].contains("127.0.0.1"),
        "{history:?}"
    );
    assert!(lines[2].contains("  start"), "{history:?}");
    // A policy that was in force is a policy at the path of its directory.
    let kept = format!("store/policies/{revision}");
    let url = origin.url("a.test", "/two");
    let explained = bench.command(&["explain", "--policy", &kept, &url]);
    assert!(
        explained.stdout.contains(&format!("two@{revision}")),
        "{explained:?}"
    );
    let differs = crawlgate(
        bench.folder.path(),
        &["diff", &kept, "policies/policy.yaml"][..],
        "",
    );
    assert!(
        differs.stderr.contains(&format!("two@{revision}")),
        "{differs:?}"
    );
    commands_take_a_kept_policy(&bench, &kept, &revision);
    // The explanation of the earlier decision names it.
    let explained = bench.command(&["explain", "--decision", refused.value("crawl-decision")]);
    assert!(explained.stdout.contains(&kept), "{explained:?}");
    wait_until("who and why are logged", || {
        let log = bench.gate.stderr();
        log.contains("is promoted from shadow") && log.contains("a day in shadow")
    });
}

/// All commands that read a policy take the directory of one that the proxy has kept; a proxy that is started does not.
fn commands_take_a_kept_policy(bench: &RolloutBench, kept: &str, revision: &str) {
    let folder = bench.folder.path();
    let name = format!("two@{revision}");
    for (arguments, input) in [
        (&["check", kept][..], ""),
        (&["test", kept][..], ""),
        (&["find", "--policy", kept, "--verdict", "allow"][..], ""),
        (
            &["decide", "--policy", kept][..],
            "{\"url\": \"http://a.test/\"}\n",
        ),
    ] {
        let output = crawlgate(folder, arguments, input);
        assert_eq!(output.code, 0, "{arguments:?}: {output:?}");
        let text = output.stdout + &output.stderr;
        assert!(text.contains(&name), "{arguments:?}: {text}");
    }
    let set = bench.command(&["shadow", "set", kept, "--reason", "again"]);
    assert_eq!(set.code, 0, "{set:?}");
    assert!(set.stdout.contains(&name), "{set:?}");
    assert_eq!(bench.command(&["shadow", "clear"]).code, 0);
    let output = crawlgate(folder, &["run", "--policy", kept][..], "");
    assert_eq!(output.code, 2, "{output:?}");
    for part in ["a copy of an earlier policy", "crawlgate policy rollback"] {
        assert!(output.stderr.contains(part), "{output:?}");
    }
}

#[test]
fn a_shadow_policy_survives_reloads_and_restarts_until_it_is_cleared() {
    let origin = ScriptedOrigin::ok();
    let bench = RolloutBench::with_configured_shadow();
    assert_eq!(
        bench.crawl(&origin, "/configured").1,
        "reject; rule=configured/configured"
    );
    let cleared = bench.ask("DELETE /api/v1/shadow/policy", &Value::Null);
    assert_eq!(cleared.status, 409, "{}", cleared.body);

    ok(&bench.set(&policy("two")));
    let is_two = |bench: &RolloutBench| {
        assert_eq!(bench.crawl(&origin, "/configured"), (200, String::new()));
        assert_eq!(
            bench.crawl(&origin, "/two"),
            (200, "reject; rule=two/two".to_owned())
        );
        let shadow = bench.get("shadow")["shadow_policy"].clone();
        assert_eq!(shadow["policy"], "two");
        assert_eq!(shadow["set"]["user"], "ann");
        assert_eq!(shadow["set"]["address"], "127.0.0.1");
        assert_eq!(shadow["set"]["reason"], "ticket 7");
    };
    is_two(&bench);
    // Neither a reload of the other files nor an error in them affects it.
    bench.folder.write("policies/policy.yaml", policy("three"));
    bench.folder.write("shadow.yaml", "policy: 1\n");
    assert_eq!(bench.reload()["result"], "loaded");
    is_two(&bench);
    assert_eq!(bench.crawl(&origin, "/three").0, 451);
    bench.folder.write("shadow.yaml", policy("other"));
    let bench = bench.restart("policies/policy.yaml");
    is_two(&bench);
    let cleared = bench.command(&["shadow", "clear", "--reason", "a mistake & more"]);
    assert_eq!(cleared.code, 0, "{}", cleared.stderr);
    assert_eq!(bench.crawl(&origin, "/two").1, "");
    assert_eq!(bench.command(&["shadow", "clear"]).code, 1);
    let bench = bench.restart("policies/policy.yaml");
    assert_eq!(bench.get("status")["shadow_policy"], Value::Null);
    // No start is recorded for a policy that was in force before.
    let causes: Vec<String> = bench.history().into_iter().map(|entry| entry.1).collect();
    assert_eq!(causes, ["reload", "start"]);
}

#[test]
fn the_configured_shadow_policy_is_back_after_a_clear_and_can_be_promoted() {
    let origin = ScriptedOrigin::ok();
    let bench = RolloutBench::with_configured_shadow();
    ok(&bench.set(&policy("two")));
    ok(&bench.ask("DELETE /api/v1/shadow/policy?reason=no+more", &Value::Null));
    assert_eq!(
        bench.crawl(&origin, "/configured").1,
        "reject; rule=configured/configured"
    );
    // The policy that was evaluated in shadow is promoted.
    bench.folder.write("shadow.yaml", policy("edited"));
    let refused = bench.promote();
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(
        refused.body.contains("policy.shadow have changed"),
        "{}",
        refused.body
    );
    bench.folder.write("shadow.yaml", policy("configured"));
    assert_eq!(ok(&bench.promote())["policy"], "configured");
    assert_eq!(bench.text("policies/policy.yaml"), policy("configured"));
    assert_eq!(bench.crawl(&origin, "/configured").0, 451);
}

#[test]
fn twenty_policies_are_kept() {
    let bench = RolloutBench::new();
    for number in 1..=20 {
        bench
            .folder
            .write("policies/policy.yaml", policy(&format!("p{number}")));
        assert_eq!(bench.reload()["result"], "loaded");
    }
    let kept = fs::read_dir(bench.file("store/policies")).unwrap();
    let kept = kept
        .filter(|entry| entry.as_ref().unwrap().path().is_dir())
        .count();
    assert_eq!(kept, 20);
    let history = bench.get("policy/history");
    let entries = history["policies"].as_array().unwrap();
    assert_eq!(entries.len(), 21);
    assert_eq!(
        (&entries[0]["active"], &entries[0]["kept"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        (&entries[20]["policy"], &entries[20]["kept"]),
        (&json!("one"), &json!(false))
    );
    let first = entries[20]["revision"].as_str().unwrap();
    let body = json!({ "reason": "x", "revision": first });
    let refused = bench.ask("POST /api/v1/policy/rollback", &body);
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(refused.body.contains("too old"), "{}", refused.body);
    let body = json!({ "reason": "x", "revision": entries[19]["revision"] });
    assert_eq!(
        ok(&bench.ask("POST /api/v1/policy/rollback", &body))["policy"],
        "p1"
    );
    assert_eq!(bench.text("policies/policy.yaml"), policy("p1"));
    // The policy in force before this one was the first, and not the one that was left.
    let refused = bench.roll_back();
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(
        refused.body.contains(first) && refused.body.contains("too old"),
        "{}",
        refused.body
    );
    assert_eq!(bench.get("policy/history")["before"], first);
}

#[test]
fn a_rollback_that_is_repeated_never_returns_to_the_policy_that_was_left() {
    let bench = RolloutBench::new();
    for name in ["two", "three"] {
        ok(&bench.set(&policy(name)));
        ok(&bench.promote());
    }
    for (name, code) in [("two", 0), ("one", 0), ("one", 1)] {
        let back = bench.command(&["policy", "rollback", "--reason", "x"]);
        assert_eq!(back.code, code, "{back:?}");
        assert_eq!(bench.get("policy")["name"], name);
        if code != 0 {
            assert!(
                back.stderr.contains("no policy was in force before"),
                "{back:?}"
            );
        }
    }
    // Two operators mean the same policy.
    let body = json!({ "reason": "x", "revision": bench.get("policy")["revision"] });
    let again = bench.ask("POST /api/v1/policy/rollback", &body);
    assert_eq!(again.status, 409, "{}", again.body);
    assert!(again.body.contains("is active already"), "{}", again.body);
}

/// A policy of two files with a list, as a directory.
fn directory_policy(folder: &TempDir, at: &str, name: &str, list: &str) {
    let main = format!(
        "policy: 1\nname: {name}\noptions: {{ disposition: allow, robots: {{ obey: false }} }}\nlists: {{ names: {{ kind: \
         hosts, file: lists/{list} }} }}\n"
    );
    folder.write(&format!("{at}/main.yaml"), main);
    let rules = format!("rules: [{{ id: {name}, forbid: {{ host: {{ in: names }} }} }}]\n");
    folder.write(&format!("{at}/{name}.yaml"), rules);
}

#[test]
fn a_directory_is_replaced_as_a_whole_with_its_lists() {
    let folder = TempDir::new();
    directory_policy(&folder, "policies", "one", "a.txt");
    folder.write("policies/lists/a.txt", "a.example\n");
    folder.write("policies/README", "not a part\n");
    directory_policy(&folder, "next", "two", "b/c.gz");
    let packed = pack(b"c.example\n");
    folder.write("next/lists/b/c.gz", &packed);
    let bench = RolloutBench::start(folder, "policies", "");
    let set = bench.command(&["shadow", "set", "next"]);
    assert_eq!(set.code, 0, "{}", set.stderr);
    let promoted = ok(&bench.promote());
    assert_eq!(
        promoted["written"],
        json!(["lists/b/c.gz", "main.yaml", "two.yaml"])
    );
    assert_eq!(
        fs::read(bench.file("policies/lists/b/c.gz")).unwrap(),
        packed
    );
    assert!(!bench.file("policies/one.yaml").exists());
    assert_eq!(bench.text("policies/README"), "not a part\n");
    assert_eq!(bench.reload()["result"], "unchanged");
    // The list that a changed file does not use any more stays, and does not prevent the way back.
    assert_eq!(bench.text("policies/lists/a.txt"), "a.example\n");
    let back = ok(&bench.roll_back());
    assert_eq!(back["policy"], "one");
    assert!(bench.file("policies/one.yaml").exists() && !bench.file("policies/two.yaml").exists());
    assert_eq!(bench.reload()["result"], "unchanged");
    assert_eq!(
        temporary_files(&bench.file("policies")),
        Vec::<PathBuf>::new()
    );
}

#[test]
fn files_that_are_deployed_already_are_adopted() {
    let folder = TempDir::new();
    for (at, name) in [("policies", "one"), ("next", "two")] {
        directory_policy(&folder, at, name, "a.txt");
        folder.write(&format!("{at}/lists/a.txt"), format!("{name}.example\n"));
    }
    let bench = RolloutBench::start(folder, "policies", "");
    assert_eq!(bench.command(&["shadow", "set", "next"]).code, 0);
    // Somebody has brought two of three changes from the repository, with files that the proxy may not write.
    for path in ["lists/a.txt", "two.yaml"] {
        let text = bench.text(&format!("next/{path}"));
        let file = bench.folder.write(&format!("policies/{path}"), text);
        fs::set_permissions(file, fs::Permissions::from_mode(0o444)).unwrap();
    }
    let promoted = ok(&bench.promote());
    assert_eq!(promoted["written"], json!(["main.yaml"]));
    assert_eq!(bench.get("policy")["name"], "two");
    assert!(!bench.file("policies/one.yaml").exists());
}

fn pack(text: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// The hidden files below a directory.
fn temporary_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(temporary_files(&path));
        } else if path.file_name().unwrap().to_str().unwrap().starts_with('.') {
            found.push(path);
        }
    }
    found
}
