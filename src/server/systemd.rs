//! Tells systemd how the service is (`Type=notify-reload`): ready, reloading, stopping, alive. Elsewhere it does
//! nothing.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
#[cfg(target_os = "linux")]
use std::os::{linux::net::SocketAddrExt as _, unix::ffi::OsStrExt as _};
use std::time::Duration;

use sd_notify::NotifyState;

/// The service serves; what it does, in words, for `systemctl status`.
pub(crate) fn notify_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// A reload has begun; [`notify_ready`] tells its end.
pub(crate) fn notify_reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
}

/// The service goes down.
pub(crate) fn notify_stopping() {
    notify(&[
        NotifyState::Stopping,
        NotifyState::Status("finishing what is under way"),
    ]);
}

/// Says that the service is alive twice in the time that systemd allows, if it asks for that (`WatchdogSec=`). Run by
/// the runtime that serves: if that hangs, nothing is said.
pub(crate) async fn run_watchdog() {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut turn = tokio::time::interval((limit / 2).max(Duration::from_millis(1)));
    loop {
        turn.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}

/// Nobody listens, most of the time; that is no mistake.
fn notify(states: &[NotifyState<'_>]) {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let message: String = states.iter().map(|state| format!("{state}\n")).collect();
    if let Err(error) = send(&name, &message) {
        tracing::debug!(%error, "systemd was not told");
    }
}

/// A name with `@` before it is no path: containers are told of sockets like that, and the crate does not know them.
fn send(name: &OsStr, message: &str) -> io::Result<usize> {
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&socket_address(name)?)?;
    socket.send(message.as_bytes())
}

fn socket_address(name: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.as_bytes().strip_prefix(b"@") {
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}
