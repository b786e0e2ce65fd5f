//! The admin listener's side of a proxy: what it shows, who may ask, and whether the proxy is ready.
//!
//! Nothing is answered here; that is `admin`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::admin::api::PolicyApi;
use crate::admin::guard::{Guard, Token};
use crate::admin::health::{Check, CheckState, Readiness};
use crate::admin::hosts::HostsApi;
use crate::admin::ledger::LedgerApi;
use crate::admin::live::LiveApi;
use crate::admin::status::Process;
use crate::admin::stops::StopsApi;
use crate::admin::{Admin, Connections};
use crate::cli::reload;
use crate::config::settings::{self, Settings};
use crate::gate::reload::Reloads;
use crate::gate::snapshot::InForce;
use crate::gate::sweep::Sweeper;
use crate::metrics::log::Log;
use crate::metrics::policy::PolicyMetrics;
use crate::proxy::http::Exchange;
use crate::vocab::crawler::Crawler;
use crate::vocab::profile::Profile;

use super::StartError;
use super::ledger::{Kept, Swept};

/// The parts of a proxy that are shown.
pub(super) struct Shown {
    pub(super) in_force: Arc<InForce<Arc<PolicyMetrics>>>,
    pub(super) reloads: Reloads,
    pub(super) exchange: Arc<Exchange>,
    /// Whether the proxy goes down.
    pub(super) draining: Arc<AtomicBool>,
    /// The authorities that clients need, if TLS is looked into.
    pub(super) pem: Option<String>,
    /// What sweeps the ledger.
    pub(super) sweeper: Sweeper,
}

impl Shown {
    /// What answers on the admin listener.
    ///
    /// # Errors
    /// If the token cannot be used.
    pub(super) fn server(self, settings: &Settings) -> Result<Admin, StartError> {
        let token = settings
            .admin
            .token_file
            .as_deref()
            .map(token)
            .transpose()?;
        let guard = Guard::new(settings.admin.names.iter().cloned(), token);
        let (policy, stops) = self.policy_and_stops(settings);
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
        let in_force = Arc::clone(&policy.in_force);
        let sweeps = Swept {
            sweeper,
            in_force: Arc::clone(&in_force),
            kept: Arc::clone(&kept),
        };
        let urls = LedgerApi::new(Arc::clone(&kept) as _, Arc::new(sweeps), crawlers, clock)
            .under(in_force);
        let (log, metrics) = (recorder.log().clone(), recorder.metrics().clone());
        let process = Process::new(recorder.instance(), recorder.clock().clone());
        let tap = log.tap();
        let readiness = readiness(policy.clone(), &stops, log, draining, kept);
        let mut server = Admin::new(guard, metrics, readiness, policy, stops).of(process);
        if let Some(pem) = pem {
            server = server.authorities(pem);
        }
        if let Some(tap) = tap {
            server = server.live(LiveApi::new(tap));
        }
        Ok(server
            .ledger(urls)
            .hosts(HostsApi::new(Arc::clone(&exchange.hold), exchange)))
    }

    fn policy_and_stops(&self, settings: &Settings) -> (PolicyApi, StopsApi) {
        let (in_force, reloads) = (Arc::clone(&self.in_force), self.reloads.clone());
        let crawlers: Arc<[Crawler]> = settings
            .crawlers
            .iter()
            .map(|r| r.crawler.clone())
            .collect();
        let stops = StopsApi {
            stops: Arc::clone(self.exchange.hold.stops()),
            in_force: Arc::clone(&in_force),
            crawlers: Arc::clone(&crawlers),
        };
        let profile = match settings.profile {
            settings::ProfileChoice::ByUserAgent => Profile::Generic,
            settings::ProfileChoice::One(profile) => profile,
        };
        (
            PolicyApi {
                in_force,
                reloads,
                crawlers,
                profile,
            },
            stops,
        )
    }
}

/// The admin server: how it is told to take no more connections, and those that it has.
#[derive(Debug)]
pub(super) struct LookedOn {
    pub(super) stop: oneshot::Sender<()>,
    pub(super) connections: Connections,
}

impl LookedOn {
    /// Begins to answer.
    pub(super) fn serve(server: Admin, listener: TcpListener, tasks: &mut JoinSet<()>) -> Self {
        let connections = server.connections();
        let (stop, stopped) = oneshot::channel();
        tasks.spawn(server.serve(listener, async move {
            let _ = stopped.await;
        }));
        Self { stop, connections }
    }
}

fn token(path: &Path) -> Result<Token, StartError> {
    Token::read(path)
        .map_err(|error| StartError::Other(format!("admin.token_file {}: {error}", path.display())))
}

fn readiness(
    policy: PolicyApi,
    stops: &StopsApi,
    log: Log,
    draining: Arc<AtomicBool>,
    kept: Kept,
) -> Readiness {
    let stops = Arc::clone(&stops.stops);
    Readiness::new(move || {
        let drain = if draining.load(Ordering::Relaxed) {
            CheckState::Fail("the proxy is shutting down".into())
        } else {
            CheckState::Ok("not draining".into())
        };
        let last = policy.reloads.last();
        let log = match log.warning() {
            Some(warning) => CheckState::Warn(warning),
            None => CheckState::Ok("writing".into()),
        };
        let snapshot = policy.in_force.load();
        let live = reload::standing(&snapshot, last.as_ref().map(|last| &last.outcome));
        let shadow = last.as_ref().and_then(|last| last.shadow.as_ref());
        let shadow = reload::standing_in_shadow(&snapshot, shadow);
        let mut checks = vec![
            Check::new("policy", live),
            Check::new("drain", drain),
            Check::new("decision_log", log),
        ];
        if stops.is_unkept() {
            let words = "a restart will not know what is stopped: store.path cannot be written";
            checks.push(Check::new("stops", CheckState::Warn(words.into())));
        }
        checks.extend(super::ledger::check(&kept));
        checks.extend(shadow.map(|state| Check::new("shadow_policy", state)));
        checks
    })
}
