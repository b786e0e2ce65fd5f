//! Durations as Norconex writes them: milliseconds, or words as in `5 minutes and 30 seconds`, `5m30s`.

const UNITS: [(&[&str], u64); 9] = [
    (&["ms", "milli", "millis", "millisecond", "milliseconds"], 1),
    (&["s", "sec", "secs", "second", "seconds"], 1_000),
    (&["min", "mins", "minute", "minutes"], 60_000),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600_000),
    (&["d", "day", "days"], 86_400_000),
    (&["w", "week", "weeks"], 604_800_000),
    (&["month", "months", "mo"], 2_592_000_000),
    (&["y", "year", "years"], 31_536_000_000),
    (&["m"], 60_000),
];

/// Reads a duration in milliseconds.
pub(super) fn parse_duration(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Ok(millis) = text.parse() {
        return Some(millis);
    }
    // ISO 8601: PT1M30S.
    let lower = text.to_ascii_lowercase();
    let text = lower.strip_prefix("pt").unwrap_or(&lower);
    let mut total = 0_u64;
    let mut rest = text.trim_start();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest.get(..end)?.parse().ok()?;
        rest = rest.get(end..)?.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphabetic());
        let word = rest.get(..end.unwrap_or(rest.len()))?;
        let (_, unit) = UNITS.iter().find(|(words, _)| words.contains(&word))?;
        total = total.checked_add(number.checked_mul(*unit)?)?;
        rest = rest.get(word.len()..)?;
        rest = rest.trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest).trim_start();
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::parse_duration;

    #[test]
    fn durations_have_units_or_are_milliseconds() {
        for (text, millis) in [
            ("3000", Some(3_000)),
            ("1s", Some(1_000)),
            ("10 seconds", Some(10_000)),
            ("3 min 30s", Some(210_000)),
            ("5 minutes and 30 seconds", Some(330_000)),
            ("5m30s", Some(330_000)),
            ("PT2S", Some(2_000)),
            ("2 weeks", Some(1_209_600_000)),
            ("", None),
            ("soon", None),
            ("5 fortnights", None),
        ] {
            assert_eq!(parse_duration(text), millis, "{text}");
        }
    }
}
