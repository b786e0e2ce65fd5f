//! Options about rejections, as clients and the log see them: `html_only`, `max_body`, `record`, `reject_status`.

use crate::support::client::RawClient;

use crate::effects::Site;
use crate::support::policy::allow_all;

fn of_type(content_type: &str) -> Option<String> {
    Some(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: 5\r\n\r\nbytes"
    ))
}

#[test]
fn html_only_refuses_other_types() {
    let site = Site::new(
        &allow_all(
            "",
            "  - { id: pages, about: only pages, when: { under: /pages }, set: { html_only: true } }",
        ),
        |path| match path.rsplit_once('/').unwrap().1 {
            "html" => of_type("text/html; charset=utf-8"),
            "xhtml" => of_type("application/xhtml+xml"),
            "pdf" => of_type("application/pdf"),
            "error" => Some(
                "HTTP/1.1 404 Gone\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n".into(),
            ),
            "empty" => Some("HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\n\r\n".into()),
            _ => None,
        },
    );
    for (path, status) in [
        ("/pages/html", 200),
        ("/pages/xhtml", 200),
        ("/pages/pdf", 451),
        ("/pages/untyped", 451),
        ("/pages/error", 404),
        ("/pages/empty", 204),
        ("/pdf", 200),
    ] {
        let answer = site.get(path);
        assert_eq!(answer.status, status, "{path}");
        assert!(
            status != 451 || !answer.to_string().contains("bytes"),
            "{path}: {}",
            answer
        );
    }
    let refused = site.get("/pages/pdf");
    assert_eq!(
        (refused.value("crawl-reason"), refused.value("crawl-rule")),
        ("rule", "pages")
    );
    assert!(refused.body.contains("only pages"), "{}", refused);
}

#[test]
fn bodies_are_refused_or_cut_at_their_size() {
    let site = Site::new(
        &allow_all(
            "  max_body: 10B",
            "  - { id: large, when: { under: /large }, set: { max_body: 1KiB } }",
        ),
        |path| {
            match path.rsplit_once('/').unwrap().1 {
            "ten" => Some("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789".into()),
            "eleven" => Some("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n0123456789a".into()),
            "chunks" => Some(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n8\r\n89abcdef\r\n0\r\n\r\n".into(),
            ),
            "error" => Some("HTTP/1.1 500 Broken\r\nContent-Length: 11\r\n\r\n0123456789a".into()),
            _ => None,
        }
        },
    );
    assert_eq!(site.get("/ten").body, "0123456789");
    let refused = site.get("/eleven");
    assert_eq!(
        (refused.status, refused.value("crawl-reason")),
        (451, "body_too_large")
    );
    assert_eq!(site.get("/large/eleven").body, "0123456789a");
    assert_eq!(site.get("/error").body, "0123456789a");
    // A body that becomes too large is cut, and never looks complete.
    let mut client = RawClient::connect(site.gate.proxy);
    client.send_get(&site.origin.url("a.test", "/chunks"), "");
    let (answer, _) = client.read_to_end();
    assert!(!answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
    assert!(site.get("/large/chunks").to_string().ends_with("0\r\n\r\n"));
    let log = site.decisions(6);
    let broken: Vec<_> = log
        .iter()
        .map(|line| line["error"] == "http_response_body_size")
        .collect();
    assert_eq!(broken, [false, false, false, false, true, false], "{log:?}");
}

#[test]
fn the_log_shows_a_rejected_url_as_record_requires() {
    let site = Site::new(
        &allow_all(
            "",
            "  - { id: full, when: { under: /full }, set: { record: full } }
  - { id: host, when: { under: /host }, set: { record: host } }
  - { id: none, when: { under: /none }, set: { record: none } }
  - { id: logged, forbid: { in_query: log }, log: true }
  - { id: unlogged, forbid: { in_query: drop } }
  - { id: films, when: { content_type: video/mp4 }, then: exclude }
  - { id: sounds, when: { content_type: audio/mpeg }, then: disallow }",
        ),
        |path| match path.rsplit_once('/').unwrap().1 {
            "film" => of_type("video/mp4"),
            "sound" => of_type("audio/mpeg"),
            _ => None,
        },
    );
    let host = format!("a.test:{}", site.origin.port);
    let cases = [
        ("/x?log", "full"),
        ("/x?drop", "host"),
        ("/full/x?drop", "full"),
        ("/host/x?log", "host"),
        ("/none/x?log", "none"),
        ("/film", "full"),
        ("/sound", "host"),
        ("/full/sound", "full"),
        ("/none/film", "none"),
        // Allowed requests are shown in full.
        ("/none/x", "full"),
    ];
    for (path, _) in cases {
        site.get(path);
    }
    for (line, (path, kept)) in site.decisions(cases.len()).into_iter().zip(cases) {
        let found = match (line["url"].as_str(), line["host"].as_str()) {
            (Some(url), Some("a.test")) if url == format!("http://{host}{path}") => "full",
            (None, Some("a.test")) => "host",
            (None, None) => "none",
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(found, kept, "{path}");
    }
}

#[test]
fn a_status_of_its_own_replaces_the_profiles() {
    let site = Site::new(
        &allow_all(
            "  reject_status: 404",
            "  - { id: own, forbid: { under: /own }, reject: gone, reject_status: 403 }
  - { id: plain, forbid: { under: /plain } }
  - { id: gone, when: { under: /gone }, set: { reject: gone, reject_status: none, disposition: disallow } }
  - { id: same, when: { under: /same }, set: { reject_status: 304, disposition: disallow } }
  - { id: okay, when: { under: /okay }, set: { reject_status: 200, disposition: disallow } }
  - { id: type, forbid: { content_type: video/mp4 }, reject_status: 410 }",
        ),
        |path| if path.ends_with("film") { of_type("video/mp4") } else { None },
    );
    for (path, status) in [
        ("/own", 403),
        ("/plain", 404),
        ("/gone", 410),
        ("/same", 304),
        ("/okay", 200),
        ("/film", 410),
    ] {
        let answer = site.get(path);
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.value("crawl-status"), "REJECTED_FILTER", "{path}");
        assert_eq!(status == 304, answer.body.is_empty(), "{path}");
    }
}
