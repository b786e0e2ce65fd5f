//! Drives the HTTP/2 connection of a client: accepts its streams, each of which is served in a task
//! of its own, and closes the connection when a limit is exceeded, when it is idle, or when the
//! proxy shuts down.

use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, Connection};
use tokio::task::JoinSet;

use crate::metrics::labels::Http2Limit;
use crate::proxy::accept::{
    AcceptContext, ClientConnection, ConnectionHandler, ConnectionLimiter, ConnectionSettings,
};
use crate::proxy::drain::{DrainStage, DrainWatch};
use crate::proxy::head::timer::LazyTimer;
use crate::proxy::head::{ClientIo, ClientSocket, LINGER_BYTES, LINGER_TIME};
use crate::proxy::tunnel::wait_cut_off;

use super::batched_stream::{BatchFlusher, BatchedStream};
use super::client_frames::{ClientFrames, FrameAlarm};
use super::observed_stream::ObservedStream;
use super::stream::{AcceptedStream, is_connect};

/// The window of a connection. That of a stream is the default, 64 KiB.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// The number of bytes that `h2` buffers for a stream that the client does not read.
const SEND_BUFFER: usize = 64 << 10;
/// RFC 9113 section 6.5.2 counts this number of bytes for each field.
const FIELD_OVERHEAD: usize = 32;
/// The time in which the GOAWAY must be written after a client has exceeded a limit.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// The time in which the drain waits for a connection to become idle before it sends GOAWAY. Python's
/// `h2` accepts no frame after a GOAWAY: open requests of its clients fail.
const GOAWAY_DELAY: Duration = Duration::from_secs(1);

/// Serves an HTTP/2 connection to its end.
pub(crate) async fn serve_http2<O: ConnectionHandler>(
    client: ClientSocket,
    connection: ClientConnection<O::ConnectionState>,
    context: Arc<AcceptContext<O>>,
    drain: &mut DrainWatch,
) {
    let settings = context.settings;
    let alarm = Arc::new(FrameAlarm::default());
    let frames = ClientFrames::new(
        Arc::clone(&context.handler),
        settings.http2,
        Arc::clone(&alarm),
    );
    let io = ClientIo::new(client, settings.reader.write_stall);
    let (stream, flusher) = BatchedStream::new(io);
    let stream = ObservedStream::with_client(stream, frames);
    let mut handshake = pin!(builder(settings).handshake::<_, Bytes>(stream));
    let handshake = poll_fn(|cx| {
        let handshake = handshake.as_mut().poll(cx);
        // If it fails, the next read of the handshake does so, too, or its time ends.
        let _ = flusher.poll_flush(cx);
        handshake
    });
    let handshake = tokio::select! {
        handshake = tokio::time::timeout(settings.reader.head, handshake) => handshake,
        () = wait_cut_off(drain) => return,
    };
    let h2 = match handshake {
        Ok(Ok(h2)) => h2,
        Ok(Err(error)) => {
            tracing::debug!(%error, peer = %connection.peer, "connection ended");
            return;
        }
        Err(_) => return context.handler.record_http2_limit(Http2Limit::HeadTimeout),
    };
    let mut driver = ConnectionDriver {
        h2,
        flusher,
        alarm,
        requests: JoinSet::new(),
        tunnels: JoinSet::new(),
        connection: Arc::new(connection),
        context,
        idle_timer: LazyTimer::new(settings.reader.idle),
        section_timer: None,
        goaway_timer: None,
        close_timer: None,
        last_stage: DrainStage::Serving,
    };
    match poll_fn(|cx| driver.poll(cx, drain)).await {
        DriverEnd::Closed => {
            let ending = async {
                linger(&driver.flusher, settings.reader.write_stall).await;
                driver.requests.abort_all();
                // A tunnel whose stream has ended may not have sent everything to its origin.
                while driver.tunnels.join_next().await.is_some() {}
            };
            tokio::select! {
                () = ending => {},
                () = wait_cut_off(drain) => {},
            }
        }
        DriverEnd::Broken => {}
    }
}

/// The way in which a connection ends.
#[derive(Clone, Copy, Debug)]
enum DriverEnd {
    /// All frames were sent, but the client may not have received them yet; or it has closed the
    /// connection.
    Closed,
    /// The socket has failed, a time is over, or the proxy ends.
    Broken,
}

/// Receives what the client sends until it closes the connection too, or sends nothing for a while.
/// Closing a socket with unread data sends a reset, which could destroy the end of a response and the
/// GOAWAY.
async fn linger(flusher: &BatchFlusher<ClientIo>, longest: Duration) {
    // A client may have sent a window of data before it receives the GOAWAY.
    let mut remaining = CONNECTION_WINDOW as usize + LINGER_BYTES;
    let _ = tokio::time::timeout(longest, async {
        loop {
            let receiving = poll_fn(|cx| flusher.poll_discard(cx));
            match tokio::time::timeout(LINGER_TIME, receiving).await {
                Ok(Ok(count)) if 0 < count && count <= remaining => remaining -= count,
                Ok(_) | Err(_) => return,
            }
        }
    })
    .await;
}

fn builder(settings: ConnectionSettings) -> Builder {
    let limits = settings.reader.limits;
    let streams = settings.http2.streams;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(count(streams))
        // A client may open streams and cancel them before they are accepted.
        .max_pending_accept_reset_streams(streams)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        // Above this `h2` answers without a reason, so the limit of a head is applied first.
        .max_header_list_size(count(limits.bytes + FIELD_OVERHEAD * limits.fields));
    builder
}

/// A connection and its streams.
struct ConnectionDriver<O: ConnectionHandler> {
    h2: Connection<ObservedStream<BatchedStream<ClientIo>, ClientFrames<O>>, Bytes>,
    /// Sends what `h2` has written.
    flusher: BatchFlusher<ClientIo>,
    alarm: Arc<FrameAlarm>,
    /// The tasks of the streams that are requests. They are aborted when the connection ends.
    requests: JoinSet<()>,
    /// Those of the streams that are tunnels.
    tunnels: JoinSet<()>,
    connection: Arc<ClientConnection<O::ConnectionState>>,
    context: Arc<AcceptContext<O>>,
    idle_timer: LazyTimer,
    /// The timer of a field section that is incomplete, and its stream.
    section_timer: Option<(u32, LazyTimer)>,
    /// Runs from the beginning of the drain on, until GOAWAY is sent.
    goaway_timer: Option<LazyTimer>,
    /// Runs when nothing but the close is left.
    close_timer: Option<LazyTimer>,
    last_stage: DrainStage,
}

impl<O: ConnectionHandler> ConnectionDriver<O> {
    /// Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>, drain: &mut DrainWatch) -> Poll<DriverEnd> {
        let stage = drain.poll_stage(cx);
        if stage == DrainStage::CutOff {
            return Poll::Ready(DriverEnd::Broken);
        }
        if std::mem::replace(&mut self.last_stage, stage) < stage {
            self.goaway_timer = Some(LazyTimer::new(GOAWAY_DELAY));
        }
        let mut end = self.poll_streams(cx, drain);
        while self.close_timer.is_none() && self.begin_close(cx, end.is_ready()) {
            // The GOAWAY leaves in one piece with the end of the last response: curl fails a request
            // that it sends between the two. More frames may be received, so limits are checked
            // again.
            end = self.poll_streams(cx, drain);
        }
        if end.is_ready() {
            return end;
        }
        if self.poll_close_timer(cx).is_ready() {
            return Poll::Ready(DriverEnd::Broken);
        }
        self.poll_flush(cx)
    }

    /// Sends the frames of this poll. Ready if the connection has broken.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<DriverEnd> {
        if let Poll::Ready(Err(error)) = self.flusher.poll_flush(cx) {
            self.log_end(&error);
            return Poll::Ready(DriverEnd::Broken);
        }
        Poll::Pending
    }

    fn log_end(&self, error: &dyn Error) {
        tracing::debug!(%error, peer = %self.connection.peer, "connection ended");
    }

    /// Accepts streams and drives all of them. Ready when the connection has ended.
    fn poll_streams(&mut self, cx: &mut Context<'_>, drain: &DrainWatch) -> Poll<DriverEnd> {
        while let Poll::Ready(Some(_)) = self.requests.poll_join_next(cx) {}
        while let Poll::Ready(Some(_)) = self.tunnels.poll_join_next(cx) {}
        self.alarm.begin_turn();
        // `h2` reads more frames in each call. After a turn of them the task is polled again.
        while !self.alarm.has_turn_ended() {
            match self.h2.poll_accept(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(DriverEnd::Closed),
                Poll::Ready(Some(Err(error))) => {
                    self.log_end(&error);
                    // After an error of the protocol `h2` has sent a GOAWAY.
                    let is_broken = error.is_io();
                    return Poll::Ready(if is_broken {
                        DriverEnd::Broken
                    } else {
                        DriverEnd::Closed
                    });
                }
                Poll::Ready(Some(Ok((request, respond)))) => {
                    let slot = ConnectionLimiter::acquire_stream(
                        &self.context.limiter,
                        self.connection.peer.ip(),
                    );
                    let is_tunnel = is_connect(&request);
                    let stream = AcceptedStream {
                        request,
                        respond,
                        slot,
                        connection: Arc::clone(&self.connection),
                        context: Arc::clone(&self.context),
                    };
                    // Boxed because a task is moved several times before it reaches its place on
                    // the heap.
                    if is_tunnel {
                        let tunnel = stream.serve_connect(drain.clone());
                        self.tunnels.spawn(Box::pin(tunnel));
                    } else {
                        self.requests.spawn(Box::pin(stream.serve()));
                    }
                }
            }
        }
        Poll::Pending
    }

    /// Begins to close a connection that has exceeded a limit, that is idle and needed no more, or
    /// for which the drain waits. Returns `true` if it has given `h2` a GOAWAY to send.
    fn begin_close(&mut self, cx: &mut Context<'_>, has_ended: bool) -> bool {
        self.poll_section(cx);
        if let Some(limit) = self.alarm.exceeded() {
            self.close_at_limit(limit);
            return true;
        }
        if has_ended {
            return false;
        }
        // The task of a request may run for a moment after the end of its response was sent, and that
        // of a tunnel for long, until everything has reached the origin.
        let is_idle = !self.h2.has_streams() && self.tunnels.is_empty();
        if !is_idle {
            self.idle_timer.record_progress();
        }
        let is_late = self.idle_timer.poll(cx).is_ready();
        let is_last = self.last_stage != DrainStage::Serving
            || self.context.handler.is_exhausted(&self.connection.state);
        if is_idle && (is_late || is_last) {
            self.close_idle();
            return true;
        }
        if let Some(timer) = &mut self.goaway_timer
            && timer.poll_once(cx).is_ready()
        {
            self.goaway_timer = None;
            self.h2.graceful_shutdown();
            return true;
        }
        false
    }

    /// Closes the connection because of the client's frames. Its streams end at once.
    fn close_at_limit(&mut self, limit: Http2Limit) {
        tracing::debug!(peer = %self.connection.peer, limit = limit.as_str(), "connection closed");
        self.context.handler.record_http2_limit(limit);
        self.alarm.set_closing();
        self.requests.abort_all();
        self.tunnels.abort_all();
        self.h2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        self.close_timer = Some(LazyTimer::new(CLOSE_TIME));
    }

    /// Closes an idle connection with one GOAWAY that names the last stream: the client repeats on
    /// another connection a request that it has sent meanwhile (RFC 9113 section 6.8).
    ///
    /// `graceful_shutdown` would send two, and a PING between them. A client that treats a PING
    /// after a GOAWAY as an error, as Python's `h2` does, loses a response that it has read with
    /// them.
    fn close_idle(&mut self) {
        self.h2.abrupt_shutdown(Reason::NO_ERROR);
        // The end of a response may still wait for the client to read.
        let write_stall = self.context.settings.reader.write_stall;
        self.close_timer = Some(LazyTimer::new(write_stall));
    }

    /// Ready when a connection that is being closed must be dropped.
    fn poll_close_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(timer) = &mut self.close_timer else {
            return Poll::Pending;
        };
        // Streams that were reset before they were accepted may remain.
        let is_served = self.requests.is_empty() && self.tunnels.is_empty();
        if timer.poll_once(cx).is_ready() && is_served {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Limits the time of a field section, as that of a head on HTTP/1.
    fn poll_section(&mut self, cx: &mut Context<'_>) {
        let Some(stream) = self.alarm.open_section() else {
            self.section_timer = None;
            return;
        };
        if self.section_timer.as_ref().map(|(of, _)| *of) != Some(stream) {
            let timer = LazyTimer::new(self.context.settings.reader.head);
            self.section_timer = Some((stream, timer));
        }
        if let Some((_, timer)) = &mut self.section_timer
            && timer.poll_once(cx).is_ready()
        {
            self.alarm.raise(Http2Limit::HeadTimeout);
        }
    }
}
