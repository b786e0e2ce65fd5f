//! A document on its way to the client: what was kept, then what still comes; as it was, or changed.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::SizeHint;

use crate::gate::response::ContentHash;

use super::change::{Change, Unchangeable};
use super::hashing::Hashing;
use super::kept::Kept;
use super::{BodyError, Download};

/// Parts of what has come that are changed in one go.
const AT_A_TIME: usize = 32;
/// Bytes of a changed document that are sent at once.
const ENOUGH: usize = 16 * 1024;

/// The body of an answer of which some was read before any was sent.
#[derive(Debug)]
pub struct Document {
    kept: Kept,
    rest: Box<Download>,
    hashing: Option<Box<Hashing>>,
    change: Option<Box<Changing>>,
}

/// A change that is under way.
#[derive(Debug)]
struct Changing {
    change: Change,
    /// What is being fed.
    next: Bytes,
    /// What waits to be sent.
    out: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Coming,
    Ended,
}

impl Document {
    /// The bytes of the origin.
    pub(super) fn untouched(
        kept: Kept,
        rest: Box<Download>,
        hashing: Option<Box<Hashing>>,
    ) -> Self {
        Self {
            kept,
            rest,
            hashing,
            change: None,
        }
    }

    /// The document, changed.
    pub(super) fn changed(
        kept: Kept,
        rest: Box<Download>,
        hashing: Option<Box<Hashing>>,
        change: Change,
    ) -> Self {
        let changing = Changing {
            change,
            next: Bytes::new(),
            out: Vec::new(),
            state: State::Coming,
        };
        Self {
            kept,
            rest,
            hashing,
            change: Some(Box::new(changing)),
        }
    }

    pub(in crate::proxy) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        let Self {
            kept,
            rest,
            hashing,
            change,
        } = self;
        let Some(changing) = change else {
            return next(kept, rest, hashing, cx);
        };
        let mut fed = 0;
        loop {
            if changing.has_enough() {
                return Poll::Ready(Some(Ok(std::mem::take(&mut changing.out).into())));
            }
            if changing.state == State::Ended {
                return Poll::Ready(None);
            }
            let worked = if changing.next.is_empty() {
                match next(kept, rest, hashing, cx) {
                    Poll::Ready(Some(Ok(bytes))) => {
                        changing.next = bytes;
                        Ok(())
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(None) => changing.end(),
                    // What is there goes on while the origin is waited for.
                    Poll::Pending if !changing.out.is_empty() => {
                        return Poll::Ready(Some(Ok(std::mem::take(&mut changing.out).into())));
                    }
                    Poll::Pending => return Poll::Pending,
                }
            } else if fed < AT_A_TIME {
                fed += 1;
                changing.feed()
            } else {
                // What comes of little may be much, and none of it be sent: others have their turn.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            };
            if worked.is_err() {
                changing.state = State::Ended;
                changing.out.clear();
                return Poll::Ready(Some(Err(BodyError::Incomplete)));
            }
        }
    }

    /// All of the origin's body has come: what it held goes back. Its hash, where one was asked for; told once.
    pub(in crate::proxy) fn end(&mut self) -> Option<ContentHash> {
        self.rest.give_back();
        self.hashing.take().and_then(|hashing| hashing.end())
    }

    pub(in crate::proxy) fn is_over(&self) -> bool {
        match &self.change {
            Some(changing) => changing.state == State::Ended && changing.out.is_empty(),
            None => self.kept.length() == 0 && self.rest.is_over(),
        }
    }

    /// Nobody knows how long a changed document will be.
    pub(in crate::proxy) fn size_hint(&self) -> SizeHint {
        if self.change.is_some() {
            return SizeHint::default();
        }
        let rest = self.rest.size_hint();
        match rest.exact() {
            Some(exact) => SizeHint::with_exact(self.kept.length() + exact),
            None => SizeHint::default(),
        }
    }
}

impl Changing {
    fn has_enough(&self) -> bool {
        self.out.len() >= ENOUGH || (self.state == State::Ended && !self.out.is_empty())
    }

    fn feed(&mut self) -> Result<(), Unchangeable> {
        self.change.feed(&mut self.next)?;
        self.out.extend_from_slice(&self.change.take());
        Ok(())
    }

    fn end(&mut self) -> Result<(), Unchangeable> {
        self.state = State::Ended;
        self.change.end()?;
        self.out.extend_from_slice(&self.change.take());
        Ok(())
    }
}

fn next(
    kept: &mut Kept,
    rest: &mut Download,
    hashing: &mut Option<Box<Hashing>>,
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
