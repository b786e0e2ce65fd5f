//! A connection that several requests share, and the task that drives it.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::SendStream;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use http::Request;
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::metrics::labels::OriginHttp2Failure;
use crate::model::certificate_verification::CertificateVerification;
use crate::proxy::head::timer::LazyTimer;
use crate::proxy::origin_tls::OriginStream;
use crate::proxy::parents::ConnectionRoute;
use crate::proxy::read_allowance::ReadAllowance;

use super::failure::{InterpretedError, failure_of};
use super::socket::FrameSocket;
use super::watch::ConnectionWatch;

/// The maximum number of streams on one connection.
const MAX_STREAMS: usize = 100;
/// The bytes of a response that an origin may send before the client takes them.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The window of the connection. It is never smaller than those of its streams together, so that a
/// client that reads slowly does not stop the others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MAX_STREAMS as u32;
/// The bytes of a request's body that wait for the socket.
const SEND_BUFFER: usize = 64 * 1024;

/// The destination of a connection and what its driver needs.
#[derive(Debug)]
pub(in crate::proxy) struct SharedConnectionSettings {
    /// The address that was dialled.
    pub address: SocketAddr,
    /// The scheme, host and port of the origin: `https://host/`.
    pub base: Box<str>,
    /// `On` if the origin's certificate was verified.
    pub verify: CertificateVerification,
    /// The way to the origin.
    pub route: ConnectionRoute,
    /// The maximum size of a response head in bytes.
    pub max_head_size: usize,
    /// The time for which the origin may take nothing of what is to be written.
    pub write_stall: Duration,
    pub clock: Clock,
    pub metrics: Metrics,
}

/// A connection to an origin that serves several requests at once. It ends when nothing refers to
/// it, or when the origin ends it.
#[derive(Debug)]
pub struct SharedConnection {
    requests: SendRequest<Bytes>,
    pub(super) watch: Arc<ConnectionWatch>,
    /// The number of reserved streams.
    streams: AtomicUsize,
    /// The end of the last stream.
    last_used: Mutex<Instant>,
    settings: SharedConnectionSettings,
}

/// The right to open one stream, held until its end.
#[derive(Debug)]
pub struct StreamReservation {
    pub(super) connection: Arc<SharedConnection>,
    /// The time for which the connection had no stream.
    pub idle_for: Duration,
}

impl SharedConnection {
    /// Starts HTTP/2 on a socket and the task that drives it.
    ///
    /// # Errors
    /// Returns an error if the connection fails at once.
    pub(in crate::proxy) async fn start(
        stream: OriginStream,
        settings: SharedConnectionSettings,
    ) -> Result<Arc<Self>, h2::Error> {
        let watch = Arc::new(ConnectionWatch::default());
        let allowance = Arc::new(ReadAllowance::for_origin());
        let socket = FrameSocket::new(
            stream,
            Arc::clone(&watch),
            Arc::clone(&allowance),
            settings.max_head_size,
        );
        let (requests, connection) = builder(settings.max_head_size).handshake(socket).await?;
        settings.metrics.record_http2_connection();
        let driver = SharedDriver {
            connection,
            watch: Arc::clone(&watch),
            allowance,
            stall: LazyTimer::new(settings.write_stall),
            write_stall: settings.write_stall,
        };
        tokio::spawn(driver.run(settings.metrics.clone()));
        Ok(Arc::new(Self {
            requests,
            watch,
            streams: AtomicUsize::new(0),
            last_used: Mutex::new(settings.clock.now()),
            settings,
        }))
    }

    /// Reserves a stream, unless the connection ends or is full.
    pub(in crate::proxy) fn reserve(self: &Arc<Self>, now: Instant) -> Option<StreamReservation> {
        if self.watch.is_closing() {
            return None;
        }
        let limit = self.requests.current_max_send_streams().min(MAX_STREAMS);
        let used = self
            .streams
            .fetch_update(AcqRel, Acquire, |used| (used < limit).then_some(used + 1))
            .ok()?;
        let idle_for = if used == 0 {
            now.saturating_duration_since(*self.last_used.lock())
        } else {
            Duration::ZERO
        };
        Some(StreamReservation {
            connection: Arc::clone(self),
            idle_for,
        })
    }

    /// Returns `true` if the connection takes no more requests.
    pub(in crate::proxy) fn is_closing(&self) -> bool {
        self.watch.is_closing()
    }

    /// Returns the time for which no stream was open.
    pub(in crate::proxy) fn idle_for(&self, now: Instant) -> Duration {
        if self.streams.load(Relaxed) > 0 {
            return Duration::ZERO;
        }
        now.saturating_duration_since(*self.last_used.lock())
    }

    /// Returns the address that was dialled.
    pub(in crate::proxy) fn address(&self) -> SocketAddr {
        self.settings.address
    }

    /// Returns the scheme, host and port of the origin.
    pub(in crate::proxy) fn base(&self) -> &str {
        &self.settings.base
    }

    /// Returns `On` if the origin's certificate was verified.
    pub(in crate::proxy) fn verify(&self) -> CertificateVerification {
        self.settings.verify
    }

    /// Returns the way to the origin.
    pub(in crate::proxy) fn route(&self) -> &ConnectionRoute {
        &self.settings.route
    }

    /// Interprets an error of a stream, and counts it unless the driver has counted its cause.
    pub(super) fn interpret(&self, error: &h2::Error) -> InterpretedError {
        let interpreted = InterpretedError::from_error(error, &self.watch);
        if self.watch.failure().is_none() {
            self.record_failure(interpreted.failure);
        }
        interpreted
    }

    pub(super) fn record_failure(&self, failure: OriginHttp2Failure) {
        self.settings.metrics.record_http2_failure(failure);
    }
}

impl StreamReservation {
    /// Returns the address of the connection.
    pub(in crate::proxy) fn address(&self) -> SocketAddr {
        self.connection.address()
    }

    /// Passes the head of a request to the connection.
    pub(super) fn open(
        &self,
        head: Request<()>,
        is_last: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        self.connection.requests.clone().send_request(head, is_last)
    }
}

impl Drop for StreamReservation {
    fn drop(&mut self) {
        let connection = &self.connection;
        *connection.last_used.lock() = connection.settings.clock.now();
        connection.streams.fetch_sub(1, AcqRel);
    }
}

fn builder(max_head_size: usize) -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(max_head_size).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER);
    builder
}

/// Drives a connection to its end.
struct SharedDriver {
    connection: Connection<FrameSocket, Bytes>,
    watch: Arc<ConnectionWatch>,
    allowance: Arc<ReadAllowance>,
    stall: LazyTimer,
    write_stall: Duration,
}

impl SharedDriver {
    async fn run(mut self, metrics: Metrics) {
        let failure = poll_fn(|cx| self.poll_end(cx)).await;
        if let Some(failure) = failure {
            metrics.record_http2_failure(failure);
            // Before the requests notice the end.
            self.watch.set_failure(failure);
        }
        self.watch.set_closing();
        drop(self.connection);
        self.watch.abandon_unwritten();
    }

    /// Ready at the end of the connection, with the origin's fault.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<OriginHttp2Failure>> {
        self.watch.set_driver(cx.waker());
        self.allowance.renew();
        let ended = Pin::new(&mut self.connection).poll(cx);
        if let Some(flood) = self.watch.failure() {
            return Poll::Ready(Some(flood));
        }
        if let Poll::Ready(ended) = ended {
            return Poll::Ready(ended.err().and_then(|error| failure_of(&error)));
        }
        self.poll_stall(cx)
            .map(|()| Some(OriginHttp2Failure::WriteStall))
    }

    /// Ready when the origin has taken nothing for too long.
    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.watch.is_blocked() {
            self.stall = LazyTimer::new(self.write_stall);
            return Poll::Pending;
        }
        if self.watch.take_progress() {
            self.stall.record_progress();
        }
        self.stall.poll(cx)
    }
}
