//! Options that change fields: `request_headers`, `source`, `meta`, `index` and `follow`.

use crate::effects::Site;
use crate::support::policy::allow_all;

/// The value of a field in a head that the origin received.
fn got<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields
        .find(|(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

#[test]
fn fields_of_requests_are_set_and_removed() {
    let site = Site::new(
        &allow_all(
            "  request_headers: { set: { X-Team: search, Authorization: Basic eDp5 }, remove: [Cookie] }",
            "  - { id: a, when: { under: /a }, set: { request_headers: { set: { x-team: news, X-More: '1' } } } }
  - { id: b, when: { under: /a/b }, set: { request_headers: { set: { x-more: null }, remove: [Accept] } } }
  - { id: c, when: { under: /c }, set: { request_headers: null } }",
        ),
        |_| None,
    );
    for path in ["/", "/a", "/a/b", "/c"] {
        let answer = site.get_with(path, "Cookie: a=b\r\nX-Team: forged\r\nAccept: */*\r\n");
        assert_eq!(answer.status, 200, "{path}");
    }
    let heads = site.origin.heads();
    let fields = |at: usize| {
        ["x-team", "x-more", "authorization", "cookie", "accept"]
            .map(|name| got(&heads[at], name).unwrap_or("-"))
    };
    assert_eq!(fields(0), ["search", "-", "Basic eDp5", "-", "*/*"]);
    assert_eq!(fields(1), ["news", "1", "Basic eDp5", "-", "*/*"]);
    // A list is replaced, a key of a map is not.
    assert_eq!(fields(2), ["news", "-", "Basic eDp5", "a=b", "-"]);
    assert_eq!(fields(3), ["forged", "-", "-", "a=b", "*/*"]);
    assert!(
        heads
            .iter()
            .all(|head| got(head, "via").is_some() && got(head, "host").is_some()),
        "{heads:?}"
    );
}

#[test]
fn responses_have_their_source_and_labels() {
    let site = Site::new(
        &allow_all(
            "  source: intranet\n  meta: { Team: search, kind: page }",
            "  - { id: a, when: { under: /a }, set: { source: news desk, meta: { team: news, kind: null } } }
  - { id: c, when: { under: /c }, set: { source: none, meta: null } }
  - { id: no, forbid: { under: /no } }
  - { id: late, when: { header.x-kind: { exact: film } }, set: { meta: { kind: film } } }",
        ),
        |path| {
            match path {
            "/forged" => Some(
                "HTTP/1.1 200 OK\r\nCrawl-Source: forged\r\nCrawl-Meta-X: forged\r\nContent-Length: 0\r\n\r\n".into(),
            ),
            "/film" => Some("HTTP/1.1 200 OK\r\nX-Kind: film\r\nContent-Length: 0\r\n\r\n".into()),
            "/missing" => Some("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into()),
            _ => None,
        }
        },
    );
    fn fields(site: &Site, path: &str) -> [String; 4] {
        let answer = site.get(path);
        [
            "crawl-source",
            "crawl-meta-team",
            "crawl-meta-kind",
            "crawl-meta-x",
        ]
        .map(|name| answer.value(name).to_owned())
    }
    assert_eq!(fields(&site, "/"), ["intranet", "search", "page", ""]);
    assert_eq!(fields(&site, "/forged"), ["intranet", "search", "page", ""]);
    assert_eq!(
        fields(&site, "/missing"),
        ["intranet", "search", "page", ""]
    );
    assert_eq!(fields(&site, "/film"), ["intranet", "search", "film", ""]);
    assert_eq!(fields(&site, "/a"), ["news desk", "news", "", ""]);
    assert_eq!(fields(&site, "/c"), ["", "", "", ""]);
    // A refusal is not a response of the source.
    assert_eq!(fields(&site, "/no"), ["", "", "", ""]);
    let log = site.decisions(7);
    let sources: Vec<Option<&str>> = log.iter().map(|line| line["source"].as_str()).collect();
    assert_eq!(
        sources,
        [
            Some("intranet"),
            Some("intranet"),
            Some("intranet"),
            Some("intranet"),
            Some("news desk"),
            None,
            Some("intranet")
        ]
    );
}

#[test]
fn robots_tags_are_added_and_never_weakened() {
    fn answer(fields: &str) -> Option<String> {
        Some(format!(
            "HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n"
        ))
    }
    let site = Site::new(
        &allow_all(
            "",
            "  - { id: unseen, when: { under: /unseen }, then: no-index }
  - { id: dead-end, when: { under: /dead-end }, then: no-follow }
  - { id: scan, when: { under: /scan }, then: follow-only }
  - { id: neither, when: { under: /neither }, set: { index: false, follow: false } }
  - { id: late, when: { content_type: text/plain }, then: no-index }",
        ),
        move |path| match path.rsplit_once('/').unwrap().1 {
            "named" => answer("X-Robots-Tag: googlebot: nofollow\r\nX-Robots-Tag: noarchive\r\n"),
            "index" => answer("X-Robots-Tag: index, follow\r\n"),
            "text" => answer("Content-Type: text/plain\r\n"),
            "error" => {
                Some("HTTP/1.1 503 Busy\r\nX-Robots-Tag: none\r\nContent-Length: 0\r\n\r\n".into())
            }
            _ => None,
        },
    );
    for (path, tags) in [
        ("/x", &[][..]),
        ("/named", &["googlebot: nofollow", "noarchive"][..]),
        ("/unseen/x", &["noindex"][..]),
        (
            "/unseen/named",
            &["noindex, noarchive", "googlebot: nofollow"][..],
        ),
        ("/unseen/index", &["noindex, follow"][..]),
        ("/unseen/error", &["noindex, none"][..]),
        ("/dead-end/x", &["nofollow"][..]),
        ("/scan/x", &["noindex"][..]),
        ("/neither/x", &["noindex, nofollow"][..]),
        ("/text", &["noindex"][..]),
        ("/dead-end/text", &["noindex, nofollow"][..]),
    ] {
        assert_eq!(site.get(path).values("x-robots-tag"), tags, "{path}");
    }
}

#[test]
fn options_and_rules_in_shadow_of_a_space_are_its_crawlers_alone() {
    let spaces = "
spaces:
  - name: lab
    crawlers: [lab]
    options: { source: the lab, meta: { team: lab }, index: false, request_headers: { set: { X-Team: lab } } }
    rules: [{ id: try, mode: shadow, forbid: { under: /try } }]
  - name: others
    rules: [{ id: never, mode: shadow, forbid: { always: true } }]
";
    let rules =
        format!("  - {{ id: late, when: {{ under: /late }}, set: {{ source: late }} }}{spaces}");
    let crawlers = "crawlers: [{ name: lab, sources: [127.0.0.0/8], may: [trace] }]\n";
    let site = Site::with_config(
        &format!("{}{crawlers}", super::CONFIG),
        &allow_all("  source: all", &rules),
        |_| None,
    );
    fn fields(site: &Site, path: &str) -> [String; 4] {
        let answer = site.get_with(path, "Crawl-Trace: 1\r\n");
        [
            "crawl-source",
            "crawl-meta-team",
            "x-robots-tag",
            "crawl-shadow",
        ]
        .map(|name| answer.value(name).to_owned())
    }
    assert_eq!(fields(&site, "/x"), ["the lab", "lab", "noindex", ""]);
    assert_eq!(fields(&site, "/late"), ["late", "lab", "noindex", ""]);
    assert_eq!(
        fields(&site, "/try"),
        ["the lab", "lab", "noindex", "reject; rule=try"]
    );
    assert!(
        site.origin
            .heads()
            .iter()
            .all(|head| got(head, "x-team") == Some("lab"))
    );
}
