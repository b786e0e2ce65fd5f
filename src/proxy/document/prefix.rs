//! Reads the beginning of a body: as much as the rules need, up to a limit.

use std::ops::ControlFlow;

use encoding_rs::Encoding;
use http::header::CONTENT_TYPE;
use http::response::Parts;

use crate::metrics::labels::DocumentOutcome;
use crate::model::media_type::essence;
use crate::pipeline::headers::JoinedHeaders;
use crate::proxy::turn::TurnWork;
use crate::urls::target::UrlTarget;

use super::buffer::BodyBuffer;
use super::charset::{self, PRESCAN};
use super::coding::{ContentCoding, ContentDecoder};
use super::html_head::HtmlHeadScanner;
use super::{BodyError, OwnedDocumentFacts, ResponseDownload};

/// The maximum number of decoded bytes that are inspected.
const MAX_PREFIX: usize = 64 * 1024;
/// The length of a UTF-8 byte order mark.
const BOM_LENGTH: usize = 3;

/// The information to extract from a document.
#[derive(Debug)]
pub(super) struct ReadPlan {
    /// `Yes` if the document may have an HTML head.
    head: Extraction,
    /// `Yes` if the text itself is needed.
    text: Extraction,
    declared: Option<&'static Encoding>,
    /// The maximum number of bytes to buffer, as received.
    max_buffer: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extraction {
    Yes,
    No,
}

impl Extraction {
    fn from_bool(wanted: bool) -> Self {
        if wanted { Self::Yes } else { Self::No }
    }
}

impl ReadPlan {
    /// Plans the extraction of the facts that rules on documents use.
    pub(super) fn for_document(head: &Parts, body_prefix: bool, max_buffer: u64) -> Self {
        let headers = JoinedHeaders(&head.headers);
        let value = headers.joined(CONTENT_TYPE).unwrap_or_default();
        let kind = essence(&value);
        // A response without a content type may be HTML; one that declares plain text is not.
        let may_have_head =
            kind.is_empty() || matches!(&*kind, "text/html" | "application/xhtml+xml");
        Self {
            head: Extraction::from_bool(may_have_head),
            text: Extraction::from_bool(body_prefix),
            declared: charset::from_content_type(&head.headers),
            max_buffer,
        }
    }

    /// Plans the detection of the encoding only.
    pub(super) fn for_charset(head: &Parts, max_buffer: u64) -> Self {
        Self {
            head: Extraction::No,
            text: Extraction::No,
            declared: charset::from_content_type(&head.headers),
            max_buffer: max_buffer.max(PRESCAN as u64),
        }
    }
}

/// The URL of a document, and the product token of the crawler that requested it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DocumentSource<'a> {
    pub(super) target: &'a UrlTarget,
    pub(super) agent: &'a str,
}

/// The beginning of a document and the facts in it.
#[derive(Debug, Default)]
pub(super) struct DocumentPrefix {
    pub(super) buffer: BodyBuffer,
    pub(super) facts: OwnedDocumentFacts,
    /// The encoding, if it was determined.
    pub(super) encoding: Option<&'static Encoding>,
    read_outcome: ReadOutcome,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReadOutcome {
    #[default]
    Read,
    Unreadable,
}

impl DocumentPrefix {
    /// Returns the prefix of a body that cannot be decoded, which has no facts.
    pub(super) fn unreadable() -> Self {
        Self {
            read_outcome: ReadOutcome::Unreadable,
            ..Self::default()
        }
    }

    pub(super) fn outcome(&self) -> DocumentOutcome {
        match self.read_outcome {
            ReadOutcome::Read => DocumentOutcome::Read,
            ReadOutcome::Unreadable => DocumentOutcome::Unreadable,
        }
    }
}

/// Reads until everything in the plan is known, the body ends, or the buffer is full.
pub(super) async fn read_prefix(
    download: &mut ResponseDownload,
    coding: ContentCoding,
    plan: &ReadPlan,
    source: &DocumentSource<'_>,
) -> Result<DocumentPrefix, BodyError> {
    resume_prefix(None, download, coding, plan, source).await
}

/// Continues to read a body of which `buffer` has been read already.
pub(super) async fn resume_prefix(
    buffer: Option<BodyBuffer>,
    download: &mut ResponseDownload,
    coding: ContentCoding,
    plan: &ReadPlan,
    source: &DocumentSource<'_>,
) -> Result<DocumentPrefix, BodyError> {
    let mut buffer = buffer.unwrap_or_default();
    let mut reader = PrefixReader::new(coding, plan, source);
    for part in buffer.iter() {
        reader.feed_all(part).await;
    }
    while !reader.is_done() && buffer.length() < plan.max_buffer {
        let Some(part) = download.next().await else {
            break;
        };
        let part = part?;
        reader.feed_all(&part).await;
        buffer.push(part);
    }
    Ok(reader.finish(buffer))
}

/// The extent of a buffered body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferExtent {
    /// The whole body.
    Whole,
    /// The beginning, up to the limit.
    Beginning,
}

/// Buffers the rest of a body that was read in part, until it ends or the buffer is full.
pub(super) async fn buffer_body(
    buffer: &mut BodyBuffer,
    download: &mut ResponseDownload,
    max_buffer: u64,
) -> Result<BufferExtent, BodyError> {
    while buffer.length() <= max_buffer {
        let Some(part) = download.next().await else {
            return Ok(BufferExtent::Whole);
        };
        buffer.push(part?);
    }
    Ok(BufferExtent::Beginning)
}

/// A prefix that is being read.
struct PrefixReader<'a> {
    plan: &'a ReadPlan,
    source: &'a DocumentSource<'a>,
    decoder: ContentDecoder,
    /// The first bytes, decoded.
    text: Vec<u8>,
    encoding: Option<&'static Encoding>,
    head: Option<DocumentHead>,
    outcome: ReadOutcome,
    work: TurnWork,
}

/// The scanner of a document's head, and the decoder that transcodes encodings that are not
/// ASCII-compatible.
struct DocumentHead {
    scanner: HtmlHeadScanner,
    scanned: usize,
    transcoder: Option<Box<encoding_rs::Decoder>>,
}

impl<'a> PrefixReader<'a> {
    fn new(coding: ContentCoding, plan: &'a ReadPlan, source: &'a DocumentSource<'a>) -> Self {
        Self {
            plan,
            source,
            decoder: ContentDecoder::new(coding),
            text: Vec::new(),
            encoding: None,
            head: None,
            outcome: ReadOutcome::Read,
            work: TurnWork::default(),
        }
    }

    /// Reads a part; other tasks run in between.
    async fn feed_all(&mut self, mut part: &[u8]) {
        loop {
            self.feed(&mut part);
            if !self.work.is_enough() || self.is_done() {
                return;
            }
            self.work.pause().await;
        }
    }

    /// Reads as much of a part as may be done in a turn, and removes it.
    fn feed(&mut self, part: &mut &[u8]) {
        let text = &mut self.text;
        let work = &mut self.work;
        let fed = self.decoder.feed(part, work, &mut |bytes, work| {
            let room = MAX_PREFIX.saturating_sub(text.len());
            text.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            if text.len() < MAX_PREFIX && !work.add(TurnWork::HTML * bytes.len()) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        if fed.is_err() {
            self.outcome = ReadOutcome::Unreadable;
        }
        if self.encoding.is_some() || self.can_detect_charset() {
            self.scan();
        }
    }

    /// Returns `true` if enough bytes have arrived to determine the encoding.
    fn can_detect_charset(&self) -> bool {
        let is_enough = if self.plan.declared.is_some() {
            BOM_LENGTH
        } else {
            PRESCAN
        };
        self.text.len() >= is_enough
    }

    fn scan(&mut self) {
        let encoding = *self
            .encoding
            .get_or_insert_with(|| charset::detect(&self.text, self.plan.declared));
        if self.plan.head == Extraction::Yes {
            let head = self
                .head
                .get_or_insert_with(|| DocumentHead::new(encoding, self.source.agent));
            head.scan(&self.text);
        }
    }

    fn is_done(&self) -> bool {
        let full = self.text.len() >= MAX_PREFIX || self.outcome == ReadOutcome::Unreadable;
        let head = self.plan.head == Extraction::No
            || self
                .head
                .as_ref()
                .is_some_and(|head| head.scanner.is_over());
        full || (self.encoding.is_some() && head && self.plan.text == Extraction::No)
    }

    fn finish(mut self, buffer: BodyBuffer) -> DocumentPrefix {
        self.scan();
        let encoding = self.encoding;
        let mut facts = OwnedDocumentFacts::default();
        if self.plan.text == Extraction::Yes {
            let (text, _, _) = encoding.unwrap_or(encoding_rs::UTF_8).decode(&self.text);
            facts.body_prefix = text.into_owned();
        }
        if let Some(head) = self.head {
            let contents = head.scanner.into_contents();
            facts.canonical = contents
                .canonical
                .map(|link| resolve_link(self.source.target, contents.base.as_deref(), link));
            facts.title = contents.title;
            facts.meta_robots = contents.robots;
        }
        DocumentPrefix {
            buffer,
            facts,
            encoding,
            read_outcome: self.outcome,
        }
    }
}

impl DocumentHead {
    fn new(encoding: &'static Encoding, agent: &str) -> Self {
        let is_ascii = encoding.is_ascii_compatible();
        let transcoder = (!is_ascii).then(|| Box::new(encoding.new_decoder()));
        let scanner = HtmlHeadScanner::new(
            if is_ascii {
                encoding
            } else {
                encoding_rs::UTF_8
            },
            agent,
        );
        Self {
            scanner,
            scanned: 0,
            transcoder,
        }
    }

    /// Scans the text that has arrived since the previous call.
    fn scan(&mut self, text: &[u8]) {
        let new_text = text.get(self.scanned..).unwrap_or_default();
        self.scanned = text.len();
        match &mut self.transcoder {
            None => self.scanner.feed(new_text),
            Some(transcoder) => self
                .scanner
                .feed(transcode(transcoder, new_text).as_bytes()),
        }
    }
}

/// Decodes the next bytes of a text in another encoding.
pub(super) fn transcode(transcoder: &mut encoding_rs::Decoder, bytes: &[u8]) -> String {
    let room = transcoder
        .max_utf8_buffer_length(bytes.len())
        .unwrap_or(bytes.len());
    let mut text = String::with_capacity(room);
    let _ = transcoder.decode_to_string(bytes, &mut text, false);
    text
}

/// Resolves a link relative to the document's URL or its `<base>`; returns it as written if it is
/// invalid.
fn resolve_link(target: &UrlTarget, base: Option<&str>, link: String) -> String {
    let base = base.and_then(|base| target.join(base).ok());
    let joined = base.as_ref().unwrap_or(target).join(&link);
    joined.map_or(link, |url| url.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<html><head><meta charset=koi8-r><title>\u{43d}\u{435}\u{442}</title>\
                        <base href=/b/><link rel=canonical href=c#top></head><body>text";

    fn parts(content_type: &str) -> Parts {
        let response = http::Response::builder()
            .header("content-type", content_type)
            .body(())
            .unwrap();
        response.into_parts().0
    }

    fn feed(reader: &mut PrefixReader<'_>, mut part: &[u8]) {
        while !part.is_empty() && !reader.is_done() {
            reader.feed(&mut part);
            reader.work.restart();
        }
    }

    fn read(content_type: &str, body: &[u8], step: usize) -> DocumentPrefix {
        let head = parts(content_type);
        let plan = ReadPlan::for_document(&head, true, 1 << 20);
        let target = UrlTarget::parse("http://a.test/x/y").unwrap();
        let source = DocumentSource {
            target: &target,
            agent: "x",
        };
        let mut reader = PrefixReader::new(ContentCoding::Identity, &plan, &source);
        for part in body.chunks(step) {
            feed(&mut reader, part);
        }
        reader.finish(BodyBuffer::default())
    }

    #[test]
    fn charsets_are_decoded_and_links_resolved() {
        let encoded = |encoding: &'static Encoding| encoding.encode(PAGE).0.into_owned();
        let utf16: Vec<u8> = [0xfeff]
            .into_iter()
            .chain(PAGE.encode_utf16())
            .flat_map(u16::to_le_bytes)
            .collect();
        for (content_type, body) in [
            ("text/html", encoded(encoding_rs::KOI8_R)),
            ("text/html; charset=utf-8", PAGE.as_bytes().to_vec()),
            ("", encoded(encoding_rs::KOI8_R)),
            ("text/html", utf16.clone()),
            (
                "text/html; charset=utf-16le",
                utf16.get(2..).unwrap().to_vec(),
            ),
        ] {
            for step in [1, 3, 4096] {
                let read = read(content_type, &body, step);
                assert_eq!(
                    read.facts.title, "\u{43d}\u{435}\u{442}",
                    "{content_type} by {step}"
                );
                assert_eq!(
                    read.facts.canonical.as_deref(),
                    Some("http://a.test/b/c"),
                    "{content_type}"
                );
                assert!(
                    read.facts.body_prefix.ends_with("<body>text"),
                    "{:?}",
                    read.facts.body_prefix
                );
            }
        }
        let plain = read("text/plain", PAGE.as_bytes(), 7);
        assert_eq!(
            (plain.facts.title.as_str(), plain.facts.canonical),
            ("", None)
        );
        assert!(plain.facts.body_prefix.starts_with("<html>"));
    }

    #[test]
    fn no_more_is_read_than_needed() {
        let long = format!("{}<title>late</title>", "<meta name=x>".repeat(6000));
        assert_eq!(read("text/html", long.as_bytes(), 1000).facts.title, "");
        let head = parts("text/html");
        let plan = ReadPlan::for_document(&head, false, 1 << 20);
        let target = UrlTarget::parse("http://a.test/").unwrap();
        let source = DocumentSource {
            target: &target,
            agent: "x",
        };
        let mut reader = PrefixReader::new(ContentCoding::Identity, &plan, &source);
        feed(
            &mut reader,
            format!("{PAGE}{}", "x".repeat(1000)).as_bytes(),
        );
        assert!(reader.is_done());
    }
}
