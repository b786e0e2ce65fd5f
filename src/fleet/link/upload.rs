//! The body of a forwarded request.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use parking_lot::Mutex;

/// The error of a body.
pub type UploadError = Box<dyn Error + Send + Sync>;

/// The body of a request on a link.
#[derive(Debug)]
pub enum LinkUpload {
    Empty,
    /// A body that waits for the owner's consent.
    Streamed(Box<AwaitedUpload>),
}

/// A body of which nothing is sent before the owner wants it (`100 Continue`): until then the request can go to another
/// owner.
#[derive(Debug)]
pub struct AwaitedUpload {
    body: UnsyncBoxBody<Bytes, UploadError>,
    consent: UploadConsent,
}

/// The consent of the owner to send the body.
#[derive(Clone, Debug, Default)]
pub struct UploadConsent(Arc<Mutex<ConsentState>>);

#[derive(Debug, Default)]
enum ConsentState {
    #[default]
    Awaited,
    /// The task that sends the body waits.
    Polled(Waker),
    Given,
}

impl UploadConsent {
    /// Records that the owner wants the body.
    pub fn give(&self) {
        let previous = std::mem::replace(&mut *self.0.lock(), ConsentState::Given);
        if let ConsentState::Polled(waker) = previous {
            waker.wake();
        }
    }

    /// Returns `true` if the owner wants the body: part of it may have been sent.
    pub fn is_given(&self) -> bool {
        matches!(*self.0.lock(), ConsentState::Given)
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if matches!(*state, ConsentState::Given) {
            return Poll::Ready(());
        }
        *state = ConsentState::Polled(cx.waker().clone());
        Poll::Pending
    }
}

impl AwaitedUpload {
    pub fn new(body: UnsyncBoxBody<Bytes, UploadError>, consent: UploadConsent) -> Self {
        Self { body, consent }
    }
}

impl Body for LinkUpload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Streamed(upload) => {
                ready!(upload.consent.poll(cx));
                Pin::new(&mut upload.body).poll_frame(cx)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Streamed(upload) => upload.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streamed(upload) => upload.body.size_hint(),
        }
    }
}
