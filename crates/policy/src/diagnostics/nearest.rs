//! Suggestions for misspelt keys and values.

/// The number of characters of a word that are compared.
const MAX_COMPARED: usize = 64;

/// The shortest beginning of a word that suggests the word.
const MIN_BEGINNING: usize = 4;

/// Words of other systems, and those that are used here: the first that is allowed in the place.
const SYNONYMS: [(&str, &str); 21] = [
    ("action", "then"),
    ("block", "forbid"),
    ("block", "disallow"),
    ("deny", "forbid"),
    ("deny", "disallow"),
    ("disallow", "forbid"),
    ("exclude", "forbid"),
    ("refuse", "forbid"),
    ("reject", "disallow"),
    ("include", "require"),
    ("condition", "when"),
    ("if", "when"),
    ("match", "when"),
    ("comment", "about"),
    ("description", "about"),
    ("tests", "cases"),
    ("default", "disposition"),
    ("hostname", "host"),
    ("mime", "content_type"),
    ("extension", "ext"),
    ("name", "id"),
];

/// Returns the word that was probably meant: another system's word for it, the word with the
/// smallest edit distance to `given` if it is close enough for a typo, or one that begins so.
///
/// Case, and `-` versus `_`, make no difference. If several words are equally close, the first wins.
pub fn nearest<'w>(given: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let words: Vec<&str> = words.into_iter().collect();
    let given = fold(given);
    (words.iter().copied().find(|word| fold(word) == given))
        .or_else(|| synonym(&given, &words))
        .or_else(|| typo(&given, &words))
        .or_else(|| beginning(&given, &words))
}

fn synonym<'w>(given: &str, words: &[&'w str]) -> Option<&'w str> {
    SYNONYMS
        .iter()
        .filter(|(theirs, _)| *theirs == given)
        .find_map(|(_, ours)| words.iter().copied().find(|word| word == ours))
}

fn beginning<'w>(given: &str, words: &[&'w str]) -> Option<&'w str> {
    (given.len() >= MIN_BEGINNING)
        .then(|| {
            words
                .iter()
                .copied()
                .find(|word| fold(word).starts_with(given))
        })
        .flatten()
}

fn typo<'w>(given: &str, words: &[&'w str]) -> Option<&'w str> {
    let length = given.chars().count();
    // Every word is within distance 1 of a word of one letter, so the limit is below the length.
    let limit = (length / 3).max(1).min(length.saturating_sub(1));
    words
        .iter()
        .map(|word| (strsim::osa_distance(given, &fold(word)), *word))
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
            ("deny", Some("disallow")),
            ("include", Some("require")),
            ("comment", None),
            ("polite", Some("politeness")),
            ("pol", None),
            ("x", None),
            ("", None),
            ("a", None),
        ] {
            assert_eq!(nearest(given, words), expected, "{given}");
        }
    }
}
