//! `nutch-site.xml`: the properties that say how fast and how often is fetched, and what robots.txt means.

use crate::draft::{
    ConditionDraft, GroupDraft, GuardDraft, OptionDrafts, PolicyDraft, RuleDraft, RuleIds,
};
use crate::input::{ImportError, ImportInput, SourceText};
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};
use crate::settings::{CrawlerProposal, SettingsDraft};
use crate::xml::XmlSource;

use super::source::FilterPlugin;

/// A property.
#[derive(Clone, Debug)]
pub(super) struct SiteProperty {
    pub name: String,
    pub value: String,
    /// Its element, its name and its value.
    pub parts: Vec<PartId>,
}

/// Reads the properties. A later one replaces an earlier one of the same name.
pub(super) fn read_properties(
    source: &SourceText,
    report: &mut Report,
) -> Result<Vec<SiteProperty>, ImportError> {
    let xml = XmlSource::parse(source, report, is_secret)?;
    let root = xml.root();
    for part in xml.own_parts(root) {
        report.unrelated(part, "the root of the document");
    }
    let mut properties: Vec<SiteProperty> = Vec::new();
    for element in root.children().filter(roxmltree::Node::is_element) {
        let mut parts = xml.own_parts(element);
        let (mut name, mut value) = (String::new(), String::new());
        for child in element.children().filter(roxmltree::Node::is_element) {
            let text = child.text().unwrap_or_default().trim();
            match child.tag_name().name() {
                "name" => text.clone_into(&mut name),
                "value" => text.clone_into(&mut value),
                _ => {
                    for part in xml.all_parts(child) {
                        report.unrelated(part, "a description, or who may change the property");
                    }
                    continue;
                }
            }
            parts.extend(xml.all_parts(child));
            let value_part = xml
                .part(child)
                .filter(|_| child.tag_name().name() == "value");
            if let Some(part) = value_part.filter(|_| is_secret(&name)) {
                report.set_text(part, "***");
            }
        }
        if element.tag_name().name() != "property" {
            continue;
        }
        if let Some(at) = properties.iter().position(|known| known.name == name) {
            for part in properties.remove(at).parts {
                report.dead(part, "the property is set again below");
            }
        }
        properties.push(SiteProperty { name, value, parts });
    }
    Ok(properties)
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [
        "password",
        "passwd",
        "secret",
        "token",
        "apikey",
        "api.key",
        "credential",
    ]
    .iter()
    .any(|word| name.contains(word))
}

/// Properties that are no policy's business, by their beginnings.
const UNRELATED: &[&str] = &[
    "crawl.",
    "crawldb.",
    "db.",
    "elastic",
    "fetcher.",
    "file.",
    "ftp.",
    "generate.",
    "generator.",
    "hadoop.",
    "headings",
    "hostdb.",
    "htmlunit.",
    "http.",
    "index",
    "interactiveselenium.",
    "io.",
    "lang.",
    "libselenium",
    "link",
    "mapred",
    "metatags.",
    "mime.",
    "moreIndexingFilter.",
    "page.load.",
    "parse",
    "plugin.",
    "publisher.",
    "regex-parsefilter",
    "rabbitmq.",
    "scoring.",
    "searcher.",
    "segment",
    "selenium.",
    "sitemap.",
    "solr.",
    "store.",
    "subcollection",
    "tika.",
    "tld.",
    "urlmeta.",
    "urlnormalizer.",
    "warc.",
    "webdriver.",
    "yarn.",
    "zookeeper.",
];

/// Converts properties.
pub(super) struct SiteConverter<'a> {
    pub policy: &'a mut PolicyDraft,
    pub report: &'a mut Report,
    pub ids: &'a mut RuleIds,
    pub settings: &'a mut SettingsDraft,
    pub properties: &'a [SiteProperty],
    pub input: &'a ImportInput<'a>,
}

impl SiteConverter<'_> {
    pub(super) fn convert(&mut self) {
        let properties = self.properties;
        self.set_pace();
        for property in properties {
            self.convert_property(property);
        }
    }

    /// Returns a value, with the properties that it names filled in.
    fn value(&self, name: &str) -> Option<String> {
        let found = self
            .properties
            .iter()
            .find(|property| property.name == name);
        resolve(&found?.value, self.properties, self.input)
    }

    fn seconds(&self, name: &str, default: f64) -> f64 {
        let value = self.value(name).and_then(|text| text.parse().ok());
        value
            .filter(|value: &f64| value.is_finite())
            .unwrap_or(default)
    }

    fn options(&mut self) -> &mut OptionDrafts {
        &mut self.policy.options
    }

    /// Writes the pace, of which Nutch has defaults of its own.
    fn set_pace(&mut self) {
        let threads = self.value("fetcher.threads.per.queue");
        let threads: u32 = threads.and_then(|text| text.parse().ok()).unwrap_or(1);
        let delay = match threads {
            0 | 1 => self.seconds("fetcher.server.delay", 5.0),
            _ => self.seconds("fetcher.server.min.delay", 0.0),
        };
        let key = match self.value("fetcher.queue.mode").as_deref() {
            Some("byDomain") => Some("registrable_domain"),
            Some("byIP") => Some("address"),
            Some(_) | None => None,
        };
        let cap = self.seconds("fetcher.max.crawl.delay", 30.0);
        let options = self.options();
        options.set("politeness.delay", duration(delay));
        options.set("politeness.concurrency", threads.max(1));
        options.set("politeness.jitter", "none");
        if let Some(key) = key {
            options.set("politeness.key", key);
        }
        if cap >= 0.0 {
            options.set("robots.crawl_delay_cap", duration(cap));
        }
    }

    fn set_all(&mut self, property: &SiteProperty, set: impl Fn(&mut Report, PartId)) {
        for part in &property.parts {
            set(self.report, *part);
        }
    }

    fn converted(&mut self, property: &SiteProperty, option: &str, need: PartNeed) {
        self.set_all(property, |report, part| {
            report.converted(part, option, need)
        });
    }

    fn assumed(
        &mut self,
        property: &SiteProperty,
        option: &str,
        assumption: &str,
        effect: AssumptionEffect,
    ) {
        self.set_all(property, |report, part| {
            let target = PartTarget {
                name: option.to_owned(),
                need: PartNeed::Url,
            };
            report.assumed(part, target, assumption, effect);
        });
    }

    fn not_converted(
        &mut self,
        property: &SiteProperty,
        why: &str,
        failure: MissingPart,
        instead: &str,
    ) {
        self.set_all(property, |report, part| {
            report.not_converted(part, why, failure, Some(instead));
        });
    }

    fn unrelated(&mut self, property: &SiteProperty, why: &str) {
        self.set_all(property, |report, part| report.unrelated(part, why));
    }

    fn convert_property(&mut self, property: &SiteProperty) {
        let Some(value) = resolve(&property.value, self.properties, self.input) else {
            let why = "names a variable whose value is not known";
            let instead = "give its value with --var NAME=VALUE";
            return self.not_converted(property, why, MissingPart::OtherSetting, instead);
        };
        let enabled = value.eq_ignore_ascii_case("true");
        match property.name.as_str() {
            "fetcher.server.delay" | "fetcher.server.min.delay" => {
                let several = self.value("fetcher.threads.per.queue");
                let several = several.is_some_and(|text| text != "1");
                let used = several == property.name.ends_with("min.delay");
                match used {
                    true => self.converted(property, "politeness.delay", PartNeed::Host),
                    false => self.unrelated(
                        property,
                        "Nutch does not use it with this number of threads",
                    ),
                }
            }
            "fetcher.threads.per.queue" => {
                self.converted(property, "politeness.concurrency", PartNeed::Host);
            }
            "fetcher.queue.mode" => self.converted(property, "politeness.key", PartNeed::Host),
            "fetcher.max.crawl.delay" => {
                let text =
                    "a host that asks for a longer delay is fetched at this one; Nutch skips it";
                let effect = AssumptionEffect::RefusesLess;
                self.assumed(property, "robots.crawl_delay_cap", text, effect);
            }
            "fetcher.min.crawl.delay" => {
                let why = "a Crawl-delay never shortens `politeness.delay`";
                self.set_all(property, |report, part| report.unrelated(part, why));
            }
            "http.agent.name" | "http.robots.agents" => self.agent(property, &value),
            "http.robots.403.allow" if enabled => {
                self.unrelated(property, "as here: 403 means that there is no robots.txt");
            }
            "http.robots.403.allow" => self.not_converted(
                property,
                "an answer of 403 for robots.txt means here that there is none",
                MissingPart::LetsThrough,
                "a rule for the hosts that answer so",
            ),
            "http.robots.503.defer.visits" => {
                let option = if enabled { "stale_then_deny" } else { "allow" };
                self.options().set("robots.on_unreachable", option);
                self.converted(property, "robots.on_unreachable", PartNeed::Host);
            }
            "http.robot.rules.allowlist" | "http.robot.rules.whitelist" => {
                self.robots_allowlist(property, &value);
            }
            "scoring.depth.max" => self.depth(property, &value),
            "db.fetch.interval.default" => self.interval(property, &value),
            "db.ignore.external.links" | "db.ignore.internal.links" if enabled => self
                .not_converted(
                    property,
                    "it depends on the page that links, which a request does not name",
                    MissingPart::LetsThrough,
                    "a rule `require: { domain: […] }` with the hosts of the seeds",
                ),
            "generate.max.count" if value.parse().is_ok_and(|count: i64| count > 0) => {
                self.not_converted(
                    property,
                    "it counts the URLs of a segment, which the proxy does not know",
                    MissingPart::LetsThrough,
                    "`budget: { urls: … }`, per host and day",
                );
            }
            "db.max.outlink.length" => self.not_converted(
                property,
                "it applies to links only, not to seeds and redirects",
                MissingPart::LetsThrough,
                "a rule `forbid: { url: { length: '[4097:]' } }`",
            ),
            "http.content.limit" if value.parse().is_ok_and(|limit: i64| limit >= 0) => {
                self.not_converted(
                    property,
                    "Nutch cuts longer documents, a policy would refuse them",
                    MissingPart::OtherSetting,
                    "`max_body`, if longer documents are to be refused",
                );
            }
            "indexer.delete.robots.noindex" if enabled => self.not_converted(
                property,
                "it removes pages from Nutch's index",
                MissingPart::OtherSetting,
                "`noindex: reject` and `removal.noindex: remove`",
            ),
            name => self.convert_other(property, name),
        }
    }

    /// Sets the outcome of properties that were used elsewhere, and of those that are not known.
    fn convert_other(&mut self, property: &SiteProperty, name: &str) {
        let of_filter = FilterPlugin::ALL.iter().any(|plugin| {
            let prefix = format!("urlfilter.{}.", plugin.word());
            name.strip_prefix(&prefix) == Some("file")
        });
        let rules = name.starts_with("urlfilter.") && name.ends_with(".rules");
        if rules {
            let why = "rules in a property are not read";
            let instead = "write them into a file, and import that";
            return self.not_converted(property, why, MissingPart::LetsThrough, instead);
        }
        if of_filter || name == "urlfilter.order" || name == "plugin.includes" {
            return self.unrelated(
                property,
                "names the filters that are imported, and their order",
            );
        }
        if name.starts_with("urlfilter.fast.url.") {
            // A rule, see the conversion of filters.
            return;
        }
        if UNRELATED.iter().any(|prefix| name.starts_with(prefix)) {
            let why = "fetching, storage, parsing or indexing by Nutch itself";
            self.unrelated(property, why);
        }
    }

    fn agent(&mut self, property: &SiteProperty, value: &str) {
        let name = value.split(',').next().unwrap_or_default().trim();
        let is_token = |c: char| c.is_ascii_alphabetic() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(is_token) {
            let why = "a name in robots.txt consists of letters, `-` and `_`";
            let instead = "`robots.agent` with the name that sites know";
            return self.not_converted(property, why, MissingPart::OtherSetting, instead);
        }
        let first = self.policy.options.get("robots.agent").is_none();
        if first || property.name == "http.agent.name" {
            self.options().set("robots.agent", name);
        }
        self.converted(property, "robots.agent", PartNeed::Host);
        if property.name == "http.agent.name" {
            self.settings.crawlers.push(CrawlerProposal {
                name: crate::draft::to_slug(name),
                notes: vec!["Nutch sends its requests to this crawler's port: http.proxy.host, http.proxy.port".to_owned()],
                keys: vec![("profile".to_owned(), "nutch".into())],
            });
        }
    }

    fn robots_allowlist(&mut self, property: &SiteProperty, value: &str) {
        let hosts = value.split(',').map(|host| host.trim().to_lowercase());
        let hosts: Vec<String> = hosts.filter(|host| !host.is_empty()).collect();
        if hosts.is_empty() {
            return self.unrelated(property, "is empty");
        }
        let id = self.ids.next("robots-allowlist");
        let sample = hosts.first().map(|host| format!("http://{host}/"));
        let samples = sample.map(|url| (url, serde_json::Map::new()));
        self.policy.examples.extend(samples);
        let mut set = OptionDrafts::default();
        set.set("robots.obey", false);
        let group = GroupDraft {
            guard: GuardDraft::When(ConditionDraft::is("host", hosts)),
            set,
            ..GroupDraft::default()
        };
        self.converted(property, &id, PartNeed::Host);
        self.policy.rules.push(RuleDraft::group(id, group).into());
    }

    fn depth(&mut self, property: &SiteProperty, value: &str) {
        let Some(max) = value.parse::<u32>().ok().and_then(|max| max.checked_sub(1)) else {
            let why = "not a number of links";
            return self.not_converted(property, why, MissingPart::LetsThrough, "`max_depth`");
        };
        self.options().set("max_depth", max);
        let text = "the crawler sends `Referer`, by which the proxy counts links; Nutch counts a seed as 1";
        self.assumed(property, "max_depth", text, AssumptionEffect::RefusesLess);
    }

    fn interval(&mut self, property: &SiteProperty, value: &str) {
        let Ok(seconds) = value.parse::<u32>() else {
            let why = "not a number of seconds";
            let instead = "`recrawl.min_interval`";
            return self.not_converted(property, why, MissingPart::OtherSetting, instead);
        };
        let schedule = self.value("db.fetch.schedule.class").unwrap_or_default();
        if schedule.contains("Adaptive") {
            let why = "the adaptive schedule changes it for each page";
            return self.unrelated(property, why);
        }
        self.options()
            .set("recrawl.min_interval", duration(f64::from(seconds)));
        let text = "no URL has an interval of its own in its metadata";
        let effect = AssumptionEffect::RefusesMore;
        self.assumed(property, "recrawl.min_interval", text, effect);
    }
}

/// Replaces `${name}` by the value of a property or a variable.
pub(super) fn resolve(
    value: &str,
    properties: &[SiteProperty],
    input: &ImportInput<'_>,
) -> Option<String> {
    let mut text = value.to_owned();
    for _ in 0..20 {
        let Some((before, rest)) = text.split_once("${") else {
            return Some(text);
        };
        let (name, after) = rest.split_once('}')?;
        let property = properties.iter().find(|property| property.name == name);
        let replacement = input
            .variable(name)
            .or(property.map(|property| property.value.as_str()));
        let replacement = replacement.or((name == "fetcher.server.delay").then_some("5.0"))?;
        text = format!("{before}{replacement}{after}");
        if text.len() > 10_000 {
            return None;
        }
    }
    None
}

/// Writes a number of seconds as a duration.
fn duration(seconds: f64) -> String {
    let millis = (seconds.clamp(0.0, 1e9) * 1_000.0).round();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within 0 and 1e12"
    )]
    let millis = millis as u64;
    for (unit, length) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
    ] {
        if millis >= length && millis.is_multiple_of(length) {
            return format!("{}{unit}", millis / length);
        }
    }
    match millis {
        0 => "0s".to_owned(),
        millis => format!("{millis}ms"),
    }
}
