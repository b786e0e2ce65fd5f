//! Serves one stream: a request like one of HTTP/1, or a tunnel.

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, EXPECT, HeaderMap, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Request, Response, StatusCode, Version, response};
use http_body::Body;
use http_body_util::Full;

use crate::metrics::labels::Http2Limit;
use crate::proxy::accept::{
    AcceptContext, ClientConnection, ConnectionHandler, StreamRefusal, StreamSlot, continue_tunnel,
};
use crate::proxy::body::{BodyDemand, ClientBody, StreamBody};
use crate::proxy::drain::DrainWatch;
use crate::proxy::head::timer::LazyTimer;
use crate::proxy::head::{ClientSocket, ServiceGuard};

use super::request_head;

/// A stream that the client has opened.
pub(super) struct AcceptedStream<O: ConnectionHandler> {
    pub(super) request: Request<RecvStream>,
    pub(super) respond: SendResponse<Bytes>,
    /// The stream's share of the client's limit; `None` if that is reached.
    pub(super) slot: Option<StreamSlot>,
    pub(super) connection: Arc<ClientConnection<O::ConnectionState>>,
    pub(super) context: Arc<AcceptContext<O>>,
}

impl<O: ConnectionHandler> AcceptedStream<O> {
    /// Serves a request. Dropping the future resets the stream.
    pub(super) async fn serve(self) {
        let Self {
            request,
            respond,
            slot,
            connection,
            context,
        } = self;
        let mut reply = StreamReply {
            respond,
            context: &context,
        };
        let (mut parts, stream) = request.into_parts();
        let Some(slot) = slot else {
            return reply.refuse(StreamRefusal::Overloaded, &connection).await;
        };
        let limits = context.settings.reader.limits;
        if let Err(error) = request_head::normalize(&mut parts, limits) {
            return reply.refuse(StreamRefusal::Head(error), &connection).await;
        }
        let (body, demand) = if stream.is_end_stream() {
            (ClientBody::Empty, None)
        } else {
            let demand = BodyDemand::default();
            let length = request_head::content_length(&parts.headers);
            let body = StreamBody::new(stream, length, demand.clone());
            let awaits_consent = parts.headers.contains_key(EXPECT);
            let demand = awaits_consent.then_some(demand);
            (ClientBody::Http2(Box::new(body)), demand)
        };
        let guard = ServiceGuard::for_stream(Arc::new(slot));
        let request = Request::from_parts(parts, body);
        let answer = context.handler.handle_request(request, guard, &connection);
        let Some(answer) = reply.wait_answer(pin!(answer), demand).await else {
            return;
        };
        match answer {
            Ok(response) => reply.send(response).await,
            Err(error) => {
                tracing::debug!(%error, peer = %connection.peer, "stream ended");
                reply.respond.send_reset(Reason::CANCEL);
            }
        }
    }

    /// Serves a CONNECT (RFC 9113 section 8.5), and the tunnel after it.
    pub(super) async fn serve_connect(self, mut drain: DrainWatch) {
        let Self {
            request,
            respond,
            slot,
            connection,
            context,
        } = self;
        let mut reply = StreamReply {
            respond,
            context: &context,
        };
        let (mut parts, stream) = request.into_parts();
        let Some(slot) = slot.map(Arc::new) else {
            return reply.refuse(StreamRefusal::Overloaded, &connection).await;
        };
        let limits = context.settings.reader.limits;
        if let Err(error) = request_head::normalize(&mut parts, limits) {
            return reply.refuse(StreamRefusal::Head(error), &connection).await;
        }
        let mut tunnel = ClientConnection {
            peer: connection.peer,
            client_watch: connection.client_watch.clone(),
            state: context.handler.on_tunnel(&connection.state),
        };
        drop(connection);
        let guard = ServiceGuard::for_stream(Arc::clone(&slot));
        let request = Request::from_parts(parts, ClientBody::Empty);
        let answer = context.handler.handle_request(request, guard, &tunnel);
        let Some(answer) = reply.wait_answer(pin!(answer), None).await else {
            return;
        };
        let response = match answer {
            Ok(response) if response.status().is_success() => response,
            Ok(response) => return reply.send(response).await,
            Err(_) => return reply.respond.send_reset(Reason::CANCEL),
        };
        let head = Response::from_parts(reply.prepare(response.into_parts().0), ());
        let Ok(sender) = reply.respond.send_response(head, false) else {
            return;
        };
        let client = ClientSocket::from_tunnel(sender, stream);
        tunnel.client_watch = client.watch();
        continue_tunnel(client, tunnel, Arc::clone(&context), &mut drain).await;
        drop(slot);
    }
}

/// Answers a stream.
struct StreamReply<'a, O> {
    respond: SendResponse<Bytes>,
    context: &'a AcceptContext<O>,
}

impl<O: ConnectionHandler> StreamReply<'_, O> {
    /// Waits for the answer. Returns `None` if the client has reset the stream or left before.
    async fn wait_answer<F: Future>(
        &mut self,
        mut answer: Pin<&mut F>,
        demand: Option<BodyDemand>,
    ) -> Option<F::Output> {
        poll_fn(|cx| {
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(Some(answer));
            }
            if demand.as_ref().is_some_and(BodyDemand::take) {
                self.send_continue();
            }
            self.respond.poll_reset(cx).map(|_| None)
        })
        .await
    }

    fn send_continue(&mut self) {
        let mut head = Response::new(());
        *head.status_mut() = StatusCode::CONTINUE;
        // Fails if the stream has ended, which needs no handling.
        let _ = self.respond.send_informational(head);
    }

    /// Answers a stream that does not become a request.
    async fn refuse(
        &mut self,
        refusal: StreamRefusal,
        connection: &ClientConnection<O::ConnectionState>,
    ) {
        match self.context.handler.refuse_stream(refusal, connection.peer) {
            Some(response) => self.send(response.map(Full::new)).await,
            None => self.respond.send_reset(Reason::CANCEL),
        }
    }

    /// Sends a response. A body that breaks off, or that the client does not read for
    /// `timeouts.write_stall`, resets the stream.
    async fn send<B>(&mut self, response: Response<B>)
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let (head, body) = response.into_parts();
        let mut head = self.prepare(head);
        let is_empty = body.is_end_stream();
        if let Some(length) = body.size_hint().exact()
            && !is_empty
            && !head.headers.contains_key(CONTENT_LENGTH)
        {
            head.headers
                .insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let head = Response::from_parts(head, ());
        let Ok(sender) = self.respond.send_response(head, is_empty) else {
            return;
        };
        if !is_empty {
            let mut sender = BodySender {
                sender,
                pending: Bytes::new(),
                stall_timer: LazyTimer::new(self.context.settings.reader.write_stall),
            };
            if let Err(failure) = sender.send_all(pin!(body)).await {
                self.end_failed(sender.sender, failure);
            }
        }
    }

    fn end_failed(&self, mut sender: SendStream<Bytes>, failure: SendFailure) {
        match failure {
            SendFailure::ClientLeft => {}
            SendFailure::BrokenBody => sender.send_reset(Reason::INTERNAL_ERROR),
            SendFailure::Stalled => {
                self.context
                    .handler
                    .record_http2_limit(Http2Limit::WriteStall);
                sender.send_reset(Reason::CANCEL);
            }
        }
    }

    /// Removes the fields that HTTP/2 does not have (RFC 9113 section 8.2.2), and adds the date.
    fn prepare(&self, mut head: response::Parts) -> response::Parts {
        head.version = Version::HTTP_2;
        remove_connection_fields(&mut head.headers);
        if !head.headers.contains_key(DATE) {
            let now = httpdate::fmt_http_date(self.context.handler.clock().wall_time());
            if let Ok(date) = HeaderValue::from_str(&now) {
                head.headers.insert(DATE, date);
            }
        }
        head
    }
}

fn remove_connection_fields(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection"] {
        headers.remove(name);
    }
}

/// The cause of a response that is not sent completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendFailure {
    /// The client has reset the stream or closed its connection.
    ClientLeft,
    /// The body broke off.
    BrokenBody,
    /// The client opened no window for `timeouts.write_stall`.
    Stalled,
}

/// Sends a body as the client's window allows. The next part is read only when the previous one
/// was accepted, so that `h2` buffers little.
struct BodySender {
    sender: SendStream<Bytes>,
    pending: Bytes,
    stall_timer: LazyTimer,
}

impl BodySender {
    async fn send_all<B>(&mut self, mut body: Pin<&mut B>) -> Result<(), SendFailure>
    where
        B: Body<Data = Bytes>,
    {
        loop {
            let part = poll_fn(|cx| self.poll_part(body.as_mut(), cx)).await?;
            let Some(part) = part else {
                return self.send_data(Bytes::new(), true);
            };
            let is_last = body.is_end_stream();
            self.pending = part;
            if self.pending.is_empty() && is_last {
                return self.send_data(Bytes::new(), true);
            }
            while !self.pending.is_empty() {
                let room = poll_fn(|cx| self.poll_room(cx)).await?;
                let data = self.pending.split_to(room.min(self.pending.len()));
                let is_end = is_last && self.pending.is_empty();
                self.send_data(data, is_end)?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Reads the next part of the body, unless the client leaves before.
    fn poll_part<B>(
        &mut self,
        mut body: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, SendFailure>>
    where
        B: Body<Data = Bytes>,
    {
        loop {
            match body.as_mut().poll_frame(cx) {
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(SendFailure::BrokenBody)),
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Ok(Some(data)));
                    }
                }
                Poll::Pending => {
                    return self
                        .sender
                        .poll_reset(cx)
                        .map(|_| Err(SendFailure::ClientLeft));
                }
            }
        }
    }

    /// Waits until the client's window has room for a part of the pending bytes.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, SendFailure>> {
        self.sender.reserve_capacity(self.pending.len());
        while self.sender.capacity() == 0 {
            match self.sender.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => {
                    return Poll::Ready(Err(SendFailure::ClientLeft));
                }
                Poll::Pending => {
                    ready!(self.stall_timer.poll(cx));
                    return Poll::Ready(Err(SendFailure::Stalled));
                }
            }
        }
        self.stall_timer.record_progress();
        Poll::Ready(Ok(self.sender.capacity()))
    }

    fn send_data(&mut self, data: Bytes, is_end: bool) -> Result<(), SendFailure> {
        self.sender
            .send_data(data, is_end)
            .map_err(|_| SendFailure::ClientLeft)
    }
}

/// Returns `true` for a request that opens a tunnel.
pub(super) fn is_connect(request: &Request<RecvStream>) -> bool {
    request.method() == Method::CONNECT
}
