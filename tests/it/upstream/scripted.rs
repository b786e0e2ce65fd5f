//! Origins and name servers that do as a test tells them and note what they get, and a raw client.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A plain answer, after which the connection can be kept.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A raw client.
pub(crate) struct Client(pub(crate) TcpStream);

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In order.
    Closed,
    Reset,
}

impl Client {
    pub(crate) fn connect(proxy: SocketAddr) -> Self {
        let socket = TcpStream::connect(proxy).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        Self(socket)
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    /// Reads until this has come.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) -> String {
        let (mut seen, mut byte) = (Vec::new(), [0]);
        while !seen.ends_with(text.as_bytes()) {
            match self.0.read(&mut byte) {
                Ok(1) => seen.push(byte[0]),
                end => panic!("{end:?} after {:?}", String::from_utf8_lossy(&seen)),
            }
        }
        String::from_utf8(seen).unwrap()
    }

    /// All that comes until the connection ends, and how it does.
    #[track_caller]
    pub(crate) fn ending(&mut self) -> (String, End) {
        let mut bytes = Vec::new();
        let end = match self.0.read_to_end(&mut bytes) {
            Ok(_) => End::Closed,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => End::Reset,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
        };
        (String::from_utf8_lossy(&bytes).into_owned(), end)
    }

    #[track_caller]
    pub(crate) fn rest(&mut self) -> String {
        self.ending().0
    }
}

/// A listening socket, and what it is to do with each connection.
pub(crate) struct Origin {
    pub(crate) port: u16,
    noted: Arc<Noted>,
}

#[derive(Default)]
struct Noted {
    accepted: AtomicUsize,
    ended: AtomicUsize,
    requests: Mutex<Vec<(usize, String)>>,
}

/// One connection of an origin.
pub(crate) struct Visit {
    pub(crate) socket: TcpStream,
    /// The first is 0.
    pub(crate) number: usize,
    noted: Arc<Noted>,
}

impl Origin {
    /// An origin on 127.0.0.1. A connection is closed when the function is done with it.
    pub(crate) fn start(serve: impl Fn(&mut Visit) + Send + Sync + 'static) -> Self {
        Self::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), serve)
    }

    /// An origin at this address.
    pub(crate) fn at(
        address: SocketAddr,
        serve: impl Fn(&mut Visit) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let origin = Self {
            port: listener.local_addr().unwrap().port(),
            noted: Arc::default(),
        };
        let (noted, serve) = (Arc::clone(&origin.noted), Arc::new(serve));
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let number = noted.accepted.fetch_add(1, Ordering::SeqCst);
                let (noted, serve) = (Arc::clone(&noted), Arc::clone(&serve));
                thread::spawn(move || {
                    let mut visit = Visit {
                        socket,
                        number,
                        noted: Arc::clone(&noted),
                    };
                    serve(&mut visit);
                    drop(visit);
                    noted.ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        origin
    }

    /// Answers every request with [`OK`].
    pub(crate) fn plain() -> Self {
        Self::start(Visit::serve_plainly)
    }

    /// Its URL of a host.
    pub(crate) fn url(&self, host: &str) -> String {
        format!("http://{host}:{}/", self.port)
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.noted.accepted.load(Ordering::SeqCst)
    }

    /// Connections that have ended.
    pub(crate) fn ended(&self) -> usize {
        self.noted.ended.load(Ordering::SeqCst)
    }

    /// The request lines that came, each with its connection.
    pub(crate) fn requests(&self) -> Vec<(usize, String)> {
        self.noted.requests.lock().unwrap().clone()
    }
}

impl Visit {
    /// The next request's head, with its body read; none once the other side has closed.
    pub(crate) fn request(&mut self) -> Option<String> {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            self.socket.read_exact(&mut byte).ok()?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let line = head.lines().next().unwrap_or_default().to_owned();
        self.noted
            .requests
            .lock()
            .unwrap()
            .push((self.number, line));
        let length = head.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")?
                .parse()
                .ok()
        });
        self.socket
            .read_exact(&mut vec![0; length.unwrap_or(0)])
            .ok()?;
        Some(head)
    }

    /// Sends; a gate that has left already is the test's to notice.
    pub(crate) fn send(&mut self, text: &str) {
        let _ = self.socket.write_all(text.as_bytes());
    }

    pub(crate) fn serve_plainly(&mut self) {
        while self.request().is_some() {
            self.send(OK);
        }
    }

    /// Reads until the other side closes.
    pub(crate) fn wait_for_the_end(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(1..) = self.socket.read(&mut buffer) {}
    }

    /// The connection's end will be a reset.
    pub(crate) fn will_reset(&self) {
        socket2::SockRef::from(&self.socket)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    }
}

/// What a name server says of a name.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    Addresses(Vec<Ipv4Addr>),
    /// Another name, and its address.
    Alias(&'static str, Ipv4Addr),
    /// An answer with this code and nothing else.
    Code(u8),
    Nothing,
}

/// A name server on loopback, by UDP.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

const NAME_TYPE_A: [u8; 2] = [0, 1];
const CLASS_IN: [u8; 2] = [0, 1];

impl NameServer {
    /// It says of a name what the function makes of it and of how often its IPv4 addresses were asked for before.
    pub(crate) fn start(says: impl Fn(&str, usize) -> Says + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: socket.local_addr().unwrap(),
            asked: Arc::default(),
        };
        let asked = Arc::clone(&server.asked);
        thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut packet) {
                if let Some(answer) = answer(&packet[..length], &says, &asked) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        server
    }

    /// How often a name's IPv4 addresses were asked for.
    pub(crate) fn asked(&self, name: &str) -> usize {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .filter(|asked| *asked == name)
            .count()
    }
}

/// RFC 1035 section 4: the question comes back with the answer behind it.
fn answer(
    packet: &[u8],
    says: &impl Fn(&str, usize) -> Says,
    asked: &Mutex<Vec<String>>,
) -> Option<Vec<u8>> {
    let (labels, end) = labels(packet, 12);
    let name = labels.join(".").to_ascii_lowercase();
    let is_a = packet[end..end + 2] == NAME_TYPE_A;
    let mut asked = asked.lock().unwrap();
    let said = says(&name, asked.iter().filter(|a| **a == name).count());
    if is_a {
        asked.push(name);
    }
    let (code, records) = match said {
        Says::Nothing => return None,
        Says::Code(code) => (code, vec![]),
        _ if !is_a => (0, vec![]),
        Says::Addresses(all) => (
            0,
            all.iter()
                .map(|a| record(&[0xc0, 12], 1, &a.octets()))
                .collect(),
        ),
        Says::Alias(other, address) => {
            let other = written(other);
            (
                0,
                vec![
                    record(&[0xc0, 12], 5, &other),
                    record(&other, 1, &address.octets()),
                ],
            )
        }
    };
    let mut answer = packet[..2].to_vec();
    answer.extend([
        0x81,
        0x80 | code,
        0,
        1,
        0,
        u8::try_from(records.len()).unwrap(),
        0,
        0,
        0,
        0,
    ]);
    answer.extend(&packet[12..end + 4]);
    answer.extend(records.concat());
    Some(answer)
}

fn labels(packet: &[u8], mut at: usize) -> (Vec<String>, usize) {
    let mut labels = vec![];
    while packet[at] != 0 {
        let next = at + 1 + usize::from(packet[at]);
        labels.push(String::from_utf8_lossy(&packet[at + 1..next]).into_owned());
        at = next;
    }
    (labels, at + 1)
}

fn written(name: &str) -> Vec<u8> {
    let label = |label: &str| [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat();
    name.split('.')
        .map(label)
        .chain([vec![0]])
        .collect::<Vec<_>>()
        .concat()
}

/// A record that may be kept for no time at all.
fn record(name: &[u8], kind: u8, data: &[u8]) -> Vec<u8> {
    let length = u8::try_from(data.len()).unwrap();
    [name, &[0, kind], &CLASS_IN, &[0; 4], &[0, length], data].concat()
}

/// A listener that never takes another connection: its queue is full, so the kernel drops every SYN.
pub(crate) struct Silent {
    _listener: socket2::Socket,
    _queued: Vec<socket2::Socket>,
}

impl Silent {
    pub(crate) fn at(ip: IpAddr, port: u16) -> Self {
        let stream =
            || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let listener = stream();
        let address = SocketAddr::new(ip, port).into();
        listener.bind(&address).unwrap();
        listener.listen(0).unwrap();
        let queued = (0..4).map(|_| {
            let socket = stream();
            socket.set_nonblocking(true).unwrap();
            // It is in progress, or in the queue; either way the queue is full in the end.
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

/// Waits until something holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
