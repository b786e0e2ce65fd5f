//! The writer thread: it takes batches from the queue, numbers their events, and commits them.
//!
//! When enough has gathered in memory for a compaction, each commit moves a part of it into the tables, in
//! key order; the journal is truncated once the compaction is complete. If the disk fails, the database is
//! reopened and the commit is tried again every second; until then everything stays in memory, up to the
//! queue's limit.

use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::ledger::code::OmnifindCode;
use crate::ledger::event::LedgerEvent;
use crate::ledger::removal::RemovalCauseKind;
use crate::model::crawl_status::CrawlStatus;

use super::LedgerInner;
use super::codec;
use super::database::{LedgerCommit, LedgerDatabase, LedgerWriterState};
use super::memtable::{MemtableSlice, SHARD_COUNT};
use super::queue::{RemainingWork, UrlCounts, WriteBatch, WriterCommand};
use super::removals::PendingCounts;

/// The number of shards that one commit moves from memory into the tables.
const SHARDS_PER_COMMIT: usize = 4;
/// A journal of this many pages also starts a compaction, even if they concern few URLs: each start
/// reads all of it.
const MAX_JOURNAL_PAGES: u64 = 2_000;
/// The delay before a failing disk is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Only one failure in this many is logged.
const REPORT_EVERY: u64 = 60;
/// The maximum number of tries while the process is shutting down.
const SHUTDOWN_TRIES: u64 = 3;

/// The writer's state.
pub(super) struct LedgerWriter {
    inner: Arc<LedgerInner>,
    database: Option<LedgerDatabase>,
    state: LedgerWriterState,
    /// The batch that is being written.
    batch: WriteBatch,
    compaction: Option<LedgerCompaction>,
    /// The tables contain everything in the journal before this page, once this batch is written.
    truncate_before: u64,
    /// The first page of the journal, or one before it.
    journal_start: u64,
    failures: u64,
}

/// A pass that moves records from memory into the tables.
struct LedgerCompaction {
    /// The shard that is next.
    next_shard: usize,
    /// Journal pages from this one on were written after the compaction began.
    started_at_page: u64,
}

impl LedgerWriter {
    pub(super) fn new(
        inner: Arc<LedgerInner>,
        database: LedgerDatabase,
        state: LedgerWriterState,
    ) -> Self {
        let batch = WriteBatch::default();
        Self {
            inner,
            database: Some(database),
            state,
            batch,
            compaction: None,
            truncate_before: 0,
            journal_start: 0,
            failures: 0,
        }
    }

    /// Writes until it receives a command to end. Nothing waits for a writer that has ended. After a
    /// panic, written records can still be read until the ledger is closed.
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
            let remaining = if self.compaction.is_some() || self.truncate_before > 0 {
                RemainingWork::Some
            } else {
                RemainingWork::Nothing
            };
            let (batch, command) = self.inner.queue.take_batch(remaining);
            #[cfg(test)]
            if command == WriterCommand::Abandon {
                break;
            }
            self.batch.extend(batch);
            #[cfg(test)]
            self.inner.queue.panic_if_requested();
            if !self.write_with_retries() || command == WriterCommand::Finish {
                break;
            }
        }
    }

    /// Commits the batch, and retries until it is written; returns `false` if it gave up.
    fn write_with_retries(&mut self) -> bool {
        let mut last_tries = 0;
        loop {
            match self.commit_batch() {
                Ok(()) => return true,
                Err(error) => self.record_failure(&error),
            }
            let command = self.inner.queue.wait_before_retry(if last_tries == 0 {
                RETRY_DELAY
            } else {
                RETRY_DELAY / 4
            });
            last_tries += u64::from(command != WriterCommand::Continue);
            if last_tries > SHUTDOWN_TRIES {
                let lost = self.batch.changes;
                tracing::error!(
                    lost,
                    "the ledger cannot be written; the last changes are lost"
                );
                return false;
            }
        }
    }

    /// Commits the batch once.
    fn commit_batch(&mut self) -> Result<(), redb::Error> {
        self.reopen()?;
        self.begin_compaction();
        let slice = self.next_slice();
        let first_page = self.state.page;
        let pages = self.batch.pages.finish();
        let state = next_state(
            &self.state,
            pages.len(),
            &self.batch.events,
            &self.batch.urls,
            &self.batch.removals.pending,
        );
        let commit = LedgerCommit {
            state: &state,
            pages,
            first_page,
            events: &self.batch.events,
            first_event: self.state.event,
            values: &self.batch.values,
            removals: &self.batch.removals,
            cutoff: self.batch.cutoff,
            slice: &slice,
            flushed_before: self.truncate_before,
        };
        if let Some(database) = &self.database {
            database.commit(&commit)?;
        }
        self.finish_commit(state, slice)
    }

    /// Starts a compaction if enough has gathered. It covers everything recorded so far, including this
    /// batch.
    fn begin_compaction(&mut self) {
        self.inner.memtable.prepare_filter();
        let much = self.inner.memtable.unflushed_bytes() > self.inner.max_unflushed_bytes;
        let is_worthwhile =
            much || self.state.page.saturating_sub(self.journal_start) > MAX_JOURNAL_PAGES;
        if self.compaction.is_none() && self.truncate_before == 0 && is_worthwhile {
            self.compaction = Some(LedgerCompaction {
                next_shard: 0,
                started_at_page: self.state.page + 1,
            });
        }
    }

    fn next_slice(&self) -> MemtableSlice {
        let Some(compaction) = &self.compaction else {
            return MemtableSlice::default();
        };
        self.inner.memtable.unflushed_slice(
            compaction.next_shard..(compaction.next_shard + SHARDS_PER_COMMIT).min(SHARD_COUNT),
            self.batch.last_change,
        )
    }

    /// Finishes a commit that is on disk: publishes it to readers, then releases the memory, then
    /// notifies waiters.
    fn finish_commit(
        &mut self,
        state: LedgerWriterState,
        slice: MemtableSlice,
    ) -> Result<(), redb::Error> {
        self.state = state;
        self.truncate_before = 0;
        let batch = take(&mut self.batch);
        if let Some(compaction) = &mut self.compaction {
            compaction.next_shard += SHARDS_PER_COMMIT;
        }
        // Changes after this batch were skipped; they are in the journal with the next batch.
        if let Some(compaction) = self
            .compaction
            .take_if(|compaction| compaction.next_shard >= SHARD_COUNT)
        {
            self.truncate_before = compaction.started_at_page;
            self.journal_start = compaction.started_at_page;
        }
        for event in &batch.events {
            self.inner.count_event(event.kind);
        }
        if self.failures > 0 {
            tracing::info!(failures = self.failures, "the ledger can be written again");
            self.failures = 0;
        }
        self.inner.failing.store(false, Ordering::Relaxed);
        let shown = self
            .database
            .as_ref()
            .map_or(Ok(()), |database| self.inner.view.publish(database));
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
            tracing::error!(%error, "the ledger cannot be written; retrying every second");
        }
        self.failures += 1;
        self.inner.failing.store(true, Ordering::Relaxed);
        self.inner.failures.fetch_add(1, Ordering::Relaxed);
        // The database accepts no operation after a failure. Once reopened it can at least be read; a URL
        // whose record is unreadable would look new.
        self.inner.view.clear();
        self.database = None;
        if let Err(error) = self.reopen() {
            tracing::debug!(%error, "the ledger cannot be reopened yet");
        }
    }

    /// Reopens the database after a failure. The last commit may have reached the disk nevertheless.
    fn reopen(&mut self) -> Result<(), redb::Error> {
        if self.database.is_some() {
            return Ok(());
        }
        let opened = LedgerDatabase::open(&self.inner.location, self.inner.page_cache_bytes);
        let database = opened.map_err(|error| redb::StorageError::Corrupted(error.to_string()))?;
        let state = database.writer_state()?;
        self.inner.view.publish(&database)?;
        self.database = Some(database);
        if state.turn > self.state.turn {
            return self.finish_commit(state, MemtableSlice::default());
        }
        Ok(())
    }
}

/// Returns the writer's state after a batch.
fn next_state(
    state: &LedgerWriterState,
    pages: usize,
    events: &[LedgerEvent],
    urls: &UrlCounts,
    pending: &PendingCounts,
) -> LedgerWriterState {
    let mut next = state.clone();
    next.turn += 1;
    next.page += pages as u64;
    next.event += events.len() as u64;
    for event in events {
        *next
            .events
            .entry(codec::event::kind_number(event.kind))
            .or_default() += 1;
    }
    for (status, by) in CrawlStatus::ALL
        .into_iter()
        .zip(urls.by_status)
        .filter(|(_, by)| *by != 0)
    {
        *next.urls.entry(codec::status_number(status)).or_default() += by;
    }
    for (code, by) in OmnifindCode::ALL
        .into_iter()
        .zip(urls.by_code)
        .filter(|(_, by)| *by != 0)
    {
        *next.codes.entry(code.number().into()).or_default() += by;
    }
    for (kind, by) in RemovalCauseKind::ALL.into_iter().zip(pending) {
        *next
            .pending
            .entry(codec::removal::kind_number(kind))
            .or_default() += by;
    }
    next.pending.retain(|_, count| *count != 0);
    next
}
