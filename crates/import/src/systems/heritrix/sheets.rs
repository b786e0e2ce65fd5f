//! Sheets: settings for some URLs, by SURT prefixes or by decide rules.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::draft::{ConditionDraft, GroupDraft, GuardDraft, OptionDrafts, RuleDraft};
use crate::input::ImportError;
use crate::report::{MissingPart, PartId, PartNeed, Report};

use super::beans::{Bean, ValueKind};
use super::conversion::Unconverted;
use super::scope::{ScopeDecision, ScopeReader, ScopeRule, ScopeTest};
use super::seeds::Seeds;
use super::settings::{convert_setting, record};
use super::surts::{self, SurtCondition, SurtLine};
use super::{HeritrixImport, list_texts};

/// An association of sheets with prefixes.
struct Association<'b> {
    bean: &'b Bean,
    prefixes: Vec<(String, SurtCondition)>,
    sheets: Vec<String>,
}

impl HeritrixImport<'_> {
    /// Adds a group for each association. Of several that fit a URL the one with the longest prefix wins,
    /// and those by rules win over prefixes.
    pub(super) fn add_sheets(&mut self, seeds: &Seeds) -> Result<(), ImportError> {
        let beans = self.beans;
        let mut associations: Vec<Association<'_>> = beans
            .beans
            .iter()
            .filter(|bean| bean.class == "SurtPrefixesSheetAssociation")
            .map(|bean| self.read_association(bean))
            .collect();
        if has_nested_prefixes(&associations) {
            associations = split(&associations);
        }
        associations.sort_by(|a, b| first_prefix(a).cmp(first_prefix(b)));
        let mut used = BTreeSet::new();
        for association in &associations {
            used.extend(association.sheets.iter().cloned());
            self.add_association(association);
        }
        let mut ruled: Vec<&Bean> = beans
            .beans
            .iter()
            .filter(|bean| bean.class == "DecideRuledSheetAssociation")
            .collect();
        ruled.sort_by_key(|bean| {
            let order = beans
                .text(bean, "order")
                .and_then(|(text, _)| text.parse::<i64>().ok());
            (order.unwrap_or(0), bean.id.clone())
        });
        for bean in ruled {
            used.extend(self.add_ruled_association(bean, seeds)?);
        }
        self.close_unused_sheets(&used);
        Ok(())
    }

    fn read_association<'b>(&mut self, bean: &'b Bean) -> Association<'b>
    where
        Self: 'b,
    {
        let prefixes = bean.properties.iter().find(|it| it.name == "surtPrefixes");
        let mut found = Vec::new();
        for (text, parts) in prefixes.map(|it| list_texts(&it.value)).unwrap_or_default() {
            let is_lower = text.to_lowercase() == text;
            let condition = match surts::condition_of(SurtLine::Formal(&text)) {
                Ok(condition) if is_lower => condition,
                Ok(_) => {
                    self.set_dead(
                        &parts,
                        "capitals: prefixes are compared with SURTs in lower case",
                    );
                    continue;
                }
                Err(why) => {
                    self.set_dead(&parts, &why);
                    continue;
                }
            };
            found.push((text, condition));
        }
        Association {
            bean,
            prefixes: found,
            sheets: target_sheets(bean),
        }
    }

    fn set_dead(&mut self, parts: &[PartId], why: &str) {
        for part in parts {
            self.report.dead(*part, why);
        }
    }

    fn add_association(&mut self, association: &Association<'_>) {
        if association.prefixes.is_empty() {
            self.set_dead(&association.bean.own_parts, "it has no prefixes");
            return;
        }
        let conditions: Vec<SurtCondition> = association
            .prefixes
            .iter()
            .map(|(_, it)| it.clone())
            .collect();
        let samples: Vec<String> = conditions
            .iter()
            .filter_map(surts::sample)
            .take(1)
            .collect();
        self.conversion.examples.extend(samples);
        let condition = surts::any_of(&conditions);
        self.add_groups(association.bean, &association.sheets, &condition);
    }

    fn add_ruled_association(
        &mut self,
        bean: &Bean,
        seeds: &Seeds,
    ) -> Result<Vec<String>, ImportError> {
        let sheets = target_sheets(bean);
        let rule = self
            .beans
            .property(bean, "rules")
            .and_then(|value| self.beans.resolve(value));
        let Some(rule) = rule else {
            self.not_converted(bean, "it has no rules");
            return Ok(sheets);
        };
        let mut reader = ScopeReader {
            beans: self.beans,
            seeds,
            input: self.input,
            report: &mut self.report,
            open: Vec::new(),
            used: BTreeSet::new(),
        };
        let mut rule = reader.read(rule)?;
        match self.accepted(&mut rule) {
            Some(condition) => self.add_groups(bean, &sheets, &condition),
            None => self.not_converted(bean, "its rules cannot be said as a condition"),
        }
        Ok(sheets)
    }

    /// Returns the condition under which rules accept a URL: the last decision counts.
    fn accepted(&mut self, rule: &mut ScopeRule) -> Option<ConditionDraft> {
        if rule.dead.is_some() {
            return None;
        }
        if !matches!(rule.test, ScopeTest::Sequence(_)) {
            let is_accept = rule.decision == ScopeDecision::Accept;
            return self.single(rule).filter(|_| is_accept);
        }
        let ScopeTest::Sequence(rules) = &mut rule.test else {
            return None;
        };
        let mut accepted: Option<ConditionDraft> = None;
        for rule in rules.iter_mut().filter(|rule| rule.dead.is_none()) {
            if matches!(rule.test, ScopeTest::Sequence(_)) {
                return None;
            }
            let condition = self.single(rule)?;
            accepted = match (rule.decision, accepted) {
                (ScopeDecision::Accept, Some(before)) => {
                    Some(ConditionDraft::any(vec![before, condition]))
                }
                (ScopeDecision::Accept, None) => Some(condition),
                (ScopeDecision::Reject, Some(_)) if condition == ConditionDraft::Always => None,
                (ScopeDecision::Reject, Some(before)) => {
                    Some(ConditionDraft::all(vec![before, condition.negated()]))
                }
                (ScopeDecision::Reject, None) => None,
            };
        }
        accepted
    }

    fn single(&mut self, rule: &mut ScopeRule) -> Option<ConditionDraft> {
        let name = rule.name.clone();
        match self.conversion.condition(&name, rule, &mut self.report) {
            Ok(found) if found.is_exact() => Some(found.condition),
            Ok(_) | Err(Unconverted::Dead(_) | Unconverted::Why(..)) => None,
        }
    }

    fn add_groups(&mut self, bean: &Bean, sheets: &[String], condition: &ConditionDraft) {
        let mut last = None;
        for name in sheets {
            let id = self.conversion.ids.next(name);
            let set = self.sheet_options(name, &id);
            if set.is_empty() {
                continue;
            }
            let group = GroupDraft {
                guard: GuardDraft::When(condition.clone()),
                set,
                ..GroupDraft::default()
            };
            let about = self
                .beans
                .by_id(name)
                .and_then(|sheet| sheet.comment.clone());
            let rule = RuleDraft::group(id.clone(), group).with_about(about);
            self.policy.rules.push(rule.into());
            last = Some(id);
        }
        for part in bean.all_parts() {
            if self.report.is_set(part) {
                continue;
            }
            match &last {
                Some(id) => self.report.converted(part, id, PartNeed::Url),
                None => self
                    .report
                    .unrelated(part, "none of its sheets sets an option"),
            }
        }
    }

    /// Returns the options of a sheet, and sets the outcome of its entries.
    fn sheet_options(&mut self, name: &str, id: &str) -> OptionDrafts {
        let mut set = OptionDrafts::default();
        let Some(sheet) = self.beans.by_id(name) else {
            return set;
        };
        let entries = match self.beans.property(sheet, "map").map(|value| &value.kind) {
            Some(ValueKind::Map(entries)) => entries.as_slice(),
            Some(
                ValueKind::Text(_)
                | ValueKind::Bean(_)
                | ValueKind::Reference(_)
                | ValueKind::List(_),
            )
            | None => &[],
        };
        for (key, value) in entries {
            let text = value
                .text()
                .map(|text| text.text.trim())
                .unwrap_or_default();
            for (path, json) in self.entry_options(key, text, &value.all_parts(), id) {
                set.set(path, json);
            }
        }
        let parts = sheet.all_parts();
        close_sheet(&parts, id, set.is_empty(), &mut self.report);
        set
    }

    fn entry_options(
        &mut self,
        key: &str,
        text: &str,
        parts: &[PartId],
        id: &str,
    ) -> Vec<(&'static str, Json)> {
        let (bean, property) = key.split_once('.').unwrap_or((key, ""));
        let class = self
            .beans
            .by_id(bean)
            .map_or("", |bean| bean.class.as_str());
        if super::is_rule_class(class) || bean == "scope" {
            for part in parts {
                let why = "a sheet that changes a rule of the scope";
                let instead = Some("a rule of its own under the same condition");
                self.report
                    .not_converted(*part, why, MissingPart::LetsThrough, instead);
            }
            return Vec::new();
        }
        let outcome = convert_setting(class, property, text);
        record(outcome, parts, Some(id), &mut self.report)
    }

    fn not_converted(&mut self, bean: &Bean, why: &str) {
        let instead = Some("a group with `when` and `set`");
        for part in bean.all_parts() {
            self.report
                .not_converted(part, why, MissingPart::OtherSetting, instead);
        }
    }

    fn close_unused_sheets(&mut self, used: &BTreeSet<String>) {
        for bean in self.beans.beans.iter().filter(|bean| bean.class == "Sheet") {
            if bean.id.as_ref().is_none_or(|id| !used.contains(id)) {
                self.set_dead(&bean.all_parts(), "no association applies this sheet");
            }
        }
    }
}

fn close_sheet(parts: &[PartId], id: &str, is_empty: bool, report: &mut Report) {
    for part in parts {
        if report.is_set(*part) {
            continue;
        }
        if is_empty {
            report.unrelated(*part, "it sets no option");
        } else {
            report.converted(*part, id, PartNeed::Url);
        }
    }
}

fn target_sheets(bean: &Bean) -> Vec<String> {
    let sheets = bean
        .properties
        .iter()
        .find(|it| it.name == "targetSheetNames");
    let sheets = sheets.map(|it| list_texts(&it.value)).unwrap_or_default();
    sheets.into_iter().map(|(name, _)| name).collect()
}

fn first_prefix<'a>(association: &'a Association<'_>) -> &'a str {
    association.prefixes.first().map_or("", |(text, _)| text)
}

/// Returns `true` if a prefix of one association begins one of another.
fn has_nested_prefixes(associations: &[Association<'_>]) -> bool {
    let mut all: Vec<(&str, usize)> = Vec::new();
    for (nth, association) in associations.iter().enumerate() {
        all.extend(
            association
                .prefixes
                .iter()
                .map(|(text, _)| (text.as_str(), nth)),
        );
    }
    all.sort_unstable();
    all.windows(2).any(|pair| match pair {
        [(first, a), (second, b)] => a != b && second.starts_with(first),
        _ => false,
    })
}

/// Makes an association of each prefix.
fn split<'b>(associations: &[Association<'b>]) -> Vec<Association<'b>> {
    let mut split = Vec::new();
    for association in associations {
        for prefix in &association.prefixes {
            split.push(Association {
                bean: association.bean,
                prefixes: vec![prefix.clone()],
                sheets: association.sheets.clone(),
            });
        }
    }
    split
}
