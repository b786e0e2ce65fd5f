//! How records and events are written: protobuf messages, so that later versions add fields and read these.
//!
//! Numbers of fields and of words are for ever. Times but the first are written as distances from it, which are short.

use std::net::IpAddr;
use std::sync::Arc;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::ledger::event::{Event, EventKind, Why};
use crate::ledger::key::Key;
use crate::ledger::record::{At, Indexed, Record, Standing, Status, Validators};
use crate::vocab::crawl_status::CrawlStatus;

/// A record, and the key of its document.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) record: Arc<Record>,
    pub(super) content: Option<Key>,
}

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

#[derive(Clone, PartialEq, Message)]
struct EventForm {
    #[prost(uint64, tag = "1")]
    at: u64,
    #[prost(uint32, tag = "2")]
    kind: u32,
    #[prost(uint32, tag = "3")]
    why: u32,
    #[prost(string, tag = "4")]
    crawler: String,
    #[prost(string, tag = "5")]
    url: String,
    #[prost(uint32, optional, tag = "6")]
    code: Option<u32>,
    #[prost(uint32, optional, tag = "7")]
    status: Option<u32>,
    #[prost(string, optional, tag = "8")]
    rule: Option<String>,
    #[prost(string, tag = "9")]
    revision: String,
}

/// Of an [`EventForm`], when it was: the rest is passed over.
#[derive(Clone, PartialEq, Message)]
struct TimeForm {
    #[prost(uint64, tag = "1")]
    at: u64,
}

/// Of a [`RecordForm`], the key of its document: the rest is passed over.
#[derive(Clone, PartialEq, Message)]
struct ContentForm {
    #[prost(bytes = "vec", tag = "24")]
    content_key: Vec<u8>,
}

/// Writes a record behind what is there: a [`RecordForm`], without a copy of each text. One is written for each request.
pub(super) fn write_record(entry: &Entry, to: &mut Vec<u8>) {
    let record = &*entry.record;
    let mut form = Form(to);
    let from_first = |at: At| zigzag(at.0.wrapping_sub(record.first_seen.0).cast_signed());
    form.text(1, Some(&record.crawler));
    form.text(2, Some(&record.url));
    form.number(3, record.is_known().then_some(1));
    match record.indexed {
        Indexed::Never => {}
        Indexed::Perhaps => form.number(4, Some(1)),
        Indexed::Removed(at) => {
            form.number(4, Some(2));
            form.number(5, Some(from_first(at)));
        }
    }
    form.number(6, Some(number_of(record.status.0).into()));
    form.number(7, record.origin_status.map(u64::from));
    form.number(8, record.code.map(u64::from));
    match record.address {
        Some(IpAddr::V4(address)) => form.bytes(9, Some(&address.octets())),
        Some(IpAddr::V6(address)) => form.bytes(9, Some(&address.octets())),
        None => {}
    }
    form.number(10, Some(record.first_seen.0));
    form.number(11, Some(from_first(record.last_seen)));
    form.number(12, record.last_fetched.map(from_first));
    form.number(13, record.last_error.map(from_first));
    form.number(14, record.last_changed.map(from_first));
    form.text(15, record.validators.etag.as_deref());
    form.text(16, record.validators.last_modified.as_deref());
    form.bytes(17, record.content.as_ref().map(|hash| &hash[..]));
    form.text(18, Some(&record.content_type));
    form.number(19, Some(record.size));
    form.number(20, record.depth.map(u64::from));
    form.text(21, record.source.as_deref());
    form.text(22, record.space.as_deref());
    form.number(23, Some(record.temporary_errors.into()));
    form.bytes(24, entry.content.as_ref().map(|key| &key.0[..]));
}

/// The fields of a message, one after the other.
pub(super) struct Form<'b>(pub(super) &'b mut Vec<u8>);

impl Form<'_> {
    fn number(&mut self, tag: u32, number: Option<u64>) {
        let Some(number) = number else { return };
        encode_key(tag, WireType::Varint, self.0);
        encode_varint(number, self.0);
    }

    fn text(&mut self, tag: u32, text: Option<&str>) {
        self.bytes(tag, text.map(str::as_bytes));
    }

    pub(super) fn bytes(&mut self, tag: u32, bytes: Option<&[u8]>) {
        let Some(bytes) = bytes else { return };
        encode_key(tag, WireType::LengthDelimited, self.0);
        encode_varint(bytes.len() as u64, self.0);
        self.0.extend_from_slice(bytes);
    }
}

/// As protobuf's sint64: small numbers of either sign are short.
fn zigzag(number: i64) -> u64 {
    (number.wrapping_shl(1) ^ (number >> 63)).cast_unsigned()
}

/// Reads it; nothing if it is not one.
pub(super) fn record_from_bytes(bytes: &[u8]) -> Option<Entry> {
    let form = RecordForm::decode(bytes).ok()?;
    let first = form.first_seen;
    let at = |distance: i64| At(first.wrapping_add_signed(distance));
    let record = Record {
        crawler: form.crawler.into(),
        url: form.url.into(),
        standing: if form.entered { Standing::Entered } else { Standing::Noted },
        indexed: match (form.indexed, form.removed) {
            (0, _) => Indexed::Never,
            (2, Some(removed)) => Indexed::Removed(at(removed)),
            (_, _) => Indexed::Perhaps,
        },
        status: Status(status_of(form.status)?),
        origin_status: short(form.origin_status),
        code: short(form.code),
        address: address_from_bytes(&form.address),
        first_seen: At(first),
        last_seen: at(form.last_seen),
        last_fetched: form.last_fetched.map(at),
        last_error: form.last_error.map(at),
        last_changed: form.last_changed.map(at),
        validators: Validators {
            etag: form.etag.map(Into::into),
            last_modified: form.last_modified.map(Into::into),
        },
        content: form.content.try_into().ok(),
        content_type: form.content_type.into(),
        size: form.size,
        depth: form.depth,
        source: form.source.map(Into::into),
        space: form.space.map(Into::into),
        temporary_errors: form.temporary_errors,
    };
    Some(Entry { record: Arc::new(record), content: form.content_key.try_into().ok().map(Key) })
}

/// The key of the document of a record that is written so; nothing if it has none.
pub(super) fn content_of_record(bytes: &[u8]) -> Option<Key> {
    ContentForm::decode(bytes).ok()?.content_key.try_into().ok().map(Key)
}

/// What an event is written as.
pub(super) fn event_to_bytes(event: &Event) -> Vec<u8> {
    let form = EventForm {
        at: event.at.0,
        kind: match event.kind {
            EventKind::Removal => 1,
            EventKind::PermanentError => 2,
            EventKind::Moved => 3,
        },
        why: match event.why {
            Why::Excluded => 1,
            Why::PermanentError => 2,
            Why::TemporaryErrors => 3,
            Why::OtherSpace => 4,
        },
        crawler: event.crawler.to_string(),
        url: event.url.to_string(),
        code: event.code.map(u32::from),
        status: event.status.map(u32::from),
        rule: owned(event.rule.as_deref()),
        revision: event.revision.to_string(),
    };
    form.encode_to_vec()
}

/// Reads it; nothing if it is not one.
pub(super) fn event_from_bytes(bytes: &[u8]) -> Option<Event> {
    let form = EventForm::decode(bytes).ok()?;
    Some(Event {
        at: At(form.at),
        kind: match form.kind {
            1 => EventKind::Removal,
            2 => EventKind::PermanentError,
            3 => EventKind::Moved,
            _ => return None,
        },
        why: match form.why {
            1 => Why::Excluded,
            2 => Why::PermanentError,
            3 => Why::TemporaryErrors,
            4 => Why::OtherSpace,
            _ => return None,
        },
        crawler: form.crawler.into(),
        url: form.url.into(),
        code: short(form.code),
        status: short(form.status),
        rule: form.rule.map(Into::into),
        revision: form.revision.into(),
    })
}

/// When an event was; nothing if it is not one.
pub(super) fn time_of_event(bytes: &[u8]) -> Option<At> {
    TimeForm::decode(bytes).ok().map(|form| At(form.at))
}

/// The number of a status, which stays when the order of the documentation changes.
pub(super) fn number_of(status: CrawlStatus) -> u32 {
    match status {
        CrawlStatus::Accepted => 0,
        CrawlStatus::Filter => 1,
        CrawlStatus::RobotsTxt => 2,
        CrawlStatus::Usage => 3,
        CrawlStatus::TooDeep => 4,
        CrawlStatus::Trap => 5,
        CrawlStatus::Budget => 6,
        CrawlStatus::Premature => 7,
        CrawlStatus::Unmodified => 8,
        CrawlStatus::Duplicate => 9,
        CrawlStatus::Noncanonical => 10,
        CrawlStatus::Noindex => 11,
        CrawlStatus::NotFound => 12,
        CrawlStatus::BadStatus => 13,
        CrawlStatus::Error => 14,
        CrawlStatus::Import => 15,
        CrawlStatus::Politeness => 16,
        CrawlStatus::Address => 17,
        CrawlStatus::Request => 18,
        CrawlStatus::Unauthorized => 19,
        CrawlStatus::Unavailable => 20,
    }
}

/// The status of a number.
pub(super) fn status_of(number: u32) -> Option<CrawlStatus> {
    CrawlStatus::ALL.into_iter().find(|status| number_of(*status) == number)
}

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

fn short(number: Option<u32>) -> Option<u16> {
    number.and_then(|number| u16::try_from(number).ok())
}

fn address_from_bytes(bytes: &[u8]) -> Option<IpAddr> {
    let four = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    four().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(entry: &Entry) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_record(entry, &mut bytes);
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
            validators: Validators { etag: Some("".into()), last_modified: Some("Mon".into()) },
            content: Some([9; 32]),
            content_type: "text/html".into(),
            size: u64::MAX,
            depth: Some(0),
            source: Some("sitemap".into()),
            space: Some("north".into()),
            temporary_errors: u32::MAX,
        };
        let four = Record { address: Some("192.0.2.7".parse().unwrap()), ..Record::default() };
        let perhaps = Record { indexed: Indexed::Perhaps, ..Record::default() };
        for (record, content) in
            [(full, Some(Key([1; 16]))), (Record::default(), None), (four, None), (perhaps, None)]
        {
            let entry = Entry { record: Arc::new(record), content };
            assert_eq!(content_of_record(&bytes_of(&entry)), content);
            assert_eq!(record_from_bytes(&bytes_of(&entry)), Some(entry));
        }
    }

    #[test]
    fn every_status_kind_and_reason_is_read_as_it_is_written() {
        for status in CrawlStatus::ALL {
            assert_eq!(status_of(number_of(status)), Some(status));
        }
        assert_eq!(status_of(99), None);
        for (kind, why) in EventKind::ALL.into_iter().flat_map(|kind| Why::ALL.map(|why| (kind, why))) {
            let event = Event {
                at: At(5),
                kind,
                why,
                crawler: "news".into(),
                url: "http://h.test/".into(),
                code: Some(760),
                status: None,
                rule: Some("r".into()),
                revision: "0".into(),
            };
            assert_eq!(time_of_event(&event_to_bytes(&event)), Some(At(5)));
            assert_eq!(event_from_bytes(&event_to_bytes(&event)), Some(event));
        }
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over_and_what_is_no_record_is_refused() {
        let entry = Entry { record: Arc::new(Record { size: 3, ..Record::default() }), content: None };
        let mut bytes = bytes_of(&entry);
        // Field 1000, one byte of text.
        bytes.extend([0xc2, 0x3e, 1, b'x']);
        assert_eq!(record_from_bytes(&bytes), Some(entry));
        assert_eq!(record_from_bytes(&[0xff; 5]), None);
    }
}
