//! A client's socket, shared by its reader, its writer and the watches that detect when the client
//! leaves.

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
use crate::proxy::short_write::{CopyRoom, contiguous};

use super::client_tls::{self, ClientTlsStream};
use super::tunnel_stream::TunnelStream;

/// A client's socket, with or without TLS, or a tunnel inside its HTTP/2 connection.
#[derive(Debug)]
pub(super) enum ClientStream {
    Plain(ClientTcp),
    Tls(Box<ClientTlsStream>),
    Tunnel(Arc<TunnelStream>),
}

impl ClientStream {
    pub(super) fn watch(&self) -> ClientWatch {
        match self {
            Self::Plain(tcp) => ClientWatch(WatchedSocket::Tcp(Arc::clone(&tcp.0))),
            Self::Tls(session) => session.get_ref().0.watch(),
            Self::Tunnel(stream) => ClientWatch(WatchedSocket::Tunnel(Arc::clone(stream))),
        }
    }

    /// Returns the TCP socket if no TLS is used over it.
    pub(super) fn as_plain_tcp(&self) -> Option<&ClientTcp> {
        match self {
            Self::Plain(tcp) => Some(tcp),
            Self::Tls(_) | Self::Tunnel(_) => None,
        }
    }

    /// Receives available bytes. Ready with 0 at the end of the stream.
    pub(super) fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut impl BufMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => tcp.poll_recv(cx, into),
            Self::Tls(session) => {
                let room = into.chunk_mut().len();
                client_tls::poll_recv(session, cx, into, room)
            }
            Self::Tunnel(stream) => {
                let room = into.chunk_mut().len();
                stream.poll_recv(cx, into, room)
            }
        }
    }

    /// Receives available bytes like [`Self::poll_recv`], at least as many as `room` if they are
    /// available. The vector is enlarged only if there is something to receive.
    pub(super) fn poll_recv_growing(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => {
                ready!(tcp.0.poll_read_ready(cx))?;
                into.reserve(room);
                tcp.poll_recv(cx, into)
            }
            Self::Tls(session) => client_tls::poll_recv(session, cx, into, room),
            Self::Tunnel(stream) => stream.poll_recv(cx, into, room),
        }
    }

    /// Sends as many bytes as fit into the send buffer, at least one.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => tcp.poll_send(cx, slices, WriteCoalescing::Nothing),
            Self::Tls(session) => Pin::new(session).poll_write_vectored(cx, slices),
            Self::Tunnel(stream) => stream.poll_send(cx, slices),
        }
    }

    /// Sends bytes like [`Self::poll_send`]; a plain socket may hold some back.
    pub(super) fn poll_send_coalescing(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        coalescing: WriteCoalescing,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => tcp.poll_send(cx, slices, coalescing),
            Self::Tls(_) | Self::Tunnel(_) => self.poll_send(cx, slices),
        }
    }

    /// Sends buffered TLS records. A plain socket buffers nothing.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) | Self::Tunnel(_) => Poll::Ready(Ok(())),
            Self::Tls(session) => Pin::new(session).poll_flush(cx),
        }
    }

    /// Shuts down the sending side.
    pub(super) fn poll_shut_down(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp) => {
                tcp.shut_down();
                Poll::Ready(Ok(()))
            }
            Self::Tls(session) => client_tls::poll_shut_down(session, cx),
            Self::Tunnel(stream) => {
                stream.shut_down();
                Poll::Ready(Ok(()))
            }
        }
    }
}

/// The TCP socket.
#[derive(Clone, Debug)]
pub(super) struct ClientTcp(pub(super) Arc<TcpStream>);

impl ClientTcp {
    /// See [`ClientStream::poll_recv`].
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

    /// See [`ClientStream::poll_send`].
    pub(super) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        coalescing: WriteCoalescing,
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            let sent = self.transfer(Interest::WRITABLE, length, || {
                if coalescing.holds_back(slices) {
                    return coalesce::send(&self.0, slices);
                }
                match contiguous(slices, &mut CopyRoom::new()) {
                    Some(bytes) => self.0.try_write(bytes),
                    None => self.0.try_write_vectored(slices),
                }
            })?;
            if let Some(sent) = sent {
                return Poll::Ready(Ok(sent));
            }
        }
    }

    pub(super) fn shut_down(&self) {
        // Fails if the client has left, which needs no handling.
        let _ = SockRef::from(&*self.0).shutdown(Shutdown::Write);
    }

    /// Transfers bytes. A transfer of fewer bytes than requested means that the buffer is used up,
    /// as in tokio's own reads and writes (tokio-rs/tokio#5866). Readiness is cleared then, which
    /// saves the system call that would only return `WouldBlock`.
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

/// Detects that a client leaves while its request waits, even if bytes are unread: the next head,
/// or a body.
///
/// The client has left when it has closed its sending side or reset the connection. Data that TCP
/// holds back because the receive buffer is full hides the close: a client that closes with more
/// unsent data than fits is noticed when that is read.
#[derive(Clone, Debug)]
pub struct ClientWatch(WatchedSocket);

#[derive(Clone, Debug)]
enum WatchedSocket {
    Tcp(Arc<TcpStream>),
    Tunnel(Arc<TunnelStream>),
}

impl ClientWatch {
    /// Causes the connection to be reset when it is dropped: an orderly close would look like the
    /// end of a body without a length.
    pub fn reset_on_drop(&self) {
        match &self.0 {
            // Fails if the client has left, which needs no handling.
            WatchedSocket::Tcp(tcp) => {
                let _ = SockRef::from(&**tcp).set_linger(Some(Duration::ZERO));
            }
            WatchedSocket::Tunnel(stream) => stream.reset(),
        }
    }

    /// Waits until the client has left.
    pub async fn wait_left(&self) {
        match &self.0 {
            WatchedSocket::Tcp(tcp) => wait_tcp_left(tcp).await,
            WatchedSocket::Tunnel(stream) => stream.wait_left().await,
        }
    }
}

async fn wait_tcp_left(tcp: &TcpStream) {
    // A wait for readability would end at once if bytes are unread. This socket does not listen
    // for priority data, so a wait for it ends only when the connection is closed (EPOLLRDHUP,
    // EPOLLHUP).
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Ok(ready) = tcp.ready(Interest::PRIORITY).await
        && ready.is_read_closed()
    {
        return;
    }
    // On other platforms hyper still detects it, unless bytes are unread.
    std::future::pending().await
}
