//! The parts of an admin server that a test does not examine: no hosts, no ledger, no decisions.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crawlgate::admin::AdminApis;
use crawlgate::admin::decisions::DecisionsApi;
use crawlgate::admin::health::Readiness;
use crawlgate::admin::hosts::HostsApi;
use crawlgate::admin::ledger::LedgerApi;
use crawlgate::admin::policy_api::PolicyApi;
use crawlgate::admin::status::ProcessInfo;
use crawlgate::admin::stops::StopsApi;
use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::metrics::log::tap::{LogTap, TapBounds};
use crawlgate::pipeline::admission::{AdmissionLimits, AdmissionQueue};
use crawlgate::pipeline::robots_fetch::inspection::{OriginInspector, RobotsFileStatus};
use crawlgate::pipeline::sweep::LedgerSweeper;
use crawlgate::store::HostStore;

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

/// The parts that a test gives, and empty ones for the rest.
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
        decisions: DecisionsApi::new(LogTap::new(TapBounds::DEFAULT)),
        hosts: HostsApi::new(Arc::new(queue), Arc::new(NoOrigins)),
        ledger: LedgerApi::new(
            Arc::default(),
            LedgerSweeper::new(1, clock.clone()),
            Arc::default(),
            Arc::clone(&policy.active_policy),
            clock,
        ),
        policy,
        stops,
    }
}
