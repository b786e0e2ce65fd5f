//! CONNECT: from the request to an open tunnel, or to a refusal that the client can see.
//!
//! A tunnel to a TLS port is evaluated by its host and dialled before it is granted. A tunnel to
//! another port is granted at once: if HTTP follows, each request inside is evaluated like any
//! other and dialled afterwards. Most clients show only the reason phrase of a refused CONNECT, so
//! the phrase contains the reason.

mod after_connect;
mod forwarded;
mod interception;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, request};
use hyper::ext::ReasonPhrase;
use parking_lot::Mutex;

use crate::clock::TimeSpan;
use crate::fleet::link::LinkTunnel;
use crate::fleet::owners::{HostOwnership, OwnershipWatch};
use crate::metrics::GaugeGuard;
use crate::metrics::labels::{ResponseSource, TunnelVerdictLabel};
use crate::metrics::record::RequestRecord;
use crate::metrics::trace::TracePart;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::crawlers::{ConnectedClient, CrawlerIdentity};
use crate::pipeline::destination::{AddressList, DeniedPort};
use crate::pipeline::permit::Permit;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::pipeline::stage::identify::identify;
use crate::pipeline::tunnel::{
    TunnelEvaluation, TunnelFacts, TunnelResult, TunnelServices, admit_tunnel,
};
use crate::pipeline::tunnel_tls::TlsHandling;
use crate::tls::issuer::is_certifiable;
use crate::tls::maybe_tls_stream::MaybeTlsStream;
use crate::trace_context::SamplingFlag;
use crate::urls::target::HostTarget;

use super::body::{ClientBody, RequestUpload};
use super::destination::VettedAddresses;
use super::dial::dial;
use super::head::ServiceGuard;
use super::http::{
    BoxedRefusal, CaughtPanic, ProxyService, catch_panic, internal_error, record_policy, wait_times,
};
use super::intercept::{self, RefusalDelivery};
use super::local_reply::ReplyPreferences;
use super::parents::{ParentCall, ParentUse};
use super::request_target::{self, EnclosingTunnel};
use super::service_response::{
    CloseConnection, ServiceResult, established_response, local_response, unrecorded_response,
};
use super::timing;
use super::tunnel::TunnelSlot;
use super::upstream::UpstreamError;

use forwarded::ConnectRoute;
use interception::InterceptedTunnel;

/// The detail of a refusal to intercept a host.
const UNCERTIFIABLE: &str =
    "the host is not a DNS name, so the proxy cannot issue a certificate for it";
/// The maximum length of a reason phrase.
const MAX_PHRASE: usize = 80;

/// State that lives as long as a client connection: its gauge and the tunnel of a CONNECT on it.
#[derive(Debug)]
pub struct ConnectionContext {
    /// The client, as far as it is known.
    pub caller: ConnectedClient,
    /// `None` for a tunnel inside an HTTP/2 connection, which is counted.
    _gauge: Option<GaugeGuard>,
    granted_tunnel: Mutex<Option<Box<GrantedTunnel>>>,
    enclosing_tunnel: Option<(EnclosingTunnel, Option<GaugeGuard>)>,
    entry: Option<RequestEntry>,
}

/// The node of the fleet that has forwarded a request to this one.
#[derive(Clone, Debug)]
pub struct RequestEntry {
    /// Its name.
    pub node: Arc<str>,
    /// The time for which the request may still be held, if it has waited there.
    pub deadline: Option<Duration>,
    /// `true` if it exports its span of the request.
    pub is_traced: bool,
}

impl RequestEntry {
    /// Records where the request comes from. The record knows the client's trace.
    pub fn record_in(&self, record: &mut RequestRecord) {
        record.set_entry(Arc::clone(&self.node));
        if self.is_traced {
            record.set_sampled(SamplingFlag::Set);
        }
    }
}

/// A CONNECT that was answered with 200.
#[derive(Debug)]
struct GrantedTunnel {
    record: RequestRecord,
    host: HostTarget,
    mode: TunnelMode,
}

/// The handling of the bytes after the 200.
#[derive(Debug)]
enum TunnelMode {
    /// TLS to this origin; the proxy inspects only the first bytes.
    Opaque(Box<OpaqueTunnel>, TunnelSlot),
    /// Cleartext HTTP of this crawler, if anything. It takes no slot of its host, since each request
    /// inside is evaluated and paced like any other.
    Plain(CrawlerIdentity, GaugeGuard),
    /// TLS that the proxy terminates, or cleartext HTTP.
    Intercepted(Box<InterceptedTunnel>),
    /// A tunnel through the node of the fleet that owns the host.
    Forwarded(Box<LinkTunnel>),
}

/// The answer to a CONNECT that is not refused here.
#[derive(Debug)]
enum ConnectAnswer {
    Granted(HostTarget, TunnelMode),
    /// Another node has answered, or must be asked instead: this node records nothing.
    Unrecorded(Response<Bytes>),
    /// The owner closes the connection without a response.
    CloseConnection,
}

#[derive(Debug)]
struct OpaqueTunnel {
    origin: MaybeTlsStream,
    /// The address of the origin, or of a parent proxy.
    address: SocketAddr,
    via: TunnelRoute,
    evaluation: Box<TunnelEvaluation>,
    /// The ownership of the host, if this is a node of a fleet.
    ownership: Option<Box<OwnershipWatch>>,
}

/// The way of an opaque tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TunnelRoute {
    Direct,
    /// A parent proxy has resolved the name.
    Parent,
}

impl ConnectionContext {
    /// Creates the context of a new connection.
    pub fn new(caller: ConnectedClient, gauge: GaugeGuard) -> Self {
        Self {
            caller,
            _gauge: Some(gauge),
            granted_tunnel: Mutex::new(None),
            enclosing_tunnel: None,
            entry: None,
        }
    }

    /// Creates the context of one request that another node of the fleet has forwarded.
    pub fn for_forwarded(caller: ConnectedClient, entry: RequestEntry) -> Self {
        Self {
            caller,
            _gauge: None,
            granted_tunnel: Mutex::new(None),
            enclosing_tunnel: None,
            entry: Some(entry),
        }
    }

    /// Creates the context of a CONNECT on a stream of an HTTP/2 connection.
    pub fn for_stream(&self) -> Self {
        Self {
            caller: self.caller.for_stream(),
            _gauge: None,
            granted_tunnel: Mutex::new(None),
            enclosing_tunnel: self
                .enclosing_tunnel
                .as_ref()
                .map(|(inside, _)| (inside.without_refusal(), None)),
            entry: self.entry.clone(),
        }
    }

    /// Returns the node that has forwarded the request, if it was forwarded.
    pub fn entry_node(&self) -> Option<&RequestEntry> {
        self.entry.as_ref()
    }

    /// Returns `true` if a CONNECT on this connection was granted.
    pub(super) fn has_granted_tunnel(&self) -> bool {
        self.granted_tunnel.lock().is_some()
    }

    /// Returns the tunnel that the connection is, if the proxy serves the requests inside.
    pub fn enclosing_tunnel(&self) -> Option<&EnclosingTunnel> {
        self.enclosing_tunnel.as_ref().map(|(inside, _)| inside)
    }

    fn set_granted(&self, granted: GrantedTunnel) {
        *self.granted_tunnel.lock() = Some(Box::new(granted));
    }

    fn take_granted(&mut self) -> Option<Box<GrantedTunnel>> {
        self.granted_tunnel.get_mut().take()
    }
}

impl ProxyService {
    /// Answers a CONNECT. [`Self::continue_after_connect`] handles the data after a granted one.
    ///
    /// # Errors
    /// Returns [`CloseConnection`] if this crawler is refused by closing its connection.
    pub(super) async fn handle_connect(
        &self,
        request: Request<ClientBody>,
        service_guard: ServiceGuard,
        context: &ConnectionContext,
    ) -> ServiceResult {
        self.recorder.log().wait_if_full().await;
        let mut exchange = ConnectExchange::new(self, request, context);
        let result = catch_panic(pin!(exchange.run())).await;
        exchange.into_response(result, service_guard)
    }

    fn count_granted(&self, granted: &TunnelMode) {
        match granted {
            TunnelMode::Opaque(..) | TunnelMode::Plain(..) => self
                .recorder
                .metrics()
                .record_tunnel_verdict(TunnelVerdictLabel::Allow),
            TunnelMode::Intercepted(tunnel) => match &tunnel.refusal {
                None => self
                    .recorder
                    .metrics()
                    .record_tunnel_verdict(TunnelVerdictLabel::Intercept),
                Some(refusal) => self.count_refused(refusal.reason),
            },
            // Counted by the owner.
            TunnelMode::Forwarded(_) => {}
        }
    }

    fn count_refused(&self, reason: Reason) {
        let undecided = reason == Reason::Undecided;
        let verdict = if undecided {
            TunnelVerdictLabel::Undecided
        } else {
            TunnelVerdictLabel::Reject
        };
        self.recorder.metrics().record_tunnel_verdict(verdict);
    }

    fn acquire_slot(&self, host: &HostTarget) -> Result<TunnelSlot, Refusal> {
        let overloaded = || {
            Refusal::new(Reason::Overloaded, Stage::Connect).with_detail(
                "the number of open tunnels to this host has reached limits.tunnels_per_host",
            )
        };
        self.tunnels.acquire(host.host()).ok_or_else(overloaded)
    }
}

/// A CONNECT on its way to its 200.
struct ConnectExchange<'a> {
    service: &'a ProxyService,
    context: &'a ConnectionContext,
    parts: request::Parts,
    preferences: ReplyPreferences,
    /// The snapshot that the CONNECT was evaluated under last.
    snapshot: Arc<PolicySnapshot>,
    record: RequestRecord,
}

/// The result of an opaque tunnel that was not refused at its CONNECT.
enum OpaqueResult {
    Answered(ConnectAnswer),
    /// The refusal is delivered inside the tunnel, if it can be intercepted.
    Refused(BoxedRefusal),
}

impl<'a> ConnectExchange<'a> {
    fn new(
        service: &'a ProxyService,
        request: Request<ClientBody>,
        context: &'a ConnectionContext,
    ) -> Self {
        let (parts, _) = request.into_parts();
        let recorder = &service.recorder;
        let mut record = recorder.begin(recorder.clock().now(), &parts.method);
        record.set_client(context.caller.address());
        let preferences = ReplyPreferences::from_headers(&parts.headers);
        preferences.record_parent_span(&mut record);
        if let Some(entry) = context.entry_node() {
            entry.record_in(&mut record);
        }
        Self {
            service,
            context,
            parts,
            preferences,
            snapshot: service.active_policy.load(),
            record,
        }
    }

    /// Evaluates the CONNECT up to its 200. Each step may refuse it.
    async fn run(&mut self) -> Result<ConnectAnswer, BoxedRefusal> {
        let service = self.service;
        let identity = self.identify().await?;
        let host = self.parse_host()?;
        let facts = TunnelFacts {
            host: host.clone(),
            crawler: identity.crawler.clone(),
        };
        let handling =
            intercept::tls_action(service.interceptor.as_deref(), &facts, &self.snapshot);
        let is_tls = includes_port(&service.tunnels.settings.tls_ports, host.port());
        let refusal = match handling {
            TlsHandling::Intercept => None,
            TlsHandling::Reject(_) | TlsHandling::Tunnel if !is_tls => {
                self.record.set_allowed(None);
                let gauge = service.recorder.metrics().track_tunnel();
                let mode = TunnelMode::Plain(identity, gauge);
                return Ok(ConnectAnswer::Granted(host, mode));
            }
            TlsHandling::Reject(refusal) => {
                let began = service.recorder.clock().now();
                match self.find_owner(&facts, began).await? {
                    ConnectRoute::Here(_) => Some(refusal),
                    ConnectRoute::Answered(answer) => return Ok(answer),
                }
            }
            TlsHandling::Tunnel => match self.open_opaque_at_owner(facts).await? {
                OpaqueResult::Answered(answer) => return Ok(answer),
                OpaqueResult::Refused(refusal) => Some(refusal),
            },
        };
        let mode = self.prepare_interception(&host, identity, refusal)?;
        Ok(ConnectAnswer::Granted(host, mode))
    }

    async fn identify(&mut self) -> Result<CrawlerIdentity, BoxedRefusal> {
        let crawlers = &self.service.crawlers;
        let identity = identify(crawlers, &self.context.caller, &self.parts.headers).await?;
        self.record.set_crawler(identity.index);
        self.preferences
            .set_crawler(&identity.crawler, &mut self.record);
        Ok(identity)
    }

    /// Returns the host, if tunnels to its port are allowed.
    fn parse_host(&mut self) -> Result<HostTarget, BoxedRefusal> {
        self.record.enter_stage(Stage::Target);
        let tunnel = self.context.enclosing_tunnel();
        let host = request_target::parse_connect(&self.parts, &self.service.via, tunnel)?;
        self.record.set_host(&host);
        self.record.enter_stage(Stage::Connect);
        let allowed = &self.service.tunnels.settings.connect_ports;
        if includes_port(allowed, host.port()) {
            return Ok(host);
        }
        let denied = DeniedPort {
            port: host.port(),
            allowed: allowed.clone(),
            setting: "egress.connect_ports",
        };
        let refusal = Refusal::new(Reason::PortDenied, Stage::Connect);
        Err(refusal.with_detail(denied.to_detail()).into())
    }

    /// Opens an opaque tunnel here, or has it opened by the node of the fleet that owns the host.
    async fn open_opaque_at_owner(
        &mut self,
        facts: TunnelFacts,
    ) -> Result<OpaqueResult, BoxedRefusal> {
        let began = self.service.recorder.clock().now();
        loop {
            let ownership = match self.find_owner(&facts, began).await? {
                ConnectRoute::Here(ownership) => ownership,
                ConnectRoute::Answered(answer) => return Ok(OpaqueResult::Answered(answer)),
            };
            let opened = self.open_opaque(facts.clone(), ownership.as_ref());
            match Box::pin(opened).await {
                Ok(mode) => {
                    let answer = ConnectAnswer::Granted(facts.host, mode);
                    return Ok(OpaqueResult::Answered(answer));
                }
                // The owner of the host changed before the tunnel was open.
                Err(_) if ownership.is_some_and(|own| !own.is_valid()) => {}
                Err(refusal) => return Ok(OpaqueResult::Refused(refusal)),
            }
        }
    }

    /// Returns the ownership of the host, or the answer of the node that owns it. Without a fleet, there is neither.
    async fn find_owner(
        &mut self,
        facts: &TunnelFacts,
        began: Instant,
    ) -> Result<ConnectRoute, BoxedRefusal> {
        match &self.service.fleet {
            Some(fleet) => Box::pin(self.route_in_fleet(fleet, facts, began)).await,
            None => Ok(ConnectRoute::Here(None)),
        }
    }

    /// Prepares the interception of a tunnel. A refused one is intercepted only to deliver the
    /// refusal.
    fn prepare_interception(
        &self,
        host: &HostTarget,
        identity: CrawlerIdentity,
        refusal: Option<BoxedRefusal>,
    ) -> Result<TunnelMode, BoxedRefusal> {
        let Some(interceptor) = &self.service.interceptor else {
            return Err(refusal.unwrap_or_else(|| intercept::interception_unavailable().into()));
        };
        let is_certifiable = is_certifiable(host.host());
        match &refusal {
            Some(refusal)
                if !is_certifiable
                    || interceptor.refusal_delivery() == RefusalDelivery::AtConnect =>
            {
                return Err(refusal.clone());
            }
            None if !is_certifiable => {
                return Err(Refusal::new(Reason::BadRequest, Stage::Connect)
                    .with_detail(UNCERTIFIABLE)
                    .into());
            }
            Some(_) | None => {}
        }
        Ok(TunnelMode::Intercepted(Box::new(InterceptedTunnel {
            identity,
            refusal,
            interceptor: Arc::clone(interceptor),
            policy: Arc::clone(&self.snapshot),
        })))
    }

    /// Evaluates an opaque tunnel by its host and dials the origin.
    async fn open_opaque(
        &mut self,
        facts: TunnelFacts,
        ownership: Option<&HostOwnership>,
    ) -> Result<TunnelMode, BoxedRefusal> {
        // Before the admission queue: a tunnel without a slot must not use up a turn of its host.
        let service = self.service;
        let slot = service.acquire_slot(&facts.host)?;
        let services = TunnelServices {
            destinations: &*service.address_vetter,
            active_policy: &service.active_policy,
            admission: &service.admission_queue,
            max_wait: service.tunnels.settings.dial.total,
        };
        let TunnelResult {
            outcome,
            evaluation,
            wait_time,
        } = {
            let admitted = admit_tunnel(facts, Arc::clone(&self.snapshot), &services);
            tokio::select! {
                biased;
                result = admitted => result,
                () = wait_ownership_ended(ownership) => {
                    return Err(Box::new(UpstreamError::OwnerLost(RequestUpload::Empty).into()));
                }
            }
        };
        record_policy(&mut self.record, &evaluation);
        timing::record_decision(&mut self.record, wait_times(&evaluation, wait_time));
        if !Arc::ptr_eq(&self.snapshot, evaluation.snapshot()) {
            self.snapshot = Arc::clone(evaluation.snapshot());
        }
        let permit = outcome?;
        let url_retention = evaluation.url_retention_after_sending();
        let tunnel = self.dial(permit, evaluation, ownership).await;
        let tunnel = tunnel.map_err(|refusal| {
            Box::new(Refusal {
                url_retention,
                ..refusal
            })
        })?;
        Ok(TunnelMode::Opaque(Box::new(tunnel), slot))
    }

    /// Connects to an address of the permit.
    async fn dial(
        &mut self,
        permit: Box<Permit<HostTarget, VettedAddresses>>,
        evaluation: Box<TunnelEvaluation>,
        ownership: Option<&HostOwnership>,
    ) -> Result<OpaqueTunnel, Refusal> {
        let is_lost = || ownership.is_some_and(|own| !own.is_valid());
        if is_lost() {
            return Err(UpstreamError::OwnerLost(RequestUpload::Empty).into());
        }
        let timeouts = permit.options().timeouts;
        let (host, vetted, mut slot) = permit.redeem();
        let service = self.service;
        let record = &mut self.record;
        record.enter_stage(Stage::Upstream);
        if let Some(address) = vetted.first() {
            record.set_address(address);
        }
        let began = record.clock().now();
        let limits = service.tunnels.settings.dial.with_overrides(timeouts);
        let (dialled, via) = match vetted.parent() {
            Some(parent) => {
                if let Some(name) = service.upstream.parents().name(parent) {
                    record.set_parent(name.shared());
                }
                let opened = service.upstream.parents().open(ParentCall {
                    parent,
                    host: host.host(),
                    port: host.port(),
                    usage: ParentUse::Tunnel,
                    failed: None,
                    local: vetted.local(),
                    limits,
                });
                let opened = opened
                    .await
                    .map(|opened| (opened.transport, opened.address));
                let opened = opened.map_err(|error| UpstreamError::Parent(Box::new(error)));
                (opened, TunnelRoute::Parent)
            }
            None => {
                let dialled = dial(&vetted, limits).await;
                let negative_cache = service.address_vetter.negative_cache();
                negative_cache.record(vetted.addresses(), &dialled);
                let dialled = dialled.map(|(tcp, address)| (MaybeTlsStream::Plain(tcp), address));
                (dialled.map_err(UpstreamError::Dial), TunnelRoute::Direct)
            }
        };
        let (origin, address) = dialled.inspect_err(|error| {
            record.set_upstream_error(error.as_str());
            if error.is_origin_fault() {
                slot.record_failure();
            }
        })?;
        if is_lost() {
            return Err(UpstreamError::OwnerLost(RequestUpload::Empty).into());
        }
        // An open tunnel does not occupy one of the host's request slots.
        slot.record_sent();
        slot.record_tunnel_opened();
        drop(slot);
        let connect = TimeSpan::between(began, record.clock().now());
        record.set_connect_time(connect.duration);
        record.add_trace_part(TracePart::Connect, connect);
        record.set_address(address.ip());
        Ok(OpaqueTunnel {
            origin,
            address,
            via,
            evaluation,
            ownership: ownership.map(|own| Box::new(OwnershipWatch::new(own.clone()))),
        })
    }

    /// Answers the client, and keeps a granted tunnel for the connection.
    fn into_response(
        self,
        result: Result<Result<ConnectAnswer, BoxedRefusal>, CaughtPanic>,
        service_guard: ServiceGuard,
    ) -> ServiceResult {
        let Self {
            service,
            context,
            parts,
            preferences,
            snapshot,
            mut record,
        } = self;
        let result = result.unwrap_or_else(|CaughtPanic| Err(Box::new(internal_error(&record))));
        match result {
            Ok(ConnectAnswer::Granted(host, mode)) => {
                service.count_granted(&mode);
                record.set_sent_status(200, ResponseSource::Proxy);
                record.mark_tunnel_open();
                context.set_granted(GrantedTunnel { record, host, mode });
                Ok(established_response(service_guard))
            }
            Ok(ConnectAnswer::Unrecorded(response)) => {
                record.discard();
                Ok(unrecorded_response(
                    response,
                    &parts.method,
                    Some(service_guard),
                ))
            }
            Ok(ConnectAnswer::CloseConnection) => {
                record.discard();
                Err(CloseConnection)
            }
            Err(refusal) => {
                service.count_refused(refusal.reason);
                let response =
                    service.refusal_response(&refusal, &preferences, &snapshot, &mut record);
                let response = with_phrase(response.ok_or(CloseConnection)?, &refusal, &record);
                Ok(local_response(
                    response,
                    &parts.method,
                    Box::new(record),
                    service_guard,
                ))
            }
        }
    }
}

/// Waits until the ownership of a host has ended; forever on a node without a fleet.
async fn wait_ownership_ended(ownership: Option<&HostOwnership>) {
    match ownership {
        Some(ownership) => ownership.wait_ended().await,
        None => std::future::pending().await,
    }
}

fn includes_port(ports: &[RangeInclusive<u16>], port: u16) -> bool {
    ports.iter().any(|range| range.contains(&port))
}

/// Puts the cause of a refusal where clients show it: `Policy-451 rule=no-cgi id=9f3c01ab-1f`.
fn with_phrase(
    mut response: Response<Bytes>,
    refusal: &Refusal,
    record: &RequestRecord,
) -> Response<Bytes> {
    let phrase = reason_phrase(response.status().as_u16(), refusal, &record.id().to_text());
    if let Ok(phrase) = ReasonPhrase::try_from(phrase.into_bytes()) {
        response.extensions_mut().insert(phrase);
    }
    response
}

/// Formats the reason phrase. A rule's name may be truncated, the ID never.
fn reason_phrase(status: u16, refusal: &Refusal, id: &str) -> String {
    let cause = match &refusal.rule {
        Some(rule) => format!("rule={}", rule.as_str()),
        None => format!("reason={}", refusal.reason.as_str()),
    };
    let prefix = format!("Policy-{status} ");
    let suffix = format!(" id={id}");
    let room = MAX_PHRASE.saturating_sub(prefix.len() + suffix.len());
    let cause: String = cause.chars().take(room).collect();
    format!("{prefix}{cause}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rule_id::RuleId;

    #[test]
    fn the_phrase_names_the_cause_in_eighty_characters() {
        let by_rule = |id: &str| Refusal {
            rule: RuleId::new(id),
            ..Refusal::new(Reason::Rule, Stage::Request)
        };
        let id = "9f3c01ab-ffffffffffffffff";
        assert_eq!(
            reason_phrase(451, &by_rule("no-cgi"), "a-1"),
            "Policy-451 rule=no-cgi id=a-1"
        );
        let denied = Refusal::new(Reason::PortDenied, Stage::Connect);
        assert_eq!(
            reason_phrase(403, &denied, "a-1"),
            "Policy-403 reason=port_denied id=a-1"
        );
        let long = reason_phrase(451, &by_rule(&"x".repeat(64)), id);
        assert_eq!(long.len(), MAX_PHRASE);
        assert!(
            long.is_ascii() && long.ends_with(&format!("x id={id}")),
            "{long}"
        );
    }
}
