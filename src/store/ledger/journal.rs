//! The journal: changes in the order in which they were made, in pages of about [`PAGE_BYTES`] bytes.
//!
//! A page is a protobuf message of changes, each a message itself. Pages are filled while requests are
//! served: a change is on its page before the next request proceeds, and the writer takes whole pages.

use std::mem::{replace, take};

use crate::ledger::key::{ContentKey, LedgerKey};

use super::codec::{MalformedMessage, MessageFields, MessageWriter, WireField, bytes_field_len};

/// The approximate size of a page: the database allocates powers of two.
const PAGE_BYTES: usize = 60 << 10;
/// The capacity of a page, including the record that fills it up.
const PAGE_CAPACITY: usize = 64 << 10;

/// A change as it is in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalChange<'c> {
    pub(super) key: LedgerKey,
    /// The new record, encoded; `None` if it is deleted.
    pub(super) encoded: Option<&'c [u8]>,
    /// The content by which the record is found from now on.
    pub(super) content_key: Option<ContentKey>,
}

/// Pages that are being filled.
#[derive(Debug, Default)]
pub(super) struct JournalPages {
    full: Vec<Vec<u8>>,
    current: Vec<u8>,
    /// Pages that were written to disk and can be reused.
    spare: Vec<Vec<u8>>,
}

impl JournalPages {
    /// Appends a change.
    pub(super) fn append(&mut self, change: &JournalChange<'_>) {
        let content = change.content_key.as_ref().map(ContentKey::as_bytes);
        let fields = [Some(&change.key.0[..]), change.encoded, content];
        let mut encoded = MessageWriter(&mut self.current);
        encoded.begin_bytes(
            1,
            fields
                .iter()
                .flatten()
                .map(|bytes| bytes_field_len(bytes))
                .sum(),
        );
        for (tag, bytes) in (1..).zip(fields) {
            encoded.write_bytes(tag, bytes);
        }
        if self.current.len() >= PAGE_BYTES {
            let next = self
                .spare
                .pop()
                .unwrap_or_else(|| Vec::with_capacity(PAGE_CAPACITY));
            self.full.push(replace(&mut self.current, next));
        }
    }

    /// Appends later pages.
    pub(super) fn extend(&mut self, later: Self) {
        let last = replace(&mut self.current, later.current);
        self.full.extend(Some(last).filter(|page| !page.is_empty()));
        self.full.extend(later.full);
    }

    /// Takes written pages for reuse, and returns the spare pages that they replace.
    pub(super) fn recycle(&mut self, mut pages: Self) -> Vec<Vec<u8>> {
        pages.full.iter_mut().for_each(Vec::clear);
        replace(&mut self.spare, pages.full)
    }

    /// Takes the spare pages of `others`.
    pub(super) fn take_spare_from(&mut self, others: &mut Self) {
        self.spare = take(&mut others.spare);
        self.current = self.spare.pop().unwrap_or_default();
    }

    /// Closes the current page, and returns all pages.
    pub(super) fn finish(&mut self) -> &[Vec<u8>] {
        let last = take(&mut self.current);
        self.full.extend(Some(last).filter(|page| !page.is_empty()));
        &self.full
    }
}

/// Passes the changes of a page to `each`.
pub(super) fn read_page(
    page: &[u8],
    mut each: impl FnMut(JournalChange<'_>),
) -> Result<(), MalformedMessage> {
    for change in MessageFields(page) {
        if let (1, WireField::Bytes(change)) = change?
            && let Some(change) = parse_change(change)?
        {
            each(change);
        }
    }
    Ok(())
}

/// Parses a change; `None` if it has no key.
fn parse_change(bytes: &[u8]) -> Result<Option<JournalChange<'_>>, MalformedMessage> {
    let mut key = None;
    let mut encoded = None;
    let mut content = None;
    for field in MessageFields(bytes) {
        match field? {
            (1, WireField::Bytes(bytes)) => key = bytes.try_into().ok().map(LedgerKey),
            (2, WireField::Bytes(bytes)) => encoded = Some(bytes),
            (3, WireField::Bytes(bytes)) => content = ContentKey::from_bytes(bytes),
            _ => {}
        }
    }
    Ok(key.map(|key| JournalChange {
        key,
        encoded,
        content_key: content,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(n: u8, encoded: Option<&[u8]>) -> JournalChange<'_> {
        JournalChange {
            key: LedgerKey([n; 16]),
            encoded,
            content_key: ContentKey::from_parts([3, 2].map(|divisor| {
                n.is_multiple_of(divisor)
                    .then_some(LedgerKey([n + divisor; 16]))
            })),
        }
    }

    #[test]
    fn pages_round_trip_in_order() {
        let large = [7; 20_000];
        let small = [8; 200];
        let changes: Vec<_> = (0..200)
            .map(|n| {
                written(
                    n,
                    [None, Some(&small[..]), Some(&large[..])]
                        .get(usize::from(n % 3))
                        .copied()
                        .flatten(),
                )
            })
            .collect();
        // In three parts, one of them empty.
        let mut pages = JournalPages::default();
        changes
            .iter()
            .take(90)
            .for_each(|change| pages.append(change));
        pages.extend(JournalPages::default());
        let mut later = JournalPages::default();
        changes
            .iter()
            .skip(90)
            .for_each(|change| later.append(change));
        pages.extend(later);
        assert_eq!(
            pages.finish().len(),
            pages.finish().len(),
            "it is closed once"
        );
        let mut at = changes.iter();
        for page in pages.finish() {
            assert!((1..PAGE_BYTES + 21_000).contains(&page.len()));
            read_page(page, |change| assert_eq!(at.next(), Some(&change))).unwrap();
        }
        assert_eq!(at.next(), None);
        assert!(JournalPages::default().finish().is_empty());
    }

    #[test]
    fn a_reused_page_has_no_old_contents() {
        let encoded = [7; 20_000];
        let mut first = JournalPages::default();
        let mut second = JournalPages::default();
        (0..30).for_each(|n| first.append(&written(n, Some(&encoded))));
        assert!(first.finish().len() > 5);
        drop(second.recycle(first));
        let mut third = JournalPages::default();
        third.take_spare_from(&mut second);
        (100..110).for_each(|n| third.append(&written(n, None)));
        third.append(&written(110, Some(&encoded)));
        let mut keys = vec![];
        for page in third.finish() {
            read_page(page, |change| keys.extend(change.key.0.first().copied())).unwrap();
        }
        assert_eq!(keys, (100..=110).collect::<Vec<u8>>());
    }

    #[test]
    fn invalid_pages_are_reported() {
        let mut pages = JournalPages::default();
        pages.append(&written(1, Some(b"record")));
        let page = pages.finish().first().unwrap();
        for end in 1..page.len() {
            assert_eq!(
                read_page(page.get(..end).unwrap(), |_| panic!("it is not whole")),
                Err(MalformedMessage),
                "{end}"
            );
        }
    }
}
