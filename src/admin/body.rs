//! The body of an answer: whole, or a stream that lasts as long as its reader and its source do.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// An answer's body.
#[derive(Debug)]
pub struct AdminBody(AdminBodyKind);

#[derive(Debug)]
enum AdminBodyKind {
    Whole(Full<Bytes>),
    Stream {
        pieces: mpsc::Receiver<Bytes>,
        end: Option<StreamEnd>,
        _permit: StreamPermit,
    },
}

/// A stream's place among all streams: given back once its body and its source are both gone.
pub(super) type StreamPermit = Arc<OwnedSemaphorePermit>;

/// Ready, with an error, once nothing more will come of a stream.
pub(super) type StreamEnd = oneshot::Receiver<Infallible>;

impl AdminBody {
    /// A stream of what is sent here; `over` lasts no longer than its source.
    pub(super) fn stream(
        pieces: mpsc::Receiver<Bytes>,
        end: StreamEnd,
        permit: StreamPermit,
    ) -> Self {
        Self(AdminBodyKind::Stream {
            pieces,
            end: Some(end),
            _permit: permit,
        })
    }

    /// What tells that the stream's source has ended; none for a body that is whole.
    pub(super) fn take_stream_end(&mut self) -> Option<StreamEnd> {
        match &mut self.0 {
            AdminBodyKind::Whole(_) => None,
            AdminBodyKind::Stream { end: over, .. } => over.take(),
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
            AdminBodyKind::Stream { pieces, .. } => {
                let piece = ready!(pieces.poll_recv(cx));
                Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes))))
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
