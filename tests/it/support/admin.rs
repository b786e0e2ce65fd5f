//! An admin server in the test process: no hosts, no ledger and no decisions unless the test provides them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crawlgate::admin::decisions::DecisionsApi;
use crawlgate::admin::guard::AdminGuard;
use crawlgate::admin::health::Readiness;
use crawlgate::admin::hosts::HostsApi;
use crawlgate::admin::ledger::LedgerApi;
use crawlgate::admin::policy_api::PolicyApi;
use crawlgate::admin::rollout::RolloutApi;
use crawlgate::admin::status::ProcessInfo;
use crawlgate::admin::stops::StopsApi;
use crawlgate::admin::{AdminApis, AdminServer};
use crawlgate::clock::Clock;
use crawlgate::diagnostics::problem::{Problem, SourceLocation};
use crawlgate::ledger::removal::RemovalGuardSettings;
use crawlgate::metrics::Metrics;
use crawlgate::metrics::log::tap::{LogTap, TapBounds};
use crawlgate::model::profile::Profile;
use crawlgate::pipeline::admission::{AdmissionLimits, AdmissionQueue};
use crawlgate::pipeline::reload::{ReloadHandle, ReloadOutcome};
use crawlgate::pipeline::robots_fetch::inspection::{OriginInspector, RobotsFileStatus};
use crawlgate::pipeline::rollout::RolloutHandle;
use crawlgate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crawlgate::pipeline::stop_registry::StopRegistry;
use crawlgate::pipeline::sweep::LedgerSweeper;
use crawlgate::pipeline::sweep::removals::RemovalScheduler;
use crawlgate::policy::compile;
use crawlgate::store::HostStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::pipeline::dry_runner;
use super::wait::TIMEOUT;

const LIMITS: AdmissionLimits = AdmissionLimits {
    per_host: 100,
    total: 1_000,
    max_wait: Duration::from_secs(3_600),
};

#[derive(Debug)]
struct NoOrigins;

impl OriginInspector for NoOrigins {
    fn robots(&self, _host: &str) -> Vec<RobotsFileStatus> {
        Vec::new()
    }

    fn addresses(&self, _host: &str) -> Vec<IpAddr> {
        Vec::new()
    }

    fn refusing_addresses(&self, _host: &str) -> Vec<(SocketAddr, Duration)> {
        Vec::new()
    }
}

/// The APIs of an admin server with these parts; the other parts are empty.
pub(crate) fn apis(metrics: Metrics, policy: PolicyApi, stops: StopsApi) -> AdminApis {
    let clock = Clock::system();
    let queue = AdmissionQueue::new(
        HostStore::with_seed(1),
        LIMITS,
        clock.clone(),
        metrics.clone(),
    );
    AdminApis {
        metrics,
        readiness: Readiness::new(Vec::new),
        process: ProcessInfo::new("it", clock.clone()),
        authorities: None,
        fleet: None,
        decisions: DecisionsApi::new(LogTap::new(TapBounds::DEFAULT)),
        hosts: HostsApi::new(Arc::new(queue), Arc::new(NoOrigins), None),
        ledger: LedgerApi::new(
            Arc::default(),
            LedgerSweeper::new(1, clock.clone()),
            removal_scheduler(clock.clone()),
            Arc::default(),
            Arc::clone(&policy.active_policy),
            clock,
        ),
        // No change of the policy is made: its queue is closed.
        rollout: RolloutApi::new(Err("no policies".into()), RolloutHandle::new().0),
        policy,
        stops,
    }
}

/// The APIs of an admin server with the built-in policy, in which every reload finds one error.
pub(crate) fn default_apis() -> AdminApis {
    default_apis_with(Metrics::new(&[], &[]).unwrap())
}

/// As [`default_apis`], with these metrics.
pub(crate) fn default_apis_with(metrics: Metrics) -> AdminApis {
    let policy = compile::load_builtin().unwrap().policy;
    let counters = metrics.register_policy(policy.name(), policy.revision(), [], &Clock::system());
    let (reloads, reloader) = ReloadHandle::new(Clock::system());
    tokio::spawn(reloader.serve(|_| async {
        let location = SourceLocation::for_file(&"policy.yaml".into());
        ReloadOutcome::Refused(vec![Problem::error(&location, "no good")])
    }));
    let active_policy = Arc::new(ActivePolicy::new(PolicySnapshot::new(policy, counters)));
    let stops = StopRegistry::new(1, Clock::system(), metrics.clone());
    let stops = StopsApi {
        stops: Arc::new(stops),
        active_policy: Arc::clone(&active_policy),
        crawlers: Arc::default(),
    };
    let policy = PolicyApi {
        dry_runner: dry_runner(&active_policy),
        active_policy,
        reloads,
        crawlers: Arc::default(),
        default_profile: Profile::Generic,
    };
    apis(metrics, policy, stops)
}

/// A listening admin server.
pub(crate) struct TestAdmin {
    pub(crate) address: SocketAddr,
}

impl TestAdmin {
    pub(crate) async fn start(guard: AdminGuard, apis: AdminApis) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = AdminServer::new(guard, apis, AdminServer::MAX_CONNECTIONS);
        tokio::spawn(server.serve(listener, std::future::pending()));
        Self { address }
    }

    /// Sends bytes and reads until the server closes.
    pub(crate) async fn exchange(&self, request: impl AsRef<[u8]>) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may respond and close before it has read everything.
        let _ = stream.write_all(request.as_ref()).await;
        let mut response = Vec::new();
        let read = stream.read_to_end(&mut response);
        let _ = tokio::time::timeout(TIMEOUT, read)
            .await
            .expect("the server closes");
        String::from_utf8(response).unwrap()
    }

    /// Sends a request with a valid Host and these header fields, each line with its CRLF.
    pub(crate) async fn request(&self, line: &str, fields: &str, body: &[u8]) -> String {
        let length = match body.len() {
            0 => String::new(),
            length => format!("Content-Length: {length}\r\n"),
        };
        let address = self.address;
        let head = format!("{line} HTTP/1.1\r\nHost: {address}\r\n{fields}{length}\r\n");
        self.exchange([head.as_bytes(), body].concat()).await
    }
}

/// A scheduler of removals with the defaults of the configuration.
pub(crate) fn removal_scheduler(clock: Clock) -> RemovalScheduler {
    RemovalScheduler::new(
        RemovalGuardSettings::default(),
        1_000_000,
        Arc::default(),
        clock,
    )
}
