//! Nutch: the policy against the algorithm of its filters, written plainly; its own samples; what is not converted.

use std::fs;
use std::path::{Path, PathBuf};

use crawlgate_import::{
    AssumptionEffect, Import, ImportInput, MissingPart, PartOutcome, ReportList, System, import,
};
use crawlgate_policy::MemoryFileSystem;
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

fn site_of(properties: &[(&str, &str)]) -> String {
    let property = |(name, value): &(&str, &str)| {
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    let properties: String = properties.iter().map(property).collect();
    format!("<configuration>{properties}</configuration>")
}

/// Returns the reasons why parts are not converted, each once.
fn reasons(imported: &Import) -> Vec<(String, MissingPart)> {
    let parts = imported.report.list(ReportList::NotConverted);
    let mut found: Vec<(String, MissingPart)> = parts
        .filter_map(|part| match part.outcome() {
            Some(PartOutcome::NotConverted { why, failure, .. }) => Some((why.clone(), *failure)),
            _ => None,
        })
        .collect();
    found.dedup();
    found
}

/// A filter that is in use and has no file is announced: without it the policy lets through what it refuses.
#[test]
fn a_filter_without_its_file_is_announced() {
    let site = site_of(&[
        ("plugin.includes", "protocol-http|urlfilter-(regex|domain)"),
        ("urlfilter.regex.file", "my-filter.txt"),
    ]);
    let domains = ("domain-urlfilter.txt", "example.com\n");
    let imported = import_texts(System::Nutch, &[("nutch-site.xml", &site), domains]);
    let found = reasons(&imported);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0.contains("my-filter.txt"), "{found:?}");
    assert_eq!(found[0].1, MissingPart::LetsThrough);

    // Without the property the file has its usual name.
    let site = site_of(&[("plugin.includes", "urlfilter-(regex|domain)")]);
    let imported = import_texts(System::Nutch, &[("nutch-site.xml", &site), domains]);
    let found = reasons(&imported);
    assert!(found[0].0.contains("regex-urlfilter.txt"), "{found:?}");
    assert_eq!(found[0].1, MissingPart::LetsThrough);

    // A plugin that Nutch uses by default is said to have no file.
    let site = site_of(&[("fetcher.server.delay", "1")]);
    let imported = import_texts(System::Nutch, &[("nutch-site.xml", &site)]);
    let (text, effect) = imported.report.assumption_of("disposition").unwrap();
    assert!(text.contains("regex-urlfilter.txt"), "{text}");
    assert_eq!(effect, AssumptionEffect::RefusesLess);

    // The same for the normalizer, which changes no verdict.
    let site = site_of(&[
        ("plugin.includes", "urlfilter-domain|urlnormalizer-regex"),
        ("urlnormalizer.regex.file", "my-normalize.xml"),
    ]);
    let imported = import_texts(System::Nutch, &[("nutch-site.xml", &site), domains]);
    let found = reasons(&imported);
    assert!(found[0].0.contains("my-normalize.xml"), "{found:?}");
    assert_eq!(found[0].1, MissingPart::OtherSetting);
}

/// The filters of a site that are named in the command do not hide those that are not.
#[test]
fn a_filter_that_is_not_named_is_read_or_announced() {
    let site = site_of(&[("plugin.includes", "urlfilter-(regex|domain|prefix)")]);
    let files = MemoryFileSystem::new()
        .with_file("nutch-site.xml", site.as_bytes())
        .with_file("regex-urlfilter.txt", b"+.\n")
        .with_file("domain-urlfilter.txt", b"example.com\n");
    let input = ImportInput::new(&files, ["nutch-site.xml", "regex-urlfilter.txt"]);
    let imported = import(System::Nutch, &input).unwrap();
    assert!(imported.files["policy.yaml"].contains("require: { domain: example.com }"));
    let found = reasons(&imported);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0.contains("prefix-urlfilter.txt"), "{found:?}");
}

#[test]
fn filters_that_are_not_known_are_announced() {
    let regex = ("regex-urlfilter.txt", "+.\n");
    for (includes, names) in [
        (
            "urlfilter-(regex|mycustom|ignoreexempt)",
            &["urlfilter-mycustom", "urlfilter-ignoreexempt"][..],
        ),
        (
            "urlfilter-regex|(?:my-)?urlfilter-other",
            &["urlfilter-other"],
        ),
        ("urlfilter-(regex|validator)|protocol-.*", &[]),
        ("urlfilter-.*", &["urlfilter-.*"]),
        ("urlfilter-regex|.*", &[".*"]),
    ] {
        let site = site_of(&[("plugin.includes", includes)]);
        let imported = import_texts(System::Nutch, &[("nutch-site.xml", &site), regex]);
        let found = reasons(&imported);
        assert_eq!(found.is_empty(), names.is_empty(), "{includes}: {found:?}");
        for name in names {
            assert!(found[0].0.contains(name), "{includes}: {found:?}");
            assert_eq!(found[0].1, MissingPart::LetsThrough);
        }
    }
    // A plugin that is excluded is not used.
    let site = site_of(&[
        ("plugin.includes", "urlfilter-(regex|mycustom)"),
        ("plugin.excludes", "urlfilter-my.*"),
    ]);
    let imported = import_texts(System::Nutch, &[("nutch-site.xml", &site), regex]);
    assert_eq!(reasons(&imported), []);
}

#[test]
fn the_depth_counts_only_with_its_plugin() {
    for (includes, has_depth) in [
        (Some("urlfilter-regex|scoring-(opic|depth)"), true),
        (Some("urlfilter-regex|scoring-opic"), false),
        (None, false),
    ] {
        let mut properties = vec![("scoring.depth.max", "3")];
        properties.extend(includes.map(|includes| ("plugin.includes", includes)));
        let site = site_of(&properties);
        let regex = ("regex-urlfilter.txt", "+.\n");
        let imported = import_texts(System::Nutch, &[("nutch-site.xml", &site), regex]);
        let policy = &imported.files["policy.yaml"];
        assert_eq!(policy.contains("max_depth"), has_depth, "{policy}");
        assert_eq!(reasons(&imported), []);
    }
}

/// Expressions with characters that a URL has only escaped are announced.
#[test]
fn characters_that_no_url_has_are_announced() {
    for line in [
        "+^https?://([a-z0-9]*\\.)*apache.org/ ",
        "+\\.pdf#",
        "-é",
        "-\\\\",
        "-a b",
        "-[<>\"]",
    ] {
        let text = format!("{line}\n-b\n+.\n");
        let imported = import_texts(System::Nutch, &[("regex-urlfilter.txt", &text)]);
        assert_eq!(imported.divergences, [], "{line}");
        let part = &imported.report.parts()[0];
        let list = part.list().unwrap();
        assert_eq!(list, ReportList::Assumed, "{line}: {part:?}");
    }
}

/// The default interval is written like the other defaults.
#[test]
fn the_default_interval_is_written() {
    let site = site_of(&[("fetcher.server.delay", "1")]);
    let imported = import_texts(System::Nutch, &[("nutch-site.xml", &site)]);
    let policy = &imported.files["policy.yaml"];
    assert!(policy.contains("min_interval: '30d'"), "{policy}");
}
