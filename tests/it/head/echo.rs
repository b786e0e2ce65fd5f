//! The accept loop of the proxy with an echo as its handler, and raw clients for it.

use std::convert::Infallible;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use crawlgate::clock::Clock;
use crawlgate::metrics::labels::{Http2ErrorCode, Http2ErrorScope, Http2Limit, ProxyHeaderFailure};
use crawlgate::proxy::accept::{
    self, AcceptLimits, ClientConnection, ConnectionHandler, ConnectionLimiter, StreamRefusal,
};
use crawlgate::proxy::body::ClientBody;
use crawlgate::proxy::drain::{Drain, DrainOutcome, DrainWatch};
use crawlgate::proxy::head::{
    ClientSocket, ForeignProtocol, HeadError, HeadEvents, HeadLimits, HeadReaderSettings,
    ServiceGuard,
};
use crawlgate::proxy::http2::Http2Settings;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Longer than any single step takes on a busy machine.
pub(super) const LONG: Duration = Duration::from_secs(20);
/// Long enough for bytes in transit to arrive, on an idle machine.
pub(super) const MOMENT: Duration = Duration::from_millis(30);

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::system);

pub(super) fn limits() -> AcceptLimits {
    let limits = HeadLimits {
        bytes: 2048,
        fields: 10,
        target: 256,
    };
    let reader = HeadReaderSettings {
        limits,
        head: LONG,
        idle: LONG,
        write_stall: LONG,
    };
    AcceptLimits {
        connections: 100,
        per_client: 100,
        overload_replies: 100,
        reader,
        http2: Http2Settings {
            clients: true,
            prior_knowledge: false,
            streams: 10,
            resets: 10,
        },
    }
}

/// Answers every request with a description of it. Special paths: `/wait/MS` answers later, `/read/MS` after it has read
/// its body and waited, `/unread` never reads its body and never answers, `/early` answers without reading it,
/// `/big/BYTES` has a body of this size, `/panic` panics.
#[derive(Debug, Default)]
pub(super) struct Echo {
    pub(super) seen: Mutex<Vec<String>>,
    pub(super) refused: Mutex<Vec<(HeadError, Vec<u8>)>>,
    pub(super) foreign: Mutex<Vec<ForeignProtocol>>,
    pub(super) in_service: Arc<AtomicUsize>,
    pub(super) connections: AtomicUsize,
    pub(super) limits_exceeded: Mutex<Vec<Http2Limit>>,
    pub(super) http2_errors: Mutex<Vec<(Http2ErrorScope, Http2ErrorCode)>>,
    /// The time for which the handler waits for a body.
    patience: Duration,
}

/// Counts a request while it is in service.
struct InService(Arc<AtomicUsize>);

impl Drop for InService {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(super) struct Answer {
    left: usize,
    text: Option<Bytes>,
    _open: ServiceGuard,
    _in_service: InService,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if let Some(text) = this.text.take() {
            return Poll::Ready(Some(Ok(Frame::data(text))));
        }
        let next = this.left.min(16 * 1024);
        this.left -= next;
        Poll::Ready((next > 0).then(|| Ok(Frame::data(Bytes::from(vec![b'x'; next])))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.left + self.text.as_ref().map_or(0, Bytes::len)) as u64)
    }
}

impl ConnectionHandler for Echo {
    type ConnectionState = usize;
    type ResBody = Answer;
    type Error = Infallible;

    fn clock(&self) -> &Clock {
        &CLOCK
    }

    fn expects_proxy_header(&self, _: IpAddr) -> bool {
        false
    }

    fn record_proxy_header_failure(&self, _: ProxyHeaderFailure) {
        unreachable!("no connection has such a header");
    }

    fn on_connect(&self, _: SocketAddr) -> usize {
        self.connections.fetch_add(1, Ordering::SeqCst)
    }

    async fn open(
        &self,
        client: ClientSocket,
        _: &usize,
        _: &mut DrainWatch,
    ) -> Option<ClientSocket> {
        Some(client)
    }

    fn on_tunnel(&self, connection: &usize) -> usize {
        *connection
    }

    async fn handle_request(
        &self,
        request: Request<ClientBody>,
        open: ServiceGuard,
        connection: &ClientConnection<usize>,
    ) -> Result<Response<Answer>, Infallible> {
        self.in_service.fetch_add(1, Ordering::SeqCst);
        let in_service = InService(Arc::clone(&self.in_service));
        assert!(connection.peer.ip().is_loopback());
        let (parts, body) = request.into_parts();
        let line = format!("{} {}", parts.method, parts.uri);
        self.seen.lock().unwrap().push(line.clone());
        let number = |prefix| {
            parts
                .uri
                .path()
                .strip_prefix(prefix)
                .and_then(|n: &str| n.parse().ok())
        };
        if parts.uri.path() == "/panic" {
            panic!("requested by the test");
        }
        if parts.uri.path() == "/unread" {
            std::future::pending::<()>().await;
        }
        if let Some(ms) = number("/wait/") {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        let patience = if parts.uri.path() == "/early" {
            Duration::ZERO
        } else {
            self.patience
        };
        let body = tokio::time::timeout(patience, body.collect()).await;
        let body = body
            .map(|all| all.map(|all| all.to_bytes()).unwrap_or_default())
            .unwrap_or_default();
        if let Some(ms) = number("/read/") {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        let text = Bytes::from(format!("{line} [{}]", String::from_utf8_lossy(&body)));
        let left = number("/big/").unwrap_or(0) as usize;
        let text = Some(text).filter(|_| left == 0);
        Ok(Response::new(Answer {
            left,
            text,
            _open: open,
            _in_service: in_service,
        }))
    }

    async fn continue_after_connect(
        &self,
        client: ClientSocket,
        _: &mut ClientConnection<usize>,
        _: &mut DrainWatch,
    ) -> Option<ClientSocket> {
        // HTTP continues: the following bytes are the next request.
        Some(client)
    }

    fn overload_response(&self, _: SocketAddr) -> Bytes {
        answer("503 Service Unavailable", "overloaded")
    }

    fn refuse_stream(&self, refusal: StreamRefusal, _: SocketAddr) -> Option<Response<Bytes>> {
        let status = match refusal {
            StreamRefusal::Head(error) => {
                self.refused.lock().unwrap().push((error, Vec::new()));
                400
            }
            StreamRefusal::Overloaded => 503,
        };
        let response = Response::builder().status(status);
        Some(response.body(Bytes::from_static(b"refused")).unwrap())
    }

    fn is_exhausted(&self, _: &usize) -> bool {
        false
    }

    fn record_http2_limit(&self, limit: Http2Limit) {
        self.limits_exceeded.lock().unwrap().push(limit);
    }

    fn record_http2_error(&self, scope: Http2ErrorScope, code: Http2ErrorCode) {
        self.http2_errors.lock().unwrap().push((scope, code));
    }
}

impl HeadEvents for Echo {
    fn refusal_response(&self, error: HeadError, partial: &[u8]) -> Bytes {
        self.refused.lock().unwrap().push((error, partial.to_vec()));
        match error {
            HeadError::Malformed(what) => answer("400 Bad Request", what),
            HeadError::TargetTooLong => answer("414 URI Too Long", "target"),
            HeadError::TooLarge => answer("431 Request Header Fields Too Large", "head"),
            HeadError::Late => answer("408 Request Timeout", "late"),
        }
    }

    fn record_foreign(&self, foreign: ForeignProtocol) {
        self.foreign.lock().unwrap().push(foreign);
    }
}

fn answer(status: &str, why: &str) -> Bytes {
    let length = why.len();
    format!("HTTP/1.1 {status}\r\ncrawl-reason: full\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{why}")
        .into()
}

pub(super) struct Listening {
    pub(super) echo: Arc<Echo>,
    pub(super) address: SocketAddr,
    drain: Drain,
}

impl Listening {
    pub(super) async fn new(limits: AcceptLimits) -> Self {
        Self::with_patience(limits, LONG).await
    }

    pub(super) async fn with_patience(limits: AcceptLimits, patience: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let echo = Arc::new(Echo {
            patience,
            ..Echo::default()
        });
        let (drain, watch) = Drain::new();
        tokio::spawn(accept::serve(
            listener,
            ConnectionLimiter::new(&limits),
            limits.connection(),
            Arc::clone(&echo),
            watch,
        ));
        Self {
            echo,
            address,
            drain,
        }
    }

    pub(super) async fn connect(&self) -> Client {
        let socket = TcpStream::connect(self.address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Client(socket)
    }

    /// Sends bytes on a new connection and reads until it closes.
    pub(super) async fn ask(&self, bytes: &[u8]) -> String {
        let mut client = self.connect().await;
        client.send(bytes).await;
        client.rest().await
    }

    /// As `ask`, for bytes after which the connection may be reset.
    pub(super) async fn exchange(&self, bytes: &[u8]) -> String {
        let mut client = self.connect().await;
        client.send(bytes).await;
        let mut answer = Vec::new();
        let read = client.0.read_to_end(&mut answer);
        let _ = tokio::time::timeout(LONG, read)
            .await
            .unwrap_or_else(|_| panic!("hangs on {bytes:?}"));
        client.reset();
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub(super) async fn drain(&self, patience: Duration) -> DrainOutcome {
        tokio::time::timeout(LONG, self.drain.run(Duration::ZERO, patience))
            .await
            .unwrap()
    }

    pub(super) fn seen(&self) -> Vec<String> {
        self.echo.seen.lock().unwrap().clone()
    }

    pub(super) fn in_service(&self) -> usize {
        self.echo.in_service.load(Ordering::SeqCst)
    }

    /// Waits until this number of requests is in service.
    pub(super) async fn until_in_service(&self, count: usize) {
        until(|| self.in_service() == count, "requests in service").await;
    }
}

pub(super) async fn until(mut holds: impl FnMut() -> bool, what: &str) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, waiting)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

pub(super) struct Client(pub(super) TcpStream);

impl Client {
    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads until the connection closes.
    pub(super) async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(LONG, self.0.read_to_end(&mut bytes)).await;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match read {
            Ok(Ok(_)) => text,
            Ok(Err(error)) => panic!("{error} after {text:?}"),
            Err(_) => panic!("open after {text:?}"),
        }
    }

    /// One response: its status and its body.
    pub(super) async fn answer(&mut self) -> (u16, String) {
        let head = tokio::time::timeout(LONG, self.head())
            .await
            .expect("no answer")
            .unwrap();
        let status = head[9..12].parse().unwrap();
        let length = head.to_ascii_lowercase();
        let length = length
            .split("content-length: ")
            .nth(1)
            .unwrap()
            .split("\r\n")
            .next()
            .unwrap()
            .parse();
        let mut body = vec![0; length.unwrap()];
        tokio::time::timeout(LONG, self.0.read_exact(&mut body))
            .await
            .expect("no body")
            .unwrap();
        (status, String::from_utf8(body).unwrap())
    }

    async fn head(&mut self) -> Result<String, Box<dyn Error>> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await?);
        }
        Ok(String::from_utf8(head)?)
    }

    /// Closes the connection by a RST.
    pub(super) fn reset(self) {
        socket2::SockRef::from(&self.0)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    }
}
