//! A client's socket on its way from one protocol to the next: what a reader leaves, and what one begins with.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;

use super::client_stream::{ClientStream, ClientTcp, ClientWatch};
use super::reader::RECEIVE_ROOM;

/// A client's socket between two protocols: CONNECT and what follows it.
#[derive(Debug)]
pub struct ClientSocket {
    pub(super) stream: ClientStream,
    /// Bytes that have arrived and belong to what follows.
    pub unread: Vec<u8>,
}

impl ClientSocket {
    /// Lets others see the client leave. The socket stays open for as long as anybody watches.
    pub fn watch(&self) -> ClientWatch {
        self.stream.watch()
    }

    /// Tells the client that nothing more will come.
    pub async fn shut_down(&mut self) {
        // It fails if the client has gone, who then needs not be told.
        let _ = poll_fn(|cx| self.stream.poll_shut_down(cx)).await;
    }

    /// Receives bytes and drops them; 0 if nothing will come any more.
    pub(crate) async fn discard_received(&mut self) -> io::Result<usize> {
        self.unread.clear();
        self.unread.reserve(RECEIVE_ROOM);
        poll_fn(|cx| self.stream.poll_recv(cx, &mut self.unread)).await
    }

    /// The socket, for bytes that are nobody's but the tunnel's; none inside TLS.
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
