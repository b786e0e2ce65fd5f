//! StormCrawler's filters as rules.

use serde_json::Map;

use crate::draft::{
    ConditionDraft, GroupDraft, GuardDraft, PolicyDraft, RuleDraft, RuleIds, RuleItem,
};
use crate::expression::{Anchoring, Dialect, SourceExpression, TranslatedExpression};
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};

use super::source::{StormFilter, StormLine, StormPattern, StormScope, StormScopeKind};

pub(super) struct StormConverter<'a> {
    pub policy: &'a mut PolicyDraft,
    pub report: &'a mut Report,
    pub ids: RuleIds,
}

fn java(text: &str) -> SourceExpression<'_> {
    SourceExpression {
        text,
        dialect: Dialect::Java,
        anchoring: Anchoring::Search,
        ignore_case: false,
    }
}

impl StormConverter<'_> {
    pub(super) fn convert(&mut self, filters: &[StormFilter]) {
        let mut has_regex = false;
        for filter in filters {
            match filter {
                StormFilter::MaxLength(part, max) => {
                    let id = self.ids.next("max-length");
                    self.report.converted(*part, &*id, PartNeed::Url);
                    let range = format!("[{}:]", max.saturating_add(1));
                    let condition = ConditionDraft::test("url", "length", [range]);
                    self.policy
                        .rules
                        .push(RuleDraft::forbid(id, condition).into());
                }
                StormFilter::MaxRepetition(part, count) => self.repetition(*part, *count),
                StormFilter::Regex(lines) if has_regex => {
                    for line in lines {
                        let why = "a second RegexURLFilter";
                        let instead = Some("rules `forbid` for its lines");
                        let failure = MissingPart::LetsThrough;
                        self.report.not_converted(line.part, why, failure, instead);
                    }
                }
                StormFilter::Regex(lines) => {
                    has_regex = true;
                    self.regex(lines);
                }
                StormFilter::Fast(scopes) => self.fast(scopes),
            }
        }
    }

    fn repetition(&mut self, part: PartId, count: u64) {
        let id = self.ids.next("max-path-repetition");
        let text = "segments are counted in the path; StormCrawler also counts the host, and a query belongs to the last segment";
        self.report_rule(part, &id, Some((text.to_owned(), AssumptionEffect::Either)));
        let copies = usize::try_from(count.min(50)).unwrap_or(50);
        let url = format!("http://host.example/{}", "a/".repeat(copies));
        self.policy.examples.push((url, Map::new()));
        let condition = ConditionDraft::test("path", "repeats", [format!("[{count}:]")]);
        self.policy
            .rules
            .push(RuleDraft::forbid(id, condition).into());
    }

    fn report_rule(
        &mut self,
        part: PartId,
        id: &str,
        assumption: Option<(String, AssumptionEffect)>,
    ) {
        let Some((text, effect)) = assumption else {
            return self.report.converted(part, id, PartNeed::Url);
        };
        let target = PartTarget {
            name: id.to_owned(),
            need: PartNeed::Url,
        };
        self.report.assumed(part, target, text, effect);
    }

    fn not_converted(&mut self, part: PartId, why: &str, allows: bool, text: &str) -> RuleItem {
        let failure = match allows {
            true => MissingPart::KeepsOut,
            false => MissingPart::LetsThrough,
        };
        self.report.not_converted(part, why, failure, None);
        RuleItem::Comment(format!("not converted: {why}\n{text}"))
    }

    fn add_sample(&mut self, condition: &ConditionDraft) {
        let is_repeats =
            matches!(condition, ConditionDraft::Test(test) if test.kind == Some("repeats"));
        if is_repeats {
            let url = "http://host.example/a/b/a/b/a/b/".to_owned();
            self.policy.examples.push((url, Map::new()));
        }
    }

    /// Adds a URL with a text that a pattern allows.
    fn add_allowed_sample(&mut self, condition: &ConditionDraft, host: &str) {
        let ConditionDraft::Test(test) = condition else {
            return;
        };
        let is_plain = matches!(test.kind, None | Some("prefix" | "contains" | "suffix"));
        let text = test
            .values
            .first()
            .filter(|_| is_plain && host.contains('.'));
        if let Some(text) = text {
            let path = text.trim_start_matches('/');
            let url = format!("http://{}/{path}", host.to_lowercase());
            self.policy.examples.push((url, Map::new()));
        }
    }

    fn regex(&mut self, lines: &[StormLine]) {
        self.policy.options.set("disposition", "disallow");
        let group_id = self.ids.next("regex-filter");
        let mut rules = Vec::new();
        for line in lines {
            let id = self.ids.next(&format!("line-{}", line.line));
            match java(&line.expression).translate("url") {
                Ok(translated) => {
                    let assumption = assumption(&translated, line.allows);
                    self.report_rule(line.part, &id, assumption);
                    self.add_sample(&translated.condition);
                    let then = if line.allows { "allow" } else { "disallow" };
                    rules.push(RuleDraft::when(id, translated.condition, then).into());
                }
                Err(why) => {
                    rules.push(self.not_converted(line.part, &why, line.allows, &line.expression));
                }
            }
        }
        let group = GroupDraft {
            first: true,
            rules,
            ..GroupDraft::default()
        };
        self.policy
            .rules
            .push(RuleDraft::group(group_id, group).into());
    }

    fn fast(&mut self, scopes: &[StormScope]) {
        for (at, scope) in scopes.iter().enumerate() {
            let again = scopes
                .iter()
                .skip(at + 1)
                .any(|other| other.kind == scope.kind);
            if again {
                let parts = scope.patterns.iter().map(|pattern| pattern.part);
                for part in parts.chain([scope.part]) {
                    self.report
                        .dead(part, "a later scope of the same name replaces it");
                }
                continue;
            }
            self.scope(scope);
        }
    }

    fn scope(&mut self, scope: &StormScope) {
        let (name, condition) = match &scope.kind {
            StormScopeKind::Global => ("global", None),
            StormScopeKind::Host(name) => (
                name.as_str(),
                Some(ConditionDraft::is("host", [name.to_lowercase()])),
            ),
            StormScopeKind::Domain(name) => (
                name.as_str(),
                Some(ConditionDraft::is("domain", [name.to_lowercase()])),
            ),
        };
        let valid = name.split('.').all(|label| {
            !label.is_empty()
                && label
                    .chars()
                    .all(|c| c.is_alphanumeric() || c == '-' || c == '_')
        });
        if !valid {
            let parts = scope.patterns.iter().map(|pattern| pattern.part);
            for part in parts.chain([scope.part]) {
                self.report.dead(part, "no host has this name");
            }
            return;
        }
        let id = self.ids.next(name);
        self.report.converted(scope.part, &*id, PartNeed::Host);
        if condition.is_some() {
            let url = format!("http://{}/", name.to_lowercase());
            self.policy.examples.push((url, Map::new()));
        }
        let rules = self.patterns(&scope.patterns, &id, name);
        let group = GroupDraft {
            guard: condition.map_or(GuardDraft::Always, GuardDraft::When),
            rules,
            ..GroupDraft::default()
        };
        self.policy.rules.push(RuleDraft::group(id, group).into());
    }

    /// Returns a rule for each pattern that denies, except for what a pattern above it allows.
    fn patterns(&mut self, patterns: &[StormPattern], scope_id: &str, host: &str) -> Vec<RuleItem> {
        let mut rules = Vec::new();
        let mut allowed: Vec<ConditionDraft> = Vec::new();
        for pattern in patterns {
            let field = if pattern.with_query {
                "path_and_query"
            } else {
                "path"
            };
            let id = self.ids.next(&format!("line-{}", pattern.line));
            // Every path begins with a slash, so an expression for any character always fits.
            let always = matches!(pattern.expression.as_str(), "." | ".+" | ".*");
            let translated = match always {
                true => Ok(TranslatedExpression {
                    condition: ConditionDraft::Always,
                    assumption: None,
                }),
                false => java(&pattern.expression).translate(field),
            };
            let translated = match translated {
                Ok(translated) => translated,
                Err(why) => {
                    let text = &pattern.expression;
                    rules.push(self.not_converted(pattern.part, &why, !pattern.denies, text));
                    continue;
                }
            };
            let assumption = assumption(&translated, !pattern.denies);
            if !pattern.denies {
                self.report_rule(pattern.part, scope_id, assumption);
                self.add_allowed_sample(&translated.condition, host);
                allowed.push(translated.condition);
                continue;
            }
            self.report_rule(pattern.part, &id, assumption);
            self.add_sample(&translated.condition);
            rules.push(RuleDraft::forbid(id, except(translated.condition, &allowed)).into());
        }
        rules
    }
}

fn assumption(
    translated: &TranslatedExpression,
    allows: bool,
) -> Option<(String, AssumptionEffect)> {
    match allows {
        true => translated.assumption_of_inclusion(),
        false => translated.assumption.clone(),
    }
}

fn except(condition: ConditionDraft, allowed: &[ConditionDraft]) -> ConditionDraft {
    if allowed.is_empty() {
        return condition;
    }
    let exception = ConditionDraft::any(allowed.to_vec()).negated();
    if condition == ConditionDraft::Always {
        return exception;
    }
    ConditionDraft::all(vec![condition, exception])
}
