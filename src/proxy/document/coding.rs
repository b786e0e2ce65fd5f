//! Decodes content codings while the bytes arrive: gzip and deflate (RFC 9110 section 8.4.1),
//! bounded at every step.
//!
//! At most [`STEP`] bytes are produced at once, however strong the compression is, and the consumer
//! may stop at any time, and go on later. A call that takes long stops by itself, and its time counts
//! as work of the turn. Checksums are not verified: the bytes are evaluated or changed, not stored.

use std::ops::ControlFlow;

use flate2::{Decompress, FlushDecompress, Status};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use crate::clock::Stopwatch;
use crate::proxy::turn::TurnWork;

/// The maximum number of bytes per decoding step.
const STEP: usize = 4 * 1024;
/// The maximum number of compressed bytes per decoding step. A deflate stream may have a table in every
/// second byte, and no output: 64 KiB of it would take a tenth of a second.
const INPUT_STEP: usize = 256;
/// The maximum for a slow stream: 256 bytes of empty blocks take up to half a millisecond.
const SLOW_INPUT_STEP: usize = 32;
/// A stream is slow if a call takes long for fewer compressed bytes than this.
const SLOW_CALL: usize = 4 * 1024;
/// The maximum size of a gzip header, including the name and the comment.
const GZIP_HEADER: usize = 4 * 1024;
/// The size of the checksum and length after each gzip member (RFC 1952 section 2.3.1).
const GZIP_TRAILER: usize = 8;

/// The supported codings, as a value of `Accept-Encoding`.
pub(super) const SUPPORTED: &str = "gzip, deflate";

/// The content coding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum ContentCoding {
    /// No coding.
    Identity,
    /// `gzip` or `x-gzip`.
    Gzip,
    /// `deflate`: zlib, or the bare stream that some servers send.
    Deflate,
}

/// The body has a coding that is not supported (`br`, `zstd`), or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnsupportedCoding;

impl ContentCoding {
    /// Returns the coding of a body.
    ///
    /// # Errors
    /// Returns an error if the coding is not supported.
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
        match named.next() {
            None => Self::from_name(coding).ok_or(UnsupportedCoding),
            Some(_) => Err(UnsupportedCoding),
        }
    }

    /// Returns the coding with a name; `None` if it is not supported.
    pub(in crate::proxy) fn from_name(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") {
            Some(Self::Gzip)
        } else if name.eq_ignore_ascii_case(b"deflate") {
            Some(Self::Deflate)
        } else {
            None
        }
    }
}

/// The first byte of every gzip member (RFC 1952 section 2.3.1).
const GZIP_MAGIC: u8 = 0x1f;

/// The compressed data is invalid. The bytes decoded before the error are correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct ContentDecodeError;

/// A decoder of one content coding.
#[derive(Debug)]
pub(in crate::proxy) struct ContentDecoder {
    state: DecoderState,
    out: Vec<u8>,
    /// The maximum number of compressed bytes of the next steps.
    input_step: usize,
    /// `true` if a call has stopped before all output of the input so far was produced.
    holds_output: bool,
}

/// A call, and what it may do.
struct DecodeCall<'c> {
    stopwatch: Stopwatch,
    work: &'c mut TurnWork,
    sink: DecodedSink<'c>,
}

impl DecodeCall<'_> {
    /// Passes decoded bytes on.
    fn sink(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        (self.sink)(bytes, self.work)
    }

    /// Breaks if the call has taken long.
    fn check_time(&self) -> ControlFlow<()> {
        if self.stopwatch.elapsed() >= TurnWork::MAX_TIME {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

#[derive(Debug)]
enum DecoderState {
    Identity,
    /// After a gzip member.
    GzipNext,
    /// The bytes of an incomplete gzip header.
    GzipHeader(Vec<u8>),
    /// The first bytes of a deflated body, which distinguish zlib from a bare stream.
    DeflateStart(Vec<u8>),
    Inflating(Box<Decompress>, StreamTrailer),
    /// The number of bytes of a gzip trailer that are still missing.
    GzipTrailer(usize),
    Finished,
}

/// The data after a deflate stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamTrailer {
    GzipTrailer,
    Nothing,
}

/// The consumer of the decoded bytes; breaks when it needs no more, or no more for now. It adds its
/// own work.
pub(in crate::proxy) type DecodedSink<'s> =
    &'s mut dyn FnMut(&[u8], &mut TurnWork) -> ControlFlow<()>;

impl ContentDecoder {
    pub(in crate::proxy) fn new(coding: ContentCoding) -> Self {
        let state = match coding {
            ContentCoding::Identity => DecoderState::Identity,
            ContentCoding::Gzip => DecoderState::GzipHeader(Vec::new()),
            ContentCoding::Deflate => DecoderState::DeflateStart(Vec::new()),
        };
        Self {
            state,
            out: Vec::new(),
            input_step: INPUT_STEP,
            holds_output: false,
        }
    }

    /// Decodes the next bytes and passes the output to `sink`. The bytes that were used are removed
    /// from `input`. Breaks if the sink does, if the call takes long, or if `work` is as much as a turn
    /// may do. After a break another call goes on where this one has stopped, even if all input was
    /// used.
    ///
    /// # Errors
    /// Returns an error if the data is invalid.
    pub(in crate::proxy) fn feed(
        &mut self,
        input: &mut &[u8],
        work: &mut TurnWork,
        sink: DecodedSink<'_>,
    ) -> Result<ControlFlow<()>, ContentDecodeError> {
        let mut call = DecodeCall {
            stopwatch: Stopwatch::start(),
            work: &mut *work,
            sink,
        };
        let given = input.len();
        let work_before = call.work.done();
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue() && (!input.is_empty() || self.holds_output) {
            let consumed;
            (consumed, flow) = self.step(input, &mut call)?;
            *input = input.get(consumed..).unwrap_or_default();
        }
        let time = call.stopwatch.elapsed();
        let is_slow = time >= TurnWork::MAX_TIME && given - input.len() < SLOW_CALL;
        self.input_step = if is_slow { SLOW_INPUT_STEP } else { INPUT_STEP };
        let is_turn_over = work.raise_by_time(work_before, time);
        Ok(if is_turn_over {
            ControlFlow::Break(())
        } else {
            flow
        })
    }

    /// Returns `true` if a call has stopped before all output of the input so far was produced.
    pub(in crate::proxy) fn holds_output(&self) -> bool {
        self.holds_output
    }

    /// Returns `true` if the body may end here.
    pub(in crate::proxy) fn may_end(&self) -> bool {
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
        call: &mut DecodeCall<'_>,
    ) -> Result<(usize, ControlFlow<()>), ContentDecodeError> {
        const ON: ControlFlow<()> = ControlFlow::Continue(());
        match &mut self.state {
            DecoderState::Identity => {
                let part = input.get(..STEP).unwrap_or(input);
                Ok((part.len(), call.sink(part)))
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
                Ok((end.saturating_sub(before), call.check_time()))
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
                // The inspected bytes are fed again: they belong to the stream.
                let (_, flow) = self.inflate_step(&[method, flags], call)?;
                Ok((2 - before, flow))
            }
            DecoderState::Inflating(..) => self.inflate_step(input, call),
            DecoderState::GzipTrailer(remaining) => {
                let consumed = input.len().min(*remaining);
                *remaining -= consumed;
                if *remaining == 0 {
                    self.state = DecoderState::GzipNext;
                }
                Ok((consumed, ON))
            }
            DecoderState::GzipNext => {
                // Some servers pad compressed data with zeros. Anything else that is not another
                // member is invalid.
                let padding = input.iter().take_while(|byte| **byte == 0).count();
                match input.get(padding) {
                    Some(&GZIP_MAGIC) => self.state = DecoderState::GzipHeader(Vec::new()),
                    Some(_) => return Err(ContentDecodeError),
                    None => {}
                }
                Ok((padding, ON))
            }
            // Data after the end is ignored.
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
        call: &mut DecodeCall<'_>,
    ) -> Result<(usize, ControlFlow<()>), ContentDecodeError> {
        let DecoderState::Inflating(stream, trailer) = &mut self.state else {
            return Err(ContentDecodeError);
        };
        let mut consumed = 0;
        let mut filled = 0;
        self.holds_output = false;
        loop {
            let before_in = stream.total_in();
            let before_out = stream.total_out();
            let rest = input.get(consumed..).unwrap_or_default();
            let part = rest.get(..self.input_step).unwrap_or(rest);
            let room = self.out.get_mut(filled..).unwrap_or_default();
            let Ok(status) = stream.decompress(part, room, FlushDecompress::None) else {
                // The bytes that were decoded before the error are passed on, as if each part had been a call.
                let _ = self.out.get(..filled).map(|out| call.sink(out));
                return Err(ContentDecodeError);
            };
            let produced = (stream.total_out() - before_out) as usize;
            let used = (stream.total_in() - before_in) as usize;
            consumed += used;
            filled += produced;
            let is_full = filled == self.out.len();
            // The input is used up, and no output is left inside the stream.
            let drained = consumed == input.len() && !is_full;
            let time = call.check_time();
            let has_ended = status == Status::StreamEnd;
            if !has_ended && !is_full && !drained && time.is_continue() {
                if produced == 0 && used == 0 {
                    return Err(ContentDecodeError);
                }
                continue;
            }
            let flow = match self.out.get(..std::mem::take(&mut filled)) {
                Some(out) if !out.is_empty() => call.sink(out),
                Some(_) | None => ControlFlow::Continue(()),
            };
            let flow = if flow.is_break() { flow } else { time };
            if has_ended {
                self.state = match trailer {
                    StreamTrailer::GzipTrailer => DecoderState::GzipTrailer(GZIP_TRAILER),
                    StreamTrailer::Nothing => DecoderState::Finished,
                };
                return Ok((consumed, flow));
            }
            if flow.is_break() || drained {
                self.holds_output = !drained;
                return Ok((consumed, flow));
            }
        }
    }
}

/// Returns the length of a gzip member's header, or `None` if it is incomplete (RFC 1952 section
/// 2.3).
fn gzip_header_end(bytes: &[u8]) -> Result<Option<usize>, ContentDecodeError> {
    const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
    const HEADER_CRC: u8 = 0x02;
    const EXTRA: u8 = 0x04;
    const NAME: u8 = 0x08;
    const COMMENT: u8 = 0x10;
    if bytes.iter().zip(MAGIC).any(|(byte, magic)| *byte != magic) {
        return Err(ContentDecodeError);
    }
    let Some(flags) = bytes.get(3).copied().filter(|_| bytes.len() >= 10) else {
        return Ok(None);
    };
    let mut at = 10;
    if flags & EXTRA != 0 {
        let Some([low, high]) = bytes.get(at..at + 2) else {
            return Ok(None);
        };
        at += 2 + usize::from(u16::from_le_bytes([*low, *high]));
    }
    for flag in [NAME, COMMENT] {
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
    at += if flags & HEADER_CRC != 0 { 2 } else { 0 };
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

    /// Decodes `packed` in parts of `step` bytes; returns the output, and `true` if the body may
    /// end there.
    fn decoded(
        coding: ContentCoding,
        packed: &[u8],
        step: usize,
    ) -> Result<(Vec<u8>, bool), ContentDecodeError> {
        let mut decoder = ContentDecoder::new(coding);
        let mut out = Vec::new();
        for mut part in packed.chunks(step) {
            let mut sink = |bytes: &[u8], _: &mut TurnWork| {
                out.extend_from_slice(bytes);
                ControlFlow::Continue(())
            };
            while decoder
                .feed(&mut part, &mut TurnWork::default(), &mut sink)?
                .is_break()
            {}
        }
        Ok((out, decoder.may_end()))
    }

    #[test]
    fn each_coding_is_decoded_however_it_is_split() {
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
                    decoded(coding, &packed, step),
                    Ok((TEXT.to_vec(), true)),
                    "{coding:?} by {step}"
                );
            }
            if coding != ContentCoding::Identity {
                let (_, ends) =
                    decoded(coding, packed.get(..packed.len() - 9).unwrap(), 5).unwrap();
                assert!(!ends, "{coding:?} cut off");
            }
        }
    }

    #[test]
    fn invalid_data_is_an_error() {
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
                decoded(coding, &packed, 64),
                Err(ContentDecodeError),
                "{coding:?}"
            );
        }
    }

    #[test]
    fn a_bomb_is_decoded_in_steps_and_can_be_abandoned() {
        let bomb = gzip(&vec![0; 64 << 20]);
        let mut decoder = ContentDecoder::new(ContentCoding::Gzip);
        let mut most = 0;
        let mut seen = 0;
        let mut work = TurnWork::default();
        let flow = decoder.feed(&mut bomb.as_slice(), &mut work, &mut |bytes, _| {
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
    fn a_consumer_that_stops_gets_the_rest_later() {
        for (coding, packed, text) in [
            (ContentCoding::Identity, vec![7; 99_999], vec![7; 99_999]),
            (ContentCoding::Gzip, gzip(&[0; 99_999]), vec![0; 99_999]),
            (ContentCoding::Gzip, gzip(TEXT), TEXT.to_vec()),
            (
                ContentCoding::Deflate,
                zlib(&[0; 4 * STEP]),
                vec![0; 4 * STEP],
            ),
            (ContentCoding::Deflate, bare(&[0; 99_999]), vec![0; 99_999]),
        ] {
            for step in [1, 3, 1 << 20] {
                let mut decoder = ContentDecoder::new(coding);
                let mut out = Vec::new();
                for mut part in packed.chunks(step) {
                    while decode_step(&mut decoder, &mut part, &mut out).is_break() {}
                    assert!(part.is_empty());
                }
                assert!(out == text && decoder.may_end(), "{coding:?} by {step}");
            }
        }
    }

    /// Decodes until the first output, and stops there.
    fn decode_step(
        decoder: &mut ContentDecoder,
        part: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> ControlFlow<()> {
        let before = out.len();
        let flow = decoder.feed(part, &mut TurnWork::default(), &mut |bytes, _| {
            out.extend_from_slice(bytes);
            ControlFlow::Break(())
        });
        assert!(out.len() - before <= STEP);
        flow.unwrap()
    }

    #[test]
    fn blocks_without_output_do_not_take_a_whole_turn() {
        // Four blocks with fixed tables and nothing but their end.
        const EMPTY: [u8; 5] = [0x02, 0x08, 0x20, 0x80, 0];
        let members = gzip(b"").repeat(20_000);
        let whole = usize::MAX;
        for (coding, packed, step) in [
            (
                ContentCoding::Deflate,
                [EMPTY.repeat(10_000), bare(TEXT)].concat(),
                whole,
            ),
            (
                ContentCoding::Deflate,
                [EMPTY.repeat(10_000), bare(TEXT)].concat(),
                20,
            ),
            (ContentCoding::Gzip, [members, gzip(TEXT)].concat(), whole),
        ] {
            let mut decoder = ContentDecoder::new(coding);
            let mut out = Vec::new();
            let mut work = TurnWork::default();
            let mut turns = 1;
            let mut sink = |bytes: &[u8], _: &mut TurnWork| {
                out.extend_from_slice(bytes);
                ControlFlow::Continue(())
            };
            for mut part in packed.chunks(step) {
                while decoder
                    .feed(&mut part, &mut work, &mut sink)
                    .unwrap()
                    .is_break()
                {
                    work.restart();
                    turns += 1;
                }
                assert!(part.is_empty());
            }
            assert!(decoder.may_end());
            assert_eq!(out, TEXT, "{coding:?}");
            assert!(turns > 8, "{coding:?} by {step} in {turns} turns");
        }
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
