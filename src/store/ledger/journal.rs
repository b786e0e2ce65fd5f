//! The journal: what has changed, in the order in which it came, in pages of [`PAGE`] bytes, about.
//!
//! A page is a protobuf message of changes, each a message of its own. It is written while requests come in: what they
//! note is on its page before the next one is served, and the writer finds whole pages.

use std::mem::{replace, take};

use crate::ledger::key::Key;

use super::form::{Broken, Field, Fields, Form, length_of_bytes};

/// About as much as one page has: the database gives out powers of two.
const PAGE: usize = 60 << 10;
/// A page, and the record that made it one.
const PAGE_ROOM: usize = 64 << 10;

/// A change, as the journal has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written<'c> {
    pub(super) key: Key,
    /// The record from now on, in its written form; none if it is forgotten.
    pub(super) form: Option<&'c [u8]>,
    /// The content by which it is to be found.
    pub(super) content: Option<Key>,
}

/// Pages that are being written.
#[derive(Debug, Default)]
pub(super) struct Pages {
    whole: Vec<Vec<u8>>,
    last: Vec<u8>,
    /// Written to the disk, and to be used again.
    spare: Vec<Vec<u8>>,
}

impl Pages {
    /// Writes a change behind those that are there.
    pub(super) fn add(&mut self, change: &Written<'_>) {
        let content = change.content.as_ref().map(|content| &content.0[..]);
        let fields = [Some(&change.key.0[..]), change.form, content];
        let mut form = Form(&mut self.last);
        form.begin(
            1,
            fields
                .iter()
                .flatten()
                .map(|bytes| length_of_bytes(bytes))
                .sum(),
        );
        for (tag, bytes) in (1..).zip(fields) {
            form.bytes(tag, bytes);
        }
        if self.last.len() >= PAGE {
            let next = self
                .spare
                .pop()
                .unwrap_or_else(|| Vec::with_capacity(PAGE_ROOM));
            self.whole.push(replace(&mut self.last, next));
        }
    }

    /// Puts what came later behind this.
    pub(super) fn extend(&mut self, later: Self) {
        let last = replace(&mut self.last, later.last);
        self.whole
            .extend(Some(last).filter(|page| !page.is_empty()));
        self.whole.extend(later.whole);
    }

    /// Takes pages that nobody reads any more, to write on them again, in place of those that it had.
    pub(super) fn reuse(&mut self, mut pages: Self) -> Vec<Vec<u8>> {
        pages.whole.iter_mut().for_each(Vec::clear);
        replace(&mut self.spare, pages.whole)
    }

    /// Takes what others have to spare.
    pub(super) fn inherit(&mut self, others: &mut Self) {
        self.spare = take(&mut others.spare);
        self.last = self.spare.pop().unwrap_or_default();
    }

    /// They are written as they are.
    pub(super) fn close(&mut self) -> &[Vec<u8>] {
        let last = take(&mut self.last);
        self.whole
            .extend(Some(last).filter(|page| !page.is_empty()));
        &self.whole
    }
}

/// Hands out the changes of a page.
pub(super) fn read(page: &[u8], mut each: impl FnMut(Written<'_>)) -> Result<(), Broken> {
    for change in Fields(page) {
        if let (1, Field::Bytes(change)) = change?
            && let Some(change) = change_of(change)?
        {
            each(change);
        }
    }
    Ok(())
}

/// Nothing if it is of no key.
fn change_of(bytes: &[u8]) -> Result<Option<Written<'_>>, Broken> {
    let (mut key, mut form, mut content) = (None, None, None);
    for field in Fields(bytes) {
        match field? {
            (1, Field::Bytes(bytes)) => key = bytes.try_into().ok().map(Key),
            (2, Field::Bytes(bytes)) => form = Some(bytes),
            (3, Field::Bytes(bytes)) => content = bytes.try_into().ok().map(Key),
            _ => {}
        }
    }
    Ok(key.map(|key| Written { key, form, content }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(n: u8, form: Option<&[u8]>) -> Written<'_> {
        Written {
            key: Key([n; 16]),
            form,
            content: n.is_multiple_of(3).then_some(Key([n + 1; 16])),
        }
    }

    #[test]
    fn pages_are_read_as_they_are_written_in_their_order() {
        let (large, small) = ([7; 20_000], [8; 200]);
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
        // In three parts, of which one is empty.
        let mut pages = Pages::default();
        changes.iter().take(90).for_each(|change| pages.add(change));
        pages.extend(Pages::default());
        let mut later = Pages::default();
        changes.iter().skip(90).for_each(|change| later.add(change));
        pages.extend(later);
        assert_eq!(
            pages.close().len(),
            pages.close().len(),
            "it is closed once"
        );
        let mut at = changes.iter();
        for page in pages.close() {
            assert!((1..PAGE + 21_000).contains(&page.len()));
            read(page, |change| assert_eq!(at.next(), Some(&change))).unwrap();
        }
        assert_eq!(at.next(), None);
        assert!(Pages::default().close().is_empty());
    }

    #[test]
    fn a_page_that_is_used_again_has_nothing_of_what_it_had() {
        let form = [7; 20_000];
        let (mut first, mut second) = (Pages::default(), Pages::default());
        (0..30).for_each(|n| first.add(&written(n, Some(&form))));
        assert!(first.close().len() > 5);
        drop(second.reuse(first));
        let mut third = Pages::default();
        third.inherit(&mut second);
        (100..110).for_each(|n| third.add(&written(n, None)));
        third.add(&written(110, Some(&form)));
        let mut keys = vec![];
        for page in third.close() {
            read(page, |change| keys.extend(change.key.0.first().copied())).unwrap();
        }
        assert_eq!(keys, (100..=110).collect::<Vec<u8>>());
    }

    #[test]
    fn what_is_no_page_is_told() {
        let mut pages = Pages::default();
        pages.add(&written(1, Some(b"record")));
        let page = pages.close().first().unwrap();
        for end in 1..page.len() {
            assert_eq!(
                read(page.get(..end).unwrap(), |_| panic!("it is not whole")),
                Err(Broken),
                "{end}"
            );
        }
    }
}
