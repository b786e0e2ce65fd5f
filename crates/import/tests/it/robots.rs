//! robots.txt: the policy against a plain reading of RFC 9309, and what is not converted.

use crawlgate_import::{
    Import, ImportInput, MissingPart, PartOutcome, ReportList, SourcePath, System, import,
};
use crawlgate_policy::MemoryFileSystem;
use regex::Regex;
use serde_json::Map;

use super::support::{REQUESTS, compare_verdicts};

fn import_robots(host: &str, agent: &str, text: &str) -> Import {
    let files = MemoryFileSystem::new().with_file("robots.txt", text.as_bytes());
    let mut input = ImportInput::new(&files, []);
    input.paths = vec![SourcePath {
        crawler: Some(host.to_owned()),
        path: "robots.txt".to_owned(),
    }];
    input.variables.push(("agent".to_owned(), agent.to_owned()));
    import(System::Robots, &input).unwrap()
}

/// Compiles a pattern of a robots.txt without escapes.
fn to_regex(pattern: &str) -> Regex {
    let (pattern, end) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, "$"),
        None => (pattern, ""),
    };
    let parts: Vec<String> = pattern.split('*').map(regex::escape).collect();
    Regex::new(&format!("^{}{end}", parts.join(".*"))).unwrap()
}

#[test]
fn the_longest_pattern_decides() {
    let words = ["/", "a", "b", "ab", "*", "/a/", ".pdf", "$", "?", "x=1"];
    let mut random = fastrand::Rng::with_seed(3);
    let mut checked = 0;
    for _ in 0..5 {
        let mut lines = Vec::new();
        for _ in 0..random.usize(1..8) {
            let mut pattern = String::from("/");
            for _ in 0..random.usize(0..4) {
                pattern.push_str(words[random.usize(..words.len())]);
            }
            // A `$` in the middle is a letter, which is compared elsewhere.
            let inner = pattern.trim_end_matches('$').replace('$', "");
            let pattern = if pattern.ends_with('$') {
                format!("{inner}$")
            } else {
                inner
            };
            lines.push((random.bool(), pattern));
        }
        let text: String = lines
            .iter()
            .map(|(allows, pattern)| {
                format!(
                    "{}: {pattern}\n",
                    if *allows { "Allow" } else { "Disallow" }
                )
            })
            .collect();
        let imported = import_robots("www.example.com", "*", &format!("User-agent: *\n{text}"));
        assert_eq!(imported.divergences, [], "{text}");
        let rules: Vec<(bool, usize, Regex)> = lines
            .iter()
            .map(|(allows, pattern)| (*allows, pattern.len(), to_regex(pattern)))
            .collect();
        let paths = [
            "a",
            "b",
            "ab",
            "c",
            "/a/",
            ".pdf",
            "?x=1",
            "robots.txt",
            "d/",
        ];
        let urls = (0..REQUESTS / 5).map(|_| {
            let host = ["www.example.com", "example.com"][random.usize(..2)];
            let path: String = (0..random.usize(0..4))
                .map(|_| paths[random.usize(..paths.len())])
                .collect();
            let path = path.replace("//", "/");
            (
                format!("http://{host}/{}", path.trim_start_matches('/')),
                Map::new(),
            )
        });
        let urls: Vec<_> = urls.collect();
        checked += urls.len();
        let announced = compare_verdicts(&imported, urls, |url, _| {
            let Some(path) = url.strip_prefix("http://www.example.com") else {
                return true;
            };
            if path == "/robots.txt" || path.starts_with("/robots.txt?") {
                return true;
            }
            let fitting = rules.iter().filter(|(_, _, regex)| regex.is_match(path));
            let best = fitting.max_by_key(|(allows, length, _)| (*length, *allows));
            best.is_none_or(|(allows, _, _)| *allows)
        });
        assert_eq!(announced, 0, "{text}");
    }
    assert_eq!(checked, REQUESTS);
}

#[test]
fn groups_are_chosen_by_the_product_token() {
    let text = "User-agent: GoodBot/2\nUser-agent: other\nDisallow: /good\nUser-agent: *\nDisallow: /all\n";
    for (agent, refused) in [
        ("goodbot", "/good"),
        ("OTHER", "/good"),
        ("third", "/all"),
        ("*", "/all"),
    ] {
        let imported = import_robots("a.example", agent, text);
        let policy = &imported.files["policy.yaml"];
        assert!(
            policy.contains(&format!("path_and_query: {refused}")),
            "{agent}: {policy}"
        );
    }
}

#[test]
fn fields_that_are_no_rules_are_named() {
    for (line, failure) in [
        ("Request-rate: 1/10", MissingPart::OtherSetting),
        ("Content-Signal: ai-train=no", MissingPart::LetsThrough),
        ("Content-Usage: train-ai=n", MissingPart::LetsThrough),
        ("Noindex: /a", MissingPart::OtherSetting),
        ("Clean-param: sid", MissingPart::OtherSetting),
    ] {
        let imported = import_robots(
            "a.example",
            "*",
            &format!("User-agent: *\nDisallow: /a\n{line}\n"),
        );
        assert!(!imported.report.is_complete(), "{line}");
        let part = imported
            .report
            .list(ReportList::NotConverted)
            .next()
            .unwrap();
        assert_eq!(part.text, line);
        let Some(PartOutcome::NotConverted {
            failure: found,
            instead,
            ..
        }) = part.outcome()
        else {
            panic!("{line}");
        };
        assert_eq!((*found, instead.is_some()), (failure, true), "{line}");
    }
}

#[test]
fn every_line_is_reported_and_hostile_files_end() {
    let mut random = fastrand::Rng::with_seed(9);
    let fields = [
        "User-agent: a",
        "Disallow: /x",
        "Allow: /y*",
        "# c",
        "",
        "Sitemap: z",
        "nonsense",
        "Crawl-delay: 1e9",
    ];
    for _ in 0..10 {
        let lines: Vec<&str> = (0..20)
            .map(|_| fields[random.usize(..fields.len())])
            .collect();
        let imported = import_robots("a.example", "a", &lines.join("\n"));
        let count = lines
            .iter()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .count();
        assert_eq!(imported.report.parts().len(), count);
    }
    let stars = format!("User-agent: *\nDisallow: /{}\n", "*a".repeat(2_000));
    import_robots("a.example", "*", &stars);
    let files = MemoryFileSystem::new().with_file("robots.txt", vec![b'a'; 60 << 20]);
    let mut input = ImportInput::new(&files, ["robots.txt"]);
    input
        .variables
        .push(("host".to_owned(), "a.example".to_owned()));
    let error = import(System::Robots, &input).err().unwrap().to_string();
    assert!(error.contains("larger than 512 KiB"), "{error}");
    let input = ImportInput::new(&files, ["robots.txt"]);
    let error = import(System::Robots, &input).err().unwrap().to_string();
    assert!(error.contains("HOST=FILE"), "{error}");
}

#[test]
fn a_page_is_no_robots_txt_and_an_empty_file_allows_everything() {
    let read = |text: &str| {
        let files = MemoryFileSystem::new().with_file("robots.txt", text.as_bytes());
        let mut input = ImportInput::new(&files, ["robots.txt"]);
        input.paths[0].crawler = Some("a.test".to_owned());
        import(System::Robots, &input)
    };
    for page in [
        "<!DOCTYPE html><title>404</title>",
        "\n <html>\n<p>Write this:\nUser-agent: *\nDisallow: /\n</html>",
        "<?xml version='1.0'?><error/>",
    ] {
        let error = read(page).err().map(|error| error.to_string());
        assert!(
            error.is_some_and(|error| error.contains("an HTML page")),
            "{page}"
        );
    }
    for text in [
        "",
        "# nothing\n",
        "<!-- ours -->\nUser-agent: *\nDisallow: /a\n",
    ] {
        assert!(read(text).is_ok(), "{text}");
    }
}
