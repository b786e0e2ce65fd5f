//! HTTP/1.1 messages: a strict reader of bytes, for both sides.
//!
//! Anything that RFC 9112 lets a sender write in one way only is accepted in that way only, so that a proxy that forwards
//! a lenient spelling is detected. Nothing here is shared with the product.

/// A message in the order of the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The request line or the status line, without its CRLF.
    pub(crate) start: Vec<u8>,
    /// Field lines: name as written, value without its outer blanks.
    pub(crate) fields: Vec<RawField>,
    /// The content, with the chunked coding taken off.
    pub(crate) body: Vec<u8>,
    /// Trailer fields of a chunked message.
    pub(crate) trailers: Vec<RawField>,
    /// The way in which the message ended.
    pub(crate) ending: WireEnding,
}

/// A field line.
pub(crate) type RawField = (Vec<u8>, Vec<u8>);

/// The way in which a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireEnding {
    /// By its framing.
    Whole,
    /// Not yet: more bytes are due.
    Short,
}

/// Where the body of a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is no body.
    Empty,
    /// `Content-Length`.
    Length(usize),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The end of the connection (answers only).
    UntilEnd,
}

/// Reads one request from the front of `bytes`: the message and how many bytes it took; `None` without a whole head.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn request(bytes: &[u8]) -> Result<Option<(Message, usize)>, String> {
    let Some((start, fields, used)) = head(bytes)? else {
        return Ok(None);
    };
    let framing = Some(framing(&fields)?)
        .filter(|f| *f != Framing::UntilEnd)
        .unwrap_or(Framing::Empty);
    body(start, fields, framing, bytes, used).map(Some)
}

/// Reads one answer from the front of `bytes`; `None` without a whole head. `bodyless` answers (to HEAD) have fields
/// that promise a body, but none follows.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn answer(bytes: &[u8], bodyless: bool) -> Result<Option<(Message, usize)>, String> {
    let Some((start, fields, used)) = head(bytes)? else {
        return Ok(None);
    };
    let status = status(&start)?;
    let empty = bodyless || status < 200 || matches!(status, 204 | 304);
    let framing = if empty {
        Framing::Empty
    } else {
        framing(&fields)?
    };
    body(start, fields, framing, bytes, used).map(Some)
}

/// Returns `true` if the body of a response ends with the connection.
///
/// # Errors
/// What is wrong with its framing.
pub(crate) fn ends_with_connection(message: &Message, bodyless: bool) -> Result<bool, String> {
    let no_body = bodyless || matches!(status(&message.start)?, 100..200 | 204 | 304);
    Ok(!no_body && framing(&message.fields)? == Framing::UntilEnd)
}

/// The status of a status line.
///
/// # Errors
/// If the line is not a status line.
pub(crate) fn status(start: &[u8]) -> Result<u16, String> {
    let text = start
        .strip_prefix(b"HTTP/1.1 ")
        .or_else(|| start.strip_prefix(b"HTTP/1.0 "));
    let digits = text
        .and_then(|t| t.get(..3))
        .filter(|d| d.iter().all(u8::is_ascii_digit));
    let followed = text.and_then(|t| t.get(3)) == Some(&b' ');
    match digits {
        Some(digits) if followed => Ok(digits.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0'))),
        _ => Err(format!("no status line: {}", show(start))),
    }
}

/// The values of a field, in order.
pub(crate) fn values<'a>(fields: &'a [RawField], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields
        .iter()
        .filter(move |(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, v)| v.as_slice())
}

/// Bytes as the tables write them.
pub(crate) fn show(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n\n"),
            b'\t' => text.push_str("\\t"),
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(char::from(*byte)),
            other => text.push_str(&format!("\\x{other:02x}")),
        }
    }
    shorten(text)
}

/// Long runs are not useful in a report.
fn shorten(text: String) -> String {
    let count = text.chars().count();
    if count <= 1600 {
        return text;
    }
    let first: String = text.chars().take(800).collect();
    let last: String = text.chars().skip(count - 300).collect();
    format!("{first} ... {} characters ... {last}", count - 1100)
}

type Head = (Vec<u8>, Vec<RawField>, usize);

fn head(bytes: &[u8]) -> Result<Option<Head>, String> {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        return Ok(None);
    };
    let mut lines = bytes[..end]
        .split(|b| *b == b'\n')
        .map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    if bytes[..end]
        .windows(2)
        .any(|w| w[1] == b'\n' && w[0] != b'\r')
    {
        return Err(format!("bare LF in the head: {}", show(&bytes[..end])));
    }
    let start = lines.next().unwrap_or_default().to_vec();
    let fields = lines.map(field).collect::<Result<_, _>>()?;
    Ok(Some((start, fields, end + 4)))
}

fn field(line: &[u8]) -> Result<RawField, String> {
    let wrong = || format!("no field line: {}", show(line));
    let colon = line.iter().position(|b| *b == b':').ok_or_else(wrong)?;
    let name = &line[..colon];
    let value = line[colon + 1..].trim_ascii();
    if name.is_empty()
        || !name
            .iter()
            .all(|b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
        || !value
            .iter()
            .all(|b: &u8| *b == b'\t' || (*b >= 0x20 && *b != 0x7f))
    {
        return Err(wrong());
    }
    Ok((name.to_vec(), value.to_vec()))
}

fn framing(fields: &[RawField]) -> Result<Framing, String> {
    let lengths: Vec<&[u8]> = values(fields, "content-length").collect();
    let codings: Vec<&[u8]> = values(fields, "transfer-encoding").collect();
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(Framing::UntilEnd),
        ([length], []) => number(length, 10).map(Framing::Length),
        ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        _ => Err(format!(
            "framing: {} Content-Length, {} Transfer-Encoding",
            lengths.len(),
            codings.len()
        )),
    }
}

fn number(digits: &[u8], radix: u32) -> Result<usize, String> {
    fn wrong(digits: &[u8]) -> String {
        format!("no number: {}", show(digits))
    }
    if digits.is_empty() || !digits.iter().all(|d| char::from(*d).is_digit(radix)) {
        return Err(wrong(digits));
    }
    usize::from_str_radix(&String::from_utf8_lossy(digits), radix).map_err(|_| wrong(digits))
}

fn body(
    start: Vec<u8>,
    fields: Vec<RawField>,
    framing: Framing,
    bytes: &[u8],
    used: usize,
) -> Result<(Message, usize), String> {
    let mut message = Message {
        start,
        fields,
        body: Vec::new(),
        trailers: Vec::new(),
        ending: WireEnding::Whole,
    };
    let rest = &bytes[used..];
    let taken = match framing {
        Framing::Empty => 0,
        Framing::Length(length) => {
            let taken = length.min(rest.len());
            message.body = rest[..taken].to_vec();
            message.ending = if taken < length {
                WireEnding::Short
            } else {
                WireEnding::Whole
            };
            taken
        }
        Framing::Chunked => chunks(&mut message, rest)?,
        Framing::UntilEnd => {
            message.body = rest.to_vec();
            message.ending = WireEnding::Short;
            rest.len()
        }
    };
    Ok((message, used + taken))
}

/// RFC 9112 section 7.1, without extensions: a proxy has no reason to write any.
fn chunks(message: &mut Message, bytes: &[u8]) -> Result<usize, String> {
    let mut at = 0;
    message.ending = WireEnding::Short;
    while let Some(line) = find(&bytes[at..], b"\r\n") {
        let size = number(&bytes[at..at + line], 16)?;
        at += line + 2;
        if size == 0 {
            return trailers(message, bytes, at);
        }
        let there = size.min(bytes.len() - at);
        message.body.extend_from_slice(&bytes[at..at + there]);
        at += there;
        match bytes.get(at..at + 2) {
            Some(b"\r\n") => at += 2,
            Some(other) => return Err(format!("after a chunk: {}", show(other))),
            None => return Ok(bytes.len()),
        }
    }
    Ok(bytes.len())
}

fn trailers(message: &mut Message, bytes: &[u8], mut at: usize) -> Result<usize, String> {
    while let Some(line) = find(&bytes[at..], b"\r\n") {
        let text = &bytes[at..at + line];
        at += line + 2;
        if text.is_empty() {
            message.ending = WireEnding::Whole;
            return Ok(at);
        }
        message.trailers.push(field(text)?);
    }
    Ok(bytes.len())
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|w| w == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_by_their_framing() {
        for (bytes, body, used, ending) in [
            ("GET / HTTP/1.1\r\n\r\nrest", "", 18, WireEnding::Whole),
            (
                "P / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabcd",
                "abc",
                38,
                WireEnding::Whole,
            ),
            (
                "P / HTTP/1.1\r\ncontent-length: 3\r\n\r\nab",
                "ab",
                37,
                WireEnding::Short,
            ),
            (
                "P / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\nx",
                "abc",
                62,
                WireEnding::Whole,
            ),
            (
                "P / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n",
                "ab",
                54,
                WireEnding::Short,
            ),
        ] {
            let (message, n) = request(bytes.as_bytes()).unwrap().unwrap();
            assert_eq!(message.body.as_slice(), body.as_bytes(), "{bytes}");
            assert_eq!(n, used, "{bytes}");
            assert_eq!(message.ending, ending, "{bytes}");
        }
    }

    #[test]
    fn lenient_spellings_are_found() {
        for bytes in [
            "P / HTTP/1.1\r\na: b\nc: d\r\n\r\n",
            "P / HTTP/1.1\r\nname : b\r\n\r\n",
            "P / HTTP/1.1\r\na: b\r\n c\r\n\r\n",
            "P / HTTP/1.1\r\ncontent-length: +3\r\n\r\nabc",
            "P / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
            "P / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "P / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n",
            "P / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        ] {
            assert!(request(bytes.as_bytes()).is_err(), "{bytes}");
        }
    }
}
