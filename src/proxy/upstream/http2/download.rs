//! The body of a response on its stream.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::SizeHint;

use super::connection::StreamReservation;
use super::upload::StreamUpload;

/// A body that arrives on a stream. Dropping it resets the stream, unless it has ended.
#[derive(Debug)]
pub struct StreamDownload {
    stream: RecvStream,
    /// The rest of the request's body.
    upload: Option<Box<StreamUpload>>,
    /// The number of bytes that are still to arrive, if the head names a length.
    remaining: Option<u64>,
    reservation: StreamReservation,
}

/// The origin or the client has ended a stream in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct StreamBroken;

impl StreamDownload {
    pub(super) fn new(
        stream: RecvStream,
        headers: &HeaderMap,
        upload: Option<Box<StreamUpload>>,
        reservation: StreamReservation,
    ) -> Self {
        let remaining = if stream.is_end_stream() {
            Some(0)
        } else {
            content_length(headers)
        };
        Self {
            stream,
            upload,
            remaining,
            reservation,
        }
    }

    /// Returns `true` if the whole body has arrived.
    pub(in crate::proxy) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    /// Returns the size of the rest, as far as it is known.
    pub(in crate::proxy) fn size_hint(&self) -> SizeHint {
        self.remaining
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Returns the next part. Trailers are dropped, as over HTTP/1.
    pub(in crate::proxy) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamBroken>>> {
        if let Some(upload) = &mut self.upload
            && upload.poll_send(cx).is_err()
        {
            return Poll::Ready(Some(Err(StreamBroken)));
        }
        loop {
            let data = match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => data,
                Some(Err(error)) => {
                    let _counted = self.reservation.connection.interpret(&error);
                    return Poll::Ready(Some(Err(StreamBroken)));
                }
                None => return Poll::Ready(None),
            };
            if data.is_empty() {
                continue;
            }
            // The origin may send more only after the client has taken this.
            let _ = self.stream.flow_control().release_capacity(data.len());
            self.remaining = self
                .remaining
                .map(|remaining| remaining.saturating_sub(data.len() as u64));
            return Poll::Ready(Some(Ok(data)));
        }
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
