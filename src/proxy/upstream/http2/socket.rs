//! The socket that `h2` reads and writes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use crate::proxy::http2::observed_stream::ObservedStream;
use crate::proxy::origin_tls::OriginStream;
use crate::proxy::read_allowance::ReadAllowance;

use super::watch::{ConnectionWatch, OriginFrames};

/// A socket to an origin whose frames are observed. One poll reads a limited number of bytes.
#[derive(Debug)]
pub(super) struct FrameSocket {
    stream: ObservedStream<TokioIo<OriginStream>, OriginFrames>,
    watch: Arc<ConnectionWatch>,
    allowance: Arc<ReadAllowance>,
}

impl FrameSocket {
    pub(super) fn new(
        stream: OriginStream,
        watch: Arc<ConnectionWatch>,
        allowance: Arc<ReadAllowance>,
        head: usize,
    ) -> Self {
        let frames = OriginFrames::new(Arc::clone(&watch), head);
        Self {
            stream: ObservedStream::with_origin(TokioIo::new(stream), frames),
            watch,
            allowance,
        }
    }

    fn record_write<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_pending() {
            self.watch.record_blocked();
        } else {
            self.watch.record_progress();
        }
        written
    }
}

impl AsyncRead for FrameSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.allowance.poll_available(cx));
        let before = out.filled().len();
        let room = this.allowance.remaining() as u64;
        let mut limited = (&mut this.stream).take(room);
        ready!(Pin::new(&mut limited).poll_read(cx, out))?;
        let received = out.filled().len() - before;
        this.allowance.spend(received);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FrameSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.record_write(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.record_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Ready when TLS, too, has passed all bytes to the socket.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        match &flushed {
            Poll::Ready(Ok(())) => this.watch.record_flushed(),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => this.watch.record_blocked(),
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let ended = Pin::new(&mut this.stream).poll_shutdown(cx);
        if ended.is_pending() {
            this.watch.record_blocked();
        }
        ended
    }
}
