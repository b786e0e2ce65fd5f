//! A crash while the files of the policy are replaced.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::command::crawlgate;
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;

use super::{RolloutBench, directory_policy, ok, policy, temporary_files};

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
fn a_mixture_that_cannot_be_repaired_prevents_the_start() {
    let (bench, one, two) = promoted_directory();
    directory_policy(&bench.folder, "policies", "one", "a.txt");
    interrupt(&bench, &one, &two);
    let missing = format!("store/policies/{}", one.as_str().unwrap());
    fs::remove_dir_all(bench.file(&missing)).unwrap();
    let RolloutBench { folder, gate } = bench;
    drop(gate);
    let output = crawlgate(folder.path(), "run --config crawlgate.yaml", "");
    assert_eq!(output.code, 3, "{output:?}");
    assert!(output.stderr.contains("replacement.json"), "{output:?}");
    assert!(output.stderr.contains("are missing"), "{output:?}");
}

#[test]
fn a_second_process_leaves_the_files_of_the_first_alone() {
    let (bench, one, two) = promoted_directory();
    directory_policy(&bench.folder, "policies", "one", "a.txt");
    interrupt(&bench, &one, &two);
    let output = crawlgate(bench.folder.path(), "run --config crawlgate.yaml", "");
    assert_eq!(output.code, 3, "{output:?}");
    assert!(
        output.stderr.contains("another crawlgate uses"),
        "{output:?}"
    );
    assert!(bench.file("policies/two.yaml").exists());
    assert!(bench.file("store/policies/replacement.json").exists());
}

#[test]
fn files_that_are_whole_need_no_copy_of_the_other_policy() {
    let mut bench = RolloutBench::new();
    let revision = bench.get("policy")["revision"].clone();
    let missing = json!("00000000");
    for (previous, next) in [(&missing, &revision), (&revision, &missing)] {
        interrupt(&bench, previous, next);
        bench = bench.restart("policies/policy.yaml");
        assert_eq!(bench.get("policy")["revision"], revision);
        assert!(!bench.file("store/policies/replacement.json").exists());
    }
}

#[test]
fn a_crash_after_the_files_were_replaced_loses_no_record() {
    let (bench, one, two) = promoted_directory();
    // As it was at the crash: no activation of `two` in the history, and it is still the shadow policy that was set.
    let path = bench.file("store/policies/history.json");
    let mut history: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let activation = history["activations"].as_array_mut().unwrap().pop();
    let activation = activation.unwrap();
    history["shadow"] = json!({
        "name": "two", "revision": two, "at_ms": 1, "author": { "user": null, "address": null }, "reason": null,
    });
    fs::write(&path, history.to_string()).unwrap();
    let record = json!({
        "previous": one, "next": two, "activation": activation, "cleared_shadow": two,
    });
    bench
        .folder
        .write("store/policies/replacement.json", record.to_string());
    // And a file that was staged.
    bench
        .folder
        .write("policies/lists/.a.txt.crawlgate-new", "");
    let bench = bench.restart("policies");
    assert_eq!(bench.get("status")["shadow_policy"], Value::Null);
    let entry = bench.get("policy/history")["policies"][0].clone();
    assert_eq!(entry["revision"], two);
    assert_eq!(
        (&entry["how"], &entry["user"], &entry["reason"]),
        (&json!("promote"), &json!("ann"), &json!("a day in shadow"))
    );
    assert!(!bench.file("store/policies/replacement.json").exists());
    assert_eq!(temporary_files(&bench.file("policies")).len(), 0);
}

#[test]
fn a_crash_before_the_files_were_replaced_leaves_nothing_behind() {
    let folder = TempDir::new();
    directory_policy(&folder, "policies", "one", "a.txt");
    folder.write("policies/lists/a.txt", "a.example\n");
    directory_policy(&folder, "next", "two", "b/c.txt");
    folder.write("next/lists/b/c.txt", "c.example\n");
    let bench = RolloutBench::start(folder, "policies", "");
    assert_eq!(bench.command(&["shadow", "set", "next"]).code, 0);
    let one = bench.get("policy")["revision"].clone();
    let two = bench.get("status")["shadow_policy"]["revision"].clone();
    interrupt(&bench, &one, &two);
    for staged in [".two.yaml.crawlgate-new", "lists/b/.c.txt.crawlgate-new"] {
        bench.folder.write(&format!("policies/{staged}"), "half");
    }
    let bench = bench.restart("policies");
    assert_eq!(bench.get("policy")["revision"], one);
    assert_eq!(temporary_files(&bench.file("policies")).len(), 0);
    assert!(!bench.file("policies/lists/b").exists());
    assert!(bench.file("policies/lists/a.txt").exists());
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

/// A proxy that has promoted `two`, which the store could not record.
fn unrecorded_promotion() -> RolloutBench {
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
    assert!(bench.file("store/policies/replacement.json").exists());
    fs::remove_dir(&history).unwrap();
    bench
}

#[test]
fn a_promotion_that_the_store_cannot_record_is_recorded_by_the_next_reload() {
    let bench = unrecorded_promotion();
    assert_eq!(bench.reload()["result"], "unchanged");
    assert!(!bench.file("store/policies/replacement.json").exists());
    assert_eq!(bench.get("status")["shadow_policy"]["name"], "configured");
    let (name, how, reason) = bench.history().swap_remove(0);
    assert_eq!(
        (&*name, &*how, &*reason),
        ("two", "promote", "a day in shadow")
    );
}

#[test]
fn a_promotion_that_the_store_cannot_record_is_recorded_by_the_next_change() {
    let bench = unrecorded_promotion();
    assert_eq!(ok(&bench.roll_back())["policy"], "one");
    let history = bench.history();
    let entries = history.iter().map(|(name, how, _)| (&**name, &**how));
    let entries: Vec<_> = entries.collect();
    assert_eq!(
        entries,
        [("one", "rollback"), ("two", "promote"), ("one", "start")]
    );
    assert_eq!(bench.get("status")["shadow_policy"]["name"], "configured");
}

#[test]
fn a_store_that_hangs_holds_up_no_reload() {
    let bench = RolloutBench::new();
    let one = bench.get("policy")["revision"].clone();
    bench.folder.write("policies/policy.yaml", policy("two"));
    assert_eq!(bench.reload()["result"], "loaded");
    // The disk does not answer when the earlier policy is read.
    let copy = format!("store/policies/{}/policy.json", one.as_str().unwrap());
    fs::remove_file(bench.file(&copy)).unwrap();
    let made = Command::new("mkfifo").arg(bench.file(&copy)).status();
    assert!(made.unwrap().success());
    let body = json!({ "reason": "x", "revision": one });
    let _client = bench.begin("POST /api/v1/policy/rollback", &body);
    // Returns when the proxy reads it.
    let disk = fs::OpenOptions::new().write(true).open(bench.file(&copy));
    let disk = disk.unwrap();
    let other = bench.ask("DELETE /api/v1/shadow/policy", &Value::Null);
    assert_eq!(other.status, 409, "{}", other.body);
    assert!(other.body.contains("another change"), "{}", other.body);
    bench.folder.write("policies/policy.yaml", policy("three"));
    assert_eq!(bench.reload()["result"], "loaded");
    assert_eq!(bench.get("policy")["name"], "three");
    // When the disk answers again, the change ends, and the next one is made.
    drop(disk);
    fs::remove_file(bench.file(&copy)).unwrap();
    wait_until("the next change is made", || {
        bench.set(&policy("four")).status == 200
    });
    assert_eq!(bench.text("policies/policy.yaml"), policy("three"));
}
