//! The encoding of records and events: protobuf messages, so that later versions can add fields and still read these.
//!
//! The numbers of fields and enum values never change.

pub(super) mod event;
pub(super) mod record;
pub(super) mod removal;

use prost::encoding::{WireType, decode_key, decode_varint, encode_varint, encoded_len_varint};

use crate::model::crawl_status::CrawlStatus;

/// Writes the fields of a message.
pub(super) struct MessageWriter<'b>(pub(super) &'b mut Vec<u8>);

impl MessageWriter<'_> {
    pub(super) fn write_number(&mut self, tag: u32, number: Option<u64>) {
        let Some(number) = number else { return };
        self.write_varint(field_key(tag, WireType::Varint));
        self.write_varint(number);
    }

    /// Writes a number, unless it is 0, the default.
    pub(super) fn write_nonzero(&mut self, tag: u32, number: u64) {
        self.write_number(tag, Some(number).filter(|number| *number != 0));
    }

    pub(super) fn write_text(&mut self, tag: u32, text: Option<&str>) {
        self.write_bytes(tag, text.map(str::as_bytes));
    }

    pub(super) fn write_bytes(&mut self, tag: u32, bytes: Option<&[u8]>) {
        let Some(bytes) = bytes else { return };
        self.begin_bytes(tag, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// Begins a field whose `length` bytes follow.
    pub(super) fn begin_bytes(&mut self, tag: u32, length: usize) {
        self.write_varint(field_key(tag, WireType::LengthDelimited));
        self.write_varint(length as u64);
    }

    /// Most numbers are short.
    fn write_varint(&mut self, number: u64) {
        if number < 0x80 {
            self.0.push(number as u8);
        } else {
            encode_varint(number, self.0);
        }
    }
}

fn field_key(tag: u32, kind: WireType) -> u64 {
    u64::from(tag) << 3 | kind as u64
}

/// Returns the encoded length of a field of bytes with a number below 16.
pub(super) fn bytes_field_len(bytes: &[u8]) -> usize {
    1 + encoded_len_varint(bytes.len() as u64) + bytes.len()
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireField<'b> {
    Number(u64),
    Bytes(&'b [u8]),
    /// A type that only later versions use.
    Unknown,
}

/// Iterates over the fields of a message, with their numbers. Ends with an error if the bytes are not a message.
pub(super) struct MessageFields<'b>(pub(super) &'b [u8]);

/// The bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedMessage;

impl<'b> Iterator for MessageFields<'b> {
    type Item = Result<(u32, WireField<'b>), MalformedMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.next_field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(MalformedMessage))
    }
}

impl<'b> MessageFields<'b> {
    fn next_field(&mut self) -> Option<(u32, WireField<'b>)> {
        let (tag, kind) = decode_key(&mut self.0).ok()?;
        let field = match kind {
            WireType::Varint => WireField::Number(decode_varint(&mut self.0).ok()?),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut self.0).ok()?).ok()?;
                WireField::Bytes(self.take_bytes(length)?)
            }
            WireType::SixtyFourBit => self.take_bytes(8).map(|_| WireField::Unknown)?,
            WireType::ThirtyTwoBit => self.take_bytes(4).map(|_| WireField::Unknown)?,
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        Some((tag, field))
    }

    fn take_bytes(&mut self, length: usize) -> Option<&'b [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

/// Returns the number of a status, which is independent of the order in the documentation.
pub(super) fn status_number(status: CrawlStatus) -> u32 {
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

/// Returns the status with a number.
pub(super) fn status_from_number(number: u32) -> Option<CrawlStatus> {
    CrawlStatus::ALL
        .into_iter()
        .find(|status| status_number(*status) == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_round_trips() {
        for status in CrawlStatus::ALL {
            assert_eq!(status_from_number(status_number(status)), Some(status));
        }
        assert_eq!(status_from_number(99), None);
    }

    #[test]
    fn fields_round_trip_and_malformed_messages_are_errors() {
        let mut bytes = Vec::new();
        let mut writer = MessageWriter(&mut bytes);
        writer.write_number(3, Some(u64::MAX));
        writer.write_number(4, None);
        writer.write_bytes(15, Some(&[7; 200]));
        assert_eq!(bytes_field_len(&[7; 200]), 203);
        writer.write_text(1000, Some(""));
        // Eight bytes, four bytes.
        let numbers = [0x29, 1, 2, 3, 4, 5, 6, 7, 8, 0x35, 1, 2, 3, 4];
        bytes.extend(numbers);
        let fields: Result<Vec<_>, _> = MessageFields(&bytes).collect();
        let expected = [
            (3, WireField::Number(u64::MAX)),
            (15, WireField::Bytes(&[7; 200])),
            (1000, WireField::Bytes(&[])),
            (5, WireField::Unknown),
            (6, WireField::Unknown),
        ];
        assert_eq!(fields.as_deref(), Ok(&expected[..]));
        // A truncated message has fewer fields, or is an error.
        let ends: Vec<usize> = (0..=bytes.len())
            .filter(|end| MessageFields(bytes.get(..*end).unwrap()).all(|field| field.is_ok()))
            .collect();
        assert_eq!(ends, [0, 11, 214, 217, 226, 231]);
        for broken in [
            &[0xff; 11][..],
            &[0x0b],
            &[0x0c],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ] {
            assert_eq!(
                MessageFields(broken).last(),
                Some(Err(MalformedMessage)),
                "{broken:?}"
            );
        }
    }
}
