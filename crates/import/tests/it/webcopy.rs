//! WebCopy: the policy against its two passes over the list of rules, written plainly.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use crawlgate_import::{Import, ImportError, ImportInput, ReportList, System, import};
use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::cases::ExpectedVerdict;
use crawlgate_policy::internal::policy::compile;
use regex::Regex;
use serde_json::{Map, Value as Json, json};

use super::seeds::{
    check_strange_values, check_worked_example, count_xml_parts, import_fixture, not_converted,
    root,
};
use super::support::{REQUESTS, compare_verdicts, compiled};
use super::webcopy_files::{Packing, pack, to_binary};

fn source(name: &str) -> String {
    let path = root().join("tests/import/webcopy").join(name);
    fs::read_to_string(path.join("project.xml")).unwrap()
}

fn try_import(bytes: &[u8], variables: &[(&str, &str)]) -> Result<Import, ImportError> {
    let files = MemoryFileSystem::new().with_file("p.cwp", bytes);
    let mut input = ImportInput::new(&files, ["p.cwp"]);
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    input.variables = variables.iter().map(owned).collect();
    import(System::WebCopy, &input)
}

fn dump(bytes: &[u8]) -> Result<String, ImportError> {
    let files = MemoryFileSystem::new().with_file("p.cwp", bytes);
    let input = ImportInput::new(&files, ["p.cwp"]);
    System::WebCopy.dump(&input).unwrap()
}

/// A project in XML, with rules and options.
fn project(rules: &str, options: &str) -> String {
    format!(
        "<Cyotek.WebCopy.WebCopyProject type=\"Compound\">\n{options}\n<rules type=\"List\" limitType=\"Compound\">{rules}</rules></Cyotek.WebCopy.WebCopyProject>"
    )
}

fn tag(name: &str, value: &str) -> String {
    format!("<{name} type=\"String\"><![CDATA[{value}]]></{name}>")
}

fn flag(name: &str) -> String {
    format!("<{name} type=\"Byte\">1</{name}>")
}

/// A rule in XML, with further tags.
fn rule(compare: &str, expression: &str, action: &str, more: &str) -> String {
    format!(
        "<tag>{}{}{}{}{more}</tag>",
        flag("enabled"),
        tag("compare", compare),
        tag("expression", expression),
        tag("action", action)
    )
}

fn import_rules(rules: &str) -> Import {
    try_import(project(rules, "").as_bytes(), &[]).unwrap()
}

fn listed(imported: &Import) -> usize {
    let parts = imported.report.parts().iter();
    parts.map(|part| part.lines as usize).sum()
}

#[test]
fn each_tag_is_in_one_list() {
    let data = Regex::new(r"(?s)<!\[CDATA\[.*?\]\]>").unwrap();
    let attribute = Regex::new(r#" \w+="\w+""#).unwrap();
    for (name, is_binary) in [("worked-example", true), ("flags", true), ("twin", false)] {
        let imported = import_fixture(System::WebCopy, name);
        let text = source(name);
        let text = data.replace_all(&text, "x");
        let text = match is_binary {
            // A tag of the binary form is an element; the attributes are in it.
            true => attribute.replace_all(&text, ""),
            false => text.clone(),
        };
        assert_eq!(listed(&imported), count_xml_parts(&text), "{name}");
        let shown: usize = ReportList::ALL
            .into_iter()
            .flat_map(|list| imported.report.list(list))
            .map(|part| part.lines as usize)
            .sum();
        assert_eq!(shown, listed(&imported), "{name}");
    }
}

/// A rule of an oracle: the text that it compares, the expression, and what it does.
struct OracleRule(&'static str, Regex, bool, Option<&'static str>, bool);

fn oracle_rule(
    text: &'static str,
    expression: &str,
    fits: bool,
    action: Option<&'static str>,
    stops: bool,
) -> OracleRule {
    OracleRule(text, Regex::new(expression).unwrap(), fits, action, stops)
}

/// Both passes: the last rule that fits decides, and one may stop the others of its pass.
fn oracle_allows(rules: &[OracleRule], url: &str, kind: Option<&str>) -> bool {
    let (_, rest) = url.split_once("://").unwrap();
    let (authority, rest) = rest.split_once('/').unwrap();
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut outcome = "download";
    for is_type in [false, true] {
        if is_type && (outcome == "exclude" || kind.is_none()) {
            continue;
        }
        for OracleRule(text, expression, fits, action, stops) in rules {
            if (*text == "type") != is_type {
                continue;
            }
            let text = match *text {
                "authority" => authority.to_owned(),
                "path" => path.to_owned(),
                "query" => query.to_owned(),
                "path-query" => rest.to_owned(),
                "url" => url.to_owned(),
                _ => kind.unwrap().to_owned(),
            };
            if expression.is_match(&text) == *fits {
                outcome = action.unwrap_or(outcome);
                if *stops {
                    break;
                }
            }
        }
    }
    match outcome {
        "exclude" => false,
        "scan" => kind.is_none_or(|kind| kind == "text/html"),
        _ => true,
    }
}

fn made_urls(
    seed: u64,
    hosts: &[&str],
    paths: &[&str],
    queries: &[&str],
) -> Vec<(String, Map<String, Json>)> {
    let kinds = [
        "text/html",
        "text/css",
        "application/pdf",
        "application/epub+zip",
        "video/mp4",
        "image/png",
        "",
    ];
    let mut random = fastrand::Rng::with_seed(seed);
    let mut one = |words: &[&str]| words[random.usize(..words.len())].to_owned();
    let urls = (0..REQUESTS).map(|_| {
        let host = one(hosts);
        let path: String = [one(paths), one(paths), one(paths)].concat();
        let path = path.trim_start_matches('/').replace("//", "/");
        let url = format!("http://{host}/{path}{}", one(queries));
        let mut facts = Map::new();
        if one(&["with", "without", "with"]) == "with" {
            facts.insert("content_type".to_owned(), json!(one(&kinds)));
        }
        (url, facts)
    });
    urls.collect()
}

/// The import of the worked example takes long: one test has all that is shown by it.
#[test]
fn the_worked_example_decides_alike() {
    let imported = import_fixture(System::WebCopy, "worked-example");
    check_worked_example(&imported, System::WebCopy, &[]);
    the_requests_of_all_policies_are_decided_as_by_the_example(&imported);
    the_last_rule_of_each_pass_decides(&imported);
}

fn the_last_rule_of_each_pass_decides(imported: &Import) {
    let exclude = Some("exclude");
    let download = Some("download");
    let rules = [
        oracle_rule("authority", r"^docs\.example\.com$", false, exclude, true),
        oracle_rule("query", ".", true, exclude, false),
        oracle_rule("path", "^list/", true, Some("scan"), false),
        oracle_rule(
            "path-query",
            r"^list/[^?]*\?page=[0-9]+$",
            true,
            Some("scan"),
            false,
        ),
        oracle_rule("path", "^files/", true, exclude, false),
        oracle_rule("path", r"^files/manual-[^/]+\.pdf$", true, download, false),
        oracle_rule("path", "^v[0-9]+/", true, download, false),
        oracle_rule("path", "^(login|logout)(/|$)", true, exclude, true),
        oracle_rule("query", "^print=1$", true, download, false),
        oracle_rule("type", r"^application/epub\+zip$", true, download, true),
        oracle_rule("type", "^(video|audio|application)/", true, exclude, false),
        oracle_rule("type", "^application/pdf$", true, download, false),
    ];
    let requests = made_urls(
        1,
        &[
            "docs.example.com",
            "docs.example.com",
            "docs.example.com:8080",
            "docsxexample.com",
        ],
        &[
            "",
            "list/",
            "files/",
            "manual-1.pdf",
            "manual-",
            "v1/",
            "v/",
            "login",
            "logout/",
            "/",
            "a",
        ],
        &[
            "",
            "",
            "?page=2",
            "?page=x",
            "?print=1",
            "?print=1&a=2",
            "?sort=name",
        ],
    );
    let oracle = |url: &str, facts: &Map<String, Json>| {
        oracle_allows(
            &rules,
            url,
            facts.get("content_type").and_then(Json::as_str),
        )
    };
    assert_eq!(compare_verdicts(imported, requests, oracle), 0);
}

#[test]
fn the_flags_of_version_1_7_are_on_path_and_query() {
    let imported = import_fixture(System::WebCopy, "flags");
    let exclude = Some("exclude");
    let rules = [
        oracle_rule("path-query", r"\.(zip|exe)$", true, exclude, false),
        oracle_rule("path-query", "^archive/", true, Some("scan"), false),
        oracle_rule(
            "path-query",
            r"^archive/[0-9]{4}/index\.html$",
            true,
            Some("download"),
            false,
        ),
        // `^/private/` fits nothing, and the rule on `logout` is disabled.
        oracle_rule(
            "url",
            "^http://images[.]example[.]org/($|[^p]|p$|p[^u])",
            true,
            exclude,
            false,
        ),
        oracle_rule(
            "path-query",
            r"^(en|de|public)/|^$|^archive/|\.css$",
            false,
            exclude,
            false,
        ),
        oracle_rule("path-query", "^en/print/", true, Some("download"), false),
        oracle_rule("path-query", "(?i)sessionid=", true, exclude, true),
    ];
    let requests = made_urls(
        2,
        &[
            "www.example.org",
            "www.example.org",
            "images.example.org",
            "example.org",
        ],
        &[
            "",
            "archive/",
            "2019/",
            "index.html",
            "en/",
            "print/",
            "public/",
            "a.css",
            "b.exe",
            "private/",
            "logout",
            "x",
        ],
        &["", "", "?SessionID=1", "?a=b.zip", "?sessionid", "?x=.css"],
    );
    let oracle = |url: &str, facts: &Map<String, Json>| {
        let host = url.split('/').nth(2).unwrap();
        let kind = facts.get("content_type").and_then(Json::as_str);
        host != "example.org" && oracle_allows(&rules, url, kind)
    };
    assert_eq!(compare_verdicts(&imported, requests, oracle), 0);
}

#[test]
fn hosts_and_depth_limit_the_project() {
    let imported = import_fixture(System::WebCopy, "twin");
    let exclude = Some("exclude");
    let rules = [
        oracle_rule("path", "^shop/", true, exclude, false),
        oracle_rule(
            "path",
            r"^shop/[0-9A-Za-z_]+\.html$",
            true,
            Some("download"),
            false,
        ),
        oracle_rule("url", "/tmp", true, exclude, false),
        oracle_rule("query", "a(<|%3C)b(>|%3E)&c", true, Some("scan"), false),
        oracle_rule("type", "^text/", false, exclude, false),
    ];
    let requests = made_urls(
        3,
        &[
            "www.example.com",
            "example.com",
            "blog.example.com",
            "example.org",
        ],
        &["", "shop/", "a.html", "b/", "c/", "tmp", "d.e/", "f"],
        &["", "", "?page=1", "?page=2", "?a<b>&c", "?a<b>&cpage=1"],
    );
    let oracle = |url: &str, facts: &Map<String, Json>| {
        let (host, rest) = url["http://".len()..].split_once('/').unwrap();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let directories = path.matches('/').count();
        let document = path.rsplit('/').next().unwrap();
        let depth = directories + usize::from(!document.is_empty() && !document.contains('.'));
        let is_deep = host == "www.example.com" && depth > 4;
        let kind = facts.get("content_type").and_then(Json::as_str);
        if !host.ends_with("example.com") || is_deep {
            return false;
        }
        // The last rule on URLs allows, and ends only the rules on URLs.
        let is_blog = host == "blog.example.com";
        let is_listed = !query.is_empty() && !query.contains("page=1");
        let types = &rules[4..];
        match (is_blog, is_listed) {
            (true, _) => oracle_allows(types, url, kind),
            (false, true) => false,
            (false, false) => oracle_allows(&rules, url, kind),
        }
    };
    assert_eq!(compare_verdicts(&imported, requests, oracle), 0);
}

#[test]
fn the_vectors_of_the_text_are_decided_alike() {
    let types = rule(
        "Content Type",
        "^text/html$",
        "Exclude",
        &tag("operand", "Does Not Match"),
    );
    let rules = [
        rule("Path", ".*", "Exclude", ""),
        rule(
            "Path",
            "^docs/",
            "Download",
            &tag("downloadPriority", "High"),
        ),
        rule("Path", "^docs/private", "Exclude", &flag("stopProcessing")),
        rule("Query String", ".+", "Exclude, but scan", ""),
        types,
    ];
    let imported = import_rules(&rules.concat());
    for (path, kind, allows) in [
        ("x", None, false),
        ("docs/a", Some("text/html"), true),
        ("docs/a.pdf", Some("application/pdf"), false),
        ("docs/private/a?x=1", None, false),
        ("docs/a?x=1", Some("text/html"), true),
        ("x?x=1", Some("text/html"), true),
        ("docs/a", Some(""), false),
    ] {
        let facts = kind.map(|kind| ("content_type".to_owned(), json!(kind)));
        let request = (format!("http://h.test/{path}"), facts.into_iter().collect());
        assert_eq!(compare_verdicts(&imported, [request], |_, _| allows), 0);
    }
}

/// Options that the actions of a rule set.
const ACTION_OPTIONS: [&str; 4] = ["index", "follow", "priority", "html_only"];

fn the_requests_of_all_policies_are_decided_as_by_the_example(imported: &Import) {
    let policy = compiled(imported);
    let example = fs::read(root().join("config/policies/webcopy.yaml")).unwrap();
    let files = MemoryFileSystem::new().with_file("policy.yaml", example);
    let example = compile::load(&files, "policy.yaml").unwrap();
    let mut compared = 0;
    for (name, text) in policies() {
        let files = MemoryFileSystem::new().with_file("policy.yaml", text.as_bytes());
        let Ok(other) = compile::load(&files, "policy.yaml") else {
            assert_eq!(name, "invalid_refused");
            continue;
        };
        for case in other.cases.iter().chain(&example.cases) {
            let facts = case.facts.facts();
            let (expected_trail, expected) = example.policy.decide_every_rule(&facts);
            let (trail, decision) = policy.decide_every_rule(&facts);
            assert_eq!(decision.rejects(), expected.rejects(), "{name}: {case:?}");
            let expected = example.policy.options_json(&expected_trail);
            let options = policy.options_json(&trail);
            for option in ACTION_OPTIONS {
                assert_eq!(
                    options[option], expected[option],
                    "{name}: {option} {case:?}"
                );
            }
            compared += 1;
        }
    }
    assert!(compared > 300, "{compared}");
}

/// The policies of `tests/policies/webcopy`.
fn policies() -> BTreeMap<String, String> {
    let files = fs::read_dir(root().join("tests/policies/webcopy")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let policies = files.filter(|path| path.extension().is_some_and(|it| it == "yaml"));
    policies
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// Writes a rule of a policy as a rule of a project.
fn rule_of_policy(rule: &Json) -> String {
    let (operand, condition) = match (&rule["when"], &rule["unless"]) {
        (Json::Null, condition) => ("Does Not Match", condition),
        (condition, _) => ("Matches", condition),
    };
    let (field, test) = condition.as_object().unwrap().iter().next().unwrap();
    let regex = test["regex"].as_str().unwrap();
    let compare = match field.as_str() {
        "authority" => "Authority",
        "authority_path_query" => "Authority, Path, and Query String",
        "content_type" => "Content Type",
        "url" => "Entire URL",
        "path" | "rel_path" => "Path",
        "rel_path_and_query" => "Path and Query String",
        "query" => "Query String",
        other => panic!("{other}"),
    };
    // The path of a project has no slash at its beginning.
    let regex = match (field.as_str(), regex.strip_prefix('/')) {
        ("path", Some(rest)) => format!("(^|/){rest}"),
        ("path", None) => regex.replace("^/", "^"),
        _ => regex.to_owned(),
    };
    let action = match rule["then"].as_str().unwrap_or("exclude") {
        "exclude" => "Exclude",
        "exclude-but-scan" => "Exclude, but scan",
        "download" => "Download",
        "download-no-scan" => "Download, but do not scan",
        other => panic!("{other}"),
    };
    let priority = match rule["set"]["priority"].as_str() {
        Some("highest") => "High",
        Some("lowest") => "Low",
        _ => "Normal",
    };
    let enabled = u8::from(rule["enabled"] != json!(false));
    let stop = u8::from(rule["stop"] == json!(true));
    format!(
        "<tag><enabled type=\"Byte\">{enabled}</enabled><stopProcessing type=\"Byte\">{stop}</stopProcessing>{}{}{}{}{}</tag>",
        tag("expression", &regex),
        tag("compare", compare),
        tag("operand", operand),
        tag("action", action),
        tag("downloadPriority", priority),
    )
}

#[test]
fn each_policy_written_as_a_project_decides_its_cases_alike() {
    let mut compared = 0;
    for (name, text) in policies() {
        let files = MemoryFileSystem::new().with_file("policy.yaml", text.as_bytes());
        // `compare` sets values instead of actions, and has its own test.
        let Some(original) = compile::load(&files, "policy.yaml")
            .ok()
            .filter(|_| name != "compare")
        else {
            continue;
        };
        let source: Json = serde_saphyr::from_str(&text).unwrap();
        let rules = source["rules"].as_array().unwrap().iter();
        let rules: String = rules.map(rule_of_policy).collect();
        let imported = try_import(project(&rules, "").as_bytes(), &[]).unwrap();
        let is_complete = name != "invalid_disabled";
        assert_eq!(imported.report.is_complete(), is_complete, "{name}");
        assert_eq!(imported.divergences, [], "{name}");
        let policy = compiled(&imported);
        for case in &original.cases {
            let facts = case.facts.facts();
            let (expected_trail, _) = original.policy.decide_every_rule(&facts);
            let (trail, decision) = policy.decide_every_rule(&facts);
            let expected = case.expect.verdict == ExpectedVerdict::Reject;
            assert_eq!(decision.rejects(), expected, "{name}: {case:?}");
            let expected = original.policy.options_json(&expected_trail);
            let options = policy.options_json(&trail);
            for option in ["index", "priority", "html_only"] {
                assert_eq!(
                    options[option], expected[option],
                    "{name}: {option} {case:?}"
                );
            }
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn each_row_of_the_table_of_inputs_compares_the_same_text() {
    let text = policies().remove("compare").unwrap();
    let source: Json = serde_saphyr::from_str(&text).unwrap();
    let mut compared = 0;
    for rule in source["rules"].as_array().unwrap() {
        let imported = import_rules(&rule_of_policy(rule));
        let sets = rule["set"]["meta"].as_object().unwrap();
        let key = sets.keys().next().unwrap();
        for case in source["cases"].as_array().unwrap() {
            let expected = &case["options"]["meta"];
            let Some(expected) = expected.as_object().and_then(|it| it.get(key)) else {
                continue;
            };
            let facts = case.as_object().unwrap().iter();
            let facts = facts.filter(|(name, _)| *name == "content_type");
            let facts: Map<String, Json> =
                facts.map(|(key, it)| (key.clone(), it.clone())).collect();
            let url = case["url"].as_str().unwrap().to_owned();
            assert_eq!(
                compare_verdicts(&imported, [(url, facts)], |_, _| expected.is_null()),
                0
            );
            compared += 1;
        }
    }
    assert!(compared >= 25, "{compared}");
}

#[test]
fn each_form_of_a_file_is_read_and_recognized() {
    let xml = source("flags");
    let variables = [("crawlMode.0", "site")];
    let expected = try_import(&to_binary(&xml, Packing::None), &variables).unwrap();
    let utf_16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain(
            xml.replace("utf-8", "utf-16")
                .encode_utf16()
                .flat_map(u16::to_le_bytes),
        )
        .collect();
    let with_mark = format!("\u{feff}{xml}");
    for bytes in [
        to_binary(&xml, Packing::Gzip),
        to_binary(&xml, Packing::Zlib),
        to_binary(&xml, Packing::Deflate),
        xml.clone().into_bytes(),
        with_mark.into_bytes(),
        utf_16,
    ] {
        let imported = try_import(&bytes, &variables).unwrap();
        assert_eq!(imported.files, expected.files);
    }
    for (name, bytes) in [
        ("gzip", to_binary(&xml, Packing::Gzip)),
        ("zlib", to_binary(&xml, Packing::Zlib)),
        ("deflate", to_binary(&xml, Packing::Deflate)),
        ("raw", to_binary(&xml, Packing::None)),
        ("xml", xml.into_bytes()),
    ] {
        let files = MemoryFileSystem::new().with_file("p", bytes);
        let input = ImportInput::new(&files, ["p"]);
        assert_eq!(
            System::recognize(&input).unwrap(),
            [System::WebCopy],
            "{name}"
        );
    }
}

#[test]
fn the_place_of_a_part_is_its_line_in_the_dump() {
    let directory = root().join("tests/import/webcopy/flags");
    let bytes = fs::read(directory.join("project.cwp")).unwrap();
    let dump = dump(&bytes).unwrap();
    let lines: Vec<&str> = dump.lines().collect();
    let imported = import_fixture(System::WebCopy, "flags");
    let parts = imported
        .report
        .parts()
        .iter()
        .filter(|part| !part.text.starts_with("link "));
    for part in parts {
        let line = lines[part.place.line as usize - 1];
        assert_eq!(line.trim_start(), part.text);
        assert_eq!(
            line.len() - line.trim_start().len() + 1,
            part.place.column as usize
        );
    }
    assert!(
        dump.contains("    String = \"images.example.org\"\n"),
        "{dump}"
    );
}

#[test]
fn a_tag_that_is_not_known_ends_the_import_with_the_rules() {
    let known = rule("Path", "^a/", "Exclude", "");
    for (rules, words) in [
        (
            rule("Path", "^b/", "Exclude", "<color type=\"Int\">3</color>"),
            "--var color.3=WORD",
        ),
        (
            rule("Path", "^b/", "Exclude", &tag("kind", "x")),
            "--var kind.x=WORD",
        ),
        (
            rule("Colour", "^b/", "Exclude", ""),
            "--var compare.Colour=WORD",
        ),
        (
            rule("Path", "^b/", "Explode", ""),
            "--var action.Explode=WORD",
        ),
        (
            rule(
                "Path",
                "^b/",
                "Exclude",
                "<stopProcessing type=\"Byte\">7</stopProcessing>",
            ),
            "--var stopProcessing.7=WORD",
        ),
        (
            rule("Path", "^b/", "Exclude", "<more type=\"Compound\"></more>"),
            "--var more=WORD",
        ),
        (
            format!(
                "<tag>{}{}</tag>",
                tag("compare", "Path"),
                tag("action", "Exclude")
            ),
            "has no expression",
        ),
        (
            format!(
                "<tag>{}{}</tag>",
                tag("expression", "a"),
                tag("action", "Exclude")
            ),
            "--var rule=path",
        ),
        (
            format!(
                "<tag>{}{}</tag>",
                tag("expression", "a"),
                tag("compare", "Path")
            ),
            "--var rule=exclude",
        ),
        (
            format!(
                "<tag>{}{}{}</tag>",
                tag("expression", "a"),
                flag("exclude"),
                flag("include")
            ),
            "several actions",
        ),
        (
            format!(
                "<tag>{}{}</tag>",
                tag("expression", "a"),
                flag("crawlContent")
            ),
            "without the action",
        ),
        (
            format!(
                "<tag>{}{}{}</tag>",
                tag("expression", "a"),
                flag("exclude"),
                flag("dontCrawlContent")
            ),
            "without the action",
        ),
    ] {
        let error = try_import(project(&format!("{known}{rules}"), "").as_bytes(), &[]);
        let error = error.err().unwrap().to_string();
        assert!(error.contains(words), "{words}: {error}");
        assert!(error.contains("String expression = \"^a/\""), "{error}");
    }
}

#[test]
fn words_say_what_tags_mean() {
    let numbers = "<tag><flags type=\"Int\">5</flags><text type=\"String\">^a/</text><what type=\"Short\">2</what></tag>";
    let variables = [
        ("rules", "rules"),
        ("flags.5", "exclude+stop"),
        ("text", "expression"),
        ("what.2", "path"),
        ("rule", "enabled"),
    ];
    let imported = try_import(project(numbers, "").as_bytes(), &variables).unwrap();
    let policy = &imported.files["policy.yaml"];
    assert!(
        policy.contains("when: { rel_path: { regex: '^a/' } }, then: exclude, stop: true"),
        "{policy}"
    );
    assert!(imported.report.is_complete());
    let mistake = try_import(
        project(numbers, "").as_bytes(),
        &[
            ("rules", "rules"),
            ("text", "expression"),
            ("flags", "exclud"),
        ],
    );
    let error = mistake.err().unwrap().to_string();
    assert!(error.contains("`exclud` is not a word") && error.contains("exclude-but-scan"));
}

#[test]
fn a_flag_that_is_absent_has_its_default() {
    let rule = |path: &str, enabled: &str| {
        let expression = tag("expression", path);
        format!(
            "<tag>{expression}{enabled}{}{}</tag>",
            flag("exclude"),
            flag("useFullUri")
        )
    };
    let off = "<enabled type=\"Byte\">0</enabled>";
    for (first, second, is_second_live, is_assumed) in [
        (flag("enabled").as_str(), "", false, false),
        (off, "", true, false),
        ("", "", true, true),
        ("", "<disabled type=\"Byte\">1</disabled>", false, false),
    ] {
        let rules = [rule("/one/", first), rule("/two/", second)].concat();
        let imported = import_rules(&rules);
        let policy = &imported.files["policy.yaml"];
        assert_eq!(
            policy.contains("contains: /two/"),
            is_second_live,
            "{policy}"
        );
        let assumed = imported.report.list(ReportList::Assumed).next().is_some();
        assert_eq!(assumed, is_assumed, "{first} {second}");
    }
}

/// Rules and options that cannot be said, the reason, and the way in which the policy fails without them.
fn unsayable() -> Vec<(String, &'static str, &'static str, &'static str)> {
    vec![
        (
            rule("Path", r"^(\w+)/\1/", "Exclude", ""),
            "",
            "back-reference",
            "LetsThrough",
        ),
        (
            rule("Path", r"^(\w+)/\1/", "Exclude, but scan", ""),
            "",
            "back-reference",
            "LetsThrough",
        ),
        (
            rule("Path", r"^(\w+)/\1/", "Download", ""),
            "",
            "back-reference",
            "KeepsOut",
        ),
        (
            rule("Path", r"^(\w+)/\1/", "Download, but do not scan", ""),
            "",
            "back-reference",
            "KeepsOut",
        ),
        (
            rule("Path", "(a", "Exclude", ""),
            "",
            "not a valid .NET expression",
            "LetsThrough",
        ),
        (
            rule("Path", r"a(?<=b\d+)c", "Exclude", ""),
            "",
            "look-around",
            "LetsThrough",
        ),
        (
            format!(
                "<tag>{}{}{}</tag>",
                tag("expression", r"(\w)\1"),
                flag("usefulluri"),
                flag("stop")
            ),
            "",
            "back-reference",
            "KeepsOut",
        ),
        (
            String::new(),
            "<crawlMode type=\"Int\">2</crawlMode>",
            "published nowhere",
            "KeepsOut",
        ),
        (
            String::new(),
            "<mode type=\"Int\">1</mode>",
            "published nowhere",
            "KeepsOut",
        ),
        (
            String::new(),
            "<newOption type=\"Int\">2</newOption>",
            "not known",
            "LetsThrough",
        ),
        (
            String::new(),
            "<newList type=\"List\" limitType=\"Compound\"><tag><a type=\"Int\">1</a></tag></newList>",
            "not known",
            "LetsThrough",
        ),
        (
            String::new(),
            "<maximumDepth type=\"String\">x</maximumDepth>",
            "not known",
            "LetsThrough",
        ),
        (
            String::new(),
            "<maximumFileSize type=\"Int\">-1</maximumFileSize>",
            "not known",
            "LetsThrough",
        ),
        (
            String::new(),
            "<hosts type=\"List\" limitType=\"String\"><tag>a b</tag></hosts>",
            "not a host",
            "KeepsOut",
        ),
    ]
}

#[test]
fn what_cannot_be_said_is_named_with_the_way_in_which_it_fails() {
    let uri = tag("uri", "http://www.example.com/");
    for (rules, options, why, failure) in unsayable() {
        let text = project(&rules, &format!("{uri}{options}"));
        let imported = try_import(text.as_bytes(), &[]).unwrap();
        let found = not_converted(&imported);
        assert!(!imported.report.is_complete(), "{text}");
        assert!(
            found
                .iter()
                .any(|it| it.contains(why) && it.contains(failure)),
            "{text}: {found:#?}"
        );
    }
    let other = try_import(project("", &tag("uri", "ftp://a/")).as_bytes(), &[]).unwrap();
    assert!(not_converted(&other)[0].contains("not a URL of HTTP"));
}

#[test]
fn a_slash_at_the_beginning_of_a_path_never_fits() {
    for (compare, expression) in [
        ("Path", "^/docs"),
        ("Path", "^/docs$"),
        ("Path", r"^/(a|b)\d"),
        ("Path and Query String", r"^/list\?page="),
    ] {
        let imported = import_rules(&rule(compare, expression, "Exclude", ""));
        let dead = imported.report.list(ReportList::Dead).count();
        assert_eq!(dead, 5, "{expression}");
        assert!(
            imported.files["policy.yaml"].contains("# dead: rule-1"),
            "{expression}"
        );
        let request = [("http://h.test/docs".to_owned(), Map::new())];
        assert_eq!(compare_verdicts(&imported, request, |_, _| true), 0);
    }
    for expression in ["^/a|^b", "(^|/)a", "a/b", "/docs"] {
        let imported = import_rules(&rule("Path", expression, "Exclude", ""));
        assert_eq!(
            imported.report.list(ReportList::Dead).count(),
            0,
            "{expression}"
        );
    }
    let negated = rule(
        "Path",
        "^/docs",
        "Exclude",
        &tag("operand", "Does Not Match"),
    );
    let imported = import_rules(&negated);
    let request = [("http://h.test/docs".to_owned(), Map::new())];
    assert_eq!(compare_verdicts(&imported, request, |_, _| false), 0);
}

#[test]
fn modes_say_which_hosts_are_crawled() {
    let hosts = [
        "www.example.com",
        "a.www.example.com",
        "b.example.com",
        "example.com",
        "c.test",
        "d.test",
    ];
    for (mode, allowed) in [
        ("site", &hosts[..1]),
        ("subdomains", &hosts[..2]),
        ("siblings", &hosts[..4]),
        ("everything", &hosts[..]),
    ] {
        let options = format!(
            "{}<crawlMode type=\"Int\">1</crawlMode><hosts type=\"List\" limitType=\"String\"><tag>HTTP://c.test:8080/x</tag></hosts>",
            tag("uri", "http://me:pw@www.example.com/start")
        );
        let text = project("", &options);
        let imported = try_import(text.as_bytes(), &[("crawlMode.1", mode)]).unwrap();
        assert_eq!(not_converted(&imported), [""; 0], "{mode}");
        let requests = hosts.map(|host| (format!("http://{host}/"), Map::new()));
        let oracle = |url: &str, _: &Map<_, _>| {
            let host = url.split('/').nth(2).unwrap();
            allowed.contains(&host) || host == "c.test"
        };
        assert_eq!(compare_verdicts(&imported, requests, oracle), 0, "{mode}");
    }
}

#[test]
fn links_that_the_rules_decide_otherwise_are_announced() {
    let imported = import_fixture(System::WebCopy, "flags");
    let assumed: Vec<String> = imported
        .report
        .list(ReportList::Assumed)
        .map(|part| format!("{} {:?}", part.text, part.outcome().unwrap()))
        .collect();
    assert_eq!(assumed.len(), 1, "{assumed:#?}");
    assert!(assumed[0].contains("fr/") && assumed[0].contains("RefusesMore"));
    let link = |more: &str| {
        format!(
            "{}<linkMap type=\"List\" limitType=\"Compound\"><tag><id type=\"Int\">1</id>{more}</tag></linkMap>",
            tag("uri", "http://h.test/a/b.html")
        )
    };
    let excluded = "<excluded type=\"Byte\">1</excluded>";
    for (more, expected) in [
        (
            format!("{}{excluded}", tag("uri", "c")),
            Some("excluded this URL"),
        ),
        (tag("uri", "c"), None),
        (
            format!(
                "{}<httpStatus type=\"Int\">403</httpStatus><external type=\"Byte\">1</external>",
                tag("uri", "http://o.test/")
            ),
            Some("another host"),
        ),
        (
            format!(
                "{}{excluded}<skipReason type=\"Int\">8</skipReason>",
                tag("uri", "gone")
            ),
            None,
        ),
        (
            format!(
                "{}<httpStatus type=\"Int\">200</httpStatus>",
                tag("uri", "?x")
            ),
            None,
        ),
        ("<httpStatus type=\"Int\">200</httpStatus>".to_owned(), None),
    ] {
        let imported = try_import(project("", &link(&more)).as_bytes(), &[]).unwrap();
        let text = imported.report.to_json().to_string();
        match expected {
            Some(expected) => assert!(text.contains(expected), "{more}: {text}"),
            None => assert_eq!(
                imported.report.list(ReportList::Assumed).count(),
                0,
                "{more}"
            ),
        }
    }
}

#[test]
fn secrets_are_named_and_not_written() {
    let imported = import_fixture(System::WebCopy, "twin");
    let report = imported.report.to_json().to_string();
    assert!(report.contains("String password = ***"), "{report}");
    let dump = dump(source("twin").as_bytes()).unwrap();
    let policies = imported.files.values();
    for text in policies.chain([&report, &dump, &imported.settings]) {
        assert!(!text.contains("secret-word"), "{text}");
    }
}

#[test]
fn a_rule_that_is_taken_away_or_changed_is_noticed() {
    let rules = [
        rule("Path", "^list/", "Exclude, but scan", ""),
        rule("Path and Query String", "^files/", "Exclude", ""),
        rule("Path", "^files/manual", "Download", ""),
        rule(
            "Query String",
            "print=1",
            "Download, but do not scan",
            &flag("stopProcessing"),
        ),
        rule("Content Type", "^video/", "Exclude", ""),
    ];
    let uri = tag("uri", "http://docs.h.test/");
    let import_project = |rules: &str| try_import(project(rules, &uri).as_bytes(), &[]).unwrap();
    let imported = import_project(&rules.concat());
    let cases = compile_cases(&imported);
    for rule in &rules {
        let without = import_project(&rules.concat().replace(rule, ""));
        assert_ne!(without.files, imported.files);
        assert_ne!(without.report.to_json(), imported.report.to_json());
        let opening = "<expression type=\"String\"><![CDATA[";
        let changed = rule.replace(opening, &format!("{opening}never-there"));
        let changed = import_project(&rules.concat().replace(rule, &changed));
        let other = compiled(&changed);
        let fails = cases.cases.iter().any(|case| {
            let (_, decision) = other.decide_every_rule(&case.facts.facts());
            let refuses = case.expect.verdict == ExpectedVerdict::Reject;
            let rule = case.expect.rule.as_deref();
            decision.rejects() != refuses || rule.is_some_and(|it| !decides(&other, &decision, it))
        });
        assert!(fails, "{rule}\n{}", imported.files["policy.yaml"]);
    }
}

fn decides(
    policy: &crawlgate_policy::internal::policy::Policy,
    decision: &crawlgate_policy::internal::policy::decide::Decision,
    rule: &str,
) -> bool {
    use crawlgate_policy::internal::policy::decide::Cause;
    match decision.cause {
        Cause::Rule(index) => policy.rule(index).is_some_and(|it| it.id.as_str() == rule),
        Cause::Default => false,
    }
}

fn compile_cases(imported: &Import) -> compile::CompiledPolicy {
    let mut files = MemoryFileSystem::new();
    for (path, text) in &imported.files {
        files = files.with_file(path, text.as_bytes());
    }
    compile::load(&files, "policy.yaml").unwrap()
}

#[test]
fn strange_values_are_converted_or_named() {
    for compare in [
        "Authority",
        "Path",
        "Content Type",
        "Entire URL",
        "Query String",
    ] {
        check_strange_values(System::WebCopy, |value| {
            let value = value.replace("]]>", "");
            project(&rule(compare, &value, "Exclude", ""), "")
        });
    }
    check_strange_values(System::WebCopy, |value| {
        let hosts = format!(
            "<hosts type=\"List\" limitType=\"String\"><tag><![CDATA[{value}]]></tag></hosts>"
        );
        let uris = tag("uri", &format!("http://{value}/"));
        let link = format!("<tag>{}</tag>", tag("uri", value));
        let map = format!("<linkMap type=\"List\" limitType=\"Compound\">{link}</linkMap>");
        project("", &format!("{uris}{hosts}{map}"))
    });
}

/// The bytes of a compound with one tag of a type, whose payload follows.
fn with_tag(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![10, 0, 1, b'r', kind, 0, 1, b'x'];
    bytes.extend(payload);
    bytes
}

/// Imports a file, which ends with an error at a place.
#[expect(
    clippy::disallowed_methods,
    reason = "the time of an import is measured"
)]
fn check_hostile(name: &str, bytes: &[u8], message: &str) {
    let begin = Instant::now();
    let error = try_import(bytes, &[]).err();
    let error = error.unwrap_or_else(|| panic!("{name}"));
    let time = begin.elapsed();
    assert!(time < Duration::from_secs(5), "{name}: {time:?}");
    assert!(
        matches!(error, ImportError::Invalid { .. }),
        "{name}: {error}"
    );
    let error: String = error.to_string().chars().take(300).collect();
    assert!(error.contains(message), "{name}: {error}");
}

#[test]
fn hostile_binary_files_end_with_an_error() {
    let deep: Vec<u8> = [10, 0, 0].repeat(100_000);
    let deep_lists = with_tag(9, &[9, 0, 0, 0, 1].repeat(100_000));
    let zeros = vec![0; 40 << 20];
    let bomb = pack(&zeros, Packing::Gzip);
    let mut many = with_tag(9, &[8, 0, 0x60, 0, 0]);
    many.extend(vec![0; 14 << 20]);
    let few = [with_tag(9, &[8, 0, 1, 0, 0]), vec![0; 2 << 16], vec![0]].concat();
    for (name, bytes, message) in [
        (
            "4 GiB of strings",
            with_tag(9, &[8, 0xff, 0xff, 0xff, 0xff]),
            "-1 items",
        ),
        (
            "2 GiB of longs",
            with_tag(9, &[4, 0x7f, 0xff, 0xff, 0xff]),
            "are announced",
        ),
        (
            "a negative array",
            with_tag(7, &[0x80, 0, 0, 0]),
            "-2147483648 items",
        ),
        (
            "2 GiB of bytes",
            with_tag(7, &[0x7f, 0xff, 0xff, 0xff]),
            "are announced",
        ),
        (
            "2 GiB of numbers",
            with_tag(11, &[0x7f, 0xff, 0xff, 0xff]),
            "are announced",
        ),
        (
            "a long string",
            with_tag(8, &[0xff, 0xff, b'a']),
            "are announced",
        ),
        (
            "ends in a list",
            with_tag(9, &[0, 0, 0, 0, 9]),
            "are announced",
        ),
        (
            "an unknown type",
            with_tag(12, &[0, 0, 0, 0]),
            "unknown type 12",
        ),
        (
            "an unknown type in a list",
            with_tag(9, &[13, 0, 0, 0, 1]),
            "unknown type 13",
        ),
        (
            "the same tag twice",
            with_tag(1, &[0, 1, 0, 1, b'x', 0, 0]),
            "`x` twice",
        ),
        (
            "no end",
            with_tag(1, &[0]),
            "1 bytes are announced, 0 are left",
        ),
        (
            "bytes after the end",
            with_tag(1, &[0, 0, 7]),
            "1 bytes after the end",
        ),
        (
            "a first tag that is a string",
            vec![31, 139, 8],
            "cannot be unpacked",
        ),
        ("deep compounds", deep, "200 deep"),
        ("deep lists", deep_lists, "200 deep"),
        ("a bomb", bomb, "larger than 16 MiB"),
        ("many parts", few, "50000 tags outside"),
        ("many tags", many, "250000 tags"),
        ("nothing", Vec::new(), "neither NBT"),
        ("something else", b"GIF89a".to_vec(), "neither NBT"),
        (
            "no project",
            vec![10, 0, 1, b'r', 0],
            "not a project of WebCopy",
        ),
    ] {
        check_hostile(name, &bytes, message);
    }
}

#[test]
fn hostile_documents_end_with_an_error() {
    let entities = "<!DOCTYPE a [<!ENTITY b \"c\">]><a type=\"Compound\">&b;</a>";
    let nested = "<a type=\"Compound\">".repeat(100_000);
    let twice = "<b type=\"Int\">1</b>".repeat(2);
    let twice = format!("<a type=\"Compound\">{twice}</a>");
    for (name, text, message) in [
        ("entities", entities, "not well-formed XML"),
        ("deep elements", &nested, "200 deep"),
        ("the same element twice", &twice, "`b` twice"),
        ("no type", "<a><b/></a>", "no attribute `type`"),
        (
            "a type that is none",
            "<a type=\"Thing\"/>",
            "unknown type `Thing`",
        ),
        (
            "a number that is none",
            "<a type=\"Compound\"><b type=\"Int\">x</b></a>",
            "not a number",
        ),
        (
            "a list without type",
            "<a type=\"Compound\"><b type=\"List\"/></a>",
            "limitType",
        ),
        (
            "a list as the first tag",
            "<a type=\"List\" limitType=\"Int\"/>",
            "not a compound",
        ),
    ] {
        check_hostile(name, text.as_bytes(), message);
    }
}

#[test]
fn text_that_is_no_utf_8_is_read() {
    let bytes = [with_tag(8, &[0, 2, 0xff, b'a']), vec![0]].concat();
    assert!(dump(&bytes).unwrap().contains("\u{fffd}a"));
}
