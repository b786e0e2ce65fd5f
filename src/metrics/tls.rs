//! Metrics of TLS: handshakes, issued certificates, and clients that do not trust them.

use std::time::{Duration, SystemTime};

use super::labels::{ClientTlsFailureCause, TlsSide};
use super::series::{gauge_value, increment};
use super::{CrawlerIndex, Metrics};

impl Metrics {
    /// Records a successful handshake with a client.
    pub fn record_client_handshake(&self, time: Duration) {
        self.record_handshake(TlsSide::Client, time);
    }

    /// Records a successful handshake with an origin.
    pub fn record_origin_handshake(&self, time: Duration) {
        self.record_handshake(TlsSide::Origin, time);
    }

    fn record_handshake(&self, side: TlsSide, time: Duration) {
        if let Some(histogram) = self
            .enabled_families()
            .and_then(|families| families.tls_handshakes.get(side))
        {
            histogram.observe(time.as_secs_f64());
        }
    }

    /// Counts a handshake that a client has aborted or failed inside its tunnel.
    pub fn record_client_handshake_failure(
        &self,
        crawler: CrawlerIndex,
        cause: ClientTlsFailureCause,
        at: SystemTime,
    ) {
        if self.enabled_families().is_some()
            && let Some(series) = self.crawler_series(crawler)
        {
            increment(series.tls_failure_counter(cause));
            series.activity.record_handshake_failure(cause, at);
        }
    }

    /// Counts a certificate that was issued for a host.
    pub fn record_leaf_certificate(&self) {
        self.update(|families| families.leaf_certificates.inc());
    }

    /// Counts a handshake that has to wait until its client may have another certificate issued.
    pub fn record_certificate_wait(&self) {
        self.update(|families| families.certificate_waits.inc());
    }

    /// Sets the time at which the certificate authority expires; 0 for times before 1970.
    pub fn set_ca_expiry(&self, at: SystemTime) {
        let timestamp = at
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        self.families()
            .ca_not_after
            .set(gauge_value(timestamp.as_secs()));
    }
}
