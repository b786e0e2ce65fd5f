//! Traces of forwarded requests: the span of the owner is a child of that of the entry.

use crate::support::origin::ScriptedOrigin;
use crate::trace::collector::{Answers, TestCollector, hex, value};

use super::bench::{BenchSettings, FleetBench, POLICY};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Two nodes that export to one collector; the entry this share, the owner nothing of its own accord.
fn fleet(collector: &TestCollector, share: u8) -> FleetBench {
    let otlp = |share| {
        let port = collector.port;
        format!(
            "telemetry: {{ otlp: {{ endpoint: \"http://127.0.0.1:{port}\", share: {share} }} }}\n"
        )
    };
    let (owner, entry) = (otlp(0), otlp(share));
    let nodes = [(0, owner.as_str()), (1, entry.as_str())];
    let settings = BenchSettings {
        each: &nodes,
        ..BenchSettings::default()
    };
    let fleet = FleetBench::start_with(2, POLICY, &settings);
    fleet.set_owner("a.test", 0, 1);
    fleet
}

#[test]
fn the_span_of_the_owner_is_a_child_of_that_of_the_entry() {
    let collector = TestCollector::start(Answers::Takes);
    let fleet = fleet(&collector, 1);
    let origin = ScriptedOrigin::ok();
    let parent = format!("traceparent: 00-{TRACE}-{PARENT}-00\r\n");
    let url = origin.url("a.test", "/page");
    fleet.client(1).get_with(&url, &parent).check(200, &["ok"]);
    let spans = collector.requests(2);
    let is_entry = |verdict: &str| verdict == "forwarded";
    let (entry, owner) = match is_entry(&value(&spans[0], "crawlgate.verdict")) {
        true => (&spans[0], &spans[1]),
        false => (&spans[1], &spans[0]),
    };
    assert_eq!(value(entry, "crawlgate.verdict"), "forwarded");
    assert_eq!(value(owner, "crawlgate.verdict"), "allow");
    assert_eq!([hex(&entry.trace_id), hex(&owner.trace_id)], [TRACE, TRACE]);
    assert_eq!(hex(&entry.parent_span_id), PARENT);
    assert_eq!(owner.parent_span_id, entry.span_id);
    // The policy, which says how much of a URL may be shown, is the owner's.
    assert_eq!(value(entry, "url.full"), "");
    assert_eq!(value(owner, "url.full"), url);
    let parts = collector.parts(entry);
    assert!(parts.iter().any(|span| span.name == "forward"), "{parts:?}");
    // Nothing of it reaches the origin.
    assert!(!origin.heads().concat().to_lowercase().contains(TRACE));
    assert_eq!(fleet.lines(0, 1)[0]["trace"], TRACE);
}

#[test]
fn without_a_span_of_the_entry_the_crawlers_is_the_parent_and_does_not_turn_tracing_on() {
    let collector = TestCollector::start(Answers::Takes);
    let fleet = fleet(&collector, 0);
    let origin = ScriptedOrigin::ok();
    let parent = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
    let url = origin.url("a.test", "/page");
    fleet.client(1).get_with(&url, &parent).check(200, &["ok"]);
    assert_eq!(fleet.lines(0, 1)[0]["trace"], TRACE);
    drop(fleet);
    assert!(collector.spans().is_empty());
}
