//! The trap `calendar`: a word that is typical of calendars, and a year far from the current one.
//!
//! A crawler reaches such a year through the years between, so only years that a calendar is likely
//! to show count: `/day/4711` is something else.

/// Words that are typical of calendars, compared as whole words.
const CALENDAR_WORDS: [&str; 8] = [
    "calendar",
    "year",
    "month",
    "day",
    "date",
    "viewcal",
    "calendrier",
    "jour",
];
/// The maximum distance from the current year.
const MAX_YEAR_DISTANCE: u16 = 5;

/// Returns `true` if path and query contain a calendar word and a year more than five years from
/// the current one.
pub(super) fn has_distant_year(path_and_query: &str, now: u16) -> bool {
    let mut words = path_and_query.split(|c: char| !c.is_ascii_alphanumeric());
    let has_distant_year = words
        .clone()
        .filter_map(parse_year)
        .any(|year| year.abs_diff(now) > MAX_YEAR_DISTANCE);
    has_distant_year
        && words.any(|word| {
            CALENDAR_WORDS
                .iter()
                .any(|known| word.eq_ignore_ascii_case(known))
        })
}

/// Parses the year in `2031` or `20310501`.
fn parse_year(word: &str) -> Option<u16> {
    if !matches!(word.len(), 4 | 8) || !word.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = word.split_at_checked(4)?;
    let is_date = match rest.split_at_checked(2) {
        Some((month, day)) => ("01"..="12").contains(&month) && ("01"..="31").contains(&day),
        None => rest.is_empty(),
    };
    let year: u16 = year.parse().ok()?;
    (is_date && (1900..3000).contains(&year)).then_some(year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_and_a_year_make_a_calendar() {
        for (text, trap) in [
            ("/calendar/2031", false),
            ("/calendar/2032", true),
            ("/calendar/2021/05/01", false),
            ("/calendar/2020-12-31", true),
            ("/Calendar?d=20330131", true),
            ("/?month=2033-01", true),
            ("/?d=20331301&year=1", false),
            ("/events/2033", false),
            ("/calendars/2033", false),
            ("/day/4711", false),
            ("/day/1066", false),
            ("/day/12033", false),
            ("/viewcal.php?t=1999", true),
            ("/jour/calendrier", false),
            ("/date/", false),
        ] {
            assert_eq!(has_distant_year(text, 2026), trap, "{text}");
        }
        assert!(
            !has_distant_year("/calendar/2032", 2027) && has_distant_year("/calendar/2021", 2027)
        );
    }
}
