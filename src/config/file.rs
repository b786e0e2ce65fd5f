//! The configuration file: its keys, each typed and checked, and the [`Settings`] that they set.
//!
//! A key is one row of a table (`ConfigKey`), from which the reader and the JSON Schema are derived. Nothing but
//! the text is read here; [`super::load`] finds the file and checks the policies that it names.

mod crawlers;
mod egress;
mod fleet;
mod http2;
mod json_schema;
mod key;
mod ledger;
mod limits;
pub(super) mod listing;
mod logs;
mod parents;
mod telemetry;
mod tls;
pub(crate) mod values;
mod variables;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::fleet::store::StoreUrl;
use crate::model::profile::Profile;
use crate::proxy::local_reply::ProfileSelection;
use crate::yaml::read::{self, MapReader};
use crate::yaml::{Node, parse};

use super::base_paths::BasePaths;
use super::settings::{Settings, WorkerCount};
use crawlers::ClaimedIdentities;
pub use json_schema::json_schema;
use json_schema::{address_schema, enum_schema, one_or_many_schema, text_schema, variable_schema};
use key::{
    ConfigKey, CustomValue, KeyGroup, ParsedValue, PathOrNoneValue, PathValue, SwitchValue,
    TimeValue, UnsupportedValue, WordValue, parse_scalar, parse_scalars, read_word, set_if_some,
};
pub use variables::VariableLookup;

/// A configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigFile {
    /// The settings, all but `policy.path` and `policy.shadow`.
    pub settings: Settings,
    /// `policy.path`, if the file has it.
    pub policy: Option<NamedPolicy>,
    /// `policy.shadow`, unless it is `none`.
    pub shadow: Option<NamedPolicy>,
}

/// A policy that the file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPolicy {
    /// The path as written.
    pub path: String,
    /// The place in the file.
    pub place: SourceLocation,
}

/// The state of reading a file.
struct ReadContext<'a> {
    base: &'a BasePaths,
    problems: &'a mut Problems,
    policy: Option<NamedPolicy>,
    shadow: Option<NamedPolicy>,
    /// The crawlers that have a listener, as written.
    crawlers_with_listener: Vec<String>,
    identities: ClaimedIdentities,
}

impl ConfigFile {
    /// Returns the defaults, which apply without a file.
    pub fn with_defaults(base: &BasePaths) -> Self {
        let mut settings = Settings::in_directory(&base.data_root);
        settings.listing.settings = listing::list_settings(None).into();
        Self {
            settings,
            policy: None,
            shadow: None,
        }
    }

    /// Reads the text of a file. A setting with a mistake keeps its default, and the mistake is added to the problems:
    /// the result is fit to run only if there are no errors.
    pub fn parse(
        file: &Arc<str>,
        text: &str,
        base: &BasePaths,
        variables: VariableLookup<'_>,
        problems: &mut Problems,
    ) -> Self {
        let mut config = Self::with_defaults(base);
        let Some(mut tree) = parse(file, text, problems).filter(|tree| !tree.is_null()) else {
            return config;
        };
        config.settings.listing.settings = listing::list_settings(Some(&tree)).into();
        variables::substitute_all(&mut tree, variables, problems);
        let Some(map) = MapReader::open_document(&tree, "the configuration", problems) else {
            return config;
        };
        let mut context = ReadContext {
            base,
            problems,
            policy: None,
            shadow: None,
            crawlers_with_listener: crawlers::crawlers_with_listener(&tree),
            identities: ClaimedIdentities::default(),
        };
        key::read_keys(KEYS, map, &mut config.settings, &mut context);
        config.policy = context.policy;
        config.shadow = context.shadow;
        config
    }
}

/// The keys of the file. `listen` and `anonymous` refer to the crawlers, `admin` to the listeners, and `identity` to all
/// of these, so they follow them.
const KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "crawlers",
        "The crawlers, and how each is identified.",
        &CustomValue(crawlers::read_crawlers, crawlers::crawlers_schema),
    ),
    ConfigKey::new(
        "listen",
        "The addresses where crawlers connect: an address, or a list of addresses and listeners.",
        &CustomValue(crawlers::read_listeners, crawlers::listeners_schema),
    ),
    ConfigKey::new(
        "anonymous",
        "How clients that match no crawler are treated: deny answers them with 407.",
        &CustomValue(crawlers::read_anonymous, crawlers::anonymous_schema),
    ),
    ConfigKey::new(
        "admin",
        "Metrics, health, the certificate authority and the admin API.",
        &KeyGroup::section("admin", ADMIN_KEYS),
    ),
    ConfigKey::new(
        "identity",
        "The publication of the keys by which origins recognize crawlers.",
        &KeyGroup::section("identity", IDENTITY_KEYS),
    ),
    ConfigKey::new(
        "policy",
        "The policy: what may be crawled.",
        &KeyGroup::section("policy", POLICY_KEYS),
    ),
    ConfigKey::new(
        "profile",
        "How refusals are expressed: by the client's User-Agent, or one profile for all.",
        &CustomValue(read_profile, profile_schema),
    ),
    ConfigKey::new(
        "tls",
        "TLS with crawlers and with origins.",
        &KeyGroup::section("tls", tls::KEYS),
    ),
    ConfigKey::new(
        "h2",
        "HTTP/2 with clients.",
        &KeyGroup::section("h2", http2::KEYS),
    ),
    ConfigKey::new(
        "egress",
        "Where requests may go.",
        &KeyGroup::section("egress", egress::KEYS),
    ),
    ConfigKey::new(
        "limits",
        "Sizes and counts that limit what one client or one origin can use.",
        &KeyGroup::section("limits", limits::LIMIT_KEYS),
    ),
    ConfigKey::new(
        "timeouts",
        "Time limits.",
        &KeyGroup::section("timeouts", limits::TIMEOUT_KEYS),
    ),
    ConfigKey::new(
        "runtime",
        "Threads.",
        &KeyGroup::section("runtime", RUNTIME_KEYS),
    ),
    ConfigKey::new(
        "logs",
        "The decision log: one line per request.",
        &KeyGroup::section("logs", logs::KEYS),
    ),
    ConfigKey::new(
        "store",
        "State that is kept over a restart: the stops, the budgets and the ledger.",
        &KeyGroup::section("store", STORE_KEYS),
    ),
    ConfigKey::new(
        "ledger",
        "The ledger: what happened to each URL.",
        &KeyGroup::section("ledger", ledger::KEYS),
    ),
    ConfigKey::new(
        "fleet",
        "Several proxies that act as one: each host has one owner, and the others forward its requests.",
        &CustomValue(fleet::read_fleet, fleet::fleet_schema),
    ),
    ConfigKey::new(
        "telemetry",
        "Metrics and spans.",
        &KeyGroup::section("telemetry", telemetry::KEYS),
    ),
];

const ADMIN_KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "listen",
        "The address of the admin listener.",
        &CustomValue(read_admin_address, |_| address_schema()),
    ),
    ConfigKey::new(
        "token_file",
        "A file with the token, or none; required if the listener is not on loopback.",
        &PathOrNoneValue(|s: &mut Settings| &mut s.admin.token_file),
    ),
    ConfigKey::new(
        "names",
        "Further Host values to accept, if clients do not use the address: NAME, or NAME:PORT.",
        &CustomValue(read_admin_names, |_| one_or_many_schema(&text_schema())),
    ),
    ConfigKey::new(
        "public_url",
        "The URL at which people reach the admin page: refusals link to their decision there; or none.",
        &ParsedValue {
            parse: |text| parse_unless_none(text, values::parse_public_url),
            store: |s: &mut Settings, url| s.admin.public_url = url,
            schema: |_| text_schema(),
        },
    ),
];

const IDENTITY_KEYS: &[ConfigKey<Settings>] = &[ConfigKey::new(
    "listen",
    "The address of a listener that serves the key directories of crawlers over HTTP, and nothing else; or none.",
    &CustomValue(
        read_identity_address,
        |_| json!({ "anyOf": [address_schema(), { "const": "none" }], "default": "none" }),
    ),
)];

const POLICY_KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "path",
        "A file, or a directory whose *.yaml files form one document.",
        &CustomValue(
            |node, _, context| context.policy = named_policy(node, context.problems),
            |_| text_schema(),
        ),
    ),
    ConfigKey::new(
        "watch",
        "Reload the policy when its files, or the lists that it names, change.",
        &SwitchValue::new(|s: &mut Settings| &mut s.policy.watch),
    ),
    ConfigKey::new(
        "shadow",
        "Another policy that is evaluated, counted and logged, but has no effect; or none.",
        &CustomValue(
            |node, _, context| {
                context.shadow =
                    named_policy(node, context.problems).filter(|named| named.path != "none");
            },
            |_| text_schema(),
        ),
    ),
    ConfigKey::new(
        "contact",
        "Who answers questions about the policy, a mail address or a URL: refusals name it; or none.",
        &ParsedValue {
            parse: |text| parse_unless_none(text, values::parse_contact),
            store: |s: &mut Settings, contact| s.policy.contact = contact,
            schema: |_| text_schema(),
        },
    ),
    ConfigKey::unsupported("url", &UnsupportedValue::new("policy.url")),
    ConfigKey::unsupported("poll", &UnsupportedValue::new("policy.poll")),
    ConfigKey::unsupported("verify_key", &UnsupportedValue::new("policy.verify_key")),
];

const RUNTIME_KEYS: &[ConfigKey<Settings>] = &[ConfigKey::new(
    "workers",
    "Threads: auto is one per core; 1 runs everything on one.",
    &CustomValue(read_workers, |_| {
        json!({
            "anyOf": [
                { "const": "auto" },
                { "type": "integer", "minimum": 1, "maximum": MAX_WORKERS },
                variable_schema(),
            ],
            "default": "auto",
        })
    }),
)];

const STORE_KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "path",
        "The directory; it is created when it is first needed.",
        &PathValue(|s: &mut Settings, path| s.store.path = Some(path)),
    ),
    ConfigKey::new(
        "kind",
        "Where the state that proxies share is: nowhere (embedded), or in the database of a fleet.",
        &WordValue(|s: &mut Settings| &mut s.store.kind),
    ),
    ConfigKey::new(
        "url",
        "The database of the fleet, as a URL of PostgreSQL; several hosts are separated by commas.",
        &CustomValue(read_store_url, |_| text_schema()),
    ),
    ConfigKey::new(
        "timeout",
        "The time that one statement for the database may take.",
        &TimeValue(STORE_TIMEOUT_RANGE, |s: &mut Settings| {
            vec![&mut s.store.timeout]
        }),
    ),
];

/// A shorter one would take a busy database for a dead one.
const STORE_TIMEOUT_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(30);

const MAX_WORKERS: i64 = 1_024;

fn read_admin_address(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    let Some(address) = parse_scalar(node, values::parse_socket_address, context.problems) else {
        return;
    };
    let is_taken = settings
        .listen
        .iter()
        .any(|listener| listener.address == address);
    if address.port() != 0 && is_taken {
        context.problems.push(read::wrong_type(
            node,
            "crawlers connect to this address: the admin listener needs another",
        ));
    }
    settings.admin.listen = address;
}

/// Reads the address at which key directories are served; `none` if they are not.
fn read_identity_address(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    let parse = |text: &str| match text {
        "none" => Ok(None),
        _ => values::parse_socket_address(text).map(Some),
    };
    let Some(address) = parse_scalar(node, parse, context.problems) else {
        return;
    };
    let is_taken = address.is_some_and(|address| {
        let listeners = settings.listen.iter().map(|listener| listener.address);
        address.port() != 0
            && listeners
                .chain([settings.admin.listen])
                .any(|taken| taken == address)
    });
    if is_taken {
        context.problems.push(read::wrong_type(
            node,
            "another listener has this address: the key directory needs its own",
        ));
    }
    settings.identity_listen = address;
}

/// Reads `store.url`. The problem does not quote it, since it may have a password.
fn read_store_url(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    let Some(text) = read::spelling(node, context.problems) else {
        return;
    };
    match StoreUrl::parse(text) {
        Ok(url) => settings.store.url = Some(url),
        Err(message) => context.problems.push(Problem::error(&node.place, message)),
    }
}

fn read_admin_names(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    if !node.is_null() {
        settings.admin.names = parse_scalars(node, values::parse_host_field, context.problems);
    }
}

/// Parses a value that may be `none`.
fn parse_unless_none(
    text: &str,
    parse: fn(&str) -> Result<Box<str>, String>,
) -> Result<Option<Box<str>>, String> {
    match text {
        "none" => Ok(None),
        _ => parse(text).map(Some),
    }
}

fn named_policy(node: &Node, problems: &mut Problems) -> Option<NamedPolicy> {
    let path = read::spelling(node, problems)?.to_owned();
    let place = node.place.clone();
    Some(NamedPolicy { path, place })
}

fn read_workers(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    if node.spelling() == Some("auto") {
        settings.workers = WorkerCount::Auto;
        return;
    }
    let count = read::integer(node, 1..=MAX_WORKERS, context.problems);
    let count = count.and_then(|count| usize::try_from(count).ok());
    set_if_some(&mut settings.workers, count.map(WorkerCount::Count));
}

/// Returns the words of `profile`, the default first.
fn profile_words() -> Vec<(&'static str, ProfileSelection)> {
    let mut words = vec![("by-user-agent", ProfileSelection::ByUserAgent)];
    words.extend(Profile::ALL.map(|profile| (profile.as_str(), ProfileSelection::Always(profile))));
    words
}

fn read_profile(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    let selection = read_word(node, &profile_words(), context.problems);
    set_if_some(&mut settings.profile, selection);
}

fn profile_schema(_: &mut Settings) -> Json {
    let words: Vec<&str> = profile_words().iter().map(|(word, _)| *word).collect();
    enum_schema(&words, "by-user-agent")
}
