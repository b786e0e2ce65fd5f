//! `index: false` and `follow: false` beyond the header: in the document itself.

use super::{DocumentSite, Page, gzip, zlib};

const HTML: &str = "<html><head><title>t</title></head><body><a href='/x'>text</a></body></html>";
const LINKS: &str = "<a href=\"/x\"></a>";

fn site(options: &str) -> DocumentSite {
    DocumentSite::new(options, "  []")
}

#[test]
fn each_enforcement_level_has_its_fields() {
    for (options, tag, body) in [
        ("  follow: false\n", "nofollow", HTML.to_owned()),
        (
            "  follow: false\n  enforce_follow: header\n",
            "nofollow",
            HTML.to_owned(),
        ),
        (
            "  index: false\n  enforce_follow: strip\n",
            "noindex",
            HTML.to_owned(),
        ),
        (
            "  enforce_follow: strip\n  enforce_index: strip\n",
            "",
            HTML.to_owned(),
        ),
        (
            "  follow: false\n  enforce_follow: meta\n",
            "nofollow",
            with_meta("nofollow", HTML),
        ),
        (
            "  follow: false\n  index: false\n  enforce_follow: meta\n  enforce_index: meta\n",
            "noindex, nofollow",
            with_meta("noindex, nofollow", HTML),
        ),
        (
            "  follow: false\n  index: false\n  enforce_index: meta\n",
            "noindex, nofollow",
            with_meta("noindex", HTML),
        ),
        (
            "  follow: false\n  enforce_follow: strip\n",
            "nofollow",
            with_meta("nofollow", &HTML.replace(" href='/x'", "")),
        ),
    ] {
        let site = site(options);
        for step in [1000, 3] {
            let got = site.serve(Page::html(HTML).cut(step));
            assert_eq!(got.text(), body.clone(), "{options}");
            assert_eq!(got.value("x-robots-tag"), tag.to_owned(), "{options}");
        }
        let other = site.serve(Page::of("text/plain", HTML));
        assert_eq!(
            (other.text().as_str(), other.value("content-length")),
            (HTML, HTML.len().to_string())
        );
        let missing = site.serve(Page::html(HTML).status("404 Not Found"));
        assert_eq!(missing.text(), HTML, "{options}");
    }
}

fn with_meta(words: &str, html: &str) -> String {
    html.replace(
        "<head>",
        &format!("<head><meta name=\"robots\" content=\"{words}\"/>"),
    )
}

#[test]
fn a_page_to_be_scanned_only_is_a_body_of_links() {
    let rules = "  - { id: scan, when: { path: /scan }, then: exclude-but-scan, set: { enforce_index: strip } }";
    let site = DocumentSite::new("", rules);
    site.has("/scan", Page::of("text/html; charset=iso-8859-1", HTML));
    let got = site.get("/scan");
    assert!(got.text().contains(LINKS), "{}", got.text());
    assert!(!got.text().contains("text"), "{}", got.text());
    assert!(got.text().contains("content=\"noindex\""), "{}", got.text());
    assert_eq!(got.value("content-type"), "text/html; charset=utf-8");
    site.has("/scan", Page::of("application/pdf", "x"));
    assert_eq!(site.get("/scan").output(), "rule scan 451");
    site.has("/plain", Page::html(HTML));
    assert_eq!(site.get("/plain").text(), HTML);
}

/// `noindex: links`: the page is withheld and its links are given, unless they must not be followed, or there are none.
#[test]
fn a_page_that_is_not_to_be_indexed_still_gives_its_links() {
    let site = site("  noindex: links\n");
    let page = |meta: &str| Page::html(HTML.replace("<title>", &format!("{meta}<title>")));
    let noindex = page("<meta name=robots content='noindex,follow'>");
    let tagged = |page: Page, tag: &str| page.field(&format!("X-Robots-Tag: {tag}"));
    for (page, output) in [
        (noindex.clone(), "links"),
        (tagged(page(""), "noindex"), "links"),
        (page(""), "whole"),
        (page("<meta name=robots content=nofollow>"), "whole"),
        (
            page("<meta name=robots content='noindex, nofollow'>"),
            "noindex",
        ),
        (page("<meta name=robots content=none>"), "noindex"),
        (tagged(noindex.clone(), "nofollow"), "noindex"),
        (tagged(page(""), "noindex, nofollow"), "noindex"),
        (
            tagged(page("<meta name=robots content=nofollow>"), "noindex"),
            "noindex",
        ),
        (
            tagged(Page::of("application/pdf", "x"), "noindex"),
            "noindex",
        ),
        (tagged(Page::of("text/plain", "x"), "noindex"), "noindex"),
        (noindex.clone().status("404 Not Found"), "whole"),
    ] {
        for step in [1000, 7] {
            let got = site.serve(page.clone().cut(step));
            let found = match (got.value("crawl-reason").as_str(), got.text()) {
                ("", text) if text.contains(LINKS) && !text.contains("text</a>") => "links".into(),
                ("", text) if text.contains("text</a>") => "whole".into(),
                (reason, _) => reason.to_owned(),
            };
            assert_eq!(found, output, "{page:?}: {}", got.text());
            if output == "links" {
                assert_eq!(got.value("crawl-tag"), "noindex");
                assert_eq!(got.value("x-robots-tag"), "noindex");
                assert_eq!(got.value("crawl-status"), "REJECTED_ROBOTS_META_NOINDEX");
                assert_eq!(got.value("content-length"), "");
            } else {
                assert_eq!(got.value("crawl-tag"), "", "{page:?}");
            }
        }
    }
    site.has("/head", tagged(page(""), "noindex"));
    let got = site.ask("HEAD", "/head", "");
    assert_eq!(
        (got.status(), got.value("content-length")),
        (200, String::new())
    );
    assert_eq!(got.value("crawl-tag"), "noindex");
    site.has("/head", tagged(page(""), "noindex, nofollow"));
    assert_eq!(site.ask("HEAD", "/head", "").output(), "noindex  451");
}

/// With `follow: false` there is nothing to give.
#[test]
fn a_page_without_links_to_follow_is_refused_as_noindex() {
    let site = site("  noindex: links\n  follow: false\n");
    let page = Page::html("<meta name=robots content=noindex><a href=/x>text</a>");
    assert_eq!(site.serve(page).output(), "noindex  451");
}

/// The recipe for filters on documents: the page is withheld, its links are given, and its own `nofollow` stays.
#[test]
fn a_body_of_links_keeps_the_nofollow_of_its_page() {
    let rules = "  - { id: lists, when: { title: Index of }, then: exclude-but-scan, set: { enforce_index: strip } }
  - { id: parked, when: { body_prefix: for sale }, then: exclude-but-scan, set: { enforce_index: strip } }";
    let site = DocumentSite::new("", rules);
    let page = |meta: &str| {
        Page::html(format!(
            "<head>{meta}<title>Index of x</title></head><body><a href='/x'>text</a>"
        ))
    };
    let got = site.serve(page("")).text();
    assert!(got.contains(LINKS) && !got.contains("text"), "{got}");
    assert!(!got.contains("nofollow"), "{got}");
    for (meta, kept) in [
        ("<meta name=robots content='NoFollow'>", "robots"),
        ("<meta name=Robots content='noarchive, none'>", "Robots"),
        ("<meta name=newsbot content='x,nofollow'>", "newsbot"),
    ] {
        let got = site.serve(page(meta)).text();
        let expected = format!("<meta name=\"{kept}\" content=\"nofollow\"/>");
        assert!(got.contains(&expected), "{meta}: {got}");
        assert!(!got.contains("text"), "{got}");
    }
    // Of other types there are no links to scan for.
    let text = Page::of("text/plain", "it is for sale");
    assert_eq!(site.serve(text).output(), "rule parked 451");
    let other = site
        .serve(page("<meta name='a b' content=nofollow>"))
        .text();
    assert!(!other.contains("nofollow"), "{other}");
}

#[test]
fn a_changed_body_loses_the_fields_of_the_original() {
    let site = site("  follow: false\n  enforce_follow: strip\n");
    for (coding, body) in [
        ("gzip", gzip(HTML.as_bytes())),
        ("deflate", zlib(HTML.as_bytes())),
    ] {
        let mut page = Page::of("text/html; charset=utf-8", &body);
        for field in [
            "ETag: \"x\"",
            "Content-MD5: x",
            "Digest: x",
            "Content-Digest: x",
            "Repr-Digest: x",
            "Accept-Ranges: bytes",
            "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
            "X-Robots-Tag: noarchive",
        ] {
            page = page.field(field);
        }
        let page = page.field(&format!("Content-Encoding: {coding}"));
        site.has("/page", page);
        for method in ["GET", "HEAD"] {
            let got = site.ask(method, "/page", "");
            for gone in [
                "content-length",
                "content-encoding",
                "content-md5",
                "digest",
                "content-digest",
                "accept-ranges",
            ] {
                assert_eq!(got.value(gone), "", "{gone} of {method}");
            }
            assert_eq!(
                (got.value("etag"), got.value("x-robots-tag")),
                ("W/\"x\"".into(), "nofollow, noarchive".into())
            );
            assert_ne!(got.value("last-modified"), "");
        }
        let expected = with_meta("nofollow", &HTML.replace(" href='/x'", ""));
        assert_eq!(site.get("/page").text(), expected);
    }
}

#[test]
fn a_document_to_be_stripped_is_requested_without_ranges() {
    let fields = "Range: bytes=5-9\r\nIf-Range: \"x\"\r\nAccept-Encoding: br\r\n";
    for (options, whole) in [
        ("  follow: false\n  enforce_follow: strip\n", true),
        ("  follow: false\n", false),
    ] {
        let site = site(options);
        site.has("/page", Page::html(HTML));
        site.ask("GET", "/page", fields);
        let head = site.heads().concat().to_lowercase();
        assert_eq!(head.contains("range:"), !whole, "{head}");
        assert_eq!(head.contains("accept-encoding: br"), !whole, "{head}");
    }
}

#[test]
fn an_unstrippable_document_is_not_delivered() {
    let strict = site("  follow: false\n  enforce_follow: strip\n");
    let mild = site("  follow: false\n  enforce_follow: meta\n");
    fn packed() -> Page {
        Page::of("text/html", "what br looks like").field("Content-Encoding: br")
    }
    fn part() -> Page {
        Page::html("text<a href=/x>")
            .status("206 Partial Content")
            .field("Content-Range: bytes 9-20/99")
    }
    for page in [packed(), part()] {
        assert_eq!(
            strict.serve(page.clone()).output(),
            "upstream_protocol  502",
            "{page:?}"
        );
        let body = page.pieces.concat();
        let got = mild.serve(page.clone());
        assert_eq!(got.body(), Some(body), "{page:?}");
        assert_eq!(got.value("x-robots-tag"), "nofollow", "{page:?}");
    }
    // The link is found after the head has been sent: the body is cut.
    let mut broken = gzip(&HTML.repeat(3000).into_bytes());
    let middle = broken.len() / 2;
    broken[middle..].fill(0xff);
    for page in [
        Page::of("text/html; charset=utf-8", &broken)
            .field("Content-Encoding: gzip")
            .cut(100),
        Page::of("text/html; charset=utf-8", &broken[..middle]).field("Content-Encoding: gzip"),
    ] {
        assert_eq!(strict.serve(page).body(), None);
    }
}

#[test]
fn documents_are_evaluated_as_the_origin_sent_them() {
    let options = "  index: false\n  enforce_index: meta\n  noindex: reject\n";
    let site = site(options);
    assert_eq!(
        site.serve(Page::html(HTML)).text(),
        with_meta("noindex", HTML)
    );
    assert_eq!(
        site.serve(Page::html("<meta name=robots content=noindex>"))
            .output(),
        "noindex  451"
    );
    // An option that a rule of the document stage sets.
    let rules =
        "  - { id: draft, when: { title: draft }, set: { follow: false, enforce_follow: strip } }";
    let site = DocumentSite::new("", rules);
    assert_eq!(site.serve(Page::html(HTML)).text(), HTML);
    let html = HTML.replace("<title>t", "<title>draft");
    let expected = with_meta("nofollow", &html.replace(" href='/x'", ""));
    let got = site.serve(Page::html(&html).cut(7));
    assert_eq!(
        (got.text(), got.value("x-robots-tag")),
        (expected, "nofollow".into())
    );
}

#[test]
fn a_wide_document_comes_as_utf_8() {
    let site = site("  follow: false\n  enforce_follow: strip\n");
    let wide: Vec<u8> = [0xfeff]
        .into_iter()
        .chain(HTML.encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    let got = site.serve(Page::html(&wide).cut(9));
    assert_eq!(got.value("content-type"), "text/html; charset=utf-8");
    assert_eq!(
        got.text(),
        with_meta("nofollow", &HTML.replace(" href='/x'", ""))
    );
}
