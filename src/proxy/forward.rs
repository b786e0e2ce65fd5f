//! Forwards requests to the node of the fleet that owns their host, and waits while no owner is known or reached.
//!
//! The owner evaluates, holds, sends and records the request. A request is forwarded once: a node that does not own
//! the host answers 421, and the entry looks for the owner again.

mod upload;

use std::time::{Duration, Instant};

use crawlgate_fleet::view::Owner;
use http::header::{EXPECT, HOST, HeaderName, PROXY_AUTHENTICATE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::ext::on_informational;

use crate::clock::{Clock, TimeSpan};
use crate::fleet::FleetNode;
use crate::fleet::forward_header::{
    CRAWL_FLEET, CRAWL_FLEET_OWNER, ForwardHeader, NamedOwner, is_close_connection,
};
use crate::fleet::link::{ForwardFailure, LinkDownload, LinkPeer};
use crate::fleet::owners::HostOwnership;
use crate::metrics::Metrics;
use crate::metrics::labels::ForwardResult;
use crate::metrics::record::{RequestRecord, UrlRetention};
use crate::metrics::trace::TracePart;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::refusal::Refusal;

use super::header_filter;
use super::http::BoxedRefusal;
use super::upstream::UpstreamError;

pub(super) use upload::ForwardedUpload;

/// The first pause before another attempt. It doubles with each one; a new view of the owners ends it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A request that another node may have to serve.
pub(super) struct ForwardCall<'a> {
    pub(super) host: &'a str,
    pub(super) method: &'a Method,
    /// The target: a whole URL, or the host and port of a CONNECT.
    pub(super) uri: Uri,
    /// The fields as the crawler sent them.
    pub(super) headers: &'a HeaderMap,
    /// The host and port, for a request without a `Host` field.
    pub(super) authority: &'a str,
    /// The header for the owner; `deadline` is set if the request has waited, and `is_traced` when it is sent.
    pub(super) header: ForwardHeader<'a>,
    /// The body, unless it is empty.
    pub(super) upload: Option<ForwardedUpload>,
    /// The time for which it may wait for an owner.
    pub(super) max_hold: Duration,
    /// The time at which it began to wait.
    pub(super) began: Instant,
    /// The record of the request, which ends unseen while another node has the request.
    pub(super) record: &'a mut RequestRecord,
}

/// The node that serves a request.
pub(super) enum ForwardOutcome {
    /// This node owns the host.
    Here(HostOwnership),
    /// Another node has answered.
    Answered(Response<LinkDownload>),
    /// The owner closes the connection to the crawler without an answer.
    CloseConnection,
}

/// The outcome of one attempt.
enum Attempt {
    Answered(Response<LinkDownload>),
    /// Another owner must serve the request: nothing of a body was sent. A safe request may have reached its origin, if a
    /// lease has ended.
    Again,
    /// The node may have received the request, which is neither idempotent nor without a body.
    Failed(BoxedRefusal),
}

/// The repetition of a request after its link broke off: at most one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LostRepeat {
    Allowed,
    Used,
}

impl ForwardCall<'_> {
    /// Forwards the request, or returns the ownership if this node owns the host. Waits as long as neither is possible.
    ///
    /// # Errors
    /// `owner_unavailable`, or the refusal of a body that broke off.
    pub(super) async fn run(
        mut self,
        fleet: &FleetNode,
        clock: &Clock,
        metrics: &Metrics,
    ) -> Result<ForwardOutcome, BoxedRefusal> {
        self.header.is_traced = self.record.exported_span().is_some();
        let mut changes = fleet.owners.subscribe();
        let mut pause = FIRST_PAUSE;
        let mut repetition = LostRepeat::Allowed;
        loop {
            changes.borrow_and_update();
            let peer = match fleet.owners.own(self.host) {
                Ok(ownership) => return Ok(ForwardOutcome::Here(ownership)),
                Err(Owner::Member { node, address, .. }) if node != fleet.name => {
                    Some(LinkPeer { node, address })
                }
                Err(Owner::Member { .. } | Owner::Unknown | Owner::Here { .. }) => None,
            };
            if let Some(peer) = peer {
                let sent_at = clock.now();
                match self.attempt(fleet, &peer, metrics, &mut repetition).await {
                    Attempt::Answered(response) => {
                        let time = TimeSpan::between(sent_at, clock.now());
                        metrics.record_forward(ForwardResult::Answered);
                        metrics.record_forward_time(time.duration);
                        self.record.add_trace_part(TracePart::Forward, time);
                        return Ok(finish_answer(response));
                    }
                    Attempt::Again => {}
                    Attempt::Failed(refusal) => {
                        metrics.record_forward(ForwardResult::Refused);
                        return Err(refusal);
                    }
                }
            }
            let waited = clock.now().saturating_duration_since(self.began);
            let remaining = self.max_hold.saturating_sub(waited);
            if remaining.is_zero() {
                metrics.record_forward(ForwardResult::Refused);
                return Err(unavailable(
                    "no node of the fleet owns the host, or its owner cannot be reached",
                    fleet.retry_after(waited),
                ));
            }
            let _ = tokio::time::timeout(pause.min(remaining), changes.changed()).await;
            pause = MAX_PAUSE.min(2 * pause);
            let waited = clock.now().saturating_duration_since(self.began);
            self.header.deadline = Some(self.max_hold.saturating_sub(waited));
        }
    }

    async fn attempt(
        &mut self,
        fleet: &FleetNode,
        peer: &LinkPeer,
        metrics: &Metrics,
        repetition: &mut LostRepeat,
    ) -> Attempt {
        let Some(request) = self.to_request() else {
            return Attempt::Failed(Box::new(
                Refusal::new(Reason::BadRequest, Stage::Target)
                    .with_detail("the request cannot be forwarded to the owner of its host"),
            ));
        };
        // If the crawler leaves meanwhile, the owner records that.
        self.record.set_forwarded();
        let answer = tokio::select! {
            biased;
            answer = fleet.links.send(peer, request) => answer,
            () = wait_lost(fleet, peer) => Err(ForwardFailure::Lost),
        };
        self.record.set_returned();
        match answer {
            Ok(response) if NamedOwner::read(response.headers()).is_some() => {
                metrics.record_forward(ForwardResult::Moved);
                response.into_body().release();
                fleet.owners.request_refresh();
                if self.upload.as_ref().is_some_and(ForwardedUpload::has_begun) {
                    return Attempt::Failed(unavailable(
                        "the host got another owner while the body of the request was read",
                        fleet.retry_after(Duration::ZERO),
                    ));
                }
                Attempt::Again
            }
            Ok(response) => {
                self.record.set_forwarded();
                Attempt::Answered(response)
            }
            Err(ForwardFailure::Unreachable(..)) => {
                metrics.record_forward(ForwardResult::Unreachable);
                fleet.owners.request_refresh();
                Attempt::Again
            }
            Err(ForwardFailure::Lost) => {
                // Another attempt needs a new link.
                fleet.links.close_idle(peer);
                if let Some(error) = self.upload.as_ref().and_then(ForwardedUpload::failure) {
                    return Attempt::Failed(Box::new(UpstreamError::Upload(error).into()));
                }
                metrics.record_forward(ForwardResult::Lost);
                fleet.owners.request_refresh();
                let is_repeatable = self.upload.is_none() && self.method.is_idempotent();
                if is_repeatable && *repetition == LostRepeat::Allowed {
                    *repetition = LostRepeat::Used;
                    return Attempt::Again;
                }
                Attempt::Failed(Box::new(Refusal {
                    status: Some(502),
                    ..*unavailable(
                        "the link to the owner of the host broke off before an answer began; the request may have \
                         reached the origin",
                        fleet.retry_after(Duration::ZERO),
                    )
                }))
            }
        }
    }

    /// Returns the fields for a link.
    fn link_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        header_filter::remove_nominated_fields(&mut headers);
        header_filter::remove_fields(&mut headers, |name| {
            belongs_to_link(name) || name == EXPECT.as_str()
        });
        if !headers.contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(self.authority)
        {
            headers.insert(HOST, host);
        }
        // The span of the owner becomes a child of this node's, if this one is exported, and of the crawler's otherwise.
        if let Some(span) = self.record.exported_span()
            && let Ok(value) = HeaderValue::try_from(span.to_string())
        {
            headers.insert(TRACEPARENT, value);
        }
        headers
    }

    fn to_request(&self) -> Option<Request<crate::fleet::link::LinkUpload>> {
        let (body, consent) = match &self.upload {
            None => (crate::fleet::link::LinkUpload::Empty, None),
            Some(upload) => {
                let (body, consent) = upload.start();
                (body, Some(consent))
            }
        };
        let length = http_body::Body::size_hint(&body).exact();
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        *headers = self.link_headers();
        headers.insert(CRAWL_FLEET, self.header.to_value()?);
        if let Some(consent) = consent {
            // The body flows only when the owner wants it: until then another node may turn out to be the owner.
            headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
            if length.is_none() {
                headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
            on_informational(&mut request, move |response| {
                if response.status() == StatusCode::CONTINUE {
                    consent.give();
                }
            });
        }
        Some(request)
    }
}

/// Ready when a node will not answer, or cannot be reached. One that falls silent meanwhile is noticed after a fifth of a lease:
/// most requests are answered before, and need not watch it.
async fn wait_lost(fleet: &FleetNode, peer: &LinkPeer) {
    if fleet.owners.view().is_silent(&peer.node) {
        return;
    }
    let interval = fleet.lease / 5;
    tokio::time::sleep(interval).await;
    // Boxed, since few requests wait so long, and it would make the future of each larger.
    Box::pin(async {
        tokio::select! {
            () = wait_silent(fleet, peer) => {}
            () = fleet.links.wait_unreachable(peer, interval) => {}
        }
    })
    .await;
}

/// Ready when a node has not renewed its lease for as long as one lasts: it hangs, or is cut off, and will not answer. A
/// node that has left still answers what it has received.
async fn wait_silent(fleet: &FleetNode, peer: &LinkPeer) {
    let mut changes = fleet.owners.subscribe();
    while !fleet.owners.view().is_silent(&peer.node) {
        if changes.changed().await.is_err() {
            // This node ends.
            return std::future::pending().await;
        }
    }
}

/// Returns `true` for fields that belong to one connection, of which a link is another. The owner's challenge is for the crawler;
/// the crawler's credentials are for the entry, which has identified it.
fn belongs_to_link(name: &str) -> bool {
    let is_challenge = name == PROXY_AUTHENTICATE.as_str();
    header_filter::is_hop_by_hop(name) && !is_challenge || name == CRAWL_FLEET.as_str()
}

/// Removes the fields that belong to the link.
fn finish_answer(mut response: Response<LinkDownload>) -> ForwardOutcome {
    if is_close_connection(response.headers()) {
        response.into_body().release();
        return ForwardOutcome::CloseConnection;
    }
    header_filter::remove_fields(response.headers_mut(), belongs_to_link);
    // OnUpgrade of a tunnel, which is taken from the link itself.
    response
        .extensions_mut()
        .remove::<hyper::upgrade::OnUpgrade>();
    ForwardOutcome::Answered(response)
}

/// Returns the refusal of a request whose host has no owner that can be reached. The policy may keep nothing of its URL.
pub(super) fn unavailable(detail: &'static str, retry_after: Duration) -> BoxedRefusal {
    Box::new(Refusal {
        url_retention: UrlRetention::Host,
        ..Refusal::new(Reason::OwnerUnavailable, Stage::Pace)
            .with_detail(detail)
            .with_retry_after(Some(retry_after))
    })
}

/// Returns the answer to an entry whose request is for the host of another node.
pub(super) fn not_owner_response(owner: &Owner) -> Response<bytes::Bytes> {
    let named = match owner {
        Owner::Member { node, epoch, .. } => Some(NamedOwner {
            node: node.clone(),
            epoch: *epoch,
        }),
        Owner::Here { .. } | Owner::Unknown => None,
    };
    let mut response = Response::new(bytes::Bytes::new());
    *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
    response
        .headers_mut()
        .insert(CRAWL_FLEET_OWNER, NamedOwner::to_value(named.as_ref()));
    response
}
