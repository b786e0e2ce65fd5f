//! `crawlgate diff`: the changed decisions by rule and by host.

use serde_json::{Value as Json, json};

use crate::support::command::{CommandOutput, crawlgate};
use crate::support::temp_dir::TempDir;

const OLD: &str = r#"policy: 1
name: acme
options: { disposition: allow }
rules:
  - { id: cgi, forbid: { under: /cgi-bin } }
  - { id: slow, when: { host: slow.example }, set: { politeness: { delay: 2s } } }
  - { id: old, when: { under: /old }, then: disallow }
cases:
  - { url: "http://a.example/cgi-bin/x", expect: reject }
  - { url: "http://a.example/", expect: allow }
"#;

const NEW: &str = r#"policy: 1
name: acme
options: { disposition: allow }
rules:
  - { id: archives, forbid: { ext: [zip, tar] } }
  - { id: cgi, forbid: { under: /cgi-bin }, reject: gone }
  - { id: slow, when: { host: slow.example }, set: { politeness: { delay: 5s } } }
  - { id: renamed, when: { url_prefix: "http://c.example/old/" }, then: disallow }
"#;

fn folder() -> TempDir {
    let folder = TempDir::new();
    folder.write("old.yaml", OLD);
    folder.write("new.yaml", NEW);
    folder
}

fn diff(arguments: &[&str], input: &str) -> CommandOutput {
    crawlgate(
        folder().path(),
        &[&["diff", "old.yaml", "new.yaml"], arguments].concat(),
        input,
    )
}

const URLS: &str = "http://a.example/x.zip\nhttp://b.example/y.ZIP\nhttp://a.example/cgi-bin/x\n\
                    http://slow.example/\nhttp://a.example/old/\nhttp://c.example/old/\nhttp://a.example/\n";

#[test]
fn changes_are_reported_by_rule_and_host() {
    let output = diff(&["--urls"], URLS);
    let expected = "\
7 URLs: 6 decisions change

allow -> reject  2
        2  (default) -> archives
             http://a.example/x.zip
             http://b.example/y.ZIP

reject -> allow  1
        1  old -> (default)
             http://a.example/old/

refused otherwise  1
        1  by cgi
           status: 451 -> 410
           intent: deny -> gone
             http://a.example/cgi-bin/x

allowed with other options  1
        1  by (default)
           options.politeness.delay: 2s -> 5s
             http://slow.example/

the same by another rule  1
        1  old -> renamed
             http://c.example/old/

Hosts
        3  a.example     allow -> reject 1, reject -> allow 1, refused otherwise 1
        1  b.example     allow -> reject 1
        1  c.example     the same by another rule 1
        1  slow.example  allowed with other options 1
";
    assert_eq!(output.code, 1, "{output:?}");
    assert_eq!(output.stderr.lines().count(), 2, "the policies: {output:?}");
    assert!(output.stdout.starts_with("old  acme@"), "{output:?}");
    assert!(output.stdout.contains("  (new.yaml)\n"), "{output:?}");
    assert!(output.stdout.ends_with(expected), "{}", output.stdout);
}

#[test]
fn the_same_policy_has_no_differences() {
    let folder = folder();
    let output = crawlgate(folder.path(), "diff old.yaml old.yaml --urls", URLS);
    assert!(output.code == 0, "{output:?}");
    assert!(
        output.stdout.ends_with("7 URLs: no decision changes\n"),
        "{output:?}"
    );
    let output = crawlgate(folder.path(), "diff old.yaml old.yaml", "");
    assert!(output.code == 0, "{output:?}");
    assert!(
        output.stdout.ends_with(
            "2 cases: no decision changes\nall URLs: proved equivalent, no decision changes\n"
        ),
        "{output:?}"
    );
}

#[test]
fn without_urls_the_cases_and_the_structure_are_compared() {
    let output = diff(&[], "");
    let expected = "\
2 cases: 1 decision changes
all URLs: decisions change

Rules
  added    archives  forbid path ext zip, tar
  changed  cgi       does: (nothing)
                     -> reject gone
  changed  slow      does: politeness.delay 2s
                     -> politeness.delay 5s
  added    renamed   when url prefix http://c.example/old/: disposition disallow
  removed  old       when path under /old: disposition disallow

refused otherwise  1
";
    let all_urls = "
All URLs
  allow -> reject
           (default) -> archives
             http://a/.tar
             http://b/.tar
             http://c/.tar
  reject -> allow
           old -> (default)
             http://a/old
             http://b/old
             http://c/old
  refused otherwise
           by cgi
           status: 451 -> 410
           intent: deny -> gone
             http://a/cgi-bin
             http://b/cgi-bin
             http://c/cgi-bin
  allowed with other options
           by (default)
           options.politeness.delay: 2s -> 5s
             http://slow.example/
  the same by another rule
           old -> renamed
             http://c.example/old/
";
    assert_eq!(output.code, 1);
    assert!(output.stdout.contains(expected), "{}", output.stdout);
    assert!(output.stdout.ends_with(all_urls), "{}", output.stdout);
    let all: Json = serde_json::from_str(&diff(&["--format", "json"], "").stdout).unwrap();
    assert_eq!((&all["urls"], &all["changed"]), (&json!(2), &json!(1)));
    assert_eq!(all["structure"]["rules"][4]["change"], "removed");
    assert_eq!(
        all["structure"]["rules"][1]["parts"],
        json!([{ "part": "does", "old": "", "new": "reject gone" }])
    );
    assert_eq!(
        all["changes"][0]["new"],
        json!({ "verdict": "reject", "reason": "rule", "rule": "cgi", "status": 410 })
    );
    let exact = &all["exact"];
    assert_eq!(
        (&exact["answer"], &exact["undecided"]),
        (&json!("refuted"), &json!([]))
    );
    let options = json!({
        "change": "allowed with other options", "old_rule": null, "new_rule": null,
        "differences": [{ "key": "options.politeness.delay", "old": "2s", "new": "5s" }],
        "examples": [{ "url": "http://slow.example/", "facts": {} }],
    });
    assert_eq!(exact["by_rule"][3], options);
}

/// Each row has two lists of rules, the answer, and whether new access and new refusals are ruled
/// out.
#[test]
fn all_urls_are_compared() {
    for (old, new, answer, no_access, no_refusal) in [
        (
            "{ id: a, forbid: { url: { regex: '^https?://[^/]+/(a|b)/' } } }",
            "{ id: a, forbid: { path: { prefix: [/a/, /b/] } } }",
            "proved equivalent, no decision changes",
            true,
            true,
        ),
        (
            "{ id: a, forbid: { under: /a } }",
            "{ id: b, forbid: { under: /b } }, { id: a, forbid: { under: /a } }",
            "decisions change",
            true,
            false,
        ),
        // It is the cause of other refusals.
        (
            "{ id: a, forbid: { ext: gif } }, { id: b, forbid: { under: /b } }",
            "{ id: b, forbid: { under: /b } }, { id: a, forbid: { ext: gif } }",
            "decisions change",
            true,
            true,
        ),
        (
            "{ id: s, when: { host: s.example }, stop: true }, { id: b, forbid: { host: b.example } }",
            "{ id: b, forbid: { host: b.example } }, { id: s, when: { host: s.example }, stop: true }",
            "proved equivalent, no decision changes",
            true,
            true,
        ),
        (
            "{ id: s, when: { host: s.example }, stop: true }, { id: b, forbid: { ext: gif } }",
            "{ id: b, forbid: { ext: gif } }, { id: s, when: { host: s.example }, stop: true }",
            "decisions change",
            true,
            false,
        ),
        (
            "{ id: a, when: { not: { ext: pdf } }, then: disallow }",
            "{ id: a, when: { not: { ext: [pdf, txt] } }, then: disallow }",
            "decisions change",
            false,
            true,
        ),
        (
            "{ id: a, when: { host: a.example }, set: { max_depth: 3 } }",
            "{ id: a, when: { host: a.example }, set: { max_depth: 4 } }",
            "decisions change, 1 change not decided",
            false,
            false,
        ),
        (
            "{ id: a, mode: shadow, forbid: { ext: gif } }",
            "{ id: a, mode: shadow, forbid: { ext: png } }",
            "proved equivalent, no decision changes",
            true,
            true,
        ),
    ] {
        let folder = TempDir::new();
        for (name, rules) in [("old.yaml", old), ("new.yaml", new)] {
            folder.write(
                name,
                format!(
                    "policy: 1\nname: p\noptions: {{ disposition: allow }}\nrules: [{rules}]\n"
                ),
            );
        }
        let run = |arguments: &str| {
            crawlgate(
                folder.path(),
                format!("diff old.yaml new.yaml{arguments}").as_str(),
                "",
            )
        };
        let output = run("");
        let line = format!("all URLs: {answer}\n");
        assert!(output.stdout.contains(&line), "{new}: {}", output.stdout);
        let codes =
            ["new-access", "new-refusal"].map(|kind| run(&format!(" --fail-on {kind}")).code);
        let expected = [no_access, no_refusal].map(|none| i32::from(!none));
        assert_eq!(codes, expected, "{new}: {}", output.stdout);
    }
}

#[test]
fn lines_have_the_format_of_decide() {
    let folder = folder();
    folder.write(
        "urls.txt",
        "{\"url\": \"http://slow.example/\", \"depth\": 3}\n\nhttp://a:99999/\n{\"url\": 1}\n",
    );
    let output = crawlgate(folder.path(), "diff old.yaml new.yaml --urls urls.txt", "");
    assert_eq!(output.code, 2, "{output:?}");
    assert!(
        output.stdout.contains("1 URL: 1 decision changes"),
        "{output:?}"
    );
    assert!(
        output
            .stdout
            .contains("2 lines could not be read\n  line 3: "),
        "{output:?}"
    );
    let output = crawlgate(folder.path(), "diff old.yaml new.yaml --urls none.txt", "");
    assert!(output.code == 2, "{output:?}");
    assert!(
        output.stderr.contains("none.txt: No such file"),
        "{output:?}"
    );
    let output = diff(&["--urls", "--format", "json", "--examples", "1"], URLS);
    let all: Json = serde_json::from_str(&output.stdout).unwrap();
    let first = json!({
        "change": "allow -> reject", "old_rule": null, "new_rule": "archives", "differences": [], "count": 2,
        "examples": ["http://a.example/x.zip"],
    });
    assert_eq!(
        (&all["by_rule"][0], &all["structure"]),
        (&first, &Json::Null)
    );
    assert_eq!(all["by_host"][0]["count"], 3);
}

/// The command is meant for lists of URLs from real crawls.
#[test]
fn ten_thousand_urls_are_compared_quickly() {
    let urls: String = (0..10_000)
        .map(|n| format!("http://h{}.example/{n}/x.zip\n", n % 100))
        .collect();
    let output = diff(&["--urls"], &urls);
    assert!(
        output
            .stdout
            .contains("10,000 URLs: 10,000 decisions change"),
        "{output:?}"
    );
    assert!(output.stdout.contains("and 90 more hosts"), "{output:?}");
}

/// Returns a line of the decision log, with these fields besides those that every line has.
fn line(minute: u32, crawler: &str, verdict: &str, more: &str) -> String {
    format!(
        "{{\"ts\":\"2026-11-22T10:{minute:02}:00.000Z\",\"decision\":\"0000000a-{minute}\",\"crawler\":\"{crawler}\",\
         \"method\":\"GET\",\"verdict\":\"{verdict}\"{more}}}\n"
    )
}

fn log() -> String {
    [
        line(
            1,
            "news",
            "allow",
            r#","url":"http://a.example/x.zip","origin_status":200"#,
        ),
        line(
            2,
            "news",
            "allow",
            r#","url":"http://a.example/x.zip","origin_status":200"#,
        ),
        line(
            3,
            "shop",
            "allow",
            r#","url":"http://b.example/y.ZIP","origin_status":200"#,
        ),
        line(
            4,
            "news",
            "reject",
            r#","url":"http://a.example/cgi-bin/x""#,
        ),
        line(
            5,
            "news",
            "reject",
            r#","url":null,"repeat":true,"repeat_of":"0000000a-4""#,
        ),
        line(6, "news", "allow", r#","url":null,"host":"tunnel.example""#),
        line(
            7,
            "shop",
            "reject",
            r#","url":"http://a.example/?redacted""#,
        ),
        line(
            8,
            "shop",
            "allow",
            r#","url":"http://a.example/","origin_status":200"#,
        ),
    ]
    .concat()
}

#[test]
fn the_requests_of_a_log_are_weighed() {
    let folder = folder();
    folder.write("decisions.jsonl", log());
    let arguments = ["diff", "old.yaml", "new.yaml", "--log", "decisions.jsonl"];
    let output = crawlgate(folder.path(), &arguments, "");
    let expected = "\
4 URLs in 6 requests: 3 decisions change, about 5 requests

allow -> reject  3
        3  (default) -> archives
             http://a.example/x.zip (2 requests)
             http://b.example/y.ZIP

refused otherwise  2
        2  by cgi
           status: 451 -> 410
           intent: deny -> gone
             http://a.example/cgi-bin/x (2 requests)

Hosts
        4  a.example  allow -> reject 2, refused otherwise 2
        1  b.example  allow -> reject 1

Crawlers
        4  news  allow -> reject 2, refused otherwise 2
        1  shop  allow -> reject 1
2 lines without a URL left out: tunnels, and URLs that `record` or `logs.query` hides
";
    assert_eq!(output.code, 1, "{output:?}");
    assert_eq!(output.stderr.lines().count(), 2, "the policies: {output:?}");
    assert!(output.stdout.ends_with(expected), "{}", output.stdout);

    let since = [
        &arguments[..],
        &["--since", "2026-11-22T10:03:00Z", "--format", "json"],
    ]
    .concat();
    let output = crawlgate(folder.path(), &since, "");
    let json: Json = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&json["urls"], &json["requests"]), (&json!(3), &json!(4)));
    assert_eq!(
        (&json["changed"], &json["changed_requests"]),
        (&json!(2), &json!(3))
    );
    assert_eq!(
        json["left_out"],
        json!({ "without_url": 2, "beyond_limit": 0 })
    );
    assert_eq!(json["by_crawler"][0]["crawler"], "news");
    assert_eq!(json["by_crawler"][0]["count"], 2);
}

#[test]
fn the_log_of_the_configuration_is_read_with_its_rotated_files() {
    let folder = folder();
    let all = log();
    let (older, newer) = all.split_at(all.find("{\"ts\":\"2026-11-22T10:03").unwrap());
    folder.write("log.jsonl.1", older);
    folder.write("log.jsonl", newer);
    folder.write("crawlgate.yaml", "logs: { decisions: log.jsonl }\n");
    let arguments = [
        "diff",
        "old.yaml",
        "new.yaml",
        "--config",
        "crawlgate.yaml",
        "--log",
    ];
    let output = crawlgate(folder.path(), &arguments, "");
    assert!(output.stdout.contains("4 URLs in 6 requests"), "{output:?}");

    folder.write("crawlgate.yaml", "logs: { decisions: stdout }\n");
    let output = crawlgate(folder.path(), &arguments, "");
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.stderr.contains("--log FILE"), "{output:?}");
}

#[test]
fn markdown_has_tables_and_escapes_what_could_break_them() {
    let output = diff(
        &["--format", "markdown", "--urls"],
        "http://a.example/a|b.zip\n",
    );
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        output.stdout.starts_with("### Policy: `acme@"),
        "{output:?}"
    );
    let row =
        "| **allow -&gt; reject** | 1 | `(default)` | `archives` | `http://a.example/a\\|b.zip` |";
    let row = row.replace("-&gt;", "->");
    assert!(output.stdout.contains(&row), "{}", output.stdout);
    assert!(
        output
            .stdout
            .contains("\n| host | requests | changes |\n|---|---|---|\n")
    );

    let hostile = "http://a.example/x.zip?q=``-![x](//evil.example/p.png)-@octo/team\n";
    let output = diff(&["--format", "markdown", "--urls"], hostile);
    let code = "``` http://a.example/x.zip?q=``-![x](//evil.example/p.png)-@octo/team ```";
    assert!(output.stdout.contains(code), "{}", output.stdout);

    let output = diff(&["--format", "markdown"], "");
    for expected in ["#### Rules", "| added | `archives` |", "#### All URLs"] {
        assert!(output.stdout.contains(expected), "{}", output.stdout);
    }
}

#[test]
fn a_github_workflow_gets_annotations_in_one_line_each() {
    let output = diff(&["--format", "github", "--urls"], URLS);
    assert_eq!(output.code, 1, "{output:?}");
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(
        lines[0],
        "::warning file=new.yaml,title=allow -> reject::2 by archives (before: (default)), such as http://a.example/x.zip"
    );
    assert_eq!(
        lines.last(),
        Some(&"::notice file=new.yaml,title=crawlgate diff::7 URLs: 6 decisions change")
    );
    assert!(lines.iter().all(|line| line.starts_with("::")), "{lines:?}");
}

/// An entry of `hosts` that changes is a change of the pace of its hosts, and of nothing else.
#[test]
fn a_changed_pace_of_a_host_is_found_by_its_hosts() {
    let policy =
        |hosts: &str| format!("policy: 1\nname: p\noptions: {{ disposition: allow }}\n{hosts}");
    let folder = TempDir::new();
    let old = policy(
        "hosts:\n  - { domain: deep.example, delay: 5s }\n  - { host: gone.example, delay: 2s }\n",
    );
    folder.write("old.yaml", &old);
    folder.write(
        "new.yaml",
        policy("hosts:\n  - { domain: deep.example, delay: 9s }\n  - { host: gone.example, delay: 2s }\n"),
    );
    let output = crawlgate(folder.path(), "diff old.yaml new.yaml", "");
    for part in [
        "hosts.domain deep.example",
        "politeness.delay: 5s -> 9s",
        "deep.example/",
    ] {
        assert!(output.stdout.contains(part), "{part}: {output:?}");
    }
    assert!(!output.stdout.contains("gone.example/"), "{output:?}");
    let output = crawlgate(
        folder.path(),
        "diff old.yaml new.yaml --fail-on new-access --fail-on new-refusal",
        "",
    );
    assert_eq!(output.code, 0, "{output:?}");
    // The same pace, written in another way.
    folder.write(
        "new.yaml",
        old.replace("domain: deep.example", "domain: [ deep.example ]"),
    );
    let output = crawlgate(folder.path(), "diff old.yaml new.yaml", "");
    assert!(output.stdout.contains("proved equivalent"), "{output:?}");
}

#[test]
fn explain_names_the_entry_that_sets_the_pace() {
    let folder = TempDir::new();
    folder.write(
        "p.yaml",
        "policy: 1\nname: p\noptions: { disposition: allow }\nhosts:\n  - { domain: a.example, delay: 5s }\n",
    );
    let command = "explain http://x.a.example/ --policy p.yaml";
    let output = crawlgate(folder.path(), command, "");
    let line = output
        .stdout
        .lines()
        .find(|line| line.contains("politeness.delay"))
        .unwrap_or_else(|| panic!("{output:?}"));
    assert!(
        line.contains("5s") && line.ends_with("hosts.1 (p.yaml:5:5)"),
        "{line}"
    );
}
