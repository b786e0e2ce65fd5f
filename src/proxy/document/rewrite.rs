//! Rewrites a document while it streams. The result has no content coding.
//!
//! A `<meta name="robots">` is injected at the beginning of the head. Links are stripped by
//! removing their URLs, so that the page keeps its appearance. Elements that a crawler without
//! scripts reads as links but that the tokenizer takes for text (`<noscript>`, `<noframes>`) are
//! removed entirely. A body that consists of links only is generated: it contains only the URLs of
//! the document's links, its `<base>`, and its own `nofollow`. Forms and scripts are not changed.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use bytes::{Buf, Bytes};
use encoding_rs::Encoding;
use lol_html::html_content::{ContentType, DocumentEnd};
use lol_html::send::{
    DocumentContentHandlers, Element, ElementContentHandlers, HtmlRewriter, Settings,
};
use lol_html::{MemorySettings, OutputSink};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::pipeline::document_rewrite::{DocumentRewrite, LinkHandling, TextHandling};
use crate::proxy::robots_tag::directives;
use crate::proxy::turn::TurnWork;
use crate::robots::product_token::is_product_token;
use crate::robots::robots_tag::forbids_follow;

use super::coding::{ContentCoding, ContentDecoder};
use super::html_head::to_ascii_compatible;
use super::prefix::transcode;

/// The memory limit of the rewriter, which bounds the size of a tag and the number of open
/// elements. A page that never closes its list items has many.
const MAX_MEMORY: usize = 16 * 1024 * 1024;
/// The number of start tags from which a document is rewritten on the blocking pool. The parser's
/// stack of open elements may be so large then that to enlarge it, or to free it, takes
/// milliseconds.
const MANY_TAGS: usize = 8192;
/// The number of parts, each as large as the work of a turn, that are rewritten at once there.
const LONG_PARTS: usize = 16;
/// The maximum decoded size of a document: a larger one is taken for a decompression bomb.
const MAX_DECODED: usize = 64 << 20;

/// The rest of the document cannot be rewritten: its coding is invalid, a tag is too large, or its
/// decoded size exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RewriteError;

/// A document that is being rewritten.
pub(super) struct DocumentRewriter {
    decoder: ContentDecoder,
    /// The number of bytes that may still be decoded.
    remaining: usize,
    transcoder: Option<Box<encoding_rs::Decoder>>,
    state: RewriteState,
    /// The number of start tags so far, or more.
    tags: usize,
    output: OutputBuffer,
}

enum RewriteState {
    Html(Box<HtmlRewriter<'static, RewriterSink>>, RewriteUntil),
    /// All changes are made; the rest is copied.
    Done,
    Closed,
}

/// The part of the document that must be parsed.
enum RewriteUntil {
    /// The part before this flag is set.
    FlagSet(Arc<AtomicBool>),
    End,
}

#[derive(Clone, Debug, Default)]
struct OutputBuffer(Arc<Mutex<Vec<u8>>>);

impl OutputBuffer {
    fn push_str(&self, text: &str) {
        self.0.lock().extend_from_slice(text.as_bytes());
    }
}

enum RewriterSink {
    Buffer(OutputBuffer),
    Discard,
}

impl OutputSink for RewriterSink {
    fn handle_chunk(&mut self, chunk: &[u8]) {
        match self {
            Self::Buffer(out) => out.0.lock().extend_from_slice(chunk),
            Self::Discard => {}
        }
    }
}

impl std::fmt::Debug for DocumentRewriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DocumentRewriter")
            .field("decoder", &self.decoder)
            .finish_non_exhaustive()
    }
}

impl DocumentRewriter {
    pub(super) fn new(
        changes: DocumentRewrite,
        coding: ContentCoding,
        encoding: &'static Encoding,
    ) -> Self {
        let is_ascii = encoding.is_ascii_compatible();
        let transcoder = (!is_ascii).then(|| Box::new(encoding.new_decoder()));
        let encoding = if is_ascii {
            encoding
        } else {
            encoding_rs::UTF_8
        };
        let output = OutputBuffer::default();
        let state = match changes.text {
            TextHandling::Keep => edit_document(changes, encoding, &output),
            TextHandling::Strip => extract_links(changes, encoding, &output),
        };
        Self {
            decoder: ContentDecoder::new(coding),
            remaining: MAX_DECODED,
            transcoder,
            state: state.unwrap_or(RewriteState::Closed),
            tags: 0,
            output,
        }
    }

    /// Returns `true` if the calls that change the document may take milliseconds, so that they
    /// belong on the blocking pool.
    pub(super) fn is_long(&self) -> bool {
        match self.state {
            RewriteState::Html(..) => self.tags >= MANY_TAGS,
            RewriteState::Done | RewriteState::Closed => false,
        }
    }

    /// Returns `true` if [`Self::feed`] has not produced all output of its input so far.
    pub(super) fn holds_output(&self) -> bool {
        self.decoder.holds_output()
    }

    /// Rewrites a part of `bytes` and removes it from them: as much as `work` allows in this turn.
    pub(super) fn feed(
        &mut self,
        bytes: &mut Bytes,
        work: &mut TurnWork,
    ) -> Result<(), RewriteError> {
        let mut rest = &bytes[..];
        let remaining = &mut self.remaining;
        let transcoder = &mut self.transcoder;
        let state = &mut self.state;
        let tags = &mut self.tags;
        let output = &self.output;
        let mut result = Ok(());
        let decoded = self.decoder.feed(&mut rest, work, &mut |bytes, work| {
            let Some(rest) = remaining.checked_sub(bytes.len()) else {
                result = Err(RewriteError);
                return ControlFlow::Break(());
            };
            *remaining = rest;
            let text = transcoder
                .as_mut()
                .map(|transcoder| transcode(transcoder, bytes));
            let bytes = text.as_ref().map_or(bytes, String::as_bytes);
            *tags += count_start_tags(bytes);
            result = result.and(state.write(bytes, output));
            if result.is_ok() && !work.add(TurnWork::HTML * bytes.len()) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        let used = bytes.len() - rest.len();
        bytes.advance(used);
        // A break means that `work` is enough, or that `result` is an error.
        let _ = decoded.map_err(|_| RewriteError)?;
        result
    }

    /// Rewrites a part of `bytes` that takes several turns, and removes it from them.
    pub(super) fn feed_long(&mut self, bytes: &mut Bytes) -> Result<(), RewriteError> {
        for _ in 0..LONG_PARTS {
            if bytes.is_empty() && !self.holds_output() {
                break;
            }
            self.feed(bytes, &mut TurnWork::default())?;
        }
        Ok(())
    }

    /// Completes the document after its last byte.
    pub(super) fn finish(&mut self) -> Result<(), RewriteError> {
        if !self.decoder.may_end() {
            return Err(RewriteError);
        }
        match std::mem::replace(&mut self.state, RewriteState::Closed) {
            RewriteState::Html(rewriter, _) => rewriter.end().map_err(|_| RewriteError),
            RewriteState::Done | RewriteState::Closed => Ok(()),
        }
    }

    pub(super) fn take_output(&mut self) -> Bytes {
        std::mem::take(&mut *self.output.0.lock()).into()
    }
}

/// Frees many open elements on the blocking pool.
impl Drop for DocumentRewriter {
    fn drop(&mut self) {
        if self.is_long()
            && let Ok(runtime) = Handle::try_current()
        {
            let state = std::mem::replace(&mut self.state, RewriteState::Closed);
            runtime.spawn_blocking(move || drop(state));
        }
    }
}

/// Returns the number of start tags in a part of a document, or more: what looks like one may be
/// text, and a `<` at the end may begin one.
fn count_start_tags(part: &[u8]) -> usize {
    memchr::memchr_iter(b'<', part)
        .filter(|at| part.get(at + 1).is_none_or(u8::is_ascii_alphabetic))
        .count()
}

impl RewriteState {
    fn write(&mut self, bytes: &[u8], out: &OutputBuffer) -> Result<(), RewriteError> {
        let done = match self {
            Self::Html(rewriter, until) => {
                rewriter.write(bytes).map_err(|_| RewriteError)?;
                matches!(until, RewriteUntil::FlagSet(done) if done.load(Relaxed))
            }
            Self::Done => {
                out.0.lock().extend_from_slice(bytes);
                false
            }
            Self::Closed => return Err(RewriteError),
        };
        if done && let Self::Html(rewriter, _) = std::mem::replace(self, Self::Done) {
            return rewriter.end().map_err(|_| RewriteError);
        }
        Ok(())
    }
}

fn robots_meta(changes: DocumentRewrite) -> String {
    format!(
        "<meta name=\"robots\" content=\"{}\"/>",
        directives(changes.robots_meta)
    )
}

fn rewriter_settings(encoding: &'static Encoding) -> Settings<'static, 'static> {
    Settings::new_send()
        .with_encoding(to_ascii_compatible(encoding))
        .with_strict(false)
        .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(MAX_MEMORY))
}

/// Edits the document: injects the robots `<meta>` and strips the links if required.
fn edit_document(
    changes: DocumentRewrite,
    encoding: &'static Encoding,
    out: &OutputBuffer,
) -> Option<RewriteState> {
    let injected = Arc::new(AtomicBool::new(false));
    let injected_by_element = Arc::clone(&injected);
    let injected_at_end = Arc::clone(&injected);
    let element_meta = robots_meta(changes);
    let end_meta = robots_meta(changes);
    let elements =
        ElementContentHandlers::default().element(move |element: &mut Element<'_, '_>| {
            if !injected_by_element.load(Relaxed) {
                inject_meta(element, &element_meta, &injected_by_element);
            }
            if changes.links == LinkHandling::Strip {
                strip_links(element);
            }
            Ok(())
        });
    let end = DocumentContentHandlers::default().end(move |end: &mut DocumentEnd<'_>| {
        if !injected_at_end.swap(true, Relaxed) {
            end.append(&end_meta, ContentType::Html);
        }
        Ok(())
    });
    let settings = rewriter_settings(encoding)
        .append_element_content_handler((Cow::Owned("*".parse().ok()?), elements))
        .append_document_content_handler(end);
    let until = match changes.links {
        LinkHandling::Keep => RewriteUntil::FlagSet(injected),
        LinkHandling::Strip => RewriteUntil::End,
    };
    Some(RewriteState::Html(
        Box::new(HtmlRewriter::new(
            settings,
            RewriterSink::Buffer(out.clone()),
        )),
        until,
    ))
}

/// Injects the robots `<meta>` before everything else in the head. A head without a start tag
/// begins with its first element.
fn inject_meta(element: &mut Element<'_, '_>, meta: &str, injected: &AtomicBool) {
    match element.tag_name().as_str() {
        "html" => return,
        "head" if element.can_have_content() => element.prepend(meta, ContentType::Html),
        _ => element.before(meta, ContentType::Html),
    }
    injected.store(true, Relaxed);
}

/// Removes the URLs that an element links to.
fn strip_links(element: &mut Element<'_, '_>) {
    match element.tag_name().as_str() {
        "a" | "area" => {
            for name in ["href", "xlink:href", "ping"] {
                element.remove_attribute(name);
            }
        }
        "link" if is_navigation_link(element) => element.remove_attribute("href"),
        "iframe" | "frame" => {
            element.remove_attribute("src");
            element.remove_attribute("srcdoc");
        }
        "meta" if is_refresh(element) => element.remove(),
        "noscript" | "noframes" => element.remove(),
        _ => {}
    }
}

/// Returns `true` for links that lead to another page. Resources of the page and its own metadata
/// stay.
fn is_navigation_link(element: &Element<'_, '_>) -> bool {
    const OF_THE_PAGE: [&str; 11] = [
        "stylesheet",
        "icon",
        "apple-touch-icon",
        "mask-icon",
        "manifest",
        "preload",
        "modulepreload",
        "preconnect",
        "dns-prefetch",
        "canonical",
        "license",
    ];
    let rel = element.get_attribute("rel").unwrap_or_default();
    !rel.split_ascii_whitespace().any(|word| {
        OF_THE_PAGE
            .iter()
            .any(|kept| word.eq_ignore_ascii_case(kept))
    })
}

fn is_refresh(element: &Element<'_, '_>) -> bool {
    element
        .get_attribute("http-equiv")
        .is_some_and(|value| value.trim().eq_ignore_ascii_case("refresh"))
}

/// Replaces the document by its links.
fn extract_links(
    changes: DocumentRewrite,
    encoding: &'static Encoding,
    out: &OutputBuffer,
) -> Option<RewriteState> {
    out.push_str(&format!(
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\"><head><meta charset=\"utf-8\"/>{}\n",
        robots_meta(changes)
    ));
    let link_output = out.clone();
    let end_output = out.clone();
    let has_body = Arc::new(AtomicBool::new(false));
    let has_body_at_end = Arc::clone(&has_body);
    let elements =
        ElementContentHandlers::default().element(move |element: &mut Element<'_, '_>| {
            write_link(element, changes, &link_output, &has_body);
            Ok(())
        });
    let end = DocumentContentHandlers::default().end(move |_: &mut DocumentEnd<'_>| {
        end_output.push_str(if has_body_at_end.load(Relaxed) {
            "</body></html>\n"
        } else {
            "</head><body></body></html>\n"
        });
        Ok(())
    });
    let settings = rewriter_settings(encoding)
        .append_element_content_handler((
            Cow::Owned("a, area, base, meta[name]".parse().ok()?),
            elements,
        ))
        .append_document_content_handler(end);
    Some(RewriteState::Html(
        Box::new(HtmlRewriter::new(settings, RewriterSink::Discard)),
        RewriteUntil::End,
    ))
}

fn write_link(
    element: &Element<'_, '_>,
    changes: DocumentRewrite,
    out: &OutputBuffer,
    has_body: &AtomicBool,
) {
    if element.tag_name() == "meta" {
        if !has_body.load(Relaxed) {
            out.push_str(&kept_nofollow(element));
        }
        return;
    }
    let Some(href) = element
        .get_attribute("href")
        .map(|href| escape_attribute(&href))
    else {
        return;
    };
    if element.tag_name() == "base" {
        return out.push_str(&format!("<base href=\"{href}\"/>\n"));
    }
    if changes.links == LinkHandling::Strip {
        return;
    }
    if !has_body.swap(true, Relaxed) {
        out.push_str("</head><body>\n");
    }
    let rel = element
        .get_attribute("rel")
        .map_or_else(String::new, |rel| {
            format!(" rel=\"{}\"", escape_attribute(&rel))
        });
    out.push_str(&format!("<a href=\"{href}\"{rel}></a>\n"));
}

/// Returns the `nofollow` of a `<meta>` for robots, all of them or one by its name; empty if it has none.
fn kept_nofollow(meta: &Element<'_, '_>) -> String {
    let name = meta.get_attribute("name").unwrap_or_default();
    let content = meta.get_attribute("content").unwrap_or_default();
    if !forbids_follow(&content) || !is_product_token(&name) {
        return String::new();
    }
    format!("<meta name=\"{name}\" content=\"nofollow\"/>\n")
}

/// Escapes a value for double quotes. Its character references stay as written.
fn escape_attribute(value: &str) -> String {
    value
        .replace('"', "&quot;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::header_effects::RobotsTag;

    const META: &str = "<meta name=\"robots\" content=\"noindex\"/>";

    fn rewrite(links: LinkHandling, text: TextHandling) -> DocumentRewrite {
        DocumentRewrite {
            robots_meta: RobotsTag::NoIndex,
            links,
            text,
        }
    }

    fn feed(rewriter: &mut DocumentRewriter, bytes: &mut Bytes) {
        rewriter.feed(bytes, &mut TurnWork::default()).unwrap();
    }

    fn rewritten(changes: DocumentRewrite, html: &[u8], step: usize) -> Vec<u8> {
        let mut rewriter =
            DocumentRewriter::new(changes, ContentCoding::Identity, encoding_rs::UTF_8);
        let mut out = Vec::new();
        for part in html.chunks(step) {
            let mut part = Bytes::copy_from_slice(part);
            while !part.is_empty() {
                feed(&mut rewriter, &mut part);
                out.extend_from_slice(&rewriter.take_output());
            }
        }
        rewriter.finish().unwrap();
        out.extend_from_slice(&rewriter.take_output());
        out
    }

    #[track_caller]
    fn check(changes: DocumentRewrite, html: &str, expected: &str) {
        for step in [1, 2, 7, 10_000] {
            let out = String::from_utf8(rewritten(changes, html.as_bytes(), step)).unwrap();
            assert_eq!(out, expected, "{html} by {step}");
        }
    }

    #[test]
    fn the_meta_comes_first_in_the_head() {
        let changes = rewrite(LinkHandling::Keep, TextHandling::Keep);
        for (html, expected) in [
            (
                "<html><head a=b><title>x</title></head>",
                "<html><head a=b>META<title>x</title></head>",
            ),
            (
                "<!doctype html>\n<title>x</title><p>",
                "<!doctype html>\n META<title>x</title><p>",
            ),
            ("<html><body>x", "<html>META<body>x"),
            ("no tags & <!-- <head> -->", "no tags & <!-- <head> -->META"),
            ("", "META"),
            ("<head><p cla", "<head>META<p cla"),
            (
                "<head></head><head></head>",
                "<head>META</head><head></head>",
            ),
        ] {
            check(
                changes,
                html,
                &expected.replace(" META", "META").replace("META", META),
            );
        }
    }

    #[test]
    fn links_lose_their_urls_and_the_rest_stays() {
        let changes = rewrite(LinkHandling::Strip, TextHandling::Keep);
        let html = "<head><link rel=stylesheet href=/s><link rel='next nofollow' href=/2><link rel=icon href=/i>\
                    <meta http-equiv=Refresh content='0;url=/r'></head><body>\
                    <a class=x href='/a' ping=/p>A</a><AREA HREF=/b><form action=/f><img src=/i></form>\
                    <iframe src=/e></iframe><noscript><a href=/n>N</a></noscript><!-- <a href=/c> -->\
                    <script>'<a href=/s>'</script>";
        let expected = "<head>META<link rel=stylesheet href=/s><link rel='next nofollow'><link rel=icon href=/i>\
                        </head><body>\
                        <a class=x>A</a><AREA><form action=/f><img src=/i></form>\
                        <iframe></iframe><!-- <a href=/c> -->\
                        <script>'<a href=/s>'</script>";
        check(changes, html, &expected.replace("META", META));
    }

    #[test]
    fn a_body_of_links_has_no_text() {
        const BEFORE: &str = "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\"><head>\
                              <meta charset=\"utf-8\"/>";
        let html = "<title>secret</title><base href='/b/'><body>secret<a href=\"/a?x=1&amp;y=2\" rel=nofollow>\
                    secret</a><a name=x>secret</a><map><area href='\"<secret>'></map><p>secret";
        let links = "<base href=\"/b/\"/>\n</head><body>\n<a href=\"/a?x=1&amp;y=2\" rel=\"nofollow\"></a>\n\
                     <a href=\"&quot;&lt;secret&gt;\"></a>\n</body></html>\n";
        check(
            rewrite(LinkHandling::Keep, TextHandling::Strip),
            html,
            &format!("{BEFORE}{META}\n{links}"),
        );
        let none = "<base href=\"/b/\"/>\n</head><body></body></html>\n";
        check(
            rewrite(LinkHandling::Strip, TextHandling::Strip),
            html,
            &format!("{BEFORE}{META}\n{none}"),
        );
    }

    #[test]
    fn other_charsets_are_kept_or_sent_as_utf_8() {
        let html = "<p>\u{43d}\u{435}\u{442}";
        let koi = encoding_rs::KOI8_R.encode(html).0.into_owned();
        let mut rewriter = DocumentRewriter::new(
            rewrite(LinkHandling::Keep, TextHandling::Keep),
            ContentCoding::Identity,
            encoding_rs::KOI8_R,
        );
        feed(&mut rewriter, &mut koi.clone().into());
        rewriter.finish().unwrap();
        assert_eq!(rewriter.take_output(), [META.as_bytes(), &koi].concat());
        let wide: Vec<u8> = html.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut rewriter = DocumentRewriter::new(
            rewrite(LinkHandling::Keep, TextHandling::Keep),
            ContentCoding::Identity,
            encoding_rs::UTF_16LE,
        );
        for byte in wide {
            feed(&mut rewriter, &mut vec![byte].into());
        }
        rewriter.finish().unwrap();
        assert_eq!(rewriter.take_output(), format!("{META}{html}"));
    }
}
