//! Support of the tests: files of a directory, and the comparison of a policy with an oracle.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crawlgate_import::{FileSystem, Import, ImportInput, SourcePath, System, import};
use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::compile::{self, CompiledPolicy};
use crawlgate_policy::internal::policy::decide::Cause;
use crawlgate_policy::{FileError, MemoryFileSystem};
use regex::Regex;
use serde_json::{Map, Value as Json};

/// The number of requests of a comparison.
pub(super) const REQUESTS: usize = 10_000;

/// The files of a directory.
pub(super) struct Directory(pub PathBuf);

impl FileSystem for Directory {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        fs::read(self.0.join(path)).map_err(|error| {
            if error.kind() == ErrorKind::NotFound {
                FileError::NotFound
            } else {
                FileError::Other(error.to_string())
            }
        })
    }

    fn list(&self, path: &str) -> Result<Vec<String>, FileError> {
        let entries = fs::read_dir(self.0.join(path)).map_err(|_| FileError::NotFound)?;
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        Ok(names.collect())
    }
}

/// Reads `command`: the words after `crawlgate import SYSTEM`.
pub(super) fn read_command<'a>(files: &'a Directory, words: &str) -> ImportInput<'a> {
    let mut paths = Vec::new();
    let mut input = ImportInput::new(files, []);
    let mut words = words.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "--name" => input.name = words.next().map(str::to_owned),
            "--seeds" => {
                let path = files.0.join(words.next().unwrap());
                input.seeds = Some(fs::read_to_string(path).unwrap());
            }
            "--global" => input.global = words.next().map(str::to_owned),
            "--var" => {
                let (key, value) = words.next().unwrap().split_once('=').unwrap();
                input.variables.push((key.to_owned(), value.to_owned()));
            }
            word => {
                let (crawler, path) = match word.split_once('=') {
                    Some((crawler, path)) => (Some(crawler.to_owned()), path),
                    None => (None, word),
                };
                paths.push(SourcePath {
                    crawler,
                    path: path.to_owned(),
                });
            }
        }
    }
    input.paths = paths;
    input
}

/// Imports texts, by their names; the first is the one that is named.
pub(super) fn import_texts(system: System, texts: &[(&str, &str)]) -> Import {
    let mut files = MemoryFileSystem::new();
    for (name, text) in texts {
        files = files.with_file(name, text.as_bytes());
    }
    let first = texts.first().map(|(name, _)| *name);
    import(system, &ImportInput::new(&files, first)).unwrap()
}

/// Returns the time that this thread has used the processor; zero where the system does not tell.
pub(super) fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text
        .split_whitespace()
        .next()
        .and_then(|it| it.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// Returns `true` if an expression fits somewhere in a text. Each expression is compiled once, for oracles that are
/// asked about thousands of requests.
pub(super) fn regex_fits(expression: &str, text: &str) -> bool {
    thread_local! {
        static COMPILED: RefCell<HashMap<String, Regex>> = RefCell::default();
    }
    COMPILED.with_borrow_mut(|compiled| {
        if !compiled.contains_key(expression) {
            compiled.insert(expression.to_owned(), Regex::new(expression).unwrap());
        }
        compiled[expression].is_match(text)
    })
}

/// Returns the sources in `tests/import`, with their systems.
pub(super) fn sources() -> Vec<(System, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/import");
    let systems = directories(&root).into_iter();
    let found = systems.flat_map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let system = System::from_name(&name).unwrap_or_else(|| panic!("no system {name}"));
        let sources = directories(&path).into_iter();
        sources.map(move |source| (system, source))
    });
    found.collect()
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

/// Compiles the policy of an import.
pub(super) fn compiled(imported: &Import) -> Policy {
    compile_import(imported).policy
}

/// Compiles the policy of an import, with its cases.
pub(super) fn compile_import(imported: &Import) -> CompiledPolicy {
    let mut files = MemoryFileSystem::new();
    for (path, text) in &imported.files {
        files = files.with_file(path, text.as_bytes());
    }
    compile::load(&files, "policy.yaml").unwrap()
}

/// Compares the verdicts of a policy with those of an oracle (`true`: allowed). A difference is accepted if the
/// report announces an assumption for the rule that decides; returns the number of those.
pub(super) fn compare_verdicts(
    imported: &Import,
    requests: impl IntoIterator<Item = (String, Map<String, Json>)>,
    oracle: impl Fn(&str, &Map<String, Json>) -> bool,
) -> usize {
    let policy = compiled(imported);
    let mut announced = 0;
    for (url, details) in requests {
        let Ok(mut facts) = CaseFacts::for_url(&url) else {
            continue;
        };
        for (key, value) in &details {
            facts.set(key, value).unwrap();
        }
        let (_, decision) = policy.decide(&facts.facts());
        let allows = oracle(&url, &details);
        if decision.rejects() != allows {
            continue;
        }
        let rule = match decision.cause {
            Cause::Rule(rule) => policy.rule(rule).unwrap().id.as_str(),
            Cause::Default => "disposition",
        };
        assert!(
            imported.report.assumption_of(rule).is_some(),
            "{url} {details:?}: the source {}, the policy differs by {rule}\n{}",
            if allows { "allows" } else { "refuses" },
            imported.files["policy.yaml"],
        );
        announced += 1;
    }
    announced
}
