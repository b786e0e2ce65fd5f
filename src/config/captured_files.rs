//! Captures the files of a policy while it is read, so that exactly these can be sent, kept and written again.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::policy::source::{FileError, FileSystem, PolicyFileSet, PolicyFileSetError};

/// Policy files, and what was read of them.
#[derive(Debug)]
pub struct CapturingFiles<'f, F> {
    files: &'f F,
    captured: RefCell<CapturedFiles>,
}

#[derive(Debug, Default)]
struct CapturedFiles {
    /// Set if the policy is a directory.
    is_directory: bool,
    /// The content by the path that was read.
    by_path: BTreeMap<String, Vec<u8>>,
    bytes: usize,
}

impl<'f, F: FileSystem> CapturingFiles<'f, F> {
    /// Captures what is read from these files.
    pub fn new(files: &'f F) -> Self {
        Self {
            files,
            captured: RefCell::default(),
        }
    }

    /// Returns the files of the policy at this path.
    ///
    /// # Errors
    /// If they are too large, or cannot be a policy.
    pub fn into_set(self, path: &str) -> Result<PolicyFileSet, PolicyFileSetError> {
        let captured = self.captured.into_inner();
        if captured.bytes > PolicyFileSet::MAX_BYTES {
            return Err(PolicyFileSetError::TooLarge);
        }
        let path = match path.trim_end_matches('/') {
            "" => path,
            trimmed => trimmed,
        };
        let (directory, entry) = match path.rsplit_once('/') {
            _ if captured.is_directory => (path, None),
            Some((directory, name)) => (directory, Some(name.to_owned())),
            None => ("", Some(path.to_owned())),
        };
        let prefix = match directory {
            "" if !path.starts_with('/') => String::new(),
            directory => format!("{}/", directory.trim_end_matches('/')),
        };
        let files = captured.by_path.into_iter();
        let files = files.filter_map(|(path, bytes)| {
            let relative = path.strip_prefix(&prefix)?.to_owned();
            Some((relative, bytes))
        });
        PolicyFileSet::new(entry, files.collect())
    }
}

impl<F: FileSystem> FileSystem for CapturingFiles<'_, F> {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let bytes = self.files.read(path)?;
        let mut captured = self.captured.borrow_mut();
        captured.bytes = captured.bytes.saturating_add(bytes.len());
        if captured.bytes > PolicyFileSet::MAX_BYTES {
            // Too large to be used: the memory is for the policy.
            captured.by_path.clear();
        } else {
            captured.by_path.insert(path.to_owned(), bytes.clone());
        }
        Ok(bytes)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        let names = self.files.list(directory)?;
        self.captured.borrow_mut().is_directory = true;
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::compile;
    use crate::policy::source::MemoryFileSystem;

    const TEXT: &str = "policy: 1\nname: p\noptions: { disposition: allow }\nlists: { l: { kind: hosts, file: a/l.txt } }\n\
                        rules: [{ id: r, forbid: { host: { in: l } } }]\n";

    #[test]
    fn captured_files_are_the_same_policy() {
        for (root, path) in [
            ("p.yaml", "p.yaml"),
            ("./p.yaml", "./p.yaml"),
            ("/etc/p.yaml", "/etc/p.yaml"),
            ("/p.yaml", "/p.yaml"),
            ("d", "d/p.yaml"),
            ("d/", "d/p.yaml"),
            ("/d", "/d/p.yaml"),
        ] {
            let list = match path.rsplit_once('/') {
                Some((directory, _)) => format!("{directory}/a/l.txt"),
                None => "a/l.txt".to_owned(),
            };
            let disk = MemoryFileSystem::new()
                .with_file(path, TEXT)
                .with_file(&list, "x.example\n");
            let files = CapturingFiles::new(&disk);
            let compiled = compile::load(&files, root).unwrap();
            let set = files.into_set(root).unwrap();
            let is_file = root.ends_with(".yaml");
            assert_eq!(set.entry(), is_file.then_some("p.yaml"), "{root}");
            let again = compile::load(&set, set.root_path()).unwrap();
            assert_eq!(
                again.policy.revision(),
                compiled.policy.revision(),
                "{root}"
            );
        }
    }
}
