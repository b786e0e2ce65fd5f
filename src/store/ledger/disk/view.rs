//! The tables as they were last committed, for whoever reads.

use std::ops::Bound;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use redb::{ReadOnlyTable, ReadableDatabase as _};

use crate::ledger::event::Event;
use crate::ledger::key::Key;
use crate::store::ledger::form::record::Entry;
use crate::store::ledger::form::{event, record};

use super::{Base, CONTENTS, EVENTS, Failed, META, RECORDS, kept_name};

/// The tables as they were last committed, for whoever reads. None while the disk fails.
#[derive(Default)]
pub(in crate::store::ledger) struct View(ArcSwapOption<Tables>);

struct Tables {
    records: ReadOnlyTable<&'static [u8; 16], &'static [u8]>,
    contents: ReadOnlyTable<&'static [u8; 16], &'static [u8; 16]>,
    events: ReadOnlyTable<u64, &'static [u8]>,
    meta: ReadOnlyTable<&'static str, &'static [u8]>,
}

impl View {
    /// Shows what was committed last.
    pub(in crate::store::ledger) fn show(&self, base: &Base) -> Result<(), redb::Error> {
        let read = base.0.begin_read()?;
        self.0.store(Some(Arc::new(Tables {
            records: read.open_table(RECORDS)?,
            contents: read.open_table(CONTENTS)?,
            events: read.open_table(EVENTS)?,
            meta: read.open_table(META)?,
        })));
        Ok(())
    }

    /// Shows nothing any more; the file is free once its writer has gone.
    pub(in crate::store::ledger) fn hide(&self) {
        self.0.store(None);
    }

    /// A record in its written form.
    pub(in crate::store::ledger) fn record(&self, key: Key) -> Result<Option<Vec<u8>>, Failed> {
        let tables = self.0.load();
        let row = tables
            .as_ref()
            .ok_or(Failed)?
            .records
            .get(&key.0)
            .map_err(|_| Failed)?;
        Ok(row.map(|row| row.value().to_vec()))
    }

    pub(in crate::store::ledger) fn content(&self, content: Key) -> Result<Option<Key>, Failed> {
        let tables = self.0.load();
        let row = tables
            .as_ref()
            .ok_or(Failed)?
            .contents
            .get(&content.0)
            .map_err(|_| Failed)?;
        Ok(row.map(|row| Key(*row.value())))
    }

    pub(in crate::store::ledger) fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, Failed> {
        let tables = self.0.load();
        let row = tables
            .as_ref()
            .ok_or(Failed)?
            .meta
            .get(kept_name(name).as_str())
            .map_err(|_| Failed)?;
        Ok(row.map(|row| row.value().to_vec()))
    }

    /// Keys behind this one, in their order.
    pub(in crate::store::ledger) fn keys(
        &self,
        after: Option<Key>,
        most: usize,
    ) -> Result<Vec<Key>, Failed> {
        let tables = self.0.load_full().ok_or(Failed)?;
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.0));
        let from = (from.as_ref(), Bound::Unbounded);
        let rows = tables
            .records
            .range::<&[u8; 16]>(from)
            .map_err(|_| Failed)?;
        rows.take(most)
            .map(|row| row.map(|(key, _)| Key(*key.value())).map_err(|_| Failed))
            .collect()
    }

    /// Records behind this key, in the order of the keys.
    pub(in crate::store::ledger) fn behind(
        &self,
        after: Option<Key>,
        most: usize,
    ) -> Result<Vec<(Key, Entry)>, Failed> {
        let tables = self.0.load_full().ok_or(Failed)?;
        let mut found = Vec::new();
        let from = after.map_or([0; 16], |key| key.0);
        for row in tables
            .records
            .range::<&[u8; 16]>(&from..)
            .map_err(|_| Failed)?
        {
            let (key, bytes) = row.map_err(|_| Failed)?;
            let key = Key(*key.value());
            if Some(key) == after {
                continue;
            }
            found.extend(record::read(bytes.value()).map(|entry| (key, entry)));
            if found.len() >= most {
                break;
            }
        }
        Ok(found)
    }

    /// Events behind this number, in their order.
    pub(in crate::store::ledger) fn events(
        &self,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, Event)>, Failed> {
        let tables = self.0.load_full().ok_or(Failed)?;
        let rows = tables
            .events
            .range(after.saturating_add(1)..)
            .map_err(|_| Failed)?;
        let mut found = Vec::new();
        for row in rows {
            if found.len() >= most {
                break;
            }
            let (number, bytes) = row.map_err(|_| Failed)?;
            found.extend(event::read(bytes.value()).map(|event| (number.value(), event)));
        }
        Ok(found)
    }
}
