//! Reads the body of a robots.txt file, up to the size limit before and after decoding.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;

use crate::proxy::body::{BodyError, ResponseDownload};
use crate::robots::MAX_FILE_BYTES;
use crate::robots::fetch_outcome::RobotsFetchOutcome;

/// A supported content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RobotsCoding {
    Identity,
    Gzip,
}

/// Reads a body. One byte more than the limit is kept, so that a longer file can be recognized; the
/// rest is not read.
pub(super) async fn read_body(
    mut download: Box<ResponseDownload>,
    coding: RobotsCoding,
) -> Result<Vec<u8>, RobotsFetchOutcome> {
    let mut text = RobotsBodyReader::new(coding);
    while text.space() == BufferSpace::Some {
        match download.next().await {
            Some(Ok(part)) => text.push(&part)?,
            Some(Err(BodyError::Idle)) => return Err(RobotsFetchOutcome::Timeout),
            Some(Err(BodyError::Incomplete | BodyError::ClientLeft | BodyError::TooLarge)) => {
                return Err(RobotsFetchOutcome::Broken);
            }
            None => return text.finish(),
        }
    }
    Ok(text.into_truncated())
}

/// A body that is being read.
enum RobotsBodyReader {
    Identity(LimitedBuffer),
    Gzip(Box<MultiGzDecoder<LimitedBuffer>>, CompressedBytes),
}

/// The number of bytes before decoding. The same limit applies to it: text rarely grows by
/// compression.
struct CompressedBytes(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BufferSpace {
    Some,
    None,
}

impl RobotsBodyReader {
    fn new(coding: RobotsCoding) -> Self {
        match coding {
            RobotsCoding::Identity => Self::Identity(LimitedBuffer::default()),
            RobotsCoding::Gzip => Self::Gzip(
                Box::new(MultiGzDecoder::new(LimitedBuffer::default())),
                CompressedBytes(0),
            ),
        }
    }

    /// Adds a part of the body. Bytes that cannot be decoded are an error, unless the buffer is
    /// full already.
    fn push(&mut self, part: &[u8]) -> Result<(), RobotsFetchOutcome> {
        match self {
            Self::Identity(text) => {
                // Bytes above the limit are not used.
                let _ = text.write_all(part);
                Ok(())
            }
            Self::Gzip(decoder, compressed) => {
                compressed.0 = compressed.0.saturating_add(part.len());
                let decoded = decoder.write_all(part);
                let full = decoder.get_ref().space() == BufferSpace::None;
                if full {
                    Ok(())
                } else {
                    decoded.map_err(|_| RobotsFetchOutcome::UnsupportedCoding)
                }
            }
        }
    }

    fn space(&self) -> BufferSpace {
        match self {
            Self::Identity(text) => text.space(),
            Self::Gzip(_, CompressedBytes(bytes)) if *bytes > MAX_FILE_BYTES => BufferSpace::None,
            Self::Gzip(decoder, _) => decoder.get_ref().space(),
        }
    }

    /// Completes a body that has ended.
    fn finish(self) -> Result<Vec<u8>, RobotsFetchOutcome> {
        match self {
            Self::Identity(text) => Ok(text.0),
            Self::Gzip(mut decoder, _) => {
                decoder
                    .try_finish()
                    .map_err(|_| RobotsFetchOutcome::UnsupportedCoding)?;
                Ok(std::mem::take(decoder.get_mut()).0)
            }
        }
    }

    /// Returns the beginning of a body that exceeds the limit.
    fn into_truncated(self) -> Vec<u8> {
        match self {
            Self::Identity(text) => text.0,
            Self::Gzip(mut decoder, _) => std::mem::take(decoder.get_mut()).0,
        }
    }
}

/// A buffer with a size limit. A decoder that writes more gets an error.
#[derive(Debug, Default)]
struct LimitedBuffer(Vec<u8>);

impl LimitedBuffer {
    fn space(&self) -> BufferSpace {
        if self.0.len() > MAX_FILE_BYTES {
            BufferSpace::None
        } else {
            BufferSpace::Some
        }
    }
}

impl Write for LimitedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = (MAX_FILE_BYTES + 1).saturating_sub(self.0.len());
        if room == 0 {
            return if bytes.is_empty() {
                Ok(0)
            } else {
                Err(io::ErrorKind::FileTooLarge.into())
            };
        }
        let part = bytes.get(..room).unwrap_or(bytes);
        self.0.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
