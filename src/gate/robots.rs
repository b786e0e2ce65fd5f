//! What the gate asks of whoever fetches robots.txt, and what it gives him: the right to send that one request.

pub mod seen;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::options::politeness::{Overflow, PaceKey};
use crate::policy::options::timeouts::ToOrigin;
use crate::politeness::order::Order;
use crate::politeness::pace::{Kind, Pace};
use crate::robots::standing::Known;
use crate::vocab::crawler::Crawler;
use crate::vocab::target::UrlTarget;
use crate::vocab::verify::Verify;

use super::destination::{Destinations, Unreachable};
use super::hold::{Hold, Terms};
use super::permit::{Manner, Permit};
use super::stage::pace::{Pacing, Subject};
use super::stage::{class, stop};

/// Knows hosts' robots.txt, from memory or by fetching them.
pub trait RobotsFiles {
    /// What is known of the target's host: asked by every request, so it neither waits nor allocates.
    ///
    /// What came from a host whose certificate was not verified is for requests alone that need no more.
    fn known(&self, target: &UrlTarget, verify: Verify) -> Option<Found>;

    /// Begins to fetch what is past its freshness, for nobody waits; nothing happens while a fetch is under way, and then
    /// no errand is made.
    fn renew(&self, target: &UrlTarget, verify: Verify, errand: impl FnOnce() -> Errand);

    /// Fetches what is not known, or waits for a fetch that is under way. A fetch goes on if who began it has left.
    fn fetch(&self, target: &UrlTarget, errand: Errand) -> impl Future<Output = Arc<Known>> + Send;
}

/// What is known of a host's robots.txt.
#[derive(Debug)]
pub enum Found {
    /// It needs no other fetch yet.
    Fresh(Arc<Known>),
    /// It is past that, and holds while a newer one is fetched.
    Past(Arc<Known>),
}

/// The right to fetch robots.txt for a crawler: paced and vetted like the request that it is for.
#[derive(Clone, Debug)]
pub struct Errand {
    /// The product token of the crawler, for `User-Agent`.
    pub agent: Box<str>,
    /// Who asks.
    pub crawler: Crawler,
    /// What is paced as one.
    pub key: PaceKey,
    /// How its requests are paced.
    pub pace: Pace,
    /// How those to its address are.
    pub per_address: Option<Pace>,
    /// In which order those wait that it may have to wait among.
    pub order: Order,
    /// Where they wait.
    pub hold: Arc<Hold>,
    /// Whether the certificate of the host that is asked first must be verified; of any other it must.
    pub verify: Verify,
}

/// Why a robots.txt cannot be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// There is no address to dial.
    Unreachable(Unreachable),
    /// Its turn would not come in time.
    Held,
}

impl Errand {
    /// Vets one hop of the fetch and waits for the host's turn, for as long as `patience`.
    ///
    /// # Errors
    /// If it may not be sent.
    pub async fn permit<D: Destinations>(
        &self,
        target: &UrlTarget,
        verify: Verify,
        destinations: &D,
        patience: Duration,
    ) -> Result<Permit<D::Vetted>, NotSent> {
        let vetted = destinations
            .vet(target)
            .await
            .map_err(NotSent::Unreachable)?;
        if let Some(left) = destinations.refusing(&vetted) {
            return Err(NotSent::Unreachable(Unreachable::Refusing(left)));
        }
        let subject = Subject {
            pacing: Pacing {
                key: self.key,
                pace: self.pace,
                per_address: self.per_address,
            },
            overflow: Overflow::Hold,
            host: target.host(),
            kind: Kind::Navigation,
            crawler: &self.crawler,
            what: target.as_str(),
        };
        let (mut patience, mut arrival) = (patience, None);
        let slot = loop {
            patience = stop::outlast_host(target.host(), self, patience)
                .await
                .ok_or(NotSent::Held)?;
            let terms = || Terms {
                patience,
                rank: class::rank_of_robots(self.order),
            };
            let slot = subject
                .admit(&vetted, &self.hold, &mut arrival, terms)
                .await;
            let slot = slot.map_err(|_| NotSent::Held)?;
            // Its turn goes back unused if the host was stopped while it waited for that.
            if !stop::covers_host(target.host(), self) {
                break slot;
            }
        };
        // What is fetched is for all who ask, so it takes the configuration's time.
        let manner = Manner {
            verify,
            timeouts: ToOrigin::default(),
        };
        Ok(Permit::new(target.clone(), vetted, slot, manner))
    }
}
