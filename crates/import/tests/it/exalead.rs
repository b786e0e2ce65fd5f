//! CloudView: the policy against its rules, written plainly.

use std::fs;

use crawlgate_import::{ImportInput, Report, ReportList, System, import};
use crawlgate_policy::MemoryFileSystem;
use regex::Regex;
use serde_json::Map;

use super::seeds::{
    check_requests_of_policies, check_strange_values, check_worked_example, count_xml_parts,
    import_fixture, not_converted, root, without_each,
};
use super::support::{REQUESTS, compare_verdicts, import_texts};

fn source(name: &str) -> String {
    let path = root().join(format!("tests/import/exalead/{name}/CrawlConfig.xml"));
    fs::read_to_string(path).unwrap()
}

fn crawler(attributes: &str, rules: &str) -> String {
    format!(
        "<CrawlConfig><Crawler name=\"c\" {attributes}><Rules group=\"g\">{rules}</Rules></Crawler></CrawlConfig>"
    )
}

fn import_rules(attributes: &str, rules: &str) -> crawlgate_import::Import {
    let text = crawler(attributes, rules);
    import_texts(System::Exalead, &[("CrawlConfig.xml", &text)])
}

#[test]
fn each_element_and_attribute_is_in_one_list() {
    for name in ["properties", "worked-example", "two-crawlers"] {
        let imported = import_fixture(System::Exalead, name);
        let listed: usize = ReportList::ALL
            .into_iter()
            .map(|list| imported.report.list(list).count())
            .sum();
        assert_eq!(listed, count_xml_parts(&source(name)), "{name}");
    }
}

#[test]
fn the_last_rule_that_accepts_or_ignores_decides() {
    let imported = import_fixture(System::Exalead, "worked-example");
    let product = Regex::new("(?i)^/[a-z]+/[a-z]-[0-9]+$").unwrap();
    let session = Regex::new("(?i)(^|&)sid=.").unwrap();
    let oracle = |url: &str, _: &Map<_, _>| {
        let rest = url.strip_prefix("http://").unwrap();
        let (host, rest) = rest.split_at(rest.find('/').unwrap());
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut accepts = false;
        for (fits, value) in [
            (
                host == "shop.example.com" || host == "www.shop.example.com",
                true,
            ),
            (host == "shop.example.com" && product.is_match(path), true),
            (
                host == "press.example.com" || host.ends_with(".press.example.com"),
                true,
            ),
            (session.is_match(query), false),
            (path.len() >= 100, false),
            (
                [".gif", ".jpg", ".png", ".ico"]
                    .iter()
                    .any(|end| path.to_lowercase().ends_with(end)),
                false,
            ),
        ] {
            if fits {
                accepts = value;
            }
        }
        accepts
    };
    let mut random = fastrand::Rng::with_seed(3);
    let hosts = [
        "shop.example.com",
        "www.shop.example.com",
        "press.example.com",
        "a.press.example.com",
        "xpress.example.com",
        "example.com",
    ];
    let words = [
        "/",
        "bikes",
        "/b-17",
        "B-1",
        "parts/",
        "en/",
        "archive/",
        "_print.html",
        ".gif",
        ".GIF",
        "x",
        "0123456789012345678901234567890123456789",
    ];
    let queries = [
        "",
        "?sid=1",
        "?SID=2",
        "?side=1",
        "?a=1&sid=1",
        "?asid=1",
        "?view=part",
        "?sid=",
    ];
    let urls: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let host = hosts[random.usize(..hosts.len())];
            let path: String = (0..random.usize(..5))
                .map(|_| words[random.usize(..words.len())])
                .collect();
            let path = path.replace("//", "/");
            let query = queries[random.usize(..queries.len())];
            (
                format!("http://{host}/{}{query}", path.trim_start_matches('/')),
                Map::new(),
            )
        })
        .collect();
    assert_eq!(compare_verdicts(&imported, urls, oracle), 0);
}

#[test]
fn literal_values_switch_operators_on_with_a_backslash() {
    let imported = import_fixture(System::Exalead, "properties");
    let homes = Regex::new(r"^http://www\.homes\.example/homes/.+/[0-9]{7}$").unwrap();
    let cars = Regex::new(r"^http://[^/]+\.cars\.example/(?i:sale|rent)/").unwrap();
    let oracle = |url: &str, _: &Map<_, _>| {
        url.starts_with("http://www.homes.example/")
            || homes.is_match(url)
            || (cars.is_match(url)
                && ["/266-", "/267-", "/319-"]
                    .iter()
                    .any(|it| url.contains(it)))
    };
    let mut random = fastrand::Rng::with_seed(4);
    let hosts = [
        "www.homes.example",
        "wwwxhomes.example",
        "a.cars.example",
        "cars.example",
        "axcars.example",
    ];
    let words = [
        "homes/",
        "sale/",
        "SALE/",
        "rent/",
        "266-",
        "319-a",
        "1234567",
        "x/",
        "_ad.html",
        "alfa-romeo",
    ];
    let urls: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let host = hosts[random.usize(..hosts.len())];
            let path: String = (0..random.usize(..5))
                .map(|_| words[random.usize(..words.len())])
                .collect();
            (format!("http://{host}/{path}"), Map::new())
        })
        .collect();
    assert_eq!(compare_verdicts(&imported, urls, oracle), 0);
}

#[test]
fn the_worked_example_decides_its_cases_alike() {
    let imported = import_fixture(System::Exalead, "worked-example");
    check_worked_example(
        &imported,
        System::Exalead,
        &["rebuilding", "origin-in-trouble"],
    );
    let skipped = &["rebuilding", "origin-in-trouble"];
    let compared = check_requests_of_policies(&imported, System::Exalead, skipped);
    assert!(compared > 50, "{compared}");
}

#[test]
fn the_escape_of_values_can_be_overridden() {
    let rule = r#"<Rule><Host val="a.test"/><Accept/></Rule>"#;
    let text = crawler(
        r#"defaultAccept="false" defaultIndex="false" defaultFollow="false""#,
        rule,
    );
    let files = MemoryFileSystem::new().with_file("c.xml", text.as_bytes());
    let assumptions = |escape| {
        let mut input = ImportInput::new(&files, ["c.xml"]);
        input.escape = escape;
        let imported = import(System::Exalead, &input).unwrap();
        imported
            .report
            .assumption_of("g-1")
            .map(|(text, _)| text.to_owned())
    };
    assert!(
        assumptions(None)
            .unwrap()
            .contains("a bare `.` means a dot")
    );
    assert!(assumptions(Some(false)).is_some());
    assert_eq!(assumptions(Some(true)), None);
}

#[test]
fn a_bare_dot_is_announced_and_shown_by_a_url() {
    let imported = import_rules("", r#"<Rule><Host val="a.test"/><Accept/></Rule>"#);
    let decide = |url| {
        let facts = Map::new();
        let request = crawlgate_import::SourceRequest { url, facts: &facts };
        imported.evaluator.decide(&request)
    };
    assert_eq!(
        decide("http://axtest/"),
        crawlgate_import::SourceVerdict::Allow
    );
    assert!(imported.report.assumption_of("g-1").is_some());
    let oracle = |url: &str, _: &Map<_, _>| url == "http://a.test/";
    let urls = ["http://axtest/", "http://a.test/"].map(|url| (url.to_owned(), Map::new()));
    assert_eq!(compare_verdicts(&imported, urls, oracle), 0);
}

#[test]
fn what_cannot_be_said_is_named_with_the_way_in_which_it_fails() {
    let ignore = "<NoIndex/><NoFollow/><Ignore/>";
    for (rule, why, failure) in [
        (
            format!(r#"<Rule><Atom field="fragment" kind="exact" value="a"/>{ignore}</Rule>"#),
            "no fragment",
            "LetsThrough",
        ),
        (
            r#"<Rule><Atom field="fragment" kind="exact" value="a"/><Accept/></Rule>"#.to_owned(),
            "no fragment",
            "KeepsOut",
        ),
        (
            format!(r#"<Rule><Atom field="user" kind="exact" value="a"/>{ignore}</Rule>"#),
            "the field `user`",
            "LetsThrough",
        ),
        (
            format!(r#"<Rule><Atom field="url" kind="like" value="a"/>{ignore}</Rule>"#),
            "the kind `like`",
            "LetsThrough",
        ),
        (
            format!(r#"<Rule><Atom field="url" kind="exact" norm="x" value="a"/>{ignore}</Rule>"#),
            "normalization `x`",
            "LetsThrough",
        ),
        (
            format!(r#"<Rule><Length field="path" val="30"/>{ignore}</Rule>"#),
            "range of lengths",
            "LetsThrough",
        ),
        (
            format!(r#"<Rule><Host/>{ignore}</Rule>"#),
            "without a value",
            "LetsThrough",
        ),
        (
            format!(r#"<Rule><Host val="(a"/>{ignore}</Rule>"#),
            "",
            "LetsThrough",
        ),
        (
            format!(r#"<Rule><Host val="a"/><Host val="b"/>{ignore}</Rule>"#),
            "several conditions",
            "LetsThrough",
        ),
        (
            format!(r#"<Rule>{ignore}</Rule>"#),
            "without a condition",
            "LetsThrough",
        ),
        (
            r#"<Rule><Host val="a"/><Accept/><Priority shift="7"/></Rule>"#.to_owned(),
            "from -2 to 2",
            "OtherSetting",
        ),
        (
            r#"<Rule><Host val="a"/><Accept/><DataModelClass name="x"/></Rule>"#.to_owned(),
            "no counterpart",
            "OtherSetting",
        ),
    ] {
        let imported = import_rules("", &rule);
        let found = not_converted(&imported);
        assert!(!imported.report.is_complete(), "{rule}");
        assert!(
            found
                .iter()
                .any(|it| it.contains(why) && it.contains(failure)),
            "{rule}: {found:#?}"
        );
    }
    for (attributes, why) in [
        (r#"aggressive="true""#, "limit of one request"),
        (r#"mimeTypesMode="include""#, "listed types"),
        (r#"throttleTimeMS="fast""#, "not a number"),
        (r#"ignoreRobotsTxt="perhaps""#, "neither true nor false"),
        (r#"newOption="1""#, "not known"),
    ] {
        let imported = import_rules(attributes, r#"<Rule><Host val="a"/><Accept/></Rule>"#);
        let found = not_converted(&imported);
        assert!(
            found.iter().any(|it| it.contains(why)),
            "{attributes}: {found:#?}"
        );
    }
}

#[test]
fn a_rule_that_is_taken_away_changes_the_policy() {
    let texts = |report: &Report| report.to_json().to_string();
    let whole = source("properties");
    let imported = import_texts(System::Exalead, &[("CrawlConfig.xml", &whole)]);
    let changed = without_each(&whole, "<Rule>", "</Rule>");
    assert_eq!(changed.len(), 6);
    for text in changed {
        let without = import_texts(System::Exalead, &[("CrawlConfig.xml", &text)]);
        assert_ne!(without.files, imported.files);
        assert_ne!(texts(&without.report), texts(&imported.report));
    }
}

#[test]
fn documents_with_entities_are_refused() {
    let text = "<!DOCTYPE a [<!ENTITY b \"c\">]><CrawlConfig>&b;</CrawlConfig>";
    let files = MemoryFileSystem::new().with_file("c.xml", text.as_bytes());
    assert!(import(System::Exalead, &ImportInput::new(&files, ["c.xml"])).is_err());
    let other = MemoryFileSystem::new().with_file("c.xml", b"<a/>");
    assert!(import(System::Exalead, &ImportInput::new(&other, ["c.xml"])).is_err());
}

#[test]
fn strange_values_are_converted_or_named() {
    for condition in [
        r#"<Host val="@" litteral="true"/>"#,
        r#"<Domain val="@" litteral="true"/>"#,
        r#"<Path val="@" litteral="true"/>"#,
        r#"<Atom field="url" kind="prefix" norm="none" value="@" litteral="true"/>"#,
        r#"<Atom field="url" kind="exact" value="@"/>"#,
    ] {
        check_strange_values(System::Exalead, |value| {
            let rule = format!("<Rule>{condition}<Source name=\"@\"/><Accept/></Rule>");
            crawler("", &rule.replace('@', value))
        });
    }
}
