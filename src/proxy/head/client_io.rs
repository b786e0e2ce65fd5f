//! A client's socket with tokio's traits, for protocols that need no head reader.

use std::io::{self, Cursor, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::client_socket::ClientSocket;
use super::client_stream::ClientStream;
use super::timer::LazyTimer;
use crate::proxy::turn::TurnWork;

/// The work of passing a received byte on: HTTP/2 parses, copies and answers frames.
const RECEIVING: usize = 8;

/// A client's socket. Limits what is received, and what is sent, in one turn of the task. Writing
/// fails if the client accepts no bytes for `timeouts.write_stall`.
#[derive(Debug)]
pub(crate) struct ClientIo {
    stream: ClientStream,
    /// Bytes that were received before.
    unread: Cursor<Vec<u8>>,
    stall_timer: LazyTimer,
    receiving: TurnWork,
    sending: TurnWork,
}

impl ClientIo {
    pub(crate) fn new(client: ClientSocket, write_stall: Duration) -> Self {
        Self {
            stream: client.stream,
            unread: Cursor::new(client.unread),
            stall_timer: LazyTimer::new(write_stall),
            receiving: TurnWork::default(),
            sending: TurnWork::default(),
        }
    }

    fn poll_stall<T>(
        &mut self,
        cx: &mut Context<'_>,
        sent: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            self.stall_timer.record_progress();
            return sent;
        }
        self.stall_timer
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.unread.has_remaining() {
            let count = this.unread.remaining().min(out.remaining());
            out.put_slice(this.unread.chunk().get(..count).unwrap_or_default());
            this.unread.advance(count);
            if !this.unread.has_remaining() {
                this.unread = Cursor::default();
            }
            return Poll::Ready(Ok(()));
        }
        ready!(this.receiving.poll_pause(cx));
        let received = ready!(this.stream.poll_recv(cx, out))?;
        this.receiving.add(RECEIVING * received);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = match this.sending.poll_pause(cx) {
            Poll::Ready(()) => this.stream.poll_send(cx, slices),
            Poll::Pending => Poll::Pending,
        };
        if let Poll::Ready(Ok(sent)) = sent {
            this.sending.add(sent);
        }
        this.poll_stall(cx, sent)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = this.stream.poll_flush(cx);
        this.poll_stall(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = this.stream.poll_shut_down(cx);
        this.poll_stall(cx, result)
    }
}
