//! One request on a stream, up to the head of its response.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use h2::client::ResponseFuture;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{Request, Response, Uri};

use crate::clock::Clock;
use crate::fleet::owners::OwnershipWatch;
use crate::metrics::labels::OriginHttp2Failure;
use crate::pipeline::admission::HostSlot;
use crate::proxy::body::{BodyError, RequestUpload, UploadProgress};
use crate::proxy::head::timer::LazyTimer;
use crate::proxy::upstream::limited_stream::MAX_INTERIM;
use crate::proxy::upstream::upload_pace::UploadPace;
use crate::proxy::upstream::{ResponseWait, UpstreamError};
use crate::urls::target::UrlTarget;

use super::connection::StreamReservation;
use super::download::StreamDownload;
use super::failure::{ResendCondition, StreamFailure};
use super::upload::StreamUpload;
use super::watch::SlotTicket;

/// A request that is to be sent on a stream.
pub(in crate::proxy::upstream) struct StreamCall<'a> {
    /// The request as it would be sent over HTTP/1.
    pub(in crate::proxy::upstream) request: Request<RequestUpload>,
    pub(in crate::proxy::upstream) target: &'a UrlTarget,
    pub(in crate::proxy::upstream) slot: HostSlot,
    /// The ownership of the host, if this is a node of a fleet.
    pub(in crate::proxy::upstream) ownership: Option<&'a mut OwnershipWatch>,
    pub(in crate::proxy::upstream) wait: ResponseWait,
    /// The maximum number of fields in the response head.
    pub(in crate::proxy::upstream) max_fields: usize,
    pub(in crate::proxy::upstream) clock: &'a Clock,
}

/// A response whose head has arrived, and the host's slot.
pub(in crate::proxy::upstream) struct ExchangedStream {
    pub(in crate::proxy::upstream) response: Response<StreamDownload>,
    pub(in crate::proxy::upstream) slot: HostSlot,
}

/// Sends a request on a reserved stream, and waits for the head of the response.
pub(in crate::proxy::upstream) async fn exchange(
    reservation: StreamReservation,
    call: StreamCall<'_>,
) -> Result<ExchangedStream, StreamFailure> {
    let StreamCall {
        request,
        target,
        slot,
        mut ownership,
        wait,
        max_fields,
        clock,
    } = call;
    let mut stream = OpenStream::open(reservation, request, target, slot)?;
    let mut timer = LazyTimer::new(wait.timeout);
    let mut since = wait.since;
    let answered = poll_fn(|cx| {
        let head = stream.poll_head(&mut timer, &mut since, clock, cx);
        if let (true, Some(ownership)) = (head.is_pending(), &mut ownership)
            && ownership.poll_broken_off(cx).is_ready()
        {
            return Poll::Ready(Err(HeadFailure::Other(UpstreamError::LeaseEnded)));
        }
        head
    });
    let answered = answered.await;
    match answered {
        Ok(response) if response.headers().len() > max_fields => Err(stream.fail(
            UpstreamError::HeadTooLarge,
            OriginHttp2Failure::HeadTooLarge,
        )),
        Ok(response) => stream.into_exchanged(response),
        Err(HeadFailure::Stream(error)) if stream.is_refused_as_too_large(&error) => Err(stream
            .fail(
                UpstreamError::HeadTooLarge,
                OriginHttp2Failure::HeadTooLarge,
            )),
        Err(HeadFailure::Stream(error)) => Err(stream.fail_with(&error)),
        Err(HeadFailure::Interim) => {
            Err(stream.fail(UpstreamError::TooManyInterim, OriginHttp2Failure::Interim))
        }
        Err(HeadFailure::Other(error)) => Err(stream.into_failure(error, ResendCondition::Never)),
    }
}

/// A stream on which a request is sent. The fields are dropped in this order: the stream is reset
/// before the slot is free.
struct OpenStream {
    response: ResponseFuture,
    upload: Option<Box<StreamUpload>>,
    /// Boxed because few requests have a body.
    pace: Option<Box<UploadPace>>,
    interim: usize,
    ticket: SlotTicket,
    reservation: StreamReservation,
}

/// The reason why no response head arrives.
enum HeadFailure {
    Stream(h2::Error),
    /// Too many interim responses.
    Interim,
    Other(UpstreamError),
}

impl OpenStream {
    fn open(
        reservation: StreamReservation,
        request: Request<RequestUpload>,
        target: &UrlTarget,
        slot: HostSlot,
    ) -> Result<Self, StreamFailure> {
        let connection = Arc::clone(&reservation.connection);
        let ticket = SlotTicket::new(slot, &connection.watch);
        let (head, body) = match into_head(request, target) {
            Ok(parts) => parts,
            Err(error) => {
                return Err(StreamFailure {
                    error,
                    resend: ResendCondition::Never,
                    slot: ticket.into_slot(),
                });
            }
        };
        let is_last = body.is_empty();
        let watch = body.watch();
        let (response, sender) = match reservation.open(head, is_last) {
            Ok(opened) => opened,
            Err(error) => {
                // Nothing was written: the connection has ended, or has no stream left.
                connection.watch.set_closing();
                return Err(StreamFailure {
                    error: connection.interpret(&error).error,
                    resend: ResendCondition::Unprocessed,
                    slot: ticket.into_slot(),
                });
            }
        };
        ticket.register(response.stream_id().as_u32());
        Ok(Self {
            response,
            upload: (!is_last).then(|| Box::new(StreamUpload::new(body, sender))),
            pace: watch.map(|watch| Box::new(UploadPace::new(watch))),
            interim: 0,
            ticket,
            reservation,
        })
    }

    fn poll_head(
        &mut self,
        timer: &mut LazyTimer,
        since: &mut Instant,
        clock: &Clock,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<h2::RecvStream>, HeadFailure>> {
        if let Some(upload) = &mut self.upload
            && let Err(error) = upload.poll_send(cx)
        {
            return Poll::Ready(Err(HeadFailure::Other(UpstreamError::Upload(error))));
        }
        while let Poll::Ready(Some(Ok(_))) = self.response.poll_informational(cx) {
            self.interim += 1;
            if self.interim > MAX_INTERIM {
                return Poll::Ready(Err(HeadFailure::Interim));
            }
        }
        if let Poll::Ready(answered) = Pin::new(&mut self.response).poll(cx) {
            return Poll::Ready(answered.map_err(HeadFailure::Stream));
        }
        if let Some(pace) = &mut self.pace {
            match pace.take_progress() {
                UploadProgress::Nothing => {}
                UploadProgress::Advanced => *since = clock.now(),
                // The body has its own timeouts.
                UploadProgress::AwaitingClient => {
                    let slow = self
                        .ticket
                        .with_slot(|slot| pace.poll_too_slow(slot, clock, cx));
                    return slow
                        .unwrap_or(Poll::Pending)
                        .map(|()| Err(HeadFailure::Other(UpstreamError::Upload(BodyError::Idle))));
                }
            }
        }
        timer
            .poll_since(*since, cx)
            .map(|()| Err(HeadFailure::Other(UpstreamError::Timeout)))
    }

    fn into_exchanged(
        self,
        response: Response<h2::RecvStream>,
    ) -> Result<ExchangedStream, StreamFailure> {
        let (head, body) = response.into_parts();
        let Some(slot) = self.ticket.into_slot() else {
            return Err(StreamFailure {
                error: UpstreamError::Closed,
                resend: ResendCondition::Never,
                slot: None,
            });
        };
        let download = StreamDownload::new(body, &head.headers, self.upload, self.reservation);
        Ok(ExchangedStream {
            response: Response::from_parts(head, download),
            slot,
        })
    }

    fn is_refused_as_too_large(&self, error: &h2::Error) -> bool {
        let stream = self.response.stream_id().as_u32();
        error.is_library() && self.reservation.connection.watch.has_large_head(stream)
    }

    /// Ends the stream after an error of `h2`.
    fn fail_with(self, error: &h2::Error) -> StreamFailure {
        let interpreted = self.reservation.connection.interpret(error);
        if interpreted.resend == ResendCondition::OverHttp1 {
            self.reservation.connection.watch.set_closing();
        }
        self.into_failure(interpreted.error, interpreted.resend)
    }

    /// Ends the stream for a reason that is counted.
    fn fail(self, error: UpstreamError, failure: OriginHttp2Failure) -> StreamFailure {
        self.reservation.connection.record_failure(failure);
        self.into_failure(error, ResendCondition::Never)
    }

    fn into_failure(self, error: UpstreamError, resend: ResendCondition) -> StreamFailure {
        let Self {
            response,
            upload,
            ticket,
            ..
        } = self;
        // The stream is reset before the slot can be returned.
        drop((response, upload));
        StreamFailure {
            error,
            resend,
            slot: ticket.into_slot(),
        }
    }
}

/// Turns a request into its head on a stream and its body.
fn into_head(
    request: Request<RequestUpload>,
    target: &UrlTarget,
) -> Result<(Request<()>, RequestUpload), UpstreamError> {
    let (parts, body) = request.into_parts();
    let mut uri = Parts::default();
    uri.scheme = Some(Scheme::HTTPS);
    uri.authority = target.authority().parse::<Authority>().ok();
    uri.path_and_query = parts
        .uri
        .path_and_query()
        .cloned()
        .or(Some(PathAndQuery::from_static("/")));
    let uri = Uri::from_parts(uri).map_err(|_| UpstreamError::Upload(BodyError::Incomplete))?;
    let mut head = Request::new(());
    *head.method_mut() = parts.method;
    *head.uri_mut() = uri;
    *head.version_mut() = http::Version::HTTP_2;
    *head.headers_mut() = parts.headers;
    // `:authority` replaces `Host`; the others belong to HTTP/1.
    for name in [HOST, CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        head.headers_mut().remove(name);
    }
    Ok((head, body))
}
