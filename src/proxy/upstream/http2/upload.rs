//! The body of a request on its stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body as _;

use crate::proxy::body::{BodyError, RequestUpload};

/// Passes a body on as far as the origin's windows allow. At most one part waits here.
#[derive(Debug)]
pub(super) struct StreamUpload {
    body: RequestUpload,
    stream: SendStream<Bytes>,
    part: Bytes,
    is_done: bool,
}

impl StreamUpload {
    pub(super) fn new(body: RequestUpload, stream: SendStream<Bytes>) -> Self {
        Self {
            body,
            stream,
            part: Bytes::new(),
            is_done: false,
        }
    }

    /// Passes on what it can.
    ///
    /// # Errors
    /// Returns the error of the client's body, after which the stream is reset.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        if self.is_done {
            return Ok(());
        }
        match self.poll_parts(cx) {
            Poll::Ready(Ok(())) => self.is_done = true,
            Poll::Ready(Err(error)) => {
                self.stream.send_reset(Reason::CANCEL);
                self.is_done = true;
                return Err(error);
            }
            Poll::Pending => {}
        }
        Ok(())
    }

    /// Ready at the end of the body, or when the origin takes no more of it.
    fn poll_parts(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        loop {
            if !self.part.is_empty() {
                self.stream.reserve_capacity(self.part.len());
                // The response reports why a stream takes no more.
                let Some(Ok(capacity)) = ready!(self.stream.poll_capacity(cx)) else {
                    return Poll::Ready(Ok(()));
                };
                let part = self.part.split_to(capacity.min(self.part.len()));
                if self.stream.send_data(part, false).is_err() {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => self.part = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => {
                    let _ = self.stream.send_data(Bytes::new(), true);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}
