//! The writing side of the head reader: times out if the client accepts no bytes, and replaces
//! hyper's own error responses.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::Write;

use super::close::{CloseState, HeadRejection};
use super::reader::{HeadEvents, HeadReader, ReaderMode};
use super::scan::HeadError;

impl<E: HeadEvents + Unpin> Write for HeadReader<E> {
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
        if slices
            .first()
            .is_some_and(|first| this.replaces_hyper_response(first))
        {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        this.poll_send(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_flush(cx))?;
        this.on_flushed(cx);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_end_connection(cx)
    }
}

impl<E: HeadEvents> HeadReader<E> {
    /// Sends bytes, and fails if none can be sent for `timeouts.write_stall`.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = self.stream.poll_send(cx, slices);
        self.poll_stall(cx, sent)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.stream.poll_flush(cx);
        self.poll_stall(cx, flushed)
    }

    /// Shuts down the sending side.
    pub(super) fn poll_shut_down(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let result = self.stream.poll_shut_down(cx);
        // Fails if the client has left, which needs no handling.
        self.poll_stall(cx, result).map(drop)
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

    /// Returns `true` if hyper's bytes must not be sent: its response to a head that it refused,
    /// which contains no reason. The proxy sends its own.
    fn replaces_hyper_response(&mut self, bytes: &[u8]) -> bool {
        if !self.service.is_idle() {
            return false;
        }
        if !matches!(self.mode, ReaderMode::Closing(_)) {
            let Some(error) = refusal_by_hyper(bytes) else {
                return false;
            };
            self.mode = ReaderMode::Closing(CloseState::Due(HeadRejection::Hyper(error)));
        }
        true
    }

    /// Called when hyper has flushed its output. If that completes a response, wakes the task so
    /// that the waiting head is handled: hyper does not read again by itself, because its
    /// last read returned that nothing is readable.
    fn on_flushed(&mut self, cx: &Context<'_>) {
        let waits =
            !self.buffer.is_empty() || matches!(self.mode, ReaderMode::Closing(CloseState::Due(_)));
        if self.service.record_flushed() && waits {
            cx.waker().wake_by_ref();
        }
    }

    /// Closes the connection after hyper did: a client that may still be sending gets the time to
    /// read its response.
    fn poll_end_connection(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_closed = matches!(self.mode, ReaderMode::Closing(CloseState::Closed))
            && self.stream.as_plain_tcp().is_none();
        if is_closed || !matches!(self.mode, ReaderMode::Closing(_)) {
            ready!(self.poll_shut_down(cx));
        }
        let sending = self.had_bodies || !self.buffer.is_empty();
        let closing = if let ReaderMode::Closing(closing) =
            std::mem::replace(&mut self.mode, ReaderMode::Head)
        {
            closing
        } else if sending {
            self.begin_lingering()
        } else {
            CloseState::Closed
        };
        self.poll_close(closing, cx)
    }
}

/// Returns the meaning of a response by hyper, which sends only 400, 414 and 431.
fn refusal_by_hyper(bytes: &[u8]) -> Option<HeadError> {
    match bytes.strip_prefix(b"HTTP/1.")?.get(2..5)? {
        b"400" => Some(HeadError::Malformed("an invalid request line or field")),
        b"414" => Some(HeadError::TargetTooLong),
        b"431" => Some(HeadError::TooLarge),
        _ => None,
    }
}
