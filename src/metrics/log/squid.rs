//! A line of the decision log in the `squid` format of Squid's `access.log`, for tools that read it.
//!
//! `%ts.%03tu %6tr %>a %Ss/%03>Hs %<st %rm %ru %[un %Sh/%<a %mt`. docs/decision-log.md describes how decisions are
//! mapped. It contains less than the JSON line: no rule, no reason, no policy.

use std::io::Write;
use std::time::SystemTime;

use super::line::{LogLine, LogOutcome, LogSubject, truncate};
use super::query::QueryVisibility;
use crate::metrics::labels::CLIENT_LEFT;

/// Appends the line and its line feed. Writing to a `Vec` cannot fail.
pub(super) fn render(line: &LogLine<'_>, query: QueryVisibility, out: &mut Vec<u8>) {
    let since = line
        .ts
        .0
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let _ = write!(
        out,
        "{}.{:03} {:6} ",
        since.as_secs(),
        since.subsec_millis(),
        line.duration.as_millis()
    );
    match line.client {
        Some(client) => drop(write!(out, "{client}")),
        None => out.push(b'-'),
    }
    let status = line.sent_status.unwrap_or(0);
    let _ = write!(
        out,
        " {}{}/{status:03} {} ",
        result_code(line),
        result_suffix(line),
        line.bytes
    );
    write_word(truncate(line.method), out);
    out.push(b' ');
    write_subject(line, query, out);
    out.push(b' ');
    write_word(
        line.crawler
            .filter(|_| line.is_configured)
            .unwrap_or_default(),
        out,
    );
    match line.address.filter(|_| has_answer(line)) {
        Some(address) => drop(write!(out, " HIER_DIRECT/{address} ")),
        None => out.extend_from_slice(b" HIER_NONE/- "),
    }
    write_word(line.content_type.map(truncate).unwrap_or_default(), out);
    out.push(b'\n');
}

/// Returns `true` if the origin has answered, or for a tunnel.
fn has_answer(line: &LogLine<'_>) -> bool {
    line.origin_status.is_some() || line.method == "CONNECT"
}

/// `%Ss`: the result of the request.
fn result_code(line: &LogLine<'_>) -> &'static str {
    match line.outcome {
        LogOutcome::Unparsed => "NONE_NONE",
        LogOutcome::Refused if line.origin_status.is_some() => "TCP_DENIED_REPLY",
        LogOutcome::Refused => "TCP_DENIED",
        LogOutcome::Allowed | LogOutcome::Failed | LogOutcome::TimedOut
            if line.method == "CONNECT" =>
        {
            "TCP_TUNNEL"
        }
        LogOutcome::Allowed | LogOutcome::Failed | LogOutcome::TimedOut => "TCP_MISS",
    }
}

fn result_suffix(line: &LogLine<'_>) -> &'static str {
    match line.outcome {
        _ if line.error == Some(CLIENT_LEFT) => "_ABORTED",
        LogOutcome::TimedOut => "_TIMEDOUT",
        LogOutcome::Allowed | LogOutcome::Refused | LogOutcome::Failed | LogOutcome::Unparsed => "",
    }
}

/// `%ru`, with no more of the URL than the JSON line shows.
fn write_subject(line: &LogLine<'_>, query: QueryVisibility, out: &mut Vec<u8>) {
    match (line.url, line.host, line.subject) {
        (Some(url), ..) => query.for_each_part(url, |part| write_word(part, out)),
        (None, Some(host), LogSubject::Tunnel { port }) => {
            write_word(host, out);
            let _ = write!(out, ":{port}");
        }
        (None, Some(host), LogSubject::Url { scheme }) => {
            write_word(scheme, out);
            out.extend_from_slice(b"://");
            write_word(host, out);
            out.push(b'/');
        }
        (None, None | Some(_), LogSubject::Unknown) => {
            out.extend_from_slice(b"error:invalid-request")
        }
        (None, None, LogSubject::Url { .. } | LogSubject::Tunnel { .. }) => out.push(b'-'),
    }
}

/// Writes text as one field: spaces, controls and everything outside ASCII as percent-escapes; `-` if it is empty.
fn write_word(text: &str, out: &mut Vec<u8>) {
    if text.is_empty() {
        return out.push(b'-');
    }
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return out.extend_from_slice(text.as_bytes());
    }
    for byte in text.bytes() {
        if byte.is_ascii_graphic() {
            out.push(byte);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_stays_one_field() {
        for (text, shown) in [
            ("http://h/a?b", "http://h/a?b"),
            ("a b\tc\n\u{1b}[2J", "a%20b%09c%0A%1B[2J"),
            ("\u{85}\u{202e}\u{7f}", "%C2%85%E2%80%AE%7F"),
            ("", "-"),
        ] {
            let mut out = Vec::new();
            write_word(text, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), shown);
        }
    }
}
