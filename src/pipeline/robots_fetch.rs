//! What the gate asks of whoever fetches robots.txt, and what it gives him: the right to send that one request.

pub mod inspection;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::model::certificate_verification::CertificateVerification;
use crate::model::crawler::Crawler;
use crate::pacing::pace::{HostPace, RequestKind};
use crate::pacing::queue::WaitOrder;
use crate::policy::options::politeness::{Overflow, PaceKey};
use crate::policy::options::timeouts::OriginTimeouts;
use crate::robots::state::RobotsState;
use crate::urls::target::UrlTarget;

use super::admission::{AdmissionQueue, WaitTerms};
use super::destination::{DestinationError, DestinationResolver};
use super::permit::{Permit, SendOptions};
use super::stage::pace::{PaceSubject, Pacing};
use super::stage::{class, stop};

/// Knows hosts' robots.txt, from memory or by fetching them.
pub trait RobotsProvider {
    /// What is known of the target's host: asked by every request, so it neither waits nor allocates.
    ///
    /// What came from a host whose certificate was not verified is for requests alone that need no more.
    fn cached(&self, target: &UrlTarget, verify: CertificateVerification) -> Option<CachedRobots>;

    /// Begins to fetch what is past its freshness, for nobody waits; nothing happens while a fetch is under way, and then
    /// no errand is made.
    fn refresh(
        &self,
        target: &UrlTarget,
        verify: CertificateVerification,
        errand: impl FnOnce() -> RobotsFetchRequest,
    );

    /// Fetches what is not known, or waits for a fetch that is under way. A fetch goes on if who began it has left.
    fn fetch(
        &self,
        target: &UrlTarget,
        errand: RobotsFetchRequest,
    ) -> impl Future<Output = Arc<RobotsState>> + Send;
}

/// What is known of a host's robots.txt.
#[derive(Debug)]
pub enum CachedRobots {
    /// It needs no other fetch yet.
    Fresh(Arc<RobotsState>),
    /// It is past that, and holds while a newer one is fetched.
    Expired(Arc<RobotsState>),
}

/// The right to fetch robots.txt for a crawler: paced and vetted like the request that it is for.
#[derive(Clone, Debug)]
pub struct RobotsFetchRequest {
    /// The product token of the crawler, for `User-Agent`.
    pub agent: Box<str>,
    /// Who asks.
    pub crawler: Crawler,
    /// What is paced as one.
    pub key: PaceKey,
    /// How its requests are paced.
    pub pace: HostPace,
    /// How those to its address are.
    pub per_address: Option<HostPace>,
    /// In which order those wait that it may have to wait among.
    pub order: WaitOrder,
    /// Where they wait.
    pub admission: Arc<AdmissionQueue>,
    /// Whether the certificate of the host that is asked first must be verified; of any other it must.
    pub verify: CertificateVerification,
}

/// Why a robots.txt cannot be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RobotsPermitError {
    /// There is no address to dial.
    Destination(DestinationError),
    /// Its turn would not come in time.
    WaitTooLong,
}

impl RobotsFetchRequest {
    /// Vets one hop of the fetch and waits for the host's turn, for as long as `patience`.
    ///
    /// # Errors
    /// If it may not be sent.
    pub async fn acquire_permit<D: DestinationResolver>(
        &self,
        target: &UrlTarget,
        verify: CertificateVerification,
        destinations: &D,
        patience: Duration,
    ) -> Result<Permit<UrlTarget, D::Addresses>, RobotsPermitError> {
        let vetted = destinations
            .vet(target)
            .await
            .map_err(RobotsPermitError::Destination)?;
        if let Some(left) = destinations.connect_cooldown(&vetted) {
            return Err(RobotsPermitError::Destination(
                DestinationError::ConnectionRefused(left),
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
        let (mut patience, mut arrival) = (patience, None);
        let slot = loop {
            patience = stop::wait_for_host_stops(target.host(), self, patience)
                .await
                .ok_or(RobotsPermitError::WaitTooLong)?;
            let terms = || WaitTerms {
                patience,
                rank: class::robots_rank(self.order),
            };
            let slot = subject
                .admit(&vetted, &self.admission, &mut arrival, terms)
                .await;
            let slot = slot.map_err(|_| RobotsPermitError::WaitTooLong)?;
            // Its turn goes back unused if the host was stopped while it waited for that.
            if !stop::is_host_stopped(target.host(), self) {
                break slot;
            }
        };
        // What is fetched is for all who ask, so it takes the configuration's time.
        let manner = SendOptions {
            verify,
            timeouts: OriginTimeouts::default(),
        };
        Ok(Permit::new(target.clone(), vetted, slot, manner))
    }
}
