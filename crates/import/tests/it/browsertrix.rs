//! Browsertrix Crawler: the policy against `ScopedSeed.isIncluded` and `BlockRules`, written plainly, and its traps.

use crawlgate_import::{Import, MissingPart, PartOutcome, ReportList, System, import};
use crawlgate_import::{ImportInput, SourcePath};
use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use regex::Regex;
use serde_json::{Map, Value as Json, json};

use super::support::{REQUESTS, compare_verdicts, compiled, import_texts};

/// Each line is one part.
const CRAWL: &str = r"
seeds:
  - https://www.example.com/news/index.html
  - url: http://blog.example.org:8080/
    scopeType: domain
    depth: 4
    exclude:
  - url: https://www2.example.net/report?year=2026&lang=en
    scopeType: page
  - url: https://example.com/start
    include:
      - ^https?://example\.com/(topic|tag)/
      - \?page=\d+$
    depth: 1
  - url: https://museum.test/a/b
    scopeType: prefix
    include: ^https://images\.museum\.test/
depth: 2
exclude:
  - /print/
  - '[?&]sort='
blockRules:
  - ads\.js$
  - url: (example|museum)
    type: allowOnly
";

fn browsertrix_crawl() -> Import {
    import_texts(System::Browsertrix, &[("crawl.yaml", CRAWL)])
}

/// Sorts the parameters, and leaves out `utm_…`.
fn normal_form(url: &str) -> String {
    let Some((base, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let mut pairs: Vec<(&str, &str)> = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.starts_with("utm_"))
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    pairs.sort_by_key(|(name, _)| *name);
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    match pairs.is_empty() {
        true => base.to_owned(),
        false => format!("{base}?{}", pairs.join("&")),
    }
}

struct PlainSeed {
    own: &'static [&'static str],
    include: &'static [&'static str],
    exclude: &'static [&'static str],
    depth: u64,
}

/// The seeds as Browsertrix's source reads them, with the expressions that its own code writes.
const PLAIN_SEEDS: &[PlainSeed] = &[
    PlainSeed {
        own: &[
            "https://www.example.com/news/index.html",
            "https://example.com/news/index.html",
        ],
        include: &[r"^https?://(www[0-9]*\.)?example\.com/news/"],
        exclude: &["/print/", "[?&]sort="],
        depth: 2,
    },
    PlainSeed {
        own: &["http://blog.example.org:8080/"],
        include: &[r"^https?://([^/]+\.)*blog\.example\.org:8080/"],
        exclude: &[],
        depth: 4,
    },
    PlainSeed {
        own: &[
            "https://www2.example.net/report?lang=en&year=2026",
            "https://example.net/report?lang=en&year=2026",
        ],
        include: &[r"^https?://(www[0-9]*\.)?example\.net/report\?lang=en&year=2026$"],
        exclude: &["/print/", "[?&]sort="],
        depth: 0,
    },
    PlainSeed {
        own: &["https://example.com/start"],
        include: &[r"^https?://example\.com/(topic|tag)/", r"\?page=[0-9]+$"],
        exclude: &["/print/", "[?&]sort="],
        depth: 1,
    },
    PlainSeed {
        own: &["https://museum.test/a/b"],
        include: &[
            r"^https?://(www[0-9]*\.)?museum\.test/a/",
            r"^https://images\.museum\.test/",
        ],
        exclude: &["/print/", "[?&]sort="],
        depth: 2,
    },
];

fn fits(expressions: &[&str], url: &str) -> bool {
    let mut expressions = expressions.iter();
    expressions.any(|expression| Regex::new(expression).unwrap().is_match(url))
}

fn browsertrix_requests(url: &str, facts: &Map<String, Json>) -> bool {
    if facts.get("dest") == Some(&json!("embed")) {
        return !fits(&[r"ads\.js$"], url) && fits(&["(example|museum)"], url);
    }
    let depth = facts.get("depth").and_then(Json::as_u64).unwrap_or(0);
    let normal = normal_form(url);
    PLAIN_SEEDS.iter().any(|seed| {
        seed.own.contains(&&*normal)
            || (depth <= seed.depth && fits(seed.include, &normal) && !fits(seed.exclude, &normal))
    })
}

fn requests(random: &mut fastrand::Rng, queries: &[&str]) -> Vec<(String, Map<String, Json>)> {
    let hosts = [
        "example.com",
        "www.example.com",
        "www12.example.com",
        "xexample.com",
        "example.com:8080",
        "blog.example.org:8080",
        "a.b.blog.example.org:8080",
        "www.blog.example.org:8080",
        "blog.example.org",
        "notblog.example.org:8080",
        "example.net",
        "www2.example.net",
        "www.example.net",
        "museum.test",
        "www.museum.test",
        "images.museum.test",
        "other.test",
    ];
    let paths = [
        "/",
        "/news",
        "/news/",
        "/news/a/print/b",
        "/news/index.html",
        "/report",
        "/report/x",
        "/start",
        "/topic/x",
        "/tag/",
        "/tags/",
        "/a/",
        "/a/b",
        "/a",
        "/ab",
        "/iiif/ads.js",
        "/print/",
    ];
    let request = |_| {
        let host = hosts[random.usize(..hosts.len())];
        let path = paths[random.usize(..paths.len())];
        let query = queries[random.usize(..queries.len())];
        let scheme = ["http", "https"][random.usize(..2)];
        let url = format!("{scheme}://{host}{path}{query}");
        let mut facts = Map::new();
        let is_seed = PLAIN_SEEDS
            .iter()
            .any(|seed| seed.own.contains(&&*normal_form(&url)));
        // A seed is a start, whatever links to it.
        if random.bool() && !is_seed {
            facts.insert("depth".to_owned(), json!(random.u64(..7)));
        }
        match random.u8(..4) {
            0 => facts.insert("dest".to_owned(), json!("embed")),
            1 => facts.insert("dest".to_owned(), json!("navigation")),
            _ => None,
        };
        (url, facts)
    };
    (0..REQUESTS).map(request).collect()
}

/// URLs in normal form: there is no difference at all.
#[test]
fn a_page_is_requested_if_one_seed_includes_it() {
    let imported = browsertrix_crawl();
    assert_eq!(imported.divergences, []);
    let mut random = fastrand::Rng::with_seed(11);
    let queries = [
        "",
        "",
        "",
        "?page=2",
        "?page=x",
        "?sort=a",
        "?a=1&sort=a",
        "?lang=en&year=2026",
        "?lang=en",
        "?lang=en&page=3",
    ];
    let requests = requests(&mut random, &queries);
    assert_eq!(
        compare_verdicts(&imported, requests, browsertrix_requests),
        0
    );
}

/// URLs in other forms: each difference is one that the report announces.
#[test]
fn differences_by_sorted_parameters_are_announced() {
    let imported = browsertrix_crawl();
    let mut random = fastrand::Rng::with_seed(12);
    let queries = [
        "?year=2026&lang=en",
        "?page=2&lang=en",
        "?page=2&utm_source=a",
        "?utm_source=a&lang=en&year=2026",
        "?utm_sort=a&a=1",
        "?zoom=1&page=4",
        "?page=4&a=1",
    ];
    let requests = requests(&mut random, &queries);
    let announced = compare_verdicts(&imported, requests, browsertrix_requests);
    assert!(announced > 10, "{announced}");
    // Refused with a parameter that Browsertrix leaves out.
    for (url, expected) in [
        ("http://x.test/?page=2&utm_source=a", "refuses_more"),
        (
            "https://example.net/report?lang=en&utm_x=1&year=2026",
            "refuses_more",
        ),
    ] {
        let found = imported.compare(url, &Map::new()).unwrap().unwrap();
        assert!(found.assumption.is_some(), "{url}");
        assert_eq!(found.rule, None, "{expected}");
    }
    // Both forms of a seed are in the policy.
    for query in ["year=2026&lang=en", "lang=en&year=2026"] {
        let url = format!("http://example.net/report?{query}");
        assert_eq!(imported.compare(&url, &Map::new()).unwrap(), None);
        assert!(allows(&imported, &url));
    }
}

#[test]
fn each_line_is_in_one_list() {
    let imported = browsertrix_crawl();
    let lines = CRAWL.lines().filter(|line| !line.is_empty()).count();
    let listed = |list: &ReportList| imported.report.list(*list).count();
    assert_eq!(ReportList::ALL.iter().map(listed).sum::<usize>(), lines);
    assert!(imported.report.is_complete());
}

/// Returns `true` if the policy allows a request for a page.
fn allows(imported: &Import, url: &str) -> bool {
    allows_with(imported, url, &[])
}

fn allows_with(imported: &Import, url: &str, facts: &[(&str, Json)]) -> bool {
    let mut case = CaseFacts::for_url(url).unwrap();
    for (key, value) in facts {
        case.set(key, value).unwrap();
    }
    !compiled(imported).decide(&case.facts()).1.rejects()
}

fn crawl(text: &str) -> Import {
    let imported = import_texts(System::Browsertrix, &[("crawl.yaml", text)]);
    assert_eq!(imported.divergences, [], "{text}");
    imported
}

#[test]
fn scheme_and_www_are_ignored_and_ports_are_not() {
    let imported = crawl("seeds: [ 'https://www3.example.com:8443/a/b' ]");
    for host in [
        "http://example.com:8443",
        "https://www.example.com:8443",
        "http://www77.example.com:8443",
    ] {
        assert!(allows(&imported, &format!("{host}/a/x")), "{host}");
    }
    for url in [
        "https://example.com/a/x",
        "https://wwwx.example.com:8443/a/x",
        "https://example.com:8443/A/x",
        "https://example.com:8443/ab",
        "https://example.com.test:8443/a/",
    ] {
        assert!(!allows(&imported, url), "{url}");
    }
}

#[test]
fn a_seed_overrides_single_settings_of_the_crawl() {
    let imported = crawl(
        "seeds:\n- url: https://a.test/x/\n- url: https://b.test/x/\n  scopeType: host\n- url: https://c.test/x/\n  include: c\\.test/only\n- url: https://d.test/x/\n  exclude: ''\ninclude: /common/\nexclude: secret\n",
    );
    // No scopeType, but an include: only that counts.
    assert!(allows(&imported, "https://a.test/x/"));
    assert!(!allows(&imported, "https://a.test/x/y"));
    assert!(allows(&imported, "https://any.test/common/1"));
    // With a scopeType both count.
    assert!(allows(&imported, "https://b.test/y"));
    // The seed's own include is in the place of the crawl's.
    assert!(allows(&imported, "https://c.test/only/1"));
    assert!(!allows(&imported, "https://c.test/x/1"));
    // An empty exclude is one: the last seed has no exclusion.
    assert!(!allows(&imported, "https://b.test/secret"));
    assert!(allows(&imported, "https://b.test/common/secret"));
}

#[test]
fn of_a_name_and_its_alias_the_first_counts() {
    let imported = crawl(
        "url: https://a.test/\nscope-type: page\nexclude: /x\nscopeExcludeRx: /y\nseeds: [ 'https://b.test/' ]\n",
    );
    assert!(allows(&imported, "http://a.test/"));
    assert!(!allows(&imported, "http://a.test/z"));
    assert!(!allows(&imported, "https://b.test/"));
    assert_eq!(imported.report.list(ReportList::Dead).count(), 3);
    // A seed has no aliases.
    let imported = crawl(
        "seeds:\n- url: https://a.test/\n  scopeIncludeRx: b\\.test\n  useSitemap: true\nscopeType: host\n",
    );
    assert!(!allows(&imported, "https://b.test/"));
    assert_eq!(imported.report.list(ReportList::Dead).count(), 2);
}

#[test]
fn a_seed_is_requested_though_an_exclusion_fits_it() {
    for text in [
        "seeds: [ 'https://www.a.test/print/?id=1' ]\nexclude: print\n",
        "seeds:\n- url: https://www.a.test/print/?id=1\n  exclude: print\n- url: https://b.test/\n",
    ] {
        let imported = crawl(text);
        assert!(
            allows(&imported, "https://www.a.test/print/?id=1"),
            "{text}"
        );
        assert!(
            !allows(&imported, "https://www.a.test/print/?id=2"),
            "{text}"
        );
        assert!(!allows(&imported, "https://www.a.test/print/"), "{text}");
    }
}

#[test]
fn the_depth_is_that_of_the_seed_with_the_greatest() {
    let imported = crawl(
        "seeds:\n- { url: 'https://a.test/', depth: 5 }\n- { url: 'https://a.test/x/', depth: 1 }\n- { url: 'https://b.test/' }\ndepth: '2'\n",
    );
    let at = |url: &str, depth: u64| allows_with(&imported, url, &[("depth", json!(depth))]);
    assert!(at("https://a.test/x/y", 5) && !at("https://a.test/x/y", 6));
    assert!(at("https://b.test/y", 2) && !at("https://b.test/y", 3));
    // What belongs to a page has no depth of its own.
    let embed = [("depth", json!(9)), ("dest", json!("embed"))];
    assert!(allows_with(&imported, "https://cdn.test/x.css", &embed));
    let page = crawl("url: https://a.test/\nscopeType: page\ndepth: 3\n");
    let dead: Vec<_> = page.report.list(ReportList::Dead).collect();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].text, "depth: 3");
}

#[test]
fn expressions_may_be_written_as_other_values() {
    let imported = crawl("url: https://a.test/\nexclude: [ 2023, false, 1.5 ]\n");
    for path in ["2023", "false", "105"] {
        assert!(
            !allows(&imported, &format!("https://a.test/{path}")),
            "{path}"
        );
    }
    assert!(allows(&imported, "https://a.test/null"));
}

#[test]
fn block_rules_are_about_what_belongs_to_a_page() {
    let imported = crawl(
        "url: https://a.test/\nblockRules:\n- x\\.js\n- { url: 'cdn', type: allowOnly }\n- { type: block }\n",
    );
    let embed = |url: &str| allows_with(&imported, url, &[("dest", json!("embed"))]);
    assert!(allows(&imported, "https://a.test/x.js"));
    assert!(!embed("https://cdn.test/x.js"));
    assert!(embed("https://cdn.test/y.js"));
    assert!(!embed("https://a.test/y.js"));
    assert_eq!(imported.report.list(ReportList::Dead).count(), 1);
    // An allowOnly without a URL blocks everything.
    let imported = crawl("url: https://a.test/\nblockRules: [ { type: allowOnly } ]\n");
    assert!(!allows_with(
        &imported,
        "https://a.test/y.js",
        &[("dest", json!("embed"))]
    ));
    // After a rule on the text of frames Browsertrix tries no other.
    let imported = crawl(
        "url: https://a.test/\nblockRules:\n- { url: frame, frameTextMatch: x }\n- { url: frame }\n",
    );
    let assumed: Vec<_> = imported.report.list(ReportList::Assumed).collect();
    assert!(
        assumed.iter().any(|part| part.place.line == 4),
        "{assumed:?}"
    );
}

#[test]
fn hosts_of_advertisements_are_refused_for_pages_too() {
    let files = MemoryFileSystem::new()
        .with_file(
            "crawl.yaml",
            b"url: https://a.test/\nscopeType: any\nblockAds: true\n".as_slice(),
        )
        .with_file(
            "ad-hosts.json",
            br#"["ads.test", "not a host", ""]"#.as_slice(),
        );
    let paths = ["crawl.yaml", "ad-hosts.json"];
    let imported = import(System::Browsertrix, &ImportInput::new(&files, paths)).unwrap();
    assert_eq!(imported.divergences, []);
    assert!(imported.report.is_complete());
    assert!(!allows(&imported, "http://ads.test/x"));
    assert!(!allows_with(
        &imported,
        "http://ads.test/x",
        &[("dest", json!("embed"))]
    ));
    // Neither other ports nor hosts below it are in the list.
    assert!(allows(&imported, "http://ads.test:81/x"));
    assert!(allows(&imported, "http://x.ads.test/x"));
}

#[test]
fn robots_are_obeyed_for_pages_if_they_are_to_be() {
    let policy = |text: &str| crawl(text).files["policy.yaml"].clone();
    assert!(policy("url: https://a.test/\n").contains("obey: false"));
    let text = policy("url: https://a.test/\nuseRobots: true\n");
    assert!(
        text.contains("robots: { obey: true, agent: Browsertrix }"),
        "{text}"
    );
    assert!(text.contains("set: { robots: { obey: false } }"), "{text}");
    let text = policy("url: https://a.test/\nrobots: true\nrobotsAgent: GoodBot/2\n");
    assert!(text.contains("agent: GoodBot"), "{text}");
}

#[test]
fn sitemaps_are_requested() {
    let imported = crawl("url: https://a.test/x/\nuseSitemap: true\nexclude: xml\n");
    assert!(allows(&imported, "https://a.test/robots.txt"));
    assert!(allows(&imported, "https://a.test/sitemap.xml"));
    assert!(!allows(&imported, "https://a.test/other.xml"));
    let imported = crawl("seeds: [ { url: 'https://a.test/x/y', sitemap: ../map.xml.gz } ]\n");
    assert!(allows(&imported, "https://a.test/map.xml.gz"));
    let imported = crawl("url: https://a.test/\nuseSitemap: true\nscopeType: page\n");
    assert!(!allows(&imported, "https://a.test/sitemap.xml"));
}

#[test]
fn many_seeds_are_a_list() {
    let mut seeds = String::from("seeds:\n");
    for number in 0..100 {
        seeds.push_str(&format!("- https://www.site{number}.test/a+b/{number}\n"));
    }
    for scope_type in ["page", "page-spa", "prefix", "host", "domain", "custom"] {
        let imported = crawl(&format!("{seeds}scopeType: {scope_type}\n"));
        assert!(
            imported.files.contains_key("lists/seeds.txt"),
            "{scope_type}"
        );
        assert!(
            allows(&imported, "https://site7.test/a+b/7"),
            "{scope_type}"
        );
        let is_exact = matches!(scope_type, "page" | "page-spa" | "custom");
        assert_eq!(
            allows(&imported, "https://site7.test/a+b/8"),
            !is_exact,
            "{scope_type}"
        );
        let is_wide = matches!(scope_type, "host" | "domain");
        assert_eq!(
            allows(&imported, "https://site7.test/c"),
            is_wide,
            "{scope_type}"
        );
        let is_below = scope_type == "domain";
        assert_eq!(
            allows(&imported, "https://x.site7.test/c"),
            is_below,
            "{scope_type}"
        );
        assert!(
            !allows(&imported, "https://site777.test/a+b/7"),
            "{scope_type}"
        );
    }
}

#[test]
fn json_says_the_same_as_yaml() {
    let yaml = crawl("seeds:\n- url: https://a.test/\n  depth: 2\nexclude:\n- x\n");
    let text = r#"{ "seeds": [ { "url": "https://a.test/", "depth": 2 } ], "exclude": [ "x" ] }"#;
    let json = crawl(text);
    let without_lines =
        |imported: &Import| imported.files["policy.yaml"].replace("exclude-5", "exclude-1");
    assert_eq!(without_lines(&yaml), without_lines(&json));
    let wrapped = crawl(&format!("{{ \"name\": \"N\", \"config\": {text} }}"));
    assert_eq!(wrapped.files["policy.yaml"], json.files["policy.yaml"]);
}

#[test]
fn seeds_are_given_in_files() {
    let files = MemoryFileSystem::new()
        .with_file(
            "c.yaml",
            b"seedFile: /app/seeds.txt\nscopeType: host\n".as_slice(),
        )
        .with_file(
            "seeds.txt",
            b"https://a.test/\n\n  'https://user:hunter2@b.test/#x'  \n".as_slice(),
        );
    let mut input = ImportInput::new(&files, []);
    input.paths = vec![SourcePath {
        crawler: None,
        path: "c.yaml".to_owned(),
    }];
    let imported = import(System::Browsertrix, &input).unwrap();
    assert!(allows(&imported, "http://a.test/x") && allows(&imported, "http://b.test/x"));
    assert!(!imported.report.to_json().to_string().contains("hunter2"));
    input.seeds = Some("https://c.test/".to_owned());
    let imported = import(System::Browsertrix, &input).unwrap();
    assert!(allows(&imported, "http://c.test/x") && !allows(&imported, "http://a.test/x"));
}

/// Each is reported with the way in which it fails.
#[test]
fn what_is_not_converted_is_reported() {
    let lets_through = MissingPart::LetsThrough;
    let keeps_out = MissingPart::KeepsOut;
    for (line, expected) in [
        ("extraHops: 1", keeps_out),
        ("pageLimit: 10", lets_through),
        ("limit: 10", lets_through),
        ("maxPageLimit: 10", lets_through),
        ("sizeLimit: 10", lets_through),
        ("timeLimit: 10", lets_through),
        ("crawlTimeout: 10", lets_through),
        ("maxCrawlSize: 10", lets_through),
        ("depth: deep", lets_through),
        ("scopeType: sideways", keeps_out),
        ("blockAds: true", lets_through),
        ("blockRules: [ { url: x, inFrameUrl: y } ]", lets_through),
        (
            "blockRules: [ { url: x, frameTextMatch: y } ]",
            lets_through,
        ),
        ("blockRules: [ { url: x, type: hide } ]", lets_through),
        ("blockRules: [ { url: 'a.*(?<!b)c.*\\d' } ]", lets_through),
        ("exclude: 'a.*(?<!b)c.*\\d'", lets_through),
        ("include: 'a.*(?<!b)c.*\\d'", keeps_out),
        ("exclude: '('", lets_through),
        ("exclude: '#part'\nallowHashUrls: true", lets_through),
        ("include: '#!/'\nallowHashUrls: true", keeps_out),
        ("alwaysAddBehaviorLinks: true", keeps_out),
        ("addRedirectedSeeds: true", keeps_out),
        (
            "originOverride: [ 'http://a.test=http://b.test' ]",
            MissingPart::OtherSetting,
        ),
        (
            "useRobots: true\nrobotsAgent: 'Bot 9'",
            MissingPart::OtherSetting,
        ),
        ("seedFile: missing.txt", keeps_out),
        ("seedFile: https://lists.test/seeds.txt", keeps_out),
        ("seedFile: ../../etc/passwd", keeps_out),
        ("unheardOf: 1", lets_through),
    ] {
        let imported = crawl(&format!("seeds: [ 'https://s.test/' ]\n{line}\n"));
        let missing: Vec<_> = imported.report.list(ReportList::NotConverted).collect();
        assert!(!missing.is_empty(), "{line}");
        assert!(!imported.report.is_complete(), "{line}");
        let failures = missing.iter().filter_map(|part| match part.outcome() {
            Some(PartOutcome::NotConverted { failure, .. }) => Some(*failure),
            _ => None,
        });
        assert!(
            failures.into_iter().any(|failure| failure == expected),
            "{line}: {missing:?}"
        );
    }
}

#[test]
fn secrets_are_not_written() {
    let imported = crawl(
        "seeds:\n- https://user:hunter2@a.test/\n- url: https://b.test/\n  auth: user:hunter2\nproxyServer: socks5://user:hunter2@p.test\nredisStoreUrl: redis://:hunter2@r.test\nwarcInfo:\n  password: hunter2\n",
    );
    assert!(!imported.report.to_json().to_string().contains("hunter2"));
    assert!(
        imported
            .files
            .values()
            .all(|text| !text.contains("hunter2"))
    );
    assert!(allows(&imported, "https://a.test/"));
}

#[test]
fn hostile_files_end_with_an_error_or_a_report() {
    for text in [
        "",
        "[",
        "5",
        "seeds",
        "{}",
        "seeds: 1",
        "seeds: {}",
        "seeds: [ { url: 5 } ]",
        "seeds: [ [ ], null ]",
        "seeds: [ 'http://' ]",
        "seeds: [ 'ftp://a.test/' ]",
        "seeds: [ 'https://[::1]:8080/a' ]",
        "seeds: [ 'https://www.com/' ]",
        "seeds: [ 'https://www./' ]",
        "seeds: [ 'https://192.0.2.1/' ]",
        "seeds: &a [ *a ]",
        "url: https://a.test/\nblockRules: 5",
        "url: https://a.test/\nexclude: { a: b }",
        "url: https://a.test/\nexclude: ['']",
        "url: https://a.test/\ndepth: 99999999999",
        "config: { config: { seeds: [ 'https://a.test/' ] } }",
    ] {
        let files = MemoryFileSystem::new().with_file("a", text.as_bytes());
        if let Ok(imported) = import(System::Browsertrix, &ImportInput::new(&files, ["a"])) {
            assert_eq!(imported.divergences, [], "{text}");
        }
    }
}

#[test]
fn the_system_is_recognized() {
    for (text, expected) in [
        (CRAWL, System::Browsertrix),
        (
            "seeds:\n- url: https://a.test/\nscope:\n  accepts:\n  - domain: a\n",
            System::Brozzler,
        ),
        (
            "{ \"seeds\": [ \"https://a.test/\" ], \"scopeType\": \"host\" }",
            System::Browsertrix,
        ),
    ] {
        let files = MemoryFileSystem::new().with_file("a", text.as_bytes());
        let found = System::recognize(&ImportInput::new(&files, ["a"])).unwrap();
        assert_eq!(found, [expected], "{text}");
    }
}

/// They are not searched for requests, which would take minutes.
#[test]
fn many_seeds_have_settings_of_their_own() {
    let mut seeds = "seeds:\n".to_owned();
    for number in 0..150 {
        seeds.push_str(&format!(
            "- url: https://www.site{number}.test/a/\n  depth: {number}\n  exclude: no{number}$\n"
        ));
    }
    let imported = crawl(&seeds);
    assert!(allows(&imported, "http://site7.test/a/no8"));
    assert!(!allows(&imported, "http://site7.test/a/no7"));
    let page = "http://site7.test/a/x";
    let at = |depth: u64| allows_with(&imported, page, &[("depth", json!(depth))]);
    assert!(at(7) && !at(8));
}
