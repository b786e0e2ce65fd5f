//! The transport of a connection to an origin: a socket, or TLS with a parent proxy.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// The transport of a connection to an origin, or to a proxy that takes requests for it.
#[derive(Debug)]
pub enum OriginTransport {
    Tcp(TcpStream),
    /// TLS with an HTTPS proxy.
    ProxyTls(Box<TlsStream<TcpStream>>),
}

impl OriginTransport {
    /// Returns the socket, unless TLS is used over it.
    pub fn as_tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::ProxyTls(_) => None,
        }
    }

    /// Returns the socket below.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Tcp(tcp) => tcp,
            Self::ProxyTls(tls) => tls.get_ref().0,
        }
    }
}

impl AsyncRead for OriginTransport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, out),
            Self::ProxyTls(tls) => Pin::new(tls).poll_read(cx, out),
        }
    }
}

impl AsyncWrite for OriginTransport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::ProxyTls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Self::ProxyTls(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::ProxyTls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::ProxyTls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
