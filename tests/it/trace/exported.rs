//! Spans as a collector gets them from the running proxy.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crawlgate::otlp::message::{OtlpSpan, SpanKind, Value};

use crate::effects::Site;
use crate::origin_tls::certs::Authority;
use crate::support::origin::OK;
use crate::support::origin::ScriptedOrigin;
use crate::support::policy::allow_all;
use crate::support::proxy::CONFIG;
use crate::support::wait::wait_until;

use super::collector::{Answers, TestCollector, hex, value};
use super::{PARENT, RULES, TRACE, TRACING, trace_id, traceparent};

/// A proxy whose spans go to this collector.
fn site(collector: &TestCollector, otlp: &str, config: &str) -> Site {
    bench_under(collector, otlp, config, &allow_all("", RULES))
}

fn bench_under(collector: &TestCollector, otlp: &str, config: &str, policy: &str) -> Site {
    let endpoint = format!("endpoint: \"http://127.0.0.1:{}\"", collector.port);
    let config = format!("{CONFIG}{config}telemetry: {{ otlp: {{ {endpoint}{otlp} }} }}\n");
    Site::with_config(&config, policy, |path| {
        path.starts_with("/slow").then(|| {
            std::thread::sleep(Duration::from_millis(60));
            OK.to_owned()
        })
    })
}

fn took(span: &OtlpSpan) -> Duration {
    Duration::from_nanos(span.end_time_unix_nano - span.start_time_unix_nano)
}

/// Asserts that the parts of a request belong to it and lie inside it; returns their names in the order of their start.
#[track_caller]
fn check_parts(collector: &TestCollector, request: &OtlpSpan) -> Vec<String> {
    let parts = collector.parts(request);
    let mut ids = BTreeSet::from([request.span_id.clone()]);
    for part in &parts {
        assert_eq!(part.trace_id, request.trace_id);
        assert_eq!(part.kind, i32::from(SpanKind::Internal));
        assert!(ids.insert(part.span_id.clone()), "{part:?}");
        assert!(part.span_id.len() == 8, "{part:?}");
        let inside = request.start_time_unix_nano <= part.start_time_unix_nano
            && part.start_time_unix_nano <= part.end_time_unix_nano
            && part.end_time_unix_nano <= request.end_time_unix_nano;
        assert!(inside, "{part:#?} of {request:#?}");
    }
    parts.into_iter().map(|part| part.name).collect()
}

#[test]
fn a_request_is_a_span_with_its_parts_inside() {
    let collector = TestCollector::start(Answers::Takes);
    let paced = allow_all("", RULES).replace("delay: 0s", "delay: 2s");
    let otlp = ", share: 1, service: crawl-7, headers: { authorization: Bearer s3cret }";
    let site = bench_under(&collector, otlp, TRACING, &paced);
    let before = std::time::SystemTime::now();
    assert_eq!(site.get_with("/slow?q=1", &traceparent("01")).status, 200);
    assert_eq!(site.get_with("/x", "").status, 200);
    let requests = collector.requests(2);
    let first = requests
        .iter()
        .find(|span| hex(&span.trace_id) == TRACE)
        .expect("the crawler's trace");
    let second = requests
        .iter()
        .find(|span| hex(&span.trace_id) != TRACE)
        .expect("a trace of its own");

    assert_eq!(
        (hex(&first.parent_span_id).as_str(), first.flags),
        (PARENT, 0x301)
    );
    assert_eq!((second.parent_span_id.len(), second.flags), (0, 0x101));
    assert_eq!(first.kind, i32::from(SpanKind::Server));
    assert_eq!(
        check_parts(&collector, first),
        ["decide", "connect", "first_byte"]
    );
    // The connection is reused, and the host's turn comes later.
    assert_eq!(
        check_parts(&collector, second),
        ["decide", "hold", "first_byte"]
    );
    let slow = &collector.parts(first)[2];
    let held = &collector.parts(second)[1];
    assert!(took(slow) >= Duration::from_millis(55), "{slow:?}");
    // The turn comes 2 s after the first request was sent, however late the second one came.
    let turn = slow.start_time_unix_nano + 1_990_000_000;
    assert!(held.end_time_unix_nano >= turn, "{slow:?} {held:?}");
    assert!(took(second) >= took(held));
    let began = Duration::from_nanos(first.start_time_unix_nano);
    let since = before.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(began + Duration::from_millis(5) >= since && began < since + Duration::from_secs(20));

    let line = &site.decisions(2)[0];
    for (key, expected) in [
        ("http.request.method", "GET".to_owned()),
        (
            "url.full",
            format!("http://a.test:{}/slow?q=1", site.origin.port),
        ),
        ("server.address", "a.test".to_owned()),
        ("server.port", site.origin.port.to_string()),
        ("http.response.status_code", "200".to_owned()),
        ("http.response.body.size", "2".to_owned()),
        ("crawlgate.origin_status", "200".to_owned()),
        ("crawlgate.crawler", "lab".to_owned()),
        ("crawlgate.verdict", "allow".to_owned()),
        ("crawlgate.reason", "default".to_owned()),
        (
            "crawlgate.stage",
            line["stage"].as_str().unwrap().to_owned(),
        ),
        ("crawlgate.policy", "allow-all".to_owned()),
        (
            "crawlgate.revision",
            line["revision"].as_str().unwrap().to_owned(),
        ),
        (
            "crawlgate.decision",
            line["decision"].as_str().unwrap().to_owned(),
        ),
        ("crawlgate.address", "127.0.0.1".to_owned()),
        ("crawlgate.rule", String::new()),
        ("error.type", String::new()),
    ] {
        assert_eq!(value(first, key), expected, "{key}");
    }
    assert_eq!(line["trace"], TRACE);

    let heads = collector.heads();
    assert!(
        heads[0].starts_with("post /v1/traces http/1.1\r\n"),
        "{heads:?}"
    );
    assert!(
        heads[0].contains("authorization: bearer s3cret\r\n"),
        "{heads:?}"
    );
    assert!(
        heads[0].contains("content-type: application/x-protobuf\r\n"),
        "{heads:?}"
    );
    let resource = collector.exports()[0].resource_spans[0]
        .resource
        .clone()
        .unwrap();
    let named = |key: &str| {
        let mut attributes = resource.attributes.iter();
        let found = attributes.find(|attribute| attribute.key == key);
        found.unwrap().value.clone().unwrap()
    };
    assert_eq!(
        named("service.name").value,
        Some(Value::Text("crawl-7".to_owned()))
    );
    let instance = line["decision"]
        .as_str()
        .unwrap()
        .split('-')
        .next()
        .unwrap()
        .to_owned();
    assert_eq!(
        named("service.instance.id").value,
        Some(Value::Text(instance))
    );
    wait_until("they are counted", || {
        site.gate.counter("crawlgate_trace_spans_exported_total") == 8
    });
}

#[test]
fn tls_with_an_origin_is_a_part() {
    let server = Authority::new().server(&["a.test"]);
    let origin = ScriptedOrigin::tls(server, |_| {
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into()
    });
    let collector = TestCollector::start(Answers::Takes);
    let site = site(
        &collector,
        ", share: 1",
        "tls: { verify_upstream: false }\n",
    );
    assert_eq!(
        crate::support::client::get_with(site.gate.proxy, &origin.https_url("a.test", "/x"), "")
            .status,
        200
    );
    let request = &collector.requests(1)[0];
    assert_eq!(
        check_parts(&collector, request),
        ["decide", "connect", "tls", "first_byte"]
    );
    let parts = collector.parts(request);
    for pair in parts.windows(2) {
        assert!(
            pair[0].end_time_unix_nano <= pair[1].start_time_unix_nano,
            "{pair:#?}"
        );
    }
}

#[test]
fn a_span_shows_no_more_of_a_url_than_the_log() {
    let collector = TestCollector::start(Answers::Takes);
    let rules = format!(
        "{RULES}  - {{ id: kept, when: {{ under: /kept }}, then: disallow-log }}
  - {{ id: unseen, when: {{ under: /unseen }}, set: {{ record: none }}, rules: [{{ id: none, forbid: {{ under: /unseen }} }}] }}
"
    );
    let config = CONFIG.replace(
        "{ decisions: log.json }",
        "{ decisions: log.json, query: none }",
    );
    let endpoint = format!("endpoint: \"http://127.0.0.1:{}\"", collector.port);
    let config = format!("{config}telemetry: {{ otlp: {{ {endpoint}, share: 1 }} }}\n");
    let site = Site::with_config(&config, &allow_all("", &rules), |_| None);
    let base = format!("http://a.test:{}", site.origin.port);
    for (path, status) in [
        ("/x?k=secret", 200),
        ("/closed/secret", 451),
        ("/kept/x?k=secret", 451),
        ("/unseen/x", 451),
    ] {
        assert_eq!(site.get(path).status, status, "{path}");
    }
    let mut requests = collector.requests(4);
    requests.sort_by_key(|span| span.start_time_unix_nano);
    let shown =
        |key: &str| -> Vec<String> { requests.iter().map(|span| value(span, key)).collect() };
    assert_eq!(
        shown("url.full"),
        [
            format!("{base}/x?redacted"),
            String::new(),
            format!("{base}/kept/x?redacted"),
            String::new()
        ]
    );
    assert_eq!(shown("server.address"), ["a.test", "a.test", "a.test", ""]);
    assert_eq!(shown("crawlgate.rule"), ["", "closed", "kept", "none"]);
    assert_eq!(
        shown("http.response.status_code"),
        ["200", "451", "451", "451"]
    );
    // A refusal is no failure of the proxy.
    assert!(
        requests
            .iter()
            .all(|span| span.status.is_none() && value(span, "error.type").is_empty())
    );
    assert!(!format!("{:?}", collector.exports()).contains("secret"));
}

#[test]
fn the_share_decides_unless_a_crawler_that_may_does() {
    let yes = traceparent("01");
    let no = traceparent("00");
    for (case, share, may, fields, exported) in [
        ("nobody says", "1", "", String::new(), true),
        ("nobody says", "0", "", String::new(), false),
        ("it may not", "0", "", yes.clone(), false),
        ("it may not", "1", "", no.clone(), true),
        (
            "it may not",
            "0",
            "",
            "Crawl-Trace: 1\r\n".to_owned(),
            false,
        ),
        ("it may", "0", TRACING, String::new(), false),
        ("it may", "0", TRACING, yes, true),
        ("it may", "1", TRACING, no.clone(), false),
        (
            "it asks",
            "0",
            TRACING,
            "Crawl-Trace: 1\r\n".to_owned(),
            true,
        ),
        (
            "it asks",
            "1",
            TRACING,
            format!("Crawl-Trace: 1\r\n{no}"),
            true,
        ),
    ] {
        let collector = TestCollector::start(Answers::Takes);
        let mut site = site(&collector, &format!(", share: {share}"), may);
        let answer = site.get_with("/x", &fields);
        assert_eq!(answer.status, 200);
        // At the end, every loss is logged.
        site.gate.signal("TERM");
        assert_eq!(site.gate.wait_for_exit(), Some(0));
        let requests = collector
            .spans()
            .into_iter()
            .filter(|span| span.name == "request")
            .collect::<Vec<_>>();
        assert_eq!(
            requests.len(),
            usize::from(exported),
            "{case}, {share}, {fields}"
        );
        if exported && !trace_id(&answer).is_empty() {
            assert_eq!(hex(&requests[0].trace_id), trace_id(&answer));
        }
    }
}

#[test]
fn a_collector_that_hangs_costs_spans_and_no_time() {
    let collector = TestCollector::start(Answers::Never);
    let mut site = site(&collector, ", share: 1, queue: 4, timeout: 60s", "");
    let began = Instant::now();
    // More than a batch in transmission, one in preparation, and the queue.
    let count = 600;
    let mut client = crate::support::client::RawClient::connect(site.gate.proxy);
    for _ in 0..count {
        client.send("GET http://a.test/closed/x HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert!(client.read_until("\r\n\r\n").starts_with("HTTP/1.1 451 "));
        client.read_until("}\n");
    }
    let lasted = began.elapsed();
    assert!(lasted < Duration::from_secs(30), "{lasted:?}");
    let full = "crawlgate_trace_spans_dropped_total{why=\"queue_full\"}";
    wait_until("spans are dropped", || site.gate.counter(full) > 0);
    drop(client);
    // The queue does not delay the end of the proxy.
    let began = Instant::now();
    site.gate.signal("TERM");
    assert_eq!(site.gate.wait_for_exit(), Some(0));
    let lasted = began.elapsed();
    assert!(lasted < Duration::from_secs(15), "{lasted:?}");
}

#[test]
fn rejected_spans_are_counted_and_logged() {
    for (answers, why, dropped, exported) in [
        (Answers::Refuses("400 Bad Request"), "failed", 2, 0),
        (Answers::Rejects(1), "rejected", 1, 1),
    ] {
        let collector = TestCollector::start(answers.clone());
        let site = site(&collector, ", share: 1", "");
        // The request, its decision, and nothing else: it is refused.
        assert_eq!(site.get("/closed/x").status, 451);
        let series = format!("crawlgate_trace_spans_dropped_total{{why=\"{why}\"}}");
        wait_until("it is counted", || site.gate.counter(&series) == dropped);
        assert_eq!(
            site.gate.counter("crawlgate_trace_spans_exported_total"),
            exported,
            "{answers:?}"
        );
        wait_until("it is told", || {
            site.gate.stderr().contains("telemetry.otlp")
        });
        assert_eq!(collector.heads().len(), 1, "there is no use in another try");
    }
}

#[test]
fn queued_spans_are_exported_at_shutdown() {
    let collector = TestCollector::start(Answers::Takes);
    let mut site = site(&collector, ", share: 1", "");
    for _ in 0..20 {
        assert_eq!(site.get("/closed/x").status, 451);
    }
    site.gate.signal("TERM");
    assert_eq!(site.gate.wait_for_exit(), Some(0));
    assert_eq!(collector.requests(20).len(), 20);
}
