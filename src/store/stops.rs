//! The stops on disk: `stops.json` in the store's directory, so that a restart lifts none.
//!
//! The file is written whole, beside the old one, and takes its place once it is on the disk: there is always an old one
//! or a new one. A file that cannot be read is an error, not an empty one: nothing that was stopped may go on by that.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::politeness::stops::{Stop, StopId, StopReason, Target};

use super::whole_file::{Lost, WholeFile};

pub use super::whole_file::Unreadable;

/// The name of the file.
const NAME: &str = "stops.json";
/// The form of the file.
const VERSION: u32 = 1;
/// The longest file that is read; 1,000 stops are a twentieth of it.
const LONGEST: u64 = 16 << 20;

/// Where the stops are kept.
#[derive(Debug)]
pub struct StopsFile(WholeFile);

/// What is in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The stops.
    pub stops: Vec<Stop>,
    /// The number of the next one.
    pub next: u64,
}

const LOST: Lost = Lost {
    what: "what is stopped",
    then: "everything that it stops goes on",
};

impl StopsFile {
    /// The file in this directory; neither need be there.
    pub fn in_directory(directory: &Path) -> Self {
        Self(WholeFile::new(directory, NAME, LONGEST, LOST))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// What it holds; nothing if it is not there.
    ///
    /// # Errors
    /// If it is there and cannot be read, or holds anything else than stops.
    pub fn read(&self) -> Result<Saved, Unreadable> {
        let Some(text) = self.0.read()? else {
            return Ok(Saved::default());
        };
        let document: Document =
            serde_json::from_str(&text).map_err(|error| self.0.unreadable(error))?;
        document.saved().map_err(|why| self.0.unreadable(why))
    }

    /// Puts this in its place. Blocks until it is on the disk.
    ///
    /// # Errors
    /// If that fails; the old file stands as it did.
    pub fn write(&self, saved: &Saved) -> io::Result<()> {
        self.0
            .write(|out| Ok(serde_json::to_writer_pretty(out, &Document::of(saved))?))
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
    fn of(saved: &Saved) -> Self {
        Self {
            version: VERSION,
            next: saved.next,
            stops: saved.stops.iter().map(Line::of).collect(),
        }
    }

    fn saved(self) -> Result<Saved, String> {
        if self.version != VERSION {
            return Err(format!(
                "it has version {}, and this program reads {VERSION}",
                self.version
            ));
        }
        let mut stops = self
            .stops
            .into_iter()
            .map(Line::stop)
            .collect::<Result<Vec<_>, _>>()?;
        stops.sort_by_key(|stop| stop.id);
        if let Some([first, _]) = stops.array_windows().find(|[a, b]| a.id == b.id) {
            return Err(format!("stop {} stands in it twice", first.id));
        }
        let after = stops.last().map_or(1, |stop| stop.id.0.saturating_add(1));
        Ok(Saved {
            next: self.next.max(after),
            stops,
        })
    }
}

impl Line {
    fn of(stop: &Stop) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            id: stop.id.0,
            what: stop.target.to_string(),
            reason: stop.reason.as_str().to_owned(),
            since_ms: ms(stop.since),
            until_ms: stop.until.map(ms),
        }
    }

    fn stop(self) -> Result<Stop, String> {
        let wrong = |why: &dyn fmt::Display| format!("stop {}: {why}", self.id);
        Ok(Stop {
            id: StopId(self.id),
            target: Target::parse(&self.what).map_err(|error| wrong(&error))?,
            reason: StopReason::new(&self.reason).map_err(|error| wrong(&error))?,
            since: Duration::from_millis(self.since_ms),
            until: self.until_ms.map(Duration::from_millis),
        })
    }
}
