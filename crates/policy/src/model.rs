//! Terms shared by all modules: stages, reasons, intents, crawler profiles, units. Plain values
//! without I/O.

pub mod certificate_verification;
pub mod crawl_status;
pub mod crawler;
pub mod disposition;
pub mod failure_kind;
pub mod glob;
pub mod http_versions;
pub mod intent;
pub mod media_type;
pub mod number;
pub mod profile;
pub mod reason;
pub mod removal;
pub mod rule_id;
pub mod stage;
pub mod units;
pub mod upstream_fault;
pub mod week;
pub mod words;
