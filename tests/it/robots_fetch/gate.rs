//! The whole proxy before an origin with a robots.txt: what crawlers get that never read it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::origin::{Origin, Reply, answer};
use crate::support::command::crawlgate;
use crate::support::folder::Folder;
use crate::support::gate::Gate;

const FILE: &str =
    "User-agent: *\nDisallow: /private\nCrawl-delay: 0.2\n\nUser-agent: vip\nDisallow: /vip\n";

pub(super) fn gate(robots: &str, rules: &str) -> Gate {
    let config = "listen: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0 }\n\
                  policy: { path: policy.yaml, watch: false }\nlogs: { decisions: none }\n\
                  egress: { allow_loopback: true, ports: [1-65535], hosts: { a.test: 127.0.0.1 } }\n";
    let policy = format!(
        "policy: 1\nname: p\noptions: {{ disposition: allow, robots: {robots}, politeness: {{ delay: 0s, \
         jitter: 1.0..1.0, concurrency: 100 }} }}\nrules: [{rules}]\n"
    );
    Gate::start(config, &policy)
}

/// A site with a robots.txt and pages.
fn site() -> Origin {
    Origin::start(|head, _, _| match head.starts_with("GET /robots.txt ") {
        true => Reply::Bytes(answer(200, "Content-Type: text/plain\r\n", FILE)),
        false => Reply::Bytes(answer(200, "Content-Type: text/html\r\n", "page")),
    })
}

/// A site whose robots.txt has this status.
fn site_with(status: u16) -> Origin {
    Origin::start(
        move |head, _, _| match head.starts_with("GET /robots.txt ") {
            true => Reply::Bytes(answer(status, "", "")),
            false => Reply::Bytes(answer(200, "", "page")),
        },
    )
}

/// Asks on a connection of its own; the whole answer.
pub(super) fn ask(proxy: SocketAddr, url: &str, agent: &str) -> String {
    let mut socket = TcpStream::connect(proxy).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let host = url.split('/').nth(2).unwrap();
    let agent = if agent.is_empty() {
        String::new()
    } else {
        format!("User-Agent: {agent}\r\n")
    };
    write!(
        socket,
        "GET {url} HTTP/1.1\r\nHost: {host}\r\n{agent}Connection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let _ = socket.shutdown(Shutdown::Both);
    text
}

pub(super) fn check(answer: &str, status: u16, parts: &[&str]) {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{answer}"
    );
    for part in parts {
        assert!(answer.contains(part), "{part} in {answer}");
    }
}

#[test]
fn robots_holds_for_crawlers_that_do_not_read_it() {
    let (origin, gate) = (site(), gate("{}", ""));
    let ask = |path, agent| ask(gate.proxy, &origin.url("a.test", path), agent);
    check(&ask("/open", ""), 200, &["page"]);
    check(
        &ask("/private/1", "Scrapy/2.19 (+https://scrapy.org)"),
        451,
        &[
            "crawl-status: REJECTED_ROBOTS_TXT",
            "crawl-reason: robots_txt",
            "crawl-retry: policy-change",
            "crawl-code: 740",
            "details=\"robots_txt; line=2\"",
            "\"stage\":\"robots\"",
            "line 2 of the host's robots.txt",
        ],
    );
    check(&ask("/private/1", "VIP/1.0"), 200, &[]);
    check(&ask("/vip", "vip"), 451, &["line=6"]);
    let paths: Vec<String> = origin
        .heads()
        .iter()
        .map(|head| head.split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(paths, ["/robots.txt", "/open", "/private/1"]);
}

#[test]
fn the_policy_names_the_agent() {
    let (origin, gate) = (site(), gate("{ agent: vip }", ""));
    check(
        &ask(gate.proxy, &origin.url("a.test", "/private"), "other"),
        200,
        &[],
    );
    check(
        &ask(gate.proxy, &origin.url("a.test", "/vip"), "other"),
        451,
        &[],
    );
    assert!(
        origin.heads()[0]
            .to_ascii_lowercase()
            .contains("user-agent: vip crawlgate/")
    );
}

#[test]
fn the_file_itself_comes_from_memory() {
    let (origin, gate) = (site(), gate("{}", ""));
    for _ in 0..3 {
        check(
            &ask(gate.proxy, &origin.url("a.test", "/robots.txt"), ""),
            200,
            &[FILE, "text/plain"],
        );
    }
    assert_eq!(origin.heads().len(), 1);
    for (status, answered) in [(404, 404), (403, 403), (500, 503)] {
        let origin = site_with(status);
        check(
            &ask(gate.proxy, &origin.url("a.test", "/robots.txt"), ""),
            answered,
            &[],
        );
    }
}

#[test]
fn a_policy_that_does_not_obey_asks_for_nothing() {
    let (origin, gate) = (site(), gate("{ obey: false }", ""));
    check(
        &ask(gate.proxy, &origin.url("a.test", "/private"), ""),
        200,
        &["page"],
    );
    check(
        &ask(gate.proxy, &origin.url("a.test", "/robots.txt"), ""),
        200,
        &[FILE],
    );
    let paths: Vec<bool> = origin
        .heads()
        .iter()
        .map(|head| head.starts_with("GET /private "))
        .collect();
    assert_eq!(paths, [true, false]);
}

#[test]
fn a_rule_may_obey_for_some_urls_alone() {
    let rule = "{ id: mine, when: { under: /private/mine }, then: allow, set: { robots: { obey: false } } }";
    let (origin, gate) = (site(), gate("{}", rule));
    check(
        &ask(gate.proxy, &origin.url("a.test", "/private/mine"), ""),
        200,
        &["page"],
    );
    check(
        &ask(gate.proxy, &origin.url("a.test", "/private/x"), ""),
        451,
        &[],
    );
}

#[test]
fn what_cannot_be_had_is_later_unless_the_policy_allows() {
    let origin = site_with(500);
    let strict = gate("{}", "");
    let answer = ask(strict.proxy, &origin.url("a.test", "/"), "");
    check(
        &answer,
        503,
        &[
            "crawl-reason: robots_unreachable",
            "crawl-retry: after",
            "retry-after: 60",
        ],
    );
    let lax = gate("{ on_unreachable: allow }", "");
    check(
        &ask(lax.proxy, &origin.url("a.test", "/"), ""),
        200,
        &["page"],
    );
    let absent = site_with(404);
    check(
        &ask(strict.proxy, &absent.url("a.test", "/"), ""),
        200,
        &["page"],
    );
}

#[test]
fn a_host_that_refuses_connections_is_told_as_such() {
    let gate = gate("{}", "");
    let free = std::net::TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let answer = ask(gate.proxy, &format!("http://a.test:{free}/"), "");
    check(&answer, 502, &["crawl-reason: upstream_connect"]);
}

#[test]
fn crawl_delay_slows_the_pace_up_to_the_policys_cap() {
    let origin = site();
    let timed = |robots: &str| {
        let gate = gate(robots, "");
        ask(gate.proxy, &origin.url("a.test", "/1"), "");
        let began = std::time::Instant::now();
        for path in ["/2", "/3", "/4"] {
            check(&ask(gate.proxy, &origin.url("a.test", path), ""), 200, &[]);
        }
        began.elapsed()
    };
    let (whole, capped) = (timed("{}"), timed("{ crawl_delay_cap: 1ms }"));
    assert!(whole >= Duration::from_millis(590), "{whole:?}");
    assert!(capped < Duration::from_millis(400), "{capped:?}");
}

/// `crawlgate robots fetch` against the same site.
#[test]
fn the_command_fetches_and_says_what_it_means() {
    let folder = Folder::new();
    let hosts =
        "egress: { allow_loopback: true, ports: [1-65535], hosts: { a.test: 127.0.0.1 } }\n";
    folder.write("c.yaml", hosts);
    folder.write(
        "policy.yaml",
        "policy: 1\nname: p\noptions: { disposition: allow }\n",
    );
    let run = |url: &str, format: &str| {
        let arguments = [
            "robots", "fetch", url, "--agent", "bot", "--config", "c.yaml", "--format", format,
        ];
        crawlgate(folder.path(), &arguments, "")
    };
    let origin = site();
    let said = run(&origin.url("a.test", "/private/x"), "text");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    for part in [
        "/robots.txt\n",
        "outcome  file, status 200\n",
        "the rules of the file apply",
        "valid    18h",
        "disallow",
    ] {
        assert!(said.out.contains(part), "{part} in {}", said.out);
    }
    let said = run(&origin.url("a.test", "/private/x"), "json");
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        (&json["standing"], &json["ruling"]["line"]),
        (&"rules".into(), &2.into())
    );
    assert_eq!(
        (&json["sitemaps"], &json["host"]),
        (&serde_json::json!([]), &serde_json::json!([]))
    );
    let broken = site_with(503);
    let said = run(&broken.url("a.test", "/"), "json");
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        (said.code, &json["standing"], &json["outcome"]),
        (1, &"unknown".into(), &"server_error".into())
    );
    for key in [
        "sitemaps",
        "visit_time",
        "clean_param",
        "host",
        "bytes",
        "ruling",
    ] {
        assert_eq!(
            json.get(key),
            Some(&serde_json::Value::Null),
            "{key} is there"
        );
    }
}
