//! An origin that a test scripts: a listener on loopback that records everything it receives.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{HandshakeKind, NamedGroup, ServerConfig, ServerConnection, StreamOwned};
use socket2::{Domain, Socket, Type};

use super::client::reset_on_close;
use super::wait::wait_until;

/// A response after which the connection can be kept.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A response with these header fields, each line with its CRLF, and a `Content-Length`.
pub(crate) fn response(status: u16, fields: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let phrase = if status == 200 { "OK" } else { "x" };
    let head = format!("HTTP/1.1 {status} {phrase}\r\n{fields}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// A port of loopback at which nothing listens. It is taken until the test process ends, so that no other test gets it.
pub(crate) fn closed_port() -> u16 {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any.into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    std::mem::forget(socket);
    address.port()
}

/// A listening origin; it runs until the test process ends.
#[derive(Clone)]
pub(crate) struct ScriptedOrigin {
    pub(crate) port: u16,
    log: Arc<Mutex<OriginLog>>,
}

#[derive(Default)]
struct OriginLog {
    connections: Vec<ConnectionLog>,
    requests: Vec<ReceivedRequest>,
    received: Vec<u8>,
    ended: usize,
}

/// The record of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionLog {
    /// The length of the record that contains the ClientHello.
    pub(crate) client_hello: Option<usize>,
    /// `Some(true)` if the handshake resumed an earlier session; `None` without a complete handshake.
    pub(crate) resumed: Option<bool>,
    /// The group of the key exchange.
    pub(crate) group: Option<NamedGroup>,
    /// The protocol that was negotiated by ALPN.
    pub(crate) protocol: Option<Vec<u8>>,
    /// The heads of the requests.
    pub(crate) heads: Vec<String>,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    /// The number of requests that the origin received before.
    pub(crate) number: usize,
    /// The number of the connection; the first is 0.
    pub(crate) connection: usize,
    /// The time at which the whole request had been read.
    pub(crate) at: Instant,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl ReceivedRequest {
    /// The request target.
    pub(crate) fn path(&self) -> &str {
        path_of(&self.head)
    }

    /// The request line.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }
}

/// The request target of a head.
pub(crate) fn path_of(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}

/// The reaction of an origin to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Writes these bytes, and reads the next request.
    Bytes(Vec<u8>),
    /// Writes these bytes and closes.
    Last(Vec<u8>),
    /// Writes these bytes and nothing more.
    Hang(Vec<u8>),
    /// Writes these bytes one by one, over and over.
    Drip(Vec<u8>),
    /// Waits, then writes.
    After(Duration, Vec<u8>),
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<Vec<u8>> for Reply {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl ScriptedOrigin {
    /// An origin on 127.0.0.1 that runs this function for each connection, on a thread of its own. The connection is
    /// closed when the function returns.
    pub(crate) fn start(serve: impl Fn(&mut ScriptedConnection) + Send + Sync + 'static) -> Self {
        Self::bind((Ipv4Addr::LOCALHOST, 0).into(), serve).unwrap()
    }

    /// An origin at this address.
    ///
    /// # Errors
    /// If the machine does not have the address.
    pub(crate) fn bind(
        address: SocketAddr,
        serve: impl Fn(&mut ScriptedConnection) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let origin = Self {
            port: listener.local_addr()?.port(),
            log: Arc::default(),
        };
        let log = Arc::clone(&origin.log);
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let mut connection = ScriptedConnection::new(socket, &log);
                let log = Arc::clone(&log);
                let serve = Arc::clone(&serve);
                thread::spawn(move || {
                    serve(&mut connection);
                    drop(connection);
                    log.lock().unwrap().ended += 1;
                });
            }
        });
        Ok(origin)
    }

    /// An origin that replies to each request by a function of it.
    pub(crate) fn respond<R: Into<Reply>>(
        respond: impl Fn(&ReceivedRequest) -> R + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |connection| {
            while let Some(request) = connection.read_request() {
                if !connection.reply(respond(&request).into()) {
                    return;
                }
            }
        })
    }

    /// An origin that answers every request with [`OK`].
    pub(crate) fn ok() -> Self {
        Self::respond(|_| OK)
    }

    /// An origin that sends back what it receives, and ends when the other side has.
    pub(crate) fn echo() -> Self {
        Self::start(|connection| {
            let mut buffer = [0; 65536];
            while let Ok(count @ 1..) = connection.socket.read(&mut buffer) {
                connection.record_bytes(&buffer[..count]);
                if connection.socket.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        })
    }

    /// An origin that answers each request over TLS. A response with `Connection: close` is the last one.
    pub(crate) fn tls(
        config: Arc<ServerConfig>,
        respond: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |connection| connection.serve_tls(&config, &respond))
    }

    /// The `http` URL of a path at a host that resolves to this origin.
    pub(crate) fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port)
    }

    /// The `https` URL of a path at a host that resolves to this origin.
    pub(crate) fn https_url(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.port)
    }

    fn log<T>(&self, read: impl FnOnce(&OriginLog) -> T) -> T {
        read(&self.log.lock().unwrap())
    }

    /// The requests so far, in the order in which they were read.
    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.log(|log| log.requests.clone())
    }

    /// The heads of the requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.log(|log| log.requests.iter().map(|r| r.head.clone()).collect())
    }

    /// The request targets so far.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.log(|log| log.requests.iter().map(|r| r.path().to_owned()).collect())
    }

    /// The shortest time between two consecutive requests.
    pub(crate) fn shortest_gap(&self) -> Duration {
        let requests = self.requests();
        let gaps = requests.windows(2).map(|pair| pair[1].at - pair[0].at);
        gaps.min().expect("two requests")
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.log(|log| log.connections.len())
    }

    /// The records of the connections so far.
    pub(crate) fn connection_logs(&self) -> Vec<ConnectionLog> {
        self.log(|log| log.connections.clone())
    }

    /// The number of connections that have ended.
    pub(crate) fn ended_connections(&self) -> usize {
        self.log(|log| log.ended)
    }

    /// All bytes received so far, of all connections in order of arrival.
    pub(crate) fn received(&self) -> Vec<u8> {
        self.log(|log| log.received.clone())
    }

    /// Waits until the received bytes contain a text; returns all of them.
    #[track_caller]
    pub(crate) fn wait_for_text(&self, text: &str) -> String {
        let mut received = String::new();
        wait_until("the origin receives the text", || {
            received = String::from_utf8_lossy(&self.received()).into_owned();
            received.contains(text)
        });
        received
    }
}

/// One connection of an origin.
pub(crate) struct ScriptedConnection {
    pub(crate) socket: TcpStream,
    /// The number of the connection; the first is 0.
    pub(crate) number: usize,
    log: Arc<Mutex<OriginLog>>,
}

/// The stream inside TLS.
pub(crate) type TlsStream = StreamOwned<ServerConnection, TcpStream>;

impl ScriptedConnection {
    fn new(socket: TcpStream, log: &Arc<Mutex<OriginLog>>) -> Self {
        let mut open = log.lock().unwrap();
        open.connections.push(ConnectionLog::default());
        Self {
            socket,
            number: open.connections.len() - 1,
            log: Arc::clone(log),
        }
    }

    /// Reads a request with its body; `None` once the other side has closed.
    pub(crate) fn read_request(&self) -> Option<ReceivedRequest> {
        self.read_request_from(&mut &self.socket)
    }

    /// Reads a request with its body; returns its head.
    pub(crate) fn read_head(&self) -> Option<String> {
        self.read_request().map(|request| request.head)
    }

    /// Reads a request with its body from a stream on top of this connection.
    pub(crate) fn read_request_from(&self, stream: &mut impl Read) -> Option<ReceivedRequest> {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while !bytes.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).ok()?;
            bytes.push(byte[0]);
        }
        let head = String::from_utf8(bytes).unwrap();
        let length = head.lines().find_map(|line| {
            let line = line.to_ascii_lowercase();
            line.strip_prefix("content-length: ")?.parse().ok()
        });
        let mut log = self.log.lock().unwrap();
        let mut request = ReceivedRequest {
            number: log.requests.len(),
            connection: self.number,
            at: Instant::now(),
            head,
            body: vec![0; length.unwrap_or(0)],
        };
        log.received.extend_from_slice(request.head.as_bytes());
        log.connections[self.number]
            .heads
            .push(request.head.clone());
        log.requests.push(request.clone());
        drop(log);
        stream.read_exact(&mut request.body).ok()?;
        if !request.body.is_empty() {
            let mut log = self.log.lock().unwrap();
            log.received.extend_from_slice(&request.body);
            log.requests[request.number].body = request.body.clone();
        }
        Some(request)
    }

    fn record_bytes(&self, bytes: &[u8]) {
        self.log.lock().unwrap().received.extend_from_slice(bytes);
    }

    fn record(&self, change: impl FnOnce(&mut ConnectionLog)) {
        change(&mut self.log.lock().unwrap().connections[self.number]);
    }

    /// Sends bytes; a proxy that has closed already is no failure.
    pub(crate) fn send(&self, bytes: impl AsRef<[u8]>) {
        let _ = (&self.socket).write_all(bytes.as_ref());
    }

    /// Carries out a reply; returns `true` if the connection can have another request.
    fn reply(&self, reply: Reply) -> bool {
        match reply {
            Reply::Bytes(bytes) => (&self.socket).write_all(&bytes).is_ok(),
            Reply::After(time, bytes) => {
                thread::sleep(time);
                (&self.socket).write_all(&bytes).is_ok()
            }
            Reply::Last(bytes) => {
                self.send(bytes);
                false
            }
            Reply::Hang(bytes) => {
                self.send(bytes);
                let _ = (&self.socket).read(&mut [0]);
                false
            }
            Reply::Drip(bytes) => {
                let mut bytes = bytes.iter().cycle();
                while bytes
                    .next()
                    .is_some_and(|byte| (&self.socket).write_all(&[*byte]).is_ok())
                {
                    thread::sleep(Duration::from_millis(20));
                }
                false
            }
        }
    }

    /// Answers every request with [`OK`].
    pub(crate) fn serve_ok(&self) {
        while self.read_request().is_some() {
            self.send(OK);
        }
    }

    /// Reads until the other side closes.
    pub(crate) fn wait_for_close(&self) {
        let _ = io::copy(&mut &self.socket, &mut io::sink());
    }

    /// Makes the end of the connection a RST.
    pub(crate) fn reset_on_close(&self) {
        reset_on_close(&self.socket);
    }

    /// The length of the first TLS record, which stays unread; `None` if the first byte does not begin a handshake.
    pub(crate) fn peek_client_hello(&self) -> Option<usize> {
        let mut start = [0; 5];
        while self.socket.peek(&mut start).ok()? < start.len() {
            thread::yield_now();
        }
        let length = usize::from(u16::from_be_bytes([start[3], start[4]]));
        let client_hello = (start[0] == 0x16).then_some(length);
        self.record(|connection| connection.client_hello = client_hello);
        client_hello
    }

    /// Runs the TLS handshake; `None` if it fails.
    pub(crate) fn accept_tls(&self, config: &Arc<ServerConfig>) -> Option<TlsStream> {
        let mut tls = ServerConnection::new(Arc::clone(config)).unwrap();
        let mut socket = self.socket.try_clone().unwrap();
        let _ = socket.set_nodelay(true);
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).ok()?;
        }
        self.record(|connection| {
            let kind = tls.handshake_kind();
            connection.resumed = kind.map(|kind| kind == HandshakeKind::Resumed);
            let group = tls.negotiated_key_exchange_group();
            connection.group = group.map(|group| group.name());
            connection.protocol = tls.alpn_protocol().map(<[u8]>::to_vec);
        });
        Some(StreamOwned::new(tls, socket))
    }

    /// Answers each request over TLS. A response with `Connection: close` is the last one.
    pub(crate) fn serve_tls(&self, config: &Arc<ServerConfig>, respond: &impl Fn(&str) -> String) {
        if self.peek_client_hello().is_none() {
            return;
        }
        if let Some(mut stream) = self.accept_tls(config) {
            self.serve_stream(&mut stream, respond);
        }
    }

    /// Answers each request on a stream on top of this connection. A response with `Connection: close` is the last one.
    pub(crate) fn serve_stream(
        &self,
        stream: &mut (impl Read + Write),
        respond: &impl Fn(&str) -> String,
    ) {
        while let Some(request) = self.read_request_from(stream) {
            let response = respond(&request.head);
            let sent = stream.write_all(response.as_bytes());
            let sent = sent.and_then(|()| stream.flush());
            if sent.is_err() || response.contains("Connection: close") {
                return;
            }
        }
    }
}

/// A listener that accepts no further connection: its queue is full, so the kernel drops every SYN.
pub(crate) struct UnresponsiveListener {
    _listener: socket2::Socket,
    _queued: Vec<socket2::Socket>,
}

impl UnresponsiveListener {
    pub(crate) fn bind(ip: IpAddr, port: u16) -> Self {
        let listener = ipv4_socket();
        let address = SocketAddr::new(ip, port).into();
        listener.bind(&address).unwrap();
        listener.listen(0).unwrap();
        let queued = (0..4).map(|_| {
            let socket = ipv4_socket();
            socket.set_nonblocking(true).unwrap();
            // The connection is in progress or in the queue; in both cases the queue is full in the end.
            let _ = socket.connect(&address);
            socket
        });
        let queued = queued.collect();
        Self {
            _listener: listener,
            _queued: queued,
        }
    }
}

fn ipv4_socket() -> socket2::Socket {
    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap()
}
