//! Durations as a policy writes them.

/// Writes a number of milliseconds in the largest unit that divides it: `2500ms`, `3s`, `7d`.
pub fn from_millis(millis: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    if millis == 0 {
        return "0s".to_owned();
    }
    let fits = UNITS.iter().find(|(unit, _)| millis.is_multiple_of(*unit));
    match fits {
        Some((unit, name)) => format!("{}{name}", millis / unit),
        None => format!("{millis}ms"),
    }
}

/// Writes a number of seconds.
pub fn from_seconds(seconds: u64) -> String {
    from_millis(seconds.saturating_mul(1_000))
}
