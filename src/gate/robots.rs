//! What the gate asks of whoever fetches robots.txt, and what it gives him: the right to send that one request.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::options::politeness::{Overflow, PaceKey};
use crate::policy::options::timeouts::ToOrigin;
use crate::politeness::pace::{Class, Pace};
use crate::robots::standing::Known;
use crate::store::Key;
use crate::vocab::crawler::Crawler;
use crate::vocab::target::UrlTarget;
use crate::vocab::verify::Verify;

use super::destination::{Addresses, Destinations, Unreachable};
use super::hold::{Asking, Hold};
use super::permit::{Manner, Permit};
use super::stage::pace;

/// Knows hosts' robots.txt, from memory or by fetching them.
pub trait RobotsFiles {
    /// What is known of the target's host and is fresh: asked by every request, so it neither waits nor allocates.
    ///
    /// What came from a host whose certificate was not verified is for requests alone that need no more.
    fn known(&self, target: &UrlTarget, verify: Verify) -> Option<Arc<Known>>;

    /// Fetches what is not known, or waits for a fetch that is under way. A fetch goes on if who began it has left.
    fn fetch(&self, target: &UrlTarget, errand: Errand) -> impl Future<Output = Arc<Known>> + Send;
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
        let vetted = destinations.vet(target).await.map_err(NotSent::Unreachable)?;
        let address = if self.key == PaceKey::Address { vetted.first() } else { None };
        let address = address.as_ref().map(IpAddr::to_string);
        let name = pace::name(self.key, address.as_deref(), target.host());
        let asking = Asking {
            key: Key { name, class: Class::Navigation },
            pace: self.pace,
            overflow: Overflow::Hold,
            crawler: &self.crawler,
            what: target.as_str(),
        };
        let slot = self.hold.admit(&asking, &mut None, || patience).await.map_err(|_| NotSent::Held)?;
        // What is fetched is for all who ask, so it takes the configuration's time.
        let manner = Manner { verify, timeouts: ToOrigin::default() };
        Ok(Permit::new(target.clone(), vetted, slot, manner))
    }
}
