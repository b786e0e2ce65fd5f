//! Content of a file apart from its rules: lines, byte order marks, delays, sitemaps, tokens.

use std::time::Duration;

use crawlgate::robots::RobotsFile;
use crawlgate::robots::product_token::is_product_token;

/// `ID_LinesNumbersAreCountedCorrectly` of the published suite: directives, and the line of the last rule.
#[test]
fn line_numbers() {
    for body in [
        "User-Agent: foo\nAllow: /some/path\nUser-Agent: bar\n\n\nDisallow: /\n",
        "User-Agent: foo\r\nAllow: /some/path\r\nUser-Agent: bar\r\n\r\n\r\nDisallow: /\r\n",
        "User-Agent: foo\rAllow: /some/path\rUser-Agent: bar\r\r\rDisallow: /\r",
        "User-Agent: foo\nAllow: /some/path\nUser-Agent: bar\n\n\nDisallow: /",
        "User-Agent: foo\nAllow: /some/path\r\nUser-Agent: bar\n\r\n\nDisallow: /",
    ] {
        let parsed = RobotsFile::parse(body.as_bytes());
        assert_eq!(parsed.directives(), 4, "{body:?}");
        assert_eq!(
            parsed.decide("bar", "/").deciding_line.unwrap().line,
            6,
            "{body:?}"
        );
    }
}

/// `ID_UTF8ByteOrderMarkIsSkipped` of the published suite.
#[test]
fn byte_order_marks() {
    for (body, directives, unknown) in [
        (
            &b"\xEF\xBB\xBFUser-Agent: foo\nAllow: /AnyValue\n"[..],
            2,
            0,
        ),
        (b"\xEF\xBBUser-Agent: foo\nAllow: /AnyValue\n", 2, 0),
        (b"\xEFUser-Agent: foo\nAllow: /AnyValue\n", 2, 0),
        (b"\xEF\x11\xBFUser-Agent: foo\nAllow: /AnyValue\n", 1, 1),
        (b"User-Agent: foo\n\xEF\xBB\xBFAllow: /AnyValue\n", 1, 1),
    ] {
        let parsed = RobotsFile::parse(body);
        assert_eq!(parsed.directives(), directives, "{body:?}");
        assert_eq!(parsed.unknown_lines(), unknown, "{body:?}");
    }
}

/// `ID_NonStandardLineExample_Sitemap` of the published suite.
#[test]
fn sitemaps() {
    let sitemap = "Sitemap: http://foo.bar/sitemap.xml\n";
    let rest = "User-Agent: foo\nAllow: /some/path\nUser-Agent: bar\n\n\n";
    for body in [format!("{rest}{sitemap}"), format!("{sitemap}{rest}")] {
        let found: Vec<String> = RobotsFile::parse(body.as_bytes()).sitemaps().collect();
        assert_eq!(found, ["http://foo.bar/sitemap.xml"]);
    }
}

/// `ID_VerifyValidUserAgentsToObey` of the published suite.
#[test]
fn product_tokens() {
    for (token, valid) in [
        ("Foobot", true),
        ("Foobot-Bar", true),
        ("Foo_Bar", true),
        ("", false),
        ("ツ", false),
        ("Foobot*", false),
        (" Foobot ", false),
        ("Foobot/2.1", false),
        ("Foobot Bar", false),
    ] {
        assert_eq!(is_product_token(token), valid, "{token}");
    }
}

#[test]
fn crawl_delays() {
    let body = b"User-agent: a\nCrawl-delay: 2.5\nUser-agent: b\nDisallow: /x\nCrawl-delay: 1\n
        User-agent: a\nCrawl-delay: 3\nDisallow: /y\nUser-agent: *\nCrawl-delay: nine\nUser-agent: c\nAllow: /\n";
    let parsed = RobotsFile::parse(body);
    for (agent, delay) in [
        ("a", Some(3000)),
        ("b", Some(1000)),
        ("c", None),
        ("d", None),
    ] {
        assert_eq!(
            parsed.crawl_delay(agent),
            delay.map(Duration::from_millis),
            "{agent}"
        );
    }
}

/// A Crawl-delay and a Request-rate bind only the agents right above them, while the rules of the same lists are shared
/// (RFC 9309 section 2.2.4).
#[test]
fn a_delay_binds_only_the_agents_right_above_it() {
    let yandex = "User-agent: Yandex\nCrawl-delay: 60\n\nUser-agent: *\nDisallow: /admin\n";
    let slow = "User-agent: *\nCrawl-delay: 1\n\nUser-agent: slowbot\nCrawl-delay: 120\n";
    let rate = "User-agent: Bing\nRequest-rate: 1/60\n\nUser-agent: *\nDisallow: /admin\n";
    let both = "User-agent: a\nCrawl-delay: 5\nRequest-rate: 1/9\nUser-agent: b\nSitemap: /s\nUser-agent: c\n\
                Unknown: x\nCrawl-delay: 7\nUser-agent: d\nContent-Usage: train-ai=n\nUser-agent: e\nCrawl-delay: 3\n\
                User-agent: f\nDisallow: /f\nCrawl-delay: 4\nCrawl-delay: 2\nUser-agent: A\nCrawl-delay: 6\n";
    let invalid = "User-agent: a\nCrawl-delay: none\nUser-agent: b\nRequest-rate: -\nUser-agent: *\nCrawl-delay: 9\n";
    for (file, agent, delay, interval) in [
        (yandex, "otherbot", None, None),
        (yandex, "yandex", Some(60), None),
        (slow, "otherbot", Some(1), None),
        (slow, "slowbot", Some(120), None),
        (rate, "otherbot", None, None),
        (rate, "bing", None, Some(60)),
        (both, "a", Some(6), Some(9)),
        (both, "b", Some(7), None),
        (both, "c", Some(7), None),
        (both, "d", None, None),
        (both, "e", Some(3), None),
        (both, "f", Some(4), None),
        (both, "g", None, None),
        (invalid, "a", None, None),
        (invalid, "b", None, None),
        (invalid, "c", Some(9), None),
    ] {
        let parsed = RobotsFile::parse(file.as_bytes());
        let found = (
            parsed.crawl_delay(agent),
            parsed.request_interval(agent, || Duration::ZERO),
        );
        let expected = (
            delay.map(Duration::from_secs),
            interval.map(Duration::from_secs),
        );
        assert_eq!(found, expected, "{agent}\n{file}");
    }
    let shared = RobotsFile::parse(yandex.as_bytes());
    assert_eq!(
        shared
            .decide("yandex", "/admin")
            .deciding_line
            .unwrap()
            .line,
        5,
        "no rule ends the list"
    );
}

#[test]
fn the_ruling_names_line_rule_and_group() {
    let parsed = RobotsFile::parse(
        b"User-agent: NewsBot\n  Disallow:  /x  # no\nUser-agent: *\nDisallow: /y\n",
    );
    let ruling = parsed.decide("newsbot", "/x/1");
    let cause = ruling.deciding_line.unwrap();
    assert_eq!(
        (cause.line, &*cause.text, ruling.group.as_deref()),
        (2, "Disallow:  /x", Some("NewsBot"))
    );
    assert_eq!(parsed.decide("other", "/z").group.as_deref(), Some("*"));
}
