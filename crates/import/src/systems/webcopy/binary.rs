//! The binary form: big-endian, strings and lists after their lengths, packed by gzip or deflate, or not packed.
//!
//! The place of a tag is its line in the dump.

use std::collections::BTreeSet;
use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use crate::input::MAX_DOCUMENT;

use super::tree::{MAX_DEPTH, NbtKind, NbtTag, NbtValue, TagNumbers};

/// The type of the first tag.
const COMPOUND: u8 = 10;

/// Unpacks a file. `max` is the maximum number of bytes; the bytes after it are not unpacked.
pub(super) fn unpack(bytes: &[u8], max: usize) -> Result<Vec<u8>, String> {
    match bytes {
        [0x1f, 0x8b, ..] => read_packed(MultiGzDecoder::new(bytes), max),
        [COMPOUND, ..] => Ok(bytes.to_vec()),
        [0x78, flags, ..] if (0x7800 + u16::from(*flags)).is_multiple_of(31) => {
            read_packed(ZlibDecoder::new(bytes), max)
        }
        _ => match read_packed(DeflateDecoder::new(bytes), max) {
            Ok(unpacked) if unpacked.first() == Some(&COMPOUND) => Ok(unpacked),
            Ok(_) | Err(_) => Err("neither NBT, packed or not, nor its form in XML".to_owned()),
        },
    }
}

fn read_packed(decoder: impl Read, max: usize) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX);
    match decoder.take(limit).read_to_end(&mut unpacked) {
        Ok(_) => Ok(unpacked),
        Err(error) => Err(format!("cannot be unpacked: {error}")),
    }
}

/// Unpacks the first bytes of a file whose end may be missing.
pub(super) fn unpack_beginning(bytes: &[u8]) -> Vec<u8> {
    const MAX: u64 = 1 << 10;
    let mut unpacked = Vec::new();
    // What was unpacked before an error is enough.
    let _ = match bytes {
        [0x1f, 0x8b, ..] => MultiGzDecoder::new(bytes)
            .take(MAX)
            .read_to_end(&mut unpacked),
        [0x78, ..] => ZlibDecoder::new(bytes).take(MAX).read_to_end(&mut unpacked),
        [COMPOUND, ..] => bytes.take(MAX).read_to_end(&mut unpacked),
        _ => DeflateDecoder::new(bytes)
            .take(MAX)
            .read_to_end(&mut unpacked),
    };
    unpacked
}

/// Reads the tree of a file.
pub(super) fn read(bytes: &[u8]) -> Result<NbtTag, String> {
    let unpacked = unpack(bytes, MAX_DOCUMENT + 1)?;
    if unpacked.len() > MAX_DOCUMENT {
        return Err(format!("unpacked larger than {} MiB", MAX_DOCUMENT >> 20));
    }
    let mut reader = NbtReader {
        bytes: &unpacked,
        at: 0,
        numbers: TagNumbers::default(),
    };
    let root = reader.document();
    let root = root.map_err(|why| format!("byte {} of the unpacked file: {why}", reader.at))?;
    match unpacked.len() - reader.at {
        0 => Ok(root),
        rest => Err(format!("{rest} bytes after the end of the first tag")),
    }
}

struct NbtReader<'b> {
    bytes: &'b [u8],
    at: usize,
    numbers: TagNumbers,
}

impl NbtReader<'_> {
    fn document(&mut self) -> Result<NbtTag, String> {
        match self.kind()? {
            NbtKind::Compound => {}
            NbtKind::End
            | NbtKind::Byte
            | NbtKind::Short
            | NbtKind::Int
            | NbtKind::Long
            | NbtKind::Float
            | NbtKind::Double
            | NbtKind::ByteArray
            | NbtKind::Text
            | NbtKind::List
            | NbtKind::IntArray => return Err("the first tag is not a compound".to_owned()),
        }
        let name = self.string()?;
        self.tag(NbtKind::Compound, name, 0)
    }

    fn take(&mut self, count: usize) -> Result<&[u8], String> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| {
            let left = self.bytes.len().saturating_sub(self.at);
            format!("{count} bytes are announced, {left} are left")
        })?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| "cut off".to_owned())
    }

    fn kind(&mut self) -> Result<NbtKind, String> {
        let [number] = self.array()?;
        NbtKind::from_number(number).ok_or_else(|| format!("a tag of the unknown type {number}"))
    }

    fn string(&mut self) -> Result<String, String> {
        let length = u16::from_be_bytes(self.array()?);
        let bytes = self.take(usize::from(length))?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Reads the number of items of a list or an array, each of which takes `size` bytes or more.
    fn count(&mut self, size: usize) -> Result<u32, String> {
        let length = i32::from_be_bytes(self.array()?);
        let count = u32::try_from(length).map_err(|_| format!("a list of {length} items"))?;
        let left = self.bytes.len().saturating_sub(self.at);
        let needed = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(size));
        if needed.is_none_or(|needed| needed > left) {
            return Err(format!(
                "{count} items of {size} bytes or more are announced, {left} bytes are left"
            ));
        }
        Ok(count)
    }

    fn tag(&mut self, kind: NbtKind, name: String, depth: usize) -> Result<NbtTag, String> {
        if depth > MAX_DEPTH {
            return Err(format!("tags are nested more than {MAX_DEPTH} deep"));
        }
        let index = self.numbers.next()?;
        let value = self.value(kind, depth)?;
        let numbers = match &value {
            NbtValue::Numbers { count, .. } => *count,
            NbtValue::Integer { .. }
            | NbtValue::Real { .. }
            | NbtValue::Text(_)
            | NbtValue::List { .. }
            | NbtValue::Compound(_) => 0,
        };
        Ok(NbtTag {
            name,
            index,
            line: u32::try_from(index + 1).unwrap_or(u32::MAX),
            column: u32::try_from(2 * depth + 1).unwrap_or(u32::MAX),
            units: numbers.saturating_add(1),
            value,
        })
    }

    fn value(&mut self, kind: NbtKind, depth: usize) -> Result<NbtValue, String> {
        Ok(match kind {
            NbtKind::End => return Err("an end where a value is expected".to_owned()),
            NbtKind::Byte => integer(kind, i8::from_be_bytes(self.array()?)),
            NbtKind::Short => integer(kind, i16::from_be_bytes(self.array()?)),
            NbtKind::Int => integer(kind, i32::from_be_bytes(self.array()?)),
            NbtKind::Long => integer(kind, i64::from_be_bytes(self.array()?)),
            NbtKind::Float => {
                let value = f64::from(f32::from_be_bytes(self.array()?));
                NbtValue::Real { kind, value }
            }
            NbtKind::Double => {
                let value = f64::from_be_bytes(self.array()?);
                NbtValue::Real { kind, value }
            }
            NbtKind::Text => NbtValue::Text(self.string()?),
            NbtKind::ByteArray => self.numbers(NbtKind::Byte, 1)?,
            NbtKind::IntArray => self.numbers(NbtKind::Int, 4)?,
            NbtKind::List => self.list(depth)?,
            NbtKind::Compound => NbtValue::Compound(self.compound(depth)?),
        })
    }

    /// Skips the numbers of an array or a list.
    fn numbers(&mut self, kind: NbtKind, size: usize) -> Result<NbtValue, String> {
        let count = self.count(size)?;
        let length = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(size));
        self.take(length.unwrap_or(usize::MAX))?;
        Ok(NbtValue::Numbers { kind, count })
    }

    fn list(&mut self, depth: usize) -> Result<NbtValue, String> {
        let kind = self.kind()?;
        let size = match kind {
            NbtKind::Byte => return self.numbers(kind, 1),
            NbtKind::Short => return self.numbers(kind, 2),
            NbtKind::Int | NbtKind::Float => return self.numbers(kind, 4),
            NbtKind::Long | NbtKind::Double => return self.numbers(kind, 8),
            // Only a list without items has this type.
            NbtKind::End => usize::MAX,
            NbtKind::Compound => 1,
            NbtKind::Text => 2,
            NbtKind::ByteArray | NbtKind::IntArray => 4,
            NbtKind::List => 5,
        };
        let count = self.count(size)?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(self.tag(kind, String::new(), depth + 1)?);
        }
        Ok(NbtValue::List { kind, items })
    }

    fn compound(&mut self, depth: usize) -> Result<Vec<NbtTag>, String> {
        let mut tags = Vec::new();
        let mut names = BTreeSet::new();
        loop {
            let kind = self.kind()?;
            if kind == NbtKind::End {
                return Ok(tags);
            }
            let name = self.string()?;
            if !names.insert(name.clone()) {
                return Err(format!("the tag `{}` twice", name.escape_debug()));
            }
            tags.push(self.tag(kind, name, depth + 1)?);
        }
    }
}

fn integer(kind: NbtKind, value: impl Into<i64>) -> NbtValue {
    NbtValue::Integer {
        kind,
        value: value.into(),
    }
}
