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

use crate::model::crawl_status::CrawlStatus;

use super::LedgerInner;
use super::codec;
use super::database::{LedgerCommit, LedgerDatabase, LedgerWriterState};
use super::memtable::{MemtableSlice, SHARD_COUNT};
use super::queue::{RemainingWork, WriteBatch, WriterCommand};

/// Shards that one commit takes from memory into the tables.
const SHARDS_PER_COMMIT: usize = 4;
/// A pass is worth it too when the journal has so many pages, though they tell of few URLs: each start reads it all.
const MAX_JOURNAL_PAGES: u64 = 2_000;
/// How long a disk that fails is left alone.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// It is told of once in so many tries.
const REPORT_EVERY: u64 = 60;
/// So often it is tried when the process is to end.
const SHUTDOWN_TRIES: u64 = 3;

/// What the writer knows.
pub(super) struct LedgerWriter {
    inner: Arc<LedgerInner>,
    database: Option<LedgerDatabase>,
    state: LedgerWriterState,
    /// What is being written.
    batch: WriteBatch,
    compaction: Option<LedgerCompaction>,
    /// The tables have what is in the journal before this page, if this batch is written.
    truncate_before: u64,
    /// The journal begins here, or behind it.
    journal_start: u64,
    failures: u64,
}

/// A pass over the tables.
struct LedgerCompaction {
    /// The shard that is next.
    next_shard: usize,
    /// What the journal has from this page on came later.
    started_at_page: u64,
}

impl LedgerWriter {
    pub(super) fn new(
        inner: Arc<LedgerInner>,
        base: LedgerDatabase,
        state: LedgerWriterState,
    ) -> Self {
        let batch = WriteBatch::default();
        Self {
            inner,
            database: Some(base),
            state,
            batch,
            compaction: None,
            truncate_before: 0,
            journal_start: 0,
            failures: 0,
        }
    }

    /// Writes until it is told to end. Nobody waits for a writer that has gone, nor for one that broke down: what was
    /// written before can still be read then, until the end.
    pub(super) fn run(mut self) {
        let inner = Arc::clone(&self.inner);
        let worked = catch_unwind(AssertUnwindSafe(|| self.write_batches()));
        inner.queue.close();
        if worked.is_err() {
            inner.record_writer_panic();
            inner.queue.wait_for_end();
        }
        inner.view.clear();
    }

    fn write_batches(&mut self) {
        loop {
            let left = if self.compaction.is_some() || self.truncate_before > 0 {
                RemainingWork::Some
            } else {
                RemainingWork::Nothing
            };
            let (batch, then) = self.inner.queue.take_batch(left);
            #[cfg(test)]
            if then == WriterCommand::Abandon {
                break;
            }
            self.batch.extend(batch);
            #[cfg(test)]
            self.inner.queue.panic_if_requested();
            if !self.write_with_retries() || then == WriterCommand::Finish {
                break;
            }
        }
    }

    /// Tries until it is written; false if it was given up.
    fn write_with_retries(&mut self) -> bool {
        let mut last_tries = 0;
        loop {
            match self.commit_batch() {
                Ok(()) => return true,
                Err(error) => self.record_failure(&error),
            }
            let then = self.inner.queue.wait_before_retry(if last_tries == 0 {
                RETRY_DELAY
            } else {
                RETRY_DELAY / 4
            });
            last_tries += u64::from(then != WriterCommand::Continue);
            if last_tries > SHUTDOWN_TRIES {
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
    fn commit_batch(&mut self) -> Result<(), redb::Error> {
        self.reopen()?;
        self.begin_compaction();
        let slice = self.next_slice();
        let (first_page, pages) = (self.state.page, self.batch.pages.finish());
        let state = next_state(
            &self.state,
            pages.len(),
            self.batch.events.len(),
            &self.batch.urls,
        );
        let commit = LedgerCommit {
            state: &state,
            pages,
            first_page,
            events: &self.batch.events,
            first_event: self.state.event,
            values: &self.batch.values,
            cutoff: self.batch.cutoff,
            slice: &slice,
            flushed_before: self.truncate_before,
        };
        if let Some(base) = &self.database {
            base.commit(&commit)?;
        }
        self.finish_commit(state, slice)
    }

    /// Enough has gathered for a pass: it takes along what has come up to now, and this batch.
    fn begin_compaction(&mut self) {
        self.inner.memtable.prepare_filter();
        let much = self.inner.memtable.unflushed_bytes() > self.inner.max_unflushed_bytes;
        let worth_it =
            much || self.state.page.saturating_sub(self.journal_start) > MAX_JOURNAL_PAGES;
        if self.compaction.is_none() && self.truncate_before == 0 && worth_it {
            self.compaction = Some(LedgerCompaction {
                next_shard: 0,
                started_at_page: self.state.page + 1,
            });
        }
    }

    fn next_slice(&self) -> MemtableSlice {
        let Some(pass) = &self.compaction else {
            return MemtableSlice::default();
        };
        self.inner.memtable.unflushed_slice(
            pass.next_shard..(pass.next_shard + SHARDS_PER_COMMIT).min(SHARD_COUNT),
            self.batch.last_change,
        )
    }

    /// The disk has it: the readers see it, then memory lets go of it, and who waits is told.
    fn finish_commit(
        &mut self,
        state: LedgerWriterState,
        slice: MemtableSlice,
    ) -> Result<(), redb::Error> {
        self.state = state;
        self.truncate_before = 0;
        let batch = take(&mut self.batch);
        if let Some(pass) = &mut self.compaction {
            pass.next_shard += SHARDS_PER_COMMIT;
        }
        // What was changed behind this batch was passed over, and is in the journal with the next one only.
        if let Some(pass) = self
            .compaction
            .take_if(|pass| pass.next_shard >= SHARD_COUNT)
        {
            (self.truncate_before, self.journal_start) =
                (pass.started_at_page, pass.started_at_page);
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
            .database
            .as_ref()
            .map_or(Ok(()), |base| self.inner.view.publish(base));
        if shown.is_ok() {
            self.inner.memtable.mark_flushed(slice);
        }
        self.batch.last_change = batch.last_change;
        self.inner.queue.complete(batch);
        self.inner.last_event.send_replace(self.state.event);
        shown
    }

    fn record_failure(&mut self, error: &redb::Error) {
        if self.failures.is_multiple_of(REPORT_EVERY) {
            tracing::error!(%error, "the ledger cannot be written; it is tried again every second");
        }
        self.failures += 1;
        self.inner.failing.store(true, Ordering::Relaxed);
        self.inner.failures.fetch_add(1, Ordering::Relaxed);
        // The database takes nothing more once an operation has failed. Opened anew it can be read, at least: a URL whose
        // record cannot is one that nobody knows.
        self.inner.view.clear();
        self.database = None;
        if let Err(error) = self.reopen() {
            tracing::debug!(%error, "the ledger cannot be opened anew yet");
        }
    }

    /// Opens what a failure has closed. The last commit may have reached the disk all the same.
    fn reopen(&mut self) -> Result<(), redb::Error> {
        if self.database.is_some() {
            return Ok(());
        }
        let opened = LedgerDatabase::open(&self.inner.location, self.inner.page_cache_bytes);
        let base = opened.map_err(|error| redb::StorageError::Corrupted(error.to_string()))?;
        let state = base.writer_state()?;
        self.inner.view.publish(&base)?;
        self.database = Some(base);
        if state.turn > self.state.turn {
            return self.finish_commit(state, MemtableSlice::default());
        }
        Ok(())
    }
}

/// The numbers behind a batch.
fn next_state(
    state: &LedgerWriterState,
    pages: usize,
    events: usize,
    urls: &[i64],
) -> LedgerWriterState {
    let mut next = state.clone();
    next.turn += 1;
    next.page += pages as u64;
    next.event += events as u64;
    for (status, by) in CrawlStatus::ALL
        .into_iter()
        .zip(urls)
        .filter(|(_, by)| **by != 0)
    {
        *next.urls.entry(codec::status_number(status)).or_default() += by;
    }
    next
}
