//! `crawlgate target`: shows how the proxy reads URLs, without a policy or the network.
//!
//! The output is the canonical form that the proxy evaluates, looks up and sends, and the range of an IP address.

use std::io::{self, BufRead, Write};

use serde_json::{Value as Json, json};

use crate::urls::address::{classification_source, classify};
use crate::urls::target::UrlTarget;

use super::args::{OutputFormat, TargetArgs};
use super::{Exit, console, inputs};

/// Runs the command. Exits with 1 if any input is not a URL, as `decide` does.
pub(super) fn run(args: &TargetArgs) -> Exit {
    let mut stdin = io::stdin().lock();
    let mut stdout = io::stdout().lock();
    match show_targets(&args.urls, args.format, &mut stdin, &mut stdout) {
        Ok(0) => Exit::Success,
        Ok(_) => Exit::Negative,
        Err(error) => console::report_io_error(&error),
    }
}

/// Writes one line for each URL, or for each line of `stdin` if there are no URLs, and returns the number of inputs that
/// are not URLs.
fn show_targets(
    urls: &[String],
    format: OutputFormat,
    stdin: &mut dyn BufRead,
    out: &mut dyn Write,
) -> io::Result<usize> {
    let mut invalid = 0;
    inputs::for_each_url(urls, stdin, |input| {
        let report = TargetReport::new(input);
        invalid += usize::from(report.target.is_err());
        match format {
            OutputFormat::Text => writeln!(out, "{}", report.to_text()),
            OutputFormat::Json => writeln!(out, "{}", report.to_json()),
        }
    })?;
    out.flush()?;
    Ok(invalid)
}

/// An input with the parsed URL or the error.
struct TargetReport {
    input: String,
    target: Result<UrlTarget, String>,
}

impl TargetReport {
    fn new(input: &[u8]) -> Self {
        let target = match std::str::from_utf8(input) {
            Ok(text) => UrlTarget::parse(text).map_err(|error| error.to_string()),
            Err(_) => Err("the URL is not UTF-8: percent-encode its bytes as %XX".to_owned()),
        };
        Self {
            input: String::from_utf8_lossy(input).into_owned(),
            target,
        }
    }

    fn to_text(&self) -> String {
        let target = match &self.target {
            Ok(target) => target,
            // Debug formatting makes spaces visible and control characters harmless.
            Err(error) => return format!("{:<14} {error}: {:?}", "error", self.input),
        };
        let class = target.ip().map_or("name", |ip| classify(ip).as_str());
        let source = target
            .ip()
            .and_then(classification_source)
            .map_or(String::new(), |source| format!("  ({source})"));
        format!(
            "{class:<14} {:<28} {:>5}  {target:?}{source}",
            target.host(),
            target.port()
        )
    }

    fn to_json(&self) -> Json {
        let target = self.target.as_ref().ok();
        json!({
            "input": self.input,
            "canonical": target.map(UrlTarget::as_str),
            "scheme": target.map(|target| target.scheme().as_str()),
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

    fn check(urls: &[&str], mut stdin: &[u8], format: OutputFormat) -> (Vec<String>, usize) {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        let mut out = Vec::new();
        let invalid = show_targets(&urls, format, &mut stdin, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        (text.lines().map(str::to_owned).collect(), invalid)
    }

    #[test]
    fn text_lines() {
        let urls = [
            "HTTP://EXAMPLE.com.:80/a/../b",
            "http://0x7f.1:8080",
            "http://[64:ff9b::8.8.8.8]/",
            "x\u{9b}\t",
        ];
        let (lines, invalid) = check(&urls, b"http://not.read/", OutputFormat::Text);
        assert_eq!(invalid, 1);
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
        let (lines, invalid) = check(
            &["https://Example.com/a?b", "http://10.1/", "http://h:0/"],
            b"",
            OutputFormat::Json,
        );
        assert_eq!(invalid, 1);
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
        let (lines, invalid) = check(
            &[],
            b"http://a/\r\n\nhttp://b/ \nhttp://\xe9/\nhttp://c/",
            OutputFormat::Text,
        );
        let heads: Vec<_> = lines
            .iter()
            .map(|line| line.split_whitespace().next().unwrap())
            .collect();
        assert_eq!(
            (heads.as_slice(), invalid),
            (["name", "error", "error", "error", "name"].as_slice(), 3)
        );
        assert!(lines[3].contains("not UTF-8"), "{}", lines[3]);
    }

    /// A reader that closes the pipe ends the command.
    #[test]
    fn a_broken_pipe_is_reported() {
        struct ClosedPipe;
        impl Write for ClosedPipe {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let result = show_targets(
            &["http://a/".to_owned()],
            OutputFormat::Json,
            &mut io::empty(),
            &mut ClosedPipe,
        );
        assert_eq!(
            result.map_err(|error| error.kind()),
            Err(io::ErrorKind::BrokenPipe)
        );
    }
}
