//! The body of a robots.txt: read up to what is used of one, before and behind its coding.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;

use crate::proxy::body::{BodyError, Download};
use crate::robots::MAX_BYTES;
use crate::robots::ending::Ending;

/// A content coding that can be taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
}

/// Reads a body. One byte more than is used is kept, so that a longer file is known for one; the rest is not read.
pub(super) async fn read(mut download: Box<Download>, coding: Coding) -> Result<Vec<u8>, Ending> {
    let mut text = Text::new(coding);
    while text.room() == Room::Some {
        match download.next().await {
            Some(Ok(part)) => text.add(&part)?,
            Some(Err(BodyError::Idle)) => return Err(Ending::Timeout),
            Some(Err(BodyError::Incomplete | BodyError::Left | BodyError::TooLarge)) => {
                return Err(Ending::Broken);
            }
            None => return text.whole(),
        }
    }
    Ok(text.cut())
}

/// What has been read.
enum Text {
    Identity(Limited),
    Gzip(Box<MultiGzDecoder<Limited>>, Compressed),
}

/// Bytes before they are decoded: a text hardly grows by being compressed.
struct Compressed(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Some,
    None,
}

impl Text {
    fn new(coding: Coding) -> Self {
        match coding {
            Coding::Identity => Self::Identity(Limited::default()),
            Coding::Gzip => Self::Gzip(
                Box::new(MultiGzDecoder::new(Limited::default())),
                Compressed(0),
            ),
        }
    }

    /// Bytes that cannot be decoded are a mistake, unless there is enough before them.
    fn add(&mut self, part: &[u8]) -> Result<(), Ending> {
        match self {
            Self::Identity(text) => {
                // What finds no room is not used.
                let _ = text.write_all(part);
                Ok(())
            }
            Self::Gzip(decoder, compressed) => {
                compressed.0 = compressed.0.saturating_add(part.len());
                let decoded = decoder.write_all(part);
                let full = decoder.get_ref().room() == Room::None;
                if full {
                    Ok(())
                } else {
                    decoded.map_err(|_| Ending::Coding)
                }
            }
        }
    }

    fn room(&self) -> Room {
        match self {
            Self::Identity(text) => text.room(),
            Self::Gzip(_, Compressed(bytes)) if *bytes > MAX_BYTES => Room::None,
            Self::Gzip(decoder, _) => decoder.get_ref().room(),
        }
    }

    /// The body has ended.
    fn whole(self) -> Result<Vec<u8>, Ending> {
        match self {
            Self::Identity(text) => Ok(text.0),
            Self::Gzip(mut decoder, _) => {
                decoder.try_finish().map_err(|_| Ending::Coding)?;
                Ok(std::mem::take(decoder.get_mut()).0)
            }
        }
    }

    /// The body goes on, and enough of it is here.
    fn cut(self) -> Vec<u8> {
        match self {
            Self::Identity(text) => text.0,
            Self::Gzip(mut decoder, _) => std::mem::take(decoder.get_mut()).0,
        }
    }
}

/// Takes bytes as long as there is room; a decoder that offers more is stopped.
#[derive(Debug, Default)]
struct Limited(Vec<u8>);

impl Limited {
    fn room(&self) -> Room {
        if self.0.len() > MAX_BYTES {
            Room::None
        } else {
            Room::Some
        }
    }
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = (MAX_BYTES + 1).saturating_sub(self.0.len());
        if room == 0 {
            return if bytes.is_empty() {
                Ok(0)
            } else {
                Err(io::ErrorKind::FileTooLarge.into())
            };
        }
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.0.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
