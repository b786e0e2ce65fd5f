//! Nutch: the policy against the algorithm of its filters, written plainly; its own samples; what is not converted.

use std::fs;
use std::path::{Path, PathBuf};

use crawlgate_import::{
    AssumptionEffect, ImportInput, MissingPart, PartOutcome, ReportList, System, import,
};
use crawlgate_policy::internal::policy::cases::CaseFacts;
use regex::Regex;
use serde_json::{Map, Value as Json};

use super::support::{
    Directory, REQUESTS, compare_verdicts, compiled, import_texts, read_command, regex_fits,
};

fn directory(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/import/nutch");
    root.join(name)
}

/// Each URL of Nutch's samples has the expected answer before it.
#[test]
fn the_samples_of_nutch_pass() {
    let mut compared = 0;
    for name in [
        "sample-intranet",
        "sample-wholeweb",
        "sample-nutch1838",
        "automaton-intranet",
        "automaton-wholeweb",
        "fast",
    ] {
        let files = Directory(directory(name));
        let words = fs::read_to_string(files.0.join("command")).unwrap();
        let imported = import(System::Nutch, &read_command(&files, &words)).unwrap();
        let policy = compiled(&imported);
        let urls = fs::read_to_string(files.0.join("expected.urls")).unwrap();
        for line in urls.lines().filter(|line| !line.is_empty()) {
            let (expected, url) = line.split_at(1);
            let Ok(facts) = CaseFacts::for_url(url) else {
                // Another scheme, which the proxy never fetches.
                assert!(!url.starts_with("http"), "{url}");
                continue;
            };
            let (_, decision) = policy.decide_every_rule(&facts.facts());
            assert_eq!(decision.rejects(), expected == "-", "{name}: {line}");
            compared += 1;
        }
    }
    assert_eq!(compared, 37);
}

/// Makes URLs of words that the files have.
fn urls(words: &[&str], hosts: &[&str]) -> Vec<(String, Map<String, Json>)> {
    let mut random = fastrand::Rng::with_seed(9);
    let mut made = Vec::new();
    while made.len() < REQUESTS {
        let scheme = ["http", "https"][random.usize(..2)];
        let host = hosts[random.usize(..hosts.len())];
        let mut path = String::from("/");
        for _ in 0..random.usize(..6) {
            path.push_str(words[random.usize(..words.len())]);
        }
        let first = path.split('?').next().unwrap_or_default();
        // What a server may make of it is judged, too.
        if first.contains("//") || first.contains("/.") || first.contains(';') {
            continue;
        }
        made.push((format!("{scheme}://{host}{path}"), Map::new()));
    }
    made
}

const HOSTS: &[&str] = &[
    "example.com",
    "www.example.com",
    "shop.example.com",
    "a.tracker.example.com",
    "xexample.com",
    "blog.example.org",
    "example.org",
    "uni.edu",
    "www.example.com:8080",
];

const WORDS: &[&str] = &[
    "a",
    "b/",
    "archive/",
    "2026/",
    "2025/",
    "cart/",
    "basket/",
    "calendar/",
    "en/",
    "/",
    ".gif",
    ".GIF",
    ".html",
    "?",
    "&",
    "sort=",
    "print=1",
    "x",
    "=",
    "sessionid",
    "skip",
    "zip",
];

#[test]
fn the_first_line_that_fits_decides() {
    const FILTER: &str = "-(?i)\\.(?:gif|zip)$\n-[!@*]\n> www.example.com\n-/archive/\n+skip\n<\n> example.org\n-a\n<\n+^https?://([a-z0-9]*\\.)*example\\.(?:com|org)/\n-.\n";
    let imported = import_texts(System::Nutch, &[("regex-urlfilter.txt", FILTER)]);
    let announced = compare_verdicts(&imported, urls(WORDS, HOSTS), |url, _| {
        let host = url.split('/').nth(2).unwrap().split(':').next().unwrap();
        let mut block = None;
        for line in FILTER.lines() {
            match line.split_at(1) {
                (">", name) => block = Some(name.trim()),
                ("<", _) => block = None,
                (sign, regex) => {
                    let labels: Vec<&str> = host.rsplit('.').take(2).collect();
                    let domain = format!("{}.{}", labels[1], labels[0]);
                    let applies = block.is_none_or(|name| name == host || name == domain);
                    if applies && regex_fits(regex, url) {
                        return sign == "+";
                    }
                }
            }
        }
        false
    });
    assert_eq!(announced, 0);
}

/// All filters of a site must pass.
#[test]
fn all_filters_of_a_site_must_pass() {
    let files = Directory(directory("site"));
    let imported = import(System::Nutch, &read_command(&files, "nutch-site.xml")).unwrap();
    let cart = Regex::new("^/(?:cart|basket)/").unwrap();
    let calendar = Regex::new(r"/calendar/\d{4}/").unwrap();
    let archive = Regex::new(r"/archive/(2026/)?").unwrap();
    let announced = compare_verdicts(&imported, urls(WORDS, HOSTS), |url, _| {
        let authority = url.split('/').nth(2).unwrap();
        let host = authority.split(':').next().unwrap();
        let file = &url[url.find(authority).unwrap() + authority.len()..];
        let path = file.split('?').next().unwrap();
        let domain = host.ends_with(".example.com")
            || host == "example.com"
            || host == "blog.example.org"
            || host.ends_with(".edu");
        let prefix = url.starts_with("http://")
            || url.starts_with("https://www.example.com/")
            || url.starts_with("https://shop.example.com/en/");
        let first_archive = file.find("/archive/").filter(|_| host == "www.example.com");
        // `^https?://[^/]+/archive/`: directly after the host.
        let old =
            first_archive == Some(0) && !archive.find(file).unwrap().as_str().ends_with("2026/");
        let regex = !old && !url.to_lowercase().contains(";jsessionid=");
        let automaton = !url.contains("?print=1") && !url.contains("&print=1");
        let fast = !(host == "shop.example.com"
            && (cart.is_match(path) || file.contains("?sort=") || file.contains("&sort="))
            || host.ends_with("tracker.example.com")
            || calendar.is_match(path))
            && url.len() <= 1_000;
        domain && prefix && regex && automaton && fast
    });
    assert_eq!(announced, 0);
}

/// Suffixes, in all combinations of the modes.
#[test]
fn suffixes_are_compared_as_their_modes_say() {
    for (mode, allows_others, path_only, ignores_case) in [
        ("+IP", true, true, true),
        ("+I", true, false, true),
        ("+P", true, true, false),
        ("-", false, false, false),
        ("-IP", false, true, true),
    ] {
        let text = format!("# comment\n{mode}\n.gif\n.html\nx\n");
        let imported = import_texts(System::Nutch, &[("suffix-urlfilter.txt", &text)]);
        let urls = urls(WORDS, HOSTS).into_iter().take(REQUESTS / 5);
        let announced = compare_verdicts(&imported, urls, |url, _| {
            let mut text = url.to_owned();
            if path_only {
                let file = url.splitn(4, '/').nth(3).unwrap();
                text = format!("/{}", file.split('?').next().unwrap());
            }
            if ignores_case {
                text = text.to_lowercase();
            }
            let fits = [".gif", ".html", "x"]
                .iter()
                .any(|suffix| text.ends_with(suffix));
            fits != allows_others
        });
        assert_eq!(announced, 0, "{mode}");
    }
}

#[test]
fn domains_hosts_and_suffixes_are_told_apart() {
    const LIST: &str = "# comment\nexample.com\nblog.example.org\nedu\n";
    for (name, denies) in [
        ("domain-urlfilter.txt", false),
        ("domaindenylist-urlfilter.txt", true),
    ] {
        let imported = import_texts(System::Nutch, &[(name, LIST)]);
        let urls = urls(WORDS, HOSTS).into_iter().take(REQUESTS / 2);
        compare_verdicts(&imported, urls, |url, _| {
            let host = url.split('/').nth(2).unwrap().split(':').next().unwrap();
            let found = host == "example.com"
                || host.ends_with(".example.com")
                || host == "blog.example.org"
                || host.ends_with(".edu");
            found != denies
        });
    }
}

/// Every line but comments and empty ones is a part.
#[test]
fn each_line_is_in_one_list() {
    for name in [
        "sample-wholeweb",
        "template",
        "suffix",
        "fast",
        "automaton-intranet",
    ] {
        let files = Directory(directory(name));
        let words = fs::read_to_string(files.0.join("command")).unwrap();
        let first = words.split_whitespace().next().unwrap();
        let text = fs::read_to_string(files.0.join(first)).unwrap();
        let is_rule = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
        let expected = text.lines().filter(is_rule).count();
        let imported = import(System::Nutch, &ImportInput::new(&files, [first])).unwrap();
        let lists = ReportList::ALL.map(|list| imported.report.list(list).count());
        assert_eq!(lists.iter().sum::<usize>(), expected, "{name}");
    }
}

#[test]
fn what_is_not_converted_is_named() {
    for (text, failure) in [
        ("-a(?!b)c.*d\n+.\n", MissingPart::LetsThrough),
        ("+a(?!b)c.*d\n-.\n", MissingPart::KeepsOut),
        ("-(\\w+)=\\1\n+.\n", MissingPart::LetsThrough),
        ("-a**\n+.\n", MissingPart::LetsThrough),
    ] {
        let imported = import_texts(System::Nutch, &[("regex-urlfilter.txt", text)]);
        assert!(!imported.report.is_complete(), "{text}");
        let part = imported
            .report
            .list(ReportList::NotConverted)
            .next()
            .unwrap();
        assert!(
            matches!(part.outcome(), Some(PartOutcome::NotConverted { failure: found, .. }) if *found == failure),
            "{part:?}"
        );
        assert!(imported.files["policy.yaml"].contains("# not converted: "));
    }
    for (name, value, failure) in [
        ("db.ignore.external.links", "true", MissingPart::LetsThrough),
        ("db.max.outlink.length", "100", MissingPart::LetsThrough),
        ("generate.max.count", "10", MissingPart::LetsThrough),
        ("http.robots.403.allow", "false", MissingPart::LetsThrough),
        ("http.content.limit", "65536", MissingPart::OtherSetting),
        ("urlfilter.regex.rules", "-.", MissingPart::LetsThrough),
        ("something.unknown", "1", MissingPart::LetsThrough),
        (
            "fetcher.server.delay",
            "${unknown}",
            MissingPart::OtherSetting,
        ),
    ] {
        let site = format!(
            "<configuration><property><name>{name}</name><value>{value}</value></property></configuration>"
        );
        let imported = import_texts(System::Nutch, &[("nutch-site.xml", &site)]);
        let parts: Vec<_> = imported.report.list(ReportList::NotConverted).collect();
        assert_eq!(parts.len(), 3, "{name}: {parts:?}");
        for part in parts {
            assert!(
                matches!(part.outcome(), Some(PartOutcome::NotConverted { failure: found, .. }) if *found == failure),
                "{part:?}"
            );
        }
    }
    let normalizer = "<regex-normalize><regex><pattern>(?&lt;!:)/{2,}</pattern><substitution>/</substitution></regex></regex-normalize>";
    let imported = import_texts(System::Nutch, &[("regex-normalize.xml", normalizer)]);
    assert!(!imported.report.is_complete());
}

/// The announced assumption about repeated segments is shown by a URL: the policy refuses more.
#[test]
fn repeated_segments_are_refused_wherever_they_are() {
    let filter = "-.*(/[^/]+)/[^/]+\\1/[^/]+\\1/\n+.\n";
    let imported = import_texts(System::Nutch, &[("regex-urlfilter.txt", filter)]);
    let (_, effect) = imported.report.assumption_of("line-1").unwrap();
    assert_eq!(effect, AssumptionEffect::RefusesMore);
    let policy = compiled(&imported);
    let refuses = |url: &str| {
        let facts = CaseFacts::for_url(url).unwrap();
        policy.decide_every_rule(&facts.facts()).1.rejects()
    };
    assert!(refuses("http://h.example/a/b/a/c/a/"));
    // Nutch allows this one.
    assert!(refuses("http://h.example/a/a/a/"));
    assert!(!refuses("http://h.example/a/b/a/c/"));
}

/// A secret is named, but not shown.
#[test]
fn secrets_are_not_written() {
    let files = Directory(directory("site"));
    let imported = import(System::Nutch, &read_command(&files, "nutch-site.xml")).unwrap();
    let written = format!(
        "{:?} {} {}",
        imported.files,
        imported.settings,
        imported.report.to_json()
    );
    assert!(!written.contains("not-a-real-secret"));
    assert!(written.contains("http.proxy.password"));
}
