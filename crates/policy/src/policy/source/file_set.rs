//! The files of one policy, as bytes in memory: what is sent to a running proxy, kept, and written back.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::files::{FileError, FileSystem};

/// The name of the directory of a policy that consists of several files.
const DIRECTORY: &str = "policy";

/// The files of a policy, by paths relative to its directory.
///
/// A set is compiled like files on disk, since it is a [`FileSystem`] whose policy is at
/// [`PolicyFileSet::root_path`]. No path leads out of the policy's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFileSet {
    /// The file that is the policy; `None` if the files of a directory make it up.
    entry: Option<String>,
    files: BTreeMap<String, Vec<u8>>,
}

/// The reason why files cannot be a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFileSetError {
    /// A path that is not relative, plain and inside the directory.
    #[error(
        "`{0}` is not a path inside the policy's directory: write names joined by `/`, without `..`, `\\` and control \
         characters"
    )]
    Path(String),
    /// A path is both a file and the directory of another file.
    #[error("`{0}` is a file and the directory of another file")]
    FileAndDirectory(String),
    /// The policy's own file is missing.
    #[error("the file of the policy, `{0}`, is missing")]
    NoEntry(String),
    /// A list has the name that the policy's file should get.
    #[error("the policy has a list file with the name of the policy file, `{0}`")]
    NameTaken(String),
    /// The files are too large together.
    #[error("the files of the policy are larger than {} MiB together", PolicyFileSet::MAX_BYTES >> 20)]
    TooLarge,
}

/// SHA-256 of each file of a policy, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyFileDigests(BTreeMap<String, [u8; 32]>);

impl PolicyFileDigests {
    /// Returns the first path at which the content, or its absence, is that of neither of two other policies.
    pub fn first_difference<'a>(&'a self, one: &'a Self, other: &'a Self) -> Option<&'a str> {
        let mut paths = self.paths().chain(one.paths()).chain(other.paths());
        paths.find(|path| {
            let content = self.0.get(*path);
            content != one.0.get(*path) && content != other.0.get(*path)
        })
    }

    /// Returns `true` if there is a file at this path.
    pub fn contains(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// Returns the paths in byte order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl PolicyFileSet {
    /// The maximum size of all files, in bytes.
    pub const MAX_BYTES: usize = 64 << 20;

    /// Creates the set of a policy that is the file `entry`, or that all files make up.
    ///
    /// # Errors
    /// If a path is not inside the policy's directory, or the files cannot be a policy.
    pub fn new(
        entry: Option<String>,
        files: BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, PolicyFileSetError> {
        if files.values().map(Vec::len).sum::<usize>() > Self::MAX_BYTES {
            return Err(PolicyFileSetError::TooLarge);
        }
        for path in files.keys() {
            if !is_plain_path(path) {
                return Err(PolicyFileSetError::Path(path.clone()));
            }
            let parents = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
            if let Some(parent) = parents
                .into_iter()
                .find(|parent| files.contains_key(*parent))
            {
                return Err(PolicyFileSetError::FileAndDirectory(parent.to_owned()));
            }
        }
        match entry {
            Some(entry) if !files.contains_key(&entry) || entry.contains('/') => {
                Err(PolicyFileSetError::NoEntry(entry))
            }
            entry @ (Some(_) | None) => Ok(Self { entry, files }),
        }
    }

    /// Returns the file that is the policy; `None` if the files of a directory make it up.
    pub fn entry(&self) -> Option<&str> {
        self.entry.as_deref()
    }

    /// Returns the path at which the policy is in this set, for [`crate::policy::compile::load`].
    pub fn root_path(&self) -> &str {
        self.entry.as_deref().unwrap_or(DIRECTORY)
    }

    /// Returns every file with its path, in byte order of the paths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let files = self.files.iter();
        files.map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
    }

    /// Returns the content of a file.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(Vec::as_slice)
    }

    /// Gives the policy's file another name, which its revision depends on. A policy of several files has none.
    ///
    /// # Errors
    /// If another file has this name.
    pub fn with_entry_name(mut self, name: &str) -> Result<Self, PolicyFileSetError> {
        let Some(entry) = self.entry.as_deref().filter(|entry| *entry != name) else {
            return Ok(self);
        };
        if self.files.contains_key(name) {
            return Err(PolicyFileSetError::NameTaken(name.to_owned()));
        }
        if let Some(bytes) = self.files.remove(entry) {
            self.files.insert(name.to_owned(), bytes);
        }
        Self::new(Some(name.to_owned()), self.files)
    }

    /// Returns the digests of all files.
    pub fn digests(&self) -> PolicyFileDigests {
        let files = self.files.iter();
        PolicyFileDigests(
            files
                .map(|(path, bytes)| (path.clone(), Sha256::digest(bytes).into()))
                .collect(),
        )
    }

    /// Returns SHA-256 over the names and contents of all files, as 64 hex digits.
    pub fn checksum(&self) -> String {
        let mut hash = Sha256::new();
        for (path, bytes) in &self.files {
            hash.update(format!("{path}\0{}\0", bytes.len()));
            hash.update(bytes);
        }
        let digest = hash.finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the first file that is not one of these names, which [`FileSystem::read`] was called with.
    pub fn first_unread<'a>(&'a self, read: &[&str]) -> Option<&'a str> {
        let mut paths = self.files.keys();
        let unread = paths.find(|path| !read.iter().any(|name| self.relative(name) == Some(path)));
        unread.map(String::as_str)
    }

    /// Returns the path of a file relative to the policy's directory.
    fn relative<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self.entry {
            Some(_) => Some(path),
            None => path.strip_prefix(DIRECTORY)?.strip_prefix('/'),
        }
    }
}

impl FileSystem for PolicyFileSet {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let bytes = self.relative(path).and_then(|path| self.files.get(path));
        bytes.cloned().ok_or(FileError::NotFound)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        match &self.entry {
            Some(entry) if entry == directory => Err(FileError::NotADirectory),
            Some(_) => Err(FileError::NotFound),
            None => Ok(self
                .files
                .keys()
                .filter(|path| !path.contains('/'))
                .cloned()
                .collect()),
        }
    }
}

/// Returns `true` for names joined by `/` that stay inside a directory on every system.
pub(super) fn is_plain_path(path: &str) -> bool {
    let drive = path.as_bytes().get(1) == Some(&b':');
    let plain = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    plain && !drive && !path.contains('\\') && !path.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::compile;

    const TEXT: &str = "policy: 1\nname: p\noptions: { disposition: allow }\nlists: { l: { kind: hosts, file: a/l.txt } }\n\
                        rules: [{ id: r, forbid: { host: { in: l } } }]\n";

    fn set(
        entry: Option<&str>,
        files: &[(&str, &str)],
    ) -> Result<PolicyFileSet, PolicyFileSetError> {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()));
        PolicyFileSet::new(entry.map(str::to_owned), files.collect())
    }

    #[test]
    fn paths_stay_inside_the_directory() {
        for path in [
            "", "/", "/etc/x", "../x", "a/../x", "a/..", "./x", "a//b", "a/", "C:x", "a\\b",
            "a\0b", "a\nb", "\u{85}",
        ] {
            assert!(
                set(None, &[("p.yaml", ""), (path, "")]).is_err(),
                "{path:?}"
            );
        }
        for path in ["a", "a/b/c.txt", "..a", "a..", ".a/b", "a b", "ä"] {
            assert!(set(None, &[("p.yaml", ""), (path, "")]).is_ok(), "{path:?}");
        }
        assert!(set(None, &[("a", ""), ("a.b", ""), ("a/b", "")]).is_err());
        assert!(set(Some("p.yaml"), &[("q.yaml", "")]).is_err());
        assert!(set(Some("d/p.yaml"), &[("d/p.yaml", "")]).is_err());
    }

    #[test]
    fn a_set_is_compiled_like_its_files() {
        let file = set(
            Some("p.yaml"),
            &[("p.yaml", TEXT), ("a/l.txt", "x.example\n")],
        )
        .unwrap();
        let directory = set(None, &[("p.yaml", TEXT), ("a/l.txt", "x.example\n")]).unwrap();
        let revisions = [&file, &directory].map(|set| {
            let compiled = compile::load(set, set.root_path()).unwrap();
            let read: Vec<&str> = compiled.texts.iter().map(|(name, _)| &**name).collect();
            assert_eq!(set.first_unread(&read), None);
            compiled.policy.revision().to_owned()
        });
        assert_eq!(revisions[0], revisions[1]);
        let renamed = file.clone().with_entry_name("q.yaml").unwrap();
        assert_eq!(
            (renamed.entry(), renamed.root_path()),
            (Some("q.yaml"), "q.yaml")
        );
        assert!(renamed.get("p.yaml").is_none() && renamed.get("a/l.txt").is_some());
        assert!(file.clone().with_entry_name("a/l.txt").is_err());
        assert!(file.with_entry_name("../p.yaml").is_err());
        let more = set(
            Some("p.yaml"),
            &[("p.yaml", TEXT), ("a/l.txt", ""), ("b", "")],
        )
        .unwrap();
        assert_eq!(more.first_unread(&["p.yaml", "a/l.txt"]), Some("b"));
    }

    #[test]
    fn differences_are_found_by_content() {
        let digests = |files: &[(&str, &str)]| set(None, files).unwrap().digests();
        let one = digests(&[("a", "1"), ("b", "2")]);
        let difference = |files: &[(&str, &str)], other: &[(&str, &str)]| {
            let (files, other) = (digests(files), digests(other));
            files.first_difference(&one, &other).map(str::to_owned)
        };
        let next = [("a", "1"), ("b", "3"), ("c", "4")];
        // Each file is that of one of both.
        for files in [
            &[("a", "1"), ("b", "2")][..],
            &next,
            &[("a", "1"), ("b", "3")],
            &[("a", "1"), ("b", "2"), ("c", "4")],
        ] {
            assert_eq!(difference(files, &next), None, "{files:?}");
        }
        for (files, path) in [
            (&[("a", "1"), ("b", "4")][..], "b"),
            (&[("a", "1")], "b"),
            (&[("a", "1"), ("b", "2"), ("c", "5")], "c"),
            (&[("a", "1"), ("b", "2"), ("d", "")], "d"),
        ] {
            assert_eq!(difference(files, &next).as_deref(), Some(path), "{files:?}");
        }
        assert_eq!(difference(&[("a", "1")], &[("a", "1")]), None);
    }
}
