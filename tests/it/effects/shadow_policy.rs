//! A shadow policy: evaluated with the live one, reloaded with it, reported, and without effect.

use std::fs;

use serde_json::{Value, json};

use crate::support::command::crawlgate;
use crate::support::origin::{OK, ScriptedOrigin};
use crate::support::proxy::TestProxy;
use crate::support::wait::wait_until;

use crate::support::client::Response;
use crate::support::client::get_with;
use crate::support::policy::allow_all;
use crate::support::proxy::CONFIG;

const LIVE: &str =
    "  - { id: closed, about: not ours, when: { under: /closed }, then: disallow-log }
  - { id: try, mode: shadow, forbid: { under: /try } }";

const NEXT: &str = "  - { id: closed, forbid: { under: /next } }
  - { id: both, forbid: { under: /closed/both } }
  - { id: films, forbid: { content_type: video/mp4 } }
  - { id: off, mode: shadow, forbid: { under: /x } }";

fn next(rules: &str) -> String {
    allow_all("", rules).replace("name: allow-all", "name: next")
}

/// A proxy with a shadow policy, and an origin.
struct ShadowBench {
    gate: TestProxy,
    origin: ScriptedOrigin,
}

impl ShadowBench {
    fn new(rules: &str) -> Self {
        let origin = ScriptedOrigin::start(|connection| {
            while let Some(head) = connection.read_head() {
                let film = head.contains("film");
                connection.send(if film {
                    "HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: 0\r\n\r\n"
                } else {
                    OK
                });
            }
        });
        let config = CONFIG.replace("watch: false }", "watch: false, shadow: next.yaml }")
            + "crawlers: [{ name: lab, sources: [127.0.0.0/8], may: [trace] }]\n";
        let gate = TestProxy::start_with(&config, &allow_all("", LIVE), |command| {
            fs::write(
                command.get_current_dir().unwrap().join("next.yaml"),
                next(rules),
            )
            .unwrap();
        });
        Self { gate, origin }
    }

    fn get(&self, path: &str) -> Response {
        get_with(
            self.gate.proxy,
            &format!("http://a.test:{}{path}", self.origin.port),
            "Crawl-Trace: 1\r\n",
        )
    }
}

const CASES: [(&str, u16, &str); 6] = [
    ("/x", 200, ""),
    ("/next/x?secret=1", 200, "reject; rule=next/closed"),
    ("/closed/x", 451, "allow; policy=next"),
    ("/film", 200, "reject; rule=next/films"),
    ("/try", 200, "reject; rule=try"),
    ("/closed/both", 451, ""),
];

#[test]
fn a_shadow_policy_is_counted_logged_and_reported_without_effect() {
    let bench = ShadowBench::new(NEXT);
    for (path, status, shadow) in CASES {
        let answer = bench.get(path);
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.value("crawl-shadow"), shadow, "{path}");
    }
    let lines = bench.gate.decisions(CASES.len());
    assert_eq!(lines[1]["verdict"], "shadow_reject");
    assert_eq!(lines[1]["mode"], "shadow");
    assert_eq!(lines[1]["rule"], "next/closed");
    assert_eq!(lines[1]["policy"], "allow-all");
    assert_eq!(
        lines[2]["shadow"],
        json!([{ "rule": null, "policy": "next", "verdict": "allow", "stage": "request", "reason": "default" }])
    );
    // A rule of the live policy has the same id: it has its own series.
    fn count(bench: &ShadowBench, name: &str, mode: &str, rule: &str) -> u64 {
        let verdict = if name == "decided" {
            ",verdict=\"reject\""
        } else {
            ""
        };
        let labels = format!("mode=\"{mode}\",rule=\"{rule}\"{verdict}");
        bench
            .gate
            .counter(&format!("crawlgate_rule_{name}_total{{{labels}}}"))
    }
    assert_eq!(count(&bench, "matched", "shadow", "next/closed"), 1);
    assert_eq!(count(&bench, "decided", "shadow", "next/closed"), 1);
    assert_eq!(count(&bench, "matched", "enforce", "closed"), 2);
    assert_eq!(count(&bench, "decided", "shadow", "next/films"), 1);
    assert_eq!(count(&bench, "matched", "shadow", "try"), 1);
}

#[test]
fn the_report_lists_what_would_change() {
    let bench = ShadowBench::new(NEXT);
    for (path, ..) in CASES {
        bench.get(path);
    }
    let report = bench.gate.admin("GET /api/v1/shadow").json();
    let rule = &report["rules"][0];
    assert_eq!(
        (&rule["rule"], &rule["judged"], &rule["matched"]),
        (&json!("try"), &json!(6), &json!(1))
    );
    assert_eq!(rule["would_refuse"]["total"], 1);
    assert_eq!(rule["would_admit"]["total"], 0);
    let whole = &report["shadow_policy"];
    assert_eq!(
        (&whole["policy"], &whole["judged"], &whole["last_reload"]),
        (&json!("next"), &json!(6), &Value::Null)
    );
    let refuse = &whole["would_refuse"];
    assert_eq!(
        (&refuse["total"], &refuse["reasons"]),
        (&json!(2), &json!({ "rule": 2 }))
    );
    assert_eq!(
        refuse["rules"],
        json!({ "next/closed": 1, "next/films": 1 })
    );
    let example = &refuse["examples"][1];
    let url = format!("http://a.test:{}/next/x?secret=1", bench.origin.port);
    assert_eq!(
        (&example["url"], &example["rule"]),
        (&json!(url), &json!("next/closed"))
    );
    assert_eq!(
        (&example["stage"], &example["crawler"]),
        (&json!("request"), &json!("lab"))
    );
    let admit = &whole["would_admit"];
    assert_eq!(
        (&admit["total"], &admit["reasons"]),
        (&json!(1), &json!({ "rule": 1 }))
    );

    // The command shows the same.
    let folder = bench.gate.file("");
    let admin = bench.gate.admin.to_string();
    let output = crawlgate(
        &folder,
        &["shadow", "--config", "crawlgate.yaml", "--admin", &admin],
        "",
    );
    assert_eq!(output.code, 0, "{}", output.stderr);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(
        lines[1],
        "in shadow             evaluated  would refuse  would admit  reasons"
    );
    assert_eq!(
        lines[2],
        "try                           6             1            0  refuse: rule (1), try (1)"
    );
    assert!(lines[3].starts_with("policy next@"), "{output:?}");
    assert!(lines[3].contains("admit: rule (1)"), "{output:?}");
    assert!(output.stdout.contains(&url), "{output:?}");
    assert!(
        output.stdout.contains("next would admit, most recently:"),
        "{output:?}"
    );
    let json = crawlgate(
        &folder,
        &[
            "shadow",
            "--config",
            "crawlgate.yaml",
            "--admin",
            &admin,
            "--format",
            "json",
        ],
        "",
    );
    assert_eq!(serde_json::from_str::<Value>(&json.stdout).unwrap(), report);
}

#[test]
fn examples_show_no_more_than_the_log() {
    let origin = ScriptedOrigin::ok();
    let rules = "  - { id: drop, mode: shadow, forbid: { under: /a } }
  - { id: quiet, when: { under: /b }, then: disallow }
  - { id: never, when: { under: /c }, set: { record: none, disposition: disallow } }
  - { id: open, mode: shadow, when: { path: { regex: '^/[bc]' } }, then: allow }";
    let config = CONFIG.replace("decisions: log.json", "decisions: none, query: none");
    let gate = TestProxy::start(&config, &allow_all("", rules));
    for path in ["/a?secret=1", "/b?secret=2", "/c?secret=3"] {
        get_with(
            gate.proxy,
            &format!("http://a.test:{}{path}", origin.port),
            "",
        );
    }
    let answer = gate.admin("GET /api/v1/shadow");
    assert!(!answer.body.contains("secret"), "{}", answer.body);
    let report: Value = serde_json::from_str(&answer.body).unwrap();
    let refuse = &report["rules"][0]["would_refuse"]["examples"];
    assert_eq!(
        refuse[0]["url"],
        json!(format!("http://a.test:{}/a?redacted", origin.port))
    );
    let admit = &report["rules"][1]["would_admit"]["examples"];
    assert_eq!(
        (&admit[0]["url"], &admit[0]["host"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(
        (&admit[1]["url"], &admit[1]["host"]),
        (&Value::Null, &json!("a.test"))
    );
}

#[test]
fn an_error_in_the_shadow_policy_keeps_the_old_one() {
    let bench = ShadowBench::new(NEXT);
    bench.get("/next/x");
    assert!(
        bench
            .gate
            .admin("GET /readyz")
            .body
            .contains("shadow_policy"),
        "{}",
        bench.gate.admin("GET /readyz").body
    );
    // Both policies are written; the shadow policy is broken.
    bench.gate.write(
        "policy.yaml",
        &allow_all("", "  - { id: other, forbid: { under: /other } }"),
    );
    bench.gate.write(
        "next.yaml",
        &next("  - { id: broken, forbit: { under: /next } }"),
    );
    let answer = bench.gate.admin("POST /api/v1/reload").json();
    assert_eq!(answer["result"], "loaded", "{answer}");
    assert_eq!(answer["shadow"]["result"], "refused", "{answer}");
    assert!(
        answer["shadow"]["problems"][0]
            .to_string()
            .contains("forbit"),
        "{answer}"
    );
    assert_eq!(bench.get("/other").status, 451);
    assert_eq!(
        bench.get("/next/x").value("crawl-shadow"),
        "reject; rule=next/closed"
    );
    wait_until("it is said", || {
        bench
            .gate
            .stderr()
            .contains("the shadow policy was not loaded")
    });
    assert!(
        bench
            .gate
            .admin("GET /readyz")
            .body
            .contains("errors in the new shadow policy"),
        "{}",
        bench.gate.admin("GET /readyz").body
    );
    assert_eq!(
        bench.gate.admin("GET /api/v1/shadow").json()["shadow_policy"]["last_reload"]["result"],
        json!("refused")
    );
    // The reverse: the live policy is broken.
    bench.gate.write("policy.yaml", "policy: 1\n");
    bench.gate.write(
        "next.yaml",
        &next("  - { id: newer, forbid: { under: /newer } }"),
    );
    let answer = bench.gate.admin("POST /api/v1/reload").json();
    assert_eq!(answer["status"], 422, "{answer}");
    assert_eq!(
        bench.get("/newer").value("crawl-shadow"),
        "reject; rule=next/newer"
    );
    assert_eq!(bench.get("/other").status, 451);
    assert_eq!(bench.get("/next/x").value("crawl-shadow"), "");
    // The counters of a changed policy start again.
    let report = bench.gate.admin("GET /api/v1/shadow").json();
    assert_eq!(
        report["shadow_policy"]["would_refuse"]["total"], 1,
        "{report}"
    );
}

#[test]
fn a_start_requires_a_valid_shadow_policy() {
    let folder = crate::support::temp_dir::TempDir::new();
    folder.write("policy.yaml", allow_all("", "  []"));
    folder.write(
        "crawlgate.yaml",
        "policy: { path: policy.yaml, shadow: next.yaml }\n",
    );
    let output = crawlgate(folder.path(), "run --config crawlgate.yaml", "");
    assert_eq!(output.code, 2);
    assert!(
        output.stderr.contains("there is no such policy"),
        "{output:?}"
    );
    folder.write(
        "next.yaml",
        next("  - { id: broken, forbit: { under: /next } }"),
    );
    let output = crawlgate(folder.path(), "run --config crawlgate.yaml", "");
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("forbit"), "{}", output.stderr);
    // `check` of the configuration finds the same.
    let output = crawlgate(folder.path(), "check crawlgate.yaml", "");
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("forbit"), "{}", output.stderr);
    // The command needs a running proxy.
    folder.write("next.yaml", next(NEXT));
    let output = crawlgate(
        folder.path(),
        "shadow --config crawlgate.yaml --admin 127.0.0.1:1",
        "",
    );
    assert_eq!(output.code, 3, "{}", output.stderr);
    assert!(output.stderr.contains("127.0.0.1:1"), "{}", output.stderr);
}
