//! What is remembered of URLs, and how.

use std::path::PathBuf;
use std::time::Duration;

use crate::urls::target::UrlTarget;

use super::OnFullSetting;

/// The ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerConfig {
    /// When there is one.
    pub keep: LedgerMode,
    /// What happens to a request when the disk cannot keep up.
    pub on_full: OnFullSetting,
    /// So many changes may wait to be written.
    pub queue: u64,
    /// So many temporary errors in a row are too many.
    pub temporary_errors: u64,
    /// Memory, about, in bytes.
    pub cache: u64,
    /// URLs that a sweep looks at in a second, at most.
    pub sweep_rate: u64,
    /// What is told of URLs.
    pub events: EventsConfig,
}

/// When there is a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LedgerMode {
    /// If the policy in force asks for something that only a ledger knows.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never: a policy that asks for one is refused.
    Never,
}

/// What is told to those who keep an index.
#[derive(Clone, Debug, PartialEq)]
pub struct EventsConfig {
    /// The file that events are appended to.
    pub file: Option<PathBuf>,
    /// The URL that they are posted to.
    pub webhook: Option<UrlTarget>,
    /// How long they are kept.
    pub keep: Duration,
}

impl LedgerMode {
    /// Every choice, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Always, Self::Never];

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self {
            keep: LedgerMode::Auto,
            on_full: OnFullSetting::Wait,
            queue: 10_000,
            temporary_errors: 5,
            cache: 64 << 20,
            sweep_rate: 10_000,
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
