//! What is counted of TLS: handshakes, certificates made, and clients that do not trust them.
//!
//! Nothing here speaks TLS.

use std::time::{Duration, SystemTime};

use prometheus::{Histogram, IntCounter, IntGauge};

use super::labels::TlsSide;
use super::series::{Error, Registrar, increment};
use super::{CrawlerIndex, Metrics, names};

pub(super) struct TlsFamilies {
    handshakes: Box<[Histogram]>,
    leaf_certificates: IntCounter,
    certificate_waits: IntCounter,
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
            leaf_certificates: new.counter(&names::LEAF_CERTIFICATES)?,
            certificate_waits: new.counter(&names::MINT_WAITS)?,
            not_after: new.gauge(&names::CA_NOT_AFTER)?,
        })
    }
}

impl Metrics {
    /// A handshake with a client has succeeded.
    pub fn record_client_handshake(&self, time: Duration) {
        self.record_handshake(TlsSide::Client, time);
    }

    /// A handshake with an origin has succeeded.
    pub fn record_origin_handshake(&self, time: Duration) {
        self.record_handshake(TlsSide::Origin, time);
    }

    fn record_handshake(&self, side: TlsSide, time: Duration) {
        let families = self.enabled_families();
        if let Some(histogram) = families.and_then(|f| f.tls.handshakes.get(side as usize)) {
            histogram.observe(time.as_secs_f64());
        }
    }

    /// A client broke off the handshake inside its tunnel, or could not finish it.
    pub fn record_client_handshake_failure(&self, crawler: CrawlerIndex) {
        let families = self.enabled_families();
        increment(
            families
                .and_then(|f| f.crawler_series(crawler))
                .map(|series| &series.tls_failures),
        );
    }

    /// A certificate was made for a host.
    pub fn record_leaf_certificate(&self) {
        increment(
            self.enabled_families()
                .map(|families| &families.tls.leaf_certificates),
        );
    }

    /// A handshake must wait until its client may have another certificate made.
    pub fn record_certificate_wait(&self) {
        increment(
            self.enabled_families()
                .map(|families| &families.tls.certificate_waits),
        );
    }

    /// When the authority that signs expires; times before 1970 are shown as 1970.
    pub fn set_ca_expiry(&self, at: SystemTime) {
        let since = at
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        self.0
            .tls
            .not_after
            .set(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    }
}
