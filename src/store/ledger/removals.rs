//! Pending removals: an index of them by cause and time, and the number of removals that each account has ordered.
//!
//! Both are written in the commit that contains the change of the record, so that neither differs from the records
//! after a crash.

use std::collections::BTreeMap;

use crate::ledger::key::LedgerKey;
use crate::ledger::record::{LedgerRecord, UnixMillis};
use crate::ledger::removal::{
    PendingRemoval, REMOVAL_WINDOW, RemovalAccount, RemovalCause, RemovalCauseKind,
};

use super::{Ledger, LedgerUnavailable};

/// The number of pending removals of each kind.
pub(super) type PendingCounts = [i64; RemovalCauseKind::ALL.len()];

const HOUR_MILLIS: u64 = 3_600_000;

/// The key of a pending removal in the index: the cause, the time, and the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PendingRowKey(pub(super) [u8; 40]);

impl PendingRowKey {
    pub(super) fn new(cause: LedgerKey, since: UnixMillis, key: LedgerKey) -> Self {
        let mut row = [0; 40];
        let parts = cause
            .0
            .into_iter()
            .chain(since.0.to_be_bytes())
            .chain(key.0);
        row.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        Self(row)
    }

    /// Returns the last possible key of a cause.
    pub(super) fn last_of(cause: LedgerKey) -> Self {
        Self::new(cause, UnixMillis(u64::MAX), LedgerKey([u8::MAX; 16]))
    }

    /// Returns the parts of the key.
    pub(super) fn parts(&self) -> (LedgerKey, UnixMillis, LedgerKey) {
        let (cause, rest) = self.0.split_first_chunk().unwrap_or((&[0; 16], &[]));
        let (since, rest) = rest.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let key = rest.try_into().unwrap_or_default();
        (
            LedgerKey(*cause),
            UnixMillis(u64::from_be_bytes(*since)),
            LedgerKey(key),
        )
    }
}

/// The key of the number of removals that an account ordered within one hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OrderedRowKey(pub(super) [u8; 24]);

impl OrderedRowKey {
    pub(super) fn new(account: LedgerKey, hour: u64) -> Self {
        let mut row = [0; 24];
        let parts = account.0.into_iter().chain(hour.to_be_bytes());
        row.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        Self(row)
    }

    pub(super) fn hour(&self) -> u64 {
        self.0
            .last_chunk()
            .map_or(0, |hour| u64::from_be_bytes(*hour))
    }
}

/// Returns the hour of a time, in hours since the Unix epoch.
pub(super) fn hour_of(at: UnixMillis) -> u64 {
    at.0 / HOUR_MILLIS
}

/// Returns the first hour that belongs to the window that ends now.
pub(super) fn first_hour(now: UnixMillis) -> u64 {
    hour_of(now).saturating_sub(REMOVAL_WINDOW.as_secs() / 3_600)
}

/// The effect of an observation on removals.
#[derive(Debug, Default)]
pub(super) struct RemovalChanges {
    /// The pending removal before the change, if it differs from the one after it.
    before: Option<(PendingRowKey, RemovalCauseKind)>,
    after: Option<(PendingRowKey, RemovalCauseKind, String)>,
    /// The removal that was ordered and counts.
    ordered: Option<OrderedRowKey>,
}

impl RemovalChanges {
    pub(super) fn new(
        key: LedgerKey,
        before: Option<&LedgerRecord>,
        after: Option<&LedgerRecord>,
        ordered: Option<(RemovalAccount, UnixMillis)>,
    ) -> Self {
        let before = before.and_then(|record| record.pending_removal.as_deref());
        let after = after.and_then(|record| record.pending_removal.as_deref());
        let ordered = ordered.map(|(account, at)| {
            OrderedRowKey::new(LedgerKey::for_removals(&account.to_string()), hour_of(at))
        });
        if before == after {
            return Self {
                ordered,
                ..Self::default()
            };
        }
        Self {
            before: before.and_then(|pending| Some((row_key(pending, key), kind_of(pending)?))),
            after: after.and_then(|pending| {
                let cause = pending.cause.to_string();
                Some((row_key(pending, key), kind_of(pending)?, cause))
            }),
            ordered,
        }
    }
}

pub(super) fn row_key(pending: &PendingRemoval, key: LedgerKey) -> PendingRowKey {
    let cause = LedgerKey::for_removals(&pending.cause.to_string());
    PendingRowKey::new(cause, pending.since, key)
}

fn kind_of(pending: &PendingRemoval) -> Option<RemovalCauseKind> {
    pending.cause.account().map(|account| account.kind())
}

/// The changes of a batch to removals.
#[derive(Debug, Default)]
pub(super) struct RemovalBatch {
    /// Rows of the index to write, with the text of the cause, or to delete.
    pub(super) rows: BTreeMap<PendingRowKey, Option<String>>,
    /// The number of ordered removals to add.
    pub(super) ordered: BTreeMap<OrderedRowKey, u64>,
    /// The changes in the number of pending removals of each kind.
    pub(super) pending: PendingCounts,
}

impl RemovalBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.ordered.is_empty()
    }

    pub(super) fn push(&mut self, changes: RemovalChanges) {
        if let Some((row, kind)) = changes.before {
            self.rows.insert(row, None);
            self.add(kind, -1);
        }
        if let Some((row, kind, cause)) = changes.after {
            self.rows.insert(row, Some(cause));
            self.add(kind, 1);
        }
        if let Some(row) = changes.ordered {
            *self.ordered.entry(row).or_default() += 1;
        }
    }

    /// Appends a later batch.
    pub(super) fn append(&mut self, mut later: Self) {
        self.rows.append(&mut later.rows);
        for (row, count) in later.ordered {
            *self.ordered.entry(row).or_default() += count;
        }
        for (count, delta) in self.pending.iter_mut().zip(later.pending) {
            *count += delta;
        }
    }

    fn add(&mut self, kind: RemovalCauseKind, delta: i64) {
        for (other, count) in RemovalCauseKind::ALL.into_iter().zip(&mut self.pending) {
            *count += if other == kind { delta } else { 0 };
        }
    }
}

/// A cause with pending removals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCause {
    pub cause: RemovalCause,
    /// The time of the oldest pending removal.
    pub oldest: UnixMillis,
}

/// A pending removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingUrl {
    pub since: UnixMillis,
    pub key: LedgerKey,
}

impl Ledger {
    /// Returns `true` if a removal is pending.
    pub fn has_pending_removals(&self) -> bool {
        self.inner()
            .queue
            .pending_removals()
            .iter()
            .any(|count| *count > 0)
    }

    /// Returns the causes of pending removals that are on disk. Blocks.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn pending_causes(&self) -> Result<Vec<PendingCause>, LedgerUnavailable> {
        self.inner().view.pending_causes()
    }

    /// Returns pending removals of a cause that are on disk, oldest first: those since `upto` or earlier that follow
    /// `after`. Blocks.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn pending_removals(
        &self,
        cause: &RemovalCause,
        upto: UnixMillis,
        after: Option<PendingUrl>,
        most: usize,
    ) -> Result<Vec<PendingUrl>, LedgerUnavailable> {
        let cause = LedgerKey::for_removals(&cause.to_string());
        let after = after.map(|after| PendingRowKey::new(cause, after.since, after.key));
        self.inner().view.pending_removals(cause, upto, after, most)
    }

    /// Returns the number of pending removals of a cause that are on disk. Blocks.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn count_pending_removals(&self, cause: &RemovalCause) -> Result<u64, LedgerUnavailable> {
        let cause = LedgerKey::for_removals(&cause.to_string());
        self.inner().view.count_pending_removals(cause)
    }

    /// Returns the number of removals that an account has ordered within the last 24 hours, rounded up to whole hours:
    /// those on disk. Blocks.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn ordered_removals(
        &self,
        account: &RemovalAccount,
        now: UnixMillis,
    ) -> Result<u64, LedgerUnavailable> {
        let account = LedgerKey::for_removals(&account.to_string());
        self.inner().view.ordered_removals(account, first_hour(now))
    }

    /// Deletes an entry of the index, unless the record has it: an earlier version of the program, which has no index,
    /// has written the record meanwhile.
    pub fn delete_stale_entry(&self, cause: &RemovalCause, entry: PendingUrl) {
        let cause = LedgerKey::for_removals(&cause.to_string());
        let row = PendingRowKey::new(cause, entry.since, entry.key);
        self.inner().delete_stale_entry(entry.key, row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_parts_and_order() {
        let cause = LedgerKey([7; 16]);
        let key = LedgerKey([9; 16]);
        let row = PendingRowKey::new(cause, UnixMillis(256), key);
        assert_eq!(row.parts(), (cause, UnixMillis(256), key));
        assert!(PendingRowKey::new(cause, UnixMillis(255), LedgerKey([255; 16])) < row);
        assert!(row < PendingRowKey::last_of(cause));
        assert_eq!(OrderedRowKey::new(cause, 500_000).hour(), 500_000);
        let now = UnixMillis(50 * HOUR_MILLIS + 1);
        assert_eq!((hour_of(now), first_hour(now)), (50, 26));
    }
}
