//! The commands of the binary: their output and exit codes.

use serde_json::{Value as Json, json};

use crate::support::command::{CommandOutput, crawlgate};
use crate::support::temp_dir::TempDir;

const POLICY: &str = r#"
policy: 1
name: acme
options: { disposition: disallow }
rules:
  - id: intranet
    when: { domain: intra.example.com }
    then: allow
    set: { max_depth: 3 }
    rules:
      - { id: no-cgi, about: no scripts, forbid: { under: /cgi-bin }, log: true }
      - { when: { under: /old }, then: disallow-log }
      - { id: gone, forbid: { under: /gone }, log: true, reject: gone }
      - { id: video, when: { content_type: "video/*" }, then: exclude }
  - { id: keep, when: { url: "http://intra.example.com/old/keep.html" }, then: allow, stop: true }
  - { id: off, enabled: false, forbid: { always: true } }
  - { id: ten, forbid: { address: [198.51.100.0/24] } }
"#;

const PASSING: &str = r#"
cases:
  - { url: "http://intra.example.com/cgi-bin/x", expect: reject, rule: no-cgi, reason: rule, logged: true }
"#;

fn folder() -> TempDir {
    let folder = TempDir::new();
    folder.write("p.yaml", format!("{POLICY}{PASSING}"));
    folder
}

/// Runs a command in a folder that has the policy `p.yaml`.
fn run(arguments: &[&str], input: &str) -> CommandOutput {
    crawlgate(folder().path(), arguments, input)
}

fn lines(output: &CommandOutput) -> Vec<Json> {
    output
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// `check` of a configuration reports which rules apply to tunnels.
#[test]
fn check_reports_which_rules_apply_to_tunnels() {
    let folder = TempDir::new();
    fn policy(more: &str) -> String {
        format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow{more} }}\nrules: [{{ id: cgi, forbid: {{ under: /cgi }} }}]\n"
        )
    }
    let warning = "warning: every tunnel (CONNECT) is refused as undecided, since rule `cgi` depends on what it hides";
    let advice = "advice: tunnels (CONNECT) are refused as undecided, since rule `cgi` depends on what they hide";
    let blind = "tunnels to port 443: only host, address and pace are checked; robots.txt and rules on URLs do not apply";
    let intercepted =
        "tunnels to port 443: intercepted (tls.intercept): robots.txt and rules on URLs apply";
    for (config, options, summary, warned) in [
        ("tls: { intercept: false }", "", Some(blind), true),
        (
            "tls: { intercept: false }",
            ", tunnel_undecided: allow",
            Some(blind),
            false,
        ),
        ("egress: { connect_ports: [80] }", "", None, false),
        ("tls: { intercept: true }", "", Some(intercepted), false),
        ("", "", Some(intercepted), false),
    ] {
        folder.write("c.yaml", format!("policy: {{ path: p.yaml }}\n{}", config));
        folder.write("p.yaml", policy(options));
        let output = crawlgate(folder.path(), "check c.yaml --strict", "");
        assert_eq!(output.code, i32::from(warned), "{output:?}");
        assert_eq!(output.stderr.contains(warning), warned, "{output:?}");
        let lines: Vec<&str> = output
            .stdout
            .lines()
            .filter(|line| line.starts_with("tunnels"))
            .collect();
        assert!(lines.len() == usize::from(summary.is_some()), "{output:?}");
        assert!(
            summary.is_none_or(|summary| lines[0].starts_with(summary)),
            "{output:?}"
        );
        // The policy alone does not decide whether TLS is intercepted.
        let output = crawlgate(folder.path(), "check p.yaml --strict", "");
        assert_eq!(
            (output.code, output.stderr.contains("advice: every tunnel")),
            (0, options.is_empty()),
            "{output:?}"
        );
    }
    // If the policy distinguishes hosts, some tunnels may be decided.
    folder.write(
        "p.yaml",
        policy("").replace("[{ id: cgi", "[{ id: h, forbid: { host: h } }, { id: cgi"),
    );
    folder.write(
        "c.yaml",
        "policy: { path: p.yaml }\ntls: { intercept: false }\n",
    );
    let output = crawlgate(folder.path(), "check c.yaml --strict", "");
    assert!(output.code == 0, "{output:?}");
    assert!(output.stderr.contains(advice), "{output:?}");
}

/// Runs `check` on a policy with these options and rules under a configuration, and returns its warnings and advice.
fn check_fit(config: &str, options: &str, rules: &str) -> Vec<String> {
    let folder = TempDir::new();
    folder.write("c.yaml", format!("policy: {{ path: p.yaml }}\n{config}"));
    folder.write(
        "p.yaml",
        format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow, tunnel_undecided: allow{options} }}\nrules:\n{rules}"
        ),
    );
    let output = crawlgate(folder.path(), "check c.yaml --format json", "");
    let report: Json = serde_json::from_str(&output.stdout).unwrap();
    let text = |problem: &Json, key: &str| problem[key].as_str().unwrap_or("").to_owned();
    let problems = report["problems"].as_array().unwrap();
    problems
        .iter()
        .map(|problem| {
            let severity = text(problem, "severity");
            assert_ne!(severity, "error", "{problem}");
            let [rule, message, help] = ["rule", "message", "help"].map(|key| text(problem, key));
            format!("{severity} {rule}: {message}. {help}")
        })
        .collect()
}

#[test]
fn check_warns_if_few_requests_fit_into_a_hold() {
    let slow = "  - { id: slow, when: { host: h }, set: { politeness: { delay: 5s } } }\n";
    let scrapy =
        "crawlers: [{ name: news, profile: scrapy, sources: [10.0.0.0/8] }]\nanonymous: deny\n";
    let nutch = scrapy.replace("scrapy", "nutch");
    let httpx = scrapy.replace("scrapy", "httpx");
    for (config, options, rules, expected) in [
        // 20 s / 1.25 s = 16, and for Scrapy 60 s / 1.25 s = 48.
        ("", "", "  []\n", None),
        (scrapy, "", "  []\n", None),
        (
            "",
            "",
            slow,
            Some(("slow", "only 3 requests", "max_hold: 63s")),
        ),
        (
            scrapy,
            "",
            slow,
            Some(("slow", "only 9 requests", "max_hold: 63s")),
        ),
        (
            "",
            "",
            &slow.replace("5s", "5s, jitter: none, max_hold: 50s"),
            None,
        ),
        (
            "",
            "",
            &slow.replace("5s", "5s, jitter: none, max_hold: 49s"),
            Some(("slow", "only 9 requests", "max_hold: 50s")),
        ),
        ("", "", &slow.replace("5s", "5s, overflow: refuse"), None),
        (
            "",
            "",
            &slow.replace("delay: 5s", "rate: 10/m"),
            Some(("slow", "only 3 requests", "max_hold: 60s")),
        ),
        ("", "", &slow.replace("host: h", "crawler: news"), None),
        (
            scrapy,
            "",
            &slow.replace("host: h", "crawler: news"),
            Some(("slow", "crawler news", "max_hold: 63s")),
        ),
        (
            "",
            "",
            &slow.replace("id: slow", "id: slow, mode: shadow"),
            None,
        ),
        (
            "",
            ", politeness: { delay: 3s }",
            "  []\n",
            Some(("", "max_hold 20s of profile generic", "max_hold: 38s")),
        ),
        (
            "",
            ", politeness: { delay: 3s, max_hold: 30s }",
            "  []\n",
            Some(("", "max_hold 30s,", "max_hold: 38s")),
        ),
        (
            "profile: crawlee\n",
            ", politeness: { delay: 2s }",
            "  []\n",
            Some(("", "only 6 requests", "max_hold: 25s")),
        ),
        (
            &httpx,
            "",
            "  []\n",
            Some(("", "only 2 requests", "max_hold: 13s")),
        ),
        // Nutch fetches the pages of a host one after the other.
        (&nutch, "", "  []\n", None),
        (
            &nutch,
            "",
            slow,
            Some(("slow", "only 0 requests", "max_hold: 7s")),
        ),
    ] {
        let found: Vec<String> = check_fit(config, options, rules)
            .into_iter()
            .filter(|problem| problem.contains("fit into a hold"))
            .collect();
        match (expected, found.as_slice()) {
            (None, []) => {}
            (Some((rule, message, help)), [problem]) => {
                assert!(
                    problem.starts_with(&format!("warning {rule}: ")),
                    "{problem}"
                );
                assert!(
                    problem.contains(message) && problem.contains(help),
                    "{problem}"
                );
            }
            _ => panic!("{config} {options} {rules}: {found:?}"),
        }
    }
}

#[test]
fn check_warns_if_a_crawler_gives_up_on_later() {
    let filter = "  - { id: closed, forbid: { host: h }, reject: later }\n";
    let group = "  - { id: closed, when: { host: h }, then: disallow, set: { reject: later } }\n";
    let crawler = |profile: &str| {
        format!(
            "crawlers: [{{ name: news, profile: {profile}, sources: [10.0.0.0/8] }}]\nanonymous: deny\n"
        )
    };
    for (config, options, rules, expected) in [
        (crawler("scrapy"), "", filter, Some("warning closed: ")),
        (crawler("scrapy"), "", group, Some("warning closed: ")),
        (crawler("crawlee"), "", filter, Some("warning closed: ")),
        (crawler("nutch"), "", filter, Some("warning closed: ")),
        (crawler("heritrix"), "", filter, None),
        (
            "profile: scrapy\n".to_owned(),
            "",
            filter,
            Some("warning closed: "),
        ),
        ("profile: strict-http\n".to_owned(), "", filter, None),
        (String::new(), "", filter, Some("advice closed: ")),
        (
            String::new(),
            ", reject: later",
            "  []\n",
            Some("advice : "),
        ),
        (String::new(), "", &filter.replace("later", "keep"), None),
        (
            crawler("scrapy"),
            "",
            &filter.replace("later", "later, reject_status: 451"),
            None,
        ),
        (
            crawler("scrapy"),
            "",
            &filter.replace("forbid: {", "forbid: { crawler: other,"),
            None,
        ),
    ] {
        let found: Vec<String> = check_fit(&config, options, rules)
            .into_iter()
            .filter(|problem| problem.contains("`reject: later`"))
            .collect();
        match (expected, found.as_slice()) {
            (None, []) => {}
            (Some(start), [problem]) => {
                assert!(problem.starts_with(start), "{problem}");
                assert!(problem.contains("crawlgate stop HOST"), "{problem}");
            }
            _ => panic!("{config} {rules}: {found:?}"),
        }
    }
}

#[test]
fn decide_writes_every_key_of_the_contract() {
    let output = run(
        &["decide", "--policy", "p.yaml"],
        "http://INTRA.example.com:80/gone/x\n",
    );
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        output.stderr.starts_with("note: policy acme@") && output.stderr.ends_with(" (p.yaml)\n"),
        "{output:?}"
    );
    let mut line = lines(&output).remove(0);
    let options = line["options"].take();
    assert_eq!(options["disposition"], "allow");
    assert_eq!(options["politeness"]["delay"], "1s");
    let policy = line["policy"].take();
    let revision = policy.as_str().unwrap().strip_prefix("acme@").unwrap();
    assert!(revision.len() == 8, "{policy}");
    assert!(revision.bytes().all(|b| b.is_ascii_hexdigit()), "{policy}");
    let expected = json!({
        "url": "http://intra.example.com/gone/x", "verdict": "reject", "stage": "request", "reason": "rule",
        "rule": "gone", "reading": null, "intent": "gone", "status": 410, "crawl_status": "REJECTED_FILTER", "code": null,
        "logged": true, "index": true, "follow": true, "options": null, "policy": null,
    });
    assert_eq!(line, expected);
    let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
    let order: Vec<&String> = expected.as_object().unwrap().keys().collect();
    assert_eq!(keys, order);
}

/// Each row has facts, then verdict, stage, reason, rule, status and `crawl_status`.
#[test]
fn decide_runs_the_stages_as_far_as_the_facts_reach() {
    let table = [
        (
            json!({}),
            json!(["allow", "request", "rule", "intranet", null, "ACCEPTED"]),
        ),
        (
            json!({ "url": "http://other.example/" }),
            json!(["reject", "request", "default", null, 451, "REJECTED_FILTER"]),
        ),
        (
            json!({ "url": "http://intra.example.com/old/a" }),
            json!([
                "reject",
                "request",
                "rule",
                "rules.1.2",
                451,
                "REJECTED_FILTER"
            ]),
        ),
        (
            json!({ "depth": 4 }),
            json!([
                "reject",
                "request",
                "too_deep",
                "intranet",
                451,
                "REJECTED_TOO_DEEP"
            ]),
        ),
        (
            json!({ "address": "198.51.100.7" }),
            json!([
                "reject",
                "destination",
                "rule",
                "ten",
                451,
                "REJECTED_FILTER"
            ]),
        ),
        (
            json!({ "content_type": "Video/MP4; a=b" }),
            json!([
                "reject",
                "response",
                "rule",
                "video",
                451,
                "REJECTED_FILTER"
            ]),
        ),
        (
            json!({ "headers": { "Content-Type": "video/mp4" } }),
            json!([
                "reject",
                "response",
                "rule",
                "video",
                451,
                "REJECTED_FILTER"
            ]),
        ),
        (
            json!({ "status": 404, "content_type": "video/mp4" }),
            json!([
                "allow",
                "response",
                "rule",
                "intranet",
                null,
                "REJECTED_NOTFOUND"
            ]),
        ),
        (
            json!({ "status": 503 }),
            json!([
                "allow",
                "response",
                "rule",
                "intranet",
                null,
                "REJECTED_BAD_STATUS"
            ]),
        ),
        (
            json!({ "tunnel": true }),
            json!([
                "undecided",
                "connect",
                "undecided",
                "no-cgi",
                451,
                "REJECTED_FILTER"
            ]),
        ),
    ];
    let mut input = String::new();
    for (facts, _) in &table {
        let mut all = json!({ "url": "http://intra.example.com/a" });
        facts
            .as_object()
            .unwrap()
            .iter()
            .for_each(|(key, value)| all[key] = value.clone());
        input.push_str(&format!("{all}\n"));
    }
    let output = run(&["decide", "--policy", "p.yaml"], &input);
    assert_eq!(output.code, 0, "{}", output.stderr);
    for ((facts, expected), line) in table.iter().zip(lines(&output)) {
        let keys = [
            "verdict",
            "stage",
            "reason",
            "rule",
            "status",
            "crawl_status",
        ];
        let found: Vec<&Json> = keys.iter().map(|key| &line[key]).collect();
        assert_eq!(json!(found), *expected, "{facts}");
    }
}

#[test]
fn decide_goes_on_after_a_line_that_cannot_be_read() {
    let input = b"http://intra.example.com/a\nhttp://a:99999/\n\n{\"url\": 1}\n{\"url\": \"http://a/\", \"dept\": 1}\n{\n\
                  http://a/\xe9\r\nftp://a/\nhttp://other.example/";
    let output = crawlgate(folder().path(), "decide --policy p.yaml", input);
    assert_eq!(output.code, 1, "{output:?}");
    let lines = lines(&output);
    let errors: Vec<&str> = lines
        .iter()
        .map(|line| line["error"].as_str().unwrap_or(""))
        .collect();
    for (found, expected) in errors.iter().zip([
        "",
        "port",
        "empty",
        "`url` must be text",
        "did you mean `depth`",
        "not a JSON object",
        "not UTF-8",
        "http",
        "",
    ]) {
        assert!(found.contains(expected), "{found:?} {expected:?}");
        assert!(
            found.is_empty() == expected.is_empty(),
            "{found:?} {expected:?}"
        );
    }
    assert_eq!(errors.len(), 9);
    assert_eq!(lines[1]["input"], "http://a:99999/");
    assert_eq!(lines[1].as_object().unwrap().len(), 2);
    assert_eq!(lines[8]["verdict"], "reject");
}

#[test]
fn decide_as_columns() {
    let input = "http://intra.example.com/cgi-bin/x\nhttp://intra.example.com/\nhttp://a\tb/\n";
    let output = run(&["decide", "--policy", "p.yaml", "--format", "tsv"], input);
    let expected = "http://intra.example.com/cgi-bin/x\treject\trequest\trule\tno-cgi\t451\n\
                    http://intra.example.com/\tallow\trequest\trule\tintranet\t\n";
    assert_eq!(output.code, 1);
    assert_eq!(&output.stdout[..expected.len()], expected);
    let last: Vec<&str> = output.stdout.lines().last().unwrap().split('\t').collect();
    assert_eq!((last.len(), last[0], last[1]), (6, "http://a b/", "error"));
}

#[test]
fn explain_shows_the_outcome_of_every_rule() {
    let url = "http://intra.example.com/old/keep.html";
    let output = run(
        &["explain", url, "--policy", "p.yaml", "--status", "200"],
        "",
    );
    assert_eq!(output.code, 0, "{output:?}");
    let rules = "\
Rules
  intranet      matched            host intra.example.com is in intra.example.com
                                   -> disposition allow, max_depth 3
    no-cgi      no match           path /old/keep.html is not under /cgi-bin
    rules.1.2   matched            path /old/keep.html is under /old
                                   -> disposition disallow-log
    gone        no match           path /old/keep.html is not under /gone
    video       no match           content_type (empty) does not begin with video/
  keep          matched            url is http://intra.example.com/old/keep.html
                                   -> disposition allow, stop
  off           skipped: disabled
  ten           undecided          the destination stage was not run: none of its facts are given
";
    assert!(output.stdout.contains(rules), "{}", output.stdout);
    assert!(
        output
            .stdout
            .starts_with(&format!("{url}\nallowed by rule keep\n")),
        "{output:?}"
    );
    assert!(!output.stdout.contains('\u{1b}'), "{}", output.stdout);
    let decision = "verdict  allow\n  reason   rule\n  rule     keep\n  stage    response\n";
    assert!(output.stdout.contains(decision), "{}", output.stdout);
    fn option(output: &CommandOutput, path: &str) -> String {
        output
            .stdout
            .lines()
            .find(|l| l.trim().starts_with(path))
            .unwrap()
            .trim()
            .to_owned()
    }
    assert_eq!(option(&output, "disposition"), "disposition  allow  keep");
    assert!(
        option(&output, "max_depth").ends_with("intranet"),
        "{output:?}"
    );
    assert!(!output.stdout.contains("html_only"), "{output:?}");
    assert!(output.stdout.contains("(--all shows them)"), "{output:?}");
    assert!(
        output.stdout.contains(
            "Answer\n  the response of the origin, with these headers\n  crawl-status: ACCEPTED\n\nNot asked: budgets,"
        ),
        "{output:?}"
    );
    let output = run(&["explain", url, "--policy", "p.yaml", "--all"], "");
    assert!(
        output
            .stdout
            .lines()
            .any(|l| l.contains("html_only") && l.ends_with("built-in")),
        "{output:?}"
    );
}

/// The product token in robots.txt depends on the User-Agent, unless the policy sets it.
#[test]
fn explain_shows_the_token_for_robots_txt() {
    let good = "Mozilla/5.0 (compatible; GoodBot/2.1; +http://good.example/)";
    let explain = |arguments: &[&str]| {
        let all = [
            &["explain", "http://intra.example.com/", "--policy", "p.yaml"],
            arguments,
        ];
        run(&all.concat(), "").stdout
    };
    let text = explain(&["--user-agent", good]);
    let expected = "robots.txt\n  agent    GoodBot  (after `compatible;` in the User-Agent)\n           \
                    Mozilla, too: the stricter answer counts\n";
    assert!(text.contains(expected), "{text}");
    let text = explain(&["--user-agent", "wget/1.2"]);
    assert!(text.contains("agent    wget  (the first product"), "{text}");
    assert!(!explain(&[]).contains("robots.txt\n"));
    let json: Json =
        serde_json::from_str(&explain(&["--user-agent", good, "--format", "json"])).unwrap();
    assert_eq!(
        json["robots_agent"],
        json!({ "token": "GoodBot", "first_product": "Mozilla", "source": "compatible" })
    );
}

#[test]
fn explain_as_json_is_complete() {
    let url = "http://intra.example.com/gone/x";
    let output = run(
        &[
            "explain",
            url,
            "--policy",
            "p.yaml",
            "--profile",
            "heritrix",
            "--format",
            "json",
        ],
        "",
    );
    let all: Json = serde_json::from_str(&output.stdout).unwrap();
    let rules: Vec<(&str, &str)> = all["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| {
            (
                rule["rule"].as_str().unwrap(),
                rule["status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        rules[..4],
        [
            ("intranet", "matched"),
            ("no-cgi", "no match"),
            ("rules.1.2", "no match"),
            ("gone", "matched")
        ]
    );
    assert_eq!(all["rules"][1]["about"], "no scripts");
    assert_eq!(all["rules"][4]["waits_for"], "response");
    let disposition = &all["options"][0];
    assert_eq!(
        *disposition,
        json!({ "option": "disposition", "value": "allow", "set_by": "intranet" })
    );
    assert_eq!(
        all["decision"]["status"], 404,
        "heritrix gets 404 for the intent gone"
    );
    let because = &all["rules"][3]["because"][0];
    let expected = json!({
        "field": "path", "value": "/gone/x", "kind": "under", "operands": ["/gone"], "holds": true,
        "text": "path /gone/x is under /gone",
    });
    assert_eq!(*because, expected);
    assert_eq!(
        (&all["rules"][3]["key"], &all["rules"][3]["does"]["log"]),
        (&json!("forbid"), &json!(true))
    );
    assert_eq!(
        all["rules"][0]["does"]["assigns"],
        json!({ "disposition": "allow", "max_depth": 3 })
    );
    let answer = &all["answer"];
    assert_eq!(answer["status_line"], "HTTP/1.1 404 Not Found");
    assert_eq!(answer["headers"]["crawl-rule"], "gone");
    assert_eq!(answer["headers"]["crawl-retry"], "policy-change");
    assert_eq!(
        (&all["wire"], all["not_asked"].as_array().unwrap().len()),
        (&Json::Null, 6)
    );
}

#[test]
fn explain_reports_the_verdict_by_its_exit_code() {
    for (arguments, code) in [
        (&["http://intra.example.com/a"][..], 0),
        (&["http://intra.example.com/cgi-bin/x"], 1),
        (&["http://intra.example.com/a", "--tunnel"], 1),
        (
            &["http://intra.example.com/a", "--content-type", "video/mp4"],
            1,
        ),
        (
            &[
                "http://intra.example.com/a",
                "--header",
                "Content-Type: video/mp4",
            ],
            1,
        ),
        (&["http://intra.example.com/a", "--depth", "4"], 1),
        (
            &["http://intra.example.com/a", "--address", "198.51.100.1"],
            1,
        ),
        (
            &[
                "http://intra.example.com/a",
                "--address",
                "198.51.101.1",
                "--size",
                "5",
            ],
            0,
        ),
        (&["http://intra.example.com:99999/a"], 2),
        (&["http://intra.example.com/a", "--status", "99"], 2),
        (&["http://intra.example.com/a", "--profile", "scapy"], 2),
    ] {
        let output = run(
            &[&["explain", "--policy", "p.yaml", "--exit-code"], arguments].concat(),
            "",
        );
        assert_eq!(
            output.code, code,
            "{arguments:?}: {} {}",
            output.stdout, output.stderr
        );
        assert_eq!(
            output.stderr.contains("error: "),
            code == 2,
            "{arguments:?}: {output:?}"
        );
    }
    let output = run(&["explain", "http://a:99999/", "--policy", "p.yaml"], "");
    assert!(
        output.stderr.starts_with("error: http://a:99999/: "),
        "{output:?}"
    );
    assert!(output.stderr.contains("port"), "{output:?}");
}

#[test]
fn test_runs_the_cases() {
    let output = run(&["test", "p.yaml"], "");
    assert_eq!(output.code, 0);
    assert!(output.stdout.starts_with("acme@"), "{output:?}");
    assert!(
        output.stdout.ends_with(" (p.yaml): 1 passed, 0 failed\n"),
        "{output:?}"
    );

    let folder = folder();
    let failing = "cases:\n  - { url: \"http://intra.example.com/a\", expect: reject, rule: no-cgi, \
                   options: { max_depth: 4 } }\n";
    folder.write("failing.yaml", format!("{POLICY}{failing}"));
    let output = crawlgate(folder.path(), "test p.yaml failing.yaml", "");
    let expected = "FAILED http://intra.example.com/a\n  expect: expected reject, found allow\n  \
                    rule: expected no-cgi, found intranet\n  options.max_depth: expected 4, found 3\n";
    assert!(output.code == 1, "{output:?}");
    assert!(output.stdout.contains(expected), "{output:?}");
    let output = crawlgate(folder.path(), "test p.yaml failing.yaml --format json", "");
    let report: Json = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (output.code, &report["passed"], &report["failed"]),
        (1, &json!(1), &json!(1))
    );
    assert_eq!(
        report["policies"][1]["cases"][0]["differences"][1]["expected"],
        "no-cgi"
    );
    for command in ["check", "run"] {
        let arguments = if command == "check" {
            vec!["check", "failing.yaml"]
        } else {
            vec!["run", "--policy", "failing.yaml"]
        };
        let output = crawlgate(folder.path(), &arguments, "");
        assert!(output.code == 2, "{output:?}");
        assert!(
            output
                .stderr
                .contains("failing.yaml:19:5: error: the case of"),
            "{output:?}"
        );
    }
}

#[test]
fn check_distinguishes_policies_from_configurations() {
    let folder = folder();
    folder.write("c.yaml", "policy: { path: p.yaml }\n");
    folder.write("rules/a.yaml", POLICY);
    folder.write("config/policy.yaml", POLICY);
    for paths in [
        &["p.yaml"][..],
        &["c.yaml"],
        &["rules"],
        &["rules", "c.yaml", "p.yaml"],
        &[],
    ] {
        let output = crawlgate(folder.path(), &[&["check"], paths].concat(), "");
        assert!(
            output.stdout.ends_with("warning\n") || output.stdout.ends_with("warnings\n"),
            "{paths:?} {output:?}"
        );
        assert_eq!(output.code, 0, "{paths:?} {output:?}");
    }
    // A policy that the configuration names and the command line repeats is checked once.
    let output = crawlgate(folder.path(), "check c.yaml p.yaml", "");
    assert_eq!(
        output.stdout.matches("p.yaml: acme@").count(),
        1,
        "{output:?}"
    );
}

#[test]
fn check_reports_a_policy_that_needs_a_ledger_and_a_configuration_without_one() {
    let folder = TempDir::new();
    folder.write(
        "p.yaml",
        "policy: 1\nname: t\noptions: { disposition: allow, unmodified: reject }\n",
    );
    for (keep, code) in [("auto", 0), ("never", 2)] {
        folder.write(
            "c.yaml",
            format!("policy: {{ path: p.yaml }}\nledger: {{ keep: {keep} }}\n"),
        );
        let output = crawlgate(folder.path(), "check c.yaml", "");
        assert_eq!(output.code, code, "{keep}: {output:?}");
        assert_eq!(
            output.stderr.contains("ledger.keep is never"),
            code == 2,
            "{keep}: {output:?}"
        );
    }
}

/// The next policy is compared with the configuration, too, and the shadow policy.
#[test]
fn check_compares_the_crawlers_of_every_policy_with_the_configuration() {
    let folder = TempDir::new();
    let policy = |crawler: &str| {
        format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow, tunnel_undecided: allow }}\nrules:\n  \
             - {{ id: r, when: {{ crawler: {crawler} }}, set: {{ record: full }} }}\n"
        )
    };
    folder.write("p.yaml", policy("news-bot"));
    folder.write("next.yaml", policy("newsbot"));
    let crawlers = "crawlers: [{ name: news-bot, sources: [127.0.0.1] }]";
    folder.write(
        "c.yaml",
        format!("policy: {{ path: p.yaml }}\n{crawlers}\n"),
    );
    folder.write(
        "s.yaml",
        format!("policy: {{ path: p.yaml, shadow: next.yaml }}\n{crawlers}\n"),
    );
    let warning = "next.yaml:5:";
    for (paths, warned) in [
        ("c.yaml next.yaml", true),
        ("next.yaml c.yaml", true),
        ("s.yaml", true),
        ("c.yaml p.yaml", false),
        ("next.yaml", false),
    ] {
        let output = crawlgate(folder.path(), &*format!("check {paths}"), "");
        assert_eq!(output.code, 0, "{paths}: {output:?}");
        assert_eq!(
            output.stderr.contains(warning),
            warned,
            "{paths}: {output:?}"
        );
        assert_eq!(
            output.stderr.contains("newsbot"),
            warned,
            "{paths}: {output:?}"
        );
    }
}

#[test]
fn check_warns_that_crawlers_reach_this_machine() {
    let folder = TempDir::new();
    folder.write(
        "p.yaml",
        "policy: 1\nname: p\noptions: { disposition: allow, tunnel_undecided: allow }\n",
    );
    for (allowed, code) in [("true", 1), ("false", 0)] {
        let config =
            format!("policy: {{ path: p.yaml }}\negress: {{ allow_loopback: {allowed} }}\n");
        folder.write("c.yaml", config);
        let output = crawlgate(folder.path(), "check c.yaml --strict", "");
        assert_eq!(output.code, code, "{output:?}");
        assert_eq!(
            output
                .stderr
                .contains("warning: egress.allow_loopback is true"),
            code == 1,
            "{output:?}"
        );
    }
}

/// The counts of the exact analysis are of rules: that a rule can decide is no failure.
#[test]
fn the_exact_analysis_counts_rules() {
    let folder = TempDir::new();
    folder.write(
        "p.yaml",
        "policy: 1\nname: p\noptions: { disposition: allow }\nrules:\n  - { id: all, forbid: { host: a.test } }\n  \
         - { id: never, forbid: { host: a.test, path: /x } }\n  - { id: other, forbid: { host: b.test } }\n",
    );
    let output = crawlgate(folder.path(), "check --exact p.yaml", "");
    let counts =
        "exact analysis: 2 rules can decide, 1 can never decide, 0 questions not decided\n";
    assert!(output.stdout.contains(counts), "{output:?}");
    let output = crawlgate(folder.path(), "check --exact p.yaml --format json", "");
    let report: Json = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (
            &report["exact"]["deciding_rules"],
            &report["exact"]["dead_rules"]
        ),
        (&json!(2), &json!(1)),
        "{report}"
    );
}

#[test]
fn check_fails_on_warnings_only_with_strict() {
    let folder = TempDir::new();
    folder.write("c.yaml", "listen: 127.0.0.1:0\n");
    for (arguments, code) in [
        (&["check", "c.yaml"][..], 0),
        (&["check", "c.yaml", "--strict"], 1),
    ] {
        let output = crawlgate(folder.path(), arguments, "");
        assert_eq!(output.code, code, "{output:?}");
        assert!(
            output.stderr.contains("warning: there is no policy"),
            "{output:?}"
        );
    }
}

/// A CI job in the wrong directory must not be green.
#[test]
fn commands_about_files_fail_where_there_is_none() {
    let folder = TempDir::new();
    for (command, message) in [
        ("test", "there is no policy to test"),
        ("test --coverage", "there is no policy to test"),
        ("check", "there is nothing to check"),
        ("check --format github", "there is nothing to check"),
    ] {
        let output = crawlgate(folder.path(), command, "");
        assert_eq!(output.code, 2, "{command}: {output:?}");
        let text = output.stdout + &output.stderr;
        assert!(text.contains(message), "{command}: {text}");
    }
    folder.write(
        "config/policy.yaml",
        "policy: 1\nname: p\noptions: { disposition: allow }\n",
    );
    for command in ["test", "check"] {
        let output = crawlgate(folder.path(), command, "");
        assert_eq!(output.code, 0, "{command}: {output:?}");
    }
}

/// The load compares as many rules as its work allows, and says so; the exact analysis compares all.
#[test]
fn check_does_not_report_a_limit_that_the_exact_analysis_has_not() {
    let rule = |n| format!("  - {{ id: r{n}, forbid: {{ path: {{ contains: word{n}x }} }} }}\n");
    let rules: String = (0..700).map(rule).collect();
    let folder = TempDir::new();
    folder.write(
        "p.yaml",
        format!("policy: 1\nname: p\noptions: {{ disposition: allow }}\nrules:\n{rules}"),
    );
    let limit = "of 700 rules were compared";
    let output = crawlgate(folder.path(), "check p.yaml", "");
    assert!(output.stderr.contains(limit), "{output:?}");
    let output = crawlgate(folder.path(), "check --exact p.yaml", "");
    assert!(output.stdout.contains("700 rules can decide"), "{output:?}");
    assert!(
        output.stdout.contains("0 questions not decided"),
        "{output:?}"
    );
    assert!(!output.stderr.contains(limit), "{output:?}");
}

#[test]
fn check_as_json_is_for_editors() {
    let folder = TempDir::new();
    folder.write("c.yaml", "lisen: 1\nlimits: { head: 5 }\n");
    let output = crawlgate(folder.path(), "check c.yaml --format json", "");
    let report: Json = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (output.code, output.stderr.as_str(), &report["errors"]),
        (2, "", &json!(2))
    );
    let first = &report["problems"][0];
    assert_eq!(
        (&first["file"], &first["line"], &first["column"]),
        (&json!("c.yaml"), &json!(1), &json!(1))
    );
    assert_eq!(
        (&first["found"], &first["near"]),
        (&json!("lisen"), &json!("listen"))
    );
    assert_eq!(
        (&first["end"], &first["severity"]),
        (&json!(6), &json!("error"))
    );
}

/// Each command reports the error with its location, does nothing else, and exits with 2.
#[test]
fn broken_input_is_reported_and_has_no_effect() {
    let folder = folder();
    folder.write("broken.yaml", "policy: 1\nname: a\nrules: [{ id: x\n");
    folder.write(
        "unknown.yaml",
        POLICY.replace("forbid: { under", "forbidd: { under"),
    );
    folder.write("latin.yaml", b"policy: 1\nname: \xe9\n");
    folder.write("regex.yaml", "policy: 1\nname: a\noptions: { disposition: allow }\nrules:\n  - { id: r, forbid: { path: { regex: 'a(b' } } }\n");
    folder.write("list.yaml", "policy: 1\nname: a\noptions: { disposition: allow }\nlists: { l: { kind: hosts, file: none.txt } }\n");
    folder.write("empty/readme.txt", "");
    folder.write("bad-config.yaml", "listen: [\n");
    folder.write("names-none.yaml", "policy: { path: none.yaml }\n");
    for (name, expected) in [
        ("broken.yaml", "broken.yaml:3:"),
        ("unknown.yaml", "did you mean `forbid`?"),
        ("latin.yaml", "line 2 is not UTF-8"),
        ("regex.yaml", "regex.yaml:5:"),
        ("list.yaml", "no such file"),
        (
            "none.yaml",
            "none.yaml: error: the policy cannot be read: no such file",
        ),
        ("empty", "the directory contains no"),
    ] {
        for command in [
            &["check", name][..],
            &["decide", "--policy", name],
            &["test", name],
            &["run", "--policy", name],
        ] {
            // `check` reads a file that is neither as a configuration.
            if command[0] == "check" && matches!(name, "broken.yaml" | "latin.yaml" | "none.yaml") {
                continue;
            }
            let output = crawlgate(folder.path(), command, "");
            assert_eq!(output.code, 2, "{command:?} {output:?}");
            assert!(
                output.stderr.contains(expected),
                "{command:?} {expected} {output:?}"
            );
            assert!(
                command[0] == "check" || output.stdout.is_empty(),
                "{command:?} {output:?}"
            );
        }
    }
    for (name, expected) in [
        ("bad-config.yaml", "bad-config.yaml:"),
        ("latin.yaml", "latin.yaml: error: "),
        ("broken.yaml", "broken.yaml:3:"),
        (
            "none.yaml",
            "none.yaml: error: there is no such file; name another with --config",
        ),
        ("empty", "Is a directory"),
        (
            "names-none.yaml",
            "names-none.yaml:1:17: error: there is no such policy; found `none.yaml`",
        ),
    ] {
        for command in [&["run", "--config", name][..], &["check", name]] {
            if command[0] == "check" && name == "empty" {
                continue;
            }
            let output = crawlgate(folder.path(), command, "");
            assert_eq!(output.code, 2, "{command:?} {output:?}");
            assert!(
                output.stderr.contains(expected),
                "{command:?} {expected} {output:?}"
            );
        }
    }
}

#[test]
fn run_refuses_settings_that_are_dangerous_or_cannot_work() {
    let folder = folder();
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = busy.local_addr().unwrap().to_string();
    for (arguments, code, expected) in [
        (
            ["--listen", "0.0.0.0:0", "--admin", "127.0.0.1:0"],
            2,
            "open relay",
        ),
        (
            ["--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0"],
            2,
            "admin.token_file",
        ),
        (
            ["--listen", &busy, "--admin", "127.0.0.1:0"],
            3,
            "cannot listen on",
        ),
        (
            ["--listen", "127.0.0.1", "--admin", "127.0.0.1:0"],
            2,
            "--listen",
        ),
    ] {
        let output = crawlgate(
            folder.path(),
            &[&["run", "--policy", "p.yaml"], &arguments[..]].concat(),
            "",
        );
        assert_eq!(output.code, code, "{arguments:?} {output:?}");
        assert!(output.stderr.contains(expected), "{arguments:?} {output:?}");
    }
}

#[test]
fn target_shows_canonical_forms() {
    let output = run(
        &["target", "HTTP://Example.COM:80/a/../b", "--format", "json"],
        "",
    );
    let line = lines(&output).remove(0);
    assert_eq!(
        (output.code, &line["canonical"]),
        (0, &json!("http://example.com/b"))
    );
    let output = run(&["target"], "http://0x7f.1/\nhttp://a:99999/\n");
    assert_eq!(output.code, 1);
    assert!(output.stdout.starts_with("loopback "), "{output:?}");
    assert!(output.stdout.contains("error "), "{output:?}");
}

/// The help of every command has an example and the exit codes.
#[test]
fn help_has_examples_and_exit_codes() {
    let output = run(&["--help"], "");
    assert!(output.code == 0, "{output:?}");
    assert!(
        output.stdout.contains("Exit codes: 0 success"),
        "{output:?}"
    );
    for command in [
        "run",
        "demo",
        "check",
        "explain",
        "decide",
        "decisions",
        "test",
        "diff",
        "schema",
        "completions",
        "target",
    ] {
        assert!(
            output.stdout.contains(&format!("\n  {command} ")),
            "{output:?}"
        );
        let output = run(&[command, "--help"], "");
        assert!(output.code == 0, "{output:?}");
        assert!(
            output.stdout.contains(&format!("crawlgate {command}")),
            "{output:?}"
        );
        assert!(output.stdout.contains("Example:\n"), "{output:?}");
        assert!(output.stdout.contains("Exit codes: 0"), "{output:?}");
    }
    let version = run(&["--version"], "");
    assert_eq!(
        (version.code, version.stdout.as_str()),
        (0, concat!("crawlgate ", env!("CARGO_PKG_VERSION"), "\n"))
    );
    for wrong in [
        &[][..],
        &["diff"],
        &["import"],
        &["decide"],
        &["explain"],
        &["check", "--format", "xml"],
    ] {
        let output = run(wrong, "");
        assert!(output.code == 2, "{wrong:?} {output:?}");
        assert!(output.stdout.is_empty(), "{wrong:?} {output:?}");
        assert!(!output.stderr.is_empty(), "{wrong:?} {output:?}");
    }
}

/// `explain` shows the headers that options add to the response of the origin.
#[test]
fn explain_shows_the_headers_added_to_a_response() {
    let folder = folder();
    let policy = "policy: 1\nname: p\noptions: { disposition: allow, source: ours, meta: { team: news }, follow: false }\n";
    std::fs::write(folder.path().join("q.yaml"), policy).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_crawlgate"))
        .args(["explain", "http://a.test/", "--policy", "q.yaml"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answer = "Answer\n  the response of the origin, with these headers\n  crawl-status: ACCEPTED\n  crawl-source: ours\n  \
                  crawl-meta-team: news\n  x-robots-tag: nofollow\n";
    assert!(text.contains(answer), "{text}");
}

/// In 60 columns, reasons are shown below the rules, and no line is longer.
#[test]
fn explain_fits_a_narrow_terminal() {
    let folder = folder();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_crawlgate"))
        .args([
            "explain",
            "http://intra.example.com/cgi-bin/a/rather/long/path/to/a/page.html?with=a&query=too",
        ])
        .args(["--policy", "p.yaml"])
        .current_dir(folder.path())
        .env("COLUMNS", "60")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rules = text
        .split("Options\n")
        .next()
        .unwrap()
        .split("Rules\n")
        .nth(1)
        .unwrap();
    assert!(
        rules.starts_with(
            "  intranet      matched\n      host intra.example.com is in intra.example.com\n"
        ),
        "{text}"
    );
    assert!(
        rules.contains(
            "    no-cgi      matched\n        path /cgi-bin/a/rather/long/path/… is under /cgi-bin\n"
        ),
        "{text}"
    );
    assert!(
        rules.lines().all(|line| line.chars().count() <= 60),
        "{text}"
    );
}

#[test]
fn shells_complete_commands() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let output = run(&["completions", shell], "");
        assert!(output.code == 0, "{shell} {output:?}");
        assert!(output.stderr.is_empty(), "{shell} {output:?}");
        assert!(output.stdout.contains("explain"), "{shell} {output:?}");
        assert!(output.stdout.contains("threshold"), "{shell}");
    }
    assert_eq!(run(&["completions", "csh"], "").code, 2);
}

/// A closed output pipe ends the command without an error.
#[test]
fn a_closed_pipe_is_not_an_error() {
    use std::process::{Command, Stdio};
    let folder = folder();
    let mut child = Command::new(env!("CARGO_BIN_EXE_crawlgate"))
        .args(["decide", "--policy", "p.yaml"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut input = child.stdin.take().unwrap();
    let written = std::thread::spawn(move || {
        use std::io::Write;
        (0..10_000).try_for_each(|_| input.write_all(b"http://intra.example.com/\n"))
    });
    let output = child.wait_with_output().unwrap();
    let _ = written.join().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!stderr.contains("error: "), "{stderr}");
}
