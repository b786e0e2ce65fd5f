//! Settings of beans as options: politeness, robots.txt, limits.

use serde_json::{Value as Json, json};

use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};

/// The outcome of a property.
pub(super) enum SettingOutcome {
    Options(Vec<(&'static str, Json)>),
    Assumed(Vec<(&'static str, Json)>, &'static str, AssumptionEffect),
    NotConverted(String, MissingPart, Option<&'static str>),
    Unrelated(&'static str),
}

/// Returns the outcome of a property of a class.
pub(super) fn convert_setting(class: &str, name: &str, text: &str) -> SettingOutcome {
    let number = read_number(text);
    match (class, name) {
        ("DispositionProcessor", "delayFactor") => match text.parse::<f64>() {
            Ok(factor) if (0.0..=1_000.0).contains(&factor) => SettingOutcome::Assumed(
                vec![("politeness.adaptive.factor", json_number(factor))],
                "an answer takes as long as its head: the proxy measures up to that",
                AssumptionEffect::Either,
            ),
            Ok(_) | Err(_) => not_a_number(text),
        },
        ("DispositionProcessor", "minDelayMs") => match number {
            Ok(ms) => SettingOutcome::Options(vec![
                ("politeness.delay", duration(ms)),
                ("politeness.adaptive.min", duration(ms)),
            ]),
            Err(_) => not_a_number(text),
        },
        ("DispositionProcessor", "maxDelayMs") => match number {
            Ok(ms) => SettingOutcome::Options(vec![("politeness.adaptive.max", duration(ms))]),
            Err(_) => not_a_number(text),
        },
        ("DispositionProcessor", "respectCrawlDelayUpToSeconds") => match number {
            Ok(seconds) => SettingOutcome::Options(vec![(
                "robots.crawl_delay_cap",
                duration(seconds.saturating_mul(1_000)),
            )]),
            Err(_) => not_a_number(text),
        },
        ("DispositionProcessor", "maxPerHostBandwidthUsageKbSec") => match number {
            Ok(0) => SettingOutcome::Unrelated("no limit"),
            Ok(kib) => SettingOutcome::Options(vec![(
                "politeness.bytes_per_second",
                json!(format!("{kib}KiB")),
            )]),
            Err(_) => not_a_number(text),
        },
        ("DispositionProcessor", "forceRetire") => retire(text),
        ("CrawlMetadata", "robotsPolicyName") => robots_policy(text),
        ("FetchHTTP", name) => fetch_setting(name, text),
        ("BdbFrontier", "queueTotalBudget") | ("CrawlLimitEnforcer", _) | ("QuotaEnforcer", _) => {
            quota(name, text)
        }
        _ => SettingOutcome::Unrelated("not about which URLs are requested, or how fast"),
    }
}

/// The greatest number that an option takes: years in milliseconds.
const MAX_NUMBER: u64 = 1 << 40;

/// Reads a number of a setting.
pub(super) fn read_number(text: &str) -> Result<u64, ()> {
    let number = text.parse::<u64>().map_err(|_| ())?;
    if number > MAX_NUMBER {
        Err(())
    } else {
        Ok(number)
    }
}

fn robots_policy(text: &str) -> SettingOutcome {
    match text {
        "obey" | "classic" | "robotsTxtOnly" => {
            SettingOutcome::Options(vec![("robots.obey", json!(true))])
        }
        "ignore" => SettingOutcome::Options(vec![("robots.obey", json!(false))]),
        "firstNamed" | "mostFavored" | "mostFavoredSet" => SettingOutcome::Assumed(
            vec![("robots.obey", json!(true))],
            "the rules for the crawler's own name apply, not those for other names",
            AssumptionEffect::RefusesMore,
        ),
        other => SettingOutcome::NotConverted(
            format!("not a known policy on robots.txt: {other}"),
            MissingPart::OtherSetting,
            Some("robots: { obey: … }"),
        ),
    }
}

fn fetch_setting(name: &str, text: &str) -> SettingOutcome {
    let number = read_number(text);
    match (name, number) {
        ("maxLengthBytes", Ok(0)) => SettingOutcome::Unrelated("no limit"),
        ("maxLengthBytes", Ok(bytes)) => SettingOutcome::Assumed(
            vec![("max_body", size(bytes))],
            "an answer that is too long is not wanted at all: Heritrix keeps its beginning",
            AssumptionEffect::RefusesMore,
        ),
        ("timeoutSeconds", Ok(seconds)) => SettingOutcome::Options(vec![(
            "timeouts.request",
            duration(seconds.saturating_mul(1_000)),
        )]),
        ("soTimeoutMs", Ok(ms)) => SettingOutcome::Options(vec![
            ("timeouts.response_head", duration(ms)),
            ("timeouts.body_idle", duration(ms)),
        ]),
        ("maxLengthBytes" | "timeoutSeconds" | "soTimeoutMs", Err(_)) => not_a_number(text),
        ("sslTrustLevel", _) if text == "OPEN" => SettingOutcome::NotConverted(
            "certificates of origins are verified here".to_owned(),
            MissingPart::OtherSetting,
            Some("verify: skip"),
        ),
        ("shouldFetchBodyRule", _) => SettingOutcome::NotConverted(
            "a rule about answers".to_owned(),
            MissingPart::LetsThrough,
            Some("forbid: { content_type: … }"),
        ),
        _ => SettingOutcome::Unrelated("not about which URLs are requested, or how fast"),
    }
}

fn quota(name: &str, text: &str) -> SettingOutcome {
    let is_off = text.starts_with('-') || text == "0" || !name.to_lowercase().contains(['m', 'b']);
    let is_limit = name.contains("Max") || name.starts_with("max") || name == "queueTotalBudget";
    if !is_limit || is_off {
        return SettingOutcome::Unrelated("no limit");
    }
    SettingOutcome::NotConverted(
        "a limit of the whole crawl: the proxy counts per day".to_owned(),
        MissingPart::LetsThrough,
        Some("budget: { urls: … } or { bytes: … }"),
    )
}

fn retire(text: &str) -> SettingOutcome {
    if !text.eq_ignore_ascii_case("true") {
        return SettingOutcome::Unrelated("no effect");
    }
    SettingOutcome::NotConverted(
        "the proxy cannot retire a queue of the crawler".to_owned(),
        MissingPart::LetsThrough,
        Some("a rule that forbids these URLs"),
    )
}

fn not_a_number(text: &str) -> SettingOutcome {
    SettingOutcome::NotConverted(
        format!("not a number that an option takes: {text}"),
        MissingPart::OtherSetting,
        None,
    )
}

/// Sets the outcome of the parts of a property. Returns the options that it sets.
pub(super) fn record(
    outcome: SettingOutcome,
    parts: &[PartId],
    rule: Option<&str>,
    report: &mut Report,
) -> Vec<(&'static str, Json)> {
    let target = |options: &[(&'static str, Json)]| {
        let option = options
            .first()
            .map_or("politeness.adaptive", |(path, _)| *path);
        rule.unwrap_or(option).to_owned()
    };
    match outcome {
        SettingOutcome::Options(options) => {
            for part in parts {
                report.converted(*part, target(&options), PartNeed::Host);
            }
            options
        }
        SettingOutcome::Assumed(options, assumption, effect) => {
            for part in parts {
                let target = PartTarget {
                    name: target(&options),
                    need: PartNeed::Host,
                };
                report.assumed(*part, target, assumption, effect);
            }
            options
        }
        SettingOutcome::NotConverted(why, failure, instead) => {
            for part in parts {
                report.not_converted(*part, &why, failure, instead);
            }
            Vec::new()
        }
        SettingOutcome::Unrelated(why) => {
            for part in parts {
                report.unrelated(*part, why);
            }
            Vec::new()
        }
    }
}

/// Writes a number of bytes in the largest unit that fits.
fn size(bytes: u64) -> Json {
    json!(match bytes {
        bytes if bytes % (1 << 20) == 0 => format!("{}MiB", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("{}KiB", bytes >> 10),
        bytes => format!("{bytes}B"),
    })
}

/// Writes a time in the largest unit that fits.
pub(super) fn duration(ms: u64) -> Json {
    let text = match ms {
        ms if ms % 1_000 != 0 => format!("{ms}ms"),
        ms if ms % 60_000 != 0 || ms == 0 => format!("{}s", ms / 1_000),
        ms if ms % 3_600_000 != 0 => format!("{}m", ms / 60_000),
        ms => format!("{}h", ms / 3_600_000),
    };
    json!(text)
}

/// Writes a whole number without a fraction.
fn json_number(number: f64) -> Json {
    let text = number.to_string();
    text.parse::<u64>()
        .map_or_else(|_| json!(number), |whole| json!(whole))
}
