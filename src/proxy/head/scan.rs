//! Reads a request head line by line as its bytes arrive, each byte once.
//!
//! It decides only whether there is exactly one way to read the head and where its end is. It frames no body: that is
//! hyper's, and the heads that hyper would frame otherwise do not pass here.

use std::ops::Range;

use memchr::memchr;

/// Limits of a request head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Bytes in all.
    pub bytes: usize,
    /// Fields.
    pub fields: usize,
    /// Bytes of the request target.
    pub target: usize,
}

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// There is no single way to read it: 400. What is wrong with it.
    Malformed(&'static str),
    /// The target is longer than `limits.target`: 414.
    TargetTooLong,
    /// More bytes than `limits.head`, or more fields than `limits.fields`: 431.
    TooLarge,
    /// It did not arrive within `timeouts.head`: 408.
    Late,
}

/// Bytes that are no HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// A TLS ClientHello: a client that takes the proxy's port for a TLS port.
    ClientHello,
    /// The preface of HTTP/2 with prior knowledge.
    Http2,
}

/// What follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// The next head.
    Head,
    /// A body, a tunnel or another protocol, until the connection closes as far as this reader can tell.
    Anything,
}

/// A complete head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its bytes, from the first of the request line to the last of the empty line.
    pub bytes: Range<usize>,
    /// The target in the request line.
    pub target: Range<usize>,
    /// Whether the target has bytes that hyper refuses and that are to be percent-encoded.
    pub encode: bool,
    /// What follows it.
    pub follows: Follows,
}

/// How far the reading has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    More,
    /// The head is complete.
    Complete(Head),
    /// The connection speaks another protocol.
    Foreign(Foreign),
}

/// The reader's memory between two arrivals.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Where the current line begins.
    line: usize,
    /// Up to where a line feed was looked for.
    searched: usize,
    request: Option<RequestLine>,
    fields: usize,
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
}

#[derive(Clone, Debug)]
struct RequestLine {
    start: usize,
    target: Range<usize>,
    encode: bool,
    connect: bool,
    http_1_0: bool,
}

impl Scan {
    /// Reads on. `bytes` is all that has arrived since the last head.
    ///
    /// # Errors
    /// If the head is refused.
    pub fn advance(&mut self, bytes: &[u8], limits: HeadLimits) -> Result<Progress, HeadError> {
        if self.request.is_none()
            && let Some(foreign) = foreign(bytes.get(self.line..).unwrap_or_default())
        {
            return Ok(Progress::Foreign(foreign));
        }
        while let Some(end) = self.next_line_end(bytes) {
            let line = bytes.get(self.line..end).unwrap_or_default();
            let Some(line) = line.strip_suffix(b"\r") else {
                return Err(HeadError::Malformed("a line ends in LF without CR"));
            };
            let start = self.line;
            self.line = end + 1;
            if self.line > limits.bytes {
                return Err(self.too_large());
            }
            if let Some(head) = self.take_line(line, start, limits)? {
                return Ok(Progress::Complete(head));
            }
        }
        if bytes.len() > limits.bytes { Err(self.too_large()) } else { Ok(Progress::More) }
    }

    fn next_line_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let found = memchr(b'\n', bytes.get(self.searched..)?);
        let end = found.map(|at| self.searched + at);
        self.searched = end.map_or(bytes.len(), |end| end + 1);
        end
    }

    /// A head without a request line yet is all target.
    fn too_large(&self) -> HeadError {
        if self.request.is_none() { HeadError::TargetTooLong } else { HeadError::TooLarge }
    }

    fn take_line(
        &mut self,
        line: &[u8],
        start: usize,
        limits: HeadLimits,
    ) -> Result<Option<Head>, HeadError> {
        let Some(request) = &self.request else {
            // RFC 9112 section 2.2: an empty line before a request line is ignored.
            if !line.is_empty() {
                self.request = Some(request_line(line, start, limits)?);
            }
            return Ok(None);
        };
        if !line.is_empty() {
            self.fields += 1;
            if self.fields > limits.fields {
                return Err(HeadError::TooLarge);
            }
            return self.field(line).map(|()| None);
        }
        let body = self.chunked || self.length.is_some_and(|length| length > 0);
        if self.chunked && request.http_1_0 {
            return Err(HeadError::Malformed("Transfer-Encoding in HTTP/1.0"));
        }
        if self.chunked && self.length.is_some() {
            return Err(HeadError::Malformed("Content-Length beside Transfer-Encoding"));
        }
        let follows = if body || self.upgrade || request.connect { Follows::Anything } else { Follows::Head };
        let (bytes, target) = (request.start..self.line, request.target.clone());
        Ok(Some(Head { bytes, target, encode: request.encode, follows }))
    }

    /// One field line (RFC 9112 section 5).
    fn field(&mut self, line: &[u8]) -> Result<(), HeadError> {
        if matches!(line.first(), Some(b' ' | b'\t')) {
            return Err(HeadError::Malformed("a folded field"));
        }
        let Some(colon) = memchr(b':', line) else {
            return Err(HeadError::Malformed("a field without a colon"));
        };
        let (name, value) = line.split_at_checked(colon).unwrap_or_default();
        if name.is_empty() || !name.iter().all(|b| is_token(*b)) {
            return Err(HeadError::Malformed("a field name with a character that none may have"));
        }
        let value = value.get(1..).unwrap_or_default();
        if value.iter().any(|b| is_forbidden_in_value(*b)) {
            return Err(HeadError::Malformed("a control character in a field value"));
        }
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value.trim_ascii()),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.transfer_encoding(value.trim_ascii())
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                self.upgrade = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), HeadError> {
        if self.length.is_some() {
            return Err(HeadError::Malformed("more than one Content-Length"));
        }
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(value).ok().filter(|_| digits).and_then(|v| v.parse().ok());
        self.length = number;
        if number.is_none() {
            Err(HeadError::Malformed("a Content-Length that is no number"))
        } else {
            Ok(())
        }
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), HeadError> {
        if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(HeadError::Malformed("a Transfer-Encoding other than chunked"));
        }
        self.chunked = true;
        Ok(())
    }
}

fn foreign(bytes: &[u8]) -> Option<Foreign> {
    match bytes.first() {
        Some(0x16) => Some(Foreign::ClientHello),
        Some(b'P') if bytes.starts_with(b"PRI ") => Some(Foreign::Http2),
        _ => None,
    }
}

/// `METHOD SP TARGET SP HTTP/1.x` (RFC 9112 section 3), each space exactly one.
fn request_line(line: &[u8], start: usize, limits: HeadLimits) -> Result<RequestLine, HeadError> {
    let malformed = HeadError::Malformed("a request line that is not METHOD SP TARGET SP HTTP/1.1");
    let first = memchr(b' ', line).ok_or(malformed)?;
    let last = memchr::memrchr(b' ', line).filter(|last| *last > first + 1).ok_or(malformed)?;
    let method = line.get(..first).unwrap_or_default();
    let target = line.get(first + 1..last).unwrap_or_default();
    let version = line.get(last + 1..).unwrap_or_default();
    if method.is_empty() || !method.iter().all(|b| is_token(*b)) {
        return Err(HeadError::Malformed("a method with a character that none may have"));
    }
    if target.len() > limits.target {
        return Err(HeadError::TargetTooLong);
    }
    let http_1_0 = match version {
        b"HTTP/1.1" => false,
        b"HTTP/1.0" => true,
        _ => return Err(HeadError::Malformed("a version other than HTTP/1.1 and HTTP/1.0")),
    };
    let encode = check_target(target)?;
    let target = start + first + 1..start + last;
    Ok(RequestLine { start, target, encode, connect: method == b"CONNECT", http_1_0 })
}

/// Whether the target has bytes to be percent-encoded.
fn check_target(target: &[u8]) -> Result<bool, HeadError> {
    let mut encode = false;
    for byte in target {
        match *byte {
            0..=0x20 | 0x7f => {
                return Err(HeadError::Malformed("a space or control character in the target"));
            }
            b'#' => return Err(HeadError::Malformed("a fragment in the target")),
            byte => encode |= is_encoded(byte),
        }
    }
    Ok(encode)
}

/// Bytes of a target that crawlers send and hyper refuses.
pub(super) fn is_encoded(byte: u8) -> bool {
    byte >= 0x80 || matches!(byte, b'<' | b'>' | b'"' | b'`')
}

/// RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_forbidden_in_value(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { bytes: 512, fields: 4, target: 64 };

    fn scan(bytes: &[u8]) -> Result<Progress, HeadError> {
        Scan::default().advance(bytes, LIMITS)
    }

    #[test]
    fn a_head_is_the_same_however_it_arrives() {
        let bytes = b"\r\nGET http://h/<a> HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\nrest";
        let Ok(Progress::Complete(whole)) = scan(bytes) else { panic!() };
        assert_eq!(&bytes[whole.target.clone()], b"http://h/<a>");
        assert!(whole.encode && whole.follows == Follows::Head);
        assert!(
            bytes[whole.bytes.clone()].starts_with(b"GET")
                && bytes[whole.bytes.clone()].ends_with(b"b\r\n\r\n")
        );
        let mut slowly = Scan::default();
        let mut arrivals = (1..=bytes.len()).map(|n| slowly.advance(&bytes[..n], LIMITS).unwrap());
        let complete = arrivals.find(|p| *p != Progress::More);
        assert_eq!(complete, Some(Progress::Complete(whole)));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for (head, part) in [
            ("GET / HTTP/1.1\nHost: h\r\n\r\n", "LF"),
            ("GET  / HTTP/1.1\r\n\r\n", "space"),
            ("GET /\r\n\r\n", "request line"),
            ("GET / HTTP/2.0\r\n\r\n", "version"),
            ("GET /a#b HTTP/1.1\r\n\r\n", "fragment"),
            ("GET / HTTP/1.1\r\nA : b\r\n\r\n", "field name"),
            ("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "folded"),
            ("GET / HTTP/1.1\r\nA: b\0\r\n\r\n", "control"),
            ("GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", "control"),
            ("GET / HTTP/1.1\r\nnocolon\r\n\r\n", "colon"),
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "beside"),
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", "more than one"),
            ("POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\n", "no number"),
            ("POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\n", "no number"),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "other than chunked"),
            ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0"),
        ] {
            match scan(head.as_bytes()) {
                Err(HeadError::Malformed(why)) => assert!(why.contains(part), "{head:?}: {why}"),
                other => panic!("{head:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn limits_and_foreign_protocols() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(64));
        assert_eq!(scan(long.as_bytes()), Err(HeadError::TargetTooLong));
        assert_eq!(scan(&[b'a'; 600]), Err(HeadError::TargetTooLong));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(5));
        assert_eq!(scan(many.as_bytes()), Err(HeadError::TooLarge));
        assert_eq!(scan(b"\x16\x03\x01"), Ok(Progress::Foreign(Foreign::ClientHello)));
        assert_eq!(scan(b"PRI * HTTP/2.0\r\n"), Ok(Progress::Foreign(Foreign::Http2)));
    }

    #[test]
    fn only_a_bare_head_is_followed_by_a_head() {
        for (head, follows) in [
            ("GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", Follows::Head),
            ("GET / HTTP/1.1\r\nContent-Length: 1\r\n\r\n", Follows::Anything),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Follows::Anything),
            ("GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n", Follows::Anything),
            ("CONNECT h:443 HTTP/1.1\r\n\r\n", Follows::Anything),
        ] {
            let Ok(Progress::Complete(complete)) = scan(head.as_bytes()) else { panic!("{head}") };
            assert_eq!(complete.follows, follows, "{head}");
        }
    }
}
