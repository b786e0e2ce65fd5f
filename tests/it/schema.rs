//! The JSON Schemas: current, complete, and consistent with the readers.
//!
//! `UPDATE_EXPECT=1 cargo test --test it schema` updates them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use boon::{Compiler, SchemaIndex, Schemas};
use crawlgate::config::BasePaths;
use crawlgate::config::file::{self, ConfigFile};
use crawlgate::diagnostics::problems::Problems;
use crawlgate::policy::compile::load;
use crawlgate::policy::source::{self, FileKind, MemoryFileSystem};
use serde_json::{Value as Json, json};

const POLICY: &str = "config/policy.schema.json";
const CONFIG: &str = "config/crawlgate.schema.json";

/// A schema that validates texts.
struct Schema {
    all: Schemas,
    index: SchemaIndex,
}

impl Schema {
    fn of(schema: Json) -> Self {
        let mut all = Schemas::new();
        let mut compiler = Compiler::new();
        compiler
            .add_resource("http://schema.invalid/", schema)
            .unwrap();
        let index = compiler
            .compile("http://schema.invalid/", &mut all)
            .unwrap();
        Self { all, index }
    }

    /// Returns the validation error of a text; `None` if it is valid.
    fn mistake(&self, yaml: &str) -> Option<String> {
        let value: Json = serde_saphyr::from_str(yaml).ok()?;
        self.all
            .validate(&value, self.index)
            .err()
            .map(|mistake| format!("{mistake:#}"))
    }
}

#[test]
fn the_schema_files_equal_the_output_of_the_command() {
    for (path, schema) in [
        (POLICY, source::json_schema()),
        (CONFIG, file::json_schema()),
    ] {
        let text = format!("{schema:#}\n");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(path, &text).unwrap();
        }
        assert_eq!(
            fs::read_to_string(path).unwrap_or_default(),
            text,
            "{path}: run the test with UPDATE_EXPECT=1"
        );
        let what = if path == POLICY { "policy" } else { "config" };
        let output = crate::support::command::crawlgate(Path::new("."), &["schema", what], "");
        assert_eq!((output.code, output.stdout), (0, text));
    }
}

/// Every key has a description, and every reference has a target.
#[test]
fn keys_are_described_and_references_have_targets() {
    for schema in [source::json_schema(), file::json_schema()] {
        let defined: BTreeSet<String> = schema["$defs"]
            .as_object()
            .unwrap()
            .keys()
            .map(|name| format!("#/$defs/{name}"))
            .collect();
        let mut silent = vec![];
        let mut lost = vec![];
        walk(&schema, "", &mut |path, node| {
            if let Some(target) = node.get("$ref").and_then(Json::as_str)
                && !defined.contains(target)
            {
                lost.push(target.to_owned());
            }
            for (key, value) in node
                .get("properties")
                .and_then(Json::as_object)
                .into_iter()
                .flatten()
            {
                let shown = value
                    .get("description")
                    .and_then(Json::as_str)
                    .is_some_and(|text| text.ends_with('.'));
                let pinned = value.is_boolean()
                    || value.get("properties").is_some() && value.get("type").is_none();
                if !shown && !pinned && value != &json!({}) && !inner(path) {
                    silent.push(format!("{path}.{key}"));
                }
            }
        });
        assert_eq!((silent, lost), (vec![], vec![]));
    }
}

/// Keys of small maps inside values need no description.
fn inner(path: &str) -> bool {
    [
        "if",
        "range",
        "strip_params",
        "replace",
        "schedule",
        "test_number",
        "test_address",
        "then",
    ]
    .iter()
    .any(|part| path.split('.').any(|step| step == *part))
}

fn walk(node: &Json, path: &str, visit: &mut dyn FnMut(&str, &Json)) {
    match node {
        Json::Object(entries) => {
            visit(path, node);
            entries
                .iter()
                .for_each(|(key, value)| walk(value, &format!("{path}.{key}"), visit));
        }
        Json::Array(items) => items.iter().for_each(|item| walk(item, path, visit)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// Returns every YAML file below these directories.
fn files(directories: &[&str]) -> Vec<PathBuf> {
    let mut all = vec![];
    let mut open: Vec<PathBuf> = directories.iter().map(PathBuf::from).collect();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path())
        {
            if entry.is_dir() {
                open.push(entry);
            } else if entry
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                all.push(entry);
            }
        }
    }
    all.sort();
    all
}

#[test]
fn valid_policies_match_the_schema_and_many_broken_ones_do_not() {
    let schema = Schema::of(source::json_schema());
    let mut wrong = vec![];
    let mut good = 0;
    let mut caught = 0;
    for path in files(&[
        "config",
        "tests/broken",
        "tests/policies",
        "tests/acceptance",
    ]) {
        let name = path.display().to_string();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let kind = FileKind::from_text(&name.as_str().into(), &text);
        // Some of these are rejected on purpose.
        let broken = path.starts_with("tests/broken") || path.starts_with("tests/policies");
        let files = MemoryFileSystem::new().with_file(&name, text.as_str());
        let accepted = kind != FileKind::Other && (!broken || load(&files, &name).is_ok());
        match (accepted, schema.mistake(&text)) {
            (true, Some(mistake)) => wrong.push(format!("{name}: {mistake}")),
            (true, None) => good += 1,
            (false, found) => caught += usize::from(found.is_some()),
        }
    }
    println!("{good} fit, {caught} broken ones are caught");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(good >= 10, "{good} fit, {caught} broken ones are caught");
    assert!(caught >= 50, "{good} fit, {caught} broken ones are caught");
}

/// Errors that an editor must be able to show.
#[test]
fn common_mistakes_are_caught() {
    let schema = Schema::of(source::json_schema());
    let head = "policy: 1\nname: a\noptions: { disposition: allow }\n";
    assert_eq!(schema.mistake(head), None);
    for (text, valid) in [
        ("rules: [{ forbid: { host: a } }]", true),
        ("rules: [{ forbidd: { host: a } }]", false),
        ("rules: [{ forbid: { hots: a } }]", false),
        ("rules: [{ forbid: { path: { regx: a } } }]", false),
        ("rules: [{ forbid: { host: a }, then: allow }]", false),
        ("rules: [{ when: { host: a }, log: true }]", false),
        ("rules: [{ when: { host: a }, unless: { host: b } }]", false),
        ("rules: [{ when: { host: a }, then: alow }]", false),
        (
            "rules: [{ when: { param.sid: x, header.X-A: { prefix: b }, usage.train-ai: deny }, then: allow }]",
            true,
        ),
        ("rules: [{ when: { pram.sid: x }, then: allow }]", false),
        (
            "rules: [{ when: { any: [{ host: a }, { not: { all: [{ depth: '[3:]' }, { status: 5xx }] } }] }, then: allow }]",
            true,
        ),
        ("rules: [{ when: { any: [] }, then: allow }]", false),
        (
            "rules: [{ when: { host: a }, set: { politeness: { delay: 2s, jitter: none } } }]",
            true,
        ),
        (
            "rules: [{ when: { host: a }, set: { politeness: { delay: 2 } } }]",
            false,
        ),
        (
            "rules: [{ when: { host: a }, set: { politeness: { dealy: 2s } } }]",
            false,
        ),
        (
            "rules: [{ when: { host: a }, set: { meta: { team: x }, max_body: 10MiB, max_depth: null } }]",
            true,
        ),
        (
            "rules: [{ when: { host: a }, set: { max_body: 10MB } }]",
            false,
        ),
        ("rules: [{ id: 'a b', forbid: { host: a } }]", false),
        ("lists: { l: { kind: host, items: [a] } }", false),
        ("lists: { l: { kind: hosts } }", false),
        (
            "cases: [{ url: 'http://a/', expect: reject, rule: x, reason: rule, options: { max_depth: 3 } }]",
            true,
        ),
        (
            "cases: [{ url: 'http://a/', expect: { verdict: reject, status: 451 }, title: t, known: true }]",
            true,
        ),
        ("cases: [{ url: 'http://a/', expect: rejct }]", false),
        (
            "cases: [{ url: 'http://a/', expect: reject, reason: rul }]",
            false,
        ),
        (
            "cases: [{ assert: never, verdict: allow, rule: x, under: 'http://a/', crawler: y }]",
            true,
        ),
        ("cases: [{ assert: always, verdict: undecided }]", false),
        (
            "cases: [{ assert: never, verdict: allow, url: 'http://a/' }]",
            false,
        ),
        ("rule: []", false),
    ] {
        let mistake = schema.mistake(&format!("{head}{text}\n"));
        assert_eq!(mistake.is_none(), valid, "{text}: {mistake:?}");
    }
    for (text, fits) in [
        ("rules: [{ forbid: { host: a } }]\n", true),
        (
            "policy: ../p.yaml\ncases: [{ url: 'http://a/', expect: allow }]\n",
            true,
        ),
        ("policy: ../p.yaml\nrules: []\n", false),
        ("policy: 1\nname: a\n", false),
        (
            "policy: 2\nname: a\noptions: { disposition: allow }\n",
            false,
        ),
        ("policy: 1\nname: a\noptions: {}\n", false),
    ] {
        assert_eq!(schema.mistake(text).is_none(), fits, "{text}");
    }
}

/// For each mapping of the configuration: a text with an unknown key, and the place of the mapping in
/// the schema.
#[test]
fn the_schema_of_the_configuration_has_the_keys_that_the_reader_takes() {
    let schema = file::json_schema();
    for (text, pointer) in [
        ("zzz: 0", ""),
        ("admin: { zzz: 0 }", "/properties/admin"),
        ("policy: { zzz: 0 }", "/properties/policy"),
        ("tls: { zzz: 0 }", "/properties/tls"),
        (
            "tls: { ca: { cert: a, key: b, zzz: 0 } }",
            "/properties/tls/properties/ca/anyOf/0",
        ),
        ("egress: { zzz: 0 }", "/properties/egress"),
        (
            "egress: { allow_private: [{ zzz: 0 }] }",
            "/properties/egress/properties/allow_private/items",
        ),
        (
            "egress: { resolver: { zzz: 0 } }",
            "/properties/egress/properties/resolver/anyOf/1",
        ),
        ("limits: { zzz: 0 }", "/properties/limits"),
        ("timeouts: { zzz: 0 }", "/properties/timeouts"),
        ("runtime: { zzz: 0 }", "/properties/runtime"),
        ("logs: { zzz: 0 }", "/properties/logs"),
        (
            "logs: { rotate: { zzz: 0 } }",
            "/properties/logs/properties/rotate",
        ),
        ("listen: { zzz: 0 }", "/properties/listen/anyOf/0/anyOf/1"),
        (
            "crawlers: [{ zzz: 0 }]",
            "/properties/crawlers/anyOf/0/items",
        ),
        (
            "crawlers: [{ auth: { zzz: 0 } }]",
            "/properties/crawlers/anyOf/0/items/properties/auth",
        ),
        ("store: { zzz: 0 }", "/properties/store"),
        ("ledger: { zzz: 0 }", "/properties/ledger"),
        (
            "ledger: { events: { zzz: 0 } }",
            "/properties/ledger/properties/events",
        ),
        ("telemetry: { zzz: 0 }", "/properties/telemetry"),
        (
            "telemetry: { otlp: { zzz: 0 } }",
            "/properties/telemetry/properties/otlp/anyOf/1",
        ),
    ] {
        let mut problems = Problems::new();
        let base = BasePaths::default();
        ConfigFile::parse(&"c".into(), text, &base, &|_| None, &mut problems);
        let problems = problems.into_vec();
        let unknown = problems
            .iter()
            .find(|problem| problem.found.as_deref() == Some("zzz"))
            .expect(text);
        let taken: BTreeSet<&str> = unknown
            .help
            .as_deref()
            .and_then(|help| help.strip_prefix("allowed: "))
            .expect(text)
            .split(", ")
            .collect();
        let described: BTreeSet<&str> = schema.pointer(pointer).unwrap()["properties"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(described, taken, "{text}");
    }
}

#[test]
fn configurations_that_are_read_fit_and_others_do_not() {
    let schema = Schema::of(file::json_schema());
    let shipped = fs::read_to_string("config/crawlgate.yaml").unwrap();
    for (text, fits) in [
        (shipped.as_str(), true),
        ("listen: 127.0.0.1:3128", true),
        (
            "listen: [127.0.0.1:3128, { addr: '127.0.0.1:3129', crawler: a }]",
            true,
        ),
        ("listen: '127.0.0.1:${PORT}'", true),
        ("listen: localhost", false),
        ("lisen: 127.0.0.1:3128", false),
        (
            "limits: { head: 64KiB, connections: 5 }\ntimeouts: { drain: 0s }",
            true,
        ),
        ("limits: { head: 64 }", false),
        ("limits: { connections: 0 }", false),
        ("timeouts: { hed: 1s }", false),
        (
            "crawlers: [{ name: a, sources: [10.0.0.0/8], may: [depth] }]",
            true,
        ),
        ("crawlers: [{ sources: [10.0.0.0/8] }]", false),
        ("profile: scapy", false),
        ("store: { kind: embedded, path: x }", true),
        ("store: { kind: embedded, timeout: 2s }", true),
        ("store: { kind: redis }", false),
        (
            "egress: { ports: [80, 1024-65535], resolver: { servers: ['192.0.2.53:53'] } }",
            true,
        ),
        ("egress:\nlogs: { allows: 0.5 }", true),
        ("logs: { allows: 2 }", false),
        (
            "logs: { format: squid, rotate: { size: none, keep: 0 } }",
            true,
        ),
        ("logs: { rotate: { size: 1MiB } }", true),
        ("logs: { rotate: { size: never } }", false),
        (
            "ledger: { keep: always, queue: 5, events: { file: f, webhook: 'https://h/x', keep: 1d } }",
            true,
        ),
        ("ledger: { keep: sometimes }", false),
        ("ledger: { queue: 0 }", false),
        ("ledger: { events: { keep: 30 } }", false),
        ("telemetry: { metrics: full, otlp: none }", true),
        ("telemetry: { otlp: all }", false),
        (
            "telemetry: { otlp: { endpoint: 'http://o:4318', share: 2 } }",
            false,
        ),
        ("telemetry: { otlp: { share: 0.5 } }", false),
    ] {
        let mistake = schema.mistake(text);
        assert_eq!(mistake.is_none(), fits, "{text}: {mistake:?}");
        let mut problems = Problems::new();
        fn variables(name: &str) -> Option<String> {
            (name == "PORT").then(|| "3128".to_owned())
        }
        let base = BasePaths::default();
        ConfigFile::parse(&"c".into(), text, &base, &variables, &mut problems);
        let read = !problems.into_vec().iter().any(|problem| problem.is_error());
        // A crawler of a listener must exist; that is not for a schema.
        assert!(read == fits || text.contains("crawler: a"), "{text}");
    }
}

/// Editors find the schemas by the first line of what is shipped.
#[test]
fn shipped_files_name_their_schema() {
    for path in files(&["config"]) {
        let text = fs::read_to_string(&path).unwrap();
        let first = text.lines().next().unwrap_or_default();
        let named = first
            .strip_prefix("# yaml-language-server: $schema=")
            .unwrap_or_default();
        let target = path.parent().unwrap().join(named);
        assert!(!named.is_empty(), "{}: {first}", path.display());
        assert!(target.exists(), "{}: {first}", path.display());
        let kind = FileKind::from_text(&path.display().to_string().into(), &text);
        let expected = if kind == FileKind::Other {
            "crawlgate.schema.json"
        } else {
            "policy.schema.json"
        };
        assert_eq!(target.file_name().unwrap(), expected, "{}", path.display());
    }
}
