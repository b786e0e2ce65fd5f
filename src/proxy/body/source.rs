//! The connection or the stream that the body of a response arrives on.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, SizeHint};
use hyper::body::Incoming;

use crate::proxy::pool::OriginConnection;
use crate::proxy::upstream::StreamDownload;

use super::PoolHandle;

/// The source of a response's body.
#[derive(Debug)]
pub enum BodySource {
    /// An HTTP/1 connection.
    Exclusive(ExclusiveSource),
    /// A stream of an HTTP/2 connection; `None` after it was ended early.
    Stream(Option<StreamDownload>),
}

/// A body and the HTTP/1 connection that it arrives on.
#[derive(Debug)]
pub struct ExclusiveSource {
    incoming: Incoming,
    connection: Option<Box<OriginConnection>>,
    /// The number of polls since the last data that read as much as they could.
    empty_polls: u8,
}

/// The body broke off, or the origin violated the framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceBroken;

impl BodySource {
    /// Creates the source of a body on an HTTP/1 connection.
    pub fn exclusive(incoming: Incoming, connection: Box<OriginConnection>) -> Self {
        if incoming.size_hint().exact().is_some() {
            connection.allowance.expect_data();
        }
        Self::Exclusive(ExclusiveSource {
            incoming,
            connection: Some(connection),
            empty_polls: 0,
        })
    }

    pub(super) fn is_end_stream(&self) -> bool {
        match self {
            Self::Exclusive(source) => source.incoming.is_end_stream(),
            Self::Stream(stream) => stream.as_ref().is_none_or(StreamDownload::is_end_stream),
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Exclusive(source) => source.incoming.size_hint(),
            Self::Stream(stream) => stream
                .as_ref()
                .map_or_else(SizeHint::default, StreamDownload::size_hint),
        }
    }

    /// Returns the next data. Trailers are dropped: their fields are not filtered, and crawlers do
    /// not ask for them.
    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, SourceBroken>>> {
        match self {
            Self::Exclusive(source) => source.poll_data(cx),
            Self::Stream(Some(stream)) => stream
                .poll_data(cx)
                .map(|next| next.map(|data| data.map_err(|_| SourceBroken))),
            Self::Stream(None) => Poll::Ready(None),
        }
    }

    /// Returns the number of polls since the last data that read as much as they could.
    pub(super) fn empty_polls(&self) -> u8 {
        match self {
            Self::Exclusive(source) => source.empty_polls,
            // The frames of a connection have their own budget.
            Self::Stream(_) => 0,
        }
    }

    /// Closes the connection, or resets the stream.
    pub(super) fn close(&mut self) {
        match self {
            Self::Exclusive(source) => source.connection = None,
            Self::Stream(stream) => *stream = None,
        }
    }

    /// Returns the connection to the pool after the last byte. A connection that has not recognized the end of the
    /// message needs one more poll.
    pub(super) fn release(&mut self, to: &PoolHandle) {
        match self {
            Self::Exclusive(source) => {
                if let Some(mut connection) = source.connection.take() {
                    connection.allowance.expect_framing();
                    if connection.sender.is_ready() || connection.is_usable() {
                        to.pool.put(connection, to.clock.now());
                    }
                }
            }
            Self::Stream(stream) => *stream = None,
        }
    }
}

impl ExclusiveSource {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, SourceBroken>>> {
        loop {
            let frame = match ready!(self.poll_incoming(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => return Poll::Ready(Some(Err(SourceBroken))),
                None => return Poll::Ready(None),
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            return Poll::Ready(Some(Ok(data)));
        }
    }

    /// Polls the body and the connection: the connection reads the bytes that the body waits for.
    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, hyper::Error>>> {
        if let Poll::Ready(next) = Pin::new(&mut self.incoming).poll_frame(cx) {
            return Poll::Ready(next);
        }
        let Some(connection) = &mut self.connection else {
            return Pin::new(&mut self.incoming).poll_frame(cx);
        };
        let ended = connection.poll_drive(cx).is_ready();
        let was_interrupted = connection.allowance.take_interruption();
        if ended {
            self.connection = None;
        }
        let next = Pin::new(&mut self.incoming).poll_frame(cx);
        if next.is_ready() {
            self.empty_polls = 0;
        } else if was_interrupted {
            self.empty_polls += 1;
        }
        next
    }
}
