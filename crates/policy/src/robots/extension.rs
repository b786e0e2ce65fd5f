//! Lines of a robots.txt beyond RFC 9309: usage preferences, licenses, and lines that are only
//! reported (Visit-time, Clean-param, Host).
//!
//! None of them changes the meaning of Allow and Disallow (RFC 9309 section 2.2.4). A file without
//! such lines stores nothing for them. A file with very many stores the first usage lines and the
//! first reported lines.
//!
//! - `Content-Usage: /path train-ai=n` and `Content-Signal: train-ai=n` are rules of their group;
//!   before the first group, of all crawlers. In both the path may be missing and is `/` then. Of
//!   the Content-Usage lines in a group those with the longest matching path apply, regardless of
//!   Allow and Disallow; all matching Content-Signal lines apply. If several lines apply, the
//!   strictest preference for each purpose wins.
//! - A usage line ends a list of user agents, but not for Allow and Disallow.
//! - `Visit-time: 0600-0845` belongs to its group; `Clean-param: sid&sort /shop/` and
//!   `Host: example.com` to the site. So does `License: URL` (RSL), also inside a group.

mod builder;

use std::borrow::Cow;

use crate::model::words::words;

use super::agent::RobotsAgent;
use super::escape::{decode_query_delimiters, normal_form};
use super::file::RobotsFile;
use super::pattern::{RobotsPattern, UrlForm, matches_rest};
use super::rules::{AgentLine, TextSpan};
use super::usage::{UsagePreference, UsageSyntax, find_preference, parse_statement};

pub(super) use builder::{ExtensionsBuilder, LineAcceptance};

words! {
    /// The kind of an extension line, with its key as in documentation.
    pub enum ExtensionKind {
        /// `Content-Usage` (draft-ietf-aipref-attach).
        ContentUsage = "Content-Usage",
        /// `Content-Signal` (Cloudflare).
        ContentSignal = "Content-Signal",
        /// `Visit-time`: the hours of the day, in UTC, in which crawlers are welcome.
        VisitTime = "Visit-time",
        /// `Clean-param`: parameters that do not affect the page (Yandex).
        CleanParam = "Clean-param",
        /// `Host`: the main host of the site (Yandex).
        Host = "Host",
        /// `License`: the URL of a license for the site (Really Simple Licensing).
        License = "License",
    }
}

/// The keys, compared regardless of case.
const KEYS: [(&[u8], ExtensionKind); 15] = [
    (b"content-usage", ExtensionKind::ContentUsage),
    (b"contentusage", ExtensionKind::ContentUsage),
    (b"content usage", ExtensionKind::ContentUsage),
    (b"content-signal", ExtensionKind::ContentSignal),
    (b"content-signals", ExtensionKind::ContentSignal),
    (b"contentsignal", ExtensionKind::ContentSignal),
    (b"content signal", ExtensionKind::ContentSignal),
    (b"visit-time", ExtensionKind::VisitTime),
    (b"visittime", ExtensionKind::VisitTime),
    (b"visit time", ExtensionKind::VisitTime),
    (b"clean-param", ExtensionKind::CleanParam),
    (b"cleanparam", ExtensionKind::CleanParam),
    (b"clean param", ExtensionKind::CleanParam),
    (b"host", ExtensionKind::Host),
    (b"license", ExtensionKind::License),
];

/// The maximum number of usage lines of a file, and of reported lines.
pub const MAX_LINES: usize = 1000;
/// The maximum number of purposes that are listed for a URL.
const MAX_SHOWN_USES: usize = 64;

impl ExtensionKind {
    /// Returns the kind for a key. The whole key must match, since some keys are prefixes of
    /// others.
    pub(super) fn from_key(name: &[u8]) -> Option<Self> {
        KEYS.iter()
            .find(|(key, _)| name.eq_ignore_ascii_case(key))
            .map(|(_, extension)| *extension)
    }

    pub(super) fn usage_syntax(self) -> Option<UsageSyntax> {
        match self {
            Self::ContentUsage => Some(UsageSyntax::ContentUsage),
            Self::ContentSignal => Some(UsageSyntax::ContentSignal),
            Self::VisitTime | Self::CleanParam | Self::Host | Self::License => None,
        }
    }
}

/// The preference of a robots.txt for one purpose and one URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRule<'a> {
    /// The purpose.
    pub purpose: Box<str>,
    /// The strictest preference that applies.
    pub preference: UsagePreference,
    /// The number of the first line with this preference, from 1.
    pub line: u32,
    /// The line without comment and surrounding white space.
    pub line_text: Cow<'a, str>,
}

/// A line that is only reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedLine<'a> {
    /// The number of the line, from 1.
    pub line: u32,
    pub value: Cow<'a, str>,
}

impl RobotsFile {
    /// Returns `true` if the file has usage lines.
    pub fn has_usage_lines(&self) -> bool {
        self.extensions.as_ref().is_some_and(|extensions| {
            extensions
                .lines
                .iter()
                .any(|line| line.extension.usage_syntax().is_some())
        })
    }

    /// Returns the preferences for a crawler and a URL, one per purpose, in the order of the lines.
    /// The list is limited and meant for display; use [`Self::usage_rules_for`] to obey
    /// preferences.
    ///
    /// `agent` is the product token; `path_and_query` starts with `/`.
    pub fn usage_rules<'a>(
        &self,
        agent: impl Into<RobotsAgent<'a>>,
        path_and_query: &str,
    ) -> Vec<UsageRule<'_>> {
        self.collect_usage_rules(agent.into(), path_and_query, |line, found| {
            self.add_all_preferences(line, found)
        })
    }

    /// Returns the preferences for a crawler and a URL for the given purposes, however many others
    /// the file names. Purposes without a preference are omitted.
    pub fn usage_rules_for<'a, 'n>(
        &self,
        agent: impl Into<RobotsAgent<'a>>,
        path_and_query: &str,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Vec<UsageRule<'_>> {
        self.collect_usage_rules(agent.into(), path_and_query, |line, found| {
            for name in names.clone() {
                self.add_named_preference(line, name, found);
            }
        })
    }

    fn collect_usage_rules<'a>(
        &'a self,
        agent: RobotsAgent<'_>,
        path_and_query: &str,
        mut add: impl FnMut(&ExtensionLine, &mut Vec<UsageRule<'a>>),
    ) -> Vec<UsageRule<'a>> {
        let Some(extensions) = self.extensions.as_deref() else {
            return vec![];
        };
        let normal = normal_form(path_and_query.as_bytes());
        let url = ExtensionUrlForms {
            query_decoded: decode_query_delimiters(&normal),
            normal: &normal,
        };
        let mut found = Vec::new();
        for scope in self.line_scopes(agent) {
            for line in extensions.matching_usage_lines(scope, &url) {
                add(line, &mut found);
            }
        }
        found.sort_by_key(|rule| rule.line);
        found
    }

    /// Returns the values of the Visit-time lines for a crawler: those of its group and of the
    /// site.
    pub fn visit_times<'a>(&self, agent: impl Into<RobotsAgent<'a>>) -> Vec<ReportedLine<'_>> {
        let scopes = self.line_scopes(agent.into());
        self.collect_reported_lines(ExtensionKind::VisitTime, |line| {
            scopes.iter().any(|scope| scope.contains(line))
        })
    }

    /// Returns the URL of the site's license: that of the first License line with an absolute URL, as written.
    pub fn license(&self) -> Option<&str> {
        let extensions = self.extensions.as_deref()?;
        std::str::from_utf8(extensions.license?.slice(&self.text)?).ok()
    }

    fn line_scopes(&self, agent: RobotsAgent<'_>) -> [LineScope<'_>; 3] {
        let groups = self.directive_agents.groups(&self.text, agent);
        [
            LineScope::Site,
            LineScope::Group(groups.own),
            LineScope::Group(groups.first_product),
        ]
    }

    /// Returns the values of all lines of a kind, in order.
    pub fn extension_lines(&self, extension: ExtensionKind) -> Vec<ReportedLine<'_>> {
        self.collect_reported_lines(extension, |_| true)
    }

    fn collect_reported_lines(
        &self,
        extension: ExtensionKind,
        is_included: impl Fn(&ExtensionLine) -> bool,
    ) -> Vec<ReportedLine<'_>> {
        let all = self
            .extensions
            .as_deref()
            .map_or(&[][..], |extensions| &extensions.lines);
        all.iter()
            .filter(|line| line.extension == extension && is_included(line))
            .map(|line| ReportedLine {
                line: line.line,
                value: self.text_at(line.value),
            })
            .collect()
    }

    fn add_all_preferences<'a>(&'a self, line: &ExtensionLine, found: &mut Vec<UsageRule<'a>>) {
        let Some(syntax) = line.extension.usage_syntax() else {
            return;
        };
        for (purpose, preference) in parse_statement(syntax, &self.text_at(line.value)) {
            if found.len() < MAX_SHOWN_USES || found.iter().any(|known| known.purpose == purpose) {
                self.add_preference(line, &purpose, preference, found);
            }
        }
    }

    fn add_named_preference<'a>(
        &'a self,
        line: &ExtensionLine,
        name: &str,
        found: &mut Vec<UsageRule<'a>>,
    ) {
        let Some(syntax) = line.extension.usage_syntax() else {
            return;
        };
        let preference = find_preference(syntax, &self.text_at(line.value), name);
        if preference != UsagePreference::Unset {
            self.add_preference(line, name, preference, found);
        }
    }

    fn add_preference<'a>(
        &'a self,
        line: &ExtensionLine,
        name: &str,
        preference: UsagePreference,
        found: &mut Vec<UsageRule<'a>>,
    ) {
        let known = found.iter_mut().find(|known| *known.purpose == *name);
        if known
            .as_ref()
            .is_some_and(|known| known.preference >= preference)
        {
            return;
        }
        let rule = UsageRule {
            purpose: name.into(),
            preference,
            line: line.line,
            line_text: self.text_at(line.source),
        };
        match known {
            Some(known) => *known = rule,
            None => found.push(rule),
        }
    }

    pub(super) fn text_at(&self, span: TextSpan) -> Cow<'_, str> {
        String::from_utf8_lossy(span.slice(&self.text).unwrap_or_default())
    }
}

/// An extension line.
#[derive(Debug)]
struct ExtensionLine {
    extension: ExtensionKind,
    line: u32,
    /// The section of its user agents; `None` before the first list.
    section: Option<u32>,
    source: TextSpan,
    /// The value; for preferences, the part after the path.
    value: TextSpan,
    /// The path, unless it is `/`.
    path: Option<Box<RobotsPattern>>,
}

/// All extension lines of a file.
#[derive(Debug)]
pub(super) struct Extensions {
    lines: Box<[ExtensionLine]>,
    /// The URL of the first valid License line.
    license: Option<TextSpan>,
}

/// The crawlers to which a line applies.
#[derive(Clone, Copy)]
enum LineScope<'a> {
    Site,
    Group(&'a [AgentLine]),
}

impl LineScope<'_> {
    fn contains(self, line: &ExtensionLine) -> bool {
        match (self, line.section) {
            (Self::Site, section) => section.is_none(),
            (Self::Group(agents), Some(section)) => {
                agents.iter().any(|agent| agent.section == section)
            }
            (Self::Group(_), None) => false,
        }
    }
}

/// A URL in the two forms that patterns match.
struct ExtensionUrlForms<'a> {
    normal: &'a [u8],
    query_decoded: Cow<'a, [u8]>,
}

impl Extensions {
    /// Returns the usage lines that apply to a URL.
    fn matching_usage_lines<'a>(
        &'a self,
        scope: LineScope<'a>,
        url: &'a ExtensionUrlForms<'a>,
    ) -> impl Iterator<Item = &'a ExtensionLine> {
        let matching = self
            .lines
            .iter()
            .filter(move |line| scope.contains(line) && line.matches(url));
        let usages = matching
            .clone()
            .filter(|line| line.extension == ExtensionKind::ContentUsage);
        let longest = usages.clone().map(ExtensionLine::octets).max().unwrap_or(0);
        let signals = matching.filter(|line| line.extension == ExtensionKind::ContentSignal);
        usages
            .filter(move |line| line.octets() == longest)
            .chain(signals)
    }

    pub(super) fn memory_size(&self) -> usize {
        let paths: usize = self
            .lines
            .iter()
            .filter_map(|line| line.path.as_ref())
            .map(|path| size_of::<RobotsPattern>() + path.bytes.len())
            .sum();
        size_of::<Self>() + size_of_val(&*self.lines) + paths
    }
}

impl ExtensionLine {
    fn octets(&self) -> usize {
        self.path.as_ref().map_or(1, |path| path.octets)
    }

    fn matches(&self, url: &ExtensionUrlForms<'_>) -> bool {
        let Some(path) = &self.path else { return true };
        let text: &[u8] = match path.form {
            UrlForm::Normal => url.normal,
            UrlForm::QueryDecoded => &url.query_decoded,
        };
        matches_rest(&path.bytes, path.end, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, agent: &str, path: &str, expected: &str) {
        let parsed = RobotsFile::parse(file.as_bytes());
        let stated = parsed.usage_rules(agent, path);
        let stated: Vec<String> = stated
            .iter()
            .map(|s| format!("{} {} {}", s.purpose, s.preference.as_str(), s.line))
            .collect();
        assert_eq!(stated.join(", "), expected, "{agent} {path}\n{file}");
    }

    /// The example in draft-ietf-aipref-attach.
    #[test]
    fn the_drafts_example() {
        let file = "User-Agent: *\nAllow: /\nDisallow: /never/\nContent-Usage: / train-ai=n\n\
                    Content-Usage: /ai-ok/ train-ai=y\n\nUser-Agent: ExampleBot\nAllow: /\nContent-Usage: / train-ai=y\n";
        check(file, "other", "/test", "train-ai deny 4");
        check(file, "other", "/ai-ok/test", "train-ai allow 5");
        check(file, "examplebot", "/test", "train-ai allow 9");
    }

    #[test]
    fn groups_and_the_site() {
        let file = "Content-Signal: search=yes, ai-train=no\nUser-agent: a\nContent-Usage: train-ai=y\n\
                    User-agent: *\nContent-Usage: search=n\nUser-agent: b\nUser-agent: c\nDisallow: /x\nUser-agent: B\n\
                    Content-Signal: ai-input=no\n";
        check(file, "a", "/", "search allow 1, train-ai deny 1");
        check(file, "d", "/", "train-ai deny 1, search deny 5");
        check(
            file,
            "b",
            "/",
            "search allow 1, train-ai deny 1, ai-input deny 10",
        );
        check(file, "c", "/", "search allow 1, train-ai deny 1");
    }

    #[test]
    fn paths() {
        let file = "User-agent: *\nContent-Usage: /*.pdf$ train-ai=n\nContent-Usage: /a/\ttrain-ai=y\n\
                    Content-Usage: /a/b/c/ search=n # why\nContent-Usage:/a/b/c/   train-ai=y,search=y\n\
                    Content-Signal: /a/ ai-input=no\nContent-Usage: /%7Ex train-ai=n\nContent-Usage: /q?r=/ s=n\n";
        check(file, "x", "/z.pdf", "train-ai deny 2");
        check(file, "x", "/z.pdfx", "");
        check(file, "x", "/a/1", "train-ai allow 3, ai-input deny 6");
        check(file, "x", "/a/b.pdf", "train-ai deny 2, ai-input deny 6");
        check(
            file,
            "x",
            "/a/b/c/d",
            "search deny 4, train-ai allow 5, ai-input deny 6",
        );
        check(file, "x", "/~x", "train-ai deny 7");
        check(file, "x", "/q?r=%2F", "s deny 8");
    }

    #[test]
    fn hostile_spellings() {
        for (file, expected) in [
            ("\u{feff}CONTENT-USAGE : TRAIN-AI = NO", "train-ai deny 1"),
            ("content usage: train-ai=n", "train-ai deny 1"),
            ("Content-Usage train-ai=n", "train-ai deny 1"),
            ("Content-Signals: ai-train=no", "train-ai deny 1"),
            ("Content-Usage: /", ""),
            ("Content-Usage:", ""),
            ("Content-Usage: / / train-ai=n", ""),
            ("Content-Usages: train-ai=n", ""),
            ("Content-Usage: *train-ai=n", ""),
            ("Content-Usage: train-ai=\"n\"", "train-ai unset 1"),
            (
                "Content-Usage: train-ai=n\rContent-Usage: train-ai=y",
                "train-ai deny 1",
            ),
            (
                "Content-Usage: train-ai=y\nContent-Usage: train-ai=n",
                "train-ai deny 2",
            ),
        ] {
            check(file, "x", "/", expected);
        }
    }

    #[test]
    fn extension_lines_do_not_change_rules() {
        let file = "User-agent: a\nContent-Usage: train-ai=n\nVisit-time: 0100-0200\nUser-agent: b\nDisallow: /x\n";
        let parsed = RobotsFile::parse(file.as_bytes());
        assert_eq!(
            parsed.decide("a", "/x").deciding_line.unwrap().line,
            5,
            "a and b have one list, as for Google"
        );
        check(file, "b", "/", "");
    }

    #[test]
    fn reported_lines() {
        let file = "Host: example.com\nUser-agent: a\nVisit-time: 0600-0845\nClean-param: sid /shop/\n\
                    User-agent: *\nVisit-time: 2200-2400\nHosting: x\nSitemap: /s\n";
        let parsed = RobotsFile::parse(file.as_bytes());
        let values = |noted: Vec<ReportedLine<'_>>| {
            noted
                .iter()
                .map(|n| n.value.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            values(parsed.visit_times("b")),
            ["0600-0845", "2200-2400"],
            "no rule ends the list"
        );
        assert_eq!(
            values(parsed.extension_lines(ExtensionKind::CleanParam)),
            ["sid /shop/"]
        );
        assert_eq!(
            values(parsed.extension_lines(ExtensionKind::Host)),
            ["example.com"]
        );
        assert!(!parsed.has_usage_lines());
        assert_eq!(parsed.unknown_lines(), 1);
    }

    #[test]
    fn very_many_lines() {
        let body = "Content-Usage: /a*b*c train-ai=n, search=n\n".repeat(10_000);
        let parsed = RobotsFile::parse(body.as_bytes());
        assert_eq!(
            parsed.extension_lines(ExtensionKind::ContentUsage).len(),
            MAX_LINES
        );
        assert_eq!(parsed.unknown_lines(), 9_000);
        assert_eq!(parsed.usage_rules("x", "/aabbcc").len(), 2);
        let uses: String = (0..10_000)
            .map(|n| format!("Content-Signal: use-{n}=n\n"))
            .collect();
        assert_eq!(
            RobotsFile::parse(uses.as_bytes())
                .usage_rules("x", "/")
                .len(),
            MAX_SHOWN_USES
        );
    }

    /// A denial is found, however many other lines a file has.
    #[test]
    fn a_requested_use_is_found_among_many() {
        let reported = "Clean-param: a\nHost: h\nVisit-time: 0100-0200\n".repeat(1000);
        let lines: String = (0..900)
            .map(|n| format!("Content-Signal: use-{n}=n\n"))
            .collect();
        let members: String = (0..900).map(|n| format!("use-{n}=y,")).collect();
        let denied = "Content-Signal: AI-Train=no\n";
        for file in [
            format!("{reported}{denied}"),
            format!("{lines}{denied}"),
            format!("Content-Usage: {members}train-ai=n\n"),
            format!("Content-Signal: {members}ai-train=n, train-ai=y\n"),
        ] {
            let parsed = RobotsFile::parse(file.as_bytes());
            let stated = parsed.usage_rules_for("x", "/", ["search", "train-ai"].into_iter());
            let stated: Vec<_> = stated.iter().map(|s| (&*s.purpose, s.preference)).collect();
            assert_eq!(
                stated,
                [("train-ai", UsagePreference::Deny)],
                "{:.60}",
                file
            );
        }
        let reported = RobotsFile::parse(format!("{lines}{reported}").as_bytes());
        assert_eq!(
            reported.extension_lines(ExtensionKind::Host).len(),
            MAX_LINES / 3
        );
    }
}
