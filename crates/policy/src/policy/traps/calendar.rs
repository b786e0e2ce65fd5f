//! Calendars that can be paged through for ever: a word that belongs to one, and a year far from this one.
//!
//! A crawler comes to such a year from the years between, so that only years that a calendar is likely to show are
//! looked for: `/day/4711` is the day of something else.

/// Words that calendars have in their URLs, as whole words.
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
/// How far from this year a calendar may be.
const MAX_YEAR_DISTANCE: u16 = 5;

/// Whether path and query hold a calendar's word and a year outside this one and five around it.
pub(super) fn has_distant_year(path_and_query: &str, now: u16) -> bool {
    let words = || path_and_query.split(|c: char| !c.is_ascii_alphanumeric());
    let is_word = |word: &str| {
        CALENDAR_WORDS
            .iter()
            .any(|known| word.eq_ignore_ascii_case(known))
    };
    let outside =
        |word: &str| parse_year(word).is_some_and(|year| year.abs_diff(now) > MAX_YEAR_DISTANCE);
    words().any(outside) && words().any(is_word)
}

/// `2031`, or `20310501`.
fn parse_year(word: &str) -> Option<u16> {
    if !matches!(word.len(), 4 | 8) || !word.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = word.split_at_checked(4)?;
    let of_a_date = match rest.split_at_checked(2) {
        Some((month, day)) => ("01"..="12").contains(&month) && ("01"..="31").contains(&day),
        None => rest.is_empty(),
    };
    let year: u16 = year.parse().ok()?;
    (of_a_date && (1900..3000).contains(&year)).then_some(year)
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
