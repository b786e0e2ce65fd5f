//! A client's socket between two protocols, with the bytes that are not consumed yet.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;

use super::client_stream::{ClientStream, ClientTcp, ClientWatch};
use super::reader::RECEIVE_ROOM;

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
