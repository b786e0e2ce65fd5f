//! Conversion of spiders: what a spider may fetch is its start pages, and the links that a rule accepts,
//! within its domains.

use serde_json::{Map, json};

use crate::draft::{
    ConditionDraft, ListDraft, OptionDrafts, PolicyDraft, RuleDraft, RuleIds, RuleItem, SpaceDraft,
    to_slug,
};
use crate::expression::{Anchoring, Dialect, SourceExpression};
use crate::report::{AssumptionEffect, MissingPart, PartNeed, PartTarget, Report};
use crate::settings::{CrawlerProposal, SettingsDraft};
use crate::systems::scrapy::extensions::IGNORED;
use crate::systems::scrapy::{
    LinkExpression, ScrapySetting, ScrapySource, Spider, SpiderRule, settings,
};

/// The list of the extensions that Scrapy ignores.
const IGNORED_LIST: &str = "ignored-extensions";

/// The warning at the top of the policy.
const WARNING: &str = "Pages that a spider requests in its code (Request, response.follow) are outside of its rules:\nwhere the policy refuses such a page, add a rule for it.";

pub(super) fn convert(
    source: &ScrapySource,
    policy: &mut PolicyDraft,
    proposal: &mut SettingsDraft,
    report: &mut Report,
) {
    if source
        .spiders
        .iter()
        .any(|spider| !spider.requests.is_empty())
    {
        policy.notes.push(WARNING.to_owned());
    }
    let mut ids = RuleIds::default();
    let is_one = source.spiders.len() < 2;
    let default = match source.spiders.first() {
        Some(spider) if is_one => disposition(spider),
        Some(_) => "disallow",
        None => "allow",
    };
    policy.options.set("disposition", default);
    let mut general = Vec::new();
    // A limit of some spiders in `custom_settings` replaces that of the project, which then is a rule of the
    // others only.
    let (replaced, project): (Vec<ScrapySetting>, Vec<ScrapySetting>) =
        source.settings.iter().cloned().partition(|setting| {
            setting.name == "URLLENGTH_LIMIT"
                && source
                    .spiders
                    .iter()
                    .any(|spider| spider.sets(&setting.name))
        });
    settings::convert(
        &project,
        "",
        &mut policy.options,
        &mut general,
        &mut ids,
        report,
    );
    for setting in &replaced {
        report.dead(
            setting.part,
            "custom_settings of each spider has another value",
        );
    }
    let decides = source
        .settings
        .iter()
        .any(|setting| setting.name == "ROBOTSTXT_OBEY");
    if source.has_settings && !decides {
        let note = "Scrapy's default, since ROBOTSTXT_OBEY is not set".to_owned();
        policy
            .options
            .set_with_note("robots.obey", false, Some(note));
    }
    policy.rules = general;
    for spider in &source.spiders {
        let name = to_slug(&spider.name);
        if is_one {
            let mut options = std::mem::take(&mut policy.options);
            let rules = convert_spider(spider, "", &[], &mut options, &mut ids, report);
            policy.options = options;
            policy.rules.extend(rules);
        } else {
            let mut options = OptionDrafts::default();
            options.set("disposition", disposition(spider));
            let prefix = format!("{name}.");
            let rules = convert_spider(spider, &prefix, &replaced, &mut options, &mut ids, report);
            policy.spaces.push(SpaceDraft {
                name: name.clone(),
                crawlers: vec![name.clone()],
                options,
                rules,
                ..SpaceDraft::default()
            });
        }
        if !proposal.crawlers.iter().any(|crawler| crawler.name == name) {
            let auth = json!({ "user": name, "password_hash": "made by `crawlgate password`" });
            proposal.crawlers.push(CrawlerProposal {
                name,
                notes: Vec::new(),
                keys: vec![
                    ("auth".to_owned(), auth),
                    ("profile".to_owned(), json!("scrapy")),
                ],
            });
        }
    }
    let mut rules = source
        .spiders
        .iter()
        .flat_map(|spider| &spider.rules)
        .flatten();
    if rules.any(|rule| rule.problem.is_none() && rule.deny_extensions.is_none()) {
        let note = "The extensions that Scrapy's link extractors ignore by default".to_owned();
        let items = IGNORED
            .iter()
            .map(|extension| format!(r"\.{}$", extension.replace('.', r"\.")));
        policy.lists.push(ListDraft {
            name: IGNORED_LIST.to_owned(),
            notes: vec![note],
            kind: "regexes",
            items: items.collect(),
        });
    }
    policy.examples = samples(source, is_one);
}

/// A spider with rules fetches nothing else; the code of one without rules decides what it fetches.
fn disposition(spider: &Spider) -> &'static str {
    if spider.rules.is_some() {
        "disallow"
    } else {
        "allow"
    }
}

fn convert_spider(
    spider: &Spider,
    prefix: &str,
    project: &[ScrapySetting],
    options: &mut OptionDrafts,
    ids: &mut RuleIds,
    report: &mut Report,
) -> Vec<RuleItem> {
    let mut rules = Vec::new();
    let mut settings: Vec<ScrapySetting> = project.to_vec();
    settings.retain(|setting| !spider.sets(&setting.name));
    settings.extend(spider.settings.iter().cloned());
    settings::convert(&settings, prefix, options, &mut rules, ids, report);
    let starts = start_urls(spider);
    let domains_rule = domains_rule(spider, prefix, &starts, ids, report);
    let domains_id = domains_rule.as_ref().map(|rule| rule.id.clone());
    rules.extend(domains_rule.map(RuleItem::from));
    if let (Some((part, _)), false) = (&spider.start_urls, starts.is_empty()) {
        if spider.rules.is_some() {
            let id = ids.next(&format!("{prefix}start_urls"));
            report.converted(*part, id.as_str(), PartNeed::Url);
            rules.push(RuleDraft::when(id, ConditionDraft::is("url", starts), "allow").into());
        } else {
            report.unrelated(
                *part,
                "allowed, like everything that the spider's code requests",
            );
        }
    } else if let Some((part, _)) = &spider.start_urls {
        report.unrelated(*part, "no URL of http or https");
    }
    for rule in spider.rules.iter().flatten() {
        rules.push(convert_rule(rule, prefix, ids, report));
    }
    for request in &spider.requests {
        let of_rules = PartTarget {
            name: "disposition".to_owned(),
            need: PartNeed::Url,
        };
        let effect = AssumptionEffect::RefusesMore;
        let filtered = domains_id.as_ref().filter(|_| request.bypasses_filters);
        match (&spider.rules, filtered) {
            (Some(_), _) => report.assumed(
                request.part,
                of_rules,
                "the pages that the code requests are within the spider's rules and domains",
                effect,
            ),
            (None, Some(id)) => report.assumed(
                request.part,
                PartTarget {
                    name: id.clone(),
                    need: PartNeed::Host,
                },
                "the pages that the code requests are within the spider's domains, though it has dont_filter or allow_offsite",
                effect,
            ),
            (None, None) => report.unrelated(
                request.part,
                "without rules everything is allowed within the spider's domains",
            ),
        }
    }
    rules
}

/// Returns the start pages in canonical form.
fn start_urls(spider: &Spider) -> Vec<String> {
    let urls = spider.start_urls.iter().flat_map(|(_, urls)| urls);
    urls.filter_map(|url| canonical(url)).collect()
}

fn canonical(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") {
        return None;
    }
    let rest = rest.split('#').next().unwrap_or(rest);
    match rest.find(['/', '?']) {
        None => Some(format!("{scheme}://{rest}/")),
        Some(at) if rest.get(at..=at) == Some("?") => {
            let (host, query) = rest.split_at_checked(at)?;
            Some(format!("{scheme}://{host}/{query}"))
        }
        Some(_) => Some(format!("{scheme}://{rest}")),
    }
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    authority.split(':').next().unwrap_or(authority)
}

/// Creates the filter of `allowed_domains`. Start pages are allowed wherever they are.
fn domains_rule(
    spider: &Spider,
    prefix: &str,
    starts: &[String],
    ids: &mut RuleIds,
    report: &mut Report,
) -> Option<RuleDraft> {
    let (part, values) = spider.allowed_domains.as_ref()?;
    // Scrapy ignores URLs and names with a port, with a warning.
    let domains: Vec<String> = values
        .iter()
        .filter(|value| is_domain(value))
        .cloned()
        .collect();
    if values.is_empty() {
        report.unrelated(*part, "empty: every domain is allowed");
        return None;
    }
    let id = ids.next(&format!("{prefix}allowed_domains"));
    if domains.len() == values.len() {
        report.converted(*part, id.as_str(), PartNeed::Host);
    } else {
        let target = PartTarget {
            name: id.clone(),
            need: PartNeed::Host,
        };
        let assumption = "names that no host has have no effect, as in Scrapy: with capitals, letters beyond ASCII, a port or a scheme";
        report.assumed(*part, target, assumption, AssumptionEffect::RefusesMore);
    }
    let is_within = |host: &str| {
        domains.iter().any(|domain| {
            let domain = domain.to_ascii_lowercase();
            host.eq_ignore_ascii_case(&domain)
                || host.to_ascii_lowercase().ends_with(&format!(".{domain}"))
        })
    };
    let outside: Vec<String> = starts
        .iter()
        .filter(|url| !is_within(host_of(url)))
        .cloned()
        .collect();
    let mut parts = Vec::new();
    if !domains.is_empty() {
        parts.push(ConditionDraft::is("domain", domains));
    }
    if !outside.is_empty() {
        parts.push(ConditionDraft::is("url", outside));
    }
    let rule = if parts.is_empty() {
        RuleDraft::forbid(id, ConditionDraft::Always)
    } else {
        RuleDraft::require(id, ConditionDraft::any(parts))
    };
    Some(rule)
}

/// Returns `false` for what no host can be: Scrapy compares with the host in lower case and in ASCII.
fn is_domain(value: &str) -> bool {
    let is_of_host = |c: char| !c.is_ascii_uppercase() && c.is_ascii_graphic();
    !value.is_empty()
        && value.chars().all(is_of_host)
        && !value.contains([':', '/', '*'])
        && !value.starts_with('.')
        && !value.ends_with('.')
}

/// Returns the condition that the host of a link is one of the domains, or below one. Link extractors compare
/// without case, and with the port: a domain fits no host on another port than its scheme's.
fn link_domains(domains: &[String]) -> ConditionDraft {
    let domains = domains.iter().map(|domain| domain.to_lowercase());
    let (with_port, without): (Vec<String>, Vec<String>) =
        domains.partition(|domain| domain.contains(':'));
    let without: Vec<String> = without
        .into_iter()
        .filter(|domain| is_domain(domain))
        .collect();
    let with_port: Vec<String> = with_port
        .into_iter()
        .filter(|domain| is_authority(domain))
        .collect();
    let mut parts = Vec::new();
    if !without.is_empty() {
        parts.push(ConditionDraft::all(vec![
            ConditionDraft::is("domain", without),
            ConditionDraft::test("authority", "contains", [":"]).negated(),
        ]));
    }
    if !with_port.is_empty() {
        let below = with_port.iter().map(|domain| format!(".{domain}"));
        parts.push(ConditionDraft::test("authority", "suffix", below));
        parts.push(ConditionDraft::is("authority", with_port));
    }
    if parts.is_empty() {
        return ConditionDraft::Always.negated();
    }
    ConditionDraft::any(parts)
}

fn is_authority(value: &str) -> bool {
    value.split_once(':').is_some_and(|(host, port)| {
        is_domain(host) && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
    })
}

fn convert_rule(
    rule: &SpiderRule,
    prefix: &str,
    ids: &mut RuleIds,
    report: &mut Report,
) -> RuleItem {
    let name = rule
        .callback
        .clone()
        .unwrap_or_else(|| format!("line-{}", rule.line));
    let id = ids.next(&format!("{prefix}{name}"));
    match rule_condition(rule, &id, report) {
        Ok(condition) => {
            if let Some(part) = rule.part {
                report.converted(part, id.as_str(), PartNeed::Url);
            }
            RuleDraft::when(id, condition, "allow").into()
        }
        Err(why) => {
            for part in rule.parts() {
                report.not_converted(part, why.as_str(), MissingPart::KeepsOut, None);
            }
            RuleItem::Comment(format!("not converted: {id}: {why}"))
        }
    }
}

fn rule_condition(
    rule: &SpiderRule,
    id: &str,
    report: &mut Report,
) -> Result<ConditionDraft, String> {
    if let Some(problem) = &rule.problem {
        return Err(problem.clone());
    }
    let mut parts = Vec::new();
    if let Some((part, expressions)) = &rule.allow {
        parts.push(expressions_condition(expressions)?);
        report.converted(*part, id, PartNeed::Url);
    }
    if let Some((part, domains)) = &rule.allow_domains {
        parts.push(link_domains(domains));
        report.converted(*part, id, PartNeed::Host);
    }
    if let Some((part, expressions)) = &rule.deny {
        match expressions_condition(expressions) {
            Ok(condition) => {
                parts.push(condition.negated());
                report.converted(*part, id, PartNeed::Url);
            }
            Err(why) => report.not_converted(*part, why, MissingPart::LetsThrough, None),
        }
    }
    if let Some((part, domains)) = &rule.deny_domains {
        parts.push(link_domains(domains).negated());
        report.converted(*part, id, PartNeed::Host);
    }
    match &rule.deny_extensions {
        Some((part, extensions)) => {
            if !report.is_set(*part) {
                report.converted(*part, id, PartNeed::Url);
            }
            // Scrapy compares with the path in lower case: an extension with capitals fits none.
            let extensions = extensions.iter().filter(|it| **it == it.to_lowercase());
            let is_plain = |extension: &&String| {
                !extension.is_empty() && extension.bytes().all(|b| b.is_ascii_alphanumeric())
            };
            let (plain, odd): (Vec<&String>, Vec<&String>) = extensions.partition(is_plain);
            if !plain.is_empty() {
                parts.push(ConditionDraft::is("ext", plain).negated());
            }
            if !odd.is_empty() {
                let ends = odd.iter().map(|extension| format!(".{extension}"));
                let ends = ConditionDraft::test("path", "suffix", ends).ignoring_case(true);
                parts.push(ends.negated());
            }
        }
        None => {
            let ignored = ConditionDraft::test("path", "in", [IGNORED_LIST]).ignoring_case(true);
            parts.push(ignored.negated());
        }
    }
    Ok(if parts.is_empty() {
        ConditionDraft::Always
    } else {
        ConditionDraft::all(parts)
    })
}

fn expressions_condition(expressions: &[LinkExpression]) -> Result<ConditionDraft, String> {
    let mut conditions: Vec<ConditionDraft> = Vec::new();
    for expression in expressions {
        let source = SourceExpression {
            text: &expression.text,
            dialect: Dialect::Python,
            anchoring: Anchoring::Search,
            ignore_case: expression.ignore_case,
        };
        let translated = source
            .translate("url")
            .map_err(|why| format!("{}: {why}", expression.text))?;
        if let Some((assumption, _)) = translated.assumption {
            return Err(format!(
                "{}: only assuming that {assumption}",
                expression.text
            ));
        }
        match (conditions.last_mut(), translated.condition) {
            (Some(ConditionDraft::Test(last)), ConditionDraft::Test(test))
                if last.kind == test.kind
                    && last.ignore_case == test.ignore_case
                    && last.field == test.field =>
            {
                last.values.extend(test.values);
            }
            (_, condition) => conditions.push(condition),
        }
    }
    Ok(ConditionDraft::any(conditions))
}

/// Returns requests made of the hosts and start pages that the source names.
fn samples(source: &ScrapySource, is_one: bool) -> Vec<(String, Map<String, serde_json::Value>)> {
    let mut samples = Vec::new();
    for spider in &source.spiders {
        let mut facts = Map::new();
        if !is_one {
            facts.insert("crawler".to_owned(), json!(to_slug(&spider.name)));
        }
        let domains = spider
            .allowed_domains
            .iter()
            .flat_map(|(_, domains)| domains);
        let hosts = domains.map(String::as_str).chain(["www.example.net"]);
        let urls = hosts
            .flat_map(|host| ["", "x.pdf", "page"].map(|path| format!("http://{host}/{path}")));
        samples.extend(
            urls.chain(start_urls(spider))
                .map(|url| (url, facts.clone())),
        );
    }
    samples
}
