//! `crawlgate run`: the proxy, until it is told to stop.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::policy;
use crate::config::settings::{Settings, Workers};
use crate::policy::Policy;

use super::args::RunArgs;
use super::exit::Exit;
use super::open;
use super::out::{complain, say_and_fail, tell};
use super::serve::{Server, StartError};

/// Runs the proxy. Exit 2 if the configuration or the policy is invalid, 3 if it cannot start.
pub(super) fn run(args: &RunArgs) -> Exit {
    match prepare(args) {
        Ok((settings, policy)) => match runtime(settings.workers) {
            Ok(runtime) => runtime.block_on(serve(&settings, policy)),
            Err(error) => say_and_fail(&error),
        },
        Err(exit) => exit,
    }
}

/// Settings without danger and a policy whose cases pass.
fn prepare(args: &RunArgs) -> Result<(Settings, Policy), Exit> {
    let settings = open::settings(&args.into())?.settings;
    if let Some(danger) = settings.dangers().first() {
        return Err(complain(danger));
    }
    let compiled = policy::accept(&settings.policy.origin).map_err(|problems| open::refused(&problems))?;
    tell(&compiled.problems);
    tell(&policy::unknown_crawlers(&compiled.crawlers, &settings.crawlers));
    Ok((settings, compiled.policy))
}

/// The operator's messages go to standard error, one line each.
fn tracing_start() {
    let _ = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(tracing::Level::INFO)
        .with_target(false)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .try_init();
}

/// With one worker everything runs on this thread, and no task ever moves to another.
fn runtime(workers: Workers) -> io::Result<Runtime> {
    match workers {
        Workers::Count(1) => Builder::new_current_thread().enable_all().build(),
        Workers::Count(count) => Builder::new_multi_thread().worker_threads(count).enable_all().build(),
        Workers::Auto => Builder::new_multi_thread().enable_all().build(),
    }
}

async fn serve(settings: &Settings, policy: Policy) -> Exit {
    tracing_start();
    let (name, revision) = (policy.name().to_owned(), policy.revision().to_owned());
    let server = match Server::start(settings, policy) {
        Ok(server) => server,
        Err(error @ (StartError::Listen(..) | StartError::Log(_) | StartError::Other(_))) => {
            return say_and_fail(&error);
        }
    };
    // Scripts read these two lines; they are plain text whatever the form of the messages.
    for address in &server.proxy {
        eprintln!("proxy listening on {address}");
    }
    eprintln!("admin listening on {}", server.admin);
    tracing::info!("policy {name}@{revision} is in force");
    match told_to_stop().await {
        Ok(what) => {
            tracing::info!("{what}: finishing what is under way, at most for {:?}", settings.timeouts.drain);
            server.drain().await;
            Exit::Success
        }
        Err(error) => say_and_fail(&error),
    }
}

/// SIGTERM, or Ctrl-C in a terminal.
async fn told_to_stop() -> io::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok("SIGTERM"),
            _ = interrupt.recv() => return Ok("interrupted"),
            // Without a handler it would end the process, and reloading is what people send it for.
            _ = hang_up.recv() => tracing::warn!("SIGHUP: reloading is not in this version; restart to load a policy"),
        }
    }
}
