//! Response bodies: one document, or a stream that lasts until its reader or its source ends.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// The body of a response.
#[derive(Debug)]
pub struct AdminBody(AdminBodyKind);

#[derive(Debug)]
enum AdminBodyKind {
    Whole(Full<Bytes>),
    Stream {
        chunks: mpsc::Receiver<Bytes>,
        end: Option<StreamEnd>,
        _permit: StreamPermit,
    },
}

/// The slot of a stream. It is freed when the body and the source of the stream have both been dropped.
pub(super) type StreamPermit = Arc<OwnedSemaphorePermit>;

/// Resolves, with an error, when the source of a stream has ended.
pub(super) type StreamEnd = oneshot::Receiver<Infallible>;

impl AdminBody {
    /// Creates a stream of `chunks`. The sender of `end` must be dropped with the source of the chunks.
    pub(super) fn stream(
        chunks: mpsc::Receiver<Bytes>,
        end: StreamEnd,
        permit: StreamPermit,
    ) -> Self {
        Self(AdminBodyKind::Stream {
            chunks,
            end: Some(end),
            _permit: permit,
        })
    }

    /// Takes the signal that the stream's source has ended; `None` for a body that is not a stream.
    pub(super) fn take_stream_end(&mut self) -> Option<StreamEnd> {
        match &mut self.0 {
            AdminBodyKind::Whole(_) => None,
            AdminBodyKind::Stream { end, .. } => end.take(),
        }
    }
}

impl From<Full<Bytes>> for AdminBody {
    fn from(whole: Full<Bytes>) -> Self {
        Self(AdminBodyKind::Whole(whole))
    }
}

impl Body for AdminBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            AdminBodyKind::Whole(whole) => Pin::new(whole).poll_frame(cx),
            AdminBodyKind::Stream { chunks, .. } => {
                let chunk = ready!(chunks.poll_recv(cx));
                Poll::Ready(chunk.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            AdminBodyKind::Whole(whole) => whole.is_end_stream(),
            AdminBodyKind::Stream { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            AdminBodyKind::Whole(whole) => whole.size_hint(),
            AdminBodyKind::Stream { .. } => SizeHint::default(),
        }
    }
}
