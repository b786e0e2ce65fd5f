//! A collector that keeps the spans it receives, or behaves as a test requires.

use crawlgate::otlp::message::{ExportTraceServiceRequest, OtlpSpan, Value};
use prost::Message;

use crate::support::origin::{Reply, ScriptedOrigin};

use crate::support::wait::wait_until;

/// The response of the collector.
#[derive(Clone, Debug)]
pub(crate) enum Answers {
    Takes,
    /// With this status line, and nothing taken.
    Refuses(&'static str),
    /// All but this many.
    Rejects(u8),
    Never,
}

/// A listening collector.
pub(crate) struct TestCollector {
    pub(crate) port: u16,
    origin: ScriptedOrigin,
    /// `true` if exports are accepted.
    accepts: bool,
}

impl TestCollector {
    pub(crate) fn start(answers: Answers) -> Self {
        let accepts = matches!(answers, Answers::Takes | Answers::Rejects(_));
        let origin = ScriptedOrigin::respond(move |_| respond(&answers));
        Self {
            port: origin.port,
            origin,
            accepts,
        }
    }

    /// The heads of the requests, in lower case.
    pub(crate) fn heads(&self) -> Vec<String> {
        let heads = self.origin.heads();
        heads.iter().map(|head| head.to_lowercase()).collect()
    }

    pub(crate) fn exports(&self) -> Vec<ExportTraceServiceRequest> {
        let requests = self.origin.requests();
        let accepted = requests.iter().filter(|_| self.accepts);
        let bodies = accepted.map(|request| request.body.as_slice());
        bodies
            .map(|body| ExportTraceServiceRequest::decode(body).unwrap())
            .collect()
    }

    pub(crate) fn spans(&self) -> Vec<OtlpSpan> {
        let exports = self.exports();
        let scopes = exports
            .iter()
            .flat_map(|e| &e.resource_spans)
            .flat_map(|r| &r.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    /// Returns the spans of complete requests, once there are this many.
    #[track_caller]
    pub(crate) fn requests(&self, count: usize) -> Vec<OtlpSpan> {
        let mut found = Vec::new();
        wait_until("the spans arrive", || {
            found = self.spans();
            found.retain(|span| span.name == "request");
            found.len() >= count
        });
        assert_eq!(found.len(), count, "{found:#?}");
        found
    }

    /// The parts of a request, in the order in which they began.
    pub(crate) fn parts(&self, request: &OtlpSpan) -> Vec<OtlpSpan> {
        let mut parts: Vec<OtlpSpan> = self
            .spans()
            .into_iter()
            .filter(|span: &OtlpSpan| span.parent_span_id == request.span_id)
            .collect();
        parts.sort_by_key(|span| span.start_time_unix_nano);
        parts
    }
}

/// An attribute as text; empty if it is not there.
pub(crate) fn value(span: &OtlpSpan, key: &str) -> String {
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

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn respond(answers: &Answers) -> Reply {
    let (status, body) = match answers {
        Answers::Takes => ("200 OK", vec![]),
        // The message partial_success { rejected_spans: N }.
        Answers::Rejects(count) => ("200 OK", vec![0x0a, 0x02, 0x08, *count]),
        Answers::Refuses(status) => (*status, vec![]),
        Answers::Never => return Reply::Hang(vec![]),
    };
    let length = body.len();
    let fields = format!("Content-Type: application/x-protobuf\r\nContent-Length: {length}");
    let head = format!("HTTP/1.1 {status}\r\n{fields}\r\n\r\n");
    Reply::Bytes([head.as_bytes(), &body].concat())
}
