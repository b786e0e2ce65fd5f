//! A document on its way to the client: what was kept, then what still comes; as it was, or changed.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::SizeHint;

use crate::pipeline::response::ContentHash;

use super::buffer::BodyBuffer;
use super::content_hash::ContentHasher;
use super::rewrite::{DocumentRewriter, RewriteError};
use super::{BodyError, ResponseDownload};

/// Parts of what has come that are changed in one go.
const FEEDS_PER_POLL: usize = 32;
/// Bytes of a changed document that are sent at once.
const SEND_SIZE: usize = 16 * 1024;

/// The body of an answer of which some was read before any was sent.
#[derive(Debug)]
pub struct DocumentBody {
    buffer: BodyBuffer,
    rest: Box<ResponseDownload>,
    hasher: Option<Box<ContentHasher>>,
    rewrite: Option<Box<RewriteStream>>,
}

/// A change that is under way.
#[derive(Debug)]
struct RewriteStream {
    rewriter: DocumentRewriter,
    /// What is being fed.
    input: Bytes,
    /// What waits to be sent.
    output: Vec<u8>,
    state: StreamState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Coming,
    Ended,
}

impl DocumentBody {
    /// The bytes of the origin.
    pub(super) fn untouched(
        kept: BodyBuffer,
        rest: Box<ResponseDownload>,
        hashing: Option<Box<ContentHasher>>,
    ) -> Self {
        Self {
            buffer: kept,
            rest,
            hasher: hashing,
            rewrite: None,
        }
    }

    /// The document, changed.
    pub(super) fn rewritten(
        kept: BodyBuffer,
        rest: Box<ResponseDownload>,
        hashing: Option<Box<ContentHasher>>,
        change: DocumentRewriter,
    ) -> Self {
        let changing = RewriteStream {
            rewriter: change,
            input: Bytes::new(),
            output: Vec::new(),
            state: StreamState::Coming,
        };
        Self {
            buffer: kept,
            rest,
            hasher: hashing,
            rewrite: Some(Box::new(changing)),
        }
    }

    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        let Self {
            buffer: kept,
            rest,
            hasher: hashing,
            rewrite: change,
        } = self;
        let Some(changing) = change else {
            return poll_next_part(kept, rest, hashing, cx);
        };
        let mut fed = 0;
        loop {
            if changing.has_enough() {
                return Poll::Ready(Some(Ok(std::mem::take(&mut changing.output).into())));
            }
            if changing.state == StreamState::Ended {
                return Poll::Ready(None);
            }
            let worked = if changing.input.is_empty() {
                match poll_next_part(kept, rest, hashing, cx) {
                    Poll::Ready(Some(Ok(bytes))) => {
                        changing.input = bytes;
                        Ok(())
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(None) => changing.end(),
                    // What is there goes on while the origin is waited for.
                    Poll::Pending if !changing.output.is_empty() => {
                        return Poll::Ready(Some(Ok(std::mem::take(&mut changing.output).into())));
                    }
                    Poll::Pending => return Poll::Pending,
                }
            } else if fed < FEEDS_PER_POLL {
                fed += 1;
                changing.feed()
            } else {
                // What comes of little may be much, and none of it be sent: others have their turn.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            };
            if worked.is_err() {
                changing.state = StreamState::Ended;
                changing.output.clear();
                return Poll::Ready(Some(Err(BodyError::Incomplete)));
            }
        }
    }

    /// All of the origin's body has come: what it held goes back. Its hash, where one was asked for; told once.
    pub(crate) fn finish(&mut self) -> Option<ContentHash> {
        self.rest.release();
        self.hasher.take().and_then(|hashing| hashing.finish())
    }

    pub(crate) fn is_over(&self) -> bool {
        match &self.rewrite {
            Some(changing) => changing.state == StreamState::Ended && changing.output.is_empty(),
            None => self.buffer.length() == 0 && self.rest.is_over(),
        }
    }

    /// Nobody knows how long a changed document will be.
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
    kept: &mut BodyBuffer,
    rest: &mut ResponseDownload,
    hashing: &mut Option<Box<ContentHasher>>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, BodyError>>> {
    let next = match kept.pop() {
        Some(part) => Some(Ok(part)),
        None if rest.is_over() => None,
        None => ready!(rest.poll_data(cx)),
    };
    match (&next, &mut *hashing) {
        (Some(Ok(part)), Some(hashing)) => hashing.feed(part),
        (Some(Err(_)), hashing) => *hashing = None,
        (Some(Ok(_)) | None, _) => {}
    }
    Poll::Ready(next)
}
