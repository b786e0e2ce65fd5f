//! Name resolution: the responses of a name server, the number of queries, and what it can never cause.

use std::net::Ipv4Addr;
use std::thread::{scope, sleep};
use std::time::Duration;

use crate::support::proxy::TestProxy;

use super::{Refused, check_refused, config, get, status, with_rule};
use crate::support::dns::{DnsAnswer, DnsServer};
use crate::support::origin::ScriptedOrigin;
use crate::support::wait::wait_until;

const HOME: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// An address that the address check may allow; the policy refuses it, so that no request leaves this machine.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const NXDOMAIN: u8 = 3;
const SERVFAIL: u8 = 2;

fn gate(server: &DnsServer, egress: &str) -> TestProxy {
    let resolver = format!(
        "  resolver: {{ servers: [\"{}\"] }}\n{egress}",
        server.address
    );
    TestProxy::start(
        &config(&resolver, "timeouts: { dns: 2s }"),
        &with_rule("address: 192.0.2.0/24"),
    )
}

#[test]
fn responses_of_a_name_server_become_reasons() {
    let failed = Refused {
        status: 502,
        reason: "upstream_dns",
        error: "dns_error",
        code: Some(680),
    };
    let prohibited = Refused {
        status: 403,
        reason: "ip_prohibited",
        error: "destination_ip_prohibited",
        code: None,
    };
    let server = DnsServer::start(|name: &str, _: usize| match name {
        "nxdomain.test" => DnsAnswer::Code(NXDOMAIN),
        "servfail.test" => DnsAnswer::Code(SERVFAIL),
        "refused.test" => DnsAnswer::Code(5),
        "empty.test" => DnsAnswer::Addresses(vec![]),
        "silent.test" => DnsAnswer::Silence,
        "alias.test" => DnsAnswer::Alias("intra.test", Ipv4Addr::new(10, 0, 0, 1)),
        "metadata.test" => DnsAnswer::Addresses(vec![Ipv4Addr::new(169, 254, 169, 254)]),
        "loopback.test" => DnsAnswer::Addresses(vec![HOME]),
        "unspecified.test" => DnsAnswer::Addresses(vec![Ipv4Addr::UNSPECIFIED]),
        other => panic!("{other}"),
    });
    let gate = gate(&server, "");
    let origin = ScriptedOrigin::ok();
    for (name, want) in [
        ("nxdomain.test", failed),
        ("servfail.test", failed),
        ("refused.test", failed),
        ("empty.test", failed),
        (
            "silent.test",
            Refused {
                status: 504,
                error: "dns_timeout",
                ..failed
            },
        ),
        ("alias.test", prohibited),
        ("metadata.test", prohibited),
        ("loopback.test", prohibited),
        ("unspecified.test", prohibited),
    ] {
        check_refused(&get(gate.proxy, &origin.url(name, "/")), want, name);
        let asked = server.queries(name);
        assert!(asked > 0, "{name}");
        // A failure is cached as well.
        let again = get(gate.proxy, &origin.url(name, "/"));
        check_refused(&again, want, name);
        assert_eq!(server.queries(name), asked, "{name}");
        // Its Retry-After is the remaining time; a prohibited address stays prohibited.
        let reported = again
            .lines()
            .find_map(|line| line.strip_prefix("retry-after: ")?.parse().ok());
        let soon = 1..=5_u64;
        let later = 20..=30;
        let holds = if want.status == 403 {
            reported.is_none()
        } else if matches!(name, "nxdomain.test" | "empty.test") {
            reported.is_some_and(|reported| later.contains(&reported))
        } else {
            reported.is_some_and(|reported| soon.contains(&reported))
        };
        assert!(holds, "{name}: {reported:?}");
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_name_is_looked_up_once_in_any_spelling() {
    let server = DnsServer::start(|_, _| DnsAnswer::Addresses(vec![HOME]));
    let gate = gate(&server, "  allow_loopback: true");
    let origin = ScriptedOrigin::ok();
    for host in ["a.test", "A.Test", "a.test.", "A.TEST.", "a.test"] {
        assert_eq!(
            status(&get(gate.proxy, &origin.url(host, "/"))),
            200,
            "{host}"
        );
    }
    assert_eq!(server.queries("a.test"), 1);
    // The connection is also the same.
    assert_eq!(origin.connections(), 1);
}

#[test]
fn concurrent_requests_share_one_look_up() {
    let server = DnsServer::start(|_, _| {
        sleep(Duration::from_millis(100));
        DnsAnswer::Addresses(vec![HOME])
    });
    let gate = gate(&server, "  allow_loopback: true");
    let origin = ScriptedOrigin::ok();
    let url = origin.url("a.test", "/");
    scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert_eq!(status(&get(gate.proxy, &url)), 200));
        }
    });
    assert_eq!((server.queries("a.test"), origin.requests().len()), (1, 16));
}

#[test]
fn an_address_among_others_is_dialled_only_if_it_may_be() {
    let server = DnsServer::start(|_, _| DnsAnswer::Addresses(vec![NOWHERE, HOME]));
    let gate = gate(
        &server,
        "  allow_private: [ { host: mixed.test, cidr: 192.0.2.0/24 } ]",
    );
    let origin = ScriptedOrigin::ok();
    let answer = get(gate.proxy, &origin.url("mixed.test", "/"));
    assert!(answer.contains("crawl-reason: rule\r\n"), "{answer}");
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_name_that_turns_to_loopback_is_never_followed() {
    // DNS rebinding: only the first response contains an allowed address.
    let server = DnsServer::start(|_, before| {
        DnsAnswer::Addresses(vec![if before == 0 { NOWHERE } else { HOME }])
    });
    let gate = gate(
        &server,
        "  allow_private: [ { host: turns.test, cidr: 192.0.2.0/24 } ]",
    );
    let origin = ScriptedOrigin::ok();
    let url = origin.url("turns.test", "/");
    let first = get(gate.proxy, &url);
    assert!(first.contains("crawl-reason: rule\r\n"), "{first}");
    assert_eq!(server.queries("turns.test"), 1);
    // A response with a TTL of 0 is cached for five seconds; then the name has changed.
    wait_until("the name is asked for again", || {
        let answer = get(gate.proxy, &url);
        assert!(matches!(status(&answer), 403 | 451), "{answer}");
        answer.contains("crawl-reason: ip_prohibited\r\n")
    });
    assert_eq!((server.queries("turns.test"), origin.connections()), (2, 0));
}
