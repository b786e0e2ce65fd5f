//! `crawlers`, `anonymous` and `listen` of the configuration file: the clients that may use the proxy.
//!
//! No message quotes a password or its hash.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use serde_json::{Value as Json, json};

use crate::config::settings::{ListenerConfig, ListenerTlsFiles, Settings};
use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::identity::CrawlerKeys;
use crate::model::crawler::{Crawler, CrawlerHint};
use crate::model::profile::Profile;
use crate::model::rule_id::Slug;
use crate::pipeline::crawlers::password::PasswordHash;
use crate::pipeline::crawlers::{AnonymousAccess, CrawlerRegistration, StoredCredentials};
use crate::robots::product_token::is_product_token;
use crate::urls::target::{Scheme, UrlTarget};
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader};

use super::ReadContext;
use super::json_schema::{address_schema, enum_schema, one_or_many_schema, text_schema};
use super::key::{
    ConfigKey, CustomValue, KeyGroup, ParsedValue, PathValue, object_schema, parse_scalar,
    parse_scalars, read_keys, set_if_some,
};
use super::values;

const PASSWORD_HELP: &str = "`crawlgate password` makes one";

/// Names, users and networks that must each belong to one crawler; the second use is reported.
#[derive(Default)]
pub(super) struct ClaimedIdentities {
    names: Vec<String>,
    users: Vec<String>,
    networks: Vec<IpNet>,
}

pub(super) fn read_anonymous(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    let anonymous = read::enum_word(node, context.problems);
    if anonymous == Some(AnonymousAccess::Deny) && settings.crawlers.is_empty() {
        context.problems.push(Problem::warning(
            &node.place,
            "every client is refused: there are no `crawlers`",
        ));
    }
    set_if_some(&mut settings.anonymous, anonymous);
}

pub(super) fn anonymous_schema(_: &mut Settings) -> Json {
    enum_schema(&["allow", "deny"], "allow")
}

/// Returns the crawlers that have a listener of their own, as written.
pub(super) fn crawlers_with_listener(tree: &Node) -> Vec<String> {
    let items = tree
        .get("listen")
        .map(read::one_or_many)
        .unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item.get("crawler")?.spelling())
        .map(str::to_owned)
        .collect()
}

/// A listener, with the crawlers that it may name.
#[derive(Default)]
struct ListenerDraft {
    address: Option<SocketAddr>,
    crawler: Option<Slug>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    trusted: Vec<IpNet>,
    known_crawlers: Vec<String>,
}

const LISTENER_TLS_KEYS: &[ConfigKey<ListenerDraft>] = &[
    ConfigKey::required(
        "cert",
        "The certificate and its chain (PEM).",
        &PathValue(|draft: &mut ListenerDraft, path| draft.cert = Some(path)),
    ),
    ConfigKey::required(
        "key",
        "Its key (PEM), which only its owner may read.",
        &PathValue(|draft: &mut ListenerDraft, path| draft.key = Some(path)),
    ),
];

const LISTENER_KEYS: &[ConfigKey<ListenerDraft>] = &[
    ConfigKey::required(
        "addr",
        "Its address.",
        &ParsedValue {
            parse: values::parse_socket_address,
            store: |draft: &mut ListenerDraft, address| draft.address = Some(address),
            schema: |_| address_schema(),
        },
    ),
    ConfigKey::new(
        "crawler",
        "The crawler that every client of this listener is.",
        &CustomValue(read_listener_crawler, |_| text_schema()),
    ),
    ConfigKey::new(
        "tls",
        "Its certificate, if clients connect with TLS (https_proxy=https://…).",
        &KeyGroup {
            path: "listen.tls",
            keys: LISTENER_TLS_KEYS,
            may_be_empty: false,
        },
    ),
    ConfigKey::new(
        "proxy_protocol",
        "Load balancers in front of the listener, which name the client of each connection by the PROXY protocol.",
        &KeyGroup {
            path: "listen.proxy_protocol",
            keys: PROXY_PROTOCOL_KEYS,
            may_be_empty: false,
        },
    ),
];

const PROXY_PROTOCOL_KEYS: &[ConfigKey<ListenerDraft>] = &[ConfigKey::required(
    "trusted",
    "Their networks. Connections from these must begin with the header; from others it is not read.",
    &CustomValue(
        read_trusted_networks,
        |_| one_or_many_schema(&text_schema()),
    ),
)];

fn read_trusted_networks(node: &Node, draft: &mut ListenerDraft, context: &mut ReadContext<'_>) {
    let parse = values::parse_source_network;
    draft.trusted = parse_scalars(node, parse, context.problems);
    if read::one_or_many(node).is_empty() {
        context.problems.push(read::wrong_type(
            node,
            "`trusted` needs at least one network",
        ));
    }
    if draft
        .trusted
        .iter()
        .any(|network| network.prefix_len() == 0)
    {
        context.problems.push(
            Problem::warning(&node.place, "every client may claim any address")
                .with_help("name the networks of the load balancers"),
        );
    }
}

pub(super) fn read_listeners(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    let items = read::one_or_many(node);
    if items.is_empty() {
        context.problems.push(Problem::error(
            &node.place,
            "`listen` needs at least one address",
        ));
    }
    let mut listeners: Vec<ListenerConfig> = Vec::with_capacity(items.len());
    for item in items {
        let Some(listener) = read_listener(item, &settings.crawlers, context) else {
            continue;
        };
        let address = listener.address;
        if address.port() != 0 && listeners.iter().any(|other| other.address == address) {
            context.problems.push(read::wrong_type(
                item,
                "the address occurs twice in `listen`",
            ));
        }
        listeners.push(listener);
    }
    if !listeners.is_empty() {
        settings.listen = listeners;
    }
}

pub(super) fn listeners_schema(_: &mut Settings) -> Json {
    let listener = object_schema("A listener.", LISTENER_KEYS, &mut ListenerDraft::default());
    one_or_many_schema(&json!({ "anyOf": [address_schema(), listener] }))
}

fn read_listener(
    node: &Node,
    crawlers: &[CrawlerRegistration],
    context: &mut ReadContext<'_>,
) -> Option<ListenerConfig> {
    if node.spelling().is_some() || node.is_null() {
        return parse_scalar(node, values::parse_socket_address, context.problems)
            .map(ListenerConfig::for_all);
    }
    let map = MapReader::open(node, "a listener", context.problems)?;
    let known = crawlers
        .iter()
        .map(|known| known.crawler.as_str().to_owned());
    let mut draft = ListenerDraft {
        known_crawlers: known.collect(),
        ..ListenerDraft::default()
    };
    read_keys(LISTENER_KEYS, map, &mut draft, context);
    Some(ListenerConfig {
        address: draft.address?,
        crawler: draft.crawler,
        tls: draft
            .cert
            .zip(draft.key)
            .map(|(cert, key)| ListenerTlsFiles { cert, key }),
        proxy_protocol: draft.trusted,
    })
}

fn read_listener_crawler(node: &Node, draft: &mut ListenerDraft, context: &mut ReadContext<'_>) {
    let Some(name) = read::spelling(node, context.problems) else {
        return;
    };
    let known = draft.known_crawlers.iter().map(String::as_str);
    if known.clone().any(|known| known == name) {
        draft.crawler = Slug::new(name);
        return;
    }
    let problem = Problem::error(&node.place, "no crawler has this name").with_found(name);
    context.problems.push(if draft.known_crawlers.is_empty() {
        problem.with_help("define it under `crawlers`")
    } else {
        problem.with_allowed_words(known)
    });
}

#[derive(Default)]
struct CrawlerDraft {
    name: Option<Slug>,
    auth: Option<StoredCredentials>,
    sources: Vec<IpNet>,
    profile: Option<Profile>,
    hints: Vec<CrawlerHint>,
    robots_agent: Option<String>,
    identity: IdentityDraft,
}

/// The identity of a crawler at origins.
#[derive(Default)]
struct IdentityDraft {
    keys: Vec<PathBuf>,
    directory: Option<String>,
}

const IDENTITY_KEYS: &[ConfigKey<IdentityDraft>] = &[
    ConfigKey::required(
        "key",
        "The files of its Ed25519 keys (PEM), which only their owner may read; the first one signs.",
        &CustomValue(
            |node, draft: &mut IdentityDraft, context| {
                draft.keys = read_key_files(node, context);
            },
            |_| one_or_many_schema(&text_schema()),
        ),
    ),
    ConfigKey::required(
        "directory",
        "The origin at which its operator publishes the keys (`crawlgate identity directory`): https://bot.example.com.",
        &ParsedValue {
            parse: parse_key_directory,
            store: |draft: &mut IdentityDraft, directory| draft.directory = Some(directory),
            schema: |_| text_schema(),
        },
    ),
];

const CRAWLER_KEYS: &[ConfigKey<CrawlerDraft>] = &[
    ConfigKey::required(
        "name",
        "Its name, for rules, metrics and the log.",
        &CustomValue(
            |node, draft: &mut CrawlerDraft, context| {
                draft.name = read_name(node, context);
            },
            |_| json!({ "type": ["string", "number"] }),
        ),
    ),
    ConfigKey::new(
        "auth",
        "A user and a password, which clients put into the proxy's URL.",
        &CustomValue(
            |node, draft: &mut CrawlerDraft, context| {
                draft.auth = read_credentials(node, context);
            },
            |_| credentials_schema(),
        ),
    ),
    ConfigKey::new(
        "sources",
        "The networks that it connects from.",
        &CustomValue(
            |node, draft: &mut CrawlerDraft, context| {
                draft.sources = read_sources(node, context);
            },
            |_| one_or_many_schema(&text_schema()),
        ),
    ),
    ConfigKey::new(
        "profile",
        "How refusals are expressed to it.",
        &CustomValue(
            |node, draft: &mut CrawlerDraft, context| {
                draft.profile = read::enum_word(node, context.problems);
            },
            |_| json!({ "enum": Profile::ALL.map(Profile::as_str) }),
        ),
    ),
    ConfigKey::new(
        "robots_agent",
        "Its product token in robots.txt, unless the policy sets robots.agent; none: that of its User-Agent.",
        &CustomValue(
            |node, draft: &mut CrawlerDraft, context| {
                draft.robots_agent = parse_scalar(node, parse_robots_agent, context.problems);
            },
            |_| text_schema(),
        ),
    ),
    ConfigKey::new(
        "identity",
        "The keys by which origins recognize it: its requests are signed (Web Bot Auth).",
        &CustomValue(read_identity, |_| identity_schema()),
    ),
    ConfigKey::new(
        "may",
        "The Crawl-* headers of its requests that are honoured; recrawl: Cache-Control: no-cache.",
        &CustomValue(
            |node, draft: &mut CrawlerDraft, context| {
                draft.hints = read_hints(node, context.problems);
            },
            |_| one_or_many_schema(&json!({ "enum": CrawlerHint::ALL.map(CrawlerHint::as_str) })),
        ),
    ),
];

pub(super) fn read_crawlers(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    if node.is_null() {
        return;
    }
    let items = read::items(node, "`crawlers`", context.problems);
    for item in items {
        let Some((registration, identity)) = read_crawler(item, context) else {
            continue;
        };
        if let Some(directory) = identity.directory {
            settings.identities.push(CrawlerKeys {
                crawler: registration.crawler.as_str().into(),
                files: identity.keys,
                directory: directory.into(),
            });
        }
        settings.crawlers.push(registration);
    }
}

pub(super) fn crawlers_schema(_: &mut Settings) -> Json {
    let crawler = object_schema("A crawler.", CRAWLER_KEYS, &mut CrawlerDraft::default());
    json!({ "anyOf": [{ "type": "array", "items": crawler }, { "type": "null" }] })
}

fn read_crawler(
    node: &Node,
    context: &mut ReadContext<'_>,
) -> Option<(CrawlerRegistration, IdentityDraft)> {
    let map = MapReader::open(node, "a crawler", context.problems)?;
    let mut draft = CrawlerDraft::default();
    read_keys(CRAWLER_KEYS, map, &mut draft, context);
    let name = draft.name?;
    let has_identity = node.get("auth").is_some()
        || !draft.sources.is_empty()
        || context
            .crawlers_with_listener
            .iter()
            .any(|crawler| crawler == name.as_str());
    if !has_identity {
        let message = format!("nothing identifies the clients of {name}");
        context
            .problems
            .push(Problem::warning(&node.place, message).with_help(
                "give it `auth`, `sources`, or a listener of its own (`listen: [{addr, crawler}]`)",
            ));
    }
    let crawler = Crawler::new(&name).with_hints(draft.hints);
    let crawler = match &draft.robots_agent {
        Some(token) => crawler.with_robots_agent(token),
        None => crawler,
    };
    let registration = CrawlerRegistration {
        crawler: match draft.profile {
            Some(profile) => crawler.with_profile(profile),
            None => crawler,
        },
        auth: draft.auth,
        sources: draft.sources,
    };
    Some((registration, draft.identity))
}

fn read_identity(node: &Node, draft: &mut CrawlerDraft, context: &mut ReadContext<'_>) {
    if let Some(map) = MapReader::open(node, "an identity", context.problems) {
        read_keys(IDENTITY_KEYS, map, &mut draft.identity, context);
    }
}

fn identity_schema() -> Json {
    object_schema(
        "The keys by which origins recognize a crawler.",
        IDENTITY_KEYS,
        &mut IdentityDraft::default(),
    )
}

fn read_key_files(node: &Node, context: &mut ReadContext<'_>) -> Vec<PathBuf> {
    let items = read::one_or_many(node);
    if items.is_empty() {
        let message = "`key` needs at least one file";
        context.problems.push(Problem::error(&node.place, message));
    }
    let mut files = Vec::new();
    for item in items {
        if let Some(path) = read::spelling(item, context.problems) {
            files.push(context.base.resolve(path));
        }
    }
    files
}

/// Reads the origin of a key directory, without a final slash.
fn parse_key_directory(text: &str) -> Result<String, String> {
    if text.contains('@') {
        return Err("an origin has no user and no password".to_owned());
    }
    let target = UrlTarget::parse(text).ok();
    let is_origin = |target: &UrlTarget| {
        target.scheme() == Scheme::Https && target.path_and_query() == "/" && !text.contains('#')
    };
    match target.filter(is_origin) {
        Some(target) => Ok(format!("https://{}", target.authority())),
        None => Err(
            "an https origin without a path is needed, such as https://bot.example.com".to_owned(),
        ),
    }
}

fn read_name(node: &Node, context: &mut ReadContext<'_>) -> Option<Slug> {
    let text = read::spelling(node, context.problems)?;
    let Some(name) = Slug::new(text) else {
        let problem = read::wrong_type(
            node,
            "a name consists of at most 64 lower-case letters, digits and hyphens",
        );
        let suggestion = text.to_lowercase().replace(['_', ' ', '.'], "-");
        context.problems.push(Problem {
            suggestion: Slug::new(&suggestion).map(|slug| slug.to_string()),
            ..problem
        });
        return None;
    };
    if name.as_str() == Crawler::ANONYMOUS {
        context.problems.push(read::wrong_type(
            node,
            "this name is reserved for clients that match no crawler",
        ));
        return None;
    }
    let names = &mut context.identities.names;
    let message = "another crawler has this name";
    claim(names, name.as_str(), node, message, context.problems);
    Some(name)
}

fn parse_robots_agent(text: &str) -> Result<String, String> {
    if is_product_token(text) {
        Ok(text.to_owned())
    } else {
        Err("a product token consists of letters, digits, - and _, as in robots.txt".into())
    }
}

/// Adds a text to those in use, and reports it if it is one of them.
fn claim(taken: &mut Vec<String>, text: &str, node: &Node, message: &str, problems: &mut Problems) {
    if taken.iter().any(|other| other == text) {
        problems.push(read::wrong_type(node, message));
    }
    taken.push(text.to_owned());
}

fn read_credentials(node: &Node, context: &mut ReadContext<'_>) -> Option<StoredCredentials> {
    let mut map = MapReader::open(node, "`auth`", context.problems)?;
    let user = map
        .require("user", context.problems)
        .and_then(|node| read_user(node, context));
    let password = match map.take_entry("password_hash") {
        Some(entry) => read_password_hash(&entry.value, &entry.key.place, context.problems),
        None => {
            let problem = Problem::error(map.place(), "`password_hash` is missing");
            context.problems.push(problem.with_help(PASSWORD_HELP));
            None
        }
    };
    map.finish(context.problems);
    Some(StoredCredentials {
        user: user?.into(),
        password: password?,
    })
}

/// The keys are not rows, since mistakes in the hash are reported at its key: the line of the value is a secret.
fn credentials_schema() -> Json {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "user": {
                "description": "The user.",
                "type": ["string", "number", "boolean"],
            },
            "password_hash": {
                "description": "The hash of the password, made by crawlgate password or htpasswd -B.",
                "type": "string",
            },
        },
        "required": ["user", "password_hash"],
    })
}

fn read_user(node: &Node, context: &mut ReadContext<'_>) -> Option<String> {
    let user = parse_scalar(node, parse_user_name, context.problems)?;
    let users = &mut context.identities.users;
    let message = "another crawler has this user";
    claim(users, &user, node, message, context.problems);
    Some(user)
}

/// Parses a user name. It ends at the first colon of the credentials (RFC 7617 section 2), so it has none.
fn parse_user_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(':') || text.chars().any(char::is_control) {
        return Err("a user has at least one character, and no colon or control character".into());
    }
    Ok(text.to_owned())
}

fn read_password_hash(
    node: &Node,
    place: &SourceLocation,
    problems: &mut Problems,
) -> Option<PasswordHash> {
    let parsed = match node.spelling() {
        Some(text) => PasswordHash::parse(text),
        None => Err("the hash of a password is needed here"),
    };
    match parsed {
        Ok(hash) => Some(hash),
        Err(message) => {
            problems.push(Problem::error(place, message).with_help(PASSWORD_HELP));
            None
        }
    }
}

fn read_sources(node: &Node, context: &mut ReadContext<'_>) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for item in read::one_or_many(node) {
        let parse = values::parse_source_network;
        let Some(network) = parse_scalar(item, parse, context.problems) else {
            continue;
        };
        if context.identities.networks.contains(&network) {
            context.problems.push(read::wrong_type(
                item,
                "the network occurs twice in `sources`",
            ));
        }
        context.identities.networks.push(network);
        networks.push(network);
    }
    networks
}

fn read_hints(node: &Node, problems: &mut Problems) -> Vec<CrawlerHint> {
    let hints = read::one_or_many(node).iter();
    hints
        .filter_map(|item| read::enum_word(item, problems))
        .collect()
}
