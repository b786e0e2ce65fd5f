//! The limit of open files: raised at the start, and shared out so that it is never exhausted.

use std::process::Command;

use crate::support::client::{RawClient, get};
use crate::support::origin::{ScriptedOrigin, response};
use crate::support::policy::allow_all;
use crate::support::proxy::{CONFIG, TestProxy};
use crate::support::wait::wait_until;

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let gate = TestProxy::start_with_ulimit("-S -n 256", CONFIG, &allow_all("", "  []"));
    let hard = Command::new("sh")
        .args(["-c", "ulimit -H -n"])
        .output()
        .unwrap();
    let hard = String::from_utf8(hard.stdout).unwrap();
    if let Ok(hard) = hard.trim().parse::<f64>() {
        assert_eq!(gate.metric("process_max_fds"), hard);
    }
    assert!(gate.metric("process_max_fds") > 256.0);
}

/// All connections that the limit allows are idle, and a second flood waits: clients are told, and probes answered.
#[test]
fn at_the_limit_clients_get_503_and_probes_are_answered() {
    let origin = ScriptedOrigin::respond(|_| response(200, "", "ok"));
    for files in [64, 256] {
        let gate =
            TestProxy::start_with_ulimit(&format!("-n {files}"), CONFIG, &allow_all("", "  []"));
        wait_until("the limit is reported with its cause and cure", || {
            let log = gate.stderr();
            log.contains(&format!("the limit of open files ({files})"))
                && log.contains("limits.connections (10000)")
                && log.contains("LimitNOFILE=")
        });
        let url = format!("http://a.test:{}/", origin.port);
        // Each connection is used, so that it has a connection to the origin, too.
        let mut open = Vec::new();
        let refused = loop {
            assert!(open.len() < files, "more connections than open files");
            let mut client = RawClient::connect(gate.proxy);
            client.send_get(&url, "");
            let response = client.read_response();
            if response.status != 200 {
                break response;
            }
            open.push(client);
        };
        refused.check(503, &["crawl-reason: overloaded", "retry-after: "]);
        assert!(open.len() >= files / 8, "only {} of {files}", open.len());
        assert_eq!(
            gate.counter("crawlgate_connections_limit"),
            open.len() as u64
        );
        // Half-open connections to both listeners.
        let mut flood = Vec::new();
        for _ in 0..files {
            flood.push(RawClient::connect(gate.proxy));
            let mut admin = RawClient::connect(gate.admin);
            admin.send("GET /healthz HT");
            flood.push(admin);
        }
        assert_eq!(gate.admin("GET /healthz").status, 200);
        assert!(gate.metric("process_open_fds") <= files as f64);
        // The connections that were there first still work.
        for client in &mut open {
            assert_eq!(client.get(&url).status, 200);
        }
        drop((open, flood));
        wait_until("there is room again", || {
            get(gate.proxy, &url).status == 200
        });
    }
}
