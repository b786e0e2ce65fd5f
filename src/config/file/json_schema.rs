//! The JSON Schema of the configuration (draft 2020-12), for editors.
//!
//! Limits, time-outs, words and the keys that are not built yet come from the tables by which the file is read; the
//! other keys stand here, and a test compares them with those that the reader takes.

use serde_json::{Map, Value as Json, json};

use crate::config::settings::{
    KeepLedger, LogFormat, MetricsLevel, OnFull, Roots, Rotate, Settings,
};
use crate::vocab::profile::Profile;
use crate::vocab::units::{show_duration, show_size};

use super::crawlers::BUILT;
use super::later;
use super::ledger::ROWS as LEDGER;
use super::limits::{Kind, LIMITS, Row, TIMEOUTS};
use super::logs::ROTATE_KEEP;
use super::telemetry::QUEUE;

/// The schema of a configuration file.
pub fn json_schema() -> Json {
    let crawlers =
        json!({ "anyOf": [{ "type": "array", "items": crawler() }, { "type": "null" }] });
    let root = Group::new(
        "",
        "Settings of crawlgate for operators, apart from the policy.",
    )
    .key(
        "listen",
        "Where crawlers connect: an address, or a list of addresses and listeners.",
        listen(),
    )
    .group("admin", admin())
    .group("policy", policy())
    .key(
        "profile",
        "How refusals are worded: by the client's User-Agent, or one profile for all.",
        profile(),
    )
    .key(
        "crawlers",
        "Who may ask, and what shows who they are.",
        crawlers,
    )
    .key(
        "anonymous",
        "What becomes of clients that are none of the crawlers: 407 with deny.",
        words(&["allow", "deny"], "allow"),
    )
    .group("tls", tls())
    .group("egress", egress())
    .group(
        "limits",
        rows(
            "limits",
            "Sizes and counts that bound what one client or one origin can cost.",
            LIMITS,
        ),
    )
    .group(
        "timeouts",
        rows("timeouts", "How long things may take.", TIMEOUTS),
    )
    .group("runtime", runtime())
    .group("logs", logs())
    .group("store", store())
    .group("ledger", ledger())
    .group("telemetry", telemetry());
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
    all.extend(root.schema().as_object().cloned().unwrap_or_default());
    all.insert("$defs".to_owned(), json!({ "variable": variable }));
    all.into()
}

/// A mapping with some keys and no others, beside those of its group that are not built yet.
struct Group {
    about: &'static str,
    keys: Map<String, Json>,
    required: Vec<&'static str>,
}

impl Group {
    fn new(name: &str, about: &'static str) -> Self {
        let keys = later::schemas(name)
            .map(|(key, schema)| (key.to_owned(), schema))
            .collect();
        Self {
            about,
            keys,
            required: Vec::new(),
        }
    }

    /// Adds a key, with its description in front of what it takes.
    fn key(mut self, key: &'static str, about: &'static str, schema: Json) -> Self {
        let mut all = Map::new();
        all.insert("description".to_owned(), about.into());
        if let Json::Object(schema) = schema {
            all.extend(schema);
        }
        self.keys.insert(key.to_owned(), all.into());
        self
    }

    /// Adds a key that must be there.
    fn required(mut self, key: &'static str, about: &'static str, schema: Json) -> Self {
        self.required.push(key);
        self.key(key, about, schema)
    }

    /// Adds a group; nothing in it says nothing.
    fn group(mut self, key: &'static str, group: Self) -> Self {
        let mut schema = group.schema();
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("type".to_owned(), json!(["object", "null"]));
        }
        self.keys.insert(key.to_owned(), schema);
        self
    }

    fn schema(self) -> Json {
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

fn rows<T: Default>(name: &str, about: &'static str, rows: &'static [Row<T>]) -> Group {
    rows.iter().fold(Group::new(name, about), |group, row| {
        group.key(row.key, row.about, value_of(row))
    })
}

fn value_of<T: Default>(row: &Row<T>) -> Json {
    let mut usual = T::default();
    let (schema, default) = match &row.kind {
        Kind::Count(range, place) => {
            let schema =
                json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() });
            (schema, json!(*place(&mut usual)))
        }
        Kind::Size(_, place) => (size(), json!(show_size(*place(&mut usual)))),
        Kind::Time(_, place) => (duration(), json!(show_duration(*place(&mut usual)))),
    };
    json!({ "anyOf": [schema, variable()], "default": default })
}

fn listen() -> Json {
    let listener = Group::new("listen", "A listener.")
        .required("addr", "Its address.", address())
        .key(
            "crawler",
            "The crawler that everybody is who connects here.",
            text(),
        );
    one_or_many(&json!({ "anyOf": [address(), listener.schema()] }))
}

fn admin() -> Group {
    Group::new(
        "admin",
        "Metrics, health, the certificate authority and the admin API.",
    )
    .key("listen", "Its address.", address())
    .key(
        "token_file",
        "A file that holds the token; required off loopback. none: no token.",
        text(),
    )
    .key(
        "names",
        "Names by which it may be asked (Host), beside its address: NAME, or NAME:PORT.",
        one_or_many(&text()),
    )
}

fn policy() -> Group {
    Group::new("policy", "The policy: what may be crawled.")
        .key("path", "A file, or a directory whose *.yaml files make one document.", text())
        .key(
            "shadow",
            "A second policy, judged beside this one: counted and logged, it changes nothing.",
            text(),
        )
        .key(
            "watch",
            "Whether it is read again when its files have changed.",
            boolean(Settings::default().policy.watch),
        )
        .key("shadow", "A policy that is judged beside it, counted and logged, without any effect. none: no such policy.", text())
}

fn profile() -> Json {
    let mut all = vec!["by-user-agent"];
    all.extend(Profile::ALL.map(Profile::as_str));
    words(&all, "by-user-agent")
}

fn crawler() -> Json {
    let hash = json!({ "type": "string" });
    let auth = Group::new("crawlers.auth", "A user and a password in the proxy's URL.")
        .required("user", "The user.", text())
        .required(
            "password_hash",
            "What crawlgate password, or htpasswd -B, makes of the password.",
            hash,
        );
    let may: Vec<&str> = BUILT.iter().map(|may| may.as_str()).collect();
    let name = json!({ "type": ["string", "number"] });
    let profiles = json!({ "enum": Profile::ALL.map(Profile::as_str) });
    Group::new("crawlers", "A crawler.")
        .required("name", "Its name, for rules, metrics and the log.", name)
        .key("auth", auth.about, auth.schema())
        .key(
            "sources",
            "The networks that it comes from.",
            one_or_many(&text()),
        )
        .key("profile", "How refusals are worded for it.", profiles)
        .key(
            "may",
            "Which Crawl-* headers of its requests count.",
            one_or_many(&json!({ "enum": may })),
        )
        .schema()
}

fn tls() -> Group {
    let usual = Settings::default().tls;
    let authority = Group::new("tls.ca", "An authority.")
        .required("cert", "Its certificate.", text())
        .required(
            "key",
            "Its key, which nobody but its owner may read.",
            text(),
        )
        .key(
            "create",
            "Whether it is made if neither file is there.",
            boolean(usual.create),
        );
    let roots = words(&Roots::ALL.map(Roots::as_str), usual.roots.as_str());
    Group::new("tls", "TLS towards crawlers and origins.")
        .key(
            "intercept",
            "Whether the proxy answers inside TLS, so that the policy judges each URL.",
            boolean(usual.intercept),
        )
        .key(
            "intercept_to_reject",
            "Whether it looks into a tunnel that is refused, to say why.",
            boolean(usual.intercept_to_reject),
        )
        .key(
            "verify_upstream",
            "Whether origins must prove who they are.",
            boolean(usual.verify_upstream),
        )
        .key(
            "ca",
            "The authority, or a list of which the first signs.",
            one_or_many(&authority.schema()),
        )
        .key(
            "bundle",
            "Where the system's roots and ours are written together.",
            text(),
        )
        .key("roots", "Whom origins are believed by.", roots)
        .key(
            "extra_roots",
            "Files (PEM) with more roots.",
            one_or_many(&text()),
        )
        .key(
            "leaf_cache",
            "Certificates kept, one a host.",
            count(1, 10_000_000, &json!(usual.leaf_cache)),
        )
        .key(
            "mints_per_client",
            "New hosts of one client in a second: 200/s.",
            json!({
                "type": "string",
                "pattern": "^([0-9]+/s|.*\\$\\{.*)$",
                "default": format!("{}/s", usual.mints_per_client),
            }),
        )
}

fn egress() -> Group {
    let usual = Settings::default().egress;
    let exception = Group::new(
        "egress.allow_private",
        "An exception: host and network must fit.",
    )
    .required("host", "A host, or *. before a domain.", text())
    .required("cidr", "A network.", text());
    let addresses = json!({ "type": "array", "minItems": 1, "items": text() });
    let servers = Group::new("egress.resolver", "Name servers.").required(
        "servers",
        "Their addresses and ports.",
        addresses,
    );
    let exceptions = json!({ "type": "array", "items": exception.schema() });
    let resolver =
        json!({ "anyOf": [{ "const": "system" }, servers.schema()], "default": "system" });
    let hosts = json!({ "type": "object", "additionalProperties": one_or_many(&text()) });
    Group::new("egress", "Where requests may go.")
        .key(
            "allow_private",
            "Exceptions from the vetting of addresses.",
            exceptions,
        )
        .key(
            "allow_loopback",
            "true only for tests on one machine.",
            boolean(usual.allow_loopback),
        )
        .key("ports", "Ports of URLs and tunnels.", ports())
        .key("connect_ports", "Ports of tunnels.", ports())
        .key(
            "tls_ports",
            "Ports at which tunnels may carry TLS unseen.",
            ports(),
        )
        .key("resolver", "How names become addresses.", resolver)
        .key("hosts", "Names with a fixed address.", hosts)
}

fn runtime() -> Group {
    let workers = json!({
        "anyOf": [{ "const": "auto" }, { "type": "integer", "minimum": 1, "maximum": 1024 }, variable()],
        "default": "auto",
    });
    Group::new("runtime", "Threads.").key("workers", "Threads: auto is one for each core.", workers)
}

fn logs() -> Group {
    let usual = Settings::default().logs;
    let share = json!({
        "anyOf": [{ "type": "number", "minimum": 0, "maximum": 1 }, variable()],
        "default": usual.allows,
    });
    let on_full = words(&OnFull::ALL.map(OnFull::as_str), usual.on_full.as_str());
    let format = words(
        &LogFormat::ALL.map(LogFormat::as_str),
        usual.format.as_str(),
    );
    let Rotate {
        size: usual_size,
        keep,
    } = Rotate::default();
    let until = json!({
        "anyOf": [{ "const": "none" }, size(), variable()],
        "default": show_size(usual_size),
    });
    let keep = count(0, ROTATE_KEEP.end().unsigned_abs(), &json!(keep));
    let rotate = Group::new("rotate", "When the log's file is rotated.")
        .key(
            "size",
            "Bytes that a file may have; none for a file that only grows.",
            until,
        )
        .key(
            "keep",
            "How many older files are kept: PATH.1 is the latest.",
            keep,
        );
    Group::new("logs", "The decision log: one line a request.")
        .key("decisions", "stderr, stdout, none, or a path.", text())
        .key(
            "format",
            "How a line is written: as JSON, or as in Squid's access.log.",
            format,
        )
        .key("rotate", "When the log's file is rotated.", rotate.schema())
        .key(
            "allows",
            "The share of allowed requests that is logged.",
            share,
        )
        .key(
            "on_full",
            "What happens when the log cannot keep up.",
            on_full,
        )
        .key(
            "redact_query",
            "Whether queries are left out of logged URLs.",
            boolean(usual.redact_query),
        )
}

fn store() -> Group {
    Group::new(
        "store",
        "What is kept over a restart: the stops, and the ledger.",
    )
    .key(
        "path",
        "Its directory; made when something is first kept.",
        text(),
    )
}

fn ledger() -> Group {
    let usual = Settings::default().ledger;
    let keep = words(
        &KeepLedger::ALL.map(KeepLedger::as_str),
        usual.keep.as_str(),
    );
    let on_full = words(&OnFull::ALL.map(OnFull::as_str), usual.on_full.as_str());
    let kept =
        json!({ "anyOf": [duration(), variable()], "default": show_duration(usual.events.keep) });
    let events = Group::new(
        "ledger.events",
        "What is told of URLs to those who keep an index.",
    )
    .key(
        "file",
        "A file that events are appended to, a line of JSON each; or none.",
        text(),
    )
    .key("webhook", "A URL that they are posted to, or none.", text())
    .key(
        "keep",
        "How long they are kept for those who read them.",
        kept,
    );
    rows("ledger", "What is remembered of URLs.", LEDGER)
        .key(
            "keep",
            "When: if the policy asks for it, always, or never.",
            keep,
        )
        .key(
            "on_full",
            "What happens when the disk cannot keep up.",
            on_full,
        )
        .key("events", "What is told of URLs.", events.schema())
}

fn telemetry() -> Group {
    let share = json!({ "anyOf": [{ "type": "number", "minimum": 0, "maximum": 1 }, variable()], "default": 0.01 });
    let headers = json!({ "type": "object", "additionalProperties": text() });
    let timeout = json!({ "anyOf": [duration(), variable()], "default": "10s" });
    let queue = count(
        QUEUE.start().unsigned_abs(),
        QUEUE.end().unsigned_abs(),
        &json!(4_096),
    );
    let collector = Group::new(
        "telemetry.otlp",
        "A collector that speaks OTLP over HTTP with protobuf.",
    )
    .required(
        "endpoint",
        "Its address, http or https; /v1/traces is added.",
        json!({ "type": "string" }),
    )
    .key(
        "share",
        "The share of requests of which spans are made.",
        share,
    )
    .key(
        "service",
        "The name under which they stand there: service.name. crawlgate if not given.",
        text(),
    )
    .key(
        "headers",
        "Fields that go with each export, such as credentials.",
        headers,
    )
    .key("timeout", "How long one export may take.", timeout)
    .key(
        "queue",
        "How many requests may wait to be exported; others are dropped and counted.",
        queue,
    );
    let otlp = json!({ "anyOf": [{ "const": "none" }, collector.schema()], "default": "none" });
    let levels = MetricsLevel::ALL.map(MetricsLevel::as_str);
    Group::new("telemetry", "What is counted and told to others.")
        .key(
            "metrics",
            "What /metrics knows: everything, or only the process and the policy in force (none: requests are not counted).",
            words(&levels, MetricsLevel::default().as_str()),
        )
        .key("otlp", "Where spans of requests go; needs a build with the feature otlp.", otlp)
}

fn one_or_many(schema: &Json) -> Json {
    json!({ "anyOf": [schema, { "type": "array", "items": schema }] })
}

fn count(from: u64, to: u64, default: &Json) -> Json {
    json!({ "anyOf": [{ "type": "integer", "minimum": from, "maximum": to }, variable()], "default": default })
}

/// A port, a range of them, or a list of such.
fn ports() -> Json {
    one_or_many(&json!({ "anyOf": [
        { "type": "integer", "minimum": 1, "maximum": 65_535 },
        { "type": "string", "pattern": "^([0-9]+(-[0-9]+)?|.*\\$\\{.*)$" },
    ] }))
}

fn variable() -> Json {
    json!({ "$ref": "#/$defs/variable" })
}

fn text() -> Json {
    json!({ "type": ["string", "number", "boolean"] })
}

/// An IP address and a port.
fn address() -> Json {
    json!({ "type": "string", "pattern": "^(.*\\$\\{.*|.+:[0-9]+)$" })
}

fn boolean(default: bool) -> Json {
    json!({ "anyOf": [{ "type": "boolean" }, variable()], "default": default })
}

fn words(all: &[&str], default: &str) -> Json {
    json!({ "anyOf": [{ "enum": all }, variable()], "default": default })
}

fn duration() -> Json {
    json!({ "type": "string", "pattern": "^[0-9][0-9.]*(ms|s|m|h|d)$" })
}

fn size() -> Json {
    json!({ "type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)$" })
}
