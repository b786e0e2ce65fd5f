//! Received messages against the expectations of a row, and the requirements on every response.

use super::client::RowResponse;
use super::format::{AtOrigin, Maker, RowAnswer};
use super::origin::Connection;
use super::text::Names;
use super::wire::{self, Message, RawField, WireEnding, show};

/// All problems of a response.
pub(crate) fn answer(expected: &RowAnswer, got: &RowResponse, names: &Names) -> Vec<String> {
    let mut wrong = Vec::new();
    let message = &got.message;
    let status = wire::status(&message.start).unwrap_or(0);
    if status != expected.status {
        wrong.push(format!(
            "status: expected {}, got {}",
            expected.status,
            show(&message.start)
        ));
    }
    fields(expected, message, names, &mut wrong);
    if let Some(body) = &expected.body
        && !is_expected_body(&body.bytes(names), message, expected.cut)
    {
        wrong.push(format!(
            "body: expected {}, got {}",
            show(&body.bytes(names)),
            show(&message.body)
        ));
    }
    match (expected.cut, got.cut) {
        (true, false) => wrong.push("body: expected to be cut, got a clean end".into()),
        (false, true) => wrong.push(format!(
            "body: expected a clean end, got cut after {} bytes",
            message.body.len()
        )),
        (true, true) | (false, false) => {}
    }
    match &expected.maker {
        Maker::Interim | Maker::Own => {}
        Maker::Origin => passed_through(message, status, names, &mut wrong),
        Maker::Refusal(reason) => refused(expected, message, reason, &mut wrong),
    }
    if !wrong.is_empty() {
        wrong.push(format!("the answer was:\n{}", told(message)));
    }
    wrong
}

/// All problems of what the origin received.
pub(crate) fn at_origin(
    expected: &AtOrigin,
    connections: &[Connection],
    names: &Names,
) -> Vec<String> {
    let got: Vec<Received> = connections.iter().flat_map(received).collect();
    fn raw(connections: &[Connection]) -> String {
        connections
            .iter()
            .map(|c| show(&c.bytes))
            .collect::<Vec<_>>()
            .join("\n-- next connection\n")
    }
    let wrong = match expected {
        AtOrigin::Untouched if connections.is_empty() => return Vec::new(),
        AtOrigin::Untouched => "expected no connection".to_owned(),
        AtOrigin::NeverWhole if got.iter().all(|r| !r.is_whole()) => return Vec::new(),
        AtOrigin::NeverWhole => "expected no whole request".to_owned(),
        AtOrigin::Requests(text) | AtOrigin::Cut(text) => {
            let cut = matches!(expected, AtOrigin::Cut(_));
            match same_requests(&text.bytes(names), &got, cut, connections) {
                Ok(()) => return Vec::new(),
                Err(wrong) => format!("{wrong}\nexpected:\n{}", show(&text.bytes(names))),
            }
        }
    };
    vec![format!(
        "origin: {wrong}\ngot {} connections:\n{}",
        connections.len(),
        raw(connections)
    )]
}

/// A cut body may be shorter than expected.
fn is_expected_body(expected: &[u8], message: &Message, cut: bool) -> bool {
    if cut {
        message.body.starts_with(expected)
    } else {
        message.body == expected
    }
}

fn fields(expected: &RowAnswer, message: &Message, names: &Names, wrong: &mut Vec<String>) {
    for (name, _) in &expected.has {
        let wanted = expected
            .has
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let wanted: Vec<Vec<u8>> = wanted.map(|(_, value)| value.bytes(names)).collect();
        let got: Vec<&[u8]> = match name.as_str() {
            ":phrase" => message.start.get(13..).into_iter().collect(),
            name => wire::values(&message.fields, name).collect(),
        };
        if got != wanted {
            fn list(v: &[&[u8]]) -> String {
                v.iter().map(|b| show(b)).collect::<Vec<_>>().join(" | ")
            }
            let wanted: Vec<&[u8]> = wanted.iter().map(Vec::as_slice).collect();
            wrong.push(format!(
                "{name}: expected {}, got {}",
                list(&wanted),
                list(&got)
            ));
        }
    }
    for name in &expected.lacks {
        let all = wire::values(&message.fields, name).chain(wire::values(&message.trailers, name));
        wrong.extend(all.map(|value| format!("{name}: expected none, got {}", show(value))));
    }
}

/// A response of an origin is labelled and cannot contain fields in the name of the proxy.
fn passed_through(message: &Message, status: u16, names: &Names, wrong: &mut Vec<String>) {
    let label = match status {
        404 | 410 => "REJECTED_NOTFOUND",
        400.. => "REJECTED_BAD_STATUS",
        _ => "ACCEPTED",
    };
    expect_one(message, "crawl-status", |v| v == label, label, wrong);
    for ours in [
        "crawl-reason",
        "crawl-rule",
        "crawl-decision",
        "crawl-policy",
        "crawl-retry",
    ] {
        wrong.extend(
            wire::values(&message.fields, ours)
                .map(|v| format!("{ours} on an origin's answer: {}", show(v))),
        );
    }
    let last = wire::values(&message.fields, "via")
        .last()
        .unwrap_or_default();
    if !last.ends_with(names.via.as_bytes()) {
        wrong.push(format!(
            "via: expected {} last, got {}",
            names.via,
            show(last)
        ));
    }
    for hop in [
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
        "http2-settings",
        "proxy-authenticate",
    ] {
        wrong.extend(
            wire::values(&message.fields, hop)
                .map(|v| format!("{hop} passed through: {}", show(v))),
        );
    }
}

/// Every refusal has its reason, in its fields and in its body.
fn refused(expected: &RowAnswer, message: &Message, reason: &str, wrong: &mut Vec<String>) {
    expect_one(message, "crawl-reason", |v| v == reason, reason, wrong);
    expect_one(
        message,
        "crawl-status",
        |v| v.starts_with("REJECTED_"),
        "REJECTED_…",
        wrong,
    );
    expect_one(
        message,
        "crawl-policy",
        |v: &str| {
            v.strip_prefix("conformance@")
                .is_some_and(|r| r.len() == 8 && r.bytes().all(|b| b.is_ascii_hexdigit()))
        },
        "conformance@ and 8 hex digits",
        wrong,
    );
    expect_one(message, "crawl-decision", |v| !v.is_empty(), "an id", wrong);
    expect_one(
        message,
        "crawl-retry",
        |v| ["never", "after", "policy-change"].contains(&v),
        "a hint",
        wrong,
    );
    expect_one(
        message,
        "proxy-status",
        |v: &str| {
            v.starts_with("\"crawlgate\"; error=") && v.contains(&format!("details=\"{reason}"))
        },
        "\"crawlgate\"; error=…; details=\"REASON…\"",
        wrong,
    );
    expect_one(
        message,
        "cache-control",
        |v| v == "no-store",
        "no-store",
        wrong,
    );
    if expected.status != 304 {
        expect_one(
            message,
            "content-length",
            |v| v.parse::<usize>().is_ok(),
            "a length",
            wrong,
        );
    }
    if !expected.bodyless && expected.body.is_none() && expected.status != 304 {
        problem(expected, message, reason, wrong);
    }
}

/// The body of a refusal: a problem document, or one line of text, and never a URL.
fn problem(expected: &RowAnswer, message: &Message, reason: &str, wrong: &mut Vec<String>) {
    let body = String::from_utf8_lossy(&message.body);
    if body.contains("://") || body.trim_end().contains('\n') {
        wrong.push(format!(
            "a refusal's body is one line without a URL: {body}"
        ));
    }
    let kind = wire::values(&message.fields, "content-type")
        .next()
        .unwrap_or_default();
    if kind.starts_with(b"text/plain") {
        return;
    }
    if kind != b"application/problem+json" {
        wrong.push(format!("content-type of a refusal: {}", show(kind)));
    }
    let document: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let right = document["reason"] == reason
        && document["status"] == expected.status
        && document["type"] == format!("urn:crawlgate:reason:{reason}")
        && document["policy"] == "conformance";
    if !right {
        wrong.push(format!("problem document: {body}"));
    }
}

fn expect_one(
    message: &Message,
    name: &str,
    fits: impl Fn(&str) -> bool,
    what: &str,
    wrong: &mut Vec<String>,
) {
    let values: Vec<&[u8]> = wire::values(&message.fields, name).collect();
    let fine = matches!(values.as_slice(), [one] if str::from_utf8(one).is_ok_and(&fits));
    if !fine {
        let values: Vec<String> = values.iter().map(|v| show(v)).collect();
        wrong.push(format!(
            "{name}: expected one, {what}; got [{}]",
            values.join(" | ")
        ));
    }
}

/// The content of a connection, message by message.
enum Received {
    Request(Message),
    /// Bytes that are not a request, or not a whole head.
    Bytes(String),
}

impl Received {
    fn is_whole(&self) -> bool {
        matches!(self, Self::Request(message) if message.ending == WireEnding::Whole)
    }
}

fn received(connection: &Connection) -> Vec<Received> {
    let mut rest = connection.bytes.as_slice();
    let mut all = Vec::new();
    while !rest.is_empty() {
        match wire::request(rest) {
            Ok(Some((message, used))) => {
                rest = &rest[used..];
                all.push(Received::Request(message));
            }
            Ok(None) => {
                all.push(Received::Bytes(format!("part of a head: {}", show(rest))));
                break;
            }
            Err(wrong) => {
                all.push(Received::Bytes(wrong));
                break;
            }
        }
    }
    all.retain(|r| !matches!(r, Received::Request(m) if m.start.starts_with(b"GET /again ")));
    all
}

fn same_requests(
    expected: &[u8],
    got: &[Received],
    cut: bool,
    connections: &[Connection],
) -> Result<(), String> {
    let expected = received(&Connection {
        bytes: expected.to_vec(),
        ended: false,
    });
    if expected.len() != got.len() {
        return Err(format!(
            "expected {} requests, got {}",
            expected.len(),
            got.len()
        ));
    }
    let total = expected.len();
    for (index, (expected, got)) in expected.iter().zip(got).enumerate() {
        let (expected, got) = match (expected, got) {
            (Received::Request(expected), Received::Request(got)) => (expected, got),
            (Received::Bytes(wrong), _) => {
                return Err(format!("the row itself is no request: {wrong}"));
            }
            (_, Received::Bytes(wrong)) => return Err(wrong.clone()),
        };
        let last = index + 1 == total;
        same_request(expected, got, cut && last)
            .map_err(|why| format!("request {}: {why}", index + 1))?;
    }
    if cut && !connections.last().is_some_and(|c| c.ended) {
        return Err("the connection of the cut request stays open".into());
    }
    Ok(())
}

/// The order of fields of different names does not count (RFC 9110 section 5.3), nor does the case of names.
fn same_request(expected: &Message, got: &Message, cut: bool) -> Result<(), String> {
    if expected.start != got.start {
        return Err(format!(
            "expected {}, got {}",
            show(&expected.start),
            show(&got.start)
        ));
    }
    if by_name(&expected.fields) != by_name(&got.fields) {
        return Err(format!("fields differ, got\n{}", told(got)));
    }
    if got.trailers != expected.trailers {
        return Err(format!("trailers differ, got\n{}", told(got)));
    }
    if cut && got.ending == WireEnding::Whole {
        return Err("expected to be cut, is whole".into());
    }
    if cut && got.body.starts_with(&expected.body) {
        return Ok(());
    }
    if cut || got.body != expected.body || got.ending != expected.ending {
        return Err(format!(
            "body: expected {}, got {} ({:?})",
            show(&expected.body),
            show(&got.body),
            got.ending
        ));
    }
    Ok(())
}

fn by_name(fields: &[RawField]) -> Vec<(Vec<u8>, &[u8])> {
    let mut sorted: Vec<_> = fields
        .iter()
        .map(|(n, v)| (n.to_ascii_lowercase(), v.as_slice()))
        .collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    sorted
}

fn told(message: &Message) -> String {
    let mut text = format!("    {}\n", show(&message.start));
    for (name, value) in message.fields.iter().chain(&message.trailers) {
        text.push_str(&format!("    {}: {}\n", show(name), show(value)));
    }
    text.push_str(&format!(
        "    ({} bytes) {}",
        message.body.len(),
        show(&message.body)
    ));
    text
}
