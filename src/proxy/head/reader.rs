//! The socket as hyper reads it: heads whole, in their turn. What hyper writes is in `sending`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use hyper::rt::{Read, ReadBufCursor};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, ReadBuf};

use super::closing::{Closing, Wrong};
use super::handover::Handover;
use super::line::push_encoded;
use super::scan::{Follows, Foreign, Head, HeadError, HeadLimits, Progress, Scan};
use super::socket::{ClientWatch, Socket};
use super::timer::LazyTimer;
use super::turn::Turn;

/// What the reader tells its owner, and asks of it.
pub trait HeadEvents {
    /// A head is refused: the whole answer to send before the connection closes. `partial` is what came of the head,
    /// as far as the reader has it.
    fn refused(&self, error: HeadError, partial: &[u8]) -> Bytes;
    /// Bytes of another protocol came; the connection closes without an answer.
    fn foreign(&self, foreign: Foreign);
}

impl<T: HeadEvents> HeadEvents for Arc<T> {
    fn refused(&self, error: HeadError, partial: &[u8]) -> Bytes {
        T::refused(self, error, partial)
    }

    fn foreign(&self, foreign: Foreign) {
        T::foreign(self, foreign);
    }
}

/// Limits and time-outs of the reader.
#[derive(Clone, Copy, Debug)]
pub struct ReaderSettings {
    /// Limits of a head.
    pub limits: HeadLimits,
    /// From the first byte of a head to its last.
    pub head: Duration,
    /// From the end of an answer, or the start of the connection, to the first byte of the next head; noticed up to a
    /// quarter later.
    pub idle: Duration,
    /// The longest time for which a client may take no byte of an answer; noticed up to a quarter later.
    pub write_stall: Duration,
}

/// Room for bytes that arrive when hyper has not asked for them.
pub(super) const ROOM: usize = 4096;

/// A client's socket that hands heads to hyper only whole, only in their turn, and only those that hyper reads as we
/// do.
///
/// A head that arrives alone and whole goes straight to where hyper wants it: one call of the system, one scan, no
/// copy, no allocation, no timer. All else is collected in a buffer first.
#[derive(Debug)]
pub struct HeadReader<E> {
    pub(super) socket: Socket,
    pub(super) events: E,
    settings: ReaderSettings,
    pub(super) turn: Arc<Turn>,
    pub(super) mode: Mode,
    scan: Scan,
    /// Bytes that have arrived and were not handed on.
    pub(super) buffer: Vec<u8>,
    /// A head has begun, and its time runs.
    begun: bool,
    /// Bodies came on this connection: old clients send an empty line behind them, which may come at any time.
    pub(super) bodies: bool,
    pub(super) wait: LazyTimer,
    pub(super) stall: LazyTimer,
    /// Sees the client leave while its next head waits for its turn: made only then.
    leaving: Option<Leaving>,
}

#[derive(Debug)]
pub(super) enum Mode {
    /// Collecting a head.
    Head,
    /// A head is complete and waits for its turn.
    Held(Head),
    /// Handing a head on: so many bytes are left of it at the front of the buffer.
    Handing(usize, Follows),
    /// Handing on what is behind a head and nobody's but hyper's: so many bytes, or more than will ever come.
    Passing(u64),
    /// Ending the connection.
    Closing(Closing),
}

struct Leaving(Pin<Box<dyn Future<Output = ()> + Send>>);

impl std::fmt::Debug for Leaving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Leaving")
    }
}

impl<E: HeadEvents> HeadReader<E> {
    /// Wraps a socket. The service on the other side of hyper must call [`Turn::begin`] for each request.
    pub fn new(
        client: impl Into<Handover>,
        events: E,
        settings: ReaderSettings,
        turn: Arc<Turn>,
    ) -> Self {
        let client = client.into();
        Self {
            socket: client.socket,
            events,
            settings,
            turn,
            mode: Mode::Head,
            scan: Scan::default(),
            buffer: client.unread,
            begun: false,
            bodies: false,
            wait: LazyTimer::new(settings.idle),
            stall: LazyTimer::new(settings.write_stall),
            leaving: None,
        }
    }

    /// Lets others see the client leave. The socket stays open for as long as anybody watches.
    pub fn watch(&self) -> ClientWatch {
        self.socket.watch()
    }

    /// The socket, and what was read from it but not handed on: for whoever goes on with another protocol.
    pub fn into_handover(self) -> Handover {
        Handover {
            socket: self.socket,
            unread: self.buffer,
        }
    }

    /// Fills `out` with what hyper is to see next; nothing means that the client has gone.
    fn poll_next(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            match std::mem::replace(&mut self.mode, Mode::Head) {
                Mode::Head => ready!(self.poll_collect(cx, out))?,
                Mode::Held(head) if self.turn.is_over() => self.prepare(&head),
                Mode::Held(head) => {
                    self.mode = Mode::Held(head);
                    ready!(self.poll_left(cx));
                    self.mode = Mode::Closing(Closing::Over);
                }
                Mode::Handing(left, follows) => {
                    let left = left - self.hand(left, out);
                    self.mode = if left > 0 {
                        Mode::Handing(left, follows)
                    } else {
                        passing(follows.length())
                    };
                }
                Mode::Passing(left) => {
                    self.mode = Mode::Passing(left);
                    ready!(self.poll_pass(left, cx, out))?;
                }
                Mode::Closing(closing) => {
                    ready!(self.poll_closing(closing, cx))?;
                    return Poll::Ready(Ok(()));
                }
            }
            if !out.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads until a head is complete or refused, or the client has gone, and sets the mode by that.
    fn poll_collect(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.buffer.is_empty() && self.judge_buffer() {
            return Poll::Ready(Ok(()));
        }
        loop {
            // What arrives ahead of its turn, or behind other bytes, is not for hyper to see yet.
            let direct = self.buffer.is_empty() && self.turn.is_over();
            let received = if direct {
                self.socket.poll_recv(cx, out)
            } else {
                self.poll_buffer(cx)
            };
            let Poll::Ready(received) = received else {
                ready!(self.poll_silence(cx));
                return Poll::Ready(Ok(()));
            };
            let done = match received? {
                0 => {
                    self.mode = Mode::Closing(Closing::Over);
                    true
                }
                _ if direct => self.judge_direct(out),
                _ => self.judge_buffer(),
            };
            if done {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Judges bytes that were received to where hyper wants them. They stay there if they are one head that nothing
    /// is to be done to, and no more than belongs to it, else go to the buffer.
    fn judge_direct(&mut self, out: &mut ReadBuf<'_>) -> bool {
        let bytes = out.filled();
        let progress = self.scan.advance(bytes, self.settings.limits);
        if let Ok(Progress::Complete(head)) = &progress
            && !head.encode
            && head.bytes.start == 0
            && let Some(left) = head
                .follows
                .length()
                .checked_sub((bytes.len() - head.bytes.end) as u64)
        {
            self.mode = passing(left);
            self.begin_head(head.follows);
            return true;
        }
        self.buffer.extend_from_slice(bytes);
        out.clear();
        self.judge(progress)
    }

    fn judge_buffer(&mut self) -> bool {
        let progress = self.scan.advance(&self.buffer, self.settings.limits);
        self.judge(progress)
    }

    /// Sets the mode by what the scan says of the buffer. Tells whether there is anything else to do than to read on.
    fn judge(&mut self, progress: Result<Progress, HeadError>) -> bool {
        self.mode = match progress {
            Ok(Progress::More) => return false,
            Ok(Progress::Blank) => {
                self.buffer.clear();
                return false;
            }
            Ok(Progress::Complete(head)) => Mode::Held(head),
            Ok(Progress::Foreign(foreign)) => Mode::Closing(Closing::Due(Wrong::Foreign(foreign))),
            Err(error) => Mode::Closing(Closing::Due(Wrong::Head(error))),
        };
        true
    }

    /// Puts a complete head in front of the buffer, as hyper is to see it.
    fn prepare(&mut self, head: &Head) {
        let mut length = head.bytes.len();
        if head.encode {
            let bytes = encoded(&self.buffer, head);
            length = bytes.len();
            self.buffer.splice(..head.bytes.end, bytes);
        } else {
            self.buffer.drain(..head.bytes.start);
        }
        self.mode = Mode::Handing(length, head.follows);
        self.begin_head(head.follows);
    }

    /// Forgets the head that is now hyper's.
    fn begin_head(&mut self, follows: Follows) {
        if follows == Follows::Anything {
            self.turn.end_with_it();
        }
        self.bodies |= follows != Follows::Head;
        self.scan = Scan::default();
        self.leaving = None;
        self.rest();
    }

    /// Hands bytes on from the front of the buffer, at most so many.
    fn hand(&mut self, most: usize, out: &mut ReadBuf<'_>) -> usize {
        let count = most.min(out.remaining()).min(self.buffer.len());
        out.put_slice(self.buffer.get(..count).unwrap_or_default());
        self.buffer.drain(..count);
        if self.buffer.is_empty() && self.buffer.capacity() > 2 * ROOM {
            self.buffer = Vec::new();
        }
        count
    }

    /// Hands on at most so many bytes as they come. What is behind them stays in the socket.
    fn poll_pass(
        &mut self,
        left: u64,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        if !self.buffer.is_empty() {
            let handed = self.hand(most, out);
            self.passed(left, handed);
            return Poll::Ready(Ok(()));
        }
        let Poll::Ready(received) = self.socket.poll_recv(cx, &mut (&mut *out).limit(most)) else {
            ready!(self.poll_silence(cx));
            return Poll::Ready(Ok(()));
        };
        match received? {
            0 => self.mode = Mode::Closing(Closing::Over),
            received => self.passed(left, received),
        }
        Poll::Ready(Ok(()))
    }

    fn passed(&mut self, left: u64, count: usize) {
        self.mode = passing(left.saturating_sub(count as u64));
    }

    /// Ready once the client has been silent for too long; the mode is set then. While its request is in service it
    /// may be.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let begun = !self.buffer.is_empty();
        if !self.turn.is_over() {
            self.rest();
        } else if begun && !self.begun {
            self.wait.restart(self.settings.head);
        } else if self.begun && !begun {
            self.rest();
        }
        self.begun = begun && self.turn.is_over();
        ready!(self.wait.poll(cx));
        let late = if begun {
            Closing::Due(Wrong::Head(HeadError::Late))
        } else {
            Closing::Over
        };
        self.mode = Mode::Closing(late);
        Poll::Ready(())
    }

    /// From here on silence counts towards `timeouts.idle`.
    fn rest(&mut self) {
        self.begun = false;
        self.wait.relax(self.settings.idle);
    }

    /// Receives into the buffer.
    pub(super) fn poll_buffer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.buffer.reserve(ROOM);
        self.socket.poll_recv(cx, &mut self.buffer)
    }

    /// Ready once the client has left, though its next head lies unread by hyper.
    pub(super) fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let socket = &self.socket;
        let leaving = self.leaving.get_or_insert_with(|| {
            let watch = socket.watch();
            Leaving(Box::pin(async move { watch.left().await }))
        });
        leaving.0.as_mut().poll(cx)
    }
}

/// The mode when so many bytes are left before the next head.
fn passing(left: u64) -> Mode {
    if left > 0 {
        Mode::Passing(left)
    } else {
        Mode::Head
    }
}

/// A head with the bytes of its target percent-encoded that hyper would refuse.
fn encoded(buffer: &[u8], head: &Head) -> Vec<u8> {
    let part = |range: std::ops::Range<usize>| buffer.get(range).unwrap_or_default();
    let mut bytes = Vec::with_capacity(head.bytes.len() + 2 * head.target.len());
    bytes.extend_from_slice(part(head.bytes.start..head.target.start));
    push_encoded(part(head.target.clone()), &mut bytes);
    bytes.extend_from_slice(part(head.target.end..head.bytes.end));
    bytes
}

/// Lets tokio's trait carry hyper's: only that way can a read go to hyper's own buffer without unsafe code.
struct Reading<'r, E>(&'r mut HeadReader<E>);

impl<E: HeadEvents> AsyncRead for Reading<'_, E> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().0.poll_next(cx, out)
    }
}

impl<E: HeadEvents + Unpin> Read for HeadReader<E> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut TokioIo::new(Reading(self.get_mut()))).poll_read(cx, cursor)
    }
}
