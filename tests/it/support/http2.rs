//! Clients that speak HTTP/2: one by the `h2` crate, and one that writes raw frames.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::wait::TIMEOUT;

/// A client with one connection.
#[derive(Clone)]
pub(crate) struct Http2Client(pub(crate) SendRequest<Bytes>);

/// A response, with its whole body.
#[derive(Debug)]
pub(crate) struct Http2Response {
    pub(crate) status: u16,
    pub(crate) fields: HeaderMap,
    pub(crate) body: String,
}

impl Http2Response {
    /// The value of a field; empty if there is none.
    pub(crate) fn value(&self, name: &str) -> &str {
        let value = self.fields.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }
}

impl Http2Client {
    /// Connects without TLS, with prior knowledge.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let socket = tokio::net::TcpStream::connect(address).await.unwrap();
        Self::over(socket).await
    }

    /// Speaks HTTP/2 over an open stream.
    pub(crate) async fn over<S>(stream: S) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(client)
    }

    /// GETs a URL, with more fields.
    pub(crate) async fn get(&self, url: &str, fields: &[(&'static str, &str)]) -> Http2Response {
        let mut request = Request::get(url);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        self.send(request.body(()).unwrap()).await.unwrap()
    }

    /// Sends a request without a body.
    pub(crate) async fn send(&self, request: Request<()>) -> Result<Http2Response, h2::Error> {
        let mut client = self.0.clone().ready().await?;
        let (response, _) = client.send_request(request, true)?;
        let response = tokio::time::timeout(TIMEOUT, response).await;
        let (head, mut stream) = response.expect("a response")?.into_parts();
        let mut body = Vec::new();
        while let Some(data) = stream.data().await {
            let data = data?;
            body.extend_from_slice(&data);
            stream.flow_control().release_capacity(data.len())?;
        }
        Ok(Http2Response {
            status: head.status.as_u16(),
            fields: head.headers,
            body: String::from_utf8(body).unwrap(),
        })
    }

    /// Opens a tunnel in a stream.
    pub(crate) async fn connect_to(&self, authority: &str) -> Result<TunnelIo, u16> {
        let mut client = self.0.clone().ready().await.unwrap();
        let request = Request::connect(authority).body(()).unwrap();
        let (response, sender) = client.send_request(request, false).unwrap();
        let response = response.await.unwrap();
        if response.status() != 200 {
            return Err(response.status().as_u16());
        }
        Ok(TunnelIo {
            sender,
            receiver: response.into_body(),
            unread: Bytes::new(),
        })
    }
}

/// TLS over any stream, with these ALPN protocols.
pub(crate) async fn tls_over<S>(
    stream: S,
    config: &Arc<ClientConfig>,
    name: &str,
    protocols: &[&[u8]],
) -> TlsStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut config = ClientConfig::clone(config);
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.unwrap()
}

/// A TCP connection of which each read returns a TLS record or a part of one, so that a client sees
/// what was sent in one record (RFC 8446 section 5.1).
pub(crate) struct RecordReader {
    socket: tokio::net::TcpStream,
    head: Vec<u8>,
    /// The number of bytes of the record that were not received yet.
    remaining: usize,
}

impl RecordReader {
    /// The number of bytes before the contents of a record.
    const HEAD: usize = 5;

    pub(crate) fn new(socket: tokio::net::TcpStream) -> Self {
        Self {
            socket,
            head: Vec::new(),
            remaining: 0,
        }
    }
}

impl AsyncRead for RecordReader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        if this.remaining == 0 {
            this.head.clear();
            this.remaining = Self::HEAD;
        }
        let mut part = out.take(this.remaining);
        ready!(Pin::new(&mut this.socket).poll_read(cx, &mut part))?;
        let received = part.filled().to_vec();
        // Safe code cannot tell `out` that the part of it is initialized.
        out.put_slice(&received);
        this.remaining -= received.len();
        if this.head.len() < Self::HEAD {
            this.head.extend(received);
            if let [.., high, low] = this.head[..]
                && this.head.len() == Self::HEAD
            {
                this.remaining = usize::from(u16::from_be_bytes([high, low]));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RecordReader {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

/// A tunnel in a stream.
pub(crate) struct TunnelIo {
    sender: SendStream<Bytes>,
    receiver: RecvStream,
    unread: Bytes,
}

impl TunnelIo {
    /// Resets the stream.
    pub(crate) fn reset(mut self) {
        self.sender.send_reset(Reason::CANCEL);
    }
}

impl AsyncRead for TunnelIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        while this.unread.is_empty() {
            match ready!(this.receiver.poll_data(cx)) {
                Some(data) => this.unread = data.map_err(std::io::Error::other)?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = this.unread.len().min(out.remaining());
        out.put_slice(&this.unread.split_to(count));
        let _ = this.receiver.flow_control().release_capacity(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelIo {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        // Tests send little, so `h2` may buffer it.
        let sent = self
            .get_mut()
            .sender
            .send_data(Bytes::copy_from_slice(bytes), false);
        Poll::Ready(sent.map(|()| bytes.len()).map_err(std::io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let _ = self.get_mut().sender.send_data(Bytes::new(), true);
        Poll::Ready(Ok(()))
    }
}

/// Types of frames (RFC 9113 section 6).
pub(crate) const DATA: u8 = 0;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

/// A frame as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl RawFrame {
    /// The number of bytes before the payload.
    const HEAD: usize = 9;

    /// A frame without its payload, and the length of that.
    fn from_head(head: [u8; Self::HEAD]) -> (Self, usize) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let frame = Self {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload: Vec::new(),
        };
        (frame, length as usize)
    }
}

/// Received frames of a connection.
#[derive(Debug, Default)]
pub(crate) struct RawFrames {
    pub(crate) frames: Vec<RawFrame>,
    /// Bytes that were received after them.
    pub(crate) unread: Vec<u8>,
}

impl RawFrames {
    /// Takes the complete frames from the unread bytes.
    pub(crate) fn parse(&mut self) {
        while self.unread.len() >= RawFrame::HEAD {
            let (head, rest) = self.unread.split_at(RawFrame::HEAD);
            let (mut frame, length) = RawFrame::from_head(head.try_into().unwrap());
            if rest.len() < length {
                return;
            }
            frame.payload = rest[..length].to_vec();
            self.unread.drain(..RawFrame::HEAD + length);
            self.frames.push(frame);
        }
    }

    /// Returns `true` if a frame with END_STREAM was received on the stream.
    pub(crate) fn has_ended(&self, stream: u32) -> bool {
        let ends = |frame: &RawFrame| frame.kind <= 1 && frame.flags & 1 == 1;
        self.frames
            .iter()
            .any(|frame| frame.stream == stream && ends(frame))
    }
}

/// The first bytes that a client sends.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection with prior knowledge on which the test writes each frame.
pub(crate) struct RawHttp2 {
    socket: TcpStream,
}

impl RawHttp2 {
    /// Connects, and sends the preface and empty SETTINGS.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut client = Self { socket };
        client.send(PREFACE);
        client.send(&frame(4, 0, 0, &[]));
        client
    }

    /// Sends bytes; the connection may be closed already.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// Reads the next frame; `None` at the end of the connection.
    pub(crate) fn read_frame(&mut self) -> Option<RawFrame> {
        let mut head = [0; RawFrame::HEAD];
        self.socket.read_exact(&mut head).ok()?;
        let (mut frame, length) = RawFrame::from_head(head);
        frame.payload = vec![0; length];
        self.socket.read_exact(&mut frame.payload).ok()?;
        Some(frame)
    }

    /// Sends these bytes and then more in a stream, until the other side has given no window for a while. Returns the number
    /// of bytes.
    pub(crate) fn send_until_blocked(
        &mut self,
        stream: u32,
        first: &[u8],
        received: &mut RawFrames,
    ) -> usize {
        const INITIAL_WINDOW: usize = 65_535;
        const LARGEST_FRAME: usize = 16_384;
        const PINGS: usize = 20;
        // The proxy allows 50 PINGs per second.
        const PAUSE: Duration = Duration::from_millis(20);
        self.send(&frame(DATA, 0, stream, first));
        let mut of_stream = INITIAL_WINDOW - first.len();
        let mut of_connection = of_stream;
        let mut sent = first.len();
        let mut unanswered = 0;
        while unanswered < PINGS {
            let size = of_stream.min(of_connection).min(LARGEST_FRAME);
            if size > 0 {
                self.send(&frame(DATA, 0, stream, &vec![7; size]));
                sent += size;
                of_stream -= size;
                of_connection -= size;
                continue;
            }
            std::thread::sleep(PAUSE);
            self.send(&frame(PING, 0, 0, &[0; 8]));
            unanswered += 1;
            loop {
                let next = self.read_frame().expect("another frame");
                if next.kind == WINDOW_UPDATE {
                    let increment = u32::from_be_bytes(next.payload[..].try_into().unwrap());
                    let window = if next.stream == 0 {
                        &mut of_connection
                    } else {
                        &mut of_stream
                    };
                    *window += increment as usize;
                    unanswered = 0;
                }
                let is_answer = next.kind == PING && next.flags == 1;
                received.frames.push(next);
                if is_answer {
                    break;
                }
            }
        }
        sent
    }

    /// Reads until a frame of this type.
    #[track_caller]
    pub(crate) fn read_until(&mut self, kind: u8) -> RawFrame {
        loop {
            let frame = self.read_frame().expect("another frame");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Reads to the end of the connection; returns the error code of the last GOAWAY.
    pub(crate) fn read_goaway(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.read_frame() {
            if frame.kind == GOAWAY {
                code = Some(u32::from_be_bytes(frame.payload[4..8].try_into().unwrap()));
            }
        }
        code
    }
}

/// The bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A field section, each field as a literal without an index and without Huffman coding.
pub(crate) fn field_section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            // Short texts only: the length has one byte.
            bytes.push(u8::try_from(text.len()).ok().filter(|n| *n < 127).unwrap());
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}
