//! The least time between two fetches of a URL.

use crate::draft::{GroupDraft, GuardDraft, RuleDraft};
use crate::duration::from_millis;
use crate::report::{MissingPart, PartNeed};

use super::convert::UnitWriter;
use super::duration::parse_duration;
use super::matcher::translate;
use super::read::{find, own_regex, read_matcher};
use super::tree::Setting;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
/// The interval that means never.
const NEVER: u64 = 36_500 * DAY;

impl UnitWriter<'_, '_> {
    pub(super) fn write_recrawl(&mut self) {
        let Some(setting) = find(&self.settings, &["recrawlableResolver"]) else {
            return;
        };
        let class = setting.class().unwrap_or("GenericRecrawlableResolver");
        if setting.is_null || setting.flag(&["disabled"]) == Some(true) {
            self.unrelated(setting, "off");
            return;
        }
        if !class.eq_ignore_ascii_case("GenericRecrawlableResolver") {
            let why = "the class is not known";
            let instead = Some("`recrawl.min_interval`");
            self.not_converted(setting, why, MissingPart::LetsThrough, instead);
            return;
        }
        let frame = [Some(setting), setting.get(&["class", "disabled"])];
        for part in frame.into_iter().flatten() {
            self.report.unrelated(part.part, "the frame");
        }
        if let Some(support) = setting.get(&["sitemapSupport"]) {
            if support.text.eq_ignore_ascii_case("never") {
                self.unrelated(support, "off");
            } else {
                let why = "the sitemap is known to the crawler only";
                self.not_converted(support, why, MissingPart::OtherSetting, None);
            }
        }
        let list = setting.get(&["minFrequencies"]);
        if let Some(list) = list {
            self.report.unrelated(list.part, "the frame");
        }
        let frequencies = list.unwrap_or(setting).elements();
        let frequencies = frequencies.filter(|it| it.is_item || it.name == "minFrequency");
        let mut rules = Vec::new();
        for frequency in frequencies.collect::<Vec<_>>() {
            if let Some(rule) = self.write_frequency(frequency) {
                rules.push(rule.into());
            }
        }
        self.push_first("recrawl", rules);
    }

    fn write_frequency(&mut self, frequency: &Setting) -> Option<RuleDraft> {
        let apply_to = frequency.value(&["applyTo"]).unwrap_or("reference");
        let matcher = match frequency.get(&["matcher"]) {
            Some(matcher) => read_matcher(matcher),
            None => own_regex(frequency),
        };
        let interval = frequency.value(&["value"]).and_then(interval);
        let result = if apply_to.eq_ignore_ascii_case("reference") {
            translate(&matcher, "url")
        } else {
            Err("the type is known after the fetch, and this is asked before it".to_owned())
        };
        let (condition, interval) = match (result, interval) {
            (Ok(translated), Some(interval)) => (translated.condition, interval),
            (Err(why), _) => {
                let instead = Some("a condition on the URL that these pages have in common");
                self.not_converted(frequency, &why, MissingPart::LetsThrough, instead);
                return None;
            }
            (Ok(_), None) => {
                let instead = Some("`recrawl.min_interval`");
                let why = "the value is no frequency";
                self.not_converted(frequency, why, MissingPart::LetsThrough, instead);
                return None;
            }
        };
        let id = self.ids.next(&format!("recrawl-{}", frequency.line));
        self.converted(frequency, &id, PartNeed::Ledger);
        let mut group = GroupDraft {
            guard: GuardDraft::When(condition),
            ..GroupDraft::default()
        };
        group.set.set("recrawl.min_interval", from_millis(interval));
        Some(RuleDraft::group(id, group).with_about(frequency.comment.clone()))
    }
}

fn interval(text: &str) -> Option<u64> {
    match text.to_ascii_lowercase().as_str() {
        "always" => Some(0),
        "hourly" => Some(HOUR),
        "daily" => Some(DAY),
        "weekly" => Some(7 * DAY),
        "monthly" => Some(30 * DAY),
        "yearly" => Some(365 * DAY),
        "never" => Some(NEVER),
        other => parse_duration(other).map(|millis| millis.min(NEVER)),
    }
}
