//! Collection of extension lines while a robots.txt is parsed, with a limit on their number.

use crate::robots::line::RobotsLine;
use crate::robots::pattern::RobotsPattern;
use crate::robots::rules::TextSpan;

use super::{ExtensionKind, ExtensionLine, Extensions, MAX_LINES};

/// The maximum length of a license's URL in bytes; longer ones are ignored.
const MAX_LICENSE_URL: usize = 2048;

/// Collects the extension lines of a file.
#[derive(Debug, Default)]
pub(crate) struct ExtensionsBuilder {
    lines: Vec<ExtensionLine>,
    /// The number of usage lines.
    usage_count: usize,
    /// The URL of the first valid License line.
    license: Option<TextSpan>,
}

/// The result of adding a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineAcceptance {
    Accepted,
    Ignored,
}

impl ExtensionsBuilder {
    /// Adds an extension line. `section` is that of its user agents; `None` before the first list.
    pub(crate) fn add(
        &mut self,
        extension: ExtensionKind,
        line: &RobotsLine,
        section: Option<u32>,
        text: &[u8],
    ) -> LineAcceptance {
        let value = text.get(line.value.clone()).unwrap_or_default();
        let (path, skipped) = match extension.usage_syntax() {
            Some(_) => parse_path(value),
            None => (PathScope::All, 0),
        };
        let path = match path {
            PathScope::All => None,
            PathScope::Pattern(pattern) => Some(Box::new(pattern)),
        };
        if !self.reserve_line(extension) {
            return LineAcceptance::Ignored;
        }
        let is_license = extension == ExtensionKind::License && is_license_url(value);
        let value = TextSpan::new(&(line.value.start + skipped..line.value.end));
        if is_license && self.license.is_none() {
            self.license = Some(value);
        }
        self.lines.push(ExtensionLine {
            extension,
            line: line.number,
            section,
            source: TextSpan::new(&line.source),
            value,
            path,
        });
        LineAcceptance::Accepted
    }

    /// Counts usage lines and reported lines separately, so that many reported lines do not hide a
    /// denial.
    fn reserve_line(&mut self, extension: ExtensionKind) -> bool {
        let reported = self.lines.len() - self.usage_count;
        if extension.usage_syntax().is_none() {
            return reported < MAX_LINES;
        }
        let room = self.usage_count < MAX_LINES;
        self.usage_count += usize::from(room);
        room
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Finishes the collection; `None` if there are no extension lines.
    pub(crate) fn finish(self) -> Option<Box<Extensions>> {
        (!self.lines.is_empty()).then(|| {
            Box::new(Extensions {
                lines: self.lines.into(),
                license: self.license,
            })
        })
    }
}

/// Returns `true` if a value can be the URL of a license: an absolute http or https URL without
/// spaces. Its length is limited, since it may be sent in a header.
fn is_license_url(value: &[u8]) -> bool {
    let has_scheme = [&b"http://"[..], b"https://"].iter().any(|scheme| {
        value.len() > scheme.len()
            && value
                .get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    let is_printable = std::str::from_utf8(value)
        .is_ok_and(|text| !text.contains(|c: char| c.is_whitespace() || c.is_control()));
    has_scheme && is_printable && value.len() <= MAX_LICENSE_URL
}

/// The URLs to which a preference applies.
enum PathScope {
    All,
    Pattern(RobotsPattern),
}

/// Parses the path at the beginning of a value. Returns it with its length in bytes.
fn parse_path(value: &[u8]) -> (PathScope, usize) {
    if !matches!(value.first(), Some(b'/' | b'*')) {
        return (PathScope::All, 0);
    }
    let length = value
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(value.len());
    let pattern = value.get(..length).unwrap_or_default();
    let path = match RobotsPattern::compile(pattern) {
        Some(compiled) if pattern != b"/" => PathScope::Pattern(compiled),
        Some(_) | None => PathScope::All,
    };
    (path, length)
}
