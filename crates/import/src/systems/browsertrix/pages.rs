//! The rules for pages: what is excluded, then what a seed or an expression includes.

use std::collections::{BTreeMap, BTreeSet};

use crawlgate_policy::internal::policy::trail::RuleState;
use crawlgate_policy::internal::urls::target::UrlTarget;
use serde_json::{Map, Value as Json};

use crate::comparison::case_facts;
use crate::compile::compile_draft;
use crate::draft::{
    ConditionDraft, GroupDraft, GuardDraft, ListDraft, PolicyDraft, RuleDraft, RuleIds, RuleItem,
};
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};

use super::convert::PAGES;
use super::resources::{set_outcome, translate};
use super::scope::SeedOrigin;
use super::source::{
    BrowsertrixCrawl, ScopeExpression, ScopeName, ScopeType, ScopedSeed, SitemapSource,
};

/// More seeds than this with the same settings become a list.
const MAX_SEED_RULES: usize = 20;
/// More seeds than this are not searched for requests.
const MAX_SEARCHED: usize = 1_000;
/// More rules than this are not searched for requests.
const MAX_SEARCHED_RULES: usize = 100;

/// Converts the scopes of the seeds.
pub(super) struct PageConverter<'c> {
    policy: &'c mut PolicyDraft,
    report: &'c mut Report,
    ids: RuleIds,
    crawl: &'c BrowsertrixCrawl,
    seeds: Vec<ScopedSeed<'c>>,
    /// All seeds have the same depth.
    common_depth: bool,
    /// All seeds have the same exclusions.
    common_exclude: bool,
    /// The expressions, by their parts; else the reason why one has no equal.
    expressions: BTreeMap<PartId, Result<PageExpression, String>>,
    /// The URLs that each exclusion fits though they are requested.
    exempt: BTreeMap<PartId, Vec<String>>,
    sitemaps: Vec<String>,
    rules: Vec<RuleItem>,
}

/// A translated expression.
struct PageExpression {
    condition: ConditionDraft,
    assumptions: Vec<(String, AssumptionEffect)>,
}

/// Seeds with the same exclusions and the same depth.
struct SeedProfile<'c> {
    seeds: Vec<(usize, ScopedSeed<'c>)>,
    exclude: &'c [ScopeExpression],
    depth: Option<u32>,
}

impl<'c> PageConverter<'c> {
    pub(super) fn new(
        crawl: &'c BrowsertrixCrawl,
        policy: &'c mut PolicyDraft,
        report: &'c mut Report,
        ids: RuleIds,
    ) -> Self {
        let seeds: Vec<ScopedSeed<'c>> = crawl.scoped_seeds().collect();
        let first = seeds.first();
        let common_depth = seeds
            .iter()
            .all(|seed| Some(seed.depth) == first.map(|first| first.depth));
        let common_exclude = seeds
            .iter()
            .all(|seed| Some(seed.exclude) == first.map(|first| first.exclude));
        policy.search_skipped |= seeds.len() > MAX_SEARCHED;
        Self {
            policy,
            report,
            ids,
            crawl,
            seeds,
            common_depth,
            common_exclude,
            expressions: BTreeMap::new(),
            exempt: BTreeMap::new(),
            sitemaps: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Returns the group of the pages, without its condition.
    pub(super) fn convert(&mut self) -> GroupDraft {
        self.convert_sitemaps();
        self.translate_expressions();
        self.find_exempt_urls();
        let mut group = GroupDraft::default();
        let first = self.seeds.first().copied();
        if let Some(first) = first.filter(|_| self.common_exclude) {
            for expression in first.exclude {
                self.exclude(expression);
            }
        }
        if let Some(depth) = first
            .filter(|_| self.common_depth)
            .and_then(|seed| seed.depth)
        {
            group.set.set("max_depth", depth);
        }
        for profile in self.profiles() {
            self.include_profile(&profile);
        }
        self.add_sitemap_rule();
        self.report_depths();
        self.report_unused();
        self.policy.search_skipped |= self.rules.len() > MAX_SEARCHED_RULES;
        group.rules = std::mem::take(&mut self.rules);
        group
    }

    /// Returns the groups of seeds, those with the greatest depth last: its assignment counts.
    fn profiles(&self) -> Vec<SeedProfile<'c>> {
        let mut profiles: Vec<SeedProfile<'c>> = Vec::new();
        let mut known: BTreeMap<(Option<u32>, Vec<PartId>), usize> = BTreeMap::new();
        for (index, seed) in self.seeds.iter().enumerate() {
            let parts = seed.exclude.iter().map(|expression| expression.part);
            let at = *known
                .entry((seed.depth, parts.collect()))
                .or_insert(profiles.len());
            match profiles.get_mut(at) {
                Some(profile) => profile.seeds.push((index, *seed)),
                None => profiles.push(SeedProfile {
                    seeds: vec![(index, *seed)],
                    exclude: seed.exclude,
                    depth: seed.depth,
                }),
            }
        }
        profiles.sort_by_key(|profile| profile.depth.map_or(u64::MAX, u64::from));
        profiles
    }

    fn translate_expressions(&mut self) {
        let has_hash = self.has_hash();
        let seeds = self.seeds.clone();
        let include = seeds.iter().flat_map(|seed| seed.include);
        let exclude = seeds.iter().flat_map(|seed| seed.exclude);
        let include = include.map(|expression| (expression, false));
        for (expression, excludes) in include.chain(exclude.map(|expression| (expression, true))) {
            if self.expressions.contains_key(&expression.part) {
                continue;
            }
            let translated = match has_hash && expression.text.contains('#') {
                true => Err("a fragment never reaches a proxy".to_owned()),
                false => self.translate_expression(expression, excludes),
            };
            if let Err(why) = &translated {
                let failure = match excludes {
                    true => MissingPart::LetsThrough,
                    false => MissingPart::KeepsOut,
                };
                self.report
                    .not_converted(expression.part, why, failure, None);
            }
            self.expressions.insert(expression.part, translated);
        }
    }

    fn translate_expression(
        &self,
        expression: &ScopeExpression,
        excludes: bool,
    ) -> Result<PageExpression, String> {
        let translated = translate(&expression.text)?;
        let mut assumptions = Vec::new();
        if !compares_beginning(&translated.condition) {
            let text = "URLs are requested as Browsertrix compares them: parameters sorted, without utm_…, without doubled slashes and needless escapes";
            assumptions.push((text.to_owned(), AssumptionEffect::Either));
        }
        assumptions.extend(match excludes {
            true => translated.assumption.clone(),
            false => translated.assumption_of_inclusion(),
        });
        Ok(PageExpression {
            condition: translated.condition,
            assumptions,
        })
    }

    /// Reports the rule that an expression became. The first one counts.
    fn report_rule(&mut self, part: PartId, id: &str) {
        if let Some(Ok(expression)) = self.expressions.get(&part)
            && !self.report.is_set(part)
        {
            set_outcome(part, id, &expression.assumptions, self.report);
        }
    }

    fn has_hash(&self) -> bool {
        let common = self.crawl.scope.hash;
        let own = self.crawl.seeds.iter().filter_map(|seed| seed.scope.hash);
        own.chain(common).any(|(_, enabled)| enabled)
            || self
                .seeds
                .iter()
                .any(|seed| matches!(seed.scope_type, Some(ScopeType::Page | ScopeType::PageSpa)))
    }

    /// Finds the seeds and sitemaps that an exclusion fits: Browsertrix requests them nevertheless.
    fn find_exempt_urls(&mut self) {
        let mut draft = PolicyDraft {
            name: "exclusions".to_owned(),
            ..PolicyDraft::default()
        };
        draft.options.set("disposition", "allow");
        let mut parts = Vec::new();
        let mut seen = BTreeSet::new();
        for expression in self.seeds.iter().flat_map(|seed| seed.exclude) {
            let known = self.expressions.get(&expression.part);
            let Some(Ok(known)) = known.filter(|_| seen.insert(expression.part)) else {
                continue;
            };
            let id = format!("exclude-{}", parts.len());
            let rule = RuleDraft::forbid(id, known.condition.clone());
            draft.rules.push(rule.into());
            parts.push(expression.part);
        }
        let Some(policy) = compile_draft(&draft).ok().filter(|_| !parts.is_empty()) else {
            return;
        };
        let seeds = self
            .seeds
            .iter()
            .filter_map(|seed| SeedOrigin::new(&seed.seed.url));
        let urls = seeds
            .flat_map(|origin| origin.urls())
            .chain(self.sitemaps.clone());
        for url in urls.collect::<BTreeSet<String>>() {
            let Ok(facts) = case_facts(&url, &Map::new()) else {
                continue;
            };
            let (trail, _) = policy.policy.decide_every_rule(&facts.facts());
            for (number, part) in parts.iter().enumerate() {
                let rule = policy.policy.rule_index(&format!("exclude-{number}"));
                let state = rule.map(|rule| trail.state(rule));
                if matches!(state, Some(RuleState::Matched)) {
                    self.exempt.entry(*part).or_default().push(url.clone());
                }
            }
        }
    }

    /// Adds the rule of an exclusion that holds for all seeds.
    fn exclude(&mut self, expression: &ScopeExpression) {
        let condition = match self.expressions.get(&expression.part) {
            Some(Ok(known)) => known.condition.clone(),
            Some(Err(why)) => {
                let comment = missing(expression, why);
                return self.rules.push(comment);
            }
            None => return,
        };
        let id = self.ids.next(&format!("exclude-{}", expression.line));
        self.report_rule(expression.part, &id);
        let mut rule = condition;
        if let Some(urls) = self.exempt.get(&expression.part) {
            let seeds = ConditionDraft::is("url", urls.clone()).negated();
            rule = ConditionDraft::all(vec![rule, seeds]);
        }
        self.rules.push(RuleDraft::forbid(id, rule).into());
    }

    fn include_profile(&mut self, profile: &SeedProfile<'c>) {
        let mut scopes: BTreeMap<ScopeType, Vec<(usize, ScopedSeed<'c>)>> = BTreeMap::new();
        for (index, seed) in &profile.seeds {
            match seed.scope_type {
                Some(scope_type) => scopes.entry(scope_type).or_default().push((*index, *seed)),
                None => self.report.not_converted(
                    seed.seed.part,
                    "Browsertrix does not know its type of scope",
                    MissingPart::KeepsOut,
                    None,
                ),
            }
        }
        let mut first_rule = None;
        let (lists, single): (Vec<_>, Vec<_>) = scopes
            .into_iter()
            .partition(|(_, seeds)| seeds.len() > MAX_SEED_RULES);
        let mut single: Vec<_> = single.into_iter().flat_map(|(_, seeds)| seeds).collect();
        single.sort_by_key(|(index, _)| *index);
        for (index, seed) in single {
            let id = self.seed_rule(index, &seed, profile);
            first_rule = first_rule.or(id);
        }
        for (scope_type, seeds) in lists {
            let id = self.seed_list(scope_type, &seeds, profile);
            first_rule = first_rule.or(Some(id));
        }
        let mut known = BTreeSet::new();
        for (_, seed) in &profile.seeds {
            for expression in seed.include {
                if seed.scope_type.is_some() && known.insert(expression.part) {
                    self.include(expression, profile);
                }
            }
        }
        if let Some(id) = first_rule {
            self.report_exclusions(profile, &id);
        }
    }

    fn seed_rule(
        &mut self,
        index: usize,
        seed: &ScopedSeed<'c>,
        profile: &SeedProfile<'c>,
    ) -> Option<String> {
        let scope_type = seed.scope_type?;
        let origin = SeedOrigin::new(&seed.seed.url)?;
        let id = self.ids.next(&format!("seed-{}", index + 1));
        let condition =
            self.without_exclusions(origin.condition(scope_type), profile, &origin.urls());
        self.report.converted(seed.seed.part, &*id, PartNeed::Url);
        self.report_scope_type(seed, &id);
        self.add_example(&seed.seed.url);
        self.allow(&id, condition, profile);
        Some(id)
    }

    fn seed_list(
        &mut self,
        scope_type: ScopeType,
        seeds: &[(usize, ScopedSeed<'c>)],
        profile: &SeedProfile<'c>,
    ) -> String {
        let id = self.ids.next("seeds");
        let target = format!("lists.{id}");
        let origins: Vec<SeedOrigin> = seeds
            .iter()
            .filter_map(|(_, seed)| SeedOrigin::new(&seed.seed.url))
            .collect();
        for (_, seed) in seeds {
            self.report
                .converted(seed.seed.part, &*target, PartNeed::Url);
            self.report_scope_type(seed, &id);
        }
        if let Some((_, seed)) = seeds.first() {
            self.add_example(&seed.seed.url);
        }
        let urls: Vec<String> = origins.iter().flat_map(SeedOrigin::urls).collect();
        let is_custom = scope_type == ScopeType::Custom;
        let items = match is_custom {
            true => urls.iter().cloned().collect::<BTreeSet<String>>(),
            false => {
                let items = origins
                    .iter()
                    .flat_map(|origin| origin.expressions(scope_type));
                items.collect()
            }
        };
        self.policy.lists.push(ListDraft {
            name: id.clone(),
            notes: Vec::new(),
            kind: if is_custom { "urls" } else { "regexes" },
            items: items.into_iter().collect(),
        });
        let condition = ConditionDraft::is("in", [id.as_str()]);
        let condition = self.without_exclusions(condition, profile, &urls);
        self.allow(&id, condition, profile);
        id
    }

    fn include(&mut self, expression: &ScopeExpression, profile: &SeedProfile<'c>) {
        let condition = match self.expressions.get(&expression.part) {
            Some(Ok(known)) => known.condition.clone(),
            Some(Err(why)) => {
                let comment = missing(expression, why);
                return self.rules.push(comment);
            }
            None => return,
        };
        let id = self.ids.next(&format!("include-{}", expression.line));
        self.report_rule(expression.part, &id);
        let condition = self.without_exclusions(condition, profile, &[]);
        self.allow(&id, condition, profile);
    }

    /// Takes the exclusions of a profile out of a condition, unless they are rules for all seeds. `seeds` are
    /// allowed nevertheless.
    fn without_exclusions(
        &self,
        condition: ConditionDraft,
        profile: &SeedProfile<'c>,
        seeds: &[String],
    ) -> ConditionDraft {
        let conditions = profile.exclude.iter().filter_map(|expression| {
            let known = self.expressions.get(&expression.part)?.as_ref().ok()?;
            Some(known.condition.clone())
        });
        let excluded: Vec<ConditionDraft> = conditions.collect();
        if self.common_exclude || excluded.is_empty() {
            return condition;
        }
        let excluded = ConditionDraft::any(excluded).negated();
        let rest = match condition {
            ConditionDraft::Always => excluded,
            ConditionDraft::All(mut parts) => {
                parts.push(excluded);
                ConditionDraft::all(parts)
            }
            other @ (ConditionDraft::Any(_) | ConditionDraft::Not(_) | ConditionDraft::Test(_)) => {
                ConditionDraft::all(vec![other, excluded])
            }
        };
        let exempt = profile
            .exclude
            .iter()
            .filter_map(|it| self.exempt.get(&it.part));
        let exempt: BTreeSet<&String> =
            exempt.flatten().filter(|url| seeds.contains(url)).collect();
        if exempt.is_empty() {
            return rest;
        }
        let exempt = ConditionDraft::is("url", exempt.into_iter().cloned());
        ConditionDraft::any(vec![exempt, rest])
    }

    fn allow(&mut self, id: &str, condition: ConditionDraft, profile: &SeedProfile<'c>) {
        let mut group = GroupDraft {
            guard: GuardDraft::When(condition),
            then: Some("allow"),
            ..GroupDraft::default()
        };
        if !self.common_depth {
            let depth = profile.depth.map_or(Json::Null, Json::from);
            group.set.set("max_depth", depth);
        }
        self.rules.push(RuleDraft::group(id, group).into());
    }

    fn add_example(&mut self, url: &str) {
        self.policy.examples.push((url.to_owned(), Map::new()));
    }

    /// Reports the exclusions that are part of the rules of a profile.
    fn report_exclusions(&mut self, profile: &SeedProfile<'c>, id: &str) {
        if self.common_exclude {
            return;
        }
        for expression in profile.exclude {
            self.report_rule(expression.part, id);
            if let Some(Err(why)) = self.expressions.get(&expression.part) {
                let comment = missing(expression, why);
                self.rules.push(comment);
            }
        }
    }

    fn report_scope_type(&mut self, seed: &ScopedSeed<'c>, id: &str) {
        let name = seed.seed.scope.scope_type.as_ref();
        let name = name.or(self.crawl.scope.scope_type.as_ref());
        if let Some((part, _)) = name.filter(|(part, _)| !self.report.is_set(*part)) {
            self.report.converted(*part, id, PartNeed::Url);
        }
    }

    fn report_depths(&mut self) {
        let own = self.crawl.seeds.iter().filter_map(|seed| seed.scope.depth);
        let parts: Vec<PartId> = own
            .chain(self.crawl.scope.depth)
            .map(|(part, _)| part)
            .collect();
        for part in parts {
            if self.report.is_set(part) {
                continue;
            }
            let used = self.seeds.iter().position(|seed| {
                let depth = seed.seed.scope.depth.or(self.crawl.scope.depth);
                seed.scope_type != Some(ScopeType::Page)
                    && depth.map(|(part, _)| part) == Some(part)
            });
            let Some(index) = used else {
                let why = "each seed has its own, or no links are followed from it";
                self.report.dead(part, why);
                continue;
            };
            let name = match self.common_depth {
                true => PAGES.to_owned(),
                false => self.rule_of(index),
            };
            let target = PartTarget {
                name,
                need: PartNeed::Ledger,
            };
            let assumption = "the depth is known by the Referer";
            let effect = AssumptionEffect::RefusesLess;
            self.report.assumed(part, target, assumption, effect);
        }
    }

    /// Returns the rule or the list that a seed became.
    fn rule_of(&self, index: usize) -> String {
        let part = self
            .seeds
            .get(index)
            .and_then(|seed| self.report.part(seed.seed.part));
        let target = part.and_then(|part| part.outcome()?.target());
        target.map_or_else(|| PAGES.to_owned(), |target| target.name.clone())
    }

    /// Reports settings of the crawl that each seed replaces, and those of fragments.
    fn report_unused(&mut self) {
        let common = &self.crawl.scope;
        let lists = common.include.iter().chain(&common.exclude).flatten();
        let mut parts: Vec<PartId> = lists.map(|expression| expression.part).collect();
        parts.extend(common.scope_type.as_ref().map(|(part, _)| *part));
        for part in parts {
            if !self.report.is_set(part) {
                self.report.dead(part, "each seed has its own");
            }
        }
        let own = self.crawl.seeds.iter().filter_map(|seed| seed.scope.hash);
        for (part, enabled) in own.chain(common.hash) {
            if !enabled {
                self.report.unrelated(part, "the default");
                continue;
            }
            let target = PartTarget {
                name: PAGES.to_owned(),
                need: PartNeed::Url,
            };
            let assumption = "no expression depends on the fragment of a URL, which no request has";
            let effect = AssumptionEffect::Either;
            self.report.assumed(part, target, assumption, effect);
        }
    }

    fn convert_sitemaps(&mut self) {
        let common = self.crawl.scope.scope_type.as_ref();
        let is_single = common.is_some_and(|(_, name)| {
            matches!(name, ScopeName::Known(ScopeType::Page | ScopeType::PageSpa))
        });
        for seed in self.seeds.clone() {
            let setting = seed.seed.scope.sitemap.as_ref();
            let Some((part, source)) = setting.or(self.crawl.scope.sitemap.as_ref()) else {
                continue;
            };
            if *source == SitemapSource::Off {
                continue;
            }
            if is_single {
                self.report
                    .dead(*part, "Browsertrix reads no sitemap for single pages");
                continue;
            }
            let urls = sitemap_urls(&seed.seed.url, source);
            if urls.is_empty() {
                let why = "neither .xml, .xml.gz nor .txt: Browsertrix does not read it";
                self.report.dead(*part, why);
                continue;
            }
            for url in urls {
                if !self.sitemaps.contains(&url) {
                    self.sitemaps.push(url);
                }
            }
            let target = PartTarget {
                name: "sitemaps".to_owned(),
                need: PartNeed::Url,
            };
            let assumption = "sitemaps that these files name are in scope";
            let effect = AssumptionEffect::RefusesMore;
            self.report.assumed(*part, target, assumption, effect);
        }
    }

    fn add_sitemap_rule(&mut self) {
        if self.sitemaps.is_empty() {
            return;
        }
        let id = self.ids.next("sitemaps");
        let urls = self.sitemaps.clone();
        let condition = ConditionDraft::is("url", urls);
        self.rules
            .push(RuleDraft::when(id, condition, "allow").into());
    }
}

/// Returns the URLs that are requested for a sitemap.
fn sitemap_urls(seed: &str, source: &SitemapSource) -> Vec<String> {
    let Ok(seed) = UrlTarget::parse(seed) else {
        return Vec::new();
    };
    let references: Vec<&str> = match source {
        SitemapSource::Off => Vec::new(),
        SitemapSource::Detect => vec!["/robots.txt", "/sitemap.xml"],
        SitemapSource::Url(url) => vec![url],
    };
    let urls = references
        .into_iter()
        .filter_map(|reference| seed.join(reference).ok());
    let urls = urls.map(|url| url.as_str().to_owned());
    urls.filter(|url| {
        [".xml", ".xml.gz", ".txt"]
            .iter()
            .any(|end| url.ends_with(end))
    })
    .collect()
}

/// Returns `true` for conditions on the beginning of a URL only: sorting its parameters changes nothing.
fn compares_beginning(condition: &ConditionDraft) -> bool {
    match condition {
        ConditionDraft::Test(test) => {
            let is_plain = |value: &String| !value.contains(['?', '%']);
            let is_beginning = test.field == "url_prefix" || test.kind == Some("prefix");
            is_beginning && test.values.iter().all(is_plain)
        }
        ConditionDraft::Always => true,
        ConditionDraft::All(parts) => parts.iter().all(|part| {
            let of_host = matches!(part, ConditionDraft::Test(test)
                if ["scheme", "host", "domain", "port", "authority"].contains(&&*test.field));
            of_host || compares_beginning(part)
        }),
        ConditionDraft::Any(parts) => parts.iter().all(compares_beginning),
        ConditionDraft::Not(_) => false,
    }
}

fn missing(expression: &ScopeExpression, why: &str) -> RuleItem {
    let text = &expression.text;
    RuleItem::Comment(format!(
        "not converted: line {}: {why}\n{text}",
        expression.line
    ))
}
