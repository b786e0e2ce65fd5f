//! The state directory of a node, to which the node's name belongs: locked by one process, and with an identity.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// The file with the identity, in `store.path`.
const FILE: &str = "fleet-node";

/// A locked state directory. The lock ends with the value.
#[derive(Debug)]
pub struct NodeDirectory {
    /// A random text, which the store keeps with the node's name.
    pub identity: String,
    #[expect(dead_code, reason = "the lock ends with the file")]
    file: File,
}

/// The reason why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NodeDirectoryError {
    #[error(
        "another crawlgate uses the state directory {} (store.path): each node needs its own", .0.display()
    )]
    InUse(PathBuf),
    #[error("{} cannot be used (store.path): {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl NodeDirectory {
    /// Locks the directory, and reads its identity, which is created the first time.
    ///
    /// # Errors
    /// If another process has locked it, or the file cannot be read or written.
    pub fn lock(directory: &Path) -> Result<Self, NodeDirectoryError> {
        let path = directory.join(FILE);
        let failed = |error| NodeDirectoryError::Io {
            path: path.clone(),
            error,
        };
        std::fs::create_dir_all(directory).map_err(failed)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(NodeDirectoryError::InUse(directory.to_owned()));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut identity = String::new();
        file.read_to_string(&mut identity).map_err(failed)?;
        let identity = match identity.trim() {
            "" => {
                let mut bytes = [0; 8];
                getrandom::fill(&mut bytes).map_err(|error| failed(io::Error::other(error)))?;
                let new = format!("{:016x}", u64::from_ne_bytes(bytes));
                writeln!(file, "{new}")
                    .and_then(|()| file.sync_all())
                    .map_err(failed)?;
                new
            }
            known => known.to_owned(),
        };
        Ok(Self { identity, file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_identity_and_has_one_user() {
        let directory = std::env::temp_dir().join(format!("crawlgate-node-{}", std::process::id()));
        let first = NodeDirectory::lock(&directory).unwrap();
        let second = NodeDirectory::lock(&directory);
        assert!(matches!(second, Err(NodeDirectoryError::InUse(_))));
        let identity = first.identity.clone();
        drop(first);
        assert_eq!(NodeDirectory::lock(&directory).unwrap().identity, identity);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
