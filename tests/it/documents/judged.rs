//! Decisions by documents: soft errors, canonical URLs, robots directives, text; refusals or tags only.

use super::{DocumentSite, Page, gzip};

const CHECKS: &str = "  noindex: reject\n  noncanonical: reject\n";
const RULES: &str = "  - { id: soft, forbid: { title: not found }, as: 404 }
  - { id: gone, forbid: { title: gone away }, as: 410 }
  - { id: text, forbid: { body_prefix: { contains: out of stock } }, log: true }
  - { id: words, when: { path: /quiet }, rules: [{ id: quiet, stage: document, forbid: { always: true } }] }";

#[test]
fn documents_are_refused_in_the_order_of_the_reasons() {
    let site = DocumentSite::new(CHECKS, RULES);
    fn title(title: &str) -> String {
        format!("<head><title>{title}</title>")
    }
    const NOINDEX: &str = "<meta name=robots content='noindex, follow'>";
    const OTHER: &str = "<link rel=canonical href='/other'>";
    for (html, output) in [
        (title("fine"), "passed 200"),
        (title("Page not found"), "soft_error soft 404"),
        (title("gone away"), "soft_error gone 410"),
        (title("not found") + NOINDEX + OTHER, "soft_error soft 404"),
        (title("fine") + NOINDEX + OTHER, "noncanonical  451"),
        (
            title("fine") + NOINDEX + "</head>out of stock",
            "noindex  451",
        ),
        (title("fine") + "</head>now out of stock", "rule text 451"),
        (
            title("fine") + "<link rel=canonical href=page>",
            "passed 200",
        ),
        (
            title("fine") + "<base href='/x/'><link rel=canonical href=page>",
            "noncanonical  451",
        ),
        (
            title("fine") + "<base href='/'><link rel=canonical href='page#part'>",
            "passed 200",
        ),
    ] {
        let got = site.serve(Page::html(&html));
        assert_eq!(got.output(), output, "{html}");
        assert_eq!(
            got.value("crawl-status").starts_with("REJECTED"),
            !output.starts_with("passed"),
            "{html}"
        );
        if output.starts_with("passed") {
            assert_eq!(got.text(), html);
        } else {
            assert!(!got.text().contains("fine"), "{}", got.text());
        }
    }
    site.has("/quiet", Page::of("text/plain", "x"));
    assert_eq!(site.get("/quiet").output(), "rule quiet 451");
    site.has("/quiet", Page::of("image/png", "x"));
    assert_eq!(site.get("/quiet").output(), "passed 200");
    let lines = site.gate.decisions(12);
    let soft = &lines[1];
    assert_eq!(
        (&soft["stage"], &soft["reason"], &soft["rule"]),
        (&"document".into(), &"soft_error".into(), &"soft".into())
    );
    fn counted(site: &DocumentSite, name: &str) -> u64 {
        site.gate.counter(name)
    }
    assert_eq!(
        counted(
            &site,
            "crawlgate_rule_decided_total{mode=\"enforce\",rule=\"soft\",verdict=\"reject\"}"
        ),
        2
    );
    assert_eq!(
        counted(&site, "crawlgate_documents_total{outcome=\"read\"}"),
        11
    );
}

#[test]
fn words_for_one_crawler_are_for_it_alone() {
    let site = DocumentSite::new(CHECKS, "  []");
    let html = "<meta name=newsbot content=noindex>";
    site.has("/page", Page::html(html));
    fn asked(site: &DocumentSite, agent: &str) -> String {
        site.ask("GET", "/page", &format!("User-Agent: {agent}\r\n"))
            .output()
    }
    assert_eq!(asked(&site, "NewsBot/2.0 (+x)"), "noindex  451");
    assert_eq!(asked(&site, "OtherBot/1"), "passed 200");
}

#[test]
fn tagged_documents_are_delivered_with_their_tag() {
    let site = DocumentSite::new("  noindex: tag\n  noncanonical: tag\n", "  []");
    let other = format!("http://a.test:{}/other?a=1,2", site.origin.port);
    let noindex = "<meta name=robots content=none>";
    let link = "<link rel=canonical href='/other?a=1,2'>";
    for (page, tags) in [
        (Page::html("<p>"), String::new()),
        (Page::html(noindex), "noindex".into()),
        (Page::html(link), format!("noncanonical; of={other}")),
        (
            Page::html(format!("{noindex}{link}")),
            format!("noindex | noncanonical; of={other}"),
        ),
        (
            Page::of("image/png", "x").field("X-Robots-Tag: noindex"),
            "noindex".into(),
        ),
        (
            Page::of("image/png", "x").field("Link: </other?a=1,2>; rel=canonical"),
            format!("noncanonical; of={other}"),
        ),
        (Page::html(noindex).status("404 Not Found"), String::new()),
        (Page::html("x").field("Crawl-Tag: forged"), String::new()),
    ] {
        let body = page.pieces.concat();
        let got = site.serve(page.clone());
        assert_eq!(got.value("crawl-tag"), tags, "{page:?}");
        assert_eq!(got.body(), Some(body), "{page:?}");
    }
}

#[test]
fn shadow_rules_evaluate_documents_without_effect() {
    let rules = "  - { id: try, mode: shadow, forbid: { title: draft } }\n  - { id: live, forbid: { ext: gif } }";
    let site = DocumentSite::new("", rules);
    assert_eq!(
        site.serve(Page::html("<title>draft</title>")).output(),
        "passed 200"
    );
    assert_eq!(
        site.serve(Page::html("<title>done</title>")).output(),
        "passed 200"
    );
    let lines = site.gate.decisions(2);
    assert_eq!(lines[0]["verdict"], "shadow_reject");
    assert_eq!(
        (&lines[0]["rule"], &lines[0]["stage"]),
        (&"try".into(), &"document".into())
    );
    assert_eq!(lines[1]["verdict"], "allow");
}

#[test]
fn only_as_much_as_rules_need_is_read() {
    let rules = "  - { id: news, when: { path: /news }, rules: [{ id: soft, forbid: { title: x }, as: 404 }] }";
    let site = DocumentSite::new("", rules);
    fn read(site: &DocumentSite) -> u64 {
        site.gate
            .counter("crawlgate_documents_total{outcome=\"read\"}")
    }
    for (path, page) in [
        ("/other", Page::html("<title>x</title>")),
        ("/news/a", Page::of("image/png", "x")),
        (
            "/news/b",
            Page::html("<title>x</title>").status("404 Not Found"),
        ),
    ] {
        site.has(path, page);
        assert!(site.get(path).output().starts_with("passed"), "{path}");
    }
    assert_eq!(read(&site), 0);
    site.has("/news/c", Page::html("<title>x</title>"));
    assert_eq!(site.get("/news/c").output(), "soft_error soft 404");
    assert_eq!(read(&site), 1);
    // A HEAD has no body to read; a partial response is not read.
    assert_eq!(site.ask("HEAD", "/news/c", "").output(), "passed 200");
    let part = Page::html("<title>x</title>")
        .status("206 Partial Content")
        .field("Content-Range: bytes 5-20/99");
    site.has("/news/d", part);
    assert_eq!(site.get("/news/d").output(), "passed 206");
    site.has("/news/e", Page::html("").status("304 Not Modified"));
    assert_eq!(
        site.ask("GET", "/news/e", "If-None-Match: \"x\"\r\n")
            .status(),
        304
    );
    assert_eq!(
        site.gate
            .counter("crawlgate_documents_total{outcome=\"unreadable\"}"),
        1
    );
    assert_eq!(read(&site), 1);
    // Accept-Encoding is restricted only if a document may be read.
    site.has(
        "/news/f",
        Page::of("text/html", gzip(b"<title>x</title>")).field("Content-Encoding: gzip"),
    );
    let got = site.ask(
        "GET",
        "/news/f",
        "Accept-Encoding: br, gzip;q=0.8, zstd\r\n",
    );
    assert_eq!(got.output(), "soft_error soft 404");
    assert!(
        site.heads()
            .last()
            .unwrap()
            .to_lowercase()
            .contains("accept-encoding: gzip;q=0.8\r\n")
    );
}
