//! How the policy in force is written: its files, where its rules stand in them, and how it differs from the one before.
//!
//! For those who ask the admin API; no request is judged by it.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use crate::diagnostics::problem::SourceLocation;
use crate::policy::Policy;
use crate::policy::compare::PolicyDiff;
use crate::policy::compile::CompiledPolicy;

/// So much text is kept of all files of a policy, in bytes; of the others only that they are there.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// Where a policy comes from. The default is one that no file stands behind.
#[derive(Debug, Default)]
pub struct PolicySource {
    /// When it took force.
    pub loaded_at: Option<SystemTime>,
    /// Its files, in the order in which they were read.
    pub files: Box<[PolicySourceFile]>,
    /// Where each of its rules begins, in their order.
    pub rule_positions: Box<[SourceLocation]>,
    /// The policy that was in force before.
    pub previous: Option<PreviousPolicy>,
}

/// A file of a policy.
#[derive(Clone, Debug)]
pub struct PolicySourceFile {
    /// Its path, relative to the policy's directory.
    pub path: Arc<str>,
    /// What is in it; `None` if all of them together are too long.
    pub text: Option<Arc<str>>,
    digest: [u8; 32],
}

impl PolicySourceFile {
    /// Whether both hold the same text.
    pub fn has_same_text(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// A policy that is not in force any more, and how the one that is differs from it.
#[derive(Debug)]
pub struct PreviousPolicy {
    /// Its name.
    pub name: Box<str>,
    /// Its revision.
    pub revision: Box<str>,
    /// When it took force.
    pub loaded_at: Option<SystemTime>,
    /// Its files.
    pub files: Box<[PolicySourceFile]>,
    /// What has changed since.
    pub structure: PolicyDiff,
}

impl PolicySource {
    /// Of a policy that was read from a path, a file or a directory; not in force yet.
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
        let places = compiled.rule_places.iter();
        let places = places.map(|place| SourceLocation {
            file: relative_path(&place.file, root),
            ..place.clone()
        });
        Self {
            loaded_at: None,
            files: files.collect(),
            rule_positions: places.collect(),
            previous: None,
        }
    }

    /// The same, behind another policy.
    #[must_use]
    pub fn with_previous(self, previous: PreviousPolicy) -> Self {
        Self {
            previous: Some(previous),
            ..self
        }
    }

    /// The same, in force from a time on.
    #[must_use]
    pub fn with_loaded_at(self, time: SystemTime) -> Self {
        Self {
            loaded_at: Some(time),
            ..self
        }
    }
}

impl PreviousPolicy {
    /// A policy as the one before another.
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
    let left = room.checked_sub(text.len());
    *room = left.unwrap_or(*room);
    let digest = Sha256::digest(text.as_bytes()).into();
    PolicySourceFile {
        path: Arc::clone(path),
        text: left.map(|_| Arc::clone(text)),
        digest,
    }
}

/// A file's name below the policy's directory, as far as it stands there.
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
        let kept = ["12345678", "123", "12", ""]
            .map(|text| source_file(&"f".into(), &text.into(), &mut room));
        assert_eq!(
            kept.each_ref().map(|file| file.text.is_some()),
            [true, false, true, true]
        );
        assert!(kept[0].has_same_text(&kept[0]) && !kept[0].has_same_text(&kept[1]));
    }
}
