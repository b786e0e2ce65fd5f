//! The stream of a CONNECT on an HTTP/2 connection (RFC 9113 section 8.5), used like a client's
//! socket.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use parking_lot::Mutex;

/// The number of bytes that are sent at a time.
const SEND_ROOM: usize = 16 * 1024;

/// A stream whose DATA frames are the bytes of a tunnel.
///
/// All users run in one task: `h2` wakes only the last one that polled.
#[derive(Debug)]
pub(crate) struct TunnelStream {
    sender: Mutex<SendStream<Bytes>>,
    receiver: Mutex<TunnelReceiver>,
}

#[derive(Debug)]
struct TunnelReceiver {
    stream: RecvStream,
    unread: Bytes,
}

impl TunnelStream {
    pub(crate) fn new(sender: SendStream<Bytes>, stream: RecvStream) -> Self {
        Self {
            sender: Mutex::new(sender),
            receiver: Mutex::new(TunnelReceiver {
                stream,
                unread: Bytes::new(),
            }),
        }
    }

    /// Receives available bytes, at most `room`. Ready with 0 at the end of the stream.
    pub(super) fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        into: &mut impl BufMut,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        let mut receiver = self.receiver.lock();
        while receiver.unread.is_empty() {
            match ready!(receiver.stream.poll_data(cx)) {
                Some(data) => receiver.unread = data.map_err(to_io_error)?,
                None => return Poll::Ready(Ok(0)),
            }
        }
        let count = receiver.unread.len().min(room);
        into.put(receiver.unread.split_to(count));
        let released = receiver.stream.flow_control().release_capacity(count);
        Poll::Ready(released.map(|()| count).map_err(to_io_error))
    }

    /// Sends as many bytes as the client's window allows, at least one.
    pub(super) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum::<usize>();
        let length = length.min(SEND_ROOM);
        if length == 0 {
            return Poll::Ready(Ok(0));
        }
        let mut sender = self.sender.lock();
        sender.reserve_capacity(length);
        while sender.capacity() == 0 {
            match ready!(sender.poll_capacity(cx)) {
                Some(capacity) => capacity.map_err(to_io_error)?,
                None => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            };
        }
        let mut room = length.min(sender.capacity());
        let mut bytes = BytesMut::with_capacity(room);
        for slice in slices {
            let part = slice.get(..room).unwrap_or(slice);
            bytes.put_slice(part);
            room -= part.len();
        }
        let count = bytes.len();
        let sent = sender.send_data(bytes.freeze(), false);
        Poll::Ready(sent.map(|()| count).map_err(to_io_error))
    }

    /// Ends the sending side.
    pub(super) fn shut_down(&self) {
        // Fails if the client has left, which needs no handling.
        let _ = self.sender.lock().send_data(Bytes::new(), true);
    }

    /// Resets the stream: the other side of the tunnel broke off.
    pub(super) fn reset(&self) {
        self.sender.lock().send_reset(Reason::CONNECT_ERROR);
    }

    /// Waits until the client has reset the stream or closed its connection.
    pub(super) async fn wait_left(&self) {
        // An error means that the connection has ended.
        let _ = poll_fn(|cx| self.sender.lock().poll_reset(cx)).await;
    }
}

fn to_io_error(error: h2::Error) -> io::Error {
    if error.is_io() {
        return error
            .into_io()
            .unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
    }
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}
