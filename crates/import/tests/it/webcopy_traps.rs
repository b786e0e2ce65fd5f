//! The traps of WebCopy's projects: tags that are not known, absent values, paths without a slash, hosts, the link map.

use crawlgate_import::{Import, ReportList, System};
use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::ExpectedVerdict;
use crawlgate_policy::internal::policy::compile;
use crawlgate_policy::internal::policy::decide::{Cause, Decision};
use serde_json::Map;

use super::seeds::{check_strange_values, import_fixture, not_converted};
use super::support::{compare_verdicts, compiled};
use super::webcopy::{dump, flag, import_rules, project, rule, source, tag, try_import};

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

fn decides(policy: &Policy, decision: &Decision, rule: &str) -> bool {
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
