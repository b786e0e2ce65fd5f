//! Documents over real sockets: what of a body is read before it is sent, what is judged by it, and how one is changed.

mod changed;
mod content;
mod judged;
mod random;
mod read;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use crate::support::client::RawClient;
use crate::support::origin::ScriptedOrigin;
use crate::support::policy::allow_all;
use crate::support::proxy::CONFIG;
use crate::support::proxy::TestProxy;

/// An answer of the origin: its head without the blank line, and its body, in the pieces in which it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    status: &'static str,
    fields: String,
    pieces: Vec<Vec<u8>>,
    pause: Duration,
}

impl Page {
    /// HTML of known length.
    pub(crate) fn html(body: impl AsRef<[u8]>) -> Self {
        Self::of("text/html", body)
    }

    pub(crate) fn of(content_type: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref().to_vec();
        let fields = format!(
            "Content-Type: {content_type}\r\nContent-Length: {}\r\n",
            body.len()
        );
        Self {
            status: "200 OK",
            fields,
            pieces: vec![body],
            pause: Duration::ZERO,
        }
    }

    pub(crate) fn status(self, status: &'static str) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn field(mut self, line: &str) -> Self {
        self.fields.push_str(line);
        self.fields.push_str("\r\n");
        self
    }

    /// Cuts the body into pieces of this size, each in its own packet.
    pub(crate) fn cut(self, at: usize) -> Self {
        let body = self.pieces.concat();
        let pieces = body.chunks(at.max(1)).map(<[u8]>::to_vec).collect();
        Self {
            pieces,
            pause: Duration::from_micros(200),
            ..self
        }
    }

    /// Splits the body into two pieces.
    pub(crate) fn split(self, at: usize) -> Self {
        let body = self.pieces.concat();
        let (first, second) = body.split_at(at);
        Self {
            pieces: vec![first.to_vec(), second.to_vec()],
            pause: Duration::from_millis(2),
            ..self
        }
    }

    /// Sends the body as chunks, one per piece.
    pub(crate) fn chunked(mut self) -> Self {
        let content_type = self.fields.lines().next().unwrap_or_default().to_owned();
        let rest: String = self
            .fields
            .lines()
            .skip(2)
            .map(|line| format!("{line}\r\n"))
            .collect();
        self.fields = format!("{content_type}\r\nTransfer-Encoding: chunked\r\n{rest}");
        // An empty chunk would end the body.
        self.pieces.retain(|piece| !piece.is_empty());
        for piece in &mut self.pieces {
            let head = format!("{:x}\r\n", piece.len()).into_bytes();
            *piece = [&head[..], &piece[..], b"\r\n"].concat();
        }
        self.pieces.push(b"0\r\n\r\n".to_vec());
        self
    }

    pub(crate) fn without_type(mut self) -> Self {
        self.fields = self
            .fields
            .lines()
            .skip(1)
            .map(|line| format!("{line}\r\n"))
            .collect();
        self
    }
}

pub(crate) fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn bare(body: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// A proxy, and an origin with pages by their paths.
pub(crate) struct DocumentSite {
    pub(crate) gate: TestProxy,
    pub(crate) origin: ScriptedOrigin,
    pages: Pages,
    heads: Heads,
}

type Pages = Arc<Mutex<BTreeMap<String, Page>>>;
type Heads = Arc<Mutex<Vec<String>>>;

fn origin(pages: &Pages, heads: &Heads) -> ScriptedOrigin {
    let served = Arc::clone(pages);
    let noted = Arc::clone(heads);
    ScriptedOrigin::start(move |connection| {
        while let Some(head) = connection.read_head() {
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let is_head = head.starts_with("HEAD ");
            noted.lock().unwrap().push(head);
            let page = served.lock().unwrap().get(&path).cloned();
            let page = page.unwrap_or_else(|| Page::of("text/plain", "?").status("404 Not Found"));
            connection.send(format!("HTTP/1.1 {}\r\n{}\r\n", page.status, page.fields));
            for piece in page.pieces.iter().filter(|_| !is_head) {
                let _ = connection.socket.write_all(piece);
                if !page.pause.is_zero() {
                    sleep(page.pause);
                }
            }
        }
    })
}

/// Sends a request on a new connection.
fn ask(
    proxy: SocketAddr,
    origin: &ScriptedOrigin,
    method: &str,
    path: &str,
    fields: &str,
) -> DocumentResponse {
    let mut client = RawClient::connect(proxy);
    let host = format!("a.test:{}", origin.port);
    client.send(format!(
        "{method} http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n{fields}Connection: close\r\n\r\n"
    ));
    let mut bytes = Vec::new();
    let _ = client.socket.read_to_end(&mut bytes);
    DocumentResponse(bytes)
}

impl DocumentSite {
    pub(crate) fn new(options: &str, rules: &str) -> Self {
        let pages = Pages::default();
        let heads = Heads::default();
        let origin = origin(&pages, &heads);
        let gate = TestProxy::start(CONFIG, &allow_all(options, rules));
        Self {
            gate,
            origin,
            pages,
            heads,
        }
    }

    pub(crate) fn has(&self, path: &str, page: Page) {
        self.pages.lock().unwrap().insert(path.to_owned(), page);
    }

    /// Puts the page at a path and requests it.
    pub(crate) fn serve(&self, page: Page) -> DocumentResponse {
        self.has("/page", page);
        self.get("/page")
    }

    pub(crate) fn get(&self, path: &str) -> DocumentResponse {
        self.ask("GET", path, "")
    }

    pub(crate) fn ask(&self, method: &str, path: &str, fields: &str) -> DocumentResponse {
        ask(self.gate.proxy, &self.origin, method, path, fields)
    }

    /// The heads that the origin received.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// A response as it was received.
pub(crate) struct DocumentResponse(Vec<u8>);

impl DocumentResponse {
    fn halves(&self) -> (&[u8], &[u8]) {
        let at = self
            .0
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a head");
        (&self.0[..at], &self.0[at + 4..])
    }

    pub(crate) fn head(&self) -> String {
        String::from_utf8_lossy(self.halves().0).into_owned()
    }

    pub(crate) fn status(&self) -> u16 {
        self.head().split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// A field's values, joined.
    pub(crate) fn value(&self, name: &str) -> String {
        let head = self.head();
        let fields = head.lines().filter_map(|line| line.split_once(": "));
        let values = fields
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value);
        values.collect::<Vec<_>>().join(" | ")
    }

    /// `reason rule status`, or `passed status`.
    pub(crate) fn output(&self) -> String {
        match self.value("crawl-reason").as_str() {
            "" => format!("passed {}", self.status()),
            reason => format!("{reason} {} {}", self.value("crawl-rule"), self.status()),
        }
    }

    /// The body, its chunks put together; none if it broke off, with or without a head.
    pub(crate) fn body(&self) -> Option<Vec<u8>> {
        if self.0.is_empty() {
            return None;
        }
        let (_, mut rest) = self.halves();
        if !self.value("transfer-encoding").contains("chunked") {
            let length = self.value("content-length").parse::<usize>().ok();
            return length
                .is_none_or(|length| length == rest.len())
                .then(|| rest.to_vec());
        }
        let mut body = Vec::new();
        loop {
            let line = rest.windows(2).position(|two| two == b"\r\n")?;
            let length =
                usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
            rest = &rest[line + 2..];
            if length == 0 {
                return Some(body);
            }
            body.extend_from_slice(rest.get(..length)?);
            rest = rest.get(length + 2..)?;
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body().expect("a whole body")).into_owned()
    }
}
