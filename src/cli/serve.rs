//! Puts a proxy together from its settings and a policy, and runs it until it is told to drain.

mod admin;
mod feed;
pub(super) mod ledger;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};

use crate::clock::Clock;
use crate::config::settings::{self, LogFormat, LogTarget, MetricsLevel, OnFullSetting, Settings};
use crate::heap::{self, ConnectionBurst};
use crate::metrics::Metrics;
use crate::metrics::labels::MetricsMode;
use crate::metrics::log::{self, DecisionLog, LogSettings, QueryVisibility, SampleRate};
use crate::metrics::record::Recorder;
use crate::model::crawler::Crawler;
use crate::pipeline::admission::{AdmissionLimits, AdmissionQueue};
use crate::pipeline::budget::BudgetTracker;
use crate::pipeline::crawlers::CrawlerRegistry;
use crate::pipeline::reload::{ReloadHandle, ReloadOutcomes, ReloadTrigger};
use crate::pipeline::snapshot::ActivePolicy;
use crate::pipeline::sweep::LedgerSweeper;
use crate::proxy::accept::{self, AcceptLimits, ConnectionLimiter, ProxyListener};
use crate::proxy::body::BodyTimeLimits;
use crate::proxy::destination::{AddressVetter, EgressRules, PrivateHost};
use crate::proxy::dial::DialLimits;
use crate::proxy::drain::{Drain, DrainOutcome, DrainWatch};
use crate::proxy::head::{HeadLimits, HeadReaderSettings};
use crate::proxy::header_filter::ViaName;
use crate::proxy::http::ProxyService;
use crate::proxy::intercept::{Interceptor, RefusalDelivery};
use crate::proxy::local_reply::ProfileSelection;
use crate::proxy::origin_tls::OriginTls;
use crate::proxy::pool::PoolLimits;
use crate::proxy::resolve::{DnsResolver, NameServers};
use crate::proxy::robots::{RobotsFetcher, RobotsFileCache};
use crate::proxy::tunnel::{TunnelLimiter, TunnelSettings};
use crate::proxy::upstream::{UpstreamClient, UpstreamLimits};
use crate::store::HostStore;
use crate::store::budgets::BudgetsFile;
use crate::store::ledger::Ledger;
use crate::store::stops::StopsFile;
use crate::tls::{CaError, CertificateAuthority, CertificateIssuer};
use crate::urls::address::AddressClass;

use super::authority;
use super::origin_roots::origin_tls_settings;
use super::reload::{LoadedPolicy, PolicyFileReloader};
use super::spans::{self, SpanExportTask};
use super::systemd;

use admin::{AdminParts, AdminTask};
use feed::LedgerFeedTask;
use ledger::{LedgerCell, LedgerOpener};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 4096;
/// How often idle connections to origins, and hosts, are looked over.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);
/// How long a fetch of a robots.txt may take, with the wait for the host's turn.
const ROBOTS_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the decision log may take to write its last lines.
const LOG_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// For whoever still reads from the admin listener, behind that.
const ADMIN_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A proxy that listens.
#[derive(Debug)]
pub struct Server {
    /// Where crawlers connect.
    pub proxy: Vec<SocketAddr>,
    /// Where metrics and health are.
    pub admin: SocketAddr,
    recorder: Recorder,
    reloads: ReloadHandle,
    drain: Drain,
    draining: Arc<AtomicBool>,
    admin_task: AdminTask,
    tasks: JoinSet<()>,
    span_export: SpanExportTask,
    feed_task: LedgerFeedTask,
    budgets: Arc<BudgetTracker>,
    ledger: LedgerCell,
    drain_times: (Duration, Duration),
}

/// What keeps a proxy from starting.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// The decision log cannot be opened.
    Log(io::Error),
    /// There is no certificate authority that could sign.
    Authority(CaError),
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
    pub fn start(settings: &Settings, policy: impl Into<LoadedPolicy>) -> Result<Self, StartError> {
        Self::start_with(settings, policy.into(), Clock::system(), None)
    }

    /// The same by another clock, and with what is remembered of URLs already.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        settings: &Settings,
        policy: LoadedPolicy,
        clock: Clock,
        ledger: Option<Ledger>,
    ) -> Result<Self, StartError> {
        let metrics = new_metrics(settings)?;
        let log = DecisionLog::open(log_settings(&settings.logs), &metrics, &clock)
            .map_err(StartError::Log)?;
        let (tracing, spans) = spans::prepare(settings, &metrics).map_err(StartError::Other)?;
        let recorder = Recorder::with_tracing(metrics.clone(), log.clone(), clock.clone(), tracing);
        let spans = SpanExportTask::start(spans, &recorder);
        count_panics(metrics.clone());
        let authorities =
            authority::open(settings, clock.wall_time()).map_err(StartError::Authority)?;

        let listeners = settings
            .listen
            .iter()
            .map(|listener| listen(listener.address));
        let listeners: Vec<TcpListener> = listeners.collect::<Result<_, _>>()?;
        let admin_listener = listen(settings.admin.listen)?;
        let proxy = listeners
            .iter()
            .map(local_address)
            .collect::<Result<Vec<_>, _>>()?;
        let admin = local_address(&admin_listener)?;

        let keeper = Arc::new(LedgerOpener::new(settings, ledger));
        keeper
            .ensure_open(&policy.policy)
            .map_err(StartError::Other)?;
        let ledger = Arc::clone(keeper.cell());
        let reloading =
            PolicyFileReloader::new(settings, policy, keeper, metrics.clone(), clock.clone());
        let reloading = Arc::new(reloading);
        let in_force = Arc::clone(reloading.active_policy());
        let own = proxy.iter().copied().chain([admin]).collect();
        let (pem, authority) = authorities
            .map(|opened| (opened.pem, opened.authority))
            .unzip();
        let interceptor = authority
            .map(|authority| new_interceptor(settings, authority, &recorder))
            .transpose()?;
        let exchange = new_exchange(
            settings,
            Arc::clone(&in_force),
            recorder.clone(),
            own,
            interceptor,
        )?;
        let exchange = Arc::new(ProxyService {
            ledger: Arc::clone(&ledger),
            ..exchange
        });
        restore_stops_and_budgets(settings, &exchange.admission_queue)?;
        let budgets = Arc::clone(exchange.admission_queue.budgets());
        let (drain, watch) = Drain::new();
        let mut tasks = JoinSet::new();
        let limits = accept_limits(settings);
        let room = ConnectionLimiter::new(&limits);
        for (listener, settings) in listeners.into_iter().zip(&settings.listen) {
            let exchange = Arc::clone(&exchange);
            let entrance = Arc::new(ProxyListener {
                exchange,
                crawler: settings.crawler.clone(),
            });
            tasks.spawn(accept::serve(
                listener,
                Arc::clone(&room),
                limits.reader,
                entrance,
                watch.clone(),
            ));
        }
        let (reloads, reloader) = ReloadHandle::new(clock.clone());
        tasks.spawn(Arc::clone(&reloading).watch(reloads.clone(), watch.clone()));
        tasks.spawn(
            reloader.serve(move |trigger| reload_and_notify(Arc::clone(&reloading), trigger)),
        );
        tasks.spawn(run_periodic_cleanup(
            Arc::clone(&exchange),
            room,
            clock.clone(),
            watch,
        ));
        let feeding =
            LedgerFeedTask::start(settings, &ledger, &metrics).map_err(StartError::Other)?;
        let sweeper = LedgerSweeper::new(settings.ledger.sweep_rate, clock.clone());
        tasks.spawn(ledger::maintain(
            Arc::clone(&ledger),
            metrics,
            clock,
            settings.ledger.events.clone(),
        ));
        tasks.spawn(sweep_on_policy_change(
            sweeper.clone(),
            Arc::clone(&in_force),
            Arc::clone(&ledger),
        ));
        let draining = Arc::new(AtomicBool::new(false));
        let shown = AdminParts {
            active_policy: in_force,
            reloads: reloads.clone(),
            exchange,
            draining: Arc::clone(&draining),
            pem,
            sweeper,
        };
        let looked_on = AdminTask::spawn(shown.into_server(settings)?, admin_listener, &mut tasks);
        let patience = (settings.timeouts.drain_delay, settings.timeouts.drain);
        Ok(Self {
            proxy,
            admin,
            recorder,
            reloads,
            drain,
            draining,
            admin_task: looked_on,
            tasks,
            span_export: spans,
            feed_task: feeding,
            budgets,
            ledger,
            drain_times: patience,
        })
    }

    /// Asks for the policy to be read again.
    pub fn reloads(&self) -> &ReloadHandle {
        &self.reloads
    }

    /// Goes down: readiness fails at once, then no new connections, then what is under way is finished, at most for
    /// `timeouts.drain`. As soon as `hurry` is ready it is cut off instead.
    pub async fn drain(self, hurry: impl Future) {
        let (delay, patience) = self.drain_times;
        self.draining.store(true, Ordering::Relaxed);
        let drained = tokio::select! {
            drained = self.drain.run(delay, patience) => drained,
            _ = hurry => self.drain.run(Duration::ZERO, Duration::ZERO).await,
        };
        if let DrainOutcome::CutOff(connections) = drained {
            tracing::warn!(connections, "what was still under way was cut off");
        }
        let _ = self.admin_task.stop.send(());
        let mut tasks = self.tasks;
        tasks.shutdown().await;
        self.feed_task.close().await;
        ledger::close(&self.ledger).await;
        self.span_export.close().await;
        let budgets = self.budgets;
        let _ = tokio::task::spawn_blocking(move || save_budgets(&budgets)).await;
        let log = self.recorder.log().clone();
        let _ = tokio::task::spawn_blocking(move || log.close(LOG_CLOSE_TIMEOUT)).await;
        // Streams of decisions have ended with the log; their last lines are on their way.
        let _ = tokio::time::timeout(
            ADMIN_CLOSE_TIMEOUT,
            self.admin_task.connections.wait_until_closed(),
        )
        .await;
    }
}

fn new_metrics(settings: &Settings) -> Result<Metrics, StartError> {
    let ranges: Vec<&'static str> = AddressClass::ALL
        .into_iter()
        .map(AddressClass::as_str)
        .collect();
    let known: Vec<Crawler> = settings
        .crawlers
        .iter()
        .map(|r| r.crawler.clone())
        .collect();
    let metrics = Metrics::with_mode(counting_for(settings.telemetry.metrics), &known, &ranges);
    metrics.map_err(|error| StartError::Other(error.to_string()))
}

/// What was kept of the stops and the budgets before the last start.
fn restore_stops_and_budgets(settings: &Settings, hold: &AdmissionQueue) -> Result<(), StartError> {
    let Some(directory) = &settings.store.path else {
        return Ok(());
    };
    let stops = hold.stops().restore(StopsFile::in_directory(directory));
    stops.map_err(|error| StartError::Other(error.to_string()))?;
    let budgets = hold.budgets().restore(BudgetsFile::in_directory(directory));
    budgets.map_err(|error| StartError::Other(error.to_string()))
}

fn counting_for(level: MetricsLevel) -> MetricsMode {
    match level {
        MetricsLevel::Full => MetricsMode::Everything,
        MetricsLevel::None => MetricsMode::Nothing,
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let open = || {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    open().map_err(|error| StartError::Listen(address, error))
}

fn local_address(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    listener
        .local_addr()
        .map_err(|error| StartError::Other(error.to_string()))
}

fn new_exchange(
    settings: &Settings,
    in_force: Arc<ActivePolicy>,
    recorder: Recorder,
    own: Vec<SocketAddr>,
    interceptor: Option<Interceptor>,
) -> Result<ProxyService, StartError> {
    let (limits, timeouts, clock) = (
        &settings.limits,
        &settings.timeouts,
        recorder.clock().clone(),
    );
    let (metrics, registrations) = (recorder.metrics(), &settings.crawlers);
    let crawlers = CrawlerRegistry::new(registrations, settings.anonymous, metrics, clock.clone());
    let crawlers = crawlers.map_err(StartError::Other)?;
    // One process may run several proxies in a test; each decision id begins with the instance, and so does Via.
    let instance = recorder.instance();
    let hold = AdmissionLimits {
        per_host: to_usize(limits.queue_per_host),
        total: to_usize(limits.queue),
        max_wait: limits.max_hold,
    };
    let hold = AdmissionQueue::new(
        HostStore::embedded(),
        hold,
        clock.clone(),
        recorder.metrics().clone(),
    );
    let via = ViaName::new(&instance);
    let fetcher = new_robots_fetcher(settings, recorder.metrics(), &clock, via.clone(), own)?;
    let (vetting, upstream) = (
        Arc::clone(&fetcher.address_vetter),
        Arc::clone(&fetcher.upstream),
    );
    Ok(ProxyService {
        active_policy: in_force,
        admission_queue: Arc::new(hold),
        address_vetter: vetting,
        robots: RobotsFileCache::new(fetcher, clock, recorder.metrics().clone()),
        upstream,
        ledger: Arc::default(),
        tunnels: TunnelLimiter::new(tunnel_settings(settings), recorder.metrics().clone()),
        interceptor: interceptor.map(Arc::new),
        via,
        recorder,
        profile: match settings.profile {
            settings::ProfileSetting::ByUserAgent => ProfileSelection::ByUserAgent,
            settings::ProfileSetting::Fixed(profile) => ProfileSelection::Always(profile),
        },
        crawlers,
        max_request_body: limits.request_body,
        body_time_limits: BodyTimeLimits {
            idle: timeouts.body_idle,
            total: timeouts.request,
        },
    })
}

/// What fetches robots.txt: with the resolver, the vetting and the limits of any request.
pub(super) fn new_robots_fetcher(
    settings: &Settings,
    metrics: &Metrics,
    clock: &Clock,
    via: ViaName,
    own: Vec<SocketAddr>,
) -> Result<RobotsFetcher, StartError> {
    let servers = match &settings.egress.resolver {
        settings::ResolverSetting::System => NameServers::System,
        settings::ResolverSetting::Servers(servers) => NameServers::Servers(servers.clone()),
    };
    let (hosts, dns) = (settings.egress.hosts.clone(), settings.timeouts.dns);
    let resolver =
        DnsResolver::new(&servers, hosts, dns, clock.clone()).map_err(StartError::Other)?;
    let tls = origin_tls_settings(settings).and_then(|tls| OriginTls::new(tls, metrics.clone()));
    let tls = tls.map_err(StartError::Other)?;
    let vetting = Arc::new(AddressVetter::new(
        resolver,
        egress(settings, own),
        metrics.clone(),
    ));
    let dead = Arc::clone(vetting.negative_cache());
    Ok(RobotsFetcher {
        address_vetter: vetting,
        upstream: Arc::new(UpstreamClient::new(
            upstream_limits(settings),
            tls,
            clock.clone(),
            dead,
        )),
        via,
        timeout: ROBOTS_TIMEOUT,
        clock: clock.clone(),
    })
}

/// What looks into TLS, with certificates that this authority signs.
fn new_interceptor(
    settings: &Settings,
    authority: CertificateAuthority,
    recorder: &Recorder,
) -> Result<Interceptor, StartError> {
    let (tls, clock, metrics) = (
        &settings.tls,
        recorder.clock().clone(),
        recorder.metrics().clone(),
    );
    let minter = CertificateIssuer::new(
        authority,
        tls.leaf_cache,
        tls.mints_per_client,
        clock,
        metrics,
    )
    .map_err(|error| StartError::Other(error.to_string()))?;
    Ok(Interceptor::new(
        minter,
        if tls.intercept_to_reject {
            RefusalDelivery::InsideTls
        } else {
            RefusalDelivery::AtConnect
        },
    ))
}

fn egress(settings: &Settings, own: Vec<SocketAddr>) -> EgressRules {
    let private = settings.egress.allow_private.iter();
    EgressRules {
        allow_private: private
            .map(|p| PrivateHost {
                host: p.host.clone(),
                cidr: p.cidr,
            })
            .collect(),
        allow_loopback: settings.egress.allow_loopback,
        ports: settings.egress.ports.ranges().to_vec(),
        own_listeners: own,
    }
}

fn upstream_limits(settings: &Settings) -> UpstreamLimits {
    let (limits, timeouts) = (&settings.limits, &settings.timeouts);
    UpstreamLimits {
        dial: DialLimits {
            connect: timeouts.connect,
            total: timeouts.connect_total,
        },
        pool: PoolLimits {
            per_host: to_usize(limits.idle_per_host),
            total: to_usize(limits.idle_pool),
            idle: timeouts.idle,
        },
        response_head: timeouts.response_head,
        body_idle: timeouts.body_idle,
        body: timeouts.request,
        head: to_usize(limits.origin_head),
        fields: to_usize(limits.origin_fields),
    }
}

fn tunnel_settings(settings: &Settings) -> TunnelSettings {
    let timeouts = &settings.timeouts;
    TunnelSettings {
        connect_ports: settings.egress.connect_ports.ranges().to_vec(),
        tls_ports: settings.egress.tls_ports.ranges().to_vec(),
        per_host: to_usize(settings.limits.tunnels_per_host),
        dial: DialLimits {
            connect: timeouts.connect,
            total: timeouts.connect_total,
        },
        hello: timeouts.tls,
        idle: timeouts.tunnel_idle,
        total: timeouts.tunnel,
    }
}

fn accept_limits(settings: &Settings) -> AcceptLimits {
    let (limits, timeouts) = (&settings.limits, &settings.timeouts);
    AcceptLimits {
        connections: to_usize(limits.connections),
        per_client: to_usize(limits.per_client),
        reader: HeadReaderSettings {
            limits: HeadLimits {
                bytes: to_usize(limits.head),
                fields: to_usize(limits.fields),
                target: to_usize(limits.target),
            },
            head: timeouts.head,
            idle: timeouts.idle,
            write_stall: timeouts.write_stall,
        },
    }
}

fn to_usize(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn log_settings(logs: &settings::LogsConfig) -> LogSettings {
    LogSettings {
        destination: match &logs.decisions {
            LogTarget::Stderr => log::LogDestination::Stderr,
            LogTarget::Stdout => log::LogDestination::Stdout,
            LogTarget::Discard => log::LogDestination::None,
            LogTarget::File(path) => log::LogDestination::Path(path.clone()),
        },
        format: match logs.format {
            LogFormat::Json => log::LogLineFormat::Json,
            LogFormat::Squid => log::LogLineFormat::Squid,
        },
        rotate: logs
            .rotate
            .map(|settings::RotateConfig { size, keep }| log::LogFileRotation { size, keep }),
        allow_sample: SampleRate::new(logs.allows).unwrap_or(SampleRate::ALL),
        on_full: match logs.on_full {
            OnFullSetting::Drop => log::LogFullAction::Drop,
            OnFullSetting::Wait => log::LogFullAction::Wait,
        },
        query: if logs.redact_query {
            QueryVisibility::Redacted
        } else {
            QueryVisibility::Shown
        },
        ..LogSettings::default()
    }
}

/// Sweeps the ledger when the policy has changed.
async fn sweep_on_policy_change(
    sweeper: LedgerSweeper,
    in_force: Arc<ActivePolicy>,
    ledger: LedgerCell,
) {
    sweeper.serve(&in_force, || ledger.get().cloned()).await;
}

/// One attempt to reload, with the service manager told.
async fn reload_and_notify(
    reloading: Arc<PolicyFileReloader>,
    trigger: ReloadTrigger,
) -> ReloadOutcomes {
    systemd::notify_reloading();
    let made = Arc::clone(&reloading).attempt(trigger).await;
    systemd::notify_ready(&reloading.status(&made.live));
    made
}

/// Closes connections to origins that have been idle for too long, and forgets hosts that have been. When the drain
/// begins, those who wait for a host's turn are sent away.
///
/// When many clients have gone, the memory that they took is given back.
async fn run_periodic_cleanup(
    exchange: Arc<ProxyService>,
    room: Arc<ConnectionLimiter>,
    clock: Clock,
    mut drain: DrainWatch,
) {
    let (mut burst, mut keeping) = (ConnectionBurst::default(), None::<JoinHandle<()>>);
    let mut turn = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        tokio::select! {
            () = drain.wait_begun() => return exchange.admission_queue.close(),
            _ = turn.tick() => {
                exchange.upstream.pool().sweep(clock.now());
                exchange.admission_queue.sweep();
                exchange.address_vetter.negative_cache().sweep();
                exchange.robots.sweep();
                // A disk that hangs must not hold up the drain.
                if keeping.as_ref().is_none_or(JoinHandle::is_finished) {
                    keeping = persist_changes(&exchange);
                }
                if burst.observe_open(room.open_connections()) {
                    let _ = tokio::task::spawn_blocking(heap::give_back).await;
                }
            }
        }
    }
}

/// Tells the disk which stops have ended, or what it could not be told when it changed; and what was spent.
fn persist_changes(exchange: &ProxyService) -> Option<JoinHandle<()>> {
    let (stops, budgets) = (
        Arc::clone(exchange.admission_queue.stops()),
        Arc::clone(exchange.admission_queue.budgets()),
    );
    let (changed, spent) = (stops.needs_write(), budgets.needs_write());
    (changed || spent).then(|| {
        tokio::task::spawn_blocking(move || {
            if changed {
                drop(stops.persist());
            }
            if spent {
                save_budgets(&budgets);
            }
        })
    })
}

fn save_budgets(budgets: &BudgetTracker) {
    if let Err(error) = budgets.persist() {
        tracing::warn!(%error, "what was spent of today's budgets could not be written down");
    }
}

/// A panic ends one request; here it is counted, wherever it happens, and told to the operator.
fn count_panics(metrics: Metrics) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        metrics.record_panic();
        before(panic);
    }));
}
