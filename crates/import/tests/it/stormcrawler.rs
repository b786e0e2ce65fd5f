//! StormCrawler: the policy against the algorithm of its filters, written plainly; what is not converted.

use std::path::Path;

use crawlgate_import::{Import, ImportInput, MissingPart, PartOutcome, ReportList, System, import};
use crawlgate_policy::MemoryFileSystem;
use regex::Regex;
use serde_json::Map;

use super::support::{Directory, REQUESTS, compare_verdicts, import_texts, read_command};

#[test]
fn all_filters_must_pass() {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/import/stormcrawler/written");
    let files = Directory(root);
    let imported = import(
        System::StormCrawler,
        &read_command(&files, "urlfilters.json"),
    )
    .unwrap();
    let hosts = [
        "example.com",
        "shop.example.com",
        "www.example.org",
        "example.net",
        "a.b.example.com",
    ];
    let words = [
        "a",
        "b/",
        "cart/",
        "help",
        "print/",
        "calendar/",
        "2026/",
        "/",
        ".gif",
        ".ZIP",
        "?",
        "&",
        "sort=",
        "x",
    ];
    let mut random = fastrand::Rng::with_seed(4);
    let mut urls = Vec::new();
    while urls.len() < REQUESTS {
        let host = hosts[random.usize(..hosts.len())];
        let mut path = String::from("/");
        for _ in 0..random.usize(..7) {
            path.push_str(words[random.usize(..words.len())]);
        }
        let first = path.split('?').next().unwrap_or_default();
        // What a server may make of it is judged, too.
        if !first.contains("//") && !first.contains("/.") {
            urls.push((format!("http://{host}{path}"), Map::new()));
        }
    }
    let lines: Vec<(bool, Regex)> = [
        "-(?i)\\.(?:gif|zip)$",
        "-^https?://[^/]+/print/",
        "+^https?://(?:[a-z]+\\.)?example\\.(?:com|org)/",
    ]
    .iter()
    .map(|line| (line.starts_with('+'), Regex::new(&line[1..]).unwrap()))
    .collect();
    let calendar = Regex::new(r"/calendar/\d{4}/").unwrap();
    let announced = compare_verdicts(&imported, urls, |url, _| {
        let (authority, file) = url["http://".len()..].split_once('/').unwrap();
        let path = format!("/{}", file.split('?').next().unwrap());
        let parts: Vec<&str> = url.trim_end_matches('/').split('/').collect();
        let named = parts.iter().filter(|part| !part.is_empty());
        let most = named
            .map(|part| parts.iter().filter(|other| *other == part).count())
            .max();
        let short = url.len() <= 200 && (parts.len() <= 4 || most < Some(4));
        let line = lines.iter().find(|(_, regex)| regex.is_match(url));
        let regex = line.is_some_and(|(allows, _)| *allows);
        let cart = authority == "shop.example.com"
            && path.starts_with("/cart/")
            && !path.starts_with("/cart/help");
        let sorted = authority.ends_with("example.org")
            && (url.contains("?sort=") || url.contains("&sort="));
        short && regex && !cart && !sorted && !calendar.is_match(&path)
    });
    println!("{announced} announced");
}

#[test]
fn what_depends_on_the_page_is_not_converted() {
    for (class, params) in [
        (
            "host.HostURLFilter",
            r#"{ "ignoreOutsideHost": false, "ignoreOutsideDomain": true }"#,
        ),
        ("depth.MaxDepthFilter", r#"{ "maxDepth": 3 }"#),
        ("metadata.MetadataFilter", r#"{ "key": "value" }"#),
        ("own.Filter", "{}"),
    ] {
        let text = format!(
            r#"{{ "org.apache.stormcrawler.filtering.URLFilters": [ {{ "class": "org.apache.stormcrawler.filtering.{class}", "name": "x", "params": {params} }} ] }}"#
        );
        let imported = import_texts(System::StormCrawler, &[("urlfilters.json", &text)]);
        let mut parts = imported.report.list(ReportList::NotConverted).peekable();
        assert!(parts.peek().is_some(), "{class}");
        for part in parts {
            let lets_through = matches!(
                part.outcome(),
                Some(PartOutcome::NotConverted {
                    failure: MissingPart::LetsThrough,
                    ..
                })
            );
            assert!(lets_through, "{part:?}");
        }
    }
    let text = r#"{ "rules": [ { "scope": "metadata:a=b", "patterns": [ "DenyPath .+" ] } ] }"#;
    let imported = import_texts(System::StormCrawler, &[("fast.urlfilter.json", text)]);
    assert_eq!(imported.report.list(ReportList::NotConverted).count(), 4);
}

/// Every value of the document is a part.
#[test]
fn each_value_is_in_one_list() {
    fn count(value: &serde_json::Value) -> usize {
        let items = value.as_array().into_iter().flatten();
        let members = value.as_object().into_iter().flat_map(Map::values);
        let inner: usize = items.chain(members).map(count).sum();
        inner + 1
    }
    let text = r#"{ "rules": [ { "scope": "GLOBAL", "patterns": [ "DenyPath /a\"b", "AllowPath c", "x" ] },
        { "scope": "domain:example.com", "patterns": [], "other": { "n": [1, true, null] } } ] }"#;
    let imported = import_texts(System::StormCrawler, &[("fast.urlfilter.json", text)]);
    let expected = count(&serde_json::from_str(text).unwrap());
    let lists = ReportList::ALL.map(|list| imported.report.list(list).count());
    assert_eq!(lists.iter().sum::<usize>(), expected);
}

fn conf(lines: &str) -> Import {
    let imported = import_texts(System::StormCrawler, &[("crawler-conf.yaml", lines)]);
    assert_eq!(imported.divergences, [], "{lines}");
    imported
}

/// Returns the options of the policy, without white space.
fn options(lines: &str) -> String {
    let policy = conf(lines).files["policy.yaml"].clone();
    let rules = policy.find("\nrules:").or(policy.find("\ncases:"));
    policy[..rules.unwrap_or(policy.len())]
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn the_configuration_becomes_options() {
    for (lines, expected) in [
        ("a: 1", "delay: 1s, concurrency: 1, jitter: none"),
        ("a: 1", "crawl_delay_cap: 30s"),
        ("fetcher.server.delay: 0.5", "delay: 500ms, concurrency: 1"),
        (
            "fetcher.server.delay: 0.5\nfetcher.threads.per.queue: 3",
            "delay: 0s, concurrency: 3",
        ),
        (
            "fetcher.server.min.delay: 2\nfetcher.threads.per.queue: 3",
            "delay: 2s, concurrency: 3",
        ),
        ("fetcher.queue.mode: byIP", "key: address"),
        ("fetcher.queue.mode: byDomain", "key: registrable_domain"),
        ("fetcher.max.crawl.delay: 90", "crawl_delay_cap: 90s"),
        ("http.robots.file.skip: true", "obey: false"),
        ("http.robots.file.skip: \"true\"", "obey: false"),
        ("http.robots.5xx.allow: true", "on_unreachable: allow"),
        ("http.robots.5xx.allow: false", "on_unreachable: deny"),
        ("http.agent.name: Good-Bot", "agent: Good-Bot"),
        (
            "http.robots.agents: one-bot,two-bot\nhttp.agent.name: x",
            "agent: one-bot",
        ),
        (
            "fetchInterval.default: 1440",
            "recrawl: { min_interval: '1d' }",
        ),
        (
            "fetchInterval.fetch.error: 90",
            "recrawl: { after_error: 90m }",
        ),
        (
            "scheduler.class: x.AdaptiveScheduler\nfetchInterval.default: 5\nscheduler.adaptive.fetchInterval.min: 60",
            "recrawl: { min_interval: 1h }",
        ),
    ] {
        let options = options(lines);
        assert!(options.contains(expected), "{lines}: {expected}: {options}");
        let wrapped = format!("config:\n  {}", lines.replace('\n', "\n  "));
        assert_eq!(self::options(&wrapped), options, "{lines}");
    }
}

#[test]
fn keys_that_are_not_converted_are_reported() {
    for (line, expected) in [
        ("http.robots.403.allow: false", MissingPart::LetsThrough),
        ("http.agent.name: \"${name}\"", MissingPart::OtherSetting),
        ("http.agent.name: Bot 9", MissingPart::OtherSetting),
        ("http.content.limit: 65536", MissingPart::OtherSetting),
        ("fetchInterval.default: -1", MissingPart::LetsThrough),
        ("fetchInterval.default: daily", MissingPart::OtherSetting),
        ("fetchInterval.error: -1", MissingPart::LetsThrough),
        ("fetchInterval.isFeed=true: 10", MissingPart::KeepsOut),
        ("fetcher.maxThreads.a: 10", MissingPart::OtherSetting),
        (
            "urlfilters.config.file: missing.json",
            MissingPart::LetsThrough,
        ),
        (
            "urlfilters.config.file: /etc/passwd",
            MissingPart::LetsThrough,
        ),
        ("unheard.of: { a: [ 1, 2 ] }", MissingPart::LetsThrough),
    ] {
        let imported = conf(line);
        let missing: Vec<_> = imported.report.list(ReportList::NotConverted).collect();
        assert!(!missing.is_empty(), "{line}");
        for part in missing {
            let Some(PartOutcome::NotConverted { failure, .. }) = part.outcome() else {
                panic!("{line}: {part:?}");
            };
            assert_eq!(*failure, expected, "{line}");
        }
    }
}

#[test]
fn a_later_configuration_replaces_keys_and_filters_are_read_beside() {
    let files = MemoryFileSystem::new()
        .with_file("a/conf.yaml", b"config:\n  fetcher.server.delay: 5\n  urlfilters.config.file: f.json\n".as_slice())
        .with_file("a/more.yaml", b"fetcher.server.delay: 7\nhttp.proxy.pass: hunter2\n".as_slice())
        .with_file("a/f.json", br#"{ "org.apache.stormcrawler.filtering.URLFilters": [ { "class": "x.BasicURLFilter", "name": "b", "params": { "maxLength": 30 } } ] }"#.as_slice());
    let input = ImportInput::new(&files, ["a/conf.yaml", "a/more.yaml"]);
    let imported = import(System::StormCrawler, &input).unwrap();
    assert!(imported.report.is_complete());
    let policy = &imported.files["policy.yaml"];
    assert!(policy.contains("delay: 7s"), "{policy}");
    assert!(policy.contains("length: '[31:]'"), "{policy}");
    assert_eq!(imported.report.list(ReportList::Dead).count(), 1);
    assert!(!imported.report.to_json().to_string().contains("hunter2"));
    assert_eq!(System::recognize(&input).unwrap(), [System::StormCrawler]);
    // Each key is one part; the filters have their own.
    let of_conf = |part: &&crawlgate_import::ReportedPart| part.place.file.ends_with("yaml");
    assert_eq!(imported.report.parts().iter().filter(of_conf).count(), 5);
}

#[test]
fn hostile_configurations_end_with_an_error_or_a_report() {
    for text in [
        "",
        "5",
        "[",
        "- a",
        "config:",
        "config: 5",
        "config: {}",
        "a: &a [ *a ]",
        "fetcher.server.delay: -1e99",
        "fetchInterval.default: 99999999999999999999",
    ] {
        let files = MemoryFileSystem::new().with_file("a", text.as_bytes());
        let _ = import(System::StormCrawler, &ImportInput::new(&files, ["a"]));
    }
}
