//! The decision log: the content of its lines, what they must not contain, and failures to write.

mod files;
mod squid;

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crawlgate::clock::{Clock, ManualClock};
use crawlgate::metrics::Metrics;
use crawlgate::metrics::labels::{ResponseSource, RuleKind, RuleMode, VerdictLabel};
use crawlgate::metrics::log::{
    DecisionLog, LogCloseResult, LogDestination, LogFileRotation, LogFullAction, LogLineFormat,
    LogSettings, QueryVisibility, SampleRate,
};
use crawlgate::metrics::record::{Recorder, RequestRecord, UrlRetention};
use crawlgate::metrics::shadow::{ShadowChange, ShadowNote, ShadowNotes, ShadowSource};
use crawlgate::model::crawler::Crawler;
use crawlgate::model::reason::Reason;
use crawlgate::model::rule_id::{RuleId, Slug};
use crawlgate::model::stage::Stage;
use crawlgate::urls::target::{HostTarget, UrlTarget};
use http::{HeaderValue, Method};
use serde_json::Value;

use crate::support::temp_dir::TempDir;

const LONG: Duration = Duration::from_secs(20);

/// A destination that blocks, fails, or takes only a number of bytes, as a test requires.
#[derive(Clone, Default)]
struct Disk(Arc<(Mutex<DiskState>, Condvar)>);

#[derive(Default)]
struct DiskState {
    bytes: Vec<u8>,
    blocked: bool,
    fails: bool,
    /// Takes this many more bytes, then fails.
    room: Option<usize>,
}

impl Disk {
    fn set(&self, change: impl FnOnce(&mut DiskState)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.0.lock().unwrap().bytes.clone()).unwrap()
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let state = self.0.0.lock().unwrap();
        let mut state = self.0.1.wait_while(state, |state| state.blocked).unwrap();
        let taken = bytes.len().min(state.room.unwrap_or(usize::MAX));
        if state.fails || taken == 0 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        state.room = state.room.map(|room| room - taken);
        state.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct LogBench {
    disk: Disk,
    metrics: Metrics,
    recorder: Recorder,
    clock: Clock,
    manual_clock: ManualClock,
}

impl LogBench {
    fn new(settings: LogSettings) -> Self {
        let disk = Disk::default();
        let writer = disk.clone();
        let bench = Self::with_log(|metrics, clock| {
            DecisionLog::open_with_writer(&settings, Box::new(writer), metrics, clock)
        });
        Self { disk, ..bench }
    }

    fn to(destination: LogDestination, settings: LogSettings) -> Self {
        let settings = LogSettings {
            destination,
            ..settings
        };
        Self::with_log(|metrics, clock| DecisionLog::open(settings, metrics, clock))
    }

    fn with_log(open: impl FnOnce(&Metrics, &Clock) -> io::Result<DecisionLog>) -> Self {
        let (clock, manual_clock) = Clock::manual();
        let crawler = Crawler::new(&Slug::new("news-bot").unwrap());
        let metrics = Metrics::new(&[crawler], &[]).unwrap();
        let log = open(&metrics, &clock).unwrap();
        let recorder = Recorder::new(metrics.clone(), log, clock.clone());
        Self {
            disk: Disk::default(),
            recorder,
            metrics,
            clock,
            manual_clock,
        }
    }

    fn begin(&self) -> RequestRecord {
        self.recorder.begin(self.clock.now(), &Method::GET)
    }

    fn reject(&self, url: &str) {
        let mut record = self.begin();
        record.set_target(&UrlTarget::parse(url).unwrap());
        record.set_rejected(Reason::Rule, None, UrlRetention::Full);
        record.finish(self.clock.now());
    }

    fn log(&self) -> &DecisionLog {
        self.recorder.log()
    }

    fn lines(&self) -> Vec<Value> {
        assert_eq!(self.log().flush(LONG), LogCloseResult::Done);
        self.disk
            .text()
            .lines()
            .map(|line| serde_json::from_str(line).expect(line))
            .collect()
    }

    fn dropped(&self) -> usize {
        let text = self.metrics.render();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("crawlgate_decision_log_dropped_total "));
        line.unwrap().parse().unwrap()
    }
}

/// Sorts lines by the numbers of their decisions: lines without a URL may be written after later ones.
fn in_order(mut lines: Vec<Value>) -> Vec<Value> {
    lines.sort_by_key(|line| {
        let id = line["decision"].as_str().unwrap();
        u64::from_str_radix(id.split_once('-').unwrap().1, 16).unwrap()
    });
    lines
}

#[test]
fn a_line_has_every_field_in_its_place() {
    let bench = LogBench::new(LogSettings::default());
    let ids = [
        RuleId::new("pages").unwrap(),
        RuleId::new("no-pdf").unwrap(),
    ];
    let rules = ids
        .iter()
        .map(|id| (id, RuleMode::Enforce, RuleKind::Group));
    let policy = bench
        .metrics
        .register_policy("acme", "3f9c2a1b", rules, &bench.clock);
    let mut record = bench.begin();
    let id = record.id().to_string();
    record.set_target(&UrlTarget::parse("http://www.example.com/a?b=c").unwrap());
    record.set_policy(&policy);
    record.enter_stage(Stage::Response);
    record.set_allowed(Some(0));
    record.set_rejected(Reason::Rule, Some(1), UrlRetention::Full);
    record.set_held(Duration::from_millis(1_250));
    record.set_dns_time(Duration::from_micros(1_234));
    record.set_connect_time(Duration::from_micros(7));
    record.set_tls_time(Duration::from_millis(20));
    record.set_address("192.0.2.7".parse::<IpAddr>().unwrap());
    let pdf = HeaderValue::from_static("application/pdf");
    record.set_origin_response(200, Some(&pdf), Duration::from_millis(95));
    record.set_sent_status(451, ResponseSource::Proxy);
    record.add_sent_bytes(321);
    bench.manual_clock.advance(Duration::from_millis(1_500));
    record.finish(bench.clock.now());
    bench.lines();
    let expected = format!(
        concat!(
            r#"{{"ts":"2026-01-01T00:00:01.500Z","decision":"{}","crawler":"anonymous","stage":"response","#,
            r#""method":"GET","url":"http://www.example.com/a?b=c","host":"www.example.com","verdict":"reject","#,
            r#""reason":"rule","rule":"no-pdf","policy":"acme","revision":"3f9c2a1b","mode":"enforce","#,
            r#""held_ms":1250.000,"origin_status":200,"sent_status":451,"content_type":"application/pdf","#,
            r#""bytes":321,"dns_ms":1.234,"connect_ms":0.007,"tls_ms":20.000,"ttfb_ms":95.000,"#,
            r#""address":"192.0.2.7","error":null}}"#,
            "\n"
        ),
        id
    );
    assert_eq!(bench.disk.text(), expected);
}

#[test]
fn a_client_that_left_has_a_line_of_nulls() {
    let bench = LogBench::new(LogSettings::default());
    drop(bench.begin());
    let lines = bench.lines();
    let line = lines[0].as_object().unwrap();
    let known: Vec<_> = line
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, _)| key.as_str())
        .collect();
    assert_eq!(
        known,
        [
            "ts", "decision", "crawler", "stage", "method", "verdict", "reason", "mode", "bytes",
            "error"
        ]
    );
    assert_eq!(
        (line.len(), &line["reason"], &line["error"]),
        (24, &"client_left".into(), &"client_left".into())
    );
}

#[test]
fn an_incomplete_answer_shows_why() {
    let bench = LogBench::new(LogSettings::default());
    for (complete, failure, shown) in [
        (true, None, Value::Null),
        (
            true,
            Some("http_response_incomplete"),
            "http_response_incomplete".into(),
        ),
        (
            false,
            Some("http_response_incomplete"),
            "http_response_incomplete".into(),
        ),
        (false, None, "client_left".into()),
    ] {
        let mut record = bench.begin();
        record.set_allowed(None);
        record.set_sent_status(200, ResponseSource::Origin);
        if complete {
            record.mark_complete();
        }
        if let Some(failure) = failure {
            record.set_upstream_error(failure);
        }
        drop(record);
        assert_eq!(
            bench.lines().last().unwrap()["error"],
            shown,
            "{complete} {failure:?}"
        );
    }
}

#[test]
fn hostile_text_stays_inside_its_field() {
    let bench = LogBench::new(LogSettings::default());
    let method = Method::from_bytes(&[b'x'; 5_000]).unwrap();
    let longest = [&b"text/"[..], &[b'x'; 60_000]].concat();
    let types = [
        (&b"text/html\", \"verdict\": \"allow"[..], ""),
        (b"\xff\xfe\x80 caf\xe9", ""),
        ("caf\u{e9}/\u{85}\u{2028}\u{202e}".as_bytes(), ""),
        (b"Text/HTML ; charset=\"", "text/html"),
        (b"tab\there/x", ""),
        (&longest, "text/"),
    ];
    for (content_type, _) in types {
        let mut record = bench.recorder.begin(bench.clock.now(), &method);
        record.set_target(
            &UrlTarget::parse("http://h.example/a?\"},{%5C\"x%5C\":'<script>").unwrap(),
        );
        record.set_origin_response(
            200,
            Some(&HeaderValue::from_bytes(content_type).unwrap()),
            Duration::ZERO,
        );
        record.set_rejected(Reason::Default, None, UrlRetention::Full);
        record.finish(bench.clock.now());
    }
    let lines = bench.lines();
    let text = bench.disk.text();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    assert!(text.lines().all(|line| line.len() < 2_000));
    assert_eq!(lines.len(), types.len());
    for (line, (_, shown)) in lines.iter().zip(types) {
        assert_eq!(
            (line["verdict"].as_str(), line["host"].as_str()),
            (Some("reject"), Some("h.example"))
        );
        assert_eq!(line["method"].as_str().unwrap().len(), 128);
        assert_eq!(
            line["content_type"].as_str().unwrap().trim_end_matches('x'),
            shown
        );
    }
}

#[test]
fn a_rejected_url_is_shown_as_its_retention_allows() {
    let bench = LogBench::new(LogSettings::default());
    for keep in [UrlRetention::Full, UrlRetention::Host, UrlRetention::None] {
        let mut record = bench.begin();
        record.set_target(&UrlTarget::parse("http://h.example/secret").unwrap());
        record.set_rejected(Reason::Rule, None, keep);
    }
    let mut tunnel = bench.begin();
    tunnel.set_host(&HostTarget::parse_authority("t.example:443").unwrap());
    tunnel.set_rejected(Reason::Undecided, None, UrlRetention::Full);
    drop(tunnel);
    let mut allowed = bench.begin();
    allowed.set_target(&UrlTarget::parse("http://h.example/page").unwrap());
    allowed.set_allowed(None);
    drop(allowed);
    let lines = in_order(bench.lines());
    let shown: Vec<_> = lines
        .iter()
        .map(|line| (line["url"].as_str(), line["host"].as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            (Some("http://h.example/secret"), Some("h.example")),
            (None, Some("h.example")),
            (None, None),
            (None, Some("t.example")),
            (Some("http://h.example/page"), Some("h.example"))
        ]
    );
}

#[test]
fn a_lost_url_is_left_out_within_a_minute_of_a_line_with_it() {
    let bench = LogBench::new(LogSettings::default());
    let refuse = |url: &str, reason| {
        let mut record = bench.begin();
        record.set_target(&UrlTarget::parse(url).unwrap());
        record.set_rejected(reason, None, UrlRetention::Unrepeated);
    };
    refuse("http://h.example/a", Reason::RateLimited);
    bench.manual_clock.advance(Duration::from_secs(59));
    refuse("http://h.example/a", Reason::RateLimited);
    refuse("http://h.example/b", Reason::RateLimited);
    refuse("http://h.example/a", Reason::UpstreamTimeout);
    bench.manual_clock.advance(Duration::from_secs(1));
    refuse("http://h.example/a", Reason::RateLimited);
    let lines = in_order(bench.lines());
    let shown: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line["url"].as_str(),
                line["loss"].as_str(),
                line["repeat"].as_bool(),
            )
        })
        .collect();
    let (a, b) = (Some("http://h.example/a"), Some("http://h.example/b"));
    assert_eq!(
        shown,
        [
            (a, Some("later"), None),
            (None, Some("later"), Some(true)),
            (b, Some("later"), None),
            (a, Some("failed"), None),
            (a, Some("later"), None),
        ]
    );
}

#[test]
fn losses_are_told_from_what_the_policy_excludes() {
    let bench = LogBench::new(LogSettings::default());
    let later = [
        Reason::RobotsUnreachable,
        Reason::RateLimited,
        Reason::QueueFull,
        Reason::HostBackoff,
        Reason::Stopped,
        Reason::OwnerUnavailable,
        Reason::Overloaded,
        Reason::ShuttingDown,
    ];
    let failed = [
        Reason::UpstreamDns,
        Reason::UpstreamConnect,
        Reason::UpstreamTls,
        Reason::UpstreamTimeout,
        Reason::UpstreamProtocol,
        Reason::InternalError,
    ];
    let mut expected = vec![];
    for reason in Reason::ALL {
        let mut record = bench.begin();
        record.set_target(&UrlTarget::parse("http://h.example/a").unwrap());
        record.set_rejected(reason, None, UrlRetention::Full);
        record.finish(bench.clock.now());
        expected.push(if later.contains(&reason) {
            Some("later")
        } else {
            failed.contains(&reason).then_some("failed")
        });
    }
    // Allowed: answered, failed, left by the client.
    for (status, error, complete) in [
        (Some(200), None, true),
        (Some(404), None, true),
        (Some(429), None, true),
        (Some(200), Some("http_response_incomplete"), false),
        (Some(200), None, false),
        (None, None, false),
    ] {
        let mut record = bench.begin();
        record.set_target(&UrlTarget::parse("http://h.example/a").unwrap());
        record.set_allowed(None);
        if let Some(status) = status {
            record.set_origin_response(status, None, Duration::ZERO);
        }
        if let Some(error) = error {
            record.set_upstream_error(error);
        }
        if complete {
            record.mark_complete();
        }
    }
    expected.extend([
        None,
        None,
        Some("failed"),
        Some("failed"),
        Some("client_left"),
        Some("client_left"),
    ]);
    // An open tunnel that the client closes.
    let mut tunnel = bench.begin();
    tunnel.set_host(&HostTarget::parse_authority("t.example:443").unwrap());
    tunnel.set_allowed(None);
    tunnel.mark_tunnel_open();
    drop(tunnel);
    expected.push(None);
    let lines = bench.lines();
    let losses: Vec<_> = lines.iter().map(|line| line["loss"].as_str()).collect();
    assert_eq!(losses, expected);
}

#[test]
fn queries_are_redacted_if_configured() {
    let bench = LogBench::new(LogSettings {
        query: QueryVisibility::Redacted,
        ..LogSettings::default()
    });
    bench.reject("http://h.example/a?token=secret");
    assert_eq!(bench.lines()[0]["url"], "http://h.example/a?redacted");
}

#[test]
fn values_of_queries_are_masked_if_configured() {
    let bench = LogBench::new(LogSettings {
        query: QueryVisibility::NamesOnly,
        ..LogSettings::default()
    });
    bench.reject("http://h.example/a?token=s3cret&s3cret");
    assert_eq!(
        bench.lines()[0]["url"],
        "http://h.example/a?token=redacted&redacted"
    );
}

/// The query of a request is in no field of either format, nor in the examples of shadow reports.
#[test]
fn a_redacted_query_leaves_no_trace() {
    for format in [LogLineFormat::Json, LogLineFormat::Squid] {
        let bench = LogBench::new(LogSettings {
            query: QueryVisibility::Redacted,
            format,
            ..LogSettings::default()
        });
        for keep in [
            UrlRetention::Full,
            UrlRetention::Unrepeated,
            UrlRetention::Host,
            UrlRetention::None,
        ] {
            for query in ["token=s3cret", "s3cret?s3cret", "a=%20s3cret", "?s3cret"] {
                let mut record = bench.begin();
                record
                    .set_target(&UrlTarget::parse(&format!("http://h.example/a?{query}")).unwrap());
                record.set_source(&HeaderValue::from_static("ours"));
                record.set_upstream_error("connection_refused");
                record.set_rejected(Reason::Rule, None, keep);
            }
        }
        assert_eq!(bench.log().flush(LONG), LogCloseResult::Done);
        let text = bench.disk.text();
        assert_eq!(text.lines().count(), 16, "{text}");
        assert!(!text.contains("s3cret"), "{text}");
        assert!(text.contains("http://h.example/a?redacted"), "{text}");
    }
}

#[test]
fn allows_are_sampled_and_rejections_never() {
    let bench = LogBench::new(LogSettings {
        allow_sample: SampleRate::new(0.1).unwrap(),
        ..LogSettings::default()
    });
    let note = ShadowNote {
        source: ShadowSource::Rule(0),
        matched: [0].into_iter().collect(),
        rule: Some(0),
        deciding_rule: Some(0),
        verdict: VerdictLabel::Reject,
        change: ShadowChange::WouldReject,
        reason: Reason::Rule,
        stage: Stage::Request,
    };
    for _ in 0..1_000 {
        let mut record = bench.begin();
        record.set_allowed(None);
        drop(record);
        bench.reject("http://h.example/");
        let mut record = bench.begin();
        record.set_shadows(Some(Box::new(ShadowNotes {
            space: None,
            policy_metrics: None,
            notes: [note.clone()].into_iter().collect(),
        })));
        record.set_allowed(None);
    }
    let lines = bench.lines();
    fn count(lines: &[Value], verdict: &str) -> usize {
        lines
            .iter()
            .filter(|line| line["verdict"] == verdict)
            .count()
    }
    assert_eq!(
        (count(&lines, "reject"), count(&lines, "shadow_reject")),
        (1_000, 1_000)
    );
    assert!(
        (95..=105).contains(&count(&lines, "allow")),
        "{}",
        count(&lines, "allow")
    );
    let shadow = lines
        .iter()
        .find(|line| line["verdict"] == "shadow_reject")
        .unwrap();
    assert_eq!(shadow["mode"], "shadow");
    assert_eq!(
        shadow["shadow"],
        serde_json::json!([
            { "rule": null, "policy": null, "verdict": "reject", "stage": "request", "reason": "rule" }
        ])
    );
}

#[test]
fn every_line_of_every_thread_arrives_whole() {
    let bench = LogBench::new(LogSettings::default());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let bench = &bench;
            scope.spawn(move || {
                (0..1_000).for_each(|n| bench.reject(&format!("http://h.example/{thread}/{n}")))
            });
        }
    });
    assert_eq!(bench.log().close(LONG), LogCloseResult::Done);
    let mut urls: Vec<String> = bench
        .disk
        .text()
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["url"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    urls.sort_unstable();
    urls.dedup();
    assert_eq!((urls.len(), bench.dropped()), (8_000, 0));
}

#[test]
fn a_full_log_drops_and_counts_and_never_blocks() {
    let bench = LogBench::new(LogSettings {
        queue_bytes: 10_000,
        ..LogSettings::default()
    });
    bench.disk.set(|disk| disk.blocked = true);
    // The log is not written meanwhile: if a drop waited for it, this test would not end.
    (0..1_000).for_each(|n| bench.reject(&format!("http://h.example/{n}")));
    let dropped = bench.dropped();
    assert!((900..1_000).contains(&dropped), "{dropped}");
    assert!(bench.log().warning().unwrap().contains("lost lines"));
    assert_eq!(
        bench.log().flush(Duration::from_millis(20)),
        LogCloseResult::TimedOut
    );
    bench.manual_clock.advance(Duration::from_secs(6));
    let warning = bench.log().warning().unwrap();
    assert!(
        warning.contains("blocked: the destination has taken nothing for 6 s"),
        "{warning}"
    );
    bench.disk.set(|disk| disk.blocked = false);
    assert_eq!(bench.lines().len() + dropped, 1_000);
    assert_eq!(bench.dropped(), dropped);
    bench.manual_clock.advance(Duration::from_secs(61));
    assert_eq!(bench.log().warning(), None);
}

#[test]
fn a_full_disk_is_counted_warned_of_and_left_with_whole_lines() {
    let bench = LogBench::new(LogSettings::default());
    bench.reject("http://h.example/first");
    let first = bench.lines().len();
    bench.disk.set(|disk| disk.room = Some(100));
    bench.reject("http://h.example/torn");
    bench.log().flush(LONG);
    assert!(bench.log().warning().unwrap().contains("cannot be written"));
    bench.reject("http://h.example/lost");
    bench.log().flush(LONG);
    assert_eq!(bench.dropped(), 2);
    bench.disk.set(|disk| disk.room = None);
    bench.reject("http://h.example/last");
    bench.log().flush(LONG);
    let text = bench.disk.text();
    let lines: Vec<_> = text.lines().map(serde_json::from_str::<Value>).collect();
    assert_eq!((first, lines.len()), (1, 3));
    assert!(lines[1].is_err(), "the incomplete line is alone");
    assert_eq!(lines[2].as_ref().unwrap()["url"], "http://h.example/last");
    assert!(!bench.log().warning().unwrap().contains("cannot be written"));
}

#[test]
fn waiting_keeps_every_line_on_a_full_disk() {
    let bench = LogBench::new(LogSettings {
        on_full: LogFullAction::Wait,
        queue_bytes: 1_000,
        ..LogSettings::default()
    });
    bench.disk.set(|disk| disk.room = Some(777));
    (0..50).for_each(|n| bench.reject(&format!("http://h.example/{n}")));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let waits =
            tokio::time::timeout(Duration::from_millis(50), bench.log().wait_if_full()).await;
        assert!(waits.is_err(), "there is no room");
        bench.disk.set(|disk| disk.room = None);
        tokio::time::timeout(LONG, bench.log().wait_if_full())
            .await
            .expect("room again");
    });
    assert_eq!((bench.lines().len(), bench.dropped()), (50, 0));
}

#[test]
fn the_log_accepts_lines_at_once_unless_it_waits() {
    let bench = LogBench::new(LogSettings {
        queue_bytes: 0,
        ..LogSettings::default()
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(bench.log().wait_if_full());
}

#[test]
fn lines_after_the_close_are_counted() {
    let bench = LogBench::new(LogSettings::default());
    bench.reject("http://h.example/in-time");
    assert_eq!(bench.log().close(LONG), LogCloseResult::Done);
    bench.reject("http://h.example/too-late");
    assert_eq!((bench.disk.text().lines().count(), bench.dropped()), (1, 1));
    assert_eq!(bench.log().close(LONG), LogCloseResult::Done);
    assert_eq!(bench.log().flush(LONG), LogCloseResult::Done);
}

#[test]
fn a_file_is_appended_to() {
    let path =
        std::env::temp_dir().join(format!("crawlgate-log-test-{}.jsonl", std::process::id()));
    std::fs::write(&path, "{}\n").unwrap();
    let (clock, _hand) = Clock::manual();
    let metrics = Metrics::new(&[], &[]).unwrap();
    let settings = LogSettings {
        destination: LogDestination::Path(path.clone()),
        ..LogSettings::default()
    };
    let log = DecisionLog::open(settings, &metrics, &clock).unwrap();
    let recorder = Recorder::new(metrics, log.clone(), clock.clone());
    drop(recorder.begin(clock.now(), &Method::GET));
    assert_eq!(log.close(LONG), LogCloseResult::Done);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(text.lines().count(), 2);
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error() {
    let (clock, _hand) = Clock::manual();
    let metrics = Metrics::new(&[], &[]).unwrap();
    let folder = TempDir::new();
    let in_the_way = folder.write("file", "");
    let path = in_the_way.join("log.jsonl");
    let settings = LogSettings {
        destination: LogDestination::Path(path.clone()),
        ..LogSettings::default()
    };
    let error = DecisionLog::open(settings, &metrics, &clock).unwrap_err();
    assert!(
        error.to_string().starts_with(path.to_str().unwrap()),
        "{error}"
    );
}
