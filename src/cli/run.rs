//! `crawlgate run`: the proxy, until it is told to stop.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::level_filters::LevelFilter;

use crate::config::policy;
use crate::config::settings::{PolicyOrigin, Settings, Workers};
use crate::gate::reload::{Reloads, Trigger};

use super::args::RunArgs;
use super::exit::Exit;
use super::open;
use super::out::{complain, say_and_fail, tell};
use super::reload::{self, Beside, Opened};
use super::serve::{Server, StartError};
use super::systemd;
use super::telling;

/// How long what blocks a thread (a disk that hangs, a look through what is kept) may hold up the end of the process.
const LAST: Duration = Duration::from_secs(3);

/// Runs the proxy. Exit 2 if the configuration or the policy is invalid, 3 if it cannot start.
pub(super) fn run(args: &RunArgs) -> Exit {
    let level = match telling::level() {
        Ok(level) => level,
        Err(words) => return complain(&words),
    };
    match prepare(args) {
        Ok((settings, policy)) => match runtime(settings.workers) {
            Ok(runtime) => {
                let exit = runtime.block_on(serve(&settings, policy, level));
                runtime.shutdown_timeout(LAST);
                exit
            }
            Err(error) => say_and_fail(&error),
        },
        Err(exit) => exit,
    }
}

/// Settings without danger and a policy whose cases pass.
fn prepare(args: &RunArgs) -> Result<(Settings, Opened), Exit> {
    let settings = open::settings(&args.into())?.settings;
    if let Some(danger) = settings.dangers().first() {
        return Err(complain(danger));
    }
    let (read, footprint) = policy::accept_noting(&settings.policy.origin);
    let compiled = read.map_err(|problems| open::refused(&problems))?;
    tell(&compiled.problems);
    tell(&policy::unknown_crawlers(
        &compiled.crawlers,
        &settings.crawlers,
    ));
    let shadow = match &settings.policy.shadow {
        Some(path) => Some(prepare_shadow(path, &settings)?),
        None => None,
    };
    let written = reload::written(&settings.policy.origin, &compiled);
    Ok((
        settings,
        Opened {
            policy: compiled.policy,
            written,
            footprint,
            shadow,
        },
    ))
}

/// The policy that is judged beside it: at the start a mistake in it is one, too.
fn prepare_shadow(path: &Path, settings: &Settings) -> Result<Beside, Exit> {
    let (read, footprint) = policy::accept_noting(&PolicyOrigin::Path(path.to_owned()));
    let compiled = read.map_err(|problems| open::refused(&problems))?;
    tell(&compiled.problems);
    tell(&policy::unknown_crawlers(
        &compiled.crawlers,
        &settings.crawlers,
    ));
    Ok(Beside {
        policy: compiled.policy,
        footprint,
    })
}

/// With one worker everything runs on this thread, and no task ever moves to another.
fn runtime(workers: Workers) -> io::Result<Runtime> {
    match workers {
        Workers::Count(1) => Builder::new_current_thread().enable_all().build(),
        Workers::Count(count) => Builder::new_multi_thread()
            .worker_threads(count)
            .enable_all()
            .build(),
        Workers::Auto => Builder::new_multi_thread().enable_all().build(),
    }
}

async fn serve(settings: &Settings, opened: Opened, level: LevelFilter) -> Exit {
    let _told = telling::start(level);
    let policy = format!(
        "policy {}@{} is in force",
        opened.policy.name(),
        opened.policy.revision()
    );
    // Before anybody can know that it runs: a signal without a handler would end it.
    let signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return say_and_fail(&error),
    };
    let server = match Server::start(settings, opened) {
        Ok(server) => server,
        Err(
            error @ (StartError::Listen(..)
            | StartError::Log(_)
            | StartError::Authority(_)
            | StartError::Other(_)),
        ) => return say_and_fail(&error),
    };
    // Scripts read these two lines; they are plain text whatever the form of the messages.
    for address in &server.proxy {
        eprintln!("proxy listening on {address}");
    }
    eprintln!("admin listening on {}", server.admin);
    tracing::info!("{policy}");
    systemd::ready(&policy);
    let alive = tokio::spawn(systemd::alive());
    let exit = until_stopped(server, signals, settings).await;
    alive.abort();
    exit
}

async fn until_stopped(server: Server, mut signals: Signals, settings: &Settings) -> Exit {
    let what = signals.stop(server.reloads()).await;
    tracing::info!(
        "{what}: finishing what is under way, at most for {:?}",
        settings.timeouts.drain
    );
    systemd::stopping();
    let reloads = server.reloads().clone();
    server.drain(signals.stop(&reloads)).await;
    Exit::Success
}

/// What the process is told from outside.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits until the process is told to stop; asks for a reload whenever it is told to hang up.
    async fn stop(&mut self, reloads: &Reloads) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "interrupted",
                _ = self.hang_up.recv() => {
                    let reloads = reloads.clone();
                    tokio::spawn(async move { reloads.reload(Trigger::Signal).await });
                }
            }
        }
    }
}
