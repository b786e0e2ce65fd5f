//! A crash while the files of the policy are replaced.

use std::fs;

use serde_json::{Value, json};

use crate::support::command::crawlgate;
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;

use super::{RolloutBench, directory_policy, ok, policy};

/// Writes the record of a replacement that has begun.
fn interrupt(bench: &RolloutBench, previous: &Value, next: &Value) {
    let record = json!({ "previous": previous, "next": next });
    bench
        .folder
        .write("store/policies/replacement.json", record.to_string());
}

/// A proxy whose policy is a directory, promoted from `one` to `two`; the revisions of both.
fn promoted_directory() -> (RolloutBench, Value, Value) {
    let folder = TempDir::new();
    for (at, name) in [("policies", "one"), ("next", "two")] {
        directory_policy(&folder, at, name, "a.txt");
        folder.write(&format!("{at}/lists/a.txt"), format!("{name}.example\n"));
    }
    let bench = RolloutBench::start(folder, "policies", "");
    let one = bench.get("policy")["revision"].clone();
    assert_eq!(bench.command(&["shadow", "set", "next"]).code, 0);
    let two = ok(&bench.promote())["revision"].clone();
    (bench, one, two)
}

#[test]
fn a_mixture_is_never_in_force() {
    let (bench, one, two) = promoted_directory();
    // The crash comes after the list and one of the other files.
    directory_policy(&bench.folder, "policies", "one", "a.txt");
    interrupt(&bench, &one, &two);
    assert!(bench.file("policies/two.yaml").exists());
    let bench = bench.restart("policies");
    assert_eq!(bench.get("policy")["revision"], one);
    assert_eq!(bench.text("policies/lists/a.txt"), "one.example\n");
    assert!(!bench.file("policies/two.yaml").exists());
    assert!(!bench.file("store/policies/replacement.json").exists());
    wait_until("it is reported", || {
        bench
            .gate
            .stderr()
            .contains("was interrupted: the files of")
    });
}

#[test]
fn whole_policies_and_edited_files_stay_as_they_are() {
    let (bench, one, two) = promoted_directory();
    interrupt(&bench, &one, &two);
    let bench = bench.restart("policies");
    assert_eq!(bench.get("policy")["revision"], two);
    // Somebody has repaired the files by hand.
    interrupt(&bench, &one, &two);
    bench
        .folder
        .write("policies/lists/a.txt", "three.example\n");
    let bench = bench.restart("policies");
    assert_eq!(bench.text("policies/lists/a.txt"), "three.example\n");
    assert_eq!(bench.get("policy")["name"], "two");
    assert!(!bench.file("store/policies/replacement.json").exists());
}

#[test]
fn a_replacement_that_cannot_be_finished_prevents_the_start() {
    let bench = RolloutBench::new();
    let revision = bench.get("policy")["revision"].clone();
    interrupt(&bench, &json!("00000000"), &revision);
    let RolloutBench { folder, gate } = bench;
    drop(gate);
    let output = crawlgate(folder.path(), "run --config crawlgate.yaml", "");
    assert_eq!(output.code, 3, "{output:?}");
    assert!(output.stderr.contains("replacement.json"), "{output:?}");
}

#[test]
fn a_history_that_cannot_be_read_is_no_obstacle_for_the_crawl() {
    let bench = RolloutBench::new();
    bench.folder.write("store/policies/history.json", "{");
    let bench = bench.restart("policies/policy.yaml");
    assert_eq!(bench.get("policy")["name"], "one");
    let answer = bench.set(&policy("two"));
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(answer.body.contains("history.json"), "{}", answer.body);
    // Nor are copies that somebody has changed: they are not used.
    fs::remove_file(bench.file("store/policies/history.json")).unwrap();
    let bench = bench.restart("policies/policy.yaml");
    ok(&bench.set(&policy("two")));
    let revision = bench.get("status")["shadow_policy"]["revision"].clone();
    let kept = format!(
        "store/policies/{}/files/policy.yaml",
        revision.as_str().unwrap()
    );
    bench.folder.write(&kept, policy("evil"));
    let bench = bench.restart("policies/policy.yaml");
    assert_eq!(bench.get("status")["shadow_policy"], Value::Null);
    wait_until("it is reported", || {
        bench.gate.stderr().contains("have been changed")
    });
}

#[test]
fn a_promotion_that_the_store_cannot_record_is_answered_as_made() {
    let bench = RolloutBench::with_configured_shadow();
    ok(&bench.set(&policy("two")));
    let history = bench.file("store/policies/history.json");
    fs::remove_file(&history).unwrap();
    // A file cannot be renamed to the name of a directory.
    fs::create_dir(&history).unwrap();
    let answer = bench.promote();
    ok(&answer);
    assert!(
        answer.body.contains("the shadow policy is not cleared"),
        "{}",
        answer.body
    );
    assert_eq!(bench.get("status")["policy"]["name"], "two");
}
