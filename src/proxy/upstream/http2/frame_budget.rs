//! The number of frames without data that an origin may send.
//!
//! The budget depends on what the origin was asked for and on the data that it sends, not on time:
//! an origin earns frames with requests and data, and spends them.

use crate::metrics::labels::OriginHttp2Failure;
use crate::proxy::http2::frame::{END_STREAM, FrameHead, FrameKind};

/// The frames that any origin may send.
const START: u32 = 1_000;
/// The most frames that can be saved up.
const MAX: u32 = 10_000;
/// The frames that one request is worth: interim responses, the response, trailers.
const PER_REQUEST: u32 = 100;
/// The frames that a DATA frame to the origin is worth: updates of both windows.
const PER_SENT_DATA: u32 = 2;
/// The bytes of data from the origin that are worth one frame.
const BYTES_PER_FRAME: u32 = 1_024;

/// The frames that an origin may still send.
#[derive(Debug)]
pub(super) struct OriginFrameBudget {
    frames: u32,
    /// The bytes of data that are not yet worth a frame.
    bytes: u32,
}

impl Default for OriginFrameBudget {
    fn default() -> Self {
        Self {
            frames: START,
            bytes: 0,
        }
    }
}

impl OriginFrameBudget {
    /// Adds what a frame to the origin is worth.
    pub(super) fn record_sent(&mut self, frame: FrameHead) {
        match frame.kind {
            FrameKind::Headers => self.earn(PER_REQUEST),
            FrameKind::Data => self.earn(PER_SENT_DATA),
            FrameKind::Priority
            | FrameKind::RstStream
            | FrameKind::Settings
            | FrameKind::PushPromise
            | FrameKind::Ping
            | FrameKind::GoAway
            | FrameKind::WindowUpdate
            | FrameKind::Continuation
            | FrameKind::Extension(_) => {}
        }
    }

    /// Charges a frame of the origin.
    ///
    /// # Errors
    /// Returns the kind of the frame for which nothing is left.
    pub(super) fn charge(&mut self, frame: FrameHead) -> Result<(), OriginHttp2Failure> {
        let flood = match frame.kind {
            FrameKind::Data if frame.length > 0 => {
                self.earn_by_data(frame.length);
                return Ok(());
            }
            FrameKind::Data if frame.has(END_STREAM) => return Ok(()),
            FrameKind::Data => OriginHttp2Failure::EmptyData,
            FrameKind::Headers | FrameKind::Continuation => OriginHttp2Failure::Headers,
            FrameKind::Settings => OriginHttp2Failure::Settings,
            FrameKind::Ping => OriginHttp2Failure::Ping,
            FrameKind::RstStream => OriginHttp2Failure::RstStream,
            FrameKind::WindowUpdate => OriginHttp2Failure::WindowUpdate,
            FrameKind::Priority
            | FrameKind::PushPromise
            | FrameKind::GoAway
            | FrameKind::Extension(_) => OriginHttp2Failure::OtherFrames,
        };
        self.frames = self.frames.checked_sub(1).ok_or(flood)?;
        Ok(())
    }

    fn earn_by_data(&mut self, length: u32) {
        self.bytes = self.bytes.saturating_add(length);
        self.earn(self.bytes / BYTES_PER_FRAME);
        self.bytes %= BYTES_PER_FRAME;
    }

    fn earn(&mut self, frames: u32) {
        self.frames = (self.frames + frames).min(MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: FrameKind, length: u32, flags: u8) -> FrameHead {
        FrameHead {
            length,
            kind,
            flags,
            stream: 1,
        }
    }

    /// Returns the number of frames of one kind that a budget allows, and the failure after them.
    fn spend(budget: &mut OriginFrameBudget, head: FrameHead) -> (u32, OriginHttp2Failure) {
        for count in 0.. {
            if let Err(failure) = budget.charge(head) {
                return (count, failure);
            }
            assert!(count <= MAX);
        }
        unreachable!()
    }

    #[test]
    fn frames_without_data_are_limited_by_kind() {
        for (kind, failure) in [
            (FrameKind::Settings, OriginHttp2Failure::Settings),
            (FrameKind::Ping, OriginHttp2Failure::Ping),
            (FrameKind::RstStream, OriginHttp2Failure::RstStream),
            (FrameKind::Headers, OriginHttp2Failure::Headers),
            (FrameKind::Continuation, OriginHttp2Failure::Headers),
            (FrameKind::WindowUpdate, OriginHttp2Failure::WindowUpdate),
            (FrameKind::Extension(99), OriginHttp2Failure::OtherFrames),
            (FrameKind::Data, OriginHttp2Failure::EmptyData),
        ] {
            let head = frame(kind, 0, 0);
            assert_eq!(
                spend(&mut OriginFrameBudget::default(), head),
                (START, failure)
            );
        }
    }

    #[test]
    fn requests_and_data_earn_frames() {
        let mut budget = OriginFrameBudget::default();
        let ping = frame(FrameKind::Ping, 8, 0);
        assert_eq!(spend(&mut budget, ping).0, START);
        budget.record_sent(frame(FrameKind::Headers, 20, 0));
        budget.record_sent(frame(FrameKind::Data, 20, 0));
        budget.record_sent(frame(FrameKind::Ping, 8, 0));
        assert_eq!(spend(&mut budget, ping).0, PER_REQUEST + PER_SENT_DATA);
        for _ in 0..10 {
            assert_eq!(budget.charge(frame(FrameKind::Data, 512, 0)), Ok(()));
        }
        assert_eq!(spend(&mut budget, ping).0, 5);
        assert_eq!(budget.charge(frame(FrameKind::Data, 0, END_STREAM)), Ok(()));
        for _ in 0..MAX {
            assert_eq!(budget.charge(frame(FrameKind::Data, 16_384, 0)), Ok(()));
        }
        assert_eq!(spend(&mut budget, ping).0, MAX);
    }
}
