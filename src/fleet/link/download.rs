//! The answer of an owner, and the link that it arrives on.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, SizeHint};
use hyper::body::Incoming;

use crate::tls::maybe_tls_stream::MaybeTlsStream;

use super::connection::LinkConnection;
use super::pool::LinkPool;

/// The body of an owner's answer. Reading it drives the link, which returns to the pool at its end. If it is dropped
/// before, the link is closed, which shows the owner that the crawler has left.
#[derive(Debug)]
pub struct LinkDownload {
    incoming: Incoming,
    connection: Option<Box<LinkConnection>>,
    pool: Arc<LinkPool>,
}

/// The link broke off in the middle of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link broke off")]
pub struct LinkBroken;

/// A tunnel through the owner.
#[derive(Debug)]
pub struct LinkTunnel {
    pub stream: MaybeTlsStream,
    /// The bytes that arrived with the answer.
    pub unread: Bytes,
}

impl LinkDownload {
    pub(super) fn new(
        incoming: Incoming,
        connection: Box<LinkConnection>,
        pool: Arc<LinkPool>,
    ) -> Self {
        Self {
            incoming,
            connection: Some(connection),
            pool,
        }
    }

    /// Returns `true` if the whole body has arrived.
    pub fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// Returns the size of the rest, as far as it is known.
    pub fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }

    /// Returns the next data.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, LinkBroken>>> {
        loop {
            let next = match ready!(self.poll_incoming(cx)) {
                None => {
                    self.release();
                    None
                }
                Some(Err(_)) => {
                    self.connection = None;
                    Some(Err(LinkBroken))
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        if self.incoming.is_end_stream() {
                            self.release();
                        }
                        Some(Ok(data))
                    }
                    // An owner sends no trailers.
                    Err(_) => continue,
                },
            };
            return Poll::Ready(next);
        }
    }

    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, hyper::Error>>> {
        if let Poll::Ready(next) = Pin::new(&mut self.incoming).poll_frame(cx) {
            return Poll::Ready(next);
        }
        if let Some(connection) = &mut self.connection
            && connection.poll_drive(cx).is_ready()
        {
            self.connection = None;
        }
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    /// Reads the whole body, if it has at most this number of bytes.
    ///
    /// # Errors
    /// If the link breaks off, or the body is larger.
    pub async fn read_all(mut self, most: usize) -> Result<Bytes, LinkBroken> {
        let mut body = Vec::new();
        while !self.is_end_stream() {
            let Some(data) = poll_fn(|cx| self.poll_data(cx)).await else {
                break;
            };
            body.extend_from_slice(&data?);
            if body.len() > most {
                return Err(LinkBroken);
            }
        }
        self.release();
        Ok(body.into())
    }

    /// Returns the link to the pool after the last byte; may be called more than once. A connection that has not
    /// recognized the end of the message needs one more poll.
    pub fn release(&mut self) {
        if let Some(mut connection) = self.connection.take()
            && (connection.is_ready() || connection.is_usable())
        {
            self.pool.put(connection);
        }
    }

    /// Returns the tunnel after a 200 to a CONNECT.
    ///
    /// # Errors
    /// If the link has ended.
    pub async fn into_tunnel(self) -> Result<LinkTunnel, LinkBroken> {
        match self.connection {
            Some(connection) => connection.into_tunnel().await,
            None => Err(LinkBroken),
        }
    }
}
