//! `crawler-conf.yaml`: the keys that say how fast and how often is fetched, and what robots.txt means.

use crawlgate_policy::internal::yaml::{MappingEntry, Node};

use crate::draft::{OptionDrafts, PolicyDraft, to_slug};
use crate::duration::{from_millis, from_seconds};
use crate::input::{ImportError, ImportInput, SourceText};
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};
use crate::settings::{CrawlerProposal, SettingsDraft};
use crate::systems::yaml_source::{YamlSource, entries, items};

use super::keys::is_unrelated;

/// A key of the configuration.
#[derive(Clone, Debug)]
pub(super) struct ConfKey {
    pub name: String,
    /// Its value, or the values of a list.
    pub values: Vec<String>,
    /// The key, and all that is in its value.
    pub parts: Vec<PartId>,
    /// The file that it is in.
    pub file: String,
}

/// Reads the keys of a file. A later one replaces an earlier one of the same name.
pub(super) fn read_conf(
    text: &SourceText,
    report: &mut Report,
    keys: &mut Vec<ConfKey>,
) -> Result<(), ImportError> {
    let source = YamlSource::parse(text, is_secret)?;
    let root = entries(&source.root);
    if root.is_empty() {
        let message = "neither filters nor a configuration";
        return Err(ImportError::invalid(&source.place(&source.root), message));
    }
    let list = match root {
        [only] if &*only.key.text == "config" && !entries(&only.value).is_empty() => {
            let part = source.add_entry(only, report);
            report.unrelated(part, "its keys follow");
            entries(&only.value)
        }
        list => list,
    };
    for entry in list {
        let key = read_key(&source, entry, text, report);
        if let Some(at) = keys.iter().position(|known| known.name == key.name) {
            for part in keys.remove(at).parts {
                report.dead(part, "the key is set again below");
            }
        }
        keys.push(key);
    }
    Ok(())
}

fn read_key(
    source: &YamlSource,
    entry: &MappingEntry,
    text: &SourceText,
    report: &mut Report,
) -> ConfKey {
    let value = entry.value.spelling().map(str::to_owned);
    let listed = items(&entry.value).iter().filter_map(Node::spelling);
    ConfKey {
        name: entry.key.text.to_string(),
        values: value.into_iter().chain(listed.map(str::to_owned)).collect(),
        parts: source.add_all(entry, report),
        file: text.file.to_string(),
    }
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let words = ["password", "passwd", "secret", "token", "apikey", "api.key"];
    words.iter().any(|word| key.contains(word)) || key.ends_with(".pass")
}

/// Converts keys.
pub(super) struct ConfConverter<'a> {
    pub policy: &'a mut PolicyDraft,
    pub report: &'a mut Report,
    pub settings: &'a mut SettingsDraft,
    pub keys: &'a [ConfKey],
    pub input: &'a ImportInput<'a>,
}

impl ConfConverter<'_> {
    pub(super) fn convert(&mut self) {
        self.set_pace();
        for key in self.keys {
            self.convert_key(key);
        }
    }

    fn key(&self, name: &str) -> Option<&ConfKey> {
        self.keys.iter().find(|key| key.name == name)
    }

    fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        let text = self.key(name).and_then(|key| key.values.first());
        text.and_then(|text| text.parse().ok()).unwrap_or(default)
    }

    fn flag(&self, name: &str) -> bool {
        self.key(name).is_some_and(ConfKey::is_true)
    }

    fn threads(&self) -> u32 {
        self.number("fetcher.threads.per.queue", 1).max(1)
    }

    fn options(&mut self) -> &mut OptionDrafts {
        &mut self.policy.options
    }

    /// Writes the pace, of which StormCrawler has defaults of its own.
    fn set_pace(&mut self) {
        let threads = self.threads();
        let delay: f64 = match threads {
            1 => self.number("fetcher.server.delay", 1.0),
            _ => self.number("fetcher.server.min.delay", 0.0),
        };
        let key = match self.key("fetcher.queue.mode").map(ConfKey::text) {
            Some("byDomain") => Some("registrable_domain"),
            Some("byIP") => Some("address"),
            Some(_) | None => None,
        };
        let cap: i64 = self.number("fetcher.max.crawl.delay", 30);
        let options = self.options();
        options.set("politeness.delay", seconds(delay));
        options.set("politeness.concurrency", threads);
        options.set("politeness.jitter", "none");
        if let Some(key) = key {
            options.set("politeness.key", key);
        }
        if let Ok(cap) = u64::try_from(cap) {
            options.set("robots.crawl_delay_cap", from_seconds(cap));
        }
    }

    fn converted(&mut self, key: &ConfKey, option: &str) {
        for part in &key.parts {
            self.report.converted(*part, option, PartNeed::Host);
        }
    }

    fn assumed(&mut self, key: &ConfKey, option: &str, text: &str, effect: AssumptionEffect) {
        for part in &key.parts {
            let target = PartTarget {
                name: option.to_owned(),
                need: match option.starts_with("recrawl.") {
                    true => PartNeed::Ledger,
                    false => PartNeed::Host,
                },
            };
            self.report.assumed(*part, target, text, effect);
        }
    }

    fn not_converted(&mut self, key: &ConfKey, why: &str, failure: MissingPart, instead: &str) {
        for part in &key.parts {
            self.report
                .not_converted(*part, why, failure, Some(instead));
        }
    }

    fn unrelated(&mut self, key: &ConfKey, why: &str) {
        for part in &key.parts {
            self.report.unrelated(*part, why);
        }
    }

    fn convert_key(&mut self, key: &ConfKey) {
        match key.name.as_str() {
            "fetcher.server.delay" | "fetcher.server.min.delay" => {
                let is_used = (self.threads() > 1) == key.name.ends_with("min.delay");
                match is_used {
                    true => self.converted(key, "politeness.delay"),
                    false => {
                        let why = "StormCrawler does not use it with this number of threads";
                        self.unrelated(key, why);
                    }
                }
            }
            "fetcher.threads.per.queue" => self.converted(key, "politeness.concurrency"),
            "fetcher.queue.mode" => self.converted(key, "politeness.key"),
            "fetcher.max.crawl.delay" | "fetcher.max.crawl.delay.force" => self.crawl_delay(key),
            "fetcher.server.delay.force" => {
                self.unrelated(key, "a Crawl-delay never shortens `politeness.delay`");
            }
            "http.robots.file.skip" | "http.skip.robots" => {
                self.options().set("robots.obey", !key.is_true());
                self.converted(key, "robots.obey");
            }
            "http.robots.403.allow" if key.is_true() => {
                self.unrelated(key, "as here: 403 means that there is no robots.txt");
            }
            "http.robots.403.allow" => self.not_converted(
                key,
                "an answer of 403 for robots.txt means here that there is none",
                MissingPart::LetsThrough,
                "a rule for the hosts that answer so",
            ),
            "http.robots.5xx.allow" => self.unreachable_robots(key),
            "http.agent.name" | "http.robots.agents" => self.agent(key),
            "fetchInterval.default" | "scheduler.adaptive.fetchInterval.min" => self.interval(key),
            "fetchInterval.fetch.error" => self.error_interval(key),
            "fetchInterval.error" => self.permanent_error_interval(key),
            name if name.starts_with("fetchInterval.") => self.not_converted(
                key,
                "the proxy does not know the metadata of a page",
                MissingPart::KeepsOut,
                "`set: { recrawl: { min_interval: … } }` in a rule for these pages",
            ),
            name if name.starts_with("fetcher.maxThreads.") => self.not_converted(
                key,
                "the number of requests in progress for hosts that an expression fits",
                MissingPart::OtherSetting,
                "`hosts: [ { host: …, concurrency: … } ]`",
            ),
            "http.content.limit" if self.number("http.content.limit", -1_i64) >= 0 => {
                self.not_converted(
                    key,
                    "StormCrawler cuts longer documents, a policy would refuse them",
                    MissingPart::OtherSetting,
                    "`max_body`, if longer documents are to be refused",
                );
            }
            name if is_unrelated(name) => {
                self.unrelated(
                    key,
                    "fetching, storage, parsing or indexing by StormCrawler itself",
                );
            }
            // Not known: listed as not converted. The file of filters has its outcome already.
            _ => {}
        }
    }

    fn crawl_delay(&mut self, key: &ConfKey) {
        let option = "robots.crawl_delay_cap";
        let cap: i64 = self.number("fetcher.max.crawl.delay", 30);
        if cap < 0 {
            let text = "no host asks for more than 5 minutes";
            return self.assumed(key, option, text, AssumptionEffect::Either);
        }
        if self.flag("fetcher.max.crawl.delay.force") {
            return self.converted(key, option);
        }
        let text =
            "a host that asks for a longer delay is fetched at this one; StormCrawler skips it";
        self.assumed(key, option, text, AssumptionEffect::RefusesLess);
    }

    fn unreachable_robots(&mut self, key: &ConfKey) {
        let option = "robots.on_unreachable";
        let (value, text, effect) = match key.is_true() {
            true => (
                "allow",
                "no host answers 429 for robots.txt, after which StormCrawler fetches nothing",
                AssumptionEffect::RefusesLess,
            ),
            false => (
                "deny",
                "each host answers a request for robots.txt; without an answer StormCrawler fetches everything",
                AssumptionEffect::RefusesMore,
            ),
        };
        self.options().set(option, value);
        self.assumed(key, option, text, effect);
    }

    fn agent(&mut self, key: &ConfKey) {
        let names = key.values.iter().flat_map(|text| text.split(','));
        let names: Vec<&str> = names
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .collect();
        let Some(first) = names.first() else {
            return self.unrelated(key, "is empty");
        };
        let Some(name) = resolve(first, self.input) else {
            let why = "names a variable whose value is not known";
            let instead = "give its value with --var NAME=VALUE";
            return self.not_converted(key, why, MissingPart::OtherSetting, instead);
        };
        let is_token = |c: char| c.is_ascii_alphabetic() || c == '-' || c == '_';
        if !name.chars().all(is_token) {
            let why = "a name in robots.txt consists of letters, `-` and `_`";
            let instead = "`robots.agent` with the name that sites know";
            return self.not_converted(key, why, MissingPart::OtherSetting, instead);
        }
        let is_own = key.name == "http.agent.name";
        if is_own {
            self.settings.crawlers.push(CrawlerProposal {
                name: to_slug(&name),
                notes: vec!["StormCrawler sends its requests to this crawler's port: http.proxy.host, http.proxy.port".to_owned()],
                keys: vec![("profile".to_owned(), "stormcrawler".into())],
            });
        }
        let listed = self
            .key("http.robots.agents")
            .map(|key| !key.text().is_empty());
        if is_own && listed == Some(true) {
            return self.unrelated(key, "http.robots.agents is looked up in robots.txt instead");
        }
        self.options().set("robots.agent", name.as_str());
        if names.len() == 1 {
            return self.converted(key, "robots.agent");
        }
        let text = "robots.txt names the first of these agents, if it names one of them";
        self.assumed(key, "robots.agent", text, AssumptionEffect::Either);
    }

    fn is_adaptive(&self) -> bool {
        let class = self.key("scheduler.class").map(ConfKey::text);
        class.is_some_and(|class| class.contains("Adaptive"))
    }

    fn interval(&mut self, key: &ConfKey) {
        if self.is_adaptive() == key.name.ends_with("default") {
            let why = match self.is_adaptive() {
                true => "the adaptive schedule changes it for each page",
                false => "the schedule is not adaptive",
            };
            return self.unrelated(key, why);
        }
        let option = "recrawl.min_interval";
        let (text, effect) = match self.is_adaptive() {
            true => (
                "no page is due before the least interval; the adaptive schedule may wait longer",
                AssumptionEffect::RefusesLess,
            ),
            false => (
                "no page has an interval of its own in its metadata",
                AssumptionEffect::RefusesMore,
            ),
        };
        self.set_minutes(key, option, text, effect);
    }

    fn error_interval(&mut self, key: &ConfKey) {
        let text = "each error is one after which StormCrawler tries again";
        self.set_minutes(key, "recrawl.after_error", text, AssumptionEffect::Either);
    }

    fn permanent_error_interval(&mut self, key: &ConfKey) {
        let same = self.key("fetchInterval.fetch.error").map(ConfKey::text) == Some(key.text());
        if same {
            return self.error_interval(key);
        }
        self.not_converted(
            key,
            "`recrawl.after_error` is one interval for all errors",
            MissingPart::LetsThrough,
            "the longer of the two as `recrawl.after_error`",
        );
    }

    fn set_minutes(&mut self, key: &ConfKey, option: &str, text: &str, effect: AssumptionEffect) {
        let minutes = key.text().parse::<i64>().ok();
        match minutes.map(u64::try_from) {
            Some(Ok(minutes)) => {
                let minutes = minutes.min(u64::from(u32::MAX));
                self.options().set(option, from_seconds(minutes * 60));
                self.assumed(key, option, text, effect);
            }
            Some(Err(_)) => self.not_converted(
                key,
                "it means that a page is never fetched again",
                MissingPart::LetsThrough,
                "a long interval, such as 3650d",
            ),
            None => {
                let why = "not a number of minutes";
                self.not_converted(key, why, MissingPart::OtherSetting, "`recrawl`");
            }
        }
    }
}

impl ConfKey {
    /// Returns the value; empty for a list of none.
    pub(super) fn text(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }

    fn is_true(&self) -> bool {
        self.text().eq_ignore_ascii_case("true")
    }
}

/// Replaces `${name}` by the value of a variable.
fn resolve(text: &str, input: &ImportInput<'_>) -> Option<String> {
    let Some(rest) = text.strip_prefix("${") else {
        return Some(text.to_owned());
    };
    let name = rest.strip_suffix('}')?;
    input.variable(name).map(str::to_owned)
}

/// Writes a number of seconds.
fn seconds(number: f64) -> String {
    let millis = (number.clamp(0.0, 1e9) * 1_000.0).round();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within 0 and 1e12"
    )]
    let millis = millis as u64;
    from_millis(millis)
}
