//! A document on its way to the client: the buffered part, then the rest; unchanged or rewritten.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::SizeHint;

use crate::pipeline::response::ContentHash;

use super::buffer::BodyBuffer;
use super::content_hash::ContentHasher;
use super::rewrite::{DocumentRewriter, RewriteError};
use super::{BodyError, ResponseDownload};
use crate::long_work::{LongWork, run_long};
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
    rewriter: RewriterPlace,
    /// Bytes that are not rewritten yet.
    input: Bytes,
    /// Rewritten bytes that are not sent yet.
    output: Vec<u8>,
    state: StreamState,
}

/// The thread that a rewriter is used on.
enum RewriterPlace {
    /// That of the request.
    Here(DocumentRewriter),
    /// One of the blocking pool, for a step that takes long.
    Away(LongStep),
    /// The document is complete, or its rewriting has failed.
    Gone,
}

/// A step on the blocking pool. Returns `None` if it panicked.
type LongStep = Pin<Box<dyn Future<Output = Option<LongStepResult>> + Send>>;

struct LongStepResult {
    rewriter: DocumentRewriter,
    /// Bytes that are not rewritten yet.
    input: Bytes,
    result: Result<(), RewriteError>,
}

impl fmt::Debug for RewriterPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(rewriter) => rewriter.fmt(f),
            Self::Away(_) => f.write_str("Away"),
            Self::Gone => f.write_str("Gone"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Reading,
    /// All bytes were passed to the rewriter, which is completing the document.
    Finishing,
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
            rewrite: Some(Box::new(RewriteStream::new(rewriter))),
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
            if stream.is_away() {
                if ready!(stream.poll_step(cx)).is_err() {
                    return Poll::Ready(Some(Err(stream.fail())));
                }
                continue;
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
                return Poll::Ready(Some(Err(stream.fail())));
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
    fn new(rewriter: DocumentRewriter) -> Self {
        Self {
            rewriter: RewriterPlace::Here(rewriter),
            input: Bytes::new(),
            output: Vec::new(),
            state: StreamState::Reading,
        }
    }

    fn has_enough(&self) -> bool {
        self.output.len() >= SEND_SIZE
            || (self.state == StreamState::Ended && !self.output.is_empty())
    }

    fn needs_input(&self) -> bool {
        match &self.rewriter {
            RewriterPlace::Here(rewriter) => self.input.is_empty() && !rewriter.holds_output(),
            RewriterPlace::Away(_) | RewriterPlace::Gone => false,
        }
    }

    /// Rewrites more of the input: as much as `work` allows in this turn, or a part that takes
    /// long, elsewhere.
    fn feed(&mut self, work: &mut TurnWork) -> Result<(), RewriteError> {
        match std::mem::replace(&mut self.rewriter, RewriterPlace::Gone) {
            RewriterPlace::Here(rewriter) if rewriter.is_long() => {
                self.start_step(rewriter, DocumentRewriter::feed_long);
                Ok(())
            }
            RewriterPlace::Here(mut rewriter) => {
                rewriter.feed(&mut self.input, work)?;
                self.output.extend_from_slice(&rewriter.take_output());
                self.rewriter = RewriterPlace::Here(rewriter);
                Ok(())
            }
            RewriterPlace::Away(_) | RewriterPlace::Gone => Err(RewriteError),
        }
    }

    /// Completes the document.
    fn end(&mut self) -> Result<(), RewriteError> {
        match std::mem::replace(&mut self.rewriter, RewriterPlace::Gone) {
            RewriterPlace::Here(rewriter) if rewriter.is_long() => {
                self.state = StreamState::Finishing;
                self.start_step(rewriter, |rewriter, _| rewriter.finish());
                Ok(())
            }
            RewriterPlace::Here(mut rewriter) => {
                self.state = StreamState::Ended;
                rewriter.finish()?;
                self.output.extend_from_slice(&rewriter.take_output());
                Ok(())
            }
            RewriterPlace::Away(_) | RewriterPlace::Gone => Err(RewriteError),
        }
    }

    fn start_step(
        &mut self,
        mut rewriter: DocumentRewriter,
        step: fn(&mut DocumentRewriter, &mut Bytes) -> Result<(), RewriteError>,
    ) {
        let mut input = std::mem::take(&mut self.input);
        self.rewriter = RewriterPlace::Away(Box::pin(run_long(LongWork::Documents, move || {
            let result = step(&mut rewriter, &mut input);
            LongStepResult {
                rewriter,
                input,
                result,
            }
        })));
    }

    fn is_away(&self) -> bool {
        matches!(self.rewriter, RewriterPlace::Away(_))
    }

    /// Ready when no step is in progress.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RewriteError>> {
        match &mut self.rewriter {
            RewriterPlace::Away(step) => {
                let ended = ready!(step.as_mut().poll(cx));
                Poll::Ready(self.end_step(ended))
            }
            RewriterPlace::Here(_) | RewriterPlace::Gone => Poll::Ready(Ok(())),
        }
    }

    fn end_step(&mut self, ended: Option<LongStepResult>) -> Result<(), RewriteError> {
        self.rewriter = RewriterPlace::Gone;
        let LongStepResult {
            mut rewriter,
            input,
            result,
        } = ended.ok_or(RewriteError)?;
        result?;
        self.input = input;
        self.output.extend_from_slice(&rewriter.take_output());
        if self.state == StreamState::Finishing {
            self.state = StreamState::Ended;
        } else {
            self.rewriter = RewriterPlace::Here(rewriter);
        }
        Ok(())
    }

    fn fail(&mut self) -> BodyError {
        self.state = StreamState::Ended;
        self.rewriter = RewriterPlace::Gone;
        self.output.clear();
        BodyError::Incomplete
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use crate::pipeline::document_rewrite::{DocumentRewrite, LinkHandling, TextHandling};
    use crate::pipeline::header_effects::RobotsTag;
    use crate::proxy::document::coding::ContentCoding;

    use super::*;

    fn stream() -> RewriteStream {
        let changes = DocumentRewrite {
            robots_meta: RobotsTag::NoIndex,
            links: LinkHandling::Strip,
            text: TextHandling::Keep,
        };
        let coding = ContentCoding::Identity;
        RewriteStream::new(DocumentRewriter::new(changes, coding, encoding_rs::UTF_8))
    }

    /// Rewrites a document. Returns the result and the number of steps on the blocking pool.
    async fn rewrite(html: &str) -> (Vec<u8>, usize) {
        let mut stream = stream();
        stream.input = html.to_owned().into();
        let mut steps = 0;
        while stream.state != StreamState::Ended {
            if stream.is_away() {
                steps += 1;
                poll_fn(|cx| stream.poll_step(cx)).await.unwrap();
            } else if stream.needs_input() {
                stream.end().unwrap();
            } else {
                stream.feed(&mut TurnWork::default()).unwrap();
            }
        }
        (stream.output, steps)
    }

    #[tokio::test]
    async fn a_document_of_many_elements_is_rewritten_on_other_threads() {
        const META: &str = "<meta name=\"robots\" content=\"noindex\"/>";
        for (count, is_long) in [(10, false), (1_000, false), (30_000, true)] {
            for element in ["<a href=/>x", "<p><i href=/ >y</i>", "<b/>"] {
                let (output, steps) = rewrite(&element.repeat(count)).await;
                let expected = element.replace("<a href=/>", "<a>").repeat(count);
                assert!(
                    output == format!("{META}{expected}").as_bytes(),
                    "{count} of {element}"
                );
                assert_eq!(steps > 0, is_long, "{count} of {element}");
            }
        }
        // Text without tags is never long.
        assert_eq!(rewrite(&"1 < 2 ".repeat(100_000)).await.1, 0);
    }

    #[tokio::test]
    async fn too_many_open_elements_fail() {
        let mut stream = stream();
        stream.input = "<a>".repeat(500_000).into();
        let failed = loop {
            let result = if stream.is_away() {
                poll_fn(|cx| stream.poll_step(cx)).await
            } else {
                stream.feed(&mut TurnWork::default())
            };
            if let Err(error) = result {
                break error;
            }
        };
        assert_eq!(failed, RewriteError);
        assert_eq!(stream.fail(), BodyError::Incomplete);
        assert!(!stream.needs_input() && !stream.is_away());
    }
}
