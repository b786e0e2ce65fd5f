//! The body of a request on its way to the origin.
//!
//! The beginning is read before the request takes a slot of its host, so that a client that sends
//! slowly does not hold one meanwhile.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::EXPECT;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::clock::Clock;
use crate::pipeline::permit::BodyTimeouts;

use super::{BodyError, BodyTimeLimits, BodyTimers, ClientBody};

/// The number of bytes that are read before the request takes a slot of its host.
const READ_AHEAD: usize = 16 * 1024;
/// The maximum size of a body that is read and dropped if the request is not sent, so that the
/// connection can be used again.
const MAX_DISCARD: u64 = 64 * 1024;
/// The time for reading it.
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// The body of a request on its way to the origin.
#[derive(Debug, Default)]
pub enum RequestUpload {
    /// No body.
    #[default]
    Empty,
    /// The client's body, up to a limit.
    Streamed(Box<UploadStream>),
}

/// A client's body, counted and timed.
#[derive(Debug)]
pub struct UploadStream {
    incoming: ClientBody,
    /// The part that was read ahead.
    beginning: Bytes,
    /// The number of bytes that may still arrive.
    remaining: u64,
    times: BodyTimeLimits,
    timers: BodyTimers,
    clock: Clock,
    /// The time that reading ahead has taken.
    reading_ahead: Duration,
    consent: Consent,
    watch: UploadWatch,
}

/// The permission to send the body, for which a client with `Expect: 100-continue` waits. It is
/// given with the first read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consent {
    Awaited,
    Given,
}

/// Reports which side an upload waits for: the origin's response timeout runs only while the upload
/// does not wait for the client.
#[derive(Clone, Debug, Default)]
pub struct UploadWatch {
    state: Arc<UploadState>,
    bytes: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct UploadState {
    progress: AtomicU8,
    received: AtomicBool,
}

/// The progress of an upload since the previous check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadProgress {
    /// No progress: the origin reads no more, or has the whole body.
    Nothing,
    /// Bytes were passed on.
    Advanced,
    /// The upload waits for the client.
    AwaitingClient,
}

impl UploadWatch {
    /// Returns the progress since the previous call.
    pub fn take_progress(&self) -> UploadProgress {
        let advanced = UploadProgress::Advanced as u8;
        match self.state.progress.compare_exchange(
            advanced,
            UploadProgress::Nothing as u8,
            Relaxed,
            Relaxed,
        ) {
            Ok(_) => UploadProgress::Advanced,
            Err(state) if state == UploadProgress::AwaitingClient as u8 => {
                UploadProgress::AwaitingClient
            }
            Err(_) => UploadProgress::Nothing,
        }
    }

    fn set_progress(&self, progress: UploadProgress) {
        self.state.progress.store(progress as u8, Relaxed);
    }

    /// Returns `true` if the client's whole body was read. Otherwise its connection cannot be used
    /// for another request.
    pub fn is_received(&self) -> bool {
        self.state.received.load(Relaxed)
    }

    /// Returns the counter of bytes passed on to the origin.
    pub fn byte_counter(&self) -> &Arc<AtomicU64> {
        &self.bytes
    }
}

impl RequestUpload {
    /// Creates the upload of the client's body, of at most `limit` bytes. `headers` are those of the request: with
    /// `Expect`, the client sends the body only after `100 Continue`.
    pub fn new(
        incoming: ClientBody,
        limit: u64,
        times: BodyTimeLimits,
        headers: &HeaderMap,
        clock: &Clock,
    ) -> Self {
        if incoming.is_end_stream() {
            return Self::Empty;
        }
        Self::Streamed(Box::new(UploadStream {
            incoming,
            beginning: Bytes::new(),
            remaining: limit,
            times,
            timers: BodyTimers::new(times),
            clock: clock.clone(),
            reading_ahead: Duration::ZERO,
            consent: if headers.contains_key(EXPECT) {
                Consent::Awaited
            } else {
                Consent::Given
            },
            watch: UploadWatch::default(),
        }))
    }

    /// Returns a watch of the upload, unless there is no body.
    pub fn watch(&self) -> Option<UploadWatch> {
        match self {
            Self::Empty => None,
            Self::Streamed(upload) => Some(upload.watch.clone()),
        }
    }

    /// Returns `true` if there is no body.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// Starts the timers anew, with the policy's timeouts in place of the configured ones. The time
    /// of reading ahead counts, but not a wait for the host's turn.
    pub fn restart_timers(&mut self, timeouts: BodyTimeouts) {
        if let Self::Streamed(upload) = self {
            let mut times = upload.times.with_overrides(timeouts);
            times.total = times.total.saturating_sub(upload.reading_ahead);
            upload.timers = BodyTimers::new(times);
        }
    }

    /// Reads the beginning of the body: 16 KiB, or all of it.
    ///
    /// # Errors
    /// Returns an error if the client sends no valid body in time.
    pub async fn read_ahead(&mut self, timeouts: BodyTimeouts) -> Result<(), BodyError> {
        self.restart_timers(timeouts);
        match self {
            Self::Empty => Ok(()),
            Self::Streamed(upload) => {
                let began = upload.clock.now();
                let read = poll_fn(|cx| upload.poll_read_ahead(cx)).await;
                upload.reading_ahead += upload.clock.now().saturating_duration_since(began);
                read
            }
        }
    }

    /// Reads and drops a small body of a request that is not sent, so that the connection can be
    /// used again. A client that waits for permission to send the body gets the response instead.
    pub async fn discard(&mut self) {
        let Self::Streamed(upload) = self else {
            return;
        };
        let small = upload
            .incoming
            .size_hint()
            .exact()
            .is_none_or(|length| length <= MAX_DISCARD);
        if small && upload.consent == Consent::Given {
            upload.remaining = MAX_DISCARD;
            let all = poll_fn(|cx| {
                while let Some(Ok(_)) = ready!(upload.poll_client(cx)) {}
                Poll::Ready(())
            });
            let _ = tokio::time::timeout(DISCARD_TIME, all).await;
        }
    }
}

impl HttpBody for RequestUpload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Streamed(upload) => {
                let next = upload.poll_data(cx);
                upload.watch.set_progress(if next.is_pending() {
                    UploadProgress::AwaitingClient
                } else {
                    UploadProgress::Advanced
                });
                next.map(|next| next.map(|r| r.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Streamed(upload) => {
                upload.beginning.is_empty() && upload.incoming.is_end_stream()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streamed(upload) => match upload.incoming.size_hint().exact() {
                Some(rest) => SizeHint::with_exact(upload.beginning.len() as u64 + rest),
                None => SizeHint::default(),
            },
        }
    }
}

impl UploadStream {
    /// Returns the next part for the origin.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let part = if self.beginning.is_empty() {
            ready!(self.poll_client(cx))
        } else {
            Some(Ok(std::mem::take(&mut self.beginning)))
        };
        if let Some(Ok(part)) = &part {
            self.watch.bytes.fetch_add(part.len() as u64, Relaxed);
        }
        Poll::Ready(part)
    }

    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        while self.beginning.len() < READ_AHEAD && !self.watch.is_received() {
            match ready!(self.poll_client(cx)) {
                Some(Ok(part)) if self.beginning.is_empty() => self.beginning = part,
                // Tiny parts would each keep a whole read buffer.
                Some(Ok(part)) => {
                    let mut joined = std::mem::take(&mut self.beginning)
                        .try_into_mut()
                        .unwrap_or_else(|shared| {
                            let mut own = BytesMut::with_capacity(READ_AHEAD);
                            own.extend_from_slice(&shared);
                            own
                        });
                    joined.extend_from_slice(&part);
                    self.beginning = joined.freeze();
                }
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads the next part from the client, with the timers.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        self.consent = Consent::Given;
        if self.timers.may_pass_part(cx)
            && let Poll::Ready(next) = self.poll_part(cx)
        {
            return Poll::Ready(next);
        }
        self.timers
            .poll_expired(&self.clock, cx)
            .map(|_| Some(Err(BodyError::Idle)))
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if self.watch.is_received() {
            return Poll::Ready(None);
        }
        loop {
            let next = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
            if next.is_none() || self.incoming.is_end_stream() {
                self.watch.state.received.store(true, Relaxed);
            }
            match next {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    self.timers.record_part(data.len());
                    let Some(remaining) = self.remaining.checked_sub(data.len() as u64) else {
                        return Poll::Ready(Some(Err(BodyError::TooLarge)));
                    };
                    self.remaining = remaining;
                    return Poll::Ready(Some(Ok(data)));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}
