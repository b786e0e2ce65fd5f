//! Heritrix: the policy against the algorithm of its scope, and what is not converted.

use std::path::Path;

use crawlgate_import::{Import, ImportInput, MissingPart, PartOutcome, ReportList, System, import};
use crawlgate_policy::MemoryFileSystem;
use regex::Regex;
use serde_json::{Map, Value as Json, json};

use super::support::{Directory, REQUESTS, compare_verdicts, read_command, regex_fits};

fn fixture(name: &str) -> Import {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/import/heritrix");
    let files = Directory(root.join(name));
    let words = std::fs::read_to_string(root.join(name).join("command")).unwrap();
    import(System::Heritrix, &read_command(&files, &words)).unwrap()
}

/// Wraps rules in a job with one seed.
fn job(rules: &str, beans: &str) -> String {
    format!(
        r#"<beans>
<bean id="seeds" class="org.archive.modules.seeds.TextSeedModule"><property name="textSource">
<bean class="org.archive.spring.ConfigString"><property name="value" value="http://seed.example/"/></bean>
</property></bean>
<bean id="scope" class="org.archive.modules.deciderules.DecideRuleSequence"><property name="rules"><list>
<bean class="org.archive.modules.deciderules.RejectDecideRule"/>
{rules}
</list></property></bean>
{beans}
</beans>"#
    )
}

fn rule(class: &str, properties: &[(&str, &str)]) -> String {
    let properties: String = properties
        .iter()
        .map(|(name, value)| format!("<property name=\"{name}\" value=\"{value}\"/>"))
        .collect();
    format!("<bean class=\"org.archive.modules.deciderules.{class}\">{properties}</bean>\n")
}

fn import_job(text: &str) -> Import {
    let files = MemoryFileSystem::new().with_file("crawler-beans.cxml", text.as_bytes());
    import(
        System::Heritrix,
        &ImportInput::new(&files, ["crawler-beans.cxml"]),
    )
    .unwrap()
}

fn requests(hosts: &[&str], pieces: &[&str]) -> Vec<(String, Map<String, Json>)> {
    let mut random = fastrand::Rng::with_seed(6);
    let requests = (0..REQUESTS).map(|_| {
        let scheme = ["http", "https"][random.usize(..2)];
        let host = hosts[random.usize(..hosts.len())];
        let path: String = (0..random.usize(0..5))
            .map(|_| pieces[random.usize(..pieces.len())])
            .collect();
        let mut facts = Map::new();
        match random.u8(..4) {
            0 => drop(facts.insert("dest".to_owned(), json!("embed"))),
            1 => drop(facts.insert("depth".to_owned(), json!(random.u64(..8)))),
            _ => {}
        }
        (format!("{scheme}://{host}/{path}"), facts)
    });
    requests.collect()
}

/// Writes a URL as Heritrix compares it: labels in reverse order, in lower case.
fn surt(url: &str) -> String {
    let (_, rest) = url.split_once("://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, format!(":{port}")),
        None => (host, String::new()),
    };
    let labels: Vec<&str> = name.split('.').rev().collect();
    format!("http://({},{port})/{path}", labels.join(",")).to_lowercase()
}

fn whole(pattern: &str, url: &str) -> bool {
    regex_fits(&format!("^(?:{pattern})$"), url)
}

fn has_repeats(url: &str) -> bool {
    let segments: Vec<&str> = url.split('/').skip(3).collect();
    let complete = segments
        .split_last()
        .map_or(&[][..], |(_, complete)| complete);
    let runs = 1..=complete.len() / 3;
    runs.into_iter().any(|run| {
        complete.windows(3 * run).any(|window| {
            window[..run] == window[run..2 * run] && window[..run] == window[2 * run..]
        })
    })
}

#[test]
fn the_last_decision_of_the_default_rules_counts() {
    let imported = fixture("default");
    let hosts = [
        "example.com",
        "www.example.com",
        "example.com:8080",
        "www.example.org",
        "example.org",
        "xexample.com",
    ];
    let pieces = [
        "a/",
        "b/",
        "news/",
        "News/",
        "calendar/",
        "2026/",
        "x?print=1",
        "c",
        "d/e/f/g/",
    ];
    let announced = compare_verdicts(&imported, requests(&hosts, &pieces), |url, facts| {
        let surt = surt(url);
        let mut accepts = surt.starts_with("http://(com,example,)/")
            || surt.starts_with("http://(org,example,www,)/news/");
        accepts &= facts
            .get("depth")
            .and_then(Json::as_u64)
            .is_none_or(|depth| depth <= 5);
        accepts |= facts.get("dest").is_some();
        accepts &= !whole(r".*/calendar/\d{4}/.*", url) && !whole(".*[?&]print=1.*", url);
        let path = url
            .splitn(4, '/')
            .nth(3)
            .unwrap()
            .split('?')
            .next()
            .unwrap();
        accepts && !has_repeats(url) && path.matches('/').count() < 12
    });
    assert!(announced > 0, "repeated segments are an assumption");
    assert!(imported.report.assumption_of("pathological-path").is_some());
}

#[test]
fn files_of_prefixes_and_block_lists_count() {
    let imported = fixture("archive");
    let hosts = [
        "example.org",
        "private.example.org",
        "old.example.org",
        "www.example.com",
        "sub.www.example.com",
        "town.example",
        "a.town.example",
        "www.example.edu",
        "library.example:8080",
        "library.example",
        "other.example",
    ];
    let pieces = [
        "a/", "secret/", "intern", "Intern/", "archive/", "Archive/", "x.mp4", "y.iso", "z.MOV",
        "museum/",
    ];
    let announced = compare_verdicts(&imported, requests(&hosts, &pieces), |url, _| {
        let surt = surt(url);
        let accepted = [
            "http://(org,example,",
            "http://(edu,example,www,)/archive/",
            "http://(example,library,:8080",
            "http://(com,example,www,",
            "http://(example,town,",
        ];
        let rejected = [
            "http://(org,example,private,",
            "http://(com,example,www,)/intern",
            "http://(com,example,www,)/secret/",
        ];
        let videos = r".*(?i)(\.(asf|asx|avi|flv|mov|mp4|mpeg|mpg|qt|ram|rm|smil|wmv))";
        accepted.iter().any(|prefix| surt.starts_with(prefix))
            && !rejected.iter().any(|prefix| surt.starts_with(prefix))
            && !whole(videos, url)
            && !whole(r".*\.iso", url)
    });
    assert_eq!(announced, 0);
}

#[test]
fn sequences_in_sequences_decide_in_turn() {
    let imported = fixture("nested");
    let hosts = [
        "blog.example.com",
        "www.blog.example.com",
        "example.com",
        "other.example",
    ];
    let pieces = [
        "keep/", "a/", "b.zip", "draft-1", "start", "c/d/e/", "f.iso",
    ];
    let announced = compare_verdicts(&imported, requests(&hosts, &pieces), |url, facts| {
        let mut accepts = surt(url).starts_with("http://(com,example,blog,");
        accepts &= !whole(r".*\.(?:zip|iso)", url) && !whole(".*/draft-.*", url);
        accepts |= whole(r"http://blog\.example\.com/.*", url) && whole(".*/keep/.*", url);
        accepts &= facts
            .get("depth")
            .and_then(Json::as_u64)
            .is_none_or(|depth| depth <= 3);
        accepts &= url.splitn(4, '/').nth(3).unwrap().matches('/').count() < 6;
        accepts || url == "http://blog.example.com/start"
    });
    assert_eq!(announced, 0);
}

#[test]
fn what_is_not_converted_says_which_way_it_fails() {
    use MissingPart::{KeepsOut, LetsThrough};
    let reject = ("decision", "REJECT");
    for (text, failure) in [
        (
            rule(
                "HopsPathMatchesRegexDecideRule",
                &[reject, ("regex", ".*L")],
            ),
            LetsThrough,
        ),
        (rule("ScriptedDecideRule", &[]), KeepsOut),
        (rule("ViaSurtPrefixedDecideRule", &[reject]), LetsThrough),
        (
            rule("HopCrossesAssignmentLevelDomainDecideRule", &[reject]),
            LetsThrough,
        ),
        (rule("SourceSeedDecideRule", &[]), KeepsOut),
        (rule("IpAddressSetDecideRule", &[reject]), LetsThrough),
        (
            rule(
                "ContentTypeMatchesRegexDecideRule",
                &[reject, ("regex", "video/.*")],
            ),
            LetsThrough,
        ),
        (rule("AddRedirectFromRootServerToScope", &[]), KeepsOut),
        (rule("ExternalGeoLocationDecideRule", &[]), KeepsOut),
        (
            rule(
                "MatchesRegexDecideRule",
                &[reject, ("regex", "http://[a-z.]*(?&lt;!not)spam.*")],
            ),
            LetsThrough,
        ),
        (
            rule(
                "MatchesRegexDecideRule",
                &[reject, ("regex", "${secretRegex}")],
            ),
            LetsThrough,
        ),
        (
            rule(
                "MatchesRegexDecideRule",
                &[reject, ("regex", "#{systemProperties}")],
            ),
            LetsThrough,
        ),
        (
            rule("TransclusionDecideRule", &[("maxTransHops", "0")]),
            KeepsOut,
        ),
        (
            rule("surt.SurtPrefixedDecideRule", &[("alsoCheckVia", "true")]),
            KeepsOut,
        ),
        (rule("SomethingNewDecideRule", &[reject]), LetsThrough),
        ("<bean class=\"com.example.Mine\"/>".to_owned(), LetsThrough),
        ("<ref bean=\"nobody\"/>".to_owned(), KeepsOut),
    ] {
        let accept = rule("AcceptDecideRule", &[]);
        let imported = import_job(&job(&format!("{accept}{text}"), ""));
        assert!(!imported.report.is_complete(), "{text}");
        let found = imported.report.list(ReportList::NotConverted).any(|part| {
            matches!(part.outcome(), Some(PartOutcome::NotConverted { failure: found, .. }) if *found == failure)
        });
        assert!(found, "{text}: {}", imported.report.to_text());
    }
}

#[test]
fn every_element_and_attribute_is_reported() {
    let text = job(
        &rule("TooManyHopsDecideRule", &[("maxHops", "3")]),
        "<bean id=\"fetchHttp\" class=\"org.archive.modules.fetcher.FetchHTTP\">\
         <property name=\"httpProxyPassword\" value=\"geheim\"/></bean>",
    );
    let imported = import_job(&text);
    let elements = Regex::new("<[a-z]").unwrap().find_iter(&text).count();
    let attributes = Regex::new(" [a-zA-Z]+=\"")
        .unwrap()
        .find_iter(&text)
        .count();
    // The seed is a line of its own.
    assert_eq!(imported.report.parts().len(), elements + attributes + 1);
    let written = format!(
        "{:?}{}{}",
        imported.files,
        imported.settings,
        imported.report.to_json()
    );
    assert!(!written.contains("geheim"));
}

#[test]
fn hostile_files_end_with_an_error() {
    let deep = format!("<beans>{}", "<bean>".repeat(100_000));
    let cycle = r#"<beans><bean id="scope" class="org.archive.modules.deciderules.DecideRuleSequence">
        <property name="rules"><list><ref bean="scope"/></list></property></bean></beans>"#;
    let outside = job(
        r#"<bean class="org.archive.modules.deciderules.surt.SurtPrefixedDecideRule"><property name="surtsSource">
        <bean class="org.archive.spring.ConfigFile"><property name="path" value="../../etc/passwd"/></bean></property></bean>"#,
        "",
    );
    let entities = r#"<!DOCTYPE beans [<!ENTITY a "aaaa">]><beans>&a;</beans>"#;
    for (text, message) in [
        (deep.as_str(), "deep"),
        (cycle, "contains itself"),
        (outside.as_str(), "outside"),
        (entities, "DTD"),
        ("<beans/>", "no bean with the id `scope`"),
        ("<beans", "not well-formed"),
    ] {
        let files = MemoryFileSystem::new().with_file("crawler-beans.cxml", text.as_bytes());
        let input = ImportInput::new(&files, ["crawler-beans.cxml"]);
        let error = import(System::Heritrix, &input).err().unwrap().to_string();
        assert!(error.contains(message), "{error}");
    }
}
