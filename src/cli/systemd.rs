//! Tells systemd how the service is (`Type=notify-reload`): ready, reloading, stopping, alive. Elsewhere it does
//! nothing.

use std::time::Duration;

use sd_notify::NotifyState;

/// The service serves; what it does, in words, for `systemctl status`.
pub(super) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// A reload has begun; [`ready`] tells its end.
pub(super) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
}

/// The service goes down.
pub(super) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("finishing what is under way")]);
}

/// Says that the service is alive twice in the time that systemd allows, if it asks for that (`WatchdogSec=`). Run by
/// the runtime that serves: if that hangs, nothing is said.
pub(super) async fn alive() {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let mut turn = tokio::time::interval((limit / 2).max(Duration::from_millis(1)));
    loop {
        turn.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}

/// Nobody listens, most of the time; that is no mistake.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd was not told");
    }
}
