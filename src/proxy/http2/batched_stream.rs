//! Collects what `h2` writes in one poll of a connection, so that it leaves in one piece.
//!
//! `h2` writes and flushes each DATA frame by itself. Of several streams whose responses are ready
//! at the same time, each would take a TLS record, a system call and a packet of its own.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The largest write that is copied into a batch.
const MAX_COPY: usize = 4096;
/// The maximum size of a batch: that of a TLS record.
const MAX_BATCH: usize = 16 << 10;

/// A socket whose small writes are collected until its [`BatchFlusher`] is polled. `h2` knows nothing
/// of it: the task that polls a connection must poll the flusher after it.
#[derive(Debug)]
pub(super) struct BatchedStream<S>(Arc<Mutex<CollectedWrites<S>>>);

/// Sends what a [`BatchedStream`] has collected, and receives what is left when a connection is closed.
#[derive(Debug)]
pub(super) struct BatchFlusher<S>(Arc<Mutex<CollectedWrites<S>>>);

/// The socket is used by one task, so the lock around it is never contended.
#[derive(Debug)]
struct CollectedWrites<S> {
    stream: S,
    /// Holds no memory while nothing is collected, as most of the time on an idle connection.
    collected: Vec<u8>,
    /// The number of collected bytes that were sent.
    sent: usize,
    /// The socket did not accept the last large write.
    is_blocked: bool,
}

impl<S> BatchedStream<S> {
    pub(super) fn new(stream: S) -> (Self, BatchFlusher<S>) {
        let batch = Arc::new(Mutex::new(CollectedWrites {
            stream,
            collected: Vec::new(),
            sent: 0,
            is_blocked: false,
        }));
        (Self(Arc::clone(&batch)), BatchFlusher(batch))
    }
}

impl<S: AsyncWrite + Unpin> BatchFlusher<S> {
    /// Ready when everything was sent.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut batch = self.0.lock();
        ready!(batch.poll_send_collected(cx))?;
        if batch.is_blocked {
            // The write has registered the waker. A flush would count as progress of the client.
            return Poll::Pending;
        }
        Pin::new(&mut batch.stream).poll_flush(cx)
    }
}

impl<S: AsyncRead + Unpin> BatchFlusher<S> {
    /// Receives bytes and drops them, once `h2` reads no more. Ready with their number, 0 at the end
    /// of the stream.
    pub(super) fn poll_discard(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = [0; 4096];
        let mut out = ReadBuf::new(&mut room);
        ready!(Pin::new(&mut self.0.lock().stream).poll_read(cx, &mut out))?;
        Poll::Ready(Ok(out.filled().len()))
    }
}

impl<S: AsyncWrite + Unpin> CollectedWrites<S> {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let is_collected = length <= MAX_COPY;
        if !is_collected || self.collected.len() + length > MAX_BATCH {
            ready!(self.poll_send_collected(cx))?;
        }
        if !is_collected {
            let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
            self.is_blocked = written.is_pending();
            return written;
        }
        self.is_blocked = false;
        if self.collected.is_empty() {
            self.collected.reserve_exact(MAX_BATCH);
        }
        for slice in slices {
            self.collected.extend_from_slice(slice);
        }
        Poll::Ready(Ok(length))
    }

    fn poll_send_collected(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let rest = self.collected.get(self.sent..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
        }
        self.collected = Vec::new();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BatchedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().stream).poll_read(cx, out)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BatchedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_write(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_write(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Leaves the flush to the [`BatchFlusher`].
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut batch = self.0.lock();
        ready!(batch.poll_send_collected(cx))?;
        Pin::new(&mut batch.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that accepts a random part of each write, or nothing.
    struct RandomSocket {
        random: fastrand::Rng,
        is_slow: bool,
        writes: Vec<Vec<u8>>,
        is_shut_down: bool,
    }

    impl RandomSocket {
        fn new(seed: u64, is_slow: bool) -> Self {
            Self {
                random: fastrand::Rng::with_seed(seed),
                is_slow,
                writes: Vec::new(),
                is_shut_down: false,
            }
        }
    }

    impl AsyncWrite for RandomSocket {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let this = self.get_mut();
            let mut count = bytes.len();
            if this.is_slow {
                if this.random.u8(..3) == 0 {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                count = this.random.usize(1..=count);
            }
            this.writes.push(bytes[..count].to_vec());
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.get_mut().is_shut_down = true;
            Poll::Ready(Ok(()))
        }
    }

    type Pair = (BatchedStream<RandomSocket>, BatchFlusher<RandomSocket>);

    fn write((stream, _): &mut Pair, parts: &[&[u8]]) -> Option<usize> {
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match Pin::new(stream).poll_write_vectored(&mut cx, &slices) {
            Poll::Ready(count) => Some(count.unwrap()),
            Poll::Pending => None,
        }
    }

    fn flush((_, flusher): &Pair) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        flusher.poll_flush(&mut cx).is_ready()
    }

    fn writes((stream, _): &Pair) -> Vec<Vec<u8>> {
        stream.0.lock().stream.writes.clone()
    }

    #[test]
    fn small_writes_leave_in_one_piece_and_hold_no_memory_then() {
        let mut pair = BatchedStream::new(RandomSocket::new(1, false));
        assert_eq!(write(&mut pair, &[b"head", b"body"]), Some(8));
        assert_eq!(write(&mut pair, &[b"next"]), Some(4));
        assert!(writes(&pair).is_empty());
        assert!(flush(&pair) && flush(&pair));
        assert_eq!(writes(&pair), [b"headbodynext"]);
        assert_eq!(pair.0.0.lock().collected.capacity(), 0);
        let large = [7; MAX_COPY];
        assert_eq!(write(&mut pair, &[b"small"]), Some(5));
        assert_eq!(write(&mut pair, &[&large, b"!"]), Some(MAX_COPY));
        assert_eq!(writes(&pair)[1..], [b"small".to_vec(), large.to_vec()]);
    }

    /// A socket without TLS has nothing to flush, which must not look as if the client read.
    #[test]
    fn a_blocked_write_is_not_flushed() {
        let large = [7; MAX_COPY + 1];
        for seed in 0..50 {
            let mut pair = BatchedStream::new(RandomSocket::new(seed, true));
            while write(&mut pair, &[&large]).is_some() {
                assert!(flush(&pair));
            }
            assert!(!flush(&pair), "seed {seed}");
        }
    }

    #[test]
    fn a_batch_has_a_limit() {
        let mut pair = BatchedStream::new(RandomSocket::new(1, false));
        for _ in 0..100 {
            assert_eq!(write(&mut pair, &[&[1; 1000]]), Some(1000));
        }
        assert!(flush(&pair));
        let sizes: Vec<usize> = writes(&pair).iter().map(Vec::len).collect();
        assert!(sizes.iter().all(|size| *size <= MAX_BATCH), "{sizes:?}");
        assert_eq!(sizes.iter().sum::<usize>(), 100_000);
        assert_eq!(sizes.len(), 7);
    }

    #[test]
    fn all_bytes_arrive_in_order_and_before_the_shutdown() {
        let mut random = fastrand::Rng::with_seed(9113);
        for seed in 0..200 {
            let mut pair = BatchedStream::new(RandomSocket::new(seed, true));
            let mut expected = Vec::new();
            for _ in 0..random.usize(..40) {
                let size = [0, 9, 300, 2_000, MAX_COPY, 6_000, 20_000][random.usize(..7)];
                let bytes: Vec<u8> = (0..size).map(|_| random.u8(..)).collect();
                let (one, other) = bytes.split_at(random.usize(..=size));
                if let Some(count) = write(&mut pair, &[one, other]) {
                    expected.extend_from_slice(&bytes[..count]);
                }
                if random.bool() {
                    flush(&pair);
                }
            }
            let mut cx = Context::from_waker(std::task::Waker::noop());
            while Pin::new(&mut pair.0).poll_shutdown(&mut cx).is_pending() {}
            assert_eq!(writes(&pair).concat(), expected, "seed {seed}");
            assert!(pair.0.0.lock().stream.is_shut_down);
        }
    }
}
