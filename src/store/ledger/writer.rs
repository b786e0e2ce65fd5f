//! The one thread that writes: it takes what was noted, gives events their numbers, and commits.
//!
//! When so much has gathered in memory that it is worth a pass over the tables, each commit takes a part of it along,
//! in the order of the keys; the journal is cut once the pass is through. A disk that fails is opened anew and tried
//! again every second; until then everything stays in memory, up to the queue's bound.

use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::vocab::crawl_status::CrawlStatus;

use super::Inner;
use super::disk::{Base, Commit, State};
use super::form;
use super::memory::{SHARDS, Slice};
use super::queue::{Batch, Left, Then};

/// Shards that one commit takes from memory into the tables.
const FOLDED_AT_ONCE: usize = 4;
/// A pass is worth it too when the journal has so many pages, though they tell of few URLs: each start reads it all.
const JOURNAL: u64 = 2_000;
/// How long a disk that fails is left alone.
const PAUSE: Duration = Duration::from_secs(1);
/// It is told of once in so many tries.
const TOLD: u64 = 60;
/// So often it is tried when the process is to end.
const LAST_TRIES: u64 = 3;

/// What the writer knows.
pub(super) struct Writer {
    inner: Arc<Inner>,
    base: Option<Base>,
    state: State,
    /// What is being written.
    batch: Batch,
    pass: Option<Pass>,
    /// The tables have what is in the journal before this page, if this batch is written.
    cut: u64,
    /// The journal begins here, or behind it.
    begins: u64,
    failures: u64,
}

/// A pass over the tables.
struct Pass {
    /// The shard that is next.
    shard: usize,
    /// What the journal has from this page on came later.
    began: u64,
}

impl Writer {
    pub(super) fn new(inner: Arc<Inner>, base: Base, state: State) -> Self {
        let batch = Batch::default();
        Self {
            inner,
            base: Some(base),
            state,
            batch,
            pass: None,
            cut: 0,
            begins: 0,
            failures: 0,
        }
    }

    /// Writes until it is told to end. Nobody waits for a writer that has gone, nor for one that broke down: what was
    /// written before can still be read then, until the end.
    pub(super) fn run(mut self) {
        let inner = Arc::clone(&self.inner);
        let worked = catch_unwind(AssertUnwindSafe(|| self.work()));
        inner.queue.close();
        if worked.is_err() {
            inner.broken();
            inner.queue.until_end();
        }
        inner.view.hide();
    }

    fn work(&mut self) {
        loop {
            let left = if self.pass.is_some() || self.cut > 0 {
                Left::Some
            } else {
                Left::Nothing
            };
            let (batch, then) = self.inner.queue.take(left);
            #[cfg(test)]
            if then == Then::Abandon {
                break;
            }
            self.batch.extend(batch);
            #[cfg(test)]
            self.inner.queue.panic_if_told();
            if !self.write() || then == Then::Finish {
                break;
            }
        }
    }

    /// Tries until it is written; false if it was given up.
    fn write(&mut self) -> bool {
        let mut last_tries = 0;
        loop {
            match self.turn() {
                Ok(()) => return true,
                Err(error) => self.failed(&error),
            }
            let then = self
                .inner
                .queue
                .pause(if last_tries == 0 { PAUSE } else { PAUSE / 4 });
            last_tries += u64::from(then != Then::GoOn);
            if last_tries > LAST_TRIES {
                let lost = self.batch.changes;
                tracing::error!(
                    lost,
                    "the ledger cannot be written; what it was last told is lost"
                );
                return false;
            }
        }
    }

    /// One commit.
    fn turn(&mut self) -> Result<(), redb::Error> {
        self.reopen()?;
        self.begin_pass();
        let slice = self.slice();
        let (first_page, pages) = (self.state.page, self.batch.pages.close());
        let state = next(
            &self.state,
            pages.len(),
            self.batch.events.len(),
            &self.batch.urls,
        );
        let commit = Commit {
            state: &state,
            pages,
            first_page,
            events: &self.batch.events,
            first_event: self.state.event,
            kept: &self.batch.kept,
            forget: self.batch.forget,
            slice: &slice,
            folded_before: self.cut,
        };
        if let Some(base) = &self.base {
            base.commit(&commit)?;
        }
        self.committed(state, slice)
    }

    /// Enough has gathered for a pass: it takes along what has come up to now, and this batch.
    fn begin_pass(&mut self) {
        self.inner.memory.make_room();
        let much = self.inner.memory.unfolded_bytes() > self.inner.unfolded_most;
        let worth_it = much || self.state.page.saturating_sub(self.begins) > JOURNAL;
        if self.pass.is_none() && self.cut == 0 && worth_it {
            self.pass = Some(Pass {
                shard: 0,
                began: self.state.page + 1,
            });
        }
    }

    fn slice(&self) -> Slice {
        let Some(pass) = &self.pass else {
            return Slice::default();
        };
        self.inner.memory.slice(
            pass.shard..(pass.shard + FOLDED_AT_ONCE).min(SHARDS),
            self.batch.upto,
        )
    }

    /// The disk has it: the readers see it, then memory lets go of it, and who waits is told.
    fn committed(&mut self, state: State, slice: Slice) -> Result<(), redb::Error> {
        self.state = state;
        self.cut = 0;
        let batch = take(&mut self.batch);
        if let Some(pass) = &mut self.pass {
            pass.shard += FOLDED_AT_ONCE;
        }
        // What was changed behind this batch was passed over, and is in the journal with the next one only.
        if let Some(pass) = self.pass.take_if(|pass| pass.shard >= SHARDS) {
            (self.cut, self.begins) = (pass.began, pass.began);
        }
        for event in &batch.events {
            self.inner.count_event(event.kind);
        }
        if self.failures > 0 {
            tracing::info!(failures = self.failures, "the ledger is written again");
            self.failures = 0;
        }
        self.inner.failing.store(false, Ordering::Relaxed);
        let shown = self
            .base
            .as_ref()
            .map_or(Ok(()), |base| self.inner.view.show(base));
        if shown.is_ok() {
            self.inner.memory.folded(slice);
        }
        self.batch.upto = batch.upto;
        self.inner.queue.done(batch);
        self.inner.told.send_replace(self.state.event);
        shown
    }

    fn failed(&mut self, error: &redb::Error) {
        if self.failures.is_multiple_of(TOLD) {
            tracing::error!(%error, "the ledger cannot be written; it is tried again every second");
        }
        self.failures += 1;
        self.inner.failing.store(true, Ordering::Relaxed);
        self.inner.failures.fetch_add(1, Ordering::Relaxed);
        // The database takes nothing more once an operation has failed. Opened anew it can be read, at least: a URL whose
        // record cannot is one that nobody knows.
        self.inner.view.hide();
        self.base = None;
        if let Err(error) = self.reopen() {
            tracing::debug!(%error, "the ledger cannot be opened anew yet");
        }
    }

    /// Opens what a failure has closed. The last commit may have reached the disk all the same.
    fn reopen(&mut self) -> Result<(), redb::Error> {
        if self.base.is_some() {
            return Ok(());
        }
        let opened = Base::open(&self.inner.place, self.inner.pages);
        let base = opened.map_err(|error| redb::StorageError::Corrupted(error.to_string()))?;
        let state = base.state()?;
        self.inner.view.show(&base)?;
        self.base = Some(base);
        if state.turn > self.state.turn {
            return self.committed(state, Slice::default());
        }
        Ok(())
    }
}

/// The numbers behind a batch.
fn next(state: &State, pages: usize, events: usize, urls: &[i64]) -> State {
    let mut next = state.clone();
    next.turn += 1;
    next.page += pages as u64;
    next.event += events as u64;
    for (status, by) in CrawlStatus::ALL
        .into_iter()
        .zip(urls)
        .filter(|(_, by)| **by != 0)
    {
        *next.urls.entry(form::number_of(status)).or_default() += by;
    }
    next
}
