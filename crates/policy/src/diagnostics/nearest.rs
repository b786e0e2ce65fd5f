//! Suggestions for misspelt keys and values.

/// The number of characters of a word that are compared.
const MAX_COMPARED: usize = 64;

/// Returns the word with the smallest edit distance to `given`, if it is close enough for a typo.
///
/// Case, and `-` versus `_`, make no difference. If several words are equally close, the first wins.
pub fn nearest<'w>(given: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let given = fold(given);
    let length = given.chars().count();
    // Every word is within distance 1 of a word of one letter, so the limit is below the length.
    let limit = (length / 3).max(1).min(length.saturating_sub(1));
    words
        .into_iter()
        .map(|word| (strsim::osa_distance(&given, &fold(word)), word))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

fn fold(word: &str) -> String {
    word.chars()
        .take(MAX_COMPARED)
        .map(|c| {
            if c == '-' {
                '_'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_are_found_and_other_words_are_not() {
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
}
