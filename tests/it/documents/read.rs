//! Reading of bodies: in pieces, compressed, in charsets, cut; and delivery of exactly what the origin sent.

use std::io::Read;
use std::time::Duration;

use super::{DocumentSite, Page, bare, gzip, zlib};
use crate::support::client::RawClient;
use crate::support::origin::ScriptedOrigin;
use crate::support::wait::wait_until;

const TITLE: &str = "  - { id: soft, forbid: { title: missing }, as: 404 }";

fn site() -> DocumentSite {
    DocumentSite::new("", TITLE)
}

#[test]
fn a_title_is_found_wherever_the_body_is_cut() {
    let site = site();
    let bad = "<html><head><title>missing</title><p>";
    let good = "<html><head><title>here</title><p>";
    for at in 0..=bad.len() {
        assert_eq!(
            site.serve(Page::html(bad).split(at)).output(),
            "soft_error soft 404",
            "{at}"
        );
    }
    for at in 0..=good.len() {
        let got = site.serve(Page::html(good).split(at));
        assert_eq!(got.output().as_str(), "passed 200", "{at}");
        assert_eq!(got.text().as_str(), good, "{at}");
    }
    for step in [1, 2, 3, 10] {
        assert_eq!(
            site.serve(Page::html(bad).cut(step).chunked()).output(),
            "soft_error soft 404",
            "{step}"
        );
        let got = site.serve(Page::html(good).cut(step).chunked());
        assert_eq!(got.output().as_str(), "passed 200", "{step}");
        assert_eq!(got.text().as_str(), good, "{step}");
    }
}

#[test]
fn delivered_bodies_equal_the_origins_byte_for_byte() {
    let site = site();
    let page: Vec<u8> =
        format!("<title>here</title>{}", "some text \u{e4} ".repeat(20_000)).into_bytes();
    for (coding, body) in [
        ("identity", page.clone()),
        ("gzip", gzip(&page)),
        ("deflate", zlib(&page)),
        ("deflate", bare(&page)),
        ("br", b"what br looks like".to_vec()),
        ("gzip", b"no gzip at all".to_vec()),
    ] {
        for step in [700, 100_000] {
            let page = Page::of("text/html", &body)
                .field(&format!("Content-Encoding: {coding}"))
                .cut(step);
            let got = site.serve(
                page.clone()
                    .field("ETag: \"x\"")
                    .field("Accept-Ranges: bytes"),
            );
            assert_eq!(got.output(), "passed 200", "{coding}");
            assert_eq!(got.body().as_deref(), Some(&body[..]), "{coding} by {step}");
            assert_eq!(got.value("content-encoding"), coding);
            assert_eq!(got.value("content-length"), body.len().to_string());
            assert_eq!(
                (got.value("etag"), got.value("accept-ranges")),
                ("\"x\"".into(), "bytes".into())
            );
            let got = site.serve(page.chunked());
            assert_eq!(
                got.body().as_deref(),
                Some(&body[..]),
                "{coding} by {step}, chunked"
            );
        }
    }
    assert_eq!(
        site.gate
            .counter("crawlgate_documents_total{outcome=\"unreadable\"}"),
        8
    );
}

#[test]
fn packed_documents_are_read() {
    let site = site();
    let page = b"<title>missing</title>";
    for (coding, body) in [
        ("gzip", gzip(page)),
        ("x-gzip", gzip(page)),
        ("GZIP", [gzip(&page[..5]), gzip(&page[5..])].concat()),
        ("deflate", zlib(page)),
        ("deflate", bare(page)),
    ] {
        for step in [1, 1000] {
            let field = format!("Content-Encoding: {coding}");
            let got = site.serve(Page::of("text/html", &body).field(&field).cut(step));
            assert_eq!(got.output(), "soft_error soft 404", "{coding} by {step}");
        }
    }
}

#[test]
fn a_bomb_is_not_unpacked() {
    let site = site();
    let mut page = b"<title>missing".to_vec();
    page.resize(200 << 20, b' ');
    let bomb = gzip(&page);
    let got = site.serve(Page::of("text/html", &bomb).field("Content-Encoding: gzip"));
    assert_eq!(got.output(), "soft_error soft 404");
    page.splice(7..14, *b"present");
    let bomb = gzip(&page);
    let got = site.serve(Page::of("text/html", &bomb).field("Content-Encoding: gzip"));
    assert_eq!(
        (got.output().as_str(), got.body()),
        ("passed 200", Some(bomb))
    );
}

#[test]
fn charsets_are_undone() {
    let rules = "  - { id: soft, forbid: { title: \u{43d}\u{435}\u{442} }, as: 404 }";
    let site = DocumentSite::new("", rules);
    let html =
        |charset: &str| format!("<meta charset={charset}><title>\u{43d}\u{435}\u{442}</title>");
    let koi = encoding("koi8-r", &html("koi8-r"));
    let wide: Vec<u8> = [0xfeff]
        .into_iter()
        .chain(html("x").encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    for (content_type, body, output) in [
        (
            "text/html",
            html("utf-8").into_bytes(),
            "soft_error soft 404",
        ),
        ("text/html", koi.clone(), "soft_error soft 404"),
        (
            "text/html; charset=KOI8-R",
            koi.clone(),
            "soft_error soft 404",
        ),
        ("text/html", wide, "soft_error soft 404"),
        // A wrong declaration is followed, as browsers do.
        ("text/html; charset=utf-8", koi, "passed 200"),
        (
            "text/html; charset=iso-8859-1",
            html("utf-8").into_bytes(),
            "passed 200",
        ),
    ] {
        let got = site.serve(Page::of(content_type, &body));
        assert_eq!(got.output(), output, "{content_type} {body:?}");
    }
}

fn encoding(label: &str, text: &str) -> Vec<u8> {
    encoding_rs::Encoding::for_label(label.as_bytes())
        .unwrap()
        .encode(text)
        .0
        .into_owned()
}

#[test]
fn text_and_untyped_answers_are_read() {
    let rules = format!("{TITLE}\n  - {{ id: text, forbid: {{ body_prefix: secret }} }}");
    let site = DocumentSite::new("", &rules);
    assert_eq!(
        site.serve(Page::of("text/plain", "a secret")).output(),
        "rule text 451"
    );
    // Plain text has no title, whatever it looks like.
    assert_eq!(
        site.serve(Page::of("text/plain", "<title>missing</title>"))
            .output(),
        "passed 200"
    );
    let untyped = Page::html("<title>missing</title>").without_type();
    assert_eq!(site.serve(untyped).output(), "soft_error soft 404");
    assert_eq!(
        site.serve(Page::html("secret").without_type()).output(),
        "rule text 451"
    );
    for length in [64 * 1024 - 6, 64 * 1024 - 5] {
        let page = format!("{}secret", "x".repeat(length));
        let output = if length + 6 <= 64 * 1024 {
            "rule text 451"
        } else {
            "passed 200"
        };
        assert_eq!(
            site.serve(Page::of("text/plain", &page)).output(),
            output,
            "{length}"
        );
    }
}

#[test]
fn a_long_document_head_is_evaluated_by_its_beginning() {
    let site = DocumentSite::new("  noindex: reject\n", "  []");
    for (before, output) in [(60_000, "noindex  451"), (70_000, "passed 200")] {
        let html = format!(
            "<head><style>{}</style><meta name=robots content=noindex>",
            "x".repeat(before)
        );
        assert_eq!(site.serve(Page::html(&html)).output(), output, "{before}");
    }
    // `max_buffer` may be smaller.
    let site = DocumentSite::new("  noindex: reject\n  max_buffer: 4KiB\n", "  []");
    let html = format!(
        "<head><style>{}</style><meta name=robots content=noindex>",
        "x".repeat(40_000)
    );
    let got = site.serve(Page::html(&html).cut(1000));
    assert_eq!((got.output().as_str(), got.text()), ("passed 200", html));
}

#[test]
fn the_head_is_enough_to_send_on() {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = std::sync::Mutex::new(receiver);
    let origin = ScriptedOrigin::start(move |connection| {
        while connection.read_head().is_some() {
            connection.send(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 30\r\n\r\n",
            );
            connection.send("<title>here</title><p>");
            let _ = receiver
                .lock()
                .unwrap()
                .recv_timeout(Duration::from_secs(20));
            connection.send("the rest");
        }
    });
    let site = site();
    let mut client = RawClient::connect(site.gate.proxy);
    client.send_get(&origin.url("a.test", "/"), "");
    // The origin has not sent the rest yet.
    client.read_until("<p>");
    sender.send(()).unwrap();
    client.read_until("the rest");
    // The connection to the origin is kept.
    client.send_get(&origin.url("a.test", "/"), "");
    client.read_until("<p>");
    sender.send(()).unwrap();
    client.read_until("the rest");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_body_cut_while_it_is_read_gets_an_error_status() {
    let origin = ScriptedOrigin::start(|connection| {
        if connection.read_head().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3000\r\n\r\n<title>he");
        }
    });
    let site = site();
    let mut client = RawClient::connect(site.gate.proxy);
    client.send_get(&origin.url("a.test", "/"), "");
    let head = client.read_until("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    assert!(head.contains("http_response_incomplete"), "{head}");
    assert!(
        head.to_lowercase()
            .contains("crawl-reason: upstream_protocol"),
        "{head}"
    );
}

#[test]
fn limits_and_times_of_bodies_hold_while_one_is_read() {
    let site = DocumentSite::new(
        "  max_body: 1KiB\n  timeouts: { body_idle: 200ms }\n",
        TITLE,
    );
    let page = format!("<head><style>{}", "x".repeat(3000));
    let got = site.serve(Page::html(&page).cut(500).chunked());
    assert_eq!(got.output(), "body_too_large  451");
    let origin = ScriptedOrigin::start(|connection| {
        if connection.read_head().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 300\r\n\r\n<title>he");
            connection.wait_for_close();
        }
    });
    let mut client = RawClient::connect(site.gate.proxy);
    client.send_get(&origin.url("a.test", "/"), "");
    let head = client.read_until("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 504"), "{head}");
    wait_until("the origin's connection is closed", || {
        origin.ended_connections() == 1
    });
}

#[test]
fn a_client_that_leaves_ends_the_reading() {
    let origin = ScriptedOrigin::start(|connection| {
        if connection.read_head().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 300\r\n\r\n<title>he");
            connection.wait_for_close();
        }
    });
    let site = site();
    let mut client = RawClient::connect(site.gate.proxy);
    client.send_get(&origin.url("a.test", "/"), "");
    wait_until("the origin is asked", || !origin.requests().is_empty());
    client
        .socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    assert!(
        client.socket.read(&mut [0]).is_err(),
        "nothing has been sent"
    );
    drop(client);
    wait_until("the origin's connection is closed", || {
        origin.ended_connections() == 1
    });
}
