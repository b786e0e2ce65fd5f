//! Nutch's filters as rules.

use crawlgate_policy::internal::urls::domain::registrable_domain;
use serde_json::Map;

use crate::draft::{
    ConditionDraft, GroupDraft, GuardDraft, ListDraft, PolicyDraft, RuleDraft, RuleIds, RuleItem,
};
use crate::expression::{Anchoring, Dialect, SourceExpression, TranslatedExpression};
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};

use super::source::{
    FastBlock, FastRule, FastRuleKind, FastScope, FilterFile, FilterLines, FilterPlugin, RegexLine,
    SuffixLines, TextLine,
};

/// A line of a filter as a rule.
enum ConvertedLine {
    Rule {
        id: String,
        condition: ConditionDraft,
        allows: bool,
        about: Option<String>,
        part: PartId,
    },
    Comment(String),
}

const NOT_FETCHED: &str = "the proxy fetches http and https only";

/// Adds the rules of filters to a policy.
pub(super) struct FilterConverter<'a> {
    pub policy: &'a mut PolicyDraft,
    pub report: &'a mut Report,
    pub ids: &'a mut RuleIds,
}

impl FilterConverter<'_> {
    /// Converts filters, all of which a URL must pass.
    pub(super) fn convert(&mut self, filters: &[FilterFile]) {
        let mut has_first = false;
        for filter in filters {
            match &filter.lines {
                FilterLines::Regex(lines) => {
                    self.regex(filter, lines, has_first);
                    has_first = true;
                }
                FilterLines::Prefix(lines) => self.prefixes(lines),
                FilterLines::Suffix(lines) => self.suffixes(lines),
                FilterLines::Domains { denies, lines } => self.domains(lines, *denies),
                FilterLines::Fast(blocks) => self.fast(blocks),
            }
        }
        let disposition = if has_first { "disallow" } else { "allow" };
        self.policy.options.set("disposition", disposition);
    }

    /// Converts lines of which the first that fits decides. `is_second`: another such filter is before it, which
    /// must not be undone.
    fn regex(&mut self, filter: &FilterFile, lines: &[RegexLine], is_second: bool) {
        let dialect = match filter.plugin == FilterPlugin::Automaton {
            true => Dialect::Automaton,
            false => Dialect::Java,
        };
        let name = format!("{}-urlfilter", filter.plugin.word());
        let group_id = self.ids.next(&name);
        let prefix = if is_second {
            filter.plugin.word()
        } else {
            "line"
        };
        let lines: Vec<ConvertedLine> = lines
            .iter()
            .map(|line| self.regex_line(line, dialect, prefix))
            .collect();
        if is_second {
            return self.second_filter(group_id, lines);
        }
        let rules = lines.into_iter().map(|line| match line {
            ConvertedLine::Comment(text) => RuleItem::Comment(text),
            ConvertedLine::Rule {
                id,
                condition,
                allows,
                about,
                ..
            } => {
                let then = if allows { "allow" } else { "disallow" };
                RuleDraft::when(id, condition, then)
                    .with_about(about)
                    .into()
            }
        });
        let group = GroupDraft {
            first: true,
            rules: rules.collect(),
            ..GroupDraft::default()
        };
        let rule = RuleDraft::group(group_id, group);
        self.policy.rules.push(rule.into());
    }

    /// Writes a filter that only refuses: what a line fits, unless a line above allows it, and what no line
    /// allows.
    fn second_filter(&mut self, group_id: String, lines: Vec<ConvertedLine>) {
        let mut rules = Vec::new();
        let mut allowed: Vec<ConditionDraft> = Vec::new();
        for line in lines {
            let (id, condition, allows, about, part) = match line {
                ConvertedLine::Comment(text) => {
                    rules.push(RuleItem::Comment(text));
                    continue;
                }
                ConvertedLine::Rule {
                    id,
                    condition,
                    allows,
                    about,
                    part,
                } => (id, condition, allows, about, part),
            };
            if allowed.contains(&ConditionDraft::Always) {
                let why = "can never decide: a line above fits every URL";
                self.report.dead(part, why);
                rules.push(RuleItem::Comment(format!("dead: {id}: {why}")));
                continue;
            }
            if allows {
                self.report_rule(part, &group_id, self.assumption_of(&id));
                allowed.push(condition);
                continue;
            }
            let condition = match allowed.is_empty() {
                true => condition,
                false => {
                    let exception = ConditionDraft::any(allowed.clone()).negated();
                    with_host(exception, condition)
                }
            };
            rules.push(RuleDraft::forbid(id, condition).with_about(about).into());
        }
        let end_id = self.ids.next(&format!("{group_id}-end"));
        match allowed.as_slice() {
            [] => rules.push(RuleDraft::forbid(end_id, ConditionDraft::Always).into()),
            allowed if allowed.contains(&ConditionDraft::Always) => {}
            _ => rules.push(RuleDraft::require(end_id, ConditionDraft::any(allowed)).into()),
        }
        let group = GroupDraft {
            rules,
            ..GroupDraft::default()
        };
        self.policy
            .rules
            .push(RuleDraft::group(group_id, group).into());
    }

    fn assumption_of(&self, id: &str) -> Option<(String, AssumptionEffect)> {
        let found = self.report.assumption_of(id);
        found.map(|(text, effect)| (text.to_owned(), effect))
    }

    fn regex_line(&mut self, line: &RegexLine, dialect: Dialect, prefix: &str) -> ConvertedLine {
        let id = self.ids.next(&format!("{prefix}-{}", line.line));
        let expression = SourceExpression {
            text: &line.expression,
            dialect,
            anchoring: Anchoring::Search,
            ignore_case: false,
        };
        let translated = match expression.translate("url") {
            Ok(translated) => translated,
            Err(why) => {
                let failure = missing(line.allows);
                let text = self.comment(line.part, &why, failure, &line.expression);
                return ConvertedLine::Comment(text);
            }
        };
        self.report_expression(line.part, &id, &translated, line.allows);
        self.add_sample(&translated.condition, line.host.as_deref());
        let condition = match &line.host {
            None => translated.condition,
            Some(host) => with_host(host_condition(host), translated.condition),
        };
        ConvertedLine::Rule {
            id,
            condition,
            allows: line.allows,
            about: line.comment.clone(),
            part: line.part,
        }
    }

    /// Adds a URL with repeated segments, which a search of cases does not find.
    fn add_sample(&mut self, condition: &ConditionDraft, host: Option<&str>) {
        let is_repeats = |test: &&ConditionDraft| matches!(test, ConditionDraft::Test(test) if test.kind == Some("repeats"));
        let parts = if let ConditionDraft::All(parts) = condition {
            parts.as_slice()
        } else {
            std::slice::from_ref(condition)
        };
        if parts.iter().find(is_repeats).is_some() {
            let host = host.unwrap_or("host.example");
            let url = format!("http://{host}/a/b/a/b/a/b/");
            self.policy.examples.push((url, Map::new()));
        }
    }

    fn report_expression(
        &mut self,
        part: PartId,
        id: &str,
        translated: &TranslatedExpression,
        allows: bool,
    ) {
        let assumption = match allows {
            true => translated.assumption_of_inclusion(),
            false => translated.assumption.clone(),
        };
        self.report_rule(part, id, assumption);
    }

    fn report_rule(
        &mut self,
        part: PartId,
        id: &str,
        assumption: Option<(String, AssumptionEffect)>,
    ) {
        match assumption {
            None => self.report.converted(part, id, PartNeed::Url),
            Some((text, effect)) => {
                let target = PartTarget {
                    name: id.to_owned(),
                    need: PartNeed::Url,
                };
                self.report.assumed(part, target, text, effect);
            }
        }
    }

    fn comment(&mut self, part: PartId, why: &str, failure: MissingPart, text: &str) -> String {
        self.report.not_converted(part, why, failure, None);
        format!("not converted: {why}\n{text}")
    }

    fn prefixes(&mut self, lines: &[TextLine]) {
        let id = self.ids.next("prefix-urlfilter");
        let mut plain = Vec::new();
        let mut conditions = Vec::new();
        for line in lines {
            let text = line.text.as_str();
            if !text.starts_with("http") && !"http".starts_with(text) {
                self.report.dead(line.part, NOT_FETCHED);
                continue;
            }
            self.report.converted(line.part, &*id, PartNeed::Url);
            if is_plain_prefix(text) {
                plain.push(text.to_owned());
            } else if let Some(scheme) = text.strip_suffix("://") {
                conditions.push(ConditionDraft::is("scheme", [scheme]));
            } else {
                let regex = format!("^{}", escaped(text));
                conditions.push(ConditionDraft::test("url", "regex", [regex]));
            }
        }
        let both = |scheme: &str| conditions.contains(&ConditionDraft::is("scheme", [scheme]));
        if both("http") && both("https") {
            // Every URL that is fetched begins with one of them.
            conditions = vec![ConditionDraft::Always];
            plain.clear();
        }
        match plain.len() {
            0 => {}
            1..=8 => conditions.push(ConditionDraft::is("url_prefix", plain)),
            _ => {
                self.add_list("prefixes", "url_prefixes", plain);
                conditions.push(ConditionDraft::is("in", ["prefixes"]));
            }
        }
        let rule = match conditions.as_slice() {
            [] => RuleDraft::forbid(id, ConditionDraft::Always),
            _ => RuleDraft::require(id, ConditionDraft::any(conditions)),
        };
        self.policy.rules.push(rule.into());
    }

    fn add_list(&mut self, name: &str, kind: &'static str, items: Vec<String>) {
        self.policy.lists.push(ListDraft {
            name: name.to_owned(),
            notes: Vec::new(),
            kind,
            items,
        });
    }

    fn suffixes(&mut self, lines: &SuffixLines) {
        let id = self.ids.next("suffix-urlfilter");
        for mode in &lines.modes {
            self.report.converted(*mode, &*id, PartNeed::Url);
        }
        let field = if lines.compares_path { "path" } else { "url" };
        let is_extension = |text: &str| {
            let name = text.strip_prefix('.').unwrap_or_default();
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        let (mut extensions, mut plain, mut regexes) = (Vec::new(), Vec::new(), Vec::new());
        for line in &lines.suffixes {
            let text = line.text.as_str();
            if lines.compares_path && text.contains(['?', '#']) {
                self.report.dead(line.part, "no path has the character");
                continue;
            }
            self.report.converted(line.part, &*id, PartNeed::Url);
            let safe = |c: char| c.is_ascii_alphanumeric() || "._-/=".contains(c);
            if lines.compares_path && lines.ignores_case && is_extension(text) {
                extensions.push(text.trim_start_matches('.').to_owned());
            } else if text.chars().all(safe) && !text.ends_with("/.") && !text.contains("/.") {
                plain.push(text.to_owned());
            } else {
                regexes.push(format!("{}$", escaped(text)));
            }
        }
        let test = |kind, values: Vec<String>| {
            ConditionDraft::test(field, kind, values).ignoring_case(lines.ignores_case)
        };
        let mut conditions = Vec::new();
        if !extensions.is_empty() {
            conditions.push(ConditionDraft::is("ext", extensions));
        }
        if !plain.is_empty() {
            conditions.push(test("suffix", plain));
        }
        if !regexes.is_empty() {
            conditions.push(test("regex", regexes));
        }
        let rule = match (conditions.is_empty(), lines.allows_others) {
            (true, true) => return,
            (true, false) => RuleDraft::forbid(id, ConditionDraft::Always),
            (false, true) => RuleDraft::forbid(id, ConditionDraft::any(conditions)),
            (false, false) => RuleDraft::require(id, ConditionDraft::any(conditions)),
        };
        self.policy.rules.push(rule.into());
    }

    fn domains(&mut self, lines: &[TextLine], denies: bool) {
        let word = if denies { "denylist" } else { "domain" };
        let (mut domains, mut hosts) = (Vec::new(), Vec::new());
        let id = self.ids.next(&format!("{word}-urlfilter"));
        for line in lines {
            if !is_host_name(&line.text) {
                self.report.dead(line.part, "no host has this name");
                continue;
            }
            self.report.converted(line.part, &*id, PartNeed::Host);
            // An entry is a public suffix, a registrable domain or a host.
            match registrable_domain(&line.text) == line.text {
                true => domains.push(line.text.clone()),
                false => hosts.push(line.text.clone()),
            }
        }
        if domains.is_empty() && hosts.is_empty() {
            return;
        }
        let mut conditions = Vec::new();
        for (field, kind, items) in [("domain", "domains", domains), ("host", "hosts", hosts)] {
            match items.len() {
                0 => {}
                1..=8 => conditions.push(ConditionDraft::is(field, items)),
                _ => {
                    let name = format!("{word}-{kind}");
                    conditions.push(ConditionDraft::is("in", [name.clone()]));
                    self.add_list(&name, kind, items);
                }
            }
        }
        let condition = ConditionDraft::any(conditions);
        let rule = match denies {
            true => RuleDraft::forbid(id, condition),
            false => RuleDraft::require(id, condition),
        };
        self.policy.rules.push(rule.into());
    }

    fn fast(&mut self, blocks: &[FastBlock]) {
        for block in blocks {
            let name = match &block.scope {
                FastScope::Host(name) | FastScope::Domain(name) => name.as_str(),
                FastScope::All => "all",
            };
            let id = self.ids.next(&format!("line-{}-{name}", block.line));
            let condition = match &block.scope {
                FastScope::Host(name) => Some(ConditionDraft::is("host", [name.to_lowercase()])),
                FastScope::Domain(name) => {
                    Some(ConditionDraft::is("domain", [name.to_lowercase()]))
                }
                FastScope::All => None,
            };
            let is_name = is_host_name(&name.to_lowercase());
            if condition.is_some() && !is_name || block.rules.is_empty() {
                let why = if is_name {
                    "has no rules"
                } else {
                    "no host has this name"
                };
                let parts = block.rules.iter().map(|rule| rule.part);
                for part in parts.chain([block.part]) {
                    self.report.dead(part, why);
                }
                continue;
            }
            if condition.is_some() {
                let url = format!("http://{}/", name.to_lowercase());
                self.policy.examples.push((url, Map::new()));
            }
            self.fast_block(block, &id, condition, name);
        }
    }

    fn fast_block(
        &mut self,
        block: &FastBlock,
        id: &str,
        condition: Option<ConditionDraft>,
        name: &str,
    ) {
        let assumption = (name != name.to_lowercase()).then(|| {
            let text = "a host in capital letters means the same in small ones";
            (text.to_owned(), AssumptionEffect::RefusesMore)
        });
        // A block that refuses all of a host is one rule.
        let refuses_all = block
            .rules
            .iter()
            .any(|rule| rule.kind == FastRuleKind::All);
        if let (true, Some(condition)) = (refuses_all, &condition) {
            self.report_rule(block.part, id, assumption);
            for rule in &block.rules {
                match rule.kind {
                    FastRuleKind::All => self.report.converted(rule.part, id, PartNeed::Host),
                    FastRuleKind::Path | FastRuleKind::PathAndQuery => {
                        let why = "another line of the block refuses every URL";
                        self.report.dead(rule.part, why);
                    }
                }
            }
            let rule = RuleDraft::forbid(id, condition.clone());
            self.policy.rules.push(rule.into());
            return;
        }
        let rules: Vec<RuleItem> = block
            .rules
            .iter()
            .map(|rule| self.fast_rule(rule, name))
            .collect();
        let has_rule = rules.iter().any(|item| matches!(item, RuleItem::Rule(_)));
        match has_rule {
            true => self.report_rule(block.part, id, assumption),
            false => {
                let why = "none of its rules is converted";
                self.report
                    .not_converted(block.part, why, MissingPart::LetsThrough, None);
            }
        }
        match condition {
            Some(condition) if has_rule => {
                let group = GroupDraft {
                    guard: GuardDraft::When(condition),
                    rules,
                    ..GroupDraft::default()
                };
                self.policy.rules.push(RuleDraft::group(id, group).into());
            }
            Some(_) | None => {
                if has_rule && let Some(first) = first_rule_id(&rules) {
                    self.report.converted(block.part, first, PartNeed::Url);
                }
                self.policy.rules.extend(rules);
            }
        }
    }

    fn fast_rule(&mut self, rule: &FastRule, host: &str) -> RuleItem {
        let id = self.ids.next(&format!("line-{}", rule.line));
        let field = match rule.kind {
            FastRuleKind::All => {
                self.report.converted(rule.part, &*id, PartNeed::Host);
                return RuleDraft::forbid(id, ConditionDraft::Always).into();
            }
            FastRuleKind::Path => "path",
            FastRuleKind::PathAndQuery => "path_and_query",
        };
        let expression = SourceExpression {
            text: &rule.expression,
            dialect: Dialect::Java,
            anchoring: Anchoring::Search,
            ignore_case: false,
        };
        match expression.translate(field) {
            Ok(translated) => {
                self.report_expression(rule.part, &id, &translated, false);
                let host = Some(host).filter(|host| host.contains('.'));
                self.add_sample(&translated.condition, host);
                let filter = RuleDraft::forbid(id, translated.condition);
                filter.with_about(rule.comment.clone()).into()
            }
            Err(why) => {
                let failure = MissingPart::LetsThrough;
                RuleItem::Comment(self.comment(rule.part, &why, failure, &rule.expression))
            }
        }
    }

    /// Adds a rule that refuses texts that are too long.
    pub(super) fn max_length(&mut self, parts: &[PartId], id: &str, field: &str, max: u64) {
        let id = self.ids.next(id);
        for part in parts {
            self.report.converted(*part, &*id, PartNeed::Url);
        }
        let range = format!("[{}:]", max.saturating_add(1));
        let rule = RuleDraft::forbid(id, ConditionDraft::test(field, "length", [range]));
        self.policy.rules.push(rule.into());
    }
}

fn first_rule_id(rules: &[RuleItem]) -> Option<String> {
    rules.iter().find_map(|item| match item {
        RuleItem::Rule(rule) => Some(rule.id.clone()),
        RuleItem::Comment(_) => None,
    })
}

fn missing(allows: bool) -> MissingPart {
    match allows {
        true => MissingPart::KeepsOut,
        false => MissingPart::LetsThrough,
    }
}

/// Returns the condition of a block `> host`: the host, or one whose registrable domain it is.
fn host_condition(host: &str) -> ConditionDraft {
    match registrable_domain(host) == host && is_host_name(host) {
        true => ConditionDraft::is("domain", [host]),
        false => ConditionDraft::is("host", [host]),
    }
}

fn with_host(host: ConditionDraft, condition: ConditionDraft) -> ConditionDraft {
    match condition {
        ConditionDraft::Always => host,
        ConditionDraft::All(parts) => ConditionDraft::all([vec![host], parts].concat()),
        other @ (ConditionDraft::Any(_) | ConditionDraft::Not(_) | ConditionDraft::Test(_)) => {
            ConditionDraft::all(vec![host, other])
        }
    }
}

fn is_host_name(text: &str) -> bool {
    let in_label = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    !text.is_empty()
        && text
            .split('.')
            .all(|label| !label.is_empty() && label.chars().all(in_label))
}

/// Returns `true` for a URL with a host in small letters and a path in which nothing is resolved or escaped.
fn is_plain_prefix(text: &str) -> bool {
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    let Some((host, path)) = rest.and_then(|rest| rest.split_once('/')) else {
        return false;
    };
    let in_path = |c: char| c.is_ascii_alphanumeric() || "/._-~=&?".contains(c);
    is_host_name(host)
        && host.contains(|c: char| c.is_ascii_lowercase())
        && !host.contains(|c: char| !c.is_ascii() || c.is_ascii_uppercase())
        && path.chars().all(in_path)
        && !path
            .split(['/', '?'])
            .any(|part| part == "." || part == "..")
}

/// Escapes a text for an expression.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if "\\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
