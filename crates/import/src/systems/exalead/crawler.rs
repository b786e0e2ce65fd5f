//! A crawler with its options, roots and rules.

use roxmltree::Node;

use crate::draft::{
    ConditionDraft, GroupDraft, GuardDraft, OptionDrafts, RuleDraft, RuleIds, RuleItem,
};
use crate::duration::{from_millis, from_seconds};
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};
use crate::systems::comments::comment_before;
use crate::xml::XmlSource;

use super::actions::{assignments, read_action};
use super::conditions::{AtomAssumption, condition};
use super::reading::{is_condition, read_matcher};
use super::source::{CloudViewAction, CloudViewCrawler, CloudViewRoot, CloudViewRule};

/// A crawler as it was read, and as options and rules.
pub(super) struct ConvertedCrawler {
    pub source: CloudViewCrawler,
    pub options: OptionDrafts,
    pub rules: Vec<RuleItem>,
}

/// Converts the crawlers of a file.
pub(super) struct CrawlerConversion<'c, 't> {
    xml: &'c XmlSource<'t>,
    report: &'c mut Report,
    escape: Option<bool>,
    ids: RuleIds,
}

/// Attributes of a crawler that are not a policy's business.
const UNRELATED: [(&str, &str); 17] = [
    ("name", "the name of the crawler"),
    ("fetcher", "a component of CloudView"),
    ("crawlerServer", "a component of CloudView"),
    ("buildGroup", "the index"),
    ("nthreads", "threads of the crawler"),
    ("storeTextOnly", "storage"),
    ("enableConvertProcessor", "processing of documents"),
    ("patternsDetector", "the crawler's own analysis of sites"),
    (
        "crawlSitemaps",
        "the crawler reads sitemaps, whose URLs the rules decide about like others",
    ),
    ("disableConditionalGet", "the crawler's own requests"),
    ("enableSimpleSiteCollapsing", "the index"),
    ("simpleSiteCollapsingDepth", "the index"),
    ("indexRedirectSources", "the index"),
    ("smartRefreshMaxAgeS", "a proxy starts no requests"),
    ("verbose", "the crawler's log"),
    ("version", "the frame of the configuration"),
    ("key", "the frame of the configuration"),
];

impl<'c, 't> CrawlerConversion<'c, 't> {
    pub(super) fn new(
        xml: &'c XmlSource<'t>,
        report: &'c mut Report,
        escape: Option<bool>,
    ) -> Self {
        Self {
            xml,
            report,
            escape,
            ids: RuleIds::default(),
        }
    }

    pub(super) fn convert(&mut self, element: Node<'_, '_>) -> ConvertedCrawler {
        let name = element.attribute("name").unwrap_or("crawler").to_owned();
        for attribute in element.attributes() {
            let known = UNRELATED.iter().find(|(name, _)| *name == attribute.name());
            if let (Some((_, why)), Some(part)) =
                (known, self.xml.attribute_part(element, attribute.name()))
            {
                self.report.unrelated(part, *why);
            }
        }
        let mut options = OptionDrafts::default();
        let default_accept = self.scope_options(element, &mut options);
        self.pace_options(element, &mut options);
        self.document_options(element, &mut options);
        let mut source = CloudViewCrawler {
            name,
            default_accept,
            roots: Vec::new(),
            rules: Vec::new(),
        };
        let mut rules = self.roots(element, &mut source);
        rules.extend(self.rule_groups(element, &mut source));
        ConvertedCrawler {
            source,
            options,
            rules,
        }
    }

    /// Reads a flag. One that is neither true nor false is reported, and counts as absent.
    fn flag(&mut self, element: Node<'_, '_>, name: &str) -> Option<bool> {
        let value = element.attribute(name)?;
        match value {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                if let Some(part) = self.xml.attribute_part(element, name) {
                    let why = "neither true nor false";
                    self.report
                        .not_converted(part, why, MissingPart::OtherSetting, None);
                }
                None
            }
        }
    }

    fn number(&mut self, element: Node<'_, '_>, name: &str) -> Option<u64> {
        let value = element.attribute(name)?;
        let number = value.trim().parse().ok();
        if let (None, Some(part)) = (number, self.xml.attribute_part(element, name)) {
            let why = "not a number";
            self.report
                .not_converted(part, why, MissingPart::OtherSetting, None);
        }
        number
    }

    fn became(&mut self, element: Node<'_, '_>, attribute: &str, option: &str) {
        if let Some(part) = self.xml.attribute_part(element, attribute) {
            self.report.converted(part, option, PartNeed::Url);
        }
    }

    fn scope_options(&mut self, element: Node<'_, '_>, options: &mut OptionDrafts) -> bool {
        let accept = self.flag(element, "defaultAccept");
        let index = self.flag(element, "defaultIndex");
        let follow = self.flag(element, "defaultFollow");
        let disposition = if accept == Some(true) {
            "allow"
        } else {
            "disallow"
        };
        options.set("disposition", disposition);
        options.set("index", index.unwrap_or(false));
        options.set("follow", follow.unwrap_or(false));
        for (value, attribute, option) in [
            (accept, "defaultAccept", "disposition"),
            (index, "defaultIndex", "index"),
            (follow, "defaultFollow", "follow"),
        ] {
            if value.is_some() {
                self.became(element, attribute, option);
            }
        }
        if let Some(part) = self.xml.part(element) {
            let target = PartTarget {
                name: "disposition".to_owned(),
                need: PartNeed::Url,
            };
            if accept.is_some() && index.is_some() && follow.is_some() {
                self.report.converted(part, "disposition", PartNeed::Url);
            } else {
                let text = "`defaultAccept`, `defaultIndex` and `defaultFollow` are false where they are not written";
                self.report
                    .assumed(part, target, text, AssumptionEffect::RefusesMore);
            }
        }
        accept == Some(true)
    }

    fn pace_options(&mut self, element: Node<'_, '_>, options: &mut OptionDrafts) {
        let throttle = self.number(element, "throttleTimeMS");
        let note = throttle
            .is_none()
            .then(|| "CloudView's default for throttleTimeMS".to_owned());
        let delay = from_millis(throttle.unwrap_or(2_500));
        options.set_with_note("politeness.delay", delay, note);
        options.set("politeness.concurrency", 1);
        if throttle.is_some() {
            self.became(element, "throttleTimeMS", "politeness.delay");
        }
        match self.flag(element, "aggressive") {
            Some(false) => self.became(element, "aggressive", "politeness.concurrency"),
            Some(true) => self.refuse(
                element,
                "aggressive",
                "it lifts the limit of one request at a time and the delay",
                "politeness: { delay: 0s }",
            ),
            None => {}
        }
        if let Some(ignores) = self.flag(element, "ignoreRobotsTxt") {
            options.set("robots.obey", !ignores);
            self.became(element, "ignoreRobotsTxt", "robots.obey");
        }
    }

    fn refuse(&mut self, element: Node<'_, '_>, name: &str, why: &str, instead: &str) {
        if let Some(part) = self.xml.attribute_part(element, name) {
            self.report
                .not_converted(part, why, MissingPart::OtherSetting, Some(instead));
        }
    }

    fn document_options(&mut self, element: Node<'_, '_>, options: &mut OptionDrafts) {
        let refreshes = self.flag(element, "smartRefresh");
        let age = self.number(element, "smartRefreshMinAgeS");
        let ledger = |report: &mut Report, part: Option<PartId>| {
            if let Some(part) = part {
                report.converted(part, "recrawl.min_interval", PartNeed::Ledger);
            }
        };
        if let (Some(age), true) = (age, refreshes != Some(false)) {
            options.set("recrawl.min_interval", from_seconds(age));
            for name in ["smartRefresh", "smartRefreshMinAgeS"] {
                ledger(self.report, self.xml.attribute_part(element, name));
            }
        } else {
            for name in ["smartRefresh", "smartRefreshMinAgeS"] {
                if let Some(part) = self.xml.attribute_part(element, name)
                    && !self.report.is_set(part)
                {
                    self.report
                        .unrelated(part, "no minimum age of pages that are fetched again");
                }
            }
        }
        // A page whose own directives say noindex is still followed, as with `NoIndex` and `Follow`.
        options.set("noindex", "links");
        match self.flag(element, "nearDuplicateDetector") {
            Some(false) => self.became(element, "nearDuplicateDetector", "duplicate"),
            Some(true) | None => options.set("duplicate", "links"),
        }
        if let Some(part) = self.xml.attribute_part(element, "nearDuplicateDetector")
            && !self.report.is_set(part)
        {
            let target = PartTarget {
                name: "duplicate".to_owned(),
                need: PartNeed::Document,
            };
            self.report.assumed(
                part,
                target,
                "exact duplicates are enough: near ones are not recognized",
                AssumptionEffect::Either,
            );
        }
        match element.attribute("mimeTypesMode") {
            Some("include") => self.refuse_types(element, MissingPart::LetsThrough),
            Some(_) => {
                if let Some(part) = self.xml.attribute_part(element, "mimeTypesMode") {
                    self.report.unrelated(
                        part,
                        "types that are listed are excluded, and none is listed here",
                    );
                }
            }
            None => {}
        }
    }

    fn refuse_types(&mut self, element: Node<'_, '_>, failure: MissingPart) {
        if let Some(part) = self.xml.attribute_part(element, "mimeTypesMode") {
            self.report.not_converted(
                part,
                "only documents of the listed types are kept; the form of the list is not known",
                failure,
                Some("require: { content_type: [ text/html, application/pdf ] }"),
            );
        }
    }

    /// Converts the roots: in site mode each accepts the URLs of its site.
    fn roots(&mut self, crawler: Node<'_, '_>, source: &mut CloudViewCrawler) -> Vec<RuleItem> {
        let elements = crawler.descendants();
        let elements: Vec<Node<'_, '_>> = elements
            .filter(|element| element.tag_name().name() == "Root")
            .collect();
        if let Some(part) = self.xml.attribute_part(crawler, "defaultFollowRoots") {
            if elements.is_empty() || element_is_true(crawler, "defaultFollow") {
                self.report
                    .unrelated(part, "no root has another default than other pages");
            } else {
                let why = "roots have a default of their own";
                let instead = Some("a rule for the URLs of the roots with `set: { follow: true }`");
                self.report
                    .not_converted(part, why, MissingPart::OtherSetting, instead);
            }
        }
        let mut rules = Vec::new();
        for element in elements {
            if let Some(parent) = element.parent().and_then(|parent| self.xml.part(parent))
                && !self.report.is_set(parent)
            {
                self.report.unrelated(parent, "a frame of roots");
            }
            rules.extend(self.root(element, source));
        }
        rules
    }

    fn root(&mut self, element: Node<'_, '_>, source: &mut CloudViewCrawler) -> Option<RuleItem> {
        let part = self.xml.part(element)?;
        for name in ["priority", "kvs", "group"] {
            if let Some(part) = self.xml.attribute_part(element, name) {
                self.report
                    .unrelated(part, "about the crawler's start pages");
            }
        }
        let url = element.attribute("url").unwrap_or_default();
        let is_url = url.starts_with("http://") || url.starts_with("https://");
        let is_site = element.attribute("site") != Some("false");
        for part in self.xml.own_parts(element) {
            if self.report.is_set(part) {
                continue;
            }
            if !is_site {
                self.report
                    .unrelated(part, "a start page without site mode");
            } else if !is_url {
                let why = "not a URL of HTTP";
                self.report
                    .not_converted(part, why, MissingPart::KeepsOut, None);
            }
        }
        if !is_site || !is_url {
            return None;
        }
        let line = self.line(element);
        let id = self.ids.next(&format!("root-{line}"));
        let target = PartTarget {
            name: id.clone(),
            need: PartNeed::Url,
        };
        for own in self.xml.own_parts(element) {
            if !self.report.is_set(own) {
                self.report.assumed(
                    own,
                    target.clone(),
                    "a root in site mode accepts the URLs of its site, before the rules",
                    AssumptionEffect::Either,
                );
            }
        }
        source.roots.push(CloudViewRoot {
            part,
            url: url.to_owned(),
        });
        let rule = RuleDraft::when(id, ConditionDraft::is("site", [url]), "allow");
        Some(rule.with_about(comment_before(element)).into())
    }

    fn line(&self, element: Node<'_, '_>) -> u32 {
        let part = self.xml.part(element).and_then(|it| self.report.part(it));
        part.map_or(0, |part| part.place.line)
    }

    /// Converts the groups of rules. Groups do not scope: several become groups without a condition.
    fn rule_groups(
        &mut self,
        crawler: Node<'_, '_>,
        source: &mut CloudViewCrawler,
    ) -> Vec<RuleItem> {
        let groups = crawler.children();
        let groups: Vec<Node<'_, '_>> = groups
            .filter(|element| element.tag_name().name() == "Rules")
            .collect();
        let is_nested = groups.len() > 1;
        let mut items = Vec::new();
        for element in groups {
            let name = element.attribute("group").unwrap_or("rules");
            let group_id = is_nested.then(|| self.ids.next(name));
            let rules = element.children().filter(Node::is_element);
            let rules: Vec<RuleItem> = rules
                .filter(|rule| rule.tag_name().name() == "Rule")
                .filter_map(|rule| self.rule(rule, name, source))
                .collect();
            let target = group_id.clone().unwrap_or_else(|| "rules".to_owned());
            for part in self.xml.own_parts(element) {
                self.report.converted(part, target.as_str(), PartNeed::Url);
            }
            match group_id {
                Some(id) => {
                    let group = GroupDraft {
                        rules,
                        ..GroupDraft::default()
                    };
                    let about = comment_before(element);
                    items.push(RuleDraft::group(id, group).with_about(about).into());
                }
                None => items.extend(rules),
            }
        }
        items
    }

    fn rule(
        &mut self,
        element: Node<'_, '_>,
        group: &str,
        source: &mut CloudViewCrawler,
    ) -> Option<RuleItem> {
        let part = self.xml.part(element)?;
        let (conditions, others): (Vec<_>, Vec<_>) = element
            .children()
            .filter(Node::is_element)
            .partition(|child| is_condition(child.tag_name().name()));
        let mut actions = Vec::new();
        let mut refused = Vec::new();
        for action in others {
            match read_action(action) {
                Ok(action) => actions.push(action),
                Err(why) => refused.push((action, why)),
            }
        }
        let failure = failure(&actions);
        let mut assumptions = Vec::new();
        let matcher = match conditions.as_slice() {
            [one] => read_matcher(self.xml, *one, self.escape),
            [] => Err("a rule without a condition".to_owned()),
            _ => Err("a rule with several conditions".to_owned()),
        };
        let translated = matcher.and_then(|matcher| {
            let condition = condition(&matcher, &mut assumptions)?;
            Ok((matcher, condition))
        });
        let (matcher, condition) = match translated {
            Ok(translated) => translated,
            Err(why) => {
                for part in self.xml.all_parts(element) {
                    let instead = "a rule of your own for these URLs";
                    self.report
                        .not_converted(part, why.as_str(), failure, Some(instead));
                }
                let line = self.line(element);
                return Some(RuleItem::Comment(format!(
                    "not converted: the rule in line {line}: {why}"
                )));
            }
        };
        let id = self.ids.next(&format!("{group}-{}", self.line(element)));
        for part in self.xml.all_parts(element) {
            self.report.converted(part, id.as_str(), PartNeed::Url);
        }
        self.add_assumptions(assumptions, &id);
        for (action, why) in refused {
            for part in self.xml.all_parts(action) {
                self.report
                    .not_converted(part, why.as_str(), MissingPart::OtherSetting, None);
            }
        }
        let rule = self.group(element, &id, condition, &actions);
        source.rules.push(CloudViewRule {
            part,
            matcher,
            actions,
        });
        rule
    }

    fn add_assumptions(&mut self, assumptions: Vec<AtomAssumption>, id: &str) {
        for assumption in assumptions {
            let target = PartTarget {
                name: id.to_owned(),
                need: PartNeed::Url,
            };
            self.report
                .assumed(assumption.part, target, assumption.text, assumption.effect);
        }
    }

    fn group(
        &mut self,
        element: Node<'_, '_>,
        id: &str,
        condition: ConditionDraft,
        actions: &[CloudViewAction],
    ) -> Option<RuleItem> {
        let assigned = assignments(actions);
        if assigned.then.is_none() && assigned.set.is_empty() {
            for part in self.xml.all_parts(element) {
                if self.report.is_converted(part) {
                    self.report.dead(part, "a rule without an action");
                }
            }
            return None;
        }
        for text in assigned.rewritten {
            for child in element.children().filter(Node::is_element) {
                let name = child.tag_name().name();
                let carries = matches!(name, "Source" | "AddMeta");
                if let (true, Some(part)) = (carries, self.xml.part(child)) {
                    let target = PartTarget {
                        name: id.to_owned(),
                        need: PartNeed::Url,
                    };
                    let text = format!("a header cannot carry it: {text}");
                    self.report
                        .assumed(part, target, text, AssumptionEffect::Either);
                }
            }
        }
        let group = GroupDraft {
            guard: if condition == ConditionDraft::Always {
                GuardDraft::Always
            } else {
                GuardDraft::When(condition)
            },
            then: assigned.then,
            set: assigned.set,
            ..GroupDraft::default()
        };
        let about = comment_before(element);
        Some(RuleDraft::group(id, group).with_about(about).into())
    }
}

fn element_is_true(element: Node<'_, '_>, name: &str) -> bool {
    element.attribute(name) == Some("true")
}

/// Returns what is wrong without a rule.
fn failure(actions: &[CloudViewAction]) -> MissingPart {
    let last = actions.iter().rev().find_map(|action| match action {
        CloudViewAction::Accept(accepts) => Some(*accepts),
        CloudViewAction::Index(_)
        | CloudViewAction::Follow(_)
        | CloudViewAction::Source(_)
        | CloudViewAction::Meta { .. }
        | CloudViewAction::Priority(_) => None,
    });
    match last {
        Some(true) => MissingPart::KeepsOut,
        Some(false) => MissingPart::LetsThrough,
        None => MissingPart::OtherSetting,
    }
}
