//! Content codings undone as the bytes come: gzip and deflate (RFC 9110 section 8.4.1), bounded at every step.
//!
//! No more than [`STEP`] bytes come out at once, however much is packed into a few, and whoever looks at them may say that
//! it is enough. Check sums are not looked at: the bytes are judged or changed, not kept.

use std::ops::ControlFlow;

use flate2::{Decompress, FlushDecompress, Status};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// Bytes that come out in one step.
const STEP: usize = 32 * 1024;
/// Bytes that a gzip header may have, with the name and the comment in it.
const GZIP_HEADER: usize = 4 * 1024;
/// Check sum and length behind each gzip member (RFC 1952 section 2.3.1).
const GZIP_TRAILER: usize = 8;

/// The codings that are understood, as a request may ask for them.
pub(super) const SUPPORTED: &str = "gzip, deflate";

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentCoding {
    /// Not at all.
    Identity,
    /// `gzip`, `x-gzip`.
    Gzip,
    /// `deflate`: zlib, or the bare stream that some send.
    Deflate,
}

/// A coding that is not understood (`br`, `zstd`), or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnsupportedCoding;

impl ContentCoding {
    /// The coding of a body.
    ///
    /// # Errors
    /// If it cannot be undone here.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self, UnsupportedCoding> {
        let mut named = headers
            .get_all(CONTENT_ENCODING)
            .iter()
            .flat_map(|value| value.as_bytes().split(|b| *b == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"));
        let Some(coding) = named.next() else {
            return Ok(Self::Identity);
        };
        let is = |word: &[u8]| coding.eq_ignore_ascii_case(word);
        match named.next() {
            None if is(b"gzip") || is(b"x-gzip") => Ok(Self::Gzip),
            None if is(b"deflate") => Ok(Self::Deflate),
            None | Some(_) => Err(UnsupportedCoding),
        }
    }
}

/// What every gzip member begins with (RFC 1952 section 2.3.1).
const GZIP_MAGIC: u8 = 0x1f;

/// What was packed is broken; what came out before is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentDecodeError;

/// Undoes a coding.
#[derive(Debug)]
pub(super) struct ContentDecoder {
    state: DecoderState,
    out: Vec<u8>,
}

#[derive(Debug)]
enum DecoderState {
    Identity,
    /// Behind a gzip member.
    GzipNext,
    /// The header of a gzip member, as far as it has come.
    GzipHeader(Vec<u8>),
    /// The first bytes of a deflated body: they tell zlib from a bare stream.
    DeflateStart(Vec<u8>),
    Inflating(Box<Decompress>, StreamTrailer),
    /// So many bytes of a gzip trailer are still to come.
    GzipTrailer(usize),
    Finished,
}

/// What follows a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamTrailer {
    GzipTrailer,
    Nothing,
}

/// Who sees the bytes; breaks off when they are enough.
pub(super) type DecodedSink<'s> = &'s mut dyn FnMut(&[u8]) -> ControlFlow<()>;

impl ContentDecoder {
    pub(super) fn new(coding: ContentCoding) -> Self {
        let state = match coding {
            ContentCoding::Identity => DecoderState::Identity,
            ContentCoding::Gzip => DecoderState::GzipHeader(Vec::new()),
            ContentCoding::Deflate => DecoderState::DeflateStart(Vec::new()),
        };
        Self {
            state,
            out: Vec::new(),
        }
    }

    /// Takes the next bytes, and shows what comes out.
    ///
    /// # Errors
    /// If they are broken.
    pub(super) fn feed(
        &mut self,
        mut input: &[u8],
        sink: DecodedSink<'_>,
    ) -> Result<ControlFlow<()>, ContentDecodeError> {
        while !input.is_empty() {
            let (taken, flow) = self.step(input, sink)?;
            input = input.get(taken..).unwrap_or_default();
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether a packed body may end here.
    pub(super) fn may_end(&self) -> bool {
        match &self.state {
            DecoderState::Identity | DecoderState::GzipNext | DecoderState::Finished => true,
            DecoderState::GzipHeader(header) => header.is_empty(),
            DecoderState::DeflateStart(start) => start.is_empty(),
            DecoderState::Inflating(..) | DecoderState::GzipTrailer(_) => false,
        }
    }

    fn step(
        &mut self,
        input: &[u8],
        sink: DecodedSink<'_>,
    ) -> Result<(usize, ControlFlow<()>), ContentDecodeError> {
        const ON: ControlFlow<()> = ControlFlow::Continue(());
        match &mut self.state {
            DecoderState::Identity => {
                let part = input.get(..STEP).unwrap_or(input);
                Ok((part.len(), sink(part)))
            }
            DecoderState::GzipHeader(header) => {
                let before = header.len();
                header.extend(input.iter().take(GZIP_HEADER.saturating_sub(before)));
                let full = header.len() >= GZIP_HEADER;
                let Some(end) = gzip_header_end(header)? else {
                    return if full {
                        Err(ContentDecodeError)
                    } else {
                        Ok((input.len(), ON))
                    };
                };
                self.start_inflating(Decompress::new(false), StreamTrailer::GzipTrailer);
                Ok((end.saturating_sub(before), ON))
            }
            DecoderState::DeflateStart(start) => {
                let before = start.len();
                start.extend(input.iter().take(2_usize.saturating_sub(before)));
                let [method, flags] = *start.as_slice() else {
                    return Ok((input.len(), ON));
                };
                let zlib =
                    method & 0x0f == 8 && u16::from_be_bytes([method, flags]).is_multiple_of(31);
                self.start_inflating(Decompress::new(zlib), StreamTrailer::Nothing);
                // What was looked at is fed again: the stream begins with it.
                let (_, flow) = self.inflate_step(&[method, flags], sink)?;
                Ok((2 - before, flow))
            }
            DecoderState::Inflating(..) => self.inflate_step(input, sink),
            DecoderState::GzipTrailer(left) => {
                let taken = input.len().min(*left);
                *left -= taken;
                if *left == 0 {
                    self.state = DecoderState::GzipNext;
                }
                Ok((taken, ON))
            }
            DecoderState::GzipNext => {
                // Some servers pad what is packed with zeros; anything else than another member is broken.
                let padding = input.iter().take_while(|byte| **byte == 0).count();
                match input.get(padding) {
                    Some(&GZIP_MAGIC) => self.state = DecoderState::GzipHeader(Vec::new()),
                    Some(_) => return Err(ContentDecodeError),
                    None => {}
                }
                Ok((padding, ON))
            }
            // What stands behind the end belongs to nothing.
            DecoderState::Finished => Ok((input.len(), ON)),
        }
    }

    fn start_inflating(&mut self, stream: Decompress, trailer: StreamTrailer) {
        self.out.resize(STEP, 0);
        self.state = DecoderState::Inflating(Box::new(stream), trailer);
    }

    fn inflate_step(
        &mut self,
        input: &[u8],
        sink: DecodedSink<'_>,
    ) -> Result<(usize, ControlFlow<()>), ContentDecodeError> {
        let DecoderState::Inflating(stream, behind) = &mut self.state else {
            return Err(ContentDecodeError);
        };
        let mut taken = 0;
        loop {
            let (before_in, before_out) = (stream.total_in(), stream.total_out());
            let rest = input.get(taken..).unwrap_or_default();
            let status = stream
                .decompress(rest, &mut self.out, FlushDecompress::None)
                .map_err(|_| ContentDecodeError)?;
            let came = (stream.total_out() - before_out) as usize;
            let used = (stream.total_in() - before_in) as usize;
            taken += used;
            let flow = match self.out.get(..came) {
                Some(out) if came > 0 => sink(out),
                Some(_) | None => ControlFlow::Continue(()),
            };
            if status == Status::StreamEnd {
                self.state = match behind {
                    StreamTrailer::GzipTrailer => DecoderState::GzipTrailer(GZIP_TRAILER),
                    StreamTrailer::Nothing => DecoderState::Finished,
                };
                return Ok((taken, flow));
            }
            // Out of input, and nothing that waits for room.
            let drained = taken == input.len() && came < self.out.len();
            if flow.is_break() || drained {
                return Ok((taken, flow));
            }
            if came == 0 && used == 0 {
                return Err(ContentDecodeError);
            }
        }
    }
}

/// Where the header of a gzip member ends; `None` if it has not come whole (RFC 1952 section 2.3).
fn gzip_header_end(bytes: &[u8]) -> Result<Option<usize>, ContentDecodeError> {
    const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
    let (extra, name, comment, check) = (0x04, 0x08, 0x10, 0x02);
    if bytes.iter().zip(MAGIC).any(|(byte, magic)| *byte != magic) {
        return Err(ContentDecodeError);
    }
    let Some(flags) = bytes.get(3).copied().filter(|_| bytes.len() >= 10) else {
        return Ok(None);
    };
    let mut at = 10;
    if flags & extra != 0 {
        let Some([low, high]) = bytes.get(at..at + 2) else {
            return Ok(None);
        };
        at += 2 + usize::from(u16::from_le_bytes([*low, *high]));
    }
    for flag in [name, comment] {
        if flags & flag != 0 {
            let Some(end) = bytes
                .get(at..)
                .and_then(|rest| rest.iter().position(|b| *b == 0))
            else {
                return Ok(None);
            };
            at += end + 1;
        }
    }
    at += if flags & check != 0 { 2 } else { 0 };
    Ok((at <= bytes.len()).then_some(at))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const TEXT: &[u8] = b"<title>a page</title> a page a page a page a page";

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn bare(text: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// What comes out if so many bytes go in at a time, and whether it may end there.
    fn undone(
        coding: ContentCoding,
        packed: &[u8],
        step: usize,
    ) -> Result<(Vec<u8>, bool), ContentDecodeError> {
        let (mut decoder, mut out) = (ContentDecoder::new(coding), Vec::new());
        for part in packed.chunks(step) {
            let _ = decoder.feed(part, &mut |bytes| {
                out.extend_from_slice(bytes);
                ControlFlow::Continue(())
            })?;
        }
        Ok((out, decoder.may_end()))
    }

    #[test]
    fn each_coding_is_undone_however_it_is_cut() {
        let mut named = vec![0x1f, 0x8b, 8, 0x1c, 0, 0, 0, 0, 0, 3, 3, 0];
        named.extend_from_slice(b"abcname\0comment\0");
        named.extend_from_slice(gzip(TEXT).get(10..).unwrap());
        let two = [gzip(TEXT.get(..9).unwrap()), gzip(TEXT.get(9..).unwrap())].concat();
        for (coding, packed) in [
            (ContentCoding::Identity, TEXT.to_vec()),
            (ContentCoding::Gzip, gzip(TEXT)),
            (ContentCoding::Gzip, named),
            (ContentCoding::Gzip, two),
            (ContentCoding::Gzip, [gzip(TEXT), vec![0; 3]].concat()),
            (ContentCoding::Deflate, zlib(TEXT)),
            (ContentCoding::Deflate, bare(TEXT)),
        ] {
            for step in [1, 2, 3, 7, 1 << 20] {
                assert_eq!(
                    undone(coding, &packed, step),
                    Ok((TEXT.to_vec(), true)),
                    "{coding:?} by {step}"
                );
            }
            if coding != ContentCoding::Identity {
                let (_, ends) = undone(coding, packed.get(..packed.len() - 9).unwrap(), 5).unwrap();
                assert!(!ends, "{coding:?} cut off");
            }
        }
    }

    #[test]
    fn what_is_broken_is_said_to_be() {
        for (coding, packed) in [
            (ContentCoding::Gzip, b"<html>no gzip".to_vec()),
            (ContentCoding::Gzip, [gzip(TEXT), vec![0, 0xff]].concat()),
            (ContentCoding::Deflate, vec![0xff; 40]),
            (
                ContentCoding::Gzip,
                [&[0x1f, 0x8b, 8, 0x08, 0, 0, 0, 0, 0, 3][..], &[b'n'; 5000]].concat(),
            ),
        ] {
            assert_eq!(
                undone(coding, &packed, 64),
                Err(ContentDecodeError),
                "{coding:?}"
            );
        }
    }

    #[test]
    fn a_bomb_comes_out_by_steps_and_can_be_left() {
        let bomb = gzip(&vec![0; 64 << 20]);
        let (mut decoder, mut most, mut seen) = (ContentDecoder::new(ContentCoding::Gzip), 0, 0);
        let flow = decoder.feed(&bomb, &mut |bytes| {
            most = most.max(bytes.len());
            seen += bytes.len();
            if seen < 100_000 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        assert_eq!(flow, Ok(ControlFlow::Break(())));
        assert!(most <= STEP && seen < 200_000, "{most} {seen}");
    }

    #[test]
    fn codings_are_read_from_their_field() {
        for (value, coding) in [
            ("", Ok(ContentCoding::Identity)),
            ("identity", Ok(ContentCoding::Identity)),
            ("GZip", Ok(ContentCoding::Gzip)),
            ("x-gzip", Ok(ContentCoding::Gzip)),
            ("identity, deflate", Ok(ContentCoding::Deflate)),
            ("br", Err(UnsupportedCoding)),
            ("zstd", Err(UnsupportedCoding)),
            ("gzip, gzip", Err(UnsupportedCoding)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, value.parse().unwrap());
            assert_eq!(ContentCoding::from_headers(&headers), coding, "{value}");
        }
    }
}
