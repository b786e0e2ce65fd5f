//! Composes a node of a fleet: its links to other nodes, and the listener for theirs.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::admin::health::{CheckState, HealthCheck};
use crate::clock::Clock;
use crate::config::settings::Settings;
use crate::fleet::FleetNode;
use crate::fleet::forward_header::MAX_FIELD_BYTES;
use crate::fleet::link::LinkClient;
use crate::fleet::membership::{MembershipHandle, NodeHosts, PreparedNode};
use crate::fleet::owners::HostOwners;
use crate::fleet::sharing::SharingHandle;
use crate::metrics::Metrics;
use crate::proxy::accept::{self, AcceptLimits, ConnectionLimiter, LinkListener};
use crate::proxy::drain::DrainWatch;
use crate::proxy::http::ProxyService;
use crate::tls::fleet::NodeTls;

use super::StartError;

/// The listener for other nodes, before it accepts connections.
pub(super) struct LinkServer {
    tls: Option<Arc<ServerConfig>>,
}

/// Prepares this node's part in its fleet, if the settings have one.
///
/// # Errors
/// If the certificates cannot be used, or nothing says who owns a host.
pub(super) fn prepare(
    settings: &Settings,
    owners: Option<HostOwners>,
    clock: &Clock,
    metrics: &Metrics,
) -> Result<Option<(Arc<FleetNode>, LinkServer)>, StartError> {
    let Some(config) = &settings.fleet else {
        return Ok(None);
    };
    let owners = owners
        .ok_or_else(|| StartError::Other("fleet: nothing says who owns a host".to_owned()))?;
    let tls = match &config.tls {
        Some(files) => {
            let loaded = NodeTls::load(files, config.node.as_str(), clock.wall_time());
            Some(loaded.map_err(Box::new)?)
        }
        None => None,
    };
    let (server, client) = tls.map(|tls| (tls.server, tls.client)).unzip();
    let node = FleetNode {
        name: config.node.clone(),
        owners,
        links: LinkClient::new(client, clock.clone(), metrics.clone()),
        lease: config.lease,
    };
    Ok(Some((Arc::new(node), LinkServer { tls: server })))
}

/// The owners of hosts when a proxy starts.
pub(super) enum FleetStart {
    /// The node joins, and the store says who owns a host.
    Node(Box<PreparedNode>),
    /// The caller says who owns a host.
    Fixed(HostOwners),
}

impl FleetStart {
    pub(super) fn owners(&self) -> HostOwners {
        match self {
            Self::Node(node) => node.owners.clone(),
            Self::Fixed(owners) => owners.clone(),
        }
    }

    /// Lets the node join. `address` is that of the listener for links, and `admin` that of the admin listener.
    pub(super) fn join(
        self,
        settings: &Settings,
        address: Option<SocketAddr>,
        admin: SocketAddr,
        service: &ProxyService,
        tasks: &mut JoinSet<()>,
    ) -> Option<JoinedNode> {
        let Self::Node(node) = self else {
            return None;
        };
        let advertised = settings.fleet.as_ref()?.advertise.or(address)?;
        let admin = admin_url(settings, admin, advertised);
        let metrics = service.recorder.metrics();
        // Before it owns a host that may be stopped.
        let admission = Arc::clone(&service.admission_queue);
        let owners = node.owners.clone();
        let (task, sharing) = node
            .sharing
            .start(Arc::clone(&admission), owners, metrics.clone());
        tasks.spawn(task);
        let hosts = NodeHosts {
            admission,
            robots: Arc::new(service.robots.clone()),
        };
        let policy = Arc::clone(&service.active_policy);
        let revision = Box::new(move || policy.load().policy.revision().to_string());
        Some(JoinedNode {
            membership: node.spawn(advertised, admin, hosts, metrics.clone(), revision, tasks),
            sharing,
        })
    }
}

/// Returns the URL at which people on other machines reach this node's admin listener: its own address, since
/// `admin.public_url` may be that of all nodes together.
fn admin_url(settings: &Settings, admin: SocketAddr, advertised: SocketAddr) -> Option<String> {
    let ip = match admin.ip() {
        ip if ip.is_unspecified() => advertised.ip(),
        ip => ip,
    };
    // A whole fleet may be on one machine.
    if ip.is_loopback() && !advertised.ip().is_loopback() {
        return settings.admin.public_url.as_deref().map(str::to_owned);
    }
    Some(format!("http://{}", SocketAddr::new(ip, admin.port())))
}

/// The tasks of a node that use the store.
#[derive(Clone, Debug)]
pub(super) struct JoinedNode {
    pub(super) membership: MembershipHandle,
    pub(super) sharing: SharingHandle,
}

/// Returns the line of `/readyz` on what nodes share, if there is a problem. Requests go on without it.
pub(super) fn sharing_check(sharing: &SharingHandle) -> Option<HealthCheck> {
    let error = sharing.error()?;
    let state = CheckState::Warn(format!(
        "stops of other nodes may be missing here, and those of this node there; budgets are not shared: {error}"
    ));
    Some(HealthCheck::new("sharing", state))
}

/// Returns the line of `/readyz`.
pub(super) fn membership_check(membership: &MembershipHandle) -> HealthCheck {
    let status = membership.status();
    let because = status
        .error
        .as_ref()
        .map(|error| format!(": {error}"))
        .unwrap_or_default();
    let state = if !status.is_member {
        CheckState::Fail(format!("not a member{because}"))
    } else if status.lease_left.is_zero() {
        CheckState::Fail(format!("no lease{because}"))
    } else if let Some(error) = &status.error {
        CheckState::Warn(error.clone())
    } else if let Some(other) = status.address_conflict() {
        CheckState::Warn(format!(
            "{} has the address of this node, {}: set fleet.listen or fleet.advertise of each to its own",
            other.node, other.address
        ))
    } else {
        CheckState::Ok(format!(
            "{} partitions, {} members",
            status.own,
            status.members.len()
        ))
    };
    HealthCheck::new("fleet", state)
}

/// Returns the check of `/readyz` on the links to other nodes. A missing one does not stop this node from serving
/// requests for other hosts.
pub(super) fn links_check(node: &FleetNode) -> HealthCheck {
    let failures = node.links.failures();
    let state = if failures.is_empty() {
        CheckState::Ok(format!("node {}", node.name))
    } else {
        let nodes = failures
            .iter()
            .map(|(node, error)| format!("{node}: {error}"));
        CheckState::Warn(nodes.collect::<Vec<_>>().join("; "))
    };
    HealthCheck::new("links", state)
}

impl LinkServer {
    /// Spawns the task that accepts links.
    pub(super) fn spawn(
        self,
        listener: TcpListener,
        settings: &Settings,
        service: &Arc<ProxyService>,
        drain: &DrainWatch,
        tasks: &mut JoinSet<()>,
    ) {
        let limits = link_limits(&settings.accept);
        tasks.spawn(accept::serve(
            listener,
            ConnectionLimiter::new(&limits),
            limits.connection(),
            Arc::new(LinkListener::new(Arc::clone(service), self.tls)),
            drain.clone(),
        ));
    }
}

/// Returns the limits of links. All requests of a node come from one address. A forwarded head has the canonical URL,
/// which may be three times as long as the one that the crawler has sent, and one more field.
fn link_limits(clients: &AcceptLimits) -> AcceptLimits {
    let mut limits = *clients;
    limits.per_client = limits.connections;
    limits.http2.clients = false;
    limits.http2.prior_knowledge = false;
    let head = &mut limits.reader.limits;
    head.target = 3 * head.target + MAX_FIELD_BYTES;
    head.bytes += head.target + MAX_FIELD_BYTES;
    head.fields += 4;
    limits
}
