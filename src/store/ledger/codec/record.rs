//! A record, and the key of its document. Times but the first are written as distances from it, which are short.

use std::net::IpAddr;
use std::str::from_utf8;
use std::sync::Arc;

use crate::ledger::key::LedgerKey;
use crate::ledger::record::{
    DocumentValidators, IndexState, LedgerRecord, RecordStatus, UnixMillis, VisitState,
};

use super::{MessageFields, MessageWriter, WireField, status_from_number, status_number, to_u16};

/// A record, and the key of its document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredRecord {
    pub(crate) record: Arc<LedgerRecord>,
    pub(crate) content_key: Option<LedgerKey>,
}

/// The number of the field with the key of the document.
const CONTENT_KEY: u32 = 24;
/// One more than the last number.
const FIELD_COUNT: usize = 25;

/// Writes a record behind what is there, without a copy of each text: one is written for each request.
pub(crate) fn encode(record: &LedgerRecord, content: Option<LedgerKey>, to: &mut Vec<u8>) {
    let mut form = MessageWriter(to);
    let from_first = |at: UnixMillis| zigzag(at.0.wrapping_sub(record.first_seen.0).cast_signed());
    form.write_text(1, Some(&record.crawler));
    form.write_text(2, Some(&record.url));
    form.write_nonzero(3, record.is_known().into());
    match record.index_state {
        IndexState::Never => {}
        IndexState::Possible => form.write_number(4, Some(1)),
        IndexState::Removed(at) => {
            form.write_number(4, Some(2));
            form.write_number(5, Some(from_first(at)));
        }
    }
    form.write_nonzero(6, status_number(record.status.0).into());
    form.write_number(7, record.origin_status.map(u64::from));
    form.write_number(8, record.code.map(u64::from));
    match record.address {
        Some(IpAddr::V4(address)) => form.write_bytes(9, Some(&address.octets())),
        Some(IpAddr::V6(address)) => form.write_bytes(9, Some(&address.octets())),
        None => {}
    }
    form.write_number(10, Some(record.first_seen.0));
    form.write_nonzero(11, from_first(record.last_seen));
    form.write_number(12, record.last_fetched.map(from_first));
    form.write_number(13, record.last_error.map(from_first));
    form.write_number(14, record.last_changed.map(from_first));
    form.write_text(15, record.validators.etag.as_deref());
    form.write_text(16, record.validators.last_modified.as_deref());
    form.write_bytes(17, record.content_hash.as_ref().map(|hash| &hash[..]));
    form.write_text(
        18,
        Some(&*record.content_type).filter(|kind| !kind.is_empty()),
    );
    form.write_nonzero(19, record.size);
    form.write_number(20, record.depth.map(u64::from));
    form.write_text(21, record.source.as_deref());
    form.write_text(22, record.space.as_deref());
    form.write_nonzero(23, record.temporary_errors.into());
    form.write_bytes(CONTENT_KEY, content.as_ref().map(|key| &key.0[..]));
}

/// As protobuf's sint64: small numbers of either sign are short.
fn zigzag(number: i64) -> u64 {
    (number.wrapping_shl(1) ^ (number >> 63)).cast_unsigned()
}

/// Reads it; nothing if it is not one.
pub(crate) fn decode(bytes: &[u8]) -> Option<StoredRecord> {
    let row = RecordFields::parse(bytes)?;
    let first = row.number(10).unwrap_or_default();
    let at = |tag| {
        row.number(tag)
            .map(|distance| UnixMillis(first.wrapping_add_signed(unzigzag(distance))))
    };
    let record = LedgerRecord {
        crawler: row.text_or_invalid(1)?.unwrap_or_default(),
        url: row.text_or_invalid(2)?.unwrap_or_default(),
        visit_state: if row.number(3) == Some(1) {
            VisitState::Answered
        } else {
            VisitState::RefusedOnly
        },
        index_state: match (row.number(4).unwrap_or_default(), at(5)) {
            (0, _) => IndexState::Never,
            (2, Some(removed)) => IndexState::Removed(removed),
            (_, _) => IndexState::Possible,
        },
        status: RecordStatus(status_from_number(
            row.u32_or_invalid(6)?.unwrap_or_default(),
        )?),
        origin_status: to_u16(row.number(7)),
        code: to_u16(row.number(8)),
        address: row.bytes(9).and_then(decode_address),
        first_seen: UnixMillis(first),
        last_seen: at(11).unwrap_or(UnixMillis(first)),
        last_fetched: at(12),
        last_error: at(13),
        last_changed: at(14),
        validators: DocumentValidators {
            etag: row.text_or_invalid(15)?,
            last_modified: row.text_or_invalid(16)?,
        },
        content_hash: row.bytes(17).and_then(|hash| hash.try_into().ok()),
        content_type: row.text_or_invalid(18)?.unwrap_or_default(),
        size: row.number(19).unwrap_or_default(),
        depth: row.u32_or_invalid(20)?,
        source: row.text_or_invalid(21)?,
        space: row.text_or_invalid(22)?,
        temporary_errors: row.u32_or_invalid(23)?.unwrap_or_default(),
    };
    let content = row
        .bytes(CONTENT_KEY as usize)
        .and_then(|key| key.try_into().ok())
        .map(LedgerKey);
    Some(StoredRecord {
        record: Arc::new(record),
        content_key: content,
    })
}

/// The key of the document of a record that is written so; nothing if it has none.
pub(crate) fn decode_content_key(bytes: &[u8]) -> Option<LedgerKey> {
    let found = MessageFields(bytes).find_map(|field| match field {
        Ok((CONTENT_KEY, WireField::Bytes(key))) => Some(key),
        _ => None,
    });
    found?.try_into().ok().map(LedgerKey)
}

/// The fields by their numbers; the last one, where there are several.
struct RecordFields<'b>([WireField<'b>; FIELD_COUNT]);

impl<'b> RecordFields<'b> {
    fn parse(bytes: &'b [u8]) -> Option<Self> {
        let mut row = [WireField::Unknown; FIELD_COUNT];
        for field in MessageFields(bytes) {
            let (tag, field) = field.ok()?;
            if let Some(place) = row.get_mut(tag as usize) {
                *place = field;
            }
        }
        Some(Self(row))
    }

    fn number(&self, tag: usize) -> Option<u64> {
        match self.0.get(tag)? {
            WireField::Number(number) => Some(*number),
            WireField::Bytes(_) | WireField::Unknown => None,
        }
    }

    fn bytes(&self, tag: usize) -> Option<&'b [u8]> {
        match self.0.get(tag)? {
            WireField::Bytes(bytes) => Some(bytes),
            WireField::Number(_) | WireField::Unknown => None,
        }
    }

    /// Nothing at all if it is too large.
    #[allow(clippy::option_option, reason = "not there, and not to be read")]
    fn u32_or_invalid(&self, tag: usize) -> Option<Option<u32>> {
        self.number(tag)
            .map(|number| u32::try_from(number).ok())
            .map_or(Some(None), |number| number.map(Some))
    }

    /// Nothing at all if it is no text.
    #[allow(clippy::option_option, reason = "not there, and not to be read")]
    fn text_or_invalid(&self, tag: usize) -> Option<Option<Arc<str>>> {
        self.bytes(tag).map_or(Some(None), |bytes| {
            from_utf8(bytes).ok().map(|text| Some(text.into()))
        })
    }
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

fn decode_address(bytes: &[u8]) -> Option<IpAddr> {
    let four = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    four().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use crate::model::crawl_status::CrawlStatus;

    use super::*;

    /// The message, as protobuf has it.
    #[derive(Clone, PartialEq, Message)]
    struct RecordMessage {
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

    fn bytes_of(entry: &StoredRecord) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&entry.record, entry.content_key, &mut bytes);
        bytes
    }

    #[test]
    fn a_record_is_read_as_it_is_written() {
        let full = LedgerRecord {
            crawler: "news".into(),
            url: "http://h.test/ä?q".into(),
            visit_state: VisitState::Answered,
            index_state: IndexState::Removed(UnixMillis(7)),
            status: RecordStatus(CrawlStatus::NotFound),
            origin_status: Some(404),
            code: Some(760),
            address: Some("2001:db8::1".parse().unwrap()),
            first_seen: UnixMillis(1_767_225_600_123),
            // A clock that went back.
            last_seen: UnixMillis(3),
            last_fetched: Some(UnixMillis(1_767_225_600_124)),
            last_error: Some(UnixMillis(u64::MAX)),
            last_changed: Some(UnixMillis(0)),
            validators: DocumentValidators {
                etag: Some("".into()),
                last_modified: Some("Mon".into()),
            },
            content_hash: Some([9; 32]),
            content_type: "text/html".into(),
            size: u64::MAX,
            depth: Some(0),
            source: Some("sitemap".into()),
            space: Some("north".into()),
            temporary_errors: u32::MAX,
        };
        let four = LedgerRecord {
            address: Some("192.0.2.7".parse().unwrap()),
            ..LedgerRecord::default()
        };
        let perhaps = LedgerRecord {
            index_state: IndexState::Possible,
            ..LedgerRecord::default()
        };
        for (record, content) in [
            (full, Some(LedgerKey([1; 16]))),
            (LedgerRecord::default(), None),
            (four, None),
            (perhaps, None),
        ] {
            let entry = StoredRecord {
                record: Arc::new(record),
                content_key: content,
            };
            assert_eq!(decode_content_key(&bytes_of(&entry)), content);
            // As others write it: what is nothing is left out.
            let message = RecordMessage::decode(&*bytes_of(&entry)).unwrap();
            assert_eq!(decode(&message.encode_to_vec()).as_ref(), Some(&entry));
            assert_eq!(decode(&bytes_of(&entry)), Some(entry));
        }
    }

    #[test]
    fn zeros_that_an_earlier_version_wrote_are_read() {
        let mut bytes = Vec::new();
        let mut form = MessageWriter(&mut bytes);
        form.write_text(1, Some("news"));
        form.write_text(2, Some("http://h.test/"));
        form.write_number(6, Some(0));
        form.write_number(10, Some(1_767_225_600_123));
        form.write_number(11, Some(0));
        form.write_text(18, Some(""));
        form.write_number(19, Some(0));
        form.write_number(23, Some(0));
        let at = UnixMillis(1_767_225_600_123);
        let (crawler, url) = ("news".into(), "http://h.test/".into());
        let record = LedgerRecord {
            crawler,
            url,
            first_seen: at,
            last_seen: at,
            ..LedgerRecord::default()
        };
        assert_eq!(
            decode(&bytes),
            Some(StoredRecord {
                record: Arc::new(record),
                content_key: None
            })
        );
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over_and_what_is_no_record_is_refused() {
        let entry = StoredRecord {
            record: Arc::new(LedgerRecord {
                size: 3,
                ..LedgerRecord::default()
            }),
            content_key: None,
        };
        let mut bytes = bytes_of(&entry);
        // Field 1000, one byte of text.
        bytes.extend([0xc2, 0x3e, 1, b'x']);
        assert_eq!(decode(&bytes), Some(entry));
        assert_eq!(decode(&[0xff; 5]), None);
    }
}
