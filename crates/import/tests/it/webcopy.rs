//! WebCopy: the policy against its two passes over the list of rules, written plainly.

use std::collections::BTreeMap;
use std::fs;

use crawlgate_import::{Import, ImportError, ImportInput, ReportList, System, import};
use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::cases::ExpectedVerdict;
use crawlgate_policy::internal::policy::compile;
use regex::Regex;
use serde_json::{Map, Value as Json, json};

use super::seeds::{check_worked_example, count_xml_parts, import_fixture, root};
use super::support::{REQUESTS, compare_verdicts, compiled};

pub(super) fn source(name: &str) -> String {
    let path = root().join("tests/import/webcopy").join(name);
    fs::read_to_string(path.join("project.xml")).unwrap()
}

pub(super) fn try_import(bytes: &[u8], variables: &[(&str, &str)]) -> Result<Import, ImportError> {
    let files = MemoryFileSystem::new().with_file("p.cwp", bytes);
    let mut input = ImportInput::new(&files, ["p.cwp"]);
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    input.variables = variables.iter().map(owned).collect();
    import(System::WebCopy, &input)
}

pub(super) fn dump(bytes: &[u8]) -> Result<String, ImportError> {
    let files = MemoryFileSystem::new().with_file("p.cwp", bytes);
    let input = ImportInput::new(&files, ["p.cwp"]);
    System::WebCopy.dump(&input).unwrap()
}

/// A project in XML, with rules and options.
pub(super) fn project(rules: &str, options: &str) -> String {
    format!(
        "<Cyotek.WebCopy.WebCopyProject type=\"Compound\">\n{options}\n<rules type=\"List\" limitType=\"Compound\">{rules}</rules></Cyotek.WebCopy.WebCopyProject>"
    )
}

pub(super) fn tag(name: &str, value: &str) -> String {
    format!("<{name} type=\"String\"><![CDATA[{value}]]></{name}>")
}

pub(super) fn flag(name: &str) -> String {
    format!("<{name} type=\"Byte\">1</{name}>")
}

/// A rule in XML, with further tags.
pub(super) fn rule(compare: &str, expression: &str, action: &str, more: &str) -> String {
    format!(
        "<tag>{}{}{}{}{more}</tag>",
        flag("enabled"),
        tag("compare", compare),
        tag("expression", expression),
        tag("action", action)
    )
}

pub(super) fn import_rules(rules: &str) -> Import {
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
