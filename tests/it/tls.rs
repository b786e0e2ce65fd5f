//! Certificates for crawlers: what the authority signs, how often, for whom, and what it never shows.

mod commands;
mod files;
mod leaves;
mod rates;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::tls::{CertificateAuthority, CertificateIssuer, IssueError, LeafCertificate};

use crate::support::temp_dir::TempDir;

/// The client of these tests.
const CLIENT: &str = "192.0.2.1";
/// Long enough for whatever must succeed.
const PATIENT: Duration = Duration::from_secs(20);

/// A minter with an authority of its own.
struct Mint {
    minter: Arc<CertificateIssuer>,
    metrics: Metrics,
}

impl Mint {
    fn new(hosts_kept: u64, per_second: u32, clock: Clock) -> Self {
        let folder = TempDir::new();
        let (cert, key) = files(&folder);
        let authority = CertificateAuthority::create(&cert, &key, clock.wall_time()).unwrap();
        let metrics = Metrics::new(&[], &[]).unwrap();
        let minter =
            CertificateIssuer::new(authority, hosts_kept, per_second, clock, metrics.clone())
                .unwrap();
        Self {
            minter: Arc::new(minter),
            metrics,
        }
    }

    async fn leaf(&self, host: &str) -> Arc<LeafCertificate> {
        self.minter
            .get_or_issue(host, client(), PATIENT)
            .await
            .unwrap()
    }

    async fn asked_at_once(
        &self,
        host: &str,
        client: &str,
    ) -> Result<Arc<LeafCertificate>, IssueError> {
        self.minter
            .get_or_issue(host, client.parse().unwrap(), Duration::ZERO)
            .await
    }

    /// The value of a series without labels.
    fn counted(&self, name: &str) -> u64 {
        let text = self.metrics.render();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
    }

    fn made(&self) -> u64 {
        self.counted("crawlgate_leaf_certificates_total")
    }

    fn waits(&self) -> u64 {
        self.counted("crawlgate_mint_waits_total")
    }
}

fn client() -> IpAddr {
    CLIENT.parse().unwrap()
}

/// Where the authority's certificate and key are.
fn files(folder: &TempDir) -> (PathBuf, PathBuf) {
    (
        folder.path().join("certs/ca.pem"),
        folder.path().join("certs/ca.key"),
    )
}
