//! Reloading while requests are under way: by signal, through the API and by changed files.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::client::{RawClient, Response};
use crate::support::command::crawlgate;
use crate::support::origin::ScriptedOrigin;
use crate::support::proxy::TestProxy;
use crate::support::wait::{TIMEOUT, wait_until};

pub(crate) const CONFIG: &str = "
listen: 127.0.0.1:0
admin: { listen: 127.0.0.1:0 }
egress: { allow_loopback: true, ports: [1-65535] }
logs: { decisions: none }
";

/// The number of reloads under load.
const RELOADS: usize = 200;

/// A policy that refuses `/refused` and the path of its name, by a rule of this name, with this intent.
pub(crate) fn policy(rule: &str, intent: &str) -> String {
    format!(
        "policy: 1\nname: {rule}\noptions: {{ disposition: allow, robots: {{ obey: false }}, politeness: {{ delay: 0s, \
         concurrency: 100, jitter: 1.0..1.0 }} }}\nrules: [{{ id: {rule}, forbid: {{ path: [/refused, /{rule}] }}, \
         reject: {intent} }}]\n"
    )
}

#[test]
fn a_signal_reloads_and_a_broken_policy_has_no_effect() {
    let gate = TestProxy::start(
        &format!("{CONFIG}policy: {{ path: policy.yaml, watch: false }}\n"),
        &policy("one", "deny"),
    );
    let mut client = RawClient::connect(gate.proxy);
    let mut rule = || {
        let answer = client.get("http://127.0.0.1:9/refused");
        (
            answer.status,
            answer
                .field("crawl-rule")
                .map(str::to_owned)
                .unwrap_or_default(),
        )
    };
    assert_eq!(rule(), (451, "one".into()));
    gate.write("policy.yaml", &policy("two", "gone"));
    gate.signal("HUP");
    wait_until("the new policy decides", || rule() == (410, "two".into()));

    gate.write(
        "policy.yaml",
        "policy: 1\nname: three\nrules: [{ id: x, forbid: { pathh: /refused } }]\n",
    );
    gate.signal("HUP");
    wait_until("the failure is counted", || {
        gate.admin("GET /metrics")
            .body
            .contains("crawlgate_policy_reloads_total{result=\"failure\"} 1")
    });
    assert_eq!(rule(), (410, "two".into()));
    let metrics = gate.admin("GET /metrics").body;
    assert!(metrics.contains("\ncrawlgate_policy_last_reload_success 0\n"));
    wait_until("the log names the mistake", || {
        gate.stderr().contains("pathh")
    });
    fn warns(ready: &Response) -> bool {
        ready.status == 200 && ready.body.contains("warn policy: two@")
    }
    wait_until("readiness warns", || warns(&gate.admin("GET /readyz")));

    gate.write("policy.yaml", &policy("two", "gone"));
    let answer = gate.admin("POST /api/v1/reload");
    assert_eq!(
        (answer.status, &answer.json()["result"]),
        (200, &"unchanged".into())
    );
    assert!(
        gate.admin("GET /metrics")
            .body
            .contains("\ncrawlgate_policy_last_reload_success 1\n")
    );
}

#[test]
fn a_refuted_assertion_refuses_a_reload_and_an_undecided_one_does_not() {
    let gate = TestProxy::start(CONFIG, &policy("one", "deny"));
    let active = || gate.admin("GET /api/v1/policy").json()["name"].clone();
    for (assertion, status, answer, name) in [
        (
            "under: 'http://h.example/ref'",
            422,
            "refuted by http://h.example/ref",
            "one",
        ),
        (
            "under: 'http://h.example/norm'",
            200,
            "not decided: ",
            "two",
        ),
    ] {
        let rules = "rules: [{ id: a, forbid: { path: { prefix: /norm, norm: true } } }, ";
        let text = policy("two", "deny").replace("rules: [", rules);
        let case = format!("cases: [{{ assert: never, verdict: allow, {assertion} }}]\n");
        gate.write("policy.yaml", &(text + &case));
        let reload = gate.admin("POST /api/v1/reload");
        assert_eq!(reload.status, status, "{}", reload.body);
        assert!(reload.body.contains(answer), "{}", reload.body);
        assert_eq!(active(), name);
    }
    let case = "cases: [{ assert: never, verdict: allow, under: 'http://h.example/refused', crawler: x }]\n";
    let text = policy("three", "deny").replace("path: [/refused, /three]", "host: h.example");
    gate.write("policy.yaml", &(text + case));
    let reload = gate.admin("POST /api/v1/reload");
    assert_eq!(reload.status, 200, "{}", reload.body);
    assert_eq!(active(), "three");
}

#[test]
fn an_assertion_that_is_not_decided_is_a_warning_at_a_start() {
    let case = "cases: [{ assert: never, verdict: allow, under: 'http://h.example/norm' }]\n";
    let text = policy("one", "deny").replace(
        "path: [/refused, /one]",
        "path: { prefix: /norm, norm: true }",
    );
    let gate = TestProxy::start(CONFIG, &(text + case));
    let warning =
        "warning: the assertion \"never allow under http://h.example/norm\" is not decided: ";
    wait_until("the start warns", || gate.stderr().contains(warning));
}

#[test]
fn a_failing_case_refuses_a_reload_and_the_api_names_it() {
    let gate = TestProxy::start(CONFIG, &policy("one", "deny"));
    let case = "cases: [{ url: 'http://h.example/refused', expect: allow }]\n";
    gate.write("policy.yaml", &(policy("two", "deny") + case));
    let answer = gate.admin("POST /api/v1/reload");
    assert_eq!(answer.status, 422, "{}", answer.body);
    assert_eq!(
        answer.field("content-type"),
        Some("application/problem+json")
    );
    let problems = answer.json()["problems"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let error = problems
        .iter()
        .find(|problem| problem["severity"] == "error")
        .expect("an error");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.contains("http://h.example/refused"), "{message}");

    gate.write("policy.yaml", &policy("three", "deny"));
    let before = gate.admin("GET /api/v1/policy").json();
    let answer = gate.admin("POST /api/v1/reload").json();
    assert_eq!(
        (&answer["result"], &answer["before"]),
        (&"loaded".into(), &before["revision"])
    );
    RawClient::connect(gate.proxy).get("http://127.0.0.1:9/refused");
    let after = gate.admin("GET /api/v1/policy").json();
    assert_eq!(
        (&after["name"], &after["rules"][0]["id"]),
        (&"three".into(), &"three".into())
    );
    assert_eq!(
        (&after["rules"][0]["matched"], &after["rules"][0]["decided"]),
        (&1.into(), &1.into())
    );
    assert_eq!(after["last_reload"]["result"], "loaded");
}

#[test]
fn warnings_of_a_reloaded_policy_are_logged() {
    let gate = TestProxy::start(CONFIG, &policy("one", "deny"));
    gate.write(
        "policy.yaml",
        &policy("two", "deny").replace("path: [/refused, /two]", "crawler: nobody-knows"),
    );
    let answer = gate.admin("POST /api/v1/reload").json();
    assert_eq!(
        (&answer["result"], &answer["policy"]),
        (&"loaded".into(), &"two".into())
    );
    let problems = answer["problems"].as_array().expect("a list");
    let doubt = problems
        .iter()
        .find(|problem| problem["found"] == "nobody-knows")
        .expect("a warning");
    assert_eq!(doubt["severity"], "warning");
    wait_until("the log says it", || gate.stderr().contains("nobody-knows"));
    let shown = gate.admin("GET /api/v1/policy").json();
    assert_eq!(shown["last_reload"]["problems"], answer["problems"]);
    assert!(gate.admin("GET /readyz").body.contains("ok policy: two@"));
}

#[test]
fn changed_files_reload_by_themselves() {
    let gate = TestProxy::start(CONFIG, &policy("one", "deny"));
    let mut client = RawClient::connect(gate.proxy);
    let mut rule = || {
        client
            .get("http://127.0.0.1:9/refused")
            .field("crawl-rule")
            .map(str::to_owned)
    };
    let next = gate.write("next", &policy("two", "deny"));
    std::fs::rename(&next, next.with_file_name("policy.yaml")).expect("a rename");
    wait_until("a renamed file is seen", || {
        rule().as_deref() == Some("two")
    });
    // A list beside it is a file of the policy too.
    gate.write("blocked.txt", "other.example\n");
    let listed = "policy: 1\nname: l\noptions: { disposition: allow }\n\
                  lists: { blocked: { kind: domains, file: blocked.txt } }\n\
                  rules: [{ id: first, forbid: { path: /refused } }, { id: listed, forbid: { in: blocked } }]\n";
    gate.write("policy.yaml", listed);
    wait_until("the list's policy is seen", || {
        rule().as_deref() == Some("first")
    });
    let mut client = RawClient::connect(gate.proxy);
    gate.write("blocked.txt", "other.example\nh.invalid\n");
    wait_until("the list is seen", || {
        client.get("http://h.invalid/").field("crawl-rule") == Some("listed")
    });
}

#[test]
fn the_built_in_policy_cannot_be_reloaded() {
    let gate = TestProxy::start_with(CONFIG, "", |command| {
        let directory = command.get_current_dir().expect("its own");
        std::fs::remove_file(directory.join("policy.yaml")).expect("it is there");
    });
    let answer = gate.admin("POST /api/v1/reload");
    assert_eq!(
        (answer.status, &answer.json()["policy"]),
        (200, &"builtin".into())
    );
    assert_eq!(answer.json()["result"], "unchanged");
    assert!(
        answer.json()["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("policy.path"))
    );
    wait_until("the log says so", || {
        gate.stderr().contains("stays active: it has no file")
    });
}

/// Makes a pipe at this path, in place of a file.
fn replace_with_pipe(path: &Path) {
    let pipe = path.with_extension("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    std::fs::rename(&pipe, path).unwrap();
}

/// No file of a running proxy may make it wait or fill its memory.
#[test]
fn files_that_have_no_end_are_refused() {
    let mut gate = TestProxy::start(CONFIG, &policy("one", "deny"));
    let path = gate.file("policy.yaml");
    let list = "policy: 1\nname: l\nlists: { l: { kind: hosts, file: l.txt } }\n\
                rules: [{ id: l, forbid: { in: l } }]\n";
    let mut failures = 0;
    let mut refuse = |gate: &TestProxy, cause: &str| {
        failures += 1;
        wait_until(cause, || {
            gate.counter("crawlgate_policy_reloads_total{result=\"failure\"}") == failures
        });
        let answer = gate.admin("POST /api/v1/reload");
        failures += 1;
        assert_eq!(answer.status, 422, "{cause}: {answer}");
        assert!(answer.body.contains(cause), "{cause}: {answer}");
    };
    replace_with_pipe(&path);
    refuse(&gate, "not a regular file");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    refuse(&gate, "not a regular file");
    std::fs::remove_file(&path).unwrap();
    // Takes no room on the disk.
    let huge = std::fs::File::create(&path).unwrap();
    huge.set_len(1 << 40).unwrap();
    refuse(&gate, "larger than 256 MiB");
    let huge = std::fs::File::create(gate.file("l.txt")).unwrap();
    huge.set_len(1 << 40).unwrap();
    gate.write("policy.yaml", list);
    refuse(&gate, "larger than 256 MiB");
    std::fs::remove_file(gate.file("l.txt")).unwrap();
    replace_with_pipe(&gate.file("l.txt"));
    refuse(&gate, "not a regular file");

    gate.write("policy.yaml", &policy("two", "deny"));
    wait_until("a repaired file is read", || {
        gate.admin("GET /readyz").body.contains("ok policy: two@")
    });
    gate.signal("TERM");
    assert_eq!(gate.exit_within(TIMEOUT), Some(0));
}

/// Commands may still read a pipe, as `check <(generate)` does.
#[test]
fn a_pipe_is_checked_but_not_run() {
    let folder = crate::support::temp_dir::TempDir::new();
    folder.write("crawlgate.yaml", CONFIG);
    let path = folder.path().join("p.yaml");
    replace_with_pipe(&path);
    let writer = std::thread::spawn({
        let path = path.clone();
        move || {
            // Read twice: to detect its kind, and to check it.
            for _ in 0..2 {
                std::fs::write(&path, policy("one", "deny")).unwrap();
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    });
    let output = crawlgate(folder.path(), "explain http://a.test/ --policy p.yaml", "");
    assert!(output.code == 0, "{output:?}");
    let _ = crawlgate(folder.path(), "explain http://a.test/ --policy p.yaml", "");
    writer.join().unwrap();
    let run = "run --config crawlgate.yaml --policy p.yaml";
    let output = crawlgate(folder.path(), run, "");
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.stderr.contains("not a regular file"), "{output:?}");
}

/// A list that takes long to compile: nothing else waits for it.
#[test]
fn a_slow_reload_is_shown_and_does_not_delay_the_end() {
    let config = format!("{CONFIG}timeouts: {{ drain: 1s }}\n");
    let mut gate = TestProxy::start(&config, &policy("one", "deny"));
    let hosts: String = (0..4_000_000).map(|n| format!("h{n}.test\n")).collect();
    gate.write("l.txt", &hosts);
    gate.write(
        "policy.yaml",
        "policy: 1\nname: l\nlists: { l: { kind: hosts, file: l.txt } }\n\
         rules: [{ id: l, forbid: { in: l } }]\n",
    );
    wait_until("it is read", || {
        gate.metric("crawlgate_policy_reload_start_timestamp_seconds") > 1e9
    });
    let ready = gate.admin("GET /readyz");
    assert_eq!(ready.status, 200);
    let begun = Instant::now();
    gate.signal("TERM");
    assert_eq!(gate.exit_within(TIMEOUT), Some(0));
    let ended = begun.elapsed();
    assert!(ended < Duration::from_secs(5), "{ended:?}");
    assert!(!gate.stderr().contains("policy l@"), "{}", gate.stderr());
}

/// Concurrent requests: each gets its response, and few attempts serve all of them.
#[test]
fn concurrent_reload_requests_are_all_answered() {
    let gate = TestProxy::start(
        &format!("{CONFIG}policy: {{ path: policy.yaml, watch: false }}\n"),
        &policy("one", "deny"),
    );
    gate.write("policy.yaml", &policy("two", "deny"));
    // Fewer than the 32 API requests that one client may have in progress.
    let askers: Vec<_> = (0..30)
        .map(|_| {
            let mut client = RawClient::connect(gate.admin);
            let head = format!(
                "POST /api/v1/reload HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n",
                gate.admin
            );
            std::thread::spawn(move || client.request(&head).json())
        })
        .collect();
    (0..10).for_each(|_| gate.signal("HUP"));
    for asker in askers {
        let answer = asker.join().expect("an answer");
        assert_eq!(answer["policy"], "two", "{answer}");
    }
    let metrics = gate.admin("GET /metrics").body;
    assert!(metrics.contains("crawlgate_policy_reloads_total{result=\"success\"} 2\n"));
    assert!(metrics.contains("crawlgate_policy_reloads_total{result=\"failure\"} 0\n"));
}

/// Two policies take turns while clients ask. Every answer speaks of the policy that made it, and none fails.
#[test]
fn each_request_during_reloads_is_evaluated_by_one_policy() {
    let turns = [policy("one", "deny"), policy("two", "gone")];
    let gate = TestProxy::start(
        &format!("{CONFIG}policy: {{ path: policy.yaml, watch: false }}\n"),
        &turns[0],
    );
    let site = ScriptedOrigin::ok();
    let site = SocketAddr::from((Ipv4Addr::LOCALHOST, site.port));
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let client = RawClient::connect(gate.proxy);
            let done = Arc::clone(&done);
            std::thread::spawn(move || ask_until(&done, client, site))
        })
        .collect();
    for turn in 1..=RELOADS {
        gate.write("policy.yaml", &turns[turn % 2]);
        let answer = gate.admin("POST /api/v1/reload").json();
        assert_eq!(
            (&answer["result"], &answer["policy"]),
            (&"loaded".into(), &["one", "two"][turn % 2].into())
        );
        if turn % 10 == 5 {
            gate.write("policy.yaml", "policy: 1\n  broken");
            assert_eq!(gate.admin("POST /api/v1/reload").status, 422);
        }
    }
    done.store(true, Ordering::Relaxed);
    let seen: Vec<[BTreeSet<String>; 2]> = clients
        .into_iter()
        .map(|c| c.join().expect("no request failed"))
        .collect();
    let revisions = seen.iter().flatten().all(|policies| policies.len() == 1);
    assert!(
        revisions,
        "each client met both policies, each with one revision: {seen:?}"
    );
    let metrics = gate.admin("GET /metrics").body;
    for (result, count) in [
        ("success", RELOADS + 1),
        ("failure", RELOADS / 10),
        ("unchanged", 0),
    ] {
        let line = format!("crawlgate_policy_reloads_total{{result=\"{result}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}");
    }
}

/// Asks for what both policies allow, what both refuse and what one of them refuses; what each policy called itself.
fn ask_until(done: &AtomicBool, mut client: RawClient, site: SocketAddr) -> [BTreeSet<String>; 2] {
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    while !done.load(Ordering::Relaxed) {
        for path in ["/page", "/refused", "/one", "/two"] {
            let answer = client.get(&format!("http://{site}{path}"));
            let Some(name) = answer.field("crawl-policy") else {
                assert_ne!(path, "/refused");
                assert_eq!(answer.status, 200, "{}", answer.head);
                assert_eq!(answer.body.as_str(), "ok", "{}", answer.head);
                continue;
            };
            let at = usize::from(name.starts_with("two@"));
            assert!(
                path == "/refused" || path == ["/one", "/two"][at],
                "{path}: {answer}"
            );
            assert_eq!(answer.status, [451, 410][at], "{}", answer.head);
            assert_eq!(
                answer.field("crawl-rule"),
                Some(["one", "two"][at]),
                "{answer}"
            );
            seen[at].insert(name.to_owned());
        }
        // Leaves the machine to the reloads.
        std::thread::sleep(Duration::from_millis(2));
    }
    seen
}

#[test]
fn systemd_is_notified_of_every_state() {
    let directory = crate::support::temp_dir::TempDir::new();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    fn report(socket: &std::os::unix::net::UnixDatagram) -> String {
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }
    let mut gate = TestProxy::start_with(CONFIG, &policy("one", "deny"), |command| {
        command.env("NOTIFY_SOCKET", &path);
    });
    let ready = report(&socket);
    assert!(ready.contains("READY=1"), "{ready}");
    assert!(ready.contains("STATUS=policy one@"), "{ready}");
    gate.write("policy.yaml", &policy("two", "deny"));
    gate.signal("HUP");
    let reloading = report(&socket);
    assert!(reloading.contains("RELOADING=1"), "{reloading}");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    let ready = report(&socket);
    assert!(ready.contains("READY=1"), "{ready}");
    assert!(ready.contains("STATUS=policy two@"), "{ready}");
    gate.write("policy.yaml", "policy: 1\nrules: no\n");
    gate.signal("HUP");
    assert!(report(&socket).contains("RELOADING=1"));
    let ready = report(&socket);
    assert!(ready.contains("READY=1"), "{ready}");
    assert!(ready.contains("two@"), "{ready}");
    assert!(
        ready.contains(" stays active: the last reload found 3 errors"),
        "{ready}"
    );
    gate.signal("TERM");
    assert!(report(&socket).contains("STOPPING=1"));
    assert_eq!(gate.wait_for_exit(), Some(0));
}

#[test]
fn systemd_gets_watchdog_messages() {
    // As in a container: the socket's name is no path.
    let name = format!("crawlgate-alive-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
    let socket = UnixDatagram::bind_addr(&address).expect("a socket");
    socket.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let _gate = TestProxy::start_with(CONFIG, &policy("one", "deny"), |command| {
        command
            .env("NOTIFY_SOCKET", format!("@{name}"))
            .env("WATCHDOG_USEC", "100000");
    });
    let mut alive = 0;
    while alive < 3 {
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer).expect("a message in time");
        alive += usize::from(buffer[..length].starts_with(b"WATCHDOG=1"));
    }
}

#[test]
fn a_configuration_that_was_edited_is_reported() {
    let gate = TestProxy::start(CONFIG, &policy("one", "deny"));
    let text = std::fs::read_to_string(gate.file("crawlgate.yaml")).unwrap();
    gate.write("crawlgate.yaml", &format!("{text}# edited\n"));
    wait_until("the status warns", || {
        let warnings = gate.admin("GET /api/v1/status").json()["warnings"].to_string();
        warnings.contains("configuration: the file has changed since the start")
    });
    gate.write("crawlgate.yaml", &text);
    wait_until("it is as before", || {
        !gate
            .admin("GET /readyz")
            .body
            .contains("warn configuration")
    });
}
