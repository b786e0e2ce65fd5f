//! An origin that answers each request as a function of its head says, and the fetcher in front of it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::model::crawler::Crawler;
use crawlgate::pacing::pace::HostPace;
use crawlgate::pacing::queue::WaitOrder;
use crawlgate::pipeline::admission::{AdmissionLimits, AdmissionQueue};
use crawlgate::pipeline::robots_fetch::RobotsFetchRequest;
use crawlgate::policy::options::politeness::PaceKey;
use crawlgate::proxy::destination::{AddressVetter, EgressRules};
use crawlgate::proxy::dial::DialLimits;
use crawlgate::proxy::header_filter::ViaName;
use crawlgate::proxy::origin_tls::{OriginTls, OriginTlsSettings};
use crawlgate::proxy::pool::PoolLimits;
use crawlgate::proxy::resolve::{DnsResolver, NameServers};
use crawlgate::proxy::robots::{RobotsFetcher, RobotsFileCache};
use crawlgate::proxy::upstream::{UpstreamClient, UpstreamLimits};
use crawlgate::store::HostStore;
use crawlgate::urls::target::UrlTarget;
use rustls::RootCertStore;

/// What the origin does with a connection that has sent a head.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    /// Writes these bytes, and reads the next request.
    Bytes(Vec<u8>),
    /// Writes these bytes and closes.
    Last(Vec<u8>),
    /// Writes these bytes and nothing more.
    Hang(Vec<u8>),
    /// Writes these bytes one by one, so slowly that they never end.
    Drip(Vec<u8>),
    /// Waits, then writes.
    After(Duration, Vec<u8>),
}

/// An answer with a length.
pub(super) fn answer(status: u16, fields: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status} x\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// It runs until the test ends.
pub(super) struct Origin {
    pub(super) port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    /// `script` gets the head of a request, the port, and how many requests came before.
    pub(super) fn start(
        script: impl Fn(&str, u16, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let origin = Self {
            port: listener.local_addr().unwrap().port(),
            heads: Arc::default(),
        };
        let (heads, port, script) = (Arc::clone(&origin.heads), origin.port, Arc::new(script));
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (heads, script) = (Arc::clone(&heads), Arc::clone(&script));
                std::thread::spawn(move || {
                    serve(socket, &heads, |head, before| script(head, port, before))
                });
            }
        });
        origin
    }

    /// The heads that it has got, in order.
    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub(super) fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port)
    }
}

fn serve(mut socket: TcpStream, heads: &Mutex<Vec<String>>, script: impl Fn(&str, usize) -> Reply) {
    let _ = socket.set_nodelay(true);
    while let Some(head) = next_head(&mut socket) {
        let before = {
            let mut heads = heads.lock().unwrap();
            heads.push(head.clone());
            heads.len() - 1
        };
        let done = match script(&head, before) {
            Reply::Bytes(bytes) => socket.write_all(&bytes).is_err(),
            Reply::After(time, bytes) => {
                std::thread::sleep(time);
                socket.write_all(&bytes).is_err()
            }
            Reply::Last(bytes) => {
                let _ = socket.write_all(&bytes);
                true
            }
            Reply::Hang(bytes) => {
                let _ = socket.write_all(&bytes);
                let _ = socket.read(&mut [0]);
                true
            }
            Reply::Drip(bytes) => drip(&mut socket, &bytes),
        };
        if done {
            return;
        }
    }
}

fn drip(socket: &mut TcpStream, bytes: &[u8]) -> bool {
    for byte in bytes.iter().cycle() {
        if socket.write_all(&[*byte]).is_err() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

fn next_head(socket: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (vec![], [0]);
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap())
}

/// What fetches, and what it needs.
pub(super) struct World {
    pub(super) robots: Arc<RobotsFileCache>,
    pub(super) metrics: Metrics,
    hold: Arc<AdmissionQueue>,
}

impl World {
    /// `*.test` are on this machine but for `private.test`; a whole fetch may take 700 ms.
    pub(super) fn new(clock: &Clock) -> Self {
        let metrics = Metrics::new(&[], &[]).unwrap();
        let second = Duration::from_secs(1);
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let hosts = BTreeMap::from([
            ("a.test".to_owned(), vec![here]),
            ("b.test".to_owned(), vec![here]),
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
            response_head: 5 * second,
            body_idle: 5 * second,
            body: 5 * second,
            head: 16 << 10,
            fields: 100,
        };
        let tls = OriginTlsSettings {
            verify: CertificateVerification::Skip,
            roots: RootCertStore::empty(),
            handshake_timeout: second,
        };
        let tls = OriginTls::new(tls, metrics.clone()).unwrap();
        let vetting = Arc::new(AddressVetter::new(resolver, egress, metrics.clone()));
        let dead = Arc::clone(vetting.negative_cache());
        let fetcher = RobotsFetcher {
            address_vetter: vetting,
            upstream: Arc::new(UpstreamClient::new(limits, tls, clock.clone(), dead)),
            via: ViaName::new("test"),
            timeout: Duration::from_millis(700),
            clock: clock.clone(),
        };
        let limits = AdmissionLimits {
            per_host: 10,
            total: 10,
            max_wait: second,
        };
        let hold = Arc::new(AdmissionQueue::new(
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
            hold,
        }
    }

    pub(super) fn errand(&self, agent: &str) -> RobotsFetchRequest {
        RobotsFetchRequest {
            agent: agent.into(),
            crawler: Crawler::anonymous(),
            key: PaceKey::Host,
            pace: HostPace::UNLIMITED,
            per_address: None,
            order: WaitOrder::Weighted,
            admission: Arc::clone(&self.hold),
            verify: CertificateVerification::On,
        }
    }

    pub(super) fn hold(&self) -> &Arc<AdmissionQueue> {
        &self.hold
    }

    /// Fetches that have ended.
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
