//! Reads the files that make up a policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::rule_id::Slug;
use crate::policy::Policy;
use crate::yaml::read::spelling;
use crate::yaml::{self, Node};

use super::document::{PolicyHeader, PolicyParts, missing_header};
use super::file_set::is_plain_path;
use super::files::{FileError, FileSystem};
use super::list_file::{self, ListFileError};
use super::rule_texts::{PreviousRules, read_in_parts};
use super::tree::{SourceListItems, SourcePolicy};

/// Reads a policy: a file, or a directory whose `*.yaml` files make up one document.
///
/// Takes over the rules of a policy before whose texts are unchanged. Returns `None` if nothing can
/// be read; every error is added to `problems`.
pub fn read_policy(
    files: &dyn FileSystem,
    path: &str,
    previous: Option<&Policy>,
    problems: &mut Problems,
) -> Option<SourcePolicy> {
    let path = if path.len() > 1 {
        path.trim_end_matches('/')
    } else {
        path
    };
    let (directory, names) = match files.list(path) {
        Ok(names) => (path, select_policy_files(path, names, problems)),
        Err(FileError::NotADirectory) => split_path(path),
        Err(error) => {
            problems.push(unreadable(
                &SourceLocation::for_file(&path.into()),
                "the policy cannot be read",
                path,
                &error,
            ));
            return None;
        }
    };
    let mut reader = PolicyFileReader {
        files,
        directory,
        contents: BTreeMap::new(),
    };
    let mut parts = PolicyParts::default();
    let previous = previous.map(PreviousRules::new);
    for name in &names {
        let file: Arc<str> = reader.full_path(name).into();
        let Some(text) = reader.read_text(name, &SourceLocation::for_file(&file), problems) else {
            continue;
        };
        if let Some(read) = read_in_parts(&file, &text, parts.rules.len(), previous.as_ref()) {
            problems.add_text(&file, text);
            problems.append(read.problems);
            parts.add_document(&read.rest, Some(read.rules), &mut reader, problems);
            parts.rule_texts.push(read.texts);
        } else if let Some(node) = yaml::parse(&file, text, problems) {
            parts.add_document(&node, None, &mut reader, problems);
        }
    }
    let head = parts.header.unwrap_or_else(|| {
        // The header may be in a file that could not be read.
        if !problems.has_errors() {
            problems.push(missing_header(&path.into(), &names));
        }
        PolicyHeader::missing(&path.into())
    });
    Some(SourcePolicy {
        // A missing name was reported; checks continue with a placeholder.
        name: head.name.or_else(|| Slug::new("unnamed"))?,
        on_invalid_rule: head.on_invalid_rule,
        options_place: head.options_place,
        options: head.options,
        lists: parts.lists,
        rules: parts.rules,
        spaces: parts.spaces,
        hosts: parts.hosts,
        global: head.global,
        cases: parts.cases,
        assertions: parts.assertions,
        revision: reader.revision(),
        rule_texts: parts.rule_texts,
    })
}

/// Splits a path into directory and file name.
fn split_path(path: &str) -> (&str, Vec<String>) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", vec![name.to_owned()]),
        Some((directory, name)) => (directory, vec![name.to_owned()]),
        None => ("", vec![path.to_owned()]),
    }
}

/// Returns the policy files of a directory, in byte order of their names.
fn select_policy_files(
    directory: &str,
    names: Vec<String>,
    problems: &mut Problems,
) -> Vec<String> {
    let place = SourceLocation::for_file(&directory.into());
    let (mut selected, others): (Vec<String>, Vec<String>) = names
        .into_iter()
        .filter(|name| !name.starts_with('.'))
        .partition(|name| name.ends_with(".yaml"));
    selected.sort_unstable();
    for other in others.iter().filter(|name| name.ends_with(".yml")) {
        let problem = Problem::warning(
            &place,
            "this file is ignored: only `*.yaml` files are part of a policy",
        );
        problems.push(problem.with_found(other));
    }
    if selected.is_empty() {
        problems.push(Problem::error(
            &place,
            "the directory contains no `*.yaml` files, so it is not a policy",
        ));
    }
    selected
}

fn unreadable(place: &SourceLocation, message: &str, path: &str, error: &FileError) -> Problem {
    Problem::error(place, format!("{message}: {error}")).with_found(path)
}

/// Reads the files of one policy and records their contents.
pub(super) struct PolicyFileReader<'f> {
    files: &'f dyn FileSystem,
    directory: &'f str,
    /// The contents of the files read, by path relative to the directory.
    contents: BTreeMap<String, Vec<u8>>,
}

impl PolicyFileReader<'_> {
    fn full_path(&self, relative: &str) -> String {
        match self.directory {
            "" => relative.to_owned(),
            "/" => format!("/{relative}"),
            directory => format!("{directory}/{relative}"),
        }
    }

    /// Reads a file of the policy as text.
    fn read_text(
        &mut self,
        relative: &str,
        place: &SourceLocation,
        problems: &mut Problems,
    ) -> Option<Arc<str>> {
        let bytes = self.read_bytes(relative, place, problems)?;
        let text = if list_file::is_gzip(bytes) {
            Err(Box::new(Problem::error(
                place,
                "the file is compressed; only list files may be",
            )))
        } else {
            decode_utf8(bytes, place)
        };
        ok_or_report(text, relative, problems)
    }

    /// Reads a file and records it for the revision.
    fn read_bytes(
        &mut self,
        relative: &str,
        place: &SourceLocation,
        problems: &mut Problems,
    ) -> Option<&[u8]> {
        match self.files.read(&self.full_path(relative)) {
            Ok(bytes) => {
                self.contents.insert(relative.to_owned(), bytes);
                self.contents.get(relative).map(Vec::as_slice)
            }
            Err(error) => {
                problems.push(unreadable(
                    place,
                    "the file cannot be read",
                    relative,
                    &error,
                ));
                None
            }
        }
    }

    /// Reads a list file, compressed or not.
    pub(super) fn read_list_file(
        &mut self,
        node: &Node,
        problems: &mut Problems,
    ) -> Option<SourceListItems> {
        let relative = spelling(node, problems)?;
        if !is_plain_path(relative) {
            let problem = Problem::error(
                &node.place,
                "a list file must be inside the policy's directory",
            );
            problems.push(
                problem
                    .with_found(relative)
                    .with_help("write a path relative to the policy, without `..`"),
            );
            return None;
        }
        let bytes = self.read_bytes(relative, &node.place, problems)?;
        let text = list_file::decompress(bytes)
            .map_err(|error| Box::new(list_file_problem(&node.place, &error)));
        let text = ok_or_report(
            text.and_then(|bytes| self::decode_utf8(&bytes, &node.place)),
            relative,
            problems,
        )?;
        let file: Arc<str> = self.full_path(relative).into();
        problems.add_text(&file, Arc::clone(&text));
        Some(SourceListItems::File { file, text })
    }

    /// Returns the first 8 hex digits of SHA-256 over all files, in the order of their relative
    /// paths.
    fn revision(&self) -> Arc<str> {
        let mut hash = Sha256::new();
        for (path, bytes) in &self.contents {
            hash.update(format!("{path}\0{}\0", bytes.len()));
            hash.update(bytes);
        }
        let hex = hash
            .finalize()
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>();
        hex.into()
    }
}

/// Decodes a file, without the byte order mark that some editors write.
fn decode_utf8(bytes: &[u8], place: &SourceLocation) -> Result<Arc<str>, Box<Problem>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map(Arc::from).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or(&[]);
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        Box::new(Problem::error(place, format!("line {line} is not UTF-8")))
    })
}

fn list_file_problem(place: &SourceLocation, error: &ListFileError) -> Problem {
    match error {
        ListFileError::TooLarge => {
            let message = format!("the list is larger than {} MiB", list_file::MAX_BYTES >> 20);
            Problem::error(place, message)
                .with_help("split it into several lists (`in: [one, two]`)")
        }
        ListFileError::Corrupt(error) => {
            Problem::error(place, format!("the file cannot be decompressed: {error}"))
        }
    }
}

/// Returns the value, or reports the problem and returns `None`.
fn ok_or_report<T>(
    found: Result<T, Box<Problem>>,
    file: &str,
    problems: &mut Problems,
) -> Option<T> {
    found
        .map_err(|problem| problems.push(problem.with_found(file)))
        .ok()
}
