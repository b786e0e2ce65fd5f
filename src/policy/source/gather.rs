//! Gathering: which files make a policy, and what their bytes are.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::vocab::problem::{Place, Problem};
use crate::vocab::problems::Problems;
use crate::vocab::rule_id::Slug;
use crate::yaml::read::spelling;
use crate::yaml::{self, Node};

use super::document::{Head, Parts, without_head};
use super::files::{FileError, Files};
use super::tree::{At, Source, Text};

/// Reads a policy: a file, or a directory whose `*.yaml` files make one document. `None` if there is
/// nothing to read; all that is wrong goes to `problems`.
pub fn read(files: &dyn Files, path: &str, problems: &mut Problems) -> Option<Source> {
    let path = if path.len() > 1 { path.trim_end_matches('/') } else { path };
    let (directory, names) = match files.list(path) {
        Ok(names) => (path, policy_files(path, names, problems)),
        Err(FileError::NotADirectory) => split(path),
        Err(error) => {
            problems.push(unreadable(
                &Place::of_file(&path.into()),
                "the policy cannot be read",
                path,
                &error,
            ));
            return None;
        }
    };
    let mut gather = Gather { files, directory, read: BTreeMap::new() };
    let mut parts = Parts::default();
    for name in &names {
        let file: Arc<str> = gather.path(name).into();
        let Some(text) = gather.text(name, &Place::of_file(&file), problems) else { continue };
        if let Some(node) = yaml::parse(&file, &text, problems) {
            parts.add(&node, &mut gather, problems);
        }
    }
    let head = parts.head.unwrap_or_else(|| {
        // Files that could not be read may hold it.
        if !problems.has_errors() {
            problems.push(without_head(&path.into(), &names));
        }
        Head::missing(&path.into())
    });
    Some(Source {
        // What has no name was reported; the rest is checked under another.
        name: head.name.or_else(|| Slug::new("unnamed"))?,
        on_invalid_rule: head.on_invalid_rule,
        options_place: head.options_place,
        options: head.options,
        lists: parts.lists,
        rules: parts.rules,
        spaces: parts.spaces,
        global: head.global,
        cases: parts.cases,
        revision: gather.revision(),
    })
}

/// The directory and the name of a file.
fn split(path: &str) -> (&str, Vec<String>) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", vec![name.to_owned()]),
        Some((directory, name)) => (directory, vec![name.to_owned()]),
        None => ("", vec![path.to_owned()]),
    }
}

/// The policy's files of a directory, in byte order of their names.
fn policy_files(directory: &str, names: Vec<String>, problems: &mut Problems) -> Vec<String> {
    let place = Place::of_file(&directory.into());
    let (mut kept, others): (Vec<String>, Vec<String>) =
        names.into_iter().filter(|name| !name.starts_with('.')).partition(|name| name.ends_with(".yaml"));
    kept.sort_unstable();
    for other in others.iter().filter(|name| name.ends_with(".yml")) {
        let problem = Problem::warning(&place, "a file that is not read: only `*.yaml` make a policy");
        problems.push(problem.found(other));
    }
    if kept.is_empty() {
        problems.push(Problem::error(&place, "a directory without `*.yaml` files is no policy"));
    }
    kept
}

fn unreadable(place: &Place, message: &str, path: &str, error: &FileError) -> Problem {
    Problem::error(place, format!("{message}: {error}")).found(path)
}

/// A policy being read: its files, and what was read of them.
pub(super) struct Gather<'f> {
    files: &'f dyn Files,
    directory: &'f str,
    /// The bytes, by paths relative to the directory.
    read: BTreeMap<String, Vec<u8>>,
}

impl Gather<'_> {
    fn path(&self, relative: &str) -> String {
        match self.directory {
            "" => relative.to_owned(),
            "/" => format!("/{relative}"),
            directory => format!("{directory}/{relative}"),
        }
    }

    /// The text of a file that the policy is made of or names.
    fn text(&mut self, relative: &str, place: &Place, problems: &mut Problems) -> Option<String> {
        let bytes = match self.files.read(&self.path(relative)) {
            Ok(bytes) => bytes,
            Err(error) => {
                problems.push(unreadable(place, "the file cannot be read", relative, &error));
                return None;
            }
        };
        self.read.insert(relative.to_owned(), bytes.clone());
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let problem = Problem::error(place, "compressed lists are not in this version").found(relative);
            problems.push(problem.help("unpack the file with gunzip"));
            return None;
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").map(<[u8]>::to_vec).unwrap_or(bytes);
        match String::from_utf8(bytes) {
            Ok(text) => Some(text),
            Err(error) => {
                let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or(&[]);
                let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
                problems.push(Problem::error(place, format!("line {line} is not UTF-8")).found(relative));
                None
            }
        }
    }

    /// The items of a list file: one a line, without `#` comments and empty lines.
    pub(super) fn list_file(&mut self, node: &Node, problems: &mut Problems) -> Option<Vec<Text>> {
        let relative = spelling(node, problems)?;
        if !stays_inside(relative) {
            let problem = Problem::error(&node.place, "a list file must not leave the policy's directory");
            problems.push(problem.found(relative).help("write a path relative to the policy, without `..`"));
            return None;
        }
        let text = self.text(relative, &node.place, problems)?;
        let file: Arc<str> = self.path(relative).into();
        let items = text.lines().zip(1..).filter_map(|(line, number)| item(&file, line, number)).collect();
        problems.read(&file, text);
        Some(items)
    }

    /// The first 8 hex digits of SHA-256 over all files, in the order of their relative paths.
    fn revision(&self) -> Box<str> {
        let mut hash = Sha256::new();
        for (path, bytes) in &self.read {
            hash.update(format!("{path}\0{}\0", bytes.len()));
            hash.update(bytes);
        }
        let hex = hash.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect::<String>();
        hex.into()
    }
}

fn stays_inside(path: &str) -> bool {
    let drive = path.as_bytes().get(1) == Some(&b':');
    let plain = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    plain && !drive && !path.contains('\\')
}

/// An item is the line up to a `#` that begins it or follows white space.
fn item(file: &Arc<str>, line: &str, number: u32) -> Option<Text> {
    let comment = line.match_indices('#').map(|(at, _)| at).find(|at| {
        let before = line.get(..*at).and_then(|head| head.chars().next_back());
        before.is_none_or(char::is_whitespace)
    });
    let content = line.get(..comment.unwrap_or(line.len()))?;
    let value = content.trim();
    let column = 1 + content.chars().take_while(|c| c.is_whitespace()).count();
    let place = Place { file: Arc::clone(file), line: number, column: u32::try_from(column).ok()? };
    (!value.is_empty()).then(|| At { place, value: value.into() })
}
