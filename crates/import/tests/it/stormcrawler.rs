//! StormCrawler: the policy against the algorithm of its filters, written plainly; what is not converted.

use std::path::Path;

use crawlgate_import::{MissingPart, PartOutcome, ReportList, System, import};
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
