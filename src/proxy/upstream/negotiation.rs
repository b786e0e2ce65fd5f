//! The version of HTTP that each origin speaks, as far as it is known, and the dials to origins that
//! speak HTTP/2: one connection is enough for all requests that wait for it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::model::certificate_verification::CertificateVerification;
use crate::model::http_versions::OriginHttpVersions;
use crate::proxy::parents::ConnectionRoute;
use crate::proxy::pool::PoolKey;

/// The maximum number of origins whose version is remembered.
const MAX_ORIGINS: u64 = 10_000;
/// The time after which it is forgotten.
const TTL: Duration = Duration::from_hours(12);

/// The version of HTTP of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownVersion {
    /// It has selected HTTP/2.
    Http2,
    /// It has selected HTTP/2 and then required HTTP/1.1 for a request.
    Http1Required,
}

/// The known versions of origins.
#[derive(Debug)]
pub(super) struct VersionMemory {
    origins: Cache<Box<str>, KnownVersion>,
    dials: Arc<Mutex<Dials>>,
}

/// The dials in progress. A receiver ends when its dial has ended.
type Dials = HashMap<DialKey, watch::Receiver<()>>;

type DialKey = (Box<str>, CertificateVerification, ConnectionRoute);

/// A dial that other requests wait for. Dropping it ends their wait.
#[derive(Debug)]
pub(super) struct DialGuard {
    dials: Arc<Mutex<Dials>>,
    key: DialKey,
    _sender: watch::Sender<()>,
}

impl Drop for DialGuard {
    fn drop(&mut self) {
        self.dials.lock().remove(&self.key);
    }
}

impl VersionMemory {
    pub(super) fn new() -> Self {
        Self {
            origins: Cache::builder()
                .max_capacity(MAX_ORIGINS)
                .time_to_live(TTL)
                .build(),
            dials: Arc::default(),
        }
    }

    /// Returns the version of an origin, given the start of its URLs, unless it speaks HTTP/1.1 or
    /// is not known.
    pub(super) fn get(&self, base: &str) -> Option<KnownVersion> {
        self.origins.get(base)
    }

    /// Remembers the version that an origin has selected. `offered` are those that it could select.
    pub(super) fn record_selection(&self, base: &str, offered: OriginHttpVersions, is_http2: bool) {
        match (offered, self.get(base)) {
            (OriginHttpVersions::Http1, _) => {}
            (OriginHttpVersions::Http1And2, Some(KnownVersion::Http2)) if !is_http2 => {
                self.origins.invalidate(base);
            }
            (OriginHttpVersions::Http1And2, None) if is_http2 => {
                self.origins.insert(base.into(), KnownVersion::Http2);
            }
            (OriginHttpVersions::Http1And2, _) => {}
        }
    }

    /// Remembers that an origin requires HTTP/1.1, so that HTTP/2 is not offered to it.
    pub(super) fn record_http1_required(&self, base: &str) {
        self.origins
            .insert(base.into(), KnownVersion::Http1Required);
    }

    /// Waits for a dial that is in progress. If there is none, returns the right to dial, for which
    /// others wait.
    pub(super) async fn begin_dial_or_wait(&self, key: PoolKey<'_>) -> Option<DialGuard> {
        let mut running = match self.join(key) {
            Ok(guard) => return Some(guard),
            Err(running) => running,
        };
        // An error: nothing is ever sent.
        let _ = running.changed().await;
        None
    }

    fn join(&self, key: PoolKey<'_>) -> Result<DialGuard, watch::Receiver<()>> {
        let key = (key.base.into(), key.verify, key.route.clone());
        match self.dials.lock().entry(key) {
            Entry::Occupied(running) => Err(running.get().clone()),
            Entry::Vacant(vacant) => {
                let (sender, receiver) = watch::channel(());
                let key = vacant.key().clone();
                vacant.insert(receiver);
                Ok(DialGuard {
                    dials: Arc::clone(&self.dials),
                    key,
                    _sender: sender,
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PoolKey<'static> = PoolKey {
        base: "https://a.test/",
        verify: CertificateVerification::On,
        route: &ConnectionRoute::DIRECT,
    };

    #[test]
    fn the_version_of_an_origin_is_remembered_until_it_selects_another() {
        let memory = VersionMemory::new();
        let (any, one) = (OriginHttpVersions::Http1And2, OriginHttpVersions::Http1);
        for (offered, is_http2, expected) in [
            (any, false, None),
            (any, true, Some(KnownVersion::Http2)),
            (one, false, Some(KnownVersion::Http2)),
            (any, false, None),
        ] {
            memory.record_selection(KEY.base, offered, is_http2);
            assert_eq!(memory.get(KEY.base), expected);
        }
        memory.record_http1_required(KEY.base);
        memory.record_selection(KEY.base, any, true);
        assert_eq!(memory.get(KEY.base), Some(KnownVersion::Http1Required));
        assert_eq!(memory.get("https://b.test/"), None);
    }

    #[tokio::test]
    async fn requests_wait_for_one_dial() {
        let memory = VersionMemory::new();
        let guard = memory.begin_dial_or_wait(KEY).await;
        assert!(guard.is_some());
        let other = PoolKey {
            verify: CertificateVerification::Skip,
            ..KEY
        };
        assert!(memory.begin_dial_or_wait(other).await.is_some());
        let (waited, ()) = tokio::join!(memory.begin_dial_or_wait(KEY), async {
            tokio::task::yield_now().await;
            drop(guard);
        });
        assert!(waited.is_none());
        assert!(memory.begin_dial_or_wait(KEY).await.is_some());
    }
}
