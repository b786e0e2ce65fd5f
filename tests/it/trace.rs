//! Traces: which parts of a client's trace context are used, what the client receives, and that origins receive none of it.

pub(crate) mod collector;
mod exported;

use crate::effects::Site;
use crate::origin_tls::certs::Authority;
use crate::support::client::Response;
use crate::support::client::get_with;
use crate::support::origin::ScriptedOrigin;
use crate::support::policy::allow_all;
use crate::support::proxy::CONFIG;
use crate::support::proxy::TestProxy;
use crate::support::wait::wait_until;
use crate::tunnel::inside::{Inside, trusting};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// All clients may trace.
const TRACING: &str = "crawlers: [{ name: lab, sources: [127.0.0.0/8], may: [trace] }]\n";

const RULES: &str = "  - { id: closed, forbid: { under: /closed } }\n";

fn traceparent(flags: &str) -> String {
    format!("traceparent: 00-{TRACE}-{PARENT}-{flags}\r\n")
}

fn site(config: &str) -> Site {
    Site::with_config(&format!("{CONFIG}{config}"), &allow_all("", RULES), |_| {
        None
    })
}

fn is_trace_id(text: &str) -> bool {
    text.len() == 32
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        && text.bytes().any(|b| b != b'0')
}

#[track_caller]
fn trace_id(answer: &Response) -> &str {
    answer.value("crawl-trace-id")
}

#[test]
fn a_permitted_crawler_gets_its_trace_id_and_the_log_has_it() {
    let config = CONFIG.replace(
        "{ decisions: log.json }",
        "{ decisions: log.json, allows: 0 }",
    );
    let site = Site::with_config(&format!("{config}{TRACING}"), &allow_all("", RULES), |_| {
        None
    });
    let wish = "Crawl-Trace: 1\r\n";
    let passed = site.get_with("/x", wish);
    let refused = site.get_with("/closed/x", wish);
    let followed = site.get_with("/x", &format!("{wish}{}", traceparent("00")));
    assert_eq!(
        (passed.status, refused.status, followed.status),
        (200, 451, 200)
    );
    for answer in [&passed, &refused] {
        assert!(is_trace_id(trace_id(answer)), "{}", answer);
    }
    assert_ne!(trace_id(&passed), trace_id(&refused));
    assert_eq!(trace_id(&followed), TRACE);
    // A line that will be looked for is written, though the share of allowed requests is 0.
    let lines = site.decisions(3);
    let traces: Vec<&str> = lines
        .iter()
        .map(|line| line["trace"].as_str().unwrap())
        .collect();
    assert_eq!(traces, [trace_id(&passed), trace_id(&refused), TRACE]);
    let text = site.gate.decision_log();
    assert!(
        text.lines()
            .all(|line| line.contains(",\"trace\":\"") && line.ends_with("\"}")),
        "{text}"
    );
}

#[test]
fn other_clients_get_no_trace_id_but_the_log_has_it() {
    let site = site("");
    let plain = site.get("/x");
    let asked = site.get_with("/x", "Crawl-Trace: 1\r\n");
    let followed = site.get_with("/x", &format!("Crawl-Trace: 1\r\n{}", traceparent("01")));
    let garbled = site.get_with("/x", "traceparent: 00-xyz\r\n");
    let twice = site.get_with("/x", &traceparent("01").repeat(2));
    for answer in [&plain, &asked, &followed, &garbled, &twice] {
        assert_eq!((answer.status, trace_id(answer)), (200, ""));
    }
    let lines = site.decisions(5);
    let traces: Vec<Option<&str>> = lines.iter().map(|line| line["trace"].as_str()).collect();
    assert_eq!(traces, [None, None, Some(TRACE), None, None]);
    // `null` is for the keys of the contract.
    assert!(lines[0].get("trace").is_none(), "{}", lines[0]);
}

/// The trace context of a client, in cases that would be visible to origins.
fn fields() -> String {
    format!(
        "{}TraceState: vendor=1,other=2\r\nBaggage: user=7\r\nCrawl-Trace: 1\r\nX-Kept: 1\r\n",
        traceparent("01")
    )
}

#[track_caller]
fn check_clean(head: &str) {
    let head = head.to_lowercase();
    assert!(head.contains("x-kept: 1"), "{head}");
    for name in [
        "traceparent",
        "tracestate",
        "baggage",
        "crawl-",
        TRACE,
        PARENT,
    ] {
        assert!(!head.contains(name), "{name}: {head}");
    }
}

#[test]
fn no_trace_reaches_an_origin_in_the_clear() {
    let site = site(TRACING);
    assert_eq!(trace_id(&site.get_with("/x", &fields())), TRACE);
    let heads = site.origin.heads();
    assert_eq!(heads.len(), 1);
    check_clean(&heads[0]);
}

#[test]
fn no_trace_reaches_an_origin_through_tls() {
    let server = Authority::new().server(&["a.test"]);
    let origin = ScriptedOrigin::tls(server, |_| {
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into()
    });
    let tls = "tls: { intercept: true, verify_upstream: false, ca: { cert: ca.pem, key: ca.key }, bundle: bundle.pem }";
    let ports = format!(
        "  connect_ports: [1-65535]\n  tls_ports: [{}]\n",
        origin.port
    );
    let gate = TestProxy::start(
        &format!("{CONFIG}{ports}{TRACING}{tls}\n"),
        &allow_all("", RULES),
    );
    let config = trusting(&gate);
    let authority = format!("a.test:{}", origin.port);
    let mut inside = Inside::try_open(gate.proxy, &authority, "a.test", &config).unwrap();
    inside.send(format!(
        "GET /x HTTP/1.1\r\nHost: {authority}\r\n{}\r\n",
        fields()
    ));
    let (head, _) = inside.answer();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains(&format!("crawl-trace-id: {TRACE}")), "{head}");
    wait_until("the origin notes it", || origin.requests().len() == 1);
    let connections = origin.connection_logs();
    check_clean(
        &connections
            .iter()
            .flat_map(|c| &c.heads)
            .next()
            .unwrap()
            .clone(),
    );
}

#[test]
fn other_clients_do_not_learn_of_a_trace() {
    let site = site(TRACING);
    let url = format!("http://a.test:{}/x", site.origin.port);
    assert_eq!(
        trace_id(&get_with(site.gate.proxy, &url, &traceparent("01"))),
        "",
        "it was not asked for"
    );
}
