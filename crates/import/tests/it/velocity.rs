//! Velocity: the policy against its recursive conditions, written plainly.

use std::fs;

use crawlgate_import::{ImportInput, ReportList, System, import};
use crawlgate_policy::MemoryFileSystem;
use serde_json::Map;

use super::seeds::{
    check_requests_of_policies, check_strange_values, check_worked_example, count_xml_parts,
    import_fixture, not_converted, root, without_each,
};
use super::support::{REQUESTS, compare_verdicts, import_texts, regex_fits};

fn source(name: &str) -> String {
    fs::read_to_string(root().join("tests/import/velocity").join(name)).unwrap()
}

fn import_crawler(conditions: &str) -> crawlgate_import::Import {
    let text = format!("<crawler>{conditions}</crawler>");
    import_texts(System::Velocity, &[("crawler.xml", &text)])
}

const SOURCES: [(&str, &str); 3] = [
    ("collection", "collection/collection.xml"),
    ("worked-example", "worked-example/crawler.xml"),
    ("fragment", "fragment/conditions.xml"),
];

#[test]
fn each_element_and_attribute_is_in_one_list() {
    for (name, file) in SOURCES {
        let imported = import_fixture(System::Velocity, name);
        let listed: usize = ReportList::ALL
            .into_iter()
            .map(|list| imported.report.list(list).count())
            .sum();
        assert_eq!(listed, count_xml_parts(&source(file)), "{name}");
    }
}

/// A star is any run of characters.
fn fits(pattern: &str, text: &str) -> bool {
    let regex = regex::escape(pattern).replace(r"\*", ".*");
    regex_fits(&format!("^{regex}$"), text)
}

#[test]
fn options_are_assigned_in_order_and_a_filter_is_final() {
    let imported = import_fixture(System::Velocity, "collection");
    let oracle = |url: &str, _: &Map<_, _>| {
        let (mut allows, mut filtered) = (false, url.len() > 300);
        let host = url.split('/').nth(2).unwrap().split(':').next().unwrap();
        let is_seed = ["shop.example", "partner.example"]
            .iter()
            .any(|seed| host == *seed || host.ends_with(&format!(".{seed}")));
        allows |= is_seed;
        if fits("http://*.ex.test/*", url) || fits("http://ex.test/*", url) {
            allows = true;
            filtered |= fits("*?sid=*", url);
            if fits("*/old/*", url) {
                allows = false;
            }
        }
        filtered |= fits("*.zip", url);
        if fits("*/old/keep/*", url) {
            allows = true;
        }
        allows && !filtered
    };
    let mut random = fastrand::Rng::with_seed(6);
    let hosts = [
        "ex.test",
        "a.ex.test",
        "xex.test",
        "shop.example",
        "www.shop.example",
        "myshop.example",
        "partner.example:8080",
        "other.test",
    ];
    let words = [
        "old/",
        "keep/",
        "a.zip",
        ".zip",
        "b",
        "?sid=1",
        "?a=1&sid=2",
        "c/",
    ];
    let long = "0123456789".repeat(28);
    let urls: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let scheme = if random.usize(..5) == 0 {
                "https"
            } else {
                "http"
            };
            let host = hosts[random.usize(..hosts.len())];
            let mut path: String = (0..random.usize(..5))
                .map(|_| words[random.usize(..words.len())])
                .collect();
            if random.usize(..10) == 0 {
                path.push_str(&long);
            }
            (format!("{scheme}://{host}/{path}"), Map::new())
        })
        .collect();
    assert_eq!(compare_verdicts(&imported, urls, oracle), 0);
}

#[test]
fn the_vectors_of_the_text_are_decided_alike() {
    let imported = import_fixture(System::Velocity, "collection");
    let vectors = [
        ("http://ex.test/a", true),
        ("http://a.ex.test/a?sid=1", false),
        ("http://ex.test/a?sid=1.zip", false),
        ("http://ex.test/old/a", false),
        ("http://ex.test/old/keep/a", true),
        ("http://ex.test/old/keep/x.zip", false),
        ("http://other.test/?sid=1", false),
    ];
    let requests = vectors.map(|(url, _)| (url.to_owned(), Map::new()));
    let oracle = |url: &str, _: &Map<_, _>| vectors.contains(&(url, true));
    assert_eq!(compare_verdicts(&imported, requests, oracle), 0);
}

#[test]
fn the_worked_example_decides_its_cases_alike() {
    let imported = import_fixture(System::Velocity, "worked-example");
    check_worked_example(&imported, System::Velocity, &["short-urls", "no-circles"]);
    let skipped = &["short-urls", "no-circles"];
    let compared = check_requests_of_policies(&imported, System::Velocity, skipped);
    assert!(compared > 50, "{compared}");
}

#[test]
fn words_that_are_not_known_end_the_import_with_their_place() {
    for (condition, message) in [
        (
            r#"<crawl-may-not-have how="regex"><crawl-pattern>a</crawl-pattern></crawl-may-not-have>"#,
            "`how` is `regex`",
        ),
        (
            r#"<crawl-may-not-have field="title"><crawl-pattern>a</crawl-pattern></crawl-may-not-have>"#,
            "`field` is `title`",
        ),
        (
            r#"<crawl-may-not-have custom-field="x"><crawl-pattern>a</crawl-pattern></crawl-may-not-have>"#,
            "`custom-field` is `x`",
        ),
        ("<crawl-may-not-have/>", "without `crawl-pattern`"),
        (
            "<crawl-may-not-have><crawl-pattern/></crawl-may-not-have>",
            "an empty `crawl-pattern`",
        ),
    ] {
        let text = format!("<crawler>\n {condition}</crawler>");
        let files = MemoryFileSystem::new().with_file("c.xml", text.as_bytes());
        let error = import(System::Velocity, &ImportInput::new(&files, ["c.xml"]));
        let error = error.err().unwrap().to_string();
        assert!(
            error.contains("c.xml:2:") && error.contains(message),
            "{error}"
        );
    }
}

#[test]
fn what_cannot_be_said_is_named_with_the_way_in_which_it_fails() {
    let option = |name: &str, value: &str| {
        format!(
            r#"<crawl-options><curl-option name="{name}">{value}</curl-option></crawl-options>"#
        )
    };
    let pattern = "<crawl-pattern>*:80/a/*</crawl-pattern>";
    let allow =
        r#"<curl-options><curl-option name="default-allow">allow</curl-option></curl-options>"#;
    let limit = option("max-url-len", "30");
    for (text, why, failure) in [
        (r#"<call-function name="vse-crawler-session-ids"/>"#.to_owned(), "is in the product", "LetsThrough"),
        (r#"<call-function name="vse-crawler-seed-urls"/>"#.to_owned(), "no start URLs", "KeepsOut"),
        (format!("<crawl-may-not-have>{pattern}</crawl-may-not-have>"), "default port after a star", "LetsThrough"),
        (format!("<crawl-condition-when>{pattern}{allow}</crawl-condition-when>"), "default port after a star", "KeepsOut"),
        (format!("<crawl-condition-when>{pattern}</crawl-condition-when>"), "default port after a star", "LetsThrough"),
        (r"<crawl-must-have><crawl-pattern>a\*b</crawl-pattern></crawl-must-have>".to_owned(), "backslash", "LetsThrough"),
        (option("default-allow", "perhaps"), "not `allow`", "LetsThrough"),
        (option("max-hops", "many"), "not a number", "LetsThrough"),
        (option("delay", "slow"), "not a number", "OtherSetting"),
        (option("ignore-robots", "yes"), "neither true nor false", "OtherSetting"),
        (option("priority", "7"), "order of the numbers", "OtherSetting"),
        (option("robots", "User-agent: *"), "robots.txt of the crawler", "LetsThrough"),
        (option("max-urls", "100"), "whole crawl", "LetsThrough"),
        (option("throttle-kbs-in", "100"), "bandwidth", "OtherSetting"),
        (option("something-new", "1"), "not known", "LetsThrough"),
        (r#"<crawl-replace this="a" that="aa"/>"#.to_owned(), "its own result", "OtherSetting"),
        (format!("{limit}<crawl-condition-when><crawl-pattern>a</crawl-pattern><curl-options>{limit}</curl-options></crawl-condition-when>"), "several places", "LetsThrough"),
        (r#"<crawl-may-not-have log="loud"><crawl-pattern>http://a/</crawl-pattern></crawl-may-not-have>"#.to_owned(), "not `log`", "OtherSetting"),
    ] {
        let imported = import_crawler(&text);
        let found = not_converted(&imported);
        assert!(!imported.report.is_complete(), "{text}");
        assert!(
            found.iter().any(|it| it.contains(why) && it.contains(failure)),
            "{text}: {found:#?}"
        );
    }
}

#[test]
fn secrets_are_named_and_not_written() {
    let imported = import_fixture(System::Velocity, "collection");
    let report = imported.report.to_json().to_string();
    assert!(report.contains("proxy-user-password") && report.contains("***"));
    assert!(!report.contains("sec:ret"));
    assert!(
        imported
            .files
            .values()
            .all(|text| !text.contains("sec:ret"))
    );
}

#[test]
fn seeds_may_be_given_with_the_import() {
    let text = r#"<crawler><call-function name="vse-crawler-seed-urls"/></crawler>"#;
    let files = MemoryFileSystem::new().with_file("c.xml", text.as_bytes());
    let mut input = ImportInput::new(&files, ["c.xml"]);
    input.seeds = Some("https://user@a.test:8443/x\nftp://b.test/\n".to_owned());
    let imported = import(System::Velocity, &input).unwrap();
    assert!(imported.files["policy.yaml"].contains("domain: a.test"));
    assert!(imported.report.is_complete());
}

#[test]
fn a_rule_that_is_taken_away_changes_the_policy() {
    let whole = source("worked-example/crawler.xml");
    let imported = import_texts(System::Velocity, &[("crawler.xml", &whole)]);
    let filters = [
        ("<crawl-may-not-have", "</crawl-may-not-have>"),
        ("<crawl-must-have", "</crawl-must-have>"),
    ];
    let filters = filters
        .iter()
        .flat_map(|(begin, end)| without_each(&whole, begin, end));
    let options = without_each(&whole, "<curl-options>", "</curl-options>");
    for text in filters.chain(options) {
        let without = import_texts(System::Velocity, &[("crawler.xml", &text)]);
        assert_ne!(without.files, imported.files);
        assert_ne!(without.report.to_json(), imported.report.to_json());
    }
}

#[test]
fn strange_values_are_converted_or_named() {
    for field in ["url", "path", "host", "protocol"] {
        check_strange_values(System::Velocity, |value| {
            format!(
                "<crawler><crawl-may-not-have field=\"{field}\"><crawl-pattern>{value}\nb*</crawl-pattern></crawl-may-not-have>\
                 <crawl-must-have field=\"{field}\" how=\"exact\"><crawl-pattern>{value}</crawl-pattern></crawl-must-have></crawler>"
            )
        });
    }
    check_strange_values(System::Velocity, |value| {
        format!(
            "<crawler><call-function name=\"vse-crawler-seed-urls\"><with name=\"urls\">http://{value}/\n{value}</with></call-function></crawler>"
        )
    });
}
