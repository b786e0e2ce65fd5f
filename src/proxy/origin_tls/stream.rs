//! The socket to an origin, with or without TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BufMut;
use hyper_rustls::MaybeHttpsStream;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::proxy::coalesce::{self, WriteCoalescing};
use crate::proxy::read_allowance::MAX_READ;
use crate::proxy::short_write::{CopyRoom, contiguous};
use crate::tls::maybe_tls_stream::MaybeTlsStream;

use super::OriginStream;

/// A socket to an origin. The last flight of a TLS handshake is sent together with the first
/// request.
#[derive(Debug)]
pub struct OriginTcp {
    transport: MaybeTlsStream,
    coalescing: WriteCoalescing,
}

impl OriginTcp {
    /// Creates a socket without TLS.
    pub fn plain(transport: MaybeTlsStream) -> Self {
        Self {
            transport,
            coalescing: WriteCoalescing::Nothing,
        }
    }

    /// Creates a socket before a TLS handshake.
    pub(super) fn for_handshake(transport: MaybeTlsStream) -> Self {
        Self {
            transport,
            coalescing: WriteCoalescing::LastFlight,
        }
    }
}

/// Ends the delay of writes after the handshake.
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
        let tcp = match &mut self.transport {
            MaybeTlsStream::Plain(tcp) if out.remaining() > MAX_READ => tcp,
            MaybeTlsStream::Plain(tcp) => return Pin::new(tcp).poll_read(cx, out),
            MaybeTlsStream::Tls(tls) => return Pin::new(tls).poll_read(cx, out),
        };
        loop {
            ready!(tcp.poll_read_ready(cx))?;
            match tcp.try_read_buf(&mut (&mut *out).limit(MAX_READ)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received.map(|_| ())),
            }
        }
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
        if self.coalescing.holds_back(slices)
            && let MaybeTlsStream::Plain(tcp) = &self.transport
        {
            let sent = tcp.try_io(Interest::WRITABLE, || coalesce::send(tcp, slices));
            if !matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                return Poll::Ready(sent);
            }
        }
        let transport = Pin::new(&mut self.transport);
        match contiguous(slices, &mut CopyRoom::new()) {
            Some(bytes) => transport.poll_write(cx, bytes),
            None => transport.poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}
