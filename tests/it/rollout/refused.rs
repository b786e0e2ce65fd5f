//! Changes that the proxy refuses, after which everything is as before.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::{Value, json};

use crate::support::proxy::{CONFIG, TestProxy};
use crate::support::temp_dir::TempDir;

use super::{RolloutBench, ok, policy, temporary_files};

#[track_caller]
fn assert_refused(bench: &RolloutBench, answer: &crate::support::client::Response, word: &str) {
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(answer.body.contains(word), "{}", answer.body);
    assert_eq!(bench.get("policy")["name"], "one");
    assert_eq!(temporary_files(&bench.file("policies")).len(), 0);
    assert!(!bench.file("store/policies/replacement.json").exists());
}

#[test]
fn a_file_that_has_changed_is_not_lost() {
    let bench = RolloutBench::new();
    ok(&bench.set(&policy("two")));
    let edited = policy("one") + "# edited\n";
    bench.folder.write("policies/policy.yaml", &edited);
    assert_refused(&bench, &bench.promote(), "has changed since");
    assert_eq!(bench.text("policies/policy.yaml"), edited);
    fs::remove_file(bench.file("policies/policy.yaml")).unwrap();
    assert_refused(&bench, &bench.promote(), "has changed since");
    bench.folder.write("policies/policy.yaml", "policy: 1\n");
    assert_eq!(bench.reload()["status"], 422);
    assert_refused(&bench, &bench.promote(), "has changed since");
    bench.folder.write("policies/policy.yaml", &edited);
    assert_eq!(bench.reload()["result"], "loaded");
    assert_eq!(ok(&bench.promote())["policy"], "two");
}

#[test]
fn a_file_that_is_read_only_or_a_link_is_not_replaced() {
    let bench = RolloutBench::new();
    ok(&bench.set(&policy("two")));
    let file = bench.file("policies/policy.yaml");
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    assert_refused(&bench, &bench.promote(), "read-only");
    assert_eq!(bench.text("policies/policy.yaml"), policy("one"));
    let refused = bench.command(&["shadow", "promote", "--reason", "x"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("crawlgate reload"), "{refused:?}");
    // The file is moved out of the directory, and linked.
    let other = bench.folder.write("elsewhere.yaml", policy("one"));
    fs::remove_file(&file).unwrap();
    symlink(&other, &file).unwrap();
    assert_refused(&bench, &bench.promote(), "symbolic link");
    assert_eq!(bench.text("elsewhere.yaml"), policy("one"));
    fs::remove_file(&file).unwrap();
    bench.folder.write("policies/policy.yaml", policy("one"));
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    ok(&bench.promote());
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn a_shadow_policy_of_the_other_form_is_set_with_a_warning() {
    let bench = RolloutBench::new();
    bench.folder.write("next/policy.yaml", policy("two"));
    let set = bench.command(&["shadow", "set", "next"]);
    assert_eq!(set.code, 0, "{set:?}");
    assert!(
        set.stderr.contains("cannot be promoted") && set.stderr.contains("is a directory"),
        "{set:?}"
    );
    assert_refused(&bench, &bench.promote(), "is a directory");
    let set = ok(&bench.set(&policy("two")));
    assert_eq!(set["problems"], json!([]));
}

fn with_list(name: &str, list: &str) -> String {
    let lists = format!(
        "lists: {{ l: {{ kind: hosts, file: '{list}' }} }}\nrules:\n  - {{ id: l, forbid: {{ host: {{ in: l }} }} }}\n"
    );
    policy(name).replace("rules:\n", &lists)
}

#[test]
fn only_files_of_the_policy_are_written() {
    let bench = RolloutBench::new();
    let set = |list: &str, text: &str| {
        let files = json!({ "next.yaml": with_list("two", list), list: text });
        let body = json!({ "policy": "next.yaml", "files": files });
        bench.ask("PUT /api/v1/shadow/policy", &body)
    };
    // A file that is there, such as the configuration, is not replaced by a list.
    bench.folder.write("policies/crawlgate.yaml", "admin: {}\n");
    ok(&set("crawlgate.yaml", "a.example\n"));
    assert_refused(&bench, &bench.promote(), "not part of a policy");
    assert_eq!(bench.text("policies/crawlgate.yaml"), "admin: {}\n");
    // A directory that leads elsewhere.
    bench.folder.write("outside/keep", "");
    symlink(bench.file("outside"), bench.file("policies/lists")).unwrap();
    ok(&set("lists/a.txt", "a.example\n"));
    assert_refused(&bench, &bench.promote(), "symbolic link");
    assert!(!bench.file("outside/a.txt").exists());
    fs::remove_file(bench.file("policies/lists")).unwrap();
    ok(&bench.promote());
    assert_eq!(bench.text("policies/lists/a.txt"), "a.example\n");
    // A list of the name of the policy's file.
    let taken = set("policy.yaml", "a.example\n");
    assert_eq!(taken.status, 200, "{}", taken.body);
    assert_eq!(bench.promote().status, 409);
}

#[test]
fn paths_in_a_request_lead_nowhere() {
    let bench = RolloutBench::new();
    let outside = bench.folder.write("x", "untouched\n");
    symlink(&outside, bench.file("policies/link")).unwrap();
    for path in [
        "../x",
        "a/../../x",
        "/etc/passwd",
        "./x",
        "a//x",
        "a\\x",
        "a\0x",
        "",
        "C:x",
        &outside.display().to_string(),
    ] {
        let body = json!({ "policy": "p.yaml", "files": { "p.yaml": policy("two"), path: "a\n" } });
        let answer = bench.ask("PUT /api/v1/shadow/policy", &body);
        assert_eq!(answer.status, 400, "{path:?}: {}", answer.body);
        let body = json!({ "policy": path, "files": { path: policy("two") } });
        let answer = bench.ask("PUT /api/v1/shadow/policy", &body);
        assert_eq!(answer.status, 400, "{path:?}: {}", answer.body);
        // The policy itself may name it, and gets nothing.
        let list = path.replace('\0', "\\0");
        let body = json!({ "policy": "p.yaml", "files": { "p.yaml": with_list("two", &list) } });
        let answer = bench.ask("PUT /api/v1/shadow/policy", &body);
        assert_eq!(answer.status, 422, "{path:?}: {}", answer.body);
    }
    // Files of the proxy's machine are not read, and unused files are not accepted.
    for list in ["policy.yaml", "link", "missing.txt"] {
        let body = json!({ "policy": "p.yaml", "files": { "p.yaml": with_list("two", list) } });
        let answer = bench.ask("PUT /api/v1/shadow/policy", &body);
        assert_eq!(answer.status, 422, "{list}: {}", answer.body);
    }
    let body = json!({ "policy": "p.yaml", "files": { "p.yaml": policy("two"), "more.txt": "" } });
    let answer = bench.ask("PUT /api/v1/shadow/policy", &body);
    assert_eq!(answer.status, 422, "{}", answer.body);
    assert!(
        answer.body.contains("not part of the policy"),
        "{}",
        answer.body
    );
    assert_eq!(bench.text("x"), "untouched\n");
    assert_eq!(bench.get("shadow")["shadow_policy"], Value::Null);
    for revision in ["../..", "/etc", "", "..", "a/b", "0000000g"] {
        let body = json!({ "reason": "x", "revision": revision });
        let answer = bench.ask("POST /api/v1/policy/rollback", &body);
        assert_refused(&bench, &answer, "are not kept");
    }
}

#[test]
fn requests_are_checked() {
    let bench = RolloutBench::new();
    for (line, body, status) in [
        ("PUT /api/v1/shadow/policy", json!({}), 400),
        ("PUT /api/v1/shadow/policy", json!({ "files": {} }), 400),
        (
            "PUT /api/v1/shadow/policy",
            json!({ "files": { "p.yaml": 1 } }),
            400,
        ),
        (
            "PUT /api/v1/shadow/policy",
            json!({ "files": { "p.yaml": { "base64": "?" } } }),
            400,
        ),
        (
            "PUT /api/v1/shadow/policy",
            json!({ "policy": "q", "files": { "p.yaml": "" } }),
            400,
        ),
        (
            "PUT /api/v1/shadow/policy",
            json!({ "files": { "p.yaml": policy("two") }, "reason": "a\nb" }),
            400,
        ),
        (
            "PUT /api/v1/shadow/policy",
            json!({ "files": { "p.yaml": "policy: 1\n" } }),
            422,
        ),
        ("POST /api/v1/shadow/promote", json!({}), 400),
        ("POST /api/v1/shadow/promote", json!({ "reason": " " }), 400),
        (
            "POST /api/v1/shadow/promote",
            json!({ "reason": "none is set" }),
            409,
        ),
        (
            "POST /api/v1/policy/rollback",
            json!({ "reason": "none before" }),
            409,
        ),
        (
            "POST /api/v1/policy/rollback",
            json!({ "reason": "x", "more": 1 }),
            400,
        ),
        ("DELETE /api/v1/shadow/policy?why=x", Value::Null, 400),
        ("DELETE /api/v1/shadow/policy", Value::Null, 409),
    ] {
        let answer = bench.ask(line, &body);
        assert_eq!(answer.status, status, "{line} {body}: {}", answer.body);
    }
    let failing = policy("two") + "cases: [{ url: 'http://a.test/two', expect: allow }]\n";
    let answer = bench.set(&failing);
    assert_eq!(answer.status, 422, "{}", answer.body);
    bench.folder.write("failing.yaml", failing);
    let output = bench.command(&["shadow", "set", "failing.yaml"]);
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.stderr.contains("failing.yaml"), "{output:?}");
}

#[test]
fn without_a_token_nothing_is_changed() {
    let gate = TestProxy::start(CONFIG, &policy("one"));
    for line in [
        "PUT /api/v1/shadow/policy",
        "DELETE /api/v1/shadow/policy",
        "POST /api/v1/shadow/promote",
        "POST /api/v1/policy/rollback",
    ] {
        let answer = gate.admin(line);
        assert_eq!(answer.status, 403, "{line}: {}", answer.body);
        assert!(
            answer.body.contains("admin.token_file"),
            "{line}: {}",
            answer.body
        );
    }
    assert_eq!(gate.admin("GET /api/v1/policy/history").status, 200);
    let folder = TempDir::new();
    folder.write("next.yaml", policy("two"));
    let output = crate::support::command::crawlgate(
        folder.path(),
        &[
            "shadow",
            "set",
            "next.yaml",
            "--admin",
            &gate.admin.to_string(),
        ],
        "",
    );
    assert_eq!(output.code, 3, "{output:?}");
    assert!(output.stderr.contains("admin.token_file"), "{output:?}");
}
