//! A proxy as a whole: composes its parts from the settings and a policy, and runs it until it is drained.

mod admin;
pub(crate) mod authority;
pub(crate) mod ca_bundle;
mod config_watch;
mod descriptors;
mod feed;
mod fleet;
pub(crate) mod ledger;
mod origin_roots;
pub mod reload;
mod spans;
pub(crate) mod systemd;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};

use crate::clock::Clock;
use crate::config::settings::{DrainConfig, ListenerConfig, ParentConfig, Settings};
use crate::fleet::FleetNode;
use crate::fleet::membership::{MembershipHandle, PreparedNode};
use crate::fleet::owners::HostOwners;
use crate::heap::{self, ConnectionBurst, WorkBurst};
use crate::identity::{DirectoryServer, IdentityError, RequestSigners};
use crate::io_advice::IoAdvice;
use crate::long_work;
use crate::metrics::Metrics;
use crate::metrics::log::DecisionLog;
use crate::metrics::record::Recorder;
use crate::model::crawler::Crawler;
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::budget::BudgetTracker;
use crate::pipeline::crawlers::CrawlerRegistry;
use crate::pipeline::destination::OwnListener;
use crate::pipeline::reload::{ReloadHandle, ReloadOutcomes, ReloadTrigger};
use crate::pipeline::rollout::RolloutHandle;
use crate::pipeline::snapshot::ActivePolicy;
use crate::pipeline::sweep::LedgerSweeper;
use crate::pipeline::sweep::removals::{RemovalScheduler, RobotsSource};
use crate::proxy::accept::{self, ConnectionLimiter, ProxyListener};
use crate::proxy::body::BodyTimeLimits;
use crate::proxy::destination::{AddressVetter, EgressRules};
use crate::proxy::drain::{Drain, DrainOutcome, DrainWatch};
use crate::proxy::header_filter::ViaName;
use crate::proxy::http::ProxyService;
use crate::proxy::intercept::Interceptor;
use crate::proxy::local_reply::RefusalContacts;
use crate::proxy::origin_tls::OriginTls;
use crate::proxy::parents::{ParentConnector, ParentCredentials, ParentSettings};
use crate::proxy::resolve::DnsResolver;
use crate::proxy::robots::{RobotsFetcher, RobotsFileCache};
use crate::proxy::tunnel::TunnelLimiter;
use crate::proxy::upstream::UpstreamClient;
use crate::store::HostStore;
use crate::store::budgets::BudgetsFile;
use crate::store::ledger::Ledger;
use crate::store::stops::StopsFile;
use crate::tls::fleet::NodeTlsError;
use crate::tls::listener::{ListenerTlsError, load_listener_tls};
use crate::tls::{CaError, CertificateAuthority, CertificateIssuer};
use crate::urls::address::AddressClass;

use admin::{AdminParts, AdminTask};
use descriptors::DescriptorShares;
use feed::LedgerFeedTask;
use fleet::FleetStart;
use ledger::{LedgerCell, LedgerOpener};
use origin_roots::origin_tls_settings;
use reload::{LoadedPolicy, PolicyFileReloader, PolicyRollout};
use spans::SpanExportTask;

/// The maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 4096;
/// The interval at which idle connections and idle hosts are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);
/// The time limit of fetching a robots.txt, including the wait for the host's turn.
const ROBOTS_TIMEOUT: Duration = Duration::from_secs(20);
/// The time in which the decision log must write its last lines.
const LOG_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time in which background tasks must end after they were aborted.
const TASKS_END_TIMEOUT: Duration = Duration::from_secs(2);
/// The time in which a node of a fleet gives its hosts away.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time in which the budgets must be saved on shutdown.
const BUDGETS_TIMEOUT: Duration = Duration::from_secs(3);
/// The time in which clients of the admin listener must read their last bytes, after the log is closed.
const ADMIN_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A running proxy.
#[derive(Debug)]
pub struct Server {
    /// The addresses of the listeners for crawlers.
    pub proxy: Vec<SocketAddr>,
    /// The address of the admin listener.
    pub admin: SocketAddr,
    /// The address of the listener for other nodes of the fleet, if there is one.
    pub links: Option<SocketAddr>,
    /// The address at which key directories are served, if they are.
    pub key_directory: Option<SocketAddr>,
    recorder: Recorder,
    reloads: ReloadHandle,
    drain: Drain,
    drain_config: DrainConfig,
    draining: Arc<AtomicBool>,
    admin_task: AdminTask,
    tasks: JoinSet<()>,
    span_export: SpanExportTask,
    feed_task: LedgerFeedTask,
    budgets: Arc<BudgetTracker>,
    ledger: LedgerCell,
    membership: Option<MembershipHandle>,
}

/// The reason why a proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address is not available.
    #[error(
        "cannot listen on {0}: {1}. Is another proxy running there? Choose another address with --listen or --admin, or \
         in the configuration"
    )]
    Listen(SocketAddr, io::Error),
    /// The decision log cannot be opened.
    #[error("cannot open the decision log {} (logs.decisions): {advice}, or set a different file", path.display())]
    LogFile { path: PathBuf, advice: IoAdvice },
    /// No certificate authority is available for signing.
    #[error(
        "the certificate authority (`tls.ca`) cannot be used: {0}; with `tls.intercept: false` none is needed"
    )]
    Authority(#[from] CaError),
    /// The keys of a crawler cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The certificate of a listener cannot be used.
    #[error("the certificate of the listener {0} (`listen.tls`) cannot be used: {1}")]
    ListenerTls(SocketAddr, Box<ListenerTlsError>),
    /// The certificates of links between nodes cannot be used.
    #[error("the certificates of links between nodes (`fleet.tls`) cannot be used: {0}")]
    NodeTls(#[from] Box<NodeTlsError>),
    /// Any other cause.
    #[error("{0}")]
    Other(String),
}

impl Server {
    /// Starts a proxy. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If an address is taken, or a file that the settings name cannot be used.
    pub fn start(settings: &Settings, policy: impl Into<LoadedPolicy>) -> Result<Self, StartError> {
        Self::start_with(settings, policy.into(), Clock::system(), None)
    }

    /// Starts a proxy whose decision log goes to `writer`, in place of the destination of the settings.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_with_log_writer(
        settings: &Settings,
        policy: LoadedPolicy,
        writer: Box<dyn io::Write + Send>,
    ) -> Result<Self, StartError> {
        Self::start_parts(settings, policy, Clock::system(), None, Some(writer), None)
    }

    /// Starts a proxy as a node of a fleet for which the caller publishes the owners of hosts.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_in_fleet(
        settings: &Settings,
        policy: impl Into<LoadedPolicy>,
        owners: HostOwners,
    ) -> Result<Self, StartError> {
        Self::start_parts(
            settings,
            policy.into(),
            Clock::system(),
            None,
            None,
            Some(FleetStart::Fixed(owners)),
        )
    }

    /// Starts a proxy as a node of a fleet, which it joins. Without a writer, the decision log goes to the destination
    /// of the settings.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_node(
        settings: &Settings,
        policy: LoadedPolicy,
        log_writer: Option<Box<dyn io::Write + Send>>,
        node: PreparedNode,
    ) -> Result<Self, StartError> {
        let start = FleetStart::Node(Box::new(node));
        Self::start_parts(
            settings,
            policy,
            Clock::system(),
            None,
            log_writer,
            Some(start),
        )
    }

    /// Starts a proxy with another clock, and with a ledger that is already open.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_with(
        settings: &Settings,
        policy: LoadedPolicy,
        clock: Clock,
        ledger: Option<Ledger>,
    ) -> Result<Self, StartError> {
        Self::start_parts(settings, policy, clock, ledger, None, None)
    }

    /// Stops and budgets are restored before the first connection is accepted, and this node joins its fleet once it serves
    /// its links; otherwise the order is that of what each part is given.
    fn start_parts(
        settings: &Settings,
        policy: LoadedPolicy,
        clock: Clock,
        ledger: Option<Ledger>,
        log_writer: Option<Box<dyn io::Write + Send>>,
        fleet_start: Option<FleetStart>,
    ) -> Result<Self, StartError> {
        let descriptors = DescriptorShares::allocate(settings);
        let settings = &descriptors.apply(settings);
        let (recorder, span_export) = start_recorder(settings, &clock, log_writer)?;
        let metrics = recorder.metrics().clone();
        metrics.set_connections_limit(settings.accept.connections);
        count_panics(metrics.clone());
        let authorities = authority::open(settings, clock.wall_time())?;
        let listeners = Listeners::bind(settings)?;
        let owners = fleet_start.as_ref().map(FleetStart::owners);
        let fleet = fleet::prepare(settings, owners, &clock, &metrics)?;
        let (fleet, link_server) = fleet.unzip();

        let ledger_opener = Arc::new(LedgerOpener::new(settings, ledger, metrics.clone()));
        ledger_opener
            .ensure_open(&policy.policy)
            .map_err(StartError::Other)?;
        let ledger = Arc::clone(ledger_opener.cell());
        let reloader =
            PolicyFileReloader::new(settings, policy, ledger_opener, &metrics, clock.clone());
        let active_policy = Arc::clone(reloader.active_policy());
        let (certificates, authority) = authorities
            .map(|loaded| (loaded.certificates, loaded.authority))
            .unzip();
        let service = Arc::new(new_proxy_service(
            settings,
            recorder.clone(),
            Arc::clone(&active_policy),
            Arc::clone(&ledger),
            listeners.own_listeners(),
            authority,
            fleet,
        )?);
        restore_stops_and_budgets(settings, &service.admission_queue)?;

        let mut tasks = JoinSet::new();
        let (drain, drain_watch) = Drain::new();
        let connections = spawn_listeners(
            listeners.proxy,
            settings,
            &service,
            &drain_watch,
            &mut tasks,
        )?;
        let parents = Arc::clone(service.upstream.parents());
        tasks.spawn(parents.run_checks(drain_watch.clone()));
        if let (Some(listener), Some(server)) = (listeners.links, link_server) {
            server.spawn(listener, settings, &service, &drain_watch, &mut tasks);
        }
        spawn_key_directory(listeners.directory, &service, &mut tasks);
        let joined = fleet_start.and_then(|start| {
            let address = listeners.link_address;
            let admin = listeners.admin_address;
            start.join(settings, address, admin, &service, &mut tasks)
        });
        let reloader = Arc::new(reloader);
        let reloads = spawn_reloads(Arc::clone(&reloader), &clock, &drain_watch, &mut tasks);
        let policies = reloader.store().clone();
        let changes = spawn_rollout(reloader, reloads.clone(), &mut tasks);
        let config_changed = config_watch::spawn(settings, drain_watch.clone(), &mut tasks);
        tasks.spawn(run_periodic_cleanup(
            Arc::clone(&service),
            connections,
            clock,
            drain_watch,
        ));
        let feed_task =
            LedgerFeedTask::start(settings, &ledger, &metrics).map_err(StartError::Other)?;
        let (sweeper, removals) = spawn_ledger_tasks(settings, &service, &mut tasks);
        let draining = Arc::new(AtomicBool::new(false));
        let admin = AdminParts {
            proxy_addresses: listeners.proxy_addresses.clone(),
            active_policy,
            reloads: reloads.clone(),
            policies,
            changes,
            exchange: Arc::clone(&service),
            draining: Arc::clone(&draining),
            certificates: certificates.unwrap_or_default(),
            config_changed,
            sweeper,
            removals,
            fleet: joined.clone(),
        };
        let server = admin.into_server(settings, descriptors.admin_connections)?;
        Ok(Self {
            proxy: listeners.proxy_addresses,
            admin: listeners.admin_address,
            links: listeners.link_address,
            key_directory: listeners.directory_address,
            recorder,
            reloads,
            drain,
            drain_config: settings.drain,
            draining,
            admin_task: AdminTask::spawn(server, listeners.admin, &mut tasks),
            tasks,
            span_export,
            feed_task,
            budgets: Arc::clone(service.admission_queue.budgets()),
            ledger,
            membership: joined.map(|joined| joined.membership),
        })
    }

    /// Returns the handle that triggers reloads of the policy.
    pub fn reloads(&self) -> &ReloadHandle {
        &self.reloads
    }

    /// Returns the decision log.
    pub fn decision_log(&self) -> &DecisionLog {
        self.recorder.log()
    }

    /// Shuts down: readiness fails at once, then no connections are accepted, then running requests may complete within
    /// `timeouts.drain`. As soon as `hurry` is ready, they are cut off instead.
    pub async fn drain(self, force_shutdown: impl Future) {
        let DrainConfig { delay, timeout } = self.drain_config;
        self.draining.store(true, Ordering::Relaxed);
        // First, so that hosts have other owners while requests complete.
        if let Some(mut membership) = self.membership {
            membership.leave(timeout.min(LEAVE_TIMEOUT)).await;
        }
        let outcome = tokio::select! {
            outcome = self.drain.run(delay, timeout) => outcome,
            _ = force_shutdown => self.drain.run(Duration::ZERO, Duration::ZERO).await,
        };
        if let DrainOutcome::CutOff(connections) = outcome {
            tracing::warn!(connections, "incomplete requests were cut off");
        }
        let _ = self.admin_task.stop.send(());
        let mut tasks = self.tasks;
        let _ = tokio::time::timeout(TASKS_END_TIMEOUT, tasks.shutdown()).await;
        self.feed_task.close().await;
        ledger::close(&self.ledger).await;
        self.span_export.close().await;
        let budgets = self.budgets;
        let saved = tokio::task::spawn_blocking(move || save_budgets(&budgets));
        if tokio::time::timeout(BUDGETS_TIMEOUT, saved).await.is_err() {
            tracing::error!("today's budgets could not be saved in time (store.path)");
        }
        let log = self.recorder.log().clone();
        let _ = tokio::task::spawn_blocking(move || log.close(LOG_CLOSE_TIMEOUT)).await;
        // Streams of decisions ended with the log, but their last lines may not have been sent yet.
        let connections = self.admin_task.connections.wait_until_closed();
        let _ = tokio::time::timeout(ADMIN_CLOSE_TIMEOUT, connections).await;
    }
}

/// The sockets on which a proxy listens.
struct Listeners {
    proxy: Vec<TcpListener>,
    proxy_addresses: Vec<SocketAddr>,
    admin: TcpListener,
    admin_address: SocketAddr,
    links: Option<TcpListener>,
    link_address: Option<SocketAddr>,
    directory: Option<TcpListener>,
    directory_address: Option<SocketAddr>,
}

impl Listeners {
    fn bind(settings: &Settings) -> Result<Self, StartError> {
        let mut proxy = Vec::with_capacity(settings.listen.len());
        for listener in &settings.listen {
            proxy.push(listen(listener.address)?);
        }
        let admin = listen(settings.admin.listen)?;
        let proxy_addresses: Result<_, _> = proxy.iter().map(local_address).collect();
        let fleet = settings.fleet.as_ref();
        let links = fleet.map(|fleet| listen(fleet.listen)).transpose()?;
        let directory = settings.identity_listen.map(listen).transpose()?;
        Ok(Self {
            directory_address: directory.as_ref().map(local_address).transpose()?,
            directory,
            link_address: links.as_ref().map(local_address).transpose()?,
            links,
            proxy_addresses: proxy_addresses?,
            admin_address: local_address(&admin)?,
            proxy,
            admin,
        })
    }

    /// Returns all listeners, with the ports that were assigned.
    fn own_listeners(&self) -> Vec<OwnListener> {
        let proxy = self.proxy_addresses.iter().copied();
        let others = [
            ("admin.listen", Some(self.admin_address)),
            ("fleet.listen", self.link_address),
            ("identity.listen", self.directory_address),
        ];
        let others = others
            .into_iter()
            .filter_map(|(setting, address)| Some((setting, address?)));
        proxy
            .map(|address| ("listen", address))
            .chain(others)
            .map(|(setting, address)| OwnListener { address, setting })
            .collect()
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    bind(address).map_err(|error| StartError::Listen(address, error))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn local_address(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(other)
}

fn other(error: impl std::fmt::Display) -> StartError {
    StartError::Other(error.to_string())
}

/// Starts metrics, decision log and span export, which record every request.
fn start_recorder(
    settings: &Settings,
    clock: &Clock,
    log_writer: Option<Box<dyn io::Write + Send>>,
) -> Result<(Recorder, SpanExportTask), StartError> {
    let crawlers: Vec<Crawler> = settings
        .crawlers
        .iter()
        .map(|registration| registration.crawler.clone())
        .collect();
    let address_classes = AddressClass::ALL.map(AddressClass::as_str);
    let metrics = Metrics::with_extent(settings.telemetry.metrics, &crawlers, &address_classes)
        .map_err(other)?;
    let log = match log_writer {
        Some(writer) => DecisionLog::open_with_writer(&settings.logs, writer, &metrics, clock),
        None => DecisionLog::open(settings.logs.clone(), &metrics, clock),
    };
    let log = log.map_err(|error| match settings.logs.destination.file() {
        Some(path) => StartError::LogFile {
            path: path.to_owned(),
            advice: IoAdvice::new(path, &error),
        },
        None => other(error),
    })?;
    let (sampler, setup) = spans::prepare(settings, &metrics).map_err(StartError::Other)?;
    let recorder = Recorder::with_tracing(metrics, log, clock.clone(), sampler);
    let span_export = SpanExportTask::start(setup, &recorder);
    Ok((recorder, span_export))
}

/// Restores the stops and the budgets of the previous run.
fn restore_stops_and_budgets(
    settings: &Settings,
    queue: &AdmissionQueue,
) -> Result<(), StartError> {
    let Some(directory) = &settings.store.path else {
        return Ok(());
    };
    let stops = StopsFile::in_directory(directory);
    queue.stops().restore(stops).map_err(other)?;
    let budgets = BudgetsFile::in_directory(directory);
    queue.budgets().restore(budgets).map_err(other)
}

fn new_proxy_service(
    settings: &Settings,
    recorder: Recorder,
    active_policy: Arc<ActivePolicy>,
    ledger: LedgerCell,
    own_listeners: Vec<OwnListener>,
    authority: Option<CertificateAuthority>,
    fleet: Option<Arc<FleetNode>>,
) -> Result<ProxyService, StartError> {
    let clock = recorder.clock().clone();
    let metrics = recorder.metrics().clone();
    let crawlers = CrawlerRegistry::new(
        &settings.crawlers,
        settings.anonymous,
        &metrics,
        clock.clone(),
    )
    .map_err(StartError::Other)?;
    let interceptor = match authority {
        Some(authority) => Some(Arc::new(new_interceptor(settings, authority, &recorder)?)),
        None => None,
    };
    let admission_queue = AdmissionQueue::new(
        HostStore::new(),
        settings.admission,
        clock.clone(),
        metrics.clone(),
    );
    // Via identifies the instance, like decision ids, since a test may run several proxies in one process.
    let via = ViaName::new(&recorder.instance());
    let owners = fleet.as_ref().map(|fleet| fleet.owners.clone());
    let fetcher = RobotsFetcher {
        owners,
        ..new_robots_fetcher(settings, &metrics, &clock, via.clone(), own_listeners)?
    };
    Ok(ProxyService {
        active_policy,
        admission_queue: Arc::new(admission_queue),
        address_vetter: Arc::clone(&fetcher.address_vetter),
        upstream: Arc::clone(&fetcher.upstream),
        robots: RobotsFileCache::new(fetcher, clock, metrics.clone()),
        ledger,
        tunnels: TunnelLimiter::new(settings.tunnels.clone(), metrics),
        interceptor,
        via,
        recorder,
        profile: settings.profile,
        contacts: RefusalContacts {
            contact: settings.policy.contact.clone(),
            public_url: settings.admin.public_url.clone(),
        },
        crawlers,
        signers: RequestSigners::load(&settings.identities)?,
        max_request_body: settings.max_request_body,
        body_time_limits: BodyTimeLimits {
            idle: settings.upstream.body_idle_timeout,
            total: settings.upstream.body_timeout,
        },
        fleet,
    })
}

/// Creates the fetcher of robots.txt, which resolves, checks and connects like any request.
pub(crate) fn new_robots_fetcher(
    settings: &Settings,
    metrics: &Metrics,
    clock: &Clock,
    via: ViaName,
    own_listeners: Vec<OwnListener>,
) -> Result<RobotsFetcher, StartError> {
    let resolver = DnsResolver::new(
        &settings.dns.servers,
        settings.dns.hosts.clone(),
        settings.dns.timeout,
        clock.clone(),
    )
    .map_err(StartError::Other)?;
    let origin_tls = origin_tls_settings(&settings.tls)
        .and_then(|tls| OriginTls::new(tls, metrics.clone()))
        .map_err(StartError::Other)?;
    let origin_tls = Arc::new(origin_tls);
    let rules = EgressRules {
        own_listeners,
        parents: settings
            .parents
            .iter()
            .map(|parent| parent.name.clone())
            .collect(),
        ..settings.egress.clone()
    };
    let address_vetter = Arc::new(AddressVetter::new(resolver, rules, metrics.clone()));
    let parents = settings.parents.iter().map(load_parent);
    let parents: Vec<ParentSettings> = parents.collect::<Result<_, _>>()?;
    let parents = ParentConnector::new(
        &parents,
        Arc::clone(&address_vetter),
        Arc::clone(&origin_tls),
        settings.upstream.dial,
        clock.clone(),
        metrics.clone(),
    );
    let upstream = UpstreamClient::new(
        settings.upstream,
        origin_tls,
        clock.clone(),
        Arc::clone(address_vetter.negative_cache()),
        Arc::new(parents),
    );
    Ok(RobotsFetcher {
        address_vetter,
        upstream: Arc::new(upstream),
        via,
        timeout: ROBOTS_TIMEOUT,
        clock: clock.clone(),
        owners: None,
    })
}

/// Reads the password of a parent.
fn load_parent(config: &ParentConfig) -> Result<ParentSettings, StartError> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        let name = config.name.as_str();
        other(format!(
            "egress.parents.{name}: {}: {error}",
            path.display()
        ))
    };
    let credentials = match &config.credentials {
        Some((user, path)) => {
            let password = std::fs::read_to_string(path).map_err(|error| failed(path, &error))?;
            let password = password.trim_end_matches(['\r', '\n']);
            let credentials = ParentCredentials::new(user, password);
            Some(credentials.map_err(|error| failed(path, &error))?)
        }
        None => None,
    };
    Ok(ParentSettings {
        name: config.name.clone(),
        proxies: config.proxies.clone(),
        credentials,
        check_interval: config.check_interval,
        is_warcprox: config.is_warcprox,
    })
}

/// Creates the interceptor of TLS, which uses certificates that this authority signs.
fn new_interceptor(
    settings: &Settings,
    authority: CertificateAuthority,
    recorder: &Recorder,
) -> Result<Interceptor, StartError> {
    let issuer = CertificateIssuer::new(
        authority,
        settings.tls.leaf_cache,
        settings.tls.mints_per_client,
        recorder.clock().clone(),
        recorder.metrics().clone(),
    )
    .map_err(other)?
    .with_http2(settings.accept.http2.clients);
    Ok(Interceptor::new(issuer, settings.tls.refusal_delivery))
}

/// Spawns the tasks that accept connections of crawlers, and returns their common limiter.
fn spawn_listeners(
    listeners: Vec<TcpListener>,
    settings: &Settings,
    service: &Arc<ProxyService>,
    drain: &DrainWatch,
    tasks: &mut JoinSet<()>,
) -> Result<Arc<ConnectionLimiter>, StartError> {
    let connections = ConnectionLimiter::new(&settings.accept);
    for (listener, config) in listeners.into_iter().zip(&settings.listen) {
        let handler = Arc::new(ProxyListener {
            service: Arc::clone(service),
            crawler: config.crawler.clone(),
            tls: load_certificate(config, settings)?,
            proxy_protocol: config.proxy_protocol.clone().into(),
        });
        tasks.spawn(accept::serve(
            listener,
            Arc::clone(&connections),
            settings.accept.connection(),
            handler,
            drain.clone(),
        ));
    }
    Ok(connections)
}

/// Spawns the task that serves the key directories, if there is a listener for them.
fn spawn_key_directory(
    listener: Option<TcpListener>,
    service: &ProxyService,
    tasks: &mut JoinSet<()>,
) {
    if let Some(listener) = listener {
        let clock = service.recorder.clock().clone();
        tasks.spawn(DirectoryServer::new(&service.signers, clock).serve(listener));
    }
}

/// Loads the certificate of a listener with TLS.
fn load_certificate(
    listener: &ListenerConfig,
    settings: &Settings,
) -> Result<Option<Arc<ServerConfig>>, StartError> {
    let Some(files) = &listener.tls else {
        return Ok(None);
    };
    load_listener_tls(&files.cert, &files.key, settings.accept.http2.clients)
        .map(Some)
        .map_err(|error| StartError::ListenerTls(listener.address, Box::new(error)))
}

/// Spawns the tasks that maintain the ledger, sweep it and order removals.
fn spawn_ledger_tasks(
    settings: &Settings,
    service: &Arc<ProxyService>,
    tasks: &mut JoinSet<()>,
) -> (LedgerSweeper, RemovalScheduler) {
    let clock = service.recorder.clock();
    let removals = RemovalScheduler::new(
        settings.ledger.removal_guard,
        settings.ledger.sweep_rate,
        settings
            .crawlers
            .iter()
            .map(|entry| entry.crawler.clone())
            .collect(),
        clock.clone(),
    );
    tasks.spawn(ledger::maintain(
        Arc::clone(&service.ledger),
        service.recorder.metrics().clone(),
        clock.clone(),
        settings.ledger.events.clone(),
        removals.clone(),
    ));
    tasks.spawn(order_removals(removals.clone(), Arc::clone(service)));
    let sweeper = LedgerSweeper::new(settings.ledger.sweep_rate, clock.clone());
    tasks.spawn(sweep_on_policy_change(
        sweeper.clone(),
        Arc::clone(&service.active_policy),
        Arc::clone(&service.ledger),
    ));
    (sweeper, removals)
}

/// Spawns the tasks that reload the policy, and returns the handle that triggers reloads.
fn spawn_reloads(
    reloader: Arc<PolicyFileReloader>,
    clock: &Clock,
    drain: &DrainWatch,
    tasks: &mut JoinSet<()>,
) -> ReloadHandle {
    let (reloads, worker) = ReloadHandle::new(clock.clone());
    tasks.spawn(Arc::clone(&reloader).watch(reloads.clone(), drain.clone()));
    tasks.spawn(worker.serve(move |trigger| reload_and_notify(Arc::clone(&reloader), trigger)));
    reloads
}

/// Spawns the task that changes the policy on request, and returns its handle.
fn spawn_rollout(
    reloader: Arc<PolicyFileReloader>,
    reloads: ReloadHandle,
    tasks: &mut JoinSet<()>,
) -> RolloutHandle {
    let (changes, queue) = RolloutHandle::new();
    let rollout = Arc::new(PolicyRollout::new(reloader, reloads));
    tasks.spawn(queue.serve(move |request| Arc::clone(&rollout).change(request)));
    changes
}

/// Reloads the policy, and notifies the service manager before and after.
async fn reload_and_notify(
    reloader: Arc<PolicyFileReloader>,
    trigger: ReloadTrigger,
) -> ReloadOutcomes {
    systemd::notify_reloading();
    let outcomes = Arc::clone(&reloader).attempt(trigger).await;
    systemd::notify_ready(&reloader.status(&outcomes.live));
    outcomes
}

/// Sweeps the ledger whenever the policy has changed.
async fn sweep_on_policy_change(
    sweeper: LedgerSweeper,
    active_policy: Arc<ActivePolicy>,
    ledger: LedgerCell,
) {
    sweeper
        .serve(&active_policy, || ledger.get().cloned())
        .await;
}

/// Orders pending removals when they are due.
async fn order_removals(removals: RemovalScheduler, service: Arc<ProxyService>) {
    removals
        .serve(
            &service.active_policy,
            || service.ledger.get().cloned(),
            &RobotsSource {
                robots: &service.robots,
                admission: &service.admission_queue,
            },
        )
        .await;
}

/// Closes idle connections to origins, removes idle hosts, and saves stops and budgets. After many clients have left,
/// returns their memory to the system. When the drain begins, refuses all waiting requests and ends.
async fn run_periodic_cleanup(
    service: Arc<ProxyService>,
    connections: Arc<ConnectionLimiter>,
    clock: Clock,
    mut drain: DrainWatch,
) {
    let mut burst = ConnectionBurst::default();
    let mut work = WorkBurst::default();
    let mut saving: Option<JoinHandle<()>> = None;
    let mut interval = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        tokio::select! {
            () = drain.wait_begun() => return service.admission_queue.close(),
            _ = interval.tick() => {}
        }
        service.upstream.pool().sweep(clock.now());
        service.admission_queue.sweep();
        service.address_vetter.negative_cache().sweep();
        service.robots.sweep();
        if let Some(fleet) = &service.fleet {
            fleet.sweep();
        }
        // Not awaited: a disk that hangs must not delay the drain.
        if saving.as_ref().is_none_or(JoinHandle::is_finished) {
            saving = save_changes(&service.admission_queue);
        }
        let load = connections.take_load();
        let is_over = burst.observe(load.open, load.peak);
        if work.observe(long_work::ended_count()) || is_over {
            let _ = tokio::task::spawn_blocking(heap::give_back).await;
        }
    }
}

/// Saves stops and budgets that have changed, or whose last write failed. Returns `None` if there is nothing to save.
fn save_changes(queue: &AdmissionQueue) -> Option<JoinHandle<()>> {
    let stops = Arc::clone(queue.stops());
    let budgets = Arc::clone(queue.budgets());
    let stops_changed = stops.needs_write();
    let budgets_changed = budgets.needs_write();
    if !stops_changed && !budgets_changed {
        return None;
    }
    Some(tokio::task::spawn_blocking(move || {
        if stops_changed {
            drop(stops.persist());
        }
        if budgets_changed {
            save_budgets(&budgets);
        }
    }))
}

fn save_budgets(budgets: &BudgetTracker) {
    if let Err(error) = budgets.persist() {
        tracing::warn!(%error, "today's budgets cannot be saved (store.path)");
    }
}

/// Counts panics, wherever they happen. A panic ends one request.
fn count_panics(metrics: Metrics) {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        metrics.record_panic();
        previous(panic);
    }));
}
