//! The socket to an origin, and how TLS comes to stand over it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_rustls::MaybeHttpsStream;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::proxy::coalesce::{self, WriteCoalescing};

use super::OriginStream;

/// A socket to an origin. The end of a handshake leaves together with the request that it is for.
#[derive(Debug)]
pub struct OriginTcp {
    tcp: TcpStream,
    coalescing: WriteCoalescing,
}

impl OriginTcp {
    /// A socket over which no TLS will be spoken.
    pub fn plain(tcp: TcpStream) -> Self {
        Self {
            tcp,
            coalescing: WriteCoalescing::Nothing,
        }
    }

    /// A socket before a TLS handshake.
    pub(super) fn for_handshake(tcp: TcpStream) -> Self {
        Self {
            tcp,
            coalescing: WriteCoalescing::LastFlight,
        }
    }
}

/// From here on everything leaves at once.
pub(super) fn stop_coalescing(stream: &mut OriginStream) {
    if let MaybeHttpsStream::Https(tls) = stream {
        tls.inner_mut()
            .get_mut()
            .0
            .inner_mut()
            .inner_mut()
            .coalescing = WriteCoalescing::Nothing;
    }
}

impl AsyncRead for OriginTcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, out)
    }
}

impl AsyncWrite for OriginTcp {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.coalescing.holds_back(slices) {
            let sent = self
                .tcp
                .try_io(Interest::WRITABLE, || coalesce::send(&self.tcp, slices));
            if !matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                return Poll::Ready(sent);
            }
        }
        Pin::new(&mut self.tcp).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
