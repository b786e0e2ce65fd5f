//! Notices that the configuration file was edited after the start: it takes effect at the next one only, which nobody should have
//! to find out from a setting without effect.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::config::file_digest::read_digest;
use crate::config::settings::Settings;
use crate::proxy::drain::DrainWatch;

/// The interval at which the file is read.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Spawns the task that polls the file, if there is one. Returns the flag that is set while its content is not the one that was
/// read at the start.
pub(super) fn spawn(
    settings: &Settings,
    drain: DrainWatch,
    tasks: &mut JoinSet<()>,
) -> Arc<AtomicBool> {
    let has_changed = Arc::<AtomicBool>::default();
    let listing = &settings.listing;
    if let (Some(file), Some(digest)) = (&listing.file, listing.digest) {
        let has_changed = Arc::clone(&has_changed);
        tasks.spawn(watch(PathBuf::from(file), digest, has_changed, drain));
    }
    has_changed
}

async fn watch(
    file: PathBuf,
    digest: [u8; 32],
    has_changed: Arc<AtomicBool>,
    mut drain: DrainWatch,
) {
    let mut interval = tokio::time::interval(POLL_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let poll = async {
        loop {
            interval.tick().await;
            let file = file.clone();
            let present = tokio::task::spawn_blocking(move || read_digest(&file)).await;
            if let Ok(Some(present)) = present {
                let changed = present != digest;
                if has_changed.swap(changed, Ordering::Relaxed) != changed {
                    log_change(changed);
                }
            }
        }
    };
    tokio::select! {
        () = drain.wait_begun() => {}
        () = poll => {}
    }
}

fn log_change(changed: bool) {
    if changed {
        tracing::warn!(
            "the configuration file has changed since the start: restart the proxy to use it"
        );
    } else {
        tracing::info!("the configuration file is as it was at the start again");
    }
}
