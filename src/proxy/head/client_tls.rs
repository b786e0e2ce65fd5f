//! The server side of TLS over a client's socket, as the head reader uses it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut};
use rustls::ServerConfig;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::proxy::coalesce::WriteCoalescing;

use super::client_socket::ClientSocket;
use super::client_stream::{ClientStream, ClientWatch};

/// An established TLS session.
pub(crate) type ClientTlsStream = TlsStream<ClientTlsTransport>;

/// The transport of a TLS session: the socket, preceded by bytes that were already read from it.
/// Inside a tunnel the socket is itself a TLS session or a stream.
#[derive(Debug)]
pub(crate) struct ClientTlsTransport {
    unread: io::Cursor<Vec<u8>>,
    stream: ClientStream,
    coalescing: WriteCoalescing,
}

impl ClientTlsTransport {
    pub(super) fn watch(&self) -> ClientWatch {
        self.stream.watch()
    }
}

/// Performs the server side of a TLS handshake.
///
/// # Errors
/// Returns the error of rustls inside an I/O error if the client sends an alert or violates the
/// protocol, and [`io::ErrorKind::UnexpectedEof`] if it leaves.
pub(crate) async fn accept(
    client: ClientSocket,
    config: Arc<ServerConfig>,
) -> io::Result<ClientSocket> {
    let transport = ClientTlsTransport {
        unread: io::Cursor::new(client.unread),
        stream: client.stream,
        coalescing: WriteCoalescing::LastFlight,
    };
    let mut session = TlsAcceptor::from(config).accept(transport).await?;
    session.get_mut().0.coalescing = WriteCoalescing::Nothing;
    Ok(ClientSocket {
        stream: ClientStream::Tls(Box::new(session)),
        unread: Vec::new(),
    })
}

/// Closes the TLS session and the sending side of the socket, in one packet.
pub(super) fn poll_shut_down(
    session: &mut ClientTlsStream,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    session.get_mut().0.coalescing = WriteCoalescing::All;
    Pin::new(session).poll_shutdown(cx)
}

/// Receives plaintext, at most `room` bytes; returns 0 at the end of the stream. Many clients leave
/// without the alert that closes TLS in order; the framing of HTTP tells whether something is missing.
pub(super) fn poll_recv(
    session: &mut ClientTlsStream,
    cx: &mut Context<'_>,
    into: &mut impl BufMut,
    room: usize,
) -> Poll<io::Result<usize>> {
    let mut session = Pin::new(session);
    let received = match ready!(session.as_mut().poll_fill_buf(cx)) {
        Ok(plain) => {
            let count = plain.len().min(room);
            into.put_slice(plain.get(..count).unwrap_or_default());
            count
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
        Err(error) => return Poll::Ready(Err(error)),
    };
    session.consume(received);
    Poll::Ready(Ok(received))
}

impl AsyncRead for ClientTlsTransport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.unread.has_remaining() {
            let count = this.unread.remaining().min(out.remaining());
            out.put(Buf::take(&mut this.unread, count));
            if !this.unread.has_remaining() {
                this.unread = io::Cursor::default();
            }
            return Poll::Ready(Ok(()));
        }
        this.stream.poll_recv(cx, out).map_ok(|_| ())
    }
}

impl AsyncWrite for ClientTlsTransport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.stream
            .poll_send_coalescing(cx, slices, this.coalescing)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream.poll_shut_down(cx)
    }
}
