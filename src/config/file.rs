//! The configuration file, near its text: every key of `config/crawlgate.yaml` that this version knows, typed and
//! checked one by one, with the defaults of the contract where the file says nothing.
//!
//! Paths are as written and nothing outside the text was looked at; `load` makes [`super::Settings`] of it.

mod crawlers;
mod egress;
mod json_schema;
mod ledger;
mod limits;
mod logs;
mod store;
mod telemetry;
mod tls;
mod unsupported;
mod values;
mod variables;

use std::net::SocketAddr;
use std::sync::Arc;

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::profile::Profile;
use crate::pipeline::crawlers::{AnonymousAccess, CrawlerRegistration};
use crate::yaml::read::{self, MapReader};
use crate::yaml::{Node, parse};

use super::settings::{
    EgressConfig, LimitsConfig, ListenerConfig, ProfileSetting, Settings, TelemetryConfig,
    TimeoutsConfig, WorkerCount,
};
pub use json_schema::json_schema;
pub use ledger::LedgerSection;
pub use logs::LogsSection;
pub use tls::TlsSection;
pub use variables::VariableLookup;

/// What a configuration file says.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigFile {
    /// `listen`.
    pub listen: Vec<ListenerConfig>,
    /// `crawlers`.
    pub crawlers: Vec<CrawlerRegistration>,
    /// `anonymous`.
    pub anonymous: AnonymousAccess,
    /// `admin.listen`.
    pub admin_listen: SocketAddr,
    /// `admin.token_file`, as written.
    pub token_file: Option<String>,
    /// `admin.names`.
    pub admin_names: Vec<String>,
    /// `policy.path`, as written, and where; `None` if the file does not name one.
    pub policy_path: Option<(String, SourceLocation)>,
    /// `policy.watch`.
    pub policy_watch: bool,
    /// `policy.shadow`, as written, and where.
    pub policy_shadow: Option<(String, SourceLocation)>,
    /// `profile`.
    pub profile: ProfileSetting,
    /// `tls`.
    pub tls: TlsSection,
    /// `egress`.
    pub egress: EgressConfig,
    /// `limits`.
    pub limits: LimitsConfig,
    /// `timeouts`.
    pub timeouts: TimeoutsConfig,
    /// `runtime.workers`.
    pub workers: WorkerCount,
    /// `logs`.
    pub logs: LogsSection,
    /// `store.path`, as written.
    pub store_path: Option<String>,
    /// `ledger`.
    pub ledger: LedgerSection,
    /// `telemetry`.
    pub telemetry: TelemetryConfig,
}

impl Default for ConfigFile {
    /// A file that says nothing.
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            listen: settings.listen,
            crawlers: settings.crawlers,
            anonymous: settings.anonymous,
            admin_listen: settings.admin.listen,
            token_file: None,
            admin_names: settings.admin.names,
            policy_path: None,
            policy_watch: settings.policy.watch,
            policy_shadow: None,
            profile: settings.profile,
            tls: TlsSection::default(),
            egress: settings.egress,
            limits: settings.limits,
            timeouts: settings.timeouts,
            workers: settings.workers,
            logs: LogsSection::default(),
            store_path: None,
            ledger: LedgerSection::default(),
            telemetry: settings.telemetry,
        }
    }
}

impl ConfigFile {
    /// Reads a file's text. Where it has a mistake the default stands, and the mistake is among the problems:
    /// what comes out is fit to run only if there are no errors.
    pub fn parse(
        file: &Arc<str>,
        text: &str,
        variables: VariableLookup<'_>,
        problems: &mut Problems,
    ) -> Self {
        let mut config = Self::default();
        if let Some(mut tree) = parse(file, text, problems).filter(|tree| !tree.is_null()) {
            variables::substitute_all(&mut tree, variables, problems);
            config.read_tree(&tree, problems);
        }
        config
    }

    fn read_tree(&mut self, tree: &Node, problems: &mut Problems) {
        let Some(mut map) = MapReader::open(tree, "the configuration", problems) else {
            return;
        };
        let listen = map.take("listen");
        let crawlers = map.take("crawlers").filter(|node| !node.is_null());
        let named = crawlers::listener_crawlers(listen);
        set_if_some(
            &mut self.crawlers,
            crawlers.map(|node| crawlers::read(node, &named, problems)),
        );
        if let Some(node) = map.take("anonymous") {
            set_if_some(
                &mut self.anonymous,
                crawlers::read_anonymous(node, &self.crawlers, problems),
            );
        }
        if let Some(node) = listen {
            self.read_listen(node, problems);
        }
        if let Some(group) = open_group(&mut map, "admin", problems) {
            self.read_admin(group, problems);
        }
        if let Some(group) = open_group(&mut map, "policy", problems) {
            self.read_policy(group, problems);
        }
        let profile = map
            .take("profile")
            .and_then(|node| read_profile(node, problems));
        set_if_some(&mut self.profile, profile);
        if let Some(group) = open_group(&mut map, "tls", problems) {
            tls::read(&mut self.tls, group, problems);
        }
        if let Some(group) = open_group(&mut map, "egress", problems) {
            egress::read(&mut self.egress, group, problems);
        }
        if let Some(group) = open_group(&mut map, "limits", problems) {
            limits::read(
                &mut self.limits,
                limits::LIMIT_KEYS,
                "limits",
                group,
                problems,
            );
        }
        if let Some(group) = open_group(&mut map, "timeouts", problems) {
            limits::read(
                &mut self.timeouts,
                limits::TIMEOUT_KEYS,
                "timeouts",
                group,
                problems,
            );
        }
        if let Some(group) = open_group(&mut map, "runtime", problems) {
            self.read_runtime(group, problems);
        }
        if let Some(group) = open_group(&mut map, "logs", problems) {
            logs::read(&mut self.logs, group, problems);
        }
        if let Some(group) = open_group(&mut map, "store", problems) {
            store::read(&mut self.store_path, group, problems);
        }
        if let Some(group) = open_group(&mut map, "ledger", problems) {
            ledger::read(&mut self.ledger, group, problems);
        }
        if let Some(group) = open_group(&mut map, "telemetry", problems) {
            telemetry::read(&mut self.telemetry, group, problems);
        }
        unsupported::check(&mut map, "", problems);
        map.finish(problems);
    }

    fn read_listen(&mut self, node: &Node, problems: &mut Problems) {
        let items = read::one_or_many(node);
        if items.is_empty() {
            problems.push(Problem::error(
                &node.place,
                "`listen` needs at least one address",
            ));
        }
        let mut listen: Vec<ListenerConfig> = Vec::with_capacity(items.len());
        for item in items {
            let Some(listener) = crawlers::read_listener(item, &self.crawlers, problems) else {
                continue;
            };
            let address = listener.address;
            if address.port() != 0 && listen.iter().any(|l| l.address == address) {
                problems.push(read::wrong_type(
                    item,
                    "the address stands twice in `listen`",
                ));
            }
            listen.push(listener);
        }
        if !listen.is_empty() {
            self.listen = listen;
        }
    }

    fn read_admin(&mut self, mut map: MapReader<'_>, problems: &mut Problems) {
        let listen = map
            .take("listen")
            .and_then(|node| parse_scalar(node, values::parse_socket_address, problems));
        if let (Some(address), Some(node)) = (listen, map.take("listen"))
            && address.port() != 0
            && self.listen.iter().any(|l| l.address == address)
        {
            problems.push(read::wrong_type(
                node,
                "crawlers connect to this address: the admin listener needs another",
            ));
        }
        set_if_some(&mut self.admin_listen, listen);
        let token_file = map
            .take("token_file")
            .and_then(|node| read::spelling(node, problems));
        self.token_file = token_file.filter(|path| *path != "none").map(Into::into);
        let names = map
            .take("names")
            .filter(|node| !node.is_null())
            .map(read::one_or_many);
        let name = |node: &Node| parse_scalar(node, values::parse_host_field, problems);
        set_if_some(
            &mut self.admin_names,
            names.map(|nodes| nodes.iter().filter_map(name).collect()),
        );
        map.finish(problems);
    }

    fn read_policy(&mut self, mut map: MapReader<'_>, problems: &mut Problems) {
        if let Some(node) = map.take("path")
            && let Some(path) = read::spelling(node, problems)
        {
            self.policy_path = Some((path.to_owned(), node.place.clone()));
        }
        let watch = map
            .take("watch")
            .and_then(|node| read::boolean(node, problems));
        set_if_some(&mut self.policy_watch, watch);
        if let Some(node) = map.take("shadow")
            && let Some(path) = read::spelling(node, problems).filter(|path| *path != "none")
        {
            self.policy_shadow = Some((path.to_owned(), node.place.clone()));
        }
        unsupported::check(&mut map, "policy", problems);
        map.finish(problems);
    }

    fn read_runtime(&mut self, mut map: MapReader<'_>, problems: &mut Problems) {
        let workers = map.take("workers").and_then(|node| match node.spelling() {
            Some("auto") => Some(WorkerCount::Auto),
            Some(_) | None => {
                let count = read::integer(node, 1..=1_024, problems)?;
                usize::try_from(count).ok().map(WorkerCount::Count)
            }
        });
        set_if_some(&mut self.workers, workers);
        map.finish(problems);
    }
}

/// Opens a group of keys; a group with nothing in it says nothing.
fn open_group<'n>(
    map: &mut MapReader<'n>,
    key: &'static str,
    problems: &mut Problems,
) -> Option<MapReader<'n>> {
    let node = map.take(key).filter(|node| !node.is_null())?;
    MapReader::open(node, &format!("`{key}`"), problems)
}

/// Replaces a default by what was read.
fn set_if_some<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// A scalar that is more than a word or a number.
fn parse_scalar<T>(
    node: &Node,
    read: impl Fn(&str) -> Result<T, String>,
    problems: &mut Problems,
) -> Option<T> {
    let text = read::spelling(node, problems)?;
    match read(text) {
        Ok(value) => Some(value),
        Err(mistake) => {
            problems.push(read::wrong_type(node, &mistake));
            None
        }
    }
}

fn read_profile(node: &Node, problems: &mut Problems) -> Option<ProfileSetting> {
    let mut words = vec!["by-user-agent"];
    words.extend(Profile::ALL.map(Profile::as_str));
    let choice = |word: &str| match word {
        "by-user-agent" => Some(ProfileSetting::ByUserAgent),
        _ => Profile::from_word(word).map(ProfileSetting::Fixed),
    };
    read::word(node, &words, choice, problems)
}
