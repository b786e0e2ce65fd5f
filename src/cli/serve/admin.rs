//! The admin listener's side of a proxy: what it shows, who may ask, and whether the proxy is ready.
//!
//! Nothing is answered here; that is `admin`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::admin::decisions::DecisionsApi;
use crate::admin::guard::{AdminGuard, AdminToken};
use crate::admin::health::{CheckState, HealthCheck, Readiness};
use crate::admin::hosts::HostsApi;
use crate::admin::ledger::LedgerApi;
use crate::admin::policy_api::PolicyApi;
use crate::admin::status::ProcessInfo;
use crate::admin::stops::StopsApi;
use crate::admin::{AdminConnections, AdminServer};
use crate::cli::reload;
use crate::config::settings::{self, Settings};
use crate::metrics::log::DecisionLog;
use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::pipeline::reload::ReloadHandle;
use crate::pipeline::snapshot::ActivePolicy;
use crate::pipeline::sweep::LedgerSweeper;
use crate::proxy::http::ProxyService;

use super::StartError;
use super::ledger::{LedgerCell, SweepHandle};

/// The parts of a proxy that are shown.
pub(super) struct AdminParts {
    pub(super) active_policy: Arc<ActivePolicy>,
    pub(super) reloads: ReloadHandle,
    pub(super) exchange: Arc<ProxyService>,
    /// Whether the proxy goes down.
    pub(super) draining: Arc<AtomicBool>,
    /// The authorities that clients need, if TLS is looked into.
    pub(super) pem: Option<String>,
    /// What sweeps the ledger.
    pub(super) sweeper: LedgerSweeper,
}

impl AdminParts {
    /// What answers on the admin listener.
    ///
    /// # Errors
    /// If the token cannot be used.
    pub(super) fn into_server(self, settings: &Settings) -> Result<AdminServer, StartError> {
        let token = settings
            .admin
            .token_file
            .as_deref()
            .map(read_token)
            .transpose()?;
        let guard = AdminGuard::new(settings.admin.names.iter().cloned(), token);
        let (policy, stops) = self.policy_and_stops_apis(settings);
        let Self {
            exchange,
            draining,
            pem,
            sweeper,
            ..
        } = self;
        let crawlers = settings
            .crawlers
            .iter()
            .map(|r| r.crawler.clone())
            .collect();
        let (recorder, kept) = (&exchange.recorder, Arc::clone(&exchange.ledger));
        let clock = recorder.clock().clone();
        let in_force = Arc::clone(&policy.active_policy);
        let sweeps = SweepHandle {
            sweeper,
            active_policy: Arc::clone(&in_force),
            ledger: Arc::clone(&kept),
        };
        let urls = LedgerApi::new(Arc::clone(&kept) as _, Arc::new(sweeps), crawlers, clock)
            .with_policy(in_force);
        let (log, metrics) = (recorder.log().clone(), recorder.metrics().clone());
        let process = ProcessInfo::new(recorder.instance(), recorder.clock().clone());
        let tap = log.tap();
        let readiness = new_readiness(policy.clone(), &stops, log, draining, kept);
        let mut server =
            AdminServer::new(guard, metrics, readiness, policy, stops).with_process(process);
        if let Some(pem) = pem {
            server = server.with_authorities(pem);
        }
        if let Some(tap) = tap {
            server = server.with_decisions(DecisionsApi::new(tap));
        }
        Ok(server.with_ledger(urls).with_hosts(HostsApi::new(
            Arc::clone(&exchange.admission_queue),
            exchange,
        )))
    }

    fn policy_and_stops_apis(&self, settings: &Settings) -> (PolicyApi, StopsApi) {
        let (in_force, reloads) = (Arc::clone(&self.active_policy), self.reloads.clone());
        let crawlers: Arc<[Crawler]> = settings
            .crawlers
            .iter()
            .map(|r| r.crawler.clone())
            .collect();
        let stops = StopsApi {
            stops: Arc::clone(self.exchange.admission_queue.stops()),
            active_policy: Arc::clone(&in_force),
            crawlers: Arc::clone(&crawlers),
        };
        let profile = match settings.profile {
            settings::ProfileSetting::ByUserAgent => Profile::Generic,
            settings::ProfileSetting::Fixed(profile) => profile,
        };
        (
            PolicyApi {
                active_policy: in_force,
                reloads,
                crawlers,
                default_profile: profile,
            },
            stops,
        )
    }
}

/// The admin server: how it is told to take no more connections, and those that it has.
#[derive(Debug)]
pub(super) struct AdminTask {
    pub(super) stop: oneshot::Sender<()>,
    pub(super) connections: AdminConnections,
}

impl AdminTask {
    /// Begins to answer.
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

fn read_token(path: &Path) -> Result<AdminToken, StartError> {
    AdminToken::from_file(path)
        .map_err(|error| StartError::Other(format!("admin.token_file {}: {error}", path.display())))
}

fn new_readiness(
    policy: PolicyApi,
    stops: &StopsApi,
    log: DecisionLog,
    draining: Arc<AtomicBool>,
    ledger: LedgerCell,
) -> Readiness {
    let stops = Arc::clone(&stops.stops);
    Readiness::new(move || {
        let drain = if draining.load(Ordering::Relaxed) {
            CheckState::Fail("the proxy is shutting down".into())
        } else {
            CheckState::Ok("not draining".into())
        };
        let last = policy.reloads.last_attempt();
        let log = match log.warning() {
            Some(warning) => CheckState::Warn(warning),
            None => CheckState::Ok("writing".into()),
        };
        let snapshot = policy.active_policy.load();
        let live = reload::policy_state(&snapshot, last.as_ref().map(|last| &last.outcome));
        let shadow = last.as_ref().and_then(|last| last.shadow.as_ref());
        let shadow = reload::shadow_policy_state(&snapshot, shadow);
        let mut checks = vec![
            HealthCheck::new("policy", live),
            HealthCheck::new("drain", drain),
            HealthCheck::new("decision_log", log),
        ];
        if stops.has_write_failed() {
            let words = "a restart will not know what is stopped: store.path cannot be written";
            checks.push(HealthCheck::new("stops", CheckState::Warn(words.into())));
        }
        checks.extend(super::ledger::health_check(&ledger));
        checks.extend(shadow.map(|state| HealthCheck::new("shadow_policy", state)));
        checks
    })
}
