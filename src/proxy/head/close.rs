//! Closes a connection on the proxy's initiative: sends the response to a refused head after all
//! earlier ones, then lingers so that the client can read it.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};

use super::reader::{HeadEvents, HeadReader, ReaderMode};
use super::scan::{ForeignProtocol, HeadError};

/// The number of bytes that a client may still send before its connection is closed. Closing with
/// bytes unread resets the connection, and a reset can destroy the response on its way.
pub(crate) const LINGER_BYTES: usize = 64 * 1024;
/// The time that the client has to read the response and close.
pub(crate) const LINGER_TIME: Duration = Duration::from_secs(1);

/// The progress of closing a connection.
#[derive(Debug)]
pub(super) enum CloseState {
    /// The next head is rejected; earlier responses are sent first.
    Due(HeadRejection),
    /// The rest of the response to a refused head.
    Answering(Bytes),
    /// Everything is written. The client may send this number of further bytes, which are dropped.
    Lingering(usize),
    /// The connection is neither read nor written any more.
    Closed,
}

/// The cause of a rejected head.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeadRejection {
    /// The scan refused it, or it was late.
    Head(HeadError),
    /// hyper refused it, with a response that contains no reason.
    Hyper(HeadError),
    /// It is not HTTP/1.
    Foreign(ForeignProtocol),
}

impl<E: HeadEvents> HeadReader<E> {
    /// Closes the connection. Ready when it is closed.
    pub(super) fn poll_close(
        &mut self,
        closing: CloseState,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut closing = closing;
        loop {
            let step = self.poll_close_step(&mut closing, cx);
            let is_closed = matches!(closing, CloseState::Closed);
            if is_closed || !matches!(step, Poll::Ready(Ok(()))) {
                self.mode = ReaderMode::Closing(closing);
                return step;
            }
        }
    }

    fn poll_close_step(
        &mut self,
        closing: &mut CloseState,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match closing {
            CloseState::Due(rejection) => {
                *closing = if self.service.is_idle() {
                    self.respond(*rejection)
                } else {
                    ready!(self.poll_client_left(cx));
                    CloseState::Closed
                };
            }
            CloseState::Answering(bytes) if bytes.has_remaining() => {
                let sent = ready!(self.poll_send(cx, &[IoSlice::new(bytes)]))?;
                bytes.advance(sent);
            }
            CloseState::Answering(_) => {
                ready!(self.poll_shut_down(cx));
                *closing = self.begin_lingering();
            }
            CloseState::Lingering(remaining) => {
                let received = ready!(self.poll_drop_received(cx));
                *closing = match remaining.checked_sub(received).filter(|_| received > 0) {
                    Some(remaining) => CloseState::Lingering(remaining),
                    None => CloseState::Closed,
                };
            }
            CloseState::Closed => {}
        }
        Poll::Ready(Ok(()))
    }

    fn respond(&mut self, rejection: HeadRejection) -> CloseState {
        match rejection {
            HeadRejection::Head(error) => {
                CloseState::Answering(self.events.refusal_response(error, &self.buffer))
            }
            HeadRejection::Hyper(error) => {
                CloseState::Answering(self.events.refusal_response(error, &[]))
            }
            HeadRejection::Foreign(foreign) => {
                self.events.record_foreign(foreign);
                CloseState::Closed
            }
        }
    }

    /// Starts to linger.
    pub(super) fn begin_lingering(&mut self) -> CloseState {
        self.wait_timer.restart(LINGER_TIME);
        CloseState::Lingering(LINGER_BYTES)
    }

    /// Receives and drops bytes; returns 0 if no more arrive in time.
    fn poll_drop_received(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        self.buffer.clear();
        match self.poll_buffer(cx) {
            Poll::Ready(received) => Poll::Ready(received.unwrap_or(0)),
            Poll::Pending => self.wait_timer.poll(cx).map(|()| 0),
        }
    }
}
