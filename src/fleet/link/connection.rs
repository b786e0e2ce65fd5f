//! One connection to another node. The task that uses it drives it, as with connections to origins.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::coop::unconstrained;

use crate::metrics::GaugeGuard;
use crate::tls::maybe_tls_stream::MaybeTlsStream;

use super::LinkPeer;
use super::download::{LinkBroken, LinkTunnel};
use super::upload::LinkUpload;

/// A connection to another node.
#[derive(Debug)]
pub(super) struct LinkConnection {
    pub(super) peer: LinkPeer,
    sender: SendRequest<LinkUpload>,
    driver: Connection<TokioIo<MaybeTlsStream>, LinkUpload>,
    state: LinkDriverState,
    _gauge: GaugeGuard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkDriverState {
    Running,
    Ended,
}

/// A request without an answer.
#[derive(Debug)]
pub(super) enum LinkExchangeFailure {
    /// No byte of it was sent.
    Unsent(Box<Request<LinkUpload>>),
    /// The owner may have received it.
    Lost,
}

impl LinkConnection {
    /// Starts HTTP on a connection.
    pub(super) async fn start(
        builder: &http1::Builder,
        stream: MaybeTlsStream,
        peer: LinkPeer,
        gauge: GaugeGuard,
    ) -> Result<Box<Self>, hyper::Error> {
        let (sender, driver) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Box::new(Self {
            peer,
            sender,
            driver,
            state: LinkDriverState::Running,
            _gauge: gauge,
        }))
    }

    /// Drives the connection; ready when it has ended.
    pub(super) fn poll_drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.state == LinkDriverState::Running && Pin::new(&mut self.driver).poll(cx).is_ready()
        {
            self.state = LinkDriverState::Ended;
        }
        match self.state {
            LinkDriverState::Running => Poll::Pending,
            LinkDriverState::Ended => Poll::Ready(()),
        }
    }

    /// Returns `true` if the last answer is complete, so that it can take a request.
    pub(super) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    /// Returns `true` if it can take a request, and the other node has not closed it.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.poll_drive(&mut cx).is_pending() && self.is_ready()
    }

    /// Sends a request and waits for the head of the answer. If the other node has closed the connection before, nothing
    /// is sent.
    pub(super) async fn exchange(
        mut self: Box<Self>,
        request: Request<LinkUpload>,
    ) -> Result<(Response<Incoming>, Box<Self>), LinkExchangeFailure> {
        let mut sending = pin!(self.sender.try_send_request(request));
        let mut connection = Some(self);
        let answer = poll_fn(|cx| {
            if let Poll::Ready(answer) = sending.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            let has_ended = connection
                .as_mut()
                .is_none_or(|connection| connection.poll_drive(cx).is_ready());
            // At the end of the task's turn `sending` would not show the answer that has arrived.
            let answer = pin!(unconstrained(sending.as_mut())).poll(cx);
            if has_ended && answer.is_pending() {
                // The request is still in the queue of the connection, which gives it back when it is dropped.
                connection = None;
                return sending.as_mut().poll(cx);
            }
            answer
        })
        .await;
        match (answer, connection) {
            (Ok(response), Some(connection)) => Ok((response, connection)),
            (Ok(_), None) => Err(LinkExchangeFailure::Lost),
            (Err(mut failed), _) => Err(match failed.take_message() {
                Some(request) => LinkExchangeFailure::Unsent(Box::new(request)),
                None => LinkExchangeFailure::Lost,
            }),
        }
    }

    /// Returns the socket after a 200 to a CONNECT.
    pub(super) async fn into_tunnel(mut self: Box<Self>) -> Result<LinkTunnel, LinkBroken> {
        if self.state == LinkDriverState::Running {
            let ended = poll_fn(|cx| self.driver.poll_without_shutdown(cx)).await;
            ended.map_err(|_| LinkBroken)?;
        }
        let parts = self.driver.into_parts();
        Ok(LinkTunnel {
            stream: parts.io.into_inner(),
            unread: parts.read_buf,
        })
    }
}
