//! The source of the active policy: its files, the positions of its rules, and the difference from the policy before.
//!
//! It serves the admin API; no evaluation depends on it.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use crate::diagnostics::problem::SourceLocation;
use crate::policy::Policy;
use crate::policy::compare::PolicyDiff;
use crate::policy::compile::CompiledPolicy;

/// The maximum text of all files of a policy that is kept, in bytes. Of larger policies only the names of the files are
/// kept.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// The source of a policy. The default is a policy without files.
#[derive(Debug, Default)]
pub struct PolicySource {
    /// The time at which it became active.
    pub loaded_at: Option<SystemTime>,
    /// The files in the order in which they were read.
    pub files: Box<[PolicySourceFile]>,
    /// The position of each rule, in the order of the rules.
    pub rule_positions: Box<[SourceLocation]>,
    /// The policy that was active before.
    pub previous: Option<PreviousPolicy>,
}

#[derive(Clone, Debug)]
pub struct PolicySourceFile {
    /// Its path, relative to the policy's directory.
    pub path: Arc<str>,
    /// The text; `None` if all files together are too long.
    pub text: Option<Arc<str>>,
    digest: [u8; 32],
}

impl PolicySourceFile {
    /// Returns `true` if both have the same text.
    pub fn has_same_text(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// A policy that is no longer active, and the difference from its successor.
#[derive(Debug)]
pub struct PreviousPolicy {
    pub name: Box<str>,
    pub revision: Box<str>,
    /// The time at which it became active.
    pub loaded_at: Option<SystemTime>,
    /// The files that it was read from.
    pub files: Box<[PolicySourceFile]>,
    /// The difference from its successor.
    pub structure: PolicyDiff,
}

impl PolicySource {
    /// Creates the source of a policy that was read from a file or a directory, and is not active yet.
    pub fn from_compiled(compiled: &CompiledPolicy, path: &Path) -> Self {
        let root = if path.is_dir() {
            path
        } else {
            path.parent().unwrap_or(path)
        };
        let mut room = MAX_TEXT_BYTES;
        let files = compiled
            .texts
            .iter()
            .map(|(name, text)| source_file(&relative_path(name, root), text, &mut room));
        Self {
            loaded_at: None,
            files: files.collect(),
            rule_positions: relative_places(&compiled.rule_places, root),
            previous: None,
        }
    }

    /// Adds the policy before.
    #[must_use]
    pub fn with_previous(self, previous: PreviousPolicy) -> Self {
        Self {
            previous: Some(previous),
            ..self
        }
    }

    /// Adds the time at which it became active.
    #[must_use]
    pub fn with_loaded_at(self, time: SystemTime) -> Self {
        Self {
            loaded_at: Some(time),
            ..self
        }
    }
}

impl PreviousPolicy {
    /// Creates the record of a policy that another one replaces.
    pub fn new(policy: &Policy, source: &PolicySource, next: &Policy) -> Self {
        Self {
            name: policy.name().into(),
            revision: policy.revision().into(),
            loaded_at: source.loaded_at,
            files: source.files.clone(),
            structure: PolicyDiff::between(policy, next),
        }
    }
}

fn source_file(path: &Arc<str>, text: &Arc<str>, room: &mut usize) -> PolicySourceFile {
    let remaining = room.checked_sub(text.len());
    *room = remaining.unwrap_or(*room);
    let digest = Sha256::digest(text.as_bytes()).into();
    PolicySourceFile {
        path: Arc::clone(path),
        text: remaining.map(|_| Arc::clone(text)),
        digest,
    }
}

/// Returns the places with relative paths. Neighbours in the same file share the path.
fn relative_places(places: &[SourceLocation], root: &Path) -> Box<[SourceLocation]> {
    let mut last: Option<(&Arc<str>, Arc<str>)> = None;
    let mut relative = Vec::with_capacity(places.len());
    for place in places {
        let file = match &last {
            Some((name, path)) if Arc::ptr_eq(name, &place.file) => Arc::clone(path),
            Some(_) | None => relative_path(&place.file, root),
        };
        last = Some((&place.file, Arc::clone(&file)));
        relative.push(SourceLocation {
            file,
            line: place.line,
            column: place.column,
        });
    }
    relative.into()
}

/// Returns the path of a file relative to the policy's directory, if it is inside.
fn relative_path(name: &Arc<str>, root: &Path) -> Arc<str> {
    let below = Path::new(&**name)
        .strip_prefix(root)
        .ok()
        .and_then(Path::to_str);
    below
        .filter(|below| !below.is_empty())
        .map_or_else(|| Arc::clone(name), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_and_long_texts_are_left_out() {
        for (name, root, expected) in [
            ("/etc/p/policy.yaml", "/etc/p", "policy.yaml"),
            ("/etc/p/lists/a.txt", "/etc/p", "lists/a.txt"),
            ("policy.yaml", "", "policy.yaml"),
            ("elsewhere.yaml", "/etc/p", "elsewhere.yaml"),
        ] {
            assert_eq!(&*relative_path(&name.into(), Path::new(root)), expected);
        }
        let mut room = 10;
        let text = ["12345678", "123", "12", ""]
            .map(|text| source_file(&"f".into(), &text.into(), &mut room));
        assert_eq!(
            text.each_ref().map(|file| file.text.is_some()),
            [true, false, true, true]
        );
        assert!(text[0].has_same_text(&text[0]) && !text[0].has_same_text(&text[1]));
    }
}
