//! The choice among the addresses of a host, and the time that dead addresses take.

use std::net::IpAddr;
use std::time::Instant;

use super::{Refused, check_refused, gate, get, status};
use crate::support::origin::{ScriptedOrigin, UnresponsiveListener};
use crate::support::wait::TIMEOUT;

/// Addresses next to that of the origins, where nothing listens or a listener is silent.
const OTHERS: [&str; 2] = ["127.0.0.3", "127.0.0.2"];

#[derive(Clone, Copy, Debug)]
enum Dead {
    Refusing,
    Silent,
}

fn dead(how: Dead, port: u16) -> Vec<UnresponsiveListener> {
    let ips = OTHERS.iter().map(|ip| ip.parse::<IpAddr>().unwrap());
    match how {
        Dead::Refusing => vec![],
        Dead::Silent => ips.map(|ip| UnresponsiveListener::bind(ip, port)).collect(),
    }
}

#[test]
fn a_dead_address_before_a_live_one_costs_no_answer() {
    // If the attempts were sequential, a silent address would take longer than the client waits.
    let patient = "timeouts: { connect: 60s, connect_total: 60s }";
    for how in [Dead::Refusing, Dead::Silent] {
        let origin = ScriptedOrigin::ok();
        let _dead = dead(how, origin.port);
        let gate = gate("{ a.test: [127.0.0.3, 127.0.0.2, 127.0.0.1] }", patient);
        let answer = get(gate.proxy, &origin.url("a.test", "/"));
        assert!(status(&answer) == 200, "{how:?}: {answer}");
        assert!(answer.ends_with("\r\n\r\nok"), "{how:?}: {answer}");
        assert_eq!(origin.requests().len(), 1, "{how:?}");
    }
}

#[test]
fn a_host_without_a_live_address_is_reported_with_the_cause() {
    let refused = Refused {
        status: 502,
        reason: "upstream_connect",
        error: "connection_refused",
        code: Some(612),
    };
    let timeout = Refused {
        status: 504,
        error: "connection_timeout",
        ..refused
    };
    let each = "timeouts: { connect: 150ms, connect_total: 60s }";
    let total = "timeouts: { connect: 60s, connect_total: 150ms }";
    for (how, timeouts, hosts, want) in [
        (Dead::Refusing, each, "[127.0.0.2]", refused),
        (Dead::Refusing, total, "[127.0.0.3, 127.0.0.2]", refused),
        (Dead::Silent, each, "[127.0.0.2]", timeout),
        (Dead::Silent, each, "[127.0.0.3, 127.0.0.2]", timeout),
        (Dead::Silent, total, "[127.0.0.2]", timeout),
        (Dead::Silent, total, "[127.0.0.3, 127.0.0.2]", timeout),
    ] {
        // The listener occupies the port, at an address that the host does not have.
        let origin = ScriptedOrigin::ok();
        let _dead = dead(how, origin.port);
        let gate = gate(&format!("{{ a.test: {hosts} }}"), timeouts);
        let began = Instant::now();
        let answer = get(gate.proxy, &origin.url("a.test", "/"));
        check_refused(&answer, want, &format!("{how:?} {timeouts} {hosts}"));
        assert!(began.elapsed() < TIMEOUT, "{how:?} {timeouts} {hosts}");
        assert_eq!(origin.connections(), 0);
    }
}
