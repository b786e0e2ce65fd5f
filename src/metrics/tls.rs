//! What is counted of TLS: handshakes, certificates made, and clients that do not trust them.
//!
//! Nothing here speaks TLS.

use std::time::{Duration, SystemTime};

use prometheus::{Histogram, IntCounter, IntGauge};

use super::labels::TlsSide;
use super::series::{Error, Registrar, bump};
use super::{CrawlerIndex, Metrics, names};

pub(super) struct TlsFamilies {
    handshakes: Box<[Histogram]>,
    leaves: IntCounter,
    mint_waits: IntCounter,
    not_after: IntGauge,
}

impl TlsFamilies {
    pub(super) fn register(new: &Registrar<'_>) -> Result<Self, Error> {
        let handshakes = new.histograms(&names::TLS_HANDSHAKE)?;
        Ok(Self {
            handshakes: TlsSide::ALL
                .into_iter()
                .map(|side| handshakes.get_metric_with_label_values(&[side.as_str()]))
                .collect::<Result<_, _>>()?,
            leaves: new.counter(&names::LEAF_CERTIFICATES)?,
            mint_waits: new.counter(&names::MINT_WAITS)?,
            not_after: new.gauge(&names::CA_NOT_AFTER)?,
        })
    }
}

impl Metrics {
    /// A handshake with a client has succeeded.
    pub fn client_tls(&self, time: Duration) {
        self.tls_handshake(TlsSide::Client, time);
    }

    /// A handshake with an origin has succeeded.
    pub fn origin_tls(&self, time: Duration) {
        self.tls_handshake(TlsSide::Origin, time);
    }

    fn tls_handshake(&self, side: TlsSide, time: Duration) {
        let families = self.counted();
        if let Some(histogram) = families.and_then(|f| f.tls.handshakes.get(side as usize)) {
            histogram.observe(time.as_secs_f64());
        }
    }

    /// A client broke off the handshake inside its tunnel, or could not finish it.
    pub fn client_tls_failed(&self, crawler: CrawlerIndex) {
        let families = self.counted();
        bump(
            families
                .and_then(|f| f.crawler(crawler))
                .map(|series| &series.tls_failures),
        );
    }

    /// A certificate was made for a host.
    pub fn leaf_made(&self) {
        bump(self.counted().map(|families| &families.tls.leaves));
    }

    /// A handshake must wait until its client may have another certificate made.
    pub fn mint_waits(&self) {
        bump(self.counted().map(|families| &families.tls.mint_waits));
    }

    /// When the authority that signs expires; times before 1970 are shown as 1970.
    pub fn ca_expires(&self, at: SystemTime) {
        let since = at
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        self.0
            .tls
            .not_after
            .set(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    }
}
