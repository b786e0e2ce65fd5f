//! Reads the body of a robots.txt file, up to the size limit, and undoes its content codings, up to
//! the same limit.
//!
//! Origins name codings that they have not applied, or that are none (`utf-8`, `aws-chunked`).
//! Browsers ignore such a coding, so nobody notices there. Here the whole host would be
//! unavailable, so it is ignored, too, if the bytes read as a robots.txt.

use std::io::Read;
use std::ops::ControlFlow;

use brotli_decompressor::Decompressor;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use crate::long_work::{LongWork, run_long};
use crate::proxy::body::{BodyError, ResponseDownload};
use crate::proxy::document::coding::{ContentCoding, ContentDecoder};
use crate::proxy::turn::TurnWork;
use crate::robots::MAX_FILE_BYTES;
use crate::robots::fetch_outcome::RobotsFetchOutcome;

/// The maximum number of codings that are undone.
const MAX_CODINGS: usize = 4;
/// The number of bytes that are decoded from Brotli at a time.
const BROTLI_STEP: usize = 4 * 1024;
/// The keys by which a text is recognized as a robots.txt.
const KEYS: [&[u8]; 4] = [b"user-agent", b"disallow", b"allow", b"sitemap"];
/// The work of looking for a key in a line, beside its bytes.
const LINE: usize = 64;

/// Reads a body and undoes the codings that `headers` name. One byte more than the limit is kept,
/// so that a longer file can be recognized; the rest is not read.
///
/// # Errors
/// Returns the outcome of the fetch, if the body is incomplete or cannot be decoded.
pub(super) async fn read_body(
    mut download: Box<ResponseDownload>,
    headers: &HeaderMap,
) -> Result<Vec<u8>, RobotsFetchOutcome> {
    let mut body = LimitedText::default();
    while !body.is_full() {
        match download.next().await {
            Some(Ok(part)) => body.push(&part),
            Some(Err(BodyError::Idle)) => return Err(RobotsFetchOutcome::Timeout),
            Some(Err(BodyError::Incomplete | BodyError::ClientLeft | BodyError::TooLarge)) => {
                return Err(RobotsFetchOutcome::Broken);
            }
            Some(Err(BodyError::LeaseEnded)) => return Err(RobotsFetchOutcome::NotAdmitted),
            None => break,
        }
    }
    decode(body, &codings(headers))
        .await
        .ok_or(RobotsFetchOutcome::UnsupportedCoding)
}

/// Returns the names of the codings, in the order in which they were applied.
fn codings(headers: &HeaderMap) -> Vec<&[u8]> {
    headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"))
        .collect()
}

/// Undoes codings until the text reads as a robots.txt. One that cannot be undone is ignored, but
/// then the text must read as one in the end; otherwise the result is `None`. Other tasks run in
/// between.
async fn decode(body: LimitedText, codings: &[&[u8]]) -> Option<Vec<u8>> {
    let mut text = body;
    let mut must_be_recognized = codings.len() > MAX_CODINGS;
    let mut work = TurnWork::default();
    for coding in codings.iter().rev().take(MAX_CODINGS) {
        if text.bytes.is_empty() || reads_as_robots_txt(&text.bytes, &mut work).await {
            return Some(text.bytes);
        }
        let decoded = if coding.eq_ignore_ascii_case(b"br") {
            // Its decoder cannot be interrupted.
            let (read, decoded) = run_long(LongWork::Robots, move || {
                let decoded = text.decode_brotli();
                (text, decoded)
            })
            .await?;
            text = read;
            decoded
        } else {
            match ContentCoding::from_name(coding) {
                Some(coding) => text.decode(coding, &mut work).await,
                None => None,
            }
        };
        match decoded {
            Some(decoded) => text = decoded,
            None => must_be_recognized = true,
        }
    }
    let is_text = !must_be_recognized || reads_as_robots_txt(&text.bytes, &mut work).await;
    is_text.then_some(text.bytes)
}

/// Returns `true` if a line has one of the [`KEYS`].
async fn reads_as_robots_txt(text: &[u8], work: &mut TurnWork) -> bool {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    for line in text.split(|b| matches!(b, b'\r' | b'\n')) {
        let colon = memchr::memchr(b':', line).unwrap_or(0);
        let key = line.get(..colon).unwrap_or_default().trim_ascii();
        if KEYS.iter().any(|known| key.eq_ignore_ascii_case(known)) {
            return true;
        }
        if work.add(LINE + line.len()) {
            work.pause().await;
        }
    }
    false
}

/// A text with a size limit.
#[derive(Debug, Default)]
struct LimitedText {
    bytes: Vec<u8>,
    end: TextEnd,
}

/// The cause of the end of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TextEnd {
    /// It is whole.
    #[default]
    Whole,
    /// It was cut off, before or after decoding.
    Limit,
}

impl LimitedText {
    /// Returns `true` if one byte more than the limit is in it.
    fn is_full(&self) -> bool {
        self.end == TextEnd::Limit
    }

    fn push(&mut self, part: &[u8]) {
        let room = (MAX_FILE_BYTES + 1).saturating_sub(self.bytes.len());
        self.bytes.extend(part.iter().take(room));
        if self.bytes.len() > MAX_FILE_BYTES {
            self.end = TextEnd::Limit;
        }
    }

    /// Undoes a coding; `None` if the bytes are not in it.
    async fn decode(&self, coding: ContentCoding, work: &mut TurnWork) -> Option<Self> {
        let mut decoder = ContentDecoder::new(coding);
        let mut text = Self::default();
        let mut rest = self.bytes.as_slice();
        let result = loop {
            let fed = decoder.feed(&mut rest, work, &mut |part, work| {
                text.push(part);
                if text.is_full() || work.add(part.len()) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            match fed {
                Ok(ControlFlow::Break(())) if !text.is_full() => work.pause().await,
                Ok(_) | Err(_) => break fed,
            }
        };
        let is_whole = result.is_ok() && decoder.may_end();
        match (text.end, self.end) {
            (TextEnd::Limit, _) => Some(text),
            (TextEnd::Whole, TextEnd::Whole) => is_whole.then_some(text),
            (TextEnd::Whole, TextEnd::Limit) => (result.is_ok()).then_some(Self {
                end: TextEnd::Limit,
                ..text
            }),
        }
    }

    /// Undoes `br` (RFC 7932); `None` if the bytes are not in it, or if they were cut off before they
    /// gave a text of the greatest size. The proxy does not ask for this coding, but some servers
    /// have the file in no other form.
    fn decode_brotli(&self) -> Option<Self> {
        let mut decoder = Decompressor::new(self.bytes.as_slice(), BROTLI_STEP);
        let mut text = Self::default();
        let mut part = [0; BROTLI_STEP];
        while !text.is_full() {
            match decoder.read(&mut part).ok()? {
                0 => return (!self.is_full()).then_some(text),
                read => text.push(part.get(..read)?),
            }
        }
        Some(text)
    }
}
