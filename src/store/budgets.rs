//! The budgets on disk: `budgets.json` in the store's directory, so that a restart does not reset today's budgets.
//!
//! The file is replaced atomically every few seconds; usage since the last write is lost with the process. A
//! file that cannot be read is an error.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::pacing::budget::{BudgetUsage, HostHash};

use super::atomic_file::{AtomicFile, RecoveryHint};

pub use super::atomic_file::UnreadableFile;

const FILE_NAME: &str = "budgets.json";
/// The version of the file format.
const VERSION: u32 = 1;
/// The maximum size of the file.
const MAX_BYTES: u64 = 1 << 30;

/// The file with the budgets.
#[derive(Debug)]
pub struct BudgetsFile(AtomicFile);

/// The contents of the file: usage by budget name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedBudgets(pub Vec<(Arc<str>, BudgetUsage)>);

const RECOVERY: RecoveryHint = RecoveryHint {
    contents: "the usage of today's budgets",
    consequence: "all budgets of today start from zero",
};

impl BudgetsFile {
    /// Returns the file in this directory; neither needs to exist.
    pub fn in_directory(directory: &Path) -> Self {
        Self(AtomicFile::new(directory, FILE_NAME, MAX_BYTES, RECOVERY))
    }

    /// Reads the file; returns no usage if it does not exist.
    ///
    /// # Errors
    /// If it exists and cannot be read, or contains anything else.
    pub fn read(&self) -> Result<SavedBudgets, UnreadableFile> {
        let Some(text) = self.0.read()? else {
            return Ok(SavedBudgets::default());
        };
        let document: BudgetsDocument =
            serde_json::from_str(&text).map_err(|error| self.0.unreadable_error(error))?;
        if document.version != VERSION {
            let version = document.version;
            let cause = format!("it has version {version}, and this program reads {VERSION}");
            return Err(self.0.unreadable_error(cause));
        }
        let usage = document.spent.into_iter().map(BudgetEntry::into_usage);
        Ok(SavedBudgets(usage.collect()))
    }

    /// Replaces the contents. Blocks until they are on disk.
    ///
    /// # Errors
    /// If writing fails; the old file is then unchanged.
    pub fn write(&self, saved: &SavedBudgets) -> io::Result<()> {
        let document = BudgetsDocument {
            version: VERSION,
            spent: saved.0.iter().map(BudgetEntry::from_usage).collect(),
        };
        self.0
            .write(|out| Ok(serde_json::to_writer(out, &document)?))
    }
}

/// The JSON document. Days are counted from 1970, hosts are hashes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with the budgets")]
struct BudgetsDocument {
    version: u32,
    spent: Vec<BudgetEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object for each budget")]
struct BudgetEntry {
    name: String,
    day: u64,
    urls: u64,
    new_urls: u64,
    bytes: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<u64>,
}

impl BudgetEntry {
    fn from_usage((name, usage): &(Arc<str>, BudgetUsage)) -> Self {
        Self {
            name: name.to_string(),
            day: usage.day,
            urls: usage.urls,
            new_urls: usage.new_urls,
            bytes: usage.bytes,
            hosts: usage.hosts.iter().map(|host| host.0).collect(),
        }
    }

    fn into_usage(self) -> (Arc<str>, BudgetUsage) {
        let usage = BudgetUsage {
            day: self.day,
            urls: self.urls,
            new_urls: self.new_urls,
            bytes: self.bytes,
            hosts: self.hosts.into_iter().map(HostHash).collect(),
        };
        (self.name.into(), usage)
    }
}
