//! The nearest word of a list: what a misspelt key or value was probably meant to be.

/// The word with the least edit distance to `given`, if it is near enough to be a slip of the fingers.
///
/// Letters' case, and `-` against `_`, count as no difference. Of equally near words the first in the list wins.
pub fn nearest<'w>(given: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let given = fold(given);
    // A word of one letter is near to every other.
    let limit = (given.len() / 3).max(1).min(given.len().saturating_sub(1));
    let near = words
        .into_iter()
        .map(|word| (edit_distance(&given, &fold(word)), word));
    near.filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

fn fold(word: &str) -> Vec<char> {
    word.chars()
        .take(64)
        .map(|c| {
            if c == '-' {
                '_'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
}

/// Insertions, deletions, replacements, and swaps of neighbours (optimal string alignment).
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    let mut last_a = None;
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        let mut last_b = None;
        for (j, y) in b.iter().enumerate() {
            let at = |row: &[usize], k: usize| row.get(k).copied().unwrap_or(usize::MAX - 1);
            let replaced = at(&above, j) + usize::from(x != y);
            let mut best = replaced.min(at(&above, j + 1) + 1).min(at(&row, j) + 1);
            if last_a == Some(y) && last_b == Some(x) {
                best = best.min(at(&before, j.saturating_sub(1)) + 1);
            }
            row.push(best);
            last_b = Some(y);
        }
        (before, above, last_a) = (above, row, Some(x));
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let words = [
            "b",
            "allow",
            "disallow",
            "disallow-log",
            "require",
            "politeness",
        ];
        for (given, expected) in [
            ("alow", Some("allow")),
            ("Allow", Some("allow")),
            ("disallow_log", Some("disallow-log")),
            ("reqiure", Some("require")),
            ("politness", Some("politeness")),
            ("forbid", None),
            ("x", None),
            ("", None),
            ("a", None),
        ] {
            assert_eq!(nearest(given, words), expected, "{given}");
        }
    }

    #[test]
    fn distances() {
        let chars = |s: &str| s.chars().collect::<Vec<_>>();
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "acb", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(edit_distance(&chars(a), &chars(b)), expected, "{a} {b}");
        }
    }
}
