//! Notifies systemd of the state of the service (`Type=notify` or `notify-reload`): ready, reloading, stopping, alive. Without
//! systemd it does nothing.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
#[cfg(target_os = "linux")]
use std::os::{linux::net::SocketAddrExt as _, unix::ffi::OsStrExt as _};
use std::time::Duration;

use sd_notify::NotifyState;

/// Reports that the service is ready, with a status line for `systemctl status`.
pub(crate) fn notify_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that a reload has begun; [`notify_ready`] reports its end.
pub(crate) fn notify_reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
}

/// Reports that the service is shutting down.
pub(crate) fn notify_stopping() {
    notify(&[
        NotifyState::Stopping,
        NotifyState::Status("completing running requests"),
    ]);
}

/// Reports that the service is alive, twice per interval of systemd's watchdog (`WatchdogSec=`), if it is enabled. It
/// runs on the runtime that serves requests: if that hangs, the reports stop.
pub(crate) async fn run_watchdog() {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut interval = tokio::time::interval((limit / 2).max(Duration::from_millis(1)));
    loop {
        interval.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}

/// Sends a notification, if the service runs under systemd.
fn notify(states: &[NotifyState<'_>]) {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let message: String = states.iter().map(|state| format!("{state}\n")).collect();
    if let Err(error) = send(&name, &message) {
        tracing::debug!(%error, "systemd could not be notified");
    }
}

/// Sends to the socket `name`. The crate does not support abstract sockets (`@name`), which containers use.
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
