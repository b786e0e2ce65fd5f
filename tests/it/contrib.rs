//! The scripts of `docs/contrib`, in a git repository.

use std::path::Path;
use std::process::Command;

use crate::support::temp_dir::TempDir;

const POLICY: &str = "policy: 1\nname: ours\noptions: { disposition: disallow }\nrules:\n\
                      \x20 - { id: ours, when: { domain: a.example }, then: allow }\n\
                      cases:\n  - { url: 'http://a.example/', expect: allow }\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A repository whose first commit, tagged `base`, has the policy.
fn repository() -> TempDir {
    let folder = TempDir::new();
    folder.write("policy.yaml", POLICY);
    for arguments in [
        &["init", "-q"][..],
        &["add", "policy.yaml"],
        &["commit", "-q", "-m", "first"],
        &["tag", "base"],
    ] {
        git(&folder, arguments);
    }
    folder
}

fn git(folder: &TempDir, arguments: &[&str]) {
    let status = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
        .args(arguments)
        .current_dir(folder.path())
        .status()
        .unwrap();
    assert!(status.success(), "git {arguments:?}");
}

/// Runs `check-policy policy.yaml base` and returns the exit code, standard output and the report.
fn check(folder: &TempDir, variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    check_in(folder.path(), &["policy.yaml", "base"], variables)
}

fn check_in(
    folder: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> (Option<i32>, String, String) {
    let binary = Path::new(env!("CARGO_BIN_EXE_crawlgate"));
    let path = format!(
        "{}:{}",
        binary.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let report = folder.join("report.md");
    let _ = std::fs::remove_file(&report);
    let output = Command::new(root().join("docs/contrib/check-policy"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("GITHUB_ACTIONS")
        .env("PATH", path)
        .env("REPORT", &report)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(),
        std::fs::read_to_string(report).unwrap_or_default(),
    )
}

#[test]
fn a_changed_policy_is_reported_and_new_access_can_be_refused() {
    let folder = repository();
    let (code, output, report) = check(&folder, &[]);
    assert_eq!(code, Some(0), "{output}");
    assert!(report.contains("proved equivalent"), "{report}");

    folder.write(
        "policy.yaml",
        POLICY.replace("domain: a.example", "domain: [a.example, b.example]"),
    );
    let (code, output, report) = check(&folder, &[]);
    assert_eq!(code, Some(0), "{output}");
    assert!(report.contains("reject -> allow"), "{report}");
    assert_eq!(check(&folder, &[("FAIL_ON", "new-refusal")]).0, Some(0));
    let (code, output, _) = check(&folder, &[("FAIL_ON", "new-refusal new-access")]);
    assert_eq!(code, Some(1), "{output}");
}

#[test]
fn a_broken_policy_fails_with_annotations_in_a_workflow() {
    let folder = repository();
    folder.write("policy.yaml", POLICY.replace("then: allow", "then: alow"));
    let (code, output, _) = check(&folder, &[("GITHUB_ACTIONS", "true")]);
    assert_eq!(code, Some(2), "{output}");
    let start = "::error file=policy.yaml,line=5,col=52,title=error in a policy::rule ours: ";
    assert!(output.starts_with(start), "{output}");
    assert!(output.contains("did you mean `allow`?"), "{output}");
}

#[test]
fn a_policy_below_the_root_is_compared_from_any_directory() {
    let folder = repository();
    std::fs::create_dir(folder.path().join("crawl")).unwrap();
    std::fs::rename(
        folder.path().join("policy.yaml"),
        folder.path().join("crawl/policy.yaml"),
    )
    .unwrap();
    for arguments in [
        &["add", "-A"][..],
        &["commit", "-q", "-m", "moved"],
        &["tag", "-f", "base"],
    ] {
        git(&folder, arguments);
    }
    let wider = POLICY.replace("domain: a.example", "domain: [a.example, b.example]");
    folder.write("crawl/policy.yaml", wider);
    let new_access = [("FAIL_ON", "new-access")];
    let below = folder.path().join("crawl");
    let (code, output, report) = check_in(&below, &["policy.yaml", "base"], &new_access);
    assert_eq!(code, Some(1), "{output}");
    assert!(report.contains("reject -> allow"), "{report}");
    let (code, ..) = check_in(folder.path(), &["crawl/policy.yaml", "base"], &new_access);
    assert_eq!(code, Some(1));
}

/// A comparison that is impossible fails if changes are to fail, and is only reported otherwise.
#[test]
fn an_impossible_comparison_does_not_pass_for_one() {
    let folder = repository();
    let arguments = ["policy.yaml", "no-such-commit"];
    let (code, output, _) = check_in(folder.path(), &arguments, &[]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("no commit no-such-commit"), "{output}");
    let (code, ..) = check_in(folder.path(), &arguments, &[("FAIL_ON", "new-access")]);
    assert_eq!(code, Some(1));
    folder.write("new.yaml", POLICY);
    let (code, ..) = check_in(
        folder.path(),
        &["new.yaml", "base"],
        &[("FAIL_ON", "new-access")],
    );
    assert_eq!(code, Some(1));
}

#[test]
fn a_failing_case_fails() {
    let folder = repository();
    folder.write(
        "policy.yaml",
        POLICY.replace("expect: allow", "expect: reject"),
    );
    assert!(check(&folder, &[]).0 != Some(0));
}
