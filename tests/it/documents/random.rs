//! Random bytes that look like HTML: no panic, delivered documents are unchanged, and stripped ones have no link.

use fastrand::Rng;

use super::{DocumentSite, Page, bare, gzip, zlib};

const PIECES: [&str; 34] = [
    "<html>",
    "<head>",
    "</head>",
    "<body",
    ">",
    "<title>",
    "</title>",
    "<meta name=robots content=",
    "noindex",
    "<a href=/x>",
    "<a href='",
    "\"",
    "'",
    "<!--",
    "-->",
    "<script>",
    "</script>",
    "<style>",
    "</style>",
    "<svg>",
    "<![CDATA[",
    "]]>",
    "<template>",
    "</template>",
    "<noscript>",
    "<plaintext>",
    "<textarea>",
    "&amp;",
    "&#x",
    "<base href=/b/>",
    "<link rel=canonical href=c>",
    "\0",
    "\u{e4}",
    " text ",
];

fn html(rng: &mut Rng) -> Vec<u8> {
    let mut html = Vec::new();
    for _ in 0..rng.usize(..60) {
        if rng.u8(..12) == 0 {
            html.extend((0..rng.usize(..20)).map(|_| rng.u8(..)));
        } else {
            html.extend_from_slice(PIECES[rng.usize(..PIECES.len())].as_bytes());
        }
    }
    html
}

fn page(rng: &mut Rng, html: &[u8]) -> Page {
    let (body, coding) = match rng.u8(..6) {
        0 => (gzip(html), "gzip"),
        1 => (zlib(html), "deflate"),
        2 => (bare(html), "deflate"),
        3 => (html.to_vec(), "gzip"),
        _ => (html.to_vec(), "identity"),
    };
    let page = Page::html(&body).field(&format!("Content-Encoding: {coding}"));
    let page = if rng.bool() {
        page.split(rng.usize(..=body.len()))
    } else {
        page
    };
    if rng.bool() { page.chunked() } else { page }
}

#[test]
fn random_documents_pass_untouched() {
    let rules = "  - { id: a, forbid: { title: never this } }\n  - { id: b, forbid: { body_prefix: never this } }";
    let site = DocumentSite::new("  noindex: tag\n  noncanonical: tag\n", rules);
    let mut rng = Rng::with_seed(11);
    for _ in 0..150 {
        let html = html(&mut rng);
        let page = page(&mut rng, &html);
        let chunked = page.fields.contains("chunked");
        let got = site.serve(page.clone());
        let sent = page.pieces.concat();
        assert_eq!(got.status(), 200, "{} of {page:?}", got.head());
        let body = got.body().expect("a whole body");
        if chunked {
            assert!(body.len() < sent.len());
        } else {
            assert_eq!(body, sent, "{page:?}");
        }
    }
    assert_eq!(site.gate.counter("crawlgate_panics_total"), 0);
}

#[test]
fn random_documents_are_stripped_or_broken_off() {
    let text = DocumentSite::new("  index: false\n  enforce_index: strip\n", "  []");
    let links = DocumentSite::new("  follow: false\n  enforce_follow: strip\n", "  []");
    let mut rng = Rng::with_seed(12);
    for _ in 0..100 {
        let html = html(&mut rng);
        let page = page(&mut rng, &html);
        let got = text.serve(page.clone());
        if let Some(body) = got.body().filter(|_| got.status() == 200) {
            let body = String::from_utf8(body).unwrap();
            // Addresses may contain anything; there is nothing between them.
            let around: String = body.split('"').step_by(2).collect();
            assert!(!around.contains("text"), "{body} of {page:?}");
            assert!(body.ends_with("</body></html>\n"), "{body} of {page:?}");
        }
        let _ = links.serve(page).body();
    }
    for site in [text, links] {
        assert_eq!(site.gate.counter("crawlgate_panics_total"), 0);
    }
}
