//! Origins that speak HTTP/2: one with a library, for correct exchanges, and one that writes frames.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use http::{HeaderMap, Method, Response, Uri};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::origin::TlsStream;

/// A configuration of TLS that selects the first of these protocols that the client offers.
pub(crate) fn with_protocols(config: &Arc<ServerConfig>, protocols: &[&str]) -> Arc<ServerConfig> {
    let mut config = ServerConfig::clone(config);
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// A listening origin that speaks HTTP/2 over TLS; it runs until the test process ends.
#[derive(Clone)]
pub(crate) struct Http2Origin {
    pub(crate) port: u16,
    log: Arc<Mutex<Http2Log>>,
}

/// The record of what an origin has received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Http2Log {
    pub(crate) connections: usize,
    pub(crate) requests: Vec<ReceivedStream>,
    /// The number of streams that are open.
    open: usize,
    /// The most streams that were open at once.
    pub(crate) most_open: usize,
    /// The number of streams that the other side has reset.
    pub(crate) resets: usize,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedStream {
    /// The number of the connection; the first is 0.
    pub(crate) connection: usize,
    /// The time at which the head was read.
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// The reaction of an origin to a request.
#[derive(Clone, Debug)]
pub(crate) struct Http2Reply {
    pub(crate) status: u16,
    /// The number of interim responses before it.
    pub(crate) interim: usize,
    pub(crate) fields: Vec<(&'static str, String)>,
    /// The parts of the body.
    pub(crate) body: Vec<Vec<u8>>,
    pub(crate) trailers: bool,
    /// `true` if the head names no length.
    pub(crate) chunked: bool,
    /// The time before the response.
    pub(crate) delay: Duration,
    /// The time before each part of the body.
    pub(crate) pause: Duration,
    /// Resets the stream instead of ending it.
    pub(crate) reset: Option<Reason>,
    /// `false` if the request's body is not read.
    pub(crate) reads: bool,
}

impl Http2Reply {
    pub(crate) fn text(body: &str) -> Self {
        Self {
            status: 200,
            interim: 0,
            fields: vec![("content-type", "text/plain".to_owned())],
            body: vec![body.into()],
            trailers: false,
            chunked: false,
            delay: Duration::ZERO,
            pause: Duration::ZERO,
            reset: None,
            reads: true,
        }
    }
}

impl Http2Origin {
    /// An origin that replies to each request by a function of it.
    pub(crate) fn start(
        config: &Arc<ServerConfig>,
        respond: impl Fn(&ReceivedStream) -> Http2Reply + Send + Sync + 'static,
    ) -> Self {
        let config = with_protocols(config, &["h2", "http/1.1"]);
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let origin = Self {
            port: listener.local_addr().unwrap().port(),
            log: Arc::default(),
        };
        let (served, respond) = (origin.clone(), Arc::new(respond));
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                let acceptor = TlsAcceptor::from(config);
                while let Ok((socket, _)) = listener.accept().await {
                    let (origin, respond) = (served.clone(), Arc::clone(&respond));
                    let number = origin.change(|log| {
                        log.connections += 1;
                        log.connections - 1
                    });
                    tokio::spawn(origin.serve(number, socket, acceptor.clone(), respond));
                }
            });
        });
        origin
    }

    async fn serve(
        self,
        number: usize,
        socket: TcpStream,
        acceptor: TlsAcceptor,
        respond: Arc<impl Fn(&ReceivedStream) -> Http2Reply + Send + Sync + 'static>,
    ) {
        let _ = socket.set_nodelay(true);
        let Ok(socket) = acceptor.accept(socket).await else {
            return;
        };
        let Ok(mut connection) = h2::server::handshake(socket).await else {
            return;
        };
        while let Some(Ok((request, sender))) = connection.accept().await {
            let (head, body) = request.into_parts();
            let received = ReceivedStream {
                connection: number,
                at: Instant::now(),
                method: head.method,
                uri: head.uri,
                headers: head.headers,
                body: Vec::new(),
            };
            let index = self.change(|log| {
                log.requests.push(received.clone());
                log.open += 1;
                log.most_open = log.most_open.max(log.open);
                log.requests.len() - 1
            });
            let (origin, respond) = (self.clone(), Arc::clone(&respond));
            tokio::spawn(async move {
                let reply = respond(&received);
                if origin.answer(index, reply, body, sender).await.is_none() {
                    origin.change(|log| {
                        log.resets += 1;
                        log.open -= 1;
                    });
                }
            });
        }
    }

    /// Answers a request; `None` if the other side has ended the stream.
    async fn answer(
        &self,
        index: usize,
        mut reply: Http2Reply,
        mut body: h2::RecvStream,
        mut sender: SendResponse<Bytes>,
    ) -> Option<()> {
        while reply.reads
            && let Some(part) = body.data().await
        {
            let part = part.ok()?;
            body.flow_control().release_capacity(part.len()).unwrap();
            self.change(|log| log.requests[index].body.extend_from_slice(&part));
        }
        if !reply.delay.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(reply.delay) => {}
                _ = std::future::poll_fn(|cx| sender.poll_reset(cx)) => return None,
            }
        }
        for _ in 0..reply.interim {
            let hints = Response::builder().status(103).body(()).unwrap();
            sender.send_informational(hints).ok()?;
        }
        let mut response = Response::builder().status(reply.status);
        if !reply.chunked {
            let length: usize = reply.body.iter().map(Vec::len).sum();
            response = response.header("content-length", length);
        }
        if self.change(|log| log.requests[index].method == Method::HEAD) {
            reply.body.clear();
        }
        for (name, value) in &reply.fields {
            response = response.header(*name, value);
        }
        let ended = reply.body.is_empty() && !reply.trailers && reply.reset.is_none();
        let mut stream = sender
            .send_response(response.body(()).unwrap(), ended)
            .ok()?;
        let parts = reply.body.len();
        for (at, part) in reply.body.into_iter().enumerate() {
            tokio::select! {
                () = tokio::time::sleep(reply.pause), if !reply.pause.is_zero() => {}
                _ = std::future::poll_fn(|cx| stream.poll_reset(cx)) => return None,
                () = std::future::ready(()), if reply.pause.is_zero() => {}
            }
            let is_last = at + 1 == parts && !reply.trailers && reply.reset.is_none();
            if is_last {
                // Before the proxy can see the end of the stream.
                self.change(|log| log.open -= 1);
            }
            let sent = stream.send_data(part.into(), is_last);
            if sent.is_err() && is_last {
                self.change(|log| log.open += 1);
            }
            sent.ok()?;
            if is_last {
                return Some(());
            }
        }
        if ended {
            self.change(|log| log.open -= 1);
            return Some(());
        }
        self.change(|log| log.open -= 1);
        match reply.reset {
            Some(reason) => stream.send_reset(reason),
            None => {
                let mut trailers = HeaderMap::new();
                trailers.insert("x-trailer", "1".parse().unwrap());
                trailers.insert("crawl-status", "ACCEPTED".parse().unwrap());
                let _ = stream.send_trailers(trailers);
            }
        }
        Some(())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Http2Log) -> T) -> T {
        change(&mut self.log.lock().unwrap())
    }

    /// Returns the record so far.
    pub(crate) fn log(&self) -> Http2Log {
        self.change(|log| log.clone())
    }

    /// The shortest time between two consecutive requests.
    pub(crate) fn shortest_gap(&self) -> Duration {
        let requests = self.log().requests;
        let gaps = requests.windows(2).map(|pair| pair[1].at - pair[0].at);
        gaps.min().expect("two requests")
    }

    /// The `https` URL of a path at a host that resolves to this origin.
    pub(crate) fn url(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.port)
    }
}

/// The number of each type of frame (RFC 9113 section 6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// The field section `:status: 200`.
pub(crate) const STATUS_200: &[u8] = &[0x88];

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerFrame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// The bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// The side of an origin of one connection, frame by frame.
pub(crate) struct FramePeer {
    stream: TlsStream,
}

impl FramePeer {
    /// Reads the preface and sends SETTINGS with this payload; `None` if the other side has left.
    pub(crate) fn accept(mut stream: TlsStream, settings: &[u8]) -> Option<Self> {
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).ok()?;
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let mut peer = Self { stream };
        peer.send(&frame(kind::SETTINGS, 0, 0, settings))?;
        Some(peer)
    }

    /// Sends bytes; `None` if the other side has left.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Option<()> {
        self.stream.write_all(bytes).ok()?;
        self.stream.flush().ok()
    }

    pub(crate) fn read(&mut self) -> Option<PeerFrame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).ok()?;
        Some(PeerFrame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }

    /// Reads up to the next frame of this type; acknowledges SETTINGS before it.
    pub(crate) fn read_kind(&mut self, wanted: u8) -> Option<PeerFrame> {
        loop {
            let received = self.read()?;
            if received.kind == kind::SETTINGS && received.flags == 0 {
                self.send(&frame(kind::SETTINGS, 1, 0, &[]))?;
            }
            if received.kind == wanted {
                return Some(received);
            }
        }
    }

    /// Waits for the head of a request; returns its stream.
    pub(crate) fn read_request(&mut self) -> Option<u32> {
        self.read_kind(kind::HEADERS).map(|head| head.stream)
    }

    /// Answers with a 200.
    pub(crate) fn respond(&mut self, stream: u32, body: &str) -> Option<()> {
        // `content-length` by its index in the static table.
        let length = body.len().to_string();
        let fields = [
            STATUS_200,
            &[0x0f, 0x0d, length.len() as u8],
            length.as_bytes(),
        ]
        .concat();
        let head = frame(kind::HEADERS, END_HEADERS, stream, &fields);
        let data = frame(kind::DATA, END_STREAM, stream, body.as_bytes());
        self.send(&[head, data].concat())
    }

    /// Closes the connection, without GOAWAY. Returns when the other side has closed it too: then it knows of the end.
    pub(crate) fn close(mut self) {
        let _ = self.stream.sock.shutdown(Shutdown::Write);
        let _ = self.stream.sock.read_to_end(&mut Vec::new());
    }

    /// Answers every request with a 200.
    pub(crate) fn serve(&mut self, body: &str) {
        while let Some(stream) = self.read_request() {
            if self.respond(stream, body).is_none() {
                return;
            }
        }
    }
}
