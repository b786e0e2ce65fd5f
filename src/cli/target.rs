//! `crawlgate target`: what the proxy makes of a URL, without asking anybody for anything.
//!
//! It shows the one form that is judged, looked up and sent, and for an address the range that it is in. No policy is
//! asked and no name is resolved.

use std::io::{self, BufRead, Write};

use serde_json::{Value as Json, json};

use crate::urls::address::{classification_source, classify};
use crate::urls::target::UrlTarget;

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFormat {
    /// Columns: range, host, port, canonical form; or `error`, the mistake and the input.
    Text,
    /// `{"input", "canonical", "scheme", "host", "port", "path_and_query", "address_class", "error"}`.
    Json,
}

/// Writes one line for each URL, and says how many of them are none.
///
/// Without URLs it reads them from `stdin`, one a line; the answers keep the order of the lines, an empty one
/// included.
///
/// # Errors
/// What reading or writing fails with; a reader that left is [`io::ErrorKind::BrokenPipe`].
pub fn run(
    urls: &[String],
    format: TargetFormat,
    stdin: &mut dyn BufRead,
    out: &mut dyn Write,
) -> io::Result<usize> {
    let mut mistakes = 0;
    for url in urls {
        mistakes += write_answer(url.as_bytes(), format, out)?;
    }
    if urls.is_empty() {
        let mut line = Vec::new();
        while stdin.read_until(b'\n', &mut line)? > 0 {
            mistakes += write_answer(trim_line_end(&line), format, out)?;
            line.clear();
        }
    }
    out.flush()?;
    Ok(mistakes)
}

/// Only the end of the line goes: a space at the end of a URL is a mistake to be shown.
fn trim_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Writes the answer for one input; the number of mistakes in it, 0 or 1.
fn write_answer(input: &[u8], format: TargetFormat, out: &mut dyn Write) -> io::Result<usize> {
    let read = TargetReport::new(input);
    match format {
        TargetFormat::Text => writeln!(out, "{}", read.to_text())?,
        TargetFormat::Json => writeln!(out, "{}", read.to_json())?,
    }
    Ok(usize::from(read.target.is_err()))
}

/// An input and what it is read as.
struct TargetReport {
    input: String,
    target: Result<UrlTarget, String>,
}

impl TargetReport {
    fn new(input: &[u8]) -> Self {
        let target = match std::str::from_utf8(input) {
            Ok(text) => UrlTarget::parse(text).map_err(|mistake| mistake.to_string()),
            Err(_) => Err("bytes that are not UTF-8: write each as %XX".to_owned()),
        };
        Self {
            input: String::from_utf8_lossy(input).into_owned(),
            target,
        }
    }

    fn to_text(&self) -> String {
        let target = match &self.target {
            Ok(target) => target,
            // Quoted, so that a space or a control character is seen and does nothing.
            Err(mistake) => return format!("{:<14} {mistake}: {:?}", "error", self.input),
        };
        let class = target.ip().map_or("name", |ip| classify(ip).as_str());
        let because = target
            .ip()
            .and_then(classification_source)
            .map(|source| format!("  ({source})"));
        let because = because.unwrap_or_default();
        format!(
            "{class:<14} {:<28} {:>5}  {target:?}{because}",
            target.host(),
            target.port()
        )
    }

    fn to_json(&self) -> Json {
        let target = self.target.as_ref().ok();
        json!({
            "input": self.input,
            "canonical": target.map(UrlTarget::as_str),
            "scheme": target.map(|t| t.scheme().as_str()),
            "host": target.map(UrlTarget::host),
            "port": target.map(UrlTarget::port),
            "path_and_query": target.map(UrlTarget::path_and_query),
            "address_class": target.and_then(UrlTarget::ip).map(|ip| classify(ip).as_str()),
            "error": self.target.as_ref().err(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(urls: &[&str], stdin: &[u8], format: TargetFormat) -> (Vec<String>, usize) {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        let (mut input, mut out) = (stdin, Vec::new());
        let mistakes = run(&urls, format, &mut input, &mut out).unwrap();
        (
            String::from_utf8(out)
                .unwrap()
                .lines()
                .map(str::to_owned)
                .collect(),
            mistakes,
        )
    }

    #[test]
    fn text_lines() {
        let urls = [
            "HTTP://EXAMPLE.com.:80/a/../b",
            "http://0x7f.1:8080",
            "http://[64:ff9b::8.8.8.8]/",
            "x\u{9b}\t",
        ];
        let (lines, mistakes) = check(&urls, b"http://not.read/", TargetFormat::Text);
        assert_eq!(mistakes, 1);
        assert_eq!(
            lines,
            [
                "name           example.com                     80  http://example.com/b",
                "loopback       127.0.0.1                     8080  http://127.0.0.1:8080/  (RFC 1122)",
                "public         [64:ff9b::808:808]              80  http://[64:ff9b::808:808]/",
                r#"error          a control character in the URL: "x\u{9b}\t""#,
            ]
        );
    }

    #[test]
    fn json_lines_are_as_documented() {
        let (lines, mistakes) = check(
            &["https://Example.com/a?b", "http://10.1/", "http://h:0/"],
            b"",
            TargetFormat::Json,
        );
        assert_eq!(mistakes, 1);
        assert_eq!(
            lines,
            [
                r#"{"input":"https://Example.com/a?b","canonical":"https://example.com/a?b","scheme":"https","host":"example.com","port":443,"path_and_query":"/a?b","address_class":null,"error":null}"#,
                r#"{"input":"http://10.1/","canonical":"http://10.0.0.1/","scheme":"http","host":"10.0.0.1","port":80,"path_and_query":"/","address_class":"private","error":null}"#,
                r#"{"input":"http://h:0/","canonical":null,"scheme":null,"host":null,"port":null,"path_and_query":null,"address_class":null,"error":"the port is not a number from 1 to 65535"}"#,
            ]
        );
    }

    #[test]
    fn standard_input_is_answered_line_by_line() {
        let (lines, mistakes) = check(
            &[],
            b"http://a/\r\n\nhttp://b/ \nhttp://\xe9/\nhttp://c/",
            TargetFormat::Text,
        );
        let heads: Vec<_> = lines
            .iter()
            .map(|line| line.split_whitespace().next().unwrap())
            .collect();
        assert_eq!(
            (heads.as_slice(), mistakes),
            (["name", "error", "error", "error", "name"].as_slice(), 3)
        );
        assert!(lines[3].contains("not UTF-8"), "{}", lines[3]);
    }

    /// A reader that left ends the command.
    #[test]
    fn a_broken_pipe_is_told() {
        struct ClosedPipe;
        impl Write for ClosedPipe {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let told = run(
            &["http://a/".to_owned()],
            TargetFormat::Json,
            &mut io::empty(),
            &mut ClosedPipe,
        );
        assert_eq!(
            told.map_err(|error| error.kind()),
            Err(io::ErrorKind::BrokenPipe)
        );
    }
}
