//! W3C Trace Context, level 1: the position of a request in a trace across several programs.
//!
//! This module has the identifiers and the parser of `traceparent`. Sampling and trust are decided elsewhere, and
//! `tracestate` is ignored.

use std::fmt;

/// The id of a trace: 16 bytes, never all zero; written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// The id of a span in a trace: 8 bytes, never all zero; written as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// The `sampled` flag: set if the caller records its spans of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingFlag {
    Set,
    /// The flag is not set.
    Unset,
}

/// The contents of a `traceparent` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceparent {
    pub trace: TraceId,
    /// The caller's span.
    pub parent: SpanId,
    /// The only flag of level 1.
    pub sampled: SamplingFlag,
}

impl TraceId {
    /// Creates an id; `None` for all zeros, which is invalid.
    pub fn new(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// The bytes, for binary protocols.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl SpanId {
    /// Creates an id; `None` for all zeros, which is invalid.
    pub fn new(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    /// The bytes, for binary protocols.
    pub fn bytes(self) -> [u8; 8] {
        self.0
    }

    /// Returns the id of the `place`th span after this one; different for each, and never zero.
    #[must_use]
    pub fn nth(self, index: u64) -> Self {
        let number = u64::from_be_bytes(self.0).wrapping_add(index);
        Self::new(number.to_be_bytes()).unwrap_or(Self([0xff; 8]))
    }
}

impl Traceparent {
    /// Parses a field's value (section 3.2): lower-case hexadecimal digits only, neither id all zero, version `ff` invalid.
    /// An unknown version is parsed by its first four parts, whatever follows after a further `-`.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (version, rest) = read_hex::<1>(value)?;
        let (trace, rest) = read_hex::<16>(after_dash(rest)?)?;
        let (parent, rest) = read_hex::<8>(after_dash(rest)?)?;
        let ([flags], rest) = read_hex::<1>(after_dash(rest)?)?;
        match (version, rest.first()) {
            ([0xff], _) | ([0], Some(_)) => return None,
            (_, Some(b'-') | None) => {}
            (_, Some(_)) => return None,
        }
        let sampled = if flags & 1 == 1 {
            SamplingFlag::Set
        } else {
            SamplingFlag::Unset
        };
        Some(Self {
            trace: TraceId::new(trace)?,
            parent: SpanId::new(parent)?,
            sampled,
        })
    }
}

fn after_dash(text: &[u8]) -> Option<&[u8]> {
    text.strip_prefix(b"-")
}

/// Parses `N` bytes, written as `2 N` digits, and returns the rest.
fn read_hex<const N: usize>(text: &[u8]) -> Option<([u8; N], &[u8])> {
    let (digits, rest) = text.split_at_checked(2 * N)?;
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            *byte = *byte << 4 | digit_value(*digit)?;
        }
    }
    Some((bytes, rest))
}

fn digit_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// The value of the field, in version 00.
impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.sampled == SamplingFlag::Set);
        write!(f, "00-{}-{}-{flags:02x}", self.trace, self.parent)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_traceparent_is_read_strictly() {
        let zeros = "0".repeat(32);
        let upper = TRACE.to_uppercase();
        for (text, sampled) in [
            (format!("00-{TRACE}-{SPAN}-01"), Some(SamplingFlag::Set)),
            (format!("00-{TRACE}-{SPAN}-00"), Some(SamplingFlag::Unset)),
            // Other flags are not defined in level 1.
            (format!("00-{TRACE}-{SPAN}-fe"), Some(SamplingFlag::Unset)),
            (format!("00-{TRACE}-{SPAN}-03"), Some(SamplingFlag::Set)),
            // A later version may have more parts.
            (format!("01-{TRACE}-{SPAN}-01"), Some(SamplingFlag::Set)),
            (
                format!("cc-{TRACE}-{SPAN}-01-what-the-future"),
                Some(SamplingFlag::Set),
            ),
            (format!("cc-{TRACE}-{SPAN}-01-"), Some(SamplingFlag::Set)),
            (format!("cc-{TRACE}-{SPAN}-01.what"), None),
            (format!("00-{TRACE}-{SPAN}-01-more"), None),
            (format!("00-{TRACE}-{SPAN}-01-"), None),
            (format!("ff-{TRACE}-{SPAN}-01"), None),
            (format!("00-{zeros}-{SPAN}-01"), None),
            (format!("00-{TRACE}-0000000000000000-01"), None),
            (format!("00-{upper}-{SPAN}-01"), None),
            (format!("0-{TRACE}-{SPAN}-01"), None),
            (format!("00-{TRACE}-{SPAN}-1"), None),
            (format!("00-{TRACE}-{SPAN}"), None),
            (format!("00-{TRACE}_{SPAN}-01"), None),
            (format!("00-{TRACE}{SPAN}-01"), None),
            (format!(" 00-{TRACE}-{SPAN}-01"), None),
            (format!("00-{TRACE}-{SPAN}-0g"), None),
            (String::new(), None),
        ] {
            let read = Traceparent::parse(text.as_bytes());
            assert_eq!(read.map(|t| t.sampled), sampled, "{text}");
            if let Some(read) = read {
                assert_eq!(
                    (read.trace.to_string(), read.parent.to_string()),
                    (TRACE.into(), SPAN.into())
                );
            }
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic_and_valid_headers_round_trip() {
        let mut random = fastrand::Rng::with_seed(7);
        let seed = format!("00-{TRACE}-{SPAN}-01");
        let mut read = 0;
        for _ in 0..50_000 {
            let mut bytes = seed.clone().into_bytes();
            for _ in 0..random.usize(..3) {
                let index = random.usize(..bytes.len());
                bytes[index] = if random.bool() {
                    random.u8(..)
                } else {
                    b"0123456789abcdef-"[random.usize(..17)]
                };
            }
            bytes.truncate(random.usize(..=bytes.len() * 4));
            let Some(parsed) = Traceparent::parse(&bytes) else {
                continue;
            };
            read += 1;
            let written = format!("{}-{}", parsed.trace, parsed.parent);
            assert_eq!(written.as_bytes(), &bytes[3..52]);
        }
        assert!(read > 1_000, "{read}");
    }

    #[test]
    fn spans_of_one_request_have_distinct_ids() {
        let last = SpanId::new([0xff; 8]).unwrap();
        assert_eq!(last.nth(0), last);
        assert_eq!(last.nth(2).to_string(), "0000000000000001");
        assert_ne!(last.nth(1).bytes(), [0; 8]);
    }
}
