//! Conversion of settings into options.

use serde_json::{Value as Json, json};

use crate::draft::{
    ConditionDraft, GroupDraft, GuardDraft, OptionDrafts, RuleDraft, RuleIds, RuleItem,
};
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};
use crate::systems::scrapy::ScrapySetting;
use crate::systems::scrapy::python::PythonValue;

/// Returns `true` for settings that become options.
pub(super) fn is_converted(name: &str) -> bool {
    matches!(
        name,
        "DOWNLOAD_DELAY"
            | "RANDOMIZE_DOWNLOAD_DELAY"
            | "CONCURRENT_REQUESTS_PER_DOMAIN"
            | "CONCURRENT_REQUESTS_PER_IP"
            | "AUTOTHROTTLE_ENABLED"
            | "AUTOTHROTTLE_MAX_DELAY"
            | "AUTOTHROTTLE_START_DELAY"
            | "AUTOTHROTTLE_TARGET_CONCURRENCY"
            | "ROBOTSTXT_OBEY"
            | "ROBOTSTXT_USER_AGENT"
            | "DEPTH_LIMIT"
            | "DOWNLOAD_MAXSIZE"
            | "URLLENGTH_LIMIT"
            | "DOWNLOAD_SLOTS"
            | "DOWNLOADER_MIDDLEWARES"
            | "SPIDER_MIDDLEWARES"
            | "DOWNLOADER_MIDDLEWARES_BASE"
            | "SPIDER_MIDDLEWARES_BASE"
    )
}

/// Converts settings into options, and into rules for what is no option.
pub(super) fn convert(
    settings: &[ScrapySetting],
    prefix: &str,
    options: &mut OptionDrafts,
    rules: &mut Vec<RuleItem>,
    ids: &mut RuleIds,
    report: &mut Report,
) {
    let number = |name: &str| {
        settings
            .iter()
            .rev()
            .find(|setting| setting.name == name)
            .and_then(|setting| setting.value.as_number())
    };
    let throttles = settings
        .iter()
        .rev()
        .find(|setting| setting.name == "AUTOTHROTTLE_ENABLED")
        .is_some_and(|setting| setting.value == PythonValue::Bool(true));
    for setting in settings {
        if !is_converted(&setting.name) {
            report.unrelated(setting.part, "none of a policy's business");
            continue;
        }
        let outcome = match (setting.name.as_str(), &setting.value) {
            ("URLLENGTH_LIMIT", PythonValue::Number(limit)) if *limit >= 1.0 => {
                let id = ids.next(&format!("{prefix}URLLENGTH_LIMIT"));
                let length = format!("[{}:]", limit + 1.0);
                let condition = ConditionDraft::test("url", "length", [length]);
                rules.push(RuleDraft::forbid(id.as_str(), condition).into());
                report.converted(setting.part, id, PartNeed::Url);
                continue;
            }
            ("AUTOTHROTTLE_MAX_DELAY" | "AUTOTHROTTLE_TARGET_CONCURRENCY", _) if !throttles => {
                report.unrelated(setting.part, "AUTOTHROTTLE_ENABLED is not True");
                continue;
            }
            ("DOWNLOAD_SLOTS", value) => {
                let by_address =
                    number("CONCURRENT_REQUESTS_PER_IP").is_some_and(|count| count >= 1.0);
                match slots(value).filter(|_| !by_address) {
                    Some(slots) => {
                        convert_slots(slots, setting.part, prefix, rules, ids, report);
                    }
                    None => report_slots(setting.part, by_address, report),
                }
                continue;
            }
            (name, value) if name.contains("_MIDDLEWARES") => {
                convert_middlewares(value, setting.part, report);
                continue;
            }
            ("AUTOTHROTTLE_START_DELAY", _) => {
                report.unrelated(setting.part, "the delay begins with politeness.delay");
                continue;
            }
            ("ROBOTSTXT_USER_AGENT", PythonValue::None)
            | ("URLLENGTH_LIMIT" | "CONCURRENT_REQUESTS_PER_IP", PythonValue::Number(_))
            | ("AUTOTHROTTLE_ENABLED", PythonValue::Bool(false))
                if !matches!((&setting.value, setting.name.as_str()), (PythonValue::Number(count), "CONCURRENT_REQUESTS_PER_IP") if *count >= 1.0) =>
            {
                report.unrelated(setting.part, "switched off, as without it");
                continue;
            }
            (name, value) => option(name, value, &number),
        };
        match outcome {
            Some((path, value, assumption)) => {
                options.set(path, value);
                let target = PartTarget {
                    name: path.to_owned(),
                    need: need_of(path),
                };
                match assumption {
                    Some(assumption) => {
                        report.assumed(setting.part, target, assumption, AssumptionEffect::Either);
                    }
                    None => report.converted(setting.part, target.name, target.need),
                }
            }
            None => {
                let failure = if matches!(
                    setting.name.as_str(),
                    "DEPTH_LIMIT" | "DOWNLOAD_MAXSIZE" | "URLLENGTH_LIMIT"
                ) {
                    MissingPart::LetsThrough
                } else {
                    MissingPart::OtherSetting
                };
                report.not_converted(
                    setting.part,
                    format!(
                        "the value of {} is computed, or of another type",
                        setting.name
                    ),
                    failure,
                    Some("write the value as a literal"),
                );
            }
        }
    }
}

/// Returns the options of the hosts in `DOWNLOAD_SLOTS`; `None` if a value is computed or not known.
fn slots(value: &PythonValue) -> Option<Vec<(String, OptionDrafts)>> {
    let PythonValue::Dict(entries) = value else {
        return None;
    };
    let slots = entries.iter().map(|(host, slot)| {
        let PythonValue::Dict(keys) = &slot.value else {
            return None;
        };
        let mut options = OptionDrafts::default();
        for (key, argument) in keys {
            let name = match key.as_text()? {
                "concurrency" => "CONCURRENT_REQUESTS_PER_DOMAIN",
                "delay" => "DOWNLOAD_DELAY",
                "randomize_delay" => "RANDOMIZE_DOWNLOAD_DELAY",
                _ => return None,
            };
            let (path, value, _) = option(name, &argument.value, &|_| None)?;
            options.set(path, value);
        }
        let host = host.as_text()?;
        let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        (!host.is_empty() && host.chars().all(is_host)).then(|| (host.to_owned(), options))
    });
    slots.collect()
}

fn report_slots(part: PartId, by_address: bool, report: &mut Report) {
    let why = if by_address {
        "with CONCURRENT_REQUESTS_PER_IP its keys are addresses"
    } else {
        "it has values that are computed, or that are not known"
    };
    let instead = "a group `when: { host: … }` that sets politeness";
    report.not_converted(part, why, MissingPart::OtherSetting, Some(instead));
}

/// Turns slots into groups of hosts.
fn convert_slots(
    slots: Vec<(String, OptionDrafts)>,
    part: PartId,
    prefix: &str,
    rules: &mut Vec<RuleItem>,
    ids: &mut RuleIds,
    report: &mut Report,
) {
    report.unrelated(part, "empty: no host has a pace of its own");
    for (host, set) in slots {
        if set.is_empty() {
            continue;
        }
        let id = ids.next(&format!("{prefix}DOWNLOAD_SLOTS.{host}"));
        let group = GroupDraft {
            guard: GuardDraft::When(ConditionDraft::is("host", [host])),
            set,
            ..GroupDraft::default()
        };
        let target = PartTarget {
            name: id.clone(),
            need: PartNeed::Host,
        };
        rules.push(RuleDraft::group(id, group).into());
        report.assumed(
            part,
            target,
            "its keys are hosts, and no request has a slot of another name",
            AssumptionEffect::Either,
        );
    }
}

/// The middlewares of Scrapy that a policy does the work of.
const FILTERS: [&str; 4] = [
    "OffsiteMiddleware",
    "RobotsTxtMiddleware",
    "DepthMiddleware",
    "UrlLengthMiddleware",
];

/// Reports middlewares that drop requests, and filters of Scrapy that are switched off.
fn convert_middlewares(value: &PythonValue, part: PartId, report: &mut Report) {
    let PythonValue::Dict(entries) = value else {
        report.not_converted(
            part,
            "which middlewares are used is computed",
            MissingPart::LetsThrough,
            Some("write the value as a literal"),
        );
        return;
    };
    let mut own = Vec::new();
    let mut off = Vec::new();
    for (key, argument) in entries {
        let path = key.as_text().unwrap_or("a class");
        let name = path.rsplit('.').next().unwrap_or(path);
        let is_off = argument.value == PythonValue::None;
        if is_off && FILTERS.contains(&name) {
            off.push(name);
        } else if !is_off && !path.starts_with("scrapy.") {
            own.push(path);
        }
    }
    if !own.is_empty() {
        report.not_converted(
            part,
            format!("the code of {} may drop requests", own.join(", ")),
            MissingPart::LetsThrough,
            Some("rules for the requests that it drops, if it drops any"),
        );
    } else if !off.is_empty() {
        report.not_converted(
            part,
            format!(
                "{} is switched off, but the policy has what it does",
                off.join(", ")
            ),
            MissingPart::KeepsOut,
            Some("take the rule or option away from the policy"),
        );
    } else {
        report.unrelated(part, "middlewares of Scrapy");
    }
}

fn need_of(path: &str) -> PartNeed {
    match path {
        "max_depth" => PartNeed::Ledger,
        "max_body" => PartNeed::Response,
        _ => PartNeed::Host,
    }
}

/// Returns the option of a setting, its value, and what that assumes.
fn option(
    name: &str,
    value: &PythonValue,
    number: &dyn Fn(&str) -> Option<f64>,
) -> Option<(&'static str, Json, Option<&'static str>)> {
    Some(match (name, value) {
        ("DOWNLOAD_DELAY", PythonValue::Number(seconds)) if (0.0..1e6).contains(seconds) => (
            "politeness.delay",
            json!(duration(*seconds)),
            Some("it is the least time between requests (Scrapy also waits for half of it only)"),
        ),
        ("RANDOMIZE_DOWNLOAD_DELAY", PythonValue::Bool(false)) => {
            ("politeness.jitter", json!("none"), None)
        }
        ("RANDOMIZE_DOWNLOAD_DELAY", PythonValue::Bool(true)) => {
            ("politeness.jitter", json!("1.0..1.5"), None)
        }
        ("CONCURRENT_REQUESTS_PER_DOMAIN", PythonValue::Number(count))
            if (1.0..1e6).contains(count) =>
        {
            ("politeness.concurrency", json!(count.trunc() as u64), None)
        }
        ("CONCURRENT_REQUESTS_PER_IP", PythonValue::Number(count))
            if (1.0..1e6).contains(count) =>
        {
            (
                "politeness.per_address.concurrency",
                json!(count.trunc() as u64),
                None,
            )
        }
        ("AUTOTHROTTLE_ENABLED", PythonValue::Bool(true)) => {
            let target = number("AUTOTHROTTLE_TARGET_CONCURRENCY").filter(|target| *target > 0.0);
            let factor = 1.0 / target.unwrap_or(1.0);
            (
                "politeness.adaptive.factor",
                json!((factor * 1000.0).round() / 1000.0),
                None,
            )
        }
        ("AUTOTHROTTLE_TARGET_CONCURRENCY", PythonValue::Number(target)) if *target > 0.0 => (
            "politeness.adaptive.factor",
            json!((1000.0 / target).round() / 1000.0),
            None,
        ),
        ("AUTOTHROTTLE_MAX_DELAY", PythonValue::Number(seconds))
            if (0.001..1e6).contains(seconds) =>
        {
            ("politeness.adaptive.max", json!(duration(*seconds)), None)
        }
        ("ROBOTSTXT_OBEY", PythonValue::Bool(obey)) => ("robots.obey", json!(obey), None),
        ("ROBOTSTXT_USER_AGENT", PythonValue::Text(agent)) => ("robots.agent", json!(agent), None),
        ("DEPTH_LIMIT", PythonValue::Number(0.0)) => ("max_depth", json!("none"), None),
        ("DEPTH_LIMIT", PythonValue::Number(depth)) if (1.0..1e6).contains(depth) => (
            "max_depth",
            json!(depth.trunc() as u64),
            Some("the depth is known by the Referer that Scrapy sends"),
        ),
        ("DOWNLOAD_MAXSIZE", PythonValue::Number(0.0)) => ("max_body", json!("none"), None),
        ("DOWNLOAD_MAXSIZE", PythonValue::Number(size)) if (1.0..1e15).contains(size) => {
            ("max_body", json!(size_of(size.trunc() as u64)), None)
        }
        _ => return None,
    })
}

/// Writes seconds as a duration of the policy language.
fn duration(seconds: f64) -> String {
    if seconds.fract() == 0.0 {
        format!("{seconds}s")
    } else {
        format!("{}ms", (seconds * 1000.0).ceil())
    }
}

fn size_of(bytes: u64) -> String {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    format!("{bytes}B")
}
