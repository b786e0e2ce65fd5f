//! Options of a crawler and of conditions.

use serde_json::{Value as Json, json};

use crate::duration::{from_millis, from_seconds};
use crate::report::{AssumptionEffect, MissingPart, PartNeed};

/// The translation of an option.
pub(super) enum OptionOutcome {
    /// `default-allow`.
    Disposition(&'static str),
    /// An option of the policy.
    Set(&'static str, Json, PartNeed),
    /// An option of the policy, under an assumption.
    SetAssuming(&'static str, Json, &'static str, AssumptionEffect),
    /// A limit of the length or the number of slashes of URLs, which becomes a filter.
    MaxLength(u64),
    MaxSlashes(u64),
    /// It has its default, which is no limit.
    NoEffect(&'static str),
    NotConverted(String, MissingPart, Option<&'static str>),
    Unrelated(&'static str),
}

const UNRELATED: [(&str, &str); 26] = [
    ("crawl-strategy", "the order of the crawler's own requests"),
    ("max-redirs", "the crawler's own requests"),
    ("internal-max-redirs", "the crawler's own requests"),
    ("max-data-size", "conversion of documents"),
    ("uncrawled-expires", "the crawler's own records"),
    ("log", "the crawler's log"),
    ("audit-log", "the crawler's log"),
    ("user-agent", "the crawler sends it itself"),
    ("method", "the crawler sends it itself"),
    ("header", "the crawler sends it itself"),
    ("cookie", "the crawler sends it itself"),
    ("referer", "the crawler sends it itself"),
    ("http-auth", "the crawler sends it itself"),
    ("user-password", "the crawler sends it itself"),
    ("proxy", "where the crawler connects: to crawlgate now"),
    ("proxy-port", "where the crawler connects: to crawlgate now"),
    (
        "proxy-user-password",
        "where the crawler connects: to crawlgate now",
    ),
    ("enable-fetch-compression", "the crawler's own requests"),
    ("idle-running-time", "the run of the crawler"),
    ("n-fetch-threads", "threads of the crawler"),
    ("max-input-urls", "start URLs of the crawler"),
    ("disable-url-normalization", "the crawler's own keys"),
    ("recrawl-errors", "the run of the crawler"),
    ("force-recrawl", "the run of the crawler"),
    ("default-content-type", "conversion of documents"),
    ("forced-content-type", "conversion of documents"),
];

/// Translates an option. `None` for a name that is not known.
pub(super) fn translate(name: &str, value: &str) -> Option<OptionOutcome> {
    if let Some((_, why)) = UNRELATED.iter().find(|(known, _)| *known == name) {
        return Some(OptionOutcome::Unrelated(why));
    }
    let value = value.trim();
    let outcome = match name {
        "default-allow" => disposition(value),
        "ignore-robots" => flag(value, |on| set("robots.obey", json!(!on), PartNeed::Url)),
        "filter-exact-duplicates" => flag(value, |on| match on {
            true => set("duplicate", json!("reject"), PartNeed::Document),
            false => OptionOutcome::NoEffect("duplicates are not filtered"),
        }),
        "remove-cgi-parameters" => OptionOutcome::SetAssuming(
            "strip_params",
            value
                .split([',', ';', ' ', '\n', '\t'])
                .filter(|name| !name.is_empty())
                .collect::<Vec<_>>()
                .into(),
            "names are separated by commas or white space; the crawler leaves the parameters out itself, here they do not count in the ledger",
            AssumptionEffect::Either,
        ),
        "add-cgi-string" | "case-normalize" => {
            OptionOutcome::Unrelated("the crawler changes URLs before it requests them")
        }
        "priority" if value == "0" => OptionOutcome::NoEffect("the normal priority"),
        "priority" => OptionOutcome::NotConverted(
            "the order of the numbers is not known".to_owned(),
            MissingPart::OtherSetting,
            Some("set: { priority: higher }"),
        ),
        "robots" => OptionOutcome::NotConverted(
            "a robots.txt of the crawler's own".to_owned(),
            MissingPart::LetsThrough,
            Some("rules of your own"),
        ),
        _ => return number_option(name, value),
    };
    Some(outcome)
}

fn set(path: &'static str, value: Json, need: PartNeed) -> OptionOutcome {
    OptionOutcome::Set(path, value, need)
}

fn disposition(value: &str) -> OptionOutcome {
    match value {
        "allow" => OptionOutcome::Disposition("allow"),
        "disallow" => OptionOutcome::Disposition("disallow"),
        "disallow-log" => OptionOutcome::Disposition("disallow-log"),
        _ => OptionOutcome::NotConverted(
            "not `allow`, `disallow` or `disallow-log`".to_owned(),
            MissingPart::LetsThrough,
            Some("then: disallow"),
        ),
    }
}

fn flag(value: &str, outcome: impl Fn(bool) -> OptionOutcome) -> OptionOutcome {
    match value {
        "true" => outcome(true),
        "false" => outcome(false),
        _ => OptionOutcome::NotConverted(
            "neither true nor false".to_owned(),
            MissingPart::OtherSetting,
            None,
        ),
    }
}

fn number_option(name: &str, value: &str) -> Option<OptionOutcome> {
    let known = [
        "max-hops",
        "delay",
        "n-concurrent-requests",
        "max-url-len",
        "max-slashes",
        "max-bytes",
        "expires",
        "error-expires",
        "connect-timeout",
        "timeout",
        "max-urls",
        "max-running-time",
        "throttle-kbs-in",
        "throttle-kbs-out",
    ];
    if !known.contains(&name) {
        return None;
    }
    let Ok(number) = value.parse::<i64>() else {
        let failure = match name {
            "max-hops" | "max-url-len" | "max-slashes" => MissingPart::LetsThrough,
            _ => MissingPart::OtherSetting,
        };
        return Some(OptionOutcome::NotConverted(
            "not a number".to_owned(),
            failure,
            None,
        ));
    };
    let number = u64::try_from(number).ok();
    Some(match (name, number) {
        (_, None) => OptionOutcome::NoEffect("a negative number is no limit"),
        ("max-hops", Some(hops)) => set("max_depth", json!(hops), PartNeed::Ledger),
        ("delay", Some(delay)) => set("politeness.delay", json!(from_millis(delay)), PartNeed::Url),
        ("n-concurrent-requests", Some(count)) if count > 0 => {
            set("politeness.concurrency", json!(count), PartNeed::Url)
        }
        ("max-url-len", Some(length)) => OptionOutcome::MaxLength(length),
        ("max-slashes", Some(count)) => OptionOutcome::MaxSlashes(count),
        ("max-bytes", Some(size)) if size > 0 => {
            set("max_body", json!(format!("{size}B")), PartNeed::Response)
        }
        ("expires", Some(age)) if age > 0 => set(
            "recrawl.min_interval",
            json!(from_seconds(age)),
            PartNeed::Ledger,
        ),
        ("error-expires", Some(age)) if age > 0 => set(
            "recrawl.after_error",
            json!(from_seconds(age)),
            PartNeed::Ledger,
        ),
        ("connect-timeout", Some(time)) if time > 0 => {
            set("timeouts.connect", json!(from_seconds(time)), PartNeed::Url)
        }
        ("timeout", Some(time)) if time > 0 => {
            set("timeouts.request", json!(from_seconds(time)), PartNeed::Url)
        }
        ("max-urls" | "max-running-time", Some(_)) => OptionOutcome::NotConverted(
            "a limit of a whole crawl".to_owned(),
            MissingPart::LetsThrough,
            Some("budget: { urls: …, per: crawler }, for each day"),
        ),
        ("throttle-kbs-in" | "throttle-kbs-out", Some(rate)) if rate > 0 => {
            OptionOutcome::NotConverted(
                "a bandwidth of the whole crawler".to_owned(),
                MissingPart::OtherSetting,
                Some("politeness: { bytes_per_second: … }, for each host"),
            )
        }
        (_, Some(_)) => OptionOutcome::NoEffect("zero is no limit"),
    })
}
