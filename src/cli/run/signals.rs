//! The signals to a running proxy, received on a thread of their own.
//!
//! The runtime of the proxy may be blocked by a bug, or wait for a disk that hangs. The thread therefore ends the
//! process itself: soon after a second signal to stop, and some time after the first one, when the drain should have
//! ended.

use std::io;
use std::process;
use std::sync::{Arc, OnceLock, mpsc as std_mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::cli::Exit;
use crate::cli::logging::StderrLogGuard;
use crate::config::settings::DrainConfig;
use crate::metrics::log::DecisionLog;

/// The time after a second signal in which an orderly end is possible.
const HURRIED_END: Duration = Duration::from_millis(700);
/// The time in which the logs must be written before the process is ended.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(250);
/// The time after the drain in which the ledger, the logs and all else must be closed. Each has a shorter limit.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(40);
/// The maximum number of signals that wait for the proxy. More of the same have no effect.
const MAX_PENDING: usize = 16;

/// A signal that the proxy obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessSignal {
    /// SIGTERM or SIGINT.
    Stop(&'static str),
    /// SIGHUP.
    Reload,
}

/// The logs, which are flushed before the thread ends the process.
#[derive(Default)]
pub(super) struct FinalFlush {
    pub(super) stderr: Mutex<Option<StderrLogGuard>>,
    pub(super) decisions: OnceLock<DecisionLog>,
}

/// Installs the handlers of the signals, and starts the thread. Must be called outside a runtime.
pub(super) fn start(
    drain: DrainConfig,
    flush: Arc<FinalFlush>,
) -> io::Result<mpsc::Receiver<ProcessSignal>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handlers = {
        let _context = runtime.enter();
        SignalHandlers::new()?
    };
    let (sender, receiver) = mpsc::channel(MAX_PENDING);
    let name = thread::Builder::new().name("signals".into());
    name.spawn(move || {
        let exit = runtime.block_on(handlers.forward(sender, drain));
        end_process(&flush, exit);
    })?;
    Ok(receiver)
}

/// The handlers of the signals to the process.
struct SignalHandlers {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl SignalHandlers {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Forwards signals. Returns when the process must end at once, with the exit code: a second signal asks for that.
    async fn forward(mut self, proxy: mpsc::Sender<ProcessSignal>, drain: DrainConfig) -> Exit {
        self.forward_until_stop(&proxy).await;
        let limit = drain.delay + drain.timeout + CLOSE_TIMEOUT;
        let second = tokio::time::timeout(limit, self.forward_until_stop(&proxy)).await;
        if second.is_err() {
            return Exit::CannotRun;
        }
        tracing::warn!("a second signal: running requests are cut off");
        tokio::time::sleep(HURRIED_END).await;
        Exit::Success
    }

    /// Forwards signals up to one that stops the proxy.
    async fn forward_until_stop(&mut self, proxy: &mpsc::Sender<ProcessSignal>) {
        loop {
            let received = tokio::select! {
                _ = self.terminate.recv() => ProcessSignal::Stop("SIGTERM"),
                _ = self.interrupt.recv() => ProcessSignal::Stop("interrupted"),
                _ = self.hang_up.recv() => ProcessSignal::Reload,
            };
            // If it is full, the proxy does not answer: a stop is then enforced below.
            let _ = proxy.try_send(received);
            match received {
                ProcessSignal::Stop(_) => return,
                ProcessSignal::Reload => {}
            }
        }
    }
}

/// Ends the process, whatever its other threads do.
fn end_process(flush: &Arc<FinalFlush>, exit: Exit) {
    tracing::error!(
        "the process is ended: something does not end in time, and its last changes may be lost"
    );
    let (done, flushed) = std_mpsc::channel();
    let flush = Arc::clone(flush);
    thread::spawn(move || {
        if let Some(log) = flush.decisions.get() {
            log.close(FLUSH_TIMEOUT);
        }
        drop(flush.stderr.lock().take());
        let _ = done.send(());
    });
    let _ = flushed.recv_timeout(FLUSH_TIMEOUT);
    process::exit(exit as i32);
}
