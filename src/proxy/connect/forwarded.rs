//! CONNECT at a node of a fleet: a tunnel whose bytes the proxy does not see goes through the owner of its host.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Response;
use hyper::ext::ReasonPhrase;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};

use crate::fleet::FleetNode;
use crate::fleet::forward_header::{ForwardHeader, TargetForm};
use crate::fleet::link::{LinkDownload, LinkTunnel};
use crate::fleet::owners::HostOwnership;
use crate::pipeline::tunnel::TunnelFacts;
use crate::proxy::drain::DrainWatch;
use crate::proxy::forward::{ForwardCall, ForwardOutcome, not_owner_response, unavailable};
use crate::proxy::head::{ClientIo, ClientSocket};
use crate::proxy::http::{BoxedRefusal, ProxyService};
use crate::proxy::tunnel::wait_cut_off;
use crate::urls::target::HostTarget;

use super::{ConnectAnswer, ConnectExchange, TunnelMode};

/// The largest body of a refusal by the owner.
const MAX_REFUSAL: usize = 1 << 20;

/// The node that serves a CONNECT.
pub(super) enum ConnectRoute {
    /// This one; with its ownership of the host, if it is a node of a fleet.
    Here(Option<HostOwnership>),
    Answered(ConnectAnswer),
}

impl ConnectExchange<'_> {
    /// Returns the ownership of the host, or the answer of the node that owns it.
    pub(super) async fn route_in_fleet(
        &mut self,
        fleet: &Arc<FleetNode>,
        facts: &TunnelFacts,
        began: Instant,
    ) -> Result<ConnectRoute, BoxedRefusal> {
        let TunnelFacts { host, crawler } = facts;
        let service = self.service;
        let parts = &self.parts;
        let owner = match fleet.owners.own(host.host()) {
            Ok(ownership) => return Ok(ConnectRoute::Here(Some(ownership))),
            Err(owner) => owner,
        };
        if self.context.entry_node().is_some() {
            let response = not_owner_response(&owner);
            return Ok(ConnectRoute::Answered(ConnectAnswer::Unrecorded(response)));
        }
        let id = self.record.id().to_text();
        let profile = self.preferences.profile(service.profile);
        let limit = service.admission_queue.max_wait();
        let call = ForwardCall {
            host: host.host(),
            method: &parts.method,
            uri: parts.uri.clone(),
            headers: &parts.headers,
            authority: host.authority(),
            header: ForwardHeader {
                entry: fleet.name.clone(),
                crawler: crawler.as_str().into(),
                client: self.context.caller.address(),
                id: (*id).into(),
                version: parts.version,
                form: TargetForm::Resource,
                deadline: None,
                is_traced: false,
            },
            upload: None,
            max_hold: profile.max_hold().min(limit),
            began,
            record: &mut self.record,
        };
        let recorder = &service.recorder;
        match call
            .run(fleet, recorder.clock(), recorder.metrics())
            .await?
        {
            ForwardOutcome::Here(ownership) => Ok(ConnectRoute::Here(Some(ownership))),
            ForwardOutcome::CloseConnection => {
                Ok(ConnectRoute::Answered(ConnectAnswer::CloseConnection))
            }
            ForwardOutcome::Answered(response) => {
                let answer = tunnel_answer(host, response).await;
                answer.map(ConnectRoute::Answered).ok_or_else(|| {
                    unavailable(
                        "the link to the owner of the host broke off",
                        fleet.retry_after(Duration::ZERO),
                    )
                })
            }
        }
    }
}

impl ProxyService {
    /// Relays bytes between a client and the owner of its tunnel until either ends. The owner checks and counts them.
    pub(super) async fn relay_to_owner(
        &self,
        client: ClientSocket,
        tunnel: LinkTunnel,
        drain: &mut DrainWatch,
    ) {
        let _gauge = self.recorder.metrics().track_tunnel();
        let watch = client.watch();
        let LinkTunnel { mut stream, unread } = tunnel;
        let mut client = ClientIo::new(client, self.tunnels.settings.idle);
        let relay = async {
            client.write_all(&unread).await?;
            copy_bidirectional(&mut client, &mut stream).await
        };
        let relayed = tokio::select! {
            relayed = relay => relayed.is_ok(),
            () = wait_cut_off(drain) => false,
        };
        if !relayed {
            // An orderly close could be taken for the end of the data.
            watch.reset_on_drop();
        }
    }
}

/// Returns the answer of an owner to a CONNECT; `None` if the link breaks off.
async fn tunnel_answer(
    host: &HostTarget,
    response: Response<LinkDownload>,
) -> Option<ConnectAnswer> {
    let (head, body) = response.into_parts();
    if head.status.is_success() {
        let tunnel = Box::new(body.into_tunnel().await.ok()?);
        let mode = TunnelMode::Forwarded(tunnel);
        return Some(ConnectAnswer::Granted(host.clone(), mode));
    }
    let mut answer = Response::new(body.read_all(MAX_REFUSAL).await.ok()?);
    *answer.status_mut() = head.status;
    *answer.headers_mut() = head.headers;
    if let Some(phrase) = head.extensions.get::<ReasonPhrase>() {
        answer.extensions_mut().insert(phrase.clone());
    }
    Some(ConnectAnswer::Unrecorded(answer))
}
