//! A file that JSON lines are appended to. A line counts as delivered once it is on disk.
//!
//! If the file is moved away (by logrotate), a new one is created: the path is checked before each batch.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value as Json;

use crate::http_client::{DeliveryFailure, RetryAdvice};
use crate::store::sync_directory;

/// The number of bytes at the end of the file in which a line truncated by a crash is looked for.
const TAIL_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub(super) struct EventFile(Arc<EventFileInner>);

#[derive(Debug)]
struct EventFileInner {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl fmt::Display for EventFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.path.display().fmt(f)
    }
}

impl EventFile {
    /// Creates a handle for the file at this path; the file is created with the first write.
    pub(super) fn new(path: PathBuf) -> Self {
        Self(Arc::new(EventFileInner {
            path,
            file: Mutex::default(),
        }))
    }

    /// Appends the documents, one per line, and returns once they are on disk.
    pub(super) async fn append(&self, documents: Vec<Json>) -> Result<(), DeliveryFailure> {
        let opened = Arc::clone(&self.0);
        let written = tokio::task::spawn_blocking(move || opened.append(&documents));
        let error = match written.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        Err(DeliveryFailure {
            message: format!("{self}: {error}"),
            retry: RetryAdvice::AfterBackoff,
        })
    }
}

impl EventFileInner {
    fn append(&self, documents: &[Json]) -> io::Result<()> {
        let mut text = String::new();
        for document in documents {
            text.push_str(&document.to_string());
            text.push('\n');
        }
        let mut open_file = self.file.lock();
        let file = match open_file
            .take()
            .filter(|file| is_same_file(file, &self.path))
        {
            Some(file) => file,
            None => open(&self.path)?,
        };
        let file = open_file.insert(file);
        let result = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_data());
        if result.is_err() {
            // The next try reopens the file and removes what this one has left.
            *open_file = None;
        }
        result
    }
}

/// Returns `true` if the open file is still the one at the path.
fn is_same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// Opens the file and truncates it after its last complete line. A new file is readable by its owner
/// only, since it contains URLs.
fn open(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let new = !path.exists();
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    // The lines survive a crash only together with the file's directory entry.
    if new {
        sync_directory(path)?;
    }
    let length = file.metadata()?.len();
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    file.read_to_end(&mut tail)?;
    let partial_len = tail.iter().rev().take_while(|byte| **byte != b'\n').count();
    if partial_len > 0 {
        file.set_len(length.saturating_sub(u64::try_from(partial_len).unwrap_or(0)))?;
    }
    Ok(file)
}
