//! A client's socket, shared by whoever reads and writes it and whoever waits for the client to leave.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BufMut;
use socket2::SockRef;
use tokio::io::{AsyncWrite, Interest};
use tokio::net::TcpStream;

use crate::proxy::coalesce::{self, WriteCoalescing};

use super::client_tls::{self, ClientTlsStream};

/// A client's socket, in the clear or with TLS over it.
#[derive(Debug)]
pub(super) enum ClientStream {
    Plain(ClientTcp),
    Tls(Box<ClientTlsStream>),
}

impl ClientStream {
    pub(super) fn watch(&self) -> ClientWatch {
        ClientWatch(Arc::clone(&self.tcp().0))
    }

    fn tcp(&self) -> &ClientTcp {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(session) => session.get_ref().0.tcp(),
        }
    }

    /// The socket, if nothing is spoken over it.
    pub(super) fn as_plain_tcp(&self) -> Option<&ClientTcp> {
        match self {
            Self::Plain(tcp) => Some(tcp),
            Self::Tls(_) => None,
        }
    }

    /// Receives what is there. Ready when something was, with 0 if nothing will come any more.
    pub(super) fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut impl BufMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => tcp.poll_recv(cx, into),
            Self::Tls(session) => client_tls::poll_recv(session, cx, into),
        }
    }

    /// Sends what finds room. Ready when some did.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => tcp.poll_send(cx, slices, WriteCoalescing::Nothing),
            Self::Tls(session) => Pin::new(session).poll_write_vectored(cx, slices),
        }
    }

    /// Sends what TLS holds back; a plain socket holds nothing back.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(session) => Pin::new(session).poll_flush(cx),
        }
    }

    /// Tells the client that nothing more will come.
    pub(super) fn poll_shut_down(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp) => {
                tcp.shut_down();
                Poll::Ready(Ok(()))
            }
            Self::Tls(session) => client_tls::poll_shut_down(session, cx),
        }
    }
}

/// The socket itself.
#[derive(Clone, Debug)]
pub(super) struct ClientTcp(pub(super) Arc<TcpStream>);

impl ClientTcp {
    /// As [`ClientStream::poll_recv`].
    pub(super) fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        into: &mut impl BufMut,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            let room = into.chunk_mut().len();
            let received = self.transfer(Interest::READABLE, room, || self.0.try_read_buf(into))?;
            if let Some(received) = received {
                return Poll::Ready(Ok(received));
            }
        }
    }

    /// As [`ClientStream::poll_send`].
    pub(super) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        coalescing: WriteCoalescing,
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        let send = || {
            if coalescing.holds_back(slices) {
                coalesce::send(&self.0, slices)
            } else {
                self.0.try_write_vectored(slices)
            }
        };
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            let sent = self.transfer(Interest::WRITABLE, length, send)?;
            if let Some(sent) = sent {
                return Poll::Ready(Ok(sent));
            }
        }
    }

    pub(super) fn shut_down(&self) {
        // It fails if the client has gone, who then needs not be told.
        let _ = SockRef::from(&*self.0).shutdown(Shutdown::Write);
    }

    /// Moves bytes. Fewer than there was room for mean that there are no more, as tokio's own reads and writes know
    /// (tokio-rs/tokio#5866): readiness is cleared then, which saves the call that would only say so.
    fn transfer(
        &self,
        interest: Interest,
        room: usize,
        io: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        let mut moved = None;
        let result = self.0.try_io(interest, || {
            let count = io()?;
            moved = Some(count);
            if 0 < count && count < room {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                Ok(())
            }
        });
        match result {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            Err(_) | Ok(()) => Ok(moved),
        }
    }
}

/// Sees a client leave while its request waits, also when bytes of it lie unread: the next head, or a body.
///
/// The client has left when it has closed its sending side or reset the connection. What TCP holds back behind a full
/// receive buffer cannot be seen: a client that closes with more unsent than fits is noticed when that is read.
#[derive(Clone, Debug)]
pub struct ClientWatch(Arc<TcpStream>);

impl ClientWatch {
    /// Has the connection reset when it is dropped: an end in order would be the end of a body without length.
    pub fn reset_on_drop(&self) {
        // It fails if the client has gone, who then needs not be told.
        let _ = SockRef::from(&*self.0).set_linger(Some(Duration::ZERO));
    }

    /// Ready once the client has left.
    pub async fn wait_left(&self) {
        // Waiting for readability would end at once where bytes lie unread. Priority data is not listened for on this
        // socket, so waiting for it ends with the closing alone (EPOLLRDHUP, EPOLLHUP).
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Ok(ready) = self.0.ready(Interest::PRIORITY).await
            && ready.is_read_closed()
        {
            return;
        }
        // Elsewhere hyper still sees it, unless bytes lie unread.
        std::future::pending().await
    }
}
