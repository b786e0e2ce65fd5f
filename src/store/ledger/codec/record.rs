//! The encoding of a record, together with the key of its document. Times are encoded relative to the first one, which
//! makes them short.

use std::net::IpAddr;
use std::str::from_utf8;
use std::sync::Arc;

use crate::ledger::key::{ContentKey, LedgerKey};
use crate::ledger::record::{
    ContentHash, DocumentValidators, IndexState, LedgerRecord, RecordStatus, RemovalSource,
    UnixMillis, VisitState,
};
use crate::ledger::removal::PendingRemoval;
use crate::model::failure_kind::FailureKind;

use super::removal;
use super::{
    MalformedMessage, MessageFields, MessageWriter, WireField, status_from_number, status_number,
};

/// A record, and the key of its document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredRecord {
    pub(crate) record: Arc<LedgerRecord>,
    pub(crate) content_key: Option<ContentKey>,
}

impl StoredRecord {
    /// Returns `true` if the document is found by this key.
    pub(crate) fn has_content(&self, part: LedgerKey) -> bool {
        self.content_key.is_some_and(|key| key.contains(part))
    }
}

/// The number of the field with the key of the document.
const CONTENT_KEY: u32 = 24;
/// The number of the field with the source of a removal.
const REMOVAL_SOURCE: u32 = 32;
/// One more than the highest field number.
const FIELD_COUNT: usize = 34;

/// Declares the fields of a record: `number field: write_function read_function;`. Two of them are encoded as two
/// fields.
macro_rules! record_fields {
    ($($tag:literal $field:ident: $write:ident $read:ident;)+) => {
        /// Appends an encoded record, without copying its texts: one is written for each request.
        pub(crate) fn encode(
            record: &LedgerRecord,
            content_key: Option<ContentKey>,
            to: &mut Vec<u8>,
        ) {
            let mut writer = RecordWriter {
                message: MessageWriter(to),
                first_seen: record.first_seen,
            };
            $($write(&mut writer, $tag, &record.$field);)+
            let content_key = content_key.as_ref().map(ContentKey::as_bytes);
            writer.message.write_bytes(CONTENT_KEY, content_key);
        }

        fn decode_record(fields: &RecordFields<'_>) -> Result<LedgerRecord, MalformedMessage> {
            Ok(LedgerRecord {
                $($field: $read(fields, $tag)?,)+
            })
        }
    };
}

record_fields! {
    1 crawler: write_text read_text;
    2 url: write_text read_text;
    3 visit_state: write_visit_state read_visit_state;
    // And 5 and 32, the time and the source of the removal.
    4 index_state: write_index_state read_index_state;
    6 status: write_status read_status;
    7 origin_status: write_optional_u16 read_optional_u16;
    8 code: write_optional_u16 read_optional_u16;
    9 address: write_address read_address;
    10 first_seen: write_first_seen read_first_seen;
    11 last_seen: write_last_seen read_last_seen;
    12 last_fetched: write_time read_time;
    13 last_error: write_time read_time;
    14 last_changed: write_time read_time;
    // And 16, Last-Modified.
    15 validators: write_validators read_validators;
    17 content_hash: write_hash read_hash;
    18 content_type: write_nonempty_text read_text;
    19 size: write_nonzero read_nonzero;
    20 depth: write_optional_u32 read_optional_u32;
    21 source: write_optional_text read_optional_text;
    22 space: write_optional_text read_optional_text;
    23 temporary_errors: write_nonzero_u32 read_nonzero_u32;
    25 pending_removal: write_pending_removal read_pending_removal;
    26 refused_unasked: write_flag read_flag;
    29 error: write_error read_error;
    31 kept_since: write_time read_time;
    33 lost: write_time read_time;
}

/// Decodes a record; `None` if the bytes are not one.
pub(crate) fn decode(bytes: &[u8]) -> Option<StoredRecord> {
    let fields = RecordFields::parse(bytes).ok()?;
    let record = decode_record(&fields).ok()?;
    let content_key = fields.bytes(CONTENT_KEY);
    Some(StoredRecord {
        record: Arc::new(record),
        content_key: content_key.and_then(ContentKey::from_bytes),
    })
}

/// Decodes only the key of the document; `None` in a record without a document.
pub(crate) fn decode_content_key(bytes: &[u8]) -> Option<ContentKey> {
    let found = MessageFields(bytes).find_map(|field| match field {
        Ok((CONTENT_KEY, WireField::Bytes(key))) => Some(key),
        _ => None,
    });
    ContentKey::from_bytes(found?)
}

struct RecordWriter<'b> {
    message: MessageWriter<'b>,
    first_seen: UnixMillis,
}

/// The fields of a message by number; the last one, if there are several.
struct RecordFields<'b> {
    fields: [WireField<'b>; FIELD_COUNT],
    first_seen: u64,
}

impl<'b> RecordFields<'b> {
    fn parse(bytes: &'b [u8]) -> Result<Self, MalformedMessage> {
        let mut fields = [WireField::Unknown; FIELD_COUNT];
        for field in MessageFields(bytes) {
            let (tag, field) = field?;
            if let Some(slot) = fields.get_mut(tag as usize) {
                *slot = field;
            }
        }
        let mut fields = Self {
            fields,
            first_seen: 0,
        };
        fields.first_seen = fields.number(10).unwrap_or_default();
        Ok(fields)
    }

    fn number(&self, tag: u32) -> Option<u64> {
        match self.fields.get(tag as usize)? {
            WireField::Number(number) => Some(*number),
            WireField::Bytes(_) | WireField::Unknown => None,
        }
    }

    fn bytes(&self, tag: u32) -> Option<&'b [u8]> {
        match self.fields.get(tag as usize)? {
            WireField::Bytes(bytes) => Some(bytes),
            WireField::Number(_) | WireField::Unknown => None,
        }
    }

    fn time(&self, tag: u32) -> Option<UnixMillis> {
        let distance = unzigzag(self.number(tag)?);
        Some(UnixMillis(self.first_seen.wrapping_add_signed(distance)))
    }
}

type FieldResult<T> = Result<T, MalformedMessage>;

fn write_text(to: &mut RecordWriter<'_>, tag: u32, text: &Arc<str>) {
    to.message.write_text(tag, Some(text));
}

fn write_nonempty_text(to: &mut RecordWriter<'_>, tag: u32, text: &Arc<str>) {
    to.message
        .write_text(tag, Some(&**text).filter(|text| !text.is_empty()));
}

fn read_text(from: &RecordFields<'_>, tag: u32) -> FieldResult<Arc<str>> {
    Ok(read_optional_text(from, tag)?.unwrap_or_default())
}

fn write_optional_text(to: &mut RecordWriter<'_>, tag: u32, text: &Option<Arc<str>>) {
    to.message.write_text(tag, text.as_deref());
}

fn read_optional_text(from: &RecordFields<'_>, tag: u32) -> FieldResult<Option<Arc<str>>> {
    let Some(bytes) = from.bytes(tag) else {
        return Ok(None);
    };
    let text = from_utf8(bytes).map_err(|_| MalformedMessage)?;
    Ok(Some(text.into()))
}

fn write_visit_state(to: &mut RecordWriter<'_>, tag: u32, state: &VisitState) {
    let number = match state {
        VisitState::RefusedOnly => 0,
        VisitState::Answered => 1,
        VisitState::Failed => 2,
    };
    to.message.write_nonzero(tag, number);
}

fn read_visit_state(from: &RecordFields<'_>, tag: u32) -> FieldResult<VisitState> {
    Ok(match from.number(tag) {
        Some(1) => VisitState::Answered,
        Some(2) => VisitState::Failed,
        Some(_) | None => VisitState::RefusedOnly,
    })
}

fn write_index_state(to: &mut RecordWriter<'_>, tag: u32, state: &IndexState) {
    match state {
        IndexState::Never => {}
        IndexState::Possible => to.message.write_number(tag, Some(1)),
        IndexState::Removed { at, by } => {
            to.message.write_number(tag, Some(2));
            write_time(to, tag + 1, &Some(*at));
            let number = match by {
                RemovalSource::Policy => 0,
                RemovalSource::Site => 1,
            };
            to.message.write_nonzero(REMOVAL_SOURCE, number);
        }
        IndexState::Restored => to.message.write_number(tag, Some(3)),
    }
}

fn read_index_state(from: &RecordFields<'_>, tag: u32) -> FieldResult<IndexState> {
    Ok(match (from.number(tag), from.time(tag + 1)) {
        (None | Some(0), _) => IndexState::Never,
        (Some(2), Some(at)) => IndexState::Removed {
            at,
            by: match from.number(REMOVAL_SOURCE) {
                Some(1) => RemovalSource::Site,
                // Earlier versions kept no record of other removals.
                Some(_) | None => RemovalSource::Policy,
            },
        },
        (Some(3), _) => IndexState::Restored,
        (Some(_), _) => IndexState::Possible,
    })
}

fn write_status(to: &mut RecordWriter<'_>, tag: u32, status: &RecordStatus) {
    to.message
        .write_nonzero(tag, status_number(status.0).into());
}

fn read_status(from: &RecordFields<'_>, tag: u32) -> FieldResult<RecordStatus> {
    let status = status_from_number(read_nonzero_u32(from, tag)?);
    status.map(RecordStatus).ok_or(MalformedMessage)
}

fn write_optional_u16(to: &mut RecordWriter<'_>, tag: u32, number: &Option<u16>) {
    to.message.write_number(tag, number.map(u64::from));
}

/// A number that is too large is ignored.
fn read_optional_u16(from: &RecordFields<'_>, tag: u32) -> FieldResult<Option<u16>> {
    Ok(from.number(tag).and_then(|number| number.try_into().ok()))
}

fn write_optional_u32(to: &mut RecordWriter<'_>, tag: u32, number: &Option<u32>) {
    to.message.write_number(tag, number.map(u64::from));
}

fn read_optional_u32(from: &RecordFields<'_>, tag: u32) -> FieldResult<Option<u32>> {
    let number = from.number(tag).map(u32::try_from).transpose();
    number.map_err(|_| MalformedMessage)
}

fn write_nonzero(to: &mut RecordWriter<'_>, tag: u32, number: &u64) {
    to.message.write_nonzero(tag, *number);
}

fn read_nonzero(from: &RecordFields<'_>, tag: u32) -> FieldResult<u64> {
    Ok(from.number(tag).unwrap_or_default())
}

fn write_nonzero_u32(to: &mut RecordWriter<'_>, tag: u32, number: &u32) {
    to.message.write_nonzero(tag, (*number).into());
}

fn read_nonzero_u32(from: &RecordFields<'_>, tag: u32) -> FieldResult<u32> {
    Ok(read_optional_u32(from, tag)?.unwrap_or_default())
}

fn write_error(to: &mut RecordWriter<'_>, tag: u32, error: &Option<FailureKind>) {
    let number = error.map(|kind| match kind {
        FailureKind::Permanent => 1,
        FailureKind::Temporary => 2,
    });
    to.message.write_number(tag, number);
}

/// A kind that a later version has added is read as no error.
fn read_error(from: &RecordFields<'_>, tag: u32) -> FieldResult<Option<FailureKind>> {
    Ok(match from.number(tag) {
        Some(1) => Some(FailureKind::Permanent),
        Some(2) => Some(FailureKind::Temporary),
        Some(_) | None => None,
    })
}

fn write_address(to: &mut RecordWriter<'_>, tag: u32, address: &Option<IpAddr>) {
    match address {
        Some(IpAddr::V4(address)) => to.message.write_bytes(tag, Some(&address.octets())),
        Some(IpAddr::V6(address)) => to.message.write_bytes(tag, Some(&address.octets())),
        None => {}
    }
}

fn read_address(from: &RecordFields<'_>, tag: u32) -> FieldResult<Option<IpAddr>> {
    let bytes = from.bytes(tag).unwrap_or_default();
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    Ok(v4
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok())
}

fn write_first_seen(to: &mut RecordWriter<'_>, tag: u32, time: &UnixMillis) {
    to.message.write_number(tag, Some(time.0));
}

fn read_first_seen(from: &RecordFields<'_>, _tag: u32) -> FieldResult<UnixMillis> {
    Ok(UnixMillis(from.first_seen))
}

fn write_last_seen(to: &mut RecordWriter<'_>, tag: u32, time: &UnixMillis) {
    let distance = zigzag(time.0.wrapping_sub(to.first_seen.0).cast_signed());
    to.message.write_nonzero(tag, distance);
}

fn read_last_seen(from: &RecordFields<'_>, tag: u32) -> FieldResult<UnixMillis> {
    Ok(from.time(tag).unwrap_or(UnixMillis(from.first_seen)))
}

fn write_time(to: &mut RecordWriter<'_>, tag: u32, time: &Option<UnixMillis>) {
    let distance = time.map(|time| zigzag(time.0.wrapping_sub(to.first_seen.0).cast_signed()));
    to.message.write_number(tag, distance);
}

fn read_time(from: &RecordFields<'_>, tag: u32) -> FieldResult<Option<UnixMillis>> {
    Ok(from.time(tag))
}

fn write_validators(to: &mut RecordWriter<'_>, tag: u32, validators: &DocumentValidators) {
    write_optional_text(to, tag, &validators.etag);
    write_optional_text(to, tag + 1, &validators.last_modified);
}

fn read_validators(from: &RecordFields<'_>, tag: u32) -> FieldResult<DocumentValidators> {
    Ok(DocumentValidators {
        etag: read_optional_text(from, tag)?,
        last_modified: read_optional_text(from, tag + 1)?,
    })
}

fn write_hash(to: &mut RecordWriter<'_>, tag: u32, hash: &Option<ContentHash>) {
    to.message
        .write_bytes(tag, hash.as_ref().map(|hash| &hash[..]));
}

fn read_hash(from: &RecordFields<'_>, tag: u32) -> FieldResult<Option<ContentHash>> {
    Ok(from.bytes(tag).and_then(|hash| hash.try_into().ok()))
}

fn write_flag(to: &mut RecordWriter<'_>, tag: u32, flag: &bool) {
    to.message.write_nonzero(tag, (*flag).into());
}

fn read_flag(from: &RecordFields<'_>, tag: u32) -> FieldResult<bool> {
    Ok(from.number(tag) == Some(1))
}

fn write_pending_removal(
    to: &mut RecordWriter<'_>,
    tag: u32,
    pending: &Option<Box<PendingRemoval>>,
) {
    let encoded = pending.as_deref().map(removal::encode_pending);
    to.message.write_bytes(tag, encoded.as_deref());
}

fn read_pending_removal(
    from: &RecordFields<'_>,
    tag: u32,
) -> FieldResult<Option<Box<PendingRemoval>>> {
    let pending = from.bytes(tag).and_then(removal::decode_pending);
    Ok(pending.map(Box::new))
}

/// Encodes a number like protobuf's sint64: small numbers of either sign are short.
fn zigzag(number: i64) -> u64 {
    (number.wrapping_shl(1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use crate::ledger::event::LedgerEventReason;
    use crate::ledger::removal::RemovalCause;
    use crate::model::crawl_status::CrawlStatus;

    use super::*;

    /// The message as a protobuf library encodes it.
    #[derive(Clone, PartialEq, Message)]
    struct RecordMessage {
        #[prost(string, tag = "1")]
        crawler: String,
        #[prost(string, tag = "2")]
        url: String,
        #[prost(uint32, tag = "3")]
        entered: u32,
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
        #[prost(bytes = "vec", optional, tag = "25")]
        pending_removal: Option<Vec<u8>>,
        #[prost(bool, tag = "26")]
        refused_unasked: bool,
        #[prost(uint32, optional, tag = "29")]
        error: Option<u32>,
        #[prost(sint64, optional, tag = "31")]
        kept_since: Option<i64>,
        #[prost(uint32, tag = "32")]
        removal_source: u32,
        #[prost(sint64, optional, tag = "33")]
        lost: Option<i64>,
    }

    fn bytes_of(entry: &StoredRecord) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&entry.record, entry.content_key, &mut bytes);
        bytes
    }

    #[test]
    fn records_round_trip() {
        let full = LedgerRecord {
            crawler: "news".into(),
            url: "http://h.test/ä?q".into(),
            visit_state: VisitState::Answered,
            index_state: IndexState::Removed {
                at: UnixMillis(7),
                by: RemovalSource::Site,
            },
            status: RecordStatus(CrawlStatus::NotFound),
            origin_status: Some(404),
            code: Some(760),
            address: Some("2001:db8::1".parse().unwrap()),
            first_seen: UnixMillis(1_767_225_600_123),
            // The clock went back.
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
            refused_unasked: true,
            pending_removal: Some(Box::new(PendingRemoval {
                since: UnixMillis(1_767_225_600_125),
                cause: RemovalCause::Noindex {
                    host: "h.test".into(),
                },
                reason: LedgerEventReason::Excluded,
                status: Some(200),
                rule: None,
                revision: "3f9c2a1b".into(),
                user_agent: None,
            })),
            error: Some(FailureKind::Permanent),
            kept_since: Some(UnixMillis(1_767_225_600_126)),
            lost: Some(UnixMillis(1_767_225_600_125)),
        };
        let four = LedgerRecord {
            address: Some("192.0.2.7".parse().unwrap()),
            ..LedgerRecord::default()
        };
        let perhaps = LedgerRecord {
            index_state: IndexState::Possible,
            error: Some(FailureKind::Temporary),
            ..LedgerRecord::default()
        };
        let failed = LedgerRecord {
            visit_state: VisitState::Failed,
            index_state: IndexState::Removed {
                at: UnixMillis(7),
                by: RemovalSource::Policy,
            },
            ..LedgerRecord::default()
        };
        let restored = LedgerRecord {
            index_state: IndexState::Restored,
            ..LedgerRecord::default()
        };
        for (record, content) in [
            (
                full,
                ContentKey::from_parts([Some(LedgerKey([1; 16])), Some(LedgerKey([2; 16]))]),
            ),
            (failed, None),
            (restored, None),
            (LedgerRecord::default(), None),
            (
                four,
                ContentKey::from_parts([Some(LedgerKey([1; 16])), None]),
            ),
            (perhaps, None),
        ] {
            let entry = StoredRecord {
                record: Arc::new(record),
                content_key: content,
            };
            assert_eq!(decode_content_key(&bytes_of(&entry)), content);
            // A protobuf library leaves out default values.
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
        let record = LedgerRecord {
            crawler: "news".into(),
            url: "http://h.test/".into(),
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
    fn unknown_fields_are_skipped_and_invalid_records_refused() {
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
