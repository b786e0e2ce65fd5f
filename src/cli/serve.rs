//! Puts a proxy together from its settings and a policy, and runs it until it is told to drain.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::admin::Admin;
use crate::admin::api::PolicyApi;
use crate::admin::guard::{Guard, Token};
use crate::admin::health::{Check, CheckState, Readiness};
use crate::clock::Clock;
use crate::config::settings::{self, LogTarget, OnFull, Settings};
use crate::gate::crawlers::Crawlers;
use crate::gate::hold::{Hold, HoldLimits};
use crate::gate::reload::{Made, Reloads, Trigger};
use crate::gate::snapshot::InForce;
use crate::heap::{self, Burst};
use crate::metrics::Metrics;
use crate::metrics::log::{self, Log, LogSettings, QueryText, Share};
use crate::metrics::policy::PolicyMetrics;
use crate::metrics::record::Recorder;
use crate::proxy::accept::{self, AcceptLimits, Entrance, Room};
use crate::proxy::answer::ProfileChoice;
use crate::proxy::body::BodyTimes;
use crate::proxy::clean::ViaName;
use crate::proxy::destination::{Egress, PrivateHost, Vetting};
use crate::proxy::dial::DialLimits;
use crate::proxy::drain::{Drain, DrainWatch, Drained};
use crate::proxy::head::{HeadLimits, ReaderSettings};
use crate::proxy::http::Exchange;
use crate::proxy::intercept::{Interceptor, Telling};
use crate::proxy::origin_tls::OriginTls;
use crate::proxy::pool::PoolLimits;
use crate::proxy::resolve::{NameServers, Resolver};
use crate::proxy::robots::{Fetcher, Robots};
use crate::proxy::tunnel::{TunnelSettings, Tunnels};
use crate::proxy::upstream::{Upstream, UpstreamLimits};
use crate::store::Store;
use crate::tls::{Authority, AuthorityError, Minter};
use crate::vocab::address::AddressClass;
use crate::vocab::crawler::Crawler;

use super::authority;
use super::origin_roots::origin_tls;
use super::reload::{self, Opened, Reloading};
use super::systemd;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 4096;
/// How often idle connections to origins, and hosts, are looked over.
const SWEEP: Duration = Duration::from_secs(2);
/// How long a fetch of a robots.txt may take, with the wait for the host's turn.
const ROBOTS_TIME: Duration = Duration::from_secs(20);
/// How long the decision log may take to write its last lines.
const LOG_CLOSE: Duration = Duration::from_secs(5);

/// A proxy that listens.
#[derive(Debug)]
pub struct Server {
    /// Where crawlers connect.
    pub proxy: Vec<SocketAddr>,
    /// Where metrics and health are.
    pub admin: SocketAddr,
    recorder: Recorder,
    reloads: Reloads,
    drain: Drain,
    draining: Arc<AtomicBool>,
    stop_admin: oneshot::Sender<()>,
    tasks: JoinSet<()>,
    patience: (Duration, Duration),
}

/// What keeps a proxy from starting.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// The decision log cannot be opened.
    Log(io::Error),
    /// There is no certificate authority that could sign.
    Authority(AuthorityError),
    /// Anything else, in words.
    Other(String),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Listen(address, error) => write!(
                f,
                "cannot listen on {address}: {error}. Is another proxy running there? Choose another address with \
                 --listen or --admin, or in the configuration"
            ),
            Self::Log(error) => write!(f, "cannot open the decision log (logs.decisions): {error}"),
            Self::Authority(error) => error.fmt(f),
            Self::Other(words) => f.write_str(words),
        }
    }
}

impl Server {
    /// Starts listening. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If an address is taken, or a file that the settings name cannot be used.
    pub fn start(settings: &Settings, policy: impl Into<Opened>) -> Result<Self, StartError> {
        let clock = Clock::system();
        let ranges: Vec<&'static str> = AddressClass::ALL.into_iter().map(AddressClass::as_str).collect();
        let known: Vec<Crawler> = settings.crawlers.iter().map(|r| r.crawler.clone()).collect();
        let metrics = Metrics::new(&known, &ranges).map_err(|error| StartError::Other(error.to_string()))?;
        let log = Log::open(log_settings(&settings.logs), &metrics, &clock).map_err(StartError::Log)?;
        let recorder = Recorder::new(metrics.clone(), log.clone(), clock.clone());
        count_panics(metrics.clone());
        let authorities = authority::open(settings, clock.wall()).map_err(StartError::Authority)?;

        let listeners = settings.listen.iter().map(|listener| listen(listener.address));
        let listeners: Vec<TcpListener> = listeners.collect::<Result<_, _>>()?;
        let admin_listener = listen(settings.admin.listen)?;
        let proxy = listeners.iter().map(local).collect::<Result<Vec<_>, _>>()?;
        let admin = local(&admin_listener)?;

        let reloading = Reloading::new(settings, policy.into(), metrics.clone(), clock.clone());
        let reloading = Arc::new(reloading);
        let in_force = Arc::clone(reloading.in_force());
        let own = proxy.iter().copied().chain([admin]).collect();
        let (pem, authority) = authorities.map(|opened| (opened.pem, opened.authority)).unzip();
        let interceptor =
            authority.map(|authority| interceptor(settings, authority, &recorder)).transpose()?;
        let exchange = exchange(settings, Arc::clone(&in_force), recorder.clone(), own, interceptor)?;
        let exchange = Arc::new(exchange);
        let (drain, watch) = Drain::new();
        let draining = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let limits = accept_limits(settings);
        let room = Room::new(&limits);
        for (listener, settings) in listeners.into_iter().zip(&settings.listen) {
            let exchange = Arc::clone(&exchange);
            let entrance = Arc::new(Entrance { exchange, crawler: settings.crawler.clone() });
            tasks.spawn(accept::serve(listener, Arc::clone(&room), limits.reader, entrance, watch.clone()));
        }
        let (reloads, reloader) = Reloads::new(clock.clone());
        tasks.spawn(Arc::clone(&reloading).watch(reloads.clone(), watch.clone()));
        tasks.spawn(reloader.serve(move |trigger| attempt(Arc::clone(&reloading), trigger)));
        tasks.spawn(sweep(Arc::clone(&exchange), room, clock, watch));
        let token = settings.admin.token_file.as_deref().map(token).transpose()?;
        let policy = PolicyApi { in_force, reloads: reloads.clone() };
        let readiness = readiness(policy.clone(), log, Arc::clone(&draining));
        let mut server = Admin::new(Guard::new([], token), metrics, readiness, policy);
        if let Some(pem) = pem {
            server = server.authorities(pem);
        }
        let (stop_admin, stopped) = oneshot::channel();
        tasks.spawn(server.serve(admin_listener, async move {
            let _ = stopped.await;
        }));
        let patience = (settings.timeouts.drain_delay, settings.timeouts.drain);
        Ok(Self { proxy, admin, recorder, reloads, drain, draining, stop_admin, tasks, patience })
    }

    /// Asks for the policy to be read again.
    pub fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    /// Goes down: readiness fails at once, then no new connections, then what is under way is finished, at most for
    /// `timeouts.drain`. As soon as `hurry` is ready it is cut off instead.
    pub async fn drain(self, hurry: impl Future) {
        let (delay, patience) = self.patience;
        self.draining.store(true, Ordering::Relaxed);
        let drained = tokio::select! {
            drained = self.drain.run(delay, patience) => drained,
            _ = hurry => self.drain.run(Duration::ZERO, Duration::ZERO).await,
        };
        if let Drained::CutOff(connections) = drained {
            tracing::warn!(connections, "what was still under way was cut off");
        }
        let _ = self.stop_admin.send(());
        let mut tasks = self.tasks;
        tasks.shutdown().await;
        let log = self.recorder.log().clone();
        let _ = tokio::task::spawn_blocking(move || log.close(LOG_CLOSE)).await;
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    open().map_err(|error| StartError::Listen(address, error))
}

fn local(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|error| StartError::Other(error.to_string()))
}

fn token(path: &Path) -> Result<Token, StartError> {
    Token::read(path)
        .map_err(|error| StartError::Other(format!("admin.token_file {}: {error}", path.display())))
}

fn exchange(
    settings: &Settings,
    in_force: Arc<InForce<Arc<PolicyMetrics>>>,
    recorder: Recorder,
    own: Vec<SocketAddr>,
    interceptor: Option<Interceptor>,
) -> Result<Exchange, StartError> {
    let (limits, timeouts, clock) = (&settings.limits, &settings.timeouts, recorder.clock().clone());
    let (metrics, registrations) = (recorder.metrics(), &settings.crawlers);
    let crawlers = Crawlers::new(registrations, settings.anonymous, metrics, clock.clone());
    let crawlers = crawlers.map_err(StartError::Other)?;
    // One process may run several proxies in a test; each decision id begins with the instance, and so does Via.
    let instance = recorder.instance();
    let hold = HoldLimits {
        of_one: count(limits.queue_per_host),
        of_all: count(limits.queue),
        longest: limits.max_hold,
    };
    let hold = Hold::new(Store::embedded(), hold, clock.clone(), recorder.metrics().clone());
    let via = ViaName::new(&instance);
    let fetcher = robots_fetcher(settings, recorder.metrics(), &clock, via.clone(), own)?;
    let (vetting, upstream) = (Arc::clone(&fetcher.vetting), Arc::clone(&fetcher.upstream));
    Ok(Exchange {
        in_force,
        hold: Arc::new(hold),
        vetting,
        robots: Robots::new(fetcher, clock, recorder.metrics().clone()),
        upstream,
        tunnels: Tunnels::new(tunnel_settings(settings), recorder.metrics().clone()),
        interceptor: interceptor.map(Arc::new),
        via,
        recorder,
        profile: match settings.profile {
            settings::ProfileChoice::ByUserAgent => ProfileChoice::ByUserAgent,
            settings::ProfileChoice::One(profile) => ProfileChoice::Always(profile),
        },
        crawlers,
        request_body: limits.request_body,
        body_times: BodyTimes { idle: timeouts.body_idle, whole: timeouts.request },
    })
}

/// What fetches robots.txt: with the resolver, the vetting and the limits of any request.
pub(super) fn robots_fetcher(
    settings: &Settings,
    metrics: &Metrics,
    clock: &Clock,
    via: ViaName,
    own: Vec<SocketAddr>,
) -> Result<Fetcher, StartError> {
    let servers = match &settings.egress.resolver {
        settings::Resolver::System => NameServers::System,
        settings::Resolver::Servers(servers) => NameServers::Servers(servers.clone()),
    };
    let (hosts, dns) = (settings.egress.hosts.clone(), settings.timeouts.dns);
    let resolver = Resolver::new(&servers, hosts, dns, clock.clone()).map_err(StartError::Other)?;
    let tls = origin_tls(settings).and_then(|tls| OriginTls::new(tls, metrics.clone()));
    let tls = tls.map_err(StartError::Other)?;
    Ok(Fetcher {
        vetting: Arc::new(Vetting::new(resolver, egress(settings, own), metrics.clone())),
        upstream: Arc::new(Upstream::new(upstream_limits(settings), tls, clock.clone())),
        via,
        time: ROBOTS_TIME,
        clock: clock.clone(),
    })
}

/// What looks into TLS, with certificates that this authority signs.
fn interceptor(
    settings: &Settings,
    authority: Authority,
    recorder: &Recorder,
) -> Result<Interceptor, StartError> {
    let (tls, clock, metrics) = (&settings.tls, recorder.clock().clone(), recorder.metrics().clone());
    let minter = Minter::new(authority, tls.leaf_cache, tls.mints_per_client, clock, metrics)
        .map_err(|error| StartError::Other(error.to_string()))?;
    Ok(Interceptor::new(minter, if tls.intercept_to_reject { Telling::Inside } else { Telling::AtConnect }))
}

fn egress(settings: &Settings, own: Vec<SocketAddr>) -> Egress {
    let private = settings.egress.allow_private.iter();
    Egress {
        allow_private: private.map(|p| PrivateHost { host: p.host.clone(), cidr: p.cidr }).collect(),
        allow_loopback: settings.egress.allow_loopback,
        ports: settings.egress.ports.ranges().to_vec(),
        own,
    }
}

fn upstream_limits(settings: &Settings) -> UpstreamLimits {
    let (limits, timeouts) = (&settings.limits, &settings.timeouts);
    UpstreamLimits {
        dial: DialLimits { connect: timeouts.connect, total: timeouts.connect_total },
        pool: PoolLimits {
            per_host: count(limits.idle_per_host),
            total: count(limits.idle_pool),
            idle: timeouts.idle,
        },
        response_head: timeouts.response_head,
        body_idle: timeouts.body_idle,
        body: timeouts.request,
        head: count(limits.origin_head),
        fields: count(limits.origin_fields),
    }
}

fn tunnel_settings(settings: &Settings) -> TunnelSettings {
    let timeouts = &settings.timeouts;
    TunnelSettings {
        connect_ports: settings.egress.connect_ports.ranges().to_vec(),
        tls_ports: settings.egress.tls_ports.ranges().to_vec(),
        per_host: count(settings.limits.tunnels_per_host),
        dial: DialLimits { connect: timeouts.connect, total: timeouts.connect_total },
        hello: timeouts.tls,
        idle: timeouts.tunnel_idle,
        total: timeouts.tunnel,
    }
}

fn accept_limits(settings: &Settings) -> AcceptLimits {
    let (limits, timeouts) = (&settings.limits, &settings.timeouts);
    AcceptLimits {
        connections: count(limits.connections),
        per_client: count(limits.per_client),
        reader: ReaderSettings {
            limits: HeadLimits {
                bytes: count(limits.head),
                fields: count(limits.fields),
                target: count(limits.target),
            },
            head: timeouts.head,
            idle: timeouts.idle,
            write_stall: timeouts.write_stall,
        },
    }
}

fn count(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn log_settings(logs: &settings::Logs) -> LogSettings {
    LogSettings {
        to: match &logs.decisions {
            LogTarget::Stderr => log::Destination::Stderr,
            LogTarget::Stdout => log::Destination::Stdout,
            LogTarget::Nowhere => log::Destination::None,
            LogTarget::File(path) => log::Destination::Path(path.clone()),
        },
        allows: Share::new(logs.allows).unwrap_or(Share::ALL),
        on_full: match logs.on_full {
            OnFull::Drop => log::OnFull::Drop,
            OnFull::Wait => log::OnFull::Wait,
        },
        query: if logs.redact_query { QueryText::Redacted } else { QueryText::Shown },
        ..LogSettings::default()
    }
}

fn readiness(policy: PolicyApi, log: Log, draining: Arc<AtomicBool>) -> Readiness {
    Readiness::new(move || {
        let drain = if draining.load(Ordering::Relaxed) {
            CheckState::Fail("the proxy is shutting down".into())
        } else {
            CheckState::Ok("not draining".into())
        };
        let last = policy.reloads.last();
        let log = match log.warning() {
            Some(warning) => CheckState::Warn(warning),
            None => CheckState::Ok("writing".into()),
        };
        let snapshot = policy.in_force.load();
        let live = reload::standing(&snapshot, last.as_ref().map(|last| &last.outcome));
        let shadow = last.as_ref().and_then(|last| last.shadow.as_ref());
        let shadow = reload::standing_in_shadow(&snapshot, shadow);
        let mut checks =
            vec![Check::new("policy", live), Check::new("drain", drain), Check::new("decision_log", log)];
        checks.extend(shadow.map(|state| Check::new("shadow_policy", state)));
        checks
    })
}

/// One attempt to reload, with the service manager told.
async fn attempt(reloading: Arc<Reloading>, trigger: Trigger) -> Made {
    systemd::reloading();
    let made = Arc::clone(&reloading).attempt(trigger).await;
    systemd::ready(&reloading.status(&made.live));
    made
}

/// Closes connections to origins that have been idle for too long, and forgets hosts that have been. When the drain
/// begins, those who wait for a host's turn are sent away.
///
/// When many clients have gone, the memory that they took is given back.
async fn sweep(exchange: Arc<Exchange>, room: Arc<Room>, clock: Clock, mut drain: DrainWatch) {
    let mut burst = Burst::default();
    let mut turn = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            () = drain.begun() => return exchange.hold.close(),
            _ = turn.tick() => {
                exchange.upstream.pool().sweep(clock.now());
                exchange.hold.sweep();
                exchange.robots.sweep();
                if burst.is_over(room.open()) {
                    let _ = tokio::task::spawn_blocking(heap::give_back).await;
                }
            }
        }
    }
}

/// A panic ends one request; here it is counted, wherever it happens, and told to the operator.
fn count_panics(metrics: Metrics) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        metrics.panicked();
        before(panic);
    }));
}
