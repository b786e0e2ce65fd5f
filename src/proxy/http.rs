//! Serves one HTTP request: from hyper's request to the response, and the record of both.

mod caught_panic;
mod forward;

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE};
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
    IncomingBody, IncomingRequest, Ledger, NotSent, RequestResult, RequestServices, admit_request,
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
use super::request_target::{self, EnclosingTunnel, RequestHandling, RequestTarget};
use super::robots::RobotsFileCache;
use super::robots_tag;
use super::service_response::{
    CloseConnection, ServiceResult, local_response, origin_observer, unrecorded_observer,
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

    /// Returns `true` if `Warcprox-Meta` is passed on for this request: its parent proxy is warcprox, and
    /// its crawler may use it.
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
    /// [`CloseConnection`], if this crawler is refused by closing its connection.
    pub fn handle_request<'a>(
        &'a self,
        request: Request<ClientBody>,
        service_guard: ServiceGuard,
        context: &'a ConnectionContext,
    ) -> impl Future<Output = ServiceResult> + Send + 'a {
        // Not an `async fn`, whose future would contain the request as well as its parts; hyper moves the whole future for
        // each request.
        let (mut parts, body) = request.into_parts();
        async move {
            self.recorder.log().wait_if_full().await;
            let mut exchange = Exchange::new(self, context, &mut parts, body);
            if let Some(ledger) = self.ledger.get().filter(|_| exchange.snapshot.uses_ledger) {
                ledger.wait_if_full().await;
            }
            let result = catch_panic(pin!(exchange.run())).await;
            exchange.into_response(result, service_guard)
        }
    }

    /// Returns the response to a refused request; `None` if this crawler is refused by closing its connection.
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

/// The response to a request that is not refused.
enum ExchangeResponse {
    /// The origin's response.
    Origin(OriginResponse),
    /// A response by the proxy.
    Local(Response<Bytes>),
    /// No response, since the client left in the middle of its request.
    ClientLeft,
    /// The response of another node, which records the request.
    Forwarded(Box<OwnerAnswer>),
    /// The response to the node that has admitted the request here, although this node does not own the host.
    NotOwner(Box<Response<Bytes>>),
}

/// The result of a request that is not sent to an origin.
enum LocalResult {
    Response(Box<Response<Bytes>>),
    Refused(BoxedRefusal),
    /// No response, since the client left in the middle of its request.
    ClientLeft,
}

/// A request on its way through the proxy.
struct Exchange<'a> {
    service: &'a ProxyService,
    context: &'a ConnectionContext,
    /// The request's head; its fields and URI are moved out when the request is sent.
    parts: &'a mut request::Parts,
    /// The request's body, until the request is sent.
    upload: RequestUpload,
    /// Observes the progress of the body; `None` if the request has no body.
    upload_watch: Option<UploadWatch>,
    preferences: ReplyPreferences,
    handling: RequestHandling,
    /// The snapshot that the request was evaluated under last.
    snapshot: Arc<PolicySnapshot>,
    /// Boxed, since hyper moves the response, and the record with it, several times.
    record: Box<RequestRecord>,
    /// The request as it was received, if this is a node of a fleet.
    fleet_request: Option<Box<FleetRequest>>,
}

/// The state of an admitted request until its response has been evaluated.
struct AdmittedRequest {
    evaluation: Box<Evaluation>,
    outcome_recorder: Option<Box<OutcomeRecorder>>,
    wait_time: Option<Duration>,
    /// The time at which the permit was issued, after any wait.
    decided_at: Instant,
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
        let RequestTarget { target, handling } =
            request_target::parse_request(self.parts, &self.service.via, tunnel)?;
        // `upload` may have been taken at this point, so the watch shows whether there is a body.
        if self.upload_watch.is_some()
            && content_length(self.parts).is_some_and(|size| size > self.service.max_request_body)
        {
            return Err(Box::new(body_too_large()));
        }
        self.handling = handling;
        self.record.set_target(&target);
        if let Some(refused) = tunnel.and_then(EnclosingTunnel::refused) {
            refused.discard_connect_record();
            self.snapshot = Arc::clone(&refused.policy);
            self.record.set_policy(&self.snapshot.counters);
            // The log may keep less of this URL than of the tunnel.
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
        self.preferences.profile(self.service.profile)
    }
}

impl IncomingBody for RequestUpload {
    async fn read_ahead(&mut self, timeouts: BodyTimeouts) -> Result<(), NotSent> {
        Self::read_ahead(self, timeouts).await.map_err(|error| {
            let error = UpstreamError::Upload(error);
            if error.is_client_left() {
                NotSent::ClientLeft
            } else {
                NotSent::Refuse(Box::new(error.into()))
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
            &parts.headers,
            recorder.clock(),
        );
        let upload_watch = upload.watch();
        if let Some(entry) = context.entry_node() {
            entry.record_in(&mut record);
        }
        Self {
            service,
            context,
            parts,
            upload,
            upload_watch,
            preferences,
            handling: RequestHandling::Send,
            snapshot: service.active_policy.load(),
            record,
            fleet_request: None,
        }
    }

    /// Runs all stages, then reads and discards the body of a request that was not sent.
    async fn run(&mut self) -> Result<ExchangeResponse, BoxedRefusal> {
        let result = self.run_stages().await;
        if !self.upload.is_empty() {
            Box::pin(self.upload.discard()).await;
        }
        result
    }

    /// Runs all stages, each of which may refuse the request.
    ///
    /// Large values are moved before an `await`, not borrowed across it, to keep the future small.
    async fn run_stages(&mut self) -> Result<ExchangeResponse, BoxedRefusal> {
        let service = self.service;
        let (response, admitted) = loop {
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
                    FleetAdmission::Finished(response) => return Ok(response),
                },
            };
            let (permit, mut admitted) = match self.take_permit(result) {
                Ok(permit) => permit,
                Err(LocalResult::Response(response)) => {
                    return Ok(ExchangeResponse::Local(*response));
                }
                Err(LocalResult::Refused(refusal)) => return Err(refusal),
                Err(LocalResult::ClientLeft) => return Ok(ExchangeResponse::ClientLeft),
            };
            let request = self.build_upstream_request(&mut admitted.evaluation);
            // Pinned in place: `.await` on the future itself would move it twice.
            let sending = pin!(service.upstream.send(permit, request, admitted.decided_at));
            let result = sending.await;
            break match self.record_origin_response(result, &mut admitted) {
                Err(error) if error.is_client_left() => return Ok(ExchangeResponse::ClientLeft),
                // The owner of the host has changed: the request goes to the new owner, or waits for one.
                Err(UpstreamError::OwnerLost(upload)) if self.has_lost_ownership() => {
                    self.upload = upload;
                    continue;
                }
                Err(UpstreamError::LeaseEnded)
                    if self.may_resend() && self.has_lost_ownership() =>
                {
                    continue;
                }
                Err(error) => (
                    Err(admitted.evaluation.refuse(Refusal::from(error))),
                    admitted,
                ),
                Ok(response) => (self.run_response_stage(response, &mut admitted), admitted),
            };
        };
        // Boxed, since few responses are read as documents, and what that takes would make the future of each larger.
        let document_stage = match response {
            Ok(response) if document::is_needed(&admitted.evaluation, &response.head) => {
                Box::pin(self.run_document_stage(response, admitted))
            }
            response => return self.finish_response(response, admitted),
        };
        document_stage.await
    }

    /// Returns `true` if the request may be sent again although its origin may have received it.
    fn may_resend(&self) -> bool {
        self.parts.method.is_idempotent() && self.upload_watch.is_none()
    }

    /// Returns `true` if this node no longer owns the requested host. If the policy has rewritten the URL, that is not the host
    /// that the request is sent to.
    fn has_lost_ownership(&self) -> bool {
        self.ownership()
            .is_some_and(|ownership| !ownership.is_valid())
    }

    /// Records the result of the stages before the origin. Returns the permit, or else the response.
    fn take_permit(
        &mut self,
        result: RequestResult<VettedAddresses>,
    ) -> Result<(Box<Permit<UrlTarget, VettedAddresses>>, AdmittedRequest), LocalResult> {
        let RequestResult {
            outcome,
            evaluation,
            wait_time,
        } = result;
        record_evaluation(&mut self.record, &evaluation);
        if !Arc::ptr_eq(&self.snapshot, evaluation.snapshot()) {
            self.snapshot = Arc::clone(evaluation.snapshot());
        }
        let decided_at =
            timing::record_decision(&mut self.record, wait_times(&evaluation, wait_time));
        match outcome {
            // The permit is dropped, which returns its slot unused.
            Ok(_) if self.handling == RequestHandling::AnswerLocally => {
                Err(LocalResult::Response(Box::new(options_response())))
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
                let admitted = AdmittedRequest {
                    evaluation,
                    outcome_recorder,
                    wait_time,
                    decided_at,
                };
                Ok((permit, admitted))
            }
            Err(NotSent::ServeRobots(cached)) => Err(LocalResult::Response(Box::new(
                local_reply::cached_robots_txt(&cached),
            ))),
            Err(NotSent::ClientLeft) => Err(LocalResult::ClientLeft),
            Err(NotSent::Refuse(refusal)) => {
                let admission = &self.service.admission_queue;
                outcome::record_early_refusal(&evaluation, &refusal, admission);
                Err(LocalResult::Refused(refusal))
            }
        }
    }

    /// Signs the request, if its crawler has an identity. `OPTIONS *` has no path to sign.
    fn sign_request(&self, headers: &mut HeaderMap, evaluation: &Evaluation) {
        let facts = evaluation.facts();
        let Some(signer) = self.service.signers.get(facts.crawler.as_str()) else {
            return;
        };
        if self.handling == RequestHandling::SendForServer {
            return;
        }
        let now = self.service.recorder.clock().wall_time();
        if let Err(error) = signer.sign(headers, &self.parts.method, &facts.target, now) {
            tracing::error!(crawler = facts.crawler.as_str(), %error, "a request could not be signed, and is sent without a signature");
        }
    }

    /// Builds and signs the request to the origin.
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
            // These credentials are for the origin that the crawler named.
            headers.remove(AUTHORIZATION);
            headers.remove(COOKIE);
        }
        evaluation.effects().apply_to_request(&mut headers);
        document::prepare_request(&mut headers, evaluation);
        let ownership = self.ownership().cloned();
        let ownership = ownership
            .map(|ownership| Box::new(OwnershipWatch::new(ownership.for_host(target.host()))));
        let received_uri = std::mem::take(&mut self.parts.uri).into_parts();
        let is_rewritten = evaluation.facts().rewritten_from().is_some();
        let uri = if self.handling == RequestHandling::SendForServer && !is_rewritten {
            Some(Uri::from_static("*"))
        } else {
            received_uri
                .path_and_query
                .filter(|path| path.as_str() == target.path_and_query())
                .map(Into::into)
        };
        let conditions = recrawl::set_conditions(evaluation, &mut headers);
        evaluation.set_conditions(conditions);
        self.sign_request(&mut headers, evaluation);
        let mut body = std::mem::take(&mut self.upload);
        // The request may have been held in the middle of its body; that time does not count towards the body's timeouts.
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

    /// Records the response or the failure of the origin.
    fn record_origin_response(
        &mut self,
        result: Result<UpstreamResponse, UpstreamError>,
        admitted: &mut AdmittedRequest,
    ) -> Result<Response<Box<ResponseDownload>>, UpstreamError> {
        let decided_at = admitted.decided_at;
        let result = result.inspect_err(|error| {
            let says_nothing_of_origin = matches!(
                error,
                UpstreamError::BackingOff(_)
                    | UpstreamError::OwnerLost(_)
                    | UpstreamError::LeaseEnded
            );
            if !error.is_client_left() && !says_nothing_of_origin {
                timing::record_failure(&mut self.record, error, decided_at);
            }
        })?;
        let address = result.address.ip();
        if let Some(recorder) = &mut admitted.outcome_recorder {
            recorder.set_address(address);
        }
        self.record.set_address(address);
        let first_byte = timing::record_first_byte(&mut self.record, &result, decided_at);
        let response = result.response;
        if self.service.passes_warcprox_meta(&admitted.evaluation) && is_warcprox_refusal(&response)
        {
            // The response of the parent proxy, which says nothing about the URL.
            admitted.outcome_recorder = None;
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
        admitted: &mut AdmittedRequest,
    ) -> Result<PendingResponse, BoxedRefusal> {
        let (mut head, mut download) = response.into_parts();
        match header_filter::normalize_framing(&mut head.headers) {
            Ok(_) if head.status.is_informational() => {
                return Err(invalid_response_refusal(&admitted.evaluation));
            }
            Ok(ResponseFraming::Unambiguous) => {}
            Ok(ResponseFraming::Ambiguous) => download.forbid_reuse(),
            Err(UnknownTransferCoding) => {
                return Err(invalid_response_refusal(&admitted.evaluation));
            }
        }
        // Before the evaluation, so that the policy sees what the client will see.
        header_filter::remove_nominated_fields(&mut head.headers);
        self.record.enter_stage(Stage::Response);
        let evaluation = &mut admitted.evaluation;
        let verdict = evaluate_response(
            evaluation,
            &head,
            self.preferences.conditional(),
            admitted.outcome_recorder.as_deref_mut(),
            &self.service.admission_queue,
        );
        record_evaluation(&mut self.record, evaluation);
        // If it is refused, the connection is dropped with the body, of which no byte was passed on.
        let annotations = verdict?;
        // An error page is passed on whatever its size: rules on size apply to successful responses only.
        if let Some(limit) = evaluation.max_body().filter(|_| head.status.is_success()) {
            download.set_limit(limit);
        }
        download.set_timeouts(evaluation.body_timeouts());
        if let Err(error) = download.read_first_part() {
            self.record.set_upstream_error(error.as_str());
            return Err(broken_start_refusal(error, evaluation));
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
        mut admitted: AdmittedRequest,
    ) -> Result<ExchangeResponse, BoxedRefusal> {
        let PendingResponse {
            mut head,
            body: OutgoingBody::Streamed(download),
            annotations,
        } = response
        else {
            return self.finish_response(Ok(response), admitted);
        };
        self.record.enter_stage(Stage::Document);
        let body = document::run_stage(
            &mut admitted.evaluation,
            &mut head,
            download,
            admitted.outcome_recorder.as_deref_mut(),
            self.service.recorder.metrics(),
        )
        .await;
        record_evaluation(&mut self.record, &admitted.evaluation);
        let response = body.map(|body| PendingResponse {
            head,
            body,
            annotations,
        });
        self.finish_response(response, admitted)
    }

    /// Prepares the response for the client, or records that it is refused.
    fn finish_response(
        &self,
        response: Result<PendingResponse, BoxedRefusal>,
        admitted: AdmittedRequest,
    ) -> Result<ExchangeResponse, BoxedRefusal> {
        let AdmittedRequest {
            evaluation,
            mut outcome_recorder,
            wait_time,
            decided_at: _,
        } = admitted;
        let PendingResponse {
            mut head,
            body,
            annotations,
        } = response.inspect_err(|refusal| {
            if let Some(recorder) = &mut outcome_recorder {
                recorder.record_refusal(&evaluation, refusal, &self.service.admission_queue);
            }
        })?;
        if let (Some(check), Some(recorder)) =
            (evaluation.links_only_check(), &mut outcome_recorder)
        {
            recorder.set_links_only(&evaluation, check);
        }
        self.prepare_response_head(&mut head, annotations, &evaluation);
        if let Some(wait_time) = wait_time {
            local_reply::set_held_time(&mut head.headers, wait_time);
        }
        Ok(ExchangeResponse::Origin(OriginResponse {
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
        if let Some(check) = evaluation.links_only_check() {
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
        result: Result<Result<ExchangeResponse, BoxedRefusal>, CaughtPanic>,
        service_guard: ServiceGuard,
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
        let will_close = upload_watch.is_some_and(|upload| !upload.is_received());
        let result = result.unwrap_or_else(|CaughtPanic| Err(Box::new(internal_error(&record))));
        match result {
            Ok(ExchangeResponse::Origin(OriginResponse {
                mut head,
                body,
                outcome_recorder,
            })) => {
                preferences.add_trace_headers(&mut head.headers, &record);
                if will_close {
                    announce_close(&mut head.headers);
                }
                record.set_sent_status(head.status.as_u16(), ResponseSource::Origin);
                let observer = origin_observer(record, outcome_recorder, service_guard);
                let body = ResponseBody::streamed(body, observer);
                Ok(Response::from_parts(head, body))
            }
            Ok(ExchangeResponse::Local(mut response)) => {
                preferences.add_trace_headers(response.headers_mut(), &record);
                if will_close {
                    announce_close(response.headers_mut());
                }
                Ok(local_response(
                    response,
                    &parts.method,
                    record,
                    service_guard,
                ))
            }
            Ok(ExchangeResponse::ClientLeft) => Err(CloseConnection),
            Ok(ExchangeResponse::Forwarded(answer)) => {
                record.discard();
                let OwnerAnswer::Response(response) = *answer else {
                    return Err(CloseConnection);
                };
                let (mut head, body) = response.into_parts();
                if will_close {
                    announce_close(&mut head.headers);
                }
                head.version = http::Version::HTTP_11;
                let body = ResponseBody::forwarded(body, unrecorded_observer(Some(service_guard)));
                Ok(Response::from_parts(head, body))
            }
            Ok(ExchangeResponse::NotOwner(response)) => {
                record.discard();
                Ok(unrecorded_response(
                    *response,
                    &parts.method,
                    Some(service_guard),
                ))
            }
            Err(refusal) => {
                let response =
                    service.refusal_response(&refusal, &preferences, &snapshot, &mut record);
                let mut response = response.ok_or(CloseConnection)?;
                if will_close {
                    announce_close(response.headers_mut());
                }
                Ok(local_response(
                    response,
                    &parts.method,
                    record,
                    service_guard,
                ))
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
        name_lookup: evaluation.times().addresses,
        robots_fetch: evaluation.times().robots,
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
    record.set_url_retention(evaluation.url_retention_after_sending());
}

fn record_evaluation(record: &mut RequestRecord, evaluation: &Evaluation) {
    record_policy(record, evaluation);
    if let Some(source) = evaluation.effects().source() {
        record.set_source(source);
    }
}

/// Returns the response to OPTIONS whose `Max-Forwards` is 0: the capabilities of the proxy itself (RFC 9110 section 9.3.7).
fn options_response() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    response.headers_mut().insert(
        http::header::ALLOW,
        HeaderValue::from_static(local_reply::ALLOWED_METHODS),
    );
    response
}

/// Returns the refusal of a request that ended in a panic. The log may keep nothing of its URL.
pub(super) fn internal_error(record: &RequestRecord) -> Refusal {
    Refusal {
        url_retention: record.url_retention(),
        ..Refusal::new(Reason::InternalError, record.stage())
    }
}

fn announce_close(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
}

/// Returns the refusal of a response whose body is invalid from its first byte.
fn broken_start_refusal(error: BodyError, evaluation: &Evaluation) -> BoxedRefusal {
    let stage = match error {
        BodyError::TooLarge => Stage::Response,
        BodyError::Incomplete | BodyError::ClientLeft | BodyError::Idle | BodyError::LeaseEnded => {
            Stage::Upstream
        }
    };
    document::broken_body_refusal(error, stage, evaluation.url_retention_after_sending())
}

/// Returns the refusal of a response that is not valid HTTP.
fn invalid_response_refusal(evaluation: &Evaluation) -> BoxedRefusal {
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
