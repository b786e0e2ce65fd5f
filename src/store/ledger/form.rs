//! How records and events are written: protobuf messages, so that later versions add fields and read these.
//!
//! Numbers of fields and of words are for ever.

pub(super) mod event;
pub(super) mod record;

use prost::encoding::{WireType, decode_key, decode_varint, encode_varint, encoded_len_varint};

use crate::vocab::crawl_status::CrawlStatus;

/// Writes the fields of a message, one after the other.
pub(super) struct Form<'b>(pub(super) &'b mut Vec<u8>);

impl Form<'_> {
    pub(super) fn number(&mut self, tag: u32, number: Option<u64>) {
        let Some(number) = number else { return };
        self.varint(key(tag, WireType::Varint));
        self.varint(number);
    }

    /// A number that is zero where it is not written.
    pub(super) fn plain(&mut self, tag: u32, number: u64) {
        self.number(tag, Some(number).filter(|number| *number != 0));
    }

    pub(super) fn text(&mut self, tag: u32, text: Option<&str>) {
        self.bytes(tag, text.map(str::as_bytes));
    }

    pub(super) fn bytes(&mut self, tag: u32, bytes: Option<&[u8]>) {
        let Some(bytes) = bytes else { return };
        self.begin(tag, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// What follows are so many bytes of this field.
    pub(super) fn begin(&mut self, tag: u32, length: usize) {
        self.varint(key(tag, WireType::LengthDelimited));
        self.varint(length as u64);
    }

    /// Most are short.
    fn varint(&mut self, number: u64) {
        if number < 0x80 {
            self.0.push(number as u8);
        } else {
            encode_varint(number, self.0);
        }
    }
}

fn key(tag: u32, kind: WireType) -> u64 {
    u64::from(tag) << 3 | kind as u64
}

/// What a field of bytes takes, its number below 16.
pub(super) fn length_of_bytes(bytes: &[u8]) -> usize {
    1 + encoded_len_varint(bytes.len() as u64) + bytes.len()
}

/// A field of a message, as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
    /// One that only a later version knows.
    Other,
}

/// Reads the fields of a message, one after the other, with their numbers. What is no message ends in an error.
pub(super) struct Fields<'b>(pub(super) &'b [u8]);

/// It is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

impl<'b> Iterator for Fields<'b> {
    type Item = Result<(u32, Field<'b>), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(Broken))
    }
}

impl<'b> Fields<'b> {
    fn field(&mut self) -> Option<(u32, Field<'b>)> {
        let (tag, kind) = decode_key(&mut self.0).ok()?;
        let field = match kind {
            WireType::Varint => Field::Number(decode_varint(&mut self.0).ok()?),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut self.0).ok()?).ok()?;
                Field::Bytes(self.take(length)?)
            }
            WireType::SixtyFourBit => self.take(8).map(|_| Field::Other)?,
            WireType::ThirtyTwoBit => self.take(4).map(|_| Field::Other)?,
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        Some((tag, field))
    }

    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
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
    CrawlStatus::ALL
        .into_iter()
        .find(|status| number_of(*status) == number)
}

fn short(number: Option<u64>) -> Option<u16> {
    number.and_then(|number| u16::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_read_as_it_is_written() {
        for status in CrawlStatus::ALL {
            assert_eq!(status_of(number_of(status)), Some(status));
        }
        assert_eq!(status_of(99), None);
    }

    #[test]
    fn fields_are_read_as_they_are_written_and_what_is_no_message_is_an_error() {
        let mut bytes = Vec::new();
        let mut form = Form(&mut bytes);
        form.number(3, Some(u64::MAX));
        form.number(4, None);
        form.bytes(15, Some(&[7; 200]));
        assert_eq!(length_of_bytes(&[7; 200]), 203);
        form.text(1000, Some(""));
        // Eight bytes, four bytes.
        let numbers = [0x29, 1, 2, 3, 4, 5, 6, 7, 8, 0x35, 1, 2, 3, 4];
        bytes.extend(numbers);
        let fields: Result<Vec<_>, _> = Fields(&bytes).collect();
        let expected = [
            (3, Field::Number(u64::MAX)),
            (15, Field::Bytes(&[7; 200])),
            (1000, Field::Bytes(&[])),
            (5, Field::Other),
            (6, Field::Other),
        ];
        assert_eq!(fields.as_deref(), Ok(&expected[..]));
        // Wherever it breaks off it is one field less, or an error.
        let whole = |end: usize| Fields(bytes.get(..end).unwrap()).collect::<Result<Vec<_>, _>>();
        let ends: Vec<usize> = (0..=bytes.len())
            .filter(|end| whole(*end).is_ok())
            .collect();
        assert_eq!(ends, [0, 11, 214, 217, 226, 231]);
        for broken in [
            &[0xff; 11][..],
            &[0x0b],
            &[0x0c],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ] {
            assert_eq!(Fields(broken).last(), Some(Err(Broken)), "{broken:?}");
        }
    }
}
