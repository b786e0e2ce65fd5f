//! A file that lines of JSON are appended to, each on the disk before it counts as delivered.
//!
//! Whoever moves it away (logrotate) gets a new one: before each batch the file under the name is looked at.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value as Json;

use crate::http_client::{DeliveryFailure, RetryAdvice};
use crate::store::sync_directory;

/// The end of a file in which a line that a crash has cut is looked for.
const TAIL_BYTES: u64 = 1 << 20;

/// The file.
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
    /// The file at this path, which is made when there is something to write.
    pub(super) fn new(path: PathBuf) -> Self {
        Self(Arc::new(EventFileInner {
            path,
            file: Mutex::default(),
        }))
    }

    /// Appends these, a line each, all on the disk when it is over.
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
        let mut kept = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match kept.take().filter(|file| is_same_file(file, &self.path)) {
            Some(file) => file,
            None => open(&self.path)?,
        };
        let file = kept.insert(file);
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_data());
        if written.is_err() {
            // The next try opens it anew, and takes away what this one has left.
            *kept = None;
        }
        written
    }
}

/// Whether the file is still the one under its name.
fn is_same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// Opens the file, behind its last whole line: it holds URLs, so nobody but its owner reads a new one.
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
    // Lines that are on the disk are lost with a file whose name is not.
    if new {
        sync_directory(path)?;
    }
    let length = file.metadata()?.len();
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    file.read_to_end(&mut tail)?;
    let behind = tail.iter().rev().take_while(|byte| **byte != b'\n').count();
    if behind > 0 {
        file.set_len(length.saturating_sub(u64::try_from(behind).unwrap_or(0)))?;
    }
    Ok(file)
}
