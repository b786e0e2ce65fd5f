//! Conversion: one group for what belongs to pages, and one for pages.

use crate::draft::{
    ConditionDraft, GroupDraft, GuardDraft, OptionDrafts, PolicyDraft, RuleDraft, RuleIds,
};
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};

use super::pages::PageConverter;
use super::resources::{convert_ads, convert_blocks};
use super::source::BrowsertrixCrawl;

/// The group of the rules for pages.
pub(super) const PAGES: &str = "pages";

/// The difference of every crawl: what Browsertrix does with URLs before it compares them, and with redirects.
const NORMAL_FORM: &str = "pages are requested in the form in which Browsertrix compares them (parameters sorted, without utm_…, without doubled slashes and needless escapes), and none in scope redirects to one that is not";

pub(super) fn convert(crawl: &BrowsertrixCrawl, policy: &mut PolicyDraft, report: &mut Report) {
    let mut ids = RuleIds::default();
    policy.options.set("disposition", "disallow");
    let robots = convert_robots(crawl, policy, report);
    convert_ads(crawl, policy, &mut ids, report);
    let resources = ids.next("resources");
    let pages = ids.next(PAGES);
    let group = GroupDraft {
        guard: GuardDraft::When(is_resource()),
        then: Some("allow"),
        rules: convert_blocks(&crawl.blocks, &mut ids, report),
        set: robots,
        ..GroupDraft::default()
    };
    let about = "a scope is about pages, not about what belongs to them".to_owned();
    let group = RuleDraft::group(resources, group).with_about(Some(about));
    policy.rules.push(group.into());
    let mut converter = PageConverter::new(crawl, policy, report, ids);
    let mut group = converter.convert();
    group.guard = GuardDraft::Unless(is_resource());
    policy.rules.push(RuleDraft::group(pages, group).into());
    // Where no key names seeds, they are given with --seeds.
    if let Some(first) = crawl.seeds.first() {
        assume_normal_form(crawl.seeds_part.unwrap_or(first.part), report);
    }
}

fn is_resource() -> ConditionDraft {
    ConditionDraft::is("dest", ["embed"])
}

fn assume_normal_form(part: PartId, report: &mut Report) {
    let target = PartTarget {
        name: "disposition".to_owned(),
        need: PartNeed::Url,
    };
    report.assumed(part, target, NORMAL_FORM, AssumptionEffect::RefusesMore);
}

/// Sets the options of robots.txt. Returns those for what belongs to pages.
fn convert_robots(
    crawl: &BrowsertrixCrawl,
    policy: &mut PolicyDraft,
    report: &mut Report,
) -> OptionDrafts {
    let mut of_resources = OptionDrafts::default();
    let obeys = crawl.robots.is_some_and(|(_, obeys)| obeys);
    if let Some((part, _)) = crawl.robots {
        report.converted(part, "robots.obey", PartNeed::Host);
    }
    if obeys {
        policy.options.set("robots.obey", true);
        of_resources.set("robots.obey", false);
    } else {
        let note = "Browsertrix obeys robots.txt only with useRobots".to_owned();
        policy
            .options
            .set_with_note("robots.obey", false, Some(note));
    }
    let given = crawl.robots_agent.as_ref();
    if !obeys {
        if let Some((part, _)) = given {
            report.unrelated(*part, "robots.txt is not obeyed");
        }
        return of_resources;
    }
    let text = given.map_or("Browsertrix/1.x", |(_, text)| text);
    let name = text.split('/').next().unwrap_or(text);
    let is_token = |c: char| c.is_ascii_alphabetic() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(is_token) {
        policy.options.set("robots.agent", name);
        if let Some((part, _)) = given {
            report.converted(*part, "robots.agent", PartNeed::Host);
        }
    } else if let Some((part, _)) = given {
        report.not_converted(
            *part,
            "a name in robots.txt consists of letters, `-` and `_`",
            MissingPart::OtherSetting,
            Some("`robots.agent` with the name that sites know"),
        );
    }
    of_resources
}
