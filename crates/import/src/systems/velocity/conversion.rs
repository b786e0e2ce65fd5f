//! The walk over a crawler's components, in document order.

use roxmltree::Node;

use crate::draft::{
    ConditionDraft, GroupDraft, GuardDraft, OptionDrafts, RuleDraft, RuleDraftBody, RuleIds,
    RuleItem,
};
use crate::input::ImportError;
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};
use crate::systems::comments::comment_before;
use crate::xml::XmlSource;

use super::options::{OptionOutcome, translate};
use super::seeds::{hosts_of, seed_text};
use super::source::{VelocityNode, VelocityTest};
use super::tests_of_urls::{condition, read_test};

/// Converts the components of a crawler.
pub(super) struct VelocityConversion<'c, 't> {
    pub xml: &'c XmlSource<'t>,
    pub report: &'c mut Report,
    pub ids: RuleIds,
    /// Start URLs that were given with the import.
    pub seeds: Option<&'c str>,
    /// The number of options that limit the length or the slashes of URLs, by name.
    pub limits: Vec<String>,
    pub has_options: bool,
}

/// The assignments of the options of a crawler or of a condition.
#[derive(Default)]
pub(super) struct AssignedOptions {
    pub disposition: Option<&'static str>,
    pub set: OptionDrafts,
    /// Filters on the form of URLs.
    pub filters: Vec<RuleItem>,
    pub limits: Vec<VelocityNode>,
    /// The last part of each name, so that an earlier one is known to have no effect.
    parts: Vec<(String, Vec<PartId>)>,
    replacements: Vec<serde_json::Value>,
}

/// The rules of an element, and the same as they were read.
#[derive(Default)]
pub(super) struct ConvertedNodes {
    pub options: AssignedOptions,
    pub rules: Vec<RuleItem>,
    pub nodes: Vec<VelocityNode>,
}

impl VelocityConversion<'_, '_> {
    /// Converts the children of the crawler, or of a condition. `owner` is the rule that assigns the options;
    /// `None` for the options of the policy.
    pub(super) fn children(
        &mut self,
        element: Node<'_, '_>,
        owner: Option<&str>,
    ) -> Result<ConvertedNodes, ImportError> {
        let mut converted = ConvertedNodes::default();
        for child in element.children().filter(Node::is_element) {
            self.component(child, owner, &mut converted)?;
        }
        Ok(converted)
    }

    /// Converts one component.
    pub(super) fn component(
        &mut self,
        child: Node<'_, '_>,
        owner: Option<&str>,
        converted: &mut ConvertedNodes,
    ) -> Result<(), ImportError> {
        match child.tag_name().name() {
            "crawl-options" if self.has_options => {
                for part in self.xml.all_parts(child) {
                    self.report
                        .dead(part, "only the first `crawl-options` counts");
                }
            }
            "crawl-options" | "curl-options" => {
                self.has_options |= child.tag_name().name() == "crawl-options";
                self.mark(&self.xml.own_parts(child), owner.unwrap_or("options"));
                for option in child.children().filter(Node::is_element) {
                    self.option(option, owner, &mut converted.options);
                }
            }
            "crawl-option" | "curl-option" => self.option(child, owner, &mut converted.options),
            "crawl-condition-when" => self.condition(child, true, converted)?,
            "crawl-condition-except" => self.condition(child, false, converted)?,
            "crawl-may-not-have" => self.filter(child, false, converted)?,
            "crawl-must-have" => self.filter(child, true, converted)?,
            "crawl-replace" => self.replace(child, owner, &mut converted.options),
            "call-function" => self.function(child, converted),
            // The pattern of a condition is read with it.
            "crawl-pattern" if owner.is_some() => {}
            "crawl-urls" | "crawl-url" => self.unrelated(child, "start URLs of the crawler"),
            "crawl-extender" => self.unrelated(child, "a program of the crawler"),
            _ => {}
        }
        Ok(())
    }

    fn mark(&mut self, parts: &[PartId], target: &str) {
        for part in parts {
            self.report.converted(*part, target, PartNeed::Url);
        }
    }

    fn unrelated(&mut self, element: Node<'_, '_>, why: &str) {
        for part in self.xml.all_parts(element) {
            self.report.unrelated(part, why);
        }
    }

    fn refuse(
        &mut self,
        element: Node<'_, '_>,
        why: &str,
        failure: MissingPart,
        instead: Option<&str>,
    ) {
        for part in self.xml.all_parts(element) {
            self.report.not_converted(part, why, failure, instead);
        }
    }

    fn line(&self, element: Node<'_, '_>) -> u32 {
        let part = self.xml.part(element).and_then(|it| self.report.part(it));
        part.map_or(0, |part| part.place.line)
    }

    /// Ends the import: a condition that is not known must not be left out by chance.
    fn unknown(&self, element: Node<'_, '_>, why: String) -> ImportError {
        let attribute = ["how", "field", "custom-field"]
            .into_iter()
            .filter(|name| why.starts_with(&format!("`{name}`")))
            .find_map(|name| self.xml.attribute_part(element, name));
        let part = attribute.or_else(|| self.xml.part(element));
        match part.and_then(|part| self.report.part(part)) {
            Some(part) => ImportError::invalid(&part.place, why),
            None => ImportError::Defect(why),
        }
    }

    fn option(
        &mut self,
        element: Node<'_, '_>,
        owner: Option<&str>,
        options: &mut AssignedOptions,
    ) {
        let Some(name) = element.attribute("name") else {
            return;
        };
        let parts = self.xml.all_parts(element);
        let value = element.text().unwrap_or_default();
        let Some(outcome) = translate(name, value) else {
            return;
        };
        let target = |path: &str| owner.unwrap_or(path).to_owned();
        match outcome {
            OptionOutcome::Disposition(disposition) => {
                options.disposition = Some(disposition);
                self.mark(&parts, &target("disposition"));
                self.remember(options, name, parts);
            }
            OptionOutcome::Set(path, value, need) => {
                options.set.set(path, value);
                for part in &parts {
                    self.report.converted(*part, target(path), need);
                }
                self.remember(options, name, parts);
            }
            OptionOutcome::SetAssuming(path, value, text, effect) => {
                options.set.set(path, value);
                self.assume(&parts, &target(path), text, effect);
                self.remember(options, name, parts);
            }
            OptionOutcome::MaxLength(length) => {
                let condition = ConditionDraft::test("url", "length", [format!("[:{length}]")]);
                self.limit(element, name, length, condition, options);
            }
            OptionOutcome::MaxSlashes(count) => {
                let condition = ConditionDraft::test("path", "segments", [format!("[:{count}]")]);
                self.limit(element, name, count, condition, options);
            }
            OptionOutcome::NoEffect(why) | OptionOutcome::Unrelated(why) => {
                self.unrelated(element, why);
            }
            OptionOutcome::NotConverted(why, failure, instead) => {
                self.refuse(element, &why, failure, instead);
            }
        }
    }

    /// Keeps the parts of an option; those of an earlier one of the same name have no effect.
    fn remember(&mut self, options: &mut AssignedOptions, name: &str, parts: Vec<PartId>) {
        let earlier = options.parts.iter_mut().find(|(known, _)| known == name);
        match earlier {
            Some((_, known)) => {
                for part in std::mem::replace(known, parts) {
                    self.report.dead(part, "the option is set again");
                }
            }
            None => options.parts.push((name.to_owned(), parts)),
        }
    }

    fn assume(&mut self, parts: &[PartId], name: &str, text: &str, effect: AssumptionEffect) {
        for part in parts {
            let target = PartTarget {
                name: name.to_owned(),
                need: PartNeed::Url,
            };
            self.report.assumed(*part, target, text, effect);
        }
    }

    /// Converts a limit of the form of URLs, which a filter says only if it is set once.
    fn limit(
        &mut self,
        element: Node<'_, '_>,
        name: &str,
        max: u64,
        condition: ConditionDraft,
        options: &mut AssignedOptions,
    ) {
        if self.limits.iter().filter(|known| *known == name).count() > 1 {
            let why = "a limit that is set in several places";
            let instead = "require: { url: { length: '[:N]' } } in one of the rules";
            self.refuse(element, why, MissingPart::LetsThrough, Some(instead));
            return;
        }
        let id = self.ids.next(name);
        let parts = self.xml.all_parts(element);
        let counts_slashes = name == "max-slashes";
        options
            .limits
            .extend(parts.first().map(|part| VelocityNode::Limit {
                part: *part,
                max,
                counts_slashes,
            }));
        if counts_slashes {
            let text = "slashes separate the segments of the path";
            self.assume(&parts, &id, text, AssumptionEffect::Either);
        } else {
            self.mark(&parts, &id);
        }
        options
            .filters
            .push(RuleDraft::require(id, condition).into());
    }

    fn test(
        &mut self,
        element: Node<'_, '_>,
        id: &str,
    ) -> Result<(VelocityTest, Result<ConditionDraft, String>), ImportError> {
        let test = read_test(element).map_err(|why| self.unknown(element, why))?;
        let parts = self.xml.own_parts(element);
        let pattern = element
            .children()
            .filter(|child| child.tag_name().name() == "crawl-pattern");
        let patterns: Vec<PartId> = pattern.flat_map(|it| self.xml.all_parts(it)).collect();
        let translated = condition(&test).map(|translated| {
            self.mark(&parts, id);
            if translated.drops_port {
                let text = "URLs carry no default port, which Velocity writes into its keys";
                self.assume(&patterns, id, text, AssumptionEffect::Either);
            } else {
                self.mark(&patterns, id);
            }
            translated.condition
        });
        Ok((test, translated))
    }

    fn condition(
        &mut self,
        element: Node<'_, '_>,
        applies_if_matched: bool,
        converted: &mut ConvertedNodes,
    ) -> Result<(), ImportError> {
        let Some(part) = self.xml.part(element) else {
            return Ok(());
        };
        let word = if applies_if_matched { "when" } else { "except" };
        let line = self.line(element);
        let id = self.ids.next(&format!("{word}-{line}"));
        let (test, condition) = self.test(element, &id)?;
        let inner = self.children(element, Some(&id))?;
        let condition = match condition {
            Ok(condition) => condition,
            Err(why) => {
                let failure = match inner.options.disposition {
                    Some("allow") => MissingPart::KeepsOut,
                    Some(_) | None => MissingPart::LetsThrough,
                };
                self.refuse(element, &why, failure, Some("a group of your own"));
                let text = format!("not converted: the condition in line {line}: {why}");
                converted.rules.push(RuleItem::Comment(text));
                return Ok(());
            }
        };
        let mut rules = inner.options.filters;
        rules.extend(inner.rules);
        let group = GroupDraft {
            guard: match (applies_if_matched, condition) {
                (true, ConditionDraft::Always) => GuardDraft::Always,
                (true, condition) => GuardDraft::When(condition),
                (false, condition) => GuardDraft::Unless(condition),
            },
            then: inner.options.disposition,
            set: inner.options.set,
            rules,
            ..GroupDraft::default()
        };
        let has_effect = group.then.is_some() || !group.set.is_empty() || !group.rules.is_empty();
        if has_effect {
            let rule = RuleDraft::group(id, group).with_about(comment_before(element));
            converted.rules.push(rule.into());
        } else {
            self.drop_empty(element);
        }
        converted.nodes.push(VelocityNode::Condition {
            part,
            applies_if_matched,
            test,
            allows: inner.options.disposition.map(|it| it == "allow"),
            nodes: inner
                .options
                .limits
                .into_iter()
                .chain(inner.nodes)
                .collect(),
        });
        Ok(())
    }

    fn drop_empty(&mut self, element: Node<'_, '_>) {
        for part in self.xml.all_parts(element) {
            if self.report.is_converted(part) {
                self.report
                    .dead(part, "a condition without options or rules");
            }
        }
    }

    fn filter(
        &mut self,
        element: Node<'_, '_>,
        must_match: bool,
        converted: &mut ConvertedNodes,
    ) -> Result<(), ImportError> {
        let Some(part) = self.xml.part(element) else {
            return Ok(());
        };
        let word = if must_match {
            "must-have"
        } else {
            "may-not-have"
        };
        let line = self.line(element);
        let id = self.ids.next(&format!("{word}-{line}"));
        let (test, condition) = self.test(element, &id)?;
        let condition = match condition {
            Ok(condition) => condition,
            Err(why) => {
                let instead = Some("a filter of your own");
                self.refuse(element, &why, MissingPart::LetsThrough, instead);
                let text = format!("not converted: the filter in line {line}: {why}");
                converted.rules.push(RuleItem::Comment(text));
                return Ok(());
            }
        };
        let mut rule = match must_match {
            true => RuleDraft::require(id, condition),
            false => RuleDraft::forbid(id, condition),
        };
        if let RuleDraftBody::Filter(filter) = &mut rule.body {
            filter.log = self.logs(element);
        }
        let rule = rule.with_about(comment_before(element));
        converted.rules.push(rule.into());
        converted.nodes.push(VelocityNode::Filter {
            part,
            must_match,
            test,
        });
        Ok(())
    }

    fn logs(&mut self, element: Node<'_, '_>) -> bool {
        match element.attribute("log") {
            Some("log" | "true") => true,
            None | Some("false" | "") => false,
            Some(_) => {
                if let Some(part) = self.xml.attribute_part(element, "log") {
                    let why = "not `log`";
                    let failure = MissingPart::OtherSetting;
                    self.report
                        .not_converted(part, why, failure, Some("log: true"));
                }
                false
            }
        }
    }

    fn replace(
        &mut self,
        element: Node<'_, '_>,
        owner: Option<&str>,
        options: &mut AssignedOptions,
    ) {
        let this = element.attribute("this").unwrap_or_default();
        let that = element.attribute("that").unwrap_or_default();
        if this.is_empty() || that.contains(this) {
            let why = "a replacement that changes its own result again";
            self.refuse(element, why, MissingPart::OtherSetting, None);
            return;
        }
        options.replacements.push(serde_json::json!({
            "regex": regex_syntax::escape(this),
            "with": that.replace('$', "$$"),
        }));
        let replacements = options.replacements.clone();
        options.set.set("replace", replacements);
        let parts = self.xml.all_parts(element);
        let text = "`this` is plain text; the crawler rewrites URLs itself, here both forms count as one page";
        let target = owner.unwrap_or("replace").to_owned();
        self.assume(&parts, &target, text, AssumptionEffect::Either);
    }

    fn function(&mut self, element: Node<'_, '_>, converted: &mut ConvertedNodes) {
        let name = element.attribute("name").unwrap_or_default();
        if name != "vse-crawler-seed-urls" {
            let why = format!("the body of `{name}` is in the product");
            let instead = Some("paste the XML that \"view resolved\" shows in its place");
            self.refuse(element, &why, MissingPart::LetsThrough, instead);
            let line = self.line(element);
            let text = format!("not converted: line {line}: {why}");
            converted.rules.push(RuleItem::Comment(text));
            return;
        }
        let Some(part) = self.xml.part(element) else {
            return;
        };
        let urls = seed_text(element);
        let urls = urls.or(self.seeds).unwrap_or_default();
        let hosts = hosts_of(urls);
        if hosts.is_empty() {
            let why = "no start URLs of HTTP";
            let instead = Some("--seeds FILE");
            self.refuse(element, why, MissingPart::KeepsOut, instead);
            return;
        }
        let id = self.ids.next(&format!("seeds-{}", self.line(element)));
        let mut group = GroupDraft {
            guard: GuardDraft::When(ConditionDraft::all(vec![
                ConditionDraft::is("scheme", ["http", "https"]),
                ConditionDraft::is("domain", hosts.iter()),
            ])),
            then: Some("allow"),
            ..GroupDraft::default()
        };
        self.mark(&self.xml.own_parts(element), &id);
        for with in element.children().filter(Node::is_element) {
            let parts = self.xml.all_parts(with);
            let hops = with.text().and_then(|text| text.trim().parse::<u64>().ok());
            match (with.attribute("name"), hops) {
                (Some("urls"), _) => self.mark(&parts, &id),
                (Some("hops"), Some(hops)) => {
                    group.set.set("max_depth", hops);
                    for part in parts {
                        self.report.converted(part, id.as_str(), PartNeed::Ledger);
                    }
                }
                _ => {}
            }
        }
        converted.nodes.push(VelocityNode::Seeds { part, hosts });
        let rule = RuleDraft::group(id, group).with_about(comment_before(element));
        converted.rules.push(rule.into());
    }
}
