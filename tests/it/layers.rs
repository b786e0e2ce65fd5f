//! The layers of ARCHITECTURE.md: which module may name which, read from the `use` lines of `src/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Each module with the modules that it may name, itself aside. Those of `crawlgate-policy` may be named by all.
const MAY_NAME: [(&str, &[&str]); 16] = [
    ("clock", &[]),
    ("trace_context", &[]),
    ("heap", &[]),
    ("store", &[]),
    ("metrics", &["clock", "trace_context"]),
    ("post", &[]),
    ("otlp", &["clock", "trace_context", "metrics", "post"]),
    ("feed", &["clock", "store", "metrics", "report", "post"]),
    ("pipeline", &["clock", "store", "metrics"]),
    ("tls", &["clock", "metrics"]),
    (
        "proxy",
        &["clock", "trace_context", "pipeline", "tls", "metrics"],
    ),
    ("report", &["clock", "store", "pipeline", "proxy"]),
    (
        "admin",
        &["clock", "store", "pipeline", "metrics", "report"],
    ),
    ("config", &["pipeline", "proxy", "admin"]),
    (
        "cli",
        &[
            "clock",
            "trace_context",
            "store",
            "heap",
            "metrics",
            "post",
            "otlp",
            "feed",
            "pipeline",
            "tls",
            "proxy",
            "report",
            "admin",
            "config",
        ],
    ),
    ("main", &["cli"]),
];

/// The parts of `crawlgate-policy`, which `lib.rs` re-exports.
const POLICY_CRATE: [&str; 8] = [
    "diagnostics",
    "ledger",
    "model",
    "pacing",
    "policy",
    "robots",
    "urls",
    "yaml",
];

#[test]
fn no_arrow_points_up() {
    let rules: BTreeMap<_, _> = MAY_NAME.into_iter().collect();
    let mut arrows = 0;
    for file in sources() {
        let module = module_of(&file);
        let Some(allowed) = rules.get(module.as_str()) else {
            panic!("{module} has no row: {}", file.display())
        };
        for (named, line) in named_modules(&file) {
            arrows += 1;
            let fine = named == module
                || POLICY_CRATE.contains(&named.as_str())
                || allowed.contains(&named.as_str());
            assert!(
                fine,
                "{}: `{module}` may not name `{named}`: {line}",
                file.display()
            );
        }
    }
    assert!(
        arrows > 100,
        "{arrows} arrows: is this still reading the sources?"
    );
}

#[test]
fn only_yaml_names_the_yaml_library_and_only_clock_reads_time() {
    for file in sources() {
        let (module, text) = (module_of(&file), fs::read_to_string(&file).unwrap());
        let names = |word: &str| code(&text).any(|l| l.contains(word));
        assert!(
            module == "yaml" || !names("serde_saphyr"),
            "{}",
            file.display()
        );
        assert!(
            module == "clock" || !names("Instant::now()"),
            "{}",
            file.display()
        );
    }
}

/// The path of one request fits on a screen.
#[test]
fn the_order_is_written_once_and_short() {
    for file in ["src/pipeline/request.rs", "src/pipeline/response.rs"] {
        let lines = fs::read_to_string(file).unwrap().lines().count();
        assert!(lines < 200, "{file} has {lines} lines");
    }
}

fn sources() -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders = vec![PathBuf::from("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("lib.rs") {
                found.push(path);
            }
        }
    }
    found
}

fn module_of(file: &Path) -> String {
    let first = file
        .strip_prefix("src")
        .unwrap()
        .components()
        .next()
        .unwrap();
    first
        .as_os_str()
        .to_str()
        .unwrap()
        .trim_end_matches(".rs")
        .to_owned()
}

/// Lines of code: neither comments nor what stands behind the tests' marker.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    code.lines().filter(|l| !l.trim_start().starts_with("//"))
}

/// Modules of the house that a file names by `crate::`, in `use` lines (with their braces) and in paths.
fn named_modules(file: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(file).unwrap();
    let mut named = vec![];
    for line in code(&text) {
        for (at, _) in line.match_indices("crate::") {
            let rest = &line[at + "crate::".len()..];
            let names = match rest.strip_prefix('{') {
                Some(inside) => inside.split('}').next().unwrap().split(',').collect(),
                None => vec![rest],
            };
            for name in names {
                let word = name
                    .trim()
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .next()
                    .unwrap();
                named.push((word.to_owned(), line.to_owned()));
            }
        }
    }
    if module_of(file) == "main" {
        named.retain(|(name, _)| name == "cli");
    }
    named
}
