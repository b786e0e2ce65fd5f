//! Norconex: what is easily misread, what is not converted, and hostile files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crawlgate_import::{
    Import, ImportError, ImportInput, MissingPart, PartOutcome, ReportList, System, import,
};
use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use regex::Regex;

use super::support::{Directory, compiled, import_texts, read_command};

fn crawler(settings: &str) -> String {
    format!(
        "<httpcollector id=\"c\"><crawlers><crawler id=\"c\">{settings}</crawler></crawlers></httpcollector>"
    )
}

fn import_crawler(settings: &str) -> Import {
    import_texts(System::Norconex, &[("c.xml", &crawler(settings))])
}

fn allows(imported: &Import, url: &str) -> bool {
    let facts = CaseFacts::for_url(url).unwrap();
    let (_, decision) = compiled(imported).decide_every_rule(&facts.facts());
    !decision.rejects()
}

fn policy(imported: &Import) -> &str {
    &imported.files["policy.yaml"]
}

fn error(files: &[(&str, &str)]) -> String {
    let mut memory = MemoryFileSystem::new();
    for (name, text) in files {
        memory = memory.with_file(name, text.as_bytes());
    }
    let first = files.first().map(|(name, _)| *name);
    match import(System::Norconex, &ImportInput::new(&memory, first)) {
        Err(ImportError::Defect(message)) => panic!("a defect: {message}"),
        Err(error) => error.to_string(),
        Ok(_) => panic!("imported"),
    }
}

#[test]
fn matchers_fit_the_whole_value_unless_partial() {
    let filter = |matcher: &str| {
        let text = format!(
            "<referenceFilters><filter class=\"ReferenceFilter\" onMatch=\"exclude\">{matcher}</filter></referenceFilters>"
        );
        import_crawler(&text)
    };
    let whole = filter("<valueMatcher method=\"regex\">http://h\\.example/a</valueMatcher>");
    assert!(!allows(&whole, "http://h.example/a") && allows(&whole, "http://h.example/ab"));
    let partial = filter("<valueMatcher partial=\"true\">example/a</valueMatcher>");
    assert!(!allows(&partial, "http://h.example/ab"));
    let basic = filter("<valueMatcher>http://h.example/a</valueMatcher>");
    assert!(!allows(&basic, "http://h.example/a") && allows(&basic, "http://h.example/ab"));
    let wildcard = filter("<valueMatcher method=\"wildcard\">*/a?b</valueMatcher>");
    assert!(!allows(&wildcard, "http://h.example/a.b") && allows(&wildcard, "http://h.example/ab"));
    let csv = filter(
        "<valueMatcher method=\"csv\" ignoreCase=\"true\">http://h.example/A, http://h.example/b</valueMatcher>",
    );
    assert!(!allows(&csv, "http://h.example/a") && !allows(&csv, "http://h.example/b"));
    let negated =
        filter("<valueMatcher method=\"wildcard\" negateMatches=\"true\">*/a</valueMatcher>");
    assert!(allows(&negated, "http://h.example/a") && !allows(&negated, "http://h.example/b"));
}

#[test]
fn letter_case_counts_as_each_version_has_it() {
    let old = import_crawler(
        "<referenceFilters><filter class=\"x.ExtensionReferenceFilter\" onMatch=\"exclude\">pdf</filter></referenceFilters>",
    );
    assert!(!allows(&old, "http://h.example/a.PDF"));
    let sensitive = import_crawler(
        "<referenceFilters><filter class=\"x.ExtensionReferenceFilter\" caseSensitive=\"true\" onMatch=\"exclude\">pdf</filter></referenceFilters>",
    );
    assert!(allows(&sensitive, "http://h.example/a.PDF"));
    let new = "id: c\nreferenceFilters:\n  - { class: ExtensionReferenceFilter, onMatch: EXCLUDE, extensions: [pdf] }\n";
    let new = import_texts(System::Norconex, &[("c.yaml", new)]);
    assert!(allows(&new, "http://h.example/a.PDF") && !allows(&new, "http://h.example/a.pdf"));
    let regex = import_crawler(
        "<referenceFilters><filter class=\"RegexReferenceFilter\" onMatch=\"exclude\">.*/A</filter></referenceFilters>",
    );
    assert!(!allows(&regex, "http://h.example/a"));
}

#[test]
fn segments_are_counted_from_the_number_on() {
    let imported = import_crawler(
        "<referenceFilters><filter class=\"SegmentCountURLFilter\" onMatch=\"exclude\" count=\"3\"/></referenceFilters>",
    );
    assert!(
        allows(&imported, "http://h.example/a/b/") && !allows(&imported, "http://h.example/a/b/c")
    );
    let repeated = import_crawler(
        "<referenceFilters><filter class=\"SegmentCountURLFilter\" onMatch=\"exclude\" count=\"2\" duplicate=\"true\"/></referenceFilters>",
    );
    assert!(
        allows(&repeated, "http://h.example/a/b") && !allows(&repeated, "http://h.example/a/b/a")
    );
}

#[test]
fn no_action_is_include_and_an_empty_exclude_refuses_everything() {
    let include = import_crawler(
        "<referenceFilters><filter class=\"RegexReferenceFilter\">.*/a</filter></referenceFilters>",
    );
    assert!(allows(&include, "http://h.example/a") && !allows(&include, "http://h.example/b"));
    let empty = import_crawler(
        "<referenceFilters><filter class=\"RegexReferenceFilter\" onMatch=\"exclude\"/></referenceFilters>",
    );
    assert!(!allows(&empty, "http://h.example/a"));
}

#[test]
fn what_is_on_by_default_is_written_out() {
    let imported = import_crawler("<numThreads>2</numThreads>");
    for option in [
        "obey: true",
        "noindex: links",
        "noncanonical: reject",
        "unmodified: reject",
        "removal: norconex",
        "delay: 3s",
    ] {
        assert!(policy(&imported).contains(option), "{}", policy(&imported));
    }
    let off = import_crawler(
        "<robotsTxt ignore=\"true\"/><robotsMeta ignore=\"true\"/><canonicalLinkDetector ignore=\"true\"/>\
         <metadataChecksummer disabled=\"true\"/><documentChecksummer disabled=\"true\"/>\
         <delay default=\"2 seconds\" ignoreRobotsCrawlDelay=\"true\"/>\
         <spoiledReferenceStrategizer fallbackStrategy=\"IGNORE\"><mapping state=\"NOT_FOUND\" strategy=\"GRACE_ONCE\"/></spoiledReferenceStrategizer>",
    );
    for option in [
        "obey: false",
        "noindex: pass",
        "noncanonical: pass",
        "unmodified: pass",
        "rule: keep",
        "not_found: once_more",
        "delay: 2s",
        "crawl_delay_cap: 0s",
    ] {
        assert!(policy(&off).contains(option), "{option}: {}", policy(&off));
    }
    assert!(
        !policy(&off).contains("by default in Norconex"),
        "{}",
        policy(&off)
    );
}

/// A setting that is not converted, with the way in which it fails.
const NOT_CONVERTED: &[(&str, MissingPart, &str)] = &[
    (
        "<referenceFilters><filter class=\"my.Filter\" onMatch=\"exclude\"/></referenceFilters>",
        MissingPart::LetsThrough,
        "class",
    ),
    (
        "<referenceFilters><filter class=\"my.Filter\"/><filter class=\"ReferenceFilter\"><valueMatcher>http://h/</valueMatcher></filter></referenceFilters>",
        MissingPart::KeepsOut,
        "class",
    ),
    (
        "<referenceFilters><filter class=\"RegexReferenceFilter\" onMatch=\"exclude\">${unknown}/.*</filter></referenceFilters>",
        MissingPart::LetsThrough,
        "variable",
    ),
    (
        "<referenceFilters><filter class=\"SegmentCountURLFilter\" onMatch=\"exclude\" separator=\"-\"/></referenceFilters>",
        MissingPart::LetsThrough,
        "slashes",
    ),
    (
        "<metadataFilters><filter class=\"MetadataFilter\" onMatch=\"exclude\"><fieldMatcher method=\"regex\">X-.*</fieldMatcher><valueMatcher>a</valueMatcher></filter></metadataFilters>",
        MissingPart::LetsThrough,
        "names each header",
    ),
    (
        "<metadataFilters><filter class=\"MetadataFilter\" onMatch=\"exclude\"><fieldMatcher>collector.depth</fieldMatcher><valueMatcher>3</valueMatcher></filter></metadataFilters>",
        MissingPart::LetsThrough,
        "own",
    ),
    (
        "<recrawlableResolver><minFrequency applyTo=\"contentType\" value=\"monthly\">application/pdf</minFrequency></recrawlableResolver>",
        MissingPart::LetsThrough,
        "after the fetch",
    ),
    (
        "<recrawlableResolver sitemapSupport=\"last\"/>",
        MissingPart::OtherSetting,
        "sitemap",
    ),
    (
        "<sitemapResolver lenient=\"true\"/>",
        MissingPart::OtherSetting,
        "sitemap",
    ),
    (
        "<orphansStrategy>DELETE</orphansStrategy>",
        MissingPart::OtherSetting,
        "no link",
    ),
    (
        "<maxDocuments>100</maxDocuments>",
        MissingPart::LetsThrough,
        "whole crawl",
    ),
    (
        "<httpFetchers><fetcher class=\"GenericHttpFetcher\"><notFoundStatusCodes>404,401</notFoundStatusCodes></fetcher></httpFetchers>",
        MissingPart::OtherSetting,
        "404",
    ),
    (
        "<importer><preParseHandlers><handler class=\"RegexContentFilter\" onMatch=\"exclude\"/></preParseHandlers></importer>",
        MissingPart::LetsThrough,
        "parsed",
    ),
    (
        "<startURLs stayOnSitemap=\"true\"><url>http://h/</url></startURLs>",
        MissingPart::LetsThrough,
        "sitemap",
    ),
    (
        "<startURLs stayOnDomain=\"true\"><url>http://h/</url><urlsFile>/elsewhere/urls.txt</urlsFile></startURLs>",
        MissingPart::KeepsOut,
        "directory",
    ),
    (
        "<startURLs stayOnDomain=\"true\"><provider class=\"my.Provider\"/></startURLs>",
        MissingPart::LetsThrough,
        "no start URL",
    ),
    (
        "<delay default=\"1s\"><schedule dayOfMonth=\"from 1 to 10\">10s</schedule></delay>",
        MissingPart::OtherSetting,
        "month",
    ),
    (
        "<delay class=\"my.Delay\"/>",
        MissingPart::OtherSetting,
        "class",
    ),
    (
        "<somethingNew>1</somethingNew>",
        MissingPart::LetsThrough,
        "not known",
    ),
    (
        "<eventListeners><listener class=\"DeleteRejectedEventListener\"/></eventListeners>",
        MissingPart::OtherSetting,
        "removal",
    ),
];

#[test]
fn what_is_not_converted_says_why_and_which_way_it_fails() {
    for (settings, failure, word) in NOT_CONVERTED {
        let imported = import_crawler(settings);
        assert!(!imported.report.is_complete(), "{settings}");
        let mut missing = imported.report.list(ReportList::NotConverted);
        let is_found = missing.any(|part| match part.outcome() {
            Some(PartOutcome::NotConverted {
                why, failure: way, ..
            }) => way == failure && why.contains(word),
            _ => false,
        });
        assert!(is_found, "{settings}: {}", imported.report.to_text());
    }
}

#[test]
fn secrets_are_not_written() {
    let settings = "<startURLs><url>http://user:hunter2@h.example/</url></startURLs>\
        <httpFetchers><fetcher class=\"GenericHttpFetcher\"><authentication><credentials>\
        <username>user</username><password>hunter2</password></credentials>\
        <formParams><param name=\"p\">hunter2</param></formParams></authentication>\
        <headers><header name=\"X-Key\">hunter2</header></headers>\
        <proxySettings password=\"hunter2\"/></fetcher></httpFetchers>";
    let files = [
        ("c.xml", crawler(settings)),
        ("c.variables", "db.password = hunter2\n".to_owned()),
    ];
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .collect();
    let imported = import_texts(System::Norconex, &files);
    let report = imported.report.to_json().to_string();
    assert!(
        report.contains("***") && !report.contains("hunter2"),
        "{report}"
    );
    for (name, text) in &imported.files {
        assert!(!text.contains("hunter2"), "{name}: {text}");
    }
    assert!(!imported.settings.contains("hunter2"));
}

#[test]
fn variables_come_from_files_directives_and_the_command() {
    let text =
        "#set($base = \"http://${host}\")\n#set($class = 'x.RegexReferenceFilter')\n## a comment\n"
            .to_owned()
            + &crawler(
                "<referenceFilters><filter class=\"$class\">$base/${path}/.*</filter></referenceFilters>",
            );
    let files = MemoryFileSystem::new()
        .with_file("c.xml", text.as_bytes())
        .with_file("c.variables", b"host = wrong\npath = a")
        .with_file("c.properties", b"host: right\\.example");
    let mut input = ImportInput::new(&files, ["c.xml"]);
    let imported = import(System::Norconex, &input).unwrap();
    assert!(
        allows(&imported, "http://right.example/a/x"),
        "{}",
        policy(&imported)
    );
    input.variables.push(("path".to_owned(), "b".to_owned()));
    let imported = import(System::Norconex, &input).unwrap();
    assert!(
        !allows(&imported, "http://right.example/a/x")
            && allows(&imported, "http://right.example/b/x")
    );
}

#[test]
fn hostile_files_end_with_an_error() {
    let bomb = "<!DOCTYPE c [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><crawler id=\"&b;\"/>";
    let nested = format!("<crawler>{}", "<a>".repeat(300));
    let loops = format!(
        "#set($a = \"{}\")\n#set($b = \"{}\")\n<crawler>{}</crawler>",
        "x".repeat(100),
        "$a".repeat(10_000),
        "$b".repeat(10_000)
    );
    let long_line = "#$\\x<".repeat(1 << 20);
    let declarations = format!("{}<html/>", "<?xml ?><!DOCTYPE a>".repeat(1 << 18));
    let cases: [(&[(&str, &str)], &str); 11] = [
        (&[("c.xml", &long_line)], "no configuration of Norconex"),
        (&[("c.xml", &declarations)], "no configuration of Norconex"),
        (&[("c.xml", bomb)], "DTD"),
        (&[("c.xml", &nested)], "nested more than 200"),
        (
            &[("c.xml", "#parse(\"c.xml\")\n<crawler/>")],
            "nested more than 20",
        ),
        (
            &[("c.xml", "#parse(\"/etc/passwd\")\n<crawler/>")],
            "outside of the directory",
        ),
        (
            &[("c.xml", "#include(\"../x.xml\")\n<crawler/>")],
            "outside of the directory",
        ),
        (
            &[("c.xml", "#if($x)\n<crawler/>\n#end")],
            "`#if` is not executed",
        ),
        (&[("c.xml", "<html/>")], "no configuration of Norconex"),
        (&[("c.yaml", "a: &a [*a]\n")], "not readable"),
        (&[("c.xml", &loops)], "larger than 16 MiB"),
    ];
    for (files, message) in cases {
        let error = error(files);
        assert!(error.contains(message), "{message}: {error}");
    }
}

/// Counts elements, attributes, directives and lines of variables, without a parser.
fn count_parts(directory: &Path, names: &mut BTreeSet<String>) -> usize {
    let comment = Regex::new("(?s)<!--.*?-->").unwrap();
    let tag = Regex::new(r#"<[A-Za-z][^<>]*>"#).unwrap();
    let attribute = Regex::new(r#"\s[\w:.-]+\s*=\s*("[^"]*"|'[^']*')"#).unwrap();
    let directive = Regex::new(r"(?m)#(set|parse|include)\s*\(").unwrap();
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            if name != "expected" {
                count += count_parts(&path, names);
            }
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        if name.ends_with(".xml") {
            let text = comment.replace_all(&text, "");
            for found in tag.find_iter(&text) {
                count += 1 + attribute.find_iter(found.as_str()).count();
            }
            count += directive.find_iter(&text).count();
        } else if name.ends_with(".variables") || name.ends_with(".properties") {
            count += text
                .lines()
                .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
                .count();
        }
        names.insert(name);
    }
    count
}

#[test]
fn the_lists_are_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/import/norconex");
    for name in ["v1", "v2-complex", "v3", "v4", "v4-complex", "help"] {
        let directory = root.join(name);
        let words = fs::read_to_string(directory.join("command")).unwrap();
        let mut names = BTreeSet::new();
        let expected = count_parts(&directory, &mut names);
        let files = Directory(directory);
        let imported = import(System::Norconex, &read_command(&files, &words)).unwrap();
        let listed: usize = ReportList::ALL
            .into_iter()
            .map(|list| imported.report.list(list).count())
            .sum();
        assert_eq!(listed, imported.report.parts().len(), "{name}");
        assert_eq!(listed, expected, "{name}");
    }
}
