//! The format `squid`: one expected line for each kind of request, as tools for Squid's `access.log` read it.

use super::*;

const URL: &str = "http://www.example.com:8080/a?b=c";

/// A request from 192.0.2.1 by a crawler with a name that takes 1.25 s, with the given record.
fn line(settings: LogSettings, method: &str, reported: impl FnOnce(&mut RequestRecord)) -> String {
    let bench = LogBench::new(LogSettings {
        format: LogLineFormat::Squid,
        ..settings
    });
    let mut record = bench.recorder.begin(
        bench.clock.now(),
        &Method::from_bytes(method.as_bytes()).unwrap(),
    );
    record.set_client("192.0.2.1".parse().unwrap());
    record.set_crawler(bench.metrics.crawler_index("news-bot"));
    bench.manual_clock.advance(Duration::from_millis(1_250));
    reported(&mut record);
    drop(record);
    assert_eq!(bench.log().flush(LONG), LogCloseResult::Done);
    let text = bench.disk.text();
    assert!(
        text.bytes()
            .all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)),
        "{text}"
    );
    assert_eq!(text.split_ascii_whitespace().count(), 10, "{text}");
    text
}

fn shown(method: &str, reported: impl FnOnce(&mut RequestRecord)) -> String {
    line(LogSettings::default(), method, reported)
}

fn to_url(record: &mut RequestRecord) {
    record.set_target(&UrlTarget::parse(URL).unwrap());
}

fn to_tunnel(record: &mut RequestRecord) {
    record.set_host(&HostTarget::parse_authority("www.example.com:443").unwrap());
    record.enter_stage(Stage::Connect);
}

fn by_origin(record: &mut RequestRecord, status: u16) {
    record.set_allowed(None);
    record.enter_stage(Stage::Upstream);
    record.set_address("198.51.100.7".parse::<IpAddr>().unwrap());
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    record.set_origin_response(status, Some(&html), Duration::from_millis(9));
    record.set_sent_status(status, ResponseSource::Origin);
    record.add_sent_bytes(321);
    record.mark_complete();
}

fn by_us(record: &mut RequestRecord, reason: Reason, status: u16) {
    record.set_rejected(reason, None, UrlRetention::Full);
    record.set_sent_status(status, ResponseSource::Proxy);
    record.add_sent_bytes(45);
    record.mark_complete();
}

/// Fills the record of a request.
type SquidFacts = fn(&mut RequestRecord);

/// Each kind of request: its name, method, its record, and the line after time and client.
const KINDS: [(&str, &str, SquidFacts, &str); 14] = [
    (
        "allowed",
        "GET",
        |r| {
            to_url(r);
            by_origin(r, 200);
        },
        "TCP_MISS/200 321 GET http://www.example.com:8080/a?b=c news-bot HIER_DIRECT/198.51.100.7 text/html",
    ),
    (
        "held, then allowed",
        "HEAD",
        |r| {
            to_url(r);
            r.set_held(Duration::from_millis(1_200));
            by_origin(r, 404);
        },
        "TCP_MISS/404 321 HEAD http://www.example.com:8080/a?b=c news-bot HIER_DIRECT/198.51.100.7 text/html",
    ),
    (
        "refused",
        "GET",
        |r| {
            to_url(r);
            by_us(r, Reason::Rule, 451);
        },
        "TCP_DENIED/451 45 GET http://www.example.com:8080/a?b=c news-bot HIER_NONE/- -",
    ),
    (
        "refused, of which only the host is kept",
        "GET",
        |r| {
            to_url(r);
            by_us(r, Reason::RateLimited, 429);
            r.set_rejected(Reason::RateLimited, None, UrlRetention::Host);
        },
        "TCP_DENIED/429 45 GET http://www.example.com/ news-bot HIER_NONE/- -",
    ),
    (
        "refused, of which nothing is kept",
        "GET",
        |r| {
            to_url(r);
            by_us(r, Reason::Rule, 451);
            r.set_rejected(Reason::Rule, None, UrlRetention::None);
        },
        "TCP_DENIED/451 45 GET - news-bot HIER_NONE/- -",
    ),
    (
        "refused for its answer",
        "GET",
        |r| {
            to_url(r);
            by_origin(r, 200);
            by_us(r, Reason::Rule, 451);
        },
        "TCP_DENIED_REPLY/451 366 GET http://www.example.com:8080/a?b=c news-bot HIER_DIRECT/198.51.100.7 text/html",
    ),
    (
        "a tunnel",
        "CONNECT",
        |r| {
            to_tunnel(r);
            r.set_allowed(None);
            r.set_address("2001:db8::7".parse::<IpAddr>().unwrap());
            r.set_sent_status(200, ResponseSource::Proxy);
            r.mark_tunnel_open();
            r.add_sent_bytes(9_000);
            r.mark_complete();
        },
        "TCP_TUNNEL/200 9000 CONNECT www.example.com:443 news-bot HIER_DIRECT/2001:db8::7 -",
    ),
    (
        "a tunnel that is refused",
        "CONNECT",
        |r| {
            to_tunnel(r);
            by_us(r, Reason::Undecided, 451);
        },
        "TCP_DENIED/451 45 CONNECT www.example.com:443 news-bot HIER_NONE/- -",
    ),
    (
        "inside an intercepted tunnel",
        "GET",
        |r| {
            r.set_target(&UrlTarget::parse("https://www.example.com/x").unwrap());
            by_origin(r, 200);
        },
        "TCP_MISS/200 321 GET https://www.example.com/x news-bot HIER_DIRECT/198.51.100.7 text/html",
    ),
    (
        "a host without a name",
        "GET",
        |r| {
            to_url(r);
            r.set_upstream_error("dns_error");
            by_us(r, Reason::UpstreamDns, 502);
        },
        "TCP_MISS/502 45 GET http://www.example.com:8080/a?b=c news-bot HIER_NONE/- -",
    ),
    (
        "an origin that is too late",
        "GET",
        |r| {
            to_url(r);
            by_us(r, Reason::UpstreamTimeout, 504);
        },
        "TCP_MISS_TIMEDOUT/504 45 GET http://www.example.com:8080/a?b=c news-bot HIER_NONE/- -",
    ),
    (
        "a client that left",
        "GET",
        to_url,
        "TCP_MISS_ABORTED/000 0 GET http://www.example.com:8080/a?b=c news-bot HIER_NONE/- -",
    ),
    (
        "no request",
        "GET",
        |r| by_us(r, Reason::BadRequest, 400),
        "NONE_NONE/400 45 GET error:invalid-request news-bot HIER_NONE/- -",
    ),
    (
        "no name",
        "GET",
        |r| by_us(r, Reason::Unauthorized, 407),
        "TCP_DENIED/407 45 GET error:invalid-request news-bot HIER_NONE/- -",
    ),
];

#[test]
fn every_kind_has_its_line() {
    for (kind, method, reported, expected) in KINDS {
        let expected = format!("1767225601.250   1250 192.0.2.1 {expected}\n");
        assert_eq!(shown(method, reported), expected, "{kind}");
    }
}

/// A client without a configured name is not shown as a user.
#[test]
fn anonymous_requests_have_a_hyphen() {
    let bench = LogBench::new(LogSettings {
        format: LogLineFormat::Squid,
        ..LogSettings::default()
    });
    bench.begin().set_client("2001:db8::1".parse().unwrap());
    assert_eq!(bench.log().flush(LONG), LogCloseResult::Done);
    let expected = "1767225600.000      0 - TCP_MISS_ABORTED/000 0 GET error:invalid-request - HIER_NONE/- -\n";
    let found = bench.disk.text();
    assert!(
        found == expected.replace(" - TCP", " 2001:db8::1 TCP"),
        "{found}"
    );
}

#[test]
fn hostile_text_is_one_field() {
    let method = "x".repeat(500);
    let found = shown(&method, |record| {
        record.set_target(&UrlTarget::parse("http://h.example/a%20b?\u{e9}\"").unwrap());
        by_origin(record, 200);
        let evil = HeaderValue::from_bytes(b"text/html evil\x80\tx/y").unwrap();
        record.set_origin_response(200, Some(&evil), Duration::ZERO);
    });
    assert!(found.contains("/a%20b?"), "{found}");
    let last = found.trim_end().rsplit(' ').next().unwrap();
    assert_eq!(last, "-", "what is no media type is none");
}

#[test]
fn queries_are_redacted() {
    let settings = LogSettings {
        query: QueryVisibility::Redacted,
        ..LogSettings::default()
    };
    let found = line(settings, "GET", |record| {
        to_url(record);
        by_origin(record, 200);
    });
    assert!(
        found.contains(" http://www.example.com:8080/a?redacted "),
        "{found}"
    );
}
