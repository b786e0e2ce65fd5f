//! Rules as groups: one for each rule, in the order of the list.

use crate::draft::{ConditionDraft, GroupDraft, GuardDraft, RuleDraft, RuleIds, RuleItem};
use crate::expression::{Anchoring, Dialect, SourceExpression, TranslatedExpression};
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};

use super::source::{WebCopyAction, WebCopyCompare, WebCopyPriority, WebCopyRule};
use super::tree::NbtTag;
use super::words::normalized;

/// Converts rules.
pub(super) struct RuleConversion<'c> {
    pub report: &'c mut Report,
    pub parts: &'c [PartId],
    pub ids: &'c mut RuleIds,
    /// No rule says that it is enabled or disabled.
    pub assumes_enabled: bool,
}

impl RuleConversion<'_> {
    /// Converts a rule, and sets the outcome of its tags.
    pub(super) fn convert(&mut self, rule: &WebCopyRule, tag: &NbtTag) -> RuleItem {
        let id = self.ids.next(&format!("rule-{}", rule.number));
        let parts: Vec<PartId> = tag
            .all()
            .iter()
            .filter_map(|tag| self.parts.get(tag.index).copied())
            .collect();
        if !rule.is_enabled {
            return self.dead(&parts, &id, rule, "the rule is disabled");
        }
        let has_priority =
            rule.priority != WebCopyPriority::Normal && rule.compare != WebCopyCompare::ContentType;
        if rule.action.is_none() && !rule.stops && !has_priority {
            return self.dead(&parts, &id, rule, "the rule has no action");
        }
        let expression = SourceExpression {
            text: &rule.expression,
            dialect: Dialect::DotNet,
            anchoring: Anchoring::Search,
            ignore_case: rule.ignore_case && needs_ignore_case(rule),
        };
        let translated = match expression.translate(field(rule.compare)) {
            Ok(translated) => translated,
            Err(why) => return self.not_converted(&parts, &id, rule, &why),
        };
        if !rule.negated && needs_slash(rule.compare, &translated.condition) {
            let why = "the path is compared without the slash at its beginning, so `^/` fits no URL; in WebCopy, too, the rule has no effect";
            return self.dead(&parts, &id, rule, why);
        }
        if rule.negated && translated.condition == ConditionDraft::Always {
            let why = "the expression fits everything, so nothing does not match it";
            return self.dead(&parts, &id, rule, why);
        }
        self.set_outcomes(&parts, &id, rule, &translated);
        self.set_priority_outcome(tag, rule);
        let mut group = GroupDraft {
            guard: guard(rule, translated.condition),
            then: rule.action.map(action_word),
            stop: rule.stops,
            ..GroupDraft::default()
        };
        match rule.priority {
            WebCopyPriority::High if has_priority => group.set.set("priority", "highest"),
            WebCopyPriority::Low if has_priority => group.set.set("priority", "lowest"),
            WebCopyPriority::High | WebCopyPriority::Normal | WebCopyPriority::Low => {}
        }
        RuleDraft::group(id, group)
            .with_about(rule.about.as_deref().map(one_line))
            .into()
    }

    fn dead(&mut self, parts: &[PartId], id: &str, rule: &WebCopyRule, why: &str) -> RuleItem {
        for part in parts {
            self.report.dead(*part, why);
        }
        RuleItem::Comment(format!("dead: {id}, {}: {why}", one_line(&rule.expression)))
    }

    fn not_converted(
        &mut self,
        parts: &[PartId],
        id: &str,
        rule: &WebCopyRule,
        why: &str,
    ) -> RuleItem {
        let failure = match rule.action {
            Some(WebCopyAction::Exclude | WebCopyAction::ExcludeButScan) => {
                MissingPart::LetsThrough
            }
            Some(WebCopyAction::Download | WebCopyAction::DownloadNoScan) => MissingPart::KeepsOut,
            // A rule that only stops keeps the later ones from being processed.
            None if rule.stops => MissingPart::KeepsOut,
            None => MissingPart::OtherSetting,
        };
        let instead = "a rule of your own, with `not` or several rules; delete the rule if WebCopy shows it as invalid, where it is disabled";
        for part in parts {
            self.report
                .not_converted(*part, why, failure, Some(instead));
        }
        let expression = one_line(&rule.expression);
        RuleItem::Comment(format!("not converted: {id}, {expression}: {why}"))
    }

    fn set_outcomes(
        &mut self,
        parts: &[PartId],
        id: &str,
        rule: &WebCopyRule,
        translated: &TranslatedExpression,
    ) {
        let need = match rule.compare {
            WebCopyCompare::Authority => PartNeed::Host,
            WebCopyCompare::ContentType => PartNeed::Response,
            WebCopyCompare::AuthorityPathQuery
            | WebCopyCompare::Url
            | WebCopyCompare::Path
            | WebCopyCompare::PathQuery
            | WebCopyCompare::Query => PartNeed::Url,
        };
        let mut texts = Vec::new();
        let mut effect = AssumptionEffect::Either;
        if let Some((text, its_effect)) = assumption(rule, translated) {
            texts.push(text);
            effect = its_effect;
        }
        if self.assumes_enabled {
            texts.push("rules that do not say so are enabled".to_owned());
            effect = AssumptionEffect::Either;
        }
        for part in parts {
            if texts.is_empty() {
                self.report.converted(*part, id, need);
                continue;
            }
            let target = PartTarget {
                name: id.to_owned(),
                need,
            };
            let text = texts.join("; and that ");
            self.report.assumed(*part, target, text, effect);
        }
    }

    /// Sets the outcome of a priority that has no effect, and of the flag that rules are inherited.
    fn set_priority_outcome(&mut self, tag: &NbtTag, rule: &WebCopyRule) {
        for tag in tag.children() {
            let Some(part) = self.parts.get(tag.index).copied() else {
                continue;
            };
            let name = normalized(&tag.name);
            if name.contains("inherit") {
                let why = "a rule decides about each URL by itself";
                self.report.unrelated(part, why);
            } else if name.contains("priority") && rule.compare == WebCopyCompare::ContentType {
                let why = "WebCopy ignores the priority of rules on content types";
                self.report.dead(part, why);
            }
        }
    }
}

fn assumption(
    rule: &WebCopyRule,
    translated: &TranslatedExpression,
) -> Option<(String, AssumptionEffect)> {
    let excludes = matches!(
        rule.action,
        Some(WebCopyAction::Exclude | WebCopyAction::ExcludeButScan)
    );
    // A rule that does not match, or stops, acts both ways.
    if rule.negated || rule.stops || rule.action.is_none() {
        let (text, _) = translated.assumption.clone()?;
        return Some((text, AssumptionEffect::Either));
    }
    match excludes {
        true => translated.assumption.clone(),
        false => translated.assumption_of_inclusion(),
    }
}

fn guard(rule: &WebCopyRule, condition: ConditionDraft) -> GuardDraft {
    let condition = match (rule.compare, condition) {
        // Only a condition on the type makes it a rule that waits for the response.
        (WebCopyCompare::ContentType, ConditionDraft::Always) => {
            ConditionDraft::test("content_type", "regex", [".*"])
        }
        (_, condition) => condition,
    };
    match (rule.negated, condition) {
        (true, condition) => GuardDraft::Unless(condition),
        (false, ConditionDraft::Always) => GuardDraft::Always,
        (false, condition) => GuardDraft::When(condition),
    }
}

/// Returns `false` if a policy compares the field without regard to case, and the expression has no capitals.
fn needs_ignore_case(rule: &WebCopyRule) -> bool {
    let is_compared_so = matches!(
        rule.compare,
        WebCopyCompare::Authority | WebCopyCompare::ContentType
    );
    !is_compared_so || rule.expression.chars().any(char::is_uppercase)
}

/// Returns the field of a policy.
fn field(compare: WebCopyCompare) -> &'static str {
    match compare {
        WebCopyCompare::Authority => "authority",
        WebCopyCompare::AuthorityPathQuery => "authority_path_query",
        WebCopyCompare::ContentType => "content_type",
        WebCopyCompare::Url => "url",
        WebCopyCompare::Path => "rel_path",
        WebCopyCompare::PathQuery => "rel_path_and_query",
        WebCopyCompare::Query => "query",
    }
}

fn action_word(action: WebCopyAction) -> &'static str {
    match action {
        WebCopyAction::Exclude => "exclude",
        WebCopyAction::ExcludeButScan => "exclude-but-scan",
        WebCopyAction::Download => "download",
        WebCopyAction::DownloadNoScan => "download-no-scan",
    }
}

/// Returns `true` if what fits a condition on a path begins with a slash.
fn needs_slash(compare: WebCopyCompare, condition: &ConditionDraft) -> bool {
    let ConditionDraft::Test(test) = condition else {
        return false;
    };
    let is_path = matches!(compare, WebCopyCompare::Path | WebCopyCompare::PathQuery);
    let begins = |text: &String| match test.kind {
        Some("prefix" | "exact") | None => text.starts_with('/'),
        Some("regex") => text.starts_with("^/") && !has_outer_bar(text),
        Some(_) => false,
    };
    is_path && test.field.starts_with("rel_path") && test.values.iter().all(begins)
}

/// Returns `true` if an expression has alternatives that are not in a group. A bar in a class counts, too.
fn has_outer_bar(text: &str) -> bool {
    let mut depth = 0_usize;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// Shortens a text to one line.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(300).collect()
}
