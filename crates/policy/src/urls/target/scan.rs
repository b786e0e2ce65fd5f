//! The fast path for URLs that are canonical already: one pass over the bytes.

use super::Scheme;
use super::reading::has_readings;

/// The offsets of the parts of a canonical URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct UrlLayout {
    pub(super) scheme: Scheme,
    pub(super) host_end: u32,
    pub(super) port: u16,
    pub(super) path_start: u32,
    pub(super) path_end: u32,
    /// `true` if lax servers may read the URL differently.
    pub(super) has_readings: bool,
}

impl UrlLayout {
    /// The offset after `http://` or `https://`.
    pub(super) fn host_start(self) -> u32 {
        match self.scheme {
            Scheme::Http => 7,
            Scheme::Https => 8,
        }
    }

    /// Splits a canonical text.
    pub(super) fn from_canonical(text: &str) -> Option<Self> {
        let (scheme, start) = scheme(text)?;
        let rest = text.get(start..)?;
        let path = rest.find(['/', '?'])?;
        let authority = rest.get(..path)?;
        let colon = authority.rfind(':').filter(|_| !authority.ends_with(']'));
        let port = match colon {
            Some(colon) => authority.get(colon + 1..)?.parse().ok()?,
            None => scheme.default_port(),
        };
        let path_start = start + path;
        let path_end = rest.find('?').map_or(text.len(), |mark| start + mark);
        Some(Self {
            scheme,
            host_end: offset(start + colon.unwrap_or(path))?,
            port,
            path_start: offset(path_start)?,
            path_end: offset(path_end)?,
            has_readings: has_readings(text.get(path_start..path_end)?, text.get(path_end..)?),
        })
    }
}

fn offset(position: usize) -> Option<u32> {
    u32::try_from(position).ok()
}

fn scheme(text: &str) -> Option<(Scheme, usize)> {
    if text.starts_with("http://") {
        Some((Scheme::Http, 7))
    } else if text.starts_with("https://") {
        Some((Scheme::Https, 8))
    } else {
        None
    }
}

/// The bytes that need no change in a host, a path and a query, one bit each, and those that the
/// scan of a path must detect.
const HOST: u8 = 1;
const PATH: u8 = 2;
const QUERY: u8 = 4;
const SLASH: u8 = 8;
/// One bit above [`SLASH`], so that a shift compares neighbours.
const DOT: u8 = 16;
const PERCENT: u8 = 32;
const SEMICOLON: u8 = 64;

#[allow(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which checks the bounds"
)]
const TABLE: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        table[byte as usize] = PATH | QUERY;
        byte += 1;
    }
    // The percent-encode sets of the URL standard, and the bytes that this scan leaves to the full
    // parser: `|` and `^`.
    let changed = b"\"#<>\\^`{|}";
    let mut at = 0;
    while at < changed.len() {
        table[changed[at] as usize] = 0;
        at += 1;
    }
    table[b'?' as usize] = QUERY;
    table[b'\'' as usize] = PATH;
    let names = b"abcdefghijklmnopqrstuvwxyz0123456789-.";
    at = 0;
    while at < names.len() {
        table[names[at] as usize] |= HOST;
        at += 1;
    }
    table[b'/' as usize] |= SLASH;
    table[b'.' as usize] |= DOT;
    table[b'%' as usize] |= PERCENT;
    table[b';' as usize] |= SEMICOLON;
    table
};

fn traits(byte: u8) -> u8 {
    TABLE.get(usize::from(byte)).copied().unwrap_or(0)
}

/// Returns the layout of a canonical URL; `None` if the URL may have to be changed, or is invalid.
pub(super) fn scan(text: &str) -> Option<UrlLayout> {
    let (scheme, start) = scheme(text)?;
    let bytes = text.as_bytes();
    let host_end = host_end(bytes, start)?;
    let (port, path_start) = match bytes.get(host_end)? {
        b'/' => (scheme.default_port(), host_end),
        b':' => port(bytes, host_end + 1, scheme)?,
        _ => return None,
    };
    let rest = bytes.get(path_start..)?;
    let (path, query) = rest.split_at_checked(memchr::memchr(b'?', rest).unwrap_or(rest.len()))?;
    // The `?` itself is allowed in a query.
    let read_alike = match (scan_path(path)?, scan_query(query)?) {
        (ReadingHint::Alike, ReadingHint::Alike) => true,
        (ReadingHint::Unclear, _) | (_, ReadingHint::Unclear) => {
            !has_readings(text_of(path)?, text_of(query)?)
        }
    };
    Some(UrlLayout {
        scheme,
        host_end: offset(host_end)?,
        port,
        path_start: offset(path_start)?,
        path_end: offset(path_start + path.len())?,
        has_readings: !read_alike,
    })
}

fn text_of(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Returns the end of a host that IDNA and the IPv4 parser do not change: no empty label, no
/// `xn--`, and a last label that begins with a letter.
fn host_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut before = b'.';
    let mut label_start = 0;
    for (at, byte) in bytes.iter().enumerate().skip(start) {
        if traits(*byte) & HOST == 0 {
            let is_name = before != b'.' && u8::is_ascii_lowercase(&label_start);
            return is_name.then_some(at);
        }
        match (before, *byte) {
            (b'.', b'.') | (b'-', b'-') => return None,
            (b'.', first) => label_start = first,
            _ => {}
        }
        before = *byte;
    }
    None
}

/// Parses a port that is written canonically. Returns it with the offset of the path.
fn port(bytes: &[u8], from: usize, scheme: Scheme) -> Option<(u16, usize)> {
    let digits = bytes
        .get(from..)?
        .iter()
        .position(|b| !b.is_ascii_digit())?;
    let slash = from + digits;
    let text = std::str::from_utf8(bytes.get(from..slash)?).ok()?;
    let port: u16 = text.parse().ok()?;
    // Without a leading zero it is not port 0, either.
    let canonical = !text.starts_with('0') && port != scheme.default_port();
    (canonical && bytes.get(slash) == Some(&b'/')).then_some((port, slash))
}

/// The result of the scan on whether lax servers read a part of the URL differently.
#[derive(Clone, Copy)]
enum ReadingHint {
    /// All servers read it alike.
    Alike,
    /// It has bytes that need a second look.
    Unclear,
}

impl ReadingHint {
    fn new(noticed: u8) -> Self {
        if noticed == 0 {
            Self::Alike
        } else {
            Self::Unclear
        }
    }
}

/// Scans a path; `None` if it contains a byte to escape, or a segment that begins with a dot, plain
/// or escaped.
///
/// Without a branch per byte: nearly every path is canonical and has to be read completely anyway.
fn scan_path(path: &[u8]) -> Option<ReadingHint> {
    let mut all = PATH;
    let mut noticed = 0;
    let mut before = 0;
    for byte in path {
        let here = traits(*byte);
        all &= here;
        let after_slash = before & SLASH;
        noticed |= here & (PERCENT | SEMICOLON | after_slash | after_slash << 1);
        before = here;
    }
    let canonical = all != 0 && noticed & DOT == 0;
    (canonical && (noticed & PERCENT == 0 || !has_escaped_dot(path)))
        .then(|| ReadingHint::new(noticed))
}

fn has_escaped_dot(path: &[u8]) -> bool {
    path.windows(3)
        .any(|three| matches!(three, [b'%', b'2', b'e' | b'E']))
}

/// Scans a query; `None` if it contains a byte to escape.
fn scan_query(query: &[u8]) -> Option<ReadingHint> {
    let mut all = QUERY;
    let mut noticed = 0;
    for byte in query {
        let here = traits(*byte);
        all &= here;
        noticed |= here & PERCENT;
    }
    (all != 0).then(|| ReadingHint::new(noticed))
}
