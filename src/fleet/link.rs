//! Links: HTTPS connections between the nodes of a fleet, at the node that dials.
//!
//! Both sides have certificates of the fleet's authority, and the certificate of the node that answers must be for the
//! name of the member that was dialled. A link carries one request at a time and is pooled; a tunnel keeps its link.

mod check;
mod connection;
mod download;
mod pool;
mod upload;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crawlgate_fleet::node::NodeName;
use http::{Request, Response};
use hyper::client::conn::http1;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::{DnsName, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::tls::maybe_tls_stream::MaybeTlsStream;

use check::LinkChecks;
use connection::{LinkConnection, LinkExchangeFailure};
use pool::LinkPool;

pub use download::{LinkBroken, LinkDownload, LinkTunnel};
pub use upload::{AwaitedUpload, LinkUpload, UploadConsent, UploadError};

/// The time that connecting to another node may take, with the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The time after which a connection is dead whose data the other machine does not acknowledge.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest number of fields in an answer: those of an origin, and those that the owner adds.
const MAX_FIELDS: usize = 512;
/// The largest head of an answer in bytes.
const MAX_HEAD: usize = 1 << 20;

/// Another node, and where it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkPeer {
    pub node: NodeName,
    pub address: SocketAddr,
}

/// Sends requests to other nodes.
#[derive(Debug)]
pub struct LinkClient {
    tls: Option<Arc<ClientConfig>>,
    builder: http1::Builder,
    pool: Arc<LinkPool>,
    checks: LinkChecks,
    clock: Clock,
    metrics: Metrics,
    failures: Mutex<BTreeMap<NodeName, LinkError>>,
}

/// The reason why another node cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("no connection to {0}: {1}")]
    Connect(SocketAddr, String),
    #[error("no TLS connection to {0}: {1}")]
    Tls(SocketAddr, String),
    #[error("no connection to {0} within {CONNECT_TIMEOUT:?}")]
    Timeout(SocketAddr),
}

/// A request without an answer.
#[derive(Debug)]
pub enum ForwardFailure {
    /// The node cannot be reached: nothing was sent.
    Unreachable(LinkError, Box<Request<LinkUpload>>),
    /// The link broke off after the request was sent, and before an answer began.
    Lost,
}

impl LinkClient {
    /// Creates a client without links. Without `tls`, links are in the clear.
    pub fn new(tls: Option<Arc<ClientConfig>>, clock: Clock, metrics: Metrics) -> Self {
        let mut builder = http1::Builder::new();
        builder
            .max_headers(MAX_FIELDS)
            .max_buf_size(MAX_HEAD)
            .max_header_size(MAX_HEAD);
        Self {
            tls,
            builder,
            pool: Arc::new(LinkPool::new(clock.clone())),
            checks: LinkChecks::default(),
            clock,
            metrics,
            failures: Mutex::default(),
        }
    }

    /// Sends a request on a pooled or a new link, and waits for the head of the answer.
    ///
    /// # Errors
    /// If the node cannot be reached, or the link breaks off.
    pub async fn send(
        &self,
        peer: &LinkPeer,
        mut request: Request<LinkUpload>,
    ) -> Result<Response<LinkDownload>, ForwardFailure> {
        while let Some(connection) = self.pool.take(peer) {
            match connection.exchange(request).await {
                Ok((response, connection)) => return Ok(self.answer(response, connection)),
                // The other node has closed it.
                Err(LinkExchangeFailure::Unsent(unsent)) => request = *unsent,
                Err(LinkExchangeFailure::Lost) => return Err(ForwardFailure::Lost),
            }
        }
        let connection = match self.connect(peer).await {
            Ok(connection) => connection,
            Err(error) => {
                self.record_failure(peer, error.clone());
                return Err(ForwardFailure::Unreachable(error, Box::new(request)));
            }
        };
        self.record_connected(peer);
        match connection.exchange(request).await {
            Ok((response, connection)) => Ok(self.answer(response, connection)),
            Err(LinkExchangeFailure::Unsent(request)) => {
                let error = LinkError::Connect(peer.address, "closed at once".to_owned());
                self.record_failure(peer, error.clone());
                Err(ForwardFailure::Unreachable(error, request))
            }
            Err(LinkExchangeFailure::Lost) => Err(ForwardFailure::Lost),
        }
    }

    fn answer(
        &self,
        response: Response<hyper::body::Incoming>,
        connection: Box<LinkConnection>,
    ) -> Response<LinkDownload> {
        response.map(|body| LinkDownload::new(body, connection, Arc::clone(&self.pool)))
    }

    /// Closes the links to a node that no request uses, since one has broken off: the others may be dead, too.
    pub fn close_idle(&self, peer: &LinkPeer) {
        self.pool.remove(peer);
    }

    /// Closes links that are no longer needed.
    pub fn sweep(&self) {
        self.pool.sweep();
        self.checks.sweep();
    }

    /// Forgets the failures of nodes that requests are no longer forwarded to.
    pub fn retain_failures(&self, is_member: impl Fn(&NodeName) -> bool) {
        let count = {
            let mut failures = self.failures.lock();
            failures.retain(|node, _| {
                let is_kept = is_member(node);
                if !is_kept {
                    self.metrics.set_link_failing(node.as_str(), false);
                }
                is_kept
            });
            failures.len()
        };
        self.metrics.set_failing_links(count);
    }

    /// Returns the nodes that could not be reached at the last attempt.
    pub fn failures(&self) -> Vec<(NodeName, LinkError)> {
        let failures = self.failures.lock();
        failures
            .iter()
            .map(|(node, error)| (node.clone(), error.clone()))
            .collect()
    }

    fn record_failure(&self, peer: &LinkPeer, error: LinkError) {
        let count = {
            let mut failures = self.failures.lock();
            if failures.insert(peer.node.clone(), error.clone()).is_none() {
                tracing::warn!(node = %peer.node, %error, "a node of the fleet cannot be reached");
            }
            failures.len()
        };
        self.metrics.set_failing_links(count);
        self.metrics.set_link_failing(peer.node.as_str(), true);
    }

    fn record_connected(&self, peer: &LinkPeer) {
        let count = {
            let mut failures = self.failures.lock();
            if failures.remove(&peer.node).is_none() {
                return;
            }
            failures.len()
        };
        tracing::info!(node = %peer.node, "a node of the fleet is reached again");
        self.metrics.set_failing_links(count);
        self.metrics.set_link_failing(peer.node.as_str(), false);
    }

    async fn connect(&self, peer: &LinkPeer) -> Result<Box<LinkConnection>, LinkError> {
        tokio::time::timeout(CONNECT_TIMEOUT, self.connect_without_limit(peer))
            .await
            .unwrap_or(Err(LinkError::Timeout(peer.address)))
    }

    async fn connect_without_limit(
        &self,
        peer: &LinkPeer,
    ) -> Result<Box<LinkConnection>, LinkError> {
        let address = peer.address;
        let failed = |error: std::io::Error| LinkError::Connect(address, error.to_string());
        let tcp = TcpStream::connect(address).await.map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        // A machine that has lost its power acknowledges nothing.
        let socket = socket2::SockRef::from(&tcp);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        socket
            .set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIMEOUT))
            .map_err(failed)?;
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(UNACKNOWLEDGED_TIMEOUT / 2)
            .with_interval(UNACKNOWLEDGED_TIMEOUT / 4);
        socket.set_tcp_keepalive(&keepalive).map_err(failed)?;
        let stream = match &self.tls {
            None => MaybeTlsStream::Plain(tcp),
            Some(config) => {
                let failed = |error: String| LinkError::Tls(address, error);
                let name = DnsName::try_from(peer.node.as_str().to_owned())
                    .map_err(|_| failed(format!("{} cannot be in a certificate", peer.node)))?;
                let connector = TlsConnector::from(Arc::clone(config));
                let connected = connector.connect(ServerName::DnsName(name), tcp).await;
                let tls = connected.map_err(|error| failed(error.to_string()))?;
                MaybeTlsStream::Tls(Box::new(tls))
            }
        };
        let gauge = self.metrics.track_link();
        LinkConnection::start(&self.builder, stream, peer.clone(), gauge)
            .await
            .map_err(|error| LinkError::Connect(address, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::*;

    /// Answers one request.
    fn answer_once(listener: &TcpListener) -> TcpStream {
        let (mut link, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            link.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        link.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .unwrap();
        link
    }

    #[tokio::test]
    async fn a_request_that_meets_a_closed_link_is_sent_on_another() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = LinkPeer {
            node: NodeName::new("b").unwrap(),
            address: listener.local_addr().unwrap(),
        };
        let (close, may_close) = mpsc::channel();
        let (closed, is_closed) = oneshot::channel();
        let node = std::thread::spawn(move || {
            let link = answer_once(&listener);
            may_close.recv().unwrap();
            drop(link);
            closed.send(()).unwrap();
            answer_once(&listener);
        });
        let links = LinkClient::new(None, Clock::system(), Metrics::new(&[], &[]).unwrap());
        let post = || {
            let mut request = Request::new(LinkUpload::Empty);
            *request.method_mut() = http::Method::POST;
            request
        };
        let ask = async || {
            let sent = tokio::time::timeout(Duration::from_secs(30), links.send(&peer, post()));
            let answer = sent.await.unwrap().unwrap().into_body();
            answer.read_all(2).await.unwrap()
        };
        assert_eq!(ask().await, "ok");
        assert!(
            links
                .pool
                .take(&peer)
                .map(|link| links.pool.put(link))
                .is_some()
        );
        close.send(()).unwrap();
        is_closed.await.unwrap();
        // Lets the runtime learn of the end of the connection.
        tokio::task::yield_now().await;
        assert_eq!(ask().await, "ok");
        node.join().unwrap();
    }
}
