//! What each outcome of a fetch means: one row a situation.

use std::io::Write;

use crawlgate::clock::Clock;
use crawlgate::pipeline::robots_fetch::RobotsProvider;
use crawlgate::robots::RobotsAccess;
use crawlgate::robots::state::{RobotsRules, RobotsState};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::origin::{Origin, Reply, World, answer, target};

const FILE: &str = "User-agent: *\nDisallow: /x\n";

/// `rules` if `/x` is forbidden by them, `no rules` if it is not.
fn standing(known: &RobotsState) -> &'static str {
    match &known.rules {
        RobotsRules::File(rules) if rules.decide("bot", "/x").access == RobotsAccess::Disallow => {
            "rules"
        }
        RobotsRules::File(_) => "no rules",
        RobotsRules::AllowAll => "allow all",
        RobotsRules::Unknown => "unknown",
    }
}

async fn fetched(
    script: impl Fn(&str, u16, usize) -> Reply + Send + Sync + 'static,
) -> (String, usize) {
    let (origin, clock) = (Origin::start(script), Clock::system());
    let world = World::new(&clock);
    let known = world
        .robots
        .fetch(&target(&origin.url("a.test", "/y?z")), world.errand("bot"))
        .await;
    let text = format!(
        "{} {} {}m",
        standing(&known),
        known.outcome.as_str(),
        known.fresh_for.as_secs() / 60
    );
    assert_eq!(world.fetches(known.outcome.as_str()), 1, "{text}");
    (text, origin.heads().len())
}

async fn check(name: &str, reply: Reply, expected: &str) {
    let (came, requests) = fetched(move |_, _, _| reply.clone()).await;
    assert_eq!((came.as_str(), requests), (expected, 1), "{name}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn statuses() {
    for (status, expected) in [
        (200, "rules file 1080m"),
        (206, "rules file 1080m"),
        (300, "allow all odd_status 1080m"),
        (301, "allow all odd_status 1080m"),
        (400, "allow all absent 1080m"),
        (401, "allow all absent 1080m"),
        (403, "allow all absent 1080m"),
        (404, "allow all absent 1080m"),
        (410, "allow all absent 1080m"),
        (429, "unknown limited 1m"),
        (451, "allow all absent 1080m"),
        (500, "unknown server_error 1m"),
        (503, "unknown server_error 1m"),
        (599, "unknown server_error 1m"),
        (760, "allow all odd_status 1080m"),
    ] {
        check(
            &status.to_string(),
            Reply::Bytes(answer(status, "", FILE)),
            expected,
        )
        .await;
    }
    check(
        "204",
        Reply::Bytes(b"HTTP/1.1 204 x\r\n\r\n".to_vec()),
        "no rules file 1080m",
    )
    .await;
}

#[tokio::test]
async fn bodies() {
    let zipped = gzip(FILE.as_bytes());
    let gz = "Content-Encoding: gzip\r\n";
    let html = "Content-Type: text/html; charset=utf-8\r\n";
    let long = format!(
        "{FILE}{}",
        "Allow: /folder/of/a/long/file\n".repeat(400_000)
    );
    let bomb = gzip(long.as_bytes());
    let two = [gzip(b"User-agent: *\n"), gzip(b"Disallow: /x\n")].concat();
    let chunked = format!(
        "HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{FILE}\r\n0\r\n\r\n",
        FILE.len()
    );
    let coding = |name: &str| format!("Content-Encoding: {name}\r\n");
    for (name, bytes, expected) in [
        ("empty", answer(200, "", ""), "no rules file 1080m"),
        ("gzip", answer(200, gz, &zipped), "rules file 1080m"),
        (
            "x-gzip",
            answer(200, &coding("x-gzip"), &zipped),
            "rules file 1080m",
        ),
        (
            "identity",
            answer(200, &coding("identity"), FILE),
            "rules file 1080m",
        ),
        (
            "gzip of two members",
            answer(200, gz, two),
            "rules file 1080m",
        ),
        (
            "gzip cut",
            answer(200, gz, &zipped[..zipped.len() - 9]),
            "unknown coding 1m",
        ),
        (
            "gzip that is none",
            answer(200, gz, FILE),
            "unknown coding 1m",
        ),
        ("gzip bomb", answer(200, gz, bomb), "rules file 1080m"),
        ("br", answer(200, &coding("br"), FILE), "unknown coding 1m"),
        (
            "gzip twice",
            answer(200, &coding("gzip, gzip"), &zipped),
            "unknown coding 1m",
        ),
        (
            "HTML page",
            answer(200, html, "<html><p>Not found</html>"),
            "allow all page 1080m",
        ),
        ("rules as HTML", answer(200, html, FILE), "rules file 1080m"),
        (
            "byte order mark",
            answer(200, "", format!("\u{feff}{FILE}")),
            "rules file 1080m",
        ),
        ("12 MB", answer(200, "", long), "rules file 1080m"),
        ("chunked", chunked.into_bytes(), "rules file 1080m"),
    ] {
        check(name, Reply::Bytes(bytes), expected).await;
    }
    let until_close = [b"HTTP/1.1 200 x\r\n\r\n", FILE.as_bytes()].concat();
    check(
        "to the end of the connection",
        Reply::Last(until_close),
        "rules file 1080m",
    )
    .await;
}

#[tokio::test]
async fn connections_that_break() {
    let whole = answer(200, "", FILE);
    let half = whole[..whole.len() - 5].to_vec();
    check(
        "closed in the body",
        Reply::Last(half.clone()),
        "unknown broken 1m",
    )
    .await;
    check(
        "silent in the body",
        Reply::Hang(half),
        "unknown timeout 1m",
    )
    .await;
    check("silent", Reply::Hang(vec![]), "unknown timeout 1m").await;
    check("closed at once", Reply::Last(vec![]), "unknown broken 1m").await;
    check(
        "closed in the head",
        Reply::Last(b"HTTP/1.1 200 x\r\nA: b".to_vec()),
        "unknown broken 1m",
    )
    .await;
    check(
        "not HTTP",
        Reply::Last(b"SSH-2.0-x\r\n".to_vec()),
        "unknown broken 1m",
    )
    .await;
    let large = format!("HTTP/1.1 200 x\r\nA: {}\r\n\r\n", "a".repeat(64 << 10));
    check(
        "a large head",
        Reply::Last(large.into_bytes()),
        "unknown broken 1m",
    )
    .await;
    let coded = format!("HTTP/1.1 200 x\r\nTransfer-Encoding: gzip\r\n\r\n{FILE}");
    check(
        "an unknown transfer coding",
        Reply::Last(coded.into_bytes()),
        "unknown broken 1m",
    )
    .await;
    let head = "HTTP/1.1 200 x\r\nContent-Length: 1000000\r\n\r\n# slow ";
    check(
        "drop by drop",
        Reply::Drip(head.into()),
        "unknown timeout 1m",
    )
    .await;
}

#[tokio::test]
async fn nobody_there() {
    let world = World::new(&Clock::system());
    let free = std::net::TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for (host, expected) in [
        (format!("a.test:{free}"), "refused"),
        ("private.test".to_owned(), "prohibited"),
        ("nothing.local".to_owned(), "dns"),
    ] {
        let known = world
            .robots
            .fetch(&target(&format!("http://{host}/")), world.errand("bot"))
            .await;
        assert_eq!(
            (standing(&known), known.outcome.as_str()),
            ("unknown", expected),
            "{host}"
        );
    }
}

#[tokio::test]
async fn redirects() {
    let location =
        |place: &str| Reply::Bytes(answer(302, &format!("Location: {place}\r\n"), "moved"));
    let chain = move |length: usize| {
        move |_: &str, _: u16, before: usize| match before < length {
            true => Reply::Bytes(answer(301, &format!("Location: /{before}\r\n"), "moved")),
            false => Reply::Bytes(answer(200, "", FILE)),
        }
    };
    for (length, expected, requests) in [
        (1, "rules file 1080m", 2),
        (5, "rules file 1080m", 6),
        (6, "allow all redirects 1080m", 6),
    ] {
        let came = fetched(chain(length)).await;
        assert_eq!((came.0.as_str(), came.1), (expected, requests), "{length}");
    }
    let (came, requests) = fetched(move |_, _, _| location("/robots.txt")).await;
    assert_eq!(
        (came.as_str(), requests),
        ("allow all redirects 1080m", 6),
        "a loop"
    );
    let other = move |head: &str, port: u16, _: usize| match head
        .to_ascii_lowercase()
        .contains("host: b.test")
    {
        true => Reply::Bytes(answer(200, "", FILE)),
        false => location(&format!("//b.test:{port}/other#part")),
    };
    assert_eq!(fetched(other).await.0, "rules file 1080m", "another host");
    for status in [303, 307, 308] {
        let script = move |head: &str, _: u16, _: usize| match head.starts_with("GET /to ") {
            true => Reply::Bytes(answer(200, "", FILE)),
            false => Reply::Bytes(answer(status, "Location: to\r\n", "")),
        };
        assert_eq!(fetched(script).await.0, "rules file 1080m", "{status}");
    }
    for (place, expected) in [
        ("http://private.test/robots.txt", "unknown prohibited 1m"),
        ("http://169.254.169.254/robots.txt", "unknown prohibited 1m"),
        (
            "http://nothing.local/robots.txt",
            "allow all elsewhere 1080m",
        ),
        // Asked, and nobody listens there.
        ("https://b.test:1/robots.txt", "unknown refused 1m"),
        ("ftp://b.test/robots.txt", "allow all elsewhere 1080m"),
        ("http://[", "allow all elsewhere 1080m"),
    ] {
        let (came, requests) = fetched(move |_, _, _| location(place)).await;
        assert_eq!((came.as_str(), requests), (expected, 1), "{place}");
    }
    let absent = move |_: &str, _: u16, before: usize| match before {
        0 => location("/gone"),
        _ => Reply::Bytes(answer(404, "", "")),
    };
    assert_eq!(
        fetched(absent).await.0,
        "allow all absent 1080m",
        "a redirect to nothing"
    );
}

#[tokio::test]
async fn how_long_it_holds() {
    for (fields, minutes) in [
        ("Cache-Control: max-age=3600\r\n", 60),
        ("Cache-Control: max-age=3600\r\nAge: 600\r\n", 50),
        ("Cache-Control: max-age=1\r\n", 5),
        ("Cache-Control: no-store\r\n", 5),
        ("Cache-Control: max-age=31536000\r\n", 1080),
        (
            "Date: Thu, 01 Jan 2026 00:00:00 GMT\r\nExpires: Thu, 01 Jan 2026 02:00:00 GMT\r\n",
            120,
        ),
        ("", 1080),
        ("Cache-Control: must-revalidate\r\n", 1440),
    ] {
        let reply = Reply::Bytes(answer(200, fields, FILE));
        check(fields, reply, &format!("rules file {minutes}m")).await;
    }
    let absent = Reply::Bytes(answer(404, "Cache-Control: max-age=600\r\n", ""));
    check("absent", absent, "allow all absent 10m").await;
}

#[tokio::test]
async fn what_is_asked() {
    let origin = Origin::start(|_, _, _| Reply::Bytes(answer(200, "", FILE)));
    let world = World::new(&Clock::system());
    world
        .robots
        .fetch(
            &target(&origin.url("a.test", "/x/y?z")),
            world.errand("news-bot"),
        )
        .await;
    let head = &origin.heads()[0];
    assert!(head.starts_with("GET /robots.txt HTTP/1.1\r\n"), "{head}");
    let lower = head.to_ascii_lowercase();
    for field in [
        format!("\r\nhost: a.test:{}\r\n", origin.port),
        format!(
            "\r\nuser-agent: news-bot crawlgate/{}\r\n",
            env!("CARGO_PKG_VERSION")
        ),
        "\r\naccept-encoding: gzip\r\n".to_owned(),
        "\r\nvia: 1.1 crawlgate-test\r\n".to_owned(),
    ] {
        assert!(lower.contains(&field), "{field} in {head}");
    }
}
