//! OmniFind: the policy against the three lists of rules, written plainly.

use std::fs;
use std::net::Ipv4Addr;

use crawlgate_import::{ImportInput, ReportList, SourcePath, System, import};
use crawlgate_policy::MemoryFileSystem;
use serde_json::{Map, Value as Json, json};

use super::seeds::{
    check_requests_of_policies, check_strange_values, check_worked_example, import_fixture,
    not_converted, root,
};
use super::support::{REQUESTS, compare_verdicts, import_texts, regex_fits};

fn source(name: &str) -> String {
    fs::read_to_string(root().join("tests/import/omnifind").join(name)).unwrap()
}

fn is_line(line: &&str) -> bool {
    !line.trim().is_empty() && !line.starts_with('#')
}

#[test]
fn each_line_is_in_one_list() {
    for (name, files) in [
        ("one-crawler", vec!["crawl.rules"]),
        (
            "worked-example",
            vec!["intranet.rules", "wiki.rules", "global.rules"],
        ),
        (
            "traps",
            vec!["crawl.rules", "followindex.rules", "global.rules"],
        ),
    ] {
        let imported = import_fixture(System::Omnifind, name);
        let listed: usize = ReportList::ALL
            .into_iter()
            .map(|list| imported.report.list(list).count())
            .sum();
        let lines: usize = files
            .iter()
            .map(|file| {
                source(&format!("{name}/{file}"))
                    .lines()
                    .filter(is_line)
                    .count()
            })
            .sum();
        assert_eq!(listed, lines, "{name}");
    }
}

/// Decides by one list: regular expressions instead of stars, the first that fits.
fn first(rules: &[(bool, String)], text: &str) -> bool {
    let found = rules.iter().find(|(_, pattern)| {
        let pattern = regex::escape(pattern).replace(r"\*", ".*");
        regex_fits(&format!("^{pattern}$"), text)
    });
    found.is_none_or(|(allows, _)| *allows)
}

#[test]
fn the_first_rule_of_each_type_decides() {
    let text = source("one-crawler/crawl.rules");
    let mut domains = Vec::new();
    let mut prefixes = Vec::new();
    for line in text.lines().filter(is_line) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let rule = |target: &str| (words[0] == "allow", target.to_owned());
        match words[1] {
            "domain" => domains.push(rule(words[2])),
            "prefix" => prefixes.push(rule(words[2])),
            "address" => {}
            target => prefixes.push(rule(target)),
        }
    }
    let imported = import_fixture(System::Omnifind, "one-crawler");
    let mut random = fastrand::Rng::with_seed(5);
    let hosts = [
        "www.ibm.test",
        "server1.ibm.test",
        "server.ibm.test",
        "mary.smith.user.ibm.test",
        "user.ibm.test",
        "ibm.test",
        "x.test",
    ];
    let words = ["cgi-bin/", "index", "private/", "a/", "b", "cgi-bin"];
    let addresses = [None, Some("9.1.2.3"), Some("10.1.2.3"), Some("2001:db8::1")];
    let requests: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let host = hosts[random.usize(..hosts.len())];
            let path: String = (0..random.usize(..4))
                .map(|_| words[random.usize(..words.len())])
                .collect();
            let mut facts = Map::new();
            if let Some(address) = addresses[random.usize(..addresses.len())] {
                facts.insert("address".to_owned(), json!(address));
            }
            (format!("http://{host}/{path}"), facts)
        })
        .collect();
    let oracle = |url: &str, facts: &Map<String, Json>| {
        let host = url.split('/').nth(2).unwrap();
        let by_address = match facts.get("address").and_then(Json::as_str) {
            None => true,
            Some(address) => address
                .parse::<Ipv4Addr>()
                .is_ok_and(|address| address.octets()[0] == 9),
        };
        first(&domains, host) && first(&prefixes, url) && by_address
    };
    assert_eq!(compare_verdicts(&imported, requests, oracle), 0);
}

#[test]
fn the_worked_example_decides_its_cases_alike() {
    let imported = import_fixture(System::Omnifind, "worked-example");
    check_worked_example(&imported, System::Omnifind, &[]);
    let compared = check_requests_of_policies(&imported, System::Omnifind, &[]);
    assert!(compared > 50, "{compared}");
}

#[test]
fn capitals_of_a_host_are_announced_and_shown_by_a_url() {
    let imported = import_texts(
        System::Omnifind,
        &[(
            "crawl.rules",
            "forbid domain WWW.old.test\nforbid prefix http://Docs.test/a*\n",
        )],
    );
    // OmniFind compares hosts as they are written: neither rule fits a host in lower case.
    let urls = [
        "http://www.old.test/",
        "http://docs.test/a1",
        "http://docs.test/b",
    ];
    let requests = urls.map(|url| (url.to_owned(), Map::new()));
    assert_eq!(compare_verdicts(&imported, requests, |_, _| true), 2);
    let assumed: Vec<String> = imported
        .report
        .list(ReportList::Assumed)
        .map(|part| format!("{:?}", part.outcome()))
        .collect();
    assert_eq!(assumed.len(), 2);
    assert!(
        assumed.iter().all(|it| it.contains("RefusesMore")),
        "{assumed:#?}"
    );
}

#[test]
fn what_cannot_be_said_is_named_with_the_way_in_which_it_fails() {
    for (line, why, failure) in [
        ("forbid robots a.test", "not `domain HOST`", "LetsThrough"),
        (
            "deny domain a.test",
            "begins with `allow` or `forbid`",
            "LetsThrough",
        ),
        ("allow domain", "not `domain HOST`", "KeepsOut"),
        (
            "forbid domain a.test/b",
            "a host, or a host and a port",
            "LetsThrough",
        ),
        ("forbid domain a.test:http", "not a port", "LetsThrough"),
        (
            "forbid domain a.test:*",
            "port cannot be a pattern",
            "LetsThrough",
        ),
        (
            "forbid prefix ftp://a.test/",
            "HTTP or HTTPS",
            "LetsThrough",
        ),
        (
            "forbid address 10.0.0.1 255.0.0.255",
            "netmask",
            "LetsThrough",
        ),
        (
            "forbid address 10.0.0.x 255.0.0.0",
            "not an IP address",
            "LetsThrough",
        ),
        (
            "forbid address 10.0.0.1 ffff::",
            "different versions",
            "LetsThrough",
        ),
        (
            "allow address 10.0.0.0/33\nforbid address 0.0.0.0 0.0.0.0",
            "IP address and a netmask",
            "KeepsOut",
        ),
    ] {
        let imported = import_texts(System::Omnifind, &[("crawl.rules", line)]);
        let found = not_converted(&imported);
        assert!(!imported.report.is_complete());
        assert!(
            found
                .iter()
                .any(|it| it.contains(why) && it.contains(failure)),
            "{line}: {found:#?}"
        );
        assert!(
            imported.files["policy.yaml"].contains("# not converted"),
            "{line}"
        );
    }
    let imported = import_fixture(System::Omnifind, "traps");
    let found = not_converted(&imported);
    assert!(found.iter().any(|it| it.contains("indexing and following")));
}

#[test]
fn the_global_file_has_domain_rules_only() {
    for global in [
        "forbid prefix http://a.test/\n",
        "forbid address 10.0.0.0 255.0.0.0\n",
        "forbid\n",
    ] {
        let files = MemoryFileSystem::new()
            .with_file("crawl.rules", b"forbid domain a.test\n")
            .with_file("shared.rules", global.as_bytes());
        let mut input = ImportInput::new(&files, ["crawl.rules"]);
        input.global = Some("shared.rules".to_owned());
        let error = import(System::Omnifind, &input).err().unwrap().to_string();
        assert!(error.contains("shared.rules:1:1"), "{error}");
    }
}

#[test]
fn a_global_space_that_differs_from_the_spaces_is_announced_with_a_host() {
    let files = MemoryFileSystem::new()
        .with_file("a.rules", b"allow domain a.test\nforbid domain *\n")
        .with_file("b.rules", b"allow domain b.test\nforbid domain *\n")
        .with_file(
            "global.rules",
            b"allow domain a.test\nallow domain c.test\n",
        );
    let mut input = ImportInput::new(&files, []);
    for (name, path) in [("a", "a.rules"), ("b", "b.rules")] {
        input.paths.push(SourcePath {
            crawler: Some(name.to_owned()),
            path: path.to_owned(),
        });
    }
    input.global = Some("global.rules".to_owned());
    let imported = import(System::Omnifind, &input).unwrap();
    let assumed: Vec<String> = imported
        .report
        .list(ReportList::Assumed)
        .map(|part| format!("{} {:?}", part.text, part.outcome()))
        .collect();
    assert_eq!(assumed.len(), 2, "{assumed:#?}");
    assert!(
        assumed[0].contains("allow domain b.test") && assumed[0].contains("may leave the index")
    );
    assert!(assumed[1].contains("allow domain c.test") && assumed[1].contains("stay in the index"));
}

#[test]
fn a_rule_that_is_taken_away_changes_the_policy() {
    let text = source("one-crawler/crawl.rules");
    let whole = import_texts(System::Omnifind, &[("crawl.rules", &text)]);
    let count = text.lines().filter(is_line).count();
    for left_out in 0..count {
        let mut at = 0;
        let lines = text.lines().filter(|line| {
            let is_rule = is_line(line);
            at += usize::from(is_rule);
            !is_rule || at != left_out + 1
        });
        let lines: Vec<&str> = lines.collect();
        let without = import_texts(System::Omnifind, &[("crawl.rules", &lines.join("\n"))]);
        assert_ne!(without.files, whole.files);
        assert_ne!(without.report.to_json(), whole.report.to_json());
    }
}

#[test]
fn strange_values_are_converted_or_named() {
    for kind in ["domain", "prefix", "prefix http://a.test/", "address"] {
        let separator = if kind.ends_with('/') { "" } else { " " };
        check_strange_values(System::Omnifind, |value| {
            format!("forbid {kind}{separator}{value}\n")
        });
    }
}
