//! A document that is changed while it streams: decoded, rewritten, and sent in no coding.
//!
//! What is injected is `<meta name="robots">`, before anything else that the head says. Links are stripped by taking their
//! addresses away, so that the page still looks as it did; what a crawler without scripts would read as links and the
//! tokenizer takes for text (`<noscript>`, `<noframes>`) is taken out whole. A body of links only is written anew: nothing
//! of the document comes into it but the addresses of its links and its `<base>`. Forms and scripts are left alone.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use encoding_rs::Encoding;
use lol_html::html_content::{ContentType, DocumentEnd};
use lol_html::send::{
    DocumentContentHandlers, Element, ElementContentHandlers, HtmlRewriter, Settings,
};
use lol_html::{MemorySettings, OutputSink};

use crate::pipeline::document_rewrite::{DocumentRewrite, LinkHandling, TextHandling};
use crate::proxy::robots_tag::directives;

use super::coding::{ContentCoding, ContentDecoder};
use super::html_head::to_ascii_compatible;
use super::prefix::transcode;

/// Memory of the rewriter: what a single tag may have, and the elements that are open; a page that ends none of its list
/// items has many.
const MAX_MEMORY: usize = 16 * 1024 * 1024;
/// Bytes that a document may have, unpacked: more is no document, but a trap for whoever unpacks it.
const MAX_DECODED: usize = 64 << 20;
/// Bytes that go in at once: packed a thousand to one, they come out as one MiB.
const FEED_SIZE: usize = 1024;

/// The document cannot be changed to its end: its coding is broken, it has a tag that is too large, or too much comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RewriteError;

/// A document on its way.
pub(super) struct DocumentRewriter {
    decoder: ContentDecoder,
    /// Bytes that may still come out of it.
    remaining: usize,
    transcoder: Option<Box<encoding_rs::Decoder>>,
    state: RewriteState,
    output: OutputBuffer,
}

enum RewriteState {
    Html(Box<HtmlRewriter<'static, RewriterSink>>, RewriteUntil),
    /// All that had to be changed is.
    Done,
    Closed,
}

/// How long the document has to be looked at.
enum RewriteUntil {
    /// Once this is set.
    FlagSet(Arc<AtomicBool>),
    End,
}

#[derive(Clone, Debug, Default)]
struct OutputBuffer(Arc<Mutex<Vec<u8>>>);

impl OutputBuffer {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push_str(&self, text: &str) {
        self.lock().extend_from_slice(text.as_bytes());
    }
}

/// Where what the rewriter lets through goes.
enum RewriterSink {
    Buffer(OutputBuffer),
    Discard,
}

impl OutputSink for RewriterSink {
    fn handle_chunk(&mut self, chunk: &[u8]) {
        match self {
            Self::Buffer(out) => out.lock().extend_from_slice(chunk),
            Self::Discard => {}
        }
    }
}

impl std::fmt::Debug for DocumentRewriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Change")
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
        let readable = encoding.is_ascii_compatible();
        let transcoder = (!readable).then(|| Box::new(encoding.new_decoder()));
        let encoding = if readable {
            encoding
        } else {
            encoding_rs::UTF_8
        };
        let out = OutputBuffer::default();
        let rewriting = match changes.text {
            TextHandling::Keep => edit_document(changes, encoding, &out),
            TextHandling::Strip => extract_links(changes, encoding, &out),
        };
        let rewriting = rewriting.unwrap_or(RewriteState::Closed);
        Self {
            decoder: ContentDecoder::new(coding),
            remaining: MAX_DECODED,
            transcoder,
            state: rewriting,
            output: out,
        }
    }

    /// Takes some of the next bytes away.
    pub(super) fn feed(&mut self, bytes: &mut Bytes) -> Result<(), RewriteError> {
        let part = bytes.split_to(bytes.len().min(FEED_SIZE));
        let (transcoder, rewriting, out) = (&mut self.transcoder, &mut self.state, &self.output);
        let (mut failed, left) = (Ok(()), &mut self.remaining);
        let fed = self.decoder.feed(&part, &mut |bytes| {
            let Some(rest) = left.checked_sub(bytes.len()) else {
                failed = Err(RewriteError);
                return ControlFlow::Break(());
            };
            *left = rest;
            let text = transcoder
                .as_mut()
                .map(|transcoder| transcode(transcoder, bytes));
            let bytes = text.as_ref().map_or(bytes, String::as_bytes);
            failed = failed.and(rewriting.write(bytes, out));
            if failed.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        fed.map_err(|_| RewriteError).and(failed)
    }

    /// The last byte has come.
    pub(super) fn finish(&mut self) -> Result<(), RewriteError> {
        if !self.decoder.may_end() {
            return Err(RewriteError);
        }
        match std::mem::replace(&mut self.state, RewriteState::Closed) {
            RewriteState::Html(rewriter, _) => rewriter.end().map_err(|_| RewriteError),
            RewriteState::Done | RewriteState::Closed => Ok(()),
        }
    }

    /// What has come out.
    pub(super) fn take_output(&mut self) -> Bytes {
        std::mem::take(&mut *self.output.lock()).into()
    }
}

impl RewriteState {
    fn write(&mut self, bytes: &[u8], out: &OutputBuffer) -> Result<(), RewriteError> {
        let done = match self {
            Self::Html(rewriter, until) => {
                rewriter.write(bytes).map_err(|_| RewriteError)?;
                matches!(until, RewriteUntil::FlagSet(done) if done.load(Relaxed))
            }
            Self::Done => {
                out.lock().extend_from_slice(bytes);
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

/// The document with more in it, and perhaps without where its links lead.
fn edit_document(
    changes: DocumentRewrite,
    encoding: &'static Encoding,
    out: &OutputBuffer,
) -> Option<RewriteState> {
    let said = Arc::new(AtomicBool::new(false));
    let (of_elements, of_end) = (Arc::clone(&said), Arc::clone(&said));
    let (meta_of_elements, meta_of_end) = (robots_meta(changes), robots_meta(changes));
    let elements =
        ElementContentHandlers::default().element(move |element: &mut Element<'_, '_>| {
            if !of_elements.load(Relaxed) {
                inject_meta(element, &meta_of_elements, &of_elements);
            }
            if changes.links == LinkHandling::Strip {
                strip_links(element);
            }
            Ok(())
        });
    let end = DocumentContentHandlers::default().end(move |end: &mut DocumentEnd<'_>| {
        if !of_end.swap(true, Relaxed) {
            end.append(&meta_of_end, ContentType::Html);
        }
        Ok(())
    });
    let settings = rewriter_settings(encoding)
        .append_element_content_handler((Cow::Owned("*".parse().ok()?), elements))
        .append_document_content_handler(end);
    let until = match changes.links {
        LinkHandling::Keep => RewriteUntil::FlagSet(said),
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

/// Says it before anything else that the head says. A head without a tag of its own begins with its first element.
fn inject_meta(element: &mut Element<'_, '_>, meta: &str, injected: &AtomicBool) {
    match element.tag_name().as_str() {
        "html" => return,
        "head" if element.can_have_content() => element.prepend(meta, ContentType::Html),
        _ => element.before(meta, ContentType::Html),
    }
    injected.store(true, Relaxed);
}

/// Takes away where an element leads.
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

/// What a page needs to be shown, and what it says of itself, stays; every other relation leads to another page.
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

/// A document of links and nothing else.
fn extract_links(
    changes: DocumentRewrite,
    encoding: &'static Encoding,
    out: &OutputBuffer,
) -> Option<RewriteState> {
    out.push_str(&format!(
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\"><head><meta charset=\"utf-8\"/>{}\n",
        robots_meta(changes)
    ));
    let (links, ends) = (out.clone(), out.clone());
    let body = Arc::new(AtomicBool::new(false));
    let began = Arc::clone(&body);
    let elements =
        ElementContentHandlers::default().element(move |element: &mut Element<'_, '_>| {
            write_link(element, changes, &links, &body);
            Ok(())
        });
    let end = DocumentContentHandlers::default().end(move |_: &mut DocumentEnd<'_>| {
        ends.push_str(if began.load(Relaxed) {
            "</body></html>\n"
        } else {
            "</head><body></body></html>\n"
        });
        Ok(())
    });
    let settings = rewriter_settings(encoding)
        .append_element_content_handler((Cow::Owned("a, area, base".parse().ok()?), elements))
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
    body: &AtomicBool,
) {
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
    if !body.swap(true, Relaxed) {
        out.push_str("</head><body>\n");
    }
    let rel = element
        .get_attribute("rel")
        .map_or_else(String::new, |rel| {
            format!(" rel=\"{}\"", escape_attribute(&rel))
        });
    out.push_str(&format!("<a href=\"{href}\"{rel}></a>\n"));
}

/// As it stands between double quotes. Its references stay as they were written.
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

    fn of(links: LinkHandling, text: TextHandling) -> DocumentRewrite {
        DocumentRewrite {
            robots_meta: RobotsTag::NoIndex,
            links,
            text,
        }
    }

    fn changed(changes: DocumentRewrite, html: &[u8], step: usize) -> Vec<u8> {
        let mut change =
            DocumentRewriter::new(changes, ContentCoding::Identity, encoding_rs::UTF_8);
        let mut out = Vec::new();
        for part in html.chunks(step) {
            let mut part = Bytes::copy_from_slice(part);
            while !part.is_empty() {
                change.feed(&mut part).unwrap();
                out.extend_from_slice(&change.take_output());
            }
        }
        change.finish().unwrap();
        out.extend_from_slice(&change.take_output());
        out
    }

    #[track_caller]
    fn check(changes: DocumentRewrite, html: &str, expected: &str) {
        for step in [1, 2, 7, 10_000] {
            let out = String::from_utf8(changed(changes, html.as_bytes(), step)).unwrap();
            assert_eq!(out, expected, "{html} by {step}");
        }
    }

    #[test]
    fn the_meta_comes_first_in_the_head() {
        let changes = of(LinkHandling::Keep, TextHandling::Keep);
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
    fn links_lead_nowhere_and_the_rest_stays() {
        let changes = of(LinkHandling::Strip, TextHandling::Keep);
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
            of(LinkHandling::Keep, TextHandling::Strip),
            html,
            &format!("{BEFORE}{META}\n{links}"),
        );
        let none = "<base href=\"/b/\"/>\n</head><body></body></html>\n";
        check(
            of(LinkHandling::Strip, TextHandling::Strip),
            html,
            &format!("{BEFORE}{META}\n{none}"),
        );
    }

    #[test]
    fn other_charsets_come_through() {
        let html = "<p>\u{43d}\u{435}\u{442}";
        let koi = encoding_rs::KOI8_R.encode(html).0.into_owned();
        let mut change = DocumentRewriter::new(
            of(LinkHandling::Keep, TextHandling::Keep),
            ContentCoding::Identity,
            encoding_rs::KOI8_R,
        );
        change.feed(&mut koi.clone().into()).unwrap();
        change.finish().unwrap();
        assert_eq!(change.take_output(), [META.as_bytes(), &koi].concat());
        let wide: Vec<u8> = html.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut change = DocumentRewriter::new(
            of(LinkHandling::Keep, TextHandling::Keep),
            ContentCoding::Identity,
            encoding_rs::UTF_16LE,
        );
        for byte in wide {
            change.feed(&mut vec![byte].into()).unwrap();
        }
        change.finish().unwrap();
        assert_eq!(change.take_output(), format!("{META}{html}"));
    }
}
