//! `egress.parents` and `egress.bind` of the configuration file.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::config::settings::{ParentConfig, Settings};
use crate::diagnostics::problem::Problem;
use crate::model::rule_id::Slug;
use crate::proxy::destination::{BindRule, LocalAddresses};
use crate::proxy::parents::{ParentProtocol, ParentProxyAddress};
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader};

use super::ReadContext;
use super::json_schema::{one_or_many_schema, text_schema};
use super::key::{
    ConfigKey, CustomValue, ParsedValue, PathValue, SwitchValue, TimeValue, object_schema,
    parse_scalars, read_keys,
};
use super::values;

/// The maximum number of parents, and of the proxies of each.
const MAX_PARENTS: usize = 100;

/// A parent as far as it has been read.
struct ParentDraft {
    proxies: Vec<ParentProxyAddress>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    check: Duration,
    warcprox: bool,
}

impl Default for ParentDraft {
    fn default() -> Self {
        Self {
            proxies: Vec::new(),
            user: None,
            password_file: None,
            check: Duration::from_secs(10),
            warcprox: false,
        }
    }
}

const PARENT_KEYS: &[ConfigKey<ParentDraft>] = &[
    ConfigKey::required(
        "proxies",
        "Its URL, or those of equivalent proxies: http://, https:// (TLS to the proxy) or socks5:// (which gets names).",
        &CustomValue(read_proxies, |_| one_or_many_schema(&text_schema())),
    ),
    ConfigKey::new(
        "user",
        "The user, with password_file.",
        &ParsedValue {
            parse: |text| Ok(text.to_owned()),
            store: |draft: &mut ParentDraft, user| draft.user = Some(user),
            schema: |_| text_schema(),
        },
    ),
    ConfigKey::new(
        "password_file",
        "A file with the password.",
        &PathValue(|draft: &mut ParentDraft, path| draft.password_file = Some(path)),
    ),
    ConfigKey::new(
        "check",
        "The interval at which each proxy is checked; one that is down is checked every second.",
        &TimeValue(
            Duration::from_secs(1)..=Duration::from_secs(3600),
            |draft: &mut ParentDraft| vec![&mut draft.check],
        ),
    ),
    ConfigKey::new(
        "warcprox",
        "The proxies are warcprox: Warcprox-Meta is passed on for crawlers with `may: [warcprox]`.",
        &SwitchValue::new(|draft: &mut ParentDraft| &mut draft.warcprox),
    ),
];

pub(super) fn read_parents(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    if node.is_null() {
        return;
    }
    for entry in read::entries(node, "`parents`", context.problems) {
        let name = Slug::new(&entry.key.text).filter(|name| name.as_str() != "none");
        if name.is_none() {
            let message = "a name consists of at most 64 lower-case letters, digits and hyphens, and is not `none`";
            let problem = Problem::error(&entry.key.place, message);
            context.problems.push(problem.with_found(&*entry.key.text));
        }
        let parent = read_parent(&entry.value, name.as_ref(), context);
        settings.parents.extend(parent);
    }
    if settings.parents.len() > MAX_PARENTS {
        let message = format!("there are more than {MAX_PARENTS} parents");
        context.problems.push(Problem::error(&node.place, message));
    }
}

fn read_parent(
    node: &Node,
    name: Option<&Slug>,
    context: &mut ReadContext<'_>,
) -> Option<ParentConfig> {
    let map = MapReader::open(node, "a parent", context.problems)?;
    let mut draft = ParentDraft::default();
    read_keys(PARENT_KEYS, map, &mut draft, context);
    if draft.user.is_some() != draft.password_file.is_some() {
        let problem = Problem::error(&node.place, "`user` and `password_file` belong together");
        context.problems.push(problem);
    }
    Some(ParentConfig {
        name: name?.clone(),
        proxies: draft.proxies,
        credentials: draft.user.zip(draft.password_file),
        check_interval: draft.check,
        is_warcprox: draft.warcprox,
    })
}

fn read_proxies(node: &Node, draft: &mut ParentDraft, context: &mut ReadContext<'_>) {
    for item in read::one_or_many(node) {
        let Some(text) = read::spelling(item, context.problems) else {
            continue;
        };
        match parse_proxy(text) {
            Ok(address) => draft.proxies.push(address),
            // The problem does not quote a password.
            Err(message) if text.contains('@') => {
                context.problems.push(Problem::error(&item.place, message));
            }
            Err(message) => context.problems.push(read::wrong_type(item, &message)),
        }
    }
    let count = read::one_or_many(node).len();
    if !(1..=MAX_PARENTS).contains(&count) {
        let message = format!("a parent has 1 to {MAX_PARENTS} proxies");
        context.problems.push(read::wrong_type(node, &message));
    }
}

/// Parses the URL of a proxy.
fn parse_proxy(text: &str) -> Result<ParentProxyAddress, String> {
    const FORM: &str =
        "write the URL of a proxy: http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT";
    let (scheme, rest) = text.split_once("://").ok_or(FORM)?;
    let (protocol, default_port) = match scheme {
        "http" => (ParentProtocol::Http, None),
        "https" => (ParentProtocol::Https, Some(443)),
        // curl's name for the same: the proxy resolves names.
        "socks5" | "socks5h" => (ParentProtocol::Socks5, Some(1080)),
        _ => return Err(FORM.into()),
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains('@') {
        return Err("credentials do not belong here: use `user` and `password_file`".into());
    }
    if authority.contains(['/', '?', '#']) {
        return Err(FORM.into());
    }
    let after_address = authority.rfind(']').unwrap_or(0);
    let colon = authority.rfind(':').filter(|colon| *colon > after_address);
    let (host, port) = match colon {
        Some(colon) => {
            let (host, port) = authority.split_at(colon);
            let port = port.trim_start_matches(':').parse::<u16>().ok();
            (host, port.filter(|port| *port != 0))
        }
        None => (authority, default_port),
    };
    let port =
        port.ok_or("the port of the proxy is needed, such as http://proxy.corp.example:3128")?;
    let host = values::parse_host(host)?;
    Ok(ParentProxyAddress {
        protocol,
        host: host.into(),
        port,
    })
}

pub(super) fn parents_schema(_: &mut Settings) -> Json {
    let parent = object_schema("A parent.", PARENT_KEYS, &mut ParentDraft::default());
    json!({ "type": ["object", "null"], "additionalProperties": parent, "default": {} })
}

#[derive(Default)]
struct BindDraft {
    crawler: Option<Slug>,
    host: Option<String>,
    addresses: Vec<IpAddr>,
}

const BIND_KEYS: &[ConfigKey<BindDraft>] = &[
    ConfigKey::new(
        "crawler",
        "The crawler; every crawler if omitted.",
        &ParsedValue {
            parse: |text| {
                Slug::new(text).ok_or_else(|| "the name of a crawler is needed here".to_owned())
            },
            store: |draft: &mut BindDraft, crawler| draft.crawler = Some(crawler),
            schema: |_| text_schema(),
        },
    ),
    ConfigKey::new(
        "host",
        "A host, or *. and a domain; every host if omitted.",
        &ParsedValue {
            parse: values::parse_host_pattern,
            store: |draft: &mut BindDraft, host| draft.host = Some(host),
            schema: |_| text_schema(),
        },
    ),
    ConfigKey::required(
        "address",
        "An address of this machine, or one for each of IPv4 and IPv6.",
        &CustomValue(read_local_addresses, |_| one_or_many_schema(&text_schema())),
    ),
];

pub(super) fn read_bind(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    if node.is_null() {
        return;
    }
    for item in read::items(node, "`bind`", context.problems) {
        let Some(map) = MapReader::open(item, "an entry of `bind`", context.problems) else {
            continue;
        };
        let mut draft = BindDraft::default();
        read_keys(BIND_KEYS, map, &mut draft, context);
        let known = settings.crawlers.iter().map(|known| known.crawler.as_str());
        if let Some(crawler) = &draft.crawler
            && !known.clone().any(|known| known == crawler.as_str())
            && crawler.as_str() != crate::model::crawler::Crawler::ANONYMOUS
        {
            let problem = Problem::error(&item.place, "no crawler has this name")
                .with_found(crawler.as_str());
            context.problems.push(if settings.crawlers.is_empty() {
                problem.with_help("define it under `crawlers`")
            } else {
                problem.with_allowed_words(known)
            });
        }
        settings.egress.bind.push(BindRule {
            crawler: draft.crawler,
            host: draft.host,
            local: LocalAddresses::new(&draft.addresses).into(),
        });
    }
}

fn read_local_addresses(node: &Node, draft: &mut BindDraft, context: &mut ReadContext<'_>) {
    draft.addresses = parse_scalars(node, values::parse_address, context.problems);
    let count = |is_v6| {
        draft
            .addresses
            .iter()
            .filter(|address| address.is_ipv6() == is_v6)
            .count()
    };
    if count(false) > 1 || count(true) > 1 || read::one_or_many(node).is_empty() {
        let message = "one address, or one of IPv4 and one of IPv6, is needed here";
        context.problems.push(read::wrong_type(node, message));
    }
}

pub(super) fn bind_schema(_: &mut Settings) -> Json {
    let entry = object_schema(
        "Local addresses; the first entry that fits applies.",
        BIND_KEYS,
        &mut BindDraft::default(),
    );
    json!({ "type": ["array", "null"], "items": entry, "default": [] })
}
