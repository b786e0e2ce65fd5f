//! Origins that speak TLS, or do not, and count what they get.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::{HandshakeKind, NamedGroup, ServerConfig, ServerConnection, StreamOwned};

/// A listening socket on loopback.
pub(crate) struct Origin {
    pub(crate) port: u16,
    noted: Arc<Mutex<Vec<Connection>>>,
}

/// What was seen of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    /// The length of the record that the ClientHello is in.
    pub(crate) hello: Option<usize>,
    /// Whether an earlier session went on; none without a whole handshake.
    pub(crate) resumed: Option<bool>,
    /// The key exchange.
    pub(crate) group: Option<NamedGroup>,
    /// The protocol that was agreed on.
    pub(crate) protocol: Option<Vec<u8>>,
    /// The heads of requests.
    pub(crate) heads: Vec<String>,
}

/// One connection of an origin.
pub(crate) struct Visit {
    pub(crate) socket: TcpStream,
    number: usize,
    noted: Arc<Mutex<Vec<Connection>>>,
}

impl Origin {
    /// A connection is closed when the function is done with it.
    pub(crate) fn start(serve: impl Fn(Visit) + Send + Sync + 'static) -> Self {
        Self::at(IpAddr::V4(Ipv4Addr::LOCALHOST), serve).unwrap()
    }

    /// At this address; none if the machine does not have it.
    pub(crate) fn at(
        address: IpAddr,
        serve: impl Fn(Visit) + Send + Sync + 'static,
    ) -> Option<Self> {
        let listener = TcpListener::bind(SocketAddr::new(address, 0)).ok()?;
        let origin = Self {
            port: listener.local_addr().ok()?.port(),
            noted: Arc::default(),
        };
        let (noted, serve) = (Arc::clone(&origin.noted), Arc::new(serve));
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let number = {
                    let mut noted = noted.lock().unwrap();
                    noted.push(Connection::default());
                    noted.len() - 1
                };
                let (noted, serve) = (Arc::clone(&noted), Arc::clone(&serve));
                thread::spawn(move || {
                    serve(Visit {
                        socket,
                        number,
                        noted,
                    })
                });
            }
        });
        Some(origin)
    }

    /// Answers each request over TLS with what the function makes of its head.
    pub(crate) fn secure(
        config: Arc<ServerConfig>,
        answer: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |visit| visit.secure(&config, &answer))
    }

    pub(crate) fn url(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.port)
    }

    /// What was seen of each connection so far.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        self.noted.lock().unwrap().clone()
    }

    /// How many requests came.
    pub(crate) fn requests(&self) -> usize {
        self.connections()
            .iter()
            .map(|connection| connection.heads.len())
            .sum()
    }
}

impl Visit {
    pub(crate) fn note(&self, note: impl FnOnce(&mut Connection)) {
        note(&mut self.noted.lock().unwrap()[self.number]);
    }

    /// The length of the first TLS record, without taking it; none if the first byte is of no handshake.
    pub(crate) fn hello(&self) -> Option<usize> {
        let mut start = [0; 5];
        while self.socket.peek(&mut start).ok()? < start.len() {
            thread::yield_now();
        }
        let length = usize::from(u16::from_be_bytes([start[3], start[4]]));
        let hello = (start[0] == 0x16).then_some(length);
        self.note(|connection| connection.hello = hello);
        hello
    }

    /// The handshake; none if it fails.
    pub(crate) fn handshake(&self, config: &Arc<ServerConfig>) -> Option<Secure> {
        let mut tls = ServerConnection::new(Arc::clone(config)).unwrap();
        let mut socket = self.socket.try_clone().unwrap();
        let _ = socket.set_nodelay(true);
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).ok()?;
        }
        self.note(|connection| {
            connection.resumed = tls
                .handshake_kind()
                .map(|kind| kind == HandshakeKind::Resumed);
            connection.group = tls
                .negotiated_key_exchange_group()
                .map(|group| group.name());
            connection.protocol = tls.alpn_protocol().map(<[u8]>::to_vec);
        });
        Some(StreamOwned::new(tls, socket))
    }

    /// Answers each request over TLS.
    pub(crate) fn secure(&self, config: &Arc<ServerConfig>, answer: &impl Fn(&str) -> String) {
        if self.hello().is_none() {
            return;
        }
        let Some(mut stream) = self.handshake(config) else {
            return;
        };
        self.serve(&mut stream, answer);
    }

    /// Answers each request; an answer that says `Connection: close` is the last, and TLS ends in order.
    pub(crate) fn serve(&self, stream: &mut (impl Read + Write), answer: &impl Fn(&str) -> String) {
        while let Some(head) = self.request(stream) {
            let answer = answer(&head);
            if stream
                .write_all(answer.as_bytes())
                .and_then(|()| stream.flush())
                .is_err()
            {
                return;
            }
            if answer.contains("Connection: close") {
                return;
            }
        }
    }

    /// The next request's head.
    pub(crate) fn request(&self, stream: &mut impl Read) -> Option<String> {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).ok()?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        self.note(|connection| connection.heads.push(head.clone()));
        Some(head)
    }
}

pub(crate) type Secure = StreamOwned<ServerConnection, TcpStream>;

/// An answer with a length.
pub(crate) fn answer(body: &str) -> String {
    with("", body)
}

/// The same with more fields.
pub(crate) fn with(fields: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\n{fields}Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The path that a head asks for.
pub(crate) fn path(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}
