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
use crate::config::settings::{self, LogFormat, LogTarget, MetricsLevel, OnFull, Settings};
use crate::gate::budget::Budgets;
use crate::gate::crawlers::Crawlers;
use crate::gate::hold::{Hold, HoldLimits};
use crate::gate::reload::{Made, Reloads, Trigger};
use crate::gate::snapshot::InForce;
use crate::gate::sweep::Sweeper;
use crate::heap::{self, Burst};
use crate::metrics::Metrics;
use crate::metrics::labels::Counting;
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
use crate::store::budgets::BudgetsFile;
use crate::store::ledger::Ledger;
use crate::store::stops::StopsFile;
use crate::tls::{Authority, AuthorityError, Minter};
use crate::vocab::address::AddressClass;
use crate::vocab::crawler::Crawler;

use super::authority;
use super::origin_roots::origin_tls;
use super::reload::{Opened, Reloading};
use super::spans::{self, Spans};
use super::systemd;

use admin::{LookedOn, Shown};
use feed::Feeding;
use ledger::{Keeper, Kept};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 4096;
/// How often idle connections to origins, and hosts, are looked over.
const SWEEP: Duration = Duration::from_secs(2);
/// How long a fetch of a robots.txt may take, with the wait for the host's turn.
const ROBOTS_TIME: Duration = Duration::from_secs(20);
/// How long the decision log may take to write its last lines.
const LOG_CLOSE: Duration = Duration::from_secs(5);
/// For whoever still reads from the admin listener, behind that.
const LAST_LOOK: Duration = Duration::from_secs(1);

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
    looked_on: LookedOn,
    tasks: JoinSet<()>,
    spans: Spans,
    feeding: Feeding,
    budgets: Arc<Budgets>,
    ledger: Kept,
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
        Self::start_with(settings, policy.into(), Clock::system(), None)
    }

    /// The same by another clock, and with what is remembered of URLs already.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        settings: &Settings,
        policy: Opened,
        clock: Clock,
        ledger: Option<Ledger>,
    ) -> Result<Self, StartError> {
        let metrics = counters(settings)?;
        let log =
            Log::open(log_settings(&settings.logs), &metrics, &clock).map_err(StartError::Log)?;
        let (tracing, spans) = spans::prepare(settings, &metrics).map_err(StartError::Other)?;
        let recorder = Recorder::with_tracing(metrics.clone(), log.clone(), clock.clone(), tracing);
        let spans = Spans::start(spans, &recorder);
        count_panics(metrics.clone());
        let authorities = authority::open(settings, clock.wall()).map_err(StartError::Authority)?;

        let listeners = settings
            .listen
            .iter()
            .map(|listener| listen(listener.address));
        let listeners: Vec<TcpListener> = listeners.collect::<Result<_, _>>()?;
        let admin_listener = listen(settings.admin.listen)?;
        let proxy = listeners.iter().map(local).collect::<Result<Vec<_>, _>>()?;
        let admin = local(&admin_listener)?;

        let keeper = Arc::new(Keeper::new(settings, ledger));
        keeper.prepare(&policy.policy).map_err(StartError::Other)?;
        let ledger = Arc::clone(keeper.kept());
        let reloading = Reloading::new(settings, policy, keeper, metrics.clone(), clock.clone());
        let reloading = Arc::new(reloading);
        let in_force = Arc::clone(reloading.in_force());
        let own = proxy.iter().copied().chain([admin]).collect();
        let (pem, authority) = authorities
            .map(|opened| (opened.pem, opened.authority))
            .unzip();
        let interceptor = authority
            .map(|authority| interceptor(settings, authority, &recorder))
            .transpose()?;
        let exchange = exchange(
            settings,
            Arc::clone(&in_force),
            recorder.clone(),
            own,
            interceptor,
        )?;
        let exchange = Arc::new(Exchange {
            ledger: Arc::clone(&ledger),
            ..exchange
        });
        restore(settings, &exchange.hold)?;
        let budgets = Arc::clone(exchange.hold.budgets());
        let (drain, watch) = Drain::new();
        let mut tasks = JoinSet::new();
        let limits = accept_limits(settings);
        let room = Room::new(&limits);
        for (listener, settings) in listeners.into_iter().zip(&settings.listen) {
            let exchange = Arc::clone(&exchange);
            let entrance = Arc::new(Entrance {
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
        let (reloads, reloader) = Reloads::new(clock.clone());
        tasks.spawn(Arc::clone(&reloading).watch(reloads.clone(), watch.clone()));
        tasks.spawn(reloader.serve(move |trigger| attempt(Arc::clone(&reloading), trigger)));
        tasks.spawn(sweep(Arc::clone(&exchange), room, clock.clone(), watch));
        let feeding = Feeding::start(settings, &ledger, &metrics).map_err(StartError::Other)?;
        let sweeper = Sweeper::new(settings.ledger.sweep_rate, clock.clone());
        tasks.spawn(ledger::look_after(
            Arc::clone(&ledger),
            metrics,
            clock,
            settings.ledger.events.clone(),
        ));
        tasks.spawn(swept(
            sweeper.clone(),
            Arc::clone(&in_force),
            Arc::clone(&ledger),
        ));
        let draining = Arc::new(AtomicBool::new(false));
        let shown = Shown {
            in_force,
            reloads: reloads.clone(),
            exchange,
            draining: Arc::clone(&draining),
            pem,
            sweeper,
        };
        let looked_on = LookedOn::serve(shown.server(settings)?, admin_listener, &mut tasks);
        let patience = (settings.timeouts.drain_delay, settings.timeouts.drain);
        Ok(Self {
            proxy,
            admin,
            recorder,
            reloads,
            drain,
            draining,
            looked_on,
            tasks,
            spans,
            feeding,
            budgets,
            ledger,
            patience,
        })
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
        let _ = self.looked_on.stop.send(());
        let mut tasks = self.tasks;
        tasks.shutdown().await;
        self.feeding.close().await;
        ledger::close(&self.ledger).await;
        self.spans.close().await;
        let budgets = self.budgets;
        let _ = tokio::task::spawn_blocking(move || keep_budgets(&budgets)).await;
        let log = self.recorder.log().clone();
        let _ = tokio::task::spawn_blocking(move || log.close(LOG_CLOSE)).await;
        // Streams of decisions have ended with the log; their last lines are on their way.
        let _ = tokio::time::timeout(LAST_LOOK, self.looked_on.connections.gone()).await;
    }
}

fn counters(settings: &Settings) -> Result<Metrics, StartError> {
    let ranges: Vec<&'static str> = AddressClass::ALL
        .into_iter()
        .map(AddressClass::as_str)
        .collect();
    let known: Vec<Crawler> = settings
        .crawlers
        .iter()
        .map(|r| r.crawler.clone())
        .collect();
    let metrics = Metrics::with(counting(settings.telemetry.metrics), &known, &ranges);
    metrics.map_err(|error| StartError::Other(error.to_string()))
}

/// What was kept of the stops and the budgets before the last start.
fn restore(settings: &Settings, hold: &Hold) -> Result<(), StartError> {
    let Some(directory) = &settings.store.path else {
        return Ok(());
    };
    let stops = hold.stops().restore(StopsFile::in_directory(directory));
    stops.map_err(|error| StartError::Other(error.to_string()))?;
    let budgets = hold.budgets().restore(BudgetsFile::in_directory(directory));
    budgets.map_err(|error| StartError::Other(error.to_string()))
}

fn counting(level: MetricsLevel) -> Counting {
    match level {
        MetricsLevel::Full => Counting::Everything,
        MetricsLevel::None => Counting::Nothing,
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

fn local(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    listener
        .local_addr()
        .map_err(|error| StartError::Other(error.to_string()))
}

fn exchange(
    settings: &Settings,
    in_force: Arc<InForce<Arc<PolicyMetrics>>>,
    recorder: Recorder,
    own: Vec<SocketAddr>,
    interceptor: Option<Interceptor>,
) -> Result<Exchange, StartError> {
    let (limits, timeouts, clock) = (
        &settings.limits,
        &settings.timeouts,
        recorder.clock().clone(),
    );
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
    let hold = Hold::new(
        Store::embedded(),
        hold,
        clock.clone(),
        recorder.metrics().clone(),
    );
    let via = ViaName::new(&instance);
    let fetcher = robots_fetcher(settings, recorder.metrics(), &clock, via.clone(), own)?;
    let (vetting, upstream) = (Arc::clone(&fetcher.vetting), Arc::clone(&fetcher.upstream));
    Ok(Exchange {
        in_force,
        hold: Arc::new(hold),
        vetting,
        robots: Robots::new(fetcher, clock, recorder.metrics().clone()),
        upstream,
        ledger: Arc::default(),
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
        body_times: BodyTimes {
            idle: timeouts.body_idle,
            whole: timeouts.request,
        },
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
    let vetting = Arc::new(Vetting::new(
        resolver,
        egress(settings, own),
        metrics.clone(),
    ));
    let dead = Arc::clone(vetting.dead());
    Ok(Fetcher {
        vetting,
        upstream: Arc::new(Upstream::new(
            upstream_limits(settings),
            tls,
            clock.clone(),
            dead,
        )),
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
    let (tls, clock, metrics) = (
        &settings.tls,
        recorder.clock().clone(),
        recorder.metrics().clone(),
    );
    let minter = Minter::new(
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
            Telling::Inside
        } else {
            Telling::AtConnect
        },
    ))
}

fn egress(settings: &Settings, own: Vec<SocketAddr>) -> Egress {
    let private = settings.egress.allow_private.iter();
    Egress {
        allow_private: private
            .map(|p| PrivateHost {
                host: p.host.clone(),
                cidr: p.cidr,
            })
            .collect(),
        allow_loopback: settings.egress.allow_loopback,
        ports: settings.egress.ports.ranges().to_vec(),
        own,
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
        format: match logs.format {
            LogFormat::Json => log::LineFormat::Json,
            LogFormat::Squid => log::LineFormat::Squid,
        },
        rotate: logs
            .rotate
            .map(|settings::Rotate { size, keep }| log::Rotate { size, keep }),
        allows: Share::new(logs.allows).unwrap_or(Share::ALL),
        on_full: match logs.on_full {
            OnFull::Drop => log::OnFull::Drop,
            OnFull::Wait => log::OnFull::Wait,
        },
        query: if logs.redact_query {
            QueryText::Redacted
        } else {
            QueryText::Shown
        },
        ..LogSettings::default()
    }
}

/// Sweeps the ledger when the policy has changed.
async fn swept(sweeper: Sweeper, in_force: Arc<InForce<Arc<PolicyMetrics>>>, kept: Kept) {
    sweeper.serve(&in_force, || kept.get().cloned()).await;
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
    let (mut burst, mut keeping) = (Burst::default(), None::<JoinHandle<()>>);
    let mut turn = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            () = drain.begun() => return exchange.hold.close(),
            _ = turn.tick() => {
                exchange.upstream.pool().sweep(clock.now());
                exchange.hold.sweep();
                exchange.vetting.dead().sweep();
                exchange.robots.sweep();
                // A disk that hangs must not hold up the drain.
                if keeping.as_ref().is_none_or(JoinHandle::is_finished) {
                    keeping = keep(&exchange);
                }
                if burst.is_over(room.open()) {
                    let _ = tokio::task::spawn_blocking(heap::give_back).await;
                }
            }
        }
    }
}

/// Tells the disk which stops have ended, or what it could not be told when it changed; and what was spent.
fn keep(exchange: &Exchange) -> Option<JoinHandle<()>> {
    let (stops, budgets) = (
        Arc::clone(exchange.hold.stops()),
        Arc::clone(exchange.hold.budgets()),
    );
    let (changed, spent) = (stops.is_behind(), budgets.is_behind());
    (changed || spent).then(|| {
        tokio::task::spawn_blocking(move || {
            if changed {
                drop(stops.keep());
            }
            if spent {
                keep_budgets(&budgets);
            }
        })
    })
}

fn keep_budgets(budgets: &Budgets) {
    if let Err(error) = budgets.keep() {
        tracing::warn!(%error, "what was spent of today's budgets could not be written down");
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
