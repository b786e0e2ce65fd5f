//! Built-in crawler traps: patterns of URLs that a site can generate endlessly (the option
//! `traps`).
//!
//! Each trap is a predicate on the canonical URL, and for the calendar on the current year. The
//! limits for repeated segments are those of StormCrawler, Heritrix and Nutch; those for calendars
//! and repeated parameters are estimates.

mod calendar;
mod session;

use crate::model::words::words;
use crate::urls::target::UrlTarget;

use super::options::OptionValue;

words! {
    /// The built-in traps, in the order in which they are tested.
    pub enum Trap {
        /// A path segment occurs three times or more.
        RepeatedSegment = "repeated_segment",
        /// A run of segments occurs three times in a row: `/a/b/a/b/a/b`.
        RepeatedRun = "repeated_run",
        /// A segment occurs three times at every second position: `/a/x/a/y/a`.
        AlternatingSegment = "alternating_segment",
        /// More than 2048 characters.
        LongUrl = "long_url",
        /// More than 20 segments.
        ManySegments = "many_segments",
        /// More than 32 parameters.
        ManyParams = "many_params",
        /// A parameter occurs more than three times.
        RepeatedParam = "repeated_param",
        /// The host name occurs twice in the path.
        HostInPath = "host_in_path",
        /// `/http:/` or `/https:/` occurs twice in the path.
        SchemeInPath = "scheme_in_path",
        /// A calendar word, and a year more than five years from the current one.
        Calendar = "calendar",
        /// A session id in the URL. Not in `builtin`, since it would exclude sites that put a
        /// session id into every link.
        SessionId = "session_id",
    }
}

/// The word for all traps except [`Trap::SessionId`].
const BUILTIN: &str = "builtin";

const MAX_CHARACTERS: usize = 2048;
const MAX_SEGMENTS: usize = 20;
const MAX_PARAMS: usize = 32;
const MAX_PARAM_REPEATS: usize = 3;

impl Trap {
    /// The words allowed in the option: `builtin`, or names of traps.
    pub const WORDS: [&str; 12] = [
        BUILTIN,
        Self::RepeatedSegment.as_str(),
        Self::RepeatedRun.as_str(),
        Self::AlternatingSegment.as_str(),
        Self::LongUrl.as_str(),
        Self::ManySegments.as_str(),
        Self::ManyParams.as_str(),
        Self::RepeatedParam.as_str(),
        Self::HostInPath.as_str(),
        Self::SchemeInPath.as_str(),
        Self::Calendar.as_str(),
        Self::SessionId.as_str(),
    ];

    /// The description in a refusal.
    pub fn description(self) -> &'static str {
        match self {
            Self::RepeatedSegment => {
                "trap repeated_segment: a path segment occurs three times or more"
            }
            Self::RepeatedRun => {
                "trap repeated_run: a run of path segments occurs three times in a row"
            }
            Self::AlternatingSegment => {
                "trap alternating_segment: a path segment occurs at every second position"
            }
            Self::LongUrl => "trap long_url: more than 2048 characters",
            Self::ManySegments => "trap many_segments: more than 20 segments",
            Self::ManyParams => "trap many_params: more than 32 parameters",
            Self::RepeatedParam => "trap repeated_param: a parameter occurs more than three times",
            Self::HostInPath => "trap host_in_path: the host name occurs twice in the path",
            Self::SchemeInPath => "trap scheme_in_path: http: or https: occurs twice in the path",
            Self::Calendar => "trap calendar: a year more than five years from the current one",
            Self::SessionId => "trap session_id: a session id in the URL",
        }
    }

    /// Returns `true` if a URL has this pattern. `year` is the current year.
    pub fn matches(self, target: &UrlTarget, year: u16) -> bool {
        match self {
            Self::RepeatedSegment => repeats_a_segment(target.path()),
            Self::RepeatedRun => repeats_a_run(target.path()),
            Self::AlternatingSegment => alternates_a_segment(target.path()),
            Self::LongUrl => target.as_str().len() > MAX_CHARACTERS,
            Self::ManySegments => segments(target.path()).count() > MAX_SEGMENTS,
            Self::ManyParams => params(target).count() > MAX_PARAMS,
            Self::RepeatedParam => repeats_a_param(target),
            Self::HostInPath => repeats_host_in_path(target),
            Self::SchemeInPath => count_schemes(target.path()) >= 2,
            Self::Calendar => calendar::has_distant_year(target.path_and_query(), year),
            Self::SessionId => session::has_session_id(target),
        }
    }
}

/// A set of traps: the value of the option `traps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrapSet(u16);

impl TrapSet {
    /// Creates the set for a value of the option; `None` if it names no trap.
    pub(crate) fn from_value(value: &OptionValue) -> Option<Self> {
        let OptionValue::List(words) = value else {
            return None;
        };
        let mut set = Self::default();
        for word in words {
            let OptionValue::Word(word) = word else {
                continue;
            };
            for trap in Trap::ALL {
                if trap.as_str() == *word || *word == BUILTIN && trap != Trap::SessionId {
                    set.insert(trap);
                }
            }
        }
        (set != Self::default()).then_some(set)
    }

    /// Returns `true` if a trap is in the set.
    pub fn contains(self, trap: Trap) -> bool {
        self.0 & (1 << trap as u16) != 0
    }

    /// Returns the first trap in the set that matches a URL. `year` is the current year.
    pub fn first_match(self, target: &UrlTarget, year: u16) -> Option<Trap> {
        Trap::ALL
            .into_iter()
            .find(|trap| self.contains(*trap) && trap.matches(target, year))
    }

    /// Returns the traps for readings of a URL by lax servers. Lengths and repetitions are those of
    /// the canonical form.
    pub(crate) fn for_readings(self) -> Self {
        let mut set = Self::default();
        for trap in [Trap::Calendar, Trap::SessionId] {
            if self.contains(trap) {
                set.insert(trap);
            }
        }
        set
    }

    fn insert(&mut self, trap: Trap) {
        self.0 |= 1 << trap as u16;
    }
}

fn segments(path: &str) -> impl Iterator<Item = &str> + Clone {
    path.split('/').filter(|segment| !segment.is_empty())
}

fn params(target: &UrlTarget) -> impl Iterator<Item = &str> {
    target.query().split('&').filter(|param| !param.is_empty())
}

/// The segments to compare, limited to 64: enough for the repetitions of an endless path.
fn bounded_segments(path: &str) -> Vec<&str> {
    segments(path).take(64).collect()
}

fn repeats_a_segment(path: &str) -> bool {
    let all = bounded_segments(path);
    let mut rest = &*all;
    while let Some((first, after)) = rest.split_first() {
        let repeats = after.iter().filter(|other| *other == first);
        if repeats.take(2).count() == 2 {
            return true;
        }
        rest = after;
    }
    false
}

fn repeats_a_run(path: &str) -> bool {
    let all = bounded_segments(path);
    (1..=all.len() / 3).any(|length| {
        all.windows(3 * length).any(|run| {
            let mut parts = run.chunks(length);
            let first = parts.next();
            parts.all(|part| Some(part) == first)
        })
    })
}

fn alternates_a_segment(path: &str) -> bool {
    bounded_segments(path)
        .array_windows()
        .any(|[a, _, b, _, c]| a == b && b == c)
}

fn repeats_a_param(target: &UrlTarget) -> bool {
    // Limited like `bounded_segments`: more parameters match `many_params`.
    let names: Vec<&str> = params(target)
        .map(|param| param.split('=').next().unwrap_or(param))
        .take(64)
        .collect();
    names
        .iter()
        .any(|name| names.iter().filter(|other| *other == name).count() > MAX_PARAM_REPEATS)
}

/// A host without a dot may be an ordinary word.
fn repeats_host_in_path(target: &UrlTarget) -> bool {
    let host = target.host();
    let path = target.path();
    host.contains('.') && path.len() >= 2 * host.len() && {
        path.to_ascii_lowercase().matches(host).take(2).count() == 2
    }
}

/// One slash may end one scheme and begin the next.
fn count_schemes(path: &str) -> usize {
    let without_last = path.rsplit_once('/').map_or("", |(front, _)| front);
    without_last
        .split('/')
        .filter(|part| matches!(*part, "http:" | "https:"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caught(url: &str) -> Vec<Trap> {
        let target = UrlTarget::parse(url).unwrap();
        Trap::ALL
            .into_iter()
            .filter(|trap| trap.matches(&target, 2026))
            .collect()
    }

    #[test]
    fn each_trap_catches_its_pattern_and_lets_the_next_one_pass() {
        use Trap::{
            AlternatingSegment, HostInPath, LongUrl, ManyParams, ManySegments, RepeatedParam,
            RepeatedRun, RepeatedSegment, SchemeInPath,
        };
        let numbered = |count: usize, part: &str| -> String {
            (0..count).map(|i| format!("{part}{i}")).collect()
        };
        for (url, traps) in [
            ("http://h.com/a/b/a/c", vec![]),
            ("http://h.com/a/b/x/a/y/z/a", vec![RepeatedSegment]),
            ("http://h.com/aa/aaa/a", vec![]),
            ("http://h.com/a/a/a", vec![RepeatedSegment, RepeatedRun]),
            ("http://h.com/a//a/x/b", vec![]),
            (
                "http://h.com/x/a/b/a/b/a/b/y",
                vec![RepeatedSegment, RepeatedRun, AlternatingSegment],
            ),
            (
                "http://h.com/a/b/a/c/a",
                vec![RepeatedSegment, AlternatingSegment],
            ),
            (&format!("http://h.com{}", numbered(20, "/s")), vec![]),
            (
                &format!("http://h.com{}/", numbered(21, "/s")),
                vec![ManySegments],
            ),
            (&format!("http://h.com/?{}", numbered(32, "&p")), vec![]),
            (
                &format!("http://h.com/?{}", numbered(33, "&p")),
                vec![ManyParams],
            ),
            ("http://h.com/?a=1&a=2&a&b", vec![]),
            ("http://h.com/?a=1&a=2&a&a=4", vec![RepeatedParam]),
            ("http://h.com/h.com/x", vec![]),
            ("http://h.com/h.com/x/www.H.com/", vec![HostInPath]),
            ("http://word/word/b/word/", vec![]),
            ("http://h.com/http:/a/b", vec![]),
            ("http://h.com/https:/a/http:", vec![]),
            ("http://h.com/https:/a/http:/b", vec![SchemeInPath]),
            ("http://h.com/http:/http:/", vec![SchemeInPath]),
            (&format!("http://h.com/{}", "x".repeat(2_048 - 13)), vec![]),
            (
                &format!("http://h.com/{}", "x".repeat(2_049 - 13)),
                vec![LongUrl],
            ),
        ] {
            assert_eq!(caught(url), traps, "{url}");
        }
    }

    #[test]
    fn names_and_words_are_the_same_and_unique() {
        let [builtin, names @ ..] = Trap::WORDS;
        assert_eq!(builtin, BUILTIN);
        assert_eq!(names, Trap::ALL.map(Trap::as_str));
        for trap in Trap::ALL {
            assert!(
                trap.description()
                    .starts_with(&format!("trap {}: ", trap.as_str()))
            );
        }
    }

    #[test]
    fn the_word_for_all_leaves_out_session_ids() {
        let set = |words: &[&'static str]| {
            TrapSet::from_value(&OptionValue::List(
                words.iter().copied().map(OptionValue::Word).collect(),
            ))
        };
        let builtin = set(&["builtin"]).unwrap();
        assert!(
            Trap::ALL
                .into_iter()
                .all(|trap| builtin.contains(trap) == (trap != Trap::SessionId))
        );
        assert!(
            set(&["builtin", "session_id"])
                .unwrap()
                .contains(Trap::SessionId)
        );
        let one = set(&["calendar"]).unwrap();
        assert!(one.contains(Trap::Calendar) && !one.contains(Trap::LongUrl));
        assert_eq!(
            (set(&[]), TrapSet::from_value(&OptionValue::None)),
            (None, None)
        );
    }
}
