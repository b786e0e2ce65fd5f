//! Licences, sources and duplicate versions of all dependencies, read from `cargo metadata`.
//!
//! `.ci/full` runs cargo-deny as well, which also knows security advisories.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Licences that a binary under "MIT OR Apache-2.0" may contain.
const LICENCES: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Zlib",
];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Crates that are compiled in more than one version because dependencies disagree. Each costs build time: a new one
/// needs a reason.
const DUPLICATES: [&str; 12] = [
    "base64",
    "bit-vec",
    "block-buffer",
    "cpufeatures",
    "crypto-common",
    "digest",
    "getrandom",
    "hashbrown",
    // The client of the database is ahead of the others.
    "sha2",
    "syn",
    "synstructure",
    "untrusted",
];

#[test]
fn every_licence_is_allowed() {
    for package in packages() {
        let name = text(&package, "name");
        let licence = text(&package, "license");
        assert!(is_allowed(&licence), "{name}: {licence}");
    }
    for (licence, allowed) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("GPL-3.0 OR MIT", true),
        ("(MIT OR GPL-3.0) AND ISC", true),
        ("MIT AND GPL-3.0", false),
        ("GPL-3.0", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(licence), allowed, "{licence}");
    }
}

#[test]
fn every_dependency_comes_from_crates_io() {
    for package in packages() {
        let source = package["source"].as_str().unwrap_or(CRATES_IO);
        assert_eq!(source, CRATES_IO, "{}", text(&package, "name"));
    }
}

#[test]
fn no_crate_is_compiled_twice_without_a_reason() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        let name = text(&package, "name");
        versions
            .entry(name)
            .or_default()
            .insert(text(&package, "version"));
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions.retain(|name, _| !DUPLICATES.contains(&name.as_str()));
    assert!(versions.is_empty(), "{versions:?}");
}

/// The packages that a build for this machine compiles.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--format-version", "1"])
        .args(["--filter-platform", &host()])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().clone();
    assert!(packages.len() > 100, "{} packages", packages.len());
    packages
}

/// The target triple of this machine.
fn host() -> String {
    let output = Command::new(env!("CARGO")).arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.unwrap().to_owned()
}

fn text(package: &Value, key: &str) -> String {
    package[key].as_str().unwrap_or_default().to_owned()
}

/// Returns `true` if an SPDX expression can be satisfied with [`LICENCES`] alone. `/` is the old form of `OR`.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    any_of(&mut words)
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>) -> bool {
    let mut allowed = all_of(words);
    while words.next_if_eq(&"OR").is_some() {
        allowed |= all_of(words);
    }
    allowed
}

fn all_of(words: &mut Words<'_>) -> bool {
    let mut allowed = licence(words);
    while words.next_if_eq(&"AND").is_some() {
        allowed &= licence(words);
    }
    allowed
}

fn licence(words: &mut Words<'_>) -> bool {
    let Some(word) = words.next() else {
        return false;
    };
    if word == "(" {
        let allowed = any_of(words);
        assert_eq!(words.next(), Some(")"));
        return allowed;
    }
    if words.next_if_eq(&"WITH").is_some() {
        let exception = words.next().unwrap_or_default();
        return LICENCES.contains(&format!("{word} WITH {exception}").as_str());
    }
    LICENCES.contains(&word)
}
