//! Required literals: short texts of which one occurs in every text that passes a test.
//!
//! One search for the literals of many tests finds those that can pass at all. Only these are
//! then evaluated, so the literals may be too general but never too specific.

mod expression;

use regex_syntax::hir::Hir;

use super::pattern::{LiteralTestKind, TextForm, TextKind, TextTest};

/// The minimum length of a literal in bytes. Shorter ones occur in too many texts.
pub(crate) const MIN_LENGTH: usize = 3;

/// Literals in ASCII lower case, of which at least one occurs in the ASCII lower-case form of each
/// ASCII text that passes a test. Without literals, no ASCII text passes.
///
/// Texts with other characters may pass without any of the literals, since Unicode has letters such
/// as U+212A (Kelvin sign) that regular expressions compare like a `k`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequiredLiterals(Box<[Box<str>]>);

impl RequiredLiterals {
    /// Returns the literals of a test. Returns `None` if it has none, or if it does not see the text
    /// as it is (`norm: true`).
    pub(crate) fn of_test(test: &TextTest) -> Option<Self> {
        match test.form {
            TextForm::Canonical => Self::of_kind(&test.kind),
            TextForm::Normalized => None,
        }
    }

    fn of_kind(kind: &TextKind) -> Option<Self> {
        match kind {
            TextKind::Literal(kind, values) => match kind {
                LiteralTestKind::Exact
                | LiteralTestKind::Prefix
                | LiteralTestKind::Suffix
                | LiteralTestKind::Contains
                | LiteralTestKind::Domain
                | LiteralTestKind::Under => Self::of_values(values, ""),
                LiteralTestKind::Ext => Self::of_values(values, "."),
                LiteralTestKind::Surt => None,
            },
            TextKind::Regex(regexes) => {
                let mut all = Vec::new();
                for regex in regexes {
                    all.extend(regex.required_literals()?.iter().map(Box::from));
                }
                Some(Self::from_texts(all))
            }
            TextKind::Count(..) => None,
        }
    }

    fn of_values(values: &[Box<str>], before: &str) -> Option<Self> {
        let mut all = Vec::with_capacity(values.len());
        for value in values {
            let literal = format!("{before}{}", value.to_ascii_lowercase());
            if literal.len() < MIN_LENGTH {
                return None;
            }
            all.push(literal.into());
        }
        Some(Self::from_texts(all))
    }

    /// Returns the literals of a regular expression: the part of it that distinguishes texts best. Returns
    /// `None` if it has no part with literals of [`MIN_LENGTH`].
    pub(crate) fn of_tree(tree: &Hir) -> Option<Self> {
        let literals = expression::best_literals(tree)?;
        Some(Self::from_texts(
            literals.into_iter().map(Into::into).collect(),
        ))
    }

    fn from_texts(mut all: Vec<Box<str>>) -> Self {
        all.sort_unstable();
        all.dedup();
        Self(all.into())
    }

    /// The literals, sorted.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|literal| &**literal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::expression::Expression;
    use crate::policy::pattern::CaseSensitivity;

    fn literals(pattern: &str, case: CaseSensitivity) -> Option<Vec<String>> {
        let expression = Expression::new(pattern, case).unwrap();
        let literals = expression.required_literals();
        literals.map(|all| all.iter().map(str::to_owned).collect())
    }

    #[test]
    fn the_best_part_of_an_expression_is_chosen() {
        for (pattern, expected) in [
            ("abc", Some(vec!["abc"])),
            ("ABC", Some(vec!["abc"])),
            ("^/calendar/[0-9]+$", Some(vec!["/calendar/"])),
            (
                r"^https?://(www\.)?example\.com/",
                Some(vec!["example.com/"]),
            ),
            ("/(foo|bar)/", Some(vec!["/bar/", "/foo/"])),
            (
                "(gallery|x).*(session|token)=",
                Some(vec!["session=", "token="]),
            ),
            (r"\.(gif|jpe?g)$", Some(vec![".gif", ".jpeg", ".jpg"])),
            ("[0-9]{4}foo[0-9]{4}", Some(vec!["foo"])),
            ("x(abc){2,}y", Some(vec!["xabcabc"])),
            ("(abc)*def", Some(vec!["def"])),
            ("(abc)?", None),
            (".*", None),
            ("ab", None),
            ("abc|d", None),
            ("", None),
            (r"a%3[Cc]b", Some(vec!["a%3cb"])),
            ("(?i)Kiss", Some(vec!["kiss"])),
            ("(?i)[ab]cdef", Some(vec!["acdef", "bcdef"])),
            ("é", Some(vec![])),
            ("é|abc", Some(vec!["abc"])),
            ("a[^b]cde", Some(vec!["cde"])),
            (r"(?-u:\w)abc", Some(vec!["abc"])),
        ] {
            let found = literals(pattern, CaseSensitivity::Sensitive);
            let expected: Option<Vec<String>> =
                expected.map(|all| all.into_iter().map(str::to_owned).collect());
            assert_eq!(found, expected, "{pattern}");
        }
        assert_eq!(
            literals("SessionKey", CaseSensitivity::Insensitive),
            Some(vec!["sessionkey".to_owned()])
        );
    }

    #[test]
    fn common_parts_of_urls_are_the_last_choice() {
        for (pattern, expected) in [
            (r"^https?://.*zyx", "zyx"),
            (r"^https?://www\.[a-z]+ads", "ads"),
            (r"zyx.*\.html$", "zyx"),
            (r"^http://[a-z]+/$", "http://"),
        ] {
            let found = literals(pattern, CaseSensitivity::Sensitive);
            assert_eq!(found, Some(vec![expected.to_owned()]), "{pattern}");
        }
    }

    #[test]
    fn values_are_their_own_literals() {
        let of = |kind: LiteralTestKind, values: &[&str], form: TextForm| {
            let values = values.iter().map(|text| (*text).into()).collect();
            let test = TextTest::new(
                TextKind::Literal(kind, values),
                CaseSensitivity::Sensitive,
                form,
            );
            let found = RequiredLiterals::of_test(&test)?;
            Some(found.iter().map(str::to_owned).collect::<Vec<_>>())
        };
        let plain = TextForm::Canonical;
        assert_eq!(
            of(LiteralTestKind::Prefix, &["/B/", "/a/"], plain).unwrap(),
            ["/a/", "/b/"]
        );
        assert_eq!(of(LiteralTestKind::Ext, &["GZ"], plain).unwrap(), [".gz"]);
        assert_eq!(of(LiteralTestKind::Contains, &["abc", "x"], plain), None);
        let normalized = TextForm::Normalized;
        assert_eq!(of(LiteralTestKind::Contains, &["abc"], normalized), None);
        assert_eq!(of(LiteralTestKind::Surt, &["com,example,"], plain), None);
    }

    /// An expression and texts made from it; some of the texts match, some only nearly.
    struct LiteralSample {
        pattern: String,
        texts: Vec<String>,
    }

    const TEXTS: usize = 6;

    fn sample(random: &mut fastrand::Rng, depth: u32) -> LiteralSample {
        let one = |pattern: &str, text: &str| LiteralSample {
            pattern: pattern.to_owned(),
            texts: vec![text.to_owned(); TEXTS],
        };
        let kind = if depth == 0 {
            random.u8(0..3)
        } else {
            random.u8(0..9)
        };
        match kind {
            0 | 1 => {
                let word: String = (0..random.usize(1..5))
                    .map(|_| char::from(*random.choice(b"abkKsS/.-0").unwrap()))
                    .collect();
                one(&regex_syntax::escape(&word), &word)
            }
            2 => {
                let (pattern, text) = random
                    .choice([
                        ("[ab]", "b"),
                        ("[a-z]", "q"),
                        ("[^a]", "k"),
                        (".", "x"),
                        (r"\d", "7"),
                        (r"\w", "S"),
                        ("^", ""),
                        (r"\b", ""),
                        ("[éa]", "a"),
                        ("(?i:k)", "K"),
                        ("(?i:[s])", "S"),
                        (r"(?-u:[\x00-\x7f])", "z"),
                    ])
                    .unwrap();
                one(pattern, text)
            }
            3 => {
                let part = sample(random, depth - 1);
                let (suffix, counts) = random
                    .choice([
                        ("*", 0..3),
                        ("?", 0..2),
                        ("+", 1..4),
                        ("{2}", 2..3),
                        ("{2,}", 2..4),
                        ("{0,3}", 0..4),
                        ("{0}", 0..1),
                    ])
                    .unwrap();
                let texts = part
                    .texts
                    .iter()
                    .map(|text| text.repeat(random.usize(counts.clone())))
                    .collect();
                LiteralSample {
                    pattern: format!("(?:{}){suffix}", part.pattern),
                    texts,
                }
            }
            4 | 5 => {
                let parts: Vec<LiteralSample> = (0..random.usize(2..4))
                    .map(|_| sample(random, depth - 1))
                    .collect();
                let patterns: Vec<&str> = parts.iter().map(|part| &*part.pattern).collect();
                let texts = (0..TEXTS)
                    .map(|at| random.choice(&parts).unwrap().texts[at].clone())
                    .collect();
                LiteralSample {
                    pattern: format!("({})", patterns.join("|")),
                    texts,
                }
            }
            _ => {
                let parts: Vec<LiteralSample> = (0..random.usize(2..5))
                    .map(|_| sample(random, depth - 1))
                    .collect();
                LiteralSample {
                    pattern: parts.iter().map(|part| &*part.pattern).collect(),
                    texts: (0..TEXTS)
                        .map(|at| parts.iter().map(|part| &*part.texts[at]).collect())
                        .collect(),
                }
            }
        }
    }

    #[test]
    fn each_matching_text_contains_a_literal() {
        let mut random = fastrand::Rng::with_seed(21);
        let (mut matched, mut with_literals) = (0, 0);
        for _ in 0..4_000 {
            let LiteralSample { pattern, texts } = sample(&mut random, 4);
            let case = random
                .choice([CaseSensitivity::Sensitive, CaseSensitivity::Insensitive])
                .unwrap();
            let regex = regex::RegexBuilder::new(&pattern)
                .case_insensitive(case == CaseSensitivity::Insensitive)
                .build()
                .unwrap();
            let expression = Expression::new(&pattern, case).unwrap();
            let Some(literals) = expression.required_literals() else {
                continue;
            };
            with_literals += 1;
            assert!(literals.iter().all(|literal| literal.len() >= MIN_LENGTH));
            for text in texts {
                let text = match random.u8(0..4) {
                    0 => format!("x{text}y"),
                    1 => text.to_ascii_uppercase(),
                    _ => text,
                };
                if text.is_ascii() && regex.is_match(&text) {
                    matched += 1;
                    let lower = text.to_ascii_lowercase();
                    assert!(
                        literals.iter().any(|literal| lower.contains(literal)),
                        "{pattern} matches {text} without {literals:?}"
                    );
                }
            }
        }
        assert!(
            matched > 3_000 && with_literals > 800,
            "{matched} {with_literals}"
        );
    }
}
