//! How a connection ends that this proxy ends: an answer to a refused head, in its order, then the lingering in which
//! the client reads it.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};

use super::reader::{HeadEvents, HeadReader, ReaderMode};
use super::scan::{ForeignProtocol, HeadError};

/// What a client may still send before its connection is closed. Closing with bytes unread resets the connection, and
/// a reset can destroy the answer that is on its way.
const LINGER_BYTES: usize = 64 * 1024;
/// How long it may take the client to read the answer and close.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// Where the ending stands.
#[derive(Debug)]
pub(super) enum CloseState {
    /// Something is wrong with the next head; the answers before it come first.
    Due(HeadRejection),
    /// The answer to a refused head, as far as it is not written.
    Answering(Bytes),
    /// All is written; so many more bytes that the client sends are read and dropped.
    Lingering(usize),
    /// Nothing more is read or written.
    Closed,
}

/// What is wrong with a head.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeadRejection {
    /// The scan refused it, or it was late.
    Head(HeadError),
    /// hyper refused it by itself, in an answer that says nothing.
    Hyper(HeadError),
    /// It is none.
    Foreign(ForeignProtocol),
}

impl<E: HeadEvents> HeadReader<E> {
    /// Ends the connection. Ready when that is done.
    pub(super) fn poll_close(
        &mut self,
        closing: CloseState,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut closing = closing;
        loop {
            let step = self.poll_close_step(&mut closing, cx);
            let over = matches!(closing, CloseState::Closed);
            if over || !matches!(step, Poll::Ready(Ok(()))) {
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
            CloseState::Due(wrong) => {
                *closing = if self.service.is_idle() {
                    self.respond(*wrong)
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
            CloseState::Lingering(left) => {
                let received = ready!(self.poll_drop_received(cx));
                *closing = match left.checked_sub(received).filter(|_| received > 0) {
                    Some(left) => CloseState::Lingering(left),
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

    /// Begins the lingering.
    pub(super) fn begin_lingering(&mut self) -> CloseState {
        self.wait_timer.restart(LINGER_TIME);
        CloseState::Lingering(LINGER_BYTES)
    }

    /// Receives for the sake of it; 0 if nothing more comes, or not in time.
    fn poll_drop_received(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        self.buffer.clear();
        match self.poll_buffer(cx) {
            Poll::Ready(received) => Poll::Ready(received.unwrap_or(0)),
            Poll::Pending => self.wait_timer.poll(cx).map(|()| 0),
        }
    }
}
