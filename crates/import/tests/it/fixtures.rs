//! Imports each source in `tests/import/SYSTEM/NAME`, and compares what is written with its `expected` directory.
//! `UPDATE_EXPECT=1` writes it. `FIXTURES=nutch` restricts the test to the sources whose path contains it.
//!
//! The laws hold for each of them: every part of the source is in one list, the policy is valid without a warning,
//! its cases pass and cover it, and there is no difference that the report does not announce. That each run gives the
//! expected bytes also shows that the same source always gives the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use boon::{Compiler, SchemaIndex, Schemas};
use crawlgate_import::{
    Import, ImportError, ImportInput, MissingPart, PartOutcome, Report, ReportList, System, import,
};
use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::cases::ExpectedVerdict;
use crawlgate_policy::internal::policy::coverage::Coverage;

use serde_json::{Value as Json, json};

use super::support::{Directory, compile_import, import_texts, read_command, sources};

/// Returns the files that the command writes.
fn written(imported: &Import) -> BTreeMap<String, String> {
    let mut files = imported.files.clone();
    files.insert("configuration.yaml".to_owned(), imported.settings.clone());
    let report = format!("{:#}\n", imported.report.to_json());
    files.insert("report.json".to_owned(), report);
    files
}

/// The file of the schema of `report.json`.
const SCHEMA: &str = "config/import-report.schema.json";

/// The schema of reports.
struct ReportSchema {
    all: Schemas,
    index: SchemaIndex,
}

impl ReportSchema {
    fn new() -> Self {
        let mut all = Schemas::new();
        let mut compiler = Compiler::new();
        let url = "http://schema.invalid/";
        compiler.add_resource(url, Report::json_schema()).unwrap();
        let index = compiler.compile(url, &mut all).unwrap();
        Self { all, index }
    }

    fn check(&self, name: &str, report: &Json) {
        if let Err(error) = self.all.validate(report, self.index) {
            panic!("{name}: {error:#}");
        }
    }
}

#[test]
fn the_schema_of_reports_is_that_of_the_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(SCHEMA);
    let text = format!("{:#}\n", Report::json_schema());
    if updates() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap_or_default(),
        text,
        "{SCHEMA}"
    );
    let schema = ReportSchema::new();
    let imported = import_texts(
        System::Squid,
        &[(
            "squid.conf",
            "acl late time 22:00-23:00\nhttp_access deny late\nhttp_access allow all\n",
        )],
    );
    let report = imported.report.to_json();
    schema.check("squid", &report);
    for (pointer, value) in [
        ("/report", json!(2)),
        ("/lists/not_converted/0/fails", json!("sometimes")),
        ("/lists/not_converted/0/place", json!("squid.conf")),
        ("/lists/not_converted/0/why", json!("")),
        ("/lists/converted", json!(null)),
    ] {
        let mut broken = report.clone();
        *broken.pointer_mut(pointer).unwrap() = value;
        assert!(
            schema.all.validate(&broken, schema.index).is_err(),
            "{pointer}"
        );
    }
}

/// Checks that each part that is not converted is named in both forms of the report, with the way in which the policy
/// fails without it, and ends the command with exit code 1.
fn check_missing_parts(name: &str, imported: &Import) {
    let text = imported.report.to_text();
    let mut missing = 0;
    for part in imported.report.list(ReportList::NotConverted) {
        let Some(PartOutcome::NotConverted { why, failure, .. }) = part.outcome() else {
            panic!("{name}: {part:?}");
        };
        let sentence = match failure {
            MissingPart::LetsThrough => "without it more is allowed than before",
            MissingPart::KeepsOut => "without it less is allowed than before",
            MissingPart::OtherSetting => "what is refused does not change",
        };
        assert!(
            text.contains(&format!("{why}: {sentence}")),
            "{name}: {part:?}"
        );
        missing += 1;
    }
    assert_eq!(imported.report.is_complete(), missing == 0, "{name}");
}

fn check_laws(name: &str, imported: &Import) {
    for part in imported.report.parts() {
        assert!(part.list().is_some(), "{name}: {part:?}");
    }
    check_missing_parts(name, imported);
    assert_eq!(imported.divergences, [], "{name}");
    let compiled = compile_import(imported);
    assert_eq!(compiled.problems, [], "{name}");
    let mut coverage = Coverage::new(&compiled.policy);
    for case in &compiled.cases {
        let facts = case.facts.facts();
        let (trail, decision) = compiled.policy.decide_every_rule(&facts);
        coverage.record(&trail);
        assert_eq!(
            decision.rejects(),
            case.expect.verdict == ExpectedVerdict::Reject,
            "{name}: {case:?}"
        );
    }
    let missed: Vec<_> = coverage
        .rule_coverage(&compiled.policy)
        .into_iter()
        .filter(|rule| rule.missed_branches().next().is_some())
        .collect();
    assert!(missed.is_empty(), "{name}: not covered: {missed:#?}");
}

#[test]
fn each_source_becomes_the_expected_policy() {
    let only = std::env::var("FIXTURES").ok();
    let schema = ReportSchema::new();
    let mut texts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut count = 0;
    for (system, source) in sources() {
        let name = source.file_name().unwrap().to_str().unwrap();
        let name = format!("{}/{name}", system.name());
        if only.as_ref().is_some_and(|part| !name.contains(part)) {
            continue;
        }
        let files = Directory(source.clone());
        let words = fs::read_to_string(source.join("command")).unwrap();
        let imported = import(system, &read_command(&files, &words))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        compare(&source.join("expected"), &written(&imported));
        schema.check(&name, &imported.report.to_json());
        check_laws(&name, &imported);
        let texts = texts.entry(system.name()).or_default();
        texts.extend(source_texts(&source));
        texts.extend(imported.files.into_values());
        texts.push(imported.report.to_text());
        count += 1;
    }
    println!("{count} sources imported");
    if only.is_some() || updates() {
        return;
    }
    for system in System::all() {
        check_page(system, texts.get(system.name()).map_or(&[], Vec::as_slice));
    }
}

fn updates() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some()
}

fn compare(expected: &Path, written: &BTreeMap<String, String>) {
    if updates() {
        let _ = fs::remove_dir_all(expected);
        for (path, text) in written {
            let path = expected.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
    for (path, text) in written {
        let path = expected.join(path);
        let known =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(&known, text, "{}", path.display());
    }
}

fn source_texts(source: &Path) -> Vec<String> {
    let files = fs::read_dir(source)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect()
}

/// Examples of fewer lines are not of a source.
const MIN_EXAMPLE: usize = 5;

/// Returns a text without the indentation of its lines, which examples of a part do not keep.
fn trimmed_lines(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("\n")
}

/// The policies in the page on a system are those of its sources; lines that are left out are `…`.
fn check_page(system: System, texts: &[String]) {
    let path = format!("../../docs/import/{}.md", system.name());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let page = fs::read_to_string(&path).unwrap();
    let texts: Vec<String> = texts.iter().map(|text| trimmed_lines(text)).collect();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (language, example) = block.split_once('\n').unwrap();
        if language != "yaml" || example.lines().count() < MIN_EXAMPLE {
            continue;
        }
        for shown in trimmed_lines(example).split("\n…\n") {
            let shown = shown.trim_end_matches('…').trim();
            let is_shown = texts.iter().any(|text| text.contains(shown));
            assert!(is_shown, "{}: no source gives\n{shown}", path.display());
        }
    }
}

/// A file without a rule is refused, except where that has a meaning.
#[test]
fn nothing_cannot_be_imported() {
    for system in System::all().filter(|system| *system != System::Robots) {
        for text in ["", "\n \n", "# nothing\n\n# at all\n"] {
            let files = MemoryFileSystem::new().with_file("regex-urlfilter.txt", text.as_bytes());
            let input = ImportInput::new(&files, ["regex-urlfilter.txt"]);
            match import(system, &input) {
                Err(ImportError::Invalid { .. }) => {}
                Err(error) => panic!("{} {text:?}: {error}", system.name()),
                // A comment of another system is no rule of this one, which is named.
                Ok(imported) => assert!(
                    !imported.report.is_complete()
                        || imported.report.list(ReportList::Dead).count() > 0,
                    "{} {text:?}: {}",
                    system.name(),
                    imported.report.to_text()
                ),
            }
        }
    }
}
