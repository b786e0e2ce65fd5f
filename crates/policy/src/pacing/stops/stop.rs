//! One stop: what is stopped, why, since when and until when. Every text in it is checked, so that it may stand in an
//! answer, on a terminal and in a file as it is.

use std::fmt;
use std::time::Duration;

use crate::model::rule_id::{RuleId, Slug};
use crate::model::units;
use crate::urls::target::{TargetError, canonical_host};

/// The longest that a stop may last by itself; one without an end lasts until it is lifted.
pub const MAX_STOP_DURATION: Duration = Duration::from_secs(366 * 86_400);

/// A stop as an operator has given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmergencyStop {
    /// Its number; never given twice.
    pub id: StopId,
    /// What is stopped.
    pub target: StopTarget,
    /// Why; crawlers are told.
    pub reason: StopReason,
    /// When it was given: wall time since 1970.
    pub since: Duration,
    /// When it ends by itself: wall time since 1970.
    pub until: Option<Duration>,
}

/// The number of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StopId(pub u64);

impl StopId {
    /// Reads a number as [`fmt::Display`] writes it.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| digits).map(Self)
    }
}

impl fmt::Display for StopId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopTarget {
    /// This host, on every port, in canonical form.
    Host(Box<str>),
    /// This host and all below it.
    Domain(Box<str>),
    /// Every request of this crawler; `anonymous` is one, too.
    Crawler(Slug),
    /// Every request to which this rule applies.
    Rule(RuleId),
}

/// Why a text names nothing that could be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopTargetError {
    /// There is no text.
    Empty,
    /// No host.
    Host(TargetError),
    /// No name of a crawler.
    Crawler,
    /// No id of a rule.
    Rule,
}

impl StopTarget {
    /// Reads `HOST`, `host:HOST`, `*.HOST`, `domain:HOST`, `crawler:NAME` or `rule:ID`. `*.HOST` is what `domain:HOST`
    /// is: the host itself is stopped, too.
    ///
    /// # Errors
    /// If it is none of these.
    pub fn parse(text: &str) -> Result<Self, StopTargetError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(StopTargetError::Empty);
        }
        if let Some(name) = text.strip_prefix("crawler:") {
            return Slug::new(name)
                .map(Self::Crawler)
                .ok_or(StopTargetError::Crawler);
        }
        if let Some(id) = text.strip_prefix("rule:") {
            return RuleId::new(id).map(Self::Rule).ok_or(StopTargetError::Rule);
        }
        match text
            .strip_prefix("domain:")
            .or_else(|| text.strip_prefix("*."))
        {
            Some(domain) => Ok(Self::Domain(parse_host(domain)?)),
            None => Ok(Self::Host(parse_host(
                text.strip_prefix("host:").unwrap_or(text),
            )?)),
        }
    }
}

fn parse_host(text: &str) -> Result<Box<str>, StopTargetError> {
    canonical_host(text)
        .map(Into::into)
        .map_err(StopTargetError::Host)
}

impl fmt::Display for StopTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(f, "host:{host}"),
            Self::Domain(host) => write!(f, "domain:{host}"),
            Self::Crawler(name) => write!(f, "crawler:{name}"),
            Self::Rule(id) => write!(f, "rule:{id}"),
        }
    }
}

impl fmt::Display for StopTargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("nothing is named")?,
            Self::Host(error) => write!(f, "no host: {error}")?,
            Self::Crawler => {
                f.write_str("no name of a crawler: a-z, 0-9 and -, 64 characters at most")?
            }
            Self::Rule => {
                f.write_str("no id of a rule: letters, digits, _ . and -, 128 characters at most")?
            }
        }
        f.write_str("; name HOST, *.HOST, crawler:NAME or rule:ID")
    }
}

impl std::error::Error for StopTargetError {}

/// Why something is stopped, in the operator's words: one line of characters that are seen, 1 to 200 of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReason(Box<str>);

/// The words are none, too many, or hold what is no character to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopReasonError;

impl StopReason {
    /// The most characters.
    pub const MAX_CHARS: usize = 200;

    /// Takes these words; white space around them is cut.
    ///
    /// # Errors
    /// [`StopReasonError`].
    pub fn new(text: &str) -> Result<Self, StopReasonError> {
        let text = text.trim();
        let fits = (1..=Self::MAX_CHARS).contains(&text.chars().count())
            && !text.chars().any(is_invisible);
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(StopReasonError)
        }
    }

    /// The words.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StopReasonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a reason is one line of 1 to {} characters, none of them a control",
            StopReason::MAX_CHARS
        )
    }
}

impl std::error::Error for StopReasonError {}

/// Controls, other ends of lines, and what changes the direction or hides (Unicode, "Bidirectional Algorithm", 2).
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Reads for how long a stop is to last: `90s`, `1h`, at most [`LONGEST`].
pub fn parse_stop_duration(text: &str) -> Option<Duration> {
    units::parse_duration(text.trim()).filter(|time| !time.is_zero() && *time <= MAX_STOP_DURATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_in_one_form() {
        for (text, shown) in [
            ("Example.COM.", "host:example.com"),
            (" host:EXAMPLE.com ", "host:example.com"),
            ("*.Example.com", "domain:example.com"),
            ("domain:example.com", "domain:example.com"),
            ("bücher.example", "host:xn--bcher-kva.example"),
            ("0x7f.1", "host:127.0.0.1"),
            ("::1", "host:[::1]"),
            ("crawler:news-bot", "crawler:news-bot"),
            ("rule:spaces.acme.rules.1", "rule:spaces.acme.rules.1"),
            ("crawler", "host:crawler"),
        ] {
            let target = StopTarget::parse(text).unwrap();
            assert_eq!(target.to_string(), shown, "{text}");
            assert_eq!(StopTarget::parse(shown), Ok(target), "{text}");
        }
        for text in [
            "",
            " ",
            "*",
            "*.",
            "domain:",
            "a.test:80",
            "http://a.test/",
            "a b",
            "a\r\nX: y",
            "crawler:",
            "crawler:News",
            "rule:a b",
            "rule:a\nb",
            "host:rule:x",
        ] {
            assert!(StopTarget::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn reasons_are_one_line_that_can_be_seen() {
        assert_eq!(
            StopReason::new("  «too fast», ticket 7 ").unwrap().as_str(),
            "«too fast», ticket 7"
        );
        assert!(StopReason::new(&"ü".repeat(200)).is_ok());
        for text in [
            "",
            " \t",
            "a\r\nX: y",
            "a\0",
            "a\u{1b}[31m",
            "a\u{202e}b",
            "a\u{2028}b",
            "a\u{200b}b",
        ] {
            assert_eq!(StopReason::new(text), Err(StopReasonError), "{text:?}");
        }
        assert_eq!(StopReason::new(&"x".repeat(201)), Err(StopReasonError));
    }

    #[test]
    fn times_and_ids_are_bounded() {
        assert_eq!(parse_stop_duration("1h"), Some(Duration::from_secs(3_600)));
        for text in ["0s", "1", "-1h", "367d", "1e9d", "h", ""] {
            assert_eq!(parse_stop_duration(text), None, "{text}");
        }
        assert_eq!(StopId::parse("12"), Some(StopId(12)));
        for text in ["", "+1", "-1", "1 ", "x", "99999999999999999999"] {
            assert_eq!(StopId::parse(text), None, "{text}");
        }
    }
}
