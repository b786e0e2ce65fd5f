//! The body of a client's request, over either version of HTTP.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use super::BodyError;

/// The body of a client's request.
#[derive(Debug)]
pub enum ClientBody {
    /// On an HTTP/1 connection.
    Http1(Incoming),
    /// On a stream of an HTTP/2 connection.
    Http2(Box<StreamBody>),
    /// No body.
    Empty,
}

/// The DATA frames of a stream.
#[derive(Debug)]
pub struct StreamBody {
    stream: RecvStream,
    /// The number of bytes that will arrive, if the request declares it.
    remaining: Option<u64>,
    demand: BodyDemand,
}

/// Records that a body is wanted: a client with `Expect: 100-continue` waits for that.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyDemand(Arc<AtomicBool>);

impl BodyDemand {
    /// Returns `true` once after the body was first read.
    pub(crate) fn take(&self) -> bool {
        self.0.load(Relaxed) && self.0.swap(false, Relaxed)
    }
}

impl From<Incoming> for ClientBody {
    fn from(incoming: Incoming) -> Self {
        Self::Http1(incoming)
    }
}

impl StreamBody {
    /// Creates the body of a request that declares this length, if any.
    pub(crate) fn new(stream: RecvStream, length: Option<u64>, demand: BodyDemand) -> Self {
        Self {
            stream,
            remaining: length,
            demand,
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        self.demand.0.store(true, Relaxed);
        let Some(data) = ready!(self.stream.poll_data(cx)) else {
            return Poll::Ready(None);
        };
        let data = data.map_err(|error| stream_error(&error))?;
        // Fails if the stream has ended, which needs no handling.
        let _ = self.stream.flow_control().release_capacity(data.len());
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.saturating_sub(data.len() as u64);
        }
        Poll::Ready(Some(Ok(data)))
    }
}

impl HttpBody for ClientBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Http1(incoming) => {
                let next = ready!(Pin::new(incoming).poll_frame(cx));
                Poll::Ready(next.map(|frame| frame.map_err(|error| connection_error(&error))))
            }
            // Trailers are not forwarded.
            Self::Http2(body) => body
                .poll_data(cx)
                .map(|data| data.map(|data| data.map(Frame::data))),
            Self::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(incoming) => incoming.is_end_stream(),
            Self::Http2(body) => body.stream.is_end_stream(),
            Self::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(incoming) => incoming.size_hint(),
            Self::Http2(body) => body
                .remaining
                .map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::Empty => SizeHint::with_exact(0),
        }
    }
}

/// Distinguishes a client that left, which gets no response, from one that violates the framing,
/// which gets a 400.
fn connection_error(error: &hyper::Error) -> BodyError {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let source = std::error::Error::source(error).and_then(|s| s.downcast_ref::<std::io::Error>());
    match source.map(std::io::Error::kind) {
        Some(UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe) => {
            BodyError::ClientLeft
        }
        Some(_) | None => BodyError::Incomplete,
    }
}

/// Returns the cause of a stream's end: the client's reset, or a violation that `h2` has detected.
fn stream_error(error: &h2::Error) -> BodyError {
    if error.is_library() {
        BodyError::Incomplete
    } else {
        BodyError::ClientLeft
    }
}
