//! The stops on disk: `stops.json` in the store's directory, so that a restart lifts none.
//!
//! The file is written whole, beside the old one, and takes its place once it is on the disk: there is always an old one
//! or a new one. A file that cannot be read is an error, not an empty one: nothing that was stopped may go on by that.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::pacing::stops::{EmergencyStop, StopId, StopReason, StopTarget};

use super::atomic_file::{AtomicFile, RecoveryHint};

pub use super::atomic_file::UnreadableFile;

/// The name of the file.
const FILE_NAME: &str = "stops.json";
/// The form of the file.
const VERSION: u32 = 1;
/// The longest file that is read; 1,000 stops are a twentieth of it.
const MAX_BYTES: u64 = 16 << 20;

/// Where the stops are kept.
#[derive(Debug)]
pub struct StopsFile(AtomicFile);

/// What is in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedStops {
    /// The stops.
    pub stops: Vec<EmergencyStop>,
    /// The number of the next one.
    pub next_id: u64,
}

const RECOVERY: RecoveryHint = RecoveryHint {
    contents: "what is stopped",
    consequence: "everything that it stops goes on",
};

impl StopsFile {
    /// The file in this directory; neither need be there.
    pub fn in_directory(directory: &Path) -> Self {
        Self(AtomicFile::new(directory, FILE_NAME, MAX_BYTES, RECOVERY))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// What it holds; nothing if it is not there.
    ///
    /// # Errors
    /// If it is there and cannot be read, or holds anything else than stops.
    pub fn read(&self) -> Result<SavedStops, UnreadableFile> {
        let Some(text) = self.0.read()? else {
            return Ok(SavedStops::default());
        };
        let document: Document =
            serde_json::from_str(&text).map_err(|error| self.0.unreadable_error(error))?;
        document
            .into_saved()
            .map_err(|why| self.0.unreadable_error(why))
    }

    /// Puts this in its place. Blocks until it is on the disk.
    ///
    /// # Errors
    /// If that fails; the old file stands as it did.
    pub fn write(&self, saved: &SavedStops) -> io::Result<()> {
        self.0.write(|out| {
            Ok(serde_json::to_writer_pretty(
                out,
                &Document::from_saved(saved),
            )?)
        })
    }
}

/// The text of the file; times are milliseconds since 1970.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    next: u64,
    stops: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: u64,
    what: String,
    reason: String,
    since_ms: u64,
    until_ms: Option<u64>,
}

impl Document {
    fn from_saved(saved: &SavedStops) -> Self {
        Self {
            version: VERSION,
            next: saved.next_id,
            stops: saved.stops.iter().map(Line::from_stop).collect(),
        }
    }

    fn into_saved(self) -> Result<SavedStops, String> {
        if self.version != VERSION {
            return Err(format!(
                "it has version {}, and this program reads {VERSION}",
                self.version
            ));
        }
        let mut stops = self
            .stops
            .into_iter()
            .map(Line::into_stop)
            .collect::<Result<Vec<_>, _>>()?;
        stops.sort_by_key(|stop| stop.id);
        if let Some([first, _]) = stops.array_windows().find(|[a, b]| a.id == b.id) {
            return Err(format!("stop {} stands in it twice", first.id));
        }
        let after = stops.last().map_or(1, |stop| stop.id.0.saturating_add(1));
        Ok(SavedStops {
            next_id: self.next.max(after),
            stops,
        })
    }
}

impl Line {
    fn from_stop(stop: &EmergencyStop) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            id: stop.id.0,
            what: stop.target.to_string(),
            reason: stop.reason.as_str().to_owned(),
            since_ms: ms(stop.since),
            until_ms: stop.until.map(ms),
        }
    }

    fn into_stop(self) -> Result<EmergencyStop, String> {
        let wrong = |why: &dyn fmt::Display| format!("stop {}: {why}", self.id);
        Ok(EmergencyStop {
            id: StopId(self.id),
            target: StopTarget::parse(&self.what).map_err(|error| wrong(&error))?,
            reason: StopReason::new(&self.reason).map_err(|error| wrong(&error))?,
            since: Duration::from_millis(self.since_ms),
            until: self.until_ms.map(Duration::from_millis),
        })
    }
}
