//! Heritrix 3: `crawler-beans.cxml`, with the SURT files that it names.

mod beans;
mod conversion;
pub mod scope;
mod seeds;
mod settings;
mod sheets;
pub mod surts;

use std::collections::BTreeSet;

use serde_json::{Map, json};

use crate::conversion::Conversion;
use crate::draft::{PolicyDraft, RuleDraft, RuleItem, to_slug};
use crate::input::{ImportError, ImportInput, MAX_DOCUMENT, Place};
use crate::reference::heritrix::HeritrixScope;
use crate::report::{PartId, PartNeed, Report};
use crate::settings::{CrawlerProposal, SettingsDraft};
use crate::xml::XmlSource;

use beans::{Bean, BeanReader, Beans, ValueKind};
use conversion::HeritrixConversion;
use scope::{ScopeDecision, ScopeReader, ScopeRule, ScopeTest, failure_of};
use seeds::Seeds;
use settings::{convert_setting, record};

/// Beans whose properties set options.
const SETTING_CLASSES: [&str; 6] = [
    "DispositionProcessor",
    "CrawlMetadata",
    "FetchHTTP",
    "BdbFrontier",
    "CrawlLimitEnforcer",
    "QuotaEnforcer",
];

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    text.contains("<beans") && (text.contains("org.archive.") || text.contains("HERITRIX"))
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let Some(path) = input.paths.first() else {
        return Err(ImportError::invalid(&Place::start("-"), "no file is named"));
    };
    let source = input.read_text(&path.path, MAX_DOCUMENT)?;
    let mut report = Report::default();
    let xml = XmlSource::parse(&source, &mut report, beans::is_secret)?;
    beans::hide_secrets(&xml, &mut report);
    let reader = BeanReader {
        xml: &xml,
        source: &source,
        input,
    };
    let beans = reader.read(&mut report);
    let Some(scope) = beans.by_id("scope") else {
        let message = "no bean with the id `scope`: not a crawl job of Heritrix 3";
        return Err(ImportError::invalid(&Place::start(&path.path), message));
    };
    let import = HeritrixImport {
        beans: &beans,
        input,
        conversion: HeritrixConversion::default(),
        report,
        policy: PolicyDraft::default(),
    };
    import.run(scope, &xml)
}

struct HeritrixImport<'a> {
    beans: &'a Beans,
    input: &'a ImportInput<'a>,
    conversion: HeritrixConversion,
    report: Report,
    policy: PolicyDraft,
}

impl HeritrixImport<'_> {
    fn run(mut self, scope: &Bean, xml: &XmlSource<'_>) -> Result<Conversion, ImportError> {
        self.name_policy();
        let seeds = Seeds::read(self.beans, self.input, &mut self.report)?;
        let mut rules = self.read_rules(scope, &seeds)?;
        self.policy.options.set("disposition", "disallow");
        self.add_options();
        let items = self.convert_scope(&mut rules);
        self.policy.rules.extend(items);
        let (block, allow) = self.add_block_lists();
        self.add_sheets(&seeds)?;
        self.close_seeds(&seeds);
        self.close_rest(xml);
        self.add_examples();
        self.policy.lists = std::mem::take(&mut self.conversion.lists);
        let evaluator = HeritrixScope::new(&rules, block.as_deref(), allow.as_deref());
        Ok(Conversion {
            policy: self.policy,
            report: self.report,
            settings: settings_draft(),
            evaluator: Box::new(evaluator),
        })
    }

    fn name_policy(&mut self) {
        let job = self.beans.by_class("CrawlMetadata");
        let job = job.and_then(|bean| self.beans.text(bean, "jobName"));
        let job = job
            .map(|(name, _)| name)
            .filter(|name| !name.contains(['[', '$']));
        let name = self.input.name.clone().or(job);
        self.policy.name = to_slug(name.as_deref().unwrap_or("heritrix"));
    }

    fn read_rules(&mut self, scope: &Bean, seeds: &Seeds) -> Result<Vec<ScopeRule>, ImportError> {
        let mut reader = ScopeReader {
            beans: self.beans,
            seeds,
            input: self.input,
            report: &mut self.report,
            open: Vec::new(),
            used: BTreeSet::new(),
        };
        let rule = reader.read(scope)?;
        if rule.dead.is_some() {
            return Ok(vec![rule]);
        }
        let ScopeTest::Sequence(rules) = rule.test else {
            return Ok(vec![rule]);
        };
        for part in rule.parts {
            self.report.converted(part, "rules", PartNeed::Url);
        }
        Ok(rules)
    }

    /// Converts the rules of the scope. A first rule that rejects everything is the disposition.
    fn convert_scope(&mut self, rules: &mut [ScopeRule]) -> Vec<RuleItem> {
        let mut items = Vec::new();
        for (nth, rule) in rules.iter_mut().enumerate() {
            let is_default = nth == 0
                && rule.decision == ScopeDecision::Reject
                && rule.dead.is_none()
                && matches!(rule.test, ScopeTest::Always);
            if is_default {
                rule.acts = true;
                for part in &rule.parts {
                    self.report.converted(*part, "disposition", PartNeed::Host);
                }
                continue;
            }
            items.push(self.conversion.rule(rule, &mut self.report));
        }
        items
    }

    /// Sets the options of beans that are always in effect, with Heritrix's defaults.
    fn add_options(&mut self) {
        let defaults = [
            ("politeness.delay", json!("3s")),
            ("politeness.concurrency", json!(1)),
            ("politeness.jitter", json!("none")),
            ("politeness.adaptive.factor", json!(5)),
            ("politeness.adaptive.min", json!("3s")),
            ("politeness.adaptive.max", json!("30s")),
            ("robots.obey", json!(true)),
            ("robots.crawl_delay_cap", json!("5m")),
        ];
        for (path, value) in defaults {
            self.policy.options.set(path, value);
        }
        for class in SETTING_CLASSES {
            let Some(bean) = self.beans.by_class(class) else {
                continue;
            };
            for name in property_names(self.beans, bean) {
                self.add_option(bean, &name);
            }
        }
        self.order_delays();
    }

    /// Writes the greatest delay where it is less than the least: that is what Heritrix waits.
    fn order_delays(&mut self) {
        let Some(bean) = self.beans.by_class("DispositionProcessor") else {
            return;
        };
        let number = |name: &str, default: u64| {
            let text = self.beans.text(bean, name);
            let number = text.and_then(|(text, _)| settings::read_number(&text).ok());
            number.unwrap_or(default)
        };
        let max = number("maxDelayMs", 30_000);
        if number("minDelayMs", 3_000) > max {
            self.policy
                .options
                .set("politeness.delay", settings::duration(max));
            self.policy
                .options
                .set("politeness.adaptive.min", settings::duration(max));
        }
    }

    fn add_option(&mut self, bean: &Bean, name: &str) {
        let Some(value) = self.beans.property(bean, name) else {
            return;
        };
        let text = value
            .text()
            .map(|text| text.text.trim())
            .unwrap_or_default();
        let outcome = match value.text().and_then(|text| text.unresolved()) {
            Some(variable) if is_setting(&bean.class, name) => {
                settings::SettingOutcome::NotConverted(
                    format!("the value of {variable} is not known: give it with --var"),
                    crate::report::MissingPart::OtherSetting,
                    None,
                )
            }
            Some(_) | None => convert_setting(&bean.class, name, text),
        };
        let options = record(outcome, &value.all_parts(), None, &mut self.report);
        for (path, json) in options {
            self.policy.options.set(path, json);
        }
        for part in self.beans.replaced_parts(bean) {
            self.report.dead(part, "an override replaces this value");
        }
    }

    /// Converts `blockByRegex`, `allowByRegex` and `blockAll` of the preselector.
    fn add_block_lists(&mut self) -> (Option<String>, Option<String>) {
        let Some(bean) = self.beans.by_class("Preselector") else {
            return (None, None);
        };
        let block_all = self.beans.text(bean, "blockAll");
        if let Some((_, parts)) = block_all.filter(|(text, _)| text == "true") {
            let id = self.conversion.ids.next("block-all");
            self.convert_parts(parts, &id);
            let rule = RuleDraft::forbid(id, crate::draft::ConditionDraft::Always);
            self.policy.rules.push(rule.into());
            return (Some(".*".to_owned()), None);
        }
        let block = self.add_block_list(bean, "blockByRegex", ScopeDecision::Reject);
        let allow = self.add_block_list(bean, "allowByRegex", ScopeDecision::Accept);
        (block, allow)
    }

    fn add_block_list(
        &mut self,
        bean: &Bean,
        name: &str,
        decision: ScopeDecision,
    ) -> Option<String> {
        let (text, parts) = self.beans.text(bean, name)?;
        if text.is_empty() {
            return None;
        }
        match conversion::translate(&text) {
            Ok(condition) => {
                let id = self.conversion.ids.next(name);
                self.convert_parts(parts, &id);
                let rule = match decision {
                    ScopeDecision::Reject => RuleDraft::forbid(id, condition),
                    ScopeDecision::Accept => RuleDraft::require(id, condition),
                };
                self.policy.rules.push(rule.into());
                Some(text)
            }
            Err(why) => {
                for part in parts {
                    // Without a requirement more is allowed, too.
                    let failure = failure_of(ScopeDecision::Reject);
                    self.report.not_converted(*part, &why, failure, None);
                }
                self.policy
                    .rules
                    .push(RuleItem::Comment(format!("not converted: {name}: {why}")));
                None
            }
        }
    }

    fn convert_parts(&mut self, parts: &[PartId], id: &str) {
        for part in parts {
            self.report.converted(*part, id, PartNeed::Url);
        }
    }

    fn close_seeds(&mut self, seeds: &Seeds) {
        for part in &seeds.rejecting_parts {
            match &self.conversion.rejecting_rule {
                Some(rule) => self.report.converted(*part, rule, PartNeed::Url),
                None => self
                    .report
                    .dead(*part, "no rule that rejects prefixes takes it"),
            }
        }
        for part in &seeds.parts {
            if self.report.is_set(*part) {
                continue;
            }
            match &self.conversion.seed_rule {
                Some(rule) => self.report.converted(*part, rule, PartNeed::Url),
                None => self.report.unrelated(*part, "where the crawl starts"),
            }
        }
    }

    /// Sets the outcome of everything that no rule and no option comes from.
    fn close_rest(&mut self, xml: &XmlSource<'_>) {
        for bean in &self.beans.beans {
            let is_java = bean.package.starts_with("org.springframework.")
                || bean.package.starts_with("java.");
            for part in bean.all_parts() {
                if self.report.is_set(part) {
                    continue;
                }
                if is_java {
                    self.report.unrelated(part, "part of Spring");
                } else if !bean.is_of_heritrix() {
                    let why = "a class that is not Heritrix's: what it does is not known";
                    let failure = failure_of(ScopeDecision::Reject);
                    self.report.not_converted(part, why, failure, None);
                } else if is_rule_class(&bean.class) {
                    self.report.dead(part, "no rule of the scope refers to it");
                } else {
                    let why = "not about which URLs are requested, or how fast";
                    self.report.unrelated(part, why);
                }
            }
        }
        for (path, value) in self.beans.overrides() {
            let bean = path.split('.').next().unwrap_or_default();
            for part in value.all_parts() {
                if self.report.is_set(part) {
                    continue;
                }
                if self
                    .beans
                    .by_id(bean)
                    .is_some_and(|bean| is_rule_class(&bean.class))
                    || bean == "scope"
                {
                    let why = "an override of a property that is not known";
                    let failure = failure_of(ScopeDecision::Reject);
                    self.report.not_converted(part, why, failure, None);
                } else {
                    self.report
                        .unrelated(part, "not about which URLs are requested, or how fast");
                }
            }
        }
        for part in xml.all_parts(xml.root()) {
            if !self.report.is_set(part) {
                self.report.unrelated(part, "part of Spring");
            }
        }
    }

    /// Adds requests for those rules that a search does not reach.
    fn add_examples(&mut self) {
        let mut urls = std::mem::take(&mut self.conversion.examples);
        let base = urls
            .first()
            .cloned()
            .unwrap_or_else(|| "http://example.com/".to_owned());
        if let Some(base) = base.rfind('/').and_then(|slash| base.get(..=slash)) {
            urls.push(format!("{base}a/a/a/a/"));
        }
        urls.push("http://other.example/".to_owned());
        let examples = urls.into_iter().map(|url| (url, Map::new()));
        self.policy.examples.extend(examples);
    }
}

/// Returns the names of the properties that a bean has, by itself or by an override.
fn property_names(beans: &Beans, bean: &Bean) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = bean.properties.iter().map(|it| it.name.clone()).collect();
    for (path, _) in beans.overrides() {
        let found = bean
            .paths
            .iter()
            .find_map(|own| path.strip_prefix(own.as_str())?.strip_prefix('.'));
        names.extend(found.filter(|name| !name.contains('.')).map(str::to_owned));
    }
    names
}

fn is_setting(class: &str, name: &str) -> bool {
    !matches!(
        convert_setting(class, name, "1"),
        settings::SettingOutcome::Unrelated(_)
    )
}

fn is_rule_class(class: &str) -> bool {
    class.contains("DecideRule") || class == "AddRedirectFromRootServerToScope"
}

fn settings_draft() -> SettingsDraft {
    let crawler = CrawlerProposal {
        name: "heritrix".to_owned(),
        notes: vec![
            "In Heritrix set httpProxyHost and httpProxyPort of fetchHttp, and delayFactor and minDelayMs of \
             disposition to 0: the proxy waits."
                .to_owned(),
        ],
        keys: vec![("profile".to_owned(), json!("heritrix"))],
    };
    SettingsDraft {
        crawlers: vec![crawler],
        settings: Vec::new(),
    }
}

/// Returns the texts of a list, with their parts.
fn list_texts(value: &beans::BeanValue) -> Vec<(String, Vec<PartId>)> {
    let items = match &value.kind {
        ValueKind::List(items) => items.as_slice(),
        ValueKind::Text(_) | ValueKind::Bean(_) | ValueKind::Reference(_) | ValueKind::Map(_) => {
            std::slice::from_ref(value)
        }
    };
    let texts = items.iter().filter_map(|item| {
        let text = match &item.kind {
            ValueKind::Text(text) => text.text.trim().to_owned(),
            ValueKind::Reference(id) => id.clone(),
            ValueKind::Bean(_) | ValueKind::List(_) | ValueKind::Map(_) => return None,
        };
        Some((text, item.parts.clone()))
    });
    texts.collect()
}
