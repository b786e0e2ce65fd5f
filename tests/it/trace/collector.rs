//! A collector that keeps the spans it receives, or behaves as a test requires.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crawlgate::otlp::message::{ExportTraceServiceRequest, OtlpSpan, Value};
use prost::Message;

use crate::upstream::scripted::until;

/// The response of the collector.
#[derive(Clone, Debug)]
pub(super) enum Answers {
    Takes,
    /// With this status line, and nothing taken.
    Refuses(&'static str),
    /// All but this many.
    Rejects(u8),
    Never,
}

/// A listening collector.
pub(super) struct Collector {
    pub(super) port: u16,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    heads: Vec<String>,
    exports: Vec<ExportTraceServiceRequest>,
}

impl Collector {
    pub(super) fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let collector = Self {
            port: listener.local_addr().unwrap().port(),
            seen: Arc::default(),
        };
        let seen = Arc::clone(&collector.seen);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (seen, answers) = (Arc::clone(&seen), answers.clone());
                thread::spawn(move || serve(socket, &seen, &answers));
            }
        });
        collector
    }

    pub(super) fn heads(&self) -> Vec<String> {
        self.seen.lock().unwrap().heads.clone()
    }

    pub(super) fn exports(&self) -> Vec<ExportTraceServiceRequest> {
        self.seen.lock().unwrap().exports.clone()
    }

    pub(super) fn spans(&self) -> Vec<OtlpSpan> {
        let exports = self.exports();
        let scopes = exports
            .iter()
            .flat_map(|e| &e.resource_spans)
            .flat_map(|r| &r.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    /// Returns the spans of complete requests, once there are this many.
    #[track_caller]
    pub(super) fn requests(&self, count: usize) -> Vec<OtlpSpan> {
        let requests = || {
            self.spans()
                .into_iter()
                .filter(|span| span.name == "request")
                .collect::<Vec<_>>()
        };
        until("the spans arrive", || requests().len() >= count);
        let found = requests();
        assert_eq!(found.len(), count, "{found:#?}");
        found
    }

    /// The parts of a request, in the order in which they began.
    pub(super) fn parts(&self, request: &OtlpSpan) -> Vec<OtlpSpan> {
        let of_it = |span: &OtlpSpan| span.parent_span_id == request.span_id;
        let mut parts: Vec<OtlpSpan> = self.spans().into_iter().filter(of_it).collect();
        parts.sort_by_key(|span| span.start_time_unix_nano);
        parts
    }
}

/// An attribute as text; empty if it is not there.
pub(super) fn value(span: &OtlpSpan, key: &str) -> String {
    let found = span
        .attributes
        .iter()
        .find(|attribute| attribute.key == key);
    match found.and_then(|found| found.value.clone()?.value) {
        Some(Value::Text(text)) => text,
        Some(Value::Int(number)) => number.to_string(),
        None => String::new(),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn serve(mut socket: TcpStream, seen: &Mutex<Seen>, answers: &Answers) -> Option<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    socket.read_exact(&mut body).ok()?;
    let export = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
    let mut seen = seen.lock().unwrap();
    seen.heads.push(head);
    let (status, body) = match answers {
        Answers::Takes => ("200 OK", vec![]),
        // partial_success { rejected_spans: N }, by hand.
        Answers::Rejects(count) => ("200 OK", vec![0x0a, 0x02, 0x08, *count]),
        Answers::Refuses(status) => (*status, vec![]),
        Answers::Never => {
            drop(seen);
            let _ = socket.read(&mut byte);
            return None;
        }
    };
    if status == "200 OK" {
        seen.exports.push(export);
    }
    drop(seen);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(&[head.as_bytes(), &body].concat()).ok()
}
