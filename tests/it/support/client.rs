//! A client that writes bytes to a socket and reads responses from it, without an HTTP library.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::wait::TIMEOUT;

/// A connection to a proxy or to its admin listener.
pub(crate) struct RawClient {
    pub(crate) socket: TcpStream,
}

/// The way in which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// By a FIN.
    Closed,
    /// By a RST.
    Reset,
}

impl RawClient {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { socket }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends a GET of an absolute URL without waiting for the response.
    pub(crate) fn send_get(&mut self, url: &str, fields: &str) {
        self.send(get_request(url, fields));
    }

    /// GETs an absolute URL on this connection, which stays open.
    #[track_caller]
    pub(crate) fn get(&mut self, url: &str) -> Response {
        self.get_with(url, "")
    }

    /// GETs an absolute URL with more header fields, each line with its CRLF.
    #[track_caller]
    pub(crate) fn get_with(&mut self, url: &str, fields: &str) -> Response {
        self.send_get(url, fields);
        self.read_response()
    }

    /// Sends bytes and reads one response.
    #[track_caller]
    pub(crate) fn request(&mut self, bytes: impl AsRef<[u8]>) -> Response {
        self.send(bytes);
        self.read_response()
    }

    /// Reads one response, with a body of `Content-Length`.
    #[track_caller]
    pub(crate) fn read_response(&mut self) -> Response {
        Response::read(&mut self.socket).expect("a whole response")
    }

    /// Reads one response; `None` if the connection ends instead.
    pub(crate) fn try_read_response(&mut self) -> Option<Response> {
        Response::read(&mut self.socket).ok()
    }

    /// Reads a head, up to and including its blank line.
    #[track_caller]
    pub(crate) fn read_head(&mut self) -> String {
        self.read_until("\r\n\r\n")
    }

    /// Reads until the bytes end with this text.
    #[track_caller]
    pub(crate) fn read_until(&mut self, text: &str) -> String {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while !bytes.ends_with(text.as_bytes()) {
            match self.socket.read(&mut byte) {
                Ok(1) => bytes.push(byte[0]),
                end => panic!("{end:?} after {:?}", String::from_utf8_lossy(&bytes)),
            }
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Reads this number of bytes.
    #[track_caller]
    pub(crate) fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Everything until the connection ends, and how it ends.
    #[track_caller]
    pub(crate) fn read_to_end(&mut self) -> (String, ConnectionEnd) {
        let mut bytes = Vec::new();
        let end = match self.socket.read_to_end(&mut bytes) {
            Ok(_) => ConnectionEnd::Closed,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => ConnectionEnd::Reset,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
        };
        (String::from_utf8_lossy(&bytes).into_owned(), end)
    }

    /// Everything until the connection ends.
    #[track_caller]
    pub(crate) fn read_rest(&mut self) -> String {
        self.read_to_end().0
    }

    /// Ends the sending direction; the connection may be closed already.
    pub(crate) fn half_close(&self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Ends the connection by a RST.
    pub(crate) fn reset(self) {
        reset_on_close(&self.socket);
    }
}

/// Makes the end of a connection a RST.
pub(crate) fn reset_on_close(socket: &TcpStream) {
    let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

/// A GET of an absolute URL, with more header fields, each line with its CRLF.
pub(crate) fn get_request(url: &str, fields: &str) -> String {
    let host = url.split('/').nth(2).unwrap_or_default();
    format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")
}

/// Sends bytes on a connection of their own and reads until its end.
#[track_caller]
pub(crate) fn exchange(address: SocketAddr, bytes: impl AsRef<[u8]>) -> String {
    let mut client = RawClient::connect(address);
    client.send(bytes);
    client.read_rest()
}

/// GETs an absolute URL on a connection of its own.
#[track_caller]
pub(crate) fn get(address: SocketAddr, url: &str) -> Response {
    get_with(address, url, "")
}

/// GETs an absolute URL on a connection of its own, with more header fields, each line with its CRLF.
#[track_caller]
pub(crate) fn get_with(address: SocketAddr, url: &str, fields: &str) -> Response {
    let fields = format!("{fields}Connection: close\r\n");
    Response::parse(&exchange(address, get_request(url, &fields)))
}

/// A response as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    /// The status code; 0 if there was no response.
    pub(crate) status: u16,
    /// The status line and the header fields, with the blank line.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    /// Splits everything that came on a connection into head and body.
    pub(crate) fn parse(text: &str) -> Self {
        let body_start = text.find("\r\n\r\n").map_or(text.len(), |at| at + 4);
        let (head, body) = text.split_at(body_start);
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Self {
            status: status.unwrap_or(0),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    /// Reads one response, with a body of `Content-Length`.
    ///
    /// # Errors
    /// If the stream ends before the response does.
    pub(crate) fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            head.extend(byte);
        }
        let mut response = Self::parse(&String::from_utf8_lossy(&head));
        let length = response.field("content-length").map_or(0, |length| {
            length.parse().expect("a number in Content-Length")
        });
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        response.body = String::from_utf8_lossy(&body).into_owned();
        Ok(response)
    }

    /// All values of a header field, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .collect()
    }

    /// The first value of a header field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.values(name).first().copied()
    }

    /// The only value of a header field; empty if there is none.
    #[track_caller]
    pub(crate) fn value(&self, name: &str) -> &str {
        let values = self.values(name);
        assert!(values.len() < 2, "{name}: {values:?}");
        values.first().copied().unwrap_or_default()
    }

    /// Returns `true` if the head has this line.
    pub(crate) fn has_line(&self, line: &str) -> bool {
        self.head.lines().any(|other| other == line)
    }

    /// The JSON document of the body.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// Asserts the status and the presence of these parts, each in the head or in the body.
    #[track_caller]
    pub(crate) fn check(&self, status: u16, parts: &[&str]) {
        let text = self.to_string();
        assert_eq!(self.status, status, "{text}");
        for part in parts {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.head, self.body)
    }
}
