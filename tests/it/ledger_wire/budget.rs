//! Budgets that ask the ledger: what is known is fetched on where a new URL is one too many; and both outlive the proxy.

use std::future::pending;
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::config::policy::open_and_test;
use crawlgate::server::Server;
use tokio::runtime::Builder;

use super::{LedgerBench, policy, settings};
use crate::support::client::Response;
use crate::support::client::get_with;
use crate::support::origin::ScriptedOrigin;
use crate::support::proxy::CONFIG;
use crate::support::temp_dir::TempDir;

const DAY: Duration = Duration::from_secs(86_400);

#[track_caller]
fn is_used_up(answer: &Response, reported: &str) {
    let output = (
        answer.status,
        answer.value("crawl-status"),
        answer.value("crawl-reason"),
    );
    assert_eq!(output, (451, "REJECTED_BUDGET", "budget"), "{}", answer);
    assert!(answer.body.contains(reported), "{}", answer);
}

#[test]
fn a_known_url_passes_where_a_new_one_is_refused() {
    let reported = "today's new URLs of this crawler are used up";
    let bench = LedgerBench::new(
        &policy("  budget: { new_urls: 2, per: crawler }", ""),
        |_| None,
    );
    bench.get("/1");
    bench.get("/2");
    for _ in 0..2 {
        is_used_up(&bench.get_with("/3", ""), reported);
        assert_eq!(bench.get_with("/1", "").status, 200);
        assert_eq!(bench.get_with("/2", "").status, 200);
    }
    assert!(bench.record("news", "/3").is_none());
    // What one crawler knows is new to another, which has a budget of its own.
    for (path, status) in [("/2", 200), ("/3", 200), ("/1", 451)] {
        assert_eq!(
            bench.ask_as("shop", &bench.url("a.test", path), "").status,
            status,
            "{path}"
        );
    }
    bench.manual_clock.advance(DAY);
    bench.get("/3");
    bench.get("/4");
    is_used_up(&bench.get_with("/5", ""), reported);
}

#[test]
fn a_restart_keeps_budgets_and_records() {
    let origin = ScriptedOrigin::ok();
    let folder = TempDir::new();
    let (clock, manual_clock) = Clock::manual();
    folder.write(
        "policy.yaml",
        policy("  budget: { new_urls: 1, urls: 3, per: host }", ""),
    );
    let config = CONFIG.replace("log.json", "none") + "store: { path: store }\n";
    let settings = settings(folder.write("crawlgate.yaml", config));
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let start = || {
        let compiled = open_and_test(&settings.policy.origin)
            .unwrap_or_else(|problems| panic!("{problems:?}"));
        let started =
            async { Server::start_with(&settings, compiled.policy.into(), clock.clone(), None) };
        runtime.block_on(started).unwrap()
    };
    fn get(origin: &ScriptedOrigin, server: &Server, path: &str) -> Response {
        get_with(
            server.proxy[0],
            &format!("http://a.test:{}{path}", origin.port),
            "",
        )
    }
    let new = "today's new URLs of this host are used up";
    let all = "today's requests for this host are used up";

    let server = start();
    assert_eq!(get(&origin, &server, "/1").status, 200);
    is_used_up(&get(&origin, &server, "/2"), new);
    runtime.block_on(server.drain(pending::<()>()));
    assert!(folder.path().join("store/budgets.json").exists());

    let server = start();
    is_used_up(&get(&origin, &server, "/2"), new);
    for _ in 0..2 {
        assert_eq!(get(&origin, &server, "/1").status, 200);
    }
    is_used_up(&get(&origin, &server, "/1"), all);
    runtime.block_on(server.drain(pending::<()>()));

    manual_clock.advance(DAY);
    let server = start();
    assert_eq!(get(&origin, &server, "/2").status, 200);
    is_used_up(&get(&origin, &server, "/3"), new);
    runtime.block_on(server.drain(pending::<()>()));
}
