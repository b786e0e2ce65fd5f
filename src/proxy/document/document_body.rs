//! A document on its way to the client: the buffered part, then the rest; unchanged or rewritten.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::SizeHint;

use crate::pipeline::response::ContentHash;

use super::buffer::BodyBuffer;
use super::content_hash::ContentHasher;
use super::rewrite::{DocumentRewriter, RewriteError};
use super::{BodyError, ResponseDownload};

/// The maximum number of input parts that are rewritten per poll.
const FEEDS_PER_POLL: usize = 32;
/// The number of rewritten bytes that are sent at once.
const SEND_SIZE: usize = 16 * 1024;

/// The body of a response that was read in part before any of it was sent.
#[derive(Debug)]
pub struct DocumentBody {
    buffer: BodyBuffer,
    rest: Box<ResponseDownload>,
    hasher: Option<Box<ContentHasher>>,
    rewrite: Option<Box<RewriteStream>>,
}

/// A rewrite in progress.
#[derive(Debug)]
struct RewriteStream {
    rewriter: DocumentRewriter,
    /// Bytes that are not rewritten yet.
    input: Bytes,
    /// Rewritten bytes that are not sent yet.
    output: Vec<u8>,
    state: StreamState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Reading,
    Ended,
}

impl DocumentBody {
    /// Creates a body that forwards the origin's bytes unchanged.
    pub(super) fn untouched(
        buffer: BodyBuffer,
        rest: Box<ResponseDownload>,
        hasher: Option<Box<ContentHasher>>,
    ) -> Self {
        Self {
            buffer,
            rest,
            hasher,
            rewrite: None,
        }
    }

    /// Creates a body that rewrites the document.
    pub(super) fn rewritten(
        buffer: BodyBuffer,
        rest: Box<ResponseDownload>,
        hasher: Option<Box<ContentHasher>>,
        rewriter: DocumentRewriter,
    ) -> Self {
        Self {
            buffer,
            rest,
            hasher,
            rewrite: Some(Box::new(RewriteStream {
                rewriter,
                input: Bytes::new(),
                output: Vec::new(),
                state: StreamState::Reading,
            })),
        }
    }

    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        let Self {
            buffer,
            rest,
            hasher,
            rewrite,
        } = self;
        let Some(stream) = rewrite else {
            return poll_next_part(buffer, rest, hasher, cx);
        };
        let mut fed = 0;
        loop {
            if stream.has_enough() {
                return Poll::Ready(Some(Ok(std::mem::take(&mut stream.output).into())));
            }
            if stream.state == StreamState::Ended {
                return Poll::Ready(None);
            }
            let result = if stream.input.is_empty() {
                match poll_next_part(buffer, rest, hasher, cx) {
                    Poll::Ready(Some(Ok(bytes))) => {
                        stream.input = bytes;
                        Ok(())
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(None) => stream.end(),
                    // Send the available output while the origin is awaited.
                    Poll::Pending if !stream.output.is_empty() => {
                        return Poll::Ready(Some(Ok(std::mem::take(&mut stream.output).into())));
                    }
                    Poll::Pending => return Poll::Pending,
                }
            } else if fed < FEEDS_PER_POLL {
                fed += 1;
                stream.feed()
            } else {
                // Little input can produce much output, or none that can be sent. Yield to the
                // other tasks.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            };
            if result.is_err() {
                stream.state = StreamState::Ended;
                stream.output.clear();
                return Poll::Ready(Some(Err(BodyError::Incomplete)));
            }
        }
    }

    /// Releases the resources of the origin's body after its end. Returns its hash if one was
    /// requested; only the first call does.
    pub(crate) fn finish(&mut self) -> Option<ContentHash> {
        self.rest.release();
        self.hasher.take().and_then(|hasher| hasher.finish())
    }

    pub(crate) fn is_over(&self) -> bool {
        match &self.rewrite {
            Some(stream) => stream.state == StreamState::Ended && stream.output.is_empty(),
            None => self.buffer.length() == 0 && self.rest.is_over(),
        }
    }

    /// Returns the size of an unchanged document. That of a rewritten one is unknown.
    pub(crate) fn size_hint(&self) -> SizeHint {
        if self.rewrite.is_some() {
            return SizeHint::default();
        }
        let rest = self.rest.size_hint();
        match rest.exact() {
            Some(exact) => SizeHint::with_exact(self.buffer.length() + exact),
            None => SizeHint::default(),
        }
    }
}

impl RewriteStream {
    fn has_enough(&self) -> bool {
        self.output.len() >= SEND_SIZE
            || (self.state == StreamState::Ended && !self.output.is_empty())
    }

    fn feed(&mut self) -> Result<(), RewriteError> {
        self.rewriter.feed(&mut self.input)?;
        self.output.extend_from_slice(&self.rewriter.take_output());
        Ok(())
    }

    fn end(&mut self) -> Result<(), RewriteError> {
        self.state = StreamState::Ended;
        self.rewriter.finish()?;
        self.output.extend_from_slice(&self.rewriter.take_output());
        Ok(())
    }
}

fn poll_next_part(
    buffer: &mut BodyBuffer,
    rest: &mut ResponseDownload,
    hasher: &mut Option<Box<ContentHasher>>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, BodyError>>> {
    let next = match buffer.pop() {
        Some(part) => Some(Ok(part)),
        None if rest.is_over() => None,
        None => ready!(rest.poll_data(cx)),
    };
    match (&next, &mut *hasher) {
        (Some(Ok(part)), Some(hasher)) => hasher.feed(part),
        (Some(Err(_)), hasher) => *hasher = None,
        (Some(Ok(_)) | None, _) => {}
    }
    Poll::Ready(next)
}
