//! The budgets on disk: `budgets.json` in the store's directory, so that a restart gives nobody a second day.
//!
//! As with the stops, the file is written whole beside the old one and takes its place once it is on the disk, and one
//! that cannot be read is an error. It is written every few seconds: what was counted since is lost with the process.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::pacing::budget::{BudgetUsage, HostHash};

use super::atomic_file::{AtomicFile, RecoveryHint};

pub use super::atomic_file::UnreadableFile;

/// The name of the file.
const FILE_NAME: &str = "budgets.json";
/// The form of the file.
const VERSION: u32 = 1;
/// The longest file that is read.
const MAX_BYTES: u64 = 1 << 30;

/// Where the budgets are kept.
#[derive(Debug)]
pub struct BudgetsFile(AtomicFile);

/// What is in the file: what was spent, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedBudgets(pub Vec<(Arc<str>, BudgetUsage)>);

const RECOVERY: RecoveryHint = RecoveryHint {
    contents: "what was spent of today's budgets",
    consequence: "the day begins anew",
};

impl BudgetsFile {
    /// The file in this directory; neither need be there.
    pub fn in_directory(directory: &Path) -> Self {
        Self(AtomicFile::new(directory, FILE_NAME, MAX_BYTES, RECOVERY))
    }

    /// What it holds; nothing if it is not there.
    ///
    /// # Errors
    /// If it is there and cannot be read, or holds anything else.
    pub fn read(&self) -> Result<SavedBudgets, UnreadableFile> {
        let Some(text) = self.0.read()? else {
            return Ok(SavedBudgets::default());
        };
        let document: Document =
            serde_json::from_str(&text).map_err(|error| self.0.unreadable_error(error))?;
        if document.version != VERSION {
            let version = document.version;
            let why = format!("it has version {version}, and this program reads {VERSION}");
            return Err(self.0.unreadable_error(why));
        }
        Ok(SavedBudgets(
            document.spent.into_iter().map(Line::into_spent).collect(),
        ))
    }

    /// Puts this in its place. Blocks until it is on the disk.
    ///
    /// # Errors
    /// If that fails; the old file stands as it did.
    pub fn write(&self, saved: &SavedBudgets) -> io::Result<()> {
        self.0
            .write(|out| Ok(serde_json::to_writer(out, &Document::from_saved(saved))?))
    }
}

/// The text of the file; days are counted from 1970, hosts are numbers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    spent: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    day: u64,
    urls: u64,
    new_urls: u64,
    bytes: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<u64>,
}

impl Document {
    fn from_saved(saved: &SavedBudgets) -> Self {
        let spent = saved.0.iter().map(|(name, spent)| Line {
            name: name.to_string(),
            day: spent.day,
            urls: spent.urls,
            new_urls: spent.new_urls,
            bytes: spent.bytes,
            hosts: spent.hosts.iter().map(|host| host.0).collect(),
        });
        Self {
            version: VERSION,
            spent: spent.collect(),
        }
    }
}

impl Line {
    fn into_spent(self) -> (Arc<str>, BudgetUsage) {
        let hosts: BTreeSet<HostHash> = self.hosts.into_iter().map(HostHash).collect();
        let Self {
            day,
            urls,
            new_urls,
            bytes,
            ..
        } = self;
        (
            self.name.into(),
            BudgetUsage {
                day,
                urls,
                new_urls,
                bytes,
                hosts,
            },
        )
    }
}
