//! A document on its way to the client: the buffered part, then the rest; unchanged or rewritten.

use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::SizeHint;

use crate::pipeline::response::ContentHash;

use super::buffer::BodyBuffer;
use super::content_hash::ContentHasher;
use super::rewrite::{DocumentRewriter, RewriteError};
use super::{BodyError, ResponseDownload};
use crate::proxy::turn::TurnWork;

/// The number of rewritten bytes that are sent at once.
const SEND_SIZE: usize = 16 * 1024;

/// The body of a response that was read in part before any of it was sent.
#[derive(Debug)]
pub struct DocumentBody {
    source: PartSource,
    rewrite: Option<Box<RewriteStream>>,
}

/// The parts of the origin's body, which are hashed on the way if their hash is wanted.
#[derive(Debug)]
struct PartSource {
    buffer: BodyBuffer,
    rest: Box<ResponseDownload>,
    hasher: Option<Box<ContentHasher>>,
    /// A part that is not hashed completely.
    hashing: Option<HashingPart>,
    work: TurnWork,
}

#[derive(Debug)]
struct HashingPart {
    part: Bytes,
    unhashed: Bytes,
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
            source: PartSource::new(buffer, rest, hasher),
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
            source: PartSource::new(buffer, rest, hasher),
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
        let Self { source, rewrite } = self;
        let Some(stream) = rewrite else {
            return source.poll_next(cx);
        };
        loop {
            if stream.has_enough() {
                return Poll::Ready(Some(Ok(std::mem::take(&mut stream.output).into())));
            }
            if stream.state == StreamState::Ended {
                return Poll::Ready(None);
            }
            // Little input can produce much output, or none that can be sent.
            ready!(source.work.poll_allowed(cx));
            let result = if stream.needs_input() {
                match source.poll_next(cx) {
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
            } else {
                stream.feed(&mut source.work)
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
        self.source.rest.release();
        let hasher = self.source.hasher.take();
        hasher.and_then(|hasher| hasher.finish())
    }

    pub(crate) fn is_over(&self) -> bool {
        match &self.rewrite {
            Some(stream) => stream.state == StreamState::Ended && stream.output.is_empty(),
            None => self.source.is_over(),
        }
    }

    /// Returns the size of an unchanged document. That of a rewritten one is unknown.
    pub(crate) fn size_hint(&self) -> SizeHint {
        if self.rewrite.is_some() {
            return SizeHint::default();
        }
        self.source.size_hint()
    }
}

impl RewriteStream {
    fn has_enough(&self) -> bool {
        self.output.len() >= SEND_SIZE
            || (self.state == StreamState::Ended && !self.output.is_empty())
    }

    fn needs_input(&self) -> bool {
        self.input.is_empty() && !self.rewriter.holds_output()
    }

    fn feed(&mut self, work: &mut TurnWork) -> Result<(), RewriteError> {
        self.rewriter.feed(&mut self.input, work)?;
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

impl PartSource {
    fn new(
        buffer: BodyBuffer,
        rest: Box<ResponseDownload>,
        hasher: Option<Box<ContentHasher>>,
    ) -> Self {
        Self {
            buffer,
            rest,
            hasher,
            hashing: None,
            work: TurnWork::default(),
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let mut hashing = match self.hashing.take() {
            Some(hashing) => hashing,
            None => match ready!(self.poll_unhashed(cx)) {
                Some(Ok(part)) => HashingPart {
                    unhashed: part.clone(),
                    part,
                },
                end @ (Some(Err(_)) | None) => return Poll::Ready(end),
            },
        };
        let Some(hasher) = &mut self.hasher else {
            return Poll::Ready(Some(Ok(hashing.part)));
        };
        let mut unhashed = &hashing.unhashed[..];
        if hasher.feed(&mut unhashed, &mut self.work).is_continue() {
            return Poll::Ready(Some(Ok(hashing.part)));
        }
        let used = hashing.unhashed.len() - unhashed.len();
        hashing.unhashed.advance(used);
        self.hashing = Some(hashing);
        self.work.end_turn(cx);
        Poll::Pending
    }

    fn poll_unhashed(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if let Some(part) = self.buffer.pop() {
            return Poll::Ready(Some(Ok(part)));
        }
        if self.rest.is_over() {
            return Poll::Ready(None);
        }
        let next = self.rest.poll_data(cx);
        match &next {
            Poll::Ready(Some(Err(_))) => self.hasher = None,
            Poll::Ready(Some(Ok(_)) | None) => {}
            Poll::Pending => self.work.restart(),
        }
        next
    }

    fn is_over(&self) -> bool {
        self.hashing.is_none() && self.buffer.length() == 0 && self.rest.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        let hashing = self
            .hashing
            .as_ref()
            .map_or(0, |hashing| hashing.part.len());
        match self.rest.size_hint().exact() {
            Some(exact) => SizeHint::with_exact(hashing as u64 + self.buffer.length() + exact),
            None => SizeHint::default(),
        }
    }
}
