//! Settings of the ledger, which records what happened to each URL.

use std::path::PathBuf;
use std::time::Duration;

use crate::ledger::removal::RemovalGuardSettings;
use crate::model::words::words;
use crate::store::ledger::LedgerSettings;
use crate::urls::target::UrlTarget;

/// Settings of `ledger`.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerConfig {
    /// When there is a ledger.
    pub keep: LedgerMode,
    /// The ledger itself.
    pub store: LedgerSettings,
    /// The maximum number of URLs per second that a sweep checks.
    pub sweep_rate: u64,
    /// The limit and the grace time of removals that one cause orders.
    pub removal_guard: RemovalGuardSettings,
    /// The feed of events.
    pub events: EventsConfig,
}

words! {
    /// When there is a ledger.
    pub enum LedgerMode {
        /// If the active policy needs one.
        Auto = "auto",
        Always = "always",
        /// Never; a policy that needs one is refused.
        Never = "never",
    }
}

/// The feed of events, for systems that keep an index.
#[derive(Clone, Debug, PartialEq)]
pub struct EventsConfig {
    /// The file to which events are appended.
    pub file: Option<PathBuf>,
    /// The URL to which events are posted.
    pub webhook: Option<UrlTarget>,
    /// The time for which events are kept.
    pub keep: Duration,
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self {
            keep: LedgerMode::Auto,
            store: LedgerSettings::default(),
            sweep_rate: 10_000,
            removal_guard: RemovalGuardSettings::default(),
            events: EventsConfig::default(),
        }
    }
}

impl Default for EventsConfig {
    fn default() -> Self {
        Self {
            file: None,
            webhook: None,
            keep: Duration::from_secs(30 * 86_400),
        }
    }
}
