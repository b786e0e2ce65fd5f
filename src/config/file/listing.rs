//! The list of all settings for the admin page: each with its value as written, its default, and its place.
//!
//! Values are those of the file before variables are replaced, so a secret of the environment is not in the list;
//! secrets of the file are masked.

use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use crate::admin::config::{SettingInfo, SettingSource};
use crate::config::settings::{ListenerConfig, PolicyOrigin, Settings};
use crate::yaml::{Node, YamlValue};

use super::json_schema::json_schema;

/// The text in place of a secret.
const MASK: &str = "***";
/// Keys whose values are secrets, at any depth: hashes of passwords, and headers with credentials.
const SECRET_KEYS: [&str; 2] = ["password_hash", "headers"];
/// The settings without a default in the schema that are off or empty by default.
const EMPTY_DEFAULTS: [(&str, &str); 9] = [
    ("admin.token_file", "none"),
    ("admin.public_url", "none"),
    ("policy.shadow", "none"),
    ("policy.contact", "none"),
    ("egress.resolver", "system"),
    ("logs.decisions", "auto"),
    ("ledger.events.file", "none"),
    ("ledger.events.webhook", "none"),
    ("telemetry.otlp", "none"),
];

/// Returns all settings of a file, or their defaults without one.
pub(super) fn list_settings(tree: Option<&Node>) -> Vec<SettingInfo> {
    let mut settings = Vec::new();
    add_group("", &json_schema(), tree, &mut settings);
    settings
}

/// Adds the settings of a group: those that the schema describes, each with its value in the file.
fn add_group(prefix: &str, schema: &Json, node: Option<&Node>, settings: &mut Vec<SettingInfo>) {
    let properties = schema.get("properties").and_then(Json::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let key = format!("{prefix}{name}");
        let value = node
            .and_then(|node| node.get(name))
            .filter(|node| !node.is_null());
        if property.get("properties").is_some() {
            add_group(&format!("{key}."), property, value, settings);
        } else if !is_unsupported(property) && (value.is_some() || !is_deprecated(property)) {
            settings.push(setting(key, property, value));
        }
    }
}

/// Returns `true` for a setting that has no effect in this version.
fn is_unsupported(property: &Json) -> bool {
    property.get("not").is_some() || property.get("const").is_some()
}

fn is_deprecated(property: &Json) -> bool {
    property.get("deprecated").is_some()
}

fn setting(key: String, property: &Json, node: Option<&Node>) -> SettingInfo {
    let empty = EMPTY_DEFAULTS.iter().find(|(name, _)| *name == key);
    let default = match (property.get("default"), empty) {
        (Some(default), _) => default.clone(),
        (None, Some((_, word))) => json!(word),
        (None, None) => Json::Null,
    };
    let about = property.get("description").and_then(Json::as_str);
    let (value, source) = match node {
        Some(node) => {
            let line = node.place.line;
            (node_to_json(node), SettingSource::File { line })
        }
        None => (default.clone(), SettingSource::Default),
    };
    SettingInfo {
        key,
        about: about.unwrap_or_default().to_owned(),
        value,
        default,
        source,
    }
}

/// Returns a value of the file, without its secrets.
fn node_to_json(node: &Node) -> Json {
    match &node.value {
        YamlValue::Null => Json::Null,
        YamlValue::Bool(value) => json!(value),
        YamlValue::Int(value, _) => json!(value),
        YamlValue::Float(value, _) => json!(value),
        YamlValue::Text(text) => mask_url(text).into(),
        YamlValue::Sequence(items) => items.iter().map(node_to_json).collect(),
        YamlValue::Mapping(entries) => {
            let members = entries.iter().map(|entry| {
                let value = if SECRET_KEYS.contains(&&*entry.key.text) {
                    json!(MASK)
                } else {
                    node_to_json(&entry.value)
                };
                (entry.key.text.to_string(), value)
            });
            Json::Object(members.collect::<Map<_, _>>())
        }
    }
}

/// Masks the credentials and the query of a URL, which may be a secret. Other texts are unchanged.
fn mask_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, _)) => (rest, "?***"),
        None => (rest, ""),
    };
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{MASK}@{host}"),
        None => authority.to_owned(),
    };
    format!("{scheme}://{authority}{path}{query}")
}

/// Completes the list of loaded settings: values that depend on the directory, and those of the command line, which
/// are in `options` by their keys.
pub(in crate::config) fn complete(
    listed: &mut [SettingInfo],
    settings: &Settings,
    options: &[(&str, &'static str)],
) {
    for setting in listed {
        let option = options.iter().find(|(key, _)| *key == setting.key);
        if let Some((_, option)) = option {
            setting.source = SettingSource::CommandLine(option);
        }
        let is_written = matches!(setting.source, SettingSource::File { .. });
        if !is_written && let Some(value) = value_in_force(&setting.key, settings) {
            setting.value = value;
        }
    }
}

/// Returns the value of a setting without a default in the schema.
fn value_in_force(key: &str, settings: &Settings) -> Option<Json> {
    let value = match key {
        "listen" => settings.listen.iter().map(listener_to_json).collect(),
        "admin.listen" => json!(settings.admin.listen.to_string()),
        "policy.path" => match &settings.policy.origin {
            PolicyOrigin::Path(path) => path_to_json(path),
            PolicyOrigin::BuiltIn => json!("built-in"),
        },
        "tls.ca" => {
            let authorities = settings.tls.authorities.iter();
            authorities.map(|files| path_to_json(&files.cert)).collect()
        }
        "tls.bundle" => path_to_json(&settings.tls.bundle),
        "store.path" => path_to_json(settings.store.path.as_deref()?),
        "egress.ports" => ports_to_json(&settings.egress.ports),
        "egress.connect_ports" => ports_to_json(&settings.tunnels.connect_ports),
        "egress.tls_ports" => ports_to_json(&settings.tunnels.tls_ports),
        _ => return None,
    };
    Some(value)
}

fn listener_to_json(listener: &ListenerConfig) -> Json {
    match &listener.crawler {
        Some(crawler) => {
            json!({ "addr": listener.address.to_string(), "crawler": crawler.as_str() })
        }
        None => json!(listener.address.to_string()),
    }
}

fn path_to_json(path: &Path) -> Json {
    json!(path.display().to_string())
}

fn ports_to_json(ports: &[RangeInclusive<u16>]) -> Json {
    let ranges = ports.iter().map(|range| {
        if range.start() == range.end() {
            json!(range.start())
        } else {
            json!(format!("{}-{}", range.start(), range.end()))
        }
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use crate::diagnostics::problems::Problems;
    use crate::yaml::parse;

    use super::*;

    const FILE: &str = "\
crawlers:
  - name: news-bot
    auth: { user: news, password_hash: $2y$secret }
limits:
  connections: 5
ledger:
  events: { webhook: 'https://user:secret@hook.test/in?key=secret', keep: 1d }
telemetry: { otlp: { endpoint: http://otel.test, headers: { authorization: secret } } }
store: { path: '${STATE}' }
";

    fn listed(text: &str) -> Vec<SettingInfo> {
        let mut problems = Problems::new();
        let tree = parse(&"c.yaml".into(), text.to_owned(), &mut problems);
        list_settings(tree.as_ref())
    }

    fn find<'s>(settings: &'s [SettingInfo], key: &str) -> &'s SettingInfo {
        settings.iter().find(|setting| setting.key == key).unwrap()
    }

    #[test]
    fn values_are_listed_with_their_places_and_without_secrets() {
        let settings = listed(FILE);
        let text = settings
            .iter()
            .map(|setting| setting.value.to_string())
            .collect::<String>();
        assert!(!text.contains("secret"), "{text}");
        let connections = find(&settings, "limits.connections");
        assert_eq!(
            (&connections.value, &connections.default, connections.source),
            (&json!(5), &json!(10_000), SettingSource::File { line: 5 })
        );
        let webhook = &find(&settings, "ledger.events.webhook").value;
        assert_eq!(webhook, "https://***@hook.test/in?***");
        assert_eq!(find(&settings, "store.path").value, "${STATE}");
        let crawler =
            json!([{ "name": "news-bot", "auth": { "user": "news", "password_hash": "***" } }]);
        assert_eq!(find(&settings, "crawlers").value, crawler);
    }

    #[test]
    fn settings_that_are_not_written_have_their_values_in_force() {
        let mut settings = listed("limits: {}\n");
        let in_force = Settings::in_directory(Path::new("/srv"));
        complete(&mut settings, &in_force, &[("listen", "--listen")]);
        for (key, value, source) in [
            (
                "listen",
                json!(["127.0.0.1:3128"]),
                SettingSource::CommandLine("--listen"),
            ),
            (
                "store.path",
                json!("/srv/var/crawlgate"),
                SettingSource::Default,
            ),
            ("egress.tls_ports", json!([443]), SettingSource::Default),
            ("timeouts.drain", json!("30s"), SettingSource::Default),
            ("telemetry.otlp", json!("none"), SettingSource::Default),
        ] {
            let setting = find(&settings, key);
            assert_eq!((&setting.value, setting.source), (&value, source), "{key}");
        }
        let without_about = settings.iter().filter(|setting| setting.about.is_empty());
        assert_eq!(without_about.count(), 0);
        assert!(settings.iter().all(|setting| setting.key != "policy.url"));
    }
}
