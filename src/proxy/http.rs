//! Serves one HTTP request: from hyper's request to the response, and the record of both.

mod caught_panic;
mod forward;

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT};
use http::{HeaderMap, HeaderValue, Request, Response, Uri, request, response};

use crate::fleet::FleetNode;
use crate::fleet::owners::OwnershipWatch;
use crate::identity::RequestSigners;
use crate::metrics::labels::ResponseSource;
use crate::metrics::record::{Recorder, RequestRecord};
use crate::model::crawler::{Crawler, CrawlerHint};
use crate::model::profile::Profile;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::crawlers::CrawlerRegistry;
use crate::pipeline::destination::AddressList;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::facts::{EvaluationFacts, RequestFacts};
use crate::pipeline::permit::{BodyTimeouts, Permit};
use crate::pipeline::refusal::Refusal;
use crate::pipeline::request::{
    IncomingBody, IncomingRequest, Ledger, NotForwarded, RequestResult, RequestServices,
    admit_request,
};
use crate::pipeline::response::{ResponseAnnotations, evaluate_response};
use crate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crate::pipeline::stage::identify::identify;
use crate::pipeline::stage::outcome::{self, OutcomeRecorder};
use crate::pipeline::stage::{recrawl, robots};
use crate::urls::target::UrlTarget;

use super::body::{
    BodyError, BodyTimeLimits, ClientBody, RequestUpload, ResponseBody, ResponseDownload,
    UploadWatch,
};
use super::connect::ConnectionContext;
use super::destination::{AddressVetter, VettedAddresses};
use super::document::{self, OutgoingBody};
use super::head::ServiceGuard;
use super::header_filter::{self, ResponseFraming, UnknownTransferCoding, ViaName, WARCPROX_META};
use super::intercept::Interceptor;
use super::local_reply::{self, ProfileSelection, RefusalContacts, ReplyPreferences};
use super::request_target::{self, EnclosingTunnel, ForwardMode, RequestTarget};
use super::robots::RobotsFileCache;
use super::robots_tag;
use super::service_response::{
    Hangup, ServiceResult, local_response, origin_observer, unrecorded_observer,
    unrecorded_response,
};
use super::timing::{self, WaitTimes};
use super::tunnel::TunnelLimiter;
use super::upstream::{UpstreamClient, UpstreamError, UpstreamRequest, UpstreamResponse};

pub(crate) use caught_panic::{CaughtPanic, catch_panic};
use forward::{FleetAdmission, FleetRequest, OwnerAnswer};

/// The service that answers requests, with everything that it needs.
#[derive(Debug)]
pub struct ProxyService {
    pub active_policy: Arc<ActivePolicy>,
    /// The queue in which requests wait for their host's turn.
    pub admission_queue: Arc<AdmissionQueue>,
    /// The resolver of host names, which also decides which addresses may be dialled.
    pub address_vetter: Arc<AddressVetter>,
    /// The cache of the hosts' robots.txt files.
    pub robots: RobotsFileCache,
    /// The ledger of URLs, once a policy needs it.
    pub ledger: Arc<OnceLock<Ledger>>,
    /// The client for origins.
    pub upstream: Arc<UpstreamClient>,
    /// The recorder of requests.
    pub recorder: Recorder,
    /// This process's name in `Via`.
    pub via: ViaName,
    /// The profile that determines the form of refusals.
    pub profile: ProfileSelection,
    /// The contact and the page that refusals name.
    pub contacts: RefusalContacts,
    /// The limiter of open tunnels.
    pub tunnels: TunnelLimiter,
    /// The TLS interceptor, if a certificate authority is configured.
    pub interceptor: Option<Arc<Interceptor>>,
    /// The known crawlers and how they are identified.
    pub crawlers: CrawlerRegistry,
    /// The signers of crawlers that have an identity at origins.
    pub signers: RequestSigners,
    /// The maximum size of a request body in bytes.
    pub max_request_body: u64,
    /// The time limits of a request body.
    pub body_time_limits: BodyTimeLimits,
    /// This node's part in its fleet, if it is in one.
    pub fleet: Option<Arc<FleetNode>>,
}

/// An origin's response that may be passed on.
struct OriginResponse {
    head: response::Parts,
    body: OutgoingBody,
    outcome_recorder: Option<Box<OutcomeRecorder>>,
}

/// A response on its way through the stages after the origin.
struct PendingResponse {
    head: response::Parts,
    body: OutgoingBody,
    annotations: ResponseAnnotations,
}

pub(crate) type BoxedRefusal = Box<Refusal>;

impl ProxyService {
    pub(super) fn request_services(&self) -> RequestServices<'_, AddressVetter, RobotsFileCache> {
        RequestServices {
            destinations: &self.address_vetter,
            robots: &self.robots,
            active_policy: &self.active_policy,
            admission: &self.admission_queue,
            ledger: self.ledger.get(),
        }
    }

    /// Returns `true` if `Warcprox-Meta` is passed on for this request: its parent is warcprox, and its
    /// crawler may use it.
    fn passes_warcprox_meta(&self, evaluation: &Evaluation) -> bool {
        let parents = self.upstream.parents();
        !parents.is_empty()
            && evaluation
                .parent()
                .is_some_and(|parent| parents.is_warcprox(parent))
            && evaluation
                .facts()
                .crawler
                .allows_hint(CrawlerHint::Warcprox)
    }

    /// Answers one request. Its record ends with the last byte of the response, or when the client leaves.
    ///
    /// # Errors
    /// [`Hangup`], if this crawler is refused by closing its connection.
    pub fn handle_request<'a>(
        &'a self,
        request: Request<ClientBody>,
        open: ServiceGuard,
        context: &'a ConnectionContext,
    ) -> impl Future<Output = ServiceResult> + Send + 'a {
        // Not an `async fn`, which would store the request next to its parts; hyper moves the whole future for each
        // request.
        let (mut parts, body) = request.into_parts();
        async move {
            self.recorder.log().wait_if_full().await;
            let mut exchange = Exchange::new(self, context, &mut parts, body);
            if let Some(ledger) = self.ledger.get().filter(|_| exchange.snapshot.uses_ledger) {
                ledger.wait_if_full().await;
            }
            let outcome = catch_panic(pin!(exchange.run())).await;
            exchange.into_response(outcome, open)
        }
    }

    /// The response to a refused request; none for a crawler that is hung up on.
    pub(crate) fn refusal_response(
        &self,
        refusal: &Refusal,
        preferences: &ReplyPreferences,
        snapshot: &PolicySnapshot,
        record: &mut RequestRecord,
    ) -> Option<Response<Bytes>> {
        record.enter_stage(refusal.stage);
        refusal.record_in(record);
        let decision = record.id().to_text();
        let policy_label = local_reply::PolicyLabel {
            name: snapshot.policy.name(),
            revision: snapshot.policy.revision(),
            contacts: &self.contacts,
        };
        let mut response = match refusal.substitute_robots() {
            None => local_reply::refusal_response(
                refusal,
                preferences.refusal_style(self.profile),
                policy_label,
                &decision,
            ),
            Some(file) => Some(local_reply::substitute_robots_txt(
                refusal,
                file,
                policy_label,
                &decision,
            )),
        }?;
        preferences.add_trace_headers(response.headers_mut(), record);
        Some(response)
    }
}

/// The outcome of a request that is not refused.
enum ExchangeOutcome {
    /// The origin's response.
    Origin(OriginResponse),
    /// A response by the proxy.
    Local(Response<Bytes>),
    /// No response, since the client left in the middle of its request.
    ClientLeft,
    /// The answer of another node, which records the request.
    Forwarded(Box<OwnerAnswer>),
    /// The answer to another node, which must forward the request elsewhere.
    NotOwner(Box<Response<Bytes>>),
}

/// The proxy's response to a request that is not sent on.
enum LocalReply {
    Response(Box<Response<Bytes>>),
    Refused(BoxedRefusal),
    /// The client has left in the middle of its request.
    None,
}

/// A request on its way through the proxy.
struct Exchange<'a> {
    service: &'a ProxyService,
    context: &'a ConnectionContext,
    /// The request's head; the parts that are sent on are taken out of it.
    parts: &'a mut request::Parts,
    /// The request's body, until it is sent on.
    upload: RequestUpload,
    /// A watch of the request's body, if there is one.
    upload_watch: Option<UploadWatch>,
    preferences: ReplyPreferences,
    forward_mode: ForwardMode,
    /// The snapshot that the request was evaluated under last.
    snapshot: Arc<PolicySnapshot>,
    /// Boxed, since hyper moves it with the response, several times.
    record: Box<RequestRecord>,
    /// The request as it was received, if this is a node of a fleet.
    fleet_request: Option<Box<FleetRequest>>,
}

/// The state of a forwarded request until its response has been evaluated.
struct ForwardedRequest {
    evaluation: Box<Evaluation>,
    outcome_recorder: Option<Box<OutcomeRecorder>>,
    wait_time: Option<Duration>,
    sent_at: Instant,
}

impl IncomingRequest for Exchange<'_> {
    async fn identify(&mut self) -> Result<Crawler, BoxedRefusal> {
        let identity = identify(
            &self.service.crawlers,
            &self.context.caller,
            &self.parts.headers,
        )
        .await?;
        self.record.set_crawler(identity.index);
        self.preferences
            .set_crawler(&identity.crawler, &mut self.record);
        Ok(identity.crawler)
    }

    fn target(&mut self) -> Result<UrlTarget, BoxedRefusal> {
        self.record.enter_stage(Stage::Target);
        let tunnel = self.context.enclosing_tunnel();
        let RequestTarget {
            target,
            forward_mode,
        } = request_target::parse_request(self.parts, &self.service.via, tunnel)?;
        if content_length(self.parts).is_some_and(|size| size > self.service.max_request_body) {
            return Err(Box::new(body_too_large()));
        }
        self.forward_mode = forward_mode;
        self.record.set_target(&target);
        if let Some(refused) = tunnel.and_then(EnclosingTunnel::refused) {
            refused.forget_connect_record();
            self.snapshot = Arc::clone(&refused.policy);
            self.record.set_policy(&self.snapshot.counters);
            // The policy may keep less of this URL than of the tunnel.
            let facts = self.facts(target, refused.crawler.clone());
            let evaluation = Evaluation::new(facts, Arc::clone(&refused.policy));
            let robots = &self.service.robots;
            return Err(robots::refuse_inside_tunnel(
                &evaluation,
                robots,
                &refused.refusal,
            ));
        }
        Ok(target)
    }

    fn facts(&self, target: UrlTarget, crawler: Crawler) -> RequestFacts {
        RequestFacts::new(target, crawler, self.parts)
    }

    fn profile(&self) -> Profile {
        self.preferences.refusal_style(self.service.profile).profile
    }
}

impl IncomingBody for RequestUpload {
    async fn read_ahead(&mut self, times: BodyTimeouts) -> Result<(), NotForwarded> {
        Self::read_ahead(self, times).await.map_err(|error| {
            let error = UpstreamError::Upload(error);
            if error.is_client_left() {
                NotForwarded::ClientLeft
            } else {
                NotForwarded::Refuse(Box::new(error.into()))
            }
        })
    }
}

impl<'a> Exchange<'a> {
    fn new(
        service: &'a ProxyService,
        context: &'a ConnectionContext,
        parts: &'a mut request::Parts,
        body: ClientBody,
    ) -> Self {
        let recorder = &service.recorder;
        let mut record = Box::new(recorder.begin(recorder.clock().now(), &parts.method));
        record.set_client(context.caller.address());
        let preferences = ReplyPreferences::from_headers(&parts.headers);
        preferences.record_parent_span(&mut record);
        let upload = RequestUpload::new(
            body,
            service.max_request_body,
            service.body_time_limits,
            parts.headers.contains_key(EXPECT),
            recorder.clock(),
        );
        let upload_watch = upload.watch();
        if let Some(entry) = context.entry() {
            entry.record_in(&mut record);
        }
        Self {
            service,
            context,
            parts,
            upload,
            upload_watch,
            preferences,
            forward_mode: ForwardMode::ToOrigin,
            snapshot: service.active_policy.load(),
            record,
            fleet_request: None,
        }
    }

    /// Runs all stages, and reads the body of a request that is not sent.
    async fn run(&mut self) -> Result<ExchangeOutcome, BoxedRefusal> {
        let outcome = self.run_stages().await;
        if !self.upload.is_empty() {
            Box::pin(self.upload.discard()).await;
        }
        outcome
    }

    /// Runs all stages, each of which may refuse the request.
    ///
    /// No large value is borrowed or matched across an `await`, since the future would keep room for it.
    async fn run_stages(&mut self) -> Result<ExchangeOutcome, BoxedRefusal> {
        let service = self.service;
        let (response, forwarded) = loop {
            let result = match &service.fleet {
                None => {
                    let services = service.request_services();
                    let snapshot = Arc::clone(&self.snapshot);
                    let mut upload = std::mem::take(&mut self.upload);
                    let result = admit_request(self, &mut upload, snapshot, &services).await;
                    self.upload = upload;
                    result?
                }
                Some(fleet) => match Box::pin(self.admit_in_fleet(fleet)).await? {
                    FleetAdmission::Evaluated(result) => *result,
                    FleetAdmission::Finished(outcome) => return Ok(outcome),
                },
            };
            let (permit, mut forwarded) = match self.take_permit(result) {
                Ok(admitted) => admitted,
                Err(LocalReply::Response(response)) => {
                    return Ok(ExchangeOutcome::Local(*response));
                }
                Err(LocalReply::Refused(refusal)) => return Err(refusal),
                Err(LocalReply::None) => return Ok(ExchangeOutcome::ClientLeft),
            };
            let call = self.build_upstream_request(&mut forwarded.evaluation);
            let result = service.upstream.send(permit, call, forwarded.sent_at).await;
            break match self.record_origin_response(result, &mut forwarded) {
                Err(error) if error.is_client_left() => return Ok(ExchangeOutcome::ClientLeft),
                // The host has got another owner meanwhile: the request goes there, or waits for one.
                Err(UpstreamError::OwnerLost(upload)) if self.is_owner_lost() => {
                    self.upload = upload;
                    continue;
                }
                Err(UpstreamError::LeaseEnded) if self.may_repeat() && self.is_owner_lost() => {
                    continue;
                }
                Err(error) => (
                    Err(forwarded.evaluation.refuse(Refusal::from(error))),
                    forwarded,
                ),
                Ok(response) => (self.run_response_stage(response, &mut forwarded), forwarded),
            };
        };
        // Boxed, since few responses are read as documents, and what that takes would make the future of each larger.
        let document_stage = match response {
            Ok(response) if document::is_needed(&forwarded.evaluation, &response.head) => {
                Box::pin(self.run_document_stage(response, forwarded))
            }
            answer => return self.finish_response(answer, forwarded),
        };
        document_stage.await
    }

    /// Returns `true` if the request may be sent again although its origin may have received it.
    fn may_repeat(&self) -> bool {
        self.parts.method.is_idempotent() && self.upload_watch.is_none()
    }

    /// Returns `true` if this node does not own the host that was requested any more. The one that the policy sends the
    /// request to may be another.
    fn is_owner_lost(&self) -> bool {
        self.ownership()
            .is_some_and(|ownership| !ownership.is_valid())
    }

    /// Records the result of the stages before the origin. Returns the permit, or else the response.
    fn take_permit(
        &mut self,
        result: RequestResult<VettedAddresses>,
    ) -> Result<(Permit<UrlTarget, VettedAddresses>, ForwardedRequest), LocalReply> {
        let RequestResult {
            outcome,
            evaluation,
            wait_time,
        } = result;
        record_evaluation(&mut self.record, &evaluation);
        if !Arc::ptr_eq(&self.snapshot, evaluation.snapshot()) {
            self.snapshot = Arc::clone(evaluation.snapshot());
        }
        let sent_at = timing::record_decision(&mut self.record, wait_times(&evaluation, wait_time));
        match outcome {
            Ok(_) if self.forward_mode == ForwardMode::AnswerLocally => {
                Err(LocalReply::Response(Box::new(options_response())))
            }
            Ok(permit) => {
                if let Some(address) = permit.addresses().first() {
                    self.record.set_address(address);
                }
                if let Some(parent) = permit.addresses().parent()
                    && let Some(name) = self.service.upstream.parents().name(parent)
                {
                    self.record.set_parent(name.shared());
                }
                let outcome_recorder = OutcomeRecorder::for_request(&evaluation);
                let forwarded = ForwardedRequest {
                    evaluation,
                    outcome_recorder,
                    wait_time,
                    sent_at,
                };
                Ok((permit, forwarded))
            }
            Err(NotForwarded::ServeRobots(known)) => Err(LocalReply::Response(Box::new(
                local_reply::known_robots_txt(&known),
            ))),
            Err(NotForwarded::ClientLeft) => Err(LocalReply::None),
            Err(NotForwarded::Refuse(refusal)) => {
                let admission = &self.service.admission_queue;
                outcome::record_early_refusal(&evaluation, &refusal, admission);
                Err(LocalReply::Refused(refusal))
            }
        }
    }

    /// Signs the request, if its crawler has an identity. `OPTIONS *` has no path to sign.
    fn sign_request(&self, headers: &mut HeaderMap, evaluation: &Evaluation) {
        let facts = evaluation.facts();
        let Some(signer) = self.service.signers.get(facts.crawler.as_str()) else {
            return;
        };
        if self.forward_mode == ForwardMode::ToServer {
            return;
        }
        let now = self.service.recorder.clock().wall_time();
        if let Err(error) = signer.sign(headers, &self.parts.method, &facts.target, now) {
            tracing::error!(crawler = facts.crawler.as_str(), %error, "a request is sent without its signature");
        }
    }

    /// Makes the request that the origin gets.
    fn build_upstream_request(&mut self, evaluation: &mut Evaluation) -> UpstreamRequest {
        self.record.enter_stage(Stage::Upstream);
        let target = &evaluation.facts().target;
        let mut headers = std::mem::take(&mut self.parts.headers);
        let warcprox_meta = match self.service.passes_warcprox_meta(evaluation) {
            true => headers.remove(WARCPROX_META),
            false => None,
        };
        request_target::decrement_max_forwards(&self.parts.method, &mut headers);
        header_filter::filter_request(
            &mut headers,
            target.authority(),
            self.parts.version,
            &self.service.via,
        );
        if let Some(meta) = warcprox_meta {
            headers.insert(WARCPROX_META, meta);
        }
        if evaluation.facts().changes_origin() {
            // They were meant for the origin that the crawler named.
            headers.remove(AUTHORIZATION);
            headers.remove(COOKIE);
        }
        evaluation.effects().apply_to_request(&mut headers);
        document::prepare_request(&mut headers, evaluation);
        let ownership = self.ownership().cloned();
        let ownership = ownership
            .map(|ownership| Box::new(OwnershipWatch::new(ownership.for_host(target.host()))));
        let received = std::mem::take(&mut self.parts.uri).into_parts();
        let is_rewritten = evaluation.facts().rewritten_from().is_some();
        let uri = if self.forward_mode == ForwardMode::ToServer && !is_rewritten {
            Some(Uri::from_static("*"))
        } else {
            received
                .path_and_query
                .filter(|path| path.as_str() == target.path_and_query())
                .map(Into::into)
        };
        let conditions = recrawl::set_conditions(evaluation, &mut headers);
        evaluation.set_conditions(conditions);
        self.sign_request(&mut headers, evaluation);
        let mut body = std::mem::take(&mut self.upload);
        // The client may have waited for its host's turn in the middle of its body.
        body.restart_timers(evaluation.body_timeouts());
        if let Some(watch) = &self.upload_watch {
            self.record
                .set_upload_meter(Arc::clone(watch.byte_counter()));
        }
        UpstreamRequest {
            method: self.parts.method.clone(),
            headers,
            body,
            uri,
            ownership,
        }
    }

    /// Records what has come from the origin.
    fn record_origin_response(
        &mut self,
        result: Result<UpstreamResponse, UpstreamError>,
        forwarded: &mut ForwardedRequest,
    ) -> Result<Response<Box<ResponseDownload>>, UpstreamError> {
        let sent_at = forwarded.sent_at;
        let result = result.inspect_err(|error| {
            let is_unrelated = matches!(
                error,
                UpstreamError::BackingOff(_)
                    | UpstreamError::OwnerLost(_)
                    | UpstreamError::LeaseEnded
            );
            if !error.is_client_left() && !is_unrelated {
                timing::record_failure(&mut self.record, error, sent_at);
            }
        })?;
        let address = result.address.ip();
        if let Some(recorder) = &mut forwarded.outcome_recorder {
            recorder.set_address(address);
        }
        self.record.set_address(address);
        let first_byte = timing::record_first_byte(&mut self.record, &result, sent_at);
        let response = result.response;
        if self.service.passes_warcprox_meta(&forwarded.evaluation)
            && is_warcprox_refusal(&response)
        {
            // The answer of the parent, which says nothing about the URL.
            forwarded.outcome_recorder = None;
        }
        if response.version() == http::Version::HTTP_2 {
            self.record.set_used_http2();
        }
        self.record.set_origin_response(
            response.status().as_u16(),
            response.headers().get(CONTENT_TYPE),
            first_byte,
        );
        Ok(response)
    }

    fn run_response_stage(
        &mut self,
        response: Response<Box<ResponseDownload>>,
        forwarded: &mut ForwardedRequest,
    ) -> Result<PendingResponse, BoxedRefusal> {
        let (mut head, mut download) = response.into_parts();
        match header_filter::normalize_framing(&mut head.headers) {
            Ok(_) if head.status.is_informational() => {
                return Err(unreadable_response(&forwarded.evaluation));
            }
            Ok(ResponseFraming::Unambiguous) => {}
            Ok(ResponseFraming::Ambiguous) => download.forbid_reuse(),
            Err(UnknownTransferCoding) => return Err(unreadable_response(&forwarded.evaluation)),
        }
        // Before the evaluation, so that the policy sees what the client will see.
        header_filter::remove_nominated_fields(&mut head.headers);
        self.record.enter_stage(Stage::Response);
        let evaluation = &mut forwarded.evaluation;
        let verdict = evaluate_response(
            evaluation,
            &head,
            self.preferences.conditional(),
            forwarded.outcome_recorder.as_deref_mut(),
            &self.service.admission_queue,
        );
        record_evaluation(&mut self.record, evaluation);
        // If it is refused, the connection is dropped with the body, of which no byte was passed on.
        let annotations = verdict?;
        // An error page is passed on whatever its size, as by the rules on sizes.
        if let Some(limit) = evaluation.max_body().filter(|_| head.status.is_success()) {
            download.set_limit(limit);
        }
        download.set_timeouts(evaluation.body_timeouts());
        if let Err(error) = download.read_first_part() {
            self.record.set_upstream_error(error.as_str());
            return Err(broken_at_once(error, evaluation));
        }
        Ok(PendingResponse {
            head,
            body: OutgoingBody::Streamed(download),
            annotations,
        })
    }

    /// Runs the document stage, which few responses need, and finishes the response.
    async fn run_document_stage(
        &mut self,
        response: PendingResponse,
        mut forwarded: ForwardedRequest,
    ) -> Result<ExchangeOutcome, BoxedRefusal> {
        let PendingResponse {
            mut head,
            body: OutgoingBody::Streamed(download),
            annotations: marks,
        } = response
        else {
            return self.finish_response(Ok(response), forwarded);
        };
        self.record.enter_stage(Stage::Document);
        let body = document::run_stage(
            &mut forwarded.evaluation,
            &mut head,
            download,
            forwarded.outcome_recorder.as_deref_mut(),
            self.service.recorder.metrics(),
        )
        .await;
        record_evaluation(&mut self.record, &forwarded.evaluation);
        let response = body.map(|body| PendingResponse {
            head,
            body,
            annotations: marks,
        });
        self.finish_response(response, forwarded)
    }

    /// Prepares the response for the client, or records that it is refused.
    fn finish_response(
        &self,
        response: Result<PendingResponse, BoxedRefusal>,
        forwarded: ForwardedRequest,
    ) -> Result<ExchangeOutcome, BoxedRefusal> {
        let ForwardedRequest {
            evaluation,
            mut outcome_recorder,
            wait_time,
            sent_at: _,
        } = forwarded;
        let PendingResponse {
            mut head,
            body,
            annotations: marks,
        } = response.inspect_err(|refusal| {
            if let Some(recorder) = &mut outcome_recorder {
                recorder.record_refusal(&evaluation, refusal, &self.service.admission_queue);
            }
        })?;
        if let (Some(check), Some(recorder)) = (evaluation.links_only(), &mut outcome_recorder) {
            recorder.set_links_only(&evaluation, check);
        }
        self.prepare_response_head(&mut head, marks, &evaluation);
        if let Some(wait_time) = wait_time {
            local_reply::set_held(&mut head.headers, wait_time);
        }
        Ok(ExchangeOutcome::Origin(OriginResponse {
            head,
            body,
            outcome_recorder,
        }))
    }

    /// Turns the head of an origin's response into the one that the client gets.
    fn prepare_response_head(
        &self,
        head: &mut response::Parts,
        annotations: ResponseAnnotations,
        evaluation: &Evaluation,
    ) {
        let via = &self.service.via;
        let warcprox_meta = match self.service.passes_warcprox_meta(evaluation) {
            true => head.headers.remove(WARCPROX_META),
            false => None,
        };
        header_filter::filter_response(&mut head.headers, head.status, head.version, via);
        if let Some(meta) = warcprox_meta {
            head.headers.insert(WARCPROX_META, meta);
        }
        if let Some(requested) = evaluation.facts().rewritten_from() {
            header_filter::rewrite_for_requested_url(
                &mut head.headers,
                requested,
                &evaluation.facts().target,
            );
        }
        local_reply::set_annotations(&mut head.headers, annotations);
        if let Some(check) = evaluation.links_only() {
            local_reply::set_crawl_status(&mut head.headers, check.crawl_status());
        }
        evaluation
            .crawl_tags()
            .for_each(|tag| local_reply::append_tag(&mut head.headers, tag));
        evaluation.effects().apply_to_response(&mut head.headers);
        if let Some(tag) = evaluation.effects().robots_tag() {
            robots_tag::merge(&mut head.headers, tag);
        }
        head.version = http::Version::HTTP_11;
    }

    /// Answers the client, and hands the record to the response's body.
    fn into_response(
        self,
        outcome: Result<Result<ExchangeOutcome, BoxedRefusal>, CaughtPanic>,
        open: ServiceGuard,
    ) -> ServiceResult {
        let Self {
            service,
            parts,
            preferences,
            snapshot,
            mut record,
            upload_watch,
            ..
        } = self;
        // RFC 9112 section 9.6: hyper closes the connection if the request's body is unread.
        let closes = upload_watch.is_some_and(|upload| !upload.is_received());
        let outcome = outcome.unwrap_or_else(|CaughtPanic| Err(Box::new(internal_error(&record))));
        match outcome {
            Ok(ExchangeOutcome::Origin(OriginResponse {
                mut head,
                body,
                outcome_recorder,
            })) => {
                preferences.add_trace_headers(&mut head.headers, &record);
                if closes {
                    announce_close(&mut head.headers);
                }
                record.set_sent_status(head.status.as_u16(), ResponseSource::Origin);
                let observer = origin_observer(record, outcome_recorder, open);
                let body = ResponseBody::streamed(body, observer);
                Ok(Response::from_parts(head, body))
            }
            Ok(ExchangeOutcome::Local(mut response)) => {
                preferences.add_trace_headers(response.headers_mut(), &record);
                if closes {
                    announce_close(response.headers_mut());
                }
                Ok(local_response(response, &parts.method, record, open))
            }
            Ok(ExchangeOutcome::ClientLeft) => Err(Hangup),
            Ok(ExchangeOutcome::Forwarded(answer)) => {
                record.discard();
                let OwnerAnswer::Response(response) = *answer else {
                    return Err(Hangup);
                };
                let (mut head, body) = response.into_parts();
                if closes {
                    announce_close(&mut head.headers);
                }
                head.version = http::Version::HTTP_11;
                let body = ResponseBody::forwarded(body, unrecorded_observer(Some(open)));
                Ok(Response::from_parts(head, body))
            }
            Ok(ExchangeOutcome::NotOwner(response)) => {
                record.discard();
                Ok(unrecorded_response(*response, &parts.method, Some(open)))
            }
            Err(refusal) => {
                let response =
                    service.refusal_response(&refusal, &preferences, &snapshot, &mut record);
                let mut response = response.ok_or(Hangup)?;
                if closes {
                    announce_close(response.headers_mut());
                }
                Ok(local_response(response, &parts.method, record, open))
            }
        }
    }
}

/// Returns `true` for a refusal by warcprox: 403 by a rule of `blocks`, 420 by a limit, each with its field.
fn is_warcprox_refusal<B>(response: &Response<B>) -> bool {
    matches!(response.status().as_u16(), 403 | 420)
        && response.headers().contains_key(WARCPROX_META)
}

fn content_length(parts: &request::Parts) -> Option<u64> {
    parts
        .headers
        .get(CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// Returns the times that a request or a tunnel has waited before it was decided.
pub(super) fn wait_times<F: EvaluationFacts>(
    evaluation: &Evaluation<F>,
    wait_time: Option<Duration>,
) -> WaitTimes {
    WaitTimes {
        resolved_in: evaluation.times().addresses,
        fetched_in: evaluation.times().robots,
        held: wait_time,
    }
}

/// Records the policy's decision on a request or a tunnel so far.
pub(super) fn record_policy<F: EvaluationFacts>(
    record: &mut RequestRecord,
    evaluation: &Evaluation<F>,
) {
    record.set_policy(&evaluation.snapshot().counters);
    record.set_matched_rules(evaluation.matched_rules().iter().map(|rule| rule.0));
    record.set_allowed(evaluation.cause().map(|rule| rule.0));
    record.set_shadows(evaluation.shadow_notes());
    record.set_url_retention(evaluation.url_detail_after_sending());
}

fn record_evaluation(record: &mut RequestRecord, evaluation: &Evaluation) {
    record_policy(record, evaluation);
    if let Some(source) = evaluation.effects().source() {
        record.set_source(source);
    }
}

/// RFC 9110 section 9.3.7: OPTIONS that goes no further is answered with the capabilities of the proxy itself.
fn options_response() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    response.headers_mut().insert(
        http::header::ALLOW,
        HeaderValue::from_static(local_reply::ALLOWED_METHODS),
    );
    response
}

/// Returns the refusal of a request that ended in a panic. The policy may keep nothing of its URL.
pub(super) fn internal_error(record: &RequestRecord) -> Refusal {
    Refusal {
        url_detail: record.url_retention(),
        ..Refusal::new(Reason::InternalError, record.stage())
    }
}

fn announce_close(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
}

/// Returns the refusal of a response whose body is broken where its head ends.
fn broken_at_once(error: BodyError, evaluation: &Evaluation) -> BoxedRefusal {
    let stage = match error {
        BodyError::TooLarge => Stage::Response,
        BodyError::Incomplete | BodyError::ClientLeft | BodyError::Idle | BodyError::LeaseEnded => {
            Stage::Upstream
        }
    };
    document::broken_body_refusal(error, stage, evaluation.url_detail_after_sending())
}

fn unreadable_response(evaluation: &Evaluation) -> BoxedRefusal {
    evaluation.refuse(Refusal::new(Reason::UpstreamProtocol, Stage::Upstream))
}

fn body_too_large() -> Refusal {
    Refusal::new(Reason::RequestTooLarge, Stage::Target)
        .with_detail("the request's body is larger than the limit")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the size of the future that serves a request.
    fn size<'a, F>(
        _: impl FnOnce(&'a ProxyService, Request<ClientBody>, ServiceGuard, &'a ConnectionContext) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_future_of_a_request_is_small_enough_to_move() {
        assert!(
            size(ProxyService::handle_request) <= 2_952,
            "{}",
            size(ProxyService::handle_request)
        );
    }
}
