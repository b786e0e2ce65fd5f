//! A client's socket between two protocols, with the bytes that are not consumed yet.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use bytes::BufMut;
use h2::{RecvStream, SendStream};
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;

use super::client_stream::{ClientStream, ClientTcp, ClientWatch};
use super::reader::RECEIVE_ROOM;
use super::tunnel_stream::TunnelStream;

/// The name of HTTP/2 in ALPN.
const ALPN_HTTP2: &[u8] = b"h2";

/// A client's socket between two protocols: CONNECT and the one that follows.
#[derive(Debug)]
pub struct ClientSocket {
    pub(super) stream: ClientStream,
    /// Received bytes that belong to the next protocol.
    pub unread: Vec<u8>,
}

impl ClientSocket {
    /// Returns a watch that detects when the client leaves. The socket stays open while a watch
    /// exists.
    pub fn watch(&self) -> ClientWatch {
        self.stream.watch()
    }

    /// Creates the socket of a tunnel inside an HTTP/2 connection.
    pub(crate) fn from_tunnel(sender: SendStream<bytes::Bytes>, receiver: RecvStream) -> Self {
        let stream = TunnelStream::new(sender, receiver);
        Self {
            stream: ClientStream::Tunnel(Arc::new(stream)),
            unread: Vec::new(),
        }
    }

    /// Returns `true` if the client has chosen HTTP/2 in its TLS handshake.
    pub(crate) fn has_negotiated_http2(&self) -> bool {
        match &self.stream {
            ClientStream::Tls(session) => session.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2),
            ClientStream::Plain(_) | ClientStream::Tunnel(_) => false,
        }
    }

    /// Returns the certificate that the other side has shown in its TLS handshake.
    pub(crate) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        match &self.stream {
            ClientStream::Tls(session) => session.get_ref().1.peer_certificates()?.first(),
            ClientStream::Plain(_) | ClientStream::Tunnel(_) => None,
        }
    }

    /// Receives at most `most` bytes; returns none at the end of the stream.
    pub(crate) async fn receive(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(most);
        poll_fn(|cx| self.stream.poll_recv(cx, &mut (&mut bytes).limit(most))).await?;
        Ok(bytes)
    }

    /// Shuts down the sending side.
    pub async fn shut_down(&mut self) {
        // Fails if the client has left, which needs no handling.
        let _ = poll_fn(|cx| self.stream.poll_shut_down(cx)).await;
    }

    /// Receives bytes and drops them; returns 0 at the end of the stream.
    pub(crate) async fn discard_received(&mut self) -> io::Result<usize> {
        self.unread.clear();
        self.unread.reserve(RECEIVE_ROOM);
        poll_fn(|cx| self.stream.poll_recv(cx, &mut self.unread)).await
    }

    /// Returns the TCP socket, unless TLS is used over it.
    pub fn tcp(&self) -> Option<&Arc<TcpStream>> {
        self.stream.as_plain_tcp().map(|tcp| &tcp.0)
    }
}

impl From<TcpStream> for ClientSocket {
    fn from(socket: TcpStream) -> Self {
        Self {
            stream: ClientStream::Plain(ClientTcp(Arc::new(socket))),
            unread: Vec::new(),
        }
    }
}
