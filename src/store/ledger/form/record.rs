//! A record, and the key of its document. Times but the first are written as distances from it, which are short.

use std::net::IpAddr;
use std::str::from_utf8;
use std::sync::Arc;

use crate::ledger::key::Key;
use crate::ledger::record::{At, Indexed, Record, Standing, Status, Validators};

use super::{Field, Fields, Form, number_of, short, status_of};

/// A record, and the key of its document.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::store::ledger) struct Entry {
    pub(in crate::store::ledger) record: Arc<Record>,
    pub(in crate::store::ledger) content: Option<Key>,
}

/// The number of the field with the key of the document.
const CONTENT_KEY: u32 = 24;
/// One more than the last number.
const FIELDS: usize = 25;

/// Writes a record behind what is there, without a copy of each text: one is written for each request.
pub(in crate::store::ledger) fn write(record: &Record, content: Option<Key>, to: &mut Vec<u8>) {
    let mut form = Form(to);
    let from_first = |at: At| zigzag(at.0.wrapping_sub(record.first_seen.0).cast_signed());
    form.text(1, Some(&record.crawler));
    form.text(2, Some(&record.url));
    form.plain(3, record.is_known().into());
    match record.indexed {
        Indexed::Never => {}
        Indexed::Perhaps => form.number(4, Some(1)),
        Indexed::Removed(at) => {
            form.number(4, Some(2));
            form.number(5, Some(from_first(at)));
        }
    }
    form.plain(6, number_of(record.status.0).into());
    form.number(7, record.origin_status.map(u64::from));
    form.number(8, record.code.map(u64::from));
    match record.address {
        Some(IpAddr::V4(address)) => form.bytes(9, Some(&address.octets())),
        Some(IpAddr::V6(address)) => form.bytes(9, Some(&address.octets())),
        None => {}
    }
    form.number(10, Some(record.first_seen.0));
    form.plain(11, from_first(record.last_seen));
    form.number(12, record.last_fetched.map(from_first));
    form.number(13, record.last_error.map(from_first));
    form.number(14, record.last_changed.map(from_first));
    form.text(15, record.validators.etag.as_deref());
    form.text(16, record.validators.last_modified.as_deref());
    form.bytes(17, record.content.as_ref().map(|hash| &hash[..]));
    form.text(
        18,
        Some(&*record.content_type).filter(|kind| !kind.is_empty()),
    );
    form.plain(19, record.size);
    form.number(20, record.depth.map(u64::from));
    form.text(21, record.source.as_deref());
    form.text(22, record.space.as_deref());
    form.plain(23, record.temporary_errors.into());
    form.bytes(CONTENT_KEY, content.as_ref().map(|key| &key.0[..]));
}

/// As protobuf's sint64: small numbers of either sign are short.
fn zigzag(number: i64) -> u64 {
    (number.wrapping_shl(1) ^ (number >> 63)).cast_unsigned()
}

/// Reads it; nothing if it is not one.
pub(in crate::store::ledger) fn read(bytes: &[u8]) -> Option<Entry> {
    let row = Row::read(bytes)?;
    let first = row.number(10).unwrap_or_default();
    let at = |tag| {
        row.number(tag)
            .map(|distance| At(first.wrapping_add_signed(unzigzag(distance))))
    };
    let record = Record {
        crawler: row.text(1)?.unwrap_or_default(),
        url: row.text(2)?.unwrap_or_default(),
        standing: if row.number(3) == Some(1) {
            Standing::Entered
        } else {
            Standing::Noted
        },
        indexed: match (row.number(4).unwrap_or_default(), at(5)) {
            (0, _) => Indexed::Never,
            (2, Some(removed)) => Indexed::Removed(removed),
            (_, _) => Indexed::Perhaps,
        },
        status: Status(status_of(row.small(6)?.unwrap_or_default())?),
        origin_status: short(row.number(7)),
        code: short(row.number(8)),
        address: row.bytes(9).and_then(address),
        first_seen: At(first),
        last_seen: at(11).unwrap_or(At(first)),
        last_fetched: at(12),
        last_error: at(13),
        last_changed: at(14),
        validators: Validators {
            etag: row.text(15)?,
            last_modified: row.text(16)?,
        },
        content: row.bytes(17).and_then(|hash| hash.try_into().ok()),
        content_type: row.text(18)?.unwrap_or_default(),
        size: row.number(19).unwrap_or_default(),
        depth: row.small(20)?,
        source: row.text(21)?,
        space: row.text(22)?,
        temporary_errors: row.small(23)?.unwrap_or_default(),
    };
    let content = row
        .bytes(CONTENT_KEY as usize)
        .and_then(|key| key.try_into().ok())
        .map(Key);
    Some(Entry {
        record: Arc::new(record),
        content,
    })
}

/// The key of the document of a record that is written so; nothing if it has none.
pub(in crate::store::ledger) fn content_of(bytes: &[u8]) -> Option<Key> {
    let found = Fields(bytes).find_map(|field| match field {
        Ok((CONTENT_KEY, Field::Bytes(key))) => Some(key),
        _ => None,
    });
    found?.try_into().ok().map(Key)
}

/// The fields by their numbers; the last one, where there are several.
struct Row<'b>([Field<'b>; FIELDS]);

impl<'b> Row<'b> {
    fn read(bytes: &'b [u8]) -> Option<Self> {
        let mut row = [Field::Other; FIELDS];
        for field in Fields(bytes) {
            let (tag, field) = field.ok()?;
            if let Some(place) = row.get_mut(tag as usize) {
                *place = field;
            }
        }
        Some(Self(row))
    }

    fn number(&self, tag: usize) -> Option<u64> {
        match self.0.get(tag)? {
            Field::Number(number) => Some(*number),
            Field::Bytes(_) | Field::Other => None,
        }
    }

    fn bytes(&self, tag: usize) -> Option<&'b [u8]> {
        match self.0.get(tag)? {
            Field::Bytes(bytes) => Some(bytes),
            Field::Number(_) | Field::Other => None,
        }
    }

    /// Nothing at all if it is too large.
    #[allow(clippy::option_option, reason = "not there, and not to be read")]
    fn small(&self, tag: usize) -> Option<Option<u32>> {
        self.number(tag)
            .map(|number| u32::try_from(number).ok())
            .map_or(Some(None), |number| number.map(Some))
    }

    /// Nothing at all if it is no text.
    #[allow(clippy::option_option, reason = "not there, and not to be read")]
    fn text(&self, tag: usize) -> Option<Option<Arc<str>>> {
        self.bytes(tag).map_or(Some(None), |bytes| {
            from_utf8(bytes).ok().map(|text| Some(text.into()))
        })
    }
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    four().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use crate::vocab::crawl_status::CrawlStatus;

    use super::*;

    /// The message, as protobuf has it.
    #[derive(Clone, PartialEq, Message)]
    struct RecordForm {
        #[prost(string, tag = "1")]
        crawler: String,
        #[prost(string, tag = "2")]
        url: String,
        #[prost(bool, tag = "3")]
        entered: bool,
        #[prost(uint32, tag = "4")]
        indexed: u32,
        #[prost(sint64, optional, tag = "5")]
        removed: Option<i64>,
        #[prost(uint32, tag = "6")]
        status: u32,
        #[prost(uint32, optional, tag = "7")]
        origin_status: Option<u32>,
        #[prost(uint32, optional, tag = "8")]
        code: Option<u32>,
        #[prost(bytes = "vec", tag = "9")]
        address: Vec<u8>,
        #[prost(uint64, tag = "10")]
        first_seen: u64,
        #[prost(sint64, tag = "11")]
        last_seen: i64,
        #[prost(sint64, optional, tag = "12")]
        last_fetched: Option<i64>,
        #[prost(sint64, optional, tag = "13")]
        last_error: Option<i64>,
        #[prost(sint64, optional, tag = "14")]
        last_changed: Option<i64>,
        #[prost(string, optional, tag = "15")]
        etag: Option<String>,
        #[prost(string, optional, tag = "16")]
        last_modified: Option<String>,
        #[prost(bytes = "vec", tag = "17")]
        content: Vec<u8>,
        #[prost(string, tag = "18")]
        content_type: String,
        #[prost(uint64, tag = "19")]
        size: u64,
        #[prost(uint32, optional, tag = "20")]
        depth: Option<u32>,
        #[prost(string, optional, tag = "21")]
        source: Option<String>,
        #[prost(string, optional, tag = "22")]
        space: Option<String>,
        #[prost(uint32, tag = "23")]
        temporary_errors: u32,
        #[prost(bytes = "vec", tag = "24")]
        content_key: Vec<u8>,
    }

    fn bytes_of(entry: &Entry) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&entry.record, entry.content, &mut bytes);
        bytes
    }

    #[test]
    fn a_record_is_read_as_it_is_written() {
        let full = Record {
            crawler: "news".into(),
            url: "http://h.test/ä?q".into(),
            standing: Standing::Entered,
            indexed: Indexed::Removed(At(7)),
            status: Status(CrawlStatus::NotFound),
            origin_status: Some(404),
            code: Some(760),
            address: Some("2001:db8::1".parse().unwrap()),
            first_seen: At(1_767_225_600_123),
            // A clock that went back.
            last_seen: At(3),
            last_fetched: Some(At(1_767_225_600_124)),
            last_error: Some(At(u64::MAX)),
            last_changed: Some(At(0)),
            validators: Validators {
                etag: Some("".into()),
                last_modified: Some("Mon".into()),
            },
            content: Some([9; 32]),
            content_type: "text/html".into(),
            size: u64::MAX,
            depth: Some(0),
            source: Some("sitemap".into()),
            space: Some("north".into()),
            temporary_errors: u32::MAX,
        };
        let four = Record {
            address: Some("192.0.2.7".parse().unwrap()),
            ..Record::default()
        };
        let perhaps = Record {
            indexed: Indexed::Perhaps,
            ..Record::default()
        };
        for (record, content) in [
            (full, Some(Key([1; 16]))),
            (Record::default(), None),
            (four, None),
            (perhaps, None),
        ] {
            let entry = Entry {
                record: Arc::new(record),
                content,
            };
            assert_eq!(content_of(&bytes_of(&entry)), content);
            // As others write it: what is nothing is left out.
            let message = RecordForm::decode(&*bytes_of(&entry)).unwrap();
            assert_eq!(read(&message.encode_to_vec()).as_ref(), Some(&entry));
            assert_eq!(read(&bytes_of(&entry)), Some(entry));
        }
    }

    #[test]
    fn zeros_that_an_earlier_version_wrote_are_read() {
        let mut bytes = Vec::new();
        let mut form = Form(&mut bytes);
        form.text(1, Some("news"));
        form.text(2, Some("http://h.test/"));
        form.number(6, Some(0));
        form.number(10, Some(1_767_225_600_123));
        form.number(11, Some(0));
        form.text(18, Some(""));
        form.number(19, Some(0));
        form.number(23, Some(0));
        let at = At(1_767_225_600_123);
        let (crawler, url) = ("news".into(), "http://h.test/".into());
        let record = Record {
            crawler,
            url,
            first_seen: at,
            last_seen: at,
            ..Record::default()
        };
        assert_eq!(
            read(&bytes),
            Some(Entry {
                record: Arc::new(record),
                content: None
            })
        );
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over_and_what_is_no_record_is_refused() {
        let entry = Entry {
            record: Arc::new(Record {
                size: 3,
                ..Record::default()
            }),
            content: None,
        };
        let mut bytes = bytes_of(&entry);
        // Field 1000, one byte of text.
        bytes.extend([0xc2, 0x3e, 1, b'x']);
        assert_eq!(read(&bytes), Some(entry));
        assert_eq!(read(&[0xff; 5]), None);
    }
}
