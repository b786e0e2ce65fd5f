//! The interface to the proxy's robots.txt fetcher, and the request by which it gets the permit to fetch one.

pub mod inspection;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::certificate_verification::CertificateVerification;
use crate::model::crawler::Crawler;
use crate::model::http_versions::OriginHttpVersions;
use crate::pacing::pace::{HostPace, RequestKind};
use crate::pacing::queue::WaitOrder;
use crate::policy::options::politeness::{Overflow, PaceKey};
use crate::policy::options::timeouts::OriginTimeouts;
use crate::robots::state::RobotsState;
use crate::urls::target::UrlTarget;

use super::admission::{AdmissionQueue, WaitTerms};
use super::destination::{DestinationError, DestinationResolver, EgressChoice};
use super::permit::{Permit, SendOptions};
use super::stage::pace::{PaceSubject, Pacing};
use super::stage::{class, stop};

/// Provides the robots.txt of hosts, from memory or by fetching them.
pub trait RobotsProvider {
    /// Returns the known state of the target's host. It is called for every request, so it neither waits nor allocates.
    ///
    /// What came from a host whose certificate was not verified is only for requests that skip the verification, too.
    fn cached(&self, target: &UrlTarget, verify: CertificateVerification) -> Option<CachedRobots>;

    /// Returns the last state of the target's host in which its rules were known, even if it has expired: for requests
    /// that are not sent to the host.
    fn last_known(
        &self,
        target: &UrlTarget,
        verify: CertificateVerification,
    ) -> Option<Arc<RobotsState>>;

    /// Begins to fetch a file that is no longer fresh, or was not fetched after `newer_than`; no request waits for that. Does
    /// nothing, and does not call `fetch_request`, while a fetch is running.
    fn refresh(
        &self,
        target: &UrlTarget,
        verify: CertificateVerification,
        newer_than: Option<Instant>,
        fetch_request: impl FnOnce() -> RobotsFetchRequest,
    );

    /// Fetches a file that is not known, or waits for a fetch that is running. A fetch goes on if the request that
    /// began it has left.
    fn fetch(
        &self,
        target: &UrlTarget,
        fetch_request: RobotsFetchRequest,
    ) -> impl Future<Output = Arc<RobotsState>> + Send;
}

/// The cached state of a host's robots.txt.
#[derive(Debug)]
pub enum CachedRobots {
    Fresh(Arc<RobotsState>),
    /// It is no longer fresh, and applies while a newer one is fetched.
    Expired(Arc<RobotsState>),
}

/// The permission to fetch robots.txt for a crawler: paced and checked like the request that needs it.
#[derive(Clone, Debug)]
pub struct RobotsFetchRequest {
    /// The product token of the crawler, for `User-Agent`.
    pub agent: Box<str>,
    /// The crawler that it is fetched for.
    pub crawler: Crawler,
    /// The key of the limiter.
    pub key: PaceKey,
    /// The limits of the key.
    pub pace: HostPace,
    /// The limits of the address, if it has any.
    pub per_address: Option<HostPace>,
    /// The order of the queue that it may have to wait in.
    pub order: WaitOrder,
    /// The admission queue.
    pub admission: Arc<AdmissionQueue>,
    /// The verification of the first host's certificate. Those of other hosts are always verified.
    pub verify: CertificateVerification,
    /// The versions of HTTP that may be used.
    pub versions: OriginHttpVersions,
    /// The parent proxy through which it is fetched.
    pub parent: Option<Box<str>>,
}

/// The reason why a robots.txt cannot be requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RobotsPermitError {
    /// There is no address to dial.
    Destination(DestinationError),
    /// Its turn does not come in time.
    WaitTooLong,
}

impl RobotsFetchRequest {
    /// Checks one hop of the fetch and waits for the host's turn, for at most `max_wait`.
    ///
    /// # Errors
    /// If it may not be sent.
    pub async fn acquire_permit<D: DestinationResolver>(
        &self,
        target: &UrlTarget,
        verify: CertificateVerification,
        destinations: &D,
        max_wait: Duration,
    ) -> Result<Permit<UrlTarget, D::Addresses>, RobotsPermitError> {
        let egress = EgressChoice {
            crawler: &self.crawler,
            parent: self.parent.as_deref(),
        };
        let vetted = destinations
            .vet(target, egress)
            .await
            .map_err(RobotsPermitError::Destination)?;
        if let Some(remaining) = destinations.connect_backoff(&vetted) {
            return Err(RobotsPermitError::Destination(
                DestinationError::ConnectionRefused(remaining),
            ));
        }
        let subject = PaceSubject {
            pacing: Pacing {
                key: self.key,
                pace: self.pace,
                per_address: self.per_address,
            },
            overflow: Overflow::Hold,
            host: target.host(),
            kind: RequestKind::Navigation,
            crawler: &self.crawler,
            resource: target.as_str(),
        };
        let mut max_wait = max_wait;
        let mut arrival = None;
        let slot = loop {
            max_wait = stop::wait_for_host_stops(target.host(), self, max_wait)
                .await
                .ok_or(RobotsPermitError::WaitTooLong)?;
            let terms = || WaitTerms {
                max_wait,
                rank: class::robots_rank(self.order),
            };
            let slot = subject
                .acquire_slot(&vetted, &self.admission, &mut arrival, terms)
                .await;
            let slot = slot.map_err(|_| RobotsPermitError::WaitTooLong)?;
            // The slot is returned unused if the host was stopped while it waited.
            if !stop::is_host_stopped(target.host(), self) {
                break slot;
            }
        };
        // The file is for all crawlers, so the configuration's timeouts apply.
        let manner = SendOptions {
            verify,
            versions: self.versions,
            timeouts: OriginTimeouts::default(),
        };
        Ok(Permit::new(target.clone(), vetted, slot, manner))
    }
}
