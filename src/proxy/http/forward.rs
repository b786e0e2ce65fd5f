//! A request at a node of a fleet: it is served here if this node owns its host, and forwarded to the owner otherwise.

use std::time::{Duration, Instant};

use http::{HeaderMap, Response, Uri};

use crate::fleet::FleetNode;
use crate::fleet::forward_header::{ForwardHeader, TargetForm};
use crate::fleet::link::LinkDownload;
use crate::fleet::owners::HostOwnership;
use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::pipeline::facts::RequestFacts;
use crate::pipeline::request::{IncomingRequest, RequestResult, admit_request};
use crate::proxy::destination::VettedAddresses;
use crate::proxy::forward::{
    ForwardCall, ForwardOutcome, ForwardedUpload, not_owner_response, unavailable,
};
use crate::proxy::request_target::RequestHandling;
use crate::urls::target::UrlTarget;

use super::{BoxedRefusal, Exchange, ExchangeResponse};

/// The result of the stages before the origin at a node of a fleet.
pub(super) enum FleetAdmission {
    /// This node owns the host, and the request has been through the stages.
    Evaluated(Box<RequestResult<VettedAddresses>>),
    /// Another node has answered, or must be asked.
    Finished(ExchangeResponse),
}

/// The answer of the owner.
pub(super) enum OwnerAnswer {
    Response(Response<LinkDownload>),
    /// The connection to the crawler is closed.
    CloseConnection,
}

/// A request whose crawler and target are known.
struct LocatedRequest<'a, 'e> {
    exchange: &'a Exchange<'e>,
    received: &'a FleetRequest,
}

impl IncomingRequest for LocatedRequest<'_, '_> {
    async fn identify(&mut self) -> Result<Crawler, BoxedRefusal> {
        Ok(self.received.crawler.clone())
    }

    fn target(&mut self) -> Result<UrlTarget, BoxedRefusal> {
        Ok(self.received.target.clone())
    }

    fn facts(&self, target: UrlTarget, crawler: Crawler) -> RequestFacts {
        let mut facts = self.exchange.facts(target, crawler);
        if let Some(deadline) = self.received.deadline {
            let wait = facts.max_wait.unwrap_or(deadline);
            facts.max_wait = Some(wait.min(deadline));
        }
        facts
    }

    fn profile(&self) -> Profile {
        self.exchange.profile()
    }
}

/// A request at a node of a fleet, as it was received: its host may get another owner before it is sent.
pub(super) struct FleetRequest {
    crawler: Crawler,
    target: UrlTarget,
    /// The fields and the target of the request while it is on its way to an origin.
    head: Option<(HeaderMap, Uri)>,
    began: Instant,
    /// The time for which it may be held in all.
    limit: Duration,
    /// The time for which it may still be held, if it has waited.
    deadline: Option<Duration>,
    /// The ownership under which it was admitted last.
    ownership: Option<HostOwnership>,
}

impl Exchange<'_> {
    /// Takes a request through the stages before the origin if this node owns its host, and forwards it otherwise. A
    /// request whose host gets another owner while it is held, or before it is sent, is forwarded then.
    pub(super) async fn admit_in_fleet(
        &mut self,
        fleet: &FleetNode,
    ) -> Result<FleetAdmission, BoxedRefusal> {
        let mut request = match self.fleet_request.take() {
            None => Box::new(self.receive_in_fleet().await?),
            Some(mut moved) => {
                self.restore(&mut moved);
                moved
            }
        };
        loop {
            let ownership = match fleet.owners.own(request.target.host()) {
                Ok(ownership) => ownership,
                Err(owner) if self.context.entry_node().is_some() => {
                    return if self.context.enclosing_tunnel().is_some() {
                        Err(unavailable(
                            "the host of this tunnel has got another owner",
                            fleet.retry_after(Duration::ZERO),
                        ))
                    } else {
                        let response = Box::new(not_owner_response(&owner));
                        Ok(FleetAdmission::Finished(ExchangeResponse::NotOwner(
                            response,
                        )))
                    };
                }
                Err(_) => match self.forward(fleet, &request).await? {
                    ForwardOutcome::Here(ownership) => {
                        request.deadline = Some(self.remaining(&request));
                        ownership
                    }
                    ForwardOutcome::Answered(response) => {
                        let answer = Box::new(OwnerAnswer::Response(response));
                        return Ok(FleetAdmission::Finished(ExchangeResponse::Forwarded(
                            answer,
                        )));
                    }
                    ForwardOutcome::CloseConnection => {
                        let answer = Box::new(OwnerAnswer::CloseConnection);
                        return Ok(FleetAdmission::Finished(ExchangeResponse::Forwarded(
                            answer,
                        )));
                    }
                },
            };
            if let Some(result) = self.admit_while_owned(&request, &ownership).await? {
                request.head = Some((self.parts.headers.clone(), self.parts.uri.clone()));
                request.ownership = Some(ownership);
                self.fleet_request = Some(request);
                return Ok(FleetAdmission::Evaluated(result));
            }
            request.deadline = Some(self.remaining(&request));
        }
    }

    /// Identifies the crawler and the target of a new request.
    async fn receive_in_fleet(&mut self) -> Result<FleetRequest, BoxedRefusal> {
        let crawler = self.identify().await?;
        let target = self.target()?;
        let deadline = self.context.entry_node().and_then(|entry| entry.deadline);
        Ok(FleetRequest {
            crawler,
            target,
            head: None,
            began: self.record.clock().now(),
            limit: deadline.unwrap_or_else(|| self.max_hold()),
            deadline,
            ownership: None,
        })
    }

    /// Prepares a request for another owner that was on its way to its origin: it was not sent, or may be sent again.
    fn restore(&mut self, request: &mut FleetRequest) {
        if let Some((headers, uri)) = request.head.take() {
            self.parts.headers = headers;
            self.parts.uri = uri;
        }
        request.deadline = Some(self.remaining(request));
    }

    /// Returns the ownership of the requested host under which the request was admitted, if this is a node of a fleet.
    pub(super) fn ownership(&self) -> Option<&HostOwnership> {
        self.fleet_request.as_ref()?.ownership.as_ref()
    }

    /// Returns the time for which a request may still be held.
    fn remaining(&self, request: &FleetRequest) -> Duration {
        let now = self.record.clock().now();
        let waited = now.saturating_duration_since(request.began);
        request.limit.saturating_sub(waited)
    }

    /// Takes the request through the stages before the origin; `None` if the ownership ends before.
    async fn admit_while_owned(
        &mut self,
        received: &FleetRequest,
        ownership: &HostOwnership,
    ) -> Result<Option<Box<RequestResult<VettedAddresses>>>, BoxedRefusal> {
        let mut upload = std::mem::take(&mut self.upload);
        let snapshot = self.service.active_policy.load();
        let services = self.service.request_services();
        let mut request = LocatedRequest {
            exchange: self,
            received,
        };
        let admitted = admit_request(&mut request, &mut upload, snapshot, &services);
        let result = tokio::select! {
            biased;
            result = admitted => Some(result),
            () = ownership.wait_ended() => None,
        };
        self.upload = upload;
        result.transpose().map(|result| result.map(Box::new))
    }

    /// Forwards the request to the owner of its host, with the time for which it may still be held if it was held here.
    async fn forward(
        &mut self,
        fleet: &FleetNode,
        request: &FleetRequest,
    ) -> Result<ForwardOutcome, BoxedRefusal> {
        let target = &request.target;
        // The canonical form is a valid URI.
        let uri: Uri = target.as_str().parse().map_err(|_| {
            unavailable(
                "the URL cannot be forwarded to the owner of its host",
                fleet.retry_after(Duration::ZERO),
            )
        })?;
        let upload = std::mem::take(&mut self.upload);
        let upload = (!upload.is_empty()).then(|| ForwardedUpload::new(upload));
        let id = self.record.id().to_text();
        let max_hold = self.max_hold();
        let call = ForwardCall {
            host: target.host(),
            method: &self.parts.method,
            uri,
            headers: &self.parts.headers,
            authority: target.authority(),
            header: ForwardHeader {
                entry: fleet.name.clone(),
                crawler: request.crawler.as_str().into(),
                client: self.context.caller.address(),
                id: (*id).into(),
                version: self.parts.version,
                form: match self.handling {
                    RequestHandling::SendForServer => TargetForm::Server,
                    RequestHandling::Send | RequestHandling::AnswerLocally => TargetForm::Resource,
                },
                deadline: request.deadline,
                is_traced: false,
            },
            upload: upload.clone(),
            max_hold,
            began: request.began,
            record: &mut self.record,
        };
        let recorder = &self.service.recorder;
        let outcome = call.run(fleet, recorder.clock(), recorder.metrics()).await;
        if let Some(upload) = upload {
            self.upload = upload.take_back();
        }
        outcome
    }

    /// Returns the longest time for which a request is held at its entry, where the policy is not evaluated.
    fn max_hold(&self) -> Duration {
        let limit = self.service.admission_queue.max_wait();
        self.profile().max_hold().min(limit)
    }
}
