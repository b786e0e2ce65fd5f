//! A socket between the `h2` crate and its peer that reports the frames in both directions.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::{FrameEvent, FrameParser};

/// Receives the frames of a connection.
pub trait FrameObserver {
    /// Called for the frames that the peer sends, before `h2` sees them.
    fn on_received(&mut self, event: FrameEvent) -> ObserverVerdict;
    /// Called for the frames that were written to the stream below.
    fn on_sent(&mut self, event: FrameEvent) -> ObserverVerdict;
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
/// What has been read when a limit is exceeded is still passed on: the buffer of `h2` bounds it.
#[derive(Debug)]
pub struct ObservedStream<S, O> {
    stream: S,
    observer: O,
    received: FrameParser,
    sent: FrameParser,
    reading: ObserverVerdict,
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
        }
    }

    fn observe_received(&mut self, mut bytes: &[u8]) {
        while let Some(event) = self.received.next_event(&mut bytes) {
            let verdict = self.observer.on_received(event);
            self.apply(verdict);
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
        let before = out.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, out))?;
        this.observe_received(out.filled().get(before..).unwrap_or_default());
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

    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

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
