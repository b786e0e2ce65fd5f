//! `GET /api/v1/config`: the settings in force, and where each comes from. Secrets are masked when the configuration is
//! read.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use super::AdminServer;
use super::response;

/// All settings of a process, in the order of the documentation.
#[derive(Clone, Debug, Default)]
pub struct ConfigListing {
    /// The configuration file; `None` without one.
    pub file: Option<String>,
    /// SHA-256 of the content that was read from it.
    pub digest: Option<[u8; 32]>,
    pub settings: Arc<[SettingInfo]>,
}

/// A setting.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingInfo {
    /// The full name, as in `logs.rotate.size`.
    pub key: String,
    /// The description.
    pub about: String,
    /// The value, without secrets; `null` if there is none.
    pub value: Json,
    /// The value that it has by default; `null` if there is none, or if it depends on other settings.
    pub default: Json,
    pub source: SettingSource,
}

/// The place where a setting was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingSource {
    Default,
    /// A line of the configuration file.
    File {
        line: u32,
    },
    /// An option of the command line.
    CommandLine(&'static str),
}

/// Listings describe settings that are compared themselves, wherever they were written.
impl PartialEq for ConfigListing {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl AdminServer {
    /// Returns the version, the configuration file, and all settings.
    pub(super) fn show_config(&self) -> Response<Full<Bytes>> {
        let listing = &self.apis.process.settings().config;
        let document = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "file": listing.file,
            "settings": listing.settings.iter().map(setting_to_json).collect::<Vec<_>>(),
        });
        response::json(StatusCode::OK, &document)
    }
}

fn setting_to_json(setting: &SettingInfo) -> Json {
    let (source, line, option) = match setting.source {
        SettingSource::Default => ("default", None, None),
        SettingSource::File { line } => ("file", Some(line), None),
        SettingSource::CommandLine(option) => ("command_line", None, Some(option)),
    };
    json!({
        "key": setting.key,
        "about": setting.about,
        "value": setting.value,
        "default": setting.default,
        "source": source,
        "line": line,
        "option": option,
    })
}
