//! The socket as hyper sees it.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::scan::{Follows, Foreign, Head, HeadError, HeadLimits, Progress, Scan, is_encoded};
use super::timer::LazyTimer;
use super::turn::Turn;

/// What the reader tells its owner, and asks of it.
pub trait HeadEvents: Send + Sync {
    /// A head is refused: the whole answer to send before the connection closes.
    fn refused(&self, error: HeadError) -> Bytes;
    /// Bytes of another protocol came; the connection closes without an answer.
    fn foreign(&self, foreign: Foreign);
}

/// Limits and time-outs of the reader.
#[derive(Clone, Copy, Debug)]
pub struct ReaderSettings {
    /// Limits of a head.
    pub limits: HeadLimits,
    /// From the first byte of a head to its last.
    pub head: Duration,
    /// From the end of an answer to the first byte of the next head.
    pub idle: Duration,
    /// The longest time for which a client may take no byte of an answer.
    pub write_stall: Duration,
}

/// Bytes read from a socket at once while heads are collected.
const READ: usize = 2048;
/// What a refused client may still send before its connection is closed, so that it reads the answer first.
const DRAIN: usize = 64 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// A client's socket that hands heads to hyper only whole, and only those that hyper reads as we do.
pub struct HeadReader<E> {
    io: TokioIo<TcpStream>,
    events: E,
    settings: ReaderSettings,
    turn: Arc<Turn>,
    /// Bytes that have arrived and were not handed on.
    buffer: Vec<u8>,
    scan: Scan,
    mode: Mode,
    /// Heads handed to hyper; more than calls of the service means that hyper refused one by itself.
    handed: u32,
    /// The head that is being collected came in parts, and its time is counted from the first.
    partial: bool,
    wait: LazyTimer,
    stall: LazyTimer,
    /// Sees the client leave while its next head lies read: made only then.
    watch: Option<Watch>,
}

type Watch = Pin<Box<dyn Future<Output = ()> + Send>>;

enum Mode {
    /// Collecting a head.
    Head,
    /// A head is complete; it is handed on when the service's turn is over.
    Ready(Head),
    /// Handing a head on: so many bytes are left of it.
    Handing(usize, Follows),
    /// Stepped aside.
    Opaque,
    /// A head was refused; its answer follows the answers before it.
    Refused(HeadError),
    /// The answer to a refused head, as far as it is not written.
    Answering(Bytes),
    /// The answer is written; so many bytes that the client still sends are read and dropped.
    Draining(usize),
    /// Nothing more is read or answered.
    Over,
}

impl<E: HeadEvents> HeadReader<E> {
    /// Wraps a socket. The service on the other side of hyper must call [`Turn::begin`] for each request.
    pub fn new(socket: TcpStream, events: E, settings: ReaderSettings, turn: Arc<Turn>) -> Self {
        Self {
            io: TokioIo::new(socket),
            events,
            settings,
            turn,
            buffer: Vec::new(),
            scan: Scan::default(),
            mode: Mode::Head,
            handed: 0,
            partial: false,
            wait: LazyTimer::new(settings.idle),
            stall: LazyTimer::new(settings.write_stall),
            watch: None,
        }
    }

    /// Reads until a head is complete or refused, or the client has gone.
    fn poll_collect(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.mode = match self.scan.advance(&self.buffer, self.settings.limits) {
                Ok(Progress::More) => match ready!(self.poll_more(cx))? {
                    Some(mode) => mode,
                    None => continue,
                },
                Ok(Progress::Complete(head)) => Mode::Ready(head),
                Ok(Progress::Foreign(foreign)) => {
                    self.events.foreign(foreign);
                    Mode::Over
                }
                Err(error) => Mode::Refused(error),
            };
            self.partial = false;
            self.wait.relax(self.settings.idle);
            return Poll::Ready(Ok(()));
        }
    }

    /// Reads more of a head. Gives the mode to go to if none comes.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Mode>>> {
        match self.poll_fill(cx) {
            Poll::Ready(Ok(0)) => Poll::Ready(Ok(Some(Mode::Over))),
            Poll::Ready(Ok(_)) => Poll::Ready(Ok(None)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                ready!(self.poll_silence(cx));
                let begun = !self.buffer.is_empty();
                Poll::Ready(Ok(Some(if begun { Mode::Refused(HeadError::Late) } else { Mode::Over })))
            }
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Nothing to read is the usual case behind a request, and needs no space.
        ready!(self.io.inner().poll_read_ready(cx))?;
        let before = self.buffer.len();
        self.buffer.resize(before + READ, 0);
        let mut space = ReadBuf::new(self.buffer.get_mut(before..).unwrap_or_default());
        let result = Pin::new(self.io.inner_mut()).poll_read(cx, &mut space);
        let read = space.filled().len();
        self.buffer.truncate(before + read);
        result.map_ok(|()| read)
    }

    /// Ready once the client has been silent for too long. While its request is in service it may be.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.turn.is_open() {
            self.wait.note();
        } else if !self.buffer.is_empty() && !self.partial {
            self.partial = true;
            self.wait.restart(self.settings.head);
        }
        self.wait.poll(cx)
    }

    /// Puts a complete head in front of the buffer, as hyper is to see it.
    fn prepare(&mut self, head: &Head) -> usize {
        if !head.encode {
            self.buffer.drain(..head.bytes.start);
            return head.bytes.len();
        }
        let encoded = encoded(&self.buffer, head);
        let length = encoded.len();
        self.buffer.splice(..head.bytes.end, encoded);
        length
    }

    /// Hands bytes on from the front of the buffer, at most so many.
    fn hand(&mut self, most: usize, cursor: &mut ReadBufCursor<'_>) -> usize {
        let count = most.min(cursor.remaining()).min(self.buffer.len());
        cursor.put_slice(self.buffer.get(..count).unwrap_or_default());
        self.buffer.drain(..count);
        if self.buffer.is_empty() && self.buffer.capacity() > 2 * READ {
            self.buffer = Vec::new();
        }
        count
    }

    /// Ready once the client has left, though its next head lies unread by hyper.
    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.turn.poll_over(cx).is_ready() {
            return Poll::Pending;
        }
        let socket = self.io.inner();
        self.watch.get_or_insert_with(|| Box::pin(left(duplicate(socket)))).as_mut().poll(cx)
    }

    /// Answers a refused head, in its order, and closes.
    fn poll_refused(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.mode = match &mut self.mode {
                Mode::Refused(error) => {
                    ready!(self.turn.poll_over(cx));
                    Mode::Answering(self.events.refused(*error))
                }
                Mode::Answering(bytes) if bytes.has_remaining() => {
                    let written = match Pin::new(self.io.inner_mut()).poll_write(cx, bytes) {
                        Poll::Ready(written) => written?,
                        Poll::Pending => {
                            return self.stall.poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()));
                        }
                    };
                    self.stall.note();
                    bytes.advance(written);
                    continue;
                }
                Mode::Answering(_) => {
                    ready!(Pin::new(self.io.inner_mut()).poll_shutdown(cx))?;
                    self.wait.restart(DRAIN_TIME);
                    Mode::Draining(DRAIN)
                }
                Mode::Draining(left) => {
                    let left = *left;
                    self.buffer.clear();
                    match self.poll_fill(cx) {
                        Poll::Ready(Ok(read)) if read > 0 && read < left => Mode::Draining(left - read),
                        Poll::Ready(_) => Mode::Over,
                        Poll::Pending => {
                            ready!(self.wait.poll(cx));
                            Mode::Over
                        }
                    }
                }
                Mode::Head | Mode::Ready(_) | Mode::Handing(..) | Mode::Opaque | Mode::Over => {
                    return Poll::Ready(Ok(()));
                }
            };
        }
    }

    /// hyper writes, but no service was called for the last head: it refused the head by itself, in an answer that
    /// says nothing. Ours takes its place.
    fn replaces(&mut self, bytes: &[u8]) -> bool {
        let own = self.handed != self.turn.calls() && bytes.starts_with(b"HTTP/1.1 4");
        if own && !matches!(self.mode, Mode::Refused(_) | Mode::Answering(_) | Mode::Draining(_) | Mode::Over)
        {
            self.mode = Mode::Refused(HeadError::Malformed("a target that is no URL"));
        }
        own
    }
}

impl<E: HeadEvents + Unpin> Read for HeadReader<E> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            match &this.mode {
                Mode::Head => ready!(this.poll_collect(cx))?,
                Mode::Ready(_) if this.turn.is_open() => return this.poll_left(cx).map(Ok),
                Mode::Ready(head) => {
                    let (head, follows) = (head.clone(), head.follows);
                    this.watch = None;
                    this.handed = this.handed.wrapping_add(1);
                    this.mode = Mode::Handing(this.prepare(&head), follows);
                }
                Mode::Handing(left, follows) => {
                    let (left, follows) = (*left, *follows);
                    let rest = left - this.hand(left, &mut cursor);
                    this.mode = match (rest, follows) {
                        (0, Follows::Head) => {
                            this.scan = Scan::default();
                            Mode::Head
                        }
                        (0, Follows::Anything) => Mode::Opaque,
                        _ => Mode::Handing(rest, follows),
                    };
                    return Poll::Ready(Ok(()));
                }
                Mode::Opaque if this.buffer.is_empty() => {
                    return Pin::new(&mut this.io).poll_read(cx, cursor);
                }
                Mode::Opaque => {
                    this.hand(usize::MAX, &mut cursor);
                    return Poll::Ready(Ok(()));
                }
                Mode::Refused(_) | Mode::Answering(_) | Mode::Draining(_) => ready!(this.poll_refused(cx))?,
                Mode::Over => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl<E: HeadEvents + Unpin> Write for HeadReader<E> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.replaces(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        match Pin::new(this.io.inner_mut()).poll_write(cx, bytes) {
            Poll::Ready(result) => {
                this.stall.note();
                Poll::Ready(result)
            }
            Poll::Pending => this.stall.poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if slices.first().is_some_and(|first| this.replaces(first)) {
            return Poll::Ready(Ok(slices.iter().map(|s| s.len()).sum()));
        }
        match Pin::new(this.io.inner_mut()).poll_write_vectored(cx, slices) {
            Poll::Ready(result) => {
                this.stall.note();
                Poll::Ready(result)
            }
            Poll::Pending => this.stall.poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().io.inner_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_refused(cx))?;
        Pin::new(this.io.inner_mut()).poll_shutdown(cx)
    }
}

/// A head with the bytes of its target percent-encoded that hyper would refuse.
fn encoded(buffer: &[u8], head: &Head) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(head.bytes.len() + 3 * head.target.len());
    bytes.extend_from_slice(buffer.get(head.bytes.start..head.target.start).unwrap_or_default());
    for byte in buffer.get(head.target.clone()).unwrap_or_default() {
        if is_encoded(*byte) {
            let digit = |nibble: u8| b"0123456789ABCDEF".get(usize::from(nibble)).copied().unwrap_or(b'0');
            bytes.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
        } else {
            bytes.push(*byte);
        }
    }
    bytes.extend_from_slice(buffer.get(head.target.end..head.bytes.end).unwrap_or_default());
    bytes
}

/// A second handle on a socket, to wait for its closing without reading it.
fn duplicate(socket: &TcpStream) -> io::Result<TcpStream> {
    TcpStream::from_std(std::net::TcpStream::from(socket.as_fd().try_clone_to_owned()?))
}

/// Ready once the other side has closed its half or reset, also with bytes unread: `EPOLLRDHUP`.
///
/// Waiting for readability would be over at once, since there are bytes; waiting for priority data ends only with it
/// or with the closing.
async fn left(socket: io::Result<TcpStream>) {
    if let Ok(socket) = socket
        && let Ok(ready) = socket.ready(Interest::PRIORITY).await
        && ready.is_read_closed()
    {
        return;
    }
    std::future::pending().await
}
