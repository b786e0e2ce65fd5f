//! A client's socket, shared by whoever reads and writes it and whoever waits for the client to leave.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BufMut;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The reader's handle.
#[derive(Debug)]
pub(super) struct Socket(Arc<TcpStream>);

impl Socket {
    pub(super) fn new(stream: Arc<TcpStream>) -> Self {
        Self(stream)
    }

    pub(super) fn watch(&self) -> ClientWatch {
        ClientWatch(Arc::clone(&self.0))
    }

    pub(super) fn into_stream(self) -> Arc<TcpStream> {
        self.0
    }

    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(cx)
    }

    /// Receives what is there; `None` if nothing is, 0 if nothing will come any more.
    pub(super) fn try_recv(&self, into: &mut impl BufMut) -> io::Result<Option<usize>> {
        let room = into.chunk_mut().len();
        self.moving(Interest::READABLE, room, || self.0.try_read_buf(into))
    }

    /// Sends what finds room. Ready when some did.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            let sent = self.moving(Interest::WRITABLE, length, || self.0.try_write_vectored(slices))?;
            if let Some(sent) = sent {
                return Poll::Ready(Ok(sent));
            }
        }
    }

    /// Tells the client that nothing more will come.
    pub(super) fn shut_down(&self) {
        // It fails if the client has gone, who then needs not be told.
        let _ = SockRef::from(&*self.0).shutdown(Shutdown::Write);
    }

    /// Moves bytes. Fewer than there was room for mean that there are no more, as tokio's own reads and writes know
    /// (tokio-rs/tokio#5866): readiness is cleared then, which saves the call that would only say so.
    fn moving(
        &self,
        interest: Interest,
        room: usize,
        io: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        let mut moved = None;
        let result = self.0.try_io(interest, || {
            let count = io()?;
            moved = Some(count);
            if 0 < count && count < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
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
    /// Watches a client's socket, which stays open for as long as anybody watches.
    pub(in crate::proxy) fn new(socket: &Arc<TcpStream>) -> Self {
        Self(Arc::clone(socket))
    }

    /// Has the connection reset when it is dropped: an end in order would be the end of a body without length.
    pub fn reset_at_end(&self) {
        // It fails if the client has gone, who then needs not be told.
        let _ = SockRef::from(&*self.0).set_linger(Some(Duration::ZERO));
    }

    /// Ready once the client has left.
    pub async fn left(&self) {
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
