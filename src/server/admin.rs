//! Composes the admin listener of a proxy: the parts that it shows, its access control, and the readiness checks.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::admin::decisions::DecisionsApi;
use crate::admin::fleet::FleetApi;
use crate::admin::guard::{AdminGuard, AdminToken};
use crate::admin::health::{CheckState, HealthCheck, Readiness};
use crate::admin::hosts::HostsApi;
use crate::admin::ledger::LedgerApi;
use crate::admin::policy_api::PolicyApi;
use crate::admin::rollout::RolloutApi;
use crate::admin::status::{HttpsSettings, ListenerInfo, ProcessInfo, ProcessSettings};
use crate::admin::stops::StopsApi;
use crate::admin::{AdminApis, AdminConnections, AdminServer};
use crate::clock::Clock;
use crate::config::canonical_path;
use crate::config::settings::{PolicyOrigin, Settings};
use crate::fleet::FleetNode;
use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::model::rule_id::Slug;
use crate::pipeline::reload::ReloadHandle;
use crate::pipeline::request::dry_run::DryRunner;
use crate::pipeline::rollout::RolloutHandle;
use crate::pipeline::snapshot::ActivePolicy;
use crate::pipeline::sweep::LedgerSweeper;
use crate::pipeline::sweep::removals::RemovalScheduler;
use crate::proxy::destination::{AddressVetter, LOOPBACK_WARNING};
use crate::proxy::http::ProxyService;
use crate::proxy::local_reply::ProfileSelection;
use crate::proxy::parents::ParentConnector;
use crate::tls::CaCertificate;

use super::StartError;
use super::authority;
use super::ca_bundle;
use super::fleet::JoinedNode;
use super::reload::{self, PolicyStoreAccess};

/// The parts of a proxy that the admin listener shows.
pub(super) struct AdminParts {
    /// The addresses of the listeners for crawlers, in the order of the settings.
    pub(super) proxy_addresses: Vec<SocketAddr>,
    pub(super) active_policy: Arc<ActivePolicy>,
    pub(super) reloads: ReloadHandle,
    pub(super) policies: PolicyStoreAccess,
    pub(super) changes: RolloutHandle,
    pub(super) exchange: Arc<ProxyService>,
    /// Set when the proxy shuts down.
    pub(super) draining: Arc<AtomicBool>,
    /// The certificates of the authorities; none if TLS is not intercepted.
    pub(super) certificates: Vec<CaCertificate>,
    /// Set while the configuration file is not the one that was read at the start.
    pub(super) config_changed: Arc<AtomicBool>,
    pub(super) sweeper: LedgerSweeper,
    pub(super) removals: RemovalScheduler,
    /// This node of a fleet.
    pub(super) fleet: Option<JoinedNode>,
}

impl AdminParts {
    /// Creates the server of the admin listener, for at most this number of connections.
    ///
    /// # Errors
    /// If the token cannot be used.
    pub(super) fn into_server(
        self,
        settings: &Settings,
        max_connections: usize,
    ) -> Result<AdminServer, StartError> {
        let token = settings
            .admin
            .token_file
            .as_deref()
            .map(read_token)
            .transpose()?;
        let guard = AdminGuard::new(settings.admin.names.iter().cloned(), token);
        let (policy, stops) = self.policy_and_stops_apis(settings);
        let fleet = self.exchange.fleet.clone().map(|node| FleetApi {
            membership: self.fleet.clone().map(|joined| joined.membership),
            node,
        });
        let recorder = &self.exchange.recorder;
        let log = recorder.log().clone();
        let apis = AdminApis {
            metrics: recorder.metrics().clone(),
            process: ProcessInfo::new(recorder.instance(), recorder.clock().clone())
                .with_settings(process_settings(settings, &self.proxy_addresses)),
            authorities: (!self.certificates.is_empty())
                .then(|| ca_bundle::join_pem(&self.certificates)),
            decisions: DecisionsApi::new(log.tap()),
            ledger: LedgerApi::new(
                Arc::clone(&self.exchange.ledger),
                self.sweeper,
                self.removals.clone(),
                Arc::clone(&policy.crawlers),
                Arc::clone(&policy.active_policy),
                recorder.clock().clone(),
            ),
            readiness: new_readiness(
                policy.clone(),
                &stops,
                Arc::clone(&self.exchange),
                self.draining,
                self.removals,
                StartFiles {
                    certificates: self.certificates,
                    config_changed: self.config_changed,
                    clock: recorder.clock().clone(),
                },
                FleetHealth {
                    node: self.exchange.fleet.clone(),
                    joined: self.fleet,
                },
            ),
            fleet: fleet.clone(),
            rollout: RolloutApi::new(self.policies, self.changes),
            policy,
            stops,
            hosts: HostsApi::new(
                Arc::clone(&self.exchange.admission_queue),
                self.exchange,
                fleet,
            ),
        };
        Ok(AdminServer::new(guard, apis, max_connections))
    }

    fn policy_and_stops_apis(&self, settings: &Settings) -> (PolicyApi, StopsApi) {
        let crawlers: Arc<[Crawler]> = settings
            .crawlers
            .iter()
            .map(|r| r.crawler.clone())
            .collect();
        let stops = StopsApi {
            stops: Arc::clone(self.exchange.admission_queue.stops()),
            active_policy: Arc::clone(&self.active_policy),
            crawlers: Arc::clone(&crawlers),
        };
        let policy = PolicyApi {
            active_policy: Arc::clone(&self.active_policy),
            reloads: self.reloads.clone(),
            crawlers,
            default_profile: match settings.profile {
                ProfileSelection::ByUserAgent => Profile::Generic,
                ProfileSelection::Always(profile) => profile,
            },
            dry_runner: Arc::clone(&self.exchange) as Arc<dyn DryRunner>,
        };
        (policy, stops)
    }
}

/// The running admin server: the signal that stops it, and its connections.
#[derive(Debug)]
pub(super) struct AdminTask {
    pub(super) stop: oneshot::Sender<()>,
    pub(super) connections: AdminConnections,
}

impl AdminTask {
    pub(super) fn spawn(
        server: AdminServer,
        listener: TcpListener,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let connections = server.connections();
        let (stop, stopped) = oneshot::channel();
        tasks.spawn(server.serve(listener, async move {
            let _ = stopped.await;
        }));
        Self { stop, connections }
    }
}

/// Returns the settings that `/api/v1/status` shows, with absolute paths, since its readers run elsewhere.
fn process_settings(settings: &Settings, proxy_addresses: &[SocketAddr]) -> ProcessSettings {
    let tls = &settings.tls;
    ProcessSettings {
        policy_path: match &settings.policy.origin {
            PolicyOrigin::Path(path) => Some(canonical_path(path)),
            PolicyOrigin::BuiltIn => None,
        },
        listeners: proxy_addresses
            .iter()
            .zip(&settings.listen)
            .map(|(address, listener)| ListenerInfo {
                address: *address,
                crawler: listener
                    .crawler
                    .as_ref()
                    .map(|name| name.as_str().to_owned()),
            })
            .collect(),
        https: tls.intercept.then(|| HttpsSettings {
            authorities: tls
                .authorities
                .iter()
                .map(|files| canonical_path(&files.cert))
                .collect(),
            bundle: canonical_path(&tls.bundle),
        }),
        decision_log: match settings.logs.destination.file() {
            Some(path) => canonical_path(path).display().to_string(),
            None => format!("{:?}", settings.logs.destination),
        },
        config: settings.listing.clone(),
    }
}

/// The files that were read at the start: the certificates of the authorities, and the configuration.
struct StartFiles {
    certificates: Vec<CaCertificate>,
    config_changed: Arc<AtomicBool>,
    clock: Clock,
}

impl StartFiles {
    /// Warns before a certificate expires, and of a configuration that is not in effect.
    fn checks(&self) -> impl Iterator<Item = HealthCheck> {
        let expiring = authority::expiry_warnings(&self.certificates, self.clock.wall_time());
        let expiring = expiring.map(|text| HealthCheck::new("authority", CheckState::Warn(text)));
        let has_changed = self.config_changed.load(Ordering::Relaxed);
        let changed = has_changed.then(|| {
            let text = "the file has changed since the start: restart the proxy to use it";
            HealthCheck::new("configuration", CheckState::Warn(text.into()))
        });
        expiring.chain(changed)
    }
}

/// Warns if crawlers can reach the services of this machine.
fn loopback_check(vetter: &AddressVetter) -> Option<HealthCheck> {
    vetter
        .allows_loopback()
        .then(|| HealthCheck::new("egress", CheckState::Warn(LOOPBACK_WARNING.into())))
}

/// Warns of parent proxies that cannot be used.
fn parents_check(parents: &ParentConnector) -> Option<HealthCheck> {
    let down: Vec<&str> = parents.down().into_iter().map(Slug::as_str).collect();
    let text = format!("every proxy is down of: {}", down.join(", "));
    (!down.is_empty()).then(|| HealthCheck::new("parents", CheckState::Warn(text)))
}

/// The parts of a node of a fleet that `/readyz` checks.
struct FleetHealth {
    node: Option<Arc<FleetNode>>,
    joined: Option<JoinedNode>,
}

impl FleetHealth {
    fn checks(&self) -> impl Iterator<Item = HealthCheck> {
        let joined = self.joined.as_ref();
        let membership = joined.map(|joined| super::fleet::membership_check(&joined.membership));
        let sharing = joined.and_then(|joined| super::fleet::sharing_check(&joined.sharing));
        let links = self
            .node
            .as_ref()
            .map(|node| super::fleet::links_check(node));
        membership.into_iter().chain(sharing).chain(links)
    }
}

fn read_token(path: &Path) -> Result<AdminToken, StartError> {
    AdminToken::from_file(path)
        .map_err(|error| StartError::Other(format!("admin.token_file {}: {error}", path.display())))
}

fn new_readiness(
    policy: PolicyApi,
    stops: &StopsApi,
    exchange: Arc<ProxyService>,
    draining: Arc<AtomicBool>,
    removals: RemovalScheduler,
    files: StartFiles,
    fleet: FleetHealth,
) -> Readiness {
    let stops = Arc::clone(&stops.stops);
    Readiness::new(move || {
        let drain_state = if draining.load(Ordering::Relaxed) {
            CheckState::Fail("the proxy is shutting down".into())
        } else {
            CheckState::Ok("not draining".into())
        };
        let log_state = match exchange.recorder.log().warning() {
            Some(warning) => CheckState::Warn(warning),
            None => CheckState::Ok("writing".into()),
        };
        let snapshot = policy.active_policy.load();
        let attempt = policy.reloads.last_attempt();
        let outcome = attempt.as_ref().map(|attempt| &attempt.outcome);
        let mut checks = vec![
            HealthCheck::new(
                "policy",
                reload::policy_state(&snapshot, outcome, policy.reloads.running_for()),
            ),
            HealthCheck::new("drain", drain_state),
            HealthCheck::new("decision_log", log_state),
        ];
        if stops.has_write_failed() {
            let message = "the stops would be lost by a restart: store.path cannot be written";
            checks.push(HealthCheck::new("stops", CheckState::Warn(message.into())));
        }
        checks.extend(files.checks());
        checks.extend(loopback_check(&exchange.address_vetter));
        checks.extend(parents_check(exchange.upstream.parents()));
        checks.extend(super::ledger::health_check(&exchange.ledger));
        checks.extend(super::ledger::removals_check(&removals));
        checks.extend(fleet.checks());
        let shadow_outcome = attempt.as_ref().and_then(|attempt| attempt.shadow.as_ref());
        let shadow_state = reload::shadow_policy_state(&snapshot, shadow_outcome);
        checks.extend(shadow_state.map(|state| HealthCheck::new("shadow_policy", state)));
        checks
    })
}
