//! The emergency stops on disk: `stops.json` in the store's directory, so that a restart lifts none.
//!
//! The file is replaced atomically. A file that cannot be read is an error rather than an empty list, since
//! otherwise stopped crawls would resume.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::pacing::stops::{EmergencyStop, StopId, StopReason, StopTarget};

use super::atomic_file::{AtomicFile, RecoveryHint};

pub use super::atomic_file::UnreadableFile;

const FILE_NAME: &str = "stops.json";
/// The version of the file format.
const VERSION: u32 = 1;
/// The maximum size of the file; 1,000 stops need a twentieth of it.
const MAX_BYTES: u64 = 16 << 20;

/// The file with the emergency stops.
#[derive(Debug)]
pub struct StopsFile(AtomicFile);

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedStops {
    /// The active stops.
    pub stops: Vec<EmergencyStop>,
    /// The number of the next stop.
    pub next_id: u64,
    /// The stops that the store of a fleet has, by the generation of that store.
    pub saved_in: BTreeMap<StopId, u64>,
    /// The stops that were lifted at this node of a fleet, which its store may still have.
    pub lifted: BTreeSet<StopId>,
}

const RECOVERY: RecoveryHint = RecoveryHint {
    contents: "the emergency stops",
    consequence: "all that was stopped resumes",
};

impl StopsFile {
    /// Returns the file in this directory; neither needs to exist.
    pub fn in_directory(directory: &Path) -> Self {
        Self(AtomicFile::new(directory, FILE_NAME, MAX_BYTES, RECOVERY))
    }

    /// The path of `stops.json`.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Reads the file; returns no stops if it does not exist.
    ///
    /// # Errors
    /// If it exists and cannot be read, or contains anything other than stops.
    pub fn read(&self) -> Result<SavedStops, UnreadableFile> {
        let Some(text) = self.0.read()? else {
            return Ok(SavedStops::default());
        };
        let document: StopsDocument =
            serde_json::from_str(&text).map_err(|error| self.0.unreadable_error(error))?;
        document
            .into_saved()
            .map_err(|error| self.0.unreadable_error(error))
    }

    /// Replaces the contents. Blocks until they are on disk.
    ///
    /// # Errors
    /// If writing fails; the old file is then unchanged.
    pub fn write(&self, saved: &SavedStops) -> io::Result<()> {
        self.0.write(|out| {
            Ok(serde_json::to_writer_pretty(
                out,
                &StopsDocument::from_saved(saved),
            )?)
        })
    }
}

/// The JSON document; times are milliseconds since 1970.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with the stops")]
struct StopsDocument {
    version: u32,
    next: u64,
    stops: Vec<StoredStop>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lifted: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object for each stop")]
struct StoredStop {
    id: u64,
    what: String,
    reason: String,
    since_ms: u64,
    until_ms: Option<u64>,
    /// The generation of the fleet's store that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    saved_in: Option<u64>,
}

impl StopsDocument {
    fn from_saved(saved: &SavedStops) -> Self {
        Self {
            version: VERSION,
            next: saved.next_id,
            stops: saved
                .stops
                .iter()
                .map(|stop| StoredStop {
                    saved_in: saved.saved_in.get(&stop.id).copied(),
                    ..StoredStop::from_stop(stop)
                })
                .collect(),
            lifted: saved.lifted.iter().map(|id| id.0).collect(),
        }
    }

    fn into_saved(self) -> Result<SavedStops, String> {
        if self.version != VERSION {
            return Err(format!(
                "it has version {}, and this program reads {VERSION}",
                self.version
            ));
        }
        let saved_in: BTreeMap<StopId, u64> = self
            .stops
            .iter()
            .filter_map(|stop| Some((StopId(stop.id), stop.saved_in?)))
            .collect();
        let mut stops = self
            .stops
            .into_iter()
            .map(StoredStop::into_stop)
            .collect::<Result<Vec<_>, _>>()?;
        stops.sort_by_key(|stop| stop.id);
        if let Some([first, _]) = stops.array_windows().find(|[a, b]| a.id == b.id) {
            return Err(format!("it contains stop {} twice", first.id));
        }
        // Other nodes number those that a store has.
        let own = stops
            .iter()
            .rev()
            .find(|stop| !saved_in.contains_key(&stop.id));
        let after = own.map_or(1, |stop| stop.id.0.saturating_add(1));
        Ok(SavedStops {
            next_id: self.next.max(after),
            saved_in,
            lifted: self.lifted.into_iter().map(StopId).collect(),
            stops,
        })
    }
}

impl StoredStop {
    fn from_stop(stop: &EmergencyStop) -> Self {
        Self {
            id: stop.id.0,
            what: stop.target.to_string(),
            reason: stop.reason.as_str().to_owned(),
            since_ms: saturating_millis(stop.since),
            until_ms: stop.until.map(saturating_millis),
            saved_in: None,
        }
    }

    fn into_stop(self) -> Result<EmergencyStop, String> {
        let id = self.id;
        Ok(EmergencyStop {
            id: StopId(id),
            target: StopTarget::parse(&self.what).map_err(|error| format!("stop {id}: {error}"))?,
            reason: StopReason::new(&self.reason).map_err(|error| format!("stop {id}: {error}"))?,
            since: Duration::from_millis(self.since_ms),
            until: self.until_ms.map(Duration::from_millis),
        })
    }
}

fn saturating_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
