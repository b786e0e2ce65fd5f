//! Scans a request head line by line while it arrives, each byte once.
//!
//! The scan only checks that the head has exactly one interpretation, and finds its end and the
//! length of the body if the head declares it. Bodies are framed by hyper; heads that hyper would
//! frame differently are refused here.

use std::ops::Range;

use super::line::{
    FramingField, HttpVersion, RequestLine, find_control, parse_field, parse_request_line,
};

/// Limits of a request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The maximum size in bytes.
    pub bytes: usize,
    /// The maximum number of fields.
    pub fields: usize,
    /// The maximum size of the request target in bytes.
    pub target: usize,
}

/// The cause of a refused head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// The head is ambiguous or invalid: 400. The text describes the cause.
    Malformed(&'static str),
    /// The target is longer than `limits.target`: 414.
    TargetTooLong,
    /// The head has more bytes than `limits.head`, or more fields than `limits.fields`: 431.
    TooLarge,
    /// The head did not arrive within `timeouts.head`: 408.
    Late,
}

/// Protocols other than HTTP/1 that are recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignProtocol {
    /// TLS: the client takes the proxy's port for a TLS port.
    ClientHello,
    /// HTTP/2 with prior knowledge.
    Http2,
}

/// The bytes that follow a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowingBytes {
    /// The next head.
    Head,
    /// A body of this number of bytes, at least one, then the next head.
    Body(u64),
    /// A chunked body, a tunnel or another protocol. No further request is served.
    Anything,
}

impl FollowingBytes {
    /// Returns the number of bytes before the next head; `u64::MAX` if no other head follows.
    pub(super) fn length(self) -> u64 {
        match self {
            Self::Head => 0,
            Self::Body(length) => length,
            Self::Anything => u64::MAX,
        }
    }
}

/// A complete head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// The bytes of the head, from the first of the request line to the last of the empty line.
    pub bytes: Range<usize>,
    /// The target in the request line.
    pub target: Range<usize>,
    /// `true` if the target has bytes that hyper refuses and that must be percent-encoded.
    pub needs_encoding: bool,
    /// `true` if the version is HTTP/1.2 or later, for which HTTP/1.1 must be written.
    pub has_later_version: bool,
    /// `true` for OPTIONS of a URL with neither path nor query, which means the whole server (RFC
    /// 9112 section 3.2.4). hyper would add the path `/`.
    pub concerns_server: bool,
    /// The bytes that follow the head.
    pub follows: FollowingBytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanProgress {
    /// Only empty lines have arrived. The caller must drop them before the next call.
    Blank,
    /// More bytes are needed.
    More,
    /// The head is complete.
    Complete(RequestHead),
    /// The client uses another protocol.
    Foreign(ForeignProtocol),
}

/// The state of a scan.
#[derive(Clone, Debug, Default)]
pub struct HeadScanner {
    /// The start of the current line.
    line: usize,
    /// The end of the bytes that were searched for a line feed.
    searched: usize,
    /// The number of bytes of empty lines that were dropped.
    dropped: usize,
    /// The request line and its start.
    request_line: Option<(usize, RequestLine)>,
    fields: usize,
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
}

/// Scans a head in one step.
///
/// # Errors
/// Returns an error if the head is refused.
pub fn scan_head(bytes: &[u8], limits: HeadLimits) -> Result<ScanProgress, HeadError> {
    HeadScanner::default().advance(bytes, limits)
}

impl HeadScanner {
    /// Continues the scan. `bytes` contains all bytes since the last head.
    ///
    /// # Errors
    /// Returns an error if the head is refused.
    pub fn advance(&mut self, bytes: &[u8], limits: HeadLimits) -> Result<ScanProgress, HeadError> {
        // Bytes above the limit are ignored, so that the result does not depend on how they arrive.
        let within = bytes
            .get(..limits.bytes.saturating_sub(self.dropped))
            .unwrap_or(bytes);
        loop {
            if self.request_line.is_none()
                && let Some(foreign) = detect_foreign(within.get(self.line..).unwrap_or_default())
            {
                return Ok(ScanProgress::Foreign(foreign));
            }
            let Some(end) = self.line_end(within)? else {
                break;
            };
            let start = std::mem::replace(&mut self.line, end + 2);
            self.searched = self.line;
            if let Some(head) =
                self.take_line(within.get(start..end).unwrap_or_default(), start, limits)?
            {
                return Ok(ScanProgress::Complete(head));
            }
        }
        if within.len() < bytes.len() {
            Err(self.too_large())
        } else {
            Ok(self.unfinished(bytes.len()))
        }
    }

    /// Returns the end of the current line, if its CRLF has arrived.
    fn line_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, HeadError> {
        let Some(at) = bytes.get(self.searched..).and_then(find_control) else {
            self.searched = bytes.len();
            return Ok(None);
        };
        let end = self.searched + at;
        self.searched = end;
        match (bytes.get(end), bytes.get(end + 1)) {
            (Some(b'\r'), Some(b'\n')) => Ok(Some(end)),
            (Some(b'\r'), None) => Ok(None),
            (Some(b'\n'), _) => Err(HeadError::Malformed("a line ends in LF without CR")),
            _ => Err(HeadError::Malformed("a control character in the head")),
        }
    }

    /// Returns the progress for bytes that end within a head, or before one.
    fn unfinished(&mut self, length: usize) -> ScanProgress {
        if self.request_line.is_some() || self.line < length {
            return ScanProgress::More;
        }
        self.dropped += std::mem::take(&mut self.line);
        self.searched = 0;
        ScanProgress::Blank
    }

    /// Without a complete request line, the whole head counts as the target.
    fn too_large(&self) -> HeadError {
        if self.request_line.is_none() {
            HeadError::TargetTooLong
        } else {
            HeadError::TooLarge
        }
    }

    fn take_line(
        &mut self,
        line: &[u8],
        start: usize,
        limits: HeadLimits,
    ) -> Result<Option<RequestHead>, HeadError> {
        let Some((head, request)) = &self.request_line else {
            // RFC 9112 section 2.2: an empty line before a request line is ignored.
            if !line.is_empty() {
                self.request_line = Some((start, parse_request_line(line, start, limits.target)?));
            }
            return Ok(None);
        };
        if line.is_empty() {
            return self.complete(*head, request).map(Some);
        }
        self.fields += 1;
        if self.fields > limits.fields {
            return Err(HeadError::TooLarge);
        }
        self.take_field(parse_field(line)?)?;
        Ok(None)
    }

    fn take_field(&mut self, field: FramingField) -> Result<(), HeadError> {
        match field {
            FramingField::ContentLength(_) if self.length.is_some() => {
                return Err(HeadError::Malformed("more than one Content-Length"));
            }
            FramingField::Chunked if self.chunked => {
                return Err(HeadError::Malformed("more than one Transfer-Encoding"));
            }
            FramingField::ContentLength(length) => self.length = Some(length),
            FramingField::Chunked => self.chunked = true,
            FramingField::Upgrade => self.upgrade = true,
            FramingField::Other => {}
        }
        Ok(())
    }

    fn complete(&self, start: usize, request: &RequestLine) -> Result<RequestHead, HeadError> {
        if self.chunked && request.version == HttpVersion::Http10 {
            return Err(HeadError::Malformed("Transfer-Encoding in HTTP/1.0"));
        }
        if self.chunked && self.length.is_some() {
            return Err(HeadError::Malformed(
                "both Content-Length and Transfer-Encoding",
            ));
        }
        let follows = match self.length.unwrap_or(0) {
            _ if self.chunked || self.upgrade || request.is_connect => FollowingBytes::Anything,
            0 => FollowingBytes::Head,
            length => FollowingBytes::Body(length),
        };
        Ok(RequestHead {
            bytes: start..self.line,
            target: request.target.clone(),
            needs_encoding: request.needs_encoding,
            has_later_version: request.version == HttpVersion::Later,
            concerns_server: request.concerns_server,
            follows,
        })
    }
}

impl RequestHead {
    /// Returns `true` if hyper needs another request line than the received one.
    pub fn needs_rewrite(&self) -> bool {
        self.needs_encoding || self.has_later_version || self.concerns_server
    }
}

fn detect_foreign(line: &[u8]) -> Option<ForeignProtocol> {
    match line.first() {
        Some(0x16) => Some(ForeignProtocol::ClientHello),
        Some(b'P') if line.starts_with(b"PRI ") => Some(ForeignProtocol::Http2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits {
        bytes: 512,
        fields: 4,
        target: 64,
    };

    fn whole(bytes: &[u8]) -> Result<ScanProgress, HeadError> {
        scan_head(bytes, LIMITS)
    }

    #[test]
    fn a_head_is_the_same_however_it_arrives() {
        let bytes = b"GET http://h/<a> HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\nrest";
        let Ok(ScanProgress::Complete(expected)) = whole(bytes) else {
            panic!()
        };
        assert_eq!(&bytes[expected.target.clone()], b"http://h/<a>");
        assert!(expected.needs_encoding && expected.follows == FollowingBytes::Head);
        assert_eq!(
            &bytes[expected.bytes.clone()],
            bytes.strip_suffix(b"rest").unwrap()
        );
        let mut slowly = HeadScanner::default();
        let mut arrivals = (1..=bytes.len()).map(|n| slowly.advance(&bytes[..n], LIMITS).unwrap());
        let complete = arrivals.find(|p| *p != ScanProgress::More);
        assert_eq!(complete, Some(ScanProgress::Complete(expected)));
    }

    #[test]
    fn empty_lines_before_a_head_are_dropped_but_not_without_end() {
        let Ok(ScanProgress::Complete(head)) = whole(b"\r\n\r\nGET / HTTP/1.1\r\n\r\n") else {
            panic!()
        };
        assert_eq!(head.bytes, 4..22);
        let mut scan = HeadScanner::default();
        assert_eq!(scan.advance(b"\r\n", LIMITS), Ok(ScanProgress::Blank));
        assert_eq!(scan.advance(b"\r", LIMITS), Ok(ScanProgress::More));
        assert_eq!(scan.advance(b"\r\nGET", LIMITS), Ok(ScanProgress::More));
        assert!(matches!(
            scan.advance(b"\r\nGET / HTTP/1.1\r\n\r\n", LIMITS),
            Ok(ScanProgress::Complete(_))
        ));
        let mut flood = HeadScanner::default();
        let mut ends = (0..300).map(|_| flood.advance(b"\r\n", LIMITS));
        assert_eq!(
            ends.find(Result::is_err),
            Some(Err(HeadError::TargetTooLong))
        );
        assert_eq!(
            whole(b"\nGET / HTTP/1.1\r\n\r\n"),
            Err(HeadError::Malformed("a line ends in LF without CR"))
        );
    }

    #[test]
    fn ambiguous_heads_are_refused() {
        for (head, part) in [
            ("GET / HTTP/1.1\nHost: h\r\n\r\n", "LF"),
            ("GET / HTTP/1.1\r\nHost: h\n\r\n", "LF"),
            ("GET / HTTP/1.1\r\nHost: h\r\n\n", "LF"),
            ("GET  / HTTP/1.1\r\n\r\n", "space"),
            ("GET / HTTP/1.1 \r\n\r\n", "version"),
            (" GET / HTTP/1.1\r\n\r\n", "request line"),
            ("GET\t/ HTTP/1.1\r\n\r\n", "request line"),
            ("GET /a\tb HTTP/1.1\r\n\r\n", "space"),
            ("GET /a b HTTP/1.1\r\n\r\n", "space"),
            ("GET /\r\n\r\n", "request line"),
            ("GET  HTTP/1.1\r\n\r\n", "request line"),
            ("GET / HTTP/2.0\r\n\r\n", "version"),
            ("GET / http/1.1\r\n\r\n", "version"),
            ("G(T / HTTP/1.1\r\n\r\n", "request line"),
            ("GET /a#b HTTP/1.1\r\n\r\n", "fragment"),
            ("GET /a\0b HTTP/1.1\r\n\r\n", "control"),
            ("GET /a\x7fb HTTP/1.1\r\n\r\n", "control"),
            ("GET /a\rb HTTP/1.1\r\n\r\n", "control"),
            ("GET / HTTP/1.1\r\nA : b\r\n\r\n", "field name"),
            ("GET / HTTP/1.1\r\n: b\r\n\r\n", "field name"),
            ("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "folded"),
            ("GET / HTTP/1.1\r\n A: b\r\n\r\n", "folded"),
            ("GET / HTTP/1.1\r\nA: b\0\r\n\r\n", "control"),
            ("GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", "control"),
            ("GET / HTTP/1.1\r\nnocolon\r\n\r\n", "colon"),
            (
                "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "both",
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
                "both",
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
                "more than one",
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                "more than one",
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\n",
                "not a number",
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                "other than chunked",
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: \r\n\r\n",
                "other than chunked",
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                "more than one",
            ),
            (
                "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
                "HTTP/1.0",
            ),
        ] {
            match whole(head.as_bytes()) {
                Err(HeadError::Malformed(why)) => assert!(why.contains(part), "{head:?}: {why}"),
                other => panic!("{head:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn limits_and_foreign_protocols() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(64));
        assert_eq!(whole(long.as_bytes()), Err(HeadError::TargetTooLong));
        assert_eq!(whole(&[b'a'; 513]), Err(HeadError::TargetTooLong));
        assert_eq!(whole(&[b'a'; 512]), Ok(ScanProgress::More));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(5));
        assert_eq!(whole(many.as_bytes()), Err(HeadError::TooLarge));
        let large = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(512));
        assert_eq!(whole(large.as_bytes()), Err(HeadError::TooLarge));
        assert_eq!(
            whole(b"\x16\x03\x01"),
            Ok(ScanProgress::Foreign(ForeignProtocol::ClientHello))
        );
        assert_eq!(
            whole(b"PRI * HTTP/2.0\r\n\r\n"),
            Ok(ScanProgress::Foreign(ForeignProtocol::Http2))
        );
        assert_eq!(whole(b"PRI"), Ok(ScanProgress::More));
        assert!(matches!(
            whole(b"PRINT / HTTP/1.1\r\n\r\n"),
            Ok(ScanProgress::Complete(_))
        ));
    }

    #[test]
    fn the_bytes_after_a_head_are_known_or_anything() {
        for (head, follows) in [
            (
                "get / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
                FollowingBytes::Head,
            ),
            (
                "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
                FollowingBytes::Head,
            ),
            (
                "GET / HTTP/1.1\r\nContent-Length: 1\r\n\r\n",
                FollowingBytes::Body(1),
            ),
            (
                "POST / HTTP/1.0\r\nContent-Length: 9223372036854775807\r\n\r\n",
                FollowingBytes::Body(i64::MAX as u64),
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: 1\r\nUpgrade: h2c\r\n\r\n",
                FollowingBytes::Anything,
            ),
            (
                "CONNECT h:443 HTTP/1.1\r\nContent-Length: 1\r\n\r\n",
                FollowingBytes::Anything,
            ),
            (
                "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
                FollowingBytes::Anything,
            ),
            (
                "GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n",
                FollowingBytes::Anything,
            ),
            ("CONNECT h:443 HTTP/1.1\r\n\r\n", FollowingBytes::Anything),
        ] {
            let Ok(ScanProgress::Complete(complete)) = whole(head.as_bytes()) else {
                panic!("{head}")
            };
            assert_eq!(complete.follows, follows, "{head}");
        }
    }
}
