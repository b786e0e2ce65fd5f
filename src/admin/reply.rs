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
pub struct Reply(Form);

#[derive(Debug)]
enum Form {
    Whole(Full<Bytes>),
    Stream {
        pieces: mpsc::Receiver<Bytes>,
        over: Option<Over>,
        _place: Place,
    },
}

/// A stream's place among all streams: given back once its body and its source are both gone.
pub(super) type Place = Arc<OwnedSemaphorePermit>;

/// Ready, with an error, once nothing more will come of a stream.
pub(super) type Over = oneshot::Receiver<Infallible>;

impl Reply {
    /// A stream of what is sent here; `over` lasts no longer than its source.
    pub(super) fn stream(pieces: mpsc::Receiver<Bytes>, over: Over, place: Place) -> Self {
        Self(Form::Stream {
            pieces,
            over: Some(over),
            _place: place,
        })
    }

    /// What tells that the stream's source has ended; none for a body that is whole.
    pub(super) fn over(&mut self) -> Option<Over> {
        match &mut self.0 {
            Form::Whole(_) => None,
            Form::Stream { over, .. } => over.take(),
        }
    }
}

impl From<Full<Bytes>> for Reply {
    fn from(whole: Full<Bytes>) -> Self {
        Self(Form::Whole(whole))
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Form::Whole(whole) => Pin::new(whole).poll_frame(cx),
            Form::Stream { pieces, .. } => {
                let piece = ready!(pieces.poll_recv(cx));
                Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Form::Whole(whole) => whole.is_end_stream(),
            Form::Stream { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Form::Whole(whole) => whole.size_hint(),
            Form::Stream { .. } => SizeHint::default(),
        }
    }
}
