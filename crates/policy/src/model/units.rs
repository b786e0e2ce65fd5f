//! Durations and sizes in human-readable form: `250ms`, `1.5s`, `10m`, `24h`, `7d`; `64KiB`.

use std::time::Duration;

const DURATIONS: [(&str, f64); 5] = [
    ("ms", 0.001),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3_600.0),
    ("d", 86_400.0),
];
const SIZES: [(&str, u64); 4] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("B", 1),
];

/// Parses a duration: a number, possibly with a fraction, and one of `ms s m h d`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    // "ms" is listed before "s" and "m" so that it is not read as minutes.
    let (number, unit) = DURATIONS
        .iter()
        .find_map(|(u, f)| text.strip_suffix(u).map(|n| (n, *f)))?;
    Duration::try_from_secs_f64(parse_decimal(number)? * unit).ok()
}

/// Parses a size in bytes: a whole number and one of `B KiB MiB GiB`.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = SIZES
        .iter()
        .find_map(|(u, f)| text.strip_suffix(u).map(|n| (n, *f)))?;
    parse_whole(number)?.checked_mul(unit)
}

/// Returns the duration that was probably meant by `5`, `5S`, `5 seconds` or `5min`.
pub fn probable_duration(text: &str) -> Option<String> {
    const NAMES: [(&str, &[&str]); 5] = [
        ("ms", &["ms", "msec", "millisecond", "milliseconds"]),
        ("s", &["", "s", "sec", "secs", "second", "seconds"]),
        ("m", &["m", "min", "mins", "minute", "minutes"]),
        ("h", &["h", "hr", "hrs", "hour", "hours"]),
        ("d", &["d", "day", "days"]),
    ];
    with_probable_unit(text, &NAMES)
        .filter(|found| parse_duration(found).is_some())
        .or_else(|| parse_compound_duration(text).map(format_duration))
}

/// Parses `1h30m`, as Go and systemd write it: parts in decreasing units.
fn parse_compound_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest: String = text.split_whitespace().collect();
    let mut last = f64::INFINITY;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at_checked(digits)?;
        let (unit, factor) = DURATIONS
            .iter()
            .find(|(unit, factor)| after.starts_with(unit) && *factor < last)?;
        let part = Duration::try_from_secs_f64(parse_decimal(number)? * factor).ok()?;
        total = total.checked_add(part)?;
        last = *factor;
        rest = after.get(unit.len()..)?.to_owned();
    }
    (!total.is_zero()).then_some(total)
}

/// Returns the two durations that a whole number without a unit may mean, if it is so large that milliseconds are
/// as likely as seconds.
pub fn durations_without_unit(text: &str) -> Option<(String, String)> {
    const SMALLEST_MILLISECONDS: u64 = 100;
    parse_whole(text)
        .filter(|number| *number >= SMALLEST_MILLISECONDS)
        .map(|number| (format!("{number}ms"), format!("{number}s")))
}

/// Returns the size that was probably meant by `10`, `10MB`, `64k` or `1 GiB`.
pub fn probable_size(text: &str) -> Option<String> {
    const NAMES: [(&str, &[&str]); 4] = [
        ("B", &["", "b", "byte", "bytes"]),
        ("KiB", &["k", "kb", "kib"]),
        ("MiB", &["m", "mb", "mib"]),
        ("GiB", &["g", "gb", "gib"]),
    ];
    with_probable_unit(text, &NAMES).filter(|found| parse_size(found).is_some())
}

/// Replaces what follows the digits by the unit that has this name, in any case.
fn with_probable_unit(text: &str, names: &[(&str, &[&str])]) -> Option<String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let name = text.strip_prefix(digits)?.trim().to_ascii_lowercase();
    let (unit, _) = names.iter().find(|(_, all)| all.contains(&name.as_str()))?;
    Some(format!("{digits}{unit}"))
}

/// Formats a duration in the largest unit that gives a whole number, else in milliseconds: `2s`,
/// `1500ms`.
pub fn format_duration(value: Duration) -> String {
    let ms = value.as_millis();
    let units = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
    ];
    if ms == 0 {
        return "0s".into();
    }
    match units.into_iter().find(|(_, f)| ms.is_multiple_of(*f)) {
        Some((unit, factor)) => format!("{}{unit}", ms / factor),
        None => format!("{ms}ms"),
    }
}

/// Formats a size in the largest unit that gives a whole number: `64KiB`, `1000B`.
pub fn format_size(value: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units
        .into_iter()
        .find(|(_, f)| value >= *f && value.is_multiple_of(*f))
    {
        Some((unit, factor)) => format!("{}{unit}", value / factor),
        None => format!("{value}B"),
    }
}

/// Parses digits with at most one decimal point; no sign, no exponent, no `inf`.
fn parse_decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let digit_first = text.bytes().next().is_some_and(|b| b.is_ascii_digit());
    if plain && digit_first {
        text.parse().ok()
    } else {
        None
    }
}

fn parse_whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip() {
        for (text, ms, shown) in [
            ("250ms", 250, "250ms"),
            ("1.5s", 1500, "1500ms"),
            ("10m", 600_000, "10m"),
            ("24h", 86_400_000, "1d"),
            ("0s", 0, "0s"),
        ] {
            let value = parse_duration(text).unwrap();
            assert_eq!(value.as_millis(), ms, "{text}");
            assert_eq!(format_duration(value), shown);
        }
        for bad in [
            "",
            "5",
            "s",
            "-1s",
            "1e3s",
            "infs",
            ".5s",
            "1 s",
            "1y",
            "99999999999999999999d",
        ] {
            assert_eq!(parse_duration(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn probable_durations() {
        for (text, expected) in [
            ("1h30m", Some("90m")),
            ("1h 30m", Some("90m")),
            ("1m30s", Some("90s")),
            ("1s500ms", Some("1500ms")),
            ("2d12h", Some("60h")),
            ("30m1h", None),
            ("1h30", None),
            ("h", None),
            ("1h1h", None),
            ("99999999999999999999d1s", None),
            ("5 minutes", Some("5m")),
            ("PT5S", None),
        ] {
            assert_eq!(probable_duration(text).as_deref(), expected, "{text}");
        }
        let both = ("500ms".to_owned(), "500s".to_owned());
        assert_eq!(durations_without_unit("500"), Some(both));
        assert_eq!(durations_without_unit("5"), None);
        assert_eq!(durations_without_unit("500x"), None);
    }

    #[test]
    fn sizes_round_trip() {
        for (text, bytes, shown) in [
            ("32KiB", 32_768, "32KiB"),
            ("1000B", 1000, "1000B"),
            ("1024KiB", 1 << 20, "1MiB"),
            ("0B", 0, "0B"),
        ] {
            let value = parse_size(text).unwrap();
            assert_eq!(value, bytes, "{text}");
            assert_eq!(format_size(value), shown);
        }
        for bad in [
            "",
            "5",
            "KiB",
            "1.5KiB",
            "1kb",
            "+1B",
            "99999999999999999GiB",
        ] {
            assert_eq!(parse_size(bad), None, "{bad:?}");
        }
    }
}
