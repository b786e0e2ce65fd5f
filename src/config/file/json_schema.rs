//! The JSON Schema of the configuration (draft 2020-12), for editors.
//!
//! Limits, time-outs, words and the keys that are not built yet come from the tables by which the file is read; the
//! other keys stand here, and a test compares them with those that the reader takes.

use serde_json::{Map, Value as Json, json};

use crate::config::settings::{
    LedgerMode, LogFormat, MetricsLevel, OnFullSetting, RotateConfig, Settings, TrustRoots,
};
use crate::model::profile::Profile;
use crate::model::units::{format_duration, format_size};

use super::crawlers::SUPPORTED_HINTS;
use super::ledger::LEDGER_KEYS as LEDGER;
use super::limits::{LIMIT_KEYS, NumericKey, NumericKind, TIMEOUT_KEYS};
use super::logs::ROTATE_KEEP_RANGE;
use super::telemetry::QUEUE_RANGE;
use super::unsupported;

/// The schema of a configuration file.
pub fn json_schema() -> Json {
    let crawlers =
        json!({ "anyOf": [{ "type": "array", "items": crawler_schema() }, { "type": "null" }] });
    let root = ConfigSchemaGroup::new(
        "",
        "Settings of crawlgate for operators, apart from the policy.",
    )
    .with_key(
        "listen",
        "Where crawlers connect: an address, or a list of addresses and listeners.",
        listen_schema(),
    )
    .with_group("admin", admin_group())
    .with_group("policy", policy_group())
    .with_key(
        "profile",
        "How refusals are worded: by the client's User-Agent, or one profile for all.",
        profile_schema(),
    )
    .with_key(
        "crawlers",
        "Who may ask, and what shows who they are.",
        crawlers,
    )
    .with_key(
        "anonymous",
        "What becomes of clients that are none of the crawlers: 407 with deny.",
        enum_schema(&["allow", "deny"], "allow"),
    )
    .with_group("tls", tls_group())
    .with_group("egress", egress_group())
    .with_group(
        "limits",
        numeric_group(
            "limits",
            "Sizes and counts that bound what one client or one origin can cost.",
            LIMIT_KEYS,
        ),
    )
    .with_group(
        "timeouts",
        numeric_group("timeouts", "How long things may take.", TIMEOUT_KEYS),
    )
    .with_group("runtime", runtime_group())
    .with_group("logs", logs_group())
    .with_group("store", store_group())
    .with_group("ledger", ledger_group())
    .with_group("telemetry", telemetry_group());
    let variable = json!({
        "description": "A value with ${VARIABLE} of the environment in it.",
        "type": "string",
        "pattern": "\\$\\{",
    });
    let mut all = Map::new();
    all.insert(
        "$schema".to_owned(),
        "https://json-schema.org/draft/2020-12/schema".into(),
    );
    all.insert("title".to_owned(), "crawlgate configuration".into());
    all.extend(root.into_schema().as_object().cloned().unwrap_or_default());
    all.insert("$defs".to_owned(), json!({ "variable": variable }));
    all.into()
}

/// A mapping with some keys and no others, beside those of its group that are not built yet.
struct ConfigSchemaGroup {
    about: &'static str,
    keys: Map<String, Json>,
    required: Vec<&'static str>,
}

impl ConfigSchemaGroup {
    fn new(name: &str, about: &'static str) -> Self {
        let keys = unsupported::schemas(name)
            .map(|(key, schema)| (key.to_owned(), schema))
            .collect();
        Self {
            about,
            keys,
            required: Vec::new(),
        }
    }

    /// Adds a key, with its description in front of what it takes.
    fn with_key(mut self, key: &'static str, about: &'static str, schema: Json) -> Self {
        let mut all = Map::new();
        all.insert("description".to_owned(), about.into());
        if let Json::Object(schema) = schema {
            all.extend(schema);
        }
        self.keys.insert(key.to_owned(), all.into());
        self
    }

    /// Adds a key that must be there.
    fn with_required_key(mut self, key: &'static str, about: &'static str, schema: Json) -> Self {
        self.required.push(key);
        self.with_key(key, about, schema)
    }

    /// Adds a group; nothing in it says nothing.
    fn with_group(mut self, key: &'static str, group: Self) -> Self {
        let mut schema = group.into_schema();
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("type".to_owned(), json!(["object", "null"]));
        }
        self.keys.insert(key.to_owned(), schema);
        self
    }

    fn into_schema(self) -> Json {
        let mut all = json!({
            "description": self.about,
            "type": "object",
            "additionalProperties": false,
            "properties": self.keys,
        });
        if let (Some(all), false) = (all.as_object_mut(), self.required.is_empty()) {
            all.insert("required".to_owned(), json!(self.required));
        }
        all
    }
}

fn numeric_group<T: Default>(
    name: &str,
    about: &'static str,
    rows: &'static [NumericKey<T>],
) -> ConfigSchemaGroup {
    rows.iter()
        .fold(ConfigSchemaGroup::new(name, about), |group, row| {
            group.with_key(row.key, row.about, numeric_schema(row))
        })
}

fn numeric_schema<T: Default>(row: &NumericKey<T>) -> Json {
    let mut usual = T::default();
    let (schema, default) = match &row.kind {
        NumericKind::Count(range, place) => {
            let schema =
                json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() });
            (schema, json!(*place(&mut usual)))
        }
        NumericKind::Size(_, place) => (size_schema(), json!(format_size(*place(&mut usual)))),
        NumericKind::Time(_, place) => (
            duration_schema(),
            json!(format_duration(*place(&mut usual))),
        ),
    };
    json!({ "anyOf": [schema, variable_schema()], "default": default })
}

fn listen_schema() -> Json {
    let listener = ConfigSchemaGroup::new("listen", "A listener.")
        .with_required_key("addr", "Its address.", address_schema())
        .with_key(
            "crawler",
            "The crawler that everybody is who connects here.",
            text_schema(),
        );
    one_or_many_schema(&json!({ "anyOf": [address_schema(), listener.into_schema()] }))
}

fn admin_group() -> ConfigSchemaGroup {
    ConfigSchemaGroup::new(
        "admin",
        "Metrics, health, the certificate authority and the admin API.",
    )
    .with_key("listen", "Its address.", address_schema())
    .with_key(
        "token_file",
        "A file that holds the token; required off loopback. none: no token.",
        text_schema(),
    )
    .with_key(
        "names",
        "Names by which it may be asked (Host), beside its address: NAME, or NAME:PORT.",
        one_or_many_schema(&text_schema()),
    )
}

fn policy_group() -> ConfigSchemaGroup {
    ConfigSchemaGroup::new("policy", "The policy: what may be crawled.")
        .with_key("path", "A file, or a directory whose *.yaml files make one document.", text_schema())
        .with_key(
            "shadow",
            "A second policy, judged beside this one: counted and logged, it changes nothing.",
            text_schema(),
        )
        .with_key(
            "watch",
            "Whether it is read again when its files have changed.",
            boolean_schema(Settings::default().policy.watch),
        )
        .with_key("shadow", "A policy that is judged beside it, counted and logged, without any effect. none: no such policy.", text_schema())
}

fn profile_schema() -> Json {
    let mut all = vec!["by-user-agent"];
    all.extend(Profile::ALL.map(Profile::as_str));
    enum_schema(&all, "by-user-agent")
}

fn crawler_schema() -> Json {
    let hash = json!({ "type": "string" });
    let auth = ConfigSchemaGroup::new("crawlers.auth", "A user and a password in the proxy's URL.")
        .with_required_key("user", "The user.", text_schema())
        .with_required_key(
            "password_hash",
            "What crawlgate password, or htpasswd -B, makes of the password.",
            hash,
        );
    let may: Vec<&str> = SUPPORTED_HINTS.iter().map(|may| may.as_str()).collect();
    let name = json!({ "type": ["string", "number"] });
    let profiles = json!({ "enum": Profile::ALL.map(Profile::as_str) });
    ConfigSchemaGroup::new("crawlers", "A crawler.")
        .with_required_key("name", "Its name, for rules, metrics and the log.", name)
        .with_key("auth", auth.about, auth.into_schema())
        .with_key(
            "sources",
            "The networks that it comes from.",
            one_or_many_schema(&text_schema()),
        )
        .with_key("profile", "How refusals are worded for it.", profiles)
        .with_key(
            "may",
            "Which Crawl-* headers of its requests count.",
            one_or_many_schema(&json!({ "enum": may })),
        )
        .into_schema()
}

fn tls_group() -> ConfigSchemaGroup {
    let usual = Settings::default().tls;
    let authority = ConfigSchemaGroup::new("tls.ca", "An authority.")
        .with_required_key("cert", "Its certificate.", text_schema())
        .with_required_key(
            "key",
            "Its key, which nobody but its owner may read.",
            text_schema(),
        )
        .with_key(
            "create",
            "Whether it is made if neither file is there.",
            boolean_schema(usual.create),
        );
    let roots = enum_schema(
        &TrustRoots::ALL.map(TrustRoots::as_str),
        usual.roots.as_str(),
    );
    ConfigSchemaGroup::new("tls", "TLS towards crawlers and origins.")
        .with_key(
            "intercept",
            "Whether the proxy answers inside TLS, so that the policy judges each URL.",
            boolean_schema(usual.intercept),
        )
        .with_key(
            "intercept_to_reject",
            "Whether it looks into a tunnel that is refused, to say why.",
            boolean_schema(usual.intercept_to_reject),
        )
        .with_key(
            "verify_upstream",
            "Whether origins must prove who they are.",
            boolean_schema(usual.verify_upstream),
        )
        .with_key(
            "ca",
            "The authority, or a list of which the first signs.",
            one_or_many_schema(&authority.into_schema()),
        )
        .with_key(
            "bundle",
            "Where the system's roots and ours are written together.",
            text_schema(),
        )
        .with_key("roots", "Whom origins are believed by.", roots)
        .with_key(
            "extra_roots",
            "Files (PEM) with more roots.",
            one_or_many_schema(&text_schema()),
        )
        .with_key(
            "leaf_cache",
            "Certificates kept, one a host.",
            count_schema(1, 10_000_000, &json!(usual.leaf_cache)),
        )
        .with_key(
            "mints_per_client",
            "New hosts of one client in a second: 200/s.",
            json!({
                "type": "string",
                "pattern": "^([0-9]+/s|.*\\$\\{.*)$",
                "default": format!("{}/s", usual.mints_per_client),
            }),
        )
}

fn egress_group() -> ConfigSchemaGroup {
    let usual = Settings::default().egress;
    let exception = ConfigSchemaGroup::new(
        "egress.allow_private",
        "An exception: host and network must fit.",
    )
    .with_required_key("host", "A host, or *. before a domain.", text_schema())
    .with_required_key("cidr", "A network.", text_schema());
    let addresses = json!({ "type": "array", "minItems": 1, "items": text_schema() });
    let servers = ConfigSchemaGroup::new("egress.resolver", "Name servers.").with_required_key(
        "servers",
        "Their addresses and ports.",
        addresses,
    );
    let exceptions = json!({ "type": "array", "items": exception.into_schema() });
    let resolver =
        json!({ "anyOf": [{ "const": "system" }, servers.into_schema()], "default": "system" });
    let hosts =
        json!({ "type": "object", "additionalProperties": one_or_many_schema(&text_schema()) });
    ConfigSchemaGroup::new("egress", "Where requests may go.")
        .with_key(
            "allow_private",
            "Exceptions from the vetting of addresses.",
            exceptions,
        )
        .with_key(
            "allow_loopback",
            "true only for tests on one machine.",
            boolean_schema(usual.allow_loopback),
        )
        .with_key("ports", "Ports of URLs and tunnels.", ports_schema())
        .with_key("connect_ports", "Ports of tunnels.", ports_schema())
        .with_key(
            "tls_ports",
            "Ports at which tunnels may carry TLS unseen.",
            ports_schema(),
        )
        .with_key("resolver", "How names become addresses.", resolver)
        .with_key("hosts", "Names with a fixed address.", hosts)
}

fn runtime_group() -> ConfigSchemaGroup {
    let workers = json!({
        "anyOf": [{ "const": "auto" }, { "type": "integer", "minimum": 1, "maximum": 1024 }, variable_schema()],
        "default": "auto",
    });
    ConfigSchemaGroup::new("runtime", "Threads.").with_key(
        "workers",
        "Threads: auto is one for each core.",
        workers,
    )
}

fn logs_group() -> ConfigSchemaGroup {
    let usual = Settings::default().logs;
    let share = json!({
        "anyOf": [{ "type": "number", "minimum": 0, "maximum": 1 }, variable_schema()],
        "default": usual.allows,
    });
    let on_full = enum_schema(
        &OnFullSetting::ALL.map(OnFullSetting::as_str),
        usual.on_full.as_str(),
    );
    let format = enum_schema(
        &LogFormat::ALL.map(LogFormat::as_str),
        usual.format.as_str(),
    );
    let RotateConfig {
        size: usual_size,
        keep,
    } = RotateConfig::default();
    let until = json!({
        "anyOf": [{ "const": "none" }, size_schema(), variable_schema()],
        "default": format_size(usual_size),
    });
    let keep = count_schema(0, ROTATE_KEEP_RANGE.end().unsigned_abs(), &json!(keep));
    let rotate = ConfigSchemaGroup::new("rotate", "When the log's file is rotated.")
        .with_key(
            "size",
            "Bytes that a file may have; none for a file that only grows.",
            until,
        )
        .with_key(
            "keep",
            "How many older files are kept: PATH.1 is the latest.",
            keep,
        );
    ConfigSchemaGroup::new("logs", "The decision log: one line a request.")
        .with_key(
            "decisions",
            "stderr, stdout, none, or a path.",
            text_schema(),
        )
        .with_key(
            "format",
            "How a line is written: as JSON, or as in Squid's access.log.",
            format,
        )
        .with_key(
            "rotate",
            "When the log's file is rotated.",
            rotate.into_schema(),
        )
        .with_key(
            "allows",
            "The share of allowed requests that is logged.",
            share,
        )
        .with_key(
            "on_full",
            "What happens when the log cannot keep up.",
            on_full,
        )
        .with_key(
            "redact_query",
            "Whether queries are left out of logged URLs.",
            boolean_schema(usual.redact_query),
        )
}

fn store_group() -> ConfigSchemaGroup {
    ConfigSchemaGroup::new(
        "store",
        "What is kept over a restart: the stops, and the ledger.",
    )
    .with_key(
        "path",
        "Its directory; made when something is first kept.",
        text_schema(),
    )
}

fn ledger_group() -> ConfigSchemaGroup {
    let usual = Settings::default().ledger;
    let keep = enum_schema(
        &LedgerMode::ALL.map(LedgerMode::as_str),
        usual.keep.as_str(),
    );
    let on_full = enum_schema(
        &OnFullSetting::ALL.map(OnFullSetting::as_str),
        usual.on_full.as_str(),
    );
    let kept = json!({ "anyOf": [duration_schema(), variable_schema()], "default": format_duration(usual.events.keep) });
    let events = ConfigSchemaGroup::new(
        "ledger.events",
        "What is told of URLs to those who keep an index.",
    )
    .with_key(
        "file",
        "A file that events are appended to, a line of JSON each; or none.",
        text_schema(),
    )
    .with_key(
        "webhook",
        "A URL that they are posted to, or none.",
        text_schema(),
    )
    .with_key(
        "keep",
        "How long they are kept for those who read them.",
        kept,
    );
    numeric_group("ledger", "What is remembered of URLs.", LEDGER)
        .with_key(
            "keep",
            "When: if the policy asks for it, always, or never.",
            keep,
        )
        .with_key(
            "on_full",
            "What happens when the disk cannot keep up.",
            on_full,
        )
        .with_key("events", "What is told of URLs.", events.into_schema())
}

fn telemetry_group() -> ConfigSchemaGroup {
    let share = json!({ "anyOf": [{ "type": "number", "minimum": 0, "maximum": 1 }, variable_schema()], "default": 0.01 });
    let headers = json!({ "type": "object", "additionalProperties": text_schema() });
    let timeout = json!({ "anyOf": [duration_schema(), variable_schema()], "default": "10s" });
    let queue = count_schema(
        QUEUE_RANGE.start().unsigned_abs(),
        QUEUE_RANGE.end().unsigned_abs(),
        &json!(4_096),
    );
    let collector = ConfigSchemaGroup::new(
        "telemetry.otlp",
        "A collector that speaks OTLP over HTTP with protobuf.",
    )
    .with_required_key(
        "endpoint",
        "Its address, http or https; /v1/traces is added.",
        json!({ "type": "string" }),
    )
    .with_key(
        "share",
        "The share of requests of which spans are made.",
        share,
    )
    .with_key(
        "service",
        "The name under which they stand there: service.name. crawlgate if not given.",
        text_schema(),
    )
    .with_key(
        "headers",
        "Fields that go with each export, such as credentials.",
        headers,
    )
    .with_key("timeout", "How long one export may take.", timeout)
    .with_key(
        "queue",
        "How many requests may wait to be exported; others are dropped and counted.",
        queue,
    );
    let otlp =
        json!({ "anyOf": [{ "const": "none" }, collector.into_schema()], "default": "none" });
    let levels = MetricsLevel::ALL.map(MetricsLevel::as_str);
    ConfigSchemaGroup::new("telemetry", "What is counted and told to others.")
        .with_key(
            "metrics",
            "What /metrics knows: everything, or only the process and the policy in force (none: requests are not counted).",
            enum_schema(&levels, MetricsLevel::default().as_str()),
        )
        .with_key("otlp", "Where spans of requests go; needs a build with the feature otlp.", otlp)
}

fn one_or_many_schema(schema: &Json) -> Json {
    json!({ "anyOf": [schema, { "type": "array", "items": schema }] })
}

fn count_schema(from: u64, to: u64, default: &Json) -> Json {
    json!({ "anyOf": [{ "type": "integer", "minimum": from, "maximum": to }, variable_schema()], "default": default })
}

/// A port, a range of them, or a list of such.
fn ports_schema() -> Json {
    one_or_many_schema(&json!({ "anyOf": [
        { "type": "integer", "minimum": 1, "maximum": 65_535 },
        { "type": "string", "pattern": "^([0-9]+(-[0-9]+)?|.*\\$\\{.*)$" },
    ] }))
}

fn variable_schema() -> Json {
    json!({ "$ref": "#/$defs/variable" })
}

fn text_schema() -> Json {
    json!({ "type": ["string", "number", "boolean"] })
}

/// An IP address and a port.
fn address_schema() -> Json {
    json!({ "type": "string", "pattern": "^(.*\\$\\{.*|.+:[0-9]+)$" })
}

fn boolean_schema(default: bool) -> Json {
    json!({ "anyOf": [{ "type": "boolean" }, variable_schema()], "default": default })
}

fn enum_schema(all: &[&str], default: &str) -> Json {
    json!({ "anyOf": [{ "enum": all }, variable_schema()], "default": default })
}

fn duration_schema() -> Json {
    json!({ "type": "string", "pattern": "^[0-9][0-9.]*(ms|s|m|h|d)$" })
}

fn size_schema() -> Json {
    json!({ "type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)$" })
}
