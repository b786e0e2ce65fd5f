//! The lines of a request head, one at a time. Each line must have exactly one interpretation.
//!
//! hyper parses the line again. A line that hyper would refuse is refused here first, because this
//! response can contain the reason. A line that hyper accepts but that another server may interpret
//! differently is refused only here.

use std::ops::Range;

use super::scan::HeadError;

/// The first line of a head. The target is a range of the scanned bytes.
#[derive(Clone, Debug)]
pub(super) struct RequestLine {
    pub(super) target: Range<usize>,
    pub(super) needs_encoding: bool,
    /// `true` for OPTIONS of a URL with neither path nor query.
    pub(super) concerns_server: bool,
    pub(super) is_connect: bool,
    pub(super) version: HttpVersion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpVersion {
    Http10,
    Http11,
    /// HTTP/1.2 to HTTP/1.9, processed as HTTP/1.1 (RFC 9110 section 2.5). hyper refuses them.
    Later,
}

/// The effect of a field on the bytes after its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FramingField {
    ContentLength(u64),
    Chunked,
    Upgrade,
    Other,
}

/// Parses `METHOD SP TARGET SP HTTP/1.x` (RFC 9112 section 3) with exactly one space each. The line
/// begins at `start`.
pub(super) fn parse_request_line(
    line: &[u8],
    start: usize,
    limit: usize,
) -> Result<RequestLine, HeadError> {
    let malformed = HeadError::Malformed("a request line that is not METHOD SP TARGET SP HTTP/1.1");
    let (method, rest) = split_token(line);
    let rest = rest.strip_prefix(b" ").ok_or(malformed)?;
    let Some((target, version)) = split_version(rest) else {
        return Err(if rest.contains(&b' ') {
            HeadError::Malformed("a version other than HTTP/1.1 and HTTP/1.0")
        } else {
            malformed
        });
    };
    if method.is_empty() || target.is_empty() {
        return Err(malformed);
    }
    if target.len() > limit {
        return Err(HeadError::TargetTooLong);
    }
    let target_start = start + method.len() + 1;
    Ok(RequestLine {
        needs_encoding: check_target(target)?,
        target: target_start..target_start + target.len(),
        concerns_server: method == b"OPTIONS" && is_bare_origin(target),
        is_connect: method == b"CONNECT",
        version,
    })
}

/// Returns `true` for `scheme://authority`.
fn is_bare_origin(target: &[u8]) -> bool {
    memchr::memmem::find(target, b"://").is_some_and(|at| {
        let rest = target.get(at + 3..).unwrap_or_default();
        memchr::memchr2(b'/', b'?', rest).is_none() && !rest.is_empty()
    })
}

/// Splits off the version at the end of a request line.
fn split_version(rest: &[u8]) -> Option<(&[u8], HttpVersion)> {
    let (minor, before) = rest.split_last()?;
    let version = match minor {
        b'1' => HttpVersion::Http11,
        b'0' => HttpVersion::Http10,
        b'2'..=b'9' => HttpVersion::Later,
        _ => return None,
    };
    Some((before.strip_suffix(b" HTTP/1.")?, version))
}

/// Parses a field line (RFC 9112 section 5) without control characters.
pub(super) fn parse_field(line: &[u8]) -> Result<FramingField, HeadError> {
    let (name, rest) = split_token(line);
    let Some(value) = rest.strip_prefix(b":").filter(|_| !name.is_empty()) else {
        return Err(HeadError::Malformed(match line.first() {
            Some(b' ' | b'\t') => "a folded field",
            _ if line.contains(&b':') => "a field name with an invalid character",
            _ => "a field without a colon",
        }));
    };
    match name.len() {
        7 if name.eq_ignore_ascii_case(b"upgrade") => Ok(FramingField::Upgrade),
        14 if name.eq_ignore_ascii_case(b"content-length") => {
            parse_content_length(value.trim_ascii())
        }
        17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
            parse_transfer_encoding(value.trim_ascii())
        }
        _ => Ok(FramingField::Other),
    }
}

/// Parses `1*DIGIT` (RFC 9110 section 8.6): no sign, no list.
fn parse_content_length(value: &[u8]) -> Result<FramingField, HeadError> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(value)
        .ok()
        .filter(|_| digits)
        .and_then(|text| text.parse::<i64>().ok());
    match number.and_then(|number| u64::try_from(number).ok()) {
        Some(length) => Ok(FramingField::ContentLength(length)),
        None => Err(HeadError::Malformed(
            "a Content-Length that is not a number",
        )),
    }
}

fn parse_transfer_encoding(value: &[u8]) -> Result<FramingField, HeadError> {
    if value.eq_ignore_ascii_case(b"chunked") {
        Ok(FramingField::Chunked)
    } else {
        Err(HeadError::Malformed(
            "a Transfer-Encoding other than chunked",
        ))
    }
}

/// Returns `true` if the target has bytes that must be percent-encoded.
fn check_target(target: &[u8]) -> Result<bool, HeadError> {
    // Nearly all targets are plain. The loop has no early exit so that it is vectorized.
    if target.iter().fold(true, |all, byte| all & is_plain(*byte)) {
        return Ok(false);
    }
    let mut encode = false;
    let mut state = IN_PATH;
    for byte in target {
        let class = class(*byte);
        if class & REFUSED != 0 {
            return Err(HeadError::Malformed(match byte {
                b'#' => "a fragment in the target",
                _ => "a space or control character in the target",
            }));
        }
        encode |= class & state != 0;
        if *byte == b'?' {
            state = IN_QUERY;
        }
    }
    Ok(encode)
}

const fn is_plain(byte: u8) -> bool {
    (byte > b' ') & (byte < 0x7f) & !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'`')
}

/// Appends a target to `head`, with those bytes percent-encoded that crawlers send and hyper refuses.
pub(super) fn push_encoded(target: &[u8], head: &mut Vec<u8>) {
    let mut state = IN_PATH;
    for byte in target {
        if class(*byte) & state != 0 {
            head.extend([b'%', hex(byte >> 4), hex(byte & 15)]);
        } else {
            head.push(*byte);
        }
        if *byte == b'?' {
            state = IN_QUERY;
        }
    }
}

fn hex(nibble: u8) -> u8 {
    if nibble < 10 {
        b'0' + nibble
    } else {
        b'A' + nibble - 10
    }
}

/// Splits off the token (RFC 9110 section 5.6.2) at the start of a line.
fn split_token(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line
        .iter()
        .position(|byte| class(*byte) & TOKEN == 0)
        .unwrap_or(line.len());
    line.split_at_checked(end).unwrap_or_default()
}

/// Returns the position of the first control character that is not allowed within a line. A tab is
/// allowed.
pub(super) fn find_control(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (n, word) in words.iter().enumerate() {
        let found = control_mask(u64::from_le_bytes(*word));
        if found != 0 {
            return Some(8 * n + found.trailing_zeros() as usize / 8);
        }
    }
    rest.iter()
        .position(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f)
        .map(|at| 8 * words.len() + at)
}

/// Returns a word in which the highest bit of each byte is set that is a control character other
/// than a tab. It compares eight bytes at once, with sums that never carry into the next byte.
fn control_mask(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const LOW: u64 = ONES * 0x7f;
    let low = word & LOW;
    let from_space = low + ONES * u64::from(0x80 - b' ');
    let is_del = low + ONES;
    let found = (!from_space | is_del) & !word & !LOW;
    if found == 0 {
        return 0;
    }
    let but_tab = word ^ (ONES * u64::from(b'\t'));
    found & (((but_tab & LOW) + LOW) | but_tab)
}

/// The byte may be in a method or field name.
const TOKEN: u8 = 1;
/// The byte is not allowed in a target. A backslash is, because the parser of the target handles
/// it.
const REFUSED: u8 = 2;
/// The byte is encoded in the path of a target, because hyper refuses it there. hyper refuses bytes
/// from 0x80 only if they are not UTF-8, but they are always encoded.
const IN_PATH: u8 = 4;
/// The byte is encoded in the query of a target, because hyper refuses it there.
const IN_QUERY: u8 = 8;

const CLASSES: [u8; 256] = classes();

fn class(byte: u8) -> u8 {
    CLASSES.get(usize::from(byte)).copied().unwrap_or(REFUSED)
}

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which would see it fail"
)]
const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte: u8 = 0;
    loop {
        classes[byte as usize] = match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => TOKEN,
            b'!' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'|'
            | b'~' => TOKEN,
            b'#' => TOKEN | REFUSED,
            b'`' => TOKEN | IN_PATH,
            b'"' => IN_QUERY,
            b'<' | b'>' | 0x80.. => IN_PATH | IN_QUERY,
            0..=0x20 | 0x7f => REFUSED,
            _ => 0,
        };
        if byte == u8::MAX {
            return classes;
        }
        byte += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(target: &[u8]) -> Vec<u8> {
        let mut head = Vec::new();
        push_encoded(target, &mut head);
        head
    }

    #[test]
    fn bytes_are_encoded_where_hyper_refuses_them() {
        for (target, expected) in [
            (
                &b"/a<b>`c\"{d|e}^\\?q=`\"<{|}^\\>"[..],
                &b"/a%3Cb%3E%60c\"{d|e}^\\?q=`%22%3C{|}^\\%3E"[..],
            ),
            (b"/caf\xe9?\xc3\xa9", b"/caf%E9?%C3%A9"),
            (b"/%zz%41?a?b#", b"/%zz%41?a?b#"),
        ] {
            assert_eq!(
                encoded(target),
                expected,
                "{}",
                String::from_utf8_lossy(target)
            );
        }
    }

    #[test]
    fn the_encoded_bytes_are_those_that_http_refuses() {
        for place in ["http://h/a", "http://h/a?"] {
            for byte in 0x21..=0xff_u8 {
                let target = [place.as_bytes(), &[byte]].concat();
                let is_accepted = http::Uri::try_from(&target[..]).is_ok();
                let encode = check_target(&target);
                match byte {
                    b'#' | 0x7f => assert!(encode.is_err()),
                    _ => assert_eq!(encode, Ok(!is_accepted), "{byte:#x} after {place}"),
                }
                assert!(
                    http::Uri::try_from(&encoded(&target)[..]).is_ok() || byte == 0x7f,
                    "{byte:#x}"
                );
            }
        }
    }

    #[test]
    fn control_characters_are_found_wherever_they_are() {
        for byte in 0..=0xff_u8 {
            let is_control = byte.is_ascii_control() && byte != b'\t';
            for (before, after) in [(0, 0), (3, 0), (7, 9), (8, 0), (15, 20), (21, 2)] {
                for around in [b'a', b' ', b'\t', b'!', 0x80, 0xff, b'~'] {
                    let bytes = [vec![around; before], vec![byte], vec![around; after]].concat();
                    assert_eq!(
                        find_control(&bytes),
                        is_control.then_some(before),
                        "{byte:#x} in {around:#x}"
                    );
                }
            }
        }
    }

    #[test]
    fn field_names_are_case_insensitive() {
        for (line, expected) in [
            (
                &b"Content-length:\t 12 "[..],
                FramingField::ContentLength(12),
            ),
            (b"CONTENT-LENGTH:0", FramingField::ContentLength(0)),
            (
                b"Content-Length: 00000000000000000000005",
                FramingField::ContentLength(5),
            ),
            (b"transfer-encoding: Chunked", FramingField::Chunked),
            (b"UPGRADE: h2c", FramingField::Upgrade),
            (b"Upgrades: h2c", FramingField::Other),
            (b"X: caf\xe9 \t \"", FramingField::Other),
            (b"Empty:", FramingField::Other),
        ] {
            assert_eq!(
                parse_field(line),
                Ok(expected),
                "{}",
                String::from_utf8_lossy(line)
            );
        }
        for length in [
            "",
            "-1",
            "+5",
            "5, 5",
            "5 5",
            "0x5",
            "5;",
            "9223372036854775808",
            "\u{665}",
        ] {
            let line = format!("Content-Length: {length}");
            assert!(parse_field(line.as_bytes()).is_err(), "{line}");
        }
    }
}
