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

use super::client_socket::ClientSocket;
use super::client_stream::{ClientStream, ClientWatch};
use super::close::{CloseState, HeadRejection};
use super::line::push_encoded;
use super::scan::{
    FollowingBytes, ForeignProtocol, HeadError, HeadLimits, HeadScanner, RequestHead, ScanProgress,
};
use super::service_state::ServiceState;
use super::timer::LazyTimer;

/// What the reader tells its owner, and asks of it.
pub trait HeadEvents {
    /// A head is refused: the whole answer to send before the connection closes. `partial` is what came of the head,
    /// as far as the reader has it.
    fn refusal_response(&self, error: HeadError, partial: &[u8]) -> Bytes;
    /// Bytes of another protocol came; the connection closes without an answer.
    fn record_foreign(&self, foreign: ForeignProtocol);
}

impl<T: HeadEvents> HeadEvents for Arc<T> {
    fn refusal_response(&self, error: HeadError, partial: &[u8]) -> Bytes {
        T::refusal_response(self, error, partial)
    }

    fn record_foreign(&self, foreign: ForeignProtocol) {
        T::record_foreign(self, foreign);
    }
}

/// Limits and time-outs of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadReaderSettings {
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
pub(super) const RECEIVE_ROOM: usize = 4096;

/// A client's socket that hands heads to hyper only whole, only in their turn, and only those that hyper reads as we
/// do.
///
/// A head that arrives alone and whole goes straight to where hyper wants it: one call of the system, one scan, no
/// copy, no allocation, no timer. All else is collected in a buffer first.
#[derive(Debug)]
pub struct HeadReader<E> {
    pub(super) stream: ClientStream,
    pub(super) events: E,
    settings: HeadReaderSettings,
    pub(super) service: Arc<ServiceState>,
    pub(super) mode: ReaderMode,
    scan: HeadScanner,
    /// Bytes that have arrived and were not handed on.
    pub(super) buffer: Vec<u8>,
    /// A head has begun, and its time runs.
    head_begun: bool,
    /// Bodies came on this connection: old clients send an empty line behind them, which may come at any time.
    pub(super) had_bodies: bool,
    pub(super) wait_timer: LazyTimer,
    pub(super) stall_timer: LazyTimer,
    /// Sees the client leave while its next head waits for its turn: made only then.
    client_left: Option<ClientLeftFuture>,
}

#[derive(Debug)]
pub(super) enum ReaderMode {
    /// Collecting a head.
    Head,
    /// A head is complete and waits for its turn.
    WaitingForTurn(RequestHead),
    /// Handing a head on: so many bytes are left of it at the front of the buffer.
    Handing(usize, FollowingBytes),
    /// Handing on what is behind a head and nobody's but hyper's: so many bytes, or more than will ever come.
    Passing(u64),
    /// Ending the connection.
    Closing(CloseState),
}

struct ClientLeftFuture(Pin<Box<dyn Future<Output = ()> + Send>>);

impl std::fmt::Debug for ClientLeftFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Leaving")
    }
}

impl<E: HeadEvents> HeadReader<E> {
    /// Wraps a socket. The service on the other side of hyper must call [`ServiceState::start`] for each request.
    pub fn new(
        client: impl Into<ClientSocket>,
        events: E,
        settings: HeadReaderSettings,
        service: Arc<ServiceState>,
    ) -> Self {
        let client = client.into();
        Self {
            stream: client.stream,
            events,
            settings,
            service,
            mode: ReaderMode::Head,
            scan: HeadScanner::default(),
            buffer: client.unread,
            head_begun: false,
            had_bodies: false,
            wait_timer: LazyTimer::new(settings.idle),
            stall_timer: LazyTimer::new(settings.write_stall),
            client_left: None,
        }
    }

    /// Lets others see the client leave. The socket stays open for as long as anybody watches.
    pub fn watch(&self) -> ClientWatch {
        self.stream.watch()
    }

    /// The socket, and what was read from it but not handed on: for whoever goes on with another protocol.
    pub fn into_client_socket(self) -> ClientSocket {
        ClientSocket {
            stream: self.stream,
            unread: self.buffer,
        }
    }

    /// Fills `out` with what hyper is to see next; nothing means that the client has gone.
    fn poll_next(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            match std::mem::replace(&mut self.mode, ReaderMode::Head) {
                ReaderMode::Head => ready!(self.poll_collect(cx, out))?,
                ReaderMode::WaitingForTurn(head) if self.service.is_idle() => self.prepare(&head),
                ReaderMode::WaitingForTurn(head) => {
                    self.mode = ReaderMode::WaitingForTurn(head);
                    ready!(self.poll_client_left(cx));
                    self.mode = ReaderMode::Closing(CloseState::Closed);
                }
                ReaderMode::Handing(left, follows) => {
                    let left = left - self.hand_on(left, out);
                    self.mode = if left > 0 {
                        ReaderMode::Handing(left, follows)
                    } else {
                        pass_through_mode(follows.length())
                    };
                }
                ReaderMode::Passing(left) => {
                    self.mode = ReaderMode::Passing(left);
                    ready!(self.poll_pass_through(left, cx, out))?;
                }
                ReaderMode::Closing(closing) => {
                    ready!(self.poll_close(closing, cx))?;
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
        if !self.buffer.is_empty() && self.check_buffer() {
            return Poll::Ready(Ok(()));
        }
        loop {
            // What arrives ahead of its turn, or behind other bytes, is not for hyper to see yet.
            let direct = self.buffer.is_empty() && self.service.is_idle();
            let received = if direct {
                self.stream.poll_recv(cx, out)
            } else {
                self.poll_buffer(cx)
            };
            let Poll::Ready(received) = received else {
                ready!(self.poll_silence(cx));
                return Poll::Ready(Ok(()));
            };
            let done = match received? {
                0 => {
                    self.mode = ReaderMode::Closing(CloseState::Closed);
                    true
                }
                _ if direct => self.check_direct(out),
                _ => self.check_buffer(),
            };
            if done {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Judges bytes that were received to where hyper wants them. They stay there if they are one head that nothing
    /// is to be done to, and no more than belongs to it, else go to the buffer.
    fn check_direct(&mut self, out: &mut ReadBuf<'_>) -> bool {
        let bytes = out.filled();
        let progress = self.scan.advance(bytes, self.settings.limits);
        if let Ok(ScanProgress::Complete(head)) = &progress
            && !head.needs_encoding
            && head.bytes.start == 0
            && let Some(left) = head
                .follows
                .length()
                .checked_sub((bytes.len() - head.bytes.end) as u64)
        {
            self.mode = pass_through_mode(left);
            self.reset_for_next_head(head.follows);
            return true;
        }
        self.buffer.extend_from_slice(bytes);
        out.clear();
        self.apply_progress(progress)
    }

    fn check_buffer(&mut self) -> bool {
        let progress = self.scan.advance(&self.buffer, self.settings.limits);
        self.apply_progress(progress)
    }

    /// Sets the mode by what the scan says of the buffer. Tells whether there is anything else to do than to read on.
    fn apply_progress(&mut self, progress: Result<ScanProgress, HeadError>) -> bool {
        self.mode = match progress {
            Ok(ScanProgress::More) => return false,
            Ok(ScanProgress::Blank) => {
                self.buffer.clear();
                return false;
            }
            Ok(ScanProgress::Complete(head)) => ReaderMode::WaitingForTurn(head),
            Ok(ScanProgress::Foreign(foreign)) => {
                ReaderMode::Closing(CloseState::Due(HeadRejection::Foreign(foreign)))
            }
            Err(error) => ReaderMode::Closing(CloseState::Due(HeadRejection::Head(error))),
        };
        true
    }

    /// Puts a complete head in front of the buffer, as hyper is to see it.
    fn prepare(&mut self, head: &RequestHead) {
        let mut length = head.bytes.len();
        if head.needs_encoding {
            let bytes = encode_target(&self.buffer, head);
            length = bytes.len();
            self.buffer.splice(..head.bytes.end, bytes);
        } else {
            self.buffer.drain(..head.bytes.start);
        }
        self.mode = ReaderMode::Handing(length, head.follows);
        self.reset_for_next_head(head.follows);
    }

    /// Forgets the head that is now hyper's.
    fn reset_for_next_head(&mut self, follows: FollowingBytes) {
        if follows == FollowingBytes::Anything {
            self.service.set_last();
        }
        self.had_bodies |= follows != FollowingBytes::Head;
        self.scan = HeadScanner::default();
        self.client_left = None;
        self.start_idle_timer();
    }

    /// Hands bytes on from the front of the buffer, at most so many.
    fn hand_on(&mut self, most: usize, out: &mut ReadBuf<'_>) -> usize {
        let count = most.min(out.remaining()).min(self.buffer.len());
        out.put_slice(self.buffer.get(..count).unwrap_or_default());
        self.buffer.drain(..count);
        if self.buffer.is_empty() && self.buffer.capacity() > 2 * RECEIVE_ROOM {
            self.buffer = Vec::new();
        }
        count
    }

    /// Hands on at most so many bytes as they come. What is behind them stays in the socket.
    fn poll_pass_through(
        &mut self,
        left: u64,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        if !self.buffer.is_empty() {
            let handed = self.hand_on(most, out);
            self.record_passed(left, handed);
            return Poll::Ready(Ok(()));
        }
        let Poll::Ready(received) = self.stream.poll_recv(cx, &mut (&mut *out).limit(most)) else {
            ready!(self.poll_silence(cx));
            return Poll::Ready(Ok(()));
        };
        match received? {
            0 => self.mode = ReaderMode::Closing(CloseState::Closed),
            received => self.record_passed(left, received),
        }
        Poll::Ready(Ok(()))
    }

    fn record_passed(&mut self, left: u64, count: usize) {
        self.mode = pass_through_mode(left.saturating_sub(count as u64));
    }

    /// Ready once the client has been silent for too long; the mode is set then. While its request is in service it
    /// may be.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let begun = !self.buffer.is_empty();
        if !self.service.is_idle() {
            self.start_idle_timer();
        } else if begun && !self.head_begun {
            self.wait_timer.restart(self.settings.head);
        } else if self.head_begun && !begun {
            self.start_idle_timer();
        }
        self.head_begun = begun && self.service.is_idle();
        ready!(self.wait_timer.poll(cx));
        let late = if begun {
            CloseState::Due(HeadRejection::Head(HeadError::Late))
        } else {
            CloseState::Closed
        };
        self.mode = ReaderMode::Closing(late);
        Poll::Ready(())
    }

    /// From here on silence counts towards `timeouts.idle`.
    fn start_idle_timer(&mut self) {
        self.head_begun = false;
        self.wait_timer.relax(self.settings.idle);
    }

    /// Receives into the buffer.
    pub(super) fn poll_buffer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.buffer.reserve(RECEIVE_ROOM);
        self.stream.poll_recv(cx, &mut self.buffer)
    }

    /// Ready once the client has left, though its next head lies unread by hyper.
    pub(super) fn poll_client_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let socket = &self.stream;
        let leaving = self.client_left.get_or_insert_with(|| {
            let watch = socket.watch();
            ClientLeftFuture(Box::pin(async move { watch.wait_left().await }))
        });
        leaving.0.as_mut().poll(cx)
    }
}

/// The mode when so many bytes are left before the next head.
fn pass_through_mode(left: u64) -> ReaderMode {
    if left > 0 {
        ReaderMode::Passing(left)
    } else {
        ReaderMode::Head
    }
}

/// A head with the bytes of its target percent-encoded that hyper would refuse.
fn encode_target(buffer: &[u8], head: &RequestHead) -> Vec<u8> {
    let part = |range: std::ops::Range<usize>| buffer.get(range).unwrap_or_default();
    let mut bytes = Vec::with_capacity(head.bytes.len() + 2 * head.target.len());
    bytes.extend_from_slice(part(head.bytes.start..head.target.start));
    push_encoded(part(head.target.clone()), &mut bytes);
    bytes.extend_from_slice(part(head.target.end..head.bytes.end));
    bytes
}

/// Lets tokio's trait carry hyper's: only that way can a read go to hyper's own buffer without unsafe code.
struct TokioReadAdapter<'r, E>(&'r mut HeadReader<E>);

impl<E: HeadEvents> AsyncRead for TokioReadAdapter<'_, E> {
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
        Pin::new(&mut TokioIo::new(TokioReadAdapter(self.get_mut()))).poll_read(cx, cursor)
    }
}
