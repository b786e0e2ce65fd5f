//! Required literals of a regular expression.

use std::borrow::Cow;

use regex_syntax::hir::{Class, Hir, HirKind, Literal, Repetition};
use smallvec::{SmallVec, smallvec};

use super::MIN_LENGTH;

/// The maximum number of alternative literals.
const MAX_COUNT: usize = 64;
/// The length at which a text ends, in bytes. Longer texts take memory and distinguish no better.
const MAX_LENGTH: usize = 64;
/// The maximum number of characters in a class that counts as alternative texts.
const MAX_CLASS: usize = 10;
/// The number of repetitions that are analysed.
const MAX_REPETITIONS: u32 = 8;
/// The length beyond which a longer literal is not better.
const ENOUGH_LENGTH: usize = 10;
/// Texts that occur in many URLs.
const COMMON: [&str; 6] = [
    "https://www.",
    "http://www.",
    ".com/index.html",
    ".com/index.php",
    ".org/index.html",
    ".net/index.html",
];

/// Alternative texts, in ASCII lower case: sorted, each once. Mostly there is one.
type Texts = SmallVec<[String; 1]>;

/// Literals with their [`rank`].
struct RankedTexts {
    texts: Texts,
    rank: i64,
}

/// Returns the best literals of an expression: long, few, and rare in URLs.
pub(super) fn best_literals(hir: &Hir) -> Option<Texts> {
    Analysis::of(hir).take_best().map(|best| best.texts)
}

/// The ASCII texts that an expression matches, as far as a few literals describe them.
struct Analysis {
    /// `true` if the expression matches the texts of `prefix` and no others. Then `suffix` is the
    /// same.
    is_exact: bool,
    /// Each match begins with one of these.
    prefix: Texts,
    /// Each match ends with one of these.
    suffix: Texts,
    /// The best literals found so far: each match contains one of these.
    best: Option<RankedTexts>,
}

impl Analysis {
    fn of(hir: &Hir) -> Self {
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => Self::empty(),
            HirKind::Literal(Literal(bytes)) => Self::of_literal(bytes),
            HirKind::Class(class) => Self::of_class(class),
            HirKind::Repetition(repetition) => Self::of_repetition(repetition),
            HirKind::Capture(capture) => Self::of(&capture.sub),
            HirKind::Concat(parts) => parts
                .iter()
                .map(Self::of)
                .fold(Self::empty(), Self::followed_by),
            HirKind::Alternation(parts) => parts
                .iter()
                .map(Self::of)
                .fold(Self::exact(Texts::new()), Self::or),
        }
    }

    /// The analysis of an expression that matches these texts only.
    fn exact(texts: Texts) -> Self {
        let is_short = texts.iter().all(|text| text.len() <= MAX_LENGTH);
        if texts.len() <= MAX_COUNT && is_short {
            return Self {
                is_exact: true,
                prefix: texts.clone(),
                suffix: texts,
                best: None,
            };
        }
        if texts.len() > MAX_COUNT {
            return Self::unlimited();
        }
        let beginning = |text: &String| text.get(..MAX_LENGTH).unwrap_or(text).to_owned();
        let end = |text: &String| {
            let from = text.len().saturating_sub(MAX_LENGTH);
            text.get(from..).unwrap_or(text).to_owned()
        };
        let prefix = sorted(texts.iter().map(beginning));
        Self {
            is_exact: false,
            best: better(None, usable(&prefix)),
            prefix,
            suffix: sorted(texts.iter().map(end)),
        }
    }

    /// The analysis of an expression that matches only the empty text.
    fn empty() -> Self {
        Self::exact(only_empty())
    }

    /// Returns `true` for the analysis of an expression that matches only the empty text.
    fn is_empty(&self) -> bool {
        self.is_exact && has_only_empty(&self.prefix)
    }

    /// The analysis of an expression that may match any text.
    fn unlimited() -> Self {
        Self {
            is_exact: false,
            ..Self::empty()
        }
    }

    fn of_literal(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) if text.is_ascii() => Self::exact(one(text.to_ascii_lowercase())),
            // No ASCII text contains the literal.
            Ok(_) | Err(_) => Self::exact(Texts::new()),
        }
    }

    fn of_class(class: &Class) -> Self {
        let ranges: Vec<(u32, u32)> = match class {
            Class::Unicode(class) => class
                .iter()
                .map(|range| (range.start().into(), range.end().into()))
                .collect(),
            Class::Bytes(class) => class
                .iter()
                .map(|range| (range.start().into(), range.end().into()))
                .collect(),
        };
        // Most classes have many characters, so that no texts are made of them.
        let mut letters: SmallVec<[char; MAX_CLASS]> = SmallVec::new();
        for code in ranges
            .into_iter()
            .flat_map(|(from, to)| from..=to.min(0x7f))
        {
            let letter = char::from_u32(code).map(|c| c.to_ascii_lowercase());
            let Some(letter) = letter.filter(|letter| !letters.contains(letter)) else {
                continue;
            };
            if letters.len() == MAX_CLASS {
                return Self::unlimited();
            }
            letters.push(letter);
        }
        Self::exact(sorted(letters.into_iter().map(String::from)))
    }

    fn of_repetition(repetition: &Repetition) -> Self {
        let is_unlimited = repetition.max.is_none_or(|max| max > MAX_REPETITIONS);
        if repetition.min == 0 && is_unlimited {
            return Self::unlimited();
        }
        let part = Self::of(&repetition.sub);
        if repetition.min == 0 {
            return if repetition.max == Some(1) && part.is_exact {
                Self::empty().or(part)
            } else if repetition.max == Some(0) {
                Self::empty()
            } else {
                Self::unlimited()
            };
        }
        let count = repetition.min.min(MAX_REPETITIONS);
        // Beyond the second, a part that is not exact adds nothing.
        let copies = if part.is_exact { count } else { count.min(2) };
        let mut all = Self::empty();
        for _ in 0..copies {
            all = all.followed_by(Self::of(&repetition.sub));
        }
        if repetition.max == Some(count) {
            return all;
        }
        // A longer match also begins and ends like `all`, but is not one of its texts.
        if all.is_exact {
            all.best = better(all.best, usable(&all.prefix));
        }
        Self {
            is_exact: false,
            ..all
        }
    }

    fn followed_by(self, next: Self) -> Self {
        if self.is_empty() {
            return next;
        }
        let both = (self.is_exact && next.is_exact)
            .then(|| joined(&self.prefix, &next.prefix))
            .flatten();
        if let Some(texts) = both {
            return Self::exact(texts);
        }
        let across = joined(&self.suffix, &next.prefix);
        let best = better_ranked(self.best, next.best);
        let best = [
            usable(&self.suffix),
            usable(&next.prefix),
            across.as_ref().and_then(usable),
        ]
        .into_iter()
        .fold(best, better);
        let prefix = self
            .is_exact
            .then(|| joined(&self.prefix, &next.prefix))
            .flatten();
        let suffix = next
            .is_exact
            .then(|| joined(&self.suffix, &next.suffix))
            .flatten();
        Self {
            is_exact: false,
            prefix: prefix.unwrap_or(self.prefix),
            suffix: suffix.unwrap_or(next.suffix),
            best,
        }
    }

    fn or(self, other: Self) -> Self {
        if self.is_exact && other.is_exact {
            return Self::exact(union(self.prefix, other.prefix));
        }
        let limited = |texts: Texts| {
            if texts.len() <= MAX_COUNT {
                texts
            } else {
                only_empty()
            }
        };
        let (mut one, mut other) = (self, other);
        let best = one.take_best().zip(other.take_best());
        Self {
            is_exact: false,
            best: best
                .map(|(one, other)| union(one.texts, other.texts))
                .filter(|all| all.len() <= MAX_COUNT)
                .map(RankedTexts::new),
            prefix: limited(union(one.prefix, other.prefix)),
            suffix: limited(union(one.suffix, other.suffix)),
        }
    }

    fn take_best(&mut self) -> Option<RankedTexts> {
        let ends = better(better(None, usable(&self.prefix)), usable(&self.suffix));
        better_ranked(self.best.take(), ends)
    }
}

fn has_only_empty(texts: &Texts) -> bool {
    texts.len() == 1 && texts.first().is_some_and(String::is_empty)
}

/// Returns each text of the one followed by each text of the other, if these are not too many.
fn joined(before: &Texts, after: &Texts) -> Option<Texts> {
    if before.len() * after.len() > MAX_COUNT {
        return None;
    }
    let all: Texts = if has_only_empty(before) {
        after.clone()
    } else if has_only_empty(after) {
        before.clone()
    } else {
        let pairs = before
            .iter()
            .flat_map(|head| after.iter().map(move |tail| [&**head, tail]));
        sorted(pairs.map(|pair| pair.concat()))
    };
    all.iter()
        .all(|text| text.len() <= MAX_LENGTH)
        .then_some(all)
}

/// Returns these literals, or a part that all of them have in common if that is better. Returns
/// `None` if one is too short.
fn usable(texts: &Texts) -> Option<Cow<'_, Texts>> {
    let is_usable = |text: &str| text.len() >= MIN_LENGTH;
    let all = texts
        .iter()
        .all(|text| is_usable(text))
        .then_some(Cow::Borrowed(texts));
    if texts.len() < 2 {
        return all;
    }
    let common = [common_beginning(texts), common_end(texts)].into_iter();
    let common = common
        .filter(|text| is_usable(text))
        .map(|text| Cow::Owned(one(text.to_owned())));
    common.fold(all, |best, text| match best {
        Some(best) if rank(&text) <= rank(&best) => Some(best),
        Some(_) | None => Some(text),
    })
}

fn common_beginning(texts: &Texts) -> &str {
    let mut all = texts.iter().map(String::as_str);
    let first = all.next().unwrap_or("");
    all.fold(first, |common, text| {
        let same = equal_bytes(common.bytes(), text.bytes());
        common.get(..same).unwrap_or("")
    })
}

fn common_end(texts: &Texts) -> &str {
    let mut all = texts.iter().map(String::as_str);
    let first = all.next().unwrap_or("");
    all.fold(first, |common, text| {
        let same = equal_bytes(common.bytes().rev(), text.bytes().rev());
        common.get(common.len() - same..).unwrap_or("")
    })
}

/// Returns the number of bytes before the first that differ.
fn equal_bytes(one: impl Iterator<Item = u8>, other: impl Iterator<Item = u8>) -> usize {
    one.zip(other).take_while(|(a, b)| a == b).count()
}

/// Returns the literals that distinguish texts better.
fn better(one: Option<RankedTexts>, other: Option<Cow<'_, Texts>>) -> Option<RankedTexts> {
    let Some(other) = other else {
        return one;
    };
    let rank = rank(&other);
    if one.as_ref().is_some_and(|one| rank <= one.rank) {
        return one;
    }
    Some(RankedTexts {
        texts: other.into_owned(),
        rank,
    })
}

/// Returns the literals that distinguish texts better.
fn better_ranked(one: Option<RankedTexts>, other: Option<RankedTexts>) -> Option<RankedTexts> {
    match (one, other) {
        (Some(one), Some(other)) if other.rank > one.rank => Some(other),
        (Some(one), _) => Some(one),
        (None, other) => other,
    }
}

impl RankedTexts {
    fn new(texts: Texts) -> Self {
        Self {
            rank: rank(&texts),
            texts,
        }
    }
}

fn one(text: String) -> Texts {
    smallvec![text]
}

fn only_empty() -> Texts {
    one(String::new())
}

fn sorted(texts: impl Iterator<Item = String>) -> Texts {
    let mut texts: Texts = texts.collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

fn union(one: Texts, other: Texts) -> Texts {
    sorted(one.into_iter().chain(other))
}

/// Estimates the rareness of literals, in bits: three for each character of the shortest, less those
/// that tell the literals apart.
fn rank(texts: &Texts) -> i64 {
    let shortest = texts.iter().map(|text| useful_length(text)).min();
    let count = u32::try_from(texts.len()).unwrap_or(u32::MAX);
    let Some((shortest, bits)) = shortest.zip(count.checked_ilog2()) else {
        // No text at all passes.
        return i64::MAX;
    };
    3 * shortest.min(ENOUGH_LENGTH) as i64 - 2 * i64::from(bits)
}

/// The length of a literal without the parts that many URLs have.
fn useful_length(text: &str) -> usize {
    if COMMON.iter().any(|common| common.contains(text)) {
        return 1;
    }
    let without = ["https://", "http://", "://", "www."]
        .into_iter()
        .fold(text, |text, common| {
            text.strip_prefix(common).unwrap_or(text)
        });
    without.len()
}
