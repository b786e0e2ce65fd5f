//! Rules of the scope as rules of a policy.

use crate::draft::{
    ConditionDraft, GroupDraft, ListDraft, RuleDraft, RuleIds, RuleItem, TestDraft, to_slug,
};
use crate::expression::{Anchoring, Dialect, SourceExpression};
use crate::report::{AssumptionEffect, MissingPart, PartNeed, PartTarget, Report};

use super::scope::{PatternSet, ScopeDecision, ScopeRule, ScopeTest, failure_of};
use super::surts::{self, SurtCondition, SurtLine};

/// More prefixes or expressions than this are written as a list.
const MAX_INLINE: usize = 20;
/// More repetitions than this in an expression are not written.
const MAX_SLASHES: usize = 1_000;

/// The conversion of rules, with what it needs on the way.
#[derive(Default)]
pub(super) struct HeritrixConversion {
    pub ids: RuleIds,
    pub lists: Vec<ListDraft>,
    /// URLs that conditions fit, for cases.
    pub examples: Vec<String>,
    /// The rule that has the seeds.
    pub seed_rule: Option<String>,
    /// The rule that has the lines of the seeds that begin with `-`.
    pub rejecting_rule: Option<String>,
}

/// A condition with what must be known and what it assumes.
pub(super) struct RuleCondition {
    pub condition: ConditionDraft,
    need: PartNeed,
    assumption: Option<(String, AssumptionEffect)>,
}

impl RuleCondition {
    fn exact(condition: ConditionDraft, need: PartNeed) -> Self {
        Self {
            condition,
            need,
            assumption: None,
        }
    }

    /// Returns `true` if the condition means the same as the source.
    pub(super) fn is_exact(&self) -> bool {
        self.assumption.is_none()
    }
}

impl HeritrixConversion {
    /// Converts a rule, and sets the outcome of its parts.
    pub(super) fn rule(&mut self, rule: &mut ScopeRule, report: &mut Report) -> RuleItem {
        if let Some(why) = rule.dead.clone() {
            return dead(rule, &why, report);
        }
        if matches!(rule.test, ScopeTest::Sequence(_)) {
            return self.sequence(rule, report);
        }
        let id = self.ids.next(&rule.name);
        let found = match self.condition(&id, rule, report) {
            Ok(found) => found,
            Err(Unconverted::Dead(why)) => return dead(rule, &why, report),
            Err(Unconverted::Why(why, instead)) => {
                return not_converted(rule, &why, instead, report);
            }
        };
        rule.acts = true;
        for part in &rule.parts {
            report.converted(*part, &id, found.need);
        }
        if let Some((assumption, effect)) = found.assumption {
            let target = PartTarget {
                name: id.clone(),
                need: found.need,
            };
            report.assumed(rule.part, target, assumption, effect);
        }
        let then = match rule.decision {
            ScopeDecision::Accept => "allow",
            ScopeDecision::Reject => "disallow",
        };
        RuleDraft::when(id, found.condition, then)
            .with_about(rule.about.clone())
            .into()
    }

    fn sequence(&mut self, rule: &mut ScopeRule, report: &mut Report) -> RuleItem {
        let id = self.ids.next(&rule.name);
        for part in &rule.parts {
            report.converted(*part, &id, PartNeed::Url);
        }
        rule.acts = true;
        let ScopeTest::Sequence(rules) = &mut rule.test else {
            return RuleItem::Comment(id);
        };
        let rules = rules
            .iter_mut()
            .map(|rule| self.rule(rule, report))
            .collect();
        let group = GroupDraft {
            rules,
            ..GroupDraft::default()
        };
        let about = rule.about.clone();
        RuleDraft::group(id, group).with_about(about).into()
    }

    /// Returns the condition of a rule that is no sequence, and sets the outcome of its lines.
    pub(super) fn condition(
        &mut self,
        id: &str,
        rule: &mut ScopeRule,
        report: &mut Report,
    ) -> Result<RuleCondition, Unconverted> {
        let mut found = if matches!(rule.test, ScopeTest::Surts(_)) {
            self.surts(id, rule, report)?
        } else if matches!(rule.test, ScopeTest::Regexes(_)) {
            self.regexes(id, rule, report)?
        } else {
            plain_condition(&rule.test)?
        };
        if rule.negated {
            found.condition = found.condition.negated();
        }
        Ok(found)
    }

    fn surts(
        &mut self,
        id: &str,
        rule: &ScopeRule,
        report: &mut Report,
    ) -> Result<RuleCondition, Unconverted> {
        let ScopeTest::Surts(lines) = &rule.test else {
            return Err(Unconverted::Dead("no prefixes".to_owned()));
        };
        let mut prefixes = Vec::new();
        for line in lines {
            let Some(line) = SurtLine::read(line) else {
                continue;
            };
            if let Ok(prefix) = surts::condition_of(line)
                && !prefixes.contains(&prefix)
            {
                prefixes.push(prefix);
            }
        }
        for (part, line) in &rule.lines {
            match SurtLine::read(line).map(surts::condition_of) {
                Some(Err(why)) => report.dead(*part, why),
                Some(Ok(_)) => report.converted(*part, id, PartNeed::Url),
                None => report.unrelated(*part, "a comment"),
            }
        }
        if lines.len() > rule.lines.len() {
            let owner = match rule.decision {
                ScopeDecision::Accept => &mut self.seed_rule,
                ScopeDecision::Reject => &mut self.rejecting_rule,
            };
            owner.get_or_insert_with(|| id.to_owned());
        }
        self.examples
            .extend(prefixes.first().and_then(surts::sample));
        match (prefixes.is_empty(), rule.negated) {
            // A negated test of nothing always holds.
            (true, true) => Ok(RuleCondition::exact(never(), PartNeed::Host)),
            (true, false) => Err(Unconverted::Dead("it has no prefixes".to_owned())),
            (false, _) => Ok(self.prefix_condition(id, &prefixes)),
        }
    }

    fn prefix_condition(&mut self, id: &str, prefixes: &[SurtCondition]) -> RuleCondition {
        let need = match prefixes
            .iter()
            .any(|prefix| matches!(prefix, SurtCondition::Path(_)))
        {
            true => PartNeed::Url,
            false => PartNeed::Host,
        };
        if prefixes.len() <= MAX_INLINE {
            return RuleCondition::exact(surts::any_of(prefixes), need);
        }
        let mut hosts = Vec::new();
        let mut paths = Vec::new();
        for prefix in prefixes {
            match prefix {
                SurtCondition::Host(surt) => hosts.push(surt.clone()),
                SurtCondition::Path(path) => paths.push(format!("{}*", path.replace('*', "\\*"))),
            }
        }
        let mut parts = Vec::new();
        if !hosts.is_empty() {
            let name = self.add_list(&to_slug(id), "surts", hosts);
            parts.push(ConditionDraft::is("in", [name]));
        }
        if !paths.is_empty() {
            let name = self.add_list(&format!("{}-paths", to_slug(id)), "globs", paths);
            let test = ConditionDraft::test("authority_path_query", "in", [name]);
            parts.push(test.ignoring_case(true));
        }
        RuleCondition::exact(ConditionDraft::any(parts), need)
    }

    fn regexes(
        &mut self,
        id: &str,
        rule: &mut ScopeRule,
        report: &mut Report,
    ) -> Result<RuleCondition, Unconverted> {
        let ScopeTest::Regexes(set) = &mut rule.test else {
            return Err(Unconverted::Dead("no expressions".to_owned()));
        };
        if set.patterns.is_empty() {
            if rule.negated {
                return Ok(RuleCondition::exact(never(), PartNeed::Host));
            }
            return Err(Unconverted::Dead(
                "its list of expressions is empty".to_owned(),
            ));
        }
        // Without one of several alternatives the others still hold.
        let may_miss = !set.all && !rule.negated && set.patterns.len() > 1;
        let mut conditions = Vec::new();
        let mut kept = Vec::new();
        for pattern in &set.patterns {
            let parts = rule.lines.iter().filter(|(_, text)| text == pattern);
            match translate(pattern) {
                Ok(condition) => {
                    parts.for_each(|(part, _)| report.converted(*part, id, PartNeed::Url));
                    conditions.push(condition);
                    kept.push(pattern.clone());
                }
                Err(why) => {
                    let failure = failure_of(rule.decision);
                    parts.for_each(|(part, _)| report.not_converted(*part, &why, failure, None));
                    if !may_miss {
                        return Err(Unconverted::Why(why, None));
                    }
                }
            }
        }
        if conditions.is_empty() {
            return Err(Unconverted::Why(
                "none of its expressions is converted".to_owned(),
                None,
            ));
        }
        set.patterns = kept;
        let all = set.all;
        let condition = self.join(id, conditions, all);
        Ok(RuleCondition::exact(condition, PartNeed::Url))
    }

    /// Joins conditions. Many expressions for the URL become a list.
    fn join(&mut self, id: &str, conditions: Vec<ConditionDraft>, all: bool) -> ConditionDraft {
        if all {
            return ConditionDraft::all(conditions);
        }
        let values: Option<Vec<String>> = conditions.iter().map(plain_regex).collect();
        match values {
            Some(values) if values.len() > MAX_INLINE => {
                let name = self.add_list(&to_slug(id), "regexes", values);
                ConditionDraft::is("in", [name])
            }
            Some(values) if values.len() > 1 => ConditionDraft::test("url", "regex", values),
            Some(_) | None => ConditionDraft::any(conditions),
        }
    }

    fn add_list(&mut self, name: &str, kind: &'static str, items: Vec<String>) -> String {
        self.lists.push(ListDraft {
            name: name.to_owned(),
            notes: Vec::new(),
            kind,
            items,
        });
        name.to_owned()
    }
}

/// The reason why a rule has no condition.
pub(super) enum Unconverted {
    Dead(String),
    Why(String, Option<&'static str>),
}

fn plain_condition(test: &ScopeTest) -> Result<RuleCondition, Unconverted> {
    let dead = |why: &str| Err(Unconverted::Dead(why.to_owned()));
    Ok(match test {
        ScopeTest::Always => RuleCondition::exact(ConditionDraft::Always, PartNeed::Host),
        ScopeTest::MoreHops(max) if *max > 1_000_000 => return dead("no URL is so many hops away"),
        ScopeTest::MoreHops(max) => RuleCondition {
            condition: ConditionDraft::is("depth", [format!("[{}:]", max + 1)]),
            need: PartNeed::Ledger,
            assumption: Some((
                "the depth that the proxy knows is Heritrix's number of hops, which counts redirects too; \
                 a URL without a known depth is not refused"
                    .to_owned(),
                AssumptionEffect::Either,
            )),
        },
        ScopeTest::MoreSlashes(max) if *max > MAX_SLASHES => {
            let why = format!("more than {MAX_SLASHES} segments");
            return Err(Unconverted::Why(why, Some("forbid: { path: { segments: … } }")));
        }
        ScopeTest::MoreSlashes(max) => {
            let expression = format!("^(?:[^/]*/){{{}}}", max + 1);
            RuleCondition::exact(ConditionDraft::test("path", "regex", [expression]), PartNeed::Url)
        }
        ScopeTest::RepeatedPath(max) => RuleCondition {
            condition: ConditionDraft::test("path", "repeats", [format!("[{}:]", max.saturating_add(1))]),
            need: PartNeed::Url,
            assumption: Some((
                "a segment that occurs so often in a path repeats in a row, and no query has repeated segments".to_owned(),
                AssumptionEffect::Either,
            )),
        },
        ScopeTest::Embedded => RuleCondition {
            condition: ConditionDraft::is("dest", ["embed"]),
            need: PartNeed::Url,
            assumption: Some((
                "what belongs to a page is requested as such (Sec-Fetch-Dest), and redirects out of the scope are not wanted"
                    .to_owned(),
                AssumptionEffect::Either,
            )),
        },
        ScopeTest::Via => RuleCondition {
            condition: ConditionDraft::test("referer", "prefix", ["http"]),
            need: PartNeed::Url,
            assumption: Some((
                "the crawler sends Referer, as Heritrix does by default".to_owned(),
                AssumptionEffect::Either,
            )),
        },
        ScopeTest::Urls(urls) if urls.is_empty() => return dead("there are no seeds"),
        ScopeTest::Urls(urls) => RuleCondition {
            condition: ConditionDraft::test("url", "exact", urls.clone()),
            need: PartNeed::Url,
            assumption: Some((
                "the seeds are those of the file, and no redirect adds another one".to_owned(),
                AssumptionEffect::RefusesMore,
            )),
        },
        ScopeTest::SchemeNotIn(schemes) => {
            let missing = ["http", "https"].iter().filter(|scheme| {
                !schemes.iter().any(|known| known == *scheme)
            });
            let missing: Vec<&str> = missing.copied().collect();
            RuleCondition::exact(ConditionDraft::is("scheme", missing), PartNeed::Host)
        }
        ScopeTest::Unknown { why, instead } => {
            return Err(Unconverted::Why(why.clone(), *instead));
        }
        ScopeTest::Surts(_) | ScopeTest::Regexes(PatternSet { .. }) | ScopeTest::Sequence(_) => {
            return dead("nothing to decide");
        }
    })
}

/// Translates an expression that must fit the whole URL.
pub(super) fn translate(pattern: &str) -> Result<ConditionDraft, String> {
    let expression = SourceExpression {
        text: pattern,
        dialect: Dialect::Java,
        anchoring: Anchoring::Whole,
        ignore_case: false,
    };
    let translated = expression.translate("url")?;
    match translated.assumption {
        None => Ok(translated.condition),
        Some((assumption, _)) => Err(format!("it would assume that {assumption}")),
    }
}

fn plain_regex(condition: &ConditionDraft) -> Option<String> {
    let ConditionDraft::Test(TestDraft {
        field,
        kind: Some("regex"),
        values,
        ignore_case: false,
    }) = condition
    else {
        return None;
    };
    match values.as_slice() {
        [value] if field == "url" => Some(value.clone()),
        _ => None,
    }
}

/// Returns a condition that never holds, for negated tests of nothing.
fn never() -> ConditionDraft {
    ConditionDraft::Not(Box::new(ConditionDraft::Always))
}

fn all_parts(rule: &ScopeRule) -> Vec<crate::report::PartId> {
    let mut parts = rule.parts.clone();
    parts.extend(rule.lines.iter().map(|(part, _)| *part));
    if let ScopeTest::Sequence(rules) = &rule.test {
        parts.extend(rules.iter().flat_map(all_parts));
    }
    parts
}

fn dead(rule: &ScopeRule, why: &str, report: &mut Report) -> RuleItem {
    for part in all_parts(rule) {
        report.dead(part, why);
    }
    RuleItem::Comment(format!("dead: {}: {why}", rule.name))
}

fn not_converted(
    rule: &ScopeRule,
    why: &str,
    instead: Option<&str>,
    report: &mut Report,
) -> RuleItem {
    let failure: MissingPart = failure_of(rule.decision);
    for part in all_parts(rule) {
        report.not_converted(part, why, failure, instead);
    }
    RuleItem::Comment(format!("not converted: {}: {why}", rule.name))
}
