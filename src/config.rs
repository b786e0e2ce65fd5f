//! The operator's settings: from `config/crawlgate.yaml`, the environment and the command line to [`Settings`].
//!
//! Two types: [`file::ConfigFile`] is near the text, [`settings::Settings`] is ready to run. What crawl owners
//! write is the policy, which is another file and another language.

pub mod file;
pub mod settings;

pub use settings::Settings;
