//! `crawlgate test`: the selection of cases, their coverage, and the formats of the report.

use serde_json::{Value as Json, json};

use crate::support::command::crawlgate;
use crate::support::temp_dir::TempDir;

const POLICY: &str = r#"policy: 1
name: acme
options: { disposition: allow }
rules:
  - { id: cgi, forbid: { under: /cgi-bin } }
  - id: old
    when: { under: /old }
    then: disallow
    rules:
      - { id: keep, when: { path: /old/keep.html }, then: allow }
"#;

/// Formats a case as an item of a YAML list.
fn case(path: &str, expect: &str) -> String {
    format!("  - {{ url: \"http://a.example{path}\", expect: {expect} }}\n")
}

fn policy_with(cases: &str) -> String {
    format!("{POLICY}cases:\n{cases}")
}

#[test]
fn case_files_run_with_the_policy_that_they_name() {
    let folder = TempDir::new();
    folder.write("p.yaml", policy_with(&case("/", "allow")));
    folder.write(
        "cases/more.yaml",
        format!("policy: ../p.yaml\ncases:\n{}", case("/cgi-bin/x", "allow")),
    );
    folder.write(
        "cases/other.yaml",
        format!("policy: ../p.yaml\ncases:\n{}", case("/old/x", "reject")),
    );
    for (paths, code, counts) in [
        (&["p.yaml"][..], 0, "(p.yaml): 1 passed, 0 failed"),
        (&["cases/more.yaml"], 1, "(p.yaml): 0 passed, 1 failed"),
        (
            &["p.yaml", "cases/other.yaml"],
            0,
            "(p.yaml): 2 passed, 0 failed",
        ),
        (&["cases"], 1, "(p.yaml): 1 passed, 1 failed"),
        (&["."], 1, "p.yaml): 2 passed, 1 failed"),
    ] {
        let output = crawlgate(folder.path(), &[&["test"], paths].concat(), "");
        assert_eq!(output.code, code, "{paths:?} {output:?}");
        assert!(output.stdout.contains(counts), "{paths:?} {output:?}");
    }
    let output = crawlgate(folder.path(), "test cases", "");
    let failed = "cases/more.yaml:3:5: FAILED http://a.example/cgi-bin/x\n  expect: expected allow, found reject\n";
    assert!(output.stdout.starts_with(failed), "{}", output.stdout);
}

#[test]
fn a_directory_is_one_policy_or_several() {
    let folder = TempDir::new();
    folder.write("one/head.yaml", POLICY);
    folder.write("one/tests.yaml", format!("cases:\n{}", case("/", "allow")));
    folder.write(
        "one/cases/far.yaml",
        format!("policy: ..\ncases:\n{}", case("/old/x", "reject")),
    );
    folder.write("two/a.yaml", policy_with(&case("/", "allow")));
    folder.write(
        "two/b.yaml",
        policy_with(&case("/", "allow")).replace("acme", "other"),
    );
    folder.write("two/crawlgate.yaml", "listen: 127.0.0.1:0\n");
    let output = crawlgate(folder.path(), "test one", "");
    assert!(output.code == 0, "{output:?}");
    assert!(
        output.stdout.ends_with("(one): 2 passed, 0 failed\n"),
        "{output:?}"
    );
    let output = crawlgate(folder.path(), "test two", "");
    let ends: Vec<&str> = output
        .stdout
        .lines()
        .map(|line| line.split_once(' ').unwrap().1)
        .collect();
    assert_eq!(
        ends,
        [
            "(two/a.yaml): 1 passed, 0 failed",
            "(two/b.yaml): 1 passed, 0 failed"
        ]
    );
}

#[test]
fn cases_that_cannot_be_run_are_reported() {
    let folder = TempDir::new();
    folder.write("p.yaml", POLICY);
    folder.write("none.yaml", "policy: q.yaml\ncases: []\n");
    folder.write(
        "rule.yaml",
        "policy: p.yaml\ncases:\n  - { url: \"http://a/\", expect: allow, rule: cgy }\n",
    );
    folder.write(
        "typo.yaml",
        "policy: p.yaml\ncases:\n  - { url: \"http://a/\", expct: allow }\n",
    );
    folder.write("stray/p.yaml", POLICY);
    folder.write("stray/c.yaml", "policy: p.yaml\ncases: []\n");
    folder.write("stray/part.yaml", "cases: []\n");
    folder.write("empty/readme.txt", "");
    for (path, expected) in [
        (
            "none.yaml",
            "none.yaml:1:9: error: there is no such policy; found `q.yaml`",
        ),
        (
            "rule.yaml",
            "rule.yaml:3:5: error: the case expects a rule that does not exist; found `cgy`; did you mean `cgi`?",
        ),
        ("typo.yaml", "did you mean `expect`?"),
        ("stray", "stray/part.yaml: error: neither a policy"),
        ("empty", "the directory contains no policy and no case file"),
    ] {
        let output = crawlgate(folder.path(), &["test", path], "");
        assert_eq!(output.code, 2, "{path} {output:?}");
        assert_eq!(output.stdout.as_str(), "", "{path} {output:?}");
        assert!(output.stderr.contains(expected), "{path} {}", output.stderr);
    }
}

#[test]
fn coverage_names_the_branches_that_no_case_covers() {
    let folder = TempDir::new();
    folder.write(
        "p.yaml",
        policy_with(&(case("/", "allow") + &case("/old/x", "reject"))),
    );
    let output = crawlgate(folder.path(), "test p.yaml --coverage", "");
    let expected = "  cases cover 4 of 6 (66.6 %) of the branches, 1 of 3 (33.3 %) of the rules\n    \
                    p.yaml:5  cgi   never hit\n    p.yaml:10  keep  never applied\n";
    fn squeezed(text: &str) -> String {
        text.replace("p.yaml:5   cgi", "p.yaml:5  cgi")
    }
    assert!(output.code == 0, "{output:?}");
    assert!(squeezed(&output.stdout).ends_with(expected), "{output:?}");
    for (threshold, code) in [
        ("66", 0),
        ("66.6%", 0),
        ("67", 1),
        ("100", 1),
        ("101", 2),
        ("x", 2),
    ] {
        let output = crawlgate(
            folder.path(),
            &["test", "p.yaml", "--threshold", threshold],
            "",
        );
        assert_eq!(output.code, code, "{threshold} {output:?}");
    }
    let output = crawlgate(folder.path(), "test p.yaml --coverage --format json", "");
    let report: Json = serde_json::from_str(&output.stdout).unwrap();
    let coverage = &report["policies"][0]["coverage"];
    assert_eq!(
        coverage["branches"],
        json!({ "reached": 4, "of": 6, "percent": 66.6 })
    );
    let keep = json!({ "rule": "keep", "file": "p.yaml", "line": 10, "branches": { "applied": 0, "not applied": 1 } });
    assert_eq!(coverage["by_rule"][2], keep);
}

#[test]
fn annotations_name_the_line_of_each_failing_case() {
    let folder = TempDir::new();
    folder.write(
        "p.yaml",
        policy_with(&(case("/?a=1&b=<", "allow") + &case("/old/x", "allow"))),
    );
    let output = crawlgate(
        folder.path(),
        "test p.yaml --format github --threshold 90",
        "",
    );
    assert_eq!(output.code, 1, "{output:?}");
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{output:?}");
    assert!(
        lines[0].starts_with("::error file=p.yaml,line=13,")
            && lines[0].ends_with(
                "title=a case fails::http://a.example/old/x: expect: expected allow, found reject"
            ),
        "{output:?}"
    );
    assert_eq!(
        lines[1],
        "::error file=p.yaml,title=too few branches are covered::the cases cover 66.6 %25 of the branches; the threshold is \
         90 %25"
    );
    folder.write("p.yaml", policy_with(&case("/?a=1&b=<", "allow")));
    let output = crawlgate(folder.path(), "test p.yaml --format github", "");
    assert_eq!((output.code, &*output.stdout), (0, ""), "{output:?}");
}

#[test]
fn the_junit_report_has_a_test_for_each_case() {
    let folder = TempDir::new();
    folder.write(
        "p.yaml",
        policy_with(&(case("/?a=1&b=<", "allow") + &case("/old/x", "allow"))),
    );
    let output = crawlgate(
        folder.path(),
        "test p.yaml --format junit --threshold 90",
        "",
    );
    let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="crawlgate" tests="3" failures="2" errors="0">
  <testsuite name="acme (p.yaml)" tests="3" failures="2" errors="0" skipped="0">
    <properties>
      <property name="coverage.branches" value="66.6"/>
      <property name="coverage.rules" value="33.3"/>
    </properties>
    <testcase classname="p.yaml" name="p.yaml:12 http://a.example/?a=1&amp;b=%3C" file="p.yaml" line="12"/>
    <testcase classname="p.yaml" name="p.yaml:13 http://a.example/old/x" file="p.yaml" line="13">
      <failure message="expect: expected allow, found reject" type="case">expect: expected allow, found reject</failure>
    </testcase>
    <testcase classname="coverage" name="at least 90 % of the branches">
      <failure message="the cases cover 66.6 %" type="case">rule cgi: never hit
rule keep: never applied</failure>
    </testcase>
  </testsuite>
</testsuites>
"#;
    assert_eq!((output.code, output.stdout.as_str()), (1, expected));
}

/// A policy of which one assertion is proved, one refuted and one not decided.
const ASSERTIONS: &str = r#"policy: 1
name: acme
options: { disposition: allow }
rules:
  - { id: intra, forbid: { host: intra.example } }
  - { id: norm, forbid: { host: h.example, path: { prefix: /a, norm: true } } }
cases:
  - { assert: never, verdict: allow, under: "http://intra.example/" }
  - { assert: always, verdict: reject, under: "http://h.example/", crawler: news-bot }
  - { assert: never, verdict: allow, under: "http://h.example/a" }
  - { url: "http://a.example/", expect: allow }
"#;

#[test]
fn assertions_are_proved_refuted_or_not_decided() {
    let folder = TempDir::new();
    folder.write("p.yaml", ASSERTIONS);
    let output = crawlgate(folder.path(), "test p.yaml", "");
    assert_eq!(output.code, 1, "{output:?}");
    let refuted = "p.yaml:9:5: FAILED always reject under http://h.example/ for crawler news-bot\n  \
                   refuted by http://h.example/ with crawler news-bot\n";
    assert!(output.stdout.contains(refuted), "{}", output.stdout);
    let undecided =
        "p.yaml:10:5: NOT DECIDED never allow under http://h.example/a\n  not decided: ";
    assert!(output.stdout.contains(undecided), "{}", output.stdout);
    let counts = "(p.yaml): 2 passed, 1 failed, 1 not decided\n";
    assert!(output.stdout.ends_with(counts), "{}", output.stdout);

    let report: Json =
        serde_json::from_str(&crawlgate(folder.path(), "test p.yaml --format json", "").stdout)
            .unwrap();
    assert_eq!(report["undecided"], 1, "{report:#}");
    assert_eq!(report["policies"][0]["cases"].as_array().unwrap().len(), 1);
    let assertions = report["policies"][0]["assertions"].as_array().unwrap();
    let answers: Vec<&Json> = assertions.iter().map(|one| &one["answer"]).collect();
    assert_eq!(answers, ["proved", "refuted", "undecided"]);
    assert_eq!(assertions[1]["url"], "http://h.example/");
    assert_eq!(assertions[1]["facts"], json!({ "crawler": "news-bot" }));

    let junit = crawlgate(folder.path(), "test p.yaml --format junit", "").stdout;
    for part in [
        "tests=\"4\" failures=\"1\" errors=\"0\" skipped=\"1\"",
        "name=\"p.yaml:8 never allow under http://intra.example/\" file=\"p.yaml\" line=\"8\"/>",
        "<skipped message=\"not decided: ",
        "<failure message=\"refuted by http://h.example/ with crawler news-bot\"",
    ] {
        assert!(junit.contains(part), "{part}: {junit}");
    }
}

#[test]
fn only_a_strict_run_fails_if_an_assertion_is_not_decided() {
    let folder = TempDir::new();
    let refuted = ASSERTIONS.lines().position(|line| line.contains("always"));
    let kept = ASSERTIONS.lines().enumerate();
    let kept = kept.filter(|(at, _)| Some(*at) != refuted);
    let text: String = kept.map(|(_, line)| format!("{line}\n")).collect();
    folder.write("p.yaml", text);
    for (command, code) in [
        ("test p.yaml", 0),
        ("test p.yaml --strict", 1),
        ("check p.yaml", 0),
        ("check p.yaml --strict", 1),
    ] {
        let output = crawlgate(folder.path(), command, "");
        assert_eq!(output.code, code, "{command}: {output:?}");
    }
    let output = crawlgate(folder.path(), "check p.yaml", "");
    let counts = "assertions: 1 proved, 0 refuted by a URL, 1 not decided\n";
    assert!(output.stdout.contains(counts), "{output:?}");
    let warning = "p.yaml:9:5: warning: the assertion \"never allow under http://h.example/a\" is not decided: ";
    assert!(output.stderr.contains(warning), "{output:?}");
    let junit = crawlgate(folder.path(), "test p.yaml --strict --format junit", "").stdout;
    assert!(
        junit.contains("failures=\"1\" errors=\"0\" skipped=\"0\""),
        "{junit}"
    );
    let report = crawlgate(folder.path(), "check p.yaml --format json", "").stdout;
    let report: Json = serde_json::from_str(&report).unwrap();
    let counts = json!({ "proved": 1, "refuted": 0, "undecided": 1 });
    assert_eq!(report["assertions"], counts);
}

/// A host is asserted with every scheme and port, in its canonical form.
#[test]
fn an_assertion_about_a_host_finds_the_hole_of_another_scheme() {
    let folder = TempDir::new();
    let policy = |rule: &str| {
        format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow }}\nrules:\n  - {{ id: r, forbid: {rule} }}\ncases:\n  \
             - {{ assert: never, verdict: allow, host: Intra.Example. }}\n"
        )
    };
    folder.write(
        "hole.yaml",
        policy("{ url: { prefix: 'http://intra.example/' } }"),
    );
    folder.write("whole.yaml", policy("{ host: intra.example }"));
    let tested = crawlgate(folder.path(), "test hole.yaml", "");
    assert_eq!(tested.code, 1, "{tested:?}");
    assert!(
        tested.stdout.contains("never allow on host intra.example"),
        "{tested:?}"
    );
    let tested = crawlgate(folder.path(), "test whole.yaml", "");
    assert_eq!(tested.code, 0, "{tested:?}");
    let search = "find --verdict allow --host INTRA.example --policy";
    let found = crawlgate(folder.path(), &*format!("{search} hole.yaml"), "");
    assert_eq!(found.code, 0, "{found:?}");
    assert!(found.stdout.contains("://intra.example"), "{found:?}");
    let found = crawlgate(folder.path(), &*format!("{search} whole.yaml"), "");
    assert_eq!(found.code, 1, "{found:?}");
    assert!(found.stdout.contains("proved"), "{found:?}");
    let invalid = crawlgate(
        folder.path(),
        "find --verdict allow --host a/b --policy whole.yaml",
        "",
    );
    assert_eq!(invalid.code, 2, "{invalid:?}");
    folder.write(
        "named.yaml",
        policy("{ host: intra.example }").replace("id: r", "id: no-intra"),
    );
    let unknown = crawlgate(
        folder.path(),
        "find --verdict reject --rule no-inta --policy named.yaml",
        "",
    );
    assert_eq!(unknown.code, 2, "{unknown:?}");
    let part = "--rule no-inta: the policy has no rule with this id; did you mean `no-intra`?";
    assert!(unknown.stderr.contains(part), "{unknown:?}");
}

#[test]
fn assertions_of_case_files_run_with_their_policy() {
    let folder = TempDir::new();
    folder.write("p.yaml", POLICY);
    folder.write(
        "more.yaml",
        "policy: p.yaml\ncases:\n  - { assert: never, verdict: allow, under: \"http://a.example/cgi-bin/\" }\n",
    );
    let output = crawlgate(folder.path(), "test more.yaml", "");
    assert!(
        output.code == 0 && output.stdout.ends_with("(p.yaml): 1 passed, 0 failed\n"),
        "{output:?}"
    );
}
