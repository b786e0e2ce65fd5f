//! A socket between the `h2` crate and its peer that reports the frames in both directions, and
//! limits the frames that are received in one turn.
//!
//! `h2` handles every frame that it has read in the same poll. The smallest ones cost a hundred
//! times as much for each byte as those of full size, so a limit of bytes does not bound a poll.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::{FrameEvent, FrameParser};
use crate::proxy::turn::TurnWork;

/// The work of a frame, whatever its size: `h2` looks up its stream and wakes the task that reads
/// it.
const FRAME: usize = TurnWork::MAX / 400;
/// The work of a received byte.
const BYTE: usize = 8;

/// Receives the frames of a connection.
pub trait FrameObserver {
    /// Called for the frames that the peer sends, before `h2` sees them.
    fn on_received(&mut self, event: FrameEvent) -> ObserverVerdict;
    /// Called for the frames that were written to the stream below.
    fn on_sent(&mut self, event: FrameEvent) -> ObserverVerdict;
    /// Called when no more frames are received in this turn.
    fn on_turn_end(&mut self) {}
}

/// The consequence of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObserverVerdict {
    Continue,
    /// Nothing more is read: the peer has exceeded a limit. The task that drives the connection
    /// closes it; it learns of this from the observer, after each poll.
    StopReading,
}

/// A socket whose frames are observed.
///
/// The frames of the turn that exceeds a limit are still passed on.
#[derive(Debug)]
pub struct ObservedStream<S, O> {
    stream: S,
    observer: O,
    received: FrameParser,
    sent: FrameParser,
    reading: ObserverVerdict,
    turn: TurnWork,
    /// Received bytes after the last frame of a turn. Empty unless frames are very small.
    held: BytesMut,
}

impl<S, O: FrameObserver> ObservedStream<S, O> {
    /// Wraps a client's socket.
    pub fn with_client(stream: S, observer: O) -> Self {
        Self {
            stream,
            observer,
            received: FrameParser::for_client(),
            sent: FrameParser::for_server(),
            reading: ObserverVerdict::Continue,
            turn: TurnWork::default(),
            held: BytesMut::new(),
        }
    }

    /// Wraps an origin's socket.
    pub fn with_origin(stream: S, observer: O) -> Self {
        Self {
            stream,
            observer,
            received: FrameParser::for_server(),
            sent: FrameParser::for_client(),
            reading: ObserverVerdict::Continue,
            turn: TurnWork::default(),
            held: BytesMut::new(),
        }
    }

    /// Observes received bytes up to the last frame of this turn. Returns their number.
    fn observe_received(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while let Some(event) = self.received.next_event(&mut rest) {
            let verdict = self.observer.on_received(event);
            self.apply(verdict);
            if matches!(event, FrameEvent::Ended(_)) && self.turn.add(FRAME) {
                break;
            }
        }
        bytes.len() - rest.len()
    }

    /// Passes on bytes that were held in an earlier turn.
    fn read_held(&mut self, out: &mut ReadBuf<'_>) {
        let mut held = std::mem::take(&mut self.held);
        let room = held.len().min(out.remaining());
        let passed = self.observe_received(held.get(..room).unwrap_or_default());
        out.put_slice(held.get(..passed).unwrap_or_default());
        held.advance(passed);
        if !held.is_empty() {
            self.held = held;
        }
    }

    /// Observes the first `count` bytes of the slices.
    fn observe_sent(&mut self, slices: &[IoSlice<'_>], mut count: usize) {
        for slice in slices {
            let mut bytes = slice.get(..count).unwrap_or(slice);
            count -= bytes.len();
            while let Some(event) = self.sent.next_event(&mut bytes) {
                let verdict = self.observer.on_sent(event);
                self.apply(verdict);
            }
        }
    }

    fn apply(&mut self, verdict: ObserverVerdict) {
        if verdict == ObserverVerdict::StopReading {
            self.reading = verdict;
        }
    }
}

impl<S: AsyncRead + Unpin, O: FrameObserver + Unpin> AsyncRead for ObservedStream<S, O> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.reading == ObserverVerdict::StopReading {
            return Poll::Pending;
        }
        if this.turn.poll_pause(cx).is_pending() {
            this.observer.on_turn_end();
            return Poll::Pending;
        }
        if !this.held.is_empty() {
            this.read_held(out);
            return Poll::Ready(Ok(()));
        }
        let before = out.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, out))?;
        let received = out.filled().get(before..).unwrap_or_default();
        this.turn.add(BYTE * received.len());
        let passed = this.observe_received(received);
        this.held
            .extend_from_slice(received.get(passed..).unwrap_or_default());
        out.set_filled(before + passed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, O: FrameObserver + Unpin> AsyncWrite for ObservedStream<S, O> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.observe_sent(&[IoSlice::new(bytes)], sent);
        Poll::Ready(Ok(sent))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, slices))?;
        this.observe_sent(slices, sent);
        Poll::Ready(Ok(sent))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::proxy::http2::frame::{FrameKind, PREFACE};

    /// Records the ends of frames, and stops at the second PING.
    #[derive(Default)]
    struct FrameLog {
        received: Vec<FrameKind>,
        sent: Vec<FrameKind>,
    }

    impl FrameObserver for &mut FrameLog {
        fn on_received(&mut self, event: FrameEvent) -> ObserverVerdict {
            if let FrameEvent::Ended(head) = event {
                self.received.push(head.kind);
            }
            let pings = self
                .received
                .iter()
                .filter(|kind| **kind == FrameKind::Ping);
            if pings.count() == 2 {
                ObserverVerdict::StopReading
            } else {
                ObserverVerdict::Continue
            }
        }

        fn on_sent(&mut self, event: FrameEvent) -> ObserverVerdict {
            if let FrameEvent::Ended(head) = event {
                self.sent.push(head.kind);
            }
            ObserverVerdict::Continue
        }
    }

    const DATA: [u8; 10] = [0, 0, 1, 0, 0, 0, 0, 0, 1, b'a'];
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

    /// Reads until nothing is ready. Returns `true` at the end of the stream.
    fn read_turn(
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
        received: &mut Vec<u8>,
    ) -> bool {
        loop {
            let mut room = [0; 8 * 1024];
            let mut out = ReadBuf::new(&mut room);
            match Pin::new(&mut *stream).poll_read(cx, &mut out) {
                Poll::Pending => return false,
                Poll::Ready(read) => read.unwrap(),
            }
            if out.filled().is_empty() {
                return true;
            }
            received.extend_from_slice(out.filled());
        }
    }

    #[tokio::test]
    async fn a_turn_has_a_limited_number_of_frames() {
        const COUNT: usize = 3_000;
        let max = TurnWork::MAX.div_ceil(FRAME);
        let mut log = FrameLog::default();
        let (mut client, proxy) = tokio::io::duplex(64 * 1024);
        let mut stream = ObservedStream::with_client(proxy, &mut log);
        let bytes = [PREFACE, &DATA.repeat(COUNT)].concat();
        client.write_all(&bytes).await.unwrap();
        drop(client);
        let mut received = Vec::new();
        let mut turns = 0;
        // The end of the stream comes after the bytes that were held.
        let mut is_over = false;
        while !is_over {
            turns += 1;
            let before = received.len();
            is_over = poll_fn(|cx| Poll::Ready(read_turn(&mut stream, cx, &mut received))).await;
            let frames = (received.len() - before) / DATA.len();
            assert!(
                frames <= max + PREFACE.len() / DATA.len() + 1,
                "{frames} in turn {turns}"
            );
            tokio::task::yield_now().await;
        }
        assert!(received == bytes, "{} of {}", received.len(), bytes.len());
        assert!(turns >= COUNT / max, "{turns}");
        assert_eq!(log.received.len(), COUNT);
    }

    #[tokio::test]
    async fn frames_are_reported_until_a_limit_stops_the_reading() {
        let mut log = FrameLog::default();
        let (mut client, proxy) = tokio::io::duplex(1024);
        let mut stream = ObservedStream::with_client(proxy, &mut log);
        let bytes = [PREFACE, &SETTINGS, &PING, &PING].concat();
        client.write_all(&bytes).await.unwrap();
        let mut received = vec![0; bytes.len()];
        stream.read_exact(&mut received).await.unwrap();
        assert_eq!(received, bytes);
        client.write_all(&PING).await.unwrap();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut room = [0; 64];
        let next = Pin::new(&mut stream).poll_read(&mut context, &mut ReadBuf::new(&mut room));
        assert!(next.is_pending(), "nothing is read after the limit");
        stream.write_all(&SETTINGS).await.unwrap();
        let slices = [IoSlice::new(&PING[..5]), IoSlice::new(&PING[5..])];
        assert_eq!(stream.write_vectored(&slices).await.unwrap(), PING.len());
        assert_eq!(
            log.received,
            [FrameKind::Settings, FrameKind::Ping, FrameKind::Ping]
        );
        assert_eq!(log.sent, [FrameKind::Settings, FrameKind::Ping]);
    }
}
