//! Delays between two pages.

use serde_json::{Map, Value as Json, json};

use crate::draft::{GroupDraft, RuleDraft};
use crate::duration::from_millis;
use crate::report::{AssumptionEffect, MissingPart, PartNeed, PartTarget};

use super::convert::UnitWriter;
use super::duration::parse_duration;
use super::matcher::translate;
use super::model::{MatchMethod, TextMatcher};
use super::read::find;
use super::tree::Setting;

const DELAY: &str = "politeness.delay";

impl UnitWriter<'_, '_> {
    pub(super) fn write_delay(&mut self) {
        let Some(setting) = find(&self.settings, &["delay", "delayResolver"]) else {
            return;
        };
        let class = setting.class().unwrap_or("GenericDelayResolver");
        let class = class.to_ascii_lowercase();
        let is_by_reference = class == "referencedelayresolver";
        if !is_by_reference
            && !matches!(
                class.as_str(),
                "genericdelayresolver" | "defaultdelayresolver"
            )
        {
            let why = "the class is not known";
            let instead = Some("`politeness.delay`");
            self.not_converted(setting, why, MissingPart::OtherSetting, instead);
            return;
        }
        self.write_default_delay(setting);
        self.write_crawl_delay(setting);
        self.write_delay_scope(setting);
        if is_by_reference {
            self.write_delay_patterns(setting);
        } else {
            self.write_schedules(setting);
        }
    }

    fn write_default_delay(&mut self, setting: &Setting) {
        let given = setting.get(&["default", "defaultDelay"]);
        let millis = match given {
            Some(given) => parse_duration(&given.text),
            None => Some(3_000),
        };
        match millis {
            Some(millis) => {
                self.options.set(DELAY, from_millis(millis));
                self.options.set("politeness.jitter", "none");
                let parts = [Some(setting), setting.get(&["class"]), given];
                for part in parts.into_iter().flatten() {
                    self.report.converted(part.part, DELAY, PartNeed::Url);
                }
            }
            None => {
                self.report.converted(setting.part, DELAY, PartNeed::Url);
                if let Some(given) = given {
                    let why = "not a duration";
                    self.not_converted(given, why, MissingPart::OtherSetting, Some(DELAY));
                }
            }
        }
    }

    fn write_crawl_delay(&mut self, setting: &Setting) {
        let Some(flag) = setting.get(&["ignoreRobotsCrawlDelay"]) else {
            return;
        };
        if flag.text.eq_ignore_ascii_case("true") {
            self.options.set("robots.crawl_delay_cap", "0s");
            self.options.set("politeness.request_rate", "ignore");
            self.converted(flag, "robots.crawl_delay_cap", PartNeed::Url);
        } else {
            self.unrelated(flag, "the longer of both delays applies, as by default");
        }
    }

    /// A delay is kept for each host, which is the scope `site`.
    fn write_delay_scope(&mut self, setting: &Setting) {
        let scope = setting.get(&["scope"]);
        if let Some(scope) = scope.filter(|scope| scope.text.eq_ignore_ascii_case("site")) {
            self.converted(scope, DELAY, PartNeed::Url);
            return;
        }
        let target = PartTarget {
            name: DELAY.to_owned(),
            need: PartNeed::Url,
        };
        let assumption = "each host has the delay for itself; in Norconex it is one for all hosts, or for each thread";
        let effect = AssumptionEffect::Either;
        let part = scope.unwrap_or(setting).part;
        self.report.assumed(part, target, assumption, effect);
    }

    /// `ReferenceDelayResolver`: the first expression that fits the URL gives the delay.
    fn write_delay_patterns(&mut self, setting: &Setting) {
        let list = setting.get(&["delayReferencePatterns", "patterns"]);
        if let Some(list) = list {
            self.report.converted(list.part, DELAY, PartNeed::Url);
        }
        let patterns = list.unwrap_or(setting).elements();
        let patterns =
            patterns.filter(|it| it.is_item || it.name.to_ascii_lowercase().ends_with("pattern"));
        let mut rules = Vec::new();
        for pattern in patterns.collect::<Vec<_>>() {
            let matcher = TextMatcher {
                method: MatchMethod::Regex,
                pattern: pattern
                    .value(&["pattern"])
                    .unwrap_or(&pattern.text)
                    .to_owned(),
                ..TextMatcher::default()
            };
            let delay = match pattern.value(&["delay"]) {
                Some(delay) => parse_duration(delay),
                None => Some(3_000),
            };
            let translated = translate(&matcher, "url");
            let (Some(delay), Ok(translated)) = (delay, translated) else {
                let why = "the expression or the delay is not readable";
                self.not_converted(pattern, why, MissingPart::OtherSetting, Some(DELAY));
                continue;
            };
            let id = self.ids.next(&format!("delay-{}", pattern.line));
            self.converted(pattern, &id, PartNeed::Url);
            let mut group = GroupDraft {
                guard: crate::draft::GuardDraft::When(translated.condition),
                ..GroupDraft::default()
            };
            group.set.set(DELAY, from_millis(delay));
            let rule = RuleDraft::group(id, group).with_about(pattern.comment.clone());
            rules.push(rule.into());
        }
        self.push_first("delays", rules);
    }

    /// Adds rules of which the first that applies counts.
    pub(super) fn push_first(&mut self, name: &str, rules: Vec<crate::draft::RuleItem>) {
        if rules.is_empty() {
            return;
        }
        let id = self.ids.next(name);
        let group = GroupDraft {
            first: rules.len() > 1,
            rules,
            ..GroupDraft::default()
        };
        self.rules.push(RuleDraft::group(id, group).into());
    }

    /// Windows: in Norconex the first that applies counts, here the last.
    fn write_schedules(&mut self, setting: &Setting) {
        let list = setting.get(&["schedules"]);
        if let Some(list) = list {
            let name = "politeness.schedule";
            self.report.converted(list.part, name, PartNeed::Url);
        }
        let schedules = list.unwrap_or(setting).elements();
        let schedules = schedules.filter(|it| it.is_item || it.name == "schedule");
        let mut windows = Vec::new();
        for schedule in schedules.collect::<Vec<_>>() {
            match read_window(schedule) {
                Ok(window) => {
                    for part in schedule.parts() {
                        let target = PartTarget {
                            name: "politeness.schedule".to_owned(),
                            need: PartNeed::Url,
                        };
                        let assumption =
                            "the hours are of UTC; Norconex takes those of its machine";
                        let effect = AssumptionEffect::Either;
                        self.report.assumed(part, target, assumption, effect);
                    }
                    windows.push(Json::Object(window));
                }
                Err(why) => {
                    let instead = Some("`politeness.schedule`");
                    self.not_converted(schedule, why, MissingPart::OtherSetting, instead);
                }
            }
        }
        if !windows.is_empty() {
            windows.reverse();
            self.options
                .set("politeness.schedule", Json::Array(windows));
        }
    }
}

fn read_window(schedule: &Setting) -> Result<Map<String, Json>, &'static str> {
    if range(schedule, "dayOfMonth").is_some() {
        return Err("a window has days of the week, not of the month");
    }
    let mut window = Map::new();
    if let Some((from, to)) = range(schedule, "dayOfWeek") {
        window.insert("days".to_owned(), json!(days(&from, &to)?));
    }
    if let Some((from, to)) = range(schedule, "time") {
        let hours = format!("{}-{}", clock(&from)?, clock(&to)?);
        window.insert("hours".to_owned(), json!(hours));
    }
    let delay = schedule.value(&["delay"]).unwrap_or(&schedule.text);
    let delay = parse_duration(delay).ok_or("not a duration")?;
    window.insert("delay".to_owned(), json!(from_millis(delay)));
    Ok(window)
}

/// Reads `from X to Y`, or the elements `start` and `end` of version 4.
fn range(schedule: &Setting, name: &str) -> Option<(String, String)> {
    let ranged = format!("{name}Range");
    let setting = schedule.get(&[name, &ranged])?;
    let bounds = setting.value(&["start"]).zip(setting.value(&["end"]));
    let (from, to) = match bounds {
        Some(bounds) => bounds,
        None => {
            let text = setting.text.trim();
            let text = text.strip_prefix("from ").unwrap_or(text);
            text.split_once(" to ")?
        }
    };
    Some((from.trim().to_owned(), to.trim().to_owned()))
}

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

fn days(from: &str, to: &str) -> Result<Vec<&'static str>, &'static str> {
    let index = |day: &str| {
        let day = day.to_ascii_lowercase();
        DAYS.iter()
            .position(|known| day.starts_with(known))
            .ok_or("not a day of the week")
    };
    let (from, to) = (index(from)?, index(to)?);
    let last = if to < from { to + DAYS.len() } else { to };
    let days = (from..=last).filter_map(|at| DAYS.get(at % DAYS.len()).copied());
    Ok(days.collect())
}

fn clock(text: &str) -> Result<String, &'static str> {
    let (hours, minutes) = text.split_once(':').unwrap_or((text, "00"));
    let minutes = minutes.split(':').next().unwrap_or(minutes);
    let number = |text: &str, max: u8| {
        let number = text.trim().parse::<u8>().ok();
        number.filter(|number| *number <= max).ok_or("not a time")
    };
    Ok(format!(
        "{:02}:{:02}",
        number(hours, 23)?,
        number(minutes, 59)?
    ))
}
