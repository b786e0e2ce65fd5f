//! One HTTP exchange: from hyper's request to the answer, and the record that goes with it.

mod bare_response;
mod early_end;

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE};
use http::{HeaderValue, Request, Response, request, response};
use hyper::body::Incoming;

use crate::metrics::labels::ResponseSource;
use crate::metrics::record::{Recorder, RequestRecord};
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::crawlers::CrawlerRegistry;
use crate::pipeline::evaluation::{Evaluation, RequestFacts};
use crate::pipeline::permit::Permit;
use crate::pipeline::refusal::{Refusal, RefusalForm};
use crate::pipeline::request::{
    Ledger, RequestOutcome, RequestResult, RequestServices, WaitContext,
};
use crate::pipeline::response::ResponseAnnotations;
use crate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crate::pipeline::stage::identify::identify;
use crate::pipeline::stage::outcome::{self, OutcomeRecorder};
use crate::pipeline::stage::recrawl;
use crate::pipeline::{request as gate_request, response as gate_response};

use super::body::{BodyTimeLimits, RequestUpload, ResponseBody, ResponseDownload};
use super::connect::ConnectionContext;
use super::destination::AddressVetter;
use super::document::{self, OutgoingBody};
use super::head::ServiceGuard;
use super::header_filter::{self, ResponseFraming, UnknownTransferCoding, ViaName};
use super::intercept::Interceptor;
use super::local_reply::{self, ProfileSelection, ReplyPreferences};
use super::request_target::{self, EnclosingTunnel, ForwardMode, RequestTarget};
use super::robots::RobotsFileCache;
use super::robots_tag;
use super::service_response::{Hangup, ServiceResult, local_response, origin_observer};
use super::timing::{self, WaitTimes};
use super::tunnel::TunnelLimiter;
use super::upstream::{UpstreamClient, UpstreamError, UpstreamRequest, UpstreamResponse};

pub use bare_response::bare_refusal;
use early_end::discard_body;
pub(crate) use early_end::{CaughtPanic, catch_panic};

/// Everything that an exchange needs.
#[derive(Debug)]
pub struct ProxyService {
    /// The policy.
    pub active_policy: Arc<ActivePolicy>,
    /// Where requests wait for their host's turn.
    pub admission_queue: Arc<AdmissionQueue>,
    /// Names, and which addresses may be dialled.
    pub address_vetter: Arc<AddressVetter>,
    /// Hosts' robots.txt.
    pub robots: RobotsFileCache,
    /// What is remembered of URLs, once a policy needs that.
    pub ledger: Arc<OnceLock<Ledger>>,
    /// Origins.
    pub upstream: Arc<UpstreamClient>,
    /// Records.
    pub recorder: Recorder,
    /// This process in `Via`.
    pub via: ViaName,
    /// How crawlers are answered.
    pub profile: ProfileSelection,
    /// Tunnels.
    pub tunnels: TunnelLimiter,
    /// What looks into them; none without a certificate authority.
    pub interceptor: Option<Arc<Interceptor>>,
    /// Who may ask, and how each is recognised.
    pub crawlers: CrawlerRegistry,
    /// Bytes of a request's body.
    pub max_request_body: u64,
    /// How long a request's body may take.
    pub body_time_limits: BodyTimeLimits,
}

/// An origin's answer that may be passed on.
struct OriginResponse {
    head: response::Parts,
    body: OutgoingBody,
    outcome_recorder: Option<Box<OutcomeRecorder>>,
}

/// An answer on its way through the stages behind the origin.
struct PendingResponse {
    head: response::Parts,
    body: OutgoingBody,
    marks: ResponseAnnotations,
}

pub(crate) type BoxedRefusal = Box<Refusal>;

impl ProxyService {
    /// Answers one request. Its record ends with the last byte of the answer, or with the client.
    ///
    /// # Errors
    /// [`Hangup`], if this crawler is refused by closing its connection.
    pub fn handle_request<'a>(
        &'a self,
        request: Request<Incoming>,
        open: ServiceGuard,
        context: &'a ConnectionContext,
    ) -> impl Future<Output = ServiceResult> + Send + 'a {
        // No `async fn`: that would keep the request beside its parts, and hyper moves the whole future for each.
        let (mut parts, body) = request.into_parts();
        async move {
            self.recorder.log().wait_if_full().await;
            // Boxed, since hyper moves it with the answer, several times.
            let mut record = Box::new(
                self.recorder
                    .begin(self.recorder.clock().now(), &parts.method),
            );
            record.set_client(context.caller.address());
            let mut snapshot = self.active_policy.load();
            if let Some(ledger) = self.ledger.get().filter(|_| snapshot.uses_ledger) {
                ledger.wait_if_full().await;
            }
            let mut asker = ReplyPreferences::from_headers(&parts.headers);
            asker.record_parent_span(&mut record);
            let made = {
                let passed = self.process(
                    &mut parts,
                    body,
                    context,
                    &mut asker,
                    &mut snapshot,
                    &mut record,
                );
                catch_panic(pin!(passed)).await
            };
            let made = made.unwrap_or_else(|CaughtPanic| {
                Err(Box::new(Refusal::new(
                    Reason::InternalError,
                    record.stage(),
                )))
            });
            match made {
                Ok(ExchangeOutcome::Origin(OriginResponse {
                    mut head,
                    body,
                    outcome_recorder: learning,
                })) => {
                    asker.add_trace_headers(&mut head.headers, &record);
                    record.set_sent_status(head.status.as_u16(), ResponseSource::Origin);
                    let guard = origin_observer(record, learning, open);
                    Ok(Response::from_parts(
                        head,
                        ResponseBody::streamed(body, guard),
                    ))
                }
                Ok(ExchangeOutcome::Local(mut response)) => {
                    asker.add_trace_headers(response.headers_mut(), &record);
                    Ok(local_response(response, &parts.method, record, open))
                }
                Ok(ExchangeOutcome::ClientLeft) => Err(Hangup),
                Err(refusal) => {
                    match self.refusal_response(&refusal, &asker, &snapshot, &mut record) {
                        Some(response) => Ok(local_response(response, &parts.method, record, open)),
                        None => Err(Hangup),
                    }
                }
            }
        }
    }

    /// The whole way of a request: each step may refuse it. The snapshot becomes the one that judged it last. What is
    /// sent on is taken out of the parts.
    async fn process(
        &self,
        parts: &mut request::Parts,
        body: Incoming,
        context: &ConnectionContext,
        preferences: &mut ReplyPreferences,
        snapshot: &mut Arc<PolicySnapshot>,
        record: &mut RequestRecord,
    ) -> Result<ExchangeOutcome, BoxedRefusal> {
        let who = match identify(&self.crawlers, &context.caller, &parts.headers).await {
            Ok(who) => who,
            Err(refusal) => return Err(Box::pin(discard_body(refusal, parts, body)).await),
        };
        record.set_crawler(who.index);
        preferences.set_crawler(&who.crawler, record);
        record.enter_stage(Stage::Target);
        let (target, journey) = match self.parse_target(parts, context.enclosing_tunnel()) {
            Ok(RequestTarget {
                target,
                forward_mode: journey,
            }) => (target, journey),
            Err(refusal) => return Err(Box::pin(discard_body(refusal, parts, body)).await),
        };
        record.set_target(&target);
        if let Some(closed) = context
            .enclosing_tunnel()
            .and_then(EnclosingTunnel::refused)
        {
            closed.forget_connect_record();
            *snapshot = Arc::clone(&closed.policy);
            record.set_policy(&snapshot.counters);
            return Err(Box::pin(discard_body(closed.refusal.clone(), parts, body)).await);
        }
        let asked = RequestFacts::new(target, who.crawler, parts);
        let RequestResult {
            outcome,
            evaluation: mut judged,
            wait_time: held,
        } = {
            let profile = || preferences.refusal_style(self.profile).profile;
            let waits = WaitContext {
                admission: &self.admission_queue,
                profile: &profile,
            };
            let (destinations, ledger) = (&*self.address_vetter, self.ledger.get());
            let way = RequestServices {
                destinations,
                robots: &self.robots,
                active_policy: &self.active_policy,
                wait: waits,
                ledger,
            };
            gate_request::admit_request(asked, Arc::clone(snapshot), &way).await
        };
        record_evaluation(record, &judged);
        let waited = WaitTimes {
            resolved_in: judged.lookup_time,
            fetched_in: judged.robots_fetch_time,
            held,
        };
        let decided = timing::record_decision(record, waited);
        if !Arc::ptr_eq(snapshot, &judged.snapshot) {
            *snapshot = Arc::clone(&judged.snapshot);
        }
        let permit = match forward_permit(outcome, journey) {
            Ok(permit) => permit,
            Err(LocalReply::Response(response)) => return Ok(ExchangeOutcome::Local(*response)),
            Err(LocalReply::Refused(refusal)) => {
                outcome::record_early_refusal(&judged, &refusal, &self.admission_queue);
                return Err(Box::pin(discard_body(refusal, parts, body)).await);
            }
        };
        let mut learning = OutcomeRecorder::for_request(&judged);
        let call = self.build_upstream_request(parts, body, &mut judged, record);
        let answered = self.upstream.send(permit, call, decided).await;
        if let (Some(learning), Ok(answered)) = (&mut learning, &answered) {
            learning.set_address(answered.address.ip());
        }
        let answer = match record_origin_response(answered, decided, record) {
            Err(error) if error.is_client_left() => return Ok(ExchangeOutcome::ClientLeft),
            answer => answer.map_err(Refusal::from),
        };
        let answer = answer.map_err(|r| {
            Box::new(Refusal {
                url_detail: judged.url_detail(r.stage),
                ..r
            })
        });
        let answer = answer.and_then(|answer| {
            self.run_response_stage(
                answer,
                preferences,
                &mut judged,
                record,
                learning.as_deref_mut(),
            )
        });
        // What stays in the request's future is big enough without a document: those are settled in one of their own.
        let staged = match answer {
            Ok(answer) if document::is_needed(&judged, &answer.head) => {
                Box::pin(self.run_document_stage(answer, judged, record, learning, held))
            }
            answer => return self.finish_response(answer, &judged, learning, held),
        };
        staged.await
    }

    /// The end of the way: the answer as it is passed on, or its refusal.
    fn finish_response(
        &self,
        answer: Result<PendingResponse, BoxedRefusal>,
        evaluation: &Evaluation,
        mut outcome_recorder: Option<Box<OutcomeRecorder>>,
        held: Option<Duration>,
    ) -> Result<ExchangeOutcome, BoxedRefusal> {
        let PendingResponse {
            mut head,
            body,
            marks,
        } = answer.inspect_err(|refusal| {
            outcome_recorder
                .iter_mut()
                .for_each(|learning| learning.record_refusal(refusal, &self.admission_queue));
        })?;
        self.prepare_response_head(&mut head, marks, evaluation);
        if let Some(held) = held {
            local_reply::set_held(&mut head.headers, held);
        }
        Ok(ExchangeOutcome::Origin(OriginResponse {
            head,
            body,
            outcome_recorder,
        }))
    }

    fn parse_target(
        &self,
        parts: &request::Parts,
        tunnel: Option<&EnclosingTunnel>,
    ) -> Result<RequestTarget, BoxedRefusal> {
        let entry = request_target::parse_request(parts, &self.via, tunnel)?;
        let length = parts
            .headers
            .get(CONTENT_LENGTH)
            .and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > self.max_request_body) {
            return Err(Box::new(body_too_large()));
        }
        Ok(entry)
    }

    /// A client's request as the origin gets it.
    fn build_upstream_request(
        &self,
        parts: &mut request::Parts,
        body: Incoming,
        evaluation: &mut Evaluation,
        record: &mut RequestRecord,
    ) -> UpstreamRequest {
        record.enter_stage(Stage::Upstream);
        let mut headers = std::mem::take(&mut parts.headers);
        request_target::decrement_max_forwards(&parts.method, &mut headers);
        header_filter::filter_request(
            &mut headers,
            evaluation.facts.target.authority(),
            parts.version,
            &self.via,
        );
        if evaluation.facts.changes_origin() {
            // They were meant for the origin that the crawler named.
            headers.remove(AUTHORIZATION);
            headers.remove(COOKIE);
        }
        evaluation.effects().apply_to_request(&mut headers);
        document::prepare_request(&mut headers, evaluation);
        recrawl::add_conditions(evaluation, &mut headers);
        let target = &evaluation.facts.target;
        let received = std::mem::take(&mut parts.uri).into_parts().path_and_query;
        let uri = received
            .filter(|p| p.as_str() == target.path_and_query())
            .map(Into::into);
        let body = RequestUpload::new(
            body,
            self.max_request_body,
            self.body_time_limits
                .with_overrides(evaluation.body_timeouts()),
        );
        if let Some(watch) = body.watch() {
            record.set_upload_meter(Arc::clone(watch.byte_counter()));
        }
        UpstreamRequest {
            method: parts.method.clone(),
            headers,
            body,
            uri,
        }
    }

    /// The document stage, for the few answers that come to it, and the end of their way.
    async fn run_document_stage(
        &self,
        answer: PendingResponse,
        mut evaluation: Evaluation,
        record: &mut RequestRecord,
        mut outcome_recorder: Option<Box<OutcomeRecorder>>,
        held: Option<Duration>,
    ) -> Result<ExchangeOutcome, BoxedRefusal> {
        let PendingResponse {
            mut head,
            body: OutgoingBody::Streamed(download),
            marks,
        } = answer
        else {
            return self.finish_response(Ok(answer), &evaluation, outcome_recorder, held);
        };
        record.enter_stage(Stage::Document);
        let metrics = self.recorder.metrics();
        let staged = document::run_stage(
            &mut evaluation,
            &mut head,
            download,
            outcome_recorder.as_deref_mut(),
            metrics,
        )
        .await;
        record_evaluation(record, &evaluation);
        self.finish_response(
            staged.map(|body| PendingResponse { head, body, marks }),
            &evaluation,
            outcome_recorder,
            held,
        )
    }

    /// The response stage.
    fn run_response_stage(
        &self,
        response: Response<Box<ResponseDownload>>,
        preferences: &ReplyPreferences,
        evaluation: &mut Evaluation,
        record: &mut RequestRecord,
        outcome_recorder: Option<&mut OutcomeRecorder>,
    ) -> Result<PendingResponse, BoxedRefusal> {
        let (mut head, mut download) = response.into_parts();
        match header_filter::normalize_framing(&mut head.headers) {
            Ok(_) if head.status.is_informational() => return Err(unreadable_response()),
            Ok(ResponseFraming::Unambiguous) => {}
            Ok(ResponseFraming::Ambiguous) => download.forbid_reuse(),
            Err(UnknownTransferCoding) => return Err(unreadable_response()),
        }
        record.enter_stage(Stage::Response);
        let asked = preferences.conditional();
        let verdict = gate_response::evaluate_response(
            evaluation,
            &head,
            asked,
            outcome_recorder,
            &self.admission_queue,
        );
        record_evaluation(record, evaluation);
        // Refused: the connection is dropped with the body, of which no byte was passed on.
        let marks = verdict?;
        // As the rules on sizes: an error page is passed on.
        if let Some(most) = evaluation.max_body().filter(|_| head.status.is_success()) {
            download.set_limit(most);
        }
        download.set_timeouts(evaluation.body_timeouts());
        Ok(PendingResponse {
            head,
            body: OutgoingBody::Streamed(download),
            marks,
        })
    }

    /// The head of an answer that passed, as the client gets it.
    fn prepare_response_head(
        &self,
        parts: &mut response::Parts,
        marks: ResponseAnnotations,
        evaluation: &Evaluation,
    ) {
        header_filter::filter_response(&mut parts.headers, parts.status, parts.version, &self.via);
        if let Some(asked) = evaluation.facts.rewritten_from() {
            header_filter::rewrite_for_requested_url(
                &mut parts.headers,
                asked,
                &evaluation.facts.target,
            );
        }
        local_reply::set_marks(&mut parts.headers, marks);
        evaluation
            .crawl_tags()
            .for_each(|tag| local_reply::append_tag(&mut parts.headers, tag));
        evaluation.effects().apply_to_response(&mut parts.headers);
        if let Some(tag) = evaluation.effects().robots_tag() {
            robots_tag::merge(&mut parts.headers, tag);
        }
        parts.version = http::Version::HTTP_11;
    }

    /// The answer to a refused request; none for a crawler that is hung up on.
    pub(crate) fn refusal_response(
        &self,
        refusal: &Refusal,
        preferences: &ReplyPreferences,
        snapshot: &PolicySnapshot,
        record: &mut RequestRecord,
    ) -> Option<Response<Bytes>> {
        record.enter_stage(refusal.stage);
        record.set_rejected(
            refusal.reason,
            refusal.cause.map(|rule| rule.0),
            refusal.url_detail,
        );
        let decision = record.id().to_text();
        let in_force = local_reply::PolicyLabel {
            name: snapshot.policy.name(),
            revision: snapshot.policy.revision(),
        };
        let mut response = match refusal.form {
            RefusalForm::Problem => local_reply::refusal_response(
                refusal,
                preferences.refusal_style(self.profile),
                in_force,
                &decision,
            ),
            RefusalForm::RobotsTxt => Some(local_reply::disallow_all_robots_txt(
                refusal, in_force, &decision,
            )),
        }?;
        preferences.add_trace_headers(response.headers_mut(), record);
        Some(response)
    }
}

/// What became of a request that was not refused.
enum ExchangeOutcome {
    /// The origin's answer.
    Origin(OriginResponse),
    /// One of our own.
    Local(Response<Bytes>),
    /// None: the client left in the middle of its request.
    ClientLeft,
}

/// What is said in place of sending a request on.
enum LocalReply {
    Response(Box<Response<Bytes>>),
    Refused(BoxedRefusal),
}

/// The permit of a request that goes on to the origin.
fn forward_permit<V>(
    outcome: RequestOutcome<V>,
    forward_mode: ForwardMode,
) -> Result<Permit<V>, LocalReply> {
    match outcome {
        RequestOutcome::Forward(_) if forward_mode == ForwardMode::AnswerLocally => {
            Err(LocalReply::Response(options_response().into()))
        }
        RequestOutcome::Forward(permit) => Ok(permit),
        RequestOutcome::ServeRobots(known) => Err(LocalReply::Response(
            local_reply::known_robots_txt(&known).into(),
        )),
        RequestOutcome::Refuse(refusal) => Err(LocalReply::Refused(refusal)),
    }
}

/// Tells the record what has come from the origin.
fn record_origin_response(
    answered: Result<UpstreamResponse, UpstreamError>,
    began: Instant,
    record: &mut RequestRecord,
) -> Result<Response<Box<ResponseDownload>>, UpstreamError> {
    let answered = answered.inspect_err(|error| {
        if !error.is_client_left() && !matches!(error, UpstreamError::BackingOff(_)) {
            timing::record_failure(record, error, began);
        }
    })?;
    record.set_address(answered.address.ip());
    let ttfb = timing::record_first_byte(record, &answered, began);
    let response = answered.response;
    record.set_origin_response(
        response.status().as_u16(),
        response.headers().get(CONTENT_TYPE),
        ttfb,
    );
    Ok(response)
}

/// Tells the record what the policy has done so far.
fn record_evaluation(record: &mut RequestRecord, evaluation: &Evaluation) {
    record.set_policy(&evaluation.snapshot.counters);
    record.set_matched_rules(evaluation.matched_rules().iter().map(|rule| rule.0));
    record.set_allowed(evaluation.cause().map(|rule| rule.0));
    record.set_shadows(evaluation.shadow_notes());
    if let Some(source) = evaluation.effects().source() {
        record.set_source(source);
    }
}

/// RFC 9110 section 9.3.7: OPTIONS that goes no further is answered with what the proxy itself can do.
fn options_response() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    response.headers_mut().insert(
        http::header::ALLOW,
        HeaderValue::from_static(local_reply::ALLOWED_METHODS),
    );
    response
}

fn unreadable_response() -> BoxedRefusal {
    Box::new(Refusal::new(Reason::UpstreamProtocol, Stage::Upstream))
}

fn body_too_large() -> Refusal {
    Refusal::new(Reason::RequestTooLarge, Stage::Target)
        .with_detail("the request's body is larger than the limit")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How big the future is that serves a request.
    fn size<'a, F>(
        _: impl FnOnce(&'a ProxyService, Request<Incoming>, ServiceGuard, &'a ConnectionContext) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_serves_a_request_is_small_enough_to_move() {
        assert!(
            size(ProxyService::handle_request) <= 2_816,
            "{}",
            size(ProxyService::handle_request)
        );
    }
}
