//! The meaning of each outcome of a fetch: one row per situation.

use std::io::Write;

use crawlgate::clock::Clock;
use crawlgate::pipeline::robots_fetch::RobotsProvider;
use crawlgate::robots::RobotsAccess;
use crawlgate::robots::state::{RobotsRules, RobotsState};
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use super::fetcher::{TestFetcher, target};
use crate::support::origin::{ReceivedRequest, Reply, ScriptedOrigin, response};

const FILE: &str = "User-agent: *\nDisallow: /x\n";
/// `User-agent: *` and 30 times `Disallow: /x` and `Allow: /images/public/`.
const BROTLI: &[u8] =
    b"\x1bE\x04\x90\x1c\x07v\x8c\xbc\xc5\x12;i^+\x04\x11\xe1i\x95\x96\x17\x1d\x09\x926\x07\x0e9`\xff\x8a2l\
      \x91`\xb0\x01\xe7\x91>\xd8\xf2\x86\xf3\x88\xe2j\x0f\xea\xaaY#N\xca\xffy\x02";
/// [`FILE`] and 64 MiB of `#`.
const BROTLI_BOMB: &[u8] =
    b"\xcf\xff\xff\x7f\xe0\x9d\x07v\x0c\xb1<a\xd4hN\x1f\xa1\xd2S\x81\x08\xafAF\xd2\xe6\x94\xcaK\xb5\xe8\
      \xc0D\x0eX[\x9a\xe1I\xe1\xb5\xa8\x95ce\x1dJ\xe5\x86z\x07\xf7\xbc\xff?\xf1\xff\xff\x1f~\x09\x808,\x00\
      \xd0\xbd\xff\xe7\xff\xff?\xfc\x12\x00qX\x04\xa0{\xff\xcf\xff\xff\x7f\xf8%\x00\xe2\xb0\x00@\xf7\xfe?6\
      \x00\xf0K(\x14\x11\x8a\x04\x00\x1a";

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
    script: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
) -> (String, usize) {
    let origin = ScriptedOrigin::respond(script);
    let clock = Clock::system();
    let fetcher = TestFetcher::new(&clock);
    let known = fetcher
        .robots
        .fetch(
            &target(&origin.url("a.test", "/y?z")),
            fetcher.fetch_request("bot"),
        )
        .await;
    let text = format!(
        "{} {} {}m",
        standing(&known),
        known.outcome.as_str(),
        known.fresh_for.as_secs() / 60
    );
    assert_eq!(fetcher.fetches(known.outcome.as_str()), 1, "{text}");
    (text, origin.heads().len())
}

async fn check(name: &str, reply: Reply, expected: &str) {
    let (came, requests) = fetched(move |_| reply.clone()).await;
    assert_eq!((came.as_str(), requests), (expected, 1), "{name}");
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(vec![], Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(vec![], Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The file in UTF-16 with a byte order mark.
fn utf16(to_bytes: impl Fn(u16) -> [u8; 2]) -> Vec<u8> {
    "\u{feff}"
        .encode_utf16()
        .chain(FILE.encode_utf16())
        .flat_map(to_bytes)
        .collect()
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
        (301, "unknown elsewhere 1m"),
        (400, "allow all absent 1080m"),
        (401, "allow all absent 1080m"),
        (403, "allow all absent 1080m"),
        (404, "allow all absent 1080m"),
        (410, "allow all absent 1080m"),
        (429, "unknown limited 0m"),
        (451, "allow all absent 1080m"),
        (500, "unknown server_error 0m"),
        (503, "unknown server_error 0m"),
        (599, "unknown server_error 0m"),
        // RFC 9110 section 15: an invalid status is processed as a 5xx.
        (600, "unknown server_error 0m"),
        (760, "unknown server_error 0m"),
        (999, "unknown server_error 0m"),
        // Nobody asked for a 304.
        (304, "unknown server_error 0m"),
    ] {
        check(
            &status.to_string(),
            Reply::Bytes(response(status, "", FILE)),
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
    fn coding(name: &str) -> String {
        format!("Content-Encoding: {name}\r\n")
    }
    for (name, bytes, expected) in [
        ("empty", response(200, "", ""), "no rules file 1080m"),
        ("gzip", response(200, gz, &zipped), "rules file 1080m"),
        (
            "x-gzip",
            response(200, &coding("x-gzip"), &zipped),
            "rules file 1080m",
        ),
        (
            "identity",
            response(200, &coding("identity"), FILE),
            "rules file 1080m",
        ),
        (
            "gzip of two members",
            response(200, gz, two),
            "rules file 1080m",
        ),
        (
            "gzip cut",
            response(200, gz, &zipped[..zipped.len() - 9]),
            "unknown coding 1m",
        ),
        (
            "gzip that is plain text",
            response(200, gz, FILE),
            "rules file 1080m",
        ),
        (
            "gzip that is another text",
            response(200, gz, "<html>nothing to see</html>"),
            "unknown coding 1m",
        ),
        (
            "gzip of nothing",
            response(200, gz, ""),
            "no rules file 1080m",
        ),
        (
            "br of nothing",
            response(200, &coding("br"), ""),
            "no rules file 1080m",
        ),
        (
            "deflate",
            response(200, &coding("deflate"), zlib(FILE.as_bytes())),
            "rules file 1080m",
        ),
        (
            "deflate without zlib",
            response(200, &coding("Deflate"), deflate(FILE.as_bytes())),
            "rules file 1080m",
        ),
        (
            "deflate cut",
            response(200, &coding("deflate"), &zlib(FILE.as_bytes())[..12]),
            "unknown coding 1m",
        ),
        (
            "deflate bomb",
            response(200, &coding("deflate"), zlib(long.as_bytes())),
            "rules file 1080m",
        ),
        ("gzip bomb", response(200, gz, bomb), "rules file 1080m"),
        (
            "br",
            response(200, &coding("br"), BROTLI),
            "rules file 1080m",
        ),
        (
            "br cut",
            response(200, &coding("br"), &BROTLI[..20]),
            "unknown coding 1m",
        ),
        (
            "br bomb",
            response(200, &coding("br"), BROTLI_BOMB),
            "rules file 1080m",
        ),
        (
            "br that is something else",
            response(200, &coding("br"), b"\x8b\x0d\x80User\x03"),
            "unknown coding 1m",
        ),
        (
            "br that is plain text",
            response(200, &coding("br"), FILE),
            "rules file 1080m",
        ),
        (
            "aws-chunked",
            response(200, &coding("aws-chunked"), FILE),
            "rules file 1080m",
        ),
        (
            "none",
            response(200, &coding("none"), "  ALLOW : /\r\nDisallow: /x\r\n"),
            "no rules file 1080m",
        ),
        (
            "utf-8 of another text",
            response(200, &coding("utf-8"), "# disallow: /x\nhello"),
            "unknown coding 1m",
        ),
        (
            "aws-chunked and gzip",
            response(200, &coding("gzip, aws-chunked"), &zipped),
            "rules file 1080m",
        ),
        (
            "gzip once, named twice",
            response(200, &coding("gzip, gzip"), &zipped),
            "rules file 1080m",
        ),
        (
            "gzip twice",
            response(200, &coding("gzip, gzip"), gzip(&zipped)),
            "rules file 1080m",
        ),
        (
            "gzip twice, in two fields",
            response(200, &[gz, gz].concat(), gzip(&zipped)),
            "rules file 1080m",
        ),
        (
            "deflate in gzip",
            response(
                200,
                &coding("deflate, identity, gzip"),
                gzip(&zlib(FILE.as_bytes())),
            ),
            "rules file 1080m",
        ),
        (
            "many codings",
            response(200, &coding("gzip, gzip, gzip, gzip, gzip"), FILE),
            "rules file 1080m",
        ),
        (
            "many real codings",
            response(200, &coding("gzip, gzip, gzip, gzip, gzip"), gzip(b"hello")),
            "unknown coding 1m",
        ),
        (
            "UTF-16, little-endian",
            response(200, "", utf16(u16::to_le_bytes)),
            "rules file 1080m",
        ),
        (
            "UTF-16, big-endian",
            response(200, "", utf16(u16::to_be_bytes)),
            "rules file 1080m",
        ),
        (
            "HTML page",
            response(200, html, "<html><p>Not found</html>"),
            "allow all page 1080m",
        ),
        (
            "rules as HTML",
            response(200, html, FILE),
            "rules file 1080m",
        ),
        (
            "byte order mark",
            response(200, "", format!("\u{feff}{FILE}")),
            "rules file 1080m",
        ),
        ("12 MB", response(200, "", long), "rules file 1080m"),
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
    let whole = response(200, "", FILE);
    let half = whole[..whole.len() - 5].to_vec();
    check(
        "closed in the body",
        Reply::Last(half.clone()),
        "unknown broken 0m",
    )
    .await;
    check(
        "silent in the body",
        Reply::Hang(half),
        "unknown timeout 0m",
    )
    .await;
    check("silent", Reply::Hang(vec![]), "unknown timeout 0m").await;
    check("closed at once", Reply::Last(vec![]), "unknown broken 0m").await;
    check(
        "closed in the head",
        Reply::Last(b"HTTP/1.1 200 x\r\nA: b".to_vec()),
        "unknown broken 0m",
    )
    .await;
    check(
        "not HTTP",
        Reply::Last(b"SSH-2.0-x\r\n".to_vec()),
        "unknown broken 0m",
    )
    .await;
    let large = format!("HTTP/1.1 200 x\r\nA: {}\r\n\r\n", "a".repeat(64 << 10));
    check(
        "a large head",
        Reply::Last(large.into_bytes()),
        "unknown broken 0m",
    )
    .await;
    let coded = format!("HTTP/1.1 200 x\r\nTransfer-Encoding: gzip\r\n\r\n{FILE}");
    check(
        "an unknown transfer coding",
        Reply::Last(coded.into_bytes()),
        "unknown broken 0m",
    )
    .await;
    let head = "HTTP/1.1 200 x\r\nContent-Length: 1000000\r\n\r\n# slow ";
    check(
        "drop by drop",
        Reply::Drip(head.into()),
        "unknown timeout 0m",
    )
    .await;
}

#[tokio::test]
async fn unreachable_hosts_have_their_outcomes() {
    let fetcher = TestFetcher::new(&Clock::system());
    let free = crate::support::origin::closed_port();
    for (host, expected) in [
        (format!("a.test:{free}"), "refused"),
        ("private.test".to_owned(), "prohibited"),
        ("nothing.local".to_owned(), "dns"),
    ] {
        let known = fetcher
            .robots
            .fetch(
                &target(&format!("http://{host}/")),
                fetcher.fetch_request("bot"),
            )
            .await;
        assert_eq!(standing(&known), "unknown", "{host}");
        assert_eq!(known.outcome.as_str(), expected, "{host}");
    }
}

#[tokio::test]
async fn redirects() {
    let location =
        |place: &str| Reply::Bytes(response(302, &format!("Location: {place}\r\n"), "moved"));
    fn chain(length: usize) -> impl Fn(&ReceivedRequest) -> Reply {
        move |request: &ReceivedRequest| match request.number < length {
            true => {
                let location = format!("Location: /{}\r\n", request.number);
                Reply::Bytes(response(301, &location, "moved"))
            }
            false => Reply::Bytes(response(200, "", FILE)),
        }
    }
    for (length, expected, requests) in [
        (1, "rules file 1080m", 2),
        (5, "rules file 1080m", 6),
        (6, "allow all redirects 1080m", 6),
    ] {
        let came = fetched(chain(length)).await;
        assert_eq!((came.0.as_str(), came.1), (expected, requests), "{length}");
    }
    let (came, requests) = fetched(move |_| location("/robots.txt")).await;
    assert_eq!(came.as_str(), "allow all redirects 1080m", "a loop");
    assert_eq!(requests, 6, "a loop");
    assert_eq!(
        fetched(move |request: &ReceivedRequest| {
            let head = request.head.to_ascii_lowercase();
            let authority = head.split("host: ").nth(1).unwrap().lines().next().unwrap();
            let port = authority.rsplit(':').next().unwrap();
            match authority.starts_with("b.test") {
                true => Reply::Bytes(response(200, "", FILE)),
                false => location(&format!("//b.test:{port}/other#part")),
            }
        })
        .await
        .0,
        "rules file 1080m",
        "another host"
    );
    for status in [303, 307, 308] {
        assert_eq!(
            fetched(
                move |request: &ReceivedRequest| match request.path() == "/to" {
                    true => Reply::Bytes(response(200, "", FILE)),
                    false => Reply::Bytes(response(status, "Location: to\r\n", "")),
                }
            )
            .await
            .0,
            "rules file 1080m",
            "{status}"
        );
    }
    for (place, expected) in [
        ("http://private.test/robots.txt", "unknown prohibited 1m"),
        ("http://169.254.169.254/robots.txt", "unknown prohibited 1m"),
        (
            "http://nothing.local/robots.txt",
            "unknown redirect_unreachable 1m",
        ),
        // Asked, and nobody listens there.
        (
            "https://b.test:1/robots.txt",
            "unknown redirect_unreachable 1m",
        ),
        // The site says that its rules are elsewhere, where they cannot be read.
        ("ftp://b.test/robots.txt", "unknown elsewhere 1m"),
        ("file:///robots.txt", "unknown elsewhere 1m"),
        ("http://[", "unknown elsewhere 1m"),
    ] {
        let (came, requests) = fetched(move |_| location(place)).await;
        assert_eq!((came.as_str(), requests), (expected, 1), "{place}");
    }
    assert_eq!(
        fetched(move |request: &ReceivedRequest| match request.number {
            0 => location("/gone"),
            _ => Reply::Bytes(response(404, "", "")),
        })
        .await
        .0,
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
        let reply = Reply::Bytes(response(200, fields, FILE));
        check(fields, reply, &format!("rules file {minutes}m")).await;
    }
    let absent = Reply::Bytes(response(404, "Cache-Control: max-age=600\r\n", ""));
    check("absent", absent, "allow all absent 10m").await;
}

#[tokio::test]
async fn the_fetch_sends_its_fields() {
    let origin = ScriptedOrigin::respond(|_| Reply::Bytes(response(200, "", FILE)));
    let fetcher = TestFetcher::new(&Clock::system());
    fetcher
        .robots
        .fetch(
            &target(&origin.url("a.test", "/x/y?z")),
            fetcher.fetch_request("news-bot"),
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
