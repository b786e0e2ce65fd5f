//! Canonical targets: the scan against `url::Url`, and both against the tests of the web platform.

mod generate;

use std::io::BufRead;

use crawlgate::urls::target::{HostTarget, Scheme, TargetError, UrlTarget, canonical_host};
use fastrand::Rng;
use generate::random_url;

/// 100,000 URLs, most of them almost canonical: the scan and the full parser must agree on each.
#[test]
fn the_scan_equals_the_parser_on_100_000_urls() {
    let mut rng = Rng::with_seed(7);
    let mut fast = 0;
    let mut refused = 0;
    for _ in 0..100_000 {
        let input = random_url(&mut rng);
        let parsed = UrlTarget::parse_with_url(&input);
        if let Some(scanned) = UrlTarget::from_scan(&input) {
            fast += 1;
            assert_eq!(Ok(&scanned), parsed.as_ref(), "{input:?}");
        }
        assert_eq!(UrlTarget::parse(&input), parsed, "{input:?}");
        let Ok(target) = parsed else {
            refused += 1;
            continue;
        };
        assert_eq!(
            UrlTarget::parse(target.as_str()).as_ref(),
            Ok(&target),
            "canonical twice: {input:?}"
        );
        check_parts(&target);
    }
    println!("{fast} of 100000 by the scan alone, {refused} refused");
    assert!(
        (20_000..80_000).contains(&fast),
        "{fast}: both ways must be walked"
    );
    assert!(
        (5_000..60_000).contains(&refused),
        "{refused}: mistakes must occur, and not drown the rest"
    );
}

/// Every part equals that of `url`.
fn check_parts(target: &UrlTarget) {
    let url = url::Url::parse(target.as_str()).unwrap();
    assert_eq!(target.as_str(), url.as_str());
    assert_eq!(target.host(), url.host_str().unwrap());
    assert_eq!(Some(target.port()), url.port_or_known_default());
    assert_eq!(target.path(), url.path());
    assert_eq!(target.query(), url.query().unwrap_or(""));
    assert_eq!(target.scheme().as_str(), url.scheme());
    assert_eq!(target.authority(), url.authority());
    let http: http::Uri = target
        .as_str()
        .parse()
        .unwrap_or_else(|e| panic!("{target:?} is no Uri: {e}"));
    assert_eq!(
        http.path_and_query().unwrap().as_str(),
        target.path_and_query()
    );
    assert_eq!(
        target.as_str(),
        format!("{}{}", target.base(), &target.path_and_query()[1..])
    );
}

/// Hosts and ports that the web platform accepts and the proxy does not; other refusals are those of [`INTENDED`].
const STRICTER: [&str; 10] = [
    "http://f:0/c",
    "http://f:00000000000000/c",
    "http://%30%78%63%30%2e%30%32%35%30.01",
    "http://%30%78%63%30%2e%30%32%35%30.01%2e",
    "http://./",
    "http://../",
    "http://!\"$&'()*+,-.;=_`{}~/",
    "https://%e2%98%83",
    "http://foo.09..",
    "https://a%C2%ADb/",
];

/// Errors that a browser fixes or allows, and a proxy must not.
const INTENDED: [&str; 7] = [
    "not_absolute",
    "scheme",
    "userinfo",
    "fragment",
    "space",
    "control",
    "backslash",
];

/// The URL tests of the web platform: accepted URLs have the standard's form, and URLs that it refuses are refused.
#[test]
fn the_web_platform_tests_agree() {
    let path = std::env::var("CRAWLGATE_DATA").unwrap_or_else(|_| "../shared/data".into())
        + "/url_wpt.jsonl";
    let Ok(file) = std::fs::File::open(&path) else {
        assert!(
            std::env::var_os("CI").is_none(),
            "{path} is missing, and CI must not go without it"
        );
        println!("SKIPPED: no {path}; set CRAWLGATE_DATA to the folder that holds it");
        return;
    };
    let mut rows = 0;
    let mut accepted = 0;
    let mut refused = 0;
    let mut stricter = 0;
    let mut canonical = 0;
    for line in std::io::BufReader::new(file).lines() {
        let row: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        let input = row["input"].as_str().unwrap();
        let href = row["href"].as_str();
        rows += 1;
        canonical += usize::from(href.is_some_and(reads_again));
        if row["base"].is_string() && !is_absolute(input) {
            continue; // A request has no base to start from.
        }
        assert_eq!(
            UrlTarget::parse(input),
            UrlTarget::parse_with_url(input),
            "{input:?}"
        );
        match (UrlTarget::parse(input), href) {
            (Ok(target), Some(href)) => {
                accepted += 1;
                let undotted = href.replacen(&format!("{}.", target.host()), target.host(), 1);
                assert!(
                    [href, &undotted].contains(&target.as_str()),
                    "{input:?}: {target:?}, not {href}"
                );
            }
            (Ok(target), None) => panic!("{input:?} must fail and gives {target:?}"),
            (Err(_), None) => refused += 1,
            (Err(mistake), Some(_)) => {
                stricter += 1;
                let meant = INTENDED.contains(&mistake.kind_name()) || STRICTER.contains(&input);
                assert!(meant, "{input:?} is refused without need: {mistake}");
            }
        }
    }
    println!(
        "{} of {rows} rows asked as they are",
        accepted + refused + stricter
    );
    println!(
        "{accepted} as the standard, {refused} refused by both, {stricter} refused by us alone"
    );
    println!("{canonical} results of http and https read again");
    assert!(accepted > 80, "{accepted} {refused} {canonical}");
    assert!(refused > 200, "{accepted} {refused} {canonical}");
    assert!(canonical > 150, "{accepted} {refused} {canonical}");
}

/// Returns `true` if the input needs no base; RFC 3986 section 3.1.
fn is_absolute(input: &str) -> bool {
    input.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme
                .bytes()
                .all(|b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    })
}

/// A result of the standard is canonical, apart from its fragment: an accepted one stays the same.
fn reads_again(href: &str) -> bool {
    let href = href.split('#').next().unwrap();
    assert_eq!(
        UrlTarget::parse(href),
        UrlTarget::parse_with_url(href),
        "{href:?}"
    );
    let target = UrlTarget::parse(href);
    target.iter().for_each(check_parts);
    target.is_ok()
}

/// RFC 9110 section 4.2.3.
#[test]
fn an_empty_port_is_the_default_port() {
    for (input, canonical) in [
        ("http://h:/", "http://h/"),
        ("http://h:", "http://h/"),
        ("https://h:?q", "https://h/?q"),
        ("http://[::1]:/x", "http://[::1]/x"),
        ("http://h.:/", "http://h/"),
    ] {
        assert_eq!(
            UrlTarget::parse(input).unwrap().as_str(),
            canonical,
            "{input}"
        );
    }
}

#[test]
fn mistakes_have_names() {
    for (input, kind) in [
        ("/path", "not_absolute"),
        ("http:h/x", "not_absolute"),
        ("http:/h/x", "not_absolute"),
        ("ftp://h/", "scheme"),
        ("http://u:p@h/", "userinfo"),
        ("http://@h/", "userinfo"),
        ("http://h/#", "fragment"),
        ("http://h/a b", "space"),
        ("http://h/a\tb", "control"),
        ("http://h/\u{7f}", "control"),
        ("http://h\\@evil/", "backslash"),
        ("http://h/a\\b", "backslash"),
        ("http://h:99999/", "port"),
        ("http://h:0/", "port"),
        ("http://h:80x/", "port"),
        ("http:///x", "empty_host"),
        ("http:////h/", "empty_host"),
        ("http://?x", "empty_host"),
        ("http://:80/", "empty_host"),
        ("http://h\u{b}/", "control"),
        ("\thttp://h/", "control"),
        (" http://h/", "space"),
        ("http://h/ ", "space"),
        ("", "not_absolute"),
        ("*", "not_absolute"),
        ("//h/a", "not_absolute"),
        ("h:443", "not_absolute"),
        ("/r?u=http://h/", "not_absolute"),
        ("\u{feff}http://h/", "not_absolute"),
        ("ws://h/", "scheme"),
        ("http://h:65536/", "port"),
        ("http://h:-1/", "port"),
        ("http://h:８０/", "port"),
        ("http://:/", "empty_host"),
        ("http://[::", "host"),
        ("http://1.2.3.4../", "host"),
        ("http://0x7f.1../", "host"),
        ("http://foo.0x4/", "host"),
        ("http://09.2.3.4/", "host"),
        ("http://h／x/", "host"),
        ("http://h％41/", "host"),
        ("http://xn--example-.org/", "host"),
        ("http://./", "host"),
        ("http://a..b/", "host"),
        ("http://h../", "host"),
        ("http://[::1%25eth0]/", "host"),
        ("http://[h]/", "host"),
        ("http://h%41/", "host"),
        ("http://1.2.3.256/", "host"),
        ("http://xn--a/", "host"),
    ] {
        let error: TargetError = UrlTarget::parse(input).expect_err(input);
        assert_eq!(error.kind_name(), kind, "{input:?}: {error}");
    }
}

/// An error is shown on terminals and in responses: it must not contain active characters.
#[test]
fn mistakes_are_plain_text() {
    for input in [
        "http://\u{202e}moc/",
        "http://a\u{9b}31mb/",
        "http://a\u{85}b/",
        "\u{202e}x://h/",
    ] {
        let shown = UrlTarget::parse(input).expect_err(input).to_string();
        assert!(shown.is_ascii(), "{shown:?}");
    }
}

#[test]
fn one_form_for_every_spelling() {
    for (input, canonical) in [
        ("HTTP://EXAMPLE.COM", "http://example.com/"),
        ("http://example.com:80/", "http://example.com/"),
        ("https://example.com:443?q", "https://example.com/?q"),
        ("http://example.com.:8080/a", "http://example.com:8080/a"),
        ("http://h/a/%2e%2e/b/./c/..", "http://h/b/"),
        ("http://h/a/%2E/b", "http://h/a/b"),
        ("http://h/a/.%2E/b", "http://h/b"),
        ("http://h/..", "http://h/"),
        ("http://h/.well-known/x", "http://h/.well-known/x"),
        ("http://example.com.:00080", "http://example.com/"),
        ("http://1.2.3.4.", "http://1.2.3.4/"),
        ("http://h/?'", "http://h/?%27"),
        ("http://h/é?ü", "http://h/%C3%A9?%C3%BC"),
        ("http://h/<\"`{}>", "http://h/%3C%22%60%7B%7D%3E"),
        ("http://bücher.de/", "http://xn--bcher-kva.de/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://[0:0::1]/", "http://[::1]/"),
        ("http://h//a//b", "http://h//a//b"),
        ("http://h/%7e%2F", "http://h/%7e%2F"),
        ("http://h/?", "http://h/?"),
    ] {
        assert_eq!(
            UrlTarget::parse(input).unwrap().as_str(),
            canonical,
            "{input}"
        );
    }
}

#[test]
fn hosts_and_authorities() {
    for (text, host) in [
        ("FOO.com.", "foo.com"),
        ("::1", "[::1]"),
        ("[::1]", "[::1]"),
        ("0x7f.1", "127.0.0.1"),
    ] {
        assert_eq!(canonical_host(text).as_deref(), Ok(host));
    }
    for bad in [
        "",
        "a/b",
        "a@b",
        "a:80",
        "[::1]:80",
        "a b",
        "a?b",
        "a#",
        "1.2.3.4..",
        "*.a",
        "::1%eth0",
    ] {
        assert!(canonical_host(bad).is_err(), "{bad}");
    }
    for (text, host, port, authority) in [
        ("EXAMPLE.com:443", "example.com", 443, "example.com"),
        ("example.com.:80", "example.com", 80, "example.com:80"),
        ("h:00443", "h", 443, "h"),
        ("0x7f.1:8443", "127.0.0.1", 8443, "127.0.0.1:8443"),
        ("[0::1]:443", "[::1]", 443, "[::1]"),
        ("bücher.de:443", "xn--bcher-kva.de", 443, "xn--bcher-kva.de"),
    ] {
        let target = HostTarget::parse_authority(text).unwrap();
        assert_eq!(target.host(), host, "{text}");
        assert_eq!(target.port(), port, "{text}");
        assert_eq!(target.authority(), authority, "{text}");
        assert_eq!(target.scheme(), Scheme::Https);
        assert_eq!(
            target.ip().is_some(),
            host.starts_with(['[', '1']),
            "{text}"
        );
    }
    for (bad, kind) in [
        ("h", "port"),
        ("h:", "port"),
        ("h:0", "port"),
        ("h:65536", "port"),
        ("h:80/x", "port"),
        ("h:+80", "port"),
        ("h:443#", "port"),
        ("h/x:443", "host"),
        ("h?x:443", "host"),
        // Two ports: either could be the port of the host.
        ("h:80:443", "host"),
        ("[::1]:80:443", "host"),
        ("::1:443", "host"),
        ("u@h:80", "userinfo"),
        ("[u]:80@[h]:443", "userinfo"),
        ("h#:443", "fragment"),
        ("h\\:443", "backslash"),
        ("h :443", "space"),
        ("[::1%25eth0]:443", "host"),
        ("1.2.3.4..:443", "host"),
        (":80", "empty_host"),
        (":443", "empty_host"),
    ] {
        assert_eq!(
            HostTarget::parse_authority(bad).map_err(|e| e.kind_name()),
            Err(kind),
            "{bad}"
        );
    }
}

/// The parts of one URL with everything, as the documented fields.
#[test]
fn parts_are_views_of_the_text() {
    let url = "https://www.example.com:8443/folder/products?sort=name&o=a%20b+c&sort=%ff&flag";
    let target = UrlTarget::parse(url).unwrap();
    assert_eq!(target.as_str(), url);
    assert_eq!(
        (target.scheme(), target.host(), target.port()),
        (Scheme::Https, "www.example.com", 8443)
    );
    assert_eq!(target.authority(), "www.example.com:8443");
    assert_eq!(target.base(), "https://www.example.com:8443/");
    assert_eq!(target.path(), "/folder/products");
    assert_eq!(target.query(), "sort=name&o=a%20b+c&sort=%ff&flag");
    assert_eq!(
        target.path_and_query(),
        "/folder/products?sort=name&o=a%20b+c&sort=%ff&flag"
    );
    assert_eq!(
        Some(target.authority_path_query()),
        url.strip_prefix("https://")
    );
    let params: Vec<_> = target
        .params()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(params, ["sort=name", "o=a b c", "sort=\u{fffd}", "flag="]);
    assert_eq!(
        target.host_target(),
        HostTarget::parse_authority("www.example.com:8443").unwrap()
    );
    assert_eq!(target.ip(), None);
}

/// The second reading keeps all but the path, and is there only if it differs.
#[test]
fn readings_by_lax_servers() {
    for (url, expected) in [
        (
            "http://h:8080/%63gi-bin/x",
            "decoded http://h:8080/cgi-bin/x",
        ),
        ("http://h/x?%63=d", "decoded http://h/x?c=d"),
        ("http://h/?%63", "decoded http://h/?c"),
        ("http://h/a%2f..%2fb", "decoded http://h/b"),
        ("http://h/a/%2e%2e%5cb", "decoded http://h/b"),
        ("http://h/%252e%252e/x", "decoded_twice http://h/x"),
        (
            "http://h/a%3Bb",
            "decoded http://h/a;b, without_parameters http://h/a",
        ),
        ("http://h/a;b/c?d", "without_parameters http://h/a/c?d"),
        ("http://h//x", "decoded http://h/x"),
        ("http://h/a%20b%C3%A9?c%26", ""),
        ("http://h/100%", ""),
        ("http://h/a?//;", ""),
    ] {
        let target = UrlTarget::parse(url).unwrap();
        let readings: Vec<String> = target
            .readings()
            .iter()
            .map(|(reading, url)| format!("{} {url:?}", reading.as_str()))
            .collect();
        assert_eq!(readings.join(", "), expected, "{url}");
        assert_eq!(target.has_readings(), !expected.is_empty(), "{url}");
        let by_parser = UrlTarget::parse_with_url(url).unwrap();
        assert_eq!(by_parser.has_readings(), target.has_readings(), "{url}");
    }
}

/// A query may contain backslashes (URL standard), which Chromium, curl and Node send as they are.
#[test]
fn a_backslash_in_the_query_is_escaped() {
    let target = UrlTarget::parse(r"http://h/x?p=C:\x\y").unwrap();
    assert_eq!(target.as_str(), "http://h/x?p=C:%5Cx%5Cy");
    for url in [
        r"http://h\x/",
        r"http://h/a\b",
        r"http:\h/?x",
        r"http://h/a\b?c",
    ] {
        let error = UrlTarget::parse(url).unwrap_err();
        assert_eq!(error.kind_name(), "backslash", "{url}");
    }
}
