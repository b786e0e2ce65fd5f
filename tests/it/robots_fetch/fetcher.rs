//! The fetcher of robots.txt and what it needs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::http_versions::OriginHttpVersions;
use crawlgate::pacing::pace::HostPace;
use crawlgate::pacing::queue::WaitOrder;
use crawlgate::pipeline::admission::{AdmissionLimits, AdmissionQueue};
use crawlgate::pipeline::robots_fetch::RobotsFetchRequest;
use crawlgate::policy::options::politeness::PaceKey;
use crawlgate::proxy::destination::{AddressVetter, EgressRules};
use crawlgate::proxy::dial::DialLimits;
use crawlgate::proxy::header_filter::ViaName;
use crawlgate::proxy::origin_tls::{OriginTls, OriginTlsSettings};
use crawlgate::proxy::parents::ParentConnector;
use crawlgate::proxy::pool::PoolLimits;
use crawlgate::proxy::resolve::{DnsResolver, NameServers};
use crawlgate::proxy::robots::{RobotsFetcher, RobotsFileCache};
use crawlgate::proxy::upstream::{UpstreamClient, UpstreamLimits};
use crawlgate::store::HostStore;
use crawlgate::urls::target::UrlTarget;
use rustls::RootCertStore;

/// The cache and the fetcher of robots.txt.
pub(super) struct TestFetcher {
    pub(super) robots: Arc<RobotsFileCache>,
    pub(super) metrics: Metrics,
    admission: Arc<AdmissionQueue>,
}

impl TestFetcher {
    /// `a.test` and `b.test` are on loopback, `private.test` has a private address; a fetch may take 700 ms.
    pub(super) fn new(clock: &Clock) -> Self {
        let metrics = Metrics::new(&[], &[]).unwrap();
        let second = Duration::from_secs(1);
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let hosts = BTreeMap::from([
            ("a.test".to_owned(), vec![loopback]),
            ("b.test".to_owned(), vec![loopback]),
            (
                "private.test".to_owned(),
                vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))],
            ),
        ]);
        let resolver =
            DnsResolver::new(&NameServers::System, hosts, second, clock.clone()).unwrap();
        let egress = EgressRules {
            allow_private: vec![],
            allow_loopback: true,
            ports: vec![1..=65535],
            own_listeners: vec![],
            bind: vec![],
            parents: vec![],
        };
        let limits = UpstreamLimits {
            dial: DialLimits {
                connect: second,
                total: second,
            },
            pool: PoolLimits {
                per_host: 8,
                total: 8,
                idle: second,
            },
            response_head_timeout: 5 * second,
            body_idle_timeout: 5 * second,
            body_timeout: 5 * second,
            max_head_size: 16 << 10,
            max_fields: 100,
        };
        let tls = OriginTlsSettings {
            verify: CertificateVerification::Skip,
            roots: RootCertStore::empty(),
            handshake_timeout: second,
        };
        let tls = Arc::new(OriginTls::new(tls, metrics.clone()).unwrap());
        let vetting = Arc::new(AddressVetter::new(resolver, egress, metrics.clone()));
        let parents = Arc::new(ParentConnector::new(
            &[],
            Arc::clone(&vetting),
            Arc::clone(&tls),
            limits.dial,
            clock.clone(),
            metrics.clone(),
        ));
        let dead = Arc::clone(vetting.negative_cache());
        let fetcher = RobotsFetcher {
            address_vetter: vetting,
            upstream: Arc::new(UpstreamClient::new(
                limits,
                tls,
                clock.clone(),
                dead,
                parents,
            )),
            via: ViaName::new("test"),
            timeout: Duration::from_millis(700),
            owners: None,
            clock: clock.clone(),
        };
        let limits = AdmissionLimits {
            per_host: 10,
            total: 10,
            max_wait: second,
        };
        let admission = Arc::new(AdmissionQueue::new(
            HostStore::new(),
            limits,
            clock.clone(),
            metrics.clone(),
        ));
        let robots = Arc::new(RobotsFileCache::new(
            fetcher,
            clock.clone(),
            metrics.clone(),
        ));
        Self {
            robots,
            metrics,
            admission,
        }
    }

    pub(super) fn fetch_request(&self, agent: &str) -> RobotsFetchRequest {
        RobotsFetchRequest {
            agent: agent.into(),
            crawler: Crawler::anonymous(),
            key: PaceKey::Host,
            pace: HostPace::UNLIMITED,
            per_address: None,
            order: WaitOrder::Weighted,
            admission: Arc::clone(&self.admission),
            verify: CertificateVerification::On,
            versions: OriginHttpVersions::Http1And2,
            parent: None,
        }
    }

    pub(super) fn admission(&self) -> &Arc<AdmissionQueue> {
        &self.admission
    }

    /// The number of fetches that have ended.
    pub(super) fn all_fetches(&self) -> u64 {
        let text = self.metrics.render();
        let counts = text
            .lines()
            .filter(|line| line.starts_with("crawlgate_robots_fetches_total{"));
        counts
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }

    pub(super) fn fetches(&self, result: &str) -> u64 {
        let text = self.metrics.render();
        let name = format!("crawlgate_robots_fetches_total{{result=\"{result}\"}} ");
        text.lines()
            .find_map(|line| line.strip_prefix(&name))
            .unwrap()
            .parse()
            .unwrap()
    }
}

pub(super) fn target(url: &str) -> UrlTarget {
    UrlTarget::parse(url).unwrap()
}
