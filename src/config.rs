//! The operator's settings, from `config/crawlgate.yaml`, the environment and the command line.
//!
//! [`mod@file`] reads the text of a configuration into [`Settings`]; [`load`] finds the file, applies the command line and
//! checks the result. The policy of crawl owners is another file in another language; [`policy`] opens it.

mod base_paths;
pub mod captured_files;
pub mod crawler_fit;
pub mod file;
pub mod file_digest;
pub mod load;
pub mod policy;
pub mod policy_files;
pub mod policy_replacement;
pub mod settings;
pub mod timed_read;
pub mod watch;

pub use base_paths::{BasePaths, canonical_path};
pub use settings::Settings;
