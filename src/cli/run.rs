//! `crawlgate run`: runs the proxy until it receives a signal to stop.

mod signals;
mod terminal_log;

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tracing::level_filters::LevelFilter;

use crate::clock::Clock;
use crate::config::policy_replacement::StoreTakeoverError;
use crate::config::settings::{PolicyOrigin, Settings, TlsConfig, WorkerCount};
use crate::config::{policy, policy_replacement};
use crate::console::ConsoleColors;
use crate::fleet::membership::{NodeStartError, PreparedNode};
use crate::metrics::log::{LogDestination, LogLineFormat};
use crate::pipeline::reload::{ReloadHandle, ReloadTrigger};
use crate::server::reload::{self, LoadedPolicy, LoadedShadowPolicy};
use crate::server::{Server, StartError, systemd};
use crate::store::policy_lock::PolicyStoreLock;

use super::Exit;
use super::admin_client::client_address;
use super::args::RunArgs;
use super::console::{print_problems, report_cannot_run, report_invalid, warn};
use super::inputs;
use super::logging;
use signals::{FinalFlush, ProcessSignal};
use terminal_log::TerminalLog;

/// The time for which a blocked thread (a disk that hangs, a scan of the store) may delay the end of the process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs the command. Exits with 2 if the configuration or the policy is invalid, with 3 if the proxy cannot start.
pub(super) fn run(args: &RunArgs) -> Result<Exit, Exit> {
    let level = logging::level_from_env().map_err(|error| report_invalid(&error))?;
    let (settings, policy, lock) = load_inputs(args)?;
    let exit = start_and_serve(&settings, policy, level);
    drop(lock);
    exit.map_err(|error| report_cannot_run(&error))
}

fn start_and_serve(
    settings: &Settings,
    policy: LoadedPolicy,
    level: LevelFilter,
) -> io::Result<Exit> {
    let runtime = build_runtime(settings.workers)?;
    let flush = Arc::<FinalFlush>::default();
    // The handlers must exist before the listeners: a signal without a handler would end the process.
    let signals = signals::start(settings.drain, Arc::clone(&flush))?;
    *flush.stderr.lock() = Some(logging::start(level));
    let exit = runtime.block_on(serve(settings, policy, signals, &flush));
    drop(flush.stderr.lock().take());
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    Ok(exit)
}

/// Loads settings that are safe, and policies whose cases pass. Returns the lock on the store's policies with them.
fn load_inputs(args: &RunArgs) -> Result<(Settings, LoadedPolicy, Option<PolicyStoreLock>), Exit> {
    let settings = inputs::load_settings(&args.into())?.settings;
    if let Some(error) = settings.safety_errors().first() {
        return Err(report_invalid(error));
    }
    if let Some(store) = &settings.store.path {
        policy_replacement::check_store(store).map_err(|error| report_cannot_run(&error))?;
    }
    let lock = take_over_policies(&settings)?;
    let opened = policy::open_and_test_watched(&settings.policy.origin, None);
    let compiled = opened
        .result
        .map_err(|problems| inputs::report_errors(&problems))?;
    print_problems(&compiled.problems);
    print_problems(&policy::inert_rule_warnings(&compiled));
    print_problems(&policy::unknown_crawlers(
        &compiled.named_crawlers,
        &settings.crawlers,
    ));
    let unknown = policy::unknown_parents(
        &compiled,
        &policy::location(&settings.policy.origin),
        &settings.parents,
    );
    if !unknown.is_empty() {
        return Err(inputs::report_errors(&unknown));
    }
    let shadow = match &settings.policy.shadow {
        Some(path) => Some(load_shadow_policy(path, &settings)?),
        None => None,
    };
    let source = reload::policy_source(&settings.policy.origin, &compiled);
    Ok((
        settings,
        LoadedPolicy {
            policy: compiled.policy,
            source,
            stamps: opened.stamps,
            files: opened.files,
            shadow,
        },
        lock,
    ))
}

/// Loads the policy of `policy.shadow`. At the start of the proxy, an error in it is fatal as well.
fn load_shadow_policy(path: &Path, settings: &Settings) -> Result<LoadedShadowPolicy, Exit> {
    let opened = policy::open_and_test_watched(&PolicyOrigin::Path(path.to_owned()), None);
    let compiled = opened
        .result
        .map_err(|problems| inputs::report_errors(&problems))?;
    print_problems(&compiled.problems);
    print_problems(&policy::unknown_crawlers(
        &compiled.named_crawlers,
        &settings.crawlers,
    ));
    Ok(LoadedShadowPolicy {
        policy: compiled.policy,
        stamps: opened.stamps,
    })
}

/// Locks the policies in `store.path`, and finishes a promotion that a crash has interrupted, so that no mixture of two policies
/// is read.
fn take_over_policies(settings: &Settings) -> Result<Option<PolicyStoreLock>, Exit> {
    let (Some(store), PolicyOrigin::Path(path)) = (&settings.store.path, &settings.policy.origin)
    else {
        return Ok(None);
    };
    let shown = store.display();
    match policy_replacement::take_over(store, path) {
        Ok(taken_over) => {
            if taken_over.is_shared {
                warn(&format!(
                    "another crawlgate uses {shown}, too (store.path): give each proxy a directory of its own"
                ));
            }
            let recovered = taken_over.recovered.and_then(|files| files.message());
            recovered.iter().for_each(|message| warn(message));
            Ok(taken_over.lock)
        }
        Err(StoreTakeoverError::InUse) => Err(report_cannot_run(&format!(
            "another crawlgate uses {shown}, too (store.path), and is replacing the files of the policy: end it first, or give each \
             proxy a directory of its own"
        ))),
        Err(StoreTakeoverError::Unreadable(error)) => Err(report_cannot_run(&format!(
            "{shown} cannot be used (store.path): {error}"
        ))),
        Err(StoreTakeoverError::Unrecoverable(error)) => Err(report_cannot_run(&format!(
            "the replacement of the policy in {} was interrupted, and its old files cannot be restored: {error}. Put the \
             right files there, and remove {}",
            path.display(),
            store.join("policies/replacement.json").display()
        ))),
    }
}

/// Builds the runtime. With one worker, all tasks run on this thread and never move to another.
fn build_runtime(workers: WorkerCount) -> io::Result<Runtime> {
    match workers {
        WorkerCount::Count(1) => Builder::new_current_thread().enable_all().build(),
        WorkerCount::Count(count) => Builder::new_multi_thread()
            .worker_threads(count)
            .enable_all()
            .build(),
        WorkerCount::Auto => Builder::new_multi_thread().enable_all().build(),
    }
}

async fn serve(
    settings: &Settings,
    loaded: LoadedPolicy,
    signals: mpsc::Receiver<ProcessSignal>,
    flush: &FinalFlush,
) -> Exit {
    let policy = format!("policy {} is active", loaded.policy.name_and_revision());
    let node = match prepare_node(settings).await {
        Ok(node) => node,
        Err(error) => return report_cannot_run(&error),
    };
    let server = match start_server(settings, loaded, node) {
        Ok(server) => server,
        Err(error) => return report_cannot_run(&error),
    };
    let _ = flush.decisions.set(server.decision_log().clone());
    // Scripts read these lines, which are plain text regardless of the log format.
    for address in &server.proxy {
        eprintln!("proxy listening on {address}");
    }
    if let Some(address) = server.key_directory {
        eprintln!("key directory listening on {address}");
    }
    eprintln!("admin listening on {}", server.admin);
    eprintln!("page: http://{}/ui", client_address(server.admin));
    eprintln!("{}", https_line(&settings.tls));
    tracing::info!("{policy}");
    systemd::notify_ready(&policy);
    let watchdog = tokio::spawn(systemd::run_watchdog());
    let exit = run_until_stopped(server, signals, settings).await;
    watchdog.abort();
    exit
}

/// Connects a node to the store of its fleet, if the settings have one.
async fn prepare_node(settings: &Settings) -> Result<Option<PreparedNode>, NodeStartError> {
    let (Some(fleet), Some(store), Some(directory)) = (
        &settings.fleet,
        settings.store.postgres(),
        &settings.store.path,
    ) else {
        return Ok(None);
    };
    let clock = Clock::system();
    PreparedNode::new(
        &fleet.name,
        &fleet.node,
        fleet.lease,
        &store,
        directory,
        clock,
    )
    .await
    .map(Some)
}

fn start_server(
    settings: &Settings,
    loaded: LoadedPolicy,
    node: Option<PreparedNode>,
) -> Result<Server, StartError> {
    let logs = &settings.logs;
    let for_people = logs.destination == LogDestination::Auto
        && logs.format == LogLineFormat::Json
        && io::stderr().is_terminal();
    let writer = for_people.then(|| {
        let log = TerminalLog::new(io::stderr(), ConsoleColors::for_stderr());
        Box::new(log) as Box<dyn io::Write + Send>
    });
    match (node, writer) {
        (Some(node), writer) => Server::start_node(settings, loaded, writer, node),
        (None, Some(writer)) => Server::start_with_log_writer(settings, loaded, writer),
        (None, None) => Server::start(settings, loaded),
    }
}

/// Describes how requests over HTTPS are evaluated.
fn https_line(tls: &TlsConfig) -> String {
    match tls.authorities.first().filter(|_| tls.intercept) {
        Some(authority) => format!(
            "HTTPS: evaluated by URL; clients must trust {} (`crawlgate env` sets that up)",
            std::fs::canonicalize(&authority.cert)
                .unwrap_or_else(|_| authority.cert.clone())
                .display()
        ),
        None => "HTTPS: evaluated by host only, since tls.intercept is false".to_owned(),
    }
}

async fn run_until_stopped(
    server: Server,
    mut signals: mpsc::Receiver<ProcessSignal>,
    settings: &Settings,
) -> Exit {
    let signal = wait_for_stop(&mut signals, server.reloads()).await;
    tracing::info!(
        "{signal}: completing running requests, for at most {:?}",
        settings.drain.timeout
    );
    systemd::notify_stopping();
    let reloads = server.reloads().clone();
    server.drain(wait_for_stop(&mut signals, &reloads)).await;
    Exit::Success
}

/// Waits for a signal to stop, and starts a reload at each SIGHUP.
async fn wait_for_stop(
    signals: &mut mpsc::Receiver<ProcessSignal>,
    reloads: &ReloadHandle,
) -> &'static str {
    loop {
        match signals.recv().await {
            Some(ProcessSignal::Stop(name)) => return name,
            Some(ProcessSignal::Reload) => {
                let reloads = reloads.clone();
                tokio::spawn(async move { reloads.reload(ReloadTrigger::Signal).await });
            }
            None => std::future::pending().await,
        }
    }
}
