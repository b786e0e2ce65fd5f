//! Extracts the title, the robots directives and the canonical URL from the head of an HTML
//! document.
//!
//! The tokenizer is lol_html's, so text that only looks like a tag, in scripts, comments, styles or
//! `<noscript>`, is not taken for one. The head ends as in the HTML standard: at its end tag, at
//! `<body>`, or at the first element that cannot be in it. Elements after the head or inside a
//! `<template>` are ignored.

use std::sync::Arc;

use encoding_rs::Encoding;
use lol_html::html_content::TextChunk;
use lol_html::send::{Element, ElementContentHandlers, HtmlRewriter, Settings};
use lol_html::{AsciiCompatibleEncoding, MemorySettings};
use parking_lot::Mutex;

use super::entities::decode_references;

/// The memory limit of the tokenizer, which bounds the size of a tag.
const MAX_MEMORY: usize = 256 * 1024;
/// The maximum number of bytes of the title, and of the robots directives, that are stored.
const MAX_TEXT: usize = 8 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HtmlHeadContents {
    /// The first title, with white space collapsed.
    pub(super) title: String,
    /// The contents of `<meta name="robots">` and of those under the agent's own name, joined by
    /// `", "`.
    pub(super) robots: Option<String>,
    /// The `href` of the first `<link rel="canonical">`, as written.
    pub(super) canonical: Option<String>,
    /// The `href` of the first `<base>`, as written.
    pub(super) base: Option<String>,
}

/// The sink for the tokenizer's output.
type DiscardSink = fn(&[u8]);

/// Scans a head while it arrives.
pub(super) struct HtmlHeadScanner {
    rewriter: Option<HtmlRewriter<'static, DiscardSink>>,
    state: Arc<Mutex<HtmlHeadState>>,
}

impl std::fmt::Debug for HtmlHeadScanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HtmlHeadScanner")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct HtmlHeadState {
    contents: HtmlHeadContents,
    title: TitleState,
    phase: HtmlHeadPhase,
    templates: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TitleState {
    #[default]
    None,
    Within,
    Read,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HtmlHeadPhase {
    #[default]
    Open,
    Over,
}

impl HtmlHeadScanner {
    /// Creates a scanner for a crawler with this product token. `encoding` must be
    /// ASCII-compatible.
    pub(super) fn new(encoding: &'static Encoding, agent: &str) -> Self {
        let state: Arc<Mutex<HtmlHeadState>> = Arc::default();
        let element_state = Arc::clone(&state);
        let text_state = Arc::clone(&state);
        let agent = agent.to_owned();
        let elements =
            ElementContentHandlers::default().element(move |element: &mut Element<'_, '_>| {
                visit_element(&element_state, element, &agent);
                Ok(())
            });
        let titles = ElementContentHandlers::default().text(move |text: &mut TextChunk<'_>| {
            text_state.lock().visit_text(text);
            Ok(())
        });
        let rewriter = "*"
            .parse()
            .ok()
            .zip("title".parse().ok())
            .map(|(all, title)| {
                let settings = Settings::new_send()
                    .with_encoding(to_ascii_compatible(encoding))
                    .with_strict(false)
                    .with_memory_settings(
                        MemorySettings::new().with_max_allowed_memory_usage(MAX_MEMORY),
                    )
                    .append_element_content_handler((std::borrow::Cow::Owned(all), elements))
                    .append_element_content_handler((std::borrow::Cow::Owned(title), titles));
                HtmlRewriter::new(settings, discard as DiscardSink)
            });
        Self { rewriter, state }
    }

    /// Scans the next bytes. If the tokenizer fails, the head ends there.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let failed = self
            .rewriter
            .as_mut()
            .is_none_or(|rewriter| rewriter.write(bytes).is_err());
        if failed {
            self.rewriter = None;
            self.state.lock().phase = HtmlHeadPhase::Over;
        }
    }

    /// Returns `true` if the head has ended.
    pub(super) fn is_over(&self) -> bool {
        self.state.lock().phase == HtmlHeadPhase::Over
    }

    /// Returns the contents of the head, as far as it was scanned.
    pub(super) fn into_contents(self) -> HtmlHeadContents {
        let mut contents = std::mem::take(&mut self.state.lock().contents);
        contents.title = decode_references(&contents.title)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        contents
    }
}

/// Returns the encoding in the tokenizer's type.
pub(super) fn to_ascii_compatible(encoding: &'static Encoding) -> AsciiCompatibleEncoding {
    AsciiCompatibleEncoding::new(encoding).unwrap_or_else(AsciiCompatibleEncoding::utf_8)
}

fn discard(_: &[u8]) {}

fn visit_element(shared: &Arc<Mutex<HtmlHeadState>>, element: &mut Element<'_, '_>, agent: &str) {
    let mut state = shared.lock();
    if state.phase == HtmlHeadPhase::Over {
        return;
    }
    let name = element.tag_name();
    if name == "template" {
        state.enter_template(shared, element);
    }
    if state.templates > 0 {
        return;
    }
    match name.as_str() {
        "head" => on_end_tag(shared, element, |state| state.phase = HtmlHeadPhase::Over),
        "title" if state.title == TitleState::None => state.title = TitleState::Within,
        "meta" => state.visit_meta(element, agent),
        "link" => state.visit_link(element),
        "base" if state.contents.base.is_none() => state.contents.base = attribute(element, "href"),
        other if belongs_in_head(other) => {}
        _ => state.phase = HtmlHeadPhase::Over,
    }
}

/// Returns `true` for the elements that do not end a head (HTML, section 13.2.6.4.4).
fn belongs_in_head(name: &str) -> bool {
    const NAMES: [&str; 10] = [
        "html", "title", "base", "script", "style", "noscript", "template", "basefont", "bgsound",
        "noframes",
    ];
    NAMES.contains(&name)
}

/// Runs `then` at the end tag of an element that has one.
fn on_end_tag(
    shared: &Arc<Mutex<HtmlHeadState>>,
    element: &mut Element<'_, '_>,
    then: fn(&mut HtmlHeadState),
) {
    let shared = Arc::clone(shared);
    if let Some(handlers) = element.end_tag_handlers() {
        handlers.push(Box::new(move |_| {
            then(&mut shared.lock());
            Ok(())
        }));
    }
}

fn attribute(element: &Element<'_, '_>, name: &str) -> Option<String> {
    element
        .get_attribute(name)
        .map(|value| decode_references(&value).trim().to_owned())
        .filter(|v| !v.is_empty())
}

impl HtmlHeadState {
    fn enter_template(&mut self, shared: &Arc<Mutex<Self>>, element: &mut Element<'_, '_>) {
        if element.can_have_content() {
            self.templates += 1;
            on_end_tag(shared, element, |state| {
                state.templates = state.templates.saturating_sub(1)
            });
        }
    }

    fn visit_meta(&mut self, element: &Element<'_, '_>, agent: &str) {
        let Some(name) = attribute(element, "name") else {
            return;
        };
        let applies = name.eq_ignore_ascii_case("robots") || name.eq_ignore_ascii_case(agent);
        let Some(content) = attribute(element, "content").filter(|_| applies) else {
            return;
        };
        let words = self.contents.robots.get_or_insert_default();
        if words.len() + content.len() <= MAX_TEXT {
            if !words.is_empty() {
                words.push_str(", ");
            }
            words.push_str(&content);
        }
    }

    fn visit_link(&mut self, element: &Element<'_, '_>) {
        let canonical = attribute(element, "rel").is_some_and(|rel| {
            rel.split_ascii_whitespace()
                .any(|word| word.eq_ignore_ascii_case("canonical"))
        });
        if canonical && self.contents.canonical.is_none() {
            self.contents.canonical = attribute(element, "href");
        }
    }

    fn visit_text(&mut self, text: &TextChunk<'_>) {
        if self.title != TitleState::Within {
            return;
        }
        let room = MAX_TEXT.saturating_sub(self.contents.title.len());
        self.contents.title.extend(text.as_str().chars().take(room));
        if text.last_in_text_node() {
            self.title = TitleState::Read;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(html: &str, step: usize) -> HtmlHeadContents {
        let mut scanner = HtmlHeadScanner::new(encoding_rs::UTF_8, "NewsBot");
        html.as_bytes()
            .chunks(step)
            .for_each(|part| scanner.feed(part));
        scanner.into_contents()
    }

    #[track_caller]
    fn check(html: &str, title: &str, robots: Option<&str>, canonical: Option<&str>) {
        for step in [1, 2, 5, 1000] {
            let scanned = scanned(html, step);
            assert_eq!(scanned.title, title, "{html} by {step}");
            assert_eq!(scanned.robots.as_deref(), robots, "{html} by {step}");
            assert_eq!(scanned.canonical.as_deref(), canonical, "{html} by {step}");
        }
    }

    #[test]
    fn a_head_is_scanned_however_it_is_split() {
        check(
            "<!doctype html><html><head><title>\n 404 &ndash; not\n found</title>\
             <META NAME=Robots content='noindex'><link rel='x Canonical' href='/c?a=1&amp;b=2'></head><body>",
            "404 \u{2013} not found",
            Some("noindex"),
            Some("/c?a=1&b=2"),
        );
        check("<title>a</title><title>b</title>", "a", None, None);
        check("<title>unclosed <b>", "unclosed <b>", None, None);
        check("no tags at all", "", None, None);
    }

    #[test]
    fn metas_for_all_crawlers_and_for_this_one_are_joined() {
        check(
            "<meta name=robots content=nofollow><meta name=otherbot content=none>\
             <meta name=newsbot content=noindex><meta content=x><meta name=robots>",
            "",
            Some("nofollow, noindex"),
            None,
        );
    }

    #[test]
    fn other_text_is_not_taken_for_a_meta_of_the_head() {
        const META: &str = "<meta name=robots content=noindex>";
        for html in [
            format!("<head></head>{META}"),
            format!("<body>{META}"),
            format!("<p>{META}"),
            format!("<head><!-- {META} -->"),
            format!("<head><script>'{META}'</script>"),
            format!("<head><style>{META}</style>"),
            format!("<head><noscript>{META}</noscript>"),
            format!("<head><title>{META}</title>").replace("name", "nome"),
            format!("<head><template><div>{META}</div></template>"),
            format!("<svg><![CDATA[ {META} ]]></svg>"),
            "<meta property=robots content=noindex>".to_owned(),
        ] {
            for step in [1, 3, 1000] {
                assert_eq!(scanned(&html, step).robots, None, "{html} by {step}");
            }
        }
        for html in [
            format!("<head><template><div></div></template>{META}"),
            format!("<head><script>if (a < b) {{}}</script><noscript><img src=x></noscript>{META}"),
            format!("<html><meta charset=utf-8>{META}"),
        ] {
            assert_eq!(
                scanned(&html, 1).robots.as_deref(),
                Some("noindex"),
                "{html}"
            );
        }
    }

    #[test]
    fn the_end_of_the_head_is_recognized() {
        for (html, over) in [
            ("<head><title>x</title>", false),
            ("<head><title>x</title></head>", true),
            ("<title>x</title><p>", true),
            ("<title>x</title><body class=y", false),
            ("<title>x</title><body class=y>", true),
        ] {
            let mut scanner = HtmlHeadScanner::new(encoding_rs::UTF_8, "x");
            scanner.feed(html.as_bytes());
            assert_eq!(scanner.is_over(), over, "{html}");
        }
        let mut scanner = HtmlHeadScanner::new(encoding_rs::UTF_8, "x");
        scanner.feed(
            format!(
                "<meta name=robots content=noindex><meta x='{}",
                "y".repeat(MAX_MEMORY)
            )
            .as_bytes(),
        );
        assert!(scanner.is_over(), "a tag without an end");
        assert_eq!(scanner.into_contents().robots.as_deref(), Some("noindex"));
    }
}
