//! The body of a request that is forwarded to its owner.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;

use crate::fleet::link::{AwaitedUpload, LinkUpload, UploadConsent};
use crate::pipeline::permit::BodyTimeouts;
use crate::proxy::body::{BodyError, RequestUpload};

/// The time limits of a body at the entry: the owner has those of the policy.
const ENTRY_TIMEOUTS: BodyTimeouts = BodyTimeouts {
    idle: Some(Duration::from_secs(24 * 60 * 60)),
    whole: Some(Duration::from_secs(24 * 60 * 60)),
};

/// A client's body that goes to the owner once the owner wants it, and can be taken back until then.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct ForwardedUpload {
    state: Arc<Mutex<UploadSource>>,
    consent: UploadConsent,
}

#[derive(Debug)]
struct UploadSource {
    upload: RequestUpload,
    failure: Option<BodyError>,
}

impl ForwardedUpload {
    pub(in crate::proxy) fn new(mut upload: RequestUpload) -> Self {
        upload.restart_timers(ENTRY_TIMEOUTS);
        Self {
            state: Arc::new(Mutex::new(UploadSource {
                upload,
                failure: None,
            })),
            consent: UploadConsent::default(),
        }
    }

    /// Returns the body for an attempt, and the consent that starts it.
    pub(super) fn start(&self) -> (LinkUpload, UploadConsent) {
        let body = SharedUpload(Arc::clone(&self.state)).map_err(Into::into);
        let upload = AwaitedUpload::new(body.boxed_unsync(), self.consent.clone());
        let upload = LinkUpload::Streamed(Box::new(upload));
        (upload, self.consent.clone())
    }

    /// Returns `true` if a part of the body may have been sent.
    pub(super) fn has_begun(&self) -> bool {
        self.consent.is_given()
    }

    /// Returns the error of the body, if it broke off.
    pub(super) fn failure(&self) -> Option<BodyError> {
        self.state.lock().failure
    }

    /// Takes the body back, unless a part of it may have been sent.
    pub(in crate::proxy) fn take_back(&self) -> RequestUpload {
        if self.has_begun() {
            RequestUpload::Empty
        } else {
            std::mem::take(&mut self.state.lock().upload)
        }
    }
}

/// The body as a link reads it.
struct SharedUpload(Arc<Mutex<UploadSource>>);

impl HttpBody for SharedUpload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut source = self.0.lock();
        let next = Pin::new(&mut source.upload).poll_frame(cx);
        if let Poll::Ready(Some(Err(error))) = &next {
            source.failure = Some(*error);
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().upload.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().upload.size_hint()
    }
}
