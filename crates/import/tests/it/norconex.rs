//! Norconex: the policies of the fixtures against the crawler's questions, written plainly.

use std::fs;
use std::path::{Path, PathBuf};

use crawlgate_import::{Import, System, import};
use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::cases::{CaseFacts, ExpectedVerdict};
use crawlgate_policy::internal::policy::compile;
use regex::Regex;
use serde_json::{Map, Value as Json, json};

use super::seeds::check_requests_of_policies;
use super::support::{Directory, REQUESTS, compare_verdicts, compiled, import_texts, read_command};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Imports a source of `tests/import/norconex`.
fn import_source(name: &str) -> Import {
    let directory = root().join("tests/import/norconex").join(name);
    let words = fs::read_to_string(directory.join("command")).unwrap();
    let files = Directory(directory);
    import(System::Norconex, &read_command(&files, &words)).unwrap()
}

struct Requests {
    random: fastrand::Rng,
    hosts: &'static [&'static str],
    words: &'static [&'static str],
    queries: &'static [&'static str],
    /// Each line: the name of a fact and its values; an empty value means that the fact is unknown.
    facts: Vec<(&'static str, Vec<Json>)>,
}

impl Requests {
    fn pick(&mut self, words: &'static [&'static str]) -> &'static str {
        words[self.random.usize(..words.len())]
    }

    fn next(&mut self) -> (String, Map<String, Json>) {
        let host = self.pick(self.hosts);
        let depth = self.random.usize(..10);
        let segments: Vec<&str> = (0..depth).map(|_| self.pick(self.words)).collect();
        let end = self.pick(&[
            "",
            "/",
            "/index.html",
            ".ZIP",
            ".gz",
            ".css",
            ".pdf",
            ".jpg",
        ]);
        let path = format!("/{}{end}", segments.join("/")).replace("//", "/");
        let query = self.pick(self.queries);
        let mut details = Map::new();
        for (name, values) in &self.facts {
            let value = &values[self.random.usize(..values.len())];
            if !value.is_null() {
                details.insert((*name).to_owned(), value.clone());
            }
        }
        (format!("{host}{path}{query}"), details)
    }
}

/// The parts of a URL: host with port, path.
fn parts(url: &str) -> (&str, &str) {
    let rest = url.split_once("://").unwrap().1;
    let at = rest.find('/').unwrap();
    let path = rest[at..].split('?').next().unwrap();
    (&rest[..at], path)
}

fn extension(url: &str) -> &str {
    let name = parts(url).1.rsplit('/').next().unwrap();
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

fn header<'f>(facts: &'f Map<String, Json>, name: &str) -> Option<&'f str> {
    facts.get("headers")?.get(name)?.as_str()
}

fn has_answer(facts: &Map<String, Json>) -> bool {
    ["status", "content_type", "headers"]
        .iter()
        .any(|name| facts.contains_key(*name))
}

#[test]
fn the_help_pages_are_decided_as_the_crawler_does() {
    let imported = import_source("help");
    let calendar = Regex::new(r"^https?://[^/?]+/calendar/\d{4}(/.*|\?.*)?$").unwrap();
    let listing = Regex::new(r"^https?://[^/?]+/sitemap(/.*|\?.*)?$").unwrap();
    let mut requests = Requests {
        random: fastrand::Rng::with_seed(3),
        hosts: &[
            "https://help.example.com",
            "http://help.example.com",
            "https://news.help.example.com",
            "https://www.example.com",
            "https://myhelp.example.com",
            "http://www.example.com",
        ],
        words: &["calendar", "2019", "2031", "support", "sitemap", "a", "b.c"],
        queries: &["", "", "?a=1", "?view=print&x"],
        facts: vec![
            ("depth", vec![Json::Null, json!(6), json!(7)]),
            ("status", vec![Json::Null, json!(200), json!(404)]),
            (
                "content_type",
                vec![
                    Json::Null,
                    json!("text/html"),
                    json!("application/pdf"),
                    json!("video/mp4"),
                ],
            ),
            (
                "headers",
                vec![
                    Json::Null,
                    json!({ "X-Audience": "internal" }),
                    json!({ "X-Audience": "Internal" }),
                ],
            ),
        ],
    };
    let urls: Vec<_> = (0..REQUESTS).map(|_| requests.next()).collect();
    let announced = compare_verdicts(&imported, urls, |url, facts| {
        let (host, _) = parts(url);
        let is_archive = ["zip", "gz", "exe"]
            .iter()
            .any(|known| extension(url).eq_ignore_ascii_case(known));
        let is_excluded = is_archive
            || calendar.is_match(url)
            || url.starts_with("https://help.example.com/2019/");
        let is_included = host == "help.example.com"
            || host.ends_with(".help.example.com")
            || url.starts_with("https://www.example.com/support/");
        let is_deep = facts.get("depth") == Some(&json!(7));
        if is_deep || is_excluded || !is_included {
            return false;
        }
        if !has_answer(facts) || facts.get("status") == Some(&json!(404)) {
            return true;
        }
        let content_type = facts.get("content_type").and_then(Json::as_str);
        let is_listing = listing.is_match(url);
        match content_type {
            Some("text/html") => header(facts, "X-Audience") != Some("internal"),
            Some("application/pdf") => {
                header(facts, "X-Audience") != Some("internal") && !is_listing
            }
            _ => false,
        }
    });
    assert_eq!(announced, 0);
}

#[test]
fn a_configuration_of_version_4_is_decided_as_the_crawler_does() {
    let imported = import_source("v4-yaml");
    let included = Regex::new("^https://[^/]*www.example.com/").unwrap();
    let mut requests = Requests {
        random: fastrand::Rng::with_seed(4),
        hosts: &[
            "https://www.example.com",
            "https://a.www.example.com",
            "http://www.example.com",
            "https://example.com",
            "https://wwwxexample.com",
        ],
        words: &["tag", "TAG", "blog", "a", "b", "jpg"],
        queries: &["", "", "?a=/tag/", "?x"],
        facts: vec![
            ("depth", vec![Json::Null, json!(4), json!(5)]),
            ("status", vec![Json::Null, json!(200), json!(500)]),
            (
                "content_type",
                vec![Json::Null, json!("text/html"), json!("video/mp4")],
            ),
        ],
    };
    let urls: Vec<_> = (0..REQUESTS).map(|_| requests.next()).collect();
    let announced = compare_verdicts(&imported, urls, |url, facts| {
        let (host, path) = parts(url);
        let in_scope = url.starts_with("https://")
            && (host == "www.example.com" || host.ends_with(".www.example.com"));
        let segments = path.split('/').filter(|segment| !segment.is_empty());
        let is_excluded = ["jpg", "png", "css", "js"].contains(&extension(url))
            || url.to_ascii_lowercase().contains("/tag/")
            || segments.count() >= 8;
        let is_deep = facts.get("depth") == Some(&json!(5));
        if is_deep || !in_scope || is_excluded || !included.is_match(url) {
            return false;
        }
        let is_good = has_answer(facts) && facts.get("status") != Some(&json!(500));
        !is_good || facts.get("content_type") != Some(&json!("video/mp4"))
    });
    assert_eq!(announced, 0);
}

#[test]
fn two_crawlers_are_decided_each_by_its_own_settings() {
    let imported = import_source("v4-json");
    let mut requests = Requests {
        random: fastrand::Rng::with_seed(5),
        hosts: &[
            "https://a.example",
            "http://a.example",
            "https://b.example",
            "http://b.example:8080",
            "https://c.example:8080",
            "https://x.a.example",
        ],
        words: &["old", "private", "a", "tar"],
        queries: &["", "", "?q=/private/"],
        facts: vec![
            ("crawler", vec![json!("a"), json!("b")]),
            ("status", vec![Json::Null, json!(200), json!(404)]),
            (
                "headers",
                vec![
                    Json::Null,
                    json!({ "Content-Language": "de" }),
                    json!({ "Content-Language": "en-GB" }),
                    json!({ "Content-Language": "fr" }),
                ],
            ),
        ],
    };
    let urls: Vec<_> = (0..REQUESTS).map(|_| requests.next()).collect();
    let announced = compare_verdicts(&imported, urls, |url, facts| {
        let (host, _) = parts(url);
        let accepts = if facts["crawler"] == "a" {
            host == "a.example"
                && !extension(url).eq_ignore_ascii_case("zip")
                && url != "https://a.example/old"
        } else {
            host.ends_with(":8080") && !url.contains("/private/")
        };
        if !accepts || !has_answer(facts) || facts.get("status") == Some(&json!(404)) {
            return accepts;
        }
        matches!(header(facts, "Content-Language"), Some("de" | "en-GB"))
    });
    assert_eq!(announced, 0);
}

#[test]
fn the_worked_example_is_decided_alike() {
    let path = root().join("config/policies/norconex.yaml");
    let text = fs::read_to_string(path).unwrap();
    let files = MemoryFileSystem::new().with_file("policy.yaml", text.as_bytes());
    let example = compile::load(&files, "policy.yaml").unwrap();
    let policy = compiled(&import_source("help"));
    let mut count = 0;
    for case in &example.cases {
        // The limit of the importer is not part of the crawler's configuration.
        if format!("{case:?}").contains("20971521") {
            continue;
        }
        let (_, decision) = policy.decide_every_rule(&case.facts.facts());
        let expected = case.expect.verdict == ExpectedVerdict::Reject;
        assert_eq!(decision.rejects(), expected, "{case:?}");
        count += 1;
    }
    assert!(count > 20);
    let imported = import_source("help");
    let compared = check_requests_of_policies(&imported, System::Norconex, &[]);
    assert!(compared > 50, "{compared}");
}

#[test]
fn a_link_between_two_sites_of_the_scope_is_the_announced_difference() {
    let text = r#"<crawler id="c"><startURLs stayOnDomain="true">
        <url>http://a.example/</url><url>http://b.example/</url></startURLs></crawler>"#;
    let imported = import_texts(System::Norconex, &[("c.xml", text)]);
    // Norconex refuses the second host if the link is on a page of the first.
    let mut facts = CaseFacts::for_url("http://b.example/x").unwrap();
    facts.set("referer", &json!("http://a.example/")).unwrap();
    let (_, decision) = compiled(&imported).decide_every_rule(&facts.facts());
    assert!(!decision.rejects());
    let (assumption, _) = imported.report.assumption_of("scope").unwrap();
    assert!(
        assumption.contains("the page that has the link"),
        "{assumption}"
    );
}

#[test]
fn taking_away_or_changing_a_filter_changes_what_is_written() {
    let text = r#"<crawler id="c"><referenceFilters>
        <filter class="ExtensionReferenceFilter" onMatch="exclude">zip,gz</filter>
        <filter class="ReferenceFilter"><valueMatcher>http://h.example/a</valueMatcher></filter>
        <filter class="ReferenceFilter"><valueMatcher method="wildcard">*/b</valueMatcher></filter>
        </referenceFilters><metadataFilters>
        <filter class="MetadataFilter" onMatch="exclude"><fieldMatcher>X</fieldMatcher><valueMatcher>v</valueMatcher></filter>
        </metadataFilters></crawler>"#;
    let written = |text: &str| {
        let imported = import_texts(System::Norconex, &[("c.xml", text)]);
        (imported.files.clone(), imported.report.to_json())
    };
    let whole = written(text);
    let starts: Vec<usize> = text.match_indices("<filter").map(|(at, _)| at).collect();
    assert_eq!(starts.len(), 4);
    for start in starts {
        let end = start + text[start..].find("</filter>").unwrap() + "</filter>".len();
        let without = format!("{}{}", &text[..start], &text[end..]);
        assert_ne!(written(&without).0, whole.0);
        let filter = &text[start..end];
        let value = filter
            .rfind("</valueMatcher>")
            .or(filter.rfind("</filter>"));
        let at = start + value.unwrap();
        let changed = format!("{}x{}", &text[..at], &text[at..]);
        assert_ne!(written(&changed).0, whole.0, "{changed}");
    }
}

#[test]
fn the_documents_show_the_fixtures_unedited() {
    for (page, source, configuration) in [
        ("docs/policy/norconex.md", "help", "help-search.xml"),
        (
            "docs/import/norconex.md",
            "v2-complex",
            "complex-config.xml",
        ),
    ] {
        let page = fs::read_to_string(root().join(page)).unwrap();
        let directory = root().join("tests/import/norconex").join(source);
        let xml = fs::read_to_string(directory.join(configuration)).unwrap();
        let xml = xml.replace("\r\n", "\n");
        let xml = &xml[xml.find("<httpcollector").unwrap()..];
        let policy = fs::read_to_string(directory.join("expected/policy.yaml")).unwrap();
        assert!(
            page.contains(xml.trim_end()) && page.contains(policy.trim_end()),
            "{source}"
        );
    }
}
