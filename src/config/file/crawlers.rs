//! `crawlers`, `anonymous` and the items of `listen` in the configuration file: who may use the proxy.
//!
//! What stands for a password is never quoted, whatever is wrong with it.

use ipnet::IpNet;

use crate::config::settings::ListenerConfig;
use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::crawler::{Crawler, CrawlerHint};
use crate::model::profile::Profile;
use crate::model::rule_id::Slug;
use crate::pipeline::crawlers::password::PasswordHash;
use crate::pipeline::crawlers::{AnonymousAccess, CrawlerRegistration, StoredCredentials};
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader};

use super::{parse_scalar, unsupported, values};

pub(super) fn read_anonymous(
    node: &Node,
    crawlers: &[CrawlerRegistration],
    problems: &mut Problems,
) -> Option<AnonymousAccess> {
    let choice = |word: &str| match word {
        "allow" => Some(AnonymousAccess::Allow),
        "deny" => Some(AnonymousAccess::Deny),
        _ => None,
    };
    let anonymous = read::word(node, &["allow", "deny"], choice, problems);
    if anonymous == Some(AnonymousAccess::Deny) && crawlers.is_empty() {
        problems.push(Problem::warning(
            &node.place,
            "nobody may ask: there are no `crawlers`",
        ));
    }
    anonymous
}

/// The crawlers that have a listener of their own, as written.
pub(super) fn listener_crawlers(listen: Option<&Node>) -> Vec<&str> {
    let items = listen.map(read::one_or_many).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item.get("crawler")?.spelling())
        .collect()
}

pub(super) fn read_listener(
    node: &Node,
    crawlers: &[CrawlerRegistration],
    problems: &mut Problems,
) -> Option<ListenerConfig> {
    if node.spelling().is_some() || node.is_null() {
        return parse_scalar(node, values::parse_socket_address, problems)
            .map(ListenerConfig::for_all);
    }
    let mut map = MapReader::open(node, "a listener", problems)?;
    let address = map
        .require("addr", problems)
        .and_then(|node| parse_scalar(node, values::parse_socket_address, problems));
    let crawler = map
        .take("crawler")
        .and_then(|node| read_known_crawler(node, crawlers, problems));
    unsupported::check(&mut map, "listen", problems);
    map.finish(problems);
    Some(ListenerConfig {
        address: address?,
        crawler,
    })
}

fn read_known_crawler(
    node: &Node,
    crawlers: &[CrawlerRegistration],
    problems: &mut Problems,
) -> Option<Slug> {
    let name = read::spelling(node, problems)?;
    let mut names = crawlers.iter().map(|c| c.crawler.as_str());
    if names.any(|known| known == name) {
        return Slug::new(name);
    }
    let names = crawlers.iter().map(|c| c.crawler.as_str());
    let problem = Problem::error(&node.place, "no crawler has this name").with_found(name);
    problems.push(match crawlers {
        [] => problem.with_help("`crawlers` says which there are"),
        [_, ..] => problem.with_allowed_words(names),
    });
    None
}

/// Reads the list; what two crawlers have in common is reported at the second. `named` have listeners.
pub(super) fn read(
    node: &Node,
    named: &[&str],
    problems: &mut Problems,
) -> Vec<CrawlerRegistration> {
    let mut seen = ClaimedIdentities::default();
    let mut found = Vec::new();
    for item in read::items(node, "`crawlers`", problems) {
        let Some(registration) = read_registration(item, &mut seen, problems) else {
            continue;
        };
        let name = registration.crawler.as_str();
        let shown_by_nothing = item.get("auth").is_none() && registration.sources.is_empty();
        if shown_by_nothing && !named.contains(&name) {
            let message = format!("nothing shows that a client is {name}");
            problems.push(Problem::warning(&item.place, message).with_help(
                "give it `auth`, `sources`, or a listener of its own (`listen: [{addr, crawler}]`)",
            ));
        }
        found.push(registration);
    }
    found
}

/// What is taken, and where.
#[derive(Default)]
struct ClaimedIdentities {
    names: Vec<String>,
    users: Vec<String>,
    networks: Vec<IpNet>,
}

fn read_registration(
    node: &Node,
    seen: &mut ClaimedIdentities,
    problems: &mut Problems,
) -> Option<CrawlerRegistration> {
    let mut map = MapReader::open(node, "a crawler", problems)?;
    let name = map
        .require("name", problems)
        .and_then(|node| read_name(node, seen, problems));
    let auth = map
        .take("auth")
        .and_then(|node| read_auth(node, seen, problems));
    let sources = map
        .take("sources")
        .map(|node| read_sources(node, seen, problems))
        .unwrap_or_default();
    let profile = map
        .take("profile")
        .and_then(|node| read_profile(node, problems));
    let may = map
        .take("may")
        .map(|node| read_hints(node, problems))
        .unwrap_or_default();
    map.finish(problems);
    let crawler = Crawler::new(&name?).with_hints(may);
    let crawler = profile.into_iter().fold(crawler, Crawler::with_profile);
    Some(CrawlerRegistration {
        crawler,
        auth,
        sources,
    })
}

fn read_name(node: &Node, seen: &mut ClaimedIdentities, problems: &mut Problems) -> Option<Slug> {
    let text = read::spelling(node, problems)?;
    let Some(name) = Slug::new(text) else {
        let problem = read::wrong_type(
            node,
            "a name is small letters, digits and hyphens, at most 64",
        );
        let near = text.to_lowercase().replace(['_', ' ', '.'], "-");
        problems.push(Problem {
            suggestion: Slug::new(&near).map(|slug| slug.to_string()),
            ..problem
        });
        return None;
    };
    if name.as_str() == Crawler::ANONYMOUS {
        problems.push(read::wrong_type(
            node,
            "this is the name of clients that have none",
        ));
        return None;
    }
    check_unique(
        &mut seen.names,
        name.as_str(),
        node,
        "another crawler has this name",
        problems,
    );
    Some(name)
}

fn check_unique(
    seen: &mut Vec<String>,
    text: &str,
    node: &Node,
    mistake: &str,
    problems: &mut Problems,
) {
    if seen.iter().any(|taken| taken == text) {
        problems.push(read::wrong_type(node, mistake));
    }
    seen.push(text.to_owned());
}

fn read_auth(
    node: &Node,
    seen: &mut ClaimedIdentities,
    problems: &mut Problems,
) -> Option<StoredCredentials> {
    let mut map = MapReader::open(node, "`auth`", problems)?;
    let user = map
        .require("user", problems)
        .and_then(|node| read_user(node, seen, problems));
    let password = match map.take_entry("password_hash") {
        Some(entry) => read_password_hash(&entry.value, &entry.key.place, problems),
        None => {
            problems.push(
                Problem::error(map.place(), "`password_hash` is missing").with_help(PASSWORD_HELP),
            );
            None
        }
    };
    map.finish(problems);
    Some(StoredCredentials {
        user: user?.into(),
        password: password?,
    })
}

const PASSWORD_HELP: &str = "`crawlgate password` makes one";

fn read_user<'n>(
    node: &'n Node,
    seen: &mut ClaimedIdentities,
    problems: &mut Problems,
) -> Option<&'n str> {
    let user = parse_scalar(node, parse_user_name, problems)?;
    check_unique(
        &mut seen.users,
        &user,
        node,
        "another crawler has this user",
        problems,
    );
    node.spelling()
}

/// RFC 7617 section 2: the first colon ends the user.
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
    let read = match node.spelling() {
        Some(text) => PasswordHash::parse(text),
        None => Err("the hash of a password is needed here"),
    };
    read.map_err(|mistake| problems.push(Problem::error(place, mistake).with_help(PASSWORD_HELP)))
        .ok()
}

fn read_sources(node: &Node, seen: &mut ClaimedIdentities, problems: &mut Problems) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for item in read::one_or_many(node) {
        let Some(network) = parse_scalar(item, values::parse_source_network, problems) else {
            continue;
        };
        if seen.networks.contains(&network) {
            problems.push(read::wrong_type(
                item,
                "the network stands twice in `sources`",
            ));
        }
        seen.networks.push(network);
        networks.push(network);
    }
    networks
}

fn read_profile(node: &Node, problems: &mut Problems) -> Option<Profile> {
    read::word(
        node,
        &Profile::ALL.map(Profile::as_str),
        Profile::from_word,
        problems,
    )
}

fn read_hints(node: &Node, problems: &mut Problems) -> Vec<CrawlerHint> {
    let words = CrawlerHint::ALL.map(CrawlerHint::as_str);
    let hint = |word: &str| {
        CrawlerHint::ALL
            .into_iter()
            .find(|may| may.as_str() == word)
    };
    let items = read::one_or_many(node);
    let mut hints: Vec<CrawlerHint> = Vec::new();
    for item in items {
        let Some(may) = read::word(item, &words, hint, problems) else {
            continue;
        };
        if !SUPPORTED_HINTS.contains(&may) {
            let message = format!("`may: {}` is not in this version", may.as_str());
            problems.push(Problem::error(&item.place, message).with_help("leave it out"));
        }
        hints.push(may);
    }
    hints
}

/// The headers that this version reads.
pub(super) const SUPPORTED_HINTS: [CrawlerHint; 4] = [
    CrawlerHint::Priority,
    CrawlerHint::Wait,
    CrawlerHint::Depth,
    CrawlerHint::Trace,
];
