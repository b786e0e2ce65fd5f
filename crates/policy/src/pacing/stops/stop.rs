//! A single emergency stop. All its texts are validated, so that they can be written to responses,
//! terminals and files without escaping.

use std::fmt;
use std::time::Duration;

use crate::model::rule_id::{RuleId, Slug};
use crate::model::units;
use crate::urls::target::{TargetError, canonical_host};

/// The maximum duration of a stop. A stop without an end lasts until it is lifted.
pub const MAX_STOP_DURATION: Duration = Duration::from_secs(366 * 86_400);

/// A stop as the operator has set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmergencyStop {
    /// The unique number; never reused.
    pub id: StopId,
    pub target: StopTarget,
    /// The reason, which crawlers receive.
    pub reason: StopReason,
    /// The start: wall time since the Unix epoch.
    pub since: Duration,
    /// The end, if it has one: wall time since the Unix epoch.
    pub until: Option<Duration>,
}

/// The number of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StopId(pub u64);

impl StopId {
    /// Parses a number as written by [`fmt::Display`].
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopTarget {
    /// A host on every port, in canonical form.
    Host(Box<str>),
    /// A domain and its subdomains.
    Domain(Box<str>),
    /// All requests of a crawler; `anonymous` is allowed.
    Crawler(Slug),
    /// All requests that a rule matches.
    Rule(RuleId),
}

/// The error of [`StopTarget::parse`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopTargetError {
    /// The text is empty.
    #[error("the target is empty; {TARGET_FORMS}")]
    Empty,
    /// The text is a URL.
    #[error(
        "a stop covers a host, and not single URLs: write its host alone, such as www.example.com"
    )]
    Url,
    /// The text ends with this port.
    #[error("a stop covers a host on all its ports: leave out `:{0}`")]
    Port(Box<str>),
    /// The host is invalid.
    #[error("invalid host: {0}; {TARGET_FORMS}")]
    Host(TargetError),
    /// The name of the crawler is invalid.
    #[error("invalid name of a crawler: use a-z, 0-9 and -, at most 64 characters; {TARGET_FORMS}")]
    Crawler,
    /// The id of the rule is invalid.
    #[error(
        "invalid id of a rule: use letters, digits, _ . and -, at most 128 characters; {TARGET_FORMS}"
    )]
    Rule,
}

const TARGET_FORMS: &str = "write HOST, *.HOST, crawler:NAME or rule:ID";

impl StopTarget {
    /// Parses `HOST`, `host:HOST`, `*.HOST`, `domain:HOST`, `crawler:NAME` or `rule:ID`. `*.HOST`
    /// is a synonym of `domain:HOST`: it includes the host itself.
    ///
    /// # Errors
    /// Returns an error if the text has none of these forms.
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
    if text.contains('/') {
        return Err(StopTargetError::Url);
    }
    if let Some((host, port)) = text.rsplit_once(':') {
        let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        // An address of IPv6 without brackets has no port.
        let is_host = !host.contains(':') || host.starts_with('[') && host.ends_with(']');
        if is_port && is_host && canonical_host(host).is_ok() {
            return Err(StopTargetError::Port(port.into()));
        }
    }
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

/// The operator's reason for a stop: one line of 1 to 200 visible characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReason(Box<str>);

/// The error of [`StopReason::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reason is one line of 1 to {max} characters without control characters", max = StopReason::MAX_CHARS)]
pub struct StopReasonError;

impl StopReason {
    /// The maximum number of characters.
    pub const MAX_CHARS: usize = 200;

    /// Validates a reason. White space around it is removed.
    ///
    /// # Errors
    /// Returns an error if the text is empty, too long or contains an invisible character.
    pub fn new(text: &str) -> Result<Self, StopReasonError> {
        let text = text.trim();
        let valid = (1..=Self::MAX_CHARS).contains(&text.chars().count())
            && !text.chars().any(is_invisible);
        valid.then(|| Self(text.into())).ok_or(StopReasonError)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns `true` for controls, line ends, and characters that change the direction of text or are
/// invisible (Unicode, "Bidirectional Algorithm", 2).
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Parses the duration of a stop, such as `90s` or `1h`: at most [`MAX_STOP_DURATION`].
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
        for text in [
            "a.test:80",
            "host:a.test:80",
            "*.a.test:80",
            "[::1]:80",
            "127.0.0.1:80",
        ] {
            let port = StopTargetError::Port("80".into());
            assert_eq!(StopTarget::parse(text), Err(port), "{text}");
        }
        for text in ["http://a.test/", "a.test/x", "*.a.test/"] {
            assert_eq!(StopTarget::parse(text), Err(StopTargetError::Url), "{text}");
        }
    }

    #[test]
    fn reasons_are_one_printable_line() {
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
