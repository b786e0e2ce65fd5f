//! How a connection ends that this proxy ends: an answer to a refused head, in its order, then the lingering in which
//! the client reads it.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};

use super::reader::{HeadEvents, HeadReader, Mode};
use super::scan::{Foreign, HeadError};

/// What a client may still send before its connection is closed. Closing with bytes unread resets the connection, and
/// a reset can destroy the answer that is on its way.
const LINGER: usize = 64 * 1024;
/// How long it may take the client to read the answer and close.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// Where the ending stands.
#[derive(Debug)]
pub(super) enum Closing {
    /// Something is wrong with the next head; the answers before it come first.
    Due(Wrong),
    /// The answer to a refused head, as far as it is not written.
    Answering(Bytes),
    /// All is written; so many more bytes that the client sends are read and dropped.
    Lingering(usize),
    /// Nothing more is read or written.
    Over,
}

/// What is wrong with a head.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wrong {
    /// The scan refused it, or it was late.
    Head(HeadError),
    /// hyper refused it by itself, in an answer that says nothing.
    Hyper(HeadError),
    /// It is none.
    Foreign(Foreign),
}

impl<E: HeadEvents> HeadReader<E> {
    /// Ends the connection. Ready when that is done.
    pub(super) fn poll_closing(
        &mut self,
        closing: Closing,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut closing = closing;
        loop {
            let step = self.poll_closing_step(&mut closing, cx);
            let over = matches!(closing, Closing::Over);
            if over || !matches!(step, Poll::Ready(Ok(()))) {
                self.mode = Mode::Closing(closing);
                return step;
            }
        }
    }

    fn poll_closing_step(
        &mut self,
        closing: &mut Closing,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match closing {
            Closing::Due(wrong) => {
                *closing = if self.turn.is_over() {
                    self.answer(*wrong)
                } else {
                    ready!(self.poll_left(cx));
                    Closing::Over
                };
            }
            Closing::Answering(bytes) if bytes.has_remaining() => {
                let sent = ready!(self.poll_send(cx, &[IoSlice::new(bytes)]))?;
                bytes.advance(sent);
            }
            Closing::Answering(_) => {
                ready!(self.poll_shut_down(cx));
                *closing = self.linger();
            }
            Closing::Lingering(left) => {
                let received = ready!(self.poll_drop_received(cx));
                *closing = match left.checked_sub(received).filter(|_| received > 0) {
                    Some(left) => Closing::Lingering(left),
                    None => Closing::Over,
                };
            }
            Closing::Over => {}
        }
        Poll::Ready(Ok(()))
    }

    fn answer(&mut self, wrong: Wrong) -> Closing {
        match wrong {
            Wrong::Head(error) => Closing::Answering(self.events.refused(error, &self.buffer)),
            Wrong::Hyper(error) => Closing::Answering(self.events.refused(error, &[])),
            Wrong::Foreign(foreign) => {
                self.events.foreign(foreign);
                Closing::Over
            }
        }
    }

    /// Begins the lingering.
    pub(super) fn linger(&mut self) -> Closing {
        self.wait.restart(LINGER_TIME);
        Closing::Lingering(LINGER)
    }

    /// Receives for the sake of it; 0 if nothing more comes, or not in time.
    fn poll_drop_received(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        self.buffer.clear();
        match self.poll_buffer(cx) {
            Poll::Ready(received) => Poll::Ready(received.unwrap_or(0)),
            Poll::Pending => self.wait.poll(cx).map(|()| 0),
        }
    }
}
