//! The operator's settings: from `config/crawlgate.yaml`, the environment and the command line to [`Settings`].
//!
//! Two types: [`file::ConfigFile`] is near the text, [`settings::Settings`] is ready to run; [`load`] goes from one
//! to the other. What crawl owners write is the policy, which is another file and another language; [`policy`] opens
//! it.

pub mod file;
pub mod load;
pub mod policy;
pub mod policy_files;
pub mod settings;
pub mod watch;

pub use settings::Settings;
