//! `crawlgate ledger`, on files and against a running proxy.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crawlgate::ledger::observation::{
    DeliveredDocument, ObservationOutcome, ObservedRefusal, RefusalRecording,
};
use crawlgate::ledger::record::DocumentValidators;
use crawlgate::model::crawl_status::CrawlStatus;
use crawlgate::store::ledger::{Ledger, LedgerSettings};
use serde_json::Value as Json;

use crate::support::client::RawClient;
use crate::support::command::{CommandOutput, crawlgate};
use crate::support::ledger::observation;
use crate::support::origin::ScriptedOrigin;
use crate::support::proxy::TestProxy;
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;

/// No server listens on port 1.
const CONFIG: &str = "admin: { listen: 127.0.0.1:1 }\nstore: { path: state }\n";

fn note(ledger: &Ledger, crawler: &str, url: &str, what: ObservationOutcome) {
    ledger.record(observation(crawler, url, 1_767_225_600_000, what));
}

fn delivered(etag: &str) -> ObservationOutcome {
    let validators = DocumentValidators {
        etag: Some(etag.into()),
        last_modified: None,
    };
    let document = DeliveredDocument {
        validators,
        content_type: "text/html".into(),
        size: 7,
        ..DeliveredDocument::default()
    };
    crate::support::ledger::delivered(document)
}

/// Creates a ledger of 2,500 URLs, of which one is refused, and one has an `ETag` that a spreadsheet would read as a
/// formula.
fn folder() -> TempDir {
    let folder = TempDir::new();
    folder.write("crawlgate.yaml", CONFIG);
    let ledger = Ledger::open(&folder.path().join("state"), LedgerSettings::default()).unwrap();
    for n in 0..2_498 {
        note(
            &ledger,
            "news",
            &format!("http://a.test/{n}"),
            delivered("\"v1\""),
        );
    }
    note(&ledger, "lab", "http://b.test/x,y", delivered("=1+1"));
    let refused = ObservedRefusal {
        crawl_status: CrawlStatus::Filter,
        code: Some(760),
        removal: None,
        recording: RefusalRecording::Keep,
    };
    note(
        &ledger,
        "news",
        "http://www.b.test/",
        ObservationOutcome::Refused(refused),
    );
    ledger.close();
    folder
}

fn ledger(folder: &Path, arguments: &[&str]) -> CommandOutput {
    crawlgate(
        folder,
        &[&["ledger"], arguments, &["--config", "crawlgate.yaml"]].concat(),
        "",
    )
}

#[test]
fn the_whole_ledger_is_listed_and_exported() {
    let folder = folder();
    fn run(folder: &TempDir, arguments: &[&str]) -> String {
        let output = ledger(folder.path(), arguments);
        assert_eq!(output.code, 0, "{arguments:?}");
        assert_eq!(output.stderr.as_str(), "", "{arguments:?}");
        output.stdout
    }
    assert_eq!(run(&folder, &["list", "--offline"]).lines().count(), 100);
    assert_eq!(
        run(&folder, &["list", "--limit", "all"]).lines().count(),
        2_500,
        "no proxy is running, so the files are read"
    );
    assert_eq!(
        run(
            &folder,
            &["list", "--offline", "--host", "*.b.test", "--code", "760"]
        ),
        "2026-01-01T00:00:00.000Z  news          REJECTED_FILTER               -  760  -            http://www.b.test/\n"
    );
    assert_eq!(
        run(
            &folder,
            &["list", "--offline", "--known", "false", "--format", "json"]
        )
        .matches("\"key\"")
        .count(),
        1
    );
    assert_eq!(
        run(
            &folder,
            &["list", "--offline", "--host", "c.test", "--format", "json"]
        ),
        "[]\n"
    );

    let lines = run(&folder, &["export", "--offline"]);
    let urls: std::collections::BTreeSet<String> = lines
        .lines()
        .map(|line| {
            serde_json::from_str::<Json>(line).unwrap()["url"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!((lines.lines().count(), urls.len()), (2_500, 2_500));

    let table = run(
        &folder,
        &["export", "--offline", "--format", "csv", "--crawler", "lab"],
    );
    assert!(table.starts_with("key,crawler,url,status,code,"), "{table}");
    assert!(
        table.contains(",lab,\"http://b.test/x,y\",ACCEPTED,,200,true,perhaps,"),
        "{table}"
    );
    assert!(table.contains(",'=1+1,"), "{table}");
    assert!(table.ends_with("\r\n"), "{table}");

    let stats: Json =
        serde_json::from_str(&run(&folder, &["stats", "--offline", "--format", "json"])).unwrap();
    assert_eq!(
        (&stats["urls"], &stats["by_status"]["ACCEPTED"]),
        (&2_500.into(), &2_499.into())
    );
    assert!(
        run(&folder, &["stats", "--offline"])
            .starts_with("          2500  URLs\n          2499    ACCEPTED\n")
    );

    run(
        &folder,
        &[
            "export",
            "--offline",
            "-o",
            "urls.ndjson",
            "--status",
            "rejected_filter",
        ],
    );
    let exported = folder.path().join("urls.ndjson");
    assert_eq!(
        std::fs::read_to_string(&exported).unwrap().lines().count(),
        1
    );
    let mode = std::fs::metadata(&exported).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "URLs may contain secrets");
}

#[test]
fn errors_have_their_exit_codes() {
    let folder = folder();
    folder.write("there", "");
    for (arguments, code, part) in [
        (&["list", "--code", "x"][..], 2, "--code"),
        (&["list", "--host", "a b"], 2, "--host"),
        (&["list", "--limit", "0"], 2, "--limit"),
        (&["list", "--sort", "url"], 2, "--sort"),
        (&["export", "--offline", "-o", "there"], 2, "--output there"),
        (&["sweep", "--dry-run"], 3, "does not answer"),
        (&[], 2, "Usage"),
    ] {
        let output = ledger(folder.path(), arguments);
        assert_eq!(output.code, code, "{arguments:?}: {output:?}");
        assert!(output.stderr.contains(part), "{arguments:?}: {output:?}");
    }
    folder.write("crawlgate.yaml", CONFIG.replace("state", "elsewhere"));
    let output = ledger(folder.path(), &["stats", "--offline"]);
    assert_eq!(output.code, 3);
    assert!(output.stderr.contains("there is no ledger"), "{output:?}");
}

#[test]
fn files_that_a_proxy_uses_are_not_opened() {
    let folder = folder();
    let _ledger = Ledger::open(&folder.path().join("state"), LedgerSettings::default()).unwrap();
    let output = ledger(folder.path(), &["list"]);
    assert_eq!(output.code, 3);
    assert!(output.stderr.contains("does not answer"), "{output:?}");
    assert!(
        output.stderr.contains("in use by another process"),
        "{output:?}"
    );
}

const WHOLE: &str = "listen: 127.0.0.1:0
admin: { listen: 127.0.0.1:0 }
policy: { path: policy.yaml, watch: false }
logs: { decisions: none }
egress:
  allow_loopback: true
  ports: [1-65535]
  hosts: { a.test: 127.0.0.1 }
store: { path: state }
ledger: { keep: always, events: { file: told.ndjson } }
";
const POLICY: &str = "policy: 1
name: remembered
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 100 }
rules:
  - { id: sessions, set: { strip_params: [sid] } }
";

/// The command queries a running proxy, whose URLs are stored under the keys of its policy.
#[test]
fn a_running_proxy_is_queried() {
    let gate = TestProxy::start(WHOLE, POLICY);
    let origin = ScriptedOrigin::ok();
    fn url(origin: &ScriptedOrigin, path: &str) -> String {
        format!("http://a.test:{}{path}", origin.port)
    }
    assert_eq!(
        RawClient::connect(gate.proxy)
            .get(&url(&origin, "/x?sid=7"))
            .status,
        200
    );
    let address = gate.admin.to_string();
    fn run(gate: &TestProxy, address: &str, arguments: &[&str]) -> CommandOutput {
        crawlgate(
            &gate.file(""),
            &[&["ledger"], arguments, &["--admin", address]].concat(),
            "",
        )
    }
    wait_until("the URL is in the ledger", || {
        run(&gate, &address, &["list", "--format", "ndjson"])
            .stdout
            .lines()
            .count()
            == 1
    });
    let output = run(&gate, &address, &["list"]);
    assert!(output.code == 0, "{output:?}");
    assert!(output.stdout.contains("ACCEPTED"), "{output:?}");
    assert!(output.stdout.contains("/x?sid=7"), "{output:?}");
    let encoded = url(&origin, "/x?sid=8")
        .replace(':', "%3A")
        .replace('?', "%3F");
    let found = gate.admin(&format!("GET /api/v1/urls?url={encoded}")).body;
    let found: Json = serde_json::from_str(&found).unwrap();
    assert_eq!(found["urls"][0]["url"], url(&origin, "/x?sid=7"), "{found}");
    let stats: Json =
        serde_json::from_str(&run(&gate, &address, &["stats", "--format", "json"]).stdout).unwrap();
    assert_eq!(stats["by_status"]["ACCEPTED"], 1, "{stats}");
    let swept = run(&gate, &address, &["sweep", "--dry-run"]);
    assert!(swept.code == 0, "{swept:?}");
    assert!(
        swept.stdout.contains("1 of 1 URLs were evaluated"),
        "{swept:?}"
    );
    // It is forgotten under the key of the policy, and counts as new.
    for (arguments, code, part) in [
        (
            &["forget", &url(&origin, "/x?sid=9"), "--dry-run"][..],
            0,
            "1 records would be deleted",
        ),
        (
            &["forget", &url(&origin, "/x?sid=9"), "--crawler", "lab"],
            0,
            "0 records were deleted",
        ),
        (&["forget", "--host", "a.test"], 0, "1 records were deleted"),
        (&["forget", "--host", "a.test"], 0, "0 records were deleted"),
        (&["list"], 0, "no URL"),
    ] {
        let output = run(&gate, &address, arguments);
        assert_eq!(output.code, code, "{arguments:?}: {output:?}");
        assert!(output.stdout.contains(part), "{arguments:?}: {output:?}");
    }
}

#[test]
fn records_are_forgotten_in_the_files() {
    let folder = folder();
    let forget = |arguments: &[&str]| {
        let output = ledger(
            folder.path(),
            &[&["forget", "--offline"], arguments].concat(),
        );
        (output.code, output.stdout + &output.stderr)
    };
    let total = || {
        let stats = ledger(folder.path(), &["stats", "--offline", "--format", "json"]).stdout;
        serde_json::from_str::<Json>(&stats).unwrap()["urls"]
            .as_u64()
            .unwrap()
    };
    for (arguments, code, part) in [
        (
            &["--host", "*.b.test", "--dry-run"][..],
            0,
            "2 records would be deleted",
        ),
        (&["--prefix", "http://a.test/"], 2, "add --yes"),
        (&["--host", "a b"], 2, "--host"),
        (
            &["--host", "a.test", "--prefix", "http://"],
            2,
            "cannot be used with",
        ),
        (&["a.test"], 2, "write a whole URL"),
        (&[], 2, "Usage"),
    ] {
        let (found, output) = forget(arguments);
        assert_eq!(found, code, "{arguments:?}: {output}");
        assert!(output.contains(part), "{arguments:?}: {output}");
    }
    assert_eq!(total(), 2_500);
    assert_eq!(
        forget(&["http://www.b.test/"]).1,
        "1 records were deleted\n"
    );
    assert_eq!(total(), 2_499);
    let (code, output) = forget(&[
        "--prefix",
        "http://a.test/1",
        "--crawler",
        "news",
        "--yes",
        "--format",
        "json",
    ]);
    let counted: Json = serde_json::from_str(&output).unwrap();
    assert_eq!(
        (code, &counted["urls"]),
        (0, &Json::from(1_111)),
        "{output}"
    );
    assert_eq!(total(), 1_388);
}

#[test]
fn orphans_are_listed() {
    let folder = folder();
    for (since, count) in [("2026-01-01", 0), ("2026-01-02", 2_500), ("1d", 2_500)] {
        let arguments = ["list", "--offline", "--limit", "all", "--format", "ndjson"];
        let arguments = [&arguments[..], &["--not-seen-since", since]].concat();
        let output = ledger(folder.path(), &arguments);
        assert_eq!(
            output.stdout.lines().count(),
            count,
            "{since}: {}",
            output.stderr
        );
    }
}

/// A policy is tried before it is loaded; loaded nevertheless, it removes a hundred URLs, and the rest after a
/// confirmation.
#[test]
fn a_policy_is_tried_and_its_removals_are_held_and_confirmed() {
    const URLS: usize = 120;
    let config = WHOLE.replace(
        "keep: always,",
        "keep: always, removal_guard: { hold: 5 %, grace: off },",
    );
    let gate = TestProxy::start(&config, POLICY);
    let origin = ScriptedOrigin::ok();
    let mut client = RawClient::connect(gate.proxy);
    for n in 0..URLS {
        let answer = client.get(&format!("http://a.test:{}/{n}", origin.port));
        assert_eq!(answer.status, 200);
    }
    let address = gate.admin.to_string();
    let run = |arguments: &[&str]| {
        crawlgate(
            &gate.file(""),
            &[arguments, &["--admin", &address]].concat(),
            "",
        )
    };
    let stats = || {
        let output = run(&["ledger", "stats", "--format", "json"]);
        serde_json::from_str::<Json>(&output.stdout).unwrap()
    };
    wait_until("all are in the ledger", || stats()["urls"] == URLS);

    let mistake = POLICY.replace(
        "rules:",
        "rules:\n  - { id: oops, require: { under: /x }, reject: gone }",
    );
    std::fs::write(gate.file("new.yaml"), &mistake).unwrap();
    let tried = run(&["ledger", "sweep", "--dry-run", "--policy", "new.yaml"]);
    assert_eq!(tried.code, 0, "{tried:?}");
    assert!(
        tried.stdout.contains("120  would leave the index"),
        "{tried:?}"
    );
    assert!(
        tried.stdout.contains("  -  anonymous     oops"),
        "{tried:?}"
    );
    let compared = run(&["diff", "policy.yaml", "new.yaml", "--ledger"]);
    assert_eq!(compared.code, 1, "{compared:?}");
    assert!(
        compared.stdout.contains("120 URLs: 120 decisions change"),
        "{compared:?}"
    );
    let nothing = run(&["ledger", "sweep", "--confirm"]);
    assert_eq!(nothing.code, 3, "{nothing:?}");
    assert!(nothing.stderr.contains("no such removals"), "{nothing:?}");
    assert_eq!(stats()["pending_removals"]["policy"], 0);

    std::fs::write(gate.file("policy.yaml"), &mistake).unwrap();
    assert_eq!(gate.admin("POST /api/v1/reload").status, 200);
    let events = || std::fs::read_to_string(gate.file("told.ndjson")).unwrap_or_default();
    wait_until("the rest is held", || {
        stats()["held_removals"][0]["held"] == URLS - 100
    });
    let readiness = gate.admin("GET /readyz");
    assert_eq!(readiness.status, 200, "{readiness}");
    let expected = "removals from the index are held: 20 by policy:";
    assert!(readiness.body.contains(expected), "{readiness}");
    assert!(gate.admin("GET /api/v1/status").body.contains(expected));
    let text = run(&["ledger", "stats"]).stdout;
    assert!(text.contains("20    of them are held: policy:"), "{text}");
    let listed = run(&["ledger", "list", "--limit", "all", "--format", "ndjson"]).stdout;
    assert_eq!(listed.matches("\"pending_removal\":\"policy:").count(), 20);
    assert_eq!(listed.matches("\"indexed\":\"perhaps\"").count(), 20);
    wait_until("the metrics are updated", || {
        let metrics = gate.admin("GET /metrics").body;
        metrics.contains("crawlgate_ledger_held_removals{cause=\"policy\"} 20\n")
            && metrics.contains("crawlgate_ledger_pending_removals{cause=\"policy\"} 20\n")
    });
    wait_until("a hundred are removed", || events().lines().count() == 100);

    let wrong = run(&["ledger", "sweep", "--confirm", "noindex:a.test"]);
    assert_eq!(wrong.code, 3, "{wrong:?}");
    let unknown = run(&["ledger", "sweep", "--confirm", "everything"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    let confirmed = run(&["ledger", "sweep", "--confirm", "policy"]);
    assert_eq!(confirmed.code, 0, "{confirmed:?}");
    assert!(
        confirmed.stdout.starts_with("the held removals by policy:"),
        "{confirmed:?}"
    );
    wait_until("all are removed", || events().lines().count() == URLS);
    wait_until("nothing is held", || {
        !gate.admin("GET /readyz").body.contains("are held")
    });
}
