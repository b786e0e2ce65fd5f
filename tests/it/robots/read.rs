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
        ("b", Some(2500)),
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
